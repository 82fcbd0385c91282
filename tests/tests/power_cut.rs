//! Power cuts: the real worker under load on a file system that is cut off, on ext4 and, where its tool is there, xfs.

use bosun_tests::harness::crash::power_cut_rounds;
use bosun_tests::harness::load::Shape;
use bosun_tests::harness::power::{FileSystem, require_or_explain};
use bosun_tests::harness::process::Program;
use bosun_tests::harness::{Chance, count_from_env, say};

/// Groups and values of every size: large values take another way through sled than small ones.
fn survives_power_cuts(file_system: FileSystem) {
    let Some(mut rig) = require_or_explain(file_system) else { return };
    let name = file_system.name();
    let mut chance = Chance::from_env(&format!("power cuts on {name}"));
    let cuts = count_from_env("BOSUN_CUTS", 10);
    let program = Program::bosun_worker().unwrap();
    let shape = Shape { clients: 16, ..Shape::default() };
    let outcome = power_cut_rounds(&program, &mut rig, cuts, &mut chance, shape).unwrap();
    say(&format!("power cuts on {name}: {}", outcome.summary()));
    outcome.assert_clean(&format!("power cuts on {name}"));
    assert!(outcome.crashes >= cuts);
}

/// G1: what was acknowledged before the power failed is there after it. `BOSUN_CUTS=150` for the full count.
#[test]
fn a_power_cut_on_ext4_loses_nothing_acknowledged() {
    survives_power_cuts(FileSystem::Ext4);
}

/// G1: the same on xfs.
#[test]
fn a_power_cut_on_xfs_loses_nothing_acknowledged() {
    survives_power_cuts(FileSystem::Xfs);
}
