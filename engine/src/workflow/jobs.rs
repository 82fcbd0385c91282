//! From history to jobs: what an activating event tells the code, and what the events after it say the code noted.
//!
//! Invariant: the mapping depends on the events of the run alone, so live and replay give the code the same job. Ends of
//! activities and children are wrapped in a failure that names them, as in Temporal, with the cause inside.

use std::collections::{BTreeMap, BTreeSet};

use crate::vocabulary::*;

/// What a job needs to know of the run besides its event. The run machine has it; replay folds a [`JobTable`].
pub trait JobSources {
    /// The start of the run, if it was seen.
    fn started(&self) -> Option<&WorkflowExecutionStarted>;
    /// Whether its start waits for its moment: there is no code yet that could hear anything.
    fn is_before_its_code(&self) -> bool;
    /// The type and id of an activity.
    fn activity(&self, seq: Seq) -> Option<(&ActivityType, &ActivityId)>;
    /// The type and id of a child, and its run once it has started.
    fn child(&self, seq: Seq) -> Option<(&WorkflowType, &WorkflowId, Option<RunId>)>;
}

/// [`JobSources`] folded from events. Apply each event after its job was made; ended operations are forgotten.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobTable {
    started: Option<WorkflowExecutionStarted>,
    begins_later: bool,
    activities: BTreeMap<Seq, (ActivityType, ActivityId)>,
    children: BTreeMap<Seq, (WorkflowType, WorkflowId, Option<RunId>)>,
}

impl JobTable {
    /// Takes note of an event, for jobs of later ones.
    pub fn apply(&mut self, event: &EventKind) {
        match event {
            EventKind::WorkflowExecutionStarted(started) => {
                self.begins_later = started.start_at.is_some();
                self.started = Some((**started).clone());
            }
            EventKind::FirstWorkflowTaskScheduled => self.begins_later = false,
            EventKind::ActivityTaskScheduled(scheduled) => {
                let named = (scheduled.activity_type.clone(), scheduled.activity_id.clone());
                self.activities.insert(scheduled.seq, named);
            }
            EventKind::ActivityTaskCompleted { seq, .. }
            | EventKind::ActivityTaskFailed { seq, .. }
            | EventKind::ActivityTaskTimedOut { seq, .. }
            | EventKind::ActivityTaskCanceled { seq, .. } => {
                self.activities.remove(seq);
            }
            EventKind::StartChildWorkflowExecutionInitiated(child) => {
                let named = (child.workflow_type.clone(), child.workflow_id.clone(), None);
                self.children.insert(child.seq, named);
            }
            EventKind::ChildWorkflowExecutionStarted { seq, run_id } => {
                if let Some((_, _, run)) = self.children.get_mut(seq) {
                    *run = Some(*run_id);
                }
            }
            EventKind::StartChildWorkflowExecutionFailed { seq, .. }
            | EventKind::ChildWorkflowExecutionCompleted { seq, .. }
            | EventKind::ChildWorkflowExecutionFailed { seq, .. }
            | EventKind::ChildWorkflowExecutionCanceled { seq, .. }
            | EventKind::ChildWorkflowExecutionTimedOut { seq }
            | EventKind::ChildWorkflowExecutionTerminated { seq, .. } => {
                self.children.remove(seq);
            }
            _ => {}
        }
    }
}

impl JobSources for JobTable {
    fn started(&self) -> Option<&WorkflowExecutionStarted> {
        self.started.as_ref()
    }
    fn is_before_its_code(&self) -> bool {
        self.begins_later
    }
    fn activity(&self, seq: Seq) -> Option<(&ActivityType, &ActivityId)> {
        self.activities.get(&seq).map(|(activity_type, id)| (activity_type, id))
    }
    fn child(&self, seq: Seq) -> Option<(&WorkflowType, &WorkflowId, Option<RunId>)> {
        self.children.get(&seq).map(|(workflow_type, id, run)| (workflow_type, id, *run))
    }
}

