//! pydantask: cycles of a supervisor that selects, critic, tools, planning modes.

use serde_json::json;

use super::super::*;
use super::stage::*;
use crate::supervisor::core::account::Allowance;
use crate::supervisor::spec::OnExhausted;

const ALL: [Authority; 8] = [
    Authority::Select,
    Authority::Add,
    Authority::Patch,
    Authority::Cancel,
    Authority::UpdateStatus,
    Authority::MarkFinal,
    Authority::Feedback,
    Authority::Finish,
];

fn rules() -> GraphRules {
    GraphRules {
        planning: PlanSource::Llm,
        selection: Selection::Supervisor,
        errors_are_attempts: true,
        authority: ALL.into_iter().collect(),
        max_concurrency: Some(4),
        review: ReviewScope::Task,
        append_feedback: true,
        max_steps: Some(20),
        on_exhausted: OnTriesExhausted::Errored,
        synthesis: ResultSource::FinalTask,
        ..GraphRules::default()
    }
}

fn fixed() -> GraphRules {
    let changes = [Authority::Add, Authority::Patch, Authority::MarkFinal];
    let authority = ALL.into_iter().filter(|authority| !changes.contains(authority)).collect();
    GraphRules { planning: PlanSource::Fixed, authority, ..rules() }
}

fn decides(ids: &[u64], done: bool) -> (u64, Answer) {
    says(json!({ "reasoning": "r", "tasks_to_execute": ids, "all_tasks_completed": done }))
}

fn passes(passed: bool, why: &str) -> (u64, Answer) {
    says(json!({ "passed": passed, "reasoning": why }))
}

fn tool(tool: &str, args: Value) -> Value {
    json!({ "tool": tool, "args": args })
}

fn chain() -> TaskPlan {
    plan(
        "a report",
        json!([
        { "id": 1, "goal": "collect" }, { "id": 2, "goal": "weigh", "deps": [1] },
        { "id": 3, "goal": "write", "deps": [1, 2], "is_final": true }]),
    )
}

/// PDT-01, PDT-02, PDT-04, PDT-15, PDT-16, PDT-22: a cycle is board, decision, execution, review; the scheduler's notes
/// are in the next board, ascending.
#[test]
fn cycles_go_from_board_to_review() {
    let script = |call: &Call| match call.purpose {
        Purpose::Decide => decides(&[u64::from(call.round)], call.round == 4),
        Purpose::Review => passes(true, "good"),
        _ => says(json!(format!("result {}", call.key))),
    };
    let played = Stage::new(fixed(), chain(), &script).play();
    let keys = [
        "decide/1",
        "execute/1/1",
        "review/1/1",
        "decide/2",
        "execute/2/1",
        "review/2/1",
        "decide/3",
        "execute/3/1",
        "review/3/1",
        "decide/4",
    ];
    assert_eq!(played.keys(), keys);
    assert_eq!(
        (played.outcome().phase, &played.outcome().final_result),
        (Phase::Completed, &Some(json!("result execute/3/1")))
    );
    assert_eq!(played.call("decide/1").context["scheduler_notes"], "Task 1: pending -> ready");
    assert_eq!(played.call("decide/2").context["scheduler_notes"], "Task 2: pending -> ready");
    assert_eq!(played.call("decide/4").context["scheduler_notes"], "No scheduler changes this cycle.");
    let claims = played.noted(NoteKind::TaskStatusChanged);
    let claims: Vec<&&Value> = claims.iter().filter(|data| data["to"] == "running").collect();
    assert!(claims.len() == 3 && claims.iter().all(|data| data["reason"] == "claimed_for_execution"), "{claims:?}");
}

/// PDT-03: at `max_steps` the run ends as it stands, without an error of its own.
#[test]
fn max_steps_end_the_run() {
    let script = |call: &Call| match call.purpose {
        Purpose::Decide => decides(&[1], false),
        Purpose::Review => passes(false, "again"),
        _ => says(json!("x")),
    };
    let one = plan("o", json!([{ "id": 1, "goal": "g", "is_final": true, "max_attempts": 99 }]));
    let played = Stage::new(GraphRules { max_steps: Some(2), ..fixed() }, one, &script).play();
    assert_eq!(played.keys().iter().filter(|key| key.starts_with("decide")).count(), 2);
    assert!(played.graph.errors.is_empty(), "{:?}", played.graph.errors);
    assert_eq!(played.statuses(), "1=needs_revision");
}

