//! An agent: model call, calls of tools, model call … until there is an answer.
//!
//! ```text
//!            ┌──────────────── all results are there ───────────────┐
//!            ▼                                                      │
//!   Ready ──► Asking ──► answer: done      calls: Batch ── dispatch, approvals, refusals
//!     │  ▲                  └─► does not conform: repair ─► Ready
//!     └──┘ too long: Asking for a summary           any of them ──► halted, paused ◄──► goes on by a signal
//! ```
//!
//! Invariant: a model only asks; what is dispatched has passed the gates of `agent::turn`, and the budget, in `batch`. Everything that was begun ends, and is settled, before the agent is over. Pure:
//! no clock, disk, tokio or unordered map; the state is data.

mod asking;
mod batch;
mod border;
mod budget;
#[cfg(test)]
mod tests;
mod view;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use super::turn::call_hash;
pub use view::QUERIES;
pub use words::{
    AgentEvent, AgentOutput, AgentRequest, AgentStopReason, CallPurpose, Fault, FaultClass, FlightKey, Halt, Lent,
    ModelAnswer, ModelCall, ToolApprovalResponse,
};

use self::batch::ToolBatch;
use self::words::AgentRequests;
use super::ledger::{BudgetLedger, Caps, Resource, Wall};
use super::spec::{AgentSpec, Share};
use super::transcript::Transcript;
use super::turn::{CallWatch, TurnHost};

/// Facts that are kept to be shown; all of them follow from the history.
const FACTS_KEPT: usize = 50;

/// The agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentMachine {
    spec: AgentSpec,
    ledger: BudgetLedger,
    transcript: Transcript,
    phase: AgentPhase,
    flights: BTreeMap<FlightKey, Flight>,
    /// Agents that were called and wait for people themselves.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    still: BTreeSet<FlightKey>,
    next_key: FlightKey,
    halt: Option<Halt>,
    /// Tells one halt from the next.
    #[serde(default, skip_serializing_if = "is_zero")]
    halts: u32,
    /// Why somebody paused it, as long as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused: Option<String>,
    outcome: Option<TurnOutcome>,
    /// The cheaper model has taken over.
    degraded: bool,
    /// Calls without a known cost may go on.
    unpriced_allowed: bool,
    /// Of these there is no more of the run's budget than what was lent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    last_of_share: Vec<Resource>,
    repairs: u32,
    watch: CallWatch,
    last_text: String,
    compactions: u64,
    /// The tokens that the model surely cannot read, by our estimate; it has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    too_long: Option<u64>,
    /// So often what was to be summed up was itself too long: each time half as much is tried.
    #[serde(default, skip_serializing_if = "is_zero")]
    halvings: u32,
    /// Answers in a row that were no summary, although one was asked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    summaries_failed: u32,
    refusals: u64,
    wall_timer: bool,
    /// The run is about to go on in another one: no model is asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    border_closes: bool,
    facts: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AgentPhase {
    /// The next thing is a model call.
    Ready,
    Asking,
    Batch(ToolBatch),
    Over,
}

