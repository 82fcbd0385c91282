//! The error card: why a history does not fit the code, lined up request by request, and what to do about it.
//!
//! Invariant: the mismatch is the engine's ([`NonDeterminism`]); the card adds what surrounds it (the events before, the
//! requests after, the line of code, a patch) and never contradicts it. Inputs stand in it as hashes; of one that changed,
//! where both are JSON, the first place that differs is shown, shortened. It reads no file: who has the sources gives them.

mod ahead;
mod patch;
#[cfg(test)]
mod tests;

use std::fmt;

use bosun_engine::workflow::{
    AlignedLine, Hint, NonDeterminism, ReplayError, Replayer, Request, RunIdentity, WorkflowRegistry, align_requests,
};
use bosun_engine::*;
use serde::Serialize;

use self::ahead::{Asked, look_ahead};
pub use self::patch::SuggestedPatch;
use crate::{History, PathChange, changes};

/// How many events before the mismatch are shown.
const BEFORE: usize = 3;
/// How many requests are lined up.
const COMPARED_MAX: usize = 200;
/// How much is printed of each of the two values at the place where an input differs.
const VALUE_MAX: usize = 60;
/// How many requests of each kind of difference are named; code that asks without end would fill the screen.
const NAMED_MAX: usize = 5;

/// How many lines of the comparison are printed.
const PRINTED_MAX: usize = 24;

/// Gives the text of a source file by the path that the compiler knew it by.
pub type Sources<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A mismatch with everything a person needs to see at once.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Card {
    /// What the engine says: the first difference and the activation around it.
    pub mismatch: NonDeterminism,
    /// How many events the history has.
    pub events: usize,
    /// When the event was recorded that the code did not ask for.
    pub recorded_at: Option<Timestamp>,
    /// The last events before the mismatch, the one that the code was answering among them.
    pub before: Vec<EventBefore>,
    /// The comparison, beyond the activation as far as the code could be followed.
    pub lines: Vec<AlignedLine>,
    /// Events behind those that were compared.
    pub not_compared: usize,
    /// The line of the code that asked for something else, where its file can be read.
    pub source: Option<SourceLine>,
    /// What to do about it, in a sentence.
    pub hint: String,
    /// The change of the code that keeps old runs, where one can be told.
    pub patch: Option<SuggestedPatch>,
}

/// An event before the mismatch, in a line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventBefore {
    /// Its place in the history.
    pub event_id: EventId,
    /// Its kind and what it is about.
    pub what: String,
}

/// The line of code that asked for what history does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceLine {
    /// As the compiler saw it.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
    /// The line itself.
    pub text: String,
}

/// Replays a history and explains the mismatch, if there is one. Nothing for a history that fits, and for one that
/// cannot be replayed at all: [`crate::replay_history`] says which.
pub fn explain(registry: &WorkflowRegistry, history: &History, sources: Sources<'_>) -> Option<Card> {
    let mut replayer = Replayer::new(registry);
    for turn in history.turns() {
        match replayer.turn(turn, &mut |_| {}) {
            Ok(()) => {}
            Err(ReplayError::NonDeterminism(mismatch)) => {
                return Some(Card::of(registry, *mismatch, &mut replayer, history, sources));
            }
            Err(_) => return None,
        }
    }
    None
}

impl Card {
    fn of(
        registry: &WorkflowRegistry,
        mismatch: NonDeterminism,
        replayer: &mut Replayer<'_>,
        history: &History,
        sources: Sources<'_>,
    ) -> Card {
        let activating = activating(history, mismatch.event_id);
        let asked = look_ahead(replayer, history, activating);
        let (lines, hint, last) = compare(&mismatch, &asked, history, activating);
        let source = mismatch.location.as_ref().and_then(|place| SourceLine::read(place, sources));
        let state_machine = registry.supports_snapshot(&mismatch.workflow_type);
        let patch = patch::suggest(&mismatch, &lines, sources, if state_machine { "cx" } else { "ctx" });
        let hint = match &patch {
            Some(patch) => hint.with_patch(&patch.id),
            None => hint.to_string(),
        };
        let before: Vec<EventBefore> = history
            .events()
            .filter(|event| event.id <= activating)
            .map(|event| EventBefore { event_id: event.id, what: event.kind.name().to_owned() })
            .collect();
        Card {
            events: history.len(),
            recorded_at: history.events().find(|event| event.id == mismatch.event_id).map(|event| event.at),
            before: before[before.len().saturating_sub(BEFORE)..].to_vec(),
            not_compared: usize::try_from((history.len() as u64).saturating_sub(last.0)).unwrap_or(usize::MAX),
            lines,
            source,
            hint,
            patch,
            mismatch,
        }
    }
}

