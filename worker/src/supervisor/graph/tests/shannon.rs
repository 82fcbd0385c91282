//! Shannon: parallel by dependency, tries, thresholds, recruits aside; CUGA's controller.

use serde_json::json;

use super::super::*;
use super::stage::*;
use crate::supervisor::model::DependencyPolicy;

fn rules() -> GraphRules {
    GraphRules {
        max_concurrency: None,
        tries: 3,
        threshold_bp: Some(5_000),
        bypass_single: true,
        ..GraphRules::default()
    }
}

fn independent(n: u32) -> Value {
    json!({ "subtasks": (1..=n).map(|n| json!({ "id": format!("t{n}"), "description": "d" })).collect::<Vec<_>>() })
}

fn with_failures(rules: GraphRules, n: u32, failing: u32) -> Played {
    let script = move |call: &Call| match call.purpose {
        Purpose::Plan => says(independent(n)),
        Purpose::ExecuteWorker => {
            let number: u32 = call.task.as_ref().unwrap().as_str()[1..].parse().unwrap();
            if number <= failing { fails("down") } else { (99, Ok(json!({ "of": number }))) }
        }
        _ => says(json!("summary")),
    };
    Stage::new(rules, TaskPlan::new("q"), &script).order_counts().play()
}

/// SHN-31, SHN-32, SHN-34: `floor(n/2)+1` failures abort, fewer are left out of the result and listed.
#[test]
fn too_many_failures_abort() {
    for (n, most) in [(6, 4), (8, 5), (1, 1), (2, 2), (7, 4)] {
        let below = with_failures(rules(), n, most - 1);
        assert!(matches!(below.outcome().phase, Phase::Completed | Phase::Partial), "n={n}: {:?}", below.outcome());
        assert_eq!(below.outcome().details["failures"].as_array().unwrap().len() as u32, most - 1);
        if most > 1 {
            let listed = below.call("synthesize/1").context["results"].as_array().unwrap().len() as u32;
            assert_eq!(listed, n - most + 1, "failed tasks are left out");
        }
        let at = with_failures(rules(), n, most);
        let outcome = at.outcome();
        assert_eq!(
            (outcome.phase, outcome.error.as_deref(), outcome.code.as_deref()),
            (Phase::Failed, Some("Too many failures"), Some("too_many_failures"))
        );
        assert_eq!((&outcome.details["failed"], &outcome.details["total"]), (&json!(most), &json!(n)));
    }
}

/// SHN-31, SHN-33: floor(n * ratio) + 1, and the three ratios the seed names.
#[test]
fn the_failure_threshold_is_exact() {
    let of = |bp: Option<u32>| GraphRules { threshold_bp: bp, ..rules() };
    let half = of(Some(5_000));
    assert_eq!([0, 1, 2, 5, 6, 7, 8, 9].map(|n| half.max_failures(n)), [1, 1, 2, 3, 4, 4, 5, 5].map(Some));
    // Data analysis 20 %, critical business 0 %.
    assert_eq!([4, 5, 10].map(|n| of(Some(2_000)).max_failures(n)), [1, 2, 3].map(Some));
    assert_eq!([1, 6, 1_000].map(|n| of(Some(0)).max_failures(n)), [1, 1, 1].map(Some));
    assert_eq!(of(None).max_failures(6), None);
    assert_eq!(of(Some(10_000)).max_failures(u32::MAX), Some(u32::MAX));
}

/// SHN-33: research 50 %, data analysis 20 %, critical 0 %: `floor(n*share)+1`, in integers.
#[test]
fn the_threshold_is_configurable() {
    for (share, n, most) in [(2_000, 10, 3), (2_000, 5, 2), (2_000, 4, 1), (0, 9, 1), (10_000, 3, 4), (3_333, 3, 1)] {
        let rules = GraphRules { threshold_bp: Some(share), ..rules() };
        assert_eq!(rules.max_failures(n), Some(most), "{share} bp of {n}");
        if most <= n {
            assert_eq!(with_failures(rules.clone(), n, most).outcome().phase, Phase::Failed);
        }
        assert_ne!(with_failures(rules, n, most - 1).outcome().error.as_deref(), Some("Too many failures"));
    }
}

