//! Cycles: a decider is shown the board, decides, and what it decided is carried out and reviewed (PDT-01).
//!
//! Invariant: what is not runnable is skipped without a trace on the task (PDT-14, PDT-55), nothing is dispatched twice
//! in a cycle, and a run that makes no progress ends (PDT-06). A decision that does not conform changes nothing and
//! counts as a cycle without progress.

use serde_json::{Map, json};

use super::answers::answered;
use super::execute::Unclaimed;
use super::view::with_error;
use super::*;
use crate::supervisor::model::SupervisorFeedback;
use crate::supervisor::spec::OnIdle;

/// The parameter in which a word of the supervisor stands that is told to whoever does the task (PDT-46).
pub const SUPERVISOR_FEEDBACK: &str = "supervisor_feedback";
pub(super) const NO_CHANGES: &str = "No scheduler changes this cycle.";

impl Graph {
    /// The loop of a supervisor that selects: starts what was chosen; when all of that is over, the next decision.
    pub(super) fn next_cycle(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        self.claim_chosen(gates, out);
        let busy = waits_for_any(out) || !self.chosen.is_empty();
        let waits = |task: &Task| task.is_in_flight() || task.status == TaskStatus::AwaitingApproval;
        if busy || self.open.iter().filter_map(|id| self.task(id)).any(waits) || gates.busy().is_some() {
            return;
        }
        if self.in_cycle {
            self.end_cycle(gates, out);
        }
        if self.phase != Phase::Executing || self.is_idle(gates, out) {
            return;
        }
        if self.rules.max_steps.is_some_and(|most| self.cycle >= most) {
            return self.stop(gates, out);
        }
        if out.budget().exhausted().is_some() {
            return self.stop_for_budget(gates, out);
        }
        self.ask_decision(out);
    }

    /// Tasks are left of which none may run, and the spec says what is done then: the supervisor is not asked.
    fn is_idle(&mut self, gates: &mut dyn Gates, out: &mut Outbox) -> bool {
        let left: Vec<&Task> = self.open.iter().filter_map(|id| self.task(id)).collect();
        if left.is_empty() || left.iter().any(|task| self.may_run(task)) {
            return false;
        }
        match self.rules.on_idle {
            None => return false,
            Some(OnIdle::Wait) => {}
            Some(OnIdle::Complete) => self.stop(gates, out),
        }
        true
    }

    fn claim_chosen(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        let slots = self.rules.slots();
        let chosen = std::mem::take(&mut self.chosen);
        for id in chosen {
            if self.in_flight.len() >= slots {
                self.chosen.push(id);
                continue;
            }
            match self.claim(&id, gates, out) {
                Ok(()) | Err(Unclaimed::Asked) => {}
                Err(Unclaimed::Held) => self.chosen.push(id),
                Err(Unclaimed::Because(why)) => self.note_skipped(&id, &why),
            }
        }
        self.schedule(gates, out);
    }

    pub(super) fn ask_decision(&mut self, out: &mut Outbox) {
        self.cycle += 1;
        self.board_shown();
        self.executed_in_cycle = false;
        self.in_cycle = true;
        let notes = std::mem::take(&mut self.board_notes);
        let notes = if notes.is_empty() { NO_CHANGES.to_owned() } else { notes.join("\n") };
        let answers = std::mem::take(&mut self.tool_answers);
        let bootstrap = self.cycle == 1 && self.plan.tasks.is_empty();
        let board: Vec<Value> = self.plan.tasks.values().map(|task| json!(self.board_line(task))).collect();
        // An agent may be called as something in the box is: then it is the agent.
        let granted =
            |card: &&CapabilityCard| self.rules.card(&card.name).is_some() || !self.rules.reserved.contains(&card.name);
        let capabilities: Vec<Value> = self.rules.capabilities.iter().filter(granted).map(|card| json!(card)).collect();
        let context = json!({
            "objective": self.plan.objective, "cycle": self.cycle,
            "instruction": if bootstrap { "bootstrap" } else { "orchestration" },
            "board": board, "tools": tools::tools_of(&self.rules), "capabilities": capabilities,
            "scheduler_notes": notes, "tool_results": answers, "now_ms": out.now().0 / 1000,
            "tokens_used": out.budget().spent.tokens,
        });
        let prompt = prompt_of(Purpose::Decide, &context);
        let key = GraphKey::Decide { cycle: self.cycle };
        self.call(Call::new(key, Purpose::Decide, context).round(self.cycle).prompt(prompt), out);
    }

