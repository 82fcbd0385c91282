//! The team in whole runs: each scene is played straight, replayed, crashed after every event, and in other orders.

use serde_json::{Value, json};

use crate::scene::kit::*;

/// Two tasks side by side (10 s and 20 s), and one that depends on the first.
const TEAM: &str = "
kind: supervisor
name: team
preset: shannon-supervisor
objective: look at the market
planner: { script: [ { on: plan, say: { agent_types: [researcher, analyst, writer], subtasks: [
  { id: a, description: first }, { id: b, description: second }, { id: c, description: third, deps: [a] } ] } } ] }
services:
  authorize_team_action: { script: [
    { on: authorize_team_action, contains: spy, say: { allow: false, reason: no spies } },
    { on: authorize_team_action, say: { allow: true } } ] }
script:
  - { on: execute_worker, task: a, after: 10s, say: { result: of a } }
  - { on: execute_worker, task: b, after: 20s, say: { result: of b } }
  - { on: execute_worker, task: c, after: 5s, say: { result: of c } }
  - { on: execute_worker, role: slow, after: 100s, say: { result: slowly } }
  - { on: execute_worker, role: broken, after: 3s, fail: it broke }
  - { on: execute_worker, after: 3s, say: { result: recruited } }
  - { on: synthesize, after: 10s, say: the report }
";

fn recruit(role: &str) -> Act {
    Act::Signal("recruit_v1", json!({ "Description": format!("work of a {role}"), "Role": role }))
}

fn agents(played: &mut SceneRun) -> Vec<String> {
    let list = played.query("listTeamAgents", Value::Null);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let line = |agent: &Value| format!("{} {}", text(&agent["AgentID"]), text(&agent["Status"]));
    list.as_array().unwrap().iter().map(line).collect()
}

fn told(played: &SceneRun) -> Vec<String> {
    let line = |data: &&Value| format!("{} {}", data["event"].as_str().unwrap(), data["message"].as_str().unwrap());
    let told = played.noted("ProgressEmitted");
    told.iter().filter(|data| data["event"].is_string()).map(line).collect()
}

/// SHN-20, SHN-21, SHN-25, SHN-26: a denied recruit starts nothing and hinders nobody; two others work side by side, are
/// in the directory, and their results come after the plan's own; one that fails is listed and left out.
#[test]
fn recruits_join_the_run() {
    let scene = SceneText::new(TEAM).at(1, recruit("spy")).at(2, recruit("lawyer")).at(2, recruit("editor"));
    let mut played = scene.at(3, recruit("broken")).order_counts().play();
    assert_eq!(played.report()["final_result"], "the report");
    assert_eq!(played.took, 30, "nobody waits for them: 20 s of work and 10 s of synthesis");
    assert_eq!(
        agents(&mut played),
        [
            "agent-a completed",
            "agent-b completed",
            "dynamic_lawyer completed",
            "dynamic_editor completed",
            "dynamic_broken failed",
            "agent-c completed"
        ]
    );
    let refused = played.noted("RecruitRefused");
    assert_eq!((refused.len(), &refused[0]["reason"]), (1, &json!("no spies")));
    let prompt = played.inputs["synthesize/1"]["prompt"].as_str().unwrap().to_owned();
    let places =
        ["of a", "of b", "of c", "recruited"].map(|text| prompt.find(text).unwrap_or_else(|| panic!("{text}")));
    assert!(places.is_sorted(), "{prompt}");
    let recruits = played.report()["recruits"].as_array().unwrap().clone();
    let success: Vec<&Value> = recruits.iter().map(|recruit| &recruit["success"]).collect();
    assert_eq!(success, [true, true, false]);
    assert_eq!(played.query("findTeamAgentsByRole", json!({ "role": "lawyer" })).as_array().unwrap().len(), 1);
    assert_eq!(played.query("findTeamAgentsByRole", json!({ "role": "Lawyer" })), json!([]));
}

