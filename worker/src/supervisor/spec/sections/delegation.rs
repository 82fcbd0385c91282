//! Agents that call agents (delegation), and agents that hand over (hand-off).
//!
//! Invariant: delegation is call and return, a hand-off moves control; they share no key (supervisors.md §4.3 no. 34).
//! It calls nobody.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::supervisor::spec::Span;

/// `delegation:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Delegation {
    /// The agent the run begins with; null is the first of the list.
    pub root: Option<String>,
    /// How an agent gives work to another and waits for it; null is as the preset has it, and without a preset `coworkers`
    /// where there is a manager, else `processes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<DelegationProtocol>,
    /// An agent at this depth may not delegate; the root's is 0 (SUP-06).
    pub max_depth: u32,
    /// The depth of the process this run is part of (SUP-08).
    pub base_depth: u32,
    /// Delegations of one response at once (SUP-21).
    pub parallel: u32,
    /// Background processes at once (SUP-24).
    pub background_max: u32,
    /// How long a delegation may take before `on_timeout` happens.
    pub timeout: Span,
    /// What happens to a delegation that takes too long.
    pub on_timeout: OnDelegationTimeout,
    /// The longest wait for a child under `on_timeout: wait` (SUP-23).
    pub wait_max: Span,
    /// Whom a manager may ask about a task.
    pub scope: DelegationScope,
    /// What of the parent's conversation a child is told (SUP-26).
    pub summary: ContextSummary,
    /// Failures of a tool in a row that stop it; 0 is never (SUP-27).
    pub breaker: u32,
    /// The same call so many times in a row is a repetition; 0 is never (SUP-27).
    pub repetition: u32,
    /// The longest sleep an agent may ask for (SUP-28).
    pub sleep_max: Span,
    /// One more turn for an answer with unfilled placeholders (CUG-41).
    pub corrective_retry: bool,
}

impl Default for Delegation {
    fn default() -> Self {
        Delegation {
            root: None,
            protocol: None,
            max_depth: 5,
            base_depth: 0,
            parallel: 5,
            background_max: 10,
            timeout: Span::from_secs(300),
            on_timeout: OnDelegationTimeout::Background,
            wait_max: Span::from_secs(300),
            scope: DelegationScope::Assigned,
            summary: ContextSummary::default(),
            breaker: 3,
            repetition: 4,
            sleep_max: Span::from_secs(86_400),
            corrective_retry: false,
        }
    }
}

/// How an agent gives work to another one, and what both know of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DelegationProtocol {
    /// Each delegation is a process with tools to look after it, and guards against calls in circles (SUP-22, SUP-27).
    Processes,
    /// Variables go along and come back, and who was asked remembers (CUG-37, CUG-38).
    Variables,
    /// A manager asks and delegates by name, task by task (CRW-01, CRW-05).
    Coworkers,
}

/// What happens to a delegation that takes too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDelegationTimeout {
    /// It goes on in the background.
    Background,
    /// It is cancelled.
    Kill,
    /// Whoever delegated goes on waiting, up to `wait_max`.
    Wait,
    /// It has failed.
    Fail,
}

/// Whom a manager may ask about a task that has an agent (supervisors.md §4.3 no. 33).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DelegationScope {
    /// Only the agent of the task.
    Assigned,
    /// Every agent.
    All,
}

/// `delegation.summary:`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContextSummary {
    /// Only if there are more messages than this.
    pub above: u32,
    /// The last so many.
    pub last: u32,
    /// Each cut to so many characters.
    pub chars: u32,
}

impl Default for ContextSummary {
    fn default() -> Self {
        ContextSummary { above: 4, last: 10, chars: 300 }
    }
}

/// `handoff:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Handoff {
    /// Agents hand over to each other, and where control goes then; null is as the preset has it, and without a preset
    /// nobody hands over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<HandoffControl>,
    /// What of an agent's conversation its successor sees (LGS-03).
    pub history: OutputMode,
    /// The pairs of tool messages about hand-offs are in the conversation (LGS-06).
    pub messages: bool,
    /// The pairs about the way back too.
    pub back_messages: bool,
    /// What the name of a hand-off tool begins with (LGS-02).
    pub prefix: String,
    /// Several hand-offs of one response fan out (LGS-05); otherwise the last one wins (SWM-02).
    pub parallel: bool,
    /// `false` returns tool calls without executing them (SWM-05).
    pub execute_tools: bool,
    /// The supervisor can pass on an agent's last message verbatim (LGS-07).
    pub forward: bool,
    /// Custom hand-off tools: the agents they lead to, in their order, or the name of each tool with its agent. They cover
    /// every agent; null is one tool per agent (LGS-04).
    pub tools: Option<HandoffTools>,
    /// A hand-off to this name ends the run: somebody outside was meant (AGC-21).
    pub termination: Option<String>,
}

impl Default for Handoff {
    fn default() -> Self {
        Handoff {
            control: None,
            history: OutputMode::LastMessage,
            messages: true,
            back_messages: true,
            prefix: "transfer_to_".to_owned(),
            parallel: false,
            execute_tools: true,
            forward: false,
            tools: None,
            termination: None,
        }
    }
}

/// `handoff.control:`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HandoffControl {
    /// It comes back to the supervisor when the other agent has answered (LGS-01).
    Return,
    /// It stays with the agent that was handed over to (SWM-01).
    Switch,
}

/// `handoff.tools:`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum HandoffTools {
    /// The agents they lead to; each tool has the usual name.
    Agents(Vec<String>),
    /// The name of each tool, with its agent.
    Named(BTreeMap<String, String>),
}

impl HandoffTools {
    /// The agents they lead to.
    pub fn agents(&self) -> Vec<&String> {
        match self {
            HandoffTools::Agents(names) => names.iter().collect(),
            HandoffTools::Named(tools) => tools.values().collect(),
        }
    }
}

/// What of an agent's conversation its successor sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputMode {
    /// Its last message.
    LastMessage,
    /// All its messages.
    FullHistory,
}
