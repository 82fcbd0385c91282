//! A simulated world around a stepped worker: what can happen next, and what a choice makes of it.
//!
//! Invariant: one thing happens at a time, and everything that can be seen of it goes into the trace: two lives are the
//! same when their traces are. What is wrong is told at the first moment it shows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bosun_engine::activity::{ActivityError, TaskToken};
use bosun_engine::clock::{Clock, VirtualClock};
use bosun_engine::log::{BlobHash, MemoryLog};
use bosun_engine::testing::{Staged, Stepped, TestEnvironment, WorkerStep};
use bosun_engine::*;

use super::answers::{Arrived, SentRequest};
use super::choices::Choices;
use super::clients::ClientAct;
use super::faults::FaultAct;
use super::plan::EnginePlan;
use super::rare::EngineRare;

/// How a life went.
#[derive(Debug, Clone)]
pub struct EngineLife {
    /// blake3 over everything that was seen, in hexadecimal.
    pub trace: String,
    /// The histories of all runs.
    pub histories: BTreeMap<RunId, Vec<Turn>>,
    /// How many steps were taken.
    pub steps: u64,
    /// How many groups of turns were committed.
    pub groups: u64,
    /// How often the worker started again.
    pub restarts: u32,
    /// Rare states that were met, by name.
    pub rare: BTreeMap<&'static str, u64>,
}

/// The first thing that was wrong: a bug in the engine.
#[derive(Debug, Clone)]
pub struct EngineFailure {
    /// The guarantee (the requirements of the engine §2) that does not hold.
    pub id: &'static str,
    /// What is wrong.
    pub why: String,
    /// What happened, oldest first.
    pub trace: Vec<String>,
}

impl fmt::Display for EngineFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped = self.trace.len().saturating_sub(120);
        writeln!(f, "{}: {}", self.id, self.why)?;
        writeln!(f, "what happened{}:", if skipped > 0 { " (the end of it)" } else { "" })?;
        self.trace.iter().skip(skipped).try_for_each(|line| writeln!(f, "  {line}"))
    }
}

pub(super) type Checked<T = ()> = Result<T, EngineFailure>;

/// How the worker of a life is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkerShape {
    pub(super) shards: usize,
    pub(super) slots: usize,
    loaded_max: usize,
    mailbox_max: usize,
    log_keep_bytes: u64,
    /// Which acts this life knows, drawn first (swarm): a life that does a few things does them often.
    kinds: u32,
}

pub(super) struct EngineWorld<'a> {
    pub(super) plan: &'a EnginePlan,
    pub(super) choices: Choices<'a>,
    pub(super) shape: WorkerShape,
    pub(super) log: Arc<MemoryLog>,
    pub(super) clock: VirtualClock,
    pub(super) version: usize,
    pub(super) worker: Stepped,
    /// Attempts that run.
    pub(super) staged: Vec<Staged>,
    /// Attempts of which nobody will hear again, unless they are told to stop.
    pub(super) lost: Vec<Staged>,
    /// Every attempt that ever started, and the step at which it did.
    pub(super) tokens: BTreeMap<TaskToken, u64>,
    pub(super) requests: Vec<SentRequest>,
    pub(super) arrived: Arrived,
    /// Workflow ids of which a run was deleted.
    pub(super) deleted: BTreeSet<WorkflowId>,
    pub(super) paused_activities: Vec<(Target, ActivityId)>,
    /// For how many steps the thread of a shard does nothing.
    pub(super) stalled: BTreeMap<usize, u32>,
    /// The newest group that was written and synced.
    pub(super) durable: GroupSeq,
    /// A storage error was ordered.
    pub(super) armed: bool,
    pub(super) failed: bool,
    /// The storage failed while a group waited for its release that was durable already.
    pub(super) durable_in_flight: bool,
    pub(super) incarnation: u32,
    pub(super) steps: u64,
    pub(super) recovering: bool,
    pub(super) trace: Vec<String>,
    pub(super) rare: EngineRare,
}

/// Something that can happen.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SimulationAct {
    Worker(WorkerStep),
    End,
    Lose,
    Heartbeat,
    NextMoment,
    Tick,
    Housekeep,
    Client(ClientAct),
    Fault(FaultAct),
}

/// A life of more steps is not one that a plan meant.
const STEPS_MAX: u64 = 20_000;

