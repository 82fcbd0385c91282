//! Random lives of the task machine and of the graph machine.
//!
//! Invariant: what a life is judged by is computed here from the plan and from what was noted, not by the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bosun_engine::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::*;
use crate::supervisor::core::awaited::AwaitedKeys;
use crate::supervisor::model::{Condition, DependencyPolicy, Edge, Requires};
use crate::supervisor::outbox::CallFailure;

const ACTORS: [Actor; 5] = [Actor::Scheduler, Actor::Worker, Actor::Critic, Actor::Supervisor, Actor::Human];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// PDT-12: random requests by random actors: one that the table has is done, one that asks for the status there is
    /// is none, every other is refused and changes nothing; a terminal status never changes.
    #[test]
    fn a_task_follows_the_table_whoever_asks(
        requests in vec((select(&TaskStatus::ALL[..]), select(&ACTORS[..])), 1..40),
    ) {
        let mut task = Task::new(TaskId::of("t"), "g");
        let mut ended: Option<TaskStatus> = None;
        for (to, by) in requests {
            let before = task.clone();
            match task.change(to, by) {
                Ok(from) => {
                    prop_assert_eq!(from, before.status);
                    prop_assert!(from == to || from.may_become(to, by), "{} -> {} by {}", from, to, by);
                    prop_assert_eq!(&task, &Task { status: to, ..before });
                }
                Err(why) => {
                    prop_assert!(before.status != to && !before.status.may_become(to, by));
                    prop_assert_eq!((why.from, why.to, why.by), (before.status, to, by));
                    prop_assert_eq!(&task, &before, "a refused request changes nothing");
                }
            }
            if let Some(ended) = ended {
                prop_assert_eq!(task.status, ended, "a terminal status never changes");
            }
            ended = ended.or(Some(task.status).filter(|status| status.is_terminal()));
        }
    }

    /// PDT-13, PDT-15: random plans, answers, failures, reviews, approvals, pauses and patches: no more workers
    /// than slots, at every start every dependency is satisfied, each (task, attempt) is called once, what is over
    /// stays as it is, who does not run is told why, and every run ends once everybody has answered.
    #[test]
    fn every_graph_ends_or_says_what_it_waits_for(
        tasks in arb_tasks(), rules in arb_rules(), happenings in vec((any::<u8>(), any::<u8>()), 0..60),
    ) {
        let mut life = Life::new(rules, tasks);
        life.check()?;
        for (what, which) in happenings {
            life.happens(what, usize::from(which));
            life.check()?;
        }
        life.everybody_answers()?;
        prop_assert!(life.graph.phase.is_terminal(), "{:?}: {}", life.graph.phase, life.told());
        let running: Vec<&TaskId> = life.graph.plan.tasks.values()
            .filter(|task| task.status == TaskStatus::Running).map(|task| &task.id).collect();
        prop_assert!(running.is_empty(), "still running: {:?}", running);
    }
}

fn arb_edge(on: usize) -> impl Strategy<Value = Edge> {
    let requires =
        select(vec![Requires::Completed, Requires::Completed, Requires::CompletedOrSkipped, Requires::Terminal]);
    let unmet = select(vec![
        None,
        None,
        Some(DependencyPolicy::Wait),
        Some(DependencyPolicy::Skip),
        Some(DependencyPolicy::Cancel),
        Some(DependencyPolicy::Run),
        Some(DependencyPolicy::Block),
    ]);
    let when = prop::option::weighted(0.2, 0..3_u8).prop_map(|value| {
        value.map(|value| serde_json::from_value::<Condition>(json!({ "path": "n", "equals": value })).unwrap())
    });
    (requires, unmet, when).prop_map(move |(requires, on_failure, when)| Edge {
        on: TaskId::from(on as u64 + 1),
        requires,
        when,
        on_failure,
    })
}

