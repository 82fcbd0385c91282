//! People before work that begins with a call: whether they are asked, and what their answer does.
//!
//! Invariant: what is work is `core::gate`'s to say, whether a person is asked about it `people::escalation`'s, and what a
//! denial means the strategy's, which hears it as the answer of its call. The verdict is recorded with the turn in which the
//! call is asked for, and is taken once.

use std::collections::BTreeMap;

use bosun_engine::workflow::Cx;
use serde_json::{Map, json};

use super::{SupervisorRun, strategy};
use crate::supervisor::core::account::SPENT;
use crate::supervisor::core::calls::Arrival;
use crate::supervisor::core::gate::{CallGate, Declared, NewWork, WorkKind};
use crate::supervisor::core::key::Key;
use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::{Ask, Call, CallFailure, Doer, Fact, Outbox, Weight};
use crate::supervisor::people::approval::{
    ApprovalDecision, ApprovalId, ApprovalScope, ApprovalSource, Closed, Consequence, OnReject, Proposal,
};
use crate::supervisor::people::escalation::Escalations;
use crate::supervisor::plan::{Plan, TaskItem};
use crate::supervisor::spec::SupervisorSpec;

/// Whether people may be asked about the work of a run of this spec as it begins.
pub(super) fn is_in(spec: &SupervisorSpec) -> bool {
    !of(spec).is_off()
}

/// The gate of a run of this spec: a spec that asks nobody, and a plan, have none. A task that requires an approval asks in
/// any.
pub(super) fn of(spec: &SupervisorSpec) -> CallGate {
    if strategy::asks_before_tasks_start(spec) {
        return CallGate::default();
    }
    let (mut items, mut declared) = (None, BTreeMap::new());
    match (spec.is_crew(), spec.steps.len()) {
        (true, 0) => {
            let plan = spec.plan().ok().flatten();
            let tasks: Vec<&TaskItem> = plan.iter().flat_map(Plan::in_list_order).collect();
            let id = |item: &TaskItem| TaskId::of(&item.task_id.to_string());
            let of =
                |item: &&TaskItem| Some((id(item), declared_of(item))).filter(|(_, of)| *of != Declared::default());
            declared = tasks.iter().filter_map(of).collect();
            items = Some(if tasks.is_empty() { vec![TaskId::from(1)] } else { tasks.into_iter().map(id).collect() });
        }
        (_, 0) => {}
        (_, steps) => items = Some((1..=steps).map(|n| TaskId::of(&n.to_string())).collect()),
    }
    if !spec.hitl.enabled && !declared.values().any(|of| of.requires_approval) {
        return CallGate::default();
    }
    CallGate::new(spec.handoff_control().is_some(), items, declared)
}

/// What a plan says of a task.
fn declared_of(item: &TaskItem) -> Declared {
    Declared {
        action: item.action.clone().unwrap_or_default(),
        risk: item.risk.unwrap_or_default(),
        requires_approval: item.requires_approval,
        required: item.required,
    }
}

/// Why a person is asked, and the escalation that their answer resolves.
struct Wanted {
    reasons: Vec<String>,
    escalation: Option<String>,
}

impl SupervisorRun {
    /// The call, if it may be made now. One that a person has to let through first is kept for them.
    pub(super) fn let_through(&mut self, call: Call, cx: &mut Cx<'_>) -> Option<Call> {
        // What nobody pays for is refused, and one that is sent again was let through.
        let is_made = self.awaited.is_reserved(&call.key) || call.weight() == Weight::Free;
        let spent = self.account.balance().used_up().is_some();
        if is_made || (spent && !call.last) {
            return Some(call);
        }
        let Some(work) = self.begins(&call) else {
            self.parts.gate.goes_on(&call);
            return Some(call);
        };
        let mut out = self.outbox(cx.now());
        let wanted = self.wanted(&work, &mut out);
        let call = match wanted {
            None => {
                self.parts.gate.pass(&call);
                Some(call)
            }
            // The last word is paid for, and whoever may have it was let through before.
            Some(wanted) if spent => {
                self.has_no_last_word(call, wanted, &mut out);
                None
            }
            Some(wanted) => {
                self.ask_about(call, work, wanted, &mut out);
                None
            }
        };
        self.ask_all(out, cx);
        call
    }

    /// What begins with a call. Work that an agent gives away is as sensitive as the tool that it does so with.
    fn begins(&self, call: &Call) -> Option<NewWork> {
        let mut work = self.parts.gate.begins(call)?;
        if matches!(work.kind, WorkKind::Delegation | WorkKind::HandOff) {
            work.functions.extend(self.strategy.given_by(&call.key).map(str::to_owned));
        }
        Some(work)
    }

