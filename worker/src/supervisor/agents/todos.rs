//! The todo list a supervisor keeps for itself with `create_update_todos`: `{text, status}`, nothing more.
//!
//! Invariant: a list replaces the one before as a whole; a list that is not well formed changes nothing. Nothing is run
//! because of it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::refusal::ArgumentRefusal;

/// The most entries of a list: it goes to the model with every call.
pub const TODOS_MAX: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Todo {
    pub text: String,
    pub status: TodoStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    Pending,
    Completed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    todos: Vec<Todo>,
}

/// The list of the arguments, or why they hold none.
pub(crate) fn decode(args: &Map<String, Value>) -> Result<Vec<Todo>, ArgumentRefusal> {
    let args: Args = serde_path_to_error::deserialize(Value::Object(args.clone()))
        .map_err(|why| ArgumentRefusal::Todos { at: why.path().to_string(), why: why.inner().to_string() })?;
    if args.todos.len() > TODOS_MAX {
        return Err(ArgumentRefusal::ManyTodos(args.todos.len()));
    }
    Ok(args.todos)
}

/// What the model is told of its list.
pub(crate) fn section(todos: &[Todo]) -> String {
    let line = |todo: &Todo| match todo.status {
        TodoStatus::Pending => format!("- [ ] {}", todo.text),
        TodoStatus::Completed => format!("- [x] {}", todo.text),
    };
    todos.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"todos": {"type": "array", "items": {
            "type": "object",
            "properties": {"text": {"type": "string"}, "status": {"enum": ["pending", "completed"]}},
            "required": ["text", "status"],
        }}},
        "required": ["todos"],
    })
}
