//! Timers over restarts of the real worker: none early, none lost, none twice.

use std::time::{Duration, Instant};

use bosun_engine::WorkflowStatus;
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::histories::{timer_delays, violations};
use bosun_tests::harness::process::{Program, WorkerProcess};
use bosun_tests::harness::{Chance, count_from_env, say, workload};

const TIMERS_PER_WORKFLOW: u32 = 100;

/// G14, E10: 10 000 timers over 20 kill -9, scaled by `BOSUN_TIMERS` and `BOSUN_RESTARTS`.
#[test]
fn timers_over_restarts_are_never_early_lost_or_fired_twice() {
    let mut chance = Chance::from_env("timers_over_restarts_are_never_early_lost_or_fired_twice");
    let dir = tempfile::tempdir().unwrap();
    let program = Program::bosun_worker().unwrap();
    let (timers, restarts) = (count_from_env("BOSUN_TIMERS", 10_000), count_from_env("BOSUN_RESTARTS", 20));
    let workflows: Vec<String> = (0..timers.div_ceil(TIMERS_PER_WORKFLOW)).map(|n| format!("timers-{n}")).collect();
    // Due from the first restart to a while after the last one.
    let span_ms = u64::from(restarts) * 400 + 3_000;
    let (mut worker, http) = WorkerProcess::start(&program, dir.path(), READY_MAX).unwrap();
    for id in &workflows {
        let delays: Vec<u64> = (0..TIMERS_PER_WORKFLOW).map(|_| 500 + chance.below(span_ms)).collect();
        http.start(&workload::timers(id, &delays)).acknowledged().unwrap();
    }
    let mut down = Duration::ZERO;
    for _ in 0..restarts {
        std::thread::sleep(Duration::from_millis(200 + chance.below(400)));
        let killed = Instant::now();
        worker.kill().unwrap();
        worker = WorkerProcess::spawn(&program, dir.path()).unwrap();
        worker.wait_ready(READY_MAX).unwrap();
        down = down.max(killed.elapsed());
    }
    let http = worker.wait_ready(READY_MAX).unwrap();
    let until = Instant::now() + Duration::from_millis(span_ms) + Duration::from_secs(60);
    let mut delays = Vec::new();
    for id in &workflows {
        let result = http.result(id, until.saturating_duration_since(Instant::now())).unwrap();
        let result = result.unwrap_or_else(|| panic!("{id} has not ended: a timer is lost"));
        assert_eq!(result.outcome.status(), WorkflowStatus::Completed, "{id}");
        let history = http.history(id).unwrap();
        assert_eq!(violations(&history), Vec::<String>::new(), "{id}");
        let fired = timer_delays(&history);
        assert_eq!(fired.len(), TIMERS_PER_WORKFLOW as usize, "{id}: timers fired");
        delays.extend(fired);
    }
    delays.sort_unstable();
    let late = |permille: usize| Duration::from_micros(delays[(delays.len() - 1) * permille / 1_000].unsigned_abs());
    say(&format!(
        "timers: {} fired over {restarts} restarts; late by {:?} (median), {:?} (p99), {:?} (most)",
        delays.len(),
        late(500),
        late(990),
        late(1_000)
    ));
    // Late ones waited for a restart, or two if the first worker was killed as it came to them. How long it takes to come to
    // all of them is the machine's; a timer that nobody looks after is late for ever.
    let most = 3 * down + Duration::from_secs(10);
    assert!(late(1_000) < most, "a timer was {:?} late; the worker was down for {down:?} at most", late(1_000));
}
