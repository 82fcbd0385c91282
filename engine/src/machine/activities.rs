//! The activities of a run that are pending: what their events add up to (E04-E09).
//!
//! Invariant: nothing but [`Activities`] changes an activity, so that the deadlines of the run are always those that are
//! true of its activities as they stand. Nothing is decided here: see [`super::activity`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::family::ActivityEvent;
use super::run::{Deadlines, Due, Run};
use crate::activity::TaskToken;
use crate::request::{PendingActivity, PendingActivityState};
use crate::seeded::{self, Bug};
use crate::vocabulary::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Activity {
    pub(super) scheduled: ActivityTaskScheduled,
    pub(super) scheduled_at: Timestamp,
    /// The attempt that runs, or the next one to start.
    pub(super) attempt: Attempt,
    pub(super) state: ActivityState,
    pub(super) cancel_requested: bool,
    pub(super) paused: bool,
    pub(super) last_failure: Option<Failure>,
    pub(super) heartbeat_details: Option<Payload>,
    /// Attempts that its policy does not count any more.
    pub(super) not_counted: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ActivityState {
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
            ActivityState::Queued { .. } => "queued",
            ActivityState::Running { .. } => "running",
            ActivityState::Awaiting { .. } => "awaiting",
            ActivityState::BackingOff { .. } => "backing off",
        };
        let marks = [(self.paused, " paused"), (self.cancel_requested, " canceling")];
        std::iter::once(state).chain(marks.into_iter().filter(|(is, _)| *is).map(|(_, mark)| mark)).collect()
    }
    pub(super) fn options(&self) -> &ActivityOptions {
        &self.scheduled.options
    }
    pub(super) fn retry_policy(&self) -> RetryPolicy {
        self.options().retry_policy.clone().unwrap_or_default()
    }
    /// The attempt as its policy counts it.
    pub(super) fn counted_attempt(&self) -> Attempt {
        Attempt(self.attempt.0.saturating_sub(self.not_counted).max(1))
    }
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self.state, ActivityState::Running { .. } | ActivityState::Awaiting { .. })
    }
    /// It is as it was when it was asked for.
    fn begin_again(&mut self, at: Timestamp) {
        self.scheduled_at = at;
        self.attempt = Attempt(1);
        self.not_counted = 0;
        self.state = ActivityState::Queued { since: at };
        self.last_failure = None;
        self.heartbeat_details = None;
        self.paused = false;
    }
    /// Its times are later by so much.
    fn postpone(&mut self, by: Duration) {
        self.scheduled_at = self.scheduled_at.plus(by);
        match &mut self.state {
            ActivityState::Running { since, beat_at } | ActivityState::Awaiting { since, beat_at } => {
                (*since, *beat_at) = (since.plus(by), beat_at.plus(by));
            }
            ActivityState::Queued { since } => *since = since.plus(by),
            ActivityState::BackingOff { until } => *until = until.plus(by),
        }
    }
    pub(super) fn close_deadline(&self) -> Option<Timestamp> {
        self.options().schedule_to_close.map(|limit| self.scheduled_at.plus(limit))
    }
    fn described(&self, run_id: RunId, seq: Seq) -> PendingActivity {
        PendingActivity {
            seq,
            activity_id: self.scheduled.activity_id.clone(),
            activity_type: self.scheduled.activity_type.clone(),
            state: match &self.state {
                _ if self.paused && !self.is_under_way() => PendingActivityState::Paused,
                _ if self.cancel_requested => PendingActivityState::CancelRequested,
                ActivityState::Queued { .. } => PendingActivityState::Scheduled,
                ActivityState::Running { .. } | ActivityState::Awaiting { .. } => PendingActivityState::Started,
                ActivityState::BackingOff { .. } => PendingActivityState::BackingOff,
            },
            attempt: self.attempt,
            scheduled_at: self.scheduled_at,
            next_attempt_at: match self.state {
                ActivityState::BackingOff { until } => Some(until),
                ActivityState::Queued { .. } | ActivityState::Running { .. } | ActivityState::Awaiting { .. } => None,
            },
            last_failure: self.last_failure.clone(),
            heartbeat_details: self.heartbeat_details.clone(),
            task_token: self.is_under_way().then(|| TaskToken { run_id, seq, attempt: self.attempt }.to_string()),
            summary: self.options().summary.clone(),
            task_queue: self.options().task_queue.clone(),
            options: Some(Box::new(self.options().clone())),
        }
    }
    /// The deadlines that are true of the activity as it stands.
    fn deadlines(&self) -> Vec<(Timestamp, Due)> {
        let seq = self.scheduled.seq;
        let mut due: Vec<(Timestamp, Due)> =
            self.close_deadline().map(|at| (at, Due::ScheduleToClose(seq))).into_iter().collect();
        match &self.state {
            // A paused activity is not waiting for a slot.
            ActivityState::Queued { .. } if self.paused => {}
            ActivityState::Queued { since } => {
                due.extend(
                    self.options().schedule_to_start.map(|limit| (since.plus(limit), Due::ScheduleToStart(seq))),
                );
            }
            ActivityState::Running { since, beat_at } | ActivityState::Awaiting { since, beat_at } => {
                due.extend(self.options().start_to_close.map(|limit| (since.plus(limit), Due::StartToClose(seq))));
                due.extend(self.options().heartbeat.map(|limit| (beat_at.plus(limit), Due::Heartbeat(seq))));
            }
            ActivityState::BackingOff { until } => due.push((*until, Due::ActivityRetry(seq))),
        }
        due
    }
}

