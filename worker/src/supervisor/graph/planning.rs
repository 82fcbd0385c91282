//! Planning: the start of a run, the planner's call, and what becomes of its answer.
//!
//! Invariant: nothing is dispatched before a conforming, checked plan is in the log (FSS-04, CUG-45), and approved where
//! that is asked for; a plan with an agent that is not there is refused as a whole (CUG-03).

use serde_json::json;

use super::anew::add_to;
use super::view::with_error;
use super::*;
use crate::supervisor::model::PlanOrigin;
use crate::supervisor::model::PlanStrategy;
use crate::supervisor::reading::refused;
use crate::supervisor::team::roles::role_of;

impl Graph {
    /// Starts the run: by its plan, by a planner, or by a decider.
    pub fn start(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        if self.is_guarded(gates, out) {
            return;
        }
        match self.rules.planning {
            PlanSource::Planner if self.plan.tasks.is_empty() => {
                self.enter(Phase::Planning, out);
                // A decomposition that was given needs no planner (SHN-06).
                match self.given_plan.take() {
                    Some(plan) => {
                        self.planned(Ok(plan), gates, out);
                        self.advance(gates, out);
                    }
                    None => self.ask_planner(out),
                }
            }
            PlanSource::None => {
                self.simple_task(None, None);
                self.execute_plan(gates, out);
            }
            _ => {
                let ids: Vec<TaskId> = self.plan.tasks.keys().cloned().collect();
                for id in ids {
                    out.note(NoteKind::TaskAdded, json!({ "task": id }));
                }
                if !self.plan.tasks.is_empty() {
                    out.note(
                        NoteKind::PlanProposed,
                        json!({ "version": self.plan.version, "origin": self.plan.origin }),
                    );
                    gates.moment(PlanEvent::Decomposed, &self.plan, out);
                    if gates.plan_needs_approval(&self.plan, self.complexity_bp, out) {
                        return self.await_plan_approval(out);
                    }
                }
                self.execute_plan(gates, out);
            }
        }
    }

    /// With a plan that was made elsewhere.
    #[must_use]
    pub fn given(mut self, plan: Option<Value>) -> Self {
        self.given_plan = plan;
        self
    }

    /// Where nothing is planned: who does the one task, and in which role.
    pub fn without_plan(&mut self, role: Option<String>, agent: Option<String>) {
        if self.rules.planning == PlanSource::None {
            self.simple_task(role, agent);
        }
    }

    /// One execution and no plan.
    fn simple_task(&mut self, role: Option<String>, agent: Option<String>) {
        let id = TaskId::from(1);
        let task = Task {
            is_final: true,
            max_attempts: self.rules.max_attempts,
            role,
            agent,
            ..Task::new(id.clone(), self.plan.objective.clone())
        };
        if self.plan.tasks.is_empty() && self.plan.add(vec![task]).is_ok() {
            self.index(&id);
        }
    }

    /// The plan may be carried out.
    pub fn execute_plan(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        self.enter(Phase::Executing, out);
        self.advance(gates, out);
    }

    /// Waits for a person's word on the plan; [`Graph::execute_plan`] goes on.
    fn await_plan_approval(&mut self, out: &mut Outbox) {
        self.enter(Phase::AwaitingPlanApproval, out);
    }

    pub(super) fn ask_planner(&mut self, out: &mut Outbox) {
        self.planning_tries += 1;
        self.board_shown();
        let replaces_rest = self.rules.evaluator && self.iteration > 1;
        let tasks: Vec<Value> = self.plan.in_order().into_iter().map(shown).collect();
        let revise: Vec<Value> = self
            .plan
            .in_order()
            .into_iter()
            .filter(|task| task.status == TaskStatus::NeedsRevision || (replaces_rest && !task.status.is_terminal()))
            .map(shown)
            .collect();
        let mut context = json!({
            "goal": self.plan.objective, "iteration": self.iteration, "tasks": tasks, "needs_revision": revise,
            "overall_assessment": self.overall_assessment, "agents": self.allowed_agents(),
            "agent_cards": self.agent_cards(),
            "dispatched_agents": self.rules.policies.dispatched_agents,
            "given": self.planning_context, "refused": std::mem::take(&mut self.refused_in_plan),
        });
        if replaces_rest {
            context["replaces_rest"] = true.into();
        }
        let guidance = self.rules.guidance(&self.plan.objective);
        if !guidance.is_empty() {
            context["guidance"] = json!(guidance);
        }
        if self.rules.upfront {
            context["upfront"] = true.into();
        }
        let prompt = prompt_of(Purpose::Plan, &context);
        let call = Call::new(GraphKey::Plan { attempt: self.planning_tries }, Purpose::Plan, context)
            .round(self.iteration)
            .prompt(prompt);
        self.call(call, out);
    }

