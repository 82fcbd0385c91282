//! `result`, and what `execute` and `run` share with it: waiting for a run, and printing how it ended.
//!
//! Long: each way in which a wait ends, with what is said of it.

use std::time::Duration;

use bosun_engine::*;
use clap::Args;
use futures_util::StreamExt;
use serde_json::Value;
use tokio::time::Instant;

use super::args::RunOf;
use super::context::Context;
use super::describe::outcome_text;
use super::error::{CliError, one_line, printable};
use super::exit::Exit;
use super::explain::Code;
use super::list::{counted, run_word};
use super::output::{Format, Screen};
use super::progress::Watch;
use super::reconnect::visit::VISIT_MAX;
use super::resolve::run_of;
use super::shown::Shown;
use super::spent::TOP_UP;
use super::stuck::Lookout;
use super::time_format::{now, parse_duration};
use super::waiting::{ABOVE, Hold, WaitingRow, waiting};
use crate::backend::{Backend, CallError};
use crate::run_json;
use crate::supervisor::PLAN_RUN;
use crate::supervisor::run::{SUPERVISOR, SupervisorOutput};
use crate::unhandled;

/// An answer that is on its way at the end of the wait is waited for.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub struct ResultArgs {
    #[command(flatten)]
    pub run: RunOf,
    /// How long to wait; the run goes on afterwards.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
    /// Do not wait: print the result, or exit with 15 if the run waits for people, and with 1 if it is still running.
    #[arg(long, conflicts_with = "timeout")]
    pub no_wait: bool,
    /// Stop at the end of this run, even if it continued as new or is tried again.
    #[arg(long)]
    pub no_follow_runs: bool,
}

pub(super) async fn result(cx: &mut Context, args: ResultArgs) -> Result<Exit, CliError> {
    let target = run_of(cx, &args.run).await?;
    cx.awaited = Some(target.workflow_id.clone());
    let result = if args.no_wait {
        as_it_is(cx, target, !args.no_follow_runs).await?
    } else if let Some(found) = ended_before(cx, &target, !args.no_follow_runs).await? {
        found
    } else {
        let shown = shown(cx, &target, !args.no_follow_runs).await;
        wait_for_this(cx, target, args.timeout, shown, ParkPolicy::Stay).await?
    };
    print_result(cx, &result).await
}

/// How a run has ended, where no worker runs and nothing need be written to tell it; one that goes on is visited from here on.
async fn ended_before(cx: &mut Context, target: &Target, follow_runs: bool) -> Result<Option<RunResult>, CliError> {
    cx.reconnect.will_visit();
    if !cx.visits() {
        return Ok(None);
    }
    let at_once = ResultRequest { follow_runs, timeout: Some(Duration::ZERO) };
    match cx.backend.result(target.clone(), at_once).await {
        Ok(None) | Err(CallError::Rejected(Rejection::Held { .. })) => cx.away(Duration::ZERO).await.map(|()| None),
        found => Ok(found?),
    }
}

/// A supervisor is drawn by its tasks, as `run` draws it: it says itself how they stand, whatever happened before.
async fn shown(cx: &Context, target: &Target, follow_runs: bool) -> Shown {
    match cx.backend.describe(target.clone()).await {
        Ok(found) if [SUPERVISOR, PLAN_RUN].contains(&found.info.workflow_type.as_str()) => {
            let mut shown = Shown::new(Watch::ProgressQuery, target.clone(), follow_runs);
            shown.next = EventId(found.info.history.events.max(1));
            shown
        }
        Ok(_) | Err(_) => Shown::new(Watch::Events, target.clone(), follow_runs),
    }
}

