//! `queue list` and `queue describe`: who waits for a slot, where, and whose turn is next (E25).
//!
//! Invariant: it only looks. Attached it tells of the worker's queues; on a directory that nobody holds, of what would wait
//! when a worker begins, since nothing runs there.

use bosun_engine::TaskQueue;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::context::Context;
use super::error::CliError;
use super::exit::Exit;
use super::list::{run_word, shell_word};
use crate::queues;

#[derive(Debug, Subcommand)]
pub enum QueueVerb {
    /// List the task queues: what waits for a slot in each, what runs, and what the owner allows.
    #[command(visible_alias = "ls")]
    List,
    /// Show one task queue, and the activities that wait in it, next one first.
    Describe(QueueArgs),
}

#[derive(Debug, Args)]
pub struct QueueArgs {
    /// The task queue.
    #[arg(value_name = "QUEUE")]
    pub name: String,
}

pub(super) async fn queue(cx: &mut Context, verb: QueueVerb) -> Result<Exit, CliError> {
    match verb {
        QueueVerb::List => list(cx).await,
        QueueVerb::Describe(args) => describe(cx, &args).await,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// What the owner allows: `at most 2 at once, 5 a second`.
fn allowed(row: &Value) -> String {
    let most = row["max_concurrent_activities"].as_u64().map(|most| format!("at most {most} at once"));
    let rate = row["max_activities_per_second"].as_str().map(|rate| format!("{rate} a second"));
    let found: Vec<String> = most.into_iter().chain(rate).collect();
    if found.is_empty() { "no limit".to_owned() } else { found.join(", ") }
}

async fn list(cx: &mut Context) -> Result<Exit, CliError> {
    let state = cx.backend.worker_state().await?;
    let rows = queues::rows(&state);
    for row in &rows {
        let unserved = if cx.attached && row["served"] == json!(false) { ", no worker serves it" } else { "" };
        let (waiting, running) = (text(&row["waiting"]), text(&row["running"]));
        cx.screen.field(
            &text(&row["task_queue"]),
            format!("{waiting} waiting, {running} running, {}{unserved}", allowed(row)),
        );
    }
    if rows.is_empty() {
        cx.screen.note("nothing waits, nothing runs, and no queue has limits");
    }
    cx.screen.objects("queue.list", "task_queues", rows);
    cx.say_if_nobody_works();
    Ok(Exit::Ok)
}

async fn describe(cx: &mut Context, args: &QueueArgs) -> Result<Exit, CliError> {
    let queue = TaskQueue::new(&args.name)?;
    let state = cx.backend.worker_state().await?;
    let shares = cx.backend.queue_shares(queue.clone(), None).await?;
    let mut row = queues::row(&state, &queue);
    cx.screen.field("task queue", queue.as_str());
    cx.screen.field(
        "served",
        match row["served"].as_bool() {
            Some(true) => "yes",
            Some(false) => "no: what waits waits for a worker",
            None => "not known: this token is for some namespaces, of which nothing waits here",
        },
    );
    cx.screen.field("waiting", text(&row["waiting"]));
    cx.screen.field("running", text(&row["running"]));
    cx.screen.field("allowed", allowed(&row));
    for share in &shares {
        cx.screen.field("", format!("{} waiting: {}", share.waiting, queues::share_text(share)));
    }
    row["who_waits"] = shares.iter().map(queues::share).collect();
    cx.screen.object("queue.describe", row);
    if let Some((share, id)) = shares.first().and_then(|share| Some((share, share.workflow_id.as_ref()?))) {
        let place = match &share.namespace {
            own if *own == cx.namespace => String::new(),
            other => format!(" --namespace {}", shell_word(other.as_str())),
        };
        cx.screen.next(&format!("bosun describe {}{place}", run_word(id.as_str())));
    }
    Ok(Exit::Ok)
}
