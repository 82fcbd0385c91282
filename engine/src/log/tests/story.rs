//! A seeded story of commits and maintenance, and the model that says what must be readable afterwards.

use std::collections::{BTreeMap, BTreeSet};

use super::journal::KEEP;
use super::samples::*;
use crate::log::*;
use crate::vocabulary::*;

/// A small generator (xorshift): the same story for the same seed for ever.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides.max(1)
    }
}

/// What was acknowledged.
#[derive(Default, Clone)]
pub(crate) struct Model {
    pub(crate) runs: BTreeMap<RunId, Vec<Turn>>,
    closed: BTreeSet<RunId>,
    pub(crate) deleted: BTreeSet<RunId>,
    numbers: BTreeMap<RunId, u64>,
    started: u64,
}

/// What a step was about when it failed: it may have happened or not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Doubt {
    None,
    Commit(Vec<Turn>),
    Delete(RunId),
}

impl Model {
    /// One to four turns of some runs, in an order that fits.
    pub(crate) fn next_group(&self, dice: &mut Dice) -> Vec<Turn> {
        let mut ahead = self.clone();
        let mut turns = Vec::new();
        for _ in 0..=dice.roll(3) {
            let open: Vec<RunId> = ahead.runs.keys().filter(|run| !ahead.closed.contains(run)).copied().collect();
            let turn = if open.is_empty() || dice.roll(3) == 0 {
                start(ahead.started + 1, &format!("w{}", ahead.started % 7))
            } else {
                let run = open[dice.roll(open.len() as u64) as usize];
                let (n, next) = (ahead.numbers[&run], ahead.next_event(run));
                match dice.roll(6) {
                    0 => close(n, next),
                    1 => heartbeat(n, next),
                    2 => step(n, next, 20_000),
                    _ => step(n, next, dice.roll(300) as usize),
                }
            };
            ahead.apply(&turn);
            turns.push(turn);
        }
        turns
    }
    fn next_event(&self, run: RunId) -> u64 {
        self.runs[&run].last().map_or(1, |turn| turn.next_event().0)
    }
    pub(crate) fn apply(&mut self, turn: &Turn) {
        if !self.runs.contains_key(&turn.run) {
            self.started += 1;
            self.numbers.insert(turn.run, self.started);
        }
        if turn.events.iter().any(|event| event.closes().is_some()) {
            self.closed.insert(turn.run);
        }
        self.runs.entry(turn.run).or_default().push(turn.clone());
    }
    pub(crate) fn forget(&mut self, run: RunId) {
        self.deleted.insert(run);
        self.runs.remove(&run);
    }
    /// One of the closed runs.
    pub(crate) fn closed_run(&self) -> RunId {
        *self.runs.keys().find(|run| self.closed.contains(run)).expect("no run is closed yet")
    }
    pub(crate) fn settle(&mut self, doubt: &Doubt) {
        match doubt {
            Doubt::None => {}
            Doubt::Commit(turns) => turns.iter().for_each(|turn| self.apply(turn)),
            Doubt::Delete(run) => self.forget(*run),
        }
    }

    /// Takes one step of the story.
    pub(crate) fn step(&mut self, journal: &Journal, dice: &mut Dice) -> Result<(), (StorageError, Doubt)> {
        match dice.roll(12) {
            0 => journal.checkpoint().map_err(|why| (why, Doubt::None)),
            1 => journal.housekeep(Timestamp(0), KEEP).map(drop).map_err(|why| (why, Doubt::None)),
            2 => {
                let closed: Vec<RunId> = self.runs.keys().filter(|run| self.closed.contains(run)).copied().collect();
                if closed.is_empty() {
                    return Ok(());
                }
                let run = closed[dice.roll(closed.len() as u64) as usize];
                assert!(journal.delete_run(run).map_err(|why| (why, Doubt::Delete(run)))?);
                self.forget(run);
                Ok(())
            }
            3 => {
                let Some((run, turns)) = self.runs.iter().next_back() else { return Ok(()) };
                let event = turns.last().map_or(EventId(1), Turn::next_event);
                let snapshot = MachineSnapshot { event, build: BuildId(1), state: event.0.to_be_bytes().repeat(40) };
                journal.put_snapshot(*run, snapshot).map_err(|why| (why, Doubt::None))
            }
            _ => {
                let turns = self.next_group(dice);
                journal.commit(&turns).map_err(|why| (why, Doubt::Commit(turns.clone())))?;
                turns.iter().for_each(|turn| self.apply(turn));
                Ok(())
            }
        }
    }

    /// The first difference between the journal and the model: a wrong answer, or an error.
    pub(crate) fn compare(&self, journal: &Journal) -> Result<(), Difference> {
        for (run, expected) in &self.runs {
            let found = journal.turns(*run, EventId(1)).map_err(Difference::Error)?;
            let entry = journal.try_run(*run).map_err(Difference::Error)?;
            let next_event = entry.map(|entry| entry.next_event);
            if found != *expected || next_event != expected.last().map(Turn::next_event) {
                let detail = format!("{run}: {} of {} turns, next {next_event:?}", found.len(), expected.len());
                return Err(Difference::Wrong(detail));
            }
            if let Some(snapshot) = journal.snapshot(*run)
                && snapshot.state != snapshot.event.0.to_be_bytes().repeat(40)
            {
                return Err(Difference::Wrong(format!("{run}: another snapshot")));
            }
        }
        for run in &self.deleted {
            if journal.try_run(*run).map_err(Difference::Error)?.is_some() {
                return Err(Difference::Wrong(format!("{run} was deleted and is back")));
            }
        }
        let mut listed = BTreeSet::new();
        journal.scan_runs(&mut |info| listed.insert(info.run_id));
        if listed != self.runs.keys().copied().collect() {
            return Err(Difference::Wrong(format!("{} runs listed of {}", listed.len(), self.runs.len())));
        }
        let open: BTreeSet<RunId> = journal.open_runs().into_iter().map(|(run, ..)| run).collect();
        if open != self.runs.keys().filter(|run| !self.closed.contains(run)).copied().collect() {
            return Err(Difference::Wrong("other open runs".into()));
        }
        Ok(())
    }
}

#[derive(Debug)]
#[expect(dead_code, reason = "the error is for the message of a failing test")]
pub(crate) enum Difference {
    Error(StorageError),
    Wrong(String),
}
