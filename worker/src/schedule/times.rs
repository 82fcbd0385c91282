//! Times: which nominal times a spec has, when each is due, and what was missed.
//!
//! Local times follow Temporal: one that does not exist (the hour that is left out in spring) is no time of the spec, so what
//! is to happen every day stands outside of that hour, or in UTC; one that comes twice in autumn is a time once, at its
//! first coming. An interval counts real time and knows neither.
//!
//! Invariant: times come in order, each strictly later than the one before, and the due times in the same order. The zones
//! are those that were built into this program: the answer depends on spec, id and the instants given, and on nothing else.

use bosun_engine::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use serde::{Deserialize, Serialize};

use super::calendar::{CalendarMask, YEARS};
use super::cron::{self, CronTimes};
use super::spec::{InvalidSchedule, ScheduleSpec};
use super::text;

const SECOND: i64 = 1_000_000;
/// How often `skip` may take the next time away before there is none: more than the hours of a hundred years.
const SKIPS_MAX: usize = 1_000_000;
/// How many missed times are counted one by one; what is older than those is missed and not counted.
const MISSED_MAX: u64 = 10_000;

/// A spec, ready to be asked.
#[derive(Debug, Clone)]
pub struct Times {
    id: String,
    zoned: Vec<(CalendarMask, TimeZone)>,
    intervals: Vec<(i64, i64)>,
    skip: Vec<CalendarMask>,
    zone: TimeZone,
    start: Option<i64>,
    end: i64,
    jitter: i64,
}

/// A time of a spec, and when it is due: later by its jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nominal {
    #[serde(with = "text::at")]
    pub at: Timestamp,
    #[serde(with = "text::at")]
    pub due: Timestamp,
}

/// What a schedule finds when it looks at the clock. Recorded, so that replay needs no time zone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LookAhead {
    /// Later than the catch-up window.
    pub missed: u64,
    pub due: Vec<Nominal>,
    /// All times up to here are dealt with.
    pub through: Timestamp,
    /// The first that is not due, or is not among `due` for want of room.
    pub next: Option<Nominal>,
    /// The spec cannot be asked: its zone is not known to this program.
    pub problem: Option<String>,
}

impl Times {
    /// Reads a spec. Jitter depends on the id of the schedule. What is wrong is the first of [`Times::read`].
    pub fn of(spec: &ScheduleSpec, id: &str) -> Result<Times, InvalidSchedule> {
        Times::read(spec, id).map_err(|mut wrong| wrong.swap_remove(0))
    }

