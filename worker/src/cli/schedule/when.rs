//! The words of a command line that make the spec and the policies of a schedule.
//!
//! Invariant: what is not said is left as it is; naming one of `--cron`, `--every` and `--calendar` replaces all of them.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::error::CliError;
use crate::schedule::calendar::Calendar;
use crate::schedule::spec::{Interval, SchedulePolicies, ScheduleSpec, ScheduleState};
use crate::schedule::text::{parse_duration, parse_moment};
use crate::schedule::{InvalidSchedule, Overlap};

/// Takes something away again.
const NONE: &str = "none";

/// When.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "When")]
pub struct WhenArgs {
    /// A cron line, such as `0 9 * * mon-fri`, or @daily, @hourly …; may be repeated.
    #[arg(long, value_name = "LINE")]
    pub cron: Vec<String>,
    /// An interval, such as 10m or 1d; may be repeated.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub every: Vec<Duration>,
    /// With --every: shift all times by this much.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "every")]
    pub offset: Option<Duration>,
    /// Calendar fields, such as 'hour=9 day_of_week=mon-fri', or JSON; midnight if no hour is given; may be repeated.
    #[arg(long, value_name = "FIELDS")]
    pub calendar: Vec<String>,
    /// Times to leave out, written as for --calendar; whole days if no hour is given; may be repeated; `none` clears the list.
    #[arg(long, value_name = "FIELDS")]
    pub skip: Vec<String>,
    /// The zone of cron, calendars and skip [default: UTC].
    #[arg(long, value_name = "ZONE")]
    pub time_zone: Option<String>,
    /// Delay each start by a different time up to this one; 0 means no delay.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub jitter: Option<Duration>,
    /// Start nothing before this time, such as 2026-12-01T00:00:00Z, or `none`.
    #[arg(long, value_name = "TIME")]
    pub start: Option<String>,
    /// Start nothing after this time, or `none`.
    #[arg(long, value_name = "TIME")]
    pub end: Option<String>,
}

