//! Whoever waits for a run is not ended by the end of the process that carries it on.
//!
//! Real processes on a real directory; what is waited for is the binary's own output and exit code.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::http::Http;
use bosun_tests::harness::process::{Program, WorkerProcess};
use bosun_tests::harness::workload;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::supervisor_cli::{command, run, said};

const PATIENCE: Duration = Duration::from_secs(60);

fn worker(data: &Path) -> (WorkerProcess, Http) {
    WorkerProcess::start(&Program::bosun_worker().unwrap(), data, READY_MAX).unwrap()
}

fn left(data: &Path, words: &[&str]) -> Child {
    command(data, words).spawn().unwrap()
}

#[track_caller]
fn ended_well(who: &str, waiter: Child) -> Output {
    let output = waiter.wait_with_output().unwrap();
    assert!(output.status.success(), "{who} ended with {}: {}", output.status, said(&output));
    output
}

/// Looks again until this holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "it never came to this: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `result`, `show --follow` and an attached `run` outlive a worker's kill -9 and its drain: each finds the next worker, loses no
/// event and tells none twice.
#[test]
fn waiting_survives_the_worker() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    let (mut first, http) = worker(data);
    http.start(&workload::mixed("long", 2)).acknowledged().unwrap();
    let steps = json!({ "steps": [{ "wait_signal": { "name": workload::SIGNAL } }] }).to_string();
    let run_words = ["run", workload::KITCHEN_SINK, "-w", "mine", "--input", &steps];
    let mine = left(data, &run_words);
    let (waits, follows) = (data.join("waits.txt"), data.join("follows.txt"));
    let result = command(data, &["result", "long"]).stderr(File::create(&waits).unwrap()).spawn().unwrap();
    let mut follow = command(data, &["show", "long", "--follow", "-o", "jsonl"]);
    let follow = follow.stdout(File::create(&follows).unwrap()).spawn().unwrap();
    until("a run of its own", || http.count("WorkflowId = 'mine'").unwrap_or(0) == 1);
    // Each is attached once it shows what it sees.
    until("both to wait", || [&waits, &follows].iter().all(|seen| !std::fs::read(seen).unwrap().is_empty()));
    first.kill().unwrap();
    std::thread::sleep(Duration::from_millis(700));

    let (mut second, http) = worker(data);
    http.signal("long", workload::SIGNAL, &Value::Null, "s1").acknowledged().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    second.signal(Signal::TERM).unwrap();
    assert!(second.wait(PATIENCE).unwrap().is_some_and(|status| status.success()), "{}", second.said());

    let (_third, http) = worker(data);
    http.signal("long", workload::SIGNAL, &Value::Null, "s2").acknowledged().unwrap();
    http.signal("mine", workload::SIGNAL, &Value::Null, "s3").acknowledged().unwrap();
    ended_well("result", result);
    ended_well("run", mine);
    ended_well("show --follow", follow);
    let followed = std::fs::read_to_string(&follows).unwrap();
    let ids: Vec<u64> =
        followed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()?["id"].as_u64()).collect();
    let all = http.history("long").unwrap().len() as u64;
    assert_eq!(ids, (1..=all).collect::<Vec<_>>(), "{followed}");
}

/// Two `run`s share a directory: the second goes on, by itself, when the first has ended or was killed; whoever follows it too.
#[test]
fn a_run_does_not_end_with_the_run_that_it_shares_a_directory_with() {
    for kill in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path();
        let steps = |time: &str| json!({ "steps": [{ "timer": time }] }).to_string();
        let (short, long) = (steps(if kill { "1h" } else { "8s" }), steps("10s"));
        let mut first = left(data, &["run", workload::KITCHEN_SINK, "-w", "first", "--input", &short]);
        until("somebody to hold the directory", || data.join("worker.json").exists());
        let second = left(data, &["run", workload::KITCHEN_SINK, "-w", "second", "--input", &long]);
        until("a second run", || run(data, &["describe", "second"]).status.success());
        // It is attached once it shows what it sees.
        let seen = data.join("seen.txt");
        let result = command(data, &["result", "second"]).stderr(File::create(&seen).unwrap()).spawn().unwrap();
        until("somebody who waits", || std::fs::read_to_string(&seen).is_ok_and(|seen| seen.contains("timer")));
        if kill {
            first.kill().unwrap();
            first.wait().unwrap();
        } else {
            ended_well("the first run", first);
        }
        let output = ended_well("the second run", second);
        assert!(said(&output).contains("going on in this one"), "{}", said(&output));
        ended_well("result", result);
    }
}

/// A hang-up drains like SIGTERM; a worker that was started by `nohup` does not hear it.
#[test]
fn a_hang_up_drains() {
    let dir = tempfile::tempdir().unwrap();
    // The tests may run under `nohup` themselves.
    let listening = ["env", "--default-signal=HUP"].map(Into::into).to_vec();
    let program = Program { wrapper: listening, ..Program::bosun_worker().unwrap() };
    let (mut heard, _http) = WorkerProcess::start(&program, dir.path(), READY_MAX).unwrap();
    heard.signal(Signal::HUP).unwrap();
    let status = heard.wait(PATIENCE).unwrap().expect("it ends");
    assert!(status.success(), "{status}: {}", heard.said());
    assert!(!dir.path().join("worker.json").exists());

    let program = Program { wrapper: vec!["nohup".into()], ..Program::bosun_worker().unwrap() };
    let (mut deaf, http) = WorkerProcess::start(&program, dir.path(), READY_MAX).unwrap();
    deaf.signal(Signal::HUP).unwrap();
    assert!(deaf.wait(Duration::from_millis(500)).unwrap().is_none(), "{}", deaf.said());
    assert_eq!(http.healthz().unwrap(), 200);
}

