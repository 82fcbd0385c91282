//! How long callers wait for those that they gave work to, and when that time stands still.
//!
//! Invariant: what is bounded is work (CUG-41): while the run is paused, and while somebody below waits for a person, the
//! time of a delegation stands still, and goes on with what was left of it. One that would only go on in the background
//! loses nothing by that, and goes there. It ends nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};

use super::agent_loop::AgentLoop;
use crate::supervisor::core::key::{AgentsKey, SessionAsk};
use crate::supervisor::outbox::Outbox;
use crate::supervisor::spec::{OnDelegationTimeout, Span};

/// When the caller of a session waits no longer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Deadline {
    pub(crate) key: AgentsKey,
    /// How long its caller waits in all.
    pub(crate) waits: Span,
    due: Timestamp,
    /// What is left of it, while time stands still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<Duration>,
}

impl AgentLoop {
    /// The caller of a session waits so long from now on.
    pub(super) fn expect_within(&mut self, seq: u32, waits: Span, patience: Span, out: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(&seq) else { return };
        let key = session.key(SessionAsk::Deadline);
        let due = out.now().plus(patience.duration());
        out.timer(key.clone(), due, format!("delegation to {}", session.agent));
        session.deadline = Some(Deadline { key: key.clone(), waits, due, left: None });
        self.waits.insert(key, seq);
    }

    /// Stops the time of those for whom it stands still, and lets that of the others go on.
    pub(super) fn keep_time(&mut self, out: &mut Outbox) {
        let asking = match self.rules.delegation.on_timeout {
            OnDelegationTimeout::Background => BTreeSet::new(),
            OnDelegationTimeout::Kill | OnDelegationTimeout::Wait | OnDelegationTimeout::Fail => self.above_people(),
        };
        let (paused, now) = (self.is_paused(), out.now());
        for (seq, session) in &mut self.sessions {
            let Some(deadline) = &mut session.deadline else { continue };
            match (paused || asking.contains(seq), deadline.left) {
                (true, None) => {
                    deadline.left = Some(deadline.due.since(now));
                    self.waits.remove(&deadline.key);
                    out.cancel_timer(deadline.key.clone());
                }
                (false, Some(left)) => {
                    (deadline.due, deadline.left) = (now.plus(left), None);
                    self.waits.insert(deadline.key.clone(), *seq);
                    out.timer(deadline.key.clone(), deadline.due, format!("delegation to {}", session.agent));
                }
                (true, Some(_)) | (false, None) => {}
            }
        }
    }

    /// The sessions that wait for a person, and those that wait for them.
    fn above_people(&self) -> BTreeSet<u32> {
        let mut above = BTreeSet::new();
        let of_sessions = self.humans.keys().filter(|key| matches!(key, AgentsKey::Session { .. }));
        for session in of_sessions.filter_map(|key| self.waits.get(key)) {
            let mut next = Some(*session);
            while let Some(seq) = next.filter(|seq| above.insert(*seq)) {
                next = self.sessions.get(&seq).and_then(|session| session.parent);
            }
        }
        above
    }
}
