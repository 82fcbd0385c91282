//! The pace at which a worker asks a provider: so many at a time, so many in a minute, and none while it wants quiet.
//!
//! Invariant: all runs of a worker share one pace for each provider. A short wait is waited for; a long one is given back
//! as an error with its length, so that the engine's timer holds it, durably, and the slot is free (the requirements of operating §3.2).
//! When to go is decided by [`Gauge`], which is pure.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::call::code;
use super::limits::{Counted, Window};
use super::{ErrorClass, ModelError};
use crate::capability::http::{RETRY_AFTER_MAX, now};

/// Waits up to this long are not worth a timer of the engine.
const SHORT: Duration = Duration::from_millis(1_500);

/// Whoever is overtaken this often goes later: short waits are not to add up to a long one.
const SHORT_WAITS: u32 = 4;

/// About how long an answer takes, until some have been seen.
const ANSWER_FIRST: Duration = Duration::from_secs(10);

/// A provider that refuses without a time is left alone this long, and twice as long each time.
const QUIET_FIRST: Duration = Duration::from_secs(1);
const QUIET_MAX: Duration = Duration::from_secs(60);

/// When tokens run low but are not gone.
const LOW_TOKENS_MAX: Duration = Duration::from_secs(10);

/// Whoever is sent away may come back this much too late, and still goes before those who are new.
const LATE: Duration = Duration::from_secs(2);

/// More that wait are told to come back, and get no moment of their own until then.
const TICKETS_MAX: usize = 10_000;

/// The pace that the worker's owner sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PaceConfig {
    /// Requests at a time.
    pub concurrency: u32,
    /// Requests in a minute. `None`: as many as the provider takes.
    pub per_minute: Option<u32>,
}

impl Default for PaceConfig {
    fn default() -> Self {
        PaceConfig { concurrency: 8, per_minute: None }
    }
}

/// When the next request may go.
#[derive(Debug)]
struct Gauge {
    /// Between two requests in the long run.
    interval: Duration,
    /// How far requests may be ahead of that.
    burst: Duration,
    /// When the requests so far would have gone at that interval.
    theoretical: Timestamp,
    quiet_until: Timestamp,
    /// Refusals in a row without a time.
    strikes: u32,
    slots: u32,
    /// How long a slot is held.
    answer: Duration,
    /// When the last of those that were sent away for want of a slot is to come back.
    queue_until: Timestamp,
    /// Who was sent away for the sake of the interval, and the moment that is theirs.
    tickets: BTreeMap<String, Timestamp>,
    /// The last moment that was given away, and the last that was given to somebody who had one before.
    given_until: Timestamp,
    again_until: Timestamp,
    /// Until when somebody with a ticket may still come.
    held_until: Timestamp,
}

impl Gauge {
    fn new(PaceConfig { concurrency, per_minute }: PaceConfig) -> Gauge {
        let n = per_minute.unwrap_or(0).max(1);
        // A sixth of a minute's requests may go at once; the interval is such that no minute has more than its number.
        let at_once = (n / 6).max(1);
        let interval = per_minute.map_or(Duration::ZERO, |_| {
            // Rounded up: clocks here count microseconds.
            Duration::from_micros(60_000_000_u64.div_ceil(u64::from(n - at_once + 1)))
        });
        let burst = interval * (at_once - 1);
        Gauge {
            interval,
            burst,
            theoretical: Timestamp::ZERO,
            quiet_until: Timestamp::ZERO,
            strikes: 0,
            slots: concurrency.max(1),
            answer: ANSWER_FIRST,
            queue_until: Timestamp::ZERO,
            tickets: BTreeMap::new(),
            given_until: Timestamp::ZERO,
            again_until: Timestamp::ZERO,
            held_until: Timestamp::ZERO,
        }
    }

    /// Counts a request of `who` as gone, or says how long it has to wait. What goes is bounded by the interval alone,
    /// whoever comes when; but each that waits is given a moment of its own, since all that came back at one moment would
    /// be sent away again but for one, and whoever is new goes behind them.
    fn admit(&mut self, who: &str, now: Timestamp) -> Result<(), Duration> {
        let wait = self.quiet_until.since(now).max(self.theoretical.since(now.plus(self.burst)));
        let ticket = self.tickets.get(who).copied();
        let in_turn = match ticket {
            Some(at) => at <= now,
            None => self.tickets.is_empty() || self.held_until <= now,
        };
        if in_turn && wait.is_zero() {
            self.theoretical = self.theoretical.max(now).plus(self.interval);
            self.tickets.remove(who);
            return Ok(());
        }
        if self.interval.is_zero() {
            return Err(wait.min(RETRY_AFTER_MAX)); // a quiet is over for all at once
        }
        let at = match ticket {
            Some(at) if at > now && at >= self.quiet_until => return Err(at.since(now).min(RETRY_AFTER_MAX)),
            // Somebody was faster, or there is a quiet: as soon as may be, since they have waited for it once.
            Some(_) => now.plus(wait).max(self.again_until.plus(self.interval)),
            None if in_turn => now.plus(wait),
            None => now.max(self.given_until).max(self.again_until).max(self.quiet_until).plus(self.interval),
        };
        self.give(who, now, at, ticket.is_some());
        Err(at.since(now).min(RETRY_AFTER_MAX))
    }

