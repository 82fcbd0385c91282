//! Builds a loop from a resolved spec: hand-offs and delegations follow the preset's system, changed by the sections.
//!
//! Invariant: a pure function of the spec; what the spec leaves open is decided here once. Agents that are `callable` are
//! functions: a tool of that name is carried out by them, and nobody hands over to them.

use serde::de::DeserializeOwned;

use super::agent_loop::AgentLoop;
use super::boundary::{AgentInput, AgentsRefused};
use super::crew_from_spec::{crew, crew_start};
use super::memory::Thread;
use super::rules::{AgentDef, AgentRules, LoopCount, LoopLimit, ToolDef};
use super::steps::StepsDef;
use crate::supervisor::outbox::Outbox;
use crate::supervisor::spec::tool_names::Builtin;
use crate::supervisor::spec::{
    self, DelegationProtocol, HandoffControl, MemoryScope, OnDelegationTimeout, SupervisorSpec,
};
use crate::supervisor::standing::{PolicyRule, StandingPolicy};

impl AgentLoop {
    /// The loop that carries a run of the family `agents`. `depth` is how deep the run is below the first one, and
    /// `thread` the conversation that it belongs to.
    pub fn from_spec(
        spec: &SupervisorSpec,
        depth: u32,
        thread: Thread,
        out: &mut Outbox,
    ) -> Result<AgentLoop, AgentsRefused> {
        let mut rules = rules(spec);
        rules.delegation.base_depth = rules.delegation.base_depth.max(depth);
        let agents = agents(spec, &rules);
        let input = input(spec, thread)?;
        if !spec.steps.is_empty() {
            return AgentLoop::steps(rules, agents, steps(spec), &input, out);
        }
        if rules.delegation.kind == DelegationProtocol::Coworkers {
            let (crew, start) = (crew(spec)?, crew_start(spec)?);
            return AgentLoop::crew(rules, agents, crew, start, &input, out);
        }
        AgentLoop::start(rules, agents, input, out)
    }
}

/// What the loop begins with: the objective, or what an earlier run left (SWM-06).
fn input(spec: &SupervisorSpec, thread: Thread) -> Result<AgentInput, AgentsRefused> {
    let fresh = AgentInput {
        agent: spec.delegation.root.clone(),
        task: Some(spec.objective.clone()),
        thread: Thread { supervisor: spec.name.clone(), ..thread },
        ..AgentInput::default()
    };
    let Some(resume) = &spec.resume else { return Ok(fresh) };
    Ok(AgentInput {
        agent: resume.agent.clone().filter(|name| !name.is_empty()).or(fresh.agent),
        messages: resumed("resume.messages", &resume.messages)?,
        // Without a conversation to go on from, the objective is what the user says.
        task: resume.message.clone().or(fresh.task.filter(|_| resume.messages.is_empty())),
        context_variables: resumed("resume.context_variables", &resume.context_variables)?,
        charged_thread: resume.charged_thread,
        memories: resumed("resume.memories", &resume.memories)?,
        todos: resumed("resume.todos", &resume.todos)?,
        thread: fresh.thread,
    })
}

pub(super) fn resumed<T: DeserializeOwned>(at: &str, value: &impl serde::Serialize) -> Result<T, AgentsRefused> {
    let read = serde_json::to_value(value).map_err(|why| why.to_string());
    let read = read.and_then(|value| serde_path_to_error::deserialize(value).map_err(|why| why.to_string()));
    read.map_err(|why| AgentsRefused::Steps(vec![format!("{at}: {why}")]))
}

fn steps(spec: &SupervisorSpec) -> StepsDef {
    StepsDef { name: spec.name.clone(), steps: spec.steps.clone() }
}

