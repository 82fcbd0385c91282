//! Keys that nothing in this kind of run would look at: refused with their path, never passed over.
//!
//! Invariant: what differs from the preset is looked at by the machine that carries the run, or the spec is refused. The
//! lists name what each family reads; a section that none of its keys could have an effect in is refused even when it
//! says what is so anyway.

use serde_json::{Map, Value};

use super::super::preset::{Family, Preset};
use super::super::sections::{DelegationProtocol, HandoffControl, HitlException, HitlMode, PlanningMode, Trigger};
use super::super::whole::SupervisorSpec;
use super::{CheckResult, agents, idle, roles, tools};
use crate::supervisor::fields::FieldError;

/// Read in every run.
const ALL: [&str; 25] = [
    "kind",
    "name",
    "preset",
    "objective",
    "agents",
    "via",
    "planner",
    "supervisor",
    "reviewer",
    "synthesizer",
    "advisor",
    "services",
    "script",
    "delegation.max_depth",
    "review.park_exit",
    "dispatch.selection",
    "hitl",
    "trust",
    "budget.tokens",
    "budget.llm_calls",
    "budget.cost",
    "budget.allow_unpriced",
    "budget.wall",
    "limits",
    "budget.on_exhausted",
];
const GRAPH: [&str; 34] = [
    "authority",
    "memory",
    "seed_plan",
    "planning.mode",
    "planning.strategy",
    "planning.replan",
    "planning.evaluator",
    "planning.on_empty",
    "planning.approval",
    "planning.policies",
    "planning.built_in",
    "dispatch",
    "dependencies",
    "review.scope",
    "review.required",
    "review.criteria",
    "review.max_attempts",
    "review.tries",
    "review.reject_status",
    "review.include_accepted",
    "review.accept_below_score",
    "review.human",
    "review.reflection",
    "loop.max_steps",
    "loop.max_iterations",
    "loop.no_progress",
    "loop.on_idle",
    "loop.checkpoints",
    "failure",
    "team",
    "mailbox",
    "synthesis",
    "budget.degrade",
    "progress",
];
const CHAT: [&str; 5] = ["speaker", "handoff.termination", "loop.max_rounds", "loop.count", "resume"];
/// Of every loop of agents that call tools.
const AGENTS: [&str; 14] = [
    "delegation.base_depth",
    "delegation.protocol",
    "handoff.control",
    "delegation.root",
    "delegation.parallel",
    "delegation.corrective_retry",
    "handoff.execute_tools",
    "policies",
    "steps",
    "resume",
    "loop.max_rounds",
    "loop.count",
    "loop.max_steps",
    "planning.mode",
];
const TOOL_CALLS: [&str; 2] = ["budget.tool_calls", "budget.tool_calls_total"];
/// Of supyagent: processes, guards, and what a child is told.
const PROCESSES: [&str; 8] = [
    "delegation.timeout",
    "delegation.on_timeout",
    "delegation.wait_max",
    "delegation.background_max",
    "delegation.summary",
    "delegation.breaker",
    "delegation.repetition",
    "delegation.sleep_max",
];
/// Of agents that wait for those they gave work to.
const WAITING: [&str; 3] = ["delegation.timeout", "delegation.on_timeout", "delegation.wait_max"];
const HANDING_OVER: [&str; 3] = ["handoff.prefix", "handoff.forward", "handoff.tools"];
/// Of a supervisor that gets control back.
const HANDED_BACK: [&str; 4] = ["handoff.messages", "handoff.back_messages", "handoff.history", "handoff.parallel"];
/// Of a manager with its crew.
const CREW: [&str; 8] = [
    "manager_llm",
    "manager_agent",
    "seed_plan",
    "review.scope",
    "review.guardrail_retries",
    "review.human",
    "review.tries",
    "delegation.scope",
];
/// Of CUGA, whose requests choose between a plan and a conversation.
const CUGA: [&str; 2] = ["planning", "policies"];

