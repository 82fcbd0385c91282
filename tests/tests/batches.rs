//! Batches by the shipped binary: one thing done to every run that fits, each once, over kill -9 (issue 19; E23, G11).

use std::path::Path;
use std::time::{Duration, Instant};

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::http::Http;
use bosun_tests::harness::process::{Program, WorkerProcess};
use bosun_tests::harness::workload::program;
use bosun_tests::harness::{Chance, count_from_env, say};
use serde_json::{Value, json};

use crate::resets::{ok, told};
use crate::supervisor_cli::{run, said};

/// Runs that a test starts at once.
const STARTERS: usize = 8;

/// Starts runs that wait for more signals than they get.
fn start_all(http: &Http, runs: usize) {
    std::thread::scope(|scope| {
        for starter in 0..STARTERS {
            scope.spawn(move || {
                for n in (starter..runs).step_by(STARTERS) {
                    let waits = json!([{ "wait_signal": { "name": "go" } }, { "wait_signal": { "name": "go" } }]);
                    http.start(&program(&format!("run-{n:06}"), waits)).acknowledged().unwrap();
                }
            });
        }
    });
}

fn count(data: &Path, query: &str) -> u64 {
    told(data, &["count", "--query", query])["count"].as_u64().unwrap()
}

/// Kills the worker again and again until the batch has ended, at most so often; says how it stands then, and how often.
fn until_ended(data: &Path, worker: &mut WorkerProcess, id: &str, kills: u32, chance: &mut Chance) -> (Value, u32) {
    let program = Program::bosun_worker().unwrap();
    let mut killed = 0;
    let began = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(150 + chance.below(500)));
        let shown = told(data, &["batch", "describe", id]);
        if shown["state"] == "completed" {
            return (shown, killed);
        }
        assert!(began.elapsed() < 60 * READY_MAX, "{shown:#}");
        if killed < kills {
            worker.kill().unwrap();
            *worker = WorkerProcess::start(&program, data, READY_MAX).unwrap().0;
            killed += 1;
        }
    }
}

/// A batch over 2 000 runs, killed 20 times: each is touched once.
#[test]
fn a_batch_touches_every_run_once_over_kill_9() {
    each_once(2_000, 20, "250");
}

/// The same over 20 000 runs.
#[test]
#[ignore = "minutes: cargo full"]
fn a_batch_over_twenty_thousand_runs_touches_every_run_once() {
    each_once(20_000, 20, "1500");
}

fn each_once(runs: usize, kills: u32, rps: &str) {
    let mut chance = Chance::from_env("a_batch_touches_every_run_once_over_kill_9");
    let runs = usize::try_from(count_from_env("BOSUN_BATCH_RUNS", u32::try_from(runs).unwrap())).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (mut worker, http) = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    start_all(&http, runs);
    let all = runs as u64;
    let query = "WorkflowType = 'kitchen-sink'";
    let started = told(
        &data,
        &[
            "signal",
            "--query",
            query,
            "--name",
            "go",
            "--rps",
            rps,
            "--batch-id",
            "go-on",
            "--yes",
            "--reason",
            "at last",
        ],
    );
    assert_eq!(started["count"], all);
    let (shown, killed) = until_ended(&data, &mut worker, "go-on", kills, &mut chance);
    let counts = |shown: &Value| ["found", "done", "skipped", "failed"].map(|name| shown[name].as_u64().unwrap());
    assert_eq!(counts(&shown), [all, all, 0, 0], "killed {killed} times: {shown:#}");
    assert!(killed >= kills / 2, "killed only {killed} times");
    // A second signal would have ended a run.
    assert_eq!(count(&data, "WorkflowType = 'kitchen-sink' AND ExecutionStatus = 'Running'"), all);
    // Started, and one signal: a run that was left out has one event, and one that was touched twice would have ended.
    assert_eq!(count(&data, "WorkflowType = 'kitchen-sink' AND HistoryLength = 2"), all);

    // Ended, and removed: what is touched no longer fits the filter, and is counted all the same.
    let open = "WorkflowType = 'kitchen-sink' AND ExecutionStatus = 'Running'";
    ok(&data, &["terminate", "--query", open, "--rps", rps, "--batch-id", "end", "--yes", "--reason", "enough"]);
    let (shown, more) = until_ended(&data, &mut worker, "end", kills / 4, &mut chance);
    assert_eq!(counts(&shown), [all, all, 0, 0], "killed {more} times: {shown:#}");
    assert_eq!(count(&data, "WorkflowType = 'kitchen-sink' AND ExecutionStatus = 'Terminated'"), all);
    let one = said(&ok(&data, &["describe", "run-000007"]));
    assert!(one.contains("enough (batch:end)"), "{one}");
    ok(&data, &["delete", "--query", query, "--rps", "0", "--batch-id", "remove", "--yes"]);
    let (shown, last) = until_ended(&data, &mut worker, "remove", kills / 4, &mut chance);
    assert_eq!(counts(&shown), [all, all, 0, 0], "killed {last} times: {shown:#}");
    assert_eq!(count(&data, query), 0);
    ok(&data, &["replay", "check", "--query", "WorkflowType = 'bosun.batch'"]);
    say(&format!("batches over {runs} runs: killed {} times, each touched once", killed + more + last));
    worker.kill().unwrap();
}

