//! A schedule's description in the words of people: when it starts, and whether it does.
//!
//! Invariant: it reads what the query `describe` has answered and nothing else; the command line and the pages say the same.

use serde_json::Value;

/// Whether a schedule starts anything by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleMood {
    /// Its spec cannot be asked, or its run is kept from going on.
    Problem,
    Paused,
    /// Its times or its starts are used up.
    Over,
    Active,
}

impl ScheduleMood {
    pub fn of(described: &Value) -> ScheduleMood {
        let state = &described["schedule"]["state"];
        match () {
            () if described["problem"].is_string() => ScheduleMood::Problem,
            () if state["paused"] == true => ScheduleMood::Paused,
            () if state["remaining_actions"] == 0 || described["next"].is_null() => ScheduleMood::Over,
            () => ScheduleMood::Active,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            ScheduleMood::Problem => "problem",
            ScheduleMood::Paused => "paused",
            ScheduleMood::Over => "over",
            ScheduleMood::Active => "active",
        }
    }
}

/// A spec in one line.
pub fn when(spec: &Value) -> String {
    let list = |key: &str| spec[key].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut parts: Vec<String> = list("cron").iter().map(text).collect();
    for every in list("intervals") {
        let offset = every["offset"].as_str().map_or_else(String::new, |offset| format!(" + {offset}"));
        parts.push(format!("every {}{offset}", text(&every["every"])));
    }
    for calendar in list("calendars") {
        let fields = fields(&calendar, "0");
        parts.push(if fields.is_empty() { "midnight".to_owned() } else { fields });
    }
    parts.extend(list("skip").iter().map(|calendar| format!("without {}", fields(calendar, "*"))));
    let zone = spec["time_zone"].as_str().map_or_else(String::new, |zone| format!(" ({zone})"));
    format!("{}{zone}", parts.join("; "))
}

/// What a calendar says, apart from days that are any, and times of the day that are `usual`.
fn fields(calendar: &Value, usual: &str) -> String {
    let fields = calendar.as_object().into_iter().flatten().filter(|(key, value)| {
        let usual = if matches!(key.as_str(), "second" | "minute" | "hour") { usual } else { "*" };
        *key != "comment" && value.as_str() != Some(usual)
    });
    fields.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect::<Vec<_>>().join(" ")
}
