//! Values beside the database: what is replaced gives its space back, and a file goes only when nothing can need it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::damage::copy_dir;
use super::journal::{KEEP, small};
use super::samples::*;
use super::story::Dice;
use crate::log::*;
use crate::vocabulary::*;

fn open(dir: &Path) -> SledLog {
    SledLog::open_opaque(dir, SledOptions { instance: Some([1; 16]), ..SledOptions::default() }).unwrap()
}

fn tail(last: u64) -> Anchor {
    Anchor { last: GroupSeq(last), chain: ChainHash([last as u8; 32]) }
}

/// Bytes in no order, so that they keep their length on disk.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut dice = Dice(seed * 2_654_435_761 + 1);
    (0..length).map(|_| dice.roll(256) as u8).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn put(medium: &SledLog, shelf: Shelf, key: u64, value: Option<Vec<u8>>) {
    medium.change_shelves(&[ShelfChange { shelf, key: key.to_be_bytes().to_vec(), value }]).unwrap();
}

/// G2: after a removal the entries may be back until the next sync, so their files stay till then. Groups that nobody
/// removed stay readable, in the file as in the database.
#[test]
fn files_of_groups_go_after_the_sync_of_their_removal() {
    let dir = tempfile::tempdir().unwrap();
    let medium = open(dir.path());
    let group = |seq: u64| noise(seq, if seq.is_multiple_of(5) { 100 } else { 40_000 });
    for seq in 1..=100 {
        medium.append(GroupSeq(seq), &group(seq), group(seq).len()).unwrap();
    }
    medium.sync(tail(100)).unwrap();
    let groups = dir.path().join("groups");
    let before = names(&groups);
    assert_eq!(before.len(), 3, "{before:?}");
    medium.remove_groups(1..=60).unwrap();
    assert_eq!(names(&groups), before, "the removal is not durable");
    medium.sync(tail(100)).unwrap();
    assert_eq!(names(&groups), before[1..], "each file is called by its first group");
    // A torn tail is no trim.
    medium.remove_groups(100..=100).unwrap();
    medium.sync(tail(99)).unwrap();
    let check = |medium: &SledLog| {
        for seq in 1..=100 {
            let expected = (61..100).contains(&seq).then(|| group(seq));
            assert!(medium.group(GroupSeq(seq)).unwrap() == expected, "group {seq}");
        }
    };
    check(&medium);
    drop(medium);
    let medium = open(dir.path());
    check(&medium);
    medium.remove_groups(1..=99).unwrap();
    medium.sync(tail(99)).unwrap();
    assert_eq!(names(&groups), Vec::<String>::new(), "no group is left");
    medium.append(GroupSeq(100), &group(101), 40_000).unwrap();
    medium.sync(tail(100)).unwrap();
    assert_eq!((names(&groups).len(), medium.group(GroupSeq(100)).unwrap()), (1, Some(group(101))));
}

/// E32: long values that are replaced or removed give their space back, whatever stays between them; and nothing that
/// counts is ever lost, seen from this process and from one that finds the files as they are at any moment.
#[test]
fn replaced_values_give_their_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let medium = open(dir.path());
    let mut expected: std::collections::BTreeMap<u64, u64> = (0..40).map(|key| (key, key)).collect();
    let value = |seed: u64| noise(seed, 20_000);
    (0..40).for_each(|key| put(&medium, Shelf::Archive, key, Some(value(key))));
    let mut dice = Dice(9);
    for round in 1..=1_200u64 {
        // The first ten keys stay as they are, in files that all others leave.
        let key = 10 + dice.roll(30);
        match dice.roll(4) {
            0 => drop((expected.remove(&key), put(&medium, Shelf::Archive, key, None))),
            _ => {
                expected.insert(key, 1_000 + round);
                put(&medium, Shelf::Archive, key, Some(value(1_000 + round)));
            }
        }
        if round.is_multiple_of(3) {
            medium.sync(tail(round)).unwrap();
        }
        if round.is_multiple_of(150) {
            let copy = tempfile::tempdir().unwrap();
            copy_dir(dir.path(), copy.path());
            let found = open(copy.path()).shelf_scan(Shelf::Archive, &[], ScanFrom::First, 99).unwrap();
            let now = expected.iter().map(|(key, seed)| (key.to_be_bytes().to_vec(), value(*seed)));
            assert!(found.into_iter().eq(now), "round {round}");
        }
    }
    let bytes: u64 = names(&dir.path().join("values"))
        .iter()
        .map(|name| dir.path().join("values").join(name).metadata().unwrap().len())
        .sum();
    let counting = expected.len() as u64 * 20_000;
    assert!(bytes < 2 * counting + 3 * 1024 * 1024, "{bytes} bytes for {counting} that count");
}

