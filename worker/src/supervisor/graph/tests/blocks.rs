//! Blocks by themselves, policies, the choice of planning, and what the log says of a run.

use serde_json::json;

use super::super::*;
use super::stage::*;
use crate::supervisor::core::account::Allowance;
use crate::supervisor::spec::{OnExhausted, PlanPolicies, Planning, PlanningMode, choose_planning};

/// FSS-02: a goal, and nothing else; refused before anything runs.
#[test]
fn the_input_is_a_goal() {
    assert_eq!(capture_goal(&json!({ "goal": "write" })), Ok("write".to_owned()));
    for bad in [
        json!({}),
        json!({ "goal": 1 }),
        json!({ "goal": " " }),
        json!({ "goal": "g", "more": 1 }),
        json!("g"),
        json!(null),
    ] {
        let why = capture_goal(&bad).unwrap_err().to_string();
        assert!(why.contains("supervisor's input"), "{bad}: {why}");
    }
}

/// FSS-22: each block is usable alone, and its schema describes what it takes.
#[test]
fn blocks_are_usable_alone() {
    let mut plan = TaskPlan::new(capture_goal(&json!({ "goal": "report" })).unwrap());
    assert!(update_plan_state(&mut plan, &json!({ "tasks": [{ "id": "a", "goal": "x", "deps": ["b"] }] })).is_err());
    assert!(plan.tasks.is_empty(), "a plan that is refused changes nothing");
    update_plan_state(&mut plan, &json!({ "tasks": [{ "id": "a", "goal": "x" }, { "id": "b", "goal": "y" }] }))
        .unwrap();
    for task in plan.tasks.values_mut() {
        for status in [TaskStatus::Ready, TaskStatus::Running, TaskStatus::AwaitingReview] {
            task.change(status, Actor::Scheduler).unwrap();
        }
        task.result = Some(json!(task.id));
    }
    let review = json!({ "assessments": [{ "taskId": "a", "verdict": "accepted", "feedback": "", "score": 1 },
        { "taskId": "b", "verdict": "needs-revision", "feedback": "more", "score": 0.25 }], "needsReplanning": true, "overallAssessment": "" });
    let (accepted, again) = apply_review(&mut plan, &review).unwrap();
    assert_eq!((accepted, again), (vec![(TaskId::of("a"), json!("a"))], true));
    assert_eq!(plan.get(&TaskId::of("b")).unwrap().feedback[0].score_bp, Some(2_500));
    let schemas = [
        (supervisor_input_schema(), json!({ "goal": "g" }), json!({})),
        (
            planner_output_schema(),
            json!({ "tasks": [{ "id": "a", "goal": "g", "priority": "high" }] }),
            json!({ "tasks": [{ "id": "a" }] }),
        ),
        (
            review_output_schema(),
            review,
            json!({ "assessments": [{ "taskId": "a", "verdict": "fine", "feedback": "", "score": 2 }] }),
        ),
        (supervisor_state_schema(), Graph::new(GraphRules::default(), plan).digest(), json!({ "phase": "lost" })),
    ];
    for (schema, good, bad) in schemas {
        assert!(schema["properties"].as_object().is_some_and(|map| !map.is_empty()));
        let judge = jsonschema::validator_for(&schema).unwrap();
        assert!(
            judge.is_valid(&good),
            "{schema} fits {good}: {:?}",
            judge.validate(&good).err().map(|why| why.to_string())
        );
        assert!(!judge.is_valid(&bad), "{schema} does not fit {bad}");
    }
}

