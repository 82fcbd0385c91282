//! What people do with supervisors: look at plans and agents, pause, take over, release.
//!
//! Invariant: these are the run's own queries and signals under handy names; whoever knows the names can do the same with
//! `query` and `signal`.

use bosun_engine::*;
use clap::Subcommand;
use serde_json::{Value, json};

use super::args::RunOf;
use super::by_hand::{CompleteArgs, complete};
use super::context::Context;
use super::control::{ControlArgs, ControlVerb, control};
use super::error::{CliError, printable};
use super::exit::Exit;
use super::explain::Code;
use super::list::run_word;
use super::message::answer_of;
use super::output::{Cell, TextStyle};
use super::request_text::what_it_does;
use super::resolve::run_of;
use super::review::{self, ReviewArgs, Revision, RevisionArgs};
use super::stuck::{Lookout, Obstacle};
use super::time_format::now;
use crate::agent::AGENT;
use crate::api::people::agents;
use crate::backend::CallError;
use crate::inbox::send_on;
use crate::supervisor::people::takeover::HANDED_TO_HUMAN;
use crate::supervisor::run::SUPERVISOR;
use crate::supervisor::run::child_id::is_for_task;
use crate::supervisor::team::registry::AgentInstance;

/// Of the members of a team.
const COLUMNS: [&str; 3] = ["agent", "role", "status"];

#[derive(Debug, Subcommand)]
pub enum AgentVerb {
    /// List the agents of a run and their roles.
    #[command(visible_alias = "ls")]
    List(RunOf),
    /// Show how an agent has done in all runs: attempts, success, time, cost, and why it last failed.
    Describe {
        /// The name of the agent, as specs give it.
        #[arg(value_name = "AGENT")]
        name: String,
    },
    /// Remove agents of a run that have ended, and agents that have been active for too long.
    Cleanup {
        #[command(flatten)]
        run: RunOf,
        /// Remove active agents that are older than this many hours.
        #[arg(long, value_name = "HOURS", default_value_t = 24)]
        max_age: u64,
    },
}

impl AgentVerb {
    /// Whether it changes nothing, and may look at a store that nobody may write to.
    pub(super) fn only_looks(&self) -> bool {
        matches!(self, AgentVerb::List(_) | AgentVerb::Describe { .. })
    }
}

#[derive(Debug, Subcommand)]
pub enum PlanVerb {
    /// Show the plan of a run: every task with its status and why it waits.
    Show(RunOf),
    /// Approve the version of the plan that you have seen.
    #[command(disable_version_flag = true)]
    Approve(ReviewArgs),
    /// Reject the plan: the run ends without doing any of it.
    #[command(disable_version_flag = true)]
    Reject(ReviewArgs),
    /// Ask for a new plan in place of the version that you have seen.
    #[command(disable_version_flag = true)]
    Feedback(RevisionArgs),
    /// Replace the rest of the version that you have seen with a plan of your own.
    #[command(disable_version_flag = true)]
    Revise(Revision),
    /// Complete a task by hand in a run that you have taken over.
    Complete(CompleteArgs),
}

pub(super) async fn ask(cx: &Context, target: &Target, query: &str, input: &Value) -> Result<Value, CliError> {
    let input = Payload::encode(input).map_err(|why| CliError::new(Code::Failed, why.to_string()))?;
    match cx.backend.query(target.clone(), QueryName::new(query)?, input).await {
        Err(why @ CallError::Rejected(Rejection::Query(QueryError::Unknown { .. }))) => {
            Err(unanswered(cx, target, why).await)
        }
        answer => Ok(answer?.to_json()),
    }
}

/// A run that knows nothing of these verbs says what it is, and not which queries it lacks.
async fn unanswered(cx: &Context, target: &Target, why: CallError) -> CliError {
    match cx.backend.describe(target.clone()).await {
        Ok(found) if ![SUPERVISOR, AGENT].contains(&found.info.workflow_type.as_str()) => {
            let what = format!("{} is a run of {}, and no supervisor", target.workflow_id, found.info.workflow_type);
            CliError::new(Code::UnknownQuery, what)
                .help(format!("`bosun describe {}` shows what it does", run_word(target.workflow_id.as_str())))
        }
        _ => why.into(),
    }
}

pub(super) async fn send(cx: &Context, target: &Target, name: &str, input: &Value) -> Result<(), CliError> {
    let input = Payload::encode(input).map_err(|why| CliError::new(Code::Failed, why.to_string()))?;
    let signal =
        SignalRequest { name: SignalName::new(name)?, input, identity: Some(cx.identity.clone()), request_id: None };
    Ok(send_on(&*cx.backend, target, signal).await.map(drop)?)
}