/// G27: an attempt that a drain cuts off has failed because its worker was stopped, and says so to whoever reads the result.
#[test]
fn an_attempt_that_a_drain_cuts_off_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    let mut program = Program::bosun_worker().unwrap();
    program.arguments.extend(["--drain-timeout", "100ms"].map(Into::into));
    let (mut drained, _http) = WorkerProcess::start(&program, data, READY_MAX).unwrap();
    let sleeps =
        ["activity", "start", "process", "-i", r#"{"argv":["sleep","600"]}"#, "--id", "one", "--maximum-attempts", "1"];
    let output = run(data, &sleeps);
    assert!(output.status.success(), "{}", said(&output));
    until("an attempt that runs", || said(&run(data, &["show", "activity:one"])).contains("ActivityTaskStarted"));
    drained.terminate().unwrap();
    assert!(drained.wait(PATIENCE).unwrap().expect("it ends").success(), "{}", drained.said());
    let told = said(&run(data, &["result", "activity:one"]));
    assert!(told.contains("the worker that ran the attempt was stopped"), "{told}");
}

/// One word ends each kind of pause, by either name.
#[test]
fn resume_lifts_every_pause() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    let (_worker, http) = worker(data);
    http.start(&workload::mixed("any", 1)).acknowledged().unwrap();
    for word in ["resume", "unpause"] {
        for words in [["pause", "any"], [word, "any"]] {
            let output = run(data, &words);
            assert!(output.status.success(), "{words:?}: {}", said(&output));
        }
        let state: Value = serde_json::from_slice(&run(data, &["describe", "any", "-o", "json"]).stdout).unwrap();
        assert_eq!(state["workflow"]["status"], "Running");
    }
}

/// Who waits where no worker runs keeps none out: one that is started meanwhile takes the directory at once, and answers.
#[test]
fn who_waits_without_a_worker_keeps_none_out() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    let start = |id: &str, steps: Value| {
        let input = json!({ "steps": steps }).to_string();
        let started = run(data, &["start", workload::KITCHEN_SINK, "-w", id, "--input", &input]);
        assert!(started.status.success(), "{}", said(&started));
    };
    start(
        "made",
        json!([{ "activity": { "type": "echo", "input": "a result", "as": "made" } }, { "return": "$made" }]),
    );
    let waits = |name: &str, words: &[&str]| {
        let told = data.join(format!("{name}.txt"));
        let child = command(data, words).stderr(File::create(&told).unwrap()).spawn().unwrap();
        until("it says what it waits for", || std::fs::read_to_string(&told).unwrap().contains("waiting for one"));
        child
    };
    let result = waits("result", &["result", "made", "--timeout", "120s"]);
    let this_run = waits("this-run", &["result", "made", "--no-follow-runs", "--timeout", "120s"]);
    let listed = data.join("listed.txt");
    let mut watches = command(data, &["list", "--watch=100ms", "-o", "jsonl"]);
    let mut watches = watches.stdout(File::create(&listed).unwrap()).spawn().unwrap();
    let seen = |wanted: &str| std::fs::read_to_string(&listed).unwrap().contains(wanted);
    until("a list", || seen("\"made\""));

    // Held to the end of any of these, the directory would be refused to it.
    let (_worker, http) = worker(data);
    for waiter in [result, this_run] {
        let told = ended_well("result", waiter);
        assert_eq!(String::from_utf8_lossy(&told.stdout).trim(), "a result", "{}", said(&told));
    }
    until("the end in the list", || seen("Completed"));
    watches.kill().unwrap();
    watches.wait().unwrap();
    assert_eq!(http.count("ExecutionStatus = 'Completed'").unwrap(), 1);
}

/// Without a worker a wait sees also what another command has brought about.
#[test]
fn a_wait_without_a_worker_sees_what_a_visit_decides() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    let steps = json!({ "steps": [{ "wait_signal": { "name": "go" } }, { "return": "gone" }] }).to_string();
    assert!(run(data, &["start", workload::KITCHEN_SINK, "-w", "asks", "--input", &steps]).status.success());
    let result = left(data, &["result", "asks", "--timeout", "120s"]);
    until("the signal is heard", || run(data, &["signal", "asks", "go"]).status.success());
    let told = ended_well("result", result);
    assert_eq!(String::from_utf8_lossy(&told.stdout).trim(), "gone");
    let late = run(data, &["start", workload::KITCHEN_SINK, "-w", "late", "--input", &steps]);
    assert!(late.status.success(), "{}", said(&late));
    let late = run(data, &["result", "late", "--timeout", "3s"]);
    assert_eq!(late.status.code(), Some(1), "{}", said(&late));
    assert!(said(&late).contains("no worker runs on this data directory"), "{}", said(&late));
}
