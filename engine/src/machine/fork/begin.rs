//! Begins a planned fork: loads what was copied, tells what is told, and lets everything that was under way go on.
//!
//! Invariant: the code is checked against the copied events before anything is decided; code that does not fit refuses
//! the fork, with the card. The copied turns and the turn decided here are written together or not at all.

use super::Fork;
use crate::machine::decision::{Draft, FollowUp};
use crate::machine::execution::Execution;
use crate::machine::run::Run;
use crate::machine::{Decision, Environment, NextRun};
use crate::vocabulary::*;
use crate::workflow::WorkflowRegistry;

impl Fork {
    /// Checks the code against what would be copied. `None`: nothing is, the run begins anew.
    pub fn check(&self, registry: &WorkflowRegistry, build: BuildId) -> Result<Option<Execution>, Rejection> {
        if self.prefix.is_empty() {
            // There is code for the type, at least.
            registry.create(&self.started, self.run_id)?;
            return Ok(None);
        }
        let execution = Execution::load(&self.prefix, registry, build)
            .map_err(|why| super::refused("the source", why.to_string()))?;
        match execution.held() {
            Some(held) => Err(Rejection::DoesNotFit { why: held.to_string() }),
            None => Ok(Some(execution)),
        }
    }

    /// Begins the run. The turns come first in the commit, the decision's turn follows.
    pub fn begin(
        self,
        registry: &WorkflowRegistry,
        environment: &mut Environment<'_>,
    ) -> Result<(Execution, Vec<Turn>, Decision), Rejection> {
        let Some(mut execution) = self.check(registry, environment.build)? else {
            let code = registry.create(&self.started, self.run_id)?;
            let first = NextRun { run_id: self.run_id, started: self.started, inbox: Vec::new() };
            let (execution, decision) = Execution::begin_with(first, code, self.side_effects, environment);
            return Ok((execution, Vec::new(), decision));
        };
        let Fork { prefix, told, side_effects, reason, run_id, point, started, .. } = self;
        let identity = started.identity;
        let mut draft = Draft::new(&execution.run, environment);
        draft.side_effects = side_effects;
        let forked = EventKind::WorkflowExecutionForked { run_id, from: point, reason, identity: identity.clone() };
        draft.push(&mut execution.run, forked);
        if execution.run.is_paused() {
            let reason = "forked".to_owned();
            draft.push(&mut execution.run, EventKind::WorkflowExecutionUnpaused { reason, identity });
        }
        execution.tell(&mut draft, told);
        let decision = draft.finish(&mut execution.run);
        Ok((execution, prefix, decision))
    }
}

impl Run {
    /// Whether an event that is told still finds what it is about.
    fn waits_for(&self, event: &EventKind) -> bool {
        let known = |seq: &Seq| {
            self.activities.contains_key(seq) || self.children.contains_key(seq) || self.externals.contains_key(seq)
        };
        match event {
            EventKind::TimerFired { seq } => self.timers.contains_key(seq),
            EventKind::ExternalWorkflowExecutionCancelRequested { seq } => known(seq),
            EventKind::ChildWorkflowExecutionStarted { seq, .. } => self.child_to_start(*seq).is_some(),
            other => super::source::ends(other).is_none_or(|seq| known(&seq)),
        }
    }
}

impl Execution {
    fn tell(&mut self, draft: &mut Draft<'_, '_>, told: Vec<EventKind>) {
        for event in told {
            // What the code did with the one before may have made it meaningless.
            if !self.run.is_closed() && self.run.waits_for(&event) {
                draft.push(&mut self.run, event);
                self.settle(draft);
            }
        }
        self.drain_inbox(draft);
        if !self.run.is_closed() {
            for seq in self.run.canceled_activities() {
                let canceled = EventKind::ActivityTaskCanceled { seq, details: None };
                draft.follow_ups.push_back(FollowUp::Event(canceled));
            }
            self.settle(draft);
        }
        if !self.run.is_closed() {
            self.run.queue_waiting(draft);
            draft.follow_up(Input::Deadline);
            self.settle(draft);
        }
    }
}