/// The rules a spec gives a loop.
pub fn rules(spec: &SupervisorSpec) -> AgentRules {
    let base = match (spec.handoff_control(), spec.delegation_protocol()) {
        (Some(spec::HandoffControl::Return), _) => AgentRules::langgraph(),
        (Some(spec::HandoffControl::Switch), _) => AgentRules::swarm(),
        (None, spec::DelegationProtocol::Coworkers) => AgentRules::crewai(),
        (None, spec::DelegationProtocol::Variables) => AgentRules::cuga(),
        (None, spec::DelegationProtocol::Processes) => AgentRules::default(),
    };
    let mut rules = AgentRules { limit: limit(spec, &base), ..base };
    delegation(&spec.delegation, &mut rules);
    handoff(&spec.handoff, &mut rules);
    let calls = |max: Option<u64>| max.map(|max| u32::try_from(max).unwrap_or(u32::MAX));
    rules.budget.per_task = calls(spec.budget.tool_calls);
    rules.budget.per_thread = calls(spec.budget.tool_calls_total);
    rules.corrective_retry = spec.delegation.corrective_retry;
    rules.sleep_max = spec.delegation.sleep_max;
    rules.policies = policies(spec);
    rules.policies.extend(of_planning(&spec.planning, &spec.agents));
    // CUG-01: without a plan there is no list to keep.
    match spec.planning.mode {
        spec::PlanningMode::Todos => rules.builtins.insert(Builtin::CreateUpdateTodos),
        _ => rules.builtins.remove(&Builtin::CreateUpdateTodos),
    };
    rules
}

fn delegation(section: &spec::Delegation, rules: &mut AgentRules) {
    let of = &mut rules.delegation;
    (of.max_depth, of.base_depth) = (section.max_depth, section.base_depth);
    (of.parallel, of.background_max) = (section.parallel, section.background_max);
    (of.timeout, of.hard_timeout) = (section.timeout, section.wait_max);
    of.on_timeout = match section.on_timeout {
        // Where nobody can look at a process, one that takes too long is a failure.
        OnDelegationTimeout::Background if of.kind != DelegationProtocol::Processes => OnDelegationTimeout::Fail,
        on_timeout => on_timeout,
    };
    of.scope = section.scope;
    of.summary = section.summary.clone();
    // The guards are supyagent's; 0 is none.
    if rules.breaker_failures.is_some() {
        rules.breaker_failures = Some(section.breaker).filter(|max| *max > 0);
        rules.repetitions = Some(section.repetition).filter(|max| *max > 0);
    }
}

fn handoff(section: &spec::Handoff, rules: &mut AgentRules) {
    let of = &mut rules.handoff;
    of.prefix.clone_from(&section.prefix);
    (of.messages, of.back_messages) = (section.messages, section.back_messages);
    of.forward = section.forward;
    of.history = section.history;
    rules.parallel_tool_calls |= section.parallel;
    rules.execute_tools = section.execute_tools;
}

/// `loop.max_rounds` in its unit, if there is one; the steps of the system otherwise.
fn limit(spec: &SupervisorSpec, base: &AgentRules) -> LoopLimit {
    match spec.run_loop.max_rounds {
        Some(max) => {
            let count = match spec.run_loop.count {
                spec::RoundCount::Messages | spec::RoundCount::MessagesWithOpening => LoopCount::Messages,
                // Swarm counts messages by itself (SWM-05), so its turns are said.
                spec::RoundCount::Turns if base.limit.count == LoopCount::Messages => LoopCount::Turns,
                spec::RoundCount::Turns => base.limit.count,
            };
            LoopLimit { max, count, then: base.limit.then, of_rounds: true }
        }
        None => LoopLimit { max: spec.run_loop.max_steps, ..base.limit.clone() },
    }
}

