//! What changes a schedule: `create`, `update`, `pause`, `unpause`, `trigger`, `backfill`, `delete`.
//!
//! Invariant: a plan's or supervisor's file is read and checked when it is named, never when it is started; a change goes by
//! the version that was looked at, so that nobody's change is lost.

use std::time::Duration;

use bosun_engine::*;
use clap::Args;
use serde_json::{Value, json};

use super::when::{HowArgs, OverlapChoice, WhenArgs, all_refused, moment};
use super::{NoteArgs, ScheduleId, TriggerArgs};
use crate::backend::CallError;
use crate::cli::args::InputArg;
use crate::cli::context::{Context, PlanLoader};
use crate::cli::error::CliError;
use crate::cli::exit::Exit;
use crate::cli::explain::Code;
use crate::cli::input::payload;
use crate::cli::list::shell_word;
use crate::cli::message::answer_of;
use crate::cli::plan;
use crate::cli::start::{fresh_id, plan_file};
use crate::cli::supervise::ask;
use crate::priority::{PriorityArgs, PrioritySaid};
use crate::schedule::messages::Change;
use crate::schedule::run::ScheduleInput;
use crate::schedule::shown::StartBecame;
use crate::schedule::spec::{ScheduleAction, SchedulePolicies, ScheduleSpec, ScheduleState};
use crate::schedule::{Backfill, ID_PREFIX, Overlap, SCHEDULE, Schedule};

/// Without a worker nobody else carries a schedule on: what it does at once is done within this time.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// What is started.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "What")]
pub struct WhatArgs {
    #[command(flatten)]
    pub input: InputArg,
    /// Set a key of a supervisor's spec, by its path, as `bosun run` does.
    #[arg(long = "override", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// The prefix of the run ids, before the time [default: the id of the schedule].
    #[arg(short, long, value_name = "ID")]
    pub workflow_id: Option<String>,
    /// The task queue of the runs and their activities.
    #[arg(short = 'q', long, visible_alias = "queue", value_name = "QUEUE")]
    pub task_queue: Option<String>,
    /// The time limit of an execution: all its runs together.
    #[arg(long, value_name = "TIME", value_parser = crate::schedule::text::parse_duration)]
    pub execution_timeout: Option<Duration>,
    /// The time limit of a single run.
    #[arg(long, value_name = "TIME", value_parser = crate::schedule::text::parse_duration)]
    pub run_timeout: Option<Duration>,
    /// How many attempts a workflow that fails has in all.
    #[arg(long, value_name = "N")]
    pub maximum_attempts: Option<u32>,
    /// One line that says what the runs are for.
    #[arg(long, value_name = "TEXT")]
    pub summary: Option<String>,
    #[command(flatten)]
    pub priority: PriorityArgs,
}

#[derive(Debug, Args)]
pub struct CreateScheduleArgs {
    /// The id of the schedule.
    #[arg(value_name = "ID")]
    pub id: String,
    /// A workflow type, or the file of a plan or supervisor (.yaml), then key=value pairs as input.
    #[arg(value_name = "WHAT key=value", required = true)]
    pub words: Vec<String>,
    /// Create the schedule paused.
    #[arg(long)]
    pub paused: bool,
    /// A note to show with the schedule.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub note: String,
    /// Check everything and show the next times; write nothing.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub when: WhenArgs,
    #[command(flatten)]
    pub how: HowArgs,
    #[command(flatten)]
    pub what: WhatArgs,
}

#[derive(Debug, Args)]
pub struct UpdateScheduleArgs {
    /// The id of the schedule.
    #[arg(value_name = "ID")]
    pub id: String,
    /// Another workflow type or file, then key=value pairs as input.
    #[arg(value_name = "WHAT key=value")]
    pub words: Vec<String>,
    /// Another note to show with the schedule; an empty one takes it away.
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    #[command(flatten)]
    pub when: WhenArgs,
    #[command(flatten)]
    pub how: HowArgs,
    #[command(flatten)]
    pub what: WhatArgs,
}

