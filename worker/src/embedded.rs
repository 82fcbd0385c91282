//! The embedded engine: this process opens the data directory itself.
//!
//! Invariant: all of the command line and the control API meets the engine here and nowhere else. The directory is
//! locked before anything that belongs to it is touched, so that what [`AtOpen`] does (reaping orphans, for example)
//! never harms another worker. A visit starts no activity.
//!
//! Long: one method a call of the backend, and how a store is opened for each purpose.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bosun_engine::log::{DiskLog, EpochFile, Log, PayloadCodec, SledOptions, StorageError, StoreReader};
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::api::WorkerFile;
use crate::backend::{
    Access, ActivityAsked, Attribution, Backend, BoxFuture, CallError, Engine, EngineHealth, EventStream, Histories,
    HoldMemory, OpenEngine, OpenError, QueueState, Reply, RunEventStream, SHARES_MAX, Stopped, WorkerState,
};
use crate::batch::{self, carry_out::EngineHere};
use crate::capability::at_rest::{AtRest, AtRestError, StoreKeys};
use crate::capability::leaks::Leaks;
use crate::capability::owner::Guards;
use crate::closed_directory::{ClosedDirectory, is_store};
use crate::notify;
use crate::notify::cursor::{Cursor, GoneWorker};
use crate::notify::deliver::Teller;
use crate::notify::rules::channel::Notify;
use crate::notify::watcher::Watcher;
use crate::startable::{KnownCode, forks_anew};
use crate::store_reports::{StoreLocation, info_json, judge_epoch, key_error, open_error, verify_json};
use crate::store_work::{self, StoreWork};
use crate::telemetry::metrics::{Metrics, Standing};

/// Completes the activities once the data directory is held.
pub type AtOpen = Arc<dyn Fn(&OpenedDirectory<'_>, &mut ActivityRegistry) -> Result<(), String> + Send + Sync>;

/// Changes what the engine is started with.
pub type Configure = Arc<dyn Fn(&mut WorkerOptions) + Send + Sync>;

/// A data directory that is held and is about to be worked on.
#[derive(Debug, Clone, Copy)]
pub struct OpenedDirectory<'a> {
    /// Its absolute path.
    pub data: &'a Path,
    /// What the owner allows.
    pub guards: &'a Guards,
}

/// The workflows and activities of a program.
#[derive(Clone, Default)]
pub struct Registries {
    pub workflows: WorkflowRegistry,
    pub activities: ActivityRegistry,
    pub at_open: Vec<AtOpen>,
    /// Before what the command line and the owner's configuration say.
    pub configure: Vec<Configure>,
    /// What happens to payloads before they are compressed and encrypted.
    pub codecs: Vec<Arc<dyn PayloadCodec>>,
    /// Where the keys of stores are.
    pub keys: Arc<Mutex<StoreKeys>>,
    /// Where it is noted how far a store reached.
    pub epoch: Arc<Mutex<Option<EpochFile>>>,
    pub identity: Option<Identity>,
}

