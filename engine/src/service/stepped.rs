//! A worker without threads: whoever holds it takes every step of it, one at a time, in any order that threads could.
//!
//! ```text
//!  message or deadline of a shard ─► decided ─► take (what goes into one group) ─► write ─► release ─► tasks, attempts
//! ```
//!
//! Invariant: it is the production worker: the shards, the committer, the runner, the journal and the recovery are the
//! same code; only the threads that would call them, and the clock, are the caller's. So one seed gives one run of the
//! whole engine. Dropping it is a crash: nothing more is written, and nobody hears anything. What it does not have: the
//! watchdog, whose subject is real threads.

use std::future::Future;
use std::sync::{Arc, PoisonError};

use tokio::sync::{mpsc, oneshot};

use super::committer::CommitItem;
use super::current_turn::CurrentTurn;
use super::health::Health;
use super::mailbox::{Arrival, ShardMessage};
use super::options::WorkerOptions;
use super::pace::{Alarms, AttemptClock};
use super::shared::WorkerShared;
use super::turn::TurnThread;
use super::watchdog::{known_runs, turn_thread};
use super::worker::{StartError, housekeep_or_fail, open, recover};
use crate::activity::{ActivityContext, ActivityError, ActivityFunction, ActivityRegistry};
use crate::client::Client;
use crate::log::{Journal, StorageError};
use crate::machine::Durable;
use crate::vocabulary::*;

/// What was decided is durable after fewer steps than this, or there is no room for it.
const COMMIT_STEPS_MAX: usize = 10_000;

/// One step that a stepped worker can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkerStep {
    /// The thread of this shard takes its next message and decides it.
    Message(usize),
    /// The thread of this shard fires what is due.
    Deadline(usize),
    /// The committer takes what is to be committed together.
    Take,
    /// It writes and syncs that group.
    Write,
    /// It releases effects and answers.
    Release,
}

/// An attempt of an activity that has started and waits for its end.
pub struct Staged {
    /// What the activity function would be given.
    pub context: ActivityContext,
    end: oneshot::Sender<Result<Payload, ActivityError>>,
}

impl Staged {
    /// Ends the attempt. The outcome reaches the run when the tasks of the worker run.
    pub fn end(self, end: Result<Payload, ActivityError>) {
        // The runner has dropped an attempt that ignored its cancellation for too long.
        let _ = self.end.send(end);
    }
    /// Whether nobody listens any more.
    pub fn is_dropped(&self) -> bool {
        self.end.is_closed()
    }
}

/// A group on its way.
struct CommitBatch {
    items: Vec<CommitItem>,
    outcome: Option<Result<Durable, Rejection>>,
}

/// See the module.
pub struct Stepped {
    // Dropped first, so that nobody hears of the end.
    runtime: Option<tokio::runtime::Runtime>,
    threads: Vec<TurnThread>,
    batch: Option<CommitBatch>,
    staged: mpsc::UnboundedReceiver<Staged>,
    alarms: Arc<Alarms>,
    shared: Arc<WorkerShared>,
}

impl Stepped {
    /// Opens the log and recovers, as a worker does; the options need a virtual clock. Attempts of the `activities`
    /// listed come to [`Stepped::staged`]; those of other types have no function.
    pub fn start(options: WorkerOptions, activities: &[ActivityType]) -> Result<Stepped, StartError> {
        Self::start_with(options, |function| {
            let mut registry = ActivityRegistry::new();
            activities.iter().for_each(|name| registry.insert(name.clone(), function.clone()));
            registry
        })
    }

    /// As [`Stepped::start`]; the attempts of every type come to the stage.
    pub fn start_staging_all(options: WorkerOptions) -> Result<Stepped, StartError> {
        Self::start_with(options, |function| {
            let mut registry = ActivityRegistry::new();
            registry.insert_for_others(function);
            registry
        })
    }

