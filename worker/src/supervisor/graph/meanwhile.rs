//! What people do to the plan while somebody is asked about it: the answer is about an older board.
//!
//! Invariant: what a person has added, changed, ended or replaced meanwhile stands, and so does their no. An answer that would
//! end it, take its place or do it again is not carried out so far: whoever decides or evaluates is asked about the board of
//! now, and of a planner's plan that part is left out.

use serde_json::{Map, json};

use super::*;
use crate::supervisor::model::PlanOrigin;

/// How the words of a person begin on a board.
pub(super) const PERSON_SAYS: &str = "A person says: ";
/// The tools that change a task which is there.
const CHANGES: [&str; 4] = ["cancel_task", "mark_final_task", "patch_task", "update_task_status"];

/// Whether a reviewer below has handed it upward: nobody plans it again, as where the reviewer is one of this run (FSS-25).
pub(super) fn is_handed_up(task: &Task) -> bool {
    task.error.as_ref().is_some_and(|error| error.kind == super::rejected::HANDED_UP)
}

fn task_id(said: Option<&Value>) -> Option<TaskId> {
    serde_json::from_value(said?.clone()).ok()
}

impl Graph {
    /// A person has used a tool of the plan.
    pub(super) fn touched_by(&mut self, tool: &str, args: &Map<String, Value>, answer: &Value) {
        let id = match tool {
            "add_task" => task_id(Some(answer)),
            tool if CHANGES.contains(&tool) => task_id(args.get("task_id")),
            _ => None,
        };
        self.touched.extend(id);
    }

    /// A person has made another plan.
    pub(super) fn touch_all(&mut self) {
        self.touched = self.plan.tasks.keys().cloned().collect();
    }

    /// Somebody is shown the board as it is now.
    pub(super) fn board_shown(&mut self) {
        self.touched.clear();
    }

    /// What people have done since the board was shown, if that is anything.
    fn done_by_people(&self) -> Option<String> {
        let said = self.board_notes.iter().any(|note| note.starts_with(PERSON_SAYS));
        let ids: Vec<&str> = self.touched.iter().map(TaskId::as_str).collect();
        match (ids.as_slice(), said) {
            ([], false) => None,
            ([], true) => Some("a person has said something since you were asked".to_owned()),
            ([id], _) => Some(format!("a person has changed task {id} since you were asked")),
            (ids, _) => Some(format!("people have changed the tasks {} since you were asked", ids.join(", "))),
        }
    }

    /// Whether an end that somebody wants is about an older board; then it is not taken, they are told, and asked again.
    pub(super) fn ends_older_board(&mut self, action: &str, out: &mut Outbox) -> bool {
        let Some(why) = self.done_by_people() else { return false };
        out.note(NoteKind::ActionRefused, json!({ "action": action, "cycle": self.cycle, "why": why }));
        if self.rules.evaluator {
            self.ended_since_asked = true;
        } else {
            self.board_notes.push(format!("The action {action} was not taken: {why}"));
            // Nobody says that this cycle has brought nothing.
            self.in_cycle = false;
        }
        true
    }

    /// The task that a call of a tool is about, where it is open and not any more as whoever decides has seen it.
    pub(super) fn seen_otherwise(&self, call: &DeciderToolCall) -> Option<TaskId> {
        let id = task_id(call.args.get("task_id"))?;
        let open = |task: &Task| !task.status.is_terminal();
        let changes = CHANGES.contains(&call.tool.as_str()) && self.task(&id).is_some_and(open);
        (changes && self.touched.contains(&id)).then_some(id)
    }

    /// New words for a sub-task (CUG-42). What people have approved is done in the words that they saw (CUG-31).
    pub(super) fn refine(&mut self, id: &TaskId, words: &str, out: &mut Outbox) {
        let why = match () {
            () if self.approved => Some("the plan was approved as it is, and is carried out in its own words"),
            // The words may be those of a sub-task as it was shown.
            () if !self.touched.is_empty() => Some("a person has changed the plan since you were asked"),
            () => None,
        };
        if let Some(why) = why {
            out.note(
                NoteKind::ActionRefused,
                json!({ "action": "refine", "task": id, "cycle": self.cycle, "why": why }),
            );
            return self.board_notes.push(format!("The new words for sub-task {id} were not taken: {why}"));
        }
        if let Some(task) = self.plan.tasks.get_mut(id) {
            task.goal = words.to_owned();
        }
    }

    /// Whether a planner leaves a task as it ended: a person has ended it while the plan was made, or said no to it before.
    /// Only at the word of a person that is taken back.
    pub(super) fn stays_ended(&self, id: &TaskId, origin: PlanOrigin) -> bool {
        let Some(task) = self.task(id).filter(|task| task.status.is_terminal()) else { return false };
        let denied = task.ended_by_person && task.status != TaskStatus::Completed;
        let stays = denied || is_handed_up(task);
        origin == PlanOrigin::Replan && (self.touched.contains(id) || (stays && !self.at_their_word))
    }

    /// A new plan without what was to revise a task that a person has ended while it was made: whatever waits for that, waits
    /// for the task itself. Tells which those are.
    pub(super) fn without_revisions_of_ended(
        &self,
        planned: &mut Vec<(TaskId, PlannedTask)>,
        origin: PlanOrigin,
    ) -> Vec<TaskId> {
        let mut instead = BTreeMap::new();
        planned.retain(|(id, task)| {
            let ended = |old: &&TaskId| self.touched.contains(*old) && self.stays_ended(old, origin);
            let old = task.revises.as_ref().filter(ended).filter(|_| self.task(id).is_none());
            instead.extend(old.map(|old| (id.clone(), old.clone())));
            old.is_none()
        });
        for (_, task) in planned.iter_mut() {
            for dependency in &mut task.deps {
                if let Some(old) = instead.get(dependency.on()) {
                    dependency.wait_for(old.clone());
                }
            }
            let mut seen = BTreeSet::new();
            let is_old = |on: &TaskId| instead.values().any(|old| old == on);
            task.deps.retain(|dependency| !is_old(dependency.on()) || seen.insert(dependency.on().clone()));
        }
        let ended: BTreeSet<TaskId> = instead.into_values().collect();
        ended.into_iter().collect()
    }

    /// Whether a plan is made of one in which people have done or ended something: that stays.
    pub(super) fn has_work_of_people(&self) -> bool {
        let of_people = |task: &Task| {
            let by_hand = task.status == TaskStatus::Completed;
            by_hand || (task.status.is_terminal() && self.touched.contains(&task.id))
        };
        self.plan.tasks.values().any(of_people)
    }
}
