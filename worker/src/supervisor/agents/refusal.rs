//! Why a session of agents ends without an answer, and why what a model or a person wants is refused.
//!
//! Invariant: each variant has one text, which models and people read unchanged. Nothing here decides.

use super::boundary::NotWaiting;
use super::message::AnswerError;
use super::todos::TODOS_MAX;
use crate::supervisor::core::account::SPENT;

/// Why a session has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SessionFailure {
    /// The call of its model failed.
    #[error("{0}")]
    Call(String),
    /// A person said no to what a run below had to do for it.
    #[error("{0}")]
    Refused(String),
    /// What a run below had to do for it has failed, beside what a person said no to there.
    #[error("{0}")]
    FailedBeside(String),
    /// Somebody has cancelled the run below that did it.
    #[error("{0}")]
    Cancelled(String),
    #[error(transparent)]
    Malformed(#[from] AnswerError),
    #[error("the answer of {agent} both asks a person and calls tools: it may do one of the two")]
    AsksAndCalls { agent: String },
    /// A policy answers in its place.
    #[error("{0}")]
    Policy(String),
    #[error("{}", SPENT)]
    Spent,
    /// It answered with nothing, and nothing was done for it.
    #[error("it said nothing, and nothing was done")]
    Nothing,
    #[error("{0}")]
    Limit(String),
    /// The same, where people had said no, and nothing was done since.
    #[error("{denials}. {limit}")]
    LimitAfterNo { limit: String, denials: String },
    /// It failed, or ended with nothing, where people had said no, and nothing was done since.
    #[error("{denials}; then: {why}")]
    AfterNo { why: String, denials: String },
    /// A person said no to a tool.
    #[error("{0}")]
    Denied(String),
    /// A person did not let it begin.
    #[error("{0}")]
    NotApproved(String),
    /// Nobody answered its question.
    #[error("{0}")]
    Unanswered(String),
    /// It passed on, as its answer, that somebody else had failed.
    #[error("{text} ({by} has forwarded it)")]
    Forwarded { by: String, text: String, refused: bool },
    /// The work that it is a part of was ended, in the words of whatever ended it.
    #[error("{0}")]
    Stopped(String),
}

impl SessionFailure {
    /// Whether it failed for what a person said, or did not say: who begins it again asks them again.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(
            self,
            SessionFailure::Refused(_)
                | SessionFailure::FailedBeside(_)
                | SessionFailure::Cancelled(_)
                | SessionFailure::Denied(_)
                | SessionFailure::NotApproved(_)
                | SessionFailure::Unanswered(_)
                | SessionFailure::LimitAfterNo { .. }
                | SessionFailure::AfterNo { .. }
                | SessionFailure::Forwarded { refused: true, .. }
        )
    }
}

/// Why nothing is done with a background process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProcessRefusal {
    #[error("Process {0} not found")]
    NotFound(String),
    #[error("Process {id} is not running (status: {status})")]
    NotRunning { id: String, status: &'static str },
    #[error(
        "Maximum background processes ({0}) reached. Use list_processes to see what runs and kill_process to end some."
    )]
    Full(u32),
}

/// Why arguments of a model's call are not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArgumentRefusal {
    #[error("Invalid tool arguments at `{field}`: {wanted} is needed")]
    Needed { field: &'static str, wanted: &'static str },
    #[error("Invalid tool arguments: there is no `{name}`; known are {known}")]
    Unknown { name: String, known: String },
    #[error("Invalid todos at `{at}`: {why}")]
    Todos { at: String, why: String },
    #[error("Invalid todos: {0} entries, {max} are allowed", max = TODOS_MAX)]
    ManyTodos(usize),
    #[error("Agent '{0}' is not in the delegates list")]
    NoDelegate(String),
    #[error("Cannot spawn '{name}' - not in delegates list. Available: {}", available.join(", "))]
    NotSpawned { name: String, available: Vec<String> },
    #[error("seconds must be a positive number")]
    NotPositive,
    #[error("Maximum sleep is {hours} hours ({seconds} seconds)")]
    ManyHours { hours: u64, seconds: String },
    #[error("Maximum sleep is {0} seconds")]
    ManySeconds(String),
}

/// Why an answer of a person is none to what they were asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerRefusal {
    #[error(transparent)]
    NotWaiting(#[from] NotWaiting),
    #[error(
        "the approval of a tool call is `true` or `false`, or a mapping with `approved` and, if you like, `feedback`; \
         a text is neither"
    )]
    NoYesOrNo,
    #[error("the answer is empty: `yes` accepts the output, and any other text says what is to be changed")]
    Empty,
    #[error("the answer does not conform at `{at}`: {why}")]
    Misfit { at: String, why: String },
}
