//! The figures of the requirements of the engine §4, each beside its physical limit in the same run, as medians and ratios.
//!
//! `cargo bench -p bosun-tests --bench side_by_side` measures Bosun and the raw disk; with `--features peers` also
//! duroxide on SQLite (that file is not part of CI's build). Everything Bosun acknowledges here is durable: group commit with fdatasync. A figure is the
//! median of [`ROUNDS`] rounds; rounds of the contenders take turns, so that a noisy machine hits all alike.

mod curve;
mod decide;
#[cfg(feature = "peers")]
mod duroxide_peer;
mod flows;
mod parked;
mod raw;
mod telemetry;
mod through_api;

use std::time::{Duration, Instant};

/// As in the shipped binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 5;

fn main() {
    if parked::child() || through_api::child() {
        return;
    }
    // `cargo test --benches` only checks that this builds and starts.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let filter: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| filter.is_empty() || filter.iter().any(|part| name.contains(part.as_str()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime");
    println!("{:<44} {:>14} {:>14} {:>9} {:>14}", "work", "bosun", "raw", "ratio", "duroxide");
    if wanted("decide") {
        decide();
    }
    if wanted("sequential") {
        sequential(&runtime);
    }
    for (row, runs) in
        [("F02 64 runs x 10 steps", 64), ("F03 256 runs x 10 steps", 256), ("1 024 runs x 10 steps", 1_024)]
    {
        if wanted(row) {
            concurrent(&runtime, row, runs);
        }
    }
    if wanted("curve") {
        curve::measure(&runtime);
    }
    if wanted("fan-out") {
        fan_out(&runtime);
    }
    for (bytes, runs) in PAYLOADS {
        if wanted(&format!("payload {bytes}")) {
            payloads(&runtime, bytes, runs);
        }
    }
    if wanted("signal") {
        signal(&runtime);
    }
    if wanted("starts") {
        starts(&runtime);
    }
    if wanted("telemetry") {
        telemetry::measure(&runtime);
    }
    if wanted("replay") {
        replay();
    }
    for runs in [10_000, 100_000] {
        if wanted(&format!("parked {runs}")) {
            parked::measure(&runtime, runs);
        }
    }
}

/// What a decision costs alone, at the beginning of a run and at its end.
fn decide() {
    for workflow_type in ["steps-machine", "steps"] {
        for steps in [1_000, 100_000] {
            let (early, late): (Vec<f64>, Vec<f64>) =
                (0..ROUNDS).map(|_| decide::step_cost(workflow_type, steps)).unzip();
            let (early, late) = (median(early), median(late));
            println!(
                "F08 decide, {workflow_type}, {steps} steps: {early:.0} ns a step in the first tenth, {late:.0} ns in \
                 the last: {:.2}",
                late / early
            );
        }
    }
}

/// F07: events a second of replay, at three lengths: it must stay linear; and how long it takes to come back from a
/// snapshot, which must not depend on the length.
fn replay() {
    for workflow_type in ["steps-machine", "steps"] {
        for steps in [1_000, 10_000, 100_000] {
            let rates = (0..ROUNDS).map(|_| flows::replay_speed(workflow_type, steps)).collect();
            println!("F07 replay of {steps} steps, {workflow_type}: {:.0} events/s", median(rates));
        }
    }
    for steps in [1_000, 10_000, 100_000] {
        let costs = (0..ROUNDS).map(|_| flows::resume_cost("steps-machine", steps)).collect();
        println!("E37 back from a snapshot, ten turns old, of {steps} steps: {:.0} us", median(costs));
    }
}

/// The median of rounds.
fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn row(work: &str, unit: &str, bosun: f64, raw: f64, peer: Option<f64>) {
    let peer = peer.map_or_else(|| "-".to_owned(), |peer| format!("{peer:.0} {unit}"));
    println!(
        "{work:<44} {:>14} {:>14} {:>9.2} {peer:>14}",
        format!("{bosun:.0} {unit}"),
        format!("{raw:.0} {unit}"),
        bosun / raw
    );
}

