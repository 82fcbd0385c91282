//! Whether a value conforms to a JSON Schema: the arguments of a tool.
//!
//! Invariant: a word that bounds values is either obeyed or the whole schema is refused, so that no bound is thought to
//! hold that does not. Problems come in the order of the schema and the value, and say where. The part that tools are
//! mostly described in is judged here, in words that older runs have recorded; a schema that says more is judged by a
//! library. Pure; formats are told and not judged.

use serde_json::{Map, Value};

use crate::json_schema;

/// Words that describe and bound nothing.
const TOLD: [&str; 8] = ["title", "description", "default", "examples", "$schema", "$id", "$comment", "deprecated"];
/// Words that are obeyed.
const KNOWN: [&str; 18] = [
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "anyOf",
    "allOf",
];
const TYPES: [&str; 7] = ["object", "array", "string", "integer", "number", "boolean", "null"];
/// Schemas and values that are nested deeper are refused.
const DEPTH_MAX: usize = 32;
/// Problems that are told of one value.
const PROBLEMS_MAX: usize = 10;

/// Whether the schema is one that [`problems`] can judge by.
pub fn check(schema: &Value) -> Result<(), String> {
    let Err(why) = check_part(schema) else { return Ok(()) };
    match json_schema::strict(schema) {
        Ok(_) => Ok(()),
        Err(problem) if why.starts_with(&format!("{}:", problem.at)) => Err(why),
        Err(problem) => Err(format!("{}: {}", problem.at, problem.why)),
    }
}

/// Whether it keeps to the words that are judged here.
pub(super) fn check_part(schema: &Value) -> Result<(), String> {
    check_at(schema, "", 0)
}

fn check_at(schema: &Value, at: &str, depth: usize) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("{at}: it is nested too deep"));
    }
    let words = match schema {
        Value::Bool(_) => return Ok(()),
        Value::Object(words) => words,
        _ => return Err(format!("{at}: a schema is an object or a boolean")),
    };
    for (word, value) in words {
        let at = format!("{at}/{word}");
        if TOLD.contains(&word.as_str()) {
            continue;
        }
        if !KNOWN.contains(&word.as_str()) {
            return Err(format!("{at}: this word is not understood, so it could not be obeyed"));
        }
        check_word(word, value, &at, depth)?;
    }
    Ok(())
}

fn check_word(word: &str, value: &Value, at: &str, depth: usize) -> Result<(), String> {
    let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    let fits = match word {
        "type" => is_type(value) || value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(is_type)),
        "enum" => value.as_array().is_some_and(|all| !all.is_empty()),
        "const" => true,
        "required" => value.as_array().is_some_and(|all| all.iter().all(Value::is_string)),
        "uniqueItems" => value.is_boolean(),
        "minItems" | "maxItems" | "minLength" | "maxLength" => value.is_u64(),
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => value.is_number(),
        "anyOf" | "allOf" => match value.as_array() {
            Some(all) if !all.is_empty() => {
                return all.iter().try_for_each(|schema| check_at(schema, at, depth + 1));
            }
            _ => false,
        },
        "properties" => match value.as_object() {
            Some(all) => {
                return all.iter().try_for_each(|(name, inner)| check_at(inner, &format!("{at}/{name}"), depth + 1));
            }
            None => false,
        },
        // `items` and `additionalProperties`.
        _ => return check_at(value, at, depth + 1),
    };
    if fits { Ok(()) } else { Err(format!("{at}: it cannot be {value}")) }
}

/// How the value differs from what the schema asks for; nothing if it conforms. The schema has been checked.
pub fn problems(schema: &Value, value: &Value) -> Vec<String> {
    if check_part(schema).is_err()
        && let Ok(judge) = json_schema::strict(schema)
    {
        return json_schema::differences(&judge, "", value, PROBLEMS_MAX);
    }
    let mut found = Vec::new();
    judge(schema, value, "", 0, &mut found);
    found.truncate(PROBLEMS_MAX);
    found
}

