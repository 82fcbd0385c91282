//! The determinism kit from outside, with trip wires armed: what it finds, what it leaves alone, what it says.

bosun_replay::trip_wires!();

mod clean;
mod correct;
mod deploys;
mod lint;
mod programs;
mod search;
mod seeded;
mod setup;
mod traces;
mod warnings;
