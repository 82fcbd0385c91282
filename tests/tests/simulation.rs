//! The whole engine, simulated: arbitrary programs, clients, faults and orders of steps, each life from one seed.
//!
//! `BOSUN_LIVES` sets how many lives are lived; the figures are printed. A life that fails prints its seed; run it again
//! with `BOSUN_LIFE=seed`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bosun_replay::simulate::engine::{ENGINE_RARE, EngineFailure, EngineLife, EnginePlan, live_engine};
use bosun_tests::harness::simulated::plan;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

#[path = "../../worker/tests/programs/generate.rs"]
mod generate;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The plan of a seed: one to three programs, and choices.
fn plan_of(seed: u64) -> EnginePlan {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let programs = proptest::collection::vec(generate::arb_program(), 1..4);
    let programs = programs.new_tree(&mut runner).expect("a strategy without filters").current();
    plan(&programs).seeded(seed, 40 + (seed % 7) as usize * 60)
}

fn live_seed(seed: u64) -> Result<EngineLife, EngineFailure> {
    live_engine(&plan_of(seed))
}

/// Everything a reader needs of a life that failed.
fn told(seed: u64, why: &EngineFailure) -> String {
    format!("BOSUN_LIFE={seed}\n{}\n{why}", plan_of(seed).describe())
}

/// G1-G6, G11-G22, G36: clients, programs, crashes, storage errors and every order of steps, by seed; and the rare states
/// are met.
#[test]
fn the_engine_keeps_its_word_in_every_simulated_life() {
    if let Ok(seed) = std::env::var("BOSUN_LIFE") {
        let seed = seed.parse().expect("a seed");
        let life = live_seed(seed).unwrap_or_else(|why| panic!("{}", told(seed, &why)));
        println!("{} steps, {} groups, {} restarts", life.steps, life.groups, life.restarts);
        return;
    }
    let lives = number("BOSUN_LIVES", 2_000);
    let (next, begun) = (AtomicU64::new(0), Instant::now());
    let totals: Mutex<(BTreeMap<&'static str, u64>, [u64; 4])> = Mutex::default();
    let failures: Mutex<BTreeMap<u64, EngineFailure>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= lives {
                        return;
                    }
                    let life = match live_seed(seed) {
                        Ok(life) => life,
                        Err(why) => {
                            failures.lock().expect("no thread has panicked here").insert(seed, why);
                            continue;
                        }
                    };
                    let mut totals = totals.lock().expect("no thread has panicked here");
                    life.rare.iter().for_each(|(name, times)| *totals.0.entry(name).or_default() += times);
                    let figures = [life.histories.len() as u64, life.steps, life.groups, u64::from(life.restarts)];
                    totals.1.iter_mut().zip(figures).for_each(|(total, figure)| *total += figure);
                }
            });
        }
    });
    let (rare, [histories, steps, groups, restarts]) = totals.into_inner().expect("no thread has panicked");
    let rate = lives as f64 / begun.elapsed().as_secs_f64();
    println!(
        "{lives} lives: {histories} histories, {steps} steps, {groups} groups, {restarts} restarts; {rate:.0} lives a second"
    );
    let failures = failures.into_inner().expect("no thread has panicked");
    for (seed, why) in failures.iter().take(20) {
        println!("BOSUN_LIFE={seed}: {}: {:.300}", why.id, why.why);
    }
    if let Some((seed, why)) = failures.first_key_value() {
        panic!("{} of {lives} lives have failed; the first: {}", failures.len(), told(*seed, why));
    }
    for name in ENGINE_RARE {
        println!("{:>9} {name}", rare.get(name).copied().unwrap_or_default());
    }
    let never: Vec<&&str> = ENGINE_RARE.iter().filter(|name| !rare.contains_key(*name)).collect();
    assert!(never.is_empty(), "never met: {never:?}");
}
