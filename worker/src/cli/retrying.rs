//! Attempts that failed and are made again, of a run and of all runs below it: nobody is asked, and nothing else tells of them.
//!
//! Invariant: it only reads. What cannot be read now is left out: the next look shows it.

use bosun_engine::*;

use super::list::shell_word;
use super::time_format::short;
use super::waiting::WaitingRow;
use crate::backend::Backend;

/// Runs that one look asks.
const ASKED_MAX: usize = 40;

/// An activity between two attempts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RetryingActivity {
    run: WorkflowId,
    id: String,
    what: String,
    next: Option<Timestamp>,
    pub(super) failure: String,
}

impl RetryingActivity {
    /// The same whichever attempt it is at.
    pub(super) fn key(&self) -> (WorkflowId, String, String) {
        (self.run.clone(), self.id.clone(), self.failure.clone())
    }

    pub(super) fn row(&self, now: Timestamp) -> WaitingRow {
        let next = match self.next {
            Some(at) if at > now => format!("in {}", short(at.since(now))),
            _ => "now".to_owned(),
        };
        WaitingRow {
            id: format!("{}/{}", self.run, self.id),
            whom: format!("the next attempt of {}", self.what),
            what: format!("{next}; the last one failed: {}", self.failure),
            answer: format!("bosun describe {}", shell_word(self.run.as_str())),
        }
    }
}

pub(super) async fn retrying(backend: &dyn Backend, target: &Target) -> Vec<RetryingActivity> {
    let (mut ahead, mut found) = (vec![target.clone()], Vec::new());
    for _ in 0..ASKED_MAX {
        let Some(target) = ahead.pop() else { break };
        let Ok(description) = backend.describe(target.clone()).await else { continue };
        let run = &description.info.workflow_id;
        found.extend(description.pending_activities.iter().filter_map(|activity| of(run, activity)));
        let below = description.pending_children.into_iter();
        ahead.extend(
            below.map(|child| Target { namespace: target.namespace.clone(), ..Target::workflow(child.workflow_id) }),
        );
    }
    found
}

fn of(run: &WorkflowId, activity: &PendingActivity) -> Option<RetryingActivity> {
    let failure = activity.last_failure.as_ref().filter(|_| activity.state == PendingActivityState::BackingOff)?;
    Some(RetryingActivity {
        run: run.clone(),
        id: activity.activity_id.to_string(),
        what: activity.activity_type.to_string(),
        next: activity.next_attempt_at,
        failure: failure.to_string(),
    })
}
