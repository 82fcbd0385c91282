//! Timers of a run (E10).
//!
//! ```text
//!   StartTimer ──► TimerStarted ──► TimerFired      (deadline reached)
//!                             └───► TimerCanceled   (CancelTimer)
//! ```
//!
//! Invariant: a timer ends exactly once, by firing or by cancellation, whichever event comes first; it never fires
//! before `fire_at`. Timers due at the same moment fire in the order they were started. Only [`Timers`] changes what is
//! pending, and the deadlines of the run with it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::decision::TurnDraft;
use super::family::TimerEvent;
use super::run::{Deadlines, Due, Run};
use crate::request::PendingTimer;
use crate::vocabulary::*;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Timer {
    fire_at: Timestamp,
    summary: Option<String>,
}

/// The timers that are pending.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Timers(BTreeMap<Seq, Timer>);

impl Timers {
    pub(super) fn apply(&mut self, seq: Seq, event: TimerEvent<'_>, due: &mut Deadlines) {
        match event {
            TimerEvent::Started { fire_at, summary } => {
                self.0.insert(seq, Timer { fire_at, summary: summary.map(str::to_owned) });
                due.insert((fire_at, Due::Timer(seq)));
            }
            TimerEvent::Ended => {
                if let Some(timer) = self.0.remove(&seq) {
                    due.remove(&(timer.fire_at, Due::Timer(seq)));
                }
            }
        }
    }
    /// The run has closed: its deadlines go with it.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
    /// Time that does not count has passed. The caller moves the deadlines, with those of others.
    pub(super) fn postpone(&mut self, by: Duration) {
        for timer in self.0.values_mut() {
            timer.fire_at = timer.fire_at.plus(by);
        }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub(super) fn is_pending(&self, seq: Seq) -> bool {
        self.0.contains_key(&seq)
    }
    pub(super) fn fires_at(&self, seq: Seq) -> Option<Timestamp> {
        self.0.get(&seq).map(|timer| timer.fire_at)
    }
}

impl Run {
    pub(super) fn start_timer(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        seq: Seq,
        fire_at: Timestamp,
        summary: Option<String>,
    ) {
        draft.push(self, EventKind::TimerStarted { seq, fire_at, summary });
        if fire_at <= draft.at() {
            draft.follow_up(Input::Deadline);
        }
    }

    pub(super) fn cancel_timer(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq) {
        if self.timers.is_pending(seq) {
            draft.push(self, EventKind::TimerCanceled { seq });
        }
    }

    pub(super) fn timer_due(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq) {
        if self.timers.is_pending(seq) {
            draft.push(self, EventKind::TimerFired { seq });
        }
    }

    /// What the code waits for, with the moment of a timer as it stands: that of a fork fires later than its code knows.
    pub(super) fn with_time_left(&self, awaited: Awaited) -> Awaited {
        let timer = awaited.timer.and_then(|seq| Some((seq, self.timers.0.get(&seq)?)));
        match timer {
            Some((seq, timer)) => Awaited { what: Awaited::timer_until(seq, timer.fire_at), ..awaited },
            None => awaited,
        }
    }

    /// Timers that have not fired, in the order in which they were started.
    pub fn pending_timers(&self) -> Vec<PendingTimer> {
        let pending = |(seq, timer): (&Seq, &Timer)| PendingTimer {
            seq: *seq,
            fire_at: timer.fire_at,
            summary: timer.summary.clone(),
        };
        self.timers.0.iter().map(pending).collect()
    }
}