/// PDT-05, PDT-29, PDT-30, PDT-31, PDT-36: an empty plan is bootstrapped by tools; ids count from 1; a task with unmet
/// dependencies is demoted by the next scheduler pass.
#[test]
fn a_supervisor_plans_by_tools() {
    let script = |call: &Call| match (call.purpose, call.round) {
        (Purpose::Decide, 1) => says(json!({ "reasoning": "plan", "tool_calls": [
            tool("add_task", json!({ "sub_task_objective": "a", "capability": "c" })),
            tool("add_task", json!({ "sub_task_objective": "b", "capability": "c", "dependencies": [1] })),
            tool("mark_final_task", json!({ "task_id": 2 })), tool("mark_final_task", json!({ "task_id": 9 }))] })),
        (Purpose::Decide, n) if n < 4 => decides(&[u64::from(n) - 1], false),
        (Purpose::Decide, _) => decides(&[], true),
        (Purpose::Review, _) => passes(true, ""),
        _ => says(json!("x")),
    };
    let played = Stage::new(rules(), TaskPlan::new("o"), &script).play();
    assert_eq!(played.call("decide/1").context["instruction"], "bootstrap");
    assert_eq!(played.call("decide/2").context["instruction"], "orchestration");
    let answers = &played.call("decide/2").context["tool_results"];
    let texts: Vec<&Value> = answers.as_array().unwrap().iter().map(|answer| &answer["answer"]).collect();
    assert_eq!(
        texts,
        [&json!(1), &json!(2), &json!("Task 2 marked as final."), &json!("Error: No task with id 9 found in plan.")]
    );
    assert_eq!(played.call("decide/2").context["board"][1]["status"], "pending");
    assert_eq!(played.outcome().phase, Phase::Completed);
    let next = chain();
    assert_eq!(Graph::new(rules(), next).plan.next_id, 4, "with a seed: the highest id and one more");
}

/// PDT-06, PDT-07: three idle cycles in a row stop the run with a report; a cycle that executed something resets the
/// counter.
#[test]
fn no_progress_stops_the_run_with_a_report() {
    let mut tasks = vec![json!({ "id": 1, "goal": "g" })];
    tasks.extend((2..=20).map(|n| json!({ "id": n, "goal": "g", "deps": [1] })));
    let plan = plan("o", Value::Array(tasks));
    let script = |call: &Call| match call.purpose {
        Purpose::Decide => decides(&[7], false),
        _ => says(json!("x")),
    };
    let played = Stage::new(fixed(), plan, &script).play();
    assert_eq!(played.keys(), ["decide/1", "decide/2", "decide/3"]);
    let error = &played.graph.errors[0];
    let begin = "No progress after 3 consecutive cycles (no tasks executed). Stopping to avoid infinite loop. ";
    assert!(error.starts_with(begin), "{error}");
    assert!(error.contains("pending=19, ready=1") && error.contains("Runnable: [1]"), "{error}");
    assert!(
        error.contains("task 2: waiting on deps [1]") && error.contains("task 13:") && !error.contains("task 14:"),
        "{error}"
    );
    assert!(error.contains("Task 7 was not executed: waiting on deps [1]"), "{error}");
    let script = |call: &Call| match (call.purpose, call.round) {
        (Purpose::Decide, 3) => decides(&[1], false),
        (Purpose::Decide, _) => decides(&[], false),
        (Purpose::Review, _) => passes(true, ""),
        _ => says(json!("x")),
    };
    let played = Stage::new(fixed(), chain(), &script).play();
    assert_eq!(
        played.keys().iter().filter(|key| key.starts_with("decide")).count(),
        6,
        "two idle, one busy, three idle"
    );
}

/// PDT-08: a claim to be done is overridden with its reasons, which the supervisor is shown.
#[test]
fn a_claim_to_be_done_is_checked() {
    let cases = [
        (json!([{ "id": 1, "goal": "g" }]), "no task is marked Final: True"),
        (
            json!([{ "id": 1, "goal": "g", "is_final": true }, { "id": 2, "goal": "g", "is_final": true }]),
            "multiple tasks are marked Final: True ([1, 2])",
        ),
        (
            json!([{ "id": 1, "goal": "g", "is_final": true }]),
            "final task 1 status is 'ready' (expected 'completed'); final task 1 has no TaskResult",
        ),
    ];
    for (tasks, reason) in cases {
        let script = |_: &Call| decides(&[], true);
        let played = Stage::new(fixed(), plan("o", tasks), &script).play();
        let notes = played.call("decide/2").context["scheduler_notes"].as_str().unwrap().to_owned();
        assert!(notes.contains(reason), "{notes} should contain {reason}");
        assert_eq!(played.keys().len(), 3, "the cycle counts as one without progress");
    }
    let script = |call: &Call| match call.purpose {
        Purpose::Decide if call.round == 1 => decides(&[1], false),
        Purpose::Decide => decides(&[], true),
        Purpose::Review => passes(true, ""),
        _ => says(Value::Null),
    };
    let played = Stage::new(fixed(), plan("o", json!([{ "id": 1, "goal": "g", "is_final": true }])), &script).play();
    let notes = played.call("decide/3").context["scheduler_notes"].as_str().unwrap().to_owned();
    assert!(notes.ends_with("overridden: final task 1 has no TaskResult"), "{notes}");
}

