//! kill -9 at any moment: the real worker under a mixed load, 20 % of the deaths during recovery.

use bosun_tests::harness::crash::kill_rounds;
use bosun_tests::harness::load::Shape;
use bosun_tests::harness::process::Program;
use bosun_tests::harness::{Chance, count_from_env, say};

/// G1, G2, G12, G13, E11: nothing acknowledged is lost, nothing happens twice, every directory opens, every workflow
/// that has all it waits for ends.
#[test]
fn a_worker_killed_at_any_moment_loses_nothing_it_acknowledged() {
    survives(30);
}

/// The same, ten times as often.
#[test]
#[ignore = "minutes: cargo full"]
fn a_worker_killed_three_hundred_times_loses_nothing_it_acknowledged() {
    survives(300);
}

fn survives(kills: u32) {
    let mut chance = Chance::from_env("a_worker_killed_at_any_moment_loses_nothing_it_acknowledged");
    let dir = tempfile::tempdir().unwrap();
    let kills = count_from_env("BOSUN_KILLS", kills);
    let program = Program::bosun_worker().unwrap();
    let data = dir.path().join("data");
    let outcome = kill_rounds(&program, &data, dir.path(), kills, &mut chance, Shape::default()).unwrap();
    say(&format!("kill -9: {}", outcome.summary()));
    outcome.assert_clean("kill -9");
    assert_eq!(outcome.crashes, kills);
}
