//! Activities of a run (E04-E09).
//!
//! ```text
//!   ScheduleActivity ──► Queued ──slot──► Running ──► Completed | Failed | TimedOut | Canceled     (terminal)
//!                          ▲                 │ └────► Awaiting (completed later, by token)
//!                          └── BackingOff ◄──┘ attempt failed, another is allowed
//! ```
//!
//! Invariant: an attempt is recorded as started before it starts, so the number of attempts that may have run is always
//! known and never exceeds `maximum_attempts`, whatever crashes; an attempt that is over can change nothing any more
//! (its number no longer fits). Exactly one terminal event per activity. Here is what is decided about activities; what
//! their events add up to is [`super::activities`]. Who has a free slot is asked through the [`TurnDraft`]; nothing is
//! run here.

use std::time::Duration;

use super::activities::{Activity, ActivityState};
use super::decision::{Effect, FollowUp, TurnDraft};
use super::run::Run;
use crate::activity::{ActivityTask, TaskToken};
use crate::seeded::{self, Bug};
use crate::vocabulary::*;

impl Run {
    pub(super) fn schedule_activity(&mut self, draft: &mut TurnDraft<'_, '_>, scheduled: ActivityTaskScheduled) {
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
        if self.activities.by_id(&scheduled.activity_id).is_some() {
            return Some(format!("activity id {} is in use in this run", scheduled.activity_id));
        }
        let priority = || self.priority_of(options.priority.as_ref()).and_then(|priority| priority.check().err());
        options.retry_policy.as_ref().and_then(|policy| policy.check().err()).or_else(priority)
    }

    /// Starts the attempt at once if there is a free slot, so that one commit records both; else it waits in the queue.
    fn start_or_queue(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq) {
        let Some(activity) = self.activities.get(seq).filter(|activity| !activity.paused) else { return };
        if self.paused || !matches!(activity.state, ActivityState::Queued { .. }) {
            return;
        }
        let (attempt, queue) = (activity.attempt, self.queue_of(activity));
        if draft.take_slot(&activity.scheduled.activity_type, &queue) {
            self.start_attempt(draft, seq, attempt);
        } else {
            let priority = self.priority_of(activity.options().priority.as_ref());
            let activity_type = activity.scheduled.activity_type.clone();
            draft.effect(Effect::QueueActivity { seq, attempt, activity_type, queue, priority });
        }
    }

    /// What an activity or a child of this run has that asks for this priority.
    pub(super) fn priority_of(&self, own: Option<&Priority>) -> Option<Priority> {
        Priority::within(own, self.started().priority.as_ref())
    }

    fn queue_of(&self, activity: &Activity) -> TaskQueue {
        activity.options().task_queue.clone().unwrap_or_else(|| self.info.task_queue.clone())
    }

    fn start_attempt(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq, attempt: Attempt) {
        draft.push(self, EventKind::ActivityTaskStarted { seq, attempt });
        if let Some(activity) = self.activities.get(seq) {
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
    pub(super) fn slot_granted(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq, attempt: Attempt) {
        let fits = !self.paused
            && self.activities.get(seq).is_some_and(|activity| {
                activity.attempt == attempt
                    && !activity.paused
                    && matches!(activity.state, ActivityState::Queued { .. })
            });
        if fits {
            self.start_attempt(draft, seq, attempt);
        }
    }

    /// Checks that an answer comes from the attempt that is under way (fencing, G20).
    pub(super) fn check_attempt(&self, seq: Seq, attempt: Attempt) -> Result<(), Rejection> {
        let activity =
            self.activities.get(seq).ok_or_else(|| Rejection::UnknownActivity { activity: format!("number {seq}") })?;
        let same_attempt = activity.attempt == attempt || seeded::on(Bug::EpochNotChecked);
        if !same_attempt || !activity.is_under_way() {
            return Err(Rejection::StaleAttempt { seq, attempt, current: activity.attempt });
        }
        Ok(())
    }

    pub(super) fn activity_outcome(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        seq: Seq,
        outcome: ActivityOutcome,
        identity: Option<Identity>,
    ) {
        let Some(activity) = self.activities.get(seq) else { return };
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
                let failure = lost("the attempt stopped as if it had been canceled, and nobody had asked it to");
                self.attempt_failed(draft, seq, failure, None);
            }
            ActivityOutcome::Failed(failure) => self.attempt_failed(draft, seq, failure, None),
        }
    }

