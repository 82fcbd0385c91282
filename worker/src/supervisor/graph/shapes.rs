//! The shapes in which models answer a plan's own questions, as JSON Schemas.
//!
//! Invariant: the plan can read every answer that fits its shape. It also reads other names and short forms from people
//! and scripts; models are not told of those.

use serde_json::{Value, json};

use super::Graph;
use crate::supervisor::core::asker::{AnswerForm, AnswerShape, Asker, CallTime};
use crate::supervisor::model::PlanStrategy;
use crate::supervisor::outbox::{Call, Purpose};

impl Asker for Graph {
    fn reads(&self, purpose: Purpose) -> AnswerForm {
        match purpose {
            Purpose::ExecuteWorker => AnswerForm::Reply,
            Purpose::Synthesize => AnswerForm::Result,
            _ => AnswerForm::Plain,
        }
    }

    fn shape(&self, call: &Call) -> Option<AnswerShape> {
        let has = |key: &str| call.context.get(key).is_some();
        let shape = |name, schema| Some(AnswerShape { name, schema });
        match call.purpose {
            Purpose::Plan if self.rules.upfront => shape("plan", delegations()),
            Purpose::Plan => shape("plan", plan()),
            Purpose::Decide if has("board") => shape("decision", decision()),
            Purpose::Decide if has("subtasks") => shape("control", control()),
            Purpose::Decide if has("tasks") => shape("evaluation", evaluation()),
            Purpose::Review if has("results") => shape("review", iteration_review()),
            Purpose::Review => shape("review", task_review(self.may_escalate())),
            Purpose::AuthorizeTeamAction => shape("authorization", authorization()),
            Purpose::Advise => shape("advice", advice()),
            Purpose::Synthesize => {
                call.context.get("schema").filter(|own| !own.is_null()).and_then(|own| shape("result", own.clone()))
            }
            _ => None,
        }
    }

    fn time(&self, call: &Call) -> CallTime {
        match call.purpose {
            // CUG-41: a sub-task is a delegation.
            Purpose::ExecuteWorker => CallTime::Delegation,
            _ => CallTime::Usual,
        }
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

/// An id: models write numbers where ids are numbers (PDT-02), and both name the same task.
fn id() -> Value {
    json!({ "type": ["string", "integer"], "minLength": 1, "minimum": 0 })
}

fn ids() -> Value {
    json!({ "type": "array", "items": id() })
}

fn yes_or_no() -> Value {
    json!({ "type": "boolean" })
}

fn share() -> Value {
    json!({ "type": "number", "minimum": 0, "maximum": 1 })
}

fn tasks() -> Value {
    let task = object(
        json!({
            "id": id(), "goal": { "type": "string", "minLength": 1 }, "deps": ids(),
            "priority": { "enum": ["high", "medium", "low"] }, "agent": text(), "capability": text(), "role": text(),
            "revises": id(), "produces": texts(), "consumes": texts(), "tools": texts(), "params": { "type": "object" },
            "action": text(), "risk": { "enum": ["low", "medium", "high", "critical"] }, "required": yes_or_no(),
            "requires_approval": yes_or_no(), "is_final": yes_or_no(),
        }),
        &["id", "goal"],
    );
    json!({ "type": "array", "items": task })
}

fn plan() -> Value {
    let strategies = json!({ "enum": PlanStrategy::ALL });
    let plan = json!({
        "tasks": tasks(), "reasoning": text(), "complexity": share(), "strategy": strategies, "agent_types": texts(),
    });
    object(plan, &["tasks"])
}

/// CUG-33: a plan that is made upfront.
fn delegations() -> Value {
    let delegation =
        object(json!({ "agent_name": text(), "task": text(), "variables": texts() }), &["agent_name", "task"]);
    let strategies = json!({ "enum": ["sequential", "parallel"] });
    let all = json!({ "type": "array", "items": delegation });
    object(json!({ "strategy": strategies, "delegations": all, "reasoning": text() }), &["delegations"])
}

fn decision() -> Value {
    let call = object(json!({ "tool": text(), "args": { "type": "object" } }), &["tool", "args"]);
    object(
        json!({
            "reasoning": text(), "tasks_to_execute": ids(),
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
            "thoughts": text(), "subtasks_progress": states, "next_subtask": { "type": ["string", "integer", "null"] },
            "conclude_task": { "type": "boolean" }, "conclude_final_answer": { "type": ["string", "null"] },
            "type": { "type": ["string", "null"] }, "app": { "type": ["string", "null"] },
        }),
        &["subtasks_progress", "next_subtask", "conclude_task"],
    )
}

fn evaluation() -> Value {
    let decisions = json!({ "enum": ["continue", "replan", "complete"] });
    object(json!({ "decision": decisions, "reason": text(), "tasks": tasks() }), &["decision", "reason"])
}

/// SHN-21: whether somebody may join or leave.
fn authorization() -> Value {
    object(json!({ "allow": yes_or_no(), "reason": text() }), &["allow"])
}

/// SHN-43: the strategy that earlier runs suggest, and how sure that is.
fn advice() -> Value {
    let strategies = json!({ "enum": PlanStrategy::ALL });
    let advice = json!({
        "strategy": strategies, "confidence": share(), "warnings": texts(), "force_sequential": yes_or_no(),
    });
    object(advice, &["confidence"])
}

fn verdicts() -> Value {
    json!({ "enum": ["accepted", "needs-revision", "escalate"] })
}

fn task_review(may_escalate: bool) -> Value {
    let verdicts = if may_escalate { verdicts() } else { json!({ "enum": ["accepted", "needs-revision"] }) };
    object(json!({ "verdict": verdicts, "feedback": text(), "score": share() }), &["verdict", "feedback"])
}

fn iteration_review() -> Value {
    let assessment = object(
        json!({ "taskId": id(), "verdict": verdicts(), "feedback": text(), "score": share() }),
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
