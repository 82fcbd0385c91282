//! What runs have spent, asked of each again only when something has happened in it.
//!
//! Invariant: who has no budget has spent nothing that is known; a figure is never older than the history it is shown with.

use std::collections::BTreeMap;

use bosun_engine::{RunId, RunInfo};

use crate::agent::AGENT;
use crate::api::people::ask;
use crate::backend::Backend;
use crate::inbox::target_of;
use crate::supervisor::run::SUPERVISOR;

/// Micro-dollars by run, and how long its history was when it said so.
#[derive(Debug, Default)]
pub(super) struct SpentMemory(BTreeMap<RunId, (u64, Option<u64>)>);

impl SpentMemory {
    pub(super) async fn of(&mut self, backend: &dyn Backend, run: &RunInfo) -> Option<u64> {
        if ![SUPERVISOR, AGENT].contains(&run.workflow_type.as_str()) {
            return None;
        }
        let events = run.history.events;
        match self.0.get(&run.run_id) {
            Some((at, spent)) if *at == events && events > 0 => *spent,
            _ => {
                let spent = ask(backend, &target_of(run), "budget").await["spent"]["cost_micros"].as_u64();
                self.0.insert(run.run_id, (events, spent));
                spent
            }
        }
    }

    /// Forgets the runs that are not shown any more.
    pub(super) fn keep(&mut self, shown: &[RunInfo]) {
        self.0.retain(|id, _| shown.iter().any(|run| run.run_id == *id));
    }
}
