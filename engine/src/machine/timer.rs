//! Timers of a run (engine.md E10).
//!
//! ```text
//!   StartTimer ──► TimerStarted ──► TimerFired      (deadline reached)
//!                             └───► TimerCanceled   (CancelTimer)
//! ```
//!
//! Invariant: a timer ends exactly once, by firing or by cancellation, whichever event comes first; it never fires
//! before `fire_at`. Timers due at the same moment fire in the order they were started.

use serde::{Deserialize, Serialize};

use super::decision::Draft;
use super::family::TimerEvent;
use super::run::{Due, Run};
use crate::request::PendingTimer;
use crate::vocabulary::*;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Timer {
    pub(super) fire_at: Timestamp,
    pub(super) summary: Option<String>,
}

impl Run {
    pub(super) fn apply_timer(&mut self, seq: Seq, event: TimerEvent<'_>) {
        match event {
            TimerEvent::Started { fire_at, summary } => {
                self.timers.insert(seq, Timer { fire_at, summary: summary.map(str::to_owned) });
                self.due.insert((fire_at, Due::Timer(seq)));
            }
            TimerEvent::Ended => {
                if let Some(timer) = self.timers.remove(&seq) {
                    self.due.remove(&(timer.fire_at, Due::Timer(seq)));
                }
            }
        }
    }

    pub(super) fn start_timer(
        &mut self,
        draft: &mut Draft<'_, '_>,
        seq: Seq,
        fire_at: Timestamp,
        summary: Option<String>,
    ) {
        draft.push(self, EventKind::TimerStarted { seq, fire_at, summary });
        if fire_at <= draft.at() {
            draft.follow_up(Input::Deadline);
        }
    }

    pub(super) fn cancel_timer(&mut self, draft: &mut Draft<'_, '_>, seq: Seq) {
        if self.timers.contains_key(&seq) {
            draft.push(self, EventKind::TimerCanceled { seq });
        }
    }

    pub(super) fn timer_due(&mut self, draft: &mut Draft<'_, '_>, seq: Seq) {
        if self.timers.contains_key(&seq) {
            draft.push(self, EventKind::TimerFired { seq });
        }
    }

    pub fn pending_timers(&self) -> Vec<PendingTimer> {
        self.timers
            .iter()
            .map(|(seq, timer)| PendingTimer { seq: *seq, fire_at: timer.fire_at, summary: timer.summary.clone() })
            .collect()
    }
}
