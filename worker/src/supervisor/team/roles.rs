//! Roles: which one the agent of a task has, and what the role means to it.
//!
//! Invariant: a role is chosen by the plan, never by chance; a role nobody describes is a good role all the same. It
//! builds no prompt: it gives the lines that a prompt holds.

use serde_json::json;

use super::mailbox::{InvalidMessage, MailDraft, Mailboxes, SUPERVISOR};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::Outbox;

/// Who does what nobody special is asked for.
pub const GENERALIST: &str = "generalist";
/// The content of the message that tells an agent its role.
pub const ROLE_ASSIGNED: &str = "role_assigned";

/// What a role is good at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleEntry {
    pub role: &'static str,
    pub specialty: &'static str,
    pub tendency: &'static str,
}

const fn entry(role: &'static str, specialty: &'static str, tendency: &'static str) -> RoleEntry {
    RoleEntry { role, specialty, tendency }
}

/// The roles of the book.
pub const CATALOGUE: [RoleEntry; 4] = [
    entry("researcher", "Information gathering", "Comprehensive, detailed"),
    entry("analyst", "Data analysis", "Numbers, trends"),
    entry("strategist", "Strategic planning", "High-level view, long-term"),
    entry("writer", "Content creation", "Readability, structure"),
];

/// The role of the task at `index` (from 0) of the plan: the planner's, else the one the run was given in its context,
/// else the generalist.
pub fn role_of(index: usize, agent_types: &[String], incoming: Option<&str>) -> String {
    let named = |role: &str| Some(role.trim().to_owned()).filter(|role| !role.is_empty());
    let planned = agent_types.get(index).and_then(|role| named(role));
    planned.or_else(|| incoming.and_then(named)).unwrap_or_else(|| GENERALIST.to_owned())
}

/// The sentence of the system prompt that gives an agent its role.
pub fn role_prompt(role: &str) -> String {
    let article = if role.starts_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
    match CATALOGUE.iter().find(|entry| entry.role == role) {
        Some(RoleEntry { specialty, tendency, .. }) => {
            let (specialty, tendency) = (lower_first(specialty), lower_first(tendency));
            format!("You are {article} {role}, your specialty is {specialty}. Your tendency: {tendency}.")
        }
        None => format!("You are {article} {role}."),
    }
}

/// Tells an agent its role: noted, and a message from the supervisor that never waits.
pub fn assign(mailbox: &mut Mailboxes, agent: &str, role: &str, out: &mut Outbox) -> Result<u64, InvalidMessage> {
    out.note(NoteKind::RoleAssigned, json!({ "agent": agent, "role": role }));
    mailbox.append(MailDraft::new(SUPERVISOR, agent, ROLE_ASSIGNED).role(role), out)
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}
