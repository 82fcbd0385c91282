//! What is seen of an agent: its output and the answers to queries.
//!
//! Invariant: it reads and changes nothing.

use bosun_engine::Timestamp;
use serde_json::{Value, json};

use super::{AgentMachine, AgentOutput, AgentPhase, AgentStopReason, Halt};

/// The names of the queries.
pub const QUERIES: [&str; 5] = ["cost", "budget", "approvals", "state", "parked"];

impl AgentMachine {
    /// The result so far; final when the agent is over.
    pub fn output(&self) -> AgentOutput {
        let (stop, value) = match &self.outcome {
            Some(outcome) => (outcome.stop.clone(), outcome.value.clone()),
            None => (AgentStopReason::Failed { message: "it has not ended".to_owned() }, None),
        };
        AgentOutput {
            name: self.spec.name.clone(),
            stop,
            text: self.last_text.clone(),
            value,
            spent: self.ledger.spent(),
            unknown: self.ledger.unknown(),
            by_model: self.ledger.by_model().clone(),
            compactions: self.compactions,
            refusals: self.refusals,
        }
    }

    /// Answers one of [`QUERIES`].
    pub fn query(&self, name: &str, now: Timestamp) -> Option<Value> {
        match name {
            "cost" => Some(self.ledger.cost_view()),
            "budget" => {
                let mut view = self.ledger.budget_view(now);
                view["halted"] = json!(self.halt);
                Some(view)
            }
            "approvals" => Some(json!(self.approvals())),
            "state" => Some(self.state()),
            "parked" => Some(self.parked()),
            _ => None,
        }
    }

    /// Whether only people can bring it on: what it asks of its supervisor is no person's.
    pub fn stands_still_for_people(&self) -> bool {
        let shares = matches!(self.halt, Some(Halt::Share { .. }));
        self.outcome.is_none() && self.waits_for_people() && !shares
    }

    /// Whether it waits for people and for nothing else, and what with; in the words of the query of supervisors.
    fn parked(&self) -> Value {
        let asked =
            self.approvals().into_iter().map(|asked| format!("the approval {} of {}", asked["id"], asked["tool"]));
        let paused = self.paused.iter().map(|why| format!("a resume: it is paused ({why})"));
        let waits: Vec<String> = self.halt.iter().map(Halt::told).chain(paused).chain(asked).collect();
        let parked = self.stands_still_for_people();
        json!({ "parked": parked, "waits": if parked { waits } else { Vec::new() }, "exit": false })
    }

    fn state(&self) -> Value {
        let phase = match &self.phase {
            _ if self.halt.is_some() => "halted",
            _ if self.paused.is_some() => "paused",
            AgentPhase::Ready => "ready",
            AgentPhase::Asking => "asking",
            AgentPhase::Batch(_) if !self.approvals().is_empty() => "awaiting_approval",
            AgentPhase::Batch(_) => "tools",
            AgentPhase::Over => "over",
        };
        json!({
            "name": self.spec.name, "phase": phase, "halted": self.halt, "halts": self.halts, "paused": self.paused, "model_degraded": self.degraded, "repairs": self.repairs,
            "compactions": self.compactions, "refusals": self.refusals, "messages": self.transcript.len(),
            "context_tokens": self.transcript.estimate(), "approvals": self.approvals(), "facts": self.facts,
            "last_text": self.last_text,
        })
    }
}
