//! Carrying out asks: each becomes a command of the engine, and the command's number is kept with the ask's key.
//!
//! Invariant: a key is under way at most once; a worker that was lost is no fault of the task, so its call is delivered
//! again under the same key; what is not under way any more is not heard of.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bosun_engine::workflow::Cx;
use bosun_engine::{
    ActivityType, CancellationType, ChildWorkflowOptions, ExternalTarget, Failure, FailureKind, ParentClosePolicy,
    Payload, Seq, Timestamp, WorkflowId,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::children::Part;
use super::lease;
use super::work::{self, Carried};
use super::{SUPERVISOR, SupervisorRun, children};
use crate::agent::AGENT;
use crate::agent::ledger::Resource;
use crate::agent::spec::Share;
use crate::capability::model::{self, MODEL};
use crate::supervisor::core::account::{Account, SPENT, Withheld};
use crate::supervisor::core::key::Key;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Answer, Ask, Call, CallFailure, CallFailureKind, ChildKind, Purpose};
use crate::supervisor::spec::SupervisorSpec;

/// How often a call is delivered whose worker was lost.
const DELIVERIES_MAX: u32 = 10;

/// What an engine number stands for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Pending {
    Call {
        call: Call,
        deliveries: u32,
    },
    /// A scripted call that takes its time.
    Later {
        call: Call,
        input: Value,
        deliveries: u32,
    },
    Timer {
        key: Key,
    },
    Child {
        key: Key,
        workflow_id: String,
        /// What an agent was asked for; absent for a supervisor.
        #[serde(default)]
        agent: Option<Purpose>,
        /// Of what it may spend no more than what was left of the run's budget.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lent: Vec<Resource>,
    },
}

/// What an agent is asked for, and what it was lent for that.
struct Lease {
    /// Absent for a supervisor.
    purpose: Option<Purpose>,
    lent: Vec<Resource>,
    share: Option<Share>,
}

impl Lease {
    fn of_run(share: Share) -> Lease {
        Lease { purpose: None, lent: Vec::new(), share: Some(share) }
    }
}

/// Which engine number stands for which key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Ledger {
    pending: BTreeMap<Seq, Pending>,
    keys: BTreeMap<Key, Seq>,
    /// Calls that somebody has to do something for first: a key, money. They are made again when the run goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    refused: Vec<Call>,
    /// Agents that were cancelled, and whose bill is still to come.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    bills: BTreeSet<Seq>,
    pub(super) now: Timestamp,
}

/// What a call is carried out by: the spec of the run, how deep the run is, and whether one works at a time.
pub(super) struct Whole<'r> {
    pub(super) spec: &'r SupervisorSpec,
    pub(super) depth: u32,
    pub(super) alone: bool,
}

impl Ledger {
    pub(super) fn take(&mut self, seq: Seq) -> Option<Pending> {
        let pending = self.pending.remove(&seq)?;
        let (Pending::Call { call: Call { key, .. }, .. }
        | Pending::Later { call: Call { key, .. }, .. }
        | Pending::Timer { key }
        | Pending::Child { key, .. }) = &pending;
        self.keys.remove(key);
        Some(pending)
    }

    /// Whether an agent that has ended was cancelled before, so that nobody but the till waits for it.
    pub(super) fn take_bill(&mut self, seq: Seq) -> bool {
        self.bills.remove(&seq)
    }

    pub(super) fn is_child(&self, key: &Key) -> bool {
        let pending = self.keys.get(key).and_then(|seq| self.pending.get(seq));
        matches!(pending, Some(Pending::Child { .. }))
    }

    fn keep(&mut self, key: Key, seq: Seq, pending: Pending) {
        self.keys.insert(key, seq);
        self.pending.insert(seq, pending);
    }

    /// The call waits for a person, and for the run to go on.
    pub(super) fn refuse(&mut self, call: Call) {
        self.refused.push(call);
    }