    /// A plan that is made on the way is people's to see as the first one was; nothing starts until then (SHH-22).
    pub(super) fn show_later_plan(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        if !gates.plan_needs_approval(&self.plan, self.complexity_bp, out) {
            return self.enter(Phase::Executing, out);
        }
        if self.phase == Phase::Executing {
            self.enter(Phase::Replanning, out);
        }
        self.await_plan_approval(out);
    }

    /// The same of what whoever decides has made of the plan.
    pub(super) fn show_what_changed(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        if self.phase == Phase::Executing && std::mem::take(&mut self.unseen) {
            self.show_later_plan(gates, out);
        }
    }

    /// Asks for the plan once more, with the conversation about the last one (SHH-21): whoever has made it.
    pub fn ask_plan_again(&mut self, conversation: &Value, definitive: bool, out: &mut Outbox) {
        self.at_their_word = true;
        if self.approved && self.rules.selection == Selection::Supervisor {
            return self.decide_again(conversation, out);
        }
        let mut given = match std::mem::take(&mut self.planning_context) {
            Value::Object(map) => map,
            _ => serde_json::Map::new(),
        };
        given.insert("conversation".into(), conversation.clone());
        given.insert("definitive".into(), definitive.into());
        self.planning_context = Value::Object(given);
        self.ask_planner(out);
    }

    pub(super) fn planned(&mut self, answer: Answer, gates: &mut dyn Gates, out: &mut Outbox) {
        let mut output = match self.plan_in(answer) {
            Ok(output) => output,
            Err(why) => return self.not_planned(&why.to_string(), gates, out),
        };
        if self.iteration > 1 || self.approved || self.has_work_of_people() {
            self.complexity_bp = output.complexity.or(self.complexity_bp);
            return self.take_replan(output.tasks, output.reasoning, gates, out);
        }
        self.rules.apply_policies(&mut output.tasks);
        let strategy = gates.strategy(output.strategy.map(PlanStrategy::as_str).unwrap_or_default());
        self.rules.sequential |= strategy == "sequential";
        self.strategy = Some(strategy).filter(|strategy| !strategy.is_empty());
        self.complexity_bp = output.complexity;
        self.plan.reasoning.clone_from(&output.reasoning);
        // What nobody here can do is for the people of this run, and so are calls that they are asked for: a run below would end
        // without them.
        let is_paid = out.budget().used_up().is_none() && !out.budget().asks_for_calls();
        if is_paid && self.unmatched(&output.tasks).is_none() && gates.hands_on(&output, false, out) {
            return self.enter(Phase::Executing, out);
        }
        self.propose(output.tasks, gates, out);
    }

    fn plan_in(&self, answer: Answer) -> Result<PlannerOutput, NotTaken> {
        let said = answer?;
        if let Some(why) = refused(&said) {
            return Err(NotTaken::Refused(why));
        }
        let mut output = read_plan_answer(&said, self.rules.strategy, self.rules.upfront)?;
        assign_roles(&mut output, self.rules.given_role.as_deref());
        Ok(self.checked_of_model(output)?)
    }

    /// No plan, no run; unless people asked for another plan and still have one.
    fn not_planned(&mut self, why: &str, gates: &mut dyn Gates, out: &mut Outbox) {
        self.at_their_word = false;
        if !gates.plan_failed(why, out) {
            self.abort("planning_failed", format!("decomposition failed: {why}"), Value::Null, gates, out);
        }
    }

    /// Takes the first plan, or in a review conversation the next version of it.
    fn propose(&mut self, planned: Vec<PlannedTask>, gates: &mut dyn Gates, out: &mut Outbox) {
        self.at_their_word = false;
        let version = self.plan.version;
        let mut plan = TaskPlan::new(self.plan.objective.clone());
        (plan.version, plan.reasoning) = (version, self.plan.reasoning.clone());
        plan.origin = PlanOrigin::Planner;
        let build = |planned: PlannedTask| {
            let id = planned.id.clone()?;
            Some(planned.task(id, self.rules.requires, self.rules.max_attempts))
        };
        let tasks: Vec<Task> = planned.into_iter().filter_map(build).collect();
        if let Err(why) = add_to(&mut plan, tasks, self.rules.honour) {
            return self.not_planned(&why.to_string(), gates, out);
        }
        plan.version = version + 1;
        self.plan = plan;
        self.forget_indexes();
        let ids: Vec<TaskId> = self.plan.tasks.keys().cloned().collect();
        for id in &ids {
            self.index(id);
            out.note(NoteKind::TaskAdded, json!({ "task": id, "goal": self.task(id).map(|task| &task.goal) }));
        }
        self.snapshot_plan("plan", out);
        out.note(NoteKind::PlanProposed, json!({ "version": self.plan.version, "tasks": ids }));
        gates.moment(PlanEvent::Decomposed, &self.plan, out);
        if gates.plan_needs_approval(&self.plan, self.complexity_bp, out) {
            self.await_plan_approval(out);
        } else {
            self.enter(Phase::Executing, out);
        }
    }

