//! Retention: which closed runs may go, by the time that was seen to pass since they closed.
//!
//! A clock alone is not believed: it may have jumped while no worker ran, and nobody can tell a wrong clock at boot from a
//! machine that was off for long. So what counts is time in which a worker held the directory and its machine was awake, measured
//! by the monotonic clock; `seen-time` keeps the spans. The owner may say that the clock is right: then it alone decides.
//!
//! Invariant: without a retention that the owner set nothing is ever deleted; with one, no run before that much time was
//! seen to pass behind its end. A `seen-time` that is lost or damaged makes runs stay longer, never shorter.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::Step;
use crate::log::private_file;
use crate::vocabulary::{Namespace, Timestamp};

const FILE: &str = "seen-time";
/// Spans that are remembered; older ones are forgotten, and their time does not count.
const SPANS_MAX: usize = 4_096;
/// A command that only visits sees nothing that counts, and must not push out what does.
const LEAST_SPAN: Duration = Duration::from_secs(1);
/// How often the span of this process is written.
const WRITE_EVERY: Duration = Duration::from_secs(60);

/// How long closed runs are kept. The default keeps all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retention {
    /// For every namespace that is not named; `None`: for ever.
    pub default: Option<Duration>,
    /// Namespaces with a rule of their own; `None`: for ever.
    pub namespaces: BTreeMap<Namespace, Option<Duration>>,
    /// The owner says that the clock is right: time in which no worker ran counts too.
    pub trust_clock: bool,
}

impl Retention {
    /// The same for every namespace.
    pub fn of(keep: Duration) -> Self {
        Retention { default: Some(keep), ..Retention::default() }
    }
    /// How long closed runs of a namespace are kept; `None`: for ever.
    pub fn keep(&self, namespace: &Namespace) -> Option<Duration> {
        self.namespaces.get(namespace).copied().unwrap_or(self.default)
    }
    /// Whether any run may ever be deleted.
    pub fn is_set(&self) -> bool {
        self.default.is_some() || self.namespaces.values().any(Option::is_some)
    }
}

/// What the retention means now, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetentionInfo {
    /// What was configured.
    pub retention: Retention,
    /// Runs of a namespace without one of its own that closed before this are deleted; `None`: none yet.
    pub closed_before: Option<Timestamp>,
    /// How much time has been seen to pass in all.
    pub seen: Duration,
}

impl RetentionInfo {
    /// What it would mean to a worker that starts on a directory which nobody holds. Only reads.
    pub fn of_directory(directory: &Path, retention: &Retention, now: Timestamp) -> RetentionInfo {
        SeenTime::begin(Some(directory), now).info(retention, now)
    }
}

/// Spans of time in which a worker held the directory, in order and apart from each other.
#[derive(Debug, Clone)]
pub(super) struct SeenTime {
    path: Option<PathBuf>,
    /// Of processes before this one.
    spans: Vec<(Timestamp, Timestamp)>,
    began: Timestamp,
    written: Option<Timestamp>,
    /// How many steps of the clock were looked at.
    steps: usize,
}

impl SeenTime {
    /// Begins a span. Without a directory nothing is remembered.
    pub(super) fn begin(directory: Option<&Path>, now: Timestamp) -> Self {
        let path = directory.map(|directory| directory.join(FILE));
        let mut spans = path.as_deref().map(read).unwrap_or_default();
        // A clock that was ahead has been set back: what it claimed to have seen beyond now was not.
        spans.retain_mut(|(from, to)| {
            *to = (*to).min(now);
            from < to
        });
        SeenTime { path, spans, began: now, written: None, steps: 0 }
    }

    /// Where the clock was moved forward, nobody saw the time between pass: a span ends, and another begins. Asked before
    /// every look at the time that has passed.
    pub(super) fn pass_over(&mut self, steps: &[Step]) {
        for (from, to) in steps.iter().skip(self.steps) {
            self.spans.push((self.began, *from));
            self.began = *to;
        }
        self.steps = steps.len().max(self.steps);
    }

    /// The newest moment since which so much time was seen to pass.
    pub(super) fn since(&self, keep: Duration, now: Timestamp) -> Option<Timestamp> {
        let mut left = keep;
        for (from, to) in std::iter::once((self.began, now)).chain(self.spans.iter().rev().copied()) {
            let span = to.since(from);
            if span >= left {
                return Some(to.minus(left));
            }
            left -= span;
        }
        None
    }

    fn seen(&self, now: Timestamp) -> Duration {
        let before = self.spans.iter().map(|(from, to)| to.since(*from)).sum::<Duration>();
        before + now.since(self.began)
    }

    pub(super) fn info(&self, retention: &Retention, now: Timestamp) -> RetentionInfo {
        let keep = retention.default;
        let closed_before = keep.and_then(|keep| self.due(retention, keep, now));
        RetentionInfo { retention: retention.clone(), closed_before, seen: self.seen(now) }
    }

    /// Runs that closed up to this moment have been kept long enough.
    pub(super) fn due(&self, retention: &Retention, keep: Duration, now: Timestamp) -> Option<Timestamp> {
        if retention.trust_clock { Some(now.minus(keep)) } else { self.since(keep, now) }
    }