/// What a run of this spec reads.
fn read_keys(spec: &SupervisorSpec) -> Vec<&'static str> {
    let mut keys = ALL.to_vec();
    match spec.family() {
        Family::Graph => keys.extend(GRAPH.iter().chain(&["compensation"])),
        Family::Chat => keys.extend(CHAT),
        Family::Agents => keys.extend(AGENTS.iter().chain(&TOOL_CALLS).chain(of_others(spec))),
    }
    if spec.chooses_planning() {
        keys.extend(CUGA.iter().chain(&AGENTS).chain(&TOOL_CALLS).chain(&WAITING));
    }
    if spec.chooses_planning() && !spec.only_talks() {
        keys.extend(GRAPH.iter().chain(&["compensation"]));
    }
    if spec.may_hand_on() {
        keys.push("routing");
    }
    keys
}

/// What agents read of how they hand over, or give work to others.
fn of_others(spec: &SupervisorSpec) -> impl Iterator<Item = &'static &'static str> {
    let (keys, more): (&[_], &[_]) = match (spec.handoff_control(), spec.delegation_protocol()) {
        (Some(HandoffControl::Return), _) => (&HANDING_OVER, &HANDED_BACK),
        (Some(HandoffControl::Switch), _) => (&HANDING_OVER, &[]),
        (None, DelegationProtocol::Coworkers) => (&CREW, &WAITING),
        (None, DelegationProtocol::Variables) => (&WAITING, &[]),
        (None, DelegationProtocol::Processes) => (&PROCESSES, &[]),
    };
    keys.iter().chain(more)
}

/// A section in a file that no key of has an effect here.
pub(in super::super) fn sections(spec: &SupervisorSpec, file: &Map<String, Value>) -> CheckResult {
    let keys = read_keys(spec);
    let read = |section: &String| keys.iter().any(|key| key.split('.').next() == Some(section));
    let usual = serde_json::to_value(spec.preset.map(Preset::values).unwrap_or_default()).unwrap_or_default();
    // A spec that was written out whole says everything, also what is so anyway.
    let said = |(section, value): &(&String, &Value)| !value.is_null() && usual.get(section.as_str()) != Some(value);
    match file.iter().filter(said).find(|(section, _)| !read(section)) {
        Some((section, _)) => Err(FieldError::at(section, nothing_at(section, spec))),
        None => switched_off(file),
    }
}

/// What is said of people while the same file says that nobody is asked.
fn switched_off(file: &Map<String, Value>) -> CheckResult {
    let off = |section: &str| file.get(section).and_then(|of| of.get("enabled")) == Some(&Value::Bool(false));
    let says = |section: &str, key: &str| file.get(section).and_then(|of| of.get(key)).is_some_and(|v| !v.is_null());
    if let Some(key) = ASKING.into_iter().find(|key| off("hitl") && says("hitl", key)) {
        let why = "has no effect while `hitl.enabled` is false: leave one of the two out";
        return Err(FieldError::at(format!("hitl.{key}"), why));
    }
    if says("trust", "level") && (off("trust") || off("hitl")) {
        let of = if off("trust") { "trust" } else { "hitl" };
        let why = format!("has no effect while `{of}.enabled` is false: leave one of the two out");
        return Err(FieldError::at("trust.level", why));
    }
    Ok(())
}

/// Keys of `hitl` that say that people are asked, and how.
const ASKING: [&str; 7] = ["mode", "triggers", "plan_keywords", "plan_policy", "order", "gates", "exceptions"];

