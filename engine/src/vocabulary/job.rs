//! Jobs: what reaches workflow code, and the driver's contract.
//!
//! Invariant: one activating event is one job is one activation; several inputs that arrive together are applied one
//! after the other. A driver cannot tell whether it runs live, in replay, in the debugger or on another engine: all it
//! learns is in the [`Activation`]. A driver has no access to the log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::*;

/// One activating event as the workflow code sees it.
#[derive(Debug, Clone, PartialEq)]
pub enum Job {
    /// The code begins.
    InitializeWorkflow(Box<WorkflowExecutionStarted>),
    /// A signal for the code.
    SignalWorkflow(WorkflowExecutionSignaled),
    /// Somebody asks the run to cancel.
    CancelWorkflow {
        /// Why, in the words of whoever asked.
        reason: String,
    },
    /// An accepted update; the validator has agreed and does not run again.
    DoUpdate {
        /// Names the update in the answer.
        update_id: UpdateId,
        /// Which handler.
        name: UpdateName,
        /// What the handler is given.
        input: Payload,
    },
    /// An activity has ended for good.
    ResolveActivity {
        /// The activity.
        seq: Seq,
        /// Its result, or how its last attempt failed.
        result: Result<Payload, Failure>,
    },
    /// A timer is due.
    FireTimer {
        /// The timer.
        seq: Seq,
    },
    /// A child has begun, or could not.
    ResolveChildWorkflowStart {
        /// The child.
        seq: Seq,
        /// Its first run, or why there is none.
        result: Result<RunId, Failure>,
    },
    /// A child has ended.
    ResolveChildWorkflow {
        /// The child.
        seq: Seq,
        /// Its result, or how it ended without one.
        result: Result<Payload, Failure>,
    },
    /// A signal to another run has arrived, or never will.
    ResolveSignalExternal {
        /// The signal that was sent.
        seq: Seq,
        /// Why it cannot be delivered, if it cannot.
        result: Result<(), Failure>,
    },
    /// A cancel request to another run has arrived, or never will.
    ResolveCancelExternal {
        /// The request that was sent.
        seq: Seq,
        /// Why it cannot be delivered, if it cannot.
        result: Result<(), Failure>,
    },
}

impl Job {
    /// What the code hears of, in words: `the result of activity 3`.
    pub fn in_words(&self) -> String {
        match self {
            Job::InitializeWorkflow(_) => "its start".to_owned(),
            Job::SignalWorkflow(signal) => format!("the signal {}", signal.name),
            Job::CancelWorkflow { .. } => "the request to cancel".to_owned(),
            Job::DoUpdate { update_id, name, .. } => format!("the update {name} ({update_id})"),
            Job::ResolveActivity { seq, .. } => format!("the result of activity {seq}"),
            Job::FireTimer { seq } => format!("timer {seq}"),
            Job::ResolveChildWorkflowStart { seq, .. } => format!("the start of child workflow {seq}"),
            Job::ResolveChildWorkflow { seq, .. } => format!("the result of child workflow {seq}"),
            Job::ResolveSignalExternal { seq, .. } => format!("the delivery of signal {seq}"),
            Job::ResolveCancelExternal { seq, .. } => format!("the delivery of cancel request {seq}"),
        }
    }
    /// What kind of job it is, for logs: `ResolveActivity`.
    pub fn name(&self) -> &'static str {
        match self {
            Job::InitializeWorkflow(_) => "InitializeWorkflow",
            Job::SignalWorkflow(_) => "SignalWorkflow",
            Job::CancelWorkflow { .. } => "CancelWorkflow",
            Job::DoUpdate { .. } => "DoUpdate",
            Job::ResolveActivity { .. } => "ResolveActivity",
            Job::FireTimer { .. } => "FireTimer",
            Job::ResolveChildWorkflowStart { .. } => "ResolveChildWorkflowStart",
            Job::ResolveChildWorkflow { .. } => "ResolveChildWorkflow",
            Job::ResolveSignalExternal { .. } => "ResolveSignalExternal",
            Job::ResolveCancelExternal { .. } => "ResolveCancelExternal",
        }
    }
}

/// One turn of the workflow code.
#[derive(Debug, Clone, PartialEq)]
pub struct Activation {
    /// Workflow time: the time of the turn.
    pub at: Timestamp,
    /// The run whose ids the code sees: in a fork, the run that the event was copied from.
    pub run_id: RunId,
    /// How long the history is, for `continue_as_new_suggested`.
    pub history: HistorySize,
    /// What the code hears.
    pub job: Job,
    /// What the code noted when this turn happened before, if it did.
    pub markers: Markers,
}

/// The size of a run's history so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HistorySize {
    /// How many events.
    pub events: u64,
    /// Their size as [`EventKind::size`] counts it, which no storage format changes.
    pub bytes: u64,
}

impl HistorySize {
    /// Continue-as-new is suggested from here on (E19).
    pub const SUGGESTED_EVENTS: u64 = 4_096;
    /// The same in bytes.
    pub const SUGGESTED_BYTES: u64 = 4 * 1024 * 1024;
    /// What a cluster tells. Where it suggests to go on below our bounds, that counts.
    pub fn of_cluster(events: u64, bytes: u64, suggested: bool) -> Self {
        let size = HistorySize { events, bytes };
        match suggested && !size.continue_as_new_suggested() {
            true => HistorySize { events: Self::SUGGESTED_EVENTS, bytes },
            false => size,
        }
    }
    /// Whether either bound is reached.
    pub fn continue_as_new_suggested(&self) -> bool {
        self.events >= Self::SUGGESTED_EVENTS || self.bytes >= Self::SUGGESTED_BYTES
    }
}

