//! What people do with a request that waits, short of deciding it: give it more time, and have people told again.
//!
//! Invariant: only a request that waits is moved, and nothing that was shown changes, so that an answer to it still counts. A
//! deadline is only ever put off.

use std::ops::RangeInclusive;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{ApprovalId, ApprovalState, Approvals, Ignored, call};
use crate::supervisor::core::answer::{InvalidAnswer, decode};
use crate::supervisor::core::key::PeopleKey;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Outbox, Purpose};
use crate::supervisor::spec::Span;

/// By how much a deadline is put off at once.
const BY: RangeInclusive<Span> = Span::from_secs(1)..=Span::from_hours(365 * 24);

/// The update `extend_approval`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Extension {
    approval_id: ApprovalId,
    /// How much later than the deadline that it has: 1 s to 365 days.
    by: Span,
    #[serde(default)]
    requested_by: String,
    #[serde(default)]
    reason: String,
}

/// The update `escalate_approval`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Louder {
    approval_id: ApprovalId,
    #[serde(default)]
    requested_by: String,
    #[serde(default)]
    reason: String,
}

/// What can be done with a request of a run below, which carries it out: it is read before it is sent there.
pub fn readable(extends: bool, value: &Value) -> Result<(), Ignored> {
    if extends { extension(value).map(|_| ()) } else { louder(value).map(|_| ()) }
}

fn extension(value: &Value) -> Result<Extension, Ignored> {
    let asked: Extension = decode("extension", value).map_err(Ignored::Invalid)?;
    if BY.contains(&asked.by) {
        return Ok(asked);
    }
    let why = format!("a deadline is put off by {} to 365d at once, not by {}", BY.start(), asked.by);
    Err(Ignored::Invalid(InvalidAnswer { what: "extension".to_owned(), at: "by".to_owned(), why }))
}

fn louder(value: &Value) -> Result<Louder, Ignored> {
    decode("escalation", value).map_err(Ignored::Invalid)
}

impl Approvals {
    /// Puts a deadline off by so much.
    pub fn extend(&mut self, value: &Value, out: &mut Outbox) -> Result<Value, Ignored> {
        let asked = extension(value)?;
        let n = self.waiting(&asked.approval_id, out)?;
        let entry = self.entries.get_mut(&n).ok_or(Ignored::Unknown)?;
        let before = entry.request.deadline;
        entry.request.deadline = before.plus(asked.by.duration());
        let (deadline, id) = (entry.request.deadline, entry.request.id.clone());
        out.cancel_timer(PeopleKey::ApprovalDeadline(n));
        out.timer(PeopleKey::ApprovalDeadline(n), deadline, format!("approval {id}"));
        let told = json!({ "id": id, "from": before, "deadline": deadline, "requested_by": asked.requested_by, "reason": asked.reason });
        out.note(NoteKind::ApprovalExtended, told.clone());
        Ok(told)
    }

    /// Has people told again, at once.
    pub fn escalate(&mut self, value: &Value, out: &mut Outbox) -> Result<Value, Ignored> {
        let asked = louder(value)?;
        let n = self.waiting(&asked.approval_id, out)?;
        let entry = self.entries.get_mut(&n).ok_or(Ignored::Unknown)?;
        entry.request.escalated += 1;
        let (request, shown) = (&entry.request, json!(entry.request));
        let told = json!({ "id": request.id, "times": request.escalated, "requested_by": asked.requested_by, "reason": asked.reason });
        out.note(NoteKind::ApprovalEscalated, told.clone());
        let key = PeopleKey::ApprovalNotify(n);
        if !out.awaited().awaits(&key.into()) {
            let key = PeopleKey::ApprovalNotify(n);
            let attempt = request.escalated.saturating_add(1);
            out.call(call(key, Purpose::NotifyForApproval, attempt, request.task_id.as_ref(), shown));
        }
        Ok(told)
    }

    fn waiting(&self, id: &ApprovalId, out: &Outbox) -> Result<u64, Ignored> {
        let n = self.number(id, out).ok_or(Ignored::Unknown)?;
        match self.entries.get(&n).map(|entry| &entry.state) {
            Some(ApprovalState::Pending) => Ok(n),
            Some(ApprovalState::Voided { reason }) => Err(Ignored::Voided { reason: reason.clone() }),
            Some(ApprovalState::Decided(_)) => Err(Ignored::Duplicate),
            None => Err(Ignored::Unknown),
        }
    }
}