fn arb_tasks() -> impl Strategy<Value = Vec<Task>> {
    (1..9_usize).prop_flat_map(|count| (0..count).map(arb_task).collect::<Vec<_>>())
}

fn arb_task(n: usize) -> impl Strategy<Value = Task> {
    let edges = (0..n).map(|on| prop::option::weighted(0.35, arb_edge(on))).collect::<Vec<_>>();
    let priority = select(vec![Priority::High, Priority::Medium, Priority::Low, Priority::None]);
    (edges, priority, prop::bool::weighted(0.2), 1..4_u32).prop_map(move |(edges, priority, asks, reviews)| Task {
        edges: edges.into_iter().flatten().collect(),
        priority,
        requires_approval: asks,
        max_attempts: reviews,
        ..Task::new(TaskId::from(n as u64 + 1), format!("task {n}"))
    })
}

fn arb_rules() -> impl Strategy<Value = GraphRules> {
    let unmet = || {
        select(vec![
            DependencyPolicy::Wait,
            DependencyPolicy::Skip,
            DependencyPolicy::Cancel,
            DependencyPolicy::Run,
            DependencyPolicy::Block,
        ])
    };
    let exhausted = select(vec![
        OnTriesExhausted::Errored,
        OnTriesExhausted::Failed,
        OnTriesExhausted::Skip,
        OnTriesExhausted::Abort,
    ]);
    let review = select(vec![ReviewScope::None, ReviewScope::Task]);
    (
        (prop::option::of(1..4_u32), any::<bool>(), unmet(), unmet(), any::<bool>()),
        (prop::option::of(1_000..5_000_u64), review, 1..4_u32, select(vec![0, 500_u64]), exhausted),
        prop::option::of(select(vec![2_000_u32, 5_000])),
    )
        .prop_map(
            |((max_concurrency, sequential, on_failure, on_cancelled, cancel_running), more, threshold_bp)| {
                let (dependency_timeout_ms, review, tries, retry_backoff_ms, on_exhausted) = more;
                GraphRules {
                    planning: PlanSource::Fixed,
                    synthesis: ResultSource::Merge,
                    max_concurrency,
                    sequential,
                    on_failure,
                    on_cancelled,
                    cancel_running,
                    dependency_timeout_ms,
                    review,
                    tries,
                    retry_backoff_ms,
                    on_exhausted,
                    threshold_bp,
                    ..GraphRules::default()
                }
            },
        )
}

/// People, in two words: whether all is held, and that some tasks need an approval.
#[derive(Default)]
struct People {
    held: bool,
}

impl Gates for People {
    fn held(&self) -> Option<String> {
        self.held.then(|| "paused".to_owned())
    }
    fn may_start(&mut self, task: &Task, _out: &mut Outbox) -> Start {
        if task.requires_approval && !task.approved { Start::NeedsApproval } else { Start::Go }
    }
}

struct Life {
    graph: Graph,
    people: People,
    now: Timestamp,
    awaited: AwaitedKeys,
    calls: BTreeMap<GraphKey, Call>,
    timers: BTreeMap<GraphKey, Timestamp>,
    seen: BTreeSet<Key>,
    ended: BTreeMap<TaskId, TaskStatus>,
    wrong: Option<String>,
}

impl Life {
    fn new(rules: GraphRules, tasks: Vec<Task>) -> Self {
        let mut plan = TaskPlan::new("o");
        plan.add(tasks).unwrap();
        let mut life = Life {
            graph: Graph::new(rules, plan),
            people: People::default(),
            now: Timestamp(1_767_225_600_000_000),
            awaited: AwaitedKeys::default(),
            calls: BTreeMap::new(),
            timers: BTreeMap::new(),
            seen: BTreeSet::new(),
            ended: BTreeMap::new(),
            wrong: None,
        };
        life.turn(|graph, people, out| graph.start(people, out));
        life
    }

