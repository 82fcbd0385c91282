//! Names of tools as providers of models take them: letters of ASCII, digits, `_` and `-`, at most 64 of them.
//!
//! Invariant: a name that providers take is sent as it is; two tools of a call never share one. What is recorded, noted and
//! told are the real names (CRW-04): the others are between a request and its answer.

use std::collections::BTreeMap;

use crate::supervisor::agents::{StepContext, ToolOffer};

/// The longest name.
const LONGEST: usize = 64;

/// The names of the tools that a call offers, and of those that its conversation speaks of.
#[derive(Default)]
pub(super) struct ToolNames {
    sent: BTreeMap<String, String>,
}

impl ToolNames {
    pub(super) fn of(context: &StepContext<'_>) -> ToolNames {
        let called = context.messages.iter().flat_map(|message| &message.tool_calls).map(|call| &call.name);
        ToolNames::of_all(context.tools.iter().map(|tool| &tool.name).chain(called).cloned().collect())
    }

    /// The same where nothing was called before.
    pub(super) fn of_offers(offers: &[ToolOffer]) -> ToolNames {
        ToolNames::of_all(offers.iter().map(|tool| tool.name.clone()).collect())
    }

    fn of_all(names: Vec<String>) -> ToolNames {
        let mut taken: Vec<String> = names.iter().filter(|name| is_taken_as_is(name)).cloned().collect();
        let mut sent = BTreeMap::new();
        for name in names.into_iter().filter(|name| !is_taken_as_is(name)) {
            if sent.contains_key(&name) {
                continue;
            }
            let plain = free(&plain(&name), &taken);
            taken.push(plain.clone());
            sent.insert(name, plain);
        }
        ToolNames { sent }
    }

    /// What the provider is told.
    pub(super) fn sent(&self, name: &str) -> String {
        self.sent.get(name).cloned().unwrap_or_else(|| name.to_owned())
    }

    /// Which tool the model means.
    pub(super) fn meant(&self, name: &str) -> String {
        let real = self.sent.iter().find(|(_, sent)| *sent == name).map(|(real, _)| real.clone());
        real.unwrap_or_else(|| name.to_owned())
    }
}

fn fits(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn is_taken_as_is(name: &str) -> bool {
    (1..=LONGEST).contains(&name.len()) && name.chars().all(fits)
}

fn plain(name: &str) -> String {
    let plain: String = name.chars().map(|c| if fits(c) { c } else { '_' }).take(LONGEST).collect();
    if plain.is_empty() { "_".to_owned() } else { plain }
}

/// The name, or the name with the first number that nobody has.
fn free(name: &str, taken: &[String]) -> String {
    if !taken.iter().any(|other| other == name) {
        return name.to_owned();
    }
    let numbered = |number: usize| {
        let end = format!("_{number}");
        let room: String = name.chars().take(LONGEST - end.len()).collect();
        room + &end
    };
    (2..=taken.len() + 2).map(numbered).find(|name| !taken.contains(name)).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// CRW-04: names of tools are sent in the form that providers take, each to one tool, and are read back.
    #[test]
    fn every_name_fits_and_is_read_back() {
        let long = "x".repeat(70);
        let names = ["Ask question to coworker", "Ask_question to coworker", "delegate_to_café", long.as_str(), "pay"];
        let tools: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
        let said = json!({ "role": "assistant", "tool_calls": [{ "id": "1", "name": "gone tool", "args": {} }] });
        let context: StepContext<'_> = serde_json::from_value(json!({ "tools": tools, "messages": [said] })).unwrap();
        let known = ToolNames::of(&context);
        let sent: Vec<String> = names.iter().map(|name| known.sent(name)).collect();
        let expected =
            ["Ask_question_to_coworker", "Ask_question_to_coworker_2", "delegate_to_caf_", &long[..64], "pay"];
        assert_eq!(sent, expected);
        for (name, sent) in names.iter().zip(&sent) {
            assert_eq!(known.meant(sent), *name);
        }
        assert_eq!(known.sent("gone tool"), "gone_tool");
        assert_eq!(known.meant("no_tool_at_all"), "no_tool_at_all");
    }
}
