//! `doctor`: looks at everything around the runs that can go wrong, and says of each finding what mends it.
//!
//! Invariant: it only looks: no file is changed, no run goes on, no worker is started. What it cannot look at is a finding
//! too, so that a short list is never taken for good health. Model servers are asked for a connection only, without a key, and
//! only those that the configuration names, or, where it names none, those that listen on this machine where such servers do.
//!
//! Long: one finding after the other.

use std::net::ToSocketAddrs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use bosun_engine::{ListRequest, Timestamp};
use rustix::process::{Resource, getrlimit, getuid};
use serde_json::{Value, json};

use super::Program;
use super::args::Global;
use super::config::Loaded;
use super::error::CliError;
use super::exit::Exit;
use super::locate::{attach, attach_to, locate};
use super::output::{Cell, Screen, TextStyle};
use super::payload_store;
use super::time_format::now;
use crate::api::{WorkerFile, tokens};
use crate::backend::{Access, Backend};
use crate::capability::environment;
use crate::capability::model::ModelConfig;
use crate::closed_directory::is_store;
use crate::inbox::target_of;
use crate::notify::readable::{UnreadableChannel, unreadable};
use crate::notify::rules::channel::Notify;

/// A connection to a model server is waited for so long.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// A server of this machine answers at once, or not at all.
const CONNECT_LOCAL: Duration = Duration::from_millis(300);
/// Model servers of the OpenAI kind, and where they listen if nothing else is said.
const LOCAL_SERVERS: [(&str, &str); 2] = [("Ollama", "127.0.0.1:11434"), ("llama-server", "127.0.0.1:8080")];
/// Below this, a disk is nearly full; the worker itself keeps a reserve that is smaller.
const SPACE_LOW: u64 = 1 << 30;
const SPACE_GONE: u64 = 64 << 20;
/// A worker needs handles for the log, for clients, and for what its activities open.
const HANDLES_LOW: u64 = 1_024;
/// A run that started so far ahead of the clock was started by another clock.
const AHEAD: Duration = Duration::from_secs(60);
/// A store that takes no more is read whole: a second or a few.
const VERIFIED_MAX: u64 = 256 << 20;
/// Of the runs with the longest histories, so many are asked whether they are near a limit.
const LONGEST: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gravity {
    Good,
    Warning,
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diagnosis {
    pub what: &'static str,
    severity: Gravity,
    pub text: String,
    /// What to do about it.
    pub fix: Option<String>,
}

impl Diagnosis {
    fn good(what: &'static str, text: impl Into<String>) -> Diagnosis {
        Diagnosis { what, severity: Gravity::Good, text: text.into(), fix: None }
    }
    fn warning(what: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Diagnosis {
        Diagnosis { what, severity: Gravity::Warning, text: text.into(), fix: Some(fix.into()) }
    }
    fn bad(what: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Diagnosis {
        Diagnosis { what, severity: Gravity::Bad, text: text.into(), fix: Some(fix.into()) }
    }
    /// `ok`, `warning` or `problem`.
    pub(crate) fn word(&self) -> &'static str {
        match self.severity {
            Gravity::Good => "ok",
            Gravity::Warning => "warning",
            Gravity::Bad => "problem",
        }
    }
    fn json(&self) -> Value {
        json!({ "check": self.what, "severity": self.word(), "text": self.text, "fix": self.fix })
    }
}

/// Everything that can be looked at from here.
async fn look(global: &Global, loaded: &Loaded, program: &Program) -> Vec<Diagnosis> {
    let mut findings = Vec::new();
    // With an address the directory is the worker's, and may be on another machine.
    let is_here = global.address.is_none();
    if is_here {
        findings.extend(directory(&global.data));
        findings.extend(space(&global.data));
    }
    findings.push(handles(getrlimit(Resource::Nofile).maximum));
    findings.push(Diagnosis::good("process trees", crate::capability::process::guard::strategy()));
    findings.push(if is_here { worker(global).await } else { worker_there(global).await });
    findings.extend(store(global, program).await);
    if is_here {
        findings.extend(named_tokens(&global.data));
        findings.push(epoch(global));
    }
    findings.extend(payloads(global));
    findings.push(Diagnosis::good("configuration", loaded.told()));
    findings.extend(is_here.then(|| whose_environment(&global.data)).flatten());
    findings.extend(models(&ModelConfig::from_environment(&environment::var), &LOCAL_SERVERS).await);
    findings.extend(channels(&loaded.config.notify()).await);
    findings
}

pub(super) async fn doctor(
    screen: &mut Screen,
    global: &Global,
    loaded: &Loaded,
    program: &Program,
) -> Result<Exit, CliError> {
    let findings = look(global, loaded, program).await;
    let bad = findings.iter().filter(|finding| finding.severity == Gravity::Bad).count();
    let warnings = findings.iter().filter(|finding| finding.severity == Gravity::Warning).count();
    screen.object(
        "doctor",
        json!({ "findings": findings.iter().map(Diagnosis::json).collect::<Vec<_>>(), "problems": bad, "warnings": warnings }),
    );
    let paint = |finding: &Diagnosis| match finding.severity {
        Gravity::Good => TextStyle::Green,
        Gravity::Warning => TextStyle::Yellow,
        Gravity::Bad => TextStyle::Red,
    };
    let row = |finding: &Diagnosis| {
        vec![Cell::of(finding.word(), paint(finding)), finding.what.into(), finding.text.as_str().into()]
    };
    screen.table(&["state", "check", "finding"], findings.iter().map(row).collect())?;
    for finding in &findings {
        if let Some(fix) = &finding.fix {
            let fix = screen.reach.complete(fix);
            screen.line(format!("{}: {fix}", finding.what));
        }
    }
    if bad > 0 {
        screen.line(format!("{bad} of {} checks found a problem", findings.len()));
        return Ok(Exit::Error);
    }
    Ok(Exit::Ok)
}

/// What is looked at from here is this command's: a worker has an environment, limits and a configuration of its own.
fn whose_environment(data: &Path) -> Option<Diagnosis> {
    let file = WorkerFile::read(data).filter(WorkerFile::process_lives)?;
    let text = format!(
        "models, channels, limits and the configuration are looked at as this command has them; the worker {} says what it has \
         itself on its page /system?doctor=look (`bosun ui`)",
        file.pid
    );
    Some(Diagnosis::good("environment", text))
}

/// What a worker can say of itself from within: of its runs and store, its limits, and the models that it asks.
pub(crate) async fn of_worker(backend: &dyn Backend, build: &str) -> Vec<Diagnosis> {
    let found = runs(backend, build, now()).await;
    let mut all = found.unwrap_or_else(|why| vec![Diagnosis::bad("runs", why.message, why.help.unwrap_or_default())]);
    all.push(handles(getrlimit(Resource::Nofile).maximum));
    all.extend(models(&ModelConfig::from_environment(&environment::var), &LOCAL_SERVERS).await);
    all
}

/// Who owns it, and who else may read it.
fn directory(data: &Path) -> Vec<Diagnosis> {
    const WHAT: &str = "data directory";
    let shown = data.display();
    let about = match std::fs::metadata(data) {
        Ok(about) => about,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            let text = format!("{shown} is not there yet: the first `run`, `start` or `worker run` makes it");
            return vec![Diagnosis::good(WHAT, text)];
        }
        Err(why) => {
            return vec![Diagnosis::bad(WHAT, format!("{shown}: {why}"), "see to it that this user can read it")];
        }
    };
    if !about.is_dir() {
        let text = format!("{shown} is a file, and no data directory");
        return vec![Diagnosis::bad(WHAT, text, "name a directory with --data or BOSUN_STORE")];
    }
    let mut found = Vec::new();
    let open = about.permissions().mode() & 0o077;
    if open != 0 {
        let text = format!("{shown} can be read or entered by others (mode {:o})", about.permissions().mode() & 0o777);
        found.push(Diagnosis::warning(WHAT, text, format!("`chmod 700 {shown}`")));
    }
    if about.uid() != getuid().as_raw() {
        let text = format!("{shown} belongs to the user {}, and this is {}", about.uid(), getuid().as_raw());
        found.push(Diagnosis::warning(WHAT, text, "run commands as the user whose worker it is"));
    }
    if !is_store(data) {
        found.push(Diagnosis::warning(
            WHAT,
            format!("{shown} holds no store"),
            "look whether --data or BOSUN_STORE names the one you mean",
        ));
    } else if found.is_empty() {
        found.push(Diagnosis::good(WHAT, format!("{shown} is a store, and private")));
    }
    found
}

/// Named tokens open nothing for as long as their file cannot be read.
fn named_tokens(data: &Path) -> Option<Diagnosis> {
    let why = tokens::list(data).err()?;
    let fix = "bring the file back from a copy, or remove it and give out new tokens (`bosun token create`)";
    Some(Diagnosis::bad("tokens", format!("{why}; no named token opens anything until it can be read"), fix))
}

fn space(data: &Path) -> Option<Diagnosis> {
    const WHAT: &str = "disk";
    let place = data.ancestors().find(|place| place.exists()).filter(|place| !place.as_os_str().is_empty());
    let stat = match rustix::fs::statvfs(place.unwrap_or(Path::new("."))) {
        Ok(stat) => stat,
        Err(why) => {
            return Some(Diagnosis::bad(
                WHAT,
                format!("the disk cannot be looked at: {why}"),
                "see to the file system",
            ));
        }
    };
    let (free, inodes) = (stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_favail);
    let text = format!("{} MiB are free", free >> 20);
    let fix = "make room: `bosun store gc` and `bosun store compact` with no worker running, a shorter `worker.retention`, or a larger disk";
    Some(match free {
        _ if stat.f_files > 0 && inodes < 1_000 => {
            Diagnosis::bad(WHAT, format!("{inodes} files more can be made"), fix)
        }
        0..SPACE_GONE => Diagnosis::bad(WHAT, text, fix),
        SPACE_GONE..SPACE_LOW => Diagnosis::warning(WHAT, text, fix),
        _ => Diagnosis::good(WHAT, text),
    })
}

/// The worker raises its limit as far as it may.
fn handles(most: Option<u64>) -> Diagnosis {
    match most {
        Some(most) if most < HANDLES_LOW => Diagnosis::warning(
            "open files",
            format!("a worker may have {most} files open"),
            "raise the limit of open files (`ulimit -Hn`, `LimitNOFILE=` in a unit): connections take what the log leaves",
        ),
        most => Diagnosis::good(
            "open files",
            most.map_or_else(|| "no limit".to_owned(), |most| format!("a worker may have {most}")),
        ),
    }
}

async fn worker(global: &Global) -> Diagnosis {
    const WHAT: &str = "worker";
    let Some(file) = WorkerFile::read(&global.data) else {
        return Diagnosis::good(
            WHAT,
            "none runs: commands open the directory themselves, and only `run` and `worker run` carry runs on",
        );
    };
    if !file.process_lives() {
        let text = format!("the worker {} has left its file: it was killed", file.pid);
        return Diagnosis::warning(WHAT, text, "`bosun worker run` goes on where it was");
    }
    match attach_to(&file, global).await {
        Ok(Some(_)) if file.version != super::VERSION => Diagnosis::warning(
            WHAT,
            format!("the worker {} is of version {}, this command of {}", file.pid, file.version, super::VERSION),
            "start the worker again with this version, after `bosun replay check --query \"ExecutionStatus = 'Running'\"`",
        ),
        Ok(Some(client)) => match client.worker_state().await {
            Ok(state) if state.slots == 0 || state.external_slots == 0 => Diagnosis::warning(
                WHAT,
                format!("the worker {} has no slots: activities wait, and none starts", file.pid),
                "start it with `--slots N` and `--external-slots N`, or without both",
            ),
            _ => Diagnosis::good(WHAT, format!("the worker {} answers at {}", file.pid, file.address)),
        },
        Ok(None) => Diagnosis::bad(
            WHAT,
            format!("the process {} lives, but nobody with the token answers at {}", file.pid, file.address),
            "look with `ps` what it is: end it if it is a worker that hangs; if it is another program, `bosun worker run` can start",
        ),
        Err(why) => {
            Diagnosis::bad(WHAT, why.message, why.help.unwrap_or_else(|| "run as the user of the worker".to_owned()))
        }
    }
}

/// The one at the address that was given.
async fn worker_there(global: &Global) -> Diagnosis {
    const WHAT: &str = "worker";
    let address = global.address.as_deref().unwrap_or_default();
    let asked = async { Ok::<_, CliError>(attach(address, global).await?.worker_state().await?) };
    match asked.await {
        Ok(state) if state.slots == 0 || state.external_slots == 0 => Diagnosis::warning(
            WHAT,
            format!("the worker at {address} has no slots: activities wait, and none starts"),
            "start it with `--slots N` and `--external-slots N`, or without both",
        ),
        Ok(_) => Diagnosis::good(
            WHAT,
            format!("it answers at {address}; its directory and disk are looked at where it runs"),
        ),
        Err(why) => Diagnosis::bad(WHAT, why.message, why.help.unwrap_or_else(|| "look whether it runs".to_owned())),
    }
}

/// What the store and its runs say.
async fn store(global: &Global, program: &Program) -> Vec<Diagnosis> {
    if !is_store(&global.data) && global.address.is_none() {
        return Vec::new();
    }
    let located = match locate(global, &*program.opener, &Access::Look).await {
        Ok(located) => located,
        Err(why) => {
            let fix = why.help.clone().unwrap_or_else(|| format!("`bosun explain {}`", why.code));
            return vec![Diagnosis::bad("store", why.message, fix)];
        }
    };
    let backend = located.backend(None);
    let build = program.opener.workflows().build_id();
    let found = runs(&*backend, &build.to_string(), now()).await;
    let mut found = found.unwrap_or_else(|why| vec![Diagnosis::bad("runs", why.message, why.help.unwrap_or_default())]);
    found.push(verified(&*backend).await);
    if let super::locate::LocatedEngine::Embedded(engine, _) = located {
        engine.drain(Duration::from_secs(1)).await;
    }
    found
}

/// Whether everything that is stored is what was written, where looking at all of it takes a moment only.
async fn verified(backend: &dyn Backend) -> Diagnosis {
    const WHAT: &str = "stored data";
    const FIX: &str = "`bosun store verify` tells every place; `bosun explain BOSUN0028`";
    let bytes = match backend.store_info().await {
        Ok(info) => info["bytes_on_disk"].as_u64(),
        Err(why) => {
            let text = format!("it could not be read: {}", CliError::from(why).message);
            return Diagnosis::warning(WHAT, text, FIX);
        }
    };
    if bytes.is_none_or(|bytes| bytes > VERIFIED_MAX) {
        return Diagnosis::good(WHAT, "it was not read: `bosun store verify` reads and checks all of it");
    }
    match backend.verify().await {
        Err(why) => Diagnosis::warning(WHAT, format!("it could not be read: {}", CliError::from(why).message), FIX),
        Ok(report) => {
            let found: Vec<String> = report["findings"].as_array().into_iter().flatten().map(finding_text).collect();
            match found.len() {
                0 => Diagnosis::good(
                    WHAT,
                    format!("all {} groups and {} payloads are whole", report["groups"], report["blobs"]),
                ),
                _ => Diagnosis::bad(WHAT, few(&found), FIX),
            }
        }
    }
}

fn finding_text(finding: &Value) -> String {
    finding["detail"].as_str().map_or_else(|| finding.to_string(), str::to_owned)
}

/// What an isolation or a salvage has left to do.
fn damage_of_before(info: &Value) -> Vec<Diagnosis> {
    let texts = |field: &str| {
        let all = info[field].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let (lost, copies) = (texts("runs_lost"), texts("damaged_copies"));
    let mut found = Vec::new();
    if !lost.is_empty() {
        let text = format!("of {} runs nothing is left but their ids: {}", lost.len(), few(&lost));
        let help = "`bosun store restore BACKUP --to NEW` brings a backup back, in a new directory; else start their work again";
        found.push(Diagnosis::bad("lost runs", text, help));
    }
    if !copies.is_empty() {
        let text =
            format!("{} damaged copies of the store are kept, each as large as it: {}", copies.len(), few(&copies));
        found.push(Diagnosis::bad(
            "damage",
            text,
            "move them away, or delete them, when their runs are no longer needed",
        ));
    }
    found
}

/// The first few of them.
fn few(all: &[String]) -> String {
    const SHOWN: usize = 5;
    let more = if all.len() > SHOWN { format!(" and {} more", all.len() - SHOWN) } else { String::new() };
    all[..all.len().min(SHOWN)].join(", ") + &more
}

async fn runs(backend: &dyn Backend, build: &str, now: Timestamp) -> Result<Vec<Diagnosis>, CliError> {
    const OPEN: &str = "ExecutionStatus IN ('Running', 'Paused')";
    let info = backend.store_info().await?;
    let (open, all) = (backend.count(OPEN.to_owned()).await?, backend.count(String::new()).await?);
    let mut found = vec![Diagnosis::good("store", format!("it can be read; {open} runs are open, {all} in all"))];
    if let Some(why) = info["epoch"]["why"].as_str() {
        found.push(Diagnosis::bad("epoch", why, "`bosun explain BOSUN0028`"));
    }
    let newest = backend.list(ListRequest { query: String::new(), limit: 1 }).await?;
    found.push(match newest.first() {
        Some(run) if run.started_at.since(now) > AHEAD => Diagnosis::bad(
            "clock",
            format!("the newest run, {}, started at {}, which is in the future", run.workflow_id, run.started_at),
            "set the clock right: timers wait for the time that was recorded",
        ),
        _ => Diagnosis::good("clock", "no run is from the future"),
    });
    let held = backend.count("Held = true".to_owned()).await?;
    found.push(if held == 0 {
        Diagnosis::good("held runs", "none")
    } else {
        let text = format!("{held} open runs are held: their code does not fit, or they are damaged");
        Diagnosis::bad("held runs", text, "`bosun list --query \"Held = true\"`, then `bosun describe ID`")
    });
    found.extend(damage_of_before(&info));
    let older = backend.count(format!("BuildId != '{build}' AND {OPEN}")).await?;
    found.push(if older == 0 {
        Diagnosis::good("code", "all open runs began with the code of this program")
    } else {
        let text = format!("{older} open runs began with other code than that of this program");
        Diagnosis::warning("code", text, format!("`bosun replay check --query \"{OPEN}\"` says whether it fits"))
    });
    let query = format!("{OPEN} ORDER BY HistoryLength DESC");
    let mut near = Vec::new();
    for run in backend.list(ListRequest { query, limit: LONGEST }).await? {
        let warnings = backend.describe(target_of(&run)).await?.warnings;
        near.extend(warnings.into_iter().map(|why| format!("{}: {why}", run.workflow_id)));
    }
    found.push(match near.len() {
        0 => Diagnosis::good("histories", "none is near a limit"),
        _ => Diagnosis::warning("histories", near.join("; "), "continue these runs as new, or `bosun describe ID`"),
    });
    Ok(found)
}

fn epoch(global: &Global) -> Diagnosis {
    match &global.epoch_file {
        Some(file) => Diagnosis::good("epoch file", format!("{} tells when an older copy is put back", file.display())),
        None => Diagnosis::good(
            "epoch file",
            "none: an older copy of the directory that is put back is not noticed (--epoch-file)",
        ),
    }
}

/// Where a cluster's large payloads are, if that is named.
fn payloads(global: &Global) -> Option<Diagnosis> {
    const WHAT: &str = "payload store";
    let store = payload_store::named(global)?;
    Some(match payload_store::told(&store.directory) {
        Ok(text) => Diagnosis::good(WHAT, text),
        Err(why) => {
            Diagnosis::bad(WHAT, why, "mount it, or name another with --payload-store; `bosun explain BOSUN0051`")
        }
    })
}

/// What listens where model servers of this machine do, and the lines that use it. No model is asked anything.
async fn local_servers(places: &[(&str, &str)]) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    for (name, address) in places {
        let connect = tokio::net::TcpStream::connect(*address);
        if !matches!(tokio::time::timeout(CONNECT_LOCAL, connect).await, Ok(Ok(_))) {
            continue;
        }
        let text = format!("something listens at {address}, where {name} does, and no provider is configured here");
        let fix = format!(
            "if it is {name}, `export OPENAI_BASE_URL=http://{address}/v1` lets runs use it where they work; \
             `bosun llm models openai` then lists its models, and `export BOSUN_MODEL=NAME` picks the one that is asked"
        );
        found.push(Diagnosis { fix: Some(fix), ..Diagnosis::good("models", text) });
    }
    found
}

async fn models(config: &ModelConfig, local: &[(&str, &str)]) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    if let Some(why) = &config.problem {
        found.push(Diagnosis::bad("models", why.as_str(), "correct the variable or the file that it names"));
    }
    if config.providers.is_empty() {
        if config.allow_requests {
            found.extend(local_servers(local).await);
        }
        found.push(Diagnosis::good("models", "no provider is configured here; scripted models need none"));
    } else if !config.allow_requests {
        found.push(Diagnosis::good("models", "BOSUN_ALLOW_MODEL_REQUESTS forbids to ask them"));
        return found;
    }
    for (name, provider) in &config.providers {
        let place = provider.place();
        if let Some(why) = provider.problem() {
            let text = format!("{name}: {place}: every call is refused: {why}");
            found.push(Diagnosis::bad("models", text, "correct the variable or the file that names it"));
            continue;
        }
        found.push(match connected(&provider.base_url).await {
            Ok(()) => Diagnosis::good("models", format!("{name}: {place} takes connections")),
            Err(why) => Diagnosis::warning(
                "models",
                format!("{name}: {place} cannot be reached: {why}"),
                "calls of this model wait and are tried again; look at the network, a proxy, or the address",
            ),
        });
    }
    found
}

