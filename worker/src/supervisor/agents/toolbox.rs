//! Which tools an agent is offered, by which names, and which of its calls is which.
//!
//! Invariant: what is offered and what is carried out come from the same place, so that a model can call nothing it was
//! not offered; two agents never share a tool's name (refused at the start). Nothing here changes a session.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::agent_loop::AgentLoop;
use super::boundary::AgentsRefused;
use super::rules::{AgentDef, AgentRules, ToolDef};
use super::session::Session;
use super::step_context::ToolOffer;
use super::todos;
use crate::supervisor::spec::tool_names::{
    ASK_QUESTION, Builtin, DELEGATE_WORK, FORWARD_MESSAGE, PROCESS_TOOLS, SPAWN_AGENT, handoff_name, sanitized,
};
use crate::supervisor::spec::{DelegationProtocol, HandoffControl};
use crate::supervisor::standing as policies;

/// What a tool call asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ToolTarget {
    Function(ToolDef),
    /// To this agent: its real name.
    Handoff(String),
    /// To the agent behind this part of the tool's name.
    Delegate(String),
    Spawn,
    Coworker,
    Process,
    Forward,
    Builtin(Builtin),
}

/// Refuses agents and rules under which two tools would have one name, or one would lead nowhere.
pub(super) fn check(rules: &AgentRules, agents: &[AgentDef]) -> Result<(), AgentsRefused> {
    for (i, agent) in agents.iter().enumerate() {
        if agent.name.trim().is_empty() {
            return Err(AgentsRefused::NoName(i));
        }
        if agents[..i].iter().any(|other| other.name == agent.name) {
            return Err(AgentsRefused::DuplicateName(agent.name.clone()));
        }
    }
    for agent in agents {
        distinct(&agent.delegates, |name| format!("delegate_to_{}", sanitized(name)))?;
        distinct(&agent.handoffs, |name| format!("{}{}", rules.handoff.prefix, handoff_name(name)))?;
        one_of_each_name(rules, agent)?;
        for name in &agent.handoffs {
            if !agents.iter().any(|other| other.name == *name) {
                return Err(AgentsRefused::Unknown(name.clone()));
            }
        }
        let custom: Vec<&String> = agent.tools.iter().filter_map(|tool| tool.handoff_to.as_ref()).collect();
        if let Some(name) = custom.iter().find(|name| !agents.iter().any(|other| other.name == ***name)) {
            return Err(AgentsRefused::Unknown((*name).clone()));
        }
        let missing: Vec<&str> =
            agent.handoffs.iter().filter(|name| !custom.contains(name)).map(String::as_str).collect();
        if !custom.is_empty() && !missing.is_empty() {
            return Err(AgentsRefused::MissingHandoffs(missing.join(", ")));
        }
    }
    match rules.policies.iter().find(|policy| !policy.is_well_named()) {
        Some(policy) => Err(AgentsRefused::PolicyId(policy.id.clone(), policy.rule.kind())),
        None => Ok(()),
    }
}

/// CUG-36: what a model calls by a name is one thing.
fn one_of_each_name(rules: &AgentRules, agent: &AgentDef) -> Result<(), AgentsRefused> {
    let own = agent.tools.iter().map(|tool| (tool.name.clone(), "its own".to_owned()));
    let delegates = agent.delegates.iter().filter(|_| rules.delegation.kind != DelegationProtocol::Coworkers);
    let delegates =
        delegates.map(|name| (format!("delegate_to_{}", sanitized(name)), format!("that of its delegate '{name}'")));
    // Hand-offs of the spec's own take the place of those.
    let custom = agent.tools.iter().any(|tool| tool.handoff_to.is_some());
    let handoffs = agent.handoffs.iter().filter(|_| !custom);
    let handoffs = handoffs
        .map(|name| (format!("{}{}", rules.handoff.prefix, handoff_name(name)), format!("the hand-off to '{name}'")));
    let processes = rules.delegation.kind == DelegationProtocol::Processes && !agent.delegates.is_empty();
    let system = PROCESS_TOOLS.iter().chain(&[SPAWN_AGENT]).filter(|_| processes).copied();
    let forward = rules.handoff.forward && !agent.handoffs.is_empty();
    let system = system.chain(Some(FORWARD_MESSAGE).filter(|_| forward));
    let system = system.chain(rules.builtins.iter().map(|builtin| builtin.name()));
    let system = system.map(|name| (name.to_owned(), "one of the system".to_owned()));
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (tool, what) in own.chain(delegates).chain(handoffs).chain(system) {
        if let Some(first) = names.insert(tool.clone(), what.clone()) {
            return Err(AgentsRefused::ToolTwice { agent: agent.name.clone(), tool, first, second: what });
        }
    }
    Ok(())
}