/// What history says the code noted during this activation.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Markers {
    /// Nothing is written yet: side effects run, patches are new.
    #[default]
    Fresh,
    /// The activation is in history: side effects give the recorded values, and only recorded patches apply.
    Recorded {
        /// What each gave, by its number; shared, because one map may serve all activations of a run.
        side_effects: Arc<BTreeMap<Seq, Payload>>,
        /// The changes whose new branch was taken.
        patches: BTreeSet<PatchId>,
    },
    /// Nothing is written yet, but these side effects have their values already: the activation of another run happens
    /// again in its fork.
    Again {
        /// What each gave, by its number.
        side_effects: BTreeMap<Seq, Payload>,
    },
    /// Nothing is written and nothing may be carried out: side effects give these values, in order, and code that asks
    /// for one more cannot go on. For changed code that is given recorded outcomes.
    InOrder {
        /// What is left to give.
        side_effects: VecDeque<Payload>,
    },
}

impl Markers {
    /// Whether the activation has happened before, so that what the code says in it has been said: in history, or with the
    /// outcomes of another run.
    pub fn is_replay(&self) -> bool {
        match self {
            Markers::Recorded { .. } | Markers::InOrder { .. } => true,
            Markers::Fresh | Markers::Again { .. } => false,
        }
    }
}

/// Something the code waits for, for `stack` and `describe`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// For example `activity 3 charge_card`, `timer 4`, `signal approve`.
    pub what: String,
    /// Where in the code, as `file:line:column`, when known.
    pub location: Option<String>,
    /// The timer, if it is one: when it fires is known to whoever keeps it, and is said in `what`.
    #[serde(skip)]
    pub timer: Option<Seq>,
}

impl Awaited {
    /// What is said of a timer.
    pub(crate) fn timer_until(seq: Seq, fire_at: Timestamp) -> String {
        format!("timer {seq} until {fire_at}")
    }
}

/// A place in the source of workflow code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeLocation {
    /// As the compiler saw it, from the root of the package or workspace.
    pub file: String,
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
}

impl From<&std::panic::Location<'_>> for CodeLocation {
    fn from(place: &std::panic::Location<'_>) -> Self {
        CodeLocation { file: place.file().to_owned(), line: place.line(), column: place.column() }
    }
}

impl std::fmt::Display for CodeLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Runs one workflow execution's code. Live, in replay and in tests alike.
pub trait Driver {
    /// Gives the code one job and returns what it asked for, in order. The code runs until it waits.
    fn activate(&mut self, activation: Activation) -> Vec<Command>;
    /// What the code asked for in its last activation beyond what a turn may hold, in words: `more than 50000 commands`.
    /// Its commands do not count then, and it must not be activated again.
    fn overrun(&self) -> Option<String> {
        None
    }
    /// What in its last activation only other code can put right, if that holds the run: its commands do not count then,
    /// and it must not be activated again. Where the policy is that a defect fails the run, it is one of the commands.
    fn defect(&self) -> Option<WorkflowDefect> {
        None
    }
    /// The largest payload that the engine takes, told before what is decided live; see [`Cx::payload_max`](crate::workflow::Cx).
    fn takes_payloads_of(&mut self, _bytes_max: usize) {}
    /// All that was copied from the source of a fork has been told: from here on the code is this run, also where it is
    /// asked something before it hears of anything.
    fn forked(&mut self, run_id: RunId);
    /// Asks the code whether it accepts an update. Must not change anything.
    fn validate_update(&mut self, name: &UpdateName, input: &Payload) -> Result<(), Failure>;
    /// Answers from the current state. Must not change anything; a handler that does is an error.
    fn query(&mut self, name: &QueryName, input: &Payload) -> Result<Payload, QueryError>;
    /// The state as bytes, if this form of workflow can give it. `restore` of its factory takes it back.
    fn snapshot(&self) -> Option<Vec<u8>>;
    /// The state for people, if this form of workflow can give it.
    fn state_json(&self) -> Option<serde_json::Value>;
    /// What the code waits for now.
    fn awaiting(&self) -> Vec<Awaited>;
    /// The signals that the code was given and has not taken, in the order in which they came.
    fn untaken_signals(&self) -> Vec<SignalName>;
    /// Where in the code the n-th command of the last activation was asked for.
    fn command_location(&self, index: usize) -> Option<CodeLocation>;
}

/// Why a query has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum QueryError {
    /// The workflow has no handler of this name.
    #[error("no query named {name}; this workflow answers: {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    Unknown {
        /// What was asked.
        name: QueryName,
        /// What can be asked.
        known: Vec<String>,
    },
    /// The handler gave a failure.
    #[error("the query {name} failed: {failure}")]
    Failed {
        /// What was asked.
        name: QueryName,
        /// What the handler said.
        failure: Failure,
    },
    /// The handler is wrong: it asked for something to happen.
    #[error("the handler of query {name} changed the workflow: {what}; queries must only read")]
    Mutated {
        /// What was asked.
        name: QueryName,
        /// What the handler changed.
        what: String,
    },
}
