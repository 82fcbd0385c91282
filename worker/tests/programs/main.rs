//! Arbitrary programs of the kitchen sink, each lived under arbitrary faults with trip wires armed: no false alarm.
//!
//! `BOSUN_CASES` sets how many programs are tried; the figures are printed.

mod generate;
mod kit;

use std::time::Instant;

use bosun_replay::determinism::{Report, armed};

bosun_replay::trip_wires!();

/// G11-G18, G21, G22: no false alarm on ten thousand arbitrary clean programs, each drawn by proptest and lived once with
/// all doubts, and the rare states are met.
#[test]
fn arbitrary_programs_give_no_alarm() {
    assert!(armed());
    let begun = Instant::now();
    let report: Report = kit::kit().lives(10_000).on_all_cores().must_meet(&kit::rare()).run();
    let took = begun.elapsed();
    println!("{report}; {:.0} programs a second", report.lives as f64 / took.as_secs_f64());
    println!("never met: {:?}", report.never_met());
}
