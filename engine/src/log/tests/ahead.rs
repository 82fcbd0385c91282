//! What is written ahead of the database: there after a kill, damage to it told, nothing left of it after a close.

use std::path::Path;
use std::sync::Arc;

use super::samples::*;
use crate::log::*;
use crate::vocabulary::*;

const BLOCK: usize = 4_096;

fn options(wal_bytes: u64) -> SledOptions {
    SledOptions { instance: Some([1; 16]), cache_bytes: 4 * 1024 * 1024, wal_bytes, ..SledOptions::default() }
}

fn open(dir: &Path) -> Result<Journal, StorageError> {
    Journal::open(Arc::new(DiskLog::open(dir, options(64 * 1024))?), JournalOptions::default())
}

/// The files as a process would find them if this one were killed now.
fn killed(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for part in ["log/blobs", "payloads", "groups", "values", "wal"] {
        std::fs::create_dir_all(copy.path().join(part)).unwrap();
    }
    // First the database: one that is fed meanwhile is a prefix, and what it names must be there.
    let database = bytes(&dir.join("log")).into_iter().map(|(name, content)| (Path::new("log").join(name), content));
    let database: Vec<_> = database.collect();
    let others = bytes(dir).into_iter().filter(|(name, _)| !name.starts_with("log"));
    for (name, content) in others.chain(database) {
        let path = copy.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    copy
}

/// One run with a turn of each of these lengths.
fn told(journal: &Journal, lengths: &[usize]) -> Vec<Turn> {
    let mut turns = vec![start(1, "a")];
    for (n, length) in (0..).zip(lengths) {
        turns.push(step(1, 4 + 2 * n, *length));
    }
    for turn in &turns {
        journal.commit(std::slice::from_ref(turn)).unwrap();
    }
    turns
}

fn turns(journal: &Journal) -> Vec<Turn> {
    journal.turns(run_id(1), EventId(1)).unwrap()
}

/// G1, G2: a kill after each commit, of short groups and long ones, in each lap of the files.
#[test]
fn what_was_written_ahead_is_there_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).unwrap();
    let mut expected = told(&journal, &[]);
    for n in 0..60 {
        let turn = step(1, 4 + 2 * n, [30, 3_000, 9_000, 14_000][n as usize % 4]);
        journal.commit(std::slice::from_ref(&turn)).unwrap();
        expected.push(turn);
        let copy = killed(dir.path());
        let before = bytes(copy.path());
        let looking = Journal::open(Arc::new(StoreReader::open(copy.path()).unwrap()), JournalOptions::default());
        let looking = looking.unwrap();
        assert_eq!(turns(&looking), expected);
        assert!(looking.verify().is_sound());
        drop(looking);
        assert!(bytes(copy.path()) == before, "a look changed something");
        let again = open(copy.path()).unwrap();
        assert_eq!(turns(&again), expected, "after step {n}");
        assert_eq!(turns(&journal), expected);
    }
}

/// G2: a power cut sets the anchor back and tears the record that was being written: nobody was told of it.
#[test]
fn a_torn_record_that_nobody_was_told_of_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).unwrap();
    let mut expected = told(&journal, &[30, 9_000, 50]);
    let anchor = std::fs::read(dir.path().join("anchor")).unwrap();
    for n in 3..6 {
        let turn = step(1, 4 + 2 * n, 30);
        journal.commit(std::slice::from_ref(&turn)).unwrap();
        expected.push(turn);
    }
    let before = std::fs::read(dir.path().join("wal/0")).unwrap();
    journal.commit(&[step(1, 10 + 2 * 3, 9_000)]).unwrap();
    let after = std::fs::read(dir.path().join("wal/0")).unwrap();
    let first = before.iter().zip(&after).position(|(old, new)| old != new).unwrap();
    assert!(first.is_multiple_of(BLOCK), "it begins a block: {first}");
    for cut in [1, 8, 24, 500, 4_096, 8_000, 8_192, 9_000] {
        let copy = killed(dir.path());
        std::fs::write(copy.path().join("anchor"), &anchor).unwrap();
        let torn = [&after[..first + cut], &before[first + cut..]].concat();
        std::fs::write(copy.path().join("wal/0"), torn).unwrap();
        let again = open(copy.path()).unwrap();
        assert_eq!(turns(&again), expected, "cut at {cut}");
        again.commit(&[step(1, 16, 10)]).unwrap();
        drop(again);
        assert_eq!(turns(&open(copy.path()).unwrap()).len(), expected.len() + 1);
    }
}

/// G4, G6: a record that others follow was acknowledged, also where the anchor does not know it yet.
#[test]
fn a_damaged_record_that_others_follow_is_no_torn_one() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).unwrap();
    journal.commit(&[start(1, "a")]).unwrap();
    let anchor = std::fs::read(dir.path().join("anchor")).unwrap();
    for n in 0..3 {
        journal.commit(&[step(1, 4 + 2 * n, 30)]).unwrap();
    }
    for block in 1..=2 {
        let copy = killed(dir.path());
        std::fs::write(copy.path().join("anchor"), &anchor).unwrap();
        let mut damaged = std::fs::read(copy.path().join("wal/0")).unwrap();
        damaged[block * BLOCK + 90] ^= 1;
        std::fs::write(copy.path().join("wal/0"), damaged).unwrap();
        let before = bytes(copy.path());
        let why = open(copy.path()).unwrap_err();
        assert!(matches!(why, StorageError::Corrupt { group: Some(_), .. }), "block {block}: {why}");
        assert!(bytes(copy.path()) == before, "block {block}: something changed");
    }
}

