//! Whole runs: every system through the real workflow, each scene doubted four ways.

mod agents;
mod borders;
mod budgets;
mod claims;
mod gates;
mod inherited;
mod market;
mod pauses;
mod people;
mod played;
mod routes;
mod talks;
mod truth;

/// After every event of every scene of these tests: what a snapshot holds is the whole state, and it comes back equal.
#[track_caller]
pub(super) fn comes_back_from_its_snapshot(run: &super::SupervisorRun) {
    let bytes = serde_json::to_vec(run).unwrap();
    let back: super::SupervisorRun = serde_json::from_slice(&bytes).unwrap();
    assert!(back == *run, "a snapshot loses something of {}", run.id);
}
