//! Synthesis: one result of what was accepted, by a call of its own where it takes one.
//!
//! Invariant: every accepted result is told, in plan order, unless the rules remove what says the same (FSS-42, SHN-48);
//! a result that does not have the required shape is asked for again with the reason, and a bounded number of times
//! (FSS-21). How the run ends with it is decided in `finish`.

use serde_json::json;

use super::*;
use crate::supervisor::core::account::Exhausted;
use crate::supervisor::shape::Shape;

impl Graph {
    /// Ends with one result of all that was accepted, as far as the budget pays for it.
    pub(super) fn end_by_synthesis(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        let is_whole = !self.cut && self.undone(out).is_empty();
        match self.made_without_a_call(gates) {
            // What needs no call needs no budget.
            Some(result) if is_whole => self.end_with(Some(result), out),
            // Nothing is paid any more, and the spec says that such a run fails.
            _ if out.budget().exhausted() == Some(Exhausted::Fail) => {
                self.cut = true;
                self.fail_for_budget(gates, out);
            }
            // Who has nothing to tell is not asked, nor paid.
            _ if !self.rules.synthesizes_nothing && self.has_nothing(gates) => self.end_with(None, out),
            _ => match self.without_synthesis(gates, out) {
                Some(result) => self.end_with(result, out),
                None => self.synthesize(gates, out),
            },
        }
    }

    /// A result that nobody has to be asked for: of a task that is a synthesis itself, or the only one there is.
    fn made_without_a_call(&self, gates: &dyn Gates) -> Option<Value> {
        if let Some(own) = self.own_synthesis().filter(|own| self.breaks_schema(own).is_none()) {
            return Some(own);
        }
        let single = self.rules.bypass_single && self.rules.output_schema.is_none();
        match self.results(gates).as_slice() {
            [(_, Value::String(text))] if single && serde_json::from_str::<Value>(text).is_err() => {
                Some(Value::String(text.clone()))
            }
            _ => None,
        }
    }

    pub(super) fn synthesize(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        let mut results = self.results(gates);
        if let Some(result) = self.made_without_a_call(gates) {
            return self.end_with(Some(result), out);
        }
        if self.rules.dedupe {
            // The same text twice says nothing more (SHN-48); elsewhere every accepted result is told (FSS-42).
            let mut seen = BTreeSet::new();
            results.retain(|(_, value)| !text_of(value).trim().is_empty() && seen.insert(value.to_string()));
        }
        let listed: Vec<Value> =
            results.into_iter().map(|(id, result)| json!({ "id": id, "result": result })).collect();
        let failures = self.failures();
        self.synthesis_tries += 1;
        let first_error = failures.first().cloned();
        let context = json!({
            "goal": self.plan.objective, "results": listed, "failures": failures, "first_error": first_error,
            "overall_assessment": self.overall_assessment, "schema": self.rules.output_schema,
            "error": self.synthesis_error,
        });
        let prompt = prompt_of(Purpose::Synthesize, &context);
        let call = Call::new(GraphKey::Synthesize { attempt: self.synthesis_tries }, Purpose::Synthesize, context)
            .attempt(self.synthesis_tries)
            .round(self.iteration)
            .prompt(prompt);
        let call = if out.budget().exhausted().is_some() { call.last_word() } else { call };
        self.enter(Phase::Synthesizing, out);
        self.call(call, out);
    }

    /// SHN-48: a task that is a synthesis itself, is long enough, cost tokens and cites nothing.
    fn own_synthesis(&self) -> Option<Value> {
        let is_synthesis = |task: &&Task| {
            self.rules.bypass_single
                && task.status == TaskStatus::Completed
                && task.role.as_deref() == Some("synthesis")
        };
        let task = self.plan.in_order().into_iter().rev().find(is_synthesis)?;
        let result = task.result.clone()?;
        let tokens: u64 = task.attempts.iter().map(|attempt| attempt.tokens).sum();
        let cites = result.get("citations").is_some_and(|list| list.as_array().is_none_or(|list| !list.is_empty()));
        (text_of(&result).chars().count() >= self.rules.own_result_chars as usize && tokens > 0 && !cites)
            .then_some(result)
    }

    pub(super) fn synthesized(&mut self, answer: Answer, gates: &mut dyn Gates, out: &mut Outbox) {
        let said = answer.map_err(|why| why.to_string());
        let said = said.and_then(|value| refused(&value).map_or(Ok(value), Err));
        let checked = said.and_then(|value| match self.breaks_schema(&value) {
            None if text_of(&value).trim().is_empty() || value.is_null() => Err("the synthesis is empty".to_owned()),
            None => Ok(value),
            Some(why) => Err(format!("the synthesis does not have the required shape: {why}")),
        });
        match checked {
            Ok(value) => {
                out.note(NoteKind::SynthesisRecorded, json!({ "try": self.synthesis_tries }));
                self.end_with(Some(value), out);
            }
            // Nobody is paid to try again, and nothing is lost that was given.
            Err(why) if out.budget().exhausted().is_some() => {
                out.note(NoteKind::SynthesisRecorded, json!({ "try": self.synthesis_tries, "refused": why }));
                self.errors.push(format!("synthesis failed: {why}"));
                self.cut = true;
                let results = self.results(gates).into_iter().collect();
                self.end_with(Some(Value::Object(results)), out);
            }
            Err(why) if Tries::of(self.rules.synthesis_tries).are_left(self.synthesis_tries) => {
                // What comes right in the end was no error of the run.
                out.note(NoteKind::SynthesisRecorded, json!({ "try": self.synthesis_tries, "refused": why }));
                self.synthesis_error = Some(why);
                self.synthesize(gates, out);
            }
            Err(why) => self.abort("synthesis_failed", format!("synthesis failed: {why}"), Value::Null, gates, out),
        }
    }

    pub(super) fn breaks_schema(&self, value: &Value) -> Option<String> {
        let schema = self.rules.output_schema.as_ref()?;
        match Shape::read("schema", schema) {
            Ok(shape) => shape.broken("result", value),
            Err(why) => Some(why.to_string()),
        }
    }
}
