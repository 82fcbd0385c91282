//! The runs below a run: the children it started, and theirs.
//!
//! Invariant: only children of the very run are found, not those of an earlier run of the same id, unless that is a supervisor
//! that goes on in this one; what is left out because there is too much of it is said. It reads the index of runs and asks no workflow.

use bosun_engine::*;

use crate::backend::{Backend, CallError};
use crate::inbox::target_of;
use crate::supervisor::PLAN_RUN;
use crate::supervisor::run::SUPERVISOR;

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

/// Whether runs of this type go on in new ones by themselves, and are one to whoever looks.
fn goes_on(workflow_type: &WorkflowType) -> bool {
    [SUPERVISOR, PLAN_RUN].contains(&workflow_type.as_str())
}

/// The run, the earlier ones that go on in it, and all below them. `into` says whether what is below a run of that type is looked for.
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
    let mut earliest = info;
    while let Some(from) = earliest.continued_from.filter(|_| goes_on(&earliest.workflow_type)) {
        let before = Target { run_id: Some(from), ..target_of(&earliest) };
        earliest = match backend.describe(before).await {
            Ok(before) => before.info,
            // Deleted, or the cluster does not keep it any more.
            Err(CallError::Rejected(Rejection::NotFound { .. })) => break,
            Err(why) => return Err(why),
        };
        below.runs.push(found(&earliest));
    }
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
