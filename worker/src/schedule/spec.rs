//! What a person says of a schedule: when, what is started, and what holds for it. Temporal's words.
//!
//! Invariant: a schedule that [`Schedule::check`] accepts names at least one time, a zone that is known and ids that are
//! valid; every complaint names its place. Checking needs the data of time zones, so a run records what came of it.

use std::time::Duration;

use bosun_engine::{ID_LENGTH_MAX, InvalidId, TaskQueue, Timestamp, WorkflowId, WorkflowType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::calendar::Calendar;
use super::cron;
use super::policy::Overlap;
use super::text;
use super::times::Times;
use crate::priority::PrioritySaid;

/// As Temporal: what is later than a year is never made up for, and less than ten seconds is no time to restart in.
pub const CATCH_UP_DEFAULT: Duration = Duration::from_secs(365 * 86_400);
/// See [`CATCH_UP_DEFAULT`].
pub const CATCH_UP_MIN: Duration = Duration::from_secs(10);
/// Times, calendars and intervals of one spec.
const TIMES_MAX: usize = 100;
/// In every zone a day of the first year that a calendar can name (2000-01-02).
const CALENDARS_BEGIN: Timestamp = Timestamp(946_771_200_000_000);
/// The nominal time and a dash follow it in the ids of runs.
const ID_MAX: usize = ID_LENGTH_MAX - 40;
/// The prefix of its workflow id, and the nominal time behind it in the ids of its starts.
pub const SCHEDULE_ID_MAX: usize = ID_LENGTH_MAX - 60;
/// `every` and `jitter` at most, so that a sum of two is a time still.
const SPAN_MAX: Duration = Duration::from_secs(10 * 366 * 86_400);

/// A schedule: when, what, how, and whether now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// When it starts something.
    pub spec: ScheduleSpec,
    /// What it starts.
    pub action: ScheduleAction,
    /// What it does when a time cannot be kept.
    #[serde(default)]
    pub policies: SchedulePolicies,
    /// Whether it starts anything now.
    #[serde(default)]
    pub state: ScheduleState,
}

/// When: the times of all parts together, without those that `skip` names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleSpec {
    /// Lines of cron, with 5 to 7 fields, or `@daily` and the like.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cron: Vec<String>,
    /// Times by their fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calendars: Vec<Calendar>,
    /// Times at equal distances.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// Times that are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skip: Vec<Calendar>,
    /// No time before this one.
    #[serde(with = "text::at_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub start_time: Option<Timestamp>,
    /// No time after this one.
    #[serde(with = "text::at_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub end_time: Option<Timestamp>,
    /// Each start is later by a part of this, which depends on the schedule and the nominal time alone.
    #[serde(with = "text::span_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub jitter: Option<Duration>,
    /// The zone that cron and calendars are in, such as `Europe/Berlin`; UTC where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

/// Every so often, counted from 1970-01-01 00:00 UTC and `offset` later; the same in every time zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// The distance.
    #[serde(with = "text::span")]
    #[schemars(with = "String")]
    pub every: Duration,
    /// How much later than the round times.
    #[serde(with = "text::span", default, skip_serializing_if = "Duration::is_zero")]
    #[schemars(with = "String")]
    pub offset: Duration,
}

/// What is started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleAction {
    /// The workflow that is started.
    pub workflow_type: String,
    /// The nominal time is put behind it: `nightly-2026-03-29T01:00:00Z`.
    pub workflow_id: String,
    /// What it is started with.
    #[serde(default)]
    pub input: Value,
    /// The queue of the schedule where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_queue: Option<String>,
    /// The time limit of an execution, all its runs together.
    #[serde(default, with = "text::span_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub execution_timeout: Option<Duration>,
    /// The time limit of a single run.
    #[serde(default, with = "text::span_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub run_timeout: Option<Duration>,
    /// Tries a failed workflow again, so many times in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_attempts: Option<u32>,
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The place of what is started among those that wait for a slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<PrioritySaid>,
}

/// How.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulePolicies {
    /// What happens at a time at which an earlier run is open.
    pub overlap: Overlap,
    /// What is later than this is missed: it is counted and not started.
    #[serde(with = "text::span")]
    #[schemars(with = "String")]
    pub catch_up_window: Duration,
    /// Pauses the schedule when a run that it started fails or times out.
    pub pause_on_failure: bool,
}

impl Default for SchedulePolicies {
    fn default() -> Self {
        SchedulePolicies { overlap: Overlap::Skip, catch_up_window: CATCH_UP_DEFAULT, pause_on_failure: false }
    }
}

/// Whether now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleState {
    /// Whether it starts nothing by itself.
    pub paused: bool,
    /// Why, for people.
    pub note: String,
    /// How many more it starts by itself; without it, any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_actions: Option<u64>,
}

/// What is wrong with a schedule, and where: `spec.calendars[0].hour: "25" is no value from 0 to 23`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{path}: {problem}")]
pub struct InvalidSchedule {
    /// The key: `spec.cron[0]`.
    pub path: String,
    /// What is wrong with it.
    pub problem: String,
}

impl InvalidSchedule {
    pub(super) fn at(path: impl Into<String>, problem: impl ToString) -> Self {
        InvalidSchedule { path: path.into(), problem: problem.to_string() }
    }
}

/// Why no schedule is made that has no starts left.
pub(crate) const NOTHING_LEFT: &str =
    "0: it would never start anything; leave it out for any number of starts, or make it paused";

impl Schedule {
    /// Whether a schedule of this id can be carried out.
    ///
    /// # Errors
    /// The first of its problems.
    pub fn check(&self, id: &str) -> Result<(), InvalidSchedule> {
        first(self.problems(id))
    }

