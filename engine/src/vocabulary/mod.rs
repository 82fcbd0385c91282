//! The words of the engine: plain data that every other module speaks in.
//!
//! Invariant: nothing here reads a clock, a disk, a socket or a random source; every type is ordered, comparable and
//! serialisable. `event` and `options` are the disk contract. This module decides nothing: the machines do.

pub mod command;
pub mod defect;
pub mod event;
pub mod failure;
pub mod fork;
pub mod history_builder;
pub mod id;
pub mod input;
pub mod job;
pub mod options;
pub mod origin;
pub mod payload;
pub mod payloads_visit;
pub mod retry;
pub mod time;
pub mod turn;

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
pub use retry::*;
pub use time::*;
pub use turn::*;
