//! What the command line and the control API need from an engine: one trait, four implementations.
//!
//! Invariant: a caller cannot tell whether the engine is in this process (embedded), behind the control API of a
//! running worker (attached), a Temporal cluster or a fake in a test; all answer with the same values and the same [`Rejection`]s. This
//! file holds no behaviour; it does not find or open a backend (`cli::locate` does).

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bosun_engine::log::EpochFile;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use futures_core::Stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::capability::at_rest::StoreKeys;
use crate::capability::model::SecretRef;
use crate::capability::owner::Guards;
pub use crate::store_work::StoreWork;

/// Why a call has no answer: the engine refused it, or it never reached the engine.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error("the worker at {address} cannot be reached: {why}")]
    Unreachable { address: String, why: String },
    /// Whoever answers there is not the worker that the token is for: it was not sent.
    #[error("the program that answers at {address} does not know the token of {token_file}, so the token was not sent")]
    Unproven { address: String, token_file: String },
    #[error("the worker at {address} does not accept the token from {token_file}")]
    Unauthorized { address: String, token_file: String },
    /// The control API refused the request before the engine saw it, or its answer makes no sense.
    #[error("the control API refused the request ({status} {code}): {message}")]
    Refused { status: u16, code: String, message: String },
}

/// The code of a refusal because a payload cannot be had from where it is kept, or not be kept there.
pub const PAYLOAD_STORE_CODE: &str = "payload_store";

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub type Reply<'a, T> = BoxFuture<'a, Result<T, CallError>>;
pub type EventStream = Pin<Box<dyn Stream<Item = Result<Event, CallError>> + Send>>;
pub type RunEventStream = Pin<Box<dyn Stream<Item = Result<RunEvent, CallError>> + Send>>;

/// Who asks, why, and under which request id; recorded in the history.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Attribution {
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub identity: Option<Identity>,
    /// Makes a cancel request idempotent; the other verbs do not look at it.
    #[serde(default)]
    pub request_id: Option<RequestId>,
}

/// What is wanted of a pending activity, and why.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ActivityAsked {
    pub update: ActivityUpdate,
    #[serde(default)]
    pub because: Attribution,
}

