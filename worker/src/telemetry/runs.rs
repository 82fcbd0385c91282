//! What open supervisors say of their budgets, and schedules of their starts, as sums that Prometheus can read.
//!
//! Invariant: no more than [`RUNS_MAX`] runs of each type are asked, the newest, at most once in [`FRESH`], and none is waited
//! for longer than [`ANSWER_MAX`], nor all of a type for longer than [`LOOK_MAX`]; how many were left out is told. No run is a label. What schedules count is added up by what is
//! more than it was when it was looked at last, so that it never falls when a schedule is deleted. It changes nothing.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use bosun_engine::{ListRequest, Payload, QueryName, RunInfo, Timestamp, WorkflowId};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use serde_json::Value;

use crate::backend::Backend;
use crate::inbox::target_of;
use crate::schedule::SCHEDULE;
use crate::schedule::shown::ScheduleMood;
use crate::schedule::text::parse_moment;
use crate::supervisor::run::SUPERVISOR;

/// Runs of one type that are asked.
const RUNS_MAX: usize = 200;
const ASKED_AT_ONCE: usize = 8;
/// Who scrapes more often is told the same again.
const FRESH: Duration = Duration::from_secs(5);
/// A run that does not answer by then is left out.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Whoever has not been asked by then is left out, however many do not answer: a scrape has ten seconds, as a rule.
const LOOK_MAX: Duration = Duration::from_secs(3);

tokio::task_local! {
    /// Set while a scrape asks: its questions are nobody's requests.
    static SCRAPE: ();
}

