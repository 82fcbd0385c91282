//! `show`: the history of a run, page by page or as it grows.

use std::time::Duration;

use bosun_engine::*;
use clap::Args;
use futures_util::StreamExt;
use serde_json::json;

use super::args::RunOf;
use super::context::Context;
use super::error::CliError;
use super::event_text::{details, event_json, paint};
use super::exit::Exit;
use super::explain::Code;
use super::list::run_word;
use super::output::{Cell, Format, TextStyle, one_line};
use super::progress::{ProgressBoard, Watch};
use super::resolve::run_of;

#[derive(Debug, Args)]
pub struct ShowArgs {
    #[command(flatten)]
    pub run: RunOf,
    /// Keep showing events until the run closes.
    #[arg(short, long, conflicts_with = "reverse")]
    pub follow: bool,
    /// Begin at this event.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub from: u64,
    /// Show the newest events first.
    #[arg(long)]
    pub reverse: bool,
    /// Show only events of this type, for example TimerFired; may be given several times.
    #[arg(long = "type", value_name = "TYPE")]
    pub types: Vec<String>,
    /// The most events to show.
    #[arg(short, long, value_name = "N")]
    pub limit: Option<usize>,
}

const PAGE: usize = 1_000;

/// The types that events have.
const EVENT_TYPES: &[&str] = &[
    "WorkflowExecutionStarted",
    "FirstWorkflowTaskScheduled",
    "WorkflowExecutionSignaled",
    "WorkflowExecutionCancelRequested",
    "WorkflowExecutionUpdateAccepted",
    "WorkflowExecutionUpdateCompleted",
    "WorkflowExecutionPaused",
    "WorkflowExecutionUnpaused",
    "ActivityTaskScheduled",
    "ActivityTaskStarted",
    "ActivityTaskAttemptFailed",
    "ActivityTaskCompleted",
    "ActivityTaskFailed",
    "ActivityTaskTimedOut",
    "ActivityTaskCancelRequested",
    "ActivityTaskCanceled",
    "ActivityTaskPaused",
    "ActivityTaskUnpaused",
    "ActivityPropertiesModifiedExternally",
    "ActivityTaskAwaitingCompletion",
    "TimerStarted",
    "TimerFired",
    "TimerCanceled",
    "StartChildWorkflowExecutionInitiated",
    "StartChildWorkflowExecutionFailed",
    "ChildWorkflowExecutionStarted",
    "ChildWorkflowExecutionCancelRequested",
    "ChildWorkflowExecutionCompleted",
    "ChildWorkflowExecutionFailed",
    "ChildWorkflowExecutionCanceled",
    "ChildWorkflowExecutionTimedOut",
    "ChildWorkflowExecutionTerminated",
    "SignalExternalWorkflowExecutionInitiated",
    "ExternalWorkflowExecutionSignaled",
    "SignalExternalWorkflowExecutionFailed",
    "RequestCancelExternalWorkflowExecutionInitiated",
    "ExternalWorkflowExecutionCancelRequested",
    "RequestCancelExternalWorkflowExecutionFailed",
    "MarkerRecorded",
    "UpsertWorkflowSearchAttributes",
    "WorkflowPropertiesModified",
    "WorkflowExecutionCompleted",
    "WorkflowExecutionFailed",
    "WorkflowExecutionTimedOut",
    "WorkflowExecutionCanceled",
    "WorkflowExecutionTerminated",
    "WorkflowExecutionContinuedAsNew",
    "WorkflowExecutionForked",
];

/// A type that no event has is a slip: nothing would be shown.
fn known_types(types: &[String]) -> Result<(), CliError> {
    let is_known = |name: &String| EVENT_TYPES.iter().any(|known| known.eq_ignore_ascii_case(name));
    let Some(unknown) = types.iter().find(|name| !is_known(name)) else { return Ok(()) };
    let near = crate::supervisor::fields::similar(unknown, EVENT_TYPES);
    let near = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
    Err(CliError::usage(format!("no event has the type `{unknown}`{near}"))
        .help(format!("there are {}", EVENT_TYPES.join(", "))))
}

