//! The log: the only thing that must survive. One global order of commit groups, durable before anybody hears of them.
//!
//! Two layers. A [`Log`] is the medium: it keeps groups, derived shelves and blobs, and knows what a crash leaves of
//! each; the one that users open ([`DiskLog`]) writes groups ahead of the database that holds them all. The [`Journal`]
//! is everything else, the same over every medium: commit with compare-and-set, the index of runs, checkpoints, the
//! archive, retention, verification and backup.
//!
//! Invariants
//! - What `commit` has returned for is on the disk: power loss included. Blobs are there before the group that names
//!   them, an archive before the groups it replaces are removed, a group before the anchor says it is there.
//! - Damage is found, not used: every read is either exactly what was written or a [`StorageError`] that says where.
//! - The groups of the log are contiguous: `first ..= last` all exist; everything before `first` is in the archive or
//!   deleted. Indexes are derived, and rebuilt from these two when they do not fit.
//!
//! What is not here: no workflow code, no decisions, no clock (time is an argument), no retry after a failed write.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "edge: the log owns files, waits for a lock, and syncs its anchor from a thread"
)]

mod anchor;
mod archive;
mod backup;
mod blob;
mod chain;
mod check;
mod checkpoint;
mod codec;
mod copies;
mod epoch;
mod error;
mod files;
mod following;
mod format;
mod group;
mod housekeeping;
mod index;
mod journal;
mod look;
mod memory;
mod mounts;
mod packing;
mod parts;
mod private;
mod reader;
mod reading;
mod recovery;
mod refs;
mod room;
mod salvage;
mod shelf;
mod sled;
mod sled_format;
mod snapshot;
mod spare;
mod stored;
mod swap;
mod sweep;
mod trim;
mod values;
mod verify;
mod wal;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::vocabulary::{GroupSeq, RunId};

pub use self::sled::{SledLog, SledOptions};
pub use self::wal::DiskLog;
pub use anchor::Anchor;
pub use backup::BackupReport;
pub use blob::BlobHash;
pub use chain::ChainHash;
pub use codec::{CodecChain, CodecError, Compression, Encryption, PayloadCodec, PayloadPlace};
pub use copies::{SpaceReport, collect_garbage, compact, compact_to, restore};
pub use epoch::{Epoch, EpochFile, StoreOrigin};
pub use error::StorageError;
pub use group::GROUP_VERSION;
pub use housekeeping::HousekeepingReport;
pub use journal::{Committed, Journal, JournalOptions, MachineSnapshot, RunEntry, StoreInfo};
pub use memory::{InjectedFault, MemoryLog};
pub use reader::StoreReader;
pub use room::lend_reserve;
pub use salvage::{COPIES_MAX, SalvageReport, assess, damaged_copies, isolate, salvage};
pub use spare::DamagedPart;
pub use verify::{Finding, FindingClass, VerifyReport};

/// The newest format of a data directory that nobody uses and that was closed: what this program makes.
pub const FORMAT_VERSION: u32 = 2;
/// The format of one with write-ahead files: of older programs, none would look there. A close takes it back.
pub const WAL_FORMAT_VERSION: u32 = 3;

/// A file for its owner alone, empty: for what lies in a data directory and is not the log's.
pub(crate) fn private_file(path: &Path) -> std::io::Result<std::fs::File> {
    private::create(path)
}

/// Whether an entry of this name in a data directory is made by a store or its worker, or by nobody of them.
pub fn is_entry_of_store(name: &str) -> bool {
    private::is_own(name)
}

/// Named key-value maps beside the log. All but [`Shelf::Archive`] are derived: lost or damaged, they are rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Shelf {
    /// What the index is true at.
    Meta = 1,
    /// Open runs by run id.
    Open = 2,
    /// Closed runs by run id.
    Closed = 3,
    /// Closed runs by namespace, workflow id and start.
    ById = 4,
    /// Closed runs by start.
    ByStart = 5,
    /// Full chunks of turn references of long runs.
    Refs = 6,
    /// Which runs refer to a blob.
    BlobRefs = 7,
    /// The newest state snapshot of a run.
    Snapshots = 8,
    /// Deleted runs whose turns are still in the log.
    Deleted = 9,
    /// Turns that were moved out of the log, by run and ordinal. Not derived.
    Archive = 16,
}

impl Shelf {
    /// Every shelf, those of the index first.
    pub const ALL: [Shelf; 10] = [
        Shelf::Meta,
        Shelf::Open,
        Shelf::Closed,
        Shelf::ById,
        Shelf::ByStart,
        Shelf::Refs,
        Shelf::BlobRefs,
        Shelf::Snapshots,
        Shelf::Deleted,
        Shelf::Archive,
    ];
}

/// One change of a shelf: a new value, or none to remove the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShelfChange {
    /// Which map.
    pub shelf: Shelf,
    /// The key in it.
    pub key: Vec<u8>,
    /// The new value; `None` removes the key.
    pub value: Option<Vec<u8>>,
}