    fn turn(&mut self, act: impl FnOnce(&mut Graph, &mut People, &mut Outbox)) {
        let mut out = Outbox::new("run", self.now).with_awaited(std::mem::take(&mut self.awaited));
        let held = self.people.held;
        act(&mut self.graph, &mut self.people, &mut out);
        self.awaited = out.take_awaited();
        for ask in out.take().0 {
            match ask {
                Ask::Call(call) => {
                    self.starts(&call, held && self.people.held);
                    self.calls.insert(call.key.clone().try_into().unwrap(), call);
                }
                Ask::CancelCall { key } => drop(self.calls.remove(&key.try_into().unwrap())),
                Ask::Timer { key, at, .. } => drop(self.timers.insert(key.try_into().unwrap(), at)),
                Ask::CancelTimer { key } => drop(self.timers.remove(&key.try_into().unwrap())),
                other => panic!("a graph asks for nothing else: {other:?}"),
            }
        }
    }

    fn starts(&mut self, call: &Call, held: bool) {
        if !self.seen.insert(call.key.clone()) {
            self.wrong = Some(format!("{} is called twice", call.key));
        }
        let Some(id) = call.task.as_ref().filter(|_| call.purpose == Purpose::ExecuteWorker) else { return };
        let task = &self.graph.plan.tasks[id];
        if held {
            self.wrong = Some(format!("paused, and task {id} starts"));
        }
        if let Some(edge) = task.edges.iter().find(|edge| !self.lets_run(edge)) {
            self.wrong = Some(format!("task {id} starts, and task {} does not let it", edge.on));
        }
        if task.requires_approval && !task.approved {
            self.wrong = Some(format!("task {id} starts without its approval"));
        }
    }

    /// Whether an edge lets its task run, by §4.1 no. 7 and 8.
    fn lets_run(&self, edge: &Edge) -> bool {
        let on = &self.graph.plan.tasks[&edge.on];
        let rules = &self.graph.rules;
        let met = match edge.requires {
            Requires::Completed => on.status == TaskStatus::Completed,
            Requires::CompletedOrSkipped => {
                on.status == TaskStatus::Completed
                    || on.status == TaskStatus::Skipped
                        && on.skipped != Some(crate::supervisor::model::SkipReason::DependencyFailed)
            }
            Requires::Terminal => on.status.is_terminal(),
        };
        let holds = edge.when.as_ref().is_none_or(|when| when.holds(on.result.as_ref().unwrap_or(&Value::Null)));
        let policy = match (met, on.status) {
            (true, _) => edge.on_failure.unwrap_or(DependencyPolicy::Skip),
            (false, TaskStatus::Cancelled) => edge.on_failure.unwrap_or(rules.on_cancelled),
            (false, _) => edge.on_failure.unwrap_or(rules.on_failure),
        };
        (met && holds) || (on.status.is_terminal() && policy == DependencyPolicy::Run)
    }

    fn happens(&mut self, what: u8, which: usize) {
        let id = TaskId::from(which as u64 % self.graph.plan.tasks.len() as u64 + 1);
        match what % 16 {
            0..=7 => self.answer(which, what),
            8 => self.time(),
            9 => self.people.held = true,
            10 => self.hold_off(),
            11 => self.approve(&id),
            12 => self.turn(|graph, people, out| graph.rejected(&id, "no", Actor::Human, people, out)),
            13 => self.by_person("cancel_task", json!({ "task_id": id })),
            14 => {
                let to = ["pending", "blocked", "cancelled", "completed"][which % 4];
                self.by_person("update_task_status", json!({ "task_id": id, "status": to }));
            }
            _ => {
                let on = TaskId::from((which as u64 / 7) % self.graph.plan.tasks.len() as u64 + 1);
                self.by_person(
                    "patch_task",
                    json!({ "task_id": id, "dependencies": [on], "sub_task_objective": "else" }),
                );
            }
        }
    }

