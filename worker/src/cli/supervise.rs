//! What people do with supervisors: look at plans and agents, pause, take over, release.
//!
//! Invariant: these are the run's own queries and signals under handy names; whoever knows the names can do the same with
//! `query` and `signal`.

use bosun_engine::*;
use clap::Subcommand;
use serde_json::{Value, json};

use super::args::RunOf;
use super::context::Context;
use super::control::{Control, ControlArgs, control};
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::resolve::run_of;
use crate::agent::AGENT;
use crate::supervisor::run::SUPERVISOR;

#[derive(Debug, Subcommand)]
pub enum AgentVerb {
    /// The team of a run: who is at work, in which role.
    #[command(visible_alias = "ls")]
    List(RunOf),
}

#[derive(Debug, Subcommand)]
pub enum PlanVerb {
    /// The plan of a run: every task with its status and why it waits.
    Show(RunOf),
    /// Approve the version of the plan that is up for review.
    Approve(RunOf),
    /// Ask for another plan.
    Feedback {
        #[command(flatten)]
        run: RunOf,
        #[arg(long, value_name = "TEXT")]
        message: String,
    },
}

pub(super) async fn ask(cx: &Context, target: &Target, query: &str, input: &Value) -> Result<Value, CliError> {
    let input = Payload::encode(input).map_err(|why| CliError::new(Code::Failed, why.to_string()))?;
    Ok(cx.backend.query(target.clone(), QueryName::new(query)?, input).await?.to_json())
}

pub(super) async fn send(cx: &Context, target: &Target, name: &str, input: &Value) -> Result<(), CliError> {
    let input = Payload::encode(input).map_err(|why| CliError::new(Code::Failed, why.to_string()))?;
    let signal =
        SignalRequest { name: SignalName::new(name)?, input, identity: Some(cx.identity.clone()), request_id: None };
    Ok(cx.backend.signal(target.clone(), signal).await?)
}

pub(super) async fn agent(cx: &mut Context, verb: AgentVerb) -> Result<Exit, CliError> {
    let AgentVerb::List(run) = verb;
    let target = run_of(cx, &run).await?;
    let team = ask(cx, &target, "listTeamAgents", &Value::Null).await?;
    let registry = ask(cx, &target, "registry_stats", &Value::Null).await?;
    cx.screen.object("agent.list", json!({ "team": team, "registry": registry }));
    for member in team.as_array().into_iter().flatten() {
        let text = |key: &str| super::result::value_text(&member[key]);
        cx.screen.line(format!("{:<24} {:<20} {}", text("AgentID"), text("Role"), text("Status")));
    }
    cx.screen.line(format!("instances: {}", super::result::value_text(&registry)));
    Ok(Exit::Ok)
}

pub(super) async fn plan(cx: &mut Context, verb: PlanVerb) -> Result<Exit, CliError> {
    match verb {
        PlanVerb::Show(run) => show_plan(cx, &run).await,
        PlanVerb::Approve(run) => {
            let target = run_of(cx, &run).await?;
            let review = ask(cx, &target, "plan_review", &Value::Null).await?;
            let input = json!({ "version": review["version"], "approver": cx.identity, "shown": review["hash"] });
            update(cx, target, "approve_plan", &input).await
        }
        PlanVerb::Feedback { run, message } => {
            let target = run_of(cx, &run).await?;
            let review = ask(cx, &target, "plan_review", &Value::Null).await?;
            update(cx, target, "plan_feedback", &json!({ "version": review["version"], "message": message })).await
        }
    }
}

async fn update(cx: &mut Context, target: Target, name: &str, input: &Value) -> Result<Exit, CliError> {
    let request = UpdateRequest {
        update_id: UpdateId::new(super::start::fresh_id("update")?)?,
        name: UpdateName::new(name)?,
        input: Payload::encode(input).map_err(|why| CliError::new(Code::Failed, why.to_string()))?,
        identity: Some(cx.identity.clone()),
        wait: UpdateWait::Completed,
    };
    match cx.backend.update(target, request).await? {
        UpdateOutcome::Completed(Err(why)) => Err(CliError::new(Code::Failed, why.to_string())),
        UpdateOutcome::Completed(Ok(answer)) => {
            cx.screen.block(&super::result::value_text(&answer.to_json()));
            Ok(Exit::Ok)
        }
        UpdateOutcome::Accepted => Ok(Exit::Ok),
    }
}

