//! What a cancelled run undoes of what its tasks did (SHN-62).
//!
//! Invariant: a compensation is asked for once, one after the other, and the report says of each task whether it was undone.
//! What goes wrong stops nothing and is an error of the run.

use serde_json::json;

use super::*;

impl Graph {
    /// The one completed last is undone first.
    pub(super) fn compensate_next(&mut self, out: &mut Outbox) {
        let Some(id) = self.compensating.pop() else {
            if let Some(outcome) = self.closing.take() {
                self.close(outcome, out);
            }
            return;
        };
        let Some(task) = self.task(&id) else { return };
        let context = json!({ "id": id, "compensation": task.compensation, "result": task.result });
        let mut call = Call::new(GraphKey::Compensate { task: id.clone() }, Purpose::Compensate, context).task(id, 1);
        call.agent.clone_from(&task.agent);
        self.call(call, out);
    }

    pub(super) fn compensated(&mut self, id: &TaskId, answer: Answer, out: &mut Outbox) {
        let error = answer.err().map(|why| why.to_string());
        self.undone.insert(id.clone(), error.is_none());
        out.note(NoteKind::CompensationRun, json!({ "task": id, "error": error }));
        self.errors.extend(error.map(|why| format!("compensation of task {id} failed: {why}")));
        self.compensate_next(out);
    }
}
