//! What an agent asks of its team beside its result: more people, and messages to colleagues.
//!
//! Invariant: a recruit works in a run of its own and is in the team of the run above all the same, so that its run keeps
//! what it wants, and the run above takes it out of the answer, once. It recruits and sends nothing itself.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::supervisor::outbox::Answer;

/// What an agent wants of its team: more people, and messages to others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ForTeam {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recruit: Vec<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub send: Vec<Value>,
}

impl ForTeam {
    pub fn is_nothing(&self) -> bool {
        self.recruit.is_empty() && self.send.is_empty()
    }

    /// What a recruit left beside its result.
    pub(super) fn taken_from(answer: &mut Answer) -> ForTeam {
        let mut take = |key: &str| match answer.as_mut().ok().and_then(Value::as_object_mut)?.remove(key)? {
            Value::Array(all) => Some(all),
            _ => None,
        };
        ForTeam { recruit: take("recruit").unwrap_or_default(), send: take("send").unwrap_or_default() }
    }
}
