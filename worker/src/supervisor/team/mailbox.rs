//! The mailbox of a run: messages between agents that need not depend on each other.
//!
//! A message is appended to the mailbox (what people read) and put into the delivery queue of its recipient (what its
//! next execution context shows).
//!
//! Invariant: nothing here waits. The mailbox holds at most `limit` messages: one more, and the older half goes. A
//! queue that is full takes no further message: the message is skipped there, which is counted and noted, and later
//! ones are handled as ever. `received = kept + trimmed` and `received = queued + read + dropped`. Appending costs O(1)
//! on average. It does not know which agents exist: a message
//! to an unknown name waits in the queue of that name.

use std::collections::{BTreeMap, VecDeque};

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::supervisor::core::key::TeamKey;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Ask, Outbox};
use crate::supervisor::spec::Mailbox;

/// The signal that appends to a mailbox, of this run or of another one.
pub const SIGNAL_MAILBOX: &str = "mailbox_v1";
/// Who a message is from or to when it is the run itself.
pub const SUPERVISOR: &str = "supervisor";
/// The most recipients with a queue and a numbering of their own: names come from outside.
pub const RECIPIENTS_MAX: usize = 20_000;
/// All queues together hold as much as this many full ones.
pub const FULL_QUEUES_MAX: u64 = 100;

/// What a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    Request,
    Offer,
    Accept,
    Delegation,
    #[default]
    Info,
}

/// A message as it is sent: what `mailbox_v1` carries. The names are Shannon's; lower case is understood too.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MailDraft {
    #[serde(rename = "From", alias = "from", default)]
    pub from: String,
    #[serde(rename = "To", alias = "to")]
    pub to: String,
    #[serde(rename = "Role", alias = "role", default)]
    pub role: String,
    #[serde(rename = "Content", alias = "content", default, deserialize_with = "text_of")]
    pub content: String,
    #[serde(rename = "Kind", alias = "kind", alias = "Type", alias = "type", default)]
    pub kind: MessageKind,
}

impl MailDraft {
    pub fn new(from: impl Into<String>, to: impl Into<String>, content: impl Into<String>) -> Self {
        let (role, kind) = (String::new(), MessageKind::Info);
        MailDraft { from: from.into(), to: to.into(), role, content: content.into(), kind }
    }
    #[must_use]
    pub fn role(mut self, role: impl Into<String>) -> Self {
        self.role = role.into();
        self
    }
    #[must_use]
    pub fn kind(mut self, kind: MessageKind) -> Self {
        self.kind = kind;
        self
    }
}

/// A content that is no text is kept as its JSON.
fn text_of<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    })
}

/// A message that was appended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailboxMessage {
    /// Its number in the run, from 1.
    #[serde(rename = "Seq")]
    pub seq: u64,
    /// Its number among the messages to the same recipient, from 1; 0 beyond [`RECIPIENTS_MAX`].
    #[serde(rename = "AgentSeq")]
    pub agent_seq: u64,
    #[serde(flatten)]
    pub draft: MailDraft,
    #[serde(rename = "At")]
    pub at: Timestamp,
}

/// What happened to all messages so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MailboxCounts {
    pub received: u64,
    pub kept: u64,
    pub trimmed: u64,
    pub queued: u64,
    pub read: u64,
    /// Not delivered because a queue was full.
    pub dropped: u64,
    /// Not taken at all: ill-formed or too large.
    pub refused: u64,
}

