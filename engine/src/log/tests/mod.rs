//! Tests of the log as a whole. Each file is one promise.

mod journal;
pub(crate) mod samples;