    pub(super) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    pub(super) fn take_refused(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.refused)
    }

    /// Whether nobody that was cancelled has still to say what it spent.
    pub(super) fn has_all_bills(&self) -> bool {
        self.bills.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.pending.values().all(|pending| matches!(pending, Pending::Timer { .. }))
    }

    /// Whether nothing of the run itself is under way.
    pub(super) fn only_children(&self) -> bool {
        let waits = |pending: &Pending| matches!(pending, Pending::Timer { .. } | Pending::Child { .. });
        self.pending.values().all(waits)
    }

    pub(super) fn start_now(&mut self, call: Call, input: Value, deliveries: u32, cx: &mut Cx<'_>) {
        let scripted = ActivityType::of(crate::capability::scripted::SCRIPTED);
        let options = work::options(&summary(&call), Duration::from_secs(60));
        let seq = cx.schedule_activity(scripted, &input, options);
        self.keep(call.key.clone(), seq, Pending::Call { call, deliveries });
    }

    fn start(
        &mut self,
        call: Call,
        deliveries: u32,
        run: &Whole<'_>,
        account: &mut Account,
        cx: &mut Cx<'_>,
    ) -> Result<(), String> {
        match work::carried(run.spec, &call, run.depth) {
            Carried::Activity { activity_type, input, timeout } => {
                let seq = cx.schedule_activity(activity_type, &input, work::options(&summary(&call), timeout));
                self.keep(call.key.clone(), seq, Pending::Call { call, deliveries });
            }
            Carried::Later { after, input } if after.is_zero() => self.start_now(call, input, deliveries, cx),
            Carried::Later { after, input } => {
                let seq = cx.start_labelled_timer(cx.now().plus(after), summary(&call));
                self.keep(call.key.clone(), seq, Pending::Later { call, input, deliveries });
            }
            Carried::Child { spec } => {
                let part = Part::of(account, run.alone, cx);
                let input = children::nested(&spec, &call, run.depth, part)?;
                self.start_child(call.key, SUPERVISOR, part.share.map(Lease::of_run), &input, account, cx);
            }
            Carried::Model { input, timeout } => {
                let options = model::options(&summary(&call), timeout, super::model::ATTEMPTS);
                let seq = cx.schedule_activity(ActivityType::of(MODEL), &*input, options);
                self.keep(call.key.clone(), seq, Pending::Call { call, deliveries });
            }
            Carried::Agent { mut spec } => {
                spec.report_to = cx.workflow_id().map(ToString::to_string);
                let (lent, share) = lease::lend(account.free(run.alone), &call, &mut spec);
                let input = serde_json::to_value(spec).map_err(|why| why.to_string())?;
                let lease = Some(Lease { purpose: Some(call.purpose), lent, share });
                self.start_child(call.key, AGENT, lease, &input, account, cx);
            }
            Carried::Impossible(why) => return Err(why),
        }
        Ok(())
    }

    fn start_child(
        &mut self,
        key: Key,
        workflow_type: &'static str,
        lease: Option<Lease>,
        input: &Value,
        account: &mut Account,
        cx: &mut Cx<'_>,
    ) {
        let workflow_id = format!("{}-{}", cx.run_id(), word_of(&key));
        let id = WorkflowId::of(&workflow_id);
        // A child closes with its parent (SHN-50), in its own way.
        let parent_close_policy = ParentClosePolicy::RequestCancel;
        let mut options = ChildWorkflowOptions { parent_close_policy, ..ChildWorkflowOptions::default() };
        if lease.is_some() {
            // What it spent is known only when it has ended.
            options.cancellation = CancellationType::WaitCancellationCompleted;
        }
        let seq = cx.start_child(workflow_type, id, input, options);
        let agent = lease.as_ref().and_then(|lease| lease.purpose);
        let (lent, share) = lease.map(|lease| (lease.lent, lease.share)).unwrap_or_default();
        if let Some(share) = share {
            account.loans.lend(seq, &workflow_id, share);
        }
        self.keep(key.clone(), seq, Pending::Child { key, workflow_id, agent, lent });
    }

    /// Delivers a call again whose worker was lost. Whether it did.
    pub(super) fn again(
        &mut self,
        call: &Call,
        deliveries: u32,
        failure: &Failure,
        run: &Whole<'_>,
        account: &mut Account,
        cx: &mut Cx<'_>,
    ) -> bool {
        let lost = matches!(failure.root().kind, FailureKind::WorkerLost);
        // The spec may want it to be a try like any other.
        let counts = run.spec.failure.count_crash_as_attempt && call.purpose == Purpose::ExecuteWorker;
        let again = lost && !counts && deliveries < DELIVERIES_MAX;
        again && self.start(call.clone(), deliveries + 1, run, account, cx).is_ok()
    }
}

