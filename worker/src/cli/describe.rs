//! `describe`: everything about one run but its history.

use bosun_engine::*;
use clap::Args;
use serde_json::{Value, json};

use super::args::RunOf;
use super::context::Context;
use super::error::{CliError, printable};
use super::event_text::brief;
use super::exit::Exit;
use super::handoffs;
use super::list::{counted, run_json, run_word, status_paint};
use super::output::{Screen, TextStyle, one_line};
use super::resolve::run_of;
use super::result::value_text;
use super::stuck::{DELAYED, HOLD, Lookout, Obstacle, inputs_wait};
use super::waiting::{Hold, hold_of, status_shown, waiting};
use crate::inbox::target_of;
use crate::notify::notified;
use crate::run_json;
use crate::supervisor::run::SUPERVISOR;
use crate::unhandled;

#[derive(Debug, Args)]
pub struct DescribeArgs {
    #[command(flatten)]
    pub run: RunOf,
}

/// Of each kind of pending work so much is shown, and of what is in the way: what stands above is to stay in sight.
const PENDING_SHOWN: usize = 10;
const STUCK_SHOWN: usize = 5;
/// Characters of who has handed over to whom.
const HANDED_MAX: usize = 400;

// long: one thing that is known of a run after the other.
pub(super) async fn describe(cx: &mut Context, args: DescribeArgs) -> Result<Exit, CliError> {
    let target = run_of(cx, &args.run).await?;
    let description = cx.backend.describe(target).await?;
    let waiting = waiting(&*cx.backend, &description.info).await;
    let mut object = description_json(&cx.screen, &description);
    object["waiting"] = waiting.iter().map(|one| one.json(&cx.screen.reach)).collect();
    let hold = hold_of(&description.info, &waiting);
    if let Some(hold) = hold {
        object["workflow"]["control"] = hold.name().into();
    }
    let held_back = held_back(cx, &description).await;
    tell_held_back(&mut object, &held_back);
    let now = cx.screen.now;
    let stuck = Lookout::new(&*cx.backend, now).carried_on(cx.carried_on).below_described(&description).await;
    object["stuck"] = stuck.iter().map(|one| one.json(&cx.screen)).collect();
    let notified = notified::of_run(&*cx.backend, &description.info).await;
    object["notified"] = notified.iter().map(|one| notified::with_moments(one, |at| cx.screen.time.json(at))).collect();
    let unhandled = unhandled::of_run(&*cx.backend, &description.info).await;
    if !unhandled.is_empty() {
        object["unhandled_signals"] = json!(unhandled);
    }
    let handed = handed_over(cx, &description.info).await;
    if !handed.is_empty() {
        object["handed_over"] = json!(handed);
    }
    cx.screen.object("workflow.describe", object);
    head(&mut cx.screen, &description, hold);
    if !handed.is_empty() {
        cx.screen.field("handed over", handoffs::in_line(&handed, HANDED_MAX));
    }
    if !unhandled.is_empty() {
        cx.screen.field("unhandled", unhandled::in_words(&unhandled));
    }
    pending(&mut cx.screen, &description, cx.carried_on);
    for (id, why) in &held_back {
        cx.screen.field("held back", format!("activity {id}: {why}"));
    }
    for one in &waiting {
        cx.screen.field("waits for", format!("{}: {}", one.whom, one_line(&one.what)));
        let answer = cx.screen.reach.complete(&one.answer);
        cx.screen.field("answer with", answer);
    }
    say_stuck(&mut cx.screen, &description.info, &stuck);
    for one in &notified {
        let text = notified::in_words(one, |at| cx.screen.at(at));
        cx.screen.field("notified", text);
    }
    let id = run_word(description.info.workflow_id.as_str());
    if description.info.status.is_open() {
        cx.say_if_nobody_works();
    }
    let next = if description.info.status.is_open() { "show --follow" } else { "result" };
    cx.screen.next(&format!("bosun {next} {id}"));
    Ok(Exit::Ok)
}