    /// The same of one that is about to be made: it has to have something left to start.
    pub fn problems_of_new(&self, id: &str) -> Vec<InvalidSchedule> {
        let mut all = self.problems(id);
        if self.state.remaining_actions == Some(0) {
            all.push(InvalidSchedule::at("state.remaining_actions", NOTHING_LEFT));
        }
        all
    }

    /// All that is wrong with a schedule of this id, each part by itself, so that none hides another. One that has no starts
    /// left is over, and may be.
    pub fn problems(&self, id: &str) -> Vec<InvalidSchedule> {
        let Schedule { spec, action, policies, state: _ } = self;
        let mut all: Vec<InvalidSchedule> = check_id(id).err().into_iter().collect();
        all.extend(spec.problems(id));
        all.extend(action.problems());
        all.extend(policies.check().err());
        all
    }
}

fn first(problems: Vec<InvalidSchedule>) -> Result<(), InvalidSchedule> {
    problems.into_iter().next().map_or(Ok(()), Err)
}

impl ScheduleAction {
    /// What keeps it from naming what can be started.
    pub fn problems(&self) -> Vec<InvalidSchedule> {
        let mut all = Vec::new();
        let mut valid = |path: &str, checked: Result<(), InvalidId>| {
            all.extend(checked.err().map(|why| InvalidSchedule::at(format!("action.{path}"), why)));
        };
        valid("workflow_type", WorkflowType::new(&self.workflow_type).map(drop));
        valid("workflow_id", WorkflowId::new(&self.workflow_id).map(drop));
        if let Some(queue) = &self.task_queue {
            valid("task_queue", TaskQueue::new(queue).map(drop));
        }
        if self.workflow_type.starts_with("bosun.") {
            let why = format!(
                "{} is Bosun's own, and is started by its own verbs alone: a schedule starts workflows and specs of yours",
                self.workflow_type
            );
            all.push(InvalidSchedule::at("action.workflow_type", why));
        }
        if (ID_MAX + 1..=ID_LENGTH_MAX).contains(&self.workflow_id.len()) {
            let why = format!("it has {} bytes; at most {ID_MAX}: the time follows it", self.workflow_id.len());
            all.push(InvalidSchedule::at("action.workflow_id", why));
        }
        all
    }
}

impl SchedulePolicies {
    /// Whether they can be kept.
    pub fn check(&self) -> Result<(), InvalidSchedule> {
        let window = self.catch_up_window;
        if window < CATCH_UP_MIN {
            let why = format!("{} is too short; at least {}", text::duration(window), text::duration(CATCH_UP_MIN));
            return Err(InvalidSchedule::at("policies.catch_up_window", why));
        }
        Ok(())
    }
}

impl ScheduleSpec {
    /// Whether the spec names times.
    ///
    /// # Errors
    /// The first of its problems.
    pub fn check(&self, id: &str) -> Result<(), InvalidSchedule> {
        first(self.problems(id))
    }

    /// What keeps the spec from naming times.
    pub fn problems(&self, id: &str) -> Vec<InvalidSchedule> {
        let mut all = Vec::new();
        let count = self.cron.len() + self.calendars.len() + self.intervals.len();
        if count == 0 {
            all.push(InvalidSchedule::at("spec", "it names no time: give cron, calendars or intervals"));
        }
        if count + self.skip.len() > TIMES_MAX {
            // Not looked at one by one.
            return vec![InvalidSchedule::at("spec", format!("more than {TIMES_MAX} times"))];
        }
        if let (Some(start), Some(end)) = (self.start_time, self.end_time)
            && end < start
        {
            all.push(InvalidSchedule::at("spec.end_time", "it is before start_time"));
        }
        if self.jitter.is_some_and(|jitter| jitter > SPAN_MAX) {
            all.push(InvalidSchedule::at("spec.jitter", "more than ten years"));
        }
        for (at, line) in self.cron.iter().enumerate() {
            all.extend(cron::misread(line).map(|why| InvalidSchedule::at(format!("spec.cron[{at}]"), why)));
        }
        // Before the first year of calendars nothing is left out.
        let from = if self.skip.is_empty() { Timestamp::ZERO } else { CALENDARS_BEGIN };
        match Times::read(self, id) {
            Err(wrong) => {
                let told: Vec<String> = all.iter().map(|one| one.path.clone()).collect();
                all.extend(wrong.into_iter().filter(|one| !told.contains(&one.path)));
            }
            Ok(times) if all.is_empty() && times.next(from).is_none() => {
                all.push(InvalidSchedule::at("spec", "it has no time: no date fits, or `skip` leaves none"));
            }
            Ok(_) => {}
        }
        all
    }
}

/// The id of a schedule.
pub fn check_id(id: &str) -> Result<(), InvalidSchedule> {
    WorkflowId::new(id).map_err(|why| InvalidSchedule::at("schedule_id", why))?;
    if id.len() > SCHEDULE_ID_MAX {
        return Err(InvalidSchedule::at("schedule_id", format!("it has more than {SCHEDULE_ID_MAX} bytes")));
    }
    Ok(())
}

impl Interval {
    /// Microseconds between the times, and the first after 1970; refused where they are none.
    pub(super) fn numbers(&self) -> Result<(i64, i64), String> {
        let whole = |of: Duration| of.subsec_nanos() == 0;
        if self.every < Duration::from_secs(1) || !whole(self.every) || self.every > SPAN_MAX {
            return Err("`every` is whole seconds, from 1s to ten years".to_owned());
        }
        if !whole(self.offset) || self.offset >= self.every {
            return Err("`offset` is whole seconds, and less than `every`".to_owned());
        }
        let micros = |of: Duration| i64::try_from(of.as_micros()).unwrap_or(i64::MAX);
        Ok((micros(self.every), micros(self.offset)))
    }
}
