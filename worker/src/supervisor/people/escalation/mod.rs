//! Escalations: what is handed to a person, why, and what came of it.
//!
//! Invariant: an escalation keeps every reason that fired, the primary one first; one that blocks waits for exactly one
//! resolution, one that only notifies makes nobody wait. Failures in a row are counted here and nowhere else: a success
//! sets them to nothing, a person's answer does not. It asks nobody itself: approvals do.

mod policy;
mod triggers;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::answer::{InvalidAnswer, decode};
use crate::supervisor::core::key::{Key, PeopleKey};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::Outbox;
use crate::supervisor::spec::{Gate, Hitl, HitlMode, Money, Risk, Span, Trigger, merge};

pub use policy::PlanShape;
pub use triggers::{Action, EscalationPriority, Marked, Observed, Reason};

/// How many escalations that wait for nothing are kept for the queries.
const SETTLED_MAX: usize = 1_000;

/// One escalation (supervisors.md §5.5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Escalation {
    /// `<run>/esc-<n>`.
    pub id: String,
    pub task: Option<TaskId>,
    pub reasons: Vec<Reason>,
    /// The text of the first reason.
    pub primary: String,
    pub blocking: bool,
    pub resolution: Option<String>,
}

/// The escalations of a run, and what is counted for them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Escalations {
    hitl: Hitl,
    count: u64,
    raised: BTreeMap<u64, Escalation>,
    consecutive_failures: u32,
}

impl Escalations {
    pub fn new(hitl: Hitl) -> Self {
        Escalations { hitl, ..Escalations::default() }
    }
    pub fn rules(&self) -> &Hitl {
        &self.hitl
    }
    pub fn consecutive_failures(&self) -> u32 {
        self.consecutive_failures
    }

    /// The update `set_policy`: what it names, however deep, replaces what the spec says from now on; the rest stays. The
    /// mode has an update of its own.
    pub fn set_policy(&mut self, policy: &Value) -> Result<(), InvalidAnswer> {
        let policy: Map<String, Value> = decode("policy", policy)?;
        if policy.contains_key("mode") {
            let why = "the mode is set by the update set_hitl_mode".to_owned();
            return Err(InvalidAnswer { what: "policy".to_owned(), at: "mode".to_owned(), why });
        }
        let mut merged = json!(self.hitl);
        merge(&mut merged, &Value::Object(policy));
        self.hitl = decode("policy", &merged)?;
        Ok(())
    }

    /// A task has ended, well or not.
    pub fn task_ended(&mut self, success: bool) {
        self.consecutive_failures = if success { 0 } else { self.consecutive_failures.saturating_add(1) };
    }

    /// Whether a person is asked before the action of a task, and why. Records nothing: the approval does.
    pub fn before(&self, mode: HitlMode, declared: &str, cost: Option<Money>, risk: Risk) -> Option<Vec<Reason>> {
        if !self.hitl.enabled {
            return None;
        }
        let sensitive = || self.hitl.is_sensitive_plan(declared) || self.hitl.is_sensitive_action(declared);
        let is_sensitive = self.hitl.gates.contains(&Gate::Before) && sensitive();
        let consecutive_failures = self.consecutive_failures;
        if !self.hitl.needs_approval(mode, &Action { is_sensitive, cost, risk, consecutive_failures }) {
            return None;
        }
        let mut reasons = self.hitl.reasons(&Observed { cost, consecutive_failures, risk, ..Observed::default() });
        if is_sensitive {
            let text = format!("Sensitive operation requires approval: {declared}");
            reasons.insert(0, Reason::new(Trigger::Sensitive, text));
        }
        Some(reasons)
    }

