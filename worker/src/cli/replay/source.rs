//! Which histories a verb means: files by name or pattern, runs by query, one run by its id.
//!
//! Invariant: a pattern or query that finds nothing is an error, so that a gate cannot pass by checking nothing; a file
//! that cannot be read is named and stops no other. Files are hostile input, recorded runs are our own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_replay::{History, HistoryFile, HistoryLimits, LoadHistoryError, TemporalHistory};
use clap::Args;

use super::Bench;
use crate::backend::Histories;
use crate::cli::args::ExactRun;
use crate::cli::error::CliError;
use crate::cli::explain::Code;
use crate::cli::list::{run_word, shell_word};
use crate::cli::resolve::find;

/// A history by its name, as one types it: a run or a file.
pub(in crate::cli) fn history_word(name: &str) -> String {
    if is_file(name) { shell_word(name) } else { run_word(name) }
}

/// Whether a name means a file: by how it is spelt, never by looking what exists. A workflow id may hold a `/`, as those
/// of children often do.
pub(in crate::cli) fn is_file(name: &str) -> bool {
    name.ends_with(".json") || ["/", "./", "../"].iter().any(|start| name.starts_with(start))
}

/// Names one history: a file, or a recorded run.
#[derive(Debug, Clone, Default, Args)]
pub(in crate::cli) struct HistoryOf {
    /// A history file, or a run: a workflow id, the beginning of one, a run id, `latest`, or `@N` for the N-th newest.
    #[arg(value_name = "ID|FILE", required_unless_present = "workflow_id")]
    pub(in crate::cli) id: Option<String>,
    #[command(flatten)]
    pub(in crate::cli) exact: ExactRun,
}

/// One history, with what to call it.
#[derive(Debug)]
pub(in crate::cli) struct RecordedHistory {
    pub(in crate::cli) name: String,
    pub(in crate::cli) history: HistoryFile,
}

impl RecordedHistory {
    /// The history, for verbs that need one of ours.
    pub(in crate::cli) fn replayable(self, code: &WorkflowRegistry) -> Result<(String, History), CliError> {
        match self.history {
            HistoryFile::Bosun(history) => Ok((self.name, history)),
            HistoryFile::Temporal(history) => match of_cluster(&history, code) {
                Some(Ok(history)) => Ok((self.name, history)),
                refused => {
                    let message = format!("{} is an export of Temporal's: it can be viewed, not replayed", self.name);
                    let error = CliError::new(Code::UnreadableHistory, message)
                        .help(format!("`bosun replay show {}` shows its events and statistics", self.name));
                    Err(match refused {
                        Some(Err(why)) => error.cause(why),
                        _ => error.cause("this program has no workflow of its type"),
                    })
                }
            },
        }
    }
}

/// The history of a run that this program's code carried out on a Temporal cluster; nothing where it has no code of the type.
pub(super) fn of_cluster(history: &TemporalHistory, code: &WorkflowRegistry) -> Option<Result<History, String>> {
    let named = history.events().first().and_then(|first| first.name_of("workflowType")).unwrap_or_default();
    if !WorkflowType::new(named).is_ok_and(|named| code.contains(&named)) {
        return None;
    }
    let turns = history.turns(&Namespace::of(DEFAULT_NAMESPACE), Some(code)).map_err(|why| why.to_string());
    Some(turns.and_then(|turns| History::from_turns(turns, &HistoryLimits::default()).map_err(|why| why.to_string())))
}

impl Bench<'_> {
    /// The one history that is meant. What is spelt like a file is one; everything else is a run.
    pub(in crate::cli) async fn recorded(&mut self, of: &HistoryOf) -> Result<RecordedHistory, CliError> {
        if of.exact.workflow_id.is_none()
            && let Some(text) = &of.id
            && is_file(text)
        {
            return load_file(Path::new(text));
        }
        let histories = self.histories().await?;
        let found = find(&*histories, &self.namespace, of.id.as_deref(), &of.exact).await;
        let target = found.map_err(|why| spell_the_file(why, of.id.as_deref()))?;
        let turns = histories.turns(target.clone()).await?;
        let name = target.workflow_id.to_string();
        let history = History::new(turns).map_err(|why| no_history(&name).cause(why))?;
        Ok(RecordedHistory { name, history: HistoryFile::Bosun(history) })
    }

    /// As [`Bench::recorded`], by a name alone.
    pub(in crate::cli) async fn named(&mut self, name: &str) -> Result<RecordedHistory, CliError> {
        self.recorded(&HistoryOf { id: Some(name.to_owned()), exact: ExactRun::default() }).await
    }
}