/// The activities that have not ended, by their number.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Activities(BTreeMap<Seq, Activity>);

impl Activities {
    pub(super) fn get(&self, seq: Seq) -> Option<&Activity> {
        self.0.get(&seq)
    }
    pub(super) fn seqs(&self) -> Vec<Seq> {
        self.0.keys().copied().collect()
    }
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub(super) fn by_id(&self, id: &ActivityId) -> Option<Seq> {
        self.0.iter().find(|(_, activity)| activity.scheduled.activity_id == *id).map(|(seq, _)| *seq)
    }
    /// The attempts that run now.
    pub(super) fn under_way(&self) -> impl Iterator<Item = (Seq, Attempt)> {
        let under_way = self.0.iter().filter(|(_, activity)| activity.is_under_way());
        under_way.map(|(seq, activity)| (*seq, activity.attempt))
    }

    // long: one arm an event.
    pub(super) fn apply(&mut self, at: Timestamp, seq: Seq, event: ActivityEvent<'_>, due: &mut Deadlines) {
        match event {
            ActivityEvent::Scheduled(scheduled) => self.scheduled(at, scheduled, due),
            ActivityEvent::Started(attempt) => self.change(seq, due, |activity| {
                activity.attempt = attempt;
                activity.state = ActivityState::Running { since: at, beat_at: at };
            }),
            ActivityEvent::AttemptFailed { attempt, failure, next_attempt_at } => self.change(seq, due, |activity| {
                activity.attempt = attempt.next();
                activity.last_failure = Some(failure.clone());
                let is_due = activity.paused || next_attempt_at <= at;
                activity.state = if is_due {
                    ActivityState::Queued { since: at }
                } else {
                    ActivityState::BackingOff { until: next_attempt_at }
                };
            }),
            ActivityEvent::AwaitingCompletion => self.change(seq, due, |activity| {
                if let ActivityState::Running { since, beat_at } = activity.state {
                    activity.state = ActivityState::Awaiting { since, beat_at };
                }
            }),
            ActivityEvent::CancelRequested => self.change(seq, due, |activity| activity.cancel_requested = true),
            ActivityEvent::Paused => self.change(seq, due, |activity| {
                activity.paused = true;
                if let ActivityState::BackingOff { .. } = activity.state {
                    activity.state = ActivityState::Queued { since: at };
                }
            }),
            ActivityEvent::Unpaused => self.change(seq, due, |activity| {
                activity.paused = false;
                if let ActivityState::Queued { .. } = activity.state {
                    activity.state = ActivityState::Queued { since: at };
                }
            }),
            ActivityEvent::Modified(change) => self.change(seq, due, |activity| {
                if let Some(options) = &change.options {
                    activity.scheduled.options = options.clone();
                }
                if change.reset {
                    activity.not_counted = activity.attempt.0.saturating_sub(1);
                }
                if let ActivityState::BackingOff { .. } = activity.state
                    && (change.retry_now || change.reset)
                {
                    activity.state = ActivityState::Queued { since: at };
                }
            }),
            ActivityEvent::Ended => {
                for deadline in self.0.remove(&seq).iter().flat_map(Activity::deadlines) {
                    due.remove(&deadline);
                }
            }
        }
    }

    fn scheduled(&mut self, at: Timestamp, scheduled: &ActivityTaskScheduled, due: &mut Deadlines) {
        let activity = Activity {
            scheduled: scheduled.clone(),
            scheduled_at: at,
            attempt: Attempt(1),
            state: ActivityState::Queued { since: at },
            cancel_requested: false,
            paused: false,
            last_failure: None,
            heartbeat_details: None,
            not_counted: 0,
        };
        due.extend(activity.deadlines());
        self.0.insert(scheduled.seq, activity);
    }

    /// Changes an activity, and its deadlines with it.
    fn change(&mut self, seq: Seq, due: &mut Deadlines, change: impl FnOnce(&mut Activity)) {
        if let Some(activity) = self.0.get_mut(&seq) {
            for deadline in activity.deadlines() {
                due.remove(&deadline);
            }
            change(activity);
            due.extend(activity.deadlines());
        }
    }

    /// Folds a heartbeat: the attempt is alive, and the next one learns the details.
    pub(super) fn beat(&mut self, at: Timestamp, beat: &Heartbeat, due: &mut Deadlines) {
        self.change(beat.seq, due, |activity| {
            activity.heartbeat_details = beat.details.clone();
            if let ActivityState::Running { beat_at, .. } | ActivityState::Awaiting { beat_at, .. } =
                &mut activity.state
            {
                *beat_at = at;
            }
        });
    }

