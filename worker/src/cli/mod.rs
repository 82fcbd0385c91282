//! The command line as a library: a user's own binary gets all of it.
//!
//! Invariant: every verb ends with one of the exit codes of `exit`, prints its answer on stdout and everything else on
//! stderr. A verb works the same attached to a worker and embedded; only who carries runs on differs.
//!
//! Long: one line a noun, and nothing but lines.

mod activity;
mod approval;
mod args;
mod batch;
pub(crate) mod below;
mod bill;
mod board;
pub(crate) mod budget;
mod budget_text;
mod by_hand;
mod columns;
mod completion;
pub mod config;
mod context;
mod control;
mod demo;
mod deployment;
mod describe;
mod dev;
mod diff;
pub(crate) mod doctor;
pub mod error;
pub(crate) mod event_text;
pub mod exit;
pub mod explain;
mod export;
pub(crate) mod fork;
pub(crate) mod handoffs;
mod holder;
mod init;
mod input;
mod list;
mod llm;
mod locate;
mod log;
mod mcp;
mod message;
mod migrate;
mod notify;
mod output;
mod payload_store;
mod plan;
mod progress;
mod queue;
mod reach;
mod reconnect;
mod replay;
pub(crate) mod request_text;
mod reset;
mod resolve;
mod result;
mod review;
mod schedule;
mod schema;
mod service_manager;
mod show;
mod shown;
mod slip;
pub(crate) mod spent;
pub(crate) mod spent_below;
mod start;
mod start_once;
mod store;
pub(crate) mod stuck;
mod supervise;
mod table;
mod test;
#[cfg(test)]
mod tests;
pub(crate) mod time_format;
mod token;
mod top;
mod ui;
mod unprinted;
pub(crate) mod waiting;
mod watch;
mod worker;
mod worker_control;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use bosun_engine::log::EpochFile;
use bosun_engine::{DEFAULT_NAMESPACE, ListRequest, Namespace, TaskQueue};
use clap::CommandFactory;
use serde_json::json;

pub use args::Cli;
use args::{Global, Noun, WorkflowVerb};
use config::Loaded;
use context::Context;
pub use context::{PlanFile, PlanLoader, PlanRequest, identity};
use control::ControlVerb;
pub(crate) use describe::outcome_text;
use error::CliError;
pub(crate) use error::{misleads, printable};
use exit::Exit;
use explain::Code;
pub(crate) use input::{json_or_text, read_short};
pub(crate) use list::{run_word, shell_word};
use locate::{LocatedEngine, locate};
use output::{Format, Screen};
pub use reach::Reach;
use reconnect::Reconnect;
pub(crate) use replay::past::{ChangedPlace, PastFit, PastMoment, PastView};

use crate::backend::{Access, Backend, Engine, OpenEngine};
use crate::capability::owner::Guards;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An embedded engine gets this long to close after its verb.
const CLOSE: Duration = Duration::from_secs(5);

/// What a program brings to its command line.
#[derive(Clone)]
pub struct Program {
    pub opener: Arc<dyn OpenEngine>,
    pub plans: Option<PlanLoader>,
    pub face: ProgramFace,
}

/// What a program shows of itself.
#[derive(Debug, Clone, Default)]
pub struct ProgramFace {
    /// How it is called in help and hints; else by the file it is run from.
    pub name: Option<String>,
    /// What `--help` says that it does.
    pub about: Option<String>,
    /// What `--version` says; else only with which Bosun it was built.
    pub version: Option<String>,
    /// Verbs and nouns that help leaves out.
    pub hidden: Vec<String>,
}

impl ProgramFace {
    /// The grammar as this program shows it.
    fn dress(&self, mut command: clap::Command) -> clap::Command {
        let name = reach::program();
        // A process says its version once.
        let version: &'static str = self.version_text().leak();
        command = command.name(name).bin_name(name).version(version);
        if !reach::is_stock() {
            command = in_its_name(command);
        }
        if let Some(about) = &self.about {
            command = command.about(about.clone());
        }
        for verb in &self.hidden {
            command = command.mut_subcommand("workflow", |workflow| hide(workflow, verb));
            command = hide(command, verb);
        }
        command
    }
}

