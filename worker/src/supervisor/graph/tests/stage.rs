//! A stage for the graph alone: scripted answers in virtual time, and every play doubted four ways.
//!
//! Invariant: each play is done straight, once more from its recorded inputs (same asks, same state), with the state
//! written and read back after every event, and with completions in other orders; no (task, attempt) is called twice.

use std::time::Duration;

use bosun_engine::Timestamp;

use super::super::*;
use crate::supervisor::core::account::{Allowance, Balance, Spent};
use crate::supervisor::outbox::CallFailure;
use crate::supervisor::spec::OnExhausted;

/// What an agent does: how long it takes, and what it answers.
pub(super) type Script<'s> = &'s dyn Fn(&Call) -> (u64, Answer);

pub(super) fn says(value: Value) -> (u64, Answer) {
    (1, Ok(value))
}
pub(super) fn fails(why: &str) -> (u64, Answer) {
    (1, Err(CallFailure::error(why)))
}

/// Agents of these names.
pub(super) fn workers(names: [&str; 2]) -> Vec<WorkerCard> {
    let card = |name: &str| WorkerCard {
        name: name.to_owned(),
        capability: name.to_owned(),
        description: String::new(),
        role: None,
        tools: Vec::new(),
        has_a_job: false,
    };
    names.map(card).to_vec()
}

#[derive(Debug, Clone)]
enum Happening {
    Answer(GraphKey, Answer),
    Fired(GraphKey),
    TimeIsOver,
}

pub(super) struct Played {
    pub(super) graph: Graph,
    pub(super) calls: Vec<Call>,
    keys: Vec<String>,
    pub(super) notes: Vec<crate::supervisor::journal::Note>,
    /// In seconds.
    pub(super) took: u64,
    pub(super) canceled: Vec<Key>,
    /// The most workers at once.
    pub(super) at_once: usize,
    /// As the account of a run would have it.
    pub(super) spent: Spent,
}

pub(super) struct Stage<'s> {
    rules: GraphRules,
    plan: TaskPlan,
    script: Script<'s>,
    /// Between events: what a person or program does to the graph, by the number of the event.
    act: Option<&'s dyn Fn(u32, &mut Graph, &mut Outbox)>,
    permute: u32,
    budget: Balance,
}

impl<'s> Stage<'s> {
    pub(super) fn new(rules: GraphRules, plan: TaskPlan, script: Script<'s>) -> Self {
        Stage { rules, plan, script, act: None, permute: 12, budget: Balance::default() }
    }
    pub(super) fn act(mut self, act: &'s dyn Fn(u32, &mut Graph, &mut Outbox)) -> Self {
        (self.act, self.permute) = (Some(act), 0);
        self
    }
    /// An account of so much, which every call goes through as in a run.
    pub(super) fn budget(mut self, allowance: Allowance, then: OnExhausted) -> Self {
        self.budget = Balance::new(allowance, then);
        self
    }
    /// The order of completions decides what happens, as it must (who fails first).
    pub(super) fn order_counts(mut self) -> Self {
        self.permute = 0;
        self
    }