pub(super) async fn show(cx: &mut Context, args: ShowArgs) -> Result<Exit, CliError> {
    known_types(&args.types)?;
    let target = run_of(cx, &args.run).await?;
    if args.follow && cx.screen.format == Format::Json {
        return Err(CliError::usage("--follow has no end to put into one object").help("use -o jsonl"));
    }
    if args.follow {
        return follow(cx, target, &args).await;
    }
    let mut events = whole_history(cx, &target, EventId(args.from.max(1))).await?;
    events.retain(|event| wanted(&args.types, event));
    if args.reverse {
        events.reverse();
    }
    events.truncate(args.limit.unwrap_or(usize::MAX));
    let rows = events.iter().map(|event| event_json(&cx.screen, event)).collect();
    if cx.screen.format == Format::Json {
        cx.screen.object(
            "workflow.show",
            json!({ "workflow_id": target.workflow_id, "run_id": target.run_id, "events": serde_json::Value::Array(rows) }),
        );
    } else {
        cx.screen.objects("workflow.event", "events", rows);
    }
    let rows = events.iter().map(|event| {
        vec![
            Cell::of(event.id.to_string(), TextStyle::Dim),
            cx.screen.at(event.at).into(),
            Cell::of(event.kind.name(), paint(&event.kind)),
            details(&event.kind).into(),
        ]
    });
    let rows = rows.collect();
    cx.screen.table(&["id", "at", "type", "details"], rows)?;
    cx.screen.next(&format!("bosun describe {}", run_word(target.workflow_id.as_str())));
    Ok(Exit::Ok)
}

fn wanted(types: &[String], event: &Event) -> bool {
    types.is_empty() || types.iter().any(|name| name.eq_ignore_ascii_case(event.kind.name()))
}

/// All events from one on, asked for in pages.
pub(super) async fn whole_history(cx: &Context, target: &Target, from: EventId) -> Result<Vec<Event>, CliError> {
    let mut events: Vec<Event> = Vec::new();
    let mut from = from;
    loop {
        let page = cx.backend.history(target.clone(), from, PAGE).await?;
        let full = page.len() >= PAGE;
        if let Some(last) = page.last() {
            from = last.id.next();
        }
        events.extend(page);
        if !full {
            return Ok(events);
        }
    }
}

async fn follow(cx: &mut Context, target: Target, args: &ShowArgs) -> Result<Exit, CliError> {
    if !cx.carried_on {
        cx.screen.note("no worker carries runs on: showing what is there");
    }
    cx.awaited = Some(target.workflow_id.clone());
    let (mut next, mut left) = (EventId(args.from.max(1)), args.limit.unwrap_or(usize::MAX));
    let mut waits = ProgressBoard::new(Watch::Events, target.clone());
    loop {
        match follow_on(cx, &target, args, &mut next, &mut left, &mut waits).await {
            Err(why) if cx.lost_the_worker(&why) => cx.find_again(&target, false, &why).await?,
            ended => return ended.map(|()| Exit::Ok),
        }
    }
}

/// Shows what comes, for as long as whoever is asked answers.
async fn follow_on(
    cx: &mut Context,
    target: &Target,
    args: &ShowArgs,
    next: &mut EventId,
    left: &mut usize,
    waits: &mut ProgressBoard,
) -> Result<(), CliError> {
    let mut closed = false;
    let backend = cx.backend.clone();
    let mut quiet = tokio::time::interval(Duration::from_secs(1));
    let mut events = cx.backend.events(target.clone(), *next, cx.carried_on);
    while *left > 0 {
        let event = tokio::select! {
            biased;
            event = events.next() => event,
            _ = quiet.tick() => {
                waits.tell(&mut cx.screen, &*backend).await;
                continue;
            }
        };
        let Some(event) = event else { break };
        let event = event?;
        *next = event.id.next();
        closed = event.kind.closes().is_some();
        if !wanted(&args.types, &event) {
            continue;
        }
        *left -= 1;
        let row = event_json(&cx.screen, &event);
        cx.screen.row("workflow.event", row);
        let id = cx.screen.paint(TextStyle::Dim, &format!("{:>5}", event.id.to_string()));
        let name = cx.screen.paint(paint(&event.kind), &format!("{:<36}", event.kind.name()));
        // Relative times would grow old on the screen.
        cx.screen.line(format!("{id}  {}  {name}  {}", event.at, one_line(&details(&event.kind))));
        if cx.screen.closed() {
            return Ok(());
        }
    }
    // A worker that drains ends its streams without a word.
    if *left > 0 && !closed && cx.attached && cx.backend.describe(target.clone()).await?.info.status.is_open() {
        return Err(CliError::new(Code::ShuttingDown, "the worker ended the stream of an open run"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names stand in the engine, one an arm.
    #[test]
    fn every_type_of_event_is_known() {
        let source = include_str!("../../../engine/src/vocabulary/origin.rs");
        let begin = source.find("pub fn name(&self)").unwrap();
        let body = &source[begin..begin + source[begin..].find("\n    }\n").unwrap()];
        let named: Vec<&str> = body.split('"').skip(1).step_by(2).collect();
        assert_eq!(named, EVENT_TYPES);
        assert!(known_types(&["timerfired".to_owned()]).is_ok());
        assert!(known_types(&["Nope".to_owned()]).is_err());
    }
}