/// The job of an activating event; `None` for every other event, for a start whose `WorkflowExecutionStarted` the
/// sources do not hold, and for a request to cancel that ended the run before its code began. Longer than a screen: one arm per kind.
// long: one exhaustive match; a variant more is a line more.
pub fn job_of(event: &EventKind, sources: &dyn JobSources) -> Option<Job> {
    use EventKind::*;
    Some(match event {
        WorkflowExecutionStarted(started) if started.start_at.is_none() => Job::InitializeWorkflow(first_seen(started)),
        FirstWorkflowTaskScheduled => Job::InitializeWorkflow(first_seen(sources.started()?)),
        WorkflowExecutionSignaled(signal) => Job::SignalWorkflow(signal.clone()),
        WorkflowExecutionCancelRequested { .. } if sources.is_before_its_code() => return None,
        WorkflowExecutionCancelRequested { reason, .. } => Job::CancelWorkflow { reason: reason.clone() },
        WorkflowExecutionUpdateAccepted { update_id, name, input, .. } => {
            Job::DoUpdate { update_id: update_id.clone(), name: name.clone(), input: input.clone() }
        }
        ActivityTaskCompleted { seq, result, .. } => Job::ResolveActivity { seq: *seq, result: Ok(result.clone()) },
        ActivityTaskFailed { seq, failure, retry_state } => activity_failed(sources, *seq, failure, *retry_state),
        ActivityTaskTimedOut { seq, failure, retry_state } => activity_failed(sources, *seq, failure, *retry_state),
        ActivityTaskCanceled { seq, details } => {
            activity_failed(sources, *seq, &canceled("activity canceled", details), RetryState::CancelRequested)
        }
        TimerFired { seq } => Job::FireTimer { seq: *seq },
        StartChildWorkflowExecutionFailed { seq, failure } => {
            let result = Err(child_failure(sources, *seq, failure.clone()));
            Job::ResolveChildWorkflowStart { seq: *seq, result }
        }
        ChildWorkflowExecutionStarted { seq, run_id } => {
            Job::ResolveChildWorkflowStart { seq: *seq, result: Ok(*run_id) }
        }
        ChildWorkflowExecutionCompleted { seq, result } => {
            Job::ResolveChildWorkflow { seq: *seq, result: Ok(result.clone()) }
        }
        ChildWorkflowExecutionFailed { seq, failure } => child_ended(sources, *seq, failure.clone()),
        ChildWorkflowExecutionCanceled { seq, details } => {
            child_ended(sources, *seq, canceled("child workflow canceled", details))
        }
        // As in Temporal: the timeout of a workflow is told as a start-to-close timeout.
        ChildWorkflowExecutionTimedOut { seq } => {
            child_ended(sources, *seq, Failure::timeout(TimeoutType::StartToClose, None))
        }
        ChildWorkflowExecutionTerminated { seq, reason } => {
            let cause = Failure { message: reason.clone(), kind: FailureKind::Terminated, cause: None };
            child_ended(sources, *seq, cause)
        }
        ExternalWorkflowExecutionSignaled { seq } => Job::ResolveSignalExternal { seq: *seq, result: Ok(()) },
        SignalExternalWorkflowExecutionFailed { seq, failure } => {
            Job::ResolveSignalExternal { seq: *seq, result: Err(failure.clone()) }
        }
        ExternalWorkflowExecutionCancelRequested { seq } => Job::ResolveCancelExternal { seq: *seq, result: Ok(()) },
        RequestCancelExternalWorkflowExecutionFailed { seq, failure } => {
            Job::ResolveCancelExternal { seq: *seq, result: Err(failure.clone()) }
        }
        other => {
            debug_assert_ne!(other.origin(), Origin::Activating, "{} activates and has no job", other.name());
            return None;
        }
    })
}

/// The start event as the code saw it that heard it first: in a fork, that of the run whose events were copied.
fn first_seen(started: &WorkflowExecutionStarted) -> Box<WorkflowExecutionStarted> {
    match started.before_forks().pop() {
        Some((_, original)) => Box::new(original),
        None => Box::new(started.clone()),
    }
}

fn canceled(message: &str, details: &Option<Payload>) -> Failure {
    Failure { message: message.into(), kind: FailureKind::Canceled { details: details.clone() }, cause: None }
}

fn activity_failed(sources: &dyn JobSources, seq: Seq, cause: &Failure, retry_state: RetryState) -> Job {
    let failure = match sources.activity(seq) {
        Some((activity_type, activity_id)) => Failure {
            message: format!("activity {activity_type} failed"),
            kind: FailureKind::Activity {
                activity_type: activity_type.clone(),
                activity_id: activity_id.clone(),
                retry_state,
            },
            cause: Some(Box::new(cause.clone())),
        },
        None => cause.clone(),
    };
    Job::ResolveActivity { seq, result: Err(failure) }
}

fn child_ended(sources: &dyn JobSources, seq: Seq, cause: Failure) -> Job {
    Job::ResolveChildWorkflow { seq, result: Err(child_failure(sources, seq, cause)) }
}

fn child_failure(sources: &dyn JobSources, seq: Seq, cause: Failure) -> Failure {
    let Some((workflow_type, workflow_id, run_id)) = sources.child(seq) else { return cause };
    Failure {
        message: format!("child workflow {workflow_id} failed"),
        kind: FailureKind::ChildWorkflow {
            workflow_type: workflow_type.clone(),
            workflow_id: workflow_id.clone(),
            run_id,
            retry_state: None,
        },
        cause: Some(Box::new(cause)),
    }
}

/// What the events that answer an activation say the code noted during it.
pub fn markers_of<'a>(recorded: impl IntoIterator<Item = &'a EventKind>) -> Markers {
    let mut side_effects = BTreeMap::new();
    let mut patches = BTreeSet::new();
    for event in recorded {
        match event {
            EventKind::MarkerRecorded(Marker::SideEffect { seq, value }) => {
                side_effects.insert(*seq, value.clone());
            }
            EventKind::MarkerRecorded(Marker::Patch { id, .. }) => {
                patches.insert(id.clone());
            }
            _ => {}
        }
    }
    Markers::Recorded { side_effects: side_effects.into(), patches }
}
