//! `replay record`: a run becomes a regression fixture, with a test beside it.
//!
//! Invariant: the history that is written is read back and checked before the test is; nothing that is there is
//! overwritten without being told to. A redacted history cannot be replayed, so it gets no test.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bosun_replay::{History, HistoryLimits, Redaction};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::Bench;
use super::source::HistoryOf;
use crate::cli::error::CliError;
use crate::cli::exit::Exit;
use crate::cli::explain::Code;
use crate::cli::list::shell_word;

#[derive(Debug, Args)]
pub struct RecordArgs {
    #[command(flatten)]
    of: HistoryOf,
    /// Where to write the history and the test; the directory is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The path of the function that returns your `WorkflowRegistry`, in the crate that the test becomes a part of.
    #[arg(long, value_name = "PATH", default_value = "crate::workflows")]
    registry: String,
    /// What to leave out. A redacted history can be shown, but not replayed.
    #[arg(long, value_name = "WHAT")]
    redact: Option<Redact>,
    /// Overwrite the file if it exists.
    #[arg(long)]
    force: bool,
}

/// What an export leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Redact {
    /// Inputs, results and other payloads become their digests.
    Payloads,
    /// Messages, reasons and summaries too.
    Texts,
}

impl Redact {
    pub(in crate::cli) fn redaction(of: Option<Redact>) -> Redaction {
        match of {
            None => Redaction::None,
            Some(Redact::Payloads) => Redaction::Payloads,
            Some(Redact::Texts) => Redaction::PayloadsAndTexts,
        }
    }
}

pub(super) async fn record(bench: &mut Bench<'_>, args: RecordArgs) -> Result<Exit, CliError> {
    let (_, history) = bench.recorded(&args.of).await?.replayable(&bench.workflows)?;
    let history = history.redacted(Redact::redaction(args.redact));
    let name = word(history.started().workflow_id.as_str());
    let (file, test) = (args.out.join(format!("{name}.json")), args.out.join(format!("{name}.rs")));
    let replayable = history.redaction() == Redaction::None;
    std::fs::create_dir_all(&args.out).map_err(|why| failed(&args.out, why))?;
    write(&file, &history.to_json(), args.force)?;
    // A fixture that cannot be read would be found by whoever needs it next.
    let read = History::load(&file, &HistoryLimits::default());
    read.map_err(|why| {
        CliError::new(Code::UnreadableHistory, "the history was written but cannot be read back").cause(why)
    })?;
    if replayable {
        write(&test, &stub(&name, &history, &args.registry), args.force)?;
    }
    let test = replayable.then_some(test);
    bench.screen.object(
        "replay.record",
        json!({ "history": file, "test": test, "events": history.len(), "workflow_id": history.started().workflow_id }),
    );
    bench.screen.field("history", file.display().to_string());
    match &test {
        Some(test) => {
            bench.screen.field("test", test.display().to_string());
            let registry = &args.registry;
            bench.screen.note(&format!(
                "the test calls {registry}(), which must give your WorkflowRegistry; --registry PATH names another function"
            ));
        }
        None => bench.screen.note("a redacted history cannot be replayed: no test was written"),
    }
    bench.screen.next(&format!("bosun replay check {}", shell_word(&file.display().to_string())));
    Ok(Exit::Ok)
}

fn failed(path: &Path, why: std::io::Error) -> CliError {
    CliError::new(Code::Failed, format!("cannot write {}", path.display())).cause(why)
}

/// Writes a file whole or not at all: on a full disk nothing is left under its name, and what was there before stays.
pub(in crate::cli) fn write(path: &Path, text: &str, force: bool) -> Result<(), CliError> {
    if !force && path.symlink_metadata().is_ok() {
        return Err(
            CliError::new(Code::Failed, format!("{} is there already", path.display())).help("--force overwrites it")
        );
    }
    let written = match path.metadata() {
        // A pipe or a device is written to as it is.
        Ok(found) if !found.is_file() => {
            let opened = std::fs::OpenOptions::new().write(true).open(path);
            opened.and_then(|mut file| file.write_all(text.as_bytes()))
        }
        // Of a link it is the file that is another one.
        Ok(_) => path.canonicalize().and_then(|path| put_in_place(&path, text)),
        Err(_) => put_in_place(path, text),
    };
    written.map_err(|why| failed(path, why))
}

fn put_in_place(path: &Path, text: &str) -> std::io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
    // What the store keeps from others is in it.
    let opened = std::fs::OpenOptions::new().mode(0o600).write(true).create(true).truncate(true).open(&beside);
    let written = opened.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    });
    if written.is_err() {
        // Best effort: it may not have come to be.
        std::fs::remove_file(&beside).ok();
    }
    written
}

/// A workflow id as a file name and, with `_`, as the name of a function.
fn word(id: &str) -> String {
    let word: String =
        id.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).take(80).collect();
    match word.trim_matches('_') {
        "" => "run".to_owned(),
        word if word.starts_with(|c: char| c.is_ascii_digit()) => format!("run_{word}"),
        word => word.to_owned(),
    }
}

fn stub(name: &str, history: &History, registry: &str) -> String {
    let (workflow_type, events) =
        (history.started().workflow_type.as_str().escape_default().to_string(), history.len());
    format!(
        "\
//! A recorded run of the workflow `{workflow_type}` ({events} events) still fits the code, result included.
//!
//! Made by `bosun replay record`. The history beside this file is never changed; when the code changes on purpose, guard
//! the change with `patched`.

use bosun_replay::{{History, HistoryLimits, Prefixes, replay_history}};

#[test]
fn {name}_still_replays() {{
    let recorded = include_bytes!(\"{name}.json\");
    let history = History::from_json(recorded, &HistoryLimits::default()).expect(\"a recorded history\");
    let report = replay_history(&{registry}(), &history, Prefixes::All);
    assert!(report.is_ok(), \"{{report}}\");
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a store of mode 0600 holds is not open to everybody because it was written to another file.
    #[test]
    fn a_history_is_written_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        write(&path, "{}", false).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(write(&path, "{}", false).is_err(), "nothing is overwritten unasked");
    }
}
