//! The rooms at the bottom of the supervisors, which the core may use.
//!
//! Invariant: a room is added here only if it uses none that is not here.

#[path = "../../src/supervisor/core/mod.rs"]
pub mod core;
#[path = "../../src/supervisor/fields.rs"]
pub mod fields;
#[path = "../../src/supervisor/journal.rs"]
pub mod journal;
#[path = "../../src/supervisor/model/mod.rs"]
pub mod model;
#[path = "../../src/supervisor/outbox/mod.rs"]
pub mod outbox;
#[path = "../../src/supervisor/task.rs"]
pub mod task;
