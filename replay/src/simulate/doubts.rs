//! Doubts: what is looked at after every commit of a simulated life, and at its end.
//!
//! Invariant: doubting changes nothing of the life. Every look runs the engine's own driver on the history alone, with
//! fresh code: what the code asks for then must be, byte for byte, what it asked for when it lived (G21).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bosun_engine::machine::Execution;
use bosun_engine::workflow::{ReplayError, ReplayStep, Replayed, Replayer, WorkflowRegistry, take_stray_request};
use bosun_engine::*;
use serde_json::Value;

use super::clues::{Clues, first_difference};
use super::finding::Violation;
use super::watch::{self, WatchedActivation};
use super::world::SimulatedRun;
use crate::determinism::{Allowed, Trip, forget_suspects, suspect, suspects, take_trips};

type InvariantCheck = Arc<dyn Fn(&RunView<'_>) -> Result<(), String> + Send + Sync>;
/// What an activity gives for its input.
type Answers = Arc<dyn Fn(&Payload) -> ActivityOutcome + Send + Sync>;

/// What is looked at, and what may be.
pub struct Doubts {
    pub(crate) invariants: Vec<(String, InvariantCheck)>,
    /// How many more runs over the whole history there are at the end, each on a thread of its own and disturbed.
    pub(crate) twins: u32,
    /// Activities whose result is a function of their input: where a plan says that one completes, it ends like this.
    pub(crate) answers: BTreeMap<ActivityType, Answers>,
    pub(crate) allowed: Allowed,
    pub(crate) panics_allowed: bool,
    /// Whether the code is given what it can read, so that a failure to read is the test's.
    pub(crate) typed: bool,
    pub(crate) runs_for_ever: bool,
    pub(crate) heal_commits: Option<u32>,
    /// Whether every prefix is replayed, as the run grows, or the whole only, at rest.
    pub(crate) prefixes: bool,
}

impl Default for Doubts {
    fn default() -> Self {
        Doubts {
            invariants: Vec::new(),
            twins: 2,
            answers: BTreeMap::new(),
            allowed: Allowed::default(),
            panics_allowed: false,
            typed: false,
            runs_for_ever: false,
            heal_commits: None,
            prefixes: true,
        }
    }
}

impl Doubts {
    /// Only the replay of every prefix: for those who live very many lives.
    pub fn without_twins() -> Self {
        Doubts { twins: 0, ..Doubts::default() }
    }
    /// The same for a life that is one of very many: no twins, and each history is replayed at every prefix, or only
    /// whole, once, at rest. The other doubts (guarantees, invariants, states that come back from eviction, loads after
    /// crashes) stand.
    pub(crate) fn of_one_in_many(&self, prefixes: bool) -> Doubts {
        let (invariants, answers, allowed) = (self.invariants.clone(), self.answers.clone(), self.allowed.clone());
        Doubts { invariants, answers, allowed, twins: 0, prefixes, ..*self }
    }
}

impl fmt::Debug for Doubts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.invariants.iter().map(|(name, _)| name).collect();
        f.debug_struct("Doubts").field("invariants", &names).field("twins", &self.twins).finish_non_exhaustive()
    }
}

/// A run as an invariant sees it, after a commit.
pub struct RunView<'a> {
    turns: &'a [Turn],
    execution: Option<&'a Execution>,
    now: Timestamp,
}

impl<'a> RunView<'a> {
    pub(super) fn new(turns: &'a [Turn], execution: Option<&'a Execution>, now: Timestamp) -> Self {
        RunView { turns, execution, now }
    }
    /// The history so far, as it is stored.
    pub fn turns(&self) -> &'a [Turn] {
        self.turns
    }
    /// The history so far.
    pub fn events(&self) -> impl Iterator<Item = &'a EventKind> {
        self.turns.iter().flat_map(|turn| &turn.events)
    }
    /// The inputs of the activities of this type, in the order in which they were scheduled.
    pub fn scheduled(&self, activity: &str) -> Vec<&'a Payload> {
        let wanted = |event: &'a EventKind| match event {
            EventKind::ActivityTaskScheduled(scheduled) if scheduled.activity_type.as_str() == activity => {
                Some(&scheduled.input)
            }
            _ => None,
        };
        self.events().filter_map(wanted).collect()
    }
    /// The state of the code, if its form shows one.
    pub fn state(&self) -> Option<Value> {
        self.execution?.state_json()
    }
    /// How the run has ended.
    pub fn outcome(&self) -> Option<&'a CloseOutcome> {
        self.execution?.run().outcome()
    }
    /// What the code waits for.
    pub fn awaiting(&self) -> Vec<Awaited> {
        self.execution.map(Execution::awaiting).unwrap_or_default()
    }
    /// Whether the run was asked to cancel.
    pub fn cancel_requested(&self) -> bool {
        self.execution.is_some_and(|execution| execution.run().cancel_requested())
    }
    /// Engine time.
    pub fn now(&self) -> Timestamp {
        self.now
    }
}