impl OpenEngine for Registries {
    fn open<'a>(&'a self, data: &'a Path, purpose: &'a Access) -> BoxFuture<'a, Result<Arc<dyn Engine>, OpenError>> {
        let (registries, data, purpose) = (self.clone(), data.to_owned(), purpose.clone());
        Box::pin(async move {
            let at_rest = registries.at_rest(&data).await?;
            // Opening reads, checks and syncs files.
            let opened = tokio::task::spawn_blocking(move || registries.open_now(&data, purpose, at_rest));
            opened.await.unwrap_or_else(|why| Err(OpenError::Failed(format!("opening the store panicked: {why}"))))
        })
    }
    #[cfg(feature = "temporal")]
    fn open_cluster<'a>(
        &'a self,
        place: &'a crate::backend::ClusterPlace,
        data: &'a Path,
        purpose: &'a Access,
    ) -> BoxFuture<'a, Result<Arc<dyn Engine>, OpenError>> {
        Box::pin(crate::temporal::engine::open(self.clone(), place, data, purpose))
    }
    #[cfg(feature = "temporal")]
    fn namespace_of_cluster(&self, place: &crate::backend::ClusterPlace) -> Result<Option<String>, OpenError> {
        Ok(crate::temporal::namespace_of(place)?)
    }
    fn histories<'a>(&'a self, data: &'a Path) -> BoxFuture<'a, Result<Arc<dyn Histories>, OpenError>> {
        Box::pin(async move {
            let at_rest = self.at_rest(data).await?;
            Ok(Arc::new(ClosedDirectory::open(data, at_rest.codec).await?) as Arc<dyn Histories>)
        })
    }
    fn store_work<'a>(&'a self, data: &'a Path, work: &'a StoreWork) -> BoxFuture<'a, Result<Value, OpenError>> {
        Box::pin(async move {
            // Of a damaged one more than its name may be lost.
            let saves = matches!(work, StoreWork::Salvage { .. } | StoreWork::Assess) && data.join("log").is_dir();
            if !is_store(data) && !saves {
                return Err(OpenError::Missing(data.to_owned()));
            }
            let at_rest = if work.needs_keys() { self.at_rest(data).await? } else { AtRest::default() };
            let (data, work, epoch) = (data.to_owned(), work.clone(), self.epoch());
            // It reads and writes files.
            let work = move || store_work::carry_out(&data, &work, &at_rest, epoch.as_ref());
            let done = tokio::task::spawn_blocking(work).await;
            done.unwrap_or_else(|why| Err(OpenError::Failed(format!("the work on the store panicked: {why}"))))
        })
    }
    fn set_keys(&self, keys: StoreKeys) {
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
    }
    fn set_epoch(&self, epoch: Option<EpochFile>) {
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner) = epoch;
    }
    fn workflows(&self) -> WorkflowRegistry {
        self.workflows.clone()
    }
    fn workflow_types(&self) -> Vec<String> {
        self.workflows.types().map(ToString::to_string).collect()
    }
}

impl Registries {
    fn epoch(&self) -> Option<EpochFile> {
        self.epoch.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The keys for a directory: all that it needs, or nothing of it is opened.
    async fn at_rest(&self, data: &Path) -> Result<AtRest, OpenError> {
        let at_rest = self.codecs_at_rest().await?;
        at_rest.fits(data).map_err(|why| key_error(&why))?;
        Ok(at_rest)
    }

    /// What the program and the owner's keys make of payloads that are kept.
    pub(crate) async fn codecs_at_rest(&self) -> Result<AtRest, OpenError> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut at_rest = AtRest::load(&keys).await.map_err(OpenError::MissingKey)?;
        at_rest.codec = at_rest.codec.after(&self.codecs);
        Ok(at_rest)
    }

    fn open_now(self, data: &Path, purpose: Access, at_rest: AtRest) -> Result<Arc<dyn Engine>, OpenError> {
        let data = std::path::absolute(data).map_err(|why| OpenError::Failed(why.to_string()))?;
        if matches!(purpose, Access::Visit { create: false } | Access::Look) && !is_store(&data) {
            return Err(OpenError::Missing(data));
        }
        let isolate = matches!(&purpose, Access::Work { guards, .. } if guards.store.isolate);
        match self.clone().open_store(&data, purpose.clone(), &at_rest) {
            Err(OpenError::Corrupt(why)) if isolate => {
                store_work::isolate(&data, &why, self.epoch().as_ref())?;
                self.open_store(&data, purpose, &at_rest)
            }
            opened => opened,
        }
    }

