//! The epoch: a directory that was put back as a whole is told by a file outside of it, and nothing else is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::damage::copy_dir;
use super::journal::{KEEP, small};
use super::opening::changed;
use super::samples::*;
use crate::log::*;
use crate::vocabulary::*;

struct Home {
    home: tempfile::TempDir,
    dir: PathBuf,
}

impl Home {
    fn new() -> Home {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("data");
        Home { home, dir }
    }
    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }
    fn file(&self) -> EpochFile {
        EpochFile::new(&self.at("epoch"), false)
    }
    fn open_at(&self, dir: &Path, accept: bool) -> Result<Journal, StorageError> {
        open(dir, Some(EpochFile::new(&self.at("epoch"), accept)))
    }
    fn open(&self) -> Result<Journal, StorageError> {
        self.open_at(&self.dir, false)
    }
    /// Works on it, and leaves it closed.
    fn told(&self, runs: std::ops::Range<u64>) {
        let journal = self.open().unwrap();
        tell(&journal, runs);
        journal.close().unwrap();
    }
    fn noted(&self) -> u64 {
        self.file().read().unwrap().unwrap().tail.last.0
    }
    fn put_back(&self, copy: &str) {
        std::fs::remove_dir_all(&self.dir).unwrap();
        copy_dir(&self.at(copy), &self.dir);
    }
    /// It is refused, and nothing was changed.
    fn refused(&self) -> StorageError {
        let (before, epoch) = (bytes(&self.dir), self.file().read());
        let why = self.open().unwrap_err();
        assert_eq!(changed(&before, &self.dir), Vec::<PathBuf>::new(), "{why}");
        assert_eq!(self.file().read(), epoch, "{why}");
        why
    }
}

fn open(dir: &Path, epoch: Option<EpochFile>) -> Result<Journal, StorageError> {
    let options = SledOptions { cache_bytes: 4 << 20, wal_bytes: 64 * 1024, epoch, ..SledOptions::default() };
    Journal::open(Arc::new(DiskLog::open(dir, options)?), small())
}

fn tell(journal: &Journal, runs: std::ops::Range<u64>) {
    for n in runs {
        journal.commit(&[start(n, &format!("w{n}")), step(n, 4, 40)]).unwrap();
    }
}

/// Written when a store was opened, at a checkpoint and at its end; not by commits.
#[test]
fn the_epoch_is_written_beside_the_commits() {
    let home = Home::new();
    let journal = home.open().unwrap();
    assert_eq!(home.noted(), 0);
    tell(&journal, 1..6);
    assert_eq!(home.noted(), 0, "a commit writes no epoch");
    journal.checkpoint().unwrap();
    assert_eq!(home.noted(), 5);
    tell(&journal, 6..8);
    journal.housekeep(Timestamp(0), KEEP).unwrap();
    assert_eq!(home.noted(), 7);
    tell(&journal, 8..9);
    journal.close().unwrap();
    let end = home.noted();
    assert_eq!(end, journal.last_group().0);
    drop(journal);
    drop(home.open().unwrap());
    assert_eq!(home.noted(), end);
}

/// G6: an older copy is whole, and refused by name before a byte is changed, whether the worker that wrote it was closed or
/// killed; the owner may take it, and then it is the newest.
#[test]
fn a_directory_that_was_put_back_is_refused() {
    let home = Home::new();
    home.told(1..6);
    copy_dir(&home.dir, &home.at("closed"));
    let journal = home.open().unwrap();
    tell(&journal, 6..9);
    copy_dir(&home.dir, &home.at("killed"));
    tell(&journal, 9..12);
    journal.close().unwrap();
    drop(journal);
    let newest = home.noted();
    for (copy, last) in [("closed", 5), ("killed", 8)] {
        home.put_back(copy);
        let why = home.refused();
        let StorageError::RolledBack { noted, last: found, .. } = &why else { panic!("{copy}: {why}") };
        assert_eq!((noted.0, found.0), (newest, last), "{copy}");
        let said = why.to_string();
        for part in [&format!("group {last}"), &format!("group {newest}"), "--accept-rollback", "/epoch"] {
            assert!(said.contains(part), "{said}");
        }
        // Without the file nothing tells.
        drop(open(&home.dir, None).unwrap());
    }
    home.put_back("closed");
    drop(home.open_at(&home.dir, true).unwrap());
    assert_eq!(home.noted(), 5);
    home.told(20..22);
    assert_eq!(home.noted(), 7);
}

