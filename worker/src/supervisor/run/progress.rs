//! Progress messages: what a chat is told of a plan, at its four moments (CUG-14, CUG-15, CUG-44).
//!
//! Invariant: one message per (plan version, sub-task, moment, attempt): a replay or a second look tells nothing twice.
//! In `update` mode a sub-task has one message that changes in place; in `append` mode each moment adds a line. Messages
//! are tagged, so that a model's context can leave them out.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::supervisor::graph::PlanEvent;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::{SkipReason, Task, TaskId, TaskPlan};
use crate::supervisor::outbox::Outbox;
use crate::supervisor::prompts::{
    ProgressTask, plan_completed, plan_proposed, subtask_completed, subtask_failed, subtask_not_done, subtask_skipped,
    subtask_started,
};
use crate::supervisor::spec::ProgressMessages;

/// The tag by which messages are filtered out of a model's context.
pub(super) const TAG: &str = "supervisor_progress";
/// Messages kept for the query; all of them are in the log.
const KEPT_MAX: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressMessage {
    pub key: String,
    pub text: String,
    pub tag: String,
    pub role: String,
}

/// A message, and the sub-task whose it is: in `update` mode the next one of it takes its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct MessageOf {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task: Option<TaskId>,
    #[serde(flatten)]
    message: ProgressMessage,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StatusMessages {
    mode: ProgressMessages,
    /// Whose plan it is.
    name: String,
    messages: Vec<MessageOf>,
    told: BTreeSet<String>,
    /// The same keys, the oldest first.
    order: VecDeque<String>,
}

impl StatusMessages {
    pub(super) fn new(mode: ProgressMessages, name: &str) -> Self {
        StatusMessages {
            mode,
            name: name.to_owned(),
            messages: Vec::new(),
            told: BTreeSet::new(),
            order: VecDeque::new(),
        }
    }

    pub(super) fn messages(&self) -> Vec<&ProgressMessage> {
        self.messages.iter().map(|of| &of.message).collect()
    }

    /// The key of a moment, the task that it is of, and the words for it.
    fn said_of<'m>(&self, moment: &PlanEvent<'m>, plan: &TaskPlan) -> (String, Option<&'m Task>, String) {
        let all = || plan.in_order().into_iter().map(shown).collect::<Vec<_>>();
        let version = plan.version;
        match moment {
            PlanEvent::Decomposed => (format!("{version}//decomposed/1"), None, plan_proposed(&plan.objective, &all())),
            PlanEvent::Started(task) => {
                (of_task(version, task, "started"), Some(task), subtask_started(&shown(task), task.tries.max(1)))
            }
            PlanEvent::Completed(task) => {
                let result = task.result.clone().unwrap_or_default();
                (of_task(version, task, "completed"), Some(task), subtask_completed(&shown(task), &result))
            }
            PlanEvent::Failed(task) => {
                let why = task.error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
                (of_task(version, task, "failed"), Some(task), subtask_failed(&shown(task), &why))
            }
            PlanEvent::NotDone(task) => {
                let why = task.error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
                let text = match task.skipped {
                    Some(SkipReason::WorkerError) => subtask_skipped(&self.name, &shown(task), &why),
                    _ => subtask_not_done(&shown(task), &why),
                };
                (of_task(version, task, task.status.as_str()), Some(task), text)
            }
            PlanEvent::Finished => (format!("{version}//finished/1"), None, plan_completed(&plan.objective, &all())),
        }
    }

    pub(super) fn moment(&mut self, moment: &PlanEvent<'_>, plan: &TaskPlan, out: &mut Outbox) {
        if self.mode == ProgressMessages::None {
            return;
        }
        let (key, slot, text) = self.said_of(moment, plan);
        if !self.told.insert(key.clone()) {
            return;
        }
        self.order.push_back(key.clone());
        if self.order.len() > 4 * KEPT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            // A task that was told of so long ago is over.
            self.told.remove(&oldest);
        }
        out.note(NoteKind::ProgressEmitted, json!({ "key": key, "text": text, "tag": TAG }));
        let message = ProgressMessage { key, text, tag: TAG.into(), role: "assistant".into() };
        let task = slot.map(|task| task.id.clone());
        let updates = task.is_some() && self.mode == ProgressMessages::Update;
        let same = updates.then(|| self.messages.iter().position(|other| other.task == task)).flatten();
        let message = MessageOf { task, message };
        match same {
            Some(place) => self.messages[place] = message,
            None => self.messages.push(message),
        }
        if self.messages.len() > KEPT_MAX {
            self.messages.remove(0);
        }
    }
}

/// CUG-15: plan, sub-task, moment, attempt.
fn of_task(version: u64, task: &Task, moment: &str) -> String {
    format!("{version}/{}/{moment}/{}", task.id, task.tries)
}