    // long: one part after the other, each made of those before.
    fn open_store(mut self, data: &Path, purpose: Access, at_rest: &AtRest) -> Result<Arc<dyn Engine>, OpenError> {
        let data = data.to_owned();
        let epoch = self.epoch();
        let looks = purpose == Access::Look;
        if let Some(file) = epoch.as_ref().filter(|_| is_store(&data)) {
            store_work::compares_nothing(file, !looks);
        }
        let log = log_for(&data, &purpose, epoch.clone()).map_err(open_error)?;
        let epoch = epoch.map(|file| (file, log.clone()));
        if let Some((file, log)) = epoch.as_ref().filter(|_| looks) {
            store_work::warn_of_older(file, &data, &**log);
        }
        if !looks {
            // Before anything is written with it.
            at_rest.note(&data).map_err(|why| key_error(&why))?;
        }
        let mut options = WorkerOptions::new(DataDirectory::Log(log));
        self.configure.iter().for_each(|configure| configure(&mut options));
        options.marks = Some(data.clone());
        options.look = looks;
        let (mut metrics, mut watches) = (None, None);
        let here = EngineHere::default();
        match purpose {
            Access::Work { slots, queues, guards } => {
                (options.slots, options.external_slots) = (slots.all, slots.external);
                options.task_queues = (!queues.is_empty()).then(|| queues.into_iter().collect());
                metrics = Some(self.prepare_work(&mut options, &data, &guards, &here)?);
                watches = prepare_to_tell(&data, &guards.notify).map(|cursor| (cursor, guards.notify.clone()));
            }
            Access::Visit { .. } | Access::Look => {
                options.slots = 0;
                options.visit = true;
                options.task_queues = Some(BTreeSet::new());
            }
        }
        options.journal.codec = at_rest.codec.clone();
        options.workflows = self.workflows;
        options.activities = self.activities;
        options.identity = self.identity;
        match Worker::start(options) {
            Ok(worker) => {
                let writes_with = at_rest.primary().map(str::to_owned);
                let store = Some(Arc::new(StoreLocation { data, writes_with, epoch }));
                let worker = Arc::new(worker);
                here.is(&worker);
                if let Some((cursor, notify)) = watches {
                    watch(&worker, notify, cursor);
                }
                Ok(Arc::new(Embedded { client: worker.client(), worker, store, metrics, holds: HoldMemory::default() }))
            }
            Err(StartError::Storage(why)) => Err(open_error(why)),
            Err(why @ (StartError::NoRuntime(_) | StartError::Marks(_) | StartError::Thread(_))) => {
                Err(OpenError::Failed(why.to_string()))
            }
        }
    }
}

impl Registries {
    /// What a worker has beside a visit: what the owner allows, what is done as the directory opens, and what looks on.
    fn prepare_work(
        &mut self,
        options: &mut WorkerOptions,
        data: &Path,
        guards: &Guards,
        here: &EngineHere,
    ) -> Result<Arc<Metrics>, OpenError> {
        options.memory = guards.memory.unwrap_or(options.memory);
        // What a program says in its code stays, where the owner says nothing.
        options.queue_limits.extend(guards.queues.limits.clone());
        options.max_activities_per_second = guards.queues.per_second.or(options.max_activities_per_second);
        if guards.store.retention != Retention::default() {
            options.retention = guards.store.retention.clone();
        }
        for at_open in &self.at_open {
            at_open(&OpenedDirectory { data, guards }, &mut self.activities).map_err(OpenError::Failed)?;
        }
        batch::carry_out::register(&mut self.activities, here, data);
        Teller::new(guards.notify.clone(), data).register(&mut self.activities, here);
        // Whatever else a worker serves, it tells.
        let tells = TaskQueue::of(notify::rules::run::QUEUE);
        if !guards.notify.channels.is_empty() {
            // A receiver that hangs keeps no more than this from the work itself.
            let most = Some((options.external_slots / 4).max(1));
            let limit = QueueLimits { max_concurrent_activities: most, ..QueueLimits::default() };
            options.queue_limits.entry(tells.clone()).or_insert(limit);
        }
        options.task_queues.iter_mut().for_each(|served| _ = served.insert(tells.clone()));
        let measured = Arc::new(Metrics::new(self.workflows.types(), self.activities.types()));
        options.interceptors.extend([Arc::new(Leaks) as Arc<dyn Interceptor>, measured.clone()]);
        Ok(measured)
    }
}

/// Tells what happens, until the worker leaves.
fn watch(worker: &Arc<Worker>, notify: Notify, cursor: Cursor) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(Watcher::new(worker.client(), backend_of(worker.clone()), notify, cursor).run());
    }
}

