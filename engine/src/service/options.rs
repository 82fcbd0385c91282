//! What a worker is started with.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::budget::default_memory;
use super::retention::Retention;
use crate::activity::{ActivityContext, ActivityFuture, ActivityRegistry, ActivityTask};
use crate::clock::Clock;
use crate::log::{JournalOptions, Log};
use crate::machine::Limits;
use crate::queue::QueueSettings;
use crate::vocabulary::*;
use crate::workflow::WorkflowRegistry;

/// Where the log is.
#[derive(Clone)]
pub enum DataDirectory {
    /// A directory, which one process holds at a time.
    Path(PathBuf),
    /// Any log, for example the one in memory (E40).
    Log(Arc<dyn Log>),
}

/// Everything a worker needs. The defaults suit one process on a small machine.
#[derive(Clone)]
pub struct WorkerOptions {
    /// Where the log is.
    pub data: DataDirectory,
    /// How the log is kept: codecs, blobs, what is archived when.
    pub journal: JournalOptions,
    /// The workflow code.
    pub workflows: WorkflowRegistry,
    /// The activity functions, and what they share.
    pub activities: ActivityRegistry,
    /// How many attempts run at once. Default 200.
    pub slots: usize,
    /// How many of them may be attempts of activities that leave the process, see
    /// [`ActivityRegistry::external`](crate::ActivityRegistry::external). Default 200.
    pub external_slots: usize,
    /// The task queues this worker serves; `None`: all.
    pub task_queues: Option<BTreeSet<TaskQueue>>,
    /// What is allowed of single queues, over all namespaces.
    pub queue_limits: BTreeMap<TaskQueue, QueueLimits>,
    /// How many attempts may start in a second, over all queues. `None`: no limit.
    pub max_activities_per_second: Option<PerSecond>,
    /// How many turn threads there are; the runs are spread over them by workflow id. Default: one a core.
    pub shards: usize,
    /// How many runs a shard keeps loaded that are at rest, see [`Self::loaded_for`]. Default 2 000.
    pub loaded_max: usize,
    /// How long after its last use a run counts as at rest. Before, only [`Self::memory`] puts it away: runs that take
    /// turns would each be read again at every step if there were more of them than room. Default 1 s.
    pub loaded_for: Duration,
    /// Bytes that loaded runs and waiting requests may take (G24). Default: a quarter of what the machine, or
    /// the control group of the process, has.
    pub memory: usize,
    /// How many requests may wait for a shard before more are refused with a retry-after. Default 20 000.
    pub mailbox_max: usize,
    /// How large payloads may be, and how long a turn may take.
    pub limits: Limits,
    /// Where the time comes from: the system, or a test.
    pub clock: Clock,
    /// How long closed runs are kept. Default: for ever.
    pub retention: Retention,
    /// How often indexes are checkpointed and closed runs are archived. Default 5 s.
    pub housekeeping_every: Duration,
    /// Code around activities, turns and requests; the first is the outermost.
    pub interceptors: Vec<Arc<dyn Interceptor>>,
    /// Who this worker is in histories.
    pub identity: Option<Identity>,
    /// Where the worker notes what is under way, so that the next one finds what ended it (G23); `None`: the
    /// directory of a log that was named by its path, and nowhere for any other.
    pub marks: Option<PathBuf>,
    /// Set by commands that only visit the directory: runs that crashed a worker are not loaded.
    pub visit: bool,
    /// Of the open runs whose last turn was decided by another build, a worker that starts looks at this many, the newest
    /// first, and says how many do not fit its code. 0: none. Default 1 000; none in the test environment.
    pub fit_runs_max: usize,
    /// Of the state-machine runs that come back from a snapshot, the first of each type and then every run of this number
    /// is also replayed from its history, and both are compared for as long as it is loaded (E37). A difference
    /// is logged as an error, `describe` shows it, and snapshots of the type are not used any more. 0: never. Default 64;
    /// 1, all of them, in the test environment.
    pub shadow_replay_every: u32,
    /// Read-only: nothing is written to the directory, not even the marks of what is under way.
    pub look: bool,
    /// How long a canceled attempt may go on before its future is dropped. Default 5 s.
    pub cancel_grace: Duration,
}

