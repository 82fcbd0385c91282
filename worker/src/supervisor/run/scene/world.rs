//! The simulated world of a scene: the runs there are, what happens to them next, and when.
//!
//! ```text
//!   a job that waits ─► an activity that answers ─► a cue that is due ─► time jumps to what is next
//! ```
//!
//! Invariant: time passes only when nothing else can happen, and jumps to what is next; a call is made once. How a run
//! takes a job is in `turn`. It judges nothing: what must hold of a scene is said by the scene.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use serde_json::Value;

use super::{Act, LOST, Peek, Played, Scene, When};
use crate::supervisor::run::{SUPERVISOR, SupervisorInput, register};
use crate::supervisor::spec::read_spec;

pub(super) const ROOT: &str = "root";
const BEGIN: Timestamp = Timestamp(1_767_225_600_000_000);

/// One job that a run was given.
#[derive(Clone)]
pub(super) struct Step {
    pub(super) run: String,
    pub(super) at: Timestamp,
    pub(super) job: Job,
    /// Whether a cue brought it about.
    pub(super) cue: bool,
    /// The call it answers.
    pub(super) call: Option<String>,
    pub(super) side_effects: BTreeMap<Seq, Payload>,
}

/// One run: its driver, and what the engine would owe it.
pub(super) struct Run {
    pub(super) driver: Box<dyn Driver>,
    pub(super) workflow_id: WorkflowId,
    pub(super) run_id: RunId,
    /// With whether a cue brought it about, and the call it answers.
    pub(super) jobs: VecDeque<(Job, bool, Option<String>)>,
    pub(super) timers: BTreeMap<(Timestamp, Seq), Option<String>>,
    pub(super) activities: BTreeMap<Seq, (String, ActivityType, Payload)>,
    pub(super) parent: Option<(String, Seq)>,
    pub(super) outcome: Option<CloseOutcome>,
}

/// Runs are named by the order in which they started (`child-1`), which tests can know; their workflow ids they cannot.
pub(super) struct World {
    pub(super) scene: Scene,
    pub(super) registry: WorkflowRegistry,
    pub(super) runs: BTreeMap<String, Run>,
    pub(super) now: Timestamp,
    pub(super) steps: Vec<Step>,
    pub(super) cues: usize,
    pub(super) calls: Vec<String>,
    pub(super) inputs: BTreeMap<String, Value>,
    pub(super) updates: Vec<Result<Value, String>>,
    pub(super) notes: Vec<Value>,
    pub(super) permute: Option<u64>,
    pub(super) started: u8,
}

impl World {
    pub(super) fn new(scene: Scene, permute: Option<u64>) -> Self {
        let mut world = World {
            scene,
            registry: register(WorkflowRegistry::new()),
            runs: BTreeMap::new(),
            now: BEGIN,
            steps: Vec::new(),
            cues: 0,
            calls: Vec::new(),
            inputs: BTreeMap::new(),
            updates: Vec::new(),
            notes: Vec::new(),
            permute,
            started: 0,
        };
        let input = world.scene.input.clone().unwrap_or_else(|| {
            let file = read_spec("scene.yaml", &world.scene.spec).unwrap_or_else(|why| panic!("{why}"));
            serde_json::to_value(SupervisorInput::new(file.resolve().unwrap_or_else(|why| panic!("{why}")))).unwrap()
        });
        world.start(ROOT, WorkflowId::of(ROOT), Payload::encode(&input).unwrap(), None);
        world
    }

    pub(super) fn start(
        &mut self,
        id: &str,
        workflow_id: WorkflowId,
        input: Payload,
        parent: Option<(String, Seq)>,
    ) -> RunId {
        self.started += 1;
        let run_id = RunId([self.started; 16]);
        let request = StartWorkflow::new(WorkflowType::of(SUPERVISOR), workflow_id.clone()).input(input);
        let first = request.first_event(run_id, self.now);
        let driver = self.registry.create(&first, run_id).unwrap();
        let jobs = VecDeque::from([(Job::InitializeWorkflow(Box::new(first)), false, None)]);
        let (timers, activities) = (BTreeMap::new(), BTreeMap::new());
        let run = Run { driver, workflow_id, run_id, jobs, timers, activities, parent, outcome: None };
        self.runs.insert(id.to_owned(), run);
        run_id
    }

