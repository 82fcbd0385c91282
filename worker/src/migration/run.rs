//! A run that waits to be moved: the workflow `bosun.migration`.
//!
//! Invariant: it does nothing but keep what it hears, so that the run may begin elsewhere at any moment. It ends when whoever
//! moves it has passed on all that it has heard, and says how much that is: a message that came meanwhile is not lost. A run
//! that stays goes on as it was, and hears what was kept.

use bosun_engine::workflow::{Cx, StateMachine, WorkflowEvent};
use bosun_engine::{ContinueAsNewOptions, ExternalTarget, Failure, Payload, QueryName, SignalName, UpdateName};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::agent::next_run::{LEAVE, Leave, Leaving, MIGRATION};

/// The query for what is to be moved: a [`MigrationStanding`].
pub(super) const STANDING: &str = "migration";
/// The update that must come before it is started there: from then on it does not stay by itself.
pub(super) const BEGIN: &str = "begin";
/// The update that ends it, with a [`MovedThere`].
pub(super) const MOVED: &str = "moved";
/// The update after which the run goes on here, with a [`StayHere`].
pub(super) const STAY: &str = "stay";
/// The failure type of an update that does not fit what the run has heard.
const NOT_ALL: &str = "MessagesMissing";

/// A signal that reached the run while it waited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptSignal {
    pub(super) name: SignalName,
    pub(super) input: Payload,
}

/// What is to be moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct MigrationStanding {
    pub(super) leaving: Leaving,
    pub(super) heard: Vec<KeptSignal>,
    /// Why it is to be cancelled, if it is.
    pub(super) cancel: Option<String>,
    /// It may have been started there.
    pub(super) begun: bool,
}

/// Whoever wants the run to stay has looked whether it goes on there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StayHere {
    pub(super) is_not_there: bool,
}

/// Where the run goes on, and how much of what was said to it has been passed on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MovedThere {
    pub(super) run_id: String,
    pub(super) heard: usize,
    pub(super) cancel: bool,
}

/// The workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MigrationRun {
    standing: MigrationStanding,
}

impl StateMachine for MigrationRun {
    const TYPE: &'static str = MIGRATION;
    type Input = Leaving;
    type Output = Value;

    fn start(leaving: Leaving, _: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(MigrationRun { standing: MigrationStanding { leaving, heard: Vec::new(), cancel: None, begun: false } })
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::Signal(signal) if signal.name.as_str() == LEAVE => {
                if let Some(Leave { to }) = Leave::of(&signal.input.to_json()) {
                    self.standing.leaving.to = to;
                }
            }
            WorkflowEvent::Signal(signal) => {
                let (name, input) = (signal.name.clone(), signal.input.clone());
                self.standing.heard.push(KeptSignal { name, input });
                // It goes along, should the run stay.
                cx.defer_signal(signal);
            }
            WorkflowEvent::CancelRequested { reason } => self.standing.cancel = Some(reason),
            WorkflowEvent::Update { update_id, name, .. } if name.as_str() == BEGIN => {
                self.standing.begun = true;
                cx.complete_update(update_id, Ok(&json!({ "begun": true })));
            }
            WorkflowEvent::Update { update_id, name, input } if name.as_str() == MOVED => {
                let there: MovedThere = input.decode()?;
                let to = &self.standing.leaving.to;
                let moved = json!({ "migrated": { "to": to, "run_id": there.run_id } });
                cx.complete_update(update_id, Ok(&moved));
                cx.complete(&moved);
            }
            WorkflowEvent::Update { update_id, .. } => {
                cx.complete_update(update_id, Ok(&json!({ "stays": true })));
                self.stay(cx);
            }
            // It asks for nothing.
            _ => {}
        }
        Ok(())
    }

    fn queries() -> &'static [&'static str] {
        &[STANDING]
    }

    fn query(&self, name: &QueryName, _: &Payload) -> Result<Payload, Failure> {
        match name.as_str() {
            STANDING => Ok(Payload::encode(&self.standing)?),
            _ => Err(self.moves("it answers when it has been moved, where it then is")),
        }
    }

    fn validate_update(&self, name: &UpdateName, input: &Payload) -> Result<(), Failure> {
        match name.as_str() {
            MOVED => self.has_passed_on(&input.decode()?),
            BEGIN => Ok(()),
            STAY if self.standing.begun && !input.decode::<StayHere>()?.is_not_there => {
                Err(self.moves("it may have been started there already"))
            }
            STAY => Ok(()),
            _ => Err(self.moves("nothing is changed here any more")),
        }
    }
}

impl MigrationRun {
    fn moves(&self, what: &str) -> Failure {
        let to = &self.standing.leaving.to;
        Failure::application("Migrating", format!("the run moves to {to}: {what}; `bosun migrate` ends the move"))
    }

    fn has_passed_on(&self, there: &MovedThere) -> Result<(), Failure> {
        let (heard, cancel) = (self.standing.heard.len(), self.standing.cancel.is_some());
        if (there.heard, there.cancel) == (heard, cancel) {
            return Ok(());
        }
        let why = format!(
            "the run has heard {heard} signals (to be cancelled: {cancel}), and {} were passed on (cancelled: {})",
            there.heard, there.cancel
        );
        Err(Failure::application(NOT_ALL, why))
    }

    /// The run goes on here, as if nothing had happened.
    fn stay(&mut self, cx: &mut Cx<'_>) {
        if let (Some(reason), Some(own)) = (&self.standing.cancel, cx.workflow_id().cloned()) {
            cx.cancel_external(ExternalTarget { workflow_id: own, run_id: None }, reason);
        }
        let Leaving { workflow_type, input, .. } = &self.standing.leaving;
        cx.continue_as_new_type(workflow_type.as_str(), input, ContinueAsNewOptions::default());
    }
}