/// How.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "How")]
pub struct HowArgs {
    /// What to do when an earlier run is still open [default: skip].
    #[arg(long, value_enum, value_name = "POLICY")]
    pub overlap: Option<OverlapChoice>,
    /// How late a start may be made up for; later ones count as missed [default: 365d].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub catch_up: Option<Duration>,
    /// Pause when a run fails or times out.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub pause_on_failure: Option<bool>,
    /// How many more starts there are, or `none` for any number.
    #[arg(long, value_name = "N")]
    pub remaining: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OverlapChoice {
    Skip,
    BufferOne,
    BufferAll,
    CancelOther,
    TerminateOther,
    AllowAll,
}

impl From<OverlapChoice> for Overlap {
    fn from(choice: OverlapChoice) -> Self {
        match choice {
            OverlapChoice::Skip => Overlap::Skip,
            OverlapChoice::BufferOne => Overlap::BufferOne,
            OverlapChoice::BufferAll => Overlap::BufferAll,
            OverlapChoice::CancelOther => Overlap::CancelOther,
            OverlapChoice::TerminateOther => Overlap::TerminateOther,
            OverlapChoice::AllowAll => Overlap::AllowAll,
        }
    }
}

impl WhenArgs {
    pub(super) fn apply(&self, spec: &mut ScheduleSpec) -> Result<(), CliError> {
        if !(self.cron.is_empty() && self.every.is_empty() && self.calendar.is_empty()) {
            spec.cron.clone_from(&self.cron);
            let offset = self.offset.unwrap_or_default();
            spec.intervals = self.every.iter().map(|every| Interval { every: *every, offset }).collect();
            let calendars = self.calendar.iter().map(|text| calendar("--calendar", text, Calendar::default()));
            spec.calendars = calendars.collect::<Result<_, _>>()?;
        }
        if !self.skip.is_empty() {
            let whole = || Calendar {
                hour: "*".to_owned(),
                minute: "*".to_owned(),
                second: "*".to_owned(),
                ..Calendar::default()
            };
            let said = self.skip.iter().filter(|text| *text != NONE);
            spec.skip = said.map(|text| calendar("--skip", text, whole())).collect::<Result<_, _>>()?;
        }
        if let Some(zone) = &self.time_zone {
            spec.time_zone = Some(zone.clone());
        }
        if let Some(jitter) = self.jitter {
            spec.jitter = Some(jitter).filter(|jitter| !jitter.is_zero());
        }
        for (flag, text, place) in
            [("--start", &self.start, &mut spec.start_time), ("--end", &self.end, &mut spec.end_time)]
        {
            match text.as_deref() {
                None => {}
                Some(NONE) => *place = None,
                Some(text) => *place = Some(moment(flag, text)?),
            }
        }
        Ok(())
    }
}

impl HowArgs {
    pub(super) fn apply(&self, policies: &mut SchedulePolicies, state: &mut ScheduleState) -> Result<(), CliError> {
        if let Some(overlap) = self.overlap {
            policies.overlap = overlap.into();
        }
        if let Some(window) = self.catch_up {
            policies.catch_up_window = window;
        }
        if let Some(pause) = self.pause_on_failure {
            policies.pause_on_failure = pause;
        }
        match self.remaining.as_deref() {
            None => {}
            Some(NONE) => state.remaining_actions = None,
            Some(text) => {
                let wrong = |_| CliError::usage(format!("--remaining {text}: a whole number, or `none`"));
                state.remaining_actions = Some(text.parse().map_err(wrong)?);
            }
        }
        Ok(())
    }
}

/// A time of the command line.
pub(super) fn moment(flag: &str, text: &str) -> Result<bosun_engine::Timestamp, CliError> {
    parse_moment(text).map_err(|why| CliError::usage(format!("{flag}: {why}")))
}

/// `field=value …`, or JSON; what is not said stays as in `base`.
fn calendar(flag: &str, text: &str, mut base: Calendar) -> Result<Calendar, CliError> {
    let wrong = |why: String| CliError::usage(format!("{flag} {text:?}: {why}"));
    if text.trim_start().starts_with('{') {
        let said: serde_json::Value = serde_json::from_str(text).map_err(|why| wrong(why.to_string()))?;
        let mut whole = serde_json::to_value(&base).map_err(|why| wrong(why.to_string()))?;
        for (key, value) in said.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        return serde_json::from_value(whole).map_err(|why| wrong(why.to_string()));
    }
    for pair in text.split_whitespace() {
        let (field, value) =
            pair.split_once('=').ok_or_else(|| wrong(format!("{pair:?} is not field=value, such as hour=9")))?;
        base.set(&field.replace('-', "_"), value).map_err(wrong)?;
    }
    Ok(base)
}

/// All that is wrong with a schedule, where something is.
pub(super) fn all_refused(problems: &[InvalidSchedule]) -> Result<(), CliError> {
    match problems {
        [] => Ok(()),
        [one] => Err(refused(one)),
        all => {
            let told: Vec<String> = all.iter().map(in_words).collect();
            Err(CliError::usage(format!("{} things are wrong: {}", all.len(), told.join("; "))))
        }
    }
}

pub(super) fn refused(why: &InvalidSchedule) -> CliError {
    CliError::usage(in_words(why))
}

/// The words of the command line for a place in a schedule.
fn in_words(why: &InvalidSchedule) -> String {
    let flag = match why.path.split(['[', '.']).nth(1) {
        Some("cron") => " (--cron)",
        Some("intervals") => " (--every, --offset)",
        Some("calendars") => " (--calendar)",
        Some("skip") => " (--skip)",
        Some("time_zone") => " (--time-zone)",
        Some("end_time") => " (--end)",
        Some("jitter") => " (--jitter)",
        Some("catch_up_window") => " (--catch-up)",
        Some("remaining_actions") => " (--remaining)",
        None if why.path == "spec" => " (--cron, --every, --calendar)",
        _ => "",
    };
    format!("{}{flag}: {}", why.path, why.problem)
}
