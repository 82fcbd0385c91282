//! Control in a family of runs: what the parent is told, its children are told; crashed and resumed after every event.

use serde_json::{Value, json};

use crate::scene::kit::{Act, SceneRun, SceneText};

/// A takes 15 s, B needs it; a helper that is recruited after 5 s works for 20 s in a run of its own.
const FAMILY: &str = "
kind: supervisor
name: family
preset: shannon-supervisor
objective: Do it together
services:
  authorize_team_action: { script: [ { on: authorize_team_action, say: { allowed: true } } ] }
script:
  - { on: plan, say: { tasks: [ { id: A, goal: First }, { id: B, goal: Second, deps: [A] } ] } }
  - { on: advise, say: { strategy: parallel, confidence: 0.5 } }
  - { on: fetch_memory, say: { memories: [] } }
  - { on: execute_worker, role: helper, after: 20s, say: { result: helped } }
  - { on: execute_worker, task: A, after: 15s, say: { result: a } }
  - { on: execute_worker, task: B, after: 10s, say: { result: b } }
  - { on: synthesize, say: done }
";

fn scene() -> SceneText {
    let recruit = json!({ "Description": "Help with the first task", "Role": "helper" });
    SceneText::new(FAMILY).at(5, Act::Signal("recruit_v1", recruit)).order_counts()
}

fn asked() -> Value {
    json!({ "approval": "any" })
}

fn told() -> Value {
    json!({ "reason": "lunch", "requested_by": "ann" })
}

fn noted(played: &SceneRun, event: &str) -> usize {
    played.notes.iter().filter(|note| note["data"]["event"] == event).count()
}

/// SHN-05, SHN-60, SHN-61, SHN-65, SHN-69: a pause reaches the child, what is in flight in both finishes, the paused
/// child keeps the parent open, and a resume lets both go on; the child notes no second pausing.
#[test]
fn a_pause_reaches_the_child_and_holds_the_parent() {
    let straight = scene().play();
    assert!(straight.took < 60, "{}", straight.took);
    let paused = scene().at(8, Act::Signal("pause_v1", told())).at(100, Act::Signal("resume_v1", told())).play();
    assert_eq!(paused.statuses(), straight.statuses());
    assert!(paused.took >= 100 && paused.took < 160, "{}", paused.took);
    assert_eq!(paused.calls.len(), straight.calls.len(), "nothing is done twice");
    assert_eq!((noted(&paused, "WORKFLOW_PAUSING"), noted(&paused, "WORKFLOW_RESUMED")), (1, 1));
    assert_eq!(noted(&paused, "WORKFLOW_PAUSED"), 1);
}

/// SHN-66, SHN-68: a takeover pauses the child as well, and the release lets it go on.
#[test]
fn a_takeover_reaches_the_child() {
    let taken =
        scene().at(8, Act::Signal("human_takeover_v1", told())).at(100, Act::Signal("human_release_v1", told())).play();
    assert!(taken.took >= 100 && taken.took < 160, "{}", taken.took);
    assert_eq!(taken.statuses(), scene().play().statuses());
}

/// SHN-62: a cancel reaches the child, and the parent closes as cancelled.
#[test]
fn a_cancel_reaches_the_child() {
    let played = scene().at(8, Act::Signal("cancel_v1", told())).play();
    assert_eq!(played.report()["error"], "workflow cancelled: lunch");
    assert_eq!(played.report()["status"], "cancelled");
    assert!(played.took < 25, "{}", played.took);
    assert!(!played.calls.iter().any(|call| call.contains("execute/B")), "{:?}", played.calls);
    assert_eq!(noted(&played, "WORKFLOW_CANCELLING"), 1);
}

/// SHN-05, SHN-60: a supervisor that is an agent of this one is a child like any other.
#[test]
fn a_pause_reaches_a_nested_supervisor() {
    let nested = "
kind: supervisor
name: outer
preset: shannon-supervisor
objective: Do it together
agents:
  - name: lead
    via: { supervisor: { spec: { kind: supervisor, name: inner, preset: shannon-dag, objective: x, script: [
      { on: plan, say: { tasks: [ { id: a, goal: One }, { id: b, goal: Two, deps: [a] } ] } },
      { on: advise, say: { strategy: parallel, confidence: 0.5 } },
      { on: fetch_memory, say: { memories: [] } },
      { on: execute_worker, after: 20s, say: { result: inner } },
      { on: synthesize, say: inner } ] } } }
script:
  - { on: plan, say: { tasks: [ { id: A, goal: First, agent: lead } ] } }
  - { on: advise, say: { strategy: parallel, confidence: 0.5 } }
  - { on: fetch_memory, say: { memories: [] } }
  - { on: synthesize, say: done }
";
    let straight = SceneText::new(nested).order_counts().play();
    assert_eq!((straight.statuses().as_str(), straight.took), ("A=completed", 40));
    let scene = SceneText::new(nested).order_counts().at(5, Act::Signal("pause_v1", told()));
    let paused = scene.at(100, Act::Signal("resume_v1", told())).play();
    // The first task of the child was in flight and finished; the second began only after the resume.
    assert_eq!((paused.statuses().as_str(), paused.took), ("A=completed", 120));
    assert_eq!(noted(&paused, "WORKFLOW_PAUSING"), 1);
}

const PUBLISHED: &str = "
kind: supervisor
name: publisher
preset: shannon-supervisor
objective: Publish the report
script:
  - { on: plan, say: { tasks: [ { id: R, goal: Report },
      { id: P, goal: Publish it, deps: [R], action: publish report, required: true } ] } }
  - { on: advise, say: { strategy: parallel, confidence: 0.5 } }
  - { on: fetch_memory, say: { memories: [] } }
  - { on: execute_worker, task: R, after: 10s, say: { result: the report } }
  - { on: execute_worker, task: P, after: 1s, say: { result: published } }
  - { on: synthesize, say: done }
";

/// SHH-07, SHH-09, SHH-10, SHH-11: an approval survives a crash after any event: asked once, decided once, published once;
/// rejected, the run fails with the seed's text; unanswered, it does so after half an hour of the run's time.
#[test]
fn an_approval_survives_any_crash() {
    let approved = SceneText::new(PUBLISHED).once(asked(), Act::Do(json!({ "do": "approve", "by": "ann" }))).play();
    assert_eq!(approved.statuses(), "R=completed P=completed");
    let of = |played: &SceneRun, start: &str| played.calls.iter().filter(|call| call.starts_with(start)).count();
    assert_eq!((of(&approved, "execute/P"), of(&approved, "approval/")), (1, 2));
    let text = "Required task rejected: Sensitive operation requires approval: publish report";
    let no = json!({ "do": "reject", "by": "ann", "comment": "not now" });
    let rejected = SceneText::new(PUBLISHED).once(asked(), Act::Do(no)).play();
    let with_words = format!("{text} (ann: not now)");
    assert_eq!((&rejected.report()["error"], of(&rejected, "execute/P")), (&json!(with_words), 0));
    let unanswered = SceneText::new(PUBLISHED).play();
    let in_silence = format!("{text} (Approval timeout, auto-rejected)");
    assert_eq!((&unanswered.report()["error"], unanswered.took), (&json!(in_silence), 30 * 60 + 10));
}
