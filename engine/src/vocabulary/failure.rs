//! Failures of user code: data that lives in history and travels along cause chains (E30).
//!
//! Invariant: a failure is never an error of the engine, of storage or of a request; those have types of their own.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ActivityId, ActivityType, Payload, RetryState, RunId, WorkflowId, WorkflowType};

/// The failure type of a panic in workflow or activity code.
pub const FAILURE_PANIC: &str = "Panic";

/// The failure type of a payload that is not of the type as which it is read, or that cannot be written.
pub const FAILURE_PAYLOAD: &str = "PayloadError";

/// The failure type of a text that cannot be an id: of a child workflow, for example.
pub const FAILURE_INVALID_ID: &str = "InvalidId";

/// The failure type of a validator of an update that changed the workflow.
pub const FAILURE_VALIDATOR_MUTATED: &str = "ValidatorMutated";

/// A child workflow of the run that was forked: a fork does not share it.
pub const FAILURE_CHILD_OF_SOURCE: &str = "ChildOfForkedRun";

/// The failure type of a payload above the limit (E31).
pub const FAILURE_PAYLOAD_TOO_LARGE: &str = "PayloadTooLarge";
/// The type of a failure that a search attribute caused which has the name of a field that every run has: no list could ask for it.
pub const FAILURE_BAD_SEARCH_ATTRIBUTES: &str = "BadSearchAttributes";

/// What went wrong in user code, with its cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What went wrong, for people.
    pub message: String,
    /// What failed, and how.
    pub kind: FailureKind,
    /// What brought it about; the chain ends with the [`root`](Failure::root).
    pub cause: Option<Box<Failure>>,
}

/// The kinds of failure, as in Temporal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// User code has failed.
    Application {
        /// A name for code and retry policies to match: `CardDeclined`. Empty: what brought another failure about, and is only
        /// known by its message.
        failure_type: String,
        /// Whether no further attempt would mend it.
        non_retryable: bool,
        /// Data for whoever handles it.
        details: Option<Payload>,
        /// How long to wait before the next attempt, instead of what the policy says.
        next_retry_delay: Option<Duration>,
    },
    /// A limit ran out.
    Timeout {
        /// Which one.
        timeout: TimeoutType,
        /// What the last heartbeat of the attempt said.
        last_heartbeat: Option<Payload>,
    },
    /// It was asked to cancel, and did.
    Canceled {
        /// What it left to say.
        details: Option<Payload>,
    },
    /// It was terminated from outside.
    Terminated,
    /// An activity has failed for good; the cause says of what.
    Activity {
        /// Its type.
        activity_type: ActivityType,
        /// Its id in the run.
        activity_id: ActivityId,
        /// Why it was not tried again.
        retry_state: RetryState,
    },
    /// A child workflow has not completed; the cause says how it ended.
    ChildWorkflow {
        /// Its type.
        workflow_type: WorkflowType,
        /// Its id.
        workflow_id: WorkflowId,
        /// Its run; `None` if it could not be started.
        run_id: Option<RunId>,
        /// Why it was not tried again, where that is known.
        retry_state: Option<RetryState>,
    },
    /// The process that ran the attempt ended before it could say how the attempt ended.
    WorkerLost,
}

/// Which limit ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TimeoutType {
    /// All attempts together: [`ActivityOptions::schedule_to_close`](super::ActivityOptions::schedule_to_close).
    ScheduleToClose,
    /// The wait for a slot: [`ActivityOptions::schedule_to_start`](super::ActivityOptions::schedule_to_start).
    ScheduleToStart,
    /// One attempt: [`ActivityOptions::start_to_close`](super::ActivityOptions::start_to_close).
    StartToClose,
    /// The time between heartbeats: [`ActivityOptions::heartbeat`](super::ActivityOptions::heartbeat).
    Heartbeat,
}

