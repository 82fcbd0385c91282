//! Following the log: where it ends, and what a group holds, for subscribers and clocks.
//!
//! Invariant: only groups that are durable are shown. A group that was trimmed away is empty here; its turns are in the
//! archive under their runs.

use super::StorageError;
use super::group::Record;
use super::journal::Journal;
use crate::vocabulary::{EventId, GroupSeq, Timestamp, Turn};

impl Journal {
    /// The newest group that is durable.
    pub fn last_group(&self) -> GroupSeq {
        self.writer().tail().last
    }

    /// The oldest group that is still in the log; what came before is in the histories of its runs only.
    pub fn first_group(&self) -> GroupSeq {
        self.index().trimmed.through.next()
    }

    /// The turns of a group in their order. A payload whose blob is lost is marked so: it harms nobody who follows other runs.
    pub fn group_turns(&self, seq: GroupSeq) -> Result<Vec<Turn>, StorageError> {
        if seq <= self.index().trimmed.through {
            return Ok(Vec::new());
        }
        let file = self.medium.location();
        let group = self.group(seq, &file)?;
        let mut turns = Vec::new();
        for (_, record) in group.records(&file)? {
            match record {
                Record::Turn(turn) => turns.push(self.options.plain_with_gaps(&*self.medium, turn)?),
                Record::Deleted(_) | Record::Trimmed(_) => {}
            }
        }
        Ok(turns)
    }

    /// The newest time of any turn: a clock that starts must not be behind it (G15). Times in the log do not go
    /// back, so the last group that holds turns tells; when all of them are in the archive, the runs do.
    pub fn last_at(&self) -> Timestamp {
        let newest = |turns: Vec<Turn>| turns.iter().map(|turn| turn.at).max();
        let mut groups = (self.first_group().0..=self.last_group().0).rev();
        let in_log = groups.find_map(|seq| newest(self.group_turns(GroupSeq(seq)).ok()?));
        in_log.unwrap_or_else(|| self.last_at_of_runs())
    }

    fn last_at_of_runs(&self) -> Timestamp {
        let mut last = Timestamp::ZERO;
        self.scan_runs(&mut |info| {
            let ended = info.closed_at.or_else(|| {
                let turns = self.turns(info.run_id, EventId(info.history.events.max(1))).ok()?;
                turns.last().map(|turn| turn.at)
            });
            last = last.max(info.started_at).max(ended.unwrap_or(Timestamp::ZERO));
            true
        });
        last
    }
}
