//! The short forms of a spec file, written out.
//!
//! Invariant: what is written out means the same; a value that is no short form is left alone for the types to judge.
//! Nothing is read from a file here.

use serde_json::{Map, Value, json};

use crate::supervisor::fields::FieldError;

type Spec = Map<String, Value>;

/// Writes the short forms out; gives the warnings.
pub(super) fn write_out(spec: &mut Spec) -> Result<Vec<String>, FieldError> {
    let mut warnings = Vec::new();
    switched_off(spec, "reviewer", ("review", "scope"))?;
    switched_off(spec, "synthesizer", ("synthesis", "mode"))?;
    for name in ["planner", "supervisor", "reviewer", "synthesizer", "advisor"] {
        role(spec.get_mut(name));
    }
    if let Some(Value::Object(services)) = spec.get_mut("services") {
        services.values_mut().for_each(|service| role(Some(service)));
    }
    named(spec.get_mut("manager_agent"), "name");
    if let Some(Value::Array(agents)) = spec.get_mut("agents") {
        for (i, entry) in agents.iter_mut().enumerate() {
            agent(entry, &format!("agents[{i}]"), &mut warnings);
        }
    }
    if let Some(manager) = spec.get_mut("manager_agent") {
        agent(manager, "manager_agent", &mut warnings);
    }
    if let Some(Value::Object(trust)) = spec.get_mut("trust")
        && trust.get("rules").and_then(Value::as_str) == Some("default")
    {
        trust.remove("rules");
    }
    via(spec.get_mut("via"));
    script(spec.get_mut("script"));
    Ok(warnings)
}

/// `reviewer: false` is `review: { scope: none }` (FSS-32).
fn switched_off(spec: &mut Spec, name: &str, (section, key): (&str, &str)) -> Result<(), FieldError> {
    if spec.get(name) != Some(&Value::Bool(false)) {
        return Ok(());
    }
    spec.remove(name);
    let entry = spec.entry(section).or_insert_with(|| json!({}));
    if entry.is_null() {
        *entry = json!({});
    }
    let Value::Object(map) = entry else { return Ok(()) };
    match map.get(key) {
        None => {
            map.insert(key.to_owned(), "none".into());
            Ok(())
        }
        Some(value) if value == "none" => Ok(()),
        Some(value) => {
            let why = format!("`{name}: false` and `{section}.{key}: {}` contradict each other", plain(value));
            Err(FieldError::at(name, why))
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A text is the value of `key`.
fn named(value: Option<&mut Value>, key: &str) {
    if let Some(value) = value
        && let Value::String(text) = value
    {
        *value = json!({ key: std::mem::take(text) });
    }
}

/// `via: { model: NAME }`.
fn via(value: Option<&mut Value>) {
    named(value.and_then(|via| via.get_mut("model")), "name");
}

fn role(value: Option<&mut Value>) {
    let Some(value) = value else { return };
    named(Some(value), "agent");
    if let Value::Object(role) = value {
        via(role.get_mut("via"));
        named(role.get_mut("model"), "name");
        script(role.get_mut("script"));
    }
}

fn agent(value: &mut Value, path: &str, warnings: &mut Vec<String>) {
    let Value::Object(agent) = value else { return };
    via(agent.get_mut("via"));
    named(agent.get_mut("model"), "name");
    script(agent.get_mut("script"));
    if let Some(Value::Array(tools)) = agent.get_mut("tools") {
        tools.iter_mut().for_each(|tool| named(Some(tool), "name"));
    }
    if let Some(scope) = agent.get_mut("memory_scope")
        && let Value::String(name) = scope
        && !["conversation", "call"].contains(&name.as_str())
    {
        warnings.push(format!("{path}.memory_scope: unknown memory scope `{name}`; `call` is used"));
        *scope = "call".into();
    }
}

fn script(value: Option<&mut Value>) {
    let Some(Value::Array(rules)) = value else { return };
    for rule in rules {
        named(rule.get_mut("fail"), "message");
    }
}
