//! Programs of the kitchen sink on the stage: every step, and what a bad program says.

use std::sync::Arc;
use std::time::Duration;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{ActivityRegistry, CloseOutcome, Command, Failure, Marker};
use serde_json::{Value, json};

use super::*;
use crate::capability::{self, CapabilityConfig};
use crate::stage::{Cue, Played, Stage};
use crate::supervisor::people::signature::ANSWERS;

async fn play(steps: Value, cues: Vec<Cue>) -> Played {
    let mut activities = ActivityRegistry::new();
    capability::register(&mut activities, &CapabilityConfig::default()).unwrap();
    let workflows = crate::examples::register(WorkflowRegistry::new());
    let program = json!({ "steps": steps, "vars": { "who": { "name": ["ada", "bob"] } } });
    Arc::new(Stage { workflows, activities }).play(KITCHEN_SINK, program, cues).await
}

#[track_caller]
fn result(played: &Played) -> Value {
    match &played.outcome {
        CloseOutcome::Completed(result) => result.to_json(),
        other => panic!("expected a result, got {other:?}"),
    }
}

#[track_caller]
fn failure(played: &Played) -> &Failure {
    match &played.outcome {
        CloseOutcome::Failed(failure) => failure,
        other => panic!("expected a failure, got {other:?}"),
    }
}

#[tokio::test]
async fn activities_get_variables_and_give_results() {
    let steps = json!([
        { "activity": { "type": "echo", "input": { "hi": "$who.name.1", "cost": "$$5", "none": "$nobody.x" }, "as": "out" } },
        { "activity": { "type": "fail_n_times", "input": { "times": 2, "value": 7 }, "as": "seven", "retry": { "maximum_attempts": 3 } } },
        { "return": ["$out", "$seven"] },
        { "fail": { "message": "not reached" } }
    ]);
    assert_eq!(result(&play(steps, vec![]).await), json!([{ "hi": "bob", "cost": "$5", "none": null }, 7]));
}

#[tokio::test]
async fn without_a_return_the_result_is_all_variables() {
    let steps =
        json!([{ "set": { "a": 1 } }, { "loop": { "times": 3, "as": "i", "steps": [{ "set": { "a": "$i" } }] } }]);
    assert_eq!(result(&play(steps, vec![]).await), json!({ "who": { "name": ["ada", "bob"] }, "a": 2, "i": 2 }));
}

#[tokio::test]
async fn timers_wait_in_workflow_time() {
    let steps = json!([
        { "now": "t0" }, { "timer": "1h" }, { "timer": { "for": "30m", "summary": "tea" } }, { "now": "t1" },
        { "sleep_until": 100_000_000 }, { "now": "t2" }, { "return": ["$t0", "$t1", "$t2"] }
    ]);
    let played = play(steps, vec![]).await;
    let times: Vec<i64> = serde_json::from_value(result(&played)).unwrap();
    assert!(times[1] - times[0] >= 5_400_000 && times[1] - times[0] < 5_401_000, "{times:?}");
    assert!((100_000_000..100_001_000).contains(&times[2]), "{times:?}");
    assert!(played.took > Duration::from_secs(90_000));
}

#[tokio::test]
async fn signals_are_waited_for_drained_and_timed_out() {
    let steps = json!([
        { "wait_signal": { "name": "go", "as": "first" } },
        { "wait_signal": { "name": "never", "as": "nothing", "timeout": "1m" } },
        { "drain_signals": { "name": "go", "as": "rest" } },
        { "return": ["$first", "$nothing", "$rest"] }
    ]);
    let cues = vec![Cue::Signal("go", json!(1)), Cue::Signal("go", json!(2)), Cue::Signal("go", json!({ "n": 3 }))];
    assert_eq!(result(&play(steps, cues).await), json!([1, null, [2, { "n": 3 }]]));
}

#[tokio::test]
async fn updates_change_variables_and_queries_show_them() {
    let steps = json!([{ "set": { "door": "shut" } }, { "wait_var": { "name": "door", "equals": "open" } }]);
    let cues = vec![
        Cue::Query("position"),
        Cue::Update("set_var", json!({ "name": "a.b", "value": 1 })),
        Cue::Update("set_var", json!({ "name": "door", "value": "open" })),
        Cue::Query("vars"),
    ];
    let played = play(steps, cues).await;
    assert_eq!(played.queries[0], "steps[1].wait_var");
    assert_eq!(played.updates[0].as_ref().unwrap_err().type_name(), "InvalidName");
    assert_eq!(played.updates[1].as_ref().unwrap().to_json(), "shut");
    assert_eq!(result(&played)["door"], "open");
}

