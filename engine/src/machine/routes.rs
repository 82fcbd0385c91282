//! Routes: which family of the run an input or a command belongs to.
//!
//! Invariant: one arm an input and one a command, and no arm does more than hand over; what follows is the family's. The
//! matches are exhaustive, so that a new input or command finds its family or does not compile.

use super::decision::TurnDraft;
use super::execution::{Code, Execution};
use super::limit::refused;
use crate::vocabulary::*;

impl Execution {
    /// Routes an input to its family. No arm does more.
    pub(super) fn accept(&mut self, draft: &mut TurnDraft<'_, '_>, input: Input) -> Result<(), Rejection> {
        let run = &mut self.run;
        match input {
            Input::Signal(signal) => draft.push(run, EventKind::WorkflowExecutionSignaled(signal)),
            Input::RequestCancel { reason, identity, request_id } => {
                run.request_cancel(draft, reason, identity, request_id);
            }
            Input::Terminate { reason, identity } => {
                run.terminate(draft, (reason, identity), self.code.untaken_signals());
            }
            Input::Update { update_id, name, input, identity } => {
                return self.accept_update(draft, update_id, name, input, identity);
            }
            Input::Pause { reason, identity } => run.pause(draft, reason, identity)?,
            Input::Unpause { reason, identity } => run.unpause(draft, reason, identity)?,
            Input::PauseActivity { seq, reason, identity } => run.pause_activity(draft, seq, reason, identity),
            Input::UnpauseActivity { seq, identity } => run.unpause_activity(draft, seq, identity),
            Input::ModifyActivity { seq, update, reason, identity } => {
                return run.modify_activity(draft, seq, (&update, reason, identity));
            }
            Input::StartActivity { seq, attempt } => run.slot_granted(draft, seq, attempt),
            Input::ActivityOutcome { seq, attempt, outcome, identity } => {
                run.check_attempt(seq, attempt)?;
                run.activity_outcome(draft, seq, outcome, identity);
            }
            Input::Heartbeat { seq, attempt, details } => {
                run.check_attempt(seq, attempt)?;
                let beat = Heartbeat { seq, attempt, details };
                run.activities.beat(draft.at(), &beat, &mut run.due);
                draft.heartbeats.push(beat);
            }
            Input::Deadline => {
                let held = matches!(self.code, Code::Held(_));
                // What is left over is due still, in a turn of its own.
                while !self.run.is_closed()
                    && draft.has_room()
                    && self.run.do_next_due(draft, held, || self.code.untaken_signals())
                {
                    self.activate_pending(draft);
                }
            }
            Input::WorkerRestarted => run.recover(draft),
            Input::ChildStarted { seq, result } => run.child_started(draft, seq, result),
            Input::ChildClosed { seq, outcome, .. } => run.child_closed(draft, seq, outcome),
            Input::SignalDelivered { seq, result } => run.signal_delivered(draft, seq, result),
            Input::CancelDelivered { seq, result } => run.cancel_delivered(draft, seq, result),
        }
        Ok(())
    }

    fn accept_update(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        update_id: UpdateId,
        name: UpdateName,
        input: Payload,
        identity: Option<Identity>,
    ) -> Result<(), Rejection> {
        if self.run.update(&update_id).is_some() {
            return Ok(());
        }
        if let Code::Live(driver) = &mut self.code {
            driver
                .validate_update(&name, &input)
                .map_err(|failure| Rejection::UpdateRefused { update_id: update_id.clone(), failure })?;
        }
        draft.push(&mut self.run, EventKind::WorkflowExecutionUpdateAccepted { update_id, name, input, identity });
        Ok(())
    }

    /// Routes a command to its family. No arm does more.
    pub(super) fn command(&mut self, draft: &mut TurnDraft<'_, '_>, command: Command) {
        let run = &mut self.run;
        if let Some(failure) = refused(&command, draft.limits().payload_max) {
            return run.refuse_command(draft, command, failure);
        }
        match command {
            Command::ScheduleActivity { seq, activity_id, activity_type, input, options } => {
                run.schedule_activity(draft, ActivityTaskScheduled { seq, activity_id, activity_type, input, options })
            }
            Command::RequestCancelActivity { seq } => run.request_cancel_activity(draft, seq),
            Command::StartTimer { seq, fire_at, summary } => run.start_timer(draft, seq, fire_at, summary),
            Command::CancelTimer { seq } => run.cancel_timer(draft, seq),
            Command::StartChildWorkflow { seq, workflow_id, workflow_type, input, options } => {
                run.start_child(draft, ChildWorkflowInitiated { seq, workflow_id, workflow_type, input, options })
            }
            Command::CancelChildWorkflow { seq, reason } => run.cancel_child(draft, seq, reason),
            Command::SignalExternalWorkflow { seq, target, name, input } => {
                run.signal_external(draft, SignalExternalInitiated { seq, target, name, input });
            }
            Command::RequestCancelExternalWorkflow { seq, target, reason } => {
                run.cancel_external(draft, seq, target, reason);
            }
            Command::RecordMarker(marker) => draft.push(run, EventKind::MarkerRecorded(marker)),
            Command::UpsertSearchAttributes { attributes } => {
                draft.push(run, EventKind::UpsertWorkflowSearchAttributes { attributes });
            }
            Command::ModifyMemo { memo } => draft.push(run, EventKind::WorkflowPropertiesModified { memo }),
            Command::CompleteUpdate { update_id, result } => run.complete_update(draft, update_id, result),
            Command::CompleteWorkflow { result, unhandled_signals } => {
                run.complete(draft, result, unhandled_signals);
            }
            Command::FailWorkflow { failure, unhandled_signals } => run.fail(draft, failure, unhandled_signals),
            Command::CancelWorkflow { details, unhandled_signals } => {
                run.end_canceled(draft, details, unhandled_signals);
            }
            Command::ContinueAsNew { workflow_type, input, options, unconsumed_signals } => {
                run.continue_as_new(draft, workflow_type, input, options, unconsumed_signals);
            }
        }
    }
}

/// Whether an input can wait in the inbox. The others act on the run from outside its code.
pub(super) fn waits(input: &Input) -> bool {
    match input {
        Input::Signal(_)
        | Input::RequestCancel { .. }
        | Input::Update { .. }
        | Input::ActivityOutcome { .. }
        | Input::WorkerRestarted
        | Input::ChildStarted { .. }
        | Input::ChildClosed { .. }
        | Input::SignalDelivered { .. }
        | Input::CancelDelivered { .. } => true,
        Input::Terminate { .. }
        | Input::Pause { .. }
        | Input::Unpause { .. }
        | Input::PauseActivity { .. }
        | Input::ModifyActivity { .. }
        | Input::UnpauseActivity { .. }
        | Input::StartActivity { .. }
        | Input::Heartbeat { .. }
        | Input::Deadline => false,
    }
}