/// How it has ended; where it has not, what it waits for.
async fn as_it_is(cx: &mut Context, target: Target, follow_runs: bool) -> Result<RunResult, CliError> {
    let request = ResultRequest { follow_runs, timeout: Some(Duration::ZERO) };
    if let Some(found) = cx.backend.result(target.clone(), request).await? {
        return Ok(found);
    }
    // The newest run of a chain is the one that waits.
    let target = if follow_runs { Target { run_id: None, ..target } } else { target };
    let asked: Vec<WaitingRow> = what_is_asked(&*cx.backend, &target).await;
    // Only a supervisor says whether people are all that it waits for; what asks them waits for them.
    let parked = parked(&*cx.backend, &target, ParkPolicy::Leave).await.ok().flatten();
    let of_people =
        || asked.iter().filter(|one| one.whom != ABOVE).map(|one| one.what.clone()).collect::<Vec<String>>();
    match parked.unwrap_or_else(of_people) {
        waits if waits.is_empty() => Err(still_open(cx, &target).await),
        waits => Err(left_parked(&target, &waits, &asked)),
    }
}

/// What somebody who waits does when the run waits for people only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParkPolicy {
    Stay,
    /// `review.park_exit` (FSS-36).
    AsTheSpecSays,
    Leave,
}

/// What a run waits for people with, if it is to be left for that. An error if it cannot say so now.
async fn parked(backend: &dyn Backend, target: &Target, parking: ParkPolicy) -> Result<Option<Vec<String>>, CallError> {
    if parking == ParkPolicy::Stay {
        return Ok(None);
    }
    let answer = backend.query(target.clone(), QueryName::of("parked"), Payload::null()).await?.to_json();
    let key = if parking == ParkPolicy::Leave { "parked" } else { "exit" };
    let waits = answer.get("waits").and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |wait: &Value| wait.as_str().map(str::to_owned);
    Ok((answer.get(key) == Some(&Value::Bool(true))).then(|| waits.iter().filter_map(text).collect()))
}

/// Waits for the end of the chain of runs, showing progress on stderr. A worker that leaves is waited for.
pub(super) async fn wait_for(
    cx: &mut Context,
    target: Target,
    timeout: Option<Duration>,
    watch: Watch,
    parking: ParkPolicy,
) -> Result<RunResult, CliError> {
    let shown = Shown::new(watch, target.clone(), true);
    wait_for_this(cx, target, timeout, shown, parking).await
}

/// Where no worker runs, the directory is free between looks at it: one that starts meanwhile is waited on.
async fn wait_for_this(
    cx: &mut Context,
    target: Target,
    timeout: Option<Duration>,
    mut shown: Shown,
    parking: ParkPolicy,
) -> Result<RunResult, CliError> {
    cx.awaited = Some(target.workflow_id.clone());
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let why = match (in_time(cx, &target, (left, until), &mut shown, parking).await, until) {
            (Err(why), _) if cx.lost_the_worker(&why) => why,
            (Err(why), Some(until)) if cx.visits() && matches!(why.code, Code::StillOpen | Code::Held) => {
                if Instant::now() < until && cx.await_a_worker(until).await? {
                    continue;
                }
                return Err(why);
            }
            (ended, _) => return ended,
        };
        let found = cx.find_again(&target, shown.follow_runs, &why);
        match until {
            None => found.await?,
            Some(until) => match tokio::time::timeout_at(until, found).await {
                Ok(found) => found?,
                Err(_) => return Err(why),
            },
        }
    }
}

/// That a run is held, since when nothing of it goes on, and the commands that help.
pub(super) fn held_text(found: &Description) -> String {
    let id = run_word(found.info.workflow_id.as_str());
    let why = found.held.as_deref().unwrap_or_default();
    if let Some(why) = why.strip_prefix("damage to the store ") {
        // No code goes on from a history of which a part is lost: the reason says what helps.
        return format!("{} is held: damage to the store {}", found.info.workflow_id, one_line(why));
    }
    let title = why.lines().next().unwrap_or_default();
    let title = title.split_once("]: ").map_or(title, |(_, title)| title);
    format!(
        "{} is held: {title}. Its inputs are kept, and it goes on with code that fits: `bosun describe {id}` says why, \
         `bosun resume {id}` lets it try again, `bosun terminate {id}` ends it",
        found.info.workflow_id
    )
}

