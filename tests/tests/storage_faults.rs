//! Storage errors: the n-th system call of the real worker fails, from outside, and it must stop acknowledging.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bosun_tests::harness::crash::{Outcome, READY_MAX};
use bosun_tests::harness::faults::Injection;
use bosun_tests::harness::ledger::Ledger;
use bosun_tests::harness::load::{Load, Shape};
use bosun_tests::harness::process::{Program, REQUEST_MAX, WorkerProcess, bosun};
use bosun_tests::harness::{Chance, count_from_env, say};
use serde_json::json;

use crate::doors::{did, file};

/// The documented exit code of a worker whose log failed.
const STORAGE_FAILED: i32 = 74;

/// Calls and whether a failure of one must stop the worker: a failed sync or write of the log must, a failed rename of
/// something that can be written again need not.
const CALLS: [(&str, bool); 6] = [
    ("fdatasync,fsync", true),
    ("pwrite64", true),
    ("ftruncate", false),
    ("rename,renameat,renameat2", false),
    ("write", false),
    ("openat", false),
];

/// Everything in a directory, the directory too.
fn files_under(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.path().is_dir() {
            found.extend(files_under(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

/// Runs the worker with one fault under load. True if the fault was reached.
fn one_fault(program: &Program, data: &Path, injection: &Injection, must_stop: bool, load: Load) -> bool {
    let what = format!("{} of {} from the {}. call", injection.error, injection.calls, injection.when);
    let mut worker = WorkerProcess::spawn(&program.clone().wrapped(injection.wrapper()), data).unwrap();
    match worker.wait_ready(READY_MAX) {
        Ok(http) => {
            load.worker_is(&http.endpoint);
            // Every worker under load makes the calls that must stop it; the others may not come.
            let until = Instant::now() + if must_stop { REQUEST_MAX } else { Duration::from_secs(2) };
            while injection.hits() == 0 && Instant::now() < until && worker.wait(Duration::ZERO).unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(20));
            }
            std::thread::sleep(Duration::from_millis(200));
            if injection.hits() > 0 && must_stop {
                let ended = worker.wait(REQUEST_MAX).unwrap();
                let code = ended.and_then(|status| status.code());
                assert_eq!(code, Some(STORAGE_FAILED), "{what}: {ended:?}\n{}", worker.said());
            }
        }
        // It may refuse to start on a failing disk, but not hang.
        Err(why) => {
            let ended = worker.wait(REQUEST_MAX).unwrap();
            assert!(ended.is_some(), "{what}: neither ready nor ended: {why}");
        }
    }
    worker.kill().unwrap();
    let slowest = load.slowest_request();
    assert!(slowest < REQUEST_MAX, "{what}: a request took {slowest:?}");
    load.stop().unwrap_or_else(|why| panic!("{what}: {why}"));
    injection.hits() > 0
}

/// One fault of each kind in a fresh directory; `first` is the number of the first. Gives how many were reached.
fn one_pass(program: &Program, first: u32, faults: u32) -> (u32, usize) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let ledger = Arc::new(Ledger::create(&dir.path().join("ledger.jsonl")).unwrap());
    // The files must exist before a fault can be aimed at them.
    let (mut worker, _) = WorkerProcess::start(program, &data, READY_MAX).unwrap();
    worker.kill().unwrap();
    let pass = first / CALLS.len() as u32;
    let mut reached = 0;
    for (n, (calls, must_stop)) in (first..faults).zip(CALLS) {
        let aimed = matches!(calls, "write" | "openat");
        let injection = Injection {
            calls,
            error: if pass.is_multiple_of(2) { "EIO" } else { "ENOSPC" },
            // Early ones hit the start and the recovery, later ones the work.
            when: 1 + pass * 3,
            last: None,
            paths: if aimed { files_under(&data) } else { Vec::new() },
            trace: dir.path().join(format!("trace-{n}")),
        };
        let load = Load::start(ledger.clone(), Shape { prefix: format!("f{n}"), clients: 4, ..Shape::default() });
        let hit = one_fault(program, &data, &injection, must_stop, load);
        println!("{} of {calls} from call {}: reached: {hit}", injection.error, injection.when);
        reached += u32::from(hit);
        // Others are rare or go to files that do not exist yet; these every worker under load makes at once.
        assert!(hit || !must_stop || injection.when > 20, "{injection:?} was not reached");
        let mut outcome = Outcome::default();
        let recovered = outcome.recover(program, &data).unwrap();
        let (mut worker, http) = recovered.unwrap_or_else(|| panic!("after {injection:?}: {}", outcome.unopenable[0]));
        outcome.compare(&http, &ledger).unwrap();
        assert!(outcome.differences.is_empty(), "after {injection:?}: {}", outcome.differences);
        assert!(outcome.violations.is_empty(), "after {injection:?}: {:?}", outcome.violations);
        worker.kill().unwrap();
    }
    (reached, ledger.acknowledged_count())
}

/// G4: after the first storage error nothing is acknowledged that does not survive, the worker leaves with 74, nothing
/// hangs, and without the error a restart has everything.
#[test]
fn no_acknowledgement_after_a_storage_error_is_lost() {
    fail_storage(12);
}

/// The same, thirty times as often.
#[test]
#[ignore = "minutes: cargo full"]
fn no_acknowledgement_after_any_of_four_hundred_storage_errors_is_lost() {
    fail_storage(400);
}

/// G28: a read of a payload that fails once is no loss: a salvage marks nothing, and says of no file that it is damaged; a worker
/// holds nothing.
#[test]
fn one_failed_read_of_a_payload_costs_nothing() {
    if !Injection::available_or_explain() {
        return;
    }
    let mut chance = Chance::from_env("one_failed_read_of_a_payload_costs_nothing");
    let dir = tempfile::tempdir().unwrap();
    let [data, salvaged] = ["data", "salvaged"].map(|name| dir.path().join(name));
    let pad: String = (0..200_000).map(|_| char::from(b'a' + chance.below(26) as u8)).collect();
    let program =
        json!({ "vars": { "pad": pad }, "steps": [{ "wait_signal": { "name": "go" } }, { "return": "done" }] });
    let input = format!("@{}", file(dir.path(), "program.json", &program.to_string()).display());
    for id in ["one", "two"] {
        did(&data, &["start", "kitchen-sink", "-w", id, "--input", &input]);
    }
    let payloads = files_under(&data.join("payloads"));
    let injection = |name: &str| Injection {
        calls: "read",
        error: "EIO",
        when: 1,
        last: Some(1),
        paths: payloads.iter().filter(|path| path.is_file()).cloned().collect(),
        trace: dir.path().join(name),
    };
    let injected = injection("salvage");
    let words = injected.wrapper();
    let told = std::process::Command::new(&words[0])
        .args(&words[1..])
        .arg(bosun().unwrap())
        .args(["store", "salvage", data.to_str().unwrap(), "--to", salvaged.to_str().unwrap()])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(injected.hits() > 0, "the read was not reached: {told}");
    for line in ["runs whole     2", "runs held      none", "damage         none"] {
        assert!(told.contains(line), "{line:?} is missing in {told}");
    }
    let injected = injection("worker");
    let program = Program::bosun_worker().unwrap().wrapped(injected.wrapper());
    let (mut worker, _http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    for id in ["one", "two"] {
        did(&data, &["signal", id, "go"]);
        assert_eq!(did(&data, &["result", id]).trim(), "done");
    }
    assert!(injected.hits() > 0, "the read was not reached");
    worker.kill().unwrap();
    assert!(did(&salvaged, &["describe", "one"]).contains("Running"));
}

fn fail_storage(faults: u32) {
    if !Injection::available_or_explain() {
        return;
    }
    let program = Program::bosun_worker().unwrap();
    let faults = count_from_env("BOSUN_FAULTS", faults);
    let passes = (0..faults).step_by(CALLS.len()).map(|first| one_pass(&program, first, faults));
    let (reached, acknowledged) = passes.fold((0, 0), |sum, pass| (sum.0 + pass.0, sum.1 + pass.1));
    say(&format!("storage faults: {reached} of {faults} reached, {acknowledged} acknowledged"));
}
