//! `replay show`: a history as a list, or the run as it was at one of its events.
//!
//! Invariant: works for a run and for a file alike, and without code that fits: then the facts are shown and the reason
//! is named. An export of Temporal's is shown as events and statistics.

use bosun_engine::*;
use bosun_replay::{Breakpoint, CodeFit, Direction, HistoryFile, Moment, PathChange, TemporalHistory, Timeline};
use clap::Args;
use serde_json::{Value, json};

use super::Bench;
use super::paid::{PaidAnswers, PaidSoFar};
use super::source::{HistoryOf, history_word};
use crate::cli::error::{CliError, printable};
use crate::cli::event_text::{details, event_json, paint};
use crate::cli::exit::Exit;
use crate::cli::explain::Code;
use crate::cli::output::{Cell, Screen, TextStyle, one_line};

#[derive(Debug, Args)]
pub struct ReplayShowArgs {
    #[command(flatten)]
    of: HistoryOf,
    /// Show the run as it was after this event: state, pending work, what the code waited for.
    #[arg(long, value_name = "N")]
    at: Option<u64>,
    /// Show what changed in the state between --at and this event.
    #[arg(long, value_name = "M", requires = "at", conflicts_with = "until")]
    diff: Option<u64>,
    /// Go from --at (or the start) to the next event of this kind: an event type, `failure`, `name:NAME`, or
    /// `state.PATH` for a change of the state. May be given several times.
    #[arg(long, value_name = "BREAK")]
    until: Vec<String>,
    /// Go backwards to --until, from --at or the end.
    #[arg(long, requires = "until")]
    reverse: bool,
}

pub(super) async fn show(bench: &mut Bench<'_>, args: ReplayShowArgs) -> Result<Exit, CliError> {
    let recorded = bench.recorded(&args.of).await?;
    let name = recorded.name;
    let history = match recorded.history {
        HistoryFile::Bosun(history) => history,
        HistoryFile::Temporal(_) if args.at.is_some() || !args.until.is_empty() => {
            let message = format!("{name} is an export of Temporal's: it has no state to show at an event");
            return Err(
                CliError::usage(message).help(format!("`bosun replay show {name}` shows events and statistics"))
            );
        }
        HistoryFile::Temporal(history) => return show_temporal(bench.screen, &history),
    };
    let workflows = bench.workflows.clone();
    let timeline = Timeline::new(&workflows, history);
    let Some(at) = place(&timeline, &args)? else { return show_events(bench.screen, &name, &timeline) };
    if let Some(other) = args.diff {
        return show_diff(bench.screen, &timeline, at, EventId(other));
    }
    let moment = timeline.at(at).ok_or_else(|| no_event(&timeline, at))?;
    let paid = PaidAnswers::of(timeline.events()).at(&timeline, &moment);
    show_moment(bench.screen, &timeline, &moment, paid);
    bench.screen.next(&format!("bosun replay debug {} --at {at}", history_word(&name)));
    Ok(Exit::Ok)
}

fn no_event(timeline: &Timeline<'_>, at: EventId) -> CliError {
    CliError::usage(format!("there is no event {at}: the history has events 1 to {}", timeline.last()))
}

/// The event that is meant; none when the whole history is.
fn place(timeline: &Timeline<'_>, args: &ReplayShowArgs) -> Result<Option<EventId>, CliError> {
    let at = args.at.map(EventId);
    if let Some(at) = at.filter(|at| timeline.event(*at).is_none()) {
        return Err(no_event(timeline, at));
    }
    if args.until.is_empty() {
        return Ok(at);
    }
    let breakpoints: Result<Vec<Breakpoint>, _> = args.until.iter().map(|text| Breakpoint::parse(text)).collect();
    let breakpoints = breakpoints.map_err(|why| CliError::usage(why.to_string()))?;
    let (from, direction) = match args.reverse {
        false => (at.unwrap_or(EventId(0)), Direction::Forwards),
        true => (at.unwrap_or(timeline.last().next()), Direction::Backwards),
    };
    match timeline.find(from, direction, &breakpoints) {
        Some(found) => Ok(Some(found)),
        None => {
            let wanted: Vec<String> = breakpoints.iter().map(ToString::to_string).collect();
            Err(CliError::new(Code::Failed, format!("no event stops at {}", wanted.join(" or "))))
        }
    }
}

/// Whether the code fits, in words for the end of a head line; nothing when it does.
pub(super) fn unfit(timeline: &Timeline<'_>) -> Option<String> {
    match timeline.code() {
        CodeFit::Fits => None,
        CodeFit::Mismatch(found) => Some(format!(
            "the code of this program stops to fit at event {}: states are known up to there",
            found.event_id
        )),
        CodeFit::NotRun { why } => Some(format!("facts only: {why}")),
    }
}

fn fit_json(timeline: &Timeline<'_>) -> Value {
    match timeline.code() {
        CodeFit::Fits => json!({ "fits": true }),
        CodeFit::Mismatch(found) => json!({ "fits": false, "mismatch_at": found.event_id, "why": found.to_string() }),
        CodeFit::NotRun { why } => json!({ "fits": false, "mismatch_at": null, "why": why }),
    }
}