    pub(super) fn decided(&mut self, answer: Answer, gates: &mut dyn Gates, out: &mut Outbox) {
        let decision = match answered::<SupervisorDecision>("decision", answer) {
            Ok(decision) => decision,
            Err(why) => {
                let why = why.to_string();
                out.note(NoteKind::ActionRefused, json!({ "cycle": self.cycle, "why": why }));
                self.board_notes.push(format!("Your last decision was not understood: {why}"));
                (self.unseen, self.at_their_word) = (gates.plan_failed(&why, out), false);
                self.undecided = Some(why);
                return;
            }
        };
        self.undecided = None;
        out.note(NoteKind::DecisionRecorded, json!({ "cycle": self.cycle, "decision": decision }));
        let version = self.plan.version;
        for call in &decision.tool_calls {
            self.use_tool(call, gates, out);
        }
        self.unseen |= std::mem::take(&mut self.at_their_word) || self.plan.version != version;
        self.schedule(gates, out);
        self.take_feedback(&decision.feedback_to_subagents, out);
        if decision.tasks_to_execute.is_empty() || self.allowed(Authority::Select, "select", out) {
            self.choose(&decision.tasks_to_execute);
        }
        if decision.all_tasks_completed
            && self.allowed(Authority::Finish, "finish", out)
            && !self.ends_older_board("finish", out)
        {
            self.claims_to_be_done(gates, out);
        }
    }

    /// Whether the spec grants this; otherwise it is noted, and the next board says so (§2.2).
    fn allowed(&mut self, authority: Authority, action: &str, out: &mut Outbox) -> bool {
        let may = self.rules.authority.may_or_note(authority, action, self.cycle, out);
        if !may {
            self.board_notes.push(format!("The action {action} was refused: not allowed in this mode."));
        }
        may
    }

    /// PDT-46, PDT-47: the newest word counts; it is stored before the dispatch that carries it.
    fn take_feedback(&mut self, feedback: &BTreeMap<TaskId, String>, out: &mut Outbox) {
        for (id, text) in feedback {
            if !self.rules.authority.may(Authority::Feedback) {
                out.note(NoteKind::ActionRefused, json!({ "action": "feedback", "task": id, "why": "no authority" }));
                self.board_notes.push(format!("Feedback to task {id} was refused: not allowed in this mode."));
                continue;
            }
            let cycle = self.cycle;
            let Some(task) = self.plan.tasks.get_mut(id) else {
                self.board_notes.push(format!("Feedback to task {id} was skipped: no such task."));
                continue;
            };
            task.supervisor_feedback = Some(SupervisorFeedback { text: text.clone(), cycle });
            task.params.insert(SUPERVISOR_FEEDBACK.into(), text.clone().into());
            out.note(
                NoteKind::FeedbackAttached,
                json!({ "task": id, "text": text, "cycle": cycle, "from": "supervisor" }),
            );
        }
    }

    /// Keeps of what was chosen what may run, each once, in the order chosen.
    fn choose(&mut self, ids: &[TaskId]) {
        let mut seen = BTreeSet::new();
        for id in ids {
            if !seen.insert(id.clone()) {
                continue;
            }
            match self.task(id) {
                Some(task) if self.may_run(task) => self.chosen.push(id.clone()),
                _ => self.note_skipped(id, &self.why_skipped(id)),
            }
        }
    }

    /// PDT-55: the next board says why. A controller is shown no board.
    fn note_skipped(&mut self, id: &TaskId, why: &str) {
        if self.rules.selection == Selection::Supervisor {
            self.board_notes.push(format!("Task {id} was not executed: {why}"));
        }
    }

    pub(super) fn why_skipped(&self, id: &TaskId) -> String {
        self.why_not(id).unwrap_or_else(|| "not runnable".to_owned())
    }

