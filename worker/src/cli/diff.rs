//! `diff A B`: two histories side by side, the first difference and its cause first.
//!
//! Invariant: exit 0 means that the histories are the same, 22 that they differ, anything else that they could not be
//! compared. Two files are compared without a store.

use bosun_engine::Event;
use bosun_replay::{History, HistoryDiff, TemporalHistory, diff, diff_events, diff_temporal};
use clap::Args;
use serde_json::{Value, json};

use super::context::Context;
use super::error::{CliError, printable};
use super::exit::Exit;
use super::explain::Code;
use super::output::Screen;
use super::source::{Source, is_file};

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// A run (as for `show`) or a history file (a path, or a name that ends in .json; ours or Temporal's).
    #[arg(value_name = "A")]
    pub left: String,
    /// What it is compared with.
    #[arg(value_name = "B")]
    pub right: String,
    /// Show at most this many lines after the first difference.
    #[arg(short, long, value_name = "N")]
    pub limit: Option<usize>,
}

impl DiffArgs {
    /// Neither side is a run of a store.
    pub(super) fn is_of_files(&self) -> bool {
        is_file(&self.left) && is_file(&self.right)
    }
}

pub(super) async fn diff_runs(cx: &mut Context, args: DiffArgs) -> Result<Exit, CliError> {
    let (left, right) = (Source::of(cx, &args.left).await?, Source::of(cx, &args.right).await?);
    compare(&mut cx.screen, &args, left, right)
}

pub(super) fn diff_files(screen: &mut Screen, args: &DiffArgs) -> Result<Exit, CliError> {
    let (left, right) = (Source::read(&args.left)?, Source::read(&args.right)?);
    compare(screen, args, left, right)
}

fn compare(screen: &mut Screen, args: &DiffArgs, left: Source, right: Source) -> Result<Exit, CliError> {
    let told = match (left, right) {
        (Source::File { name: l, history: left }, Source::File { name: r, history: right }) => {
            HistoryDiff { left: l, right: r, ..diff(&left, &right) }
        }
        (Source::Temporal { name: l, history: left }, right) => temporal(l, &left, right)?,
        (left, Source::Temporal { name: r, history: right }) => {
            let (name, left) = as_temporal(left)?;
            HistoryDiff { left: name, right: r, ..diff_temporal(&left, &right) }
        }
        (left, right) => {
            let ((l, left), (r, right)) = (events(left), events(right));
            diff_events((l, r), &left, &right)
        }
    };
    print(screen, args, &told);
    Ok(if told.is_same() { Exit::Ok } else { Exit::Differ })
}

fn temporal(name: String, left: &TemporalHistory, right: Source) -> Result<HistoryDiff, CliError> {
    let (right_name, right) = as_temporal(right)?;
    Ok(HistoryDiff { left: name, right: right_name, ..diff_temporal(left, &right) })
}

/// A history of ours in Temporal's form, so that it can be compared with one of theirs.
fn as_temporal(source: Source) -> Result<(String, TemporalHistory), CliError> {
    match source {
        Source::Temporal { name, history } => Ok((name, history)),
        Source::File { name, history } => Ok((name, TemporalHistory::from(&history))),
        Source::Run { target, .. } => Err(CliError::new(
            Code::Usage,
            format!("{} is a run here and the other side is a history of Temporal's", target.workflow_id),
        )
        .help("`bosun replay record` writes the run to a file that can be compared with it")),
    }
}

fn events(source: Source) -> (String, Vec<Event>) {
    match source {
        Source::Run { target, events } => (target.workflow_id.to_string(), events),
        Source::File { name, history } => (name, History::events(&history).collect()),
        Source::Temporal { name, .. } => (name, Vec::new()),
    }
}

