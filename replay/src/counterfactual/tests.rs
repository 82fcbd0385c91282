//! The same code decides the same; changed code is told apart, and what nobody recorded stays unknown.

use std::time::Duration;

use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry, join_all};
use bosun_engine::*;

use super::*;
use crate::corpus::stories::STORIES;
use crate::corpus::workflows::registry;
use crate::{DivergenceCause, Redaction};

fn quick() -> ActivityOptions {
    ActivityOptions::start_to_close(Duration::from_secs(10))
}

fn json<T: Serialize>(value: T) -> Payload {
    Payload::encode(&value).unwrap()
}

/// Whatever was recorded, the same code decides it again, without one activity; only a run that was recorded before a
/// patch decides anew.
#[test]
fn the_same_code_decides_the_same_in_every_history_of_the_corpus() {
    for story in STORIES {
        let history = History::new((story.tell)(story.name)).unwrap();
        let told = what_if(&registry(), &history, &WhatIf::default()).unwrap();
        if story.name == "notes-before-the-patch" {
            assert_eq!(told.new[0].what, "MarkerRecorded patch double");
            assert_eq!(told.changed.len(), 1, "{told}");
            continue;
        }
        assert!(told.is_same() && told.diff.is_same(), "{}: {told}", story.name);
        assert!(told.unknown.iter().all(|one| one.pending_then), "{}: {told}", story.name);
        assert_eq!(told.unused, []);
        assert_eq!(told.status, history.status(), "{}", story.name);
    }
}

/// Review a draft, then publish it or write it again. `limit` is the policy.
async fn review(ctx: WfContext, limit: u64) -> Result<String, Failure> {
    let draft: String = ctx.activity("write", "draft", quick()).await?;
    let score: u64 = ctx.activity("review", &draft, quick()).await?;
    if score >= limit {
        return ctx.activity("publish", &draft, quick()).await;
    }
    ctx.timer(Duration::from_secs(60)).await?;
    ctx.activity("rewrite", &draft, quick()).await
}

/// The history of a review with limit 5 and score 7.
fn recorded() -> History {
    let mut h = HistoryBuilder::started("review", "r", json(5));
    for (name, input, result) in [
        ("write", json("draft"), json("text")),
        ("review", json("text"), json(7)),
        ("publish", json("text"), json("url")),
    ] {
        let seq = h.activity_scheduled(name, input);
        h.activity_started(seq, 1).activity_completed(seq, result);
    }
    h.completed(json("url"));
    History::new(h.turns()).unwrap()
}