/// PDT-09: at the budget, not before it, the run stops with the text. A result that nobody is paid to review counts for
/// nothing.
#[test]
fn a_token_budget_stops_the_run() {
    let played = |tokens: u64| {
        let script = move |call: &Call| match call.purpose {
            Purpose::Decide if call.round == 1 => decides(&[1], false),
            Purpose::Decide => decides(&[], true),
            Purpose::Review => passes(true, ""),
            _ => says(json!({ "result": "x", "tokens": tokens })),
        };
        let tasks = plan("o", json!([{ "id": 1, "goal": "g", "is_final": true }]));
        let budget = Allowance { tokens: Some(100), ..Allowance::default() };
        Stage::new(fixed(), tasks, &script).budget(budget, OnExhausted::Stop).play()
    };
    let text = "Global token budget exceeded: tokens_used=100 >= token_budget=100. Stopping execution.";
    assert_eq!(played(100).graph.errors, [text]);
    assert_eq!(played(100).keys().last(), Some(&"execute/1/1"));
    assert_eq!(played(100).statuses(), "1=cancelled");
    let why = played(100).task("1").error.clone().unwrap();
    assert_eq!(
        (why.kind.as_str(), why.message.as_str()),
        (NOT_REVIEWED, "not reviewed: the budget of the run is spent")
    );
    assert!(played(99).graph.errors.is_empty());
}

/// PDT-10: which result is the run's.
#[test]
fn the_final_result_is_selected() {
    let choose = |tasks: &[(u64, &str, &str, bool, i64)]| {
        let mut plan = TaskPlan::new("o");
        let task = |(id, result, capability, is_final, ended): &(u64, &str, &str, bool, i64)| {
            let mut task = Task::new(TaskId::from(*id), "g");
            (task.status, task.is_final, task.capability) =
                (TaskStatus::Completed, *is_final, Some((*capability).to_owned()));
            task.result = Some(json!(result));
            task.ended_at = Some(bosun_engine::Timestamp(*ended));
            task
        };
        plan.add(tasks.iter().map(task).collect()).unwrap();
        final_result(&plan).map(|id| id.to_string())
    };
    assert_eq!(choose(&[(1, "", "c", true, 1), (2, "long", "c", false, 2)]).as_deref(), Some("1"));
    assert_eq!(choose(&[(1, "a", "c", false, 9), (2, "b", "c", false, 2)]).as_deref(), Some("2"), "highest id");
    assert_eq!(choose(&[(1, " ", "producer_agent", false, 1), (2, "", "c", false, 2)]).as_deref(), Some("1"));
    assert_eq!(choose(&[(1, "", "c", false, 5), (2, "", "c", false, 2)]).as_deref(), Some("1"), "the newest");
    assert_eq!(choose(&[(1, "", "c", false, 5), (2, "", "c", false, 5)]).as_deref(), Some("2"));
    assert_eq!(choose(&[]), None);
}

/// PDT-11, PDT-12, PDT-13, PDT-14, PDT-55: what does not exist, is named twice or may not run is skipped; no attempt is
/// consumed, the status stays, and the next board says why.
#[test]
fn what_may_not_run_is_skipped() {
    let script = |call: &Call| match (call.purpose, call.round) {
        (Purpose::Decide, 1) => decides(&[3, 1, 1, 42, 2], false),
        (Purpose::Decide, _) => decides(&[], false),
        (Purpose::Review, _) => passes(true, ""),
        _ => says(json!("x")),
    };
    let played = Stage::new(fixed(), chain(), &script).play();
    assert_eq!(played.keys()[..3], ["decide/1", "execute/1/1", "review/1/1"]);
    let notes = played.call("decide/2").context["scheduler_notes"].as_str().unwrap().to_owned();
    for reason in [
        "Task 3 was not executed: waiting on deps [1, 2]",
        "Task 42 was not executed: there is no task 42",
        "Task 2 was not executed: waiting on deps [1]",
    ] {
        assert!(notes.contains(reason), "{notes} should contain {reason}");
    }
    assert_eq!((played.task("2").tries, played.task("2").attempt_count), (0, 0));
    assert!(!TaskStatus::Errored.is_terminal() && TaskStatus::Cancelled.is_terminal());
}

