//! What a state machine can ask for during a transition.
//!
//! Invariant: every request becomes one command, in the order asked, with the place in the code that asked it. A
//! request that cannot be (an input that cannot be encoded, options without a timeout) fails the run when the
//! transition returns, and the number given for it never resolves. `Cx` reads no clock and no random source.
//!
//! Long: one method a request, in one place, is what a writer of state machines looks for.

mod by_reference;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::Location;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ledger::{CodePlace, CommandLedger, SideEffect};
use super::panic::{diverge, recording};
use super::pending::{PendingCommand, check_activity, close_failed, workflow_closed};
use super::state_machine::WorkflowEvent;
use crate::reference::SignalRef;
use crate::vocabulary::*;

/// What the driver keeps for a state machine beside its state; part of the snapshot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DriverState {
    pub(super) pending: BTreeMap<Seq, PendingCommand>,
    pub(super) open_updates: BTreeSet<UpdateId>,
    pub(super) deferred_signals: Vec<WorkflowExecutionSignaled>,
    /// Signals of the run before that this run has not heard yet; empty between activations.
    pub(super) carried_signals: VecDeque<WorkflowExecutionSignaled>,
    /// Ends that the code brought about itself and hears of after the transition; empty between activations.
    #[serde(skip)]
    pub(super) resolved: VecDeque<WorkflowEvent>,
    #[serde(skip)]
    pub(super) places: BTreeMap<Seq, CodePlace>,
    /// Absent in snapshots of versions before 2026-11-22.
    pub(super) workflow_id: Option<WorkflowId>,
    /// The runs whose history this one begins with, and what each was called: its copied events are heard under that name.
    pub(super) before_forks: BTreeMap<RunId, WorkflowId>,
}

impl DriverState {
    /// What the run is called while it bears this run id.
    pub(super) fn workflow_id_of(&self, run: RunId) -> Option<&WorkflowId> {
        self.before_forks.get(&run).or(self.workflow_id.as_ref())
    }
}

/// The run as a transition sees it: reads, and requests that become commands.
pub struct Cx<'a> {
    pub(super) ledger: &'a mut CommandLedger,
    pub(super) driver: &'a mut DriverState,
}

/// What the run knows.
impl Cx<'_> {
    /// Workflow time: the time of the event being handled.
    pub fn now(&self) -> Timestamp {
        self.ledger.now()
    }
    /// The id of this run.
    pub fn run_id(&self) -> RunId {
        self.ledger.run_id()
    }
    /// The id of the run's workflow; absent only after a snapshot of an older build. In a fork it is the source's while
    /// copied events are heard, and the fork's own from there on, as [`run_id`](Cx::run_id) is.
    pub fn workflow_id(&self) -> Option<&WorkflowId> {
        self.driver.workflow_id_of(self.run_id())
    }
    /// How long the history is so far.
    pub fn history(&self) -> HistorySize {
        self.ledger.history()
    }
    /// The largest payload that the engine takes here and now, in bytes. Another worker may take another: what is decided by it
    /// has to be noted, in a [`side_effect`](Self::side_effect).
    pub fn payload_max(&self) -> usize {
        self.ledger.payload_max()
    }
    /// Whether the history has become long enough to go on in a new run: 4 096 events or 4 MiB.
    pub fn continue_as_new_suggested(&self) -> bool {
        self.ledger.history().continue_as_new_suggested()
    }
    /// When a timer fires that was started and is waited for still.
    pub fn timer_fires_at(&self, seq: Seq) -> Option<Timestamp> {
        match self.driver.pending.get(&seq) {
            Some(PendingCommand::Timer { fire_at }) => Some(*fire_at),
            _ => None,
        }
    }
    /// Whether nothing but timers is waited for: no activity, child or message to another run is under way, every update is
    /// answered, and nothing is left to be heard of in this turn. A moment for [`continue_as_new`](Cx::continue_as_new): the
    /// next run can start timers again, and of all else it would not hear.
    pub fn waits_for_timers_only(&self) -> bool {
        let DriverState { pending, open_updates, carried_signals, resolved, .. } = &*self.driver;
        let timers = pending.values().all(|pending| matches!(pending, PendingCommand::Timer { .. }));
        timers && open_updates.is_empty() && carried_signals.is_empty() && resolved.is_empty()
    }
    /// The reason of the first cancel request, if there was one.
    pub fn cancel_requested(&self) -> Option<&str> {
        self.ledger.cancel_reason()
    }
    /// True while recorded events are replayed: after a restart, in the debugger, in tests. Use it only to avoid telling
    /// somebody outside twice; logs are silent during replay anyway. Commands must not depend on it: a decision that does is
    /// not deterministic, and is caught as such.
    pub fn is_replaying(&self) -> bool {
        self.ledger.is_replaying()
    }
    /// Whether the run has been closed by this transition.
    pub fn is_closed(&self) -> bool {
        self.ledger.is_closed()
    }
    /// The same on every replay (E20).
    pub fn random_u64(&mut self) -> u64 {
        self.ledger.random_u64()
    }
    /// The same on every replay (E20).
    pub fn uuid(&mut self) -> uuid::Uuid {
        self.ledger.uuid()
    }
}

