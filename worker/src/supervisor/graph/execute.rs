//! Executing: claims, what a worker is told, and what becomes of its answer.
//!
//! Invariant: a claim is atomic and looks at dependencies, gates and slots once more (PDT-15); one call per (task,
//! attempt); an answer of a task that does not run any more changes nothing (PDT-52); an error is never reviewed
//! (PDT-26).

use std::ops::Bound;
use std::time::Duration;

use serde_json::{Map, json};

use super::*;
use crate::supervisor::core::retry::{self, NextTry};
use crate::supervisor::model::{Attempt, AttemptOutcome, SkipReason, TaskError};
use crate::supervisor::outbox::CallFailureKind;
use crate::supervisor::routing::{ThinkingStrategy, degrade};

/// Why a task that was to start did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unclaimed {
    /// People are asked first.
    Asked,
    /// People are asked about others first: it starts by itself when they have answered.
    Held,
    Because(String),
}

impl Graph {
    /// Claims all that may start, in order, while there is room.
    pub(super) fn claim_all(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        let mut passed: BTreeSet<TaskId> = BTreeSet::new();
        let slots = self.rules.slots();
        // Where the last look was: what is before it is looked at again only if something has changed.
        let mut after = Bound::Unbounded;
        while self.in_flight.len() < slots && self.phase == Phase::Executing {
            let mut rest = self.runnable.range((after, Bound::Unbounded));
            let Some(place) = rest.find(|(_, _, id)| !passed.contains(id)).cloned() else { return };
            let id = place.2.clone();
            if self.out_of_turns() {
                return self.end_of_turns(gates, out);
            }
            if self.stopped_before(&id, out).is_some() || self.claim(&id, gates, out).is_err() {
                passed.insert(id);
            }
            after = if self.dirty.is_empty() { Bound::Excluded(place) } else { Bound::Unbounded };
            self.schedule(gates, out);
        }
    }

    /// FSP-09: a loop that goes one by one takes so many steps, retries among them, and no more.
    fn out_of_turns(&self) -> bool {
        self.rules.selection == Selection::One && self.rules.max_steps.is_some_and(|most| self.turns >= most)
    }

    fn end_of_turns(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        let text = format!("the limit of {} turns is reached", self.turns);
        self.errors.push(text.clone());
        for id in self.open.clone() {
            self.give_up(&id, SkipReason::Budget, text.clone(), gates, out);
        }
    }

    /// The task that a later one does not overtake where one comes after the other in plan order: it waits for a person,
    /// or for its next try. One that is errored for good would stop all for good.
    pub(super) fn stopped_before(&self, id: &TaskId, out: &Outbox) -> Option<&TaskId> {
        let position = self.task(id).map_or(0, |task| task.position);
        let waits = |task: &Task| {
            task.status == TaskStatus::AwaitingApproval
                || out.awaited().runs(&GraphKey::Retry { task: task.id.clone(), attempt: task.tries }.into())
        };
        let earlier = self.stopped.iter().take_while(|(first, _)| *first < position);
        earlier.map(|(_, id)| id).find(|id| self.task(id).is_some_and(waits)).filter(|_| self.rules.sequential)
    }

    /// Starts a task if it may start, or says why it does not.
    pub(super) fn claim(&mut self, id: &TaskId, gates: &mut dyn Gates, out: &mut Outbox) -> Result<(), Unclaimed> {
        let Some(task) = self.copy(id).filter(|task| self.may_run(task)) else {
            return Err(Unclaimed::Because(self.why_skipped(id)));
        };
        if let Some(why) = self.rules.forbids(WorkerRequirements::of(&task)).map(|why| why.to_string()) {
            self.give_up(id, SkipReason::PolicyDenied, why.clone(), gates, out);
            return Err(Unclaimed::Because(why));
        }
        let task = self.as_approved(task);
        match gates.may_start(&task, out) {
            Start::Go => {}
            Start::NeedsApproval => {
                self.set(id, TaskStatus::AwaitingApproval, Actor::Scheduler, "approval_requested", out);
                return Err(Unclaimed::Asked);
            }
            Start::Held(_) => return Err(Unclaimed::Held),
            Start::Wait(why) => return Err(Unclaimed::Because(why)),
            Start::Refused(why) => {
                self.give_up(id, SkipReason::PolicyDenied, why.clone(), gates, out);
                return Err(Unclaimed::Because(why));
            }
        }
        if !self.set(id, TaskStatus::Running, Actor::Scheduler, "claimed_for_execution", out) {
            return Err(Unclaimed::Because(self.why_skipped(id)));
        }
        self.turns += 1;
        self.waits_no_more(id, out);
        if task.capability.as_deref() == Some(HUMAN) {
            self.ask_person(id, gates, out);
        } else {
            let extra = gates.context(&task, self.who(&task).name().as_deref(), out);
            self.start_attempt(id, extra, gates, out);
        }
        self.executed_in_cycle = true;
        if let Some(task) = self.copy(id) {
            gates.moment(PlanEvent::Started(&task), &self.plan, out);
        }
        Ok(())
    }

