//! What an event of a supervisor costs as its plan or its mailbox grows, and how large its state is.
//! `cargo bench -p bosun-worker --bench supervisor [-- graph 10000 | mailbox 100000]`
//!
//! One run through the workflow's own driver, with answers that come at once: no log, no disk, no agents. Each run is
//! told in ten equal parts of its events, so that growth is seen: the last part costs as much as the first. The start
//! (the plan is taken in) and the end (the report) are told by themselves. Medians of rounds.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program of its own, around what decides")]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_worker::supervisor::run::{SUPERVISOR, SupervisorInput, register};
use bosun_worker::supervisor::spec::read_spec;
use serde_json::{Value, json};

const PARTS: usize = 10;
const RUN: RunId = RunId([3; 16]);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |text: &str| text.parse::<usize>().expect("a number");
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["graph", tasks] => graphs(number(tasks), 1),
        ["mailbox", messages] => mailbox(number(messages), 1),
        _ => {
            for tasks in [1_000, 10_000] {
                graphs(tasks, 3);
            }
            for messages in [10_000, 100_000] {
                mailbox(messages, 3);
            }
        }
    }
}

/// The edges of a task in each form of plan.
const FORMS: [(&str, fn(usize) -> Vec<usize>); 3] = [
    ("wide", |_| Vec::new()),
    ("chain", |n| n.checked_sub(1).into_iter().collect()),
    // Layers of ten; each task needs two of the layer before.
    ("layers", |n| if n < 10 { Vec::new() } else { vec![n / 10 * 10 - 10 + n % 10, n / 10 * 10 - 10 + (n + 1) % 10] }),
];

fn graphs(tasks: usize, rounds: usize) {
    for (form, edges) in FORMS {
        let plan = Some(plan(tasks, edges));
        let lives: Vec<Life> = (0..rounds).map(|_| Life::new(GRAPH, plan.clone()).live(Vec::new())).collect();
        report(&format!("graph of {tasks} tasks, {form}"), lives);
    }
}

const GRAPH: &str = "kind: supervisor\nname: bench\npreset: shannon-dag\nobjective: Do it\n\
    dispatch: { max_concurrency: 8 }\nagents: [{ name: worker, description: Works. }]\n\
    script: [{ on: execute_worker, say: done }, { on: synthesize, say: All done. }, { on: plan, say: see below }]";

/// What the planner says: files are not read beyond 50 000 nodes.
fn plan(tasks: usize, edges: fn(usize) -> Vec<usize>) -> Value {
    let task = |n: usize| {
        let deps: Vec<String> = edges(n).iter().map(|on| format!("t{on}")).collect();
        json!({ "id": format!("t{n}"), "goal": format!("Task {n}"), "deps": deps })
    };
    json!({ "complexity": 0.5, "tasks": (0..tasks).map(task).collect::<Vec<_>>() })
}

/// A run whose only task takes long, and messages for it.
fn mailbox(messages: usize, rounds: usize) {
    let spec = "kind: supervisor\nname: bench\npreset: shannon-supervisor\nobjective: Do it\n\
                agents: [{ name: worker, description: Works. }]\n\
                script: [{ on: plan, say: { complexity: 0.5, tasks: [{ id: a, goal: Long }, { id: b, goal: Longer }] } },\
                { on: execute_worker, say: done, after: 10h }, { on: synthesize, say: Done. }]";
    let message =
        |n: usize| json!({ "From": "ann", "To": format!("agent-{}", n % 10), "Content": format!("message {n}") });
    let lives: Vec<Life> = (0..rounds)
        .map(|_| Life::new(spec, None).live((0..messages).map(|n| signal("mailbox_v1", &message(n))).collect()))
        .collect();
    report(&format!("{messages} messages"), lives);
}

fn signal(name: &str, input: &Value) -> Job {
    let input = Payload::encode(input).expect("JSON");
    Job::SignalWorkflow(WorkflowExecutionSignaled { name: name.into(), input, identity: None, request_id: None })
}