impl SupervisorRun {
    pub(super) fn ask(&mut self, ask: Ask, cx: &mut Cx<'_>) {
        match ask {
            Ask::Call(call) => self.call(call, cx),
            Ask::Timer { key, at, label } => {
                let seq = cx.start_labelled_timer(at, label);
                self.ledger.keep(key.clone(), seq, Pending::Timer { key });
            }
            Ask::CancelCall { key } => {
                self.decision_over(&key, cx);
                self.cancel_key(&key, "", cx);
            }
            Ask::CancelTimer { key } => self.cancel_key(&key, "", cx),
            Ask::CancelChild { key, reason } => self.cancel_key(&key, &reason, cx),
            Ask::StartChild { key, kind, input } => self.start_child(key, kind, &input, cx),
            Ask::SignalChild { key, signal, input } => self.signal_child(&key, signal, &input, cx),
            Ask::SignalExternal { workflow_id, signal, input, .. } => match WorkflowId::new(workflow_id) {
                Ok(workflow_id) => {
                    cx.signal_external(ExternalTarget { workflow_id, run_id: None }, signal.as_str(), &input);
                }
                Err(why) => self.not_sent(&signal, &why.to_string(), cx),
            },
        }
    }

    /// Every call of every family goes through the account, and then out.
    fn call(&mut self, call: Call, cx: &mut Cx<'_>) {
        let spec = &self.resolved.spec;
        if self.available().too_little_for_child()
            && matches!(work::carried(spec, &call, self.context.depth), Carried::Child { .. })
        {
            // Asked again with the next event: others give back what they do not need.
            return self.ledger.refuse(call);
        }
        match self.account.reserve(&call) {
            Ok(()) => {}
            Err(Withheld::UntilThereIsMore) => return self.ledger.refuse(call),
            Err(Withheld::ForGood) => return self.refused(call.key, SPENT.to_owned(), cx),
        }
        let key = call.key.clone();
        self.decision_called(&call, cx);
        let alone = self.carrier.is_one_at_a_time();
        let whole = Whole { spec: &self.resolved.spec, depth: self.context.depth, alone };
        match self.ledger.start(call, 0, &whole, &mut self.account, cx) {
            Ok(()) => self.register_if_child(key, cx),
            Err(why) => {
                self.account.given_up(&key);
                self.refused(key, why, cx);
            }
        }
    }

    /// A call that cannot be carried out is answered at once.
    fn refused(&mut self, key: Key, why: String, cx: &mut Cx<'_>) {
        let mut out = self.outbox(cx.now());
        self.hear(key, Err(CallFailure::error(why)), &mut out);
        self.go_on(&mut out);
        self.ending(&mut out);
        self.ask_all(out, cx);
    }

    /// A signal that cannot be sent is noted: nobody waits for it, and nothing is lost without a word.
    fn not_sent(&mut self, signal: &str, why: &str, cx: &mut Cx<'_>) {
        let mut out = self.outbox(cx.now());
        out.note(NoteKind::ActionRefused, json!({ "signal": signal, "why": why }));
        self.ask_all(out, cx);
    }

