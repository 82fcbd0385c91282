//! Which files beside the database are still needed, and what becomes of the others.
//!
//! Invariant: a file goes only when no entry names anything in it, durably; what cannot be read keeps its file. A bounded
//! piece of work a call, beside no append and no other change of shelves.

use std::sync::atomic::Ordering;

use super::{Batch, SledLog};
use crate::log::StorageError;
use crate::log::parts::{PARTS_OF, beside, is_beside, place_in};
use crate::log::sweep::Sweep;
use crate::log::values::ValueFrame;

/// Entries looked at for the first that needs a file of groups.
const LOOK: usize = 1_024;

impl SledLog {
    /// Files of groups below this number hold no group of which the database has an entry. Not beside an append.
    pub(super) fn needed_groups(&self) -> Result<u64, StorageError> {
        let mut entries = self.handles().groups.range(..[PARTS_OF].as_slice());
        for _ in 0..LOOK {
            match self.read(|| entries.next().transpose())? {
                Some((_, entry)) if is_beside(&entry) => return Ok(place_in(&entry).map_or(0, |place| place.file)),
                Some(_) => {}
                None => return Ok(self.groups.seal()),
            }
        }
        Ok(0)
    }

    /// Removes files of values in which nothing counts, and empties those in which little does. A bounded piece of work;
    /// nobody else changes shelves meanwhile. What cannot be read is left for `verify` to name, and harms nothing here.
    pub(super) fn sweep_values(&self, sweep: &mut Sweep) -> Result<(), StorageError> {
        let durable = self.synced_changes.load(Ordering::Acquire);
        let finished = self.values.finished();
        for file in sweep.ready(durable, &finished) {
            let found = self.counting(file).and_then(|(counting, all)| {
                let is_named = counting.is_empty() && !all && self.is_named(file)?;
                Ok((counting, self.values.length_of(file)?, is_named))
            });
            let (counting, length, is_named) = match found {
                Ok(found) => found,
                Err(why) => {
                    tracing::warn!(%why, "a file of values cannot be looked at");
                    sweep.forget(file);
                    continue;
                }
            };
            let bytes: u64 = counting.iter().map(ValueFrame::length).sum();
            if counting.is_empty() && is_named {
                // What counts in it cannot be found: it stays as it is.
                sweep.forget(file);
            } else if counting.is_empty() {
                self.values.remove(file)?;
                sweep.forget(file);
            } else if bytes * 2 < length {
                let all_moved = self.move_values(counting)?;
                let now = self.changes.fetch_add(1, Ordering::AcqRel) + 1;
                if all_moved { sweep.emptied(file, length, now) } else { sweep.forget(file) }
            } else {
                sweep.looked_at(file, length, length.saturating_sub(bytes));
            }
        }
        Ok(())
    }

    /// The frames of a file that an entry names, and whether all its frames could be read.
    pub(super) fn counting(&self, file: u64) -> Result<(Vec<ValueFrame>, bool), StorageError> {
        let (mut frames, all) = self.values.frames(file)?;
        let mut failed = None;
        frames.retain(|frame| match self.read(|| self.handles().shelves.get(&frame.key)) {
            Ok(entry) => entry.is_some_and(|entry| place_in(&entry) == Some(frame.place)),
            Err(why) => {
                failed.get_or_insert(why);
                true
            }
        });
        failed.map_or(Ok((frames, all)), Err)
    }

    /// Whether any entry names a file whose frames cannot all be found.
    pub(super) fn is_named(&self, file: u64) -> Result<bool, StorageError> {
        let mut entries = self.handles().shelves.iter();
        while let Some((_, entry)) = self.read(|| entries.next().transpose())? {
            if place_in(&entry).is_some_and(|place| place.file == file) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes values again, to the newest file. One that cannot be read stays where it is. Whether there is none.
    pub(super) fn move_values(&self, frames: Vec<ValueFrame>) -> Result<bool, StorageError> {
        let (mut batch, mut all) = (Batch::default(), true);
        for frame in frames {
            match self.values.read(&frame.key, frame.place) {
                Ok(Some(value)) => {
                    let place = self.values.write(None, &frame.key, &value)?;
                    batch.insert(frame.key, beside(place));
                }
                Ok(None) => {}
                Err(why) => {
                    all = false;
                    tracing::warn!(%why, "a value cannot be moved");
                }
            }
        }
        self.values.sync()?;
        self.write("write", || self.handles().shelves.apply_batch(batch))?;
        Ok(all)
    }

    /// How many files of values there are.
    pub(crate) fn value_files(&self) -> usize {
        self.values.names().len()
    }
}