pub(super) async fn agent(cx: &mut Context, verb: AgentVerb) -> Result<Exit, CliError> {
    let run = match verb {
        AgentVerb::List(run) => run,
        AgentVerb::Describe { name } => return describe_agent(cx, &name).await,
        AgentVerb::Cleanup { run, max_age } => return cleanup(cx, &run, max_age).await,
    };
    let target = run_of(cx, &run).await?;
    let team = ask(cx, &target, "listTeamAgents", &Value::Null).await?;
    let registry = ask(cx, &target, "registry_stats", &Value::Null).await?;
    let started = ask(cx, &target, "registry", &Value::Null).await?;
    cx.screen.object("agent.list", json!({ "team": team, "registry": registry, "instances": started }));
    let text = |value: &Value| super::result::value_text(value);
    let row = |member: &Value| {
        vec![
            Cell::of(text(&member["AgentID"]), TextStyle::Bold),
            text(&member["Role"]).into(),
            text(&member["Status"]).into(),
        ]
    };
    let rows: Vec<Vec<Cell>> = team.as_array().into_iter().flatten().map(row).collect();
    let instances = instance_rows(&started);
    match (rows.is_empty(), instances.is_empty()) {
        (false, _) => cx.screen.table(&COLUMNS, rows)?,
        (true, false) => cx.screen.table(&["agent", "instance", "started by", "depth", "status"], instances)?,
        (true, true) => {
            cx.screen.table_columns(&COLUMNS)?;
            cx.screen.line(format!("{} has no team", target.workflow_id));
            cx.screen.next(&format!("bosun plan show {}", run_word(target.workflow_id.as_str())));
        }
    }
    let of = |key: &str| registry[key].as_u64().unwrap_or_default();
    let (active, completed, failed) = (of("active"), of("completed"), of("failed"));
    cx.screen
        .line(format!("agents started: {} ({active} active, {completed} completed, {failed} failed)", of("total")));
    Ok(Exit::Ok)
}

/// Where agents call agents there is no team, and each that was started is one (SUP-12).
fn instance_rows(started: &Value) -> Vec<Vec<Cell>> {
    let all: Vec<AgentInstance> = serde_json::from_value(started.clone()).unwrap_or_default();
    let name = |id: &String| all.iter().find(|one| one.instance_id == *id).map_or("-", |above| above.name.as_str());
    let row = |one: &AgentInstance| {
        vec![
            Cell::of(printable(&one.name), TextStyle::Bold),
            one.instance_id.clone().into(),
            printable(one.parent_id.as_ref().map_or("-", name)).into(),
            one.depth.to_string().into(),
            one.status.as_str().to_owned().into(),
        ]
    };
    all.iter().map(row).collect()
}

/// What the newest runs say of an agent.
async fn describe_agent(cx: &mut Context, name: &str) -> Result<Exit, CliError> {
    let seen = agents::seen(&*cx.backend).await?;
    let Some(tally) = seen.tallies.get(name) else {
        let known: Vec<&str> = seen.tallies.keys().map(String::as_str).collect();
        let has = if known.is_empty() { "nobody has worked yet".to_owned() } else { known.join(", ") };
        return Err(CliError::new(Code::NotFound, format!("no agent {name} has worked in the newest runs"))
            .help(format!("there are: {has}")));
    };
    let told = tally.told(name);
    cx.screen.field("agent", name);
    cx.screen.field("runs", tally.runs.to_string());
    let rate = (tally.done * 100).checked_div(tally.done + tally.failed);
    let rate = rate.map_or_else(|| "nothing has ended".to_owned(), |rate| format!("{rate} % of what has ended"));
    let counts = format!("{} ({} done, {} failed, {} under way)", tally.attempts, tally.done, tally.failed, tally.busy);
    cx.screen.field("attempts", counts);
    cx.screen.field("success", rate);
    cx.screen.field("sent back", tally.sent_back.to_string());
    cx.screen.field("spent", format!("{} tokens, {}", tally.tokens, tally.spent(super::budget::dollars)));
    if let Some(median) = tally.median() {
        cx.screen.field("half within", super::time_format::short(median));
    }
    if let Some(why) = &tally.last_error {
        cx.screen.field("last error", why);
    }
    cx.screen.object("agent.describe", told);
    Ok(Exit::Ok)
}

/// SUP-16.
async fn cleanup(cx: &mut Context, run: &RunOf, max_age: u64) -> Result<Exit, CliError> {
    let target = run_of(cx, run).await?;
    let answer = update(cx, target.clone(), "cleanup_agents", &json!({ "max_age_hours": max_age })).await?;
    cx.screen.object("agent.cleanup", json!({ "workflow_id": target.workflow_id, "removed": answer }));
    let text = |key: &str| super::result::value_text(&answer[key]);
    cx.screen.line(format!(
        "forgot {} stale and {} ended agents of {}",
        text("stale"),
        text("completed"),
        target.workflow_id
    ));
    Ok(Exit::Ok)
}

