//! The shapes of everything that a run is answered: by planners, deciders, reviewers, workers, and people.
//!
//! Invariant: each is made from the type that reads the answer, so that it cannot say anything else; spellings that are
//! understood beside these are not listed. Nothing is read here.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::supervisor::graph::{
    ControllerDecision, Evaluation, PlannerOutput, Reply, ReviewOutput, SupervisorDecision, TaskReview,
};
use crate::supervisor::people::approval::ApprovalResponse;
use crate::supervisor::people::interrupts::ResumeInterrupt;
use crate::supervisor::people::plan_review::{PlanFeedback, PlanVerdict};
use crate::supervisor::team::recruit::RecruitRequest;

/// By name, with when it is wanted: for `say` of a script, for agents, and for what people send. Behind them the parts
/// that they are made of.
// long: one entry a shape.
pub fn answer_shapes() -> (Map<String, Value>, Map<String, Value>) {
    let mut schemas = SchemaGenerator::default();
    let mut all = Map::new();
    let mut add = |name: &str, when: &str, schema: Schema| {
        let mut schema = schema.to_value();
        if let Value::Object(map) = &mut schema {
            map.insert("description".to_owned(), when.into());
        }
        all.insert(name.to_owned(), schema);
    };
    let g = &mut schemas;
    add("plan", "`plan`: what a planner answers.", PlannerOutput::json_schema(g));
    add("decide", "`decide`: what a supervisor answers in a cycle.", SupervisorDecision::json_schema(g));
    add("decide_controller", "`decide`: what a plan controller answers.", ControllerDecision::json_schema(g));
    add("decide_evaluator", "`decide`: what an evaluator of plan-and-execute answers.", Evaluation::json_schema(g));
    add("review", "`review`: what a reviewer of one task answers.", TaskReview::json_schema(g));
    add("review_iteration", "`review`: what a reviewer of an iteration answers.", ReviewOutput::json_schema(g));
    add(
        "execute_worker",
        "`execute_worker`: any JSON is a result; an object with `result`, `success: false`, `interrupt`, `consult` or \
         `overflow` is read as this.",
        Reply::json_schema(g),
    );
    add("recruit", "An entry of a worker's `recruit`, and the signal `recruit_v1`.", RecruitRequest::json_schema(g));
    add(
        "interrupt_answer",
        "The signal `interrupt_resume_v1`, the update `respond_interrupt`.",
        ResumeInterrupt::json_schema(g),
    );
    add(
        "approval_answer",
        "The signal `approval_response_v1`, the update `respond_approval`.",
        ApprovalResponse::json_schema(g),
    );
    add("plan_verdict", "The update `approve_plan`.", PlanVerdict::json_schema(g));
    add("plan_feedback", "The update `plan_feedback`.", PlanFeedback::json_schema(g));
    all.insert(
        "interrupt".to_owned(),
        json!({
            "description": "A worker's `interrupt`: what a person is asked, in any form; two keys of it are followed.",
            "properties": {
                "question": { "type": "string" },
                "to": { "type": "string", "description": "Whom it is for." },
                "timeout": { "description": "How long it waits, such as `10m`; without it, for ever." },
                "default": { "description": "The answer when nobody gave one in time; without it the task errs." },
            },
        }),
    );
    all.insert(
        "consult".to_owned(),
        json!({
            "description": "A worker's `consult`: one question to another capability (PDT-49).",
            "type": "object",
            "properties": { "capability": { "type": "string" }, "question": { "type": "string" } },
            "required": ["capability", "question"],
        }),
    );
    let parts = schemas.take_definitions(true);
    (all, parts)
}
