//! What a determinism test says: how much was looked at, or what is wrong and how to see it again.
//!
//! Invariant: a failure names its kind, the smallest plan that shows it, the seed, and one line that repeats it. The text
//! is for people; tests match on [`Failed::kind`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use bosun_engine::{CloseOutcome, WorkflowType};

use crate::simulate::{Life, LifePlan, LifeStep, RARE, Violation};

/// What was looked at, and nothing was wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many lives were lived.
    pub lives: u64,
    /// Of these, how many were drawn as a whole, and would shrink as a whole, where each drawn plan is lived often.
    pub drawn: u64,
    /// Runs that came to be: a life has more than one if the run goes on as another, or has children.
    pub histories: u64,
    /// How many commits they had.
    pub commits: u64,
    /// How many events their histories hold.
    pub events: u64,
    /// Lives by how they ended; `Waiting` for those that came to rest.
    pub ends: BTreeMap<String, u64>,
    /// Lives that neither failed nor ended in their first turn: only these say much about the code.
    pub got_somewhere: u64,
    /// What lives waited for that came to rest and had not ended, each combination once.
    pub rests: BTreeSet<BTreeSet<String>>,
    /// What the first life that failed did so with.
    pub failure: Option<String>,
    /// Rare states that were met, by name.
    pub rare: BTreeMap<&'static str, u64>,
    /// Whether forbidden calls would have been noticed at the call.
    pub trip_wires: bool,
    /// Whether histories were replayed in another process too.
    pub other_process: bool,
    /// What fits, and may be a mistake of a deploy all the same: a signal that has another name in the next version.
    pub warnings: BTreeSet<String>,
}

impl Report {
    /// Adds one life.
    pub fn add(&mut self, life: &Life) {
        self.lives += 1;
        self.histories += life.histories.len() as u64;
        self.commits += u64::from(life.commits);
        self.events += life.histories.iter().flatten().map(|turn| turn.events.len() as u64).sum::<u64>();
        let end = life.outcome.as_ref().map_or_else(|| "Waiting".to_owned(), |outcome| outcome.status().to_string());
        *self.ends.entry(end).or_default() += 1;
        let at_once = matches!(&life.histories[..], [only] if only.len() == 1) && life.outcome.is_some();
        match &life.outcome {
            Some(CloseOutcome::Failed(failure)) => {
                self.failure.get_or_insert_with(|| failure.to_string());
            }
            _ => self.got_somewhere += u64::from(!at_once),
        }
        if life.outcome.is_none() {
            self.rests.insert(life.awaiting.iter().map(|awaited| awaited.what.clone()).collect());
        }
        self.warnings.extend(life.warnings.iter().cloned());
        for (name, times) in &life.rare {
            *self.rare.entry(name).or_default() += times;
        }
    }
    /// Adds what another search has looked at.
    pub fn merge(&mut self, other: &Report) {
        self.lives += other.lives;
        self.drawn += other.drawn;
        self.histories += other.histories;
        self.commits += other.commits;
        self.events += other.events;
        self.trip_wires |= other.trip_wires;
        self.other_process |= other.other_process;
        self.warnings.extend(other.warnings.iter().cloned());
        self.got_somewhere += other.got_somewhere;
        self.rests.extend(other.rests.iter().cloned());
        self.failure = self.failure.take().or_else(|| other.failure.clone());
        other.ends.iter().for_each(|(end, n)| *self.ends.entry(end.clone()).or_default() += n);
        other.rare.iter().for_each(|(name, n)| *self.rare.entry(name).or_default() += n);
    }
    /// Why these lives say next to nothing of the code, if that is so; `sent` are the signals that the test sends.
    pub(super) fn says_nothing(&self, sent: &BTreeSet<String>) -> Option<String> {
        if self.lives == 0 {
            return None;
        }
        if self.got_somewhere == 0 {
            let failure =
                self.failure.as_ref().map_or_else(String::new, |failure| format!("\n  one failed with {failure}"));
            return Some(format!(
                "none of {} lives got anywhere: each failed or ended in its first turn{failure}\n  give the test what the code \
                 needs, or say `gets_nowhere` if this is what the workflow does",
                self.lives
            ));
        }
        let completes = self.ends.keys().any(|end| matches!(end.as_str(), "Completed" | "ContinuedAsNew"));
        let missing = |what: &String| what.strip_prefix("signal ").is_some_and(|name| !sent.contains(name));
        let stuck = |rest: &BTreeSet<String>| !rest.is_empty() && rest.iter().all(missing);
        if completes || self.rests.is_empty() || !self.rests.iter().all(stuck) {
            return None;
        }
        let wanted: BTreeSet<&str> =
            self.rests.iter().flatten().filter_map(|what| what.strip_prefix("signal ")).collect();
        let wanted: Vec<&str> = wanted.into_iter().collect();
        Some(format!(
            "no life completed: those that came to rest wait for what the test does not send: the signal {}\n  give it, \
             `.signal(\"{}\", ..)`, or say `gets_nowhere` if that is what the workflow does",
            wanted.join(", "),
            wanted.first().copied().unwrap_or_default()
        ))
    }
    /// Workers that died.
    pub fn crashes(&self) -> u64 {
        self.rare.iter().filter(|(name, _)| name.starts_with("crash ")).map(|(_, n)| n).sum()
    }
    /// How often each rare state was met, one a line.
    pub fn sometimes(&self) -> String {
        let line = |name: &&'static str| format!("{:>12}  {name}\n", self.rare.get(name).copied().unwrap_or(0));
        RARE.iter().map(line).collect()
    }
    /// Rare states that were never met.
    pub fn never_met(&self) -> Vec<&'static str> {
        RARE.iter().copied().filter(|name| !self.rare.contains_key(name)).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lives", self.lives)?;
        if self.drawn > 0 {
            write!(f, " ({} drawn by proptest)", self.drawn)?;
        }
        let Report { histories, commits, events, .. } = self;
        write!(f, ", {histories} histories, {commits} commits, {events} events, {} crashes; ", self.crashes())?;
        for (end, n) in &self.ends {
            write!(f, "{end} {n}, ")?;
        }
        write!(f, "{} of {} rare states met", self.rare.len(), RARE.len())?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\nwarning: {warning}"))
    }
}