#[derive(Debug, Args)]
pub struct BackfillArgs {
    #[command(flatten)]
    pub schedule: ScheduleId,
    /// The first time, such as 2026-11-01T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub start: String,
    /// The last time.
    #[arg(long, value_name = "TIME")]
    pub end: String,
    /// What to do when runs of it are open [default: the schedule's].
    #[arg(long, value_enum, value_name = "POLICY")]
    pub overlap: Option<OverlapChoice>,
}

impl WhatArgs {
    /// Puts in what was said. Without words the workflow stays as it is.
    fn apply(&self, action: &mut ScheduleAction, words: &[String], plans: Option<PlanLoader>) -> Result<(), CliError> {
        match words.split_first() {
            Some((what, pairs)) => (action.workflow_type, action.input) = self.started(what, pairs, plans)?,
            None if !self.overrides.is_empty() => {
                return Err(CliError::usage("--override needs the file of the supervisor as well: ID SPEC.yaml"));
            }
            None if self.input.input.is_some() => action.input = payload(self.input.input.as_deref(), &[])?.to_json(),
            None => {}
        }
        let own = |place: &mut Option<String>, said: &Option<String>| {
            if let Some(said) = said {
                *place = Some(said.clone());
            }
        };
        if let Some(id) = &self.workflow_id {
            action.workflow_id.clone_from(id);
        }
        own(&mut action.task_queue, &self.task_queue);
        own(&mut action.summary, &self.summary);
        action.execution_timeout = self.execution_timeout.or(action.execution_timeout);
        action.run_timeout = self.run_timeout.or(action.run_timeout);
        action.maximum_attempts = self.maximum_attempts.or(action.maximum_attempts);
        if let Some(priority) = self.priority.said().map_err(CliError::usage)? {
            action.priority = Some(PrioritySaid(priority));
        }
        Ok(())
    }

    fn started(&self, what: &str, pairs: &[String], plans: Option<PlanLoader>) -> Result<(String, Value), CliError> {
        let Some(path) = plan_file(what) else {
            if !self.overrides.is_empty() {
                return Err(CliError::usage("--override works only with the spec of a supervisor"));
            }
            let input = payload(self.input.input.as_deref(), pairs)?;
            return Ok((what.to_owned(), input.to_json()));
        };
        if self.input.input.is_some() {
            return Err(CliError::usage("a plan file takes no input: write what it needs into the file"));
        }
        let read = plan::load(plans, &plan::request(path, &self.overrides, pairs)?)?;
        if let Some(refused) = read.refused {
            return Err(CliError::new(Code::BadPlan, refused.to_string()));
        }
        Ok((read.workflow_type.to_string(), read.input.to_json()))
    }
}

/// The id without the prefix that its workflow id has.
fn plain(id: &str) -> &str {
    id.strip_prefix(ID_PREFIX).unwrap_or(id)
}

fn target(cx: &Context, id: &str) -> Result<Target, CliError> {
    let workflow_id = WorkflowId::new(format!("{ID_PREFIX}{}", plain(id)))?;
    Ok(Target { namespace: cx.namespace.clone(), ..Target::workflow(workflow_id) })
}

/// The run of a schedule that there is.
pub(super) async fn existing(cx: &Context, id: &str) -> Result<(Target, WorkflowStatus), CliError> {
    let target = target(cx, id)?;
    let none = |what: &str| {
        CliError::new(Code::NotFound, format!("there is no schedule {}{what}", plain(id)))
            .help("`bosun schedule list` shows all")
    };
    match cx.backend.describe(target.clone()).await {
        Ok(found) if found.info.workflow_type.as_str() != SCHEDULE => Err(none("")),
        Ok(found) if !found.info.status.is_open() => Err(none(" any more: it was deleted")),
        Ok(found) => Ok((target, found.info.status)),
        Err(CallError::Rejected(Rejection::NotFound { .. })) => Err(none("")),
        Err(why) => Err(why.into()),
    }
}

