//! Activity tasks: the functions of the App, run for a cluster.
//!
//! Invariant: an attempt is completed once, with what the function said; a panic is a failure, a result that no cluster takes
//! is refused by name before it is sent. Only what somebody has canceled is told as canceled. Retries and timeouts are the cluster's. A function hears of its cancellation, and one
//! that ignores it is left behind after a grace, as in the embedded engine.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bosun_engine::*;
use futures_util::FutureExt;
use temporalio_common::protos::coresdk::activity_result::{
    ActivityExecutionResult, ActivityTaskFailedCause as Cause, Cancellation, Failure as Failed, Success,
    WillCompleteAsync, activity_execution_result::Status,
};
use temporalio_common::protos::coresdk::activity_task::{
    ActivityCancelReason, ActivityTask as Told, Start, activity_task::Variant,
};
use temporalio_common::protos::coresdk::{ActivityHeartbeat, ActivityTaskCompletion};
use temporalio_common::protos::temporal::api::common::v1 as common;
use temporalio_common::protos::temporal::api::common::v1::WorkflowExecution;
use temporalio_sdk_core::{PollError, Worker};
use tokio::sync::{Notify, watch};

use super::convert::*;
use super::external::{External, ExternalError};
use super::history::activity_number;
use super::{BEAT_EVERY, BEATS, SIDE_EFFECT, WORKER_SHUTDOWN};

/// How long a function may ignore its cancellation.
const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// The same where the worker leaves.
const LEAVING_GRACE: Duration = Duration::from_secs(1);

/// The longest time between two tries to keep a result.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Why an attempt is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptStop {
    /// Somebody asked for it, or nobody waits for it any more.
    Asked,
    /// The worker leaves.
    Shutdown,
    Paused,
    Reset,
}

impl AttemptStop {
    fn of(reason: ActivityCancelReason) -> AttemptStop {
        match reason {
            ActivityCancelReason::NotFound | ActivityCancelReason::Cancelled | ActivityCancelReason::TimedOut => {
                AttemptStop::Asked
            }
            ActivityCancelReason::WorkerShutdown => AttemptStop::Shutdown,
            ActivityCancelReason::Paused => AttemptStop::Paused,
            ActivityCancelReason::Reset => AttemptStop::Reset,
        }
    }
}

/// An attempt that runs.
struct ClusterAttempt {
    cancel: watch::Sender<bool>,
    stop: Option<AttemptStop>,
}

/// The attempts that run, by their tokens.
#[derive(Default)]
struct Running(Mutex<BTreeMap<Vec<u8>, ClusterAttempt>>);

impl Running {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Vec<u8>, ClusterAttempt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn why(&self, token: &[u8]) -> Option<AttemptStop> {
        self.lock().get(token)?.stop
    }
}

impl ClusterAttempt {
    /// What somebody asks for counts more than that the worker leaves.
    fn stop(&mut self, why: AttemptStop) {
        if why == AttemptStop::Asked || self.stop.is_none() {
            self.stop = Some(why);
        }
        self.cancel.send_replace(true);
    }
}

/// What all attempts of one queue share.
#[derive(Clone)]
pub(super) struct ActivityRunner {
    worker: Arc<Worker>,
    registry: Arc<ActivityRegistry>,
    interceptors: Arc<Vec<Arc<dyn Interceptor>>>,
    queue: TaskQueue,
    /// Where it is told that the worker has stopped by itself.
    say: Arc<watch::Sender<Option<String>>>,
    running: Arc<Running>,
    external: External,
    /// One permit is kept, so that an end between a look and a wait is not missed.
    ended: Arc<Notify>,
}

impl ActivityRunner {
    pub(super) fn new(
        worker: Arc<Worker>,
        registry: Arc<ActivityRegistry>,
        interceptors: Arc<Vec<Arc<dyn Interceptor>>>,
        queue: TaskQueue,
        say: Arc<watch::Sender<Option<String>>>,
    ) -> Self {
        let (external, running, ended) = (External::default(), Arc::default(), Arc::default());
        ActivityRunner { worker, registry, interceptors, queue, say, running, external, ended }
    }

    /// What is too large for the cluster goes there.
    pub(super) fn with_payloads_in(self, external: External) -> Self {
        ActivityRunner { external, ..self }
    }

