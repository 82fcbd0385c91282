//! Reading a strict mapping: every key is known, every value has its type, every complaint names its place.
//!
//! Invariant: a mapping is refused if it has a key that was not read. Nothing is coerced: `"3"` is no number. It knows no
//! plan; plans, work parameters and reviews are read with it.

use std::time::Duration;

use serde_json::{Map, Value};

/// What is wrong with a value, and where: `tasks[1].parameters.argv[0]: expected a text, found a number`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct FieldError {
    pub path: String,
    pub problem: String,
    /// What else is wrong, where more than one fault was looked for; none of these has others of its own.
    pub others: Vec<FieldError>,
}

impl FieldError {
    pub(crate) fn at(path: impl Into<String>, problem: impl Into<String>) -> Self {
        FieldError { path: path.into(), problem: problem.into(), others: Vec::new() }
    }
}

type FieldResult<T> = Result<T, FieldError>;

/// A mapping and its place.
#[derive(Clone)]
pub(crate) struct Fields<'a> {
    path: String,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The mapping at `path`, all of whose keys are in `known`.
    pub(crate) fn read(value: &'a Value, path: &str, known: &[&str]) -> FieldResult<Self> {
        let Value::Object(map) = value else {
            return Err(FieldError::at(path, format!("expected a mapping, found {}", kind(value))));
        };
        let fields = Fields { path: path.to_owned(), map };
        match map.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => {
                let hint = similar(key, known).map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
                let problem = format!("unknown key `{key}`{hint}; known keys: {}", known.join(", "));
                Err(FieldError::at(fields.path_of(key), problem))
            }
            None => Ok(fields),
        }
    }

    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
    pub(crate) fn error(&self, key: &str, problem: impl Into<String>) -> FieldError {
        FieldError::at(self.path_of(key), problem)
    }
    /// The value of a key; a `null` is as good as none.
    pub(crate) fn value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }
    pub(crate) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }
    pub(crate) fn required<T>(&self, key: &str, found: Option<T>) -> FieldResult<T> {
        found.ok_or_else(|| self.error(key, format!("required key `{key}` is missing")))
    }
    fn wrong(&self, key: &str, wanted: &str, found: &Value) -> FieldError {
        self.error(key, format!("expected {wanted}, found {}", kind(found)))
    }

    pub(crate) fn text(&self, key: &str) -> FieldResult<Option<String>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.wrong(key, "a text", other)),
        }
    }
    pub(crate) fn required_text(&self, key: &str) -> FieldResult<String> {
        let text = self.required(key, self.text(key)?)?;
        if text.trim().is_empty() { Err(self.error(key, "the text is empty")) } else { Ok(text) }
    }
    pub(crate) fn boolean(&self, key: &str) -> FieldResult<Option<bool>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(self.wrong(key, "true or false", other)),
        }
    }
    pub(crate) fn natural(&self, key: &str) -> FieldResult<Option<u64>> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => {
                value.as_u64().map(Some).ok_or_else(|| self.wrong(key, "a whole number that is not negative", value))
            }
        }
    }
    pub(crate) fn list(&self, key: &str) -> FieldResult<Option<&'a [Value]>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(self.wrong(key, "a list", other)),
        }
    }
    /// Each entry of a list with its place; an absent list is an empty one.
    pub(crate) fn entries(&self, key: &str) -> FieldResult<Vec<(String, &'a Value)>> {
        let list = self.list(key)?.unwrap_or_default();
        Ok(list.iter().enumerate().map(|(i, value)| (format!("{}[{i}]", self.path_of(key)), value)).collect())
    }
    pub(crate) fn texts(&self, key: &str) -> FieldResult<Vec<String>> {
        self.entries(key)?.into_iter().map(|(path, value)| as_text(&path, value)).collect()
    }
    /// One text or a list of them.
    pub(crate) fn one_or_more_texts(&self, key: &str) -> FieldResult<Vec<String>> {
        match self.value(key) {
            Some(Value::String(text)) => Ok(vec![text.clone()]),
            _ => self.texts(key),
        }
    }
    /// One whole number or a list of them.
    pub(crate) fn one_or_more_integers(&self, key: &str) -> FieldResult<Vec<i64>> {
        let one = |path: &str, value: &Value| {
            value
                .as_i64()
                .ok_or_else(|| FieldError::at(path, format!("expected a whole number, found {}", kind(value))))
        };
        match self.value(key) {
            Some(value @ Value::Number(_)) => Ok(vec![one(&self.path_of(key), value)?]),
            _ => self.entries(key)?.iter().map(|(path, value)| one(path, value)).collect(),
        }
    }
    /// `90s`, `1500ms`, `2m`, `1h`, or a whole number of seconds.
    pub(crate) fn duration(&self, key: &str) -> FieldResult<Option<Duration>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let parsed = match value {
            Value::String(text) => parse_duration(text),
            other => other.as_u64().map(Duration::from_secs),
        };
        let wanted = "a duration longer than zero, such as 500ms, 30s, 5m or 1h";
        match parsed.filter(|duration| !duration.is_zero()) {
            Some(duration) => Ok(Some(duration)),
            None => Err(self.error(key, format!("expected {wanted}, found {value}"))),
        }
    }
}

