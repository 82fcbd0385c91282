//! Quiet hours: a part of each day in which nothing is told, in a time zone.
//!
//! Invariant: what is not told within is told at their end, not dropped; a part that goes over midnight is one part. A day on
//! which the clock is put forward or back ends them when its clock shows the hour.

use bosun_engine::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZoneDatabase;
use serde::{Deserialize, Serialize};

/// From when to when, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuietHours {
    /// Minutes of the day.
    from: u16,
    to: u16,
    zone: String,
}

impl std::fmt::Display for QuietHours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let QuietHours { from, to, zone } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02} {zone}", from / 60, from % 60, to / 60, to % 60)
    }
}

const DAY: u16 = 24 * 60;

impl QuietHours {
    /// Reads `22:00-07:00`.
    ///
    /// # Errors
    /// What is wrong with it, or with the zone.
    pub fn read(text: &str, zone: Option<&str>) -> Result<QuietHours, String> {
        let wrong = || format!("{text:?} is not a part of a day like 22:00-07:00");
        let (from, to) = text.split_once('-').ok_or_else(wrong)?;
        let (from, to) = (minutes(from).ok_or_else(wrong)?, minutes(to).ok_or_else(wrong)?);
        if from == to {
            return Err(format!("{text:?} is a whole day: nothing would ever be told"));
        }
        let zone = zone.unwrap_or("UTC");
        TimeZoneDatabase::bundled().get(zone).map_err(|_| format!("there is no time zone {zone:?}"))?;
        Ok(QuietHours { from, to, zone: zone.to_owned() })
    }

    /// The first moment from `now` on that is not quiet. Where the zone is not known any more, that is now.
    pub fn open_at(&self, now: Timestamp) -> Timestamp {
        self.end_of(now).filter(|end| *end > now).unwrap_or(now)
    }

    /// When the quiet hours end that are now; nothing outside of them.
    fn end_of(&self, now: Timestamp) -> Option<Timestamp> {
        let zone = TimeZoneDatabase::bundled().get(&self.zone).ok()?;
        let local = jiff::Timestamp::from_microsecond(now.0).ok()?.to_zoned(zone.clone());
        let minute = u16::try_from(i32::from(local.hour()) * 60 + i32::from(local.minute())).ok()?;
        let over_midnight = self.from > self.to;
        let quiet = match over_midnight {
            true => minute >= self.from || minute < self.to,
            false => (self.from..self.to).contains(&minute),
        };
        let date = match over_midnight && minute >= self.from {
            true => local.date().tomorrow().ok()?,
            false => local.date(),
        };
        let at = Time::new(i8::try_from(self.to / 60).ok()?, i8::try_from(self.to % 60).ok()?, 0, 0).ok()?;
        let end = date.to_datetime(at).to_zoned(zone).ok()?.timestamp().as_microsecond();
        quiet.then_some(Timestamp(end))
    }
}

fn minutes(text: &str) -> Option<u16> {
    let (hour, minute) = text.trim().split_once(':')?;
    let number = |text: &str| (text.len() == 2).then(|| text.parse::<u16>().ok()).flatten();
    let (hour, minute) = (number(hour)?, number(minute)?);
    (hour < 24 && minute < 60).then_some((hour * 60 + minute) % DAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_microsecond())
    }

    #[test]
    fn what_is_quiet_is_told_at_the_end_of_it() {
        let night = QuietHours::read("22:00-07:00", Some("Europe/Berlin")).unwrap();
        let noon = QuietHours::read("12:00-13:30", None).unwrap();
        for (hours, now, open) in [
            (&night, "2026-01-15T20:59:59Z", "2026-01-15T20:59:59Z"),
            (&night, "2026-01-15T21:00:00Z", "2026-01-16T06:00:00Z"),
            (&night, "2026-01-16T02:00:00Z", "2026-01-16T06:00:00Z"),
            (&night, "2026-01-16T06:00:00Z", "2026-01-16T06:00:00Z"),
            // The clock is put forward, and back.
            (&night, "2026-03-28T23:00:00Z", "2026-03-29T05:00:00Z"),
            (&night, "2026-10-24T23:00:00Z", "2026-10-25T06:00:00Z"),
            // A leap day, and the end of a year.
            (&night, "2028-02-28T23:00:00Z", "2028-02-29T06:00:00Z"),
            (&night, "2026-12-31T22:30:00Z", "2027-01-01T06:00:00Z"),
            (&noon, "2026-01-15T12:00:00Z", "2026-01-15T13:30:00Z"),
            (&noon, "2026-01-15T13:30:00Z", "2026-01-15T13:30:00Z"),
            (&noon, "2026-01-15T11:59:59Z", "2026-01-15T11:59:59Z"),
        ] {
            assert_eq!(hours.open_at(at(now)), at(open), "{now}");
        }
    }

    /// Over a whole year: what was put off is told at an hour that is not quiet, within a day.
    #[test]
    fn no_minute_of_a_year_is_put_off_into_quiet_hours() {
        let zones = ["Europe/Berlin", "America/New_York", "Pacific/Apia", "Asia/Kathmandu"];
        for (zone, text) in zones.iter().flat_map(|zone| ["22:00-07:00", "01:30-02:30"].map(|text| (zone, text))) {
            let hours = QuietHours::read(text, Some(zone)).unwrap();
            let begin = at("2026-01-01T00:00:00Z");
            for minute in (0..365 * 24 * 60).step_by(17) {
                let now = begin.plus(std::time::Duration::from_secs(minute * 60));
                let open = hours.open_at(now);
                assert!(open >= now && open.since(now).as_secs() <= 86_400, "{zone} {text} {now}: {open}");
                assert_eq!(hours.open_at(open), open, "{zone} {text} {now}: {open} is quiet");
            }
        }
    }

    #[test]
    fn what_is_no_part_of_a_day_is_refused() {
        for (text, zone, says) in [
            ("22-07", None, "not a part of a day"),
            ("22:00", None, "not a part of a day"),
            ("24:00-07:00", None, "not a part of a day"),
            ("7:00-8:00", None, "not a part of a day"),
            ("07:00-07:00", None, "a whole day"),
            ("22:00-07:00", Some("Berlin"), "no time zone"),
        ] {
            let why = QuietHours::read(text, zone).unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
        }
    }
}
