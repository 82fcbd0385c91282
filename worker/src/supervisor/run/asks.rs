//! Carrying out asks: each becomes a command of the engine, and the number of the command is told to the calls of the run.
//!
//! Invariant: every call goes through the gate and the account before it is sent; what cannot be carried out is answered at once. What
//! is under way, and what becomes of it, is known by `core::calls`.

use std::time::Duration;

use bosun_engine::workflow::Cx;
use bosun_engine::{
    ActivityOptions, ActivityType, CancellationType, ChildWorkflowOptions, ExternalTarget, Failure, FailureKind,
    ParentClosePolicy, Payload, Priority, RetryState, WORKER_LOST, WorkflowId,
};
use serde_json::{Value, json};

use super::children::{ChildBudget, FromAbove};
use super::lease::{self, Lease};
use super::refusal::CarryRefusal;
use super::work::{self, Carried};
use super::{SUPERVISOR, SupervisorRun, child_id, children};
use crate::agent::AGENT;
use crate::capability::http::HTTP;
use crate::capability::in_time::OUT_OF_TIME;
use crate::capability::model::{self, MODEL};
use crate::supervisor::core::account::{SPENT, Withheld};
use crate::supervisor::core::asker::Asker;
use crate::supervisor::core::awaited::AnswerSource;
use crate::supervisor::core::calls::{Arrival, Cancelled, NewRun, RunBelow, UnderWay};
use crate::supervisor::core::key::Key;
use crate::supervisor::core::retry;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{
    Answer, Ask, Call, CallFailure, CallFailureKind, ChildKind, ChildTask, Outbox, Purpose, Weight,
};
use crate::supervisor::plan_task::Dispatched;

/// How a run below begins.
#[derive(Default)]
struct Begins {
    lease: Option<Lease>,
    priority: Option<Priority>,
    /// What is said of it if it takes all its time.
    too_slow: Option<String>,
}

impl SupervisorRun {
    pub(super) fn ask(&mut self, ask: Ask, cx: &mut Cx<'_>) {
        match ask {
            Ask::Call(call) => self.call(call, cx),
            // A call of the same turn was asked about, or waits for the border: the time stands still again, before its timer
            // is started.
            Ask::Timer { key, at, .. }
                if (!self.parts.gate.is_off() || self.parts.border_closes()) && !self.awaited.comes(&key, at) => {}
            Ask::Timer { key, at, label } => {
                let seq = cx.start_labelled_timer(at, label.clone());
                self.calls.sent(seq, UnderWay::Timer { key, label });
            }
            Ask::CancelCall { key } => {
                self.decision_over(&key, cx);
                self.cancel_key(&key, "", cx);
            }
            Ask::CancelTimer { key } => self.cancel_key(&key, "", cx),
            Ask::CancelChild { key, reason } => self.cancel_key(&key, &reason, cx),
            Ask::StartChild { key, kind, task } => self.start_run(key, kind, task, cx),
            Ask::SignalChild { key, signal, input } => {
                if let Some(child) = self.calls.child(&key) {
                    let target = ExternalTarget { workflow_id: WorkflowId::of(&child.workflow_id), run_id: None };
                    cx.signal_external(target, signal, &input);
                }
            }
            Ask::SignalExternal { workflow_id, signal, input, .. } => match WorkflowId::new(workflow_id) {
                Ok(workflow_id) => {
                    cx.signal_external(ExternalTarget { workflow_id, run_id: None }, signal.as_str(), &input);
                }
                Err(why) => self.not_sent(&signal, &why.to_string(), cx),
            },
        }
    }

    /// Every call of every family goes through the gate and the account, and then out.
    fn call(&mut self, call: Call, cx: &mut Cx<'_>) {
        if self.puts_off() && call.weight() != Weight::Free {
            if self.parts.border_closes() {
                self.waits_for_border(&call.key, true, cx);
            }
            return self.calls.put_off(call);
        }
        let spec = &self.resolved.spec;
        if !call.needs_no_part()
            && self.available().too_little_for_child()
            && matches!(work::carried(spec, &call, self.context.depth, self.asker()), Carried::Child { .. })
        {
            // Asked again with the next event: others give back what they do not need.
            return self.calls.put_off(call);
        }
        let lent = self.available().calls.is_some_and(|calls| calls.free == 0 && calls.left > 0);
        if lent && call.weight() == Weight::Call && !call.last && !self.awaited.is_reserved(&call.key) {
            // The calls that are left are lent to runs below.
            return self.calls.put_off(call);
        }
        let Some(call) = self.let_through(call, cx) else { return };
        self.waits_for_border(&call.key, false, cx);
        match self.account.reserve(&call, AnswerSource::Call, &mut self.awaited) {
            Ok(()) => {}
            Err(Withheld::UntilThereIsMore) => return self.calls.put_off(call),
            Err(Withheld::ForGood) => {
                self.parts.gate.sent(&call.key);
                return self.unpaid(call.key, cx);
            }
        }
        let key = call.key.clone();
        self.parts.gate.sent(&key);
        self.decision_called(&call, cx);
        match self.send(call, 0, cx) {
            Ok(()) => self.register_if_child(key, cx),
            Err(why) => {
                self.awaited.settled(&key);
                self.refused(key, why.failure(), cx);
            }
        }
    }

