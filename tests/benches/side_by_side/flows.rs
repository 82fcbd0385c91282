//! The workflows that are measured, and a worker on a real directory that runs them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bosun_engine::machine::Execution;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry, join_all};
use bosun_engine::*;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

/// Directories for benches: on the disk of the build, never in memory.
pub(crate) fn bench_dir() -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(&dir).expect("a directory for benches");
    dir
}

fn options() -> ActivityOptions {
    ActivityOptions { start_to_close: Some(Duration::from_secs(60)), ..ActivityOptions::default() }
}

/// `left` sequential steps, as a state machine.
#[derive(Serialize, Deserialize)]
struct Steps {
    left: u64,
}

impl StateMachine for Steps {
    const TYPE: &'static str = "steps-machine";
    type Input = u64;
    type Output = u64;
    fn start(left: u64, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        cx.schedule_activity("step", &"x".repeat(40), options());
        Ok(Steps { left })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        if let WorkflowEvent::ActivityResolved { result, .. } = event {
            result?;
            self.left -= 1;
            if self.left == 0 {
                cx.complete(&0u64);
            } else {
                cx.schedule_activity("step", &"x".repeat(40), options());
            }
        }
        Ok(())
    }
}

/// `steps` calls in a row whose results have so many bytes each: what agents say is long, and is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Long {
    pub(crate) steps: u64,
    pub(crate) bytes: usize,
}

/// Text as models write it: words, none of them drawn twice the same way, so that it shrinks by a half at most.
fn words(seed: u64, bytes: usize) -> String {
    const WORDS: [&str; 16] = [
        "plan", "agent", "result", "because", "review", "step", "error", "budget", "person", "answer", "index",
        "table", "signal", "model", "reason", "report",
    ];
    let mut text = String::with_capacity(bytes + 24);
    let mut state = seed | 1;
    while text.len() < bytes {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(WORDS[(state % 16) as usize]);
        text.push_str(&format!(" {:x} ", state >> 40));
    }
    text.truncate(bytes);
    text
}

pub(crate) fn activities(registry: &mut ActivityRegistry) {
    registry.register("step", |_, input: String| async move { Ok(format!("{input}{}", "y".repeat(100))) });
    registry.register("long", |_, (seed, bytes): (u64, usize)| async move { Ok(words(seed, bytes)) });
}

pub(crate) fn workflows() -> WorkflowRegistry {
    WorkflowRegistry::new()
        .workflow("long", |ctx: WfContext, long: Long| async move {
            let mut seen = 0;
            for step in 0..long.steps {
                let seed = ctx.random_u64() ^ step;
                seen += ctx.activity::<String>("long", &(seed, long.bytes), options()).await?.len();
            }
            Ok(seen)
        })
        .state_machine::<Steps>()
        .workflow("steps", |ctx: WfContext, steps: u64| async move {
            for _ in 0..steps {
                ctx.activity::<String>("step", &"x".repeat(40), options()).await?;
            }
            Ok(steps)
        })
        .workflow("fan-out", |ctx: WfContext, width: u64| async move {
            let all: Vec<_> = (0..width).map(|_| ctx.activity::<String>("step", &"x".repeat(40), options())).collect();
            for result in join_all(all).await {
                result?;
            }
            Ok(width)
        })
        .workflow("wait", |ctx: WfContext, _: u64| async move { ctx.signal_channel::<u64>("go").recv().await })
}

/// A worker with these workflows on a directory.
pub(crate) fn worker_at(runtime: &tokio::runtime::Runtime, directory: &std::path::Path) -> Worker {
    let mut options = WorkerOptions::at(directory);
    options.workflows = workflows();
    options.slots = 2_000;
    activities(&mut options.activities);
    let _inside = runtime.enter();
    Worker::start(options).expect("a worker")
}

/// A worker on a directory of its own.
pub(crate) struct Bench<'a> {
    runtime: &'a tokio::runtime::Runtime,
    worker: Worker,
    _directory: tempfile::TempDir,
    runs: std::cell::Cell<u64>,
}

