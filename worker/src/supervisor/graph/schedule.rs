//! The scheduler pass: pending and ready follow the dependencies, and what cannot run any more is ended.
//!
//! Invariant: tasks are visited in ascending id (PDT-04) and only those whose surroundings changed, so that a pass costs
//! what has changed, not the size of the plan; a pass is repeated until it changes nothing. It starts nothing.

use super::*;
use crate::supervisor::model::{CancelReason, DependencyPolicy, Edge, Requires, SkipReason, TaskError};
use crate::supervisor::spec::OnUnmet;

/// How the dependencies of a task stand.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DependencyState {
    Satisfied,
    Waiting(Vec<TaskId>),
    Missing(Vec<TaskId>),
    /// One will never be satisfied, and this is to happen.
    Unmet {
        on: TaskId,
        policy: DependencyPolicy,
        cancelled: bool,
        condition: bool,
    },
}

/// What keeps a task from those that depend on it, in words.
fn not_done(task: &Task) -> &'static str {
    let denied = task.error.as_ref().is_some_and(|error| error.kind == super::rejected::APPROVAL_REJECTED);
    match task.status {
        TaskStatus::Cancelled => "was cancelled",
        TaskStatus::Escalated => "was escalated",
        TaskStatus::Skipped if denied => "was denied",
        // Nobody has tried it.
        TaskStatus::Skipped if task.attempts.is_empty() => "was skipped",
        _ => "failed",
    }
}

impl Graph {
    /// How one edge stands: satisfied, waiting, or never.
    fn edge(&self, edge: &Edge) -> Result<bool, (DependencyPolicy, bool, bool)> {
        use TaskStatus::*;
        let Some(on) = self.task(&edge.on) else { return Ok(false) };
        let satisfied = match (edge.requires, on.status) {
            (_, Completed) => true,
            // FSS-40: a task waits for its dependencies of the same iteration to be done; they are reviewed together.
            (_, AwaitingReview) => self.rules.review == ReviewScope::Iteration,
            (Requires::CompletedOrSkipped, Skipped) => on.skipped != Some(SkipReason::DependencyFailed),
            (Requires::Terminal, status) => status.is_terminal(),
            _ => false,
        };
        if satisfied {
            let holds = edge.when.as_ref().is_none_or(|when| when.holds(on.result.as_ref().unwrap_or(&Value::Null)));
            return if holds { Ok(true) } else { Err((self.condition_policy(edge), false, true)) };
        }
        match on.status {
            Cancelled => Err((self.rules.after_cancel(edge), true, false)),
            Failed | Skipped | Escalated => Err((edge.on_failure.unwrap_or(self.rules.on_failure), false, false)),
            _ => Ok(false),
        }
    }

    /// What becomes of a task whose condition does not hold: what its edge says, or else the run.
    fn condition_policy(&self, edge: &Edge) -> DependencyPolicy {
        edge.on_failure.unwrap_or(match self.rules.on_condition {
            OnUnmet::Wait => DependencyPolicy::Wait,
            OnUnmet::Skip => DependencyPolicy::Skip,
            OnUnmet::Fail => DependencyPolicy::Fail,
        })
    }

    pub(super) fn dependencies(&self, task: &Task) -> DependencyState {
        if !self.rules.honour {
            return DependencyState::Satisfied;
        }
        let (mut waiting, mut missing) = (Vec::new(), Vec::new());
        for edge in &task.edges {
            match self.edge(edge) {
                Ok(true) => {}
                Ok(false) if !self.plan.tasks.contains_key(&edge.on) => missing.push(edge.on.clone()),
                Ok(false) | Err((DependencyPolicy::Wait, ..)) => waiting.push(edge.on.clone()),
                Err((DependencyPolicy::Run, ..)) => {}
                Err((policy, cancelled, condition)) => {
                    return DependencyState::Unmet { on: edge.on.clone(), policy, cancelled, condition };
                }
            }
        }
        match (missing.is_empty(), waiting.is_empty()) {
            (false, _) => DependencyState::Missing(missing),
            (true, false) => DependencyState::Waiting(waiting),
            (true, true) => DependencyState::Satisfied,
        }
    }

