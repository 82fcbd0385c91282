//! The JSON Schema of spec files, for editors and other programs.
//!
//! Invariant: it is made from the types, so it cannot say anything else than they do; the short forms of files are added
//! to it, one by one as `shorthand` reads them.

use serde_json::{Value, json};

use super::run::answer_shapes;
use super::spec::SupervisorSpec;

/// Where an editor finds the meaning of the schema's own words.
const ID: &str = "https://bosun.invalid/supervisor-spec.schema.json";

/// What may also be written where the type stands.
const SHORT_FORMS: [(&str, &str); 5] = [
    ("Model", "The name of the model alone."),
    ("ViaModel", "The name of the model alone."),
    ("Tool", "The name of the tool alone."),
    ("Role", "The name of the agent that does it."),
    ("ScriptFailure", "The message alone."),
];

/// The schema.
pub fn schema() -> Value {
    let mut schema = serde_json::to_value(schemars::schema_for!(SupervisorSpec)).unwrap_or_default();
    schema["$id"] = ID.into();
    for (name, text) in SHORT_FORMS {
        let own = schema["$defs"][name].take();
        schema["$defs"][name] = json!({ "anyOf": [{ "type": "string", "description": text }, own] });
    }
    // A number names the task of that number.
    let task = schema["$defs"]["TaskId"].take();
    schema["$defs"]["TaskId"] = json!({ "anyOf": [{ "type": "integer", "minimum": 0 }, task] });
    let rules = schema["$defs"]["Trust"]["properties"]["rules"].take();
    schema["$defs"]["Trust"]["properties"]["rules"] = json!({ "anyOf": [{ "const": "default" }, rules] });
    for name in ["reviewer", "synthesizer"] {
        let own = schema["properties"][name].take();
        schema["properties"][name] = json!({ "anyOf": [{ "const": false, "description": "None." }, own] });
    }
    let manager = schema["properties"]["manager_agent"].take();
    schema["properties"]["manager_agent"] = json!({ "anyOf": [{ "type": "string" }, manager] });
    let agent = &mut schema["$defs"]["Agent"];
    agent["properties"]["file"] =
        json!({ "type": "string", "description": "A file with the agent; what stands beside it wins." });
    agent["anyOf"] = json!([{ "required": ["name"] }, { "required": ["file"] }]);
    if let Value::Object(agent) = agent {
        agent.remove("required");
    }
    // What is said to a run, in scripts, by agents and by people.
    let (answers, parts) = answer_shapes();
    if let Some(defs) = schema["$defs"].as_object_mut() {
        for (name, part) in parts {
            defs.entry(name).or_insert(part);
        }
        defs.extend(answers.into_iter().map(|(name, shape)| (format!("answer_{name}"), shape)));
    }
    // An empty section changes nothing.
    if let Some(properties) = schema["properties"].as_object_mut() {
        for property in properties.values_mut().filter(|property| property.get("$ref").is_some()) {
            let own = property.take();
            *property = json!({ "anyOf": [own, { "type": "null" }] });
        }
    }
    schema
}

/// The schema as the text of its file.
pub fn schema_text() -> String {
    format!("{:#}\n", schema())
}
