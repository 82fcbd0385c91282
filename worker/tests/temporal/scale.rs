//! Faults at scale: two workers that are killed with -9 at random moments over a mixed load, and a server that is killed as well.
//!
//! ```text
//!   start a run ─► two workers ─► kill -9 one of them, or the server ─► another in its place ─► …
//!        └──► people: approve, signal and update what waits ─────────────────────────────────┘
//! ```
//!
//! Invariant: the moments come from a seed, so a failure can be had again; what is judged is how every run ends and what its history
//! holds, never how long it took. A tenth is a scene as others; the whole is one of `--ignored`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::Scene;
use super::rig::{Cluster, Worker, shown};
use super::supervisors::quick;

pub(super) const SCENES: &[Scene] = &[("two_workers_and_the_server_are_killed_over_a_mixed_load", a_tenth)];
/// Those that take long.
pub(super) const FULL: &[Scene] = &[("two_workers_and_the_server_are_killed_200_times", the_whole)];

fn a_tenth(cluster: &Cluster) {
    killed(cluster, 20, 10);
}

fn the_whole(cluster: &Cluster) {
    killed(cluster, 200, 10);
}

/// Moments that differ, the same in every run of the test.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        // Of Knuth; its upper digits are good enough to choose moments.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Steps,
    Children,
    Messages,
    Approval,
    Agents,
}

const KINDS: [Kind; 5] = [Kind::Steps, Kind::Approval, Kind::Children, Kind::Messages, Kind::Agents];

impl Kind {
    fn start(self, cluster: &Cluster, queue: &str, id: &str) {
        let spec = match self {
            Kind::Approval => "approved",
            Kind::Agents => "agents",
            Kind::Steps | Kind::Children | Kind::Messages => return cluster.start_program(queue, id, &self.program()),
        };
        // It works as well as long as it waits, and is killed as the others are.
        let works = cluster.spawn(&["run", &file(cluster, spec), "-w", id, "-q", queue]);
        cluster.until("it has started", || cluster.run(&["describe", id]).status.success().then_some(()));
        works.kill();
    }

    fn program(self) -> Value {
        let retry = json!({ "initial_interval": "50ms" });
        let echo = |value: Value, save: &str| json!({ "activity": { "type": "echo", "input": value, "as": save, "start_to_close": "3s", "retry": retry } });
        let fails = json!({ "activity": { "type": "fail_n_times", "input": { "times": 2, "value": 7 }, "as": "f", "start_to_close": "3s", "retry": retry } });
        let steps = match self {
            Kind::Steps => json!([
                { "uuid": "u" }, echo(json!("$u"), "first"),
                { "loop": { "times": 6, "as": "i", "steps": [
                    { "side_effect": { "value": "$i", "as": "s" } }, echo(json!("$s"), "e"), { "timer": "40ms" } ] } },
                echo(json!("$u"), "last"),
                { "if": { "var": "first", "equals": "$last", "then": [{ "return": ["$i", "$s", "$e"] }], "else": [{ "return": "other values" }] } }
            ]),
            Kind::Children => {
                let inner = json!({ "steps": [echo(json!(1), "a"), fails, { "side_effect": { "value": "$f", "as": "s" } }, { "return": "$s" }] });
                let child = |save: &str| json!({ "child": { "type": "kitchen-sink", "input": inner, "as": save } });
                json!([{ "parallel": [[child("x")], [child("y")], [echo(json!(3), "z")]] }, { "timer": "300ms" }, { "return": ["$x", "$y", "$z"] }])
            }
            _ => json!([
                { "set": { "ready": false } }, echo(json!(1), "a"),
                { "wait_signal": { "name": "go", "as": "go" } }, echo(json!("$go"), "b"),
                { "wait_var": { "name": "ready", "equals": true } }, echo(json!(2), "c"),
                { "return": ["$a", "$b", "$c"] }
            ]),
        };
        json!({ "steps": steps })
    }

    /// What the run has to give; of supervisors, something in it.
    fn judge(self, id: &str, (exit, result): &(i32, Value)) {
        let given = &result["result"];
        let right = match self {
            Kind::Steps => *given == json!([5, 5, 5]),
            Kind::Children => *given == json!([7, 7, 3]),
            Kind::Messages => *given == json!([1, "now", 2]),
            Kind::Approval => given.to_string().contains("Enter the market."),
            Kind::Agents => given.to_string().contains("The first is smaller"),
        };
        assert!(*exit == 0 && right, "{id} ({self:?}): exit {exit}: {result}");
    }
}

fn file(cluster: &Cluster, name: &str) -> String {
    cluster.folder.path().join(format!("{name}.yaml")).display().to_string()
}

fn write_specs(cluster: &Cluster) {
    let approved = format!("{}\nplanning: {{ approval: {{ required: true }} }}\n", quick("shannon-supervisor"));
    std::fs::write(file(cluster, "approved"), approved).unwrap();
    std::fs::write(file(cluster, "agents"), quick("pydantask-fixed")).unwrap();
}

/// How often each run was asked of a person, as the person sees it.
type Approved = BTreeMap<String, u32>;

