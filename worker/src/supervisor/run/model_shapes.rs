//! The shapes in which models answer a run's own questions, as JSON Schemas.
//!
//! Invariant: the caller can read every answer that fits its shape. It also reads other names and short forms from people
//! and scripts; models are not told of those. Only graphs ask for data: chats and loops of agents read texts and tool calls.

use serde_json::{Value, json};

use crate::capability::model::OutputSchema;
use crate::supervisor::outbox::{Call, Purpose};
use crate::supervisor::spec::{Family, SupervisorSpec};

/// The shape of the answer to a call; none where a text is wanted.
pub(super) fn shape_of(spec: &SupervisorSpec, call: &Call) -> Option<OutputSchema> {
    let has = |key: &str| call.context.get(key).is_some();
    let shape = |name: &str, schema: Value| Some(OutputSchema { name: name.to_owned(), schema });
    match (spec.family(), call.purpose) {
        (Family::Agents, Purpose::Review) => shape("validation", validation()),
        (Family::Chat | Family::Agents, _) => None,
        (Family::Graph, Purpose::Plan) => shape("plan", plan()),
        (Family::Graph, Purpose::Decide) if has("board") => shape("decision", decision()),
        (Family::Graph, Purpose::Decide) if has("subtasks") => shape("control", control()),
        (Family::Graph, Purpose::Decide) if has("tasks") => shape("evaluation", evaluation()),
        (Family::Graph, Purpose::Review) if has("results") => shape("review", iteration_review()),
        (Family::Graph, Purpose::Review) => shape("review", task_review()),
        (Family::Graph, Purpose::Synthesize) => {
            call.context.get("schema").filter(|schema| !schema.is_null()).and_then(|own| shape("result", own.clone()))
        }
        (Family::Graph, _) => None,
    }
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn texts() -> Value {
    json!({ "type": "array", "items": { "type": "string" } })
}

fn share() -> Value {
    json!({ "type": "number", "minimum": 0, "maximum": 1 })
}

fn tasks() -> Value {
    let task = object(
        json!({
            "id": { "type": "string", "minLength": 1 }, "goal": { "type": "string", "minLength": 1 }, "deps": texts(),
            "priority": { "enum": ["high", "medium", "low"] }, "agent": text(), "capability": text(), "role": text(),
        }),
        &["id", "goal"],
    );
    json!({ "type": "array", "items": task })
}

fn plan() -> Value {
    object(json!({ "tasks": tasks(), "reasoning": text(), "complexity": share(), "strategy": text() }), &["tasks"])
}

fn decision() -> Value {
    let call = object(json!({ "tool": text(), "args": { "type": "object" } }), &["tool", "args"]);
    object(
        json!({
            "reasoning": text(), "tasks_to_execute": texts(),
            "feedback_to_subagents": { "type": "object", "additionalProperties": { "type": "string" } },
            "all_tasks_completed": { "type": "boolean" }, "tool_calls": { "type": "array", "items": call },
        }),
        &["reasoning", "tasks_to_execute", "all_tasks_completed"],
    )
}

fn control() -> Value {
    let states = json!({ "type": "array", "items": { "enum": ["completed", "not-started", "in-progress"] } });
    object(
        json!({
            "thoughts": text(), "subtasks_progress": states, "next_subtask": text(),
            "conclude_task": { "type": "boolean" }, "conclude_final_answer": text(),
        }),
        &["subtasks_progress", "next_subtask", "conclude_task"],
    )
}

fn evaluation() -> Value {
    let decisions = json!({ "enum": ["continue", "replan", "complete"] });
    object(json!({ "decision": decisions, "reason": text(), "tasks": tasks() }), &["decision", "reason"])
}

fn verdicts() -> Value {
    json!({ "enum": ["accepted", "needs-revision", "escalate"] })
}

fn task_review() -> Value {
    object(json!({ "verdict": verdicts(), "feedback": text(), "score": share() }), &["verdict", "feedback"])
}

fn iteration_review() -> Value {
    let assessment = object(
        json!({ "taskId": text(), "verdict": verdicts(), "feedback": text(), "score": share() }),
        &["taskId", "verdict", "feedback", "score"],
    );
    object(
        json!({
            "assessments": { "type": "array", "items": assessment }, "needsReplanning": { "type": "boolean" },
            "overallAssessment": text(),
        }),
        &["assessments", "needsReplanning", "overallAssessment"],
    )
}

fn validation() -> Value {
    object(json!({ "success": { "type": "boolean" }, "error": text() }), &["success"])
}
