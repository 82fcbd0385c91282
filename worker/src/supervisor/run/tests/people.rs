//! People in the middle of whole runs: what they change is what they approve, and what runs.

use serde_json::{Value, json};

use crate::supervisor::run::scene::*;

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

fn shown(peek: &mut Peek<'_>) -> Value {
    peek.query("plan_review", Value::Null)
}

/// CUG-18, CUG-31: a plan that a person has revised while it waits for approval is a new version of it: an approval of
/// the one before is refused, and what is approved then is what is done.
#[test]
fn a_plan_that_was_revised_is_approved_as_it_is_now() {
    let revised = |peek: &mut Peek<'_>| {
        let version = peek.query("get_plan", Value::Null)["version"].clone();
        json!({ "version": version, "tasks": [{ "id": "t2", "goal": "only this" }] })
    };
    let first = |peek: &mut Peek<'_>| shown(peek)["version"] == 1;
    let second = |peek: &mut Peek<'_>| shown(peek)["version"] == 2;
    let played = Scene::new(REVIEWED)
        .once(first, Act::UpdateFrom("revise_plan", revised))
        .once(second, Act::Update("approve_plan", json!({ "version": 1, "approver": "ann" })))
        .once(second, Act::Update("approve_plan", json!({ "version": 2, "approver": "ann" })))
        .order_counts()
        .play();
    let refused = played.updates[1].as_ref().unwrap_err();
    assert!(refused.contains("plan has been updated"), "{refused}");
    assert!(played.updates[0].is_ok() && played.updates[2].is_ok(), "{:?}", played.updates);
    assert_eq!(played.statuses(), "t1=cancelled t2=completed");
    assert_eq!(played.digest["tasks"][1]["goal"], "only this", "{:#}", played.digest);
    assert!(!played.calls.iter().any(|call| call.starts_with("execute/t1/")), "{:?}", played.calls);
}
