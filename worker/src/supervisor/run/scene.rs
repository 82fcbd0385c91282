//! A scene for tests: a supervisor run with its children, on the real drivers, in virtual time, and doubted four ways.
//!
//! Straight; with every run replayed from what it was told (no agent is asked); crashed and resumed after every event; and
//! with the completions of what runs side by side in other orders. Final digests must agree, and no call is ever made
//! twice.
//!
//! Invariant: time passes only when nothing else can happen, and jumps to what is next. It is no engine: nothing is
//! durable here; that is tested in `tests/`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use serde_json::{Value, json};

use super::{SUPERVISOR, SupervisorInput, register};
use crate::supervisor::spec::read_spec;

const BEGIN: Timestamp = Timestamp(1_767_225_600_000_000);
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
        let run = self.world.runs.get_mut(ROOT).unwrap();
        Peek { driver: run.driver.as_mut() }.query(name, input)
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

const ROOT: &str = "root";
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
    #[allow(dead_code)] // for scenes of runs that stay open
    /// Stops looking after so many seconds; the run may still be open.
    pub(crate) fn until(mut self, seconds: u64) -> Self {
        self.until = Some(seconds);
        self
    }

    /// Plays it four ways; the straight one is told.
    pub(crate) fn play(self) -> Played {
        let mut straight = World::new(self.clone(), None);
        straight.go();
        let digest = straight.digest();
        let mut replayed = World::new(self.clone(), None);
        for step in &straight.steps {
            replayed.again(step);
        }
        assert!(replayed.calls.is_empty(), "a replay asks nobody: {:?}", replayed.calls);
        assert_eq!(replayed.digest(), digest, "replayed");
        {
            for crash in 0..straight.steps.len() {
                let mut world = World::new(self.clone(), None);
                straight.steps[..=crash].iter().for_each(|step| world.again(step));
                world.crash();
                world.go();
                assert_eq!(world.digest(), digest, "crashed after event {}", crash + 1);
                let before: BTreeSet<&String> = straight.made(crash + 1);
                let twice: Vec<&String> = world.calls.iter().filter(|call| before.contains(*call)).collect();
                assert!(twice.is_empty(), "called again after a crash at event {}: {twice:?}", crash + 1);
            }
        }
        if self.permuted {
            for seed in 1..=ORDERS {
                let mut world = World::new(self.clone(), Some(seed));
                world.go();
                assert_eq!(world.digest(), digest, "completions in the order of seed {seed}");
            }
        }
        straight.played()
    }
}

/// One job that a run was given.
#[derive(Clone)]
struct Step {
    run: String,
    at: Timestamp,
    job: Job,
    /// Whether a cue brought it about.
    cue: bool,
    /// The call it answers.
    call: Option<String>,
    side_effects: BTreeMap<Seq, Payload>,
}

struct Run {
    driver: Box<dyn Driver>,
    run_id: RunId,
    jobs: VecDeque<(Job, bool, Option<String>)>,
    timers: BTreeMap<(Timestamp, Seq), Option<String>>,
    activities: BTreeMap<Seq, (String, ActivityType, Payload)>,
    parent: Option<(String, Seq)>,
    outcome: Option<CloseOutcome>,
}

struct World {
    scene: Scene,
    registry: WorkflowRegistry,
    runs: BTreeMap<String, Run>,
    now: Timestamp,
    steps: Vec<Step>,
    cues: usize,
    calls: Vec<String>,
    inputs: BTreeMap<String, Value>,
    updates: Vec<Result<Value, String>>,
    notes: Vec<Value>,
    permute: Option<u64>,
    started: u8,
}

impl World {
    fn new(scene: Scene, permute: Option<u64>) -> Self {
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
        world.start(ROOT, Payload::encode(&input).unwrap(), None);
        world
    }

    fn start(&mut self, id: &str, input: Payload, parent: Option<(String, Seq)>) {
        self.started += 1;
        let run_id = RunId([self.started; 16]);
        let request = StartWorkflow::new(WorkflowType::of(SUPERVISOR), WorkflowId::of(id)).input(input);
        let first = request.first_event(run_id, self.now);
        let driver = self.registry.create(&first, run_id).unwrap();
        let jobs = VecDeque::from([(Job::InitializeWorkflow(Box::new(first)), false, None)]);
        let (timers, activities) = (BTreeMap::new(), BTreeMap::new());
        self.runs.insert(id.to_owned(), Run { driver, run_id, jobs, timers, activities, parent, outcome: None });
    }

