//! The driver of a state machine: one job in, transitions, commands out.
//!
//! Invariant: a snapshot holds everything the next activation depends on, so that a restored driver and one that
//! replayed the whole history are equal (E37). After a panic the state is not trusted and not given out.

use std::marker::PhantomData;

use serde::{Deserialize, Serialize};

use super::cx::{Cx, DriverState};
use super::ledger::{CommandLedger, LedgerCounters};
use super::logs::{LoggedTurn, somebody_listens};
use super::panic::{Unwound, guard};
use super::pending::PendingCommand;
use super::state_machine::{RunNames, StateMachine, WorkflowEvent, unknown_update};
use crate::vocabulary::*;

pub(crate) struct MachineDriver<S> {
    state: Option<S>,
    ledger: CommandLedger,
    driver: DriverState,
    /// The code panicked or diverged; it runs no more.
    dead: bool,
    on_defect: DefectPolicy,
    machine: PhantomData<S>,
}

/// What a snapshot holds; named fields, so that later versions can add some.
#[derive(Serialize)]
struct SnapshotRef<'a, S> {
    version: u32,
    counters: &'a LedgerCounters,
    #[serde(rename = "desk")]
    driver: &'a DriverState,
    state: &'a S,
}

#[derive(Deserialize)]
#[serde(bound = "S: serde::de::DeserializeOwned")]
struct DriverSnapshot<S> {
    version: u32,
    counters: LedgerCounters,
    #[serde(rename = "desk")]
    driver: DriverState,
    state: S,
}

const SNAPSHOT_VERSION: u32 = 1;

/// A snapshot that this build cannot go on from. The history can: replay it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The worker has no code of this type.
    #[error("no workflow type {workflow_type} in this worker; it has: {}", known.join(", "))]
    UnknownWorkflowType {
        /// The type.
        workflow_type: WorkflowType,
        /// The types that it has.
        known: Vec<String>,
    },
    /// The code is an async function now.
    #[error("the workflow {workflow_type} is an async fn, which has no snapshots")]
    NotSupported {
        /// The type.
        workflow_type: WorkflowType,
    },
    /// The state has other fields than this build reads.
    #[error("the snapshot of a {workflow_type} does not fit this build: {why}")]
    Unreadable {
        /// The type.
        workflow_type: WorkflowType,
        /// What the decoder said.
        why: String,
    },
}

impl<S: StateMachine> MachineDriver<S> {
    pub(crate) fn new(run_id: RunId, started: &WorkflowExecutionStarted, on_defect: DefectPolicy) -> Self {
        let before = started.before_forks().into_iter().map(|(run, started)| (run, started.workflow_id));
        let driver = DriverState {
            workflow_id: Some(started.workflow_id.clone()),
            before_forks: before.collect(),
            ..DriverState::default()
        };
        let ledger = CommandLedger::new(run_id, started.numbering);
        MachineDriver { state: None, ledger, driver, dead: false, on_defect, machine: PhantomData }
    }

    pub(crate) fn restore(run_id: RunId, bytes: &[u8], on_defect: DefectPolicy) -> Result<Self, RestoreError> {
        let unreadable = |why: String| RestoreError::Unreadable { workflow_type: WorkflowType::of(S::TYPE), why };
        let snapshot: DriverSnapshot<S> = rmp_serde::from_slice(bytes).map_err(|why| unreadable(why.to_string()))?;
        if snapshot.version != SNAPSHOT_VERSION {
            return Err(unreadable(format!("it has version {}, expected {SNAPSHOT_VERSION}", snapshot.version)));
        }
        Ok(MachineDriver {
            state: Some(snapshot.state),
            ledger: CommandLedger::restored(run_id, snapshot.counters),
            driver: snapshot.driver,
            dead: false,
            on_defect,
            machine: PhantomData,
        })
    }

    fn run(&mut self, job: Job) {
        match job {
            Job::InitializeWorkflow(started) => self.initialize(*started),
            job => {
                if let Some(event) = self.event_of(job) {
                    self.transition(event);
                }
            }
        }
        self.settle();
    }

    fn initialize(&mut self, started: WorkflowExecutionStarted) {
        self.driver.carried_signals.extend(started.carried_signals);
        let mut cx = Cx { ledger: &mut self.ledger, driver: &mut self.driver };
        match started.input.decode::<S::Input>() {
            Ok(input) => match S::start(input, &mut cx) {
                Ok(state) => self.state = Some(state),
                Err(failure) => cx.close_in(failure),
            },
            Err(why) => {
                cx.ledger.note_defect(unreadable_input(S::TYPE, &why));
                cx.close_in(invalid_input(S::TYPE, &why));
            }
        }
    }

