//! The rules of each system by name, with its published defaults.
//!
//! Invariant: a preset is a value of [`AgentRules`]; whatever it sets can be set without it.

use std::collections::BTreeSet;

use super::rules::{
    AgentRules, DelegationKind, DelegationRules, ErrorStyle, HandoffRules, LoopCount, LoopLimit, OnLimit, ToolBudget,
};
use crate::supervisor::spec::tool_names::Builtin;
use crate::supervisor::spec::{HandoffControl, MemoryScope, OnDelegationTimeout};

impl AgentRules {
    /// Delegation: depth 5, 5 at once, 10 in the background, 300 s and then to the background.
    pub fn supyagent() -> Self {
        AgentRules::default()
    }

    /// A supervisor that hands over and gets control back; 25 steps.
    pub fn langgraph() -> Self {
        AgentRules {
            limit: LoopLimit { max: 25, count: LoopCount::Steps, then: OnLimit::RecursionLimit },
            parallel_tool_calls: false,
            builtins: BTreeSet::new(),
            ..AgentRules::without_guards()
        }
    }

    /// The active agent changes with a hand-off; 25 messages.
    pub fn swarm() -> Self {
        AgentRules {
            handoff: HandoffRules { mode: HandoffControl::Switch, ..HandoffRules::default() },
            limit: LoopLimit { max: 25, count: LoopCount::Messages, then: OnLimit::Return },
            builtins: BTreeSet::new(),
            ..AgentRules::without_guards()
        }
    }

    /// A manager that gives work to coworkers; its best answer after 25 turns.
    pub fn crewai() -> Self {
        AgentRules {
            delegation: DelegationRules {
                kind: DelegationKind::Coworkers,
                on_timeout: OnDelegationTimeout::Fail,
                ..DelegationRules::default()
            },
            limit: LoopLimit { max: 25, count: LoopCount::Turns, then: OnLimit::Synthesize },
            builtins: BTreeSet::new(),
            ..AgentRules::without_guards()
        }
    }

    /// The conversational supervisor: todos, variables, 50 steps, 256 tool calls.
    pub fn cuga() -> Self {
        AgentRules {
            delegation: DelegationRules {
                kind: DelegationKind::Variables,
                on_timeout: OnDelegationTimeout::Fail,
                memory_scope: MemoryScope::Conversation,
                ..DelegationRules::default()
            },
            limit: LoopLimit { max: 50, count: LoopCount::Turns, then: OnLimit::StepLimit },
            budget: ToolBudget { per_task: Some(256), per_thread: None },
            builtins: BTreeSet::from([Builtin::CreateUpdateTodos]),
            corrective_retry: true,
            ..AgentRules::without_guards()
        }
    }

    /// No breaker and no repetition guard, errors as text.
    fn without_guards() -> Self {
        AgentRules { breaker_failures: None, repetitions: None, errors: ErrorStyle::Text, ..AgentRules::default() }
    }
}
