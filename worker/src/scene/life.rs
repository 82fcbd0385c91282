//! One life of a scene's run: the production worker, step by step, on a log in memory, with a clock that skips.
//!
//! ```text
//!   steps of the worker ─► calls that were canceled ─► an answer that is due ─► people ─► timers that are due
//!                      ─► people whom something reminds ─► time jumps to what is next
//! ```
//!
//! Invariant: what comes at the very moment of a timer comes before it, so that an answer at the end of its time is one;
//! time passes only when nothing else can happen; every turn is a commit of its own, so that a crash can follow
//! each; what outlives a crash is in [`Outside`] and in the log. It judges nothing.

use std::sync::Arc;
use std::time::Duration;

use bosun_engine::clock::{Clock, VirtualClock};
use bosun_engine::testing::{Staged, Stepped, TestEnvironment, WorkerStep};
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use serde_json::Value;

use super::acts::Reminded;
use super::asked::Asked;
use super::file::Scene;
use super::medium::Medium;
use super::orders::Orders;
use super::outside::{Made, Outside};
use super::rule::{missing_rule, near_rules};
use super::world::answer_of;
use crate::agent::AGENT_MODEL;

/// When a scene begins.
pub(crate) const BEGIN: Timestamp = TestEnvironment::EPOCH;
/// A life of more steps is none that a scene meant.
const STEPS_MAX: usize = 200_000;
/// The workflow id of a scene's run.
pub(super) const WORKFLOW_ID: &str = "scene";

/// Why a life could not go on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stuck {
    /// Nobody answers this call; with the rule that is missing.
    NoAnswer {
        call: String,
        rule: String,
        /// The rules for calls of its kind, and what they want of them.
        near: String,
    },
    /// The engine refused something.
    Refused(String),
    Endless,
    /// The code does not fit its own history.
    Held(String),
}

/// An attempt that is under way.
pub(crate) struct LiveAttempt {
    staged: Staged,
    pub(crate) made: Made,
}

/// What a crash at a commit leaves behind.
pub(crate) struct Fork {
    /// Which commit.
    pub(crate) number: usize,
    pub(crate) log: Medium,
    pub(crate) at: Timestamp,
    pub(crate) outside: Outside,
}

/// What crashes leave, at most so many: each is a copy of the whole log. Of a life that is longer every second one is let go,
/// again and again, so that they stay spread over all of it.
pub(crate) struct Forks {
    pub(crate) kept: Vec<Fork>,
    seen: usize,
    every: usize,
    most: usize,
}

impl Forks {
    pub(crate) fn new(most: usize) -> Self {
        Forks { kept: Vec::new(), seen: 0, every: 1, most: most.max(1) }
    }

    /// Whether every commit is among them.
    pub(crate) fn are_all(&self) -> bool {
        self.every == 1
    }

    /// The number of the commit that is made now, if a crash after it is to be kept.
    fn wanted(&mut self) -> Option<usize> {
        self.seen += 1;
        (self.seen - 1).is_multiple_of(self.every).then_some(self.seen)
    }

    fn keep(&mut self, fork: Fork) {
        self.kept.push(fork);
        if self.kept.len() > self.most {
            self.every *= 2;
            self.kept.retain(|fork| (fork.number - 1).is_multiple_of(self.every));
        }
    }
}

/// See the module.
pub(crate) struct Life<'s> {
    pub(crate) scene: &'s Scene,
    workflows: &'s WorkflowRegistry,
    // Dropped before the log is looked at again.
    pub(super) worker: Stepped,
    log: Medium,
    pub(super) clock: VirtualClock,
    pub(super) attempts: Vec<LiveAttempt>,
    pub(crate) outside: Outside,
    pub(crate) orders: Option<Orders>,
    /// The first call that did not wait for an older one to end.
    pub(crate) swapped: Option<String>,
    /// What a crash at each commit would leave, if somebody wants it.
    pub(crate) forks: Option<Forks>,
    /// Answers to what the scene asks at times; only the straight life asks.
    pub(crate) asked: Option<Vec<Result<Value, String>>>,
    /// The number of commits at which conditions of people were looked at.
    pub(super) looked_at: Option<(usize, Timestamp)>,
    steps: usize,
    pub(super) stuck: Option<Stuck>,
}

impl<'s> Life<'s> {
    /// A life from the very beginning.
    pub(crate) fn begin(scene: &'s Scene, workflows: &'s WorkflowRegistry, disk: bool) -> Result<Self, Stuck> {
        let log = Medium::fresh(disk).map_err(|why| Stuck::Refused(why.to_string()))?;
        Self::on(scene, workflows, log, BEGIN, Outside::new(scene.people.len()))
    }

    /// A life that goes on after a crash.
    pub(crate) fn resume(scene: &'s Scene, workflows: &'s WorkflowRegistry, fork: Fork) -> Result<Self, Stuck> {
        Self::on(scene, workflows, fork.log, fork.at, fork.outside)
    }

