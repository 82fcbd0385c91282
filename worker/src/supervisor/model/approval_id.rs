//! The id of an approval.
//!
//! Invariant: it has one spelling, so that it is compared as it stands.

use serde::{Deserialize, Serialize};

/// `<run>/ap-<n>`: unique over all runs, and known before anybody answers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ApprovalId(String);

impl ApprovalId {
    pub(crate) fn of(run: &str, n: u64) -> Self {
        ApprovalId(format!("{run}/ap-{n}"))
    }
    pub fn new(text: impl Into<String>) -> Self {
        ApprovalId(text.into())
    }
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// Its number, if it is an id of this run in its one spelling.
    pub(crate) fn number(&self, run: &str) -> Option<u64> {
        let n = self.0.strip_prefix(run)?.strip_prefix("/ap-")?.parse().ok()?;
        (ApprovalId::of(run, n) == *self).then_some(n)
    }
}

impl std::fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
