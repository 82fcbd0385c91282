//! Who has had a conversation in hand, one after the other: read off the messages that a team has said to each other.
//!
//! Invariant: it is what the run tells of its messages (`progress`, `beside_rows.messages`); the words of a tool are nobody's.
//! It asks nothing and draws nothing.

use serde_json::{Map, Value};

/// What the tool says by which a supervisor hands over and gets control back (LGS-02).
const TRANSFERRED: &str = "Successfully transferred to ";
/// It says so of the user, and hands over to nobody.
const FORWARD: &str = "forward_message";

/// Who says a message; what a tool gives, nobody says.
pub(crate) fn speaker(message: &Value) -> String {
    let said = ["from", "name", "role"].iter().filter_map(|key| message[*key].as_str()).find(|name| !name.is_empty());
    let said = said.unwrap_or_default();
    if message["role"] == "tool" { format!("result of {said}") } else { said.to_owned() }
}

/// To whom the message at this place hands over, be it the speaker's word or what the tool has said of it. What a tool is
/// called says nothing: it may have been refused, or be a function like any other.
pub(crate) fn handed_at(messages: &[Value], at: usize) -> Option<String> {
    let message = messages.get(at)?;
    if let Some(to) = message["handoff"].as_str() {
        return Some(to.to_owned());
    }
    if let Some(to) = switched_to(message) {
        // SWM-02: of several in one response the last one counts.
        let same = messages.iter().skip(at + 1).take_while(|later| later["role"] == "tool");
        return (!same.into_iter().any(|later| switched_to(later).is_some())).then_some(to);
    }
    let said = message["content"].as_str().filter(|_| message["role"] == "tool" && message["name"] != FORWARD)?;
    said.strip_prefix(TRANSFERRED).map(str::to_owned)
}

/// Who is active from now on by the answer of a tool: `{"assistant": name}` (SWM-01).
fn switched_to(message: &Value) -> Option<String> {
    let said = message["content"].as_str().filter(|_| message["role"] == "tool")?;
    let said: Map<String, Value> = serde_json::from_str(said).ok()?;
    let name = said.get("assistant")?.as_str()?;
    (said.len() == 1).then(|| name.to_owned())
}

/// Who may hand over with this message: of a chat the one that says so, of a swarm whoever speaks.
fn hands_over(message: &Value) -> Option<String> {
    let of_swarm = message.get("from").is_none() && message["role"] == "assistant";
    (of_swarm || message["handoff"].is_string()).then(|| speaker(message))
}

/// Who has had it in hand, one after the other; nobody, where nobody has handed over.
pub(crate) fn handovers(messages: &[Value]) -> Vec<String> {
    let mut chain: Vec<String> = Vec::new();
    let names = messages.iter().enumerate().flat_map(|(at, message)| [hands_over(message), handed_at(messages, at)]);
    for name in names.flatten() {
        if chain.last() != Some(&name) {
            chain.push(name);
        }
    }
    if chain.len() > 1 { chain } else { Vec::new() }
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

    /// SWM-02, SWM-03: a tool of that name that nobody has, one that gives something else and a hand-off that another one
    /// follows hand nothing over; a supervisor's does whatever the tool is called.
    #[test]
    fn only_what_was_handed_over_is_told() {
        let says = |name: &str| json!({ "role": "assistant", "name": name, "content": "" });
        let tool = |name: &str, content: &str| json!({ "role": "tool", "name": name, "content": content });
        let none = [says("a"), tool("transfer_to_zoe", "Error: Tool transfer_to_zoe not found."), says("a")];
        assert_eq!(handovers(&none), Vec::<String>::new());
        let plain =
            [says("a"), tool("transfer_to_user", "sent"), tool("forward_message", "Successfully transferred to user")];
        assert_eq!(handovers(&plain), Vec::<String>::new());
        let two = [says("a"), tool("x", "{\"assistant\": \"b\"}"), tool("y", "{\"assistant\": \"c\"}"), says("c")];
        assert_eq!(handovers(&two), ["a", "c"]);
        let prefixed = [says("lead"), tool("ask_poet", "Successfully transferred to poet"), says("poet"), says("lead")];
        assert_eq!(handovers(&prefixed), ["lead", "poet", "lead"]);
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