/// SHN-30, SHN-36: three executions in all, also when the worker says `success: false`.
#[test]
fn a_task_is_tried_three_times() {
    for works_at in [3, 9] {
        let script = |call: &Call| match call.purpose {
            Purpose::Plan => says(independent(2)),
            Purpose::ExecuteWorker if call.task == Some(TaskId::of("t1")) && call.attempt < works_at => {
                match call.attempt {
                    1 => fails("transport"),
                    _ => says(json!({ "success": false, "error": "could not" })),
                }
            }
            _ => says(json!({ "fine": true })),
        };
        let played = Stage::new(rules(), TaskPlan::new("q"), &script).play();
        assert_eq!(played.task("t1").tries, 3);
        let status = if works_at == 3 { TaskStatus::Completed } else { TaskStatus::Failed };
        assert_eq!(played.task("t1").status, status);
    }
}

/// SHN-35, SHN-47: what is independent runs at once; a task starts when all its dependencies are complete, with their
/// results under their own ids; a failed one shifts nothing.
#[test]
fn results_are_keyed_by_task() {
    let script = |call: &Call| match (call.purpose, call.task.as_ref().map(TaskId::as_str)) {
        (Purpose::Plan, _) => says(json!({ "subtasks": [
            { "id": "a", "description": "d" }, { "id": "b", "description": "d" }, { "id": "c", "description": "d" },
            { "id": "e", "description": "d", "dependencies": ["a", "c"] }] })),
        (Purpose::ExecuteWorker, Some("b")) => fails("down"),
        (Purpose::ExecuteWorker, Some("a")) => (15, Ok(json!({ "from": "a" }))),
        (Purpose::ExecuteWorker, Some("c")) => (20, Ok(json!({ "from": "c" }))),
        _ => (15, Ok(json!({ "x": 1 }))),
    };
    let played = Stage::new(rules(), TaskPlan::new("q"), &script).play();
    let context = &played.call("execute/e/1").context;
    let both = json!({ "a": { "from": "a" }, "c": { "from": "c" } });
    assert_eq!((&context["dependency_results"], &context["previous_results"]), (&both, &both));
    assert_eq!(played.at_once, 3);
    assert_eq!(played.task("e").attempts[0].started_at.since(played.task("a").attempts[0].started_at).as_secs(), 20);
}

/// SHN-40: the role of the i-th subtask, or generalist.
#[test]
fn roles_go_by_place() {
    let script = |call: &Call| match call.purpose {
        Purpose::Plan => says(
            json!({ "subtasks": [{ "id": "a", "description": "d" }, { "id": "b", "description": "d" }, { "id": "c", "description": "d" }],
            "agent_types": ["researcher", ""] }),
        ),
        _ => says(json!({ "x": 1 })),
    };
    let played = Stage::new(rules(), TaskPlan::new("q"), &script).play();
    let roles: Vec<Option<&str>> = ["a", "b", "c"].iter().map(|id| played.task(id).role.as_deref()).collect();
    assert_eq!(roles, [Some("researcher"), Some("generalist"), Some("generalist")]);
    assert_eq!(played.call("execute/a/1").context["role"], "researcher");
}

/// SHN-06: a decomposition that fails is the run's failure; one that is given calls no planner.
#[test]
fn decomposition_may_fail_or_be_given() {
    let script = |_: &Call| fails("model down");
    let played = Stage::new(rules(), TaskPlan::new("q"), &script).play();
    assert_eq!(played.outcome().error.as_deref(), Some("decomposition failed: model down"));
    let script = |_: &Call| says(json!({ "x": 1 }));
    let given = plan("q", json!([{ "id": "a", "goal": "g" }, { "id": "b", "goal": "g" }]));
    let played = Stage::new(rules(), given, &script).play();
    assert_eq!(played.keys(), ["execute/a/1", "execute/b/1", "synthesize/1"]);
}

