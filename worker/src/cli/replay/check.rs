//! `replay check`: the gate. Does the code of this program still fit what is recorded?
//!
//! Invariant: every history that is named is replayed to its end, result included, whatever the others gave; exit code 0
//! means that all of them fit. Nothing is executed: no activity, no model, no clock of a workflow. The order of the
//! answers is the order of the histories, however many are replayed at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_replay::{History, HistoryFile, HistoryLimits, Prefixes};
use clap::Args;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::Bench;
use super::junit::junit;
use super::source::{files, history_word, is_file, of_cluster, runs};
use super::verdict::{CheckedHistory, Class, ReplayAnswer, by_mistake, exit_of};
use crate::api::people::unknown_in;
use crate::backend::Histories;
use crate::cli::args::ExactRun;
use crate::cli::error::{CliError, printable};
use crate::cli::exit::Exit;
use crate::cli::explain::Code;
use crate::cli::no_runs_in;
use crate::cli::output::{Cell, Format, TextStyle};
use crate::cli::resolve::find;
use crate::cli::time_format::parse_duration;

/// Replay histories with the code of this program.
///
/// Exit code 0: all fit. 20: some do not (other requests, or another result). 21: some cannot be read.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// History files, directories of them, patterns with `*`, `**`, `?` and `[…]`, or the ids of recorded runs. A name that
    /// exists as a file means the file.
    #[arg(value_name = "PATH|GLOB|ID", required_unless_present_any = ["query", "open"])]
    pub paths: Vec<String>,
    /// Replay the recorded runs that match this list filter, for example "WorkflowType = 'order'".
    #[arg(short, long, value_name = "FILTER")]
    pub query: Option<String>,
    /// Replay every open run, and say what deploying this program would do to each.
    #[arg(long)]
    pub open: bool,
    /// Also replay the beginnings of each history on their own: `all` of them, or every N-th turn.
    #[arg(long, value_name = "all|N", value_parser = parse_prefixes)]
    pub prefixes: Option<Prefixes>,
    /// The time limit for replaying one history.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub timeout: Duration,
}

fn parse_prefixes(text: &str) -> Result<Prefixes, String> {
    match (text, text.parse::<usize>()) {
        ("all", _) => Ok(Prefixes::All),
        (_, Ok(n)) if n > 0 => Ok(Prefixes::EveryNth(n)),
        _ => Err("`all`, or a number above 0".to_owned()),
    }
}

/// One history that is to be replayed.
enum Source {
    File(PathBuf),
    Run(Arc<dyn Histories>, Box<RunInfo>),
}

pub(super) async fn check(bench: &mut Bench<'_>, args: CheckArgs) -> Result<Exit, CliError> {
    let sources = sources(bench, &args).await?;
    let prefixes = args.prefixes.unwrap_or_default();
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let workflows = bench.workflows.clone();
    let mut answers = stream::iter(sources)
        .map(|source| replay_one(workflows.clone(), source, prefixes, args.timeout))
        .buffered(at_once);
    let mut checked = Vec::new();
    while let Some(one) = answers.next().await {
        bench.screen.row("replay.check", one.json());
        checked.push(one);
    }
    drop(answers);
    print(bench, &checked)?;
    Ok(exit_of(&checked))
}

async fn sources(bench: &mut Bench<'_>, args: &CheckArgs) -> Result<Vec<Source>, CliError> {
    let (paths, ids): (Vec<String>, Vec<String>) = args.paths.iter().cloned().partition(|name| is_path(name));
    let mut sources: Vec<Source> = files(&paths)?.into_iter().map(Source::File).collect();
    for id in ids {
        let histories = bench.histories().await?;
        let info = named_run(&*histories, &bench.namespace, &id).await?;
        sources.push(Source::Run(histories, Box::new(info)));
    }
    if args.open || args.query.is_some() {
        let histories = bench.histories().await?;
        let query = args.query.as_deref().unwrap_or_default();
        if let Some(unknown) = unknown_in(&|request| histories.list(request), query).await? {
            return Err(unknown.into());
        }
        let found = runs(&histories, query, args.open).await?;
        if found.is_empty() {
            is_used(&*histories, &bench.namespace).await?;
        }
        if found.is_empty() && !args.open {
            let help =
                "a check that checks nothing would always pass; `bosun list --query …` shows what a filter finds";
            return Err(CliError::new(Code::NoHistories, format!("no run fits {query}")).help(help));
        }
        sources.extend(found.into_iter().map(|info| Source::Run(histories.clone(), Box::new(info))));
    }
    Ok(sources)
}

