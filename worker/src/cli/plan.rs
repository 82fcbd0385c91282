//! `run PLAN.yaml`: a plan as a durable run that is found again by what it says.
//!
//! Invariant: the workflow id is made of the plan's name and content, so that the same command goes on with the same run
//! after a crash, and a changed plan is a new run. A finished plan is reported again, not run again, unless `--again`.

use std::path::Path;

use bosun_engine::*;
use futures_util::StreamExt;
use serde_json::{Map, Value};

use super::args::RunOf;
use super::context::{Context, PlanFile, PlanLoader, PlanRequest};
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::list::{run_word, shell_word};
use super::output::Format;
use super::progress::Watch;
use super::resolve::run_of;
use super::result::{ParkPolicy, print_result, value_text, wait_for};
use super::start::RunArgs;
use super::supervise::ask;
use crate::backend::CallError;
use crate::supervisor::run::SUPERVISOR;
use crate::supervisor::team::registry::DEPTH_VARIABLE;
use crate::supervisor::{TaskStatus, success};

/// Hexadecimal digits of the content in a workflow id.
const DIGEST_DIGITS: usize = 12;
/// What people call an objective who do not know the word.
const LIKE_OBJECTIVE: [&str; 10] =
    ["input", "task", "prompt", "query", "question", "message", "request", "text", "topic", "description"];
/// Open runs of an earlier content of a file that are told at most.
const OTHERS_MAX: usize = 3;

/// Name and content, short enough to read: `plan-audit-3f9a1c20b7d4`.
pub(super) fn workflow_id(plan: &PlanFile) -> Result<WorkflowId, CliError> {
    let keep = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' };
    let name: String = plan.name.chars().map(keep).take(60).collect();
    let digest = hex(&plan.input.digest()[..DIGEST_DIGITS / 2]);
    Ok(WorkflowId::new(format!("plan-{name}-{digest}"))?)
}

/// Reads a plan, and says what is wrong with it.
pub(super) fn load(plans: Option<PlanLoader>, request: &PlanRequest) -> Result<PlanFile, CliError> {
    let load =
        plans.ok_or_else(|| CliError::new(Code::BadPlan, "this program has no supervisors to run plans with"))?;
    super::input::read_file(&request.path)?;
    load(request).map_err(|why| {
        let error = CliError::new(Code::BadPlan, why);
        // A plan file takes nothing from outside.
        let text = error.to_string();
        let lacks_objective = text.starts_with("Invalid supervisor spec")
            && text.contains("'. objective: required key `objective` is missing");
        let help = format!("say it here: `bosun run {} objective=\"...\"`", request.path.display());
        if lacks_objective { error.help(help) } else { error }
    })
}

/// What the words beside a file say that it is about: `objective=...`, or `goal=...`, as an input may call it (FSS-02).
/// Anything else is answered with the command that was probably meant.
fn objective(path: &Path, words: &[String]) -> Result<Option<String>, CliError> {
    let file = shell_word(&path.display().to_string());
    let about = |text: &str| format!("`bosun run {file} {}`", shell_word(&format!("objective={text}")));
    let said = |word: &String| match word.split_once('=') {
        Some(("objective" | "goal", text)) => Ok(text.to_owned()),
        None => Err(format!("what it is about is `objective=...`: {}", about(word))),
        Some((key, text)) if LIKE_OBJECTIVE.contains(&key) => {
            Err(format!("what it is about is `objective=...`: {}", about(text)))
        }
        Some(_) => Err(format!(
            "what it is about is `objective=...`; --override sets a key of a supervisor's spec: \
             `bosun run {file} --override {}`",
            shell_word(word)
        )),
    };
    let mut objectives = Vec::new();
    for word in words {
        objectives.push(said(word).map_err(|help| {
            let why =
                format!("{word}: a plan file takes no input but `objective=...`: what it needs stands in the file");
            CliError::usage(why).help(help)
        })?);
    }
    match objectives.len() {
        0 | 1 => Ok(objectives.pop()),
        _ => Err(CliError::usage(format!("{}: the objective is given twice", words.join(" "))).help(format!(
            "say `objective=...` once; a text with spaces stands in quotes: `bosun run {file} objective=\"...\"`"
        ))),
    }
}

