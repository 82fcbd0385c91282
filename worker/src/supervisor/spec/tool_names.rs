//! The names that the system itself gives to tools of agents: a spec may give them to no tool of its own.
//!
//! Invariant: a name is made here and nowhere else, so that what a spec is checked for is what an agent is offered.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) const DELEGATE_WORK: &str = "Delegate work to coworker";
pub(crate) const ASK_QUESTION: &str = "Ask question to coworker";
pub(crate) const SPAWN_AGENT: &str = "spawn_agent";
pub(crate) const FORWARD_MESSAGE: &str = "forward_message";
pub(crate) const PROCESS_TOOLS: [&str; 4] = ["list_processes", "check_process", "get_process_output", "kill_process"];

/// All names that the system itself gives to tools.
pub(crate) const SYSTEM_TOOLS: [&str; 8] = [
    DELEGATE_WORK,
    ASK_QUESTION,
    SPAWN_AGENT,
    FORWARD_MESSAGE,
    PROCESS_TOOLS[0],
    PROCESS_TOOLS[1],
    PROCESS_TOOLS[2],
    PROCESS_TOOLS[3],
];

/// Tools that the loop itself answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Builtin {
    CreateUpdateTodos,
    Sleep,
    ThinkTool,
    GetCurrentDatetime,
}

impl Builtin {
    pub const ALL: [Builtin; 4] =
        [Builtin::CreateUpdateTodos, Builtin::Sleep, Builtin::ThinkTool, Builtin::GetCurrentDatetime];
    pub fn name(self) -> &'static str {
        match self {
            Builtin::CreateUpdateTodos => "create_update_todos",
            Builtin::Sleep => "sleep",
            Builtin::ThinkTool => "think_tool",
            Builtin::GetCurrentDatetime => "get_current_datetime",
        }
    }
}

/// The name of an agent as a part of a tool's name: everything that is no word character is `_`.
pub fn sanitized(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

/// The name of an agent in a hand-off: lower case, each run of blanks is `_`.
pub fn handoff_name(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join("_").to_lowercase()
}