/// FSS-34: the board's table as text; the same status is no move; an illegal one is refused with its text.
#[test]
fn the_board_moves_as_its_table_says() {
    let table = "
pending          in_progress blocked cancelled
in_progress      pending awaiting_review completed errored cancelled
blocked          pending cancelled
awaiting_review  pending completed errored cancelled
completed
errored
cancelled
";
    let mut text = String::from("\n");
    for from in BoardStatus::ALL {
        let to: Vec<String> =
            BoardStatus::ALL.into_iter().filter(|to| from.may_become(*to)).map(|to| to.to_string()).collect();
        text += format!("{:<16} {}", from.to_string(), to.join(" ")).trim_end();
        text.push('\n');
        assert_eq!(from.change(&TaskId::of("t"), from), Ok(from));
    }
    assert_eq!(text, table);
    let why = BoardStatus::Completed.change(&TaskId::of("t1"), BoardStatus::Pending).unwrap_err();
    assert_eq!(why.to_string(), "[tasks] illegal status transition for task \"t1\": completed -> pending");
    // Ours never moves between two of the board's words in a way that the board forbids, people and cascades aside.
    for (from, to) in TaskStatus::ALL.into_iter().flat_map(|from| TaskStatus::ALL.map(|to| (from, to))) {
        let (Some(a), Some(b)) = (BoardStatus::of(from), BoardStatus::of(to)) else { continue };
        let by_machine = from.may_become(to, Actor::Worker) || from.may_become(to, Actor::Critic);
        let given_up = matches!(to, TaskStatus::Failed | TaskStatus::Cancelled) || from == TaskStatus::Errored;
        let asked =
            [from, to].iter().any(|status| matches!(status, TaskStatus::AwaitingApproval | TaskStatus::AwaitingInput));
        if by_machine && !given_up && !asked {
            assert!(a == b || a.may_become(b), "{from} -> {to} is {a} -> {b} on the board");
        }
    }
}

