//! `store …`: the data directory as a whole.
//!
//! Invariant: `verify`, `info` and the source of a salvage or a restore are only read; a backup is consistent while the
//! worker runs; nothing is overwritten. A damaged store that cannot be opened is reported by `verify` as a finding with
//! exit code 21, not as a crash.

use std::path::{Path, PathBuf};

use bosun_engine::{Retention, RetentionInfo};
use clap::Subcommand;
use serde_json::{Value, json};

use super::args::Global;
use super::context::Context;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::list::shell_word;
use super::output::Screen;
use super::reach::program;
use crate::backend::{OpenEngine, OpenError, StoreWork};
use crate::store_reports::retention_json;

#[derive(Debug, Subcommand)]
pub enum StoreVerb {
    /// Check every record, the hash chain and the tail anchor; with --epoch-file, also whether an older copy was put back.
    Verify,
    /// Show what the store holds.
    Info,
    /// Copy the store consistently, even while it is in use.
    Backup {
        /// The directory to write; must be empty, or not exist.
        #[arg(value_name = "DIR")]
        to: PathBuf,
    },
    /// Save the undamaged part of a store in a new directory. The damaged store is only read.
    Salvage {
        /// The damaged directory; no process may hold it.
        #[arg(value_name = "DIR")]
        from: PathBuf,
        /// The directory to write; must be empty, or not exist.
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
    },
    /// Restore a backup in a new directory. The backup is checked first and not changed.
    Restore {
        /// The backup; no process may hold it.
        #[arg(value_name = "BACKUP")]
        from: PathBuf,
        /// The directory to write; must be empty, or not exist.
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
    },
    /// Rewrite the store without deleted and duplicate data. No process may hold it.
    Compact {
        /// Write the copy here, and do not change the store.
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
    /// Remove data that nothing refers to: payloads and long values without a run, and files left over from crashes. No process
    /// may hold the store; a worker does most of this by itself.
    Gc,
}

/// A directory as a shell takes it.
fn path_word(path: &Path) -> String {
    shell_word(&path.display().to_string())
}

/// The verbs that work on a directory as a whole, without an engine; the others are given back.
pub(super) async fn without_an_engine(
    screen: &mut Screen,
    global: &Global,
    opener: &dyn OpenEngine,
    verb: StoreVerb,
) -> Result<Result<Exit, CliError>, StoreVerb> {
    let data = &global.data;
    if matches!(verb, StoreVerb::Compact { .. } | StoreVerb::Gc) && global.address.is_some() {
        let why = "a store is rewritten where the data directory is, not over --address (or BOSUN_ADDRESS)";
        return Ok(Err(CliError::usage(why).help("run it on the worker's machine, with --data, while no worker runs")));
    }
    // Of the others the engine decides, or they read a directory that is named, and write a new one.
    if let (StoreVerb::Compact { .. } | StoreVerb::Gc, Err(why)) = (&verb, super::holder::owns(global)) {
        return Ok(Err(why));
    }
    Ok(match verb {
        StoreVerb::Salvage { from, to } => {
            let next = format!("bosun list --data {}", path_word(&to));
            work(screen, opener, &from, "store.salvage", StoreWork::Salvage { to }, Some(next)).await
        }
        StoreVerb::Restore { from, to } => {
            let next = format!("bosun worker run --data {}", path_word(&to));
            work(screen, opener, &from, "store.restore", StoreWork::Restore { to }, Some(next)).await
        }
        StoreVerb::Compact { to } => {
            let next = to.as_ref().map(|to| format!("bosun store info --data {}", path_word(to)));
            work(screen, opener, data, "store.compact", StoreWork::Compact { to }, next).await
        }
        StoreVerb::Gc => work(screen, opener, data, "store.gc", StoreWork::CollectGarbage, None).await,
        engine @ (StoreVerb::Verify | StoreVerb::Info | StoreVerb::Backup { .. }) => return Err(engine),
    })
}

async fn work(
    screen: &mut Screen,
    opener: &dyn OpenEngine,
    data: &Path,
    schema: &str,
    work: StoreWork,
    next: Option<String>,
) -> Result<Exit, CliError> {
    super::locate::is_no_file(data)?;
    let report = opener.store_work(data, &work).await.map_err(|why| held(data, why))?;
    print(screen, schema, &report);
    next.iter().for_each(|next| screen.next(next));
    Ok(Exit::Ok)
}

/// Who works on the directory as a whole needs it alone: no address leads around that.
fn held(data: &Path, why: OpenError) -> CliError {
    let is_held = matches!(why, OpenError::Locked(_));
    let error = CliError::from(why);
    if is_held {
        // The directory is an argument of these verbs, and need not be the one that others look at.
        let data = path_word(data);
        let program = program();
        error.help(format!(
            "`{program} --data {data} worker stop` ends the worker that holds it; then give the command again"
        ))
    } else {
        error
    }
}

/// A store that cannot be opened for its damage: what is wrong, which groups and runs it hit, and what would be saved.
pub(super) async fn verify_damaged(
    screen: &mut Screen,
    data: &Path,
    opener: &dyn OpenEngine,
    why: CliError,
) -> Result<Exit, CliError> {
    // Why it cannot be opened says more than why it cannot be assessed.
    let Ok(mut report) = opener.store_work(data, &StoreWork::Assess).await else { return Err(why) };
    report["ok"] = Value::Bool(false);
    report["findings"] = Value::Array(vec![Value::String(why.message)]);
    print(screen, "store.verify", &report);
    screen.next(&format!("bosun store salvage {} --to NEW", path_word(data)));
    screen.next("bosun worker run --on-damage isolate");
    Ok(Exit::HistoryUnreadable)
}

/// What the configuration says of a store.
pub(super) struct Configured {
    pub(super) data: PathBuf,
    pub(super) retention: Retention,
    pub(super) epoch_file: Option<PathBuf>,
}

impl Configured {
    /// What a worker that starts on the store, which nobody holds, would delete.
    fn retention(&self) -> Value {
        retention_json(&RetentionInfo::of_directory(&self.data, &self.retention, super::time_format::now()))
    }

