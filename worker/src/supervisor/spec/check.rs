//! What a spec must be as a whole, beyond the types of its values.
//!
//! Invariant: a spec that passes can be run: names are unique, bounds are not zero, every system's own conditions hold,
//! with that system's own texts. It changes nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use super::agent::{Agent, MemoryScope, Via, ViaModel};
use super::preset::{Family, Preset};
use super::script::Script;
use super::sections::{ChatTeam, HandoffControl, HandoffTools, ReviewScope};
use super::template;
use super::whole::SupervisorSpec;
use crate::agent::spec::{AgentSpec, Limits, Price, ToolGrant};
use crate::supervisor::fields::FieldError;

mod agents;
mod bounds;
mod crew;
pub(super) mod effect;
mod idle;
mod jobs_of_plan;
mod names;
mod own_tools;
mod planning;
mod roles;
mod shapes;
mod switched_off;
mod tools;
mod unplanned;

pub(super) use planning::seed_plan;
use planning::{by_request, planning};

type CheckResult = Result<(), FieldError>;

/// Why the spec cannot be run, or what is odd about it. A spec that a run makes for one of its tasks is told who does which
/// job above, needed or not: its `roles` are not looked at.
pub(super) fn check(spec: &SupervisorSpec, roles: bool) -> Result<Vec<String>, FieldError> {
    kind_of_run(spec)?;
    all_of(spec)?;
    shapes::check(spec)?;
    effect::check(spec, roles)?;
    Ok(warnings(spec))
}

impl SupervisorSpec {
    /// The same spec without what another value of it leaves without effect: there it has the values of its preset again.
    ///
    /// # Errors
    /// None but those of values that cannot be written as JSON.
    pub(in crate::supervisor) fn without_idle(self) -> Result<Self, serde_json::Error> {
        let base = self.preset.map(Preset::values).unwrap_or_default();
        let usual = serde_json::to_value(&base)?;
        let mut spec = self;
        effect::without_idle_people(&mut spec);
        let mut own = serde_json::to_value(&spec)?;
        // A value that is put back may leave another one without effect; each goes back once at the most.
        loop {
            let mut changed = false;
            for (path, _) in idle::of(&spec, &base) {
                let at = format!("/{}", path.replace('.', "/"));
                let usual = usual.pointer(&at).unwrap_or(&Value::Null);
                if let Some(value) = own.pointer_mut(&at).filter(|value| *value != usual) {
                    value.clone_from(usual);
                    changed = true;
                }
            }
            if !changed {
                return Ok(spec);
            }
            spec = serde_json::from_value(own.clone())?;
        }
    }
}

/// Which machine carries the run is the preset's to say, and who hands over waits for nobody. It is looked at first: what
/// else is wrong would be told of another kind of run.
fn kind_of_run(spec: &SupervisorSpec) -> CheckResult {
    let hands_over = spec.handoff_control().is_some();
    let usual = spec.preset.map(Preset::values);
    let another = |differs: &dyn Fn(&SupervisorSpec) -> bool| usual.as_ref().is_some_and(differs);
    let (at, why) = if another(&|usual| usual.handoff_control().is_some() != hands_over) {
        ("handoff.control", idle::KIND_OF_RUN)
    } else if another(&|usual| usual.family() != spec.family()) {
        ("dispatch.selection", idle::KIND_OF_RUN)
    } else if spec.delegation.protocol.is_some() && spec.family() == Family::Agents && hands_over {
        ("delegation.protocol", "who hands over waits for nobody")
    } else if spec.delegation.protocol.is_some() && spec.chooses_planning() {
        ("delegation.protocol", "what a request becomes is the preset's, and passes variables")
    } else {
        return Ok(());
    };
    Err(FieldError::at(at, format!("has no effect here: {why}")))
}

/// The same of what a request has made of a spec that was checked: keys that other requests need may stand in it.
pub(super) fn of_request(spec: &SupervisorSpec) -> CheckResult {
    all_of(spec)?;
    effect::of_request(spec)
}

fn all_of(spec: &SupervisorSpec) -> CheckResult {
    if spec.name.trim().is_empty() {
        return Err(FieldError::at("name", "the text is empty"));
    }
    planning(spec)?;
    by_request(spec)?;
    agents(spec)?;
    workers(spec)?;
    crew::check(spec)?;
    chat(spec)?;
    handoff(spec)?;
    park_exit(spec)?;
    names::named(spec)?;
    policies(spec)?;
    scripts(spec)?;
    own_tools::check(spec)?;
    bounds::check(spec)
}

