//! What is done with a data directory as a whole that nobody holds: saved, restored, made compact, swept.
//!
//! Invariant: no engine is started and no workflow code loaded. The source is only read, but for `compact` in place, which
//! swaps a whole copy in, and the sweep; nothing is overwritten. Keys of the store go with every copy.

use std::path::{Path, PathBuf};

use bosun_engine::hex;
use bosun_engine::log::{self, BackupReport, EpochFile, JournalOptions, Log, SalvageReport, SpaceReport, StoreReader};
use serde_json::{Value, json};

use crate::backend::OpenError;
use crate::capability::at_rest::AtRest;
use crate::store_reports::{key_error, open_error};

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreWork {
    /// Save what is whole in a new directory.
    Salvage {
        /// The new directory.
        to: PathBuf,
    },
    /// Say what a salvage would save.
    Assess,
    /// Bring this backup back in a new directory.
    Restore {
        /// The new directory.
        to: PathBuf,
    },
    /// Leave out the holes: in a new directory, or in place.
    Compact {
        /// The copy; `None`: it takes the place of the store.
        to: Option<PathBuf>,
    },
    /// Remove what nothing refers to.
    CollectGarbage,
}

impl StoreWork {
    /// Whether payloads are looked into, which needs the keys of the store.
    pub(crate) fn needs_keys(&self) -> bool {
        matches!(self, StoreWork::Restore { .. } | StoreWork::Compact { .. } | StoreWork::CollectGarbage)
    }

    fn changes_the_store(&self) -> bool {
        matches!(self, StoreWork::Compact { to: None } | StoreWork::CollectGarbage)
    }
}

/// A store that is changed has to be the one that its epoch knows; one that is only read is compared as far as it can be.
fn judge(epoch: &EpochFile, data: &Path, work: &StoreWork) -> Result<(), OpenError> {
    if work.changes_the_store() {
        let read = StoreReader::open(data).map_err(open_error)?;
        return epoch.judge(data, &read).map(drop).map_err(open_error);
    }
    compares_nothing(epoch, false);
    // A damaged one is compared by the report itself.
    if let Ok(read) = StoreReader::open(data) {
        warn_of_older(epoch, data, &read);
    }
    Ok(())
}

/// Does it, and says what was done.
pub(crate) fn carry_out(
    data: &Path,
    work: &StoreWork,
    at_rest: &AtRest,
    epoch: Option<&EpochFile>,
) -> Result<Value, OpenError> {
    let options = JournalOptions { codec: at_rest.codec.clone(), ..JournalOptions::default() };
    let failed = open_error;
    let keys_go_to = |to: &Path| AtRest::copy(data, to).map_err(|why| key_error(&why));
    let keys_go_ahead =
        |to: &Path| AtRest::is_of(data, to).and_then(|()| AtRest::copy_ahead(data, to)).map_err(|why| key_error(&why));
    if let Some(epoch) = epoch {
        judge(epoch, data, work)?;
    }
    match work {
        StoreWork::Salvage { to } => {
            keys_go_ahead(to)?;
            let report = log::salvage(data, to, None).map_err(failed)?;
            keys_go_to(to)?;
            Ok(told_of_salvage(data, Some(to), &report))
        }
        StoreWork::Assess => Ok(told_of_salvage(data, None, &log::assess(data).map_err(failed)?)),
        StoreWork::Restore { to } => {
            keys_go_ahead(to)?;
            let report = log::restore(data, to, &options).map_err(failed)?;
            keys_go_to(to)?;
            Ok(told_of_copy(to, &report))
        }
        StoreWork::Compact { to: Some(to) } => {
            keys_go_ahead(to)?;
            let report = log::compact_to(data, to, &options).map_err(failed)?;
            keys_go_to(to)?;
            Ok(told_of_space(to, &report))
        }
        StoreWork::Compact { to: None } => {
            let report = log::compact(data, &options).map_err(failed)?;
            // The names of the keys that stood beside the old database.
            keys_go_to(data)?;
            Ok(told_of_space(data, &report))
        }
        // It completes a compact that was cut short, too.
        StoreWork::CollectGarbage => {
            let report = log::collect_garbage(data, &options).map_err(failed)?;
            keys_go_to(data)?;
            Ok(told_of_space(data, &report))
        }
    }
}

