//! The write-ahead files: two segments of zeros that groups are written over, in turn.
//!
//! A write to blocks that are there changes nothing of the file but its content, so one `fdatasync` makes it durable and
//! nothing else must be written for it (measured: 0.6-0.9 of what an append takes). A segment is used again once the
//! database holds all its groups, durably; then its old records are overwritten from the start.
//!
//! Invariant: the files are whole and durable before `bosun.format` names their id, and are removed after it names it no
//! longer. Whether a segment may be used again is for the caller to know.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::record;
use crate::log::files::sync_dir;
use crate::log::sled_format::source::{ReadOnlyFile, reading};
use crate::log::{StorageError, private};
use crate::seeded::{self, Bug};
use crate::vocabulary::GroupSeq;

const SEGMENTS: usize = 2;

/// A segment that fills faster is fed as it is: to pack it would take more than a fifth of a core from those who fill it, and
/// their commits would wait for that (measured: deflate packs some 100 MiB/s, and a segment has 4 MiB).
const FAST: Duration = Duration::from_millis(200);

pub(super) fn path_of(dir: &Path, segment: usize) -> PathBuf {
    dir.join(segment.to_string())
}

/// The segments that are written to.
#[derive(Debug)]
pub(super) struct Segments {
    dir: PathBuf,
    pub(super) id: [u8; 16],
    files: [File; SEGMENTS],
    bytes: u64,
    current: usize,
    at: u64,
    /// The last group in each.
    last: [u64; SEGMENTS],
    buffer: Vec<u8>,
    began: Instant,
    /// The segment before was full in less than [`FAST`].
    fast: bool,
}

impl Segments {
    /// New files, durable on return.
    pub(super) fn create(dir: &Path, id: [u8; 16], bytes: u64) -> Result<Segments, StorageError> {
        private::make_dir(dir).map_err(|why| StorageError::io("create", dir, &why))?;
        let make = |segment: usize| {
            let path = path_of(dir, segment);
            let io = |op| move |why: std::io::Error| StorageError::io(op, &path_of(dir, segment), &why);
            let mut file = private::create(&path).map_err(io("create"))?;
            let zeros = vec![0; bytes.min(1 << 20) as usize];
            let mut left = bytes as usize;
            while left > 0 {
                let part = left.min(zeros.len());
                file.write_all(&zeros[..part]).map_err(io("write"))?;
                left -= part;
            }
            file.sync_all().map_err(io("fsync"))?;
            Ok(file)
        };
        let files = [make(0)?, make(1)?];
        sync_dir(dir)?;
        let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
        sync_dir(above.unwrap_or(Path::new(".")))?;
        Ok(Segments {
            dir: dir.to_owned(),
            id,
            files,
            bytes,
            current: 0,
            at: 0,
            last: [0; SEGMENTS],
            buffer: Vec::new(),
            began: Instant::now(),
            fast: false,
        })
    }

    /// Whether a group of this length is for these files: a longer one would fill a segment alone.
    pub(super) fn holds(&self, length: usize) -> bool {
        record::room_for(length) <= self.bytes / 2
    }

    /// Through which group everything must be in the database before a group of this length can be written. 0: it fits.
    pub(super) fn needs_fed(&self, length: usize) -> u64 {
        if self.is_full(length) { self.last[1 - self.current] } else { 0 }
    }

    /// Writes a group; durable on return. What [`Segments::needs_fed`] says must have been done.
    pub(super) fn write(&mut self, seq: GroupSeq, body: &[u8]) -> Result<(), StorageError> {
        if self.is_full(body.len()) {
            (self.current, self.at) = (1 - self.current, 0);
            self.fast = self.began.elapsed() < FAST;
            self.began = Instant::now();
        }
        record::encode(&mut self.buffer, &self.id, seq, body);
        let file = &self.files[self.current];
        let path = || path_of(&self.dir, self.current);
        file.write_all_at(&self.buffer, self.at).map_err(|why| StorageError::io("write", &path(), &why))?;
        if !seeded::on(Bug::AckBeforeJournalSync) {
            let other = &self.files[1 - self.current];
            let file = if seeded::on(Bug::FsyncWrongFile) { other } else { file };
            file.sync_data().map_err(|why| StorageError::io("fsync", &path(), &why))?;
        }
        self.at += self.buffer.len() as u64;
        self.last[self.current] = seq.0;
        Ok(())
    }

    /// Whether so much is written that packing it would hold up who writes.
    pub(super) fn fill_fast(&self) -> bool {
        self.fast
    }

    /// Whether the current segment has no room for one more group of this length.
    pub(super) fn is_full(&self, length: usize) -> bool {
        self.at + record::room_for(length) > self.bytes
    }
}