/// PDT-17: four at once, more in turns.
#[test]
fn larger_sets_run_in_turns() {
    let tasks: Vec<Value> = (1..=9).map(|n| json!({ "id": n, "goal": "g" })).collect();
    let script = |call: &Call| match call.purpose {
        Purpose::Decide => decides(&[1, 2, 3, 4, 5, 6, 7, 8, 9], false),
        Purpose::Review => passes(true, ""),
        _ => says(json!("x")),
    };
    let played = Stage::new(GraphRules { max_steps: Some(1), ..fixed() }, plan("o", json!(tasks)), &script).play();
    assert_eq!((played.at_once, played.keys().iter().filter(|key| key.starts_with("execute")).count()), (4, 9));
    let unlimited = GraphRules { max_concurrency: None, max_steps: Some(1), ..fixed() };
    assert_eq!(Stage::new(unlimited, plan("o", json!(tasks)), &script).play().at_once, 9);
}

/// PDT-18: a capability that is not registered makes any task that is not over errored, with the text.
#[test]
fn an_unknown_capability_is_an_error() {
    let card = CapabilityCard { name: "research".into(), description: String::new(), required_parameters: vec![] };
    let rules = GraphRules { capabilities: vec![card], ..fixed() };
    let tasks = json!([{ "id": 1, "goal": "g", "capability": "x" }, { "id": 2, "goal": "g", "capability": "research", "deps": [1] }]);
    let script = |_: &Call| decides(&[1], false);
    let played = Stage::new(rules, plan("o", tasks), &script).play();
    assert_eq!(played.task("1").error.as_ref().unwrap().message, "Unknown capability: 'x'");
    assert_eq!(played.statuses(), "1=errored 2=pending");
    assert!(played.graph.errors[0].contains("task 1: unknown capability: 'x'"), "{:?}", played.graph.errors);
}

/// PDT-19: missing parameters are named; patched in, the task comes back by itself, as ready or pending.
#[test]
fn missing_parameters_heal() {
    let card = CapabilityCard {
        name: "f".into(),
        description: String::new(),
        required_parameters: vec!["url".into(), "key".into()],
    };
    let rules = GraphRules { capabilities: vec![card], max_steps: Some(3), planning: PlanSource::Hybrid, ..rules() };
    let tasks = json!([{ "id": 1, "goal": "g", "capability": "f", "params": { "key": 1 } }, { "id": 2, "goal": "g", "capability": "f", "deps": [1] }]);
    let script = |call: &Call| match (call.purpose, call.round) {
        (Purpose::Decide, 2) => says(json!({ "reasoning": "", "tool_calls": [
            tool("patch_task", json!({ "task_id": 1, "parameters": { "url": "u" } })),
            tool("patch_task", json!({ "task_id": 2, "parameters": { "url": "u", "key": 2 } }))] })),
        (Purpose::Decide, _) => decides(&[], false),
        _ => says(json!("x")),
    };
    let played = Stage::new(rules, plan("o", tasks), &script).play();
    let board = |n: u32, task: usize| played.call(&format!("decide/{n}")).context["board"][task].clone();
    assert_eq!(
        (&board(1, 0)["status"], &board(1, 0)["error"]),
        (&json!("errored"), &json!("Missing required parameters: url"))
    );
    let changes = played.noted(NoteKind::TaskStatusChanged);
    assert!(changes.iter().any(|data| data["to"] == "errored" && data["reason"] == "missing_required_parameters"));
    assert_eq!((&board(3, 0)["status"], &board(3, 1)["status"]), (&json!("ready"), &json!("pending")));
    assert_eq!(played.task("1").params, *json!({ "key": 1, "url": "u" }).as_object().unwrap(), "parameters are merged");
    assert!(json!(played.task("1").metadata) == json!({}));
}

/// PDT-20, PDT-33: a cancelled task takes what is pending or ready behind it along; a failed one takes nothing along.
#[test]
fn cancelling_cascades_and_failing_does_not() {
    let tasks = json!([{ "id": 1, "goal": "g" }, { "id": 2, "goal": "g", "deps": [1] }, { "id": 3, "goal": "g", "deps": [2] }, { "id": 4, "goal": "g" }]);
    let script = |call: &Call| match (call.purpose, call.round) {
        (Purpose::Decide, 1) => says(json!({ "reasoning": "", "tool_calls": [
            tool("cancel_task", json!({ "task_id": 1, "reason": "too costly" })), tool("cancel_task", json!({ "task_id": 9, "reason": "" }))] })),
        (Purpose::Decide, _) => decides(&[], false),
        _ => says(json!("x")),
    };
    let played = Stage::new(fixed(), plan("o", tasks.clone()), &script).play();
    assert_eq!(played.statuses(), "1=cancelled 2=cancelled 3=cancelled 4=ready");
    let error = |id: &str| played.task(id).error.as_ref().unwrap().message.clone();
    assert_eq!(
        [error("2"), error("3")],
        ["Upstream dependency Task 1 was cancelled.", "Upstream dependency Task 2 was cancelled."]
    );
    let answers = &played.call("decide/2").context["tool_results"];
    assert_eq!(
        [&answers[0]["answer"], &answers[1]["answer"]],
        ["Task 1 cancelled. Reason: too costly", "Error: Task 9 not found."]
    );
    let script = |call: &Call| match (call.purpose, call.round) {
        (Purpose::Decide, _) => decides(&[1], false),
        (Purpose::Review, _) => passes(false, "no"),
        _ => says(json!("x")),
    };
    let played = Stage::new(fixed(), plan("o", tasks), &script).play();
    assert_eq!(played.statuses(), "1=failed 2=pending 3=pending 4=ready");
}

