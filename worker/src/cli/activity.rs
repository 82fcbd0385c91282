//! `activity …`: completing an attempt from outside by its task token, and holding single activities back.

use bosun_engine::*;
use clap::{Args, Subcommand};
use serde_json::json;

use super::args::{ExactRun, InputArg};
use super::context::Context;
use super::error::CliError;
use super::exit::Exit;
use super::input::{failure, payload};
use super::resolve::resolve;

#[derive(Debug, Subcommand)]
pub enum ActivityVerb {
    /// Complete an attempt with a result.
    Complete(TokenArgs),
    /// Fail an attempt.
    Fail(FailArgs),
    /// Say that an attempt is alive, with details for the next one.
    Heartbeat(TokenArgs),
    /// Report that an attempt has noticed its cancellation.
    Cancel(TokenArgs),
    /// Keep an activity from starting another attempt.
    Pause(OfRun),
    /// Let a paused activity go on.
    Unpause(OfRun),
}

#[derive(Debug, Args)]
pub struct TokenArgs {
    /// The task token, as `describe` shows it.
    #[arg(value_name = "TOKEN")]
    pub token: String,
    /// The result or details as pairs.
    #[arg(value_name = "key=value")]
    pub pairs: Vec<String>,
    #[command(flatten)]
    pub input: InputArg,
}

#[derive(Debug, Args)]
pub struct FailArgs {
    #[arg(value_name = "TOKEN")]
    pub token: String,
    /// What went wrong.
    #[arg(long, visible_alias = "reason", value_name = "TEXT")]
    pub message: String,
    /// The failure type that retry policies name.
    #[arg(long = "type", value_name = "TYPE", default_value = "External")]
    pub failure_type: String,
    /// No further attempt.
    #[arg(long)]
    pub non_retryable: bool,
}

#[derive(Debug, Args)]
pub struct OfRun {
    /// The workflow id (left out with -w) and the activity id.
    #[arg(value_name = "ID ACTIVITY", num_args = 1..=2, required = true)]
    pub words: Vec<String>,
    #[command(flatten)]
    pub exact: ExactRun,
    /// Why; recorded in the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

pub(super) async fn activity(cx: &mut Context, verb: ActivityVerb) -> Result<Exit, CliError> {
    match verb {
        ActivityVerb::Complete(args) => {
            let result = payload(args.input.input.as_deref(), &args.pairs)?;
            complete(cx, "complete", &args.token, ActivityCompletion::Complete(result)).await
        }
        ActivityVerb::Fail(args) => {
            let failure = failure(&args.failure_type, &args.message, args.non_retryable);
            complete(cx, "fail", &args.token, ActivityCompletion::Fail(failure)).await
        }
        ActivityVerb::Heartbeat(args) => {
            let details = details(&args)?;
            complete(cx, "heartbeat", &args.token, ActivityCompletion::Heartbeat(details)).await
        }
        ActivityVerb::Cancel(args) => {
            let details = details(&args)?;
            complete(cx, "cancel", &args.token, ActivityCompletion::Cancel(details)).await
        }
        ActivityVerb::Pause(args) => hold(cx, true, args).await,
        ActivityVerb::Unpause(args) => hold(cx, false, args).await,
    }
}

/// Nothing given is no details, not a `null`.
fn details(args: &TokenArgs) -> Result<Option<Payload>, CliError> {
    let given = args.input.input.is_some() || !args.pairs.is_empty();
    given.then(|| payload(args.input.input.as_deref(), &args.pairs)).transpose()
}

async fn complete(cx: &mut Context, verb: &str, token: &str, completion: ActivityCompletion) -> Result<Exit, CliError> {
    let token: TaskToken = token.parse()?;
    cx.backend.complete_activity(token, completion).await?;
    cx.screen.object(&format!("activity.{verb}"), json!({ "task_token": token.to_string() }));
    cx.screen.line(format!("{verb}: recorded for activity {} of run {}", token.seq, token.run_id));
    cx.screen.next(&format!("bosun describe {}", token.run_id));
    Ok(Exit::Ok)
}

async fn hold(cx: &mut Context, pause: bool, args: OfRun) -> Result<Exit, CliError> {
    let (id, activity) = match (args.exact.workflow_id.is_some(), args.words.as_slice()) {
        (true, [activity]) => (None, activity),
        (false, [id, activity]) => (Some(id.as_str()), activity),
        (true, _) => return Err(CliError::usage("give one activity id after -w")),
        (false, _) => return Err(CliError::usage("give a workflow id and an activity id")),
    };
    let activity = ActivityId::new(activity)?;
    let target = resolve(cx, id, &args.exact).await?;
    let because = cx.because(args.reason.as_deref());
    let verb = if pause { "pause" } else { "unpause" };
    if pause {
        cx.backend.pause_activity(target.clone(), activity.clone(), because).await?;
    } else {
        cx.backend.unpause_activity(target.clone(), activity.clone(), because).await?;
    }
    cx.screen.object(
        &format!("activity.{verb}"),
        json!({ "workflow_id": target.workflow_id, "activity_id": activity, "reason": args.reason }),
    );
    cx.screen.line(format!("{verb}d activity {activity} of {}", target.workflow_id));
    Ok(Exit::Ok)
}
