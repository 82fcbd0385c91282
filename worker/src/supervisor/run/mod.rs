//! The supervisor as a workflow: it routes what happens to the parts of a run, and carries out what they ask for.
//!
//! ```text
//!   engine event ──► people · team · memory · strategy (graph, chat, agents) ──► outbox ──► commands, notes
//! ```
//!
//! Invariant: the input holds the resolved spec with its hash, and nothing is read from anywhere later; every answer goes
//! to exactly the part that asked, by its key; after every event all that may start has started; notes are recorded in
//! the turn that brought them about, and a replay that notes something else is refused. It decides nothing itself.
//!
//! Long: every kind of event, and the whole of the state.

pub mod again;
mod answer_shapes;
mod answers;
mod arguments;
mod asks;
mod border;
mod child_end;
pub(crate) mod child_id;
mod child_words;
mod children;
mod cut_off;
mod fitting;
mod gate;
mod inherited;
mod input;
mod lease;
mod model;
mod model_words;
mod noting;
mod number;
mod output;
mod own_name;
mod parts;
mod people;
mod plan_file;
mod progress;
mod queries;
mod refusal;
mod routes;
mod rules;
mod rules_below;
mod signals;
mod spending;
mod strategy;
#[cfg(test)]
mod tests;
mod tool_names;
mod updates;
mod waiting;
mod work;

use std::collections::VecDeque;

use bosun_engine::workflow::{Cx, RunNames, StateMachine, WorkflowEvent, WorkflowRegistry};
use bosun_engine::{Failure, Payload, QueryName, Seq, Timestamp, UpdateName};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use super::core::strategy::TaskReport;
pub use answer_shapes::answer_shapes;
pub use border::Continued;
pub use input::{INVALID_SPEC, RunContext, SupervisorInput};
pub use output::{EndReason, HandedUp, SUPERVISOR_FAILED, SupervisorOutput};
pub use progress::ProgressMessage;
pub use refusal::NoSpec;
pub use signals::CANCEL_TASK;
pub(crate) use signals::signals;

use self::border::Border;
use self::parts::RunGates;
use self::strategy::RunStrategy;
use super::core::account::Account;
use super::core::awaited::AwaitedKeys;
use super::core::calls::{Arrival, Calls, NewRun, UnderWay};
use super::core::control::ControlRequest;
use super::core::phase::Phase;
use super::core::retry::is_of_person;
use super::journal::{Note, NoteKind};
use super::model::TaskPlan;
use super::outbox::{Ask, Outbox};
use super::routing::{CHILD_CHECKPOINTS, PRE_ROUTING};
use super::spec::{Checkpoints, ResolvedSpec, SupervisorSpec};
use super::team::registry::check_process_depth;
use crate::agent::next_run::Leave;
use crate::capability::in_time::OUT_OF_TIME;
use crate::capability::model::MODEL_NEEDS_HUMAN;

/// The workflow type.
pub const SUPERVISOR: &str = "supervisor";

/// The workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SupervisorRun {
    resolved: ResolvedSpec,
    context: RunContext,
    /// The run by which ids are named: the first of those in which this one goes on.
    run: String,
    /// The run that it is, where that is a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    borne: Option<String>,
    /// Where it is to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    leave: Option<Leave>,
    /// What people call the run.
    #[serde(default)]
    id: String,
    parts: RunGates,
    strategy: RunStrategy,
    /// What the run may spend: every call goes through it.
    account: Account,
    /// What was asked for and is not there yet.
    calls: Calls,
    /// What is waited for. During a turn it is in the outbox.
    awaited: AwaitedKeys,
    /// The time of the last event.
    now: Timestamp,
    notes: VecDeque<Note>,
    noted: u64,
    started_at: Timestamp,
    /// What runs below could not undo, as it is reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left_below: Vec<String>,
    /// What reviewers below handed upward, for the run above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    handed_up: Vec<HandedUp>,
    /// A person has said no to work of this run, or to what a run below had to do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    denied_by_person: bool,
}

impl StateMachine for SupervisorRun {
    const TYPE: &'static str = SUPERVISOR;
    type Input = SupervisorInput;
    type Output = SupervisorOutput;

