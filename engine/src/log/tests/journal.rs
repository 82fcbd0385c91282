//! The journal over memory: commit, read, list, delete, recover.

use std::sync::Arc;
use std::time::Duration;

use super::samples::*;
use crate::log::*;
use crate::vocabulary::*;

pub(crate) fn open(medium: &Arc<MemoryLog>) -> Journal {
    Journal::open(medium.clone(), small()).unwrap()
}

/// Trims whatever it may.
pub(crate) fn small() -> JournalOptions {
    JournalOptions { log_keep_bytes: 0, blob_above: 16 * 1024, ..JournalOptions::default() }
}

pub(crate) const KEEP: &dyn Fn(&Namespace) -> Option<Duration> = &|_| None;

fn memory() -> Arc<MemoryLog> {
    Arc::new(MemoryLog::new([3; 16]))
}

fn ids(journal: &Journal) -> Vec<RunId> {
    let mut found = Vec::new();
    journal.scan_runs(&mut |info| {
        found.push(info.run_id);
        true
    });
    found
}

#[test]
fn a_committed_group_is_read_back_in_order() {
    let journal = open(&memory());
    let turns = [start(1, "a"), start(2, "b"), step(1, 4, 10), heartbeat(1, 6), step(1, 6, 20)];
    let committed = journal.commit(&turns).unwrap();
    assert_eq!(committed.group, GroupSeq(1));
    let expected: Vec<Turn> = [0, 2, 3, 4].map(|i| turns[i].clone()).to_vec();
    assert_eq!(journal.turns(run_id(1), EventId(1)).unwrap(), expected);
    assert_eq!(journal.turns(run_id(2), EventId(1)).unwrap(), [turns[1].clone()]);
    assert_eq!(journal.turns(run_id(9), EventId(1)).unwrap(), []);
    let entry = journal.run(run_id(1)).unwrap();
    assert_eq!((entry.next_event, entry.info.history.events), (EventId(8), 7));
    assert_eq!(entry.outlook, turns[4].outlook);
}

#[test]
fn reading_from_an_event_gives_what_holds_it_or_came_since() {
    let medium = memory();
    let journal = open(&medium);
    let turns = [start(1, "a"), step(1, 4, 10), heartbeat(1, 6), step(1, 6, 20), heartbeat(1, 8)];
    for turn in &turns {
        journal.commit(std::slice::from_ref(turn)).unwrap();
    }
    let check = |journal: &Journal| {
        for (from, first) in [(1, 0), (3, 0), (4, 1), (5, 1), (6, 2), (7, 3), (8, 4), (9, 5)] {
            assert_eq!(journal.turns(run_id(1), EventId(from)).unwrap(), turns[first..], "from {from}");
        }
    };
    check(&journal);
    // The same when part of it, or all but the last group, is in the archive.
    journal.commit(&[start(2, "b")]).unwrap();
    assert!(journal.housekeep(Timestamp(0), KEEP).unwrap().groups_removed > 0);
    check(&journal);
    drop(journal);
    check(&open(&medium));
}

/// G11: a commit is compare-and-set on the run's next event; a group that does not fit changes nothing.
#[test]
fn a_turn_that_does_not_fit_is_refused_with_its_whole_group() {
    let journal = open(&memory());
    journal.commit(&[start(1, "a")]).unwrap();
    let late = journal.commit(&[start(2, "b"), step(1, 3, 1)]);
    assert_eq!(late, Err(StorageError::Conflict { run: run_id(1), expected: EventId(4), found: EventId(3) }));
    let twice = journal.commit(&[step(1, 4, 1), step(1, 4, 1)]);
    assert_eq!(twice, Err(StorageError::Conflict { run: run_id(1), expected: EventId(6), found: EventId(4) }));
    assert!(matches!(journal.commit(&[start(1, "a")]), Err(StorageError::Conflict { .. })));
    assert!(matches!(journal.commit(&[step(5, 4, 1)]), Err(StorageError::Conflict { .. })));
    assert!(matches!(journal.commit(&[step(5, 1, 1)]), Err(StorageError::Invalid { .. })));
    assert_eq!(journal.info().last_group, GroupSeq(1));
    assert_eq!(journal.run(run_id(2)), None);
    assert_eq!(journal.turns(run_id(1), EventId(1)).unwrap().len(), 1);
    journal.commit(&[step(1, 4, 1)]).unwrap();
}

