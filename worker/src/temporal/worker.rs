//! A worker of a cluster: polls through Core, runs workflow code and activities, and drains.
//!
//! Invariant: every activation and every activity task that Core gives is answered, also while the worker drains, or Core
//! would wait for ever. A run that is told again is told with what its history holds of side effects. One Core worker serves one
//! task queue; they share the threads of workflow code and the slots of none.

use std::sync::Arc;
use std::time::Duration;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use temporalio_client::Connection;
use temporalio_common::protos::coresdk::workflow_activation::WorkflowActivation;
use temporalio_common::protos::coresdk::workflow_activation::remove_from_cache::EvictionReason;
use temporalio_common::protos::coresdk::workflow_activation::workflow_activation_job::Variant as Told;
use temporalio_common::protos::coresdk::workflow_commands::query_result::Variant as Answer;
use temporalio_common::protos::coresdk::workflow_commands::workflow_command::Variant;
use temporalio_common::protos::coresdk::workflow_commands::{QueryResult, QuerySuccess};
use temporalio_common::protos::coresdk::workflow_completion::{
    WorkflowActivationCompletion, workflow_activation_completion::Status,
};
use temporalio_common::worker::{
    VersioningBehavior, WorkerDeploymentOptions, WorkerDeploymentVersion, WorkerTaskTypes,
};
use temporalio_sdk_core::{
    CoreRuntime, PollError, RuntimeOptions, Worker, WorkerConfig, WorkerVersioningStrategy, init_worker,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::activities::ActivityRunner;
use super::convert::failure_out;
use super::external::{External, ExternalError};
use super::history::{card_of, events_of, opened, recorded_of, workflow_of};
use super::run::{Home, Recorded, TaskFailed};
use super::threads::{Work, WorkflowThreads, failed, is_told_again};
use super::{BEAT_EVERY, PAYLOAD_MAX, unfit};
use crate::backend::Deployment;

/// Workflow tasks that are worked on at once, for each queue.
const WORKFLOW_TASKS: usize = 100;
/// Attempts that were told to stop may end for this long.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What a worker has and serves.
pub struct ClusterWorkerOptions {
    /// Where its runs are.
    pub namespace: Namespace,
    /// The queues that it serves; at least one.
    pub queues: Vec<TaskQueue>,
    /// How many attempts run at once, for each queue.
    pub slots: usize,
    /// How many runs stay in memory; 0: every workflow task is told from the beginning of its run.
    pub cached_runs: usize,
    /// The versioned deployment that it is a version of.
    pub deployment: Option<Deployment>,
    /// How long one turn of workflow code may take; a longer one fails its workflow task.
    pub turn_deadline: Duration,
    /// Attempts that start in a second; `None`: no limit.
    pub activities_per_second: Option<f64>,
    /// The workflow code.
    pub workflows: WorkflowRegistry,
    /// The activity functions.
    pub activities: ActivityRegistry,
    /// Code around activities; the first is the outermost.
    pub interceptors: Vec<Arc<dyn Interceptor>>,
    /// Who it is, in histories.
    pub identity: Identity,
}

/// A worker that polls.
pub struct ClusterWorker {
    queues: Vec<ServedQueue>,
    /// Why it has stopped, once it has.
    ended: watch::Receiver<Option<String>>,
    /// Core's own tasks live as long as this.
    _runtime: CoreRuntime,
}

struct ServedQueue {
    core: Arc<Worker>,
    activities: ActivityRunner,
    loops: std::sync::Mutex<Vec<JoinHandle<()>>>,
}

impl ClusterWorker {
    /// Begins to poll. Call it on a tokio runtime.
    ///
    /// # Errors
    /// There is no such namespace, or Core refuses what it is to do: a text for people.
    pub async fn start(connection: &Connection, options: ClusterWorkerOptions) -> Result<ClusterWorker, String> {
        Self::start_with(connection, options, External::default()).await
    }

    /// The same, with a place for large payloads.
    pub(super) async fn start_with(
        connection: &Connection,
        options: ClusterWorkerOptions,
        external: External,
    ) -> Result<ClusterWorker, String> {
        let runtime = RuntimeOptions::builder().heartbeat_interval(None).build()?;
        let runtime = CoreRuntime::new_assume_tokio(runtime).map_err(|why| why.to_string())?;
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let (forget, forgotten) = mpsc::unbounded_channel();
        let forget = move |run_id: &str| _ = forget.send(run_id.to_owned());
        let threads = WorkflowThreads::start(&options.workflows, cores, options.turn_deadline, forget);
        let threads = Arc::new(threads.map_err(|why| why.to_string())?);
        let (activities, interceptors) = (Arc::new(options.activities.clone()), Arc::new(options.interceptors.clone()));
        let (say, ended) = watch::channel(None);
        let say = Arc::new(say);
        let mut queues = Vec::new();
        for queue in &options.queues {
            let core = init_worker(&runtime, config_of(&options, queue)?, connection.clone());
            let core = Arc::new(core.map_err(|why| why.to_string())?);
            core.validate().await.map_err(|why| format!("the namespace {}: {why}", options.namespace))?;
            let home = Home { namespace: options.namespace.clone(), task_queue: queue.clone() };
            let connection = connection.clone();
            let teller =
                Teller { core: core.clone(), threads: threads.clone(), home, connection, external: external.clone() };
            let told = tell_runs(teller, say.clone());
            let (activities, interceptors) = (activities.clone(), interceptors.clone());
            let runner = ActivityRunner::new(core.clone(), activities, interceptors, queue.clone(), say.clone());
            let runner = runner.with_payloads_in(external.clone());
            let loops = vec![tokio::spawn(told), tokio::spawn(runner.clone().run())];
            queues.push(ServedQueue { core, activities: runner, loops: loops.into() });
        }
        let cores = queues.iter().map(|queue| queue.core.clone()).collect();
        tokio::spawn(forget_runs(cores, forgotten));
        Ok(ClusterWorker { queues, ended, _runtime: runtime })
    }

    /// Stops polling and lets what runs end for at most `patience`. True: everything had ended.
    pub async fn drain(&self, patience: Duration) -> bool {
        self.queues.iter().for_each(|queue| queue.core.initiate_shutdown());
        if tokio::time::timeout(patience, self.all_ended()).await.is_ok() {
            return true;
        }
        self.queues.iter().for_each(|queue| queue.activities.cancel_all());
        tokio::time::timeout(LAST_WORDS, self.all_ended()).await.is_ok()
    }

    async fn all_ended(&self) {
        for queue in &self.queues {
            queue.activities.idle().await;
            let mut loops = std::mem::take(&mut *queue.loops.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
            for one in &mut loops {
                let _ = one.await;
            }
            queue.core.shutdown().await;
        }
    }

    /// Resolves when it has stopped by itself, with the reason.
    pub async fn stopped(&self) -> String {
        let mut ended = self.ended.clone();
        let why = ended.wait_for(Option::is_some).await.map(|why| why.clone().unwrap_or_default()).ok();
        match why {
            Some(why) => why,
            // It is being drained; nobody says anything any more.
            None => std::future::pending().await,
        }
    }

    /// How many attempts run, and how many may.
    pub fn busy(&self) -> usize {
        self.queues.iter().map(|queue| queue.activities.running()).sum()
    }
}

fn config_of(options: &ClusterWorkerOptions, queue: &TaskQueue) -> Result<WorkerConfig, String> {
    WorkerConfig::builder()
        .namespace(options.namespace.to_string())
        .task_queue(queue.to_string())
        .client_identity_override(options.identity.to_string())
        .max_cached_workflows(options.cached_runs)
        .max_outstanding_workflow_tasks(WORKFLOW_TASKS)
        .max_outstanding_activities(options.slots.max(1))
        .max_outstanding_local_activities(WORKFLOW_TASKS)
        .max_heartbeat_throttle_interval(BEAT_EVERY)
        .maybe_max_worker_activities_per_second(options.activities_per_second)
        .task_types(WorkerTaskTypes {
            enable_workflows: true,
            enable_local_activities: true,
            enable_remote_activities: options.slots > 0,
            enable_nexus: false,
        })
        .versioning_strategy(versioning(options))
        .build()
}

/// The build of the code is the version.
fn versioning(options: &ClusterWorkerOptions) -> WorkerVersioningStrategy {
    let build_id = options.workflows.build_id().to_string();
    let Some(deployment) = &options.deployment else { return WorkerVersioningStrategy::None { build_id } };
    let version =
        WorkerDeploymentVersion::builder().deployment_name(deployment.name.clone()).build_id(build_id).build();
    let behavior = match deployment.auto_upgrade {
        true => VersioningBehavior::AutoUpgrade,
        false => VersioningBehavior::Pinned,
    };
    let deployed = WorkerDeploymentOptions::new(version).use_worker_versioning(true);
    WorkerVersioningStrategy::WorkerDeploymentBased(deployed.default_versioning_behavior(behavior).build())
}

/// What tells the runs of one queue what the cluster says.
#[derive(Clone)]
struct Teller {
    core: Arc<Worker>,
    threads: Arc<WorkflowThreads>,
    home: Home,
    connection: Connection,
    external: External,
}

/// Tells runs what the cluster says until Core has shut down.
async fn tell_runs(teller: Teller, say: Arc<watch::Sender<Option<String>>>) {
    loop {
        match teller.core.poll_workflow_activation().await {
            Ok(activation) => {
                let teller = teller.clone();
                tokio::spawn(async move { teller.tell(activation).await });
            }
            Err(PollError::ShutDown) => return,
            Err(why) => {
                let queue = &teller.home.task_queue;
                say.send_replace(Some(format!("the cluster gives no more work for the queue {queue}: {why}")));
                return;
            }
        }
    }
}

impl Teller {
    async fn tell(&self, activation: WorkflowActivation) {
        let run_id = activation.run_id.clone();
        if diverged(&activation) {
            tokio::spawn(show_card(self.clone(), run_id.clone()));
        }
        let completion = match self.told(activation).await {
            Ok(completion) => completion,
            Err(why) => failed(run_id, why),
        };
        complete(&self.core, completion).await;
    }

    /// What the code asks for, as it can be sent.
    async fn told(&self, mut activation: WorkflowActivation) -> Result<WorkflowActivationCompletion, TaskFailed> {
        let run_id = activation.run_id.clone();
        let external = |why: ExternalError| TaskFailed::external(&run_id, &why);
        let recorded = self.before(&activation).await?;
        self.external.open(&mut activation).await.map_err(external)?;
        // What is asked for again is in history: nothing of it is sent.
        let is_sent = !activation.is_replaying || asks(&activation);
        let (done, answer) = oneshot::channel();
        self.threads.give(Work { home: self.home.clone(), activation, recorded, done });
        let lost = |_| TaskFailed::lost("the thread of the workflow code has ended".to_owned());
        let mut completion = answer.await.map_err(lost)?;
        if !is_sent {
            return Ok(completion);
        }
        if !self.external.has_store() {
            refuse_large_answers(&mut completion);
        }
        self.external.seal(completion).await.map_err(external)
    }

    /// What the history holds already of a run that is told from its beginning. Code that does not fit it is told nothing.
    async fn before(&self, activation: &WorkflowActivation) -> Result<Recorded, TaskFailed> {
        if !is_told_again(activation) {
            return Ok(Recorded::default());
        }
        let workflow_id = activation.jobs.iter().find_map(|job| match &job.variant {
            Some(Told::InitializeWorkflow(init)) => Some(init.workflow_id.as_str()),
            _ => None,
        });
        let workflow_id = workflow_id.unwrap_or_default();
        let events = events_of(&self.connection, &self.home.namespace, workflow_id, &activation.run_id).await;
        let events = events.map_err(|why| TaskFailed::unread_history(why.message()))?;
        match unfit::card(&self.threads, &self.home, &self.external, workflow_id, &events).await {
            Some(card) => Err(TaskFailed::diverged(&card)),
            None => {
                let recorded = recorded_of(&self.external, &events).await;
                recorded.map_err(|why| TaskFailed::external(&activation.run_id, &why))
            }
        }
    }
}

/// Whether somebody asks the run something.
fn asks(activation: &WorkflowActivation) -> bool {
    activation.jobs.iter().any(|job| matches!(job.variant, Some(Told::QueryWorkflow(_))))
}

/// An answer that no cluster takes fails the query, not the workflow task that it comes with.
fn refuse_large_answers(completion: &mut WorkflowActivationCompletion) {
    let Some(Status::Successful(done)) = &mut completion.status else { return };
    for command in &mut done.commands {
        if let Some(Variant::RespondToQuery(QueryResult { variant: Some(answer), .. })) = &mut command.variant
            && let Answer::Succeeded(QuerySuccess { response: Some(response) }) = answer
            && response.data.len() > PAYLOAD_MAX
        {
            let why = ExternalError::TooLarge { length: response.data.len(), limit: PAYLOAD_MAX };
            *answer = Answer::Failed(failure_out(&why.failure()));
        }
    }
}

async fn complete(core: &Worker, completion: WorkflowActivationCompletion) {
    let run_id = completion.run_id.clone();
    if let Err(why) = core.complete_workflow_activation(completion).await {
        tracing::error!(run_id, %why, "a workflow task could not be completed");
    }
}

/// Runs that went with the thread of other code are told from their beginning.
async fn forget_runs(cores: Vec<Arc<Worker>>, mut forgotten: mpsc::UnboundedReceiver<String>) {
    while let Some(run_id) = forgotten.recv().await {
        // It is in the cache of one of them; the others have no such run.
        cores.iter().for_each(|core| core.request_workflow_eviction(&run_id));
    }
}

/// Whether Core forgets a run because its code does not fit its history.
pub(super) fn diverged(activation: &WorkflowActivation) -> bool {
    activation.jobs.iter().any(|job| match &job.variant {
        Some(Told::RemoveFromCache(evicted)) => evicted.reason() == EvictionReason::Nondeterminism,
        _ => false,
    })
}

/// Core has failed the workflow task in its own words; ours go to the log.
async fn show_card(teller: Teller, run_id: String) {
    let Teller { threads, home, connection, external, .. } = teller;
    let Some(workflow_id) = workflow_of(&connection, &home.namespace, &run_id).await else { return };
    let Ok(events) = events_of(&connection, &home.namespace, &workflow_id, &run_id).await else { return };
    let Ok(events) = opened(&external, events).await else { return };
    let (namespace, registry) = (home.namespace, threads.registry());
    // It runs workflow code, and that away from this thread.
    let card = tokio::task::spawn_blocking(move || card_of(&namespace, &events, &registry)).await;
    if let Ok(Some(card)) = card {
        tracing::error!(workflow_id, run_id, "the workflow code does not fit its history\n{card}");
    }
}
