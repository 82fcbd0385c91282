//! Loops made from specs: the presets are the systems, and the sections change them.

use super::*;
use crate::supervisor::spec::{self, SupervisorSpec};
use crate::supervisor::team::registry::Registry;

fn of(preset: Preset, names: &[&str]) -> SupervisorSpec {
    let agents = names.iter().map(|name| spec::Agent::new(*name)).collect();
    SupervisorSpec { objective: "do it".to_owned(), agents, ..preset.values() }
}

#[track_caller]
fn run(spec: &SupervisorSpec) -> Rig {
    Rig::build(|out| AgentLoop::from_spec(spec, 0, Thread::default(), out)).unwrap()
}

/// CUG-35, LGS-08, SWM-05: the presets' numbers, unless the spec says others.
#[test]
fn presets_become_the_rules_of_their_systems() {
    let limit = |max, count, then| LoopLimit { max, count, then, of_rounds: false };
    let of_rounds = |max, count, then| LoopLimit { of_rounds: true, ..limit(max, count, then) };
    assert_eq!(of_supyagent(), AgentRules::default());
    assert_eq!(of_langgraph().limit, limit(25, LoopCount::Steps, OnLimit::RecursionLimit));
    let swarm = of_swarm();
    assert_eq!(
        (swarm.limit, swarm.handoff.mode),
        (of_rounds(25, LoopCount::Messages, OnLimit::Return), HandoffControl::Switch)
    );
    let whatever_it_is_called = |of: LoopLimit| LoopLimit { of_rounds: false, ..of };
    assert_eq!(whatever_it_is_called(of_crewai().limit), limit(25, LoopCount::Turns, OnLimit::Synthesize));
    let cuga = of_cuga();
    assert_eq!(
        (whatever_it_is_called(cuga.limit), cuga.budget.per_task),
        (limit(50, LoopCount::Turns, OnLimit::StepLimit), Some(256))
    );
    let mut spec = Preset::SupyagentDelegation.values();
    spec.delegation.max_depth = 2;
    spec.delegation.on_timeout = spec::OnDelegationTimeout::Kill;
    spec.delegation.breaker = 0;
    spec.delegation.summary.last = 3;
    spec.budget.tool_calls = Some(7);
    spec.run_loop.max_rounds = Some(9);
    let rules = rules_of(&spec);
    assert_eq!((rules.delegation.max_depth, rules.delegation.on_timeout), (2, OnDelegationTimeout::Kill));
    assert_eq!((rules.breaker_failures, rules.delegation.summary.last), (None, 3));
    assert_eq!((rules.budget.per_task, rules.limit.max), (Some(7), 9));
}

#[test]
fn a_supyagent_spec_delegates_to_those_it_lists() {
    let mut spec = of(Preset::SupyagentDelegation, &["assistant", "coder", "grep"]);
    spec.agents[0].delegates = vec!["coder".to_owned(), "ghost".to_owned()];
    spec.agents[0].tools = vec![spec::Tool::new("grep"), spec::Tool::new("ls")];
    spec.agents[2].callable = true;
    spec.agents[1].model = Some(spec::Model::new("small"));
    let mut rig = run(&spec);
    assert_eq!(tools_of(rig.pending("assistant"))[..4], ["grep", "ls", "delegate_to_coder", "spawn_agent"]);
    rig.answer("assistant", calls([("grep", json!({})), ("ls", json!({}))]));
    assert_eq!(rig.pending("grep").agent.as_deref(), Some("grep"), "an agent of that name carries the tool out");
    assert_eq!(rig.pending("ls").agent.as_deref(), Some("assistant"));
    rig.answer("grep", json!("x")).answer("ls", json!("y")).answer("assistant", delegate("coder", "code"));
    assert_eq!(rig.pending("coder").context["model"], "small");
    // Two of one agent work together: each delegation is a new instance.
    rig.answer("coder", says("ok")).answer(
        "assistant",
        calls([("delegate_to_coder", json!({"task": "a"})), ("delegate_to_coder", json!({"task": "b"}))]),
    );
    assert_eq!(rig.awaited(), ["coder", "coder"]);
}

