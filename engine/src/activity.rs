//! Activities: the functions that touch the world, their registry, and what they are given.
//!
//! Invariant: an activity function learns its attempt, its constant idempotency key, the details of the last heartbeat
//! and whether it should stop; it can reach the log only through its outcome and its heartbeats. When an attempt runs,
//! and whether it is repeated, is decided by the run machine, not here.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::reference::ActivityRef;
use crate::vocabulary::*;

/// What an activity function knows about the attempt it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct ActivityTask {
    /// The namespace of the run.
    pub namespace: Namespace,
    /// The workflow that asked for it.
    pub workflow_id: WorkflowId,
    /// The type of that workflow.
    pub workflow_type: WorkflowType,
    /// Its run.
    pub run_id: RunId,
    /// The number of the command that asked for it, in that run.
    pub seq: Seq,
    /// The id of the activity in the run.
    pub activity_id: ActivityId,
    /// Which function runs.
    pub activity_type: ActivityType,
    /// The queue that the attempt came through.
    pub task_queue: TaskQueue,
    /// Which attempt this is, from 1; counted durably, also over crashes.
    pub attempt: Attempt,
    /// What the workflow gave it.
    pub input: Payload,
    /// What the last heartbeat of an earlier attempt said.
    pub heartbeat_details: Option<Payload>,
    /// When the workflow asked for it.
    pub scheduled_at: Timestamp,
    /// When this attempt must have ended, from start-to-close and schedule-to-close.
    pub deadline: Option<Timestamp>,
    /// How long it may go without a heartbeat.
    pub heartbeat_timeout: Option<Duration>,
}

/// Names an attempt for completion from outside (E09). Text: `run:seq:attempt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskToken {
    /// The run that waits for it.
    pub run_id: RunId,
    /// The number of the command that asked for the activity.
    pub seq: Seq,
    /// The attempt; an older one completes nothing any more.
    pub attempt: Attempt,
}

impl fmt::Display for TaskToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.run_id, self.seq, self.attempt)
    }
}

impl std::str::FromStr for TaskToken {
    type Err = Rejection;
    fn from_str(text: &str) -> Result<Self, Rejection> {
        let parse = || {
            let mut parts = text.split(':');
            let token = TaskToken {
                run_id: parts.next()?.parse().ok()?,
                seq: Seq(parts.next()?.parse().ok()?),
                attempt: Attempt(parts.next()?.parse().ok()?),
            };
            parts.next().is_none().then_some(token)
        };
        parse().ok_or_else(|| Rejection::Invalid {
            what: format!("task token {text:?}"),
            why: "expected run-id:seq:attempt".into(),
        })
    }
}

/// How an activity function ends other than with a result.
#[derive(Debug, Clone, PartialEq)]
pub enum ActivityError {
    /// It failed; the retry policy decides what comes next.
    Failure(Failure),
    /// The function noticed its cancellation and stopped.
    Canceled(Option<Payload>),
    /// The result comes later, by task token (E09).
    WillCompleteLater,
}

/// So that `?` takes any error: it is an application failure that may be retried, with the name of the error's type and
/// with what caused it (E30). A [`Failure`] stays what it is, and a payload that cannot be read is not retried.
impl<E: Error + Send + Sync + 'static> From<E> for ActivityError {
    fn from(error: E) -> Self {
        let why: &(dyn Error + 'static) = &error;
        if let Some(failure) = why.downcast_ref::<Failure>() {
            return ActivityError::Failure(failure.clone());
        }
        if let Some(why) = why.downcast_ref::<PayloadError>() {
            return ActivityError::Failure(why.clone().into());
        }
        ActivityError::Failure(failure_of(why, &short_name(std::any::type_name::<E>())))
    }
}

impl Failure {
    /// The failure that an error is: its text, its type by name, and what caused it. Workflow code that has an error of its
    /// own says `.map_err(|why| Failure::from_error(&why))?`; in activities `?` does it.
    pub fn from_error<E: Error + 'static>(error: &E) -> Failure {
        let why: &(dyn Error + 'static) = error;
        match why.downcast_ref::<Failure>() {
            Some(failure) => failure.clone(),
            None => failure_of(why, &short_name(std::any::type_name::<E>())),
        }
    }
}