    /// As [`Times::of`], with all that is wrong, each part by itself; at least one where it cannot be read.
    pub(super) fn read(spec: &ScheduleSpec, id: &str) -> Result<Times, Vec<InvalidSchedule>> {
        let (mut zoned, mut intervals, mut skip) = (Vec::new(), Vec::new(), Vec::new());
        let mut wrong = Vec::new();
        let named = spec.time_zone.as_deref().map_or(Ok(TimeZone::UTC), |name| zone(name, "spec.time_zone"));
        let default = named.as_ref().map_or(TimeZone::UTC, Clone::clone);
        wrong.extend(named.err());
        for (n, line) in spec.cron.iter().enumerate() {
            match cron_times(line, &format!("spec.cron[{n}]"), &default) {
                Ok(CronRead::Zoned(mask, zone)) => zoned.push((mask, zone)),
                Ok(CronRead::Interval(numbers)) => intervals.push(numbers),
                Err(why) => wrong.push(why),
            }
        }
        let mask = |list: &str, n: usize, calendar: &super::calendar::Calendar| {
            let at = |field| format!("spec.{list}[{n}].{field}");
            calendar.mask().map_err(|why| InvalidSchedule::at(at(why.field), why.problem))
        };
        for (n, calendar) in spec.calendars.iter().enumerate() {
            match mask("calendars", n, calendar) {
                Ok(mask) => zoned.push((mask, default.clone())),
                Err(why) => wrong.push(why),
            }
        }
        for (n, interval) in spec.intervals.iter().enumerate() {
            match interval.numbers() {
                Ok(numbers) => intervals.push(numbers),
                Err(why) => wrong.push(InvalidSchedule::at(format!("spec.intervals[{n}]"), why)),
            }
        }
        for (n, calendar) in spec.skip.iter().enumerate() {
            match mask("skip", n, calendar) {
                Ok(mask) => skip.push(mask),
                Err(why) => wrong.push(why),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(Times {
            id: id.to_owned(),
            zoned,
            intervals,
            skip,
            zone: default,
            start: spec.start_time.map(|at| at.0),
            end: spec.end_time.map_or(i64::MAX, |at| at.0),
            jitter: spec.jitter.map_or(0, |of| i64::try_from(of.as_micros()).unwrap_or(i64::MAX)),
        })
    }

    /// The first time that is strictly after `after`.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let mut after = self.start.map_or(after.0, |start| after.0.max(start.saturating_sub(1))).max(0);
        for _ in 0..SKIPS_MAX {
            let calendars = self.zoned.iter().filter_map(|(mask, zone)| next_local(mask, zone, after));
            let intervals = self.intervals.iter().map(|(every, offset)| {
                // From whole seconds: the result is later than they are, and so later than `after`.
                ((after - offset).div_euclid(*every) + 1).saturating_mul(*every).saturating_add(*offset)
            });
            let found = calendars.chain(intervals).min().filter(|at| *at <= self.end)?;
            match self.skipped_until(found) {
                None => return Some(Timestamp(found)),
                // Calendars end there: what they skip to the end is skipped for good.
                Some(until) if self.is_beyond_calendars(until) => return None,
                Some(until) => after = until,
            }
        }
        None
    }

    /// When a time is due: its jitter never reaches the next one.
    pub fn due(&self, nominal: Timestamp) -> Nominal {
        if self.jitter == 0 {
            return Nominal { at: nominal, due: nominal };
        }
        let gap = self.next(nominal).map_or(i64::MAX, |next| next.0 - nominal.0);
        let most = self.jitter.min(gap.saturating_sub(1)).max(0);
        let due = nominal.0.saturating_add(part_of(&self.id, nominal, most));
        Nominal { at: nominal, due: Timestamp(due) }
    }

    /// The times in `(after, to]`, in order, at most `limit`; and whether there are more.
    pub fn within(&self, after: Timestamp, to: Timestamp, limit: usize) -> (Vec<Timestamp>, bool) {
        let (mut found, mut at) = (Vec::new(), after);
        while let Some(next) = self.next(at).filter(|next| *next <= to) {
            if found.len() == limit {
                return (found, true);
            }
            found.push(next);
            at = next;
        }
        (found, false)
    }

    /// The next `count` times.
    pub fn following(&self, after: Timestamp, count: usize) -> Vec<Timestamp> {
        self.within(after, Timestamp::MAX, count).0
    }

    /// What has become due since `cursor`: what is older than `window` is missed, of the rest at most `room` are given.
    pub fn look_ahead(&self, cursor: Timestamp, now: Timestamp, window: std::time::Duration, room: usize) -> LookAhead {
        let horizon = now.minus(window);
        let mut seen = LookAhead { through: cursor, ..LookAhead::default() };
        while let Some(at) = self.next(seen.through) {
            let nominal = self.due(at);
            if nominal.due > now || seen.due.len() == room {
                seen.next = Some(nominal);
                break;
            }
            seen.through = at;
            if nominal.due >= horizon {
                seen.due.push(nominal);
                continue;
            }
            seen.missed += 1;
            if seen.missed >= MISSED_MAX {
                // Everything before this is missed as well.
                seen.through = seen.through.max(Timestamp(horizon.0.saturating_sub(self.jitter).saturating_sub(1)));
            }
        }
        seen
    }

    fn is_beyond_calendars(&self, until: i64) -> bool {
        let next = jiff::Timestamp::from_microsecond(until.saturating_add(1));
        next.map_or(true, |next| next.to_zoned(self.zone.clone()).year() > *YEARS.end())
    }

    /// Where to go on looking if `at` is left out: it, or the end of the hour or the day that is left out in whole.
    fn skipped_until(&self, at: i64) -> Option<i64> {
        if self.skip.is_empty() {
            return None;
        }
        let local = jiff::Timestamp::from_microsecond(at).ok()?.to_zoned(self.zone.clone());
        let (date, time) = (local.date(), local.time());
        let mask = self.skip.iter().find(|mask| fits_date(mask, date) && fits_time(mask, time))?;
        let tomorrow = || Some(date.tomorrow().ok()?.to_zoned(self.zone.clone()).ok()?.timestamp().as_microsecond());
        if mask.has_whole_days()
            && let Some(tomorrow) = tomorrow()
        {
            return Some(at.max(tomorrow - 1));
        }
        let into_hour = i64::from(time.minute()) * 60 + i64::from(time.second());
        Some(if mask.has_whole_hours() { at + (3_600 - into_hour) * SECOND - 1 } else { at })
    }
}

/// What a line of cron says.
enum CronRead {
    Zoned(CalendarMask, TimeZone),
    Interval((i64, i64)),
}

fn cron_times(line: &str, path: &str, default: &TimeZone) -> Result<CronRead, InvalidSchedule> {
    let wrong = |why: String| InvalidSchedule::at(path, why);
    let read = cron::parse(line).map_err(wrong)?;
    let own = read.time_zone.as_deref().map(|name| zone(name, path)).transpose()?;
    match read.times {
        CronTimes::Calendar(calendar) => {
            let mask = calendar.mask().map_err(|why| InvalidSchedule::at(path, why))?;
            Ok(CronRead::Zoned(mask, own.unwrap_or_else(|| default.clone())))
        }
        CronTimes::Interval(interval) => Ok(CronRead::Interval(interval.numbers().map_err(wrong)?)),
    }
}

/// A zone of those that are built in.
fn zone(name: &str, path: &str) -> Result<TimeZone, InvalidSchedule> {
    if matches!(name, "UTC" | "Etc/UTC" | "Z") {
        return Ok(TimeZone::UTC);
    }
    TimeZoneDatabase::bundled()
        .get(name)
        .map_err(|_| InvalidSchedule::at(path, format!("{name:?} is no time zone; one is `Europe/Berlin`, or `UTC`")))
}

fn fits_date(mask: &CalendarMask, date: Date) -> bool {
    mask.has_year(date.year())
        && mask.has_month(date.month())
        && mask.has_day(date.day())
        && mask.has_weekday(date.weekday().to_sunday_zero_offset())
}

fn fits_time(mask: &CalendarMask, time: Time) -> bool {
    mask.has_hour(time.hour()) && mask.has_minute(time.minute()) && mask.has_second(time.second())
}

/// The first time of a calendar after `after`: by dates, then hours, minutes and seconds, each left out in whole where
/// nothing in it is later.
fn next_local(mask: &CalendarMask, zone: &TimeZone, after: i64) -> Option<i64> {
    let local = jiff::Timestamp::from_microsecond(after).ok()?.to_zoned(zone.clone());
    // Where a clock was set back, the local time of `after` is later than others that are still to come.
    let mut date = local.date().yesterday().ok()?;
    if date.year() < *YEARS.start() {
        date = Date::new(*YEARS.start(), 1, 1).ok()?;
    }
    while date.year() <= *YEARS.end() {
        if !mask.has_year(date.year()) {
            date = Date::new(date.year() + 1, 1, 1).ok()?;
            continue;
        }
        if !mask.has_month(date.month()) {
            date = date.last_of_month().tomorrow().ok()?;
            continue;
        }
        if fits_date(mask, date)
            && let Some(found) = next_on(mask, zone, date, after)
        {
            return Some(found);
        }
        date = date.tomorrow().ok()?;
    }
    None
}

/// The first time of a date after `after`.
fn next_on(mask: &CalendarMask, zone: &TimeZone, date: Date, after: i64) -> Option<i64> {
    // No time up to this one is later than this one. One that does not exist counts as later here, and is left out below.
    let over = |hour, minute, second| {
        let latest = zone.to_ambiguous_timestamp(date.at(hour, minute, second, 0)).compatible();
        latest.is_ok_and(|latest| latest.as_microsecond() <= after)
    };
    for hour in (0..24).filter(|hour| mask.has_hour(*hour)) {
        if over(hour, 59, 59) {
            continue;
        }
        for minute in (0..60).filter(|minute| mask.has_minute(*minute)) {
            if over(hour, minute, 59) {
                continue;
            }
            for second in (0..60).filter(|second| mask.has_second(*second)) {
                let at = date.at(hour, minute, second, 0);
                let offset = match zone.to_ambiguous_timestamp(at).offset() {
                    AmbiguousOffset::Unambiguous { offset } => offset,
                    AmbiguousOffset::Gap { .. } => continue,
                    AmbiguousOffset::Fold { before, .. } => before,
                };
                if let Ok(at) = offset.to_timestamp(at)
                    && at.as_microsecond() > after
                {
                    return Some(at.as_microsecond());
                }
            }
        }
    }
    None
}

/// From 0 to `most`, by the id and the time alone.
fn part_of(id: &str, nominal: Timestamp, most: i64) -> i64 {
    if most == 0 {
        return 0;
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"bosun schedule jitter").update(id.as_bytes()).update(&nominal.0.to_be_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    let share = (i128::from(u64::from_be_bytes(bytes)) * i128::from(most)) >> 64;
    i64::try_from(share).unwrap_or(0)
}