/// SHN-22: a retired recruit is cancelled and gone; a retired agent of the plan leaves its task cancelled.
#[test]
fn retired_agents_stop_and_leave() {
    let retire = |agent: &str| Act::Signal("retire_v1", json!({ "AgentID": agent }));
    let scene = SceneText::new(TEAM).at(1, recruit("slow")).at(5, retire("dynamic_slow"));
    let mut played = scene.order_counts().play();
    assert_eq!(played.took, 30, "nobody waits for who has left");
    assert!(!agents(&mut played).iter().any(|agent| agent.starts_with("dynamic_slow")));
    assert_eq!(played.report()["recruits"], json!([]));
    let roster = played.query("team_roster", Value::Null);
    assert!(
        roster.as_array().unwrap().iter().any(|one| one["agent_id"] == "dynamic_slow" && one["status"] == "retired")
    );

    let mut played = SceneText::new(TEAM).at(5, retire("agent-b")).order_counts().play();
    assert_eq!((played.took, played.statuses().as_str()), (25, "a=completed b=cancelled c=completed"));
    assert_eq!(agents(&mut played), ["agent-a completed", "agent-c completed"]);
    assert!(told(&played).contains(&"TEAM_RETIRED agent-b has left the team".to_owned()));
}

/// SHN-23: one member too many is refused with its reason on record; the slot of one that has ended is free.
#[test]
fn the_team_has_a_size() {
    let spec = format!("{TEAM}team: {{ max_size: 3, recruit_join: none }}\n");
    let scene = SceneText::new(&spec).at(1, recruit("slow")).at(2, recruit("editor"));
    // a has ended and c has started: the team is as large as before. c has ended: there is room.
    let scene = scene.at(12, recruit("editor")).at(16, recruit("editor")).order_counts();
    let played = scene.play();
    let reasons: Vec<&Value> = played.noted("RecruitRefused").into_iter().map(|data| &data["reason"]).collect();
    assert_eq!(
        reasons,
        ["the team is full: 3 of 3 members are at work", "the team is full: 3 of 3 members are at work"]
    );
    let recruited: Vec<&Value> = played.noted("AgentRecruited").into_iter().map(|data| &data["agent_id"]).collect();
    assert_eq!(recruited, ["dynamic_slow", "dynamic_editor"]);
}

/// SHN-27: a recruit that comes while the results are put together is refused with a record, or waited for.
#[test]
fn a_late_recruit_is_not_lost() {
    let refused = SceneText::new(TEAM).at(25, recruit("editor")).order_counts().play();
    let reasons: Vec<&Value> = refused.noted("RecruitRefused").into_iter().map(|data| &data["reason"]).collect();
    assert_eq!(reasons, ["the run puts its results together; nobody is recruited any more"]);
    assert_eq!((refused.took, &refused.report()["recruits"]), (30, &json!([])));

    let spec = format!("{TEAM}team: {{ late_recruits: wait }}\n");
    let awaited = SceneText::new(&spec).at(25, recruit("slow")).order_counts().play();
    assert_eq!(awaited.took, 125);
    assert_eq!(awaited.report()["recruits"][0]["response"], json!({ "result": "slowly" }));
}

/// SHN-10, SHN-12, SHN-14, SHN-15: a message is in the mailbox, and in the next context of whom it is for, though nobody
/// depends on its sender; each agent's role is a message of the supervisor.
#[test]
fn a_message_reaches_the_next_context() {
    let message = json!({ "From": "agent-b", "To": "agent-c", "Role": "analyst", "Content": "mind the new product" });
    let scene = SceneText::new(TEAM).at(4, Act::Signal("mailbox_v1", message));
    let mut played = scene.at(5, Act::Signal("mailbox_v1", json!({ "Content": "to nobody" }))).play();
    assert!(played.inputs["execute/c/1"]["prompt"].as_str().unwrap().contains("mind the new product"));
    assert!(!played.inputs["execute/b/1"]["prompt"].as_str().unwrap().contains("mind the new product"));
    let mailbox = played.query("getMailbox", Value::Null);
    let line = |message: &Value| {
        let text = |key: &str| message[key].as_str().unwrap().to_owned();
        format!("{} > {} ({}): {}", text("From"), text("To"), text("Role"), text("Content"))
    };
    assert_eq!(
        mailbox.as_array().unwrap().iter().map(line).collect::<Vec<_>>(),
        [
            "supervisor > agent-a (researcher): role_assigned",
            "supervisor > agent-b (analyst): role_assigned",
            "agent-b > agent-c (analyst): mind the new product",
            "supervisor > agent-c (writer): role_assigned",
        ]
    );
    assert_eq!(played.query("mailbox_counts", Value::Null)["refused"], 1);
    let before = played.query("digest", Value::Null);
    played.query("getMailbox", Value::Null);
    assert_eq!(played.query("digest", Value::Null), before);
}

