//! What people do to a plan, what an attempt costs, and what a worker may ask: bounded, refused as a whole, never lost.

use serde_json::json;

use super::super::*;
use super::stage::*;
use crate::supervisor::core::account::Allowance;
use crate::supervisor::core::key::key;
use crate::supervisor::model::PlanOrigin;
use crate::supervisor::spec::OnExhausted;

fn one(extra: Value) -> TaskPlan {
    let mut task = json!({ "id": "a", "goal": "g" });
    if let (Value::Object(task), Value::Object(extra)) = (&mut task, extra) {
        task.extend(extra);
    }
    plan("o", json!([task]))
}

fn given() -> GraphRules {
    GraphRules { planning: PlanSource::Fixed, ..GraphRules::default() }
}

/// FSP-06: tasks of an evaluator without ids get numbers that neither the plan nor the new tasks have.
#[test]
fn new_tasks_without_ids_get_numbers_of_their_own() {
    let script = |call: &Call| match (call.purpose, call.key.to_string().as_str()) {
        (Purpose::Decide, "evaluate/1") => says(json!({ "decision": "replan", "tokens": 7, "tasks": [
            { "goal": "first" }, { "id": 3, "goal": "named" }, { "goal": "second", "deps": [3] }] })),
        (Purpose::Decide, _) => says(json!({ "decision": "continue" })),
        _ => says(json!("x")),
    };
    let rules = GraphRules { evaluator: true, selection: Selection::One, ..given() };
    let played = Stage::new(rules, plan("o", json!([{ "id": 1, "goal": "g" }])), &script).play();
    assert_eq!(played.statuses(), "1=completed 2=completed 3=completed 4=completed");
    assert_eq!((played.task("2").goal.as_str(), played.task("4").goal.as_str()), ("first", "second"));
    assert_eq!(played.spent.tokens, 7, "what an evaluation cost counts");
}

/// What the attempts of the task say that they cost.
fn paid(played: &Played) -> u64 {
    played.task("a").attempts.iter().map(|attempt| attempt.tokens).sum()
}

/// PDT-49: a worker that only asks is stopped: it may not keep a task open for ever.
#[test]
fn the_questions_of_a_task_are_counted() {
    let script = |call: &Call| match call.key.to_string().starts_with("consult/") {
        true => says(json!({ "result": "ask again", "tokens": 3 })),
        false => says(json!({ "consult": { "capability": "law", "question": "q".repeat(10_000) }, "tokens": 2 })),
    };
    let played = Stage::new(given(), one(json!({})), &script).play();
    let task = played.task("a");
    assert_eq!(task.metadata.consultations.len(), 8);
    let error = task.error.as_ref().unwrap().message.clone();
    assert_eq!(error, "the task has asked 8 questions already; no more are answered");
    assert_eq!(task.metadata.consultations[0].question.len(), 6_000);
    let workers = played.keys().iter().filter(|key| key.starts_with("execute/")).count() as u64;
    assert_eq!(paid(&played), 8 * 3 + workers * 2, "both sides of a consultation count");
}

/// PDT-26: a failure counts what it cost, in tokens and money, like any other end.
#[test]
fn a_failed_attempt_is_paid_for() {
    let script = |call: &Call| match call.attempt {
        1 => says(json!({ "success": false, "reason": "no", "tokens": 40, "cost_usd": 0.5 })),
        _ => says(json!({ "result": "yes", "tokens": 2, "cost": 0.25 })),
    };
    let played = Stage::new(GraphRules { tries: 2, ..given() }, one(json!({})), &script).play();
    assert_eq!(played.statuses(), "a=completed");
    let attempts: Vec<(u64, u64)> =
        played.task("a").attempts.iter().map(|attempt| (attempt.tokens, attempt.cost_micros)).collect();
    assert_eq!(attempts, [(40, 500_000), (2, 250_000)]);
}

/// A graph that waits for a person before the action of its only task is carried out.
fn waiting(answer: &Value) -> (Graph, Outbox) {
    struct Person;
    impl Gates for Person {
        fn may_take(&mut self, _: &Task, reply: &Reply, _: bool, _: &mut Outbox) -> Take {
            if reply.action.is_some() { Take::NeedsApproval } else { Take::Go }
        }
    }
    let mut out = Outbox::new("run", bosun_engine::Timestamp(0));
    let mut graph = Graph::new(given(), one(json!({})));
    graph.start(&mut Person, &mut out);
    graph.answered(&key("execute/a/1"), Ok(json!({ "result": "text", "action": "publish" })), &mut Person, &mut out);
    graph.approved(&TaskId::of("a"), "publish", None, &mut Person, &mut out);
    graph.answered(&key("act/a/1"), Ok(answer.clone()), &mut Person, &mut out);
    (graph, out)
}

