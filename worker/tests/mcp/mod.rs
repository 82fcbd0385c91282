//! MCP servers: the activities `mcp` and `mcp_tools` against servers that speak the wire by hand, well and badly; and
//! agents that use their tools.
//!
//! Invariant: no server that a client of ours is tested with is made with the library under test; nor is the one of `serve`,
//! which is the program that ships, asked by the library's own client. Local processes and loopback only.

mod agents;
mod hostile;
mod kit;
mod remote;
mod serve;
mod stub;
mod tools;
