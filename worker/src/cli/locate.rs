//! Finds the engine of a data directory: attached to the worker that holds it, or embedded in this process; or the cluster that
//! the command line names, which wins over any directory.
//!
//! Invariant: a worker that lives and answers is always preferred; a directory that somebody else holds is never
//! waited for longer than five seconds. `worker.json` is a hint: only a living process that answers counts.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bosun_engine::{DEFAULT_NAMESPACE, Namespace};

use super::args::Global;
use super::context::identity;
use super::error::CliError;
use super::explain::Code;
use super::holder::{caller_of, seen_by};

use crate::api::authority::CallerBackend;
use crate::api::{Caller, HttpClient, Token, WorkerFile};
use crate::backend::{Access, Backend, CallError, ClusterPlace, Engine, Histories, OfEngine, OpenEngine, OpenError};
use crate::closed_directory::is_store;

/// A worker that is starting writes its file, and a command that visits is done, well within this time.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);
/// Runs of a cluster that stay in memory, as the official SDKs have it.
pub(super) const CACHED_RUNS: usize = 1_000;

/// What was found.
pub(super) enum LocatedEngine {
    Attached(HttpClient),
    /// In this process, or of a cluster; for whoever may open it, or for whom the token names that was given.
    Embedded(Arc<dyn Engine>, Option<Caller>),
}

impl LocatedEngine {
    /// As whoever the system says we are, and in one namespace only where one is given. Who opens the directory may do
    /// everything, unless a token was named; a worker decides by the token what it makes of us.
    pub(super) fn backend(&self, namespace: Option<&Namespace>) -> Arc<dyn Backend> {
        let namespaces = namespace.map(|namespace| [namespace.clone()].into());
        let caller = Caller { name: identity().to_string(), namespaces, ..Caller::owner() };
        Arc::new(CallerBackend::new(self.anywhere(), caller))
    }

    fn anywhere(&self) -> Arc<dyn Backend> {
        match self {
            LocatedEngine::Attached(client) => Arc::new(client.clone()),
            LocatedEngine::Embedded(engine, None) => engine.backend(),
            LocatedEngine::Embedded(engine, Some(caller)) => {
                Arc::new(CallerBackend::new(engine.backend(), caller.clone()))
            }
        }
    }
}

pub(super) async fn locate(
    global: &Global,
    opener: &dyn OpenEngine,
    purpose: &Access,
) -> Result<LocatedEngine, CliError> {
    if let Some(address) = &global.address {
        return attach(address, global).await.map(LocatedEngine::Attached);
    }
    is_no_file(&global.data)?;
    if let Some(place) = cluster_of(global)? {
        if matches!(purpose, Access::Work { .. }) {
            make_data_directory(&global.data)?;
        }
        let caller = caller_of(global, purpose)?;
        return Ok(LocatedEngine::Embedded(opener.open_cluster(&place, &global.data, purpose).await?, caller));
    }
    match purpose {
        // The opener looks whether it is a store; nothing is made.
        Access::Visit { create: false } | Access::Look if global.data.exists() => {}
        Access::Visit { create: false } | Access::Look => no_store(&global.data)?,
        Access::Visit { create: true } | Access::Work { .. } => make_data_directory(&global.data)?,
    }
    let began = Instant::now();
    loop {
        let file = WorkerFile::read(&global.data).filter(WorkerFile::process_lives);
        if let Some(file) = &file
            && let Some(client) = attach_to(file, global).await?
        {
            return Ok(LocatedEngine::Attached(client));
        }
        // Where a worker holds the directory it is for that to say what a token is worth.
        let caller = caller_of(global, purpose);
        // For a token that opens nothing nothing is begun or made.
        let purpose = if caller.is_ok() { purpose } else { &Access::Look };
        match opener.open(&global.data, purpose).await {
            Ok(engine) => return Ok(LocatedEngine::Embedded(engine, caller?)),
            // Somebody is starting, stopping or visiting: the next look may find a worker or a free directory.
            Err(OpenError::Locked(_)) if began.elapsed() < PATIENCE => tokio::time::sleep(PAUSE).await,
            Err(why @ OpenError::Locked(_)) => return Err(locked(why, file.as_ref(), &global.data)),
            Err(why) => return Err(why.into()),
        }
    }
}

/// Where recorded runs can be read.
pub(super) enum Readable {
    /// From the worker that holds the directory.
    Attached(HttpClient),
    /// From the directory itself, which nobody holds, without an engine.
    Closed(Arc<dyn Histories>),
}

