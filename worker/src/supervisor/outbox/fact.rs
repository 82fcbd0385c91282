//! What a strategy tells the run beside its asks: facts that other parts keep.
//!
//! Invariant: a fact is left in the turn in which it has happened, beside the note that tells people of it; whoever keeps a
//! state hears facts, and reads no note. What is not of the run's other parts is no fact.

use super::Outbox;
use crate::supervisor::model::{AgentInstance, InstanceStatus};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// An agent is at work from now on.
    AgentRegistered(AgentInstance),
    AgentClosed {
        instance_id: String,
        status: InstanceStatus,
    },
    WorkEnded(WorkEnd),
}

/// Some work that has ended; of tasks the plan's gates hear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkEnd {
    pub by: Doer,
    pub success: bool,
}

/// Who did some work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doer {
    /// Whoever bears this name in the spec, if anybody does.
    Agent(String),
    /// The agent of this number in the registry.
    Instance(String),
}

impl Outbox {
    pub fn tell(&mut self, fact: Fact) {
        self.facts.push(fact);
    }
    pub fn work_ended(&mut self, by: Doer, success: bool) {
        self.tell(Fact::WorkEnded(WorkEnd { by, success }));
    }
    pub fn facts(&self) -> &[Fact] {
        &self.facts
    }
    pub fn take_facts(&mut self) -> Vec<Fact> {
        std::mem::take(&mut self.facts)
    }
}