impl ProgramFace {
    /// The version of the program, and of Bosun where that is another thing.
    fn version_text(&self) -> String {
        match &self.version {
            Some(own) => format!("{own} (bosun {VERSION})"),
            None if reach::is_stock() => VERSION.to_owned(),
            None => format!("(bosun {VERSION})"),
        }
    }

    /// Help leaves out verbs that there are: any other name is a slip.
    fn hides_what_there_is(&self) -> Result<(), CliError> {
        let command = Cli::command();
        let workflow = command.find_subcommand("workflow");
        let known = |verb: &str| {
            command.find_subcommand(verb).is_some() || workflow.is_some_and(|all| all.find_subcommand(verb).is_some())
        };
        match self.hidden.iter().find(|verb| !known(verb)) {
            Some(verb) => Err(CliError::usage(format!("`App::hide` names `{verb}`, and there is no such verb"))),
            None => Ok(()),
        }
    }
}

/// The texts of help, in which commands name this program.
fn in_its_name(mut command: clap::Command) -> clap::Command {
    let ours = |text: &clap::builder::StyledStr| Reach::default().complete(&text.to_string());
    if let Some(about) = command.get_about().map(ours) {
        command = command.about(about);
    }
    if let Some(about) = command.get_long_about().map(ours) {
        command = command.long_about(about);
    }
    if let Some(after) = command.get_after_help().map(ours) {
        command = command.after_help(after);
    }
    let arg = move |mut arg: clap::Arg| {
        if let Some(help) = arg.get_help().map(ours) {
            arg = arg.help(help);
        }
        match arg.get_long_help().map(ours) {
            Some(help) => arg.long_help(help),
            None => arg,
        }
    };
    command.mut_args(arg).mut_subcommands(in_its_name)
}

fn hide(command: clap::Command, verb: &str) -> clap::Command {
    match command.find_subcommand(verb) {
        Some(found) => {
            let name = found.get_name().to_owned();
            command.mut_subcommand(name, |verb| verb.hide(true))
        }
        None => command,
    }
}

/// Verbs that no slip of the pen should lead to: they are never suggested for a name that is none.
const DESTRUCTIVE: [&str; 7] = ["cancel", "terminate", "delete", "reset", "takeover", "restore", "salvage"];

fn suggest_nothing_destructive(why: &mut clap::Error) {
    use clap::error::{ContextKind, ContextValue};
    let harmless = |verb: &String| !DESTRUCTIVE.contains(&verb.as_str());
    let kept = match why.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::String(verb)) if harmless(verb) => return,
        Some(ContextValue::Strings(verbs)) => verbs.iter().filter(|verb| harmless(verb)).cloned().collect(),
        Some(_) => Vec::new(),
        None => return,
    };
    why.remove(ContextKind::SuggestedSubcommand);
    if !kept.is_empty() {
        why.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(kept));
    }
}

/// Runs a command line to its end. clap prints help and usage errors itself.
// long: one step after the other.
pub fn main(program: &Program, args: impl IntoIterator<Item = OsString>) -> Exit {
    let args: Vec<OsString> = args.into_iter().collect();
    let file = args.first().and_then(|file| std::path::Path::new(file).file_name()).map(|name| name.to_string_lossy());
    if let Some(name) = program.face.name.as_deref().or(file.as_deref()) {
        reach::call_program(name);
    }
    if completion::answered(program, &args) {
        return Exit::Ok;
    }
    let loaded = Loaded::as_far_as_it_goes(&args, &crate::capability::environment::var);
    let command = program.face.dress(Cli::command());
    let command = if loaded.refused().is_none() { loaded.defaults_of(command) } else { command };
    let cli = match command.try_get_matches_from(args.iter().cloned()).and_then(|matches| args::of_matches(&matches)) {
        Ok(cli) => Cli { global: cli.global.without_empty(), ..cli },
        Err(mut why) => {
            suggest_nothing_destructive(&mut why);
            return unprinted::print_help(&slip::explained(why, &args));
        }
    };
    let global = cli.global.clone();
    let as_json = matches!(&cli.noun, Noun::Version { json: true }) && global.output == Format::Text;
    let format = if as_json { Format::Json } else { global.output };
    let mut screen = Screen::standard(format, global.color, global.ascii, global.time_format, global.fields.clone());
    screen.reach = Reach::of(&global, crate::capability::environment::var);
    let is_worker = matches!(cli.noun, Noun::Worker(worker::WorkerVerb::Run(_)));
    let begun = log::start(global.log.as_deref(), is_worker).map_err(CliError::usage);
    let configured = match loaded.refused() {
        Some(why) if !needs_no_configuration(&cli.noun) => Err(why.clone()),
        _ => Ok(()),
    };
    let ended = match begun.and(program.face.hides_what_there_is()).and(configured) {
        Err(why) => Err(why),
        Ok(()) => match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => {
                let ended = runtime.block_on(run(program, cli, &loaded, &mut screen));
                // A blocking thread that hangs must not hold up the exit: everything durable is durable.
                runtime.shutdown_timeout(Duration::from_secs(1));
                ended
            }
            Err(why) => Err(CliError::new(Code::Failed, "cannot start the async runtime").cause(why)),
        },
    };
    log::leave();
    // What a worker prints is where it can be reached: its end is judged by its work.
    let unprinted = if is_worker { None } else { screen.unprinted() };
    match ended.and_then(|exit| screen.refused().or(unprinted).map_or(Ok(exit), Err)) {
        Ok(exit) => exit,
        Err(error) => {
            screen.error(&error);
            error.code.exit()
        }
    }
}

