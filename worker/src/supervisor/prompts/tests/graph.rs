//! The prompts as the graph's calls carry them.

use bosun_engine::Timestamp;
use serde_json::{Value, json};

use crate::supervisor::core::key::GraphKey;
use crate::supervisor::graph::{Graph, GraphRules, OnTriesExhausted, Open, PlanSource, ResultSource};
use crate::supervisor::model::TaskPlan;
use crate::supervisor::outbox::{Answer, Ask, Call, Outbox, Purpose};
use crate::supervisor::prompts::prompt_hash;
use crate::supervisor::spec::{Authority, ReviewScope, Selection};

/// Plays a run: a second passes with every answer. The calls in order, and the graph at the end.
fn play(rules: GraphRules, goal: &str, begin: i64, script: impl Fn(&Call) -> Value) -> (Vec<Call>, Graph) {
    let mut graph = Graph::new(rules, TaskPlan::new(goal));
    let mut now = begin;
    let mut out = Outbox::new("run", Timestamp(now));
    graph.start(&mut Open, &mut out);
    let (mut calls, mut answered): (Vec<Call>, usize) = (Vec::new(), 0);
    loop {
        for ask in out.take().0 {
            match ask {
                Ask::Call(call) => calls.push(call),
                other => panic!("not asked for here: {other:?}"),
            }
        }
        let Some(call) = calls.get(answered) else { return (calls, graph) };
        assert!(answered < 200, "the run does not end");
        let (key, answer): (GraphKey, Answer) = (call.key.clone().try_into().unwrap(), Ok(script(call)));
        (answered, now) = (answered + 1, now + 1_000_000);
        out = Outbox::new("run", Timestamp(now)).with_awaited(out.take_awaited());
        graph.answered(&key, answer, &mut Open, &mut out);
    }
}

fn pydantask() -> GraphRules {
    let all = [
        Authority::Select,
        Authority::Add,
        Authority::Patch,
        Authority::Cancel,
        Authority::UpdateStatus,
        Authority::MarkFinal,
        Authority::Feedback,
        Authority::Finish,
    ];
    GraphRules {
        planning: PlanSource::Llm,
        selection: Selection::Supervisor,
        authority: all.into(),
        max_concurrency: Some(4),
        review: ReviewScope::Task,
        criteria: vec!["Names its sources".to_owned(), "Is short".to_owned()],
        max_steps: Some(20),
        on_exhausted: OnTriesExhausted::Errored,
        synthesis: ResultSource::FinalTask,
        ..GraphRules::default()
    }
}

/// Two tasks are planned, then both run, then the run is done.
fn two_tasks(feedback: Value) -> impl Fn(&Call) -> Value {
    move |call| match (call.purpose, call.round) {
        (Purpose::Decide, 1) => json!({ "tool_calls": [
            { "tool": "get_current_datetime", "args": {} },
            { "tool": "think_tool", "args": { "thought": "two will do" } },
            { "tool": "add_task", "args": { "sub_task_objective": "collect", "capability": "c" } },
            { "tool": "add_task", "args": { "sub_task_objective": "weigh", "capability": "c" } },
            { "tool": "mark_final_task", "args": { "task_id": 2 } },
        ] }),
        (Purpose::Decide, 2) => json!({ "tasks_to_execute": [1, 2], "feedback_to_subagents": feedback }),
        (Purpose::Decide, _) => json!({ "all_tasks_completed": true }),
        (Purpose::Review, _) => json!({ "passed": true, "reasoning": "good" }),
        _ => json!(format!("result of {}", call.key)),
    }
}

fn prompt<'c>(calls: &'c [Call], key: &str) -> &'c str {
    &calls.iter().find(|call| call.key == key).unwrap_or_else(|| panic!("no call {key}")).prompt
}

/// PDT-05: the first cycle of an empty plan is told to plan 2-6 tasks, mark the final one and execute nothing; every later
/// one to orchestrate.
#[test]
fn the_first_cycle_plans_and_later_ones_orchestrate() {
    let (calls, _) = play(pydantask(), "compare", 0, two_tasks(json!({})));
    let decisions: Vec<&Call> = calls.iter().filter(|call| call.purpose == Purpose::Decide).collect();
    assert_eq!(decisions.len(), 3);
    for (at, call) in decisions.iter().enumerate() {
        let bootstrap = call.prompt.contains("Add 2 to 6 tasks") && call.prompt.contains("execute nothing");
        let orchestration = call.prompt.contains("decide what happens in this cycle");
        assert_eq!((bootstrap, orchestration), (at == 0, at > 0), "cycle {}", at + 1);
    }
    assert!(
        prompt(&calls, "decide/2").contains("- task 2 [ready] Final: True: weigh"),
        "{}",
        prompt(&calls, "decide/2")
    );
}

/// PDT-46: feedback is stored in the parameters of its task and stands in its worker's prompt; the other task's prompt is
/// what it would have been.
#[test]
fn feedback_changes_the_prompt_of_its_task_only() {
    let (told, graph) = play(pydantask(), "compare", 0, two_tasks(json!({ "1": "look at page 7" })));
    let (untold, _) = play(pydantask(), "compare", 0, two_tasks(json!({})));
    assert!(prompt(&told, "execute/1/1").contains("## feedback of the supervisor\nlook at page 7\n"));
    assert!(!prompt(&untold, "execute/1/1").contains("feedback of the supervisor"));
    assert_eq!(prompt(&told, "execute/2/1"), prompt(&untold, "execute/2/1"));
    let params = |id: u64| graph.plan().tasks[&id.into()].params.clone();
    assert_eq!(params(1)["supervisor_feedback"], "look at page 7");
    assert!(params(2).is_empty());
}

