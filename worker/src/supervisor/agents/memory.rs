//! What a child agent remembers between calls: its conversation, under an id that belongs to one tenant, user,
//! supervisor, conversation and agent.
//!
//! Invariant: two sessions never use one memory at a time; those that want it wait in the order they came. A memory of
//! one call is forgotten with it. A call that failed leaves the memory as it was.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::agent_loop::AgentLoop;
use super::message::Message;
use super::rules::AgentDef;
use crate::supervisor::outbox::Outbox;
use crate::supervisor::spec::MemoryScope;

/// Whose conversation this is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Thread {
    pub tenant: String,
    pub user: String,
    pub supervisor: String,
    /// The conversation; the run if none is named.
    pub thread: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct AgentMemory {
    messages: Vec<Message>,
    /// The session that uses it now.
    busy: Option<u32>,
    waiting: Vec<u32>,
    kept: bool,
}

/// The id of a child's memory. Identities are hashed, so that logs show none of them.
pub fn child_id(thread: &Thread, agent: &str, call: Option<u32>) -> String {
    let material = json!([1, thread.tenant, thread.user, thread.supervisor, thread.thread, agent, call]);
    format!("sup_child_{}", &blake3::hash(material.to_string().as_bytes()).to_hex()[..32])
}

impl AgentLoop {
    /// Gives a new child its memory and lets it begin, at once or when the memory is free.
    pub(super) fn begin_with_memory(&mut self, seq: u32, agent: &str, out: &mut Outbox) {
        let scope = self.def(agent).and_then(|def| def.memory_scope).unwrap_or(self.rules.delegation.memory_scope);
        let mut thread = self.thread.clone();
        if thread.thread.is_empty() {
            out.run().clone_into(&mut thread.thread);
        }
        let of_conversation = child_id(&thread, agent, None);
        // Whoever asks, and waits for the answer, keeps its memory meanwhile: this call has one of its own.
        let kept = scope == MemoryScope::Conversation && !self.is_held_above(seq, &of_conversation);
        let id = if kept { of_conversation } else { child_id(&thread, agent, Some(seq)) };
        let before = if kept { self.remembered.remove(agent) } else { None };
        let memory = self.memories.entry(id.clone()).or_default();
        if let Some(messages) = before {
            memory.messages = messages;
        }
        memory.kept = kept;
        memory.waiting.push(seq);
        if let Some(session) = self.sessions.get_mut(&seq) {
            session.memory = Some(id.clone());
        }
        self.next_of(&id, out);
    }

    /// Whether one of those that a session works for uses that memory.
    fn is_held_above(&self, seq: u32, memory: &str) -> bool {
        let parent = |seq: u32| self.sessions.get(&seq).and_then(|session| session.parent);
        let holds = |seq: u32| self.sessions.get(&seq).is_some_and(|session| session.memory.as_deref() == Some(memory));
        std::iter::successors(parent(seq), |seq| parent(*seq)).any(holds)
    }

    /// Lets the next session that waits for a free memory begin, with what is remembered before its task.
    fn next_of(&mut self, id: &str, out: &mut Outbox) {
        let Some(memory) = self.memories.get_mut(id) else { return };
        if memory.busy.is_some() {
            return;
        }
        if memory.waiting.is_empty() {
            if !memory.kept {
                self.memories.remove(id);
            }
            return;
        }
        if out.is_held() {
            return; // a process can be killed now, but nobody begins in its place until the run is resumed
        }
        let seq = memory.waiting.remove(0);
        memory.busy = Some(seq);
        let remembered = memory.messages.clone();
        if let Some(session) = self.sessions.get_mut(&seq) {
            session.messages.splice(0..0, remembered);
        }
        self.begin_turn(seq, out);
    }

    /// A session needs its memory no longer. `messages` are what is remembered from now on, if it ended well.
    pub(super) fn release(&mut self, id: &str, seq: u32, messages: Option<Vec<Message>>, out: &mut Outbox) {
        let Some(memory) = self.memories.get_mut(id) else { return };
        memory.waiting.retain(|waiting| *waiting != seq);
        if memory.busy == Some(seq) {
            memory.busy = None;
            if let Some(messages) = messages.filter(|_| memory.kept) {
                memory.messages = messages;
            }
        }
        self.next_of(id, out);
    }

    /// A session does not wait for its memory any more.
    pub(super) fn leave_queue(&mut self, seq: u32) {
        let id = self.sessions.get(&seq).and_then(|session| session.memory.as_ref());
        if let Some(memory) = id.and_then(|id| self.memories.get_mut(id)) {
            memory.waiting.retain(|waiting| *waiting != seq);
        }
    }

    /// The sessions that wait for the memory that this one uses.
    pub(super) fn behind(&self, seq: u32) -> &[u32] {
        let id = self.sessions.get(&seq).and_then(|session| session.memory.as_ref());
        let memory = id.and_then(|id| self.memories.get(id)).filter(|memory| memory.busy == Some(seq));
        memory.map(|memory| memory.waiting.as_slice()).unwrap_or_default()
    }

    /// After a pause: whoever is next for a memory that was let go of meanwhile begins.
    pub(super) fn next_of_all(&mut self, out: &mut Outbox) {
        let ids: Vec<String> = self.memories.keys().cloned().collect();
        for id in ids {
            self.next_of(&id, out);
        }
    }

    /// Nobody who waits for a memory will begin any more.
    pub(super) fn nobody_waits(&mut self) {
        self.memories.values_mut().for_each(|memory| memory.waiting.clear());
    }

    /// What agents remember of the conversation, by their names: what another run goes on with.
    pub(super) fn memories_by_agent(&self, run: &str) -> BTreeMap<String, Vec<Message>> {
        let mut thread = self.thread.clone();
        if thread.thread.is_empty() {
            run.clone_into(&mut thread.thread);
        }
        let kept = |agent: &AgentDef| {
            let memory = self.memories.get(&child_id(&thread, &agent.name, None)).filter(|memory| memory.kept)?;
            Some((agent.name.clone(), memory.messages.clone())).filter(|(_, messages)| !messages.is_empty())
        };
        let mut all = self.remembered.clone();
        all.extend(self.agents.iter().filter_map(kept));
        all
    }

    /// The memories that are kept, with how many messages each holds.
    pub(super) fn kept_memories(&self) -> Vec<(String, usize)> {
        let kept = self.memories.iter().filter(|(_, memory)| memory.kept);
        kept.map(|(id, memory)| (id.clone(), memory.messages.len())).collect()
    }
}
