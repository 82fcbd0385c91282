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
//! Invariant: a model only asks; what is dispatched has passed the grant, the schema, the loop detector, the approval and
//! the budget, in this order, in `batch`. Everything that was begun ends, and is settled, before the agent is over. Pure:
//! no clock, disk, tokio or unordered map; the state is data.

mod asking;
mod batch;
mod budget;
mod rules;
#[cfg(test)]
mod tests;
mod view;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use rules::Rules;
pub use view::QUERIES;
pub use words::{
    AgentOutput, ApprovalResponse, Ask, Event, Fault, FaultClass, Halt, Key, Lent, ModelAnswer, ModelCall, Purpose,
    StopReason, call_hash,
};

use self::batch::Batch;
use self::words::Out;
use super::ledger::{Caps, Ledger, Resource, Wall};
use super::loops::LoopWatch;
use super::spec::{AgentSpec, Share};
use super::transcript::Transcript;

/// Facts that are kept to be shown; all of them follow from the history.
const FACTS_KEPT: usize = 50;

/// The agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    #[serde(default, skip_serializing_if = "Rules::are_first")]
    rules: Rules,
    spec: AgentSpec,
    ledger: Ledger,
    transcript: Transcript,
    phase: Phase,
    flights: BTreeMap<Key, Flight>,
    next_key: Key,
    halt: Option<Halt>,
    /// Tells one halt from the next; the first rules do not count.
    #[serde(default, skip_serializing_if = "is_zero")]
    halts: u32,
    /// Why somebody paused it, as long as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused: Option<String>,
    outcome: Option<Outcome>,
    /// The cheaper model has taken over.
    degraded: bool,
    /// Calls without a known cost may go on.
    unpriced_allowed: bool,
    /// Of these there is no more of the run's budget than what was lent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    last_of_share: Vec<Resource>,
    repairs: u32,
    loops: LoopWatch,
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
    facts: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    /// The next thing is a model call.
    Ready,
    Asking,
    Batch(Batch),
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
struct Outcome {
    stop: StopReason,
    value: Option<Value>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Agent {
    /// An agent that begins, or why it cannot.
    pub fn start(spec: AgentSpec, rules: Rules, now: Timestamp) -> Result<(Agent, Vec<Ask>), String> {
        Agent::start_after(spec, rules, now, Vec::new())
    }

    /// The same after what people have said already: of all that happens, only their signals count here.
    ///
    /// # Errors
    /// As [`Agent::start`].
    pub fn start_after(
        spec: AgentSpec,
        rules: Rules,
        now: Timestamp,
        heard: Vec<Event>,
    ) -> Result<(Agent, Vec<Ask>), String> {
        spec.check()?;
        let wall = Wall::new(spec.limits.wall_ms.map(Duration::from_millis), now);
        let nobody_lends = spec.limits.share.filter(|_| spec.report_to.is_none());
        let mut agent = Agent {
            rules,
            ledger: Ledger::new(Caps::of(&spec.limits), wall).with_share(spec.limits.share),
            // Without a supervisor there is nobody to ask.
            last_of_share: nobody_lends.map_or_else(Vec::new, Share::resources),
            transcript: Transcript::new(&spec),
            unpriced_allowed: spec.limits.allow_unpriced,
            spec,
            phase: Phase::Ready,
            flights: BTreeMap::new(),
            next_key: 1,
            halt: None,
            halts: 0,
            paused: None,
            outcome: None,
            degraded: false,
            repairs: 0,
            loops: LoopWatch::default(),
            last_text: String::new(),
            compactions: 0,
            too_long: None,
            halvings: 0,
            summaries_failed: 0,
            refusals: 0,
            wall_timer: false,
            facts: Vec::new(),
        };
        for event in heard {
            match event {
                Event::Pause { reason } => agent.pause(reason),
                Event::Resume => agent.resume(),
                Event::TopUp(more) => agent.top_up(&more, now),
                Event::Lent(lent) => agent.lent(&lent),
                Event::Approval(response) => agent.approval(response),
                _ => {} // nothing else can have happened
            }
        }
        let mut out = Out { now, asks: Vec::new() };
        agent.go_on(&mut out);
        Ok((agent, out.asks))
    }

    /// Something happened.
    pub fn handle(&mut self, event: Event, now: Timestamp) -> Vec<Ask> {
        let mut out = Out { now, asks: Vec::new() };
        match event {
            Event::Model { key, origin, result } => self.model_ended(key, origin, result, &mut out),
            Event::Tool { key, origin, result } => self.tool_ended(key, origin, result),
            Event::Child { key, origin, result, output } => self.child_ended(key, origin, result, output),
            Event::Approval(response) => self.approval(response),
            Event::TopUp(more) => self.top_up(&more, now),
            Event::Lent(lent) => self.lent(&lent),
            Event::Pause { reason } => self.pause(reason),
            Event::Resume => self.resume(),
            Event::WallFired => self.wall_fired(&mut out),
            Event::Cancel { reason } => self.finish(StopReason::Canceled { reason }, None, &mut out),
        }
        self.go_on(&mut out);
        debug_assert_eq!(self.check(), Ok(()));
        out.asks
    }

    /// Nothing is under way any more, and there is an outcome.
    pub fn is_over(&self) -> bool {
        self.outcome.is_some() && self.flights.is_empty()
    }
    pub fn rules(&self) -> Rules {
        self.rules
    }
    pub fn spec(&self) -> &AgentSpec {
        &self.spec
    }
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
    pub fn halt(&self) -> Option<&Halt> {
        self.halt.as_ref()
    }
    /// How often it has halted: another number is another halt, even if the words are the same.
    pub fn halts(&self) -> u32 {
        self.halts
    }

    /// After every event: what may begin begins, and the clock runs or stands still.
    fn go_on(&mut self, out: &mut Out) {
        while self.outcome.is_none() && !self.stands_still() {
            let again = match &self.phase {
                Phase::Ready => self.ask_model(out),
                Phase::Batch(_) => self.carry_on_batch(out),
                Phase::Asking | Phase::Over => false,
            };
            if !again {
                break;
            }
        }
        self.clock(out);
    }

    fn fly(&mut self, flight: Flight) -> Key {
        let key = self.next_key;
        self.next_key += 1;
        self.flights.insert(key, flight);
        key
    }

    /// The first outcome counts. What is under way is ended, and heard of before the agent is over.
    fn finish(&mut self, stop: StopReason, value: Option<Value>, out: &mut Out) {
        if self.outcome.is_some() {
            return;
        }
        self.note(json!({ "ended": stop }));
        self.outcome = Some(Outcome { stop, value });
        self.phase = Phase::Over;
        (self.halt, self.paused) = (None, None);
        out.asks.extend(self.flights.keys().map(|key| Ask::Cancel { key: *key }));
    }

    fn note(&mut self, fact: Value) {
        self.facts.push(fact);
        let excess = self.facts.len().saturating_sub(FACTS_KEPT);
        self.facts.drain(..excess);
    }

    /// What must always hold.
    pub fn check(&self) -> Result<(), String> {
        let holding = self.ledger.held_keys();
        let flying: Vec<Key> = self.flights.keys().copied().collect();
        if holding != flying {
            return Err(format!("held for {holding:?}, under way {flying:?}"));
        }
        let models = self.flights.values().filter(|flight| matches!(flight, Flight::Model { .. })).count();
        let asking = matches!(self.phase, Phase::Asking);
        if self.outcome.is_none() && (models > 0) != asking || models > 1 {
            return Err(format!("{models} model calls under way in {:?}", self.phase));
        }
        if let Phase::Batch(batch) = &self.phase
            && batch.running() > self.spec.limits.fan_out as usize
        {
            return Err(format!("{} tools run at a time", batch.running()));
        }
        Ok(())
    }
}