    /// A call becomes what the spec says, and is under way from here on.
    fn send(&mut self, call: Call, deliveries: u32, cx: &mut Cx<'_>) -> Result<(), CarryRefusal> {
        if let Some(dispatched) = self.dispatched(&call) {
            let Dispatched { activity_type, input, options } = dispatched?;
            let options = self.crash_counts(&call, options);
            let deliveries = delivered(&options, deliveries);
            let seq = cx.schedule_activity(activity_type, &input, options);
            self.calls.sent(seq, UnderWay::Call { call, deliveries });
            return Ok(());
        }
        let counted = call.weight() == Weight::Call;
        match work::carried(&self.resolved.spec, &call, self.context.depth, self.asker()) {
            Carried::Activity { activity_type, mut input, timeout } => {
                let within_ms = self.begins_within(&call, cx).filter(|_| activity_type.as_str() == HTTP);
                if let (Value::Object(fields), Some(within_ms)) = (&mut input, within_ms) {
                    fields.insert("within_ms".to_owned(), within_ms.into());
                }
                let options = self.in_place(&call, work::options_of(&activity_type, &summary(&call), timeout));
                let deliveries = delivered(&options, deliveries);
                let seq = cx.schedule_activity(activity_type, &input, options);
                self.calls.sent(seq, UnderWay::Call { call, deliveries });
            }
            Carried::Later { after, input } if after.is_zero() => self.say(call, &input, deliveries, cx),
            Carried::Later { after, input } => {
                let seq = cx.start_labelled_timer(cx.now().plus(after), summary(&call));
                self.calls.sent(seq, UnderWay::Later { call, input, deliveries });
            }
            Carried::Child { spec } => {
                self.begin_nested(&spec, call, cx)?;
                self.account.begins_below(counted);
            }
            Carried::Model { mut input, timeout } => {
                input.within_ms = self.begins_within(&call, cx);
                let options = self.in_place(&call, model::options(&summary(&call), timeout, super::model::ATTEMPTS));
                let seq = cx.schedule_activity(ActivityType::of(MODEL), &*input, options);
                self.calls.sent(seq, UnderWay::Call { call, deliveries });
            }
            Carried::Agent { mut spec } => {
                spec.report_to = own_id(cx);
                let wall_ms = self.account.left_for_child(cx.now(), &self.awaited);
                let (lent, share) = lease::lend(self.available(), wall_ms, &call, &mut spec);
                let input = serde_json::to_value(spec)?;
                let lease = Some(Lease { purpose: Some(call.purpose), lent, share, calls: None });
                let begins = Begins { lease, priority: self.priority_of(&call), ..Begins::default() };
                self.start_child(call.key, AGENT, begins, &input, cx);
                self.account.begins_below(counted);
            }
            Carried::Impossible(why) => return Err(why),
        }
        Ok(())
    }

    /// An agent that is a run of its own begins, with what its spec leaves it of time: nobody waits longer for its answer.
    fn begin_nested(&mut self, spec: &Value, call: Call, cx: &mut Cx<'_>) -> Result<(), CarryRefusal> {
        let of_run = if call.needs_no_part() { ChildBudget::default() } else { self.child_budget(cx) };
        let mut part = of_run.within(work::own_time_of(&self.resolved.spec, &call));
        // Its start counts as a call until it tells how many it has made: one of these is that one.
        part.calls = part.calls.map(|left| left.saturating_add(u64::from(call.weight() == Weight::Call)));
        let shorter = children::own_wall_ms(spec).is_none_or(|own| part.wall_ms < Some(own));
        let too_slow = (shorter && part.wall_ms != of_run.wall_ms)
            .then(|| work::too_slow(&self.resolved.spec, &call, self.context.depth, self.asker()));
        part.timed = too_slow.is_some();
        let told = self.told_to_agents();
        let variables = self.strategy.variables_for(&call.key);
        let input = children::nested(spec, &call, self.context.depth, part, own_id(cx), variables, (&told, cx.now()))?;
        let begins = Begins { lease: Lease::of_run(part), priority: self.priority_of(&call), too_slow };
        self.start_child(call.key, SUPERVISOR, begins, &input, cx);
        Ok(())
    }

