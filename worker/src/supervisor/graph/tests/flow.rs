//! flow-state: the supervisor of iterations, the board with reviews per task, Plan-and-Execute, the coordinator.

use serde_json::json;

use super::super::*;
use super::stage::*;
use crate::supervisor::model::DependencyPolicy;

fn supervisor() -> GraphRules {
    GraphRules { review: ReviewScope::Iteration, on_exhausted: OnTriesExhausted::Skip, ..GraphRules::default() }
}

fn two_tasks() -> Value {
    json!({ "tasks": [{ "id": "t1", "goal": "one" }, { "id": "t2", "goal": "two" }] })
}

fn assessed(verdicts: &[(&str, &str)], again: bool) -> (u64, Answer) {
    let one = |(id, verdict): &(&str, &str)| json!({ "taskId": id, "verdict": verdict, "feedback": format!("{verdict}: do {id} better"), "score": 0.5 });
    let list: Vec<Value> = verdicts.iter().map(one).collect();
    says(json!({ "assessments": list, "needsReplanning": again, "overallAssessment": "so so" }))
}

fn empty() -> TaskPlan {
    TaskPlan::new("write a report")
}

/// FSS-01, FSS-05, FSS-09, FSS-12, FSS-42: two iterations; accepted work is never done again, and the synthesizer gets
/// the accepted results in plan order, whatever JSON they are.
#[test]
fn a_supervisor_plans_reviews_replans_and_synthesizes() {
    let script = |call: &Call| match (call.purpose, call.round, call.task.as_ref().map(TaskId::as_str)) {
        (Purpose::Plan, 1, _) => says(two_tasks()),
        (Purpose::Plan, 2, _) => says(json!({ "tasks": [{ "id": "t2", "goal": "two, better" }] })),
        (Purpose::ExecuteWorker, _, Some("t1")) => (9, Ok(json!({ "any": ["json", 1] }))),
        (Purpose::ExecuteWorker, ..) => says(json!(format!("try {}", call.attempt))),
        (Purpose::Review, 1, _) => assessed(&[("t1", "accepted"), ("t2", "needs-revision"), ("t9", "accepted")], true),
        (Purpose::Review, ..) => assessed(&[("t2", "accepted"), ("t1", "needs-revision")], false),
        (Purpose::Synthesize, ..) => says(json!("the report")),
        other => panic!("{other:?}"),
    };
    let played = Stage::new(supervisor(), empty(), &script).play();
    assert_eq!(played.statuses(), "t1=completed t2=completed");
    assert_eq!(played.outcome().phase, Phase::Completed);
    assert_eq!(played.outcome().final_result, Some(json!("the report")));
    let keys =
        ["plan/1", "execute/t1/1", "execute/t2/1", "review/1", "plan/2", "execute/t2/2", "review/2", "synthesize/1"];
    assert_eq!(played.keys(), keys);
    assert_eq!(played.call("execute/t2/1").context.get("feedback"), None);
    let second = &played.call("execute/t2/2").context;
    assert_eq!((&second["feedback"], &second["goal"]), (&json!("needs-revision: do t2 better"), &json!("two, better")));
    let results = &played.call("synthesize/1").context["results"];
    assert_eq!(*results, json!([{ "id": "t1", "result": { "any": ["json", 1] } }, { "id": "t2", "result": "try 2" }]));
    let replan = &played.call("plan/2").context;
    assert_eq!(replan["needs_revision"][0]["id"], "t2");
    assert_eq!(replan["needs_revision"].as_array().unwrap().len(), 1, "only what needs revision is to be replanned");
}