/// Who has paused activities that are pending, and why: the last words about each in the newest part of the history.
async fn held_back(cx: &Context, description: &Description) -> Vec<(ActivityId, String)> {
    const LOOKED_AT: usize = 1_000;
    let paused = description.pending_activities.iter().filter(|one| one.state == PendingActivityState::Paused);
    let paused: Vec<&PendingActivity> = paused.collect();
    if paused.is_empty() {
        return Vec::new();
    }
    let info = &description.info;
    let from = EventId(info.history.events.saturating_sub(LOOKED_AT as u64).saturating_add(1));
    let last = cx.backend.history(target_of(info), from, LOOKED_AT).await.unwrap_or_default();
    let told = paused.into_iter().filter_map(|one| {
        let said = last.iter().rev().find_map(|event| match &event.kind {
            EventKind::ActivityTaskPaused { seq, reason, identity } if *seq == one.seq => Some((reason, identity)),
            _ => None,
        });
        let (reason, identity) = said?;
        let by = identity.as_ref().map_or_else(String::new, |who| format!(" by {who}"));
        let why = if reason.is_empty() { String::new() } else { format!(": {}", one_line(reason)) };
        Some((one.activity_id.clone(), format!("it is paused{by}{why}")))
    });
    told.collect()
}

fn tell_held_back(object: &mut Value, held_back: &[(ActivityId, String)]) {
    let pending = object["pending_activities"].as_array_mut().into_iter().flatten();
    for one in pending {
        if let Some((_, why)) = held_back.iter().find(|(id, _)| one["activity_id"] == id.as_str()) {
            one["paused"] = why.as_str().into();
        }
    }
}

/// Who has had the conversation of a supervisor in hand, one after the other. One that cannot say it now hides nothing else.
async fn handed_over(cx: &Context, info: &RunInfo) -> Vec<String> {
    if info.workflow_type.as_str() != SUPERVISOR {
        return Vec::new();
    }
    let progress = cx.backend.query(target_of(info), QueryName::of("progress"), Payload::null()).await;
    progress.map(|progress| handoffs::of_progress(&progress.to_json())).unwrap_or_default()
}

/// What is in the way of a run and of those below it, a few of many.
fn say_stuck(screen: &mut Screen, info: &RunInfo, stuck: &[Obstacle]) {
    // Why it is held itself stands above.
    let held = |one: &&Obstacle| one.what == HOLD && one.run == info.workflow_id;
    for one in stuck.iter().filter(|one| !held(one)).take(STUCK_SHOWN) {
        // The command that is being run is no help.
        let own = one.run == info.workflow_id && one.help.starts_with("bosun describe");
        let text = format!("{}: {}", one.title(), one.said(screen.now, &screen.reach));
        screen.field(if one.why == DELAYED { "waits" } else { "stuck" }, text);
        if !own {
            let help = screen.reach.complete(&one.help);
            screen.field("help", help);
        }
    }
    let others = stuck.iter().filter(|one| !held(one)).count();
    say_more(screen, "stuck", others, STUCK_SHOWN);
}

