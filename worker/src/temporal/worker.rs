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
use temporalio_common::worker::{
    VersioningBehavior, WorkerDeploymentOptions, WorkerDeploymentVersion, WorkerTaskTypes,
};
use temporalio_sdk_core::{
    CoreRuntime, PollError, RuntimeOptions, Worker, WorkerConfig, WorkerVersioningStrategy, init_worker,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::activities::ActivityRunner;
use super::history::{card_of, events_of, recorded, workflow_of};
use super::run::{Home, Recorded, TaskFailed};
use super::threads::{Work, WorkflowThreads, failed, is_told_again};
use super::unfit;
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
            let told = tell_runs(core.clone(), threads.clone(), home, connection.clone(), say.clone());
            let (activities, interceptors) = (activities.clone(), interceptors.clone());
            let runner = ActivityRunner::new(core.clone(), activities, interceptors, queue.clone(), say.clone());
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

/// Tells runs what the cluster says until Core has shut down.
async fn tell_runs(
    core: Arc<Worker>,
    threads: Arc<WorkflowThreads>,
    home: Home,
    connection: Connection,
    say: Arc<watch::Sender<Option<String>>>,
) {
    loop {
        match core.poll_workflow_activation().await {
            Ok(activation) => {
                let (core, threads, home) = (core.clone(), threads.clone(), home.clone());
                let connection = connection.clone();
                tokio::spawn(async move { tell(&core, &threads, home, &connection, activation).await });
            }
            Err(PollError::ShutDown) => return,
            Err(why) => {
                say.send_replace(Some(format!(
                    "the cluster gives no more work for the queue {}: {why}",
                    home.task_queue
                )));
                return;
            }
        }
    }
}

async fn tell(
    core: &Worker,
    threads: &WorkflowThreads,
    home: Home,
    connection: &Connection,
    activation: WorkflowActivation,
) {
    let run_id = activation.run_id.clone();
    if diverged(&activation) {
        tokio::spawn(show_card(threads.registry(), home.clone(), connection.clone(), run_id.clone()));
    }
    let recorded = match before(threads, &home, connection, &activation).await {
        Ok(recorded) => recorded,
        Err(why) => return complete(core, failed(run_id, why)).await,
    };
    let (done, answer) = oneshot::channel();
    threads.give(Work { home, activation, recorded, done });
    let lost = |_| failed(run_id, TaskFailed::lost("the thread of the workflow code has ended".to_owned()));
    let completion = answer.await.unwrap_or_else(lost);
    complete(core, completion).await;
}

async fn complete(
    core: &Worker,
    completion: temporalio_common::protos::coresdk::workflow_completion::WorkflowActivationCompletion,
) {
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
async fn show_card(registry: Arc<WorkflowRegistry>, home: Home, connection: Connection, run_id: String) {
    let Some(workflow_id) = workflow_of(&connection, &home.namespace, &run_id).await else { return };
    let Ok(events) = events_of(&connection, &home.namespace, &workflow_id, &run_id).await else { return };
    let namespace = home.namespace.clone();
    // It runs workflow code, and that away from this thread.
    let card = tokio::task::spawn_blocking(move || card_of(&namespace, &events, &registry)).await;
    if let Ok(Some(card)) = card {
        tracing::error!(workflow_id, run_id, "the workflow code does not fit its history\n{card}");
    }
}

/// What the history holds already of a run that is told from its beginning. Code that does not fit it is told nothing.
async fn before(
    threads: &WorkflowThreads,
    home: &Home,
    connection: &Connection,
    activation: &WorkflowActivation,
) -> Result<Recorded, TaskFailed> {
    if !is_told_again(activation) {
        return Ok(Recorded::default());
    }
    let workflow_id = activation.jobs.iter().find_map(|job| match &job.variant {
        Some(Told::InitializeWorkflow(init)) => Some(init.workflow_id.as_str()),
        _ => None,
    });
    let workflow_id = workflow_id.unwrap_or_default();
    let events = events_of(connection, &home.namespace, workflow_id, &activation.run_id).await;
    let events = events.map_err(|why| TaskFailed::unread_history(why.message()))?;
    match unfit::card(threads, home, workflow_id, &events).await {
        Some(card) => Err(TaskFailed::diverged(&card)),
        None => Ok(recorded(&events)),
    }
}
