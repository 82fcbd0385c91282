//! `replay …`: recorded histories and the workflow code of this program.
//!
//! Invariant: no verb here starts an engine, calls an activity, or changes a recorded run; a data directory that no
//! worker holds is read without one. A verb stands in a file of its own; this one declares and routes. The verbs `diff`,
//! `export` and `fork --dry-run` read through the same [`Bench`].

mod check;
mod debug;
mod explain;
mod fuzz;
pub(in crate::cli) mod junit;
mod paid;
pub(in crate::cli) mod past;
pub(in crate::cli) mod record;
mod show;
pub(in crate::cli) mod source;
#[cfg(test)]
mod tests;
mod verdict;
mod what_if;

use std::sync::Arc;

use bosun_engine::Namespace;
use bosun_engine::workflow::WorkflowRegistry;
use clap::Subcommand;

use super::Program;
use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::locate::{Readable, locate_histories};
use super::output::Screen;
use crate::api::histories::NamespaceHistories;
use crate::backend::{Histories, OpenEngine};

#[derive(Debug, Subcommand)]
pub enum ReplayVerb {
    /// Replay many histories with the code of this program: files, the runs of a query, or, before a deploy, all open runs.
    Check(check::CheckArgs),
    /// Explain why a history does not fit the code, and what to do about it.
    Explain(explain::ExplainArgs),
    /// Show a history, or the run as it was at one of its events.
    Show(show::ReplayShowArgs),
    /// Walk through a history in the terminal, forwards and backwards: events, code, state, breakpoints.
    Debug(debug::DebugArgs),
    /// Save a run as a regression fixture, with a test beside it.
    Record(record::RecordArgs),
    /// Search a workflow type for non-determinism, by many simulated lives with every fault and invented results.
    Fuzz(fuzz::FuzzArgs),
    /// Give the recorded results to the code of this program, and show where it would decide otherwise. Exits with 22 if it would.
    WhatIf(what_if::WhatIfArgs),
    /// For the pages: reads a history, writes the run as it was.
    #[command(hide = true)]
    Past(past::PastArgs),
}

pub(super) async fn replay(
    screen: &mut Screen,
    global: &Global,
    program: &Program,
    verb: ReplayVerb,
) -> Result<Exit, CliError> {
    let mut bench = Bench::new(screen, global, program)?;
    match verb {
        ReplayVerb::Check(args) => check::check(&mut bench, args).await,
        ReplayVerb::Explain(args) => explain::explain(&mut bench, args).await,
        ReplayVerb::Show(args) => show::show(&mut bench, args).await,
        ReplayVerb::Debug(args) => debug::debug(&mut bench, args).await,
        ReplayVerb::Record(args) => record::record(&mut bench, args).await,
        ReplayVerb::Fuzz(args) => fuzz::fuzz(&mut bench, args).await,
        ReplayVerb::Past(args) => past::past(&mut bench, &args),
        ReplayVerb::WhatIf(args) => what_if::what_if_verb(&mut bench, args).await,
    }
}

/// What a verb that reads works with: the code, a screen, and recorded runs when it asks for them.
pub(super) struct Bench<'a> {
    pub(super) workflows: WorkflowRegistry,
    pub(super) namespace: Namespace,
    pub(super) global: &'a Global,
    pub(super) screen: &'a mut Screen,
    opener: Arc<dyn OpenEngine>,
    readable: Option<Readable>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(screen: &'a mut Screen, global: &'a Global, program: &Program) -> Result<Self, CliError> {
        Ok(Bench {
            workflows: program.opener.workflows(),
            namespace: Namespace::new(&global.namespace)?,
            opener: program.opener.clone(),
            global,
            screen,
            readable: None,
        })
    }

    /// Who has the recorded runs of `--data` or `--address`; found when first asked for, so that files need nobody.
    pub(super) async fn readable(&mut self) -> Result<&Readable, CliError> {
        let readable = match self.readable.take() {
            Some(readable) => readable,
            None => locate_histories(self.global, &*self.opener).await?,
        };
        Ok(self.readable.insert(readable))
    }

    pub(super) async fn histories(&mut self) -> Result<Arc<dyn Histories>, CliError> {
        let histories = self.readable().await?.histories();
        Ok(Arc::new(NamespaceHistories { histories, namespace: self.namespace.clone() }))
    }
}