impl Readable {
    pub(super) fn histories(&self) -> Arc<dyn Histories> {
        match self {
            Readable::Attached(client) => Arc::new(OfEngine(Arc::new(client.clone()))),
            Readable::Closed(histories) => histories.clone(),
        }
    }
}

/// Where the histories of a data directory can be read. Starts no engine and makes no directory.
pub(super) async fn locate_histories(global: &Global, opener: &dyn OpenEngine) -> Result<Readable, CliError> {
    if let Some(address) = &global.address {
        return attach(address, global).await.map(Readable::Attached);
    }
    is_no_file(&global.data)?;
    if let Some(place) = cluster_of(global)? {
        let caller = caller_of(global, &Access::Look)?;
        let engine = opener.open_cluster(&place, &global.data, &Access::Look).await?;
        return Ok(Readable::Closed(seen_by(Arc::new(OfEngine(engine.backend())), caller)));
    }
    let began = Instant::now();
    loop {
        let file = WorkerFile::read(&global.data).filter(WorkerFile::process_lives);
        if let Some(file) = &file
            && let Some(client) = attach_to(file, global).await?
        {
            return Ok(Readable::Attached(client));
        }
        let caller = caller_of(global, &Access::Look);
        match opener.histories(&global.data).await {
            Ok(histories) => return Ok(Readable::Closed(seen_by(histories, caller?))),
            Err(OpenError::Locked(_)) if began.elapsed() < PATIENCE => tokio::time::sleep(PAUSE).await,
            Err(why @ OpenError::Locked(_)) => return Err(locked(why, file.as_ref(), &global.data)),
            Err(why) => return Err(why.into()),
        }
    }
}

/// The cluster that the command line names, if it names one.
pub(super) fn cluster_of(global: &Global) -> Result<Option<ClusterPlace>, CliError> {
    let Some(address) = global.temporal.clone() else { return Ok(None) };
    let (namespace, api_key) = (Namespace::new(&global.namespace)?, global.temporal_api_key.clone());
    Ok(Some(ClusterPlace {
        address,
        namespace,
        identity: identity(),
        cached_runs: CACHED_RUNS,
        api_key,
        deployment: None,
        payload_store: super::payload_store::named(global),
    }))
}

/// Who names no namespace means that of the cluster's environment, if it names one. Who names `default` means that.
pub(super) fn in_namespace_of_cluster(global: &mut Global, opener: &dyn OpenEngine) -> Result<(), CliError> {
    if !global.namespace_named
        && global.namespace == DEFAULT_NAMESPACE
        && let Some(place) = cluster_of(global)?
        && let Some(named) = opener.namespace_of_cluster(&place)?
    {
        global.namespace = named;
    }
    Ok(())
}

/// Whoever sees one namespace means that where none is named, as the API has it. Only a token that somebody names may be one
/// of those; a worker that does not answer is told of by whoever needs it.
pub(super) async fn in_namespace_of_token(global: &mut Global) {
    if global.namespace_named || global.temporal.is_some() || global.token_file.is_none() {
        return;
    }
    let client = match (&global.address, WorkerFile::read(&global.data).filter(WorkerFile::process_lives)) {
        (Some(address), _) => attach(address, global).await.ok(),
        (None, Some(file)) => attach_to(&file, global).await.ok().flatten(),
        (None, None) => None,
    };
    let Some(client) = client else {
        // What is wrong with the token is told by whoever needs it.
        let caller = caller_of(global, &Access::Look).ok().flatten();
        if let Some(own) = caller.as_ref().and_then(Caller::only_namespace) {
            own.as_str().clone_into(&mut global.namespace);
        }
        return;
    };
    let facts = client.worker_facts().await.unwrap_or_default();
    if let Some(own) = facts["only_namespace"].as_str() {
        own.clone_into(&mut global.namespace);
    }
}

