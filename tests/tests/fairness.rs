//! G26 by the shipped binary: ten tasks in a queue of their own beside a queue with many thousands, on one worker.
//!
//! Every task takes 50 ms, and all slots are the crowd's. It prints how long the ten took, one after the other, alone and beside
//! the crowd. What every run of the tests shows is that they ended while the crowd still waited. `cargo full fairness` has the
//! figures of the requirements: a crowd of 100 000, ten times ten tasks, and a 99th percentile of at most three times the one alone.

use std::time::{Duration, Instant};

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::http::Http;
use bosun_tests::harness::process::{Program, WorkerProcess, bosun};
use bosun_tests::harness::{count_from_env, say};
use serde_json::{Value, json};

/// Activities of one run of the crowd.
const OF_A_RUN: u32 = 500;
const TEN: usize = 10;

fn start(http: &Http, id: &str, queue: &str, activities: u32) {
    let one = json!([{ "activity": { "type": "sleep", "input": { "ms": 50 } } }]);
    let branches: Vec<Value> = (0..activities).map(|_| one.clone()).collect();
    let start = json!({ "workflow_type": "kitchen-sink", "workflow_id": id, "task_queue": queue,
        "input": { "steps": [{ "parallel": branches }] } });
    let started: Value = http.call("POST", "/api/v1/workflows", Some(&start)).acknowledged().unwrap();
    assert_eq!(started["newly_started"], true, "{started}");
}

/// How long each of ten runs of one activity took, in order.
fn ten(http: &Http, name: &str) -> Vec<Duration> {
    (0..TEN)
        .map(|nth| {
            let (id, began) = (format!("{name}-{nth}"), Instant::now());
            start(http, &id, "few", 1);
            let path = format!("/api/v1/workflows/{id}/result?wait=20s");
            loop {
                let ended: Value = http.call("GET", &path, None::<&()>).acknowledged().unwrap();
                if ended["status"] != "Running" {
                    return began.elapsed();
                }
                assert!(began.elapsed() < READY_MAX * 4, "{id} does not end");
            }
        })
        .collect()
}

/// So often ten, in order of how long each took.
fn rounds_of_ten(http: &Http, name: &str, rounds: usize) -> Vec<Duration> {
    let mut took: Vec<Duration> = (0..rounds).flat_map(|round| ten(http, &format!("{name}-{round}"))).collect();
    took.sort_unstable();
    took
}

/// The 99th percentile.
fn p99(sorted: &[Duration]) -> Duration {
    sorted[(sorted.len() * 99).div_ceil(100) - 1]
}

fn waiting(http: &Http) -> u64 {
    let queue: Value = http.call("GET", "/api/v1/queues/crowd", None::<&()>).acknowledged().unwrap();
    queue["waiting"].as_u64().unwrap()
}

/// Gives the 99th percentiles, alone and beside the crowd.
fn ten_beside(crowd: u32, rounds: usize) -> (Duration, Duration) {
    let home = tempfile::tempdir().unwrap();
    let program = Program::new(bosun().unwrap(), &["worker", "run", "--slots", "16"]);
    let (worker, http) = WorkerProcess::start(&program, &home.path().join("data"), READY_MAX).unwrap();
    let alone = rounds_of_ten(&http, "alone", rounds);
    for nth in 0..crowd.div_ceil(OF_A_RUN) {
        start(&http, &format!("crowd-{nth}"), "crowd", OF_A_RUN);
    }
    let before = waiting(&http);
    let beside = rounds_of_ten(&http, "beside", rounds);
    let after = waiting(&http);
    assert!(before > 0 && after > 0, "the crowd waits before ({before}) and after ({after}) the ten");
    say(&format!(
        "fairness: {rounds} times ten tasks alone: p50 {:?}, p99 {:?}; beside {before} that wait: p50 {:?}, p99 {:?}",
        alone[alone.len() / 2],
        p99(&alone),
        beside[beside.len() / 2],
        p99(&beside)
    ));
    drop(worker);
    (p99(&alone), p99(&beside))
}

#[test]
fn ten_tasks_end_while_a_crowd_in_another_queue_waits() {
    ten_beside(count_from_env("BOSUN_CROWD", 3_000), 1);
}

#[test]
#[ignore = "a hundred thousand tasks: cargo full"]
fn ten_tasks_end_while_a_hundred_thousand_in_another_queue_wait() {
    let (alone, beside) = ten_beside(count_from_env("BOSUN_CROWD", 100_000), 10);
    assert!(beside <= alone * 3, "p99 {beside:?} beside the crowd, {alone:?} alone");
}
