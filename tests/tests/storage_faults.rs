//! Storage errors: the n-th system call of the real worker fails, from outside, and it must stop acknowledging.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bosun_tests::harness::crash::{Outcome, READY_MAX};
use bosun_tests::harness::faults::Injection;
use bosun_tests::harness::ledger::Ledger;
use bosun_tests::harness::load::{Load, Shape};
use bosun_tests::harness::process::{Program, REQUEST_MAX, WorkerProcess};
use bosun_tests::harness::{count_from_env, say};

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
            let until = Instant::now() + Duration::from_secs(2);
            while injection.hits() == 0 && Instant::now() < until && worker.wait(Duration::ZERO).unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(20));
            }
            std::thread::sleep(Duration::from_millis(200));
            if injection.hits() > 0 && must_stop {
                let until = Instant::now() + REQUEST_MAX;
                let stopped = |worker: &mut WorkerProcess| {
                    worker.wait(Duration::ZERO).unwrap().is_some() || http.healthz().is_ok_and(|status| status == 503)
                };
                while !stopped(&mut worker) {
                    assert!(Instant::now() < until, "{what}: the worker goes on as if nothing were\n{}", worker.said());
                    std::thread::sleep(Duration::from_millis(20));
                }
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

/// G4: after the first storage error nothing is acknowledged that does not survive, nothing hangs, and without the
/// error a restart has everything. `BOSUN_FAULTS=400` for the full count.
#[test]
fn no_acknowledgement_after_a_storage_error_is_lost() {
    if !Injection::available_or_explain() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let program = Program::bosun_worker().unwrap();
    let ledger = Arc::new(Ledger::create(&dir.path().join("ledger.jsonl")).unwrap());
    // The files must exist before a fault can be aimed at them.
    let (mut first, _) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    first.kill().unwrap();
    let (faults, mut reached) = (count_from_env("BOSUN_FAULTS", 12), 0);
    let mut outcome = Outcome::default();
    for n in 0..faults {
        let (calls, must_stop) = CALLS[n as usize % CALLS.len()];
        let round = n / CALLS.len() as u32;
        let aimed = matches!(calls, "write" | "openat");
        let injection = Injection {
            calls,
            error: if round.is_multiple_of(2) { "EIO" } else { "ENOSPC" },
            // Early ones hit the start and the recovery, later ones the work.
            when: 1 + round * 3,
            for_ever: true,
            paths: if aimed { files_under(&data) } else { Vec::new() },
            trace: dir.path().join(format!("trace-{n}")),
        };
        let shape = Shape { prefix: format!("f{n}"), clients: 4, ..Shape::default() };
        let load = Load::start(ledger.clone(), shape);
        reached += u32::from(one_fault(&program, &data, &injection, must_stop, load));
        let mut after = Outcome::default();
        let recovered = outcome.recover(&program, &data).unwrap();
        let (mut worker, http) = recovered.unwrap_or_else(|| panic!("after {injection:?}: {}", outcome.unopenable[0]));
        after.compare(&http, &ledger).unwrap();
        assert!(after.differences.is_empty(), "after {injection:?}: {}", after.differences);
        assert!(after.violations.is_empty(), "after {injection:?}: {:?}", after.violations);
        worker.kill().unwrap();
    }
    say(&format!("storage faults: {reached} of {faults} reached, {} acknowledged", ledger.acknowledged_count()));
    assert!(reached * 2 >= faults, "only {reached} of {faults} faults were reached");
}