fn head(screen: &mut Screen, description: &Description, hold: Option<Hold>) {
    let info = &description.info;
    screen.field("workflow id", info.workflow_id.as_str());
    screen.field("run id", info.run_id.to_string());
    screen.field("type", info.workflow_type.as_str());
    let label = screen.paint(TextStyle::Dim, &format!("{:<14}", "status"));
    // What the engine has under way is held all the same.
    let held = description.held.is_some();
    let status = screen.paint(status_paint(info.status, held, hold), &status_shown(info.status, held, hold));
    let asked = if description.cancel_requested && info.status.is_open() { " (cancel requested)" } else { "" };
    screen.line(format!("{label} {status}{asked}"));
    screen.field("started", screen.at(info.started_at));
    if let Some(at) = description.starts_at {
        screen.field("begins", screen.at(at));
    }
    if let Some(at) = info.closed_at {
        screen.field("closed", screen.at(at));
    }
    screen.field("task queue", info.task_queue.as_str());
    screen.field("history", format!("{}, {} bytes", counted(info.history.events, "event"), info.history.bytes));
    if info.attempt.0 > 1 {
        screen.field("attempt", info.attempt.to_string());
    }
    lineage(screen, info);
    told_at_start(screen, info);
    if let Some(why) = &description.held {
        // A card of several lines stays one.
        let title = screen.paint(TextStyle::Red, "held:");
        screen.block(&format!("{title} {}", screen.reach.complete(why)));
    }
    if let Some(outcome) = &description.result {
        screen.field("result", outcome_text(outcome));
    }
    for warning in &description.warnings {
        let line = screen.paint(TextStyle::Yellow, &printable(&format!("warning: {warning}")));
        screen.line(line);
    }
}

/// What whoever started it has said of it, and what its code has added.
fn told_at_start(screen: &mut Screen, info: &RunInfo) {
    for (name, text) in [("summary", &info.summary), ("details", &info.details)] {
        if let Some(text) = text {
            screen.field(name, text);
        }
    }
    for (name, value) in crate::run_json::attributes(info, |at| screen.time.json(at)) {
        screen.field("attribute", format!("{name} = {}", value_text(&value)));
    }
    for (name, value) in &info.memo {
        screen.field("memo", format!("{name} = {}", brief(value)));
    }
}

/// How far a fork or a reset kept the history; one that kept nothing began anew.
pub(super) fn point(event: EventId) -> String {
    if event.0 == 0 { "the beginning".to_owned() } else { format!("event {event}") }
}

/// The runs that this one comes from and leads to.
fn lineage(screen: &mut Screen, info: &RunInfo) {
    if let Some(parent) = &info.parent {
        screen.field("parent", parent.workflow_id.as_str());
    }
    if let Some(from) = &info.forked_from {
        match from.reset {
            true => screen.field("reset from", format!("{} of run {}", point(from.event), from.run_id)),
            false => {
                screen.field(
                    "forked from",
                    format!("{} at {} (run {})", from.workflow_id, point(from.event), from.run_id),
                );
            }
        }
    }
    if let Some(run) = info.continued_from {
        screen.field("continued from", run.to_string());
    }
    if let Some(run) = info.next_run {
        screen.field("next run", run.to_string());
    }
}

/// A pending activity, for people.
pub(super) fn activity_line(screen: &mut Screen, activity: &PendingActivity, carried_on: bool) {
    let mut text = format!(
        "{} {} {:?} attempt {}",
        activity.activity_id, activity.activity_type, activity.state, activity.attempt
    );
    if activity.state == PendingActivityState::Scheduled {
        text.push_str(if carried_on { ", waits for a slot" } else { ", waits for a worker: none runs" });
    }
    if let Some(at) = activity.next_attempt_at {
        text.push_str(&format!(", next attempt {}", screen.at(at)));
    }
    if let Some(failure) = &activity.last_failure {
        text.push_str(&format!(", last failure: {}", one_line(&failure.to_string())));
    }
    if let Some(token) = &activity.task_token {
        text.push_str(&format!(", token {token}"));
    }
    screen.field("activity", text);
}

/// How many there are beside those that are shown.
fn say_more(screen: &mut Screen, name: &str, all: usize, shown: usize) {
    if all > shown {
        screen.field(name, format!("and {} more; `-o json` has all", all - shown));
    }
}

