//! Requests to fork a run, and what a fork does, as plain data.
//!
//! Invariant: everything here can be sent as JSON. What a request means is decided by `machine::Fork`.

use serde::{Deserialize, Serialize};

use super::Target;
use crate::vocabulary::*;

/// Where the history to fork is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkSource {
    /// A run in the log of this worker.
    Run(Target),
    /// Turns from elsewhere. They must have been checked as a history before (`bosun_replay::History`).
    History(Vec<Turn>),
}

/// Names an activity, a child workflow or a side effect of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkSubject {
    /// By the event that asked for it or the event that ended it.
    Event(EventId),
    /// By the number of its command.
    Seq(Seq),
    /// By its type or id; `nth` (from 1) when there are several of the name.
    Name {
        /// An activity type, child workflow type, or id.
        name: String,
        /// Which of several, from 1.
        nth: Option<usize>,
    },
}

impl std::fmt::Display for ForkSubject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ForkSubject::Event(id) => write!(f, "event {id}"),
            ForkSubject::Seq(seq) => write!(f, "command {seq}"),
            ForkSubject::Name { name, nth: None } => f.write_str(name),
            ForkSubject::Name { name, nth: Some(nth) } => write!(f, "{name}#{nth}"),
        }
    }
}

/// What goes another way in the fork.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkChange {
    /// An activity or a child workflow ended otherwise; or a side effect gave another value.
    Outcome {
        /// What ended otherwise.
        of: ForkSubject,
        /// How it ended instead.
        outcome: Result<Payload, Failure>,
    },
    /// The signal said something else; `nth` (from 1) when there are several of the name.
    Signal {
        /// Which signal.
        name: SignalName,
        /// Which of several, from 1.
        nth: Option<usize>,
        /// What it carried instead.
        input: Payload,
    },
    /// The run was started with another input: nothing of the history is kept.
    Input(Payload),
}

/// What reached the source after the fork and is sent to the fork again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkReapply {
    /// Signals, each once and in their order. Updates and cancel requests are not: somebody waits for their answer, or
    /// meant that very run.
    #[default]
    Signals,
    /// Nothing is sent again; the plan names what is dropped.
    None,
}

/// A request to fork a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForkRequest {
    /// The history that the fork begins with.
    pub source: ForkSource,
    /// The namespace of the new run; it need not be the source's.
    pub namespace: Namespace,
    /// Of the new run. Never used before.
    pub workflow_id: WorkflowId,
    /// The last event to keep. `None`: as much as the changes allow.
    pub at: Option<EventId>,
    /// What goes another way; the fork begins before the first of them.
    pub changes: Vec<ForkChange>,
    /// What reached the source later and reaches the fork again.
    #[serde(default)]
    pub reapply: ForkReapply,
    /// Makes the request idempotent.
    pub request_id: Option<RequestId>,
    /// Who forks, for the history.
    pub identity: Option<Identity>,
    /// Why, for the history.
    pub reason: String,
    /// Only say what would happen.
    pub dry_run: bool,
}

impl ForkRequest {
    /// A fork that keeps as much of the source as it can.
    pub fn new(source: ForkSource, workflow_id: WorkflowId) -> Self {
        ForkRequest {
            source,
            namespace: Namespace::of(DEFAULT_NAMESPACE),
            workflow_id,
            at: None,
            changes: Vec::new(),
            reapply: ForkReapply::default(),
            request_id: None,
            identity: None,
            reason: String::new(),
            dry_run: false,
        }
    }
    /// Keeps the history up to this event.
    pub fn at(mut self, event: EventId) -> Self {
        self.at = Some(event);
        self
    }
    /// Adds something that goes another way.
    pub fn change(mut self, change: ForkChange) -> Self {
        self.changes.push(change);
        self
    }
    /// Says what of the later inputs is sent again.
    pub fn reapply(mut self, reapply: ForkReapply) -> Self {
        self.reapply = reapply;
        self
    }
}

/// What a fork does, in words and numbers: the dry run, and the answer to a fork.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ForkPlan {
    /// The last event that is kept; 0: none, the run begins anew.
    pub event: EventId,
    /// Why that is not the event that was asked for.
    pub moved: Option<String>,
    /// How many events of the source come after it and are not kept.
    pub dropped: usize,
    /// What is told to the code right after the fork, in order; signals that are sent again among it.
    pub told: Vec<ForkTold>,
    /// Activities that were under way at the fork: each runs again, from its first attempt, with an idempotency key of
    /// its own.
    pub runs_again: Vec<ForkEffect>,
    /// What the source asked for after the fork. The fork does it again if its code asks for it again.
    pub may_run_again: Vec<ForkEffect>,
    /// Timers that were running: each waits for as long as was left at the fork.
    pub timers: Vec<PlannedTimer>,
    /// Signals that reached the source after the fork and are not sent again: with [`ForkReapply::None`] only.
    pub signals_dropped: Vec<SignalName>,
    /// Updates that the source accepted after the point and that are not made again: of a fork all, of a reset as it was asked.
    #[serde(default)]
    pub updates_dropped: Vec<UpdateName>,
    /// Of a reset: child workflows under way that go on as the new run's.
    #[serde(default)]
    pub children: Vec<WorkflowId>,
    /// Of a reset: child workflows that were asked for after the point and outlive the run that is ended, by their close
    /// policy. The new run cannot start another one under such an id while it is open.
    #[serde(default)]
    pub still_open: Vec<WorkflowId>,
    /// Inputs that were accepted and not yet decided: the fork decides them.
    pub inbox: usize,
}

/// One thing told at the fork.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForkTold {
    /// The event of the source that it stands for, if there is one.
    pub event: Option<EventId>,
    /// What is told, in words: `the result of activity 3`.
    pub what: String,
    /// Why it is told at the fork.
    pub why: ForkTelling,
}

/// Why something is told to the code right after a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkTelling {
    /// Another outcome, signal or value than in the source.
    Changed,
    /// It happened to the source later; it is about a child or a message of the source that is not repeated.
    AsRecorded,
    /// A child of the source whose end is not recorded: it is not shared and not started again.
    NotShared,
    /// A message that the source has sent or will send: it is not sent again.
    SentBySource,
    /// A signal or an update that reached the source later, and reaches the fork again.
    Reapplied,
    /// Of a reset: it is what the code decides about anew.
    Again,
}

/// Something that happens in the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkEffect {
    /// `activity`, `child workflow`, `signal` or `cancel request`.
    pub kind: String,
    /// Its type, or the name of the signal.
    pub name: String,
    /// What the code of the source said it is for.
    #[serde(default)]
    pub summary: Option<String>,
    /// The number of its command in the source.
    pub seq: Seq,
    /// How often it was tried in the source.
    pub attempts: u32,
}

/// A timer that was running at the fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedTimer {
    /// The number of its command.
    pub seq: Seq,
    /// What the code said it is for.
    pub summary: Option<String>,
    /// How long it still waits in the fork.
    pub left: std::time::Duration,
}

/// The answer to a fork.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forked {
    /// The id of the new run.
    pub workflow_id: WorkflowId,
    /// `None` of a dry run.
    pub run_id: Option<RunId>,
    /// False when the request had been carried out before, and of a dry run.
    pub newly_started: bool,
    /// The last event that was kept, and of which run.
    pub from: ForkPoint,
    /// The code that goes on.
    pub workflow_type: WorkflowType,
    /// What the fork does, or would do.
    pub plan: ForkPlan,
}