/// A gate that looks where nobody ever began anything would always pass.
async fn is_used(histories: &dyn Histories, namespace: &Namespace) -> Result<(), CliError> {
    let any = histories.list(ListRequest { query: String::new(), limit: 1 }).await?;
    if any.is_empty() && namespace.as_str() != DEFAULT_NAMESPACE {
        return Err(no_runs_in(namespace));
    }
    Ok(())
}

/// Whether a name means files: by how it is spelt, or because there is one.
fn is_path(name: &str) -> bool {
    is_file(name) || name.contains(['*', '?', '[']) || Path::new(name).exists()
}

async fn named_run(histories: &dyn Histories, namespace: &Namespace, id: &str) -> Result<RunInfo, CliError> {
    let exact = ExactRun::default();
    let neither = |why: CliError| match why.code {
        Code::NotFound => CliError::new(Code::NotFound, format!("{id} is neither a file nor a recorded run"))
            .help("`bosun list` shows the runs of the data directory"),
        _ => why,
    };
    let target = find(histories, namespace, Some(id), &exact).await.map_err(neither)?;
    Ok(histories.run(target).await?)
}

async fn replay_one(
    workflows: WorkflowRegistry,
    source: Source,
    prefixes: Prefixes,
    timeout: Duration,
) -> CheckedHistory {
    let began = Instant::now();
    let (name, history) = match source {
        Source::File(path) => (path.display().to_string(), Ok(Lazy::File(path))),
        Source::Run(histories, info) => {
            let name = info.workflow_id.to_string();
            let target = Target { namespace: info.namespace, ..Target::run(info.workflow_id, info.run_id) };
            (name, histories.turns(target).await.map(Lazy::Turns).map_err(|why| why.to_string()))
        }
    };
    let replaying = tokio::task::spawn_blocking(move || match history {
        Ok(history) => history.replay(&workflows, prefixes),
        Err(why) => ReplayAnswer::Unreadable(why),
    });
    let answer = match tokio::time::timeout(timeout, replaying).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(why)) => ReplayAnswer::Unreadable(format!("replaying it panicked: {why}")),
        Err(_) => ReplayAnswer::Stuck,
    };
    CheckedHistory { name, answer, took: began.elapsed() }
}

/// A history that is read and checked where it is replayed: on a thread that may be busy for long.
enum Lazy {
    File(PathBuf),
    Turns(Vec<Turn>),
}

impl Lazy {
    fn replay(self, workflows: &WorkflowRegistry, prefixes: Prefixes) -> ReplayAnswer {
        let history = match self {
            Lazy::Turns(turns) => History::new(turns).map_err(|why| why.to_string()),
            Lazy::File(path) => match HistoryFile::load(&path, &HistoryLimits::default()) {
                Ok(HistoryFile::Bosun(history)) => Ok(history),
                Ok(HistoryFile::Temporal(history)) => match of_cluster(&history, workflows) {
                    Some(history) => history,
                    None => return ReplayAnswer::Foreign,
                },
                Err(why) => Err(why.to_string()),
            },
        };
        match history {
            Ok(history) => ReplayAnswer::of(workflows, &history, prefixes),
            Err(why) => ReplayAnswer::Unreadable(why),
        }
    }
}

