//! What the engine says of a store, as objects for `-o json` and the control API.
//!
//! Invariant: a field keeps its name and its meaning; new ones may come.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bosun_engine::log::{Epoch, EpochFile, FindingClass, Log, StorageError, StoreInfo, VerifyReport, damaged_copies};
use bosun_engine::{RetentionInfo, hex};
use serde_json::{Map, Value, json};

use crate::backend::OpenError;
use crate::capability::at_rest::{self, AtRestError};

/// Where the store is, and what it is encrypted with.
pub(crate) struct StoreLocation {
    pub(crate) data: PathBuf,
    pub(crate) writes_with: Option<String>,
    /// Where it is noted how far it reached, and what is compared with that.
    pub(crate) epoch: Option<(EpochFile, Arc<dyn Log>)>,
}

impl StoreLocation {
    /// Whether the store fits its epoch file, if there is one.
    pub(crate) fn judge(&self) -> Option<(&EpochFile, Result<Option<Epoch>, StorageError>)> {
        self.epoch.as_ref().map(|(file, log)| (file, file.judge(&self.data, &**log)))
    }

    /// What is known of it beside what the engine says.
    pub(crate) fn add_to(&self, info: &mut Value, retention: &RetentionInfo) {
        let keys = at_rest::needed(&self.data).unwrap_or_default();
        info["damaged_copies"] = json!(damaged_copies(&self.data));
        info["retention"] = retention_json(retention);
        if let Some((file, judged)) = self.judge() {
            info["epoch"] = epoch_json(file, &judged);
        }
        info["encryption"] = json!({ "writes_with": self.writes_with, "needs_keys": keys });
    }
}

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

/// What an epoch file says, and whether the store fits it.
pub(crate) fn epoch_json(file: &EpochFile, judged: &Result<Option<Epoch>, StorageError>) -> Value {
    let noted = judged.as_ref().ok().copied().flatten().or_else(|| file.read().ok().flatten());
    json!({
        "file": file.path(),
        "group": noted.map(|epoch| epoch.tail.last),
        "fits": judged.as_ref().map_or(Some(false), |noted| noted.map(|_| true)),
        "why": judged.as_ref().err().map(ToString::to_string),
    })
}

/// Adds what is wrong with it to the findings.
pub(crate) fn judge_epoch(report: &mut Value, file: &EpochFile, judged: &Result<Option<Epoch>, StorageError>) {
    report["epoch"] = epoch_json(file, judged);
    let Err(why) = judged else { return };
    report["ok"] = Value::Bool(false);
    if let Some(findings) = report["findings"].as_array_mut() {
        let (class, file, detail) = ("epoch", file.path(), why.to_string());
        findings.push(json!({
            "class": class, "file": file, "group": null, "run_id": null, "offset": null, "detail": detail,
        }));
    }
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
        FindingClass::File => "file",
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
        "runs_lost": info.runs_lost,
    })
}

/// Why the keys of a store do not fit it, or cannot be known.
pub(crate) fn key_error(why: &AtRestError) -> OpenError {
    match why {
        AtRestError::MissingKey { .. } | AtRestError::File { .. } => OpenError::MissingKey(why.to_string()),
        AtRestError::Unreachable { .. } => OpenError::Refused(why.to_string()),
    }
}

/// What an error of the log means for whoever wanted the directory open.
pub(crate) fn open_error(why: StorageError) -> OpenError {
    match why {
        StorageError::Locked { dir } => OpenError::Locked(dir),
        StorageError::Taken { .. } => OpenError::Taken(why.to_string()),
        StorageError::ReadOnly { .. }
        | StorageError::NetworkFilesystem { .. }
        | StorageError::SwapUnfinished { .. }
        | StorageError::EpochUnwritable { .. } => OpenError::Refused(why.to_string()),
        StorageError::RolledBack { .. }
        | StorageError::EpochOfOther { .. }
        | StorageError::EpochUnreadable { .. }
        | StorageError::EpochInside { .. } => OpenError::RolledBack(why.to_string()),
        StorageError::Full { .. } | StorageError::NoRoom { .. } => OpenError::Full(why.to_string()),
        StorageError::Corrupt { .. }
        | StorageError::NotSound { .. }
        | StorageError::NotADatabase { .. }
        | StorageError::IsolatedTooOften { .. } => OpenError::Corrupt(why.to_string()),
        StorageError::FormatTooNew { .. } => OpenError::Unsupported(why.to_string()),
        // The log is as it was: somebody else's.
        StorageError::Io { kind: std::io::ErrorKind::PermissionDenied, .. } => OpenError::Refused(format!(
            "{why}; the store belongs to another user, or a file of it does: run this as that user, or `chown` it"
        )),
        // The disk is fine: this process may open no more files (EMFILE).
        StorageError::Io { ref message, .. } if message.contains("os error 24") => OpenError::Refused(format!(
            "{why}; this process may open no more files, and nothing was changed: raise its limit (`ulimit -n`)"
        )),
        other => OpenError::Failed(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Too few file handles are the process's, and no failure of the log (issue 14 §1).
    #[test]
    fn too_many_open_files_are_no_failure_of_the_log() {
        let message = "Too many open files (os error 24)".to_owned();
        let (path, kind) = (PathBuf::from("d/log/db"), std::io::Error::from_raw_os_error(24).kind());
        let why = StorageError::Io { op: "open", path, kind, message };
        let told = open_error(why);
        assert!(matches!(&told, OpenError::Refused(why) if why.contains("ulimit -n")), "{told:?}");
    }
}
