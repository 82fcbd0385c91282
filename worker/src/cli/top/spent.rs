//! What runs have spent, asked of each again only when something has happened in it.
//!
//! Invariant: who has no budget has spent nothing that is known; a figure is never older than the history it is shown with.

use std::collections::BTreeMap;

use bosun_engine::{RunId, RunInfo};

use super::draw::money;
use crate::agent::AGENT;
use crate::api::people::ask;
use crate::backend::Backend;
use crate::inbox::target_of;
use crate::supervisor::run::SUPERVISOR;

/// What a run has spent, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnownSpend {
    pub(super) micros: u64,
    /// Calls whose price nobody knows: they cost something too.
    pub(super) unpriced_calls: u64,
}

impl KnownSpend {
    /// `$1.2500`, or `$1.2500 + ?` with calls of unknown price.
    pub(super) fn text(self) -> String {
        let known = money(self.micros);
        if self.unpriced_calls > 0 { format!("{known} + ?") } else { known }
    }
}

/// What each run has spent, and how long its history was when it said so.
#[derive(Debug, Default)]
pub(super) struct SpentMemory(BTreeMap<RunId, (u64, KnownSpend)>);

impl SpentMemory {
    pub(super) async fn of(&mut self, backend: &dyn Backend, run: &RunInfo) -> Option<KnownSpend> {
        if ![SUPERVISOR, AGENT].contains(&run.workflow_type.as_str()) {
            return None;
        }
        let events = run.history.events;
        match self.0.get(&run.run_id) {
            Some((at, spent)) if *at == events && events > 0 => Some(*spent),
            _ => {
                let said = ask(backend, &target_of(run), "budget").await;
                let unpriced = &said["spent"]["unpriced_calls"];
                let unpriced_calls = unpriced.as_u64().or(said["unpriced_calls"].as_u64()).unwrap_or_default();
                let spent = KnownSpend { micros: said["spent"]["cost_micros"].as_u64()?, unpriced_calls };
                // Who did not answer is asked again.
                self.0.insert(run.run_id, (events, spent));
                Some(spent)
            }
        }
    }

    /// Forgets the runs that are not shown any more.
    pub(super) fn keep(&mut self, shown: &[RunInfo]) {
        self.0.retain(|id, _| shown.iter().any(|run| run.run_id == *id));
    }
}