    /// An attempt ended badly: another one follows, or the activity has failed.
    fn attempt_failed(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq, failure: Failure, delay: Option<Duration>) {
        let Some(activity) = self.activities.get(seq) else { return };
        let attempt = activity.attempt;
        let mut next = activity.retry_policy().next(activity.counted_attempt(), &failure);
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

    pub(super) fn activity_due(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq, timeout: TimeoutType) {
        let Some(activity) = self.activities.get(seq) else { return };
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

    pub(super) fn activity_retry_due(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq) {
        self.activities.backoff_over(seq, draft.at(), &mut self.due);
        self.start_or_queue(draft, seq);
    }

    pub(super) fn request_cancel_activity(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq) {
        let Some(activity) = self.activities.get(seq).filter(|activity| !activity.cancel_requested) else { return };
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
            ) => self.activities.get(*seq).is_some(),
            FollowUp::Event(_) | FollowUp::Input(_) | FollowUp::RecoverActivity(_) => true,
        }
    }

    pub(super) fn pause_activity(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        seq: Seq,
        reason: String,
        identity: Option<Identity>,
    ) {
        if self.activities.get(seq).is_some_and(|activity| !activity.paused) {
            draft.push(self, EventKind::ActivityTaskPaused { seq, reason, identity });
        }
    }

    pub(super) fn unpause_activity(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq, identity: Option<Identity>) {
        if self.activities.get(seq).is_some_and(|activity| activity.paused) {
            draft.push(self, EventKind::ActivityTaskUnpaused { seq, identity });
            self.start_or_queue(draft, seq);
        }
    }

    /// Changes what is named. An attempt that is under way goes on, with its new limits.
    pub(super) fn modify_activity(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        seq: Seq,
        (update, reason, identity): (&ActivityUpdate, String, Option<Identity>),
    ) -> Result<(), Rejection> {
        let activity =
            self.activities.get(seq).ok_or_else(|| Rejection::UnknownActivity { activity: format!("number {seq}") })?;
        let refused =
            |why: String| Rejection::Invalid { what: format!("activity {}", activity.scheduled.activity_id), why };
        if update.retry_now && activity.is_under_way() {
            return Err(refused(format!("attempt {} is under way", activity.attempt)));
        }
        if update.retry_now && activity.paused {
            return Err(refused("it is paused; unpause it".to_owned()));
        }
        let times = [update.schedule_to_close, update.schedule_to_start, update.start_to_close, update.heartbeat];
        if times.into_iter().flatten().any(|time| time.is_zero()) {
            return Err(refused("a timeout of 0 leaves no time for any attempt".to_owned()));
        }
        let options = update.options(activity.options());
        if let Some(why) = options.as_ref().and_then(|options| options.retry_policy.as_ref()?.check().err()) {
            return Err(refused(why));
        }
        let change = ActivityChange { options, reset: update.reset, retry_now: update.retry_now };
        if change == (ActivityChange { options: None, reset: false, retry_now: false }) {
            return Ok(());
        }
        let change = Box::new(change);
        draft.push(self, EventKind::ActivityPropertiesModifiedExternally { seq, change, reason, identity });
        self.start_or_queue(draft, seq);
        Ok(())
    }

    /// Asks for slots again after a pause, in which they were not taken. One asked for twice is given back.
    pub(super) fn queue_waiting(&mut self, draft: &mut TurnDraft<'_, '_>) {
        for seq in self.activities.seqs() {
            self.start_or_queue(draft, seq);
        }
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
    pub(super) fn recover_activity(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq) {
        let Some(activity) = self.activities.get(seq) else { return };
        let told = self.inbox.iter().any(|input| {
            matches!(input, Input::ActivityOutcome { seq: s, attempt, .. } if (*s, *attempt) == (seq, activity.attempt))
        });
        match Some(&activity.state).filter(|_| !told) {
            Some(ActivityState::Running { .. }) => {
                let failure = lost("the worker that ran the attempt is gone");
                self.attempt_failed(draft, seq, failure, Some(Duration::ZERO));
            }
            Some(ActivityState::Queued { .. }) => self.start_or_queue(draft, seq),
            Some(ActivityState::Awaiting { .. } | ActivityState::BackingOff { .. }) | None => {}
        }
    }

    /// The attempts that run now; their functions are told to stop when the run closes.
    pub(super) fn stop_attempts(&self, draft: &mut TurnDraft<'_, '_>) {
        for (seq, attempt) in self.activities.under_way() {
            draft.effect(Effect::CancelActivity { seq, attempt });
        }
    }

    /// Whether exactly this attempt is under way.
    pub fn is_under_way(&self, token: TaskToken) -> bool {
        token.run_id == self.id() && self.check_attempt(token.seq, token.attempt).is_ok()
    }
}

fn lost(message: &str) -> Failure {
    Failure { message: message.into(), kind: FailureKind::WorkerLost, cause: None }
}
