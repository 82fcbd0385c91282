//! Approvals: a person says yes or no to one thing before it happens.
//!
//! ```text
//! request -> pending --(first valid answer)--> decided
//!               |----(deadline)--------------> decided (rejected, or approved where the rules say so)
//!               '----(what was shown changed)-> voided <- decided and not used yet
//! ```
//!
//! Invariant: a request is decided at most once and its decision never changes; an answer that comes twice, late, for a
//! request that is unknown or for another version of what was shown is noted with its reason and changes nothing. A
//! critical request is never approved by a deadline. It starts nothing: it says what the decision means.

mod later;
mod request;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::below::How;
use crate::supervisor::core::answer::decode;
use crate::supervisor::core::key::PeopleKey;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::{Answer, Call, Outbox, Purpose};
use crate::supervisor::reading::refused;
use crate::supervisor::spec::{Approval, OnApprovalTimeout, Risk, told_nobody};

pub use later::readable;
pub use request::{
    ApprovalDecision, ApprovalId, ApprovalRequest, ApprovalResponse, ApprovalScope, ApprovalSource, Closed,
    Consequence, Ignored, OnReject, Proposal,
};

/// How many closed requests are kept for the queries; approved ones that were not used yet are kept beyond that.
const CLOSED_MAX: usize = 1_000;

const NOBODY_TO_TELL: &str =
    "nobody is named who would be told: name them under `services.notify_for_approval`, or give `script:` a rule";
const REJECTED_BY_TIME: &str = "Approval timeout, auto-rejected";
const APPROVED_BY_TIME: &str = "Approval timeout, auto-approved";

/// All approvals of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Approvals {
    rules: Approval,
    /// How many were asked for, ever.
    count: u64,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Entry {
    request: ApprovalRequest,
    state: ApprovalState,
    /// What was approved has been started.
    used: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
enum ApprovalState {
    Pending,
    Decided(ApprovalDecision),
    Voided { reason: String },
}

/// Whether something may start now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clearance {
    /// Approved as it stands now; the action is the person's where they changed it.
    Approved {
        id: ApprovalId,
        action: String,
    },
    Pending(ApprovalId),
    /// Nobody was asked about it stands now.
    NotAsked,
}

impl Approvals {
    pub fn new(rules: Approval) -> Self {
        Approvals { rules, ..Approvals::default() }
    }

    /// Other rules, for what is asked from now on.
    pub fn set_rules(&mut self, rules: Approval) {
        self.rules = rules;
    }

    /// Asks people. They are notified, and the deadline runs from now.
    pub fn request(&mut self, proposal: Proposal, out: &mut Outbox) -> ApprovalId {
        self.count += 1;
        let n = self.count;
        let timeout = proposal.timeout.unwrap_or(self.rules.timeout);
        let on_timeout = match proposal.risk {
            Risk::Critical => OnApprovalTimeout::Reject,
            Risk::Low | Risk::Medium | Risk::High => proposal.on_timeout.unwrap_or(self.rules.on_timeout),
        };
        let request = ApprovalRequest {
            id: ApprovalId::of(out.run(), n),
            shown: proposal.hash(),
            deadline: out.now().plus(timeout.duration()),
            requested_at: out.now(),
            timeout,
            on_timeout,
            notified: false,
            escalated: 0,
            scope: proposal.scope,
            task_id: proposal.task_id,
            action: proposal.action,
            description: proposal.description,
            risk: proposal.risk,
            context: proposal.context,
            reasons: proposal.reasons,
            on_reject: proposal.on_reject,
        };
        let shown = json!(request);
        out.note(NoteKind::ApprovalRequested, shown.clone());
        let key = PeopleKey::ApprovalNotify(n);
        out.call(call(key, Purpose::NotifyForApproval, 1, request.task_id.as_ref(), shown));
        out.timer(PeopleKey::ApprovalDeadline(n), request.deadline, format!("approval {}", request.id));
        let id = request.id.clone();
        self.entries.insert(n, Entry { request, state: ApprovalState::Pending, used: false });
        id
    }

    /// A response that came as data, by signal or update; it may be for another run.
    pub fn read(&self, value: &Value, out: &mut Outbox) -> Result<ApprovalResponse, Ignored> {
        decode::<ApprovalResponse>("approval response", value)
            .map_err(|why| ignored(value.get("approval_id").cloned(), Ignored::Invalid(why), out))
    }

    /// A response: it decides its request, or is noted with the reason why it does not.
    pub fn respond(&mut self, response: ApprovalResponse, out: &mut Outbox) -> Result<Closed, Ignored> {
        let n = match self.accepts(&response, out) {
            Ok(n) => n,
            Err(why) => return Err(ignored(Some(json!(response.approval_id)), why, out)),
        };
        let response = response.said();
        let decision = ApprovalDecision {
            id: response.approval_id,
            approved: response.approved,
            approver: response.approver,
            comment: response.comment,
            modified_action: response.modified_action,
            feedback: response.feedback,
            at: out.now(),
            source: ApprovalSource::Human,
        };
        out.cancel_timer(PeopleKey::ApprovalDeadline(n));
        self.decide(n, decision, out).ok_or(Ignored::Unknown)
    }