/// FSS-43: the reviewer sees all results of the iteration, and what was accepted before only if so configured.
#[test]
fn the_reviewer_sees_the_iteration() {
    let script = |call: &Call| match (call.purpose, call.round) {
        (Purpose::Plan, 1) => says(two_tasks()),
        (Purpose::Plan, _) => says(json!({ "tasks": [{ "id": "t2", "goal": "again" }] })),
        (Purpose::Review, 1) => assessed(&[("t1", "accepted"), ("t2", "needs-revision")], true),
        (Purpose::Review, _) => assessed(&[("t2", "accepted")], false),
        _ => says(json!("x")),
    };
    let seen = |sees: bool| {
        let rules = GraphRules { review_sees_accepted: sees, ..supervisor() };
        let played = Stage::new(rules, empty(), &script).play();
        ["review/1", "review/2"].map(|key| {
            let results = played.call(key).context["results"].as_array().unwrap().clone();
            results.iter().map(|result| result["taskId"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        })
    };
    assert_eq!(seen(false), ["t1 t2", "t2"]);
    assert_eq!(seen(true), ["t1 t2", "t1 t2"]);
}

/// FSS-11, FSS-14: three iterations in total, then what was accepted is synthesized, without an error; also nothing.
#[test]
fn exhausted_iterations_are_no_error() {
    let script = |call: &Call| match call.purpose {
        Purpose::Plan => says(json!({ "tasks": [{ "id": "t1", "goal": format!("round {}", call.round) }] })),
        Purpose::Review => assessed(&[("t1", "needs-revision")], true),
        Purpose::Synthesize => says(json!("nothing was accepted")),
        _ => says(json!("x")),
    };
    let played = Stage::new(supervisor(), empty(), &script).play();
    assert_eq!(played.keys().iter().filter(|key| key.starts_with("plan/")).count(), 3);
    assert_eq!(played.keys().iter().filter(|key| key.starts_with("review/")).count(), 3);
    assert_eq!(played.statuses(), "t1=needs_revision");
    assert_eq!((played.outcome().phase, &played.outcome().error), (Phase::Partial, &None));
    assert_eq!(played.call("synthesize/1").context["results"], json!([]));
    let one = GraphRules { max_iterations: 1, ..supervisor() };
    assert_eq!(
        Stage::new(one, empty(), &script).play().keys().iter().filter(|key| key.starts_with("plan/")).count(),
        1
    );
}

/// FSS-15: the flag decides the loop; what needs revision stays so and is not synthesized.
#[test]
fn without_the_flag_the_loop_ends() {
    let script = |call: &Call| match call.purpose {
        Purpose::Plan => says(two_tasks()),
        Purpose::Review => assessed(&[("t1", "accepted"), ("t2", "needs-revision")], false),
        _ => says(json!("x")),
    };
    let played = Stage::new(supervisor(), empty(), &script).play();
    assert_eq!(played.statuses(), "t1=completed t2=needs_revision");
    assert_eq!(played.call("synthesize/1").context["results"].as_array().unwrap().len(), 1);
    assert_eq!(played.keys().iter().filter(|key| key.starts_with("plan/")).count(), 1);
}

/// FSS-04: a plan that does not conform is a planning error that names the field, and nothing is dispatched.
#[test]
fn a_plan_that_does_not_conform_dispatches_nothing() {
    let bad = [
        (json!({ "tasks": [{ "id": "t1" }] }), "tasks[0]"),
        (json!({ "tasks": [{ "id": "t1", "goal": "g", "priority": "urgent" }] }), "tasks[0].priority"),
        (json!({ "tasks": [{ "id": "t1", "goal": "g", "deps": "t0" }] }), "tasks[0].deps"),
        (json!({ "tasks": [{ "id": "t1", "goal": "g", "colour": 1 }] }), "colour"),
        (json!({ "plan": [] }), "plan"),
        (json!("no json"), "no JSON"),
        (json!({ "tasks": [{ "id": "t1", "goal": "g", "deps": ["t7"] }] }), "depends on missing task t7"),
        (
            json!({ "tasks": [{ "id": "a", "goal": "g", "deps": ["b"] }, { "id": "b", "goal": "g", "deps": ["a"] }] }),
            "cycle",
        ),
        (json!({ "tasks": [{ "id": "a", "goal": "g" }, { "id": "a", "goal": "g" }] }), "Duplicate"),
    ];
    for (answer, part) in bad {
        let script = |_: &Call| says(answer.clone());
        let played = Stage::new(supervisor(), empty(), &script).play();
        let error = played.outcome().error.clone().unwrap();
        assert!(error.starts_with("decomposition failed: ") && error.contains(part), "{error} should name {part}");
        assert_eq!((played.keys(), played.outcome().phase), (vec!["plan/1"], Phase::Failed));
    }
}

/// FSS-08: a score outside 0..1 or an unknown verdict is a review error.
#[test]
fn a_review_that_does_not_conform_is_an_error() {
    for (field, value) in
        [("score", json!(1.01)), ("score", json!(-0.1)), ("verdict", json!("good")), ("feedback", json!(1))]
    {
        let script = |call: &Call| match call.purpose {
            Purpose::Plan => says(json!({ "tasks": [{ "id": "t1", "goal": "one" }] })),
            Purpose::Review => {
                let mut review = json!({ "taskId": "t1", "verdict": "accepted", "feedback": "", "score": 1.0 });
                review[field] = value.clone();
                says(json!({ "assessments": [review], "needsReplanning": false, "overallAssessment": "" }))
            }
            _ => says(json!("x")),
        };
        let played = Stage::new(supervisor(), empty(), &script).play();
        let error = played.outcome().error.clone().unwrap();
        assert!(error.starts_with("review failed: ") && error.contains(&format!("assessments[0].{field}")), "{error}");
        assert_eq!(played.task("t1").status, TaskStatus::Cancelled);
    }
}

/// FSS-09, FSS-10, FSS-25: an escalated task is kept as it is and not planned again; one without an assessment keeps its
/// status; a task without a result adds nothing to what is synthesized.
#[test]
fn escalated_tasks_are_handed_upward() {
    let script = |call: &Call| match (call.purpose, call.round) {
        (Purpose::Plan, 1) => says(json!({ "tasks": [
            { "id": "t1", "goal": "one" }, { "id": "t2", "goal": "two" }, { "id": "t3", "goal": "three" }] })),
        (Purpose::Plan, _) => {
            says(json!({ "tasks": [{ "id": "t1", "goal": "one again" }, { "id": "t3", "goal": "three" }] }))
        }
        (Purpose::Review, 1) => assessed(&[("t1", "escalate"), ("t2", "accepted")], true),
        (Purpose::Review, _) => assessed(&[("t3", "accepted")], false),
        (Purpose::ExecuteWorker, _) if call.key == "execute/t2/1" => says(Value::Null),
        _ => says(json!("x")),
    };
    let played = Stage::new(supervisor(), empty(), &script).play();
    assert_eq!(played.statuses(), "t1=escalated t2=completed t3=completed");
    assert_eq!(played.task("t1").tries, 1, "an escalated task is never done again");
    let results = played.call("synthesize/1").context["results"].as_array().unwrap().clone();
    assert_eq!(results.iter().map(|result| result["id"].as_str().unwrap()).collect::<Vec<_>>(), ["t3"]);
}

/// FSS-13: feedback follows the task by its id, and by `revises` to a task of another name.
#[test]
fn feedback_survives_a_new_name() {
    let script = |call: &Call| match (call.purpose, call.round) {
        (Purpose::Plan, 1) => says(two_tasks()),
        (Purpose::Plan, _) => says(json!({ "tasks": [{ "id": "t2-v2", "goal": "two", "revises": "t2" }] })),
        (Purpose::Review, 1) => assessed(&[("t1", "accepted"), ("t2", "needs-revision")], true),
        (Purpose::Review, _) => assessed(&[("t2-v2", "accepted")], false),
        _ => says(json!("x")),
    };
    let played = Stage::new(supervisor(), empty(), &script).play();
    assert_eq!(played.statuses(), "t1=completed t2=cancelled t2-v2=completed");
    assert_eq!(played.call("execute/t2-v2/1").context["feedback"], "needs-revision: do t2 better");
    assert_eq!(played.task("t2").cancelled, Some(crate::supervisor::model::CancelReason::Superseded));
}

/// FSS-16: a worker that fails is skipped with its error, left out of the review; the others go on.
#[test]
fn skip_leaves_the_failed_out() {
    let script = |call: &Call| match call.purpose {
        Purpose::Plan => says(two_tasks()),
        Purpose::ExecuteWorker if call.key == "execute/t1/1" => fails("no network"),
        Purpose::Review => assessed(&[("t2", "accepted")], false),
        _ => says(json!("x")),
    };
    let played = Stage::new(supervisor(), empty(), &script).play();
    assert_eq!(played.statuses(), "t1=skipped t2=completed");
    assert_eq!(played.task("t1").error.as_ref().unwrap().message, "no network");
    assert_eq!(played.call("review/1").context["results"].as_array().unwrap().len(), 1);
}

/// FSS-17: with `fail` any failure ends the run with that error, and running siblings are cancelled.
#[test]
fn fail_ends_the_run_and_cancels_siblings() {
    let script = |call: &Call| match call.purpose {
        Purpose::Plan => says(two_tasks()),
        Purpose::ExecuteWorker if call.key == "execute/t1/1" => fails("no network"),
        _ => (60, Ok(json!("slow"))),
    };
    let rules = GraphRules { on_exhausted: OnTriesExhausted::Abort, ..supervisor() };
    let played = Stage::new(rules, empty(), &script).order_counts().play();
    assert_eq!(played.statuses(), "t1=failed t2=cancelled");
    assert_eq!((played.outcome().phase, played.outcome().error.as_deref()), (Phase::Failed, Some("no network")));
    assert_eq!(played.canceled, ["execute/t2/1"]);
    assert_eq!(played.took, 2);
}

/// FSS-18: with `retry` the worker is tried as often as its policy says, and only then skipped.
#[test]
fn retry_tries_before_it_skips() {
    for works_at in [2, 9] {
        let script = |call: &Call| match call.purpose {
            Purpose::Plan => says(two_tasks()),
            Purpose::ExecuteWorker if call.task == Some(TaskId::of("t1")) && call.attempt < works_at => fails("busy"),
            Purpose::Review => assessed(&[("t1", "accepted"), ("t2", "accepted")], false),
            _ => says(json!("x")),
        };
        let rules = GraphRules { tries: 3, ..supervisor() };
        let played = Stage::new(rules, empty(), &script).play();
        let (status, tries) = if works_at == 2 { (TaskStatus::Completed, 2) } else { (TaskStatus::Skipped, 3) };
        assert_eq!((played.task("t1").status, played.task("t1").tries), (status, tries));
    }
}

/// FSS-07: at most three workers at once, and each result belongs to its task, also when they end in another order.
#[test]
fn at_most_so_many_workers_at_once() {
    let tasks: Vec<Value> = (1..=7).map(|n| json!({ "id": format!("t{n}"), "goal": "g" })).collect();
    let script = |call: &Call| match call.purpose {
        Purpose::Plan => says(json!({ "tasks": tasks })),
        Purpose::ExecuteWorker => {
            let n: u64 = call.task.as_ref().unwrap().as_str()[1..].parse().unwrap();
            (20 - n, Ok(json!(format!("of {}", call.task.as_ref().unwrap()))))
        }
        Purpose::Review => assessed(
            &[1, 2, 3, 4, 5, 6, 7].map(|n| (["", "t1", "t2", "t3", "t4", "t5", "t6", "t7"][n], "accepted")),
            false,
        ),
        _ => says(json!("x")),
    };
    let played = Stage::new(supervisor(), empty(), &script).play();
    assert_eq!(played.at_once, 3);
    for n in 1..=7 {
        assert_eq!(played.task(&format!("t{n}")).result, Some(json!(format!("of t{n}"))));
    }
}

/// FSS-40, FSS-41: a task waits for its dependencies unless they are not honoured; among ready ones high goes before
/// medium, low and none, ties by plan order.
#[test]
fn dependencies_and_priorities_order_the_dispatch() {
    let script = |call: &Call| match call.purpose {
        Purpose::Plan => says(json!({ "tasks": [
            { "id": "none1", "goal": "g" }, { "id": "none2", "goal": "g" }, { "id": "low", "goal": "g", "priority": "low" },
            { "id": "high", "goal": "g", "priority": "high", "deps": ["none2"] },
            { "id": "medium", "goal": "g", "priority": "medium" }] })),
        _ => says(json!("x")),
    };
    let order = |honour: bool| {
        let rules = GraphRules { honour, max_concurrency: Some(1), ..GraphRules::default() };
        let played = Stage::new(rules, empty(), &script).play();
        let order: Vec<String> =
            played.keys().iter().filter_map(|key| Some(key.strip_prefix("execute/")?.to_owned())).collect();
        order.join(" ").replace("/1", "")
    };
    assert_eq!(order(true), "medium low none1 none2 high");
    assert_eq!(order(false), "high medium low none1 none2");
}

/// FSS-21: a synthesis of the wrong shape is tried again with the error, and fails the run in the end.
#[test]
fn a_synthesis_must_have_its_shape() {
    let schema = json!({ "type": "object", "required": ["title"], "properties": { "title": { "type": "string" } } });
    for good_at in [2, 9] {
        let script = |call: &Call| match call.purpose {
            Purpose::Plan => says(json!({ "tasks": [{ "id": "t1", "goal": "one" }] })),
            Purpose::Synthesize if call.attempt >= good_at => says(json!({ "title": "fine" })),
            Purpose::Synthesize => says(json!({ "titel": "?" })),
            _ => says(json!("x")),
        };
        let rules = GraphRules { output_schema: Some(schema.clone()), ..GraphRules::default() };
        let played = Stage::new(rules, empty(), &script).play();
        let syntheses = played.keys().iter().filter(|key| key.starts_with("synthesize/")).count();
        if good_at == 2 {
            assert_eq!((syntheses, &played.outcome().final_result), (2, &Some(json!({ "title": "fine" }))));
            assert!(played.call("synthesize/2").context["error"].as_str().unwrap().contains("title"));
        } else {
            assert_eq!((syntheses, played.outcome().phase), (3, Phase::Failed));
            assert!(played.outcome().error.as_ref().unwrap().contains("required shape"));
        }
    }
}

fn board() -> GraphRules {
    GraphRules {
        review: ReviewScope::Task,
        on_failure: DependencyPolicy::Skip,
        errored_is_terminal: true,
        ..GraphRules::default()
    }
}

/// FSS-30, FSS-31: each task is reviewed by itself and sent back until its attempts are used up; siblings are not held
/// up; the labels say why a task was given up, and its dependents are skipped.
#[test]
fn a_board_reviews_each_task() {
    let script = |call: &Call| match (call.purpose, call.task.as_ref().map(TaskId::as_str)) {
        (Purpose::Plan, _) => says(json!({ "tasks": [
            { "id": "bad", "goal": "never good" }, { "id": "late", "goal": "good at last" }, { "id": "throws", "goal": "g" },
            { "id": "unread", "goal": "g" }, { "id": "after", "goal": "g", "deps": ["bad"] },
            { "id": "after2", "goal": "g", "deps": ["after"] }] })),
        (Purpose::ExecuteWorker, Some("throws")) => fails("boom"),
        (Purpose::Review, Some("unread")) => fails("the reviewer is down"),
        (Purpose::Review, Some("late")) if call.attempt == 3 => says(json!({ "verdict": "approve", "feedback": "ok" })),
        (Purpose::Review, _) if call.attempt == 2 => says(json!({ "verdict": "reject", "feedback": "worse" })),
        (Purpose::Review, _) => says(json!({ "verdict": "needs-revision", "feedback": "better please" })),
        _ => says(json!("x")),
    };
    let played = Stage::new(board(), empty(), &script).play();
    assert_eq!(played.statuses(), "bad=failed late=completed throws=failed unread=failed after=skipped after2=skipped");
    let labels = |id: &str| played.task(id).labels.iter().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(
        [labels("bad"), labels("throws"), labels("unread")],
        ["failed-review", "worker-error", "reviewer-error"]
    );
    assert_eq!(played.call("execute/late/2").context["feedback"], "better please");
    assert_eq!(played.call("execute/late/3").context["feedback"], "worse");
    assert_eq!(played.task("bad").tries, 3);
}

/// FSS-32: without a reviewer nothing is reviewed.
#[test]
fn no_reviewer_no_review() {
    let script = |call: &Call| match call.purpose {
        Purpose::Plan => says(two_tasks()),
        _ => says(json!("x")),
    };
    let played = Stage::new(GraphRules { review: ReviewScope::None, ..board() }, empty(), &script).play();
    assert!(!played.keys().iter().any(|key| key.starts_with("review")), "{:?}", played.keys());
    assert_eq!(played.statuses(), "t1=completed t2=completed");
}

/// FSS-33: fifty runs of a diamond with three at once all finish with four results.
#[test]
fn fifty_diamonds() {
    let script = |call: &Call| match call.purpose {
        Purpose::Plan => says(json!({ "tasks": [{ "id": "a", "goal": "g" }, { "id": "b", "goal": "g", "deps": ["a"] },
            { "id": "c", "goal": "g", "deps": ["a"] }, { "id": "d", "goal": "g", "deps": ["b", "c"] }] })),
        Purpose::Review => says(json!({ "verdict": "approve" })),
        _ => says(json!(call.key.clone())),
    };
    for _ in 0..50 {
        let played = Stage::new(board(), empty(), &script).play();
        assert_eq!(played.statuses(), "a=completed b=completed c=completed d=completed");
        assert_eq!(played.call("synthesize/1").context["results"].as_array().unwrap().len(), 4);
    }
}

fn plan_and_execute() -> GraphRules {
    GraphRules {
        selection: Selection::One,
        requires: crate::supervisor::model::Requires::CompletedOrSkipped,
        on_failure: DependencyPolicy::Skip,
        ..GraphRules::default()
    }
}

/// FSP-01, FSP-02, FSP-04: one task at a time in dependency order, with the results of its dependencies; what depends on
/// a failed one is skipped, and the rest goes on.
#[test]
fn plan_and_execute_goes_step_by_step() {
    let script = |call: &Call| match (call.purpose, call.task.as_ref().map(TaskId::as_str)) {
        (Purpose::Plan, _) => says(json!({ "tasks": [
            { "id": "s1", "goal": "g" }, { "id": "s2", "goal": "g", "deps": ["s1"] }, { "id": "s3", "goal": "g", "deps": ["s2"] },
            { "id": "s4", "goal": "g", "deps": ["s3"] }, { "id": "s5", "goal": "g", "deps": ["s1"] }, { "id": "s6", "goal": "g" }] })),
        (Purpose::ExecuteWorker, Some("s2")) => says(json!({ "success": false, "reason": "no data" })),
        (Purpose::ExecuteWorker, Some("s6")) => says(json!({ "success": false })),
        (Purpose::Synthesize, _) => says(json!("summary")),
        _ => says(json!(call.key.clone())),
    };
    let played = Stage::new(plan_and_execute(), empty(), &script).play();
    assert_eq!(played.statuses(), "s1=completed s2=failed s3=skipped s4=skipped s5=completed s6=failed");
    assert_eq!(played.at_once, 1);
    let error = |id: &str| played.task(id).error.as_ref().unwrap().message.clone();
    assert_eq!([error("s2"), error("s6")], ["no data", "Task did not produce a result"]);
    assert_eq!([error("s3"), error("s4")], ["Skipped: dependency 's2' failed", "Skipped: dependency 's2' failed"]);
    assert_eq!(played.call("execute/s5/1").context["dependency_results"], json!({ "s1": "execute/s1/1" }));
    assert_eq!(played.call("synthesize/1").context["first_error"], "Task s2 is failed: no data");
}

/// FSP-05, FSP-06: the evaluator goes on, replans (keeping what is over, renaming what collides, with the dependencies
/// inside the batch), or completes; after three plans in all it is made to complete.
#[test]
fn an_evaluator_may_replan() {
    let script = |call: &Call| match (call.purpose, call.key.to_string().as_str()) {
        (Purpose::Plan, _) => says(json!({ "tasks": [
            { "id": "a", "goal": "g" }, { "id": "b", "goal": "g", "deps": ["a"] }, { "id": "c", "goal": "g", "deps": ["b"] }] })),
        (Purpose::ExecuteWorker, "execute/a/1") => says(json!({ "success": false, "reason": "broken" })),
        (Purpose::Decide, "evaluate/1") => says(json!({ "decision": "replan", "reason": "a failed", "tasks": [
            { "id": "a", "goal": "another way" }, { "id": "d", "goal": "g", "deps": ["a"] }] })),
        (Purpose::Decide, _) => says(json!({ "decision": "continue" })),
        _ => says(json!("x")),
    };
    let rules = GraphRules { evaluator: true, ..plan_and_execute() };
    let played = Stage::new(rules.clone(), empty(), &script).play();
    assert_eq!(played.task("a-replan-1").status, TaskStatus::Completed);
    assert_eq!(played.task("d").dependencies(), [TaskId::of("a-replan-1")]);
    assert_eq!((played.task("a").status, played.task("d").status), (TaskStatus::Failed, TaskStatus::Completed));
    assert!(!played.keys().contains(&"plan/2"), "tasks of the evaluator need no planner");
    let script = |call: &Call| match call.purpose {
        Purpose::Plan => says(
            json!({ "tasks": [{ "id": format!("r{}", call.round), "goal": "g" }, { "id": format!("r{}b", call.round), "goal": "g" }] }),
        ),
        Purpose::Decide => says(json!({ "decision": "replan", "reason": "never satisfied" })),
        _ => says(json!("x")),
    };
    let played = Stage::new(rules.clone(), empty(), &script).play();
    assert_eq!(played.keys().iter().filter(|key| key.starts_with("plan/")).count(), 3, "the plan and two replans");
    assert_eq!(played.graph.failures(), ["Task r3b is skipped: Skipped: max iterations reached"]);
    let error = played.task("r3b").error.as_ref().unwrap().message.clone();
    assert_eq!(error, "Skipped: max iterations reached");
    let script = |call: &Call| match call.purpose {
        Purpose::Plan => says(two_tasks()),
        Purpose::Decide => says(json!({ "decision": "complete", "reason": "enough" })),
        _ => says(json!("x")),
    };
    let played = Stage::new(rules, empty(), &script).play();
    assert_eq!(played.statuses(), "t1=completed t2=skipped");
}

/// FSP-07: an empty plan completes.
#[test]
fn an_empty_plan_completes() {
    let script = |call: &Call| match call.purpose {
        Purpose::Plan => says(json!({ "tasks": [] })),
        _ => says(json!("nothing to do")),
    };
    let played = Stage::new(plan_and_execute(), empty(), &script).play();
    assert_eq!((played.outcome().phase, played.graph.plan.tasks.len()), (Phase::Completed, 0));
}

/// FSC-01, FSC-02, FSC-03: one pass of three at once, no review, no loop; failed results are left out of the merge, and
/// merging nothing is fine.
#[test]
fn a_coordinator_passes_once() {
    let rules =
        GraphRules { synthesis: ResultSource::Merge, on_exhausted: OnTriesExhausted::Skip, ..GraphRules::default() };
    for all_fail in [false, true] {
        let script = |call: &Call| match call.purpose {
            Purpose::Plan => says(
                json!({ "tasks": (1..=5).map(|n| json!({ "id": format!("t{n}"), "goal": "g" })).collect::<Vec<_>>() }),
            ),
            _ if all_fail || call.task == Some(TaskId::of("t3")) => fails("no"),
            _ => says(json!(call.task.as_ref().unwrap().as_str())),
        };
        let played = Stage::new(rules.clone(), empty(), &script).play();
        let merged = if all_fail { json!({}) } else { json!({ "t1": "t1", "t2": "t2", "t4": "t4", "t5": "t5" }) };
        assert_eq!(played.outcome().final_result, Some(merged));
        assert_eq!((played.at_once, played.keys().len()), (3, 6));
        assert_eq!(played.outcome().phase, Phase::Partial);
    }
}

/// FSP-09: a result that waits for its review when the turns end is reviewed, and is no task that was not run.
#[test]
fn the_end_of_turns_leaves_results_to_their_review() {
    let tasks: Vec<Value> = (1..=2).map(|n| json!({ "id": n, "goal": "g" })).collect();
    let script = |call: &Call| match call.purpose {
        Purpose::Review => says(json!({
            "assessments": [{ "taskId": "1", "verdict": "accepted", "feedback": "", "score": 1.0 }],
            "needsReplanning": false, "overallAssessment": "good",
        })),
        _ => says(json!("x")),
    };
    let rules = GraphRules {
        selection: Selection::One,
        review: ReviewScope::Iteration,
        max_steps: Some(1),
        ..GraphRules::default()
    };
    let played = Stage::new(rules, plan("o", json!(tasks)), &script).play();
    assert_eq!(played.statuses(), "1=completed 2=skipped");
    assert_eq!((&played.task("1").error, &played.task("1").skipped), (&None, &None));
}