    fn cancel_key(&mut self, key: &Key, reason: &str, cx: &mut Cx<'_>) {
        self.ledger.refused.retain(|call| call.key != *key);
        self.account.given_up(key);
        let Some(seq) = self.ledger.keys.get(key).copied() else { return };
        match self.ledger.take(seq) {
            Some(Pending::Call { .. }) => cx.cancel_activity(seq),
            Some(Pending::Later { .. } | Pending::Timer { .. }) => cx.cancel_timer(seq),
            Some(Pending::Child { agent, .. }) => {
                if agent.is_some() || self.account.loans.has(seq) {
                    self.ledger.bills.insert(seq);
                }
                self.account.loans.cancelled(seq);
                self.parts.control.unregister(key);
                cx.cancel_child(seq, reason);
            }
            None => {}
        }
    }

    fn start_child(&mut self, key: Key, kind: ChildKind, input: &Value, cx: &mut Cx<'_>) {
        let call = Call::new(key.clone(), Purpose::ExecuteWorker, Value::Null);
        if self.account.reserve(&call).is_err() {
            return self.refused(key, SPENT.to_owned(), cx);
        }
        let part = Part::of(&self.account, self.carrier.is_one_at_a_time(), cx);
        match children::spec_of(&self.resolved.spec, kind, input, self.context.depth, part) {
            Ok(input) => {
                let lease = part.share.map(Lease::of_run);
                self.ledger.start_child(key.clone(), SUPERVISOR, lease, &input, &mut self.account, cx);
                let mut out = self.outbox(cx.now());
                self.parts.control.register(key, &mut out);
                self.ask_all(out, cx);
            }
            Err(why) => self.refused(key, why, cx),
        }
    }

    fn signal_child(&mut self, key: &Key, signal: &'static str, input: &Value, cx: &mut Cx<'_>) {
        let pending = self.ledger.keys.get(key).and_then(|seq| self.ledger.pending.get(seq));
        if let Some(Pending::Child { workflow_id, .. }) = pending {
            let target = ExternalTarget { workflow_id: WorkflowId::of(workflow_id), run_id: None };
            cx.signal_external(target, signal, input);
        }
    }
}

/// A key as part of a workflow id: other keys give other words, also where ids of tasks hold `/` or `-`.
fn word_of(key: &Key) -> String {
    key.to_string().replace('~', "~0").replace('-', "~1").replace('/', "-")
}

fn summary(call: &Call) -> String {
    match &call.agent {
        Some(agent) => format!("{} ({agent})", call.key),
        None => call.key.to_string(),
    }
}

/// What the end of an activity means for whoever asked.
pub(super) fn answer(run: &Whole<'_>, call: &Call, result: Result<Payload, Failure>) -> Answer {
    let spec = run.spec;
    let failure = match result {
        Ok(payload) => match payload.decode::<Value>() {
            Ok(value) => return work::answer_of(spec, call, value).map_err(CallFailure::error),
            Err(why) => return Err(CallFailure::error(why.to_string())),
        },
        Err(failure) => failure,
    };
    let root = failure.root();
    let kind = match root.kind {
        FailureKind::Timeout { .. } => CallFailureKind::Timeout,
        FailureKind::WorkerLost => CallFailureKind::WorkerLost,
        _ if failure.is_canceled() => CallFailureKind::Canceled,
        _ => CallFailureKind::Error,
    };
    let message = match root.kind {
        FailureKind::Timeout { .. } => work::too_slow(spec, call, run.depth),
        _ => root.message.clone(),
    };
    Err(CallFailure { kind, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Children of the tasks `a/b` and `a-b` are two runs.
    #[test]
    fn keys_that_differ_give_ids_that_differ() {
        let keys = ["execute/a/b/1", "execute/a-b/1", "execute/a~1b/1", "execute/a~b/1", "execute/a-b~1/1"];
        let word = |key: &str| word_of(&key.parse().unwrap());
        let words: BTreeSet<String> = keys.into_iter().map(word).collect();
        assert_eq!(words.len(), keys.len(), "{words:?}");
        assert_eq!(word("execute/t1/2"), "execute-t1-2");
    }
}