    fn has_no_last_word(&mut self, call: Call, wanted: Wanted, out: &mut Outbox) {
        if let Some(escalation) = wanted.escalation {
            self.parts.escalations.resolve(&escalation, "void", out);
        }
        let why = CallFailure::denied(format!("not approved: {SPENT}"));
        self.hear(Arrival::Answer { key: call.key, answer: Err(why) }, out);
        self.go_on(out);
        self.ending(out);
    }

    /// Whether a person must be asked before this work begins, by the mode, by what is called, and by what has failed.
    fn wanted(&mut self, work: &NewWork, out: &mut Outbox) -> Option<Wanted> {
        let (escalations, mode) = (&mut self.parts.escalations, self.parts.autonomy.mode());
        let declared = declared(escalations, work).to_owned();
        let risk = escalations.rules().mark(&declared, work.declared.risk).risk;
        if let Some(reasons) = escalations.before(mode, &declared, None, risk) {
            return Some(Wanted { reasons: reasons.into_iter().map(|reason| reason.text).collect(), escalation: None });
        }
        if work.declared.requires_approval {
            return Some(Wanted { reasons: vec!["The plan requires an approval".to_owned()], escalation: None });
        }
        if !escalations.rules().enabled {
            return None;
        }
        escalations.notice_before(None, &declared, None, out);
        // Nobody weighs what comes of it, so that failures in a row are looked at before.
        let raised = escalations.weigh_failures(mode, risk, out)?;
        let reasons = || raised.reasons.iter().map(|reason| reason.text.clone()).collect();
        raised.blocking.then(|| Wanted { reasons: reasons(), escalation: Some(raised.id.clone()) })
    }

    fn ask_about(&mut self, call: Call, work: NewWork, wanted: Wanted, out: &mut Outbox) {
        let escalations = &self.parts.escalations;
        let risk = escalations.rules().mark(declared(escalations, &work), work.declared.risk).risk;
        let action = if work.action.is_empty() { work.declared.action } else { work.action };
        let proposal = Proposal {
            task_id: work.item,
            description: work.about,
            risk,
            context: work.context,
            reasons: wanted.reasons,
            on_reject: if work.declared.required { OnReject::EndRun } else { OnReject::Skip },
            ..Proposal::new(ApprovalScope::Task, action)
        };
        let approval = self.parts.approvals.request(proposal, out);
        if let Some(escalation) = wanted.escalation {
            self.parts.escalated.insert(approval.clone(), escalation);
        }
        out.awaited_mut().may_not_begin(&call.key, true);
        self.parts.gate.hold(call, approval);
        self.strategy.before_people(out);
    }

    /// An approval of work is decided. Whether it was one.
    pub(super) fn work_decided(&mut self, closed: &Closed, out: &mut Outbox) -> bool {
        let Some(call) = self.parts.gate.decided(&closed.id) else { return false };
        let decided = self.parts.approvals.get(&closed.id);
        let decision = decided.and_then(|(_, decision)| decision.cloned());
        let reasons = decided.map(|(request, _)| request.reasons.clone()).unwrap_or_default();
        // What was approved begins now, and what was not is asked for anew.
        self.parts.approvals.used(&closed.id);
        out.awaited_mut().may_not_begin(&call.key, false);
        match (&closed.consequence, decision) {
            (Consequence::Proceed { feedback, .. }, decision) => {
                let action = decision.and_then(|decision| decision.modified_action);
                let words = words_of(feedback.as_deref(), action.as_deref());
                let call = words.and_then(|words| self.strategy.instructed(&call.key, &words, out)).unwrap_or(call);
                self.parts.gate.pass(&call);
                out.ask(Ask::Call(call));
            }
            (Consequence::Retry { action, feedback }, decision) => {
                let words = words_of(Some(feedback), action.as_deref()).unwrap_or_default();
                match self.strategy.instructed(&call.key, &words, out) {
                    Some(call) => self.ask_again(call, &words, reasons, out),
                    None => self.denied(call, decision, out),
                }
            }
            // Whoever does the list ends it, in these words.
            (Consequence::EndRun { error }, decision) => {
                self.denied_by_person |= decision.as_ref().is_some_and(is_of_person);
                self.not_let_through(call, error.clone(), out);
            }
            (_, decision) => self.denied(call, decision, out),
        }
        self.strategy.before_people(out);
        true
    }