    /// PDT-08: the claim is looked at; it holds only when the final task says so.
    fn claims_to_be_done(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        let reasons = self.why_not_done();
        if reasons.is_empty() {
            self.chosen.clear();
            self.judged_done = true;
            return self.finish(gates, out);
        }
        let text = format!("all_tasks_completed was overridden: {}", reasons.join("; "));
        out.note(NoteKind::ActionRefused, json!({ "action": "finish", "cycle": self.cycle, "reasons": reasons }));
        self.board_notes.push(text);
    }

    fn why_not_done(&self) -> Vec<String> {
        let finals: Vec<&Task> = self.plan.tasks.values().filter(|task| task.is_final).collect();
        match finals.as_slice() {
            [] => vec!["no task is marked Final: True".to_owned()],
            [task] => {
                let mut reasons = Vec::new();
                if task.status != TaskStatus::Completed {
                    let status = task.status;
                    reasons.push(format!("final task {} status is '{status}' (expected 'completed')", task.id));
                }
                if task.result.is_none() {
                    reasons.push(format!("final task {} has no TaskResult", task.id));
                }
                reasons
            }
            several => {
                let ids: Vec<String> = several.iter().map(|task| task.id.to_string()).collect();
                vec![format!("multiple tasks are marked Final: True ([{}])", ids.join(", "))]
            }
        }
    }

    /// The final task is done and gave nothing: no claim to be done holds (PDT-08).
    fn final_without_result(&self) -> Option<String> {
        let is_so = |task: &&Task| task.is_final && task.status == TaskStatus::Completed && task.result.is_none();
        let task = self.plan.tasks.values().find(is_so)?;
        Some(format!(" Final task {} is completed and has no result.", task.id))
    }

    /// A cycle is over: did a task run?
    fn end_cycle(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        self.in_cycle = false;
        if self.executed_in_cycle {
            self.idle_cycles = 0;
            return;
        }
        // In the first cycle there is nothing to execute yet (PDT-05).
        self.idle_cycles += 1;
        let report = self.make_deadlock_report();
        out.note(NoteKind::NoProgress, json!({ "cycle": self.cycle, "report": report }));
        self.deadlock_report = Some(report);
        if self.idle_cycles >= self.rules.no_progress {
            let n = self.idle_cycles;
            let report = self.deadlock_report.clone().unwrap_or_default();
            let undecided = self.undecided.take().map(|why| format!(" The last decision was not understood: {why}"));
            let undecided = undecided.or_else(|| self.final_without_result());
            self.errors.push(format!(
                "No progress after {n} consecutive cycles (no tasks executed). Stopping to avoid infinite loop. {report}{}",
                undecided.unwrap_or_default()
            ));
            self.stop(gates, out);
        }
    }

    /// CUG-07: after every end of a sub-task the controller says what is next; plans of at most one task need none
    /// (CUG-42).
    pub(super) fn control(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        if self.plan.tasks.len() <= 1 {
            self.claim_all(gates, out);
            return self.end_of_iteration(gates, out);
        }
        self.claim_chosen(gates, out);
        if waits_for_any(out) || !self.in_flight.is_empty() || !self.chosen.is_empty() {
            return;
        }
        let anything = self.open.iter().filter_map(|id| self.task(id)).any(|task| self.may_run(task));
        if !anything {
            return self.end_of_iteration(gates, out);
        }
        if self.rules.max_steps.is_some_and(|most| self.cycle >= most) {
            let most = self.rules.max_steps.unwrap_or_default();
            self.errors.push(format!(
                "Maximum step limit ({most}) reached. The task has exceeded the allowed number of execution cycles. \
                 Please simplify your request or break it into smaller tasks."
            ));
            return self.stop(gates, out);
        }
        self.ask_controller(out);
    }

    fn ask_controller(&mut self, out: &mut Outbox) {
        self.cycle += 1;
        self.board_shown();
        let view = |task: &Task| {
            let shown = json!({ "id": task.id, "goal": task.goal, "agent": task.agent, "status": task.status });
            with_error(shown, task)
        };
        let subtasks: Vec<Value> = self.plan.in_order().into_iter().map(view).collect();
        let mut variables: Map<String, Value> = self.variables();
        for task in self.plan.in_order() {
            if let Some(result) = &task.result {
                variables.insert(format!("task_{}", task.id), result.clone());
            }
        }
        let mut context = json!({
            "intent": self.plan.objective, "subtasks": subtasks, "variables": variables, "cycle": self.cycle,
        });
        let refused = std::mem::take(&mut self.board_notes);
        if !refused.is_empty() {
            context["refused"] = json!(refused);
        }
        let prompt = prompt_of(Purpose::Decide, &context);
        let key = GraphKey::Decide { cycle: self.cycle };
        let call = Call::new(key, Purpose::Decide, context).round(self.cycle).prompt(prompt);
        self.shown = self.plan.tasks.len();
        self.call(call.agent("controller"), out);
    }

