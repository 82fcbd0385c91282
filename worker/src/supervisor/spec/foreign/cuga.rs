//! CUGA's supervisor files (CUG-16, CUG-33, CUG-40).
//!
//! Invariant: modes and planning modes are CUGA's, the old mode `delegation` is read as `plan_upfront`; an agent without
//! a name or an address is left out with a warning; a key that means nothing here is named in a warning.

use serde_json::{Map, Value, json};

use crate::supervisor::fields::{FieldError, Fields, kind};

type Mapping = Map<String, Value>;

/// What its state holds before it plans (CUG-19), and ours.
const STATE: [(&str, &str); 4] = [
    ("supervisor_allowed_agents", "allowed_agents"),
    ("supervisor_sequence_order", "sequence_order"),
    ("supervisor_approval_agents", "approval_agents"),
    ("supervisor_dispatched_agents", "dispatched_agents"),
];
const SUPERVISOR_KEYS: [&str; 14] = [
    "name",
    "planning_mode",
    "mode",
    "strategy",
    "plan_approval",
    "special_instructions",
    "model",
    "force_planning",
    "description",
    "available_agents",
    "supervisor_allowed_agents",
    "supervisor_sequence_order",
    "supervisor_approval_agents",
    "supervisor_dispatched_agents",
];
const AGENT_KEYS: [&str; 12] = [
    "name",
    "description",
    "special_instructions",
    "model",
    "tools",
    "apps",
    "mcp_servers",
    "memory_scope",
    "a2a_protocol",
    "acp_protocol",
    "import_from",
    "timeout",
];
/// An agent elsewhere is waited for so long.
const EXTERNAL_TIMEOUT: u64 = 30;

/// A file without our own beginnings whose `supervisor` is a mapping, or that lists stored sub-agents.
pub(in super::super) fn is_one(file: &Mapping) -> bool {
    !file.contains_key("kind")
        && !file.contains_key("preset")
        && !super::supyagent::is_one(file)
        && (file.get("supervisor").is_some_and(Value::is_object) || file.contains_key("a2a"))
}

/// The file in our words, and the warnings.
pub(in super::super) fn spec(file: &Mapping) -> Result<(Mapping, Vec<String>), FieldError> {
    let mut warnings = Vec::new();
    let empty = json!({});
    let supervisor = file.get("supervisor").unwrap_or(&empty);
    let mut spec = Mapping::new();
    stanza(supervisor, &mut spec, &mut warnings)?;
    let mut agents = Vec::new();
    for (list, path) in [(file.get("agents"), "agents"), (supervisor.get("subAgents"), "supervisor.subAgents")] {
        for (i, entry) in entries(list, path)?.iter().enumerate() {
            let of_model = spec["supervisor"]["model"].is_object();
            agents.extend(agent(entry, &format!("{path}[{i}]"), of_model, &mut warnings)?);
        }
    }
    // CUG-19: who is not available is no agent of this run.
    if let Some(Value::Array(available)) = supervisor.get("available_agents") {
        agents.retain(|agent: &Value| {
            let stays = available.contains(&agent["name"]);
            if !stays {
                warnings.push(format!("available_agents: {} is not available and left out", agent["name"]));
            }
            stays
        });
    }
    // Who has no model of its own has the supervisor's.
    let of_supervisor = spec["supervisor"]["model"].clone();
    for agent in agents.iter_mut().filter_map(Value::as_object_mut) {
        let own = agent.get("model").is_some_and(Value::is_object) || agent.contains_key("via");
        if !own && of_supervisor.is_object() {
            agent.insert("model".to_owned(), of_supervisor.clone());
        }
    }
    let played = |agent: &Value| agent["model"].is_object() && agent.get("via").is_none();
    if agents.iter().any(played) || spec["supervisor"]["model"].is_object() {
        spec.insert("via".to_owned(), json!({ "model": {} }));
    }
    spec.insert("agents".to_owned(), agents.into());
    for key in file.keys().filter(|key| !["supervisor", "agents", "a2a"].contains(&key.as_str())) {
        warnings.push(format!("{key}: means nothing here and is passed over"));
    }
    Ok((spec, warnings))
}

fn entries<'a>(list: Option<&'a Value>, path: &str) -> Result<&'a [Value], FieldError> {
    match list {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(other) => Err(FieldError::at(path, format!("expected a list, found {}", kind(other)))),
    }
}

