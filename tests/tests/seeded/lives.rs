//! Lives of the whole-engine simulator, one after the other until one fails: what it finds of the seeded bugs.
//!
//! The whole run of the simulator is elsewhere (`simulation`); this is its beginning, so that it can be green in seconds.

use bosun_replay::simulate::engine::live_engine;
use bosun_tests::harness::count_from_env;

use crate::simulation::plan_of;

/// G1-G6, G11-G22: the first lives of the simulator are sound. Where nobody asks what the simulator finds, a few: the
/// simulator's own test lives them all.
#[test]
fn the_first_lives_of_the_simulator_keep_the_word() {
    let asked = std::env::var_os(bosun_engine::seeded::VARIABLE).is_some();
    for seed in 0..u64::from(count_from_env("BOSUN_FIRST_LIVES", if asked { 800 } else { 20 })) {
        if let Err(why) = live_engine(&plan_of(seed)) {
            panic!("life {seed}: {}: {}", why.id, why.why);
        }
    }
}
