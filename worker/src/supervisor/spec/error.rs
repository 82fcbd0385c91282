//! Why something is no spec.
//!
//! Invariant: the error names the file, the place and the problem; a builder's has no file.

use super::super::fields::FieldError;
use super::super::yaml::TextPlace;

/// A spec that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSpec {
    /// The file; empty for a spec that was built by a program.
    pub path: String,
    /// The key, such as `hitl.triggers.confidence`; empty for the whole.
    pub at: String,
    /// What is wrong there, and what may stand there instead.
    pub why: String,
    /// Where that stands in the file, if it does.
    pub place: Option<TextPlace>,
    /// Everything that is wrong, an entry each, where that is known: `at` and `why` tell of all of it.
    pub(crate) faults: Vec<FieldError>,
}

impl std::error::Error for InvalidSpec {}

impl std::fmt::Display for InvalidSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Invalid supervisor spec")?;
        if !self.path.is_empty() {
            write!(f, " at '{}'", self.path)?;
        }
        f.write_str(". ")?;
        if !self.at.is_empty() {
            write!(f, "{}: ", self.at)?;
        }
        f.write_str(&self.why)?;
        f.write_str(&TextPlace::shown(self.place, &self.path))
    }
}

impl InvalidSpec {
    pub(super) fn of(path: &str, why: FieldError) -> Self {
        let FieldError { path: at, problem, others } = why;
        let more: String = others.iter().map(|one| format!("; and {}: {}", one.path, one.problem)).collect();
        let first = FieldError::at(at.clone(), problem.clone());
        let faults = std::iter::once(first).chain(others).collect();
        InvalidSpec { path: path.to_owned(), at, why: format!("{problem}{more}"), place: None, faults }
    }
}