/// `supervisor:`.
// long: one arm a key.
fn stanza(value: &Value, spec: &mut Mapping, warnings: &mut Vec<String>) -> Result<(), FieldError> {
    let Value::Object(map) = value else {
        return Err(FieldError::at("supervisor", format!("expected a mapping, found {}", kind(value))));
    };
    let known: Mapping = map.clone().into_iter().filter(|(key, _)| SUPERVISOR_KEYS.contains(&key.as_str())).collect();
    passed_over(map, &[&SUPERVISOR_KEYS[..], &["subAgents"]].concat(), "supervisor", warnings);
    let known = Value::Object(known);
    let fields = Fields::read(&known, "supervisor", &SUPERVISOR_KEYS)?;
    let mode = one_of(&fields, "planning_mode", &["none", "todos", "agents"])?;
    let structured = mode.as_deref() == Some("agents") || fields.boolean("force_planning")? == Some(true);
    spec.insert("preset".to_owned(), if structured { "cuga-structured" } else { "cuga-conversational" }.into());
    if let Some(name) = fields.text("name")? {
        spec.insert("name".to_owned(), name.into());
    }
    let mut planning = Mapping::new();
    if let Some(mode) = mode {
        planning.insert("mode".to_owned(), mode.into());
    }
    if let Some(force) = fields.boolean("force_planning")? {
        planning.insert("force".to_owned(), force.into());
    }
    let mut upfront = false;
    if let Some(mode) = one_of(&fields, "mode", &["conversational", "plan_upfront", "delegation"])? {
        upfront = mode != "conversational";
        let mode = if upfront { "plan_upfront" } else { "conversational" };
        planning.insert("supervisor_mode".to_owned(), mode.into());
    }
    match one_of(&fields, "strategy", &["sequential", "parallel", "adaptive"])?.as_deref() {
        Some("adaptive") => {
            warnings.push("supervisor.strategy: `adaptive` is decided by dependencies here".to_owned());
        }
        Some(strategy) => {
            planning.insert("strategy".to_owned(), strategy.into());
        }
        None => {}
    }
    if let Some(required) = fields.boolean("plan_approval")? {
        planning.insert("approval".to_owned(), json!({ "required": required }));
    }
    let mut policies = Mapping::new();
    for (theirs, ours) in STATE {
        if fields.has(theirs) {
            policies.insert(ours.to_owned(), fields.texts(theirs)?.into());
        }
    }
    if !policies.is_empty() {
        planning.insert("policies".to_owned(), policies.into());
    }
    spec.insert("planning".to_owned(), planning.into());
    let prompt = fields.text("special_instructions")?.unwrap_or_default();
    let model = model(fields.value("model"), "supervisor.model")?;
    // CUG-16: whoever plans, decides and sums up is the supervisor.
    let plans = structured || upfront;
    let jobs: &[&str] = if plans { &["supervisor", "planner", "synthesizer"] } else { &["supervisor"] };
    for job in jobs {
        spec.insert((*job).to_owned(), json!({ "system_prompt": prompt, "model": model }));
    }
    Ok(())
}

fn one_of(fields: &Fields<'_>, key: &str, known: &[&str]) -> Result<Option<String>, FieldError> {
    match fields.text(key)? {
        Some(text) if !known.contains(&text.as_str()) => {
            Err(fields.error(key, format!("unknown value `{text}`; known values: {}", known.join(", "))))
        }
        other => Ok(other),
    }
}

fn passed_over(map: &Mapping, known: &[&str], path: &str, warnings: &mut Vec<String>) {
    for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
        warnings.push(format!("{path}.{key}: means nothing here and is passed over"));
    }
}

/// One agent in our words; nothing for one that cannot be reached. `of_model`: a model plays those that say nothing else.
fn agent(entry: &Value, path: &str, of_model: bool, warnings: &mut Vec<String>) -> Result<Option<Value>, FieldError> {
    let Value::Object(map) = entry else {
        return Err(FieldError::at(path, format!("expected a mapping, found {}", kind(entry))));
    };
    if map.contains_key("kind") {
        return Ok(stored(map, path, warnings));
    }
    let Some(name) = text(map, "name") else {
        warnings.push(format!("{path}: an agent without a name is left out"));
        return Ok(None);
    };
    passed_over(map, &AGENT_KEYS, path, warnings);
    let mut agent = Mapping::from_iter([("name".to_owned(), name.into())]);
    for (theirs, ours) in [("description", "description"), ("special_instructions", "system_prompt")] {
        if let Some(text) = text(map, theirs) {
            agent.insert(ours.to_owned(), text.into());
        }
    }
    for key in ["memory_scope", "timeout"] {
        if let Some(value) = map.get(key) {
            agent.insert(key.to_owned(), value.clone());
        }
    }
    let model = model(map.get("model"), &format!("{path}.model"))?;
    let of_model = of_model || model.is_object();
    agent.insert("model".to_owned(), model);
    for protocol in ["a2a_protocol", "acp_protocol"] {
        let Some(Value::Object(there)) = map.get(protocol) else { continue };
        if there.get("enabled") != Some(&Value::Bool(true)) {
            continue;
        }
        let Some(via) = external(there) else {
            warnings.push(format!("{path}.{protocol}: an agent without an endpoint is left out"));
            return Ok(None);
        };
        agent.insert("via".to_owned(), via);
        agent.insert("timeout".to_owned(), there.get("timeout").cloned().unwrap_or(EXTERNAL_TIMEOUT.into()));
    }
    if let Some(import) = map.get("import_from") {
        agent.insert("via".to_owned(), json!({ "activity": import_path(import, path)? }));
    }
    let played = of_model && !agent.contains_key("via");
    agent.insert("tools".to_owned(), tools(map, path, played, warnings)?);
    Ok(Some(agent.into()))
}

