//! Calendars: times by their fields, each a list of values, ranges and steps; Temporal's calendar form.
//!
//! Invariant: a [`CalendarMask`] that exists has at least one value in every field, each within its bounds. All fields must
//! fit: a day of the month beside a day of the week means both, not either. It knows no time zone and no date.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The years a calendar can name, as Temporal's.
#[doc(hidden)]
pub const YEARS: std::ops::RangeInclusive<i16> = 2000..=2100;

/// A set of times by their fields. A field is `*`, a value, a range `1-5`, a step `*/10` or `9-17/2`, or several of these with
/// commas; months and days of the week have names too (`jan`, `mon-fri`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Calendar {
    /// 0 to 59.
    pub second: String,
    /// 0 to 59.
    pub minute: String,
    /// 0 to 23.
    pub hour: String,
    /// 1 to 31.
    pub day_of_month: String,
    /// 1 to 12, or names.
    pub month: String,
    /// Such as 2026.
    pub year: String,
    /// 0 (Sunday) to 6, or names.
    pub day_of_week: String,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// Midnight of every day.
impl Default for Calendar {
    fn default() -> Self {
        let (zero, any) = (|| "0".to_owned(), || "*".to_owned());
        Calendar {
            second: zero(),
            minute: zero(),
            hour: zero(),
            day_of_month: any(),
            month: any(),
            year: any(),
            day_of_week: any(),
            comment: None,
        }
    }
}

/// The bounds of a field, and the names of its values from its least.
struct FieldOf {
    name: &'static str,
    least: u16,
    most: u16,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const SECOND: FieldOf = FieldOf { name: "second", least: 0, most: 59, names: &[] };
const MINUTE: FieldOf = FieldOf { name: "minute", least: 0, most: 59, names: &[] };
const HOUR: FieldOf = FieldOf { name: "hour", least: 0, most: 23, names: &[] };
const DAY_OF_MONTH: FieldOf = FieldOf { name: "day_of_month", least: 1, most: 31, names: &[] };
const MONTH: FieldOf = FieldOf { name: "month", least: 1, most: 12, names: &MONTHS };
const YEAR: FieldOf = FieldOf { name: "year", least: *YEARS.start() as u16, most: *YEARS.end() as u16, names: &[] };
/// 7 is Sunday too.
const DAY_OF_WEEK: FieldOf = FieldOf { name: "day_of_week", least: 0, most: 6, names: &DAYS };

/// What is wrong with a calendar: the field, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidField {
    /// Which field.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

impl Calendar {
    /// The calendar as sets of numbers.
    pub fn mask(&self) -> Result<CalendarMask, InvalidField> {
        Ok(CalendarMask {
            seconds: read(&SECOND, &self.second)?,
            minutes: read(&MINUTE, &self.minute)?,
            hours: read(&HOUR, &self.hour)?,
            days: read(&DAY_OF_MONTH, &self.day_of_month)?,
            months: read(&MONTH, &self.month)?,
            years: read(&YEAR, &self.year)?,
            weekdays: read(&DAY_OF_WEEK, &self.day_of_week)?,
        })
    }

    /// Sets a field by its name, as a command line writes it.
    pub fn set(&mut self, field: &str, value: &str) -> Result<(), String> {
        let place = match field {
            "second" => &mut self.second,
            "minute" => &mut self.minute,
            "hour" => &mut self.hour,
            "day_of_month" => &mut self.day_of_month,
            "month" => &mut self.month,
            "year" => &mut self.year,
            "day_of_week" => &mut self.day_of_week,
            other => {
                return Err(format!(
                    "{other} is no field of a calendar: second, minute, hour, day_of_month, month, year, day_of_week"
                ));
            }
        };
        value.clone_into(place);
        Ok(())
    }
}

/// A calendar as sets: bit `n` stands for the least value of the field plus `n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CalendarMask {
    seconds: u128,
    minutes: u128,
    hours: u128,
    days: u128,
    months: u128,
    years: u128,
    weekdays: u128,
}