pub(super) async fn plan(cx: &mut Context, verb: PlanVerb) -> Result<Exit, CliError> {
    match verb {
        PlanVerb::Show(run) => show_plan(cx, &run).await,
        PlanVerb::Approve(opinion) => review::decide(cx, opinion, true).await,
        PlanVerb::Reject(opinion) => review::decide(cx, opinion, false).await,
        PlanVerb::Feedback(wish) => review::feedback(cx, wish).await,
        PlanVerb::Revise(revision) => review::revise(cx, revision).await,
        PlanVerb::Complete(args) => complete(cx, args).await,
    }
}

/// Sends an update and gives its answer.
pub(super) async fn update(cx: &mut Context, target: Target, name: &str, input: &Value) -> Result<Value, CliError> {
    let request = UpdateRequest {
        update_id: UpdateId::new(super::start::fresh_id("update")?)?,
        name: UpdateName::new(name)?,
        input: Payload::encode(input).map_err(|why| CliError::new(Code::Failed, why.to_string()))?,
        identity: Some(cx.identity.clone()),
        wait: UpdateWait::Completed,
    };
    match answer_of(cx, &target, request, None).await? {
        Some(UpdateOutcome::Completed(Err(why))) => Err(CliError::new(Code::Failed, why.to_string())),
        Some(UpdateOutcome::Completed(Ok(answer))) => Ok(answer.to_json()),
        Some(UpdateOutcome::Accepted) => Ok(Value::Null),
        None => Err(CliError::new(Code::StillOpen, format!("{} has not answered yet", target.workflow_id))
            .help("a worker must run to carry it on: `bosun worker run`")),
    }
}

async fn show_plan(cx: &mut Context, run: &RunOf) -> Result<Exit, CliError> {
    let target = run_of(cx, run).await?;
    let lines = match ask(cx, &target, "status_board", &Value::Null).await? {
        Value::Array(lines) => lines,
        // The board of a plan file's run is a text for people; its tasks are in its progress.
        _ => progress_lines(&ask(cx, &target, "progress", &Value::Null).await?),
    };
    let shown = tasks_of_plan(cx, &target, &lines).await;
    let review = ask(cx, &target, "plan_review", &Value::Null).await.unwrap_or_default();
    let plan = ask(cx, &target, "get_plan", &Value::Null).await.unwrap_or_default();
    // What is up for review is called by the version that is shown.
    let reviewing = review["status"] == "reviewing";
    let version = if reviewing { &review["version"] } else { &plan["version"] };
    cx.screen.object(
        "plan.show",
        json!({ "workflow_id": target.workflow_id, "version": version, "review": review, "tasks": shown }),
    );
    if !version.is_null() {
        let state = review["status"].as_str().map(|status| format!(" ({status})")).unwrap_or_default();
        cx.screen.line(format!("version {version}{state}"));
    }
    for one in &shown {
        let text = |key: &str| super::result::value_text(&one["task"][key]);
        let reasons = one["why_not_running"].as_array().cloned().unwrap_or_default();
        let reasons: Vec<String> = reasons.iter().map(super::result::value_text).collect();
        let objective = text("objective").lines().next().unwrap_or_default().to_owned();
        let why = if reasons.is_empty() { String::new() } else { format!("  [{}]", reasons.join("; ")) };
        cx.screen.line(format!("{:<18} {:<18} {objective}{why}", text("task_id"), text("status")));
        let id = text("task_id");
        let planned = review["current_plan"]["tasks"].as_array().into_iter().flatten();
        for (name, said) in planned.filter(|task| task["id"] == *id).flat_map(what_it_does) {
            cx.screen.line(format!("{:<18} {:<18} {name}: {said}", "", ""));
        }
        for stuck in one["stuck"].as_array().into_iter().flatten() {
            let [what, run, why, help] =
                ["what", "workflow_id", "why", "help"].map(|key| super::result::value_text(&stuck[key]));
            cx.screen.line(format!("{:<18} {what} of {run}: {why} (`{help}`)", ""));
        }
    }
    if reviewing {
        let id = run_word(target.workflow_id.as_str());
        cx.screen.next(&format!("bosun plan approve {id} --version {version}"));
    }
    Ok(Exit::Ok)
}

/// Each task with why it does not run, and what keeps it from going on.
async fn tasks_of_plan(cx: &Context, target: &Target, lines: &[Value]) -> Vec<Value> {
    let stuck = Lookout::new(&*cx.backend, now()).carried_on(cx.carried_on).below(target.clone()).await;
    let mut shown = Vec::new();
    for line in lines {
        let id = super::result::value_text(&line["task_id"]);
        let why = ask(cx, target, "why_not_running", &json!({ "task_id": id })).await.unwrap_or_default();
        // Activities of a task have its id in their names, and so have the runs that do it.
        let call = format!("/{id}/");
        let of_task = |one: &&Obstacle| one.what.contains(&call) || is_for_task(one.run.as_str(), &id);
        let stuck: Vec<Value> = stuck.iter().filter(of_task).map(|one| one.json(&cx.screen)).collect();
        shown.push(json!({ "task": line, "why_not_running": why["reasons"], "stuck": stuck }));
    }
    shown
}