/// What is to be run, with what the command line says of it: `objective=...`, and keys that are set.
pub(super) fn request(path: &Path, overridden: &[String], pairs: &[String]) -> Result<PlanRequest, CliError> {
    let mut overrides = Value::Object(Map::new());
    if let Some(objective) = objective(path, pairs)? {
        overrides["objective"] = objective.into();
    }
    for pair in overridden {
        let Some((key, text)) = pair.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(CliError::usage(format!("--override {pair}: expected KEY=VALUE, such as planning.mode=todos")));
        };
        let value = crate::supervisor::parse_yaml(text).unwrap_or_else(|_| text.into());
        let mut place = &mut overrides;
        for part in key.split('.') {
            let Value::Object(map) = place else {
                return Err(CliError::usage(format!(
                    "--override {key}: another --override sets a key above it already"
                )));
            };
            place = map.entry(part).or_insert_with(|| Value::Object(Map::new()));
        }
        *place = value;
    }
    let depth = match std::env::var(DEPTH_VARIABLE) {
        Ok(text) => text
            .trim()
            .parse()
            .map_err(|_| CliError::usage(format!("{DEPTH_VARIABLE} is `{text}`: expected a whole number")))?,
        Err(_) => 0,
    };
    Ok(PlanRequest { path: path.to_owned(), overrides, depth })
}

/// Takes over what an earlier run left, and what the user says beside it: that is said next.
async fn resumed(cx: &mut Context, request: &mut PlanRequest, args: &RunArgs) -> Result<(), CliError> {
    let Some(run) = &args.resume else { return Ok(()) };
    let target = run_of(cx, &RunOf { id: Some(run.clone()), ..RunOf::default() }).await?;
    let mut point = ask(cx, &target, "resume_point", &Value::Null).await?;
    if point.is_null() {
        let why = format!("{} is a plan or a list of steps: nothing can go on from its end", target.workflow_id);
        return Err(CliError::usage(why).help("`bosun fork` begins a run anew from one of its events"));
    }
    for (key, task) in [("from", &args.from_task), ("after", &args.after_task)] {
        if let Some(task) = task {
            point[key] = task.as_str().into();
        }
    }
    said_next(&mut request.overrides, point);
    Ok(())
}

/// The keys of `resume` that were set win over the point. An objective is what the user says now where a conversation goes on;
/// of a crew it stays what the run is for.
fn said_next(overrides: &mut Value, mut point: Value) {
    if let Some(own) = overrides.get("resume") {
        crate::supervisor::spec::merge(&mut point, own);
    }
    let is_crew = point.get("outputs").is_some();
    if let Some(objective) = overrides.get("objective").cloned()
        && let Value::Object(point) = &mut point
        && !is_crew
    {
        point.entry("message").or_insert(objective);
    }
    overrides["resume"] = point;
}

// long: one step of a run after the other.
pub(super) async fn run(cx: &mut Context, mut request: PlanRequest, args: &RunArgs) -> Result<Exit, CliError> {
    resumed(cx, &mut request, args).await?;
    let plan = load(cx.plans, &request)?;
    plan.notes.iter().for_each(|note| cx.screen.note(note));
    if let Some(refused) = &plan.refused {
        cx.screen.line(refused.to_string());
        return Ok(Exit::Error);
    }
    let path = request.path.display().to_string();
    let options = &args.execute.start.options;
    let id = match &options.workflow_id {
        Some(id) => WorkflowId::new(id)?,
        None => workflow_id(&plan)?,
    };
    let target = Target { namespace: cx.namespace.clone(), ..Target::workflow(id.clone()) };
    let parking = match (plan.workflow_type.as_str() == SUPERVISOR, args.no_wait) {
        (false, _) => ParkPolicy::Stay,
        (true, false) => ParkPolicy::AsTheSpecSays,
        (true, true) => ParkPolicy::Leave,
    };
    let wanted = plan.input.clone();
    let mut request = StartWorkflow::new(plan.workflow_type, id.clone()).input(plan.input);
    options.fill(cx, &mut request)?;
    if options.id_conflict_policy.is_none() {
        request.id_conflict_policy = IdConflictPolicy::UseExisting;
    }
    // Looked at where the start is decided: a run that completes this moment is not done twice.
    if !args.again && options.id_reuse_policy.is_none() {
        request.id_reuse_policy = IdReusePolicy::AllowDuplicateFailedOnly;
    }
    let started = match cx.backend.start(request).await {
        Err(CallError::Rejected(Rejection::IdReused { .. })) if !args.again && options.id_reuse_policy.is_none() => {
            cx.screen.note(&format!("{id} has completed already; --again runs it again"));
            return match completed(cx, &target).await? {
                Some(result) => {
                    let of_it = Target { run_id: Some(result.run_id), ..target.clone() };
                    say_if_other(cx, &of_it, &wanted).await;
                    report(cx, &result).await
                }
                None => Err(CliError::new(Code::NotFound, format!("{id} has completed and was deleted since"))),
            };
        }
        started => started?,
    };
    let how = if started.newly_started { "started" } else { "going on with" };
    cx.screen.note(&format!("{how} {} (run {})", started.workflow_id, started.run_id));
    let target = Target { run_id: Some(started.run_id), ..target };
    match started.newly_started {
        false => say_if_other(cx, &target, &wanted).await,
        true if options.workflow_id.is_none() => say_what_else_is_open(cx, &id, &path).await,
        true => {}
    }
    let result = wait_for(cx, target, args.execute.timeout, Watch::ProgressQuery, parking).await?;
    report(cx, &result).await
}

