//! Who carries a request out, by what it is like: whole runs of CUGA's choice of planning and of Shannon's router.

use serde_json::{Value, json};

use crate::scene::kit::*;

/// Two agents under CUGA's supervisor; both ways of working are in the script.
fn desk(objective: &str, more: &str) -> String {
    format!(
        "
kind: supervisor
name: desk
preset: cuga-structured
objective: {objective}
agents: [{{ name: crm, description: customers }}, {{ name: bills, description: bills }}]
{more}
script:
  - {{ on: plan, say: {{ tasks: [ {{ id: s1, goal: find, agent: crm }}, {{ id: s2, goal: look up, agent: bills, deps: [s1] }} ] }} }}
  - {{ on: synthesize, say: by plan }}
  - {{ on: execute_worker, agent: supervisor, round: 1, say: {{ tool_calls: [ {{ name: delegate_to_crm, args: {{ task: find }} }} ] }} }}
  - {{ on: execute_worker, agent: supervisor, say: by talk }}
  - {{ on: execute_worker, agent: crm, say: found }}
  - {{ on: execute_worker, agent: bills, say: found }}
"
    )
}

#[track_caller]
fn chosen(spec: &str) -> (Value, Value, Vec<String>) {
    let played = SceneText::new(spec).play();
    let noted = played.noted("PlanningChosen");
    assert_eq!(noted.len(), 1, "the choice is an event, once");
    (noted[0].clone(), played.report()["final_result"].clone(), played.calls)
}

/// CUG-08, CUG-09, CUG-12, CUG-13: several agents and a word of sequence get a plan of sub-tasks under the controller;
/// without one the supervisor talks with its agents; the spec may say otherwise. The choice is noted with its reason.
#[test]
fn a_request_of_several_steps_gets_a_plan_and_another_a_conversation() {
    let (choice, result, _) = chosen(&desk("First find the customer, then look up the bill", ""));
    assert_eq!((&choice["mode"], &result), (&json!("agents"), &json!("by plan")));
    assert_eq!(choice["reason"], "2 agents, and the request says `first`");
    let (choice, result, calls) = chosen(&desk("Who owes us most?", ""));
    assert_eq!((&choice["mode"], &result), (&json!("todos"), &json!("by talk")));
    assert_eq!(choice["reason"], "2 agents, and no word of sequence");
    assert!(!calls.iter().any(|call| call.starts_with("plan/")), "{calls:?}");
    let (choice, result, _) = chosen(&desk("Who owes us most?", "planning: { otherwise: agents }"));
    assert_eq!((&choice["mode"], &result), (&json!("agents"), &json!("by plan")));
    let own = "planning: { triggers: { cues: [owes] } }";
    assert_eq!(chosen(&desk("Who owes us most?", own)).1, "by plan", "cues are the spec's");
}

/// CUG-10, CUG-11, CUG-17: one agent is talked with, unless a plan is forced; who did not opt in has none.
#[test]
fn one_agent_needs_no_plan_unless_forced() {
    let one = |more: &str| desk("First find", more).replace(", { name: bills, description: bills }", "");
    let one = |more: &str| one(more).replace(", { id: s2, goal: look up, agent: bills, deps: [s1] }", "");
    let (choice, result, _) = chosen(&one(""));
    assert_eq!((&choice["mode"], &result), (&json!("todos"), &json!("found")));
    assert_eq!(choice["reason"], "one agent, and the request says `first`");
    let (choice, result, _) = chosen(&one("planning: { force: true }"));
    assert_eq!((&choice["mode"], &result), (&json!("agents"), &json!("by plan")));
    let (choice, result, _) = chosen(&desk("First find, then look up", "planning: { mode: todos }"));
    assert_eq!((&choice["mode"], &result), (&json!("todos"), &json!("by talk")));
    assert_eq!(choice["reason"], "structured planning is not asked for");
}

/// CUG-33: a plan that is made upfront is a list of delegations; the strategy of the spec counts where it has none.
#[test]
fn a_plan_made_upfront_is_carried_out_as_it_is() {
    let spec = |strategy: &str| {
        let more = format!("planning: {{ supervisor_mode: plan_upfront, strategy: {strategy} }}\nsupervisor: {{}}");
        let text = desk("Who owes us most?", &more);
        let (from, to) = (text.find("  - { on: plan").unwrap(), text.find("  - { on: synthesize").unwrap());
        let plan = "  - { on: plan, say: { delegations: [ { agent_name: crm, task: find }, { agent_name: bills, task: look up } ] } }\n";
        let text = format!("{}{plan}{}", &text[..from], &text[to..]);
        text.replace("say: found }", "say: found, after: 5s }")
    };
    let played = |strategy| SceneText::new(&spec(strategy)).play();
    let sequential = played("sequential");
    assert_eq!((sequential.took, sequential.statuses().as_str()), (10, "1=completed 2=completed"));
    assert_eq!(sequential.noted("PlanningChosen")[0]["mode"], "upfront");
    assert!(!sequential.calls.iter().any(|call| call.starts_with("decide/")), "nobody decides on the way");
    assert_eq!(played("parallel").took, 5);
}