/// SHN-28: what people are told of the team, in order.
#[test]
fn people_are_told_of_the_team() {
    let played = SceneText::new(TEAM).at(2, recruit("editor")).order_counts().play();
    assert_eq!(
        told(&played),
        [
            "TEAM_STATUS Coordinating 3 agents...",
            "ROLE_ASSIGNED researcher",
            "PROGRESS Working on step 1 of 3",
            "ROLE_ASSIGNED analyst",
            "PROGRESS Working on step 2 of 3",
            "TEAM_RECRUITED work of a editor",
            "ROLE_ASSIGNED writer",
            "DEPENDENCY_SATISFIED Previous step completed",
            "PROGRESS Working on step 3 of 3",
        ]
    );
}

/// SUP-05, SUP-18, SUP-32: everybody who works is in the registry below the run, before its first call, and none stays
/// active.
#[test]
fn everybody_at_work_is_registered() {
    let mut played = SceneText::new(TEAM).at(2, recruit("broken")).order_counts().play();
    let all = played.query("registry", Value::Null);
    let line =
        |one: &Value| format!("{} {} {}", one["name"].as_str().unwrap(), one["depth"], one["status"].as_str().unwrap());
    assert_eq!(
        all.as_array().unwrap().iter().map(line).collect::<Vec<_>>(),
        [
            "team 0 completed",
            "agent-a 1 completed",
            "agent-b 1 completed",
            "dynamic_broken 1 failed",
            "agent-c 1 completed"
        ]
    );
    let place = |fits: &dyn Fn(&Value) -> bool| played.notes.iter().position(fits).unwrap();
    let registered = place(&|note| note["kind"] == "AgentRegistered" && note["data"]["name"] == "agent-c");
    let attempt = place(&|note| note["kind"] == "AttemptStarted" && note["data"]["task"] == "c");
    assert!(registered < attempt);
    let root = all[0]["instance_id"].clone();
    assert_eq!(played.query("list_children", json!({ "parent": root })).as_array().unwrap().len(), 4);
    assert_eq!(
        played.query("registry_stats", Value::Null),
        json!({ "total": 5, "active": 0, "completed": 4, "failed": 1 })
    );
}

/// SUP-18: a task that needed two tries is one instance, and none of it stays active.
#[test]
fn tries_are_of_one_instance() {
    let spec = TEAM.replace(
        "script:\n  - {",
        "script:\n  - { on: execute_worker, task: a, attempt: 1, after: 1s, fail: down }\n  - {",
    );
    let mut played = SceneText::new(&spec).play();
    assert_eq!(played.query("registry_stats", Value::Null)["total"], 4);
    assert_eq!(played.query("registry_stats", Value::Null)["active"], 0);
}

/// SHN-49: a consumer looks for its topic after 1, 2, 4, 8 s ... and starts at the first look that finds it; after 360 s
/// it goes on with a warning; what nobody produces is not waited for.
#[test]
fn a_consumer_waits_for_its_topic() {
    let spec = |producer: &str, produces: &str| {
        format!(
            "
kind: supervisor
name: topics
preset: shannon-supervisor
objective: q
planner: {{ script: [ {{ on: plan, say: {{ subtasks: [ {{ id: p, description: d, produces: [{produces}] }},
  {{ id: c, description: d, consumes: [prices] }} ] }} }} ] }}
script:
  - {{ on: execute_worker, task: p, after: {producer}, say: {{ result: of p }} }}
  - {{ on: execute_worker, task: c, after: 1s, say: {{ result: of c }} }}
  - {{ on: synthesize, say: s }}
"
        )
    };
    for (producer, produces, took) in [("12s", "prices", 16), ("12s", "gossip", 12), ("400s", "prices", 400)] {
        let played = SceneText::new(&spec(producer, produces)).order_counts().play();
        assert_eq!(played.took, took, "{producer} {produces}");
        let warned = played.inputs["execute/c/1"]["prompt"].as_str().unwrap().contains("missing_topics");
        assert_eq!(warned, took == 400);
        assert_eq!(told(&played).iter().any(|line| line == "WAITING Waiting for prices"), produces == "prices");
    }
}

