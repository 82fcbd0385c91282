//! The Bosun engine: it decides, drives and remembers. This page is the crate's README.
#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod activity;
pub mod client;
pub mod clock;
pub mod filter;
pub mod log;
pub mod machine;
mod queue;
pub mod reference;
pub mod request;
pub mod seeded;
pub mod service;
pub mod testing;
pub mod vocabulary;
pub mod workflow;

pub use activity::*;
pub use client::{Client, MessageError, WorkflowError, WorkflowHandle};
pub use filter::{Filter, FilterError};
pub use reference::*;
pub use request::*;
pub use service::{
    DataDirectory, FitReport, Health, Interceptor, Retention, RetentionInfo, StartError, Worker, WorkerOptions,
    WorkerSlots,
};
pub use vocabulary::*;
