//! The words of the engine: plain data that every other module speaks in.
//!
//! Invariant: nothing here reads a clock, a disk, a socket or a random source; every type is ordered, comparable and
//! serialisable. `event` and `options` are the disk contract. This module decides nothing: the machines do.

mod command;
mod defect;
mod event;
mod failure;
mod fork;
mod history_builder;
mod id;
mod input;
mod job;
mod options;
mod origin;
mod payload;
mod payloads_visit;
mod priority;
mod retry;
mod start_written;
mod terminated;
mod time;
mod turn;
mod workflow_id;

pub use command::*;
pub use defect::*;
pub use event::*;
pub use failure::*;
pub use fork::*;
pub use history_builder::*;
pub use id::*;
pub use input::*;
pub use job::*;
pub use options::*;
pub use origin::*;
pub use payload::*;
pub use priority::*;
pub use retry::*;
pub use time::*;
pub use turn::*;
pub use workflow_id::*;
