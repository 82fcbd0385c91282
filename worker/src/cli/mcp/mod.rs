//! `mcp …`: Bosun's own verbs as tools of the Model Context Protocol, and which ones there are.
//!
//! Invariant: a tool is a verb, and nothing beside: it is run as `bosun VERB -o json` with the data directory, address, token and
//! namespace of the command that serves, so that a worker asks for the same role as ever. Without `--changes` no tool changes
//! anything, and without `--approvals` none decides what people are asked, by no message and by no workflow of the worker's own.

#[cfg(feature = "mcp")]
mod lines;
#[cfg(feature = "mcp")]
mod serve;
mod tools;

use clap::{Args, Subcommand};
use serde_json::json;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::Screen;

#[derive(Debug, Subcommand)]
pub enum McpVerb {
    /// Serve Bosun's verbs as tools on standard input and output, until the client disconnects.
    Serve(ServeArgs),
    /// List the tools that `mcp serve` offers.
    Tools(ServeArgs),
}

/// What the client may do.
#[derive(Debug, Clone, Default, Args)]
pub struct ServeArgs {
    /// Also offer the verbs that change runs: start, signal, cancel, pause …
    #[arg(long)]
    pub changes: bool,
    /// Also offer the decisions that people are asked for. A model that has these can approve its own work.
    #[arg(long)]
    pub approvals: bool,
}

pub(super) async fn mcp(screen: &mut Screen, global: &Global, verb: &McpVerb) -> Result<Exit, CliError> {
    match verb {
        McpVerb::Tools(args) => {
            let tools = tools::offered(args);
            for tool in &tools {
                screen.field(tool.name, &tool.about);
            }
            let rows = tools.iter().map(|tool| json!({ "name": tool.name, "about": tool.about, "input": tool.schema }));
            let rows = rows.collect();
            screen.objects("mcp.tools", "tools", rows);
            Ok(Exit::Ok)
        }
        #[cfg(feature = "mcp")]
        McpVerb::Serve(args) => serve::serve(global, args).await,
        #[cfg(not(feature = "mcp"))]
        McpVerb::Serve(_) => {
            let _ = global;
            Err(CliError::usage("this program was built without the feature `mcp`"))
        }
    }
}