/// G11: nothing is added to a closed run, whether its entry is in memory or on the shelf.
#[test]
fn a_closed_run_accepts_no_further_turn() {
    let journal = open(&memory());
    journal.commit(&[start(1, "a"), close(1, 4)]).unwrap();
    let refused = Err(StorageError::RunClosed { run: run_id(1), status: WorkflowStatus::Completed });
    assert_eq!(journal.commit(&[step(1, 5, 1)]), refused);
    journal.checkpoint().unwrap();
    assert_eq!(journal.commit(&[step(1, 5, 1)]), refused);
    assert_eq!(journal.commit(&[start(1, "a")]), refused);
}

/// E16, G11: a closed run of which messages are under way accepts the turns that say so, over checkpoints and reopening,
/// is not deleted before, and is a closed run like any other after the last of them.
#[test]
fn a_closed_run_with_messages_under_way_is_kept_in_hand() {
    let medium = memory();
    let journal = open(&medium);
    let under_way = |mut turn: Turn, attention: bool| {
        turn.outlook = Outlook { next_deadline: None, attention };
        turn
    };
    journal.commit(&[start(1, "a"), under_way(close(1, 4), true), start(2, "b"), close(2, 4)]).unwrap();
    let waiting = |journal: &Journal| {
        assert_eq!(journal.open_runs(), []);
        journal.closed_with_messages().into_iter().map(|(run, ..)| run).collect::<Vec<_>>()
    };
    assert_eq!(waiting(&journal), [run_id(1)]);
    journal.checkpoint().unwrap();
    drop(journal);
    let journal = open(&medium);
    assert_eq!(waiting(&journal), [run_id(1)]);
    assert!(!journal.delete_run(run_id(1)).unwrap());
    let mut delivered = under_way(heartbeat(1, 5), true);
    delivered.heartbeats.clear();
    delivered.delivered = vec![Seq(1)];
    journal.commit(&[delivered.clone()]).unwrap();
    delivered.outlook.attention = false;
    delivered.delivered = vec![Seq(2)];
    journal.commit(&[delivered.clone()]).unwrap();
    assert_eq!(waiting(&journal), []);
    let refused = Err(StorageError::RunClosed { run: run_id(1), status: WorkflowStatus::Completed });
    assert_eq!(journal.commit(&[delivered.clone()]), refused);
    journal.close().unwrap();
    drop(journal);
    let journal = open(&medium);
    assert_eq!((journal.info().runs_open, journal.info().runs_closed), (0, 2));
    let told: Vec<Seq> = journal.turns(run_id(1), EventId(1)).unwrap().into_iter().flat_map(|t| t.delivered).collect();
    assert_eq!(told, [Seq(1), Seq(2)]);
    assert!(journal.verify().is_sound());
    assert!(journal.delete_run(run_id(1)).unwrap());
}

#[test]
fn runs_are_listed_newest_first_and_found_by_workflow_id() {
    let medium = memory();
    let journal = open(&medium);
    for n in 1..=300 {
        journal.commit(&[start(n, &format!("w{}", n % 100))]).unwrap();
        if n % 3 == 0 {
            journal.commit(&[close(n, 4)]).unwrap();
        }
        if n % 70 == 0 {
            journal.checkpoint().unwrap();
        }
    }
    let check = |journal: &Journal| {
        assert_eq!(ids(journal), (1..=300).rev().map(run_id).collect::<Vec<_>>());
        assert_eq!(journal.open_runs().len(), 200);
        for n in 0..100 {
            let latest = journal.latest_run(&Namespace::of("default"), &WorkflowId::of(format!("w{n}")));
            assert_eq!(latest, Some(run_id(if n == 0 { 300 } else { 200 + n })));
        }
        assert_eq!(journal.latest_run(&Namespace::of("other"), &WorkflowId::of("w1")), None);
        assert_eq!((journal.info().runs_open, journal.info().runs_closed), (200, 100));
    };
    check(&journal);
    journal.close().unwrap();
    check(&open(&medium));
    let mut seen = 0;
    journal.scan_runs(&mut |_| {
        seen += 1;
        seen < 5
    });
    assert_eq!(seen, 5);
}

#[test]
fn reopening_gives_the_same_runs_with_and_without_a_checkpoint() {
    let medium = memory();
    let journal = open(&medium);
    journal.commit(&[start(1, "a"), step(1, 4, 9), start(2, "b")]).unwrap();
    journal.commit(&[close(2, 4)]).unwrap();
    for checkpoint in [false, true] {
        if checkpoint {
            journal.checkpoint().unwrap();
            journal.commit(&[step(1, 6, 5)]).unwrap();
        }
        let again = open(&Arc::new(medium.kill()));
        for run in [run_id(1), run_id(2)] {
            assert_eq!(again.run(run), journal.run(run));
            assert_eq!(again.turns(run, EventId(1)), journal.turns(run, EventId(1)));
        }
        assert!(again.verify().is_sound(), "{:?}", again.verify());
    }
}

