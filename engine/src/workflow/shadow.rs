//! A run that is led twice: by code that its whole history has brought back, and by code from a snapshot (E37).
//!
//! Invariant: history leads. What the code of the history asks for and answers is the run's; the code of the snapshot
//! hears the same, carries out nothing, and is only compared. The first difference is told, once, and ends the
//! comparison. Nothing of payloads is told, so that it may be logged.

use std::cell::RefCell;
use std::fmt;

use super::matcher::request_of;
use crate::vocabulary::*;

/// Where code from a snapshot does otherwise than code that has heard the whole history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotMismatch {
    /// The workflow id of the run that was compared.
    pub workflow_id: WorkflowId,
    /// The run.
    pub run_id: RunId,
    /// Its type, of which no snapshot is trusted any more.
    pub workflow_type: WorkflowType,
    /// What was compared, and how it differs.
    pub what: String,
    /// The field of the state that differs, as a path: `.items.3.price`. Absent where the state is written the same: then
    /// the difference is in something that is not written at all.
    pub field: Option<String>,
    /// The fields that are written of the state.
    pub written: Vec<String>,
}

impl SnapshotMismatch {
    /// Its code in messages, for `explain`.
    pub const CODE: &'static str = "BOSUN0103";
}

impl fmt::Display for SnapshotMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SnapshotMismatch { workflow_id, run_id, workflow_type, what, field, written } = self;
        writeln!(f, "error[{}]: a snapshot of workflow state loses something", Self::CODE)?;
        writeln!(f, "  run   {workflow_id} ({run_id}, type {workflow_type})")?;
        writeln!(f, "  found {what}")?;
        match field {
            Some(field) => writeln!(f, "  field {field} differs between the snapshot and the history")?,
            None => writeln!(
                f,
                "  field none that is written differs; written are: {}. Is one missing, with #[serde(skip)] for example?",
                written.join(", ")
            )?,
        }
        writeln!(f, "note: the history leads: this run is right, and no snapshot of this type is used any more")?;
        write!(
            f,
            "help: let serde write every field of the state on which anything depends, and start the worker with it; runs of \
             this type that went on from a snapshot before may hold wrong results"
        )
    }
}

/// Told of a difference.
pub(crate) type TellMismatch = Box<dyn Fn(SnapshotMismatch)>;

/// See the module.
pub(crate) struct ShadowedDriver {
    leads: Box<dyn Driver>,
    shadow: RefCell<Option<Box<dyn Driver>>>,
    names: (WorkflowId, RunId, WorkflowType),
    tell: TellMismatch,
}

impl ShadowedDriver {
    /// Compares what both answer now, and whatever they do from here on.
    pub(crate) fn new(
        leads: Box<dyn Driver>,
        shadow: Box<dyn Driver>,
        names: (WorkflowId, RunId, WorkflowType),
        tell: TellMismatch,
    ) -> Self {
        let mut this = ShadowedDriver { leads, shadow: RefCell::new(Some(shadow)), names, tell };
        this.compare_state();
        // A name that no workflow has: the answer lists those that it has.
        if let Err(QueryError::Unknown { known, .. }) = this.leads.query(&QueryName::of("?"), &Payload::null()) {
            for name in known {
                let _ = this.query(&QueryName::of(name), &Payload::null());
            }
        }
        this
    }

    fn compare_state(&self) {
        let differs = self.shadow.borrow().as_ref().is_some_and(|shadow| shadow.snapshot() != self.leads.snapshot());
        if differs {
            self.tell("the state that is read from it is not the state that was written".to_owned());
        }
    }

    fn tell(&self, what: String) {
        let Some(shadow) = self.shadow.take() else { return };
        let (of_history, of_snapshot) = (self.leads.state_json(), shadow.state_json());
        let field = match (&of_history, &of_snapshot) {
            (Some(a), Some(b)) => first_difference(a, b, String::new()),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => Some(".".to_owned()),
        };
        let written = match &of_history {
            Some(serde_json::Value::Object(fields)) => fields.keys().cloned().collect(),
            Some(_) | None => Vec::new(),
        };
        let (workflow_id, run_id, workflow_type) = self.names.clone();
        (self.tell)(SnapshotMismatch { workflow_id, run_id, workflow_type, what, field, written });
    }
}

