//! The life of a run apart from its parts: start, backoff, pause, cancellation requests, deadlines (E02, E17,
//! E27).
//!
//! Invariant: while a run is paused or backs off, inputs go to its inbox, durably, and are decided in order afterwards;
//! no attempt starts and no timer fires. Attempts that run already may go on, and their outcomes are kept.
//! A cancel request is an event that the code hears; what it does with it is the code's affair. A run whose code has not
//! begun ends with it at once.

use super::decision::{FollowUp, TurnDraft};
use super::family::LifecycleEvent;
use super::run::{Due, Run, RunPhase};
use crate::seeded::{self, Bug};
use crate::vocabulary::*;

impl Run {
    pub(super) fn apply_lifecycle(&mut self, at: Timestamp, event: LifecycleEvent<'_>) {
        match event {
            LifecycleEvent::Started(started) => self.apply_started(at, started),
            LifecycleEvent::BackoffOver => {
                self.phase = RunPhase::Open;
                self.due.retain(|(_, due)| *due != Due::Start);
            }
            LifecycleEvent::Paused => self.paused = true,
            LifecycleEvent::Unpaused => {
                self.paused = false;
                self.activities.restart_waiting(at, &mut self.due);
            }
            LifecycleEvent::CancelRequested { reason, request_id } => {
                self.cancel_requested = Some(reason.to_owned());
                if let Some(id) = request_id {
                    self.request_ids.insert(id);
                }
            }
            LifecycleEvent::Forked { run_id, children } => self.begin_again(at, run_id, children),
            LifecycleEvent::Noted => {}
        }
    }

    fn apply_started(&mut self, at: Timestamp, started: &WorkflowExecutionStarted) {
        for id in &started.carried_request_ids {
            self.request_ids.insert(id);
        }
        for signal in &started.carried_signals {
            self.apply_signal(signal);
        }
        if let Some(deadline) = started.execution_deadline {
            self.due.insert((deadline, Due::ExecutionTimeout));
        }
        let begins = started.start_at.unwrap_or(at);
        if let Some(timeout) = started.run_timeout {
            self.due.insert((begins.plus(timeout), Due::RunTimeout));
        }
        if let Some(start_at) = started.start_at {
            self.phase = RunPhase::Backoff;
            self.due.insert((start_at, Due::Start));
        }
    }

    /// The run has been forked or reset: the time since the last copied event does not count, and no attempt is under way.
    /// What waits in the inbox is decided by this run, so that an attempt whose end stands there is not made again.
    fn begin_again(&mut self, at: Timestamp, run_id: RunId, own_children: &[Seq]) {
        self.visible_run_id = run_id;
        let others = self.children.keys().filter(|seq| !own_children.contains(seq));
        self.of_source.extend(others.chain(self.externals.keys()));
        let idle = at.since(self.last_at);
        self.started.execution_deadline = self.started.execution_deadline.map(|deadline| deadline.plus(idle));
        self.started.start_at = self.started.start_at.map(|start| start.plus(idle));
        self.timers.postpone(idle);
        self.due = std::mem::take(&mut self.due).into_iter().map(|(when, due)| (when.plus(idle), due)).collect();
        let ended = self.attempts_told_from_inbox();
        self.activities.repeat(at, idle, &ended, &mut self.due);
    }

    pub(super) fn request_cancel(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        reason: String,
        identity: Option<Identity>,
        request_id: Option<RequestId>,
    ) {
        draft.push(self, EventKind::WorkflowExecutionCancelRequested { reason, identity, request_id });
    }

    /// Ends a run whose code has not begun: none of its work is begun only to be undone.
    pub(super) fn cancel_before_it_begins(&mut self, draft: &mut TurnDraft<'_, '_>, request: Input) {
        if let Input::RequestCancel { reason, identity, request_id } = request {
            self.request_cancel(draft, reason, identity, request_id);
            self.end_canceled(draft, None, Vec::new());
        }
    }

    pub(super) fn pause(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        reason: String,
        identity: Option<Identity>,
    ) -> Result<(), Rejection> {
        if self.paused {
            return Err(Rejection::AlreadyPaused);
        }
        draft.push(self, EventKind::WorkflowExecutionPaused { reason, identity });
        Ok(())
    }

    pub(super) fn unpause(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        reason: String,
        identity: Option<Identity>,
    ) -> Result<(), Rejection> {
        if !self.paused {
            return Err(Rejection::NotPaused);
        }
        draft.push(self, EventKind::WorkflowExecutionUnpaused { reason, identity });
        Ok(())
    }

    /// Does one thing that is due, if any is; says whether there was one. A run that is paused, or whose code is held,
    /// only hears its own timeouts. `untaken` gives the signals that its code has and has not taken, where that ends it.
    pub(super) fn do_next_due(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        held: bool,
        untaken: impl FnOnce() -> Vec<SignalName>,
    ) -> bool {
        let frozen = self.paused || held;
        let next = self.due.iter().find(|(_, due)| !frozen || due.ignores_pause()).copied();
        let Some((_, due)) = next.filter(|(at, _)| *at <= draft.at()) else { return false };
        match due {
            Due::ExecutionTimeout => self.time_out(draft, WorkflowTimeout::Execution, untaken()),
            Due::RunTimeout => self.time_out(draft, WorkflowTimeout::Run, untaken()),
            Due::Start => draft.push(self, EventKind::FirstWorkflowTaskScheduled),
            Due::Timer(seq) => self.timer_due(draft, seq),
            Due::ActivityRetry(seq) => self.activity_retry_due(draft, seq),
            Due::ScheduleToStart(seq) => self.activity_due(draft, seq, TimeoutType::ScheduleToStart),
            Due::Heartbeat(seq) => self.activity_due(draft, seq, TimeoutType::Heartbeat),
            Due::StartToClose(seq) => self.activity_due(draft, seq, TimeoutType::StartToClose),
            Due::ScheduleToClose(seq) => self.activity_due(draft, seq, TimeoutType::ScheduleToClose),
        }
        true
    }

    /// After a restart: whatever was under way outside the log is asked for again.
    pub(super) fn recover(&mut self, draft: &mut TurnDraft<'_, '_>) {
        for seq in self.activities.seqs() {
            draft.follow_ups.push_back(FollowUp::RecoverActivity(seq));
        }
        if seeded::on(Bug::TimerArmedTwice) {
            self.pending_timers().into_iter().for_each(|t| self.start_timer(draft, t.seq, t.fire_at, t.summary));
        }
        for seq in self.children.keys().copied().collect::<Vec<_>>() {
            self.redrive_child(draft, seq);
        }
        for seq in self.externals.keys().copied().collect::<Vec<_>>() {
            if seeded::on(Bug::RecoveryNotIdempotent) {
                self.deliver(draft, seq, RequestId::of(format!("again:{}:{seq}", self.id())));
                continue;
            }
            self.redeliver(draft, seq);
        }
    }
}
