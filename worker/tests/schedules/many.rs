//! Many schedules over restarts, power cuts and clocks that are set, through a leap day and the nights in which clocks change
//! (issue 19 §2.1): none is lost, none starts a time twice, and what was missed is what the policy says.
//!
//! Invariant: what should have been started is counted here by hand, day by day, from the rules of the calendar; nothing of the
//! code under test is asked for a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bosun_engine::clock::{Clock, VirtualClock};
use bosun_engine::log::{Journal, JournalOptions};
use bosun_engine::testing::TestEnvironment;
use bosun_engine::{ActivityRegistry, FieldName, Payload, SearchValue, Target, Timestamp, WorkflowId};
use bosun_worker::schedule::text::{moment, parse_moment};
use bosun_worker::schedule::{ID_PREFIX, Overlap, Schedule};
use jiff::civil::{DateTime, Weekday, date};
use jiff::tz::{AmbiguousOffset, TimeZone};
use serde_json::{Value, json};

use super::kit::*;

const HOUR: u64 = 3_600;
/// What is later than this is missed, by the schedules that have a window.
const WINDOW: u64 = 10 * HOUR;
/// The schedules of one kind are due within so many seconds, one after the other.
const SPREAD: u64 = 50;

/// The kinds of schedules. The nights in which clocks change are Sundays; the 29th of February is a Tuesday in 2028.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Sundays at a local time, in places where it is left out or comes twice within these weeks.
    Sunday { zone: &'static str, hour: i8, minute: i8 },
    /// Every 29th of February, at noon UTC.
    LeapDay,
    /// Every five days of real time.
    Interval,
    /// The same, and what is later than [`WINDOW`] is missed.
    Windowed,
}

const KINDS: [Kind; 8] = [
    // Left out on March 26th.
    Kind::Sunday { zone: "Europe/Berlin", hour: 2, minute: 30 },
    // Left out on March 12th.
    Kind::Sunday { zone: "America/New_York", hour: 2, minute: 15 },
    // Twice on April 2nd, by half an hour.
    Kind::Sunday { zone: "Australia/Lord_Howe", hour: 1, minute: 45 },
    // Three quarters of an hour from everybody else, and twice on April 2nd.
    Kind::Sunday { zone: "Pacific/Chatham", hour: 3, minute: 0 },
    Kind::LeapDay,
    Kind::Interval,
    Kind::Windowed,
    Kind::Windowed,
];

impl Kind {
    fn schedule(self, id: &str, seconds_in: u64) -> Schedule {
        let mut schedule = every_minute(Overlap::AllowAll, 0);
        schedule.action.workflow_id = id.to_owned();
        schedule.spec.intervals.clear();
        match self {
            Kind::Sunday { zone, hour, minute } => {
                schedule.spec.cron = vec![format!("{seconds_in} {minute} {hour} * * sun *")];
                schedule.spec.time_zone = Some(zone.to_owned());
            }
            Kind::LeapDay => schedule.spec.cron = vec![format!("{seconds_in} 0 12 29 2 * *")],
            Kind::Interval | Kind::Windowed => {
                schedule.spec.cron = vec![format!("@every 120h/{seconds_in}s")];
                if self == Kind::Windowed {
                    schedule.policies.catch_up_window = seconds(WINDOW);
                }
            }
        }
        schedule
    }

    /// Its times after `from`, up to `to`, in seconds since 1970.
    fn times(self, seconds_in: u64, (from, to): (i64, i64)) -> BTreeSet<i64> {
        let shift = i64::try_from(seconds_in).unwrap();
        let days = std::iter::successors(Some(date(2028, 1, 1)), |day| day.tomorrow().ok())
            .take_while(|day| *day < date(2029, 1, 1));
        let times: Vec<i64> = match self {
            Kind::Sunday { zone, hour, minute } => {
                let zone = TimeZone::get(zone).unwrap();
                let sundays = days.filter(|day| day.weekday() == Weekday::Sunday);
                sundays.filter_map(|day| first_coming(&zone, day.at(hour, minute, 0, 0))).map(|at| at + shift).collect()
            }
            Kind::LeapDay => vec![seconds_of("2028-02-29T12:00:00Z") + shift],
            Kind::Interval | Kind::Windowed => {
                let every = 120 * 3_600;
                (from / every..=to / every).map(|nth| nth * every + shift).collect()
            }
        };
        times.into_iter().filter(|at| *at > from && *at <= to).collect()
    }
}