/// Activities and timers.
impl Cx<'_> {
    /// As [`Self::call`], for an activity that only has a name. One of the close timeouts is required.
    #[track_caller]
    pub fn schedule_activity<I: Serialize + ?Sized>(
        &mut self,
        activity_type: impl Into<ActivityType>,
        input: &I,
        options: ActivityOptions,
    ) -> Seq {
        let (place, activity_type) = (Location::caller(), activity_type.into());
        let seq = self.ledger.next_seq();
        let input = Payload::encode(input).map_err(Failure::from);
        let input = match check_activity(&activity_type, &options).and(input) {
            Ok(input) => input,
            Err(failure) => {
                self.ledger.fault(failure);
                return seq;
            }
        };
        let pending = PendingCommand::Activity {
            activity_type: activity_type.clone(),
            cancellation: options.cancellation,
            cancel_requested: false,
        };
        let activity_id = self.ledger.activity_id(seq);
        self.ask(place, seq, pending, Command::ScheduleActivity { seq, activity_id, activity_type, input, options });
        seq
    }
    /// Cancels an activity according to its cancellation type. One that has ended already is left alone.
    #[track_caller]
    pub fn cancel_activity(&mut self, seq: Seq) {
        self.cancel_pending(Location::caller(), seq, "");
    }
    /// Starts a durable timer; `TimerFired` tells with its number when the time is over. Zero fires in the next turn.
    #[track_caller]
    pub fn start_timer(&mut self, after: Duration) -> Seq {
        let fire_at = self.now().plus(after);
        self.timer(Location::caller(), fire_at, None)
    }
    /// A moment that is past already fires in the next turn.
    #[track_caller]
    pub fn start_timer_at(&mut self, fire_at: Timestamp) -> Seq {
        self.timer(Location::caller(), fire_at, None)
    }
    /// A timer that says in history and in lists what it is for.
    #[track_caller]
    pub fn start_labelled_timer(&mut self, fire_at: Timestamp, summary: impl Into<String>) -> Seq {
        self.timer(Location::caller(), fire_at, Some(summary.into()))
    }
    fn timer(&mut self, place: CodePlace, fire_at: Timestamp, summary: Option<String>) -> Seq {
        let seq = self.ledger.next_seq();
        self.ask(place, seq, PendingCommand::Timer { fire_at }, Command::StartTimer { seq, fire_at, summary });
        seq
    }
    /// Cancels a timer; it is not heard of again. One that has fired already is left alone.
    #[track_caller]
    pub fn cancel_timer(&mut self, seq: Seq) {
        self.cancel_pending(Location::caller(), seq, "");
    }
}