    fn start(input: SupervisorInput, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let run = SupervisorRun::begin(input, cx)?;
        run.close_if_over(cx);
        // What began here is under way: the border comes with a later event, however low the limit is.
        Ok(run)
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        self.happened(event, cx);
        self.close_if_over(cx);
        self.continue_if_long(cx);
        self.close_if_over(cx);
        #[cfg(test)]
        tests::comes_back_from_its_snapshot(self);
        Ok(())
    }

    fn queries() -> &'static [&'static str] {
        &queries::QUERIES
    }

    fn query_as(&self, names: &RunNames, name: &QueryName, input: &Payload) -> Result<Payload, Failure> {
        self.named(names).answer_query(name.as_str(), input)
    }

    fn validate_update_as(&self, names: &RunNames, name: &UpdateName, input: &Payload) -> Result<(), Failure> {
        // Tried on a copy: what is refused leaves no trace.
        let mut copy = self.named(names).into_owned();
        let mut out = copy.outbox(copy.now);
        copy.update(name.as_str(), input, &mut out).map(|_| ())
    }
}

impl SupervisorRun {
    /// A run up to the end of its first turn; whoever holds it closes it.
    // long: one line a part of the run.
    pub(super) fn begin(mut input: SupervisorInput, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        if let Some(continued) = input.continued.take() {
            return Ok(SupervisorRun::go_on_from(*continued, cx));
        }
        number::held_by_other_rules(cx);
        let (mut resolved, context) = input.resolve()?;
        // A child that is too deep does not start (SUP-08).
        check_process_depth(context.depth, resolved.spec.delegation.max_depth)
            .map_err(|why| Failure::application(INVALID_SPEC, why.to_string()).non_retryable())?;
        let run = cx.run_id().to_string();
        let id = cx.workflow_id().map_or_else(|| run.clone(), ToString::to_string);
        let account = spending::account(&resolved.spec, &context);
        let mut out = Outbox::new(run.clone(), cx.now()).with_budget(account.balance());
        let chosen = resolved.spec.for_request();
        let gated = gate::is_in(chosen.as_ref().map_or(&resolved.spec, |(spec, _)| spec));
        let mut started = json!({
            "name": resolved.spec.name, "preset": resolved.spec.preset, "hash": resolved.hash, "rules": number::RULES,
        });
        if gated {
            started["gated"] = true.into();
        }
        out.note(NoteKind::RunStarted, started);
        // The hash stays that of the spec as it was given.
        if let Some((spec, choice)) = chosen {
            out.note(NoteKind::PlanningChosen, json!(choice));
            resolved.spec = spec;
        }
        let mut parts = RunGates::new(&resolved.spec, &run, context.depth, cx.now());
        parts.border = Border::Ahead;
        parts.team.role_given(context.role.as_deref());
        if let Some(id) = &context.agent_id {
            parts.team.is_recruit(id, context.more.mail.as_deref().unwrap_or_default(), &mut out);
        }
        let strategy = RunStrategy::new(&resolved.spec, &context, &mut out)?;
        // The root of agents that call agents registers itself.
        if !strategy.registers_agents() {
            parts.team.started(&resolved.spec.name, &mut out);
        }
        let mut run = SupervisorRun {
            resolved,
            context,
            run,
            borne: None,
            leave: None,
            id,
            parts,
            strategy,
            account,
            calls: Calls::default(),
            awaited: AwaitedKeys::default(),
            now: cx.now(),
            notes: VecDeque::new(),
            noted: 0,
            started_at: cx.now(),
            left_below: Vec::new(),
            handed_up: Vec::new(),
            denied_by_person: false,
        };
        let session = run.context.session.clone().unwrap_or_else(|| run.resolved.spec.memory.session.clone());
        run.account.start_clock(&mut out);
        run.parts.memory.start(Some(&session), &run.resolved.spec.objective, &mut out);
        run.begin_if_ready(&mut out);
        run.end_for_budget(&mut out);
        run.ask_people_for_the_strategy(&mut out);
        run.carry_out(out, cx);
        Ok(run)
    }