/// What explains, makes and mends is there also where the configuration has a mistake.
fn needs_no_configuration(noun: &Noun) -> bool {
    match noun {
        Noun::Config(verb) => !verb.shows_what_is_in_force(),
        Noun::Schedule(verb) => matches!(verb, schedule::ScheduleVerb::Next(_)),
        Noun::Explain { .. } | Noun::Schema { .. } | Noun::Completion { .. } | Noun::Version { .. } => true,
        Noun::Init(_) | Noun::Man(_) => true,
        _ => false,
    }
}

// long: one line a noun.
async fn run(program: &Program, cli: Cli, loaded: &Loaded, screen: &mut Screen) -> Result<Exit, CliError> {
    let Cli { mut global, noun } = cli;
    if global.output == Format::Junit && !matches!(noun, Noun::Test(_) | Noun::Replay(replay::ReplayVerb::Check(_))) {
        return Err(CliError::usage("-o junit: only `test` and `replay check` give XML for build servers"));
    }
    columns::check(&noun, screen.format, &global.fields)?;
    global.namespace_named |= loaded.config.namespace.is_some();
    locate::in_namespace_of_cluster(&mut global, &*program.opener)?;
    if !needs_no_configuration(&noun) && !matches!(noun, Noun::Worker(_)) {
        locate::in_namespace_of_token(&mut global).await;
    }
    program.opener.set_keys(loaded.config.store.keys());
    let accept = matches!(&noun, Noun::Worker(worker::WorkerVerb::Run(args)) if args.accept_rollback);
    program.opener.set_epoch(global.epoch_file.as_ref().map(|path| EpochFile::new(path, accept)));
    let verb = match noun {
        Noun::Explain { code } => return explain::explain(screen, &code),
        Noun::Token(verb) => return token::token(screen, &global, verb),
        Noun::Config(verb) => return config::config(screen, loaded, verb),
        Noun::Notify(verb) => return notify::notify(screen, &global, loaded, verb).await,
        Noun::Schema { of } => return Ok(schema::print(screen, &of, global.output)),
        Noun::Version { .. } => return Ok(version(screen, program)),
        Noun::Worker(worker::WorkerVerb::Run(args)) => {
            return Box::pin(worker::run(screen, &global, loaded, &*program.opener, args, None)).await;
        }
        Noun::Worker(worker::WorkerVerb::Describe) => return worker_control::describe(screen, &global).await,
        Noun::Worker(worker::WorkerVerb::Drain(args)) => {
            return worker_control::end(screen, &global, &args, false).await;
        }
        Noun::Worker(worker::WorkerVerb::Stop(args)) => return worker_control::end(screen, &global, &args, true).await,
        Noun::Worker(worker::WorkerVerb::Unit(args)) => return service_manager::unit(screen, &global, loaded, &args),
        Noun::Mcp(verb) => return mcp::mcp(screen, &global, &verb).await,
        Noun::Top(args) => return top::top(screen, &global, program, &args).await,
        Noun::Doctor => return doctor::doctor(screen, &global, loaded, program).await,
        Noun::Init(args) => return init::init(screen, &args),
        Noun::Completion { shell } => return completion::print(screen, shell),
        Noun::Man(args) => return completion::man(screen, program, &args),
        Noun::Ui(args) => return ui::ui(screen, &global, args).await,
        Noun::Dev(args) => {
            return Box::pin(dev::dev(screen, &global, loaded, &*program.opener, program.plans, args)).await;
        }
        Noun::Test(args) => {
            let workflows = program.opener.workflows();
            // Scenes have runtimes of their own, so they are played away from this one.
            return tokio::task::block_in_place(|| test::test(screen, &workflows, &args));
        }
        Noun::Replay(verb) => {
            return interruptible(Box::pin(replay::replay(screen, &global, program, verb))).await.map_err(nothing_done);
        }
        Noun::Verb(verb) | Noun::Workflow(verb) => match Reading::of(verb) {
            Ok(verb) => {
                let mut bench = replay::Bench::new(screen, &global, program)?;
                return interruptible(verb.run(&mut bench)).await.map_err(nothing_done);
            }
            Err(verb) => Verb::Workflow(verb),
        },
        Noun::Activity(verb) => Verb::Activity(verb),
        Noun::Approval(verb) => Verb::Approval(verb),
        Noun::Agent(verb) => Verb::Agent(verb),
        Noun::Plan(verb) => Verb::Plan(verb),
        Noun::Budget(verb) => Verb::Budget(verb),
        Noun::Batch(verb) => Verb::Batch(verb),
        Noun::Queue(verb) => Verb::Queue(verb),
        Noun::Llm(llm::LlmVerb::Ping(args)) => return llm::providers::ping_verb(screen, &args).await,
        Noun::Llm(llm::LlmVerb::Models(args)) => return llm::providers::models_verb(screen, &args).await,
        Noun::Llm(llm::LlmVerb::Prices) => return llm::providers::prices_verb(screen),
        Noun::Llm(verb) => Verb::Llm(verb),
        Noun::Migrate(args) => Verb::Migrate(Box::new(migrate::to_there(&global, &*program.opener, args).await?)),
        Noun::Schedule(verb) => match verb.without_an_engine(screen, program.plans) {
            Ok(ended) => return ended,
            Err(verb) => Verb::Schedule(verb),
        },
        Noun::Demo(args) => return demo::demo(screen, &global, args).await,
        Noun::Store(verb) => match store::without_an_engine(screen, &global, &*program.opener, verb).await {
            Ok(ended) => return ended,
            Err(verb) => {
                let (data, epoch_file) = (global.data.clone(), global.epoch_file.clone());
                let retention = loaded.config.guards().store.retention;
                Verb::Store(verb, Box::new(store::Configured { data, retention, epoch_file }))
            }
        },
    };
    if let Verb::Workflow(WorkflowVerb::Run(args)) = &verb {
        start::refuse_bad_plan(program.plans, args)?;
    }
    let mut purpose = verb.purpose(loaded.config.guards());
    if let (Some(_), Access::Work { queues, .. }, Some(queue)) = (&global.temporal, &mut purpose, verb.queue()) {
        // A cluster gives a worker the work of queues that it names.
        queues.push(TaskQueue::new(queue)?);
    }
    let namespace = Namespace::new(&global.namespace)?;
    let found = match locate(&global, &*program.opener, &purpose).await {
        Err(why) if why.code == Code::Corrupt && matches!(verb, Verb::Store(store::StoreVerb::Verify, _)) => {
            return store::verify_damaged(screen, &global.data, &*program.opener, why).await;
        }
        found => found?,
    };
    let attached = matches!(found, LocatedEngine::Attached(_));
    let mut cx = Context {
        backend: found.backend(verb.is_of_a_namespace().then_some(&namespace)),
        // The screen goes into the context and comes back; what stays meanwhile prints nothing.
        screen: std::mem::replace(screen, Screen::silent()),
        identity: context::identity(),
        namespace: namespace.clone(),
        yes: global.yes,
        no_input: global.no_input,
        carried_on: attached || global.temporal.is_some() || matches!(purpose, Access::Work { .. }),
        attached,
        reconnect: Reconnect::by(&global, program, &purpose, verb.is_of_a_namespace().then_some(namespace)),
        awaited: None,
        plans: program.plans,
        workflows: program.opener.workflows(),
    };
    // A cluster knows its namespaces itself, used or not.
    // The store is everybody's; a queue is too, but whoever names a namespace means one that there is.
    let asks = !matches!(verb, Verb::Store(..)) && !verb.makes_a_run() && global.temporal.is_none();
    let known = if asks { used(&*found.backend(Some(&cx.namespace)), &cx.namespace).await } else { Ok(()) };
    // Who works holds the directory to the end; who visits may let it go while it waits.
    let works = match found {
        LocatedEngine::Embedded(engine, _) if matches!(purpose, Access::Work { .. }) => Some(engine),
        LocatedEngine::Embedded(engine, _) => {
            cx.reconnect.visits(engine);
            None
        }
        LocatedEngine::Attached(_) => None,
    };
    let ended = match known {
        Ok(()) => beside_the_api(&global, &*program.opener, works.as_deref(), verb, &mut cx).await,
        Err(why) => Err(why),
    };
    *screen = cx.screen;
    cx.reconnect.leave(&global.data).await;
    if let Some(engine) = works {
        engine.drain(CLOSE).await;
    }
    ended
}

