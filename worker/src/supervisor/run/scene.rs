//! A scene for tests: a supervisor run with its children, on the real drivers, in virtual time, and doubted four ways.
//!
//! Straight; with every run replayed from what it was told (no agent is asked); crashed and resumed after every event; and
//! with the completions of what runs side by side in other orders. Final digests must agree, and no call is ever made
//! twice.
//!
//! Invariant: every scene is doubted in all four ways (the fourth only where the order of completions does not decide), and
//! a test sees the straight one. Here is what tests say and see; what happens in a scene is in `world`. It is no engine:
//! nothing is durable here; that is tested in `tests/`.

mod turn;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::*;
use serde_json::{Value, json};

use self::world::World;
use super::SupervisorInput;
use crate::supervisor::spec::read_spec;

/// Other orders of completion that are tried.
const ORDERS: u64 = 24;

/// What a person or program does, and when.
#[derive(Clone)]
pub(crate) enum When {
    /// After so many seconds.
    At(u64),
    /// As soon as nothing happens by itself at this moment, and the run's digest fits.
    Once(fn(&mut Peek<'_>) -> bool),
}

#[derive(Clone)]
pub(crate) enum Act {
    Signal(&'static str, Value),
    Update(&'static str, Value),
    /// Made from what the run shows at that moment.
    SignalFrom(&'static str, fn(&mut Peek<'_>) -> Value),
    UpdateFrom(&'static str, fn(&mut Peek<'_>) -> Value),
    Cancel,
}

/// How a run is looked at.
pub(crate) struct Peek<'a> {
    driver: &'a mut dyn Driver,
}

impl Peek<'_> {
    pub(crate) fn query(&mut self, name: &str, input: Value) -> Value {
        let input = Payload::encode(&input).unwrap();
        self.driver.query(&name.into(), &input).unwrap_or_else(|why| panic!("{name}: {why}")).to_json()
    }
}

/// An activity of the test's own.
pub(crate) type Function = fn(&Value) -> Result<Value, String>;

#[derive(Clone)]
pub(crate) struct Scene {
    spec: String,
    input: Option<Value>,
    cues: Vec<(When, Act)>,
    functions: BTreeMap<&'static str, Function>,
    permuted: bool,
    until: Option<u64>,
}

/// How it went, straight.
pub(crate) struct Played {
    pub(crate) outcome: Option<CloseOutcome>,
    pub(crate) digest: Value,
    /// Keys of calls, in the order they were made, with the run's id for children.
    pub(crate) calls: Vec<String>,
    /// The inputs of calls, by key, of the first run.
    pub(crate) inputs: BTreeMap<String, Value>,
    /// In seconds.
    pub(crate) took: u64,
    pub(crate) updates: Vec<Result<Value, String>>,
    pub(crate) notes: Vec<Value>,
    world: World,
}

impl Played {
    pub(crate) fn query(&mut self, name: &str, input: Value) -> Value {
        self.world.peek().query(name, input)
    }
    /// The report of a run that completed.
    #[track_caller]
    pub(crate) fn report(&self) -> Value {
        match &self.outcome {
            Some(CloseOutcome::Completed(result)) => result.to_json(),
            Some(CloseOutcome::Failed(why)) => match &why.kind {
                FailureKind::Application { details: Some(details), .. } => details.to_json(),
                other => panic!("{why}: {other:?}"),
            },
            Some(CloseOutcome::Canceled(Some(details))) => details.to_json(),
            other => panic!("the run has no report: {other:?}; digest {:#}", self.digest),
        }
    }
    /// `id=status` of all tasks, in plan order.
    pub(crate) fn statuses(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let line = |task: &Value| format!("{}={}", text(&task["id"]), text(&task["status"]));
        self.digest["tasks"].as_array().into_iter().flatten().map(line).collect::<Vec<_>>().join(" ")
    }
    pub(crate) fn noted(&self, kind: &str) -> Vec<&Value> {
        self.notes.iter().filter(|note| note["kind"] == kind).map(|note| &note["data"]).collect()
    }
}

/// What a function says whose process is gone.
pub(crate) const LOST: &str = "worker lost";

