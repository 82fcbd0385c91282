//! Tests of prompts: whole texts as golden files, and what must and must not stand in them.

mod graph;

use serde_json::{Value, json};

use super::*;

#[track_caller]
fn golden(file: &str, golden: &str, shown: &str) {
    if std::env::var_os("BOSUN_WRITE_FIXTURES").is_some() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/supervisor/prompts/golden").join(file);
        std::fs::write(path, format!("{shown}\n")).unwrap();
    } else {
        assert_eq!(format!("{shown}\n"), golden);
    }
}

fn cycle() -> Value {
    json!({
        "objective": "Compare X and Y", "cycle": 3, "instruction": "orchestration",
        "board": [
            { "task_id": 1, "status": "completed", "is_final": false, "objective": "Research X", "dependencies": [],
              "capability": "research_agent", "qa_passed": true, "qa_summary": "good" },
            { "task_id": 2, "status": "needs_revision", "is_final": false,
              "objective": "Research Y\n\nPrevious attempt failed review; feedback: no sources", "dependencies": [],
              "capability": "research_agent", "qa_passed": false, "qa_summary": "no sources" },
            { "task_id": 10, "status": "errored", "is_final": true, "objective": "Compare", "dependencies": [1, 2],
              "capability": "producer_agent", "error": "worker lost" },
        ],
        "tools": ["update_task_status", "cancel_task", "view_qa_report", "get_current_datetime", "think_tool"],
        "capabilities": [
            { "name": "research_agent", "description": "searches the web", "required_parameters": [] },
            { "name": "convert", "description": "", "required_parameters": ["from", "to"] },
        ],
        "scheduler_notes": "Task 10: ready -> pending",
        "tool_results": [{ "tool": "get_current_datetime", "answer": "2026-03-01T12:00:00Z" }],
        "now_ms": 1_772_366_400_000i64, "tokens_used": 17,
    })
}

fn with(mut context: Value, changes: Value) -> Value {
    let Value::Object(changes) = changes else { panic!("no object") };
    changes.into_iter().for_each(|(key, value)| context[key] = value);
    context
}

fn bootstrap() -> Value {
    with(
        cycle(),
        json!({ "cycle": 1, "instruction": "bootstrap", "board": [], "tool_results": [],
        "tools": ["add_task", "mark_final_task"], "scheduler_notes": "No scheduler changes this cycle." }),
    )
}

fn plan_again() -> Value {
    json!({
        "goal": "Write a report", "iteration": 2,
        "tasks": [
            { "id": "t1", "goal": "collect", "status": "completed", "feedback": null, "result": "data" },
            { "id": "t2", "goal": "write", "status": "needs_revision", "feedback": "too short", "result": "text" },
        ],
        "needs_revision": [
            { "id": "t2", "goal": "write", "status": "needs_revision", "feedback": "too short", "result": "text" },
        ],
        "overall_assessment": "half done", "agents": ["writer", "searcher"], "given": { "history": "none yet" },
    })
}

fn attempt() -> Value {
    json!({
        "id": "t2", "goal": "Write the summary", "objective": "Write a report", "overall_objective": "", "attempt": 2,
        "iteration": 1, "dependency_results": { "t1": { "rows": 3 } },
        "previous_results": { "t0": "earlier", "t1": { "rows": 3 } }, "feedback": "too short",
        "supervisor_feedback": "cite the rows", "role": "writer", "agent": "a7", "capability": "writing",
        "parameters": { "words": 200, "supervisor_feedback": "cite the rows" }, "tools": ["search"],
        "notes": "found row 2", "tool_call_limit": 10, "mailbox": ["hello"], "budget_left": 5, "memory": null,
    })
}

fn review() -> Value {
    json!({ "id": "t2", "goal": "Write the summary", "objective": "Write a report", "attempt": 2, "result": "Done.",
        "criteria": ["Sources are specific and relevant", "Summary is substantive (not vague)"] })
}

