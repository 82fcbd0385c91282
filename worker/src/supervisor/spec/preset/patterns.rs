//! Patterns that are no system of their own: a draft that is graded and done again, and items that are worked on side by side.
//!
//! Invariant: they only set values, so that budgets, approvals, pauses, crashes and replay hold for them as for every plan.

use crate::supervisor::spec::sections::{
    DependencyPolicy, OnExhausted, OnSubtaskError, PlanningMode, ProgressMessages, RejectStatus, ReviewScope,
    Selection, SynthesisMode,
};
use crate::supervisor::spec::whole::{Authority, SupervisorSpec};

/// The first agent writes, `reviewer` grades by `review.criteria`, and what is rejected is written again with the feedback:
/// three drafts in all. The result is the last draft, and a success only if it was accepted. A grader that fails, or whose
/// answer is no grade, judges nothing: it is asked again (`review.tries`), and then the run ends with the code `reviewer_error`.
pub(super) fn evaluator_optimizer(spec: &mut SupervisorSpec) {
    spec.planning.mode = PlanningMode::None;
    spec.dispatch.selection = Selection::All;
    spec.dispatch.max_concurrency = Some(1);
    spec.review.scope = ReviewScope::Task;
    spec.review.max_attempts = 3;
    spec.review.reject_status = RejectStatus::NeedsRevision;
    spec.failure.on_subtask_error = OnSubtaskError::FailTask;
    spec.synthesis.mode = SynthesisMode::LastOutput;
    spec.progress.messages = ProgressMessages::None;
    spec.authority = vec![Authority::Feedback, Authority::Finish];
}

/// The tasks of a plan file (PDT-13 to PDT-26): all that are ready run, four at a time, lowest id first; each is judged by
/// its own rules; what depends on a task that failed waits, and on one that was cancelled is cancelled. Nobody plans,
/// reviews or is told anything on the way, and the final task's result is the run's.
pub(super) fn plan_run(spec: &mut SupervisorSpec) {
    spec.planning.mode = PlanningMode::Fixed;
    spec.planning.replan = false;
    spec.dispatch.selection = Selection::All;
    spec.dispatch.max_concurrency = Some(4);
    spec.dependencies.on_failure = DependencyPolicy::Wait;
    spec.dependencies.on_cancelled = DependencyPolicy::Cancel;
    spec.review.scope = ReviewScope::Rules;
    spec.failure.on_subtask_error = OnSubtaskError::Repair;
    spec.synthesis.mode = SynthesisMode::FinalTask;
    spec.budget.on_exhausted = OnExhausted::Stop;
    spec.progress.messages = ProgressMessages::None;
    (spec.team.recruit, spec.hitl.enabled, spec.trust.enabled) = (false, false, false);
    (spec.memory.advisor, spec.memory.record) = (false, false);
    spec.failure.threshold_bp = None;
}

/// The planner finds the items when the run begins, a task each; five are worked on at a time, and the synthesizer makes one
/// result of all. An item that fails is left out and told of: `failure` says whether the others settle without it.
pub(super) fn map_reduce(spec: &mut SupervisorSpec) {
    spec.planning.mode = PlanningMode::Llm;
    spec.planning.replan = false;
    spec.dispatch.selection = Selection::All;
    spec.dispatch.max_concurrency = Some(5);
    spec.dependencies.on_failure = DependencyPolicy::Skip;
    spec.review.scope = ReviewScope::None;
    spec.failure.on_subtask_error = OnSubtaskError::FailTask;
    spec.synthesis.mode = SynthesisMode::Synthesizer;
    spec.progress.messages = ProgressMessages::None;
    spec.authority = vec![Authority::Synthesize, Authority::Finish];
}
