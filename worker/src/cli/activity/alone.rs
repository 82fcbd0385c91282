//! `activity start` and `activity execute`: an activity without a workflow (E36).
//!
//! Invariant: what is asked for is checked before anything is started; the same id asked for again while it runs starts no
//! second one. What such an activity is stands in `crate::standalone`; this file reads and prints.

use std::time::Duration;

use bosun_engine::*;
use clap::Args;

use super::ActivityLimits;
use crate::cli::args::InputArg;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::exit::Exit;
use crate::cli::input::payload;
use crate::cli::start::{fresh_id, go, print_started};
use crate::cli::time_format::parse_duration;
use crate::priority::PriorityArgs;
use crate::standalone::{ActivityOrder, DEFAULT_START_TO_CLOSE};

#[derive(Debug, Args)]
pub struct StartAloneArgs {
    /// The activity type, then key=value pairs as input.
    #[arg(value_name = "TYPE key=value", required = true)]
    pub words: Vec<String>,
    #[command(flatten)]
    pub input: InputArg,
    /// The id; the run is `activity:ID`. A second start with an id that is running starts nothing [default: TYPE-xxxxxxxx].
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// The task queue of the activity.
    #[arg(short = 'q', long, visible_alias = "queue", value_name = "QUEUE", default_value = DEFAULT_TASK_QUEUE)]
    pub task_queue: String,
    #[command(flatten)]
    pub limits: ActivityLimits,
    #[command(flatten)]
    pub priority: PriorityArgs,
    /// One line that says what the activity is for.
    #[arg(long, value_name = "TEXT")]
    pub summary: Option<String>,
}

#[derive(Debug, Args)]
pub struct ExecuteAloneArgs {
    #[command(flatten)]
    pub start: StartAloneArgs,
    #[command(flatten)]
    pub slots: crate::cli::worker::SlotArgs,
    /// How long to wait; the activity goes on afterwards.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
}

impl StartAloneArgs {
    fn options(&self) -> Result<ActivityOptions, CliError> {
        let policy = RetryPolicy::default();
        let policy = RetryPolicy {
            initial_interval: self.limits.initial_interval.unwrap_or(policy.initial_interval),
            maximum_interval: self.limits.maximum_interval.or(policy.maximum_interval),
            maximum_attempts: self.limits.maximum_attempts.unwrap_or(policy.maximum_attempts),
            ..policy
        };
        let default = self.limits.schedule_to_close.is_none().then_some(DEFAULT_START_TO_CLOSE);
        Ok(ActivityOptions {
            task_queue: Some(TaskQueue::new(&self.task_queue)?),
            schedule_to_close: self.limits.schedule_to_close,
            schedule_to_start: self.limits.schedule_to_start,
            start_to_close: self.limits.start_to_close.or(default),
            heartbeat: self.limits.heartbeat,
            retry_policy: (policy != RetryPolicy::default()).then_some(policy),
            summary: self.summary.clone(),
            priority: self.priority.said().map_err(CliError::usage)?,
            ..ActivityOptions::default()
        })
    }

    fn request(&self, cx: &Context) -> Result<StartWorkflow, CliError> {
        let (name, pairs) = self.words.split_first().ok_or_else(|| CliError::usage("no activity type given"))?;
        let input = payload(self.input.input.as_deref(), pairs)?.to_json();
        let order = ActivityOrder { activity_type: ActivityType::new(name)?, input, options: self.options()? };
        let id = match &self.id {
            Some(id) => id.clone(),
            None => fresh_id(name)?,
        };
        Ok(StartWorkflow {
            namespace: cx.namespace.clone(),
            task_queue: TaskQueue::new(&self.task_queue)?,
            identity: Some(cx.identity.clone()),
            id_conflict_policy: IdConflictPolicy::UseExisting,
            ..order.start(&id)?
        })
    }
}

pub(super) async fn start(cx: &mut Context, args: &StartAloneArgs) -> Result<Exit, CliError> {
    let started = cx.backend.start(args.request(cx)?).await?;
    print_started(cx, "activity.start", &started).await;
    Ok(Exit::Ok)
}

pub(super) async fn execute(cx: &mut Context, args: ExecuteAloneArgs) -> Result<Exit, CliError> {
    let request = args.start.request(cx)?;
    go(cx, request, args.timeout).await
}
