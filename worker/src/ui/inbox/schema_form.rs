//! A form made from a JSON Schema, and the answer that its fields make.
//!
//! Invariant: what the schema says in words this form knows (texts, numbers, truths, choices, and objects of these) has a
//! field of its own; everything else is one field of JSON, so that every answer can be given. The answer is checked against
//! the schema before it is sent; without one, JSON is taken as JSON and anything else as a text.

use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::api::problem::{InvalidField, Problem};
use crate::inbox::{misfits, schema_of};
use crate::ui::forms::Fields;

/// Before the name of each field of an answer.
const PREFIX: &str = "answer.";
const WHOLE: &str = "answer";

/// The properties of an object all of whose properties are simple.
fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    let properties = schema["properties"].as_object().filter(|properties| !properties.is_empty())?;
    properties.values().all(is_simple).then_some(properties)
}

fn is_simple(schema: &Value) -> bool {
    let plain = |kind: &str| matches!(kind, "string" | "number" | "integer" | "boolean");
    schema["enum"].is_array() || schema["type"].as_str().is_some_and(plain)
}

/// The fields for an answer to a question.
pub(super) fn fields_of(payload: &Value, id: &str) -> Markup {
    let schema = schema_of(payload);
    if let Some((schema, properties)) = schema.and_then(|schema| Some((schema, properties(schema)?))) {
        let needed: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        return html! { @for (name, of) in properties {
            (field(&format!("{PREFIX}{name}"), &format!("{id}-{name}"), &label_of(name, of), of, needed.contains(&name.as_str())))
        } };
    }
    if let Some(schema) = schema.filter(|schema| is_simple(schema)) {
        return field(WHOLE, &format!("answer-{id}"), "Answer", schema, true);
    }
    // Whether a tool is called is never read out of a text.
    if payload.pointer("/kind/tool_approval").is_some() {
        return field(
            WHOLE,
            &format!("answer-{id}"),
            "May it be called?",
            &serde_json::json!({ "type": "boolean" }),
            true,
        );
    }
    let options = payload["options"].as_array().or(payload["choices"].as_array()).filter(|options| !options.is_empty());
    if let Some(options) = options {
        return field(WHOLE, &format!("answer-{id}"), "Answer", &serde_json::json!({ "enum": options }), true);
    }
    html! {
        label for={ "answer-" (id) } { "Answer " span.muted { "(a text, or JSON)" } }
        textarea id={ "answer-" (id) } name=(WHOLE) rows="3" required {}
    }
}

/// The words beside a field: its title, or its name as one reads it.
fn label_of(name: &str, schema: &Value) -> String {
    if let Some(title) = schema["title"].as_str().filter(|title| !title.trim().is_empty()) {
        return title.to_owned();
    }
    let words = name.replace(['_', '-'], " ");
    let words = words.trim();
    let mut letters = words.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => "Answer".to_owned(),
    }
}

fn field(name: &str, id: &str, label: &str, schema: &Value, required: bool) -> Markup {
    html! {
        label for=(id) { (label) @if let Some(words) = schema["description"].as_str() { " " span.muted { (words) } } }
        @if let Some(choices) = schema["enum"].as_array() {
            select id=(id) name=(name) required[required] {
                option value="" {}
                @for choice in choices { option value=(choice) { (choice.as_str().map_or_else(|| choice.to_string(), str::to_owned)) } }
            }
        } @else { @match schema["type"].as_str() {
            Some("boolean") => select id=(id) name=(name) required[required] { option value="" {} option value="true" { "yes" } option value="false" { "no" } },
            Some("number" | "integer") => input id=(id) name=(name) inputmode="decimal" required[required];,
            _ if schema["maxLength"].as_u64().is_none_or(|most| most > 200) => textarea id=(id) name=(name) rows="2" required[required] {},
            _ => input id=(id) name=(name) required[required];,
        } }
    }
}

