//! Replays histories against code: one, at every prefix, or all open runs before a deploy (E22).
//!
//! Invariant: the engine's own driver runs the code; no activity, model or clock is called, and nothing is written. A
//! report says what was found as data; whether that stops a build or a deploy is for the caller. Memory is bounded by
//! the largest history plus one line for each run.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use bosun_engine::workflow::{AlignedLine, NonDeterminism, ReplayError, ReplayStep, Replayer, WorkflowRegistry};
use bosun_engine::*;
use serde::Serialize;
use serde_json::Value;

use crate::warnings::warnings;
use crate::{History, HistoryFile, HistoryLimits, Redaction};

/// How many beginnings of a history are replayed on their own, beside the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prefixes {
    /// Only the whole.
    #[default]
    None,
    /// Each one: costs the square of the number of turns.
    All,
    /// Every n-th, the first among them.
    EveryNth(usize),
}

/// What the replay of one history found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplayReport {
    /// Which run; absent where no history could be read.
    pub run: Option<ReplayedRun>,
    /// What was found.
    pub verdict: Verdict,
    /// What fits, and may be a mistake all the same; a gate shows it and lets it pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Which run was replayed, and how far.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplayedRun {
    /// Whose history it is.
    pub workflow_id: WorkflowId,
    /// Which run of that workflow id.
    pub run_id: RunId,
    /// Its workflow type.
    pub workflow_type: WorkflowType,
    /// How the run ended, or that it is running.
    pub status: WorkflowStatus,
    /// How many events the history has.
    pub events: usize,
    /// How often the code was activated.
    pub activations: u64,
    /// How many commands it gave.
    pub commands: u64,
    /// Over all commands; the same on every machine and in every build profile (G21).
    pub digest: Option<String>,
    /// How many prefixes were replayed on their own.
    pub prefixes: usize,
}

/// What the replay of a history says of the code.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Verdict {
    /// The code asks for what history holds, and gives the result that history holds if the run is over.
    Ok,
    /// The code asks for something else than history holds.
    NonDeterministic(Box<NonDeterminism>),
    /// As it was told to do, except that the run is over and the code gives another result.
    OtherResult(Box<NonDeterminism>),
    /// Two replays of the same history asked for different things: the code depends on something outside it.
    Unstable {
        /// How many turns the second replay had.
        prefix: usize,
        /// The event that was answered.
        event_id: EventId,
        /// What the whole replay asked for, shortened.
        first: String,
        /// What the replay of the prefix asked for, shortened.
        second: String,
    },
    /// The registry has no code of the run's type.
    UnknownType {
        /// The type.
        workflow_type: WorkflowType,
        /// The types that the registry has.
        known: Vec<String>,
    },
    /// The results are not in the history, so the code cannot be given them.
    Redacted,
    /// Damage to a store took a payload of the history, so the code cannot be given it (G28).
    Lost {
        /// The payload's hash.
        payload: String,
    },
    /// An export of Temporal's: another engine's events, for viewing only.
    Foreign,
    /// The history itself is wrong, or cannot be read.
    Invalid {
        /// The first thing that is wrong with it.
        why: String,
    },
}

impl ReplayReport {
    /// Whether the code fits.
    pub fn is_ok(&self) -> bool {
        self.verdict == Verdict::Ok
    }
    fn without_run(verdict: Verdict) -> Self {
        ReplayReport { run: None, verdict, warnings: Vec::new() }
    }
}

/// Replays one history.
pub fn replay_history(registry: &WorkflowRegistry, history: &History, prefixes: Prefixes) -> ReplayReport {
    let mut run = ReplayedRun {
        workflow_id: history.started().workflow_id.clone(),
        run_id: history.run_id(),
        workflow_type: history.started().workflow_type.clone(),
        status: history.status(),
        events: history.len(),
        activations: 0,
        commands: 0,
        digest: None,
        prefixes: 0,
    };
    let (verdict, warnings) = match judge(registry, history, prefixes, &mut run) {
        Ok(warnings) => (Verdict::Ok, warnings),
        Err(verdict) => (verdict, Vec::new()),
    };
    ReplayReport { run: Some(run), verdict, warnings }
}

/// Replays the history of a file, which may come from anywhere: it is checked before any code sees it.
pub fn replay_file(
    registry: &WorkflowRegistry,
    path: &Path,
    limits: &HistoryLimits,
    prefixes: Prefixes,
) -> ReplayReport {
    match HistoryFile::load(path, limits) {
        Ok(HistoryFile::Bosun(history)) => replay_history(registry, &history, prefixes),
        Ok(HistoryFile::Temporal(_)) => ReplayReport::without_run(Verdict::Foreign),
        Err(why) => ReplayReport::without_run(Verdict::Invalid { why: why.to_string() }),
    }
}