fn distinct(names: &[String], tool: impl Fn(&str) -> String) -> Result<(), AgentsRefused> {
    for (i, name) in names.iter().enumerate() {
        if let Some(other) = names[..i].iter().find(|other| tool(other) == tool(name)) {
            return Err(AgentsRefused::SameToolName(other.clone(), name.clone(), tool(name)));
        }
    }
    Ok(())
}

impl AgentLoop {
    /// What a call of that name asks for, if there is such a tool.
    pub(super) fn target_of(&self, session: &Session, name: &str) -> Option<ToolTarget> {
        let agent = self.def(&session.agent)?;
        if let Some(tool) = agent.tools.iter().find(|tool| tool.name == name) {
            return Some(match &tool.handoff_to {
                Some(to) => ToolTarget::Handoff(to.clone()),
                None => ToolTarget::Function(tool.clone()),
            });
        }
        if let Some(to) = agent.handoffs.iter().find(|to| self.handoff_tool(to) == name) {
            return Some(ToolTarget::Handoff(to.clone()));
        }
        let process_tools = self.rules.delegation.kind == DelegationProtocol::Processes;
        match self.rules.delegation.kind {
            DelegationProtocol::Processes | DelegationProtocol::Variables => {
                if let Some(to) = name.strip_prefix("delegate_to_") {
                    return Some(ToolTarget::Delegate(to.to_owned()));
                }
            }
            DelegationProtocol::Coworkers => {
                if [DELEGATE_WORK, ASK_QUESTION].contains(&name) && !session.coworkers.is_empty() {
                    return Some(ToolTarget::Coworker);
                }
            }
        }
        if process_tools && !agent.delegates.is_empty() {
            if name == SPAWN_AGENT {
                return Some(ToolTarget::Spawn);
            }
            if PROCESS_TOOLS.contains(&name) {
                return Some(ToolTarget::Process);
            }
        }
        if name == FORWARD_MESSAGE && self.rules.handoff.forward && !agent.handoffs.is_empty() {
            return Some(ToolTarget::Forward);
        }
        let builtin = self.rules.builtins.iter().find(|builtin| builtin.name() == name);
        builtin.map(|builtin| ToolTarget::Builtin(*builtin))
    }

    pub(super) fn handoff_tool(&self, to: &str) -> String {
        format!("{}{}", self.rules.handoff.prefix, handoff_name(to))
    }

    /// The tools of a session: its agent's own first, then those of the system.
    pub(super) fn tools_of(&self, session: &Session) -> Vec<ToolOffer> {
        let Some(agent) = self.def(&session.agent) else { return Vec::new() };
        let mut tools: Vec<ToolOffer> = Vec::new();
        for tool in &agent.tools {
            let parameters = if tool.parameters.is_null() { object(&[], &[]) } else { tool.parameters.clone() };
            tools.push(self.described(&tool.name, &tool.description, parameters));
        }
        if !agent.tools.iter().any(|tool| tool.handoff_to.is_some()) {
            for to in &agent.handoffs {
                let description = format!("Ask agent '{to}' for help");
                tools.push(self.described(&self.handoff_tool(to), &description, object(&[], &[])));
            }
        }
        if self.rules.handoff.forward && !agent.handoffs.is_empty() {
            let parameters = object(&[("from_agent", json!({"type": "string"}))], &["from_agent"]);
            tools.push(self.described(FORWARD_MESSAGE, "Forwards the latest message of an agent verbatim", parameters));
        }
        match self.rules.delegation.kind {
            DelegationProtocol::Processes => self.process_delegation(agent, &mut tools),
            DelegationProtocol::Variables => self.variable_delegation(agent, &mut tools),
            DelegationProtocol::Coworkers => self.coworker_tools(session, &mut tools),
        }
        for builtin in &self.rules.builtins {
            tools.push(self.described(builtin.name(), builtin.description(), builtin.parameters()));
        }
        tools
    }

