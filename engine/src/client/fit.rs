//! The client looks whether open runs fit the code of the worker, before anything is told to them.
//!
//! Invariant: a run is loaded as for any question to it, on its turn thread and under its watchdog, one after the other,
//! so that other work gets its turn between them. Runs that this build has decided already are not loaded: they fit, unless
//! something of their history is lost.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use super::Client;
use crate::request::Target;
use crate::service::{FitReport, Health, ReplySender, ShardMessage};
use crate::vocabulary::*;

/// Histories that are replayed for this, together.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

impl Client {
    pub(super) async fn look_at_runs_of_other_builds(&self) -> FitReport {
        let build = self.shared.build;
        let found = self
            .read(move |shared| {
                // After a deploy all runs are others, and they may be many: only the newest few are kept.
                let (mut others, mut newest) = (0, BTreeMap::new());
                shared.journal.scan_open_runs(&mut |info| {
                    if info.build != build {
                        others += 1;
                        newest.insert((info.started_at, info.run_id), info.clone());
                        if newest.len() > shared.options.fit_runs_max {
                            newest.pop_first();
                        }
                    }
                });
                Ok((others, newest))
            })
            .await;
        let (other_build, newest) = found.unwrap_or_default();
        let mut report = FitReport { other_build, ..FitReport::default() };
        let mut bytes = 0;
        for info in newest.into_values().rev() {
            bytes += info.history.bytes;
            if bytes > BYTES_MAX || self.load(&info).await.is_err() {
                break;
            }
            report.checked += 1;
        }
        self.look_at_payloads().await;
        report.held = self.shared.held.lock().unwrap_or_else(PoisonError::into_inner).len();
        report
    }

    /// Open runs of which a payload is lost or damaged are known as held before anybody asks them something. The newest are
    /// looked at, as far as they take no more reading than the others.
    async fn look_at_payloads(&self) {
        let found = self.read(|shared| {
            let (mut hurt, mut bytes) = (Vec::new(), 0);
            for info in shared.journal.open_with_blobs()?.into_iter().take(shared.options.fit_runs_max) {
                if bytes > BYTES_MAX || shared.health.get() != Health::Ready {
                    break;
                }
                match shared.journal.turns(info.run_id, EventId(1)) {
                    Ok(turns) => bytes += turns.iter().flat_map(|turn| &turn.events).map(EventKind::size).sum::<u64>(),
                    Err(_) => hurt.push(info),
                }
            }
            Ok(hurt)
        });
        for info in found.await.unwrap_or_default() {
            if self.load(&info).await.is_err() {
                break;
            }
        }
    }

    /// Past interceptors: it is the worker that asks. Whether the run fits is noted where runs are loaded.
    async fn load(&self, info: &RunInfo) -> Result<(), Rejection> {
        let target = Target {
            namespace: info.namespace.clone(),
            workflow_id: info.workflow_id.clone(),
            run_id: Some(info.run_id),
        };
        let (reply, answer) = ReplySender::new(None);
        self.shared.request(&info.namespace, &info.workflow_id, ShardMessage::Describe { target, reply })?;
        match self.received(answer).await {
            Err(why @ (Rejection::ShuttingDown | Rejection::StorageFailed { .. } | Rejection::Overloaded { .. })) => {
                Err(why)
            }
            // A run that ended meanwhile, or one whose code does not come back, is no reason to leave out the others.
            Ok(_) | Err(_) => Ok(()),
        }
    }
}
