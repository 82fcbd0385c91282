//! What a schedule knows: the schedule itself, how far it has come, what is under way, waits and has been.
//!
//! Invariant: it is data that goes along whole when the run continues as new, and its size is bounded by what is under way.
//! `cursor` never goes back. It decides nothing; `run` does.

use std::collections::{BTreeMap, VecDeque};

use bosun_engine::{Seq, Timestamp};
use serde::{Deserialize, Serialize};

use super::messages::{ActionEnd, Backfill, Outcome};
use super::policy::{HowToEnd, Overlap};
use super::spec::Schedule;
use super::text;
use super::times::Nominal;

/// Starts that are over and still shown; as Temporal.
const RECENT_MAX: usize = 10;
/// Of a failure's text.
const MESSAGE_MAX: usize = 500;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    pub schedule: Schedule,
    /// Counted by every change; a change to an older one is refused.
    pub version: u64,
    #[serde(with = "text::at")]
    pub created_at: Timestamp,
    #[serde(with = "text::at")]
    pub updated_at: Timestamp,
    /// All nominal times up to here are dealt with.
    #[serde(with = "text::at")]
    pub cursor: Timestamp,
    pub next: Option<Nominal>,
    /// Why there is no next time where the spec should have one.
    pub problem: Option<String>,
    /// By nominal time, as in their ids.
    pub running: BTreeMap<String, RunningAction>,
    pub waiting: VecDeque<PlannedStart>,
    pub backfills: VecDeque<Backfill>,
    pub recent: VecDeque<RecentAction>,
    pub counts: ScheduleCounts,
    /// The nominal time of the last start by hand: two are never the same.
    #[serde(with = "text::at")]
    pub triggered_at: Timestamp,
}

/// A start that is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedStart {
    #[serde(with = "text::at")]
    pub nominal: Timestamp,
    pub overlap: Overlap,
    /// By trigger or backfill: also while the schedule is paused, and not counted against its limit.
    pub by_hand: bool,
}

/// A start that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningAction {
    pub workflow_id: String,
    #[serde(with = "text::at")]
    pub started_at: Timestamp,
    /// The child of this run; an earlier run of the schedule began it where there is none.
    pub child: Option<Seq>,
    /// Its own run is there: the schedule may continue as new.
    pub begun: bool,
    pub asked: Option<HowToEnd>,
}

/// A start that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentAction {
    pub nominal: String,
    pub workflow_id: String,
    #[serde(with = "text::at")]
    pub started_at: Timestamp,
    #[serde(with = "text::at")]
    pub ended_at: Timestamp,
    pub outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
}

/// What has become of all times, in Temporal's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ScheduleCounts {
    /// Started; what was to be and could not be is `failed` alone.
    pub actions: u64,
    /// Later than the catch-up window; of more than 10 000 at once the rest is not counted.
    pub missed_catchup_window: u64,
    pub overlap_skipped: u64,
    /// There was no room to wait in, or the schedule was paused meanwhile.
    pub buffer_dropped: u64,
    pub failed: u64,
}

impl ScheduleCounts {
    /// A start that was counted when it was asked for, and never was.
    pub(super) fn never_started(&mut self) {
        self.actions = self.actions.saturating_sub(1);
        self.failed += 1;
    }
}

impl Standing {
    pub fn new(schedule: Schedule, now: Timestamp) -> Standing {
        Standing {
            schedule,
            version: 1,
            created_at: now,
            updated_at: now,
            cursor: now,
            next: None,
            problem: None,
            running: BTreeMap::new(),
            waiting: VecDeque::new(),
            backfills: VecDeque::new(),
            recent: VecDeque::new(),
            counts: ScheduleCounts::default(),
            triggered_at: Timestamp::ZERO,
        }
    }

    /// Whether it starts anything by itself.
    pub fn is_active(&self) -> bool {
        !self.schedule.state.paused && self.schedule.state.remaining_actions != Some(0)
    }

    /// Whether this start may be now.
    pub fn allows(&self, start: &PlannedStart) -> bool {
        start.by_hand || self.is_active()
    }

    /// Takes a start out of those under way. A second word about the same one only completes what is known of it.
    pub fn ended(&mut self, end: ActionEnd, now: Timestamp) -> bool {
        let message = end.message.map(|text| text.chars().take(MESSAGE_MAX).collect());
        let Some(action) = self.running.remove(&end.name) else {
            let known = self.recent.iter_mut().find(|known| known.nominal == end.name);
            if let Some(known) = known.filter(|known| known.outcome == Outcome::Unknown) {
                known.outcome = end.outcome;
                known.message = message;
            }
            return false;
        };
        if matches!(end.outcome, Outcome::Failed | Outcome::TimedOut) {
            self.counts.failed += 1;
        }
        self.recent.push_front(RecentAction {
            nominal: end.name,
            workflow_id: action.workflow_id,
            started_at: action.started_at,
            ended_at: now,
            outcome: end.outcome,
            message,
        });
        self.recent.truncate(RECENT_MAX);
        true
    }
}
