//! `diff A B`: two histories side by side, the first difference and its cause first.
//!
//! Invariant: exit 0 means that the histories are the same, 22 that they differ, anything else that they could not be
//! compared. Reading carries no run on; two files are compared without a store.

use bosun_replay::{HistoryDiff, HistoryFile, TemporalHistory, diff, diff_temporal};
use clap::Args;
use serde_json::{Value, json};

use super::error::{CliError, printable};
use super::exit::Exit;
use super::output::Screen;
use super::replay::Bench;

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// A run (as for `show`) or a history file (ends in .json, or begins with / or ./ or ../; ours or Temporal's).
    #[arg(value_name = "A")]
    pub left: String,
    /// The run or history file to compare it with.
    #[arg(value_name = "B")]
    pub right: String,
    /// Show at most this many lines after the first difference.
    #[arg(short, long, value_name = "N")]
    pub limit: Option<usize>,
}

pub(super) async fn diff_verb(bench: &mut Bench<'_>, args: DiffArgs) -> Result<Exit, CliError> {
    let (left, right) = (bench.named(&args.left).await?, bench.named(&args.right).await?);
    let told = match (&left.history, &right.history) {
        (HistoryFile::Bosun(left), HistoryFile::Bosun(right)) => diff(left, right),
        // A history of ours is brought into Temporal's form to be compared with one of theirs.
        (HistoryFile::Temporal(left), HistoryFile::Temporal(right)) => diff_temporal(left, right),
        (HistoryFile::Temporal(left), HistoryFile::Bosun(right)) => diff_temporal(left, &TemporalHistory::from(right)),
        (HistoryFile::Bosun(left), HistoryFile::Temporal(right)) => diff_temporal(&TemporalHistory::from(left), right),
    };
    let told = HistoryDiff { left: left.name, right: right.name, ..told };
    print(bench.screen, &args, &told);
    Ok(if told.is_same() { Exit::Ok } else { Exit::Differ })
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
    screen.block(&printable(&format!(
        "{} | {}: {} events are the same, starts of attempts aside",
        told.left, told.right, told.same
    )));
    let Some(divergence) = &told.divergence else { return screen.line("no difference".into()) };
    screen.line(format!("first difference: {}", divergence.cause));
    for line in told.lines.iter().take(limit) {
        screen.block(&printable(&line.to_string()));
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
    use bosun_replay::{History, HistoryLimits};

    use super::*;
    use crate::cli::tests::{Ran, program, run_with};
    use crate::fake::{Fake, FakeOpener};

    fn fixture(name: &str) -> String {
        format!("{}/../fixtures/histories/{name}.json", env!("CARGO_MANIFEST_DIR"))
    }

    /// Where no store is.
    async fn run(left: &str, right: &str, options: &str) -> Ran {
        let nowhere = tempfile::tempdir().unwrap().path().join("data");
        let (program, opener) = program(FakeOpener::new(Fake::new()));
        let ran = run_with(&program, &opener, &nowhere, &format!("diff {left} {right} --limit 2 {options}")).await;
        assert!(!nowhere.exists());
        ran
    }

    /// E38: the first difference and its cause come first; the exit code tells same from different.
    #[tokio::test]
    async fn two_files_differ_with_exit_22_and_the_cause_first() {
        let (left, right) = (fixture("activity-completed"), fixture("activity-failed"));
        let told = run(&left, &right, "").await;
        assert_eq!(told.exit.number(), 22);
        let lines: Vec<&str> = told.stdout.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "first difference: something else happened to them",
                "-     4         ActivityTaskCompleted charge_card",
                "-     5         WorkflowExecutionCompleted",
                "  … and 2 more lines"
            ]
        );
        let told = run(&left, &left, "").await;
        assert_eq!((told.exit.number(), told.stdout.lines().last()), (0, Some("no difference")));
    }

    #[tokio::test]
    async fn the_difference_is_one_json_object() {
        let ran = run(&fixture("activity-completed"), &fixture("activity-failed"), "-o json").await;
        assert_eq!(ran.exit.number(), 22);
        let told = ran.json();
        assert_eq!(told["schema"], json!("bosun.workflow.diff/1"));
        assert_eq!(told["is_same"], json!(false));
        assert_eq!(told["divergence"]["cause"], json!("Outside"));
        assert_eq!(told["lines"].as_array().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn histories_of_temporals_are_compared_with_ours() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("theirs.json");
        let history = History::load(fixture("activity-completed").as_ref(), &HistoryLimits::default()).unwrap();
        std::fs::write(&path, bosun_replay::to_temporal(&history).to_string()).unwrap();
        let same = run(&fixture("activity-completed"), path.to_str().unwrap(), "").await;
        assert_eq!(same.exit.number(), 0, "{}", same.stdout);
        assert_eq!(run(path.to_str().unwrap(), &fixture("activity-failed"), "").await.exit.number(), 22);
    }

    #[tokio::test]
    async fn what_is_no_history_is_refused_with_21() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.json");
        std::fs::write(&path, "{\"schema\":\"bosun.history/1\",\"run\":{}}").unwrap();
        for wrong in [path.to_str().unwrap(), "./nowhere.json"] {
            let ran = run(wrong, &fixture("activity-failed"), "").await;
            assert_eq!(ran.exit.number(), 21, "{}", ran.stderr);
        }
    }
}
