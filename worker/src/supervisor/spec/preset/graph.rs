//! Presets whose tasks have dependencies: pydantask, flow-state, and CUGA.
//!
//! Invariant: each sets what its rows name; the rest is the spec's default.

use crate::supervisor::spec::sections::{
    DependencyPolicy, OnDelegationTimeout, OnExhausted, OnSubtaskError, PlanningMode, ProgressMessages, RejectStatus,
    Requires, ReviewScope, Selection, SynthesisMode,
};
use crate::supervisor::spec::whole::{Authority, SupervisorSpec};

fn pydantask(spec: &mut SupervisorSpec) {
    spec.dispatch.selection = Selection::Supervisor;
    // PDT-17: the default of the later versions; null is the seed's "all that are ready".
    spec.dispatch.max_concurrency = Some(4);
    spec.dependencies.on_failure = DependencyPolicy::Wait;
    spec.dependencies.on_cancelled = DependencyPolicy::Cancel;
    spec.review.scope = ReviewScope::Task;
    spec.review.max_attempts = 3;
    spec.review.reject_status = RejectStatus::Ready;
    (spec.run_loop.max_steps, spec.run_loop.no_progress) = (20, 3);
    spec.failure.on_subtask_error = OnSubtaskError::Repair;
    spec.synthesis.mode = SynthesisMode::FinalTask;
    spec.budget.on_exhausted = OnExhausted::Stop;
    spec.progress.messages = ProgressMessages::None;
    spec.authority = Authority::SELECTING.to_vec();
}

pub(super) fn pydantask_fixed(spec: &mut SupervisorSpec) {
    pydantask(spec);
    spec.planning.mode = PlanningMode::Fixed;
    // PDT-29: the tools of a fixed plan change no task.
    spec.authority.retain(|action| !matches!(action, Authority::Add | Authority::Patch | Authority::MarkFinal));
}

pub(super) fn pydantask_llm(spec: &mut SupervisorSpec) {
    pydantask(spec);
    spec.planning.mode = PlanningMode::Llm;
}

pub(super) fn pydantask_hybrid(spec: &mut SupervisorSpec) {
    pydantask(spec);
    spec.planning.mode = PlanningMode::Hybrid;
}

fn flow(spec: &mut SupervisorSpec) {
    spec.planning.mode = PlanningMode::Llm;
    spec.dispatch.selection = Selection::All;
    spec.dispatch.max_concurrency = Some(3);
    spec.run_loop.max_iterations = 3;
    spec.failure.on_subtask_error = OnSubtaskError::Skip;
    spec.dependencies.on_failure = DependencyPolicy::Skip;
    spec.dependencies.on_cancelled = DependencyPolicy::Skip;
    spec.synthesis.mode = SynthesisMode::Synthesizer;
    spec.progress.messages = ProgressMessages::Append;
    spec.authority = vec![Authority::Replan, Authority::Feedback, Authority::Escalate, Authority::Synthesize];
}

pub(super) fn flow_supervisor(spec: &mut SupervisorSpec) {
    flow(spec);
    spec.review.scope = ReviewScope::Iteration;
    spec.review.reject_status = RejectStatus::NeedsRevision;
    // FSS-40: a task waits for its dependencies of the same iteration.
    spec.dependencies.honour = true;
}

pub(super) fn flow_supervisor_per_task(spec: &mut SupervisorSpec) {
    flow(spec);
    spec.review.scope = ReviewScope::Task;
    spec.review.max_attempts = 3;
    spec.review.reject_status = RejectStatus::Pending;
    spec.failure.errored_is_terminal = true;
    // FSS-30: a task is sent back by itself, the plan is made once.
    spec.planning.replan = false;
}

pub(super) fn flow_plan_and_execute(spec: &mut SupervisorSpec) {
    flow(spec);
    spec.dispatch.selection = Selection::One;
    spec.dispatch.max_concurrency = Some(1);
    spec.dependencies.requires = Requires::CompletedOrSkipped;
    spec.review.scope = ReviewScope::None;
    spec.planning.replan = false;
    spec.run_loop.max_steps = 1_000;
    // FSP-04: a step that gives nothing has failed, at its first try, and what depends on it is skipped.
    (spec.failure.on_subtask_error, spec.failure.tries) = (OnSubtaskError::FailTask, 1);
}

pub(super) fn flow_coordinator(spec: &mut SupervisorSpec) {
    flow(spec);
    spec.review.scope = ReviewScope::None;
    spec.planning.replan = false;
    spec.run_loop.max_iterations = 1;
    // FSC-02: with `retry`, tries are the worker's own.
    spec.failure.tries = 1;
    spec.synthesis.mode = SynthesisMode::Merge;
    spec.authority = vec![Authority::Synthesize];
}

fn cuga(spec: &mut SupervisorSpec) {
    spec.run_loop.max_steps = 50;
    spec.budget.tool_calls = Some(256);
    spec.budget.on_exhausted = OnExhausted::Synthesize;
    spec.review.scope = ReviewScope::None;
    spec.progress.messages = ProgressMessages::Append;
    // CUG-43: one extra attempt.
    (spec.failure.tries, spec.failure.on_subtask_error) = (2, OnSubtaskError::FailTask);
    // CUG-41: a delegation that takes longer has failed.
    spec.delegation.on_timeout = OnDelegationTimeout::Fail;
    spec.delegation.corrective_retry = true;
    (spec.delegation.breaker, spec.delegation.repetition) = (0, 0);
}

pub(super) fn cuga_conversational(spec: &mut SupervisorSpec) {
    cuga(spec);
    spec.planning.mode = PlanningMode::Todos;
    spec.dispatch.selection = Selection::Agent;
    spec.synthesis.mode = SynthesisMode::LastMessage;
    spec.authority = vec![Authority::Delegate, Authority::RequestInput, Authority::Finish];
}

pub(super) fn cuga_structured(spec: &mut SupervisorSpec) {
    cuga(spec);
    spec.planning.mode = PlanningMode::Agents;
    spec.dispatch.selection = Selection::Controller;
    // CUG-43: a failed sub-task with dependents makes the controller conclude with what there is.
    spec.dependencies.on_failure = DependencyPolicy::Skip;
    spec.synthesis.mode = SynthesisMode::Synthesizer;
    spec.authority = vec![
        Authority::Select,
        Authority::Delegate,
        Authority::Patch,
        Authority::Replan,
        Authority::RequestApproval,
        Authority::Finish,
    ];
}
