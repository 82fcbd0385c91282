//! The runs below a run: the children it started, and theirs.
//!
//! Invariant: only children of the very run are found, and those that it waits for although an earlier run started them; not
//! those of an earlier run of the same id, unless that is a supervisor that goes on in this one; of one that was reset only the
//! run that stands, which has what it kept of the other; what is left out because there is too much of it (earlier runs,
//! children) is said. It reads the index of runs and asks no workflow.

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::*;

use crate::backend::{Backend, CallError};
use crate::inbox::target_of;
use crate::supervisor::PLAN_RUN;
use crate::supervisor::run::SUPERVISOR;

/// Runs that are looked at.
const RUNS_MAX: usize = 10_000;
/// Earlier runs that go on in this one and are looked at: each is asked for by itself.
const EARLIER_MAX: usize = 1_000;
/// Children of one run that are looked at.
const CHILDREN_MAX: usize = 1_000;

/// A run and those below it, a parent before its children.
pub(crate) struct RunTree {
    pub runs: Vec<ChildRun>,
    /// There are more than were looked at.
    pub cut: bool,
}

impl RunTree {
    /// Without runs that were looked through for what they have left to the runs in their places, which are there instead.
    fn only_standing(&mut self, resets: &BTreeMap<RunId, RunId>) {
        let there: BTreeSet<RunId> = self.runs.iter().filter_map(|run| run.target.run_id).collect();
        let stands = |run: RunId| resets.get(&run).is_none_or(|next| !there.contains(next));
        self.runs.retain(|run| run.target.run_id.is_none_or(stands));
    }
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
    let described = backend.describe(target).await?;
    let (info, waits_for) = (described.info, described.pending_children);
    let mut below = RunTree { runs: vec![found(&info)], cut: false };
    earlier(backend, info, &mut below).await?;
    let mut seen: BTreeSet<RunId> = below.runs.iter().filter_map(|run| run.target.run_id).collect();
    let mut waits_for: Vec<RunId> = waits_for.into_iter().filter_map(|child| child.run_id).collect();
    let (mut next, mut full) = (0, false);
    let mut resets: BTreeMap<RunId, RunId> = BTreeMap::new();
    let mut goes_on_in = |rows: &[RunInfo]| {
        let next = rows.iter().filter_map(|row| Some((row.run_id, after_reset(row)?)));
        next.inspect(|(run, next)| _ = resets.insert(*run, *next)).map(|(_, next)| next).collect::<Vec<RunId>>()
    };
    while !full {
        if next == below.runs.len() {
            // A reset run goes on with children that name the run before it as the one above them.
            waits_for.retain(|child| seen.insert(*child));
            if waits_for.is_empty() || !into(&below.runs[0].workflow_type) {
                break;
            }
            let rows = listed(backend, &std::mem::take(&mut waits_for)).await?;
            waits_for = goes_on_in(&rows);
            below.runs.extend(rows.iter().map(found));
            full = below.runs.len() > RUNS_MAX;
            continue;
        }
        let run = &below.runs[next];
        next += 1;
        if !into(&run.workflow_type) {
            continue;
        }
        let Some(run_id) = run.target.run_id else { continue };
        let query = format!("ParentRunId = '{run_id}'");
        let children = backend.list(ListRequest { query, limit: CHILDREN_MAX }).await?;
        full = children.len() == CHILDREN_MAX || below.runs.len() + children.len() > RUNS_MAX;
        waits_for.extend(goes_on_in(&children));
        below.runs.extend(children.iter().filter(|child| seen.insert(child.run_id)).map(found));
    }
    below.cut |= full;
    below.only_standing(&resets);
    Ok(below)
}

fn found(info: &RunInfo) -> ChildRun {
    ChildRun { target: target_of(info), workflow_type: info.workflow_type.clone(), open: info.status.is_open() }
}

/// The run that a reset has put in the place of this one, which the run above waits for now: where that one was reset too, no
/// row names the two together.
fn after_reset(info: &RunInfo) -> Option<RunId> {
    info.next_run.filter(|_| info.status == WorkflowStatus::Terminated)
}

/// The runs that go on in this one.
async fn earlier(backend: &dyn Backend, info: RunInfo, below: &mut RunTree) -> Result<(), CallError> {
    let mut earliest = info;
    while let Some(from) = earliest.continued_from.filter(|_| goes_on(&earliest.workflow_type)) {
        // Each asks for the one before by its id, which it has from a history: no end is sure but this one.
        if below.runs.len() > EARLIER_MAX {
            below.cut = true;
            break;
        }
        let before = Target { run_id: Some(from), ..target_of(&earliest) };
        earliest = match backend.describe(before).await {
            Ok(before) => before.info,
            // Deleted, or the cluster does not keep it any more.
            Err(CallError::Rejected(Rejection::NotFound { .. })) => break,
            Err(why) => return Err(why),
        };
        below.runs.push(found(&earliest));
    }
    Ok(())
}

