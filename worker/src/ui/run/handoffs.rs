//! What a team has said to each other, message by message, and who handed over to whom.
//!
//! Invariant: it is what the run tells of its messages; the words of a tool are nobody's. It asks nothing.

use maud::{Markup, html};
use serde_json::Value;

use super::supervisor::text;
use crate::cli::handoffs::{handed_at, handovers, speaker};
use crate::ui::elements::{cut, words};

pub(super) fn chain(messages: &[Value]) -> Markup {
    let chain = handovers(messages);
    html! { @if !chain.is_empty() { p.handoff { "Handed over: " strong { (chain.join(" → ")) } } } }
}

pub(super) fn said(messages: &[Value]) -> Markup {
    html! { ol.messages {
        @for (at, message) in messages.iter().enumerate() {
            @let from = speaker(message);
            @let to = handed_at(messages, at);
            @let by_tool = to.is_some() && message["role"] == "tool";
            // Whoever speaks now was handed it; that a tool did so is no word of anybody.
            @let handed = at > 0 && !by_tool && handed_at(messages, at - 1).is_some();
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
    use super::*;
    use crate::cli::handoffs::tests::{chat, swarm};

    /// Who hands over and to whom is drawn, in a chat and in a swarm; a tool is no speaker.
    #[test]
    fn hand_offs_are_drawn() {
        let (chat, swarm) = (chat(), swarm());
        assert!(chain(&chat).into_string().contains("<strong>triage → refunds</strong>"));
        let drawn = said(&chat).into_string();
        assert!(drawn.contains("handed over to <strong>refunds</strong>"), "{drawn}");
        assert_eq!(drawn.matches("class=\"handed\"").count(), 1, "{drawn}");
        assert!(chain(&swarm).into_string().contains("<strong>triage → cancel</strong>"));
        let drawn = said(&swarm).into_string();
        assert!(
            !drawn.contains("<div class=\"from\">transfer_to_cancel") && drawn.contains("handed over to"),
            "{drawn}"
        );
        assert_eq!(chain(&chat[..1]).into_string(), "");
    }
}
