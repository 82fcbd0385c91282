//! Which runs a shard has: the newest of each workflow id, where a chain ends, and who is due when.
//!
//! Invariant: a run that is not loaded is known by its entries here and in the index, and no run is loaded to find one. A
//! deadline is that of the last decision, and there is one a run at most.

use super::Shard;
use crate::request::Target;
use crate::service::committer::RunName;
use crate::service::mailbox::RunRef;
use crate::vocabulary::*;

impl Shard {
    /// Learns of an open run at start, without loading it.
    pub(crate) fn know(&mut self, namespace: Namespace, workflow_id: WorkflowId, run: RunId, outlook: Outlook) {
        if let Some(at) = outlook.next_deadline {
            self.deadlines.insert((at, run));
            self.deadline_of.insert(run, (at, namespace.clone(), workflow_id.clone()));
        }
        self.current.insert((namespace, workflow_id), run);
    }

    pub(in crate::service) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Takes the next run whose deadline has come.
    pub(in crate::service) fn pop_due(&mut self, now: Timestamp) -> Option<RunName> {
        let (at, run) = *self.deadlines.first()?;
        if at > now {
            return None;
        }
        self.deadlines.remove(&(at, run));
        let (_, namespace, workflow_id) = self.deadline_of.remove(&run)?;
        Some(RunName { namespace, workflow_id, run_id: run })
    }

    pub(super) fn set_deadline(&mut self, name: &RunName, at: Option<Timestamp>) {
        if let Some((old, ..)) = self.deadline_of.get(&name.run_id) {
            if Some(*old) == at {
                return;
            }
            self.deadlines.remove(&(*old, name.run_id));
            self.deadline_of.remove(&name.run_id);
        }
        if let Some(at) = at {
            self.deadlines.insert((at, name.run_id));
            self.deadline_of.insert(name.run_id, (at, name.namespace.clone(), name.workflow_id.clone()));
        }
    }

    /// The newest run of a workflow id.
    pub(in crate::service) fn newest(&mut self, namespace: &Namespace, workflow_id: &WorkflowId) -> Option<RunId> {
        // The key is cloned; ids are reference-counted.
        let key = (namespace.clone(), workflow_id.clone());
        if let Some(current) = self.current.get(&key).copied() {
            self.forget_if_deleted(current);
        }
        self.current.get(&key).copied().or_else(|| self.shared.journal.latest_run(namespace, workflow_id))
    }

    /// The run is the newest of its workflow id.
    pub(in crate::service) fn know_as_current(&mut self, name: &RunName) {
        self.current.insert((name.namespace.clone(), name.workflow_id.clone()), name.run_id);
    }

    /// The facts of a run: from memory if loaded, else from the index.
    pub(in crate::service) fn info(&self, run: RunId) -> Option<RunInfo> {
        match self.loaded.get(&run) {
            Some(loaded) => Some(loaded.execution.run().info().clone()),
            None => self.shared.journal.run(run).map(|entry| entry.info),
        }
    }

    /// Whether a run, as [`Shard::info`] knows it, is of this workflow id and in this namespace: who names a run of another
    /// one names none.
    pub(super) fn is_of(&self, run: RunId, (namespace, workflow_id): (&Namespace, &WorkflowId)) -> bool {
        let is_meant = |info: &RunInfo| info.workflow_id == *workflow_id && info.namespace == *namespace;
        match self.loaded.get(&run) {
            Some(loaded) => is_meant(loaded.execution.run().info()),
            None => self.shared.journal.run(run).is_some_and(|entry| is_meant(&entry.info)),
        }
    }

    /// Finds the run that is meant.
    pub(in crate::service) fn find(&mut self, run: &RunRef) -> Result<RunName, Rejection> {
        if let RunRef::Target(Target { run_id: Some(run_id), .. }) = run {
            self.forget_if_deleted(*run_id);
        }
        let (namespace, workflow_id) = run.key();
        let not_found = |run_id| Rejection::NotFound { workflow_id: workflow_id.clone(), run_id };
        let run_id = match run {
            RunRef::Target(Target { run_id: Some(run_id), .. }) => {
                self.is_of(*run_id, run.key()).then_some(*run_id).ok_or_else(|| not_found(Some(*run_id)))?
            }
            RunRef::Target(Target { run_id: None, .. }) => {
                self.newest(namespace, workflow_id).ok_or_else(|| not_found(None))?
            }
            RunRef::Chain { first_run, .. } => {
                self.last_of_chain(*first_run).ok_or_else(|| not_found(Some(*first_run)))?
            }
        };
        Ok(RunName { namespace: namespace.clone(), workflow_id: workflow_id.clone(), run_id })
    }

    pub(in crate::service) fn last_of_chain(&self, first_run: RunId) -> Option<RunId> {
        let mut info = self.info(first_run)?;
        while let Some(next) = info.next_run {
            info = self.info(next)?;
        }
        Some(info.run_id)
    }
}
