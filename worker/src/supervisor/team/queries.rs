//! What people may ask of a team.
//!
//! Invariant: an answer is a copy, and nothing changes by it.

use bosun_engine::Timestamp;
use serde_json::{Value, json};

use super::Teamwork;

impl Teamwork {
    /// A query of the team's: copies, and nothing changes. Arguments are `role`, `parent`, `id`, or the text alone.
    pub fn query(&self, query: &str, input: &Value, now: Timestamp) -> Option<Value> {
        let text = |key: &str| input.get(key).or(Some(input)).and_then(Value::as_str).unwrap_or_default();
        Some(match query {
            "getMailbox" => match input.get("agent").and_then(Value::as_str) {
                Some(agent) => {
                    let number = |key: &str| input.get(key).and_then(Value::as_u64);
                    let window = number("window").and_then(|window| usize::try_from(window).ok());
                    json!(self.mailbox.fetch(agent, number("since").unwrap_or(0), window, now))
                }
                None => json!(self.mailbox.view()),
            },
            "mailbox_counts" => json!(self.mailbox.counts()),
            "listTeamAgents" => json!(self.members.directory.list()),
            "team_roster" => json!(self.members.directory.roster()),
            "findTeamAgentsByRole" => json!(self.members.directory.find_by_role(text("role"))),
            "registry" => json!(self.registry.list_all()),
            "registry_stats" => json!(self.registry.stats()),
            "list_active" => json!(self.registry.list_active()),
            "list_children" => json!(self.registry.list_children(text("parent"))),
            "get_instance" => json!(self.registry.get_instance(text("id"))),
            "get_depth" => json!(self.registry.get_depth(text("id"))),
            _ => return None,
        })
    }
}