    /// The number of a request. A fork has requests with ids of its source.
    fn number(&self, id: &ApprovalId, out: &Outbox) -> Option<u64> {
        let kept = self.entries.iter().find(|(_, entry)| entry.request.id == *id).map(|(n, _)| *n);
        kept.or_else(|| id.number(out.run()).filter(|n| !self.entries.contains_key(n)))
    }

    /// Which request the response decides, or why none. What is heard first counts, the answer or the timer of the deadline:
    /// the order of the history decides, and no clock. Changes nothing and notes nothing.
    pub fn accepts(&self, response: &ApprovalResponse, out: &Outbox) -> Result<u64, Ignored> {
        let n = self.number(&response.approval_id, out).ok_or(Ignored::Unknown)?;
        let Some(entry) = self.entries.get(&n) else {
            // A number below the count was decided so long ago that it is forgotten.
            return Err(if (1..=self.count).contains(&n) { Ignored::Duplicate } else { Ignored::Unknown });
        };
        match &entry.state {
            ApprovalState::Decided(decision) if decision.source == ApprovalSource::Timeout => Err(Ignored::Late),
            ApprovalState::Decided(_) => Err(Ignored::Duplicate),
            ApprovalState::Voided { reason } => Err(Ignored::Voided { reason: reason.clone() }),
            ApprovalState::Pending if response.shown.as_ref().is_some_and(|shown| *shown != entry.request.shown) => {
                Err(Ignored::Stale)
            }
            ApprovalState::Pending => Ok(n),
        }
    }

    /// The deadline of a request has come.
    pub fn fired(&mut self, n: u64, out: &mut Outbox) -> Option<Closed> {
        let entry = self.entries.get(&n)?;
        if entry.state != ApprovalState::Pending {
            return None;
        }
        let approved = entry.request.on_timeout == OnApprovalTimeout::Approve;
        let comment = if approved { APPROVED_BY_TIME } else { REJECTED_BY_TIME };
        let decision = ApprovalDecision {
            id: entry.request.id.clone(),
            approved,
            approver: String::new(),
            comment: Some(comment.to_owned()),
            modified_action: None,
            feedback: None,
            at: out.now(),
            source: ApprovalSource::Timeout,
        };
        self.decide(n, decision, out)
    }

    /// The notification was made, or not. The wait goes on either way: queries show the request.
    pub fn notified(&mut self, n: u64, answer: &Answer, out: &mut Outbox) {
        let Some(entry) = self.entries.get_mut(&n) else { return };
        let error = match answer {
            Ok(said) if *said == told_nobody() => Some(NOBODY_TO_TELL.to_owned()),
            Ok(said) => refused(said),
            Err(why) => Some(why.message.clone()),
        };
        entry.request.notified = error.is_none();
        out.note(NoteKind::ApprovalNotified, json!({ "id": entry.request.id, "ok": error.is_none(), "error": error }));
    }

    /// Whether the proposal may start as it stands now; `again`: as it was started before, after which it failed.
    pub fn clearance(&self, proposal: &Proposal, again: bool) -> Clearance {
        let shown = proposal.hash();
        for entry in self.entries.values().rev().filter(|entry| entry.concerns(proposal)) {
            match &entry.state {
                ApprovalState::Pending if entry.request.shown == shown => {
                    return Clearance::Pending(entry.request.id.clone());
                }
                ApprovalState::Decided(decision)
                    if decision.approved && (again || !entry.used) && entry.request.shown == shown =>
                {
                    let action = decision.modified_action.clone().unwrap_or_else(|| entry.request.action.clone());
                    return Clearance::Approved { id: entry.request.id.clone(), action };
                }
                ApprovalState::Pending | ApprovalState::Decided(_) | ApprovalState::Voided { .. } => {}
            }
        }
        Clearance::NotAsked
    }

    /// What was approved has been started: the approval is used up.
    pub fn used(&mut self, id: &ApprovalId) {
        if let Some(entry) = self.entries.values_mut().find(|entry| entry.request.id == *id) {
            entry.used = true;
        }
        self.trim();
    }

    /// What was shown has changed to this: whoever approved it, approved something else; and whoever says no to what waits
    /// means what a no meant when they were asked. Gives the requests that ended.
    pub fn changed(&mut self, proposal: &Proposal, out: &mut Outbox) -> Vec<ApprovalId> {
        let shown = proposal.hash();
        let is_another = |entry: &Entry| {
            let means = entry.state == ApprovalState::Pending && entry.request.on_reject != proposal.on_reject;
            entry.concerns(proposal) && (entry.request.shown != shown || means)
        };
        self.void_where(is_another, "what was shown has changed", out)
    }

    /// The task (or with no task, everything) is not wanted any more.
    pub fn void(&mut self, task: Option<&TaskId>, reason: &str, out: &mut Outbox) -> Vec<ApprovalId> {
        self.void_where(|entry| task.is_none() || entry.request.task_id.as_ref() == task, reason, out)
    }

