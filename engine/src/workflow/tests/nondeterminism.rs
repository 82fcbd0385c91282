//! Seeded bugs of the requirements of the engine §5 that the replay gate must catch, and what it says about them (G22).

use super::*;

/// What a version of the workflow does at each step.
#[derive(Clone)]
enum Do {
    Activity(&'static str, u32),
    Timer(u64),
}

fn steps(steps: &[Do]) -> WorkflowRegistry {
    let steps = steps.to_vec();
    WorkflowRegistry::new().version(format!("{}", steps.len())).workflow("flow", move |ctx: WfContext, ()| {
        let steps = steps.clone();
        async move {
            let mut waits: Vec<LocalBoxFuture<Result<(), Failure>>> = Vec::new();
            for step in steps {
                match step {
                    Do::Activity(name, input) => waits.push(Box::pin(ctx.activity::<()>(name, &input, options()))),
                    Do::Timer(seconds) => waits.push(Box::pin(ctx.timer(Duration::from_secs(seconds)))),
                }
            }
            join_all(waits).await.into_iter().collect::<Result<(), Failure>>()
        }
    })
}

use Do::{Activity, Timer};

const RECORDED: [Do; 3] = [Activity("draft", 1), Activity("review", 2), Timer(30)];

/// The mismatch between the recorded steps and other ones.
#[track_caller]
fn mismatch(with: &[Do]) -> NonDeterminism {
    let world = World::start(&steps(&RECORDED), "flow", ());
    world.check_replay();
    world.mismatch_with(&steps(with))
}

fn lines(found: &NonDeterminism) -> Vec<&'static str> {
    let name = |line: &AlignedLine| match line {
        AlignedLine::Same { .. } => "same",
        AlignedLine::Missing { .. } => "missing",
        AlignedLine::Extra { .. } => "extra",
        AlignedLine::Changed { .. } => "changed",
        AlignedLine::Reordered { .. } => "reordered",
    };
    found.alignment.iter().map(name).collect()
}

/// G22, bug 10: two commands reordered.
#[test]
fn reordered_commands_are_caught() {
    let found = mismatch(&[Activity("review", 2), Activity("draft", 1), Timer(30)]);
    assert_eq!(found.event_id, EventId(2));
    assert!(lines(&found).contains(&"reordered"), "{found}");
    assert!(!lines(&found).contains(&"missing") && !lines(&found).contains(&"extra"), "{found}");
    assert_eq!(found.hint, Hint::Reordered);
    assert_eq!(found.nearest.as_ref().map(|nearest| nearest.event_id), Some(EventId(3)));
}

/// G22, bug 11: an activity type renamed.
#[test]
fn a_renamed_activity_is_caught() {
    let found = mismatch(&[Activity("draft", 1), Activity("check", 2), Timer(30)]);
    assert_eq!(found.event_id, EventId(3));
    assert!(found.hint.to_string().starts_with("`review` became `check`"), "{}", found.hint);
}

/// G22, bug 12: only the input of an activity changed.
#[test]
fn a_changed_input_is_caught() {
    let found = mismatch(&[Activity("draft", 1), Activity("review", 3), Timer(30)]);
    assert_eq!(lines(&found), ["same", "changed", "same"]);
    let AlignedLine::Changed { recorded_input, produced_input, .. } = &found.alignment[1] else { panic!() };
    assert_eq!((recorded_input, produced_input), (&Some(json(2)), &Some(json(3))));
    assert_eq!(found.hint, Hint::ContentChanged);
    assert!(found.location.as_ref().unwrap().file.ends_with("nondeterminism.rs"));
}

/// G22, bug 13: a timer removed, or its duration changed.
#[test]
fn a_removed_or_changed_timer_is_caught() {
    let found = mismatch(&[Activity("draft", 1), Activity("review", 2)]);
    assert_eq!((found.produced.as_ref(), lines(&found)), (None, vec!["same", "same", "missing"]));
    assert!(matches!(found.hint, Hint::Removed(Some(_))), "{}", found.hint);
    let found = mismatch(&[Activity("draft", 1), Activity("review", 2), Timer(31)]);
    assert_eq!(lines(&found), ["same", "same", "changed"]);
    assert_eq!(found.hint, Hint::TimerChanged);
}

