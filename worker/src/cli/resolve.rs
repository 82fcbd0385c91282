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

/// How many candidates an ambiguous beginning shows.
const SHOWN: usize = 5;

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
fn place(text: &str) -> Option<usize> {
    match text.strip_prefix('@') {
        Some(number) => number.parse().ok().filter(|place| *place > 0),
        None => (text == "latest").then_some(1),
    }
}

async fn list(runs: &dyn Histories, query: String, limit: usize) -> Result<Vec<RunInfo>, CliError> {
    Ok(runs.list(ListRequest { query, limit }).await?)
}

async fn nth_newest(runs: &dyn Histories, place: usize, text: &str) -> Result<Target, CliError> {
    // What a run has started itself is not what anybody started last.
    let newest = list(runs, "ParentWorkflowId IS NULL".to_owned(), place).await?;
    let info = newest.get(place - 1).ok_or_else(|| {
        let help = "`bosun list` shows all";
        CliError::new(Code::NotFound, format!("{text}: there are {} workflow executions", newest.len())).help(help)
    })?;
    let target = Target::run(info.workflow_id.clone(), info.run_id);
    Ok(Target { namespace: info.namespace.clone(), ..target })
}

async fn beginning(runs: &dyn Histories, text: &str, target: Target) -> Result<Target, CliError> {
    let query = format!("WorkflowId STARTS_WITH '{}'", text.replace('\'', "''"));
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
