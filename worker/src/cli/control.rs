//! `cancel`, `terminate`, `pause`, `unpause` and `delete`: what a person does to a run.
//!
//! Invariant: who did it and why is recorded in the history. What cannot be undone is asked for first.

use bosun_engine::DEFAULT_NAMESPACE;
use clap::Args;
use serde_json::json;

use super::args::RunOf;
use super::context::Context;
use super::error::CliError;
use super::exit::Exit;
use super::list::shell_word;
use super::resolve::{is_whole, run_of};

#[derive(Debug, Args)]
pub struct ControlArgs {
    #[command(flatten)]
    pub run: RunOf,
    /// Why; recorded in the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    Cancel,
    Terminate,
    Pause,
    Unpause,
    Delete,
}

impl Control {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Control::Cancel => ("cancel", "cancel requested for"),
            Control::Terminate => ("terminate", "terminated"),
            Control::Pause => ("pause", "paused"),
            Control::Unpause => ("unpause", "unpaused"),
            Control::Delete => ("delete", "deleted"),
        }
    }
}

pub(super) async fn control(cx: &mut Context, verb: Control, args: ControlArgs) -> Result<Exit, CliError> {
    let target = run_of(cx, &args.run).await?;
    let (word, done) = verb.words();
    let because = cx.because(args.reason.as_deref());
    let to = target.clone();
    // A shortcut may mean another run than was thought: it is asked for by its whole name.
    if matches!(verb, Control::Terminate | Control::Delete) || verb == Control::Cancel && !is_whole(&args.run, &target)
    {
        let place = match target.namespace.as_str() {
            DEFAULT_NAMESPACE => String::new(),
            other => format!(" of the namespace {other}"),
        };
        cx.confirm(&format!("{word} {}{place}", target.workflow_id))?;
    }
    match verb {
        Control::Cancel => cx.backend.cancel(to, because).await?,
        Control::Terminate => cx.backend.terminate(to, because).await?,
        Control::Pause => cx.backend.pause(to, because).await?,
        Control::Unpause => cx.backend.unpause(to, because).await?,
        Control::Delete => cx.backend.delete(to).await?,
    }
    cx.screen.object(
        &format!("workflow.{word}"),
        json!({ "workflow_id": target.workflow_id, "run_id": target.run_id, "reason": args.reason }),
    );
    cx.screen.line(format!("{done} {}", target.workflow_id));
    if verb == Control::Delete {
        cx.screen.next("bosun list");
    } else {
        cx.screen.next(&format!("bosun describe {}", shell_word(target.workflow_id.as_str())));
    }
    Ok(Exit::Ok)
}