/// SHN-48: one successful result that is no JSON needs no synthesis; a synthesis task that is long enough, cost tokens and
/// cites nothing is the synthesis; the same text twice is told once.
#[test]
fn synthesis_may_be_bypassed() {
    let single = |result: Value| {
        let script = move |call: &Call| match call.purpose {
            Purpose::Plan => says(independent(1)),
            Purpose::ExecuteWorker => says(result.clone()),
            _ => says(json!("synthesized")),
        };
        Stage::new(rules(), TaskPlan::new("q"), &script).play().outcome().final_result.clone().unwrap()
    };
    assert_eq!(single(json!("plain words")), "plain words");
    assert_eq!(single(json!("{\"is\": \"json\"}")), "synthesized");
    assert_eq!(single(json!({ "is": "json" })), "synthesized");
    let own = |length: usize, tokens: u64| {
        let script = move |call: &Call| match call.purpose {
            Purpose::Plan => says(
                json!({ "subtasks": [{ "id": "a", "description": "d" }, { "id": "s", "description": "d", "role": "synthesis", "deps": ["a"] }] }),
            ),
            Purpose::ExecuteWorker if call.task == Some(TaskId::of("s")) => {
                says(json!({ "result": "s".repeat(length), "tokens": tokens }))
            }
            _ => says(json!("other")),
        };
        Stage::new(rules(), TaskPlan::new("q"), &script).play().outcome().final_result.clone().unwrap()
    };
    assert_eq!(own(100, 1), "s".repeat(100));
    assert_eq!([own(99, 1), own(100, 0)], ["other", "other"]);
    let script = |call: &Call| match call.purpose {
        Purpose::Plan => says(independent(3)),
        Purpose::ExecuteWorker => says(json!("same")),
        _ => says(json!("s")),
    };
    let told = |dedupe: bool| {
        let rules = GraphRules { dedupe, ..rules() };
        let played = Stage::new(rules, TaskPlan::new("q"), &script).play();
        played.call("synthesize/1").context["results"].as_array().unwrap().len()
    };
    assert_eq!([told(true), told(false)], [1, 3]);
}

/// SHD-01, SHD-02, SHD-03: five at once; a dependent waits, and where so configured runs without the result of a failed
/// dependency.
#[test]
fn a_dag_runs_five_at_once_and_dependents_of_the_failed_if_so_told() {
    for (policy, last) in [
        (DependencyPolicy::Run, "completed"),
        (DependencyPolicy::Skip, "skipped"),
        (DependencyPolicy::Cancel, "cancelled"),
        (DependencyPolicy::Block, "blocked"),
        (DependencyPolicy::Wait, "pending"),
    ] {
        let script = |call: &Call| match (call.purpose, call.task.as_ref().map(TaskId::as_str)) {
            (Purpose::Plan, _) => {
                says(json!({ "subtasks": (1..=7).map(|n| json!({ "id": format!("t{n}"), "description": "d" }))
                .chain([json!({ "id": "last", "description": "d", "deps": ["t1", "t2"] })]).collect::<Vec<_>>() }))
            }
            (Purpose::ExecuteWorker, Some("t1")) => fails("down"),
            _ => says(json!({ "x": 1 })),
        };
        let rules = GraphRules { max_concurrency: Some(5), on_failure: policy, ..GraphRules::default() };
        let played = Stage::new(rules, TaskPlan::new("q"), &script).play();
        assert_eq!((played.at_once, played.task("last").status.as_str()), (5, last));
        if policy == DependencyPolicy::Run {
            assert_eq!(played.call("execute/last/1").context["dependency_results"], json!({ "t2": { "x": 1 } }));
        }
    }
}

/// SHD-04: a wait that is too long fails the task; cycles are refused when planned.
#[test]
fn a_wait_for_dependencies_is_bounded() {
    let script = |call: &Call| match (call.purpose, call.task.as_ref().map(TaskId::as_str)) {
        (Purpose::Plan, _) => says(
            json!({ "subtasks": [{ "id": "a", "description": "d" }, { "id": "b", "description": "d", "deps": ["a"] }] }),
        ),
        (Purpose::ExecuteWorker, Some("a")) => (100, Ok(json!({ "x": 1 }))),
        _ => says(json!({ "x": 1 })),
    };
    let played = |timeout: u64| {
        let rules = GraphRules { dependency_timeout_ms: Some(timeout), ..GraphRules::default() };
        Stage::new(rules, TaskPlan::new("q"), &script).order_counts().play()
    };
    assert_eq!(played(99_000).task("b").error.as_ref().unwrap().message, "timeout waiting for dependencies");
    assert_eq!(played(101_000).statuses(), "a=completed b=completed");
}

