//! The data directory: one owner at a time, no foreign or newer parts, creation that can be cut short.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::journal::small;
use super::samples::*;
use crate::log::*;
use crate::vocabulary::*;

fn open(dir: &Path) -> Result<Journal, StorageError> {
    Journal::open(Arc::new(DiskLog::open(dir, SledOptions::default())?), small())
}

fn filled(dir: &Path) {
    let journal = open(dir).unwrap();
    journal.commit(&[start(1, "a"), step(1, 4, 40_000)]).unwrap();
    journal.close().unwrap();
}

/// G8: a second process is refused within a second, and let in when the first is gone.
#[test]
fn a_directory_in_use_is_refused_quickly() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    let asked = Instant::now();
    assert!(matches!(open(dir.path()), Err(StorageError::Locked { .. })));
    // It asks once; a machine that is busy may stop it meanwhile.
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    drop(first);
    open(dir.path()).unwrap();
}

/// G6: each part that is missing is named, and nothing is made in its place.
#[test]
fn a_missing_part_is_named() {
    for part in ["bosun.format", "anchor", "log", "payloads", "groups"] {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path());
        let path = dir.path().join(part);
        std::fs::rename(&path, dir.path().join("away")).unwrap();
        let why = open(dir.path()).unwrap_err();
        assert!(matches!(&why, StorageError::Corrupt { file, .. } if *file == path), "{part}: {why}");
        assert!(!path.exists(), "{part} was made again");
        std::fs::rename(dir.path().join("away"), &path).unwrap();
        assert_eq!(open(dir.path()).unwrap().turns(run_id(1), EventId(1)).unwrap().len(), 2);
    }
}

/// G6: an older log beside a newer anchor is an error, not less history.
#[test]
fn an_older_log_is_refused() {
    let (dir, old) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    filled(dir.path());
    super::damage::copy_dir(&dir.path().join("log"), &old.path().join("log"));
    let journal = open(dir.path()).unwrap();
    journal.commit(&[step(1, 6, 1)]).unwrap();
    journal.close().unwrap();
    drop(journal);
    std::fs::remove_dir_all(dir.path().join("log")).unwrap();
    super::damage::copy_dir(&old.path().join("log"), &dir.path().join("log"));
    let why = open(dir.path()).unwrap_err();
    assert!(matches!(why, StorageError::Corrupt { what: "log tail", group: Some(GroupSeq(2)), .. }), "{why}");
}

/// G9: the directory of a newer program is refused before anything in it is touched.
#[test]
fn a_newer_format_is_refused_unharmed() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let content = "bosun data directory\nformat 9 ready\ninstance of another kind\n";
    let text = format!("{content}crc {:08x}\n", crc32fast::hash(content.as_bytes()));
    std::fs::write(dir.path().join("bosun.format"), text).unwrap();
    let state = |dir: &Path| {
        let listing = std::fs::read_dir(dir).unwrap().chain(std::fs::read_dir(dir.join("log")).unwrap());
        let mut seen: Vec<_> = listing
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.path(), entry.metadata().unwrap().modified().unwrap(), entry.metadata().unwrap().len()))
            .collect();
        seen.sort();
        seen
    };
    let before = state(dir.path());
    assert!(matches!(
        open(dir.path()),
        Err(StorageError::FormatTooNew { found: 9, supported: WAL_FORMAT_VERSION, .. })
    ));
    assert_eq!(state(dir.path()), before);
}

/// G2: whatever a cut in the middle of the creation leaves, the next start finishes it.
#[test]
fn a_creation_that_was_cut_short_is_finished() {
    for cut in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        drop(SledLog::open(dir.path(), SledOptions { instance: Some([5; 16]), ..SledOptions::default() }).unwrap());
        let content = format!("bosun data directory\nformat 1 creating\ninstance {}\n", hex(&[5; 16]));
        let text = format!("{content}crc {:08x}\n", crc32fast::hash(content.as_bytes()));
        std::fs::write(dir.path().join("bosun.format"), text).unwrap();
        if cut < 3 {
            std::fs::remove_file(dir.path().join("anchor")).unwrap();
            std::fs::remove_dir_all(dir.path().join("payloads")).unwrap();
        }
        match cut {
            0 => std::fs::remove_dir_all(dir.path().join("log")).unwrap(),
            1 => std::fs::write(dir.path().join("log/db"), vec![7; 1_000]).unwrap(),
            _ => {}
        }
        filled(dir.path());
        assert_eq!(open(dir.path()).unwrap().instance(), [5; 16]);
    }
}

#[test]
fn a_file_in_place_of_the_directory_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    std::fs::write(&path, "text").unwrap();
    assert!(matches!(open(&path), Err(StorageError::NotADatabase { .. })));
}

/// G1: now and then the database moves a whole tree node to a file of its own, which it never syncs (notes/sled.md).
/// Whatever is there after a sync has been synced by us; and with values cut small there is hardly ever any.
#[test]
fn what_the_database_moves_to_files_of_its_own_is_synced() {
    let dir = tempfile::tempdir().unwrap();
    let medium = SledLog::open(dir.path(), SledOptions::default()).unwrap();
    for seq in 1..=300u64 {
        let length = [200, 8_000, 12_000, 12_288, 15_000, 300_000][(seq / 20) as usize % 6];
        medium.append(GroupSeq(seq), &vec![seq as u8; length], length.min(500)).unwrap();
        let change = ShelfChange {
            shelf: Shelf::Archive,
            key: (seq % 40).to_be_bytes().to_vec(),
            value: Some(vec![seq as u8; length / 2]),
        };
        medium.change_shelves(&[change]).unwrap();
        medium.sync(Anchor { last: GroupSeq(seq), chain: ChainHash([0; 32]) }).unwrap();
        assert_eq!(medium.unsynced_files(), Vec::<std::ffi::OsString>::new(), "after group {seq}");
    }
    let left: Vec<_> = std::fs::read_dir(dir.path().join("log/blobs")).unwrap().collect();
    assert!(left.len() <= 5, "{left:?}");
    // The instrument works: a file that nobody synced is seen.
    std::fs::write(dir.path().join("log/blobs/1"), "x").unwrap();
    assert_eq!(medium.unsynced_files(), ["1"]);
}

/// G1: after a kill (no close, no drop) everything acknowledged is there, and the anchor names the last group.
#[test]
fn what_was_acknowledged_is_there_without_a_close() {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let journal = open(dir.path()).unwrap();
    journal.commit(&[start(1, "a")]).unwrap();
    for i in 0..40 {
        journal.commit(&[step(1, 4 + 2 * i, 3_000)]).unwrap();
    }
    // The files as another process would find them now.
    super::damage::copy_dir(dir.path(), copy.path());
    let medium = DiskLog::open(copy.path(), SledOptions::default()).unwrap();
    assert_eq!(medium.anchor().unwrap().map(|anchor| anchor.last), Some(GroupSeq(41)));
    let again = Journal::open(Arc::new(medium), small()).unwrap();
    assert_eq!(again.turns(run_id(1), EventId(1)).unwrap(), journal.turns(run_id(1), EventId(1)).unwrap());
}