/// Children and other runs.
impl Cx<'_> {
    /// As [`Self::child_with`], for a workflow that only has a name. A text that cannot be an id fails the run.
    #[track_caller]
    pub fn start_child<I: Serialize + ?Sized>(
        &mut self,
        workflow_type: impl Into<WorkflowType>,
        workflow_id: impl IntoWorkflowId,
        input: &I,
        options: ChildWorkflowOptions,
    ) -> Seq {
        let (place, seq) = (Location::caller(), self.ledger.next_seq());
        let workflow_type = workflow_type.into();
        let workflow_id = match workflow_id.into_workflow_id() {
            Ok(workflow_id) => workflow_id,
            Err(why) => {
                self.ledger.fault(why.into());
                return seq;
            }
        };
        let Some(input) = self.encode(input) else { return seq };
        let pending = PendingCommand::Child {
            workflow_type: workflow_type.clone(),
            workflow_id: workflow_id.clone(),
            run_id: None,
            cancellation: options.cancellation,
            cancel_requested: false,
        };
        self.ask(place, seq, pending, Command::StartChildWorkflow { seq, workflow_id, workflow_type, input, options });
        seq
    }
    /// Cancels a child according to its cancellation type. One that has ended already is left alone.
    #[track_caller]
    pub fn cancel_child(&mut self, seq: Seq, reason: &str) {
        self.cancel_pending(Location::caller(), seq, reason);
    }
    /// Sends a signal to another run; [`WorkflowEvent::SignalDelivered`] tells what became of it.
    #[track_caller]
    pub fn signal_external<I: Serialize + ?Sized>(
        &mut self,
        target: ExternalTarget,
        signal: impl SignalRef<I>,
        input: &I,
    ) -> Seq {
        let (place, seq, name) = (Location::caller(), self.ledger.next_seq(), signal.into_signal_name());
        let Some(input) = self.encode(input) else { return seq };
        let pending = PendingCommand::SignalExternal { workflow_id: target.workflow_id.clone(), name: name.clone() };
        self.ask(place, seq, pending, Command::SignalExternalWorkflow { seq, target, name, input });
        seq
    }
    /// Asks a run elsewhere to cancel; `CancelDelivered` tells whether the request arrived.
    #[track_caller]
    pub fn cancel_external(&mut self, target: ExternalTarget, reason: &str) -> Seq {
        let (place, seq) = (Location::caller(), self.ledger.next_seq());
        let pending = PendingCommand::CancelExternal { workflow_id: target.workflow_id.clone() };
        let command = Command::RequestCancelExternalWorkflow { seq, target, reason: reason.to_owned() };
        self.ask(place, seq, pending, command);
        seq
    }
}

