//! Whether what `acts` sends can do anything: every update is accepted by some run at some moment.
//!
//! An update whose fields have other names is refused in every life, and doubts nothing; no invariant would notice.
//!
//! Invariant: the runs, the inputs and the answers are those of the lives, by fixed seeds; an update counts when the run
//! itself accepts it, and is then carried out. No run is judged here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_worker::supervisor::run::{SUPERVISOR, register};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::Value;

use super::acts;
use super::lives::{Cast, chatting, commanded, delegating, flow, pydantask, scripted, shannon};

/// As the kit's first run has it: ids of approvals are made of it.
const RUN: RunId = RunId([7; 16]);
/// Lives of each cast at most.
const SEEDS: u32 = 1_000;
const STEPS: usize = 80;

type Inputs = Vec<(&'static str, BoxedStrategy<Value>)>;

/// One run without an engine: what it is owed.
struct Life {
    driver: Box<dyn Driver>,
    now: Timestamp,
    jobs: VecDeque<Job>,
    activities: BTreeMap<Seq, Payload>,
    timers: BTreeMap<Seq, Timestamp>,
    over: bool,
}

impl Life {
    fn new(input: &Value) -> Life {
        let now = Timestamp(1_767_225_600_000_000);
        let input = Payload::encode(input).unwrap();
        let request = StartWorkflow::new(WorkflowType::of(SUPERVISOR), WorkflowId::of("accepted")).input(input);
        let first = request.first_event(RUN, now);
        let driver = register(WorkflowRegistry::new()).create(&first, RUN).unwrap();
        let jobs = VecDeque::from([Job::InitializeWorkflow(Box::new(first))]);
        Life { driver, now, jobs, activities: BTreeMap::new(), timers: BTreeMap::new(), over: false }
    }

    /// The run hears what waits, else an answer, else that its next timer has fired. False: nothing can happen.
    fn go_on(&mut self) -> bool {
        if self.jobs.is_empty() {
            let job = match (self.activities.pop_first(), self.next_timer()) {
                (Some((seq, input)), _) => answer(seq, &input),
                (None, Some(seq)) => Job::FireTimer { seq },
                (None, None) => return false,
            };
            self.jobs.push_back(job);
        }
        while let Some(job) = self.jobs.pop_front().filter(|_| !self.over) {
            let (at, history) = (self.now, HistorySize::default());
            let commands = self.driver.activate(Activation { at, run_id: RUN, history, job, markers: Markers::Fresh });
            commands.into_iter().for_each(|command| self.carry_out(command));
        }
        !self.over
    }

    fn next_timer(&mut self) -> Option<Seq> {
        let (at, seq) = self.timers.iter().map(|(seq, at)| (*at, *seq)).min()?;
        self.timers.remove(&seq);
        self.now = self.now.max(at);
        Some(seq)
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::ScheduleActivity { seq, input, .. } => drop(self.activities.insert(seq, input)),
            Command::RequestCancelActivity { seq } => {
                if self.activities.remove(&seq).is_some() {
                    let result = Err(Failure::canceled("canceled"));
                    self.jobs.push_back(Job::ResolveActivity { seq, result });
                }
            }
            Command::StartTimer { seq, fire_at, .. } => drop(self.timers.insert(seq, fire_at)),
            Command::CancelTimer { seq } => drop(self.timers.remove(&seq)),
            Command::StartChildWorkflow { seq, .. } => {
                self.jobs.push_back(Job::ResolveChildWorkflowStart { seq, result: Ok(RunId([8; 16])) });
            }
            Command::CancelChildWorkflow { seq, .. } => {
                let result = Err(Failure::canceled("canceled"));
                self.jobs.push_back(Job::ResolveChildWorkflow { seq, result });
            }
            Command::SignalExternalWorkflow { seq, .. } => {
                self.jobs.push_back(Job::ResolveSignalExternal { seq, result: Ok(()) });
            }
            Command::CompleteWorkflow { .. } | Command::FailWorkflow { .. } | Command::CancelWorkflow { .. } => {
                self.over = true;
            }
            Command::CompleteUpdate { .. } | Command::RecordMarker(_) => {}
            other => panic!("a supervisor does not ask for {other:?}"),
        }
    }

    fn signal(&mut self, name: &str, input: &Value) {
        let input = Payload::encode(input).unwrap();
        let name = SignalName::of(name);
        let signal = WorkflowExecutionSignaled { name, input, identity: None, request_id: None };
        self.jobs.push_back(Job::SignalWorkflow(signal));
    }

    /// Whether the run accepts it; then it is carried out.
    fn update(&mut self, name: &str, input: &Value) -> bool {
        let (name, input) = (UpdateName::of(name), Payload::encode(input).unwrap());
        let accepted = self.driver.validate_update(&name, &input).is_ok();
        if accepted {
            let update_id = UpdateId::of("u");
            self.jobs.push_back(Job::DoUpdate { update_id, name, input });
        }
        accepted
    }
}