fn iteration_review() -> Value {
    json!({ "goal": "Write a report", "iteration": 1, "criteria": ["Comprehensive", "Well-sourced"], "results": [
        { "taskId": "t1", "goal": "collect", "status": "awaiting_review", "result": ["a", "b"] },
        { "taskId": "t2", "goal": "write", "status": "awaiting_review", "result": null },
    ] })
}

/// PDT-04: the notes of the scheduler stand under their heading, after the board.
#[test]
fn every_prompt_is_as_it_was() {
    let controller = json!({ "intent": "book a trip", "cycle": 2,
        "subtasks": [{ "id": "1", "goal": "find flights", "agent": "travel", "status": "completed" },
                     { "id": "2", "goal": "pay", "agent": null, "status": "pending" }],
        "variables": { "task_1": { "price": 300 } } });
    let evaluator = json!({ "goal": "g", "iteration": 1,
        "tasks": { "b": { "status": "completed", "result": "r", "goal": "first" },
                   "a": { "status": "pending", "result": null, "goal": "second" } } });
    let synthesis = json!({ "goal": "Write a report", "results": [{ "id": "t1", "result": "data" }],
        "failures": ["Task t2 is failed: broken"], "first_error": "x", "overall_assessment": null,
        "schema": { "type": "object" }, "error": "result: expected an object" });
    let consult =
        json!({ "question": "Which year?", "capability": "x", "for_task": "3", "tools": [], "max_tokens": 1200 });
    let plan =
        with(plan_again(), json!({ "iteration": 1, "tasks": [], "needs_revision": [], "overall_assessment": null }));
    macro_rules! check {
        ($($file:literal: $purpose:ident, $context:expr;)*) => {
            $(golden($file, include_str!(concat!("golden/", $file)), &of(Purpose::$purpose, &$context));)*
        };
    }
    check! {
        "bootstrap.txt": Decide, bootstrap();
        "orchestration.txt": Decide, cycle();
        "plan.txt": Plan, plan;
        "plan_again.txt": Plan, plan_again();
        "worker.txt": ExecuteWorker, attempt();
        "consultation.txt": ExecuteWorker, consult;
        "task_review.txt": Review, review();
        "iteration_review.txt": Review, iteration_review();
        "controller.txt": Decide, controller;
        "evaluator.txt": Decide, evaluator;
        "synthesis.txt": Synthesize, synthesis;
    }
}

/// PDT-04: what the scheduler did stands under its own heading.
#[test]
fn the_notes_of_the_scheduler_stand_under_their_heading() {
    for notes in ["Task 10: ready -> pending", "No scheduler changes this cycle."] {
        let prompt = of(Purpose::Decide, &with(cycle(), json!({ "scheduler_notes": notes })));
        assert!(prompt.contains(&format!("## system scheduler notes\n{notes}\n")), "{prompt}");
    }
}

/// PDT-05: an empty plan gets the bootstrap instruction (2-6 tasks, mark the final one, execute nothing), any later cycle
/// the orchestration instruction; neither prompt holds the other's.
#[test]
fn an_empty_plan_is_bootstrapped_and_a_later_one_orchestrated() {
    let (first, later) = (of(Purpose::Decide, &bootstrap()), of(Purpose::Decide, &cycle()));
    for part in ["Add 2 to 6 tasks", "Mark exactly one of them as the final one", "execute nothing"] {
        assert!(first.contains(part), "{part}");
        assert!(!later.contains(part), "{part}");
    }
    let orchestration = "decide what happens in this cycle";
    assert!(later.contains(orchestration) && !first.contains(orchestration));
}

/// Only the tools of the mode are described.
#[test]
fn only_granted_tools_are_described() {
    let fixed = of(Purpose::Decide, &cycle());
    assert!(fixed.contains("- cancel_task(task_id, reason)"));
    assert!(!fixed.contains("- add_task("));
    assert!(of(Purpose::Decide, &bootstrap()).contains("- add_task(sub_task_objective, capability"));
}

