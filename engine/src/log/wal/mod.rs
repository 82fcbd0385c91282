//! The write-ahead files, and the log that is written through them.
//!
//! `record` is one group in whole blocks, `segments` the files, `front` the log that users open: a commit is one write
//! and one sync there, and the database gets the groups later, many at once. Invariant: every group that was acknowledged
//! is, durably, in the database, or in these files, or in both. After a normal end it is in the database alone, and there
//! are no such files.

mod behind;
mod front;
mod record;
mod segments;

#[cfg(test)]
pub(in crate::log) use behind::behind;
pub use front::DiskLog;
pub(crate) use front::{Back, PendingGroup};
pub(crate) use record::BLOCK;
pub(crate) use segments::{AheadGroup, Broken, blocks_around, body_at, read, remove, unnamed};

#[cfg(test)]
mod tests;