    /// This request is not wanted any more.
    pub fn void_one(&mut self, id: &ApprovalId, reason: &str, out: &mut Outbox) -> Vec<ApprovalId> {
        self.void_where(|entry| entry.request.id == *id, reason, out)
    }

    fn void_where(&mut self, which: impl Fn(&Entry) -> bool, reason: &str, out: &mut Outbox) -> Vec<ApprovalId> {
        let mut voided = Vec::new();
        for (n, entry) in &mut self.entries {
            let pending = entry.state == ApprovalState::Pending;
            if !(pending || entry.is_unused()) || !which(entry) {
                continue;
            }
            if pending {
                out.cancel_timer(PeopleKey::ApprovalDeadline(*n));
            }
            entry.close(ApprovalState::Voided { reason: reason.to_owned() });
            out.note(NoteKind::ApprovalVoided, json!({ "id": entry.request.id, "reason": reason }));
            voided.push(entry.request.id.clone());
        }
        self.trim();
        voided
    }

    fn decide(&mut self, n: u64, decision: ApprovalDecision, out: &mut Outbox) -> Option<Closed> {
        let entry = self.entries.get_mut(&n)?;
        let data = json!({ "request": entry.request, "response": decision });
        out.note(NoteKind::ApprovalDecided, json!(decision));
        out.call(call(PeopleKey::ApprovalLog(n), Purpose::LogApprovalResult, 1, entry.request.task_id.as_ref(), data));
        let closed = Closed::of(&entry.request, &decision);
        if let Some(action) = decision.modified_action.as_ref().filter(|_| decision.approved) {
            // Whoever writes the action has seen it: the approval is for what it says now.
            let mut proposal = entry.request.proposal();
            proposal.action = action.clone();
            entry.request.shown = proposal.hash();
        }
        entry.close(ApprovalState::Decided(decision));
        self.trim();
        Some(closed)
    }

    fn trim(&mut self) {
        let closed = |entry: &Entry| entry.state != ApprovalState::Pending && !entry.is_unused();
        let mut excess = self.entries.len().saturating_sub(CLOSED_MAX);
        if excess > 0 {
            self.entries.retain(|_, entry| {
                let goes = excess > 0 && closed(entry);
                excess -= usize::from(goes);
                !goes
            });
        }
    }

    pub fn get(&self, id: &ApprovalId) -> Option<(&ApprovalRequest, Option<&ApprovalDecision>)> {
        let entry = self.entries.values().find(|entry| entry.request.id == *id)?;
        let decision = match &entry.state {
            ApprovalState::Decided(decision) => Some(decision),
            ApprovalState::Pending | ApprovalState::Voided { .. } => None,
        };
        Some((&entry.request, decision))
    }

    /// What became of a request that does not wait any more.
    pub fn over(&self, id: &str) -> How {
        let state = self.entries.values().find(|entry| entry.request.id.as_str() == id).map(|entry| &entry.state);
        match state {
            Some(ApprovalState::Decided(decision)) if decision.source == ApprovalSource::Timeout => How::Late,
            Some(ApprovalState::Voided { reason }) => How::Void { reason: reason.clone() },
            Some(ApprovalState::Decided(_) | ApprovalState::Pending) | None => How::Answered,
        }
    }

    /// A response that decides nothing here is noted with the reason.
    pub fn ignore(&self, id: &ApprovalId, why: Ignored, out: &mut Outbox) -> Ignored {
        ignored(Some(json!(id)), why, out)
    }

    /// The requests that wait, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = &ApprovalRequest> {
        self.entries.values().filter(|entry| entry.state == ApprovalState::Pending).map(|entry| &entry.request)
    }

    /// The query `pending_approvals`: what waits, oldest first, with what a person may answer (SHH-12).
    pub fn view(&self) -> Value {
        let options = ["View Report", "Approve", "Reject", "Modify and Retry"];
        let shown = self.pending().map(|request| {
            let mut shown = json!(request);
            shown["options"] = json!(options);
            shown["subject"] = json!(request.subject());
            shown
        });
        shown.collect()
    }
}

impl Entry {
    fn concerns(&self, proposal: &Proposal) -> bool {
        self.request.scope.is_about_the_same_as(proposal.scope) && self.request.task_id == proposal.task_id
    }
    /// Approved, but not started yet.
    fn is_unused(&self) -> bool {
        !self.used && matches!(&self.state, ApprovalState::Decided(decision) if decision.approved)
    }
    /// A closed request is looked at, not decided: its context, which may be large, is in the log.
    fn close(&mut self, state: ApprovalState) {
        self.state = state;
        self.request.context = Value::Null;
    }
}

fn ignored(id: Option<Value>, why: Ignored, out: &mut Outbox) -> Ignored {
    out.note(NoteKind::ApprovalIgnored, json!({ "id": id, "reason": why.name(), "why": why.to_string() }));
    why
}

/// `attempt`: who is told again is told by a call of its own, which nobody takes for the one before.
fn call(key: PeopleKey, purpose: Purpose, attempt: u32, task: Option<&TaskId>, context: Value) -> Call {
    let call = Call::new(key, purpose, context).attempt(attempt);
    match task {
        Some(task) => call.task(task.clone(), attempt),
        None => call,
    }
}
