//! The tools by which a decider changes the plan, gated by authority (PDT-29).
//!
//! Invariant: a tool that is not registered for the mode does not exist: the call is refused and the plan stays as it
//! is, byte for byte. Every answer is a text that the decider sees in the next cycle; nothing here executes a task.

use serde_json::{Map, json};

use super::*;
use crate::supervisor::model::{CancelReason, Edge, PlanMetadata, TaskError};

/// What a tool answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolAnswer {
    pub tool: String,
    pub answer: Value,
}

const TOOLS: [(&str, Option<Authority>); 8] = [
    ("update_task_status", Some(Authority::UpdateStatus)),
    ("cancel_task", Some(Authority::Cancel)),
    ("view_qa_report", None),
    ("get_current_datetime", None),
    ("think_tool", None),
    ("add_task", Some(Authority::Add)),
    ("patch_task", Some(Authority::Patch)),
    ("mark_final_task", Some(Authority::MarkFinal)),
];

/// The tools of a mode.
pub(super) fn tools_of(rules: &GraphRules) -> Vec<&'static str> {
    let granted =
        |(_, authority): &&(&str, Option<Authority>)| authority.is_none_or(|authority| rules.authority.may(authority));
    TOOLS.iter().filter(granted).map(|(name, _)| *name).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfTask {
    task_id: TaskId,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    status: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddTask {
    sub_task_objective: String,
    capability: String,
    #[serde(default)]
    dependencies: Option<Vec<TaskId>>,
    #[serde(default)]
    metadata: Option<PlanMetadata>,
    #[serde(default)]
    parameters: Option<Map<String, Value>>,
    #[serde(default)]
    max_attempts: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PatchTask {
    task_id: TaskId,
    #[serde(default)]
    sub_task_objective: Option<String>,
    #[serde(default)]
    dependencies: Option<Vec<TaskId>>,
    #[serde(default)]
    capability: Option<String>,
    #[serde(default)]
    parameters: Option<Map<String, Value>>,
}

/// What is said of a task that somebody cancels.
fn cancelled_text(id: &TaskId, reason: &str) -> String {
    match reason.trim() {
        "" => format!("Task {id} cancelled, without a reason."),
        reason => format!("Task {id} cancelled. Reason: {reason}"),
    }
}

impl Graph {
    /// Carries out a tool call and keeps its answer for the next board.
    pub(super) fn use_tool(&mut self, call: &DeciderToolCall, gates: &mut dyn Gates, out: &mut Outbox) {
        let answer = match self.seen_otherwise(call) {
            Some(id) => Err(ToolRefusal::ChangedByPerson(id)),
            None => self.tool(&call.tool, &call.args, Actor::Supervisor, gates, out),
        };
        let answer = answer.unwrap_or_else(|why| {
            let why = why.to_string();
            out.note(NoteKind::ActionRefused, json!({ "tool": call.tool, "args": call.args, "why": why }));
            why.into()
        });
        self.tool_answers.push(ToolAnswer { tool: call.tool.clone(), answer });
    }

    /// The answer of a tool, or why the call is refused. A person may use every tool.
    pub fn tool(
        &mut self,
        name: &str,
        args: &Map<String, Value>,
        by: Actor,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) -> Result<Value, ToolRefusal> {
        let known = TOOLS.iter().any(|(tool, _)| *tool == name);
        if !known || (by != Actor::Human && !tools_of(&self.rules).contains(&name)) {
            return Err(ToolRefusal::NoTool { name: name.to_owned(), tools: tools_of(&self.rules) });
        }
        let args = Value::Object(args.clone());
        match name {
            "get_current_datetime" => Ok(now_text(out).into()),
            "think_tool" => Ok("Thought recorded.".into()),
            "add_task" => self.add_task(&read::<AddTask>("call of add_task", &args)?, by, out),
            "patch_task" => self.patch_task(&read::<PatchTask>("call of patch_task", &args)?, by, gates, out),
            other => {
                let of: OfTask = read(&format!("call of {other}"), &args)?;
                match other {
                    "cancel_task" => self.cancel_tool(&of, by, gates, out),
                    "view_qa_report" => Ok(self.view_qa_report(&of.task_id)),
                    "mark_final_task" => self.mark_final(&of.task_id, out),
                    _ => self.update_status(&of, by, gates, out),
                }
            }
        }
    }

    /// PDT-31: a fresh id; the next scheduler pass looks at its dependencies.
    fn add_task(&mut self, add: &AddTask, by: Actor, out: &mut Outbox) -> Result<Value, ToolRefusal> {
        if self.plan.tasks.len() >= self.rules.max_tasks as usize {
            return Err(ToolRefusal::Full(self.plan.tasks.len()));
        }
        if add.sub_task_objective.trim().is_empty() {
            return Err(ToolRefusal::NoObjective);
        }
        let wanted = WorkerRequirements { capability: Some(&add.capability), ..WorkerRequirements::default() };
        // A supervisor sees on its board that nobody can do it (PDT-18); elsewhere nobody would look.
        if let (Who::Nobody(why), true) = (self.rules.who(wanted), self.rules.selection != Selection::Supervisor) {
            return Err(ToolRefusal::NobodyDoes(why));
        }
        if let Some(why) = self.rules.forbids(wanted) {
            return Err(why.into());
        }
        if let Some(why) = self.rules.reserved(wanted).filter(|_| by != Actor::Human) {
            return Err(why.into());
        }
        let next_id = self.plan.next_id;
        let id = self.plan.fresh_id();
        let mut task = Task::new(id.clone(), add.sub_task_objective.clone());
        task.capability = Some(add.capability.clone());
        let mut dependencies = add.dependencies.clone().unwrap_or_default();
        let ordered =
            self.ordered_before(WorkerRequirements::of(&task)).into_iter().filter(|id| !dependencies.contains(id));
        dependencies.extend(ordered.collect::<Vec<_>>());
        task.edges = self.plain_edges(&dependencies);
        task.metadata = add.metadata.clone().unwrap_or_default().into();
        task.params = add.parameters.clone().unwrap_or_default();
        task.max_attempts = add.max_attempts.unwrap_or(self.rules.max_attempts).max(1);
        task.status = TaskStatus::Ready;
        if let Err(why) = self.plan.add(vec![task]) {
            self.plan.next_id = next_id; // what is refused changes nothing
            return Err(why.into());
        }
        out.note(NoteKind::TaskAdded, json!({ "task": id, "goal": add.sub_task_objective }));
        self.index(&id);
        Ok(id.number().map_or_else(|| json!(id), |number| json!(number)))
    }

    fn plain_edges(&self, ids: &[TaskId]) -> Vec<Edge> {
        let edge = |on: &TaskId| Edge { on: on.clone(), requires: self.rules.requires, when: None, on_failure: None };
        ids.iter().map(edge).collect()
    }

    /// Whether a task may be changed as it is said, by whom.
    fn may_patch(&self, patch: &PatchTask, by: Actor) -> Result<(), ToolRefusal> {
        let id = &patch.task_id;
        let Some(task) = self.task(id) else { return Err(ToolRefusal::NothingToPatch) };
        if task.status.is_terminal() || task.is_in_flight() {
            return Err(ToolRefusal::NotPatched { id: id.clone(), status: task.status });
        }
        let of = WorkerRequirements::of(task);
        let wanted = WorkerRequirements { capability: patch.capability.as_deref().or(of.capability), ..of };
        if patch.sub_task_objective.as_ref().is_some_and(|goal| goal.trim().is_empty()) {
            return Err(ToolRefusal::NoObjective);
        }
        if patch.capability.is_some()
            && let (Who::Nobody(why), true) = (self.rules.who(wanted), self.rules.selection != Selection::Supervisor)
        {
            return Err(ToolRefusal::NobodyDoes(why));
        }
        if let Some(why) = patch.capability.as_ref().and_then(|_| self.rules.forbids(wanted)) {
            return Err(why.into());
        }
        // What a program is given is as good as the program.
        let acts = by != Actor::Human && (patch.capability.is_some() || patch.parameters.is_some());
        match self.rules.reserved(wanted).filter(|_| acts) {
            Some(why) => Err(why.into()),
            None => Ok(()),
        }
    }

    /// What a task waits for once it is patched: what is said, or as it was, and what the order of agents puts before whoever
    /// does it then (CUG-04). Nothing, where the patch is about something else.
    fn patched_edges(&self, patch: &PatchTask) -> Option<Vec<Edge>> {
        if patch.dependencies.is_none() && patch.capability.is_none() {
            return None;
        }
        let task = self.task(&patch.task_id)?;
        let patched = Task { capability: patch.capability.clone().or(task.capability.clone()), ..task.clone() };
        let said = patch.dependencies.as_deref().map(|ids| self.plain_edges(ids));
        let mut edges = said.unwrap_or_else(|| task.edges.clone());
        let ordered = self.ordered_before_changed(&patched, &edges);
        edges.extend(self.plain_edges(&ordered));
        Some(edges)
    }

    /// PDT-32, PDT-54: only what is given changes; what has been done is locked.
    fn patch_task(
        &mut self,
        patch: &PatchTask,
        by: Actor,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) -> Result<Value, ToolRefusal> {
        self.may_patch(patch, by)?;
        let id = &patch.task_id;
        let edges = self.patched_edges(patch);
        let mut changed = Vec::new();
        if let Some(edges) = edges
            && self.plan.set_edges(id, edges)?
        {
            changed.push("dependencies");
        }
        let Some(task) = self.plan.tasks.get_mut(id) else { return Err(ToolRefusal::NothingToPatch) };
        let goal = patch.sub_task_objective.as_ref().map(|goal| review::with_feedback_of(&task.goal, goal));
        if let Some(goal) = goal.filter(|goal| *goal != task.goal) {
            task.goal = goal;
            changed.push("sub_task_objective");
        }
        if patch.capability.is_some() && patch.capability != task.capability {
            task.capability.clone_from(&patch.capability);
            changed.push("capability");
        }
        let mut merged = task.params.clone();
        merged.extend(patch.parameters.clone().unwrap_or_default());
        if merged != task.params {
            task.params = merged;
            changed.push("parameters");
        }
        if !changed.is_empty() {
            out.note(NoteKind::TaskPatched, json!({ "task": id, "changed": changed }));
            self.plan.version += 1;
            self.repaired(id, out);
            self.asked_anew(id, gates, out);
            self.index(id);
        }
        Ok(format!("Task {id} updated successfully.").into())
    }

    /// An errored task that was patched may be tried again (§5.2: supervisor repair).
    fn repaired(&mut self, id: &TaskId, out: &mut Outbox) {
        let Some(task) = self.task(id).filter(|task| task.status == TaskStatus::Errored) else { return };
        // What waits for its inputs comes back by itself once it has them all.
        if task.error.as_ref().is_some_and(|error| error.kind == "worker-error") {
            self.set(id, TaskStatus::Pending, Actor::Supervisor, "repaired", out);
        }
    }

    /// People were shown another task than it is now: what they were asked is void, and the next claim asks for this one.
    pub(super) fn asked_anew(&mut self, id: &TaskId, gates: &mut dyn Gates, out: &mut Outbox) {
        let Some(task) = self.copy(id).filter(|task| task.status == TaskStatus::AwaitingApproval) else { return };
        if !gates.changed(&self.as_approved(task), out) {
            return;
        }
        self.set(id, TaskStatus::Ready, Actor::Supervisor, "patched", out);
        if matches!(self.rules.selection, Selection::Supervisor | Selection::Controller) {
            self.chosen.push(id.clone());
        }
    }

    fn cancel_tool(
        &mut self,
        of: &OfTask,
        by: Actor,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) -> Result<Value, ToolRefusal> {
        let (id, reason) = (&of.task_id, of.reason.clone().unwrap_or_default());
        match self.task(id).map(|task| task.status) {
            None => Err(ToolRefusal::NothingToCancel(id.clone())),
            Some(status) if status.is_terminal() && status != TaskStatus::Cancelled => {
                Err(ToolRefusal::NotCancelled { id: id.clone(), status })
            }
            Some(_) => {
                self.cancel_task(id, &reason, by, gates, out);
                // Of one that was cancelled before, why it was.
                let told = self.task(id).and_then(|task| task.error.as_ref());
                Ok(told.map_or_else(|| cancelled_text(id, &reason), |error| error.message.clone()).into())
            }
        }
    }

    /// Cancels one task; its dependents follow by the run's policy.
    pub fn cancel_task(
        &mut self,
        id: &TaskId,
        reason: &str,
        by: Actor,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) -> bool {
        let Some(task) = self.plan.tasks.get_mut(id).filter(|task| !task.status.is_terminal()) else { return false };
        task.cancelled = Some(CancelReason::Requested);
        task.error = Some(TaskError { kind: "cancelled".into(), message: cancelled_text(id, reason) });
        self.set(id, TaskStatus::Cancelled, by, "requested", out);
        self.cancel_calls_of(id, out);
        self.chosen.retain(|other| other != id);
        self.tell_ended(id, gates, out);
        self.schedule(gates, out);
        true
    }

    /// PDT-35.
    fn view_qa_report(&mut self, id: &TaskId) -> Value {
        let Some(task) = self.plan.tasks.get_mut(id) else { return format!("No task with id {id}.").into() };
        let Some(last) = task.last_verdict() else { return format!("No QA feedback found for task {id}.").into() };
        let report = json!(last).to_string();
        task.metadata.report_viewed = true;
        report.into()
    }

    /// PDT-36.
    fn mark_final(&mut self, id: &TaskId, out: &mut Outbox) -> Result<Value, ToolRefusal> {
        if !self.plan.tasks.contains_key(id) {
            return Err(ToolRefusal::NothingToMark(id.clone()));
        }
        for task in self.plan.tasks.values_mut() {
            task.is_final = task.id == *id;
        }
        out.note(NoteKind::FinalMarked, json!({ "task": id }));
        Ok(format!("Task {id} marked as final.").into())
    }

    /// §4.1 no. 2: a supervisor may repair, hold back and cancel; it never approves (PDT-25).
    fn update_status(
        &mut self,
        of: &OfTask,
        by: Actor,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) -> Result<Value, ToolRefusal> {
        use TaskStatus::*;
        let id = &of.task_id;
        let Some(from) = self.task(id).map(|task| task.status) else {
            return Err(ToolRefusal::NoStatusToSet(id.clone()));
        };
        let name = of.status.clone().unwrap_or_default();
        let Some(to) = self.status_named(&name.to_lowercase(), from) else {
            return Err(ToolRefusal::NoStatus(name));
        };
        let allowed = match (from, to) {
            _ if from == to => true,
            (Errored, Pending) | (Pending | Ready | NeedsRevision, Blocked) | (Blocked, Pending) => true,
            (from, Cancelled) => !from.is_terminal(),
            _ => false,
        };
        if !allowed {
            out.note(NoteKind::TransitionRefused, json!({ "task": id, "from": from, "to": to, "by": by }));
            let (from, to) = (self.word_of(from).to_owned(), self.word_of(to).to_owned());
            return Err(ToolRefusal::IllegalStatus { id: id.clone(), from, to });
        }
        match to {
            Cancelled if from != to => {
                let unsaid = if by == Actor::Human { "" } else { "by the supervisor" };
                self.cancel_task(id, of.reason.as_deref().unwrap_or(unsaid), by, gates, out);
            }
            _ => {
                self.set(id, to, by, "requested", out);
            }
        }
        Ok(format!("Task {id} status updated to {}.", self.word_of(to)).into())
    }

    fn word_of(&self, status: TaskStatus) -> &str {
        self.rules.status_words.get(&status).map_or(status.as_str(), String::as_str)
    }

    /// The status of that name: the one the task has, if that is its word for it.
    fn status_named(&self, name: &str, own: TaskStatus) -> Option<TaskStatus> {
        let called = |status: &TaskStatus| self.word_of(*status) == name;
        let named = || TaskStatus::from_name(name).or_else(|| TaskStatus::ALL.into_iter().find(called));
        Some(own).filter(called).or_else(named)
    }
}

/// Workflow time as text (PDT-57).
fn now_text(out: &Outbox) -> String {
    jiff::Timestamp::from_microsecond(out.now().0).map(|time| time.to_string()).unwrap_or_default()
}
