//! What the context of a call says of how it is carried out, and of the work that begins with it. The context is for whoever
//! is called; these parts of it are read here too, and nowhere else.
//!
//! Invariant: every part is optional, and a part of the wrong type counts as absent, because a context may contain text from
//! a plan or from people. The context is read and never changed.

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::supervisor::outbox::Call;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CallContext {
    /// Of a task that is no agent's.
    #[serde(deserialize_with = "of_its_kind")]
    pub capability: Option<String>,
    /// How deep whoever is called stands.
    #[serde(deserialize_with = "of_its_kind")]
    pub depth: Option<u64>,
    /// The model of somebody who is no agent of the spec.
    #[serde(deserialize_with = "of_its_kind")]
    pub model: Option<String>,
    #[serde(deserialize_with = "of_its_kind")]
    pub tool_call_limit: Option<u64>,
    #[serde(deserialize_with = "of_its_kind")]
    pub max_tokens: Option<u32>,
    /// Empty: whoever is called has none.
    #[serde(deserialize_with = "of_its_kind")]
    pub tools: Option<Vec<IgnoredAny>>,
    /// How the next speaker is chosen, by chance from a seed, and from whom.
    #[serde(deserialize_with = "of_its_kind")]
    pub method: Option<String>,
    #[serde(deserialize_with = "of_its_kind")]
    pub seed: Option<String>,
    #[serde(deserialize_with = "of_its_kind")]
    pub candidates: Option<Vec<String>>,
}

impl CallContext {
    pub fn of(call: &Call) -> CallContext {
        parts_of(&call.context)
    }

    /// Whether it is said that there are no tools.
    pub fn has_no_tools(&self) -> bool {
        self.tools.as_ref().is_some_and(Vec::is_empty)
    }
}

/// The input of a task whose capability is built in.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TaskContext {
    pub parameters: Option<Value>,
}

impl TaskContext {
    pub fn of(call: &Call) -> TaskContext {
        parts_of(&call.context)
    }
}

/// What is asked of whoever does some work, in the words of each family.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AskedWork {
    #[serde(deserialize_with = "of_its_kind")]
    goal: Option<String>,
    #[serde(deserialize_with = "of_its_kind")]
    task: Option<String>,
    #[serde(deserialize_with = "of_its_kind")]
    question: Option<Value>,
    /// In which role it is done.
    #[serde(deserialize_with = "of_its_kind")]
    pub role: Option<String>,
    /// What was said before, one after the other.
    #[serde(deserialize_with = "of_its_kind")]
    messages: Option<Vec<Value>>,
}

impl AskedWork {
    pub fn of(call: &Call) -> AskedWork {
        parts_of(&call.context)
    }

    /// In a text, what it is about.
    pub fn goal(&self) -> Option<&str> {
        let question = || self.question.as_ref().and_then(Value::as_str);
        self.goal.as_deref().or(self.task.as_deref()).or_else(question)
    }

    /// Whether one worker asks another one a question.
    pub fn is_question(&self) -> bool {
        self.question.is_some()
    }

    /// How much was said before. The mail of a team is no conversation.
    pub fn said_before(&self) -> usize {
        let is_mail = |message: &&Value| message.get("AgentSeq").is_some();
        self.messages.iter().flatten().filter(|message| !is_mail(message)).count()
    }
}

/// The turn of somebody in a conversation: what was said last.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LastSaid {
    #[serde(deserialize_with = "of_its_kind")]
    pub content: Option<String>,
    #[serde(deserialize_with = "of_its_kind")]
    pub name: Option<Value>,
    #[serde(deserialize_with = "of_its_kind")]
    tool_calls: Option<Value>,
    #[serde(deserialize_with = "of_its_kind")]
    function_call: Option<Value>,
}

impl LastSaid {
    pub fn before(call: &Call) -> LastSaid {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Turn {
            #[serde(deserialize_with = "of_its_kind")]
            messages: Option<Vec<Value>>,
        }
        let last = parts_of::<Turn>(&call.context).messages.and_then(|mut said| said.pop());
        last.as_ref().map(parts_of).unwrap_or_default()
    }

