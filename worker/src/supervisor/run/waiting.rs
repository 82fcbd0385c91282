//! Whom and what a run waits for, itself and below, with the command that answers: what every view of it shows.
//!
//! Invariant: one entry for each thing that only a person can end, oldest first of its kind, then what the runs below have
//! told; an entry names its id and a command that can be typed as it stands. It is made from the state whenever somebody
//! looks. The run above is told whenever it has changed; and while there is nothing else to do, no time of the run passes.

use bosun_engine::workflow::Cx;
use bosun_engine::{ExternalTarget, WorkflowId};
use serde::Deserialize;
use serde_json::Value;

use super::SupervisorRun;
use super::refusal::WishRefusal;
use super::signals::WAITS_BELOW;
use crate::supervisor::core::call_context::{of_its_kind, parts_of};
use crate::supervisor::outbox::Outbox;
use crate::supervisor::people::approval::ApprovalRequest;
use crate::supervisor::people::below::{How, WaitKind, Waiting, WaitsBelow};
use crate::supervisor::people::interrupts::Interrupt;
use crate::supervisor::people::plan_review::ReviewStatus;

/// The name of whoever may answer, where the run names nobody in particular.
const ANYBODY: &str = "a person";

impl SupervisorRun {
    /// All that a person has to do before the run can go on as it is meant to.
    pub(super) fn waiting(&self) -> Vec<Waiting> {
        if self.strategy.phase().is_terminal() {
            // Whoever holds a run as it ends keeps it open.
            return self.of_hold().into_iter().collect();
        }
        let approvals = self.parts.approvals.pending().map(|request| of_approval(request, &self.run));
        let questions = self.parts.interrupts.pending().map(|asked| of_question(asked, &self.run));
        let below = self.parts.below.waiting(|child| self.calls.has_child(child)).map(|(_, one)| one.clone());
        approvals.chain(questions).chain(self.of_plan()).chain(self.of_hold()).chain(below).collect()
    }

    /// Whether nothing but people can bring the run on: nobody is at work, here or below, and nothing is tried again.
    pub(super) fn stands_still(&self) -> bool {
        let below = |child: &str| self.parts.below.stands_still(child);
        let at_border = self.parts.border_closes() && self.calls.waits_for_run();
        let idle = !at_border && !self.calls.waits_for_time() && self.calls.only_waits(below);
        idle && !self.strategy.phase().is_terminal() && !self.waiting().is_empty()
    }

    /// The end of a turn: the time of the run passes while it works and stands still while it waits for people, and the run
    /// above hears what has changed.
    pub(super) fn tell_and_keep_time(&mut self, cx: &mut Cx<'_>) {
        let still = self.stands_still();
        let mut out = self.outbox(cx.now());
        self.account.keep_clock(!still, &mut out);
        self.ask_all(out, cx);
        let Some(above) = self.context.above.as_deref().and_then(|above| WorkflowId::new(above).ok()) else { return };
        if let Some(told) = self.what_changed(!still) {
            cx.signal_external(ExternalTarget { workflow_id: above, run_id: None }, WAITS_BELOW, &told);
        }
    }

    fn what_changed(&mut self, working: bool) -> Option<WaitsBelow> {
        let mut waiting = self.waiting();
        for one in &mut waiting {
            one.run.get_or_insert_with(|| self.id.clone());
        }
        // Nobody asks how busy a run is that waits for nobody.
        let working = working || waiting.is_empty();
        let (parts, id) = (&mut self.parts, &self.id);
        let mut above = std::mem::take(&mut parts.above);
        let told = above.changes(id, working, waiting, |one| match (one.run.as_deref() == Some(id), one.kind) {
            (false, _) => parts.below.what_became_of(&one.id),
            (true, WaitKind::Approval) => parts.approvals.over(&one.id),
            (true, WaitKind::Question) => parts.interrupts.over(&one.id),
            (true, WaitKind::Plan) => match parts.review.as_ref().map(|review| review.status()) {
                Some(ReviewStatus::TimedOut) => How::Late,
                Some(ReviewStatus::Reviewing) => How::Void { reason: "the run that asked is over".to_owned() },
                _ => How::Answered,
            },
            (true, WaitKind::Tool | WaitKind::Pause | WaitKind::Takeover) => How::Answered,
        });
        parts.above = above;
        told
    }

    /// A run below tells what it waits for.
    pub(super) fn below_tells(&mut self, value: &Value, out: &mut Outbox) -> Result<(), WishRefusal> {
        let told: WaitsBelow = serde_json::from_value(value.clone())?;
        if let Some(key) = self.calls.key_of_child(&told.from) {
            let from = told.from.clone();
            self.parts.below.heard(told);
            // Whoever waits for a run that waits for people waits for them: that is no time of whoever was called (CUG-41).
            if out.awaited_mut().waits_below(key, self.parts.below.stands_still(&from)) {
                self.strategy.before_people(out);
            }
            return Ok(());
        }
        // What a child says last may come after its end.
        match told.from.strip_prefix(&self.run).is_some_and(|rest| rest.starts_with('-')) {
            true => Ok(()),
            false => Err(WishRefusal::NotBelow(told.from)),
        }
    }