    /// The work of this task is a person's answer.
    fn ask_person(&mut self, id: &TaskId, gates: &mut dyn Gates, out: &mut Outbox) {
        let now = out.now();
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        task.tries += 1;
        task.attempts.push(Attempt::begin(task.tries, Some(HUMAN.to_owned()), now));
        let question = json!({ "question": task.goal, "context": task.params });
        let question = Reply { interrupt: Some(question), success: true, ..Reply::default() };
        let task = task.clone();
        gates.may_take(&task, &question, false, out);
        self.set(id, TaskStatus::AwaitingInput, Actor::Worker, "asks_a_person", out);
    }

    /// The way of thinking that is left to a task: the planner's, or a cheaper one when tokens run out (SHN-72).
    fn thinking(&self, id: &TaskId, out: &mut Outbox) -> Option<Value> {
        let planned = Value::String(self.strategy.clone()?);
        let strategy: ThinkingStrategy = serde_json::from_value(planned).ok()?;
        let left = out.budget().left().tokens;
        let taken = self.rules.degrade.as_ref().map_or(strategy, |rules| degrade(strategy, left, rules));
        if taken != strategy {
            let data = json!({ "task": id, "from": strategy, "to": taken, "tokens_left": left });
            out.note(NoteKind::StrategyDegraded, data);
        }
        serde_json::to_value(taken).ok()
    }

    /// The next call of a task that runs; where the budget is spent it is left out as what waits is.
    pub(super) fn start_attempt(
        &mut self,
        id: &TaskId,
        mut extra: Map<String, Value>,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        if out.budget().exhausted().is_some() {
            self.set(id, TaskStatus::Errored, Actor::Worker, "budget", out);
            return self.leave_out(id, SPENT, gates, out);
        }
        if let Some(strategy) = self.thinking(id, out) {
            extra.insert("strategy".to_owned(), strategy);
        }
        let context = self.context_of(id, extra);
        let agent = self.task(id).and_then(|task| self.who(task).name());
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        task.tries += 1;
        let attempt = task.tries;
        let mut call = Call::new(GraphKey::Execute { task: id.clone(), attempt }, Purpose::ExecuteWorker, context)
            .task(id.clone(), attempt)
            .round(self.iteration.max(self.cycle));
        call.agent = agent;
        call.prompt = prompt_of(Purpose::ExecuteWorker, &call.context);
        let mut record = Attempt::begin(attempt, call.agent.clone(), out.now());
        record.prompt_hash = prompt_hash(&call);
        task.attempts.push(record);
        let data = json!({ "task": id, "attempt": attempt, "agent": call.agent, "prompt_hash": prompt_hash(&call) });
        out.note(NoteKind::AttemptStarted, data);
        self.call(call, out);
    }

    /// The end of an attempt.
    pub(super) fn executed(
        &mut self,
        id: &TaskId,
        attempt: u32,
        answer: Answer,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        let rejected = answer.as_ref().is_err_and(retry::is_refusal);
        let is_final = rejected || answer.as_ref().is_err_and(retry::is_hopeless);
        let kind = answer.as_ref().map_or_else(|failure| failure.kind, |_| CallFailureKind::Error);
        let reply = answer.map_err(NotTaken::from).and_then(|value| Ok(Reply::of(value)?));
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        let (status, running) = (task.status, task.status == TaskStatus::Running && task.tries == attempt);
        let Some(record) = task.attempts.iter_mut().rev().find(|record| record.n == attempt) else { return };
        record.ended_at = Some(out.now());
        if !running {
            record.outcome = AttemptOutcome::Dropped;
        }
        if let Ok(reply) = &reply {
            self.cost_of_attempt(id, attempt, reply);
        }
        if !running {
            return out.note(NoteKind::AttemptDropped, json!({ "task": id, "attempt": attempt, "status": status }));
        }
        match reply {
            reply if !rejected && self.looked_again_in_vain(id, attempt, &reply, gates, out) => {}
            Ok(reply) if reply.success => self.replied(id, attempt, reply, gates, out),
            Ok(reply) => {
                self.errored(id, attempt, reply.why(), gates, out);
                self.said_beside(id, &reply, gates, out);
            }
            Err(why) if is_final => {
                self.attempt_failed(id, attempt, &why.to_string(), out);
                self.not_tried_again(id, kind, why.to_string(), gates, out);
            }
            Err(why) if kind == CallFailureKind::Spent => self.spent_below(id, attempt, why.to_string(), gates, out),
            Err(why) => self.errored(id, attempt, why.to_string(), gates, out),
        }
    }