/// A start makes its namespace; every other verb on one without runs says so, as nobody knows whether it ever had any.
/// `default` is there in every store from its beginning, so that a list of a new store is empty and no mistake.
async fn used(backend: &dyn Backend, namespace: &Namespace) -> Result<(), CliError> {
    if namespace.as_str() == DEFAULT_NAMESPACE {
        return Ok(());
    }
    let any = backend.list(ListRequest { query: String::new(), limit: 1 }).await?;
    if any.is_empty() {
        return Err(no_runs_in(namespace));
    }
    Ok(())
}

fn no_runs_in(namespace: &Namespace) -> CliError {
    CliError::new(Code::NoNamespace, format!("the namespace {namespace} has no runs")).help("a start makes it")
}

/// Carries out a verb; where it does the work itself, others can reach its runs meanwhile.
async fn beside_the_api(
    global: &Global,
    opener: &dyn OpenEngine,
    works: Option<&dyn Engine>,
    verb: Verb,
    cx: &mut Context,
) -> Result<Exit, CliError> {
    let serving = match works {
        Some(engine) => worker::serve_beside(global, engine, opener.workflows()).await,
        None => None,
    };
    // On the heap: the future of all verbs is too large for the stack of a thread.
    let ended = interruptible(Box::pin(verb.run(cx))).await.map_err(|why| cx.goes_on(why));
    if let Some(serving) = serving {
        serving.stop(&global.data, Exit::Error).await;
    }
    ended
}