/// `{ kind: internal, ref }` or `{ kind: a2a, name, endpoint, auth, timeout }`, as CUGA's own pages store them.
fn stored(map: &Mapping, path: &str, warnings: &mut Vec<String>) -> Option<Value> {
    match text(map, "kind").as_deref() {
        Some("internal") => match text(map, "ref") {
            Some(name) => Some(json!({ "name": name })),
            None => {
                warnings.push(format!("{path}: an agent without a name is left out"));
                None
            }
        },
        Some("a2a") => match (text(map, "name"), external(map)) {
            (Some(name), Some(via)) => {
                let timeout = map.get("timeout").cloned().unwrap_or(EXTERNAL_TIMEOUT.into());
                Some(json!({ "name": name, "via": via, "timeout": timeout }))
            }
            _ => {
                warnings.push(format!("{path}: an agent without a name or an endpoint is left out"));
                None
            }
        },
        _ => {
            warnings.push(format!("{path}: an agent of an unknown kind is left out"));
            None
        }
    }
}

/// The address and how to be let in: the token itself stays in the environment.
fn external(there: &Mapping) -> Option<Value> {
    let url = text(there, "endpoint")?;
    let auth = there.get("auth").and_then(Value::as_object);
    let variable = auth.and_then(|auth| text(auth, "token_env_var").or_else(|| text(auth, "tokenEnvVar")));
    let headers =
        variable.map_or_else(|| json!({}), |name| json!({ "Authorization": { "env": name, "prefix": "Bearer " } }));
    Some(json!({ "http": { "url": url, "headers": headers } }))
}

/// A dotted path; here it names the activity that is the agent.
fn import_path(value: &Value, path: &str) -> Result<String, FieldError> {
    let at = format!("{path}.import_from");
    let Value::String(import) = value else {
        return Err(FieldError::at(at, format!("expected a text, found {}", kind(value))));
    };
    let word = |part: &str| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    if import.contains('.') && import.split('.').all(word) {
        return Ok(import.clone());
    }
    Err(FieldError::at(at, format!("`{import}` is no import path, such as `package.module.agent`")))
}

fn model(value: Option<&Value>, path: &str) -> Result<Value, FieldError> {
    match value {
        None | Some(Value::Null) => Ok(Value::Null),
        Some(Value::String(name)) => Ok(json!({ "name": name })),
        Some(Value::Object(map)) => {
            let mut settings = map.clone();
            let name = settings.shift_remove("model_name").or_else(|| settings.shift_remove("model"));
            match name.or_else(|| settings.shift_remove("provider")) {
                Some(Value::String(name)) => Ok(json!({ "name": name, "settings": settings })),
                _ => Err(FieldError::at(path, "needs a `model_name`")),
            }
        }
        Some(other) => Err(FieldError::at(path, format!("expected a text or a mapping, found {}", kind(other)))),
    }
}

/// The tools that whoever plays the agent carries out. A model carries out none by itself, and nothing here reaches CUGA's
/// apps and servers: nobody is offered what would only fail.
fn tools(map: &Mapping, path: &str, of_model: bool, warnings: &mut Vec<String>) -> Result<Value, FieldError> {
    let mut tools = Vec::new();
    for key in ["tools", "apps", "mcp_servers"] {
        for entry in entries(map.get(key), &format!("{path}.{key}"))? {
            let name =
                entry.as_str().map(str::to_owned).or_else(|| entry.as_object().and_then(|map| text(map, "name")));
            match name {
                Some(name) if of_model || key != "tools" => warnings.push(format!(
                    "{path}.{key}: {name} is left out: nobody here carries it out; a spec of Bosun grants tools to a model in \
                     `via: {{ model: {{ tools }} }}`"
                )),
                name => tools.extend(name.map(|name| json!({ "name": name }))),
            }
        }
    }
    Ok(tools.into())
}

fn text(map: &Mapping, key: &str) -> Option<String> {
    map.get(key).and_then(Value::as_str).filter(|text| !text.trim().is_empty()).map(str::to_owned)
}