    /// Remembers whose moment this is.
    fn give(&mut self, who: &str, now: Timestamp, at: Timestamp, again: bool) {
        if self.held_until <= now {
            // Those that are overdue will not come, or are in no hurry.
            self.tickets.clear();
        }
        if self.tickets.len() >= TICKETS_MAX && !self.tickets.contains_key(who) {
            return;
        }
        self.tickets.insert(who.to_owned(), at);
        let last = if again { &mut self.again_until } else { &mut self.given_until };
        *last = at.max(*last);
        self.held_until = self.held_until.max(at.plus(LATE));
    }

    /// How long somebody has to wait for a slot: those who are sent away come back one after the other, as slots become
    /// free, since each coming back is an attempt of its activity and there are not many of them.
    fn queue(&mut self, now: Timestamp) -> Duration {
        let turn = (self.answer / self.slots).max(self.interval).max(Duration::from_millis(10));
        self.queue_until = self.queue_until.max(now).plus(turn);
        self.queue_until.since(now).clamp(SHORT, RETRY_AFTER_MAX)
    }

    /// A slot was held this long.
    fn held(&mut self, length: Duration) {
        self.answer = (self.answer * 7 + length) / 8;
    }

    fn quiet(&mut self, now: Timestamp, length: Duration) {
        self.quiet_until = self.quiet_until.max(now.plus(length.min(RETRY_AFTER_MAX)));
    }

    fn refused(&mut self, now: Timestamp, status: Option<u16>, after: Option<Duration>) {
        match (after, status) {
            (Some(after), Some(429 | 503 | 529)) => self.quiet(now, after),
            // What was under way when the quiet began is refused along with it, and says nothing new.
            (None, Some(429 | 529)) if now >= self.quiet_until => {
                let length = QUIET_FIRST * 2_u32.saturating_pow(self.strikes.min(6));
                self.strikes += 1;
                self.quiet(now, length.min(QUIET_MAX));
            }
            _ => {} // says nothing about the pace
        }
    }

    fn answered(&mut self) {
        self.strikes = 0;
    }

    /// Slows down before the provider has to refuse.
    fn learn(&mut self, now: Timestamp, window: &Window) {
        let Window { counts, remaining, limit, reset } = *window;
        let is_low = limit.map_or(remaining <= 2, |limit| remaining.saturating_mul(20) < limit);
        match counts {
            _ if remaining == 0 => self.quiet(now, reset),
            Counted::Requests if is_low => {
                let share = u32::try_from(remaining + 1).unwrap_or(u32::MAX);
                self.quiet(now, reset / share);
            }
            // How many the next request takes is not known: a little time brings some back.
            Counted::Tokens if is_low && limit.is_some() => self.quiet(now, reset.min(LOW_TOKENS_MAX)),
            Counted::Requests | Counted::Tokens => {}
        }
    }
}

/// The pace of one provider, shared.
#[derive(Debug)]
pub(super) struct Pace {
    gauge: Mutex<Gauge>,
    slots: Semaphore,
}

impl Pace {
    pub(super) fn new(config: PaceConfig) -> Pace {
        let slots = usize::try_from(config.concurrency.max(1)).unwrap_or(1);
        Pace { gauge: Mutex::new(Gauge::new(config)), slots: Semaphore::new(slots.min(Semaphore::MAX_PERMITS)) }
    }

    /// The right to send one request, held until its answer is there. `who` is the same for every attempt of a call.
    pub(super) async fn admit(&self, who: &str) -> Result<RequestPermit<'_>, ModelError> {
        let permit = tokio::time::timeout(SHORT, self.slots.acquire()).await;
        let Some(permit) = permit.ok().and_then(Result::ok) else {
            return Err(paced(code::PACED, "too many requests are under way", self.with(|gauge| gauge.queue(now()))));
        };
        for _ in 0..SHORT_WAITS {
            let (admitted, has_turn) = self.with(|gauge| (gauge.admit(who, now()), gauge.tickets.contains_key(who)));
            match admitted {
                Ok(()) => return Ok(RequestPermit { pace: self, since: now(), _permit: permit }),
                Err(wait) if wait <= SHORT => tokio::time::sleep(wait).await,
                Err(wait) => {
                    let code = if has_turn { code::TURN } else { code::PACED };
                    return Err(paced(code, "the provider is to be left alone for a while", wait));
                }
            }
        }
        Err(paced(code::PACED, "too many requests want to go", self.with(|gauge| gauge.queue(now()))))
    }

    /// Remembers what an answer says about the pace.
    pub(super) fn heard(&self, windows: &[Window], result: Result<(), &ModelError>) {
        let now = now();
        self.with(|gauge| {
            windows.iter().for_each(|window| gauge.learn(now, window));
            match result {
                Ok(()) => gauge.answered(),
                Err(ModelError { class: ErrorClass::Retry { after }, status, .. }) => {
                    gauge.refused(now, *status, *after)
                }
                Err(_) => {}
            }
        });
    }

    fn with<T>(&self, f: impl FnOnce(&mut Gauge) -> T) -> T {
        // A gauge is whole after every statement.
        f(&mut self.gauge.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The right to have one request under way.
#[derive(Debug)]
pub(super) struct RequestPermit<'a> {
    pace: &'a Pace,
    since: Timestamp,
    _permit: SemaphorePermit<'a>,
}

impl Drop for RequestPermit<'_> {
    fn drop(&mut self) {
        let length = now().since(self.since);
        self.pace.with(|gauge| gauge.held(length));
    }
}

fn paced(code: &str, why: &str, after: Duration) -> ModelError {
    let mut error = ModelError::retry(code, format!("{why}; this request goes later"));
    error.class = ErrorClass::Retry { after: Some(after) };
    error
}

#[cfg(test)]
mod tests;
