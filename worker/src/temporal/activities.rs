//! Activity tasks: the functions of the App, run for a cluster.
//!
//! Invariant: an attempt is completed once, with what the function said; a panic is a failure, a result that no cluster takes
//! is refused by name before it is sent. Retries and timeouts are the cluster's. A function hears of its cancellation, and one
//! that ignores it is left behind after a grace, as in the embedded engine.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bosun_engine::*;
use futures_util::FutureExt;
use temporalio_common::protos::coresdk::activity_result::{
    ActivityExecutionResult, Cancellation, Failure as Failed, Success, WillCompleteAsync,
    activity_execution_result::Status,
};
use temporalio_common::protos::coresdk::activity_task::{ActivityTask as Told, Start, activity_task::Variant};
use temporalio_common::protos::coresdk::{ActivityHeartbeat, ActivityTaskCompletion};
use temporalio_sdk_core::Worker;
use tokio::sync::{Notify, watch};

use super::convert::*;
use super::history::activity_number;
use super::{PAYLOAD_MAX, SIDE_EFFECT};

/// How long a function may ignore its cancellation.
const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// The attempts that run, by their tokens.
#[derive(Default)]
struct Running(Mutex<BTreeMap<Vec<u8>, watch::Sender<bool>>>);

impl Running {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Vec<u8>, watch::Sender<bool>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What all attempts of one queue share.
#[derive(Clone)]
pub(super) struct ActivityRunner {
    worker: Arc<Worker>,
    registry: Arc<ActivityRegistry>,
    interceptors: Arc<Vec<Arc<dyn Interceptor>>>,
    queue: TaskQueue,
    running: Arc<Running>,
    /// One permit is kept, so that an end between a look and a wait is not missed.
    ended: Arc<Notify>,
}

impl ActivityRunner {
    pub(super) fn new(
        worker: Arc<Worker>,
        registry: Arc<ActivityRegistry>,
        interceptors: Arc<Vec<Arc<dyn Interceptor>>>,
        queue: TaskQueue,
    ) -> Self {
        ActivityRunner { worker, registry, interceptors, queue, running: Arc::default(), ended: Arc::default() }
    }

    /// Runs what the cluster gives until Core has shut down.
    pub(super) async fn run(self) {
        loop {
            match self.worker.poll_activity_task().await {
                Ok(Told { task_token, variant: Some(Variant::Start(start)) }) => self.start(task_token, start),
                Ok(Told { task_token, variant: Some(Variant::Cancel(_)) }) => {
                    if let Some(cancel) = self.running.lock().get(&task_token) {
                        cancel.send_replace(true);
                    }
                }
                Ok(Told { variant: None, .. }) => {}
                Err(why) => {
                    tracing::debug!(%why, "no more activity tasks");
                    return;
                }
            }
        }
    }

    /// How many attempts run.
    pub(super) fn running(&self) -> usize {
        self.running.lock().len()
    }

    /// Tells all attempts to stop: the worker is leaving.
    pub(super) fn cancel_all(&self) {
        self.running.lock().values().for_each(|cancel| _ = cancel.send_replace(true));
    }

    /// Resolves when no attempt runs.
    pub(super) async fn idle(&self) {
        while self.running() > 0 {
            self.ended.notified().await;
        }
    }

    fn start(&self, token: Vec<u8>, start: Start) {
        let this = self.clone();
        if start.is_local && start.activity_type == SIDE_EFFECT {
            let result = start.input.into_iter().next();
            tokio::spawn(async move { this.complete(token, Status::Completed(Success { result })).await });
            return;
        }
        let (cancel, canceled) = watch::channel(false);
        self.running.lock().insert(token.clone(), cancel);
        tokio::spawn(async move {
            let status = match task_of(start, &this.queue) {
                Ok(task) => this.attempt(token.clone(), task, canceled).await,
                Err(why) => failed(&Failure::application("InvalidActivity", why.to_string()).non_retryable()),
            };
            // Counted until it is told: a drain waits for that.
            this.complete(token.clone(), status).await;
            this.running.lock().remove(&token);
            this.ended.notify_one();
        });
    }

    async fn complete(&self, task_token: Vec<u8>, status: Status) {
        let result = Some(ActivityExecutionResult { status: Some(status) });
        if let Err(why) = self.worker.complete_activity_task(ActivityTaskCompletion { task_token, result }).await {
            tracing::error!(%why, "an activity task could not be completed");
        }
    }

