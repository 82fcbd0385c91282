//! What a spec chooses and every run is held to: what whoever decides may do, and what becomes of a run that has spent all.
//!
//! Invariant: the words of a spec are these types; what follows from them is the core's to say.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One thing a supervisor may do (supervisors.md §2.2, §5.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Authority {
    /// Choose which tasks run.
    Select,
    /// Add a task to the plan.
    Add,
    /// Change a task that has not begun.
    Patch,
    /// Cancel a task.
    Cancel,
    /// Say whose result is the run's.
    MarkFinal,
    /// Set how a task stands.
    UpdateStatus,
    /// Send a task back with feedback.
    Feedback,
    /// Give work to another agent.
    Delegate,
    /// Hand control over to another agent.
    HandOff,
    /// Choose who speaks next.
    SelectSpeaker,
    /// Take somebody into the team.
    Recruit,
    /// Let somebody go.
    Retire,
    /// Write to one agent.
    SendMessage,
    /// Write to all agents.
    Broadcast,
    /// Ask a person for an approval.
    RequestApproval,
    /// Ask a person a question.
    RequestInput,
    /// Hand a task to a person.
    Escalate,
    /// Make the plan again.
    Replan,
    /// Make one result of all.
    Synthesize,
    /// End the run.
    Finish,
}

/// What happens when the budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// One last synthesis of what there is.
    Synthesize,
    /// The run ends with what there is and says why (PDT-09).
    Stop,
    /// The run fails.
    Fail,
    /// The run is paused until it is given more (`bosun budget top-up`) and resumed. A run that spends the budget of the run
    /// above asks that one; time can be given to nobody: of `wall` it is as `stop`.
    Ask,
}