/// Something differs that no command shows.
pub(super) fn unstable(what: &'static str, first: String, second: String) -> Violation {
    Violation::Unstable { what, event_id: None, first, second, clues: Clues::suspected() }
}

pub(super) fn state_text(state: &Option<Value>) -> String {
    state.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string)
}

/// A life that ends with a payload of another type says nothing of the code.
fn unreadable(message: &str) -> String {
    format!(
        "the code ends with a payload that it cannot read or write: {message}\n  give the test inputs, results and signals of \
         the types that the code has (`DeterminismTest::of` and `results` check them); a worker would hold such a run"
    )
}

/// Up to here every prefix is replayed, then every eighth: the cost is the square of the length.
const EVERY_PREFIX: usize = 40;

impl Doubts {
    /// Calls that replay cannot repeat, caught in the act on this thread since the last look.
    pub(super) fn calls(&self) -> Result<(), Violation> {
        let (suspects, trips): (Vec<Trip>, Vec<Trip>) =
            take_trips().into_iter().filter(|trip| !self.allowed.covers(trip)).partition(Trip::is_only_suspect);
        suspect(suspects);
        trips.into_iter().next().map_or(Ok(()), |trip| Err(Violation::ForbiddenCall(trip)))
    }
    /// What an earlier life on this thread has left behind.
    pub(super) fn forget(&self) {
        drop((take_trips(), take_stray_request()));
        forget_suspects();
    }
    /// What the code asked for while it was dropped.
    pub(super) fn stray(&self) -> Result<(), Violation> {
        self.calls()?;
        take_stray_request().map_or(Ok(()), |what| Err(Violation::StrayRequest { what }))
    }

    pub(super) fn invariants(&self, view: &RunView<'_>) -> Result<(), Violation> {
        self.invariants
            .iter()
            .try_for_each(|(name, holds)| holds(view).map_err(|why| Violation::Invariant { name: name.clone(), why }))
    }

    /// Failures that no history explains: panics, and waiting for what is not of the workflow.
    pub(super) fn ended_well(&self, turns: &[Turn]) -> Result<(), Violation> {
        let end = turns.last().and_then(|turn| turn.events.last());
        let Some(EventKind::WorkflowExecutionFailed { failure, .. }) = end else { return Ok(()) };
        let FailureKind::Application { failure_type, .. } = &failure.kind else { return Ok(()) };
        let message = failure.message.clone();
        // The place of the call says more than the failure.
        self.calls()?;
        match failure_type.as_str() {
            FAILURE_FOREIGN_FUTURE => Err(Violation::ForeignFuture { message }),
            FAILURE_CONDITION_MUTATED => Err(Violation::ConditionMutates { message }),
            FAILURE_PANIC if message.contains("no reactor running") || message.contains("Tokio") => {
                Err(Violation::AmbientRuntime {
                    message: format!("the workflow code needs a tokio runtime: {message}"),
                })
            }
            FAILURE_PANIC if !self.panics_allowed => Err(Violation::Panic { message }),
            "InvalidInput" if self.typed && message.starts_with("the input of the workflow ") => {
                Err(Violation::Setup { why: unreadable(&message) })
            }
            FAILURE_PAYLOAD if self.typed => Err(Violation::Setup { why: unreadable(&message) }),
            _ => Ok(()),
        }
    }

    pub(super) fn same_state(&self, lived: &Option<Value>, again: &Option<Value>) -> Result<(), Violation> {
        if lived == again {
            return Ok(());
        }
        Err(unstable("state", state_text(lived), state_text(again)))
    }

    /// Compares what the code asked for when it was loaded with what it asked for when it lived.
    pub(super) fn same_again(
        &self,
        lived: &[WatchedActivation],
        relived: &[WatchedActivation],
    ) -> Result<(), Violation> {
        self.calls()?;
        compare(lived, relived)
    }