/// The agents of a spec, with whom each may call.
pub fn agents(spec: &SupervisorSpec, rules: &AgentRules) -> Vec<AgentDef> {
    let root = spec.delegation.root.as_deref().or(spec.agents.first().map(|agent| agent.name.as_str()));
    let nobody_says = spec.agents.iter().all(|agent| agent.delegates.is_empty());
    let own: Vec<&spec::Agent> = spec.agents.iter().filter(|agent| !agent.is_callable()).collect();
    let define = |agent: &&spec::Agent| {
        let is_root = Some(agent.name.as_str()) == root;
        let others = || own.iter().map(|other| other.name.clone()).filter(|name| *name != agent.name).collect();
        let hands_over = spec.handoff_control().is_some();
        let mut def = AgentDef {
            name: agent.name.clone(),
            role: agent.role.clone(),
            description: agent.description.clone(),
            instructions: agent.system_prompt.clone(),
            model: agent.model.as_ref().map(|model| model.name.clone()),
            tools: agent.tools.iter().map(|tool| tool_of(spec, tool)).collect(),
            timeout: agent.timeout,
            memory_scope: Some(memory_scope(agent, rules)),
            limits: agent.limits,
            ..AgentDef::default()
        };
        let listed = agent.delegates.clone();
        if hands_over {
            // Agents that hand over for good may do so from anywhere; one that gets control back is the supervisor.
            let everybody = nobody_says && (is_root || rules.handoff.mode == HandoffControl::Switch);
            def.handoffs = if everybody { others() } else { known(spec, listed) };
            custom_handoffs(spec, &mut def);
        } else if rules.delegation.kind == DelegationProtocol::Variables && nobody_says && is_root {
            def.delegates = others();
        } else {
            def.delegates = listed;
        }
        // CUG-03: nobody is given work whom the policies of a plan keep from it.
        let allowed = &spec.planning.policies.allowed_agents;
        def.delegates.retain(|name| allowed.is_empty() || allowed.contains(name));
        def
    };
    own.iter().map(define).collect()
}

/// Hand-offs of the spec's own: their order, or their names (LGS-04).
fn custom_handoffs(spec: &SupervisorSpec, def: &mut AgentDef) {
    let Some(tools) = spec.handoff.tools.as_ref().filter(|_| !def.handoffs.is_empty()) else { return };
    let own = def.name.clone();
    def.handoffs = tools.agents().into_iter().filter(|name| **name != own).cloned().collect();
    if let spec::HandoffTools::Named(tools) = tools {
        let tool = |(name, to): (&String, &String)| ToolDef {
            description: format!("Ask agent '{to}' for help"),
            handoff_to: Some(to.clone()),
            ..ToolDef::new(name)
        };
        def.tools.extend(tools.iter().filter(|(_, to)| **to != own).map(tool));
    }
}

/// A hand-off leads to an agent; a delegate without a config is told so when it is asked.
fn known(spec: &SupervisorSpec, names: Vec<String>) -> Vec<String> {
    names.into_iter().filter(|name| spec.agent(name).is_some_and(|agent| !agent.is_callable())).collect()
}

fn tool_of(spec: &SupervisorSpec, tool: &spec::Tool) -> ToolDef {
    ToolDef {
        name: tool.name.clone(),
        description: tool.description.clone(),
        parameters: tool.parameters.clone().unwrap_or_default(),
        plain: tool.plain,
        // An agent of the tool's name carries it out; the agent that has the tool does otherwise.
        owner: spec.agent(&tool.name).map(|agent| agent.name.clone()),
        ..ToolDef::default()
    }
}

/// Only where variables are passed does a child remember: elsewhere each delegation is a new instance.
fn memory_scope(agent: &spec::Agent, rules: &AgentRules) -> MemoryScope {
    match rules.delegation.kind {
        DelegationProtocol::Variables => agent.memory_scope,
        _ => MemoryScope::Call,
    }
}

/// The policies of a spec.
pub fn policies(spec: &SupervisorSpec) -> Vec<StandingPolicy> {
    spec.policies.iter().map(policy).collect()
}

/// What `planning` says of a plan holds where the request becomes a conversation: people are asked before work is given
/// to whom they want to be asked about, or to anybody while a plan would wait for them (CUG-30), and agents are given
/// work in their order (CUG-04).
fn of_planning(planning: &spec::Planning, agents: &[spec::Agent]) -> Vec<StandingPolicy> {
    let of = &planning.policies;
    let tools = |names: Vec<&String>| names.into_iter().map(|name| spec::delegate_tool(name)).collect();
    let asked = |name: &str, tools: Vec<String>, message: &str| {
        let rule = PolicyRule::ToolApproval { tools, message: message.to_owned() };
        StandingPolicy::new(name, rule)
    };
    let mut policies = Vec::new();
    if planning.approval.required {
        let all = tools(agents.iter().map(|agent| &agent.name).collect());
        policies.push(asked("plan_approval", all, "a person approves what is delegated, as they would approve a plan"));
    }
    if !of.approval_agents.is_empty() {
        let some = tools(of.approval_agents.iter().collect());
        policies.push(asked("approval_agents", some, "work for this agent needs a person's approval"));
    }
    if !of.sequence_order.is_empty() {
        let (triggers, guidance) = (Vec::new(), String::new());
        let rule = PolicyRule::Playbook { triggers, guidance, delegations: of.sequence_order.clone() };
        policies.push(StandingPolicy::new("sequence_order", rule));
    }
    policies
}