    fn by_person(&mut self, tool: &str, args: Value) {
        let Value::Object(args) = args else { return };
        // Refusals are part of it.
        self.turn(|graph, people, out| {
            let _ = graph.tool(tool, &args, Actor::Human, people, out);
            graph.advance(people, out);
        });
    }

    fn approve(&mut self, id: &TaskId) {
        self.turn(|graph, people, out| graph.approved(id, "", None, people, out));
    }

    fn hold_off(&mut self) {
        self.people.held = false;
        self.turn(|graph, people, out| graph.advance(people, out));
    }

    fn answer(&mut self, which: usize, how: u8) {
        let Some(key) = self.calls.keys().nth(which % self.calls.len().max(1)).cloned() else { return };
        let Some(call) = self.calls.remove(&key) else { return };
        let answer = match (call.purpose, how) {
            (Purpose::Review, 0..=4) => Ok(json!({ "passed": true, "feedback": "" })),
            (Purpose::Review, 5 | 6) => Ok(json!({ "passed": false, "feedback": "again" })),
            (_, 0..=4) => Ok(json!({ "n": which % 3 })),
            (_, 5) => Ok(Value::Null),
            _ => Err(CallFailure::error("broken")),
        };
        self.turn(|graph, people, out| graph.answered(&key, answer, people, out));
    }

    fn time(&mut self) {
        let Some((at, key)) = self.timers.iter().map(|(key, at)| (*at, key.clone())).min() else { return };
        self.timers.remove(&key);
        self.now = self.now.max(at).plus(Duration::from_millis(1));
        self.turn(|graph, people, out| graph.fired(&key, people, out));
    }

    /// From now on everybody answers, and well.
    fn everybody_answers(&mut self) -> Result<(), TestCaseError> {
        self.hold_off();
        for _ in 0..2_000 {
            self.check()?;
            let waits = |task: &&Task| task.status == TaskStatus::AwaitingApproval;
            let approval = self.graph.plan.tasks.values().find(waits).map(|task| task.id.clone());
            match approval {
                _ if self.graph.phase.is_terminal() => return Ok(()),
                Some(id) => self.approve(&id),
                None if !self.calls.is_empty() => self.answer(0, 0),
                None if !self.timers.is_empty() => self.time(),
                None => return Ok(()),
            }
        }
        prop_assert!(false, "the run does not end: {}", self.told());
        Ok(())
    }

    fn told(&self) -> String {
        self.graph.plan.tasks.values().map(|task| format!("{}={} ", task.id, task.status)).collect()
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        prop_assert_eq!(&self.wrong, &None);
        let working = self.calls.keys().filter(|key| matches!(key, GraphKey::Execute { .. })).count();
        prop_assert!(working <= self.graph.rules.slots(), "{} workers", working);
        let written: Graph = serde_json::from_value(json!(self.graph)).unwrap();
        prop_assert!(written == self.graph, "the state survives being written");
        for task in self.graph.plan.tasks.values() {
            let ended = self.ended.entry(task.id.clone()).or_insert(task.status);
            prop_assert!(!ended.is_terminal() || *ended == task.status, "task {} left {}", task.id, ended);
            *ended = task.status;
        }
        let mut out = Outbox::new("run", self.now).with_awaited(self.awaited.clone());
        let open: Vec<TaskId> = self.graph.open.iter().cloned().collect();
        for id in open.into_iter().filter(|_| !self.graph.phase.is_terminal()) {
            let task = &self.graph.plan.tasks[&id];
            let told = self.graph.why_not_running(&id, &mut self.people, &mut out);
            let reasons = told.map(|told| told.reasons).unwrap_or_default();
            let runs = task.status == TaskStatus::Running;
            prop_assert!(runs == reasons.is_empty(), "task {} is {}: {:?}; {}", id, task.status, reasons, self.told());
        }
        if self.graph.phase.is_terminal() {
            prop_assert!(self.calls.is_empty(), "over, with calls under way: {:?}", self.calls.keys());
        }
        Ok(())
    }
}
