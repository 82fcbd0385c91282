//! `bosun batch`, and the verbs that do one thing to many runs: `terminate --query FILTER` and its like.
//!
//! Invariant: with `--query` a verb starts a batch (`crate::batch`) and touches no run itself, so that what was begun goes on
//! after a kill; it says first how many runs fit and asks. Without it the verb is what it is for one run.

mod many;
mod show;

use clap::{Args, Subcommand};

use super::args::{ExactRun, RunOf, WorkflowVerb};
use super::context::Context;
use super::control::{ControlArgs, ControlVerb};
use super::error::CliError;
use super::exit::Exit;
use super::supervise;
use crate::batch::BatchAction;
pub(super) use many::many;

#[derive(Debug, Subcommand)]
pub enum BatchVerb {
    /// List the newest batches, and how many runs each has done, skipped and failed.
    #[command(visible_alias = "ls")]
    List(BatchListArgs),
    /// Show what a batch does, how far it is, and why runs were skipped or failed.
    Describe(BatchId),
    /// Stop a batch: it touches no further run, and what it has done stays done.
    Stop(StopArgs),
}

impl BatchVerb {
    pub(super) fn only_looks(&self) -> bool {
        !matches!(self, BatchVerb::Stop(_))
    }
}

#[derive(Debug, Args)]
pub struct BatchListArgs {
    /// The most batches to show, up to 1000.
    #[arg(short, long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
}

/// Names a batch.
#[derive(Debug, Args)]
pub struct BatchId {
    /// The id of the batch.
    #[arg(value_name = "ID")]
    pub id: String,
}

#[derive(Debug, Args)]
pub struct StopArgs {
    #[command(flatten)]
    pub batch: BatchId,
    /// Why; shown with the batch.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
}

/// Every run that a filter finds.
#[derive(Debug, Clone, Default, Args)]
pub struct BulkArgs {
    /// Act on every run that matches this list filter, instead of on one run; a crash does not stop such a batch.
    #[arg(long, value_name = "FILTER", conflicts_with_all = ["workflow_id", "run_id"])]
    pub query: Option<String>,
    /// The most runs to act on in a second; 0 means no limit [default: 50].
    #[arg(long, value_name = "N", requires = "query")]
    pub rps: Option<u32>,
    /// Only say what would happen.
    #[arg(long)]
    pub dry_run: bool,
    /// The id of the batch; a second start with the same id starts nothing [default: a fresh id].
    #[arg(long, value_name = "ID", requires = "query")]
    pub batch_id: Option<String>,
}

/// Names one run, or many.
#[derive(Debug, Clone, Default, Args)]
pub struct ManyOf {
    /// A workflow id, the beginning of one, a run id, `latest`, or `@N` for the N-th newest.
    #[arg(value_name = "ID", conflicts_with = "query")]
    pub id: Option<String>,
    #[command(flatten)]
    pub exact: ExactRun,
    #[command(flatten)]
    pub bulk: BulkArgs,
}

impl ManyOf {
    /// The one run that is named.
    pub(super) fn single(&self) -> Result<RunOf, CliError> {
        if self.id.is_none() && self.exact.workflow_id.is_none() && self.exact.run_id.is_none() {
            let error = CliError::usage("no run is named");
            return Err(error.help("write its ID, or --query FILTER for every run that fits"));
        }
        Ok(RunOf { id: self.id.clone(), exact: self.exact.clone() })
    }
}

#[derive(Debug, Args)]
pub struct ManyArgs {
    #[command(flatten)]
    pub of: ManyOf,
    /// Why; recorded in the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

impl WorkflowVerb {
    /// Whether it only says what would happen, with an engine that changes nothing.
    pub(super) fn is_dry_run(&self) -> bool {
        match self {
            WorkflowVerb::Cancel(args)
            | WorkflowVerb::Terminate(args)
            | WorkflowVerb::Pause(args)
            | WorkflowVerb::Resume(args)
            | WorkflowVerb::Delete(args) => args.of.bulk.dry_run,
            WorkflowVerb::Signal(args) => args.bulk.dry_run,
            WorkflowVerb::Reset(args) => args.of.bulk.dry_run,
            _ => false,
        }
    }
}

/// A verb of control, to one run or to many.
pub(super) async fn control(cx: &mut Context, verb: ControlVerb, args: ManyArgs) -> Result<Exit, CliError> {
    if args.of.bulk.query.is_some() {
        let action = match verb {
            ControlVerb::Cancel => BatchAction::Cancel {},
            ControlVerb::Terminate => BatchAction::Terminate {},
            ControlVerb::Pause => BatchAction::Pause {},
            ControlVerb::Unpause => BatchAction::Resume {},
            ControlVerb::Delete => BatchAction::Delete {},
        };
        return many(cx, &args.of.bulk, action, args.reason).await;
    }
    if args.of.bulk.dry_run {
        return Err(CliError::usage("--dry-run is for many runs: write --query FILTER"));
    }
    let args = ControlArgs { run: args.of.single()?, reason: args.reason };
    match verb {
        ControlVerb::Pause => supervise::steer(cx, "pause_v1", args).await,
        ControlVerb::Unpause => supervise::steer(cx, "resume_v1", args).await,
        verb => super::control::control(cx, verb, args).await,
    }
}

pub(super) async fn batch(cx: &mut Context, verb: BatchVerb) -> Result<Exit, CliError> {
    match verb {
        BatchVerb::List(args) => show::list(cx, args).await,
        BatchVerb::Describe(args) => show::describe(cx, &args.id).await,
        BatchVerb::Stop(args) => show::stop(cx, args).await,
    }
}
