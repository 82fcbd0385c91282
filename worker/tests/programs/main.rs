//! Arbitrary programs of the kitchen sink, each lived under arbitrary faults with trip wires armed: no false alarm.
//!
//! `BOSUN_PROGRAMS` sets how many programs are tried; the figures are printed.

mod generate;

use std::time::Instant;

use bosun_engine::{ActivityOutcome, CloseOutcome};
use bosun_replay::determinism::{DeterminismTest, Report, armed};
use bosun_replay::simulate::{Boundary, Doubts, Plan, Versions, live, live_here};
use bosun_worker::examples;
use bosun_worker::examples::kitchen_sink::{INVALID_PROGRAM, KITCHEN_SINK};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use self::generate::{arb_program, values};

bosun_replay::trip_wires!();

fn code() -> bosun_engine::workflow::WorkflowRegistry {
    examples::register(bosun_engine::workflow::WorkflowRegistry::new())
}

fn kit() -> DeterminismTest {
    DeterminismTest::new(code(), KITCHEN_SINK)
        .input(arb_program())
        .activity("a", values())
        .activity("b", values())
        .activity("c", values())
        .signal("go", values())
        .signal("stop", values())
        .update("set_var", values().prop_map(|value| serde_json::json!({ "name": "x", "value": value })))
        .invariant("every program is valid", |run| match run.outcome() {
            Some(CloseOutcome::Failed(failure)) if failure.type_name() == INVALID_PROGRAM => Err(failure.to_string()),
            _ => Ok(()),
        })
        .query("vars", &())
        .query("position", &())
        .deploys(code().version("next"))
        .without_case_files()
}

fn number(name: &str, usual: u32) -> u32 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// G11-G18, G21, G22: no false alarm on arbitrary clean programs (0 of 10 000 with `BOSUN_PROGRAMS=10000`), and the rare
/// states are met.
#[test]
fn arbitrary_programs_give_no_alarm() {
    assert!(armed());
    let begun = Instant::now();
    let report: Report = kit().lives(number("BOSUN_PROGRAMS", 600)).run();
    let took = begun.elapsed();
    eprintln!("{report}; {:.0} programs a second", report.lives as f64 / took.as_secs_f64());
    eprintln!("never met: {:?}", report.never_met());
    // Async code has no snapshots; the other takes a pause, a signal and a run that ends at once afterwards.
    let excused = ["resumed from a snapshot", "input carried in the inbox to the next run"];
    assert!(report.never_met().iter().all(|name| excused.contains(name)), "never met: {:?}", report.never_met());
}

/// A small program drawn from a number, and nothing that happens to it but what must.
fn small_program(seed: u8) -> Plan {
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]));
    let draw = |runner: &mut TestRunner| arb_program().new_tree(runner).map(|tree| tree.current());
    let input = draw(&mut runner).expect("a strategy without filters");
    let mut plan = Plan::new(KITCHEN_SINK, bosun_engine::Payload::encode(&input).expect("JSON"));
    let done = ActivityOutcome::Completed(bosun_engine::Payload::encode(&1).expect("JSON"));
    plan.results = ["a", "b", "c"].into_iter().map(|name| (name.into(), vec![done.clone()])).collect();
    plan
}

/// G2, G11, G18: every boundary of every commit of small programs (50 with `BOSUN_ENUMERATED=50`), alone, and every pair of crashes with at most three
/// commits between them: enumerated, not sampled.
#[test]
fn every_crash_and_every_pair_of_crashes_of_small_programs_is_survived() {
    let code = Versions::of(code());
    let doubts = Doubts::default();
    let begun = Instant::now();
    let (mut programs, mut lives, mut commits) = (0, 0_u64, 0_u64);
    for seed in 0..=u8::MAX {
        let plan = small_program(seed);
        let undisturbed = live(&plan, &code, &doubts, &[]).unwrap_or_else(|why| panic!("{why}\n{plan}"));
        let most = undisturbed.commits;
        if programs == number("BOSUN_ENUMERATED", 2) || !(3..=9).contains(&most) {
            continue;
        }
        programs += 1;
        let mut lived = |crashes: &[(u32, Boundary)]| {
            let life = live_here(&plan, &code, &Doubts::without_twins(), crashes);
            let life = life.unwrap_or_else(|why| panic!("{why}\ncrashes {crashes:?}\n{plan}"));
            // An activity may lose all of its attempts to crashes; apart from that nobody sees that there were any.
            if !life.rare.contains_key("activity failed") {
                assert_eq!(life.outcome, undisturbed.outcome, "crashes {crashes:?}\n{plan}");
            }
            (lives, commits) = (lives + 1, commits + u64::from(life.commits));
        };
        for first in 0..most {
            for one in Boundary::ALL {
                lived(&[(first, one)]);
                for (second, two) in (first + 1..=first + 4).flat_map(|at| Boundary::ALL.map(|two| (at, two))) {
                    lived(&[(first, one), (second, two)]);
                }
            }
        }
    }
    let took = begun.elapsed().as_secs_f64();
    println!(
        "{programs} programs, {lives} lives with every crash and pair of crashes, {commits} commits, {:.0} lives a second",
        lives as f64 / took
    );
    assert_eq!(programs, number("BOSUN_ENUMERATED", 2));
}
