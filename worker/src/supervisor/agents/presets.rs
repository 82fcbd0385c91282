//! The rules of each system that no section of a spec says: how its loop counts and ends, what its agents are given.
//!
//! Invariant: a system is a value of [`AgentRules`]; its numbers are those of the preset (`spec/preset`), which `from_spec`
//! puts in. What is here has no key of its own.

use std::collections::BTreeSet;

use super::rules::{AgentRules, DelegationRules, ErrorStyle, HandoffRules, LoopCount, LoopLimit, OnLimit};
use crate::supervisor::spec::{DelegationProtocol, HandoffControl, MemoryScope};

impl AgentRules {
    /// A supervisor that hands over and gets control back: a call at a time, steps of all agents.
    pub(super) fn langgraph() -> Self {
        AgentRules {
            limit: LoopLimit { count: LoopCount::Steps, then: OnLimit::RecursionLimit, ..LoopLimit::default() },
            parallel_tool_calls: false,
            ..AgentRules::without_guards()
        }
    }

    /// The active agent changes with a hand-off; messages are counted.
    pub(super) fn swarm() -> Self {
        AgentRules {
            handoff: HandoffRules { mode: HandoffControl::Switch, ..HandoffRules::default() },
            limit: LoopLimit { count: LoopCount::Messages, then: OnLimit::Return, ..LoopLimit::default() },
            ..AgentRules::without_guards()
        }
    }

    /// A manager that gives work to coworkers, whose best answer counts when its turns are over.
    pub(super) fn crewai() -> Self {
        AgentRules {
            delegation: DelegationRules { kind: DelegationProtocol::Coworkers, ..DelegationRules::default() },
            limit: LoopLimit { then: OnLimit::Synthesize, ..LoopLimit::default() },
            ..AgentRules::without_guards()
        }
    }

    /// The conversational supervisor: variables go along, and who was asked remembers.
    pub(super) fn cuga() -> Self {
        AgentRules {
            delegation: DelegationRules {
                kind: DelegationProtocol::Variables,
                memory_scope: MemoryScope::Conversation,
                ..DelegationRules::default()
            },
            limit: LoopLimit { then: OnLimit::StepLimit, ..LoopLimit::default() },
            ..AgentRules::without_guards()
        }
    }

    /// No breaker and no repetition guard, no tools of the house, errors as text.
    fn without_guards() -> Self {
        AgentRules {
            breaker_failures: None,
            repetitions: None,
            builtins: BTreeSet::new(),
            errors: ErrorStyle::Text,
            ..AgentRules::default()
        }
    }
}