/// PDT-57: the time a supervisor is told is the recorded time of its cycle, so a replay builds the same bytes; a thought
/// changes nothing.
#[test]
fn a_replay_builds_the_same_prompts() {
    let begin = 1_767_225_600_000_000;
    let (live, _) = play(pydantask(), "compare", begin, two_tasks(json!({})));
    let (replayed, _) = play(pydantask(), "compare", begin, two_tasks(json!({})));
    assert_eq!(live, replayed);
    assert!(live.iter().all(|call| !call.prompt.is_empty()));
    assert!(prompt(&live, "decide/1").contains("2026-01-01T00:00:00Z"), "{}", prompt(&live, "decide/1"));
    assert!(prompt(&live, "decide/2").contains("- get_current_datetime: 2026-01-01T00:00:01Z"));
    let (later, _) = play(pydantask(), "compare", begin + 1_000_000, two_tasks(json!({})));
    assert_ne!(prompt_hash(prompt(&live, "decide/1")), prompt_hash(prompt(&later, "decide/1")));
    // Without the thought everything but its answer on the next board is the same.
    let thoughtless = |call: &Call| {
        let mut answer = two_tasks(json!({}))(call);
        if let Some(calls) = answer.get_mut("tool_calls").and_then(Value::as_array_mut) {
            calls.retain(|call| call["tool"] != "think_tool");
        }
        answer
    };
    let (without, _) = play(pydantask(), "compare", begin, thoughtless);
    assert_eq!(live.len(), without.len());
    let differ: Vec<String> =
        live.iter().zip(&without).filter(|(a, b)| a.prompt != b.prompt).map(|(a, _)| a.key.to_string()).collect();
    assert_eq!(differ, ["decide/2"]);
    assert_eq!(
        prompt(&without, "decide/2"),
        prompt(&live, "decide/2").replace("- think_tool: Thought recorded.\n", "")
    );
}

/// FSS-19: criteria reach the reviewer's prompt word for word and numbered, of one task and of an iteration.
#[test]
fn criteria_reach_the_prompt_of_every_reviewer() {
    let list = "## criteria\n1. Names its sources\n2. Is short\n";
    let (calls, _) = play(pydantask(), "compare", 0, two_tasks(json!({})));
    assert!(prompt(&calls, "review/1/1").contains(list));
    let (calls, _) = iterations();
    assert!(prompt(&calls, "review/1").contains(list) && prompt(&calls, "review/2").contains(list));
}

fn iterations() -> (Vec<Call>, Graph) {
    let rules = GraphRules { review: ReviewScope::Iteration, criteria: pydantask().criteria, ..GraphRules::default() };
    play(rules, "write a report", 0, |call| match (call.purpose, call.round) {
        (Purpose::Plan, 1) => {
            json!({ "tasks": [{ "id": "t1", "goal": "collect", "role": "researcher" }, { "id": "t2", "goal": "write" }] })
        }
        (Purpose::Plan, _) => json!({ "tasks": [{ "id": "t2", "goal": "write more" }] }),
        (Purpose::Review, 1) => json!({ "needsReplanning": true, "overallAssessment": "half done", "assessments": [
            { "taskId": "t1", "verdict": "accepted", "feedback": "fine", "score": 0.9 },
            { "taskId": "t2", "verdict": "needs-revision", "feedback": "too short", "score": 0.2 },
        ] }),
        (Purpose::Review, _) => json!({ "needsReplanning": false, "overallAssessment": "done", "assessments": [
            { "taskId": "t2", "verdict": "accepted", "feedback": "fine", "score": 0.9 },
        ] }),
        (Purpose::Synthesize, _) => json!("the report"),
        _ => json!(format!("text of {}", call.key)),
    })
}

/// FSS-20: the planner is told first to take the goal apart, then to plan only what needs revision, with its feedback.
#[test]
fn the_planner_is_told_what_to_plan() {
    let (calls, graph) = iterations();
    let (first, again) = (prompt(&calls, "plan/1"), prompt(&calls, "plan/2"));
    assert!(first.contains("## goal\nwrite a report\n") && first.contains("Take the goal apart"));
    assert!(again.contains("## needs revision\n- t2 [needs_revision]: write\n  feedback: too short\n"), "{again}");
    assert!(again.contains("## kept as it is\n- t1 [completed]: collect\n"), "{again}");
    assert_eq!(graph.digest()["outcome"]["final_result"], "the report");
    assert!(
        prompt(&calls, "synthesize/1").contains("- task t1: text of execute/t1/1\n- task t2: text of execute/t2/2")
    );
}

/// SHN-41: the role of a task opens its worker's prompt and is in its context.
#[test]
fn a_role_opens_the_prompt_of_its_worker() {
    let (calls, _) = iterations();
    let call = calls.iter().find(|call| call.key == "execute/t1/1").unwrap();
    assert_eq!(call.context["role"], "researcher");
    assert!(
        call.prompt.starts_with("You are a researcher, your specialty is information gathering."),
        "{}",
        call.prompt
    );
}