impl<'a> EngineWorld<'a> {
    pub(super) fn begin(plan: &'a EnginePlan) -> Checked<Self> {
        let mut choices = Choices::new(&plan.choices);
        choices.begin_step();
        let shape = WorkerShape {
            shards: 1 + choices.below(3),
            slots: [4, 1, 2, 8][choices.below(4)],
            loaded_max: [100, 1, 2][choices.below(3)],
            mailbox_max: [100, 100, 100, 2][choices.below(4)],
            log_keep_bytes: [u64::MAX, 0, 2_000][choices.below(3)],
            kinds: {
                choices.begin_step();
                (u32::from(choices.next()) << 16) | u32::from(choices.next())
            },
        };
        let log = Arc::new(MemoryLog::new([7; 16]));
        let clock = VirtualClock::at(TestEnvironment::EPOCH);
        let worker = start(plan, &shape, &log, &clock, 0);
        let worker = worker.map_err(|why| EngineFailure { id: "G2", why, trace: Vec::new() })?;
        let trace = vec![format!("{shape:?}")];
        Ok(EngineWorld {
            plan,
            choices,
            shape,
            log,
            clock,
            version: 0,
            worker,
            staged: Vec::new(),
            lost: Vec::new(),
            tokens: BTreeMap::new(),
            requests: Vec::new(),
            arrived: Arrived::default(),
            deleted: BTreeSet::new(),
            paused_activities: Vec::new(),
            stalled: BTreeMap::new(),
            durable: GroupSeq(0),
            armed: false,
            failed: false,
            durable_in_flight: false,
            incarnation: 0,
            steps: 0,
            recovering: false,
            trace,
            rare: EngineRare::default(),
        })
    }

    pub(super) fn live(mut self) -> Checked<EngineLife> {
        while !self.choices.are_used_up() {
            self.step()?;
        }
        self.heal()?;
        self.check_at_rest()?;
        self.end_all()?;
        let histories = self.check_at_the_end()?;
        for turns in histories.values() {
            self.rare.note_history(turns);
            self.trace.push(digest(&format!("{turns:?}")));
        }
        Ok(EngineLife {
            trace: digest(&self.trace.join("\n")),
            histories,
            steps: self.steps,
            groups: self.durable.0,
            restarts: self.incarnation,
            rare: self.rare.0,
        })
    }

    pub(super) fn broken<T>(&self, id: &'static str, why: impl Into<String>) -> Checked<T> {
        Err(EngineFailure { id, why: why.into(), trace: self.trace.clone() })
    }

    pub(super) fn note(&mut self, what: impl fmt::Display) {
        self.trace.push(format!("{} {what}", self.steps));
    }

    fn knows(&self, bit: u32) -> bool {
        self.shape.kinds & (1 << bit) != 0
    }

    /// What can happen now, with its weight; the first is what a worker left alone would do.
    fn acts(&self) -> Vec<(u32, SimulationAct)> {
        let mut acts: Vec<(u32, SimulationAct)> =
            self.free_steps().map(|step| (12, SimulationAct::Worker(step))).collect();
        let mut add = |possible: bool, weight: u32, act: SimulationAct| {
            if possible {
                acts.push((weight, act));
            }
        };
        let attempts = !self.staged.is_empty();
        add(attempts, 10, SimulationAct::End);
        add(attempts && self.knows(0), 1, SimulationAct::Lose);
        add(attempts && self.knows(1), 2, SimulationAct::Heartbeat);
        add(self.worker.next_moment().is_some(), 6, SimulationAct::NextMoment);
        add(true, 1, SimulationAct::Tick);
        add(self.knows(2), 1, SimulationAct::Housekeep);
        for (bit, (weight, act)) in ClientAct::ALL.into_iter().enumerate() {
            add(bit < 3 || self.knows(3 + bit as u32), weight, SimulationAct::Client(act));
        }
        for (bit, (weight, act)) in FaultAct::ALL.into_iter().enumerate() {
            add(self.plan.faults.include(act) && self.knows(20 + bit as u32), weight, SimulationAct::Fault(act));
        }
        // A worker whose storage has failed is soon replaced.
        add(self.failed, 20, SimulationAct::Fault(FaultAct::PowerCut));
        add(self.failed, 20, SimulationAct::Fault(FaultAct::Kill));
        acts
    }

    /// The steps of threads that are not stalled.
    fn free_steps(&self) -> impl Iterator<Item = WorkerStep> {
        let steps = self.worker.steps().into_iter();
        steps.filter(|step| match step {
            WorkerStep::Message(shard) | WorkerStep::Deadline(shard) => !self.stalled.contains_key(shard),
            _ => true,
        })
    }

    fn step(&mut self) -> Checked {
        self.choices.begin_step();
        let acts = self.acts();
        let Some(chosen) = self.choices.weighted(acts.iter().map(|(weight, _)| *weight)) else { return Ok(()) };
        let act = acts[chosen].1;
        self.note(format_args!("{act:?}"));
        self.stalled.retain(|_, steps| {
            *steps -= 1;
            *steps > 0
        });
        match act {
            SimulationAct::Worker(step) => self.worker_step(step)?,
            SimulationAct::End => self.end_one(),
            SimulationAct::Lose => {
                let at = self.choices.below(self.staged.len());
                self.lost.push(self.staged.swap_remove(at));
            }
            SimulationAct::Heartbeat => {
                let (at, details) = (self.choices.below(self.staged.len()), self.choices.next());
                // A number can be encoded.
                let _ = self.staged[at].context.heartbeat(&details);
            }
            SimulationAct::NextMoment => self.pass_to_next_moment(),
            SimulationAct::Tick => {
                let wait = [1, 100, 5_000, 60_000, 3_600_000][self.choices.below(5)];
                let at = self.clock.now().plus(Duration::from_millis(wait));
                self.worker.advance_to(at);
            }
            SimulationAct::Housekeep => self.housekeep()?,
            SimulationAct::Client(act) => self.client(act),
            SimulationAct::Fault(act) => self.fault(act)?,
        }
        self.look()
    }