    /// One turn; whoever holds the run closes it.
    pub(super) fn happened(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) {
        if self.bear_own_name(cx.run_id(), cx.workflow_id()) {
            self.own_budget();
        }
        let mut out = self.outbox(cx.now());
        let is_own = matches!(
            event,
            WorkflowEvent::ChildStarted { .. }
                | WorkflowEvent::SignalDelivered { .. }
                | WorkflowEvent::CancelDelivered { .. }
        );
        self.watch_border(is_own, cx);
        match event {
            WorkflowEvent::ActivityResolved { seq, result } => self.resolved(seq, result, &mut out, cx),
            WorkflowEvent::TimerFired { seq } => self.timer_fired(seq, &mut out, cx),
            WorkflowEvent::ChildResolved { seq, result } => self.child_resolved(seq, result, &mut out),
            WorkflowEvent::Signal(signal) => {
                if !self.signal(signal.name.as_str(), &signal.input, &mut out) {
                    cx.defer_signal(signal);
                }
            }
            WorkflowEvent::Update { update_id, name, input } => {
                let answer = self.update(name.as_str(), &input, &mut out);
                let (kind, data) = match &answer {
                    Ok(_) => (NoteKind::UpdateAccepted, json!({ "update": name.as_str() })),
                    Err(why) => (NoteKind::UpdateRefused, json!({ "update": name.as_str(), "why": why.message })),
                };
                out.note(kind, data);
                cx.complete_update(update_id, answer.as_ref().map_err(Clone::clone));
            }
            WorkflowEvent::CancelRequested { reason } => self.cancel(&reason, "cancel request", &mut out),
            WorkflowEvent::ChildStarted { .. }
            | WorkflowEvent::SignalDelivered { .. }
            | WorkflowEvent::CancelDelivered { .. } => {} // their ends are what counts
        }
        self.watch_border(is_own, cx);
        self.go_on(&mut out);
        self.count_work(&mut out);
        self.carry_out(out, cx);
    }

    pub(super) fn spec(&self) -> &SupervisorSpec {
        &self.resolved.spec
    }
    pub(super) fn plan(&self) -> Option<&TaskPlan> {
        self.strategy.plan()
    }
    /// How it stands; one that was cancelled is, whatever its strategy came to.
    pub(super) fn phase(&self) -> Phase {
        if self.parts.control.is_cancelled() { Phase::Cancelled } else { self.strategy.phase() }
    }
    /// When it began, and when it was over.
    pub(super) fn times(&self) -> (Timestamp, Option<Timestamp>) {
        (self.started_at, self.is_over().then_some(self.now))
    }

    /// An activity has ended: its answer goes to whoever asked, or waits until the run goes on.
    fn resolved(&mut self, seq: Seq, result: Result<Payload, Failure>, out: &mut Outbox, cx: &mut Cx<'_>) {
        let Some(UnderWay::Call { call, deliveries }) = self.calls.ended(seq) else { return };
        if let Err(failure) = &result
            && self.is_sent_again(&call, deliveries, failure, cx)
        {
            return;
        }
        if let Err(failure) = &result
            && failure.root().type_name() == MODEL_NEEDS_HUMAN
            && !self.parts.control.is_cancelled()
        {
            // Nothing is lost by waiting: the run is paused with the reason, and asks again when somebody resumes it.
            self.pause(ControlRequest::new(&failure.root().message, "model"), out);
            return self.calls.put_off(call);
        }
        if result.as_ref().is_err_and(|failure| failure.root().type_name() == OUT_OF_TIME) {
            self.time_is_over(out);
        }
        let known = spending::of_model(&self.resolved.spec, &call, &result);
        let mut answer = self.answer_of(&call, result);
        let said = spending::taken_from(self.strategy.reads(call.purpose), &call, &mut answer);
        self.settle(&call.key, known.unwrap_or(said), out);
        self.hear(Arrival::Answer { key: call.key, answer }, out);
    }

    /// All that comes in for a strategy, and every answer, goes through here: it is heard now, or when the run goes on.
    fn hear(&mut self, incoming: Arrival, out: &mut Outbox) {
        if let Arrival::Answer { key, answer } = &incoming {
            self.parts.escalations.decision_ended(key, out);
            self.denied_by_person |= answer.as_ref().is_err_and(|failure| is_of_person(failure.kind));
        }
        if self.parts.control.is_held() {
            self.calls.hold(incoming);
        } else {
            self.heard(incoming, out);
        }
    }