/// Where nobody carries runs on, waiting would be for ever, and would keep a worker out.
fn patience(cx: &Context, timeout: Option<Duration>) -> Option<Duration> {
    if cx.carried_on { timeout } else { Some(timeout.unwrap_or_default().min(VISIT_MAX)) }
}

/// Whoever is busy is asked again and again, and not for longer than was said.
async fn in_time(
    cx: &mut Context,
    target: &Target,
    (left, until): (Option<Duration>, Option<Instant>),
    shown: &mut Shown,
    parking: ParkPolicy,
) -> Result<RunResult, CliError> {
    let waits = wait_on(cx, target, left, shown, parking);
    let Some(until) = until.and_then(|until| until.checked_add(GRACE)) else { return waits.await };
    tokio::time::timeout_at(until, waits).await.unwrap_or_else(|_| {
        Err(CliError::new(Code::StillOpen, format!("it is not known whether {} has closed", target.workflow_id))
            .cause("the worker has not answered in time")
            .help(format!("ask again with `bosun result {}`", run_word(target.workflow_id.as_str()))))
    })
}

/// Waits for as long as whoever is asked answers.
async fn wait_on(
    cx: &mut Context,
    target: &Target,
    timeout: Option<Duration>,
    shown: &mut Shown,
    parking: ParkPolicy,
) -> Result<RunResult, CliError> {
    let backend = cx.backend.clone();
    let timeout = patience(cx, timeout);
    let mut result = backend.result(target.clone(), ResultRequest { follow_runs: shown.follow_runs, timeout });
    shown.begin(&*backend, cx.carried_on).await;
    let mut events = backend.events(shown.of.clone(), shown.next, true);
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut streaming = cx.screen.format != Format::None;
    // Whether the run may have parked since it was looked at: without an event it has not.
    let mut unseen = true;
    let found = loop {
        tokio::select! {
            biased;
            event = events.next(), if streaming => match event {
                Some(Ok(event)) => {
                    unseen = true;
                    shown.next = event.id.next();
                    shown.progress.event(&mut cx.screen, &*backend, &event).await;
                }
                // Progress is a courtesy: when its stream breaks, the result still counts. Another run may go on.
                Some(Err(_)) | None => {
                    streaming = false;
                    tick.reset_immediately();
                }
            },
            found = &mut result => break found,
            _ = tick.tick() => {
                shown.look(&mut cx.screen, &*backend, streaming).await;
                if cx.screen.format != Format::None && !streaming && shown.goes_on(&*backend).await {
                    (events, streaming, unseen) = (backend.events(shown.of.clone(), shown.next, true), true, true);
                }
                if !std::mem::take(&mut unseen) && streaming {
                    continue;
                }
                let waits = parked(&*backend, &shown.of, parking).await;
                unseen = waits.is_err();
                if let Ok(Some(waits)) = waits {
                    return Err(leave(cx, shown, &waits).await);
                }
            }
        }
    };
    ended(cx, shown, found?).await
}

/// Goes, since the run waits for people only.
async fn leave(cx: &mut Context, shown: &mut Shown, waits: &[String]) -> CliError {
    let backend = cx.backend.clone();
    shown.progress.finish(&mut cx.screen, &*backend).await;
    let asked = what_is_asked(&*backend, &shown.of).await;
    left_parked(&shown.of, waits, &asked)
}

/// The end of the wait: the result, or that there is none yet.
async fn ended(cx: &mut Context, shown: &mut Shown, found: Option<RunResult>) -> Result<RunResult, CliError> {
    let backend = cx.backend.clone();
    shown.ended(found.as_ref());
    shown.progress.finish(&mut cx.screen, &*backend).await;
    match found {
        Some(found) => Ok(found),
        None => Err(still_open(cx, &shown.of).await),
    }
}