/// What is to be told before the worker's own file is written over: that the one before ended without a word. Whoever cannot
/// write it down, on a full disk, tells it as long as it lives, and does its work.
fn prepare_to_tell(data: &Path, notify: &Notify) -> Option<Cursor> {
    if notify.channels.is_empty() && !Cursor::is_begun(data) {
        return None;
    }
    let mut cursor = Cursor::open(data);
    if let Some(before) = WorkerFile::read(data).filter(|before| !before.of_a_run) {
        let gone = GoneWorker { pid: before.pid, started_at: before.started_at };
        if let Err(why) = cursor.note_gone(gone) {
            tracing::warn!(%why, "that the worker before was gone cannot be written down");
        }
    }
    // One that has no channels leaves it all to the next one that has.
    (!notify.channels.is_empty()).then_some(cursor)
}

/// The queues in which something runs, and those with limits.
fn queue_states(
    running: &BTreeMap<TaskQueue, usize>,
    limits: &BTreeMap<TaskQueue, QueueLimits>,
) -> BTreeMap<TaskQueue, QueueState> {
    let names: BTreeSet<&TaskQueue> = running.keys().chain(limits.keys()).collect();
    let state = |queue: &TaskQueue| QueueState {
        running: running.get(queue).copied().unwrap_or(0),
        max_concurrent: limits.get(queue).and_then(|limits| limits.max_concurrent_activities),
        max_per_second: limits
            .get(queue)
            .and_then(|limits| limits.max_activities_per_second)
            .map(|rate| rate.to_string()),
    };
    names.into_iter().map(|queue| (queue.clone(), state(queue))).collect()
}

fn log_for(data: &Path, purpose: &Access, epoch: Option<EpochFile>) -> Result<Arc<dyn Log>, StorageError> {
    Ok(match purpose {
        Access::Look => Arc::new(StoreReader::open(data)?.forgetting()),
        Access::Work { .. } | Access::Visit { .. } => {
            Arc::new(DiskLog::open(data, SledOptions { epoch, ..SledOptions::default() })?)
        }
    })
}

/// An open engine, and the backend of its clients: both are the same thing seen from two sides.
#[derive(Clone)]
struct Embedded {
    client: Client,
    worker: Arc<Worker>,
    store: Option<Arc<StoreLocation>>,
    /// Of a worker; a visit measures nothing.
    metrics: Option<Arc<Metrics>>,
    holds: HoldMemory,
}

/// The backend of a worker that was started in another way.
pub(crate) fn backend_of(worker: Arc<Worker>) -> Arc<dyn Backend> {
    Arc::new(Embedded { client: worker.client(), worker, store: None, metrics: None, holds: HoldMemory::default() })
}

impl Engine for Embedded {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.clone())
    }
    fn drain(&self, timeout: Duration) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let closed = self.worker.drain(timeout).await;
            if let Err(why) = &closed {
                tracing::error!(error = %why, "the log could not be closed in order; what was acknowledged is durable");
            }
            closed.is_ok()
        })
    }
    fn writing_for(&self) -> Option<Duration> {
        self.worker.writing_for()
    }
    fn stopped(&self) -> BoxFuture<'_, Stopped> {
        Box::pin(async move {
            match self.worker.stopped().await {
                bosun_engine::Health::StorageFailed { why } | bosun_engine::Health::StorageFull { why } => {
                    Stopped::StorageFailed { why }
                }
                bosun_engine::Health::Ready | bosun_engine::Health::Draining | bosun_engine::Health::Stopped => {
                    Stopped::Drained
                }
            }
        })
    }
}

/// A call of the client as a reply.
macro_rules! ask {
    ($self:ident, $client:ident => $call:expr) => {{
        let $client = &$self.client;
        Box::pin(async move { $call.await.map_err(CallError::from) })
    }};
}

/// How often, and how many times at most, a visit looks whether all runs were looked at: five seconds.
const LOOKS: (Duration, u32) = (Duration::from_millis(5), 1_000);

impl Embedded {
    fn known_code(&self) -> KnownCode<'_> {
        let (workflows, activities) = self.worker.code();
        // A visit has not completed its activities.
        KnownCode { workflows, activities: (self.worker.slots().all > 0).then_some(activities) }
    }

    /// A visit asks right after the directory was opened: what waits is known when every run that had something under way
    /// was looked at. A run whose code does not come back is not waited for.
    async fn looked_at(&self) {
        for _ in 0..LOOKS.1 {
            if self.worker.slots().all > 0 || !self.worker.is_recovering() {
                return;
            }
            tokio::time::sleep(LOOKS.0).await;
        }
    }
}

