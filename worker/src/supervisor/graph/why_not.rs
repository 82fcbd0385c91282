//! Why a task does not run, in words: for deciders, boards, reports and people.
//!
//! Invariant: it says what the scheduler pass (`schedule`) goes by, and decides nothing itself.

use super::schedule::DependencyState;
use super::*;

impl Graph {
    /// What a task waits for. One that is done and does not meet a condition is not what keeps others waiting: the condition is.
    fn why_waiting(&self, on: &[TaskId]) -> String {
        let is_done = |id: &&TaskId| self.task(id).is_some_and(|on| on.status == TaskStatus::Completed);
        let list = |ids: Vec<&TaskId>| ids.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(", ");
        let (done, open): (Vec<&TaskId>, Vec<&TaskId>) = on.iter().partition(is_done);
        match (done.is_empty(), open.is_empty()) {
            (true, _) => format!("waiting on deps [{}]", list(open)),
            (false, true) => format!("the condition on [{}] does not hold", list(done)),
            (false, false) => {
                format!("waiting on deps [{}]; the condition on [{}] does not hold", list(open), list(done))
            }
        }
    }

    /// Why a task that somebody wants to run does not.
    pub(super) fn why_not(&self, id: &TaskId) -> Option<String> {
        let Some(task) = self.task(id) else { return Some(format!("there is no task {id}")) };
        let list = |ids: &[TaskId]| ids.iter().map(TaskId::to_string).collect::<Vec<_>>().join(", ");
        if let Some(error) = task.error.as_ref().filter(|error| error.kind == "unknown_capability") {
            return Some(error.message.replacen("Unknown", "unknown", 1));
        }
        match self.dependencies(task) {
            _ if task.status.is_terminal() => Some(format!("it is {}", task.status)),
            DependencyState::Missing(ids) => Some(format!("missing deps [{}]", list(&ids))),
            DependencyState::Waiting(ids) => Some(self.why_waiting(&ids)),
            DependencyState::Unmet { on, .. } => Some(format!("waiting on deps [{on}]")),
            DependencyState::Satisfied if task.status.is_runnable() => None,
            DependencyState::Satisfied => Some(format!("not runnable (status {})", task.status)),
        }
    }
}