    fn start_with(
        mut options: WorkerOptions,
        activities: impl FnOnce(ActivityFunction) -> ActivityRegistry,
    ) -> Result<Stepped, StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let (stage, staged) = mpsc::unbounded_channel();
        options.activities = activities(stage_function(&stage));
        let clock = options.clock.as_virtual().cloned();
        let clock = clock.ok_or_else(|| std::io::Error::other("a stepped worker needs a virtual clock"))?;
        let alarms = Alarms::new(clock);
        let shared = open(options, runtime.handle().clone(), AttemptClock::Stepped(alarms.clone()))?;
        recover(&shared);
        let threads = known_runs(&shared).into_iter().enumerate();
        let threads = threads.map(|(number, known)| {
            let thread = turn_thread(shared.clone(), number, 0, known, Arc::new(CurrentTurn::new(None)));
            thread.publish_wake();
            thread
        });
        Ok(Stepped { threads: threads.collect(), batch: None, staged, alarms, runtime: Some(runtime), shared })
    }

    /// A client of the worker. What it asks for is answered when the worker's tasks run.
    pub fn client(&self) -> Client {
        Client::new(self.shared.clone())
    }
    /// The log, to be read by a test.
    pub fn journal(&self) -> &Journal {
        &self.shared.journal
    }
    /// Whether the worker takes requests, and why not.
    pub fn health(&self) -> Health {
        self.shared.health.get()
    }
    /// How many shards the worker has; each is a task of its own.
    pub fn shards(&self) -> usize {
        self.threads.len()
    }
    /// Which shard the runs of a workflow id belong to.
    pub fn shard_of(&self, namespace: &Namespace, workflow_id: &WorkflowId) -> usize {
        self.shared.shard_of(namespace, workflow_id)
    }
    /// Slots that are free, and attempts that wait for one.
    pub fn slots(&self) -> (usize, usize) {
        let queues = self.shared.queues.lock().unwrap_or_else(PoisonError::into_inner);
        (queues.free(), queues.waiting())
    }
    /// Why a run is held, if it is.
    pub fn held_why(&self, run: RunId) -> Option<String> {
        self.shared.held_why(run)
    }

    /// The steps that can be taken now, always in the same order.
    pub fn steps(&self) -> Vec<WorkerStep> {
        let mut steps = Vec::with_capacity(8);
        for (number, thread) in self.threads.iter().enumerate() {
            if !self.shared.mailboxes[number].is_empty() {
                steps.push(WorkerStep::Message(number));
            }
            if thread.is_due() {
                steps.push(WorkerStep::Deadline(number));
            }
        }
        steps.extend(match &self.batch {
            Some(CommitBatch { outcome: None, .. }) => Some(WorkerStep::Write),
            Some(_) => Some(WorkerStep::Release),
            None => (!self.shared.committer.is_empty()).then_some(WorkerStep::Take),
        });
        steps
    }

    /// Takes one of [`Stepped::steps`], and lets the tasks of the runtime run; a step that is not possible does nothing.
    pub fn step(&mut self, step: WorkerStep) {
        match step {
            WorkerStep::Message(number) => {
                let arrival = self.shared.mailboxes[number].next(Some(std::time::Duration::ZERO));
                if let Arrival::Message(message) = arrival {
                    self.decide(number, message);
                }
            }
            WorkerStep::Deadline(number) => self.threads[number].fire_due(|_| ()),
            WorkerStep::Take if self.batch.is_none() => {
                self.batch = self.shared.committer.take_batch().map(|items| CommitBatch { items, outcome: None });
            }
            WorkerStep::Write => {
                if let Some(CommitBatch { items, outcome: outcome @ None }) = &mut self.batch {
                    *outcome = self.shared.committer.commit(&self.shared, items);
                }
            }
            WorkerStep::Release => {
                if let Some(CommitBatch { items, outcome: Some(outcome) }) =
                    self.batch.take_if(|it| it.outcome.is_some())
                {
                    self.shared.committer.release(&self.shared, items, &outcome);
                }
            }
            WorkerStep::Take => {}
        }
        self.tasks();
    }

    /// The thread of a shard decides. Where it waits for the committer, there is nobody to go on but whoever steps.
    fn decide(&mut self, number: usize, message: ShardMessage) {
        if message.waits_for_the_disk() {
            for _ in 0..COMMIT_STEPS_MAX {
                let Some(step) = self.steps().into_iter().find(|step| *step >= WorkerStep::Take) else { break };
                self.step(step);
            }
        }
        self.threads[number].turn(message);
    }

    /// Lets everything run that is spawned: attempts and clients.
    pub fn tasks(&self) {
        self.block_on(async {
            // Each yield lets all tasks run that are ready; what they wake runs with the next.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        });
    }

    /// Waits for something that needs no step: reading, for example.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        self.runtime.as_ref().map(|runtime| runtime.block_on(future))
    }

    /// Lets a client act beside the worker; a crash drops it with the worker.
    pub fn spawn(&self, client: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(client);
        }
    }

    /// The next attempt that has started.
    pub fn staged(&mut self) -> Option<Staged> {
        self.staged.try_recv().ok()
    }

    /// The next moment at which something is due, by the deadlines of runs or the pace of attempts.
    pub fn next_moment(&self) -> Option<Timestamp> {
        self.shared.time.next_deadline().into_iter().chain(self.alarms.next()).min()
    }
    /// Moves the clock. What is due then are steps to take.
    pub fn advance_to(&self, at: Timestamp) {
        if let Some(clock) = self.shared.clock.as_virtual() {
            clock.advance_to(at);
        }
        self.alarms.wake();
        self.tasks();
    }

    /// Checkpoints and archives, as the housekeeping thread does.
    pub fn housekeep(&self) -> bool {
        self.shared.health.storage_failure().is_none() && housekeep_or_fail(&self.shared)
    }

    /// Stops in order, as [`super::Worker::stop`] does: what was delivered is decided, what was decided is durable.
    pub fn stop(&mut self) -> Result<(), StorageError> {
        self.shared.health.worsen(Health::Draining);
        self.shared.queues.lock().unwrap_or_else(PoisonError::into_inner).close();
        for mailbox in &self.shared.mailboxes {
            mailbox.stop();
        }
        self.shared.committer.leave();
        for number in 0..self.threads.len() {
            while let Arrival::Message(message) = self.shared.mailboxes[number].next(None) {
                self.decide(number, message);
            }
            self.threads[number].leave();
        }
        while let Some(step) = self.steps().into_iter().find(|step| *step >= WorkerStep::Take) {
            self.step(step);
        }
        let failed = self.shared.health.storage_failure().is_some();
        self.shared.health.worsen(Health::Stopped);
        if failed { Ok(()) } else { self.shared.journal.close() }
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        drop(self.runtime.take());
        // These refer to each other; nobody hears what they say now.
        self.threads.clear();
        self.batch = None;
        while self.shared.committer.take_batch().is_some() {}
        self.shared.mailboxes.iter().for_each(|mailbox| drop(mailbox.clear()));
        self.shared.waiters.abandon(&Rejection::ShuttingDown);
    }
}

/// A function that brings its attempts to the stage and waits there.
fn stage_function(stage: &mpsc::UnboundedSender<Staged>) -> ActivityFunction {
    let stage = stage.clone();
    Arc::new(move |context| {
        let (end, ended) = oneshot::channel();
        // A stage that is gone forgets the attempt, which then waits for ever.
        let _ = stage.send(Staged { context, end });
        Box::pin(async move {
            match ended.await {
                Ok(end) => end,
                Err(_) => std::future::pending().await,
            }
        })
    })
}