    fn go(&mut self) {
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
        let result = match self.scene.functions.get(activity_type.as_str()) {
            Some(function) => function(&input),
            None => match &input["answer"] {
                Value::Object(answer) if answer.contains_key("say") => Ok(answer["say"].clone()),
                Value::Object(answer) => Err(answer["fail"].as_str().unwrap_or_default().to_owned()),
                _ => panic!("no activity {activity_type}"),
            },
        };
        if id == ROOT {
            self.inputs.insert(name.clone(), input);
        }
        let result = match result {
            Ok(value) => Ok(Payload::encode(&value).unwrap()),
            Err(why) if why == LOST => {
                // It did not answer: the same call is made again, and is no second one.
                self.calls.retain(|call| *call != name);
                let lost = Failure { message: why, kind: FailureKind::WorkerLost, cause: None };
                self.runs.get_mut(id).unwrap().jobs.push_back((
                    Job::ResolveActivity { seq, result: Err(lost) },
                    false,
                    None,
                ));
                return;
            }
            Err(why) => Err(Failure::application("ScriptedFailure", why)),
        };
        self.runs.get_mut(id).unwrap().jobs.push_back((Job::ResolveActivity { seq, result }, false, Some(name)));
    }

    fn fire(&mut self, id: &str, at: Timestamp, seq: Seq) {
        let run = self.runs.get_mut(id).unwrap();
        run.timers.remove(&(at, seq));
        self.now = self.now.max(at);
        self.runs.get_mut(id).unwrap().jobs.push_back((Job::FireTimer { seq }, false, None));
    }

