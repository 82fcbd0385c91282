//! Reading JSON from strangers: bounded in bytes, depth and number of values, and unambiguous.
//!
//! Invariant: memory is bounded by the limits, whatever the text is; an object that names a key twice is refused, because
//! two readers could take it for two different things. What the values mean is not decided here.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// How much JSON is read before it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonLimits {
    /// The longest text.
    pub bytes: usize,
    /// Levels of arrays and objects. Not above [`JsonLimits::DEPTH_MAX`].
    pub depth: usize,
    /// The most values.
    pub values: usize,
}

impl JsonLimits {
    /// The parser's own recursion limit is 128; ours comes first, so that the error is ours too.
    pub const DEPTH_MAX: usize = 120;
}

impl Default for JsonLimits {
    fn default() -> Self {
        JsonLimits { bytes: 64 << 20, depth: Self::DEPTH_MAX, values: 4_000_000 }
    }
}

/// Why a text was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonRefused {
    /// The text is longer than is read.
    #[error("the file has more than {limit} bytes, and no longer one is read")]
    TooLarge {
        /// As far as it was read.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// Objects and arrays stand in each other too deep.
    #[error("more than {limit} levels of nesting")]
    TooDeep {
        /// The deepest nesting that is read.
        limit: usize,
    },
    /// The text holds more values than are read.
    #[error("more than {limit} JSON values")]
    TooManyValues {
        /// How many are read.
        limit: usize,
    },
    /// Readers would disagree about which of the two counts.
    #[error("the key {key:?} stands twice in one object, at line {line}")]
    DuplicateKey {
        /// The key.
        key: String,
        /// Where it stands the second time, from 1.
        line: usize,
    },
    /// It is no JSON.
    #[error("not JSON: {why}")]
    Syntax {
        /// What the parser says, with the place.
        why: String,
    },
}

pub(crate) fn read(bytes: &[u8], limits: JsonLimits) -> Result<Value, JsonRefused> {
    if bytes.len() > limits.bytes {
        return Err(JsonRefused::TooLarge { length: bytes.len(), limit: limits.bytes });
    }
    let limits = JsonLimits { depth: limits.depth.min(JsonLimits::DEPTH_MAX), ..limits };
    let reader = JsonReader { limits, values: Cell::new(0), refused: Cell::new(None) };
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    let read = JsonNode { reader: &reader, depth: 0 }.deserialize(&mut parser).and_then(|value| {
        parser.end()?;
        Ok(value)
    });
    read.map_err(|why| match reader.refused.take() {
        Some(JsonRefused::DuplicateKey { key, .. }) => JsonRefused::DuplicateKey { key, line: why.line() },
        Some(refused) => refused,
        None => JsonRefused::Syntax { why: why.to_string() },
    })
}

struct JsonReader {
    limits: JsonLimits,
    values: Cell<usize>,
    /// The parser carries only text errors; ours waits here.
    refused: Cell<Option<JsonRefused>>,
}

impl JsonReader {
    fn refuse<E: Error>(&self, why: JsonRefused) -> E {
        let error = E::custom(&why);
        self.refused.set(Some(why));
        error
    }
    fn count<E: Error>(&self) -> Result<(), E> {
        self.values.set(self.values.get() + 1);
        if self.values.get() > self.limits.values {
            return Err(self.refuse(JsonRefused::TooManyValues { limit: self.limits.values }));
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct JsonNode<'a> {
    reader: &'a JsonReader,
    depth: usize,
}

impl JsonNode<'_> {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        if self.depth >= self.reader.limits.depth {
            return Err(self.reader.refuse(JsonRefused::TooDeep { limit: self.reader.limits.depth }));
        }
        Ok(JsonNode { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for JsonNode<'_> {
    type Value = Value;
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.reader.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonNode<'_> {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut object = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(self.reader.refuse(JsonRefused::DuplicateKey { key, line: 0 }));
            }
            let value = fields.next_value_seed(inner)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_and_ambiguity_is_named() {
        let limits = JsonLimits { bytes: 40, depth: 3, values: 7 };
        for (text, expected) in [
            ("[1, [2, [3]], {}]", "Ok"),
            ("[[[[1]]]]", "TooDeep { limit: 3 }"),
            ("[1,2,3,4,5,6,7]", "TooManyValues { limit: 7 }"),
            ("[1,2,3,4,5                               ]", "TooLarge { length: 42, limit: 40 }"),
            ("{\"a\":1,\n\"a\":2}", "DuplicateKey { key: \"a\", line: 2 }"),
            ("[1] 2", "Syntax { why: \"trailing characters at line 1 column 5\" }"),
            ("\u{1}", "Syntax { why: \"expected value at line 1 column 1\" }"),
        ] {
            let found = read(text.as_bytes(), limits).map_or_else(|why| format!("{why:?}"), |_| "Ok".into());
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn depth_beyond_the_parsers_own_limit_is_refused_by_ours() {
        let text = "[".repeat(100_000);
        let refused = read(text.as_bytes(), JsonLimits { depth: usize::MAX, ..JsonLimits::default() });
        assert_eq!(refused, Err(JsonRefused::TooDeep { limit: JsonLimits::DEPTH_MAX }));
    }
}