/// E32: a deleted run is gone from every list and stays gone when the index is rebuilt from the log.
#[test]
fn a_deleted_run_does_not_come_back() {
    let medium = memory();
    let journal = open(&medium);
    journal.commit(&[start(1, "a"), close(1, 4), start(2, "a"), close(2, 4), start(3, "c")]).unwrap();
    journal.checkpoint().unwrap();
    assert_eq!(journal.delete_run(run_id(3)), Ok(false), "open runs are not deleted");
    assert_eq!(journal.delete_run(run_id(2)), Ok(true));
    assert_eq!(journal.delete_run(run_id(2)), Ok(false));
    let check = |journal: &Journal| {
        assert_eq!(journal.run(run_id(2)), None);
        assert_eq!(journal.turns(run_id(2), EventId(1)), Ok(Vec::new()));
        assert_eq!(ids(journal), [run_id(3), run_id(1)]);
        assert_eq!(journal.latest_run(&Namespace::of("default"), &WorkflowId::of("a")), Some(run_id(1)));
        assert_eq!(journal.info().runs_closed, 1);
        assert!(journal.commit(&[start(2, "a")]).is_err(), "its id is not used again");
        assert!(journal.verify().is_sound(), "{:?}", journal.verify());
    };
    check(&journal);
    let before_checkpoint = medium.kill();
    check(&open(&Arc::new(before_checkpoint)));
    let rebuilt = medium.kill();
    rebuilt.damage_shelf(Shelf::Meta, |_, _| false);
    check(&open(&Arc::new(rebuilt)));
    journal.housekeep(Timestamp(0), KEEP).unwrap();
    check(&journal);
    check(&open(&Arc::new(medium.kill())));
}

/// E32: closed runs go when the retention of their namespace is over, and not before.
#[test]
fn retention_deletes_closed_runs_in_time() {
    let journal = open(&memory());
    journal.commit(&[start(1, "a"), close(1, 4), start(2, "b")]).unwrap();
    let closed_at = journal.run(run_id(1)).unwrap().info.closed_at.unwrap();
    let week = Duration::from_secs(7 * 86_400);
    let keep: &dyn Fn(&Namespace) -> Option<Duration> = &|_| Some(week);
    let early = Timestamp(closed_at.plus(week).0 - 1);
    assert_eq!(journal.housekeep(early, keep).unwrap().deleted, 0);
    assert_eq!(journal.housekeep(closed_at.plus(week), KEEP).unwrap().deleted, 0);
    assert_eq!(journal.housekeep(closed_at.plus(week), keep).unwrap().deleted, 1);
    assert_eq!(ids(&journal), [run_id(2)], "open runs stay");
}

/// E37: a snapshot survives a checkpoint and a restart; one that is damaged or ahead of the history is none.
#[test]
fn snapshots_are_kept_and_damaged_ones_are_none() {
    let medium = memory();
    let journal = open(&medium);
    journal.commit(&[start(1, "a")]).unwrap();
    let snapshot = MachineSnapshot { event: EventId(4), build: BuildId(7), state: vec![5; 100_000] };
    journal.put_snapshot(run_id(1), snapshot.clone()).unwrap();
    assert_eq!(journal.snapshot(run_id(1)), Some(snapshot.clone()));
    journal.put_snapshot(run_id(1), MachineSnapshot { event: EventId(9), ..snapshot.clone() }).unwrap();
    assert_eq!(journal.snapshot(run_id(1)), Some(snapshot.clone()), "ahead of the history");
    journal.close().unwrap();
    assert_eq!(open(&medium).snapshot(run_id(1)), Some(snapshot));
    medium.damage_shelf(Shelf::Snapshots, |_, value| {
        value[50] ^= 1;
        true
    });
    assert_eq!(open(&medium).snapshot(run_id(1)), None);
}

