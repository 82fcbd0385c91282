//! The workflows that are measured, and a worker on a real directory that runs them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bosun_engine::machine::Execution;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry, join_all};
use bosun_engine::*;
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

pub(crate) fn workflows() -> WorkflowRegistry {
    WorkflowRegistry::new()
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
    options.activities.register("step", |_, input: String| async move { Ok(format!("{input}{}", "y".repeat(100))) });
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
    pub(crate) fn time(&self, work: impl FnOnce()) -> Duration {
        super::timed(work)
    }
    fn next_id(&self) -> WorkflowId {
        self.runs.set(self.runs.get() + 1);
        WorkflowId::of(format!("bench-{}", self.runs.get()))
    }
    async fn one(client: &Client, workflow_type: &str, id: WorkflowId, input: u64) {
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
    pub(crate) fn run_many(&self, workflow_type: &'static str, runs: usize, input: u64) {
        let ids: Vec<WorkflowId> = (0..runs).map(|_| self.next_id()).collect();
        self.runtime.block_on(async {
            let tasks: Vec<_> = ids
                .into_iter()
                .map(|id| {
                    let client = self.worker.client();
                    tokio::spawn(async move { Self::one(&client, workflow_type, id, input).await })
                })
                .collect();
            for task in tasks {
                task.await.expect("a run");
            }
        });
    }
    pub(crate) fn signal_to_completion(&self, times: usize) -> Vec<Duration> {
        let client = self.worker.client();
        (0..times)
            .map(|_| {
                let id = self.next_id();
                self.runtime.block_on(async {
                    let start = StartWorkflow::new("wait".into(), id.clone()).input(Payload::raw_json("0"));
                    client.start(start).await.expect("a start");
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
