//! Presets of Shannon: the supervisor, the DAG, and the simple task.
//!
//! Invariant: each sets what its rows name; the rest is the spec's default, which is mostly Shannon's.

use crate::supervisor::spec::sections::{
    DependencyPolicy, OnSubtaskError, Parallelism, PlanningMode, ProgressMessages, ReviewScope, Selection,
    SynthesisMode,
};
use crate::supervisor::spec::whole::{Authority, SupervisorSpec};

fn shannon(spec: &mut SupervisorSpec) {
    spec.planning.mode = PlanningMode::Llm;
    spec.dispatch.parallelism = Parallelism::Dependency;
    spec.dispatch.selection = Selection::All;
    // SHN-47: whatever waits for nothing runs.
    spec.dispatch.max_concurrency = None;
    // A failed dependency lets its dependents run without its result (supervisors.md §4.1 no. 8, SHD-03).
    spec.dependencies.on_failure = DependencyPolicy::Run;
    spec.review.scope = ReviewScope::None;
    spec.failure.tries = 3;
    spec.failure.on_subtask_error = OnSubtaskError::FailTask;
    spec.planning.replan = false;
    spec.synthesis.mode = SynthesisMode::Synthesizer;
    spec.synthesis.bypass_single = true;
    // SHN-48: duplicates are Shannon's to remove, and nobody else's (FSS-42).
    spec.synthesis.dedupe = true;
    spec.progress.messages = ProgressMessages::None;
}

pub(super) fn supervisor(spec: &mut SupervisorSpec) {
    shannon(spec);
    spec.routing.enabled = true;
    spec.failure.threshold_bp = Some(5_000);
    spec.authority = vec![
        Authority::Select,
        Authority::Recruit,
        Authority::Retire,
        Authority::SendMessage,
        Authority::Broadcast,
        Authority::RequestApproval,
        Authority::RequestInput,
        Authority::Escalate,
        Authority::Synthesize,
        Authority::Finish,
    ];
}

pub(super) fn dag(spec: &mut SupervisorSpec) {
    shannon(spec);
    spec.dispatch.max_concurrency = Some(5);
    spec.authority = vec![Authority::Synthesize, Authority::Finish];
}

pub(super) fn simple(spec: &mut SupervisorSpec) {
    shannon(spec);
    spec.planning.mode = PlanningMode::None;
    spec.dispatch.max_concurrency = Some(1);
    spec.synthesis.mode = SynthesisMode::LastOutput;
    spec.authority = vec![Authority::Finish];
}
