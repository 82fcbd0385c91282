//! One thing done to many runs: how many fit, a question, and a batch that is started.
//!
//! Invariant: what is counted first are the runs to which the batch will do something, but for those that begin or change
//! meanwhile; nothing is started where there is nothing to do, and a dry run starts nothing.

use bosun_engine::*;
use serde_json::json;

use super::BulkArgs;
use crate::api::TokenRole;
use crate::batch::order::DEFAULT_RPS;
use crate::batch::{self, BatchAction, BatchOrder};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::exit::Exit;
use crate::cli::list::{counted, known_attributes, shell_word};
use crate::cli::start::fresh_id;
use crate::standing;

/// Ids that are shown of what fits.
const SHOWN: usize = 5;

// long: the look, the question and the start, one after the other.
pub(in crate::cli) async fn many(
    cx: &mut Context,
    bulk: &BulkArgs,
    action: BatchAction,
    reason: Option<String>,
) -> Result<Exit, CliError> {
    let order = BatchOrder {
        query: bulk.query.clone().unwrap_or_default(),
        action,
        reason: reason.unwrap_or_default(),
        rps: bulk.rps.unwrap_or(DEFAULT_RPS),
        by: cx.identity.to_string(),
        // The control API writes what the caller may do; whoever opens the directory owns it.
        role: TokenRole::Owner,
        token: None,
        carried: None,
    };
    order.check_says_which()?;
    known_attributes(&*cx.backend, &order.query).await?;
    let filter = order.filter(&cx.namespace, None)?;
    let found = standing::count(&*cx.backend, &filter).await?;
    let filter = order.to_touch(filter)?;
    let count = standing::count(&*cx.backend, &filter).await?;
    let first = standing::list(&*cx.backend, &filter, SHOWN).await?;
    let ids: Vec<&str> = first.iter().map(|info| info.workflow_id.as_str()).collect();
    let (what, runs) = (order.action.in_words(), counted(count, "run"));
    if bulk.dry_run || count == 0 {
        cx.screen.object(
            "batch.preview",
            json!({ "query": order.query, "action": order.action, "found": found, "count": count, "first": ids,
                "dry_run": bulk.dry_run }),
        );
        let nothing = if found == 0 { "nothing matches" } else { "nothing is left to do" };
        cx.screen.line(match bulk.dry_run {
            true => format!("would {what} {runs}"),
            false => format!("{nothing}: no batch is started"),
        });
        if let Some(rest) = found.checked_sub(count).filter(|rest| *rest > 0) {
            let why = match order.action {
                BatchAction::Delete {} => "are open",
                BatchAction::Pause {} => "have ended, or are paused",
                _ => "have ended",
            };
            cx.screen.note(&format!("{rest} more that fit the filter {why}: there is nothing to do to them"));
        }
        ids.iter().for_each(|id| cx.screen.field("", *id));
        if bulk.dry_run {
            cx.screen.note("dry run: nothing is written");
        }
        return Ok(Exit::Ok);
    }
    let more = if count as usize > ids.len() { ", …" } else { "" };
    cx.confirm(&format!("{what} {runs} ({}{more})", ids.join(", ")))?;
    let id = match &bulk.batch_id {
        Some(id) => id.clone(),
        None => fresh_id(order.action.word())?,
    };
    let start = StartWorkflow {
        namespace: cx.namespace.clone(),
        identity: Some(cx.identity.clone()),
        request_id: Some(RequestId::new(format!("batch:{id}"))?),
        ..batch::run::start(&id, &order)?
    };
    let of_id = start.workflow_id.clone();
    let started = cx.backend.start(start).await?;
    if !started.newly_started {
        let batch = Target { namespace: cx.namespace.clone(), ..Target::run(of_id, started.run_id) };
        if let Some(other) = batch::begun::another(&*cx.backend, batch, &order).await? {
            return Err(CliError::usage(format!(
                "the batch id {id} is taken: that batch is to {other}; nothing has begun"
            ))
            .help("take another --batch-id"));
        }
    }
    cx.screen.object(
        "batch.start",
        json!({ "batch_id": id, "workflow_id": started.workflow_id, "run_id": started.run_id, "count": count,
            "newly_started": started.newly_started, "query": order.query, "action": order.action }),
    );
    let begun = if started.newly_started { "batch" } else { "already begun: batch" };
    cx.screen.line(format!("{begun} {id}: {what} {runs}"));
    cx.say_if_nobody_works();
    cx.screen.next(&format!("bosun batch describe {}", shell_word(&id)));
    Ok(Exit::Ok)
}
