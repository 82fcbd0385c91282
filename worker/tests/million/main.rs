//! A million simulated histories of arbitrary programs of the kitchen sink, and every crash of small programs.
//!
//! Invariant: nothing is sampled that is said to be enumerated, and what is sampled is said (`DeterminismTest::schedules`).
//! Trip wires are not armed here (`programs` of the other binary has them): this binary has an allocator of its own, which asks clocks.
//! Every run of the tests lives a tenth; `cargo full` lives all. `BOSUN_CASES` sets how many programs are drawn; the
//! figures are printed.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program of its own, around what decides")]

#[path = "../programs/generate.rs"]
mod generate;
#[path = "../programs/kit.rs"]
mod kit;

mod crashes;
mod ladder;

use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Each drawn by proptest and lived with all doubts, and then so often with other steps.
const PROGRAMS: u32 = 20_000;
const SCHEDULES: u32 = 40;
const HISTORIES: u64 = 1_000_000;
/// The part of it that every run of the tests lives.
const SAMPLE: u32 = 10;

/// G11-G18, G21, G22: arbitrary programs under arbitrary faults; no guarantee breaks, no replay differs, everything comes
/// to rest, and every rare state is met. A tenth of the million.
#[test]
fn histories_of_arbitrary_programs_break_no_guarantee() {
    live(SAMPLE);
}

/// The same, all of them.
#[test]
#[ignore = "minutes: cargo full"]
fn a_million_histories_of_arbitrary_programs_break_no_guarantee() {
    live(1);
}

/// One program of so many.
fn live(of: u32) {
    let begun = Instant::now();
    let report = kit::kit().lives(PROGRAMS / of).schedules(SCHEDULES).on_all_cores().must_meet(&kit::rare()).run();
    let took = begun.elapsed().as_secs_f64();
    let rate = report.lives as f64 / took;
    kit::tell(&format!("arbitrary programs: {report}; {rate:.0} lives a second\n{}", report.sometimes()));
    if std::env::var_os("BOSUN_CASES").is_none() && std::env::var_os("BOSUN_SEED").is_none() {
        let (histories, drawn) = (HISTORIES / u64::from(of), u64::from(PROGRAMS / 2 / of));
        assert!(report.histories >= histories && report.drawn >= drawn, "{report}");
    }
}