    /// What an attempt cost is told with it, whatever came of it. It is charged by the account of the run.
    pub(super) fn cost_of_attempt(&mut self, id: &TaskId, attempt: u32, reply: &Reply) {
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        if let Some(record) = task.attempts.iter_mut().rev().find(|record| record.n == attempt) {
            record.tokens = record.tokens.saturating_add(reply.tokens);
            record.cost_micros = record.cost_micros.saturating_add(reply.cost.unwrap_or(0));
            record.unpriced_calls += u32::from(reply.cost.is_none() && reply.tokens > 0);
        }
    }

    fn replied(&mut self, id: &TaskId, attempt: u32, mut reply: Reply, gates: &mut dyn Gates, out: &mut Outbox) {
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        // Whoever was let do it names what they did: it is not proposed once more (SHH-18), and that is said.
        if task.approved
            && reply.proposes() == task.action_to_take()
            && let Some(action) = reply.action.take().filter(|action| !action.is_empty())
        {
            let why = "it was approved before the task began, as its work: it is not done once more";
            out.note(NoteKind::ActionRefused, json!({ "task": id, "action": action, "why": why }));
        }
        if let Some(record) = task.attempts.iter_mut().rev().find(|record| record.n == attempt) {
            record.outcome = AttemptOutcome::Completed;
            record.confidence_bp = reply.confidence;
            record.model.clone_from(&reply.model);
        }
        if reply.overflow.is_some() || reply.consult.is_some() {
            self.said_beside(id, &reply, gates, out);
        }
        if let Some(notes) = &reply.overflow {
            return self.overflowed(id, attempt, notes, gates, out);
        }
        if let Some(question) = &reply.consult {
            return self.consult(id, attempt, question, gates, out);
        }
        // Who may look at a result again costs another call.
        if out.budget().exhausted().is_none() && self.reflects(id, attempt, &reply) {
            return self.once_more(id, gates, out);
        }
        out.note(NoteKind::AttemptCompleted, json!({ "task": id, "attempt": attempt, "tokens": reply.tokens }));
        self.result_given(id, reply, gates, out);
    }

    /// The result counts: it goes to the reviewer, or the task is done.
    pub(super) fn take(&mut self, id: &TaskId, attempt: u32, gates: &mut dyn Gates, out: &mut Outbox) {
        match self.rules.review {
            ReviewScope::None => {
                if self.set(id, TaskStatus::Completed, Actor::Worker, "result", out) {
                    self.tell_ended(id, gates, out);
                }
            }
            ReviewScope::Task => {
                self.set(id, TaskStatus::AwaitingReview, Actor::Worker, "result", out);
                self.ask_review(id, attempt, out);
            }
            ReviewScope::Rules => self.judge_by_rules(id, attempt, gates, out),
            ReviewScope::Iteration => {
                self.set(id, TaskStatus::AwaitingReview, Actor::Worker, "result", out);
            }
        }
    }

    /// No result: the task is errored, and tried again, repaired, skipped, failed, or the run ends.
    pub(super) fn errored(&mut self, id: &TaskId, attempt: u32, why: String, gates: &mut dyn Gates, out: &mut Outbox) {
        self.attempt_failed(id, attempt, &why, out);
        let Some(task) = self.task(id) else { return };
        let failures = task.failures();
        let who = task.attempts.last().and_then(|record| record.agent.as_ref());
        let own = who.and_then(|agent| self.rules.agent_tries.get(agent));
        let pause = Duration::from_millis(self.rules.retry_backoff_ms);
        let tries = Tries { most: own.copied().unwrap_or(self.rules.tries), pause };
        // PDT-26: errors consume attempts, so a task that has none left is not tried again.
        let is_out = self.rules.errors_are_attempts && !Tries::of_task(task).are_left(task.attempt_count);
        // Between the review of an iteration and what follows nothing is done again.
        let is_out = is_out || self.phase == Phase::Reviewing;
        match tries.next(failures, out.now()) {
            NextTry::Now if !is_out => self.retry(id, out),
            NextTry::At(at) if !is_out => {
                out.timer(GraphKey::Retry { task: id.clone(), attempt }, at, format!("next try of task {id}"));
            }
            NextTry::Now | NextTry::At(_) | NextTry::Never => self.exhausted(id, why, gates, out),
        }
    }

