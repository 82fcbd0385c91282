//! The command line's grammar: nouns, verbs, and the options every verb takes.
//!
//! Invariant: `bosun VERB` and `bosun workflow VERB` are the same by declaration, not by guessing; no other
//! abbreviation exists. What a verb takes stands in the verb's own file.

use std::path::PathBuf;

use clap::{Args, FromArgMatches, Parser, Subcommand};

use super::output::{ColorChoice, Format};
use super::time_format::TimeFormat;
use super::{
    activity, approval, batch, budget, control, describe, diff, export, fork, list, llm, message, payload_store,
    replay, reset, result, show, start, store, supervise, test, worker,
};
use crate::capability::model::SecretRef;

/// Runs supervisors: long-lived managers of agents, commands and people that survive any crash.
#[derive(Debug, Parser)]
#[command(name = "bosun", version, propagate_version = true, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub noun: Noun,
}

/// The data directory where a command names none.
pub(super) const DATA_DEFAULT: &str = ".bosun";

/// A variable that is empty is not set; an option that is typed needs a value.
fn typed(text: &str, variable: &str) -> Result<String, String> {
    match text.is_empty() && std::env::var_os(variable).is_none_or(|value| !value.is_empty()) {
        true => Err("a value is needed".to_owned()),
        false => Ok(text.to_owned()),
    }
}

fn of_address(text: &str) -> Result<String, String> {
    typed(text, "BOSUN_ADDRESS")
}

fn of_cluster(text: &str) -> Result<String, String> {
    typed(text, "BOSUN_TEMPORAL")
}

impl Global {
    /// Without what a variable says that is empty.
    pub(super) fn without_empty(mut self) -> Global {
        self.address = self.address.filter(|address| !address.is_empty());
        self.temporal = self.temporal.filter(|cluster| !cluster.is_empty());
        self
    }
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// The data directory.
    #[arg(long, global = true, env = "BOSUN_STORE", value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
    /// The control API of a worker, for example http://127.0.0.1:8233; without it, DIR/worker.json says where it is.
    #[arg(long, global = true, env = "BOSUN_ADDRESS", value_name = "URL", value_parser = of_address)]
    pub address: Option<String>,
    /// Use a Temporal cluster at HOST:PORT instead of a data directory; `env` takes the address from the TEMPORAL_*
    /// variables and temporal.toml.
    #[arg(long, global = true, env = "BOSUN_TEMPORAL", value_name = "HOST:PORT", conflicts_with = "address",
        value_parser = of_cluster)]
    pub temporal: Option<String>,
    /// Where to find the API key of the cluster: env:NAME, file:/path or cmd:program arguments. It takes precedence over
    /// TEMPORAL_API_KEY.
    #[arg(long, global = true, env = "BOSUN_TEMPORAL_API_KEY", value_name = "REF")]
    pub temporal_api_key: Option<SecretRef>,
    /// The directory that keeps payloads too large for a Temporal cluster; the cluster's workers and clients share it.
    #[arg(long, global = true, env = "BOSUN_PAYLOAD_STORE", value_name = "DIR")]
    pub payload_store: Option<PathBuf>,
    /// Keep payloads larger than this in the directory of --payload-store: from 4KiB to 2MiB.
    #[arg(long, global = true, env = "BOSUN_PAYLOAD_STORE_ABOVE", value_name = "SIZE", value_parser = payload_store::parse_above,
        default_value = payload_store::ABOVE_DEFAULT)]
    pub payload_store_above: usize,
    /// The file with the token of the control API [default: DIR/token].
    #[arg(long, global = true, env = "BOSUN_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// A file outside the data directory that records how far the store reached. A store that ends before that, because an
    /// older copy was put back, is refused. Each data directory needs a file of its own.
    #[arg(long, global = true, env = "BOSUN_EPOCH_FILE", value_name = "FILE")]
    pub epoch_file: Option<PathBuf>,
    /// The namespace to work in.
    #[arg(long, global = true, env = "BOSUN_NAMESPACE", value_name = "NAME", default_value = "default")]
    pub namespace: String,
    /// Whether somebody has named it: the command line or a variable, not the default.
    #[arg(skip)]
    pub namespace_named: bool,
    /// How to print the result.
    #[arg(short, long, global = true, env = "BOSUN_OUTPUT", value_name = "FORMAT", default_value = "text")]
    pub output: Format,
    /// How to print times.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "relative")]
    pub time_format: TimeFormat,
    /// When to print in color.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: ColorChoice,
    /// Use plain ASCII instead of symbols.
    #[arg(long, global = true)]
    pub ascii: bool,
    /// The columns or keys to show.
    #[arg(long, global = true, value_name = "A,B,C", value_delimiter = ',')]
    pub fields: Vec<String>,
    /// Answer every question with yes.
    #[arg(short, long, global = true)]
    pub yes: bool,
    /// Never ask a question.
    #[arg(long, global = true)]
    pub no_input: bool,
    /// The owner's configuration [default: ./bosun.toml, then ~/.config/bosun/config.toml].
    #[arg(long, global = true, env = "BOSUN_CONFIG_FILE", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Use this profile of the configuration, a table [profiles.NAME]; its values take precedence over the rest of the file.
    #[arg(long, global = true, env = "BOSUN_PROFILE", value_name = "NAME")]
    pub profile: Option<String>,
    /// Set a value of the configuration, for example `process.allow=git,cargo`. It takes precedence over the environment and
    /// the file.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// What to log to stderr, for example `info` or `bosun_engine=debug`.
    #[arg(long, global = true, env = "BOSUN_LOG", value_name = "FILTER")]
    pub log: Option<String>,
}

