//! A schedule's description in the words of people: when it starts, and whether it does.
//!
//! Invariant: it reads what the query `describe` has answered and nothing else; the command line and the pages say the same.

use serde_json::Value;

use super::text::parse_moment;

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

/// What has become of a start that somebody asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartBecame {
    Started,
    /// For the end of the run before it.
    Waits,
    /// By the overlap policy.
    LeftOut,
}

impl StartBecame {
    /// Of the start of a moment; nothing where it is too long ago to tell.
    pub fn of(described: &Value, nominal: &str) -> Option<StartBecame> {
        let list = |list: &str| described[list].as_array().into_iter().flatten().map(|one| &one["nominal"]);
        let has = |name: &str| list(name).any(|one| one == nominal);
        let ended = list("recent").filter_map(Value::as_str);
        let is_forgotten = ended.map(parse_moment).all(|at| at > parse_moment(nominal));
        match (has("running") || has("recent"), has("waiting")) {
            (true, _) => Some(StartBecame::Started),
            (false, true) => Some(StartBecame::Waits),
            (false, false) if list("recent").next().is_some() && is_forgotten => None,
            (false, false) => Some(StartBecame::LeftOut),
        }
    }

    /// For programs.
    pub fn name(self) -> &'static str {
        match self {
            StartBecame::Started => "started",
            StartBecame::Waits => "waits",
            StartBecame::LeftOut => "left_out",
        }
    }

    /// For people.
    pub fn text(self, schedule: &str, nominal: &str) -> String {
        match self {
            StartBecame::Started => format!("triggered the schedule {schedule} for {nominal}"),
            StartBecame::Waits => {
                format!("the schedule {schedule} starts {nominal} when the run before it has ended")
            }
            StartBecame::LeftOut => format!(
                "the schedule {schedule} has left out {nominal}: a run of it is open, and its overlap policy says so"
            ),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_start_that_was_asked_for_has_started_or_waits_or_is_left_out() {
        let at = |day: u32| format!("2026-03-{day:02}T00:00:00Z");
        let described = json!({
            "running": [{ "nominal": at(7) }], "waiting": [{ "nominal": at(8) }], "recent": [{ "nominal": at(5) }],
        });
        let became = |day| StartBecame::of(&described, &at(day)).map(StartBecame::name);
        assert_eq!([7, 5, 8, 9].map(became), [Some("started"), Some("started"), Some("waits"), Some("left_out")]);
        assert_eq!(became(2), None, "what ended that long ago is no longer known");
        assert_eq!(StartBecame::of(&json!({ "recent": [] }), &at(2)), Some(StartBecame::LeftOut));
    }
}