/// PDT-46: the supervisor's feedback stands in the prompt of its task, once; without it the rest is the same.
#[test]
fn feedback_of_the_supervisor_stands_in_the_prompt_of_its_task() {
    let with_feedback = of(Purpose::ExecuteWorker, &attempt());
    assert!(with_feedback.contains("## feedback of the supervisor\ncite the rows\n"));
    assert_eq!(with_feedback.matches("cite the rows").count(), 1);
    let mut other = attempt();
    let map = other.as_object_mut().unwrap();
    map.remove("supervisor_feedback");
    map["parameters"].as_object_mut().unwrap().remove("supervisor_feedback");
    let without = of(Purpose::ExecuteWorker, &other);
    assert_eq!(without, with_feedback.replace("\n\n## feedback of the supervisor\ncite the rows", ""));
}

/// SHN-41: the role of a task opens its worker's prompt, with its specialty and tendency; a role nobody knows is named.
#[test]
fn a_role_opens_the_prompt_of_its_worker() {
    let opening = |role: Value| {
        let prompt = of(Purpose::ExecuteWorker, &with(attempt(), json!({ "role": role })));
        prompt.lines().next().unwrap().to_owned()
    };
    let task = "You carry out one task of a larger plan.";
    for (role, specialty, tendency) in [
        ("a researcher", "information gathering", "comprehensive, detailed"),
        ("an analyst", "data analysis", "numbers, trends"),
        ("a strategist", "strategic planning", "high-level view, long-term"),
        ("a writer", "content creation", "readability, structure"),
    ] {
        let name = role.split(' ').next_back().unwrap();
        let expected = format!("You are {role}, your specialty is {specialty}. Your tendency: {tendency}. {task}");
        assert_eq!(opening(json!(name)), expected);
    }
    assert_eq!(opening(json!("pricing_analyst")), format!("You are a pricing_analyst. {task}"));
    assert_eq!((opening(json!(null)), opening(json!(""))), (task.to_owned(), task.to_owned()));
}

/// FSS-19: the criteria stand word for word and numbered in both reviewers' prompts; without any there is no list.
#[test]
fn criteria_stand_verbatim_and_numbered_in_the_prompt_of_the_reviewer() {
    let odd = ["Sources are specific and relevant", "  Kept as {written}, with \"quotes\" & 100 % ", "Third"];
    for context in [review(), iteration_review()] {
        let prompt = of(Purpose::Review, &with(context.clone(), json!({ "criteria": odd })));
        let list = "## criteria\n1. Sources are specific and relevant\n2.   Kept as {written}, with \"quotes\" & 100 % \n3. Third";
        assert!(prompt.contains(list), "{prompt}");
        let without = of(Purpose::Review, &with(context, json!({ "criteria": [] })));
        assert!(!without.contains("## criteria"));
    }
}

/// FSS-20: the planner is told at first to take the goal apart, later to plan only what needs revision, with its feedback.
#[test]
fn a_planner_replans_only_what_needs_revision() {
    let again = of(Purpose::Plan, &plan_again());
    assert!(again.contains("## needs revision\n- t2 [needs_revision]: write\n  feedback: too short\n"), "{again}");
    assert!(again.contains("## kept as it is\n- t1 [completed]: collect\n"), "{again}");
    assert!(again.contains("Plan anew only the tasks listed"));
    let first = of(Purpose::Plan, &with(plan_again(), json!({ "iteration": 1, "tasks": [], "needs_revision": [] })));
    assert!(first.contains("Take the goal apart") && !first.contains("needs revision"), "{first}");
    // In a review conversation the last plan and what people said of it are shown.
    let given = json!({ "given": { "feedback": "fewer tasks" }, "iteration": 1 });
    let revised = of(Purpose::Plan, &with(plan_again(), given));
    assert!(revised.contains("## last plan\n- t1 [completed]: collect\n"), "{revised}");
    assert!(revised.contains("## feedback on the last plan\nfewer tasks\n"), "{revised}");
}

