//! A story told to the log itself, the same for every teller: commits of all sizes, trims, deletions, snapshots.
//!
//! Invariant: step `n` depends on nothing but `n`, so whoever knows how many steps were acknowledged knows what must be
//! readable. A process tells it and says each number once the step is durable ([`tell`]); after its end [`Told::fits`]
//! says whether a directory holds exactly the first so many steps. No workflow code runs here.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bosun_engine::log::{DiskLog, Journal, JournalOptions, MachineSnapshot, SledOptions, StorageError};
use bosun_engine::*;

use super::Chance;

/// Commits of a run, start and end included.
const TURNS: u64 = 12;
/// The run that never ends.
const LONG: u64 = 0;

/// What the first so many steps leave.
#[derive(Debug, Clone, Default)]
pub struct Told {
    pub steps: u64,
    runs: BTreeMap<u64, Vec<Turn>>,
}

/// What a step does.
enum Step {
    Commit(Vec<Turn>),
    Delete(RunId),
    Housekeep,
    Snapshot(RunId, MachineSnapshot),
}

pub fn open(dir: &Path) -> Result<Journal, StorageError> {
    let options = JournalOptions { log_keep_bytes: 150_000, trim_bytes: 100_000, ..JournalOptions::default() };
    // So short that the story goes round many times between two cuts.
    let medium = SledOptions { wal_bytes: 128 * 1024, ..SledOptions::default() };
    Journal::open(Arc::new(DiskLog::open(dir, medium)?), options)
}

/// Goes on with the story behind `from` steps, saying the number of each that is done, until so many are, the log fails or
/// nobody listens. The log stays open.
pub fn tell(dir: &Path, from: u64, until: u64, says: &mut impl Write) -> Result<(), Box<dyn std::error::Error>> {
    let (journal, mut told) = (open(dir)?, Told::after(from));
    while told.steps < until {
        match told.next() {
            Step::Commit(turns) => drop(journal.commit(&turns)?),
            Step::Delete(run) => drop(journal.delete_run(run)?),
            Step::Housekeep => drop(journal.housekeep(Timestamp(0), &|_: &Namespace| None::<Duration>)?),
            Step::Snapshot(run, snapshot) => journal.put_snapshot(run, snapshot)?,
        }
        writeln!(says, "{}", told.steps)?;
        says.flush()?;
    }
    // A log that is closed syncs. Whoever asked for an end wants to see what was durable before.
    std::mem::forget(journal);
    Ok(())
}

impl Told {
    pub fn after(steps: u64) -> Told {
        let mut told = Told::default();
        (0..steps).for_each(|_| drop(told.next()));
        told
    }

    /// Takes the next step.
    fn next(&mut self) -> Step {
        self.steps += 1;
        let n = self.steps;
        let mut chance = Chance::new(n);
        if n.is_multiple_of(9) {
            return Step::Housekeep;
        }
        if n.is_multiple_of(25) {
            let state = noise(&mut chance, 12_000).into_bytes();
            let event = self.runs.get(&LONG).and_then(|turns| turns.last()).map_or(EventId(1), Turn::next_event);
            return Step::Snapshot(run_id(LONG), MachineSnapshot { event, build: BuildId(1), state });
        }
        let closed = self.runs.iter().find(|(run, turns)| **run != LONG && turns.len() as u64 == TURNS);
        if n.is_multiple_of(40)
            && let Some(run) = closed.map(|(run, _)| *run)
        {
            self.runs.remove(&run);
            return Step::Delete(run_id(run));
        }
        let mut turns = vec![self.turn(1 + n / 16, &mut chance)];
        if chance.percent(30) {
            turns.push(self.turn(LONG, &mut chance));
        }
        Step::Commit(turns)
    }

    /// The next turn of a run, or of the long one if that run has ended.
    fn turn(&mut self, run: u64, chance: &mut Chance) -> Turn {
        let run = if self.runs.get(&run).is_some_and(|turns| turns.len() as u64 == TURNS) { LONG } else { run };
        let turns = self.runs.entry(run).or_default();
        let (number, first) = (turns.len() as u64, turns.last().map_or(EventId(1), Turn::next_event));
        let at = Timestamp::from_millis(1_700_000_000_000 + first.0 as i64);
        let length = [20, 700, 3_000, 9_000, 40_000][chance.below(5) as usize];
        let result = Payload::encode(&noise(chance, length)).expect("a text is JSON");
        let event = if number == 0 {
            let request = StartWorkflow::new("story".into(), WorkflowId::of(format!("w{run}"))).input(result);
            EventKind::WorkflowExecutionStarted(Box::new(request.first_event(run_id(run), at)))
        } else if run != LONG && number == TURNS - 1 {
            EventKind::WorkflowExecutionCompleted { result, unhandled_signals: Vec::new() }
        } else {
            EventKind::ActivityTaskCompleted { seq: Seq(number), result, identity: None }
        };
        let turn = Turn::of(run_id(run), first, at, BuildId(1), vec![event]);
        turns.push(turn.clone());
        turn
    }

    /// Whether the store is sound and holds what was told so far and nothing else; if not, why.
    pub fn fits(&self, journal: &Journal) -> Result<(), String> {
        let report = journal.verify();
        if !report.is_sound() {
            return Err(format!("{:?}", report.findings));
        }
        let mut listed = 0;
        journal.scan_runs(&mut |_| {
            listed += 1;
            true
        });
        if listed != self.runs.len() {
            return Err(format!("{listed} runs are listed, {} were told", self.runs.len()));
        }
        for (run, turns) in &self.runs {
            let found = journal.turns(run_id(*run), EventId(1)).map_err(|why| why.to_string())?;
            if found != *turns {
                return Err(format!("run {run} has {} turns of {}, or others", found.len(), turns.len()));
            }
        }
        Ok(())
    }
}

fn run_id(n: u64) -> RunId {
    let mut id = [0x33; 16];
    id[8..].copy_from_slice(&n.to_be_bytes());
    RunId(id)
}

/// Text that hardly gets smaller.
fn noise(chance: &mut Chance, length: u64) -> String {
    (0..length).map(|_| char::from(b'0' + chance.below(75) as u8)).collect()
}