/// How long what an activity says is, in bytes, and in how many runs at once.
const PAYLOADS: [(usize, usize); 6] =
    [(100, 64), (1_024, 64), (4_096, 64), (16_384, 64), (102_400, 64), (1_048_576, 8)];

/// The CPU time of this process, in ticks of 10 ms.
fn cpu() -> Duration {
    Duration::from_millis(10 * parked::cpu_ticks(std::process::id()))
}

/// F01: one run of 400 sequential steps, per step, beside one append + fdatasync.
fn sequential(runtime: &tokio::runtime::Runtime) {
    let (mut machine, mut async_fn, mut raw, mut peer) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut api, mut used) = (Vec::new(), Duration::ZERO);
    let bench = flows::Bench::start(runtime);
    let remote = through_api::Remote::start(runtime, &[]);
    for _ in 0..ROUNDS {
        let before = cpu();
        machine.push(micros(bench.time(|| bench.run_to_end("steps-machine", 400))) / 400.0);
        used += cpu() - before;
        raw.push(micros(raw::appends(1, 400, 400)) / 400.0);
        async_fn.push(micros(bench.time(|| bench.run_to_end("steps", 400))) / 400.0);
        api.push(micros(timed(|| remote.run_many("steps-machine", 1, 400u64))) / 400.0);
        if let Some(time) = peer_steps(1, 400) {
            peer.push(micros(time) / 400.0);
        }
    }
    let peer = (!peer.is_empty()).then(|| median(peer));
    let raw = median(raw);
    row("F01 sequential step, state machine", "us", median(machine), raw, peer);
    row("F01 sequential step, async fn", "us", median(async_fn), raw, peer);
    row("F01 sequential step, through the API", "us", median(api), raw, None);
    row("F01 sequential step, state machine, CPU", "us", micros(used) / (400 * ROUNDS) as f64, raw, None);
}

/// F02, F03: steps a second over many runs, beside groups of as many appends.
fn concurrent(runtime: &tokio::runtime::Runtime, name: &str, runs: usize) {
    let (mut bosun, mut raw, mut peer) = (Vec::new(), Vec::new(), Vec::new());
    let (mut used, mut api, mut wide) = (Duration::ZERO, Vec::new(), Vec::new());
    let bench = flows::Bench::start(runtime);
    let default = through_api::Remote::start(runtime, &[]);
    let many = through_api::Remote::start(runtime, &["--slots", "2000"]);
    let steps = (runs * 10) as f64;
    for _ in 0..ROUNDS {
        let before = cpu();
        bosun.push(steps / bench.time(|| bench.run_many("steps-machine", runs, 10u64)).as_secs_f64());
        used += cpu() - before;
        raw.push(steps / raw::appends(runs, runs * 10, 220).as_secs_f64());
        api.push(steps / timed(|| default.run_many("steps-machine", runs, 10u64)).as_secs_f64());
        wide.push(steps / timed(|| many.run_many("steps-machine", runs, 10u64)).as_secs_f64());
        if let Some(time) = peer_steps(runs, 10) {
            peer.push(steps / time.as_secs_f64());
        }
    }
    let peer = (!peer.is_empty()).then(|| median(peer));
    let raw = median(raw);
    row(name, "steps/s", median(bosun), raw, peer);
    row(&format!("{name}, API, default slots"), "steps/s", median(api), raw, None);
    row(&format!("{name}, API, 2 000 slots"), "steps/s", median(wide), raw, None);
    println!("{name}: {:.1} us of CPU a step", micros(used) / (steps * ROUNDS as f64));
}