/// What the words of a command line say.
pub(super) fn of_matches(matches: &clap::ArgMatches) -> clap::error::Result<Cli> {
    let mut cli = Cli::from_arg_matches(matches)?;
    let source = matches.value_source("namespace");
    cli.global.namespace_named = source.is_some_and(|source| source != clap::parser::ValueSource::DefaultValue);
    Ok(cli)
}

#[derive(Debug, Subcommand)]
pub enum Noun {
    #[command(flatten)]
    Verb(WorkflowVerb),
    /// Act on workflow executions; the word `workflow` may be left out.
    #[command(subcommand)]
    Workflow(WorkflowVerb),
    /// Act on single activities: complete, retry or pause one, or start one without a workflow.
    #[command(subcommand)]
    Activity(activity::ActivityVerb),
    /// List the requests that wait for a person, and answer them.
    #[command(subcommand)]
    Approval(approval::ApprovalVerb),
    /// Show the agents of a supervisor, and remove those that have ended.
    #[command(subcommand)]
    Agent(supervise::AgentVerb),
    /// Show, approve or change the plan of a supervisor.
    #[command(subcommand)]
    Plan(supervise::PlanVerb),
    /// Show what a run may spend, or let it spend more.
    #[command(subcommand)]
    Budget(budget::BudgetVerb),
    /// Start workflows at set times.
    #[command(subcommand)]
    Schedule(super::schedule::ScheduleVerb),
    /// Follow or stop a batch: one action on every run that matches a filter (`bosun terminate --query …`).
    #[command(subcommand)]
    Batch(batch::BatchVerb),
    /// Show task queues: which activities wait for a slot, and which is next.
    #[command(subcommand)]
    Queue(super::queue::QueueVerb),
    /// Check models and prices, and record the answers of models to play them again.
    #[command(subcommand)]
    Llm(llm::LlmVerb),
    /// Offer Bosun's own verbs to agents and editors, as tools of the Model Context Protocol.
    #[command(subcommand)]
    Mcp(super::mcp::McpVerb),
    /// Watch a supervisor survive `kill -9` in 20 seconds: it waits for an approval, is killed, and publishes exactly once.
    Demo(super::demo::DemoArgs),
    /// Create a project that runs at once: a supervisor in YAML, or a Rust program.
    Init(super::init::InitArgs),
    /// Look for problems around the runs: disk, clock, permissions, worker, held runs, models. Exits with 1 if it finds one.
    Doctor,
    /// Watch what is going on: runs, what they wait for, agents, slots and queues.
    Top(super::top::TopArgs),
    /// Open the pages of the running worker.
    Ui(super::ui::UiArgs),
    /// Start a worker with pages and a few sample runs, in a directory of its own.
    Dev(super::dev::DevArgs),
    /// Run, look at, drain or stop the worker process.
    #[command(subcommand)]
    Worker(worker::WorkerVerb),
    /// Run scenes: tests, written in YAML, of specs and workflows, with every crash and every order of concurrent calls.
    Test(test::TestArgs),
    /// Compare recorded histories with the code of this program: does it still fit, what happened, and why?
    #[command(subcommand)]
    Replay(replay::ReplayVerb),
    /// Check, back up, restore or save the data directory.
    #[command(subcommand)]
    Store(store::StoreVerb),
    /// Let open runs go on in another engine: from a data directory to a Temporal cluster, or back.
    Migrate(super::migrate::MigrateArgs),
    /// Explain an error code, or `exit-codes`.
    Explain {
        /// The code, for example BOSUN0101, or `exit-codes`.
        #[arg(value_name = "CODE")]
        code: String,
    },
    /// Give other people access to the control API, and take it away again.
    #[command(subcommand)]
    Token(super::token::TokenVerb),
    /// Show whom the worker notifies of what, and send them a test.
    #[command(subcommand)]
    Notify(super::notify::NotifyVerb),
    /// Show, check or change the owner's configuration.
    #[command(subcommand)]
    Config(super::config::ConfigVerb),
    /// Print the JSON Schema of supervisor specs, of scenes or of schedules, for editors.
    Schema {
        /// What the schema describes.
        #[arg(value_name = "OF", default_value = "spec", value_parser = ["spec", "scene", "schedule"])]
        of: String,
    },
    /// Print the script by which a shell completes verbs, options and workflow ids.
    Completion {
        /// The shell. In bash, write `source <(bosun completion bash)`; other shells likewise.
        #[arg(value_name = "SHELL")]
        shell: super::completion::Shell,
    },
    /// Print the manual page, or write one for each verb into a directory.
    Man(super::completion::ManArgs),
    /// Show the version.
    Version {
        /// Print JSON, as `-o json` does.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum WorkflowVerb {
    /// Run a plan file or a workflow type in this process, and wait.
    Run(start::RunArgs),
    /// Start a workflow execution and print its id.
    Start(start::StartArgs),
    /// Start a workflow execution and wait for its result.
    Execute(start::ExecuteArgs),
    /// Signal a run, starting it if none is open.
    SignalWithStart(start::SignalWithStartArgs),
    /// List workflow executions, newest first.
    #[command(visible_alias = "ls")]
    List(list::ListArgs),
    /// Count workflow executions.
    Count(list::CountArgs),
    /// Show the state of a run: what is pending, what it waits for, how it ended.
    Describe(describe::DescribeArgs),
    /// Show the history of a run.
    Show(show::ShowArgs),
    /// Write the history of a run to a file, for replay elsewhere and for bug reports.
    Export(export::ExportArgs),
    /// Start a new run from an event of an old one, with other results, signals or input.
    Fork(fork::ForkArgs),
    /// Go back to an earlier point of a run and continue from there under the same workflow id; an open run is ended.
    Reset(reset::ResetArgs),
    /// Compare two histories, beginning with the first difference and its cause. Exits with 0 if they are the same, 22 if not.
    Diff(diff::DiffArgs),
    /// Wait for the result of a run.
    Result(result::ResultArgs),
    /// Send a signal.
    Signal(message::SignalArgs),
    /// Ask a run for something without changing it.
    Query(message::QueryArgs),
    /// Send an update and wait for its answer.
    Update(message::UpdateArgs),
    /// Ask a run to cancel; its code can clean up first.
    Cancel(batch::ManyArgs),
    /// End a run at once; its code cannot clean up.
    Terminate(batch::ManyArgs),
    /// Pause a run; what is sent to it meanwhile is kept.
    Pause(batch::ManyArgs),
    /// Resume a paused run, or try the code of a held run again.
    #[command(visible_alias = "unpause")]
    Resume(batch::ManyArgs),
    /// Take over a supervisor: it starts nothing until you release it, and you can do tasks of its plan by hand (`plan complete`).
    Takeover(control::ControlArgs),
    /// Give back a supervisor that you took over.
    Release(control::ControlArgs),
    /// Show what the models of a run and of the agents below it have cost so far.
    Cost(budget::CostArgs),
    /// Remove a closed run.
    Delete(batch::ManyArgs),
}

/// Names a run: by position or `-w`.
#[derive(Debug, Clone, Default, Args)]
pub struct RunOf {
    /// A workflow id, the beginning of one, a run id, `latest`, or `@N` for the N-th newest.
    #[arg(value_name = "ID", required_unless_present = "workflow_id")]
    pub id: Option<String>,
    #[command(flatten)]
    pub exact: ExactRun,
}

/// Names a run exactly, for scripts.
#[derive(Debug, Clone, Default, Args)]
pub struct ExactRun {
    /// Exactly this workflow id.
    #[arg(short, long, value_name = "ID")]
    pub workflow_id: Option<String>,
    /// Exactly this run.
    #[arg(short, long, value_name = "RUN")]
    pub run_id: Option<String>,
}

/// The input of a request.
#[derive(Debug, Clone, Default, Args)]
pub struct InputArg {
    /// JSON, `@file`, or `-` for standard input.
    #[arg(short, long, value_name = "JSON", allow_hyphen_values = true)]
    pub input: Option<String>,
}