impl Scene {
    /// A scene of a spec in YAML.
    pub(crate) fn new(spec: &str) -> Self {
        Scene {
            spec: spec.to_owned(),
            input: None,
            cues: Vec::new(),
            functions: BTreeMap::new(),
            permuted: true,
            until: None,
        }
    }
    /// The run gets this instead of the spec as it was read.
    pub(crate) fn input(mut self, change: impl FnOnce(&mut SupervisorInput)) -> Self {
        let mut input = SupervisorInput::new(read_spec("scene.yaml", &self.spec).unwrap().resolve().unwrap());
        change(&mut input);
        self.input = Some(serde_json::to_value(input).unwrap());
        self
    }
    pub(crate) fn at(mut self, seconds: u64, act: Act) -> Self {
        self.cues.push((When::At(seconds), act));
        self
    }
    pub(crate) fn once(mut self, when: fn(&mut Peek<'_>) -> bool, act: Act) -> Self {
        self.cues.push((When::Once(when), act));
        self
    }
    pub(crate) fn function(mut self, name: &'static str, function: Function) -> Self {
        self.functions.insert(name, function);
        self
    }
    /// The order of completions decides what happens, as it must.
    pub(crate) fn order_counts(mut self) -> Self {
        self.permuted = false;
        self
    }
    /// Stops looking after so many seconds; the run may still be open.
    pub(crate) fn until(mut self, seconds: u64) -> Self {
        self.until = Some(seconds);
        self
    }

    /// Plays it straight only: for lives of which there are many.
    pub(crate) fn straight(self) -> Played {
        let mut straight = World::new(self, None);
        straight.go();
        straight.played()
    }

    /// Plays it four ways; the straight one is told.
    pub(crate) fn play(self) -> Played {
        let mut straight = World::new(self.clone(), None);
        straight.go();
        let digest = straight.digest();
        self.replayed(&straight, &digest);
        self.crashed(&straight, &digest);
        if self.permuted {
            self.in_other_orders(&digest);
        }
        straight.played()
    }

    fn replayed(&self, straight: &World, digest: &Value) {
        let mut world = World::new(self.clone(), None);
        straight.steps.iter().for_each(|step| world.again(step));
        assert!(world.calls.is_empty(), "a replay asks nobody: {:?}", world.calls);
        assert_eq!(world.digest(), *digest, "replayed");
    }

    fn crashed(&self, straight: &World, digest: &Value) {
        for crash in 0..straight.steps.len() {
            let mut world = World::new(self.clone(), None);
            straight.steps[..=crash].iter().for_each(|step| world.again(step));
            world.crash();
            world.go();
            assert_eq!(world.digest(), *digest, "crashed after event {}", crash + 1);
            let before: BTreeSet<&String> = straight.made(crash + 1);
            let twice: Vec<&String> = world.calls.iter().filter(|call| before.contains(*call)).collect();
            assert!(twice.is_empty(), "called again after a crash at event {}: {twice:?}", crash + 1);
        }
    }

    fn in_other_orders(&self, digest: &Value) {
        for seed in 1..=ORDERS {
            let mut world = World::new(self.clone(), Some(seed));
            world.go();
            assert_eq!(world.digest(), *digest, "completions in the order of seed {seed}");
        }
    }
}

/// The id of the only pending approval.
pub(crate) fn approval(peek: &mut Peek<'_>) -> String {
    let pending = peek.query("pending_approvals", Value::Null);
    pending[0]["id"].as_str().unwrap_or_else(|| panic!("no approval is pending: {pending}")).to_owned()
}

/// Whether a person is asked to approve something.
pub(crate) fn asked(peek: &mut Peek<'_>) -> bool {
    peek.query("pending_approvals", Value::Null).as_array().is_some_and(|list| !list.is_empty())
}

pub(crate) fn approves(peek: &mut Peek<'_>) -> Value {
    json!({ "approval_id": approval(peek), "approved": true, "approver": "ann" })
}

pub(crate) fn rejects(peek: &mut Peek<'_>) -> Value {
    json!({ "approval_id": approval(peek), "approved": false, "approver": "ann", "comment": "not now" })
}