impl ActivityError {
    /// A failure that no further attempt would mend, of a type that workflows and retry policies can name.
    pub fn non_retryable(failure_type: impl Into<String>, message: impl Into<String>) -> Self {
        ActivityError::Failure(Failure::application(failure_type, message).non_retryable())
    }
    /// An error that has lost its type, which `?` does not take: `load().map_err(ActivityError::boxed)?`. For
    /// `Box<dyn Error>`, `anyhow::Error` and text. Its failure type is `Error`, and it may be retried.
    pub fn boxed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let error: Box<dyn Error + Send + Sync> = error.into();
        ActivityError::Failure(failure_of(&*error, UNTYPED))
    }
}

/// The failure type of an error whose type is not known, because it is boxed.
const UNTYPED: &str = "Error";
/// Of the cause of another, which has none: the type of the failure is the other's (see [`Failure::type_name`]).
const OF_CAUSE: &str = "";

/// An error and what caused it, as far as it says.
fn failure_of(error: &(dyn Error + 'static), failure_type: &str) -> Failure {
    let failure = Failure::application(failure_type, error.to_string());
    match error.source() {
        Some(cause) => match cause.downcast_ref::<Failure>() {
            Some(cause) => failure.because(cause.clone()),
            None => failure.because(failure_of(cause, OF_CAUSE)),
        },
        None => failure,
    }
}

/// A type's name without its path and parameters. One that is only called `Error` keeps the name of its crate, or of its
/// module in the standard library: `io::Error`, `serde_json::Error`.
fn short_name(path: &str) -> String {
    let path = path.split_once('<').map_or(path, |(path, _)| path);
    let parts: Vec<&str> = path.split("::").collect();
    match parts.as_slice() {
        ["std" | "core" | "alloc", module, .., "Error"] | [module, .., "Error"] => format!("{module}::Error"),
        [.., name] => (*name).to_owned(),
        [] => UNTYPED.to_owned(),
    }
}

/// Where heartbeats of running attempts go; the shell throttles and records them.
pub trait HeartbeatSink: Send + Sync {
    /// An attempt is alive; `details` are what the next attempt may go on from.
    fn heartbeat(&self, token: TaskToken, details: Option<Payload>);
}

/// Given to an activity function. Cheap to clone.
#[derive(Clone)]
pub struct ActivityContext {
    task: Arc<ActivityTask>,
    canceled: watch::Receiver<bool>,
    heartbeats: Arc<dyn HeartbeatSink>,
    states: SharedStates,
}

/// What the activities of a program share, by type.
type SharedStates = Arc<BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>>;

fn with_state<T: Send + Sync + 'static>(states: &mut SharedStates, state: T) {
    Arc::make_mut(states).insert(TypeId::of::<T>(), Arc::new(state));
}