/// When a local time comes, for the first time where it comes twice; never, where the clock leaps over it.
fn first_coming(zone: &TimeZone, local: DateTime) -> Option<i64> {
    let offset = match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset,
        AmbiguousOffset::Fold { before, .. } => before,
        AmbiguousOffset::Gap { .. } => return None,
    };
    Some(offset.to_timestamp(local).unwrap().as_second())
}

fn seconds_of(text: &str) -> i64 {
    parse_moment(text).unwrap().0 / 1_000_000
}

fn wall(environment: &TestEnvironment) -> i64 {
    environment.now().0 / 1_000_000
}

/// A worker whose clock stands at this moment when it starts.
fn at(seconds: i64) -> impl FnOnce(&mut bosun_engine::WorkerOptions) {
    move |options| {
        options.clock = Clock::Virtual(VirtualClock::at(Timestamp(seconds * 1_000_000)));
        options.housekeeping_every = Duration::from_secs(100_000_000);
        options.shadow_replay_every = 64;
    }
}

/// Numbers that look random: xorshift64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// A time in which nobody looked: what was last seen before it, and where the clock stood after it.
type Gap = (i64, i64);

/// One life of so many schedules.
struct Lives {
    many: u32,
    environment: TestEnvironment,
    chance: Chance,
    gaps: Vec<Gap>,
    /// The latest moment that a worker has seen.
    seen: i64,
    cut: u32,
}

impl Lives {
    /// The worker ends in order, or by a power cut, now and then in the midst of what is due; the clock may be set meanwhile.
    async fn restart(mut self) -> Lives {
        let wait = seconds(HOUR + self.chance.below(30 * HOUR));
        let cut = self.chance.below(2) == 0;
        if cut {
            // The more there are, the longer what is due at once takes.
            let moment = Duration::from_micros(self.chance.below(u64::from(self.many) * 100));
            self.cut += u32::from(tokio::time::timeout(moment, self.environment.sleep(wait)).await.is_err());
        } else {
            self.environment.sleep(wait).await;
        }
        let now = wall(&self.environment);
        self.seen = self.seen.max(now);
        let set = match self.chance.below(4) {
            0 => now,
            // Back, by hours.
            1 => now - i64::try_from(600 + self.chance.below(5 * HOUR)).unwrap(),
            // Nobody runs for days, or the clock is set forward.
            _ => now + i64::try_from(self.chance.below(60 * HOUR)).unwrap(),
        };
        let seed = self.chance.below(1 << 20);
        let restarted = if cut { self.environment.crash(seed, at(set)) } else { self.environment.restart(at(set)) };
        self.environment = restarted.unwrap();
        if set > self.seen {
            self.gaps.push((self.seen, set));
        }
        self
    }
}

/// Until nothing is due any more, and some hours more.
async fn come_to_rest(environment: &TestEnvironment) {
    environment.settle().await;
    environment.sleep(seconds(8 * HOUR)).await;
    environment.settle().await;
}

async fn counts(environment: &TestEnvironment, id: &str) -> Value {
    let target = Target::workflow(WorkflowId::of(format!("{ID_PREFIX}{id}")));
    let shown = environment.client().query(&target, &"describe".into(), Payload::null()).await;
    let shown = shown.unwrap_or_else(|why| panic!("{id} is lost: {why}")).to_json();
    assert_eq!(shown["running"], json!([]), "{id}: {shown:#}");
    shown["counts"].clone()
}

/// The nominal times that each schedule has started, with how often, as the log has them.
fn started(environment: TestEnvironment) -> BTreeMap<String, BTreeMap<i64, usize>> {
    let log = environment.log().kill();
    drop(environment);
    let journal = Journal::open(Arc::new(log), JournalOptions::default()).unwrap();
    let mut found: BTreeMap<String, BTreeMap<i64, usize>> = BTreeMap::new();
    journal.scan_runs(&mut |info| {
        let by = info.search_attributes.get(&FieldName::of("TemporalScheduledById"));
        let nominal = info.search_attributes.get(&FieldName::of("TemporalScheduledStartTime"));
        if let (true, Some(SearchValue::Keyword(id)), Some(SearchValue::Datetime(nominal))) =
            (info.workflow_type.as_str() == "job", by, nominal)
        {
            assert_eq!(info.workflow_id.as_str(), format!("{id}-{}", moment(*nominal)));
            *found.entry(id.clone()).or_default().entry(nominal.0 / 1_000_000).or_default() += 1;
        }
        true
    });
    found
}

