//! `plan complete`: a task of a run that somebody has taken over, done by hand (SHN-68).
//!
//! Invariant: it is the run's own update `complete_task_manually` under a handy name: the run says whether it takes it.

use bosun_engine::Target;
use clap::Args;
use serde_json::json;

use super::args::RunOf;
use super::context::Context;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::input::json_or_text;
use super::list::run_word;
use super::resolve::run_of;
use super::supervise::update;
use super::waiting::{Hold, own_hold};
use crate::supervisor::model::TaskId;
use crate::supervisor::run::SUPERVISOR;

#[derive(Debug, Clone, Args)]
pub struct CompleteArgs {
    #[command(flatten)]
    pub run: RunOf,
    /// The id of the task; `plan show` says which there are.
    #[arg(long, value_name = "TASK")]
    pub task: String,
    /// What it gave, as JSON or as plain text: whoever waits for the task is told.
    #[arg(long, value_name = "RESULT", allow_hyphen_values = true)]
    pub result: Option<String>,
}

pub(super) async fn complete(cx: &mut Context, args: CompleteArgs) -> Result<Exit, CliError> {
    let bad = |why: String| CliError::new(Code::BadInput, why);
    let task = TaskId::new(args.task).map_err(|why| bad(why.to_string()))?;
    let result = args.result.as_deref().map(json_or_text).transpose();
    let result = result.map_err(|why| bad("--result begins as JSON does and is none".to_owned()).cause(why))?;
    let target = run_of(cx, &args.run).await?;
    let id = run_word(target.workflow_id.as_str());
    let input = json!({ "task_id": task, "result": result });
    let answer = match update(cx, target.clone(), "complete_task_manually", &input).await {
        Ok(answer) => answer,
        // What helps goes by how the run stands, and not by the words of its refusal.
        Err(why) => {
            return Err(match is_taken_over(cx, &target).await {
                Some(false) => why.help(format!("`bosun takeover {id}` takes it over")),
                Some(true) | None => why.help(format!("`bosun plan show {id}` shows its tasks")),
            });
        }
    };
    cx.screen.object("plan.complete", json!({ "workflow_id": target.workflow_id, "task": answer }));
    cx.screen.line(format!("task {task} of {} is completed by hand", target.workflow_id));
    cx.screen.next(&format!("bosun release {id}"));
    Ok(Exit::Ok)
}

/// Whether a person does the work of the run, if it can say so.
async fn is_taken_over(cx: &Context, target: &Target) -> Option<bool> {
    let info = cx.backend.describe(target.clone()).await.ok()?.info;
    if info.workflow_type.as_str() != SUPERVISOR {
        return None;
    }
    let hold = own_hold(&*cx.backend, &info).await?;
    info.status.is_open().then_some(hold == Some(Hold::TakenOver))
}
