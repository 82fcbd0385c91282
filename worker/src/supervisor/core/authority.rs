//! What whoever decides may do: the capability set of a spec, and the one place that is asked before anything is done.
//!
//! Invariant: what is not granted is not done, whatever a model answers, and the refusal is noted. A prompt grants nothing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::Authority;
use crate::supervisor::outbox::Outbox;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Granted(BTreeSet<Authority>);

impl Granted {
    pub fn may(&self, authority: Authority) -> bool {
        self.0.contains(&authority)
    }

    /// Whether it may; what it may not is noted as refused, with what was wanted in which cycle.
    pub fn may_or_note(&self, authority: Authority, action: &str, cycle: u32, out: &mut Outbox) -> bool {
        let may = self.may(authority);
        if !may {
            out.note(NoteKind::ActionRefused, json!({ "action": action, "cycle": cycle, "why": "no authority" }));
        }
        may
    }
}

impl FromIterator<Authority> for Granted {
    fn from_iter<I: IntoIterator<Item = Authority>>(granted: I) -> Self {
        Granted(granted.into_iter().collect())
    }
}

impl<const N: usize> From<[Authority; N]> for Granted {
    fn from(granted: [Authority; N]) -> Self {
        granted.into_iter().collect()
    }
}