/// Whether it is a scrape that asks.
pub(super) fn is_scrape() -> bool {
    SCRAPE.try_with(|()| ()).is_ok()
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfResource {
    resource: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfMood {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfOutcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfType {
    workflow_type: &'static str,
}

/// What can be limited: as budgets name it, and as it is told.
const RESOURCES: [(&str, &str); 3] = [("tokens", "tokens"), ("cost_micros", "microdollars"), ("calls", "calls")];
/// What becomes of the times of a schedule: as it counts them, and as it is told.
const OUTCOMES: [(&str, &str); 5] = [
    ("actions", "started"),
    ("overlap_skipped", "skipped"),
    ("missed_catchup_window", "missed"),
    ("buffer_dropped", "dropped"),
    ("failed", "failed"),
];
const MOODS: [ScheduleMood; 4] =
    [ScheduleMood::Active, ScheduleMood::Paused, ScheduleMood::Over, ScheduleMood::Problem];

/// The sums, and from when they are.
#[derive(Default)]
pub(super) struct RunSums {
    looked: tokio::sync::Mutex<Option<(Instant, RunsSeen)>>,
    outcomes: Family<OfOutcome, Counter>,
}

/// What was seen at one look.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunsSeen {
    /// By resource: spent and allowed, of the supervisors that have a limit of it.
    budgets: BTreeMap<&'static str, (u64, u64)>,
    /// The largest part of a budget that one of them has used.
    used_most: f64,
    used_up: u64,
    moods: BTreeMap<&'static str, u64>,
    /// By schedule, as it counts.
    counts: BTreeMap<WorkflowId, [u64; OUTCOMES.len()]>,
    overdue: Duration,
    left_out: BTreeMap<&'static str, u64>,
}

impl RunsSeen {
    /// What a supervisor answers to `budget`.
    fn supervisor(&mut self, budget: &Value) {
        for (key, resource) in RESOURCES {
            let Some(allowed) = budget["allowed"][key].as_u64() else { continue };
            let spent = budget["spent"][key].as_u64().unwrap_or_default();
            let sum = self.budgets.entry(resource).or_default();
            *sum = (sum.0.saturating_add(spent), sum.1.saturating_add(allowed));
            self.used_most = self.used_most.max(spent as f64 / allowed.max(1) as f64);
        }
        self.used_up += u64::from(!budget["used_up"].is_null());
    }

    /// What a schedule answers to `describe`.
    fn schedule(&mut self, id: WorkflowId, described: &Value, now: Timestamp) {
        let mood = ScheduleMood::of(described);
        *self.moods.entry(mood.word()).or_default() += 1;
        self.counts.insert(id, OUTCOMES.map(|(key, _)| described["counts"][key].as_u64().unwrap_or_default()));
        let due = described["next"]["due"].as_str().and_then(|due| parse_moment(due).ok());
        if let (ScheduleMood::Active, Some(due)) = (mood, due.filter(|due| *due < now)) {
            self.overdue = self.overdue.max(now.since(due));
        }
    }
}

/// What is answered in time, in any order.
async fn answered<T>(questions: Vec<BoxFuture<'_, Option<T>>>) -> Vec<T> {
    let answers = stream::iter(questions).buffer_unordered(ASKED_AT_ONCE).take_until(tokio::time::sleep(LOOK_MAX));
    answers.filter_map(std::future::ready).collect().await
}

/// Answers of the newest open runs of a type, and how many more there are, or did not answer.
async fn answers(backend: &dyn Backend, workflow_type: &str, query: &'static str) -> (Vec<(RunInfo, Value)>, u64) {
    let open = format!("WorkflowType = '{workflow_type}' AND ExecutionStatus = 'Running'");
    let all = backend.count(open.clone()).await.unwrap_or_default();
    let runs = backend.list(ListRequest { query: open, limit: RUNS_MAX }).await.unwrap_or_default();
    let mut questions: Vec<BoxFuture<'_, Option<(RunInfo, Value)>>> = Vec::new();
    for info in runs {
        questions.push(Box::pin(async move {
            let asked = backend.query(target_of(&info), QueryName::of(query), Payload::null());
            let answer = tokio::time::timeout(ANSWER_MAX, asked).await.ok()?.ok()?;
            Some((info, answer.to_json()))
        }));
    }
    let told = answered(questions).await;
    let left_out = all.saturating_sub(told.len() as u64);
    (told, left_out)
}

async fn look(backend: &dyn Backend, now: Timestamp) -> RunsSeen {
    let mut seen = RunsSeen::default();
    let (supervisors, more) = answers(backend, SUPERVISOR, "budget").await;
    seen.left_out.insert(SUPERVISOR, more);
    supervisors.iter().for_each(|(_, budget)| seen.supervisor(budget));
    let (schedules, more) = answers(backend, SCHEDULE, "describe").await;
    seen.left_out.insert(SCHEDULE, more);
    schedules.into_iter().for_each(|(info, described)| seen.schedule(info.workflow_id, &described, now));
    seen
}

impl RunSums {
    /// The runs as they stand, asked for at most once in [`FRESH`].
    pub(super) async fn seen(&self, backend: &dyn Backend, now: Timestamp) -> RunsSeen {
        let mut looked = self.looked.lock().await;
        if let Some((_, seen)) = looked.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return seen.clone();
        }
        let mut seen = SCRAPE.scope((), look(backend, now)).await;
        self.add(looked.as_ref().map(|(_, before)| before), &mut seen);
        *looked = Some((Instant::now(), seen.clone()));
        seen
    }

    /// What schedules have counted since they were looked at last. What they had counted when this worker first looked, it did
    /// not see happen; one that is seen first later has begun since.
    fn add(&self, before: Option<&RunsSeen>, seen: &mut RunsSeen) {
        let Some(before) = before else { return };
        for (id, counts) in &seen.counts {
            let was = before.counts.get(id).copied().unwrap_or_default();
            for (((_, outcome), now), was) in OUTCOMES.into_iter().zip(counts).zip(was) {
                let of = OfOutcome { outcome };
                self.outcomes.get_or_create(&of).inc_by(now.saturating_sub(was));
            }
        }
        // Whoever did not answer this time has not begun anew.
        for (id, counts) in &before.counts {
            seen.counts.entry(id.clone()).or_insert(*counts);
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        for (_, outcome) in OUTCOMES {
            drop(self.outcomes.get_or_create(&OfOutcome { outcome }));
        }
        let about = "Times of schedules that were dealt with, by how";
        registry.register("schedule_actions", about, self.outcomes.clone());
    }
}

impl RunsSeen {
    pub(super) fn register(&self, registry: &mut Registry) {
        let (spent, allowed) = (Family::<OfResource, Gauge>::default(), Family::<OfResource, Gauge>::default());
        for (_, resource) in RESOURCES {
            let (of_spent, of_allowed) = self.budgets.get(resource).copied().unwrap_or_default();
            spent.get_or_create(&OfResource { resource }).set(i64::try_from(of_spent).unwrap_or(i64::MAX));
            allowed.get_or_create(&OfResource { resource }).set(i64::try_from(of_allowed).unwrap_or(i64::MAX));
        }
        let about = "What open supervisors have spent of what their budgets limit";
        registry.register("budget_spent", about, spent);
        registry.register("budget_allowed", "What their budgets allow open supervisors, top-ups included", allowed);
        let part = Gauge::<f64, AtomicU64>::default();
        part.set(self.used_most);
        let about = "The part of its budget that the open supervisor nearest to its end has used";
        registry.register("budget_used_most_ratio", about, part);
        let used_up: Gauge = Gauge::default();
        used_up.set(i64::try_from(self.used_up).unwrap_or(i64::MAX));
        registry.register("budgets_used_up", "Open supervisors whose budget is used up", used_up);
        let schedules = Family::<OfMood, Gauge>::default();
        for mood in MOODS {
            let count = self.moods.get(mood.word()).copied().unwrap_or_default();
            schedules.get_or_create(&OfMood { state: mood.word() }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        registry.register("schedules", "Schedules, by whether they start anything", schedules);
        let late = Gauge::<f64, AtomicU64>::default();
        late.set(self.overdue.as_secs_f64());
        let about = "How long the start of a schedule that is most overdue has been due";
        registry.register_with_unit("schedule_overdue", about, Unit::Seconds, late);
        let left_out = Family::<OfType, Gauge>::default();
        for (workflow_type, count) in &self.left_out {
            left_out.get_or_create(&OfType { workflow_type }).set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
        let about = "Open runs that the figures of budgets and schedules leave out: too many, or they did not answer";
        registry.register("runs_not_asked", about, left_out);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp(1_767_225_660_000_000);

    fn described(started: u64, skipped: u64, due: &str) -> Value {
        json!({ "schedule": { "state": { "paused": false } }, "next": { "at": due, "due": due },
            "counts": { "actions": started, "overlap_skipped": skipped } })
    }

    fn text(sums: &RunSums, seen: &RunsSeen) -> String {
        let (mut registry, mut text) = (Registry::with_prefix("bosun"), String::new());
        sums.register(&mut registry);
        seen.register(&mut registry);
        encode(&mut text, &registry).unwrap();
        text
    }

    #[track_caller]
    fn has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|one| one == *line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn what_supervisors_spend_stands_beside_what_they_may() {
        let mut seen = RunsSeen::default();
        seen.supervisor(&json!({ "spent": { "tokens": 900, "calls": 3, "cost_micros": 50 },
            "allowed": { "tokens": 1000, "calls": null, "cost_micros": null }, "used_up": null }));
        seen.supervisor(&json!({ "spent": { "tokens": 10, "calls": 5, "cost_micros": 0 },
            "allowed": { "tokens": 100, "calls": 5, "cost_micros": null }, "used_up": "calls" }));
        seen.supervisor(&Value::Null);
        let told = text(&RunSums::default(), &seen);
        has(
            &told,
            &[
                "bosun_budget_spent{resource=\"tokens\"} 910",
                "bosun_budget_allowed{resource=\"tokens\"} 1100",
                "bosun_budget_spent{resource=\"calls\"} 5",
                "bosun_budget_allowed{resource=\"microdollars\"} 0",
                "bosun_budget_used_most_ratio 1.0",
                "bosun_budgets_used_up 1",
            ],
        );
    }

    /// Runs that do not answer cost a scrape a bounded time, however many they are, and hide none of those that do.
    #[tokio::test]
    async fn runs_that_do_not_answer_are_left_out() {
        let silent = 5 * ASKED_AT_ONCE;
        let question = |n: usize| -> BoxFuture<'static, Option<usize>> {
            if n == 1 { Box::pin(std::future::ready(Some(n))) } else { Box::pin(std::future::pending()) }
        };
        assert_eq!(answered((0..10 * silent).map(question).collect()).await, [1]);
    }

    /// What a schedule that is gone has started was started all the same, and a worker counts what it has seen.
    #[test]
    fn what_schedules_do_is_counted_and_never_less() {
        let sums = RunSums::default();
        let look = |before: Option<&RunsSeen>, all: &[(&str, u64, u64)]| {
            let mut seen = RunsSeen::default();
            for (id, started, skipped) in all {
                seen.schedule(WorkflowId::of(*id), &described(*started, *skipped, "2026-01-01T00:00:30Z"), NOW);
            }
            sums.add(before, &mut seen);
            seen
        };
        let first = look(None, &[("schedule:a", 7, 1)]);
        has(
            &text(&sums, &first),
            &[
                "bosun_schedule_actions_total{outcome=\"started\"} 0",
                "bosun_schedules{state=\"active\"} 1",
                "bosun_schedule_overdue_seconds 30.0",
            ],
        );
        let second = look(Some(&first), &[("schedule:a", 9, 1), ("schedule:b", 1, 0)]);
        let third = look(Some(&second), &[("schedule:b", 2, 4)]);
        let fourth = look(Some(&third), &[("schedule:a", 9, 1)]);
        has(
            &text(&sums, &fourth),
            &[
                "bosun_schedule_actions_total{outcome=\"started\"} 4",
                "bosun_schedule_actions_total{outcome=\"skipped\"} 4",
            ],
        );
    }
}