/// One run and what it cost.
struct Life {
    driver: Box<dyn Driver>,
    /// What the planner says, if it is not in the script.
    plan: Option<Value>,
    jobs: VecDeque<Job>,
    now: Timestamp,
    /// Real time of each event, in order.
    took: Vec<Duration>,
    /// Bytes of the state at the end.
    state: usize,
    closed: bool,
}

impl Life {
    fn new(spec: &str, plan: Option<Value>) -> Self {
        let file = read_spec("bench.yaml", spec).unwrap_or_else(|why| panic!("{why}"));
        let input = SupervisorInput::new(file.resolve().unwrap_or_else(|why| panic!("{why}")));
        let now = Timestamp(1_767_225_600_000_000);
        let request = StartWorkflow::new(WorkflowType::of(SUPERVISOR), WorkflowId::of("bench"))
            .input(Payload::encode(&input).expect("JSON"));
        let first = request.first_event(RUN, now);
        let driver = register(WorkflowRegistry::new()).create(&first, RUN).unwrap_or_else(|why| panic!("{why}"));
        let jobs = VecDeque::from([Job::InitializeWorkflow(Box::new(first))]);
        Life { driver, plan, jobs, now, took: Vec::new(), state: 0, closed: false }
    }

    /// All that comes by itself, then these one by one.
    fn live(mut self, signals: Vec<Job>) -> Self {
        self.go();
        let open = !signals.is_empty();
        if open {
            self.took.clear();
        }
        for signal in signals {
            self.jobs.push_back(signal);
            self.go();
        }
        assert!(self.closed != open, "a graph runs to its end, a mailbox stays open");
        self.state = self.driver.snapshot().map_or(0, |bytes| bytes.len());
        self
    }

    fn go(&mut self) {
        while let Some(job) = self.jobs.pop_front() {
            if self.closed {
                return;
            }
            let (at, run_id) = (self.now, RUN);
            let activation = Activation { at, run_id, history: HistorySize::default(), job, markers: Markers::Fresh };
            let begun = Instant::now();
            let commands = self.driver.activate(activation);
            self.took.push(begun.elapsed());
            commands.into_iter().for_each(|command| self.carry_out(command));
        }
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::ScheduleActivity { seq, input, .. } => {
                let input = input.to_json();
                let plan = self.plan.as_ref().filter(|_| input["purpose"] == "plan");
                let result = Payload::encode(plan.unwrap_or(&input["answer"]["say"])).expect("JSON");
                self.jobs.push_back(Job::ResolveActivity { seq, result: Ok(result) });
            }
            Command::CompleteWorkflow { .. } => self.closed = true,
            Command::FailWorkflow { failure, .. } => panic!("{failure}"),
            // Time stands still: what takes its time does not come.
            _ => {}
        }
    }
}

fn report(what: &str, lives: Vec<Life>) {
    let median = |mut all: Vec<Duration>| {
        all.sort();
        all[all.len() / 2]
    };
    let total = median(lives.iter().map(|life| life.took.iter().sum()).collect());
    let events = lives[0].took.len();
    println!(
        "{what}: {events} events in {total:.1?}, {:.1?} an event; state {} kB",
        total / events as u32,
        lives[0].state / 1_000
    );
    let ends = |of: fn(&[Duration]) -> Duration| median(lives.iter().map(|life| of(&life.took)).collect());
    println!("  slowest of the first three {:.1?}, slowest of the last three {:.1?}", ends(first), ends(last));
    let part = |n: usize| {
        let mean = |life: &Life| {
            let inner = &life.took[3..events - 3];
            let part = &inner[inner.len() * n / PARTS..inner.len() * (n + 1) / PARTS];
            part.iter().sum::<Duration>() / part.len().max(1) as u32
        };
        format!("{:.1?}", median(lives.iter().map(mean).collect()))
    };
    println!("  an event in each tenth: {}", (0..PARTS).map(part).collect::<Vec<_>>().join(" "));
}

fn first(took: &[Duration]) -> Duration {
    took.iter().take(3).max().copied().unwrap_or_default()
}

fn last(took: &[Duration]) -> Duration {
    took.iter().rev().take(3).max().copied().unwrap_or_default()
}
