//! Data from a JSON Schema.
//!
//! Invariant: deterministic in schema and seed; ends for every schema, also one that contains itself (below a depth only
//! what is required is made, and below twice that nothing). It knows the keywords that people use; whoever calls it
//! checks the result, since patterns and conditions are not understood. Pure.

use serde_json::{Map, Value, json};

/// Below it, what may be left out is.
const DEPTH: usize = 6;

/// More parts than that are not made: a schema that contains itself several times would grow without measure.
const PARTS_MAX: u32 = 20_000;

pub(super) struct Generator<'a> {
    root: &'a Value,
    numbers: blake3::OutputReader,
    parts: u32,
}

const WORDS: [&str; 12] = [
    "anchor", "beacon", "compass", "deck", "ensign", "fathom", "galley", "harbour", "islet", "jetty", "keel", "lantern",
];

impl<'a> Generator<'a> {
    pub(super) fn new(root: &'a Value, seed: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(seed.as_bytes());
        Generator { root, numbers: hasher.finalize_xof(), parts: 0 }
    }

    pub(super) fn value(&mut self) -> Value {
        self.of(self.root, 0)
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        let mut bytes = [0; 8];
        self.numbers.fill(&mut bytes);
        u64::from_le_bytes(bytes) % end.max(1)
    }