/// SHH-18: an approved action that was not carried out is no success, and its cost is told with its attempt.
#[test]
fn an_action_that_failed_fails_its_task() {
    let (graph, _) = waiting(&json!({ "success": false, "reason": "the site is down", "tokens": 5 }));
    let task = graph.plan.get(&TaskId::of("a")).unwrap();
    assert_eq!(task.error.as_ref().unwrap().message, "the site is down");
    assert_eq!((task.status, task.attempts[0].tokens), (TaskStatus::Failed, 5));
    let (graph, _) = waiting(&json!({ "result": "sent", "tokens": 6 }));
    let task = graph.plan.get(&TaskId::of("a")).unwrap();
    assert_eq!(
        (task.status, &task.metadata.action_result.as_ref().unwrap()["result"]),
        (TaskStatus::Completed, &json!("sent"))
    );
    assert_eq!((task.attempts[0].tokens, &task.result), (6, &Some(json!("text"))));
}

fn revise(graph: &mut Graph, tasks: Value, out: &mut Outbox) -> Result<(), String> {
    let tasks: Vec<PlannedTask> = serde_json::from_value(tasks).unwrap();
    out.take();
    let revised = graph.revise(tasks, &mut Open, out);
    let (asks, notes) = out.take();
    assert!(revised.is_ok() || (asks.is_empty() && notes.is_empty()), "nothing is told of what is refused: {notes:?}");
    revised.map(|_| ()).map_err(|why| why.to_string())
}

/// FSS-12: a person replaces what is left of a plan; what runs goes on, what is over stays, what is named again is
/// changed, and a plan that is refused changes nothing.
#[test]
fn a_person_revises_what_is_left() {
    let tasks = json!([{ "id": "a", "goal": "g" }, { "id": "b", "goal": "g", "deps": ["a"] }, { "id": "c", "goal": "g", "deps": ["b"] }]);
    let rules = GraphRules { workers: workers(["x", "y"]), answers_anybody: true, max_tasks: 3, ..given() };
    let mut graph = Graph::new(rules, plan("o", tasks));
    let mut out = Outbox::new("run", bosun_engine::Timestamp(0));
    graph.start(&mut Open, &mut out);
    let before = graph.clone();
    for (bad, why) in [
        (json!([{ "id": "a", "goal": "else" }]), "task a is being done"),
        (json!([{ "id": "d", "goal": "g", "agent": "nobody" }]), "there is no agent 'nobody'"),
        (json!([{ "id": "d", "goal": "g", "deps": ["z"] }]), "z"),
        (json!([{ "id": "b", "goal": "g", "deps": ["c"] }]), "cycle"),
        (json!([{ "goal": "1" }, { "goal": "2" }, { "goal": "3" }, { "goal": "4" }]), "at most 3 are taken"),
    ] {
        let refused = revise(&mut graph, bad.clone(), &mut out).unwrap_err();
        assert!(refused.contains(why), "{bad}: {refused}");
        assert!(graph == before, "what is refused changes nothing: {bad}");
    }
    let better = json!([{ "id": "b", "goal": "better", "agent": "y", "deps": [] }, { "goal": "new" }]);
    revise(&mut graph, better, &mut out).unwrap();
    let statuses: Vec<String> =
        graph.plan.in_order().into_iter().map(|task| format!("{}={}", task.id, task.status)).collect();
    assert_eq!(statuses, ["a=running", "b=pending", "c=cancelled", "1=pending"]);
    let task = graph.plan.get(&TaskId::of("b")).unwrap();
    assert_eq!((task.goal.as_str(), task.agent.as_deref(), task.edges.len()), ("better", Some("y"), 0));
    assert_eq!(graph.plan.origin, PlanOrigin::Human);
}

/// §5.7: while a plan is made a change would be lost, so it is refused with the reason; so it is once the run is over.
#[test]
fn a_plan_is_changed_only_when_the_change_can_count() {
    let mut out = Outbox::new("run", bosun_engine::Timestamp(0));
    let mut graph = Graph::new(GraphRules::default(), TaskPlan::new("o"));
    graph.start(&mut Open, &mut out);
    assert_eq!(graph.phase, Phase::Planning);
    let add = json!({ "sub_task_objective": "more", "capability": "c" });
    let add = add.as_object().unwrap();
    let why = graph.changed_by_person("add_task", add, &mut Open, &mut out).unwrap_err().to_string();
    assert!(why.starts_with("the run is planning: a plan is changed while"), "{why}");
    assert!(revise(&mut graph, json!([{ "goal": "new" }]), &mut out).is_err() && graph.plan.tasks.is_empty());
    graph.answered(&key("plan/1"), Ok(json!({ "tasks": [{ "id": 1, "goal": "g" }] })), &mut Open, &mut out);
    assert_eq!(graph.changed_by_person("add_task", add, &mut Open, &mut out), Ok(json!(2)));
    graph.cancel("enough".to_owned(), &mut Open, &mut out);
    assert_eq!(
        graph.changed_by_person("add_task", add, &mut Open, &mut out),
        Err(PlanRefusal::RunIsOver(Phase::Cancelled))
    );
}

