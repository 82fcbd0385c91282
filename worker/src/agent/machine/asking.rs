//! Asking the model, and hearing what it says.
//!
//! Invariant: before every call the time, the budget and the length of the conversation are looked at; what an answer
//! cost is settled before anything is made of it. A call that failed is never made again by itself: the retries that may
//! pass are the engine's, under one key.

use serde_json::json;

use super::words::AgentRequests;
use super::{
    AgentMachine, AgentPhase, AgentRequest, AgentStopReason, CallPurpose, Fault, FaultClass, Flight, FlightKey, Halt,
    ModelAnswer, ModelCall,
};
use crate::agent::ledger::{Amount, Bill, Resource, cost_by};
use crate::agent::spec::Price;
use crate::agent::turn::CallState;
use crate::capability::model::tokens;
use crate::capability::model::{ChatResponse, Message, StopReason as ModelStop, ToolCall};

/// An answer with fewer tokens is of no use.
const OUTPUT_LEAST: u64 = 64;
/// The most tokens of a summary; of one that was cut the next may have twice as many.
const SUMMARY_TOKENS: u32 = 2_048;
/// So many answers in a row that are no summary, and people are asked.
const SUMMARIES_FAILED_MAX: u32 = 3;

impl AgentMachine {
    /// Makes the next model call. Whether to look again at what is to be done.
    pub(super) fn ask_model(&mut self, out: &mut AgentRequests) -> bool {
        if self.ledger.wall.is_over(out.now) {
            return self.exhausted(Resource::Wall, out);
        }
        let unpriced = self.ledger.unknown().unpriced_calls > 0 && !self.unpriced_allowed;
        let limits = &self.spec.limits;
        let asks_run = self.spec.report_to.is_some() && !limits.stops_at.contains(&Resource::Unpriced);
        if unpriced && limits.needs_prices && asks_run {
            self.halt_with(Halt::Share { resource: Resource::Unpriced, wanted: 1 });
            return false;
        }
        if unpriced && (self.spec.limits.needs_prices || self.ledger.caps().cost_micros.is_some()) {
            return self.exhausted(Resource::Unpriced, out);
        }
        self.degrade_if_short();
        let fixed = self.fixed_tokens();
        let estimate = self.transcript.estimate() + fixed;
        let half = (estimate > self.context_tokens()).then(|| self.transcript.part(self.halvings));
        let (summary_of, input) = match half {
            None => (None, estimate),
            Some(None) => {
                self.finish(AgentStopReason::ContextExceeded, None, out);
                return false;
            }
            Some(Some(half)) => (Some(half), self.transcript.older_estimate(half) + self.summary_tokens()),
        };
        let wanted = match summary_of {
            Some(_) => self.spec.max_output_tokens.min(SUMMARY_TOKENS << self.summaries_failed),
            None => self.spec.max_output_tokens,
        };
        let (model, price) = self.model();
        let expected = self.ledger.expected_micros(price, input, u64::from(wanted));
        if self.asks_for_share(Resource::Tokens, input + u64::from(wanted))
            || self.asks_for_share(Resource::Cost, expected)
        {
            return false;
        }
        match self.reserve_call(input, wanted, price) {
            Err(resource) => self.exhausted(resource, out),
            Ok(max_tokens) => {
                self.call_model(model, summary_of, max_tokens, out);
                false
            }
        }
    }

    fn call_model(&mut self, model: String, summary_of: Option<usize>, max_tokens: u32, out: &mut AgentRequests) {
        let key = self.fly(Flight::Model { model: model.clone(), summary_of });
        let (purpose, (after, items)) = match summary_of {
            Some(half) => (CallPurpose::Summary, (None, self.transcript.older(half))),
            None => (CallPurpose::Answer, self.transcript.next_call()),
        };
        self.phase = AgentPhase::Asking;
        let within_ms = self.left_of_run(out.now);
        let call = ModelCall { key, purpose, model, max_tokens, after, items, within_ms };
        out.asks.push(AgentRequest::Model { call, attempts: self.spec.limits.model_attempts });
    }