/// The event that activated the code when it did not answer as recorded.
fn activating(history: &History, mismatch: EventId) -> EventId {
    let before = history.events().take_while(|event| event.id < mismatch);
    let last = before.filter(|event| event.kind.origin() == Origin::Activating).last();
    last.map_or(EventId(1), |event| event.id)
}

/// The lines, the hint, and the last event that was compared.
fn compare(
    mismatch: &NonDeterminism,
    asked: &[Asked],
    history: &History,
    activating: EventId,
) -> (Vec<AlignedLine>, Hint, EventId) {
    let identity = RunIdentity {
        run_id: mismatch.run_id,
        workflow_id: mismatch.workflow_id.clone(),
        workflow_type: mismatch.workflow_type.clone(),
        current_build: mismatch.current_build,
    };
    let requested = |event: &Event| event.id > activating && event.kind.origin() == Origin::Command;
    let recorded: Vec<Event> = history.events().filter(requested).take(COMPARED_MAX).collect();
    let commands: Vec<Command> = asked.iter().take(COMPARED_MAX).map(|(command, _)| command.clone()).collect();
    let locate = |at: usize| asked.get(at).and_then(|(_, place)| place.clone());
    let ended = commands.iter().any(Command::closes);
    let (mut lines, mut hint) = align_requests(&identity, &commands, &locate, &recorded);
    if !ended {
        // The code could not be followed to its end: what history holds behind that is not missing.
        let own = mismatch.alignment.iter().filter_map(event_of).max().unwrap_or(activating);
        let paired =
            lines.iter().filter(|line| !matches!(line, AlignedLine::Missing { .. })).filter_map(event_of).max();
        let end = paired.unwrap_or(own).max(own);
        let recorded: Vec<Event> = recorded.into_iter().filter(|event| event.id <= end).collect();
        (lines, hint) = align_requests(&identity, &commands, &locate, &recorded);
    }
    let last = lines.iter().filter_map(event_of).max().unwrap_or(activating);
    (lines, hint, last)
}

fn event_of(line: &AlignedLine) -> Option<EventId> {
    match line {
        AlignedLine::Same { event_id, .. }
        | AlignedLine::Missing { event_id, .. }
        | AlignedLine::Changed { event_id, .. }
        | AlignedLine::Reordered { event_id, .. } => Some(*event_id),
        AlignedLine::Extra { .. } => None,
    }
}

/// The first place where the two inputs of a changed request differ, and how many more there are.
fn differs_at(line: &AlignedLine) -> Option<(PathChange, usize)> {
    let AlignedLine::Changed { recorded_input: Some(recorded), produced_input: Some(produced), .. } = line else {
        return None;
    };
    let (recorded, produced): (serde_json::Value, serde_json::Value) =
        (recorded.decode().ok()?, produced.decode().ok()?);
    let mut places = changes(&recorded, &produced);
    let more = places.len().checked_sub(1)?;
    Some((places.swap_remove(0), more))
}

fn shortened(value: &serde_json::Value) -> String {
    let text = value.to_string();
    let short: String = text.chars().take(VALUE_MAX).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

impl SourceLine {
    fn read(location: &CodeLocation, sources: Sources<'_>) -> Option<SourceLine> {
        let whole = |number: u32| usize::try_from(number).ok();
        let (line, column) = (whole(location.line)?, whole(location.column)?);
        let text = sources(&location.file)?.lines().nth(line.checked_sub(1)?)?.to_owned();
        Some(SourceLine { file: location.file.clone(), line, column, text })
    }
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = &self.mismatch;
        let nothing = || "nothing".to_owned();
        writeln!(f, "error[{}]: workflow code no longer matches history", NonDeterminism::CODE)?;
        writeln!(
            f,
            "  run   {} ({}, type {}, code {} -> {})  at event {} of {}, in answer to {}",
            found.workflow_id,
            found.run_id,
            found.workflow_type,
            found.recorded_build,
            found.current_build,
            found.event_id,
            self.events,
            found.activating
        )?;
        let recorded = self.recorded_at.map_or_else(String::new, |at| format!("    recorded {at}"));
        writeln!(
            f,
            "  history expects   {}{recorded}",
            found.expected.as_ref().map_or_else(nothing, Request::to_string)
        )?;
        let location = found.location.as_ref().map_or_else(String::new, |at| format!("    {at}"));
        writeln!(
            f,
            "  code produced     {}{location}",
            found.produced.as_ref().map_or_else(nothing, Request::to_string)
        )?;
        self.comparison(f)?;
        self.named_apart(f)?;
        self.first_place(f)?;
        if let Some(source) = &self.source {
            let digits = source.line.to_string();
            let caret = " ".repeat(source.column.saturating_sub(1));
            let text = source.text.replace('\t', " ");
            writeln!(f, "  {digits} | {text}\n  {} | {caret}^ asked for here", " ".repeat(digits.len()))?;
        }
        write!(f, "help: {}", self.hint)?;
        if let Some(patch) = &self.patch {
            write!(f, "\n{patch}")?;
        }
        if self.not_compared > 0 {
            write!(f, "\nnote: {} later events are not compared", self.not_compared)?;
        }
        Ok(())
    }
}