/// PDT-21, PDT-23, PDT-24, PDT-54: each review counts; a rejection is appended to the objective, each time; a patch in
/// between changes only what it names; at the limit the task has failed.
#[test]
fn a_rejected_task_is_told_why_until_its_attempts_are_used_up() {
    let script = |call: &Call| match (call.purpose, call.round) {
        (Purpose::Decide, 2) => says(json!({ "reasoning": "", "tasks_to_execute": [1], "tool_calls": [
            tool("patch_task", json!({ "task_id": 1, "parameters": { "depth": 2 } }))] })),
        (Purpose::Decide, _) => decides(&[1], false),
        (Purpose::Review, _) => passes(false, &format!("flaw {}", call.attempt)),
        _ => says(json!("x")),
    };
    let rules = GraphRules { planning: PlanSource::Hybrid, max_steps: Some(3), ..rules() };
    let played = Stage::new(rules, plan("o", json!([{ "id": 1, "goal": "do it" }])), &script).play();
    let goal = |attempt: u32| played.call(&format!("execute/1/{attempt}")).context["goal"].as_str().unwrap().to_owned();
    let prefix = "Previous attempt failed review; feedback: ";
    assert_eq!(goal(1), "do it");
    assert_eq!(goal(2), format!("do it\n\n{prefix}flaw 1"));
    assert_eq!(goal(3), format!("do it\n\n{prefix}flaw 1\n\n{prefix}flaw 2"));
    assert_eq!(played.call("execute/1/2").context["parameters"]["depth"], 2);
    let task = played.task("1");
    assert_eq!((task.status, task.attempt_count, task.feedback.len()), (TaskStatus::Failed, 3, 3));
    assert_eq!(task.error.as_ref().unwrap().message, "Max retries reached (3/3).");
}

/// PDT-25: the supervisor approves nothing: only the critic completes, whatever the supervisor asks for.
#[test]
fn a_supervisor_cannot_approve() {
    for status in ["completed", "failed", "running", "needs_review", "ready", "COMPLETED"] {
        let script = |call: &Call| match (call.purpose, call.round) {
            (Purpose::Decide, 1) => says(
                json!({ "reasoning": "", "tool_calls": [tool("update_task_status", json!({ "task_id": 2, "status": status }))] }),
            ),
            _ => decides(&[], false),
        };
        let played = Stage::new(rules(), chain(), &script).play();
        let answer = played.call("decide/2").context["tool_results"][0]["answer"].as_str().unwrap().to_owned();
        let to = TaskStatus::from_name(&status.to_lowercase()).unwrap();
        assert_eq!(answer, format!("Error: [tasks] illegal status transition for task \"2\": pending -> {to}"));
        assert_eq!(played.statuses(), "1=ready 2=pending 3=pending");
        assert_eq!(played.noted(NoteKind::TransitionRefused).len(), 1);
    }
}

/// PDT-26: an error never goes to the critic; it consumes an attempt; a patch repairs, and the next execution counts on.
#[test]
fn an_error_is_not_reviewed_and_can_be_repaired() {
    let script = |call: &Call| match (call.purpose, call.round) {
        (Purpose::Decide, 1) => decides(&[1], false),
        (Purpose::Decide, 2) => says(
            json!({ "reasoning": "", "tool_calls": [tool("patch_task", json!({ "task_id": 1, "sub_task_objective": "easier" }))] }),
        ),
        (Purpose::Decide, 3) => decides(&[1], false),
        (Purpose::Decide, _) => decides(&[], true),
        (Purpose::ExecuteWorker, 1) => fails("exploded"),
        (Purpose::Review, _) => passes(true, "fine"),
        _ => says(json!("x")),
    };
    let rules = GraphRules { planning: PlanSource::Hybrid, ..rules() };
    let played = Stage::new(rules, plan("o", json!([{ "id": 1, "goal": "hard", "is_final": true }])), &script).play();
    assert_eq!(
        played.keys(),
        ["decide/1", "execute/1/1", "decide/2", "decide/3", "execute/1/2", "review/1/2", "decide/4"]
    );
    assert_eq!(played.call("decide/2").context["board"][0]["error"], "exploded");
    assert_eq!((played.task("1").status, played.task("1").attempt_count), (TaskStatus::Completed, 2));
    assert_eq!(played.call("execute/1/2").context["goal"], "easier");
    assert_eq!(played.task("1").error, None);
}

