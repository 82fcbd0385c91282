//! A workflow as a state machine: a serialisable state and a pure transition. The primary form.
//!
//! Invariant: the state changes in `start` and `on_event` only, and depends on nothing but the events. Because it is
//! data it can be snapshotted, shown at every event, and forked. This file runs nothing; `MachineDriver` does.
//!
//! ```
//! use std::time::Duration;
//! use bosun_engine::workflow::{Cx, StateMachine, WorkflowEvent};
//! use bosun_engine::{Activity, Failure};
//!
//! const CHARGE_CARD: Activity<u64, String> = Activity::named("charge_card").start_to_close(Duration::from_secs(30));
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Charge { cents: u64 }
//!
//! impl StateMachine for Charge {
//!     const TYPE: &'static str = "charge";
//!     type Input = u64;
//!     type Output = String;
//!
//!     fn start(cents: u64, cx: &mut Cx<'_>) -> Result<Self, Failure> {
//!         cx.call(CHARGE_CARD, &cents);
//!         Ok(Charge { cents })
//!     }
//!     fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
//!         match event {
//!             WorkflowEvent::ActivityResolved { result, .. } => cx.complete(&CHARGE_CARD.result(result)?),
//!             WorkflowEvent::CancelRequested { .. } => cx.cancel(None),
//!             _ => {}
//!         }
//!         Ok(())
//!     }
//! }
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cx::Cx;
use crate::reference::Workflow;
use crate::vocabulary::*;

/// Workflow code as a state and its transitions.
///
/// `start` and `on_event` may ask for anything through [`Cx`]; `query` and `validate_update` must only read. An `Err`
/// from `start` or `on_event` fails the run (or ends it as canceled, if it was asked to cancel and the failure is a
/// cancellation). The run goes on until the code calls `complete`, `fail`, `cancel` or `continue_as_new`.
pub trait StateMachine: Serialize + DeserializeOwned + Sized + 'static {
    /// The workflow type under which runs are started.
    const TYPE: &'static str;
    /// The reference by which it is started: `client.start_workflow(Charge::WORKFLOW, "charge-7", &500)`.
    const WORKFLOW: Workflow<Self::Input, Self::Output> = Workflow::named(Self::TYPE);
    /// The signal that this run gets when a run below it is held because it crashes workers: `{"workflow_id", "run_id",
    /// "why"}`. For types that start runs repeatedly, such as schedules.
    const TOLD_OF_QUARANTINE: Option<&'static str> = None;
    /// What a run is started with.
    type Input: DeserializeOwned;
    /// What `complete` is called with. Typed clients decode the result as this.
    type Output: Serialize;

    /// The state of a new run. An input that cannot be read as [`Self::Input`] never comes here: it refuses the
    /// start.
    fn start(input: Self::Input, cx: &mut Cx<'_>) -> Result<Self, Failure>;

    /// Goes on from what has happened, asking for what comes next.
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure>;

    /// The names `query` answers to.
    fn queries() -> &'static [&'static str] {
        &[]
    }
    /// Answers one of [`Self::queries`] from the state.
    fn query(&self, name: &QueryName, input: &Payload) -> Result<Payload, Failure> {
        let _ = input;
        Err(Failure::application("UnknownQuery", format!("the query {name} is listed and not answered")))
    }
    /// As [`Self::query`], with the names of the run that is asked: for a state that keeps names. A fork may be asked before
    /// anything has happened in it; its state still has the names of its source then.
    fn query_as(&self, names: &RunNames, name: &QueryName, input: &Payload) -> Result<Payload, Failure> {
        let _ = names;
        self.query(name, input)
    }
    /// Whether an update may enter history. Refuses all unless overridden.
    fn validate_update(&self, name: &UpdateName, input: &Payload) -> Result<(), Failure> {
        let _ = input;
        Err(unknown_update(Self::TYPE, name, &[]))
    }
    /// As [`Self::validate_update`], with the names of the run that is asked.
    fn validate_update_as(&self, names: &RunNames, name: &UpdateName, input: &Payload) -> Result<(), Failure> {
        let _ = names;
        self.validate_update(name, input)
    }
}

/// What a run is called at this point of its history: a fork by its own names once all that it has copied is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunNames {
    /// Absent only after a snapshot of an older build.
    pub workflow_id: Option<WorkflowId>,
    /// The run, whose id ids and chance are derived from.
    pub run_id: RunId,
}

/// The refusal of an update that nobody handles.
pub(crate) fn unknown_update(workflow_type: &str, name: &UpdateName, known: &[String]) -> Failure {
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let message = format!("the workflow {workflow_type} has no update named {name}; it has: {known}");
    Failure::application("UnknownUpdate", message).non_retryable()
}

/// What a state machine hears of.
///
/// Every activity resolves exactly once; one canceled with `TryCancel` or `Abandon` resolves as canceled right after the
/// transition that canceled it, and its later end is not heard of. A canceled timer is silent.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkflowEvent {
    /// An activity has ended; read its result with the reference: `CHARGE.result(result)`.
    ActivityResolved {
        /// The number that the call gave.
        seq: Seq,
        /// What it gave, or why it failed, with the activity named and the cause inside.
        result: Result<Payload, Failure>,
    },
    /// A timer's time is over.
    TimerFired {
        /// The number that its start gave.
        seq: Seq,
    },
    /// A signal, in order of arrival.
    Signal(WorkflowExecutionSignaled),
    /// Somebody asks the run to cancel. What it does about it is the code's affair.
    CancelRequested {
        /// Why.
        reason: String,
    },
    /// An accepted update; answer it with [`Cx::complete_update`], now or later.
    Update {
        /// The id of this request, for the answer.
        update_id: UpdateId,
        /// Which update.
        name: UpdateName,
        /// What it came with; the validator has agreed to it.
        input: Payload,
    },
    /// A child workflow has begun.
    ChildStarted {
        /// The number that the call gave.
        seq: Seq,
        /// The child's run.
        run_id: RunId,
    },
    /// The child has ended, or could not be started.
    ChildResolved {
        /// The number that the call gave.
        seq: Seq,
        /// What it gave, or how it ended, with the child named and the cause inside.
        result: Result<Payload, Failure>,
    },
    /// A signal to another run has arrived, or could not be delivered.
    SignalDelivered {
        /// The number that the call gave.
        seq: Seq,
        /// Why it could not be, if so.
        result: Result<(), Failure>,
    },
    /// A request to cancel has reached another run, or could not.
    CancelDelivered {
        /// The number that the call gave.
        seq: Seq,
        /// Why it could not, if so.
        result: Result<(), Failure>,
    },
}
