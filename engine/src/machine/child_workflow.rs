//! Child workflows of a run (E15).
//!
//! ```text
//!   StartChildWorkflow ──► Initiated ──► Started ──► Completed | Failed | Canceled | TimedOut | Terminated
//!                                  └───► StartFailed
//! ```
//!
//! Invariant: the child's first run id is derived from this run and the command's number, so that a start repeated
//! after a crash finds the child it started before. A child ends here exactly once, with the last run of its chain.

use serde::{Deserialize, Serialize};

use super::decision::{Effect, TurnDraft};
use super::family::ChildEvent;
use super::run::Run;
use crate::request::PendingChild;
use crate::vocabulary::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Child {
    pub(super) initiated: ChildWorkflowInitiated,
    pub(super) started: bool,
    pub(super) cancel: Option<String>,
    /// The request has reached the child.
    #[serde(default)]
    pub(super) cancel_delivered: bool,
    /// The run id it gets at its first start.
    pub(super) run_id: RunId,
}

#[cfg(test)]
impl Child {
    /// Where it stands, for the table of transitions.
    pub(super) fn shown(&self) -> String {
        let begun = if self.started { "started" } else { "initiated" };
        let asked = [(self.cancel.is_some(), " canceling"), (self.cancel_delivered, " told")];
        std::iter::once(begun).chain(asked.into_iter().filter(|(is, _)| *is).map(|(_, mark)| mark)).collect()
    }
}

impl Run {
    /// The run id of a child that has been asked for and has not started.
    pub(super) fn child_to_start(&self, seq: Seq) -> Option<RunId> {
        self.children.get(&seq).filter(|child| !child.started).map(|child| child.run_id)
    }

    pub(super) fn apply_child(&mut self, seq: Seq, event: ChildEvent<'_>) {
        match event {
            ChildEvent::Initiated(initiated) => {
                let child = Child {
                    initiated: initiated.clone(),
                    started: false,
                    cancel: None,
                    cancel_delivered: false,
                    run_id: self.visible_run_id.derive("child", seq.0),
                };
                self.children.insert(seq, child);
            }
            ChildEvent::Started => {
                if let Some(child) = self.children.get_mut(&seq) {
                    child.started = true;
                }
            }
            ChildEvent::CancelRequested(reason) => {
                if let Some(child) = self.children.get_mut(&seq) {
                    child.cancel = Some(reason.to_owned());
                }
            }
            ChildEvent::Ended => {
                self.children.remove(&seq);
            }
        }
    }

    pub(super) fn start_child(&mut self, draft: &mut TurnDraft<'_, '_>, initiated: ChildWorkflowInitiated) {
        let seq = initiated.seq;
        draft.push(self, EventKind::StartChildWorkflowExecutionInitiated(Box::new(initiated)));
        self.redrive_child(draft, seq);
    }

    pub(super) fn cancel_child(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq, reason: String) {
        if self.children.get(&seq).is_some_and(|child| child.cancel.is_none()) {
            draft.push(self, EventKind::ChildWorkflowExecutionCancelRequested { seq, reason });
            self.deliver_child_cancel(draft, seq);
        }
    }

    fn deliver_child_cancel(&self, draft: &mut TurnDraft<'_, '_>, seq: Seq) {
        let Some(child) = self.children.get(&seq).filter(|child| child.started && !child.cancel_delivered) else {
            return;
        };
        self.send_child_cancel(draft, seq, child);
    }

    /// Sends the cancel request of a child, if there is one.
    pub(super) fn send_child_cancel(&self, draft: &mut TurnDraft<'_, '_>, seq: Seq, child: &Child) {
        if let Some(reason) = child.cancel.as_ref().filter(|_| !self.of_source.contains(&seq)) {
            draft.effect(Effect::CancelChild {
                seq,
                workflow_id: child.initiated.workflow_id.clone(),
                first_run: child.run_id,
                reason: reason.clone(),
                request_id: RequestId::of(format!("from:{}:{seq}:cancel", self.id())),
            });
        }
    }

