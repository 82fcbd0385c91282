//! `worker run`: the long-lived process that holds a data directory and serves its clients.
//!
//! Invariant: the worker says where it is (`worker.json`) only when it can serve, and takes the file away when it
//! leaves. The first SIGTERM, SIGINT or SIGHUP drains: no new work, running attempts may end, everything is durable, exit 0 in
//! bounded time. The second ends it at once (143 or 130), which a restart survives like any crash. A failed log shows
//! as 503 on `/healthz` for a moment, then the worker leaves with 74.
//!
//! Long: the options of a worker, a line each, and its life from the first signal to the last word.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{DEFAULT_NAMESPACE, Namespace, TaskQueue};
use clap::{Args, Subcommand};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::args::Global;
use super::config::{Loaded, OnDamage};
use super::deployment::DeploymentArgs;
use super::dev::Beside;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::holder::is_of_somebody;
use super::output::Screen;
use super::reach::Reach;
use super::service_manager::ServiceManager;
use super::time_format::{now, parse_duration};
use crate::api::handlers::Api;
use crate::api::{DirectoryId, ServeError, Server, ServerLimits, Token, Tokens, WorkerFile, tokens};
use crate::backend::{Access, Backend, ClusterPlace, Engine, EngineHealth, OpenEngine, OpenError, SlotCounts, Stopped};
use crate::capability::owner::{Guards, QueuePolicy, StorePolicy};
use crate::notify::cursor::{Cursor, GoneWorker};
use crate::notify::links::Links;
use crate::notify::readable::{UnreadableChannel, unreadable};

#[derive(Debug, Subcommand)]
pub enum WorkerVerb {
    /// Hold the data directory, run its workflows and activities, and serve the control API until told to stop.
    Run(WorkerArgs),
    /// Show the worker that holds the data directory: its process, health, slots, queues, code.
    Describe,
    /// Let running attempts finish, stop the worker, and wait until it is gone. The next worker continues its runs.
    Drain(super::worker_control::DrainArgs),
    /// Stop the worker at once, and wait until it is gone. The next worker continues what it was doing.
    Stop(super::worker_control::DrainArgs),
    /// Print a systemd unit that runs the worker.
    Unit(super::service_manager::UnitArgs),
}

#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// The port of the control API; 0 takes any free port.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// The address of the control API. Beyond loopback it needs --token-file.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub bind: IpAddr,
    /// A host name clients may use, beside loopback and the bound address; with its port where that is not the worker's.
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<String>,
    #[command(flatten)]
    pub slots: SlotArgs,
    /// Serve only this task queue; may be given several times [default: all; of a cluster: default].
    #[arg(long, visible_alias = "task-queue", value_name = "QUEUE")]
    pub queue: Vec<String>,
    /// On a cluster: how many runs to keep in memory. With 0, each workflow task replays its run from the beginning.
    #[arg(long, value_name = "N", default_value_t = super::locate::CACHED_RUNS)]
    pub max_cached_workflows: usize,
    #[command(flatten)]
    pub deployment: DeploymentArgs,
    /// Limit a task queue: QUEUE=5 lets five attempts run at once, QUEUE=10/s lets ten start in a second. May be given several
    /// times.
    #[arg(long, value_name = "QUEUE=LIMIT", value_delimiter = ',')]
    pub queue_limit: Vec<String>,
    /// How many attempts may start in a second, over all queues [default: no limit].
    #[arg(long, value_name = "N")]
    pub activities_per_second: Option<String>,
    /// The memory for loaded runs and waiting requests together, for example 320MiB [default: a quarter of what the machine or
    /// the control group has].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory: Option<usize>,
    /// How many connections the control API serves at once. Of 16 or more, one in 16 is reserved for short requests [default:
    /// 512, or half of the open files that the store does not need].
    #[arg(long, value_name = "N", value_parser = a_few)]
    pub connections: Option<usize>,
    /// How long running attempts may take to end after SIGTERM.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub drain_timeout: Duration,
    /// What to do when the store is damaged. `isolate` keeps the damaged files as they are in DIR/damaged-N, holds the runs
    /// that were hit, and goes on with all others; after three such copies it refuses as well.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "refuse")]
    pub on_damage: OnDamage,
    /// Accept the store as it is, although --epoch-file names a newer copy or another store, and write that file again.
    #[arg(long)]
    pub accept_rollback: bool,
    /// How long closed runs are kept: TIME (30d, 12h, 2w) or `forever`; NAMESPACE=TIME for one namespace. May be given
    /// several times [default: forever].
    #[arg(long, value_name = "[NAMESPACE=]TIME", value_delimiter = ',')]
    pub retention: Vec<String>,
    /// Trust the clock even if it has jumped: --retention then also counts time in which no worker ran.
    #[arg(long)]
    pub trust_clock: bool,
}

