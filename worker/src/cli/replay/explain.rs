//! `replay explain`: why one history does not fit the code, and what to do.

use bosun_replay::{Prefixes, replay_history};
use clap::Args;

use super::Bench;
use super::check::of_report;
use super::source::HistoryOf;
use super::verdict::exit_of;
use crate::cli::error::{CliError, printable};
use crate::cli::exit::Exit;

#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    of: HistoryOf,
}

pub(super) async fn explain(bench: &mut Bench<'_>, args: ExplainArgs) -> Result<Exit, CliError> {
    let (name, history) = bench.recorded(&args.of).await?.replayable()?;
    let checked = of_report(name.clone(), replay_history(&bench.workflows, &history, Prefixes::None));
    bench.screen.object("replay.explain", checked.json());
    match checked.explanation() {
        Some(why) => bench.screen.line(printable(&why)),
        None => {
            bench.screen.line(printable(&format!("{name}: the code of this program fits its {} events", history.len())))
        }
    }
    Ok(exit_of(&[checked]))
}
