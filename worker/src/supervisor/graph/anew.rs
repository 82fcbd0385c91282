//! What becomes of names when a plan is made anew: a task takes the place of one that gave nothing, or a name of its own.
//!
//! Invariant: no task of a new plan is lost, and no two have one name; where dependencies do not count, none makes a plan
//! wrong (FSS-40). What is kept of the old plan is decided in `iterate`.

use serde_json::json;

use super::*;
use crate::supervisor::model::{DependencyPolicy, Edge, LeftWork, PlanChangeError, PlanOrigin, Requires};

impl Graph {
    /// FSS-12: what gave nothing is replaced by the planner's task of the same name. Where steps are planned anew one by one
    /// it stays as it ended, beside the new one (FSP-06); and a person sees in the plan what they had before.
    pub(super) fn replaces(&self, origin: PlanOrigin) -> bool {
        origin == PlanOrigin::Replan && !self.rules.evaluator
    }

    /// A task that ended without a result begins anew under its id, in its place, with its feedback (FSS-13). Its attempts
    /// are counted on and have used up none of the new one's tries.
    pub(super) fn replace(
        &mut self,
        id: TaskId,
        planned: PlannedTask,
    ) -> Result<(TaskId, TaskStatus), PlanChangeError> {
        let Some(old) = self.plan.tasks.get(&id).cloned() else { return Err(PlanChangeError::Unknown { id }) };
        let mut task = planned.task(id.clone(), self.rules.requires, self.rules.max_attempts);
        let edges = std::mem::take(&mut task.edges);
        if Self::has_effects(&old) {
            let left = old.metadata.left_work.clone().unwrap_or_default();
            let (result, compensation) =
                (old.result.clone().or(left.result), old.compensation.clone().or(left.compensation));
            task.metadata.left_work = Some(LeftWork { result, compensation });
        }
        (task.position, task.iteration, task.overall_objective) = (old.position, self.iteration, old.overall_objective);
        (task.tries_before, task.tries, task.attempts) = (old.tries, old.tries, old.attempts);
        task.feedback = old.feedback;
        task.revises = task.revises.or(old.revises);
        self.plan.tasks.insert(id.clone(), task);
        self.set_edges(&id, edges)?;
        Ok((id, old.status))
    }

    /// Work that is over is not planned again; the next planning is told.
    pub(super) fn not_again(&mut self, id: &TaskId, out: &mut Outbox) {
        let ended = self.task(id).filter(|task| !self.is_kept(task.status));
        let what = match ended {
            Some(task) if meanwhile::is_handed_up(task) => "what a reviewer has handed upward",
            Some(_) => "what a person has ended",
            None => "accepted work",
        };
        let said = ended.and_then(|task| task.error.as_ref()).map(|error| format!(" ({})", error.message));
        let why = format!(
            "task {id} is over{}; {what} is not planned again. Give new work an id of its own",
            said.unwrap_or_default()
        );
        out.note(NoteKind::ActionRefused, json!({ "action": "replan", "task": id, "why": why }));
        self.refused_in_plan.push(why);
    }

    pub(super) fn tell_replaced(&mut self, replaced: Vec<(TaskId, TaskStatus)>, out: &mut Outbox) {
        for (id, was) in replaced {
            let goal = self.task(&id).map(|task| &task.goal);
            out.note(NoteKind::TaskAdded, json!({ "task": id, "replaces": was, "goal": goal }));
            self.index(&id);
        }
    }

    /// The tasks that a new plan names again, each changed as it says; and the version of the plan, which is another one where
    /// anything of it is: whoever saw the one before is told so. `was`: the version before, and whether something changed.
    pub(super) fn named_again(
        &mut self,
        again: Vec<(TaskId, PlannedTask)>,
        was: (u64, bool),
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        let (version, mut is_another) = was;
        for (id, planned) in again {
            is_another |= self.again(&id, planned, gates, out);
        }
        // One revision is one version, however much of the plan it changes.
        self.plan.version = version + u64::from(is_another || self.plan.version != version);
        self.snapshot_plan("plan", out);
        out.note(NoteKind::PlanRevised, json!({ "version": self.plan.version, "iteration": self.iteration }));
    }