impl Failure {
    /// A failure of user code with a type that retry policies can name.
    pub fn application(failure_type: impl Into<String>, message: impl Into<String>) -> Self {
        Failure {
            message: message.into(),
            kind: FailureKind::Application {
                failure_type: failure_type.into(),
                non_retryable: false,
                details: None,
                next_retry_delay: None,
            },
            cause: None,
        }
    }
    /// The failure of what was asked to cancel, and did.
    pub fn canceled(message: impl Into<String>) -> Self {
        Failure { message: message.into(), kind: FailureKind::Canceled { details: None }, cause: None }
    }
    /// The failure of a limit that ran out, with what the last heartbeat said.
    pub fn timeout(timeout: TimeoutType, last_heartbeat: Option<Payload>) -> Self {
        let message = format!("{timeout} timeout");
        Failure { message, kind: FailureKind::Timeout { timeout, last_heartbeat }, cause: None }
    }
    /// The failure of code that panicked, of the type [`FAILURE_PANIC`].
    pub fn panic(message: impl Into<String>) -> Self {
        Failure::application(FAILURE_PANIC, message)
    }
    /// The same failure, brought about by another.
    pub fn because(mut self, cause: Failure) -> Self {
        self.cause = Some(Box::new(cause));
        self
    }
    /// Application failures only; others are unchanged.
    pub fn non_retryable(mut self) -> Self {
        if let FailureKind::Application { non_retryable, .. } = &mut self.kind {
            *non_retryable = true;
        }
        self
    }
    /// Application failures only: the delay before the next attempt, instead of the policy's.
    pub fn retry_after(mut self, delay: Duration) -> Self {
        if let FailureKind::Application { next_retry_delay, .. } = &mut self.kind {
            *next_retry_delay = Some(delay);
        }
        self
    }
    /// The data that came with it: of an application failure or a cancellation, and of itself, not of its causes.
    pub fn details(&self) -> Option<&Payload> {
        match &self.kind {
            FailureKind::Application { details, .. } | FailureKind::Canceled { details } => details.as_ref(),
            FailureKind::Timeout { .. }
            | FailureKind::Terminated
            | FailureKind::Activity { .. }
            | FailureKind::ChildWorkflow { .. }
            | FailureKind::WorkerLost => None,
        }
    }
    /// Application failures only: data for whoever handles the failure.
    pub fn with_details(mut self, payload: Payload) -> Self {
        if let FailureKind::Application { details, .. } = &mut self.kind {
            *details = Some(payload);
        }
        self
    }
    /// The failure at the end of the cause chain.
    pub fn root(&self) -> &Failure {
        self.cause.as_deref().map_or(self, Failure::root)
    }
    /// Whether this, or anything that caused it, is a cancellation.
    pub fn is_canceled(&self) -> bool {
        matches!(self.kind, FailureKind::Canceled { .. }) || self.cause.as_deref().is_some_and(Failure::is_canceled)
    }
    /// The application failure type of the root cause, for matching in code and on the command line. A cause without a type
    /// does not count: of an activity that ended in an error by `?`, it is the name of the type of that error, whatever brought
    /// the error about.
    pub fn type_name(&self) -> &str {
        let mut named = self;
        let mut next = self.cause.as_deref();
        while let Some(cause) = next {
            if !cause.has_no_type() {
                named = cause;
            }
            next = cause.cause.as_deref();
        }
        match &named.kind {
            FailureKind::Application { failure_type, .. } => failure_type,
            FailureKind::Timeout { .. } => "Timeout",
            FailureKind::Canceled { .. } => "Canceled",
            FailureKind::Terminated => "Terminated",
            FailureKind::Activity { .. } => "Activity",
            FailureKind::ChildWorkflow { .. } => "ChildWorkflow",
            FailureKind::WorkerLost => "WorkerLost",
        }
    }
}

impl fmt::Display for TimeoutType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimeoutType::ScheduleToClose => "schedule-to-close",
            TimeoutType::ScheduleToStart => "schedule-to-start",
            TimeoutType::StartToClose => "start-to-close",
            TimeoutType::Heartbeat => "heartbeat",
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            FailureKind::Application { failure_type, .. } if !failure_type.is_empty() => {
                write!(f, "{failure_type}: {}", self.message)?;
            }
            FailureKind::Application { .. }
            | FailureKind::Timeout { .. }
            | FailureKind::Canceled { .. }
            | FailureKind::Terminated
            | FailureKind::Activity { .. }
            | FailureKind::ChildWorkflow { .. }
            | FailureKind::WorkerLost => f.write_str(&self.message)?,
        }
        match &self.cause {
            Some(cause) => write!(f, "; caused by: {cause}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

impl From<super::PayloadError> for Failure {
    fn from(why: super::PayloadError) -> Self {
        Failure::application(FAILURE_PAYLOAD, why.to_string()).non_retryable()
    }
}

impl From<super::InvalidId> for Failure {
    fn from(why: super::InvalidId) -> Self {
        Failure::application(FAILURE_INVALID_ID, why.to_string()).non_retryable()
    }
}

impl Failure {
    fn has_no_type(&self) -> bool {
        matches!(&self.kind, FailureKind::Application { failure_type, .. } if failure_type.is_empty())
    }
    /// Whether this is a [`PayloadError`](super::PayloadError) of the code itself, not of an activity or a child.
    pub(crate) fn is_of_a_payload(&self) -> bool {
        matches!(&self.kind, FailureKind::Application { failure_type, .. } if failure_type == FAILURE_PAYLOAD)
    }
}
