//! Activities of a run (engine.md E04-E09).
//!
//! ```text
//!   ScheduleActivity ──► Queued ──slot──► Running ──► Completed | Failed | TimedOut | Canceled     (terminal)
//!                          ▲                 │ └────► Awaiting (completed later, by token)
//!                          └── BackingOff ◄──┘ attempt failed, another is allowed
//! ```
//!
//! Invariant: an attempt is recorded as started before it starts, so the number of attempts that may have run is always
//! known and never exceeds `maximum_attempts`, whatever crashes; an attempt that is over can change nothing any more
//! (its number no longer fits). Exactly one terminal event per activity. Who has a free slot is asked through the
//! [`Draft`]; nothing is run here.
//!
//! Long: the activity is the richest of the machines, and a machine stands in one file.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::decision::{Draft, Effect, FollowUp};
use super::family::ActivityEvent;
use super::run::{Due, Run};
use crate::activity::{ActivityTask, TaskToken};
use crate::request::{PendingActivity, PendingActivityState};
use crate::seeded::{self, Bug};
use crate::vocabulary::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Activity {
    pub(super) scheduled: ActivityTaskScheduled,
    scheduled_at: Timestamp,
    /// The attempt that runs, or the next one to start.
    pub(super) attempt: Attempt,
    state: State,
    cancel_requested: bool,
    paused: bool,
    last_failure: Option<Failure>,
    heartbeat_details: Option<Payload>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum State {
    /// Wants a slot since then.
    Queued {
        since: Timestamp,
    },
    Running {
        since: Timestamp,
        beat_at: Timestamp,
    },
    Awaiting {
        since: Timestamp,
        beat_at: Timestamp,
    },
    BackingOff {
        until: Timestamp,
    },
}

impl Activity {
    /// Where it stands, for the table of transitions.
    #[cfg(test)]
    pub(super) fn shown(&self) -> String {
        let state = match self.state {
            State::Queued { .. } => "queued",
            State::Running { .. } => "running",
            State::Awaiting { .. } => "awaiting",
            State::BackingOff { .. } => "backing off",
        };
        let marks = [(self.paused, " paused"), (self.cancel_requested, " canceling")];
        std::iter::once(state).chain(marks.into_iter().filter(|(is, _)| *is).map(|(_, mark)| mark)).collect()
    }
    fn options(&self) -> &ActivityOptions {
        &self.scheduled.options
    }
    fn retry_policy(&self) -> RetryPolicy {
        self.options().retry_policy.clone().unwrap_or_default()
    }
    fn is_under_way(&self) -> bool {
        matches!(self.state, State::Running { .. } | State::Awaiting { .. })
    }
    fn close_deadline(&self) -> Option<Timestamp> {
        self.options().schedule_to_close.map(|limit| self.scheduled_at.plus(limit))
    }
    /// The deadlines that are true of the activity as it stands.
    fn deadlines(&self) -> Vec<(Timestamp, Due)> {
        let seq = self.scheduled.seq;
        let mut due: Vec<(Timestamp, Due)> =
            self.close_deadline().map(|at| (at, Due::ScheduleToClose(seq))).into_iter().collect();
        match &self.state {
            // A paused activity is not waiting for a slot.
            State::Queued { .. } if self.paused => {}
            State::Queued { since } => {
                due.extend(
                    self.options().schedule_to_start.map(|limit| (since.plus(limit), Due::ScheduleToStart(seq))),
                );
            }
            State::Running { since, beat_at } | State::Awaiting { since, beat_at } => {
                due.extend(self.options().start_to_close.map(|limit| (since.plus(limit), Due::StartToClose(seq))));
                due.extend(self.options().heartbeat.map(|limit| (beat_at.plus(limit), Due::Heartbeat(seq))));
            }
            State::BackingOff { until } => due.push((*until, Due::ActivityRetry(seq))),
        }
        due
    }
}

impl Run {
    pub(super) fn apply_activity(&mut self, at: Timestamp, seq: Seq, event: ActivityEvent<'_>) {
        match event {
            ActivityEvent::Scheduled(scheduled) => self.activity_scheduled(at, scheduled),
            ActivityEvent::Started(attempt) => self.change_activity(seq, |activity| {
                activity.attempt = attempt;
                activity.state = State::Running { since: at, beat_at: at };
            }),
            ActivityEvent::AttemptFailed { attempt, failure, next_attempt_at } => {
                self.change_activity(seq, |activity| {
                    activity.attempt = attempt.next();
                    activity.last_failure = Some(failure.clone());
                    let is_due = activity.paused || next_attempt_at <= at;
                    activity.state =
                        if is_due { State::Queued { since: at } } else { State::BackingOff { until: next_attempt_at } };
                })
            }
            ActivityEvent::AwaitingCompletion => self.change_activity(seq, |activity| {
                if let State::Running { since, beat_at } = activity.state {
                    activity.state = State::Awaiting { since, beat_at };
                }
            }),
            ActivityEvent::CancelRequested => self.change_activity(seq, |activity| activity.cancel_requested = true),
            ActivityEvent::Paused => self.change_activity(seq, |activity| {
                activity.paused = true;
                if let State::BackingOff { .. } = activity.state {
                    activity.state = State::Queued { since: at };
                }
            }),
            ActivityEvent::Unpaused => self.change_activity(seq, |activity| {
                activity.paused = false;
                if let State::Queued { .. } = activity.state {
                    activity.state = State::Queued { since: at };
                }
            }),
            ActivityEvent::Ended => {
                for due in self.activities.remove(&seq).iter().flat_map(Activity::deadlines) {
                    self.due.remove(&due);
                }
            }
        }
    }

    fn activity_scheduled(&mut self, at: Timestamp, scheduled: &ActivityTaskScheduled) {
        let activity = Activity {
            scheduled: scheduled.clone(),
            scheduled_at: at,
            attempt: Attempt(1),
            state: State::Queued { since: at },
            cancel_requested: false,
            paused: false,
            last_failure: None,
            heartbeat_details: None,
        };
        self.due.extend(activity.deadlines());
        self.activities.insert(scheduled.seq, activity);
    }

    /// Folds a heartbeat: the attempt is alive, and the next one learns the details.
    pub(super) fn apply_heartbeat(&mut self, at: Timestamp, beat: &Heartbeat) {
        self.change_activity(beat.seq, |activity| {
            activity.heartbeat_details = beat.details.clone();
            if let State::Running { beat_at, .. } | State::Awaiting { beat_at, .. } = &mut activity.state {
                *beat_at = at;
            }
        });
    }

    /// Changes an activity and keeps `due` true.
    fn change_activity(&mut self, seq: Seq, change: impl FnOnce(&mut Activity)) {
        if let Some(activity) = self.activities.get_mut(&seq) {
            for due in activity.deadlines() {
                self.due.remove(&due);
            }
            change(activity);
            self.due.extend(activity.deadlines());
        }
    }

    pub(super) fn schedule_activity(&mut self, draft: &mut Draft<'_, '_>, scheduled: ActivityTaskScheduled) {
        let seq = scheduled.seq;
        let wrong = self.wrong_with(&scheduled);
        draft.push(self, EventKind::ActivityTaskScheduled(Box::new(scheduled)));
        match wrong {
            Some(why) => draft.follow_up_event(EventKind::ActivityTaskFailed {
                seq,
                failure: Failure::application("InvalidActivity", why).non_retryable(),
                retry_state: RetryState::NonRetryableFailure,
            }),
            None => self.start_or_queue(draft, seq),
        }
    }

    /// What makes an activity impossible to run as asked.
    fn wrong_with(&self, scheduled: &ActivityTaskScheduled) -> Option<String> {
        let options = &scheduled.options;
        if options.schedule_to_close.is_none() && options.start_to_close.is_none() {
            return Some(format!(
                "activity {}: one of start-to-close and schedule-to-close timeout is required",
                scheduled.activity_id
            ));
        }
        if self.activities.values().any(|other| other.scheduled.activity_id == scheduled.activity_id) {
            return Some(format!("activity id {} is in use in this run", scheduled.activity_id));
        }
        options.retry_policy.as_ref().and_then(|policy| policy.check().err())
    }

    /// Starts the attempt at once if there is a free slot, so that one commit records both; else it waits in the queue.
    fn start_or_queue(&mut self, draft: &mut Draft<'_, '_>, seq: Seq) {
        let Some(activity) = self.activities.get(&seq).filter(|activity| !activity.paused) else { return };
        if self.paused || !matches!(activity.state, State::Queued { .. }) {
            return;
        }
        let (attempt, queue) = (activity.attempt, self.queue_of(activity));
        if draft.take_slot(&queue) {
            self.start_attempt(draft, seq, attempt);
        } else {
            draft.effect(Effect::QueueActivity { seq, attempt, queue });
        }
    }

    fn queue_of(&self, activity: &Activity) -> TaskQueue {
        activity.options().task_queue.clone().unwrap_or_else(|| self.info.task_queue.clone())
    }

    fn start_attempt(&mut self, draft: &mut Draft<'_, '_>, seq: Seq, attempt: Attempt) {
        draft.push(self, EventKind::ActivityTaskStarted { seq, attempt });
        if let Some(activity) = self.activities.get(&seq) {
            let starts_to_close = activity.options().start_to_close.map(|limit| draft.at().plus(limit));
            let task = ActivityTask {
                namespace: self.info.namespace.clone(),
                workflow_id: self.info.workflow_id.clone(),
                workflow_type: self.info.workflow_type.clone(),
                run_id: self.id(),
                seq,
                activity_id: activity.scheduled.activity_id.clone(),
                activity_type: activity.scheduled.activity_type.clone(),
                task_queue: self.queue_of(activity),
                attempt,
                input: activity.scheduled.input.clone(),
                heartbeat_details: activity.heartbeat_details.clone(),
                scheduled_at: activity.scheduled_at,
                deadline: [starts_to_close, activity.close_deadline()].into_iter().flatten().min(),
                heartbeat_timeout: activity.options().heartbeat,
            };
            draft.effect(Effect::RunActivity(Box::new(task)));
        }
    }

    /// A slot was found for a queued attempt.
    pub(super) fn slot_granted(&mut self, draft: &mut Draft<'_, '_>, seq: Seq, attempt: Attempt) {
        let fits = !self.paused
            && self.activities.get(&seq).is_some_and(|activity| {
                activity.attempt == attempt && !activity.paused && matches!(activity.state, State::Queued { .. })
            });
        if fits {
            self.start_attempt(draft, seq, attempt);
        }
    }

    /// Checks that an answer comes from the attempt that is under way (fencing, engine.md G20).
    pub(super) fn check_attempt(&self, seq: Seq, attempt: Attempt) -> Result<(), Rejection> {
        let activity = self
            .activities
            .get(&seq)
            .ok_or_else(|| Rejection::UnknownActivity { activity: format!("number {seq}") })?;
        let same_attempt = activity.attempt == attempt || seeded::on(Bug::EpochNotChecked);
        if !same_attempt || !activity.is_under_way() {
            return Err(Rejection::StaleAttempt { seq, attempt, current: activity.attempt });
        }
        Ok(())
    }

    pub(super) fn activity_outcome(
        &mut self,
        draft: &mut Draft<'_, '_>,
        seq: Seq,
        outcome: ActivityOutcome,
        identity: Option<Identity>,
    ) {
        let Some(activity) = self.activities.get(&seq) else { return };
        match outcome {
            ActivityOutcome::Completed(result) => {
                draft.push(self, EventKind::ActivityTaskCompleted { seq, result, identity });
            }
            ActivityOutcome::WillCompleteLater => {
                let attempt = activity.attempt;
                draft.push(self, EventKind::ActivityTaskAwaitingCompletion { seq, attempt });
            }
            ActivityOutcome::Canceled(details) if activity.cancel_requested => {
                draft.push(self, EventKind::ActivityTaskCanceled { seq, details });
            }
            ActivityOutcome::Canceled(_) => {
                let failure = lost("the attempt stopped without being asked to");
                self.attempt_failed(draft, seq, failure, None);
            }
            ActivityOutcome::Failed(failure) => self.attempt_failed(draft, seq, failure, None),
        }
    }

    /// An attempt ended badly: another one follows, or the activity has failed.
    fn attempt_failed(&mut self, draft: &mut Draft<'_, '_>, seq: Seq, failure: Failure, delay: Option<Duration>) {
        let Some(activity) = self.activities.get(&seq) else { return };
        let attempt = activity.attempt;
        let mut next = activity.retry_policy().next(attempt, &failure);
        if activity.cancel_requested {
            next = Err(RetryState::CancelRequested);
        }
        let next = next.and_then(|policy_delay| {
            let at = draft.at().plus(delay.unwrap_or(policy_delay));
            match activity.close_deadline() {
                Some(limit) if at >= limit => Err(RetryState::Timeout),
                Some(_) | None => Ok(at),
            }
        });
        let is_timeout = matches!(failure.kind, FailureKind::Timeout { .. });
        match next {
            Ok(next_attempt_at) => {
                draft.push(self, EventKind::ActivityTaskAttemptFailed { seq, attempt, failure, next_attempt_at });
                self.start_or_queue(draft, seq);
            }
            Err(retry_state) if is_timeout => {
                draft.push(self, EventKind::ActivityTaskTimedOut { seq, failure, retry_state });
            }
            Err(retry_state) => draft.push(self, EventKind::ActivityTaskFailed { seq, failure, retry_state }),
        }
    }

    pub(super) fn activity_due(&mut self, draft: &mut Draft<'_, '_>, seq: Seq, timeout: TimeoutType) {
        let Some(activity) = self.activities.get(&seq) else { return };
        let (attempt, under_way) = (activity.attempt, activity.is_under_way());
        let mut failure = Failure::timeout(timeout, activity.heartbeat_details.clone());
        if timeout == TimeoutType::ScheduleToClose {
            // Why it took so long: how the last attempt ended.
            failure.cause = activity.last_failure.clone().map(Box::new);
        }
        if under_way {
            draft.effect(Effect::CancelActivity { seq, attempt });
        }
        self.attempt_failed(draft, seq, failure, None);
    }

    pub(super) fn activity_retry_due(&mut self, draft: &mut Draft<'_, '_>, seq: Seq) {
        let at = draft.at();
        self.change_activity_without_event(seq, at);
        self.start_or_queue(draft, seq);
    }

    /// The end of a backoff needs no event of its own: the failed attempt's event says when it is. The same fold happens
    /// when the next event of the activity is applied, so that a rebuilt run does not differ.
    fn change_activity_without_event(&mut self, seq: Seq, at: Timestamp) {
        self.change_activity(seq, |activity| {
            if let State::BackingOff { until } = activity.state
                && until <= at
            {
                activity.state = State::Queued { since: until };
            }
        });
    }

    pub(super) fn request_cancel_activity(&mut self, draft: &mut Draft<'_, '_>, seq: Seq) {
        let Some(activity) = self.activities.get(&seq).filter(|activity| !activity.cancel_requested) else { return };
        let (attempt, under_way) = (activity.attempt, activity.is_under_way());
        draft.push(self, EventKind::ActivityTaskCancelRequested { seq });
        if under_way {
            draft.effect(Effect::CancelActivity { seq, attempt });
        } else {
            draft.follow_up_event(EventKind::ActivityTaskCanceled { seq, details: None });
        }
    }

    /// Whether a decided follow-up still makes sense after what the code did in between.
    pub(super) fn still_fits(&self, follow_up: &FollowUp) -> bool {
        match follow_up {
            FollowUp::Event(
                EventKind::ActivityTaskCanceled { seq, .. } | EventKind::ActivityTaskFailed { seq, .. },
            ) => self.activities.contains_key(seq),
            FollowUp::Event(_) | FollowUp::Input(_) | FollowUp::RecoverActivity(_) => true,
        }
    }

    pub(super) fn pause_activity(
        &mut self,
        draft: &mut Draft<'_, '_>,
        seq: Seq,
        reason: String,
        identity: Option<Identity>,
    ) {
        if self.activities.get(&seq).is_some_and(|activity| !activity.paused) {
            draft.push(self, EventKind::ActivityTaskPaused { seq, reason, identity });
        }
    }

    pub(super) fn unpause_activity(&mut self, draft: &mut Draft<'_, '_>, seq: Seq, identity: Option<Identity>) {
        if self.activities.get(&seq).is_some_and(|activity| activity.paused) {
            draft.push(self, EventKind::ActivityTaskUnpaused { seq, identity });
            self.start_or_queue(draft, seq);
        }
    }

    /// The run goes on after a pause: what waits for a slot begins to wait now.
    pub(super) fn restart_waiting(&mut self, at: Timestamp) {
        for seq in self.activities.keys().copied().collect::<Vec<_>>() {
            self.change_activity(seq, |activity| {
                if let State::Queued { since } = &mut activity.state {
                    *since = at;
                }
            });
        }
    }

    /// Asks for slots again after a pause, in which they were not taken. One asked for twice is given back.
    pub(super) fn queue_waiting(&mut self, draft: &mut Draft<'_, '_>) {
        for seq in self.activities.keys().copied().collect::<Vec<_>>() {
            self.start_or_queue(draft, seq);
        }
    }

    /// The run was forked: every activity that was under way is as it was when it was asked for.
    pub(super) fn repeat_activities(&mut self, at: Timestamp) {
        for activity in self.activities.values_mut() {
            activity.scheduled_at = at;
            activity.attempt = Attempt(1);
            activity.state = State::Queued { since: at };
            activity.last_failure = None;
            activity.heartbeat_details = None;
            activity.paused = false;
        }
        let due: Vec<(Timestamp, Due)> = self.activities.values().flat_map(Activity::deadlines).collect();
        self.due.extend(due);
    }

    /// The activities that a fork of this run begins again.
    pub(super) fn activities_to_repeat(&self) -> Vec<Seq> {
        self.activities.iter().filter(|(_, activity)| !activity.cancel_requested).map(|(seq, _)| *seq).collect()
    }

    /// The activities that were asked to cancel and are not under way.
    pub(super) fn canceled_activities(&self) -> Vec<Seq> {
        let canceled = |activity: &Activity| activity.cancel_requested && !activity.is_under_way();
        self.activities.iter().filter(|(_, activity)| canceled(activity)).map(|(seq, _)| *seq).collect()
    }

    /// Whether the outcome of this attempt was accepted and waits in the inbox.
    pub(super) fn has_outcome(&self, seq: Seq, attempt: Attempt) -> bool {
        self.inbox.iter().any(|input| match input {
            Input::ActivityOutcome { outcome: ActivityOutcome::WillCompleteLater, .. } => false,
            Input::ActivityOutcome { seq: s, attempt: a, .. } => (*s, *a) == (seq, attempt),
            _ => false,
        })
    }

    /// After a restart: an attempt that ran is lost, a queued one waits for a slot again. An attempt whose end is known
    /// and only waits to be told is not lost.
    pub(super) fn recover_activity(&mut self, draft: &mut Draft<'_, '_>, seq: Seq) {
        let Some(activity) = self.activities.get(&seq) else { return };
        let told = self.inbox.iter().any(|input| {
            matches!(input, Input::ActivityOutcome { seq: s, attempt, .. } if (*s, *attempt) == (seq, activity.attempt))
        });
        match Some(&activity.state).filter(|_| !told) {
            Some(State::Running { .. }) => {
                let failure = lost("the worker that ran the attempt is gone");
                self.attempt_failed(draft, seq, failure, Some(Duration::ZERO));
            }
            Some(State::Queued { .. }) => self.start_or_queue(draft, seq),
            Some(State::Awaiting { .. } | State::BackingOff { .. }) | None => {}
        }
    }

    /// The attempts that run now; their functions are told to stop when the run closes.
    pub(super) fn stop_attempts(&self, draft: &mut Draft<'_, '_>) {
        for (seq, activity) in self.activities.iter().filter(|(_, activity)| activity.is_under_way()) {
            draft.effect(Effect::CancelActivity { seq: *seq, attempt: activity.attempt });
        }
    }

    /// The type and id of a pending activity, for the failure the code sees.
    pub(super) fn activity_names(&self, seq: Seq) -> Option<(&ActivityType, &ActivityId)> {
        self.activities.get(&seq).map(|activity| (&activity.scheduled.activity_type, &activity.scheduled.activity_id))
    }

    /// Whether exactly this attempt is under way.
    pub fn is_under_way(&self, token: TaskToken) -> bool {
        token.run_id == self.id() && self.check_attempt(token.seq, token.attempt).is_ok()
    }

    /// Finds a pending activity by its id.
    pub fn activity_by_id(&self, id: &ActivityId) -> Option<Seq> {
        self.activities.iter().find(|(_, activity)| activity.scheduled.activity_id == *id).map(|(seq, _)| *seq)
    }

    pub fn pending_activities(&self) -> Vec<PendingActivity> {
        let describe = |(seq, activity): (&Seq, &Activity)| PendingActivity {
            seq: *seq,
            activity_id: activity.scheduled.activity_id.clone(),
            activity_type: activity.scheduled.activity_type.clone(),
            state: match &activity.state {
                _ if activity.paused && !activity.is_under_way() => PendingActivityState::Paused,
                _ if activity.cancel_requested => PendingActivityState::CancelRequested,
                State::Queued { .. } => PendingActivityState::Scheduled,
                State::Running { .. } | State::Awaiting { .. } => PendingActivityState::Started,
                State::BackingOff { .. } => PendingActivityState::BackingOff,
            },
            attempt: activity.attempt,
            scheduled_at: activity.scheduled_at,
            next_attempt_at: match activity.state {
                State::BackingOff { until } => Some(until),
                State::Queued { .. } | State::Running { .. } | State::Awaiting { .. } => None,
            },
            last_failure: activity.last_failure.clone(),
            heartbeat_details: activity.heartbeat_details.clone(),
            task_token: activity
                .is_under_way()
                .then(|| TaskToken { run_id: self.id(), seq: *seq, attempt: activity.attempt }.to_string()),
            summary: activity.options().summary.clone(),
        };
        self.activities.iter().map(describe).collect()
    }
}

fn lost(message: &str) -> Failure {
    Failure { message: message.into(), kind: FailureKind::WorkerLost, cause: None }
}