fn show_events(screen: &mut Screen, name: &str, timeline: &Timeline<'_>) -> Result<Exit, CliError> {
    let history = timeline.history();
    let events: Vec<Value> = timeline.events().iter().map(|event| event_json(screen, event)).collect();
    let object = json!({
        "workflow_id": history.started().workflow_id,
        "run_id": history.run_id(),
        "workflow_type": history.started().workflow_type,
        "status": history.status().to_string(),
        "code": fit_json(timeline),
        "events": events,
    });
    screen.object("replay.show", object);
    let row = |event: &Event| {
        vec![
            Cell::of(event.id.to_string(), TextStyle::Dim),
            event.at.to_string().into(),
            Cell::of(event.kind.name(), paint(&event.kind)),
            details(&event.kind).into(),
        ]
    };
    screen.table(&["id", "at", "type", "details"], timeline.events().iter().map(row).collect())?;
    if let Some(why) = unfit(timeline) {
        screen.note(&why);
    }
    screen.next(&format!("bosun replay show {} --at {}", history_word(name), timeline.last()));
    Ok(Exit::Ok)
}

fn show_moment(screen: &mut Screen, timeline: &Timeline<'_>, moment: &Moment, paid: Option<PaidSoFar>) {
    let object = json!({
        "event": event_json(screen, &moment.event),
        "of": timeline.last(),
        "status": moment.status.to_string(),
        "cancel_requested": moment.cancel_requested,
        "pending_activities": moment.pending_activities,
        "pending_timers": moment.pending_timers,
        "pending_children": moment.pending_children,
        "pending_updates": moment.pending_updates,
        "inbox": moment.inbox,
        "last_failure": moment.last_failure.as_ref().map(|(event, why)| json!({ "event": event, "failure": why.to_string() })),
        "state": moment.state,
        "changes": moment.changes,
        "awaiting": moment.awaiting,
        "location": moment.location,
        "spent": paid,
        "code": fit_json(timeline),
    });
    screen.object("replay.show.at", object);
    screen.field("event", format!("{} of {}", moment.event.id, timeline.last()));
    screen.field("type", format!("{}  {}", moment.event.kind.name(), one_line(&details(&moment.event.kind))));
    screen.field("at", moment.event.at.to_string());
    let asked = if moment.cancel_requested { " (cancel requested)" } else { "" };
    screen.field("status", format!("{}{asked}", moment.status));
    if let Some(place) = &moment.location {
        screen.field("asked for at", place);
    }
    for line in pending(moment) {
        screen.field(line.0, line.1);
    }
    if let Some((event, failure)) = &moment.last_failure {
        screen.field("last failure", format!("event {event}: {failure}"));
    }
    if let Some(paid) = paid {
        screen.field("spent so far", paid.to_string());
    }
    if let Some(state) = &moment.state {
        screen.field("state", "");
        screen.block(&printable(&format!("{state:#}")));
    }
    for change in &moment.changes {
        screen.field("changed", change.to_string());
    }
    if let Some(why) = unfit(timeline) {
        screen.note(&why);
    }
}

/// What is pending and what the code waits for, as names and texts.
pub(super) fn pending(moment: &Moment) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for activity in &moment.pending_activities {
        let text = format!("{} {:?}, attempt {}", activity.activity_type, activity.state, activity.attempt);
        lines.push(("activity", text));
    }
    for timer in &moment.pending_timers {
        let summary = timer.summary.as_deref().unwrap_or_default();
        lines.push(("timer", format!("{} fires at {} {summary}", timer.seq, timer.fire_at).trim_end().to_owned()));
    }
    for child in &moment.pending_children {
        lines.push(("child", format!("{} {}", child.workflow_type, child.workflow_id)));
    }
    for update in &moment.pending_updates {
        lines.push(("update", update.to_string()));
    }
    if moment.inbox > 0 {
        lines.push(("inbox", format!("{} inputs wait", moment.inbox)));
    }
    for awaited in moment.awaiting.iter().flatten() {
        let place = awaited.location.as_ref().map(|place| format!(" at {place}")).unwrap_or_default();
        lines.push(("waits for", format!("{}{place}", awaited.what)));
    }
    lines
}

fn show_diff(screen: &mut Screen, timeline: &Timeline<'_>, from: EventId, to: EventId) -> Result<Exit, CliError> {
    if timeline.event(to).is_none() {
        return Err(no_event(timeline, to));
    }
    let changes: Vec<PathChange> = timeline.diff(from, to).ok_or_else(|| {
        let why = unfit(timeline).unwrap_or_else(|| "this form of workflow shows no state".to_owned());
        CliError::new(Code::Failed, format!("the state at event {from} or {to} is not known")).cause(why)
    })?;
    screen.object("replay.show.diff", json!({ "from": from, "to": to, "changes": changes }));
    if changes.is_empty() {
        screen.line(format!("the state is the same at events {from} and {to}"));
    }
    for change in changes {
        screen.block(&printable(&change.to_string()));
    }
    Ok(Exit::Ok)
}

fn show_temporal(screen: &mut Screen, history: &TemporalHistory) -> Result<Exit, CliError> {
    let statistics = history.statistics();
    let events: Vec<Value> = history
        .events()
        .iter()
        .map(
            |event| json!({ "id": event.id, "at": event.at, "type": event.event_type, "attributes": event.readable() }),
        )
        .collect();
    screen.object("replay.show.temporal", json!({ "statistics": statistics, "events": events }));
    let rows = history
        .events()
        .iter()
        .map(|event| {
            vec![
                Cell::of(event.id.to_string(), TextStyle::Dim),
                event.at.map_or_else(|| "-".to_owned(), |at| at.to_string()).into(),
                event.event_type.clone().into(),
            ]
        })
        .collect();
    screen.table(&["id", "at", "type"], rows)?;
    screen.block(&printable(statistics.to_string().trim_end()));
    Ok(Exit::Ok)
}