/// G22, bug 14: a step inserted without a patch. Numbers that shift with it are no difference of their own.
#[test]
fn an_inserted_step_is_caught_and_prints_as_a_diff() {
    let found = mismatch(&[Activity("draft", 1), Timer(5), Activity("review", 2), Timer(30)]);
    assert_eq!(found.event_id, EventId(3));
    let text = found.to_string();
    assert!(text.starts_with("error[BOSUN0101]: workflow code no longer matches history\n"), "{text}");
    assert!(text.contains("history expects   ScheduleActivity review #2 (1 bytes, blake3 "), "{text}");
    assert!(text.contains("code produced     StartTimer #2 until 1970-01-01T00:00:06.000000Z    engine/src"), "{text}");
    assert!(text.contains(" >        + StartTimer #2"), "{text}");
    assert!(
        text.contains("help: StartTimer #2 until 1970-01-01T00:00:06.000000Z was inserted: guard it with"),
        "{text}"
    );
    let stored = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<NonDeterminism>(&stored).unwrap(), found);
}

/// G22, bug 14: a step appended after the last recorded one of the turn.
#[test]
fn an_appended_step_is_caught() {
    let found = mismatch(&[Activity("draft", 1), Activity("review", 2), Timer(30), Activity("publish", 3)]);
    assert_eq!((found.event_id, found.expected.as_ref()), (EventId(5), None));
    assert_eq!(lines(&found), ["same", "same", "same", "extra"]);
}

/// G22, bug 21: a command that is skipped in replay (here: asked for only the first time the code runs).
#[test]
fn a_command_skipped_in_replay_is_caught() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let replaying = Arc::new(AtomicBool::new(false));
    let registry = WorkflowRegistry::new().workflow("flow", move |ctx: WfContext, ()| {
        let skip = replaying.swap(true, Ordering::Relaxed);
        async move {
            if !skip {
                ctx.activity::<()>("notify", &(), options()).await?;
            }
            ctx.timer(SECOND).await
        }
    });
    let world = World::start(&registry, "flow", ());
    let found = world.mismatch_with(&registry);
    assert!(found.expected.unwrap().to_string().starts_with("ScheduleActivity notify"));
    assert!(found.produced.unwrap().to_string().starts_with("StartTimer"));
}

/// G22, bug 24: an error text that differs from run to run becomes an activity's input, a result, a failure.
#[test]
fn text_that_changes_from_run_to_run_is_caught_wherever_it_goes() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    for place in ["input", "update", "result", "failure", "next run"] {
        let clock = Arc::new(AtomicU32::new(0));
        let registry = WorkflowRegistry::new().workflow("flow", move |ctx: WfContext, ()| {
            let text = format!("failed at {}", clock.fetch_add(1, Ordering::Relaxed));
            async move {
                match place {
                    "input" => ctx.activity::<()>("report", &text, options()).await?,
                    "update" => {
                        let answer = text.clone();
                        let handler = move |_: WfContext, ()| std::future::ready(Ok(answer.clone()));
                        ctx.on_update("why", |(): &()| Ok(()), handler);
                        ctx.timer(SECOND).await?;
                    }
                    "failure" => return Err(Failure::application("Odd", text)),
                    "next run" => return ctx.continue_as_new(&text, ContinueAsNewOptions::default()),
                    _ => {}
                }
                Ok(text)
            }
        });
        let mut world = World::start(&registry, "flow", ());
        if place == "update" {
            world.update("u1", "why", ());
        }
        world.mismatch_with(&registry);
    }
}

/// G22: a run whose code asks for something after history says it is over, or the other way round.
#[test]
fn an_end_that_moved_is_caught() {
    let mut world = World::start(&steps(&[Activity("draft", 1)]), "flow", ());
    world.complete(1, ());
    world.assert_completed(());
    let found = world.mismatch_with(&steps(&[]));
    assert!(found.produced.unwrap().to_string().starts_with("CompleteWorkflow"));
    let longer = WorkflowRegistry::new().workflow("flow", |ctx: WfContext, ()| async move {
        ctx.activity::<()>("draft", &1, options()).await?;
        ctx.activity::<()>("more", &1, options()).await
    });
    let found = world.mismatch_with(&longer);
    assert!(found.expected.unwrap().to_string().starts_with("CompleteWorkflow"));
    assert_eq!(found.event_id, EventId(4));
}