/// The path of the first place in which two values differ.
fn first_difference(a: &serde_json::Value, b: &serde_json::Value, path: String) -> Option<String> {
    use serde_json::Value::{Array, Object};
    let here = |path: String| if path.is_empty() { ".".to_owned() } else { path };
    match (a, b) {
        (Object(a), Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            keys.filter_map(|key| {
                let path = format!("{path}.{key}");
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => first_difference(a, b, path),
                    (Some(_), None) | (None, Some(_)) | (None, None) => Some(path),
                }
            })
            .next()
        }
        (Array(a), Array(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).enumerate();
            pairs.filter_map(|(i, (a, b))| first_difference(a, b, format!("{path}.{i}"))).next()
        }
        (a, b) => (a != b).then(|| here(path)),
    }
}

/// What the shadow finds noted: the values that the leading code has just noted, so that it looks at nothing itself.
fn noted(given: Markers, commands: &[Command]) -> Markers {
    match given {
        Markers::Recorded { .. } | Markers::InOrder { .. } => given,
        Markers::Fresh | Markers::Again { .. } => {
            let value = |command: &Command| match command {
                Command::RecordMarker(Marker::SideEffect { value, .. }) => Some(value.clone()),
                _ => None,
            };
            Markers::InOrder { side_effects: commands.iter().filter_map(value).collect() }
        }
    }
}

impl Driver for ShadowedDriver {
    fn activate(&mut self, activation: Activation) -> Vec<Command> {
        let heard = self.shadow.borrow().is_some().then(|| activation.clone());
        let commands = self.leads.activate(activation);
        if self.leads.overrun().is_some() || self.leads.defect().is_some() {
            // Nothing of the turn counts, and there is nothing to compare.
            self.shadow.take();
            return commands;
        }
        let Some(Activation { at, run_id, history, job, markers }) = heard else { return commands };
        let hears = job.in_words();
        let markers = noted(markers, &commands);
        let heard = Activation { at, run_id, history, job, markers };
        let also = self.shadow.borrow_mut().as_mut().map(|shadow| shadow.activate(heard));
        let Some(also) = also.filter(|also| *also != commands) else { return commands };
        let at = commands.iter().zip(&also).position(|(one, other)| one != other);
        let at = at.unwrap_or_else(|| commands.len().min(also.len()));
        let text = |commands: &[Command]| {
            commands.get(at).map_or_else(|| "nothing more".to_owned(), |command| request_of(command).to_string())
        };
        let (one, other) = (text(&commands), text(&also));
        self.tell(format!(
            "in answer to {hears}, code from the history asks for {one}, code from the snapshot for {other}"
        ));
        commands
    }

    fn overrun(&self) -> Option<String> {
        self.leads.overrun()
    }
    fn defect(&self) -> Option<WorkflowDefect> {
        self.leads.defect()
    }
    fn takes_payloads_of(&mut self, bytes_max: usize) {
        self.leads.takes_payloads_of(bytes_max);
    }
    fn forked(&mut self, run_id: RunId) {
        self.leads.forked(run_id);
        if let Some(shadow) = self.shadow.borrow_mut().as_mut() {
            shadow.forked(run_id);
        }
    }
    fn validate_update(&mut self, name: &UpdateName, input: &Payload) -> Result<(), Failure> {
        let said = self.leads.validate_update(name, input);
        let also = self.shadow.borrow_mut().as_mut().map(|shadow| shadow.validate_update(name, input));
        if also.is_some_and(|also| also.is_ok() != said.is_ok()) {
            self.tell(format!("the validator of the update {name} gives another answer"));
        }
        said
    }
    fn query(&mut self, name: &QueryName, input: &Payload) -> Result<Payload, QueryError> {
        let answer = self.leads.query(name, input);
        let also = self.shadow.borrow_mut().as_mut().map(|shadow| shadow.query(name, input));
        if also.is_some_and(|also| also != answer) {
            self.tell(format!("the query {name} gets another answer"));
        }
        answer
    }
    fn snapshot(&self) -> Option<Vec<u8>> {
        self.compare_state();
        self.leads.snapshot()
    }
    fn state_json(&self) -> Option<serde_json::Value> {
        self.leads.state_json()
    }
    fn awaiting(&self) -> Vec<Awaited> {
        self.leads.awaiting()
    }
    fn untaken_signals(&self) -> Vec<SignalName> {
        self.leads.untaken_signals()
    }
    fn command_location(&self, index: usize) -> Option<CodeLocation> {
        self.leads.command_location(index)
    }
}
