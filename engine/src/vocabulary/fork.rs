//! Forks and resets: a new run that begins with the history of another one, up to an event. A fork has a workflow id of its
//! own and leaves the source alone; a reset goes on under the same id, in the place of the run that was open.
//!
//! ```text
//!   source   Started ── … ── event n ── n+1 ── …
//!                                │ copied as it is
//!   fork     Started ── … ── event n ── Forked ── what is told ── new decisions
//! ```
//!
//! Invariant: the copied events have the ids and times they had, and the code that hears them sees what it saw then: the
//! ids of the source, from which random values and run ids of children derive. From the event
//! [`EventKind::WorkflowExecutionForked`] on the run is itself. What differs in the start event of a fork is kept in
//! [`ForkedFrom`], so that lineage of any depth can be read from the history alone. This file decides nothing.

use serde::{Deserialize, Serialize};

use super::*;

/// The place in another run where a fork begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkPoint {
    /// The id of the source.
    pub workflow_id: WorkflowId,
    /// Which of its runs.
    pub run_id: RunId,
    /// The last event that was copied; 0: none, the fork began anew.
    pub event: EventId,
    /// The run goes on under the workflow id of its source: a reset. Left out where it is none, so that old events keep
    /// their bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reset: bool,
}

/// What takes the place of a run that was ended by a reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetInto {
    /// The run that goes on.
    pub run_id: RunId,
    /// Children (the numbers of the commands that asked for them) that go on as that run's.
    pub children: Vec<Seq>,
}

/// Where a forked run comes from, and what its start event said there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkedFrom {
    /// The last event that was copied, and of which run.
    pub point: ForkPoint,
    /// When the fork was made; lists show the run as started then.
    pub at: Timestamp,
    /// The namespace of the source; the fork may be in another.
    pub namespace: Namespace,
    /// The first run of the source's chain.
    pub first_run: RunId,
    /// The run before the source in its chain.
    pub continued_from: Option<RunId>,
    /// The workflow whose child the source is; the fork has no parent.
    pub parent: Option<Parent>,
    /// The request that started the source.
    pub request_id: Option<RequestId>,
    /// Who started the source.
    pub identity: Option<Identity>,
    /// The source is a fork itself.
    pub forked_from: Option<Box<ForkedFrom>>,
}

impl ForkedFrom {
    /// A run that was made of the one that started so, up to this point of it.
    pub fn of(started: &WorkflowExecutionStarted, point: ForkPoint, at: Timestamp) -> Self {
        ForkedFrom {
            point,
            at,
            namespace: started.namespace.clone(),
            first_run: started.first_run,
            continued_from: started.continued_from,
            parent: started.parent.clone(),
            request_id: started.request_id.clone(),
            identity: started.identity.clone(),
            forked_from: started.forked_from.clone(),
        }
    }
}

impl WorkflowExecutionStarted {
    /// The start event of the run that this one was forked from, as its code saw it.
    fn before_fork(&self) -> Option<(RunId, WorkflowExecutionStarted)> {
        let from = self.forked_from.as_deref().filter(|from| from.point.event > EventId(0))?;
        let before = WorkflowExecutionStarted {
            namespace: from.namespace.clone(),
            workflow_id: from.point.workflow_id.clone(),
            first_run: from.first_run,
            continued_from: from.continued_from,
            parent: from.parent.clone(),
            request_id: from.request_id.clone(),
            identity: from.identity.clone(),
            forked_from: from.forked_from.clone(),
            ..self.clone()
        };
        Some((from.point.run_id, before))
    }

    /// The runs whose history this one begins with, the nearest first, with the start event that the code of each saw.
    pub fn before_forks(&self) -> Vec<(RunId, WorkflowExecutionStarted)> {
        let mut found: Vec<(RunId, WorkflowExecutionStarted)> = Vec::new();
        let mut next = self.before_fork();
        while let Some(before) = next {
            next = before.1.before_fork();
            found.push(before);
        }
        found
    }

    /// The run whose code saw the first event: this one (`own`) unless it was forked.
    pub fn original_run(&self, own: RunId) -> RunId {
        let mut run = own;
        let mut next = self.forked_from.as_deref();
        while let Some(from) = next.filter(|from| from.point.event > EventId(0)) {
            run = from.point.run_id;
            next = from.forked_from.as_deref();
        }
        run
    }
}