/// PDT-29, PDT-32, PDT-34, PDT-35: tools of the mode only; a call of another one leaves the plan as it is, byte for
/// byte; exact answers.
#[test]
fn tools_are_gated_by_authority_and_answer_in_their_words() {
    let calls = [
        ("add_task", json!({ "sub_task_objective": "a", "capability": "c" })),
        ("patch_task", json!({ "task_id": 1, "sub_task_objective": "b" })),
        ("mark_final_task", json!({ "task_id": 1 })),
        ("execute_shell", json!({})),
    ];
    let mut graph = Graph::new(fixed(), chain());
    let before = serde_json::to_string(&graph.plan).unwrap();
    for (name, args) in calls {
        let mut out = Outbox::new("run", bosun_engine::Timestamp(0));
        let why = graph.tool(name, args.as_object().unwrap(), Actor::Supervisor, &mut Open, &mut out).unwrap_err();
        let why = why.to_string();
        let tools = "update_task_status, cancel_task, view_qa_report, get_current_datetime, think_tool";
        assert_eq!(why, format!("Error: there is no tool '{name}' here; the tools are: {tools}"));
        assert_eq!(serde_json::to_string(&graph.plan).unwrap(), before);
    }
    let mut graph = Graph::new(rules(), chain());
    let mut use_tool = |name: &str, args: Value| {
        let mut out = Outbox::new("run", bosun_engine::Timestamp(0));
        let answer = graph.tool(name, args.as_object().unwrap(), Actor::Supervisor, &mut Open, &mut out);
        (
            answer.map_or_else(
                |why| why.to_string(),
                |value| value.as_str().map_or_else(|| value.to_string(), str::to_owned),
            ),
            out.notes().len(),
        )
    };
    let says = |text: &str, notes: usize| (text.to_owned(), notes);
    assert_eq!(use_tool("patch_task", json!({ "task_id": 9 })), says("Task not found.", 0));
    assert_eq!(
        use_tool("patch_task", json!({ "task_id": 2, "sub_task_objective": "weigh" })),
        says("Task 2 updated successfully.", 0)
    );
    assert_eq!(
        use_tool("patch_task", json!({ "task_id": 2, "sub_task_objective": "new" })),
        says("Task 2 updated successfully.", 1)
    );
    let unknown = "Error: No task with 9 found in plan. Be sure task_id actually exists.";
    assert_eq!(use_tool("update_task_status", json!({ "task_id": 9, "status": "blocked" })), says(unknown, 0));
    assert_eq!(
        use_tool("update_task_status", json!({ "task_id": 2, "status": "blocked" })).0,
        "Task 2 status updated to blocked."
    );
    assert_eq!(
        use_tool("update_task_status", json!({ "task_id": 2, "status": "pending" })).0,
        "Task 2 status updated to pending."
    );
    assert_eq!(use_tool("view_qa_report", json!({ "task_id": 9 })), says("No task with id 9.", 0));
    assert_eq!(use_tool("view_qa_report", json!({ "task_id": 1 })), says("No QA feedback found for task 1.", 0));
    assert_eq!(use_tool("mark_final_task", json!({ "task_id": 1 })).0, "Task 1 marked as final.");
    let finals: Vec<&TaskId> = graph.plan.tasks.values().filter(|task| task.is_final).map(|task| &task.id).collect();
    assert_eq!(finals, [&TaskId::of("1")], "the only one");
}

/// PDT-35: a report is served and marked as seen.
#[test]
fn a_qa_report_is_served() {
    let script = |call: &Call| match (call.purpose, call.round) {
        (Purpose::Decide, 1) => decides(&[1], false),
        (Purpose::Decide, 2) => {
            says(json!({ "reasoning": "", "tool_calls": [tool("view_qa_report", json!({ "task_id": 1 }))] }))
        }
        (Purpose::Review, _) => passes(false, "too short"),
        _ => says(json!({ "reasoning": "x" })),
    };
    let played =
        Stage::new(GraphRules { max_steps: Some(3), ..fixed() }, plan("o", json!([{ "id": 1, "goal": "g" }])), &script)
            .play();
    let answer = played.call("decide/3").context["tool_results"][0]["answer"].as_str().unwrap().to_owned();
    assert!(answer.contains("too short"), "{answer}");
    assert_eq!(json!(played.task("1").metadata), json!({ "qa.report_viewed": true }));
}

