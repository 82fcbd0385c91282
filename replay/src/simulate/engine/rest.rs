//! The end of a simulated life: faults stop, and everything must end or wait for something named (G16).
//!
//! Invariant: a world that heals gives every success it can, so what does not come to rest then never does.

use bosun_engine::activity::ActivityError;
use bosun_engine::*;

use super::answers::ClientRequest;
use super::world::{Checked, EngineWorld};

/// A world that needs more steps than this to come to rest never does.
const REST_STEPS: u32 = 6_000;

impl EngineWorld<'_> {
    /// No faults any more, and nothing is held back.
    pub(super) fn heal(&mut self) -> Checked {
        self.stalled.clear();
        if self.armed || self.failed {
            self.restart(self.log.kill())?;
        }
        self.settle()?;
        let open: Vec<Target> = self.open_runs();
        for target in open {
            self.ask(ClientRequest::Unpause { target });
            self.settle()?;
        }
        for (target, activity) in std::mem::take(&mut self.paused_activities) {
            self.ask(ClientRequest::UnpauseActivity { target, activity });
            self.settle()?;
        }
        self.settle()
    }

    fn open_runs(&self) -> Vec<Target> {
        let mut open = self.worker.journal().open_runs();
        open.sort_by_key(|(run, ..)| *run);
        open.into_iter()
            .map(|(run, namespace, workflow_id, _)| Target { namespace, workflow_id, run_id: Some(run) })
            .collect()
    }

    /// Everything that can happen by itself happens: turns, ends of attempts, moments.
    pub(super) fn settle(&mut self) -> Checked {
        for _ in 0..REST_STEPS {
            if let Some(step) = self.worker.steps().first().copied() {
                self.worker_step(step)?;
            } else if !self.staged.is_empty() {
                let attempt = self.staged.remove(0);
                let canceled = attempt.context.is_canceled();
                self.end(attempt, if canceled { Err(ActivityError::Canceled(None)) } else { Ok(self.success()) });
            } else if self.worker.next_moment().is_some() {
                self.pass_to_next_moment();
            } else {
                return self.look();
            }
            self.look()?;
        }
        self.broken("G16", format!("faults have stopped, and after {REST_STEPS} steps something is still going on"))
    }

    fn success(&self) -> Payload {
        match self.plan.results.first() {
            Some(ActivityOutcome::Completed(result)) => result.clone(),
            _ => Payload::null(),
        }
    }

    /// What is still open is ended, as a person would.
    pub(super) fn end_all(&mut self) -> Checked {
        loop {
            let open = self.open_runs();
            let Some(target) = open.first().cloned() else { return Ok(()) };
            self.ask(ClientRequest::Terminate { target: target.clone() });
            self.settle()?;
            if self.open_runs().contains(&target) {
                return self.broken("G16", format!("{} is open after it was terminated", target.workflow_id));
            }
        }
    }
}
