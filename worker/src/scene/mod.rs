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
mod addressed;
mod asked;
mod asking;
#[cfg(test)]
mod borders;
mod counted;
mod expect;
mod file;
mod judge;
#[cfg(test)]
pub(crate) mod kit;
mod life;
mod matcher;
mod medium;
mod models;
mod mutate;
mod names;
mod never;
mod orders;
mod outside;
mod people;
mod rule;
mod schema;
#[cfg(test)]
mod slips;
mod subject;
#[cfg(test)]
mod tests;
mod update;
mod ways;
mod world;

pub use file::{BadScene, is_scene_text};
pub use mutate::{Mutant, Mutation, Wanted, mutate};
pub use schema::{schema, schema_text};
pub use ways::{Choice, SceneFailure, SceneResult, Way};

use std::path::{Path, PathBuf};

use bosun_engine::workflow::WorkflowRegistry;

use crate::supervisor::FieldError;

/// A scene that was read and can be played.
#[derive(Debug, Clone)]
pub struct SceneFile {
    scene: file::Scene,
    text: String,
    folder: PathBuf,
}

impl SceneFile {
    /// Reads a scene; the files that it names are beside it.
    pub fn load(path: &Path) -> Result<SceneFile, BadScene> {
        let file = path.to_string_lossy().into_owned();
        let text = crate::cli::read_short(path).map_err(|why| BadScene {
            file: file.clone(),
            why: FieldError::at("the file", why.to_string()),
            place: None,
        })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let scene = file::Scene::read(&file, &text, &beside(&folder))?;
        Ok(SceneFile { scene, text, folder })
    }

    /// The file, as it was named.
    pub fn file(&self) -> &str {
        &self.scene.file
    }
    /// What the scene shows, in a sentence: its key `scene`.
    pub fn sentence(&self) -> &str {
        &self.scene.sentence
    }
    /// The rows of the requirements that it shows.
    pub fn rows(&self) -> &[String] {
        &self.scene.rows
    }
    /// Plays it in the ways that are chosen.
    pub fn play(&self, workflows: &WorkflowRegistry, choice: &Choice) -> SceneResult {
        ways::play(&self.scene, workflows, choice)
    }

    /// The history of its run, straight, as a file's text; or why it fails.
    pub fn history(&self, workflows: &WorkflowRegistry) -> Result<String, Vec<SceneFailure>> {
        ways::history(&self.scene, workflows)
    }

    /// The file's text with what was seen in place of what was expected, and how many places that are.
    pub fn updated(&self, played: &SceneResult) -> (String, usize) {
        let straight = played.failures.iter().filter(|failure| failure.way == Way::Straight);
        let updates: Vec<_> = straight.filter_map(|failure| failure.update.clone()).collect();
        update::updated(&self.text, &updates)
    }
}

/// Reads files by their names beside a scene.
fn beside(folder: &Path) -> impl Fn(&str) -> Result<String, String> {
    let folder = folder.to_owned();
    move |name| {
        let path = folder.join(name);
        crate::cli::read_short(&path).map_err(|why| format!("{}: {why}", path.display()))
    }
}