    /// Holds back what the next call may take, under the next key. With little left the answer may be shorter.
    fn reserve_call(&mut self, input: u64, wanted: u32, price: Option<Price>) -> Result<u32, Resource> {
        let mut output = u64::from(wanted);
        if let Some(left) = self.ledger.remaining().tokens {
            output = output.min(left.saturating_sub(input));
        }
        if output < OUTPUT_LEAST.min(u64::from(wanted)) {
            return Err(Resource::Tokens);
        }
        let cost_micros = self.ledger.expected_micros(price, input, output);
        let amount = Amount { steps: 1, tokens: input + output, cost_micros, ..Amount::default() };
        self.ledger.reserve(self.next_key, amount)?;
        Ok(u32::try_from(output).unwrap_or(wanted))
    }

    /// What the model can read: what the spec says, and less where it has refused. Our estimate may be a quarter too low.
    fn context_tokens(&self) -> u64 {
        let learned = self.too_long.map_or(u64::MAX, |refused| refused - refused / 4);
        self.spec.limits.context_tokens.min(learned)
    }

    /// What goes along with every call: tools and the schema.
    fn fixed_tokens(&self) -> u64 {
        let schema = self.spec.schema.as_ref().map_or(0, |schema| schema.schema.to_string().len());
        u64::from(tokens(self.tools_bytes() + schema))
    }

    /// What goes along with a call for a summary: what is asked, and the tools, although none may be called.
    fn summary_tokens(&self) -> u64 {
        64 + u64::from(tokens(self.tools_bytes()))
    }

    fn tools_bytes(&self) -> usize {
        self.spec.tools.iter().map(|tool| json!(tool.told()).to_string().len()).sum()
    }

    /// The model that is asked now.
    fn model(&self) -> (String, Option<Price>) {
        match &self.spec.limits.degrade {
            Some(cheaper) if self.degraded => (cheaper.model.clone(), cheaper.price),
            _ => (self.spec.model.clone(), self.spec.price),
        }
    }

    pub(super) fn model_ended(
        &mut self,
        key: FlightKey,
        origin: u64,
        result: Result<ModelAnswer, Fault>,
        out: &mut AgentRequests,
    ) {
        let Some(Flight::Model { model, summary_of }) = self.take_model(key) else { return };
        if self.outcome.is_none() {
            self.phase = AgentPhase::Ready;
        }
        let answer = match result {
            Ok(answer) => answer,
            Err(fault) => return self.model_failed(key, &model, summary_of, fault, out),
        };
        self.ledger.count_cut(key, &model, answer.cut, self.price_of(&model).is_some());
        let usage = answer.response.usage;
        let tokens = usage.input.zip(usage.output).map(|(input, output)| input.saturating_add(output));
        let priced = || cost_by(self.price_of(&model)?, &usage);
        self.ledger.settle_model(key, &model, tokens, answer.cost_micros.or_else(priced));
        if self.outcome.is_some() {
            return;
        }
        match summary_of {
            Some(half) => self.summed_up(half, origin, &answer.response),
            None => self.said(origin, answer, out),
        }
    }

    /// The older half becomes its summary. What is no summary leaves the conversation as it is: it is asked for again a
    /// few times, and then people are asked, because every further call would have to be paid for.
    fn summed_up(&mut self, half: usize, origin: u64, response: &ChatResponse) {
        if let Some(why) = no_summary(response) {
            self.summaries_failed += 1;
            self.note(json!({ "not_summed_up": why, "times": self.summaries_failed }));
            if self.summaries_failed >= SUMMARIES_FAILED_MAX {
                self.summaries_failed = 0;
                self.halt_with(Halt::NeedsHuman { why: format!("the conversation is too long, and {why}") });
            }
            return;
        }
        (self.summaries_failed, self.halvings) = (0, 0);
        self.transcript.compact(half, origin, &response.said);
        self.compactions += 1;
        self.note(json!({ "compacted": half, "estimate": self.transcript.estimate() }));
    }

    fn take_model(&mut self, key: FlightKey) -> Option<Flight> {
        matches!(self.flights.get(&key), Some(Flight::Model { .. })).then(|| self.flights.remove(&key)).flatten()
    }

    fn model_failed(
        &mut self,
        key: FlightKey,
        model: &str,
        summary_of: Option<usize>,
        fault: Fault,
        out: &mut AgentRequests,
    ) {
        self.settle_failed(key, model, &fault);
        if self.outcome.is_some() {
            return;
        }
        self.note(json!({ "model_failed": fault.message }));
        match fault.class {
            FaultClass::Fatal => self.finish(AgentStopReason::Failed { message: fault.message }, None, out),
            FaultClass::TooLong => self.was_too_long(summary_of, out),
            FaultClass::OutOfTime => {
                self.finish(AgentStopReason::Budget { resource: Resource::Wall, lent: true }, None, out);
            }
            FaultClass::NeedsHuman | FaultClass::Lost | FaultClass::Canceled => {
                self.halt_with(Halt::NeedsHuman { why: fault.message });
            }
        }
    }

