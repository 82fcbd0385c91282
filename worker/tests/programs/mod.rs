//! Arbitrary programs of the kitchen sink, each lived under arbitrary faults with trip wires armed: no false alarm.
//!
//! Every run of the tests tries a tenth; `cargo full` tries all. `BOSUN_CASES` sets how many programs are tried; the figures are printed.

mod generate;
mod kit;
mod official;

use std::time::Instant;

use bosun_replay::determinism::{Report, armed};

/// G11-G18, G21, G22: no false alarm on a thousand arbitrary clean programs, each drawn by proptest and lived once with
/// all doubts, and the rare states are met.
#[test]
fn arbitrary_programs_give_no_alarm() {
    // Some are so rare that a thousand lives may miss one.
    let missed = missed(&live(1_000));
    assert!(missed.len() < 4, "never met: {missed:?}");
}

/// The same on ten thousand.
#[test]
#[ignore = "minutes: cargo full"]
fn ten_thousand_arbitrary_programs_give_no_alarm() {
    assert_eq!(missed(&live(10_000)), Vec::<&str>::new(), "never met");
}

/// The rare states that programs can meet and these lives have not.
fn missed(report: &Report) -> Vec<&'static str> {
    let rare = kit::rare();
    report.never_met().into_iter().filter(|state| rare.contains(state)).collect()
}

fn live(programs: u32) -> Report {
    assert!(armed());
    let begun = Instant::now();
    let report: Report = kit::kit().lives(programs).on_all_cores().run();
    let took = begun.elapsed();
    let rate = report.lives as f64 / took.as_secs_f64();
    kit::tell(&format!(
        "arbitrary programs, wires armed: {report}; {rate:.0} a second; never met: {:?}",
        report.never_met()
    ));
    report
}