/// Whoever says how people are asked, or whom the run trusts, wants them to be asked.
pub(in super::super) fn switch_on(file: &mut Map<String, Value>) {
    let section = |name: &str| file.get(name).and_then(Value::as_object);
    let says = |name: &str, key: &str| section(name).and_then(|of| of.get(key)).is_some_and(|value| !value.is_null());
    let only_decisions = || {
        let triggers = section("hitl").and_then(|of| of.get("triggers")).and_then(Value::as_object);
        triggers.is_some_and(|triggers| triggers.keys().all(|key| key == "decision_timeout"))
    };
    let level = says("trust", "level");
    let asking = ASKING.into_iter().any(|key| says("hitl", key) && (key != "triggers" || !only_decisions()));
    let mut on = Vec::new();
    if (level || asking) && !says("hitl", "enabled") {
        on.push("hitl");
    }
    if level && !says("trust", "enabled") {
        on.push("trust");
    }
    for name in on {
        let of = file.entry(name).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(of) = of {
            of.insert("enabled".to_owned(), Value::Bool(true));
        }
    }
}

/// Values that differ from the preset's and that nothing reads; of roles only if `roles` are the spec's own to name.
pub(super) fn check(spec: &SupervisorSpec, roles: bool) -> CheckResult {
    without_plan(spec)?;
    people(spec)?;
    let keys = read_keys(spec);
    let preset = spec.preset.map(Preset::values).unwrap_or_default();
    let (Ok(base), Ok(given)) = (serde_json::to_value(&preset), serde_json::to_value(spec)) else { return Ok(()) };
    for (section, value) in given.as_object().into_iter().flatten() {
        let usual = base.get(section).unwrap_or(&Value::Null);
        if value == usual || keys.contains(&section.as_str()) {
            continue;
        }
        let nested = |key: &String| keys.iter().any(|known| is_at_or_above(known, &format!("{section}.{key}")));
        let (Value::Object(value), Value::Object(usual)) = (value, usual) else {
            return Err(FieldError::at(section, nothing_at(section, spec)));
        };
        let changed = || value.iter().filter(|(key, value)| usual.get(*key) != Some(value) && !nested(key));
        // A section is switched on by what it says: that is what the file has.
        if let Some((key, _)) = changed().find(|(key, _)| *key != "enabled").or_else(|| changed().next()) {
            return Err(FieldError::at(format!("{section}.{key}"), nothing(spec)));
        }
    }
    agents::check(spec)?;
    if roles || spec.is_without_plan() {
        roles::check(spec)?;
    }
    tools::check(spec)?;
    list_of_todos(spec)?;
    idle::check(spec, &preset, (&base, &given))
}

/// A loop of agents knows no planning but a list of todos.
fn list_of_todos(spec: &SupervisorSpec) -> CheckResult {
    let usual = spec.preset.map(Preset::values).unwrap_or_default().planning.mode;
    let known = [usual, PlanningMode::None, PlanningMode::Todos].contains(&spec.planning.mode);
    match spec.family() {
        Family::Agents if !known && !spec.chooses_planning() => Err(FieldError::at("planning.mode", nothing(spec))),
        _ => Ok(()),
    }
}

/// What a request has made of a spec.
pub(super) fn of_request(spec: &SupervisorSpec) -> CheckResult {
    people(spec)
}

/// `hitl.triggers` is read where one of its triggers is.
fn is_at_or_above(known: &str, path: &str) -> bool {
    known == path || known.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
}

/// What a spec says of people holds.
fn people(spec: &SupervisorSpec) -> CheckResult {
    let level = spec.trust.level.filter(|_| spec.trust.enabled);
    let usual = spec.preset.map(Preset::values).unwrap_or_default().hitl.mode;
    if let Some(level) = level
        && spec.hitl.mode != usual
        && spec.hitl.mode.level() != level
    {
        let mode = HitlMode::ALL.into_iter().find(|mode| mode.level() == level).map(HitlMode::as_str);
        let (mode, own) = (mode.unwrap_or_default(), spec.hitl.mode.as_str());
        let why = format!("this level means `{mode}`, and `hitl.mode` says `{own}`: leave one of the two out");
        return Err(FieldError::at("trust.level", why));
    }
    if !spec.hitl.enabled && spec.hitl.mode != usual {
        return Err(FieldError::at("hitl.mode", "has no effect while `hitl.enabled` is false"));
    }
    if spec.trust.level.is_some() && !(spec.trust.enabled && spec.hitl.enabled) {
        let why = "has no effect while `trust.enabled` or `hitl.enabled` is false";
        return Err(FieldError::at("trust.level", why));
    }
    Ok(())
}