    fn cue(&mut self) -> bool {
        let Some((when, act)) = self.scene.cues.get(self.cues).cloned() else { return false };
        let due = match when {
            When::At(seconds) => self.now.since(BEGIN) >= Duration::from_secs(seconds),
            When::Once(fits) => fits(&mut Peek { driver: self.runs.get_mut(ROOT).unwrap().driver.as_mut() }),
        };
        if !due {
            return false;
        }
        self.cues += 1;
        let run = self.runs.get_mut(ROOT).unwrap();
        let mut peek = Peek { driver: run.driver.as_mut() };
        let job = match act {
            Act::Signal(name, input) => signal(name, &input),
            Act::SignalFrom(name, make) => signal(name, &make(&mut peek)),
            Act::Cancel => Job::CancelWorkflow { reason: "asked".into() },
            Act::Update(name, input) => return self.ask_update(name, &input),
            Act::UpdateFrom(name, make) => {
                let input = make(&mut peek);
                return self.ask_update(name, &input);
            }
        };
        run.jobs.push_back((job, true, None));
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

    fn give(&mut self, id: &str, job: Job, cue: bool, call: Option<String>, recorded: Option<&BTreeMap<Seq, Payload>>) {
        let run = self.runs.get_mut(id).unwrap();
        if run.outcome.is_some() {
            return;
        }
        let markers = match recorded {
            None => Markers::Fresh,
            Some(values) => Markers::Recorded { side_effects: values.clone(), patches: BTreeSet::new() },
        };
        let (at, run_id) = (self.now, run.run_id);
        let activation = Activation { at, run_id, history: HistorySize::default(), job: job.clone(), markers };
        let commands = run.driver.activate(activation);
        let mut side_effects = BTreeMap::new();
        for command in &commands {
            if let Command::RecordMarker(Marker::SideEffect { seq, value }) = command {
                side_effects.insert(*seq, value.clone());
                if id == ROOT && recorded.is_none() {
                    self.notes.extend(value.to_json().as_array().cloned().unwrap_or_default());
                }
            }
        }
        if let Some(bytes) = self.runs[id].driver.snapshot().filter(|_| recorded.is_none() && self.permute.is_none()) {
            let restored = self.registry.restore(&WorkflowType::of(SUPERVISOR), run_id, &bytes).unwrap();
            assert_eq!(restored.state_json(), self.runs[id].driver.state_json(), "the snapshot is not the state");
            self.runs.get_mut(id).unwrap().driver = restored;
        }
        self.steps.push(Step { run: id.to_owned(), at, job, cue, call, side_effects });
        for command in commands {
            self.carry_out(id, command);
        }
    }

    /// The same step as it was, from what is recorded of it.
    fn again(&mut self, step: &Step) {
        self.now = step.at;
        let run = self.runs.get_mut(&step.run).unwrap();
        // What else is owed to the run stays owed: a crash right after this must not lose it.
        if let Some(place) = run.jobs.iter().position(|(job, ..)| *job == step.job) {
            run.jobs.remove(place);
        }
        match &step.job {
            Job::ResolveActivity { seq, .. } => drop(run.activities.remove(seq)),
            Job::FireTimer { seq } => run.timers.retain(|(_, timer), _| timer != seq),
            _ => {}
        }
        self.cues += usize::from(step.cue);
        self.give(&step.run, step.job.clone(), step.cue, step.call.clone(), Some(&step.side_effects));
    }

    /// What was not recorded is gone; what the engine still owes is given again.
    fn crash(&mut self) {
        let runs: Vec<String> = self.runs.keys().cloned().collect();
        let heard = |steps: &[Step], id: &str, fits: &dyn Fn(&Job) -> bool| {
            steps.iter().any(|step| step.run == id && fits(&step.job))
        };
        for id in runs {
            let jobs = std::mem::take(&mut self.runs.get_mut(&id).unwrap().jobs);
            // Ends of children, and the beginning of a run, are in the log by themselves.
            for job in jobs {
                if !heard(&self.steps, &id, &|other| *other == job.0) {
                    self.runs.get_mut(&id).unwrap().jobs.push_back(job);
                }
            }
        }
    }

    /// The calls that were answered within the first steps.
    fn made(&self, steps: usize) -> BTreeSet<&String> {
        self.steps[..steps].iter().filter_map(|step| step.call.as_ref()).collect()
    }

    fn carry_out(&mut self, id: &str, command: Command) {
        let run = self.runs.get_mut(id).unwrap();
        match command {
            Command::ScheduleActivity { seq, activity_type, input, options, .. } => {
                let key = options.summary.unwrap_or_default();
                let key = key.split(" (").next().unwrap_or_default().to_owned();
                run.activities.insert(seq, (key, activity_type, input));
            }
            Command::RequestCancelActivity { seq } => {
                if run.activities.remove(&seq).is_some() {
                    let result = Err(Failure::canceled("canceled"));
                    run.jobs.push_back((Job::ResolveActivity { seq, result }, false, None));
                }
            }
            Command::StartTimer { seq, fire_at, summary } => drop(run.timers.insert((fire_at, seq), summary)),
            Command::CancelTimer { seq } => run.timers.retain(|(_, timer), _| *timer != seq),
            Command::StartChildWorkflow { seq, workflow_id, input, .. } => {
                let run_id = run.run_id;
                run.jobs.push_back((Job::ResolveChildWorkflowStart { seq, result: Ok(run_id) }, false, None));
                let child = format!("child-{}", self.started);
                let _ = workflow_id;
                self.start(&child, input, Some((id.to_owned(), seq)));
            }
            Command::CancelChildWorkflow { seq, .. } => {
                let reason = "by the parent".to_owned();
                let of = |run: &&mut Run| run.parent == Some((id.to_owned(), seq)) && run.outcome.is_none();
                if let Some(child) = self.runs.values_mut().find(of) {
                    child.jobs.push_back((Job::CancelWorkflow { reason }, false, None));
                }
            }
            Command::SignalExternalWorkflow { seq, name, input, .. } => {
                run.jobs.push_back((Job::ResolveSignalExternal { seq, result: Ok(()) }, false, None));
                let event = WorkflowExecutionSignaled { name, input, identity: None, request_id: None };
                for child in self
                    .runs
                    .values_mut()
                    .filter(|run| run.parent.as_ref().is_some_and(|(parent, _)| parent == id) && run.outcome.is_none())
                {
                    child.jobs.push_back((Job::SignalWorkflow(event.clone()), false, None));
                }
            }
            Command::CompleteUpdate { result, .. } => {
                self.updates.push(result.map(|value| value.to_json()).map_err(|why| why.message));
            }
            Command::CompleteWorkflow { result, .. } => self.over(id, CloseOutcome::Completed(result)),
            Command::FailWorkflow { failure, .. } => self.over(id, CloseOutcome::Failed(failure)),
            Command::CancelWorkflow { details, .. } => self.over(id, CloseOutcome::Canceled(details)),
            Command::ContinueAsNew { .. } => panic!("a supervisor does not continue as new"),
            Command::RequestCancelExternalWorkflow { .. }
            | Command::RecordMarker(_)
            | Command::UpsertSearchAttributes { .. }
            | Command::ModifyMemo { .. } => {}
        }
    }

    fn over(&mut self, id: &str, outcome: CloseOutcome) {
        let run = self.runs.get_mut(id).unwrap();
        run.activities.clear();
        run.timers.clear();
        run.jobs.clear();
        let result = match &outcome {
            CloseOutcome::Completed(result) => Ok(result.clone()),
            CloseOutcome::Failed(why) => Err(why.clone()),
            _ => Err(Failure::canceled("the child was canceled")),
        };
        run.outcome = Some(outcome);
        if let Some((parent, seq)) = run.parent.clone() {
            let parent = self.runs.get_mut(&parent).unwrap();
            parent.jobs.push_back((Job::ResolveChildWorkflow { seq, result }, false, None));
        }
    }

    fn digest(&mut self) -> Value {
        let run = self.runs.get_mut(ROOT).unwrap();
        let mut digest = Peek { driver: run.driver.as_mut() }.query("digest", Value::Null);
        let how = match &run.outcome {
            None => "open".to_owned(),
            Some(CloseOutcome::Completed(_)) => "completed".to_owned(),
            Some(CloseOutcome::Failed(why)) => format!("failed: {}", why.message),
            Some(CloseOutcome::Canceled(_)) => "canceled".to_owned(),
            Some(other) => format!("{other:?}"),
        };
        digest["closed"] = how.into();
        digest
    }

    fn played(mut self) -> Played {
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
