//! A look at a data directory that changes nothing: what is there, and whether all of it that counts is whole.
//!
//! sled takes what it cannot read for a torn tail and overwrites it. So nothing in a directory is written, by it or by
//! us, before this look has read everything that counts: the pages of the database by their CRCs, the groups, also those
//! in the write-ahead files, by theirs and by their chain, up to the tail anchor. What lies behind the last acknowledged group and is not whole was never
//! acknowledged. Then [`Looked::settle`] writes a snapshot of what was found, so that sled has nothing left to find out
//! by itself: with it, a read that fails during its own open makes that open fail, and overwrites nothing.
//!
//! Invariant: a read error is an error, named with file and byte; damage to anything that counts is an error that names
//! the groups; in both cases no byte was changed. Values and payloads beside the database are checked when they are
//! read: nothing ever overwrites them, and a damaged one concerns its run only.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::anchor::{Anchor, AnchorFile};
use super::chain::ChainHash;
use super::check::{FoundTail, check_groups, entry_value};
use super::epoch::{EpochFile, StoreStanding};
use super::error::StorageError;
use super::files::{DataDir, StoreFormat, sync_dir, sync_tree};
use super::group::Group;
use super::parts::PARTS_OF;
use super::private;
use super::sled_format::pages::Pages;
use super::sled_format::replay::{ReplayedLog, replay};
use super::sled_format::source::{ReadOnlyFile, read_whole};
use super::sled_format::table::PageTable;
use super::sled_format::tree::Tree;
use super::sled_format::{CONF, SEGMENT};
use super::values::ValueFiles;
use super::wal::{self, AheadGroup};
use crate::vocabulary::GroupSeq;

const DEFAULT_TREE: &[u8] = b"__sled__default";
const INSTANCE_KEY: &[u8] = b"instance";

/// What was found.
pub(crate) struct Looked {
    dir: DataDir,
    pub(crate) pages: Arc<Pages>,
    pub(crate) groups: Tree,
    /// If there are write-ahead files, the groups in them that the database does not have.
    pub(crate) ahead: Option<Vec<AheadGroup>>,
    torn: Vec<u64>,
    /// The snapshot on the disk says all of this already.
    settled: bool,
}

/// The database as its own files tell, without a look at what it says.
pub(crate) fn pages(dir: &DataDir) -> Result<(Pages, ReplayedLog, bool), StorageError> {
    let log = dir.sled();
    let db = ReadOnlyFile::open(&log.join("db")).map_err(|why| match why {
        StorageError::Io { kind: ErrorKind::NotFound, .. } => {
            StorageError::corrupt("database", log.join("db"), "it is missing")
        }
        why => why,
    })?;
    let snapshot = newest_snapshot(&log)?;
    let known = snapshot.clone().unwrap_or_default();
    let replayed = replay(&db, known)?;
    let settled = snapshot.is_some_and(|known| known == replayed.table) && replayed.torn.is_empty();
    Ok((Pages::new(db, log.join("blobs"), replayed.table.clone()), replayed, settled))
}

/// See the module.
pub(crate) fn look(dir: &DataDir, format: StoreFormat) -> Result<Looked, StorageError> {
    let anchor = AnchorFile::read(&dir.anchor(), format.instance)?;
    check_conf(&dir.sled().join("conf"))?;
    let (pages, replayed, settled) = pages(dir)?;
    let pages = Arc::new(pages);
    let (ahead, broken) = match format.wal {
        Some(id) => wal::read(&dir.wal(), &id).map(|found| (found.groups, found.broken))?,
        None => (Vec::new(), wal::unnamed(&dir.wal())?),
    };
    let looked = judge(dir, format, anchor, &pages, ahead).and_then(|(groups, ahead, tail)| {
        nothing_goes_on(&broken, tail)?;
        Ok((groups, ahead))
    });
    // Where the log is not whole is the cause, what is missing behind it the consequence.
    let (groups, ahead) = looked.map_err(|why| match (why, replayed.broken) {
        (StorageError::Corrupt { what, group, run, detail, .. }, Some(at)) => {
            let detail = format!("at byte {at}: the database is not whole there; {detail}");
            StorageError::Corrupt { what, file: pages.path().to_owned(), group, run, detail }
        }
        (StorageError::Corrupt { what, file, group, run, detail }, None) => {
            match broken.iter().find(|record| what == "log tail" || group == Some(record.seq)) {
                Some(wal::Broken { file, at, .. }) => {
                    let detail = format!("at byte {at}: the record there is not whole; {detail}");
                    StorageError::Corrupt { what, file: file.clone(), group, run, detail }
                }
                None => StorageError::Corrupt { what, file, group, run, detail },
            }
        }
        (why, _) => why,
    })?;
    let ahead = format.wal.map(|_| ahead);
    Ok(Looked { dir: dir.clone(), pages, groups, ahead, torn: replayed.torn, settled })
}