    /// A file that is not there judges nothing: who named it would take that for a check that was passed.
    fn no_epoch_file(&self, report: &mut Value) {
        let Some(file) = self.epoch_file.as_ref().filter(|file| !file.exists()) else { return };
        let detail = format!("the epoch file {} is not there: nothing was compared with it", file.display());
        report["ok"] = Value::Bool(false);
        if let Some(findings) = report["findings"].as_array_mut() {
            findings.push(json!({ "class": "epoch", "file": file, "group": null, "run_id": null, "offset": null, "detail": detail }));
        }
    }

    /// A worker judges its store by the file that it was started with.
    fn unjudged(&self, report: &mut Value) {
        if let (Some(file), true) = (&self.epoch_file, report["epoch"].is_null()) {
            let why = "the worker that holds the store was started without it";
            report["epoch"] = json!({ "file": file, "group": null, "fits": null, "why": why });
        }
    }
}

pub(super) async fn store(cx: &mut Context, verb: StoreVerb, configured: &Configured) -> Result<Exit, CliError> {
    match verb {
        StoreVerb::Verify => {
            let mut report = cx.backend.verify().await?;
            configured.unjudged(&mut report);
            configured.no_epoch_file(&mut report);
            print(&mut cx.screen, "store.verify", &report);
            Ok(if healthy(&report) { Exit::Ok } else { Exit::HistoryUnreadable })
        }
        StoreVerb::Info => {
            let mut info = cx.backend.store_info().await?;
            if !cx.attached {
                info["retention"] = configured.retention();
            }
            configured.unjudged(&mut info);
            print(&mut cx.screen, "store.info", &info);
            Ok(Exit::Ok)
        }
        StoreVerb::Backup { to } => {
            // The worker's working directory is not ours.
            let to = std::path::absolute(&to)
                .map_err(|why| CliError::new(Code::Failed, format!("cannot name {}", to.display())).cause(why))?;
            let report = cx.backend.backup(to.clone()).await?;
            print(&mut cx.screen, "store.backup", &report);
            cx.screen.next(&format!("bosun store verify --data {}", path_word(&to)));
            Ok(Exit::Ok)
        }
        StoreVerb::Salvage { .. } | StoreVerb::Restore { .. } | StoreVerb::Compact { .. } | StoreVerb::Gc => {
            unreachable!("carried out before, without an engine")
        }
    }
}

/// A report is well unless it says otherwise.
fn healthy(report: &Value) -> bool {
    report["ok"].as_bool().unwrap_or(true) && report["findings"].as_array().is_none_or(Vec::is_empty)
}

fn print(screen: &mut Screen, schema: &str, report: &Value) {
    screen.object(schema, report.clone());
    match report {
        Value::Object(_) => {
            let lines = lines("", report);
            let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            lines.into_iter().for_each(|(name, text)| screen.field(&format!("{name:<width$}"), text));
        }
        other => screen.block(&super::result::value_text(other)),
    }
}

/// A report as lines of a name and a text; what lies in a section bears its name before its own.
fn lines(name: &str, value: &Value) -> Vec<(String, String)> {
    let one = |text: String| vec![(name.to_owned(), text)];
    match value {
        Value::Object(fields) => {
            let below = |(key, value): (&String, &Value)| {
                let key = key.replace('_', " ");
                lines(&if name.is_empty() { key } else { format!("{name} {key}") }, value)
            };
            fields.iter().flat_map(below).collect()
        }
        Value::Array(all) if all.is_empty() => one("none".to_owned()),
        Value::Array(all) => {
            let texts = all.iter().map(|entry| match entry {
                Value::Object(_) => {
                    let parts = lines("", entry).into_iter().map(|(name, text)| format!("{name} {text}"));
                    parts.collect::<Vec<_>>().join(", ")
                }
                other => super::result::value_text(other),
            });
            texts.enumerate().map(|(n, text)| (if n == 0 { name.to_owned() } else { String::new() }, text)).collect()
        }
        Value::Null => one("none".to_owned()),
        other => one(super::result::value_text(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_lines_of_a_name_and_a_text() {
        let report = json!({
            "ok": true, "findings": [], "retention": { "default": "30d", "namespaces": {}, "time_seen": null },
            "runs_held": [{ "run_id": "r1", "why": "lost" }, { "run_id": "r2", "why": "lost too" }],
        });
        let lines: Vec<String> =
            lines("", &report).into_iter().map(|(name, text)| format!("{name} = {text}")).collect();
        let seen = ["ok = true", "findings = none", "retention default = 30d", "retention time seen = none"];
        assert_eq!(lines[..4], seen);
        assert_eq!(lines[4..], ["runs held = run id r1, why lost", " = run id r2, why lost too"]);
    }

    #[test]
    fn a_report_with_findings_is_not_healthy() {
        assert!(healthy(&json!({ "groups": 7 })));
        assert!(healthy(&json!({ "ok": true, "findings": [] })));
        assert!(!healthy(&json!({ "ok": false })));
        assert!(!healthy(&json!({ "findings": ["group 7: CRC"] })));
    }
}
