//! From what a person types to the run that is meant.
//!
//! Invariant: a whole id always wins over a beginning, and a beginning that fits several ids is an error that lists
//! them, never a guess. `-w` takes no shortcuts. All of it stays in the namespace that the command line names.

use bosun_engine::*;

use super::args::{ExactRun, RunOf};
use super::context::Context;
use super::error::CliError;
use super::explain::Code;
use crate::backend::{CallError, Histories, OfEngine};
use crate::notify::NOTIFICATION;

/// How many candidates an ambiguous beginning shows.
const SHOWN: usize = 5;
/// So many runs in which older ones go on are looked past for the newest one.
const GOING_ON: usize = 200;

pub(super) async fn run_of(cx: &Context, run: &RunOf) -> Result<Target, CliError> {
    resolve(cx, run.id.as_deref(), &run.exact).await
}

/// `text` is ignored when `-w` is given.
pub(super) async fn resolve(cx: &Context, text: Option<&str>, exact: &ExactRun) -> Result<Target, CliError> {
    find(&OfEngine(cx.backend.clone()), &cx.namespace, text, exact).await
}

/// As [`resolve`], in any place where runs are recorded.
pub(super) async fn find(
    runs: &dyn Histories,
    namespace: &Namespace,
    text: Option<&str>,
    exact: &ExactRun,
) -> Result<Target, CliError> {
    let run_id: Option<RunId> = exact.run_id.as_deref().map(str::parse).transpose()?;
    let named = |id: WorkflowId| Target { namespace: namespace.clone(), workflow_id: id, run_id };
    if let Some(id) = &exact.workflow_id {
        return Ok(named(WorkflowId::new(id)?));
    }
    if let (None, Some(run)) = (text, run_id) {
        let found = list(runs, format!("RunId = '{run}'"), 1).await?;
        let info = found.first().ok_or_else(|| CliError::new(Code::NotFound, format!("there is no run {run}")))?;
        return Ok(named(info.workflow_id.clone()));
    }
    let text = text.ok_or_else(|| CliError::usage("no workflow id given"))?;
    if let Some(place) = place(text) {
        return nth_newest(runs, place, text).await;
    }
    let target = named(WorkflowId::new(text)?);
    match runs.run(target.clone()).await {
        Ok(_) => return Ok(target),
        Err(CallError::Rejected(Rejection::NotFound { .. })) if run_id.is_none() => {}
        Err(why) => return Err(why.into()),
    }
    if let Ok(run) = text.parse::<RunId>() {
        let found = list(runs, format!("RunId = '{run}'"), 1).await?;
        if let Some(info) = found.first() {
            return Ok(Target { namespace: namespace.clone(), ..Target::run(info.workflow_id.clone(), run) });
        }
    }
    beginning(runs, text, target).await
}

/// Whether a run was named in whole, or by a shortcut that may mean another one than was thought.
pub(super) fn is_whole(run: &RunOf, target: &Target) -> bool {
    let id = run.id.as_deref().unwrap_or_default();
    run.exact.workflow_id.is_some()
        || id == target.workflow_id.as_str()
        || id.parse().ok().is_some_and(|run: RunId| target.run_id == Some(run))
}

/// `latest` and `@N`: 1 is the newest.
pub(super) fn place(text: &str) -> Option<usize> {
    match text.strip_prefix('@') {
        Some(number) => number.parse().ok().filter(|place| *place > 0),
        None => (text == "latest").then_some(1),
    }
}

async fn list(runs: &dyn Histories, query: String, limit: usize) -> Result<Vec<RunInfo>, CliError> {
    Ok(runs.list(ListRequest { query, limit }).await?)
}

async fn nth_newest(runs: &dyn Histories, place: usize, text: &str) -> Result<Target, CliError> {
    // What a run has started itself is not what anybody started last, nor is what the worker tells people.
    let query = format!("ParentWorkflowId IS NULL AND WorkflowType != '{NOTIFICATION}'");
    let newest = list(runs, query, place.saturating_add(GOING_ON)).await?;
    // Nor is a run in which an older one goes on, as a schedule or a loop does: such a one was started when its first was.
    let mut begun: Vec<(Timestamp, RunInfo)> = Vec::new();
    for info in newest {
        // Nobody that comes now was started later than this.
        let behind = begun.iter().filter(|(at, _)| *at >= info.started_at).count();
        if behind >= place {
            break;
        }
        let is_older = |(_, newer): &(Timestamp, RunInfo)| {
            (&newer.workflow_id, newer.first_run) == (&info.workflow_id, info.first_run) && newer.run_id != info.run_id
        };
        if begun.iter().any(is_older) {
            continue;
        }
        let at = begun_at(runs, &info).await?;
        begun.push((at, info));
    }
    let all = begun.len();
    begun.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let info = begun.into_iter().nth(place - 1).map(|(_, info)| info).ok_or_else(|| {
        let help = "`bosun list` shows all";
        CliError::new(Code::NotFound, format!("{text}: there are only {all} workflow executions")).help(help)
    })?;
    let target = Target::run(info.workflow_id.clone(), info.run_id);
    Ok(Target { namespace: info.namespace.clone(), ..target })
}

/// When somebody started what goes on in this run. What is not there any more began before all that is.
async fn begun_at(runs: &dyn Histories, info: &RunInfo) -> Result<Timestamp, CliError> {
    if info.first_run == info.run_id {
        return Ok(info.started_at);
    }
    let first = Target { namespace: info.namespace.clone(), ..Target::run(info.workflow_id.clone(), info.first_run) };
    match runs.run(first).await {
        Ok(first) => Ok(first.started_at),
        Err(CallError::Rejected(Rejection::NotFound { .. })) => Ok(Timestamp::ZERO),
        Err(why) => Err(why.into()),
    }
}

async fn beginning(runs: &dyn Histories, text: &str, target: Target) -> Result<Target, CliError> {
    let query = format!("WorkflowId STARTS_WITH {}", crate::filter_text::literal(text));
    // Several runs of one id are one candidate, so more than the shown ones are asked for.
    let mut ids: Vec<WorkflowId> = list(runs, query, 200).await?.into_iter().map(|info| info.workflow_id).collect();
    ids.sort();
    ids.dedup();
    match ids.as_slice() {
        [] => Err(Rejection::NotFound { workflow_id: target.workflow_id, run_id: None }.into()),
        [id] => Ok(Target { workflow_id: id.clone(), ..target }),
        several => {
            let names: Vec<&str> = several.iter().take(SHOWN).map(WorkflowId::as_str).collect();
            let more = if several.len() > SHOWN { ", …" } else { "" };
            Err(CliError::new(Code::Ambiguous, format!("{text:?} is the beginning of {} workflow ids", several.len()))
                .cause(format!("{}{more}", names.join(", "))))
        }
    }
}