impl<'a> Bench<'a> {
    pub(crate) fn start(runtime: &'a tokio::runtime::Runtime) -> Self {
        let directory = tempfile::tempdir_in(bench_dir()).expect("a directory");
        let worker = worker_at(runtime, directory.path());
        let bench = Bench { runtime, worker, _directory: directory, runs: std::cell::Cell::new(0) };
        bench.run_to_end("steps", 20); // warm
        bench
    }
    /// Groups that were committed so far.
    pub(crate) fn groups(&self) -> u64 {
        let info = self.runtime.block_on(self.worker.client().store_info()).expect("a store");
        info.last_group.0
    }
    pub(crate) fn time(&self, work: impl FnOnce()) -> Duration {
        super::timed(work)
    }
    fn next_id(&self) -> WorkflowId {
        self.runs.set(self.runs.get() + 1);
        WorkflowId::of(format!("bench-{}", self.runs.get()))
    }
    async fn one(client: &Client, workflow_type: &str, id: WorkflowId, input: impl Serialize) {
        let start = StartWorkflow::new(workflow_type.into(), id.clone()).input(Payload::encode(&input).expect("json"));
        client.start(start).await.expect("a start");
        let wait = ResultRequest { follow_runs: true, timeout: None };
        let result = client.result(&Target::workflow(id), wait).await.expect("a result").expect("no timeout");
        assert_eq!(result.outcome.status(), WorkflowStatus::Completed, "{:?}", result.outcome);
    }
    pub(crate) fn run_to_end(&self, workflow_type: &str, input: u64) {
        let client = self.worker.client();
        self.runtime.block_on(Self::one(&client, workflow_type, self.next_id(), input));
    }
    pub(crate) fn run_many<I>(&self, workflow_type: &'static str, runs: usize, input: I)
    where
        I: Serialize + Clone + Send + Sync + 'static,
    {
        let ids: Vec<WorkflowId> = (0..runs).map(|_| self.next_id()).collect();
        self.runtime.block_on(async {
            let tasks: Vec<_> = ids
                .into_iter()
                .map(|id| {
                    let (client, input) = (self.worker.client(), input.clone());
                    tokio::spawn(async move { Self::one(&client, workflow_type, id, input).await })
                })
                .collect();
            for task in tasks {
                task.await.expect("a run");
            }
        });
    }
    /// After `rest` has passed since the start, so that everything sleeps that may.
    pub(crate) fn signal_to_completion(&self, times: usize, rest: Duration) -> Vec<Duration> {
        let client = self.worker.client();
        (0..times)
            .map(|_| {
                let id = self.next_id();
                self.runtime.block_on(async {
                    let start = StartWorkflow::new("wait".into(), id.clone()).input(Payload::raw_json("0"));
                    client.start(start).await.expect("a start");
                    std::thread::sleep(rest);
                    let target = Target::workflow(id);
                    let begun = Instant::now();
                    let signal = SignalRequest {
                        name: "go".into(),
                        input: Payload::raw_json("1"),
                        identity: None,
                        request_id: None,
                    };
                    client.signal(&target, signal).await.expect("a signal");
                    let wait = ResultRequest { follow_runs: true, timeout: None };
                    client.result(&target, wait).await.expect("a result");
                    begun.elapsed()
                })
            })
            .collect()
    }
}

impl Bench<'_> {
    /// Runs that wait for ever are started, `at_once` at a time; starts a second.
    pub(crate) fn starts(&self, count: usize, at_once: usize) -> f64 {
        let ids: Vec<WorkflowId> = (0..count).map(|_| self.next_id()).collect();
        let client = self.worker.client();
        let time = super::timed(|| {
            self.runtime.block_on(async {
                let starts = ids.into_iter().map(|id| {
                    let (client, start) = (client.clone(), StartWorkflow::new("wait".into(), id));
                    async move { client.start(start.input(Payload::raw_json("0"))).await.expect("a start") }
                });
                futures_util::stream::iter(starts).buffer_unordered(at_once).for_each(|_| async {}).await;
            });
        });
        count as f64 / time.as_secs_f64()
    }
}