/// PDT-57: a prompt is made of recorded data, its time included: the same cycle twice is the same bytes and hash; another
/// recorded time is another prompt.
#[test]
fn the_same_recorded_cycle_is_the_same_bytes() {
    for (purpose, context) in
        [(Purpose::Decide, cycle()), (Purpose::ExecuteWorker, attempt()), (Purpose::Plan, plan_again())]
    {
        let stored: Value = serde_json::from_str(&context.to_string()).unwrap();
        let (live, replayed) = (of(purpose, &context), of(purpose, &stored));
        assert_eq!(live.as_bytes(), replayed.as_bytes());
        assert_eq!(prompt_hash(&live), prompt_hash(&replayed));
    }
    let prompt = of(Purpose::Decide, &cycle());
    assert!(prompt.contains("## time\n2026-03-01T12:00:00Z (UTC); the year is 2026\n"), "{prompt}");
    let later = of(Purpose::Decide, &with(cycle(), json!({ "now_ms": 1_772_366_401_000i64 })));
    assert_ne!(prompt_hash(&prompt), prompt_hash(&later));
}

#[test]
fn calls_of_no_model_have_no_prompt() {
    let silent = Purpose::ALL.into_iter().filter(|purpose| of(*purpose, &json!({})).is_empty());
    let silent: Vec<&str> = silent.map(Purpose::as_str).collect();
    assert_eq!(
        silent,
        [
            "decide",
            "advise",
            "fetch_memory",
            "record_decomposition",
            "authorize_team_action",
            "notify_for_approval",
            "log_approval_result",
            "emit_progress",
            "compensate"
        ]
    );
    assert_eq!(of(Purpose::Review, &json!("text")), "", "what is no supervisor's data has none");
}

fn subtask(id: &str, agent: Option<&str>, status: &str, after: &[&str]) -> ProgressTask {
    let after = after.iter().map(|id| (*id).to_owned()).collect();
    ProgressTask {
        id: id.to_owned(),
        goal: format!("do {id}"),
        agent: agent.map(str::to_owned),
        status: status.to_owned(),
        after,
    }
}

/// CUG-14: the texts of the four moments: the whole plan with all statuses, who is active, a brief result, the end.
#[test]
fn the_four_moments_of_a_plan_have_their_texts() {
    let tasks = [subtask("a", Some("crm"), "pending", &[]), subtask("b", None, "pending", &["a"])];
    assert_eq!(
        plan_proposed("Find the\ncustomers", &tasks),
        "Plan for: Find the customers\n2 sub-tasks:\n1. [pending] a (crm): do a\n2. [pending] b: do b, after a"
    );
    assert_eq!(subtask_started(&tasks[0], 1), "Sub-task a started by crm: do a");
    assert_eq!(subtask_started(&tasks[1], 2), "Sub-task b started, attempt 2: do b");
    assert_eq!(
        subtask_completed(&tasks[0], &json!("three\n customers")),
        "Sub-task a completed by crm: three customers"
    );
    assert_eq!(subtask_completed(&tasks[1], &json!({ "n": 3 })), "Sub-task b completed: {\"n\":3}");
    assert_eq!(subtask_completed(&tasks[1], &json!(null)), "Sub-task b completed: no result");
    assert_eq!(subtask_failed(&tasks[1], "timeout"), "Sub-task b failed: timeout");
    let ended = [subtask("a", Some("crm"), "completed", &[]), subtask("b", None, "failed", &["a"])];
    assert_eq!(
        plan_completed("goal", &ended),
        "Plan finished for: goal\n1 of 2 sub-tasks completed:\n1. [completed] a (crm): do a\n2. [failed] b: do b, after a"
    );
    // Brief is at most 200 characters, of any alphabet.
    for (letters, end) in [(200, ""), (201, "...")] {
        let told = subtask_completed(&tasks[1], &json!("é".repeat(letters)));
        assert_eq!(told, format!("Sub-task b completed: {}{end}", "é".repeat(200)));
    }
}