/// What the run waits for, with the commands that help.
async fn what_is_asked(backend: &dyn Backend, target: &Target) -> Vec<WaitingRow> {
    match backend.describe(target.clone()).await {
        Ok(found) => waiting(backend, &found.info).await,
        Err(_) => Vec::new(),
    }
}

fn left_parked(target: &Target, waits: &[String], asked: &[WaitingRow]) -> CliError {
    let id = run_word(target.workflow_id.as_str());
    if let Some(more) = asked.iter().find(|one| one.answer.starts_with(TOP_UP)) {
        let error =
            CliError::new(Code::BudgetSpent, format!("{} is paused: it waits for {}", target.workflow_id, more.what));
        // The pause that an agent's own limit has led to is ended by itself.
        let then =
            if more.id == target.workflow_id.as_str() { String::new() } else { format!(", then `bosun resume {id}`") };
        return error.help(format!("`{}` gives it more{then}; the same command goes on then", more.answer));
    }
    // What holds a run back comes before what else it waits for.
    let how = match (waits.iter().any(|wait| wait.contains("`bosun resume`")), asked) {
        (true, asked) => {
            let taken = asked.iter().find(|one| one.hold == Some(Hold::TakenOver));
            let word = if taken.is_some() { "release" } else { "resume" };
            format!("see to the reason, then `bosun {word} {id}`")
        }
        (false, [one]) => format!("answer with `{}`", one.answer),
        (false, _) => format!("`bosun approval list {id}` shows what is asked and how to answer"),
    };
    // The id of a question says nothing; who is asked what does.
    let are_questions = waits.iter().all(|wait| wait.starts_with("interrupt "));
    let told: Vec<String> = match are_questions && asked.len() == waits.len() {
        true => asked.iter().map(|one| format!("{}: {}", one.whom, one_line(&one.what))).collect(),
        false => waits.to_vec(),
    };
    CliError::new(
        Code::Parked,
        format!("{} is parked for review: it waits for {}", target.workflow_id, told.join(", ")),
    )
    .help(format!("{how}; the same command goes on then"))
}

async fn still_open(cx: &Context, target: &Target) -> CliError {
    if let Ok(found) = cx.backend.describe(target.clone()).await
        && found.held.is_some()
    {
        return CliError::new(Code::Held, format!("{} has not closed: it is held", target.workflow_id))
            .help(held_text(&found));
    }
    let error = CliError::new(Code::StillOpen, format!("{} has not closed yet", target.workflow_id));
    if !cx.carried_on {
        return error.cause("no worker runs on this data directory").help("start one with `bosun worker run`");
    }
    let reach = &cx.screen.reach;
    match Lookout::new(&*cx.backend, now()).below(target.clone()).await.first() {
        Some(one) => {
            error.cause(format!("{}: {}", one.title(), one.said(now(), reach))).help(format!("`{}`", one.help))
        }
        None => error.help(format!("ask again with `bosun result {}`", run_word(target.workflow_id.as_str()))),
    }
}

/// Prints the outcome; the exit code tells it too.
pub(super) async fn print_result(cx: &mut Context, result: &RunResult) -> Result<Exit, CliError> {
    let unhandled = unhandled::of_result(&*cx.backend, &cx.namespace, result).await;
    let exit = Exit::of_outcome(&result.outcome);
    let mut object = serde_json::Map::new();
    object.insert("workflow_id".into(), result.workflow_id.as_str().into());
    object.insert("run_id".into(), result.run_id.to_string().into());
    if let Value::Object(outcome) = run_json::outcome(&result.outcome) {
        object.extend(outcome);
    }
    if !unhandled.is_empty() {
        object.insert("unhandled_signals".into(), serde_json::json!(unhandled));
    }
    object.insert("exit".into(), exit.number().into());
    cx.screen.object("workflow.result", Value::Object(object));
    match &result.outcome {
        CloseOutcome::Completed(payload) => match SupervisorText::of(&payload.to_json()) {
            Some(text) if cx.screen.format == Format::Text => text.print(&mut cx.screen, &result.workflow_id),
            _ => cx.screen.block(&value_text(&payload.to_json())),
        },
        other => {
            let text = format!("{} {}: {}", result.workflow_id, other.status(), outcome_text(other));
            if cx.screen.format == Format::Text {
                cx.screen.note(&text);
            }
        }
    }
    Ok(exit)
}

