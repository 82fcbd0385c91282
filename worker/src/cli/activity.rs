//! `activity …`: completing an attempt from outside by its task token, and holding single activities back.

mod alone;

use std::time::Duration;

use bosun_engine::*;
use clap::{Args, Subcommand};
use serde_json::json;

use super::args::{ExactRun, InputArg, RunOf};
use super::context::Context;
use super::describe::{activity_json, activity_line};
use super::error::CliError;
use super::exit::Exit;
use super::input::{failure, payload};
use super::list::run_word;
use super::resolve::{resolve, run_of};
use super::time_format::{parse_duration, short};
use crate::backend::ActivityAsked;

#[derive(Debug, Subcommand)]
pub enum ActivityVerb {
    /// Start an activity without a workflow, as a durable job of its own. `result`, `describe`, `cancel`, `terminate` and
    /// `list` know it as the run `activity:ID`. An attempt may run for 10 minutes unless you give a limit.
    Start(alone::StartAloneArgs),
    /// Start an activity without a workflow, and wait for its result.
    Execute(alone::ExecuteAloneArgs),
    /// Complete an attempt with a result.
    Complete(TokenArgs),
    /// Fail an attempt.
    Fail(FailArgs),
    /// Report that an attempt is alive, with details for the next attempt.
    Heartbeat(TokenArgs),
    /// Report that an attempt has stopped because it was canceled.
    Cancel(TokenArgs),
    /// List the pending activities of a run.
    #[command(visible_alias = "ls")]
    List(RunOf),
    /// Show one pending activity of a run.
    Describe(ActivityOfRun),
    /// Start the next attempt of an activity at once, instead of waiting for its delay.
    RetryNow(OfRun),
    /// Start the next attempt of an activity at once, and let its retry policy begin again with it; attempts keep their numbers.
    Reset(OfRun),
    /// Change the timeouts or the retry policy of a pending activity.
    UpdateOptions(UpdateOptionsArgs),
    /// Pause an activity: it starts no further attempt.
    Pause(OfRun),
    /// Resume a paused activity.
    #[command(visible_alias = "resume")]
    Unpause(OfRun),
}

#[derive(Debug, Args)]
pub struct TokenArgs {
    /// The task token, as `describe` shows it.
    #[arg(value_name = "TOKEN")]
    pub token: String,
    /// The result or the details, as key=value pairs.
    #[arg(value_name = "key=value")]
    pub pairs: Vec<String>,
    #[command(flatten)]
    pub input: InputArg,
}

#[derive(Debug, Args)]
pub struct FailArgs {
    /// The task token, as `describe` shows it.
    #[arg(value_name = "TOKEN")]
    pub token: String,
    /// What went wrong.
    #[arg(long, visible_alias = "reason", value_name = "TEXT")]
    pub message: String,
    /// The failure type that retry policies name.
    #[arg(long = "type", value_name = "TYPE", default_value = "External")]
    pub failure_type: String,
    /// Start no further attempt.
    #[arg(long)]
    pub non_retryable: bool,
}

#[derive(Debug, Args)]
pub struct ActivityOfRun {
    /// The workflow id (left out with -w) and the activity id.
    #[arg(value_name = "ID ACTIVITY", num_args = 1..=2, required = true)]
    pub words: Vec<String>,
    #[command(flatten)]
    pub exact: ExactRun,
}

