//! What can be wrong with a history: one variant a class, each saying what was found.
//!
//! Invariant: every class is produced by some damage in `recording/tests.rs`, so that none is only a name. Whether code
//! fits a history is another question ([`bosun_engine`]'s non-determinism), asked only of histories with no problem.

use std::fmt;

use bosun_engine::*;

use crate::strict_json::JsonRefused;

/// A history that was refused: where it is wrong, and how.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{place}{problem}")]
pub struct InvalidHistory {
    /// Where in the file.
    pub(crate) place: HistoryPlace,
    /// What is wrong there.
    pub(crate) problem: HistoryProblem,
}

/// Where in a history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct HistoryPlace {
    /// Counted from 1.
    pub(crate) turn: Option<usize>,
    /// The event, where there is one.
    pub(crate) event: Option<(EventId, &'static str)>,
}

impl fmt::Display for HistoryPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.turn, self.event) {
            (_, Some((id, name))) => write!(f, "event {id} ({name}): "),
            (Some(turn), None) => write!(f, "turn {turn}: "),
            (None, None) => Ok(()),
        }
    }
}

/// The things with a command number of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandFamily {
    Activity,
    Timer,
    ChildWorkflow,
    ExternalSignal,
    ExternalCancel,
    SideEffect,
}

impl fmt::Display for CommandFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CommandFamily::Activity => "activity",
            CommandFamily::Timer => "timer",
            CommandFamily::ChildWorkflow => "child workflow",
            CommandFamily::ExternalSignal => "signal to another run",
            CommandFamily::ExternalCancel => "cancel request to another run",
            CommandFamily::SideEffect => "side effect",
        })
    }
}

/// A field by its path; no path is all of the file.
fn place_of(path: &str) -> String {
    if path.is_empty() { "the file as a whole".to_owned() } else { format!("`{path}`") }
}

