//! What the tests share: the harness that starts, kills and watches real worker processes on disks that can fail.
//!
//! Invariant: nothing here knows how the worker works inside; it speaks HTTP, signals and files, as anybody could. The
//! tests themselves stand in `tests/`, one file a feature, in one binary.

pub mod harness;