/// A policy of the spec in the form of the loop: of each type the keys that it takes. The spec has checked them.
fn policy(policy: &spec::Policy) -> StandingPolicy {
    let text = |given: &Option<String>| given.clone().unwrap_or_default();
    let rule = match policy.kind {
        spec::PolicyKind::IntentGuard => {
            PolicyRule::IntentGuard { triggers: policy.triggers.clone(), response: text(&policy.response) }
        }
        spec::PolicyKind::Playbook => PolicyRule::Playbook {
            triggers: policy.triggers.clone(),
            guidance: text(&policy.guidance),
            delegations: policy.delegations.clone(),
        },
        spec::PolicyKind::ToolGuide => {
            PolicyRule::ToolGuide { tools: policy.tools.clone(), guide: text(&policy.guide) }
        }
        spec::PolicyKind::ToolApproval => {
            PolicyRule::ToolApproval { tools: policy.tools.clone(), message: text(&policy.message) }
        }
        spec::PolicyKind::OutputFormatter => {
            PolicyRule::OutputFormatter { template: policy.template.clone(), instructions: policy.instructions.clone() }
        }
    };
    let made = StandingPolicy::new(&policy.name, rule);
    StandingPolicy { id: policy.id.clone().unwrap_or_else(|| made.id.clone()), ..made }
}

#[cfg(test)]
mod policy_tests {
    use super::*;

    /// CUG-39: policies of a spec reach the loop, each with an id that begins with its type, its own or a made one, and
    /// with the keys of its type.
    #[test]
    fn every_policy_of_a_spec_reaches_the_loop() {
        let entries = serde_json::json!([
            { "type": "intent_guard", "name": "no_deletes", "triggers": ["delete"], "response": "no" },
            { "type": "playbook", "name": "hire", "delegations": ["hr"] },
            { "type": "tool_guide", "name": "sql", "tools": ["query"], "guide": "slowly" },
            { "type": "tool_approval", "name": "pay", "tools": ["pay"] },
            { "type": "output_formatter", "name": "short", "template": "{{answer}}", "triggers": ["of no use here"] },
            { "type": "playbook", "id": "playbook_7", "name": "fire", "triggers": ["fire"], "guidance": "ask hr" },
        ]);
        let entries: Vec<spec::Policy> = serde_json::from_value(entries).unwrap();
        let found: Vec<StandingPolicy> = entries.iter().map(policy).collect();
        let expected = serde_json::json!([
            { "id": "intent_guard_no_deletes", "name": "no_deletes", "type": "intent_guard", "triggers": ["delete"],
              "response": "no" },
            { "id": "playbook_hire", "name": "hire", "type": "playbook", "triggers": [], "guidance": "",
              "delegations": ["hr"] },
            { "id": "tool_guide_sql", "name": "sql", "type": "tool_guide", "tools": ["query"], "guide": "slowly" },
            { "id": "tool_approval_pay", "name": "pay", "type": "tool_approval", "tools": ["pay"], "message": "" },
            { "id": "output_formatter_short", "name": "short", "type": "output_formatter", "template": "{{answer}}",
              "instructions": null },
            { "id": "playbook_7", "name": "fire", "type": "playbook", "triggers": ["fire"], "guidance": "ask hr",
              "delegations": [] },
        ]);
        assert_eq!(serde_json::to_value(&found).unwrap(), expected);
        assert!(found.iter().all(StandingPolicy::is_well_named));
    }
}
