//! The calls of tools of one answer: what a lone agent is to `agent::turn`, and what becomes of the ends of its calls.
//!
//! Invariant: nothing is dispatched but from `begin`, by a plan that the grant made at that very moment. An approval is bound to the
//! hash of one call, and used once. A refusal is an answer that the model reads. Which call may go on, and in which order it is
//! looked at, is decided in `agent::turn`.

use serde_json::{Value, json};

use super::words::AgentRequests;
use super::{
    AgentMachine, AgentOutput, AgentPhase, AgentRequest, Fault, FaultClass, Flight, FlightKey, ToolApprovalResponse,
};
use crate::agent::grants::{CallPlan, CallingAgent};
use crate::agent::ledger::{Amount, Bill, Resource};
use crate::agent::shown::ShownResult;
use crate::agent::spec::{Grant, ToolGrant};
use crate::agent::transcript::{TranscriptItem, cut};
use crate::agent::turn::{
    CALLS_MAX, CallEvent, CallRefusal, FanOut, FittingArguments, ToolCalls, TurnCall, TurnHost, TurnPlan, WatchRules,
    call_hash, carry_on,
};
use crate::capability::model::tokens;
use crate::capability::model::{Message, ToolCall};

/// The calls of one answer: people are asked under an id, what is under way has a key, and an answer its estimate of tokens.
pub(super) type ToolBatch = ToolCalls<ToolCall, String, FlightKey, (TranscriptItem, u32)>;

impl TurnCall for ToolCall {
    fn name(&self) -> &str {
        &self.name
    }
    fn arguments(&self) -> &Value {
        &self.arguments
    }
}

impl TurnHost for AgentMachine {
    type Seat = ();
    type Out = AgentRequests;
    type Call = ToolCall;
    type Question = String;
    type Work = FlightKey;
    type Answer = (TranscriptItem, u32);
    type Tool = ToolGrant;
    type Plan = (ToolGrant, CallPlan);
    type Short = Resource;

    fn calls(&mut self, (): ()) -> Option<&mut ToolBatch> {
        match &mut self.phase {
            AgentPhase::Batch(batch) => Some(batch),
            AgentPhase::Ready | AgentPhase::Asking | AgentPhase::Over => None,
        }
    }

    fn fan_out(&self, (): ()) -> FanOut {
        FanOut { most: self.spec.limits.fan_out as usize, in_order: false }
    }

    fn tool(&self, (): (), name: &str) -> Option<ToolGrant> {
        self.spec.tool(name).cloned()
    }

    fn schema(&self, tool: &ToolGrant) -> Option<Value> {
        tool.judged_by()
    }

    fn looks_at(&mut self, (): (), _: &ToolCall, _: &mut AgentRequests) {}

    fn pay(&mut self, (): (), _: &ToolCall, _: bool, _: &mut AgentRequests) -> Option<Self::Answer> {
        None
    }

    /// What the grant lets be done.
    fn plan(
        &mut self,
        (): (),
        call: &ToolCall,
        tool: ToolGrant,
        arguments: FittingArguments<'_>,
        out: &mut AgentRequests,
    ) -> TurnPlan<Self::Plan, Self::Answer> {
        // An agent that is called gets half of what is left: a call or two, at least.
        let enough = u64::from(self.spec.max_output_tokens) * 4;
        if matches!(tool.does, Grant::Agent(_)) && self.asks_for_share(Resource::Tokens, enough) {
            return TurnPlan::Later;
        }
        let degraded = self.spec.limits.degrade.as_ref().filter(|_| self.degraded);
        let unpriced_allowed = self.unpriced_allowed;
        let caller = CallingAgent { spec: &self.spec, ledger: &self.ledger, now: out.now, degraded, unpriced_allowed };
        match tool.plan(arguments, &caller) {
            Ok(plan) => TurnPlan::Make((tool, plan)),
            Err(why) => TurnPlan::Answer(self.refused((), call, CallRefusal::Planned(why))),
        }
    }

    fn question(&mut self, (): (), _: usize, _: &ToolCall, (tool, _): &Self::Plan) -> Option<String> {
        // Keys name approvals too, so that no two have the same id.
        let id = tool.approval.then(|| format!("a{}", self.next_key))?;
        self.next_key += 1;
        Some(id)
    }

