//! The JSON Schema of scenes, for editors and other programs (`bosun schema scene`).
//!
//! Invariant: its keys are those that the reader knows, from the same lists; a test holds them together.

use serde_json::{Map, Value, json};

use super::expect::{self, OUTCOMES, note_kinds};
use super::matcher::WORDS;
use super::people::{self, DOINGS};
use super::{file, rule};
use crate::supervisor::outbox::Purpose;

const ID: &str = "https://bosun.invalid/scene.schema.json";

/// What a key says.
const TEXTS: [(&str, &str); 51] = [
    ("scene", "One sentence: what it shows."),
    ("rows", "Rows of the requirements that it closes."),
    ("spec", "A spec or a plan as `bosun run` takes it: inline, or a path beside the scene."),
    ("workflow", "A workflow type of this program, instead of a spec."),
    ("input", "What overrides the spec; of a workflow its input."),
    ("context", "Where a supervisor stands: session, depth, role."),
    ("world", "Who answers what. The first rule that fits answers, then the script of the spec; nobody else."),
    ("people", "What people and programs do, and when."),
    ("faults", "When the worker process is killed, beside the crashes that every scene gets anyway."),
    ("expect", "What must be true."),
    ("ways", "What is tried beside the straight way."),
    ("order", "`matters`: the order in which concurrent calls end decides, as it must."),
    ("until", "Nobody looks any longer; the run may be open then."),
    ("on", "The purpose of a call, or the type of an activity."),
    ("agent", "Who is called."),
    ("tool", "The tool of the agent that is called, and no thought of the agent itself."),
    ("task", "The task that the call is for."),
    ("attempt", "The attempt of the task."),
    ("round", "The cycle, iteration or turn of the run."),
    ("role", "The role in the data of the call."),
    ("contains", "A text of the prompt, or several."),
    ("with", "What the call carries as data."),
    ("say", "The answer; `{{task}}`, `{{attempt}}`, `{{context.x}}` ... are filled in."),
    ("usage", "Tokens of a model's answer: `{ input: 120, output: 30 }`, or `unknown`; none where it says nothing."),
    (
        "cost",
        "What a model's answer cost, in dollars, or `unknown`: then the price of the spec counts, if it has one. Nothing where it says nothing.",
    ),
    ("fail", "It fails with this message; `needs_person`: no try helps before a person has done something."),
    ("before", "Only calls that are made before this time of the scene."),
    ("after", "How long it takes."),
    ("at", "When: a time from the beginning."),
    ("when", "When something is true: approval, question, plan, task, call or query."),
    ("do", "What is done."),
    ("by", "Who does it."),
    ("to", "The run that it is sent to: `root`, or the name of a spec below; the run that asks, if it says nothing."),
    ("which", "The approval or question that is answered, also one that is over: not that of the condition."),
    ("shown", "The hash of what the person saw, where it is not that of what they are asked."),
    ("state", "What an answer changes in the state of its task."),
    ("refused", "It must be refused, for this reason."),
    ("answers", "What an update must answer."),
    ("outcome", "How the run ends."),
    ("report", "Keys of the report; `tasks` by id, a status or any of a task's keys."),
    ("warnings", "What `bosun run` says of the spec beside running it, in order."),
    ("cost_micros", "What the whole run cost, in millionths of the unit of its prices."),
    ("unpriced_calls", "Calls of the whole run of which nobody knows what they cost."),
    ("calls", "Calls that are made: `{ execute_worker: dump, times: 1 }`."),
    ("prompts", "What is told to whom: `{ to: plan, contains: boats }`."),
    ("notes", "Facts that the run noted: `{ kind: TaskSkipped, task: load }`."),
    ("queries", "What the run answers at its end."),
    ("takes", "How long it takes, in virtual time."),
    ("never", "Notes, calls and events that must not be."),
    ("text", "The result as people read it; where there is none, the error."),
    ("times", "How often."),
];

