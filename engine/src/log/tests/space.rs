//! E32, F10: space comes back, and what stays is small.

use std::sync::Arc;
use std::time::Duration;

use super::journal::{KEEP, small};
use super::samples::*;
use super::story::Dice;
use crate::log::*;
use crate::vocabulary::*;

/// E32: filling, closing, deleting and filling again does not let the directory grow.
#[test]
fn deleted_runs_give_their_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let medium = Arc::new(DiskLog::open(dir.path(), SledOptions::default()).unwrap());
    let journal = Journal::open(medium.clone(), small()).unwrap();
    let delete_all: &dyn Fn(&Namespace) -> Option<Duration> = &|_| Some(Duration::ZERO);
    let mut sizes = Vec::new();
    for round in 0..30u64 {
        for n in round * 100..round * 100 + 100 {
            let turns = [start(n, &format!("w{n}")), step(n, 4, 4_000), step(n, 6, 20_000), close(n, 8)];
            journal.commit(&turns).unwrap();
        }
        for _ in 0..12 {
            journal.housekeep(Timestamp::MAX, delete_all).unwrap();
        }
        assert_eq!(journal.info().runs_closed, 0);
        let blobs: usize = (0..=255).map(|byte| medium.blobs(byte).unwrap().len()).sum();
        assert_eq!(blobs, 0, "blobs are left");
        sizes.push(medium.bytes_on_disk().unwrap());
    }
    assert!(sizes[29] < sizes[14] * 13 / 10, "it keeps growing: {sizes:?}");
    assert!(journal.verify().is_sound());
}

/// E31, E32: a large payload is stored once however many runs carry it, and goes with the last of them.
#[test]
fn a_blob_lives_as_long_as_somebody_refers_to_it() {
    let medium = Arc::new(MemoryLog::new([1; 16]));
    let journal = Journal::open(medium.clone(), small()).unwrap();
    let count = || (0..=255).map(|byte| medium.blobs(byte).unwrap().len()).sum::<usize>();
    let large = Payload::bytes(vec![9; 100_000]);
    for n in 1..=3 {
        journal.commit(&[start_with(n, &format!("w{n}"), large.clone()), close(n, 4)]).unwrap();
    }
    assert_eq!(count(), 1);
    for n in 1..=3 {
        journal.housekeep(Timestamp(0), KEEP).unwrap();
        assert_eq!(count(), 1);
        assert_eq!(journal.turns(run_id(3), EventId(1)).unwrap()[0], start_with(3, "w3", large.clone()));
        journal.delete_run(run_id(n)).unwrap();
    }
    journal.housekeep(Timestamp(0), KEEP).unwrap();
    assert_eq!(count(), 0);
}

/// G1, E38: a blob that was damaged on the disk, its length kept, is not taken for what is committed now: whoever commits the same
/// bytes writes them anew, and with that mends it for those who had it before.
#[test]
fn a_damaged_blob_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let large =
        Payload::bytes((0..100_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect::<Vec<u8>>());
    let open = || Journal::open(Arc::new(DiskLog::open(dir.path(), SledOptions::default()).unwrap()), small()).unwrap();
    let journal = open();
    journal.commit(&[start_with(1, "a", large.clone())]).unwrap();
    drop(journal);
    let (name, mut damaged) =
        bytes(dir.path()).into_iter().find(|(name, _)| name.starts_with("payloads")).expect("a long payload is a file");
    damaged[50_000] ^= 1;
    std::fs::write(dir.path().join(name), damaged).unwrap();
    let journal = open();
    assert!(!journal.verify().is_sound());
    journal.commit(&[start_with(2, "b", large.clone())]).unwrap();
    drop(journal);
    let journal = open();
    assert!(journal.verify().is_sound(), "{:?}", journal.verify().findings);
    for n in 1..=2 {
        let workflow = ["a", "b"][n as usize - 1];
        assert_eq!(journal.turns(run_id(n), EventId(1)).unwrap()[0], start_with(n, workflow, large.clone()));
    }
}

/// G1: a checkpoint that is cut short anywhere loses no reference to a blob, of an open run or a closed one: nothing is
/// collected that somebody needs. (It wrote the entries of runs before the references, and recovery took turns that an
/// entry has already for done with.)
#[test]
fn a_blob_outlives_a_checkpoint_that_was_cut_short() {
    let mut cut = 0;
    for n in 1.. {
        let medium = Arc::new(MemoryLog::new([1; 16]));
        let journal = Journal::open(medium.clone(), JournalOptions::default()).unwrap();
        let large = |byte: u8| Payload::bytes(vec![byte; 100_000]);
        journal.commit(&[start(1, "a"), start(2, "b")]).unwrap();
        journal.checkpoint().unwrap();
        journal.commit(&[step_with(1, 4, large(1)), step_with(2, 4, large(2)), close(2, 6)]).unwrap();
        medium.fail_at(n, InjectedFault::Eio);
        let failed = journal.checkpoint().is_err();
        for medium in [medium.kill(), medium.crash(n)] {
            let again = Journal::open(Arc::new(medium), JournalOptions::default()).unwrap();
            for _ in 0..3 {
                again.housekeep(Timestamp(0), KEEP).unwrap();
            }
            assert!(again.verify().is_sound(), "cut at {n}: {:?}", again.verify().findings);
        }
        if !failed {
            break;
        }
        cut += 1;
    }
    assert!(cut >= 4, "{cut} places");
}