#[tokio::test]
async fn children_run_programs_of_their_own() {
    let program = json!({ "steps": [{ "return": "$mine" }], "vars": { "mine": 5 } });
    let steps = json!([
        { "child": { "input": program, "as": "out" } },
        { "child": { "id": "$who.name.0", "input": { "steps": [] }, "wait": false, "as": "run", "close_policy": "abandon" } },
        { "child": { "input": { "steps": [{ "fail": { "type": "Inner" } }] } } }
    ]);
    let played = play(steps, vec![]).await;
    assert_eq!(failure(&played).type_name(), "Inner");
    let ids: Vec<String> = played
        .commands
        .iter()
        .filter_map(|command| match command {
            Command::StartChildWorkflow { workflow_id, .. } => Some(workflow_id.to_string()),
            _ => None,
        })
        .collect();
    assert!(ids[0].starts_with("staged/") && ids[1] == "ada", "{ids:?}");
}

#[tokio::test]
async fn parallel_waits_for_all_and_race_for_the_first() {
    let steps = json!([
        { "parallel": [ [{ "timer": "5s" }, { "set": { "a": 1 } }], [{ "activity": { "type": "echo", "input": 2, "as": "b" } }] ] },
        { "race": { "as": "winner", "branches": [ [{ "timer": "1h" }, { "set": { "a": "late" } }], [{ "timer": "1s" }, { "set": { "c": 3 } }] ] } },
        { "return": ["$a", "$b", "$c", "$winner"] }
    ]);
    let played = play(steps, vec![]).await;
    assert_eq!(result(&played), json!([1, 2, 3, 1]));
    assert!(played.took < Duration::from_secs(60), "the loser's timer is canceled");
}

#[tokio::test]
async fn failures_are_caught_and_always_runs() {
    let steps = json!([
        { "try": {
            "steps": [{ "activity": { "type": "fail_n_times", "input": { "times": 9, "type": "Oops", "message": "m" }, "retry": { "maximum_attempts": 2 } } }],
            "catch": [{ "set": { "caught": "$why.type" } }], "as": "why", "always": [{ "set": { "cleaned": true } }] } },
        { "if": { "var": "caught", "equals": "Oops", "then": [{ "set": { "then": "$why.message" } }], "else": [{ "fail": {} }] } },
        { "return": ["$caught", "$cleaned", "$then"] }
    ]);
    assert_eq!(result(&play(steps, vec![]).await), json!(["Oops", true, "m"]));
}

/// E28: undone in reverse, the failed step included, since it may have happened.
#[tokio::test]
async fn a_saga_undoes_in_reverse() {
    let undo = |n: u32| json!([{ "activity": { "type": "echo", "input": { "undo": n } } }]);
    let steps = json!([{ "saga": [
        { "do": [{ "set": { "x": 1 } }], "undo": undo(1) },
        { "do": [{ "timer": "1s" }], "undo": undo(2) },
        { "do": [{ "fail": { "type": "Third", "message": "$x", "details": { "x": "$x" }, "non_retryable": true } }], "undo": undo(3) },
        { "do": [{ "timer": "1s" }], "undo": undo(4) }
    ] }]);
    let played = play(steps, vec![]).await;
    assert_eq!(failure(&played).to_string(), "Third: 1");
    let undone: Vec<Value> = played
        .commands
        .iter()
        .filter_map(|command| match command {
            Command::ScheduleActivity { input, .. } => Some(input.to_json()["undo"].clone()),
            _ => None,
        })
        .collect();
    assert_eq!(undone, [3, 2, 1]);
}

#[tokio::test]
async fn a_cancellation_ends_the_run_but_not_its_cleanup() {
    let steps = json!([{ "try": {
        "steps": [{ "timer": "9h" }],
        "catch": [{ "set": { "swallowed": true } }],
        "always": [{ "activity": { "type": "echo", "input": "cleanup" } }] } }]);
    let played = play(steps, vec![Cue::Cancel]).await;
    assert!(matches!(played.outcome, CloseOutcome::Canceled(_)), "{:?}", played.outcome);
    let cleaned =
        |command: &Command| matches!(command, Command::ScheduleActivity { input, .. } if input.to_json() == "cleanup");
    assert!(played.commands.iter().any(cleaned));
}

#[tokio::test]
async fn a_program_can_wait_for_its_cancellation() {
    let steps = json!([{ "wait_cancel": "why" }, { "return": "$why" }]);
    assert_eq!(result(&play(steps, vec![Cue::Cancel]).await), "asked");
}

/// Whoever may start a program could answer approvals as anybody: the run that hears it believes who it says it is from.
#[tokio::test]
async fn no_program_speaks_in_the_name_of_a_person() {
    let others = ["pause_v1", "plan_answer_v1", "waits_below_v1"];
    for name in ANSWERS.into_iter().chain(others) {
        let input = json!({ "approval_id": "a", "approved": true, "approver": "cfo" });
        let steps = json!([{ "signal": { "workflow_id": "other", "name": name, "input": input } }]);
        let played = play(steps, vec![]).await;
        assert_eq!(failure(&played).type_name(), "SignalOfPeople", "{name}");
        let sent = played.commands.iter().any(|command| matches!(command, Command::SignalExternalWorkflow { .. }));
        assert!(!sent, "{name}");
    }
}