async fn interruptible(verb: impl Future<Output = Result<Exit, CliError>>) -> Result<Exit, CliError> {
    tokio::select! {
        ended = verb => ended,
        _ = tokio::signal::ctrl_c() => Err(CliError::new(Code::Interrupted, "interrupted")),
    }
}

/// A verb that only reads has nothing to go on with.
fn nothing_done(why: CliError) -> CliError {
    match why.code {
        Code::Interrupted if why.help.is_none() => why.help("nothing was changed; the same command begins again"),
        _ => why,
    }
}

fn version(screen: &mut Screen, program: &Program) -> Exit {
    let (types, build) = (program.opener.workflow_types(), program.opener.workflows().build_id());
    let known =
        [("mcp", cfg!(feature = "mcp")), ("otel", cfg!(feature = "otel")), ("temporal", cfg!(feature = "temporal"))];
    let features: Vec<&str> = known.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect();
    screen.object(
        "version",
        json!({ "version": VERSION, "build_id": build.to_string(), "features": features, "workflow_types": types }),
    );
    screen.line(format!("{} {}", reach::program(), program.face.version_text()));
    Exit::Ok
}

/// The verbs that read recorded runs, without an engine: looking at a run does not carry it on.
enum Reading {
    Export(export::ExportArgs),
    Diff(diff::DiffArgs),
    DryFork(fork::ForkArgs),
}

