//! Who has had a conversation in hand, one after the other: read off the messages that a team has said to each other.
//!
//! Invariant: it is what the run tells of its messages (`progress`, `beside_rows.messages`); the words of a tool are nobody's.
//! It asks nothing and draws nothing.

use serde_json::Value;

/// The tool by which an agent of a swarm hands over.
const TRANSFER: &str = "transfer_to_";

/// Who says a message; what a tool gives, nobody says.
pub(crate) fn speaker(message: &Value) -> String {
    let said = ["from", "name", "role"].iter().filter_map(|key| message[*key].as_str()).find(|name| !name.is_empty());
    let said = said.unwrap_or_default();
    if message["role"] == "tool" { format!("result of {said}") } else { said.to_owned() }
}

/// To whom a message hands over, be it the speaker's word or the result of the tool.
pub(crate) fn handed_to(message: &Value) -> Option<String> {
    if let Some(to) = message["handoff"].as_str() {
        return Some(to.to_owned());
    }
    let by_tool = message["name"].as_str().filter(|_| message["role"] == "tool")?;
    Some(by_tool.strip_prefix(TRANSFER)?.to_owned())
}

/// Who may hand over with this message: of a chat the one that says so, of a swarm whoever speaks.
fn hands_over(message: &Value) -> Option<String> {
    let of_swarm = message.get("from").is_none() && message["role"] == "assistant";
    (of_swarm || message["handoff"].is_string()).then(|| speaker(message))
}

/// Who has had it in hand, one after the other; nobody, where nobody has handed over.
pub(crate) fn handovers(messages: &[Value]) -> Vec<String> {
    let mut chain: Vec<String> = Vec::new();
    if messages.iter().any(|message| handed_to(message).is_some()) {
        for name in messages.iter().flat_map(|message| [hands_over(message), handed_to(message)]).flatten() {
            if chain.last() != Some(&name) {
                chain.push(name);
            }
        }
    }
    chain
}

/// The same of what a run answers to `progress`.
pub(super) fn of_progress(progress: &Value) -> Vec<String> {
    progress["beside_rows"]["messages"].as_array().map_or_else(Vec::new, |messages| handovers(messages))
}

/// A chain in a line of so many characters: whoever has it now matters most, and the beginning is left out.
pub(super) fn in_line(chain: &[String], characters: usize) -> String {
    let (mut shown, mut room) = (0, characters);
    for name in chain.iter().rev() {
        let width = name.chars().count() + " -> ".len();
        // From whom to whom it went last is shown however long they are called.
        if shown >= 2 && width > room {
            break;
        }
        room = room.saturating_sub(width);
        shown += 1;
    }
    let last = &chain[chain.len() - shown..];
    let before = if shown < chain.len() { "... -> " } else { "" };
    format!("{before}{}", last.join(" -> "))
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A chat in which triage hands over to refunds.
    pub(crate) fn chat() -> [Value; 3] {
        [
            json!({ "from": "Admin", "content": "back" }),
            json!({ "from": "triage", "content": "wait", "handoff": "refunds" }),
            json!({ "from": "refunds", "content": "done" }),
        ]
    }

    /// A swarm in which triage hands over to cancel by a tool.
    pub(crate) fn swarm() -> [Value; 4] {
        let call = json!([{ "name": "transfer_to_cancel", "args": {} }]);
        [
            json!({ "role": "user", "content": "cancel" }),
            json!({ "role": "assistant", "name": "triage", "content": "", "tool_calls": call }),
            json!({ "role": "tool", "name": "transfer_to_cancel", "content": "{\"assistant\": \"cancel\"}" }),
            json!({ "role": "assistant", "name": "cancel", "content": "done" }),
        ]
    }

    #[test]
    fn a_chat_and_a_swarm_hand_over_and_a_tool_is_no_speaker() {
        let (chat, swarm) = (chat(), swarm());
        assert_eq!(handovers(&chat), ["triage", "refunds"]);
        assert_eq!(handovers(&chat[..1]), Vec::<String>::new());
        assert_eq!(handovers(&swarm), ["triage", "cancel"]);
    }

    #[test]
    fn a_line_keeps_the_end_of_a_long_chain() {
        let chain: Vec<String> = ["triage", "sales", "bank"].map(str::to_owned).into();
        assert_eq!(in_line(&chain, 60), "triage -> sales -> bank");
        assert_eq!(in_line(&chain, 20), "... -> sales -> bank");
        assert_eq!(in_line(&chain, 0), "... -> sales -> bank");
        assert_eq!(in_line(&[], 60), "");
    }
}
