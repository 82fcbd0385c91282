//! What is seen of batches, and their end before their time.
//!
//! Invariant: what is shown is what a batch says of itself, also when it has ended; it decides nothing.

use bosun_engine::*;
use serde_json::{Value, json};

use super::{BatchListArgs, StopArgs};
use crate::batch::run::{BATCH, DESCRIBE, STOP};
use crate::batch::{self};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::exit::Exit;
use crate::cli::explain::Code;
use crate::cli::list::shell_word;
use crate::cli::message::answer_of;
use crate::cli::output::Cell;
use crate::cli::result::value_text;
use crate::cli::start::fresh_id;
use crate::cli::supervise::ask;

/// The batch of this name, with or without what all of their workflow ids begin with.
fn target(cx: &Context, id: &str) -> Result<Target, CliError> {
    let name = id.strip_prefix(batch::ID_PREFIX).unwrap_or(id);
    let workflow_id = WorkflowId::new(format!("{}{name}", batch::ID_PREFIX))?;
    Ok(Target { namespace: cx.namespace.clone(), ..Target::workflow(workflow_id) })
}

fn none(id: &str, why: CliError) -> CliError {
    match why.code {
        // What has such an id and knows nothing of batches is none.
        Code::NotFound | Code::UnknownQuery => {
            CliError::new(Code::NotFound, format!("there is no batch {id}")).help("`bosun batch list`")
        }
        _ => why,
    }
}

/// Of the list.
const COLUMNS: &[&str] = &["batch_id", "state", "found", "done", "skipped", "failed", "what"];

pub(super) async fn list(cx: &mut Context, args: BatchListArgs) -> Result<Exit, CliError> {
    let limit = usize::try_from(args.limit).unwrap_or(1_000);
    let runs = cx.backend.list(ListRequest { query: format!("WorkflowType = '{BATCH}'"), limit }).await?;
    let (mut rows, mut table) = (Vec::new(), Vec::new());
    for run in &runs {
        let of = Target { namespace: run.namespace.clone(), ..Target::run(run.workflow_id.clone(), run.run_id) };
        // One that is held is told all the same.
        let described = ask(cx, &of, DESCRIBE, &Value::Null).await.unwrap_or_default();
        let described = batch::as_it_stands(run.status, described);
        let id = run.workflow_id.as_str();
        let id = id.strip_prefix(batch::ID_PREFIX).unwrap_or(id).to_owned();
        let count = |name: &str| described[name].as_u64().unwrap_or_default().to_string();
        let state = described["state"].as_str().map_or_else(|| run.status.to_string(), ToOwned::to_owned);
        table.push(vec![
            Cell::from(id.clone()),
            Cell::from(state),
            Cell::from(count("found")),
            Cell::from(count("done")),
            Cell::from(count("skipped")),
            Cell::from(count("failed")),
            Cell::from(run.summary.clone().unwrap_or_default()),
        ]);
        rows.push(
            json!({ "batch_id": id, "status": run.status, "started_at": cx.screen.time.json(run.started_at), "description": described }),
        );
    }
    cx.screen.objects("batch.list", "batches", rows);
    if runs.is_empty() {
        cx.screen.table_columns(COLUMNS)?;
        cx.screen.note("no batches");
        return Ok(Exit::Ok);
    }
    cx.screen.table(COLUMNS, table)?;
    Ok(Exit::Ok)
}

pub(super) async fn describe(cx: &mut Context, id: &str) -> Result<Exit, CliError> {
    let of = target(cx, id)?;
    let described = ask(cx, &of, DESCRIBE, &Value::Null).await.map_err(|why| none(id, why))?;
    let described = batch::as_it_stands(cx.backend.describe(of).await?.info.status, described);
    cx.screen.object("batch.describe", described.clone());
    print(cx, &described);
    let is_open = described["state"] == "running";
    if is_open {
        cx.say_if_nobody_works();
        cx.screen.next(&format!("bosun batch stop {}", shell_word(id)));
    }
    Ok(Exit::Ok)
}

fn print(cx: &mut Context, described: &Value) {
    let text = |name: &str| value_text(&described[name]);
    for name in ["state", "query", "action", "reason", "by", "found", "done", "skipped", "failed", "stopped"] {
        if !described[name].is_null() && described[name] != "" {
            cx.screen.field(name, text(name));
        }
    }
    for (reason, count) in described["reasons"].as_object().into_iter().flatten() {
        cx.screen.field("because", format!("{count}: {reason}"));
    }
    for one in described["failures"].as_array().into_iter().flatten() {
        cx.screen.field("failed run", format!("{} ({})", value_text(&one["workflow_id"]), value_text(&one["why"])));
    }
}

pub(super) async fn stop(cx: &mut Context, args: StopArgs) -> Result<Exit, CliError> {
    let id = &args.batch.id;
    let input = Payload::encode(&json!({ "reason": args.reason }))
        .map_err(|why| CliError::new(Code::BadInput, why.to_string()))?;
    let request = UpdateRequest {
        update_id: UpdateId::new(fresh_id("stop")?)?,
        name: UpdateName::of(STOP),
        input,
        identity: Some(cx.identity.clone()),
        wait: UpdateWait::Completed,
    };
    let of = target(cx, id)?;
    let answer = match answer_of(cx, &of, request, None).await {
        Ok(Some(UpdateOutcome::Completed(Ok(answer)))) => answer.to_json(),
        Ok(Some(UpdateOutcome::Completed(Err(why)))) => return Err(CliError::new(Code::Failed, why.to_string())),
        Ok(Some(UpdateOutcome::Accepted)) => Value::Null,
        Ok(None) => {
            return Err(CliError::new(Code::StillOpen, format!("batch {id} has not answered yet"))
                .help("a worker must run to stop it: `bosun worker run`"));
        }
        Err(why) => return Err(none(id, why)),
    };
    cx.screen.object("batch.stop", answer.clone());
    cx.screen.line(format!("batch {id} is {}", value_text(&answer["state"])));
    cx.screen.next(&format!("bosun batch describe {}", shell_word(id)));
    Ok(Exit::Ok)
}
