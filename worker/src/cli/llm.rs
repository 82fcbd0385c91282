//! `llm …`: the providers of this environment looked at by hand (`providers`), and `llm cassette from-run`: what models
//! answered in a run, as a file that plays it again without a provider.
//!
//! Invariant of the latter: everything comes out of the histories of the run and those below it; nobody is asked. What looks like a key
//! is cut out of the file. A run that asked no model makes no file.

pub(super) mod providers;

use std::path::PathBuf;

use bosun_engine::*;
use clap::{Args, Subcommand};
use futures_util::StreamExt;
use serde_json::json;

use super::args::RunOf;
use super::below::below;
use super::context::Context;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::list::{counted, shell_word};
use super::output::Format;
use super::replay::record::write;
use super::resolve::run_of;
use crate::harvest::from_histories;

#[derive(Debug, Subcommand)]
pub enum LlmVerb {
    /// Ask a model for one word, to see whether it answers, how fast, and at what price. Keys come from the environment of this
    /// command.
    Ping(providers::PingArgs),
    /// List the providers of this environment, or the models that one of them offers.
    Models(providers::ModelsArgs),
    /// List the prices at which calls are counted.
    Prices,
    /// Record the answers of models, to play them again.
    #[command(subcommand)]
    Cassette(CassetteVerb),
}

#[derive(Debug, Subcommand)]
pub enum CassetteVerb {
    /// Write the model answers of a run and the runs below it to a cassette.
    FromRun(FromRunArgs),
}

#[derive(Debug, Args)]
pub struct FromRunArgs {
    #[command(flatten)]
    pub run: RunOf,
    /// Write to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Overwrite the file if it exists.
    #[arg(long)]
    force: bool,
}

pub(super) async fn llm(cx: &mut Context, verb: LlmVerb) -> Result<Exit, CliError> {
    let args = match verb {
        LlmVerb::Ping(args) => return providers::ping_verb(&mut cx.screen, &args).await,
        LlmVerb::Models(args) => return providers::models_verb(&mut cx.screen, &args).await,
        LlmVerb::Prices => return providers::prices_verb(&mut cx.screen),
        LlmVerb::Cassette(CassetteVerb::FromRun(args)) => args,
    };
    let target = run_of(cx, &args.run).await?;
    let runs = below(&*cx.backend, target.clone(), |_| true).await?;
    let mut histories = Vec::new();
    for run in &runs.runs {
        histories.push(history(cx, &run.target).await?);
    }
    let made = from_histories(histories.iter().map(Vec::as_slice));
    let tape = made.map_err(|why| {
        CliError::new(Code::UnreadableHistory, format!("{} makes no cassette", target.workflow_id)).cause(why)
    })?;
    if tape.is_empty() {
        return Err(CliError::new(Code::NotFound, format!("no model has answered in {}", target.workflow_id)));
    }
    if runs.cut {
        cx.screen.note("incomplete: there are more runs below than were looked at");
    }
    let text = tape.to_text();
    let Some(out) = &args.out else {
        cx.screen.document(Format::Text, &text);
        cx.screen.document(Format::Json, &text);
        return Ok(Exit::Ok);
    };
    write(out, &text, args.force)?;
    cx.screen.object("llm.cassette", json!({ "file": out, "answers": tape.len() }));
    cx.screen.field("written", format!("{} ({})", out.display(), counted(tape.len() as u64, "answer")));
    let file = shell_word(&out.display().to_string());
    cx.screen.next(&format!("BOSUN_CASSETTE_MODE=replay BOSUN_CASSETTE_DIR={file} bosun run ..."));
    Ok(Exit::Ok)
}

async fn history(cx: &Context, target: &Target) -> Result<Vec<Event>, CliError> {
    let mut stream = cx.backend.events(target.clone(), EventId(1), false);
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event?);
    }
    Ok(events)
}