#[derive(Debug, Args)]
pub struct OfRun {
    #[command(flatten)]
    pub activity: ActivityOfRun,
    /// Why; recorded in the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// The time limits of an activity, and how it is tried again.
#[derive(Debug, Args)]
pub struct ActivityLimits {
    /// How long it may take with all of its attempts.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub schedule_to_close: Option<Duration>,
    /// How long an attempt may wait for a slot.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub schedule_to_start: Option<Duration>,
    /// How long one attempt may run.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub start_to_close: Option<Duration>,
    /// How long an attempt may go without a heartbeat.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub heartbeat: Option<Duration>,
    /// The delay before the second attempt.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub initial_interval: Option<Duration>,
    /// The longest delay between two attempts.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub maximum_interval: Option<Duration>,
    /// How many attempts there are in all; 0: no limit.
    #[arg(long, value_name = "N")]
    pub maximum_attempts: Option<u32>,
}

#[derive(Debug, Args)]
pub struct UpdateOptionsArgs {
    #[command(flatten)]
    pub of: OfRun,
    #[command(flatten)]
    pub limits: ActivityLimits,
}

pub(super) async fn activity(cx: &mut Context, verb: ActivityVerb) -> Result<Exit, CliError> {
    match verb {
        ActivityVerb::Start(args) => alone::start(cx, &args).await,
        ActivityVerb::Execute(args) => alone::execute(cx, args).await,
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
        ActivityVerb::List(run) => list(cx, &run).await,
        ActivityVerb::Describe(args) => describe(cx, &args).await,
        ActivityVerb::RetryNow(args) => {
            update(cx, "retry-now", args, ActivityUpdate { retry_now: true, ..ActivityUpdate::default() }).await
        }
        ActivityVerb::Reset(args) => {
            update(cx, "reset", args, ActivityUpdate { reset: true, ..ActivityUpdate::default() }).await
        }
        ActivityVerb::UpdateOptions(args) => update_options(cx, args).await,
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
    let token: TaskToken = token.parse().map_err(|why: Rejection| {
        CliError::from(why)
            .help("`bosun activity list ID` shows the token of each attempt that is completed from outside")
    })?;
    cx.backend.complete_activity(token, completion).await?;
    cx.screen.object(&format!("activity.{verb}"), json!({ "task_token": token.to_string() }));
    cx.screen.line(format!("{verb}: recorded for activity {} of run {}", token.seq, token.run_id));
    cx.screen.next(&format!("bosun describe {}", token.run_id));
    Ok(Exit::Ok)
}

/// The run and the activity that are named.
async fn named(cx: &Context, args: &ActivityOfRun) -> Result<(Target, ActivityId), CliError> {
    let (id, activity) = match (args.exact.workflow_id.is_some(), args.words.as_slice()) {
        (true, [activity]) => (None, activity),
        (false, [id, activity]) => (Some(id.as_str()), activity),
        (true, _) => return Err(CliError::usage("give one activity id after -w")),
        (false, _) => return Err(CliError::usage("give a workflow id and an activity id")),
    };
    let activity = ActivityId::new(activity)?;
    Ok((resolve(cx, id, &args.exact).await?, activity))
}

async fn list(cx: &mut Context, run: &RunOf) -> Result<Exit, CliError> {
    let target = run_of(cx, run).await?;
    let described = cx.backend.describe(target).await?;
    let rows = described.pending_activities.iter().map(|one| activity_json(&cx.screen, one)).collect();
    cx.screen.objects("activity.list", "activities", rows);
    for one in &described.pending_activities {
        activity_line(&mut cx.screen, one, cx.carried_on);
    }
    if described.pending_activities.is_empty() {
        cx.screen.note("no pending activities");
    }
    Ok(Exit::Ok)
}

async fn describe(cx: &mut Context, args: &ActivityOfRun) -> Result<Exit, CliError> {
    let (target, activity) = named(cx, args).await?;
    let described = cx.backend.describe(target).await?;
    let found = described.pending_activities.iter().find(|one| one.activity_id == activity);
    let found = found.ok_or(Rejection::UnknownActivity { activity: activity.to_string() })?;
    let told = activity_json(&cx.screen, found);
    cx.screen.object("activity.describe", told);
    activity_line(&mut cx.screen, found, cx.carried_on);
    for (label, text) in found.options.as_deref().map(options_text).into_iter().flatten() {
        cx.screen.field(label, text);
    }
    Ok(Exit::Ok)
}

/// What holds now of an activity: its limits, and how it is tried again.
fn options_text(options: &ActivityOptions) -> [(&'static str, String); 2] {
    let limits = [
        ("start-to-close", options.start_to_close),
        ("schedule-to-close", options.schedule_to_close),
        ("schedule-to-start", options.schedule_to_start),
        ("heartbeat", options.heartbeat),
    ];
    let limits: Vec<String> = limits
        .into_iter()
        .map(|(name, limit)| format!("{name} {}", limit.map_or_else(|| "none".to_owned(), short)))
        .collect();
    let policy = options.retry_policy.clone().unwrap_or_default();
    let attempts = match policy.maximum_attempts {
        0 => "as many attempts as it takes".to_owned(),
        most => format!("{most} attempts in all"),
    };
    if policy.is_for_lost_workers() {
        let retries = format!("{attempts}, another one only where the worker of one was lost");
        return [("limits", limits.join(", ")), ("retries", retries)];
    }
    let longest = policy.maximum_interval.unwrap_or_else(|| policy.initial_interval.saturating_mul(100));
    let first = short(policy.initial_interval);
    let times = f64::from(policy.backoff_coefficient_permille) / 1_000.0;
    let mut retries =
        format!("{attempts}; after {first}, then each time {times} times as long, {} at most", short(longest));
    if !policy.non_retryable_error_types.is_empty() {
        retries.push_str(&format!("; never after {}", policy.non_retryable_error_types.join(", ")));
    }
    [("limits", limits.join(", ")), ("retries", retries)]
}

async fn update_options(cx: &mut Context, args: UpdateOptionsArgs) -> Result<Exit, CliError> {
    let asked = ActivityUpdate {
        schedule_to_close: args.limits.schedule_to_close,
        schedule_to_start: args.limits.schedule_to_start,
        start_to_close: args.limits.start_to_close,
        heartbeat: args.limits.heartbeat,
        initial_interval: args.limits.initial_interval,
        maximum_interval: args.limits.maximum_interval,
        maximum_attempts: args.limits.maximum_attempts,
        ..ActivityUpdate::default()
    };
    if asked == ActivityUpdate::default() {
        return Err(CliError::usage("no option is named").help("for example --start-to-close 5m"));
    }
    update(cx, "update-options", args.of, asked).await
}

async fn update(cx: &mut Context, verb: &str, args: OfRun, update: ActivityUpdate) -> Result<Exit, CliError> {
    let (target, activity) = named(cx, &args.activity).await?;
    let because = cx.because(args.reason.as_deref());
    cx.backend.update_activity(target.clone(), activity.clone(), ActivityAsked { update, because }).await?;
    cx.screen.object(
        &format!("activity.{verb}"),
        json!({ "workflow_id": target.workflow_id, "activity_id": activity, "reason": args.reason }),
    );
    cx.screen.line(format!("{verb}: recorded for activity {activity} of {}", target.workflow_id));
    cx.say_if_nobody_works();
    cx.screen.next(&format!("bosun describe {}", run_word(target.workflow_id.as_str())));
    Ok(Exit::Ok)
}

async fn hold(cx: &mut Context, pause: bool, args: OfRun) -> Result<Exit, CliError> {
    let (target, activity) = named(cx, &args.activity).await?;
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