impl Reading {
    /// Gives back a verb that does more.
    fn of(verb: WorkflowVerb) -> Result<Reading, WorkflowVerb> {
        match verb {
            WorkflowVerb::Export(args) => Ok(Reading::Export(args)),
            WorkflowVerb::Diff(args) => Ok(Reading::Diff(args)),
            WorkflowVerb::Fork(args) if args.dry_run => Ok(Reading::DryFork(args)),
            more => Err(more),
        }
    }

    async fn run(self, bench: &mut replay::Bench<'_>) -> Result<Exit, CliError> {
        match self {
            Reading::Export(args) => export::export(bench, args).await,
            Reading::Diff(args) => diff::diff_verb(bench, args).await,
            Reading::DryFork(args) => fork::dry_run(bench, args).await,
        }
    }
}

/// The verbs that need an engine.
enum Verb {
    Workflow(WorkflowVerb),
    Activity(activity::ActivityVerb),
    Approval(approval::ApprovalVerb),
    Agent(supervise::AgentVerb),
    Plan(supervise::PlanVerb),
    Budget(budget::BudgetVerb),
    Llm(llm::LlmVerb),
    Batch(batch::BatchVerb),
    Queue(queue::QueueVerb),
    Schedule(schedule::ScheduleVerb),
    Store(store::StoreVerb, Box<store::Configured>),
    Migrate(Box<migrate::Migration>),
}

impl Verb {
    /// The store and its queues are everybody's.
    fn is_of_a_namespace(&self) -> bool {
        !matches!(self, Verb::Store(..) | Verb::Queue(_))
    }

    fn makes_a_run(&self) -> bool {
        use WorkflowVerb as W;
        match self {
            Verb::Workflow(verb) => {
                matches!(verb, W::Run(_) | W::Start(_) | W::Execute(_) | W::SignalWithStart(_) | W::Fork(_))
            }
            Verb::Schedule(verb) => verb.makes_a_run(),
            Verb::Activity(verb) => {
                matches!(verb, activity::ActivityVerb::Start(_) | activity::ActivityVerb::Execute(_))
            }
            _ => false,
        }
    }

    /// The queue of what it starts and carries out itself.
    fn queue(&self) -> Option<&str> {
        match self {
            Verb::Workflow(WorkflowVerb::Run(args)) => Some(&args.execute.start.options.task_queue),
            Verb::Workflow(WorkflowVerb::Execute(args)) => Some(&args.start.options.task_queue),
            _ => None,
        }
    }

    fn purpose(&self, guards: Guards) -> Access {
        match self {
            Verb::Workflow(WorkflowVerb::Run(args)) => {
                Access::Work { slots: args.execute.slots.counts(), queues: Vec::new(), guards }
            }
            Verb::Workflow(WorkflowVerb::Execute(args)) => {
                Access::Work { slots: args.slots.counts(), queues: Vec::new(), guards }
            }
            Verb::Workflow(WorkflowVerb::Start(_) | WorkflowVerb::SignalWithStart(_)) => Access::Visit { create: true },
            Verb::Activity(activity::ActivityVerb::Start(_)) => Access::Visit { create: true },
            Verb::Activity(activity::ActivityVerb::Execute(args)) => {
                Access::Work { slots: args.slots.counts(), queues: Vec::new(), guards }
            }
            Verb::Workflow(verb) if verb.is_dry_run() => Access::Look,
            // Only one that has not ended is waited for, and then visited.
            Verb::Workflow(WorkflowVerb::Result(_)) => Access::Look,
            Verb::Approval(approval::ApprovalVerb::List { .. } | approval::ApprovalVerb::Show { .. })
            | Verb::Plan(supervise::PlanVerb::Show(_))
            | Verb::Budget(budget::BudgetVerb::Show { .. }) => Access::Look,
            Verb::Agent(verb) if verb.only_looks() => Access::Look,
            Verb::Batch(verb) if verb.only_looks() => Access::Look,
            Verb::Activity(activity::ActivityVerb::List(_) | activity::ActivityVerb::Describe(_)) => Access::Look,
            Verb::Workflow(WorkflowVerb::Fork(args)) => Access::Visit { create: args.makes_a_store() },
            Verb::Workflow(
                WorkflowVerb::List(_)
                | WorkflowVerb::Count(_)
                | WorkflowVerb::Describe(_)
                | WorkflowVerb::Show(_)
                | WorkflowVerb::Query(_)
                | WorkflowVerb::Cost(_),
            )
            | Verb::Queue(_)
            | Verb::Store(..) => Access::Look,
            Verb::Schedule(verb) if verb.only_looks() => Access::Look,
            Verb::Schedule(verb) => Access::Visit { create: verb.makes_a_run() },
            Verb::Workflow(_)
            | Verb::Activity(_)
            | Verb::Approval(_)
            | Verb::Agent(_)
            | Verb::Plan(_)
            | Verb::Budget(_)
            | Verb::Llm(_)
            | Verb::Migrate(_)
            | Verb::Batch(_) => Access::Visit { create: false },
        }
    }

