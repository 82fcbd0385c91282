//! Which strategy a run follows: by its spec, for good.
//!
//! Invariant: the family is asked for here only, when a run begins and when its state is read; all that the run wants of a
//! strategy goes through the trait, and what people do to a plan through its `PlanControl`.

use std::ops::{Deref, DerefMut};

use bosun_engine::Failure;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::input::{INVALID_SPEC, RunContext};
use super::parts::RunGates;
use super::refusal::StartRefusal;
use super::rules;
use crate::supervisor::agents::{AgentLoop, Thread};
use crate::supervisor::chat::{ChatError, ChatMessage, ChatRules, GroupChat};
use crate::supervisor::core::strategy::Strategy;
use crate::supervisor::graph::{Graph, PlanSource};
use crate::supervisor::outbox::Outbox;
use crate::supervisor::spec::{Family, PlanPolicies, SupervisorSpec};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RunStrategy {
    Graph(Box<Graph>),
    Chat(Box<GroupChat>),
    Agents(Box<AgentLoop>),
}

impl Deref for RunStrategy {
    type Target = dyn Strategy<RunGates>;

    fn deref(&self) -> &Self::Target {
        match self {
            RunStrategy::Graph(graph) => &**graph,
            RunStrategy::Chat(chat) => &**chat,
            RunStrategy::Agents(agents) => &**agents,
        }
    }
}

impl DerefMut for RunStrategy {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            RunStrategy::Graph(graph) => &mut **graph,
            RunStrategy::Chat(chat) => &mut **chat,
            RunStrategy::Agents(agents) => &mut **agents,
        }
    }
}

/// Whether a run of this spec asks people before a task of its plan starts; every other asks before a call that begins work.
pub(super) fn asks_before_tasks_start(spec: &SupervisorSpec) -> bool {
    spec.family() == Family::Graph
}

/// Who does a task without a plan: whom the parent named; where no role is wanted, the first who may. Whom a role is for is
/// found as for every task: a recruit never does the work of an agent of another role.
fn simple_agent(spec: &SupervisorSpec, context: &RunContext, policies: &PlanPolicies) -> Option<String> {
    let named = context.more.agent.clone();
    let roles = spec.roles();
    let has_a_job = |name: &str| roles.iter().any(|(_, role)| role.agent.as_deref() == Some(name));
    let allowed = || spec.agents.iter().map(|agent| &agent.name).filter(|name| policies.allows(name));
    // Whoever plans, reviews or synthesizes does the task only where nobody else is left.
    let first = || allowed().find(|name| !has_a_job(name)).or_else(|| allowed().next()).cloned();
    named.or_else(|| first().filter(|_| context.role.is_none()))
}

/// Whose conversation the run belongs to (CUG-38).
fn thread(context: &RunContext) -> Thread {
    Thread {
        tenant: context.more.tenant.clone().unwrap_or_default(),
        user: context.more.user.clone().unwrap_or_default(),
        thread: context.session.clone().unwrap_or_default(),
        ..Thread::default()
    }
}

fn graph(spec: &SupervisorSpec, context: &RunContext) -> Result<Graph, StartRefusal> {
    let mut rules = rules::graph_rules(spec);
    if let Some(policies) = &context.more.policies {
        rules.policies = crate::supervisor::reading::read("policies", policies)?;
    }
    // Without a plan the role is that of the one task: whoever has another one does not do it.
    rules.given_role = context.role.clone().filter(|_| rules.planning != PlanSource::None);
    rules.follow_playbooks(&spec.objective);
    let plan = rules::first_plan(spec, &rules)?;
    let agent = simple_agent(spec, context, &rules.policies);
    let mut graph = Graph::new(rules, plan).given(context.more.plan.clone());
    graph.without_plan(context.role.clone(), agent);
    Ok(graph)
}

fn chat(spec: &SupervisorSpec, context: &RunContext, out: &mut Outbox) -> Result<GroupChat, ChatError> {
    let chat_rules = ChatRules::from_spec(&spec.speaker, &spec.handoff, &spec.run_loop);
    let agents = spec.agents.iter().map(Into::into).collect();
    let opening = vec![ChatMessage::new(spec.speaker.admin.clone(), spec.objective.clone())];
    // A chat that goes on from the messages of an earlier one (AGC-14). Nobody starts a run for a chat that ends before
    // anybody speaks, so the text that ended the earlier one does not end this one.
    let ended_by = chat_rules.termination.clone();
    let said = |text: &String| json!({ "name": spec.speaker.admin, "content": text });
    let resumed = spec.resume.as_ref().map(|resume| {
        let earlier = resume.messages.iter().map(|message| json!(message));
        earlier.chain(resume.message.as_ref().map(said)).collect::<Value>()
    });
    match context.more.messages.as_ref().or(resumed.as_ref()) {
        Some(history) => GroupChat::resume(chat_rules, agents, history, ended_by.as_deref(), out).map(|(chat, _)| chat),
        None => GroupChat::start(chat_rules, agents, opening, out),
    }
}

impl RunStrategy {
    pub(super) fn new(spec: &SupervisorSpec, context: &RunContext, out: &mut Outbox) -> Result<Self, Failure> {
        let strategy = match spec.family() {
            Family::Graph => graph(spec, context).map(|graph| RunStrategy::Graph(Box::new(graph))),
            Family::Chat => {
                chat(spec, context, out).map(|chat| RunStrategy::Chat(Box::new(chat))).map_err(StartRefusal::from)
            }
            Family::Agents => AgentLoop::from_spec(spec, context.depth, thread(context), out)
                .map(|agents| RunStrategy::Agents(Box::new(agents)))
                .map_err(StartRefusal::from),
        };
        strategy.map_err(|why| Failure::application(INVALID_SPEC, why.to_string()).non_retryable())
    }
}