    /// The place of a call among all that waits for a slot: that of whoever does it, where their entry names one (E25).
    fn priority_of(&self, call: &Call) -> Option<Priority> {
        self.resolved.spec.player(call)?.priority.as_ref().map(|said| said.0.clone())
    }

    fn in_place(&self, call: &Call, options: ActivityOptions) -> ActivityOptions {
        ActivityOptions { priority: self.priority_of(call), ..self.crash_counts(call, options) }
    }

    /// The spec may want a call that a crash cut off to be a try like any other: then nobody makes that one again.
    fn crash_counts(&self, call: &Call, mut options: ActivityOptions) -> ActivityOptions {
        let counts = self.resolved.spec.failure.count_crash_as_attempt && call.purpose == Purpose::ExecuteWorker;
        if let Some(policy) = options.retry_policy.as_mut().filter(|_| counts) {
            policy.non_retryable_error_types.push(WORKER_LOST.to_owned());
        }
        options
    }

    /// A scripted answer is said now.
    pub(super) fn say(&mut self, call: Call, input: &Value, deliveries: u32, cx: &mut Cx<'_>) {
        let scripted = ActivityType::of(crate::capability::scripted::SCRIPTED);
        let options = self.in_place(&call, work::options(&summary(&call), Duration::from_secs(60)));
        let deliveries = delivered(&options, deliveries);
        let seq = cx.schedule_activity(scripted, input, options);
        self.calls.sent(seq, UnderWay::Call { call, deliveries });
    }

    /// Delivers a call again whose worker was lost as often as its policy allows. Whether it did.
    pub(super) fn is_sent_again(&mut self, call: &Call, deliveries: u32, failure: &Failure, cx: &mut Cx<'_>) -> bool {
        // The spec may want it to be a try like any other.
        let counts = self.resolved.spec.failure.count_crash_as_attempt && call.purpose == Purpose::ExecuteWorker;
        let lost = matches!(failure.root().kind, FailureKind::WorkerLost);
        // A cluster delivers nothing again by itself: its policies know no lost worker.
        let by_nobody =
            matches!(failure.kind, FailureKind::Activity { retry_state: RetryState::RetryPolicyNotSet, .. });
        let most = if by_nobody { 2 * retry::DELIVERIES_MAX } else { retry::DELIVERIES_MAX };
        let again = retry::delivered_again(deliveries, most, counts).filter(|_| lost);
        again.is_some_and(|deliveries| self.send(call.clone(), deliveries, cx).is_ok())
    }

    /// A call that cannot be carried out is answered at once, and has failed like any other.
    fn refused(&mut self, key: Key, why: CallFailure, cx: &mut Cx<'_>) {
        let mut out = self.outbox(cx.now());
        self.answered_at_once(key, why, &mut out);
        self.count_work(&mut out);
        self.ask_all(out, cx);
    }

    /// A call that is not paid for is answered at once. It was not begun, and counts as no failure of whoever was to do it.
    fn unpaid(&mut self, key: Key, cx: &mut Cx<'_>) {
        let mut out = self.outbox(cx.now());
        let why = CallFailure { kind: CallFailureKind::Spent, message: SPENT.to_owned() };
        self.answered_at_once(key, why, &mut out);
        self.ask_all(out, cx);
    }

    fn answered_at_once(&mut self, key: Key, why: CallFailure, out: &mut Outbox) {
        self.hear(Arrival::Answer { key, answer: Err(why) }, out);
        self.go_on(out);
        self.ending(out);
    }

    /// A signal that cannot be sent is noted: nobody waits for it, and nothing is lost without a word.
    fn not_sent(&mut self, signal: &str, why: &str, cx: &mut Cx<'_>) {
        let mut out = self.outbox(cx.now());
        out.note(NoteKind::ActionRefused, json!({ "signal": signal, "why": why }));
        self.ask_all(out, cx);
    }

    fn cancel_key(&mut self, key: &Key, reason: &str, cx: &mut Cx<'_>) {
        self.cut_off(key);
        self.work_over(key, cx);
        if let Some(child) = self.calls.child(key) {
            self.parts.below.ended(&child.workflow_id);
        }
        match self.calls.cancel(key) {
            Some(Cancelled::Activity(seq)) => cx.cancel_activity(seq),
            Some(Cancelled::Timer(seq)) => cx.cancel_timer(seq),
            Some(Cancelled::Child(seq)) => {
                self.account.loans.cancelled(seq);
                self.parts.control.unregister(key);
                cx.cancel_child(seq, reason);
            }
            None => {}
        }
    }