    fn transition(&mut self, event: WorkflowEvent) {
        let Some(state) = &mut self.state else { return };
        let mut cx = Cx { ledger: &mut self.ledger, driver: &mut self.driver };
        if let Err(failure) = state.on_event(event, &mut cx) {
            cx.close_in(failure);
        }
    }

    /// Lets the code hear what its own requests brought about, then the signals of the run before, until all is said.
    fn settle(&mut self) {
        while self.state.is_some() {
            if let Some(failure) = self.ledger.take_fault() {
                Cx { ledger: &mut self.ledger, driver: &mut self.driver }.close_in(failure);
            }
            if self.ledger.is_closed() {
                return;
            }
            let next = self.driver.resolved.pop_front();
            let Some(event) = next.or_else(|| self.driver.carried_signals.pop_front().map(WorkflowEvent::Signal))
            else {
                return;
            };
            self.transition(event);
        }
        // `start` returned no state: what it asked for in vain does not matter any more.
        self.ledger.take_fault();
    }

    /// The job as the code hears it; nothing if the code considers the matter closed.
    fn event_of(&mut self, job: Job) -> Option<WorkflowEvent> {
        match job {
            Job::InitializeWorkflow(_) => None,
            Job::SignalWorkflow(signal) => Some(WorkflowEvent::Signal(signal)),
            Job::CancelWorkflow { reason } => Some(WorkflowEvent::CancelRequested { reason }),
            Job::DoUpdate { update_id, name, input } => {
                self.driver.open_updates.insert(update_id.clone());
                Some(WorkflowEvent::Update { update_id, name, input })
            }
            Job::ResolveActivity { seq, result } => {
                self.driver.forget(seq).map(|_| WorkflowEvent::ActivityResolved { seq, result })
            }
            Job::FireTimer { seq } => self.driver.forget(seq).map(|_| WorkflowEvent::TimerFired { seq }),
            Job::ResolveChildWorkflowStart { seq, result: Ok(started) } => match self.driver.pending.get_mut(&seq) {
                Some(PendingCommand::Child { run_id, .. }) => {
                    *run_id = Some(started);
                    Some(WorkflowEvent::ChildStarted { seq, run_id: started })
                }
                _ => None,
            },
            Job::ResolveChildWorkflowStart { seq, result: Err(failure) } => {
                self.driver.forget(seq).map(|_| WorkflowEvent::ChildResolved { seq, result: Err(failure) })
            }
            Job::ResolveChildWorkflow { seq, result } => {
                self.driver.forget(seq).map(|_| WorkflowEvent::ChildResolved { seq, result })
            }
            Job::ResolveSignalExternal { seq, result } => {
                self.driver.forget(seq).map(|_| WorkflowEvent::SignalDelivered { seq, result })
            }
            Job::ResolveCancelExternal { seq, result } => self.cancel_delivered(seq, result),
        }
    }

    fn cancel_delivered(&mut self, seq: Seq, result: Result<(), Failure>) -> Option<WorkflowEvent> {
        if matches!(self.driver.pending.get(&seq), Some(PendingCommand::Child { .. })) {
            let failure = self.driver.pending.get(&seq).and_then(PendingCommand::delivered)?;
            self.driver.forget(seq);
            return Some(WorkflowEvent::ChildResolved { seq, result: Err(failure) });
        }
        self.driver.forget(seq).map(|_| WorkflowEvent::CancelDelivered { seq, result })
    }

    fn names(&self) -> RunNames {
        let run_id = self.ledger.run_id();
        RunNames { workflow_id: self.driver.workflow_id_of(run_id).cloned(), run_id }
    }

    fn logged<'a>(&self, names: Option<&'a RunNames>, job: &'static str) -> LoggedTurn<'a> {
        LoggedTurn {
            workflow_type: S::TYPE,
            workflow_id: names.and_then(|names| names.workflow_id.as_ref()),
            run_id: self.ledger.run_id(),
            history: self.ledger.history(),
            job,
            replaying: self.ledger.is_replaying(),
        }
    }

    fn digest(&self) -> Option<Vec<u8>> {
        rmp_serde::to_vec_named(self.state.as_ref()?).ok()
    }
}

impl<S: StateMachine> Driver for MachineDriver<S> {
    fn activate(&mut self, activation: Activation) -> Vec<Command> {
        let job = self.ledger.begin(activation);
        if self.dead || self.ledger.is_closed() {
            return self.ledger.finish();
        }
        let names = somebody_listens().then(|| self.names());
        let turn = self.logged(names.as_ref(), job.name());
        if let Err(unwound) = turn.run(|| guard(|| self.run(job))) {
            self.dead = true;
            self.state = None;
            if let Unwound::Panicked(message) = unwound {
                self.ledger.note_defect(WorkflowDefect::Panic { message: message.clone() });
                let failure = Failure::panic(message);
                Cx { ledger: &mut self.ledger, driver: &mut self.driver }.close_in(failure);
            }
        }
        self.ledger.finish()
    }

