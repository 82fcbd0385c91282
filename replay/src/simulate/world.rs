//! A simulated world around one workflow: run machine, log, clock, attempts and messages, all driven by a [`Plan`].
//!
//! ```text
//!   step ──► input ──► Execution::decide ──► commit (a crash can strike at each boundary) ──► effects under way
//!                                               └──► doubts: replay of the prefix, invariants, forbidden calls
//! ```
//!
//! Invariant: the run machine and the drivers are the engine's own; only the shell around them is simulated, with the
//! same rules (persist, then release; a restart recovers what needs attention; a client repeats what was not answered).
//! One thread, no clock, no randomness: the same plan gives the same life. What is wrong is told as a [`Finding`], at the
//! first moment it shows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bosun_engine::machine::{self, Execution};
use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;

use super::doubts::{Doubts, View};
use super::finding::Finding;
use super::plan::{Boundary, Plan, Step};
use super::rare::Rare;
use super::under_way::{Mock, UnderWay};
use super::watch;

/// One run of the world: what its log holds, and the run in memory, if it is there.
#[derive(Default)]
pub(super) struct SimulatedRun {
    pub(super) turns: Vec<Turn>,
    /// What the code asked for when it lived, one entry an activation in `turns`.
    pub(super) lived: Vec<Vec<Command>>,
    pub(super) execution: Option<Execution>,
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
pub(super) enum Order {
    Fifo,
    Lifo,
}

/// What became of an input.
#[derive(Debug)]
pub(super) enum Answer {
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
    pub commits: u32,
    /// Rare states that were met, by name (engine.md §3, `sometimes!`).
    pub rare: BTreeMap<&'static str, u64>,
}

pub(super) struct World<'a> {
    pub(super) plan: &'a Plan,
    pub(super) versions: &'a [WorkflowRegistry],
    pub(super) version: usize,
    pub(super) doubts: &'a Doubts,
    limits: machine::Limits,
    /// The engine's clock, and how far the wall clock is ahead of it.
    pub(super) now: Timestamp,
    wall_ahead: i64,
    pub(super) runs: BTreeMap<RunId, SimulatedRun>,
    pub(super) newest: BTreeMap<WorkflowId, RunId>,
    pub(super) mocks: BTreeMap<WorkflowId, Mock>,
    pub(super) under_way: Vec<UnderWay>,
    /// Attempts whose worker is gone, or that are over, and that may still speak.
    pub(super) zombies: Vec<(RunId, Seq, Attempt)>,
    pub(super) sent: Vec<Sent>,
    armed: Option<Boundary>,
    /// Crashes at commits by number, for those who go through all boundaries.
    crash_at: BTreeMap<u32, Boundary>,
    recovering: Option<u8>,
    commits: u32,
    pub(super) running: usize,
    pub(super) rare: Rare,
    pub(super) order: Order,
    pub(super) healing: bool,
}

/// The workflow id of the run a plan is about.
pub const SIMULATED_ID: &str = "simulated";
/// A heal that needs more commits than this does not come to rest.
const HEAL_COMMITS: u32 = 2_000;
/// Deliveries in a row that change nothing.
const IDLE_MAX: u32 = 500;
/// Runs that one commit may begin, one after the other.
const CHAIN_MAX: usize = 50;

pub(super) struct Decided {
    pub(super) run: RunId,
    pub(super) decision: machine::Decision,
    pub(super) lived: Vec<Vec<Command>>,
}