impl ActivityContext {
    /// Makes a context by hand; a worker makes its own. For unit tests of an activity
    /// [`TestAttempt`](crate::testing::TestAttempt) does it.
    pub fn new(task: Arc<ActivityTask>, canceled: watch::Receiver<bool>, heartbeats: Arc<dyn HeartbeatSink>) -> Self {
        ActivityContext { task, canceled, heartbeats, states: SharedStates::default() }
    }
    /// The same of another attempt.
    pub(crate) fn of_task(self, task: Arc<ActivityTask>) -> Self {
        ActivityContext { task, ..self }
    }
    /// With something that activities share: for tests of an activity. A worker gives what its registry has.
    pub fn with_state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        with_state(&mut self.states, state);
        self
    }
    /// With what the activities of a registry share: for whoever runs them in place of a worker.
    pub fn with_states_of(mut self, registry: &ActivityRegistry) -> Self {
        self.states = registry.states.clone();
        self
    }
    /// What the activities of this program share under this type, a connection pool for example; see
    /// [`ActivityRegistry::state`]. Fails, without retry and with the type `NoState`, if no state of this type was
    /// registered.
    pub fn state<T: Send + Sync + 'static>(&self) -> Result<Arc<T>, ActivityError> {
        let found = self.states.get(&TypeId::of::<T>()).cloned().and_then(|state| state.downcast::<T>().ok());
        found.ok_or_else(|| {
            let name = std::any::type_name::<T>();
            ActivityError::non_retryable(
                "NoState",
                format!("no state of the type {name} is registered: `state` of the App"),
            )
        })
    }
    /// Everything that is known of the attempt.
    pub fn task(&self) -> &ActivityTask {
        &self.task
    }
    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> Attempt {
        self.task.attempt
    }
    /// The same for every attempt of this activity, and for no other activity.
    pub fn idempotency_key(&self) -> String {
        idempotency_key(&self.task.run_id, self.task.seq)
    }
    /// For completing this attempt from outside after [`ActivityError::WillCompleteLater`].
    pub fn task_token(&self) -> TaskToken {
        TaskToken { run_id: self.task.run_id, seq: self.task.seq, attempt: self.task.attempt }
    }
    /// Says that the attempt is alive, with details for the next attempt. Returns at once; writes are throttled.
    pub fn heartbeat<T: Serialize + ?Sized>(&self, details: &T) -> Result<(), PayloadError> {
        self.heartbeats.heartbeat(self.task_token(), Some(Payload::encode(details)?));
        Ok(())
    }
    /// What the last heartbeat of an earlier attempt said; `None` also when it is no `T`.
    pub fn heartbeat_details<T: DeserializeOwned>(&self) -> Option<T> {
        self.task.heartbeat_details.as_ref().and_then(|payload| payload.decode().ok())
    }
    /// Whether the attempt should stop; see [`Self::canceled`].
    pub fn is_canceled(&self) -> bool {
        *self.canceled.borrow()
    }
    /// Resolves when the attempt should stop: canceled, timed out, or the worker is leaving. Never resolves otherwise.
    pub async fn canceled(&self) {
        let mut canceled = self.canceled.clone();
        if canceled.wait_for(|canceled| *canceled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A running activity function.
pub type ActivityFuture = Pin<Box<dyn Future<Output = Result<Payload, ActivityError>> + Send>>;

/// An activity function with its types erased.
pub type ActivityFunction = Arc<dyn Fn(ActivityContext) -> ActivityFuture + Send + Sync>;

/// The activity functions of a worker by type.
#[derive(Clone, Default)]
pub struct ActivityRegistry {
    functions: BTreeMap<ActivityType, ActivityFunction>,
    /// For the types that have no function of their own; a stage has one.
    others: Option<ActivityFunction>,
    external: BTreeSet<ActivityType>,
    states: SharedStates,
}

impl ActivityRegistry {
    /// A registry without functions.
    pub fn new() -> Self {
        Self::default()
    }
    /// Registers an async function under a name, or under an [`Activity`](crate::Activity) of its types. A second one of
    /// the same name replaces the first.
    #[track_caller]
    pub fn register<I, O, F, Fut>(&mut self, activity_type: impl ActivityRef<I, O>, function: F) -> &mut Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize,
        F: Fn(ActivityContext, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, ActivityError>> + Send + 'static,
    {
        let function = Arc::new(function);
        let erased: ActivityFunction = Arc::new(move |context: ActivityContext| {
            let function = function.clone();
            let input = context.task().input.decode::<I>();
            Box::pin(async move {
                let running = match input {
                    Ok(input) => function(context, input),
                    Err(why) => return Err(why.into()),
                };
                Ok(Payload::encode(&running.await?)?)
            })
        });
        self.insert(activity_type.into_activity_type(), erased);
        self
    }
    /// Says that activities of this type leave the process: they start another program, or wait for one over the network.
    /// Of these no more run at once than [`WorkerOptions::external_slots`](crate::WorkerOptions::external_slots) allows,
    /// and the functions of this process do not wait for them.
    pub fn external(&mut self, activity_type: impl Into<ActivityType>) -> &mut Self {
        self.external.insert(activity_type.into());
        self
    }
    /// Whether [`external`](Self::external) said so of this type.
    pub fn is_external(&self, activity_type: &ActivityType) -> bool {
        self.external.contains(activity_type)
    }
    /// Registers what all activities share under its type, a connection pool for example: they get it with
    /// [`ActivityContext::state`]. A second one of the same type replaces the first.
    pub fn state<T: Send + Sync + 'static>(&mut self, state: T) -> &mut Self {
        with_state(&mut self.states, state);
        self
    }
    /// Registers a function whose types are erased already.
    pub(crate) fn insert(&mut self, activity_type: ActivityType, function: ActivityFunction) {
        self.functions.insert(activity_type, function);
    }
    /// Registers a function for all types that have none.
    pub(crate) fn insert_for_others(&mut self, function: ActivityFunction) {
        self.others = Some(function);
    }
    /// The function of a type.
    pub fn get(&self, activity_type: &ActivityType) -> Option<&ActivityFunction> {
        self.functions.get(activity_type).or(self.others.as_ref())
    }
    /// The types that have a function of their own.
    pub fn types(&self) -> impl Iterator<Item = &ActivityType> {
        self.functions.keys()
    }
}