/// How much a process does at once.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct SlotArgs {
    /// How many activity attempts run at once when this process does the work [default: 1000].
    #[arg(long, value_name = "N")]
    pub slots: Option<usize>,
    /// How many of these may run programs, or call models, MCP servers and HTTP [default: as --slots; without --slots, four a
    /// core and at least 16].
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub external_slots: Option<usize>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1: without any, programs, models, MCP servers and HTTP would wait for ever".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err("a whole number is wanted".to_owned()),
    }
}

/// Fewer do not serve a page and a command beside each other.
pub(super) const FEWEST_CONNECTIONS: u64 = 4;

fn a_few(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number as u64 >= FEWEST_CONNECTIONS => Ok(number),
        Ok(_) => Err(format!("at least {FEWEST_CONNECTIONS}")),
        Err(_) => Err("a whole number is wanted".to_owned()),
    }
}

impl SlotArgs {
    pub(super) fn counts(self) -> SlotCounts {
        SlotCounts::of(self.slots, self.external_slots)
    }
}

impl WorkerArgs {
    /// On loopback, with the default of everything else.
    pub(super) fn of_port(port: u16) -> WorkerArgs {
        WorkerArgs {
            port,
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            allow_host: Vec::new(),
            slots: SlotArgs::default(),
            queue: Vec::new(),
            max_cached_workflows: super::locate::CACHED_RUNS,
            deployment: DeploymentArgs::default(),
            queue_limit: Vec::new(),
            activities_per_second: None,
            memory: None,
            connections: None,
            drain_timeout: Duration::from_secs(5),
            on_damage: OnDamage::Refuse,
            accept_rollback: false,
            retention: Vec::new(),
            trust_clock: false,
        }
    }
}

/// What may be taken of the memory.
pub(super) fn parse_bytes(text: &str) -> Result<usize, String> {
    let bytes = bytes_of(text)?;
    if bytes < 16 << 20 { Err(format!("{text:?} is less than 16MiB, in which nothing can work")) } else { Ok(bytes) }
}

/// A number of bytes, with a unit or without.
pub(super) fn bytes_of(text: &str) -> Result<usize, String> {
    let wrong = || format!("{text:?} is not a number of bytes like 320MiB, 2GiB or 1000000");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: usize = text[..digits].parse().map_err(|_| wrong())?;
    let unit = match text[digits..].trim() {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit).ok_or_else(wrong)
}

/// How long `/healthz` shows a failed log before the process leaves.
const FAILED_SHOWN: Duration = Duration::from_secs(1);
/// Requests in flight may end for this long after the drain.
const SERVER_STOP: Duration = Duration::from_secs(2);
/// A short visit of another command may hold the directory when the worker starts.
const OPEN_PATIENCE: Duration = Duration::from_secs(10);
/// A worker that works says so within this time.
const SILENCE: Duration = Duration::from_secs(2);