/// The copy that was put back went on without the file: it is longer than what was noted, and still another.
#[test]
fn a_copy_that_went_on_is_refused() {
    let home = Home::new();
    home.told(1..6);
    copy_dir(&home.dir, &home.at("older"));
    home.told(6..9);
    home.put_back("older");
    let journal = open(&home.dir, None).unwrap();
    tell(&journal, 30..40);
    journal.close().unwrap();
    drop(journal);
    let why = home.refused();
    assert!(matches!(&why, StorageError::RolledBack { detail, .. } if detail.contains("another chain")), "{why}");
}

#[test]
fn another_store_or_none_and_a_file_that_cannot_be_read_are_refused() {
    let home = Home::new();
    home.told(1..4);
    std::fs::rename(&home.dir, home.at("first")).unwrap();
    let why = home.open().unwrap_err();
    assert!(matches!(&why, StorageError::EpochOfOther { detail, .. } if detail.contains("up to group 3")), "{why}");
    assert!(!home.dir.exists(), "nothing is made");
    drop(open(&home.dir, None).unwrap());
    let why = home.refused();
    assert!(matches!(&why, StorageError::EpochOfOther { .. }), "{why}");
    drop(home.open_at(&home.dir, true).unwrap());
    drop(home.open().unwrap());
    std::fs::write(home.at("epoch"), "bosun epoch\n").unwrap();
    let why = home.open().unwrap_err();
    assert!(matches!(&why, StorageError::EpochUnreadable { .. }), "{why}");
    drop(home.open_at(&home.dir, true).unwrap());
    assert_eq!(home.noted(), 0);
    let inside = open(&home.dir, Some(EpochFile::new(&home.dir.join("epoch"), true))).unwrap_err();
    assert!(matches!(inside, StorageError::EpochInside { .. }), "{inside}");
}

/// A process that is killed anywhere, and starts again: no false alarm.
#[test]
fn a_kill_raises_no_alarm() {
    let home = Home::new();
    let journal = home.open().unwrap();
    for n in 1..24 {
        tell(&journal, n..n + 1);
        if n % 3 == 0 {
            journal.checkpoint().unwrap();
        }
        let copy = home.at(&format!("copy-{n}"));
        copy_dir(&home.dir, &copy);
        let epoch = home.file().read().unwrap().unwrap();
        assert_eq!(home.open_at(&copy, false).map(drop), Ok(()), "after commit {n}");
        assert_eq!(home.noted(), n);
        // As it was before that start.
        home.file().write(&epoch).unwrap();
    }
}

/// The last group was acknowledged, noted, and damaged behind an anchor that lags: nothing in the directory knows of it.
#[test]
fn the_last_group_is_missed_where_the_anchor_lags() {
    let home = Home::new();
    let journal = home.open().unwrap();
    tell(&journal, 1..4);
    let anchor = std::fs::read(home.dir.join("anchor")).unwrap();
    let before = std::fs::read(home.dir.join("wal/0")).unwrap();
    tell(&journal, 4..5);
    copy_dir(&home.dir, &home.at("killed"));
    let after = std::fs::read(home.dir.join("wal/0")).unwrap();
    journal.checkpoint().unwrap();
    assert_eq!(home.noted(), 4);
    drop(journal);
    home.put_back("killed");
    let at = before.iter().zip(&after).position(|(old, new)| old != new).unwrap();
    std::fs::write(home.dir.join("anchor"), anchor).unwrap();
    let torn = [&after[..at + 100], &before[at + 100..]].concat();
    std::fs::write(home.dir.join("wal/0"), torn).unwrap();
    let why = home.refused();
    assert!(matches!(&why, StorageError::RolledBack { noted: GroupSeq(4), last: GroupSeq(3), .. }), "{why}");
    assert_eq!(open(&home.dir, None).unwrap().last_group(), GroupSeq(3), "nothing else tells");
}