/// Notes for replay and for lists.
impl Cx<'_> {
    /// Runs `effect` once; every replay gets the value it gave then (E20).
    #[track_caller]
    pub fn side_effect<T: Serialize + DeserializeOwned>(&mut self, effect: impl FnOnce() -> T) -> T {
        let place = Location::caller();
        match self.ledger.side_effect(place) {
            SideEffect::Recorded(value) => match value.decode() {
                Ok(value) => value,
                Err(why) => panic!("the recorded side effect does not fit the code: {why}"),
            },
            // Unwinding out of a `Drop` that runs because of a panic would end the process.
            SideEffect::Diverged if std::thread::panicking() => recording(effect),
            SideEffect::Diverged => diverge(),
            SideEffect::Run(seq) => {
                let value = recording(effect);
                match Payload::encode(&value) {
                    Ok(payload) => self.ledger.side_effect_ran(place, seq, payload),
                    Err(why) => panic!("the value of a side effect cannot be recorded: {why}"),
                }
                value
            }
        }
    }
    /// Records what the code has to say of itself, which follows from what it has heard and from nothing else. A replay gives
    /// the recorded value, to be compared; changed code, or code with another input, says what it has to say now.
    #[track_caller]
    pub fn note<T: Serialize + DeserializeOwned>(&mut self, value: T) -> T {
        let place = Location::caller();
        let noted = match Payload::encode(&value) {
            Ok(payload) => self.ledger.note(place, payload),
            Err(why) => panic!("a note cannot be recorded: {why}"),
        };
        match noted {
            SideEffect::Recorded(recorded) => match recorded.decode() {
                Ok(recorded) => recorded,
                Err(why) => panic!("the recorded note does not fit the code: {why}"),
            },
            SideEffect::Run(_) => value,
            SideEffect::Diverged if std::thread::panicking() => value,
            SideEffect::Diverged => diverge(),
        }
    }
    /// Whether to take the new branch of a change (E21).
    #[track_caller]
    pub fn patched(&mut self, id: impl Into<PatchId>) -> bool {
        self.ledger.patched(Location::caller(), id.into(), false)
    }
    /// Says that the old branch of a change is gone (E21).
    #[track_caller]
    pub fn deprecate_patch(&mut self, id: impl Into<PatchId>) {
        self.ledger.patched(Location::caller(), id.into(), true);
    }
    /// Sets search attributes; [`SearchValue::Unset`] removes one.
    #[track_caller]
    pub fn upsert_search_attributes(&mut self, attributes: SearchAttributes) {
        self.ledger.ask(Location::caller(), Command::UpsertSearchAttributes { attributes });
    }
    /// Sets notes for people, leaving others as they are.
    #[track_caller]
    pub fn upsert_memo(&mut self, memo: Memo) {
        self.ledger.ask(Location::caller(), Command::ModifyMemo { memo });
    }
    /// Leaves a signal for the next run of a continue-as-new. If the run closes instead, it is reported as unhandled.
    pub fn defer_signal(&mut self, signal: WorkflowExecutionSignaled) {
        self.driver.deferred_signals.push(signal);
    }
    /// Answers an update that was heard of. Of one that is not open it is a failure of the run.
    #[track_caller]
    pub fn complete_update<T: Serialize + ?Sized>(&mut self, update_id: UpdateId, result: Result<&T, Failure>) {
        let place = Location::caller();
        if !self.driver.open_updates.remove(&update_id) {
            self.ledger.fault(Failure::application("UnknownUpdate", format!("no open update {update_id} to answer")));
            return;
        }
        let result = result.and_then(|value| Payload::encode(value).map_err(Failure::from));
        self.ledger.ask(place, Command::CompleteUpdate { update_id, result });
    }
}

/// The end of the run. What is asked for after it is ignored.
impl Cx<'_> {
    /// Ends the run with a result.
    #[track_caller]
    pub fn complete<T: Serialize + ?Sized>(&mut self, output: &T) {
        let place = Location::caller();
        let Some(result) = self.encode(output) else { return };
        self.close(place, |unhandled_signals| Command::CompleteWorkflow { result, unhandled_signals });
    }
    /// Ends the run in a failure; its retry policy decides whether another run follows.
    #[track_caller]
    pub fn fail(&mut self, failure: Failure) {
        self.close(Location::caller(), |unhandled_signals| Command::FailWorkflow { failure, unhandled_signals });
    }
    /// Ends the run as canceled. Only sensible after [`WorkflowEvent::CancelRequested`].
    #[track_caller]
    pub fn cancel(&mut self, details: Option<Payload>) {
        self.close(Location::caller(), |unhandled_signals| Command::CancelWorkflow { details, unhandled_signals });
    }
    /// Goes on in a new run of the same workflow id. Deferred signals go along.
    #[track_caller]
    pub fn continue_as_new<I: Serialize + ?Sized>(&mut self, input: &I, options: ContinueAsNewOptions) {
        self.next_run(Location::caller(), None, input, options);
    }
    /// As [`Self::continue_as_new`], with other workflow code.
    #[track_caller]
    pub fn continue_as_new_type<I: Serialize + ?Sized>(
        &mut self,
        workflow_type: impl Into<WorkflowType>,
        input: &I,
        options: ContinueAsNewOptions,
    ) {
        self.next_run(Location::caller(), Some(workflow_type.into()), input, options);
    }
    fn next_run<I: Serialize + ?Sized>(
        &mut self,
        place: CodePlace,
        workflow_type: Option<WorkflowType>,
        input: &I,
        options: ContinueAsNewOptions,
    ) {
        let Some(input) = self.encode(input) else { return };
        let unconsumed_signals = self.unheard();
        self.close(place, |_| Command::ContinueAsNew { workflow_type, input, options, unconsumed_signals });
    }
}