/// PDT-37: a change that would make a cycle or point nowhere is refused, and changes nothing.
#[test]
fn a_change_that_breaks_the_graph_is_refused() {
    let mut graph = Graph::new(rules(), chain());
    let before = graph.plan.clone();
    let mut out = Outbox::new("run", bosun_engine::Timestamp(0));
    for (name, args, why) in [
        ("patch_task", json!({ "task_id": 1, "dependencies": [3] }), "Error: Dependency cycle detected: 1 -> 3 -> 1"),
        ("patch_task", json!({ "task_id": 1, "dependencies": [1] }), "Error: Task 1 cannot depend on itself"),
        (
            "patch_task",
            json!({ "task_id": 1, "dependencies": [7], "sub_task_objective": "no" }),
            "Error: Task 1 depends on missing task 7",
        ),
        (
            "add_task",
            json!({ "sub_task_objective": "a", "capability": "c", "dependencies": [9] }),
            "Error: Task 4 depends on missing task 9",
        ),
    ] {
        assert_eq!(
            graph
                .tool(name, args.as_object().unwrap(), Actor::Supervisor, &mut Open, &mut out)
                .unwrap_err()
                .to_string(),
            why
        );
        assert_eq!(graph.plan, before);
    }
}

/// PDT-46, PDT-47: feedback reaches the prompt of its task and no other, is durable, and only the newest counts.
#[test]
fn feedback_reaches_its_task_only() {
    let script = |call: &Call| match (call.purpose, call.round) {
        (Purpose::Decide, n @ (1 | 2)) => says(
            json!({ "reasoning": "", "tasks_to_execute": [1, 2], "feedback_to_subagents": { "1": format!("hint {n}") } }),
        ),
        (Purpose::Decide, _) => decides(&[1, 2], false),
        (Purpose::Review, _) => passes(false, "again"),
        _ => says(json!("x")),
    };
    let tasks = json!([{ "id": 1, "goal": "g" }, { "id": 2, "goal": "g" }]);
    let played = Stage::new(GraphRules { max_steps: Some(3), ..fixed() }, plan("o", tasks), &script).play();
    let hint = |key: &str| played.call(key).context.get("supervisor_feedback").cloned();
    assert_eq!(
        [hint("execute/1/1"), hint("execute/1/2"), hint("execute/1/3")],
        [Some(json!("hint 1")), Some(json!("hint 2")), Some(json!("hint 2"))]
    );
    assert_eq!([hint("execute/2/1"), hint("execute/2/2")], [None, None]);
    assert_eq!(played.task("1").params["supervisor_feedback"], "hint 2");
    let attached: Vec<&Value> =
        played.noted(NoteKind::FeedbackAttached).into_iter().filter(|data| data["from"] == "supervisor").collect();
    assert_eq!(attached.len(), 2, "each word of the supervisor is in the record");
}

/// PDT-48: a worker that runs out of context goes on twice with its notes, capped; then it is errored.
#[test]
fn overflow_resumes_twice() {
    let notes = "n".repeat(7_000);
    let script = |call: &Call| match call.purpose {
        Purpose::Decide => decides(&[1], false),
        _ => says(json!({ "overflow": notes })),
    };
    let played =
        Stage::new(GraphRules { max_steps: Some(1), ..fixed() }, plan("o", json!([{ "id": 1, "goal": "g" }])), &script)
            .play();
    assert_eq!(played.keys(), ["decide/1", "execute/1/1", "execute/1/2", "execute/1/3"]);
    let context = |n: u32| &played.call(&format!("execute/1/{n}")).context;
    assert_eq!(
        [&context(1)["tool_call_limit"], &context(2)["tool_call_limit"], &context(3)["tool_call_limit"]],
        [20, 10, 10]
    );
    assert_eq!(context(2)["notes"].as_str().unwrap().len(), 6_000);
    assert_eq!((played.statuses().as_str(), played.task("1").metadata.overflows.len()), ("1=errored", 3));
}

/// PDT-49: one bounded question to another capability; the answer is logged, and no task is made of it.
#[test]
fn a_worker_may_consult() {
    let script = |call: &Call| match (call.purpose, call.key.to_string().as_str()) {
        (Purpose::Decide, _) => decides(&[1], false),
        (_, "execute/1/1") => says(json!({ "consult": { "capability": "law", "question": "may we?" } })),
        (_, "consult/1/1/1") => says(json!("y".repeat(4_000))),
        (Purpose::Review, _) => passes(true, ""),
        _ => says(json!("done")),
    };
    let played =
        Stage::new(GraphRules { max_steps: Some(1), ..fixed() }, plan("o", json!([{ "id": 1, "goal": "g" }])), &script)
            .play();
    let call = played.call("consult/1/1/1");
    assert_eq!(
        (call.agent.as_deref(), &call.context["tools"], &call.context["max_tokens"]),
        (Some("law"), &json!([]), &json!(1200))
    );
    let logged = json!(played.task("1").metadata.consultations[0]);
    assert_eq!((&logged["question"], logged["answer"].as_str().unwrap().len()), (&json!("may we?"), 3_000));
    assert_eq!(played.statuses(), "1=completed");
}