    fn process_delegation(&self, agent: &AgentDef, tools: &mut Vec<ToolOffer>) {
        for delegate in agent.delegates.iter().filter_map(|name| self.def(name)) {
            let parameters = object(
                &[
                    ("task", json!({"type": "string"})),
                    ("context", json!({"type": "string"})),
                    ("mode", json!({"enum": ["subprocess", "in_process"], "default": "subprocess"})),
                    ("background", json!({"type": "boolean", "default": false})),
                    ("timeout", json!({"type": "integer", "default": self.rules.delegation.timeout.as_secs()})),
                ],
                &["task"],
            );
            let name = format!("delegate_to_{}", sanitized(&delegate.name));
            let description = format!("Delegate a task to the {} agent. {}", delegate.name, delegate.description);
            tools.push(self.described(&name, description.trim(), parameters));
        }
        if agent.delegates.is_empty() {
            return;
        }
        let spawn = object(
            &[
                ("agent_type", json!({"enum": agent.delegates})),
                ("task", json!({"type": "string"})),
                ("background", json!({"type": "boolean", "default": false})),
            ],
            &["agent_type", "task"],
        );
        let description =
            format!("Create and run a new agent for a task. Available agents: {}", agent.delegates.join(", "));
        tools.push(self.described(SPAWN_AGENT, &description, spawn));
        let id = ("process_id", json!({"type": "string"}));
        let all = ("include_completed", json!({"type": "boolean", "default": false}));
        let tail = ("tail", json!({"type": "integer", "default": 100}));
        let of = [
            ("Lists background processes", object(&[all], &[])),
            ("The status of a background process", object(std::slice::from_ref(&id), &["process_id"])),
            ("The last lines of a background process", object(&[id.clone(), tail], &["process_id"])),
            ("Ends a background process", object(&[id], &["process_id"])),
        ];
        for (name, (description, parameters)) in PROCESS_TOOLS.into_iter().zip(of) {
            tools.push(self.described(name, description, parameters));
        }
    }

    fn variable_delegation(&self, agent: &AgentDef, tools: &mut Vec<ToolOffer>) {
        for delegate in agent.delegates.iter().filter_map(|name| self.def(name)) {
            let names = json!({"type": "array", "items": {"type": "string"}});
            let parameters = object(&[("task", json!({"type": "string"})), ("variables", names)], &["task"]);
            let name = format!("delegate_to_{}", sanitized(&delegate.name));
            tools.push(self.described(&name, &delegate.description, parameters));
        }
    }

    fn coworker_tools(&self, session: &Session, tools: &mut Vec<ToolOffer>) {
        if session.coworkers.is_empty() {
            return;
        }
        let called = |name: &String| match self.role_of(name).filter(|role| *role != name.as_str()) {
            Some(role) => format!("{name} ({role})"),
            None => name.clone(),
        };
        let coworkers = session.coworkers.iter().map(called).collect::<Vec<_>>().join(", ");
        let text = || json!({"type": "string"});
        for (name, what) in [(DELEGATE_WORK, "task"), (ASK_QUESTION, "question")] {
            let parameters =
                object(&[(what, text()), ("context", text()), ("coworker", text())], &[what, "context", "coworker"]);
            let description = format!(
                "{name}, one of: {coworkers}. They know nothing but what you tell them: pass everything they need."
            );
            tools.push(self.described(name, &description, parameters));
        }
    }

    fn described(&self, name: &str, description: &str, parameters: Value) -> ToolOffer {
        let mut text = description.to_owned();
        for guide in policies::guides(&self.rules.policies, name) {
            text = format!("{text}\n\n{guide}").trim().to_owned();
        }
        ToolOffer { name: name.to_owned(), description: text, parameters }
    }

    pub(super) fn switches(&self) -> bool {
        self.rules.handoff.mode == HandoffControl::Switch
    }
}

impl ToolTarget {
    /// Whether calls of it are charged to the tool budget: everything but plain functions and what the loop answers itself.
    pub(super) fn is_charged(&self) -> bool {
        match self {
            ToolTarget::Function(tool) => !tool.plain,
            ToolTarget::Delegate(_) | ToolTarget::Spawn | ToolTarget::Coworker => true,
            ToolTarget::Handoff(_) | ToolTarget::Process | ToolTarget::Forward | ToolTarget::Builtin(_) => false,
        }
    }
}

impl Builtin {
    fn description(self) -> &'static str {
        match self {
            Builtin::CreateUpdateTodos => "Creates or replaces the list of todos",
            Builtin::Sleep => "Waits for that many seconds",
            Builtin::ThinkTool => "Notes a thought; nothing happens",
            Builtin::GetCurrentDatetime => "The current time of this run",
        }
    }
    fn parameters(self) -> Value {
        match self {
            Builtin::CreateUpdateTodos => todos::schema(),
            Builtin::Sleep => object(&[("seconds", json!({"type": "number"}))], &["seconds"]),
            Builtin::ThinkTool => object(&[("thought", json!({"type": "string"}))], &["thought"]),
            Builtin::GetCurrentDatetime => object(&[], &[]),
        }
    }
}

fn object(properties: &[(&str, Value)], required: &[&str]) -> Value {
    let properties: Map<String, Value> =
        properties.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({"type": "object", "properties": properties, "required": required})
}
