//! The team's parts together, as a run uses them.

use serde_json::{Value, json};

use super::*;
use crate::supervisor::core::key::key;
use crate::supervisor::graph::Start;
use crate::supervisor::model::{Edge, Requires, Task, TaskId, TaskPlan};
use crate::supervisor::spec::{Preset, SupervisorSpec};
use crate::supervisor::task::TaskStatus;
use crate::supervisor::team::{Heard, Teamwork};

fn task(id: &str, on: &[&str]) -> Task {
    let edge = |on: &&str| Edge { on: TaskId::of(on), requires: Requires::Completed, when: None, on_failure: None };
    Task { edges: on.iter().map(edge).collect(), role: Some("analyst".into()), ..Task::new(TaskId::of(id), "g") }
}

fn teamwork() -> (Teamwork, Outbox) {
    let spec = SupervisorSpec { preset: Some(Preset::ShannonSupervisor), ..Preset::ShannonSupervisor.values() };
    let (mut team, mut out) = (Teamwork::new(&spec, "run-1", 0), outbox(0));
    team.started("supervisor", &mut out);
    (team, out)
}

fn ended(team: &mut Teamwork, task: &Task, result: Value, out: &mut Outbox) {
    let status = if result.is_null() { TaskStatus::Failed } else { TaskStatus::Completed };
    team.ended(&Task { status, result: Some(result).filter(|result| !result.is_null()), ..task.clone() }, out);
}

/// SHN-15, SHN-28, SHN-41, SUP-32: before its first call an agent is in the registry below the run's own, in the
/// directory, has its role as message and in its context, and people are told.
#[test]
fn an_agent_is_welcomed_before_its_first_call() {
    let (mut team, mut out) = teamwork();
    let mut plan = TaskPlan::new("q");
    plan.add(vec![task("a", &[]), task("b", &["a"])]).unwrap();
    team.announced(&plan, &mut out);
    let (a, b) = (&plan.tasks[&TaskId::of("a")], &plan.tasks[&TaskId::of("b")]);
    assert_eq!(team.may_start(a, &mut out), Start::Go);
    let context = team.context(a, None, &mut out);
    assert_eq!(context["role"], "analyst");
    let message = &team.mailbox.view()[0].draft;
    assert_eq!((message.to.as_str(), message.content.as_str()), ("agent-a", "role_assigned"));
    assert!(!context.contains_key("messages"), "the role is told in words of its own");
    let active: Vec<(String, u32)> =
        team.registry.list_active().into_iter().map(|instance| (instance.name, instance.depth)).collect();
    assert_eq!(active, [("supervisor".to_owned(), 0), ("agent-a".to_owned(), 1)]);
    team.context(a, None, &mut out);
    assert_eq!(team.registry.stats().total, 2, "its next attempt is the same agent");
    ended(&mut team, a, json!("done"), &mut out);
    team.context(b, None, &mut out);
    assert_eq!(
        told(&out),
        [
            "TEAM_STATUS -: Coordinating 2 agents...",
            "ROLE_ASSIGNED agent-a: analyst",
            "PROGRESS agent-a: Working on step 1 of 2",
            "ROLE_ASSIGNED agent-b: analyst",
            "DEPENDENCY_SATISFIED agent-b: Previous step completed",
            "PROGRESS agent-b: Working on step 2 of 2",
        ]
    );
    ended(&mut team, b, Value::Null, &mut out);
    team.closed(true, &mut out);
    assert_eq!(
        team.query("registry_stats", &Value::Null, bosun_engine::Timestamp(0)).unwrap(),
        json!({ "total": 3, "active": 0, "completed": 2, "failed": 1 })
    );
    let list = team.query("listTeamAgents", &Value::Null, bosun_engine::Timestamp(0)).unwrap();
    assert_eq!(list[1], json!({ "AgentID": "agent-b", "Role": "analyst", "Status": "failed" }));
}

