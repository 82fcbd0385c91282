//! The sections of a spec: one struct each, with the key names and defaults of supervisors.md §5.6.
//!
//! Invariant: every key of a section is a field, an unknown one is refused; `Default` is what the requirements say. Here
//! is data only: what it means is done elsewhere.

mod delegation;
mod dispatch;
mod memory;
mod outcome;
mod people;
mod planning;
mod policy;
mod quality;
mod resume;
mod speaker;
mod team;

pub use delegation::{
    ContextSummary, Delegation, DelegationProtocol, DelegationScope, Handoff, HandoffControl, HandoffTools,
    OnDelegationTimeout, OutputMode,
};
pub use dispatch::{Dependencies, DependencyPolicy, Dispatch, OnUnmet, Parallelism, Requires, Selection, Topics};
pub use memory::{DepsTo, Memory, Routing};
pub use outcome::{
    Budget, Compensation, Degrade, OnExhausted, Progress, ProgressMessages, RunLimits, Synthesis, SynthesisMode,
};
pub use people::{
    Approval, Gate, Hitl, HitlException, HitlMode, OnApprovalTimeout, OnCriticalTimeout, PlanPolicy, Risk, Trigger,
    TriggerOrder, Triggers, Trust, TrustLevel, TrustRule, TrustRules,
};
pub use planning::{
    ByRequest, OnEmpty, PlanApproval, PlanPolicies, PlanTriggers, PlannedBuiltIn, Planning, PlanningMode,
    SupervisorMode, UpfrontStrategy,
};
pub use policy::{Policy, PolicyKind};
pub use quality::{
    Checkpoints, Failure, Loop, OnIdle, OnSubtaskError, Reflection, RejectStatus, Review, ReviewScope, RoundCount,
};
pub use resume::{Resume, Step};
pub use speaker::{ChatTeam, Fallback, Ledger, OnSpeakerError, Speaker, SpeakerMethod, TransitionsType, UnknownMethod};
pub use team::{LateRecruits, Mailbox, RecruitCondition, RecruitJoin, RecruitRule, Team, Trim};