impl Card {
    fn comparison(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in &self.before {
            writeln!(f, "   {:>5}    {}", event.event_id.0, event.what)?;
        }
        // The lines around the first difference say most.
        let first = self.lines.iter().position(|line| !matches!(line, AlignedLine::Same { .. })).unwrap_or(0);
        let from = first.saturating_sub(PRINTED_MAX / 3);
        let shown = &self.lines[from..self.lines.len().min(from + PRINTED_MAX)];
        if from > 0 {
            writeln!(f, "            … {from} requests that are the same")?;
        }
        shown.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        let rest = self.lines.len() - from - shown.len();
        if rest > 0 {
            writeln!(f, "            … {rest} lines more")?;
        }
        Ok(())
    }

    /// Where the inputs of the first changed request differ.
    fn first_place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((change, more)) = self.lines.iter().find_map(differs_at) else { return Ok(()) };
        let path = if change.path.0.is_empty() { "the whole".to_owned() } else { change.path.to_string() };
        let text = |value: &Option<serde_json::Value>| value.as_ref().map_or("nothing".to_owned(), shortened);
        write!(f, "  differs at {path}: {} -> {}", text(&change.before), text(&change.after))?;
        if more > 0 {
            write!(f, ", and in {more} more places")?;
        }
        writeln!(f)
    }

    /// What is extra, missing, changed and moved, each under its name.
    fn named_apart(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, lines) in self.differences() {
            if lines.is_empty() {
                continue;
            }
            let named = lines.len().min(NAMED_MAX);
            write!(f, "  {name:<10} {}", lines[..named].join("; "))?;
            match lines.len() - named {
                0 => writeln!(f)?,
                more => writeln!(f, "; and {more} more")?,
            }
        }
        Ok(())
    }

    /// What is wrong, apart from the run: cards of the same mistake in many runs have the same. Times, numbers and the
    /// contents of inputs are the run's own.
    pub fn mistake(&self) -> String {
        let found = &self.mismatch;
        let named = |what: &Option<Request>| what.as_ref().map_or_else(|| "nothing".to_owned(), Request::title);
        let kinds = self.differences().map(|(kind, lines)| format!("{kind} {}", lines.len().min(1)));
        let place = found.location.as_ref().map(ToString::to_string).unwrap_or_default();
        let (expected, produced) = (named(&found.expected), named(&found.produced));
        format!("{} {expected} {produced} {place} {} {}", found.workflow_type, found.activating.name, kinds.join(" "))
    }

    /// The differences by their kind: `extra`, `missing`, `changed`, `reordered`.
    pub fn differences(&self) -> [(&'static str, Vec<String>); 4] {
        let (mut extra, mut missing, mut changed, mut reordered) = (vec![], vec![], vec![], vec![]);
        for line in &self.lines {
            match line {
                AlignedLine::Same { .. } => {}
                AlignedLine::Extra { what, .. } => extra.push(what.to_string()),
                AlignedLine::Missing { what, .. } => missing.push(what.to_string()),
                AlignedLine::Changed { recorded, produced, .. } => changed.push(format!("{recorded} -> {produced}")),
                AlignedLine::Reordered { what, .. } => reordered.push(what.to_string()),
            }
        }
        [("extra", extra), ("missing", missing), ("changed", changed), ("reordered", reordered)]
    }
}
