//! From data to types, strictly, with the place and our own words in every complaint.
//!
//! Invariant: nothing is coerced, no unknown key is passed over, and an error says where it is. It knows no spec.

use std::fmt::Display;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};
use serde_json::Value;

use crate::supervisor::fields::{FieldError, kind, similar};

/// The value as a `T`.
pub(super) fn typed<T: DeserializeOwned>(value: &Value) -> Result<T, FieldError> {
    T::deserialize(At { value, path: String::new() })
        .map_err(|why| FieldError::at(why.path.unwrap_or_default(), why.problem))
}

/// What is wrong; the place is added on the way out.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
struct WrongType {
    path: Option<String>,
    /// The key below the place.
    key: Option<String>,
    problem: String,
}

impl WrongType {
    fn new(problem: String) -> Self {
        WrongType { path: None, key: None, problem }
    }
    /// The innermost place wins.
    fn at(mut self, path: &str) -> Self {
        if self.path.is_none() {
            let key = self.key.take();
            self.path = Some(key.map_or_else(|| path.to_owned(), |key| below(path, &key)));
        }
        self
    }
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

impl serde::de::Error for WrongType {
    fn custom<T: Display>(why: T) -> Self {
        WrongType::new(why.to_string())
    }
    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        WrongType::new(format!("expected {}, found {}", words(&wanted.to_string()), found_words(&found)))
    }
    fn invalid_value(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Unsigned(number) => number.to_string(),
            Unexpected::Signed(number) => number.to_string(),
            Unexpected::Float(number) => number.to_string(),
            Unexpected::Str(text) => format!("`{text}`"),
            other => found_words(&other).to_owned(),
        };
        WrongType::new(format!("expected {}, found {found}", words(&wanted.to_string())))
    }
    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        // `on` without quotes, as older YAML has read it.
        let of_yaml = key == "true" && known.contains(&"on");
        let quoted = || " (quote `on`: YAML 1.1 reads it as true)".to_owned();
        let hint = if of_yaml { quoted() } else { hint(key, known) };
        let problem = format!("unknown key `{key}`{hint}; known keys: {}", known.join(", "));
        WrongType { path: None, key: Some(key.to_owned()), problem }
    }
    fn unknown_variant(value: &str, known: &'static [&'static str]) -> Self {
        WrongType::new(format!("unknown value `{value}`{}; known values: {}", hint(value, known), known.join(", ")))
    }
    fn missing_field(key: &'static str) -> Self {
        let problem = format!("required key `{key}` is missing");
        WrongType { path: None, key: Some(key.to_owned()), problem }
    }
    fn duplicate_field(key: &'static str) -> Self {
        WrongType { path: None, key: Some(key.to_owned()), problem: format!("the key `{key}` is given twice") }
    }
}

fn hint(text: &str, known: &[&str]) -> String {
    similar(text, known).map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"))
}

/// What serde expects, in the words of our own readers.
fn words(wanted: &str) -> &str {
    match wanted {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a string" => "a text",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a mapping",
        other if other.starts_with("struct ") => "a mapping",
        other if other.starts_with("enum ") => "one of its known values",
        other => other,
    }
}

fn found_words(found: &Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Bool(_) => "true or false",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => "a number",
        Unexpected::Char(_) | Unexpected::Str(_) | Unexpected::Bytes(_) => "a text",
        Unexpected::Unit | Unexpected::Option => "nothing",
        Unexpected::Seq => "a list",
        _ => "a mapping",
    }
}

/// A value and its place.
struct At<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> At<'a> {
    fn visit<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, WrongType> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::String(text) => visitor.visit_str(text),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), _, _) => visitor.visit_u64(number),
                (None, Some(number), _) => visitor.visit_i64(number),
                (None, None, Some(number)) => visitor.visit_f64(number),
                (None, None, None) => Err(WrongType::new(format!("the number {number} is too large"))),
            },
            Value::Array(list) => visitor.visit_seq(Items { list, next: 0, path: &self.path }),
            Value::Object(map) => visitor.visit_map(MapEntries { entries: map.iter(), value: None, path: &self.path }),
        }
    }
}

