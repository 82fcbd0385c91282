//! Agents as supyagent writes them (SUP-01).
//!
//! Invariant: its own keys mean what they mean there; an entry that has none of them is one of ours and stays as it is.
//! The result is data, for the types to judge.

use serde_json::{Map, Value, json};

use crate::supervisor::fields::{FieldError, kind, similar};

/// Their names for a turn's and an agent's tool calls, and ours.
const LIMITS: [(&str, &str); 2] = [("max_tool_calls_per_turn", "per_turn"), ("max_total_tool_calls", "total")];

/// Whether a file is one agent as supyagent writes it, rather than a spec or a plan.
pub(in super::super) fn is_one(file: &Map<String, Value>) -> bool {
    let ours = ["kind", "preset", "agents", "tasks", "objective"];
    let named = file.get("name").is_some_and(Value::is_string);
    let theirs = ["system_prompt", "delegates", "will_create_tools"];
    named && !ours.iter().any(|key| file.contains_key(*key)) && theirs.iter().any(|key| file.contains_key(*key))
}

/// The whole spec of agents, the first being the one that begins. Their files say by which models they are played.
pub(in super::super) fn spec(agents: Vec<Map<String, Value>>) -> Map<String, Value> {
    let root = agents.first().and_then(|agent| agent.get("name")).cloned().unwrap_or_default();
    let played = agents.iter().any(|agent| agent.get("model").is_some_and(Value::is_object));
    let mut spec = Map::from_iter([
        ("preset".to_owned(), "supyagent-delegation".into()),
        ("name".to_owned(), root.clone()),
        ("delegation".to_owned(), json!({ "root": root })),
        ("agents".to_owned(), agents.into_iter().map(Value::Object).collect()),
    ]);
    if played {
        spec.insert("via".to_owned(), json!({ "model": {} }));
    }
    spec
}

/// Whom an agent gives work to.
pub(in super::super) fn delegates(agent: &Map<String, Value>) -> Vec<String> {
    let list = agent.get("delegates").and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// An agent of a file, in our words.
pub(in super::super) fn agent(mut agent: Map<String, Value>) -> Result<Map<String, Value>, FieldError> {
    if !matches!(agent.get("name"), Some(Value::String(name)) if !name.trim().is_empty()) {
        return Err(FieldError::at("name", "required key `name` is missing"));
    }
    if let Some(Value::Object(model)) = agent.get("model")
        && model.contains_key("provider")
    {
        let model = self::model(model)?;
        agent.insert("model".to_owned(), model);
    }
    if agent.contains_key("supervisor") {
        let why = "how supyagent looks after processes is said by a spec here: `delegation: { timeout, on_timeout, \
                   background_max }`, with this file among its `agents`";
        return Err(FieldError::at("supervisor", why));
    }
    if let Some(Value::Object(limits)) = agent.get_mut("limits") {
        for (theirs, ours) in LIMITS {
            if let Some(value) = limits.remove(theirs) {
                whole(&value, theirs)?;
                limits.insert(ours.to_owned(), value);
            }
        }
        if let Some(key) = limits.keys().find(|key| !LIMITS.iter().any(|(_, ours)| ours == key)) {
            let known = LIMITS.map(|(theirs, _)| theirs);
            let hint = similar(key, &known).map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
            let why = format!("unknown key `{key}`{hint}; known keys: {}", known.join(", "));
            return Err(FieldError::at(format!("limits.{key}"), why));
        }
    }
    Ok(agent)
}

/// A limit in the words of their file; null is none.
fn whole(value: &Value, key: &str) -> Result<(), FieldError> {
    match value.is_null() || value.as_u64().is_some_and(|number| u32::try_from(number).is_ok()) {
        true => Ok(()),
        false => Err(FieldError::at(format!("limits.{key}"), format!("expected a whole number, found {value}"))),
    }
}

/// `{ provider: anthropic/claude, temperature: 0.7 }`: the provider names the model, the rest is its settings.
fn model(model: &Map<String, Value>) -> Result<Value, FieldError> {
    let mut settings = model.clone();
    match settings.shift_remove("provider") {
        Some(Value::String(name)) if !name.trim().is_empty() => Ok(json!({ "name": name, "settings": settings })),
        Some(other) => Err(FieldError::at("model.provider", format!("expected a text, found {}", kind(&other)))),
        None => Err(FieldError::at("model.provider", "required key `provider` is missing")),
    }
}
