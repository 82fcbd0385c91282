//! What an agent waits for, itself and with the agents that it called, told to the run above it: that run shows it, and
//! passes answers on.
//!
//! Invariant: the run above is told whenever what is asked of people has changed, and when an answer that it passed on did
//! not count; of what is over, why. An answer to what an agent below asks goes to the one that told of it. The words are
//! those of `supervisor::people::below`. It decides nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ledger::Resource;
use super::machine::{AgentMachine, Halt, ToolApprovalResponse};
use super::transcript::cut;

/// So much of what waits is told at a time, by agents and supervisors alike, and so many bytes of the words of each: a signal
/// has to fit into a payload. What is left is told when the first are answered; it is not over for that.
pub(crate) const TOLD_MAX: usize = 500;
pub(crate) const WORDS_MAX: u64 = 1_000;

/// The signal `waits_below_v1` of an agent below.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct AgentWaits {
    /// Its workflow id.
    pub(super) from: String,
    pub(super) working: bool,
    waiting: Vec<Value>,
    #[serde(default)]
    over: Vec<Value>,
    #[serde(default)]
    not_taken: Vec<String>,
}

/// What was told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Waits {
    /// The ids of what is asked, as they are called outside.
    asked: BTreeSet<String>,
    /// Ids that were told, and still wait behind so much else that they are not told now.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pushed_out: BTreeSet<String>,
    stands_still: bool,
    /// An approval that somebody has just said something of.
    #[serde(skip_serializing_if = "Option::is_none")]
    answered: Option<String>,
    /// The pause that it is in came from above, where it is shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    paused_from_above: bool,
    /// What the agents below wait for, by their workflow ids.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    below: BTreeMap<String, Vec<Value>>,
    /// What they have told besides, and is to be told above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    over: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_taken: Vec<String>,
}

impl Waits {
    pub(super) fn is_empty(&self) -> bool {
        *self == Waits::default()
    }

    /// Somebody says something of an approval, by the id that the agent knows.
    pub(super) fn answered(&mut self, id: &str) {
        self.answered = Some(id.to_owned());
    }

    pub(super) fn paused(&mut self, from_above: bool) {
        self.paused_from_above = from_above;
    }

    /// An agent below tells what it waits for now.
    pub(super) fn heard(&mut self, told: AgentWaits) {
        self.over.extend(told.over);
        self.not_taken.extend(told.not_taken);
        self.below.insert(told.from, told.waiting);
    }

    /// An agent below has ended: what it asked, nobody needs any more.
    pub(super) fn ended(&mut self, child: &str) {
        self.below.remove(child);
    }

    /// The agent below that told of this id, and the answer in its words; nothing if none of them did.
    pub(super) fn asker(&self, response: &ToolApprovalResponse) -> Option<(String, ToolApprovalResponse)> {
        let told = |waiting: &[Value]| waiting.iter().find(|one| one["id"] == *response.id).cloned();
        let (child, asked) = self.below.iter().find_map(|(child, waiting)| Some((child, told(waiting)?)))?;
        let own = asked["run"] == **child;
        let id = response.id.split_once('/').filter(|_| own).map_or(response.id.as_str(), |(_, id)| id);
        Some((child.clone(), ToolApprovalResponse { id: id.to_owned(), ..response.clone() }))
    }

    /// An answer is for nobody that is known here.
    pub(super) fn not_taken(&mut self, id: &str) {
        self.not_taken.push(id.to_owned());
    }

    /// Nobody is told: what would be told once is forgotten, so that it does not grow.
    pub(super) fn nobody_hears(&mut self) {
        self.answered = None;
        self.over.clear();
        self.not_taken.clear();
    }

    /// What has changed since it was told last, if anything. `from` and `run`: the agent's own.
    pub(super) fn changes(&mut self, agent: &AgentMachine, from: &str, run: &str) -> Option<Value> {
        let outside = |id: &str| format!("{run}/{id}");
        let answered = self.answered.take().map(|id| outside(&id));
        let own = agent.approvals().into_iter().map(|one| entry(&one, from, run)).chain(self.held(agent, from));
        let mut waiting: Vec<Value> = own.chain(self.below.values().flatten().cloned()).collect();
        let still = ids(&waiting);
        waiting.truncate(TOLD_MAX);
        let asked = ids(&waiting);
        let stands_still = agent.stands_still_for_people();
        let mut not_taken = std::mem::take(&mut self.not_taken);
        not_taken.extend(answered.iter().filter(|id| still.contains(*id)).cloned());
        let told_over = std::mem::take(&mut self.over);
        let known: BTreeSet<String> = self.asked.union(&self.pushed_out).cloned().collect();
        let gone: Vec<&String> = known.difference(&still).collect();
        if asked == self.asked && gone.is_empty() && stands_still == self.stands_still && not_taken.is_empty() {
            return None;
        }
        let how = |id: &String| match answered.as_ref() == Some(id) {
            true => json!("answered"),
            false => json!({ "void": { "reason": "the agent goes on without it" } }),
        };
        let becomes = |id: &String| {
            let told = told_over.iter().find(|over| over["id"] == **id).cloned();
            told.unwrap_or_else(|| json!({ "id": id, "how": how(id) }))
        };
        let over: Vec<Value> = gone.into_iter().map(becomes).collect();
        self.pushed_out = known.intersection(&still).filter(|id| !asked.contains(*id)).cloned().collect();
        let told =
            json!({ "from": from, "working": !stands_still, "waiting": waiting, "over": over, "not_taken": not_taken });
        (self.asked, self.stands_still) = (asked, stands_still);
        Some(told)
    }

