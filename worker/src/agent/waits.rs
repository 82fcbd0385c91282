//! What an agent waits for, told to the run above it: that run shows it, and passes answers on.
//!
//! Invariant: the run above is told whenever what is asked of people has changed, and when an answer that it passed on did
//! not count; of what is over, why. The words are those of `supervisor::people::below`. It decides nothing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::machine::AgentMachine;

/// What was told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Waits {
    /// The ids of the approvals, as they are called outside.
    asked: BTreeSet<String>,
    stands_still: bool,
    /// An approval that somebody has just said something of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answered: Option<String>,
}

impl Waits {
    pub(super) fn is_empty(&self) -> bool {
        *self == Waits::default()
    }

    /// Somebody says something of an approval, by the id that the agent knows.
    pub(super) fn answered(&mut self, id: &str) {
        self.answered = Some(id.to_owned());
    }

    /// What has changed since it was told last, if anything. `from` and `run`: the agent's own.
    pub(super) fn changes(&mut self, agent: &AgentMachine, from: &str, run: &str) -> Option<Value> {
        let outside = |id: &str| format!("{run}/{id}");
        let answered = self.answered.take().map(|id| outside(&id));
        let waiting: Vec<Value> = agent.approvals().iter().map(|one| entry(one, from, run)).collect();
        let asked: BTreeSet<String> = waiting.iter().filter_map(|one| one["id"].as_str().map(str::to_owned)).collect();
        let stands_still = agent.stands_still_for_people() && !asked.is_empty();
        let not_taken: Vec<&String> = answered.iter().filter(|id| asked.contains(*id)).collect();
        if asked == self.asked && stands_still == self.stands_still && not_taken.is_empty() {
            return None;
        }
        let how = |id: &String| match answered.as_ref() == Some(id) {
            true => json!("answered"),
            false => json!({ "void": { "reason": "the agent goes on without it" } }),
        };
        let over: Vec<Value> = self.asked.difference(&asked).map(|id| json!({ "id": id, "how": how(id) })).collect();
        let told =
            json!({ "from": from, "working": !stands_still, "waiting": waiting, "over": over, "not_taken": not_taken });
        (self.asked, self.stands_still) = (asked, stands_still);
        Some(told)
    }
}

fn entry(asked: &Value, from: &str, run: &str) -> Value {
    let text = |key: &str| asked[key].as_str().unwrap_or_default();
    let id = format!("{run}/{}", text("id"));
    json!({
        "kind": "tool", "id": id, "whom": "a person", "run": from, "shown": asked["hash"],
        "what": format!("the approval of the tool {} {}", text("tool"), asked["arguments"]),
        "answer": format!("bosun approval approve {id}"),
    })
}