    /// About the sub-tasks that were shown; people may have added others since.
    pub(super) fn controlled(&mut self, answer: Answer, gates: &mut dyn Gates, out: &mut Outbox) {
        let length = self.shown;
        let read = answered::<ControllerDecision>("controller's decision", answer);
        let read = read.and_then(|decision| match decision.subtasks_progress.len() {
            given if given == length => Ok(decision),
            given => Err(NotTaken::NotAllSubtasks { given, shown: length }),
        });
        let decision = match read {
            Ok(decision) => decision,
            Err(why) => return self.not_controlled(&why.to_string(), gates, out),
        };
        self.control_tries = 0;
        out.note(NoteKind::DecisionRecorded, json!({ "cycle": self.cycle, "decision": decision }));
        let next = decision.next_subtask.trim();
        if decision.conclude_task && next.is_empty() && self.allowed(Authority::Finish, "finish", out) {
            if self.ends_older_board("conclude", out) {
                return;
            }
            self.overall_assessment = decision.conclude_final_answer.clone();
            return self.finish(gates, out);
        }
        let may_select = next.is_empty() || self.allowed(Authority::Select, "select", out);
        self.choose_subtask(if may_select { next } else { "" }, out);
    }

    /// CUG-07: a decision that cannot be read is asked for again, so many times; what was done until then stays done.
    fn not_controlled(&mut self, why: &str, gates: &mut dyn Gates, out: &mut Outbox) {
        self.control_tries += 1;
        if Tries::of(self.rules.review_tries).are_left(self.control_tries) {
            out.note(NoteKind::ActionRefused, json!({ "action": "decide", "cycle": self.cycle, "why": why }));
            return self.board_notes.push(format!("Your last decision was not understood: {why}"));
        }
        let text = format!("the plan controller failed: {why}");
        if !self.plan.tasks.values().any(|task| task.status == TaskStatus::Completed) {
            return self.abort("controller_failed", text, Value::Null, gates, out);
        }
        self.errors.push(text);
        self.stop(gates, out);
    }

    /// By id, by words that name a task that may run, or whatever may run (CUG-20). Whoever names a task that may not run
    /// is told so; only words that name none are new words for a task (CUG-42).
    fn choose_subtask(&mut self, next: &str, out: &mut Outbox) {
        let may: Vec<&Task> =
            self.runnable.iter().filter_map(|(_, _, id)| self.task(id)).filter(|task| self.may_run(task)).collect();
        let named =
            may.iter().find(|task| task.id.as_str() == next).or_else(|| may.iter().find(|task| task.goal == next));
        let known = |task: &&Task| task.id.as_str() == next || task.goal == next;
        if let (None, Some(other)) = (named, self.plan.in_order().into_iter().find(known)) {
            let (id, why) = (other.id.clone(), self.why_skipped(&other.id));
            out.note(
                NoteKind::ActionRefused,
                json!({ "action": "delegate", "task": id, "cycle": self.cycle, "why": why }),
            );
            self.board_notes.push(format!("Sub-task {id} was not started: {why}"));
            return;
        }
        let chosen: Vec<TaskId> = match named {
            Some(task) => vec![task.id.clone()],
            None if next.is_empty() => may.iter().map(|task| task.id.clone()).collect(),
            // Refined words are for the next one in plan order.
            None => may.iter().min_by_key(|task| task.position).map(|task| task.id.clone()).into_iter().collect(),
        };
        if let (None, false, Some(id)) = (named, next.is_empty(), chosen.first().cloned()) {
            let older = !self.approved && !self.touched.is_empty();
            self.refine(&id, next, out);
            if older {
                // Nobody knows which one was meant; the controller is asked again.
                self.in_cycle = false;
                return;
            }
        }
        self.chosen = chosen;
    }
}