/// Why a message is not taken at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    #[error("{path}: {problem}")]
    Malformed { path: String, problem: String },
    #[error("the content has {bytes} bytes; a message carries at most {max}")]
    TooLarge { bytes: usize, max: usize },
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Recipient {
    last_seq: u64,
    unread: VecDeque<MailboxMessage>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Mailboxes {
    rules: Mailbox,
    messages: VecDeque<MailboxMessage>,
    recipients: BTreeMap<String, Recipient>,
    counts: MailboxCounts,
    /// Signals sent to mailboxes of other runs.
    sent: u64,
}

impl Mailboxes {
    pub fn new(rules: Mailbox) -> Self {
        Mailboxes { rules, ..Mailboxes::default() }
    }

    /// Takes the input of a `mailbox_v1` signal. One that is no message is counted and noted, and hinders nothing.
    pub fn received(&mut self, input: &Value, out: &mut Outbox) -> Result<u64, InvalidMessage> {
        let taken = self.draft(input).and_then(|draft| self.append(draft, out));
        if let Err(why) = &taken {
            self.counts.refused += 1;
            out.note(NoteKind::MailboxDropped, json!({ "reason": why.to_string() }));
        }
        taken
    }

    /// Appends a message and queues it for its recipient; gives its number.
    pub fn append(&mut self, draft: MailDraft, out: &mut Outbox) -> Result<u64, InvalidMessage> {
        let bytes = self.sized(&draft)?;
        self.counts.received += 1;
        let seq = self.counts.received;
        let agent_seq = self.next_agent_seq(&draft.to);
        let message = MailboxMessage { seq, agent_seq, draft, at: out.now() };
        let (from, to) = (&message.draft.from, &message.draft.to);
        out.note(NoteKind::MailboxAppended, json!({ "seq": seq, "from": from, "to": to, "bytes": bytes }));
        self.queue(&message, out);
        self.messages.push_back(message);
        self.trim(out);
        Ok(seq)
    }

    /// Sends a message to the mailbox of another run. One that its mailbox would not take is counted and noted.
    pub fn send_elsewhere(
        &mut self,
        workflow_id: &str,
        message: &Value,
        out: &mut Outbox,
    ) -> Result<(), InvalidMessage> {
        let draft = self.draft(message).inspect_err(|why| {
            self.counts.refused += 1;
            out.note(NoteKind::MailboxDropped, json!({ "reason": why.to_string(), "to_run": workflow_id }));
        })?;
        self.sent += 1;
        out.ask(Ask::SignalExternal {
            key: TeamKey::Mail(self.sent).into(),
            workflow_id: workflow_id.to_owned(),
            signal: SIGNAL_MAILBOX.to_owned(),
            input: json!(draft),
        });
        Ok(())
    }

    /// What the next execution context of an agent shows: every message to it that it has not read, oldest first.
    ///
    /// Showing is not reading: an attempt that fails would take the messages with it. See [`Mailboxes::mark_read`].
    pub fn unread(&self, agent: &str) -> Vec<MailboxMessage> {
        self.recipients.get(agent).map_or_else(Vec::new, |recipient| recipient.unread.iter().cloned().collect())
    }

    /// The agent has done its work with the messages up to this number in view.
    pub fn mark_read(&mut self, agent: &str, through_seq: u64) {
        let Some(recipient) = self.recipients.get_mut(agent) else { return };
        while recipient.unread.front().is_some_and(|message| message.seq <= through_seq) {
            recipient.unread.pop_front();
            self.counts.queued -= 1;
            self.counts.read += 1;
        }
    }

    /// The messages to an agent with a number of its own above `since`: among its newest `window` ones that are kept
    /// and not too old, oldest first.
    pub fn fetch(&self, agent: &str, since: u64, window: Option<usize>, now: Timestamp) -> Vec<MailboxMessage> {
        let to_agent = self.messages.iter().rev().filter(|message| message.draft.to == agent);
        let mut newest: Vec<MailboxMessage> = to_agent
            .take(window.unwrap_or(self.rules.fetch_window as usize))
            .take_while(|message| now.since(message.at) <= self.rules.ttl.duration())
            .filter(|message| message.agent_seq > since)
            .cloned()
            .collect();
        newest.reverse();
        newest
    }

    /// The query `getMailbox`: a copy of what is kept, oldest first.
    pub fn view(&self) -> Vec<MailboxMessage> {
        self.messages.iter().cloned().collect()
    }

    pub fn counts(&self) -> MailboxCounts {
        MailboxCounts { kept: self.messages.len() as u64, ..self.counts }
    }

    fn draft(&self, input: &Value) -> Result<MailDraft, InvalidMessage> {
        let draft: MailDraft = serde_path_to_error::deserialize(input).map_err(|why| {
            let path = why.path().to_string();
            InvalidMessage::Malformed { path, problem: why.into_inner().to_string() }
        })?;
        self.sized(&draft).map(|_| draft)
    }

    fn sized(&self, draft: &MailDraft) -> Result<usize, InvalidMessage> {
        let (bytes, max) = (draft.content.len(), self.rules.payload_max as usize);
        if bytes > max { Err(InvalidMessage::TooLarge { bytes, max }) } else { Ok(bytes) }
    }

    fn next_agent_seq(&mut self, to: &str) -> u64 {
        if !self.recipients.contains_key(to) {
            if self.recipients.len() >= RECIPIENTS_MAX {
                return 0;
            }
            self.recipients.insert(to.to_owned(), Recipient::default());
        }
        self.recipients.get_mut(to).map_or(0, |recipient| {
            recipient.last_seq += 1;
            recipient.last_seq
        })
    }

    /// Never waits: a queue that is full is passed over.
    fn queue(&mut self, message: &MailboxMessage, out: &mut Outbox) {
        let to = &message.draft.to;
        let all_full = self.counts.queued >= u64::from(self.rules.queue) * FULL_QUEUES_MAX;
        let reason = match self.recipients.get_mut(to) {
            _ if all_full => "the delivery queues are full",
            Some(recipient) if recipient.unread.len() < self.rules.queue as usize => {
                recipient.unread.push_back(message.clone());
                self.counts.queued += 1;
                return;
            }
            Some(_) => "the delivery queue of the recipient is full",
            None => "there are too many recipients",
        };
        self.counts.dropped += 1;
        let data = json!({ "seq": message.seq, "to": to, "reason": reason, "dropped": self.counts.dropped });
        out.note(NoteKind::MailboxDropped, data);
    }

    /// Keeps the latter half once there is one message too many.
    fn trim(&mut self, out: &mut Outbox) {
        let count = self.messages.len();
        if count <= self.rules.limit as usize {
            return;
        }
        // A limit of 0 keeps nothing.
        let oldest = if self.rules.limit == 0 { count } else { count / 2 };
        self.messages.drain(..oldest);
        self.counts.trimmed += oldest as u64;
        let first = self.messages.front().map(|message| message.seq);
        out.note(NoteKind::MailboxTrimmed, json!({ "trimmed": oldest, "kept": count - oldest, "first": first }));
    }
}
