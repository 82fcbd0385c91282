//! A million simulated histories of arbitrary programs of the kitchen sink, and every crash of small programs.
//!
//! Invariant: nothing is sampled that is said to be enumerated, and what is sampled is said (`DeterminismTest::schedules`).
//! Trip wires are not armed here (`tests/programs` has them): this binary has an allocator of its own, which asks clocks.
//! `BOSUN_CASES` sets how many programs are drawn; the figures are printed.

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

/// G11-G18, G21, G22: arbitrary programs under arbitrary faults; no guarantee breaks, no replay differs, everything comes
/// to rest, and every rare state is met.
#[test]
fn a_million_histories_of_arbitrary_programs_break_no_guarantee() {
    let begun = Instant::now();
    let report = kit::kit().lives(PROGRAMS).schedules(SCHEDULES).on_all_cores().must_meet(&kit::rare()).run();
    let took = begun.elapsed().as_secs_f64();
    println!("{report}; {:.0} lives a second\n{}", report.lives as f64 / took, report.sometimes());
    if std::env::var_os("BOSUN_CASES").is_none() && std::env::var_os("BOSUN_SEED").is_none() {
        assert!(report.histories >= 1_000_000 && report.drawn >= 10_000, "{report}");
    }
}