pub(in crate::cli) fn load_file(path: &Path) -> Result<RecordedHistory, CliError> {
    let name = path.display().to_string();
    match HistoryFile::load(path, &HistoryLimits::default()) {
        Ok(history) => Ok(RecordedHistory { name, history }),
        // A history that is not there is one that cannot be read, as gates in CI have it: their exit code, the same words.
        Err(LoadHistoryError::File { why, .. }) => {
            Err(CliError { code: Code::UnreadableHistory, ..CliError::no_file(name, &why) })
        }
        Err(LoadHistoryError::Invalid { why, .. }) => Err(no_history(&name).cause(why)),
    }
}

fn no_history(name: &str) -> CliError {
    CliError::new(Code::UnreadableHistory, format!("{name} cannot be read as a history"))
}

/// What was taken for a run and is none may have been meant as a file.
pub(in crate::cli) fn spell_the_file(why: CliError, name: Option<&str>) -> CliError {
    match name {
        Some(name) if why.code == Code::NotFound && Path::new(name).is_file() => {
            why.help(format!("there is a file of this name: write ./{name} to mean the file"))
        }
        _ => why,
    }
}

/// The files that arguments name: each as it stands, or as a pattern with `*`, `**`, `?` and `[…]`, or as a directory,
/// which stands for the JSON files in it.
pub(in crate::cli) fn files(patterns: &[String]) -> Result<Vec<PathBuf>, CliError> {
    let mut seen = BTreeSet::new();
    let mut files = Vec::new();
    for pattern in patterns {
        let found = match Path::new(pattern) {
            path if path.is_dir() => matching(&format!("{}/*.json", glob::Pattern::escape(pattern)))?,
            // What is spelt like a pattern and is not there may be one; everything else is a file, there or not.
            path if path.exists() || !pattern.contains(['*', '?', '[']) => vec![path.to_owned()],
            _ => matching(pattern)?,
        };
        if found.is_empty() {
            let help = "a check that checks nothing would always pass; look at the pattern and the working directory";
            return Err(CliError::new(Code::NoHistories, format!("no file matches {pattern}")).help(help));
        }
        files.extend(found.into_iter().filter(|path| seen.insert(path.clone())));
    }
    Ok(files)
}

fn matching(pattern: &str) -> Result<Vec<PathBuf>, CliError> {
    let paths = glob::glob(pattern).map_err(|why| CliError::usage(format!("the pattern {pattern}: {why}")))?;
    let mut found = Vec::new();
    for path in paths {
        // A directory that cannot be listed may hold histories that do not fit.
        let path = path.map_err(|why| CliError::new(Code::Failed, format!("the pattern {pattern}")).cause(why))?;
        if path.is_file() {
            found.push(path);
        }
    }
    Ok(found)
}

/// The most that one page of a list holds.
const PAGE: usize = 1_000;
const OPEN: &str = "ExecutionStatus IN ('Running', 'Paused')";

/// All runs that fit a query, and only open ones if so asked, oldest pages last.
pub(in crate::cli) async fn runs(
    histories: &Arc<dyn Histories>,
    query: &str,
    open: bool,
) -> Result<Vec<RunInfo>, CliError> {
    let filter = Filter::parse(query).map_err(|why| CliError::usage(why.to_string()))?;
    if !filter.is_default_order() {
        return Err(CliError::usage("every run that fits is replayed: leave out ORDER BY"));
    }
    let conditions: Vec<String> =
        [open.then(|| OPEN.to_owned()), (!query.trim().is_empty()).then(|| format!("({filter})"))]
            .into_iter()
            .flatten()
            .collect();
    let (mut seen, mut found): (BTreeSet<RunId>, Vec<RunInfo>) = Default::default();
    let mut before: Option<Timestamp> = None;
    loop {
        // Pages overlap in the runs of one moment, which `seen` sorts out.
        let bound = before.map(|at| format!("StartTime <= '{at}'"));
        let query = conditions.iter().cloned().chain(bound).collect::<Vec<_>>().join(" AND ");
        let page = histories.list(ListRequest { query, limit: PAGE }).await?;
        let (full, last) = (page.len() >= PAGE, page.last().map(|run| run.started_at));
        let known = found.len();
        found.extend(page.into_iter().filter(|run| seen.insert(run.run_id)));
        if !full {
            return Ok(found);
        }
        if known == found.len() {
            let message = format!("{PAGE} runs started at the same moment: they cannot be listed page by page");
            return Err(CliError::new(Code::Failed, message).help("narrow the query"));
        }
        before = last;
    }
}