    fn start_run(&mut self, key: Key, kind: ChildKind, task: ChildTask, cx: &mut Cx<'_>) {
        if self.parts.border_closes() {
            return self.calls.put_off_run(NewRun { key, kind, task });
        }
        let call = Call::new(key.clone(), Purpose::ExecuteWorker, Value::Null);
        match self.account.reserve(&call, AnswerSource::Child, &mut self.awaited) {
            Ok(()) => {}
            Err(Withheld::UntilThereIsMore) => return self.calls.put_off_run(NewRun { key, kind, task }),
            Err(Withheld::ForGood) => return self.unpaid(key, cx),
        }
        let mut part = self.child_budget(cx);
        part.calls = part.calls.map(|left| left.saturating_add(1));
        let spec = self.spec_for_below(cx.now()).into_owned();
        let policies = self.context.more.policies.clone();
        let mail = match (&key, &task.agent_id) {
            (Key::Team(key), Some(agent)) => self.parts.team.recruit_begins(key, agent),
            _ => Vec::new(),
        };
        let above = FromAbove { id: own_id(cx), policies, told: self.told_to_agents(), mail };
        match children::spec_of(&spec, kind, task, self.context.depth, part, above) {
            Ok(input) => {
                let begins = Begins { lease: Lease::of_run(part), ..Begins::default() };
                self.start_child(key.clone(), SUPERVISOR, begins, &input, cx);
                self.register_if_child(key, cx);
            }
            Err(why) => self.refused(key, why.failure(), cx),
        }
    }

    fn asker(&self) -> &dyn Asker {
        &*self.strategy
    }

    fn start_child(&mut self, key: Key, workflow_type: &'static str, begins: Begins, input: &Value, cx: &mut Cx<'_>) {
        let Begins { lease, priority, too_slow } = begins;
        // By the name that the ids of the run have: in whichever run of the chain it begins, it is the child of that key.
        let id = child_id::of(&self.run, &key);
        let workflow_id = id.to_string();
        // A child closes with its parent (SHN-50), in its own way.
        let parent_close_policy = ParentClosePolicy::RequestCancel;
        // What it spent is known only when it has ended.
        let cancellation = CancellationType::WaitCancellationCompleted;
        let options =
            ChildWorkflowOptions { parent_close_policy, priority, cancellation, ..ChildWorkflowOptions::default() };
        let seq = cx.start_child(workflow_type, id, input, options);
        let agent = lease.as_ref().and_then(|lease| lease.purpose);
        let (lent, share, calls) = lease.map(|lease| (lease.lent, lease.share, lease.calls)).unwrap_or_default();
        if let Some(share) = share {
            self.account.loans.lend(seq, &workflow_id, share);
        }
        if let Some(calls) = calls {
            self.account.loans.lend_calls(seq, calls);
        }
        self.calls.sent(seq, UnderWay::Child { key, child: RunBelow { workflow_id, agent, lent, too_slow } });
    }

    /// What the end of an activity means for whoever asked.
    pub(super) fn answer_of(&self, call: &Call, result: Result<Payload, Failure>) -> Answer {
        if let Some(answer) = self.answer_of_task(call, &result) {
            return answer;
        }
        let spec = &self.resolved.spec;
        let failure = match result {
            Ok(payload) => match payload.decode::<Value>() {
                Ok(value) => {
                    return work::answer_of(spec, call, value, self.asker())
                        .map_err(|why| CallFailure::error(why.to_string()));
                }
                Err(why) => return Err(CallFailure::error(why.to_string())),
            },
            Err(failure) => failure,
        };
        let root = failure.root();
        let is_of_service = || work::is_of_service(spec, call);
        let kind = match root.kind {
            FailureKind::Application { .. } if root.type_name() == OUT_OF_TIME => CallFailureKind::Spent,
            FailureKind::Application { non_retryable: true, .. } if is_of_service() => CallFailureKind::Final,
            FailureKind::Timeout { .. } => CallFailureKind::Timeout,
            FailureKind::WorkerLost => CallFailureKind::WorkerLost,
            _ if failure.is_canceled() => CallFailureKind::Canceled,
            _ => CallFailureKind::Error,
        };
        let message = match root.kind {
            FailureKind::Timeout { .. } => work::too_slow(spec, call, self.context.depth, self.asker()),
            _ if kind == CallFailureKind::Spent => format!("{SPENT}: its time is over"),
            _ => root.message.clone(),
        };
        Err(CallFailure { kind, message })
    }
}

/// How often a call counts as delivered: one that the engine delivers again by itself is not delivered again by anybody else.
fn delivered(options: &ActivityOptions, deliveries: u32) -> u32 {
    let by_itself = options.retry_policy.as_ref().is_some_and(work::is_delivered_again);
    if by_itself { deliveries.max(retry::DELIVERIES_MAX) } else { deliveries }
}

/// What the runs below call this one.
fn own_id(cx: &Cx<'_>) -> Option<String> {
    cx.workflow_id().map(ToString::to_string)
}

pub(super) fn summary(call: &Call) -> String {
    match &call.agent {
        Some(agent) => format!("{} ({agent})", call.key),
        None => call.key.to_string(),
    }
}
