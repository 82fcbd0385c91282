//! G10, E38: a backup taken under load is a consistent prefix that opens as a normal data directory.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::journal::{KEEP, small};
use super::samples::*;
use crate::log::wal::behind;
use crate::log::*;
use crate::vocabulary::*;

#[test]
fn a_backup_under_load_is_a_consistent_prefix() {
    let home = tempfile::tempdir().unwrap();
    let medium = DiskLog::open(&home.path().join("data"), SledOptions::default()).unwrap();
    let journal = Journal::open(Arc::new(medium), small()).unwrap();
    let stop = AtomicBool::new(false);
    for n in 1..=4 {
        journal.commit(&[start(n, &format!("w{n}"))]).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0.. {
                if stop.load(Ordering::Acquire) {
                    break;
                }
                // All four runs step together: a prefix holds the same number of steps of each.
                let turns: Vec<Turn> = (1..=4).map(|n| step(n, 4 + 2 * i, 100 + 300 * (i as usize % 70))).collect();
                journal.commit(&turns).unwrap();
            }
        });
        for round in 0..5 {
            let dir = home.path().join(format!("backup{round}"));
            let report = journal.backup(&dir).unwrap();
            assert_eq!(report.instance, journal.instance());
            let copy = Journal::open(Arc::new(DiskLog::open(&dir, SledOptions::default()).unwrap()), small()).unwrap();
            assert_eq!(copy.info().last_group, report.last_group);
            let lengths: Vec<usize> = (1..=4)
                .map(|n| {
                    let (found, source) = (copy.turns(run_id(n), EventId(1)), journal.turns(run_id(n), EventId(1)));
                    let (found, source) = (found.unwrap(), source.unwrap());
                    assert_eq!(found, source[..found.len()]);
                    found.len()
                })
                .collect();
            assert!(lengths.iter().all(|length| *length == lengths[0]), "{lengths:?}");
            assert!(copy.verify().is_sound(), "{:?}", copy.verify());
            copy.commit(&[start(99, "new")]).unwrap();
            copy.close().unwrap();
            journal.housekeep(Timestamp(0), KEEP).unwrap();
        }
        stop.store(true, Ordering::Release);
    });
}

#[test]
fn a_backup_never_overwrites_a_store() {
    let home = tempfile::tempdir().unwrap();
    let journal = Journal::open(Arc::new(MemoryLog::new([7; 16])), small()).unwrap();
    journal.commit(&[start(1, "a"), step(1, 4, 50_000)]).unwrap();
    journal.backup(home.path()).unwrap();
    assert!(matches!(journal.backup(home.path()), Err(StorageError::Taken { .. })));
    let copy = Journal::open(Arc::new(DiskLog::open(home.path(), SledOptions::default()).unwrap()), small()).unwrap();
    assert_eq!(copy.instance(), [7; 16]);
    assert_eq!(copy.turns(run_id(1), EventId(1)), journal.turns(run_id(1), EventId(1)));
}

/// A backup reads every group once.
#[test]
fn a_backup_reads_each_group_once() {
    let home = tempfile::tempdir().unwrap();
    let medium = Arc::new(Counting { live: MemoryLog::new([7; 16]), groups: AtomicU64::new(0) });
    let journal = Journal::open(medium.clone(), small()).unwrap();
    journal.commit(&[start(1, "a"), step(1, 4, 50_000)]).unwrap();
    journal.commit(&[step(1, 6, 40_000), start(2, "b")]).unwrap();
    let before = medium.groups.load(Ordering::Relaxed);
    let report = journal.backup(&home.path().join("copy")).unwrap();
    assert_eq!((medium.groups.load(Ordering::Relaxed) - before, report.blobs), (2, 2));
}

/// Counts the groups that are read of it.
#[derive(Debug)]
struct Counting {
    live: MemoryLog,
    groups: AtomicU64,
}

impl Log for Counting {
    behind!(self, self.live);
    fn append(&self, seq: GroupSeq, value: &[u8], longest: usize) -> Result<(), StorageError> {
        self.live.append(seq, value, longest)
    }
    fn sync(&self, tail: Anchor) -> Result<(), StorageError> {
        self.live.sync(tail)
    }
    fn group(&self, seq: GroupSeq) -> Result<Option<Vec<u8>>, StorageError> {
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.live.group(seq)
    }
    fn bounds(&self) -> Result<Option<(GroupSeq, GroupSeq)>, StorageError> {
        self.live.bounds()
    }
    fn groups_from(
        &self,
        from: GroupSeq,
        visit: &mut dyn FnMut(GroupSeq, Vec<u8>) -> Result<bool, StorageError>,
    ) -> Result<(), StorageError> {
        self.live.groups_from(from, visit)
    }
    fn remove_groups(&self, range: std::ops::RangeInclusive<u64>) -> Result<(), StorageError> {
        self.live.remove_groups(range)
    }
}

/// G10: a payload that is gone, or is another one, is found when the copy is made, and not when it is needed.
#[test]
fn a_backup_without_a_payload_is_none() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let journal = Journal::open(Arc::new(DiskLog::open(&data, SledOptions::default()).unwrap()), small()).unwrap();
    journal.commit(&[start(1, "a"), step(1, 4, 50_000)]).unwrap();
    journal.backup(&home.path().join("whole")).unwrap();

    let blob = files_below(&data.join("payloads")).pop().expect("a long payload is a file");
    let content = std::fs::read(&blob).unwrap();
    for damaged in [None, Some(&content[..content.len() / 2])] {
        match damaged {
            None => std::fs::remove_file(&blob).unwrap(),
            Some(half) => std::fs::write(&blob, half).unwrap(),
        }
        let target = home.path().join("copy");
        let refused = journal.backup(&target);
        assert!(matches!(refused, Err(StorageError::NotSound { .. })), "{refused:?}");
        assert!(!target.join("log").exists(), "half a backup is none");
    }
    // What a salvage has found lost is held, and is no reason to have no backup of all the rest.
    std::fs::remove_file(&blob).unwrap();
    journal.close().unwrap();
    drop(journal);
    let saved = home.path().join("saved");
    let report = salvage(&data, &saved, None).unwrap();
    assert_eq!(report.held.len(), 1, "{report:?}");
    let journal = Journal::open(Arc::new(DiskLog::open(&saved, SledOptions::default()).unwrap()), small()).unwrap();
    let of_what_is_held = home.path().join("of-what-is-held");
    journal.backup(&of_what_is_held).unwrap();
    journal.close().unwrap();
    drop(journal);
    // And what was saved so can be brought back, and made compact.
    let back = home.path().join("back");
    restore(&of_what_is_held, &back, &small()).unwrap();
    compact(&back, &small()).unwrap();
    let journal = Journal::open(Arc::new(StoreReader::open(&back).unwrap()), small()).unwrap();
    assert_eq!(journal.held_runs().unwrap().len(), 1);
    drop(journal);

    std::fs::write(&blob, content).unwrap();
    let journal = Journal::open(Arc::new(DiskLog::open(&data, SledOptions::default()).unwrap()), small()).unwrap();
    journal.backup(&home.path().join("again")).unwrap();
}

fn files_below(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found
}
