//! `cancel`, `terminate`, `pause`, `resume` and `delete`: what a person does to a run.
//!
//! Invariant: who did it and why is recorded in the history. What cannot be undone is asked for first. A schedule is deleted by
//! the verb that says so.

use bosun_engine::{DEFAULT_NAMESPACE, ListRequest, Target};
use clap::Args;
use serde_json::json;

use super::args::RunOf;
use super::context::Context;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::list::{run_word, shell_word};
use super::resolve::{is_whole, run_of};
use crate::filter_text::literal;
use crate::own_work::may_be_ended;
use crate::schedule::IsSchedule;

#[derive(Debug, Args)]
pub struct ControlArgs {
    #[command(flatten)]
    pub run: RunOf,
    /// Why; recorded in the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ControlVerb {
    Cancel,
    Terminate,
    Pause,
    Unpause,
    Delete,
}

impl ControlVerb {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            ControlVerb::Cancel => ("cancel", "cancel requested for"),
            ControlVerb::Terminate => ("terminate", "terminated"),
            ControlVerb::Pause => ("pause", "paused"),
            ControlVerb::Unpause => ("resume", "resumed"),
            ControlVerb::Delete => ("delete", "deleted"),
        }
    }
}

pub(super) async fn control(cx: &mut Context, verb: ControlVerb, args: ControlArgs) -> Result<Exit, CliError> {
    let target = run_of(cx, &args.run).await?;
    let (word, done) = verb.words();
    if matches!(verb, ControlVerb::Cancel | ControlVerb::Terminate) {
        may_be_ended(&*cx.backend, &target).await.map_err(|why| is_schedule(&why))?;
    }
    let because = cx.because(args.reason.as_deref());
    let mut to = target.clone();
    // A shortcut may mean another run than was thought: it is asked for by its whole name.
    if matches!(verb, ControlVerb::Terminate | ControlVerb::Delete)
        || verb == ControlVerb::Cancel && !is_whole(&args.run, &target)
    {
        let place = match target.namespace.as_str() {
            DEFAULT_NAMESPACE => String::new(),
            other => format!(" of the namespace {other}"),
        };
        let run = if verb == ControlVerb::Delete { one_of_several(cx, &mut to).await? } else { String::new() };
        cx.confirm(&format!("{word} {}{place}{run}", target.workflow_id))?;
    }
    match verb {
        ControlVerb::Cancel => cx.backend.cancel(to, because).await?,
        ControlVerb::Terminate => cx.backend.terminate(to, because).await?,
        ControlVerb::Pause => cx.backend.pause(to, because).await?,
        ControlVerb::Unpause => cx.backend.unpause(to, because).await?,
        ControlVerb::Delete => cx.backend.delete(to).await?,
    }
    cx.screen.object(
        &format!("workflow.{word}"),
        json!({ "workflow_id": target.workflow_id, "run_id": target.run_id, "reason": args.reason }),
    );
    cx.screen.line(format!("{done} {}", target.workflow_id));
    if verb == ControlVerb::Delete {
        // A namespace without runs cannot be listed.
        if super::used(&*cx.backend, &target.namespace).await.is_ok() {
            cx.screen.next("bosun list");
        }
    } else {
        cx.screen.next(&format!("bosun describe {}", run_word(target.workflow_id.as_str())));
    }
    Ok(Exit::Ok)
}

/// Which run is meant, where its workflow id has had others: those stay, also one that begins before somebody has said yes.
async fn one_of_several(cx: &Context, target: &mut Target) -> Result<String, CliError> {
    let (id, namespace) = (literal(target.workflow_id.as_str()), literal(target.namespace.as_str()));
    let query = format!("WorkflowId = {id} AND Namespace = {namespace}");
    if cx.backend.list(ListRequest { query, limit: 2 }).await?.len() < 2 {
        return Ok(String::new());
    }
    let run = cx.backend.describe(target.clone()).await?.info.run_id;
    target.run_id = Some(run);
    Ok(format!(" (its run {run}; it has others)"))
}

pub(super) fn is_schedule(why: &IsSchedule) -> CliError {
    let id = shell_word(&why.id);
    CliError::new(Code::Invalid, why.to_string()).help(format!(
        "`bosun schedule delete {id}` deletes it, `bosun schedule pause {id}` has it start nothing until it is unpaused"
    ))
}
