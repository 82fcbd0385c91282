//! The words other systems have for the statuses of a task: the same run, read in the vocabulary one knows (§5.3).
//!
//! Invariant: the table is whole: each status of ours (and `running` in the background) has a cell for each system, a
//! word or `-` for what cannot occur there. A word says no more than the system's own does. Nothing is read back.

use serde::{Deserialize, Serialize};

use super::model::TaskId;
use super::task::TaskStatus;

/// Whose words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// As published: a rejected task is `READY` again.
    PydantaskSeed,
    /// As its code has it: a rejected task is `RERUN`.
    Pydantask,
    FlowSupervisor,
    /// As its code has it: a result that waits for its review is `awaiting-review`.
    FlowSupervisorCode,
    FlowBoard,
    PlanAndExecute,
    Cuga,
    CugaController,
    CugaTodos,
    ShannonDirectory,
    ShannonSwarm,
    SupyagentRegistry,
    SupyagentProcess,
    CrewAi,
    LangGraph,
    /// AutoGen and Swarm.
    AutoGen,
}

/// What a status alone does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Attributes {
    /// It runs in the background.
    pub detached: bool,
    /// It was escalated, and a human has decided on it.
    pub resolved: bool,
}

/// A status for which the system has no word, as it cannot occur there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{status}{} cannot occur in {}", if *.detached { " (detached)" } else { "" }, system.as_str())]
pub struct CannotOccur {
    pub system: System,
    pub status: TaskStatus,
    pub detached: bool,
}

/// A row of `native_view`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeTask {
    pub task: TaskId,
    pub status: TaskStatus,
    /// None for what cannot occur in that system.
    pub native: Option<String>,
}

impl System {
    pub const ALL: [System; 16] = [
        System::PydantaskSeed,
        System::Pydantask,
        System::FlowSupervisor,
        System::FlowSupervisorCode,
        System::FlowBoard,
        System::PlanAndExecute,
        System::Cuga,
        System::CugaController,
        System::CugaTodos,
        System::ShannonDirectory,
        System::ShannonSwarm,
        System::SupyagentRegistry,
        System::SupyagentProcess,
        System::CrewAi,
        System::LangGraph,
        System::AutoGen,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            System::PydantaskSeed => "pydantask_seed",
            System::Pydantask => "pydantask",
            System::FlowSupervisor => "flow_supervisor",
            System::FlowSupervisorCode => "flow_supervisor_code",
            System::FlowBoard => "flow_board",
            System::PlanAndExecute => "plan_and_execute",
            System::Cuga => "cuga",
            System::CugaController => "cuga_controller",
            System::CugaTodos => "cuga_todos",
            System::ShannonDirectory => "shannon_directory",
            System::ShannonSwarm => "shannon_swarm",
            System::SupyagentRegistry => "supyagent_registry",
            System::SupyagentProcess => "supyagent_process",
            System::CrewAi => "crew_ai",
            System::LangGraph => "lang_graph",
            System::AutoGen => "auto_gen",
        }
    }

    /// A word as the system spells its own: pydantask in capitals, flow-state with dashes.
    pub fn spelled(self, word: &str) -> String {
        match self {
            System::PydantaskSeed | System::Pydantask => word.to_uppercase(),
            System::FlowSupervisor | System::FlowSupervisorCode => word.replace('_', "-"),
            _ => word.to_owned(),
        }
    }

    /// The system of that name.
    pub fn named(name: &str) -> Option<System> {
        System::ALL.into_iter().find(|system| system.as_str() == name)
    }
}

