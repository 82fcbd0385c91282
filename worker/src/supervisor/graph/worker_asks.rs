//! What a worker may ask for instead of a result: to go on with its notes, and one question to another capability.
//!
//! Invariant: both are bounded in number and size (PDT-48, PDT-49), both are recorded with the task, and neither is an error by itself.

use serde_json::json;

use super::*;
use crate::supervisor::model::{AskedOfAnother, DoubtedResult, Overflow};

/// Resumes of a worker that ran out of context (PDT-48).
const OVERFLOWS_MAX: u32 = 2;
/// Characters of notes that a resumed worker is shown.
const NOTES_MAX: usize = 6_000;
/// Questions of one task. PDT-49 bounds the question, not their number; a worker that only asks would never end.
const CONSULTS_MAX: usize = 8;
/// Characters of a question that is asked: as many as of notes.
const QUESTION_MAX: usize = NOTES_MAX;
/// Characters of a consulted answer (PDT-49).
const CONSULT_ANSWER_MAX: usize = 3_000;
const CONSULT_TOKENS_MAX: u32 = 1_200;

impl Graph {
    /// What a worker wants of its team counts whatever became of its work.
    pub(super) fn said_beside(&self, id: &TaskId, reply: &Reply, gates: &mut dyn Gates, out: &mut Outbox) {
        if let Some(task) = self.copy(id).filter(|_| !reply.recruit.is_empty() || !reply.send.is_empty()) {
            gates.beside(&task, reply, out);
        }
    }

    /// PDT-48: the worker ran out of context. It goes on with its notes, twice at most.
    pub(super) fn overflowed(
        &mut self,
        id: &TaskId,
        attempt: u32,
        notes: &str,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        let count = task.metadata.overflows.len() as u32;
        let notes: String = notes.chars().take(NOTES_MAX).collect();
        task.metadata.overflows.push(Overflow { attempt, notes: notes.clone() });
        task.metadata.scratch_notes = Some(notes);
        if !Tries::of(OVERFLOWS_MAX).are_left(count) {
            return self.errored(id, attempt, "context overflow: the resumes are used up".to_owned(), gates, out);
        }
        self.once_more(id, gates, out);
    }

    /// The next attempt of a task that goes on running.
    pub(super) fn once_more(&mut self, id: &TaskId, gates: &mut dyn Gates, out: &mut Outbox) {
        let Some(copy) = self.copy(id) else { return };
        let extra = gates.context(&copy, self.who(&copy).name().as_deref(), out);
        self.start_attempt(id, extra, gates, out);
    }

    /// SHD-05: a worker that is not sure enough of its result looks at it again, so many times; the last one is taken.
    pub(super) fn reflects(&mut self, id: &TaskId, attempt: u32, reply: &Reply) -> bool {
        let (Some(rules), Some(confidence)) = (&self.rules.reflection, reply.confidence) else { return false };
        let Some(task) = self.plan.tasks.get_mut(id) else { return false };
        let asks = reply.interrupt.is_some() || confidence >= rules.confidence.as_bp();
        if asks || !Tries::of(rules.retries).are_left(task.metadata.reflections.len() as u32) {
            return false;
        }
        let (result, action, beside) = (reply.result.clone(), reply.action.clone(), reply.beside());
        let doubted = DoubtedResult { attempt, confidence_bp: confidence, result, action, beside };
        task.metadata.reflections.push(doubted);
        true
    }

    /// A second look that fails leaves the first answer as it was, with all that it said (SHD-05). Whether this attempt was one.
    pub(super) fn looked_again_in_vain(
        &mut self,
        id: &TaskId,
        attempt: u32,
        reply: &Result<Reply, NotTaken>,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) -> bool {
        let why = match reply {
            Ok(reply) if reply.success => return false,
            Ok(reply) => reply.why(),
            Err(why) => why.to_string(),
        };
        let last = self.task(id).and_then(|task| task.metadata.reflections.last());
        let Some(doubted) = last.filter(|doubted| doubted.attempt + 1 == attempt).cloned() else { return false };
        self.record_failure(id, attempt, &why, out);
        self.result_given(id, Reply::of_doubted(doubted), gates, out);
        true
    }

