//! Turns of a simulated world: a run decides, the model log commits, a crash strikes, a restart recovers.
//!
//! Invariant: persist, then release. What a crash loses is exactly what the boundary says: a group of turns is kept whole
//! or not at all, and no effect of a group that was lost is ever released. Every commit is doubted. What an input means is
//! the run machine's affair.

use std::collections::BTreeSet;

use bosun_engine::machine::{self, Execution};
use bosun_engine::*;

use super::clues::Clues;
use super::deploys::deployed_alike;
use super::doubts::RunView;
use super::finding::Violation;
use super::plan::Boundary;
use super::watch::{self, WatchedActivation};
use super::world::{InputOutcome, SimulatedRun, World, broken, run_is_closed, started_of};

/// Runs that one commit may begin, one after the other.
const CHAIN_MAX: usize = 50;

struct DecidedTurn {
    run: RunId,
    decision: machine::Decision,
    lived: Vec<WatchedActivation>,
}

impl World<'_> {
    pub(super) fn start_run(&mut self, run_id: RunId, start: StartWorkflow) -> Result<InputOutcome, Violation> {
        let workflow_id = start.workflow_id.clone();
        let started = start.first_event(run_id, self.now);
        let registry = self.registry();
        let begun = self.within(|environment| Execution::start(run_id, started, registry, environment));
        let (execution, decision) = match begun {
            Ok(begun) => begun,
            Err(why) => return Ok(InputOutcome::Refused(why)),
        };
        let before = self.newest.insert(workflow_id.clone(), run_id);
        self.keep(run_id, execution);
        let answer = self.submit(run_id, decision)?;
        if self.runs.get(&run_id).is_none_or(|run| run.turns.is_empty()) {
            // Lost with the worker: it never was.
            self.runs.remove(&run_id);
            match before {
                Some(before) => drop(self.newest.insert(workflow_id, before)),
                None => drop(self.newest.remove(&workflow_id)),
            }
        }
        Ok(answer)
    }

    pub(super) fn keep(&mut self, run_id: RunId, execution: Execution) {
        let born = u32::try_from(self.runs.len()).unwrap_or(u32::MAX);
        let new = || SimulatedRun { born, ..Default::default() };
        self.runs.entry(run_id).or_insert_with(new).execution = Some(execution);
    }

    /// Decides in the world as it is now.
    fn within<T>(&mut self, decide: impl FnOnce(&mut machine::Environment<'_>) -> T) -> T {
        let slots = usize::from(self.plan.slots);
        let (mut running, unlimited) = (self.running, slots == 0 || self.healing);
        let mut take_slot = |_: &ActivityType, _: &TaskQueue| {
            let takes = unlimited || running < slots;
            running += usize::from(takes);
            takes
        };
        let mut environment = machine::Environment {
            now: self.now,
            build: self.versions[self.version].build_id(),
            limits: &self.limits,
            take_slot: &mut take_slot,
        };
        let decided = decide(&mut environment);
        if self.running < running {
            self.running = running;
        }
        decided
    }

    /// Gives an input to a run, loading it if need be, and commits what it decides.
    pub(super) fn input(&mut self, run_id: RunId, input: Input) -> Result<InputOutcome, Violation> {
        let mut execution = self.load(run_id)?;
        let decided = self.within(|environment| execution.decide(input, environment));
        self.keep(run_id, execution);
        match decided {
            Ok(decision) => self.submit(run_id, decision),
            Err(why) => {
                self.doubts.calls()?;
                Ok(InputOutcome::Refused(why))
            }
        }
    }

    /// Takes a run out of its place; whoever takes it puts it back.
    pub(super) fn load(&mut self, run_id: RunId) -> Result<Execution, Violation> {
        let run = self.runs.entry(run_id).or_default();
        if let Some(execution) = run.execution.take() {
            return Ok(execution);
        }
        if run.snapshot.is_some() {
            return self.resume(run_id);
        }
        self.replay_whole(run_id)
    }

    pub(super) fn replay_whole(&mut self, run_id: RunId) -> Result<Execution, Violation> {
        let registry = self.registry();
        let turns = self.runs.get(&run_id).map_or(&[][..], |run| &run.turns);
        let execution = Execution::load(turns, registry, registry.build_id()).map_err(broken)?;
        let relived = watch::take();
        self.fits(&execution, Clues::of(&self.runs[&run_id].lived, &relived))?;
        let run = &self.runs[&run_id];
        let before = run.lived_before.min(relived.len());
        let ((before, lived), (after, relived)) = (run.lived.split_at(run.lived_before), relived.split_at(before));
        self.doubts.calls()?;
        deployed_alike(before, after)?;
        self.doubts.same_again(lived, relived)?;
        Ok(execution)
    }

    /// Code that does not fit its history any more.
    pub(super) fn fits(&self, execution: &Execution, clues: Clues) -> Result<(), Violation> {
        match execution.held() {
            Some(machine::Held::Load(machine::LoadError::NonDeterminism(card))) if self.version > 0 => {
                Err(Violation::DeployMismatch(card.clone()))
            }
            Some(machine::Held::Load(machine::LoadError::NonDeterminism(card))) => {
                // The cause, if it was caught in the act, says more than the difference.
                self.doubts.calls()?;
                Err(Violation::ReplayMismatch { card: card.clone(), clues })
            }
            Some(held) => Err(Violation::Setup { why: held.to_string() }),
            None => Ok(()),
        }
    }

    /// Commits a decision, with the runs that begin in it.
    fn submit(&mut self, run_id: RunId, decision: machine::Decision) -> Result<InputOutcome, Violation> {
        let events = decision.turn().events.len();
        let mut group = vec![DecidedTurn { run: run_id, decision, lived: take_lived(run_id) }];
        let mut next = 0;
        while next < group.len() {
            if let Some(following) = group[next].decision.take_next_run() {
                if group.len() > CHAIN_MAX {
                    return Err(Violation::Stuck { why: "it continues as new for ever without waiting".into() });
                }
                group.extend(self.begin_next(following));
            }
            next += 1;
        }
        let crashed = self.commit(group)?;
        Ok(if crashed { InputOutcome::Crashed } else { InputOutcome::Accepted { events } })
    }

    fn begin_next(&mut self, next: machine::NextRun) -> Vec<DecidedTurn> {
        let (run, workflow_id) = (next.run_id, next.started.workflow_id.clone());
        let registry = self.registry();
        self.rare.note_next_run(&next);
        let (execution, decisions) = self.within(|environment| {
            let (mut execution, first) = Execution::start_or_hold(next, registry, environment);
            let first = (first, take_lived(run));
            let second = (execution.run().inbox_len() > 0).then(|| execution.decide_inbox(environment).ok()).flatten();
            let second = second.map(|second| (second, take_lived(run)));
            (execution, [Some(first), second])
        });
        self.newest.insert(workflow_id, run);
        self.keep(run, execution);
        let decided = |(decision, lived)| DecidedTurn { run, decision, lived };
        decisions.into_iter().flatten().map(decided).collect()
    }

    /// The model log: appends a group of turns, syncs, releases. Says whether the worker died on the way.
    fn commit(&mut self, group: Vec<DecidedTurn>) -> Result<bool, Violation> {
        let writes = group.iter().any(|one| !one.decision.is_empty());
        let boundary = if writes { self.boundary() } else { None };
        self.commits += u32::from(writes);
        let lost = matches!(boundary, Some(Boundary::BeforeAppend | Boundary::Unsynced { kept: false }));
        let mut changed = BTreeSet::new();
        let mut effects = Vec::new();
        for DecidedTurn { run, decision, lived } in group {
            let empty = decision.is_empty();
            let (turn, sealed) = decision.seal();
            if !lost {
                self.rare.note_turn(&turn);
                let entry = self.runs.entry(run).or_default();
                if !empty {
                    entry.turns.push(turn);
                    entry.lived.extend(lived);
                    changed.insert(run);
                }
            }
            effects.push((run, sealed));
        }
        if boundary.is_none_or(Boundary::releases) {
            for (run, sealed) in effects {
                let opened = bosun_engine::testing::release_simulated(sealed);
                opened.into_iter().for_each(|effect| self.release(run, effect));
            }
        }
        for run in changed {
            self.doubt(run)?;
        }
        self.doubts.calls()?;
        match boundary {
            Some(boundary) => self.crash(boundary).map(|()| true),
            None if self.evicts && writes => self.evict(false).map(|()| false),
            None => Ok(false),
        }
    }

    /// Whether a crash strikes at this commit.
    fn boundary(&mut self) -> Option<Boundary> {
        if let Some(left) = self.recovering {
            self.recovering = left.checked_sub(1);
            if left == 0 {
                self.rare.hit("crash in recovery");
                return Some(Boundary::AfterSync);
            }
        }
        self.crash_at.remove(&self.commits).or_else(|| self.armed.take())
    }

    /// The worker dies, and another one starts on what is durable.
    pub(super) fn crash(&mut self, boundary: Boundary) -> Result<(), Violation> {
        self.rare.note_crash(boundary);
        if let Boundary::InSnapshot { kept } = boundary {
            self.snapshot_all(kept)?;
        }
        for run in self.runs.values_mut() {
            run.execution = None;
        }
        self.runs.retain(|_, run| !run.turns.is_empty());
        self.newest.clear();
        let mut born: Vec<(u32, RunId)> = self.runs.iter().map(|(id, run)| (run.born, *id)).collect();
        born.sort_unstable();
        for (_, run_id) in born {
            if let Some(started) = self.runs.get(&run_id).and_then(started_of) {
                self.newest.insert(started.workflow_id.clone(), run_id);
            }
        }
        watch::take();
        self.lose_what_is_under_way();
        self.doubts.stray()?;
        // The clock starts again from the wall, and never before what the log holds.
        let newest = self.runs.values().filter_map(|run| run.turns.last()).map(|turn| turn.at).max();
        let wall = Timestamp(self.now.0.saturating_add(self.wall_ahead));
        self.now = wall.max(newest.unwrap_or(wall));
        self.wall_ahead = 0;
        self.recovering = match boundary {
            Boundary::InRecovery { commits } => Some(commits),
            _ => None,
        };
        self.recover()?;
        self.recovering = None;
        self.resend()
    }

    fn recover(&mut self) -> Result<(), Violation> {
        let attention: Vec<RunId> =
            self.runs.iter().filter(|(_, run)| needs_attention(run)).map(|(id, _)| *id).collect();
        for run_id in attention {
            self.adopt_orphan(run_id)?;
            // A crash in here has recovered everything again.
            if let InputOutcome::Crashed = self.input(run_id, Input::WorkerRestarted)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Looks at a run after a commit: its prefix replayed, the invariants of the user.
    fn doubt(&mut self, run_id: RunId) -> Result<(), Violation> {
        let registry = self.registry();
        let Some(run) = self.runs.get(&run_id) else { return Ok(()) };
        if self.version == 0 {
            self.doubts.ended_well(&run.turns)?;
            if self.doubts.wants(&run.turns) {
                self.doubts.replay(registry, run)?;
            }
        }
        watch::take();
        let view = RunView::new(&run.turns, run.execution.as_ref(), self.now);
        self.doubts.invariants(&view)
    }
}

/// What the code of this run asked for in the decision just taken, activation by activation.
fn take_lived(run: RunId) -> Vec<WatchedActivation> {
    watch::take().into_iter().filter(|seen| seen.run == Some(run)).collect()
}

/// The runs that a restart looks at, as the service does.
fn needs_attention(run: &SimulatedRun) -> bool {
    let is_child = started_of(run).is_some_and(|started| started.parent.is_some());
    run.turns.last().is_some_and(|turn| turn.outlook.attention) || (is_child && !run_is_closed(run))
}
