//! Crashes and failing calls, on the memory log: what was acknowledged is there, what is half done harms nothing.

use std::sync::Arc;

use proptest::prelude::*;

use super::journal::{open, small};
use super::story::{Dice, Doubt, Model};
use crate::log::*;

/// Opens what a crash left and compares it with the model; a step in doubt may have happened or not. Answers the model
/// that fits.
fn reopen(medium: &Arc<MemoryLog>, model: &Model, doubt: &Doubt, context: &str) -> (Journal, Model) {
    let journal = match Journal::open(medium.clone(), small()) {
        Ok(journal) => journal,
        Err(why) => panic!("{context}: {why}"),
    };
    let mut settled = model.clone();
    settled.settle(doubt);
    let fits = [settled, model.clone()].into_iter().find(|model| model.compare(&journal).is_ok());
    let Some(fits) = fits else { panic!("{context}: {:?}", model.compare(&journal)) };
    let report = journal.verify();
    assert!(report.is_sound(), "{context}: {:?}", report.findings);
    (journal, fits)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    /// G1, G2: after any number of crashes and kills at any moments everything acknowledged is readable and whole.
    #[test]
    fn everything_acknowledged_survives_crashes(seed in 1u64.., lives in 1usize..5, length in 1usize..40) {
        let mut dice = Dice(seed);
        let mut medium = Arc::new(MemoryLog::new([3; 16]));
        let mut model = Model::default();
        for life in 0..lives {
            let (journal, found) = reopen(&medium, &model, &Doubt::None, &format!("seed {seed} life {life}"));
            model = found;
            for _ in 0..length {
                model.step(&journal, &mut dice).map_err(|(why, _)| TestCaseError::fail(why.to_string()))?;
            }
            model.compare(&journal).map_err(|why| TestCaseError::fail(format!("{why:?}")))?;
            medium = Arc::new(if dice.roll(4) == 0 { medium.kill() } else { medium.crash(dice.roll(u64::MAX)) });
        }
        reopen(&medium, &model, &Doubt::None, &format!("seed {seed} at the end"));
    }
}

/// G4: for every n, when the n-th write or sync fails, nothing is acknowledged any more, reads go on, and after the
/// crash everything acknowledged before is there.
#[test]
fn after_the_first_failed_call_nothing_is_acknowledged_and_nothing_is_lost() {
    let mut tried = 0;
    for seed in 1..=3u64 {
        for fault in [InjectedFault::Eio, InjectedFault::Enospc, InjectedFault::EioAfter] {
            for n in 1.. {
                let mut dice = Dice(seed * 7_919);
                let medium = Arc::new(MemoryLog::new([3; 16]));
                let journal = open(&medium);
                medium.fail_at(n, fault);
                let mut model = Model::default();
                let failed = (0..45).find_map(|_| model.step(&journal, &mut dice).err());
                let Some((why, doubt)) = failed else { break };
                let context = format!("seed {seed} {fault:?} at call {n}: {why}");
                assert_eq!(why.is_full(), fault == InjectedFault::Enospc, "{context}");
                for _ in 0..3 {
                    let refused = journal.commit(&model.next_group(&mut dice));
                    assert!(matches!(refused, Err(StorageError::Poisoned { .. })), "{context}: {refused:?}");
                }
                assert!(journal.checkpoint().is_err() && journal.close().is_err(), "{context}");
                if !matches!(doubt, Doubt::Delete(_)) {
                    assert!(model.compare(&journal).is_ok(), "{context}: {:?}", model.compare(&journal));
                }
                reopen(&Arc::new(medium.crash(n)), &model, &doubt, &context);
                reopen(&Arc::new(medium.kill()), &model, &doubt, &context);
                tried += 1;
            }
        }
    }
    assert!(tried > 300, "only {tried} faults were tried");
}

/// G2: a checkpoint of which the crash kept only some batches is not taken for a whole one. (Found by the property:
/// the last batch survived, the removal of a deleted run before it did not, and the run was back.)
#[test]
fn a_checkpoint_that_survives_in_part_is_not_believed() {
    let medium = Arc::new(MemoryLog::new([3; 16]));
    let journal = open(&medium);
    let mut model = Model::default();
    let mut dice = Dice(9);
    (0..80).for_each(|_| model.step(&journal, &mut dice).unwrap());
    journal.checkpoint().unwrap();
    let closed = model.closed_run();
    assert_eq!(journal.delete_run(closed), Ok(true));
    model.forget(closed);
    journal.commit(&model.next_group(&mut Dice(1))).unwrap();
    model.next_group(&mut Dice(1)).iter().for_each(|turn| model.apply(turn));
    journal.checkpoint().unwrap();
    for seed in 0..64 {
        reopen(&Arc::new(medium.crash(seed)), &model, &Doubt::None, &format!("crash {seed}"));
    }
}

/// G2: a crash in the middle of recovery, and of the recovery after that, changes nothing.
#[test]
fn recovery_can_be_cut_short_again_and_again() {
    let mut dice = Dice(42);
    let medium = Arc::new(MemoryLog::new([3; 16]));
    let journal = open(&medium);
    let mut model = Model::default();
    (0..60).for_each(|_| model.step(&journal, &mut dice).unwrap());
    let mut left = medium.crash(1);
    left.damage_shelf(Shelf::Meta, |_, _| false);
    for n in 1..30 {
        left.fail_at(1 + n % 7, InjectedFault::Eio);
        let left_now = Arc::new(left);
        drop(Journal::open(left_now.clone(), small()));
        left = left_now.crash(n);
    }
    reopen(&Arc::new(left.kill()), &model, &Doubt::None, "at the end");
}