    /// A pause of its own, or a halt: what ends it.
    fn held(&self, agent: &AgentMachine, from: &str) -> Option<Value> {
        let (why, answer) = match (agent.halt(), agent.paused()) {
            (Some(Halt::Share { .. }), None) | (None, None) => return None,
            (Some(halt @ Halt::Budget { resource }), _) => {
                (halt.told(), format!("bosun budget top-up {from} {}", more_of(*resource)))
            }
            (Some(halt), None) => (halt.told(), format!("bosun resume {from}")),
            (_, Some(_)) if self.paused_from_above => return None,
            (_, Some(why)) => (why.to_owned(), format!("bosun resume {from}")),
        };
        let what = cut(why, WORDS_MAX);
        Some(json!({ "kind": "pause", "id": from, "whom": "a person", "run": from, "what": what, "answer": answer }))
    }
}

/// The flag of `bosun budget top-up` for a resource.
fn more_of(resource: Resource) -> &'static str {
    match resource {
        Resource::Steps | Resource::ToolCalls => "--calls N",
        Resource::Tokens => "--tokens N",
        Resource::Cost => "--cost USD",
        Resource::Wall => "--wall TIME",
        Resource::Unpriced => "--allow-unpriced",
    }
}

fn ids(waiting: &[Value]) -> BTreeSet<String> {
    waiting.iter().filter_map(|one| one["id"].as_str().map(str::to_owned)).collect()
}

fn entry(asked: &Value, from: &str, run: &str) -> Value {
    let text = |key: &str| asked[key].as_str().unwrap_or_default();
    let id = format!("{run}/{}", text("id"));
    let what = cut(format!("the approval of the tool {} {}", text("tool"), asked["arguments"]), WORDS_MAX);
    json!({
        "kind": "tool", "id": id, "whom": "a person", "run": from, "shown": asked["hash"], "what": what,
        "answer": format!("bosun approval approve {id}"),
    })
}

#[cfg(test)]
mod tests {
    use bosun_engine::Timestamp;

    use super::*;

    /// What stands too far behind to be told now still waits; it is over when it is, and then once.
    #[test]
    fn what_is_pushed_out_of_what_is_told_is_not_over() {
        let spec = json!({ "name": "ann", "provider": "p", "model": "big", "system": "s", "task": "t" });
        let spec = serde_json::from_value(spec).unwrap();
        let (agent, _) = AgentMachine::start(spec, Timestamp::from_millis(1_000)).unwrap();
        let mut waits = Waits::default();
        let mut tell = |from: &str, asks: std::ops::Range<usize>, over: Vec<Value>| {
            let waiting = asks.map(|n| json!({ "kind": "tool", "id": format!("{from}/a{n}"), "run": from })).collect();
            waits.heard(AgentWaits { from: from.to_owned(), working: true, waiting, over, not_taken: Vec::new() });
            waits.changes(&agent, "ann", "run")
        };
        let ids = |told: &Value| -> Vec<String> {
            told["over"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(ids(&tell("later", 0..TOLD_MAX, Vec::new()).unwrap()), [""; 0]);
        let told = tell("first", 0..2, Vec::new()).unwrap();
        assert_eq!((told["waiting"].as_array().unwrap().len(), ids(&told).len()), (TOLD_MAX, 0), "they still wait");
        let last = format!("later/a{}", TOLD_MAX - 1);
        let over = json!([{ "id": last, "how": "late" }]).as_array().unwrap().clone();
        let told = tell("later", 0..TOLD_MAX - 1, over).unwrap();
        assert_eq!(told["over"], json!([{ "id": last, "how": "late" }]), "one that was pushed out is over");
        assert_eq!(tell("later", 0..TOLD_MAX - 1, Vec::new()), None, "nothing has changed");
        let told = tell("first", 0..0, Vec::new()).unwrap();
        assert_eq!(ids(&told), ["first/a0", "first/a1"]);
        assert_eq!(told["waiting"].as_array().unwrap().len(), TOLD_MAX - 1);
    }
}
