//! Every crash and every pair of crashes of small programs, undisturbed otherwise, and with every run evicted after every
//! commit, and with everything that arrives arriving twice: enumerated, not sampled.
//!
//! Invariant: nobody sees that there were crashes: the outcome is that of the life without them. The one exception is an
//! activity that lost all of its attempts to them. Programs with more commits than [`COMMITS`] are too large to enumerate.

use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bosun_engine::{ActivityOutcome, Payload};
use bosun_replay::determinism::Report;
use bosun_replay::simulate::{Boundary, Doubts, Life, LifePlan, LifeStep, PlanFaults, Versions, live, live_here};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// How many programs of each form, at full scale and in every run of the tests.
const PROGRAMS: usize = 50;
const SAMPLE: usize = 5;
const COMMITS: RangeInclusive<u32> = 3..=9;
/// Commits between the two crashes of a pair.
const BETWEEN: u32 = 3;

/// A program, and the code that runs it.
struct Small {
    plan: LifePlan,
    code: Versions,
    boundaries: Vec<Boundary>,
}

/// G2, G11, G18, E37: every boundary of every commit of some small programs of the kitchen sink, and of some small state
/// machines, alone and in pairs, evicted or not, duplicated or not.
#[test]
fn every_crash_and_every_pair_of_crashes_of_small_programs_is_survived() {
    crash_everywhere(SAMPLE);
}

/// The same with 50 of each.
#[test]
#[ignore = "minutes: cargo full"]
fn every_crash_and_every_pair_of_crashes_of_a_hundred_programs_is_survived() {
    crash_everywhere(PROGRAMS);
}

fn crash_everywhere(count: usize) {
    let begun = Instant::now();
    let mut programs = small(crate::kit::KIND, &crate::kit::code(), &crate::generate::arb_program(), (count, false));
    programs.extend(small(crate::ladder::KIND, &crate::ladder::code(), &crate::ladder::arb_ladder(), (count, true)));
    assert_eq!(programs.len(), 2 * count);
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Report::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let report = program.every_crash();
                    all.lock().unwrap().merge(&report);
                }
            });
        }
    });
    let all = all.into_inner().unwrap();
    let rate = all.lives as f64 / begun.elapsed().as_secs_f64();
    let programs = programs.len();
    crate::kit::tell(&format!(
        "every crash and pair of crashes of {programs} programs: {all}; {rate:.0} lives a second"
    ));
    for name in ["crash in recovery", "crash with a snapshot kept", "resumed from a snapshot and turns after it"] {
        assert!(all.rare.contains_key(name), "never met: {name}");
    }
}

/// The first so many programs that are small, from numbers; some take snapshots.
fn small(
    kind: &str,
    code: &bosun_engine::workflow::WorkflowRegistry,
    inputs: &BoxedStrategy<serde_json::Value>,
    (count, snapshots): (usize, bool),
) -> Vec<Small> {
    let all = Boundary::ALL.into_iter().filter(|at| snapshots || !matches!(at, Boundary::InSnapshot { .. }));
    let boundaries: Vec<Boundary> = all.collect();
    let drawn = (0..=u16::MAX).map(|seed| Small {
        plan: plan(kind, &drawn(inputs, seed)),
        code: Versions::of(code.clone()),
        boundaries: boundaries.clone(),
    });
    drawn.filter(|program| COMMITS.contains(&program.undisturbed().commits)).take(count).collect()
}

fn drawn(inputs: &BoxedStrategy<serde_json::Value>, seed: u16) -> serde_json::Value {
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..2].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    inputs.new_tree(&mut runner).expect("a strategy without filters").current()
}

/// Nothing happens to it but what must, and a signal.
fn plan(kind: &str, input: &serde_json::Value) -> LifePlan {
    let mut plan = LifePlan::new(kind, Payload::encode(input).expect("JSON"));
    let done = ActivityOutcome::Completed(Payload::encode(&1).expect("JSON"));
    plan.results = ["a", "b", "c"].into_iter().map(|name| (name.into(), vec![done.clone()])).collect();
    // One signal is on its way from the beginning.
    plan.steps = vec![LifeStep::Signal { pick: 0 }];
    plan.signals = vec![("go".into(), Payload::encode(&1).expect("JSON"))];
    plan
}

impl Small {
    fn undisturbed(&self) -> Life {
        live(&self.plan, &self.code, &Doubts::default(), &[]).unwrap_or_else(|why| panic!("{why}\n{}", self.plan))
    }

    fn every_crash(&self) -> Report {
        let mut report = Report::default();
        let undisturbed = self.undisturbed();
        let crash_at = |at: u32| self.boundaries.iter().map(move |boundary| (at, *boundary));
        for (evict, duplicate) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut lived = |crashes: Vec<(u32, Boundary)>| {
                self.survives(PlanFaults { crashes, evict, duplicate }, &undisturbed, &mut report);
            };
            lived(Vec::new());
            for first in (0..undisturbed.commits).flat_map(crash_at) {
                lived(vec![first]);
                let after = first.0 + 1;
                for second in (after..=after + BETWEEN).flat_map(crash_at) {
                    lived(vec![first, second]);
                }
            }
        }
        report
    }

    fn survives(&self, faults: PlanFaults, undisturbed: &Life, report: &mut Report) {
        let life = live_here(&self.plan, &self.code, &Doubts::without_twins(), &faults);
        let life = life.unwrap_or_else(|why| panic!("{why}\n{faults:?}\n{}", self.plan));
        if !life.rare.contains_key("activity failed") {
            assert_eq!(life.outcome, undisturbed.outcome, "{faults:?}\n{}", self.plan);
        }
        report.add(&life);
    }
}