    /// Writes the span of this process down, now and then or at its end.
    pub(super) fn note(&mut self, now: Timestamp, ends: bool) {
        if !ends && self.written.is_some_and(|at| now.since(at) < WRITE_EVERY) {
            return;
        }
        if ends && now.since(self.began) < LEAST_SPAN {
            return;
        }
        let Some(path) = &self.path else { return };
        // Who asks may have looked at the clock before it was moved.
        let now = now.max(self.began);
        self.written = Some(now);
        let all: Vec<_> = self.spans.iter().copied().chain([(self.began, now)]).collect();
        let newest = &all[all.len().saturating_sub(SPANS_MAX)..];
        let lines: String = newest.iter().map(|(from, to)| format!("{} {}\n", from.0, to.0)).collect();
        let text = format!("{lines}crc {:08x}\n", crc32fast::hash(lines.as_bytes()));
        if let Err(why) = write(path, &text) {
            // Runs stay longer than they need to; nothing else comes of it.
            tracing::warn!(%why, file = %path.display(), "the time that was seen to pass cannot be noted");
        }
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = private_file(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)
}

/// What cannot be read was not seen.
fn read(path: &Path) -> Vec<(Timestamp, Timestamp)> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(why) => {
            tracing::warn!(%why, file = %path.display(), "no time counts as seen: retention begins anew");
            return Vec::new();
        }
    };
    let parsed = parse(&text);
    if parsed.is_none() {
        tracing::warn!(file = %path.display(), "its CRC is wrong: no time counts as seen, retention begins anew");
    }
    parsed.unwrap_or_default()
}

fn parse(text: &str) -> Option<Vec<(Timestamp, Timestamp)>> {
    let (lines, crc) = text.rsplit_once("crc ")?;
    if format!("{:08x}\n", crc32fast::hash(lines.as_bytes())) != crc {
        return None;
    }
    let span = |line: &str| {
        let (from, to) = line.split_once(' ')?;
        Some((Timestamp(from.parse().ok()?), Timestamp(to.parse().ok()?)))
    };
    let spans: Vec<_> = lines.lines().map(span).collect::<Option<_>>()?;
    let in_order = spans.windows(2).all(|two| two[0].1 <= two[1].0) && spans.iter().all(|(from, to)| from <= to);
    in_order.then_some(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const DAY: Duration = Duration::from_secs(24 * 3_600);
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

    fn at(offset: Duration) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000).plus(offset)
    }

    #[test]
    fn only_time_that_was_seen_counts() {
        let home = tempfile::tempdir().unwrap();
        let session = |from: Duration, to: Duration| {
            let mut seen = SeenTime::begin(Some(home.path()), at(from));
            seen.note(at(to), true);
            seen
        };
        assert_eq!(session(Duration::ZERO, DAY).since(2 * DAY, at(DAY)), None);
        let two = session(2 * DAY, 3 * DAY);
        assert_eq!(two.since(DAY / 2, at(3 * DAY)), Some(at(5 * DAY / 2)));
        assert_eq!(two.since(3 * DAY / 2, at(3 * DAY)), Some(at(DAY / 2)), "the gap does not count");
        // A wrong clock at boot: ten years have passed, of which an hour was seen.
        let jumped = session(10 * YEAR, 10 * YEAR + HOUR);
        assert_eq!(jumped.since(DAY, at(10 * YEAR + HOUR)), Some(at(2 * DAY + HOUR)));
        // Set right again: what the wrong one saw is forgotten.
        let right = session(4 * DAY, 5 * DAY);
        assert_eq!(right.since(3 * DAY, at(5 * DAY)), Some(at(Duration::ZERO)));
        let trusting = Retention { trust_clock: true, ..Retention::of(YEAR) };
        assert_eq!(right.due(&trusting, YEAR, at(YEAR)), Some(at(Duration::ZERO)));
    }

    #[test]
    fn what_the_clock_was_set_forward_by_was_not_seen() {
        let home = tempfile::tempdir().unwrap();
        let mut seen = SeenTime::begin(Some(home.path()), at(Duration::ZERO));
        let steps = [(at(HOUR), at(YEAR)), (at(YEAR + HOUR), at(2 * YEAR))];
        seen.pass_over(&steps[..1]);
        assert_eq!(seen.since(2 * HOUR, at(YEAR)), None, "a year on the clock, an hour seen");
        seen.pass_over(&steps);
        seen.pass_over(&steps);
        assert_eq!(seen.since(2 * HOUR, at(2 * YEAR + HOUR)), Some(at(YEAR)));
        seen.note(at(2 * YEAR + HOUR), true);
        let later = SeenTime::begin(Some(home.path()), at(2 * YEAR + HOUR));
        assert_eq!(later.since(3 * HOUR, at(2 * YEAR + HOUR)), Some(at(Duration::ZERO)));
        // Whoever looked at the clock before it moved writes what can be read.
        seen.note(at(HOUR), true);
        assert_eq!(SeenTime::begin(Some(home.path()), at(3 * YEAR)).spans.len(), 3);
    }

    #[test]
    fn a_damaged_note_makes_runs_stay() {
        let home = tempfile::tempdir().unwrap();
        SeenTime::begin(Some(home.path()), at(Duration::ZERO)).note(at(DAY), true);
        let path = home.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(SeenTime::begin(Some(home.path()), at(DAY)).spans.len(), 1);
        std::fs::write(&path, text.replacen('1', "2", 1)).unwrap();
        assert_eq!(SeenTime::begin(Some(home.path()), at(DAY)).spans, []);
    }

    #[test]
    fn a_namespace_may_have_its_own() {
        let [dev, audit] = ["dev", "audit"].map(|name| Namespace::new(name).unwrap());
        let namespaces = [(dev.clone(), Some(HOUR)), (audit.clone(), None)].into();
        let retention = Retention { default: Some(DAY), namespaces, trust_clock: false };
        let kept = [&dev, &audit, &Namespace::of("default")].map(|namespace| retention.keep(namespace));
        assert_eq!(kept, [Some(HOUR), None, Some(DAY)]);
        assert!(retention.is_set() && !Retention::default().is_set());
    }
}