/// Says that the run of this id is not a run of the file that was named. What goes on as new begins with what it carries; the
/// first run of the chain says what it was begun with, and where that is gone, nothing is said.
async fn say_if_other(cx: &mut Context, target: &Target, wanted: &Payload) {
    let mut begun = begun_with(cx, target).await;
    if let Some(first) =
        begun.as_ref().filter(|begun| Some(begun.first_run) != target.run_id).map(|begun| begun.first_run)
    {
        begun = begun_with(cx, &Target { run_id: Some(first), ..target.clone() }).await;
    }
    if begun.is_some_and(|begun| begun.input.to_json() != wanted.to_json()) {
        let id = &target.workflow_id;
        cx.screen.note(&format!(
            "warning: {id} runs another spec than this file: this is the run as it was begun; another --workflow-id \
             begins a run of the file"
        ));
    }
}

async fn begun_with(cx: &Context, target: &Target) -> Option<Box<WorkflowExecutionStarted>> {
    match cx.backend.events(target.clone(), EventId(1), false).next().await {
        Some(Ok(Event { kind: EventKind::WorkflowExecutionStarted(begun), .. })) => Some(begun),
        _ => None,
    }
}

/// Says which runs of the same file are open: a file that is edited while its run is open begins another one, and both go on.
async fn say_what_else_is_open(cx: &mut Context, id: &WorkflowId, path: &str) {
    let Some((name, _)) = id.as_str().rsplit_once('-') else { return };
    let query = format!("WorkflowId STARTS_WITH '{name}-' AND ExecutionStatus IN ('Running', 'Paused')");
    let Ok(open) = cx.backend.list(ListRequest { query, limit: OTHERS_MAX }).await else { return };
    let digest = |other: &str| {
        other.strip_prefix(name).is_some_and(|rest| rest.len() == DIGEST_DIGITS + 1 && !rest[1..].contains('-'))
    };
    for other in open.iter().map(|run| &run.workflow_id).filter(|other| *other != id && digest(other.as_str())) {
        let (go_on, end) = (format!("bosun run {path} --workflow-id {other}"), format!("bosun cancel {other}"));
        let (go_on, end) = (cx.screen.reach.complete(&go_on), cx.screen.reach.complete(&end));
        cx.screen.note(&format!(
            "warning: {other} is open beside it: it was begun when the file said something else. `{go_on}` follows that \
             run, `{end}` ends it"
        ));
    }
}