async fn show_plan(cx: &mut Context, run: &RunOf) -> Result<Exit, CliError> {
    let target = run_of(cx, run).await?;
    let board = ask(cx, &target, "status_board", &Value::Null).await?;
    let mut shown = Vec::new();
    for line in board.as_array().into_iter().flatten() {
        let id = super::result::value_text(&line["task_id"]);
        let why = ask(cx, &target, "why_not_running", &json!({ "task_id": id })).await.unwrap_or_default();
        shown.push(json!({ "task": line, "why_not_running": why["reasons"] }));
    }
    cx.screen.object("plan.show", json!({ "workflow_id": target.workflow_id, "tasks": shown }));
    for one in &shown {
        let text = |key: &str| super::result::value_text(&one["task"][key]);
        let reasons = one["why_not_running"].as_array().cloned().unwrap_or_default();
        let reasons: Vec<String> = reasons.iter().map(super::result::value_text).collect();
        let objective = text("objective").lines().next().unwrap_or_default().to_owned();
        let why = if reasons.is_empty() { String::new() } else { format!("  [{}]", reasons.join("; ")) };
        cx.screen.line(format!("{:<18} {:<18} {objective}{why}", text("task_id"), text("status")));
    }
    Ok(Exit::Ok)
}

/// `pause`, `resume`, `takeover` and `release` of a supervisor are its own signals; any other run is paused by the engine.
pub(super) async fn steer(cx: &mut Context, signal: &str, args: ControlArgs) -> Result<Exit, CliError> {
    let target = run_of(cx, &args.run).await?;
    // What cannot be looked at is left to the engine, which says why.
    let described = cx.backend.describe(target.clone()).await.ok();
    let is = |workflow_type: &str| {
        described.as_ref().is_some_and(|found| found.info.workflow_type.as_str() == workflow_type)
    };
    if is(AGENT) && matches!(signal, "pause_v1" | "resume_v1") {
        // Its own signals: a halt for people ends with a resume too, and both reach the agents below.
        let reason = args.reason.clone().unwrap_or_default();
        send(cx, &target, signal, &json!({ "reason": reason, "requested_by": cx.identity })).await?;
        let state = ask(cx, &target, "state", &Value::Null).await.unwrap_or_default();
        cx.screen.object(
            "workflow.control",
            json!({ "workflow_id": target.workflow_id, "signal": signal, "control": state["phase"] }),
        );
        cx.screen.line(format!("{} is {}", target.workflow_id, super::result::value_text(&state["phase"])));
        return Ok(Exit::Ok);
    }
    if !is(SUPERVISOR) {
        return match signal {
            "pause_v1" => control(cx, Control::Pause, args).await,
            "resume_v1" => control(cx, Control::Unpause, args).await,
            _ => Err(CliError::usage(format!("{} is no supervisor: nobody can take it over", target.workflow_id))),
        };
    }
    let input = json!({ "reason": args.reason.clone().unwrap_or_default(), "requested_by": cx.identity });
    send(cx, &target, signal, &input).await?;
    let state = ask(cx, &target, "progress", &Value::Null).await.unwrap_or_default();
    cx.screen.object(
        "workflow.control",
        json!({ "workflow_id": target.workflow_id, "signal": signal, "control": state["control"] }),
    );
    cx.screen.line(format!("{} is {}", target.workflow_id, super::result::value_text(&state["control"])));
    if signal == "human_takeover_v1" {
        let context = ask(cx, &target, "takeover_context", &Value::Null).await?;
        cx.screen.block(&super::result::value_text(&context));
    }
    Ok(Exit::Ok)
}