/// Words of people are for who decides; where nobody decides they are not kept, and of many the last ones are.
#[test]
fn words_of_people_are_bounded() {
    let mut graph = Graph::new(given(), one(json!({})));
    graph.told("hello");
    assert!(graph.board_notes.is_empty());
    let mut graph = Graph::new(GraphRules { selection: Selection::Supervisor, ..given() }, one(json!({})));
    (0..1_000).for_each(|n| graph.told(&n.to_string()));
    assert_eq!((graph.board_notes.len(), graph.board_notes.last().unwrap().as_str()), (200, "A person says: 999"));
}

/// A run whose time is over starts nothing more and ends with what there is; what runs may end.
#[test]
fn the_time_of_a_run_is_a_budget() {
    let script = |call: &Call| match call.purpose {
        Purpose::Synthesize => says(json!("summary")),
        _ => (40, Ok(json!(call.key.clone()))),
    };
    let tasks = json!([{ "id": "a", "goal": "g" }, { "id": "b", "goal": "g", "deps": ["a"] }, { "id": "c", "goal": "g", "deps": ["b"] }]);
    let minute = Allowance { wall_ms: Some(60_000), ..Allowance::default() };
    let played = |then| {
        let stage = Stage::new(given(), plan("o", tasks.clone()), &script).order_counts();
        stage.budget(minute, then).play()
    };
    let summed = played(OnExhausted::Synthesize);
    assert_eq!(summed.statuses(), "a=completed b=completed c=skipped");
    assert!(summed.call("synthesize/1").last && summed.graph.is_cut());
    assert_eq!(summed.outcome().final_result, Some(json!("summary")));
    assert_eq!(
        played(OnExhausted::Stop).outcome().final_result,
        Some(json!({ "a": "execute/a/1", "b": "execute/b/1" }))
    );
    let played = played(OnExhausted::Fail);
    assert_eq!(played.outcome().code.as_deref(), Some("budget_exhausted"));
}

/// FSS-21, SHN-48: how often a synthesis of the wrong shape is asked for, and how long a result of its own must be.
#[test]
fn the_numbers_of_a_synthesis_are_the_specs() {
    let script = |call: &Call| match call.purpose {
        Purpose::Synthesize => says(json!("no object")),
        _ => says(json!("x")),
    };
    let schema = Some(json!({ "type": "object" }));
    let rules = GraphRules { output_schema: schema, synthesis_tries: 2, ..given() };
    let played = Stage::new(rules, one(json!({})), &script).play();
    assert_eq!(played.keys().iter().filter(|key| key.starts_with("synthesize/")).count(), 2);
    assert_eq!(played.outcome().code.as_deref(), Some("synthesis_failed"));
    let own = |chars| {
        let script = |_: &Call| says(json!({ "result": "12345", "tokens": 1 }));
        let rules = GraphRules { bypass_single: true, own_result_chars: chars, ..given() };
        let tasks = json!([{ "id": "a", "goal": "g" }, { "id": "b", "goal": "g", "role": "synthesis", "deps": ["a"] }]);
        Stage::new(rules, plan("o", tasks), &script).play().keys().len()
    };
    assert_eq!((own(5), own(6)), (2, 3), "a result that is long enough needs no synthesis");
}

/// SHD-05: a result of less confidence than 0.8 is looked at again by its worker, which is shown it, twice; then it is
/// taken as it is. One that is sure, or says nothing of it, is taken at once.
#[test]
fn a_worker_that_is_not_sure_looks_again() {
    let played = |confidences: [Value; 4]| {
        let script = move |call: &Call| {
            let at = call.attempt as usize - 1;
            says(json!({ "result": format!("r{}", at + 1), "confidence": confidences[at], "tokens": 10 }))
        };
        let rules = GraphRules { reflection: Some(crate::supervisor::spec::Reflection::default()), ..given() };
        Stage::new(rules, one(json!({})), &script).play()
    };
    let tries = |confidences| {
        let played = played(confidences);
        let looks = played.keys().iter().filter(|key| key.starts_with("execute/")).count();
        assert_eq!(paid(&played), 10 * looks as u64, "each look is paid for");
        (played.task("a").result.clone().unwrap(), looks)
    };
    assert_eq!(tries([json!(0.5), json!(0.79), json!(0.1), json!(1)]), (json!("r3"), 3));
    assert_eq!(tries([json!(0.5), json!(0.8), json!(0), json!(0)]), (json!("r2"), 2));
    assert_eq!(tries([Value::Null, json!(0), json!(0), json!(0)]), (json!("r1"), 1));
    let looked = played([json!(0.5), json!(0.9), json!(0), json!(0)]);
    let context = &looked.call("execute/a/2").context;
    assert_eq!(context["doubted"], json!({ "attempt": 1, "confidence_bp": 5_000, "result": "r1" }));
}
