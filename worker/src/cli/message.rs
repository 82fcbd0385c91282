//! `signal`, `query` and `update`: messages to a run.

use std::time::Duration;

use bosun_engine::*;
use clap::{Args, ValueEnum};
use serde_json::json;
use tokio::time::Instant;

use super::args::{ExactRun, InputArg};
use super::batch::{self, BulkArgs};
use super::context::Context;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::input::payload;
use super::list::run_word;
use super::reconnect::visit::VISIT_MAX;
use super::resolve::resolve;
use super::time_format::parse_duration;
use crate::batch::BatchAction;
use crate::run_json;

/// The run, the name of the message, and its input as pairs: `ID NAME k=v…`, without ID when `-w` is given.
#[derive(Debug, Args)]
pub struct MessageArgs {
    /// The workflow id (left out with -w), the name (left out with --name), then key=value pairs.
    #[arg(value_name = "ID NAME key=value")]
    pub words: Vec<String>,
    #[command(flatten)]
    pub exact: ExactRun,
    /// The name of the signal, query or update.
    #[arg(long, visible_alias = "type", value_name = "NAME")]
    pub name: Option<String>,
    #[command(flatten)]
    pub input: InputArg,
}

#[derive(Debug, Args)]
pub struct SignalArgs {
    #[command(flatten)]
    pub message: MessageArgs,
    #[command(flatten)]
    pub bulk: BulkArgs,
    /// Why, if --query signals many runs; recorded with the batch.
    #[arg(long, value_name = "TEXT", requires = "query")]
    pub reason: Option<String>,
    /// Make the signal idempotent: a second one with this id does nothing.
    #[arg(long, value_name = "ID")]
    pub request_id: Option<String>,
}

#[derive(Debug, Args)]
pub struct QueryArgs {
    #[command(flatten)]
    pub message: MessageArgs,
}

#[derive(Debug, Args)]
pub struct UpdateArgs {
    #[command(flatten)]
    pub message: MessageArgs,
    /// The id of the request; asking again with the same id gives the first answer.
    #[arg(long, value_name = "ID")]
    pub update_id: Option<String>,
    /// What to wait for.
    #[arg(long, value_enum, default_value = "completed")]
    pub wait: WaitStage,
    /// The longest time to wait.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WaitStage {
    Accepted,
    Completed,
}

/// A message with its parts told apart.
pub struct MessageParts {
    pub target: Target,
    pub name: String,
    pub input: Payload,
}

impl MessageArgs {
    /// Splits the words into id, name and pairs.
    pub fn split(&self) -> Result<(Option<&str>, &str, &[String]), CliError> {
        let mut words = self.words.as_slice();
        let mut take = |what: &str| match words.split_first() {
            Some((first, rest)) => {
                words = rest;
                Ok(first.as_str())
            }
            None => Err(CliError::usage(format!("no {what} given")).help("write ID NAME [key=value …]")),
        };
        let id = if self.exact.workflow_id.is_some() { None } else { Some(take("workflow id")?) };
        let name = match &self.name {
            Some(name) => name,
            None => take("name")?,
        };
        Ok((id, name, words))
    }

    pub async fn parts(&self, cx: &Context) -> Result<MessageParts, CliError> {
        let (id, name, pairs) = self.split()?;
        let input = payload(self.input.input.as_deref(), pairs)?;
        Ok(MessageParts { target: resolve(cx, id, &self.exact).await?, name: name.to_owned(), input })
    }
}

pub(super) async fn signal(cx: &mut Context, args: SignalArgs) -> Result<Exit, CliError> {
    if args.bulk.query.is_some() {
        let name = args.message.name.as_deref().ok_or_else(|| CliError::usage("no --name given"))?;
        let input = payload(args.message.input.input.as_deref(), &args.message.words)?.to_json();
        let action = BatchAction::Signal { name: name.to_owned(), input };
        return batch::many(cx, &args.bulk, action, args.reason).await;
    }
    if args.bulk.dry_run {
        return Err(CliError::usage("--dry-run is for many runs: write --query FILTER"));
    }
    let MessageParts { target, name, input } = args.message.parts(cx).await?;
    let signal = SignalRequest {
        name: SignalName::new(&name)?,
        input,
        identity: Some(cx.identity.clone()),
        request_id: args.request_id.map(RequestId::new).transpose()?,
    };
    cx.backend.signal(target.clone(), signal).await?;
    cx.screen.object("workflow.signal", json!({ "workflow_id": target.workflow_id, "signal": name }));
    cx.screen.line(format!("signaled {} with {name}", target.workflow_id));
    cx.screen.next(&format!("bosun describe {}", run_word(target.workflow_id.as_str())));
    Ok(Exit::Ok)
}