impl<'de> Deserializer<'de> for At<'_> {
    type Error = WrongType;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongType> {
        self.visit(visitor).map_err(|why| why.at(&self.path))
    }
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongType> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, WrongType> {
        visitor.visit_newtype_struct(self)
    }
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WrongType> {
        let path = self.path.clone();
        let chosen = match self.value {
            Value::String(name) => Chosen { name, value: None, path: &path },
            Value::Object(map) if map.len() == 1 => {
                let (name, value) = map.iter().next().unwrap_or_else(|| unreachable!("it has one entry"));
                Chosen { name, value: Some(value), path: &path }
            }
            other => {
                let found = kind(other);
                return Err(
                    WrongType::new(format!("expected a text or a mapping with one key, found {found}")).at(&path)
                );
            }
        };
        visitor.visit_enum(chosen).map_err(|why| why.at(&path))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

struct Items<'a> {
    list: &'a [Value],
    next: usize,
    path: &'a str,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = WrongType;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, WrongType> {
        let Some(value) = self.list.get(self.next) else { return Ok(None) };
        let path = format!("{}[{}]", self.path, self.next);
        self.next += 1;
        seed.deserialize(At { value, path: path.clone() }).map(Some).map_err(|why| why.at(&path))
    }
}

struct MapEntries<'a> {
    entries: serde_json::map::Iter<'a>,
    value: Option<(&'a str, &'a Value)>,
    path: &'a str,
}

impl<'de> MapAccess<'de> for MapEntries<'_> {
    type Error = WrongType;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, WrongType> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        self.value = Some((key, value));
        let name: StrDeserializer<'_, WrongType> = key.as_str().into_deserializer();
        // An unknown key already names itself; whatever else is wrong with a key is at that key.
        let place = |why: WrongType| if why.key.is_some() { why.at(self.path) } else { why.at(&below(self.path, key)) };
        seed.deserialize(name).map(Some).map_err(place)
    }
    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, WrongType> {
        let Some((key, value)) = self.value.take() else {
            return Err(WrongType::new("a value without a key".to_owned()));
        };
        let path = below(self.path, key);
        // A type that judges the text it has read is judged here.
        seed.deserialize(At { value, path: path.clone() }).map_err(|why| why.at(&path))
    }
}

/// A variant by its name, with its value if it is a mapping.
struct Chosen<'a> {
    name: &'a str,
    value: Option<&'a Value>,
    path: &'a str,
}

impl<'a, 'de> EnumAccess<'de> for Chosen<'a> {
    type Error = WrongType;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), WrongType> {
        let name: StrDeserializer<'_, WrongType> = self.name.into_deserializer();
        let variant = seed.deserialize(name).map_err(|why| why.at(self.path))?;
        Ok((variant, self))
    }
}

impl Chosen<'_> {
    fn inner(&self) -> Result<At<'_>, WrongType> {
        match self.value {
            Some(value) => Ok(At { value, path: below(self.path, self.name) }),
            None => Err(WrongType::new(format!("`{}` needs a value: `{}: ...`", self.name, self.name))),
        }
    }
}

impl<'de> VariantAccess<'de> for Chosen<'_> {
    type Error = WrongType;

    fn unit_variant(self) -> Result<(), WrongType> {
        match self.value {
            None => Ok(()),
            Some(_) => Err(WrongType::new(format!("`{}` takes no value", self.name))),
        }
    }
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, WrongType> {
        seed.deserialize(self.inner()?)
    }
    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, WrongType> {
        self.inner()?.deserialize_any(visitor)
    }
    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, WrongType> {
        self.inner()?.deserialize_any(visitor)
    }
}
