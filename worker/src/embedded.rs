//! The embedded engine: this process opens the data directory itself.
//!
//! Invariant: all of the command line and the control API meets the engine here and nowhere else.

use std::path::Path;
use std::sync::Arc;

use bosun_engine::ActivityRegistry;

use crate::backend::{BoxFuture, Engine, OpenEngine, OpenError, Purpose};

/// The workflows and activities of a program.
#[derive(Clone, Default)]
pub struct Registries {
    pub activities: ActivityRegistry,
}

impl OpenEngine for Registries {
    fn open<'a>(&'a self, data: &'a Path, _purpose: &'a Purpose) -> BoxFuture<'a, Result<Arc<dyn Engine>, OpenError>> {
        let why = format!("{}: this build has no engine to open it with", data.display());
        Box::pin(async move { Err(OpenError::Failed(why)) })
    }
    fn workflow_types(&self) -> Vec<String> {
        Vec::new()
    }
}