/// G4, G6: any damaged block of a record that was acknowledged refuses the directory, and changes nothing; with the
/// damage taken back everything is there. A salvage keeps what is whole.
#[test]
fn damage_to_what_was_acknowledged_is_told_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).unwrap();
    let expected = told(&journal, &[30, 9_000, 50, 14_000, 20]);
    let whole = std::fs::read(dir.path().join("wal/0")).unwrap();
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap() / BLOCK + 1;
    assert!(used > 6, "{used} blocks");
    for block in 0..used {
        let copy = killed(dir.path());
        let path = copy.path().join("wal/0");
        let mut damaged = whole.clone();
        damaged[block * BLOCK + 9] ^= 4;
        damaged[block * BLOCK + 15] ^= 4;
        std::fs::write(&path, damaged).unwrap();
        let before = bytes(copy.path());
        let why = open(copy.path()).unwrap_err();
        assert!(matches!(why, StorageError::Corrupt { group: Some(_), .. }), "block {block}: {why}");
        assert!(bytes(copy.path()) == before, "block {block}: something changed");
        let saved = tempfile::tempdir().unwrap();
        let report = salvage(copy.path(), saved.path(), None).unwrap();
        assert!(!report.groups_lost.is_empty(), "block {block}: {report:?}");
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(turns(&open(copy.path()).unwrap()), expected, "block {block}");
    }
    for part in ["wal/0", "wal/1", "wal"] {
        let copy = killed(dir.path());
        let path = copy.path().join(part);
        std::fs::rename(&path, copy.path().join("away")).unwrap();
        let why = open(copy.path()).unwrap_err();
        assert!(matches!(&why, StorageError::Corrupt { file, .. } if *file == path), "{part}: {why}");
        assert!(!path.exists());
    }
    let copy = killed(dir.path());
    let saved = tempfile::tempdir().unwrap();
    let report = salvage(copy.path(), saved.path(), None).unwrap();
    assert!(report.held.is_empty() && report.groups_lost.is_empty(), "{report:?}");
    assert_eq!(turns(&open(saved.path()).unwrap()), expected);
}

/// G9: while there are groups that only these files have, a program that does not know of them refuses the directory;
/// after a close it is again what every program reads.
#[test]
fn after_a_close_the_database_alone_has_everything() {
    let dir = tempfile::tempdir().unwrap();
    let format = || std::fs::read_to_string(dir.path().join("bosun.format")).unwrap();
    let mut expected = Vec::new();
    for life in 0..3 {
        let journal = open(dir.path()).unwrap();
        assert!(!dir.path().join("wal").exists() && format().contains("format 2 ready"), "nothing was written yet");
        match life {
            0 => expected = told(&journal, &[30, 9_000]),
            _ => {
                let turn = step(1, 6 + 2 * life, 300);
                journal.commit(std::slice::from_ref(&turn)).unwrap();
                expected.push(turn);
            }
        }
        assert!(dir.path().join("wal/1").exists() && format().contains("format 3 ready"));
        assert_eq!(journal.info().format, WAL_FORMAT_VERSION);
        if life == 1 {
            journal.close().unwrap();
        }
        drop(journal);
        assert!(!dir.path().join("wal").exists() && format().contains("format 2 ready"));
        let looking = Journal::open(Arc::new(StoreReader::open(dir.path()).unwrap()), JournalOptions::default());
        assert_eq!(turns(&looking.unwrap()), expected);
    }
}

/// G2: files that no format names were never begun, or are done with: they count for nothing.
#[test]
fn files_that_are_not_named_count_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).unwrap();
    let expected = told(&journal, &[30]);
    let stale = std::fs::read(dir.path().join("wal/0")).unwrap();
    journal.close().unwrap();
    drop(journal);
    std::fs::create_dir(dir.path().join("wal")).unwrap();
    std::fs::write(dir.path().join("wal/0"), stale).unwrap();
    let journal = open(dir.path()).unwrap();
    assert_eq!(turns(&journal), expected);
    assert!(!dir.path().join("wal").exists());
}

/// G6: where the anchor and the format are of an older copy, the groups written since are not passed over: nothing is changed,
/// and a salvage has them all.
#[test]
fn groups_that_an_older_format_does_not_name_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).unwrap();
    let mut expected = told(&journal, &[30]);
    journal.close().unwrap();
    drop(journal);
    let older = ["anchor", "bosun.format"].map(|name| (name, std::fs::read(dir.path().join(name)).unwrap()));
    let journal = open(dir.path()).unwrap();
    let turn = step(1, 6, 300);
    journal.commit(std::slice::from_ref(&turn)).unwrap();
    expected.push(turn);
    let copy = killed(dir.path());
    drop(journal);
    for (name, content) in older {
        std::fs::write(copy.path().join(name), content).unwrap();
    }
    let before = bytes(copy.path());
    let why = open(copy.path()).unwrap_err();
    assert!(matches!(&why, StorageError::Corrupt { group: Some(_), .. }), "{why}");
    assert!(why.to_string().contains("older copy"), "{why}");
    assert!(StoreReader::open(copy.path()).is_err(), "looking is no other answer");
    assert!(bytes(copy.path()) == before, "something changed");
    let saved = tempfile::tempdir().unwrap();
    salvage(copy.path(), saved.path(), None).unwrap();
    assert_eq!(turns(&open(saved.path()).unwrap()), expected);
}
