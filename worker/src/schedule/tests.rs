//! Schedules from their text to their times: tables worked out by hand, and a search against brute force.

use std::time::Duration;

use bosun_engine::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::calendar::Calendar;
use super::cron;
use super::policy::{HowToEnd, Overlap, OverlapVerdict, decide};
use super::spec::{Interval, Schedule, ScheduleSpec};
use super::text::{duration, moment, parse_duration, parse_moment};
use super::times::Times;
use crate::scene::kit::cases;

fn spec(value: Value) -> ScheduleSpec {
    serde_json::from_value(value).unwrap()
}

fn cron_in(zone: &str, line: &str) -> ScheduleSpec {
    spec(json!({ "cron": [line], "time_zone": zone }))
}

/// The next times after an instant are these.
#[track_caller]
fn check(spec: &ScheduleSpec, after: &str, expected: &[&str]) {
    let times = Times::of(spec, "s").unwrap();
    let found: Vec<String> =
        times.following(parse_moment(after).unwrap(), expected.len()).into_iter().map(moment).collect();
    assert_eq!(found, expected, "{spec:?} after {after}");
}

/// Germany: on 2026-03-29 02:00 becomes 03:00, on 2026-10-25 03:00 becomes 02:00.
#[test]
fn local_times_in_berlin_follow_its_clocks() {
    let daily = cron_in("Europe/Berlin", "30 2 * * *");
    // 02:30 does not exist on the 29th.
    check(&daily, "2026-03-27T12:00:00Z", &["2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"]);
    // 02:30 comes twice on the 25th, at 00:30 and at 01:30 UTC: the first is meant.
    check(&daily, "2026-10-24T12:00:00Z", &["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    check(&daily, "2026-10-25T00:30:00Z", &["2026-10-26T01:30:00Z"]);
    // Between the two comings.
    check(&daily, "2026-10-25T00:45:00Z", &["2026-10-26T01:30:00Z"]);
    let hourly = cron_in("Europe/Berlin", "0 * * * *");
    check(&hourly, "2026-03-28T23:59:59Z", &["2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"]);
    // 02:00 for the second time, at 01:00 UTC, is no time.
    check(&hourly, "2026-10-24T22:30:00Z", &["2026-10-24T23:00:00Z", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"]);
    let nine = cron_in("Europe/Berlin", "0 9 * * mon-fri");
    check(&nine, "2026-03-27T09:00:00Z", &["2026-03-30T07:00:00Z", "2026-03-31T07:00:00Z"]);
}

/// New York: 2026-03-08 02:00 becomes 03:00, 2026-11-01 02:00 becomes 01:00.
#[test]
fn local_times_in_new_york_follow_its_clocks() {
    let daily = cron_in("America/New_York", "15 2 * * *");
    check(&daily, "2026-03-07T00:00:00Z", &["2026-03-07T07:15:00Z", "2026-03-09T06:15:00Z"]);
    let night = cron_in("America/New_York", "30 1 * * *");
    check(&night, "2026-10-31T12:00:00Z", &["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]);
}

/// Lord Howe moves its clocks by half an hour: 2026-04-05 02:00 becomes 01:30, 2026-10-04 02:00 becomes 02:30. Chatham is
/// 12:45 ahead; Auckland's spring is in September.
#[test]
fn local_times_in_the_south_follow_their_clocks() {
    let quarter = cron_in("Australia/Lord_Howe", "45 1,2 * * *");
    // +11 until the change, +10:30 after it: 01:45 twice, at 14:45 and 15:15 UTC.
    check(&quarter, "2026-04-04T14:00:00Z", &["2026-04-04T14:45:00Z", "2026-04-04T16:15:00Z", "2026-04-05T15:15:00Z"]);
    let ten = cron_in("Australia/Lord_Howe", "10,40 2 * * *");
    // 02:10 does not exist on October 4th; 02:40 does.
    check(&ten, "2026-10-03T00:00:00Z", &["2026-10-03T15:40:00Z", "2026-10-04T15:10:00Z", "2026-10-04T15:40:00Z"]);
    let auckland = cron_in("Pacific/Auckland", "30 2 * * *");
    check(&auckland, "2026-09-25T12:00:00Z", &["2026-09-25T14:30:00Z", "2026-09-27T13:30:00Z"]);
}

/// Samoa left out a whole day, 2011-12-30.
#[test]
fn a_day_that_a_place_left_out_has_no_times() {
    let noon = cron_in("Pacific/Apia", "0 12 * * *");
    check(&noon, "2011-12-29T00:00:00Z", &["2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z"]);
    let skipping = spec(json!({ "cron": ["0 12 30 12 *"], "time_zone": "Pacific/Apia" }));
    check(&skipping, "2011-12-01T00:00:00Z", &["2012-12-29T22:00:00Z"]);
}

#[test]
fn months_have_the_days_that_they_have() {
    let utc = |line| cron_in("UTC", line);
    check(&utc("0 0 31 * *"), "2026-01-31T00:00:00Z", &["2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z"]);
    check(&utc("0 0 29 2 *"), "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]);
    // 2100 is no leap year, and the last there is.
    check(&utc("0 0 29 2 *"), "2096-02-28T00:00:00Z", &["2096-02-29T00:00:00Z"]);
    assert_eq!(Times::of(&utc("0 0 29 2 *"), "s").unwrap().next(parse_moment("2096-02-29T00:00:00Z").unwrap()), None);
    check(&utc("@monthly"), "2026-12-31T23:59:59.999999Z", &["2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z"]);
    check(&utc("0 12 * * 7"), "2026-11-24T00:00:00Z", &["2026-11-29T12:00:00Z", "2026-12-06T12:00:00Z"]);
    // Both must fit, as in Temporal: Fridays that are a 13th.
    check(&utc("0 0 13 * fri"), "2026-01-01T00:00:00Z", &["2026-02-13T00:00:00Z", "2026-03-13T00:00:00Z"]);
    check(&utc("0 0 1 1 * 2030"), "2026-01-01T00:00:00Z", &["2030-01-01T00:00:00Z"]);
    check(&utc("15 30 6 1 1 * *"), "2026-01-01T06:30:15Z", &["2027-01-01T06:30:15Z"]);
}

#[test]
fn intervals_count_real_time() {
    let every = spec(json!({ "intervals": [{ "every": "1h", "offset": "15m" }], "time_zone": "Europe/Berlin" }));
    check(&every, "2026-10-25T00:15:00Z", &["2026-10-25T01:15:00Z", "2026-10-25T02:15:00Z"]);
    check(&every, "2026-10-25T00:14:59.999999Z", &["2026-10-25T00:15:00Z"]);
    let days = spec(json!({ "cron": ["@every 36h/6h"] }));
    check(&days, "1970-01-01T00:00:00Z", &["1970-01-01T06:00:00Z", "1970-01-02T18:00:00Z"]);
}

#[test]
fn parts_add_up_and_skip_takes_away() {
    let both = spec(json!({ "cron": ["0 9 * * *", "CRON_TZ=America/New_York 0 9 * * * # their morning"],
        "skip": [{ "day_of_week": "sat,sun", "hour": "*", "minute": "*", "second": "*" },
            { "day_of_month": "25", "month": "dec", "hour": "*", "minute": "*", "second": "*" }],
        "time_zone": "Europe/Berlin", "start_time": "2026-12-24T12:00:00Z", "end_time": "2026-12-28T14:00:00Z" }));
    check(&both, "2026-01-01T00:00:00Z", &["2026-12-24T14:00:00Z", "2026-12-28T08:00:00Z", "2026-12-28T14:00:00Z"]);
    assert_eq!(Times::of(&both, "s").unwrap().next(parse_moment("2026-12-28T14:00:00Z").unwrap()), None);
    // Every second, but for one day and for the first half of each hour.
    let seconds = spec(json!({ "cron": ["* * * * * * *"], "skip": [
        { "day_of_month": "2", "hour": "*", "minute": "*", "second": "*" }, { "hour": "*", "minute": "0-29", "second": "*" }] }));
    check(&seconds, "2026-01-01T23:59:58Z", &["2026-01-01T23:59:59Z", "2026-01-03T00:30:00Z"]);
}

#[test]
fn jitter_is_the_same_every_time_and_never_reaches_the_next() {
    let jittered = spec(json!({ "cron": ["* * * * *"], "jitter": "10m" }));
    let (one, other) = (Times::of(&jittered, "a").unwrap(), Times::of(&jittered, "b").unwrap());
    let start = parse_moment("2026-01-01T00:00:00Z").unwrap();
    let dues = |times: &Times| -> Vec<i64> {
        times.following(start, 200).into_iter().map(|at| times.due(at).due.0 - at.0).collect()
    };
    assert_eq!(dues(&one), dues(&one.clone()));
    assert_ne!(dues(&one), dues(&other), "it depends on the schedule");
    assert!(dues(&one).iter().all(|late| (0..60_000_000).contains(late)));
    let seconds = dues(&one).iter().map(|late| late / 1_000_000).collect::<std::collections::BTreeSet<_>>();
    assert!(seconds.len() > 30, "it spreads: {seconds:?}");
}

#[test]
fn what_was_missed_is_counted() {
    let minutes = spec(json!({ "cron": ["* * * * *"] }));
    let times = Times::of(&minutes, "s").unwrap();
    let (from, now) = (parse_moment("2026-01-01T00:00:00Z").unwrap(), parse_moment("2026-01-01T01:00:30Z").unwrap());
    let seen = times.look_ahead(from, now, Duration::from_secs(600), 100);
    assert_eq!((seen.missed, seen.due.len()), (50, 10));
    assert_eq!(moment(seen.due[0].at), "2026-01-01T00:51:00Z");
    assert_eq!(moment(seen.next.unwrap().at), "2026-01-01T01:01:00Z");
    let seen = times.look_ahead(from, now, Duration::from_secs(600), 4);
    assert_eq!((seen.missed, seen.due.len(), moment(seen.through)), (50, 4, "2026-01-01T00:54:00Z".into()));
    assert_eq!(moment(seen.next.unwrap().at), "2026-01-01T00:55:00Z", "the rest is for the next turn");
    // A clock that was set back has nothing new.
    let seen = times.look_ahead(now, from, Duration::from_secs(600), 4);
    assert_eq!((seen.missed, seen.due.len()), (0, 0));
}

/// One part hides nothing of another: whoever mends what is told is not sent back a second time.
#[test]
fn all_that_is_wrong_is_named_at_once() {
    let whole = json!({
        "spec": { "cron": ["0 24 * * *", "@daily", "0 0 * *", "0 9 * * mon#1"], "calendars": [{ "month": "dev" }],
            "intervals": [{ "every": "100ms" }], "skip": [{ "hour": "25" }], "time_zone": "Mars",
            "start_time": "2026-01-02T00:00:00Z", "end_time": "2026-01-01T00:00:00Z" },
        "action": { "workflow_type": "bosun.batch", "workflow_id": "t", "task_queue": "" },
        "policies": { "catch_up_window": "1s" },
    });
    let schedule: Schedule = serde_json::from_value(whole).unwrap();
    let all: Vec<String> = schedule.problems("s").into_iter().map(|one| one.path).collect();
    assert_eq!(
        all,
        [
            "spec.end_time",
            "spec.cron[3]",
            "spec.time_zone",
            "spec.cron[0]",
            "spec.cron[2]",
            "spec.calendars[0].month",
            "spec.intervals[0]",
            "spec.skip[0].hour",
            "action.task_queue",
            "action.workflow_type",
            "policies.catch_up_window",
        ]
    );
    assert_eq!(schedule.check("s").unwrap_err().path, all[0], "the first of them");
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let refused = |spec: Value| {
        let whole = json!({ "spec": spec, "action": { "workflow_type": "t", "workflow_id": "t" } });
        serde_json::from_value::<Schedule>(whole).unwrap().check("s").unwrap_err().to_string()
    };
    for (spec, expected) in [
        (json!({}), "spec: it names no time: give cron, calendars or intervals"),
        (json!({ "cron": ["0 0 30 2 *"] }), "spec: it has no time: no date fits, or `skip` leaves none"),
        (
            json!({ "cron": ["@daily", "0 0 * *"] }),
            "spec.cron[1]: \"0 0 * *\" has 4 fields; expected 5 to 7: minute hour day-of-month month day-of-week, then perhaps a year, and before all perhaps a second",
        ),
        (json!({ "cron": ["0 24 * * *"] }), "spec.cron[0]: hour: \"24\" is no value from 0 to 23"),
        (
            json!({ "cron": ["@dayly"] }),
            "spec.cron[0]: @dayly is unknown: @yearly, @monthly, @weekly, @daily, @hourly, or @every with a duration",
        ),
        (
            json!({ "calendars": [{ "month": "dev" }] }),
            "spec.calendars[0].month: \"dev\" is no value from 1 to 12, or a name",
        ),
        (
            json!({ "calendars": [{ "hour": "9-5" }] }),
            "spec.calendars[0].hour: the range \"9-5\" ends before it begins",
        ),
        (
            json!({ "calendars": [{ "minute": "*/0" }] }),
            "spec.calendars[0].minute: the step of \"*/0\" is no whole number from 1",
        ),
        (
            json!({ "intervals": [{ "every": "500ms" }] }),
            "spec.intervals[0]: `every` is whole seconds, from 1s to ten years",
        ),
        (
            json!({ "intervals": [{ "every": "1h", "offset": "1h" }] }),
            "spec.intervals[0]: `offset` is whole seconds, and less than `every`",
        ),
        (
            json!({ "cron": ["@daily"], "time_zone": "Europe/Belrin" }),
            "spec.time_zone: \"Europe/Belrin\" is no time zone; one is `Europe/Berlin`, or `UTC`",
        ),
        (
            json!({ "cron": ["@daily"], "start_time": "2026-01-02T00:00:00Z", "end_time": "2026-01-01T00:00:00Z" }),
            "spec.end_time: it is before start_time",
        ),
        (
            json!({ "cron": ["* * * * *"], "skip": [{ "hour": "*", "minute": "*", "second": "*" }] }),
            "spec: it has no time: no date fits, or `skip` leaves none",
        ),
        // Calendars end with the year 2100, and what they leave out is left out for good.
        (
            json!({ "intervals": [{ "every": "5m" }], "skip": [{ "hour": "0-23", "minute": "*", "second": "*" }] }),
            "spec: it has no time: no date fits, or `skip` leaves none",
        ),
    ] {
        assert_eq!(refused(spec), expected);
    }
    let unknown = serde_json::from_value::<ScheduleSpec>(json!({ "crons": [] })).unwrap_err().to_string();
    assert!(unknown.contains("unknown field `crons`"), "{unknown}");
}

#[test]
fn names_of_days_and_months_are_read() {
    let mask = |field: &str, text: &str| {
        let mut calendar = Calendar::default();
        calendar.set(field, text).unwrap();
        calendar.mask()
    };
    let days = |text| (0..7).filter(|day| mask("day_of_week", text).unwrap().has_weekday(*day)).collect::<Vec<_>>();
    assert_eq!(days("Mon-Fri"), [1, 2, 3, 4, 5]);
    assert_eq!(days("friday-sunday"), [0, 5, 6]);
    assert_eq!(days("0,7"), [0]);
    let months = |text| (1..=12).filter(|month| mask("month", text).unwrap().has_month(*month)).collect::<Vec<_>>();
    assert_eq!(
        months("february,JUN-aug,*/6"),
        [1, 2, 6, 7, 8, 7].into_iter().collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    );
    assert_eq!(months("9/2"), [9, 11]);
    assert!(mask("month", "janua").is_err());
    assert!(Calendar::default().set("hours", "1").unwrap_err().contains("second, minute, hour"));
}

#[test]
fn times_and_durations_are_read_as_they_are_written() {
    for text in ["0s", "1ms", "1s", "1m 30s", "1h", "1d 2h", "365d"] {
        assert_eq!(duration(parse_duration(text).unwrap()), text);
    }
    assert_eq!(parse_duration("1w 1d").map(duration), Ok("8d".to_owned()));
    assert_eq!(parse_duration("1h30m").unwrap(), Duration::from_secs(5_400));
    for wrong in ["", "10", "5 minutes", "-1s", "1y", "99999999999999w"] {
        assert!(parse_duration(wrong).is_err(), "{wrong}");
    }
    assert_eq!(moment(parse_moment("2026-03-29T03:00:00.5+02:00").unwrap()), "2026-03-29T01:00:00.5Z");
    assert!(parse_moment("tomorrow").is_err());
}

/// Every pair of a policy and what is under way.
#[test]
fn the_table_of_overlap() {
    use OverlapVerdict::*;
    let table =
        |overlap| [(0, 0), (1, 0), (1, 1), (1, 1_000)].map(|(running, waiting)| decide(overlap, running, waiting));
    assert_eq!(table(Overlap::Skip), [Start, Skip, Skip, Skip]);
    assert_eq!(table(Overlap::BufferOne), [Start, Wait, Skip, Skip]);
    assert_eq!(table(Overlap::BufferAll), [Start, Wait, Wait, Drop]);
    let (cancel, end) = (WaitAlone(HowToEnd::Cancel), WaitAlone(HowToEnd::Terminate));
    assert_eq!(table(Overlap::CancelOther), [Start, cancel, cancel, cancel]);
    assert_eq!(table(Overlap::TerminateOther), [Start, end, end, end]);
    assert_eq!(table(Overlap::AllowAll), [Start; 4]);
}

/// Whether a local time is in a calendar's text, worked out without masks.
fn fits(text: &str, value: i64, names_seven: bool) -> bool {
    text.split(',').any(|part| {
        let (range, step) = part.split_once('/').map_or((part, 1), |(range, step)| (range, step.parse().unwrap()));
        let (from, to): (i64, i64) = match range.split_once('-') {
            Some((from, to)) => (from.parse().unwrap(), to.parse().unwrap()),
            None if range == "*" => (0, i64::MAX),
            None => (range.parse().unwrap(), if part.contains('/') { i64::MAX } else { range.parse().unwrap() }),
        };
        let hits = |value: i64| (from..=to).contains(&value) && (value - from) % step == 0;
        hits(value) || names_seven && value == 0 && hits(7) && to != i64::MAX
    })
}

fn field(most: i64) -> impl Strategy<Value = String> {
    let value = move || 0..=most;
    prop_oneof![
        4 => Just("*".to_owned()),
        2 => value().prop_map(|one| one.to_string()),
        1 => (value(), value()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (value(), value(), 1..7_i64).prop_map(|(a, b, step)| format!("{}-{}/{step}", a.min(b), a.max(b))),
        1 => (1..9_i64).prop_map(|step| format!("*/{step}")),
        1 => proptest::collection::vec(value().prop_map(|one| one.to_string()), 1..4).prop_map(|all| all.join(",")),
    ]
}

const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca"];

proptest! {
    // Each case asks a zone for some thousand minutes.
    #![proptest_config(cases(24))]

    /// Over some days around a change of the clocks, minute by minute: the times are exactly the local times that fit, each
    /// once, at its first coming; and they come in order.
    #[test]
    fn next_times_are_those_of_brute_force(
        minute in field(59), hour in field(23), weekday in field(6), every in proptest::option::of(1..500_i64),
        zone in proptest::sample::select(&ZONES[..]), day in 0..365_i64, skipped in proptest::option::of(field(23)),
    ) {
        let interval = |minutes: i64| Interval {
            every: Duration::from_secs(minutes.unsigned_abs() * 60), offset: Duration::ZERO
        };
        let whole_hours = |hour: String| Calendar { hour, minute: "*".into(), second: "*".into(), ..Calendar::default() };
        let spec = ScheduleSpec {
            cron: vec![format!("{minute} {hour} * * {weekday}")],
            intervals: every.map(interval).into_iter().collect(),
            skip: skipped.clone().map(whole_hours).into_iter().collect(),
            time_zone: Some(zone.to_owned()),
            ..ScheduleSpec::default()
        };
        let times = Times::of(&spec, "s").unwrap();
        let tz = jiff::tz::TimeZoneDatabase::bundled().get(zone).unwrap();
        let start = parse_moment("2026-01-01T00:00:00Z").unwrap().0 + day * 86_400_000_000;
        let minutes = 3 * 24 * 60_i64;
        let mut expected = Vec::new();
        for n in 1..=minutes {
            let at = start + n * 60_000_000;
            let local = jiff::Timestamp::from_microsecond(at).unwrap().to_zoned(tz.clone());
            // The second coming is the later of two.
            let first = tz.to_ambiguous_timestamp(local.datetime()).earlier().unwrap().as_microsecond() == at;
            let skipped = skipped.as_ref().is_some_and(|hours| fits(hours, local.hour().into(), false));
            let in_cron = first && fits(&minute, local.minute().into(), false) && fits(&hour, local.hour().into(), false)
                && fits(&weekday, local.weekday().to_sunday_zero_offset().into(), true);
            let in_interval = every.is_some_and(|every| (at / 60_000_000) % every == 0);
            if (in_cron || in_interval) && !skipped {
                expected.push(Timestamp(at));
            }
        }
        let found = times.within(Timestamp(start), Timestamp(start + minutes * 60_000_000), usize::MAX).0;
        prop_assert_eq!(&found, &expected);
        prop_assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
    }

}

proptest! {
    /// Whatever stands there, reading it ends, and never in a panic.
    #[test]
    fn any_text_is_read_or_refused(line in "[-0-9a-z*,/@# =?L]{0,30}") {
        if let Ok(read) = cron::parse(&line)
            && let cron::CronTimes::Calendar(calendar) = read.times
        {
            let _ = calendar.mask();
        }
        let _ = parse_duration(&line);
    }
}