/// A reader beside sweeps and trims sees each value whole, old or new, and none is missing.
#[test]
fn readers_beside_a_sweep_see_every_value() {
    let dir = tempfile::tempdir().unwrap();
    let medium = Arc::new(open(dir.path()));
    let value = |key: u64, round: u64| [key.to_be_bytes().to_vec(), noise(key * 1_000 + round, 30_000)].concat();
    (0..10).for_each(|key| put(&medium, Shelf::Archive, key, Some(value(key, 0))));
    let done = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let (medium, done) = (medium.clone(), done.clone());
        move || {
            let mut reads = 0u64;
            while !done.load(Ordering::Relaxed) {
                for key in 0..10u64 {
                    let found = medium.shelf_get(Shelf::Archive, &key.to_be_bytes()).unwrap().expect("it is there");
                    assert_eq!((found[..8].to_vec(), found.len()), (key.to_be_bytes().to_vec(), 30_008));
                }
                let all = medium.shelf_scan(Shelf::Archive, &[], ScanFrom::First, 99).unwrap();
                assert_eq!(all.len(), 10);
                reads += 1;
            }
            reads
        }
    });
    for round in 1..=400 {
        let key = round * 7 % 9;
        put(&medium, Shelf::Archive, key, Some(value(key, round)));
        medium.sync(tail(round)).unwrap();
    }
    done.store(true, Ordering::Relaxed);
    assert!(reader.join().unwrap() > 10);
}

/// G9: a directory of format 1 stays one until there is something that format 1 does not have, and goes on then.
#[test]
fn a_directory_of_format_1_becomes_one_of_format_2_when_it_must() {
    let dir = tempfile::tempdir().unwrap();
    copy_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/databases/v1"), dir.path());
    let format = || std::fs::read_to_string(dir.path().join("bosun.format")).unwrap();
    let journal = |options| {
        let medium = SledLog::open(dir.path(), SledOptions::default()).unwrap();
        Journal::open(Arc::new(medium), options).unwrap()
    };
    let first = journal(JournalOptions::default());
    first.commit(&[start(50, "small")]).unwrap();
    assert!(format().contains("format 1 ready"), "{}", format());
    first.commit(&[start(51, "large"), step(51, 4, 3_000)]).unwrap();
    assert!(format().contains("format 2 ready"), "{}", format());
    drop(first);
    let again = journal(small());
    assert_eq!(again.turns(run_id(51), EventId(1)).unwrap(), [start(51, "large"), step(51, 4, 3_000)]);
    while again.housekeep(Timestamp(0), KEEP).unwrap().archived > 0 {}
    assert_eq!(again.turns(run_id(51), EventId(1)).unwrap(), [start(51, "large"), step(51, 4, 3_000)]);
    assert!(again.verify().is_sound(), "{:?}", again.verify());
}

/// E38: damage beside the database is found by `verify`, with the file it is in.
#[test]
fn verify_names_the_damaged_file() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(Arc::new(open(dir.path())), small()).unwrap();
    journal.commit(&[start(1, "a"), step_with(1, 4, Payload::bytes(noise(1, 9_000)))]).unwrap();
    assert!(journal.verify().is_sound());
    let damage = |part: &str| {
        let path = dir.path().join(part).join(&names(&dir.path().join(part))[0]);
        let whole = std::fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let report = journal.verify();
        std::fs::write(&path, whole).unwrap();
        (path, report)
    };
    let (path, report) = damage("groups");
    assert!(report.findings.iter().any(|found| found.file == path && found.group == Some(GroupSeq(1))), "{report:?}");
    journal.commit(&[heartbeat(1, 6)]).unwrap();
    assert_eq!(journal.housekeep(Timestamp(0), KEEP).unwrap().archived, 1);
    let (path, report) = damage("values");
    assert!(report.findings.iter().any(|found| found.file == path), "{report:?}");
    assert!(journal.verify().is_sound());
}