    pub(super) fn may_run(&self, task: &Task) -> bool {
        task.status.is_runnable() && self.dependencies(task) == DependencyState::Satisfied
    }

    /// Looks at every task whose surroundings changed, until nothing changes any more.
    pub(super) fn schedule(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        while let Some(id) = self.dirty.pop_first() {
            let Some(task) = self.task(&id) else { continue };
            if task.status.is_terminal() || (task.is_in_flight() && !self.rules.cancel_running) {
                continue;
            }
            let (before, was_ready) = (task.status, task.status.is_runnable());
            if !self.somebody_can(&id, gates, out) || !self.capability_is_fine(&id, gates, out) {
                self.note_for_board(&id, before);
                continue;
            }
            let Some(task) = self.task(&id) else { continue };
            let task_status = task.status;
            match self.dependencies(task) {
                DependencyState::Satisfied if task_status == TaskStatus::Pending => {
                    self.set(&id, TaskStatus::Ready, Actor::Scheduler, "dependencies_satisfied", out);
                }
                DependencyState::Waiting(_) | DependencyState::Missing(_) if task_status == TaskStatus::Ready => {
                    self.set(&id, TaskStatus::Pending, Actor::Scheduler, "dependencies_unmet", out);
                    self.watch_wait(&id, out);
                }
                DependencyState::Waiting(_) if task_status == TaskStatus::Pending => self.watch_wait(&id, out),
                DependencyState::Unmet { on, policy, cancelled, condition } => {
                    self.unmet(&id, &on, policy, (cancelled, condition), gates, out);
                }
                _ => {}
            }
            let status = self.task(&id).map(|task| task.status);
            if was_ready && status.is_some_and(TaskStatus::is_runnable) {
                self.dirty.remove(&id);
            }
            self.note_for_board(&id, before);
        }
    }

    fn note_for_board(&mut self, id: &TaskId, before: TaskStatus) {
        let Some(task) = self.plan.tasks.get(id) else { return };
        if task.status != before && self.rules.selection == Selection::Supervisor {
            let why = task.error.as_ref().map(|error| format!(" ({})", error.message)).unwrap_or_default();
            self.board_notes.push(format!("Task {id}: {before} -> {}{why}", task.status));
        }
        if task.status != before {
            self.dirty.remove(id);
        }
    }

    /// A task that nobody can do has failed before it starts, and people are told (SHH-17). A supervisor that selects is
    /// told on its board instead. Whether somebody can.
    fn somebody_can(&mut self, id: &TaskId, gates: &mut dyn Gates, out: &mut Outbox) -> bool {
        let untried =
            |task: &&Task| matches!(task.status, TaskStatus::Pending | TaskStatus::Ready) && task.is_untried();
        let Some(task) = self.task(id).filter(untried).filter(|_| self.rules.selection != Selection::Supervisor) else {
            return true;
        };
        let Who::Nobody(message) = self.who(task) else { return true };
        let wanted =
            task.agent.as_ref().or(task.capability.as_ref()).or(task.role.as_ref()).unwrap_or(&task.goal).clone();
        gates.unmatched(id, &wanted, out);
        if let Some(task) = self.plan.tasks.get_mut(id) {
            task.error = Some(TaskError { kind: "out_of_scope".into(), message });
        }
        if self.set(id, TaskStatus::Failed, Actor::Scheduler, "out_of_scope", out) {
            self.tell_ended(id, gates, out);
            self.check_threshold(gates, out);
        }
        false
    }