impl<'a> World<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        versions: &'a [WorkflowRegistry],
        doubts: &'a Doubts,
        crash_at: &[(u32, Boundary)],
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
            crash_at: crash_at.iter().copied().collect(),
            recovering: None,
            commits: 0,
            running: 0,
            rare: Rare::default(),
            order: Order::Fifo,
            healing: false,
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
    pub(super) fn live(mut self) -> Result<Life, Finding> {
        self.begin()?;
        for step in &self.plan.steps {
            self.step(*step)?;
        }
        self.heal()?;
        super::guarantees::check(&self)?;
        self.twins()?;
        let doubts = self.doubts;
        let life = self.life();
        doubts.stray().map(|()| life)
    }

    /// The workflow is started; a client repeats the start until it is answered.
    pub(super) fn begin(&mut self) -> Result<(), Finding> {
        let mut start = StartWorkflow::new(self.plan.workflow_type.clone(), self.main());
        start.input = self.plan.input.clone();
        start.request_id = Some(RequestId::of("start"));
        let run_id = RunId([7; 16]);
        while self.main_run().is_none() {
            match self.start_run(run_id, start.clone())? {
                Answer::Refused(why) => return Err(Finding::Setup { why: why.to_string() }),
                Answer::Accepted { .. } | Answer::Crashed => {}
            }
        }
        Ok(())
    }

    pub(super) fn start_run(&mut self, run_id: RunId, start: StartWorkflow) -> Result<Answer, Finding> {
        let workflow_id = start.workflow_id.clone();
        let started = start.begun(run_id, self.now);
        let registry = self.registry();
        let begun = self.within(|environment| Execution::start(run_id, started, registry, environment));
        let (execution, decision) = match begun {
            Ok(begun) => begun,
            Err(why) => return Ok(Answer::Refused(why)),
        };
        let before = self.newest.insert(workflow_id.clone(), run_id);
        self.keep(run_id, execution);
        let answer = self.submit(run_id, decision)?;
        if self.runs.get(&run_id).is_none_or(|run| run.turns.is_empty()) {
            // Lost with the worker: it never was.
            self.runs.remove(&run_id);
            match before {
                Some(before) => drop(self.newest.insert(workflow_id, before)),
                None => drop(self.newest.remove(&workflow_id)),
            }
        }
        Ok(answer)
    }

    fn keep(&mut self, run_id: RunId, execution: Execution) {
        let born = u32::try_from(self.runs.len()).unwrap_or(u32::MAX);
        let new = || SimulatedRun { born, ..Default::default() };
        self.runs.entry(run_id).or_insert_with(new).execution = Some(execution);
    }

    /// Decides in the world as it is now.
    fn within<T>(&mut self, decide: impl FnOnce(&mut machine::Environment<'_>) -> T) -> T {
        let slots = usize::from(self.plan.slots);
        let (mut running, unlimited) = (self.running, slots == 0 || self.healing);
        let mut take_slot = |_: &TaskQueue| {
            let takes = unlimited || running < slots;
            running += usize::from(takes);
            takes
        };
        let mut environment = machine::Environment {
            now: self.now,
            build: self.versions[self.version].build_id(),
            limits: &self.limits,
            take_slot: &mut take_slot,
        };
        let decided = decide(&mut environment);
        if self.running < running {
            self.running = running;
        }
        decided
    }

    /// Gives an input to a run, loading it if need be, and commits what it decides.
    pub(super) fn input(&mut self, run_id: RunId, input: Input) -> Result<Answer, Finding> {
        let mut execution = self.load(run_id)?;
        let decided = self.within(|environment| execution.decide(input, environment));
        self.keep(run_id, execution);
        match decided {
            Ok(decision) => self.submit(run_id, decision),
            Err(why) => {
                self.doubts.calls()?;
                Ok(Answer::Refused(why))
            }
        }
    }

    /// Takes a run out of its place; whoever takes it puts it back.
    pub(super) fn load(&mut self, run_id: RunId) -> Result<Execution, Finding> {
        let registry = self.registry();
        let run = self.runs.entry(run_id).or_default();
        if let Some(execution) = run.execution.take() {
            return Ok(execution);
        }
        let execution = Execution::load(&run.turns, registry, registry.build_id()).map_err(broken)?;
        let relived = watch::take();
        self.fits(&execution)?;
        self.doubts.same_again(&self.runs[&run_id].lived, relived)?;
        Ok(execution)
    }

    /// Code that does not fit its history any more.
    pub(super) fn fits(&self, execution: &Execution) -> Result<(), Finding> {
        match execution.held() {
            Some(machine::Held::Load(machine::LoadError::NonDeterminism(card))) if self.version > 0 => {
                Err(Finding::DeployMismatch(card.clone()))
            }
            Some(machine::Held::Load(machine::LoadError::NonDeterminism(card))) => {
                // The cause, if it was caught in the act, says more than the difference.
                self.doubts.calls()?;
                Err(Finding::ReplayMismatch(card.clone()))
            }
            Some(held) => Err(Finding::Setup { why: held.to_string() }),
            None => Ok(()),
        }
    }

    /// Commits a decision, with the runs that begin in it.
    fn submit(&mut self, run_id: RunId, decision: machine::Decision) -> Result<Answer, Finding> {
        let events = decision.turn().events.len();
        let mut group = vec![Decided { run: run_id, decision, lived: take_lived(run_id) }];
        let mut next = 0;
        while next < group.len() {
            if let Some(following) = group[next].decision.take_next_run() {
                if group.len() > CHAIN_MAX {
                    return Err(Finding::Stuck { why: "it continues as new for ever without waiting".into() });
                }
                group.extend(self.begin_next(following));
            }
            next += 1;
        }
        let crashed = self.commit(group)?;
        Ok(if crashed { Answer::Crashed } else { Answer::Accepted { events } })
    }

    fn begin_next(&mut self, next: machine::NextRun) -> Vec<Decided> {
        let (run, workflow_id) = (next.run_id, next.started.workflow_id.clone());
        let registry = self.registry();
        self.rare.note_next_run(&next);
        let (execution, decisions) = self.within(|environment| {
            let (mut execution, first) = Execution::start_or_hold(next, registry, environment);
            let first = (first, take_lived(run));
            let second = (execution.run().inbox_len() > 0).then(|| execution.decide_inbox(environment));
            let second = second.map(|second| (second, take_lived(run)));
            (execution, [Some(first), second])
        });
        self.newest.insert(workflow_id, run);
        self.keep(run, execution);
        let decided = |(decision, lived)| Decided { run, decision, lived };
        decisions.into_iter().flatten().map(decided).collect()
    }

    /// The model log: appends a group of turns, syncs, releases. Says whether the worker died on the way.
    fn commit(&mut self, group: Vec<Decided>) -> Result<bool, Finding> {
        let writes = group.iter().any(|one| !one.decision.is_empty());
        let boundary = if writes { self.boundary() } else { None };
        self.commits += u32::from(writes);
        let lost = matches!(boundary, Some(Boundary::BeforeAppend | Boundary::Unsynced { kept: false }));
        let mut changed = BTreeSet::new();
        let mut effects = Vec::new();
        for Decided { run, decision, lived } in group {
            let empty = decision.is_empty();
            let (turn, sealed) = decision.seal();
            if !lost {
                self.rare.note_turn(&turn);
                let entry = self.runs.entry(run).or_default();
                if !empty {
                    entry.turns.push(turn);
                    entry.lived.extend(lived);
                    changed.insert(run);
                }
            }
            effects.push((run, sealed));
        }
        if matches!(boundary, None | Some(Boundary::AfterRelease | Boundary::InRecovery { .. })) {
            for (run, sealed) in effects {
                let opened = bosun_engine::testing::release_simulated(sealed);
                opened.into_iter().for_each(|effect| self.release(run, effect));
            }
        }
        for run in changed {
            self.doubt(run)?;
        }
        self.doubts.calls()?;
        match boundary {
            Some(boundary) => self.crash(boundary).map(|()| true),
            None => Ok(false),
        }
    }

    /// Whether a crash strikes at this commit.
    fn boundary(&mut self) -> Option<Boundary> {
        if let Some(left) = self.recovering {
            self.recovering = left.checked_sub(1);
            if left == 0 {
                self.rare.hit("crash in recovery");
                return Some(Boundary::AfterSync);
            }
        }
        self.crash_at.remove(&self.commits).or_else(|| self.armed.take())
    }

    /// The worker dies, and another one starts on what is durable.
    pub(super) fn crash(&mut self, boundary: Boundary) -> Result<(), Finding> {
        self.rare.note_crash(boundary);
        for run in self.runs.values_mut() {
            run.execution = None;
        }
        self.runs.retain(|_, run| !run.turns.is_empty());
        self.newest.clear();
        let mut born: Vec<(u32, RunId)> = self.runs.iter().map(|(id, run)| (run.born, *id)).collect();
        born.sort_unstable();
        for (_, run_id) in born {
            if let Some(started) = self.runs.get(&run_id).and_then(started_of) {
                self.newest.insert(started.workflow_id.clone(), run_id);
            }
        }
        watch::take();
        self.lose_what_is_under_way();
        self.doubts.stray()?;
        // The clock starts again from the wall, and never before what the log holds.
        let newest = self.runs.values().filter_map(|run| run.turns.last()).map(|turn| turn.at).max();
        let wall = Timestamp(self.now.0.saturating_add(self.wall_ahead));
        self.now = wall.max(newest.unwrap_or(wall));
        self.wall_ahead = 0;
        self.recovering = match boundary {
            Boundary::InRecovery { commits } => Some(commits),
            _ => None,
        };
        self.recover()?;
        self.recovering = None;
        self.resend()
    }

    fn recover(&mut self) -> Result<(), Finding> {
        let attention: Vec<RunId> =
            self.runs.iter().filter(|(_, run)| needs_attention(run)).map(|(id, _)| *id).collect();
        for run_id in attention {
            self.adopt_orphan(run_id)?;
            // A crash in here has recovered everything again.
            if let Answer::Crashed = self.input(run_id, Input::WorkerRestarted)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), Finding> {
        match step {
            Step::Deliver { pick, result } => self.deliver(pick, result, 1),
            Step::Duplicate { pick, result } => self.deliver(pick, result, 2),
            Step::Lose { pick } => {
                self.lose(pick);
                Ok(())
            }
            Step::Zombie { pick, result } => self.zombie(pick, result),
            Step::Heartbeat { pick } => self.heartbeat(pick),
            Step::Signal { pick } => self.signal(pick),
            Step::Repeat => self.repeat(),
            Step::Cancel => self.cancel(),
            Step::Query { pick } => self.query(pick),
            Step::Update { pick } => self.update(pick),
            Step::Pause => self.to_main(Input::Pause { reason: "simulated".into(), identity: None }),
            Step::Unpause => self.to_main(Input::Unpause { reason: "simulated".into(), identity: None }),
            Step::Tick { ms: 0 } => self.tick_to_deadline().map(drop),
            Step::Tick { ms } => {
                self.pass(Duration::from_millis(u64::from(ms)));
                self.fire_due()
            }
            Step::Delay { ms } => {
                self.pass(Duration::from_millis(u64::from(ms)));
                Ok(())
            }
            Step::WallJump { seconds } => {
                self.wall_ahead = self.wall_ahead.saturating_add(i64::from(seconds) * 1_000_000);
                Ok(())
            }
            Step::Crash { at } => {
                self.armed = Some(at);
                Ok(())
            }
            Step::Evict { snapshot } => self.evict(snapshot),
            Step::Deploy => self.deploy(),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
    }

    fn to_main(&mut self, input: Input) -> Result<(), Finding> {
        let Some(run_id) = self.main_run() else { return Ok(()) };
        self.input(run_id, input).map(drop)
    }

    /// Time passes up to the next deadline; says whether there is one.
    pub(super) fn tick_to_deadline(&mut self) -> Result<bool, Finding> {
        let Some(at) = self.runs.values().filter_map(deadline_of).min() else { return Ok(false) };
        self.now = self.now.max(at);
        self.fire_due()?;
        Ok(true)
    }

    fn fire_due(&mut self) -> Result<(), Finding> {
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

    /// All runs that are in memory leave it, and come back.
    fn evict(&mut self, snapshot: bool) -> Result<(), Finding> {
        let loaded = self.runs.iter().filter(|(_, run)| run.execution.is_some());
        let loaded: Vec<RunId> = loaded.map(|(id, _)| *id).collect();
        loaded.into_iter().try_for_each(|run_id| self.evict_run(run_id, snapshot))
    }

    fn evict_run(&mut self, run_id: RunId, snapshot: bool) -> Result<(), Finding> {
        let execution = self.load(run_id)?;
        let state = execution.state_json();
        let taken = if snapshot { execution.snapshot() } else { None };
        let facts = execution.run().clone();
        drop(execution);
        self.doubts.stray()?;
        if let Some(bytes) = taken {
            let registry = self.registry();
            let restored = registry.restore(&facts.info().workflow_type.clone(), run_id, &bytes).map_err(|why| {
                Finding::Unstable { what: "state", event_id: None, first: "a snapshot".into(), second: why.to_string() }
            })?;
            let resumed = Execution::resume(facts, restored, &[], registry.build_id()).map_err(broken)?;
            self.rare.hit("resumed from a snapshot");
            self.doubts.same_state(&state, &resumed.state_json())?;
            self.keep(run_id, resumed);
        } else {
            let loaded = self.load(run_id)?;
            self.doubts.same_state(&state, &loaded.state_json())?;
            self.keep(run_id, loaded);
        }
        Ok(())
    }

    fn deploy(&mut self) -> Result<(), Finding> {
        self.version = (self.version + 1).min(self.versions.len() - 1);
        self.rare.hit("deployed");
        self.crash(Boundary::AfterRelease)
    }

    /// Looks at a run after a commit: its prefix replayed, the invariants of the user.
    fn doubt(&mut self, run_id: RunId) -> Result<(), Finding> {
        let registry = self.registry();
        let Some(run) = self.runs.get(&run_id) else { return Ok(()) };
        if self.version == 0 {
            self.doubts.ended_well(&run.turns)?;
            self.doubts.replay(registry, run)?;
        }
        watch::take();
        let view = View::new(&run.turns, run.execution.as_ref(), self.now);
        self.doubts.invariants(&view)
    }

    /// Faults stop. Everything under way arrives and time passes until the world is at rest (engine.md §3, liveness).
    pub(super) fn heal(&mut self) -> Result<(), Finding> {
        self.healing = true;
        if let Some(boundary) = self.armed.take() {
            // No commit came for it to strike at.
            self.crash(match boundary {
                Boundary::InRecovery { .. } => boundary,
                _ => Boundary::AfterRelease,
            })?;
        }
        self.crash_at.clear();
        self.to_main(Input::Unpause { reason: "healed".into(), identity: None })?;
        let until = self.commits + self.doubts.heal_commits.unwrap_or(HEAL_COMMITS);
        let mut idle = 0;
        while self.commits < until {
            let before = (self.commits, self.now);
            let moved = self.deliver_any()? || self.tick_to_deadline()?;
            if !moved {
                return self.at_rest();
            }
            // Messages that change nothing may follow each other, though not for ever.
            idle = if before == (self.commits, self.now) { idle + 1 } else { 0 };
            if idle > IDLE_MAX {
                let why = "nothing moves although something is under way".into();
                return Err(Finding::Guarantee { id: "G16", why });
            }
        }
        if self.doubts.runs_for_ever {
            return Ok(());
        }
        Err(Finding::Stuck { why: "faults have stopped, and after 2000 commits the run has neither ended nor come to rest; say `runs_for_ever` if it should not".into() })
    }

    fn at_rest(&mut self) -> Result<(), Finding> {
        let Some(run_id) = self.main_run() else { return Ok(()) };
        let execution = self.load(run_id)?;
        let (closed, awaiting) = (execution.run().is_closed(), execution.awaiting());
        self.keep(run_id, execution);
        let can_be_told = !self.plan.signals.is_empty() || !self.plan.updates.is_empty();
        let machine = self.registry().supports_snapshot(&self.plan.workflow_type);
        if closed || !awaiting.is_empty() || (machine && can_be_told) {
            return Ok(());
        }
        Err(Finding::Stuck {
            why: "faults have stopped, and the run is open and waits for nothing that has a name".into(),
        })
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
            rare: self.rare.met(),
        }
    }

    fn is_main(&self, run_id: RunId) -> bool {
        self.runs.get(&run_id).and_then(started_of).is_some_and(|started| started.workflow_id == self.main())
    }
}

/// What the code of this run asked for in the decision just taken, activation by activation.
fn take_lived(run: RunId) -> Vec<Vec<Command>> {
    watch::take().into_iter().filter(|seen| seen.run == run).map(|seen| seen.commands).collect()
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

/// The runs that a restart looks at, as the service does.
fn needs_attention(run: &SimulatedRun) -> bool {
    let is_child = started_of(run).is_some_and(|started| started.parent.is_some());
    run.turns.last().is_some_and(|turn| turn.outlook.attention) || (is_child && !run_is_closed(run))
}

/// As the run in memory knows it, or as the log says.
fn deadline_of(run: &SimulatedRun) -> Option<Timestamp> {
    match &run.execution {
        Some(execution) => execution.next_deadline(),
        None => run.turns.last().and_then(|turn| turn.outlook.next_deadline),
    }
}

pub(super) fn broken(why: machine::LoadError) -> Finding {
    Finding::Guarantee { id: "G21", why: why.to_string() }
}