/// Who only looks at a store that does not fit its epoch file is told, and sees it: what is seen may be an older copy.
pub(crate) fn warn_of_older(epoch: &EpochFile, data: &Path, log: &dyn Log) {
    if let Err(why) = epoch.judge(data, log) {
        // Commands that look log errors only.
        tracing::error!("{why}");
    }
}

/// A file that is not there compares nothing, which a mistyped name would hide.
pub(crate) fn compares_nothing(epoch: &EpochFile, begins: bool) {
    let path = epoch.path();
    match (path.exists(), begins) {
        (true, _) => {}
        (false, true) => {
            let path = path.display();
            tracing::warn!(
                "the epoch file {path} is not there: the store is taken as it is, and the file begins with it"
            );
        }
        (false, false) => {
            tracing::error!("the epoch file {} is not there: nothing was compared with it", path.display())
        }
    }
}

/// Damage stays with what it hit: what is whole takes the place of what is damaged, and the log tells of the rest.
pub(crate) fn isolate(data: &Path, damage: &str, epoch: Option<&EpochFile>) -> Result<(), OpenError> {
    tracing::error!(data = %data.display(), damage, "the store is damaged: what it hit is isolated");
    let (report, aside) = log::isolate(data, epoch).map_err(open_error)?;
    let SalvageReport { runs_whole, held, runs_lost, runs_unnamed, groups_lost, damage, .. } = &report;
    for damaged in damage {
        tracing::warn!(damaged, "isolated");
    }
    for (run, why) in held {
        tracing::error!(%run, why, "the run is held");
    }
    for run in runs_lost {
        tracing::error!(%run, "nothing is left of the run");
    }
    if *runs_unnamed > 0 {
        tracing::error!(runs = runs_unnamed, "not even the ids are left of runs that the index counted");
    }
    let (held, lost, groups) = (held.len(), runs_lost.len(), groups_lost.len());
    let kept = aside.display().to_string();
    tracing::error!(runs_whole, held, lost, groups_lost = groups, kept, "the damage is isolated, all other runs go on");
    Ok(())
}

fn told_of_salvage(from: &Path, to: Option<&Path>, report: &SalvageReport) -> Value {
    let held: Vec<Value> = report.held.iter().map(|(run, why)| json!({ "run_id": run, "why": why })).collect();
    let mut told = json!({
        "from": from,
        "groups": report.groups,
        "groups_lost": report.groups_lost,
        "runs_whole": report.runs_whole,
        "runs_held": held,
        "runs_lost": report.runs_lost,
        "runs_unnamed": report.runs_unnamed,
        "damage": report.damage,
    });
    if let Some(to) = to {
        told["to"] = json!(to);
        told["instance"] = json!(hex(&report.instance));
        told["blobs"] = json!(report.blobs);
    }
    told
}

fn told_of_copy(to: &Path, report: &BackupReport) -> Value {
    json!({
        "to": to,
        "instance": hex(&report.instance),
        "first_group": report.first_group,
        "last_group": report.last_group,
        "segments": report.segments,
        "blobs": report.blobs,
        "bytes": report.bytes,
    })
}

fn told_of_space(at: &Path, report: &SpaceReport) -> Value {
    let SpaceReport { bytes_before, bytes_after, blobs_removed, leftovers_removed, set_aside } = report;
    let aside: Vec<Value> = set_aside.iter().map(|(path, bytes)| json!({ "path": path, "bytes": bytes })).collect();
    json!({
        "at": at,
        "bytes_before": bytes_before,
        "bytes_after": bytes_after,
        "blobs_removed": blobs_removed,
        "leftovers_removed": leftovers_removed,
        "set_aside": aside,
    })
}