impl Backend for Embedded {
    fn start(&self, request: StartWorkflow) -> Reply<'_, Started> {
        let startable = self.known_code().check_start(&request);
        ask!(self, client => async { startable?; client.start(request).await })
    }
    fn fork(&self, request: ForkRequest) -> Reply<'_, Forked> {
        ask!(self, client => async {
            forks_anew(client, &request).await?;
            client.fork(request).await
        })
    }
    fn reset(&self, request: ResetRequest) -> Reply<'_, ResetDone> {
        ask!(self, client => client.reset(request))
    }
    fn signal(&self, target: Target, signal: SignalRequest) -> Reply<'_, ()> {
        ask!(self, client => client.signal(&target, signal))
    }
    fn signal_with_start(&self, request: StartWorkflow, signal: SignalRequest) -> Reply<'_, Started> {
        let startable = self.known_code().check_start(&request);
        ask!(self, client => async { startable?; client.signal_with_start(request, signal).await })
    }
    fn update(&self, target: Target, update: UpdateRequest) -> Reply<'_, UpdateOutcome> {
        let startable = self.known_code().check_update(&target, &update);
        ask!(self, client => async { startable?; client.update(&target, update).await })
    }
    fn update_with_start(&self, request: StartWorkflow, update: UpdateRequest) -> Reply<'_, (Started, UpdateOutcome)> {
        let startable = self.known_code().check_start(&request);
        ask!(self, client => async { startable?; client.update_with_start(request, update).await })
    }
    fn update_result(&self, target: Target, update: UpdateId) -> Reply<'_, UpdateOutcome> {
        ask!(self, client => client.update_result(&target, &update))
    }
    fn query(&self, target: Target, name: QueryName, input: Payload) -> Reply<'_, Payload> {
        ask!(self, client => client.query(&target, &name, input))
    }
    fn cancel(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        let Attribution { reason, identity, request_id } = because;
        ask!(self, client => client.cancel(&target, reason, identity, request_id))
    }
    fn terminate(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        ask!(self, client => client.terminate(&target, because.reason, because.identity))
    }
    fn pause(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        ask!(self, client => client.pause(&target, because.reason, because.identity))
    }
    fn unpause(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        ask!(self, client => client.unpause(&target, because.reason, because.identity))
    }
    fn pause_activity(&self, target: Target, activity: ActivityId, because: Attribution) -> Reply<'_, ()> {
        ask!(self, client => client.pause_activity(&target, &activity, because.reason, because.identity))
    }
    fn unpause_activity(&self, target: Target, activity: ActivityId, because: Attribution) -> Reply<'_, ()> {
        ask!(self, client => client.unpause_activity(&target, &activity, because.identity))
    }
    fn update_activity(&self, target: Target, activity: ActivityId, asked: ActivityAsked) -> Reply<'_, ()> {
        let ActivityAsked { update, because: Attribution { reason, identity, .. } } = asked;
        Box::pin(async move {
            self.client.update_activity(&target, &activity, update, reason, identity).await.map_err(CallError::from)
        })
    }
    fn complete_activity(&self, token: TaskToken, completion: ActivityCompletion) -> Reply<'_, ()> {
        ask!(self, client => client.complete_activity(token, completion))
    }
    fn describe(&self, target: Target) -> Reply<'_, Description> {
        ask!(self, client => client.describe(&target))
    }
    fn list(&self, request: ListRequest) -> Reply<'_, Vec<RunInfo>> {
        ask!(self, client => client.list(request))
    }
    fn count(&self, query: String) -> Reply<'_, u64> {
        ask!(self, client => client.count(&query))
    }
    fn result(&self, target: Target, request: ResultRequest) -> Reply<'_, Option<RunResult>> {
        ask!(self, client => client.result(&target, request))
    }
    fn history(&self, target: Target, from: EventId, limit: usize) -> Reply<'_, Vec<Event>> {
        ask!(self, client => client.history(&target, from, limit))
    }
    fn turns(&self, target: Target) -> Reply<'_, Vec<Turn>> {
        ask!(self, client => client.turns(&target))
    }
    fn events(&self, target: Target, from: EventId, follow: bool) -> EventStream {
        Box::pin(self.client.events(target, from, follow).map(|event| event.map_err(CallError::from)))
    }
    fn watch(&self, query: String, after: Option<GroupSeq>) -> RunEventStream {
        Box::pin(self.client.watch(query, after).map(|event| event.map_err(CallError::from)))
    }
    fn delete(&self, target: Target) -> Reply<'_, ()> {
        ask!(self, client => client.delete(&target))
    }
    fn verify(&self) -> Reply<'_, Value> {
        Box::pin(async move {
            let mut report = verify_json(&self.client.verify().await?);
            if let Some((file, judged)) = self.store.as_ref().and_then(|store| store.judge()) {
                judge_epoch(&mut report, file, &judged);
            }
            Ok(report)
        })
    }
    fn backup(&self, to: PathBuf) -> Reply<'_, Value> {
        Box::pin(async move {
            if to.exists() && !to.is_dir() {
                let why = "it is a file: name a directory, which is made for the backup".to_owned();
                return Err(Rejection::Invalid { what: to.display().to_string(), why }.into());
            }
            let failed = |why: AtRestError| Rejection::StorageError { why: why.to_string() };
            if let Some(store) = &self.store {
                AtRest::copy_ahead(&store.data, &to).map_err(failed)?;
            }
            let report = self.client.backup(&to).await?;
            if let Some(store) = &self.store {
                AtRest::copy(&store.data, &to).map_err(failed)?;
            }
            Ok(json!({
                "to": to,
                "instance": hex(&report.instance),
                "first_group": report.first_group,
                "last_group": report.last_group,
                "segments": report.segments,
                "blobs": report.blobs,
                "bytes": report.bytes,
            }))
        })
    }
    fn store_info(&self) -> Reply<'_, Value> {
        Box::pin(async move {
            let mut info = info_json(&self.client.store_info().await?);
            if let Some(store) = &self.store {
                store.add_to(&mut info, &self.client.retention());
            }
            Ok(info)
        })
    }
    fn now(&self) -> Timestamp {
        self.client.now()
    }
    fn health(&self) -> Reply<'_, EngineHealth> {
        let health = match self.worker.health() {
            bosun_engine::Health::Ready => EngineHealth::Ready,
            bosun_engine::Health::Draining | bosun_engine::Health::Stopped => EngineHealth::Draining,
            bosun_engine::Health::StorageFull { why } => EngineHealth::StorageFull { why },
            bosun_engine::Health::StorageFailed { why } => EngineHealth::StorageFailed { why },
        };
        Box::pin(async move { Ok(health) })
    }
    fn metrics(&self) -> Reply<'_, String> {
        Box::pin(async move {
            let none = || Rejection::Invalid { what: "metrics".into(), why: "a visit measures nothing".into() };
            let metrics = self.metrics.as_ref().ok_or_else(none)?;
            let (health, worker) = (self.health().await?, self.worker_state().await?);
            let store = info_json(&self.client.store_info().await?);
            let runs = metrics.runs_seen(self, crate::api::guard::now()).await;
            let version = env!("CARGO_PKG_VERSION");
            Ok(metrics.text(&Standing { version, health: &health, worker: &worker, store: &store, runs: &runs }))
        })
    }
    fn holds(&self) -> Option<&HoldMemory> {
        Some(&self.holds)
    }
    fn worker_state(&self) -> Reply<'_, WorkerState> {
        Box::pin(async move {
            self.looked_at().await;
            let seen = self.worker.slots();
            let WorkerSlots { all, busy, waiting, task_queues, running, limits, max_per_second, .. } = seen;
            let queues = queue_states(&running, &limits);
            let max_per_second = max_per_second.map(|rate| rate.to_string());
            let (lost_threads, memory) = (self.worker.lost_threads(), self.worker.memory());
            Ok(WorkerState {
                lost_threads,
                held_runs: self.worker.held_runs(),
                untrusted_snapshots: self.worker.untrusted_snapshots(),
                memory,
                slots: all,
                busy,
                external_slots: seen.external,
                external_busy: seen.external_busy,
                waiting,
                task_queues,
                partial: false,
                queues,
                max_per_second,
            })
        })
    }
    fn queue_shares(&self, queue: TaskQueue, namespaces: Option<BTreeSet<Namespace>>) -> Reply<'_, Vec<WaitingShare>> {
        Box::pin(async move {
            self.looked_at().await;
            let seen = |namespace: &Namespace| namespaces.as_ref().is_none_or(|only| only.contains(namespace));
            Ok(self.worker.waiting_in(&queue, seen, SHARES_MAX))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registries() -> Registries {
        let mut registries = Registries::default();
        registries.workflows = registries.workflows.workflow("greet", |cx, name: String| async move {
            let options = ActivityOptions { start_to_close: Some(Duration::from_secs(5)), ..Default::default() };
            cx.activity::<String>("shout", &name, options).await
        });
        registries.activities.register("shout", |_cx, name: String| async move { Ok(name.to_uppercase()) });
        registries
    }

    fn work() -> Access {
        Access::Work {
            slots: crate::backend::SlotCounts::of(Some(2), None),
            queues: Vec::new(),
            guards: Guards::default(),
        }
    }

    /// What one process leaves behind, the next one carries on: a visit starts the run, a worker runs its activity.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_visit_records_and_a_worker_carries_on() {
        let data = tempfile::tempdir().unwrap();
        let target = Target::workflow("g1".into());
        let wait = |ms| ResultRequest { follow_runs: true, timeout: Some(Duration::from_millis(ms)) };

        let visit = registries().open(data.path(), &Access::Visit { create: true }).await.unwrap();
        let start = StartWorkflow::new("greet".into(), "g1".into()).input(Payload::raw_json("\"ada\""));
        assert!(visit.backend().start(start).await.unwrap().newly_started);
        assert_eq!(visit.backend().result(target.clone(), wait(100)).await, Ok(None), "a visit starts no activity");
        assert!(matches!(registries().open(data.path(), &work()).await, Err(OpenError::Locked(_))));
        assert!(visit.drain(Duration::ZERO).await);
        drop(visit);

        let worker = registries().open(data.path(), &work()).await.unwrap();
        let backend = worker.backend();
        let result = backend.result(target.clone(), wait(5_000)).await.unwrap().unwrap();
        assert_eq!(result.outcome, CloseOutcome::Completed(Payload::raw_json("\"ADA\"")));
        let events: Vec<_> =
            backend.events(target, EventId(1), true).map(|event| event.unwrap().kind.name()).collect().await;
        assert_eq!(events.last(), Some(&"WorkflowExecutionCompleted"));
        assert_eq!(backend.verify().await.unwrap()["ok"], json!(true));
        assert_eq!(backend.store_info().await.unwrap()["runs_closed"], json!(1));
        assert_eq!(backend.health().await, Ok(EngineHealth::Ready));
        assert!(worker.drain(Duration::from_secs(1)).await);
        assert_eq!(worker.stopped().await, Stopped::Drained);
    }

    /// What belongs to a directory is touched only by who holds it, and not by visits.
    #[tokio::test(flavor = "multi_thread")]
    async fn at_open_runs_only_for_the_worker_that_holds_the_directory() {
        let data = tempfile::tempdir().unwrap();
        let opened = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = || opened.load(std::sync::atomic::Ordering::SeqCst);
        let noted = opened.clone();
        let mut registries = registries();
        registries.at_open.push(Arc::new(move |opening, _| {
            assert!(opening.data.is_absolute());
            noted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Ok(())
        }));
        let visit = registries.open(data.path(), &Access::Visit { create: true }).await.unwrap();
        assert!(registries.open(data.path(), &work()).await.is_err());
        assert_eq!(count(), 0);
        visit.drain(Duration::ZERO).await;
        drop(visit);
        let worker = registries.open(data.path(), &work()).await.unwrap();
        assert_eq!(count(), 1);
        worker.drain(Duration::ZERO).await;
    }
}
