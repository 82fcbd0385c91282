//! `export`: the history of a run, or of a history file, as a file: for replay elsewhere, for bug reports, or for Temporal's tools.
//!
//! Invariant: an export in our format reads back as the same turns, bit for bit, unless something was left out on
//! request; then it says so itself: nothing that a file lacks comes back. Temporal's form is for viewing only. Reading carries
//! no run on.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bosun_replay::{HistoryLimits, answers_at_end, to_temporal};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::list::{counted, file_word};
use super::output::Format;
use super::replay::Bench;
use super::replay::record::{Redact, write};
use super::replay::source::HistoryOf;
use super::time_format::now;
use crate::ui::export;

#[derive(Debug, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    of: HistoryOf,
    /// The form of the file.
    #[arg(long = "as", alias = "format", value_name = "FORM", default_value = "json")]
    form: ExportFormat,
    /// What to leave out.
    #[arg(long, value_name = "WHAT")]
    redact: Option<Redact>,
    /// Write to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Overwrite the file if it exists.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// Bosun's own form: exact, versioned, replayable.
    Json,
    /// As `temporal workflow show -o json` writes it.
    Temporal,
    /// One page that needs nothing but a browser.
    Html,
    /// A sequence diagram.
    Mermaid,
    /// A trace for ui.perfetto.dev.
    Perfetto,
}

pub(super) async fn export(bench: &mut Bench<'_>, args: ExportArgs) -> Result<Exit, CliError> {
    let (_, history) = bench.recorded(&args.of).await?.replayable(&bench.workflows)?;
    let history = history.redacted(Redact::redaction(args.redact));
    let text = match args.form {
        ExportFormat::Json => history.to_json(),
        ExportFormat::Temporal => format!("{:#}\n", to_temporal(&history)),
        ExportFormat::Html => {
            let drawn = export::is_drawn(&history);
            let answers =
                if drawn { answers_at_end(&bench.workflows, &history, &export::ANSWERED) } else { BTreeMap::new() };
            export::html_file(&history, &answers, now())
        }
        ExportFormat::Mermaid => export::mermaid(&history),
        ExportFormat::Perfetto => format!("{}\n", export::perfetto(&history)),
    };
    let is_read_again = matches!(args.form, ExportFormat::Json | ExportFormat::Temporal);
    let limit = HistoryLimits::default().json.bytes;
    if is_read_again && text.len() > limit {
        let why =
            format!("it would have {} bytes, and a history file of more than {limit} is read by nothing", text.len());
        let help = "--redact payloads leaves out what is large; --as html is for reading, `bosun show -o json` gives every event";
        return Err(CliError::new(Code::Failed, "the history is too long for a file").cause(why).help(help));
    }
    let Some(out) = &args.out else {
        bench.screen.document(Format::Text, &text);
        bench.screen.document(Format::Json, &text);
        return Ok(Exit::Ok);
    };
    write(out, &text, args.force)?;
    bench.screen.object("workflow.export", json!({ "file": out, "events": history.len() }));
    bench.screen.field("written", format!("{} ({})", out.display(), counted(history.len() as u64, "event")));
    if is_read_again {
        bench.screen.next(&format!("bosun replay show {}", file_word(&out.display().to_string())));
    }
    Ok(Exit::Ok)
}
