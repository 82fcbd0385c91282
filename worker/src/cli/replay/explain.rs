//! `replay explain`: why one history does not fit the code, and what to do.

use std::time::Duration;

use bosun_replay::Prefixes;
use clap::Args;

use super::Bench;
use super::source::HistoryOf;
use super::verdict::{CheckedHistory, ReplayAnswer, exit_of};
use crate::cli::error::{CliError, printable};
use crate::cli::exit::Exit;

#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    of: HistoryOf,
}

pub(super) async fn explain(bench: &mut Bench<'_>, args: ExplainArgs) -> Result<Exit, CliError> {
    let (name, history) = bench.recorded(&args.of).await?.replayable(&bench.workflows)?;
    let answer = ReplayAnswer::of(&bench.workflows, &history, Prefixes::None);
    let checked = CheckedHistory { name: name.clone(), answer, took: Duration::ZERO };
    bench.screen.object("replay.explain", checked.json());
    match checked.explanation() {
        Some(why) => bench.screen.block(&printable(&why)),
        None => {
            bench.screen.line(printable(&format!("{name}: the code of this program fits its {} events", history.len())))
        }
    }
    Ok(exit_of(&[checked]))
}
