//! Whom and what a run waits for, with the command that answers: what every view of it shows.
//!
//! Invariant: one entry for each thing that only a person can end, oldest first of its kind; an entry names its id and a
//! command that can be typed as it stands. It is made from the state whenever somebody looks, and kept nowhere.

use bosun_engine::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::SupervisorRun;
use crate::supervisor::people::approval::ApprovalRequest;
use crate::supervisor::people::interrupts::Interrupt;
use crate::supervisor::people::plan_review::ReviewStatus;

/// The name of whoever may answer, where the run names nobody in particular.
const ANYBODY: &str = "a person";

/// One thing that a run waits for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Waiting {
    /// `approval`, `question`, `plan`, `pause` or `takeover`.
    kind: &'static str,
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    whom: String,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    answer: String,
}

impl SupervisorRun {
    /// All that a person has to do before the run can go on as it is meant to.
    pub(super) fn waiting(&self) -> Vec<Waiting> {
        let approvals = self.parts.approvals.pending().map(of_approval);
        let questions = self.parts.interrupts.pending().map(of_question);
        let all = approvals.chain(questions).chain(self.of_plan()).chain(self.of_hold());
        if self.strategy.phase().is_terminal() { Vec::new() } else { all.collect() }
    }

    fn of_plan(&self) -> Option<Waiting> {
        let review = self.parts.review.as_ref().filter(|review| review.status() == ReviewStatus::Reviewing)?;
        let (id, version) = (&self.id, review.version());
        Some(Waiting {
            kind: "plan",
            id: format!("{id}#{version}"),
            task: None,
            whom: ANYBODY.to_owned(),
            what: format!("the review of version {version} of the plan"),
            until: Some(review.deadline()),
            answer: format!("bosun plan approve {id} --version {version}"),
        })
    }

    fn of_hold(&self) -> Option<Waiting> {
        let control = &self.parts.control;
        let (kind, verb) = match (control.is_paused(), control.is_human()) {
            (true, _) => ("pause", "resume"),
            (_, true) => ("takeover", "release"),
            (false, false) => return None,
        };
        Some(Waiting {
            kind,
            id: self.id.clone(),
            task: None,
            whom: control.held_by().filter(|by| !by.is_empty()).unwrap_or(ANYBODY).to_owned(),
            what: control.held_because().unwrap_or_default(),
            until: None,
            answer: format!("bosun {verb} {}", self.id),
        })
    }
}

fn of_approval(request: &ApprovalRequest) -> Waiting {
    let why = request.reasons.first().map(|why| format!(" ({why})")).unwrap_or_default();
    let about = Some(request.description.as_str()).filter(|text| !text.is_empty());
    let about = about.map(|text| format!(": {text}")).unwrap_or_default();
    Waiting {
        kind: "approval",
        id: request.id.to_string(),
        task: request.task_id.as_ref().map(ToString::to_string),
        whom: ANYBODY.to_owned(),
        what: format!("the approval of {}{about}{why}", request.subject()),
        until: Some(request.deadline),
        answer: format!("bosun approval approve {}", request.id),
    }
}

fn of_question(interrupt: &Interrupt) -> Waiting {
    let payload = &interrupt.payload;
    let text = |key: &str| payload.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let asked = ["question", "message", "prompt", "text"].iter().find_map(|key| text(key)).map(str::to_owned);
    let asked = asked.or_else(|| payload.as_str().map(str::to_owned)).unwrap_or_else(|| payload.to_string());
    let about = text("about").map(|about| format!(": {about}")).unwrap_or_default();
    // Whether a tool is called is never read out of a text.
    let answer = if payload.pointer("/kind/tool_approval").is_some() { "true" } else { "ANSWER" };
    Waiting {
        kind: "question",
        id: interrupt.id.clone(),
        task: Some(interrupt.task.to_string()),
        whom: text("to").unwrap_or(ANYBODY).to_owned(),
        what: format!("an answer to \"{asked}\"{about}"),
        until: interrupt.deadline,
        answer: format!("bosun approval answer {} {answer}", interrupt.id),
    }
}