/// G22: a side effect that history does not hold stops the activation instead of running.
#[test]
fn an_inserted_side_effect_does_not_run_in_replay() {
    let with = |rolls: bool| {
        WorkflowRegistry::new().workflow("flow", move |ctx: WfContext, ()| async move {
            if rolls {
                ctx.side_effect(|| -> u32 { panic!("it must not run") });
            }
            ctx.timer(SECOND).await
        })
    };
    let world = World::start(&with(false), "flow", ());
    let found = world.mismatch_with(&with(true));
    assert_eq!(found.produced.unwrap().to_string(), "SideEffect #1");
}

/// G22: what may change freely raises no false alarm: timeouts, summaries, handlers, the place of a panic.
#[test]
fn options_may_change_freely() {
    let with = |limit: u64, label: &'static str| {
        WorkflowRegistry::new().version(label).workflow("flow", move |ctx: WfContext, ()| async move {
            let options = ActivityOptions::schedule_to_close(Duration::from_secs(limit)).with_summary(label);
            ctx.activity::<()>("draft", &1, options).await?;
            ctx.labelled_timer(SECOND, label).await?;
            let nothing: Option<u32> = ctx.info().identity.as_ref().map(|_| 1);
            if label == "one" {
                return Ok(nothing.expect("the same words"));
            }
            Ok(nothing.map(|n| n + 1).expect("the same words"))
        })
    };
    let registry = with(1, "one");
    let mut world = World::start(&registry, "flow", ());
    world.complete(1, ());
    world.fire(2);
    assert_eq!(world.failure().type_name(), FAILURE_PANIC);
    let replayed = world.replay_with(&with(2, "two"));
    assert_eq!(replayed.map(|replayed| replayed.activations), Ok(3));
}

/// Histories that are no histories are named, not replayed.
#[test]
fn broken_histories_are_refused() {
    let registry = steps(&RECORDED);
    assert_eq!(replay(&registry, &[]).map(drop), Err(ReplayError::Empty));
    let mut world = World::start(&registry, "flow", ());
    world.complete(1, ());
    assert!(matches!(replay(&registry, &world.turns[1..]).map(drop), Err(ReplayError::Gap { .. })));
    let mut turn = world.turns[1].clone();
    turn.first_event = EventId(1);
    assert!(matches!(replay(&registry, &[turn]).map(drop), Err(ReplayError::NotStarted { .. })));
    let none = WorkflowRegistry::new();
    assert!(matches!(replay(&none, &world.turns).map(drop), Err(ReplayError::UnknownWorkflow(_))));
}

/// E03: a run whose first activation was delayed is initialized by the end of its backoff, with the same input.
#[test]
fn a_delayed_start_initializes_at_the_end_of_its_backoff() {
    let registry = steps(&RECORDED);
    let mut world = World::start(&registry, "flow", ());
    let mut delayed = world.turns[0].clone();
    let EventKind::WorkflowExecutionStarted(start) = &mut delayed.events[0] else { panic!() };
    start.start_at = Some(world.now);
    delayed.events.truncate(1);
    let first = &mut world.turns[0];
    first.first_event = EventId(2);
    first.events[0] = EventKind::FirstWorkflowTaskScheduled;
    world.turns.insert(0, delayed);
    assert_eq!(world.replay_with(&registry).map(|replayed| (replayed.activations, replayed.commands)), Ok((1, 3)));
}

/// A decision that depends on whether it is replayed is not the same when it is.
#[test]
fn code_that_decides_by_being_replayed_is_caught() {
    let registry = WorkflowRegistry::new().workflow("flow", |ctx: WfContext, ()| async move {
        if !ctx.is_replaying() {
            ctx.timer(SECOND).await?;
        }
        ctx.activity::<()>("draft", &1, options()).await
    });
    let world = World::start(&registry, "flow", ());
    let found = world.mismatch_with(&registry);
    assert_eq!(found.event_id, EventId(2), "{found}");
}
