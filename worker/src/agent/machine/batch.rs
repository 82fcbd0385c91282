//! The calls of tools of one answer: each is refused, approved, dispatched and answered; the results are told in the
//! order of the calls.
//!
//! ```text
//!   Waiting ──► (grant · schema · loop) ──► Asking ──► Approved ──► (fan-out · budget) ──► Running ──► Done
//!      └────────── refused ──────────────────┴── a person says no ─────────────────────────────────────►┘
//! ```
//!
//! Invariant: nothing is dispatched but from `dispatch`, by a plan that the grant made at that very moment. An approval
//! is bound to the hash of one call, and used once. A refusal is an answer that the model reads.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::words::{AgentRequests, call_hash};
use super::{
    AgentMachine, AgentOutput, AgentPhase, AgentRequest, Fault, FaultClass, Flight, FlightKey, Rules,
    ToolApprovalResponse,
};
use crate::agent::grants::{CallPlan, CallingAgent};
use crate::agent::ledger::{Amount, Bill, Resource};
use crate::agent::shown::ShownResult;
use crate::agent::spec::{Grant, ToolGrant};
use crate::agent::transcript::{TranscriptItem, cut, tokens};
use crate::capability::model::{Message, ToolCall};

/// More calls of one answer are refused.
const CALLS_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ToolBatch {
    calls: Vec<BatchCall>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct BatchCall {
    asked: ToolCall,
    /// Over the tool and the canonical arguments.
    hash: String,
    state: ToolCallState,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToolCallState {
    Waiting,
    /// A person is asked, under this id.
    Asking(String),
    Approved,
    Running(FlightKey),
    Done(TranscriptItem, u32),
}

impl ToolBatch {
    pub(super) fn new(asked: Vec<ToolCall>) -> ToolBatch {
        let call = |asked: ToolCall| {
            let hash = call_hash(&asked.name, &asked.arguments).to_hex().to_string();
            BatchCall { asked, hash, state: ToolCallState::Waiting }
        };
        ToolBatch { calls: asked.into_iter().map(call).collect() }
    }
    pub(super) fn running(&self) -> usize {
        self.calls.iter().filter(|call| matches!(call.state, ToolCallState::Running(_))).count()
    }
    pub(super) fn asks_people(&self) -> bool {
        self.calls.iter().any(|call| matches!(call.state, ToolCallState::Asking(_)))
    }
    /// What people are asked, for the query `approvals`.
    pub(super) fn approvals(&self) -> Vec<Value> {
        let asked = |call: &BatchCall| match &call.state {
            ToolCallState::Asking(id) => Some(json!({ "id": id, "hash": call.hash, "tool": call.asked.name,
                "arguments": call.asked.arguments })),
            _ => None,
        };
        self.calls.iter().filter_map(asked).collect()
    }
}

impl BatchCall {
    /// The machine answers itself; its texts are no longer than those of tools.
    fn answer(&mut self, content: String, bytes_max: u64) {
        let content = cut(content, bytes_max);
        let size = tokens(content.len());
        let (call_id, name) = (self.asked.id.clone(), self.asked.name.clone());
        self.state =
            ToolCallState::Done(TranscriptItem::Own(Message::Tool { call_id, name, content, is_error: true }), size);
    }
}

impl AgentMachine {
    /// Refuses the calls that make a loop. Whether that was said often enough.
    pub(super) fn look_for_loops(&mut self, batch: &mut ToolBatch) -> bool {
        let bytes_max = self.own_bytes();
        let mut over = false;
        for (n, call) in batch.calls.iter_mut().enumerate() {
            let repeatable = self.spec.tool(&call.asked.name).is_some_and(|tool| tool.repeatable);
            let hash = u64::from_str_radix(&call.hash[..16], 16).unwrap_or_default();
            let found =
                if repeatable { None } else { self.loops.heard(hash, self.spec.limits.loop_repeats, self.rules) };
            if let Some(found) = found {
                over |= found.over;
                call.answer(found.told(), bytes_max);
            } else if n >= CALLS_MAX {
                call.answer(format!("Refused: an answer may call at most {CALLS_MAX} tools."), bytes_max);
            } else {
                continue;
            }
            self.refusals += 1;
        }
        over
    }

    /// Dispatches what may be dispatched. Whether to look again at what is to be done: all calls have their answers.
    pub(super) fn carry_on_batch(&mut self, out: &mut AgentRequests) -> bool {
        let AgentPhase::Batch(mut batch) = std::mem::replace(&mut self.phase, AgentPhase::Ready) else { return false };
        let mut short = None;
        for at in 0..batch.calls.len() {
            if let Err(resource) = self.dispatch(at, &mut batch, out) {
                short = Some(resource);
                break;
            }
        }
        let is_done = batch.calls.iter().all(|call| matches!(call.state, ToolCallState::Done(..)));
        if !is_done {
            self.phase = AgentPhase::Batch(batch);
            return short.is_some_and(|resource| self.exhausted(resource, out));
        }
        for call in batch.calls {
            if let ToolCallState::Done(item, size) = call.state {
                self.transcript.given(item, size);
            }
        }
        true
    }

    /// One call goes on by one state or more, as far as it can.
    fn dispatch(&mut self, at: usize, batch: &mut ToolBatch, out: &mut AgentRequests) -> Result<(), Resource> {
        let running = batch.running();
        let call = &mut batch.calls[at];
        let approved = match &call.state {
            ToolCallState::Waiting => false,
            ToolCallState::Approved => true,
            ToolCallState::Asking(_) | ToolCallState::Running(_) | ToolCallState::Done(..) => return Ok(()),
        };
        // An agent that is called gets half of what is left: a call or two, at least.
        let enough = u64::from(self.spec.max_output_tokens) * 4;
        let delegates = self.spec.tool(&call.asked.name).is_some_and(|tool| matches!(tool.does, Grant::Agent(_)));
        if delegates && self.asks_for_share(Resource::Tokens, enough) {
            return Ok(());
        }
        let (tool, plan) = match self.planned(&call.asked, out) {
            Ok(planned) => planned,
            Err(why) => {
                self.refusals += 1;
                call.answer(format!("Refused: {why}."), self.own_bytes());
                let why = cut(why, self.own_bytes());
                self.note(json!({ "refused": call.asked.name, "why": why }));
                return Ok(());
            }
        };
        if tool.approval && !approved {
            call.state = ToolCallState::Asking(format!("a{}", self.next_key));
            // Keys name approvals too, so that no two have the same id.
            self.next_key += 1;
            return Ok(());
        }
        if running >= self.spec.limits.fan_out as usize {
            return Ok(());
        }
        if self.ledger.wall.is_over(out.now) {
            return Err(Resource::Wall);
        }
        call.state = ToolCallState::Running(self.begin(at, tool, plan, out)?);
        Ok(())
    }

    /// The grant of the tool that is asked for, and what it lets be done.
    fn planned(&self, asked: &ToolCall, out: &AgentRequests) -> Result<(ToolGrant, CallPlan), String> {
        let tool = self.spec.tool(&asked.name).ok_or("there is no such tool")?;
        let (degraded, unpriced_allowed) = match self.rules {
            Rules::First => (None, self.spec.limits.allow_unpriced),
            Rules::Second | Rules::Third | Rules::Fourth => {
                (self.spec.limits.degrade.as_ref().filter(|_| self.degraded), self.unpriced_allowed)
            }
        };
        let caller = CallingAgent { spec: &self.spec, ledger: &self.ledger, now: out.now, degraded, unpriced_allowed };
        tool.plan(&asked.arguments, &caller).map(|plan| (tool.clone(), plan))
    }

    /// What is planned begins, if the budget has it.
    fn begin(
        &mut self,
        at: usize,
        tool: ToolGrant,
        plan: CallPlan,
        out: &mut AgentRequests,
    ) -> Result<FlightKey, Resource> {
        let lease = match &plan {
            CallPlan::Activity { .. } => Amount::default(),
            CallPlan::Agent { lease, .. } => lease.amount(),
        };
        self.ledger.reserve(self.next_key, lease.plus(one_call()))?;
        Ok(match plan {
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
        })
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
        let tool = batch.calls.get(call).and_then(|call| self.spec.tool(&call.asked.name));
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
            None if self.rules.are_first() => self.ledger.settle_whole(key),
            // A lease of money is all that it can have cost.
            None => self.ledger.settle_lost(key, self.ledger.held_for(key).cost_micros > 0),
        }
        let most = self.spec.limits.result_bytes;
        self.answered(call, key, origin, result.map(|value| ShownResult::of_agent(&value).tokens(most)));
    }

    fn answered(&mut self, call: usize, key: FlightKey, origin: u64, result: Result<u32, Fault>) {
        let bytes_max = self.own_bytes();
        let AgentPhase::Batch(batch) = &mut self.phase else { return };
        let Some(call) = batch.calls.get_mut(call).filter(|call| call.state == ToolCallState::Running(key)) else {
            return;
        };
        match result {
            Ok(tokens) => call.state = ToolCallState::Done(TranscriptItem::Given(origin), tokens),
            Err(fault) => {
                let what = match fault.class {
                    FaultClass::Lost => "Nobody knows whether this happened",
                    FaultClass::NeedsHuman | FaultClass::Fatal | FaultClass::TooLong | FaultClass::Canceled => "Failed",
                };
                call.answer(format!("{what}: {}", fault.message), bytes_max);
            }
        }
    }

    /// A person has answered. It counts for the call that it names by id and hash, and for no other.
    pub(super) fn approval(&mut self, response: ToolApprovalResponse) {
        let bytes_max = self.own_bytes();
        let AgentPhase::Batch(batch) = &mut self.phase else { return self.void(&response, "nothing waits for it") };
        let asking = ToolCallState::Asking(response.id.clone());
        let Some(call) = batch.calls.iter_mut().find(|call| call.state == asking) else {
            return self.void(&response, "nothing waits for it");
        };
        let edited = response
            .arguments
            .as_ref()
            .is_some_and(|arguments| call_hash(&call.asked.name, arguments).to_hex().as_str() != call.hash);
        if call.hash != response.hash || edited {
            return self.void(&response, "it is for other arguments");
        }
        if response.approved {
            call.state = ToolCallState::Approved;
        } else {
            call.answer(format!("Refused: a person said no. {}", response.reason), bytes_max);
            self.refusals += 1;
        }
        self.note(json!({ "approval": response.id, "approved": response.approved, "by": response.by }));
    }

    /// The most that the model is told of a refusal or a failure.
    fn own_bytes(&self) -> u64 {
        if self.rules.are_first() { u64::MAX } else { self.spec.limits.result_bytes }
    }

    fn void(&mut self, response: &ToolApprovalResponse, why: &str) {
        self.note(json!({ "approval": response.id, "void": why, "by": response.by }));
    }
}

fn one_call() -> Amount {
    Amount { tool_calls: 1, ..Amount::default() }
}
