//! The transition table of a delegation: an agent asks another one for work, in all that can become of it.

use super::*;
use crate::supervisor::agents::session::{Doing, Session};
use crate::supervisor::core::key::{AgentsKey, SessionAsk};
use crate::transitions::{Event, compare, table};

const BOSS: &str = "boss";
const CLERK: &str = "clerk";

/// The loop, and what is awaited.
#[derive(Clone)]
struct Work {
    it: AgentLoop,
    out: Outbox,
}

/// The newest session of an agent.
fn session<'l>(it: &'l AgentLoop, agent: &str) -> Option<&'l Session> {
    it.sessions.values().rev().find(|session| session.agent == agent)
}

/// What both do. What was said is not in it.
fn shown(Work { it, out }: &Work) -> String {
    if let Some(outcome) = it.outcome() {
        return if outcome.ok { "over: done" } else { "over: failed" }.to_owned();
    }
    let does = |agent: &str| match session(it, agent).map(|session| &session.doing) {
        None => None,
        Some(Doing::Thinking { key: AgentsKey::Session { ask: SessionAsk::Question { .. }, .. } }) => {
            Some(format!("{agent} waits for a person"))
        }
        Some(Doing::Thinking { .. }) => Some(format!("{agent} thinks")),
        Some(Doing::Acting(_)) => Some(format!("{agent} waits for its calls")),
        Some(Doing::Ended { .. }) => Some(format!("{agent} has ended")),
        Some(other) => Some(format!("{agent}: {other:?}")),
    };
    let mut parts: Vec<String> = [BOSS, CLERK].into_iter().filter_map(does).collect();
    parts.extend(deadline(out).map(|_| "the time runs".to_owned()));
    parts.extend(it.humans.keys().map(|_| "a person is asked".to_owned()));
    parts.extend(out.is_held().then(|| "paused".to_owned()));
    parts.join(", ")
}

/// The deadline that runs.
fn deadline(out: &Outbox) -> Option<AgentsKey> {
    let is_deadline = |key: &&Key| matches!(key, Key::Agents(AgentsKey::Session { ask: SessionAsk::Deadline, .. }));
    let runs = out.awaited().times().filter(is_deadline).find(|key| out.awaited().runs(key))?;
    runs.clone().try_into().ok()
}

fn thinking(it: &AgentLoop, agent: &str) -> Option<AgentsKey> {
    match &session(it, agent)?.doing {
        Doing::Thinking { key: key @ AgentsKey::Session { ask: SessionAsk::Step { .. }, .. } } => Some(key.clone()),
        _ => None,
    }
}

fn reply<'e>(name: &'e str, agent: &'e str, answer: Answer) -> Event<'e, Work> {
    comes_in(name, move |it, out| {
        if let Some(key) = thinking(it, agent) {
            it.answered(&key, answer.clone(), out);
        }
    })
}

fn fires(it: &mut AgentLoop, out: &mut Outbox) {
    if let Some(key) = deadline(out) {
        it.fired(&key, out);
    }
}

/// An answer, or a timer, under the key of what is asked of a person.
fn astray(it: &mut AgentLoop, out: &mut Outbox) {
    for key in it.humans.keys().cloned().collect::<Vec<_>>() {
        it.answered(&key, Ok(says("I am no person")), out);
        it.fired(&key, out);
    }
}

fn person(it: &mut AgentLoop, answers: bool, out: &mut Outbox) {
    let Some(key) = it.humans.keys().next().cloned() else { return };
    if answers {
        it.human(&key, HumanAnswer { approved: true, feedback: "the blue one".to_owned() }, out).unwrap();
    } else {
        assert!(it.unanswered(&key, "nobody has answered", out));
    }
}

/// What comes in, which the run keeps while the loop is paused.
fn comes_in<'e>(name: &'e str, happens: impl Fn(&mut AgentLoop, &mut Outbox) + 'e) -> Event<'e, Work> {
    on(name, move |it, out| {
        if !out.is_held() {
            happens(it, out);
        }
    })
}

/// The run stands still, or goes on.
fn held(it: &mut AgentLoop, held: bool, out: &mut Outbox) {
    out.set_held(held);
    it.held_or_not(out);
}

fn on<'e>(name: &'e str, happens: impl Fn(&mut AgentLoop, &mut Outbox) + 'e) -> Event<'e, Work> {
    let act = move |Work { it, out }: &mut Work| {
        happens(it, out);
        out.take();
    };
    (name, Box::new(act))
}

/// SUP-02, SUP-15, LGI-01: work is handed down, answered, questioned, late, paused and given up.
#[test]
fn of_a_delegation() {
    let question = json!({ "interrupt": { "question": "Which one?" } });
    let events: Vec<Event<'_, Work>> = vec![
        reply("the boss answers", BOSS, Ok(says("done"))),
        reply("the boss delegates", BOSS, Ok(delegate(CLERK, "buy it"))),
        reply("the boss fails", BOSS, Err(CallFailure::error("lost"))),
        reply("the clerk answers", CLERK, Ok(says("bought"))),
        reply("the clerk asks a person", CLERK, Ok(question)),
        reply("the clerk fails", CLERK, Err(CallFailure::error("lost"))),
        comes_in("a person answers", |it, out| person(it, true, out)),
        comes_in("a person is too late", |it, out| person(it, false, out)),
        comes_in("a question is no call", astray),
        comes_in("the time is over", fires),
        on("paused", |it, out| held(it, true, out)),
        on("resumed", |it, out| held(it, false, out)),
        on("cancelled", |it, out| it.cancel("enough", out)),
    ];
    let mut text = String::new();
    for on_timeout in [OnDelegationTimeout::Kill, OnDelegationTimeout::Wait, OnDelegationTimeout::Fail] {
        let mut rules = of_supyagent();
        rules.delegation.on_timeout = on_timeout;
        let rig = Rig::start(rules, vec![agent(BOSS).delegates(&[CLERK]), agent(CLERK)], "buy one");
        let out = Outbox::new("run-1", T0).with_awaited(rig.awaited);
        let states = table(Work { it: rig.it, out }, &events, shown);
        text += &format!("# when the time is over: {on_timeout:?}\n{states}\n");
    }
    compare("src/supervisor/agents/tests/delegation.txt", &text);
}