    fn overrun(&self) -> Option<String> {
        self.ledger.overran().map(str::to_owned)
    }

    fn defect(&self) -> Option<WorkflowDefect> {
        self.ledger.defect().filter(|_| self.on_defect == DefectPolicy::Hold).cloned()
    }

    fn takes_payloads_of(&mut self, bytes_max: usize) {
        self.ledger.takes_payloads_of(bytes_max);
    }
    fn forked(&mut self, run_id: RunId) {
        self.ledger.forked(run_id);
    }

    fn validate_update(&mut self, name: &UpdateName, input: &Payload) -> Result<(), Failure> {
        let before = self.digest();
        let Some(state) = &self.state else { return Err(unknown_update(S::TYPE, name, &[])) };
        let names = self.names();
        match self
            .logged(Some(&names), "ValidateUpdate")
            .run(|| guard(|| state.validate_update_as(&names, name, input)))
        {
            Ok(Err(failure)) => Err(failure),
            Ok(Ok(())) if self.digest() == before => Ok(()),
            Ok(Ok(())) => {
                let message = format!("the validator of update {name} changed the state; validators must only read");
                Err(Failure::application(FAILURE_VALIDATOR_MUTATED, message).non_retryable())
            }
            Err(Unwound::Panicked(message)) => Err(Failure::panic(message)),
            Err(Unwound::Diverged) => Err(Failure::panic("the validator left its call")),
        }
    }

    fn query(&mut self, name: &QueryName, input: &Payload) -> Result<Payload, QueryError> {
        let known = || S::queries().iter().map(|name| (*name).to_owned()).collect();
        if !S::queries().contains(&name.as_str()) {
            return Err(QueryError::Unknown { name: name.clone(), known: known() });
        }
        let failed = |failure| QueryError::Failed { name: name.clone(), failure };
        let Some(state) = &self.state else {
            return Err(failed(Failure::application("NoState", "the workflow code has no state: it did not start")));
        };
        let (before, names) = (self.digest(), self.names());
        let answer = self.logged(Some(&names), "Query").run(|| guard(|| state.query_as(&names, name, input)));
        if self.digest() != before {
            return Err(QueryError::Mutated { name: name.clone(), what: "the state".to_owned() });
        }
        match answer {
            Ok(answer) => answer.map_err(failed),
            Err(Unwound::Panicked(message)) => Err(failed(Failure::panic(message))),
            Err(Unwound::Diverged) => Err(failed(Failure::panic("the handler left its call"))),
        }
    }

    fn snapshot(&self) -> Option<Vec<u8>> {
        let state = self.state.as_ref()?;
        let counters = self.ledger.counters();
        let snapshot = SnapshotRef { version: SNAPSHOT_VERSION, counters, driver: &self.driver, state };
        rmp_serde::to_vec_named(&snapshot).ok()
    }

    fn state_json(&self) -> Option<serde_json::Value> {
        serde_json::to_value(self.state.as_ref()?).ok()
    }

    fn awaiting(&self) -> Vec<Awaited> {
        let places = &self.driver.places;
        let awaited = |(seq, pending): (&Seq, &PendingCommand)| Awaited {
            what: pending.describe(*seq),
            location: places.get(seq).map(|place| place.to_string()),
            timer: pending.is_timer().then_some(*seq),
        };
        let updates = self.driver.open_updates.iter();
        let update =
            |id: &UpdateId| Awaited { what: format!("the answer to update {id}"), location: None, timer: None };
        self.driver.pending.iter().map(awaited).chain(updates.map(update)).collect()
    }

    fn untaken_signals(&self) -> Vec<SignalName> {
        let untaken = self.driver.deferred_signals.iter().chain(&self.driver.carried_signals);
        untaken.map(|signal| signal.name.clone()).collect()
    }

    fn command_location(&self, index: usize) -> Option<CodeLocation> {
        self.ledger.location(index)
    }
}

/// The failure of a run whose input is not what its code reads.
pub(crate) fn invalid_input(workflow_type: &str, why: &PayloadError) -> Failure {
    let message = format!("the input of the workflow {workflow_type} cannot be read: {why}");
    Failure::application("InvalidInput", message).non_retryable()
}

/// As [`invalid_input`], as a defect: input that another version of the code has written, or a caller's mistake.
pub(crate) fn unreadable_input(workflow_type: &str, why: &PayloadError) -> WorkflowDefect {
    WorkflowDefect::UnreadableInput { workflow_type: WorkflowType::of(workflow_type), why: why.to_string() }
}