    /// The model cannot read so much: the older half is summed up, and it goes on. Where that half is itself too long,
    /// half of it is tried, as long as there is less to try.
    fn was_too_long(&mut self, summary_of: Option<usize>, out: &mut AgentRequests) {
        let Some(tried) = summary_of else {
            self.too_long = Some(self.transcript.estimate() + self.fixed_tokens());
            return;
        };
        self.halvings += 1;
        if self.transcript.part(self.halvings).is_none_or(|part| part >= tried) {
            self.finish(AgentStopReason::ContextExceeded, None, out);
        }
    }

    /// What was held is spent, unless the call was surely not paid for.
    fn settle_failed(&mut self, key: FlightKey, model: &str, fault: &Fault) {
        self.ledger.count_cut(key, model, fault.cut, self.price_of(model).is_some());
        match fault.charged {
            true => self.ledger.settle_lost_model(key, model, self.price_of(model).is_some()),
            false => self.ledger.settle(key, Bill::default()),
        }
    }

    fn price_of(&self, model: &str) -> Option<Price> {
        match &self.spec.limits.degrade {
            Some(cheaper) if self.spec.model != model => cheaper.price,
            _ => self.spec.price,
        }
    }

    fn said(&mut self, origin: u64, answer: ModelAnswer, out: &mut AgentRequests) {
        let ModelAnswer { response, value, problems, .. } = answer;
        self.transcript.answered(origin, &response.said);
        self.last_text.clone_from(&response.said.content);
        if !response.said.tool_calls.is_empty() {
            return self.begin_batch(response.said.tool_calls, out);
        }
        match response.stop {
            ModelStop::Refusal => return self.finish(AgentStopReason::Refused, None, out),
            ModelStop::Length if self.spec.schema.is_none() => return self.finish(AgentStopReason::Length, None, out),
            ModelStop::Length | ModelStop::End | ModelStop::ToolCalls | ModelStop::Other(_) => {}
        }
        // The model's activity has judged it.
        let problems = match value {
            _ if self.spec.schema.is_none() => return self.finish(AgentStopReason::Completed, None, out),
            Some(value) if problems.is_empty() => return self.finish(AgentStopReason::Completed, Some(value), out),
            None if problems.is_empty() => vec!["nobody has judged the answer".to_owned()],
            Some(_) | None => problems,
        };
        self.repair(problems, out);
    }

    /// Sends an answer back that does not conform, so often as the limit says.
    fn repair(&mut self, problems: Vec<String>, out: &mut AgentRequests) {
        if self.repairs >= self.spec.limits.repairs {
            return self.finish(AgentStopReason::InvalidOutput { problems }, None, out);
        }
        self.repairs += 1;
        self.note(json!({ "repair": self.repairs, "problems": problems }));
        let list: String = problems.iter().map(|problem| format!("\n- {problem}")).collect();
        let content = format!("Your answer does not conform to the schema:{list}\nAnswer again, with the JSON only.");
        self.transcript.own(Message::User { content });
    }

    fn begin_batch(&mut self, calls: Vec<ToolCall>, out: &mut AgentRequests) {
        let (batch, over) = self.batch_of(calls);
        if over {
            // Nobody is told any more.
            let is_refused = |(_, state): &&_| matches!(state, CallState::Refused(_));
            self.refusals += batch.iter().filter(is_refused).count() as u64;
        }
        self.phase = AgentPhase::Batch(batch);
        if over {
            self.finish(AgentStopReason::Loop, None, out);
        }
    }
}

/// Why an answer cannot stand for what it should sum up.
fn no_summary(response: &ChatResponse) -> Option<&'static str> {
    match response.stop {
        ModelStop::Refusal => Some("the model refused to sum it up"),
        ModelStop::Length => Some("its summary was cut at the limit of tokens"),
        ModelStop::End | ModelStop::ToolCalls | ModelStop::Other(_) if response.said.content.trim().is_empty() => {
            Some("the model answered with an empty summary")
        }
        ModelStop::End | ModelStop::ToolCalls | ModelStop::Other(_) => None,
    }
}
