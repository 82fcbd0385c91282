//! Who has asked people: a task of a plan, or a strategy itself under a key of its own; and what silence means to them.
//!
//! Invariant: a question is known by a typed key; its text is what histories, answers of people and the state hold, and it
//! is read as the key that it was. A text that names no ask of a chat or of agents is the id of a task. A task of a plan may
//! be called as such an ask is (`chat/speak/3`): in a run of a plan nothing else asks under it, and `task` gives it back.

use std::cmp::Ordering;
use std::fmt;

use serde::de::{Error, IntoDeserializer, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::key::Key;
use crate::supervisor::model::{InvalidTaskId, TaskId};

/// What a deadline without an answer means (LGI-07).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    #[default]
    Fail,
    Answer(Value),
}

/// Nobody has answered in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("Interrupt timed out")]
pub struct Expired;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionKey {
    Task(TaskId),
    /// Of a chat, or of agents that call tools.
    Strategy(Key),
}

impl QuestionKey {
    pub fn read(text: &str) -> Result<QuestionKey, InvalidTaskId> {
        match asked_by_strategy(text) {
            Some(key) => Ok(QuestionKey::Strategy(key)),
            None => TaskId::new(text).map(QuestionKey::Task),
        }
    }

    /// The task, where there is a plan: there everything that asks is one, whatever it is called.
    pub fn task(&self) -> Option<TaskId> {
        match self {
            QuestionKey::Task(task) => Some(task.clone()),
            QuestionKey::Strategy(key) => TaskId::new(key.to_string()).ok(),
        }
    }
}

/// The ask of a strategy that has this text.
fn asked_by_strategy(text: &str) -> Option<Key> {
    match text.parse().ok()? {
        key @ (Key::Chat(_) | Key::Agents(_)) => Some(key),
        // A plan asks for its tasks.
        Key::Graph(_) | Key::People(_) | Key::Team(_) | Key::Memory(_) | Key::Core(_) => None,
    }
}

/// The key that the text of the task is read as: a state that is loaded has the same one.
impl From<TaskId> for QuestionKey {
    fn from(task: TaskId) -> Self {
        asked_by_strategy(task.as_str()).map_or(QuestionKey::Task(task), QuestionKey::Strategy)
    }
}

impl From<&TaskId> for QuestionKey {
    fn from(task: &TaskId) -> Self {
        task.clone().into()
    }
}

impl From<&QuestionKey> for QuestionKey {
    fn from(key: &QuestionKey) -> Self {
        key.clone()
    }
}

impl fmt::Display for QuestionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuestionKey::Task(task) => write!(f, "{task}"),
            QuestionKey::Strategy(key) => write!(f, "{key}"),
        }
    }
}

/// As ids of tasks are ordered; what a strategy asks for is no number.
impl Ord for QuestionKey {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (QuestionKey::Task(one), QuestionKey::Task(other)) => one.cmp(other),
            (QuestionKey::Task(task), QuestionKey::Strategy(_)) if task.number().is_some() => Ordering::Less,
            (QuestionKey::Strategy(_), QuestionKey::Task(task)) if task.number().is_some() => Ordering::Greater,
            (one, other) => one.to_string().cmp(&other.to_string()),
        }
    }
}

impl PartialOrd for QuestionKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Serialize for QuestionKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// As ids of tasks are read: programs write numbers too.
impl<'de> Deserialize<'de> for QuestionKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Asked;
        fn task<'de, N: IntoDeserializer<'de, E>, E: Error>(number: N) -> Result<QuestionKey, E> {
            TaskId::deserialize(number.into_deserializer()).map(QuestionKey::Task)
        }
        impl Visitor<'_> for Asked {
            type Value = QuestionKey;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a task id (a text or a number)")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<QuestionKey, E> {
                QuestionKey::read(text).map_err(E::custom)
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<QuestionKey, E> {
                task(number)
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<QuestionKey, E> {
                task(number)
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<QuestionKey, E> {
                task(number)
            }
        }
        deserializer.deserialize_any(Asked)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::supervisor::core::key::{AgentsKey, CrewAsk, key};

    fn read(value: Value) -> QuestionKey {
        serde_json::from_value(value).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Histories and people hold the texts that they always held.
    #[test]
    fn a_question_is_shown_and_read_as_its_text() {
        let strategy = |text: &str| QuestionKey::Strategy(key(text));
        for (text, asked) in [
            ("chat/human/4", strategy("chat/human/4")),
            ("agents/1.1/ask/1", strategy("agents/1.1/ask/1")),
            ("agents/task/a b/human/2", strategy("agents/task/a b/human/2")),
            // A plan may call a task anything.
            ("execute/t1/1", QuestionKey::Task(TaskId::of("execute/t1/1"))),
            ("t1", QuestionKey::Task(TaskId::of("t1"))),
            ("chat/human", QuestionKey::Task(TaskId::of("chat/human"))),
        ] {
            assert_eq!((read(json!(text)), json!(asked)), (asked.clone(), json!(text)));
            assert_eq!((asked.to_string().as_str(), asked.task()), (text, Some(TaskId::of(text))));
            assert_eq!(QuestionKey::from(TaskId::of(text)), asked);
        }
        assert_eq!(read(json!(7)), read(json!("7")));
        let no_id = serde_json::from_value::<QuestionKey>(json!("")).unwrap_err().to_string();
        assert_eq!(no_id, serde_json::from_value::<TaskId>(json!("")).unwrap_err().to_string());
    }

    /// A question about a task with a long name is one all the same, although its key is longer than a task's id may be.
    #[test]
    fn a_long_key_is_a_question() {
        let asked = AgentsKey::Crew { task: "t".repeat(TaskId::MAX), ask: CrewAsk::Feedback(1) };
        let asked = QuestionKey::Strategy(asked.into());
        assert_eq!((read(json!(asked)), asked.task()), (asked.clone(), None));
    }

    #[test]
    fn questions_have_the_order_of_ids_of_tasks() {
        let mut ids: Vec<TaskId> = ["b", "10", "chat/human/2", "9", "agents/1.1/ask/1", "a"].map(TaskId::of).into();
        let mut asked: Vec<QuestionKey> = ids.iter().map(QuestionKey::from).collect();
        ids.sort();
        asked.sort();
        assert_eq!(asked, ids.iter().map(QuestionKey::from).collect::<Vec<_>>());
    }
}