// long: from the first signal to the last word, one step after the other.
pub(super) async fn run(
    screen: &mut Screen,
    global: &Global,
    loaded: &Loaded,
    opener: &dyn OpenEngine,
    mut args: WorkerArgs,
    beside: Option<&Beside>,
) -> Result<Exit, CliError> {
    // Signals are caught from the very beginning: one that comes while the store opens must drain, too.
    let mut signals = Signals::catch()?;
    let data = &global.data;
    if args.accept_rollback && global.epoch_file.is_none() {
        return Err(CliError::usage("--accept-rollback needs --epoch-file: without it nothing is refused"));
    }
    let queues = args.queue.iter().map(TaskQueue::new).collect::<Result<_, _>>()?;
    let guards = loaded.config.guards();
    // Whoever follows a link of a notification names this host.
    let public = guards.notify.public_url.as_deref().and_then(|url| url.split_once("://"));
    let tells = !guards.notify.channels.is_empty();
    args.allow_host.extend(public.map(|(_, host)| host.to_owned()));
    let limits = QueuePolicy::of(&args.queue_limit, args.activities_per_second.as_deref())
        .map_err(|why| CliError::new(Code::Usage, format!("--queue-limit, --activities-per-second: {why}")))?;
    let (memory, store) = (args.memory.or(guards.memory), policy(&args)?);
    let guards = Guards { memory, store, queues: limits, ..guards };
    let unreadable = unreadable(&guards.notify).await;
    tracing::debug!(handles = crate::api::take_file_handles(), "file handles");
    let purpose = Access::Work { slots: args.slots.counts(), queues, guards };
    tokio::select! {
        refused = refuse_a_second(global) => refused?,
        () = signals.next() => return Ok(Exit::Ok),
    }
    // Before anything is opened: a store that nobody can be served from is left as it is.
    let server = bind(global, &args).await?;
    super::locate::make_data_directory(data)?;
    let engine = match super::locate::cluster_of(global)? {
        Some(place) => {
            let (cached_runs, deployment) = (args.max_cached_workflows, args.deployment.named());
            let place = ClusterPlace { cached_runs, deployment, ..place };
            opener.open_cluster(&place, data, &purpose).await?
        }
        None => match open(screen, opener, global, &purpose, &mut signals).await? {
            Some(engine) => engine,
            None => return Ok(Exit::Ok),
        },
    };
    let serving = match serve(global, &args, server, &*engine, opener.workflows(), false).await {
        Ok(serving) => serving,
        Err(why) => {
            engine.drain(Duration::ZERO).await;
            return Err(why);
        }
    };
    announce(screen, global, &serving.file);
    for UnreadableChannel { channel, why } in &unreadable {
        tracing::warn!(%channel, %why, "nobody can be told by this channel: `bosun notify test` says when they can");
    }
    let manager = ServiceManager::of(&crate::capability::environment::var);
    manager.ready(&serving.file.address);
    let begun = match beside {
        Some(beside) => show_pages(screen, global, &serving.file, beside, &*engine).await,
        None => Ok(()),
    };
    if let Err(why) = begun {
        engine.drain(Duration::ZERO).await;
        serving.stop(data, Exit::Error).await;
        return Err(why);
    }
    let exit = tokio::select! {
        exit = until_the_end(&*engine, &mut signals, args.drain_timeout, &manager) => exit,
        never = manager.feed(&*engine) => match never {},
    };
    if exit == Exit::StorageFailed && tells {
        leave_word(data, &serving.file);
    }
    serving.stop(data, exit).await;
    Ok(exit)
}

/// The worker after this one tells people that its log has failed, as of any worker that is gone.
fn leave_word(data: &Path, file: &WorkerFile) {
    let gone = GoneWorker { pid: file.pid, started_at: file.started_at.clone() };
    if let Err(why) = Cursor::open(data).note_gone(gone) {
        tracing::warn!(%why, "nobody will be told that this worker's log has failed");
    }
}

