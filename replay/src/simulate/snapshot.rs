//! Evictions and snapshots: runs leave memory, and come back by replay or from a snapshot and the turns after it.
//!
//! Invariant: the code that comes back has the state that went, and asks for the same things as in a replay of the whole
//! history (E37). A snapshot is a cache: it may be lost in a crash, and one of another build is none.

use bosun_engine::machine::{Execution, LoadError, Run};
use bosun_engine::*;

use super::clues::Clues;
use super::doubts::unstable;
use super::finding::Violation;
use super::watch::{self, WatchedActivation};
use super::world::{SimulatedRun, World, broken, started_of};

/// A run as it was after some of its turns.
pub(super) struct Snapshot {
    facts: Run,
    code: Vec<u8>,
    build: BuildId,
    turns: usize,
    /// Activations in these turns.
    lived: usize,
}

impl World<'_> {
    /// All runs that are in memory leave it, and come back.
    pub(super) fn evict(&mut self, snapshot: bool) -> Result<(), Violation> {
        self.loaded().into_iter().try_for_each(|run_id| self.evict_run(run_id, snapshot))
    }

    fn loaded(&self) -> Vec<RunId> {
        self.runs.iter().filter(|(_, run)| run.execution.is_some()).map(|(id, _)| *id).collect()
    }

    fn evict_run(&mut self, run_id: RunId, snapshot: bool) -> Result<(), Violation> {
        let execution = self.load(run_id)?;
        let state = execution.state_json();
        if snapshot {
            let taken = self.snapshot_of(run_id, &execution);
            self.put(run_id, taken);
        }
        drop(execution);
        self.doubts.stray()?;
        let loaded = self.load(run_id)?;
        self.doubts.same_state(&state, &loaded.state_json())?;
        self.keep(run_id, loaded);
        Ok(())
    }

    fn snapshot_of(&self, run_id: RunId, execution: &Execution) -> Option<Snapshot> {
        let (code, run) = (execution.snapshot()?, self.runs.get(&run_id)?);
        let (facts, build) = (execution.run().clone(), self.registry().build_id());
        Some(Snapshot { facts, code, build, turns: run.turns.len(), lived: run.lived.len() })
    }

    fn put(&mut self, run_id: RunId, snapshot: Option<Snapshot>) {
        if let (Some(run), Some(snapshot)) = (self.runs.get_mut(&run_id), snapshot) {
            run.snapshot = Some(snapshot);
        }
    }

    /// The worker snapshots what it has in memory, and dies of it.
    pub(super) fn snapshot_all(&mut self, kept: bool) -> Result<(), Violation> {
        for run_id in self.loaded() {
            let execution = self.load(run_id)?;
            let taken = self.snapshot_of(run_id, &execution);
            if taken.is_some() {
                self.rare.hit(if kept { "crash with a snapshot kept" } else { "crash with a snapshot lost" });
            }
            if kept {
                self.put(run_id, taken);
            }
            self.keep(run_id, execution);
        }
        Ok(())
    }

    /// A run from its snapshot and the turns after it, compared with the replay of all turns.
    pub(super) fn resume(&mut self, run_id: RunId) -> Result<Execution, Violation> {
        let whole = self.replay_whole(run_id)?;
        let registry = self.registry();
        let Some(run) = self.runs.get(&run_id) else { return Ok(whole) };
        let usable = run.snapshot.as_ref().filter(|snapshot| snapshot.build == registry.build_id());
        let Some(snapshot) = usable else { return Ok(whole) };
        let restored = registry.restore(&snapshot.facts.info().workflow_type, run_id, &snapshot.code);
        let restored = restored.map_err(|why| unstable("state", "a snapshot".into(), why.to_string()))?;
        let after = &run.turns[snapshot.turns..];
        let resumed = Execution::resume(snapshot.facts.clone(), restored, after, snapshot.build);
        let relived = watch::take();
        let resumed = resumed
            .map_err(|why| unloaded(why, &run.lived[snapshot.lived..], &relived))
            .map_err(|found| self.with_skipped(found, run, &whole))?;
        self.like_the_whole(&whole, &resumed, &run.lived[snapshot.lived..], &relived)
            .map_err(|found| self.with_skipped(found, run, &whole))?;
        let (folded, facts) = (facts(whole.run()), facts(resumed.run()));
        if folded != facts {
            let why = format!("resumed from its snapshot the run is {facts:?}, and its events add up to {folded:?}");
            return Err(Violation::Guarantee { id: "E37", why });
        }
        let tail = !after.is_empty();
        self.rare.hit("resumed from a snapshot");
        if tail {
            self.rare.hit("resumed from a snapshot and turns after it");
        }
        Ok(resumed)
    }
}

