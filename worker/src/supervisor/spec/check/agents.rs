//! Keys of agents, and of what a run goes on from, that this kind of run would not look at.
//!
//! Invariant: whoever is listed as a delegate can be asked, and what stands in an entry is read by the machine that carries
//! the run, or the spec is refused with its place. A key that only costs nothing is still refused.

use serde_json::{Map, Value};

use super::CheckResult;
use crate::supervisor::fields::FieldError;
use crate::supervisor::spec::agent::{Agent, Limits, MemoryScope, Via};
use crate::supervisor::spec::preset::Family;
use crate::supervisor::spec::sections::{DelegationProtocol, PlanningMode, Resume};
use crate::supervisor::spec::whole::SupervisorSpec;

pub(super) fn check(spec: &SupervisorSpec) -> CheckResult {
    spec.all_agents().into_iter().try_for_each(|(at, agent)| one(spec, &at, agent))?;
    functions(spec)?;
    lists_of_work(spec)?;
    resume(spec)
}

/// A list of work is carried out, or refused: never dropped for another kind of run (SUP-29, CRW-03, CUG-08, CUG-18).
fn lists_of_work(spec: &SupervisorSpec) -> CheckResult {
    let (steps, chooses) = (!spec.steps.is_empty(), spec.chooses_planning());
    let talks = matches!(spec.planning.mode, PlanningMode::None | PlanningMode::Todos);
    let planned = spec.planning.force || spec.planning.is_upfront();
    let idle = [
        (
            "steps",
            steps && spec.is_crew(),
            "the manager of a crew does the tasks of `seed_plan`, one after the other: list the work there",
        ),
        (
            "steps",
            steps && chooses && (!talks || planned),
            "a request may become a plan here, and a plan has tasks: say them in `seed_plan`; or leave `planning.mode` at \
             `todos` or `none`, without `planning.force`",
        ),
        (
            "seed_plan",
            spec.seed_plan.is_some() && chooses && talks && !planned,
            "by `planning.mode` every request becomes a conversation: say `planning: { mode: agents }`, and the plan is \
             carried out",
        ),
        (
            "planning.approval.required",
            steps && spec.planning.approval.required,
            "`steps` are no plan that people are shown: say `hitl: { mode: human_in_command }`, and they are asked before \
             each step",
        ),
    ];
    match idle.into_iter().find(|(_, set, _)| *set) {
        Some((key, _, why)) => Err(unread(key, why)),
        None => Ok(()),
    }
}

fn unread(at: impl Into<String>, why: &str) -> FieldError {
    FieldError::at(at, format!("has no effect here: {why}"))
}

/// Of an agent that is a run of its own.
const OF_RUN: &str = "this agent is a run of its own: say it there, of the agents in `via.supervisor.spec`";

fn one(spec: &SupervisorSpec, at: &str, agent: &Agent) -> CheckResult {
    let graph = spec.family() == Family::Graph && !spec.chooses_planning();
    let chat = spec.family() == Family::Chat;
    let talks = spec.family() == Family::Agents && !spec.chooses_planning();
    let variables = spec.handoff_control().is_none() && spec.delegation_protocol() == DelegationProtocol::Variables;
    let forgets = "whoever is given work here begins anew each time";
    let no_function = "a participant of a chat speaks, and is no function";
    let run = matches!(agent.via, Some(Via::Supervisor(_)));
    let keys = [
        ("limits", run && agent.limits != Limits::default(), OF_RUN),
        ("delegates", run && !agent.delegates.is_empty() && talks, OF_RUN),
        ("tools", run && !agent.tools.is_empty() && talks, OF_RUN),
        ("model", run && agent.model.is_some(), OF_RUN),
        ("delegates", (graph || chat) && !agent.delegates.is_empty(), ""),
        ("memory_scope", graph && agent.memory_scope != MemoryScope::default(), ""),
        ("limits", (graph || chat) && agent.limits != Limits::default(), ""),
        ("tries", agent.tries.is_some() && spec.family() != Family::Graph && !spec.chooses_planning(), ""),
        ("callable", chat && agent.callable, no_function),
        ("required_parameters", chat && !agent.required_parameters.is_empty(), no_function),
        (
            "delegates",
            spec.is_crew() && !agent.delegates.is_empty(),
            "in a crew the manager gives the work away, and coworkers do it",
        ),
        ("memory_scope", talks && !variables && agent.memory_scope != MemoryScope::default(), forgets),
    ];
    match keys.into_iter().find(|(_, set, _)| *set) {
        Some((key, _, "")) => Err(FieldError::at(format!("{at}.{key}"), super::effect::nothing(spec))),
        Some((key, _, why)) => Err(unread(format!("{at}.{key}"), why)),
        None => Ok(()),
    }
}