fn judge(schema: &Value, value: &Value, at: &str, depth: usize, found: &mut Vec<String>) {
    if found.len() >= PROBLEMS_MAX {
        return;
    }
    let mut problem = |what: String| found.push(format!("{}: {what}", if at.is_empty() { "/" } else { at }));
    if depth > DEPTH_MAX {
        return problem("it is nested too deep".to_owned());
    }
    let words = match schema {
        Value::Bool(true) => return,
        Value::Object(words) => words,
        _ => return problem("nothing may be here".to_owned()),
    };
    if let Some(wanted) = words.get("type")
        && !is_of(wanted, value)
    {
        return problem(format!("expected {}, found {}", named(wanted), kind(value)));
    }
    if let Some(all) = words.get("enum").and_then(Value::as_array)
        && !all.iter().any(|one| same(one, value))
    {
        problem(format!("it must be one of {}", Value::Array(all.clone())));
    }
    if let Some(one) = words.get("const")
        && !same(one, value)
    {
        problem(format!("it must be {one}"));
    }
    match value {
        Value::Object(members) => members_of(words, members, at, depth, found),
        Value::Array(items) => items_of(words, items, at, depth, found),
        Value::String(text) => length(words, ["minLength", "maxLength"], text.chars().count(), at, "characters", found),
        Value::Number(number) => size(words, number, at, found),
        Value::Null | Value::Bool(_) => {}
    }
    for schema in words.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        judge(schema, value, at, depth + 1, found);
    }
    if let Some(any) = words.get("anyOf").and_then(Value::as_array)
        && !any.iter().any(|schema| conforms(schema, value, depth + 1))
    {
        found.push(format!("{at}/: it fits none of the forms that are allowed"));
    }
}

fn conforms(schema: &Value, value: &Value, depth: usize) -> bool {
    let mut found = Vec::new();
    judge(schema, value, "", depth, &mut found);
    found.is_empty()
}

fn members_of(
    words: &Map<String, Value>,
    members: &Map<String, Value>,
    at: &str,
    depth: usize,
    found: &mut Vec<String>,
) {
    for name in words.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if !members.contains_key(name) {
            found.push(format!("{at}/{name}: it is missing"));
        }
    }
    let known = words.get("properties").and_then(Value::as_object);
    for (name, member) in members {
        let at = format!("{at}/{name}");
        match (known.and_then(|known| known.get(name)), words.get("additionalProperties")) {
            (Some(schema), _) => judge(schema, member, &at, depth + 1, found),
            (None, Some(Value::Bool(false))) => found.push(format!("{at}: there is no such member")),
            (None, Some(schema)) => judge(schema, member, &at, depth + 1, found),
            (None, None) => {}
        }
    }
}

fn items_of(words: &Map<String, Value>, items: &[Value], at: &str, depth: usize, found: &mut Vec<String>) {
    length(words, ["minItems", "maxItems"], items.len(), at, "items", found);
    if words.get("uniqueItems") == Some(&Value::Bool(true))
        && items.iter().enumerate().any(|(n, item)| items[..n].iter().any(|other| same(other, item)))
    {
        found.push(format!("{at}/: the items are not all different"));
    }
    let Some(schema) = words.get("items") else { return };
    for (n, item) in items.iter().enumerate() {
        judge(schema, item, &format!("{at}/{n}"), depth + 1, found);
    }
}

fn length(
    words: &Map<String, Value>,
    [least, most]: [&str; 2],
    length: usize,
    at: &str,
    unit: &str,
    found: &mut Vec<String>,
) {
    let bound = |word: &str| words.get(word).and_then(Value::as_u64);
    let length = length as u64;
    if let Some(least) = bound(least).filter(|least| length < *least) {
        found.push(format!("{at}/: {length} {unit}, at least {least} are needed"));
    }
    if let Some(most) = bound(most).filter(|most| length > *most) {
        found.push(format!("{at}/: {length} {unit}, at most {most} are allowed"));
    }
}

fn size(words: &Map<String, Value>, number: &serde_json::Number, at: &str, found: &mut Vec<String>) {
    type Fits = fn(f64, f64) -> bool;
    let bounds: [(&str, Fits); 4] = [
        ("minimum", |number, bound| number >= bound),
        ("maximum", |number, bound| number <= bound),
        ("exclusiveMinimum", |number, bound| number > bound),
        ("exclusiveMaximum", |number, bound| number < bound),
    ];
    let number = number.as_f64().unwrap_or(f64::NAN);
    for (word, fits) in bounds {
        if let Some(bound) = words.get(word).and_then(Value::as_f64)
            && !fits(number, bound)
        {
            found.push(format!("{at}/: {number} is against `{word}` {bound}"));
        }
    }
}