    /// Asks for what the child needs next, for the first time or after a restart.
    pub(super) fn redrive_child(&self, draft: &mut TurnDraft<'_, '_>, seq: Seq) {
        let Some(child) = self.children.get(&seq).filter(|_| !self.of_source.contains(&seq)) else { return };
        if child.started {
            draft.effect(Effect::WatchChild {
                seq,
                workflow_id: child.initiated.workflow_id.clone(),
                first_run: child.run_id,
            });
            self.deliver_child_cancel(draft, seq);
            return;
        }
        let options = &child.initiated.options;
        let mut start = StartWorkflow::new(child.initiated.workflow_type.clone(), child.initiated.workflow_id.clone());
        start.namespace = self.info.namespace.clone();
        start.task_queue = options.task_queue.clone().unwrap_or_else(|| self.info.task_queue.clone());
        start.input = child.initiated.input.clone();
        start.execution_timeout = options.execution_timeout;
        start.run_timeout = options.run_timeout;
        start.retry_policy = options.retry_policy.clone();
        start.id_reuse_policy = options.id_reuse_policy;
        start.memo = options.memo.clone();
        start.search_attributes = options.search_attributes.clone();
        start.summary = options.summary.clone();
        start.priority = self.priority_of(options.priority.as_ref());
        start.parent = Some(Parent {
            workflow_id: self.info.workflow_id.clone(),
            run_id: self.id(),
            seq,
            close_policy: options.parent_close_policy,
        });
        draft.effect(Effect::StartChild { seq, run_id: child.run_id, start: Box::new(start) });
    }

    pub(super) fn child_started(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq, result: Result<RunId, Failure>) {
        if self.children.get(&seq).is_none_or(|child| child.started) {
            return;
        }
        match result {
            Ok(run_id) => {
                draft.push(self, EventKind::ChildWorkflowExecutionStarted { seq, run_id });
                self.deliver_child_cancel(draft, seq);
            }
            Err(failure) => draft.push(self, EventKind::StartChildWorkflowExecutionFailed { seq, failure }),
        }
    }

    /// A child that could not be reached has ended; its end is told by itself.
    pub(super) fn child_cancel_delivered(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        seq: Seq,
        result: &Result<(), Failure>,
    ) {
        let waits = self.children.get(&seq).is_some_and(|child| child.cancel.is_some() && !child.cancel_delivered);
        if waits && result.is_ok() {
            draft.push(self, EventKind::ExternalWorkflowExecutionCancelRequested { seq });
        }
    }

    pub(super) fn child_closed(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq, outcome: CloseOutcome) {
        let Some(child) = self.children.get(&seq) else { return };
        if !child.started {
            // The close overtook the answer to the start; the start is a fact all the same.
            let run_id = child.run_id;
            draft.push(self, EventKind::ChildWorkflowExecutionStarted { seq, run_id });
            draft.follow_up(Input::ChildClosed { seq, run_id, outcome });
            return;
        }
        let event = match outcome {
            CloseOutcome::Completed(result) => EventKind::ChildWorkflowExecutionCompleted { seq, result },
            CloseOutcome::Failed(failure) => EventKind::ChildWorkflowExecutionFailed { seq, failure },
            CloseOutcome::Canceled(details) => EventKind::ChildWorkflowExecutionCanceled { seq, details },
            CloseOutcome::TimedOut(_) => EventKind::ChildWorkflowExecutionTimedOut { seq },
            CloseOutcome::Terminated { reason } => EventKind::ChildWorkflowExecutionTerminated { seq, reason },
            // The chain goes on; its last run reports.
            CloseOutcome::ContinuedAsNew { .. } => return,
        };
        draft.push(self, event);
    }

    /// What the close of this run means for the children that are open (E15).
    pub(super) fn close_children(&self, draft: &mut TurnDraft<'_, '_>, handed_over: &[Seq]) {
        let own = |seq: &Seq| !self.of_source.contains(seq) && !handed_over.contains(seq);
        for (_, child) in self.children.iter().filter(|(seq, _)| own(seq)) {
            let policy = child.initiated.options.parent_close_policy;
            if policy != ParentClosePolicy::Abandon {
                draft.effect(Effect::ParentClosed {
                    workflow_id: child.initiated.workflow_id.clone(),
                    first_run: child.run_id,
                    policy,
                });
            }
        }
    }

    /// Children that this run's end does not end at once, but for these.
    pub(super) fn outliving_children(&self, but: Option<&Run>) -> Vec<WorkflowId> {
        let is_known = |seq: &Seq| but.is_some_and(|run| run.children.contains_key(seq));
        let outlives = |child: &Child| {
            child.started && child.initiated.options.parent_close_policy != ParentClosePolicy::Terminate
        };
        let open = self.children.iter().filter(|(seq, child)| !is_known(seq) && outlives(child));
        open.map(|(_, child)| child.initiated.workflow_id.clone()).collect()
    }

    /// Children that have not ended, in the order in which they were asked for.
    pub fn pending_children(&self) -> Vec<PendingChild> {
        self.children
            .iter()
            .map(|(seq, child)| PendingChild {
                seq: *seq,
                workflow_id: child.initiated.workflow_id.clone(),
                workflow_type: child.initiated.workflow_type.clone(),
                run_id: child.started.then_some(child.run_id),
            })
            .collect()
    }
}