/// Copies by our own hand: as old as what they hold. What is swept or made compact is the same store.
#[test]
fn a_restore_is_as_old_as_its_backup() {
    let home = Home::new();
    let journal = home.open().unwrap();
    tell(&journal, 1..6);
    journal.backup(&home.at("early")).unwrap();
    tell(&journal, 6..8);
    journal.close().unwrap();
    journal.backup(&home.at("late")).unwrap();
    drop(journal);
    restore(&home.at("early"), &home.at("old"), &small()).unwrap();
    let why = home.open_at(&home.at("old"), false).unwrap_err();
    assert!(matches!(why, StorageError::RolledBack { noted: GroupSeq(7), last: GroupSeq(5), .. }), "{why}");
    restore(&home.at("late"), &home.at("new"), &small()).unwrap();
    drop(home.open_at(&home.at("new"), false).unwrap());
    collect_garbage(&home.dir, &small()).unwrap();
    drop(home.open().unwrap());
    compact(&home.dir, &small()).unwrap();
    let journal = home.open().unwrap();
    // What was noted may be trimmed away meanwhile.
    tell(&journal, 8..40);
    for n in 1..40 {
        journal.commit(&[close(n, 6)]).unwrap();
    }
    let epoch = home.file().read().unwrap().unwrap();
    while journal.first_group() <= epoch.tail.last {
        journal.housekeep(Timestamp(0), KEEP).unwrap();
    }
    journal.close().unwrap();
    drop(journal);
    home.file().write(&epoch).unwrap();
    drop(home.open().unwrap());
}

/// A salvage makes another store, which knows what it comes from: of the newest it fits, of an older one it does not. So
/// does what is made of it.
#[test]
fn a_salvage_goes_on_where_its_source_was_not_older() {
    let home = Home::new();
    home.told(1..6);
    copy_dir(&home.dir, &home.at("older"));
    home.told(6..9);
    let epoch = home.file().read().unwrap().unwrap();
    salvage(&home.at("older"), &home.at("old"), None).unwrap();
    let why = home.open_at(&home.at("old"), false).unwrap_err();
    assert!(matches!(why, StorageError::RolledBack { noted: GroupSeq(8), last: GroupSeq(5), .. }), "{why}");
    salvage(&home.dir, &home.at("saved"), None).unwrap();
    compact(&home.at("saved"), &small()).unwrap();
    drop(home.open_at(&home.at("saved"), false).unwrap());
    assert_ne!(home.file().read().unwrap().unwrap().instance, epoch.instance, "the epoch is the new one's");
    // The source is another store now.
    assert!(matches!(home.refused(), StorageError::EpochOfOther { .. }));
    home.file().write(&epoch).unwrap();
    // In place, the same; also where the process dies before it notes the new store.
    std::fs::write(home.dir.join("log/conf"), "damaged").unwrap();
    std::fs::write(home.at("older/log/conf"), "damaged").unwrap();
    let before = bytes(&home.at("older"));
    let why = isolate(&home.at("older"), Some(&home.file())).unwrap_err();
    assert!(matches!(why, StorageError::RolledBack { .. }), "{why}");
    assert_eq!(changed(&before, &home.at("older")), Vec::<PathBuf>::new());
    isolate(&home.dir, Some(&home.file())).unwrap();
    assert_eq!(home.noted(), 8);
    drop(home.open().unwrap());
    assert_ne!(home.file().read().unwrap().unwrap().instance, epoch.instance);
}

/// Who only looks says the same, and changes neither.
#[test]
fn a_look_judges() {
    let home = Home::new();
    home.told(1..6);
    copy_dir(&home.dir, &home.at("older"));
    home.told(6..9);
    let judged = |dir: &Path| home.file().judge(dir, &StoreReader::open(dir).unwrap());
    assert_eq!(judged(&home.dir).unwrap().unwrap().tail.last, GroupSeq(8));
    let why = judged(&home.at("older")).unwrap_err();
    assert!(matches!(why, StorageError::RolledBack { .. }), "{why}");
    assert_eq!(home.noted(), 8);
    std::fs::remove_file(home.at("epoch")).unwrap();
    assert_eq!(judged(&home.dir), Ok(None));
}
