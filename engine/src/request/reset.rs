//! Requests to reset a run, and what a reset did, as plain data.
//!
//! Invariant: everything here can be sent as JSON. What a request means is decided by `machine::PlannedFork`, since a reset is
//! a fork that keeps the workflow id.

use serde::{Deserialize, Serialize};

use super::{ForkPlan, Target};
use crate::vocabulary::*;

/// Where a reset goes back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetTo {
    /// The history up to this event is kept; 0: none of it. What the code decided because of a kept event is decided anew,
    /// unless all of that is kept too.
    Event(EventId),
    /// The run begins anew, with the input it had.
    FirstTurn,
    /// What the code decided last is decided anew.
    LastTurn,
    /// What the code decided since this build of it was used first is decided anew.
    Build(BuildId),
}

impl std::fmt::Display for ResetTo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ResetTo::Event(id) => write!(f, "event {id}"),
            ResetTo::FirstTurn => f.write_str("the first turn"),
            ResetTo::LastTurn => f.write_str("the last turn"),
            ResetTo::Build(build) => write!(f, "the first turn of build {build}"),
        }
    }
}

/// What reached the run after the point and reaches the new one again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetReapply {
    /// Nothing; what is dropped is named.
    None,
    /// Signals, each once and in their order.
    Signal,
    /// Updates, each once and in their order, as far as the code accepts them again.
    Update,
    /// Both. Cancel requests are not: they meant that very run.
    #[default]
    All,
}

impl ResetReapply {
    /// Whether signals reach the new run again.
    pub fn signals(self) -> bool {
        matches!(self, ResetReapply::Signal | ResetReapply::All)
    }
    /// Whether updates do.
    pub fn updates(self) -> bool {
        matches!(self, ResetReapply::Update | ResetReapply::All)
    }
}

/// A request to reset a run (E26).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetRequest {
    /// The run to go back in; without a run id the open or else the newest one. Whichever run of the workflow id is open is
    /// ended.
    pub target: Target,
    /// How far back.
    pub to: ResetTo,
    /// What happens to what came later.
    #[serde(default)]
    pub reapply: ResetReapply,
    /// Makes the request idempotent.
    pub request_id: Option<RequestId>,
    /// Who asks, for the history.
    pub identity: Option<Identity>,
    /// Why, for the history.
    pub reason: String,
    /// Only say what would happen.
    pub dry_run: bool,
}

impl ResetRequest {
    /// A reset with the defaults of all else.
    pub fn new(target: Target, to: ResetTo) -> Self {
        ResetRequest {
            target,
            to,
            reapply: ResetReapply::default(),
            request_id: None,
            identity: None,
            reason: String::new(),
            dry_run: false,
        }
    }
    /// With another treatment of what came later.
    pub fn reapply(mut self, reapply: ResetReapply) -> Self {
        self.reapply = reapply;
        self
    }
}

/// The answer to a reset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResetDone {
    /// The workflow id, which stays.
    pub workflow_id: WorkflowId,
    /// The run that goes on. `None` of a dry run.
    pub run_id: Option<RunId>,
    /// False when the request had been carried out before, and of a dry run.
    pub newly_started: bool,
    /// Where it begins.
    pub from: ForkPoint,
    /// The open run that is ended by it, if one was open.
    pub terminated: Option<RunId>,
    /// Which code it runs.
    pub workflow_type: WorkflowType,
    /// What is kept, told and done again; empty for a request that had been carried out before.
    pub plan: ForkPlan,
}

/// Words that name no point of a history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} does not name a point of a history: write an event number, first-turn, last-turn, or build:ID (16 hexadecimal digits)"
)]
pub struct NoResetPoint(pub String);

impl std::str::FromStr for ResetTo {
    type Err = NoResetPoint;
    /// `12` or `event:12`, `first-turn`, `last-turn`, `build:ID`.
    fn from_str(text: &str) -> Result<ResetTo, NoResetPoint> {
        let none = || NoResetPoint(text.to_owned());
        match text {
            "first-turn" => Ok(ResetTo::FirstTurn),
            "last-turn" => Ok(ResetTo::LastTurn),
            _ => match text.strip_prefix("build:") {
                Some(build) => u64::from_str_radix(build, 16).map(|id| ResetTo::Build(BuildId(id))).map_err(|_| none()),
                None => {
                    let number = text.strip_prefix("event:").unwrap_or(text);
                    number.parse().map(|id| ResetTo::Event(EventId(id))).map_err(|_| none())
                }
            },
        }
    }
}
