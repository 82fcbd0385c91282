//! `migrate`: open runs go on in another engine: from a data directory to a Temporal cluster, or back.
//!
//! Invariant: which runs go, and why others stay, is said run by run; the same command goes on where it was cut off. How a run
//! is moved stands in `migration`; this file finds both engines, reads and prints.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bosun_engine::*;
use clap::Args;
use serde_json::{Value, json};

use super::args::{ExactRun, Global};
use super::context::{Context, identity};
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::list::{counted, known_attributes, shell_word};
use super::locate::{LocatedEngine, locate, no_store};
use super::resolve::resolve;
use super::time_format::parse_duration;
use crate::backend::{Access, OpenEngine};
use crate::capability::model::SecretRef;
use crate::migration::{MOVES, Move, NotMoved, move_run, stay};

/// A list gives no more at once.
const AT_ONCE: usize = 1_000;
/// An embedded engine gets this long to close.
const CLOSE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("place").required(true).args(["to_temporal", "to_data"]))]
pub struct MigrateArgs {
    /// Only these runs: workflow ids.
    #[arg(value_name = "ID", conflicts_with = "query")]
    pub ids: Vec<String>,
    /// Only the open runs that fit this list filter.
    #[arg(short, long, value_name = "QUERY")]
    pub query: Option<String>,
    /// To this Temporal cluster, or `env` for what the TEMPORAL_* variables and temporal.toml say.
    #[arg(long, value_name = "HOST:PORT")]
    pub to_temporal: Option<String>,
    /// To this data directory.
    #[arg(long, value_name = "DIR")]
    pub to_data: Option<PathBuf>,
    /// Into this namespace there; else the one of the runs.
    #[arg(long, value_name = "NAMESPACE")]
    pub to_namespace: Option<String>,
    /// Onto this task queue there; else as the queue of each run is called.
    #[arg(long, value_name = "QUEUE", visible_alias = "to-queue")]
    pub to_task_queue: Option<String>,
    /// Where the API key of that cluster is: env:NAME, file:/path or cmd:program arguments.
    #[arg(long, value_name = "REF", requires = "to_temporal")]
    pub to_temporal_api_key: Option<SecretRef>,
    /// How long each run may take to come to a point from which it can go on elsewhere.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    pub wait: Duration,
    /// Let runs stay that wait to be moved there.
    #[arg(long, conflicts_with = "dry_run")]
    pub stay: bool,
    /// Only say which runs would go, and which would not.
    #[arg(long)]
    pub dry_run: bool,
}

/// What is to be moved, and the engine that it goes to.
pub(super) struct Migration {
    args: MigrateArgs,
    /// Nothing: there is no store yet, and nothing is to be made.
    there: Option<LocatedEngine>,
    place: String,
    namespace: Namespace,
}

/// Finds the engine that runs are to go to.
pub(super) async fn to_there(
    global: &Global,
    opener: &dyn OpenEngine,
    args: MigrateArgs,
) -> Result<Migration, CliError> {
    let namespace = args.to_namespace.as_deref().unwrap_or(&global.namespace);
    let data = args.to_data.clone().unwrap_or_else(|| global.data.clone());
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if args.to_data.is_some() && global.temporal.is_none() && whole(&data) == whole(&global.data) {
        return Err(CliError::usage(format!("--to-data names the directory that the runs are in: {}", data.display())));
    }
    // Where nothing is that could go, nothing is made.
    if global.temporal.is_none() && global.address.is_none() {
        no_store(&global.data)?;
    }
    let place = match &args.to_temporal {
        Some(address) => format!("the Temporal cluster {address}, namespace {namespace}"),
        None => format!("{}, namespace {namespace}", std::path::absolute(&data).unwrap_or(data.clone()).display()),
    };
    let there = Global {
        data,
        address: None,
        token_file: None,
        temporal: args.to_temporal.clone(),
        temporal_api_key: args.to_temporal_api_key.clone(),
        namespace: namespace.to_owned(),
        ..global.clone()
    };
    let purpose = Access::Visit { create: !args.dry_run && !args.stay };
    let namespace = Namespace::new(namespace)?;
    let there = match locate(&there, opener, &purpose).await {
        Err(why) if why.code == Code::NoStore && args.dry_run => None,
        found => Some(found?),
    };
    Ok(Migration { there, place, namespace, args })
}

/// What became of one run.
struct Seen {
    id: WorkflowId,
    what: Result<String, NotMoved>,
}

pub(super) async fn migrate(cx: &mut Context, migration: Migration) -> Result<Exit, CliError> {
    let Migration { args, there, place, namespace } = migration;
    let ended = move_all(cx, &args, there.as_ref(), &place, namespace).await;
    if let Some(LocatedEngine::Embedded(engine, _)) = there {
        engine.drain(CLOSE).await;
    }
    ended
}

