//! What can go wrong between the engine and its disk.
//!
//! Invariant: every way of losing or damaging data is one of these, names what and where, and is never answered with
//! less history. A failure of user code or a refused request is none of them. Nothing here decides whether to go on:
//! the journal poisons itself after the first failed write.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::vocabulary::{EventId, GroupSeq, RunId, WorkflowStatus};

/// What can go wrong between the engine and its disk. Each says what was lost or refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// Another process has the data directory.
    #[error("the data directory {} is in use by another process; stop it or use its control API", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// The operating system refused an operation.
    #[error("{op} of {} failed: {message}", path.display())]
    Io {
        /// Which operation.
        op: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's kind of error.
        kind: io::ErrorKind,
        /// What it said.
        message: String,
    },
    /// A write failed for want of space, and may have changed something.
    #[error("the disk is full: {op} of {} failed: {message}", path.display())]
    Full {
        /// Which operation.
        op: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        message: String,
    },
    /// There is no room for what was to be written, and nothing was: when there is space, the same may be asked again.
    #[error("the disk is full: there is no room {}{}", room_for(*bytes), path.display())]
    NoRoom {
        /// The file or directory.
        path: PathBuf,
        /// How many bytes were to be written; 0 if that is not known.
        bytes: u64,
    },
    /// What was read is not what was written.
    #[error("{what} in {} is damaged{}: {detail}; `bosun store verify` names every damaged place, `bosun store salvage` saves what is whole", file.display(), place(group, run))]
    Corrupt {
        /// What kind of data.
        what: &'static str,
        /// The file that holds it.
        file: PathBuf,
        /// The commit group, if it is in one.
        group: Option<GroupSeq>,
        /// The run that is hurt, if it is known.
        run: Option<RunId>,
        /// What was expected and what was found.
        detail: String,
    },
    #[error(
        "{} has format {found}, this program reads up to {supported}; nothing was changed, use a newer program",
        file.display()
    )]
    /// A newer program has written the directory.
    FormatTooNew {
        /// The file that says so.
        file: PathBuf,
        /// The version on the disk.
        found: u32,
        /// The newest version that this program reads.
        supported: u32,
    },
    /// The directory holds something else.
    #[error("{} is not a Bosun data directory: {detail}", dir.display())]
    NotADatabase {
        /// The directory.
        dir: PathBuf,
        /// What is missing or foreign.
        detail: String,
    },
    /// A new copy is taking the place of the store, and was cut short: nothing is damaged, and half of it lies beside it.
    #[error(
        "a new copy was taking the place of the store {} when it was cut short; a worker that starts there completes it \
         (`bosun worker run`), and so does `bosun store gc`",
        dir.display()
    )]
    SwapUnfinished {
        /// The directory.
        dir: PathBuf,
    },
    /// Something would be overwritten. Nothing was written.
    #[error("{} is taken: {detail}", dir.display())]
    Taken {
        /// The directory that is to stay as it is.
        dir: PathBuf,
        /// What is there.
        detail: String,
    },
    /// A copy would carry damage on. Nothing was written.
    #[error("{} is damaged, so it was not copied: {why}", dir.display())]
    NotSound {
        /// The source.
        dir: PathBuf,
        /// The first damage.
        why: String,
    },
    /// The store is an older copy of itself. Nothing was changed.
    #[error(
        "the store {} was put back: {detail}, as {} says; nothing was changed. Bring the newer copy back, or let `bosun worker \
         run --accept-rollback` take the store as it is and write that file anew",
        root.display(), epoch.display()
    )]
    RolledBack {
        /// The data directory.
        root: PathBuf,
        /// The file that knows of more.
        epoch: PathBuf,
        /// The group that was durable by that file.
        noted: GroupSeq,
        /// The last group that is there.
        last: GroupSeq,
        /// How the two differ.
        detail: String,
    },
    /// The epoch is not of this store. Nothing was changed.
    #[error(
        "{} is of another store than {}: {detail}; nothing was changed. Name the file of this store, or let `bosun worker run \
         --accept-rollback` take the store as it is and write that file anew",
        epoch.display(), root.display()
    )]
    EpochOfOther {
        /// The data directory.
        root: PathBuf,
        /// The file.
        epoch: PathBuf,
        /// How the two differ.
        detail: String,
    },
    /// Whether the store was put back cannot be told. Nothing was changed.
    #[error(
        "the epoch file {} cannot be read: {why}; nothing was changed. Bring it back, or let `bosun worker run \
         --accept-rollback` take the store as it is and write it anew",
        epoch.display()
    )]
    EpochUnreadable {
        /// The file.
        epoch: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A store that was opened and found whole cannot be noted there.
    #[error("the epoch file {} cannot be written: {why}; check its directory, or start without --epoch-file", epoch.display())]
    EpochUnwritable {
        /// The file.
        epoch: PathBuf,
        /// What the operating system said.
        why: String,
    },
    /// The epoch file is where a copy of the directory would take it along.
    #[error("the epoch file {} lies in the data directory {}, and would be put back with it; name one elsewhere", epoch.display(), root.display())]
    EpochInside {
        /// The data directory.
        root: PathBuf,
        /// The file.
        epoch: PathBuf,
    },
    /// What damages the directory goes on. Nothing was changed.
    #[error(
        "{} is damaged again, and was isolated {copies} times already: no further copy is made. See to the disk and its memory \
         first; then move the damaged-N directories away (each is a whole copy), or save what is whole elsewhere with `bosun \
         store salvage`", dir.display()
    )]
    IsolatedTooOften {
        /// The data directory.
        dir: PathBuf,
        /// How many damaged copies lie beside it.
        copies: usize,
    },
    /// The directory is on a read-only file system, or its permissions refuse a write.
    #[error("the data directory {} cannot be written: check its permissions and its file system", dir.display())]
    ReadOnly {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory is where another machine could write too.
    #[error("{} lies on a network file system ({filesystem}), where neither lock nor fsync can be trusted; use a local disk", dir.display())]
    NetworkFilesystem {
        /// The directory.
        dir: PathBuf,
        /// The kind of file system.
        filesystem: String,
    },
    /// The turn was decided against another state than the log's (G11). Nothing was written.
    #[error("a turn of run {run} begins at event {found}, but its next event is {expected}; decide it again")]
    Conflict {
        /// The run.
        run: RunId,
        /// The id that the run's next event must have.
        expected: EventId,
        /// The id with which the turn begins.
        found: EventId,
    },
    /// A closed run accepts nothing more. Nothing was written.
    #[error("run {run} is already {status}; it accepts no further turn")]
    RunClosed {
        /// The run.
        run: RunId,
        /// How it ended.
        status: WorkflowStatus,
    },
    /// A turn that no machine should have made. Nothing was written.
    #[error("a turn of run {run} cannot be stored: {detail}")]
    Invalid {
        /// The run.
        run: RunId,
        /// The first rule that the turn breaks.
        detail: String,
    },
    /// An earlier write failed; whether it reached the disk is unknown, so nothing more is accepted.
    #[error("the log has failed and accepts nothing more: {first}; see to the disk, then start the worker again")]
    Poisoned {
        /// The first failure.
        first: String,
    },
    /// A payload cannot be written or read by the codecs.
    #[error("a payload of run {run}, event {event}: {why}")]
    PayloadCodec {
        /// The run.
        run: RunId,
        /// The event that carries it.
        event: EventId,
        /// Which codec, and why.
        why: super::CodecError,
    },
}