/// Whether what the channels of notifications name can be read here. The worker may have another environment.
async fn channels(notify: &Notify) -> Vec<Diagnosis> {
    const WHAT: &str = "notifications";
    let found = unreadable(notify).await;
    if found.is_empty() {
        return match notify.channels.len() {
            0 => Vec::new(),
            n => {
                vec![Diagnosis::good(WHAT, format!("{n} of {n} channels can be used; `bosun notify test` tells each"))]
            }
        };
    }
    let told = |one: UnreadableChannel| {
        let text = format!("nobody is told by the channel {}: {}", one.channel, one.why);
        let fix = "set it where the worker runs, too (`EnvironmentFile=` of its unit), start that again, then `bosun notify test`";
        Diagnosis::warning(WHAT, text, fix)
    };
    found.into_iter().map(told).collect()
}

/// Whether anybody listens there.
async fn connected(url: &str) -> Result<(), String> {
    let url = reqwest::Url::parse(url).map_err(|why| why.to_string())?;
    let host = url.host_str().ok_or("it names no host")?.trim_matches(['[', ']']).to_owned();
    let port = url.port_or_known_default().ok_or("it names no port")?;
    let looked_up = tokio::task::spawn_blocking(move || (host.as_str(), port).to_socket_addrs());
    let connect = async {
        let all = looked_up.await.map_err(|why| why.to_string())?.map_err(|why| why.to_string())?;
        let mut last = "its name has no address".to_owned();
        for address in all {
            match tokio::net::TcpStream::connect(address).await {
                Ok(_) => return Ok(()),
                Err(why) => last = why.to_string(),
            }
        }
        Err(last)
    };
    tokio::time::timeout(CONNECT_MAX, connect).await.unwrap_or_else(|_| Err("nobody answered within 3 s".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_can_read_is_told() {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        assert!(directory(&data)[0].text.contains("not there yet"));
        std::fs::create_dir(&data).unwrap();
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
        let found = directory(&data);
        assert_eq!(found[0].fix.as_deref(), Some(format!("`chmod 700 {}`", data.display()).as_str()));
        assert!(found[1].text.contains("holds no store"), "{found:?}");
    }

    #[test]
    fn tokens_that_cannot_be_read_are_told() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(named_tokens(data.path()), None);
        std::fs::write(data.path().join("tokens.json"), "{ \"version\": 1, \"tokens\": [{}] }").unwrap();
        let found = named_tokens(data.path()).unwrap();
        assert!(found.severity == Gravity::Bad && found.text.contains("tokens.json"), "{found:?}");
    }

    #[test]
    fn few_handles_are_told() {
        assert_eq!(handles(Some(256)).severity, Gravity::Warning);
        assert_eq!(handles(Some(4_096)).severity, Gravity::Good);
        assert_eq!(handles(None).severity, Gravity::Good);
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_told_and_one_that_is_there_is_not() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        assert_eq!(connected(&format!("http://{address}/v1")).await, Ok(()));
        drop(server);
        assert!(connected(&format!("http://{address}/v1")).await.is_err());
        assert!(connected("not a url").await.is_err());
    }

    #[tokio::test]
    async fn a_model_server_of_this_machine_is_told_with_the_line_that_uses_it() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap().to_string();
        let none = ModelConfig::from_environment(&|_| None);
        let told = models(&none, &[("Ollama", &address)]).await;
        let fix = told[0].fix.clone().unwrap_or_default();
        assert_eq!((told[0].word(), told.len()), ("ok", 2), "{told:?}");
        assert!(fix.contains(&format!("export OPENAI_BASE_URL=http://{address}/v1")), "{fix}");
        // Whoever has named a provider is told of that one.
        let named = |name: &str| (name == "OPENAI_BASE_URL").then(|| format!("http://{address}/v1"));
        let told = models(&ModelConfig::from_environment(&named), &[("Ollama", &address)]).await;
        assert!(told.iter().all(|one| one.fix.is_none()), "{told:?}");
        // Nobody is shown what may be a key, and who would be refused is not told that all is well.
        let with_key =
            |name: &str| (name == "OPENAI_BASE_URL").then(|| format!("http://me:s3cret@{address}/v1?key=s3cret"));
        let told = models(&ModelConfig::from_environment(&with_key), &[]).await;
        assert!(told[0].severity == Gravity::Bad && told[0].text.contains(&address), "{told:?}");
        assert!(!format!("{told:?}").contains("s3cret"), "{told:?}");
        drop(server);
        assert_eq!(models(&none, &[("Ollama", &address)]).await.len(), 1, "nobody is there");
    }
}