/// LGS-04, CUG-36: names are there, are unique, and stay unique as names of tools.
fn agents(spec: &SupervisorSpec) -> CheckResult {
    let mut tools: BTreeMap<String, &str> = BTreeMap::new();
    for (i, agent) in spec.agents.iter().enumerate() {
        let at = format!("agents[{i}].name");
        if agent.name.trim().is_empty() {
            return Err(FieldError::at(at, "every agent needs a name; this one has none"));
        }
        if spec.agents[..i].iter().any(|other| other.name == agent.name) {
            let why = format!("agent names must be unique; `{}` is given twice", agent.name);
            return Err(FieldError::at(at, why));
        }
        let chat = spec.family() == Family::Chat;
        // AGC-07: whoever chooses writes a name with either.
        let tool = if chat { agent.name.replace('_', " ") } else { delegate_tool(&agent.name) };
        if let Some(other) = tools.get(&tool) {
            let why = match chat {
                true => format!(
                    "the agents `{other}` and `{}` are one name to whoever chooses a speaker: `_` and a blank count alike",
                    agent.name
                ),
                false => format!("the agents `{other}` and `{}` would both be the tool `{tool}`", agent.name),
            };
            return Err(FieldError::at(at, why));
        }
        tools.insert(tool, &agent.name);
        one_agent(agent, &format!("agents[{i}]"))?;
    }
    // Who has a `model` of its own needs no other name.
    let named = spec.agents.iter().find_map(|agent| agent.model.clone());
    let named = named.or_else(|| spec.roles().into_iter().find_map(|(_, role)| role.model.clone()));
    one_agent(&Agent { via: Some(spec.via.clone()), model: named, ..Agent::new("everybody") }, "")
        .map_err(|why| FieldError::at(why.path.trim_start_matches('.').to_owned(), why.problem))?;
    spec.manager_agent.as_ref().map_or(Ok(()), |manager| one_agent(manager, "manager_agent"))
}

/// The name of the tool that delegates to an agent: what is no letter, digit or `_` becomes `_` (CUG-36).
pub fn delegate_tool(agent: &str) -> String {
    let word = |c: char| if c.is_alphanumeric() || c == '_' { c } else { '_' };
    format!("delegate_to_{}", agent.chars().map(word).collect::<String>())
}

/// What a model may use and how far it may go are read here, so that a run does not find out.
fn via_model(model: &ViaModel, at: &str) -> CheckResult {
    let problem = |at: String, why: serde_path_to_error::Error<serde_json::Error>| {
        let path = why.path().to_string();
        let at = if path == "." { at } else { format!("{at}.{path}") };
        FieldError::at(at, why.into_inner().to_string())
    };
    let mut tools: Vec<ToolGrant> = Vec::new();
    for (i, tool) in model.tools.iter().enumerate() {
        let read = serde_path_to_error::deserialize(Value::Object(tool.clone()));
        tools.push(read.map_err(|why| problem(format!("{at}.via.model.tools[{i}]"), why))?);
    }
    let limits: Result<Limits, _> = serde_path_to_error::deserialize(Value::Object(model.limits.clone()));
    let limits = limits.map_err(|why| problem(format!("{at}.via.model.limits"), why))?;
    if !model.price.is_empty() {
        let price: Result<Price, _> = serde_path_to_error::deserialize(Value::Object(model.price.clone()));
        price.map_err(|why| problem(format!("{at}.via.model.price"), why))?;
    }
    // As the run would be started: what it would refuse is refused here.
    AgentSpec::bounded(tools, limits).check().map_err(|why| FieldError::at(format!("{at}.via.model"), why))
}

