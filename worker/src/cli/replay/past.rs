//! `replay past`: a history comes in, the run as it was at one of its events goes out. Pages ask it, each time in a process of
//! its own.
//!
//! Invariant: code that overflows its stack, aborts or never comes back ends this process and no worker. It reads standard
//! input alone, opens no data directory, and writes one JSON object; it is for programs of this version, and shown to nobody.

use std::collections::BTreeMap;
use std::io::Read;

use bosun_engine::{EventId, Failure, Timestamp};
use bosun_replay::{CodeFit, History, HistoryLimits, Moment, PathChange, PathStep, Timeline, answers_at_end};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Bench;
use super::show::pending;
use crate::cli::error::CliError;
use crate::cli::event_text::details;
use crate::cli::exit::Exit;
use crate::cli::explain::Code;
use crate::cli::output::Format;
use crate::ui::export::ANSWERED;

#[derive(Debug, Args)]
pub struct PastArgs {
    /// The event; the last one if none is given.
    #[arg(long)]
    at: Option<u64>,
    /// Also show the plan that was under review before the current one.
    #[arg(long)]
    plan_before: bool,
    /// Also give what it answers to the queries of a supervisor after its last event.
    #[arg(long)]
    answers: bool,
}

/// What can be said of the past of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PastView {
    pub last: u64,
    pub fit: PastFit,
    pub moment: PastMoment,
    pub plan_before: Option<Value>,
    /// By the name of the query.
    pub answers: BTreeMap<String, Value>,
}

/// How far the code could be followed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum PastFit {
    Fits,
    Mismatch { event: u64, card: String },
    NotRun { why: String },
}

/// The run as it was after one event.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PastMoment {
    pub event: u64,
    pub kind: String,
    pub at: Timestamp,
    pub details: String,
    pub location: Option<String>,
    pub changes: Vec<String>,
    /// The same changes, part by part.
    pub changed: Vec<ChangedPlace>,
    /// What was pending, and what the code waited for: names and texts.
    pub pending: Vec<(String, String)>,
    pub last_failure: Option<(u64, Failure)>,
    pub state: Option<Value>,
}

/// A place of the state that an event has changed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ChangedPlace {
    /// The names on the way to it; empty: all of the state.
    pub place: Vec<String>,
    /// Nothing where there was nothing.
    pub before: Option<Value>,
    /// Nothing where there is nothing any more.
    pub after: Option<Value>,
}

impl ChangedPlace {
    fn of(change: &PathChange) -> ChangedPlace {
        let name = |step: &PathStep| match step {
            PathStep::Key(key) => key.clone(),
            PathStep::Index(index) => format!("#{}", index + 1),
        };
        let PathChange { path, before, after } = change;
        ChangedPlace { place: path.0.iter().map(name).collect(), before: before.clone(), after: after.clone() }
    }
}

pub(super) fn past(bench: &mut Bench<'_>, args: &PastArgs) -> Result<Exit, CliError> {
    let unreadable = |why: String| CliError::new(Code::UnreadableHistory, "standard input is not a history").cause(why);
    let mut text = Vec::new();
    std::io::stdin().lock().read_to_end(&mut text).map_err(|why| unreadable(why.to_string()))?;
    let history = History::from_json(&text, &HistoryLimits::default()).map_err(|why| unreadable(why.to_string()))?;
    drop(text);
    let answers = if args.answers { answers_at_end(&bench.workflows, &history, &ANSWERED) } else { BTreeMap::new() };
    let timeline = Timeline::new(&bench.workflows, history);
    let at = EventId(args.at.unwrap_or(timeline.last().0).clamp(1, timeline.last().0.max(1)));
    let moment = timeline.at(at).ok_or_else(|| unreadable(format!("there is no event {at}")))?;
    let view = PastView {
        last: timeline.last().0,
        fit: match timeline.code() {
            CodeFit::Fits => PastFit::Fits,
            CodeFit::Mismatch(found) => PastFit::Mismatch { event: found.event_id.0, card: found.to_string() },
            CodeFit::NotRun { why } => PastFit::NotRun { why: why.clone() },
        },
        plan_before: args.plan_before.then(|| plan_before(&timeline)).flatten(),
        answers,
        moment: of(moment),
    };
    let text = serde_json::to_string(&view).map_err(|why| CliError::new(Code::Failed, why.to_string()))?;
    bench.screen.document(Format::Json, &text);
    Ok(Exit::Ok)
}

fn of(moment: Moment) -> PastMoment {
    PastMoment {
        event: moment.event.id.0,
        kind: moment.event.kind.name().to_owned(),
        at: moment.event.at,
        details: details(&moment.event.kind),
        pending: pending(&moment).into_iter().map(|(name, text)| (name.to_owned(), text)).collect(),
        changes: moment.changes.iter().map(ToString::to_string).collect(),
        changed: moment.changes.iter().map(ChangedPlace::of).collect(),
        last_failure: moment.last_failure.map(|(event, why)| (event.0, why)),
        location: moment.location,
        state: moment.state,
    }
}

/// The plan under review in the newest state whose plan is another one than that of now.
fn plan_before(timeline: &Timeline<'_>) -> Option<Value> {
    let now = timeline.state_at(timeline.last())?;
    let now = under_review(&now, 0)?;
    let mut changed = timeline.events().iter().rev().filter(|event| !timeline.changes_of(event.id).is_empty());
    changed.find_map(|event| {
        let state = timeline.state_at(event.id)?;
        under_review(&state, 0).filter(|plan| *plan != now).cloned()
    })
}

/// The plan of the review, wherever the state keeps it.
fn under_review(state: &Value, depth: usize) -> Option<&Value> {
    const DEPTH_MAX: usize = 6;
    let fields = state.as_object()?;
    if let Some(plan) = fields.get("review").map(|review| &review["plan"]["plan"]).filter(|plan| plan.is_object()) {
        return Some(plan);
    }
    if depth == DEPTH_MAX {
        return None;
    }
    fields.values().find_map(|value| under_review(value, depth + 1))
}