impl CalendarMask {
    /// Whether this second is one of its times.
    pub fn has_second(&self, second: i8) -> bool {
        has(self.seconds, &SECOND, second.into())
    }
    /// Whether this minute is one of its times.
    pub fn has_minute(&self, minute: i8) -> bool {
        has(self.minutes, &MINUTE, minute.into())
    }
    /// Whether this hour is one of its times.
    pub fn has_hour(&self, hour: i8) -> bool {
        has(self.hours, &HOUR, hour.into())
    }
    /// Whether this day of a month is one of its times.
    pub fn has_day(&self, day: i8) -> bool {
        has(self.days, &DAY_OF_MONTH, day.into())
    }
    /// Whether this month is one of its times.
    pub fn has_month(&self, month: i8) -> bool {
        has(self.months, &MONTH, month.into())
    }
    /// Whether this year is one of its times.
    pub fn has_year(&self, year: i16) -> bool {
        has(self.years, &YEAR, year)
    }
    /// Sunday is 0.
    pub fn has_weekday(&self, weekday: i8) -> bool {
        has(self.weekdays, &DAY_OF_WEEK, weekday.into())
    }
    /// Whether every second of an hour that it has is a time of it.
    pub fn has_whole_hours(&self) -> bool {
        self.seconds == all(&SECOND) && self.minutes == all(&MINUTE)
    }
    /// Whether every second of a day that it has is a time of it.
    pub fn has_whole_days(&self) -> bool {
        self.has_whole_hours() && self.hours == all(&HOUR)
    }
}

fn has(set: u128, of: &FieldOf, value: i16) -> bool {
    u16::try_from(value).is_ok_and(|value| (of.least..=of.most).contains(&value) && set >> (value - of.least) & 1 == 1)
}

fn all(of: &FieldOf) -> u128 {
    (1 << (of.most - of.least + 1)) - 1
}

/// Reads one field.
fn read(of: &FieldOf, text: &str) -> Result<u128, InvalidField> {
    let wrong = |problem: String| InvalidField { field: of.name, problem };
    let mut set = 0;
    for part in text.split(',').map(str::trim) {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => match step.trim().parse::<u16>() {
                Ok(step @ 1..) => (range.trim(), Some(step)),
                _ => return Err(wrong(format!("the step of {part:?} is no whole number from 1"))),
            },
            None => (part, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if matches!(range, "*" | "?") => (of.least, of.most),
            Some((from, to)) => (value(of, from).map_err(wrong)?, value(of, to).map_err(wrong)?),
            // As cron and Temporal: a step from one value goes on to the last.
            None => {
                let from = value(of, range).map_err(wrong)?;
                (from, if step.is_some() { of.most } else { from })
            }
        };
        // A range that ends with Sunday by its name.
        let to = if of.name == DAY_OF_WEEK.name && to == 0 && from > 0 { 7 } else { to };
        if from > to {
            return Err(wrong(format!("the range {range:?} ends before it begins")));
        }
        for number in (from..=to).step_by(step.unwrap_or(1).into()) {
            // Sunday may be written 7.
            let number = if of.name == DAY_OF_WEEK.name { number % 7 } else { number };
            set |= 1 << (number - of.least);
        }
    }
    Ok(set)
}

fn value(of: &FieldOf, text: &str) -> Result<u16, String> {
    let text = text.trim().to_ascii_lowercase();
    if let Some(at) = of.names.iter().position(|name| *name == text.get(..3).unwrap_or_default())
        && (text.len() == 3 || full_name(of.names[at]) == text)
    {
        return Ok(of.least + at as u16);
    }
    let most = if of.name == DAY_OF_WEEK.name { 7 } else { of.most };
    match text.parse::<u16>() {
        Ok(number) if (of.least..=most).contains(&number) => Ok(number),
        _ => {
            let names = if of.names.is_empty() { "" } else { ", or a name" };
            Err(format!("{text:?} is no value from {} to {most}{names}", of.least))
        }
    }
}

/// The whole name of a month or of a day of the week.
fn full_name(short: &str) -> String {
    let rest = match short {
        "jan" | "feb" => "uary",
        "mar" => "ch",
        "apr" => "il",
        "jun" => "e",
        "jul" => "y",
        "aug" => "ust",
        "sep" => "tember",
        "oct" => "ober",
        "nov" | "dec" => "ember",
        "sun" | "mon" | "fri" => "day",
        "tue" => "sday",
        "wed" => "nesday",
        "thu" => "rsday",
        "sat" => "urday",
        _ => "",
    };
    let short = if short == "feb" { "febr" } else { short };
    format!("{short}{rest}")
}
