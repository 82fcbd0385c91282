//! What people do with supervisors: look at plans, agents and open questions, decide, pause, take over, release.
//!
//! Invariant: these are the run's own queries and signals under handy names; whoever knows the names can do the same with
//! `query` and `signal`. A decision about an approval is checked against what is pending before it is sent, and sent as a
//! signal, so that it is kept also while no worker runs.

use bosun_engine::*;
use clap::{Args, Subcommand};
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
pub enum ApprovalVerb {
    /// What waits for a person: approvals and questions, of one run or of all open supervisors.
    List {
        #[command(flatten)]
        run: AnyRun,
    },
    /// All that is known of one approval.
    Show { id: String },
    /// Approve what was shown.
    Approve(Decision),
    /// Reject it; with --feedback it is to be done again, better.
    Reject(Decision),
    /// Answer a question (an interrupt).
    Answer {
        /// The id of the question.
        id: String,
        /// JSON, or a text.
        answer: String,
    },
}

/// One run, or all.
#[derive(Debug, Clone, Default, Args)]
pub struct AnyRun {
    /// A workflow id; all open supervisors if none is given.
    #[arg(value_name = "ID")]
    pub id: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct Decision {
    /// The id of the approval.
    pub id: String,
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
    /// Who decides [default: user@host].
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// What shall be done instead.
    #[arg(long, value_name = "ACTION")]
    pub modified_action: Option<String>,
    /// What shall be better at the next attempt.
    #[arg(long, value_name = "TEXT")]
    pub feedback: Option<String>,
}

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

pub(super) async fn approval(cx: &mut Context, verb: ApprovalVerb) -> Result<Exit, CliError> {
    match verb {
        ApprovalVerb::List { run } => list(cx, run).await,
        ApprovalVerb::Show { id } => {
            let (_, found) = pending(cx, "pending_approvals", &id).await?;
            cx.screen.object("approval.show", found.clone());
            cx.screen.line(super::result::value_text(&found));
            Ok(Exit::Ok)
        }
        ApprovalVerb::Approve(decision) => decide(cx, decision, true).await,
        ApprovalVerb::Reject(decision) => decide(cx, decision, false).await,
        ApprovalVerb::Answer { id, answer } => {
            let (target, _) = pending(cx, "pending_interrupts", &id).await?;
            let value: Value = serde_json::from_str(&answer).unwrap_or(Value::String(answer));
            send(cx, &target, "interrupt_resume_v1", &json!({ "interrupt_id": id, "resume": value })).await?;
            cx.screen.line(format!("answered {id}"));
            Ok(Exit::Ok)
        }
    }
}

/// Open supervisors, newest first.
async fn supervisors(cx: &Context) -> Result<Vec<Target>, CliError> {
    let query = format!("WorkflowType = '{SUPERVISOR}' AND ExecutionStatus = 'Running'");
    let runs = cx.backend.list(ListRequest { query, limit: 1000 }).await?;
    Ok(runs
        .into_iter()
        .map(|info| Target { namespace: info.namespace.clone(), ..Target::run(info.workflow_id, info.run_id) })
        .collect())
}

pub(super) async fn ask(cx: &Context, target: &Target, query: &str, input: &Value) -> Result<Value, CliError> {
    let input = Payload::encode(input).map_err(|why| CliError::new(Code::Failed, why.to_string()))?;
    Ok(cx.backend.query(target.clone(), QueryName::new(query)?, input).await?.to_json())
}

async fn list(cx: &mut Context, run: AnyRun) -> Result<Exit, CliError> {
    let targets = match &run.id {
        Some(id) => vec![run_of(cx, &RunOf { id: Some(id.clone()), ..RunOf::default() }).await?],
        None => supervisors(cx).await?,
    };
    let mut all = Vec::new();
    for target in targets {
        for (kind, query) in [("approval", "pending_approvals"), ("question", "pending_interrupts")] {
            let waiting = ask(cx, &target, query, &Value::Null).await?;
            for one in waiting.as_array().into_iter().flatten() {
                all.push(json!({ "kind": kind, "workflow_id": target.workflow_id, "request": one }));
            }
        }
    }
    cx.screen.object("approval.list", json!({ "waiting": all }));
    if all.is_empty() {
        cx.screen.line("nobody is asked anything".to_owned());
    }
    for one in &all {
        let text = |key: &str| super::result::value_text(&one["request"][key]);
        let reasons = one["request"]["reasons"].as_array().cloned().unwrap_or_default();
        let reasons: Vec<String> = reasons.iter().map(super::result::value_text).collect();
        let line = match one["kind"].as_str() {
            Some("approval") => format!(
                "{}  {} (risk {}): {}  until {}  {}",
                text("id"),
                text("action"),
                text("risk"),
                text("description"),
                moment(&one["request"]["deadline"]),
                reasons.join("; ")
            ),
            _ => format!("{}  task {}: {}", text("id"), text("task"), text("payload")),
        };
        cx.screen.line(line);
    }
    if let Some(first) = all.first() {
        let verb = if first["kind"] == "approval" { "approve" } else { "answer" };
        cx.screen.next(&format!("bosun approval {verb} {}", first["request"]["id"].as_str().unwrap_or_default()));
    }
    Ok(Exit::Ok)
}

/// The run and the open request of an id. The id begins with the run's.
async fn pending(cx: &Context, query: &str, id: &str) -> Result<(Target, Value), CliError> {
    let run = id.split_once('/').and_then(|(run, _)| run.parse::<RunId>().ok());
    let targets = supervisors(cx).await?;
    let of_run = targets.into_iter().filter(|target| run.is_none() || target.run_id == run);
    for target in of_run {
        let waiting = ask(cx, &target, query, &Value::Null).await?;
        if let Some(found) = waiting.as_array().into_iter().flatten().find(|one| one["id"] == id) {
            return Ok((target, found.clone()));
        }
    }
    Err(CliError::new(Code::NotFound, format!("nothing of the id {id} waits for a person"))
        .help("`bosun approval list` shows what does"))
}

pub(super) async fn send(cx: &Context, target: &Target, name: &str, input: &Value) -> Result<(), CliError> {
    let input = Payload::encode(input).map_err(|why| CliError::new(Code::Failed, why.to_string()))?;
    let signal =
        SignalRequest { name: SignalName::new(name)?, input, identity: Some(cx.identity.clone()), request_id: None };
    Ok(cx.backend.signal(target.clone(), signal).await?)
}

async fn decide(cx: &mut Context, decision: Decision, approved: bool) -> Result<Exit, CliError> {
    let (target, shown) = pending(cx, "pending_approvals", &decision.id).await?;
    let approver = decision.by.clone().unwrap_or_else(|| cx.identity.to_string());
    let mut input = json!({ "approval_id": decision.id, "approved": approved, "approver": approver,
        "comment": decision.comment, "modified_action": decision.modified_action, "feedback": decision.feedback,
        "shown": shown["shown"] });
    if let Value::Object(map) = &mut input {
        map.retain(|_, value| !value.is_null());
    }
    send(cx, &target, "approval_response_v1", &input).await?;
    let word = if approved { "approved" } else { "rejected" };
    cx.screen.object(
        "approval.decision",
        json!({ "workflow_id": target.workflow_id, "id": decision.id, "approved": approved }),
    );
    cx.screen.line(format!("{word} {}", decision.id));
    cx.screen.next(&format!("bosun result {}", target.workflow_id));
    Ok(Exit::Ok)
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
            cx.screen.line(super::result::value_text(&answer.to_json()));
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
    if is(AGENT) && signal == "resume_v1" {
        // An agent that halted for people is not paused: it asks again when it is told to.
        send(cx, &target, signal, &json!({})).await?;
        cx.screen.line(format!("{} goes on", target.workflow_id));
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
        cx.screen.line(super::result::value_text(&context));
    }
    Ok(Exit::Ok)
}

/// A moment as people read it.
fn moment(value: &Value) -> String {
    let time = value.as_i64().and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    time.map_or_else(|| super::result::value_text(value), |time| time.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}