impl World<'_> {
    /// What came back from a snapshot asks for the same and has the same state.
    fn like_the_whole(
        &self,
        whole: &Execution,
        resumed: &Execution,
        lived: &[WatchedActivation],
        relived: &[WatchedActivation],
    ) -> Result<(), Violation> {
        self.fits(resumed, Clues::of(lived, relived))?;
        self.doubts.same_again(lived, relived)?;
        self.doubts.same_state(&whole.state_json(), &resumed.state_json())
    }

    /// Says which fields serde skips: where a snapshot is the difference, they are the cause.
    fn with_skipped(&self, mut found: Violation, run: &SimulatedRun, of: &Execution) -> Violation {
        if let Violation::Unstable { clues, .. } | Violation::ReplayMismatch { clues, .. } = &mut found {
            *clues = std::mem::take(clues).with_skipped(&of.run().info().workflow_type, &run.lived);
        }
        found
    }

    /// Snapshots after every turn of short runs, each with the turns after it: commands, state and answers to queries are
    /// those of the whole.
    pub(super) fn resume_every_snapshot(&self) -> Result<(), Violation> {
        for run in self.runs.values() {
            let started = started_of(run).map(|started| started.workflow_type.clone());
            let has_snapshots = started.is_some_and(|started| self.registry().supports_snapshot(&started));
            if has_snapshots && run.turns.len() <= EVERY_SNAPSHOT {
                (1..run.turns.len()).try_for_each(|turns| self.resume_snapshot_after(run, turns))?;
            }
        }
        watch::take();
        Ok(())
    }

    fn resume_snapshot_after(&self, run: &SimulatedRun, turns: usize) -> Result<(), Violation> {
        let (registry, build) = (self.registry(), self.registry().build_id());
        watch::take();
        let before = Execution::load(&run.turns[..turns], registry, build).map_err(broken)?;
        let lived = watch::take().len();
        let (Some(code), None) = (before.snapshot(), before.held()) else { return Ok(()) };
        let mut whole = Execution::load(&run.turns, registry, build).map_err(broken)?;
        let restored = registry.restore(&before.run().info().workflow_type, run.turns[0].run, &code);
        let restored = restored.map_err(|why| unstable("state", "a snapshot".into(), why.to_string()));
        watch::take();
        let found = restored.and_then(|restored| {
            let after = &run.turns[turns..];
            let lived = run.lived.get(lived..).unwrap_or_default();
            let resumed = Execution::resume(before.run().clone(), restored, after, build);
            let relived = watch::take();
            let mut resumed = resumed.map_err(|why| unloaded(why, lived, &relived))?;
            self.like_the_whole(&whole, &resumed, lived, &relived)?;
            for (name, input) in &self.plan.queries {
                let [first, second] = [&mut whole, &mut resumed].map(|run| format!("{:?}", run.query(name, input)));
                if first != second {
                    return Err(unstable("query", first, format!("{second} from a snapshot")));
                }
            }
            Ok(())
        });
        found.map_err(|found| self.with_skipped(found, run, &whole))
    }
}

/// What came back from a snapshot does not fit the turns after it.
fn unloaded(why: LoadError, lived: &[WatchedActivation], relived: &[WatchedActivation]) -> Violation {
    match why {
        LoadError::NonDeterminism(card) => Violation::ReplayMismatch { card, clues: Clues::of(lived, relived) },
        other => broken(other),
    }
}

/// Runs of more turns have snapshots only where a plan puts them: the cost is the square of the length.
const EVERY_SNAPSHOT: usize = 12;

/// What turns say of a run. That a backoff is over is in memory only, and in snapshots, until the attempt starts: pending
/// activities are not compared by their states.
fn facts(run: &Run) -> (&RunInfo, EventId, Timestamp, Option<&CloseOutcome>, [bool; 2], usize, Vec<(Seq, Attempt)>) {
    let pending = run.pending_activities().into_iter().map(|activity| (activity.seq, activity.attempt)).collect();
    let flags = [run.is_paused(), run.cancel_requested()];
    (run.info(), run.next_event(), run.last_at(), run.outcome(), flags, run.inbox_len(), pending)
}
