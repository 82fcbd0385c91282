//! People in the middle of whole runs: what they change is what they approve, and what runs.

use serde_json::json;

use crate::scene::kit::*;

const REVIEWED: &str = "
kind: supervisor
name: reviewed
preset: flow-supervisor
objective: o
planning: { approval: { required: true } }
review: { scope: none }
agents: [{ name: w }]
script:
  - { on: plan, say: { tasks: [{ id: t1, goal: first }, { id: t2, goal: second }] } }
  - { on: execute_worker, say: done }
  - { on: synthesize, say: all done }
";

/// CUG-18, CUG-31: a plan that a person has revised while it waits for approval is a new version of it: an approval of
/// the one before is refused, and what is approved then is what is done.
#[test]
fn a_plan_that_was_revised_is_approved_as_it_is_now() {
    let second = || json!({ "query": "plan_review", "path": "version", "is": 2 });
    let revised = json!({ "do": "revise_plan", "tasks": [{ "id": "t2", "goal": "only this" }] });
    let stale = json!({ "version": 1, "approver": "ann" });
    let played = SceneText::new(REVIEWED)
        .once(json!({ "plan": 1 }), Act::Do(revised))
        .once(second(), Act::Refused("approve_plan", stale, "plan has been updated"))
        .once(second(), Act::Update("approve_plan", json!({ "version": 2, "approver": "ann" })))
        .order_counts()
        .play();
    assert_eq!(played.statuses(), "t1=cancelled t2=completed");
    assert_eq!(played.digest["tasks"][1]["goal"], "only this", "{:#}", played.digest);
    assert!(!played.calls.iter().any(|call| call.starts_with("execute/t1/")), "{:?}", played.calls);
}
