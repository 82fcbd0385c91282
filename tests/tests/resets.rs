//! Resets by the shipped binary: attached and embedded, what is said and with which exit code, and over kill -9 (
//! E26, G11, G17).

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use bosun_tests::harness::Chance;
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess};
use bosun_tests::harness::workload::program;
use serde_json::{Value, json};

use crate::supervisor_cli::{run, said};

#[track_caller]
pub(crate) fn ok(data: &Path, words: &[&str]) -> Output {
    let output = run(data, words);
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    output
}

/// What a verb says as JSON.
#[track_caller]
pub(crate) fn told(data: &Path, words: &[&str]) -> Value {
    let output = ok(data, &[words, &["-o", "json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {}", said(&output)))
}

/// A verb that is refused, with its exit code.
#[track_caller]
fn refused(data: &Path, words: &[&str], code: i32) -> String {
    let output = run(data, words);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {}", said(&output));
    said(&output)
}

/// An activity, a signal, an activity, a signal.
fn two_steps() -> Value {
    let step =
        |n: u32| [json!({ "activity": { "type": "echo", "input": n } }), json!({ "wait_signal": { "name": "go" } })];
    json!([step(1), step(2)].concat())
}

/// The numbers of events of one kind.
fn events(data: &Path, id: &str, kind: &str) -> Vec<u64> {
    let history = told(data, &["show", id]);
    let events = history["events"].as_array().unwrap_or_else(|| panic!("{history:#}"));
    let of = |event: &&Value| event["type"] == kind;
    events.iter().filter(of).map(|event| event["id"].as_u64().unwrap_or_else(|| panic!("{event:#}"))).collect()
}

/// E26: told first, asked, done, seen from both runs, followed by whoever waits; with a worker and without one.
#[test]
fn a_run_is_reset_by_the_command_line_with_a_worker_and_without() {
    for attached in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let program_of_worker = Program::bosun_worker().unwrap();
        let (mut worker, http) = WorkerProcess::start(&program_of_worker, &data, READY_MAX).unwrap();
        http.start(&program("steps", two_steps())).acknowledged().unwrap();
        http.signal("steps", "go", &json!(1), "first").acknowledged().unwrap();
        wait_for(&data, "steps", "ActivityTaskCompleted", 2);
        if !attached {
            worker.kill().unwrap();
        }
        let before = told(&data, &["describe", "steps"])["workflow"]["run_id"].clone();
        let second = events(&data, "steps", "ActivityTaskScheduled")[1].to_string();
        let dry = told(&data, &["reset", "steps", "--to", &second, "--dry-run"]);
        assert_eq!((dry["run_id"].clone(), dry["dry_run"].clone()), (Value::Null, json!(true)), "{dry:#}");
        assert_eq!(told(&data, &["count"])["count"], 1, "a dry run writes nothing");
        let asked = refused(&data, &["reset", "steps", "--to", &second, "--no-input"], 32);
        assert!(asked.contains("end the open run"), "{asked}");
        let done = told(&data, &["reset", "steps", "--to", &second, "--yes", "--reason", "bad step"]);
        assert_eq!((&done["terminated"], &done["plan"]), (&before, &dry["plan"]), "{done:#}");
        if !attached {
            worker = WorkerProcess::start(&program_of_worker, &data, READY_MAX).unwrap().0;
        }
        wait_for(&data, "steps", "ActivityTaskCompleted", 2);
        let text = said(&ok(&data, &["describe", "steps"]));
        assert!(text.contains("reset from") && text.contains(before.as_str().unwrap()), "{text}");
        let old = said(&ok(&data, &["describe", "-w", "steps", "-r", before.as_str().unwrap()]));
        assert!(old.contains("next run") && old.contains(done["run_id"].as_str().unwrap()), "{old}");
        assert!(old.contains("bad step"), "{old}");
        let http = worker.wait_ready(READY_MAX).unwrap();
        http.signal("steps", "go", &json!(2), "second").acknowledged().unwrap();
        let ended = told(&data, &["result", "-w", "steps", "-r", before.as_str().unwrap()]);
        assert_eq!(ended["run_id"], done["run_id"], "whoever waits for the old run goes on to the new one: {ended:#}");
        ok(&data, &["replay", "check", "--query", "WorkflowId = 'steps'"]);
        // A run that has ended is begun anew without a question; who asks twice finds what was made.
        let again = ["reset", "steps", "--to", "first-turn", "--request-id", "once"];
        let made = told(&data, &again);
        assert_eq!(told(&data, &again)["run_id"], made["run_id"]);
        assert_eq!(told(&data, &["count"])["count"], 3);
        refused(&data, &["reset", "nobody", "--to", "first-turn"], 30);
        let usage = refused(&data, &["reset", "steps", "--to", "yesterday"], 2);
        assert!(usage.contains("does not name a point of a history"), "{usage}");
        let far = refused(&data, &["reset", "steps", "--to", "999", "--yes"], 2);
        assert!(far.contains("event 999"), "{far}");
        worker.kill().unwrap();
    }
}

