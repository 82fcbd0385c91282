//! Workflows of steps.

use super::*;

fn workflow(steps: Value) -> StepsDef {
    serde_json::from_value(json!({"name": "w", "steps": steps})).unwrap()
}

fn run(steps: Value) -> Result<Rig, AgentsRefused> {
    let rules = of_supyagent();
    Rig::build(|out| AgentLoop::steps(rules, planner_and_coder(), workflow(steps), &AgentInput::default(), out))
}

/// SUP-29: everything that is wrong is listed: agents, dependencies and placeholders nobody produces.
#[test]
fn everything_that_is_wrong_with_a_workflow_is_listed() {
    let steps = json!([
        {"agent": "planner", "task": "plan", "output": "plan"},
        {"agent": "ghost", "task": "do {{plan}} and {{more}}", "depends_on": ["plan", "review"]},
    ]);
    let issues = [
        "Step 1: agent 'ghost' not found",
        "Step 1: depends_on 'review' not defined by any step",
        "Step 1: task references '{{more}}' but no step outputs 'more'",
    ];
    assert_eq!(workflow(steps.clone()).issues(&planner_and_coder()), issues);
    match run(steps) {
        Err(AgentsRefused::Steps(found)) => assert_eq!(found, issues),
        _ => panic!("it was started"),
    }
    assert_eq!(workflow(json!([])).issues(&planner_and_coder()), ["Workflow 'w' has no steps"]);
    let good = json!([{"agent": "planner", "task": "plan {x}"}]);
    assert!(workflow(good).issues(&planner_and_coder()).is_empty());
    let unknown = json!({"steps": [{"agent": "a", "task": "b", "retries": 3}]});
    assert!(serde_json::from_value::<StepsDef>(unknown).unwrap_err().to_string().contains("retries"));
}

/// SUP-29: steps run one after the other, and outputs are filled in, once.
#[test]
fn steps_run_one_after_the_other_and_outputs_are_filled_in() {
    let steps = json!([
        {"agent": "planner", "task": "plan", "output": "plan"},
        {"agent": "coder", "task": "do {{plan}}, {{ plan }}", "output": "code", "depends_on": ["plan"]},
        {"agent": "assistant", "task": "review {{code}}"},
    ]);
    let mut rig = run(steps).unwrap();
    assert_eq!(rig.awaited(), ["planner"]);
    rig.answer("planner", says("A {{code}}"));
    assert_eq!(sent(rig.pending("coder"))[0].text(), "do A {{code}}, A {{code}}");
    rig.answer("coder", says("fn main"));
    assert_eq!(sent(rig.pending("assistant"))[0].text(), "review fn main");
    rig.answer("assistant", says("good"));
    let outcome = rig.outcome();
    assert!(outcome.ok);
    assert_eq!(outcome.result["outputs"], json!({"code": "fn main", "plan": "A {{code}}"}));
    assert_eq!(outcome.result["results"][2]["result"], json!({"ok": true, "data": "good"}));
}

/// SUP-29: the first failure ends it; a dependency that is not there yet is said.
#[test]
fn the_first_failure_ends_a_workflow() {
    let steps = json!([
        {"agent": "planner", "task": "plan", "output": "plan"},
        {"agent": "coder", "task": "do {{plan}}"},
    ]);
    let mut rig = run(steps).unwrap();
    rig.fail("planner", "no idea");
    assert!(rig.calls.is_empty(), "nothing runs after a failure");
    assert_eq!(rig.outcome().error.as_deref(), Some("Step 0 (planner) failed: no idea"));
    assert_eq!(rig.outcome().result["results"].as_array().unwrap().len(), 1);
    let early = json!([
        {"agent": "planner", "task": "plan"},
        {"agent": "coder", "task": "do", "depends_on": ["plan"]},
        {"agent": "planner", "task": "plan", "output": "plan"},
    ]);
    let mut rig = run(early).unwrap();
    rig.answer("planner", says("ok"));
    assert_eq!(rig.outcome().error.as_deref(), Some("Step 1 (coder): dependency 'plan' not satisfied"));
    assert!(rig.calls.is_empty());
}
