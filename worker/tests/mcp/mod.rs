//! MCP servers: the activities `mcp` and `mcp_tools` against servers that speak the wire by hand, well and badly; and
//! agents that use their tools.
//!
//! Invariant: no server here is made with the library under test. Local processes and loopback only.

mod agents;
mod hostile;
mod kit;
mod remote;
mod stub;
mod tools;