    async fn attempt(&self, token: Vec<u8>, task: ActivityTask, canceled: watch::Receiver<bool>) -> Status {
        let task = Arc::new(task);
        let sink = Arc::new(Sink { worker: self.worker.clone(), token });
        let context = ActivityContext::new(task.clone(), canceled.clone(), sink).with_states_of(&self.registry);
        // Made inside: making it runs user code.
        let function =
            AssertUnwindSafe(async { self.registry.attempt(&task, context, &self.interceptors).await }).catch_unwind();
        let mut heard = canceled.clone();
        let overdue = async move {
            if heard.wait_for(|canceled| *canceled).await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(CANCEL_GRACE).await;
        };
        let ended = tokio::select! {
            biased;
            ended = function => ended.unwrap_or_else(|panic| Err(ActivityError::Failure(panicked(&*panic)))),
            () = overdue => Err(ActivityError::Canceled(None)),
        };
        let was_canceled = *canceled.borrow();
        match ended {
            Ok(result) if result.len() > PAYLOAD_MAX => failed(&too_large(result.len())),
            Ok(result) => Status::Completed(Success { result: Some(payload_out(&result)) }),
            Err(ActivityError::WillCompleteLater) => Status::WillCompleteAsync(WillCompleteAsync {}),
            // Nobody asked for it: a cluster takes no cancellation then.
            Err(ActivityError::Canceled(_)) if !was_canceled => failed(&Failure::application(
                "Canceled",
                "the activity gave up as canceled, and nobody had canceled it",
            )),
            Err(ActivityError::Canceled(details)) => {
                let kind = FailureKind::Canceled { details };
                let failure = Failure { message: "activity canceled".into(), kind, cause: None };
                Status::Cancelled(Cancellation { failure: Some(failure_out(&failure)) })
            }
            Err(ActivityError::Failure(failure)) => failed(&failure),
        }
    }
}

fn failed(failure: &Failure) -> Status {
    Status::Failed(Failed { failure: Some(failure_out(failure)), ..Default::default() })
}

fn too_large(length: usize) -> Failure {
    let message = format!(
        "the result has {length} bytes, and a cluster takes {PAYLOAD_MAX} at most; keep the data elsewhere and give a reference to it"
    );
    Failure::application(FAILURE_PAYLOAD_TOO_LARGE, message).non_retryable()
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    Failure::panic(text.unwrap_or_else(|| "a panic without a message".to_owned()))
}

/// The task as functions know it.
fn task_of(start: Start, queue: &TaskQueue) -> Result<ActivityTask, InvalidId> {
    let execution = start.workflow_execution.unwrap_or_default();
    let run = if execution.run_id.is_empty() { &start.run_id } else { &execution.run_id };
    let scheduled_at = instant_in(start.scheduled_time).unwrap_or_default();
    let ends = |from: Option<Timestamp>, period: Option<Duration>| Some(from?.plus(period?));
    let deadline = [
        ends(instant_in(start.started_time), period_in(start.start_to_close_timeout)),
        ends(Some(scheduled_at), period_in(start.schedule_to_close_timeout)),
    ];
    let seq = activity_number(Some(&start.header_fields), &start.activity_id);
    // An activity by itself has no workflow; it is its own.
    let workflow_id = if execution.workflow_id.is_empty() { &start.activity_id } else { &execution.workflow_id };
    let workflow_type = if start.workflow_type.is_empty() { "activity" } else { &start.workflow_type };
    Ok(ActivityTask {
        namespace: Namespace::new(&start.workflow_namespace)?,
        workflow_id: WorkflowId::new(workflow_id)?,
        workflow_type: WorkflowType::new(workflow_type)?,
        run_id: run.parse()?,
        seq,
        activity_type: ActivityType::new(&start.activity_type)?,
        task_queue: queue.clone(),
        attempt: Attempt(start.attempt.max(1)),
        input: payloads_in(start.input),
        heartbeat_details: (!start.heartbeat_details.is_empty()).then(|| payloads_in(start.heartbeat_details)),
        scheduled_at,
        deadline: deadline.into_iter().flatten().min(),
        heartbeat_timeout: period_in(start.heartbeat_timeout),
        activity_id: ActivityId::new(start.activity_id)?,
    })
}

/// Core throttles what goes through here.
struct Sink {
    worker: Arc<Worker>,
    token: Vec<u8>,
}

impl HeartbeatSink for Sink {
    fn heartbeat(&self, _: TaskToken, details: Option<Payload>) {
        let details = details.iter().map(payload_out).collect();
        self.worker.record_activity_heartbeat(ActivityHeartbeat { task_token: self.token.clone(), details });
    }
}