    /// The end of a backoff needs no event of its own: the failed attempt's event says when it is. The same fold happens
    /// when the next event of the activity is applied, so that a rebuilt run does not differ.
    pub(super) fn backoff_over(&mut self, seq: Seq, at: Timestamp, due: &mut Deadlines) {
        self.change(seq, due, |activity| {
            if let ActivityState::BackingOff { until } = activity.state
                && until <= at
            {
                activity.state = ActivityState::Queued { since: until };
            }
        });
    }

    /// The run goes on after a pause: what waits for a slot begins to wait now.
    pub(super) fn restart_waiting(&mut self, at: Timestamp, due: &mut Deadlines) {
        for seq in self.seqs() {
            self.change(seq, due, |activity| {
                if let ActivityState::Queued { since } = &mut activity.state {
                    *since = at;
                }
            });
        }
    }

    /// The run was forked: every activity that was under way is as it was when it was asked for, but for those whose
    /// attempt has ended already (`ended`): what is known of it waits to be told. For them the time `idle` did not pass.
    pub(super) fn repeat(&mut self, at: Timestamp, idle: Duration, ended: &[Seq], due: &mut Deadlines) {
        due.retain(|(_, due)| !due.is_of_an_activity());
        for activity in self.0.values_mut() {
            if ended.contains(&activity.scheduled.seq) {
                activity.postpone(idle);
                activity.paused = false;
                due.extend(activity.deadlines());
                continue;
            }
            activity.begin_again(at);
            due.extend(activity.deadlines());
        }
    }

    /// As [`Activities::repeat`], of one whose attempt is as it was: what was known of its end was dropped.
    pub(super) fn made_again(&mut self, at: Timestamp, seq: Seq, attempt: Attempt, due: &mut Deadlines) {
        let is_as_it_was = |it: &Activity| it.attempt == attempt && matches!(it.state, ActivityState::Running { .. });
        if self.get(seq).is_some_and(is_as_it_was) {
            self.change(seq, due, |activity| activity.begin_again(at));
        }
    }

    /// The run has closed: its deadlines go with it.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// A seeded bug: what a replay knows of the attempts before it is lost.
    pub(super) fn forget_attempts(&mut self) {
        if seeded::on(Bug::AttemptsResetOnReplay) {
            self.0.values_mut().for_each(|activity| activity.attempt = Attempt(1));
        }
    }
}

/// What is told of them.
impl Run {
    /// The activities that a fork of this run begins again: not those whose end is known and only waits to be told.
    pub(super) fn activities_to_repeat(&self) -> Vec<Seq> {
        let repeats = |(seq, activity): &(&Seq, &Activity)| !activity.cancel_requested && !self.ends_from_inbox(**seq);
        self.activities.0.iter().filter(repeats).map(|(seq, _)| *seq).collect()
    }

    /// The activities whose attempt has ended, which the code has not been told yet.
    pub(super) fn attempts_told_from_inbox(&self) -> Vec<Seq> {
        let under_way = self.activities.under_way();
        under_way.filter(|(seq, attempt)| self.has_outcome(*seq, *attempt)).map(|(seq, _)| seq).collect()
    }

    /// Whether what waits in the inbox ends the activity: not so a failure after which it is tried again.
    fn ends_from_inbox(&self, seq: Seq) -> bool {
        let Some(activity) = self.activities.get(seq).filter(|activity| activity.is_under_way()) else { return false };
        self.inbox.iter().any(|input| match input {
            Input::ActivityOutcome { seq: s, attempt, outcome, .. } if (*s, *attempt) == (seq, activity.attempt) => {
                match outcome {
                    ActivityOutcome::Completed(_) => true,
                    ActivityOutcome::Canceled(_) => activity.cancel_requested,
                    ActivityOutcome::Failed(failure) => {
                        activity.cancel_requested
                            || activity.retry_policy().next(activity.counted_attempt(), failure).is_err()
                    }
                    ActivityOutcome::WillCompleteLater => false,
                }
            }
            _ => false,
        })
    }

    /// The activities that were asked to cancel and are not under way.
    pub(super) fn canceled_activities(&self) -> Vec<Seq> {
        let canceled = |activity: &Activity| activity.cancel_requested && !activity.is_under_way();
        self.activities.0.iter().filter(|(_, activity)| canceled(activity)).map(|(seq, _)| *seq).collect()
    }

    /// The type and id of a pending activity, for the failure the code sees.
    pub(super) fn activity_names(&self, seq: Seq) -> Option<(&ActivityType, &ActivityId)> {
        self.activities.get(seq).map(|activity| (&activity.scheduled.activity_type, &activity.scheduled.activity_id))
    }

    /// Finds a pending activity by its id.
    pub fn activity_by_id(&self, id: &ActivityId) -> Option<Seq> {
        self.activities.by_id(id)
    }

    /// Activities that have not ended, with their attempts, in the order in which they were asked for.
    pub fn pending_activities(&self) -> Vec<PendingActivity> {
        self.activities.0.iter().map(|(seq, activity)| activity.described(self.id(), *seq)).collect()
    }
}