/// What is wrong, and how to see it again.
#[derive(Debug, Clone, PartialEq)]
pub struct Failed {
    /// The workflow of the test.
    pub workflow_type: WorkflowType,
    /// What is wrong.
    pub finding: Box<Violation>,
    /// The smallest plan found that shows it.
    pub plan: Box<LifePlan>,
    /// `None` for a case file.
    pub seed: Option<u64>,
    /// How many lives were tried before.
    pub after: u64,
    /// The command that repeats it.
    pub again: String,
    /// Where the case is kept.
    pub case: Option<PathBuf>,
}

impl Failed {
    /// What the smallest life says of the cause: each of its steps is needed.
    fn hint(&self) -> Option<&'static str> {
        let differs = matches!(*self.finding, Violation::ReplayMismatch { .. } | Violation::Unstable { .. });
        let needs = |step: fn(&LifeStep) -> bool| differs && self.plan.steps.iter().any(step);
        if needs(|step| matches!(step, LifeStep::Query { .. })) {
            return Some(
                "the life needs the query: its handler may change something that only this process holds, behind an `Rc`",
            );
        }
        needs(|step| matches!(step, LifeStep::Update { .. })).then_some(
            "the life needs the update: its validator may change something that only this process holds, behind an `Rc`",
        )
    }
    /// The stable name of what is wrong.
    pub fn kind(&self) -> &'static str {
        self.finding.kind()
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "workflow {} failed its determinism test after {} lives", self.workflow_type, self.after)?;
        writeln!(f, "{}", self.finding)?;
        // What the test itself lacks is shown by no life.
        if !matches!(*self.finding, Violation::Setup { .. }) {
            writeln!(f, "the smallest life that shows it:")?;
            self.plan.to_string().lines().try_for_each(|line| writeln!(f, "  {line}"))?;
            if let Some(hint) = self.hint() {
                writeln!(f, "hint: {hint}")?;
            }
        }
        if let Some(seed) = self.seed {
            writeln!(f, "seed {seed:#018x}")?;
        }
        write!(f, "again: {}", self.again)?;
        self.case.as_ref().map_or(Ok(()), |case| write!(f, "\nkept as {}", case.display()))
    }
}

impl std::error::Error for Failed {}