async fn move_all(
    cx: &mut Context,
    args: &MigrateArgs,
    there: Option<&LocatedEngine>,
    place: &str,
    namespace: Namespace,
) -> Result<Exit, CliError> {
    let runs = runs_to_move(cx, args).await?;
    let (here, there) = (cx.backend.clone(), there.map(|there| there.backend(Some(&namespace))));
    let queue = args.to_task_queue.as_deref().map(TaskQueue::new).transpose()?;
    let of = Move {
        here: &*here,
        there: there.as_deref(),
        place,
        namespace,
        queue,
        patience: args.wait,
        identity: identity(),
    };
    if !args.dry_run && !args.stay && !runs.is_empty() {
        cx.confirm(&format!("end {} here and let them go on at {place}", counted(runs.len() as u64, "run")))?;
    }
    let mut seen = Vec::new();
    for info in runs {
        let what = match (args.dry_run, args.stay) {
            (true, _) => of.may_leave(&info).await.map(|()| "would go".to_owned()),
            (_, true) => stay(&of, &info).await.map(|()| "stays".to_owned()),
            _ => move_run(&of, &info).await.map(|moved| format!("run {}", moved.run_id)),
        };
        seen.push(Seen { id: info.workflow_id, what });
    }
    let others = if args.ids.is_empty() { of_other_types(cx, args).await? } else { Vec::new() };
    say(cx, args, place, &seen, others)
}

/// Open runs, the oldest first: of those that were named, or of the types that can go on elsewhere.
async fn runs_to_move(cx: &Context, args: &MigrateArgs) -> Result<Vec<RunInfo>, CliError> {
    let mut runs = Vec::new();
    for id in &args.ids {
        let run = resolve(cx, Some(id), &ExactRun::default()).await?;
        runs.push(cx.backend.describe(Target { run_id: None, ..run }).await?.info);
    }
    if args.ids.is_empty() {
        known_attributes(&*cx.backend, args.query.as_deref().unwrap_or_default()).await?;
        let types: Vec<String> = MOVES.iter().map(|name| format!("WorkflowType = '{name}'")).collect();
        let of = types.join(" OR ");
        let query = with_status(args, "Running", &of);
        runs = cx.backend.list(ListRequest { query, limit: AT_ONCE }).await?;
        // Clusters of before know no such status.
        let query = with_status(args, "Paused", &of);
        runs.extend(cx.backend.list(ListRequest { query, limit: AT_ONCE }).await.unwrap_or_default());
        runs.sort_by_key(|info| info.started_at);
    }
    Ok(runs)
}

fn with_status(args: &MigrateArgs, status: &str, of: &str) -> String {
    let own = args.query.as_ref().map_or_else(String::new, |query| format!("({query}) AND "));
    format!("{own}ExecutionStatus = '{status}' AND ({of})")
}

/// How many open runs there are of types that cannot go.
async fn of_other_types(cx: &Context, args: &MigrateArgs) -> Result<Vec<(String, u64)>, CliError> {
    let none: Vec<String> = MOVES.iter().map(|name| format!("WorkflowType != '{name}'")).collect();
    let mut counts = std::collections::BTreeMap::<String, u64>::new();
    let query = with_status(args, "Running", &none.join(" AND "));
    for info in cx.backend.list(ListRequest { query, limit: AT_ONCE }).await? {
        *counts.entry(info.workflow_type.to_string()).or_default() += 1;
    }
    Ok(counts.into_iter().collect())
}

fn say(
    cx: &mut Context,
    args: &MigrateArgs,
    place: &str,
    seen: &[Seen],
    others: Vec<(String, u64)>,
) -> Result<Exit, CliError> {
    let rows: Vec<Value> = seen.iter().map(row).collect();
    let other_rows: Vec<Value> =
        others.iter().map(|(name, open)| json!({ "workflow_type": name, "open": open })).collect();
    let object = json!({ "to": place, "dry_run": args.dry_run, "runs": rows, "other_types": other_rows });
    cx.screen.object("workflow.migrate", object);
    for Seen { id, what } in seen {
        match what {
            Ok(what) => cx.screen.line(format!("{id}: {what}")),
            Err(why) => cx.screen.line(format!("{id} was left here: {why}")),
        }
    }
    let left = seen.iter().filter(|one| one.what.is_err()).count();
    let went = seen.len() - left;
    let word = if args.dry_run {
        "would go"
    } else if args.stay {
        "stay"
    } else {
        "went"
    };
    cx.screen.line(format!(
        "{} {word}{}",
        counted(went as u64, "run"),
        if args.stay { String::new() } else { format!(" to {place}") }
    ));
    if args.ids.is_empty() && seen.len() >= AT_ONCE {
        cx.screen.note(&format!("{AT_ONCE} runs are looked at at once: say the same command again for the others"));
    }
    for (name, open) in others {
        cx.screen
            .note(&format!("{open} open of the type {name}: they do not go on in new runs by themselves, and stay"));
    }
    if let (Some(address), false) = (&args.to_temporal, args.dry_run || args.stay || went == 0) {
        cx.screen.next(&format!("bosun worker run --temporal {}", shell_word(address)));
    }
    // Whoever moves everything wants to know by the exit code that something stayed.
    Ok(if left == 0 { Exit::Ok } else { Exit::Error })
}

fn row(seen: &Seen) -> Value {
    match &seen.what {
        Ok(what) => json!({ "workflow_id": seen.id, "moved": true, "what": what }),
        Err(why) => json!({ "workflow_id": seen.id, "moved": false, "why": why.to_string() }),
    }
}