/// The schema.
pub fn schema() -> Value {
    let moment = json!({ "anyOf": [{ "type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)?$" }, { "type": "integer", "minimum": 0 }] });
    let purposes: Vec<&str> = Purpose::ALL.iter().map(|purpose| purpose.as_str()).collect();
    let list = |of: &str| json!({ "type": "array", "items": { "$ref": format!("#/$defs/{of}") } });
    let mut scene = mapping(&file::KEYS, &["scene"]);
    set(&mut scene, "rows", json!({ "type": "array", "items": { "type": "string" } }));
    set(&mut scene, "spec", json!({ "anyOf": [{ "type": "string" }, { "$ref": "supervisor-spec.schema.json" }] }));
    set(&mut scene, "world", list("Rule"));
    set(&mut scene, "people", list("Act"));
    set(&mut scene, "expect", json!({ "$ref": "#/$defs/Expect" }));
    set(
        &mut scene,
        "refused",
        json!({ "description": "A spec or a plan that must not be read: the text, or `path`, `problem` and `text`. Nothing runs." }),
    );
    set(&mut scene, "order", json!({ "const": "matters" }));
    set(&mut scene, "until", moment.clone());
    let fault = json!({ "type": "object", "additionalProperties": false, "required": ["at", "do"],
        "properties": { "at": moment, "do": { "enum": ["kill", "restart"] } } });
    set(&mut scene, "faults", json!({ "type": "array", "items": fault }));
    let mut rule = mapping(&rule::KEYS, &["on"]);
    set(&mut rule, "on", json!({ "anyOf": [{ "enum": purposes }, { "type": "string" }] }));
    let tokens = json!({ "type": "integer", "minimum": 0 });
    let usage =
        json!({ "type": "object", "additionalProperties": false, "properties": { "input": tokens, "output": tokens } });
    let unknown = json!({ "const": "unknown" });
    set(&mut rule, "usage", json!({ "anyOf": [unknown, usage] }));
    set(&mut rule, "cost", json!({ "anyOf": [unknown, { "type": "number", "minimum": 0 }] }));
    set(&mut rule, "after", moment.clone());
    set(&mut rule, "before", moment.clone());
    let mut act = mapping(&people::KEYS, &["do"]);
    set(&mut act, "do", json!({ "enum": DOINGS }));
    set(&mut act, "at", moment.clone());
    set(&mut act, "when", json!({ "$ref": "#/$defs/When" }));
    set(&mut act, "after", moment.clone());
    scene["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    scene["$id"] = ID.into();
    scene["title"] = "Scene".into();
    scene["$defs"] = json!({ "Rule": rule, "Act": act, "Expect": expectations(), "When": when(), "Call": call(), "Matcher": matcher() });
    scene
}

/// What must be true.
fn expectations() -> Value {
    let mut expect = mapping(&expect::KEYS, &[]);
    set(&mut expect, "outcome", json!({ "anyOf": [{ "enum": OUTCOMES }, { "type": "object" }] }));
    set(&mut expect, "report", mapping(&expect::REPORT, &[]));
    set(
        &mut expect,
        "notes",
        json!({ "type": "array", "items": { "type": "object", "required": ["kind"],
        "properties": { "kind": { "anyOf": [{ "enum": note_kinds() }, { "type": "string" }] } } } }),
    );
    for key in ["prompts", "queries", "never"] {
        set(&mut expect, key, json!({ "type": "array", "items": { "type": "object" } }));
    }
    set(&mut expect, "calls", json!({ "type": "array", "items": { "$ref": "#/$defs/Call" } }));
    for key in ["success", "error", "code", "result", "text", "warnings"] {
        set(&mut expect, key, json!({ "$ref": "#/$defs/Matcher" }));
    }
    set(&mut expect, "at", json!({ "type": "object" }));
    expect
}

/// A condition of an act.
fn when() -> Value {
    let keys: Vec<&str> = people::WHEN.into_iter().chain(WORDS).collect();
    let mut when = mapping(&keys, &[]);
    for (key, text) in [
        ("approval", "An approval is asked for: its id, action, tool, task or scope, or `any`."),
        ("question", "Somebody asks a question: its id or task, or `any`."),
        ("plan", "A plan is up for review: `proposed`, or its version."),
        ("task", "A task has a `status`."),
        ("query", "What a query answers, at a `path`, is as the words say."),
        ("call", "Such a call is under way."),
    ] {
        when["properties"][key] = json!({ "description": text });
    }
    when
}

/// Calls that are meant. In the short form the purpose is a key: `execute_worker: dump`.
fn call() -> Value {
    let mut call = mapping(&expect::CALL, &[]);
    call["additionalProperties"] = json!({ "description": "A purpose, with its task or agent, or `any`." });
    set(&mut call, "times", json!({ "$ref": "#/$defs/Matcher" }));
    call
}

/// What a seen value must be like.
fn matcher() -> Value {
    let text = format!(
        "A value as it stands, a mapping of the keys that count, or words that say more: {}.",
        WORDS.join(", ")
    );
    json!({ "description": text })
}

/// The schema as the text of its file.
pub fn schema_text() -> String {
    format!("{:#}\n", schema())
}

fn mapping(keys: &[&str], required: &[&str]) -> Value {
    let described = |key: &&str| {
        let text = TEXTS.iter().find(|(name, _)| name == key).map(|(_, text)| json!({ "description": text }));
        ((*key).to_owned(), text.unwrap_or_else(|| json!({})))
    };
    let properties: Map<String, Value> = keys.iter().map(described).collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties, "required": required })
}

/// What a key takes, beside its text.
fn set(mapping: &mut Value, key: &str, takes: Value) {
    if let (Value::Object(own), Value::Object(takes)) = (&mut mapping["properties"][key], takes) {
        own.extend(takes);
    }
}
