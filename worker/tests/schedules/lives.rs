//! Schedules in many simulated lives: whatever people send and however their runs end, replay gives the same.

use std::collections::BTreeSet;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{CloseOutcome, EventKind};
use bosun_replay::determinism::{DeterminismTest, armed};
use bosun_replay::simulate::RunView;
use bosun_worker::schedule::standing::Standing;
use bosun_worker::schedule::{Overlap, SCHEDULE, register};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::kit::every_minute;

const LIVES: u32 = 120;

fn input(change: impl FnOnce(&mut Value)) -> Value {
    let mut schedule = json!(every_minute(Overlap::Skip, 1));
    change(&mut schedule);
    json!({ "schedule_id": "s", "schedule": schedule })
}

fn inputs() -> Vec<Value> {
    let overlaps = ["skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other", "allow_all"];
    let mut all: Vec<Value> =
        overlaps.iter().map(|overlap| input(|schedule| schedule["policies"]["overlap"] = json!(overlap))).collect();
    all.push(input(|schedule| {
        schedule["spec"] =
            json!({ "cron": ["*/7 * * * *"], "time_zone": "Europe/Berlin", "jitter": "3m", "end_time": "2030-01-01T00:00:00Z" });
        schedule["policies"]["catch_up_window"] = json!("10m");
        schedule["state"]["remaining_actions"] = json!(3);
    }));
    all.push(input(|schedule| schedule["policies"]["pause_on_failure"] = json!(true)));
    all
}

/// The times of 1980 are those of backfills, which may be asked for again.
const BACKFILL: &str = "1980";

/// No nominal time is started twice by itself.
fn once(run: &RunView<'_>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for event in run.events() {
        if let EventKind::StartChildWorkflowExecutionInitiated(child) = event
            && !child.workflow_id.as_str().contains(BACKFILL)
            && !seen.insert(child.workflow_id.clone())
        {
            return Err(format!("{} is started twice", child.workflow_id));
        }
    }
    Ok(())
}

/// What it says of itself is what its history says.
fn exact(run: &RunView<'_>) -> Result<(), String> {
    let Some(state) = run.state() else { return Ok(()) };
    // A start of it is a run as well.
    if state["standing"].is_null() {
        return Ok(());
    }
    let standing: Standing = serde_json::from_value(state["standing"].clone()).map_err(|why| why.to_string())?;
    let begun =
        run.events().filter(|event| matches!(event, EventKind::StartChildWorkflowExecutionInitiated(_))).count();
    if standing.counts.actions != begun as u64 {
        return Err(format!("{} starts are told, {begun} are in the history", standing.counts.actions));
    }
    if !standing.waiting.is_empty() && standing.running.is_empty() && run.outcome().is_none() {
        return Err("something waits, and nothing runs".to_owned());
    }
    match run.outcome() {
        Some(CloseOutcome::Failed(why)) => Err(format!("a schedule never fails: {why}")),
        _ => Ok(()),
    }
}

/// E24, G21.
#[test]
fn schedules_are_deterministic() {
    assert!(armed());
    let schedule = |every: &str| {
        let mut schedule = json!(every_minute(Overlap::BufferAll, 1));
        schedule["spec"]["intervals"][0]["every"] = json!(every);
        json!({ "schedule": schedule })
    };
    let backfill = json!({ "start_time": "1980-01-01T00:00:00Z", "end_time": "1980-01-01T00:05:00Z" });
    let report = DeterminismTest::new(register(WorkflowRegistry::new()), SCHEDULE)
        .input(proptest::sample::select(inputs()))
        .child("job", Just("done"))
        .update("pause", Just(json!({ "note": "lunch" })))
        .update("unpause", Just(json!({})))
        .update("trigger", proptest::sample::select(vec![json!({}), json!({ "overlap": "allow_all" }), json!(3)]))
        .update("update", proptest::sample::select(vec![schedule("30s"), schedule("1h"), schedule("0s")]))
        .update("backfill", Just(backfill))
        .update("delete", proptest::sample::select(vec![json!(null)]))
        .signal("action_ended_v1", Just(json!({ "name": "2026-01-01T00:00:00Z", "outcome": "completed" })))
        .signal("unknown", Just(json!(1)))
        .query("describe", &json!(null))
        .query("next_times", &json!({ "count": 3 }))
        .invariant("no time is started twice", once)
        .invariant("the counts are those of the history", exact)
        .runs_for_ever()
        .lives(LIVES)
        .steps(60)
        .on_all_cores()
        .without_case_files()
        .run();
    assert_eq!(report.lives, u64::from(LIVES));
    assert!(report.got_somewhere > u64::from(LIVES) * 3 / 4, "{report:?}");
}