/// A look that does not know what groups are.
#[cfg(test)]
pub(crate) fn look_at_pages(dir: &DataDir, format: StoreFormat) -> Result<Looked, StorageError> {
    let (pages, replayed, settled) = pages(dir)?;
    let pages = Arc::new(pages);
    let groups = check_pages(dir, format, &pages)?;
    let ahead = format.wal.map(|id| wal::read(&dir.wal(), &id).map(|found| found.groups)).transpose()?;
    Ok(Looked { dir: dir.clone(), pages, groups, ahead, torn: replayed.torn, settled })
}

fn judge(
    dir: &DataDir,
    format: StoreFormat,
    anchor: Anchor,
    pages: &Arc<Pages>,
    ahead: Vec<AheadGroup>,
) -> Result<(Tree, Vec<AheadGroup>, FoundTail), StorageError> {
    let groups = check_pages(dir, format, pages)?;
    let files = ValueFiles::look(dir.groups(), format.instance)?;
    let ends = (ChainHash::origin(&format.instance), anchor);
    let (ahead, tail) = check_groups(&groups, &files, pages.path(), ends, ahead)?;
    Ok((groups, ahead, tail))
}

/// A whole group that goes on where the log ends, in write-ahead files that `bosun.format` does not name, was acknowledged:
/// what ends before it was put back from an older copy (G6).
fn nothing_goes_on(broken: &[wal::Broken], tail: FoundTail) -> Result<(), StorageError> {
    for record in broken.iter().filter(|record| record.seq == tail.last.next()) {
        let body = wal::body_at(&record.file, record.at)?;
        let group = body.and_then(|body| Group::parse(record.seq, body, &record.file).ok());
        if group.is_some_and(|group| tail.chain == Some(group.previous())) {
            let detail = format!(
                "at byte {}: it goes on where the log ends, but bosun.format names other write-ahead files or none: it, the \
                 anchor and the log are of an older copy. Put back all files of one moment, or let `bosun store salvage` \
                 make a whole directory of these",
                record.at
            );
            return Err(StorageError::corrupt("commit group", &record.file, detail).at_group(record.seq));
        }
    }
    Ok(())
}

/// Every page is whole, and it is the database of this directory. Answers the tree of groups.
fn check_pages(dir: &DataDir, format: StoreFormat, pages: &Arc<Pages>) -> Result<Tree, StorageError> {
    let mut first: Option<StorageError> = None;
    let mut count = 0;
    pages.check(&mut |_, _, why| {
        count += 1;
        first.get_or_insert(why);
    })?;
    if let Some(why) = first {
        return Err(why.and_more(count - 1));
    }
    let default = Tree::open(pages.clone(), DEFAULT_TREE)?;
    match default.get(INSTANCE_KEY)? {
        Some(found) if found == format.instance => {}
        Some(_) => {
            return Err(StorageError::corrupt("data directory", dir.sled(), "it belongs to another data directory"));
        }
        None => {
            let detail = "it does not say which data directory it belongs to";
            return Err(StorageError::corrupt("database", pages.path(), detail));
        }
    }
    Tree::open(pages.clone(), b"groups")
}

/// sled takes a `conf` that it cannot read for a new directory's.
pub(crate) fn check_conf(path: &Path) -> Result<(), StorageError> {
    let bytes = read_whole(path).map_err(|why| match why.kind() {
        ErrorKind::NotFound => StorageError::corrupt("database", path, "it is missing"),
        _ => StorageError::io("read", path, &why),
    })?;
    if bytes == [CONF.as_bytes(), &crc32fast::hash(CONF.as_bytes()).to_le_bytes()].concat() {
        return Ok(());
    }
    Err(StorageError::corrupt("database", path, "at byte 0: it does not say what it said when it was made"))
}

