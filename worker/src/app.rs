//! A program of its own: workflows and activities, with the whole command line around them.
//!
//! Replay, queries and forks need the workflow code, so whoever writes workflows builds a binary from this:
//!
//! ```no_run
//! # use std::process::ExitCode;
//! fn main() -> ExitCode {
//!     bosun_worker::App::new()
//!         .activity("greet", |_cx, name: String| async move { Ok(format!("Hello, {name}")) })
//!         .main()
//! }
//! ```
//!
//! Invariant: registering decides nothing; the stock `bosun` binary is this with the built-in supervisors.

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;

use bosun_engine::{ActivityContext, ActivityError, ActivityRegistry, ActivityType};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cli::{self, PlanLoader, Program};
use crate::embedded::Registries;

/// The builder of a program.
#[derive(Clone, Default)]
pub struct App {
    registries: Registries,
    plans: Option<PlanLoader>,
}

impl App {
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers an activity function.
    pub fn activity<I, O, F, Fut>(mut self, activity_type: impl Into<ActivityType>, function: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize,
        F: Fn(ActivityContext, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, ActivityError>> + Send + 'static,
    {
        self.registries.activities.register(activity_type, function);
        self
    }

    /// Registers many activities at once, as a library of them does.
    pub fn activities(mut self, register: impl FnOnce(&mut ActivityRegistry)) -> Self {
        register(&mut self.registries.activities);
        self
    }

    /// How `run PLAN.yaml` reads plan files.
    pub fn plans(mut self, loader: PlanLoader) -> Self {
        self.plans = Some(loader);
        self
    }

    /// Runs the command line of this process to its end.
    pub fn main(self) -> ExitCode {
        let program = Program { opener: Arc::new(self.registries), plans: self.plans };
        cli::main(&program, std::env::args_os()).into()
    }
}
