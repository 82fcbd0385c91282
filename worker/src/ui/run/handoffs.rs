//! What a team has said to each other, message by message, and who handed over to whom.
//!
//! Invariant: it is what the run tells of its messages; the words of a tool are nobody's. It asks nothing.

use maud::{Markup, html};
use serde_json::Value;

use super::supervisor::text;
use crate::ui::elements::{cut, words};

pub(super) fn chain(messages: &[Value]) -> Markup {
    html! { @if let Some(chain) = handovers(messages) { p.handoff { "Handed over: " strong { (chain) } } } }
}

/// Who says a message; what a tool gives, nobody says.
fn speaker(message: &Value) -> String {
    let said = ["from", "name", "role"].iter().map(|key| text(&message[*key])).find(|name| !name.is_empty());
    let said = said.unwrap_or_default();
    if message["role"] == "tool" { format!("result of {said}") } else { said }
}

/// The tool by which an agent of a swarm hands over.
const TRANSFER: &str = "transfer_to_";

/// To whom a message hands over, be it the speaker's word or the result of the tool.
fn handed_to(message: &Value) -> Option<String> {
    if let Some(to) = message["handoff"].as_str() {
        return Some(to.to_owned());
    }
    let by_tool = message["name"].as_str().filter(|_| message["role"] == "tool")?;
    Some(by_tool.strip_prefix(TRANSFER)?.to_owned())
}

/// Who has had it in hand, one after the other, where anybody has handed over.
fn handovers(messages: &[Value]) -> Option<String> {
    if messages.iter().all(|message| handed_to(message).is_none()) {
        return None;
    }
    let mut chain: Vec<String> = Vec::new();
    for name in messages.iter().flat_map(|message| [hands_over(message), handed_to(message)]).flatten() {
        if chain.last() != Some(&name) {
            chain.push(name);
        }
    }
    Some(chain.join(" → "))
}

/// Who may hand over with this message: of a chat the one that says so, of a swarm whoever speaks.
fn hands_over(message: &Value) -> Option<String> {
    let of_swarm = message.get("from").is_none() && message["role"] == "assistant";
    (of_swarm || message["handoff"].is_string()).then(|| speaker(message))
}

pub(super) fn said(messages: &[Value]) -> Markup {
    html! { ol.messages {
        @for (at, message) in messages.iter().enumerate() {
            @let from = speaker(message);
            @let to = handed_to(message);
            @let by_tool = to.is_some() && message["role"] == "tool";
            // Whoever speaks now was handed it; that a tool did so is no word of anybody.
            @let handed = at > 0 && !by_tool && handed_to(&messages[at - 1]).is_some();
            li class=[handed.then_some("handed")] {
                @if !by_tool {
                    div.from { (from) }
                    @let content = text(&message["content"]);
                    @if !content.is_empty() { (words(&content)) }
                }
                @for call in message["tool_calls"].as_array().into_iter().flatten() {
                    div.call { "calls " code { (text(&call["name"])) } " " span.wrap { (cut(&call["args"].to_string(), 400)) } }
                }
                @if let Some(to) = &to { div.handoff { "handed over to " strong { (to) } } }
            }
        }
    } }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Who hands over and to whom is drawn, in a chat and in a swarm; a tool is no speaker.
    #[test]
    fn hand_offs_are_drawn() {
        let chat = [
            json!({ "from": "Admin", "content": "back" }),
            json!({ "from": "triage", "content": "wait", "handoff": "refunds" }),
            json!({ "from": "refunds", "content": "done" }),
        ];
        assert_eq!(handovers(&chat).as_deref(), Some("triage → refunds"));
        let drawn = said(&chat).into_string();
        assert!(drawn.contains("handed over to <strong>refunds</strong>"), "{drawn}");
        assert_eq!(drawn.matches("class=\"handed\"").count(), 1, "{drawn}");
        let call = json!([{ "name": "transfer_to_cancel", "args": {} }]);
        let swarm = [
            json!({ "role": "user", "content": "cancel" }),
            json!({ "role": "assistant", "name": "triage", "content": "", "tool_calls": call }),
            json!({ "role": "tool", "name": "transfer_to_cancel", "content": "{\"assistant\": \"cancel\"}" }),
            json!({ "role": "assistant", "name": "cancel", "content": "done" }),
        ];
        assert_eq!(handovers(&swarm).as_deref(), Some("triage → cancel"));
        let drawn = said(&swarm).into_string();
        assert!(
            !drawn.contains("<div class=\"from\">transfer_to_cancel") && drawn.contains("handed over to"),
            "{drawn}"
        );
        assert_eq!(handovers(&chat[..1]), None);
    }
}
