//! E32, F10: space comes back, and what stays is small.

use std::sync::Arc;
use std::time::Duration;

use super::journal::{KEEP, small};
use super::samples::*;
use crate::log::*;
use crate::vocabulary::*;

/// E32: filling, closing, deleting and filling again does not let the directory grow.
#[test]
fn deleted_runs_give_their_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let medium = Arc::new(SledLog::open(dir.path(), SledOptions::default()).unwrap());
    let journal = Journal::open(medium.clone(), small()).unwrap();
    let delete_all: &dyn Fn(&Namespace) -> Option<Duration> = &|_| Some(Duration::ZERO);
    let mut sizes = Vec::new();
    for round in 0..8u64 {
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
    assert!(sizes[7] < sizes[3] * 13 / 10, "it keeps growing: {sizes:?}");
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