/// Everything a client can ask of an engine. Mirrors `bosun_engine::Client`.
pub trait Backend: Send + Sync {
    fn start(&self, request: StartWorkflow) -> Reply<'_, Started>;
    /// A new run that begins with the history of another one. Turns from elsewhere have been checked.
    fn fork(&self, request: ForkRequest) -> Reply<'_, Forked>;
    /// A run goes back to an earlier point of its history, under its workflow id.
    fn reset(&self, request: ResetRequest) -> Reply<'_, ResetDone>;
    fn signal(&self, target: Target, signal: SignalRequest) -> Reply<'_, ()>;
    fn signal_with_start(&self, request: StartWorkflow, signal: SignalRequest) -> Reply<'_, Started>;
    fn update(&self, target: Target, update: UpdateRequest) -> Reply<'_, UpdateOutcome>;
    fn update_with_start(&self, request: StartWorkflow, update: UpdateRequest) -> Reply<'_, (Started, UpdateOutcome)>;
    fn update_result(&self, target: Target, update: UpdateId) -> Reply<'_, UpdateOutcome>;
    fn query(&self, target: Target, name: QueryName, input: Payload) -> Reply<'_, Payload>;
    fn cancel(&self, target: Target, because: Attribution) -> Reply<'_, ()>;
    fn terminate(&self, target: Target, because: Attribution) -> Reply<'_, ()>;
    fn pause(&self, target: Target, because: Attribution) -> Reply<'_, ()>;
    fn unpause(&self, target: Target, because: Attribution) -> Reply<'_, ()>;
    fn pause_activity(&self, target: Target, activity: ActivityId, because: Attribution) -> Reply<'_, ()>;
    fn unpause_activity(&self, target: Target, activity: ActivityId, because: Attribution) -> Reply<'_, ()>;
    /// Changes a pending activity: its options, what its attempts count from, when it is tried next.
    fn update_activity(&self, target: Target, activity: ActivityId, asked: ActivityAsked) -> Reply<'_, ()>;
    fn complete_activity(&self, token: TaskToken, completion: ActivityCompletion) -> Reply<'_, ()>;
    fn describe(&self, target: Target) -> Reply<'_, Description>;
    fn list(&self, request: ListRequest) -> Reply<'_, Vec<RunInfo>>;
    fn count(&self, query: String) -> Reply<'_, u64>;
    /// `None`: the time given ran out before the run closed.
    fn result(&self, target: Target, request: ResultRequest) -> Reply<'_, Option<RunResult>>;
    fn history(&self, target: Target, from: EventId, limit: usize) -> Reply<'_, Vec<Event>>;
    /// All turns of a run, for replay and export.
    fn turns(&self, target: Target) -> Reply<'_, Vec<Turn>>;
    /// Ends when the run is closed and drained, or, without `follow`, at the current end.
    fn events(&self, target: Target, from: EventId, follow: bool) -> EventStream;
    /// Committed events of all runs that match, after a group or from now on.
    fn watch(&self, query: String, after: Option<GroupSeq>) -> RunEventStream;
    fn delete(&self, target: Target) -> Reply<'_, ()>;
    fn verify(&self) -> Reply<'_, Value>;
    fn backup(&self, to: PathBuf) -> Reply<'_, Value>;
    fn store_info(&self) -> Reply<'_, Value>;
    /// The worker's time, where there is one: it never goes back (guide, Operating, Time).
    fn now(&self) -> Timestamp {
        crate::api::guard::now()
    }
    fn health(&self) -> Reply<'_, EngineHealth>;
    /// What the worker measures of itself, as OpenMetrics text.
    fn metrics(&self) -> Reply<'_, String> {
        let why = "this engine measures nothing: it is no worker".to_owned();
        Box::pin(async move { Err(Rejection::Invalid { what: "metrics".into(), why }.into()) })
    }
    /// What the worker has and has lost, as far as it can be told.
    fn worker_state(&self) -> Reply<'_, WorkerState> {
        Box::pin(async { Ok(WorkerState::default()) })
    }
    /// Whether it looks itself at how people hold runs when it lists and counts them: a worker that is asked does.
    fn looks_at_holds(&self) -> bool {
        false
    }
    /// Whether it finds one event of a history without reading all of it: a cluster's has to be replayed from its beginning.
    fn finds_single_events(&self) -> bool {
        true
    }
    /// Where it is remembered what runs have said of how people hold them, if it is.
    fn holds(&self) -> Option<&HoldMemory> {
        None
    }
    /// Who waits in a task queue, of these namespaces or of all: those whose turn is first, first; at most [`SHARES_MAX`] of them.
    fn queue_shares(
        &self,
        _queue: TaskQueue,
        _namespaces: Option<BTreeSet<Namespace>>,
    ) -> Reply<'_, Vec<WaitingShare>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// What runs have said of how people hold them, each after how many events of its history. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct HoldMemory(pub(crate) Arc<Mutex<BTreeMap<RunId, (u64, Option<Hold>)>>>);

/// Shares of a task queue that are shown.
pub const SHARES_MAX: usize = 100;

/// What a worker says of itself beside its health.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerState {
    /// Threads that workflow code keeps and does not come back from; each takes a core until the worker ends.
    pub lost_threads: usize,
    /// Open runs that cannot go on, of which `list` says that they are held.
    #[serde(default)]
    pub held_runs: usize,
    /// Workflow types whose snapshots lose something: their runs come back from history alone.
    #[serde(default)]
    pub untrusted_snapshots: usize,
    /// Bytes that loaded runs and waiting requests may take together.
    pub memory: usize,
    /// How many attempts may run at once.
    pub slots: usize,
    /// How many do.
    pub busy: usize,
    /// How many of them may leave the process: programs, models, MCP servers, HTTP.
    #[serde(default)]
    pub external_slots: usize,
    /// How many do.
    #[serde(default)]
    pub external_busy: usize,
    /// How many of each queue wait for a slot, or for a worker that serves it, by the namespace of their run.
    pub waiting: BTreeMap<Namespace, BTreeMap<TaskQueue, usize>>,
    /// The queues that are served; nothing: every one.
    pub task_queues: Option<BTreeSet<TaskQueue>>,
    /// Whether queues in which nothing waits of what the caller may see are left out of it.
    #[serde(default)]
    pub partial: bool,
    /// The queues in which something runs, and those with limits.
    #[serde(default)]
    pub queues: BTreeMap<TaskQueue, QueueState>,
    /// How many attempts may start in a second, over all queues; nothing: no limit.
    #[serde(default)]
    pub max_per_second: Option<String>,
}

