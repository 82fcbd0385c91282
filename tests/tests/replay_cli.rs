//! The command line of the shipped binary on recorded runs: replay against a running worker, forks over kill -9.
//!
//! What the verbs mean is tested beside them; here are only the real processes and the real directory.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bosun_engine::{RunId, WorkflowStatus};
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::http::escape;
use bosun_tests::harness::process::{Program, WorkerProcess, bosun};
use bosun_tests::harness::{Chance, count_from_env, say, workload};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(120);

/// A command of the binary on a data directory.
fn command(data: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(bosun().unwrap());
    command.args(words).arg("--data").arg(data).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(data: &Path, words: &[&str]) -> Output {
    command(data, words).output().unwrap()
}

/// The JSON that a command printed, which must have ended with this exit code.
#[track_caller]
fn json_of(output: &Output, exit: i32) -> Value {
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(exit), "{said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {said}"))
}

/// Two activities, one after the other.
fn two_steps(id: &str) -> bosun_engine::StartWorkflow {
    let echo = |input: &str| json!({ "activity": { "type": "echo", "input": input } });
    workload::program(id, json!([echo("first"), echo("second")]))
}

/// E22, E38: `replay check` asks a running worker through its API for the runs of a query and for all open ones, while the
/// worker goes on; the same by address and token; what fits nothing is an error.
#[test]
fn replay_check_reads_the_runs_of_a_running_worker() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    let (mut worker, http) = WorkerProcess::start(&Program::bosun_worker().unwrap(), data, READY_MAX).unwrap();
    for id in ["closed/1", "closed/2"] {
        http.start(&two_steps(id)).acknowledged().unwrap();
        http.result(&escape(id), PATIENCE).unwrap().expect("it ends");
    }
    http.start(&workload::mixed("open", 1)).acknowledged().unwrap();

    let all = ["replay", "check", "--query", "WorkflowType = 'kitchen-sink'", "--prefixes", "all", "-o", "json"];
    let told = json_of(&run(data, &all), 0);
    assert_eq!((&told["fit"], &told["do_not_fit"], &told["unreadable"]), (&json!(3), &json!(0), &json!(0)));
    let told = json_of(&run(data, &["replay", "check", "--open", "-o", "json"]), 0);
    assert_eq!(told["histories"][0]["source"], "open", "{told}");
    // From elsewhere: no data directory, only an address and a token file.
    let endpoint = worker.endpoint().unwrap();
    let (address, token) = (format!("http://{}", endpoint.address), data.join("token"));
    let elsewhere = tempfile::tempdir().unwrap();
    let named = ["--address", &address, "--token-file", token.to_str().unwrap()];
    let words = [&["replay", "check", "--open", "-o", "json"][..], &named].concat();
    assert_eq!(json_of(&run(elsewhere.path(), &words), 0)["fit"], json!(1));
    let nothing = run(data, &["replay", "check", "--query", "WorkflowType = 'nobody'"]);
    assert_eq!(nothing.status.code(), Some(30), "{}", String::from_utf8_lossy(&nothing.stderr));

    // An id with a slash is a run, to export as to show.
    let exported = run(data, &["export", "closed/1"]);
    assert_eq!(exported.status.code(), Some(0), "{}", String::from_utf8_lossy(&exported.stderr));
    let file = elsewhere.path().join("closed.json");
    std::fs::write(&file, &exported.stdout).unwrap();
    // And the file is gone on from, through the API.
    let forked = run(data, &["fork", file.to_str().unwrap(), "--set-result", "echo#1=\"other\"", "--id", "of-file"]);
    assert_eq!(forked.status.code(), Some(0), "{}", String::from_utf8_lossy(&forked.stderr));
    let ended = http.result("of-file", PATIENCE).unwrap().expect("it ends");
    assert_eq!(ended.outcome.status(), WorkflowStatus::Completed);

    // The worker is the one that was there before, and carries the open run on.
    http.signal("open", workload::SIGNAL, &Value::Null, "r").acknowledged().unwrap();
    assert!(http.result("open", PATIENCE).unwrap().is_some());
    worker.terminate().unwrap();
    assert!(worker.wait(PATIENCE).unwrap().expect("a drain ends").success());
    // Without the worker the same question is answered from the directory.
    assert_eq!(json_of(&run(data, &all), 0)["fit"], json!(4));
}

/// The fork as the command says it: its run id, or nothing when the command failed.
fn fork(data: &Path, id: &str) -> Command {
    let set = "echo#1=\"other\"";
    command(data, &["fork", "source", "--set-result", set, "--id", id, "--request-id", id, "-o", "json"])
}

fn run_id(output: &Output) -> Option<RunId> {
    if !output.status.success() {
        return None;
    }
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    Some(told["run_id"].as_str().unwrap().parse().unwrap())
}

/// E20, G2, G12: the worker, or the command itself where no worker is, is killed with -9 while a fork is made and after it.
/// After a restart the fork is there once, under the id that was acknowledged, completes, and replays.
/// `BOSUN_FORK_KILLS=100` for more.
#[test]
fn a_fork_over_kill_9_exists_once_and_completes() {
    let mut chance = Chance::from_env("a_fork_over_kill_9_exists_once_and_completes");
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    let program = Program::bosun_worker().unwrap();
    let (mut worker, http) = WorkerProcess::start(&program, data, READY_MAX).unwrap();
    http.start(&two_steps("source")).acknowledged().unwrap();
    http.result("source", PATIENCE).unwrap().expect("it ends");
    let (mut acknowledged, mut unanswered) = (0, 0);
    let rounds = count_from_env("BOSUN_FORK_KILLS", 9);
    for round in 0..rounds {
        let id = format!("fork-{round}");
        let first = if round % 3 == 2 {
            // Embedded: nobody holds the directory, and the command is what is killed.
            worker.kill().unwrap();
            let mut forking = fork(data, &id).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(chance.below(120_000)));
            forking.kill().unwrap();
            forking.wait_with_output().unwrap()
        } else {
            let forking = fork(data, &id).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(chance.below(60_000)));
            worker.kill().unwrap();
            forking.wait_with_output().unwrap()
        };
        let first = run_id(&first);
        (acknowledged, unanswered) =
            (acknowledged + u32::from(first.is_some()), unanswered + u32::from(first.is_none()));
        let (restarted, http) = WorkerProcess::start(&program, data, READY_MAX).unwrap();
        worker = restarted;
        let retried = fork(data, &id).output().unwrap();
        let second = run_id(&retried).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&retried.stderr)));
        assert!(first.is_none_or(|first| first == second), "{id}: {first:?} and {second}");
        let ended = http.result(&id, PATIENCE).unwrap().expect("it ends");
        assert_eq!((ended.run_id, ended.outcome.status()), (second, WorkflowStatus::Completed), "{id}");
        assert_eq!(http.count(&format!("WorkflowId = '{id}'")).unwrap(), 1, "{id} exists once");
    }
    let told = json_of(
        &run(
            data,
            &["replay", "check", "--query", "WorkflowId STARTS_WITH 'fork-'", "--prefixes", "all", "-o", "json"],
        ),
        0,
    );
    assert_eq!(told["fit"], json!(rounds));
    let verified = run(data, &["store", "verify", "-o", "json"]);
    assert_eq!(json_of(&verified, 0)["ok"], json!(true));
    say(&format!("forks over kill -9: {acknowledged} acknowledged before it, {unanswered} not"));
}
