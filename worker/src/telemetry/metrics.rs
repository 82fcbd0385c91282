//! Counters and histograms of a worker, as OpenMetrics text for `/metrics`.
//!
//! Invariant: what is shown has bounded size. A type that this program does not know (anybody can start one) is counted
//! under `other`, and ids of runs are no labels. Times are seconds and sizes bytes, as Prometheus names them.
//!
//! It holds no state of the engine: gauges are asked for at each scrape.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use bosun_engine::{
    ActivityError, ActivityFuture, ActivityTask, ActivityType, Interceptor, Payload, Rejection, RunInfo, Timestamp,
    WorkflowId, WorkflowStatus, WorkflowType,
};
use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use serde_json::Value;

pub(crate) use super::runs::RunsSeen;
use super::runs::{RunSums, is_scrape};
use crate::backend::{Backend, EngineHealth, WorkerState};
use crate::capability::model::{Cost, MODEL, ModelInput, ModelOutput};
use crate::notify::rules::run::{DELIVER, Delivery};

/// Of what is not known by name.
const OTHER: &str = "other";

/// From 50 µs, a quarter of one sync of a disk, up to 13 s.
const QUICK: [f64; 13] = [0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 2.0, 13.0];
/// From 5 ms, a small program, up to 2 h, an agent at work.
const SLOW: [f64; 13] = [0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1_800.0, 3_600.0, 7_200.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfWorkflow {
    workflow_type: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfClosed {
    workflow_type: String,
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfActivity {
    activity_type: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfAttempt {
    outcome: &'static str,
}

/// Those that did not arrive stand there from the beginning: of a counter that first appears with its first failure, no rate says
/// that it has grown.
fn attempts_to_tell() -> Family<OfAttempt, Counter> {
    let told = Family::<OfAttempt, Counter>::default();
    for outcome in ["failed", "refused"] {
        drop(told.get_or_create(&OfAttempt { outcome }));
    }
    told
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfCall {
    call: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfQueue {
    task_queue: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfProvider {
    provider: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfTokens {
    provider: String,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfState {
    state: &'static str,
}

thread_local! {
    /// When the turn of this thread began: a turn begins and ends on one thread.
    static TURN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// What is counted while the worker runs.
pub(crate) struct Metrics {
    workflow_types: BTreeSet<WorkflowType>,
    activity_types: BTreeSet<ActivityType>,
    commits: Histogram,
    turns_committed: Counter,
    turns: Family<OfWorkflow, Histogram>,
    events: Counter,
    closed: Family<OfClosed, Counter>,
    activities: Family<OfActivity, Histogram>,
    calls: Family<OfCall, Counter>,
    told: Family<OfAttempt, Counter>,
    spent: SpentCounters,
    runs: RunSums,
}

/// What answers of models took. Providers are of the owner's configuration: their number is bounded.
#[derive(Clone, Default)]
struct SpentCounters {
    tokens: Family<OfTokens, Counter>,
    micros: Family<OfProvider, Counter>,
    unpriced: Family<OfProvider, Counter>,
}

impl SpentCounters {
    fn count(&self, provider: &str, result: &Payload) {
        let Ok(ModelOutput { response, cost, .. }) = result.decode::<ModelOutput>() else { return };
        for (kind, tokens) in [("input", response.usage.input), ("output", response.usage.output)] {
            let of = OfTokens { provider: provider.to_owned(), kind };
            self.tokens.get_or_create(&of).inc_by(tokens.unwrap_or(0));
        }
        let of = OfProvider { provider: provider.to_owned() };
        match cost {
            Cost::Micros(micros) => self.micros.get_or_create(&of).inc_by(micros),
            Cost::Unpriced(_) => self.unpriced.get_or_create(&of).inc(),
        };
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Counts by these types, and what is of another one together.
    pub(crate) fn new<'a>(
        workflow_types: impl IntoIterator<Item = &'a WorkflowType>,
        activity_types: impl IntoIterator<Item = &'a ActivityType>,
    ) -> Metrics {
        Metrics {
            workflow_types: workflow_types.into_iter().cloned().collect(),
            activity_types: activity_types.into_iter().cloned().collect(),
            commits: Histogram::new(QUICK),
            turns_committed: Counter::default(),
            turns: Family::new_with_constructor(|| Histogram::new(QUICK)),
            events: Counter::default(),
            closed: Family::default(),
            activities: Family::new_with_constructor(|| Histogram::new(SLOW)),
            calls: Family::default(),
            told: attempts_to_tell(),
            spent: SpentCounters::default(),
            runs: RunSums::default(),
        }
    }

    fn workflow_type(&self, workflow_type: &WorkflowType) -> String {
        let known = self.workflow_types.contains(workflow_type);
        if known { workflow_type.to_string() } else { OTHER.to_owned() }
    }

    fn activity_type(&self, activity_type: &ActivityType) -> String {
        let known = self.activity_types.contains(activity_type);
        if known { activity_type.to_string() } else { OTHER.to_owned() }
    }

    /// What runs say of their budgets and schedules: they are asked at a scrape.
    pub(crate) async fn runs_seen(&self, backend: &dyn Backend, now: Timestamp) -> RunsSeen {
        self.runs.seen(backend, now).await
    }

    /// All of it as text: what was counted, and how the worker stands now.
    pub(crate) fn text(&self, now: &Standing<'_>) -> String {
        let mut registry = Registry::with_prefix("bosun");
        self.counted(&mut registry);
        now.register(&mut registry);
        let mut text = String::new();
        // Only the string could refuse, and it does not.
        let _ = encode(&mut text, &registry);
        text
    }

    fn counted(&self, registry: &mut Registry) {
        let seconds = Unit::Seconds;
        let about = "Time in which one group of turns was written and synced";
        registry.register_with_unit("commit_duration", about, seconds.clone(), self.commits.clone());
        registry.register("committed_turns", "Turns that are durable", self.turns_committed.clone());
        let about = "Time in which workflow code decided one turn";
        registry.register_with_unit("turn_duration", about, seconds.clone(), self.turns.clone());
        registry.register("decided_events", "Events that turns have decided", self.events.clone());
        registry.register("closed_runs", "Runs that have closed, by how", self.closed.clone());
        let about = "Time of one attempt of an activity, by how it ended";
        registry.register_with_unit("activity_duration", about, seconds, self.activities.clone());
        registry.register("client_calls", "Requests to runs and about them", self.calls.clone());
        let about = "Attempts to notify people, by how they ended";
        registry.register("notification_attempts", about, self.told.clone());
        let SpentCounters { tokens, micros, unpriced } = &self.spent;
        registry.register("model_tokens", "Tokens of answers of models", tokens.clone());
        let about = "Millionths of a dollar that answers of models cost, where their price is known";
        registry.register("model_cost_microdollars", about, micros.clone());
        registry.register("model_unpriced_calls", "Answers of models whose price nobody knows", unpriced.clone());
        self.runs.register(registry);
    }
}

impl Interceptor for Metrics {
    fn activity(&self, task: &ActivityTask, next: ActivityFuture) -> ActivityFuture {
        let activity_type = self.activity_type(&task.activity_type);
        let activities = self.activities.clone();
        let told = (task.activity_type.as_str() == DELIVER).then(|| self.told.clone());
        let is_model = task.activity_type.as_str() == MODEL;
        let asked = is_model.then(|| task.input.decode::<ModelInput>().ok()).flatten();
        let spent = asked.map(|asked| (asked.provider, self.spent.clone()));
        Box::pin(async move {
            let began = Instant::now();
            let ended = next.await;
            if let (Some((provider, spent)), Ok(result)) = (spent, &ended) {
                spent.count(&provider, result);
            }
            if let (Some(told), Ok(result)) = (told, &ended) {
                // Its end is data: the activity completes also where nobody was told.
                let outcome = result.decode::<Delivery>().map_or("unknown", |delivery| delivery.word());
                told.get_or_create(&OfAttempt { outcome }).inc();
            }
            let outcome = match &ended {
                Ok(_) => "completed",
                Err(ActivityError::Failure(_)) => "failed",
                Err(ActivityError::Canceled(_)) => "canceled",
                Err(ActivityError::WillCompleteLater) => "elsewhere",
            };
            if let Err(ActivityError::Failure(why)) = &ended {
                // Its span says of which run; what it says itself may be anybody's data, and stands in the history.
                tracing::debug!(failure = why.type_name(), "the attempt failed");
            }
            activities.get_or_create(&OfActivity { activity_type, outcome }).observe(began.elapsed().as_secs_f64());
            ended
        })
    }

    fn turn_begins(&self, _: &RunInfo) {
        TURN.set(Some(Instant::now()));
    }

    fn turn_ends(&self, run: &RunInfo, events: usize) {
        let Some(began) = TURN.take() else { return };
        let workflow_type = self.workflow_type(&run.workflow_type);
        self.events.inc_by(events as u64);
        if !run.status.is_open() && events > 0 {
            let status = status_name(run.status);
            self.closed.get_or_create(&OfClosed { workflow_type: workflow_type.clone(), status }).inc();
            super::closed::tell(run, status);
        }
        self.turns.get_or_create(&OfWorkflow { workflow_type }).observe(began.elapsed().as_secs_f64());
    }

    fn group_committed(&self, turns: usize, took: Duration) {
        self.commits.observe(took.as_secs_f64());
        self.turns_committed.inc_by(turns as u64);
    }

    fn client_call(&self, call: &'static str, _: Option<&WorkflowId>) -> Result<(), Rejection> {
        if !is_scrape() {
            self.calls.get_or_create(&OfCall { call }).inc();
        }
        Ok(())
    }
}

fn status_name(status: WorkflowStatus) -> &'static str {
    match status {
        WorkflowStatus::Running => "running",
        WorkflowStatus::Paused => "paused",
        WorkflowStatus::Completed => "completed",
        WorkflowStatus::Failed => "failed",
        WorkflowStatus::Canceled => "canceled",
        WorkflowStatus::Terminated => "terminated",
        WorkflowStatus::ContinuedAsNew => "continued_as_new",
        WorkflowStatus::TimedOut => "timed_out",
    }
}

/// How the worker stands at the moment of a scrape.
pub(crate) struct Standing<'a> {
    pub(crate) version: &'a str,
    pub(crate) health: &'a EngineHealth,
    pub(crate) worker: &'a WorkerState,
    /// What `store info` says.
    pub(crate) store: &'a Value,
    /// What runs say of themselves.
    pub(crate) runs: &'a RunsSeen,
}

impl Standing<'_> {
    // long: one line a metric.
    fn register(&self, registry: &mut Registry) {
        let gauge = |registry: &mut Registry, name: &str, about: &str, value: u64| {
            let gauge: Gauge = Gauge::default();
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
            registry.register(name, about, gauge);
        };
        let WorkerState { lost_threads, held_runs, memory, slots, busy, external_slots, external_busy, .. } =
            self.worker;
        gauge(registry, "ready", "1 while new work is taken", u64::from(*self.health == EngineHealth::Ready));
        gauge(registry, "slots", "Attempts of activities that may run at once", *slots as u64);
        gauge(registry, "slots_busy", "Attempts of activities that run", *busy as u64);
        let what = "Attempts of programs, models, MCP servers and HTTP";
        gauge(registry, "external_slots", &format!("{what} that may run at once"), *external_slots as u64);
        gauge(registry, "external_slots_busy", &format!("{what} that run"), *external_busy as u64);
        let about = "Bytes that loaded runs and waiting requests may take together";
        gauge(registry, "memory_budget_bytes", about, *memory as u64);
        let about = "Threads that workflow code keeps and does not come back from";
        gauge(registry, "lost_threads", about, *lost_threads as u64);
        let about = "Open runs that cannot go on: their code does not fit or does not come back, or they are damaged";
        gauge(registry, "held_runs", about, *held_runs as u64);
        let about =
            "Workflow types whose snapshots lose a part of the state; runs of them come back from history alone";
        gauge(registry, "untrusted_snapshots", about, self.worker.untrusted_snapshots as u64);
        let queues = Family::<OfQueue, Gauge>::default();
        // Always there, so that a rule about a queue finds its name before anything waits.
        queues.get_or_create(&OfQueue { task_queue: "default".to_owned() }).set(0);
        for (queue, waits) in self.worker.waiting_by_queue() {
            queues.get_or_create(&OfQueue { task_queue: queue.to_string() }).set(waits as i64);
        }
        registry.register("queue_waiting", "Attempts that wait for a slot, or for a worker of their queue", queues);
        let (running, most) = (Family::<OfQueue, Gauge>::default(), Family::<OfQueue, Gauge>::default());
        let fast = Family::<OfQueue, Gauge<f64, AtomicU64>>::default();
        for (queue, state) in &self.worker.queues {
            let of = OfQueue { task_queue: queue.to_string() };
            running.get_or_create(&of).set(state.running as i64);
            if let Some(max) = state.max_concurrent {
                most.get_or_create(&of).set(max as i64);
            }
            if let Some(rate) = state.max_per_second.as_ref().and_then(|rate| rate.parse::<f64>().ok()) {
                fast.get_or_create(&of).set(rate);
            }
        }
        registry.register("queue_running", "Attempts of a queue that run", running);
        registry.register("queue_slots_max", "Attempts of a queue that may run at once, where that is limited", most);
        registry.register(
            "queue_rate_max",
            "Attempts of a queue that may start in a second, where that is limited",
            fast,
        );
        let runs = Family::<OfState, Gauge>::default();
        for (state, field) in [("open", "runs_open"), ("closed", "runs_closed")] {
            runs.get_or_create(&OfState { state }).set(self.store[field].as_i64().unwrap_or(0));
        }
        registry.register("runs", "Runs in the store", runs);
        for (name, field, about) in [
            ("log_bytes", "log_bytes", "Bytes of the log that groups take"),
            ("store_bytes", "bytes_on_disk", "Bytes that the data directory takes"),
            ("log_groups", "groups", "Groups in the log"),
        ] {
            gauge(registry, name, about, self.store[field].as_u64().unwrap_or(0));
        }
        self.runs.register(registry);
        let build = prometheus_client::metrics::info::Info::new(vec![("version", self.version.to_owned())]);
        registry.register("build", "What runs here", build);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::backend::QueueState;
    use crate::fake::run_info;

    fn text(metrics: &Metrics) -> String {
        let (health, store) = (EngineHealth::Ready, json!({ "runs_open": 2, "runs_closed": 5, "log_bytes": 700 }));
        let mut worker =
            WorkerState { slots: 16, busy: 3, held_runs: 2, untrusted_snapshots: 1, ..WorkerState::default() };
        let mail = QueueState { running: 2, max_concurrent: Some(5), max_per_second: Some("0.5".to_owned()) };
        worker.queues.insert("mail".parse().unwrap(), mail);
        worker.waiting.insert("default".parse().unwrap(), [("mail".parse().unwrap(), 4)].into());
        let runs = RunsSeen::default();
        let now = Standing { version: "0.1.0", health: &health, worker: &worker, store: &store, runs: &runs };
        metrics.text(&now)
    }

    #[test]
    fn what_was_done_is_counted_and_what_stands_is_shown() {
        let metrics = Metrics::new([&"order".parse().unwrap()], [&"mail".parse().unwrap()]);
        metrics.group_committed(3, Duration::from_micros(300));
        let run = run_info("order-7", WorkflowStatus::Completed);
        metrics.turn_begins(&run);
        metrics.turn_ends(&run, 4);
        metrics.client_call("signal", None).unwrap();
        let text = text(&metrics);
        for line in [
            "# TYPE bosun_commit_duration_seconds histogram",
            "bosun_commit_duration_seconds_bucket{le=\"0.0002\"} 0",
            "bosun_commit_duration_seconds_bucket{le=\"0.0005\"} 1",
            "bosun_committed_turns_total 3",
            "bosun_turn_duration_seconds_count{workflow_type=\"order\"} 1",
            "bosun_decided_events_total 4",
            "bosun_closed_runs_total{workflow_type=\"order\",status=\"completed\"} 1",
            "bosun_client_calls_total{call=\"signal\"} 1",
            "bosun_ready 1",
            "bosun_slots_busy 3",
            "bosun_held_runs 2",
            "bosun_untrusted_snapshots 1",
            "bosun_queue_waiting{task_queue=\"mail\"} 4",
            "bosun_queue_running{task_queue=\"mail\"} 2",
            "bosun_queue_slots_max{task_queue=\"mail\"} 5",
            "bosun_queue_rate_max{task_queue=\"mail\"} 0.5",
            "bosun_runs{state=\"open\"} 2",
            "bosun_log_bytes 700",
            "bosun_build_info{version=\"0.1.0\"} 1",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    /// Anybody may start a run of any type, and name any activity in a program: names from outside are no labels.
    #[test]
    fn what_is_not_known_is_counted_together() {
        let metrics = Metrics::new([], []);
        for id in 0..100 {
            let run = RunInfo {
                workflow_type: WorkflowType::of(format!("made-up-{id}")),
                ..run_info("a", WorkflowStatus::Failed)
            };
            metrics.turn_begins(&run);
            metrics.turn_ends(&run, 1);
        }
        let text = text(&metrics);
        assert!(text.contains("bosun_closed_runs_total{workflow_type=\"other\",status=\"failed\"} 100"), "{text}");
        assert!(!text.contains("made-up"), "{text}");
    }

    #[test]
    fn answers_of_models_are_counted_by_what_they_took() {
        let metrics = Metrics::new([], []);
        let said = |cost: Value| {
            let response = json!({ "said": { "content": "hello" }, "stop": "end", "model": "m-1",
                "usage": { "input": 70, "output": 7 } });
            Payload::encode(&json!({ "response": response, "cost": cost })).unwrap()
        };
        let priced = said(serde_json::to_value(Cost::Micros(25)).unwrap());
        assert!(priced.decode::<ModelOutput>().is_ok(), "{:?}", priced.decode::<ModelOutput>());
        metrics.spent.count("openai", &priced);
        metrics.spent.count("openai", &priced);
        let text = text(&metrics);
        for line in [
            "bosun_model_tokens_total{provider=\"openai\",kind=\"input\"} 140",
            "bosun_model_tokens_total{provider=\"openai\",kind=\"output\"} 14",
            "bosun_model_cost_microdollars_total{provider=\"openai\"} 50",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }

    /// A turn that refused its input has ended nothing.
    #[test]
    fn a_message_to_a_closed_run_closes_nothing() {
        let metrics = Metrics::new([], []);
        let run = run_info("a", WorkflowStatus::Failed);
        metrics.turn_begins(&run);
        metrics.turn_ends(&run, 0);
        assert!(!text(&metrics).contains("closed_runs_total{"));
    }
}
