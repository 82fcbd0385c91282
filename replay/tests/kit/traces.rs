//! The simulator is as deterministic as it asks others to be.
//!
//! Invariant: a seed decides everything: what happens, in which order, and every byte of the histories. Not tested here is
//! what a search makes of failures (`search`).

use std::collections::BTreeSet;

use bosun_engine::hex;
use bosun_replay::determinism::DeterminismTest;
use bosun_replay::simulate::{Doubts, PlanFaults, Versions, live_here};

use crate::clean::{code, orders};

const SEEDS: u64 = 1_000;
const NAME: &str = "traces::the_same_seed_gives_the_same_trace_and_another_seed_another";

fn test() -> DeterminismTest {
    orders().without_case_files()
}

/// The traces of all seeds, in order, lived on so many threads.
fn traces(threads: u64) -> Vec<String> {
    let share = |first: u64| {
        let (test, versions, doubts) = (test(), Versions::of(code()), Doubts::without_twins());
        let traced = |seed| {
            let plan = test.plan(seed).expect("strategies without filters");
            let life = live_here(&plan, &versions, &doubts, &PlanFaults::default());
            hex(&life.unwrap_or_else(|why| panic!("{why}\n{plan}")).trace())
        };
        (first..SEEDS).step_by(threads as usize).map(traced).collect::<Vec<_>>()
    };
    let share = &share;
    let shares: Vec<Vec<String>> = std::thread::scope(|scope| {
        let living: Vec<_> = (0..threads).map(|first| scope.spawn(move || share(first))).collect();
        living.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (0..SEEDS as usize).map(|n| shares[n % threads as usize][n / threads as usize].clone()).collect()
}

/// Engine.md §3, meta tests: a thousand seeds, twice, in another process and with another number of threads, give the same
/// traces; of different seeds at least 99 of a hundred give different ones.
#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    if let Some(threads) = std::env::var("BOSUN_TRACES").ok().and_then(|text| text.parse().ok()) {
        return println!("traces {}", traces(threads).join(" "));
    }
    let here = traces(1);
    assert_eq!(here, traces(3), "with three threads");
    for threads in ["1", "4"] {
        let there = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env("BOSUN_TRACES", threads)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&there.stdout);
        let told = said.lines().find_map(|line| Some(line.split_once("traces ")?.1));
        assert_eq!(told, Some(here.join(" ").as_str()), "in another process with {threads} threads");
    }
    let different: BTreeSet<&String> = here.iter().collect();
    println!("{SEEDS} seeds give {} different traces", different.len());
    assert!(different.len() as u64 * 100 >= SEEDS * 99, "only {} of {SEEDS} traces differ", different.len());
}
