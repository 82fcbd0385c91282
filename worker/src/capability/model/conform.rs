//! Whether an answer is what its schema asks for.
//!
//! Invariant: a schema is never fetched from anywhere; a reference out of it is a problem. Problems are few, short, and
//! written so that a model can be told them. Pure.

use serde_json::Value;

use super::{ChatResponse, OutputSchema, StopReason, errors::excerpt};
use crate::json_schema::{self, SchemaProblem};

/// More would not help anybody who repairs the answer.
const PROBLEMS_MAX: usize = 10;

/// What is wrong with a value. Empty if it conforms.
pub fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let validator = match validator(schema) {
        Ok(validator) => validator,
        Err(why) => return vec![excerpt(&format!("the schema itself is wrong: {why}"))],
    };
    let mut problems: Vec<String> = validator
        .iter_errors(value)
        .take(PROBLEMS_MAX)
        .map(|why| {
            let place = why.instance_path().to_string();
            excerpt(&if place.is_empty() { why.to_string() } else { format!("at {place}: {why}") })
        })
        .collect();
    problems.dedup();
    problems
}

/// What is wrong with a schema itself, which no answer can conform to.
pub(super) fn schema_problem(schema: &Value) -> Option<String> {
    validator(schema).err().map(|why| excerpt(&why))
}

fn validator(schema: &Value) -> Result<jsonschema::Validator, String> {
    json_schema::validator(schema).map_err(|SchemaProblem { at, why }| match at.is_empty() {
        true => why,
        false => format!("at {at}: {why}"),
    })
}

/// What became of an answer under a schema.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ConformedAnswer {
    pub(super) value: Option<Value>,
    pub(super) problems: Vec<String>,
}

/// Reads the answer as data if the request has a schema.
pub(super) fn check(schema: Option<&OutputSchema>, response: &ChatResponse) -> ConformedAnswer {
    let Some(OutputSchema { schema, .. }) = schema else { return ConformedAnswer::default() };
    // The answer is still to come.
    if !response.said.tool_calls.is_empty() {
        return ConformedAnswer::default();
    }
    let wrong = |problem: String| ConformedAnswer { value: None, problems: vec![problem] };
    match response.stop {
        StopReason::Length => return wrong("the answer was cut at the limit of tokens; make it shorter".into()),
        StopReason::Refusal => return wrong("the model refused to answer".into()),
        StopReason::End | StopReason::ToolCalls | StopReason::Other(_) => {}
    }
    let value = match serde_json::from_str(without_fence(&response.said.content)) {
        Ok(value) => value,
        Err(why) => return wrong(format!("the answer is no JSON: {why}")),
    };
    match problems(schema, &value) {
        none if none.is_empty() => ConformedAnswer { value: Some(value), problems: none },
        problems => ConformedAnswer { value: None, problems },
    }
}

/// Models that were not held to the schema like to put data in a fence.
pub(crate) fn without_fence(text: &str) -> &str {
    let text = text.trim();
    let inner = || {
        let (_, rest) = text.strip_prefix("```")?.split_once('\n')?;
        Some(rest.strip_suffix("```")?.trim())
    };
    inner().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::capability::model::{AssistantMessage, ToolCall, Usage};

    fn said(content: &str) -> ChatResponse {
        let said = AssistantMessage { content: content.into(), tool_calls: Vec::new() };
        ChatResponse { said, stop: StopReason::End, usage: Usage::default(), model: "m".into(), id: None }
    }

    fn number() -> OutputSchema {
        let schema =
            json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]});
        OutputSchema { name: "number".into(), schema }
    }

    #[test]
    fn a_valid_answer_is_a_value() {
        for text in [r#"{"n": 3}"#, " {\"n\": 3}\n", "```json\n{\"n\": 3}\n```", "```\n{\"n\": 3}```"] {
            let wanted = ConformedAnswer { value: Some(json!({"n": 3})), problems: Vec::new() };
            assert_eq!(check(Some(&number()), &said(text)), wanted, "{text}");
        }
        assert_eq!(check(None, &said("{")), ConformedAnswer::default());
    }

    #[test]
    fn a_wrong_answer_says_where_and_what() {
        let problems = |text: &str| check(Some(&number()), &said(text)).problems;
        assert_eq!(problems(r#"{"n": 0}"#), ["at /n: 0 is less than the minimum of 1"]);
        assert_eq!(problems("{}"), ["\"n\" is a required property"]);
        assert_eq!(problems("{\"n\": 1"), ["the answer is no JSON: EOF while parsing an object at line 1 column 7"]);
        let long = check(Some(&number()), &said(&json!({"n": "x".repeat(100_000)}).to_string()));
        assert!(long.problems[0].len() < 1_000 && long.value.is_none());
        let mut cut = said(r#"{"n": 1}"#);
        cut.stop = StopReason::Length;
        assert_eq!(check(Some(&number()), &cut).problems.len(), 1);
    }

    #[test]
    fn while_tools_are_called_there_is_no_answer() {
        let mut calling = said("let me see");
        calling.said.tool_calls = vec![ToolCall { id: "1".into(), name: "t".into(), arguments: json!({}) }];
        assert_eq!(check(Some(&number()), &calling), ConformedAnswer::default());
    }

    #[test]
    fn a_schema_is_not_fetched() {
        for reference in ["https://127.0.0.1:1/s.json", "file:///etc/passwd", "other.json"] {
            let problems = problems(&json!({"$ref": reference}), &json!(1));
            assert!(problems[0].contains("schema itself is wrong") && !problems[0].contains("root:"), "{problems:?}");
        }
        assert_eq!(problems(&json!({"type": "nonsense"}), &json!(1)).len(), 1);
    }

    #[test]
    fn many_problems_are_told_in_part() {
        let schema = json!({"items": {"type": "integer"}});
        let all: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        assert_eq!(problems(&schema, &json!(all)).len(), PROBLEMS_MAX);
    }
}
