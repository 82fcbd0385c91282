//! A simulated world around one workflow: run machine, log, clock, attempts and messages, all driven by a [`LifePlan`].
//!
//! ```text
//!   step ──► input ──► Execution::decide ──► commit (a crash can strike at each boundary) ──► effects under way
//!                                               └──► doubts: replay of the prefix, invariants, forbidden calls
//! ```
//!
//! Invariant: the run machine and the drivers are the engine's own; only the shell around them is simulated, with the
//! same rules (persist, then release; a restart recovers what needs attention; a client repeats what was not answered).
//! One thread, no clock, no randomness: the same plan gives the same life. What is wrong is told as a [`Violation`], at
//! the first moment it shows.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bosun_engine::machine::{self, Execution};
use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;

use super::doubts::Doubts;
use super::finding::Violation;
use super::plan::{Boundary, LifePlan, LifeStep, PlanFaults};
use super::rare::Rare;
use super::snapshot::Snapshot;
use super::under_way::{Mock, PendingWork};
use super::watch::{self, WatchedActivation};

/// One run of the world: what its log holds, and the run in memory, if it is there.
#[derive(Default)]
pub(super) struct SimulatedRun {
    pub(super) turns: Vec<Turn>,
    /// What the code asked for when it lived, one entry an activation in `turns`.
    pub(super) lived: Vec<WatchedActivation>,
    /// How many of these activations were of an earlier version of the code. What those asked for, the history alone says:
    /// a worker compares no more than the gate does.
    pub(super) lived_before: usize,
    pub(super) execution: Option<Execution>,
    /// The newest snapshot on disk.
    pub(super) snapshot: Option<Snapshot>,
    /// When it began, counted in runs.
    pub(super) born: u32,
}

/// A client's request that is remembered, to be repeated and to be looked for in history.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) input: Input,
    pub(super) answer: Option<Result<(), Rejection>>,
}

/// How deliveries that a plan does not pick are ordered when the world comes to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeliveryOrder {
    Fifo,
    Lifo,
}

/// What became of an input.
#[derive(Debug)]
pub(super) enum InputOutcome {
    Accepted {
        events: usize,
    },
    Refused(Rejection),
    /// The worker died meanwhile; the caller heard nothing.
    Crashed,
}

/// How a life went.
#[derive(Debug, Clone, Default)]
pub struct Life {
    /// The histories of all runs, the workflow's own first.
    pub histories: Vec<Vec<Turn>>,
    /// How the last run of the workflow ended; `None` if it waits.
    pub outcome: Option<CloseOutcome>,
    /// What it waits for if it has not ended.
    pub awaiting: Vec<Awaited>,
    /// How many commits there were.
    pub commits: u32,
    /// What happened step by step, also where no history tells of it.
    pub(super) steps: u64,
    /// Rare states that were met, by name (the requirements of the engine §3, `sometimes!`).
    pub rare: BTreeMap<&'static str, u64>,
    /// What fits, and may be a mistake of a deploy all the same.
    pub warnings: BTreeSet<String>,
}

impl Life {
    /// A hash over what happened, step by step, and over all histories: two lives with the same trace are the same.
    pub fn trace(&self) -> [u8; 32] {
        // Turns are plain data with text keys; writing them cannot fail.
        Payload::bytes(serde_json::to_vec(&(self.steps, &self.histories)).unwrap_or_default()).digest()
    }
}

pub(super) struct World<'a> {
    pub(super) plan: &'a LifePlan,
    pub(super) versions: &'a [WorkflowRegistry],
    pub(super) version: usize,
    pub(super) doubts: &'a Doubts,
    pub(super) limits: machine::Limits,
    /// The engine's clock, and how far the wall clock is ahead of it.
    pub(super) now: Timestamp,
    pub(super) wall_ahead: i64,
    pub(super) runs: BTreeMap<RunId, SimulatedRun>,
    pub(super) newest: BTreeMap<WorkflowId, RunId>,
    pub(super) mocks: BTreeMap<WorkflowId, Mock>,
    pub(super) under_way: Vec<PendingWork>,
    /// Attempts whose worker is gone, or that are over, and that may still speak.
    pub(super) zombies: Vec<(RunId, Seq, Attempt)>,
    pub(super) sent: Vec<Sent>,
    pub(super) armed: Option<Boundary>,
    /// Crashes at commits by number, for those who go through all boundaries.
    pub(super) crash_at: BTreeMap<u32, Boundary>,
    pub(super) evicts: bool,
    pub(super) duplicates: bool,
    pub(super) recovering: Option<u8>,
    pub(super) commits: u32,
    /// Over every step and the world after it.
    pub(super) steps: DefaultHasher,
    pub(super) running: usize,
    pub(super) rare: Rare,
    pub(super) order: DeliveryOrder,
    pub(super) healing: bool,
    pub(super) warnings: BTreeSet<String>,
}