/// G7: a damaged group makes the runs in it unreadable, by name, and no others.
#[test]
fn damage_to_one_run_leaves_the_others_readable() {
    let medium = memory();
    let journal = open(&medium);
    for n in 1..=5 {
        journal.commit(&[start(n, &format!("w{n}"))]).unwrap();
    }
    journal.close().unwrap();
    medium.damage_group(GroupSeq(3), |value| value[60] ^= 4);
    for journal in [journal, open(&medium)] {
        for n in 1..=5 {
            match journal.turns(run_id(n), EventId(1)) {
                Ok(turns) => assert!(n != 3 && turns.len() == 1),
                Err(StorageError::Corrupt { run, group, .. }) => {
                    assert_eq!((n, run, group), (3, Some(run_id(3)), Some(GroupSeq(3))));
                }
                Err(other) => panic!("{other}"),
            }
        }
        journal.commit(&[step(1, journal.run(run_id(1)).unwrap().next_event.0, 1)]).unwrap();
        let report = journal.verify();
        assert!(report.findings.iter().any(|f| f.class == FindingClass::Group && f.group == Some(GroupSeq(3))));
    }
}

/// G6: a checkpoint that lost, doubled or mixed up entries is noticed and rebuilt from the log and the archive.
#[test]
fn a_damaged_index_is_rebuilt() {
    for shelf in [Shelf::Meta, Shelf::Open] {
        for kind in 0..3 {
            let medium = memory();
            let journal = open(&medium);
            for n in 1..=20 {
                journal.commit(&[start(n, &format!("w{n}")), step(n, 4, 100)]).unwrap();
            }
            journal.commit(&(1..=9).map(|n| close(n, 6)).collect::<Vec<_>>()).unwrap();
            journal.housekeep(Timestamp(0), KEEP).unwrap();
            journal.close().unwrap();
            let first = std::cell::Cell::new(true);
            medium.damage_shelf(shelf, |_, value| {
                let damage = first.replace(false);
                match kind {
                    0 if damage => return false,
                    1 if damage => value[9] ^= 1,
                    2 => value.truncate(value.len() / 2),
                    _ => {}
                }
                true
            });
            let again = open(&medium);
            for n in 1..=20 {
                assert_eq!(again.run(run_id(n)), journal.run(run_id(n)), "{shelf:?} {kind} {n}");
                assert_eq!(again.turns(run_id(n), EventId(1)), journal.turns(run_id(n), EventId(1)));
            }
            assert!(again.verify().is_sound(), "{:?}", again.verify());
        }
    }
}

/// G6: a missing or altered archive segment is found, by verification and by the reader.
#[test]
fn a_missing_archive_segment_is_found() {
    let medium = memory();
    let journal = open(&medium);
    for n in 1..=5 {
        journal.commit(&[start(n, &format!("w{n}")), close(n, 4)]).unwrap();
    }
    journal.commit(&[start(9, "tail")]).unwrap();
    journal.housekeep(Timestamp(0), KEEP).unwrap();
    journal.close().unwrap();
    medium.damage_shelf(Shelf::Archive, |key, _| !key.starts_with(&run_id(2).0));
    let journal = open(&medium);
    let why = journal.turns(run_id(2), EventId(1)).unwrap_err();
    assert!(matches!(why, StorageError::Corrupt { run: Some(run), .. } if run == run_id(2)), "{why}");
    assert_eq!(journal.turns(run_id(1), EventId(1)).unwrap().len(), 2);
    let classes: Vec<FindingClass> = journal.verify().findings.iter().map(|finding| finding.class).collect();
    assert!(classes.contains(&FindingClass::Archive), "{classes:?}");
    // Without the index the rebuild notices too: it does not make do with less.
    medium.damage_shelf(Shelf::Meta, |_, _| false);
    let why = Journal::open(medium.clone(), small()).unwrap_err().to_string();
    assert!(why.contains("do not add up"), "{why}");
}

/// E32, F08: trimming keeps the log bounded while a single run lives on, and its history stays whole.
#[test]
fn a_long_lived_run_does_not_hold_the_log() {
    let medium = memory();
    let journal = open(&medium);
    journal.commit(&[start(1, "long")]).unwrap();
    let mut expected = vec![start(1, "long")];
    for i in 0..3_000u64 {
        let turn = step(1, 4 + 2 * i, 50);
        journal.commit(&[turn.clone(), start(10 + i, &format!("short{i}")), close(10 + i, 4)]).unwrap();
        expected.push(turn);
        if i % 500 == 499 {
            journal.housekeep(Timestamp(0), KEEP).unwrap();
            assert!(journal.info().groups < 20, "{} groups are left", journal.info().groups);
        }
    }
    assert_eq!(journal.turns(run_id(1), EventId(1)).unwrap(), expected);
    assert_eq!(journal.turns(run_id(1), EventId(6_000)).unwrap(), expected[2_999..]);
    journal.close().unwrap();
    let again = open(&medium);
    assert_eq!(again.turns(run_id(1), EventId(1)).unwrap(), expected);
    assert!(again.verify().is_sound(), "{:?}", again.verify());
}