    fn on(
        scene: &'s Scene,
        workflows: &'s WorkflowRegistry,
        log: Medium,
        at: Timestamp,
        outside: Outside,
    ) -> Result<Self, Stuck> {
        let clock = VirtualClock::at(at);
        let worker = start(workflows, &log, &clock)?;
        Ok(Life {
            scene,
            workflows,
            worker,
            log,
            clock,
            attempts: Vec::new(),
            outside,
            orders: None,
            swapped: None,
            forks: None,
            asked: None,
            looked_at: None,
            steps: 0,
            stuck: None,
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// To the end of the run, or until nothing can happen any more.
    pub(crate) fn go(&mut self) -> Result<(), Stuck> {
        if self.outside.root.is_none() {
            let mut start = StartWorkflow::new(self.scene.workflow_type.clone(), WorkflowId::of(WORKFLOW_ID));
            start = start.input(self.scene.input.clone());
            // Known before anything is committed: a crash may follow the first turn.
            let started = self.ask(|client| async move { client.start(start).await });
            self.outside.root = Some(started.map_err(|why| Stuck::Refused(why.to_string()))?.run_id);
            for fork in self.forks.iter_mut().flat_map(|forks| &mut forks.kept) {
                fork.outside.root = self.outside.root;
            }
        }
        while self.once()? {}
        self.ask_at_times(None)
    }

    /// One thing. False when nothing can happen any more.
    fn once(&mut self) -> Result<bool, Stuck> {
        self.drain()?;
        if self.end_canceled() {
            return Ok(true);
        }
        if self.outside.is_over() {
            return Ok(false);
        }
        if self.killed()? || self.answered() || self.somebody_acts(Reminded::ByTime)? {
            return Ok(true);
        }
        if self.fire_due()? || self.somebody_acts(Reminded::ByAnything)? {
            return Ok(true);
        }
        let next = self.next_moment();
        self.ask_at_times(Some(next))?;
        let limit = self.scene.until.map(|until| BEGIN.plus(until));
        match next {
            Some(next) if limit.is_none_or(|limit| next <= limit) => self.worker.advance_to(next.max(self.now())),
            _ => {
                if let Some(limit) = limit {
                    self.worker.advance_to(limit.max(self.now()));
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Fires what is due in the worker. Whether anything was.
    fn fire_due(&mut self) -> Result<bool, Stuck> {
        let due = self.worker.steps().into_iter().find(|step| matches!(step, WorkerStep::Deadline(_)));
        due.map_or(Ok(()), |step| self.step(step))?;
        Ok(due.is_some())
    }

    fn step(&mut self, step: WorkerStep) -> Result<(), Stuck> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(Stuck::Endless);
        }
        self.worker.step(step);
        if step == WorkerStep::Write {
            self.committed()?;
        }
        self.stage();
        Ok(())
    }

    /// Lets the worker do all that it can but fire what is due; each turn is committed before the next.
    pub(super) fn drain(&mut self) -> Result<(), Stuck> {
        let able = |worker: &Stepped| worker.steps().into_iter().rfind(|step| !matches!(step, WorkerStep::Deadline(_)));
        while let Some(step) = able(&self.worker) {
            self.step(step)?;
        }
        self.stage();
        if let Some(held) = self.outside.root.and_then(|root| self.worker.held_why(root)) {
            return Err(Stuck::Held(held));
        }
        self.stuck.take().map_or(Ok(()), Err)
    }

    fn committed(&mut self) -> Result<(), Stuck> {
        let journal = self.worker.journal();
        let last = journal.last_group();
        // An answer alone is committed without a group.
        if last == self.outside.group {
            return Ok(());
        }
        let turns = journal.group_turns(last).map_err(|why| Stuck::Refused(why.to_string()))?;
        self.outside.committed(last, turns);
        if let Some(forks) = &mut self.forks
            && let Some(number) = forks.wanted()
        {
            let mut outside = self.outside.clone();
            outside.lose(self.attempts.iter().map(|attempt| attempt.made.asked.id.as_str()));
            let log = self.log.killed().map_err(|why| Stuck::Refused(why.to_string()))?;
            forks.keep(Fork { number, log, at: self.clock.now(), outside });
        }
        Ok(())
    }

    /// Takes in attempts that have started.
    fn stage(&mut self) {
        while let Some(staged) = self.worker.staged() {
            let task = staged.context.task();
            let first = self.outside.first_of(task.run_id);
            let mut asked = Asked::of(task, self.clock.now()).in_chain(first);
            if asked.activity_type == AGENT_MODEL {
                asked = asked.in_conversation(task.seq.0, &self.outside.history(task.run_id));
            }
            if let Some(made) = self.outside.made(&asked).cloned() {
                self.outside.again(&made.asked.id, asked.shown());
                self.attempts.push(LiveAttempt { staged, made });
                continue;
            }
            let spec = self.outside.runs.get(&asked.run).and_then(|run| run.spec.clone());
            let asked = asked.played_by(spec.as_deref());
            match answer_of(&self.scene.world, spec.as_deref(), &asked) {
                Some(said) => {
                    let said = said.in_time(asked.patience());
                    let due = asked.at.plus(said.after);
                    let made = Made { asked: Arc::new(asked), said: Arc::new(said), due };
                    self.outside.make(made.clone());
                    self.attempts.push(LiveAttempt { staged, made });
                }
                None => {
                    let near = near_rules(&self.scene.world, &asked);
                    self.stuck = Some(Stuck::NoAnswer { call: asked.shown(), rule: missing_rule(&asked), near });
                }
            }
        }
    }

    /// Calls that nobody wants any more end at once.
    fn end_canceled(&mut self) -> bool {
        self.attempts.retain(|attempt| !attempt.staged.is_dropped());
        let canceled = self.attempts.iter().position(|attempt| attempt.staged.context.is_canceled());
        if let Some(at) = canceled {
            let attempt = self.attempts.remove(at);
            self.outside.end(&attempt.made.asked.id);
            attempt.staged.end(Err(ActivityError::Canceled(None)));
            self.worker.tasks();
        }
        canceled.is_some()
    }

    /// One call gets its answer: the oldest that is due, or, where orders are tried, any that could have come as well.
    fn answered(&mut self) -> bool {
        let now = self.now();
        let first = self.attempts.iter().enumerate().min_by_key(|(at, one)| (one.made.due, *at)).map(|(at, _)| at);
        let Some(first) = first.filter(|at| self.attempts[*at].made.due <= now) else { return false };
        let chosen = match self.orders.take() {
            None => first,
            Some(mut orders) => {
                let horizon = self.next_event();
                let could = |(at, one): (usize, &LiveAttempt)| {
                    (horizon.is_none_or(|end| one.made.due <= end.max(now))).then_some(at)
                };
                let mut able: Vec<usize> = self.attempts.iter().enumerate().filter_map(could).collect();
                able.sort_by_key(|at| (self.attempts[*at].made.due, *at));
                let chosen = able.get(orders.choose(able.len())).copied().unwrap_or(first);
                self.orders = Some(orders);
                chosen
            }
        };
        if chosen != first && self.swapped.is_none() {
            let shown = |at: usize| self.attempts[at].made.asked.shown();
            self.swapped = Some(format!("{} ended before {}", shown(chosen), shown(first)));
        }
        // Whoever is passed over answers when the other would have.
        let passed = self.attempts[chosen].made.due;
        self.attempts[first].made.due = self.attempts[first].made.due.max(passed);
        let LiveAttempt { staged, made } = self.attempts.remove(chosen);
        self.outside.end(&made.asked.id);
        staged.end(made.outcome());
        self.worker.tasks();
        true
    }

    /// The next moment of anything but an answer.
    fn next_event(&self) -> Option<Timestamp> {
        let kill = self.scene.kills.get(self.outside.kills).map(|at| BEGIN.plus(*at));
        self.worker.next_moment().into_iter().chain(kill).chain(self.next_act()).min()
    }

    fn next_moment(&self) -> Option<Timestamp> {
        self.next_event().into_iter().chain(self.attempts.iter().map(|one| one.made.due)).min()
    }

    /// Whether the process was killed because a fault says so.
    fn killed(&mut self) -> Result<bool, Stuck> {
        let due = self.scene.kills.get(self.outside.kills).is_some_and(|at| BEGIN.plus(*at) <= self.now());
        if due {
            self.outside.kills += 1;
            self.kill()?;
        }
        Ok(due)
    }

    /// Kills the worker and starts another one on what it has left.
    pub(super) fn kill(&mut self) -> Result<(), Stuck> {
        let left = self.log.killed().map_err(|why| Stuck::Refused(why.to_string()))?;
        self.outside.lose(self.attempts.iter().map(|attempt| attempt.made.asked.id.as_str()));
        self.attempts.clear();
        self.worker = start(self.workflows, &left, &self.clock)?;
        self.log = left;
        self.looked_at = None;
        self.drain()
    }

    /// How long the run has taken.
    pub(crate) fn took(&self) -> Duration {
        let closed = self.outside.root().and_then(|root| root.closed.as_ref()).map(|(at, _)| *at);
        closed.unwrap_or(self.now()).since(BEGIN)
    }
}

fn start(workflows: &WorkflowRegistry, log: &Medium, clock: &VirtualClock) -> Result<Stepped, Stuck> {
    let mut options = WorkerOptions::new(log.data());
    options.workflows = workflows.clone();
    options.clock = Clock::Virtual(clock.clone());
    options.shards = 1;
    Stepped::start_staging_all(options).map_err(|why| Stuck::Refused(why.to_string()))
}
