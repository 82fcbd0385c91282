//! Scenes: runs tested by people who write YAML (`bosun test`).
//!
//! ```text
//!   file ─► scene ─► life (production worker, log in memory, skipping clock) ─► judge ─► failures
//!                      four ways: straight · replayed · crashed after every commit · calls ended in other orders
//! ```
//!
//! Invariant: what runs is the production worker; only the log, the clock and the world are the scene's. Nobody answers
//! but whom the scene or the spec names. No network, no sleep. How results are printed is in `cli::test`.

mod acts;
mod asked;
mod expect;
mod file;
mod judge;
mod life;
mod matcher;
mod names;
mod orders;
mod outside;
mod people;
mod rule;
mod ways;
mod world;

pub use file::BadScene;
pub use ways::{Choice, Failure, Played, Way};

use std::path::Path;

use bosun_engine::workflow::WorkflowRegistry;

/// A scene that was read and can be played.
#[derive(Debug, Clone)]
pub struct SceneFile(file::Scene);

impl SceneFile {
    /// Reads a scene; the files that it names are beside it.
    pub fn load(path: &Path) -> Result<SceneFile, BadScene> {
        let file = path.to_string_lossy().into_owned();
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|why| BadScene {
            file: file.clone(),
            why: crate::supervisor::FieldError { path: "the file".to_owned(), problem: why.to_string() },
        })?;
        file::Scene::read(&file, &text, &read).map(SceneFile)
    }

    pub fn file(&self) -> &str {
        &self.0.file
    }
    pub fn sentence(&self) -> &str {
        &self.0.sentence
    }
    pub fn rows(&self) -> &[String] {
        &self.0.rows
    }
    /// Plays it in the ways that are chosen.
    pub fn play(&self, workflows: &WorkflowRegistry, choice: &Choice) -> Played {
        ways::play(&self.0, workflows, choice)
    }
}
