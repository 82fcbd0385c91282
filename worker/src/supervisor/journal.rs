//! What a supervisor notes for the log: one named fact each, with its data (supervisors.md §5.7).
//!
//! Invariant: notes are consequences of inputs that are in the log already, so a replay notes the same again; they are
//! recorded with the turn that brought them about, in order. They are for people and audits: no state is read from them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One noted fact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Note {
    pub kind: NoteKind,
    pub data: Value,
}

/// The names of facts. Names are the contract; a new one may be added, none is ever renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NoteKind {
    RunStarted,
    PhaseChanged,
    PlanProposed,
    PlanFeedback,
    PlanApproved,
    PlanRejected,
    PlanRevised,
    PlanSnapshot,
    TaskAdded,
    TaskPatched,
    TaskStatusChanged,
    TransitionRefused,
    ActionRefused,
    DecisionRequested,
    DecisionRecorded,
    AttemptStarted,
    AttemptCompleted,
    AttemptFailed,
    AttemptDropped,
    ReviewRecorded,
    FeedbackAttached,
    FinalMarked,
    TimerStarted,
    TimerFired,
    TimerCancelled,
    SignalReceived,
    UpdateAccepted,
    UpdateRefused,
    MailboxAppended,
    MailboxTrimmed,
    MailboxDropped,
    AgentRegistered,
    AgentRecruited,
    AgentRemoved,
    AgentRetired,
    AgentClosed,
    RecruitRefused,
    RoleAssigned,
    ChildStarted,
    ChildSignaled,
    ChildClosed,
    ApprovalRequested,
    ApprovalNotified,
    ApprovalDecided,
    ApprovalIgnored,
    ApprovalVoided,
    InterruptRaised,
    InterruptAnswered,
    EscalationRaised,
    EscalationResolved,
    HumanTookOver,
    HumanReleased,
    Paused,
    Resumed,
    CancelRequested,
    IncidentReported,
    TrustChanged,
    BudgetCharged,
    BudgetExhausted,
    ProgressEmitted,
    CompensationRun,
    SynthesisRecorded,
    SpeakerSelected,
    HandedOff,
    MessageAdded,
    ToolCalled,
    ToolAnswered,
    NoProgress,
    RunClosed,
    VersionMarker,
}