/// One row of the table, in the order of [`System::ALL`].
type NativeCells = [&'static str; 16];

// A cell that the table has once for several columns is that word in each of them, spelled as that column spells it.
#[rustfmt::skip]
fn cells(status: TaskStatus, attributes: Attributes) -> NativeCells {
    let Attributes { detached, resolved } = attributes;
    match status {
        TaskStatus::Pending => ["PENDING", "PENDING", "in_progress", "in_progress", "pending", "pending",
            "pending", "not-started", "pending", "-", "pending", "-", "-", "pending", "node not reached", "not yet spoken"],
        TaskStatus::Ready => ["READY", "READY", "in_progress", "in_progress", "pending", "pending",
            "pending", "not-started", "pending", "-", "pending", "-", "-", "next", "next", "candidate"],
        TaskStatus::AwaitingApproval => ["READY", "READY", "-", "-", "blocked", "-",
            "pending", "not-started", "pending", "approval wait", "approval wait", "-", "-", "human_input",
            "interrupted", "human input"],
        TaskStatus::Running if detached => ["-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-",
            "active", "backgrounded", "async", "-", "-"],
        TaskStatus::Running => ["RUNNING", "RUNNING", "in_progress", "in_progress", "in_progress", "in_progress",
            "in_progress", "in-progress", "pending", "running", "in_progress", "active", "running", "executing",
            "active node", "speaking"],
        TaskStatus::AwaitingInput => ["RUNNING", "RUNNING", "-", "-", "awaiting_review", "-",
            "in_progress", "in-progress", "pending", "wait", "in_progress", "active", "active", "human_input",
            "interrupt", "input requested"],
        TaskStatus::AwaitingReview => ["NEEDS_REVIEW", "NEEDS_REVIEW", "in_progress", "awaiting-review",
            "awaiting_review", "-", "in_progress", "in-progress", "pending", "-", "quality gate", "-", "-", "guardrail",
            "-", "-"],
        TaskStatus::NeedsRevision => ["READY", "RERUN", "needs-revision", "needs-revision", "pending", "pending",
            "in_progress", "in-progress", "pending", "-", "in_progress", "-", "-", "retry", "revise_plan", "-"],
        TaskStatus::Errored => ["ERRORED", "ERRORED", "failed", "failed", "errored", "failed",
            "failed", "failed", "failed", "-", "-", "-", "-", "error text", "error", "error"],
        TaskStatus::Blocked => ["PENDING", "PENDING", "-", "-", "blocked", "pending",
            "pending", "not-started", "pending", "waiting for dependency", "waiting for dependency", "-", "-", "-", "-",
            "-"],
        TaskStatus::Completed => ["COMPLETED", "COMPLETED", "completed", "completed", "completed", "completed",
            "completed", "completed", "completed", "completed", "completed", "completed", "completed", "output", "done",
            "message"],
        TaskStatus::Failed => ["FAILED", "FAILED", "failed", "failed", "errored", "failed",
            "failed", "failed", "failed", "failed", "failed", "failed", "failed", "exception", "error", "error"],
        TaskStatus::Escalated => ["FAILED", "FAILED", "escalated", "escalated",
            if resolved { "cancelled" } else { "awaiting_review" }, "-",
            "-", "-", "-", "handed to human", "handed to human", "-", "-", "-", "interrupt", "human mode"],
        TaskStatus::Skipped => ["CANCELLED", "CANCELLED", "skipped", "skipped", "cascade-skipped", "skipped",
            "-", "-", "-", "skipped", "skipped", "-", "-", "conditional skipped", "-", "-"],
        TaskStatus::Cancelled => ["CANCELLED", "CANCELLED", "-", "-", "cancelled", "skipped",
            "-", "-", "-", "retired", "cancelled", "killed", "killed", "-", "-", "-"],
    }
}

/// The system's word for a status.
pub fn native(system: System, status: TaskStatus, attributes: Attributes) -> Result<&'static str, CannotOccur> {
    let word = cells(status, attributes)[system as usize];
    let detached = attributes.detached && status == TaskStatus::Running;
    if word == "-" { Err(CannotOccur { system, status, detached }) } else { Ok(word) }
}

/// The query `native_view`: the tasks, in the order given, in the words of a system.
pub fn native_view(
    system: System,
    tasks: impl IntoIterator<Item = (TaskId, TaskStatus, Attributes)>,
) -> Vec<NativeTask> {
    let row = |(task, status, attributes)| {
        let native = native(system, status, attributes).ok().map(str::to_owned);
        NativeTask { task, status, native }
    };
    tasks.into_iter().map(row).collect()
}