/// Works until somebody says that it is enough, or the log fails.
async fn until_the_end(
    engine: &dyn Engine,
    signals: &mut Signals,
    drain_timeout: Duration,
    manager: &ServiceManager,
) -> Exit {
    tokio::select! {
        () = signals.next() => {
            tracing::info!(timeout_ms = drain_timeout.as_millis() as u64, "draining");
            manager.stopping();
            tokio::select! {
                ended = engine.drain(drain_timeout) => {
                    tracing::info!(closed_in_order = ended, "drained");
                    Exit::Ok
                }
                () = signals.next() => signals.exit(),
            }
        }
        stopped = engine.stopped() => match stopped {
            Stopped::Drained => Exit::Ok,
            Stopped::StorageFailed { why } => {
                tracing::error!(why, "the log has failed; leaving");
                tokio::time::sleep(FAILED_SHOWN).await;
                Exit::StorageFailed
            }
        },
    }
}

/// Starts what there is to see, and says where.
async fn show_pages(
    screen: &mut Screen,
    global: &Global,
    file: &WorkerFile,
    beside: &Beside,
    engine: &dyn Engine,
) -> Result<(), CliError> {
    beside.begin(&*engine.backend(), &Namespace::new(&global.namespace)?).await?;
    let link = super::ui::link(&file.address, &super::locate::attach(&file.address, global).await?, "/").await?;
    screen.line(format!("pages  {link}"));
    screen.note("the link signs in once, within 2 minutes; `bosun ui` makes another one. Ctrl-C ends it");
    if !beside.no_browser {
        super::ui::open_browser(screen, &link);
    }
    Ok(())
}

/// What the owner says of the store.
fn policy(args: &WorkerArgs) -> Result<StorePolicy, CliError> {
    let retention = StorePolicy::retention_of(&args.retention, args.trust_clock)
        .map_err(|why| CliError::new(Code::Usage, format!("--retention: {why}")))?;
    Ok(StorePolicy { isolate: args.on_damage == OnDamage::Isolate, retention })
}

/// Refuses to start where a worker holds the directory that proves who it is: it does not go away by itself.
async fn refuse_a_second(global: &Global) -> Result<(), CliError> {
    let began = std::time::Instant::now();
    loop {
        let Some(file) = WorkerFile::read(&global.data).filter(|file| file.process_lives() && !file.of_a_run) else {
            return Ok(());
        };
        let asked = async {
            // Whose token cannot be read proves nothing; the lock decides then.
            let worker = super::locate::attach_to(&file, global).await.ok().flatten()?;
            Some(worker.health().await)
        };
        let asked_at = std::time::Instant::now();
        let health = match tokio::time::timeout(SILENCE, asked).await {
            Ok(Some(health)) => health,
            // Where nobody listens, or somebody else does, that is known at once.
            Ok(None) if asked_at.elapsed() < SILENCE / 4 => return Ok(()),
            Ok(None) | Err(_) => return Err(silent(CliError::from(OpenError::Locked(global.data.clone())), &file)),
        };
        match health {
            // It is about to leave.
            Ok(EngineHealth::Draining) if began.elapsed() < OPEN_PATIENCE => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            // It has left meanwhile.
            Err(_) if began.elapsed() < OPEN_PATIENCE => tokio::time::sleep(Duration::from_millis(50)).await,
            health => {
                let held = CliError::from(OpenError::Locked(global.data.clone()));
                let does = if let Ok(EngineHealth::Draining) = health { "drains" } else { "works on it" };
                let why = format!("the worker with pid {} {does}, and serves {}", file.pid, file.address);
                return Err(held.cause(why).help("`bosun worker drain` ends it"));
            }
        }
    }
}

/// Nothing where a signal ends the wait for the directory.
async fn open(
    screen: &mut Screen,
    opener: &dyn OpenEngine,
    global: &Global,
    purpose: &Access,
    signals: &mut Signals,
) -> Result<Option<Arc<dyn Engine>>, CliError> {
    let (data, began) = (&global.data, std::time::Instant::now());
    let mut said = false;
    loop {
        match opener.open(data, purpose).await {
            Ok(engine) => return Ok(Some(engine)),
            Err(OpenError::Locked(_)) if began.elapsed() < OPEN_PATIENCE => {
                // Another worker may have started meanwhile.
                refuse_a_second(global).await?;
                if !std::mem::replace(&mut said, true) {
                    screen.note(&format!(
                        "another process holds {}: waiting for {} s at most, until it is done",
                        data.display(),
                        OPEN_PATIENCE.as_secs()
                    ));
                }
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(50)) => {}
                    () = signals.next() => return Ok(None),
                }
            }
            Err(why @ OpenError::Locked(_)) => return Err(held_by_a_run(why, data)),
            Err(why) => return Err(why.into()),
        }
    }
}