    fn forget_indexes(&mut self) {
        self.dirty.clear();
        self.runnable.clear();
        self.in_flight.clear();
        self.open.clear();
        self.dependents.clear();
    }

    /// The agents that a plan may name.
    fn allowed_agents(&self) -> Vec<String> {
        let known: Vec<String> = self.rules.workers.iter().map(|card| card.name.clone()).collect();
        let named = if known.is_empty() { self.rules.policies.allowed_agents.clone() } else { known };
        named.into_iter().filter(|agent| self.rules.policies.allows(agent)).collect()
    }

    /// What those agents are there for, of each that says so (CUG-02).
    fn agent_cards(&self) -> Vec<Value> {
        let allowed = self.allowed_agents();
        let known = self.rules.workers.iter().filter(|card| allowed.contains(&card.name));
        let says = |card: &&WorkerCard| {
            !card.description.is_empty()
                || card.role.is_some()
                || card.capability != card.name
                || !self.rules.guides_to(&card.name).is_empty()
        };
        let shown = |card: &WorkerCard| {
            let mut shown = json!({ "name": card.name, "capability": card.capability });
            if !card.description.is_empty() {
                shown["description"] = json!(card.description);
            }
            if let Some(role) = &card.role {
                shown["role"] = json!(role);
            }
            let guides = self.rules.guides_to(&card.name);
            if !guides.is_empty() {
                shown["guide"] = guides.join("\n").into();
            }
            shown
        };
        known.filter(says).map(shown).collect()
    }

    /// A plan of a planner, or of whoever evaluates.
    pub(super) fn checked_of_model(&self, output: PlannerOutput) -> Result<PlannerOutput, PlanRefusal> {
        match self.reserved_task(&output.tasks) {
            Some(why) => Err(why),
            None => self.checked(output),
        }
    }

    pub(super) fn checked(&self, output: PlannerOutput) -> Result<PlannerOutput, PlanRefusal> {
        if let Some(why) = self.unmatched(&output.tasks).filter(|_| !self.rules.escalates_unmatched) {
            return Err(why);
        }
        let is_known = |of: &TaskId| {
            self.plan.tasks.contains_key(of) || output.tasks.iter().any(|task| task.id.as_ref() == Some(of))
        };
        for (place, task) in output.tasks.iter().enumerate() {
            if task.goal.trim().is_empty() {
                return Err(PlanRefusal::NoGoal { place });
            }
            if task.max_attempts == Some(0) {
                return Err(PlanRefusal::NoAttempt { place });
            }
            if let Some(of) = task.revises.clone().filter(|of| !is_known(of)) {
                return Err(PlanRefusal::RevisesNothing { place, of });
            }
            if let Some(why) = self.rules.forbids(WorkerRequirements::by(task)) {
                let why = AgentForbidden { allowed: self.allowed_agents(), ..why };
                return Err(PlanRefusal::Forbidden { place, why });
            }
        }
        if output.tasks.len() > self.rules.max_tasks as usize {
            return Err(PlanRefusal::TooLong { given: output.tasks.len(), max: self.rules.max_tasks });
        }
        Ok(output)
    }
}

/// A task as its planner sees it.
fn shown(task: &Task) -> Value {
    let shown = json!({
        "id": task.id, "goal": task.goal, "status": task.status, "feedback": task.open_feedback(), "result": task.result,
    });
    with_error(shown, task)
}

/// SHN-40: by position, where the planner gave roles; a place without one has the role that the run was given.
fn assign_roles(output: &mut PlannerOutput, given: Option<&str>) {
    let types = std::mem::take(&mut output.agent_types);
    if types.is_empty() {
        return;
    }
    for (place, task) in output.tasks.iter_mut().enumerate() {
        task.role.get_or_insert_with(|| role_of(place, &types, given));
    }
}