    /// Whoever does it was told what a person wants: now it is another thing that they are asked about.
    fn ask_again(&mut self, call: Call, words: &str, reasons: Vec<String>, out: &mut Outbox) {
        let Some(work) = self.begins(&call) else { return out.ask(Ask::Call(call)) };
        let work = work.with(Map::from_iter([("instructed".to_owned(), json!(words))]));
        self.ask_about(call, work, Wanted { reasons, escalation: None }, out);
    }

    /// Whoever asked for the call hears who did not let it through, and why.
    fn denied(&mut self, call: Call, decision: Option<ApprovalDecision>, out: &mut Outbox) {
        self.denied_by_person |= decision.as_ref().is_some_and(is_of_person);
        let why = decision.as_ref().map_or_else(|| "denied".to_owned(), said_no);
        let tool = self.parts.gate.begins(&call).filter(|work| work.kind == WorkKind::Tool);
        let message = tool.map_or_else(|| why.clone(), |work| format!("The call of '{}' was {why}", work.action));
        self.not_let_through(call, message, out);
    }

    fn not_let_through(&mut self, call: Call, message: String, out: &mut Outbox) {
        self.parts.gate.sent(&call.key);
        self.hear(Arrival::Answer { key: call.key, answer: Err(CallFailure::denied(message)) }, out);
    }

    /// Nobody waits for the call any more: people are not asked about it.
    pub(super) fn work_over(&mut self, key: &Key, cx: &mut Cx<'_>) {
        if let Some(approval) = self.parts.gate.over(key) {
            let mut out = self.outbox(cx.now());
            self.not_asked(&approval, "what it is about is not wanted any more", &mut out);
            self.ask_all(out, cx);
        }
    }

    /// The budget is spent: nobody is asked about work that is not paid for.
    pub(super) fn nobody_lets_through(&mut self, out: &mut Outbox) {
        for key in self.parts.gate.asked() {
            let Some(approval) = self.parts.gate.over(&key) else { continue };
            self.not_asked(&approval, SPENT, out);
            self.hear(Arrival::Answer { key, answer: Err(CallFailure::error(SPENT)) }, out);
        }
    }

    fn not_asked(&mut self, approval: &ApprovalId, why: &str, out: &mut Outbox) {
        self.parts.approvals.void_one(approval, why, out);
        if let Some(escalation) = self.parts.escalated.remove(approval) {
            self.parts.escalations.resolve(&escalation, "void", out);
        }
    }

    /// What has ended in this turn counts for trust, and for failures in a row, as a task of a plan does.
    pub(super) fn count_work(&mut self, out: &mut Outbox) {
        if self.parts.gate.is_off() || !self.parts.escalations.rules().enabled {
            return;
        }
        let ended: Vec<bool> = out.facts().iter().filter_map(|fact| self.end_of_work(fact)).collect();
        for success in ended {
            self.parts.escalations.task_ended(success);
            self.parts.autonomy.task_ended(success, out);
        }
    }

    /// Whether some work has ended, and how it went.
    fn end_of_work(&self, fact: &Fact) -> Option<bool> {
        let Fact::WorkEnded(end) = fact else { return None };
        let is_work = match &end.by {
            Doer::Agent(name) => self.resolved.spec.agent(name).is_some(),
            Doer::Instance(id) => {
                let instance = self.parts.team.registry.get_instance(id)?;
                instance.parent_id.is_some() || self.parts.gate.has_items()
            }
        };
        is_work.then_some(end.success)
    }
}

/// What says how sensitive some work is: what the plan declares of an item, else the function that it calls.
fn declared<'w>(escalations: &Escalations, work: &'w NewWork) -> &'w str {
    match work.declared.action.as_str() {
        "" => escalations.most_sensitive(&work.functions),
        action => action,
    }
}

/// What a person wants whoever does the work to know, beside their yes or no.
fn words_of(feedback: Option<&str>, action: Option<&str>) -> Option<String> {
    let said: Vec<&str> = feedback.into_iter().chain(action).filter(|words| !words.is_empty()).collect();
    (!said.is_empty()).then(|| said.join("\n"))
}

/// What nobody answered in time is nobody's no.
fn is_of_person(decision: &ApprovalDecision) -> bool {
    decision.source == ApprovalSource::Human
}

/// By whom work was not let through, and why: the end of a sentence.
fn said_no(decision: &ApprovalDecision) -> String {
    let said = decision.feedback.as_ref().or(decision.comment.as_ref()).or(decision.modified_action.as_ref());
    let said = said.filter(|said| !said.is_empty()).map(|said| format!(": {said}")).unwrap_or_default();
    match decision.source {
        ApprovalSource::Human => format!("denied by {}{said}", decision.approver),
        ApprovalSource::Timeout => format!("denied{said}"),
    }
}