/// SHD-05: three tries, with a pause between them where so configured; then the task has failed.
#[test]
fn tries_back_off() {
    let script = |call: &Call| match call.purpose {
        Purpose::Plan => says(independent(1)),
        _ => fails("down"),
    };
    let rules = GraphRules { tries: 3, retry_backoff_ms: 10_000, ..GraphRules::default() };
    let played = Stage::new(rules, TaskPlan::new("q"), &script).play();
    assert_eq!((played.statuses().as_str(), played.task("t1").tries), ("t1=failed", 3));
    assert!(played.took >= 24, "{} s", played.took);
}

/// SHD-06: a simple task is one execution, without a plan, a review or a synthesis.
#[test]
fn a_simple_task_is_one_execution() {
    let script = |_: &Call| says(json!("the answer"));
    let rules = GraphRules { planning: PlanSource::None, synthesis: ResultSource::FinalTask, ..GraphRules::default() };
    let played = Stage::new(rules, TaskPlan::new("what?"), &script).play();
    assert_eq!((played.keys(), &played.outcome().final_result), (vec!["execute/1/1"], &Some(json!("the answer"))));
    assert_eq!(played.call("execute/1/1").context["goal"], "what?");
}

/// SHN-62: what was completed is undone in reverse when the run is cancelled; what was not is not.
#[test]
fn cancelling_compensates_in_reverse() {
    let tasks = json!([
        { "id": "a", "goal": "book", "compensation": "unbook" }, { "id": "b", "goal": "pay", "deps": ["a"], "compensation": "refund" },
        { "id": "c", "goal": "look", "deps": ["b"] }, { "id": "d", "goal": "send", "deps": ["c"], "compensation": "recall" }]);
    let script = |call: &Call| match call.key.to_string().as_str() {
        "compensate/b" => fails("bank closed"),
        "execute/d/1" => (50, Ok(json!(1))),
        _ => says(json!(1)),
    };
    let act = |event: u32, graph: &mut Graph, out: &mut Outbox| {
        if event == 4 {
            graph.cancel("workflow cancelled: enough".into(), &mut Open, out);
        }
    };
    let played = Stage::new(rules(), plan("q", tasks), &script).act(&act).play();
    assert_eq!(played.keys()[4..], ["compensate/b", "compensate/a"]);
    assert_eq!(played.statuses(), "a=completed b=completed c=completed d=cancelled");
    assert_eq!(
        (played.outcome().phase, played.outcome().error.as_deref()),
        (Phase::Cancelled, Some("workflow cancelled: enough"))
    );
    assert_eq!(played.graph.errors, ["compensation of task b failed: bank closed"]);
}

fn controller() -> GraphRules {
    GraphRules {
        selection: Selection::Controller,
        authority: [Authority::Select, Authority::Finish].into(),
        max_steps: Some(50),
        tries: 2,
        synthesis: ResultSource::LastOutput,
        ..GraphRules::default()
    }
}

fn progress(list: &[&str], next: &str, conclude: bool) -> (u64, Answer) {
    says(
        json!({ "thoughts": "", "subtasks_progress": list, "next_subtask": next, "conclude_task": conclude, "conclude_final_answer": "fin" }),
    )
}