fn one_agent(agent: &Agent, at: &str) -> CheckResult {
    let Some(via) = &agent.via else { return Ok(()) };
    match via {
        Via::Process(process) if process.argv.first().is_none_or(|program| program.is_empty()) => {
            Err(FieldError::at(format!("{at}.via.process.argv"), "the list is empty; it begins with the program"))
        }
        Via::Http(http) if !http.url.starts_with("http://") && !http.url.starts_with("https://") => {
            let why = format!("expected an http or https address, found `{}`", http.url);
            Err(FieldError::at(format!("{at}.via.http.url"), why))
        }
        Via::Activity(name) if name.trim().is_empty() => {
            Err(FieldError::at(format!("{at}.via.activity"), "the text is empty"))
        }
        Via::Supervisor(inner) if inner.spec.is_none() => {
            Err(FieldError::at(format!("{at}.via.supervisor"), "needs the `file` or the `spec` of the supervisor"))
        }
        Via::Model(model) if model.name.is_none() && agent.model.is_none() => {
            let why = "needs the name of the model, here or as `model` of who is played";
            Err(FieldError::at(format!("{at}.via.model.name"), why))
        }
        Via::Model(model) => via_model(model, at),
        _ => Ok(()),
    }
}

/// FSS-32, and whoever else is nothing without agents, or without a grader.
fn workers(spec: &SupervisorSpec) -> CheckResult {
    if spec.needs_grader() && spec.review.scope == ReviewScope::None {
        let why = "nobody grades (`reviewer: false` means this too), and a draft is no success before it is accepted";
        return Err(FieldError::at("review.scope", why));
    }
    if !spec.agents.is_empty() {
        return Ok(());
    }
    if spec.needs_workers() {
        let why = format!("[supervisor] \"{}\" requires either worker or workers", spec.name);
        return Err(FieldError::at("agents", why));
    }
    if spec.needs_agents() {
        let what = spec.preset.map_or("a run of agents that call tools", Preset::name);
        return Err(FieldError::at("agents", format!("{what} needs at least one agent")));
    }
    Ok(())
}

/// AGC-05, AGC-09, AGC-15.
fn chat(spec: &SupervisorSpec) -> CheckResult {
    if spec.family() != Family::Chat {
        return Ok(());
    }
    let count = spec.agents.len();
    let least = if matches!(spec.speaker.team, ChatTeam::GroupChat | ChatTeam::Selector) { 2 } else { 1 };
    if count < least {
        let why = format!(
            "GroupChat is underpopulated with {count} agents. Please add more agents to the GroupChat or use direct \
             communication instead."
        );
        return Err(FieldError::at("agents", why));
    }
    // AGC-15.
    let manages = spec.supervisor.as_ref();
    let with_tools =
        manages.and_then(|role| spec.agent(role.agent.as_deref()?)).is_some_and(|agent| !agent.tools.is_empty());
    let by_model = manages.and_then(|role| role.via.as_ref());
    if with_tools || matches!(by_model, Some(Via::Model(model)) if !model.tools.is_empty()) {
        let why = "GroupChatManager is not allowed to make function/tool calls. Please remove the 'functions' or \
                   'tools' config in 'llm_config' you passed in.";
        return Err(FieldError::at("supervisor", why));
    }
    // AGC-21: somebody outside is meant.
    if let Some(name) = spec.handoff.termination.as_deref().filter(|name| spec.agent(name).is_some()) {
        let why =
            format!("`{name}` takes part in the chat: a hand-off to a participant gives it the word and ends nothing");
        return Err(FieldError::at("handoff.termination", why));
    }
    transitions(spec)
}

/// AGC-09: who may speak after whom.
fn transitions(spec: &SupervisorSpec) -> CheckResult {
    let speaker = &spec.speaker;
    if speaker.transitions.is_empty() {
        return match speaker.transitions_type {
            Some(_) => Err(FieldError::at("speaker.transitions_type", "has no effect without `speaker.transitions`")),
            None => Ok(()),
        };
    }
    if speaker.allow_repeat.is_some() {
        let why = "Don't provide both allowed_or_disallowed_speaker_transitions and allow_repeat_speaker in group \
                   chat. Please set one of them to None.";
        return Err(FieldError::at("speaker.transitions", why));
    }
    if speaker.transitions_type.is_none() {
        let why = "GroupChat allowed_or_disallowed_speaker_transitions is not None, but speaker_transitions_type is \
                   None. Please set speaker_transitions_type to either 'allowed' or 'disallowed'.";
        return Err(FieldError::at("speaker.transitions_type", why));
    }
    let known = |name: &String| spec.agents.iter().any(|agent| agent.name == *name);
    let named = speaker.transitions.iter().flat_map(|(from, to)| std::iter::once(from).chain(to));
    match named.into_iter().find(|name| !known(name)) {
        Some(name) => Err(FieldError::at("speaker.transitions", format!("`{name}` is not an agent of the chat"))),
        None => Ok(()),
    }
}