impl WorkerOptions {
    /// The defaults, on a log.
    pub fn new(data: DataDirectory) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        WorkerOptions {
            data,
            journal: JournalOptions::default(),
            workflows: WorkflowRegistry::new(),
            activities: ActivityRegistry::new(),
            slots: 200,
            external_slots: 200,
            task_queues: None,
            queue_limits: BTreeMap::new(),
            max_activities_per_second: None,
            shards: cores.clamp(1, 8),
            loaded_max: 2_000,
            loaded_for: Duration::from_secs(1),
            memory: default_memory(),
            mailbox_max: 20_000,
            limits: Limits::default(),
            clock: Clock::system(),
            retention: Retention::default(),
            housekeeping_every: Duration::from_secs(5),
            interceptors: Vec::new(),
            identity: None,
            marks: None,
            visit: false,
            fit_runs_max: 1_000,
            shadow_replay_every: 64,
            look: false,
            cancel_grace: Duration::from_secs(5),
        }
    }
    /// As [`WorkerOptions::new`], on the directory of a path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self::new(DataDirectory::Path(path.into()))
    }
    pub(super) fn queue_settings(&self) -> QueueSettings {
        QueueSettings {
            slots: self.slots,
            external: self.external_slots,
            served: self.task_queues.clone(),
            limits: self.queue_limits.clone(),
            per_second: self.max_activities_per_second,
        }
    }
    pub(super) fn marks_directory(&self) -> Option<&Path> {
        match (&self.marks, &self.data) {
            (Some(directory), _) | (None, DataDirectory::Path(directory)) => Some(directory),
            (None, DataDirectory::Log(_)) => None,
        }
    }
}

/// Code around the worker's work: tracing, auth, metrics (E35). Every method has a default that does nothing.
pub trait Interceptor: Send + Sync {
    /// Around the run of one activity attempt.
    fn activity(&self, task: &ActivityTask, next: ActivityFuture) -> ActivityFuture {
        let _ = task;
        next
    }
    /// Before one turn of a run. Runs on the turn thread: must be quick, and cannot change the decision.
    fn turn_begins(&self, run: &RunInfo) {
        let _ = run;
    }
    /// As [`Self::turn_begins`], after the code has decided; `events` counts what the turn adds to the history. It is
    /// not durable yet.
    fn turn_ends(&self, run: &RunInfo, events: usize) {
        let _ = (run, events);
    }
    /// After a group was written and synced: how many turns it holds, and how long that took, waits for room on a full disk
    /// included. Runs on the thread that commits, before anything of the group is released: must be quick.
    fn group_committed(&self, turns: usize, took: Duration) {
        let _ = (turns, took);
    }
    /// Before a client call is carried out; may refuse it.
    fn client_call(&self, call: &'static str, workflow_id: Option<&WorkflowId>) -> Result<(), Rejection> {
        let _ = (call, workflow_id);
        Ok(())
    }
}

impl ActivityRegistry {
    /// One attempt: the function of its type inside the interceptors, the first of them outermost. A type without a function
    /// is a failure that names those there are.
    pub fn attempt(
        &self,
        task: &ActivityTask,
        context: ActivityContext,
        interceptors: &[Arc<dyn Interceptor>],
    ) -> ActivityFuture {
        let future = match self.get(&task.activity_type) {
            Some(function) => function(context),
            None => {
                let known: Vec<&str> = self.types().map(ActivityType::as_str).collect();
                let message =
                    format!("no activity type {} in this worker; it has: {}", task.activity_type, known.join(", "));
                Box::pin(std::future::ready(Err(Failure::application("ActivityNotRegistered", message).into())))
            }
        };
        interceptors.iter().rev().fold(future, |next, interceptor| interceptor.activity(task, next))
    }
}