/// F10: a sequential step with a result of 200 bytes costs at most 2.5 times that once it is archived.
#[test]
fn an_archived_step_is_small() {
    let medium = Arc::new(MemoryLog::new([1; 16]));
    let journal = Journal::open(medium.clone(), small()).unwrap();
    journal.commit(&[start(1, "a")]).unwrap();
    for i in 0..2_000 {
        journal.commit(&[step(1, 4 + 2 * i, 200)]).unwrap();
    }
    journal.housekeep(Timestamp(0), KEEP).unwrap();
    journal.checkpoint().unwrap();
    let per_step = medium.bytes_on_disk().unwrap() / 2_000;
    assert!(per_step <= 500, "{per_step} bytes a step");
}

/// What the log holds is known also when a kill came between a trim and the next checkpoint.
#[test]
fn a_kill_behind_a_trim_does_not_inflate_the_log() {
    let mut medium = Arc::new(MemoryLog::new([1; 16]));
    let options = JournalOptions { log_keep_bytes: 30_000, ..JournalOptions::default() };
    for life in 0..4u64 {
        let journal = Journal::open(medium.clone(), options.clone()).unwrap();
        for n in 1..=20 {
            journal.commit(&[start(life * 20 + n, "a"), step(life * 20 + n, 4, 3_000)]).unwrap();
        }
        journal.housekeep(Timestamp(0), KEEP).unwrap();
        drop(journal);
        medium = Arc::new(medium.kill());
        let again = Journal::open(medium.clone(), options.clone()).unwrap();
        let mut bytes = 0;
        medium
            .groups_from(GroupSeq(0), &mut |_, value| {
                bytes += value.len() as u64;
                Ok(true)
            })
            .unwrap();
        assert_eq!(again.info().log_bytes, bytes, "life {life}");
        drop(again);
        medium = Arc::new(medium.kill());
    }
}

/// F06: the index entry and the log record of a parked run stay below 1.5 KiB.
#[test]
fn a_parked_run_is_small_on_disk() {
    let medium = Arc::new(MemoryLog::new([1; 16]));
    let journal = Journal::open(medium.clone(), JournalOptions::default()).unwrap();
    for n in 1..=500 {
        journal.commit(&[start(n, &format!("customer-order-{n}"))]).unwrap();
    }
    journal.checkpoint().unwrap();
    let per_run = medium.bytes_on_disk().unwrap() / 500;
    assert!(per_run <= 1_536, "{per_run} bytes a run");
}

/// Six bits a character, in no order: text that hardly gets smaller.
fn random_text(dice: &mut Dice, length: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..length).map(|_| char::from(LETTERS[dice.roll(64) as usize])).collect()
}

/// E31, issue 5: what a run is told costs at most 1.3 times its length on disk, however many steps it took and however
/// short they are, in the log as in the archive.
#[test]
fn a_long_conversation_costs_little_more_than_its_text() {
    for (steps, length) in [(10, 2_048), (100, 1_024), (100, 2_048), (1_000, 2_048), (100, 20_000)] {
        let dir = tempfile::tempdir().unwrap();
        let medium = Arc::new(DiskLog::open(dir.path(), SledOptions::default()).unwrap());
        let journal = Journal::open(medium.clone(), small()).unwrap();
        journal.commit(&[start(1, "a")]).unwrap();
        journal.checkpoint().unwrap();
        let empty = size(dir.path());
        let mut dice = Dice(7);
        for i in 0..steps {
            let text = Payload::encode(&random_text(&mut dice, length)).unwrap();
            journal.commit(&[step_with(1, 4 + 2 * i, text)]).unwrap();
        }
        let text = steps * length as u64;
        let in_log = size(dir.path()) - empty;
        journal.checkpoint().unwrap();
        while journal.housekeep(Timestamp(0), KEEP).unwrap().archived > 0 {}
        let archived = size(dir.path()) - empty;
        journal.close().unwrap();
        for (bytes, place) in [(in_log, "in the log"), (archived, "archived")] {
            assert!(bytes * 10 <= text * 13, "{steps} steps of {length} bytes: {bytes} for {text} {place}");
        }
    }
}

fn size(dir: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| if entry.path().is_dir() { size(&entry.path()) } else { entry.metadata().unwrap().len() }).sum()
}