    /// A task whose capability does not exist, or lacks what it needs, is errored; one that has been healed comes back
    /// (PDT-18, PDT-19). Whether the task may go on.
    fn capability_is_fine(&mut self, id: &TaskId, gates: &mut dyn Gates, out: &mut Outbox) -> bool {
        let Some(task) = self.plan.tasks.get(id) else { return false };
        let Some(name) = task.capability.clone() else { return true };
        let card = self.rules.capabilities.iter().find(|card| card.name == name);
        let errored = |kind: &str| task.error.as_ref().is_some_and(|error| error.kind == kind);
        let Some(card) = card else {
            if self.rules.capabilities.is_empty() {
                return true;
            }
            if task.status != TaskStatus::Errored {
                gates.unmatched(id, &name, out);
                self.errored_before_start(id, "unknown_capability", format!("Unknown capability: '{name}'"), out);
            }
            return false;
        };
        let given = |name: &&String| task.params.get(*name).is_some_and(|value| !value.is_null());
        let missing: Vec<String> = card.required_parameters.iter().filter(|name| !given(name)).cloned().collect();
        if missing.is_empty() {
            let healed = errored("missing_required_parameters") || errored("unknown_capability");
            if task.status == TaskStatus::Errored && healed {
                let to = match self.dependencies(task) {
                    DependencyState::Satisfied => TaskStatus::Ready,
                    _ => TaskStatus::Pending,
                };
                if let Some(task) = self.plan.tasks.get_mut(id) {
                    task.error = None;
                    task.metadata.missing_required_parameters.clear();
                }
                self.set(id, to, Actor::Scheduler, "inputs_healed", out);
            }
            return true;
        }
        let message = format!("Missing required parameters: {}", missing.join(", "));
        if let Some(task) = self.plan.tasks.get_mut(id) {
            task.metadata.missing_required_parameters = missing;
            // Some may have been given since.
            let told = task.error.as_mut().filter(|error| error.kind == "missing_required_parameters");
            told.into_iter().for_each(|error| error.message.clone_from(&message));
        }
        if self.task(id).is_some_and(|task| task.status != TaskStatus::Errored) {
            self.errored_before_start(id, "missing_required_parameters", message, out);
        }
        false
    }

    fn errored_before_start(&mut self, id: &TaskId, kind: &str, message: String, out: &mut Outbox) {
        if self.task(id).is_some_and(|task| task.is_in_flight()) {
            return;
        }
        if let Some(task) = self.plan.tasks.get_mut(id) {
            task.error = Some(TaskError { kind: kind.into(), message });
        }
        self.set(id, TaskStatus::Errored, Actor::Scheduler, kind, out);
    }

    /// What becomes of a task by a policy, with the word and the text for it; none where it waits or runs.
    fn given_up(
        &self,
        on: &TaskId,
        policy: DependencyPolicy,
        cancelled: bool,
        condition: bool,
    ) -> Option<(TaskStatus, &'static str, String)> {
        let skipped_text = match condition {
            true => format!("Skipped: the condition on '{on}' does not hold"),
            // The one that failed is named, also further down the line.
            false => match self.task(on).filter(|on| on.skipped == Some(SkipReason::DependencyFailed)) {
                Some(skipped) => skipped.error.as_ref().map(|error| error.message.clone()).unwrap_or_default(),
                None => format!("Skipped: dependency '{on}' {}", self.task(on).map_or("failed", not_done)),
            },
        };
        let kind = if condition { "condition_not_met" } else { "dependency_failed" };
        let upstream = match self.task(on).map_or("failed", not_done) {
            _ if condition => "does not meet the condition",
            _ if cancelled => "was cancelled",
            "failed" => "has failed",
            other => other,
        };
        Some(match policy {
            DependencyPolicy::Wait | DependencyPolicy::Run => return None,
            DependencyPolicy::Skip => (TaskStatus::Skipped, kind, skipped_text),
            DependencyPolicy::Fail => (TaskStatus::Failed, kind, skipped_text.replacen("Skipped: ", "", 1)),
            DependencyPolicy::Cancel => {
                (TaskStatus::Cancelled, "upstream", format!("Upstream dependency Task {on} {upstream}."))
            }
            DependencyPolicy::Block => {
                (TaskStatus::Blocked, "blocked", format!("Blocked: dependency '{on}' {upstream}"))
            }
        })
    }