#[test]
fn the_depth_of_a_child_run_counts() {
    let mut spec = of(Preset::SupyagentDelegation, &["a", "b"]);
    spec.agents[0].delegates = vec!["b".to_owned()];
    let mut rig = Rig::build(|out| AgentLoop::from_spec(&spec, 5, Thread::default(), out)).unwrap();
    rig.answer("a", delegate("b", "x"));
    assert!(rig.tool_messages()[0].contains("Maximum delegation depth (5) reached"));
}

#[test]
fn hand_over_specs_know_who_may_hand_over_to_whom() {
    let mut rig = run(&of(Preset::LanggraphSupervisor, &["boss", "math", "poet"]));
    assert_eq!(tools_of(rig.pending("boss")), ["transfer_to_math", "transfer_to_poet"]);
    rig.answer("boss", calls([("transfer_to_math", json!({}))]));
    assert!(tools_of(rig.pending("math")).is_empty(), "only the supervisor hands over");
    let mut rig = run(&of(Preset::SwarmHandoff, &["triage", "sales"]));
    rig.answer("triage", calls([("transfer_to_sales", json!({}))]));
    assert_eq!(tools_of(rig.pending("sales")), ["transfer_to_triage"]);
    let mut rig = run(&of(Preset::CugaConversational, &["supervisor", "crm-agent"]));
    assert_eq!(tools_of(rig.pending("supervisor")), ["delegate_to_crm_agent", "create_update_todos"]);
    rig.answer("supervisor", delegate("crm_agent", "one")).answer("crm-agent", says("first"));
    rig.answer("supervisor", delegate("crm_agent", "two"));
    assert_eq!(sent(rig.pending("crm-agent")).len(), 3, "it remembers");
}

#[test]
fn a_crew_spec_carries_out_its_seed_plan() {
    let mut spec = of(Preset::CrewaiHierarchical, &["researcher", "writer"]);
    spec.manager_llm = Some("m1".to_owned());
    let plan = json!({"objective": "a book", "tasks": [
        {"task_id": 1, "overall_objective": "o", "sub_task_objective": "find facts", "capability": "researcher",
         "parameters": {"async_execution": true}},
        {"task_id": 2, "overall_objective": "o", "sub_task_objective": "write", "capability": "any",
         "sub_task_dependencies": [1], "parameters": {"expected_output": "a page", "human_input": true}},
    ]});
    let source = spec::SeedPlanSource { plan: plan.as_object().cloned(), ..spec::SeedPlanSource::default() };
    spec.seed_plan = Some(source);
    let mut rig = run(&spec);
    let first = rig.pending("Crew Manager").clone();
    assert!(sent(&first)[0].text().starts_with("find facts"));
    let told = |call: &Call| call.context["tools"][0]["description"].as_str().unwrap().to_owned();
    assert!(told(&first).contains("one of: researcher."), "a task with an agent restricts coworkers to it");
    rig.answer("Crew Manager", says("facts"));
    let second = rig.pending("Crew Manager").clone();
    let text = sent(&second)[0].text().to_owned();
    assert!(text.starts_with("write\n\nThe expected criteria for your final answer: a page"));
    assert!(text.ends_with("working with:\nfacts"));
    assert!(told(&second).contains("one of: researcher, writer."));
    rig.answer("Crew Manager", says("page"));
    assert_eq!(rig.it.human_needed().len(), 1);
    let error =
        Rig::build(|out| AgentLoop::from_spec(&of(Preset::CrewaiHierarchical, &["a"]), 0, Thread::default(), out))
            .err()
            .unwrap();
    assert!(error.to_string().contains("`manager_llm` or `manager_agent` is required"));
}

