//! What bounds one node: steps a second from 1 to 4 096 runs at once, with how many turns share a sync, what one append +
//! fdatasync of such a group takes, and the CPU time of a step. It measures, and predicts nothing.

use std::time::Duration;

use super::{ROUNDS, cpu, flows, median, micros, raw};

const RUNS: [usize; 7] = [1, 4, 16, 64, 256, 1_024, 4_096];
/// Steps of one round, of all runs together, where a run has more than the fewest.
const STEPS: usize = 5_120;
/// Steps of a run at least, and at most.
const OF_ONE: (usize, usize) = (10, 400);
/// Bytes of a step in the log, about.
const BYTES: usize = 220;

pub(crate) fn measure(runtime: &tokio::runtime::Runtime) {
    println!(
        "{:<12} {:>10} {:>10} {:>10} {:>12} {:>12}",
        "runs at once", "steps/s", "cycle, us", "a group", "its sync, us", "cpu/step, us"
    );
    for runs in RUNS {
        point(runtime, runs);
    }
}

/// One point of the curve. A cycle is the time in which every run has done a step.
fn point(runtime: &tokio::runtime::Runtime, runs: usize) {
    let bench = flows::Bench::start(runtime);
    let steps = (STEPS / runs).clamp(OF_ONE.0, OF_ONE.1);
    let all = (runs * steps) as f64;
    let (mut cycles, mut used, mut groups) = (Vec::new(), Duration::ZERO, 0);
    for _ in 0..ROUNDS {
        let (before, begun) = (cpu(), bench.groups());
        let time = bench.time(|| bench.run_many("steps-machine", runs, steps as u64));
        cycles.push(micros(time) / steps as f64);
        used += cpu() - before;
        groups += bench.groups() - begun;
    }
    let (cycle, group) = (median(cycles), all * ROUNDS as f64 / groups as f64);
    let size = (group.round() as usize).max(1);
    let sync = median((0..ROUNDS).map(|_| micros(raw::appends(size, size * 100, BYTES)) / 100.0).collect());
    let (rate, cpu) = (1e6 * runs as f64 / cycle, micros(used) / (all * ROUNDS as f64));
    println!("{runs:<12} {rate:>10.0} {cycle:>10.0} {group:>10.1} {sync:>12.0} {cpu:>12.1}");
}