    /// Runs what the cluster gives until Core has shut down.
    pub(super) async fn run(self) {
        loop {
            match self.worker.poll_activity_task().await {
                Ok(Told { task_token, variant: Some(Variant::Start(start)) }) => self.start(task_token, start),
                Ok(Told { task_token, variant: Some(Variant::Cancel(cancel)) }) => {
                    if let Some(attempt) = self.running.lock().get_mut(&task_token) {
                        attempt.stop(AttemptStop::of(cancel.reason()));
                    }
                }
                Ok(Told { variant: None, .. }) => {}
                Err(PollError::ShutDown) => return,
                Err(why) => {
                    let why = format!("the cluster gives no more activities for the queue {}: {why}", self.queue);
                    tracing::error!("{why}");
                    self.say.send_replace(Some(why));
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
        self.running.lock().values_mut().for_each(|attempt| attempt.stop(AttemptStop::Shutdown));
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
        self.running.lock().insert(token.clone(), ClusterAttempt { cancel, stop: None });
        tokio::spawn(async move {
            let status = this.carry_out(token.clone(), start, canceled).await;
            // Counted until it is told: a drain waits for that.
            this.complete(token.clone(), status).await;
            this.running.lock().remove(&token);
            this.ended.notify_one();
        });
    }

    /// The attempt, from what the cluster says of it to what the cluster is told.
    async fn carry_out(&self, token: Vec<u8>, mut start: Start, canceled: watch::Receiver<bool>) -> Status {
        let run = start.workflow_execution.clone().unwrap_or_default();
        if let Err(why) = self.external.open(&mut start).await {
            return not_had(&run, &why);
        }
        let beaten = start.header_fields.contains_key(BEATS);
        let ended = match task_of(start, &self.queue) {
            Ok(task) => self.attempt(token.clone(), task, beaten, canceled.clone()).await,
            Err(why) => failed(&Failure::application("InvalidActivity", why.to_string()).non_retryable()),
        };
        self.kept(&run, ActivityExecutionResult { status: Some(ended) }, canceled).await
    }

    /// The outcome as the cluster takes it. What was done is done: where the directory of large payloads has no room, or is not
    /// mounted, it is waited for, and nothing is done again for that. Whoever is canceled, or leaves, waits no longer.
    async fn kept(
        &self,
        run: &WorkflowExecution,
        outcome: ActivityExecutionResult,
        mut canceled: watch::Receiver<bool>,
    ) -> Status {
        let mut pause = Duration::from_secs(1);
        loop {
            let why = match self.external.seal(outcome.clone()).await {
                Ok(sealed) => {
                    return sealed.status.unwrap_or_else(|| failed(&Failure::application("Lost", "no outcome")));
                }
                Err(why) => why,
            };
            if !matches!(why, ExternalError::Io { .. }) {
                return not_had(run, &why);
            }
            tracing::warn!(%why, run_id = run.run_id, "a result cannot be kept yet: it is tried again in {pause:?}");
            tokio::select! {
                _ = canceled.wait_for(|canceled| *canceled) => return not_had(run, &why),
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
            }
        }
    }

    async fn complete(&self, task_token: Vec<u8>, status: Status) {
        let result = Some(ActivityExecutionResult { status: Some(status) });
        if let Err(why) = self.worker.complete_activity_task(ActivityTaskCompletion { task_token, result }).await {
            tracing::error!(%why, "an activity task could not be completed");
        }
    }

    async fn attempt(&self, own: Vec<u8>, task: ActivityTask, beaten: bool, canceled: watch::Receiver<bool>) -> Status {
        let task = Arc::new(task);
        let (worker, external) = (self.worker.clone(), self.external.clone());
        let sink = Arc::new(Sink { worker, external, token: own.clone(), last: Mutex::default() });
        let context = ActivityContext::new(task.clone(), canceled.clone(), sink.clone()).with_states_of(&self.registry);
        let beats = async {
            match beaten {
                true => sink.beat().await,
                false => std::future::pending().await,
            }
        };
        // Made inside: making it runs user code.
        let function =
            AssertUnwindSafe(async { self.registry.attempt(&task, context, &self.interceptors).await }).catch_unwind();
        let mut heard = canceled.clone();
        let overdue = async {
            if heard.wait_for(|canceled| *canceled).await.is_err() {
                std::future::pending::<()>().await;
            }
            let leaving = self.running.why(&own) == Some(AttemptStop::Shutdown);
            tokio::time::sleep(if leaving { LEAVING_GRACE } else { CANCEL_GRACE }).await;
        };
        let ended = tokio::select! {
            biased;
            ended = function => ended.unwrap_or_else(|panic| Err(ActivityError::Failure(panicked(&*panic)))),
            () = overdue => Err(ActivityError::Canceled(None)),
            never = beats => match never {},
        };
        match ended {
            Ok(result) => Status::Completed(Success { result: Some(payload_out(&result)) }),
            Err(ActivityError::WillCompleteLater) => Status::WillCompleteAsync(WillCompleteAsync {}),
            Err(ActivityError::Canceled(details)) => gave_up(self.running.why(&own), details),
            Err(ActivityError::Failure(failure)) => failed(&failure),
        }
    }
}

/// What an attempt that has given up is to the cluster. A cancellation is only what somebody has asked for, because the cluster
/// takes no other; all else is a failure, and the attempt is made again.
fn gave_up(why: Option<AttemptStop>, details: Option<Payload>) -> Status {
    let (failure_type, message) = match why {
        Some(AttemptStop::Asked) => {
            let kind = FailureKind::Canceled { details };
            let failure = Failure { message: "activity canceled".into(), kind, cause: None };
            return Status::Cancelled(Cancellation { failure: Some(failure_out(&failure)) });
        }
        Some(AttemptStop::Shutdown) => (WORKER_SHUTDOWN, "the worker left before the activity had ended"),
        Some(AttemptStop::Paused) => ("ActivityPause", "the activity was paused before it had ended"),
        Some(AttemptStop::Reset) => ("ActivityReset", "the activity was reset before it had ended"),
        None => ("Canceled", "the activity gave up as canceled, and nobody had canceled it"),
    };
    failed(&Failure::application(failure_type, message))
}

fn failed(failure: &Failure) -> Status {
    Status::Failed(Failed { failure: Some(failure_out(failure)), ..Default::default() })
}

/// A payload of the attempt is too large, or cannot be had from where it is kept.
fn not_had(run: &WorkflowExecution, why: &ExternalError) -> Status {
    let Failure { message, kind, cause } = why.failure();
    let message = format!("the run {} of {}: {message}", run.run_id, run.workflow_id);
    let cause_there = match why {
        ExternalError::TooLarge { .. } | ExternalError::MessageTooLarge { .. } => Cause::PayloadsTooLarge,
        _ => Cause::ExternalStorageFailure,
    };
    let failure = Some(failure_out(&Failure { message, kind, cause }));
    Status::Failed(Failed { failure, cause: cause_there.into() })
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
    external: External,
    token: Vec<u8>,
    /// What was said last, which is said again with every sign of life.
    last: Mutex<Vec<common::Payload>>,
}

impl Sink {
    /// Says that the attempt lives, for as long as it is asked to.
    async fn beat(&self) -> Infallible {
        loop {
            self.say();
            tokio::time::sleep(BEAT_EVERY).await;
        }
    }

    fn say(&self) {
        let details = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.worker.record_activity_heartbeat(ActivityHeartbeat { task_token: self.token.clone(), details });
    }
}

impl HeartbeatSink for Sink {
    fn heartbeat(&self, _: TaskToken, details: Option<Payload>) {
        let sealed: Result<Vec<_>, _> =
            details.iter().map(|details| self.external.seal_now(payload_out(details))).collect();
        let details = match sealed {
            Ok(details) => details,
            // What was said before stays; without a heartbeat the attempt times out, and is made again.
            Err(why) => return tracing::error!(%why, "a heartbeat was not sent: its details cannot be kept"),
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = details;
        self.say();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure_type(status: Status) -> String {
        let Status::Failed(failed) = status else { panic!("{status:?}") };
        let failure = failure_in(failed.failure.unwrap());
        match failure.kind {
            FailureKind::Application { failure_type, non_retryable: false, .. } => failure_type,
            kind => panic!("it is tried again: {kind:?}"),
        }
    }

    #[test]
    fn only_what_somebody_has_canceled_is_canceled() {
        assert!(matches!(gave_up(Some(AttemptStop::Asked), None), Status::Cancelled(_)));
        assert_eq!(failure_type(gave_up(Some(AttemptStop::Shutdown), None)), "WorkerShutdown");
        assert_eq!(failure_type(gave_up(Some(AttemptStop::of(ActivityCancelReason::Paused)), None)), "ActivityPause");
        assert_eq!(failure_type(gave_up(None, None)), "Canceled");
    }

    #[test]
    fn a_request_counts_more_than_that_the_worker_leaves() {
        let mut attempt = ClusterAttempt { cancel: watch::channel(false).0, stop: None };
        attempt.stop(AttemptStop::Shutdown);
        assert_eq!(attempt.stop, Some(AttemptStop::Shutdown));
        attempt.stop(AttemptStop::Asked);
        attempt.stop(AttemptStop::Shutdown);
        assert_eq!((attempt.stop, *attempt.cancel.borrow()), (Some(AttemptStop::Asked), true));
    }
}
