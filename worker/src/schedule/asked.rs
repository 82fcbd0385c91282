//! What people ask of a schedule: its updates, and what it says of itself.
//!
//! Invariant: `validate` changes nothing and refuses whatever cannot be carried out; `update` carries out what was validated,
//! and asks no time zone anything. What follows from it is done by `run`.

use std::time::Duration;

use bosun_engine::workflow::Cx;
use bosun_engine::{Payload, Timestamp};
use serde_json::{Value, json};

use super::messages::{Backfill, Change, Note, Trigger, UPDATES, read, read_value};
use super::policy::{Overlap, WAITING_MAX};
use super::run::ScheduleRun;
use super::spec::InvalidSchedule;
use super::standing::{PlannedStart, Standing};
use super::text::moment;
use super::times::Times;

/// Backfills that wait for each other.
const BACKFILLS_MAX: usize = 10;
/// Times that a description shows.
const TIMES_SHOWN: usize = 10;

impl ScheduleRun {
    pub(super) fn validate(&self, name: &str, input: &Payload) -> Result<(), InvalidSchedule> {
        match name {
            "update" => {
                let change: Change = read_value(input.to_json())?;
                let now = self.standing.version;
                if let Some(seen) = change.version.filter(|seen| *seen != now) {
                    let why = format!("the schedule has been changed meanwhile: it is {now}, and {seen} was looked at");
                    return Err(InvalidSchedule::at("version", why));
                }
                change.schedule.check(&self.id)
            }
            "pause" | "unpause" => read::<Note>(input).map(drop),
            "trigger" => read::<Trigger>(input).map(drop),
            "backfill" => {
                let range: Backfill = read_value(input.to_json())?;
                if range.end_time < range.start_time {
                    return Err(InvalidSchedule::at("end_time", "it is before start_time"));
                }
                self.room_for(&range)
            }
            "delete" => Ok(()),
            other => {
                Err(InvalidSchedule::at("update", format!("a schedule has no {other}; it has {}", UPDATES.join(", "))))
            }
        }
    }

    /// A range is refused that has more times than a schedule lets wait: each is a start, and what runs is carried along.
    fn room_for(&self, range: &Backfill) -> Result<(), InvalidSchedule> {
        if self.standing.backfills.len() >= BACKFILLS_MAX {
            let why = format!("{BACKFILLS_MAX} backfills are under way: ask again when one of them has ended");
            return Err(InvalidSchedule::at("start_time", why));
        }
        let times = Times::of(&self.standing.schedule.spec, &self.id)?;
        let after = Timestamp(range.start_time.0.saturating_sub(1));
        match times.within(after, range.end_time, WAITING_MAX) {
            (first, true) => {
                let last = first.last().map_or_else(String::new, |last| moment(*last));
                let why = format!(
                    "the range has more than {WAITING_MAX} times, the last of which is {last}: backfill up to there, and then \
                     what comes after it"
                );
                Err(InvalidSchedule::at("end_time", why))
            }
            (_, false) => Ok(()),
        }
    }

    /// Carries out what was validated. The answer is the version of the schedule after it.
    pub(super) fn update(&mut self, name: &str, input: &Payload, cx: &mut Cx<'_>) -> Result<Value, InvalidSchedule> {
        let now = cx.now();
        match name {
            "update" => {
                let change: Change = read_value(input.to_json())?;
                self.arrive_by(now, cx);
                self.standing.schedule = change.schedule;
                self.look_from_now(now);
            }
            "pause" | "unpause" => self.pause_or_not(name == "pause", read::<Note>(input)?.note, cx),
            "trigger" => {
                let overlap = read::<Trigger>(input)?.overlap.unwrap_or(self.overlap());
                let nominal = now.max(self.standing.triggered_at.plus(Duration::from_micros(1)));
                self.standing.triggered_at = nominal;
                self.arrive(PlannedStart { nominal, overlap, by_hand: true }, cx);
                return Ok(json!({ "nominal": moment(nominal), "version": self.standing.version }));
            }
            "backfill" => {
                let mut range: Backfill = read_value(input.to_json())?;
                if range.start_time > now {
                    return Err(InvalidSchedule::at(
                        "start_time",
                        "it has not come yet: its times start when they come",
                    ));
                }
                // What has not come yet is started when it comes, and not before.
                range.end_time = range.end_time.min(now);
                self.standing.backfills.push_back(range);
            }
            _ => {}
        }
        if matches!(name, "update" | "pause" | "unpause") {
            self.standing.version += 1;
            self.standing.updated_at = now;
        }
        Ok(json!({ "version": self.standing.version }))
    }

    fn pause_or_not(&mut self, pauses: bool, note: String, cx: &mut Cx<'_>) {
        let now = cx.now();
        let is_so = self.standing.schedule.state.paused == pauses;
        let came = self.standing.next.is_some_and(|next| next.at <= now);
        // Where runs have noted it before, such a time was lost.
        let keeps = (is_so || came) && cx.patched("schedule-pause-keeps-what-came");
        if keeps && !is_so {
            self.arrive_by(now, cx);
        }
        self.standing.schedule.state.paused = pauses;
        self.standing.schedule.state.note = note;
        // What is so already has the times that it had.
        if !(keeps && is_so) {
            self.look_from_now(now);
        }
    }

    /// A time that only its jitter kept is a time of the schedule that was.
    fn arrive_by(&mut self, now: Timestamp, cx: &mut Cx<'_>) {
        if let Some(next) = self.standing.next.take_if(|next| next.at <= now) {
            self.arrive(PlannedStart { nominal: next.at, overlap: self.overlap(), by_hand: false }, cx);
        }
    }

    /// What was before is not made up for: the schedule that holds from now on has times from now on.
    pub(super) fn look_from_now(&mut self, now: Timestamp) {
        self.standing.cursor = self.standing.cursor.max(now);
        self.standing.next = None;
        self.stale = true;
    }

    pub(super) fn overlap(&self) -> Overlap {
        self.standing.schedule.policies.overlap
    }

    pub(super) fn description(&self) -> Value {
        let Standing { schedule, version, created_at, updated_at, next, problem, .. } = &self.standing;
        let running = self.standing.running.iter().map(|(name, action)| {
            json!({ "nominal": name, "workflow_id": action.workflow_id, "started_at": moment(action.started_at),
                "asked": action.asked })
        });
        json!({
            "schedule_id": self.id,
            "version": version,
            "schedule": schedule,
            "created_at": moment(*created_at),
            "updated_at": moment(*updated_at),
            "next": next,
            "next_times": self.next_times(TIMES_SHOWN),
            "running": running.collect::<Vec<_>>(),
            "waiting": self.standing.waiting,
            "backfills": self.standing.backfills,
            "recent": self.standing.recent,
            "counts": self.standing.counts,
            "problem": problem,
        })
    }

    /// The nominal times that are still to come; none while it starts nothing.
    pub(super) fn next_times(&self, count: usize) -> Vec<String> {
        let limit = self.standing.schedule.state.remaining_actions.and_then(|left| usize::try_from(left).ok());
        let count = if self.standing.is_active() { count.min(limit.unwrap_or(count)) } else { 0 };
        let times = Times::of(&self.standing.schedule.spec, &self.id);
        times
            .map_or_else(|_| Vec::new(), |times| times.following(self.standing.cursor, count))
            .into_iter()
            .map(moment)
            .collect()
    }
}