fn answer(seq: Seq, input: &Payload) -> Job {
    let result = match scripted(input) {
        ActivityOutcome::Completed(value) => Ok(value),
        ActivityOutcome::Failed(why) => Err(why),
        other => panic!("the script does not say {other:?}"),
    };
    Job::ResolveActivity { seq, result }
}

fn drawn<S: Strategy>(from: &S, dice: &mut TestRunner) -> S::Value {
    from.new_tree(dice).unwrap_or_else(|why| panic!("{why}")).current()
}

fn one_of(acts: &Inputs, dice: &mut TestRunner) -> (&'static str, Value) {
    let (name, inputs) = &acts[drawn(&(0..acts.len()), dice)];
    (name, drawn(inputs, dice))
}

/// A random act: sent, and its name if it is an update that was accepted.
fn act(life: &mut Life, signals: &Inputs, updates: &Inputs, dice: &mut TestRunner) -> Option<&'static str> {
    if drawn(&any::<bool>(), dice) {
        let (name, input) = one_of(signals, dice);
        life.signal(name, &input);
        return None;
    }
    let (name, input) = one_of(updates, dice);
    life.update(name, &input).then_some(name)
}

/// The updates that one life of a cast accepts.
fn accepted(cast: &Cast, seed: u32) -> BTreeSet<&'static str> {
    let (signals, updates) = (acts::signals(cast.tasks, cast.agents), acts::updates(cast.tasks));
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&seed.to_le_bytes());
    let dice = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut dice = TestRunner::new_with_rng(Config::default(), dice);
    let mut life = Life::new(&drawn(&select(cast.inputs.clone()), &mut dice));
    let mut all = BTreeSet::new();
    for _ in 0..STEPS {
        // Half of the time nobody sends anything; else many do, since a run seldom waits for people for more than a step.
        let acts = if drawn(&any::<bool>(), &mut dice) { drawn(&(1..12_u8), &mut dice) } else { 0 };
        for _ in 0..acts {
            all.extend(act(&mut life, &signals, &updates, &mut dice));
        }
        if !life.go_on() {
            break;
        }
    }
    all
}

/// The names of the updates that a supervisor says it has.
fn known() -> BTreeSet<String> {
    let mut life = Life::new(&flow().inputs[0]);
    life.go_on();
    let refused = life.driver.validate_update(&UpdateName::of(acts::UNHEARD_OF), &Payload::null()).unwrap_err();
    let (_, names) = refused.message.split_once("it has: ").unwrap_or_else(|| panic!("{refused}"));
    names.split(", ").map(str::to_owned).collect()
}

/// Every update that a supervisor has is sent, and what is sent is accepted somewhere.
#[test]
fn every_update_that_acts_send_is_accepted_by_some_run() {
    let casts = [shannon(), commanded(), flow(), pydantask(), delegating(), chatting()];
    let sent = acts::updates(&["1"]).into_iter().map(|(name, _)| name.to_owned());
    let sent: BTreeSet<String> = sent.filter(|name| name != acts::UNHEARD_OF).collect();
    assert_eq!(sent, known(), "what acts send, and what a supervisor has");
    let mut never = sent;
    for seed in 0..SEEDS {
        for cast in &casts {
            let accepted = accepted(cast, seed);
            never.retain(|name| !accepted.contains(name.as_str()));
        }
        // Each is accepted somewhere: further lives could only say it again.
        if never.is_empty() {
            return;
        }
    }
    panic!("no run ever accepts {never:?}");
}
