//! How long callers wait for those that they gave work to, and when that time stands still.
//!
//! Invariant: what is bounded is work (CUG-41): while the run is paused, and while somebody below waits for a person, the
//! time of a delegation stands still, and goes on with what was left of it. One that would only go on in the background
//! loses nothing by that, and goes there, unless all places there are taken: it would be ended. It ends nothing, and holds no time: the core does.

use std::collections::BTreeSet;

use super::agent_loop::AgentLoop;
use super::session::Session;
use crate::supervisor::core::key::{AgentsKey, Key, SessionAsk};
use crate::supervisor::outbox::Outbox;
use crate::supervisor::spec::{OnDelegationTimeout, Span};

impl AgentLoop {
    /// The caller of a session waits so long from now on: `waits` in all, with `patience` for what comes beside its work.
    pub(super) fn expect_within(&mut self, seq: u32, waits: Span, patience: Span, out: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(&seq) else { return };
        session.deadline = Some(waits);
        let due = out.now().plus(patience.duration());
        out.timer(session.key(SessionAsk::Deadline), due, label(session));
    }

    /// Stops the time of those for whom it stands still, and lets that of the others go on.
    pub(super) fn keep_time(&mut self, out: &mut Outbox) {
        let asking = match self.rules.delegation.on_timeout {
            OnDelegationTimeout::Background if self.has_room() => BTreeSet::new(),
            OnDelegationTimeout::Background => self.above_people(out),
            OnDelegationTimeout::Kill | OnDelegationTimeout::Wait | OnDelegationTimeout::Fail => self.above_people(out),
        };
        for (seq, session) in self.sessions.iter().filter(|(_, session)| session.deadline.is_some()) {
            let passes = !out.is_held() && !asking.contains(seq);
            out.keep_time(session.key(SessionAsk::Deadline), passes, || label(session));
        }
    }

    /// The sessions that wait for a person, here or in a run below, and those that wait for them. Whoever waits for a memory does as well, where one
    /// that uses it waits for a person to let work begin.
    fn above_people(&self, out: &Outbox) -> BTreeSet<u32> {
        let before = out.awaited().above_people().filter_map(|key| match key {
            Key::Agents(key) => Some(key),
            _ => None,
        });
        let of_session = |key: &&AgentsKey| matches!(key, AgentsKey::Session { .. });
        let asker = |key: &AgentsKey| self.asker(key);
        let mut above = self.waiting_for(before.filter(of_session).filter_map(asker).collect(), true);
        above.extend(self.waiting_for(self.humans.keys().filter(of_session).filter_map(asker).collect(), false));
        above
    }

    /// These sessions, all that they work for, and, where `memories` count, whoever is behind one of them in a queue.
    fn waiting_for(&self, mut next: Vec<u32>, memories: bool) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        while let Some(seq) = next.pop() {
            if found.insert(seq) {
                next.extend(self.sessions.get(&seq).and_then(|session| session.parent));
                next.extend(self.behind(seq).iter().filter(|_| memories));
            }
        }
        found
    }
}

fn label(session: &Session) -> String {
    format!("delegation to {}", session.agent)
}