pub(super) async fn query(cx: &mut Context, args: QueryArgs) -> Result<Exit, CliError> {
    let MessageParts { target, name, input } = args.message.parts(cx).await?;
    let answer = cx.backend.query(target.clone(), QueryName::new(&name)?, input).await?.to_json();
    cx.screen.object("workflow.query", json!({ "workflow_id": target.workflow_id, "query": name, "result": answer }));
    cx.screen.block(&super::result::value_text(&answer));
    Ok(Exit::Ok)
}

/// Without a worker nothing carries a run on, so an update that needs an activity would never be answered.
const UNCARRIED_WAIT: Duration = Duration::from_secs(5);

/// Sends an update and waits for its answer; nothing: the time was over first. Where no worker runs, the directory is free
/// between looks at it, and one that starts meanwhile is asked again, under the same id.
pub(super) async fn answer_of(
    cx: &mut Context,
    target: &Target,
    request: UpdateRequest,
    timeout: Option<Duration>,
) -> Result<Option<UpdateOutcome>, CliError> {
    let limit = timeout.or((!cx.carried_on).then_some(UNCARRIED_WAIT));
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    loop {
        let visit = cx.visits().then(|| Instant::now() + VISIT_MAX);
        let asked = cx.backend.update(target.clone(), request.clone());
        let asked = match [until, visit].into_iter().flatten().min() {
            Some(until) => tokio::time::timeout_at(until, asked).await.ok(),
            None => Some(asked.await),
        };
        if let Some(outcome) = asked {
            return outcome.map(Some).map_err(|why| CliError::from(why).about(&target.workflow_id));
        }
        match until {
            Some(until) if cx.visits() && Instant::now() < until => {
                if !cx.await_a_worker(until).await? {
                    return Ok(None);
                }
            }
            _ => return Ok(None),
        }
    }
}

pub(super) async fn update(cx: &mut Context, args: UpdateArgs) -> Result<Exit, CliError> {
    let MessageParts { target, name, input } = args.message.parts(cx).await?;
    let update_id = match args.update_id {
        Some(id) => UpdateId::new(id)?,
        None => UpdateId::new(super::start::fresh_id("update")?)?,
    };
    let request = UpdateRequest {
        update_id: update_id.clone(),
        name: UpdateName::new(&name)?,
        input,
        identity: Some(cx.identity.clone()),
        wait: if args.wait == WaitStage::Accepted { UpdateWait::Accepted } else { UpdateWait::Completed },
    };
    let Some(outcome) = answer_of(cx, &target, request, args.timeout).await? else {
        return Err(CliError::new(Code::StillOpen, format!("the update {update_id} has no answer yet"))
            .help("ask again with the same --update-id; a worker must run to carry the workflow on"));
    };
    let (state, result, failure) = match &outcome {
        UpdateOutcome::Accepted => ("accepted", None, None),
        UpdateOutcome::Completed(Ok(payload)) => ("completed", Some(payload.to_json()), None),
        UpdateOutcome::Completed(Err(failure)) => ("failed", None, Some(failure)),
    };
    cx.screen.object(
        "workflow.update",
        json!({
            "workflow_id": target.workflow_id,
            "update": name,
            "update_id": update_id,
            "state": state,
            "result": result,
            "failure": failure.map(run_json::failure),
        }),
    );
    match (result, failure) {
        (_, Some(failure)) => {
            cx.screen.line(format!("update {update_id} failed: {failure}"));
            return Ok(Exit::WorkflowFailed);
        }
        (Some(value), None) => cx.screen.block(&super::result::value_text(&value)),
        (None, None) => cx.screen.line(format!("update {update_id} accepted")),
    }
    Ok(Exit::Ok)
}
