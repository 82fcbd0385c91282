//! kill -9 at any moment: the real worker under a mixed load, 20 % of the deaths during recovery.

use std::time::{Duration, Instant};

use bosun_tests::harness::crash::{READY_MAX, kill_rounds};
use bosun_tests::harness::faults::{Injection, delayed};
use bosun_tests::harness::load::Shape;
use bosun_tests::harness::process::{Program, WorkerProcess};
use bosun_tests::harness::{Chance, count_from_env, say, workload};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// G1, G2, G12, G13, E11: nothing acknowledged is lost, nothing happens twice, every directory opens, every workflow
/// that has all it waits for ends.
#[test]
fn a_worker_killed_at_any_moment_loses_nothing_it_acknowledged() {
    survives(30);
}

/// The same, ten times as often.
#[test]
#[ignore = "minutes: cargo full"]
fn a_worker_killed_three_hundred_times_loses_nothing_it_acknowledged() {
    survives(300);
}

fn survives(kills: u32) {
    let mut chance = Chance::from_env("a_worker_killed_at_any_moment_loses_nothing_it_acknowledged");
    let dir = tempfile::tempdir().unwrap();
    let kills = count_from_env("BOSUN_KILLS", kills);
    let program = Program::bosun_worker().unwrap();
    let data = dir.path().join("data");
    let outcome = kill_rounds(&program, &data, dir.path(), kills, &mut chance, Shape::default()).unwrap();
    say(&format!("kill -9: {}", outcome.summary()));
    outcome.assert_clean("kill -9");
    assert_eq!(outcome.crashes, kills);
}

/// G2, G37: a worker that is killed while a child of it is forked, and waits to be executed until its note is on the disk,
/// leaves nobody behind who holds the directory: the next worker opens it. The disk is made slow at that very moment.
#[test]
fn a_child_that_was_not_executed_yet_holds_nothing() {
    if !Injection::available_or_explain() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let notes = data.join("processes");
    std::fs::create_dir_all(&notes).unwrap();
    let slow = delayed("fsync", Duration::from_secs(300), &notes, &dir.path().join("trace"));
    let (mut worker, http) =
        WorkerProcess::start(&Program::bosun_worker().unwrap().wrapped(slow), &data, READY_MAX).unwrap();
    let process = json!([{ "activity": { "type": "process", "input": { "argv": ["true"] } } }]);
    http.start(&workload::program("starts", process)).acknowledged().unwrap();
    let began = Instant::now();
    while std::fs::read_dir(&notes).unwrap().count() == 0 {
        assert!(began.elapsed() < READY_MAX, "no process was noted");
        std::thread::sleep(Duration::from_millis(5));
    }
    let tracer = tracer_of(worker.pid());
    worker.signal(Signal::KILL).unwrap();
    // What is traced is not reaped while its tracer waits for another.
    kill_process(tracer, Signal::KILL).unwrap();
    worker.kill().unwrap();
    let (_worker, http) = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    assert!(http.result("starts", READY_MAX).unwrap().is_some(), "the process is started again");
}

fn tracer_of(pid: u32) -> Pid {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap();
    Pid::from_raw(line.trim().parse().unwrap()).expect("the worker is traced")
}