    pub(super) fn play(self) -> Played {
        let straight = self.run(None, false);
        let written = self.run(None, true);
        assert!(straight.graph == written.graph, "the state survives being written after every event");
        assert_eq!(straight.calls, written.calls);
        let mut keys: Vec<&Key> = straight.calls.iter().map(|call| &call.key).collect();
        keys.sort();
        let all = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), all, "no key is used twice");
        for seed in 1..=u64::from(self.permute) {
            let other = self.run(Some(seed), false);
            assert_eq!(other.graph.digest(), straight.graph.digest(), "completions in the order of seed {seed}");
        }
        straight
    }

    fn run(&self, seed: Option<u64>, written: bool) -> Played {
        let begin = Timestamp(1_767_225_600_000_000);
        let mut now = begin;
        let mut graph = Graph::new(self.rules.clone(), self.plan.clone());
        let (mut calls, mut notes, mut canceled) = (Vec::new(), Vec::new(), Vec::new());
        let mut pending: Vec<(Timestamp, u32, Happening)> = Vec::new();
        let (mut count, mut order, mut at_once) = (0_u32, 0_u32, 0);
        let mut state = seed.unwrap_or(0);
        let mut budget = self.budget;
        if let Some(wall) = budget.allowance.wall_ms {
            pending.push((now.plus(Duration::from_millis(wall)), 0, Happening::TimeIsOver));
        }
        let mut out = Outbox::new("run", now).with_budget(budget);
        graph.start(&mut Open, &mut out);
        loop {
            let (asks, more) = out.take();
            notes.extend(more);
            for ask in asks {
                order += 1;
                match ask {
                    Ask::Call(call) => {
                        budget.sent(&call);
                        let (after, answer) = (self.script)(&call);
                        let at = now.plus(Duration::from_secs(after));
                        pending.push((at, order, Happening::Answer(of_graph(&call.key), answer)));
                        calls.push(call);
                    }
                    Ask::Timer { key, at, .. } => pending.push((at, order, Happening::Fired(of_graph(&key)))),
                    Ask::CancelTimer { key } => {
                        pending.retain(|(_, _, what)| !matches!(what, Happening::Fired(k) if *k == of_graph(&key)))
                    }
                    Ask::CancelCall { key } => {
                        pending.retain(|(_, _, what)| !matches!(what, Happening::Answer(k, _) if *k == of_graph(&key)));
                        canceled.push(key);
                    }
                    other => panic!("a graph asks for nothing else: {other:?}"),
                }
            }
            at_once = at_once.max(
                pending
                    .iter()
                    .filter(|(_, _, what)| matches!(what, Happening::Answer(GraphKey::Execute { .. }, _)))
                    .count(),
            );
            if pending.is_empty() {
                break;
            }
            pending.sort_by_key(|(at, order, _)| (*at, *order));
            let answers = pending.iter().filter(|(_, _, what)| matches!(what, Happening::Answer(..))).count();
            let next = match seed {
                Some(_) if answers > 0 => {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let nth = (state >> 33) as usize % answers;
                    pending
                        .iter()
                        .enumerate()
                        .filter(|(_, (_, _, what))| matches!(what, Happening::Answer(..)))
                        .nth(nth)
                        .map(|(place, _)| place)
                        .unwrap()
                }
                _ => 0,
            };
            let (at, _, what) = pending.remove(next);
            now = now.max(at);
            match &what {
                Happening::Answer(_, answer) => budget.charge(cost_of(answer)),
                Happening::TimeIsOver => budget.time_is_over(),
                Happening::Fired(_) => {}
            }
            out = Outbox::new("run", now).with_budget(budget).with_awaited(out.take_awaited());
            count += 1;
            assert!(count < 200_000, "the run does not end");
            if let Some(act) = self.act {
                act(count, &mut graph, &mut out);
            }
            match what {
                Happening::Answer(key, answer) => graph.answered(&key, answer, &mut Open, &mut out),
                Happening::TimeIsOver => graph.advance(&mut Open, &mut out),
                Happening::Fired(key) => graph.fired(&key, &mut Open, &mut out),
            }
            if written {
                let bytes = rmp_round_trip(&graph);
                graph = bytes;
            }
        }
        let took = now.since(begin).as_secs();
        let keys = calls.iter().map(|call| call.key.to_string()).collect();
        Played { graph, calls, keys, notes, took, canceled, at_once, spent: budget.spent }
    }
}

fn of_graph(key: &Key) -> GraphKey {
    key.clone().try_into().unwrap()
}

fn cost_of(answer: &Answer) -> Spent {
    let said = answer.as_ref().ok().and_then(Value::as_object).map(Reply::cost_in);
    said.unwrap_or(Spent { calls: 1, ..Spent::default() })
}

fn rmp_round_trip(graph: &Graph) -> Graph {
    serde_json::from_slice(&serde_json::to_vec(graph).unwrap()).unwrap()
}

impl Played {
    pub(super) fn statuses(&self) -> String {
        let line = |task: &Task| format!("{}={}", task.id, task.status);
        self.graph.plan.in_order().into_iter().map(line).collect::<Vec<_>>().join(" ")
    }
    pub(super) fn outcome(&self) -> &GraphOutcome {
        self.graph.outcome.as_ref().unwrap_or_else(|| panic!("the run has not ended: {}", self.statuses()))
    }
    pub(super) fn task(&self, id: &str) -> &Task {
        self.graph.plan.get(&TaskId::of(id)).unwrap_or_else(|| panic!("no task {id}"))
    }
    pub(super) fn call(&self, key: &str) -> &Call {
        self.calls.iter().find(|call| call.key == key).unwrap_or_else(|| panic!("no call {key}: {:?}", self.keys()))
    }
    pub(super) fn keys(&self) -> Vec<&str> {
        self.keys.iter().map(String::as_str).collect()
    }
    pub(super) fn noted(&self, kind: NoteKind) -> Vec<&Value> {
        self.notes.iter().filter(|note| note.kind == kind).map(|note| &note.data).collect()
    }
}

/// A plan from its JSON.
pub(super) fn plan(objective: &str, tasks: Value) -> TaskPlan {
    let mut plan = TaskPlan::new(objective);
    let tasks: Vec<PlannedTask> = serde_json::from_value(tasks).unwrap();
    let build = |task: PlannedTask| {
        let id = task.id.clone().unwrap();
        task.task(id, Default::default(), 3)
    };
    plan.add(tasks.into_iter().map(build).collect()).unwrap();
    plan
}