fn judge(
    registry: &WorkflowRegistry,
    history: &History,
    prefixes: Prefixes,
    run: &mut ReplayedRun,
) -> Result<Vec<String>, Verdict> {
    if history.redaction() != Redaction::None {
        return Err(Verdict::Redacted);
    }
    if let Some(lost) = history.turns().iter().find_map(Turn::lost_payload) {
        return Err(Verdict::Lost { payload: String::from_utf8_lossy(&lost.data).into_owned() });
    }
    let whole = HistoryCommands::replay(registry, history, run)?;
    let turns = history.turns().len();
    for prefix in (1..=turns).filter(|prefix| prefixes.include(*prefix)) {
        whole.check_prefix(registry, history, prefix)?;
        run.prefixes += 1;
    }
    Ok(warnings(history, &whole))
}

impl Prefixes {
    fn include(self, prefix: usize) -> bool {
        match self {
            Prefixes::None => false,
            Prefixes::All => true,
            Prefixes::EveryNth(n) => (prefix - 1).is_multiple_of(n.max(1)),
        }
    }
}

/// What the code asked for over the whole history, activation by activation.
pub(crate) struct HistoryCommands {
    pub(crate) activations: Vec<Vec<Command>>,
    /// What the code waits for in the end.
    pub(crate) awaiting: Vec<Awaited>,
    /// The activations by a signal that left the state of a machine as it was.
    pub(crate) unmoved: BTreeSet<usize>,
}

impl HistoryCommands {
    fn replay(registry: &WorkflowRegistry, history: &History, run: &mut ReplayedRun) -> Result<Self, Verdict> {
        let mut activations = Vec::new();
        let mut signals = SignalsOfMachine::of(registry, history);
        let mut replayer = Replayer::new(registry);
        for turn in history.turns() {
            let mut watch = |step: ReplayStep<'_>| {
                signals.see(activations.len(), &*step.driver);
                run.activations += 1;
                run.commands += step.commands.len() as u64;
                activations.push(step.commands.to_vec());
            };
            replayer.turn(turn, &mut watch).map_err(|why| verdict(why, history))?;
        }
        let replayed = replayer.finish().map_err(|why| verdict(why, history))?;
        run.digest = Some(hex(&replayed.digest));
        Ok(HistoryCommands { activations, awaiting: replayed.driver.awaiting(), unmoved: signals.unmoved })
    }

    /// Replays the first turns alone, with fresh code, and compares what it asks for with the whole replay.
    fn check_prefix(&self, registry: &WorkflowRegistry, history: &History, prefix: usize) -> Result<(), Verdict> {
        let mut seen = 0;
        let mut unstable = None;
        let mut replayer = Replayer::new(registry);
        for turn in history.prefix(prefix) {
            let mut watch = |step: ReplayStep<'_>| {
                let first = self.activations.get(seen).map_or(&[][..], Vec::as_slice);
                if unstable.is_none() && first != step.commands {
                    let at = first.iter().zip(step.commands).take_while(|(a, b)| a == b).count();
                    unstable = Some(Verdict::Unstable {
                        prefix,
                        event_id: step.event.id,
                        first: told(first.get(at)),
                        second: told(step.commands.get(at)),
                    });
                }
                seen += 1;
            };
            replayer.turn(turn, &mut watch).map_err(|why| verdict(why, history))?;
        }
        unstable.map_or(Ok(()), Err)
    }
}

/// Which signals moved a machine that is open still: its state before each is compared with its state after.
struct SignalsOfMachine {
    /// The activations by a signal; none of an async workflow, which says what it waits for.
    numbers: BTreeSet<usize>,
    before: Option<Value>,
    unmoved: BTreeSet<usize>,
}

impl SignalsOfMachine {
    fn of(registry: &WorkflowRegistry, history: &History) -> Self {
        let watched =
            history.status() == WorkflowStatus::Running && registry.supports_snapshot(&history.started().workflow_type);
        let activating = history.events().filter(|event| watched && event.kind.origin() == Origin::Activating);
        let is_signal = |kind: &EventKind| matches!(kind, EventKind::WorkflowExecutionSignaled(_));
        let numbers = activating.enumerate().filter(|(_, event)| is_signal(&event.kind)).map(|(number, _)| number);
        SignalsOfMachine { numbers: numbers.collect(), before: None, unmoved: BTreeSet::new() }
    }
    /// The driver after an activation.
    fn see(&mut self, number: usize, driver: &dyn Driver) {
        let is_signal = self.numbers.contains(&number);
        if !is_signal && !self.numbers.contains(&(number + 1)) {
            return;
        }
        let after = driver.state_json();
        if is_signal && after.is_some() && after == self.before {
            self.unmoved.insert(number);
        }
        self.before = after;
    }
}

