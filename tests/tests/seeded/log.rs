//! The checks of the log, over its public API, compiled in from where they belong.

#[path = "../../../engine/src/log/tests/ahead.rs"]
mod ahead;
#[path = "../../../engine/src/log/tests/journal.rs"]
mod journal;
#[path = "../../../engine/src/log/tests/samples.rs"]
mod samples;
