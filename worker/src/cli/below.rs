//! The runs below a run: the children it started, and theirs.
//!
//! Invariant: only children of the very run are found, not those of an earlier run of the same id; what is left out
//! because there is too much of it is said. It reads the index of runs and asks no workflow.

use bosun_engine::*;

use crate::backend::{Backend, CallError};
use crate::inbox::target_of;

/// Runs that are looked at.
const RUNS_MAX: usize = 10_000;
/// Children of one run that are looked at.
const CHILDREN_MAX: usize = 1_000;

/// A run and those below it, a parent before its children.
pub(crate) struct RunTree {
    pub runs: Vec<ChildRun>,
    /// There are more than were looked at.
    pub cut: bool,
}

pub(crate) struct ChildRun {
    pub target: Target,
    pub workflow_type: WorkflowType,
    pub open: bool,
}

/// The run and all below it. `into` says whether what is below a run of that type is looked for.
pub(crate) async fn below(
    backend: &dyn Backend,
    target: Target,
    into: fn(&WorkflowType) -> bool,
) -> Result<RunTree, CallError> {
    let info = backend.describe(target).await?.info;
    let found = |info: &RunInfo| ChildRun {
        target: target_of(info),
        workflow_type: info.workflow_type.clone(),
        open: info.status == WorkflowStatus::Running,
    };
    let mut below = RunTree { runs: vec![found(&info)], cut: false };
    let mut next = 0;
    while next < below.runs.len() && !below.cut {
        let run = &below.runs[next];
        next += 1;
        if !into(&run.workflow_type) {
            continue;
        }
        let Some(run_id) = run.target.run_id else { continue };
        let query = format!("ParentRunId = '{run_id}'");
        let children = backend.list(ListRequest { query, limit: CHILDREN_MAX }).await?;
        below.cut = children.len() == CHILDREN_MAX || below.runs.len() + children.len() > RUNS_MAX;
        below.runs.extend(children.iter().map(found));
    }
    Ok(below)
}
