//! The test environment: a whole worker in the process, on a log in memory, with a clock that skips (E40).
//!
//! Invariant: it is the production worker behind the production client; only the log and the clock differ. Time stands
//! still until somebody waits for a result (or calls `sleep`), then jumps from deadline to deadline while nothing else
//! is under way. One shard, so that the same test gives the same order of turns.

mod attempt;

use std::sync::Arc;
use std::time::Duration;

use crate::activity::ActivityRegistry;
use crate::client::Client;
use crate::clock::{Clock, VirtualClock};
use crate::log::MemoryLog;
use crate::machine::{Durable, Effect, SealedEffects};
use crate::service::{DataDirectory, StartError, Worker, WorkerOptions};

pub use attempt::TestAttempt;

pub use crate::service::{Staged, Stepped, WorkerStep};
use crate::vocabulary::*;
use crate::workflow::WorkflowRegistry;

/// Opens the effects of a decision whose turn a *simulated* log holds durably (or that has nothing to write). Simulators
/// drive the run machine without a shell; in a worker only the committer opens effects.
pub fn release_simulated(effects: SealedEffects) -> Vec<Effect> {
    effects.open(Durable::nothing_to_write())
}

/// A worker for tests. Must be started within a tokio runtime.
///
/// Workflow time is virtual: it passes in [`TestEnvironment::sleep`], and from deadline to deadline while a result is waited
/// for. Limits of the client ([`result_within`](crate::WorkflowHandle::result_within)) are real time, so that a run that
/// nothing can move does not keep a test for ever: give them seconds, not days.
pub struct TestEnvironment {
    worker: Worker,
    log: Arc<MemoryLog>,
    clock: VirtualClock,
    options: WorkerOptions,
}

impl TestEnvironment {
    /// Where a test's time begins: 2026-01-01 00:00 UTC.
    pub const EPOCH: Timestamp = Timestamp(1_767_225_600_000_000);

    /// Starts a worker with this code.
    pub fn start(workflows: WorkflowRegistry, activities: ActivityRegistry) -> Result<Self, StartError> {
        Self::start_with(workflows, activities, |_| {})
    }

    /// As [`TestEnvironment::start`], with other options.
    pub fn start_with(
        workflows: WorkflowRegistry,
        activities: ActivityRegistry,
        change: impl FnOnce(&mut WorkerOptions),
    ) -> Result<Self, StartError> {
        let log = Arc::new(MemoryLog::new([7; 16]));
        let clock = VirtualClock::at(Self::EPOCH);
        let mut options = WorkerOptions::new(DataDirectory::Log(log.clone()));
        options.workflows = workflows;
        options.activities = activities;
        options.clock = Clock::Virtual(clock.clone());
        options.shards = 1;
        // A look at every run would be a turn that the test has not asked for.
        options.fit_runs_max = 0;
        options.shadow_replay_every = 1;
        options.cancel_grace = Duration::from_millis(50);
        change(&mut options);
        Self::on(log, clock, options)
    }

    /// The clock of the options is the one that counts: a test may have set another one.
    fn on(log: Arc<MemoryLog>, clock: VirtualClock, options: WorkerOptions) -> Result<Self, StartError> {
        let clock = options.clock.as_virtual().cloned().unwrap_or(clock);
        let worker = Worker::start(options.clone())?;
        Ok(TestEnvironment { worker, log, clock, options })
    }

    /// The client that production has.
    pub fn client(&self) -> Client {
        self.worker.client()
    }
    /// The worker underneath.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }
    /// The log in memory, for tests that damage it.
    pub fn log(&self) -> &Arc<MemoryLog> {
        &self.log
    }
    /// What the clock shows.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
    /// Lets time pass, doing everything that is due on the way.
    pub async fn sleep(&self, duration: Duration) {
        self.client().sleep(duration).await;
    }

    /// Waits, at this moment of the clock, until everything that was caused is done, attempts that run included; or
    /// until the storage has failed.
    pub async fn settle(&self) {
        self.client().settle().await;
    }

    /// Stops the worker and starts another one on the same log, possibly with other code.
    pub fn restart(self, change: impl FnOnce(&mut WorkerOptions)) -> Result<Self, StartError> {
        let TestEnvironment { worker, log, clock, options } = self;
        worker.stop().map_err(StartError::Storage)?;
        drop(worker);
        Self::reopen(log, clock, options, change)
    }

    /// As [`TestEnvironment::restart`], after a power cut that loses what was not synced (the seed picks the rest).
    pub fn crash(self, seed: u64, change: impl FnOnce(&mut WorkerOptions)) -> Result<Self, StartError> {
        let left = Arc::new(self.log.crash(seed));
        // What the old worker still does reaches the old log only.
        let TestEnvironment { worker, clock, options, .. } = self;
        drop(worker);
        Self::reopen(left, clock, options, change)
    }

    fn reopen(
        log: Arc<MemoryLog>,
        clock: VirtualClock,
        mut options: WorkerOptions,
        change: impl FnOnce(&mut WorkerOptions),
    ) -> Result<Self, StartError> {
        options.data = DataDirectory::Log(log.clone());
        change(&mut options);
        Self::on(log, clock, options)
    }
}
