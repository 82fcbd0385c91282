//! The sender of a message: the field that names a person.
//!
//! Invariant: what such a field holds is believed by the run that hears it. So whoever lets a message in from outside writes
//! the sender into it, and what is believed of runs is sent by runs alone. Pure: it only knows names.

use crate::agent::workflow::{SIGNAL_APPROVAL, SIGNAL_WAITS};
use crate::supervisor::core::control;

/// What a person says of the plan of a run below: passed on by the run above (`approve_plan`, `plan_feedback`, `revise_plan`).
pub(crate) const PLAN_ANSWER: &str = "plan_answer_v1";
/// A change of how people are asked, on its way down.
pub(crate) const PEOPLE_RULES: &str = "people_rules_v1";

/// Signals that only runs send, to each other. What they hold is believed as it stands, also who approved something.
pub const OF_RUNS: [&str; 3] = [PEOPLE_RULES, PLAN_ANSWER, SIGNAL_WAITS];

/// Messages by which people answer what a run asks them, or move how they are asked.
pub(crate) const ANSWERS: [&str; 10] = [
    SIGNAL_APPROVAL,
    "interrupt_resume_v1",
    "approve_plan",
    "plan_feedback",
    "deny_plan",
    "respond_approval",
    "respond_interrupt",
    "human_input_v1",
    "extend_approval",
    "escalate_approval",
];

/// Whether a message of this name answers what people are asked, or moves how they are asked.
pub(crate) fn is_answer(name: &str) -> bool {
    ANSWERS.contains(&name)
}

/// The field of a message that names a person, and the one for their words; nothing of messages of other workflows.
pub fn signature_of(name: &str) -> Option<(&'static str, Option<&'static str>)> {
    match name {
        SIGNAL_APPROVAL | "approve_plan" | "deny_plan" | "respond_approval" => Some(("approver", Some("comment"))),
        control::PAUSE
        | control::RESUME
        | control::CANCEL
        | control::TAKEOVER
        | control::RELEASE
        | "set_hitl_mode"
        | "extend_approval"
        | "escalate_approval" => Some(("requested_by", Some("reason"))),
        _ => None,
    }
}

/// Whether a run that hears this signal believes what it says of who sent it.
pub fn is_believed(signal: &str) -> bool {
    OF_RUNS.contains(&signal) || signature_of(signal).is_some()
}
