//! `start`, `execute`, `run` and `signal-with-start`: new workflow executions.
//!
//! Invariant: with a workflow id, a `run` that was killed goes on when it is run again: an open run of that id is used
//! instead of a second one. What the run does is not known here; plan files are read by `plan`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bosun_engine::*;
use clap::{Args, ValueEnum};
use serde_json::json;

use super::args::InputArg;
use super::context::{Context, PlanLoader};
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::input::{object, payload, payload_of};
use super::list::{run_word, shell_word};
use super::progress::Watch;
use super::result::{ParkPolicy, print_result, wait_for};
use super::start_once::{signal_with_start_once, start_once};
use super::time_format::parse_duration;
use crate::filter_text::typed_text;
use crate::priority::PriorityArgs;
use crate::startable::faults_of_input;
use crate::supervisor::run::SUPERVISOR;

/// What every start takes beside type and input.
#[derive(Debug, Clone, Default, Args)]
pub struct StartOptions {
    /// The workflow id [default: TYPE-xxxxxxxx].
    #[arg(short, long, value_name = "ID")]
    pub workflow_id: Option<String>,
    /// The task queue of the run and its activities.
    #[arg(short = 'q', long, visible_alias = "queue", value_name = "QUEUE", default_value = DEFAULT_TASK_QUEUE)]
    pub task_queue: String,
    /// The time limit of the execution: all its runs together.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub execution_timeout: Option<Duration>,
    /// The time limit of a single run.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub run_timeout: Option<Duration>,
    /// How long to wait before the run begins; its time limits count from then.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub start_delay: Option<Duration>,
    /// How many attempts a workflow that fails has in all.
    #[arg(long, value_name = "N")]
    pub maximum_attempts: Option<u32>,
    /// What to do when a closed run of the id exists [default: allow-duplicate].
    #[arg(long, value_enum, value_name = "POLICY")]
    pub id_reuse_policy: Option<ReusePolicy>,
    /// What to do when an open run of the id exists [default: fail; of `run`: use-existing].
    #[arg(long, value_enum, value_name = "POLICY")]
    pub id_conflict_policy: Option<ConflictPolicy>,
    /// Make the start idempotent: a second start with this id starts nothing.
    #[arg(long, value_name = "ID")]
    pub request_id: Option<String>,
    /// A note to show with the run.
    #[arg(long, value_name = "KEY=VALUE")]
    pub memo: Vec<String>,
    /// An attribute by which `list --query` finds the run.
    #[arg(long, value_name = "KEY=VALUE")]
    pub search_attribute: Vec<String>,
    /// One line that says what the run is for.
    #[arg(long, value_name = "TEXT")]
    pub summary: Option<String>,
    /// More about it, in several lines.
    #[arg(long, value_name = "TEXT")]
    pub details: Option<String>,
    #[command(flatten)]
    pub priority: PriorityArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReusePolicy {
    AllowDuplicate,
    AllowDuplicateFailedOnly,
    RejectDuplicate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConflictPolicy {
    Fail,
    UseExisting,
    TerminateExisting,
}

#[derive(Debug, Args)]
pub struct StartArgs {
    /// The workflow type (left out with --type), then key=value pairs as input.
    #[arg(value_name = "TYPE key=value", required_unless_present = "workflow_type")]
    pub words: Vec<String>,
    /// The workflow type.
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub workflow_type: Option<String>,
    #[command(flatten)]
    pub input: InputArg,
    #[command(flatten)]
    pub options: StartOptions,
}

#[derive(Debug, Args)]
pub struct ExecuteArgs {
    #[command(flatten)]
    pub start: StartArgs,
    #[command(flatten)]
    pub slots: super::worker::SlotArgs,
    /// How long to wait; the run goes on afterwards.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub execute: ExecuteArgs,
    /// Exit with code 15 when a supervisor waits only for people; the same command continues later.
    #[arg(long)]
    pub no_wait: bool,
    /// Start a new run of a plan that has completed.
    #[arg(long)]
    pub again: bool,
    /// Set a key of a supervisor's spec, by its path; it wins over the file: `--override planning.mode=todos`.
    #[arg(long = "override", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// Continue from the end of this run: its conversation, or the outputs of its crew.
    #[arg(long, value_name = "RUN")]
    pub resume: Option<String>,
    /// With --resume of a crew: do this task and the later ones again.
    #[arg(long, value_name = "TASK", requires = "resume", conflicts_with = "after_task")]
    pub from_task: Option<String>,
    /// With --resume of a crew: continue after this task.
    #[arg(long, value_name = "TASK", requires = "resume")]
    pub after_task: Option<String>,
}

#[derive(Debug, Args)]
pub struct SignalWithStartArgs {
    #[command(flatten)]
    pub start: StartArgs,
    /// The name of the signal.
    #[arg(long, value_name = "NAME")]
    pub signal_name: String,
    /// The input of the signal: JSON, `@file`, or `-`.
    #[arg(long, value_name = "JSON")]
    pub signal_input: Option<String>,
}

/// `prefix-` and eight random digits.
pub(super) fn fresh_id(prefix: &str) -> Result<String, CliError> {
    let random = crate::api::token::random_hex(4);
    let random = random.map_err(|why| CliError::new(Code::Failed, "no random numbers for an id").cause(why))?;
    Ok(format!("{prefix}-{random}"))
}

impl StartArgs {
    fn type_and_pairs(&self) -> Result<(&str, &[String]), CliError> {
        match (&self.workflow_type, self.words.split_first()) {
            (Some(name), _) => Ok((name, &self.words)),
            (None, Some((name, pairs))) => Ok((name, pairs)),
            (None, None) => Err(CliError::usage("no workflow type given")),
        }
    }

    pub fn request(&self, cx: &Context) -> Result<StartWorkflow, CliError> {
        let (name, pairs) = self.type_and_pairs()?;
        let workflow_type = WorkflowType::new(name)?;
        let id = match &self.options.workflow_id {
            Some(id) => id.clone(),
            None => fresh_id(name)?,
        };
        let mut request = StartWorkflow::new(workflow_type, WorkflowId::new(id)?);
        request.input = payload(self.input.input.as_deref(), pairs)?;
        if name == SUPERVISOR {
            takes_spec(&request.input)?;
        }
        self.options.fill(cx, &mut request)?;
        Ok(request)
    }
}

/// A supervisor without a spec that can be run would be begun only to fail.
fn takes_spec(input: &Payload) -> Result<(), CliError> {
    let faults = faults_of_input(&input.to_json());
    let told: Vec<String> = faults.iter().map(|one| format!("input.{}: {}", one.path, one.problem)).collect();
    let [first, rest @ ..] = told.as_slice() else { return Ok(()) };
    let error = CliError::new(Code::BadInput, first.clone());
    Err(if rest.is_empty() { error } else { error.cause(format!("and {}", rest.join("; "))) })
}

impl StartOptions {
    pub fn fill(&self, cx: &Context, request: &mut StartWorkflow) -> Result<(), CliError> {
        request.namespace = cx.namespace.clone();
        request.task_queue = TaskQueue::new(&self.task_queue)?;
        request.execution_timeout = self.execution_timeout;
        request.run_timeout = self.run_timeout;
        request.start_delay = self.start_delay;
        request.retry_policy =
            self.maximum_attempts.map(|n| RetryPolicy { maximum_attempts: n, ..RetryPolicy::default() });
        request.id_reuse_policy = match self.id_reuse_policy {
            None | Some(ReusePolicy::AllowDuplicate) => IdReusePolicy::AllowDuplicate,
            Some(ReusePolicy::AllowDuplicateFailedOnly) => IdReusePolicy::AllowDuplicateFailedOnly,
            Some(ReusePolicy::RejectDuplicate) => IdReusePolicy::RejectDuplicate,
        };
        request.id_conflict_policy = match self.id_conflict_policy {
            None => request.id_conflict_policy,
            Some(ConflictPolicy::Fail) => IdConflictPolicy::Fail,
            Some(ConflictPolicy::UseExisting) => IdConflictPolicy::UseExisting,
            Some(ConflictPolicy::TerminateExisting) => IdConflictPolicy::TerminateExisting,
        };
        request.request_id = self.request_id.as_ref().map(RequestId::new).transpose()?;
        request.identity = Some(cx.identity.clone());
        request.summary.clone_from(&self.summary);
        request.details.clone_from(&self.details);
        request.priority = self.priority.said().map_err(CliError::usage)?;
        request.memo = memo(&self.memo)?;
        request.search_attributes = search_attributes(&self.search_attribute)?;
        Ok(())
    }
}

fn memo(pairs: &[String]) -> Result<Memo, CliError> {
    let mut memo = Memo::new();
    for (name, value) in object(pairs)? {
        let value = Payload::encode(&value).map_err(|why| CliError::usage(format!("memo {name}")).cause(why))?;
        memo.insert(FieldName::new(name)?, value);
    }
    Ok(memo)
}

fn search_attributes(pairs: &[String]) -> Result<SearchAttributes, CliError> {
    use serde_json::Value;
    let mut attributes = BTreeMap::new();
    for (name, value) in object(pairs)? {
        let value = match value {
            Value::Bool(value) => SearchValue::Bool(value),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(number), _) => SearchValue::Int(number),
                (None, Some(number)) => SearchValue::Float(number),
                (None, None) => return Err(CliError::usage(format!("search attribute {name}: {number} is too large"))),
            },
            Value::String(text) => typed_text(&text),
            Value::Array(items) => SearchValue::KeywordList(
                items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned)).collect(),
            ),
            Value::Null | Value::Object(_) => {
                return Err(CliError::usage(format!(
                    "search attribute {name}: text, a number, a truth value or a list"
                )));
            }
        };
        let field = FieldName::new(&name)?;
        crate::schedule::only_by_schedules(&field)
            .map_err(|why| CliError::usage(format!("search attribute {name}: {why}")))?;
        attributes.insert(field, value);
    }
    Ok(attributes)
}

