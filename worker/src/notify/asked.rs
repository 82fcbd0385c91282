//! What a run asks people, as a notification tells it.
//!
//! Invariant: a request that is too large to be told is still known as the one that it is, and by when it is to be answered. It
//! asks no run and sends nothing.

use serde_json::{Value, json};

use super::rules::occasion::AskedOf;
use crate::cli::request_text::parts;
use crate::inbox::{HumanRequest, HumanRequestKind};

/// A request of more bytes is told in a few words.
const REQUEST_MAX: usize = 64 * 1024;
/// What is told of one all the same, if it is short.
const ALWAYS: [&str; 6] = ["escalated", "requested_at", "deadline", "on_timeout", "risk", "task_id"];
const SHORT: usize = 200;

/// Whether a request is one that people are told of. Who has paused or taken over a run knows it.
pub(crate) fn is_told(one: &HumanRequest) -> bool {
    one.kind != HumanRequestKind::Elsewhere || one.request["kind"] == "plan"
}

/// What is asked.
pub(crate) fn asked_of(one: &HumanRequest) -> AskedOf {
    let request = match one.request.to_string().len() <= REQUEST_MAX {
        true => one.request.clone(),
        false => few_words(&one.request),
    };
    AskedOf { id: one.id().to_owned(), word: one.word().to_owned(), shown: one.shown().to_owned(), request }
}

fn few_words(request: &Value) -> Value {
    let mut few = json!({ "too_large_to_tell": true });
    for name in ALWAYS {
        if let Some(value) = request.get(name).filter(|value| value.to_string().len() <= SHORT) {
            few[name] = value.clone();
        }
    }
    few
}

/// The same as text.
pub(crate) fn text_of(one: &HumanRequest) -> String {
    let lines: Vec<String> = parts(&one.request).into_iter().map(|(name, text)| format!("{name}: {text}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use bosun_engine::Target;

    use super::*;

    #[test]
    fn what_is_too_large_to_tell_is_the_same_request_and_escalated_as_often() {
        let of = |action: String| {
            let request = json!({ "id": "run/ap-1", "shown": "hash", "action": action, "escalated": 2, "deadline": 7 });
            asked_of(&HumanRequest { kind: HumanRequestKind::Approval, target: Target::workflow("r".into()), request })
        };
        let (small, large) = (of("x".into()), of("x".repeat(REQUEST_MAX)));
        assert_eq!((&large.id, &large.shown, large.escalated()), (&small.id, &small.shown, 2));
        assert_eq!(small.request["action"], "x");
        assert_eq!(large.request, json!({ "too_large_to_tell": true, "escalated": 2, "deadline": 7 }));
    }
}