/// What a schedule has started is what it should have, each once; what it should have and has not is missed by its window.
#[track_caller]
fn judge((id, kind): (&str, Kind), due: &BTreeSet<i64>, started: &BTreeMap<i64, usize>, gaps: &[Gap], counts: &Value) {
    let twice: Vec<_> = started.iter().filter(|(_, runs)| **runs != 1).collect();
    assert!(twice.is_empty(), "{id} {kind:?}: started more than once: {twice:?}");
    let begun: BTreeSet<i64> = started.keys().copied().collect();
    let never: Vec<&i64> = begun.difference(due).collect();
    assert!(never.is_empty(), "{id} {kind:?}: these are no times of it: {never:?}");
    let missed: Vec<i64> = due.difference(&begun).copied().collect();
    let window = i64::try_from(WINDOW).unwrap();
    for at in &missed {
        // What was due as the light went out may be on either side of it.
        let is_late = gaps.iter().any(|(seen, set)| *at >= *seen - 1 && *at < *set - window);
        assert!(kind == Kind::Windowed && is_late, "{id} {kind:?}: {at} was lost; {gaps:?}");
    }
    if kind == Kind::Windowed {
        let too_late = begun.iter().find(|at| gaps.iter().any(|(seen, set)| *at > seen && **at < *set - window));
        assert_eq!(too_late, None, "{id}: what is later than its window is not made up for; {gaps:?}");
    }
    assert_eq!(counts["actions"], begun.len(), "{id} {kind:?}: {counts}");
    assert_eq!(counts["missed_catchup_window"], missed.len(), "{id} {kind:?}: {counts}");
}

async fn schedules_over(many: u32, restarts: u32) {
    let begins = seconds_of("2028-02-25T20:00:00Z");
    let environment = TestEnvironment::start_with(registry(), ActivityRegistry::new(), at(begins)).unwrap();
    let of = |n: u32| {
        let kind = KINDS[n as usize % KINDS.len()];
        (format!("s-{n}"), kind, u64::from(n) / KINDS.len() as u64 % SPREAD)
    };
    for n in 0..many {
        let (id, kind, seconds_in) = of(n);
        create_as(&environment, &id, &kind.schedule(&id, seconds_in)).await;
    }
    environment.settle().await;
    let mut lives = Lives { many, environment, chance: Chance(20_280_229), gaps: Vec::new(), seen: begins, cut: 0 };
    for _ in 0..restarts {
        lives = lives.restart().await;
    }
    // Through the last of the nights, however far it has come.
    let last = seconds_of("2028-04-03T12:00:00Z");
    let left = (last - wall(&lives.environment)).max(0);
    lives.environment.sleep(Duration::from_secs(left.unsigned_abs())).await;
    come_to_rest(&lives.environment).await;
    let Lives { environment, gaps, seen, cut, .. } = lives;
    let now = wall(&environment).max(seen);
    let mut told = BTreeMap::new();
    for n in 0..many {
        let (id, ..) = of(n);
        told.insert(n, counts(&environment, &id).await);
    }
    let started = started(environment);
    let (mut begun, mut missed, nothing) = (0, 0, BTreeMap::new());
    for n in 0..many {
        let (id, kind, seconds_in) = of(n);
        let due = kind.times(seconds_in, (begins, now));
        let started = started.get(&id).unwrap_or(&nothing);
        judge((&id, kind), &due, started, &gaps, &told[&n]);
        begun += started.len();
        missed += due.len() - started.len();
    }
    assert!(missed > 0 && cut > 0, "{missed} times were later than a window, {cut} power cuts in the midst: {gaps:?}");
    println!(
        "{many} schedules over {restarts} restarts, {cut} in the midst of work: {begun} starts, each once; {missed} missed"
    );
}

/// E24, G18, in small.
#[tokio::test]
async fn schedules_keep_their_times_over_power_cuts_leap_days_and_clocks_that_are_set() {
    schedules_over(240, 30).await;
}

/// The same at its figure.
#[tokio::test]
#[ignore = "minutes: cargo full"]
async fn ten_thousand_schedules_keep_their_times_over_power_cuts_leap_days_and_clocks_that_are_set() {
    schedules_over(10_000, 30).await;
}
