//! Brings what is written ahead to the database.
//!
//! Invariant: what is in the database, durably, is no longer pending, piece by piece: where there is no room for all of it
//! the next try goes on behind what found room, and writes nothing a second time but the piece that did not. It decides
//! nothing about segments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::{FrontShared, PendingGroup, held};
use crate::log::StorageError;
use crate::seeded::{self, Bug};
use crate::vocabulary::GroupSeq;

/// A piece ends with the group that reaches this length. A sync each is little beside so many bytes, and a reserve of a few
/// MiB holds several.
const PIECE: usize = 1024 * 1024;

impl FrontShared {
    /// Brings everything to the database, durably.
    pub(super) fn feed(&self) -> Result<(), StorageError> {
        let _feeding = held(&self.feeding);
        self.feed_beside_nobody()
    }

    pub(super) fn feed_beside_nobody(&self) -> Result<(), StorageError> {
        self.check()?;
        let pending = held(&self.state).pending.clone();
        for piece in pieces(pending) {
            self.feed_piece(&piece).inspect_err(|why| self.no_room.store(why.is_no_room(), Ordering::Relaxed))?;
        }
        self.no_room.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn feed_piece(&self, groups: &[(GroupSeq, Arc<PendingGroup>)]) -> Result<(), StorageError> {
        let Some((last, _)) = groups.last() else { return Ok(()) };
        self.back.feed(groups, &self.urgent).map_err(|why| self.failed(why))?;
        if !seeded::on(Bug::TrimBeforeSledSync) {
            self.back.flush().map_err(|why| self.failed(why))?;
        }
        let mut state = held(&self.state);
        state.pending = state.pending.split_off(&(last.0 + 1));
        state.fed = last.0;
        Ok(())
    }

    /// Whether time counts more than space from here on: not while there is no room.
    pub(super) fn hurry(&self, urgent: bool) {
        self.urgent.store(urgent && !self.no_room.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The feeder.
    pub(super) fn feed_when_asked(&self) {
        loop {
            {
                let mut state = held(&self.state);
                while state.wanted <= state.fed && !state.closing {
                    state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                if state.closing {
                    return;
                }
            }
            if let Err(why) = self.feed() {
                if why.is_no_room() {
                    tracing::warn!(%why, "what was written ahead waits for room in the database");
                } else {
                    tracing::error!(%why, "the database does not take what was written ahead");
                }
                // Whoever needs it tries again.
                let mut state = held(&self.state);
                state.wanted = state.fed;
            }
        }
    }
}

/// In order, each as long as [`PIECE`] and not much longer.
fn pieces(pending: BTreeMap<u64, Arc<PendingGroup>>) -> Vec<Vec<(GroupSeq, Arc<PendingGroup>)>> {
    let (mut pieces, mut piece, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (seq, group) in pending {
        bytes += group.value.len();
        piece.push((GroupSeq(seq), group));
        if bytes >= PIECE {
            pieces.push(std::mem::take(&mut piece));
            bytes = 0;
        }
    }
    pieces.push(piece);
    pieces
}