/// SUP-18, SUP-32: what a loop tells is what the registry holds: an agent is registered before its first call, the root too,
/// and a child whose delegation failed is failed there, not active.
#[test]
fn the_registry_follows_from_what_is_told() {
    let mut rig = Rig::start(of_supyagent(), planner_and_coder(), "go");
    let kinds: Vec<NoteKind> = rig.notes.iter().map(|note| note.kind).collect();
    assert_eq!(kinds, [NoteKind::AgentRegistered, NoteKind::DecisionRequested]);
    rig.answer("assistant", delegate("coder", "x")).fail("coder", "broken");
    rig.answer("assistant", delegate("planner", "y")).answer("planner", says("ok"));
    let mut registry = Registry::new("run-1", 0, 5);
    rig.facts.iter().for_each(|fact| registry.hear(fact.clone()));
    let all = registry.list_all();
    let seen: Vec<(String, u32, Value)> =
        all.iter().map(|instance| (instance.name.clone(), instance.depth, json!(instance.status))).collect();
    assert_eq!(
        seen,
        [
            ("assistant".to_owned(), 0, json!("active")),
            ("coder".to_owned(), 1, json!("failed")),
            ("planner".to_owned(), 1, json!("completed")),
        ]
    );
    let root = &all[0].instance_id;
    assert!(root.len() == 8 && root.chars().all(|c| c.is_ascii_hexdigit()));
    assert_eq!(registry.list_children(root).len(), 2);
}

#[test]
fn an_answer_may_be_a_workers_report() {
    let mut rig = Rig::start(of_supyagent(), planner_and_coder(), "go");
    rig.answer("assistant", delegate("coder", "x")).answer("coder", json!({"result": {"lines": 3}}));
    assert_eq!(rig.tool_messages(), [r#"{"ok": true, "data": "{\"lines\": 3}"}"#]);
    rig.answer("assistant", delegate("coder", "x2")).answer("coder", json!({"success": false, "reason": "no disk"}));
    assert!(rig.tool_messages()[1].contains("Delegation to 'coder' failed: no disk."));
}

#[test]
fn a_persons_answer_may_be_short() {
    let yes = |feedback: &str| Ok(HumanAnswer { approved: true, feedback: feedback.to_owned() });
    let no = |feedback: &str| Ok(HumanAnswer { approved: false, feedback: feedback.to_owned() });
    let feedback = HumanKind::TaskFeedback { task: "1".to_owned() };
    let approval = HumanKind::ToolApproval { policy: "pay".to_owned() };
    for kind in [&feedback, &approval] {
        assert_eq!(HumanAnswer::read(&json!(true), kind), yes(""));
        assert_eq!(HumanAnswer::read(&json!(false), kind), no(""));
        assert_eq!(HumanAnswer::read(&json!({"approved": false, "comment": "no"}), kind), no("no"));
        assert!(HumanAnswer::read(&json!({"approved": 1}), kind).unwrap_err().to_string().contains("approved"));
        assert!(HumanAnswer::read(&Value::Null, kind).is_err());
    }
    assert!(HumanAnswer::read(&json!(""), &feedback).unwrap_err().to_string().contains("the answer is empty"));
    assert_eq!(HumanAnswer::read(&json!("yes"), &feedback), yes(""));
    assert_eq!(HumanAnswer::read(&json!("shorter"), &feedback), no("shorter"));
}

/// CUG-39: a text is no approval of a tool call and no denial, whatever it says; the refusal says what is expected.
#[test]
fn a_text_does_not_decide_about_a_tool() {
    let approval = HumanKind::ToolApproval { policy: "pay".to_owned() };
    for text in ["", " ", "yes", "no", "true"] {
        let why = HumanAnswer::read(&json!(text), &approval).unwrap_err().to_string();
        assert!(why.contains("`true` or `false`") && why.contains("`approved`"), "{text:?}: {why}");
    }
}
