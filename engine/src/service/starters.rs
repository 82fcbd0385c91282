//! Who started a run that ends workers is told, where its type wants to know: what starts runs again and again must not
//! start the next one for two more deaths of the worker (G23).
//!
//! Invariant: each that started the run, at whatever depth, hears of one quarantine once, by a signal of its own type's
//! choice, and a worker that begins tells it before any of its deadlines. Nothing is decided here; who hears decides.

use std::sync::Arc;

use super::mailbox::{RunRef, ShardMessage};
use super::shared::WorkerShared;
use crate::request::Target;
use crate::vocabulary::*;

/// No chain of parents is longer; a log that says so is not followed for ever.
const DEPTH_MAX: usize = 1_000;

/// Says what the worker before died of, to whoever started it. Whoever only looks, or does one thing, says nothing.
pub(super) fn tell_of_quarantined(shared: &Arc<WorkerShared>) {
    let Some(quarantine) = shared.quarantine.as_ref().filter(|_| !shared.options.look && !shared.options.visit) else {
        return;
    };
    for (run, found_at, why) in quarantine.holds() {
        let Some(entry) = shared.journal.run(run) else { continue };
        let RunInfo { namespace, workflow_id, parent, .. } = entry.info;
        tell_starters(shared, parent, &StarterNews { namespace, workflow_id, run, found_at, why });
    }
}

/// A run that is held because it ends workers.
pub(super) struct StarterNews {
    pub(super) namespace: Namespace,
    pub(super) workflow_id: WorkflowId,
    pub(super) run: RunId,
    /// When the last death was found: news of another one are other news.
    pub(super) found_at: Timestamp,
    pub(super) why: String,
}

impl StarterNews {
    fn signal(&self, name: SignalName) -> Input {
        let told = serde_json::json!({ "workflow_id": self.workflow_id, "run_id": self.run, "why": self.why });
        Input::Signal(WorkflowExecutionSignaled {
            name,
            input: Payload::raw_json(told.to_string()),
            identity: None,
            request_id: RequestId::new(format!("quarantined:{}:{}", self.run, self.found_at.as_micros())).ok(),
        })
    }
}

/// Goes up from a parent to the first that started anything.
pub(super) fn tell_starters(shared: &WorkerShared, parent: Option<Parent>, news: &StarterNews) {
    let mut above = parent;
    for _ in 0..DEPTH_MAX {
        let Some(starter) = above.take() else { return };
        let Some(entry) = shared.journal.run(starter.run_id) else { return };
        if let Some(name) = shared.options.workflows.told_of_quarantine(&entry.info.workflow_type) {
            // The newest run of it: it may have continued as new.
            let target = Target { namespace: news.namespace.clone(), ..Target::workflow(starter.workflow_id) };
            let Target { namespace, workflow_id, .. } = &target;
            let message = ShardMessage::Input {
                run: RunRef::Target(target.clone()),
                input: news.signal(name.clone()),
                reply: None,
            };
            shared.deliver(namespace, workflow_id, message);
            if let Ok(Some(newest)) = shared.journal.find(&target) {
                // Its shard takes what was delivered before any deadline.
                shared.recover(target.namespace, target.workflow_id, newest.run_id);
            }
        }
        above = entry.info.parent;
    }
}
