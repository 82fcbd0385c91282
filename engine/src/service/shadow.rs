//! Which runs that come back from a snapshot are compared with their history, and which snapshots are not trusted any more
//! (E37).
//!
//! Invariant: of every workflow type the first runs that come back are compared, then a sample. A type whose snapshots
//! were found to lose something is brought back from history alone for as long as the worker runs. It compares nothing
//! itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::vocabulary::*;
use crate::workflow::{SnapshotMismatch, TellMismatch};

/// So many runs of a type are compared before a sample is enough.
const FIRST: u64 = 8;
/// A longer history is not replayed for a comparison.
const EVENTS_MAX: u64 = 5_000;
/// Nor one of more bytes.
const BYTES_MAX: u64 = 8 * 1024 * 1024;

#[derive(Default)]
struct TypeRecord {
    resumed: u64,
    /// The card of what was found.
    lost: Option<String>,
}

/// See the module.
pub(crate) struct Shadows {
    /// After the first ones, every run of this number is compared. 0: none at all.
    every: u64,
    types: Mutex<BTreeMap<WorkflowType, TypeRecord>>,
    any_lost: AtomicBool,
}

impl Shadows {
    pub(super) fn new(every: u32) -> Arc<Self> {
        Arc::new(Shadows { every: u64::from(every), types: Mutex::default(), any_lost: AtomicBool::new(false) })
    }
    fn types(&self) -> MutexGuard<'_, BTreeMap<WorkflowType, TypeRecord>> {
        self.types.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the run that comes back now is compared.
    pub(super) fn wants(&self, info: &RunInfo) -> bool {
        if self.every == 0 || info.history.events > EVENTS_MAX || info.history.bytes > BYTES_MAX {
            return false;
        }
        let mut types = self.types();
        let record = types.entry(info.workflow_type.clone()).or_default();
        record.resumed += 1;
        record.resumed <= FIRST || record.resumed.is_multiple_of(self.every)
    }

    /// Whether runs of the type may come back from a snapshot.
    pub(super) fn trusts(&self, workflow_type: &WorkflowType) -> bool {
        self.card(workflow_type).is_none()
    }

    /// What was found about snapshots of the type.
    pub(super) fn card(&self, workflow_type: &WorkflowType) -> Option<String> {
        if !self.any_lost.load(Ordering::Acquire) {
            return None;
        }
        self.types().get(workflow_type)?.lost.clone()
    }

    /// The types whose snapshots were found to lose something.
    pub(super) fn untrusted(&self) -> usize {
        match self.any_lost.load(Ordering::Acquire) {
            true => self.types().values().filter(|record| record.lost.is_some()).count(),
            false => 0,
        }
    }

    /// What whoever compares is to tell.
    pub(super) fn tell(self: &Arc<Self>) -> TellMismatch {
        let this = self.clone();
        Box::new(move |mismatch: SnapshotMismatch| {
            let card = mismatch.to_string();
            tracing::error!(run = %mismatch.run_id, workflow_type = %mismatch.workflow_type, "{card}");
            this.types().entry(mismatch.workflow_type).or_default().lost.get_or_insert(card);
            this.any_lost.store(true, Ordering::Release);
        })
    }
}