/// CUG-06, CUG-07, CUG-42: the controller delegates the next sub-task, a failed one is tried once more, and it concludes;
/// a conclusion that names a next sub-task does not conclude; its list must be as long as the plan.
#[test]
fn a_controller_drives_the_plan() {
    let tasks = json!([{ "id": "1", "goal": "first", "agent": "a" }, { "id": "2", "goal": "second", "agent": "b", "deps": ["1"] }]);
    let script = |call: &Call| match call.key.to_string().as_str() {
        "decide/1" => progress(&["not-started", "not-started"], "first", true),
        "decide/2" => progress(&["in-progress", "not-started"], "1", false),
        "decide/3" => progress(&["completed", "not-started"], "2", false),
        "execute/1/1" => fails("flaky"),
        _ => says(json!(call.key.clone())),
    };
    let played = Stage::new(controller(), plan("i", tasks.clone()), &script).play();
    assert_eq!(played.keys(), ["decide/1", "execute/1/1", "decide/2", "execute/1/2", "decide/3", "execute/2/1"]);
    assert_eq!((played.statuses().as_str(), played.outcome().phase), ("1=completed 2=completed", Phase::Completed));
    let script = |call: &Call| match call.key.to_string().as_str() {
        "decide/1" => progress(&["not-started", "not-started"], "", true),
        other => panic!("{other}"),
    };
    let played = Stage::new(controller(), plan("i", tasks.clone()), &script).play();
    assert_eq!(played.keys(), ["decide/1"], "concluded before anything was delegated");
    let script = |_: &Call| progress(&["completed"], "", false);
    let played = Stage::new(controller(), plan("i", tasks), &script).play();
    let error = played.outcome().error.clone().unwrap();
    assert_eq!(error, "the plan controller failed: subtasks_progress has 1 entries for 2 sub-tasks");
}

/// CUG-42: plans of one or no sub-task need no controller.
#[test]
fn small_plans_bypass_the_controller() {
    let script = |call: &Call| match call.purpose {
        Purpose::Plan => says(json!({ "tasks": [] })),
        _ => says(json!("x")),
    };
    let one = Stage::new(controller(), plan("i", json!([{ "id": "1", "goal": "g" }])), &script).play();
    assert_eq!(one.keys(), ["execute/1/1"]);
    let none = Stage::new(controller(), TaskPlan::new("i"), &script).play();
    assert_eq!((none.keys(), none.outcome().phase), (vec!["plan/1"], Phase::Completed));
}

/// CUG-03, CUG-45: a sub-task of an agent that is not there refuses the plan as a whole, before any delegation.
#[test]
fn a_plan_names_known_agents_only() {
    let script = |_: &Call| {
        says(
            json!({ "tasks": [{ "id": "1", "goal": "g", "agent": "crm" }, { "id": "2", "goal": "g", "agent": "ghost" }] }),
        )
    };
    let rules = GraphRules { workers: workers(["crm", "mail"]), ..controller() };
    let played = Stage::new(rules, TaskPlan::new("i"), &script).play();
    let error = played.outcome().error.clone().unwrap();
    assert_eq!(error, "decomposition failed: tasks[1].agent: there is no agent 'ghost'; available: crm, mail");
    assert_eq!(played.keys(), ["plan/1"]);
}

/// CUG-43: one more try; then failed, and what depends on it ends with a partial result.
#[test]
fn a_failed_subtask_gives_a_partial_result() {
    let tasks =
        json!([{ "id": "1", "goal": "g" }, { "id": "2", "goal": "g", "deps": ["1"] }, { "id": "3", "goal": "g" }]);
    let script = |call: &Call| match (call.purpose, call.task.as_ref().map(TaskId::as_str)) {
        (Purpose::Decide, _) => progress(&["not-started", "not-started", "not-started"], "", false),
        (_, Some("1")) => fails("down"),
        _ => says(json!("three")),
    };
    let played = Stage::new(controller(), plan("i", tasks), &script).play();
    assert_eq!((played.statuses().as_str(), played.task("1").tries), ("1=failed 2=pending 3=completed", 2));
    assert_eq!((played.outcome().phase, &played.outcome().final_result), (Phase::Partial, &Some(json!("three"))));
}

/// CUG-20: sub-tasks run side by side where dependencies allow it.
#[test]
fn subtasks_run_side_by_side() {
    let tasks =
        json!([{ "id": "1", "goal": "g" }, { "id": "2", "goal": "g" }, { "id": "3", "goal": "g", "deps": ["1", "2"] }]);
    let script = |call: &Call| match call.purpose {
        Purpose::Decide => progress(&["not-started", "not-started", "not-started"], "", false),
        _ => says(json!("x")),
    };
    let played = Stage::new(controller(), plan("i", tasks), &script).play();
    assert_eq!(
        (played.at_once, played.keys()),
        (2, vec!["decide/1", "execute/1/1", "execute/2/1", "decide/2", "execute/3/1"])
    );
}
