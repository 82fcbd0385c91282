//! Runs activity functions on tokio: cancellation, heartbeats, panics, and the outcome back to the run.
//!
//! Invariant: each attempt handed over gives exactly one outcome and gives its slot back exactly once, whatever the
//! function does. An attempt that was told to stop and does not is dropped after a grace period. Heartbeats are
//! throttled here (E06); the last one always reaches the run before the outcome.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tracing::Instrument;

use super::committer::RunName;
use super::marks::{Mark, MarkSlot};
use super::pace::AttemptClock;
use super::quarantine::{Quarantine, Suspect};
use super::shared::WorkerShared;
use crate::activity::*;
use crate::queue::SlotUse;
use crate::vocabulary::*;

/// Heartbeats are written at most this often when the activity has no heartbeat timeout.
const HEARTBEAT_INTERVAL_DEFAULT: Duration = Duration::from_secs(30);
const HEARTBEAT_INTERVAL_MAX: Duration = Duration::from_secs(60);

struct RunningAttempt {
    name: RunName,
    cancel: watch::Sender<bool>,
    interval: Duration,
    /// When the last heartbeat was written, by the pace of the runner.
    last_beat: Option<Duration>,
    pending: Option<Option<Payload>>,
    flush_planned: bool,
    /// It was told to stop because the worker is leaving, and by nobody else before.
    is_left: bool,
}

/// The attempts of this worker that run now.
pub(crate) struct Runner {
    registry: ActivityRegistry,
    handle: tokio::runtime::Handle,
    pace: AttemptClock,
    running: Arc<Mutex<BTreeMap<TaskToken, RunningAttempt>>>,
    finished: watch::Sender<usize>,
    /// Where all attempts send their heartbeats.
    sink: OnceLock<Arc<RunnerSink>>,
}

/// Where an attempt stands, for whatever it logs. The level of a span says which filters let it pass: where an error may
/// be logged, its run must be known.
fn span_of(task: &ActivityTask) -> tracing::Span {
    tracing::error_span!(
        "activity",
        activity_type = %task.activity_type,
        workflow_id = %task.workflow_id,
        run_id = %task.run_id,
        seq = task.seq.0,
        attempt = task.attempt.0,
    )
}

impl Runner {
    pub(crate) fn new(registry: ActivityRegistry, handle: tokio::runtime::Handle, pace: AttemptClock) -> Self {
        Runner {
            registry,
            handle,
            pace,
            running: Arc::default(),
            finished: watch::Sender::new(0),
            sink: OnceLock::new(),
        }
    }
    pub(crate) fn handle(&self) -> &tokio::runtime::Handle {
        &self.handle
    }
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskToken, RunningAttempt>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn running(&self) -> usize {
        self.lock().len()
    }
    /// Changes whenever an attempt ends.
    pub(crate) fn watch(&self) -> watch::Receiver<usize> {
        self.finished.subscribe()
    }

    /// Starts an attempt. A slot has been taken for it and is given back at its end.
    pub(crate) fn run(&self, shared: &Arc<WorkerShared>, task: ActivityTask) {
        let token = TaskToken { run_id: task.run_id, seq: task.seq, attempt: task.attempt };
        let name =
            RunName { namespace: task.namespace.clone(), workflow_id: task.workflow_id.clone(), run_id: task.run_id };
        let (cancel, canceled) = watch::channel(false);
        let interval = task
            .heartbeat_timeout
            .map_or(HEARTBEAT_INTERVAL_DEFAULT, |timeout| timeout.mul_f64(0.8))
            .min(HEARTBEAT_INTERVAL_MAX);
        let running = RunningAttempt {
            name: name.clone(),
            cancel,
            interval,
            last_beat: None,
            pending: None,
            flush_planned: false,
            is_left: false,
        };
        self.lock().insert(token, running);
        let task = Arc::new(task);
        let sink = self.sink.get_or_init(|| Arc::new(RunnerSink { shared: Arc::downgrade(shared) })).clone();
        let context =
            ActivityContext::new(task.clone(), canceled.clone(), sink).with_states_of(&shared.options.activities);
        let shared = shared.clone();
        shared.time.begin_attempt();
        let slot = shared.quarantine.as_ref().and_then(|quarantine| marked(quarantine, token));
        let span = span_of(&task);
        let attempt = async move {
            // Made here, not on the committer's thread: making it runs user code.
            let function =
                Box::pin(async { shared.runner.registry.attempt(&task, context, &shared.options.interceptors).await });
            let grace = || shared.runner.pace.sleep(shared.options.cancel_grace);
            let running = MarkedAttempt { slot, running: Box::pin(attempt(function, canceled, grace)) };
            // Dropping what a panic or a cancellation left of the function may panic too.
            let ended = AssertUnwindSafe(running).catch_unwind().await;
            let outcome = ended.unwrap_or_else(|panic| ActivityOutcome::Failed(panicked(panic.as_ref())));
            let outcome = limited(outcome, shared.options.limits.payload_max);
            let who = Suspect::Activity(token.run_id, token.seq);
            shared.quarantine.iter().for_each(|quarantine| quarantine.ended(who, true));
            let slot = shared.slot_use(&task.activity_type, &task.task_queue);
            shared.runner.end(&shared, token, (&name, &slot), outcome);
            shared.time.end_attempt();
        };
        self.handle.spawn(attempt.instrument(span));
    }