/// Which end of a shelf a scan begins at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanFrom<'a> {
    /// Upwards, from the lowest key.
    First,
    /// Downwards, from the highest key.
    Last,
    /// Upwards, behind this key.
    After(&'a [u8]),
    /// Downwards, before this key.
    Before(&'a [u8]),
}

/// Where groups, shelves and blobs are kept; each method by what a crash leaves of it.
///
/// "Crash" is the loss of everything that was not made durable: a power cut. Calls come from several threads, but
/// `append` and `sync` from one at a time.
pub trait Log: Send + Sync + std::fmt::Debug {
    /// Chosen at creation and durable since; every chain begins with it.
    fn instance(&self) -> [u8; 16];
    /// Where the medium is, for messages.
    fn location(&self) -> PathBuf;
    /// The tail that was durable when the anchor was last written; never ahead of what is durable. `None` before the
    /// first [`Log::sync`].
    fn anchor(&self) -> Result<Option<Anchor>, StorageError>;

    /// Everything that counts was read and found whole. Before this, and before the first write, the medium changes
    /// nothing by itself.
    fn begin(&self) -> Result<(), StorageError> {
        Ok(())
    }
    /// Stores a group. Readable at once; after a crash before [`Log::sync`] it is there whole, or torn, or not. By
    /// `longest`, the length of the longest record in it, the medium may choose how to keep it.
    fn append(&self, seq: GroupSeq, value: &[u8], longest: usize) -> Result<(), StorageError>;
    /// Makes everything written before durable, then notes the tail in the anchor. The anchor survives a kill at once
    /// and a power cut shortly after.
    fn sync(&self, tail: Anchor) -> Result<(), StorageError>;
    /// Stores a group and makes it durable: it alone, with what was durable before. Notes it in the anchor.
    fn commit(&self, seq: GroupSeq, value: &[u8], longest: usize, tail: Anchor) -> Result<(), StorageError> {
        self.append(seq, value, longest)?;
        self.sync(tail)
    }
    /// Makes the anchor itself durable.
    fn settle_anchor(&self) -> Result<(), StorageError>;
    /// The group at this place; `None` if it was removed or never written.
    fn group(&self, seq: GroupSeq) -> Result<Option<Vec<u8>>, StorageError>;
    /// The lowest and the highest group there is.
    fn bounds(&self) -> Result<Option<(GroupSeq, GroupSeq)>, StorageError>;
    /// Groups from `from` on, in order, until `visit` says false.
    fn groups_from(
        &self,
        from: GroupSeq,
        visit: &mut dyn FnMut(GroupSeq, Vec<u8>) -> Result<bool, StorageError>,
    ) -> Result<(), StorageError>;
    /// Removes these groups. After a crash any of them may be back.
    fn remove_groups(&self, range: std::ops::RangeInclusive<u64>) -> Result<(), StorageError>;

    /// Changes shelves, all or nothing; durable with the next [`Log::sync`], perhaps before.
    fn change_shelves(&self, changes: &[ShelfChange]) -> Result<(), StorageError>;
    /// The value of a key.
    fn shelf_get(&self, shelf: Shelf, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;
    /// Whether there is an entry, readable or not.
    fn shelf_has(&self, shelf: Shelf, key: &[u8]) -> Result<bool, StorageError> {
        Ok(self.shelf_get(shelf, key)?.is_some())
    }
    /// The keys that [`Log::shelf_scan`] would give, of entries that are readable or not.
    fn shelf_keys(
        &self,
        shelf: Shelf,
        prefix: &[u8],
        from: ScanFrom<'_>,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StorageError> {
        Ok(self.shelf_scan(shelf, prefix, from, limit)?.into_iter().map(|(key, _)| key).collect())
    }
    /// At most `limit` entries whose keys begin with `prefix`, in key order (falling for `Last` and `Before`).
    fn shelf_scan(
        &self,
        shelf: Shelf,
        prefix: &[u8],
        from: ScanFrom<'_>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StorageError>;

    /// Stores bytes under their hash; durable on return. Storing what is there already costs next to nothing.
    fn put_blob(&self, hash: &BlobHash, bytes: &[u8]) -> Result<(), StorageError>;
    /// The bytes as they are on the disk; whether they fit the hash is for the caller to see.
    fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StorageError>;
    /// The blobs whose hash begins with this byte.
    fn blobs(&self, first_byte: u8) -> Result<Vec<BlobHash>, StorageError>;
    /// Removes a blob. After a crash it may be back.
    fn remove_blob(&self, hash: &BlobHash) -> Result<(), StorageError>;

    /// Bytes of everything the medium keeps, for reports.
    fn bytes_on_disk(&self) -> Result<u64, StorageError>;
    /// Runs that a salvage could not save whole, and why: they are held for as long as they are open.
    fn held(&self) -> Result<Vec<(RunId, String)>, StorageError> {
        Ok(Vec::new())
    }
    /// Damaged parts of its files that nobody needs who only reads what counts: what is there twice, and headers.
    fn check_files(&self) -> Vec<DamagedPart> {
        Vec::new()
    }
    /// Nothing that is wrong with it is ever mended.
    fn is_read_only(&self) -> bool {
        false
    }
    /// Why nothing new should be begun for want of space, if so. Keeps a reserve while there is room for one.
    fn low_on_space(&self) -> Option<String> {
        None
    }
    /// The file that holds a group, for messages.
    fn file_of(&self, seq: GroupSeq) -> PathBuf {
        let _ = seq;
        self.location()
    }
    /// The file that holds a blob, for messages.
    fn file_of_blob(&self, hash: &BlobHash) -> PathBuf {
        self.location().join(hash.to_string())
    }
    /// What it was salvaged from.
    fn origin(&self) -> Option<StoreOrigin> {
        None
    }
    /// Notes a tail that is durable where a copy of the medium does not reach, if there is such a place; see [`Epoch`].
    fn note_epoch(&self, tail: Anchor) -> Result<(), StorageError> {
        let _ = tail;
        Ok(())
    }
    /// The version of the format that this directory has now.
    fn format(&self) -> u32 {
        FORMAT_VERSION
    }
}