    /// What a worker gave, if a person lets it pass, is judged, or the task is done with it.
    pub(super) fn result_given(&mut self, id: &TaskId, reply: Reply, gates: &mut dyn Gates, out: &mut Outbox) {
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        if !reply.variables.is_empty() {
            task.metadata.variables.clone_from(&reply.variables);
        }
        // Nothing is no result, and work all the same.
        task.metadata.gave_nothing |= reply.interrupt.is_none() && reply.result.is_null();
        task.result = Some(reply.result.clone()).filter(|result| reply.interrupt.is_none() && !result.is_null());
        task.error = None;
        // A result that proposes nothing is not about what failed.
        task.metadata.action_error.take_if(|_| reply.proposes().is_none());
        let Some(task) = self.copy(id) else { return };
        let is_judged = self.is_judged(&task);
        if gates.may_take(&task, &reply, is_judged, out) == Take::NeedsApproval || reply.interrupt.is_some() {
            self.set(id, TaskStatus::AwaitingInput, Actor::Worker, "asks_a_person", out);
            return;
        }
        self.act_or_judge(id, reply.proposes().unwrap_or_default(), gates, out);
    }

    /// PDT-49: one bounded question to another capability; the worker goes on with the answer.
    pub(super) fn consult(
        &mut self,
        id: &TaskId,
        attempt: u32,
        question: &Value,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        let text = |key: &str| -> String {
            question.get(key).and_then(Value::as_str).unwrap_or_default().chars().take(QUESTION_MAX).collect()
        };
        let (capability, question) = (text("capability"), text("question"));
        // It acts by parameters, which a question has none of; and whoever plans was not granted it for this.
        let acts = self.rules.card(&capability).is_none() && self.rules.is_built_in(&capability);
        if acts && capability != HUMAN {
            let why =
                format!("{capability} answers no questions: it is built in, and acts by the parameters of a task");
            return self.errored(id, attempt, why, gates, out);
        }
        if let Who::Nobody(why) = self.rules.able(&capability) {
            return self.errored(id, attempt, format!("nobody was asked: {why}"), gates, out);
        }
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        let list = &mut task.metadata.consultations;
        if list.len() >= CONSULTS_MAX {
            let why = format!("the task has asked {CONSULTS_MAX} questions already; no more are answered");
            return self.errored(id, attempt, why, gates, out);
        }
        if out.budget().exhausted().is_some() {
            return self.errored(id, attempt, SPENT.to_owned(), gates, out);
        }
        list.push(AskedOfAnother { capability: capability.clone(), question: question.clone(), answer: None });
        let n = list.len() as u32;
        let context = json!({
            "question": question, "capability": capability, "for_task": id, "tools": [],
            "max_tokens": CONSULT_TOKENS_MAX,
        });
        let prompt = prompt_of(Purpose::ExecuteWorker, &context);
        let call = Call::new(GraphKey::Consult { task: id.clone(), attempt, n }, Purpose::ExecuteWorker, context)
            .agent(capability)
            .task(id.clone(), attempt)
            .prompt(prompt);
        self.call(call, out);
    }

    pub(super) fn consulted(
        &mut self,
        id: &TaskId,
        attempt: u32,
        answer: Answer,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        let reply = reply_of(answer);
        if let Ok(reply) = &reply {
            self.cost_of_attempt(id, attempt, reply);
        }
        let text = match reply {
            Ok(reply) if reply.success => text_of(&reply.result),
            Ok(reply) => format!("Consultation failed: {}", reply.why()),
            Err(why) => format!("Consultation failed: {why}"),
        };
        let text: String = text.chars().take(CONSULT_ANSWER_MAX).collect();
        let Some(task) = self.plan.tasks.get_mut(id).filter(|task| task.status == TaskStatus::Running) else { return };
        if let Some(last) = task.metadata.consultations.last_mut() {
            last.answer = Some(text);
        }
        let Some(copy) = self.copy(id) else { return };
        let mut extra = gates.context(&copy, self.who(&copy).name().as_deref(), out);
        extra.insert("consultations".into(), json!(copy.metadata.consultations));
        self.start_attempt(id, extra, gates, out);
    }
}
