//! The shape of JSON that a spec or a plan asks for, as JSON Schema.
//!
//! Invariant: a word that is not known is refused when the spec or the plan is read, never ignored. Where the few words
//! suffice that are known here, what does not fit is told in our own words, which older runs have recorded; all other
//! words are judged by a library.

use serde_json::Value;

use super::fields::{FieldError, Fields, kind};
use crate::json_schema;

/// What a value must look like.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    Few(FewWords),
    All(jsonschema::Validator),
}

impl Shape {
    pub(crate) fn read(path: &str, value: &Value) -> Result<Shape, FieldError> {
        let why = match FewWords::read(path, value) {
            Ok(few) => return Ok(Shape::Few(few)),
            Err(why) => why,
        };
        let judge = json_schema::strict(value).map_err(|problem| {
            // Of the few words our own text says what may stand there.
            let at = problem.under(path);
            if at == why.path { why } else { FieldError::at(at, problem.why) }
        });
        judge.map(Shape::All)
    }

    /// The first thing that does not fit, with its place.
    pub(crate) fn broken(&self, path: &str, value: &Value) -> Option<String> {
        match self {
            Shape::Few(few) => few.broken(path, value),
            Shape::All(judge) => json_schema::differences(judge, path, value, 1).pop(),
        }
    }
}

/// The words that rule critics needed first.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FewWords {
    kinds: Vec<JsonType>,
    required: Vec<String>,
    properties: Vec<(String, FewWords)>,
    items: Option<Box<FewWords>>,
    one_of: Vec<Value>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    /// Characters of a text or entries of a list.
    length_min: Option<u64>,
    length_max: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonType {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

const KINDS: [(&str, JsonType); 7] = [
    ("null", JsonType::Null),
    ("boolean", JsonType::Boolean),
    ("integer", JsonType::Integer),
    ("number", JsonType::Number),
    ("string", JsonType::String),
    ("array", JsonType::Array),
    ("object", JsonType::Object),
];
const KEYS: [&str; 11] = [
    "type",
    "required",
    "properties",
    "items",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
];

impl FewWords {
    fn read(path: &str, value: &Value) -> Result<FewWords, FieldError> {
        let fields = Fields::read(value, path, &KEYS)?;
        let named = |name: &String| {
            let found = KINDS.iter().find(|(known, _)| known == name).map(|(_, kind)| *kind);
            found.ok_or_else(|| fields.error("type", format!("`{name}` is no JSON type")))
        };
        let number = |key: &str| match fields.value(key) {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| fields.error(key, "expected a number")),
        };
        let properties = match fields.value("properties") {
            None => Vec::new(),
            Some(Value::Object(map)) => {
                let one = |(name, shape): (&String, &Value)| {
                    let path = format!("{}.{name}", fields.path_of("properties"));
                    FewWords::read(&path, shape).map(|shape| (name.clone(), shape))
                };
                map.iter().map(one).collect::<Result<_, _>>()?
            }
            Some(other) => {
                return Err(fields.error("properties", format!("expected a mapping, found {}", kind(other))));
            }
        };
        let items = fields.value("items").map(|shape| FewWords::read(&fields.path_of("items"), shape)).transpose()?;
        Ok(FewWords {
            kinds: fields.one_or_more_texts("type")?.iter().map(named).collect::<Result<_, _>>()?,
            required: fields.texts("required")?,
            properties,
            items: items.map(Box::new),
            one_of: fields.list("enum")?.unwrap_or_default().to_vec(),
            minimum: number("minimum")?,
            maximum: number("maximum")?,
            length_min: fields.natural("minLength")?.or(fields.natural("minItems")?),
            length_max: fields.natural("maxLength")?.or(fields.natural("maxItems")?),
        })
    }

    fn broken(&self, path: &str, value: &Value) -> Option<String> {
        if !self.kinds.is_empty() && !self.kinds.iter().any(|kind| kind.fits(value)) {
            let wanted: Vec<&str> = self.kinds.iter().map(|kind| kind.name()).collect();
            return Some(format!("{path} is {}, expected {}", kind(value), wanted.join(" or ")));
        }
        if !self.one_of.is_empty() && !self.one_of.contains(value) {
            let wanted: Vec<String> = self.one_of.iter().map(Value::to_string).collect();
            return Some(format!("{path} is {value}, expected one of {}", wanted.join(", ")));
        }
        if let Some(found) = value.as_f64() {
            if let Some(min) = self.minimum.filter(|min| found < *min) {
                return Some(format!("{path} is {value}, at least {min} is needed"));
            }
            if let Some(max) = self.maximum.filter(|max| found > *max) {
                return Some(format!("{path} is {value}, at most {max} is allowed"));
            }
        }
        let length = match value {
            Value::String(text) => Some(text.chars().count() as u64),
            Value::Array(list) => Some(list.len() as u64),
            _ => None,
        };
        if let (Some(length), Some(min)) = (length, self.length_min)
            && length < min
        {
            return Some(format!("{path} has length {length}, at least {min} is needed"));
        }
        if let (Some(length), Some(max)) = (length, self.length_max)
            && length > max
        {
            return Some(format!("{path} has length {length}, at most {max} is allowed"));
        }
        self.broken_inside(path, value)
    }

    fn broken_inside(&self, path: &str, value: &Value) -> Option<String> {
        if let Value::Object(map) = value {
            if let Some(name) = self.required.iter().find(|name| !map.contains_key(*name)) {
                return Some(format!("{path} has no `{name}`"));
            }
            let inside = |(name, shape): &(String, FewWords)| shape.broken(&format!("{path}.{name}"), map.get(name)?);
            return self.properties.iter().find_map(inside);
        }
        match (value, &self.items) {
            (Value::Array(list), Some(items)) => {
                list.iter().enumerate().find_map(|(i, value)| items.broken(&format!("{path}[{i}]"), value))
            }
            _ => None,
        }
    }
}

