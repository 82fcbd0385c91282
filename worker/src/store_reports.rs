//! What the engine says of a store, as objects for `-o json` and the control API.
//!
//! Invariant: a field keeps its name and its meaning; new ones may come.

use std::time::Duration;

use bosun_engine::log::{FindingClass, StoreInfo, VerifyReport};
use bosun_engine::{RetentionInfo, hex};
use serde_json::{Map, Value, json};

pub(crate) fn verify_json(report: &VerifyReport) -> Value {
    let findings: Vec<Value> = report
        .findings
        .iter()
        .map(|finding| {
            json!({
                "class": class_name(finding.class),
                "file": finding.file,
                "group": finding.group,
                "run_id": finding.run,
                "offset": finding.offset,
                "detail": finding.detail,
            })
        })
        .collect();
    json!({
        "ok": report.is_sound(),
        "groups": report.groups,
        "turns": report.turns,
        "runs": report.runs,
        "segments": report.segments,
        "blobs": report.blobs,
        "findings": findings,
    })
}

pub(crate) fn retention_json(info: &RetentionInfo) -> Value {
    let RetentionInfo { retention, closed_before, seen } = info;
    let of_namespaces = retention.namespaces.iter();
    json!({
        "default": kept_for(retention.default),
        "namespaces": of_namespaces.map(|(name, keep)| (name.to_string(), json!(kept_for(*keep)))).collect::<Map<_, _>>(),
        "deletes_what_closed_before": closed_before.map(|at| at.to_string()),
        "trusts_clock": retention.trust_clock,
        "time_seen": kept_for(Some(Duration::from_secs(seen.as_secs()))),
    })
}

/// As the owner writes it.
fn kept_for(keep: Option<Duration>) -> String {
    let Some(seconds) = keep.map(|keep| keep.as_secs()) else { return "forever".to_owned() };
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let unit = units.into_iter().find(|(unit, _)| seconds >= *unit && seconds.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{seconds}s"), |(unit, name)| format!("{}{name}", seconds / unit))
}

fn class_name(class: FindingClass) -> &'static str {
    match class {
        FindingClass::Group => "group",
        FindingClass::Chain => "chain",
        FindingClass::History => "history",
        FindingClass::Archive => "archive",
        FindingClass::Blob => "blob",
        FindingClass::Payload => "payload",
        FindingClass::Anchor => "anchor",
        FindingClass::Index => "index",
    }
}

pub(crate) fn info_json(info: &StoreInfo) -> Value {
    json!({
        "instance": hex(&info.instance),
        "format": info.format,
        "first_group": info.first_group,
        "last_group": info.last_group,
        "groups": info.groups,
        "log_bytes": info.log_bytes,
        "bytes_on_disk": info.bytes_on_disk,
        "runs_open": info.runs_open,
        "runs_closed": info.runs_closed,
    })
}