fn router(subtasks: &str) -> String {
    format!(
        "
kind: supervisor
name: routed
preset: shannon-supervisor
routing: {{ entry: true }}
objective: see the world
planner: {{ script: [ {{ on: plan, say: {{ complexity_score: 0.7, tokens: 5, tasks: [ {subtasks} ] }} }} ] }}
script:
  - {{ on: execute_worker, after: 7s, say: seen }}
  - {{ on: synthesize, say: all seen }}
"
    )
}

fn tasks(count: usize) -> String {
    (1..=count).map(|n| format!("{{ id: t{n}, goal: look {n}, cost: 0.25 }}")).collect::<Vec<_>>().join(", ")
}

/// SHN-01, SHN-04, SHN-06: up to two steps are one execution, up to five without dependencies a graph of their own that is
/// not planned again, more than five or a dependency a supervisor.
#[test]
fn a_router_starts_what_a_decomposition_asks_for() {
    let route = |subtasks: &str| {
        let played = SceneText::new(&router(subtasks)).play();
        assert_eq!(played.report()["status"], "completed");
        let plans = played.calls.iter().filter(|call| call.contains("plan/")).count();
        assert_eq!(plans, 1, "planned once: {:?}", played.calls);
        let of_child = |call: &&String| call.starts_with("child-") && call.contains("execute/");
        let below = played.calls.iter().filter(of_child).count();
        (below, played.calls.iter().filter(|call| call.contains("execute/")).count() - below)
    };
    assert_eq!(route(&tasks(2)), (1, 0), "a simple task");
    assert_eq!(route(&tasks(3)), (3, 0), "a graph");
    assert_eq!(route(&tasks(5)), (5, 0), "a graph");
    assert_eq!(route(&tasks(6)), (0, 6), "a supervisor");
    assert_eq!(route("{ id: a, goal: look }, { id: b, goal: tell, deps: [a] }"), (0, 2), "a supervisor");
    assert_eq!(route(""), (1, 0), "nothing to divide");
    let asked = SceneText::new(&router("{ id: a, goal: look, action: publish it }")).until(8).play();
    assert_eq!(asked.statuses(), "a=awaiting_approval", "what people are asked about stays here");
}

/// SHN-73: a router that is paused stops at a point whose name says what was about to start.
#[test]
fn a_paused_router_says_what_it_was_about_to_start() {
    let stopped = |subtasks: &str, second: u64| {
        let spec = router(subtasks).replace("on: plan, say", "on: plan, after: 3s, say");
        let pause = Act::Signal("pause_v1", json!({ "reason": "lunch" }));
        let scene = SceneText::new(&spec).at(second, pause).at(60, Act::Signal("resume_v1", json!({})));
        let played = scene.order_counts().play();
        assert_eq!(played.report()["status"], "completed");
        let events: Vec<&Value> = played.noted("Paused");
        let at = events.iter().find(|event| event["event"] == "WORKFLOW_PAUSED");
        at.unwrap_or_else(|| panic!("{events:?}"))["checkpoint"].as_str().unwrap().to_owned()
    };
    assert_eq!(stopped(&tasks(3), 1), "pre_routing");
    assert_eq!(stopped(&tasks(3), 4), "pre_dag_workflow");
    assert_eq!(stopped(&tasks(1), 4), "pre_simple_workflow");
    assert_eq!(stopped(&tasks(6), 4), "pre_synthesis");
}

/// SHN-72: workers are told the planned way of thinking, and a cheaper one when the tokens that are left are few; the step
/// is noted. Without a budget, or without the rule, it stays.
#[test]
fn a_way_of_thinking_steps_down_when_tokens_run_out() {
    let strategies = |budget: &str| {
        let spec = format!(
            "
kind: supervisor
name: thinking
preset: shannon-dag
objective: think
budget: {{ {budget} }}
dispatch: {{ max_concurrency: 1 }}
planner: {{ script: [ {{ on: plan, say: {{ strategy: tree_of_thoughts, tasks: [ {{ id: a, goal: one }}, {{ id: b, goal: two }}, {{ id: c, goal: three }} ] }} }} ] }}
script: [ {{ on: execute_worker, say: {{ result: x, tokens: 3000 }} }}, {{ on: synthesize, say: done }} ]
"
        );
        let played = SceneText::new(&spec).order_counts().play();
        let of = |task: &str| played.inputs[&format!("execute/{task}/1")].to_string();
        let found = |text: &str| {
            let all = ["tree_of_thoughts", "chain_of_thought", "react"];
            all.into_iter().find(|name| text.contains(name)).unwrap_or("none").to_owned()
        };
        (["a", "b", "c"].map(|task| found(&of(task))), played.noted("StrategyDegraded").len())
    };
    let few = "tokens: 10000, degrade: {}";
    assert_eq!(strategies(few), (["tree_of_thoughts", "chain_of_thought", "chain_of_thought"].map(str::to_owned), 2));
    let fewer = "tokens: 8500, degrade: {}";
    assert_eq!(strategies(fewer), (["tree_of_thoughts", "chain_of_thought", "react"].map(str::to_owned), 2));
    let as_planned = ["tree_of_thoughts"; 3].map(str::to_owned);
    assert_eq!(strategies("tokens: 10000"), (as_planned, 0));
}
