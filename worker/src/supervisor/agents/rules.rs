//! What distinguishes one system of agents from another: data, so that there is one loop and not five.
//!
//! Invariant: rules never change while a loop runs, and every number in them is a bound that the loop enforces itself,
//! whatever a model says. The presets hold the published defaults. Nothing here acts.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::supervisor::spec::tool_names::Builtin;
use crate::supervisor::spec::{
    ContextSummary, DelegationProtocol, DelegationScope, HandoffControl, Limits, MemoryScope, OnDelegationTimeout,
    OutputMode, Span,
};
use crate::supervisor::standing::StandingPolicy;

/// One agent: who it is, what it may call, and its own bounds. Nothing of it is taken from the agent that calls it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentDef {
    pub name: String,
    /// What it is called beside its name, where coworkers are asked (CRW-05).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    pub description: String,
    /// May name context variables as `{{name}}`.
    pub instructions: String,
    pub model: Option<String>,
    /// Agents it may give work to and wait for.
    pub delegates: Vec<String>,
    /// Agents it may hand the conversation to.
    pub handoffs: Vec<String>,
    pub tools: Vec<ToolDef>,
    pub timeout: Option<Span>,
    /// `conversation` or `call`; the rules' one if there is none.
    pub memory_scope: Option<MemoryScope>,
    pub limits: Limits,
}

impl AgentDef {
    pub fn new(name: &str) -> Self {
        AgentDef { name: name.to_owned(), ..AgentDef::default() }
    }
}

/// A tool of an agent that is carried out by a call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolDef {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
    /// Who carries it out; the agent's own name if nobody is named.
    pub owner: Option<String>,
    /// A plain function is no tool: it is not charged to the tool-call budget.
    pub plain: bool,
    /// A hand-off under a name of its own.
    pub handoff_to: Option<String>,
}

impl ToolDef {
    pub fn new(name: &str) -> Self {
        ToolDef { name: name.to_owned(), ..ToolDef::default() }
    }
}

/// Everything that makes a system what it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentRules {
    pub delegation: DelegationRules,
    pub handoff: HandoffRules,
    pub limit: LoopLimit,
    pub budget: ToolBudget,
    /// Failures of one tool in a row after which it is refused, until the turn ends; none: never.
    pub breaker_failures: Option<u32>,
    /// From this many identical calls in one turn on, a call is refused; none: never.
    pub repetitions: Option<u32>,
    pub builtins: BTreeSet<Builtin>,
    pub sleep_max: Span,
    /// Whether calls are carried out, or handed back as they are.
    pub execute_tools: bool,
    /// Whether several calls of one response are under way together.
    pub parallel_tool_calls: bool,
    /// A first answer with unfilled placeholders is asked for once more.
    pub corrective_retry: bool,
    pub policies: Vec<StandingPolicy>,
    pub errors: ErrorStyle,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DelegationRules {
    /// Which tools an agent gives work with.
    pub kind: DelegationProtocol,
    pub max_depth: u32,
    /// How deep the whole run is already (a child run of a delegation).
    pub base_depth: u32,
    pub parallel: u32,
    pub background_max: u32,
    pub timeout: Span,
    pub on_timeout: OnDelegationTimeout,
    /// How long `wait` waits at most.
    pub hard_timeout: Span,
    pub scope: DelegationScope,
    pub summary: ContextSummary,
    pub memory_scope: MemoryScope,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HandoffRules {
    pub mode: HandoffControl,
    pub prefix: String,
    /// Whether the pair of messages of a hand-off is kept.
    pub messages: bool,
    pub back_messages: bool,
    pub history: OutputMode,
    /// Whether the supervisor may pass an agent's message on verbatim.
    pub forward: bool,
}

/// The bound of the loop: there always is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoopLimit {
    pub max: u32,
    pub count: LoopCount,
    pub then: OnLimit,
    /// It is `loop.max_rounds` of the spec, in place of the steps of the system.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub of_rounds: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopCount {
    /// Calls of the model for one input of one agent.
    #[default]
    Turns,
    /// Messages added, tool messages included.
    Messages,
    /// Calls of models and rounds of hand-offs, of all agents of the loop.
    Steps,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLimit {
    /// Ends with what there is.
    #[default]
    Return,
    /// Fails, asking for a simpler request.
    StepLimit,
    /// Fails, naming the limit to raise.
    RecursionLimit,
    /// One more call without tools, whose answer ends it.
    Synthesize,
}

impl LoopLimit {
    /// What a loop that may not go on says.
    pub fn text(&self) -> String {
        let max = self.max;
        match self.then {
            OnLimit::Return | OnLimit::Synthesize => format!("Maximum number of turns ({max}) reached."),
            OnLimit::StepLimit => format!(
                "Maximum step limit ({max}) reached. The task has exceeded the allowed number of execution cycles. \
                 Please simplify your request or break it into smaller tasks."
            ),
            OnLimit::RecursionLimit => format!(
                "Recursion limit of {max} reached without hitting a stop condition. Raise `loop.{}`, or let an agent \
                 answer without handing over.",
                if self.of_rounds { "max_rounds" } else { "max_steps" }
            ),
        }
    }
}

/// Tool calls of the whole loop; the last word then has one call without tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolBudget {
    pub per_task: Option<u32>,
    pub per_thread: Option<u32>,
}

/// How a refusal or failure is told to the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorStyle {
    /// `{"ok": false, "error": "..."}`, and `{"ok": true, "data": ...}` for what went well.
    #[default]
    Object,
    /// `Error: ...`, and results as they are.
    Text,
}

impl Default for DelegationRules {
    fn default() -> Self {
        DelegationRules {
            kind: DelegationProtocol::Processes,
            max_depth: 5,
            base_depth: 0,
            parallel: 5,
            background_max: 10,
            timeout: Span::from_secs(300),
            on_timeout: OnDelegationTimeout::Background,
            hard_timeout: Span::from_secs(300),
            scope: DelegationScope::Assigned,
            summary: ContextSummary::default(),
            memory_scope: MemoryScope::Call,
        }
    }
}

impl Default for HandoffRules {
    fn default() -> Self {
        HandoffRules {
            mode: HandoffControl::Return,
            prefix: "transfer_to_".to_owned(),
            messages: true,
            back_messages: true,
            history: OutputMode::LastMessage,
            forward: false,
        }
    }
}

impl Default for LoopLimit {
    fn default() -> Self {
        LoopLimit { max: 50, count: LoopCount::Turns, then: OnLimit::Return, of_rounds: false }
    }
}

impl Default for AgentRules {
    /// Delegation as supyagent does it.
    fn default() -> Self {
        AgentRules {
            delegation: DelegationRules::default(),
            handoff: HandoffRules::default(),
            limit: LoopLimit::default(),
            budget: ToolBudget::default(),
            breaker_failures: Some(3),
            repetitions: Some(4),
            builtins: BTreeSet::from([Builtin::Sleep]),
            sleep_max: Span::from_secs(86_400),
            execute_tools: true,
            parallel_tool_calls: true,
            corrective_retry: false,
            policies: Vec::new(),
            errors: ErrorStyle::Object,
        }
    }
}