    /// The function among those of some work that a person is asked about first: the sensitive one, if one is.
    pub fn most_sensitive<'f>(&self, functions: &'f [String]) -> &'f str {
        let sensitive = |name: &&String| self.hitl.is_sensitive_plan(name) || self.hitl.is_sensitive_action(name);
        functions.iter().find(sensitive).or(functions.first()).map(String::as_str).unwrap_or_default()
    }

    /// Looks at what an agent gave: the escalation, if anything fired.
    pub fn weigh(
        &mut self,
        mode: HitlMode,
        task: Option<TaskId>,
        mut observed: Observed,
        out: &mut Outbox,
    ) -> Option<&Escalation> {
        observed.consecutive_failures = self.consecutive_failures;
        let reasons = self.hitl.reasons(&observed);
        self.raise(mode, task, reasons, observed.risk, out)
    }

    fn raise(
        &mut self,
        mode: HitlMode,
        task: Option<TaskId>,
        reasons: Vec<Reason>,
        risk: Risk,
        out: &mut Outbox,
    ) -> Option<&Escalation> {
        let blocking = self.blocks(mode, &reasons, risk);
        self.record(task, reasons, blocking, out)
    }

    fn record(
        &mut self,
        task: Option<TaskId>,
        reasons: Vec<Reason>,
        blocking: bool,
        out: &mut Outbox,
    ) -> Option<&Escalation> {
        let primary = reasons.first()?.text.clone();
        self.count += 1;
        let id = format!("{}/esc-{}", out.run(), self.count);
        let escalation = Escalation { id, task, reasons, primary, blocking, resolution: None };
        out.note(NoteKind::EscalationRaised, json!(escalation));
        self.trim();
        Some(self.raised.entry(self.count).or_insert(escalation))
    }

    /// A person is waited for if a reason is not only for notice, and the mode asks for such things.
    fn blocks(&self, mode: HitlMode, reasons: &[Reason], risk: Risk) -> bool {
        let triggers = || reasons.iter().map(|reason| reason.trigger);
        let asks = self.hitl.enabled && triggers().any(|trigger| !self.hitl.notify_only.contains(&trigger));
        match mode {
            HitlMode::HumanInCommand | HitlMode::HumanInTheLoop => asks,
            HitlMode::HumanOnTheLoop => asks && self.hitl.is_exception(risk, triggers()),
        }
    }

    /// A decision of a model was asked for: its time runs.
    pub fn decision_started(&self, key: &Key, out: &mut Outbox) {
        if let Some(limit) = self.hitl.triggers.decision_timeout {
            out.timer(timer_key(key), out.now().plus(limit.duration()), label(key));
        }
    }

    /// The decision has come, or is not waited for any more.
    pub fn decision_ended(&self, key: &Key, out: &mut Outbox) {
        let timer = timer_key(key).into();
        if out.awaited().left(&timer, out.now()).is_some() {
            out.cancel_timer(timer);
        }
    }

    /// While the run is paused or a person has it, nobody is slow: the time of decisions stands still.
    pub fn decisions_run(&self, running: bool, out: &mut Outbox) {
        let timers: Vec<Key> = out.awaited().times_of_decisions().cloned().collect();
        for timer in timers {
            if let Key::People(PeopleKey::DecisionTimeout(of)) = &timer {
                out.keep_time(&timer, running, || label(of));
            }
        }
    }

    /// A decision takes too long (SHH-16). There is nothing that could be approved: people are told, and it goes on.
    pub fn decision_is_late(&mut self, out: &mut Outbox) -> Option<&Escalation> {
        // The limit has passed and there is still no answer: it takes longer than that.
        let limit = self.hitl.triggers.decision_timeout.map_or(0, Span::as_ms);
        let decision_took = Some(Span::from_ms(limit.saturating_add(1)));
        let observed = Observed { decision_took, ..Observed::default() };
        let reasons = self.hitl.reasons(&observed);
        self.record(None, reasons, false, out)
    }

    /// No agent or tool that is registered matches (SHH-17). The task cannot start, so that there is nothing to approve.
    pub fn out_of_scope(&mut self, task: TaskId, wanted: &str, out: &mut Outbox) -> Option<&Escalation> {
        let observed = Observed { out_of_scope: Some(wanted.to_owned()), ..Observed::default() };
        let reasons = self.hitl.reasons(&observed);
        self.record(Some(task), reasons, false, out)
    }

    /// A reviewer hands a task upward (FSS-25): people see it with the reviewer's words. The task is over; what becomes of
    /// it is theirs to say, and the run does not wait.
    pub fn handed_up(&mut self, task: TaskId, words: &str, out: &mut Outbox) -> Option<&Escalation> {
        let reason = Reason::new(Trigger::Review, format!("The reviewer escalates: {words}"));
        self.record(Some(task), vec![reason], false, out)
    }

    /// What came of an escalation. The first resolution stays; whether this was it.
    pub fn resolve(&mut self, id: &str, resolution: &str, out: &mut Outbox) -> bool {
        let open = self.raised.values_mut().find(|escalation| escalation.id == id && escalation.resolution.is_none());
        let Some(escalation) = open else { return false };
        escalation.resolution = Some(resolution.to_owned());
        out.note(NoteKind::EscalationResolved, json!({ "id": id, "resolution": resolution }));
        self.trim();
        true
    }

    fn trim(&mut self) {
        let mut excess = self.raised.len().saturating_sub(SETTLED_MAX);
        if excess > 0 {
            self.raised.retain(|_, escalation| {
                let goes = excess > 0 && !escalation.waits();
                excess -= usize::from(goes);
                !goes
            });
        }
    }

    pub fn get(&self, id: &str) -> Option<&Escalation> {
        self.raised.values().find(|escalation| escalation.id == id)
    }
    /// Every escalation that is kept, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Escalation> {
        self.raised.values()
    }
    /// The query `escalations`.
    pub fn view(&self) -> Value {
        json!(self.raised.values().collect::<Vec<_>>())
    }
}

impl Escalation {
    pub fn waits(&self) -> bool {
        self.blocking && self.resolution.is_none()
    }
}

fn timer_key(key: &Key) -> PeopleKey {
    PeopleKey::DecisionTimeout(Box::new(key.clone()))
}

fn label(key: &Key) -> String {
    format!("decision {key}")
}
