//! Capabilities: the activities that are in the box. A task's work is an activity of some capability.
//!
//! Invariant: a capability reaches the world only inside its activity function, and says everything that a workflow may
//! decide on in its result or failure. Capabilities know no supervisor and no plan.

#[doc(hidden)]
pub mod at_rest;
pub mod compose;
#[doc(hidden)]
pub mod demo;
pub(crate) mod durable;
pub(crate) mod environment;
pub mod file;
pub mod http;
pub(crate) mod in_time;
pub(crate) mod leaks;
pub mod mcp;
pub mod model;
#[doc(hidden)]
pub mod owner;
pub mod process;
#[doc(hidden)]
pub mod scripted;
mod scrub;
#[cfg(test)]
pub(crate) mod testing;

use bosun_engine::ActivityRegistry;

use compose::COMPOSE;
use demo::DemoConfig;
use file::{FILE, FileConfig};
use http::{GuardedClient, HTTP, HttpConfig};
use mcp::{MCP, MCP_TOOLS, McpConfig};
use model::{MODEL, ModelConfig};
use process::{PROCESS, ProcessConfig};

/// What the worker's owner allows its capabilities.
#[derive(Debug, Clone, Default)]
pub struct CapabilityConfig {
    /// Which programs may be run, and within which limits.
    pub process: ProcessConfig,
    /// Which addresses may be reached.
    pub http: HttpConfig,
    /// Which directories may be read and written.
    pub file: FileConfig,
    /// How the activities of the examples behave.
    pub demo: DemoConfig,
    /// Which models may be asked.
    pub model: ModelConfig,
    /// Which MCP servers there are.
    pub mcp: McpConfig,
}

/// Registers all capabilities in the box. Fails when the HTTP client cannot load this machine's TLS roots.
pub fn register(registry: &mut ActivityRegistry, config: &CapabilityConfig) -> Result<(), reqwest::Error> {
    let process = ProcessConfig { files: config.file.clone(), ..config.process.clone() };
    let (file, reports) = (config.file.clone(), config.file.clone());
    let http = GuardedClient::new(config.http.clone())?;
    registry.register(PROCESS, move |context, input| process::run(process.clone(), context, input));
    registry.register(HTTP, move |context, input| http.clone().run(context, input));
    registry.register(FILE, move |context, input| file::run(file.clone(), context, input));
    registry.register(COMPOSE, move |context, input| compose::run(reports.clone(), context, input));
    demo::register(registry, &config.demo);
    scripted::register(registry);
    model::register(registry, &config.model);
    mcp::register(registry, &config.mcp, &config.process);
    for leaves_the_process in [PROCESS, HTTP, MODEL, MCP, MCP_TOOLS] {
        registry.external(leaves_the_process);
    }
    Ok(())
}