fn shown(task: &Task) -> ProgressTask {
    ProgressTask {
        id: task.id.to_string(),
        goal: task.goal.clone(),
        agent: task.agent.clone(),
        status: task.status.as_str().to_owned(),
        after: task.dependencies().iter().map(ToString::to_string).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CUG-14, CUG-15, CUG-44: four moments, each once whatever is told twice; tagged; one message a sub-task in `update`
    /// mode, a line each in `append` mode.
    #[test]
    fn each_moment_is_told_once() {
        for (mode, count) in [(ProgressMessages::Append, 5), (ProgressMessages::Update, 3), (ProgressMessages::None, 0)]
        {
            let mut progress = StatusMessages::new(mode, "s");
            let mut plan = TaskPlan::new("o");
            plan.add(vec![Task::new(TaskId::of("t"), "look")]).unwrap();
            let mut out = Outbox::new("run", bosun_engine::Timestamp(0));
            let (mut first, mut second) = (Task::new(TaskId::of("t"), "look"), Task::new(TaskId::of("t"), "look"));
            (first.tries, second.tries, second.result) = (1, 2, Some("found".into()));
            for _ in 0..2 {
                let moments = [
                    PlanEvent::Decomposed,
                    PlanEvent::Started(&first),
                    PlanEvent::Started(&second),
                    PlanEvent::Completed(&second),
                    PlanEvent::Finished,
                ];
                moments.iter().for_each(|moment| progress.moment(moment, &plan, &mut out));
            }
            assert_eq!(progress.messages().len(), count, "{mode:?}");
            assert!(progress.messages().iter().all(|message| message.tag == TAG && message.role == "assistant"));
            assert_eq!(out.notes().len(), if count == 0 { 0 } else { 5 });
            if mode == ProgressMessages::Update {
                assert!(progress.messages()[1].text.contains("found"), "{:?}", progress.messages()[1]);
            }
        }
    }

    /// CUG-15: a sub-task called by a number has a message of its own; what the plan is told by stays as it is.
    #[test]
    fn a_message_of_a_task_replaces_no_message_of_the_plan() {
        let mut progress = StatusMessages::new(ProgressMessages::Update, "s");
        let mut plan = TaskPlan::new("o");
        plan.add(vec![Task::new(TaskId::from(1), "look")]).unwrap();
        let mut task = Task::new(TaskId::from(1), "look");
        task.tries = 1;
        let mut out = Outbox::new("run", bosun_engine::Timestamp(0));
        let moments = [PlanEvent::Decomposed, PlanEvent::Started(&task), PlanEvent::Completed(&task)];
        moments.iter().for_each(|moment| progress.moment(moment, &plan, &mut out));
        let keys: Vec<&str> = progress.messages().iter().map(|message| message.key.as_str()).collect();
        assert_eq!(keys, ["1//decomposed/1", "1/1/completed/1"]);
    }

    /// An id of a task may hold what a key is made of: the message of another task is not taken for its own.
    #[test]
    fn a_task_replaces_no_message_of_a_task_that_is_called_alike() {
        let mut progress = StatusMessages::new(ProgressMessages::Update, "s");
        let plan = TaskPlan::new("o");
        let mut out = Outbox::new("run", bosun_engine::Timestamp(0));
        let (alike, own) = (Task::new(TaskId::of("a/started/b"), "look"), Task::new(TaskId::of("a"), "look"));
        let moments = [PlanEvent::Started(&alike), PlanEvent::Started(&own), PlanEvent::Completed(&own)];
        moments.iter().for_each(|moment| progress.moment(moment, &plan, &mut out));
        let keys: Vec<&str> = progress.messages().iter().map(|message| message.key.as_str()).collect();
        assert_eq!(
            keys,
            [format!("{0}/a/started/b/started/0", plan.version), format!("{0}/a/completed/0", plan.version)]
        );
    }

    /// What is forgotten first is what was told first, whatever it is called.
    #[test]
    fn the_oldest_keys_are_forgotten_first() {
        let mut progress = StatusMessages::new(ProgressMessages::Append, "s");
        let plan = TaskPlan::new("o");
        let mut out = Outbox::new("run", bosun_engine::Timestamp(0));
        let mut tell = |progress: &mut StatusMessages, id: &str| {
            progress.moment(&PlanEvent::Started(&Task::new(TaskId::of(id), "look")), &plan, &mut out);
        };
        tell(&mut progress, "z-first");
        (1..4 * KEPT_MAX).for_each(|n| tell(&mut progress, &format!("m{n}")));
        tell(&mut progress, "a-last");
        let told = |key: &str| progress.told.contains(&format!("{}/{key}", plan.version));
        assert!(!told("z-first/started/0") && told("a-last/started/0"));
        assert_eq!((progress.told.len(), progress.order.len()), (4 * KEPT_MAX, 4 * KEPT_MAX));
    }
}