/// Removes the files, if there are any. `bosun.format` names them no longer.
pub(crate) fn remove(dir: &Path) -> Result<(), StorageError> {
    match fs::remove_dir_all(dir) {
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(()),
        Err(why) => Err(StorageError::io("remove", dir, &why)),
        Ok(()) => sync_dir(dir.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))),
    }
}

/// A group that was read.
#[derive(Debug)]
pub(crate) struct AheadGroup {
    pub(crate) seq: GroupSeq,
    pub(crate) value: Vec<u8>,
    pub(crate) file: PathBuf,
}

/// A record that is not whole.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) file: PathBuf,
    pub(crate) at: u64,
    /// Which group it says it is.
    pub(crate) seq: GroupSeq,
}

/// What the files hold.
#[derive(Debug, Default)]
pub(crate) struct WalContents {
    /// Every group that is whole, in order; those that the database has had for long too.
    pub(crate) groups: Vec<AheadGroup>,
    /// Where a record begins that is not whole: torn, damaged, or one that the next lap has cut off.
    pub(crate) broken: Vec<Broken>,
}

/// Reads all of the files; changes nothing. A read that fails is an error.
pub(crate) fn read(dir: &Path, id: &[u8; 16]) -> Result<WalContents, StorageError> {
    let mut found = WalContents::default();
    for segment in 0..SEGMENTS {
        let path = path_of(dir, segment);
        blocks(&path, &mut |at, claim| {
            if claim.is_whole(id) || seeded::on(Bug::JournalChecksumNotChecked) {
                found.groups.push(AheadGroup { seq: claim.seq, value: claim.body.to_vec(), file: path.clone() });
                return record::room_for(claim.body.len());
            }
            found.broken.push(Broken { file: path.clone(), at, seq: claim.seq });
            record::BLOCK as u64
        })?;
    }
    found.groups.sort_by_key(|group| group.seq);
    if seeded::on(Bug::ReplaySkipsLastJournalGroup) {
        found.groups.pop();
    }
    Ok(found)
}

/// Where records begin in files that nothing names: normally there are no such files, or they are of no use any more.
pub(crate) fn unnamed(dir: &Path) -> Result<Vec<Broken>, StorageError> {
    let mut found = Vec::new();
    for path in (0..SEGMENTS).map(|segment| path_of(dir, segment)).filter(|path| path.is_file()) {
        blocks(&path, &mut |at, claim| {
            found.push(Broken { file: path.clone(), at, seq: claim.seq });
            record::BLOCK as u64
        })?;
    }
    Ok(found)
}

/// The group of the record that begins there, whole or not.
pub(crate) fn body_at(path: &Path, begins: u64) -> Result<Option<Vec<u8>>, StorageError> {
    let mut body = None;
    blocks(path, &mut |at, claim| {
        if at == begins {
            body = Some(claim.body.to_vec());
        }
        record::BLOCK as u64
    })?;
    Ok(body)
}

/// Every place of a file that says that a record begins there; `visit` answers how far the next one is.
pub(super) fn blocks(
    path: &Path,
    visit: &mut dyn FnMut(u64, record::RecordClaim<'_>) -> u64,
) -> Result<(), StorageError> {
    let missing = |why: StorageError| match why {
        StorageError::Io { kind: ErrorKind::NotFound, .. } => {
            StorageError::corrupt("write-ahead file", path, "it is missing")
        }
        why => why,
    };
    reading().map_err(|why| StorageError::io("open", path, &why))?;
    let source = ReadOnlyFile::open(path).map_err(missing)?;
    let mut bytes = Vec::new();
    source.read(&mut bytes, 0, usize::try_from(source.length()).unwrap_or(usize::MAX))?;
    walk(&bytes, visit);
    Ok(())
}

/// The same of what can be read of a damaged file.
pub(crate) fn blocks_around(
    path: &Path,
    damage: &mut Vec<String>,
    visit: &mut dyn FnMut(u64, record::RecordClaim<'_>) -> u64,
) -> Result<(), StorageError> {
    let source = ReadOnlyFile::open(path)?;
    let mut bytes = Vec::new();
    let failed = source.read_around(&mut bytes, 0, usize::try_from(source.length()).unwrap_or(usize::MAX));
    damage.extend(failed.iter().map(ToString::to_string));
    walk(&bytes, visit);
    Ok(())
}

fn walk(bytes: &[u8], visit: &mut dyn FnMut(u64, record::RecordClaim<'_>) -> u64) {
    let mut at = 0;
    while at < bytes.len() as u64 {
        at += match record::RecordClaim::at(&bytes[at as usize..]) {
            Some(claim) => visit(at, claim),
            None => record::BLOCK as u64,
        };
    }
}
