//! The market analysis of chapter 15: the team, the recruit, the approval, the times.

use serde_json::{Value, json};

use crate::scene::kit::*;

/// As the book prints it: A 15 s, B 12 s, C 18 s, D 15 s; C recruits when it is 10 s in; E 15 s, F 10 s.
pub(super) const MARKET: &str = "
kind: supervisor
name: market-analysis
preset: shannon-supervisor
objective: Conduct a complete competitive analysis of the AI Agent market
planner: { script: [ { on: plan, say: {
  agent_types: [researcher, analyst, product_expert, tech_expert, strategist, writer],
  subtasks: [
    { id: market-research, description: Market size research },
    { id: competitor-scan, description: Competitor identification },
    { id: product-compare, description: Product comparison analysis },
    { id: tech-trend, description: Technology trend analysis },
    { id: swot, description: SWOT synthesis, deps: [market-research, competitor-scan, product-compare, tech-trend] },
    { id: report, description: Report generation, deps: [swot] } ] } } ] }
services:
  authorize_team_action: { script: [ { on: authorize_team_action, say: { allowed: true } } ] }
script:
  - { on: execute_worker, task: market-research, after: 15s, say: { result: size } }
  - { on: execute_worker, task: competitor-scan, after: 12s, say: { result: rivals } }
  - { on: execute_worker, task: product-compare, after: 18s, say: { result: products } }
  - { on: execute_worker, task: tech-trend, after: 15s, say: { result: trends } }
  - { on: execute_worker, role: pricing_analyst, after: 10s, say: { result: prices } }
  - { on: execute_worker, task: swot, after: 15s, say: { result: swot } }
  - { on: execute_worker, task: report, after: 10s, say: { result: report } }
  - { on: synthesize, say: final report }
";

fn recruit() -> Value {
    json!({ "Description": "Deep analysis of each product's pricing strategy", "Role": "pricing_analyst" })
}

/// SHN-26, SHN-47, SHN-70: 45 s with recruitment, joined by the dependents; 43 s if nobody waits for the recruit; 85 s
/// one after the other. The recruit's result is part of the synthesis and shifts nothing.
#[test]
fn the_market_analysis_takes_45_seconds() {
    let scene = |spec: &str| SceneText::new(spec).at(10, Act::Signal("recruit_v1", recruit()));
    let joined = scene(MARKET).order_counts().play();
    assert_eq!(joined.took, 45, "{:#}", joined.digest);
    assert_eq!(joined.report()["final_result"], "final report");
    let results = joined.inputs["synthesize/1"].clone();
    assert!(results.to_string().contains("prices"), "{results:#}");
    let alone = scene(&format!("{MARKET}team: {{ recruit_join: none }}\n")).order_counts().play();
    assert_eq!(alone.took, 43);
    let serial = SceneText::new(&format!("{MARKET}dispatch: {{ parallelism: sequential }}\n")).play();
    assert_eq!(serial.took, 85);
}

/// SHN-35, SHN-47: whatever order agents end in, the plan ends the same.
#[test]
fn the_order_of_ends_does_not_matter() {
    let played = SceneText::new(MARKET).play();
    assert_eq!(played.took, 43, "18 + 15 + 10");
    assert!(played.statuses().ends_with("swot=completed report=completed"), "{}", played.statuses());
}

/// SHN-20, SHN-26: a recruit works in its own role, and never does what an agent of the plan is there for.
#[test]
fn a_recruit_is_not_an_agent_of_another_role() {
    let agents = "agents: [{ name: publisher, role: publisher, script: [{ on: execute_worker, say: published }] }]\n";
    let played =
        SceneText::new(&format!("{MARKET}{agents}")).at(10, Act::Signal("recruit_v1", recruit())).order_counts().play();
    let recruits = played.report()["recruits"].clone();
    assert!(recruits.to_string().contains("prices") && !recruits.to_string().contains("published"), "{recruits}");
}

/// FSS-35, PDT-51: a task that was claimed by a worker that is gone is given out again, as the same attempt, whichever of
/// its calls were under way when the process died.
#[test]
fn what_a_lost_worker_had_claimed_is_given_out_again() {
    let spec = "
preset: flow-supervisor-per-task
objective: o
agents: [{ name: w }]
planner: { script: [{ on: plan, say: { tasks: [{ id: a, goal: g, agent: w }, { id: b, goal: g, agent: w, deps: [a] }, { id: c, goal: g, agent: w }] } }] }
reviewer: { script: [{ on: review, say: { verdict: approve } }] }
synthesizer: { script: [{ on: synthesize, say: done }] }
script: [{ on: execute_worker, after: 4s, say: { result: '{{task}} {{attempt}}' } }]
";
    // At 2 s two are under way, at 6 s the one that waited for the first.
    for killed in [2, 6] {
        let played = SceneText::new(spec).kill(killed).play();
        assert_eq!((played.statuses().as_str(), played.took), ("a=completed b=completed c=completed", 8));
        let tasks = played.digest["tasks"].as_array().unwrap();
        assert!(tasks.iter().all(|task| task["tries"] == 1), "a lost worker is no attempt: {:#}", played.digest);
        assert_eq!(tasks[1]["result"], "b 1");
    }
}

/// SHH-05, PDT-06: what a supervisor chose and a person approved runs in that cycle; it is not chosen twice, and the cycle
/// is no idle one.
#[test]
fn what_was_chosen_and_approved_runs() {
    let spec = "
preset: pydantask-fixed
objective: o
hitl: { mode: human_in_command }
seed_plan: { plan: { objective: o, tasks: [{ task_id: 1, sub_task_objective: do it, capability: c }] } }
agents: [{ name: a, capability: c }]
supervisor: { script: [
  { on: decide, round: 1, say: { reasoning: go, tasks_to_execute: [1] } },
  { on: decide, say: { reasoning: done, all_tasks_completed: true } } ] }
reviewer: { script: [{ on: review, say: { passed: true } }] }
script: [{ on: execute_worker, say: done }]
";
    let played = SceneText::new(spec)
        .once(json!({ "approval": "any" }), Act::Do(json!({ "do": "approve", "by": "ann" })))
        .order_counts()
        .play();
    assert_eq!(played.statuses(), "1=completed");
    assert!(played.noted("NoProgress").is_empty());
    assert_eq!(played.calls.iter().filter(|call| call.starts_with("decide/")).count(), 2);
}

/// AGC-14: a chat whose input carries earlier messages goes on from them; a name that nobody has is refused.
#[test]
fn a_chat_goes_on_from_earlier_messages() {
    let spec = "
preset: autogen-groupchat
objective: Agree on a name for the cat
agents: [{ name: alice }, { name: bob }]
speaker: { method: round_robin }
script:
  - { on: execute_worker, agent: bob, say: { content: \"Felix it is. TERMINATE\" } }
  - { on: execute_worker, agent: alice, say: { content: again } }
";
    let earlier = |name: &str| json!([{ "name": "alice", "content": "Cats" }, { "name": name, "content": "Felix?" }]);
    let messages = earlier("alice");
    let played = SceneText::new(spec).context(json!({ "more": { "messages": messages } })).play();
    assert_eq!(played.report()["status"], "completed", "{:#}", played.digest);
    let texts = played.digest["messages"].to_string();
    assert!(texts.contains("Cats") && texts.contains("Felix it is") && !texts.contains("again"), "{texts}");
    let stranger = earlier("mallory");
    let refused = SceneText::new(spec).context(json!({ "more": { "messages": stranger } })).play();
    let why = refused.report()["error"].to_string();
    assert!(!refused.completed() && why.contains("mallory"), "{why}");
}