impl Cx<'_> {
    /// Ends the run in a failure that the transition returned or that was found in what it asked.
    pub(super) fn close_in(&mut self, failure: Failure) {
        let canceled = self.ledger.cancel_reason().is_some();
        self.close(None, |unhandled| close_failed(failure, canceled, unhandled));
    }
    /// Answers the updates that are still open, then asks for the end.
    fn close(&mut self, place: impl Into<Option<CodePlace>>, command: impl FnOnce(Vec<SignalName>) -> Command) {
        if self.ledger.is_closed() {
            return;
        }
        let place = place.into();
        for update_id in std::mem::take(&mut self.driver.open_updates) {
            self.ledger.ask(place, Command::CompleteUpdate { update_id, result: Err(workflow_closed()) });
        }
        let unhandled = self.unheard().into_iter().map(|signal| signal.name).collect();
        self.ledger.ask(place, command(unhandled));
        self.driver.pending.clear();
        self.driver.places.clear();
        self.driver.resolved.clear();
        self.driver.carried_signals.clear();
    }
    /// Signals nobody has dealt with, in order.
    fn unheard(&self) -> Vec<WorkflowExecutionSignaled> {
        self.driver.deferred_signals.iter().chain(&self.driver.carried_signals).cloned().collect()
    }
    fn encode<T: Serialize + ?Sized>(&mut self, value: &T) -> Option<Payload> {
        match Payload::encode(value) {
            Ok(payload) => Some(payload),
            Err(why) => {
                self.ledger.fault(why.into());
                None
            }
        }
    }
    fn ask(&mut self, place: CodePlace, seq: Seq, pending: PendingCommand, command: Command) {
        if self.ledger.is_closed() {
            return;
        }
        self.driver.pending.insert(seq, pending);
        self.driver.places.insert(seq, place);
        self.ledger.ask(place, command);
    }
    fn cancel_pending(&mut self, place: CodePlace, seq: Seq, reason: &str) {
        let Some(pending) = self.driver.pending.get_mut(&seq) else { return };
        let reason = if reason.is_empty() { "by the workflow" } else { reason };
        let cancel = pending.cancel_in(self.ledger, seq, reason);
        if let Some(command) = cancel.command {
            self.ledger.ask(place, command);
        }
        if let Some(failure) = cancel.over {
            match self.driver.forget(seq) {
                Some(PendingCommand::Activity { .. }) => {
                    self.driver.resolved.push_back(WorkflowEvent::ActivityResolved { seq, result: Err(failure) });
                }
                Some(PendingCommand::Child { .. }) => {
                    self.driver.resolved.push_back(WorkflowEvent::ChildResolved { seq, result: Err(failure) });
                }
                Some(
                    PendingCommand::Timer { .. }
                    | PendingCommand::SignalExternal { .. }
                    | PendingCommand::CancelExternal { .. },
                )
                | None => {}
            }
        }
    }
}

impl DriverState {
    /// The end of something pending, if it is still waited for.
    pub(super) fn forget(&mut self, seq: Seq) -> Option<PendingCommand> {
        self.places.remove(&seq);
        self.pending.remove(&seq)
    }
}