/// A damaged value does not stop the log: it is not moved, its reader is told, and everything else goes on.
#[test]
fn a_sweep_goes_around_damage() {
    let dir = tempfile::tempdir().unwrap();
    let medium = open(dir.path());
    (0..60).for_each(|key| put(&medium, Shelf::Archive, key, Some(noise(key, 20_000))));
    medium.sync(tail(1)).unwrap();
    let oldest = dir.path().join("values").join(&names(&dir.path().join("values"))[0]);
    let mut bytes = std::fs::read(&oldest).unwrap();
    bytes[10_000] ^= 1;
    std::fs::write(&oldest, bytes).unwrap();
    // All but the damaged one and its neighbour go from the file.
    (2..60).for_each(|key| put(&medium, Shelf::Archive, key, Some(noise(100 + key, 20_000))));
    for round in 2..40 {
        medium.sync(tail(round)).unwrap();
        put(&medium, Shelf::Archive, 59, Some(noise(200 + round, 20_000)));
    }
    let read = |key: u64| medium.shelf_get(Shelf::Archive, &key.to_be_bytes());
    assert!(matches!(read(0), Err(StorageError::Corrupt { file, .. }) if file == oldest));
    assert_eq!(read(1), Ok(Some(noise(1, 20_000))));
    assert!((2..59).all(|key| read(key) == Ok(Some(noise(100 + key, 20_000)))));
    assert_eq!(read(59), Ok(Some(noise(239, 20_000))));
}

/// G1: trims beside commits take nothing that a commit has just written (a trim once sealed the file of a group whose
/// entry was still to come).
#[test]
fn trims_beside_commits_take_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::open(Arc::new(open(dir.path())), small()).unwrap());
    journal.commit(&[start(1, "a")]).unwrap();
    let (done, trims) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let trimmer = std::thread::spawn({
        let (journal, done, trims) = (journal.clone(), done.clone(), trims.clone());
        move || {
            while !done.load(Ordering::Relaxed) {
                let removed = journal.housekeep(Timestamp(0), KEEP).unwrap().groups_removed;
                trims.fetch_add(removed.min(1), Ordering::Relaxed);
            }
        }
    });
    let mut told = vec![start(1, "a")];
    let began = std::time::Instant::now();
    // Three seconds do where disk and machine are quick; the trims must have come, however slow they are.
    let begun = || began.elapsed() < Duration::from_secs(3);
    while trims.load(Ordering::Relaxed) <= 5 || (begun() && told.len() < 3_000) {
        assert!(began.elapsed() < Duration::from_secs(120), "the log is hardly ever trimmed");
        let next = told.last().unwrap().next_event().0;
        // Long and short ones, so that often no long one is left.
        let length = if told.len().is_multiple_of(3) { 600 } else { 10 };
        let turn = step_with(1, next, Payload::bytes(noise(next, length)));
        journal.commit(std::slice::from_ref(&turn)).unwrap();
        told.push(turn);
    }
    done.store(true, Ordering::Relaxed);
    trimmer.join().unwrap();
    assert!(journal.turns(run_id(1), EventId(1)).unwrap() == told);
    assert!(journal.verify().is_sound(), "{:?}", journal.verify().findings);
    drop(journal);
    let again = Journal::open(Arc::new(open(dir.path())), small()).unwrap();
    assert!(again.turns(run_id(1), EventId(1)).unwrap() == told);
}

/// Bytes that do not shrink, as encrypted ones do not, are committed for ever.
#[test]
fn bytes_in_no_order_are_committed_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(Arc::new(open(dir.path())), JournalOptions::default()).unwrap();
    journal.commit(&[start(1, "a")]).unwrap();
    let turns: Vec<Turn> = (0..300).map(|n| step_with(1, 4 + 2 * n, Payload::bytes(noise(n, 3_000)))).collect();
    for turn in &turns {
        journal.commit(std::slice::from_ref(turn)).unwrap();
    }
    assert!(journal.turns(run_id(1), EventId(4)).unwrap() == turns);
}

/// E38: what is derived is rebuilt, also where it lies beside the database; the archive is not, and each damage of it is
/// told, with its run, and of no other run.
#[test]
fn a_damaged_index_beside_the_database_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let memo: Memo = [("note".into(), Payload::bytes(noise(3, 9_000)))].into();
    let mut with_memo = start(1, "a");
    let EventKind::WorkflowExecutionStarted(started) = &mut with_memo.events[0] else { panic!() };
    started.memo = memo;
    let journal = Journal::open(Arc::new(open(dir.path())), JournalOptions::default()).unwrap();
    journal.commit(std::slice::from_ref(&with_memo)).unwrap();
    let snapshot = MachineSnapshot { event: EventId(3), build: BuildId(7), state: noise(4, 20_000) };
    journal.put_snapshot(run_id(1), snapshot).unwrap();
    journal.close().unwrap();
    drop(journal);
    let file = dir.path().join("values").join(&names(&dir.path().join("values"))[0]);
    let mut bytes = std::fs::read(&file).unwrap();
    for at in (200..bytes.len()).step_by(3_000) {
        bytes[at] ^= 1;
    }
    std::fs::write(&file, bytes).unwrap();
    let journal = Journal::open(Arc::new(open(dir.path())), JournalOptions::default()).unwrap();
    assert_eq!(journal.turns(run_id(1), EventId(1)).unwrap(), [with_memo]);
    assert_eq!(journal.snapshot(run_id(1)), None);
    assert!(journal.verify().is_sound(), "{:?}", journal.verify().findings);
}