fn room_for(bytes: u64) -> String {
    if bytes == 0 { "to make ".to_owned() } else { format!("for {bytes} bytes in ") }
}

fn place(group: &Option<GroupSeq>, run: &Option<RunId>) -> impl fmt::Display {
    let mut text = String::new();
    if let Some(group) = group {
        text.push_str(&format!(" at group {group}"));
    }
    if let Some(run) = run {
        text.push_str(&format!(" (run {run})"));
    }
    text
}

impl StorageError {
    /// Whether the disk is full, whatever was changed before that showed.
    pub fn is_full(&self) -> bool {
        matches!(self, StorageError::Full { .. } | StorageError::NoRoom { .. })
    }
    /// Whether the disk is full and nothing was changed.
    pub fn is_no_room(&self) -> bool {
        matches!(self, StorageError::NoRoom { .. })
    }
    /// A write that lacked space before anything that counts was changed.
    pub(crate) fn before_a_change(self) -> Self {
        match self {
            StorageError::Full { path, .. } => StorageError::NoRoom { path, bytes: 0 },
            other => other,
        }
    }
    /// Whether an owner who knows may say that the store is right and the epoch is not.
    pub(crate) fn may_be_accepted(&self) -> bool {
        matches!(
            self,
            StorageError::RolledBack { .. } | StorageError::EpochOfOther { .. } | StorageError::EpochUnreadable { .. }
        )
    }
    /// Whether something that was stored cannot be read as it was written. The log itself goes on.
    pub fn is_damage(&self) -> bool {
        matches!(self, StorageError::Corrupt { .. } | StorageError::NotSound { .. })
    }
    /// Whether the request was at fault, not the disk: nothing was written and the log goes on.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            StorageError::Conflict { .. }
                | StorageError::RunClosed { .. }
                | StorageError::Invalid { .. }
                | StorageError::PayloadCodec { .. }
        )
    }
    pub(crate) fn io(op: &'static str, path: &Path, why: &io::Error) -> Self {
        let (path, message) = (path.to_owned(), why.to_string());
        match why.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StorageError::Full { op, path, message },
            io::ErrorKind::ReadOnlyFilesystem => StorageError::ReadOnly { dir: path },
            kind => StorageError::Io { op, path, kind, message },
        }
    }
    /// Whether the file is somebody else's: nothing is said of what is in it.
    pub(crate) fn is_not_permitted(&self) -> bool {
        matches!(self, StorageError::Io { kind: io::ErrorKind::PermissionDenied, .. })
    }
    /// What was found damaged goes to the list, and all else that can be read counts; what may not be read is an error.
    pub(crate) fn or_damage(self, damage: &mut Vec<String>) -> Result<(), StorageError> {
        if self.is_not_permitted() {
            return Err(self);
        }
        damage.push(self.to_string());
        Ok(())
    }
    pub(crate) fn corrupt(what: &'static str, file: impl Into<PathBuf>, detail: impl Into<String>) -> Self {
        StorageError::Corrupt { what, file: file.into(), group: None, run: None, detail: detail.into() }
    }
    /// Adds the byte to a read that failed.
    pub(crate) fn at_byte(mut self, at: u64) -> Self {
        if let StorageError::Io { message, .. } = &mut self {
            message.push_str(&format!(" (at byte {at})"));
        }
        self
    }
    /// Says how many more places are damaged.
    pub(crate) fn and_more(mut self, places: usize) -> Self {
        if let StorageError::Corrupt { detail, .. } = &mut self
            && places > 0
        {
            detail.push_str(&format!("; {places} more places are damaged"));
        }
        self
    }
    /// Says which groups are damaged too.
    pub(crate) fn also_groups(mut self, groups: &[String]) -> Self {
        if let StorageError::Corrupt { detail, .. } = &mut self
            && !groups.is_empty()
        {
            let shown = groups.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
            let more = if groups.len() > 8 { format!(" and {} more", groups.len() - 8) } else { String::new() };
            detail.push_str(&format!("; so are groups {shown}{more}"));
        }
        self
    }
    pub(crate) fn group(&self) -> Option<GroupSeq> {
        match self {
            StorageError::Corrupt { group, .. } => *group,
            _ => None,
        }
    }
    /// Adds the group to a corruption that does not name one.
    pub(crate) fn at_group(mut self, seq: GroupSeq) -> Self {
        if let StorageError::Corrupt { group, .. } = &mut self {
            group.get_or_insert(seq);
        }
        self
    }
    /// Names the file that a corruption was found in.
    pub(crate) fn in_file(mut self, path: PathBuf) -> Self {
        if let StorageError::Corrupt { file, .. } = &mut self {
            *file = path;
        }
        self
    }
    /// Adds the run to a corruption that does not name one.
    pub(crate) fn of_run(mut self, id: RunId) -> Self {
        if let StorageError::Corrupt { run, .. } = &mut self {
            run.get_or_insert(id);
        }
        self
    }
}