    fn of_plan(&self) -> Option<Waiting> {
        let review = self.parts.review.as_ref().filter(|review| review.status() == ReviewStatus::Reviewing)?;
        let (id, version) = (&self.id, review.version());
        Some(Waiting {
            kind: WaitKind::Plan,
            id: format!("{id}#{version}"),
            task: None,
            whom: ANYBODY.to_owned(),
            what: format!("the review of version {version} of the plan"),
            until: Some(review.deadline()),
            answer: format!("bosun plan approve {id} --version {version}"),
            shown: review.hash().map(str::to_owned),
            run: None,
        })
    }

    fn of_hold(&self) -> Option<Waiting> {
        let control = &self.parts.control;
        let (kind, verb) = match (control.is_paused(), control.is_human()) {
            (_, true) => (WaitKind::Takeover, "release"),
            (true, _) => (WaitKind::Pause, "resume"),
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
            shown: None,
            run: None,
        })
    }
}

/// Where a person says it: an id that a fork has of its source says nothing of the fork.
fn at(run: &str, id: &str, command: String) -> String {
    match id.strip_prefix(run).is_some_and(|rest| rest.starts_with('/')) {
        true => command,
        false => format!("{command} --run {run}"),
    }
}

fn of_approval(request: &ApprovalRequest, run: &str) -> Waiting {
    let why = request.reasons.first().map(|why| format!(" ({why})")).unwrap_or_default();
    let about = Some(request.description.as_str()).filter(|text| !text.is_empty());
    let about = about.map(|text| format!(": {text}")).unwrap_or_default();
    Waiting {
        kind: WaitKind::Approval,
        id: request.id.to_string(),
        task: request.task_id.as_ref().map(ToString::to_string),
        whom: ANYBODY.to_owned(),
        what: format!("the approval of {}{about}{why}", request.subject()),
        until: Some(request.deadline),
        answer: at(run, request.id.as_str(), format!("bosun approval approve {}", request.id)),
        shown: Some(request.shown.clone()),
        run: None,
    }
}

/// What a question says of itself, in the words of whoever asks.
#[derive(Default, Deserialize)]
#[serde(default)]
struct QuestionWords {
    #[serde(deserialize_with = "of_its_kind")]
    question: Option<String>,
    #[serde(deserialize_with = "of_its_kind")]
    message: Option<String>,
    #[serde(deserialize_with = "of_its_kind")]
    prompt: Option<String>,
    #[serde(deserialize_with = "of_its_kind")]
    text: Option<String>,
    #[serde(deserialize_with = "of_its_kind")]
    about: Option<String>,
    #[serde(deserialize_with = "of_its_kind")]
    to: Option<String>,
    kind: Value,
}

/// What a strategy asks: one of these is there.
#[derive(Default, Deserialize)]
#[serde(default)]
struct QuestionKind {
    #[serde(deserialize_with = "of_its_kind")]
    tool_approval: Option<Value>,
    #[serde(deserialize_with = "of_its_kind")]
    task_feedback: Option<Value>,
}

fn of_question(interrupt: &Interrupt, run: &str) -> Waiting {
    let payload = &interrupt.payload;
    let said: QuestionWords = parts_of(payload);
    let asked =
        [said.question, said.message, said.prompt, said.text].into_iter().flatten().find(|text| !text.is_empty());
    let asked = asked.or_else(|| payload.as_str().map(str::to_owned)).unwrap_or_else(|| payload.to_string());
    let about = said.about.filter(|text| !text.is_empty()).map(|about| format!(": {about}")).unwrap_or_default();
    // Whether a tool is called is never read out of a text.
    let kind: QuestionKind = parts_of(&said.kind);
    let (answer, taken) = match (kind.tool_approval, kind.task_feedback) {
        (Some(_), _) => ("true", ""),
        (None, Some(_)) => ("yes", " (`yes` takes it as it is; other words send it back with them)"),
        (None, None) => ("ANSWER", ""),
    };
    Waiting {
        kind: WaitKind::Question,
        id: interrupt.id.clone(),
        task: Some(interrupt.task.to_string()),
        whom: said.to.filter(|text| !text.is_empty()).unwrap_or_else(|| ANYBODY.to_owned()),
        what: format!("an answer to \"{asked}\"{about}{taken}"),
        until: interrupt.deadline,
        answer: at(run, &interrupt.id, format!("bosun approval answer {} {answer}", interrupt.id)),
        shown: Some(interrupt.shown.clone()),
        run: None,
    }
}