/// What is wrong with a history; each says it in its message.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum HistoryProblem {
    // The file.
    #[error(transparent)]
    Refused(#[from] JsonRefused),
    #[error("`schema` is {found}; a Bosun history says \"{}\"", super::SCHEMA)]
    NotAHistory { found: String },
    #[error("the schema {found} is not known to this version, which reads \"{}\"", super::SCHEMA)]
    UnknownSchema { found: String },
    #[error("`{path}` is missing")]
    MissingField { path: String },
    #[error("`{path}` is not known to this version; a newer one wrote the file, or it was edited")]
    UnknownField { path: String },
    #[error("{}: {why}", place_of(path))]
    Malformed { path: String, why: String },
    #[error("no event is called {name:?} in this version")]
    UnknownEventType { name: String },
    #[error("the header says `{field}` is {header}; the events say {events}")]
    HeaderMismatch { field: &'static str, header: String, events: String },

    // The frame.
    #[error("no turn: a history begins with WorkflowExecutionStarted")]
    Empty,
    #[error("more than {limit} events")]
    TooManyEvents { limit: usize },
    #[error("the first event is not WorkflowExecutionStarted")]
    NotStarted,
    #[error("a run starts only once")]
    StartedTwice,
    #[error("the id should be {expected} and is {found}: events are missing, doubled or out of order")]
    EventIdGap { expected: EventId, found: EventId },
    #[error("the time goes back from {before} to {found}")]
    TimeGoesBack { before: Timestamp, found: Timestamp },
    #[error("the time {} is outside the years 0 to 9999", found.as_micros())]
    TimeOutOfRange { found: Timestamp },
    #[error("the turn belongs to run {found}, the history to {expected}")]
    OtherRun { expected: RunId, found: RunId },
    #[error("the run closed at event {closed_at}")]
    AfterClose { closed_at: EventId },
    #[error("a command without an activating event before it in its turn: nothing asked the code")]
    CommandWithoutActivation,
    #[error("message {seq} of a closed run has arrived, and the run is open")]
    DeliveredWhileOpen { seq: Seq },
    #[error("{taken} inputs leave the inbox, which holds {held}")]
    InboxUnderrun { taken: u32, held: usize },
    #[error("the next run has the id of this one")]
    NextRunIsItself,
    #[error("the first activation comes without a delayed start, or twice")]
    NoBackoff,

    // Numbered things.
    #[error("the command number {found} follows {last}; numbers count up from 1")]
    SeqOutOfOrder { last: Seq, found: Seq },
    #[error("the command number {found} is larger than any run can reach")]
    SeqTooLarge { found: Seq },
    #[error("nothing has the number {seq}; a {wanted} should")]
    UnknownSeq { seq: Seq, wanted: CommandFamily },
    #[error("number {seq} is a {found}, not a {wanted}")]
    OtherFamily { seq: Seq, wanted: CommandFamily, found: CommandFamily },
    #[error("the {family} {seq} is over since event {since}")]
    AlreadyOver { seq: Seq, family: CommandFamily, since: EventId },
    #[error("attempt {found} of activity {seq} follows attempt {last}; attempts count up by one")]
    AttemptOutOfOrder { seq: Seq, last: Attempt, found: Attempt },
    #[error("attempt {attempt} of activity {seq} is not under way")]
    AttemptNotStarted { seq: Seq, attempt: Attempt },
    #[error("attempt {attempt} of activity {seq} is still under way")]
    AttemptStillRunning { seq: Seq, attempt: Attempt },
    #[error("activity {seq} has a result and was never started")]
    ResultWithoutAttempt { seq: Seq },
    #[error("the attempt after this one is due before this one failed")]
    RetryInThePast,
    #[error("attempt 0: attempts count from 1")]
    AttemptZero,
    #[error("activity {seq} is canceled and nobody asked for it")]
    CanceledUnasked { seq: Seq },
    #[error("activity {seq} was paused twice, or unpaused without a pause")]
    ActivityPause { seq: Seq },
    #[error("timer {seq} fires at {at}, before its time {fire_at}")]
    FiredEarly { seq: Seq, at: Timestamp, fire_at: Timestamp },
    #[error("child workflow {seq} ends and has not started")]
    ChildNotStarted { seq: Seq },
    #[error("child workflow {seq} started twice")]
    ChildStartedTwice { seq: Seq },
    #[error("a cancellation of {family} {seq} was asked for twice")]
    CancelRequestedTwice { seq: Seq, family: CommandFamily },

    // Named things.
    #[error("the update {update_id} was accepted twice")]
    UpdateAcceptedTwice { update_id: UpdateId },
    #[error("the update {update_id} was never accepted")]
    UpdateNotAccepted { update_id: UpdateId },
    #[error("the update {update_id} was completed twice")]
    UpdateCompletedTwice { update_id: UpdateId },
    #[error("the request {request_id} was applied twice")]
    RequestAppliedTwice { request_id: RequestId },
    #[error("the run was paused twice, or unpaused without a pause")]
    Pause,
    #[error("the start of the run does not say that it was forked")]
    NotAFork,
    #[error("a fork that says it has copied {copied} events; {before} stand before it")]
    ForkedElsewhere { copied: EventId, before: u64 },

    // Contents.
    #[error("a payload of {length} bytes; at most {limit} are read")]
    PayloadTooLarge { length: usize, limit: usize },
    #[error("a payload is encoded as {encoding:?}, which only storage uses: it would refer to somebody's store")]
    StorageEncoding { encoding: String },
    #[error("a payload is a digest that a redaction left, and the history does not say that it is redacted")]
    RedactedPayload,
    #[error("a text of {length} bytes; at most {limit} are read")]
    TextTooLong { length: usize, limit: usize },
    #[error("a failure with a chain of {length} causes; at most {limit} can be written and read back")]
    CausesTooDeep { length: usize, limit: usize },
    #[error("the search attribute {name} is not a finite number")]
    NotFinite { name: FieldName },
}

#[cfg(test)]
impl HistoryProblem {
    /// The name of the class, for tables and tests.
    pub(crate) fn class(&self) -> String {
        let inner = match self {
            HistoryProblem::Refused(why) => format!("{why:?}"),
            own => format!("{own:?}"),
        };
        inner.chars().take_while(|c| c.is_ascii_alphanumeric()).collect()
    }
}