/// So many histories of one mistake are named.
const NAMED_MAX: usize = 10;

/// The other histories of a mistake, which need no card of their own.
fn others(group: &[&CheckedHistory]) -> String {
    if group.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = group.iter().take(NAMED_MAX).map(|one| one.name.as_str()).collect();
    let rest = group.len() - names.len();
    let more = if rest > 0 { format!(", and {rest} more") } else { String::new() };
    format!("\nnote: the same mistake in {} histories in all; also: {}{more}", group.len() + 1, names.join(", "))
}

const COLUMNS: &[&str] = &["verdict", "workflow_id", "workflow_type", "status", "events", "source"];

fn print(bench: &mut Bench<'_>, checked: &[CheckedHistory]) -> Result<(), CliError> {
    let count = |class| checked.iter().filter(|one| one.class() == class).count();
    let (fit, unfit, unreadable) = (count(Class::Fits), count(Class::DoesNotFit), count(Class::Unreadable));
    let build = bench.workflows.build_id();
    bench.screen.document(Format::Junit, &junit(checked));
    if bench.screen.format == Format::Json {
        let rows: Vec<Value> = checked.iter().map(CheckedHistory::json).collect();
        let object = json!({
            "build": build.to_string(), "histories": rows, "fit": fit, "do_not_fit": unfit, "unreadable": unreadable,
        });
        bench.screen.object("replay.check", object);
    }
    if checked.is_empty() {
        bench.screen.line("no open runs: nothing can be held up by this program".into());
        return Ok(());
    }
    bench.screen.table(COLUMNS, checked.iter().map(row).collect())?;
    for group in by_mistake(checked) {
        let Some((one, why)) = group.first().and_then(|one| Some((*one, one.explanation()?))) else { continue };
        let head = bench.screen.paint(one.paint(), &printable(&format!("{}: {}", one.name, one.verdict())));
        let others = others(&group[1..]);
        bench.screen.block(&format!("\n{head}\n{}{}", printable(&why), printable(&others)));
    }
    warn(bench, checked);
    bench.screen.block(&format!(
        "\n{} {} with build {build}: {fit} fit, {unfit} do not, {unreadable} cannot be read",
        checked.len(),
        if checked.len() == 1 { "history" } else { "histories" }
    ));
    if let Some(first) = checked.iter().find(|one| one.class() == Class::DoesNotFit) {
        bench.screen.next(&format!("bosun replay explain {}", history_word(&first.name)));
    }
    Ok(())
}

/// A warning fails no gate: whoever deploys reads it and decides.
fn warn(bench: &mut Bench<'_>, checked: &[CheckedHistory]) {
    let all = checked.iter().flat_map(|one| one.warnings().iter().map(|warning| format!("{}: {warning}", one.name)));
    let all: Vec<String> = all.collect();
    for warning in all.iter().take(NAMED_MAX) {
        bench.screen.block(&printable(&format!("\nwarning: {warning}")));
    }
    if all.len() > NAMED_MAX {
        bench.screen.block(&format!("\nwarning: and {} more; `-o json` has all", all.len() - NAMED_MAX));
    }
}

fn row(one: &CheckedHistory) -> Vec<Cell> {
    let run = match &one.answer {
        ReplayAnswer::Replayed(report, _) => report.run.as_ref(),
        ReplayAnswer::Stuck | ReplayAnswer::Foreign | ReplayAnswer::Unreadable(_) => None,
    };
    let dash = || "-".to_owned();
    vec![
        Cell::of(one.verdict(), one.paint()),
        Cell::of(run.map_or_else(dash, |run| run.workflow_id.to_string()), TextStyle::Bold),
        run.map_or_else(dash, |run| run.workflow_type.to_string()).into(),
        run.map_or_else(dash, |run| run.status.to_string()).into(),
        run.map_or_else(dash, |run| run.events.to_string()).into(),
        Cell::of(one.name.clone(), TextStyle::Dim),
    ]
}