    /// What is planned begins, if the budget has it.
    fn begin(
        &mut self,
        (): (),
        at: usize,
        _: &ToolCall,
        (tool, plan): Self::Plan,
        out: &mut AgentRequests,
    ) -> Result<Option<Self::Answer>, Resource> {
        if self.ledger.wall.is_over(out.now) {
            return Err(Resource::Wall);
        }
        let lease = match &plan {
            CallPlan::Activity { .. } => Amount::default(),
            CallPlan::Agent { lease, .. } => lease.amount(),
        };
        self.ledger.reserve(self.next_key, lease.plus(one_call()))?;
        let key = match plan {
            CallPlan::Activity { activity_type, input } => {
                let key = self.fly(Flight::Tool { call: at });
                let (timeout_ms, attempts) = (tool.timeout_ms, tool.attempts);
                out.asks.push(AgentRequest::Tool { key, tool: tool.name, activity_type, input, timeout_ms, attempts });
                key
            }
            CallPlan::Agent { spec, .. } => {
                let key = self.fly(Flight::Child { call: at });
                out.asks.push(AgentRequest::Child { key, spec });
                key
            }
        };
        self.hear(at, CallEvent::Began(key));
        Ok(None)
    }

    fn refused(&mut self, (): (), call: &ToolCall, why: CallRefusal) -> Self::Answer {
        self.refusals += 1;
        self.note(json!({ "refused": call.name, "why": cut(why.to_string(), self.own_bytes()) }));
        self.own_answer(call, format!("Refused: {why}."))
    }

    fn answer(&mut self, (): (), at: usize, answer: Self::Answer, _: &mut AgentRequests) {
        self.hear(at, CallEvent::Answered(answer));
    }
}

impl AgentMachine {
    /// The calls of an answer. Whether that is a loop, and has been told of often enough.
    pub(super) fn batch_of(&mut self, calls: Vec<ToolCall>) -> (ToolBatch, bool) {
        let rules =
            WatchRules { rounds: self.spec.limits.loop_repeats, most: Some(CALLS_MAX), ..WatchRules::default() };
        let spec = &self.spec;
        let may_repeat = |call: &ToolCall| spec.tool(&call.name).is_some_and(|tool| tool.repeatable);
        ToolCalls::judged(calls, &mut self.watch, &rules, may_repeat)
    }

    fn hear(&mut self, at: usize, event: CallEvent<String, FlightKey, (TranscriptItem, u32)>) {
        if let Some(batch) = self.calls(()) {
            batch.hear(at, event);
        }
    }

    /// The machine answers itself; its texts are no longer than those of tools.
    fn own_answer(&self, call: &ToolCall, content: String) -> (TranscriptItem, u32) {
        let content = cut(content, self.own_bytes());
        let size = tokens(content.len());
        let (call_id, name) = (call.id.clone(), call.name.clone());
        (TranscriptItem::Own(Message::Tool { call_id, name, content, is_error: true }), size)
    }

    /// What people are asked, for the query `approvals`.
    pub fn approvals(&self) -> Vec<Value> {
        let AgentPhase::Batch(batch) = &self.phase else { return Vec::new() };
        let asked = |(call, id): (&ToolCall, &String)| json!({ "id": id, "hash": hash_of(call, &call.arguments), "tool": call.name, "arguments": call.arguments });
        batch.asked().map(asked).collect()
    }

    /// Dispatches what may be dispatched. Whether to look again at what is to be done: all calls have their answers.
    pub(super) fn carry_on_batch(&mut self, out: &mut AgentRequests) -> bool {
        match carry_on(self, (), out) {
            Ok(false) => false,
            Ok(true) => {
                if let AgentPhase::Batch(batch) = std::mem::replace(&mut self.phase, AgentPhase::Ready) {
                    batch.into_answers().for_each(|(_, (item, size))| self.transcript.given(item, size));
                }
                true
            }
            Err(resource) => self.exhausted(resource, out),
        }
    }

    pub(super) fn tool_ended(&mut self, key: FlightKey, origin: u64, result: Result<Value, Fault>) {
        let Some(Flight::Tool { call }) = self.flights.get(&key) else { return };
        let call = *call;
        self.flights.remove(&key);
        self.ledger.settle(key, Bill { amount: one_call(), ..Bill::default() });
        let most = self.spec.limits.result_bytes;
        let activity_type = self.activity_type_of(call);
        self.answered(call, key, origin, result.map(|value| ShownResult::of_tool(&activity_type, &value).tokens(most)));
    }

