//! Waiting for topics.

use super::*;
use crate::supervisor::core::key::{Key, TeamKey};
use crate::supervisor::model::TaskId;
use crate::supervisor::spec::{Span, Topics};
use crate::supervisor::team::topics::*;

fn task(id: &str) -> TaskId {
    TaskId::of(id)
}

fn topics(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// `p` is going to produce prices, `q` too and patents.
fn planned() -> TopicRegistry {
    let mut waits = TopicRegistry::default();
    waits.plan(&task("p"), &topics(&["prices"]));
    waits.plan(&task("q"), &topics(&["patents"]));
    waits
}

const GO: TopicState = TopicState::Go { missing: Vec::new() };

/// Lets the wait of `c` run to its end; the seconds at which it looked, and how it ended.
fn wait_out(waits: &mut TopicRegistry, mut meanwhile: impl FnMut(&mut TopicRegistry, i64)) -> (Vec<i64>, TopicState) {
    let mut out = outbox(0);
    assert_eq!(waits.begin(&task("c"), "agent-c", &topics(&["prices"]), &mut out), TopicState::Wait);
    let mut looks = Vec::new();
    loop {
        let (asks, _) = out.take();
        let [Ask::Timer { key: Key::Team(TeamKey::Topic { task, look }), at, .. }] = &asks[..] else {
            panic!("{asks:?}")
        };
        looks.push(at.as_micros() / 1_000_000);
        meanwhile(waits, looks[looks.len() - 1]);
        out = Outbox::new("run-1", *at);
        let state = waits.fired(task, *look, &mut out).unwrap();
        assert_eq!(task.as_str(), "c");
        if state != TopicState::Wait {
            assert!(out.asks().is_empty());
            return (looks, state);
        }
    }
}

/// SHN-49: looks after 1 s, twice as long each time up to 30 s, until 360 s: then on, with a warning.
#[test]
fn a_topic_is_waited_for_six_minutes_at_most() {
    let (looks, end) = wait_out(&mut planned(), |_, _| {});
    assert_eq!(looks, [1, 3, 7, 15, 31, 61, 91, 121, 151, 181, 211, 241, 271, 301, 331, 360]);
    assert_eq!(end, TopicState::Go { missing: topics(&["prices"]) });
}

/// SHN-49: the warning names the topic.
#[test]
fn going_on_without_a_topic_warns() {
    let rules = Topics { timeout: Span::from_secs(1), ..Topics::default() };
    let (mut waits, mut out) = (TopicRegistry::new(rules), outbox(0));
    waits.plan(&task("p"), &topics(&["prices"]));
    waits.begin(&task("c"), "agent-c", &topics(&["prices"]), &mut out);
    let mut out = outbox(1);
    waits.fired(&task("c"), 1, &mut out).unwrap();
    assert_eq!(out.notes()[0].data["warning"], "topic prices did not come in time; going on without it");
    assert_eq!(waits.fired(&task("c"), 1, &mut out), None, "the wait is over");
    let again = waits.begin(&task("c"), "agent-c", &topics(&["prices"]), &mut outbox(2));
    assert_eq!(again, TopicState::Go { missing: topics(&["prices"]) }, "it does not wait a second time");
}

/// SHN-49: the topic is found at the next look, and people are told when the wait begins and ends.
#[test]
fn a_topic_that_comes_ends_the_wait_at_the_next_look() {
    let (looks, end) = wait_out(&mut planned(), |waits, second| {
        if second == 15 {
            waits.ended(&task("p"), &topics(&["prices"]), true);
        }
    });
    assert_eq!((looks, end), (vec![1, 3, 7, 15], GO));
    let (mut waits, mut out) = (planned(), outbox(0));
    waits.begin(&task("c"), "agent-c", &topics(&["prices", "patents"]), &mut out);
    assert_eq!(waits.waiting_for(&task("c")), ["patents", "prices"]);
    waits.ended(&task("p"), &topics(&["prices"]), true);
    assert_eq!(waits.fired(&task("c"), 1, &mut out), Some(TopicState::Wait));
    assert_eq!(waits.waiting_for(&task("c")), ["patents"]);
    assert_eq!(told(&out), ["WAITING agent-c: Waiting for patents, prices", "DEPENDENCY_SATISFIED agent-c: prices"]);
}

/// SHN-49: what nobody produces, only the task itself produces, nobody can produce any more, or is there already, is
/// not waited for.
#[test]
fn a_topic_that_nobody_produces_is_not_waited_for() {
    let begin = |waits: &mut TopicRegistry, consumes: &[&str]| {
        let mut out = outbox(0);
        let state = waits.begin(&task("c"), "agent-c", &topics(consumes), &mut out);
        assert_eq!(out.asks().is_empty(), state == GO);
        state
    };
    assert_eq!(begin(&mut planned(), &[]), GO);
    assert_eq!(begin(&mut planned(), &["gossip"]), GO);
    assert_eq!(begin(&mut planned(), &["gossip", "prices"]), TopicState::Wait);
    let mut own = TopicRegistry::default();
    own.plan(&task("c"), &topics(&["prices"]));
    assert_eq!(begin(&mut own, &["prices"]), GO);
    let mut there = planned();
    there.ended(&task("p"), &topics(&["prices"]), true);
    assert_eq!(begin(&mut there, &["prices"]), GO);
    let mut failed = planned();
    failed.ended(&task("p"), &topics(&["prices"]), false);
    assert_eq!(begin(&mut failed, &["prices"]), GO);
    // A producer that fails while somebody waits ends the wait at the next look.
    let (looks, end) = wait_out(&mut planned(), |waits, second| {
        if second == 3 {
            waits.ended(&task("p"), &topics(&["prices"]), false);
        }
    });
    assert_eq!((looks, end), (vec![1, 3], GO));
}

/// SHN-49: asked again, a waiting task asks for no second timer; keys of others and of old looks are passed over.
#[test]
fn a_wait_has_one_timer_at_a_time() {
    let (mut waits, mut out) = (planned(), outbox(0));
    let consumes = topics(&["prices"]);
    for _ in 0..3 {
        assert_eq!(waits.begin(&task("c/1"), "a", &consumes, &mut out), TopicState::Wait);
    }
    assert_eq!(asked(&out), ["timer topic/c/1/1 1"]);
    for (stranger, look) in [("c/1", 2), ("x", 1), ("c", 1)] {
        assert_eq!(waits.fired(&task(stranger), look, &mut out), None);
    }
    assert_eq!(waits.fired(&task("c/1"), 1, &mut out), Some(TopicState::Wait));
    assert_eq!(waits.fired(&task("c/1"), 1, &mut out), None);
    assert_eq!(waits.waiting_for(&task("c/1")), ["prices"]);
}