    pub(super) fn attempt_failed(&mut self, id: &TaskId, attempt: u32, why: &str, out: &mut Outbox) {
        self.record_failure(id, attempt, why, out);
        self.set(id, TaskStatus::Errored, Actor::Worker, "worker-error", out);
    }

    pub(super) fn record_failure(&mut self, id: &TaskId, attempt: u32, why: &str, out: &mut Outbox) {
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        if let Some(record) = task.attempts.iter_mut().rev().find(|record| record.n == attempt) {
            (record.outcome, record.error) = (AttemptOutcome::Failed, Some(why.to_owned()));
        }
        task.error = Some(TaskError { kind: "worker-error".into(), message: why.to_owned() });
        task.attempt_count += u32::from(self.rules.errors_are_attempts);
        out.note(NoteKind::AttemptFailed, json!({ "task": id, "attempt": attempt, "error": why }));
    }

    pub(super) fn exhausted(&mut self, id: &TaskId, why: String, gates: &mut dyn Gates, out: &mut Outbox) {
        let terminal = match self.rules.on_exhausted {
            // Where an error ends the run it does so however final it is for its task (FSS-17).
            OnTriesExhausted::Abort => OnTriesExhausted::Abort,
            _ if self.rules.errored_is_terminal => OnTriesExhausted::Failed,
            then => then,
        };
        if let Some(task) = self.plan.tasks.get_mut(id) {
            task.labels.insert("worker-error".to_owned());
        }
        match terminal {
            OnTriesExhausted::Errored => self.errored_for_good(id, gates, out),
            OnTriesExhausted::Failed => self.fail(id, "tries_exhausted", gates, out),
            OnTriesExhausted::Skip => {
                if let Some(task) = self.plan.tasks.get_mut(id) {
                    task.skipped = Some(SkipReason::WorkerError);
                }
                self.set(id, TaskStatus::Skipped, Actor::Scheduler, "worker_error", out);
                self.tell_ended(id, gates, out);
                self.check_threshold(gates, out);
            }
            OnTriesExhausted::Abort => {
                self.set(id, TaskStatus::Failed, Actor::Scheduler, "tries_exhausted", out);
                self.tell_ended(id, gates, out);
                self.abort("subtask_failed", why, json!({ "task": id }), gates, out);
            }
        }
    }

    /// pydantask: it waits for the supervisor's repair; its attempts are used up some day.
    fn errored_for_good(&mut self, id: &TaskId, gates: &mut dyn Gates, out: &mut Outbox) {
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        if Tries::of_task(task).are_left(task.attempt_count) {
            return;
        }
        let last = task.error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
        let message = format!("Max retries reached ({}/{}). Last error: {last}", task.attempt_count, task.max_attempts);
        task.error = Some(TaskError { kind: "worker-error".into(), message });
        self.fail(id, "tries_exhausted", gates, out);
    }

    /// A task that has an error has failed.
    pub(super) fn fail(&mut self, id: &TaskId, reason: &str, gates: &mut dyn Gates, out: &mut Outbox) {
        self.set(id, TaskStatus::Failed, Actor::Scheduler, reason, out);
        self.tell_ended(id, gates, out);
        self.check_threshold(gates, out);
    }

    /// The next try of an errored task.
    pub(super) fn retry(&mut self, id: &TaskId, out: &mut Outbox) {
        if self.task(id).is_some_and(|task| task.status == TaskStatus::Errored) {
            self.set(id, TaskStatus::Ready, Actor::Scheduler, "retry", out);
        }
    }

    /// A task that will not be done because somebody or some policy said so. One under review is refused and left as it is.
    pub(super) fn give_up(
        &mut self,
        id: &TaskId,
        reason: SkipReason,
        why: String,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        let Some(status) = self.task(id).map(|task| task.status) else { return };
        let to = if status == TaskStatus::NeedsRevision { TaskStatus::Cancelled } else { TaskStatus::Skipped };
        if !self.set(id, to, Actor::Scheduler, "given_up", out) {
            return;
        }
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        task.error = Some(TaskError { kind: "not_run".into(), message: why });
        task.skipped = Some(reason).filter(|_| to == TaskStatus::Skipped).or(task.skipped.take());
        self.tell_ended(id, gates, out);
    }
}