/// The answer that the fields make.
pub(super) fn answer_of(schema: Option<&Value>, fields: &Fields) -> Result<Value, Problem> {
    let answer = match schema.and_then(properties) {
        Some(properties) => {
            let mut answer = Map::new();
            for (name, text) in fields.beginning(PREFIX).filter(|(_, text)| !text.is_empty()) {
                if let Some(of) = properties.get(name) {
                    answer.insert(name.to_owned(), typed(of, text, name)?);
                }
            }
            Value::Object(answer)
        }
        None => {
            let text = fields.text(WHOLE).ok_or_else(|| Problem::bad_request("answer: it is needed"))?;
            match schema.filter(|schema| is_simple(schema)) {
                Some(schema) => typed(schema, text, WHOLE)?,
                None => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
            }
        }
    };
    let Some(schema) = schema else { return Ok(answer) };
    let errors: Vec<InvalidField> =
        misfits(schema, &answer).into_iter().map(|(at, why)| InvalidField { at, why }).collect();
    if errors.is_empty() {
        return Ok(answer);
    }
    let problem = Problem::bad_request("the answer is not what was asked for");
    Err(Problem { errors, ..problem })
}

/// A text as a value of a schema.
fn typed(schema: &Value, text: &str, name: &str) -> Result<Value, Problem> {
    let wrong = |what: &str| Problem::bad_request(format!("{name}: {text:?} is not {what}"));
    if let Some(choices) = schema["enum"].as_array() {
        // As the form offers it, or as one says it.
        let said: Option<Value> = serde_json::from_str(text).ok();
        let chosen = choices.iter().find(|choice| Some(*choice) == said.as_ref() || choice.as_str() == Some(text));
        return chosen.cloned().ok_or_else(|| wrong("one of the choices"));
    }
    match schema["type"].as_str() {
        Some("boolean") => text.parse::<bool>().map(Value::from).map_err(|_| wrong("yes or no")),
        Some("integer") => text.trim().parse::<i64>().map(Value::from).map_err(|_| wrong("a whole number")),
        Some("number") => text.trim().parse::<f64>().map(Value::from).map_err(|_| wrong("a number")),
        _ => Ok(Value::String(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(text: &str) -> Fields {
        Fields::read(text.as_bytes())
    }

    #[test]
    fn each_property_has_a_field_and_makes_a_value_of_its_type() {
        let schema = json!({ "type": "object", "required": ["days"], "properties": {
            "days": { "type": "integer", "minimum": 1 }, "by": { "enum": ["train", "plane"] }, "pets": { "type": "boolean" } } });
        let payload = json!({ "question": "How long?", "schema": schema });
        let form = fields_of(&payload, "q").into_string();
        for name in ["answer.days", "answer.by", "answer.pets"] {
            assert!(form.contains(&format!("name=\"{name}\"")), "{form}");
        }
        let answer = answer_of(
            schema_of(&payload),
            &fields("answer.days=3&answer.by=%22train%22&answer.pets=false&answer.other=1"),
        );
        assert_eq!(answer.unwrap(), json!({ "days": 3, "by": "train", "pets": false }));
        for bad in ["answer.days=x", "answer.days=0", "answer.by=%22train%22", "answer.days=1&answer.by=boat"] {
            assert!(answer_of(schema_of(&payload), &fields(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_field_has_words_beside_it_also_without_a_title() {
        let schema = json!({ "type": "object", "properties": { "needs_visa": { "type": "boolean" }, "by": { "type": "string", "title": "" },
            "_": { "type": "string" }, "n": { "type": "integer", "title": "Days off" } } });
        let form = fields_of(&json!({ "schema": schema }), "q").into_string();
        for label in [">Needs visa<", ">By<", ">Answer<", ">Days off<"] {
            assert!(form.contains(label), "{label}: {form}");
        }
    }

    #[test]
    fn without_a_schema_json_is_json_and_all_else_a_text() {
        let of = |text: &str| answer_of(None, &fields(text)).unwrap();
        assert_eq!(of("answer=%7B%22a%22%3A1%7D"), json!({ "a": 1 }));
        assert_eq!(of("answer=to+Oslo"), json!("to Oslo"));
        assert!(answer_of(None, &fields("answer=+")).is_err());
        // What no field can say is said as JSON, and checked.
        let deep = json!({ "schema": { "type": "array", "items": { "type": "integer" } } });
        assert!(fields_of(&deep, "q").into_string().contains("textarea"));
        assert_eq!(answer_of(schema_of(&deep), &fields("answer=%5B1%5D")).unwrap(), json!([1]));
        assert!(answer_of(schema_of(&deep), &fields("answer=%5B%22x%22%5D")).is_err());
    }
}