fn print(screen: &mut Screen, args: &DiffArgs, told: &HistoryDiff) {
    let mut object = json!(told);
    let cause = told.divergence.as_ref().map(|divergence| divergence.cause.to_string());
    object["is_same"] = Value::Bool(told.is_same());
    object["why"] = json!(cause);
    let limit = args.limit.unwrap_or(usize::MAX);
    if let Some(lines) = object["lines"].as_array_mut() {
        lines.truncate(limit);
    }
    screen.object("workflow.diff", object);
    screen.line(printable(&format!("{} | {}: {} events are the same", told.left, told.right, told.same)));
    let Some(divergence) = &told.divergence else { return screen.line("no difference".into()) };
    screen.line(format!("first difference: {}", divergence.cause));
    for line in told.lines.iter().take(limit) {
        screen.line(printable(&line.to_string()));
    }
    let hidden = told.lines.len().saturating_sub(limit);
    if hidden > 0 {
        screen.line(format!("  … and {hidden} more lines"));
    }
    if told.not_compared != (0, 0) {
        let (left, right) = told.not_compared;
        screen.line(format!("{left} and {right} later events were not aligned"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::Format;

    fn fixture(name: &str) -> String {
        format!("{}/../fixtures/histories/{name}.json", env!("CARGO_MANIFEST_DIR"))
    }

    fn run(left: &str, right: &str, format: Format) -> (Result<u8, CliError>, String) {
        let (mut screen, output) = Screen::captured();
        screen.format = format;
        let args = DiffArgs { left: left.to_owned(), right: right.to_owned(), limit: Some(2) };
        assert!(args.is_of_files());
        let ended = diff_files(&mut screen, &args).map(Exit::number);
        (ended, output.stdout())
    }

    /// E38: the first difference and its cause come first; the exit code tells same from different.
    #[test]
    fn two_files_differ_with_exit_22_and_the_cause_first() {
        let (left, right) = (fixture("activity-completed"), fixture("activity-failed"));
        let (ended, told) = run(&left, &right, Format::Text);
        assert_eq!(ended, Ok(22));
        let lines: Vec<&str> = told.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "first difference: something else happened to them",
                "-     4         ActivityTaskCompleted charge_card",
                "-     5         WorkflowExecutionCompleted",
                "  … and 2 more lines"
            ]
        );
        let (ended, told) = run(&left, &left, Format::Text);
        assert_eq!((ended, told.lines().last()), (Ok(0), Some("no difference")));
    }

    #[test]
    fn the_difference_is_one_json_object() {
        let (ended, told) = run(&fixture("activity-completed"), &fixture("activity-failed"), Format::Json);
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(ended, Ok(22));
        assert_eq!(told["schema"], json!("bosun.workflow.diff/1"));
        assert_eq!(told["is_same"], json!(false));
        assert_eq!(told["divergence"]["cause"], json!("Outside"));
        assert_eq!(told["lines"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn histories_of_temporals_are_compared_with_ours() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("theirs.json");
        let Ok(Source::File { history, .. }) = Source::read(&fixture("activity-completed")) else {
            panic!("a history")
        };
        std::fs::write(&path, bosun_replay::to_temporal(&history).to_string()).unwrap();
        let (same, told) = run(&fixture("activity-completed"), path.to_str().unwrap(), Format::Text);
        assert_eq!(same, Ok(0), "{told}");
        assert_eq!(run(path.to_str().unwrap(), &fixture("activity-failed"), Format::Text).0, Ok(22));
    }

    #[test]
    fn what_is_no_history_is_refused_with_21() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.json");
        std::fs::write(&path, "{\"schema\":\"bosun.history/1\",\"run\":{}}").unwrap();
        let (ended, _) = run(path.to_str().unwrap(), &fixture("activity-failed"), Format::Text);
        assert_eq!(ended.unwrap_err().code.exit().number(), 21);
        let (ended, _) = run("./nowhere.json", &fixture("activity-failed"), Format::Text);
        assert_eq!(ended.unwrap_err().code.exit().number(), 1);
    }
}