/// Why a supervisor was cancelled and how far it came; nothing where a workflow leaves something else.
pub(super) fn cancelled_words(details: &Value) -> Option<String> {
    let output: SupervisorOutput =
        serde_json::from_value(details.clone()).ok().filter(|_| details["spec_hash"].is_string())?;
    let summary = Some(output.summary).filter(|text| !text.is_empty()).map(|text| format!("; {text}"));
    Some(printable(&format!("{}{}", output.error?, summary.unwrap_or_default())))
}

/// What a supervisor gives, for people: the result itself, and then how it came about.
struct SupervisorText {
    result: String,
    about: Vec<String>,
}

impl SupervisorText {
    /// Nothing where a workflow gives something else.
    fn of(value: &Value) -> Option<SupervisorText> {
        let output: SupervisorOutput =
            serde_json::from_value(value.clone()).ok().filter(|_| value["spec_hash"].is_string())?;
        let result = output.final_result.as_ref().filter(|result| !result.is_null()).map(value_text);
        let allowed = output.success && output.status == "partial";
        let mut about = vec![if allowed { "partial, as the spec allows".to_owned() } else { output.status.clone() }];
        about.extend(Some(output.summary.clone()).filter(|text| !text.is_empty()));
        let reason = output.reason.as_ref().map(|reason| reason.message.clone());
        about.extend(reason.filter(|reason| !about.contains(reason)));
        about.push(counted(output.calls, "call"));
        about.extend((output.tokens > 0).then(|| format!("{} tokens", output.tokens)));
        about.extend((output.cost_micros > 0).then(|| super::budget::dollars(output.cost_micros)));
        let unpriced = output.unpriced_calls;
        about.extend((unpriced > 0).then(|| format!("{unpriced} calls of unknown price")));
        let said = output.error.clone().or(output.message.clone()).unwrap_or_else(|| "it gave no result".to_owned());
        Some(SupervisorText { result: result.unwrap_or_else(|| printable(&said)), about })
    }

    fn print(self, screen: &mut Screen, id: &WorkflowId) {
        screen.block(self.result.trim_end());
        screen.note(&printable(&self.about.join(", ")));
        screen.next(&format!("bosun result {} -o json", run_word(id.as_str())));
    }
}

/// A JSON value for people: text as it is, everything else as indented JSON.
pub(super) fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text),
        other => printable(&format!("{other:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_supervisor_the_result_comes_first() {
        let output = serde_json::json!({
            "objective": "Compare", "status": "completed", "success": true, "summary": "3 of 3 tasks are done", "error": null, "code": null,
            "details": {}, "final_result": "Oslo is larger.", "tasks": [], "errors": [], "recruits": [], "spec_hash": "8e1a",
            "tokens": 12, "calls": 5, "cost_micros": 20_000,
        });
        let text = SupervisorText::of(&output).unwrap();
        assert_eq!(text.result, "Oslo is larger.");
        assert_eq!(text.about.join(", "), "completed, 3 of 3 tasks are done, 5 calls, 12 tokens, $0.020000");
        let (mut screen, printed) = Screen::captured();
        text.print(&mut screen, &WorkflowId::of("c"));
        assert_eq!(printed.stdout().lines().next(), Some("Oslo is larger."));
        assert!(SupervisorText::of(&serde_json::json!({ "final_result": 1 })).is_none(), "of another workflow");
    }
}