    /// One step of the worker, with what it says about what else is under way.
    pub(super) fn worker_step(&mut self, step: WorkerStep) -> Checked {
        let steps = self.worker.steps();
        let deciding = matches!(step, WorkerStep::Message(_) | WorkerStep::Deadline(_));
        if deciding && (steps.contains(&WorkerStep::Write) || steps.contains(&WorkerStep::Release)) {
            self.rare.hit("turn decided while a group was being written");
        }
        self.worker.step(step);
        if step == WorkerStep::Release {
            self.take_answers()?;
            self.durable_in_flight = false;
        }
        if step != WorkerStep::Write || self.worker.health() != Health::Ready {
            return Ok(());
        }
        let last = self.worker.journal().last_group();
        if last > self.durable {
            self.durable = last;
            let turns = self.worker.journal().group_turns(last);
            let turns = turns.or_else(|why| self.broken("G2", format!("group {last} cannot be read: {why}")))?;
            let runs: BTreeSet<RunId> = turns.iter().map(|turn| turn.run).collect();
            if turns.len() > 1 {
                self.rare.hit("several turns in one group");
            }
            if runs.len() > 1 {
                self.rare.hit("several runs in one group");
            }
        }
        Ok(())
    }

    fn end_one(&mut self) {
        let at = self.choices.below(self.staged.len());
        let attempt = self.staged.swap_remove(at);
        let pick = self.choices.below(self.plan.results.len());
        let outcome = self.plan.results.get(pick).cloned();
        let canceled = attempt.context.is_canceled() && self.choices.below(2) == 0;
        let end = match outcome {
            _ if canceled => Err(ActivityError::Canceled(None)),
            Some(ActivityOutcome::Failed(failure)) => Err(failure.into()),
            Some(ActivityOutcome::Canceled(details)) => Err(ActivityError::Canceled(details)),
            Some(ActivityOutcome::WillCompleteLater) => Err(ActivityError::WillCompleteLater),
            Some(ActivityOutcome::Completed(result)) => Ok(result),
            None => Ok(Payload::null()),
        };
        self.end(attempt, end);
    }

    pub(super) fn end(&mut self, attempt: Staged, end: Result<Payload, ActivityError>) {
        let token = attempt.context.task_token();
        if attempt.is_dropped() {
            self.rare.hit("attempt ended late");
        }
        self.note(format_args!("attempt {token} ends: {end:?}"));
        attempt.end(end);
        self.worker.tasks();
    }

    pub(super) fn pass_to_next_moment(&mut self) {
        if let Some(at) = self.worker.next_moment() {
            self.worker.advance_to(at.max(self.clock.now()));
        }
    }

    /// Takes in what the last step has brought: attempts that started, answers, a failure of the storage.
    pub(super) fn look(&mut self) -> Checked {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return self.broken("G16", format!("the life does not end within {STEPS_MAX} steps"));
        }
        while let Some(attempt) = self.worker.staged() {
            let token = attempt.context.task_token();
            self.note(format_args!("attempt {token} of {} starts", attempt.context.task().activity_type));
            if self.tokens.insert(token, self.steps).is_some() {
                return self.broken("G12", format!("the attempt {token} starts a second time"));
            }
            self.staged.push(attempt);
        }
        for lost in &self.lost {
            if lost.is_dropped() {
                self.rare.hit("attempt dropped after its grace period");
            }
        }
        self.lost.retain(|lost| !lost.is_dropped());
        if self.worker.slots().1 > 0 {
            self.rare.hit("attempt waited for a slot");
        }
        self.take_answers()?;
        // The runs that the worker before has left are looked at first, by messages.
        let messages = self.worker.steps().iter().any(|step| matches!(step, WorkerStep::Message(_)));
        self.recovering = self.recovering && messages;
        self.failed = !matches!(self.worker.health(), Health::Ready | Health::Draining | Health::Stopped);
        Ok(())
    }
}

/// A worker of this shape on this log.
pub(super) fn start(
    plan: &EnginePlan,
    shape: &WorkerShape,
    log: &Arc<MemoryLog>,
    clock: &VirtualClock,
    version: usize,
) -> Result<Stepped, String> {
    let mut options = WorkerOptions::new(DataDirectory::Log(log.clone()));
    let code = plan.code.get(version).ok_or_else(|| "a plan needs code".to_owned())?;
    options.workflows = code.clone();
    options.clock = Clock::Virtual(clock.clone());
    options.shards = shape.shards;
    options.slots = shape.slots;
    (options.loaded_max, options.loaded_for) = (shape.loaded_max, Duration::ZERO);
    options.mailbox_max = shape.mailbox_max;
    options.journal.log_keep_bytes = shape.log_keep_bytes;
    options.cancel_grace = Duration::from_secs(2);
    Stepped::start(options, &plan.activities).map_err(|why| format!("the worker does not start: {why}"))
}

pub(super) fn digest(text: &str) -> String {
    BlobHash::of(text.as_bytes()).to_string()
}