/// A function is called as a tool: nobody gives it work, or hands over to it.
fn functions(spec: &SupervisorSpec) -> CheckResult {
    if spec.family() != Family::Agents {
        return Ok(());
    }
    let function = |name: &str| spec.agent(name).is_some_and(Agent::is_callable);
    for (at, agent) in spec.all_agents() {
        if let Some(name) = agent.delegates.iter().find(|name| function(name)) {
            let why = format!("`{name}` is a function (`callable`): give it as one of `tools`");
            return Err(FieldError::at(format!("{at}.delegates"), why));
        }
    }
    match spec.delegation.root.as_deref().filter(|name| function(name)) {
        Some(name) => {
            Err(FieldError::at("delegation.root", format!("`{name}` is a function (`callable`), and leads nothing")))
        }
        None => Ok(()),
    }
}

/// What another run left is of the kind that this run goes on from.
fn resume(spec: &SupervisorSpec) -> CheckResult {
    let Some(resume) = &spec.resume else { return Ok(()) };
    let Resume { messages, message, agent, context_variables, charged_thread, memories, todos, .. } = resume;
    let Resume { outputs, lineage, from, after, .. } = resume;
    let (chat, crew, steps) = (spec.family() == Family::Chat, spec.is_crew(), !spec.steps.is_empty());
    let conversation = "a crew goes on from the outputs of its tasks";
    let of_crews = "it is a crew's: a conversation goes on from its `messages`";
    let of_agents = "a chat goes on from its messages alone";
    let keys = [
        ("messages", !messages.is_empty(), crew, conversation),
        ("message", message.is_some(), crew, conversation),
        ("agent", agent.as_ref().is_some_and(|name| !name.is_empty()), crew, conversation),
        ("agent", agent.as_ref().is_some_and(|name| !name.is_empty()), chat, of_agents),
        ("context_variables", !context_variables.is_empty(), crew, conversation),
        ("context_variables", !context_variables.is_empty(), chat, of_agents),
        ("charged_thread", *charged_thread > 0, crew, conversation),
        ("charged_thread", *charged_thread > 0, chat, of_agents),
        ("memories", !memories.is_empty(), crew, conversation),
        ("memories", !memories.is_empty(), chat, of_agents),
        ("todos", !todos.is_empty(), crew, conversation),
        ("todos", !todos.is_empty(), chat, of_agents),
        ("outputs", !outputs.is_empty(), !crew, of_crews),
        ("lineage", !lineage.is_empty(), !crew, of_crews),
        ("from", from.is_some(), !crew, of_crews),
        ("after", after.is_some(), !crew, of_crews),
    ];
    if steps {
        return Err(unread("resume", "`steps` begin with their first"));
    }
    if from.is_some() && after.is_some() {
        return Err(unread("resume.after", "`resume.from` says where the crew begins: leave one of the two out"));
    }
    let task = |output: &Map<String, Value>| output.get("task").cloned();
    let twice =
        outputs.iter().enumerate().find(|(i, output)| outputs[..*i].iter().any(|other| task(other) == task(output)));
    if let Some((i, output)) = twice.filter(|_| crew) {
        let why = format!("the output of task {} is given twice", task(output).unwrap_or_default());
        return Err(FieldError::at(format!("resume.outputs[{i}].task"), why));
    }
    match keys.into_iter().find(|(_, given, idle, _)| *given && *idle) {
        Some((key, .., why)) => Err(unread(format!("resume.{key}"), why)),
        None => Ok(()),
    }
}
