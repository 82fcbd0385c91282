//! The id of a task: a text, ordered by number first and then by text (supervisors.md §4.3 no. 43).
//!
//! Invariant: an id is one to [`TaskId::MAX`] characters without control characters; a number is its canonical decimal
//! text, so `1` and `"1"` name the same task. Where a list of tasks reaches a model or a decision, this is its order.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Names a task in its plan.
#[derive(Debug, Clone, PartialEq, Eq, Hash, schemars::JsonSchema)]
#[schemars(with = "String")]
pub struct TaskId(String);

/// Why a text names no task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no task id: an id has 1 to {} characters and no control characters", TaskId::MAX)]
pub struct InvalidTaskId {
    pub text: String,
}

impl TaskId {
    /// The most characters of an id.
    pub const MAX: usize = 200;

    pub fn new(text: impl Into<String>) -> Result<Self, InvalidTaskId> {
        let text = text.into();
        let length = text.chars().count();
        if length == 0 || length > Self::MAX || text.chars().any(char::is_control) {
            return Err(InvalidTaskId { text: text.chars().take(40).collect() });
        }
        Ok(TaskId(text))
    }
    /// An id known to be good, as in code and tests.
    ///
    /// # Panics
    /// If the text is no id.
    pub fn of(text: &str) -> Self {
        TaskId::new(text).unwrap_or_else(|why| panic!("{why}"))
    }
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// The number, if the id is one in canonical form (no sign, no leading zero).
    pub fn number(&self) -> Option<u64> {
        // Ids are compared often: no copy is made to find out.
        let digits = self.0.bytes().all(|byte| byte.is_ascii_digit());
        let is_canonical = digits && (self.0 == "0" || !self.0.starts_with('0'));
        if is_canonical { self.0.parse().ok() } else { None }
    }
}

impl From<u64> for TaskId {
    fn from(number: u64) -> Self {
        TaskId(number.to_string())
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Ord for TaskId {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.number(), other.number()) {
            (Some(a), Some(b)) => a.cmp(&b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => self.0.cmp(&other.0),
        }
    }
}

impl PartialOrd for TaskId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Serialize for TaskId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Models and plan files write ids as numbers or as texts.
impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = TaskId;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a task id (a text or a number)")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<TaskId, E> {
                TaskId::new(text).map_err(E::custom)
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<TaskId, E> {
                Ok(TaskId::from(number))
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<TaskId, E> {
                u64::try_from(number).map(TaskId::from).map_err(|_| E::custom(format!("{number} is no task id")))
            }
            /// 1.0 is a whole number to JSON.
            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<TaskId, E> {
                let whole = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
                if whole { Ok(TaskId::from(number as u64)) } else { Err(E::custom(format!("{number} is no task id"))) }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_first_and_in_their_own_order() {
        let mut ids: Vec<TaskId> = ["b", "10", "2", "a", "02", "1"].map(TaskId::of).to_vec();
        ids.sort();
        let texts: Vec<&str> = ids.iter().map(TaskId::as_str).collect();
        assert_eq!(texts, ["1", "2", "10", "02", "a", "b"]);
    }

    #[test]
    fn a_number_and_its_text_name_the_same_task() {
        let ids: Vec<TaskId> = serde_json::from_str(r#"[1, "1", "t1"]"#).unwrap();
        assert_eq!(ids[0], ids[1]);
        assert_eq!(serde_json::from_str::<TaskId>("1.0").unwrap(), ids[0]);
        assert_eq!(serde_json::to_string(&ids).unwrap(), r#"["1","1","t1"]"#);
        for bad in ["-1", "1.5", "\"\"", "\"a\\nb\"", "null"] {
            assert!(serde_json::from_str::<TaskId>(bad).is_err(), "{bad}");
        }
    }
}