fn pending(screen: &mut Screen, description: &Description, carried_on: bool) {
    for activity in description.pending_activities.iter().take(PENDING_SHOWN) {
        activity_line(screen, activity, carried_on);
    }
    say_more(screen, "activity", description.pending_activities.len(), PENDING_SHOWN);
    for timer in description.pending_timers.iter().take(PENDING_SHOWN) {
        let summary = timer.summary.as_ref().map(|summary| format!(" {summary}")).unwrap_or_default();
        screen.field("timer", format!("{} fires {}{summary}", timer.seq, screen.at(timer.fire_at)));
    }
    say_more(screen, "timer", description.pending_timers.len(), PENDING_SHOWN);
    for child in description.pending_children.iter().take(PENDING_SHOWN) {
        screen.field("child", format!("{} {}", child.workflow_id, child.workflow_type));
    }
    say_more(screen, "child", description.pending_children.len(), PENDING_SHOWN);
    for update in &description.pending_updates {
        screen.field("update", update.as_str());
    }
    if description.inbox > 0 {
        screen.field("inbox", inputs_wait(description.inbox));
    }
    for awaited in description.awaiting.iter().take(PENDING_SHOWN) {
        let place = awaited.location.as_ref().map(|place| format!(" at {place}")).unwrap_or_default();
        screen.field("waits for", format!("{}{place}", awaited.what));
    }
    say_more(screen, "waits for", description.awaiting.len(), PENDING_SHOWN);
}

/// An outcome on one line.
pub(crate) fn outcome_text(outcome: &CloseOutcome) -> String {
    match outcome {
        CloseOutcome::Completed(payload) => brief(payload),
        CloseOutcome::Failed(failure) => failure.to_string(),
        CloseOutcome::TimedOut(WorkflowTimeout::Execution) => "the execution timeout ran out".into(),
        CloseOutcome::TimedOut(WorkflowTimeout::Run) => "the run timeout ran out".into(),
        CloseOutcome::Canceled(None) => "canceled".into(),
        CloseOutcome::Canceled(Some(details)) => super::result::cancelled_words(&details.to_json())
            .unwrap_or_else(|| format!("canceled: {}", brief(details))),
        CloseOutcome::Terminated { reason } if reason.is_empty() => "terminated".into(),
        CloseOutcome::Terminated { reason } => format!("terminated: {reason}"),
        CloseOutcome::ContinuedAsNew { new_run } => format!("continued as new in {new_run}"),
    }
}

/// A pending activity, for programs.
pub(super) fn activity_json(screen: &Screen, activity: &PendingActivity) -> Value {
    let time = |at| screen.time.json(at);
    json!({
        "activity_id": activity.activity_id,
        "activity_type": activity.activity_type,
        "state": activity.state,
        "attempt": activity.attempt,
        "scheduled_at": time(activity.scheduled_at),
        "next_attempt_at": activity.next_attempt_at.map(time),
        "last_failure": activity.last_failure.as_ref().map(run_json::failure),
        "heartbeat_details": activity.heartbeat_details.as_ref().map(Payload::to_json),
        "task_token": activity.task_token,
        "summary": activity.summary,
        "options": activity.options.as_deref().map(crate::run_json::activity_options),
    })
}

fn description_json(screen: &Screen, description: &Description) -> Value {
    let time = |at| screen.time.json(at);
    let activities: Vec<Value> =
        description.pending_activities.iter().map(|activity| activity_json(screen, activity)).collect();
    let timers: Vec<Value> = description
        .pending_timers
        .iter()
        .map(|timer| json!({ "seq": timer.seq, "fire_at": time(timer.fire_at), "summary": timer.summary }))
        .collect();
    json!({
        "workflow": run_json(screen, &description.info),
        "pending_activities": activities,
        "pending_timers": timers,
        "pending_children": description.pending_children,
        "pending_updates": description.pending_updates,
        "starts_at": description.starts_at.map(time),
        "inbox": description.inbox,
        "held": description.held,
        "awaiting": description.awaiting,
        "cancel_requested": description.cancel_requested,
        "warnings": description.warnings,
        "outcome": description.result.as_ref().map(run_json::outcome),
    })
}