/// What is under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Flight {
    Model {
        model: String,
        summary_of: Option<usize>,
    },
    /// The call of the batch with this number.
    Tool {
        call: usize,
    },
    Child {
        call: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct TurnOutcome {
    stop: AgentStopReason,
    value: Option<Value>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl AgentMachine {
    /// An agent that begins, or why it cannot.
    pub fn start(spec: AgentSpec, now: Timestamp) -> Result<(AgentMachine, Vec<AgentRequest>), String> {
        AgentMachine::start_after(spec, now, Vec::new())
    }

    /// The same after what people have said already: of all that happens, only their signals count here.
    ///
    /// # Errors
    /// As [`AgentMachine::start`].
    pub fn start_after(
        spec: AgentSpec,
        now: Timestamp,
        heard: Vec<AgentEvent>,
    ) -> Result<(AgentMachine, Vec<AgentRequest>), String> {
        spec.check()?;
        let wall = Wall::new(spec.limits.wall_ms.map(Duration::from_millis), now);
        let nobody_lends = spec.limits.share.filter(|_| spec.report_to.is_none());
        let mut agent = AgentMachine {
            ledger: BudgetLedger::new(Caps::of(&spec.limits), wall).with_share(spec.limits.share),
            // Without a supervisor there is nobody to ask.
            last_of_share: nobody_lends.map_or_else(Vec::new, Share::resources),
            transcript: Transcript::new(&spec),
            unpriced_allowed: spec.limits.allow_unpriced,
            spec,
            phase: AgentPhase::Ready,
            flights: BTreeMap::new(),
            still: BTreeSet::new(),
            next_key: 1,
            halt: None,
            halts: 0,
            paused: None,
            outcome: None,
            degraded: false,
            repairs: 0,
            watch: CallWatch::default(),
            last_text: String::new(),
            compactions: 0,
            too_long: None,
            halvings: 0,
            summaries_failed: 0,
            refusals: 0,
            wall_timer: false,
            border_closes: false,
            facts: Vec::new(),
        };
        heard.into_iter().for_each(|event| agent.said_before(event, now));
        let mut out = AgentRequests { now, asks: Vec::new() };
        agent.go_on(&mut out);
        Ok((agent, out.asks))
    }

    /// Of what is heard before the agent begins, only signals of people count.
    fn said_before(&mut self, event: AgentEvent, now: Timestamp) {
        match event {
            AgentEvent::Pause { reason } => self.pause(reason),
            AgentEvent::Resume => self.resume(),
            AgentEvent::TopUp(more) => self.top_up(&more, now),
            AgentEvent::Lent(lent) => self.lent(&lent),
            AgentEvent::Approval(response) => self.approval(response),
            _ => {} // nothing else can have happened
        }
    }

    /// Something happened.
    pub fn handle(&mut self, event: AgentEvent, now: Timestamp) -> Vec<AgentRequest> {
        let mut out = AgentRequests { now, asks: Vec::new() };
        match event {
            AgentEvent::Model { key, origin, result } => self.model_ended(key, origin, result, &mut out),
            AgentEvent::Tool { key, origin, result } => self.tool_ended(key, origin, result),
            AgentEvent::Child { key, origin, result, output } => self.child_ended(key, origin, result, output),
            AgentEvent::ChildTold { key, working } => self.child_told(key, working),
            AgentEvent::Approval(response) => self.approval(response),
            AgentEvent::TopUp(more) => self.top_up(&more, now),
            AgentEvent::Lent(lent) => self.lent(&lent),
            AgentEvent::Pause { reason } => self.pause(reason),
            AgentEvent::Resume => self.resume(),
            AgentEvent::WallFired => self.wall_fired(&mut out),
            AgentEvent::Cancel { reason } => self.finish(AgentStopReason::Canceled { reason }, None, &mut out),
        }
        self.go_on(&mut out);
        debug_assert_eq!(self.check(), Ok(()));
        out.asks
    }

    /// Nothing is under way any more, and there is an outcome.
    pub fn is_over(&self) -> bool {
        self.outcome.is_some() && self.flights.is_empty()
    }
    /// Whether no model is asked, because the run is about to go on in another one.
    pub fn border_closes(&self) -> bool {
        self.border_closes
    }
    pub fn spec(&self) -> &AgentSpec {
        &self.spec
    }
    pub fn ledger(&self) -> &BudgetLedger {
        &self.ledger
    }
    pub fn halt(&self) -> Option<&Halt> {
        self.halt.as_ref()
    }
    /// Why somebody paused it, as long as it is.
    pub fn paused(&self) -> Option<&str> {
        self.paused.as_deref()
    }
    /// How often it has halted: another number is another halt, even if the words are the same.
    pub fn halts(&self) -> u32 {
        self.halts
    }

    /// After every event: what may begin begins, and the clock runs or stands still.
    fn go_on(&mut self, out: &mut AgentRequests) {
        let is_late = self.ends_with_run(out);
        while self.outcome.is_none() && !self.stands_still() && !is_late {
            let again = match &self.phase {
                AgentPhase::Ready if self.border_closes => false,
                AgentPhase::Ready => self.ask_model(out),
                AgentPhase::Batch(_) => self.carry_on_batch(out),
                AgentPhase::Asking | AgentPhase::Over => false,
            };
            if !again {
                break;
            }
        }
        self.clock(out);
    }

    fn fly(&mut self, flight: Flight) -> FlightKey {
        let key = self.next_key;
        self.next_key += 1;
        self.flights.insert(key, flight);
        key
    }

    /// The first outcome counts. What is under way is ended, and heard of before the agent is over.
    fn finish(&mut self, stop: AgentStopReason, value: Option<Value>, out: &mut AgentRequests) {
        if self.outcome.is_some() {
            return;
        }
        self.note(json!({ "ended": stop }));
        self.outcome = Some(TurnOutcome { stop, value });
        self.phase = AgentPhase::Over;
        (self.halt, self.paused) = (None, None);
        out.asks.extend(self.flights.keys().map(|key| AgentRequest::Cancel { key: *key }));
    }

    fn note(&mut self, fact: Value) {
        self.facts.push(fact);
        let excess = self.facts.len().saturating_sub(FACTS_KEPT);
        self.facts.drain(..excess);
    }

    /// What must always hold.
    pub fn check(&self) -> Result<(), String> {
        let holding = self.ledger.held_keys();
        let flying: Vec<FlightKey> = self.flights.keys().copied().collect();
        if holding != flying {
            return Err(format!("held for {holding:?}, under way {flying:?}"));
        }
        let models = self.flights.values().filter(|flight| matches!(flight, Flight::Model { .. })).count();
        let asking = matches!(self.phase, AgentPhase::Asking);
        if self.outcome.is_none() && (models > 0) != asking || models > 1 {
            return Err(format!("{models} model calls under way in {:?}", self.phase));
        }
        match &self.phase {
            AgentPhase::Batch(batch) => batch.check(self.fan_out(())),
            AgentPhase::Ready | AgentPhase::Asking | AgentPhase::Over => Ok(()),
        }
    }
}
