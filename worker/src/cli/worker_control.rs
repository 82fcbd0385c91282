//! `worker describe|drain|stop`: what the worker of a data directory is and does, and its end.
//!
//! Invariant: a process gets a signal only when it has proved to be the worker of this directory: `worker.json` may be left
//! from one that was killed, and its process id may be another's by now. Whoever ends a worker waits until it is gone.

use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::locate::{attach, attach_to, no_store};
use super::output::Screen;
use super::time_format::parse_duration;
use crate::api::{HttpClient, TokenRole, WorkerFile};

#[derive(Debug, Args)]
pub struct DrainArgs {
    /// How long to wait until it is gone.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    timeout: Duration,
}

/// The worker of the data directory, after it has proved who it is.
async fn found(global: &Global) -> Result<(WorkerFile, HttpClient), CliError> {
    let nobody = || CliError::new(Code::Unreachable, format!("no worker holds {}", global.data.display()));
    let Some(file) = WorkerFile::read(&global.data).filter(WorkerFile::process_lives) else {
        no_store(&global.data)?;
        return Err(nobody().help("`bosun worker run` starts one"));
    };
    match attach_to(&file, global).await? {
        Some(client) => Ok((file, client)),
        None => Err(nobody()
            .cause(format!(
                "{} names the process {}, which lives, but nobody with the token answers at {}",
                WorkerFile::path(&global.data).display(),
                file.pid,
                file.address
            ))
            .help("it may be starting or hanging, or the process id is another program's by now: look with `ps`")),
    }
}

pub(super) async fn describe(screen: &mut Screen, global: &Global) -> Result<Exit, CliError> {
    let (address, client) = match &global.address {
        Some(address) => (address.clone(), attach(address, global).await?),
        None => found(global).await.map(|(file, client)| (file.address, client))?,
    };
    let mut facts = client.worker_facts().await?;
    facts["address"] = address.clone().into();
    screen.object("worker.describe", facts.clone());
    screen.field("worker", format!("{} (version {})", text(&facts["pid"]), text(&facts["version"])));
    screen.field("address", &address);
    screen.field("health", text(&facts["health"]["status"]));
    if let Some(why) = facts["health"]["why"].as_str() {
        screen.field("", why);
    }
    screen.field("build", text(&facts["build_id"]));
    let busy = |slots: &Value| format!("{} of {}", text(&slots["busy"]), text(&slots["all"]));
    let (all, external) = (busy(&facts["slots"]), busy(&facts["slots"]["external"]));
    screen.field("slots", format!("{all} busy; for programs, models, MCP and HTTP {external}"));
    let queues: Vec<String> = facts["task_queues"].as_array().into_iter().flatten().map(text).collect();
    screen.field("task queues", if queues.is_empty() { "all".to_owned() } else { queues.join(", ") });
    for (queue, waiting) in facts["waiting_by_queue"].as_object().into_iter().flatten() {
        screen.field("waiting", format!("{waiting} in {queue}"));
    }
    screen.field("memory", format!("{} MiB for runs", facts["memory_bytes"].as_u64().unwrap_or_default() >> 20));
    if facts["lost_threads"].as_u64().unwrap_or_default() > 0 {
        screen.field("lost threads", format!("{}: code of a run does not come back", facts["lost_threads"]));
    }
    let types: Vec<String> = facts["workflow_types"].as_array().into_iter().flatten().map(text).collect();
    screen.field("workflow types", types.join(", "));
    screen.next("bosun queue list");
    Ok(Exit::Ok)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Ends the worker: after what runs has ended, or at once (`now`).
// long: each refusal on its own, before the signal.
pub(super) async fn end(screen: &mut Screen, global: &Global, args: &DrainArgs, now: bool) -> Result<Exit, CliError> {
    if let Some(address) = &global.address {
        return Err(CliError::usage(format!(
            "the worker at {address} is named by its address, and may be on another machine"
        ))
        .help("name its data directory with --data, on its own machine"));
    }
    let (file, client) = found(global).await?;
    if file.of_a_run {
        return Err(CliError::new(
            Code::Failed,
            format!("the process {} is a command that works for one run", file.pid),
        )
        .help("interrupt that command: the run stays, and the same command goes on with it"));
    }
    let facts = client.worker_facts().await?;
    // The signal needs no token; the token says all the same what its owner was given to do.
    let role: Option<TokenRole> = serde_json::from_value(facts["role"].clone()).unwrap_or_default();
    if let Some(role) = role.filter(|role| *role < TokenRole::Operator) {
        let why = format!("to end a worker needs the role {}; this token has {role}", TokenRole::Operator);
        return Err(CliError::new(Code::Forbidden, why));
    }
    // It is the worker of every namespace.
    if facts["sees_all"] == false {
        let why = "a worker serves every namespace, and this token is for some only: ask who has a token for all";
        return Err(CliError::new(Code::Forbidden, why));
    }
    let says = facts["pid"].as_u64();
    if says != Some(u64::from(file.pid)) {
        return Err(CliError::new(Code::Failed, "the worker runs under another process id than its file says")
            .help("it is in another container: end it there"));
    }
    let cannot = |why: &dyn ToString| {
        CliError::new(Code::Failed, format!("the process {} cannot be told to end", file.pid)).cause(why.to_string())
    };
    let pid = i32::try_from(file.pid).ok().and_then(Pid::from_raw).ok_or_else(|| cannot(&"it is no process id"))?;
    kill_process(pid, Signal::TERM).map_err(|why| cannot(&why))?;
    if now {
        // The second one ends it without waiting. It has to arrive after the first was taken.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let _ = kill_process(pid, Signal::TERM);
    }
    let began = Instant::now();
    while file.process_lives() {
        if began.elapsed() > args.timeout {
            return Err(CliError::new(
                Code::StillOpen,
                format!("the worker {} was told to end and is still there", file.pid),
            )
            .help("`bosun worker stop` ends it at once; what is recorded stays"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    screen.object("worker.ended", serde_json::json!({ "pid": file.pid, "drained": !now }));
    screen.line(format!("worker {} has ended", file.pid));
    Ok(Exit::Ok)
}