    fn timer_fired(&mut self, seq: Seq, out: &mut Outbox, cx: &mut Cx<'_>) {
        match self.calls.ended(seq) {
            Some(UnderWay::Later { call, input, deliveries }) => self.say(call, &input, deliveries, cx),
            // What people are given time for ends in a pause too.
            Some(UnderWay::Timer { key, .. }) if !key.is_of_strategy() => {
                if out.came(&key) {
                    self.fired(key, out);
                }
            }
            Some(UnderWay::Timer { key, .. }) => self.hear(Arrival::Fired { key }, out),
            Some(UnderWay::Call { .. } | UnderWay::Child { .. }) | None => {}
        }
    }

    /// Memory first, then the strategy begins.
    fn begin_if_ready(&mut self, out: &mut Outbox) {
        if self.parts.memory.is_ready() {
            let known = self.parts.memory.with_memory(None);
            self.strategy.begin(known, &mut self.parts, out);
        }
    }

    /// The next point where the run can stop: in a router and in a single execution names of their own (SHN-73).
    fn checkpoint(&self) -> String {
        let phase = self.strategy.phase();
        let planning = matches!(phase, Phase::Created | Phase::Planning);
        let [before, after, end] = CHILD_CHECKPOINTS;
        match self.parts.handed_on {
            Some(route) => route.checkpoint().to_owned(),
            _ if planning && self.parts.is_router() => PRE_ROUTING.to_owned(),
            None if self.resolved.spec.checkpoints() == Checkpoints::Execution => match self.strategy.next_step() {
                _ if phase == Phase::Synthesizing || phase.is_terminal() => end.to_owned(),
                Some(_) => before.to_owned(),
                None if phase == Phase::Planning => self.strategy.checkpoint(),
                None => after.to_owned(),
            },
            _ => self.strategy.checkpoint(),
        }
    }

    /// After every event: what may start starts.
    fn go_on(&mut self, out: &mut Outbox) {
        self.parts.escalations.decisions_run(self.parts.control.is_running(), out);
        if self.parts.control.is_running() {
            let (again, heard) = self.calls.go_on();
            for call in again {
                let waited = out.budget().exhausted().is_some() && !out.awaited().is_reserved(&call.key);
                let call = if waited { self.strategy.no_more_for(call, out) } else { Some(call) };
                call.into_iter().for_each(|call| out.ask(Ask::Call(call)));
            }
            for NewRun { key, kind, task } in self.calls.runs_put_off() {
                out.ask(Ask::StartChild { key, kind, task });
            }
            for incoming in heard {
                self.heard_in_order(incoming, out);
            }
        } else {
            let checkpoint = self.checkpoint();
            self.parts.control.checkpoint(&checkpoint, out);
        }
        self.strategy.advance(&mut self.parts, out);
        self.end_for_budget(out);
        self.ask_people_for_the_strategy(out);
        self.ask_for_budget(out);
    }

    /// The end of every turn: notes, commands, and the close if the run is over.
    fn carry_out(&mut self, mut out: Outbox, cx: &mut Cx<'_>) {
        self.now = cx.now();
        self.ending(&mut out);
        let (asks, notes) = self.take(out);
        self.note(notes, cx);
        self.lend_more(cx);
        for ask in asks {
            self.ask(ask, cx);
        }
        self.ask_for_what_is_held(cx);
        self.tell_and_keep_time(cx);
    }

    /// What was left in an outbox; what the run waits for is the run's again, and what agents tell of themselves registered.
    fn take(&mut self, mut out: Outbox) -> (Vec<Ask>, Vec<Note>) {
        self.awaited = out.take_awaited();
        out.take_facts().into_iter().for_each(|fact| self.parts.team.registry.hear(fact));
        out.take()
    }
}

/// Adds the workflow.
pub fn register(registry: WorkflowRegistry) -> WorkflowRegistry {
    registry.state_machine::<SupervisorRun>()
}

/// The value of a payload that may be empty.
fn value_of(payload: &Payload) -> Result<Value, Failure> {
    if payload.data.is_empty() { Ok(Value::Null) } else { Ok(payload.decode()?) }
}