/// The tasks of a plan file's run, in the words of a board.
fn progress_lines(progress: &Value) -> Vec<Value> {
    let line = |task: &Value| {
        let mut line = task.clone();
        line["objective"] = task["title"].clone();
        line
    };
    progress["tasks"].as_array().into_iter().flatten().map(line).collect()
}

/// What a run says of itself that nothing stops: a resume of it does nothing. Where nobody carries runs on, a pause may
/// still be on its way to it.
async fn going(cx: &Context, target: &Target, agent: bool, supervisor: bool) -> Option<String> {
    if !cx.carried_on || !(agent || supervisor) {
        return None;
    }
    let (query, key) = if agent { ("state", "phase") } else { ("progress", "control") };
    let said = ask(cx, target, query, &Value::Null).await.ok()?;
    let word = said[key].as_str()?;
    let goes = if agent { !matches!(word, "halted" | "paused") } else { word == "RUNNING" };
    goes.then(|| word.to_owned())
}

fn steered(target: &Target, before: Option<&str>, now: &Value) -> String {
    let id = &target.workflow_id;
    match before {
        Some(word) => format!("{id} is not paused: it is {word}"),
        None => format!("{id} is {}", super::result::value_text(now)),
    }
}

/// Tells whoever steers a run that a person has when it is paused beside that.
async fn also_paused(cx: &mut Context, target: &Target, control: &Value) {
    if *control != HANDED_TO_HUMAN {
        return;
    }
    let state = ask(cx, target, "control_state_v1", &Value::Null).await.unwrap_or_default();
    if state["is_paused"] == true {
        cx.screen.line("it is paused as well: it goes on when it is released and resumed".to_owned());
    }
}

/// `pause`, `resume`, `takeover` and `release` of a supervisor are its own signals; any other run is paused by the engine.
pub(super) async fn steer(cx: &mut Context, signal: &str, args: ControlArgs) -> Result<Exit, CliError> {
    let target = run_of(cx, &args.run).await?;
    // What cannot be looked at is left to the engine, which says why.
    let described = cx.backend.describe(target.clone()).await.ok();
    let is = |of: &str| described.as_ref().is_some_and(|found| found.info.workflow_type.as_str() == of);
    // The engine's pause, or its hold, may be on top of its own: one word lifts both.
    let held =
        described.as_ref().is_some_and(|found| found.info.status == WorkflowStatus::Paused || found.held.is_some());
    if signal == "resume_v1" && held && (is(SUPERVISOR) || is(AGENT)) {
        cx.backend.unpause(target.clone(), cx.because(args.reason.as_deref())).await?;
    }
    let before =
        if signal == "resume_v1" && !held { going(cx, &target, is(AGENT), is(SUPERVISOR)).await } else { None };
    let input = json!({ "reason": args.reason.clone().unwrap_or_default(), "requested_by": cx.identity });
    if is(AGENT) && matches!(signal, "pause_v1" | "resume_v1") {
        // Its own signals: a halt for people ends with a resume too, and both reach the agents below.
        send(cx, &target, signal, &input).await?;
        let state = ask(cx, &target, "state", &Value::Null).await.unwrap_or_default();
        cx.screen.object(
            "workflow.control",
            json!({ "workflow_id": target.workflow_id, "signal": signal, "control": state["phase"] }),
        );
        cx.screen.line(steered(&target, before.as_deref(), &state["phase"]));
        return Ok(Exit::Ok);
    }
    if !is(SUPERVISOR) {
        return match signal {
            "pause_v1" => control(cx, ControlVerb::Pause, args).await,
            "resume_v1" => control(cx, ControlVerb::Unpause, args).await,
            _ => Err(CliError::usage(format!(
                "{} is not a supervisor: only a supervisor can be taken over",
                target.workflow_id
            ))),
        };
    }
    send(cx, &target, signal, &input).await?;
    let state = ask(cx, &target, "progress", &Value::Null).await.unwrap_or_default();
    cx.screen.object(
        "workflow.control",
        json!({ "workflow_id": target.workflow_id, "signal": signal, "control": state["control"] }),
    );
    cx.screen.line(steered(&target, before.as_deref(), &state["control"]));
    also_paused(cx, &target, &state["control"]).await;
    if signal == "human_takeover_v1" {
        let context = ask(cx, &target, "takeover_context", &Value::Null).await?;
        cx.screen.block(&super::result::value_text(&context));
    }
    Ok(Exit::Ok)
}