/// What runs of a queue, and what may.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueState {
    pub running: usize,
    pub max_concurrent: Option<usize>,
    /// `10`, or `0.5`.
    pub max_per_second: Option<String>,
}

impl WorkerState {
    /// How many of each queue wait, over all namespaces that are told.
    pub fn waiting_by_queue(&self) -> BTreeMap<&TaskQueue, usize> {
        let mut found = BTreeMap::new();
        for (queue, waiting) in self.waiting.values().flatten() {
            *found.entry(queue).or_default() += waiting;
        }
        found
    }
}

/// Recorded runs, to be read: all that replay needs. Answered by a running engine, and by a data directory that nobody
/// holds without starting an engine on it, so that reading a run never carries it on.
pub trait Histories: Send + Sync {
    /// The run that a target names; the newest of its workflow id unless it names one.
    fn run(&self, target: Target) -> Reply<'_, RunInfo>;
    /// Runs that fit a list filter; a page of at most 1000.
    fn list(&self, request: ListRequest) -> Reply<'_, Vec<RunInfo>>;
    fn turns(&self, target: Target) -> Reply<'_, Vec<Turn>>;
}

/// The histories of an engine.
#[derive(Clone)]
pub struct OfEngine(pub Arc<dyn Backend>);

impl Histories for OfEngine {
    fn run(&self, target: Target) -> Reply<'_, RunInfo> {
        Box::pin(async move { Ok(self.0.describe(target).await?.info) })
    }
    fn list(&self, request: ListRequest) -> Reply<'_, Vec<RunInfo>> {
        self.0.list(request)
    }
    fn turns(&self, target: Target) -> Reply<'_, Vec<Turn>> {
        self.0.turns(target)
    }
}

/// Whether an engine takes work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum EngineHealth {
    Ready,
    Draining,
    StorageFull { why: String },
    StorageFailed { why: String },
}

/// Where a Temporal cluster is, and who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterPlace {
    /// `HOST:PORT`, a URL, or `env` or `env:PROFILE` for what the `TEMPORAL_*` variables and `temporal.toml` say.
    pub address: String,
    pub namespace: Namespace,
    pub identity: Identity,
    /// Runs that a worker keeps in memory.
    pub cached_runs: usize,
    /// Where its API key is, if that is not said by `TEMPORAL_API_KEY` or `temporal.toml`.
    pub api_key: Option<SecretRef>,
    /// Of a worker that takes part in a versioned deployment.
    pub deployment: Option<Deployment>,
    /// Where payloads are kept that are too large for it.
    pub payload_store: Option<PayloadStore>,
}

/// A directory that the workers and the clients of a cluster share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadStore {
    pub directory: PathBuf,
    /// Payloads that are longer, in bytes, are kept there.
    pub above: usize,
}

/// A versioned deployment of a Temporal cluster, of which a worker is one version: its build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    pub name: String,
    /// Runs follow the current version; otherwise each stays with the build that began it.
    pub auto_upgrade: bool,
}

/// How many attempts of activities run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotCounts {
    pub all: usize,
    /// Of activities that leave the process: programs, models, MCP servers, HTTP.
    pub external: usize,
}

impl SlotCounts {
    /// Functions of this process cost little while they wait.
    pub const ALL: usize = 1_000;

    /// What the owner said, or what this machine can do: four programs a core, and no fewer than 16. Whoever names one number
    /// means all attempts.
    pub fn of(all: Option<usize>, external: Option<usize>) -> SlotCounts {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let fits = all.unwrap_or_else(|| (4 * cores).max(16));
        let all = all.unwrap_or(SlotCounts::ALL);
        SlotCounts { all, external: external.unwrap_or(fits).min(all) }
    }
}