/// What a command line wants created, checked.
pub(super) fn new_schedule(plans: Option<PlanLoader>, args: &CreateScheduleArgs) -> Result<Schedule, CliError> {
    let mut action = ScheduleAction {
        workflow_type: String::new(),
        workflow_id: plain(&args.id).to_owned(),
        input: Value::Null,
        task_queue: None,
        execution_timeout: None,
        run_timeout: None,
        maximum_attempts: None,
        summary: None,
        priority: None,
    };
    args.what.apply(&mut action, &args.words, plans)?;
    let state = ScheduleState { paused: args.paused, note: args.note.clone(), remaining_actions: None };
    let (spec, policies) = (ScheduleSpec::default(), SchedulePolicies::default());
    let mut schedule = Schedule { spec, action, policies, state };
    args.when.apply(&mut schedule.spec)?;
    args.how.apply(&mut schedule.policies, &mut schedule.state)?;
    all_refused(&schedule.problems_of_new(plain(&args.id)))?;
    Ok(schedule)
}

pub(super) async fn create(cx: &mut Context, args: CreateScheduleArgs) -> Result<Exit, CliError> {
    let schedule = new_schedule(cx.plans, &args)?;
    let id = plain(&args.id).to_owned();
    let request = ScheduleInput::start(schedule, target(cx, &id)?);
    let mut request = request.map_err(|why| CliError::new(Code::Failed, why.to_string()))?;
    request.identity = Some(cx.identity.clone());
    // A file says more than the workflow that carries it out.
    request.summary = Some(format!("starts {}", args.words[0]));
    match cx.backend.start(request).await {
        Err(CallError::Rejected(Rejection::AlreadyOpen { .. })) => {
            return Err(CliError::new(Code::AlreadyOpen, format!("there is a schedule {id} already"))
                .help(format!("`bosun schedule update {}` changes it, `delete` removes it", shell_word(&id))));
        }
        started => started?,
    };
    let target = target(cx, &id)?;
    let shown = ask(cx, &target, "describe", &Value::Null).await?;
    cx.screen.object("schedule.create", shown.clone());
    cx.screen.line(format!("created the schedule {id}"));
    super::show::times(cx, &shown["next_times"], shown["schedule"]["spec"]["time_zone"].as_str());
    cx.say_if_nobody_works();
    cx.screen.next(&format!("bosun schedule describe {}", shell_word(&id)));
    Ok(Exit::Ok)
}

/// Sends an update, and gives its answer.
async fn send(cx: &mut Context, target: Target, name: &str, input: &Value) -> Result<Value, CliError> {
    let request = UpdateRequest {
        update_id: UpdateId::new(fresh_id("update")?)?,
        name: UpdateName::new(name)?,
        input: Payload::encode(input).map_err(|why| CliError::new(Code::Failed, why.to_string()))?,
        identity: Some(cx.identity.clone()),
        wait: UpdateWait::Completed,
    };
    let answer = answer_of(cx, &target, request, Some(ANSWER_MAX)).await?.ok_or_else(|| {
        CliError::new(
            Code::StillOpen,
            "the schedule has not answered yet; it has the request and carries it out when it can",
        )
    })?;
    match answer {
        UpdateOutcome::Completed(Err(why)) => Err(CliError::new(Code::UpdateRefused, why.to_string())),
        UpdateOutcome::Completed(Ok(answer)) => Ok(answer.to_json()),
        UpdateOutcome::Accepted => Ok(Value::Null),
    }
}

/// What a verb says when it is done.
fn say(cx: &mut Context, verb: &str, id: &str, answer: Value, done: &str) -> Exit {
    let mut object = json!({ "schedule_id": plain(id) });
    for (key, value) in answer.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    cx.screen.object(&format!("schedule.{verb}"), object);
    cx.screen.line(done.to_owned());
    if verb == "delete" {
        cx.screen.next("bosun schedule list");
    } else {
        cx.screen.next(&format!("bosun schedule describe {}", shell_word(plain(id))));
    }
    Exit::Ok
}