    /// What the tool of a call of the batch is.
    fn activity_type_of(&self, call: usize) -> String {
        let AgentPhase::Batch(batch) = &self.phase else { return String::new() };
        let tool = batch.get(call).and_then(|(call, _)| self.spec.tool(&call.name));
        tool.map_or_else(String::new, |tool| tool.does.activity_type().to_owned())
    }

    pub(super) fn child_told(&mut self, key: FlightKey, working: bool) {
        let is_child = matches!(self.flights.get(&key), Some(Flight::Child { .. }));
        match is_child && !working {
            true => self.still.insert(key),
            false => self.still.remove(&key),
        };
    }

    pub(super) fn child_ended(
        &mut self,
        key: FlightKey,
        origin: u64,
        result: Result<Value, Fault>,
        output: Option<AgentOutput>,
    ) {
        let Some(Flight::Child { call }) = self.flights.get(&key) else { return };
        let call = *call;
        self.flights.remove(&key);
        self.still.remove(&key);
        match output {
            // What is left of the lease is free again.
            Some(output) => {
                let bill = Bill { amount: output.spent.plus(one_call()), unknown: output.unknown };
                self.ledger.settle(key, bill);
                self.ledger.tally(&output.by_model);
            }
            // A lease of money is all that it can have cost.
            None => self.ledger.settle_lost(key, self.ledger.held_for(key).cost_micros > 0),
        }
        let most = self.spec.limits.result_bytes;
        self.answered(call, key, origin, result.map(|value| ShownResult::of_agent(&value).tokens(most)));
    }

    fn answered(&mut self, at: usize, key: FlightKey, origin: u64, result: Result<u32, Fault>) {
        let AgentPhase::Batch(batch) = &self.phase else { return };
        let Some((call, _)) = batch.get(at).filter(|_| batch.work(at) == Some(&key)) else { return };
        let answer = match result {
            Ok(tokens) => (TranscriptItem::Given(origin), tokens),
            Err(fault) => {
                let what = match fault.class {
                    FaultClass::Lost => "Nobody knows whether this happened",
                    FaultClass::NeedsHuman
                    | FaultClass::Fatal
                    | FaultClass::TooLong
                    | FaultClass::OutOfTime
                    | FaultClass::Canceled => "Failed",
                };
                self.own_answer(call, format!("{what}: {}", fault.message))
            }
        };
        self.hear(at, CallEvent::Answered(answer));
    }

    /// A person has answered. It counts for the call that it names by id and hash, and for no other.
    pub(super) fn approval(&mut self, response: ToolApprovalResponse) {
        let asked = match &self.phase {
            AgentPhase::Batch(batch) => batch.asked_under(&response.id).and_then(|at| Some((at, &batch.get(at)?.0))),
            AgentPhase::Ready | AgentPhase::Asking | AgentPhase::Over => None,
        };
        let Some((at, call)) = asked else { return self.void(&response, "nothing waits for it") };
        let hash = hash_of(call, &call.arguments);
        let edited = response.arguments.as_ref().is_some_and(|arguments| hash_of(call, arguments) != hash);
        if hash != response.hash || edited {
            return self.void(&response, "it is for other arguments");
        }
        if response.approved {
            self.hear(at, CallEvent::Approved);
        } else {
            let answer = self.own_answer(call, format!("Refused: a person said no. {}", response.reason));
            self.hear(at, CallEvent::Answered(answer));
            self.refusals += 1;
        }
        self.note(json!({ "approval": response.id, "approved": response.approved, "by": response.by }));
    }

    /// The most that the model is told of a refusal or a failure.
    fn own_bytes(&self) -> u64 {
        self.spec.limits.result_bytes
    }

    fn void(&mut self, response: &ToolApprovalResponse, why: &str) {
        self.note(json!({ "approval": response.id, "void": why, "by": response.by }));
    }
}

fn one_call() -> Amount {
    Amount { tool_calls: 1, ..Amount::default() }
}

fn hash_of(call: &ToolCall, arguments: &Value) -> String {
    call_hash(&call.name, arguments).to_hex().to_string()
}