pub(super) async fn start(cx: &mut Context, args: StartArgs) -> Result<Exit, CliError> {
    let request = args.request(cx)?;
    let started = start_once(cx, request).await?;
    print_started(cx, "workflow.start", &started).await;
    Ok(Exit::Ok)
}

pub(super) async fn signal_with_start(cx: &mut Context, args: SignalWithStartArgs) -> Result<Exit, CliError> {
    let mut request = args.start.request(cx)?;
    if args.start.options.id_conflict_policy.is_none() {
        request.id_conflict_policy = IdConflictPolicy::UseExisting;
    }
    let signal = SignalRequest {
        name: SignalName::new(&args.signal_name)?,
        input: payload_of("--signal-input", args.signal_input.as_deref(), &[])?,
        identity: Some(cx.identity.clone()),
        // Both are one request: told again, neither happens again.
        request_id: request.request_id.clone(),
    };
    let started = signal_with_start_once(cx, request, signal).await?;
    print_started(cx, "workflow.signal-with-start", &started).await;
    Ok(Exit::Ok)
}

pub(super) async fn print_started(cx: &mut Context, schema: &str, started: &Started) {
    cx.screen.object(schema, json!(started));
    let verb = if started.newly_started { "started" } else { "already started:" };
    cx.screen.line(format!("{verb} {} (run {})", started.workflow_id, started.run_id));
    if !cx.carried_on && is_open(cx, started).await {
        let hint = cx.screen.reach.complete("`bosun worker run`");
        cx.screen.note(&format!("no worker runs: it goes on when one does ({hint})"));
    }
    cx.screen.next(&format!("bosun result {}", run_word(started.workflow_id.as_str())));
}