pub(super) async fn update(cx: &mut Context, args: UpdateScheduleArgs) -> Result<Exit, CliError> {
    let (target, _) = existing(cx, &args.id).await?;
    let shown = ask(cx, &target, "describe", &Value::Null).await?;
    let schedule = serde_json::from_value(shown["schedule"].clone());
    let mut schedule: Schedule =
        schedule.map_err(|why| CliError::new(Code::Failed, "the schedule's answer cannot be read").cause(why))?;
    let before = schedule.clone();
    args.what.apply(&mut schedule.action, &args.words, cx.plans)?;
    args.when.apply(&mut schedule.spec)?;
    args.how.apply(&mut schedule.policies, &mut schedule.state)?;
    if let Some(note) = &args.note {
        schedule.state.note.clone_from(note);
    }
    if schedule == before {
        return Err(CliError::usage("this changes nothing: no option is given")
            .help("`bosun schedule update --help` shows what can be"));
    }
    all_refused(&schedule.problems(plain(&args.id)))?;
    let change = json!(Change { schedule, version: shown["version"].as_u64() });
    let answer = send(cx, target, "update", &change).await?;
    Ok(say(cx, "update", &args.id, answer, &format!("changed the schedule {}", plain(&args.id))))
}

pub(super) async fn note(cx: &mut Context, verb: &str, args: NoteArgs) -> Result<Exit, CliError> {
    let id = &args.schedule.id;
    let (target, _) = existing(cx, id).await?;
    let answer = send(cx, target, verb, &json!({ "note": args.note })).await?;
    let done = if verb == "pause" { "paused" } else { "going on with" };
    Ok(say(cx, verb, id, answer, &format!("{done} the schedule {}", plain(id))))
}

pub(super) async fn trigger(cx: &mut Context, args: TriggerArgs) -> Result<Exit, CliError> {
    let id = &args.schedule.id;
    let (target, _) = existing(cx, id).await?;
    let answer = send(cx, target.clone(), "trigger", &json!({ "overlap": args.overlap.map(Overlap::from) })).await?;
    let nominal = answer["nominal"].as_str().unwrap_or_default().to_owned();
    let shown = ask(cx, &target, "describe", &Value::Null).await?;
    let became = StartBecame::of(&shown, &nominal).unwrap_or(StartBecame::Started);
    let mut answer = answer;
    answer["became"] = became.name().into();
    let exit = say(cx, "trigger", id, answer, &became.text(plain(id), &nominal));
    if became == StartBecame::LeftOut {
        cx.screen.note("`--overlap buffer-one` waits for that run, `--overlap allow-all` starts beside it");
    }
    Ok(exit)
}

pub(super) async fn backfill(cx: &mut Context, args: BackfillArgs) -> Result<Exit, CliError> {
    let id = &args.schedule.id;
    let range = Backfill {
        start_time: moment("--start", &args.start)?,
        end_time: moment("--end", &args.end)?,
        overlap: args.overlap.map(Overlap::from),
    };
    if range.end_time < range.start_time {
        return Err(CliError::usage("--end is before --start"));
    }
    let (target, _) = existing(cx, id).await?;
    let answer = send(cx, target, "backfill", &json!(range)).await?;
    Ok(say(cx, "backfill", id, answer, &format!("the schedule {} fills the times in", plain(id))))
}

pub(super) async fn delete(cx: &mut Context, id: &str) -> Result<Exit, CliError> {
    let (target, _) = existing(cx, id).await?;
    cx.confirm(&format!("delete the schedule {}", plain(id)))?;
    let answer = send(cx, target, "delete", &Value::Null).await?;
    Ok(say(cx, "delete", id, answer, &format!("deleted the schedule {}; what it started goes on", plain(id))))
}