/// SHN-71: a rule recruits by a result, for the task it came from: its dependents wait.
#[test]
fn a_rule_recruits_by_a_result() {
    let rule = "team: { rules: [ { when: { task: a, contains: OF A }, role: slow, description: dig deeper } ] }\n";
    let played = SceneText::new(&format!("{TEAM}{rule}")).order_counts().play();
    assert_eq!(played.took, 10 + 100 + 5 + 10, "c waits for who was recruited by a");
    let loose = SceneText::new(&format!("{TEAM}{}", rule.replace("team: {", "team: { recruit_join: none,")));
    assert_eq!(loose.order_counts().play().took, 120, "only the report waits");
}

/// Who would advise says nothing.
fn mute() -> Value {
    json!([{ "on": "advise", "fail": "no advice" }])
}

/// SHN-42, SHN-43, SHN-45, SHN-46: with a session its memory is fetched, the advice overrides the plan's strategy, and
/// success is recorded; without one nobody is asked; a store that is down hinders nobody.
#[test]
fn a_session_is_remembered() {
    let pattern = "{ query_pattern: look at the market, strategy: sequential, success_rate: 0.9 }";
    let services = |fetch: &str| {
        let services = format!(
            "services:\n  fetch_memory: {{ script: [ {{ on: fetch_memory, {fetch} }} ] }}\n  \
             record_decomposition: {{ script: [ {{ on: record_decomposition, fail: store is down }} ] }}\n"
        );
        TEAM.replace("services:\n", &services)
    };
    let keys = |played: &SceneRun| -> Vec<String> {
        played.calls.iter().filter(|call| call.starts_with("memory/")).cloned().collect()
    };
    let known = services(&format!("say: {{ decomposition_history: [ {pattern} ] }}"));
    let session = |spec: &str| SceneText::new(spec).context(json!({ "session": "s-1" })).world(mute()).play();
    let played = session(&known);
    assert_eq!(keys(&played), ["memory/fetch", "memory/advise", "memory/record"]);
    assert_eq!(played.took, 10 + 20 + 5 + 10, "one after the other");
    assert_eq!(played.report()["final_result"], "the report");

    let down = session(&services("fail: store is down"));
    assert_eq!(keys(&down), ["memory/fetch", "memory/fetch-basic", "memory/record"]);
    assert_eq!(down.took, 30);
    let alone = SceneText::new(&known).play();
    assert_eq!((keys(&alone), alone.took), (vec![], 30));
}

/// SHD-07: a graph has no team: its three signals are refused with a record and change nothing.
#[test]
fn a_dag_refuses_the_signals_of_a_team() {
    let (before, rest) = TEAM.split_once("services:").unwrap();
    let (_, after) = rest.split_once("script:\n  - ").unwrap();
    let spec = format!("{before}script:\n  - {after}").replace("shannon-supervisor", "shannon-dag");
    let mut scene = SceneText::new(&spec);
    for signal in ["mailbox_v1", "recruit_v1", "retire_v1"] {
        scene = scene.at(1, Act::Signal(signal, json!({ "To": "b", "Description": "x", "AgentID": "agent-a" })));
    }
    let mut played = scene.play();
    let why = "this kind of run has no team and no mailbox";
    let refused: Vec<&Value> = played.noted("ActionRefused").into_iter().map(|data| &data["why"]).collect();
    assert_eq!(refused, [why, why, why]);
    assert_eq!((played.took, played.query("getMailbox", Value::Null)), (30, json!([])));
}

