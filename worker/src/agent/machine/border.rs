//! The border of an agent: between an answer's tools and the next model call it can go on in another run.
//!
//! ```text
//!   Ready ──(the border closes)──► nothing is asked ──► the conversation is carried ──► the next run: Ready
//! ```
//!
//! Invariant: at the border nothing is under way, no call waits for anybody, and all that is known is in the state, the
//! conversation aside, which the next run has as its input. Pure.

use bosun_engine::Timestamp;
use serde_json::json;

use super::words::AgentRequests;
use super::{AgentMachine, AgentPhase, AgentRequest};
use crate::agent::transcript::TranscriptItem;

impl AgentMachine {
    /// No model is asked any more, as long as the border is closed.
    pub fn close_border(&mut self) {
        self.border_closes = true;
    }

    /// Whether the run can go on in another one now.
    pub fn is_at_border(&self) -> bool {
        let ready = matches!(self.phase, AgentPhase::Ready) && self.flights.is_empty();
        self.border_closes && ready && self.outcome.is_none()
    }

    /// Goes on here all the same, and says why.
    pub fn open_border(&mut self, why: &str, now: Timestamp) -> Vec<AgentRequest> {
        self.note(json!({ "stays_in_one_run": why }));
        self.go_on_from_border(now)
    }

    /// What the model has been told and has said, by its places in this run.
    pub fn conversation(&self) -> &[(TranscriptItem, u32)] {
        self.transcript.items()
    }

    /// The agent as the next run has it, with the conversation in its input.
    pub fn carried(&self) -> AgentMachine {
        let mut next = self.clone();
        next.transcript.carry();
        next
    }

    /// The first turn of the next run.
    pub fn go_on_from_border(&mut self, now: Timestamp) -> Vec<AgentRequest> {
        self.border_closes = false;
        let mut out = AgentRequests { now, asks: Vec::new() };
        self.go_on(&mut out);
        out.asks
    }
}
