//! The workflows the crash tests run: programs of the kitchen-sink interpreter that ships with the worker.
//!
//! Invariant: this is the only file of the harness that knows the interpreter's language; the tests name what a workflow
//! does. Every start carries a request id, so that repeating it is harmless.

use bosun_engine::{
    EventKind, IdConflictPolicy, Payload, RequestId, RunId, StartWorkflow, Timestamp, WorkflowId, WorkflowType,
};
use serde_json::{Value, json};

use super::ledger::Operation;

/// The type of the interpreter workflow.
pub const KITCHEN_SINK: &str = "kitchen-sink";
/// The signal the workflows wait for.
pub const SIGNAL: &str = "go";

/// A start of a kitchen-sink program.
pub fn program(workflow_id: &str, steps: Value) -> StartWorkflow {
    StartWorkflow {
        input: Payload::raw_json(json!({ "steps": steps }).to_string()),
        request_id: Some(RequestId::of(Operation::Start.request_id())),
        id_conflict_policy: IdConflictPolicy::UseExisting,
        ..StartWorkflow::new(WorkflowType::of(KITCHEN_SINK), WorkflowId::of(workflow_id))
    }
}

/// Activities, a short timer and some signals, then it ends: a bit of everything under load.
pub fn mixed(workflow_id: &str, signals: u32) -> StartWorkflow {
    let mut steps = vec![json!({ "activity": { "type": "echo", "input": workflow_id } }), json!({ "timer": "20ms" })];
    steps.extend((0..signals).map(|_| json!({ "wait_signal": { "name": SIGNAL } })));
    steps.push(json!({ "activity": { "type": "echo", "input": "done" } }));
    program(workflow_id, Value::Array(steps))
}

/// Timers that all run at once.
pub fn timers(workflow_id: &str, delays_ms: &[u64]) -> StartWorkflow {
    let branches: Vec<Value> = delays_ms.iter().map(|ms| json!([{ "timer": format!("{ms}ms") }])).collect();
    program(workflow_id, json!([{ "parallel": branches }]))
}

/// The start event of such a workflow, for doubles and tests of the harness itself.
pub fn started_event(workflow_id: &str) -> EventKind {
    of_start(&program(workflow_id, json!([])))
}

/// The start event a request leads to.
pub fn of_start(request: &StartWorkflow) -> EventKind {
    let started = request.clone().first_event(RunId([0; 16]), Timestamp(0));
    EventKind::WorkflowExecutionStarted(Box::new(started))
}