/// SHN-02, SHN-04, SHN-05: a request that is less complex than 0.3 and one task without tools is handed on to a graph,
/// whose result is the run's; the child hears signals while it works, and is forgotten when it ends. 0.3 is not simple.
#[test]
fn a_simple_request_is_handed_on_to_a_graph() {
    let spec = |complexity: &str, more: &str| {
        format!(
            "
kind: supervisor
name: simple
preset: shannon-supervisor
objective: what time is it
planner: {{ script: [ {{ on: plan, say: {{ complexity_score: {complexity},
  subtasks: [ {{ id: a, description: look at the clock {more} }} ] }} }} ] }}
script:
  - {{ on: execute_worker, contains: look at the clock, after: 7s, say: {{ result: noon }} }}
  - {{ on: synthesize, say: about noon }}
"
        )
    };
    let mut handed = SceneText::new(&spec("0.29", "")).play();
    assert_eq!((handed.took, &handed.report()["final_result"]), (7, &json!("noon")));
    assert_eq!(handed.calls, ["plan/1", "child-1:execute/1/1"]);
    assert_eq!(handed.query("listTeamAgents", Value::Null), json!([]));
    for (complexity, more) in [("0.3", ""), ("0.1", ", suggested_tools: [clock]"), ("0.1", ", action: publish it")] {
        let own = SceneText::new(&spec(complexity, more)).until(8).play();
        assert!(!own.calls.iter().any(|call| call.starts_with("child-")), "{complexity}{more}: {:?}", own.calls);
    }
    // Paused from 3 s to 20 s: the child hears it too, and what it has found is used when the run goes on.
    let pause = Act::Signal("pause_v1", json!({ "reason": "lunch" }));
    let paused = SceneText::new(&spec("0.1", "")).at(3, pause).at(20, Act::Signal("resume_v1", json!({})));
    let paused = paused.order_counts().play();
    assert_eq!((paused.took, &paused.report()["final_result"]), (20, &json!("noon")));
    // Cancelled, it takes the child with it; broken, its failure is the run's.
    let cancelled = SceneText::new(&spec("0.1", "")).at(3, Act::Signal("cancel_v1", json!({ "reason": "never mind" })));
    assert_eq!(cancelled.order_counts().play().took, 3);
    let broken = spec("0.1", "").replace("say: { result: noon }", "fail: no clock");
    let broken = SceneText::new(&broken).play();
    assert_eq!(broken.report()["status"], "failed");
}

/// SHN-50: a child is started such that it is asked to cancel when its parent closes.
#[test]
fn a_child_closes_with_its_parent() {
    use bosun_engine::workflow::WorkflowRegistry;
    use bosun_engine::*;
    // Nobody is asked who joins.
    let (head, services) = TEAM.split_once("services:").unwrap();
    let (_, script) = services.split_once("\nscript:").unwrap();
    let spec = format!("{head}script:{script}").replace("objective:", "team: { policy: null }\nobjective:");
    let spec = crate::supervisor::spec::read_spec("team.yaml", &spec).unwrap().resolve().unwrap();
    let input = crate::supervisor::run::SupervisorInput::new(spec);
    let registry = crate::supervisor::run::register(WorkflowRegistry::new());
    let run_id = RunId([1; 16]);
    let request = StartWorkflow::new(WorkflowType::of("supervisor"), WorkflowId::of("w"));
    let first = request.input(Payload::encode(&input).unwrap()).first_event(run_id, Timestamp(0));
    let mut driver = registry.create(&first, run_id).unwrap();
    let mut give = |job| {
        let (at, history) = (Timestamp(1), HistorySize::default());
        driver.activate(Activation { at, run_id, history, job, markers: Markers::Fresh })
    };
    give(Job::InitializeWorkflow(Box::new(first.clone())));
    let commands = give(Job::SignalWorkflow(WorkflowExecutionSignaled {
        name: "recruit_v1".into(),
        input: Payload::encode(&json!({ "Description": "x", "Role": "y" })).unwrap(),
        identity: None,
        request_id: None,
    }));
    let policies: Vec<ParentClosePolicy> = commands
        .iter()
        .filter_map(|command| match command {
            Command::StartChildWorkflow { options, .. } => Some(options.parent_close_policy),
            _ => None,
        })
        .collect();
    assert_eq!(policies, [ParentClosePolicy::RequestCancel]);
}
