//! The `mcp` activity: one call of one tool of one configured MCP server; and `mcp_tools`, which asks what tools there are.
//!
//! Invariant: servers are the worker's owner's, never a workflow's. Secrets are resolved when a server is started or
//! reached, and are cut out of everything that it says. A failure says honestly whether the tool may have run: a call is
//! retried only where it surely was not delivered, or where its tool is annotated as harmless to repeat. A hostile server
//! costs bounded memory and time.
//!
//! The protocol is spoken by `rmcp` (feature `mcp`). Without the feature both activities are there and say that they are
//! not: [`MCP_ABSENT`].

#[cfg(feature = "mcp")]
mod client;
mod config;

use bosun_engine::ActivityRegistry;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use config::{McpConfig, McpHttp, McpReach, McpServer, McpStdio, McpValue, PlainText};

use super::process::ProcessConfig;

/// The activity types.
pub const MCP: &str = "mcp";
/// Asks a server for its tools.
pub const MCP_TOOLS: &str = "mcp_tools";

/// This worker was built without the feature `mcp`.
pub const MCP_ABSENT: &str = "McpAbsent";
/// The owner's table of servers cannot be read.
pub const MCP_CONFIGURATION: &str = "McpConfiguration";
/// The owner's table has no server of this name.
pub const MCP_UNKNOWN_SERVER: &str = "McpUnknownServer";
/// The server has no tool of this name.
pub const MCP_UNKNOWN_TOOL: &str = "McpUnknownTool";
/// The arguments do not fit the schema that the server publishes, or the server refused them. The tool did not run.
pub const MCP_ARGUMENTS: &str = "McpArguments";
/// A secret of the server cannot be read. Nothing was sent.
pub const MCP_SECRET: &str = "McpSecret";
/// The server cannot be started or reached, or refused the connection. The tool did not run.
pub const MCP_UNREACHABLE: &str = "McpUnreachable";
/// What the server says is not the protocol.
pub const MCP_PROTOCOL: &str = "McpProtocol";
/// The server answered with an error.
pub const MCP_ERROR: &str = "McpError";
/// The answer is longer than the owner allows. The tool has run.
pub const MCP_TOO_LARGE: &str = "McpTooLarge";
/// There was no answer in time. Nobody knows whether the tool ran.
pub const MCP_TIMEOUT: &str = "McpTimeout";
/// The connection broke in the call. Nobody knows whether the tool ran.
pub const MCP_LOST: &str = "McpLost";

/// The most bytes of the texts of an answer, and of its structured part, unless the input says otherwise.
pub const MCP_OUTPUT_MAX: u64 = 1024 * 1024;

/// A call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpInput {
    /// A name in the owner's table.
    pub server: String,
    /// The exact name of the tool.
    pub tool: String,
    /// What the tool is given; must fit its schema.
    #[serde(default)]
    pub arguments: Map<String, Value>,
    /// For starting or reaching the server, and for the call, together.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// Bytes that are kept of the texts, and of the structured part.
    #[serde(default = "output_max")]
    pub output_max: u64,
}

/// What the tool gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct McpOutput {
    /// All texts of the answer, one after the other. What is no text is named in brackets.
    pub text: String,
    /// The tool ran, and says that it failed.
    pub is_error: bool,
    /// The answer as data, if the tool gives any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// What was cut, in words; nothing if the answer is whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// A question for the tools of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpToolsInput {
    /// A name in the owner's table.
    pub server: String,
    /// Which of its tools.
    pub tools: McpChoice,
    /// For starting or reaching the server, and for the question, together.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
}

/// Tools of a server: a list of exact names, or the word `all`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a list of names, or the word `all`")]
pub enum McpChoice {
    /// These, by exact name.
    Only(Vec<String>),
    /// All that it has.
    Every(Every),
}

/// The word `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Every {
    /// The only word there is.
    #[serde(rename = "all")]
    All,
}

/// The tools that were asked for: in the order of the names, or sorted by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct McpToolsOutput {
    /// One entry for each.
    pub tools: Vec<McpTool>,
}

/// A tool as its server publishes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct McpTool {
    /// The exact name.
    pub name: String,
    /// What the server says of it.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of the arguments.
    pub parameters: Value,
    /// The server says that calling it twice does no more than calling it once.
    #[serde(default)]
    pub repeatable: bool,
}

fn timeout_ms() -> u64 {
    60_000
}
fn output_max() -> u64 {
    MCP_OUTPUT_MAX
}

/// Registers both activities. Servers are started by the first call, and end when the registry is dropped.
#[cfg(feature = "mcp")]
pub(super) fn register(registry: &mut ActivityRegistry, config: &McpConfig, process: &ProcessConfig) {
    client::register(registry, config, process);
}

/// Without the feature: both activities say so.
#[cfg(not(feature = "mcp"))]
pub(super) fn register(registry: &mut ActivityRegistry, _: &McpConfig, _: &ProcessConfig) {
    use bosun_engine::{ActivityContext, ActivityError, Failure};

    async fn absent() -> Result<Value, ActivityError> {
        let why = "this worker was built without the feature `mcp`, so it has no MCP servers";
        Err(Failure::application(MCP_ABSENT, why).non_retryable().into())
    }
    registry.register(MCP, |_: ActivityContext, _: McpInput| absent());
    registry.register(MCP_TOOLS, |_: ActivityContext, _: McpToolsInput| absent());
}

#[cfg(all(test, not(feature = "mcp")))]
mod tests {
    use bosun_engine::{ActivityError, ActivityType, Payload};
    use serde_json::json;

    use super::*;
    use crate::capability::testing::probe;

    #[tokio::test]
    async fn without_the_feature_both_activities_say_so_and_are_not_tried_again() {
        let mut registry = ActivityRegistry::new();
        register(&mut registry, &McpConfig::default(), &ProcessConfig::default());
        for (activity, input) in
            [(MCP, json!({ "server": "s", "tool": "t" })), (MCP_TOOLS, json!({ "server": "s", "tools": "all" }))]
        {
            let mut task = probe(1).context.task().clone();
            task.input = Payload::encode(&input).unwrap();
            let canceled = tokio::sync::watch::channel(false).1;
            let context = bosun_engine::ActivityContext::new(std::sync::Arc::new(task), canceled, probe(1).heartbeats);
            match registry.get(&ActivityType::of(activity)).unwrap()(context).await {
                Err(ActivityError::Failure(failure)) => {
                    assert_eq!(failure.type_name(), MCP_ABSENT);
                    assert!(crate::capability::testing::is_non_retryable(&failure));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
