//! The review of a plan by people: `plan approve`, `reject`, `feedback` and `revise`.
//!
//! Invariant: each names the version of the plan that somebody has seen, and the run refuses any other; what is approved
//! is the very content of that version. Nothing is looked up in place of the person.

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

use super::args::RunOf;
use super::context::Context;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::input::{read_file, read_stdin};
use super::list::run_word;
use super::resolve::run_of;
use super::result::value_text;
use super::supervise::{ask, update};
use super::waiting::answer_of;

/// A run, and the version of its plan that was seen.
#[derive(Debug, Clone, Args)]
pub struct PlanVersionArgs {
    #[command(flatten)]
    pub run: RunOf,
    /// The version of the plan that you have seen; `plan show` says which it is.
    #[arg(long, value_name = "N")]
    pub version: Option<u64>,
}

#[derive(Debug, Clone, Args)]
pub struct ReviewArgs {
    #[command(flatten)]
    pub seen: PlanVersionArgs,
    /// A comment; recorded with the decision.
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
    /// Who decides [default: user@host].
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct RevisionArgs {
    #[command(flatten)]
    pub seen: PlanVersionArgs,
    /// What the next plan must do differently.
    #[arg(long, value_name = "TEXT")]
    pub message: String,
}

#[derive(Debug, Clone, Args)]
pub struct Revision {
    #[command(flatten)]
    pub seen: PlanVersionArgs,
    /// The tasks of the new plan, in YAML or JSON: a list, or a mapping with `tasks`; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub tasks: String,
}

/// Approves or denies the version that was seen.
pub(super) async fn decide(cx: &mut Context, opinion: ReviewArgs, approved: bool) -> Result<Exit, CliError> {
    let (target, version, review) = reviewed(cx, &opinion.seen).await?;
    let by = opinion.by.unwrap_or_else(|| cx.identity.to_string());
    let mut input = json!({ "version": version, "approved": approved, "approver": by });
    if let Some(comment) = opinion.comment {
        input["comment"] = comment.into();
    }
    // The hash is that of the latest version: of an older one the version itself is refused.
    if review["version"] == version {
        input["shown"] = review["hash"].clone();
    }
    let answer = update(cx, target.clone(), "approve_plan", &input).await.map_err(|why| latest(why, &target))?;
    let word = if approved { "approved" } else { "denied" };
    cx.screen.object("plan.review", json!({ "workflow_id": target.workflow_id, "version": version, "review": answer }));
    cx.screen.line(format!("{word} version {version} of the plan of {}", target.workflow_id));
    cx.screen.next(&format!("bosun result {}", run_word(target.workflow_id.as_str())));
    Ok(Exit::Ok)
}

/// Asks for the next version.
pub(super) async fn feedback(cx: &mut Context, wish: RevisionArgs) -> Result<Exit, CliError> {
    let (target, version, _) = reviewed(cx, &wish.seen).await?;
    let input = json!({ "version": version, "message": wish.message });
    let answer = update(cx, target.clone(), "plan_feedback", &input).await.map_err(|why| latest(why, &target))?;
    cx.screen.object("plan.review", json!({ "workflow_id": target.workflow_id, "version": version, "review": answer }));
    cx.screen.line(format!("asked for another plan than version {version}: round {}", value_text(&answer["round"])));
    cx.screen.next(&format!("bosun plan show {}", run_word(target.workflow_id.as_str())));
    Ok(Exit::Ok)
}

/// Sends a plan in place of what is left of the one that was seen.
pub(super) async fn revise(cx: &mut Context, revision: Revision) -> Result<Exit, CliError> {
    let tasks = tasks(&revision.tasks)?;
    let (target, version, _) = reviewed(cx, &revision.seen).await?;
    let input = json!({ "version": version, "tasks": tasks });
    let answer = update(cx, target.clone(), "revise_plan", &input).await.map_err(|why| latest(why, &target))?;
    cx.screen.object("plan.review", json!({ "workflow_id": target.workflow_id, "version": version, "review": answer }));
    let now = value_text(&answer["version"]);
    cx.screen.line(format!("version {version} of the plan of {} became version {now}", target.workflow_id));
    for kept in answer["kept"].as_array().into_iter().flatten() {
        cx.screen.line(format!("as it was: {}", value_text(kept)));
    }
    cx.screen.next(&format!("bosun plan show {}", run_word(target.workflow_id.as_str())));
    Ok(Exit::Ok)
}

/// The run, the version that was seen, and the review as it is now.
async fn reviewed(cx: &mut Context, seen: &PlanVersionArgs) -> Result<(bosun_engine::Target, u64, Value), CliError> {
    let target = run_of(cx, &seen.run).await?;
    let review = ask(cx, &target, "plan_review", &Value::Null).await?;
    if review["status"] != "reviewing"
        && let Some(answer) = plan_below(cx, &target).await
    {
        // Whose plan was seen nobody but the person knows: a number alone would fit another plan too.
        let why = format!("no plan of {} is up for review, but one of a run below", target.workflow_id);
        return Err(CliError::usage(why).help(format!("`bosun plan show` it first; then `{answer}`")));
    }
    let id = run_word(target.workflow_id.as_str());
    match (seen.version, review["version"].as_u64()) {
        (Some(version), Some(newest)) if version > newest => {
            let why =
                format!("there is no version {version} of the plan of {}: the newest is {newest}", target.workflow_id);
            Err(CliError::usage(why).help(format!("`bosun plan show {id}` shows it")))
        }
        (Some(version), _) => Ok((target, version, review)),
        (None, _) => Err(CliError::usage("which version of the plan? --version names the one that you have seen")
            .help(format!("`bosun plan show {id}` shows the plan and its version"))),
    }
}

/// The command that answers the first plan of a run below that is up for review.
async fn plan_below(cx: &Context, target: &bosun_engine::Target) -> Option<String> {
    let waiting = ask(cx, target, "waiting", &Value::Null).await.ok()?;
    waiting.as_array()?.iter().find(|one| one["kind"] == "plan").map(answer_of)
}

/// A refusal, with where the latest plan is.
fn latest(why: CliError, target: &bosun_engine::Target) -> CliError {
    if !why.to_string().contains("Conflict") {
        return why;
    }
    why.help(format!("`bosun plan show {}` shows the latest version", run_word(target.workflow_id.as_str())))
}

fn tasks(file: &str) -> Result<Value, CliError> {
    let bad = |why: String| CliError::new(Code::BadPlan, format!("{file}: {why}"));
    let text = match file {
        "-" => read_stdin()?,
        file => read_file(Path::new(file))?,
    };
    let value = crate::supervisor::parse_yaml(&text).map_err(|why| bad(why.to_string()))?;
    match value.get("tasks").unwrap_or(&value) {
        Value::Array(tasks) => Ok(Value::Array(tasks.clone())),
        _ => Err(bad("expected a list of tasks, or a mapping with `tasks`".to_owned())),
    }
}