    fn end(
        &self,
        shared: &Arc<WorkerShared>,
        token: TaskToken,
        (name, slot): (&RunName, &SlotUse),
        outcome: ActivityOutcome,
    ) {
        let running = self.lock().remove(&token);
        let is_left = running.as_ref().is_some_and(|running| running.is_left);
        let pending = running.and_then(|running| running.pending);
        let outcome = match outcome {
            ActivityOutcome::Canceled(_) if is_left => ActivityOutcome::Failed(stopped()),
            other => other,
        };
        let TaskToken { seq, attempt, .. } = token;
        if let Some(details) = pending {
            shared.deliver_input(name, Input::Heartbeat { seq, attempt, details });
        }
        let identity = shared.options.identity.clone();
        shared.deliver_input(name, Input::ActivityOutcome { seq, attempt, outcome, identity });
        shared.release_slot(slot);
        // Only a drain listens; it looks at `running` after it has subscribed.
        if self.finished.receiver_count() > 0 {
            self.finished.send_modify(|count| *count += 1);
        }
    }

    /// Tells an attempt to stop.
    pub(crate) fn cancel(&self, token: TaskToken) {
        if let Some(running) = self.lock().get(&token) {
            running.cancel.send_replace(true);
        }
    }

    /// Tells all attempts to stop: the worker is leaving.
    pub(crate) fn cancel_all(&self) {
        let mut all = self.lock();
        if !all.is_empty() {
            tracing::info!(attempts = all.len(), "the worker is leaving: what still runs is told to stop");
        }
        for running in all.values_mut() {
            running.is_left |= !running.cancel.send_replace(true);
        }
    }

    /// Writes a heartbeat now, or remembers it for the end of the throttling interval.
    fn heartbeat(&self, shared: &Arc<WorkerShared>, token: TaskToken, details: Option<Payload>) {
        let mut all = self.lock();
        let Some(running) = all.get_mut(&token) else { return };
        let now = self.pace.now();
        let since = running.last_beat.map(|last| now.saturating_sub(last));
        match since {
            Some(since) if since < running.interval => {
                running.pending = Some(details);
                if !running.flush_planned {
                    running.flush_planned = true;
                    let (shared, wait) = (shared.clone(), running.interval - since);
                    self.handle.spawn(async move {
                        shared.runner.pace.sleep(wait).await;
                        shared.runner.flush(&shared, token);
                    });
                }
            }
            Some(_) | None => {
                running.last_beat = Some(now);
                running.pending = None;
                let name = running.name.clone();
                drop(all);
                let TaskToken { seq, attempt, .. } = token;
                shared.deliver_input(&name, Input::Heartbeat { seq, attempt, details });
            }
        }
    }

    fn flush(&self, shared: &Arc<WorkerShared>, token: TaskToken) {
        let mut all = self.lock();
        let Some(running) = all.get_mut(&token) else { return };
        running.flush_planned = false;
        let Some(details) = running.pending.take() else { return };
        running.last_beat = Some(self.pace.now());
        let name = running.name.clone();
        drop(all);
        let TaskToken { seq, attempt, .. } = token;
        shared.deliver_input(&name, Input::Heartbeat { seq, attempt, details });
    }
}

fn marked(quarantine: &Quarantine, token: TaskToken) -> Option<MarkSlot> {
    let slot = quarantine.marks.slot()?;
    slot.write_only(Mark::Attempt(token));
    Some(slot)
}

/// An attempt whose thread is known while it is polled, in case the process aborts there (G23). Dropping what is
/// left of it counts, too.
struct MarkedAttempt<F> {
    slot: Option<MarkSlot>,
    running: Pin<Box<F>>,
}

impl<F: Future> Future for MarkedAttempt<F> {
    type Output = F::Output;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let _entered = this.slot.as_ref().map(MarkSlot::enter);
        this.running.as_mut().poll(cx)
    }
}

/// Runs the function until it ends, or until it has ignored its cancellation for too long.
async fn attempt<F, G>(function: F, mut canceled: watch::Receiver<bool>, grace: impl FnOnce() -> G) -> ActivityOutcome
where
    F: Future<Output = Result<Payload, ActivityError>>,
    G: Future<Output = ()>,
{
    let function = AssertUnwindSafe(function).catch_unwind();
    let overdue = async move {
        if canceled.wait_for(|canceled| *canceled).await.is_err() {
            std::future::pending::<()>().await;
        }
        grace().await;
    };
    tokio::select! {
        biased;
        ended = function => match ended {
            Ok(Ok(result)) => ActivityOutcome::Completed(result),
            Ok(Err(ActivityError::Failure(failure))) => ActivityOutcome::Failed(failure),
            Ok(Err(ActivityError::Canceled(details))) => ActivityOutcome::Canceled(details),
            Ok(Err(ActivityError::WillCompleteLater)) => ActivityOutcome::WillCompleteLater,
            Err(panic) => ActivityOutcome::Failed(panicked(panic.as_ref())),
        },
        () = overdue => ActivityOutcome::Canceled(None),
    }
}

/// A result above the payload limit is a failure of the activity that nobody should repeat.
fn limited(outcome: ActivityOutcome, limit: usize) -> ActivityOutcome {
    match outcome {
        ActivityOutcome::Completed(result) if result.len() > limit => {
            let message = format!("the result has {} bytes, the limit is {limit}", result.len());
            ActivityOutcome::Failed(Failure::application(FAILURE_PAYLOAD_TOO_LARGE, message).non_retryable())
        }
        other => other,
    }
}

/// What an attempt that its worker has stopped has failed with (G27).
fn stopped() -> Failure {
    let message = "the worker that ran the attempt was stopped".to_owned();
    Failure { message, kind: FailureKind::WorkerLost, cause: None }
}

/// The failure that a panic of user code becomes (E30).
fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned());
    Failure::panic(message)
}

struct RunnerSink {
    shared: Weak<WorkerShared>,
}

impl HeartbeatSink for RunnerSink {
    fn heartbeat(&self, token: TaskToken, details: Option<Payload>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.runner.heartbeat(&shared, token, details);
        }
    }
}