/// LGS-04: custom hand-off tools lead to all agents.
fn handoff(spec: &SupervisorSpec) -> CheckResult {
    let Some(tools) = spec.handoff.tools.as_ref().map(HandoffTools::agents) else { return Ok(()) };
    if let Some(name) = tools.iter().find(|name| spec.agent(name).is_none()) {
        return Err(FieldError::at("handoff.tools", format!("`{name}` is not an agent")));
    }
    // Who gets control back hands over to the others; where control moves for good, everybody may.
    let root = spec.delegation.root.as_ref().or(spec.agents.first().map(|agent| &agent.name));
    let supervisor = root.filter(|_| spec.handoff_control() != Some(HandoffControl::Switch));
    let missing: Vec<String> = spec
        .agents
        .iter()
        .filter(|agent| !tools.contains(&&agent.name) && !agent.is_callable() && Some(&agent.name) != supervisor)
        .map(|agent| format!("'{}'", agent.name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!(
        "When providing custom handoff tools, you must provide them for all subagents. Missing handoff tools for \
         agents '{{{}}}'.",
        missing.join(", ")
    );
    Err(FieldError::at("handoff.tools", why))
}

/// CUG-39: an id begins with its type, and a policy says what it is there for.
fn policies(spec: &SupervisorSpec) -> CheckResult {
    for (i, policy) in spec.policies.iter().enumerate() {
        let (at, kind) = (format!("policies[{i}]"), policy.kind.as_str());
        let prefix = format!("{kind}_");
        if let Some(id) = policy.id.as_deref().filter(|id| id.strip_prefix(&prefix).is_none_or(str::is_empty)) {
            return Err(FieldError::at(format!("{at}.id"), format!("`{id}` does not begin with `{prefix}`")));
        }
        if let Some(key) = policy.missing() {
            return Err(FieldError::at(at, format!("a policy of type `{kind}` needs the key `{key}`")));
        }
    }
    Ok(())
}

/// FSS-36: a run that may return while somebody looks at a task has no other rule for being idle.
fn park_exit(spec: &SupervisorSpec) -> CheckResult {
    match (spec.review.park_exit, spec.run_loop.on_idle) {
        (true, Some(_)) => {
            Err(FieldError::at("review.park_exit", "cannot be combined with `loop.on_idle: wait` or `complete`"))
        }
        _ => Ok(()),
    }
}

fn scripts(spec: &SupervisorSpec) -> CheckResult {
    script(&spec.script, "script")?;
    for (at, agent) in spec.all_agents() {
        script(&agent.script, &format!("{at}.script"))?;
    }
    for (at, role) in spec.roles() {
        script(&role.script, &format!("{at}.script"))?;
    }
    Ok(())
}

fn script(script: &Script, at: &str) -> CheckResult {
    for (i, rule) in script.0.iter().enumerate() {
        let at = format!("{at}[{i}]");
        if rule.say.is_some() == rule.fail.is_some() {
            return Err(FieldError::at(at, "a rule has either `say` or `fail`"));
        }
        let texts = rule.fail.as_ref().and_then(|fail| template::unknown_name_in(&fail.message));
        let unknown = rule.say.as_ref().and_then(template::unknown_name).or(texts);
        if let Some(name) = unknown {
            let known = template::NAMES.join(", ");
            return Err(FieldError::at(at, format!("`{{{{{name}}}}}` means nothing; known names: {known}")));
        }
    }
    Ok(())
}

/// What runs, but perhaps not as meant.
fn warnings(spec: &SupervisorSpec) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, agent) in spec.agents.iter().enumerate() {
        for name in agent.delegates.iter().filter(|name| spec.agent(name).is_none()) {
            // SUP-04: a delegate without an entry is no tool.
            warnings.push(format!("agents[{i}].delegates: `{name}` is not an agent; it becomes no tool"));
        }
        if agent.memory_scope == MemoryScope::Call && spec.family() == Family::Chat {
            warnings.push(format!("agents[{i}].memory_scope: who takes part in a chat sees all of it"));
        }
    }
    warnings.extend(tools::warnings(spec));
    warnings
}