impl JsonType {
    fn fits(self, value: &Value) -> bool {
        match self {
            JsonType::Null => value.is_null(),
            JsonType::Boolean => value.is_boolean(),
            JsonType::Integer => value.is_i64() || value.is_u64(),
            JsonType::Number => value.is_number(),
            JsonType::String => value.is_string(),
            JsonType::Array => value.is_array(),
            JsonType::Object => value.is_object(),
        }
    }
    fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_shape_names_the_first_place_that_does_not_fit() {
        let shape = json!({
            "type": "object", "required": ["list"],
            "properties": {
                "list": { "type": "array", "minItems": 1, "items": { "type": ["string", "null"], "maxLength": 2 } },
                "mode": { "enum": ["a", "b"] },
            },
        });
        let shape = Shape::read("json", &shape).unwrap();
        let broken = |value| shape.broken("it", &value).unwrap_or_default();
        assert_eq!(broken(json!({ "list": ["x", null], "mode": "a", "more": 1 })), "");
        assert_eq!(broken(json!([])), "it is a list, expected object");
        assert_eq!(broken(json!({ "list": [] })), "it.list has length 0, at least 1 is needed");
        assert_eq!(broken(json!({ "list": ["x", 1] })), "it.list[1] is a number, expected string or null");
        assert_eq!(broken(json!({ "list": ["xyz"] })), "it.list[0] has length 3, at most 2 is allowed");
        assert_eq!(broken(json!({ "list": ["x"], "mode": "c" })), "it.mode is \"c\", expected one of \"a\", \"b\"");
    }

    #[test]
    fn other_words_of_json_schema_are_obeyed() {
        let shape = Shape::read("json", &json!({ "type": "object", "additionalProperties": false })).unwrap();
        assert_eq!(shape.broken("it", &json!({})), None);
        // In the words of the library that judges.
        let why = shape.broken("it", &json!({ "a": 1 })).unwrap();
        assert!(why.starts_with("it"), "{why}");
    }

    #[test]
    fn unknown_words_of_json_schema_are_refused() {
        let why = Shape::read("json", &json!({ "properties": { "a": { "lenght": 3 } } })).unwrap_err();
        assert!(why.to_string().starts_with("json.properties.a.lenght: unknown key `lenght`"), "{why}");
        let why = Shape::read("json", &json!({ "title": "T", "properties": { "a": { "lenght": 3 } } })).unwrap_err();
        assert!(why.to_string().starts_with("json.properties.a.lenght: `lenght` is no word of JSON Schema"), "{why}");
        assert!(Shape::read("json", &json!({ "properties": { "a": { "$ref": "#/x" } } })).is_err());
        let why = Shape::read("json", &json!({ "type": "text" })).unwrap_err();
        assert_eq!(why.to_string(), "json.type: `text` is no JSON type");
    }
}
