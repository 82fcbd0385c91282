//! Following the log: where it ends, and what a group holds, for subscribers and clocks.
//!
//! Invariant: only groups that are durable are shown. A group that was trimmed away is empty here; its turns are in the
//! archive under their runs.

use super::StorageError;
use super::group::Record;
use super::journal::Journal;
use crate::vocabulary::{GroupSeq, Timestamp, Turn};

impl Journal {
    /// The newest group that is durable.
    pub fn last_group(&self) -> GroupSeq {
        self.writer().tail().last
    }

    /// The oldest group that is still in the log; what came before is in the histories of its runs only.
    pub fn first_group(&self) -> GroupSeq {
        self.index().trimmed.through.next()
    }

    /// The turns of a group in their order.
    pub fn group_turns(&self, seq: GroupSeq) -> Result<Vec<Turn>, StorageError> {
        if seq <= self.index().trimmed.through {
            return Ok(Vec::new());
        }
        let file = self.medium.location();
        let group = self.group(seq, &file)?;
        let mut turns = Vec::new();
        for (_, record) in group.records(&file)? {
            match record {
                Record::Turn(turn) => turns.push(self.options.plain(&*self.medium, turn)?),
                Record::Deleted(_) | Record::Trimmed(_) => {}
            }
        }
        Ok(turns)
    }

    /// The newest time in the log's last groups: a clock that starts must not be behind it (engine.md G15).
    pub fn last_at(&self) -> Timestamp {
        let last = self.last_group().0;
        let newest = |seq| {
            let turns = self.group_turns(GroupSeq(seq)).unwrap_or_default();
            turns.iter().map(|turn| turn.at).max()
        };
        (last.saturating_sub(16).max(1)..=last).rev().filter_map(newest).max().unwrap_or(Timestamp::ZERO)
    }
}
