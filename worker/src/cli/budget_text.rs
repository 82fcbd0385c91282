//! A budget for people: what is spent, allowed and left of each thing that is counted, and what it waits for.
//!
//! Invariant: it reads what a supervisor or an agent answers to its query `budget`, and nothing else; what has no limit says
//! so, and is not shown as 0.

use serde_json::Value;

use super::budget::dollars;
use super::error::CliError;
use super::output::{Cell, Screen, TextStyle};
use super::spent;
use super::time_format::short;

const COLUMNS: [&str; 5] = ["budget", "spent", "reserved", "allowed", "left"];

/// What is counted, by its key, in the words of people.
const COUNTED: [(&str, &str); 5] = [
    ("calls", "calls"),
    ("steps", "model calls"),
    ("tool_calls", "tool calls"),
    ("tokens", "tokens"),
    ("cost_micros", "cost"),
];

/// The table, and what else a budget says.
pub(super) fn show(screen: &mut Screen, budget: &Value) -> Result<(), CliError> {
    screen.table(&COLUMNS, rows(budget))?;
    if let Some(left) = budget["wall_left_ms"].as_u64() {
        screen.line(format!("time left: {}", short(std::time::Duration::from_millis(left))));
    }
    if let Some(calls) = budget["spent"]["unpriced_calls"].as_u64().filter(|calls| *calls > 0) {
        screen.line(format!("calls of unknown price: {calls}"));
    }
    if let Some(calls) = budget["under_way"].as_u64().filter(|calls| *calls > 0) {
        screen.line(format!("calls under way: {calls}"));
    }
    if let Some(why) = waits_for(budget) {
        screen.line(why);
    }
    Ok(())
}

fn rows(budget: &Value) -> Vec<Vec<Cell>> {
    let either = |one: &str, other: &str| if budget[one].is_object() { &budget[one] } else { &budget[other] };
    // In the words of a supervisor, and of an agent.
    let (allowed, left) = (either("allowed", "caps"), either("left", "remaining"));
    let reserved = either("lent", "held");
    let counted = COUNTED.into_iter().filter(|(key, _)| budget["spent"][*key].is_u64());
    let row = |(key, word): (&str, &str)| {
        let shown = |value: &Value, nothing: &str| match value.as_u64() {
            Some(amount) if key == "cost_micros" => dollars(amount),
            Some(amount) => amount.to_string(),
            None => nothing.to_owned(),
        };
        let is_used_up = allowed[key].is_u64() && left[key] == 0;
        let left = Cell::of(shown(&left[key], "-"), if is_used_up { TextStyle::Red } else { TextStyle::Plain });
        vec![
            Cell::of(word, TextStyle::Bold),
            shown(&budget["spent"][key], "0").into(),
            shown(&reserved[key], "0").into(),
            shown(&allowed[key], "no limit").into(),
            left,
        ]
    };
    counted.map(row).collect()
}

/// What a budget keeps from going on.
fn waits_for(budget: &Value) -> Option<String> {
    if let Some(what) = budget["used_up"].as_str() {
        return Some(format!("used up: {}", what.replace('_', " ")));
    }
    let halted = &budget["halted"];
    if let Some(what) = halted["budget"]["resource"].as_str() {
        return Some(format!("used up: {}", what.replace('_', " ")));
    }
    spent::share(halted).map(|what| format!("waits for {what}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(budget: &Value) -> Vec<Vec<String>> {
        rows(budget).into_iter().map(|row| row.into_iter().map(|cell| cell.text).collect()).collect()
    }

    #[test]
    fn what_has_no_limit_says_so_and_money_is_in_dollars() {
        let of_run = json!({ "spent": { "tokens": 4, "calls": 2, "cost_micros": 500_000 },
            "allowed": { "tokens": 10, "calls": null, "cost_micros": 1_500_000 }, "lent": { "tokens": 6, "cost_micros": 0 },
            "left": { "tokens": 0, "calls": null, "cost_micros": 1_000_000 }, "used_up": "tokens" });
        assert_eq!(
            texts(&of_run),
            [
                ["calls", "2", "0", "no limit", "-"],
                ["tokens", "4", "6", "10", "0"],
                ["cost", "$0.500000", "$0.000000", "$1.500000", "$1.000000"],
            ]
        );
        assert_eq!(waits_for(&of_run).as_deref(), Some("used up: tokens"));
        let of_agent = json!({ "spent": { "steps": 1, "tool_calls": 0, "tokens": 9, "cost_micros": 0 },
            "caps": { "steps": 3, "tool_calls": null, "tokens": null, "cost_micros": null },
            "held": { "steps": 1, "tool_calls": 0, "tokens": 0, "cost_micros": 0 }, "remaining": { "steps": 1 },
            "halted": { "share": { "resource": "tokens", "wanted": 7 } } });
        assert_eq!(texts(&of_agent)[0], ["model calls", "1", "1", "3", "1"]);
        assert_eq!(
            waits_for(&of_agent).as_deref(),
            Some("waits for its share of the run's budget: 7 tokens, when others give back what they do not need")
        );
        assert_eq!(waits_for(&json!({ "used_up": null, "halted": null })), None);
    }
}
