//! The grant of tools of an MCP server.
//!
//! Invariant: default deny. Tools are exact names, and `all` is a word that somebody wrote; a call has the server and the
//! tool of its grant, whatever a model says. Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::capability::mcp::McpChoice;

/// Tools of an MCP server, by exact names; the word `all` stands for whatever the server has when the agent begins.
///
/// The grant of one tool may describe it itself, with `parameters`. What a grant leaves out is asked of the server once,
/// when the agent begins, and is in the history from then on (see `opening`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpGrant {
    pub server: String,
    pub tools: McpChoice,
    /// The parameters are those that the server publishes: the capability judges by them too, also by the words that
    /// `schema` does not know.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub published: bool,
}

impl McpGrant {
    /// The tool, if it is only one.
    pub fn one(&self) -> Option<&str> {
        match &self.tools {
            McpChoice::Only(names) if names.len() == 1 => names.first().map(String::as_str),
            McpChoice::Only(_) | McpChoice::Every(_) => None,
        }
    }

    pub(super) fn check(&self, describes: bool) -> Result<(), String> {
        match &self.tools {
            _ if self.server.is_empty() => Err("it names no server".to_owned()),
            McpChoice::Only(names) if names.is_empty() => Err("it names no tools".to_owned()),
            McpChoice::Only(names) if names.iter().any(|name| name.is_empty() || name.contains('*')) => {
                Err("tools are exact names, or the word `all`".to_owned())
            }
            _ if describes && self.one().is_none() => Err("`parameters` describe one tool, and no more".to_owned()),
            _ => Ok(()),
        }
    }

    /// Whether the grant has this tool.
    pub(super) fn names(&self, tool: &str) -> bool {
        match &self.tools {
            McpChoice::Only(names) => names.iter().any(|name| name == tool),
            McpChoice::Every(_) => true,
        }
    }

    /// Server and tool are the grant's; a model gives arguments and nothing else.
    pub(super) fn input(&self, arguments: &Value, timeout_ms: u64, most: u64) -> Result<Value, String> {
        let tool = self.one().ok_or("the tools of the server are not known yet")?;
        Ok(json!({ "server": self.server, "tool": tool, "arguments": arguments, "timeout_ms": timeout_ms,
            "output_max": most }))
    }
}