/// What this command has begun may have ended in it already.
async fn is_open(cx: &Context, started: &Started) -> bool {
    let run = Target::run(started.workflow_id.clone(), started.run_id);
    let found = cx.backend.describe(Target { namespace: cx.namespace.clone(), ..run }).await;
    found.map_or(true, |found| found.info.status.is_open())
}

pub(super) async fn execute(cx: &mut Context, args: ExecuteArgs) -> Result<Exit, CliError> {
    let request = args.start.request(cx)?;
    go(cx, request, args.timeout).await
}

pub(super) async fn go(cx: &mut Context, request: StartWorkflow, timeout: Option<Duration>) -> Result<Exit, CliError> {
    let started = start_once(cx, request).await?;
    let how = if started.newly_started { "started" } else { "going on with" };
    cx.screen.note(&format!("{how} {} (run {})", started.workflow_id, started.run_id));
    let target = Target { namespace: cx.namespace.clone(), ..Target::run(started.workflow_id, started.run_id) };
    let result = wait_for(cx, target, timeout, Watch::Events, ParkPolicy::Stay).await?;
    print_result(cx, &result).await
}

/// The plan file that is to be run, if it is one.
pub(super) fn plan_file(what: &str) -> Option<&Path> {
    let path = Path::new(what);
    // JSON is YAML: a stored spec of CUGA is such a file (CUG-40).
    let is_one = |ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known);
    path.extension().is_some_and(is_one).then_some(path)
}

/// A plan that cannot be read is refused before a data directory is made for it.
pub(super) fn refuse_bad_plan(plans: Option<PlanLoader>, args: &RunArgs) -> Result<(), CliError> {
    let (what, pairs) = args.execute.start.type_and_pairs()?;
    let Some(path) = plan_file(what) else { return refuse_directory(what) };
    // What an earlier run left is asked for later; without it the file must hold as well.
    let request = super::plan::request(path, &args.overrides, pairs)?;
    super::plan::load(plans, &request).map(|_| ())
}

/// What `bosun init` made is run by its file.
fn refuse_directory(what: &str) -> Result<(), CliError> {
    if !what.contains('/') || !Path::new(what).is_dir() {
        return Ok(());
    }
    let file = Path::new(what).join("supervisor.yaml");
    let file = if file.exists() { shell_word(&file.to_string_lossy()) } else { "FILE.yaml".to_owned() };
    Err(CliError::usage(format!("{what} is a directory"))
        .help(format!("a spec is run by its file: `bosun run {file}`")))
}

pub(super) async fn run(cx: &mut Context, args: RunArgs) -> Result<Exit, CliError> {
    let (what, pairs) = args.execute.start.type_and_pairs()?;
    if let Some(path) = plan_file(what) {
        if args.execute.start.input.input.is_some() {
            return Err(CliError::usage("a plan file takes no input: write what it needs into the file"));
        }
        let request = super::plan::request(path, &args.overrides, pairs)?;
        return super::plan::run(cx, request, &args).await;
    }
    if !args.overrides.is_empty() || args.resume.is_some() {
        return Err(CliError::usage("--override and --resume work only with the spec of a supervisor"));
    }
    let mut request = args.execute.start.request(cx)?;
    // A killed run is found again by its id.
    if args.execute.start.options.id_conflict_policy.is_none() {
        request.id_conflict_policy = IdConflictPolicy::UseExisting;
    }
    go(cx, request, args.execute.timeout).await
}