#[test]
fn each_damage_of_the_archive_is_told_with_its_run() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(Arc::new(open(dir.path())), small()).unwrap();
    for n in 1..=100 {
        journal.commit(&[start(n, "a"), step_with(n, 4, Payload::bytes(noise(n, 2_000)))]).unwrap();
    }
    while journal.housekeep(Timestamp(0), KEEP).unwrap().archived > 0 {}
    for n in 1..=100 {
        journal.commit(&[heartbeat(n, 6)]).unwrap();
    }
    let file = dir.path().join("values").join(&names(&dir.path().join("values"))[0]);
    let mut bytes = std::fs::read(&file).unwrap();
    (bytes[50_000], bytes[100_000]) = (!bytes[50_000], !bytes[100_000]);
    std::fs::write(&file, bytes).unwrap();
    let findings = journal.verify().findings;
    let runs: std::collections::BTreeSet<_> = findings.iter().map(|found| found.run).collect();
    assert!(findings.iter().any(|found| found.class == FindingClass::Archive && found.file == file), "{findings:?}");
    assert!(runs.len() == 2 && !runs.contains(&None), "{findings:?}");
}

/// A file that cannot even be opened stops only the readers of what is in it.
#[test]
fn a_sweep_goes_around_a_file_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let medium = open(dir.path());
    (0..120).for_each(|key| put(&medium, Shelf::Archive, key, Some(noise(key, 20_000))));
    medium.sync(tail(1)).unwrap();
    drop(medium);
    let oldest = dir.path().join("values").join(&names(&dir.path().join("values"))[0]);
    std::fs::remove_file(&oldest).unwrap();
    std::fs::create_dir(&oldest).unwrap();
    let medium = open(dir.path());
    for round in 2..20 {
        put(&medium, Shelf::Archive, 119, Some(noise(round, 20_000)));
        medium.append(GroupSeq(round), &noise(round, 5_000), 5_000).unwrap();
        medium.sync(tail(round)).unwrap();
    }
    assert!(medium.shelf_get(Shelf::Archive, &0u64.to_be_bytes()).is_err());
    assert_eq!(medium.shelf_get(Shelf::Archive, &119u64.to_be_bytes()), Ok(Some(noise(19, 20_000))));
}

/// Files whose values cannot all be found hinder no other: what is dead elsewhere goes.
#[test]
fn damaged_files_hinder_no_sweep() {
    let dir = tempfile::tempdir().unwrap();
    let medium = open(dir.path());
    (0..400).for_each(|key| put(&medium, Shelf::Archive, key, Some(noise(key, 20_000))));
    medium.sync(tail(1)).unwrap();
    drop(medium);
    let values = dir.path().join("values");
    let before = names(&values);
    for name in &before[..2] {
        // The head of the first frame: nothing behind it can be found by its frames.
        let mut bytes = std::fs::read(values.join(name)).unwrap();
        bytes[34] ^= 1;
        std::fs::write(values.join(name), bytes).unwrap();
    }
    let medium = open(dir.path());
    for key in 110..400 {
        put(&medium, Shelf::Archive, key, None);
        medium.sync(tail(key)).unwrap();
    }
    for round in 0..40 {
        put(&medium, Shelf::Archive, 999, Some(noise(round, 100)));
        medium.sync(tail(1_000 + round)).unwrap();
    }
    let after = names(&values);
    assert!(after.len() <= 4, "{before:?} {after:?}");
    assert!(after[..2] == before[..2], "{after:?}");
}

/// E32: also a file that a crash has torn goes when nothing in it counts.
#[test]
fn torn_files_give_their_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let values = dir.path().join("values");
    for life in 0..4u64 {
        let medium = open(dir.path());
        (0..20).for_each(|key| put(&medium, Shelf::Archive, life * 20 + key, Some(noise(key, 20_000))));
        medium.sync(tail(life + 1)).unwrap();
        drop(medium);
        let newest = values.join(names(&values).last().unwrap());
        let torn = [std::fs::read(&newest).unwrap(), noise(life, 100)].concat();
        std::fs::write(&newest, torn).unwrap();
    }
    let medium = open(dir.path());
    for key in 0..80 {
        put(&medium, Shelf::Archive, key, None);
    }
    for round in 0..30 {
        medium.sync(tail(10 + round)).unwrap();
        put(&medium, Shelf::Archive, 99, Some(noise(round, 20_000)));
    }
    assert_eq!(names(&values).len(), 1, "the one that is written to");
}
