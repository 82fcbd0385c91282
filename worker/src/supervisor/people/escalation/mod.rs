//! Escalations: what is handed to a person, why, and what came of it.
//!
//! Invariant: an escalation keeps every reason that fired, the primary one first; one that blocks waits for exactly one
//! resolution, one that only notifies makes nobody wait. Failures in a row are counted here and nowhere else: a success
//! sets them to nothing, a person's answer does not: it lets the run go on until the next failure. It asks nobody itself:
//! approvals do.

mod policy;
mod triggers;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::supervisor::core::answer::{InvalidAnswer, decode};
use crate::supervisor::core::key::{Key, PeopleKey};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::{Task, TaskId};
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
    /// The escalation of failures in a row after which nobody has let the run go on yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    row: Option<String>,
}

impl Escalations {
    pub fn new(hitl: Hitl) -> Self {
        Escalations { hitl, ..Escalations::default() }
    }
    pub fn rules(&self) -> &Hitl {
        &self.hitl
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
        let is_sensitive = self.is_sensitive_before(declared);
        let consecutive_failures = self.consecutive_failures;
        let action = Action { is_sensitive, cost, risk, consecutive_failures };
        (self.hitl.enabled && self.hitl.needs_approval(mode, &action)).then(|| self.reasons_before(declared, cost))
    }

    /// What is fired by something that starts and nobody is asked about, as the spec wants it: people are told (SHH-15).
    pub fn notice_before(&mut self, task: Option<&TaskId>, declared: &str, cost: Option<Money>, out: &mut Outbox) {
        let mut reasons = self.reasons_before(declared, cost);
        // A row of failures is raised when it is there.
        reasons.retain(|reason| {
            self.hitl.notify_only.contains(&reason.trigger) && reason.trigger != Trigger::ConsecutiveFailures
        });
        // Every try of a task is the same work.
        let known = |escalation: &Escalation| escalation.task.as_ref() == task && escalation.reasons == reasons;
        if self.hitl.enabled && (task.is_none() || !self.raised.values().any(known)) {
            self.record(task.cloned(), reasons, false, out);
        }
    }

    fn is_sensitive_before(&self, declared: &str) -> bool {
        let sensitive = || self.hitl.is_sensitive_plan(declared) || self.hitl.is_sensitive_action(declared);
        self.hitl.gates.contains(&Gate::Before) && sensitive()
    }

    fn reasons_before(&self, declared: &str, cost: Option<Money>) -> Vec<Reason> {
        let consecutive_failures = self.consecutive_failures;
        let mut reasons = self.hitl.reasons(&Observed { cost, consecutive_failures, ..Observed::default() });
        if self.is_sensitive_before(declared) {
            let text = format!("Sensitive operation requires approval: {declared}");
            reasons.insert(0, Reason::new(Trigger::Sensitive, text));
        }
        reasons
    }

    /// The function among those of some work that a person is asked about first: the sensitive one, if one is.
    pub fn most_sensitive<'f>(&self, functions: &'f [String]) -> &'f str {
        let sensitive = |name: &&String| self.hitl.is_sensitive_plan(name) || self.hitl.is_sensitive_action(name);
        functions.iter().find(sensitive).or(functions.first()).map(String::as_str).unwrap_or_default()
    }

    /// Looks at what an agent gave: the escalation, if anything fired. What others have failed at says nothing of it.
    pub fn weigh(
        &mut self,
        mode: HitlMode,
        task: Option<TaskId>,
        observed: Observed,
        out: &mut Outbox,
    ) -> Option<&Escalation> {
        let observed = Observed { consecutive_failures: 0, ..observed };
        let reasons = self.hitl.reasons(&observed);
        self.raise(mode, task, reasons, observed.risk, out)
    }

    /// Looks at how many have failed in a row, before work begins that is no task of a plan.
    pub fn weigh_failures(&mut self, mode: HitlMode, risk: Risk, out: &mut Outbox) -> Option<&Escalation> {
        let reasons = self.row_reasons();
        self.raise(mode, None, reasons, risk, out)
    }

    /// A task of a plan has ended: failures in a row are raised when the last of them is there (SHH-01). A success ends
    /// them, unless people are asked already: then they have the word.
    pub fn row_ended(&mut self, mode: HitlMode, task: &Task, success: bool, is_asked: bool, out: &mut Outbox) {
        self.task_ended(success);
        if success {
            if let Some(id) = self.row.take_if(|_| !is_asked) {
                self.resolve(&id, "a task has succeeded", out);
            }
        } else if !self.get_row().is_some_and(Escalation::waits) {
            self.raise_row(mode, task, out);
        }
    }

    fn row_reasons(&self) -> Vec<Reason> {
        self.hitl.reasons(&Observed { consecutive_failures: self.consecutive_failures, ..Observed::default() })
    }

    fn raise_row(&mut self, mode: HitlMode, task: &Task, out: &mut Outbox) {
        let reasons = self.row_reasons();
        let raised = self.raise(mode, Some(task.id.clone()), reasons, task.risk, out);
        self.row = raised.filter(|raised| raised.blocking).map(|raised| raised.id.clone());
    }

    /// The escalation of failures in a row that holds up what starts.
    pub fn row(&self) -> Option<&str> {
        self.row.as_deref()
    }

    fn get_row(&self) -> Option<&Escalation> {
        self.get(self.row.as_ref()?)
    }

    /// The escalation of failures in a row that a person has to answer before this task starts. Whoever did not let
    /// another one start has let none. Once the rules ask about no failures any more, nobody has to.
    pub fn row_before(&mut self, mode: HitlMode, task: &Task, out: &mut Outbox) -> Option<String> {
        let id = self.row.clone()?;
        if !self.asks_about_rows(mode) {
            self.row = None;
            self.resolve(&id, "void", out);
            return None;
        }
        if !self.get_row().is_some_and(Escalation::waits) {
            self.raise_row(mode, task, out);
        }
        self.row.clone()
    }

    /// Whether failures in a row, of whatever work, may hold anything up.
    fn asks_about_rows(&self, mode: HitlMode) -> bool {
        let notified = self.hitl.notify_only.contains(&Trigger::ConsecutiveFailures);
        let exception = || self.hitl.is_exception(Risk::Critical, std::iter::once(Trigger::ConsecutiveFailures));
        let asks = self.hitl.enabled && self.hitl.triggers.consecutive_failures.is_some() && !notified;
        asks && (mode != HitlMode::HumanOnTheLoop || exception())
    }

    /// A person has let the run go on after those failures.
    pub fn row_goes_on(&mut self, escalation: &str) {
        self.row.take_if(|row| row == escalation);
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
        let text = match words.trim() {
            "" => "The reviewer escalates, and does not say why".to_owned(),
            words => format!("The reviewer escalates: {words}"),
        };
        let reason = Reason::new(Trigger::Review, text);
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