fn code<F>(code: impl Fn(WfContext, u64) -> F + Send + Sync + 'static) -> WorkflowRegistry
where
    F: Future<Output = Result<String, Failure>> + 'static,
{
    WorkflowRegistry::new().workflow("review", code)
}

fn whats(decided: &[Decided]) -> Vec<&str> {
    decided.iter().map(|one| one.what.as_str()).collect()
}

/// Another policy: the decisions are the same up to the review, then others, which nobody has recorded outcomes for.
#[test]
fn another_policy_shows_where_decisions_part_and_what_is_unknown_from_there() {
    let told = what_if(&code(review), &recorded(), &WhatIf { input: Some(json(9)) }).unwrap();
    assert_eq!(whats(&told.new), ["TimerStarted", "ActivityTaskScheduled rewrite"]);
    assert_eq!(whats(&told.gone), ["ActivityTaskScheduled publish", "WorkflowExecutionCompleted"]);
    assert_eq!(told.same, 2);
    let first = told.diff.divergence.as_ref().unwrap();
    assert_eq!(first.cause, DivergenceCause::Start, "the input was changed, which is where it begins: {told}");
    let decision = told.first.as_ref().unwrap().to_string();
    assert!(decision.ends_with("ActivityTaskScheduled publish"), "{decision}");
    assert_eq!(told.unknown.len(), 1);
    assert_eq!(told.unknown[0].what, "ActivityTaskScheduled rewrite");
    assert!(!told.unknown[0].pending_then);
    assert_eq!(told.status, WorkflowStatus::Running);
    assert_eq!(told.unused, [Unused { event: 10, what: "ActivityTaskCompleted of command 3".into() }]);
    assert!(told.to_string().contains("unknown from here: event 10 ActivityTaskScheduled rewrite"), "{told}");
}

/// An inserted step without an outcome stops its own branch only; what goes on beside it gets its recorded outcomes.
#[test]
fn an_unknown_outcome_stops_its_branch_only() {
    let changed = code(|ctx, _| async move {
        let draft: String = ctx.activity("write", "draft", quick()).await?;
        let checked = ctx.activity::<u64>("spell-check", &draft, quick());
        let scores = join_all(vec![ctx.activity::<u64>("review", &draft, quick()), checked]).await;
        Ok(format!("{scores:?}"))
    });
    let told = what_if(&changed, &recorded(), &WhatIf::default()).unwrap();
    assert_eq!(whats(&told.new), ["ActivityTaskScheduled spell-check"]);
    assert_eq!(whats(&told.gone), ["ActivityTaskScheduled publish", "WorkflowExecutionCompleted"]);
    assert_eq!(
        told.unknown.iter().map(|one| one.what.as_str()).collect::<Vec<_>>(),
        ["ActivityTaskScheduled spell-check"]
    );
    let heard = told
        .diff
        .lines
        .iter()
        .any(|line| matches!(line, DiffLine::Same { what, .. } if what == "ActivityTaskCompleted review"));
    assert!(heard, "{told}");
}

/// Reordered and renamed requests find their outcomes by what they ask for; a changed input by type and order.
#[test]
fn outcomes_are_found_by_what_was_asked_for() {
    let reordered = code(|ctx, _| async move {
        // Asked for at once, in another order, and with another input for the review.
        let publish = ctx.activity::<String>("publish", "text", quick());
        let review = ctx.activity::<u64>("review", "another text", quick());
        let write = ctx.activity::<String>("write", "draft", quick());
        let url = publish.await?;
        Ok(format!("{url} {} {}", review.await?, write.await?))
    });
    let told = what_if(&reordered, &recorded(), &WhatIf::default()).unwrap();
    assert_eq!(told.status, WorkflowStatus::Completed, "{told}");
    assert_eq!((told.unknown.len(), told.unused.len()), (0, 0), "{told}");
    let ended = told.diff.lines.iter().any(|line| match line {
        DiffLine::Changed { what, fields, .. } => {
            what == "WorkflowExecutionCompleted" && fields[0].right == "\"url 7 text\""
        }
        _ => false,
    });
    assert!(ended, "{told}");
}

/// E10: a timer that the record does not know fires at its time, between what was recorded.
#[test]
fn timers_fire_when_their_time_has_come() {
    let mut h = HistoryBuilder::started("wait", "w", json(()));
    h.after(Duration::from_secs(100)).signaled("go", json(1));
    h.completed(json("signal"));
    let history = History::new(h.turns()).unwrap();
    let raced = |seconds: u64| {
        WorkflowRegistry::new().workflow("wait", move |ctx: WfContext, (): ()| async move {
            let channel = ctx.signal_channel::<u64>("go");
            let limit = ctx.timer(Duration::from_secs(seconds));
            match workflow::select(channel.recv(), limit).await {
                workflow::Either::First(_) => Ok("signal"),
                workflow::Either::Second(_) => Ok("timer"),
            }
        })
    };
    for (seconds, expected) in [(99, "\"timer\""), (101, "\"signal\"")] {
        let told = what_if(&raced(seconds), &history, &WhatIf::default()).unwrap();
        assert_eq!(told.status, WorkflowStatus::Completed);
        let text = told.to_string();
        assert_eq!(text.contains(&format!("\"signal\" -> {expected}")), seconds == 99, "{text}");
    }
}

/// E20: side effects give the recorded values and are never carried out; code that asks for one more cannot go on.
#[test]
fn side_effects_are_not_carried_out() {
    let mut h = HistoryBuilder::started("draw", "d", json(()));
    h.turn(EventKind::WorkflowExecutionSignaled(WorkflowExecutionSignaled {
        name: "go".into(),
        input: json(()),
        identity: None,
        request_id: None,
    }));
    let mut turns = h.turns();
    turns[1].events.push(EventKind::MarkerRecorded(Marker::SideEffect { seq: Seq(1), value: json(42) }));
    turns[1].events.push(EventKind::WorkflowExecutionCompleted { result: json(42), unhandled_signals: Vec::new() });
    let history = History::new(turns).unwrap();
    let draws = |n: usize| {
        WorkflowRegistry::new().workflow("draw", move |ctx: WfContext, (): ()| async move {
            ctx.signal_channel::<()>("go").recv().await?;
            let mut last = 0;
            for _ in 0..n {
                last = ctx.side_effect::<u64>(|| panic!("it must not be carried out"));
            }
            Ok(last)
        })
    };
    let same = what_if(&draws(1), &history, &WhatIf::default()).unwrap();
    assert!(same.is_same(), "{same}");
    let more = what_if(&draws(2), &history, &WhatIf::default()).unwrap();
    assert_eq!(more.unknown, [Unknown { event: 4, what: "side effect 2".into(), pending_then: false }]);
    assert_eq!(more.status, WorkflowStatus::Running);
}

/// Code that panics where that of then did not says nothing of how the run ends.
#[test]
fn a_panic_of_the_code_is_no_end_of_the_run() {
    let picky = code(|_, limit| async move { if limit > 5 { panic!("not with {limit}") } else { Ok(String::new()) } });
    let told = what_if(&picky, &recorded(), &WhatIf { input: Some(json(9)) }).unwrap();
    let said = told.panicked.as_deref().unwrap();
    assert!(told.status == WorkflowStatus::Running && said.starts_with("not with 9 (at "), "{said}");
    assert!(!told.is_same() && told.to_string().contains("its code panics: not with 9"), "{told}");
}

/// Says what it was given, and what it hears.
#[derive(Serialize, serde::Deserialize)]
struct Teller(u64);

impl StateMachine for Teller {
    const TYPE: &'static str = "teller";
    type Input = u64;
    type Output = u64;

    fn start(limit: u64, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let noted = cx.note(limit);
        assert!(noted == limit, "it notes {limit}, and its history holds {noted}");
        Ok(Teller(limit))
    }
    fn on_event(&mut self, _: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        if self.0 > 5 {
            cx.note(format!("more than {}", self.0));
        }
        cx.note("heard".to_owned());
        cx.complete(&self.0);
        Ok(())
    }
}

/// What code notes of itself is what it has to say now, and no value that the record gives.
#[test]
fn notes_of_the_code_are_its_own() {
    let mut h = HistoryBuilder::started("teller", "t", json(5));
    h.side_effect_recorded(json(5));
    h.signaled("go", json(())).side_effect_recorded(json("heard"));
    h.completed(json(5));
    let history = History::new(h.turns()).unwrap();
    let code = WorkflowRegistry::new().state_machine::<Teller>();
    let same = what_if(&code, &history, &WhatIf::default()).unwrap();
    assert!(same.is_same(), "{same}");
    let told = what_if(&code, &history, &WhatIf { input: Some(json(9)) }).unwrap();
    assert_eq!((told.status, &told.panicked), (WorkflowStatus::Completed, &None), "{told}");
    assert!(told.unknown.is_empty() && !told.is_same(), "{told}");
}

#[test]
fn a_redacted_history_and_an_unknown_type_are_refused() {
    let redacted = recorded().redacted(Redaction::Payloads);
    assert_eq!(what_if(&code(review), &redacted, &WhatIf::default()), Err(CounterfactualError::Redacted));
    let none = what_if(&WorkflowRegistry::new(), &recorded(), &WhatIf::default());
    assert!(matches!(none, Err(CounterfactualError::NoCode(_))), "{none:?}");
}