    /// Replays a history with fresh code and compares everything that can be seen.
    pub(super) fn replay(&self, registry: &WorkflowRegistry, run: &SimulatedRun) -> Result<(), Violation> {
        let mut seen = 0;
        let mut differs = None;
        let nothing = WatchedActivation::default();
        let replayed = self.relive(registry, &run.turns, Some(&run.lived), &mut |step| {
            let lived = run.lived.get(seen).unwrap_or(&nothing);
            seen += 1;
            if differs.is_none() && !same(&lived.commands, step.commands) {
                differs = same_commands(lived, &WatchedActivation::of(step)).err();
            }
        })?;
        self.calls()?;
        differs.map_or(Ok(()), Err)?;
        match &run.execution {
            Some(execution) => self.same_state(&execution.state_json(), &replayed.driver.state_json()),
            None => Ok(()),
        }
    }

    /// Whether a run that has grown is replayed now.
    pub(super) fn wants(&self, turns: &[Turn]) -> bool {
        let closed = || turns.last().and_then(|turn| turn.events.last()).is_some_and(|end| end.closes().is_some());
        self.prefixes && (turns.len() <= EVERY_PREFIX || turns.len().is_multiple_of(8) || closed())
    }

    /// Replays turns, with a look at every activation. A mismatch is explained by what the code asked for when it lived.
    pub(super) fn relive(
        &self,
        registry: &WorkflowRegistry,
        turns: &[Turn],
        lived: Option<&[WatchedActivation]>,
        look: &mut dyn FnMut(ReplayStep<'_>),
    ) -> Result<Replayed, Violation> {
        let mut replayer = Replayer::new(registry);
        let mut seen = 0;
        watch::unseen(|| {
            for turn in turns {
                let replayed = replayer.turn(turn, &mut |step| {
                    seen += 1;
                    look(step);
                });
                if let Err(why) = replayed {
                    self.calls()?;
                    let again = WatchedActivation::last_of(&mut replayer);
                    let lived = lived.and_then(|lived| lived.get(seen));
                    let clues = lived.map_or_else(Clues::suspected, |lived| Clues::between(lived, &again));
                    return Err(unfit(why, clues));
                }
            }
            replayer.finish().map_err(|why| unfit(why, Clues::suspected()))
        })
    }
}

fn unfit(why: ReplayError, clues: Clues) -> Violation {
    match why {
        ReplayError::NonDeterminism(card) => Violation::ReplayMismatch { card, clues },
        other => Violation::Guarantee { id: "G21", why: other.to_string() },
    }
}

/// Commands hold floats that are not equal to themselves; their text is.
fn same(lived: &[Command], again: &[Command]) -> bool {
    lived == again || format!("{lived:?}") == format!("{again:?}")
}

fn same_commands(lived: &WatchedActivation, again: &WatchedActivation) -> Result<(), Violation> {
    if same(&lived.commands, &again.commands) {
        return Ok(());
    }
    let at = first_difference(&lived.commands, &again.commands);
    let text = |seen: &WatchedActivation| {
        let command = seen.commands.get(at);
        command.map_or_else(|| "nothing".into(), |command| format!("{command:?}").chars().take(400).collect::<String>())
    };
    let (first, second) = (text(lived), text(again));
    let clues = Clues::between(lived, again);
    Err(Violation::Unstable { what: "commands", event_id: None, first, second, clues })
}

pub(super) fn compare(lived: &[WatchedActivation], again: &[WatchedActivation]) -> Result<(), Violation> {
    lived.iter().zip(again).try_for_each(|(lived, again)| same_commands(lived, again))
}

/// Runs something on a thread that nothing has run on before: no runtime, and hash keys not drawn yet. A panic there is
/// one of the engine or of the kit: those of workflow code are caught. What was suspected there is suspected here.
pub(crate) fn on_a_fresh_thread<T: Send>(work: impl FnOnce() -> Result<T, Violation> + Send) -> Result<T, Violation> {
    std::thread::scope(|scope| joined(scope.spawn(|| (work(), suspects()))))
}

/// As [`on_a_fresh_thread`], on one that bears a name.
pub(crate) fn on_a_named_thread<T: Send>(
    name: &str,
    work: impl FnOnce() -> Result<T, Violation> + Send,
) -> Result<T, Violation> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_owned());
        match thread.spawn_scoped(scope, || (work(), suspects())) {
            Ok(thread) => joined(thread),
            Err(why) => Err(Violation::Setup { why: format!("no thread for a twin: {why}") }),
        }
    })
}

type Worked<T> = (Result<T, Violation>, Vec<Trip>);

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Worked<T>>) -> Result<T, Violation> {
    match thread.join() {
        Ok((done, suspected)) => {
            suspect(suspected);
            done
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(Violation::Guarantee { id: "G23", why: text.unwrap_or_else(|| "a panic without a message".into()) })
        }
    }
}