pub(crate) fn as_text(path: &str, value: &Value) -> FieldResult<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(FieldError::at(path, format!("expected a text, found {}", kind(other)))),
    }
}

pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let count: u64 = text[..digits].parse().ok()?;
    let unit_ms = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    count.checked_mul(unit_ms).map(Duration::from_millis)
}

/// What a value is, for complaints.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// The known name that was probably meant: by a letter or two, else by a common part, as in `dependencies` and
/// `sub_task_dependencies`, else by few letters. Of equals, the first.
pub(crate) fn similar<'k>(text: &str, known: &[&'k str]) -> Option<&'k str> {
    let text = text.to_lowercase();
    let letters = text.chars().count();
    if letters < 2 {
        return None;
    }
    let known: Vec<(String, &str)> = known.iter().map(|name| (name.to_lowercase(), *name)).collect();
    let within = |most: usize| {
        let close = known.iter().map(|(lower, name)| (distance(&text, lower), *name));
        close.filter(|(steps, _)| *steps <= most).min_by_key(|(steps, _)| *steps).map(|(_, name)| name)
    };
    let shared = |name: &str| name.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
    let common = || {
        let has_part = |(name, _): &&(String, &str)| name.contains(&text) || shared(name) >= 4;
        let affix = |name: &str| name.ends_with(&text) || name.starts_with(&text);
        let weight = |(name, _): &&(String, &str)| if affix(name) { (true, 0) } else { (false, shared(name)) };
        known.iter().rev().filter(has_part).max_by_key(weight).map(|(_, name)| *name)
    };
    within((letters / 4).max(1)).or_else(common).or_else(|| within(1 + letters / 4))
}

/// How many letters must be changed, added or left out, or two neighbours swapped.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut steps = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                steps = steps.min(rows[i - 2][j - 2] + 1);
            }
            row.push(steps);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let parsed = ["500ms", "30s", "5m", "1h", "30", "s", "1d", "-1s", "99999999999999999h"].map(parse_duration);
        let [ms, s, m, h, rest @ ..] = parsed;
        let expected = [(ms, 500), (s, 30_000), (m, 300_000), (h, 3_600_000)];
        assert!(expected.iter().all(|(found, ms)| *found == Some(Duration::from_millis(*ms))));
        assert_eq!(rest, [None; 5]);
    }

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let presets = ["shannon-dag", "shannon-supervisor", "shannon-simple"];
        assert_eq!(similar("shanon-dag", &presets), Some("shannon-dag"));
        assert_eq!(similar("aproval", &["plan", "approval"]), Some("approval"));
        assert_eq!(similar("objective", &["sub_task_objective", "overall_objective"]), Some("sub_task_objective"));
        assert_eq!(similar("dmp", &["load", "dump"]), Some("dump"));
        assert_eq!(similar("vai", &["name", "via"]), Some("via"));
        assert_eq!(similar("excute_worker", &["plan", "execute_worker"]), Some("execute_worker"));
        assert_eq!(similar("Status", &["WorkflowId", "ExecutionStatus"]), Some("ExecutionStatus"));
        assert_eq!(similar("greet", &["plan", "review"]), None);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_place_and_the_likely_one() {
        let value = serde_json::json!({ "dependencies": [] });
        let known = ["task_id", "sub_task_dependencies"];
        let why = Fields::read(&value, "tasks[0]", &known).err().unwrap();
        assert_eq!(
            why.to_string(),
            "tasks[0].dependencies: unknown key `dependencies` (did you mean `sub_task_dependencies`?); \
             known keys: task_id, sub_task_dependencies"
        );
    }
}