    /// A task that the new plan names again goes on under its id, with its feedback. What people were asked about it as it
    /// was, or said of it, is void where it is another one now. Whether it is.
    fn again(&mut self, id: &TaskId, planned: PlannedTask, gates: &mut dyn Gates, out: &mut Outbox) -> bool {
        let iteration = self.iteration;
        let Some(task) = self.plan.tasks.get_mut(id) else { return false };
        let before = task.clone();
        planned.change(task);
        if task.action != before.action {
            // What a person wanted in place of the old action, or let be done, is nothing of the new one.
            (task.metadata.approved_action, task.approved) = (None, false);
        }
        let is_another = *task != before;
        task.iteration = iteration;
        out.note(NoteKind::TaskPatched, json!({ "task": id, "goal": task.goal }));
        self.runnable.retain(|(_, _, other)| other != id);
        self.index(id);
        self.asked_anew(id, gates, out);
        is_another
    }

    /// Where dependencies do not count, none makes a plan wrong (FSS-40).
    pub(super) fn add(&mut self, tasks: Vec<Task>) -> Result<(), PlanChangeError> {
        let honour = self.rules.honour;
        add_to(&mut self.plan, tasks, honour)
    }

    pub(super) fn set_edges(&mut self, id: &TaskId, edges: Vec<Edge>) -> Result<(), PlanChangeError> {
        match self.plan.set_edges(id, edges) {
            Err(_) if !self.rules.honour => Ok(()),
            result => result.map(|_| ()),
        }
    }

    /// Whether no task of a person's plan waits for one that the plan drops: it would be given up as soon as it is there.
    pub(super) fn needs_nothing_left_out<'t>(
        &self,
        origin: PlanOrigin,
        mut named: impl Iterator<Item = &'t TaskId>,
        left: &[TaskId],
    ) -> Result<(), PlanRefusal> {
        let ended = |edge: &&Edge| {
            let runs = self.rules.after_cancel(edge) == DependencyPolicy::Run;
            origin == PlanOrigin::Human
                && self.rules.honour
                && left.contains(&edge.on)
                && !runs
                && edge.requires != Requires::Terminal
        };
        let needs = |id: &TaskId| Some((id.clone(), self.task(id)?.edges.iter().find(ended)?.on.clone()));
        match named.find_map(needs) {
            Some((task, on)) => Err(PlanRefusal::NeedsLeftOut { task, on }),
            None => Ok(()),
        }
    }

    /// A name nobody has, in the plan or in what is planned with it (FSP-06).
    pub(super) fn free_name(&self, id: &TaskId, named: &BTreeSet<TaskId>, fresh: &[(TaskId, PlannedTask)]) -> TaskId {
        let new = |id: &TaskId| named.contains(id) || fresh.iter().any(|(other, _)| other == id);
        let taken = |id: &TaskId| self.plan.tasks.contains_key(id) || new(id);
        let named = |n: u64| TaskId::new(format!("{id}-replan-{n}")).unwrap_or_else(|_| TaskId::from(n));
        (1..).map(named).find(|name| !taken(name)).unwrap_or_else(|| id.clone())
    }
}

/// The names of what is planned: one that stands there twice is two tasks, of which one would be lost (FSS-04).
pub(super) fn each_once(planned: &[(TaskId, PlannedTask)]) -> Result<BTreeSet<TaskId>, PlanChangeError> {
    let mut named = BTreeSet::new();
    match planned.iter().find(|(id, _)| !named.insert(id.clone())) {
        Some((id, _)) => Err(PlanChangeError::Duplicate { id: id.clone() }),
        None => Ok(named),
    }
}

/// The same to a plan that is still to become the run's.
pub(super) fn add_to(plan: &mut TaskPlan, mut tasks: Vec<Task>, honour: bool) -> Result<(), PlanChangeError> {
    match plan.add(tasks.clone()) {
        Err(why) if honour || matches!(why, PlanChangeError::Duplicate { .. }) => Err(why),
        Err(_) => {
            tasks.iter_mut().for_each(|task| task.edges.clear());
            plan.add(tasks)
        }
        Ok(()) => Ok(()),
    }
}
