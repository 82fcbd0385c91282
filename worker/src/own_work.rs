//! What only runs of Bosun's own may have done: activities that act for whoever asked, by the word of their input. And what is not
//! done to them as to other runs: a schedule is ended by its own verbs.
//!
//! Invariant: the input of such an activity is believed only in a run of the one type whose door writes it. Any other workflow
//! can name any activity, with any input: what it says of who asks is nobody's word.

use bosun_engine::{
    ActivityContext, ActivityError, Failure, IdConflictPolicy, Rejection, StartWorkflow, Target, WorkflowId,
    WorkflowType,
};

use crate::backend::Backend;
use crate::schedule::{ID_PREFIX, IsSchedule, SCHEDULE};
use crate::{batch, notify, standalone};

/// The type of the failure; no retry mends it.
pub(crate) const NOT_FOR_OTHERS: &str = "NotForOthers";

/// Refuses to work for any run but those of this workflow type.
pub(crate) fn only_in(ctx: &ActivityContext, workflow_type: &str) -> Result<(), ActivityError> {
    let task = ctx.task();
    if task.workflow_type.as_str() == workflow_type {
        return Ok(());
    }
    let why = format!(
        "{} works for runs of {workflow_type} only, and this run is of {}: what its input says of who asks is nobody's word",
        task.activity_type, task.workflow_type
    );
    Err(Failure::application(NOT_FOR_OTHERS, why).non_retryable().into())
}

/// What the ids of Bosun's own runs begin with, and the type of those runs.
const OWN_IDS: [(&str, &str); 4] = [
    (ID_PREFIX, SCHEDULE),
    (batch::ID_PREFIX, batch::BATCH),
    (standalone::ID_PREFIX, standalone::ACTIVITY),
    (notify::ID_PREFIX, notify::NOTIFICATION),
];

/// Refuses to name a run as Bosun names its own: the verbs of a schedule would take it for one.
pub(crate) fn may_have_id(id: &WorkflowId, workflow_type: &WorkflowType) -> Result<(), Rejection> {
    let own = OWN_IDS.into_iter().find(|(prefix, _)| id.as_str().starts_with(prefix));
    // A schedule starts what it starts by runs of `bosun.schedule.action`.
    let is_of = |own_type: &str| match workflow_type.as_str().strip_prefix(own_type) {
        Some(rest) => rest.is_empty() || rest.starts_with('.'),
        None => false,
    };
    match own {
        Some((prefix, own_type)) if !is_of(own_type) => {
            let why = format!("ids that begin with {prefix} are for runs of {own_type}: choose another id");
            Err(Rejection::Invalid { what: format!("the workflow id {id}"), why })
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses a start that would end the run of a schedule to have its id.
pub(crate) async fn may_be_started(backend: &dyn Backend, start: &StartWorkflow) -> Result<(), IsSchedule> {
    if start.id_conflict_policy != IdConflictPolicy::TerminateExisting {
        return Ok(());
    }
    let id = Target::workflow(start.workflow_id.clone());
    may_be_ended(backend, &Target { namespace: start.namespace.clone(), ..id }).await
}

/// Refuses to end the run of a schedule. Only what may be one by its id is looked at.
pub(crate) async fn may_be_ended(backend: &dyn Backend, target: &Target) -> Result<(), IsSchedule> {
    if !target.workflow_id.as_str().starts_with(ID_PREFIX) {
        return Ok(());
    }
    // What cannot be looked at is refused by whoever ends it.
    backend.describe(target.clone()).await.map_or(Ok(()), |found| IsSchedule::of(&found.info))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_bosuns_own_runs_are_for_those_alone() {
        for (prefix, own) in OWN_IDS {
            let id = WorkflowId::of(format!("{prefix}x"));
            let refused = may_have_id(&id, &WorkflowType::of("kitchen-sink")).unwrap_err().to_string();
            assert!(refused.contains(prefix) && refused.contains(own), "{refused}");
            assert_eq!(may_have_id(&id, &WorkflowType::of(own)), Ok(()));
        }
        assert_eq!(may_have_id(&WorkflowId::of("scheduled"), &WorkflowType::of("kitchen-sink")), Ok(()));
    }
}
