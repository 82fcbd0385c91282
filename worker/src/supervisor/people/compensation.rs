//! Compensation: what was done is undone in reverse when a run is cancelled, if the spec asks for it.
//!
//! Invariant: one compensation at a time, the last one registered first; each is called once, and one that fails is noted
//! and does not stop the others. Nothing is compensated in a run that is not cancelled.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::{Answer, Call, Outbox, Purpose};

/// One thing to undo.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Undo {
    task: TaskId,
    /// What the task said how it is undone.
    data: Value,
}

/// What a run can undo (`compensation.on_cancel`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compensations {
    on_cancel: bool,
    registered: Vec<Undo>,
    /// The one under way.
    running: Option<Undo>,
    started: bool,
}

impl Compensations {
    pub fn new(on_cancel: bool) -> Self {
        Compensations { on_cancel, registered: Vec::new(), running: None, started: false }
    }

    /// A task has completed and says how it is undone. Too late once the undoing has begun.
    pub fn register(&mut self, task: TaskId, data: Value) {
        if self.on_cancel && !self.started {
            self.registered.push(Undo { task, data });
        }
    }

    /// The run is cancelled. Asking again changes nothing.
    pub fn run(&mut self, out: &mut Outbox) {
        if !self.started {
            self.started = true;
            self.next(out);
        }
    }

    fn next(&mut self, out: &mut Outbox) {
        self.running = self.registered.pop();
        if let Some(undo) = &self.running {
            let context = json!({ "task": undo.task, "compensation": undo.data });
            out.call(Call::new(self.key(), Purpose::Compensate, context).task(undo.task.clone(), 1));
        }
    }

    /// The keys count down: what is still registered tells them apart.
    fn key(&self) -> String {
        format!("compensate/{}", self.registered.len() + 1)
    }

    pub fn answered(&mut self, key: &str, answer: &Answer, out: &mut Outbox) {
        if key != self.key() {
            return;
        }
        let Some(undo) = self.running.take() else { return };
        let error = answer.as_ref().err().map(|why| why.message.clone());
        out.note(NoteKind::CompensationRun, json!({ "task": undo.task, "ok": answer.is_ok(), "error": error }));
        self.next(out);
    }

    /// Whether nothing is being undone (any more).
    pub fn is_idle(&self) -> bool {
        self.running.is_none()
    }
}