/// What agents say is long: steps a second by the length of a result, beside groups of as many appends of as many bytes.
fn payloads(runtime: &tokio::runtime::Runtime, bytes: usize, runs: usize) {
    const STEPS: u64 = 10;
    let (mut bosun, mut raw, mut used, mut api) = (Vec::new(), Vec::new(), Duration::ZERO, Vec::new());
    let bench = flows::Bench::start(runtime);
    let remote = through_api::Remote::start(runtime, &["--slots", "2000"]);
    let total = runs * STEPS as usize;
    let long = flows::Long { steps: STEPS, bytes };
    for _ in 0..ROUNDS {
        let before = cpu();
        bosun.push(total as f64 / bench.time(|| bench.run_many("long", runs, long.clone())).as_secs_f64());
        used += cpu() - before;
        raw.push(total as f64 / raw::appends(runs, total, bytes + 220).as_secs_f64());
        api.push(total as f64 / timed(|| remote.run_many("long", runs, long.clone())).as_secs_f64());
    }
    let raw = median(raw);
    row(&format!("{runs} x {STEPS}, payload {bytes} B"), "steps/s", median(bosun), raw, None);
    row(&format!("{runs} x {STEPS}, payload {bytes} B, API"), "steps/s", median(api), raw, None);
    println!("{runs} x {STEPS}, payload {bytes} B: {:.1} us of CPU a step", micros(used) / (total * ROUNDS) as f64);
}

/// F04: fan-out of 100 activities and join.
fn fan_out(runtime: &tokio::runtime::Runtime) {
    let bench = flows::Bench::start(runtime);
    let (mut bosun, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS * 3 {
        bosun.push(micros(bench.time(|| bench.run_to_end("fan-out", 100))));
        raw.push(micros(raw::appends(100, 200, 220)));
    }
    row("F04 fan-out of 100 and join", "us", median(bosun), median(raw), None);
}

/// F05: from sending a signal to the end of the run that waits for it, at once and after a rest.
fn signal(runtime: &tokio::runtime::Runtime) {
    const REST: Duration = Duration::from_millis(5);
    let bench = flows::Bench::start(runtime);
    let remote = through_api::Remote::start(runtime, &[]);
    let raw: Vec<f64> = (0..ROUNDS).map(|_| micros(raw::appends(1, 60, 220)) / 60.0).collect();
    let raw = median(raw);
    for (name, mut times) in [
        ("F05 signal to completion", bench.signal_to_completion(300, Duration::ZERO)),
        ("F05 signal after a rest", bench.signal_to_completion(300, REST)),
        ("F05 signal after a rest, API", remote.signal_to_completion(300, REST)),
    ] {
        times.sort();
        row(&format!("{name}, p50"), "us", micros(times[times.len() / 2]), raw, None);
        row(&format!("{name}, p99"), "us", micros(times[times.len() * 99 / 100]), raw, None);
    }
}

/// Starts of runs that then wait: one by one, and 16 at a time.
fn starts(runtime: &tokio::runtime::Runtime) {
    let bench = flows::Bench::start(runtime);
    let remote = through_api::Remote::start(runtime, &[]);
    for (name, at_once, count) in [("one by one", 1, 1_000), ("16 at a time", 16, 8_000)] {
        let (mut bosun, mut api, mut raw) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            bosun.push(bench.starts(count, at_once));
            api.push(remote.starts(count, at_once));
            raw.push(count as f64 / raw::appends(at_once, count, 220).as_secs_f64());
        }
        let raw = median(raw);
        row(&format!("starts, {name}"), "a second", median(bosun), raw, None);
        row(&format!("starts, {name}, API"), "a second", median(api), raw, None);
    }
}

#[cfg(feature = "peers")]
fn peer_steps(runs: usize, steps: usize) -> Option<Duration> {
    // A slow peer is measured on less of the same work, and scaled.
    let fewer = runs.min(64);
    let time = duroxide_peer::steps(fewer, steps);
    // What it leaves to the disk must not be counted as somebody else's.
    std::thread::sleep(Duration::from_millis(500));
    Some(time.mul_f64(runs as f64 / fewer as f64))
}

#[cfg(not(feature = "peers"))]
fn peer_steps(_runs: usize, _steps: usize) -> Option<Duration> {
    None
}

/// Times a closure once.
fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}
