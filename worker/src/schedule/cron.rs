//! Cron: its text as calendars and intervals, as Temporal reads it.
//!
//! Five fields are minute, hour, day of the month, month, day of the week; six have the year at the end; seven have the
//! second at the beginning as well. `@yearly` `@monthly` `@weekly` `@daily` `@hourly` and `@every 10m/offset` are known, and so
//! are `CRON_TZ=Europe/Berlin` before it and a comment behind `#`.
//!
//! Invariant: a day of the month and a day of the week mean both, as in Temporal, and not either, as in some crons.

use super::calendar::Calendar;
use super::spec::Interval;
use super::text::parse_duration;

/// What a line of cron says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronLine {
    /// The times that it stands for.
    pub times: CronTimes,
    /// The zone that the line names itself.
    pub time_zone: Option<String>,
}

/// A line of cron as the rest of a spec says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CronTimes {
    /// Fields of a calendar.
    Calendar(Calendar),
    /// `@every`.
    Interval(Interval),
}

/// Reads one line. The error is for people.
pub fn parse(line: &str) -> Result<CronLine, String> {
    let (text, comment) = match line.split_once('#') {
        Some((text, comment)) => (text.trim(), Some(comment.trim().to_owned())),
        None => (line.trim(), None),
    };
    let (time_zone, text) = match text.strip_prefix("CRON_TZ=").or_else(|| text.strip_prefix("TZ=")) {
        Some(rest) => {
            let (zone, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            (Some(zone.to_owned()), rest.trim())
        }
        None => (None, text),
    };
    let times = match text.strip_prefix('@') {
        Some(word) => named(word)?,
        None => CronTimes::Calendar(Calendar { comment, ..fields(text)? }),
    };
    Ok(CronLine { times, time_zone })
}

/// What looks like something else than what it is read as: `mon#1` is, to other crons, the first Monday of the month, and here
/// a Monday with a comment. It is asked of what is new alone: what is stored keeps the meaning that it had.
pub fn misread(line: &str) -> Option<String> {
    let (before, after) = line.split_once('#')?;
    let word = before.rsplit(char::is_whitespace).next().filter(|word| !word.is_empty())?;
    let nth: u32 = after.chars().next()?.to_digit(10).filter(|nth| (1..=5).contains(nth))?;
    let (first, last) = (nth * 7 - 6, (nth * 7).min(31));
    Some(format!(
        "`{word}#{nth}` is not known: a day of the month and a day of the week mean both here, so write the days {first}-{last} \
         beside the weekday, such as `0 9 {first}-{last} * {word}`"
    ))
}

fn named(word: &str) -> Result<CronTimes, String> {
    if let Some(every) = word.strip_prefix("every") {
        let (every, offset) = every.split_once('/').unwrap_or((every, "0"));
        return Ok(CronTimes::Interval(Interval { every: parse_duration(every)?, offset: parse_duration(offset)? }));
    }
    let five = match word {
        "yearly" | "annually" => "0 0 1 1 *",
        "monthly" => "0 0 1 * *",
        "weekly" => "0 0 * * 0",
        "daily" | "midnight" => "0 0 * * *",
        "hourly" => "0 * * * *",
        other => {
            return Err(format!(
                "@{other} is unknown: @yearly, @monthly, @weekly, @daily, @hourly, or @every with a duration"
            ));
        }
    };
    Ok(CronTimes::Calendar(fields(five)?))
}

fn fields(text: &str) -> Result<Calendar, String> {
    let mut fields: Vec<&str> = text.split_whitespace().collect();
    let second = if fields.len() == 7 { fields.remove(0) } else { "0" };
    let (fields, year) = match fields.as_slice() {
        [five @ .., year] if five.len() == 5 => (five, *year),
        five => (five, "*"),
    };
    let [minute, hour, day_of_month, month, day_of_week] = fields else {
        let what = "minute hour day-of-month month day-of-week, then perhaps a year, and before all perhaps a second";
        return Err(format!("{text:?} has {} fields; expected 5 to 7: {what}", text.split_whitespace().count()));
    };
    let own = |field: &str| field.to_owned();
    Ok(Calendar {
        second: own(second),
        minute: own(minute),
        hour: own(hour),
        day_of_month: own(day_of_month),
        month: own(month),
        year: own(year),
        day_of_week: own(day_of_week),
        comment: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_nth_weekday_is_no_comment() {
        let why = misread("0 9 * * mon#1").unwrap();
        assert!(why.contains("`mon#1` is not known") && why.contains("`0 9 1-7 * mon`"), "{why}");
        assert!(misread("0 9 * * 5#3").unwrap().contains("15-21"));
        for good in ["0 9 * * mon # 1st", "0 9 1-7 * mon #1", "@daily #2", "0 9 * * mon", "0 9 * * mon#standup"] {
            assert_eq!(misread(good), None, "{good}");
        }
    }
}