/// Gives what is waited for, until all runs are started and nothing waits.
fn people(cluster: &Cluster, prefix: &str, over: &AtomicBool) -> Approved {
    let (mut approved, mut told) = (Approved::new(), BTreeMap::new());
    while !over.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(300));
        // While the server is away, everybody is asked again.
        let waiting = cluster.run(&["approval", "list", "-o", "json"]);
        let waiting: Value = serde_json::from_slice(&waiting.stdout).unwrap_or_default();
        for one in waiting["waiting"].as_array().into_iter().flatten() {
            let id = one["workflow_id"].as_str().unwrap_or_default();
            if id.starts_with(prefix) {
                let done = cluster.run(&["plan", "approve", id, "--version", "1", "--yes"]);
                *approved.entry(id.to_owned()).or_default() += u32::from(done.status.success());
            }
        }
        let query = "WorkflowType = 'kitchen-sink' AND ExecutionStatus = 'Running'";
        let open = cluster.run(&["list", "--query", query, "-o", "json"]);
        let open: Value = serde_json::from_slice(&open.stdout).unwrap_or_default();
        for one in open["workflows"].as_array().into_iter().flatten() {
            let id = one["workflow_id"].as_str().unwrap_or_default().to_owned();
            if !id.starts_with(prefix) || !id.ends_with("Messages") {
                continue;
            }
            let done: &mut (bool, bool) = told.entry(id.clone()).or_default();
            done.0 = done.0 || cluster.run(&["signal", "-w", &id, "go", "--input", "\"now\""]).status.success();
            let ready = ["update", "-w", &id, "set_var", "--input", "{\"name\": \"ready\", \"value\": true}"];
            done.1 = done.1 || cluster.run(&ready).status.success();
        }
    }
    approved
}

fn killed(cluster: &Cluster, kills: usize, server_every: usize) {
    let queue = cluster.name("scale");
    write_specs(cluster);
    let prefix = format!("{queue}-run-");
    let began = std::time::Instant::now();
    let over = AtomicBool::new(false);
    let mut runs = Vec::new();
    let (approved, logs) = std::thread::scope(|scope| {
        let persons = scope.spawn(|| people(cluster, &prefix, &over));
        let _over = Over(&over);
        let logs = kill(cluster, &queue, &prefix, kills, server_every, &mut runs);
        over.store(true, Ordering::Release);
        (persons.join().unwrap(), logs)
    });
    runs.iter().for_each(|(id, kind)| look(cluster, id, *kind, &approved));
    for log in logs {
        assert!(!log.contains("does not fit its history") && !log.contains("panicked at"), "{log}");
    }
    let servers = kills / server_every;
    println!(
        "  {} runs ended right over {} kills of workers and {servers} of the server, in {} s",
        runs.len(),
        kills - servers,
        began.elapsed().as_secs()
    );
}

/// The people go home, also where the work has failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Starts runs and kills, until all kills are done and all runs have ended right. The logs of the workers.
fn kill(
    cluster: &Cluster,
    queue: &str,
    prefix: &str,
    kills: usize,
    server_every: usize,
    runs: &mut Vec<(String, Kind)>,
) -> Vec<String> {
    let mut chance = Chance(16);
    let mut logs = Vec::new();
    let worker = || cluster.worker(queue, &["--max-cached-workflows", "20"]);
    let mut workers: [Worker; 2] = [worker(), worker()];
    for n in 0..kills {
        let kind = KINDS[n % KINDS.len()];
        let id = format!("{prefix}{n}-{kind:?}");
        kind.start(cluster, queue, &id);
        runs.push((id, kind));
        std::thread::sleep(Duration::from_millis(50 + chance.below(900)));
        if n % server_every == server_every - 1 {
            cluster.kill_server();
            std::thread::sleep(Duration::from_millis(chance.below(1_500)));
            cluster.start_server();
            continue;
        }
        let which = usize::try_from(chance.below(2)).unwrap_or(0);
        let gone = std::mem::replace(&mut workers[which], worker());
        logs.push(gone.log());
        gone.kill();
    }
    for (id, kind) in runs.iter() {
        kind.judge(id, &cluster.result(id));
    }
    logs.extend(workers.iter().map(Worker::log));
    for worker in workers {
        assert_eq!(worker.term(), 0);
    }
    logs
}

/// What the history of a run, and of its children, holds.
fn look(cluster: &Cluster, id: &str, kind: Kind, approved: &Approved) {
    let shown_run = cluster.temporal(&["workflow", "show", "-w", id, "--output", "json"]);
    let history: Value =
        serde_json::from_slice(&shown_run.stdout).unwrap_or_else(|_| panic!("{id}: {}", shown(&shown_run)));
    let events = history["events"].as_array().unwrap();
    let mut once = BTreeMap::new();
    for event in events {
        let name = event["eventType"].as_str().unwrap_or_default();
        let what = match name {
            "EVENT_TYPE_ACTIVITY_TASK_COMPLETED" => &event["activityTaskCompletedEventAttributes"]["scheduledEventId"],
            "EVENT_TYPE_MARKER_RECORDED" => &event["markerRecordedEventAttributes"]["details"]["data"],
            "EVENT_TYPE_WORKFLOW_TASK_FAILED" => {
                let cause = &event["workflowTaskFailedEventAttributes"]["cause"];
                assert!(!cause.to_string().contains("NON_DETERMINISTIC"), "{id}: {event}");
                continue;
            }
            "EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED" if kind == Kind::Children => {
                let child = &event["childWorkflowExecutionCompletedEventAttributes"]["workflowExecution"]["workflowId"];
                look(cluster, child.as_str().unwrap(), Kind::Steps, approved);
                continue;
            }
            _ => continue,
        };
        let before = once.insert((name, what.to_string()), &event["eventId"]);
        assert_eq!(before, None, "{id}: {event} happened twice");
    }
    if kind == Kind::Approval {
        assert_eq!(approved.get(id), Some(&1), "{id}: a person is asked once");
        let exported = cluster.run(&["export", id]);
        let history = String::from_utf8_lossy(&exported.stdout).into_owned();
        let count = |what: &str| history.matches(what).count();
        // The phase that waits for a person was entered once, and one answer is in the history.
        let asked = (count("\"to\": \"awaiting_plan_approval\""), count("\"name\": \"approve_plan\""));
        assert_eq!(asked, (1, 1), "{id}: {history}");
    }
}