/// A data directory is a directory: a file in its place is named as what it is, whatever was to be done with it.
pub(super) fn is_no_file(data: &Path) -> Result<(), CliError> {
    match std::fs::metadata(data) {
        Ok(about) if !about.is_dir() => {
            let message = format!("{} is a file, and no data directory", data.display());
            Err(CliError::new(Code::NoStore, message).help("name a directory with --data or BOSUN_STORE"))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Looking makes nothing: a directory that is no store stays as it is, and is called what it is.
pub(super) fn no_store(data: &Path) -> Result<(), CliError> {
    is_no_file(data)?;
    if is_store(data) {
        return Ok(());
    }
    let message = format!("there is no store at {}", data.display());
    Err(CliError::new(Code::NoStore, message).help("name an existing directory with --data or BOSUN_STORE"))
}

/// What lies beside a store: of the shell's own, and `lost+found`, which is the file system's where the directory is all of a
/// disk.
const BESIDE: [&str; 4] = ["demo", "links", "lost+found", "notified"];
/// Entries of others that are named at most.
const OTHERS_SHOWN: usize = 3;

/// A directory that holds other things is nobody's data directory: a home or a source tree would be strewn with the files of a
/// store, and closed to everybody else.
fn holds_nothing_else(data: &Path) -> Result<(), CliError> {
    // Of a cluster there is no store, but a token; what activities keep beside it is theirs.
    if is_store(data) || data.join("token").is_file() {
        return Ok(());
    }
    let entries = match std::fs::read_dir(data) {
        Ok(entries) => entries,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(CliError::new(Code::Failed, format!("cannot look into {}", data.display())).cause(why)),
    };
    let is_own = |name: &str| {
        // With what is behind a dot: keys, and files that are being written.
        let first = name.split('.').next().unwrap_or_default();
        bosun_engine::log::is_entry_of_store(name) || BESIDE.contains(&first)
    };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut others: Vec<String> = names.filter(|name| !is_own(name)).collect();
    if others.is_empty() {
        return Ok(());
    }
    others.sort();
    let more = if others.len() > OTHERS_SHOWN { ", …" } else { "" };
    others.truncate(OTHERS_SHOWN);
    let message =
        format!("{} is no data directory: it holds other things ({}{more})", data.display(), others.join(", "));
    Err(CliError::new(Code::OtherDirectory, message)
        .help("name a directory that is new or empty with --data or BOSUN_STORE; nothing was made"))
}

/// Histories may hold what is nobody else's business.
pub(super) fn make_data_directory(data: &Path) -> Result<(), CliError> {
    is_no_file(data)?;
    holds_nothing_else(data)?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(data);
    made.map_err(|why| CliError::new(Code::Failed, format!("cannot create {}", data.display())).cause(why))
}

fn locked(why: OpenError, file: Option<&WorkerFile>, data: &Path) -> CliError {
    let error = CliError::from(why);
    match file {
        Some(file) => error.cause(format!(
            "the worker with pid {} lives, but nobody answers at {} ({})",
            file.pid,
            file.address,
            WorkerFile::path(data).display()
        )),
        None => error.cause(format!("there is no {} of a living worker", WorkerFile::path(data).display())),
    }
}

/// The client of an address that was named.
pub(super) async fn attach(address: &str, global: &Global) -> Result<HttpClient, CliError> {
    let file = match &global.token_file {
        Some(file) => file.clone(),
        None => WorkerFile::read(&global.data).map_or_else(|| global.data.join("token"), |worker| worker.token_file),
    };
    let token = read_token(&file);
    // Whether anybody is there comes first: nobody needs a token for an address that does not answer.
    let asked = token.as_ref().map_or_else(|_| Token::of(""), Token::clone);
    let client = HttpClient::new(address, asked, &file.to_string_lossy())?;
    match (client.prove().await, token) {
        (Ok(()), Ok(_)) => Ok(client),
        (Err(why @ CallError::Unreachable { .. }), _) => Err(nobody_answers(address, why)),
        (_, Err(why)) => Err(why.help("--token-file names the token of the worker at this address")),
        (Err(why), Ok(_)) => Err(why.into()),
    }
}

fn nobody_answers(address: &str, why: CallError) -> CliError {
    let error = CliError::new(Code::Unreachable, format!("no worker answers at {address}"));
    let error = match why {
        CallError::Unreachable { why, .. } => error.cause(why),
        other => error.cause(other),
    };
    error.help("`bosun worker run` prints its address; without --address the command finds the worker through --data")
}

/// The client of a worker that left its file; nothing when it does not answer, or when somebody else does: the file may be
/// of a worker that was killed, and its port and its process id may be others' by now. A worker that is there and has no place
/// for one more connection is an error: nobody else can open its directory.
pub(super) async fn attach_to(file: &WorkerFile, global: &Global) -> Result<Option<HttpClient>, CliError> {
    let token_file = global.token_file.as_ref().unwrap_or(&file.token_file);
    let client = HttpClient::new(&file.address, read_token(token_file)?, &token_file.to_string_lossy())?;
    match client.prove().await {
        Ok(()) => Ok(Some(client)),
        Err(CallError::Unreachable { .. } | CallError::Unproven { .. }) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

pub(super) fn read_token(file: &Path) -> Result<Token, CliError> {
    Token::read(file).map_err(|why| CliError::new(Code::Unauthorized, why.to_string()))
}