/// A worker that is there and answers nobody: stopped, or hung.
fn silent(held: CliError, file: &WorkerFile) -> CliError {
    let WorkerFile { pid, address, .. } = file;
    held.cause(format!("the worker with pid {pid} lives, but nobody answers at {address}")).help(format!(
        "`kill -CONT {pid}` wakes it if it was stopped; `kill -9 {pid}` ends it, and the next one goes on with its runs"
    ))
}

/// Who holds the directory, where it is a command that does the work of its own run.
fn held_by_a_run(why: OpenError, data: &Path) -> CliError {
    let error = CliError::from(why);
    match WorkerFile::read(data).filter(WorkerFile::process_lives) {
        Some(file) if !file.of_a_run => silent(error, &file),
        Some(file) => error.cause(format!(
            "the command with pid {} carries out its run there, and leaves when that has ended; it serves {} meanwhile",
            file.pid, file.address
        )),
        None => error,
    }
}

/// Serves the control API beside a verb that does the work itself, so that other commands reach its runs meanwhile: a
/// person can answer what a `run` waits for. A verb that cannot be reached works all the same.
pub(super) async fn serve_beside(global: &Global, engine: &dyn Engine, workflows: WorkflowRegistry) -> Option<Serving> {
    let args = WorkerArgs::of_port(0);
    let serving = async { serve(global, &args, bind(global, &args).await?, engine, workflows, true).await };
    serving.await.inspect_err(|why| tracing::warn!(%why, "others cannot reach this run")).ok()
}