/// Whoever may start a program has not thereby the verbs of schedules, batches and notifications.
#[tokio::test]
async fn no_program_reaches_a_schedule_a_batch_or_a_notification() {
    for id in ["schedule:nightly", "batch:b1", "notify:n1"] {
        for step in [
            json!({ "cancel_workflow": { "workflow_id": id, "reason": "x" } }),
            json!({ "signal": { "workflow_id": id, "name": "start_quarantined_v1", "input": {} } }),
        ] {
            let played = play(json!([step]), vec![]).await;
            assert_eq!(failure(&played).type_name(), "NotForPrograms", "{id}");
            assert!(!played.commands.iter().any(|command| {
                matches!(
                    command,
                    Command::SignalExternalWorkflow { .. } | Command::RequestCancelExternalWorkflow { .. }
                )
            }));
        }
    }
}

#[tokio::test]
async fn continue_as_new_carries_variables_and_waiting_signals() {
    let steps = json!([
        { "if": { "var": "round", "equals": null,
            "then": [{ "timer": "1s" }, { "continue_as_new": { "vars": { "round": 2, "who": "$who.name.0" } } }],
            "else": [{ "drain_signals": { "name": "later", "as": "later" } }, { "return": ["$round", "$who", "$later"] }] } }
    ]);
    let played = play(steps, vec![Cue::Signal("later", json!("kept"))]).await;
    assert_eq!(result(&played), json!([2, "ada", ["kept"]]));
}

#[tokio::test]
async fn notes_for_replay_and_lists_become_commands() {
    let steps = json!([
        { "side_effect": { "value": { "n": "$who.name.0" }, "as": "effect" } },
        { "random": "r" }, { "uuid": "u" },
        { "patch": { "id": "p1", "new": [{ "set": { "branch": "new" } }], "old": [{ "set": { "branch": "old" } }] } },
        { "deprecate_patch": "p0" },
        { "upsert": { "city": "Rome", "n": 3, "f": 1.5, "on": true, "tags": ["a"], "gone": null } },
        { "memo": { "note": { "any": "$branch" } } },
        { "signal": { "workflow_id": "other", "name": "s", "input": "$branch" } },
        { "cancel_workflow": { "workflow_id": "other", "reason": "r" } },
        { "return": ["$effect.n", "$branch"] }
    ]);
    let played = play(steps, vec![]).await;
    assert_eq!(result(&played), json!(["ada", "new"]));
    let count = |wanted: fn(&Command) -> bool| played.commands.iter().filter(|command| wanted(command)).count();
    assert_eq!(count(|command| matches!(command, Command::RecordMarker(Marker::SideEffect { .. }))), 1);
    assert_eq!(
        count(|command| matches!(command, Command::UpsertSearchAttributes { attributes } if attributes.len() == 6)),
        1
    );
    assert_eq!(count(|command| matches!(command, Command::ModifyMemo { .. })), 1);
    assert_eq!(count(|command| matches!(command, Command::SignalExternalWorkflow { .. })), 1);
    assert_eq!(count(|command| matches!(command, Command::RequestCancelExternalWorkflow { .. })), 1);
}

/// An unknown step is named with its path, before anything has happened.
#[tokio::test]
async fn a_bad_program_fails_by_path_before_its_first_step() {
    let deep = (0..40).fold(json!([]), |steps, _| json!([{ "loop": { "times": 1, "steps": steps } }]));
    let cases = [
        (
            json!([{ "timer": "1s" }, { "parallel": [[], [{ "activty": {} }]] }]),
            "steps[1].parallel[1][0]: unknown step `activty`",
        ),
        (json!([{ "timer": "soon" }]), "steps[0].timer: expected a duration longer than zero"),
        (json!([{ "activity": { "type": "echo", "imput": 1 } }]), "steps[0].activity.imput: unknown key `imput`"),
        (json!([{ "activity": {} }]), "steps[0].activity.type: required key `type` is missing"),
        (json!([{ "timer": "1s", "now": "t" }]), "steps[0]: a step is a mapping with one key"),
        (json!(["timer"]), "steps[0]: a step is a mapping with one key"),
        (json!([{ "race": { "branches": [] } }]), "steps[0].race.branches: a race needs a branch"),
        (json!([{ "child": { "close_policy": "x" } }]), "steps[0].child.close_policy: expected terminate"),
        (deep, "steps are nested deeper than 32"),
    ];
    for (steps, expected) in cases {
        let played = play(steps, vec![]).await;
        let failure = failure(&played);
        assert_eq!(failure.type_name(), INVALID_PROGRAM);
        assert!(failure.message.contains(expected), "{failure}");
        assert_eq!(played.commands.len(), 1, "nothing but the failure");
    }
}

/// G23: what refers to itself again and again fails by name, before it has filled the memory or the stack.
#[tokio::test]
async fn values_that_grow_without_end_fail_the_run() {
    for grown in [json!(["$a"]), json!(["$a", "$a"]), json!({ "a": "$a", "b": ["$a"] })] {
        let grow = json!({ "loop": { "times": 1_000, "steps": [{ "set": { "a": grown } }] } });
        let played = play(json!([{ "set": { "a": "x" } }, grow]), Vec::new()).await;
        assert_eq!(failure(&played).type_name(), INVALID_PROGRAM, "{grown}");
    }
}