/// Shortened: commands can hold whole inputs.
fn told(command: Option<&Command>) -> String {
    command.map_or_else(|| "nothing".to_owned(), |command| format!("{command:?}").chars().take(300).collect())
}

fn verdict(why: ReplayError, history: &History) -> Verdict {
    match why {
        ReplayError::NonDeterminism(card) if is_only_the_result(&card, history) => Verdict::OtherResult(card),
        ReplayError::NonDeterminism(card) => Verdict::NonDeterministic(card),
        ReplayError::UnknownWorkflow(Rejection::UnknownWorkflowType { workflow_type, known }) => {
            Verdict::UnknownType { workflow_type, known }
        }
        ReplayError::UnknownWorkflow(other) => Verdict::Invalid { why: other.to_string() },
        other @ (ReplayError::Empty
        | ReplayError::NotStarted { .. }
        | ReplayError::Gap { .. }
        | ReplayError::NoJob { .. }) => Verdict::Invalid { why: other.to_string() },
    }
}

/// Whether the code asked for the same things and closed the run in another way.
fn is_only_the_result(card: &NonDeterminism, history: &History) -> bool {
    let closing = history.turns().last().and_then(|turn| turn.numbered().last());
    let closes = closing.is_some_and(|event| event.id == card.event_id && event.kind.closes().is_some());
    let same_kind = |line: &AlignedLine| match line {
        AlignedLine::Same { .. } => true,
        AlignedLine::Changed { event_id, .. } => *event_id == card.event_id,
        AlignedLine::Missing { .. } | AlignedLine::Extra { .. } | AlignedLine::Reordered { .. } => false,
    };
    closes && card.alignment.iter().all(same_kind)
}

/// What a new build would do to the runs that are open (E22).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PreflightReport {
    /// The build that was checked.
    pub build: BuildId,
    /// One report a run, in the order in which they were given.
    pub runs: Vec<ReplayReport>,
}

/// Replays open runs against the code of a new build, before it is deployed. Each item is the history of one run, as the
/// log gives it.
pub fn preflight(registry: &WorkflowRegistry, histories: impl IntoIterator<Item = Vec<Turn>>) -> PreflightReport {
    let replay = |turns: Vec<Turn>| match History::new(turns) {
        Ok(history) => replay_history(registry, &history, Prefixes::None),
        Err(why) => ReplayReport::without_run(Verdict::Invalid { why: why.to_string() }),
    };
    PreflightReport { build: registry.build_id(), runs: histories.into_iter().map(replay).collect() }
}

impl PreflightReport {
    /// Whether the code fits all of them.
    pub fn is_ok(&self) -> bool {
        self.runs.iter().all(ReplayReport::is_ok)
    }
    /// The runs that the code does not fit, or that could not be read.
    pub fn refused(&self) -> impl Iterator<Item = &ReplayReport> {
        self.runs.iter().filter(|run| !run.is_ok())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Ok => f.write_str("ok"),
            Verdict::NonDeterministic(card) => write!(f, "non-deterministic\n{card}"),
            Verdict::OtherResult(card) => write!(f, "another result\n{card}"),
            Verdict::Unstable { prefix, event_id, first, second } => write!(
                f,
                "unstable: two replays differ in answer to event {event_id} (seen with {prefix} turns)\n  first    \
                 {first}\n  second   {second}\nhelp: the code reads a clock, randomness, the environment or an \
                 unordered map; take these from the workflow context"
            ),
            Verdict::UnknownType { workflow_type, known } => {
                write!(f, "no workflow type {workflow_type} in this build; it has: {}", known.join(", "))
            }
            Verdict::Redacted => f.write_str("the history is redacted: it can be read and compared, not replayed"),
            Verdict::Lost { payload } => write!(
                f,
                "damage to the store took payload {payload} of the history: it can be read, not replayed. Bring a backup back \
                 that has it (`bosun store restore`)"
            ),
            Verdict::Foreign => f.write_str(
                "an export of Temporal's: it can be viewed and compared, not replayed, because its events are not those \
                 of this engine",
            ),
            Verdict::Invalid { why } => write!(f, "not a valid history: {why}"),
        }
    }
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(run) = &self.run {
            write!(
                f,
                "{} ({}, {}): {} events, {} activations, {} commands",
                run.workflow_id, run.workflow_type, run.status, run.events, run.activations, run.commands
            )?;
            if run.prefixes > 0 {
                write!(f, ", {} prefixes", run.prefixes)?;
            }
            f.write_str(": ")?;
        }
        write!(f, "{}", self.verdict)?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\nwarning: {warning}"))
    }
}

impl fmt::Display for PreflightReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refused = self.refused().count();
        writeln!(f, "build {}: {} runs fit, {refused} do not", self.build, self.runs.len() - refused)?;
        self.refused().try_for_each(|run| writeln!(f, "{run}"))
    }
}