/// The rows of these runs.
async fn listed(backend: &dyn Backend, runs: &[RunId]) -> Result<Vec<RunInfo>, CallError> {
    let mut all = Vec::new();
    for some in runs.chunks(CHILDREN_MAX / 10) {
        let ids: Vec<String> = some.iter().map(|run| format!("'{run}'")).collect();
        let query = format!("RunId IN ({})", ids.join(", "));
        all.extend(backend.list(ListRequest { query, limit: CHILDREN_MAX }).await?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, run_info};

    fn run_id(n: usize) -> RunId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&(n as u64 + 1).to_be_bytes());
        RunId(id)
    }

    /// A supervisor that has gone on so many times, the last run first; the last has a child.
    fn gone_on(times: usize) -> Fake {
        let mut fake = Fake::new();
        let one = |n: usize| {
            let open = if n == times { WorkflowStatus::Running } else { WorkflowStatus::ContinuedAsNew };
            RunInfo {
                workflow_type: WorkflowType::of(SUPERVISOR),
                run_id: run_id(n),
                continued_from: n.checked_sub(1).map(run_id),
                ..run_info("long", open)
            }
        };
        fake.runs = (0..=times).rev().map(one).collect();
        let parent = Parent {
            workflow_id: "long".into(),
            run_id: run_id(times),
            seq: Seq(1),
            close_policy: ParentClosePolicy::Terminate,
        };
        let child = run_info("child", WorkflowStatus::Running);
        fake.runs.push(RunInfo { parent: Some(parent), run_id: run_id(times + 1), ..child });
        fake
    }

    /// A reset run goes on with the children of the run before it: what they ask is asked by what is below it.
    #[tokio::test]
    async fn a_reset_run_has_the_children_that_it_kept() {
        let mut fake = gone_on(0);
        let parent = fake.runs[1].parent.clone();
        fake.runs[1].parent = parent.map(|parent| Parent { run_id: run_id(9), ..parent });
        fake.described = |description| {
            if description.info.workflow_id.as_str() == "long" {
                let (workflow_id, workflow_type) = ("child".into(), WorkflowType::of(SUPERVISOR));
                let kept = PendingChild { seq: Seq(1), workflow_id, workflow_type, run_id: Some(run_id(1)) };
                description.pending_children = vec![kept];
            }
        };
        let found = below(&fake, Target::run("long".into(), run_id(0)), |_| true).await.unwrap();
        let names: Vec<&str> = found.runs.iter().map(|run| run.target.workflow_id.as_str()).collect();
        assert_eq!(names, ["long", "child"]);
        // The child names the run above it: it is found once.
        fake.runs[1].parent = fake.runs[1].parent.clone().map(|parent| Parent { run_id: run_id(0), ..parent });
        let found = below(&fake, Target::run("long".into(), run_id(0)), |_| true).await.unwrap();
        assert_eq!(found.runs.len(), 2);
    }

    /// The run above was reset, and then the one below it: what the one below asks now is found, and once.
    #[tokio::test]
    async fn a_run_below_that_was_reset_is_found_where_it_goes_on() {
        let mut fake = gone_on(0);
        let parent = fake.runs[1].parent.clone();
        let before = RunInfo {
            status: WorkflowStatus::Terminated,
            next_run: Some(run_id(2)),
            parent: parent.map(|parent| Parent { run_id: run_id(9), ..parent }),
            ..fake.runs[1].clone()
        };
        let now = RunInfo { run_id: run_id(2), status: WorkflowStatus::Running, next_run: None, ..before.clone() };
        fake.runs[1] = before;
        fake.described = |description| {
            if description.info.workflow_id.as_str() == "long" {
                let (workflow_id, workflow_type) = ("child".into(), WorkflowType::of(SUPERVISOR));
                let kept = PendingChild { seq: Seq(1), workflow_id, workflow_type, run_id: Some(run_id(1)) };
                description.pending_children = vec![kept];
            }
        };
        fake.runs.push(now);
        let found = below(&fake, Target::run("long".into(), run_id(0)), |_| true).await.unwrap();
        let runs: Vec<_> = found.runs.iter().map(|run| (run.target.run_id, run.open)).collect();
        assert_eq!(runs, [(Some(run_id(0)), true), (Some(run_id(2)), true)]);
    }

    /// It may have gone on for years: what is left out is said, and what is below the run itself is found all the same.
    #[tokio::test]
    async fn a_chain_of_earlier_runs_is_cut_where_it_is_long_and_that_is_said() {
        for (times, cut) in [(3, false), (EARLIER_MAX + 20, true)] {
            let fake = gone_on(times);
            let found = below(&fake, Target::run("long".into(), run_id(times)), |_| true).await.unwrap();
            assert_eq!(found.cut, cut, "{times}");
            let is_child = |run: &ChildRun| run.target.workflow_id.as_str() == "child";
            assert_eq!(found.runs.iter().filter(|run| is_child(run)).count(), 1, "{times}");
            assert_eq!(found.runs.len(), times.min(EARLIER_MAX) + 2, "{times}");
        }
    }
}