/// What waits for a person in a workflow: the id, and the run that asks.
fn asked(data: &Path, other_than: Option<&str>) -> (String, String) {
    let began = std::time::Instant::now();
    loop {
        let run_id = told(data, &["describe", "gated"])["workflow"]["run_id"].as_str().unwrap().to_owned();
        let waiting = told(data, &["approval", "list", "gated"])["waiting"].clone();
        if let Some(id) = waiting[0]["request"]["id"].as_str().filter(|_| other_than != Some(run_id.as_str())) {
            return (id.to_owned(), run_id);
        }
        assert!(began.elapsed() < READY_MAX, "nobody is asked: {waiting}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A supervisor is reset while it waits for an approval: back to its beginning it asks anew, and an answer to the old request
/// decides nothing; back to its last turn it still asks, and one answer lets it end. Nothing happens twice.
#[test]
fn a_run_is_reset_while_a_person_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (data, spec) = (dir.path().join("data"), dir.path().join("gated.yaml"));
    std::fs::write(&spec, crate::supervisor_cli::GATED).unwrap();
    let (mut worker, _) = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    let words = ["run", spec.to_str().unwrap(), "-w", "gated"];
    let runner = crate::supervisor_cli::command(&data, &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _runner = crate::supervisor_cli::Runner(runner.unwrap());
    let began = std::time::Instant::now();
    while !run(&data, &["describe", "gated"]).status.success() {
        assert!(began.elapsed() < READY_MAX, "it does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (first, run_1) = asked(&data, None);
    ok(&data, &["reset", "gated", "--to", "first-turn", "--yes", "--reason", "plan it again"]);
    let (second, run_2) = asked(&data, Some(&run_1));
    assert_ne!(first, second, "it is another question");
    let late = refused(&data, &["approval", "approve", &first], 30);
    assert!(late.contains("waits for a person"), "{late}");
    ok(&data, &["reset", "gated", "--to", "last-turn", "--yes"]);
    let (third, run_3) = asked(&data, Some(&run_2));
    assert_ne!(run_3, run_2);
    ok(&data, &["approval", "approve", &third, "--run", &run_3]);
    let ended = told(&data, &["result", "gated", "--timeout", "60s"]);
    assert_eq!(ended["run_id"], json!(run_3), "{ended:#}");
    let history = said(&ok(&data, &["show", "gated", "-o", "jsonl"]));
    let published = |line: &&str| line.contains("ActivityTaskScheduled") && line.contains("\"key\":\"execute/tell/1\"");
    assert_eq!(history.lines().filter(published).count(), 1, "published once: {history}");
    for run_id in [&run_1, &run_2, &run_3] {
        ok(&data, &["replay", "check", "--query", &format!("RunId = '{run_id}'")]);
    }
    worker.kill().unwrap();
}

fn wait_for(data: &Path, id: &str, kind: &str, times: usize) {
    let began = std::time::Instant::now();
    while events(data, id, kind).len() < times {
        assert!(began.elapsed() < READY_MAX, "{id} has no {times} {kind}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// G2, G11, G17, E26: a worker that is killed while it resets, again and again: each reset is made once, one run is open at any
/// time, and the signals are all there.
#[test]
fn resets_survive_kill_9_in_their_midst() {
    let mut chance = Chance::from_env("resets_survive_kill_9_in_their_midst");
    let dir = tempfile::tempdir().unwrap();
    let (data, worker_program) = (dir.path().join("data"), Program::bosun_worker().unwrap());
    let (mut worker, http) = WorkerProcess::start(&worker_program, &data, READY_MAX).unwrap();
    let waits: Vec<Value> = (0..12).map(|_| json!({ "wait_signal": { "name": "go" } })).collect();
    http.start(&program("waits", json!(waits))).acknowledged().unwrap();
    // How long a reset takes differs from machine to machine: a kill that came too late makes the next one come sooner.
    let (mut made, mut in_the_midst, mut latest) = (Vec::new(), 0, 15_000);
    for round in 0..10 {
        let (name, key) = (format!("signal-{round}"), format!("reset-{round}"));
        let http = worker.wait_ready(READY_MAX).unwrap();
        http.signal("waits", "go", &json!(round), &name).acknowledged().unwrap();
        let words = ["reset", "waits", "--to", "first-turn", "--yes", "--request-id", &key, "-o", "json"];
        let key_header = format!("Idempotency-Key: {key}");
        let asked = std::thread::spawn(move || {
            let body = json!({ "to": "first-turn" }).to_string();
            http.request_with("POST", "/api/v1/workflows/waits/reset", Some(body.as_bytes()), &[&key_header])
        });
        std::thread::sleep(Duration::from_micros(chance.below(latest)));
        worker.kill().unwrap();
        let interrupted = asked.join().unwrap().is_err();
        in_the_midst += usize::from(interrupted);
        latest = if interrupted { 15_000 } else { latest / 3 + 1 };
        worker = WorkerProcess::start(&worker_program, &data, READY_MAX).unwrap().0;
        let done = told(&data, &words[..words.len() - 2]);
        made.push(done["run_id"].as_str().unwrap().to_owned());
        let open = told(&data, &["count", "--query", "ExecutionStatus = 'Running'"]);
        assert_eq!(open["count"], 1, "round {round}");
        assert_eq!(told(&data, &["count"])["count"], round + 2, "round {round}: each is made once");
    }
    assert!(in_the_midst > 0, "no reset was interrupted");
    made.dedup();
    assert_eq!(made.len(), 10);
    for n in 10..12 {
        let http = worker.wait_ready(READY_MAX).unwrap();
        http.signal("waits", "go", &json!(n), &format!("signal-{n}")).acknowledged().unwrap();
    }
    let result =
        worker.wait_ready(READY_MAX).unwrap().result("waits", READY_MAX).unwrap().expect("it has all its signals");
    assert_eq!(result.outcome.status(), bosun_engine::WorkflowStatus::Completed);
    ok(&data, &["replay", "check", "--query", "WorkflowId = 'waits'"]);
    worker.kill().unwrap();
    ok(&data, &["store", "verify"]);
}

/// Issue 19: what waits for its next attempt is seen, tried at once, given other limits, and counted anew.
#[test]
fn a_waiting_activity_is_seen_and_changed() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (mut worker, http) = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    let input = json!({ "order_id": "o", "items": [], "cents": 1, "fail": { "times": 99, "type": "Down" } });
    let retry = json!({ "initial_interval": "1h", "maximum_attempts": 3 });
    let step =
        json!([{ "activity": { "type": "ship_order", "input": input, "retry": retry, "start_to_close": "10s" } }]);
    http.start(&program("fails", step)).acknowledged().unwrap();
    let waiting = |attempt: u64| {
        let began = std::time::Instant::now();
        loop {
            let listed = told(&data, &["activity", "list", "fails"]);
            let one = &listed["activities"][0];
            if one["attempt"] == attempt && one["state"] == "BackingOff" {
                return one["activity_id"].as_str().unwrap().to_owned();
            }
            assert!(began.elapsed() < READY_MAX, "{listed:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let activity = waiting(2);
    let text = said(&ok(&data, &["activity", "describe", "fails", &activity]));
    assert!(text.contains("BackingOff") && text.contains("last failure"), "{text}");
    ok(&data, &["activity", "retry-now", "fails", &activity, "--reason", "it is up"]);
    waiting(3);
    ok(&data, &["activity", "reset", "fails", &activity]);
    waiting(4);
    worker.kill().unwrap();
    ok(&data, &["activity", "update-options", "fails", &activity, "--maximum-attempts", "1"]);
    ok(&data, &["activity", "retry-now", "fails", &activity]);
    let worker = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    let ended = run(&data, &["result", "fails"]);
    assert_eq!(ended.status.code(), Some(10), "{}", said(&ended));
    assert!(said(&ok(&data, &["show", "fails"])).contains("it is up"));
    refused(&data, &["activity", "describe", "fails", "nobody"], 30);
    let none = refused(&data, &["activity", "update-options", "fails", &activity], 2);
    assert!(none.contains("no option is named"), "{none}");
    ok(&data, &["replay", "check", "--query", "WorkflowId = 'fails'"]);
    drop(worker);
}