/// The workflow id of the run a plan is about.
pub const SIMULATED_ID: &str = "simulated";

impl<'a> World<'a> {
    pub(super) fn new(
        plan: &'a LifePlan,
        versions: &'a [WorkflowRegistry],
        doubts: &'a Doubts,
        faults: &PlanFaults,
    ) -> Self {
        watch::begin();
        doubts.forget();
        World {
            plan,
            versions,
            version: 0,
            doubts,
            limits: machine::Limits::default(),
            now: TestEnvironment::EPOCH,
            wall_ahead: 0,
            runs: BTreeMap::new(),
            newest: BTreeMap::new(),
            mocks: BTreeMap::new(),
            under_way: Vec::new(),
            zombies: Vec::new(),
            sent: Vec::new(),
            armed: None,
            crash_at: faults.crashes.iter().copied().collect(),
            evicts: faults.evict,
            duplicates: faults.duplicate,
            recovering: None,
            commits: 0,
            steps: DefaultHasher::new(),
            running: 0,
            rare: Rare::default(),
            order: DeliveryOrder::Fifo,
            healing: false,
            warnings: BTreeSet::new(),
        }
    }

    pub(super) fn main(&self) -> WorkflowId {
        WorkflowId::of(SIMULATED_ID)
    }
    pub(super) fn main_run(&self) -> Option<RunId> {
        self.newest.get(&self.main()).copied()
    }
    pub(super) fn registry(&self) -> &'a WorkflowRegistry {
        &self.versions[self.version]
    }

    /// Lives the plan, then lets everything come to rest.
    pub(super) fn live(mut self) -> Result<Life, Violation> {
        self.begin()?;
        for step in &self.plan.steps {
            self.step(*step)?;
            (step, self.now, self.commits, self.under_way.len(), self.zombies.len()).hash(&mut self.steps);
        }
        self.heal()?;
        self.whole()?;
        super::guarantees::check(&self)?;
        self.deploys_at_every_turn()?;
        self.twins()?;
        let doubts = self.doubts;
        let life = self.life();
        doubts.stray().map(|()| life)
    }

    /// The workflow is started; a client repeats the start until it is answered.
    pub(super) fn begin(&mut self) -> Result<(), Violation> {
        let mut start = StartWorkflow::new(self.plan.workflow_type.clone(), self.main());
        start.input = self.plan.input.clone();
        start.request_id = Some(RequestId::of("start"));
        let run_id = RunId([7; 16]);
        while self.main_run().is_none() {
            match self.start_run(run_id, start.clone())? {
                InputOutcome::Refused(why) => return Err(Violation::Setup { why: why.to_string() }),
                InputOutcome::Accepted { .. } | InputOutcome::Crashed => {}
            }
        }
        Ok(())
    }

    fn step(&mut self, step: LifeStep) -> Result<(), Violation> {
        match step {
            LifeStep::Deliver { pick, result } => self.deliver(pick, result, 1),
            LifeStep::Duplicate { pick, result } => self.deliver(pick, result, 2),
            LifeStep::Lose { pick } => {
                self.lose(pick);
                Ok(())
            }
            LifeStep::Zombie { pick, result } => self.zombie(pick, result),
            LifeStep::Heartbeat { pick } => self.heartbeat(pick),
            LifeStep::Signal { pick } => self.signal(pick),
            LifeStep::Repeat => self.repeat(),
            LifeStep::Cancel => self.cancel(),
            LifeStep::Query { pick } => self.query(pick),
            LifeStep::Update { pick } => self.update(pick),
            LifeStep::Pause => self.main_input(Input::Pause { reason: "simulated".into(), identity: None }),
            LifeStep::Unpause => self.main_input(Input::Unpause { reason: "simulated".into(), identity: None }),
            LifeStep::Tick { ms: 0 } => self.tick_to_deadline().map(drop),
            LifeStep::Tick { ms } => {
                self.pass(Duration::from_millis(u64::from(ms)));
                self.fire_due()
            }
            LifeStep::Delay { ms } => {
                self.pass(Duration::from_millis(u64::from(ms)));
                Ok(())
            }
            LifeStep::WallJump { seconds } => {
                self.wall_ahead = self.wall_ahead.saturating_add(i64::from(seconds) * 1_000_000);
                Ok(())
            }
            LifeStep::Crash { at } => {
                self.armed = Some(at);
                Ok(())
            }
            LifeStep::Evict { snapshot } => self.evict(snapshot),
            LifeStep::Deploy => self.deploy(),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
    }

    pub(super) fn main_input(&mut self, input: Input) -> Result<(), Violation> {
        let Some(run_id) = self.main_run() else { return Ok(()) };
        self.input(run_id, input).map(drop)
    }

    /// Time passes up to the next deadline; says whether there is one.
    pub(super) fn tick_to_deadline(&mut self) -> Result<bool, Violation> {
        let Some(at) = self.runs.values().filter_map(deadline_of).min() else { return Ok(false) };
        self.now = self.now.max(at);
        self.fire_due()?;
        Ok(true)
    }

    fn fire_due(&mut self) -> Result<(), Violation> {
        loop {
            let now = self.now;
            let due = self.runs.iter().find(|(_, run)| deadline_of(run).is_some_and(|at| at <= now));
            let Some((run_id, before)) = due.map(|(id, run)| (*id, run.turns.len())) else { return Ok(()) };
            self.input(run_id, Input::Deadline)?;
            // A deadline that causes nothing (the end of a backoff, kept in memory) is over all the same.
            let run = self.runs.get(&run_id);
            if run.is_some_and(|run| run.turns.len() == before && deadline_of(run).is_some_and(|at| at <= now)) {
                return Ok(());
            }
        }
    }

    fn life(mut self) -> Life {
        let main = self.main_run();
        let mut histories: Vec<(bool, RunId)> = self.runs.keys().map(|id| (!self.is_main(*id), *id)).collect();
        histories.sort();
        let execution = main.and_then(|id| self.runs.get_mut(&id)).and_then(|run| run.execution.take());
        Life {
            outcome: execution.as_ref().and_then(|execution| execution.run().outcome().cloned()),
            awaiting: execution.as_ref().map(Execution::awaiting).unwrap_or_default(),
            histories: histories.iter().filter_map(|(_, id)| self.runs.remove(id)).map(|run| run.turns).collect(),
            commits: self.commits,
            steps: self.steps.finish(),
            rare: self.rare.met(),
            warnings: self.warnings,
        }
    }

    fn is_main(&self, run_id: RunId) -> bool {
        self.runs.get(&run_id).and_then(started_of).is_some_and(|started| started.workflow_id == self.main())
    }
}

pub(super) fn started_of(run: &SimulatedRun) -> Option<&WorkflowExecutionStarted> {
    match run.turns.first()?.events.first()? {
        EventKind::WorkflowExecutionStarted(started) => Some(started),
        _ => None,
    }
}

pub(super) fn run_is_closed(run: &SimulatedRun) -> bool {
    run.turns.iter().flat_map(|turn| &turn.events).any(|event| event.closes().is_some())
}

/// As the run in memory knows it, or as the log says.
fn deadline_of(run: &SimulatedRun) -> Option<Timestamp> {
    match &run.execution {
        Some(execution) => execution.next_deadline(),
        None => run.turns.last().and_then(|turn| turn.outlook.next_deadline),
    }
}

pub(super) fn broken(why: machine::LoadError) -> Violation {
    Violation::Guarantee { id: "G21", why: why.to_string() }
}