fn is_of(wanted: &Value, value: &Value) -> bool {
    match wanted {
        Value::Array(any) => any.iter().any(|wanted| is_of(wanted, value)),
        Value::String(name) => match (name.as_str(), value) {
            ("number", Value::Number(_)) => true,
            // 2.0 is an integer to JSON Schema.
            ("integer", Value::Number(number)) => {
                number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
            }
            (name, value) => name == kind(value),
        },
        _ => false,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn named(wanted: &Value) -> String {
    match wanted {
        Value::String(name) => name.clone(),
        other => other.to_string(),
    }
}

/// Equal as JSON: 1 and 1.0 are the same number, and members have no order.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, one)| other.get(name).is_some_and(|other| same(one, other)))
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_judged_by_every_word_that_is_known() {
        let table = [
            (json!({ "type": "integer", "minimum": 1 }), json!(2.0), true),
            (json!({ "type": "integer" }), json!(2.5), false),
            (json!({ "type": ["string", "null"] }), json!(null), true),
            (json!({ "enum": ["a", 1] }), json!(1.0), true),
            (json!({ "const": { "a": 1 } }), json!({ "a": 2 }), false),
            (json!({ "maxLength": 2 }), json!("äöü"), false),
            (json!({ "exclusiveMaximum": 3 }), json!(3), false),
            (json!({ "items": { "type": "string" }, "maxItems": 2 }), json!(["a", "b"]), true),
            (json!({ "items": { "type": "string" } }), json!(["a", 1]), false),
            (json!({ "uniqueItems": true }), json!([1, 1.0]), false),
            (json!({ "required": ["a"] }), json!({}), false),
            (json!({ "properties": { "a": {} }, "additionalProperties": false }), json!({ "b": 1 }), false),
            (json!({ "additionalProperties": { "type": "string" } }), json!({ "b": 1 }), false),
            (json!({ "anyOf": [{ "type": "string" }, { "minimum": 3 }] }), json!(4), true),
            (json!({ "anyOf": [{ "type": "string" }, { "minimum": 3 }] }), json!(2), false),
            (json!({ "allOf": [{ "minimum": 1 }, { "maximum": 2 }] }), json!(3), false),
            (json!(false), json!(1), false),
        ];
        for (schema, value, fits) in table {
            assert_eq!(check(&schema), Ok(()), "{schema}");
            assert_eq!(problems(&schema, &value).is_empty(), fits, "{schema} {value}: {:?}", problems(&schema, &value));
        }
    }

    #[test]
    fn what_libraries_print_is_obeyed_too() {
        let table = [
            (json!({ "pattern": "^a$" }), json!("b")),
            (json!({ "not": {} }), json!(1)),
            (
                json!({ "$defs": { "a": { "type": "string" } }, "properties": { "a": { "$ref": "#/$defs/a" } } }),
                json!({ "a": 1 }),
            ),
            (json!({ "oneOf": [{ "const": 1 }, { "const": 2 }], "title": "T" }), json!(3)),
        ];
        for (schema, value) in table {
            assert_eq!(check(&schema), Ok(()), "{schema}");
            assert_eq!(problems(&schema, &value).len(), 1, "{schema} {value}");
        }
        assert_eq!(problems(&json!({ "items": { "format": "uri" } }), &json!(["a"])), Vec::<String>::new());
    }

    #[test]
    fn a_schema_with_a_word_that_is_not_obeyed_is_refused() {
        for schema in [
            json!({ "patern": "^a$" }),
            json!({ "properties": { "a": { "$ref": "#/x" } } }),
            json!({ "type": "text" }),
            json!({ "maxLength": -1 }),
            json!({ "pattern": "[" }),
            json!(3),
        ] {
            assert!(check(&schema).is_err(), "{schema}");
        }
        let deep = (0..100).fold(json!({}), |inner, _| json!({ "items": inner }));
        assert!(check(&deep).is_err());
    }
}
