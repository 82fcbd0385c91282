//! A full disk: new work is refused, what was acknowledged stays, and with room again everything goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bosun_tests::harness::crash::{Outcome, READY_MAX};
use bosun_tests::harness::faults::SmallDisk;
use bosun_tests::harness::ledger::Ledger;
use bosun_tests::harness::load::{Load, Shape};
use bosun_tests::harness::process::{Program, REQUEST_MAX, WorkerProcess};
use bosun_tests::harness::{count_from_env, say};

const MIB: u64 = 1 << 20;

/// Waits until no more is acknowledged, or the worker has ended.
fn until_nothing_more_is_acknowledged(ledger: &Ledger, worker: &mut WorkerProcess) {
    let until = Instant::now() + REQUEST_MAX;
    let mut before = ledger.acknowledged_count();
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = ledger.acknowledged_count();
        if now == before || worker.wait(Duration::ZERO).unwrap().is_some() {
            return;
        }
        assert!(Instant::now() < until, "the worker acknowledges on a full disk: {before}, {now}");
        before = now;
    }
}

/// G5: refused, not lost; no hang; with space a restart at the latest has everything.
#[test]
fn a_full_disk_loses_nothing_and_space_brings_everything_back() {
    fill_up(3);
}

/// The same, ten times as often.
#[test]
#[ignore = "minutes: cargo full"]
fn a_disk_that_is_full_thirty_times_loses_nothing() {
    fill_up(30);
}

fn fill_up(fills: u32) {
    let Some(disk) = SmallDisk::require_or_explain(8 * MIB) else { return };
    let safe = tempfile::tempdir().unwrap();
    let ledger = Arc::new(Ledger::create(&safe.path().join("ledger.jsonl")).unwrap());
    let program = Program::bosun_worker().unwrap();
    let data = disk.dir().join("data");
    let (mut outcome, mut restarts) = (Outcome::default(), 0);
    let fills = count_from_env("BOSUN_FILLS", fills);
    for fill in 0..fills {
        let size = (8 + 56 * u64::from(fill)) * MIB;
        disk.resize(size).unwrap();
        let recovered = outcome.recover(&program, &data).unwrap();
        let (mut worker, http) = recovered.unwrap_or_else(|| panic!("{}", outcome.unopenable[0]));
        let shape = Shape { prefix: format!("d{fill}"), large_bytes: 20 << 10, ..Shape::default() };
        let load = Load::start(ledger.clone(), shape);
        load.worker_is(&http.endpoint);
        std::thread::sleep(Duration::from_millis(300));
        disk.fill().unwrap();
        until_nothing_more_is_acknowledged(&ledger, &mut worker);
        let slowest = load.slowest_request();
        assert!(slowest < REQUEST_MAX, "a request took {slowest:?} on a full disk");
        load.stop().unwrap();
        disk.free().unwrap();
        disk.resize(size + 56 * MIB).unwrap();
        // It may go on by itself; if not, a restart must do.
        let http = if http.readyz().is_ok_and(|status| status == 200) {
            http
        } else {
            restarts += 1;
            worker.kill().unwrap();
            worker = WorkerProcess::spawn(&program, &data).unwrap();
            worker.wait_ready(READY_MAX).unwrap()
        };
        let mut after = Outcome::default();
        after.compare(&http, &ledger).unwrap();
        after.assert_clean(&format!("full disk, round {fill}"));
        worker.kill().unwrap();
    }
    say(&format!("full disk: {fills} times, {restarts} restarts, {} acknowledged", ledger.acknowledged_count()));
}