/// What an opened engine is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Run workflows and activities: this many attempts at once, from these queues (none named: all), within what the
    /// owner allows.
    Work { slots: SlotCounts, queues: Vec<TaskQueue>, guards: Guards },
    /// Do one durable thing, or read, and close: no activity is started. Only some visits may create a directory.
    Visit { create: bool },
    /// Only read, and change no file. What would be decided meanwhile is forgotten.
    Look,
}

/// Why a data directory could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("there is no store at {}", .0.display())]
    Missing(PathBuf),
    #[error("another process holds {}", .0.display())]
    Locked(PathBuf),
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    #[error("the store was written by a version this one cannot read: {0}")]
    Unsupported(String),
    /// A key of the store is not given. Nothing was touched.
    #[error("{0}")]
    MissingKey(String),
    /// The store does not fit what is noted outside of it. Nothing was touched.
    #[error("{0}")]
    RolledBack(String),
    /// What was asked for cannot be done; nothing was touched.
    #[error("{0}")]
    Refused(String),
    /// Where something was to be written is no place for it; nothing was touched.
    #[error("{0}")]
    Taken(String),
    #[error("{0}")]
    Full(String),
    /// Of a cluster: nobody answers there.
    #[error("{0}")]
    Unreachable(String),
    #[error("{0}")]
    Failed(String),
}

/// How an engine stopped by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopped {
    Drained,
    StorageFailed { why: String },
}

/// An engine in this process.
pub trait Engine: Send + Sync {
    fn backend(&self) -> Arc<dyn Backend>;
    /// Stops taking work, lets running attempts end for at most `timeout`, and closes. True: everything had ended.
    fn drain(&self, timeout: Duration) -> BoxFuture<'_, bool>;
    /// For how long the group that is being written to the log has been; `None` where none is.
    fn writing_for(&self) -> Option<Duration> {
        None
    }
    /// Resolves when the engine has stopped, by a drain or because its storage failed.
    fn stopped(&self) -> BoxFuture<'_, Stopped>;
}

/// Opens the engine of a data directory, with the workflows and activities of the program.
pub trait OpenEngine: Send + Sync {
    fn open<'a>(&'a self, data: &'a Path, purpose: &'a Access) -> BoxFuture<'a, Result<Arc<dyn Engine>, OpenError>>;
    /// The histories of a data directory that nobody holds. Starts no engine and carries no run on.
    fn histories<'a>(&'a self, data: &'a Path) -> BoxFuture<'a, Result<Arc<dyn Histories>, OpenError>>;
    /// Does something with a directory as a whole that nobody holds, and says what was done. Starts no engine.
    fn store_work<'a>(&'a self, _: &'a Path, _: &'a StoreWork) -> BoxFuture<'a, Result<Value, OpenError>> {
        Box::pin(async { Err(OpenError::Refused("this program has no stores".into())) })
    }
    /// An engine that is a Temporal cluster: reached, and for [`Access::Work`] served. `data` is for what activities keep
    /// beside it.
    fn open_cluster<'a>(
        &'a self,
        _: &'a ClusterPlace,
        _: &'a Path,
        _: &'a Access,
    ) -> BoxFuture<'a, Result<Arc<dyn Engine>, OpenError>> {
        Box::pin(async { Err(OpenError::Refused(NO_CLUSTERS.to_owned())) })
    }
    /// The namespace that the environment of a cluster names, if it names one.
    fn namespace_of_cluster(&self, _: &ClusterPlace) -> Result<Option<String>, OpenError> {
        Err(OpenError::Refused(NO_CLUSTERS.to_owned()))
    }
    /// Where the keys of stores are, for whatever is opened from now on.
    fn set_keys(&self, _: StoreKeys) {}
    /// Where it is noted how far a store reached, for whatever is opened from now on.
    fn set_epoch(&self, _: Option<EpochFile>) {}
    /// The workflow code of this program.
    fn workflows(&self) -> WorkflowRegistry;
    /// The workflow types this program can run.
    fn workflow_types(&self) -> Vec<String>;
}

/// What a program without the feature says.
const NO_CLUSTERS: &str = "this program is built without Temporal clusters: build it with the cargo feature `temporal` \
                           (cargo build --release --features temporal)";