/// FSS-24: after plan, results and review there is a snapshot of the plan, under a key that the iteration fixes.
#[test]
fn the_plan_is_told_at_fixed_points() {
    let script = |call: &Call| match (call.purpose, call.round) {
        (Purpose::Plan, _) => says(json!({ "tasks": [{ "id": "t1", "goal": "g" }] })),
        (Purpose::Review, round) => {
            let verdict = if round == 1 { "needs-revision" } else { "accepted" };
            says(
                json!({ "assessments": [{ "taskId": "t1", "verdict": verdict, "feedback": "", "score": 1 }], "needsReplanning": round == 1, "overallAssessment": "" }),
            )
        }
        _ => says(json!("x")),
    };
    let rules = GraphRules { review: ReviewScope::Iteration, ..GraphRules::default() };
    let played = Stage::new(rules, TaskPlan::new("g"), &script).play();
    let keys: Vec<&str> =
        played.noted(NoteKind::PlanSnapshot).iter().map(|data| data["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["1/plan", "1/results", "1/review", "2/plan", "2/results", "2/review"]);
    let last = *played.noted(NoteKind::PlanSnapshot).last().unwrap();
    assert_eq!(last["tasks"], json!([{ "id": "t1", "status": "completed" }]));
}

/// FSP-08: the output without a synthesizer.
#[test]
fn the_raw_output_counts_steps() {
    let script = |call: &Call| match (call.purpose, call.task.as_ref().map(TaskId::as_str)) {
        (Purpose::Plan, _) => says(json!({ "tasks": [{ "id": "a", "goal": "x" }, { "id": "b", "goal": "y" }] })),
        (_, Some("b")) => fails("down"),
        _ => says(json!("done")),
    };
    let rules = GraphRules { selection: Selection::One, synthesis: ResultSource::Raw, ..GraphRules::default() };
    let played = Stage::new(rules, TaskPlan::new("g"), &script).play();
    let raw = json!({ "goal": "g", "status": "partial", "tasks": [
        { "id": "a", "goal": "x", "status": "completed", "result": "done", "error": null },
        { "id": "b", "goal": "y", "status": "failed", "result": null, "error": "down" }], "completedSteps": 1, "totalSteps": 2 });
    assert_eq!(played.outcome().final_result, Some(raw));
    let all_fail = |call: &Call| match call.purpose {
        Purpose::Plan => says(json!({ "tasks": [{ "id": "a", "goal": "x" }] })),
        Purpose::ExecuteWorker => fails("no power"),
        _ => says(json!("sorry: no power")),
    };
    let played = Stage::new(GraphRules::default(), TaskPlan::new("g"), &all_fail).play();
    assert_eq!(played.call("synthesize/1").context["first_error"], "Task a is failed: no power");
}

fn planned(tasks: Value) -> Vec<PlannedTask> {
    serde_json::from_value(tasks).unwrap()
}

/// CUG-02, CUG-04, CUG-19: sub-tasks name their agents; what policies said before is in the plan: forbidden agents
/// refuse it, an order is edges, an approval is a gate.
#[test]
fn policies_are_reflected_in_the_plan() {
    let policies = PlanPolicies {
        sequence_order: vec!["crm".into(), "idle".into(), "mail".into()],
        approval_agents: vec!["mail".into()],
        ..PlanPolicies::default()
    };
    let mut tasks = planned(
        json!([{ "id": "1", "goal": "g", "agent": "mail" }, { "id": "2", "goal": "g", "agent": "crm" },
        { "id": "3", "goal": "g", "agent": "crm" }, { "id": "4", "goal": "g", "agent": "mail", "deps": ["2"] }, { "id": "5", "goal": "g", "agent": "other" }]),
    );
    GraphRules { policies, ..GraphRules::default() }.apply_policies(&mut tasks);
    let deps = |n: usize| {
        tasks[n].edges(Default::default()).iter().map(|edge| edge.on.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!([deps(0), deps(1), deps(3), deps(4)], ["2 3", "", "2 3", ""]);
    assert_eq!(tasks.iter().map(|task| task.requires_approval).collect::<Vec<_>>(), [true, false, false, true, false]);
    let script = |call: &Call| match call.purpose {
        Purpose::Plan => says(json!({ "tasks": [{ "id": "1", "goal": "g", "agent": "mail" }] })),
        _ => says(json!("x")),
    };
    let policies = PlanPolicies {
        allowed_agents: vec!["crm".into()],
        dispatched_agents: vec!["crm".into()],
        ..PlanPolicies::default()
    };
    let rules = GraphRules { workers: workers(["crm", "mail"]), policies, ..GraphRules::default() };
    let played = Stage::new(rules, TaskPlan::new("intent"), &script).play();
    let error = played.outcome().error.clone().unwrap();
    assert_eq!(error, "decomposition failed: tasks[0].agent: the agent 'mail' is not allowed; allowed: crm");
    let asked = &played.call("plan/1").context;
    assert_eq!((&asked["goal"], &asked["agents"]), (&json!("intent"), &json!(["crm"])));
    assert_eq!(asked["dispatched_agents"], json!(["crm"]));
    assert_eq!(played.keys(), ["plan/1"]);
}

/// CUG-05: while a structured plan is active nobody delegates by words: what is no decision of the controller is refused,
/// and nothing runs.
#[test]
fn a_controller_cannot_write_delegation_code() {
    let tasks = json!([{ "id": "1", "goal": "g", "agent": "a" }, { "id": "2", "goal": "g", "agent": "b" }]);
    let script = |_: &Call| {
        says(json!({ "subtasks_progress": ["not-started", "not-started"], "code": "await delegate_to_a('x')" }))
    };
    let rules = GraphRules {
        selection: Selection::Controller,
        authority: [Authority::Select, Authority::Finish].into(),
        max_steps: Some(50),
        ..GraphRules::default()
    };
    let played = Stage::new(rules, plan("i", tasks), &script).play();
    assert!(played.outcome().error.as_ref().unwrap().contains("code"), "{:?}", played.outcome().error);
    // It is asked again, with what was wrong, as often as a reviewer is (CUG-07).
    assert_eq!(played.keys(), ["decide/1", "decide/2", "decide/3"]);
    assert!(played.call("decide/2").context["refused"][0].as_str().unwrap().contains("code"));
}

/// CUG-09, CUG-10, CUG-11, CUG-12, CUG-13: several agents with a word of sequence, one agent, force, and what is left
/// over; words are whole, cues are the spec's.
#[test]
fn the_kind_of_planning_follows_from_the_request() {
    let spec = Planning::default();
    let mode = |agents: usize, text: &str| choose_planning(&spec, agents, text).mode;
    for cue in [
        "First look, ...",
        "do a THEN b",
        "b after a",
        "before b",
        "finally c",
        "once a is done",
        "a, followed by b",
        "step 2 is b",
    ] {
        assert_eq!(mode(2, cue), PlanningMode::Agents, "{cue}");
        assert_eq!(mode(1, cue), PlanningMode::Todos, "one agent, several steps: todos unless the spec says otherwise");
    }
    for no in ["look at the firsthand report", "strengthen it", "afterwards", "step by step", "steps 2"] {
        assert_eq!(mode(3, no), PlanningMode::Todos, "{no}");
    }
    assert_eq!(mode(1, "look"), PlanningMode::Todos);
    let forced = Planning { force: true, ..Planning::default() };
    assert_eq!(choose_planning(&forced, 1, "look").mode, PlanningMode::Agents);
    let other = Planning { otherwise: PlanningMode::Agents, ..Planning::default() };
    assert_eq!(choose_planning(&other, 3, "look").mode, PlanningMode::Agents);
    let mut own = Planning::default();
    own.triggers.cues = vec!["danach".into()];
    assert_eq!(choose_planning(&own, 2, "erst a, Danach b").mode, PlanningMode::Agents);
    assert_eq!(choose_planning(&own, 2, "first a then b").mode, PlanningMode::Todos);
    own.triggers.min_agents = 4;
    assert_eq!(choose_planning(&own, 3, "look").reason, "3 agents, one step");
}

/// PDT-50: everything that checkpoint files hold is noted: tasks added, patched, moved, results, overflows, decisions,
/// verdicts, the final mark; long results are whole in the state.
#[test]
fn the_log_holds_what_checkpoints_hold() {
    let long = "r".repeat(5_000);
    let script = |call: &Call| match (call.purpose, call.round) {
        (Purpose::Decide, 1) => says(json!({ "reasoning": "", "tool_calls": [
            { "tool": "add_task", "args": { "sub_task_objective": "a", "capability": "c" } },
            { "tool": "patch_task", "args": { "task_id": 1, "parameters": { "x": 1 } } },
            { "tool": "mark_final_task", "args": { "task_id": 1 } }] })),
        (Purpose::Decide, 2) => {
            says(json!({ "reasoning": "", "tasks_to_execute": [1], "feedback_to_subagents": { "1": "short" } }))
        }
        (Purpose::Decide, _) => says(json!({ "reasoning": "", "all_tasks_completed": true })),
        (Purpose::Review, _) => says(json!({ "passed": true, "reasoning": "ok" })),
        (_, _) if call.attempt == 1 => says(json!({ "overflow": "scratch" })),
        _ => says(json!(long)),
    };
    let rules = GraphRules {
        planning: PlanSource::Llm,
        selection: Selection::Supervisor,
        errors_are_attempts: true,
        authority: [
            Authority::Select,
            Authority::Add,
            Authority::Patch,
            Authority::MarkFinal,
            Authority::Feedback,
            Authority::Finish,
        ]
        .into(),
        review: ReviewScope::Task,
        max_steps: Some(20),
        on_exhausted: OnTriesExhausted::Errored,
        synthesis: ResultSource::FinalTask,
        ..GraphRules::default()
    };
    let played = Stage::new(rules, TaskPlan::new("o"), &script).play();
    for kind in [
        NoteKind::TaskAdded,
        NoteKind::TaskPatched,
        NoteKind::TaskStatusChanged,
        NoteKind::AttemptCompleted,
        NoteKind::AttemptStarted,
        NoteKind::FeedbackAttached,
        NoteKind::DecisionRecorded,
        NoteKind::ReviewRecorded,
        NoteKind::FinalMarked,
    ] {
        assert!(!played.noted(kind).is_empty(), "{kind:?} is noted");
    }
    assert_eq!(played.outcome().final_result, Some(json!(long)));
    assert_eq!(played.task("1").metadata.scratch_notes.as_deref(), Some("scratch"));
}

/// FSS-18: an agent's own policy says how often it is tried.
#[test]
fn an_agent_has_its_own_tries() {
    let tasks = json!([{ "id": "1", "goal": "g", "agent": "stubborn" }, { "id": "2", "goal": "g", "agent": "other" }]);
    let script = |call: &Call| match call.purpose {
        Purpose::ExecuteWorker => fails("down"),
        _ => says(json!("x")),
    };
    let agent_tries = [("stubborn".to_owned(), 4)].into();
    let rules = GraphRules { agent_tries, tries: 2, on_exhausted: OnTriesExhausted::Skip, ..GraphRules::default() };
    let played = Stage::new(rules, plan("o", tasks), &script).play();
    assert_eq!((played.task("1").tries, played.task("2").tries), (4, 2));
}

/// A budget that is spent starts nothing more; what runs is let end, and the result is made of what there is.
#[test]
fn a_spent_budget_starts_nothing_more() {
    let tasks: Vec<Value> = (1..=6).map(|n| json!({ "id": n, "goal": "g" })).collect();
    let script = |call: &Call| match call.purpose {
        Purpose::ExecuteWorker => says(json!({ "result": "x", "tokens": 10, "cost": 0.5 })),
        _ => says(json!("what there is")),
    };
    let one = GraphRules { max_concurrency: Some(1), ..GraphRules::default() };
    let none = Allowance::default();
    let budgets = [
        (Allowance { tokens: Some(20), ..none }, 2),
        (Allowance { cost_micros: Some(1_500_000), ..none }, 3),
        (Allowance { calls: Some(4), ..none }, 4),
    ];
    for (budget, done) in budgets {
        let played = |then| {
            let stage = Stage::new(one.clone(), plan("o", json!(tasks)), &script).order_counts();
            stage.budget(budget, then).play()
        };
        let failed = played(OnExhausted::Fail);
        assert_eq!(failed.outcome().code.as_deref(), Some("budget_exhausted"));
        let played = played(OnExhausted::Synthesize);
        let count = |status: TaskStatus| played.graph.plan.tasks.values().filter(|task| task.status == status).count();
        assert_eq!((count(TaskStatus::Completed), count(TaskStatus::Skipped)), (done, 6 - done));
        assert_eq!(played.outcome().phase, Phase::Partial);
        assert!(!played.outcome().success && played.graph.is_cut());
    }
}

/// CUG-33: a plan that is made upfront is a list of delegations, one after the other unless it says otherwise.
#[test]
fn delegations_are_a_plan() {
    let played = |strategy: Option<&str>| {
        let mut answer = json!({ "delegations": [
            { "agent_name": "crm", "task": "find", "variables": ["customer"] }, { "agent_name": "mail", "task": "write" }], "reasoning": "r" });
        if let Some(strategy) = strategy {
            answer["strategy"] = strategy.into();
        }
        let script = |call: &Call| match call.purpose {
            Purpose::Plan => says(answer.clone()),
            _ => says(json!("x")),
        };
        Stage::new(GraphRules::default(), TaskPlan::new("i"), &script).play()
    };
    let sequential = played(None);
    assert_eq!((sequential.at_once, sequential.task("2").dependencies()), (1, vec![TaskId::of("1")]));
    assert_eq!(sequential.call("execute/1/1").context["parameters"]["variables"], json!(["customer"]));
    assert_eq!(sequential.call("execute/2/1").agent.as_deref(), Some("mail"));
    assert_eq!(played(Some("parallel")).at_once, 2);
    let wrong = played(Some("delegation")).outcome().error.clone().unwrap();
    assert!(wrong.contains("strategy"), "{wrong}");
}

/// FSP-09: a loop that goes step by step has a cap of turns, retries among them; what is left is skipped.
#[test]
fn a_loop_has_a_cap_of_turns() {
    let tasks: Vec<Value> = (1..=5).map(|n| json!({ "id": n, "goal": "g" })).collect();
    let script = |call: &Call| match (call.purpose, call.key.to_string().as_str()) {
        (_, "execute/1/1") => fails("once"),
        _ => says(json!("x")),
    };
    let played = |max_steps: u32| {
        let rules =
            GraphRules { selection: Selection::One, tries: 2, max_steps: Some(max_steps), ..GraphRules::default() };
        Stage::new(rules, plan("o", json!(tasks)), &script).play()
    };
    assert_eq!(played(3).statuses(), "1=completed 2=completed 3=skipped 4=skipped 5=skipped");
    assert_eq!(played(3).graph.errors, ["the limit of 3 turns is reached"]);
    assert_eq!(played(6).outcome().phase, Phase::Completed);
}

/// CUG-04: an order makes edges of the ids that a plan gives its tasks; where no agents are listed, those that are allowed
/// are told. FSS-04: a plan with a task that has none is no plan, and nothing is dispatched.
#[test]
fn policies_reach_tasks_by_the_ids_that_a_plan_must_give_them() {
    let policies = PlanPolicies {
        allowed_agents: vec!["crm".into(), "mail".into()],
        sequence_order: vec!["crm".into(), "mail".into()],
        ..PlanPolicies::default()
    };
    let played = |second: Value| {
        let tasks = json!([{ "id": 1, "goal": "write", "agent": "mail" }, second]);
        let script = move |call: &Call| match call.purpose {
            Purpose::Plan => says(json!({ "tasks": tasks })),
            _ => says(json!("x")),
        };
        let rules = GraphRules { policies: policies.clone(), ..GraphRules::default() };
        Stage::new(rules, TaskPlan::new("i"), &script).play()
    };
    let whole = played(json!({ "id": 2, "goal": "find", "agent": "crm" }));
    assert_eq!(whole.task("1").dependencies(), [TaskId::of("2")]);
    assert_eq!(whole.call("plan/1").context["agents"], json!(["crm", "mail"]));
    let part = played(json!({ "goal": "find", "agent": "crm" }));
    assert_eq!(part.outcome().phase, Phase::Failed);
    let why = "decomposition failed: the plan does not conform at tasks[1]: missing field `id`";
    assert_eq!((part.outcome().error.as_deref(), part.graph.plan().tasks.len()), (Some(why), 0));
}