/// SHN-14: messages reach an agent by its id, its task or its role, are shown to every attempt, and are read once the
/// task is done; an agent that fails leaves them.
#[test]
fn messages_are_in_the_context_until_the_task_is_done() {
    let (mut team, mut out) = teamwork();
    for (to, text) in [("agent-b", "one"), ("b", "two"), ("analyst", "three"), ("c", "four")] {
        let signal = json!({ "From": "a", "To": to, "Content": text });
        assert_eq!(team.signaled("mailbox_v1", &signal, &mut out), Some(Heard::Settled));
    }
    let shown = |team: &mut Teamwork, out: &mut Outbox| -> Vec<String> {
        let context = team.context(&task("b", &[]), None, out);
        let messages = context.get("messages").and_then(Value::as_array).cloned().unwrap_or_default();
        messages.iter().map(|message| message["Content"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(shown(&mut team, &mut out), ["one", "two", "three"]);
    assert_eq!(shown(&mut team, &mut out), ["one", "two", "three"]);
    ended(&mut team, &task("b", &[]), Value::Null, &mut out);
    assert_eq!(shown(&mut team, &mut out), ["one", "two", "three"]);
    team.signaled("mailbox_v1", &json!({ "From": "a", "To": "b", "Content": "five" }), &mut out);
    ended(&mut team, &task("b", &[]), json!("done"), &mut out);
    assert_eq!(shown(&mut team, &mut out), ["five"]);
    assert_eq!(
        team.query("getMailbox", &Value::Null, bosun_engine::Timestamp(0)).unwrap().as_array().unwrap().len(),
        8
    );
}

/// SHN-26, SHN-70: who depends on the recruiting task waits for the recruit; the run waits too, and its result comes
/// after the plan's own.
#[test]
fn dependents_and_the_run_wait_for_recruits() {
    let (mut team, mut out) = teamwork();
    let (c, e) = (task("c", &[]), task("e", &["c"]));
    team.context(&c, None, &mut out);
    let recruit = json!({ "Description": "pricing", "Role": "pricing_analyst", "Task": "c" });
    assert_eq!(team.signaled("recruit_v1", &recruit, &mut out), Some(Heard::Settled));
    ended(&mut team, &c, json!("done"), &mut out);
    assert_eq!(team.may_start(&e, &mut out), Start::Wait("waits for dynamic_pricing_analyst".into()));
    assert_eq!(team.busy(), Some("a recruit is at work".into()));
    team.answered(&key("recruit/1/authorize"), Ok(json!({ "allow": true })), &mut out);
    assert_eq!(team.registry.list_active().last().unwrap().name, "dynamic_pricing_analyst");
    let heard =
        team.answered(&key("recruit/1/child"), Ok(json!({ "status": "completed", "result": "cheap" })), &mut out);
    assert_eq!(heard, Heard::Recruit { agent_id: "dynamic_pricing_analyst".into(), succeeded: true });
    assert_eq!((team.may_start(&e, &mut out), team.busy()), (Start::Go, None));
    assert_eq!(team.more_results(), [("dynamic_pricing_analyst".to_owned(), json!("cheap"))]);
    assert_eq!(team.registry.stats().completed, 2);
}

/// SHN-71: what an agent's result asks for is recruited, for the task it came from.
#[test]
fn a_result_may_recruit() {
    let (mut team, mut out) = teamwork();
    let c = task("c", &[]);
    team.context(&c, None, &mut out);
    team.wanted(&c.id, Some(&json!("x")), &[json!({ "description": "pricing", "role": "p" })], &mut out);
    ended(&mut team, &c, json!("x"), &mut out);
    assert_eq!(asked(&out), ["authorize_team_action recruit/1/authorize"]);
    assert!(matches!(team.may_start(&task("e", &["c"]), &mut out), Start::Wait(_)));
    assert_eq!(team.may_start(&task("f", &["b"]), &mut out), Start::Go);
}

/// SHN-22: a retired agent's tasks are the run's to cancel, and nothing new is started with it.
#[test]
fn a_retired_agent_starts_nothing() {
    let (mut team, mut out) = teamwork();
    let c = task("c", &[]);
    team.context(&c, None, &mut out);
    team.signaled("retire_v1", &json!({ "AgentID": "agent-c" }), &mut out);
    let heard = team.answered(&key("retire/1/authorize"), Ok(json!({ "allow": true })), &mut out);
    assert_eq!(heard, Heard::Retired { agent_id: "agent-c".into(), tasks: vec![TaskId::of("c")] });
    assert_eq!(team.may_start(&c, &mut out), Start::Refused("agent-c has left the team".into()));
}

/// SHN-49: a consumer waits for its topic and goes on without it after six minutes, told so.
#[test]
fn a_consumer_waits_for_its_topic() {
    let (mut team, mut out) = teamwork();
    let mut plan = TaskPlan::new("q");
    let producer = Task { produces: vec!["prices".into()], ..task("p", &[]) };
    let consumer = Task { consumes: vec!["prices".into()], ..task("c", &[]) };
    plan.add(vec![producer.clone(), consumer.clone()]).unwrap();
    team.announced(&plan, &mut out);
    assert_eq!(team.may_start(&consumer, &mut out), Start::Wait("waits for topic prices".into()));
    let mut late = team.clone();
    ended(&mut team, &producer, json!("9.99"), &mut out);
    assert!(team.topics.fired(&consumer.id, 1, &mut outbox(1)).is_some());
    assert_eq!(team.may_start(&consumer, &mut outbox(1)), Start::Go);
    assert!(!team.context(&consumer, None, &mut outbox(1)).contains_key("missing_topics"));
    assert!(late.topics.fired(&consumer.id, 1, &mut outbox(360)).is_some());
    assert_eq!(late.may_start(&consumer, &mut outbox(360)), Start::Go);
    assert_eq!(late.context(&consumer, None, &mut outbox(360))["missing_topics"], json!(["prices"]));
}

/// SHD-07: without a team its three signals are refused with a record and change nothing; others are not the team's.
#[test]
fn a_run_without_a_team_refuses_its_signals() {
    let spec = SupervisorSpec { preset: Some(Preset::ShannonDag), ..Preset::ShannonDag.values() };
    let mut team = Teamwork::new(&spec, "run-1", 0);
    let before = team.clone();
    for signal in ["mailbox_v1", "recruit_v1", "retire_v1"] {
        let mut out = outbox(0);
        let heard = team.signaled(signal, &json!({}), &mut out);
        assert_eq!(heard, Some(Heard::Refused("this kind of run has no team and no mailbox".into())));
        assert_eq!(noted(&out), [NoteKind::ActionRefused]);
    }
    assert_eq!(team.signaled("pause_v1", &json!({}), &mut outbox(0)), None);
    assert_eq!(team, before);
    let context = team.context(&task("a", &[]), None, &mut outbox(0));
    assert!(context.is_empty(), "nobody is told of a team that is not there");
}

/// SHN-12, SHN-24: queries give copies and change nothing; a query that is not the team's is nobody's here.
#[test]
fn queries_change_nothing() {
    let (mut team, mut out) = teamwork();
    team.context(&task("a", &[]), None, &mut out);
    let before = team.clone();
    let root = team.registry.list_all()[0].instance_id.clone();
    assert_eq!(
        team.query("findTeamAgentsByRole", &json!({ "role": "analyst" }), bosun_engine::Timestamp(0))
            .unwrap()
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(team.query("findTeamAgentsByRole", &json!("nobody"), bosun_engine::Timestamp(0)).unwrap(), json!([]));
    assert_eq!(
        team.query("list_children", &json!({ "parent": root }), bosun_engine::Timestamp(0)).unwrap()[0]["name"],
        "agent-a"
    );
    assert_eq!(team.query("get_depth", &json!(root), bosun_engine::Timestamp(0)).unwrap(), 0);
    assert_eq!(team.query("mailbox_counts", &Value::Null, bosun_engine::Timestamp(0)).unwrap()["kept"], 1);
    assert_eq!((team.query("get_plan", &Value::Null, bosun_engine::Timestamp(0)), team), (None, before));
}
