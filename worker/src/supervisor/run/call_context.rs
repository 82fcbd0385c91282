//! What the context of a call says of how it is carried out. The context is for whoever is called; these parts of it are
//! read here too.
//!
//! Invariant: every part is optional, and a part of the wrong type counts as absent, because a context may contain text from
//! a plan or from people. The context is read and never changed.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::supervisor::outbox::Call;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct CallContext {
    /// Of a task that is no agent's.
    #[serde(deserialize_with = "of_its_kind")]
    pub(super) capability: Option<String>,
    /// How deep whoever is called stands.
    #[serde(deserialize_with = "of_its_kind")]
    pub(super) depth: Option<u64>,
    /// The model of somebody who is no agent of the spec.
    #[serde(deserialize_with = "of_its_kind")]
    pub(super) model: Option<String>,
    #[serde(deserialize_with = "of_its_kind")]
    pub(super) tool_call_limit: Option<u64>,
    #[serde(deserialize_with = "of_its_kind")]
    pub(super) max_tokens: Option<u32>,
    /// Empty: whoever is called has none.
    #[serde(deserialize_with = "of_its_kind")]
    pub(super) tools: Option<Vec<serde::de::IgnoredAny>>,
    /// How the next speaker is chosen, by chance from a seed, and from whom.
    #[serde(deserialize_with = "of_its_kind")]
    pub(super) method: Option<String>,
    #[serde(deserialize_with = "of_its_kind")]
    pub(super) seed: Option<String>,
    #[serde(deserialize_with = "of_its_kind")]
    pub(super) candidates: Option<Vec<String>>,
}

impl CallContext {
    pub(super) fn of(call: &Call) -> CallContext {
        CallContext::deserialize(&call.context).unwrap_or_default()
    }

    /// Whether it is said that there are no tools.
    pub(super) fn has_no_tools(&self) -> bool {
        self.tools.as_ref().is_some_and(Vec::is_empty)
    }
}

/// The input of a task whose capability is built in.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct TaskContext {
    pub(super) parameters: Option<Value>,
}

impl TaskContext {
    pub(super) fn of(call: &Call) -> TaskContext {
        TaskContext::deserialize(&call.context).unwrap_or_default()
    }
}

/// What has another type is as if it were not there; a null is a [`Value`] that is there.
pub(super) fn of_its_kind<'de, D: Deserializer<'de>, T: serde::de::DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
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
}