/// The turns of a run of so many steps, as a worker would have written them.
fn history(workflow_type: &str, steps: u64) -> Vec<Turn> {
    let started = EventKind::WorkflowExecutionStarted(Box::new(started(workflow_type, steps)));
    let mut turns = Vec::new();
    let mut next = EventId(1);
    let mut turn = |events: Vec<EventKind>| {
        let first_event = next;
        next = EventId(next.0 + events.len() as u64);
        turns.push(Turn::of(RunId([1; 16]), first_event, Timestamp(first_event.0 as i64), BuildId(0), events));
    };
    turn(std::iter::once(started).chain(scheduled(1)).collect());
    for seq in 1..=steps {
        let result = Payload::encode(&"r".repeat(100)).expect("json");
        let done = EventKind::ActivityTaskCompleted { seq: Seq(seq), result, identity: None };
        let more = if seq < steps { scheduled(seq + 1) } else { Vec::new() };
        turn(
            std::iter::once(done).chain(more).chain((seq == steps).then(|| completed(workflow_type, steps))).collect(),
        );
    }
    turns
}

/// F07: replays one long history, events a second.
pub(crate) fn replay_speed(workflow_type: &str, steps: u64) -> f64 {
    let (registry, turns) = (workflows(), history(workflow_type, steps));
    let events: usize = turns.iter().map(|turn| turn.events.len()).sum();
    let begun = Instant::now();
    let replayed = bosun_engine::workflow::replay(&registry, &turns);
    let time = begun.elapsed();
    assert!(replayed.is_ok(), "{:?}", replayed.err());
    events as f64 / time.as_secs_f64()
}

/// E37: brings a run of so many steps back from a snapshot that is ten turns old; microseconds.
pub(crate) fn resume_cost(workflow_type: &str, steps: u64) -> f64 {
    let (registry, mut turns) = (workflows(), history(workflow_type, steps));
    // A run that is over needs no code.
    turns.pop();
    let (before, after) = turns.split_at(turns.len() - 10);
    let whole = Execution::load(before, &registry, BuildId(0)).expect("a history");
    let code = whole.snapshot().expect("a state machine");
    let facts = whole.run().clone();
    let begun = Instant::now();
    let driver = registry.restore(&workflow_type.into(), facts.id(), &code).expect("a snapshot of this code");
    let resumed = Execution::resume(facts, driver, after, BuildId(0)).expect("the turns after it");
    let time = begun.elapsed();
    assert_eq!(resumed.run().info().history.events, turns.iter().map(|turn| turn.events.len() as u64).sum::<u64>());
    time.as_secs_f64() * 1e6
}

fn completed(workflow_type: &str, steps: u64) -> EventKind {
    let result = Payload::encode(&if workflow_type == "steps" { steps } else { 0 }).expect("json");
    EventKind::WorkflowExecutionCompleted { result, unhandled_signals: Vec::new() }
}

fn scheduled(seq: u64) -> Vec<EventKind> {
    let scheduled = ActivityTaskScheduled {
        seq: Seq(seq),
        activity_id: ActivityId::of(seq.to_string()),
        activity_type: "step".into(),
        input: Payload::encode(&"x".repeat(40)).expect("json"),
        options: options(),
    };
    vec![
        EventKind::ActivityTaskScheduled(Box::new(scheduled)),
        EventKind::ActivityTaskStarted { seq: Seq(seq), attempt: Attempt(1) },
    ]
}

fn started(workflow_type: &str, steps: u64) -> WorkflowExecutionStarted {
    let input = Payload::encode(&steps).expect("json");
    StartWorkflow::new(workflow_type.into(), "replayed".into()).input(input).first_event(RunId([1; 16]), Timestamp(0))
}
