//! The harness: disks, processes, load, and what is compared afterwards.
//!
//! Invariant: whatever is started, mounted or attached is ended, unmounted and detached on drop, and only that. A test
//! that cannot run on this machine says so with [`say`]; one that could and does not, fails.

use std::io::Write;

pub mod axe;
pub mod binary;
pub mod browser;
pub mod cdp;
pub mod confined;
pub mod crash;
pub mod faults;
pub mod histories;
pub mod http;
pub mod ledger;
pub mod load;
pub mod log_story;
pub mod mount;
pub mod power;
pub mod process;
pub mod simulated;
pub mod workload;

/// Prints a line past the capture of the test runner, which hides what passing tests print.
pub fn say(line: &str) {
    // A closed stderr is no reason to fail a test.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Whether a test may be skipped for want of a tool that could be installed. `.ci/run` installs them and says no.
pub fn all_required() -> bool {
    std::env::var_os("BOSUN_REQUIRE").is_some()
}

/// A count from the environment, for tests whose length is chosen from outside (`BOSUN_KILLS=300`).
pub fn count_from_env(name: &str, default: u32) -> u32 {
    match std::env::var(name) {
        Err(_) => default,
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text:?}: expected a whole number")),
    }
}

/// Numbers that look random and are the same for the same seed: xorshift64*, good enough to choose moments.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// Seeded from `BOSUN_SEED`, or from the clock; the seed is printed, so that a failure can be repeated.
    pub fn from_env(test: &str) -> Chance {
        let clock = || std::time::UNIX_EPOCH.elapsed().map_or(1, |now| now.as_nanos() as u64);
        let seed = match std::env::var("BOSUN_SEED") {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("BOSUN_SEED={text:?}: expected a whole number")),
            Err(_) => clock(),
        };
        say(&format!("{test}: BOSUN_SEED={seed}"));
        Chance::new(seed)
    }
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % bound.max(1)
    }
    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