    /// Whether functions are called (AGC-10).
    pub fn calls(&self) -> bool {
        self.tool_calls.is_some() || self.function_call.is_some()
    }

    /// The functions that are called and have no result yet.
    pub fn open_functions(self) -> Vec<String> {
        #[derive(Deserialize)]
        struct Called {
            #[serde(default, deserialize_with = "of_its_kind")]
            name: Option<String>,
            #[serde(default)]
            result: Value,
        }
        let calls = match self.tool_calls {
            Some(Value::Array(calls)) => calls,
            _ => Vec::new(),
        };
        let read = |call: Value| parts_of::<Option<Called>>(&call).filter(|call| call.result.is_null());
        calls.into_iter().chain(self.function_call).filter_map(read).filter_map(|call| call.name).collect()
    }
}

/// What an agent is told that calls tools, and what it calls.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SessionContext {
    pub session: Value,
    pub depth: Value,
    #[serde(deserialize_with = "of_its_kind")]
    pub task: Option<String>,
    #[serde(deserialize_with = "of_its_kind")]
    pub tool: Option<String>,
    pub args: Value,
}

impl SessionContext {
    pub fn of(call: &Call) -> SessionContext {
        parts_of(&call.context)
    }
}

/// Those parts of a mapping that are read; of anything else, and of what cannot be read, there are none.
pub fn parts_of<T: Default + DeserializeOwned>(value: &Value) -> T {
    let read = |value: &Value| T::deserialize(value).ok();
    Some(value).filter(|value| value.is_object()).and_then(read).unwrap_or_default()
}

/// What has another type is as if it were not there; a null is a [`Value`] that is there.
pub fn of_its_kind<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::supervisor::core::key::GraphKey;
    use crate::supervisor::outbox::Purpose;

    fn of(context: Value) -> CallContext {
        CallContext::of(&Call::new(GraphKey::Format, Purpose::ExecuteWorker, context))
    }

    /// One part that is of another kind spoils no other.
    #[test]
    fn what_is_of_another_kind_counts_as_left_out() {
        let read =
            of(json!({ "capability": ["x"], "depth": 2, "max_tokens": -1, "tools": [], "goal": { "depth": 7 } }));
        assert_eq!(read, CallContext { depth: Some(2), tools: Some(Vec::new()), ..CallContext::default() });
        assert!(read.has_no_tools() && !of(json!({ "tools": "none" })).has_no_tools());
        assert_eq!(of(Value::Null), CallContext::default());
    }

    fn call(context: Value) -> Call {
        Call::new(GraphKey::Format, Purpose::ExecuteWorker, context)
    }

    /// A text in another place than that of a text is no goal, and a question that is no text is one all the same.
    #[test]
    fn what_is_asked_is_the_first_text_of_its_words() {
        let asked = |context: Value| {
            let work = AskedWork::of(&call(context));
            (work.goal().map(str::to_owned), work.is_question(), work.said_before())
        };
        assert_eq!(asked(json!({ "goal": 3, "task": "t", "question": "q" })), (Some("t".into()), true, 0));
        assert_eq!(asked(json!({ "question": null, "messages": [1, {}] })), (None, true, 2));
        assert_eq!(asked(json!("text")), (None, false, 0));
    }

    /// Only the last message counts, and of its calls only those that were not answered.
    #[test]
    fn functions_that_have_a_result_are_not_open() {
        let calls = json!([{ "name": "a", "result": 1 }, { "name": "b", "result": null }, 7, { "name": 5 }]);
        let last = json!({ "name": "ann", "content": "x", "tool_calls": calls, "function_call": { "name": "c" } });
        let said = LastSaid::before(&call(json!({ "messages": [{ "content": "y" }, last] })));
        assert_eq!((said.content.as_deref(), said.name.clone(), said.calls()), (Some("x"), Some(json!("ann")), true));
        assert_eq!(said.open_functions(), ["b", "c"]);
        assert_eq!(LastSaid::before(&call(json!({ "messages": "none" }))), LastSaid::default());
        assert!(LastSaid::before(&call(json!({ "messages": [{ "tool_calls": null }] }))).calls());
    }
}