    fn pick<'b, T>(&mut self, all: &'b [T]) -> Option<&'b T> {
        let place = self.below(all.len() as u64);
        all.get(usize::try_from(place).unwrap_or(0))
    }

    fn of(&mut self, schema: &Value, depth: usize) -> Value {
        let Some(map) = schema.as_object() else { return json!("anything") };
        self.parts += 1;
        if depth > DEPTH * 2 || self.parts > PARTS_MAX {
            return Value::Null;
        }
        if let Some(value) = map.get("const") {
            return value.clone();
        }
        if let Some(value) = map.get("enum").and_then(Value::as_array).and_then(|all| self.pick(all)) {
            return value.clone();
        }
        if let Some(found) = map.get("$ref").and_then(Value::as_str).and_then(|reference| self.lookup(reference)) {
            return self.of(found, depth + 1);
        }
        if let Some(all) = map.get("allOf").and_then(Value::as_array) {
            return self.of(&self.merged(map, all), depth + 1);
        }
        for choice in ["oneOf", "anyOf"] {
            if let Some(all) = map.get(choice).and_then(Value::as_array) {
                return self.one_of(all, depth);
            }
        }
        self.typed(map, depth)
    }

    fn one_of(&mut self, all: &[Value], depth: usize) -> Value {
        let is_null = |schema: &&Value| schema.get("type").is_some_and(|of| of == "null");
        let null = all.iter().find(is_null);
        let rest: Vec<&Value> = all.iter().filter(|schema| !is_null(schema)).collect();
        match (null, self.pick(&rest)) {
            (Some(_), _) if depth > DEPTH => Value::Null,
            (_, Some(schema)) => self.of(schema, depth + 1),
            (_, None) => Value::Null,
        }
    }

    /// A schema that stands in the same document.
    fn lookup(&self, reference: &str) -> Option<&'a Value> {
        let pointer = reference.strip_prefix('#')?;
        self.root.pointer(pointer)
    }

    /// One schema of several that hold together; enough for properties, required names and limits.
    fn merged(&self, map: &Map<String, Value>, all: &[Value]) -> Value {
        let mut merged = map.clone();
        merged.remove("allOf");
        for schema in all {
            let schema = schema.get("$ref").and_then(Value::as_str).and_then(|of| self.lookup(of)).unwrap_or(schema);
            for (name, value) in schema.as_object().into_iter().flatten() {
                match (merged.get_mut(name), value) {
                    (Some(Value::Object(ours)), Value::Object(theirs)) => {
                        ours.extend(theirs.iter().map(|(name, value)| (name.clone(), value.clone())));
                    }
                    (Some(Value::Array(ours)), Value::Array(theirs)) => ours.extend(theirs.iter().cloned()),
                    _ => drop(merged.insert(name.clone(), value.clone())),
                }
            }
        }
        Value::Object(merged)
    }

    fn typed(&mut self, map: &Map<String, Value>, depth: usize) -> Value {
        let named = match map.get("type") {
            Some(Value::String(name)) => Some(name.as_str()),
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
            _ if map.contains_key("properties") => Some("object"),
            _ if map.contains_key("items") => Some("array"),
            _ => None,
        };
        match named {
            Some("object") => self.object(map, depth),
            Some("array") => self.array(map, depth),
            Some("integer") => self.integer(map),
            Some("number") => self.number(map),
            Some("boolean") => json!(self.below(2) == 0),
            Some("null") => Value::Null,
            _ => self.string(map),
        }
    }

    fn object(&mut self, map: &Map<String, Value>, depth: usize) -> Value {
        let required: Vec<&str> =
            map.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let mut made = Map::new();
        let properties = map.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            if depth < DEPTH || required.contains(&name.as_str()) {
                made.insert(name.clone(), self.of(schema, depth + 1));
            }
        }
        for name in required {
            if !made.contains_key(name) {
                let schema = map.get("additionalProperties").cloned().unwrap_or(Value::Null);
                made.insert(name.to_owned(), self.of(&schema, depth + 1));
            }
        }
        Value::Object(made)
    }

    fn array(&mut self, map: &Map<String, Value>, depth: usize) -> Value {
        let count = |name: &str| map.get(name).and_then(Value::as_u64);
        let least = count("minItems").unwrap_or(0).min(1_000);
        let wished = if depth < DEPTH { 1 + self.below(2) } else { 0 };
        let length = wished.max(least).min(count("maxItems").unwrap_or(u64::MAX));
        let first = map.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let length = length.max(first.len() as u64);
        let rest = map.get("items").unwrap_or(&Value::Null);
        let distinct = map.get("uniqueItems") == Some(&Value::Bool(true));
        let mut made: Vec<Value> = Vec::new();
        for place in 0..usize::try_from(length).unwrap_or(0) {
            let schema = first.get(place).unwrap_or(rest);
            let mut value = self.of(schema, depth + 1);
            // Some tries find another one, if there is one.
            for _ in 0..16 {
                if !distinct || !made.contains(&value) {
                    break;
                }
                value = self.of(schema, depth + 1);
            }
            if !distinct || !made.contains(&value) {
                made.push(value);
            }
        }
        Value::Array(made)
    }

    fn integer(&mut self, map: &Map<String, Value>) -> Value {
        let limit = |name: &str| map.get(name).and_then(Value::as_f64);
        let least = limit("minimum").map(f64::ceil).or_else(|| limit("exclusiveMinimum").map(|n| n.floor() + 1.0));
        let most = limit("maximum").map(f64::floor).or_else(|| limit("exclusiveMaximum").map(|n| n.ceil() - 1.0));
        let (least, most) = match (least, most) {
            (Some(least), Some(most)) => (least, most),
            (Some(least), None) => (least, least + 100.0),
            (None, Some(most)) => (most - 100.0, most),
            (None, None) => (0.0, 100.0),
        };
        let step = limit("multipleOf").filter(|step| *step >= 1.0).unwrap_or(1.0);
        let steps = ((most / step).floor() - (least / step).ceil()).clamp(0.0, 1_000.0);
        let value = ((least / step).ceil() + self.below(steps as u64 + 1) as f64) * step;
        json!(value as i64)
    }

    fn number(&mut self, map: &Map<String, Value>) -> Value {
        let limit = |name: &str| map.get(name).and_then(Value::as_f64);
        let least = limit("minimum").or_else(|| limit("exclusiveMinimum"));
        let most = limit("maximum").or_else(|| limit("exclusiveMaximum"));
        let (least, most) = match (least, most) {
            (Some(least), Some(most)) => (least, most),
            (Some(least), None) => (least, least + 100.0),
            (None, Some(most)) => (most - 100.0, most),
            (None, None) => (0.0, 100.0),
        };
        if let Some(step) = limit("multipleOf").filter(|step| *step > 0.0) {
            return json!((least / step).floor() * step + step);
        }
        // Never at a border, which may be excluded.
        json!(least + (most - least) * (self.below(998) + 1) as f64 / 1_000.0)
    }

    fn string(&mut self, map: &Map<String, Value>) -> Value {
        let formatted = match map.get("format").and_then(Value::as_str) {
            Some("date-time") => "2026-01-02T03:04:05Z",
            Some("date") => "2026-01-02",
            Some("time") => "03:04:05Z",
            Some("email") => "bosun@example.com",
            Some("uri" | "url") => "https://example.com/",
            Some("uuid") => "0198c0de-0000-7000-8000-000000000000",
            Some("ipv4") => "192.0.2.1",
            Some("ipv6") => "2001:db8::1",
            Some("hostname") => "example.com",
            _ => "",
        };
        if !formatted.is_empty() {
            return json!(formatted);
        }
        let limit = |name: &str| map.get(name).and_then(Value::as_u64);
        let least = usize::try_from(limit("minLength").unwrap_or(0).min(100_000)).unwrap_or(0);
        let most = usize::try_from(limit("maxLength").unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let mut text = String::new();
        loop {
            text.push_str(self.pick(&WORDS).copied().unwrap_or_default());
            if text.len() >= least {
                break;
            }
            text.push(' ');
        }
        text.truncate(most);
        json!(text)
    }
}