    async fn run(self, cx: &mut Context) -> Result<Exit, CliError> {
        match self {
            Verb::Workflow(verb) => Box::pin(workflow(cx, verb)).await,
            Verb::Activity(verb) => Box::pin(activity::activity(cx, verb)).await,
            Verb::Approval(verb) => Box::pin(approval::approval(cx, verb)).await,
            Verb::Agent(verb) => supervise::agent(cx, verb).await,
            Verb::Plan(verb) => Box::pin(supervise::plan(cx, verb)).await,
            Verb::Budget(verb) => budget::budget(cx, verb).await,
            Verb::Llm(verb) => llm::llm(cx, verb).await,
            Verb::Batch(verb) => Box::pin(batch::batch(cx, verb)).await,
            Verb::Queue(verb) => queue::queue(cx, verb).await,
            Verb::Schedule(verb) => Box::pin(schedule::schedule(cx, verb)).await,
            Verb::Store(verb, configured) => store::store(cx, verb, &configured).await,
            Verb::Migrate(migration) => Box::pin(migrate::migrate(cx, *migration)).await,
        }
    }
}

async fn workflow(cx: &mut Context, verb: WorkflowVerb) -> Result<Exit, CliError> {
    match verb {
        WorkflowVerb::Run(args) => Box::pin(start::run(cx, args)).await,
        WorkflowVerb::Start(args) => start::start(cx, args).await,
        WorkflowVerb::Execute(args) => Box::pin(start::execute(cx, args)).await,
        WorkflowVerb::SignalWithStart(args) => start::signal_with_start(cx, args).await,
        WorkflowVerb::List(args) => Box::pin(list::list(cx, args)).await,
        WorkflowVerb::Count(args) => list::count(cx, args).await,
        WorkflowVerb::Describe(args) => Box::pin(describe::describe(cx, args)).await,
        WorkflowVerb::Show(args) => Box::pin(show::show(cx, args)).await,
        WorkflowVerb::Fork(args) => fork::fork(cx, args).await,
        WorkflowVerb::Reset(args) => reset::reset(cx, args).await,
        // `Reading` takes these before an engine is opened.
        WorkflowVerb::Export(_) | WorkflowVerb::Diff(_) => Err(CliError::usage("this verb runs without an engine")),
        WorkflowVerb::Result(args) => Box::pin(result::result(cx, args)).await,
        WorkflowVerb::Signal(args) => message::signal(cx, args).await,
        WorkflowVerb::Query(args) => message::query(cx, args).await,
        WorkflowVerb::Update(args) => message::update(cx, args).await,
        WorkflowVerb::Cancel(args) => batch::control(cx, ControlVerb::Cancel, args).await,
        WorkflowVerb::Terminate(args) => batch::control(cx, ControlVerb::Terminate, args).await,
        WorkflowVerb::Pause(args) => batch::control(cx, ControlVerb::Pause, args).await,
        WorkflowVerb::Resume(args) => batch::control(cx, ControlVerb::Unpause, args).await,
        WorkflowVerb::Takeover(args) => supervise::steer(cx, "human_takeover_v1", args).await,
        WorkflowVerb::Release(args) => supervise::steer(cx, "human_release_v1", args).await,
        WorkflowVerb::Cost(args) => budget::cost(cx, args).await,
        WorkflowVerb::Delete(args) => batch::control(cx, ControlVerb::Delete, args).await,
    }
}