/// The result of the newest run, if it has completed.
async fn completed(cx: &Context, target: &Target) -> Result<Option<RunResult>, CliError> {
    match cx.backend.describe(target.clone()).await {
        Ok(Description { info, result: Some(outcome @ CloseOutcome::Completed(_)), .. }) => {
            Ok(Some(RunResult { workflow_id: info.workflow_id, run_id: info.run_id, outcome }))
        }
        Ok(_) | Err(CallError::Rejected(Rejection::NotFound { .. })) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

/// The plan's own report on stdout, whether the run completed or failed. The exit code is the run's.
async fn report(cx: &mut Context, result: &RunResult) -> Result<Exit, CliError> {
    let output = output_of(&result.outcome);
    let mut told = false;
    match output.as_ref().and_then(|output| output.get("report")).and_then(Value::as_str) {
        Some(text) if cx.screen.format == Format::Text => cx.screen.block(value_text(&text.into()).trim_end()),
        _ => {
            print_result(cx, result).await?;
            // The text of a supervisor's result says it already.
            told = cx.screen.format == Format::Text;
        }
    }
    let status = output.as_ref().and_then(|output| output.get("status")).and_then(Value::as_str);
    if status == Some("partial") && !told {
        cx.screen.note(&part(output.as_ref().unwrap_or(&Value::Null)));
    }
    match Exit::of_outcome(&result.outcome) {
        Exit::WorkflowFailed => {
            let id = run_word(result.workflow_id.as_str());
            Err(CliError::new(Code::PlanFailed, format!("the plan ended as {}", status.unwrap_or("failed")))
                .help(format!("`bosun show {id}` shows the history; the same command runs the plan again")))
        }
        exit => Ok(exit),
    }
}

/// What of a run that ended as partial is done, and what is not: as its tasks stand, and nothing else.
fn part(output: &Value) -> String {
    let status = |task: &Value| serde_json::from_value::<TaskStatus>(task["status"].clone()).ok();
    let id = |task: &Value| value_text(&task["task_id"]);
    let tasks = output["tasks"].as_array().into_iter().flatten();
    let tasks: Vec<(String, TaskStatus)> = tasks.filter_map(|task| Some((id(task), status(task)?))).collect();
    let excused = if output["success"] == Value::Bool(true) { ", as the spec allows" } else { "" };
    format!("partial{excused}: {}", success::summary(&tasks))
}

/// A plan that failed carries its report in the details of its failure.
fn output_of(outcome: &CloseOutcome) -> Option<Value> {
    match outcome {
        CloseOutcome::Completed(payload) => Some(payload.to_json()),
        CloseOutcome::Failed(failure) => match &failure.root().kind {
            FailureKind::Application { details: Some(details), .. } => Some(details.to_json()),
            _ => None,
        },
        CloseOutcome::Canceled(details) => details.as_ref().map(Payload::to_json),
        CloseOutcome::TimedOut(_) | CloseOutcome::Terminated { .. } | CloseOutcome::ContinuedAsNew { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// SWM-06, AGC-14: what is said beside `--resume` is said next; what an earlier run left stays.
    #[test]
    fn what_is_said_beside_a_run_to_go_on_from_is_said_next() {
        let next = |mut overrides: Value, point: Value| {
            said_next(&mut overrides, point);
            overrides
        };
        let talk = || json!({ "messages": [{ "role": "user", "content": "one" }], "agent": "sales" });
        let told = json!({ "messages": [{ "role": "user", "content": "one" }], "agent": "sales", "message": "two" });
        assert_eq!(next(json!({}), talk())["resume"], talk());
        assert_eq!(next(json!({ "objective": "two" }), talk()), json!({ "objective": "two", "resume": told }));
        assert_eq!(next(json!({ "resume": { "message": "two" } }), talk())["resume"], told);
        let both = json!({ "objective": "one", "resume": { "message": "two", "agent": "desk" } });
        assert_eq!(next(both, talk())["resume"]["message"], "two");
        let crew = json!({ "outputs": [], "lineage": ["run"] });
        assert_eq!(next(json!({ "objective": "two" }), crew.clone())["resume"], crew);
    }

    #[test]
    fn the_workflow_id_of_a_plan_is_made_of_name_and_content() {
        let plan = |name: &str, input: &str| PlanFile {
            name: name.into(),
            workflow_type: "plan".into(),
            input: Payload::raw_json(input.to_owned()),
            notes: Vec::new(),
            refused: None,
        };
        let id = |name, input| workflow_id(&plan(name, input)).unwrap().to_string();
        assert_eq!(id("audit", "{}"), id("audit", "{}"));
        assert_ne!(id("audit", "{}"), id("audit", "[]"));
        assert!(id("my plan/../x", "{}").starts_with("plan-my-plan----x-"));
        assert_eq!(id("audit", "{}").len(), "plan-audit-".len() + 12);
    }
}
