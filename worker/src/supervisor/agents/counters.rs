//! What one session has called so far: limits, the circuit breaker and the repetition guard.
//!
//! Invariant: answers are counted in call order when all of a response are there, so that it makes no difference which
//! came first. A turn (one input until its answer) begins with nothing but the total. It refuses; it runs nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::message::{ToolCall, json_text};
use super::rules::AgentRules;
use crate::canonical::sorted;
use crate::supervisor::spec::Limits;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counters {
    /// In this turn, by who called: a hand-off gives nobody the calls of another (SUP-33).
    turn: BTreeMap<String, u32>,
    pub(crate) total: u32,
    failures: BTreeMap<String, u32>,
    /// How often a call with these arguments was made in this turn, by hash.
    repeated: BTreeMap<String, u32>,
}

/// Why a call is not carried out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallRefusal {
    pub(crate) kind: &'static str,
    pub(crate) text: String,
    /// Whether the turn ends with it.
    pub(crate) ends: bool,
}

impl Counters {
    pub(crate) fn new_turn(&mut self) {
        *self = Counters { total: self.total, ..Counters::default() };
    }

    /// Counts one call of this agent, or says why it may not be made. `made`: what it has called in the whole run.
    pub(crate) fn admit(
        &mut self,
        agent: &str,
        made: u32,
        call: &ToolCall,
        limits: &Limits,
        rules: &AgentRules,
    ) -> Result<(), CallRefusal> {
        let limit = |text: String| Err(CallRefusal { kind: "limit", text, ends: true });
        let turn = self.turn.get(agent).copied().unwrap_or_default();
        if let Some(max) = limits.per_turn.filter(|max| turn >= *max) {
            return limit(format!("Maximum tool calls per turn ({max}) reached."));
        }
        if let Some(max) = limits.total.filter(|max| made >= *max) {
            return limit(format!("Maximum total tool calls ({max}) reached."));
        }
        let key = signature(call);
        let times = self.repeated.get(&key).copied().unwrap_or_default().saturating_add(1);
        if rules.repetitions.is_some_and(|max| times >= max) {
            let text = format!(
                "Repetitive tool call detected: '{}' called with identical arguments {times} times. Try a different \
                 approach.",
                call.name
            );
            // Counted on, so that one call more says one time more.
            self.repeated.insert(key, times);
            return Err(CallRefusal { kind: "repetition_detected", text, ends: false });
        }
        let failures = self.failures.get(&call.name).copied().unwrap_or_default();
        if let Some(max) = rules.breaker_failures.filter(|max| failures >= *max) {
            let text = format!(
                "Tool '{}' has failed {max} times consecutively. Please try a different approach or tool.",
                call.name
            );
            return Err(CallRefusal { kind: "circuit_breaker", text, ends: false });
        }
        self.repeated.insert(key, times);
        self.turn.insert(agent.to_owned(), turn.saturating_add(1));
        self.total = self.total.saturating_add(1);
        Ok(())
    }

    /// Remembers how a call of that tool ended.
    pub(crate) fn ended(&mut self, tool: &str, ok: bool) {
        if ok {
            self.failures.remove(tool);
        } else {
            let failures = self.failures.entry(tool.to_owned()).or_default();
            *failures = failures.saturating_add(1);
        }
    }
}

/// The same for the same tool with the same arguments, whatever the order of their keys.
fn signature(call: &ToolCall) -> String {
    let text = format!("{}\n{}", call.name, json_text(&sorted(&call.args)));
    blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
}
