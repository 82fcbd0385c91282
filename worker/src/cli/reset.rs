//! `reset ID --to POINT`: a run goes back to an earlier point of its history and goes on under the same workflow id.
//!
//! Invariant: an open run is ended by it, so it is asked for first; `--dry-run` writes nothing, and says the same as the reset
//! itself would. What a reset means is the engine's affair; this file reads and prints.

use bosun_engine::*;
use clap::{Args, ValueEnum};
use serde_json::json;

use super::batch::{self, ManyOf};
use super::context::{Context, identity};
use super::describe::point;
use super::error::CliError;
use super::exit::Exit;
use super::fork::plan_lines;
use super::list::run_word;
use super::output::Screen;
use super::resolve::run_of;
use crate::batch::BatchAction;

#[derive(Debug, Args)]
pub struct ResetArgs {
    #[command(flatten)]
    pub of: ManyOf,
    #[command(flatten)]
    pub how: ResetHow,
    /// Make the reset idempotent: a second reset with this id does nothing.
    #[arg(long, value_name = "ID")]
    pub request_id: Option<String>,
    /// Why; recorded in the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// Where a reset goes back to, of one run or of many.
#[derive(Debug, Clone, Args)]
pub struct ResetHow {
    /// How far to go back: the number of the last event to keep, `first-turn` (begin again with the same input), `last-turn`
    /// (decide the last turn again), or `build:ID` (decide again from the first turn of this build on).
    #[arg(long, value_name = "POINT")]
    pub to: ResetTo,
    /// Which messages that reached the run after that point are sent to the new one again.
    #[arg(long, value_name = "WHAT", default_value = "all")]
    pub reapply: ReapplyAfterReset,
}

/// Temporal's reset has the same words with the same default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReapplyAfterReset {
    /// Nothing; what is dropped is named.
    None,
    /// Signals, each once and in their order.
    Signal,
    /// Updates, as far as the code accepts them again.
    Update,
    /// Signals and updates.
    All,
}

impl From<ReapplyAfterReset> for ResetReapply {
    fn from(reapply: ReapplyAfterReset) -> ResetReapply {
        match reapply {
            ReapplyAfterReset::None => ResetReapply::None,
            ReapplyAfterReset::Signal => ResetReapply::Signal,
            ReapplyAfterReset::Update => ResetReapply::Update,
            ReapplyAfterReset::All => ResetReapply::All,
        }
    }
}

pub(super) async fn reset(cx: &mut Context, args: ResetArgs) -> Result<Exit, CliError> {
    let dry_run = args.of.bulk.dry_run;
    if args.of.bulk.query.is_some() {
        let action = BatchAction::Reset { to: args.how.to, reapply: args.how.reapply.into() };
        return batch::many(cx, &args.of.bulk, action, args.reason).await;
    }
    let target = run_of(cx, &args.of.single()?).await?;
    let request = ResetRequest {
        reapply: args.how.reapply.into(),
        request_id: args.request_id.as_ref().map(RequestId::new).transpose()?,
        identity: Some(identity()),
        reason: args.reason.clone().unwrap_or_default(),
        dry_run,
        ..ResetRequest::new(target.clone(), args.how.to)
    };
    if !dry_run {
        let info = cx.backend.describe(Target { run_id: None, ..target.clone() }).await?.info;
        if info.status.is_open() {
            // Nobody is asked for what cannot be.
            cx.backend.reset(ResetRequest { dry_run: true, ..request.clone() }).await?;
            let (id, run) = (&target.workflow_id, info.run_id);
            cx.confirm(&format!("end the open run {run} of {id} and go on from {}", args.how.to))?;
        }
    }
    let done = cx.backend.reset(request).await?;
    say(&mut cx.screen, &done, dry_run);
    if dry_run {
        return Ok(Exit::Ok);
    }
    if !cx.carried_on {
        let hint = cx.screen.reach.complete("`bosun worker run`");
        cx.screen.note(&format!("no worker runs: it goes on when one does ({hint})"));
    }
    let id = run_word(done.workflow_id.as_str());
    cx.screen.next(&format!("bosun describe {id}"));
    cx.screen.next(&format!("bosun result {id}"));
    Ok(Exit::Ok)
}

fn say(screen: &mut Screen, done: &ResetDone, dry_run: bool) {
    let mut object = json!(done);
    object["dry_run"] = json!(dry_run);
    screen.object("workflow.reset", object);
    let id = &done.workflow_id;
    match done.run_id {
        Some(run) if done.newly_started => screen.line(format!("reset {id} (run {run})")),
        Some(run) => {
            screen.line(format!("already reset: {id} (run {run})"));
            screen.field("from", format!("{} of run {}", point(done.from.event), done.from.run_id));
            return;
        }
        None => screen.line("dry run: nothing is written".into()),
    }
    screen.field("from", format!("{} of run {}", point(done.from.event), done.from.run_id));
    if let Some(run) = done.terminated {
        screen.field("ends", format!("run {run}"));
    }
    for (name, told) in plan_lines(&done.plan) {
        screen.field(name, told);
    }
}