    /// Does what is to be done with a task whose dependency will never be satisfied.
    fn unmet(
        &mut self,
        id: &TaskId,
        on: &TaskId,
        policy: DependencyPolicy,
        (cancelled, condition): (bool, bool),
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        let Some((to, kind, message)) = self.given_up(on, policy, cancelled, condition) else { return };
        // FSS-31: on a board they are skipped when nothing is at work any more.
        if to == TaskStatus::Skipped && !condition && self.rules.skips_at_rest() && !self.is_at_rest(out) {
            return;
        }
        // What was sent back or is errored can only be given up by cancelling; the table knows no other way.
        let sent_back = self.task(id).is_some_and(|task| task.status == TaskStatus::NeedsRevision);
        let cancels = sent_back && matches!(to, TaskStatus::Skipped | TaskStatus::Failed);
        let instead = self.given_up(on, DependencyPolicy::Cancel, cancelled, condition).filter(|_| cancels);
        let (to, message) = instead.map_or((to, message), |(to, _, message)| (to, message));
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        if task.status == to || (matches!(to, TaskStatus::Skipped | TaskStatus::Failed) && task.is_in_flight()) {
            return;
        }
        task.error = Some(TaskError { kind: kind.into(), message });
        match to {
            TaskStatus::Skipped if condition => task.skipped = Some(SkipReason::ConditionNotMet),
            TaskStatus::Skipped => task.skipped = Some(SkipReason::DependencyFailed),
            TaskStatus::Cancelled => task.cancelled = Some(CancelReason::Upstream),
            _ => {}
        }
        if self.set(id, to, Actor::Scheduler, kind, out) && to.is_terminal() {
            self.cancel_calls_of(id, out);
            self.tell_ended(id, gates, out);
            if to == TaskStatus::Failed {
                self.check_threshold(gates, out);
            }
        }
    }

    /// Starts to count how long a task waits, if there is a limit.
    fn watch_wait(&mut self, id: &TaskId, out: &mut Outbox) {
        let Some(limit) = self.rules.dependency_timeout_ms else { return };
        let key = GraphKey::Dependencies { task: id.clone() };
        if !out.awaited().runs(&key.clone().into()) {
            let at = out.now().plus(std::time::Duration::from_millis(limit));
            out.timer(key, at, format!("dependencies of task {id}"));
        }
    }

    pub(super) fn waits_no_more(&mut self, id: &TaskId, out: &mut Outbox) {
        let key = GraphKey::Dependencies { task: id.clone() }.into();
        if out.awaited().runs(&key) {
            out.cancel_timer(key);
        }
    }

    /// SHD-04: too long is a failure.
    pub(super) fn waited_too_long(&mut self, id: &TaskId, gates: &mut dyn Gates, out: &mut Outbox) {
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        if task.status != TaskStatus::Pending {
            return;
        }
        let message = "timeout waiting for dependencies".to_owned();
        task.error = Some(TaskError { kind: "dependency_timeout".into(), message });
        if self.set(id, TaskStatus::Failed, Actor::Scheduler, "dependency_timeout", out) {
            self.tell_ended(id, gates, out);
            self.check_threshold(gates, out);
        }
    }

    pub(super) fn tell_ended(&mut self, id: &TaskId, gates: &mut dyn Gates, out: &mut Outbox) {
        self.drop_approved_action(id, out);
        let Some(task) = self.copy(id) else { return };
        gates.ended(&task, out);
        let moment = match task.status {
            TaskStatus::Completed => PlanEvent::Completed(&task),
            TaskStatus::Skipped | TaskStatus::Cancelled => PlanEvent::NotDone(&task),
            _ => PlanEvent::Failed(&task),
        };
        gates.moment(moment, &self.plan, out);
    }
}