/// Of lists of what people are asked about, the entries that only a plan has tasks for. A request that becomes a
/// conversation is not looked at: the entries are for those that become a plan.
fn without_plan(spec: &SupervisorSpec) -> CheckResult {
    if !spec.is_without_plan() {
        return Ok(());
    }
    let (exceptions, notices) = entries_without_plan(spec);
    if let Some(one) = spec.hitl.exceptions.iter().find(|one| !exceptions.contains(one)) {
        return Err(FieldError::at("hitl.exceptions", no_entry(one)));
    }
    match spec.hitl.notify_only.iter().find(|one| !notices.contains(one)) {
        Some(Trigger::ConsecutiveFailures) => {
            let why = format!("`consecutive_failures` has no effect here: {}", idle::ONE_WORK);
            Err(FieldError::at("hitl.notify_only", why))
        }
        Some(one) => Err(FieldError::at("hitl.notify_only", no_entry(one))),
        None => Ok(()),
    }
}

/// The entries of those lists that something has an effect by where there is no plan, or that the preset has anyway.
fn entries_without_plan(spec: &SupervisorSpec) -> (Vec<HitlException>, Vec<Trigger>) {
    let usual = spec.preset.map(Preset::values).unwrap_or_default().hitl;
    let (mut exceptions, mut notices) = (usual.exceptions, usual.notify_only);
    exceptions.extend([HitlException::RiskCritical, HitlException::ConsecutiveFailures, HitlException::Sensitive]);
    notices.extend(Some(Trigger::ConsecutiveFailures).filter(|_| !idle::is_one_work(spec)));
    (exceptions, notices)
}

/// Leaves out what is said of people where nobody is asked, or where nothing can be asked about it: what is told to a run
/// below is not always of use there.
pub(super) fn without_idle_people(spec: &mut SupervisorSpec) {
    if !spec.hitl.enabled {
        spec.hitl.mode = spec.preset.map(Preset::values).unwrap_or_default().hitl.mode;
    }
    if !(spec.hitl.enabled && spec.trust.enabled) {
        spec.trust.level = None;
    }
    if spec.is_without_plan() {
        let (exceptions, notices) = entries_without_plan(spec);
        spec.hitl.exceptions.retain(|one| exceptions.contains(one));
        spec.hitl.notify_only.retain(|one| notices.contains(one));
    }
}

fn no_entry(entry: &impl serde::Serialize) -> String {
    let word = serde_json::to_value(entry).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default();
    format!(
        "`{word}` has no effect here: without a plan people are asked before something is done, about what is sensitive \
         and about failures in a row"
    )
}

/// The same of a section, where there is more to say.
fn nothing_at(section: &str, spec: &SupervisorSpec) -> String {
    match section {
        "authority" => {
            let why = "it is of whoever decides over the tasks of a plan; who may give work to whom is said here by \
                       `agents[].delegates`, `handoff` and `speaker`, and people are asked by `hitl`";
            format!("has no effect here: {why}")
        }
        _ => nothing(spec),
    }
}

pub(super) fn nothing(spec: &SupervisorSpec) -> String {
    let kind = match spec.family() {
        Family::Graph => "a plan of tasks",
        Family::Chat => "a group chat",
        Family::Agents => "agents that call tools",
    };
    let of = spec.preset.map(|preset| format!(" of the preset {preset}")).unwrap_or_default();
    format!("has no effect here: a run{of} is one of {kind}, which reads no such key")
}
