//! Search attributes and memos of a program: mappings of names to values.
//!
//! Invariant: a wrong name or value fails the step that names it, with its path.

use bosun_engine::{Failure, FieldName, Memo, Payload, SearchAttributes, SearchValue};
use serde_json::Value;

use super::interpret::wrong;
use super::program::ProgramStep;

fn named<'a>(step: &ProgramStep, value: &'a Value) -> Result<Vec<(FieldName, &'a Value)>, Failure> {
    let map = value.as_object().ok_or_else(|| wrong(step, format!("expected a mapping, found {value}")))?;
    let name = |name: &String| FieldName::new(name).map_err(|why| wrong(step, why.to_string()));
    map.iter().map(|(key, value)| Ok((name(key)?, value))).collect()
}

pub(super) fn attributes_of(step: &ProgramStep, value: &Value) -> Result<SearchAttributes, Failure> {
    let attribute = |value: &Value| {
        Some(match value {
            Value::Null => SearchValue::Unset,
            Value::Bool(value) => SearchValue::Bool(*value),
            Value::String(text) => SearchValue::Keyword(text.clone()),
            Value::Number(number) => match number.as_i64() {
                Some(number) => SearchValue::Int(number),
                None => SearchValue::Float(number.as_f64()?),
            },
            Value::Array(list) => SearchValue::KeywordList(
                list.iter().map(|text| text.as_str().map(str::to_owned)).collect::<Option<_>>()?,
            ),
            Value::Object(_) => return None,
        })
    };
    let wrong = |value: &Value| wrong(step, format!("{value} cannot be a search attribute"));
    let named = named(step, value)?;
    named.into_iter().map(|(name, value)| Ok((name, attribute(value).ok_or_else(|| wrong(value))?))).collect()
}

pub(super) fn memo_of(step: &ProgramStep, value: &Value) -> Result<Memo, Failure> {
    named(step, value)?.into_iter().map(|(name, value)| Ok((name, Payload::encode(value)?))).collect()
}
