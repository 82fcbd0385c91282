//! The threads of workflow code: each holds the runs that are in the cache and belong to it.
//!
//! Invariant: a run stays on one thread for as long as it is cached, because drivers cannot move; it is forgotten when Core
//! says so, and told from its beginning when it comes back. Workflow code runs on these threads and nowhere else; they have no
//! tokio context, as in the embedded engine.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use bosun_engine::RunId;
use bosun_engine::workflow::WorkflowRegistry;
use temporalio_common::protos::coresdk::workflow_activation::WorkflowActivation;
use temporalio_common::protos::coresdk::workflow_activation::workflow_activation_job::Variant as Told;
use temporalio_common::protos::coresdk::workflow_commands::WorkflowCommand;
use temporalio_common::protos::coresdk::workflow_completion::{
    Failure as Failed, Success, WorkflowActivationCompletion, workflow_activation_completion::Status,
};
use temporalio_common::protos::temporal::api::enums::v1::WorkflowTaskFailedCause;
use tokio::sync::oneshot;

use super::convert::failure_out;
use super::run::{ClusterRun, Home, Recorded, TaskFailed};

/// One activation, with what is needed to tell it.
pub(super) struct Work {
    pub(super) home: Home,
    pub(super) activation: WorkflowActivation,
    /// Of a run that is told from its beginning.
    pub(super) recorded: Recorded,
    pub(super) done: oneshot::Sender<WorkflowActivationCompletion>,
}

/// The threads; they end when this is dropped and all work is done.
pub(super) struct WorkflowThreads {
    registry: Arc<WorkflowRegistry>,
    senders: Vec<mpsc::Sender<Work>>,
    _threads: Vec<JoinHandle<()>>,
}

impl WorkflowThreads {
    pub(super) fn start(registry: &WorkflowRegistry, count: usize) -> std::io::Result<Self> {
        let (mut senders, mut threads) = (Vec::new(), Vec::new());
        for index in 0..count.max(1) {
            let (sender, receiver) = mpsc::channel::<Work>();
            let registry = registry.clone();
            let thread = std::thread::Builder::new().name(format!("bosun-workflow-{index}"));
            threads.push(thread.spawn(move || {
                let mut runs = CachedRuns { registry, runs: BTreeMap::new() };
                for work in receiver {
                    runs.work(work);
                }
            })?);
            senders.push(sender);
        }
        Ok(WorkflowThreads { registry: Arc::new(registry.clone()), senders, _threads: threads })
    }

    /// The code.
    pub(super) fn registry(&self) -> Arc<WorkflowRegistry> {
        self.registry.clone()
    }

    /// Gives work to the thread of its run. An error: the thread has ended.
    pub(super) fn give(&self, work: Work) -> Result<(), String> {
        let of =
            |text: &str| text.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
        let at = of(&work.activation.run_id) % self.senders.len();
        self.senders[at].send(work).map_err(|_| "a workflow thread has ended".to_owned())
    }
}

struct CachedRuns {
    registry: WorkflowRegistry,
    runs: BTreeMap<String, ClusterRun>,
}

impl CachedRuns {
    fn work(&mut self, work: Work) {
        let Work { home, activation, recorded, done } = work;
        let run_id = activation.run_id.clone();
        let evicted = activation.jobs.iter().any(|job| matches!(job.variant, Some(Told::RemoveFromCache(_))));
        let told = if evicted { Ok(Vec::new()) } else { self.tell(&home, activation, recorded) };
        // A task that failed is tried again from the beginning.
        if evicted || told.is_err() {
            self.runs.remove(&run_id);
        }
        // Nobody waits for the answer of a worker that has left.
        let _ = done.send(completion(run_id, told));
    }

    fn tell(
        &mut self,
        home: &Home,
        mut activation: WorkflowActivation,
        recorded: Recorded,
    ) -> Result<Vec<WorkflowCommand>, TaskFailed> {
        let mut first = None;
        if let Some(init) = take_init(&mut activation) {
            let run_id: RunId = activation.run_id.parse().map_err(|_| TaskFailed::unusable_run(&activation.run_id))?;
            let (run, started) = ClusterRun::new(&self.registry, home, run_id, init, recorded)?;
            self.runs.insert(activation.run_id.clone(), run);
            first = Some(started);
        }
        let run = self.runs.get_mut(&activation.run_id);
        run.ok_or_else(|| TaskFailed::unknown_run(&activation.run_id))?.activate(activation, first)
    }
}

/// The start of the run, if the activation brings it; the job stays in its place.
fn take_init(
    activation: &mut WorkflowActivation,
) -> Option<temporalio_common::protos::coresdk::workflow_activation::InitializeWorkflow> {
    activation.jobs.iter_mut().find_map(|job| match &mut job.variant {
        Some(Told::InitializeWorkflow(init)) => Some(std::mem::take(init)),
        _ => None,
    })
}

/// Whether a run is told from a beginning that is in history already.
pub(super) fn is_told_again(activation: &WorkflowActivation) -> bool {
    activation.is_replaying
        && activation.jobs.iter().any(|job| matches!(job.variant, Some(Told::InitializeWorkflow(_))))
}

/// A task that failed before the code was told anything.
pub(super) fn failed(run_id: String, why: TaskFailed) -> WorkflowActivationCompletion {
    completion(run_id, Err(why))
}

fn completion(run_id: String, told: Result<Vec<WorkflowCommand>, TaskFailed>) -> WorkflowActivationCompletion {
    let status = match told {
        Ok(commands) => Status::Successful(Success::from(commands)),
        Err(why) => {
            tracing::error!(run_id, "the workflow task failed, and is tried again: {}", why.failure.message);
            let cause = match why.diverged {
                true => WorkflowTaskFailedCause::NonDeterministicError,
                false => WorkflowTaskFailedCause::WorkflowWorkerUnhandledFailure,
            };
            Status::Failed(Failed { failure: Some(failure_out(&why.failure)), force_cause: cause.into() })
        }
    };
    WorkflowActivationCompletion { run_id, status: Some(status), ..Default::default() }
}