/// The control API, being served.
pub(super) struct Serving {
    file: WorkerFile,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// The address of the control API, taken.
async fn bind(global: &Global, args: &WorkerArgs) -> Result<Server, CliError> {
    let address = SocketAddr::new(args.bind, args.port);
    let cannot = |why: ServeError| CliError::new(Code::CannotServe, why.to_string());
    let limits = ServerLimits::of_connections(args.connections).map_err(cannot)?;
    Server::bind(address, global.token_file.is_some(), limits).await.map_err(cannot)
}

// long: one step after the other, each with its own error.
async fn serve(
    global: &Global,
    args: &WorkerArgs,
    server: Server,
    engine: &dyn Engine,
    workflows: WorkflowRegistry,
    of_a_run: bool,
) -> Result<Serving, CliError> {
    let data = std::path::absolute(&global.data).unwrap_or_else(|_| global.data.clone());
    let cannot = |why: String| CliError::new(Code::CannotServe, why);
    let named = global.token_file.as_deref().filter(|file| is_of_somebody(file, &data));
    if let Some(file) = named.filter(|_| !of_a_run) {
        let why = format!("{} holds the token of somebody: everybody who has it would be the owner", file.display());
        return Err(cannot(why).help("a worker needs a token of its own: leave --token-file away, or make another"));
    }
    // Who runs something with a token of their own serves beside it with that of the directory.
    let (token_file, token): (PathBuf, _) = match global.token_file.as_ref().filter(|_| named.is_none()) {
        Some(file) => (std::path::absolute(file).unwrap_or_else(|_| file.clone()), Token::read(file)),
        None => (data.join("token"), Token::read_or_create(&data.join("token"))),
    };
    // A tool that finds it in its file must not bring it into a history.
    if let Ok(token) = &token {
        crate::capability::environment::note_secret(token.header().trim_start_matches("Bearer "));
    }
    // What serves beside a run changes nothing of whose token is the owner's.
    if let (Ok(token), false) = (&token, of_a_run) {
        let elsewhere = (token_file != data.join("token")).then_some(token);
        // On a full disk a worker starts all the same: it is known by its file while it is up.
        if let Err(why) = tokens::note_owner(&data, elsewhere) {
            tracing::warn!(%why, "without a worker the token of this one is not known as the owner's");
        }
    }
    let token = token.and_then(|token| Tokens::new(&token, Some(data.clone())));
    let tokens = token.map_err(|why| cannot(why.to_string()))?;
    let file = WorkerFile {
        pid: std::process::id(),
        address: format!("http://{}", reachable(server.address())),
        token_file,
        version: super::VERSION.to_owned(),
        started_at: now().to_string(),
        of_a_run,
        directory: DirectoryId::of(&data),
    };
    let (stop, stopping) = watch::channel(false);
    // Whoever reads a page stands in another folder, with another environment; the page names the namespace itself.
    let place = Global { data: data.clone(), namespace: DEFAULT_NAMESPACE.to_owned(), address: None, ..global.clone() };
    let reach = Reach::of(&place, |_| None);
    let links = Some(Arc::new(Links::of(&data)));
    let api = Api { backend: engine.backend(), version: super::VERSION, workflows, reach, links };
    let hosts = args.allow_host.clone();
    let task = tokio::spawn(async move { server.serve(api, crate::ui::pages(), tokens, &hosts, stopping).await });
    file.write(&data).map_err(|why| cannot(format!("cannot write {}: {why}", WorkerFile::path(&data).display())))?;
    Ok(Serving { file, stop, task })
}

/// An address a client on this machine can connect to.
fn reachable(bound: SocketAddr) -> SocketAddr {
    if bound.ip().is_unspecified() { SocketAddr::new(Ipv4Addr::LOCALHOST.into(), bound.port()) } else { bound }
}

impl Serving {
    pub(super) async fn stop(self, data: &Path, exit: Exit) {
        self.file.remove(data);
        let _ = self.stop.send(true);
        if exit == Exit::Ok {
            let _ = tokio::time::timeout(SERVER_STOP, self.task).await;
        }
    }
}

fn announce(screen: &mut Screen, global: &Global, file: &WorkerFile) {
    let data = &global.data;
    let trees = crate::capability::process::guard::strategy();
    tracing::info!(address = file.address, data = %data.display(), pid = file.pid, process_trees = trees, "the worker is ready");
    screen.object("worker.run", json!(file));
    screen.line(match &global.temporal {
        Some(cluster) => format!(
            "worker {} works for the Temporal cluster {cluster}, namespace {}, and serves {}",
            file.pid, global.namespace, file.address
        ),
        None => format!("worker {} holds {} and serves {}", file.pid, data.display(), file.address),
    });
}

/// SIGTERM, SIGINT and SIGHUP, in the order they come. What `nohup` ignores stays ignored.
struct Signals {
    term: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
    last: Exit,
}

impl Signals {
    fn catch() -> Result<Self, CliError> {
        let catch = |kind| signal(kind).map_err(|why| CliError::new(Code::Failed, "cannot catch signals").cause(why));
        let (term, interrupt) = (catch(SignalKind::terminate())?, catch(SignalKind::interrupt())?);
        let hangup = if ignores_hangup() { None } else { Some(catch(SignalKind::hangup())?) };
        Ok(Signals { term, interrupt, hangup, last: Exit::Killed })
    }
    async fn next(&mut self) {
        self.last = tokio::select! {
            _ = self.term.recv() => Exit::Killed,
            _ = self.interrupt.recv() => Exit::Interrupted,
            Some(()) = hung_up(&mut self.hangup) => Exit::Killed,
        };
    }
    fn exit(&self) -> Exit {
        self.last
    }
}

async fn hung_up(hangup: &mut Option<Signal>) -> Option<()> {
    match hangup {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Whether whoever started us said that a hang-up is not for us.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    ignored.is_some_and(|ignored| ignored & 1 == 1)
}