/// The snapshots by name, newest last. Those that were being written when a process died are none.
fn snapshots(log: &Path) -> Result<Vec<PathBuf>, StorageError> {
    let io = |why: std::io::Error| StorageError::io("list", log, &why);
    let mut found = Vec::new();
    for entry in fs::read_dir(log).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("snap.")) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn newest_snapshot(log: &Path) -> Result<Option<PageTable>, StorageError> {
    let mut all = snapshots(log)?;
    all.retain(|path| path.extension().is_none_or(|extension| extension != "generating"));
    let Some(path) = all.pop() else { return Ok(None) };
    let bytes = read_whole(&path).map_err(|why| StorageError::io("read", &path, &why))?;
    match PageTable::parse(&bytes) {
        Some(table) => Ok(Some(table)),
        None => Err(StorageError::corrupt("database", path, "at byte 0: its CRC is wrong")),
    }
}

impl Looked {
    /// What an epoch is compared with, before anything is changed.
    pub(crate) fn fits(&self, epoch: &EpochFile, format: &StoreFormat) -> Result<(), StorageError> {
        let files = ValueFiles::look(self.dir.groups(), format.instance)?;
        let ahead = self.ahead.as_deref().unwrap_or_default();
        let mut last = ahead.last().map(|group| group.seq);
        if last.is_none() {
            self.groups.downwards(Some(&[PARTS_OF]), &mut |key, _| {
                last = key.try_into().ok().map(u64::from_be_bytes).map(GroupSeq);
                Ok(last.is_none())
            })?;
        }
        let group = |seq: GroupSeq| {
            if let Some(found) = ahead.iter().find(|group| group.seq == seq) {
                return Group::parse(seq, found.value.clone(), &found.file).map(Some);
            }
            let (key, db) = (seq.0.to_be_bytes(), self.pages.path());
            let Some(entry) = self.groups.get(&key)? else { return Ok(None) };
            let (value, file) = entry_value(&self.groups, &files, db, &key, &entry)?;
            Group::parse(seq, value, &file).map(Some)
        };
        let StoreFormat { instance, origin, .. } = *format;
        let (root, last) = (&*self.dir.root, last.unwrap_or(GroupSeq(0)));
        epoch.check(&StoreStanding { root, instance, origin, last, group: &group })
    }

    /// Writes down what was found, so that sled finds nothing else: the first change of the directory.
    pub(crate) fn settle(&self) -> Result<(), StorageError> {
        if self.settled {
            return Ok(());
        }
        write_snapshot(&self.dir, self.pages.table(), &self.torn)
    }
}

/// After the database was closed: its snapshot, so that the next look has nothing to replay, and nothing in the file
/// can get lost unseen meanwhile.
pub(crate) fn settle_closed(dir: &DataDir) -> Result<(), StorageError> {
    let (pages, replayed, settled) = pages(dir)?;
    if settled || replayed.broken.is_some() {
        return Ok(());
    }
    write_snapshot(dir, pages.table(), &replayed.torn)
}

fn write_snapshot(dir: &DataDir, table: &PageTable, torn: &[u64]) -> Result<(), StorageError> {
    let log = dir.sled();
    let db = log.join("db");
    let unknown = || StorageError::corrupt("database", &db, "a page is nowhere");
    let bytes = table.print().ok_or_else(unknown)?;
    // What the snapshot relies on must be durable before it is: a killed process leaves it in the page cache.
    sync_tree(&log)?;
    if !torn.is_empty() {
        let io = |why: std::io::Error| StorageError::io("write", &db, &why);
        let file = OpenOptions::new().write(true).open(&db).map_err(io)?;
        for at in torn {
            file.write_all_at(&[0; 4_096], *at).map_err(io)?;
        }
        file.sync_all().map_err(io)?;
    }
    let path = log.join(format!("snap.{:016X}", table.stable));
    // sled takes every name that begins with `snap.` for a snapshot.
    let temporary = log.join("new.snap");
    let io = |why: std::io::Error| StorageError::io("write", &temporary, &why);
    let mut file = private::create(&temporary).map_err(io)?;
    file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(io)?;
    fs::rename(&temporary, &path).map_err(|why| StorageError::io("rename", &temporary, &why))?;
    sync_dir(&log)?;
    for old in snapshots(&log)?.into_iter().filter(|old| *old != path) {
        fs::remove_file(&old).map_err(|why| StorageError::io("remove", &old, &why))?;
    }
    debug_assert!(table.stable.is_multiple_of(SEGMENT));
    Ok(())
}