/// All that a person does with batches: a look first, a question, what was skipped and failed and why, a stop, both ends.
#[test]
fn a_batch_is_looked_at_asked_for_seen_and_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (mut worker, http) = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    start_all(&http, 40);
    http.start(&program("ended", json!([]))).acknowledged().unwrap();
    assert!(http.result("ended", READY_MAX).unwrap().is_some());
    let query = "WorkflowType = 'kitchen-sink'";
    let dry = told(&data, &["terminate", "--query", query, "--dry-run"]);
    let counted = (dry["found"].as_u64(), dry["count"].as_u64(), dry["first"].as_array().map(Vec::len));
    assert_eq!(counted, (Some(41), Some(40), Some(5)), "what has ended is found, and not terminated: {dry:#}");
    let text = said(&ok(&data, &["terminate", "--query", query, "--dry-run"]));
    assert!(
        text.contains("would terminate 40 runs") && text.contains("1 more that fit the filter have ended"),
        "{text}"
    );
    let gone = said(&ok(&data, &["delete", "--query", query, "--dry-run"]));
    assert!(gone.contains("would delete 1 run") && gone.contains("40 more that fit the filter are open"), "{gone}");
    assert!(!gone.contains("1 runs"), "{gone}");
    assert_eq!(count(&data, "ExecutionStatus = 'Running'"), 40);
    for (words, code, says) in [
        (&["terminate", "--query", query, "--no-input"][..], 32, "terminate 40 runs"),
        (&["terminate", "--query", "Nonsense ~ 1", "--yes"], 2, "list filter"),
        (&["terminate", "--query", query, "run-000001"], 2, "cannot be used with"),
        (&["terminate"], 2, "no run is named"),
        (&["signal", "--query", query, "--name", "approval_response_v1", "--yes"], 2, "one run at a time"),
        (&["batch", "describe", "nobody"], 30, "there is no batch nobody"),
    ] {
        let output = run(&data, words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{words:?}: {}", said(&output));
    }
    let none = said(&ok(&data, &["cancel", "--query", "WorkflowId = 'nobody'", "--yes"]));
    assert!(none.contains("nothing matches: no batch is started"), "{none}");
    let dry = said(&ok(&data, &["cancel", "--query", "WorkflowId = 'nobody'", "--dry-run"]));
    assert!(dry.contains("would cancel 0 runs"), "{dry}");

    // One has ended by itself: it is skipped, with the reason; the others are paused, by their own engine.
    ok(&data, &["pause", "--query", query, "--rps", "0", "--batch-id", "hold", "--yes"]);
    let (shown, _) = until_ended(&data, &mut worker, "hold", 0, &mut Chance::from_env("batches"));
    assert_eq!((shown["done"].as_u64(), shown["skipped"].as_u64()), (Some(40), Some(1)), "{shown:#}");
    assert!(shown["reasons"].to_string().contains("is already Completed"), "{shown:#}");
    assert_eq!(count(&data, "ExecutionStatus = 'Paused'"), 40);
    // An id that is taken begins nothing else, and says whose it is.
    ok(&data, &["pause", "--query", query, "--rps", "0", "--batch-id", "hold", "--yes"]);
    let taken = run(&data, &["terminate", "--query", query, "--rps", "0", "--batch-id", "hold", "--yes"]);
    assert!(taken.status.code() == Some(2) && said(&taken).contains("that batch is to pause"), "{}", said(&taken));
    ok(&data, &["resume", "--query", "ExecutionStatus = 'Paused'", "--rps", "0", "--batch-id", "go", "--yes"]);
    until_ended(&data, &mut worker, "go", 0, &mut Chance::from_env("batches"));
    assert_eq!(count(&data, "ExecutionStatus = 'Paused'"), 0);

    // Slow, stopped in the middle: what was done is counted, and no more is touched. Meanwhile the worker is gone and back.
    let slow =
        ["reset", "--query", "ExecutionStatus = 'Running'", "--to", "first-turn", "--rps", "2", "--batch-id", "slow"];
    ok(&data, &[&slow[..], &["--yes"]].concat());
    let again = told(&data, &[&slow[..], &["--yes"]].concat());
    assert_eq!(again["newly_started"], false, "{again:#}");
    std::thread::sleep(Duration::from_millis(1_200));
    worker.kill().unwrap();
    let text = said(&ok(&data, &["batch", "list"]));
    assert!(text.contains("slow") && text.contains("running") && text.contains("reset to the first turn"), "{text}");
    let stopped = told(&data, &["batch", "stop", "slow", "--reason", "changed my mind"]);
    assert_eq!(stopped["state"], "stopping", "{stopped:#}");
    worker = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap().0;
    let began = Instant::now();
    let shown = loop {
        let shown = told(&data, &["batch", "describe", "slow"]);
        if shown["state"] == "stopped" {
            break shown;
        }
        assert!(began.elapsed() < READY_MAX, "{shown:#}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(shown["stopped"], "changed my mind", "{shown:#}");
    assert!(count(&data, "ExecutionStatus = 'Terminated'") < 40, "{shown:#}");
    assert_eq!(count(&data, "ExecutionStatus = 'Running'"), 40, "each that was reset goes on");
    worker.kill().unwrap();
}

/// A batch that was ended by force says so, and not that it is running.
#[test]
fn a_batch_that_was_terminated_is_not_shown_as_running() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let parked = r#"{"steps": [{"wait_signal": {"name": "go"}}]}"#;
    ok(&data, &["start", "kitchen-sink", "-w", "waits", "--input", parked]);
    // Nobody works: the batch stays where it is.
    ok(&data, &["pause", "--query", "WorkflowId = 'waits'", "--batch-id", "b", "--yes"]);
    assert_eq!(told(&data, &["batch", "describe", "b"])["state"], "running");
    ok(&data, &["terminate", "batch:b", "--yes"]);
    assert_eq!(told(&data, &["batch", "describe", "b"])["state"], "terminated");
    let listed = told(&data, &["batch", "list"]);
    let at = listed["batches"][0]["started_at"].as_str().unwrap_or_default();
    assert!(at.ends_with('Z'), "{listed:#}");
    let listed = said(&ok(&data, &["batch", "list"]));
    assert!(listed.contains("terminated") && !listed.contains("running"), "{listed}");
}
