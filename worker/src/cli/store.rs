//! `store …`: the data directory as a whole.
//!
//! Invariant: `verify`, `info` and the source of a salvage are only read; a backup is consistent while the worker runs. A damaged store that
//! cannot be opened is reported by `verify` as a finding with exit code 21, not as a crash.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::Value;

use super::context::Context;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::output::Screen;

#[derive(Debug, Subcommand)]
pub enum StoreVerb {
    /// Check every record, the hash chain and the tail anchor.
    Verify,
    /// Show what the store holds.
    Info,
    /// Copy the store, consistently, while it is used.
    Backup {
        /// The directory to write; must not exist.
        #[arg(value_name = "DIR")]
        to: PathBuf,
    },
    /// Save what is whole of a damaged store in a new one. The damaged one is only read.
    Salvage {
        /// The directory to save from; nobody may hold it.
        #[arg(value_name = "DIR")]
        from: PathBuf,
        /// The directory to write; must be empty, or not exist.
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
    },
}

/// Runs of which a turn is lost are held in the new store; all others go on there.
pub(super) async fn salvage(screen: &mut Screen, from: PathBuf, to: PathBuf) -> Result<Exit, CliError> {
    let saved = tokio::task::spawn_blocking({
        let to = to.clone();
        move || crate::embedded::salvage(&from, &to)
    });
    let report = saved.await.map_err(|why| CliError::new(Code::Failed, "the salvage panicked").cause(why))??;
    print(screen, "store.salvage", &report);
    screen.next(&format!("bosun list --data {}", to.display()));
    Ok(Exit::Ok)
}

pub(super) async fn store(cx: &mut Context, verb: StoreVerb) -> Result<Exit, CliError> {
    match verb {
        StoreVerb::Verify => {
            let report = cx.backend.verify().await?;
            print(&mut cx.screen, "store.verify", &report);
            Ok(if healthy(&report) { Exit::Ok } else { Exit::HistoryUnreadable })
        }
        StoreVerb::Info => {
            let info = cx.backend.store_info().await?;
            print(&mut cx.screen, "store.info", &info);
            Ok(Exit::Ok)
        }
        StoreVerb::Backup { to } => {
            // The worker's working directory is not ours.
            let to = std::path::absolute(&to)
                .map_err(|why| CliError::new(Code::Failed, format!("cannot name {}", to.display())).cause(why))?;
            let report = cx.backend.backup(to.clone()).await?;
            print(&mut cx.screen, "store.backup", &report);
            cx.screen.next(&format!("bosun store verify --data {}", to.display()));
            Ok(Exit::Ok)
        }
        // Carried out before, without an engine.
        StoreVerb::Salvage { from, to } => salvage(&mut cx.screen, from, to).await,
    }
}

/// A report is well unless it says otherwise.
fn healthy(report: &Value) -> bool {
    report["ok"].as_bool().unwrap_or(true) && report["findings"].as_array().is_none_or(Vec::is_empty)
}

fn print(screen: &mut Screen, schema: &str, report: &Value) {
    screen.object(schema, report.clone());
    match report {
        Value::Object(fields) => {
            for (name, value) in fields {
                screen.field(&name.replace('_', " "), super::result::value_text(value));
            }
        }
        other => screen.block(&super::result::value_text(other)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_with_findings_is_not_healthy() {
        assert!(healthy(&json!({ "groups": 7 })));
        assert!(healthy(&json!({ "ok": true, "findings": [] })));
        assert!(!healthy(&json!({ "ok": false })));
        assert!(!healthy(&json!({ "findings": ["group 7: CRC"] })));
    }
}
