//! What a crew did of its list, a line a task.
//!
//! Invariant: a task is completed only if its output was accepted; one that was never begun is told so. It changes nothing.

use super::agent_loop::{AgentLoop, Workload};
use crate::supervisor::core::account::SPENT;
use crate::supervisor::task::TaskStatus;

/// Why a task was skipped that nobody has denied.
const UNMET: &str = "its condition does not hold";

/// Of one that the crew did not come to.
const UNBEGUN: &str = "the run ended before it was begun";

/// One task of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrewLine {
    pub id: String,
    pub objective: String,
    pub status: TaskStatus,
    /// The coworker it is for, if there is only one.
    pub agent: Option<String>,
    /// How often the manager was set to it.
    pub attempts: u32,
    pub error: Option<String>,
    pub output: Option<String>,
}

impl AgentLoop {
    /// Whether a task was left out that nothing excuses.
    pub(super) fn lacks_required(&self) -> bool {
        let Workload::Crew(run) = &self.work else { return false };
        let skipped = |at: usize| run.outputs.get(&at).is_some_and(|output| output.skipped);
        run.tasks.iter().enumerate().any(|(at, task)| task.required && skipped(at))
    }

    /// Whether the run is no success for what a person said, or did not say: who begins it again asks them again.
    pub(super) fn is_rejected(&self) -> bool {
        let crew = match &self.work {
            Workload::Crew(run) => match &run.failed {
                Some((at, _)) => run.denied.contains_key(at),
                None => self.leaves_out_denied() && !self.has_something(),
            },
            Workload::Conversation { .. } | Workload::Steps(_) => false,
        };
        self.refused || crew || self.is_refused_below()
    }

    /// Whether nothing but a person's no to what went on in the background keeps the run from its success.
    fn is_refused_below(&self) -> bool {
        let ok = self.outcome().is_some_and(|outcome| outcome.ok && !outcome.policy_blocked);
        let refused = self.failed_below.keys().all(|id| self.refused_below.contains(id));
        ok && !self.is_cut() && !self.lacks_required() && refused && !self.failed_below.is_empty()
    }

    /// Whether it has ended by itself without a task that a person did not let begin.
    pub(super) fn leaves_out_denied(&self) -> bool {
        let Workload::Crew(run) = &self.work else { return false };
        !run.denied.is_empty() && !self.is_cut() && self.outcome().is_some_and(|outcome| outcome.ok)
    }

    /// The same without one whose condition did not hold.
    pub(super) fn leaves_out_any(&self) -> bool {
        let Workload::Crew(run) = &self.work else { return false };
        let skipped = || run.outputs.values().any(|output| output.skipped);
        self.leaves_out_denied() || (skipped() && !self.is_cut() && self.outcome().is_some_and(|outcome| outcome.ok))
    }

    /// What ended the tasks that were under way: the run was cancelled, or another task has failed.
    fn ended_with(&self) -> Option<String> {
        let Workload::Crew(run) = &self.work else { return None };
        let error = || self.outcome().and_then(|outcome| outcome.error.clone());
        let beside = |(at, why): &(usize, String)| {
            let failed = run.tasks.get(*at).map(|task| task.id.as_str()).unwrap_or_default();
            format!("it was stopped when task '{failed}' could not be done: {why}")
        };
        run.failed.as_ref().map(beside).or_else(error)
    }

    /// The tasks of a crew in the order of its list; none of other loops.
    pub fn crew_lines(&self) -> Vec<CrewLine> {
        let Workload::Crew(run) = &self.work else { return Vec::new() };
        let over = self.outcome().is_some();
        let line = |(at, task): (usize, &crate::supervisor::spec::CrewTask)| {
            let (output, running) = (run.outputs.get(&at), run.running.get(&at));
            let failed = run.failed.as_ref().filter(|(failed, _)| *failed == at);
            let status = match (output, running) {
                (Some(output), _) if output.skipped => TaskStatus::Skipped,
                (Some(_), _) => TaskStatus::Completed,
                (None, _) if failed.is_some() => TaskStatus::Failed,
                (None, Some(task)) if task.left => TaskStatus::Failed,
                (None, Some(_)) if over => TaskStatus::Cancelled,
                (None, Some(_)) => TaskStatus::Running,
                // Nobody will reach it: the run was cancelled.
                (None, None) if over && run.failed.is_none() && !self.is_cut() => TaskStatus::Cancelled,
                (None, None) => TaskStatus::Pending,
            };
            CrewLine {
                id: task.id.clone(),
                objective: task.description.clone(),
                status,
                agent: task.agent.clone(),
                attempts: running.map_or_else(|| run.attempts.get(&at).copied().unwrap_or(0), |of| of.attempt),
                error: failed.map(|(_, why)| why.clone()).or_else(|| {
                    let left = running.is_some_and(|task| task.left);
                    let unmet = || Some(UNMET.to_owned()).filter(|_| output.is_some_and(|output| output.skipped));
                    let unbegun = || Some(UNBEGUN.to_owned()).filter(|_| over && output.is_none() && running.is_none());
                    let denied = || run.denied.get(&at).cloned();
                    let ended = || self.ended_with().filter(|_| status == TaskStatus::Cancelled && running.is_some());
                    left.then(|| SPENT.to_owned()).or_else(denied).or_else(unmet).or_else(unbegun).or_else(ended)
                }),
                output: output.map(|output| output.text.clone()),
            }
        };
        run.tasks.iter().enumerate().map(line).collect()
    }
}
