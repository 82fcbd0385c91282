//! The core of the supervisors compiles alone: with the words that stand below it, and nothing else.
//!
//! Invariant: what is not named here the core cannot name, whatever stands in the crate: no family, no spec, no people, no
//! workflow. An import of any of them breaks this build, so that the direction is the compiler's to hold. The tests of the core
//! run here as they do at home.
#![allow(dead_code, unused_imports, unreachable_pub, reason = "what others use of it is not here")]

#[path = "../../src/canonical.rs"]
mod canonical;
mod supervisor;

/// What an agent is lent, counted and given of a budget.
mod agent {
    pub mod ledger {
        pub use bosun_worker::agent::ledger::{Resource, TopUp};
    }
    pub mod machine {
        pub use bosun_worker::agent::machine::Lent;
    }
    pub mod spec {
        pub use bosun_worker::agent::spec::Share;
    }
}
