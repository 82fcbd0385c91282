//! What the document of the API says of schedules: of one as a whole, and of what people send to one.
//!
//! Invariant: whatever fits is taken; only of a range that is made up for no schema can say which end comes first. Where the
//! server takes more than is written here, the description says so: so that any time is left of what fits, what is left out
//! has years of its own, what begins does so before 2050, and what ends does not before 2070. The forms are those of
//! `crate::schedule`, which decides.

use serde_json::{Value, json};

/// A length of time of a schedule.
const SPAN: &str = "^[1-9][0-9]{0,3}(s|m|h)$";
/// As it stands in a moment.
const YEAR: &str = "20[0-9]{2}";
const MOMENT: &str = "^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$";
const SCHEDULE_ID: &str = "^[!-~]{1,120}$";

fn text() -> Value {
    json!({ "type": ["string", "null"] })
}

fn span(about: &str) -> Value {
    json!({ "type": ["string", "null"], "description": format!("{about}, such as 90s or 6h"), "pattern": SPAN })
}

/// A moment in years that are written as this pattern; the server takes any.
fn moment(about: &str, years: &str) -> Value {
    json!({ "type": ["string", "null"], "description": format!("{about}, such as 2026-12-01T00:00:00Z; of any year"),
        "pattern": MOMENT.replacen(YEAR, years, 1) })
}

const OVERLAPS: [&str; 6] = ["skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other", "allow_all"];

/// Times by their fields. `skips`: those that are left out, which are of years of their own.
fn calendar(skips: bool) -> Value {
    let about = "A value, a range `1-5`, a step `*/10`, or several with commas; there is a `year`, too";
    let field =
        |values: &str| json!({ "type": "string", "description": about, "pattern": format!("^(\\*|{values})$") });
    let mut fields = json!({ "type": "object", "additionalProperties": false, "properties": {
        "second": field("[1-5]?[0-9]"), "minute": field("[1-5]?[0-9]"), "hour": field("1?[0-9]|2[0-3]"),
        "day_of_month": field("[1-9]|1[0-9]|2[0-8]"), "month": field("[1-9]|1[0-2]"),
        "day_of_week": field("[0-6]|mon-fri"), "comment": text(),
    } });
    if skips {
        fields["required"] = json!(["year"]);
        fields["properties"]["year"] = json!({ "type": "string", "pattern": "^202[0-9]$" });
    }
    fields
}

fn spec() -> Value {
    let every = "^([1-9][0-9]s|[1-9][0-9]{0,2}(m|h|d))$";
    // Of places whose clocks are not changed: any other leaves times out.
    let zone = "^(UTC|America/Sao_Paulo|Asia/(Kolkata|Tokyo))$";
    let cron =
        "^([1-5]?[0-9]|\\*) (1?[0-9]|2[0-3]|\\*) ([1-9]|1[0-9]|2[0-8]|\\*) ([1-9]|1[0-2]|\\*) ([0-6]|mon-fri|\\*)$";
    let list = |items: Value| json!({ "type": "array", "minItems": 1, "maxItems": 20, "items": items });
    json!({
        "type": "object", "additionalProperties": false, "description": "When: the times of all parts together, without those of `skip`",
        "properties": {
            "cron": list(json!({ "type": "string", "description": "5 to 7 fields, or @daily and the like", "pattern": cron })),
            "intervals": list(json!({ "type": "object", "required": ["every"], "additionalProperties": false, "properties": {
                "every": { "type": "string", "description": "Counted from 1970-01-01 00:00 UTC", "pattern": every },
                "offset": { "type": "string", "description": "Less than `every`", "pattern": "^[0-9]s$" } } })),
            "calendars": list(calendar(false)), "skip": list(calendar(true)),
            "start_time": moment("Nothing before", "20[0-4][0-9]"), "end_time": moment("Nothing after", "20[7-9][0-9]"),
            "jitter": span("Each start is later by a part of this"),
            "time_zone": { "type": ["string", "null"], "description": "Any name of the IANA; UTC without one", "pattern": zone },
        },
        "anyOf": [{ "required": ["cron"] }, { "required": ["intervals"] }, { "required": ["calendars"] }],
    })
}

/// `left_min`: how few starts may be left; one that is made has one, one that is updated may be over.
fn schedule(id: &Value, left_min: u64) -> Value {
    let queue = json!({ "anyOf": [id, { "type": "null" }] });
    json!({
        "type": "object", "required": ["spec", "action"], "additionalProperties": false,
        "properties": {
            "spec": spec(),
            "action": { "type": "object", "required": ["workflow_type", "workflow_id"], "additionalProperties": false,
                "description": "What is started", "properties": {
                    "workflow_type": id, "workflow_id": id, "input": { "description": "Any JSON" }, "task_queue": queue,
                    "execution_timeout": span("For the whole chain of runs"), "run_timeout": span("For one run"),
                    "maximum_attempts": { "type": ["integer", "null"], "minimum": 0, "maximum": 4_294_967_295_u32 },
                    "summary": text(),
                    "priority": { "type": ["object", "null"], "description": "As `priority` of startWorkflow", "properties": {
                        "priority_key": { "type": ["integer", "null"], "minimum": 1, "maximum": 5 } } } } },
            "policies": { "type": "object", "additionalProperties": false, "properties": {
                "overlap": { "enum": OVERLAPS, "default": "skip" },
                "catch_up_window": { "type": "string", "description": "At least 10s", "pattern": "^[1-9][0-9]{0,3}(m|h)$" },
                "pause_on_failure": { "type": "boolean" } } },
            "state": { "type": "object", "additionalProperties": false, "properties": {
                "paused": { "type": "boolean" }, "note": { "type": "string" },
                "remaining_actions": { "type": ["integer", "null"], "minimum": left_min, "maximum": 1_u64 << 53 } } },
        },
    })
}

/// The bodies by their names. `id` is the schema of an id.
pub(super) fn schemas(id: &Value) -> [(&'static str, Value); 5] {
    let words: Vec<Value> = OVERLAPS.into_iter().map(Value::from).chain([Value::Null]).collect();
    let overlap = json!({ "enum": words, "description": "Instead of the schedule's own" });
    let time = |about: &str| json!({ "type": "string", "description": about, "pattern": MOMENT });
    [
        (
            "NewSchedule",
            json!({ "type": "object", "required": ["schedule_id", "schedule"], "additionalProperties": false,
            "properties": { "schedule_id": { "type": "string", "pattern": SCHEDULE_ID },
                "namespace": { "anyOf": [id, { "type": "null" }] }, "schedule": schedule(id, 1) } }),
        ),
        (
            "ScheduleUpdate",
            json!({ "type": "object", "required": ["schedule"], "additionalProperties": false,
            "properties": { "schedule": schedule(id, 0),
                "version": { "type": ["integer", "null"], "description": "The one that was looked at; another one is not overwritten",
                    "minimum": 0, "maximum": 1_u64 << 53 } } }),
        ),
        (
            "ScheduleNote",
            json!({ "type": ["object", "null"], "additionalProperties": false, "properties": {
            "note": { "type": ["string", "null"], "description": "Why; shown with the schedule" } } }),
        ),
        (
            "ScheduleTrigger",
            json!({ "type": ["object", "null"], "additionalProperties": false, "properties": {
            "overlap": overlap.clone() } }),
        ),
        (
            "ScheduleBackfill",
            json!({ "type": "object", "required": ["start_time", "end_time"], "additionalProperties": false,
            "properties": { "start_time": time("The first time"), "end_time": time("The last time"), "overlap": overlap } }),
        ),
    ]
}