/// PDT-52, PDT-56: exploratory tasks run side by side; losers are cancelled while they run, their results are dropped,
/// their dependents cancelled, and those of the winner run.
#[test]
fn soft_branches_cancel_the_losers() {
    let tasks = json!([{ "id": 1, "goal": "way a" }, { "id": 2, "goal": "way b" }, { "id": 3, "goal": "after a", "deps": [1] }, { "id": 4, "goal": "after b", "deps": [2], "is_final": true }]);
    let script = |call: &Call| match (call.purpose, call.key.to_string().as_str()) {
        (Purpose::Decide, "decide/1") => decides(&[1, 2], false),
        (Purpose::Decide, "decide/2") => decides(&[4], false),
        (Purpose::Decide, _) => decides(&[], true),
        (Purpose::Review, _) => passes(true, ""),
        (_, "execute/1/1") => (50, Ok(json!("late"))),
        _ => says(json!("x")),
    };
    let act = |event: u32, graph: &mut Graph, out: &mut Outbox| {
        if event == 2 {
            let args = json!({ "task_id": 1, "reason": "b is better" });
            graph.tool("cancel_task", args.as_object().unwrap(), Actor::Supervisor, &mut Open, out).unwrap();
        }
    };
    let played = Stage::new(fixed(), plan("o", tasks), &script).act(&act).play();
    assert_eq!(played.statuses(), "1=cancelled 2=completed 3=cancelled 4=completed");
    assert_eq!(played.outcome().phase, Phase::Partial);
    let mut graph = played.graph.clone();
    let mut out = Outbox::new("run", bosun_engine::Timestamp(0));
    graph.phase = Phase::Executing;
    let (answer, before) = (Ok(json!("late")), graph.plan.tasks[&TaskId::of("1")].status);
    graph.executed(&TaskId::of("1"), 1, answer, &mut Open, &mut out);
    assert_eq!(
        (graph.plan.tasks[&TaskId::of("1")].status, graph.plan.tasks[&TaskId::of("1")].result.clone()),
        (before, None)
    );
    assert_eq!(out.notes()[0].kind, NoteKind::AttemptDropped);
}

/// PDT-57: time is workflow time, and thinking changes nothing.
#[test]
fn time_and_thoughts_are_pure() {
    let mut graph = Graph::new(rules(), chain());
    let before = graph.clone();
    let mut out = Outbox::new("run", bosun_engine::Timestamp(1_767_225_600_000_000));
    let time = graph.tool("get_current_datetime", &Default::default(), Actor::Supervisor, &mut Open, &mut out).unwrap();
    assert_eq!(time, "2026-01-01T00:00:00Z");
    graph
        .tool("think_tool", json!({ "thought": "hm" }).as_object().unwrap(), Actor::Supervisor, &mut Open, &mut out)
        .unwrap();
    assert_eq!((graph == before, out.notes().len()), (true, 0));
}

/// PDT-53: a task keeps the objective it was planned under.
#[test]
fn a_task_keeps_its_own_objective() {
    let tasks = json!([{ "id": 1, "goal": "g", "overall_objective": "theirs" }, { "id": 2, "goal": "g" }]);
    let script = |call: &Call| match call.purpose {
        Purpose::Decide => decides(&[1, 2], false),
        Purpose::Review => passes(true, ""),
        _ => says(json!("x")),
    };
    let played = Stage::new(GraphRules { max_steps: Some(1), ..fixed() }, plan("ours", tasks), &script).play();
    let objectives = |key: &str| {
        (played.call(key).context["objective"].clone(), played.call(key).context["overall_objective"].clone())
    };
    assert_eq!(objectives("execute/1/1"), (json!("ours"), json!("theirs")));
    assert_eq!(objectives("execute/2/1"), (json!("ours"), json!("ours")));
}

/// PDT-45: a pipeline, a fan-out and fan-in, and a refinement run on the same machine.
#[test]
fn patterns_run_on_one_machine() {
    let tasks = json!([
        { "id": 1, "goal": "start" }, { "id": 2, "goal": "left", "deps": [1] }, { "id": 3, "goal": "right", "deps": [1] },
        { "id": 4, "goal": "join", "deps": [2, 3], "is_final": true }]);
    let script = |call: &Call| match call.purpose {
        Purpose::Decide => decides(&[1, 2, 3, 4], call.round > 5),
        Purpose::Review => passes(call.task != Some(TaskId::of("4")) || call.attempt == 2, "refine"),
        _ => says(json!(call.key.clone())),
    };
    let played = Stage::new(fixed(), plan("o", tasks), &script).play();
    let order: Vec<&str> = played.keys().into_iter().filter(|key| key.starts_with("execute")).collect();
    assert_eq!(order, ["execute/1/1", "execute/2/1", "execute/3/1", "execute/4/1", "execute/4/2"]);
    assert_eq!(played.outcome().final_result, Some(json!("execute/4/2")));
}
