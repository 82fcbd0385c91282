//! The kitchen sink: a workflow that interprets a program given as JSON, so that every feature of the engine can be
//! driven from outside, without writing Rust: `bosun execute kitchen-sink --input @program.json`.
//!
//! ```json
//! { "vars": { "who": "world" },
//!   "steps": [
//!     { "activity": { "type": "echo", "input": { "hello": "$who" }, "as": "greeting" } },
//!     { "parallel": [ [ { "timer": "2s" } ], [ { "wait_signal": { "name": "go", "as": "go", "timeout": "1m" } } ] ] },
//!     { "return": "$greeting.hello" } ] }
//! ```
//!
//! A program is `steps`, and `vars` to begin with. A step is a mapping with one key:
//!
//! | step | value | does |
//! |---|---|---|
//! | `activity` | `type`, `input`, `as`, `start_to_close` (30s), `schedule_to_close`, `schedule_to_start`, `heartbeat`, `task_queue`, `summary`, `cancellation` (`try`, `wait`, `abandon`), `retry` {`maximum_attempts`, `initial_interval`, `maximum_interval`, `coefficient_permille`, `non_retryable` (a list of types)} | runs an activity |
//! | `timer` | `"5s"`, or `for`, `summary` | waits |
//! | `sleep_until` | milliseconds since 1970, or a variable | waits until a moment |
//! | `wait_signal` | `name`, `as`, `timeout` | waits for a signal; after the timeout the variable is `null` |
//! | `drain_signals` | `name`, `as` | takes the signals that wait, as a list |
//! | `wait_var` | `name`, `equals` | waits until a variable (changed by an update) has a value |
//! | `child` | `type` (kitchen-sink), `id`, `input`, `as`, `close_policy` (`terminate`, `abandon`, `request_cancel`), `cancellation`, `wait` (true; false waits for the start only) | runs a child workflow |
//! | `signal` | `workflow_id`, `name`, `input` | signals another run |
//! | `cancel_workflow` | `workflow_id`, `reason` | asks another run to cancel |
//! | `parallel` | list of lists of steps | runs all, waits for all, fails with the first failure in order |
//! | `race` | `branches`, `as` | runs all, the first to end wins, the others are canceled; the variable is the winner's number |
//! | `loop` | `times`, `as`, `steps` | repeats; the variable counts from 0 |
//! | `if` | `var`, `equals`, `then`, `else` | chooses |
//! | `try` | `steps`, `catch`, `as`, `always` | on failure runs `catch` with the failure in the variable; `always` runs in any case, even in a cancellation |
//! | `saga` | list of `do`, `undo` (lists of steps) | on failure runs the `undo`s of what began, last first |
//! | `side_effect` | `value`, `as` | records a value once |
//! | `random`, `uuid`, `now` | name of a variable | the run's own; the same on every replay |
//! | `patch` | `id`, `new`, `old` | takes the new branch in runs that did not pass here before the patch |
//! | `deprecate_patch` | id | says that the old branch is gone |
//! | `upsert` | mapping of texts, numbers, booleans, lists of texts, nulls | search attributes |
//! | `memo` | mapping | memo |
//! | `set` | mapping | variables |
//! | `wait_cancel` | name of a variable | waits for the cancellation, and goes on with its reason |
//! | `continue_as_new` | mapping of variables to change | goes on in a new run; without `steps` with the same program. `{"steps": [...], "vars": {...}}` |
//! | `fail` | `type`, `message`, `non_retryable`, `details` | fails |
//! | `return` | anything | ends with this result; without it the result is all variables |
//!
//! In every value a text `"$name"` or `"$name.field.0"` stands for a variable, and `"$$"` begins a plain dollar.
//! Queries: `vars` (all of them), `position` (the step that began last). Update: `set_var` `{"name", "value"}` gives the
//! value before; its validator refuses a name that no reference could mean.
//!
//! Invariant: the whole program is checked before the first step; an unknown step fails the run with its path, and no
//! program can do what workflow code could not. It is no language to write workflows in: for that there is Rust.

mod attributes;
mod interpret;
mod options;
mod program;
mod room;

pub use interpret::kitchen_sink;

/// The workflow type.
pub const KITCHEN_SINK: &str = "kitchen-sink";
/// The failure type of a program that cannot be read.
pub const INVALID_PROGRAM: &str = "InvalidProgram";

#[cfg(test)]
mod tests;
