//! JSON Schemas that users write: whether one can be obeyed, and how a value differs from it.
//!
//! Invariant: a word that JSON Schema does not know is refused with its place, so that no bound is thought to hold that
//! does not (a key that begins with `x-` is a note); a reference out of the schema is an error, and nothing is fetched.
//! Formats are told and not judged. Pure.

use serde_json::Value;

use crate::supervisor::fields::similar;

/// Words that hold one schema.
const ONE: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Words that hold a list of schemas.
const LIST: [&str; 5] = ["allOf", "anyOf", "items", "oneOf", "prefixItems"];
/// Words that hold schemas by name.
const NAMED: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];
/// Words that hold no schema, of every draft, and what pydantic adds to describe one.
const PLAIN: [&str; 42] = [
    "$anchor",
    "$comment",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$recursiveAnchor",
    "$recursiveRef",
    "$ref",
    "$schema",
    "$vocabulary",
    "const",
    "contentEncoding",
    "contentMediaType",
    "default",
    "dependentRequired",
    "deprecated",
    "description",
    "discriminator",
    "enum",
    "example",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "readOnly",
    "required",
    "title",
    "type",
    "uniqueItems",
    "writeOnly",
];
/// Schemas that are nested deeper are refused.
const DEPTH_MAX: usize = 64;

/// What is wrong with a schema, and where in it: a JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaProblem {
    pub(crate) at: String,
    pub(crate) why: String,
}

impl SchemaProblem {
    /// The place behind a path of ours: `synthesis.schema.properties.a`.
    pub(crate) fn under(&self, path: &str) -> String {
        format!("{path}{}", dotted(&self.at))
    }
}

/// What judges values by the schema. Words that it does not know are passed over, as JSON Schema has it.
pub(crate) fn validator(schema: &Value) -> Result<jsonschema::Validator, SchemaProblem> {
    let validator = jsonschema::options().with_retriever(NoReferences).build(schema);
    validator.map_err(|why| SchemaProblem { at: why.instance_path().to_string(), why: why.to_string() })
}

/// The same of a schema that somebody wrote by hand, of which every word must be known.
pub(crate) fn strict(schema: &Value) -> Result<jsonschema::Validator, SchemaProblem> {
    unknown_word(schema, "", 0).map_or_else(|| validator(schema), Err)
}

/// How a value differs from the schema, each with the place behind `path`; nothing if it conforms.
pub(crate) fn differences(validator: &jsonschema::Validator, path: &str, value: &Value, most: usize) -> Vec<String> {
    let told = |error: jsonschema::ValidationError<'_>| {
        format!("{path}{}: {error}", dotted(&error.instance_path().to_string()))
    };
    validator.iter_errors(value).take(most).map(told).collect()
}

/// `/a/0/b` as `.a[0].b`.
fn dotted(pointer: &str) -> String {
    let step = |step: &str| match step.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("[{step}]"),
        false => format!(".{}", step.replace("~1", "/").replace("~0", "~")),
    };
    pointer.split('/').skip(1).map(step).collect()
}

fn unknown_word(schema: &Value, at: &str, depth: usize) -> Option<SchemaProblem> {
    if depth > DEPTH_MAX {
        return Some(SchemaProblem { at: at.to_owned(), why: "the schema is nested too deep".to_owned() });
    }
    // What is no schema at all is told by the validator.
    for (word, value) in schema.as_object()? {
        let at = format!("{at}/{}", escaped(word));
        let inside = |value: &Value, step: &str| unknown_word(value, &format!("{at}/{}", escaped(step)), depth + 1);
        let name = word.as_str();
        let found = match value {
            Value::Array(list) if LIST.contains(&name) => {
                list.iter().enumerate().find_map(|(place, value)| inside(value, &place.to_string()))
            }
            Value::Object(named) if NAMED.contains(&name) => named.iter().find_map(|(name, value)| inside(value, name)),
            value if ONE.contains(&name) => unknown_word(value, &at, depth + 1),
            _ if is_known(name) => None,
            _ => Some(SchemaProblem { why: format!("`{word}` is no word of JSON Schema{}", near(word)), at }),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn escaped(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}

fn is_known(word: &str) -> bool {
    let all = [&PLAIN[..], &ONE, &LIST, &NAMED];
    word.starts_with("x-") || all.iter().any(|words| words.contains(&word))
}

fn near(word: &str) -> String {
    let all = [&PLAIN[..], &ONE, &LIST, &NAMED].concat();
    similar(word, &all).map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"))
}

/// References lead nowhere.
struct NoReferences;

impl jsonschema::Retrieve for NoReferences {
    fn retrieve(&self, uri: &jsonschema::Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("the reference {uri} leads out of the schema").into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn refused(schema: Value) -> String {
        let problem = strict(&schema).expect_err("it is refused");
        format!("{}: {}", problem.under("schema"), problem.why)
    }

    /// As zod and pydantic print them.
    #[test]
    fn what_libraries_print_is_taken() {
        let zod = json!({
            "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "description": "A report",
            "properties": {
                "mail": { "type": "string", "format": "email", "pattern": "@" },
                "kind": { "anyOf": [{ "const": "a" }, { "type": "null" }], "default": null },
            },
            "required": ["mail"], "additionalProperties": false,
        });
        let judge = strict(&zod).unwrap();
        let differ = |value: Value| differences(&judge, "result", &value, 1).join("");
        assert_eq!(differ(json!({ "mail": "a@b", "kind": null })), "");
        assert_eq!(differ(json!({ "mail": 3 })), "result.mail: 3 is not of type \"string\"");
        assert!(differ(json!({ "mail": "a@b", "more": 1 })).contains("'more' was unexpected"));
        let pydantic = json!({
            "$defs": { "Point": { "title": "Point", "type": "object", "properties": { "x": { "title": "X", "type": "integer" } } } },
            "type": "object", "title": "Way", "properties": { "points": { "type": "array", "items": { "$ref": "#/$defs/Point" } } },
        });
        let judge = strict(&pydantic).unwrap();
        assert_eq!(
            differences(&judge, "result", &json!({ "points": [{ "x": 1 }, { "x": "a" }] }), 1),
            ["result.points[1].x: \"a\" is not of type \"integer\""]
        );
    }

    #[test]
    fn a_word_that_nobody_knows_is_refused_with_its_place() {
        let why = refused(json!({ "properties": { "a": { "requird": ["b"] } } }));
        assert_eq!(why, "schema.properties.a.requird: `requird` is no word of JSON Schema (did you mean `required`?)");
        assert!(refused(json!({ "anyOf": [{}, { "typ": "text" }] })).starts_with("schema.anyOf[1].typ: "));
        assert!(strict(&json!({ "default": { "any": 1 }, "x-note": 1, "properties": { "any": {} } })).is_ok());
    }

    #[test]
    fn a_schema_that_is_none_says_where() {
        assert!(
            refused(json!({ "properties": { "a": { "type": "text" } } })).starts_with("schema.properties.a.type: ")
        );
        assert!(refused(json!({ "$ref": "#/nowhere" })).starts_with("schema: "));
        assert!(refused(json!({ "$ref": "https://127.0.0.1:1/s.json" })).contains("leads out of the schema"));
        let deep = (0..100).fold(json!({}), |inner, _| json!({ "items": inner }));
        assert!(refused(deep).contains("nested too deep"));
    }
}