    /// A look at the first run.
    pub(super) fn peek(&mut self) -> Peek<'_> {
        Peek { driver: self.runs.get_mut(ROOT).unwrap().driver.as_mut() }
    }

    pub(super) fn go(&mut self) {
        for _ in 0..100_000 {
            if !self.step() {
                return;
            }
        }
        panic!("the scene does not end: {:#}", self.digest());
    }

    /// One job of one run. False when nothing can happen any more.
    fn step(&mut self) -> bool {
        if let Some(id) = self.runs.iter().find(|(_, run)| !run.jobs.is_empty()).map(|(id, _)| id.clone()) {
            let (job, cue, call) = self.runs.get_mut(&id).unwrap().jobs.pop_front().unwrap();
            self.give(&id, job, cue, call, None);
            return true;
        }
        if self.runs[ROOT].outcome.is_some() {
            return false;
        }
        if self.activity() || self.cue() {
            return true;
        }
        self.time()
    }

    /// What is finished at this moment: the oldest, or by seed any.
    fn activity(&mut self) -> bool {
        let open: Vec<(String, Seq)> =
            self.runs.iter().flat_map(|(id, run)| run.activities.keys().map(|seq| (id.clone(), *seq))).collect();
        let works = self.working();
        let count = open.len() + if self.permute.is_some() { works.len() } else { 0 };
        if open.is_empty() && (self.permute.is_none() || works.is_empty()) {
            return false;
        }
        let place = self.draw(count);
        if place < open.len() {
            let (id, seq) = open[place].clone();
            self.resolve(&id, seq);
        } else {
            let (id, at, seq) = works[place - open.len()].clone();
            self.fire(&id, at, seq);
        }
        true
    }

    /// Timers that stand for agents at work.
    fn working(&self) -> Vec<(String, Timestamp, Seq)> {
        let of = |(id, run): (&String, &Run)| {
            let work = |((at, seq), label): (&(Timestamp, Seq), &Option<String>)| {
                label
                    .as_ref()
                    .is_some_and(|label| label.contains('/') && !label.starts_with("approval"))
                    .then(|| (id.clone(), *at, *seq))
            };
            run.timers.iter().filter_map(work).collect::<Vec<_>>()
        };
        self.runs.iter().flat_map(of).collect()
    }

    fn draw(&mut self, count: usize) -> usize {
        let Some(state) = &mut self.permute else { return 0 };
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as usize % count
    }

    fn resolve(&mut self, id: &str, seq: Seq) {
        let (call, activity_type, input) = self.runs.get_mut(id).unwrap().activities.remove(&seq).unwrap();
        let name = if id == ROOT { call } else { format!("{id}:{call}") };
        assert!(!self.calls.contains(&name), "{name} is called twice");
        self.calls.push(name.clone());
        let input = input.to_json();
        let result = self.answer(&activity_type, &input);
        if id == ROOT {
            self.inputs.insert(name.clone(), input);
        }
        let (result, call) = match result {
            Ok(value) => (Ok(Payload::encode(&value).unwrap()), Some(name)),
            Err(why) if why == LOST => {
                // It did not answer: the same call is made again, and is no second one.
                self.calls.retain(|call| *call != name);
                (Err(Failure { message: why, kind: FailureKind::WorkerLost, cause: None }), None)
            }
            Err(why) => (Err(Failure::application("ScriptedFailure", why)), Some(name)),
        };
        self.runs.get_mut(id).unwrap().jobs.push_back((Job::ResolveActivity { seq, result }, false, call));
    }

    /// What the test's own function says, or the script.
    fn answer(&self, activity_type: &ActivityType, input: &Value) -> Result<Value, String> {
        match self.scene.functions.get(activity_type.as_str()) {
            Some(function) => function(input),
            None => match &input["answer"] {
                Value::Object(answer) if answer.contains_key("say") => Ok(answer["say"].clone()),
                Value::Object(answer) => Err(answer["fail"].as_str().unwrap_or_default().to_owned()),
                _ => panic!("no activity {activity_type}"),
            },
        }
    }

    fn fire(&mut self, id: &str, at: Timestamp, seq: Seq) {
        let run = self.runs.get_mut(id).unwrap();
        run.timers.remove(&(at, seq));
        run.jobs.push_back((Job::FireTimer { seq }, false, None));
        self.now = self.now.max(at);
    }

    fn cue(&mut self) -> bool {
        let Some((when, act)) = self.scene.cues.get(self.cues).cloned() else { return false };
        let due = match when {
            When::At(seconds) => self.now.since(BEGIN) >= Duration::from_secs(seconds),
            When::Once(fits) => fits(&mut self.peek()),
        };
        if !due {
            return false;
        }
        self.cues += 1;
        let job = match act {
            Act::Signal(name, input) => signal(name, &input),
            Act::SignalFrom(name, make) => signal(name, &make(&mut self.peek())),
            Act::Cancel => Job::CancelWorkflow { reason: "asked".into() },
            Act::Update(name, input) => return self.ask_update(name, &input),
            Act::UpdateFrom(name, make) => {
                let input = make(&mut self.peek());
                return self.ask_update(name, &input);
            }
        };
        self.runs.get_mut(ROOT).unwrap().jobs.push_back((job, true, None));
        true
    }

    fn ask_update(&mut self, name: &'static str, input: &Value) -> bool {
        let run = self.runs.get_mut(ROOT).unwrap();
        let input = Payload::encode(input).unwrap();
        let before = run.driver.state_json();
        match run.driver.validate_update(&name.into(), &input) {
            Ok(()) => {
                let update_id = UpdateId::of(format!("u{}", self.cues));
                run.jobs.push_back((Job::DoUpdate { update_id, name: name.into(), input }, true, None));
            }
            Err(why) => {
                assert_eq!(run.driver.state_json(), before, "a refused update changed the state");
                self.updates.push(Err(why.message));
            }
        }
        true
    }

    /// Nothing happens by itself at this moment: time goes on to what is next.
    fn time(&mut self) -> bool {
        let timer = self
            .runs
            .iter()
            .filter(|(_, run)| run.outcome.is_none())
            .flat_map(|(id, run)| run.timers.keys().map(move |(at, seq)| (*at, id.clone(), *seq)))
            .min();
        let cue = match self.scene.cues.get(self.cues) {
            Some((When::At(seconds), _)) => Some(BEGIN.plus(Duration::from_secs(*seconds))),
            _ => None,
        };
        let limit = self.scene.until.map(|seconds| BEGIN.plus(Duration::from_secs(seconds)));
        match (timer, cue) {
            (Some((at, ..)), Some(cue)) if cue <= at => self.now = self.now.max(cue),
            (None, Some(cue)) => self.now = self.now.max(cue),
            (Some((at, ..)), _) if limit.is_some_and(|limit| at > limit) => return false,
            (Some((at, id, seq)), _) => self.fire(&id, at, seq),
            (None, None) => return false,
        }
        true
    }

    pub(super) fn digest(&mut self) -> Value {
        let mut digest = self.peek().query("digest", Value::Null);
        let how = match &self.runs[ROOT].outcome {
            None => "open".to_owned(),
            Some(CloseOutcome::Completed(_)) => "completed".to_owned(),
            Some(CloseOutcome::Failed(why)) => format!("failed: {}", why.message),
            Some(CloseOutcome::Canceled(_)) => "canceled".to_owned(),
            Some(other) => format!("{other:?}"),
        };
        digest["closed"] = how.into();
        digest
    }

    pub(super) fn played(mut self) -> Played {
        let digest = self.digest();
        Played {
            outcome: self.runs[ROOT].outcome.clone(),
            digest,
            calls: self.calls.clone(),
            inputs: self.inputs.clone(),
            took: self.now.since(BEGIN).as_secs(),
            updates: self.updates.clone(),
            notes: self.notes.clone(),
            world: self,
        }
    }
}

fn signal(name: &str, input: &Value) -> Job {
    Job::SignalWorkflow(WorkflowExecutionSignaled {
        name: name.into(),
        input: Payload::encode(input).unwrap(),
        identity: None,
        request_id: None,
    })
}
