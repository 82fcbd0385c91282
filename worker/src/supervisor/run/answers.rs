//! The answers of people: to what the run asks itself, and, passed on, to what a run below it asks.
//!
//! ```text
//!   answer ──► its id is this run's: decided here          its id is of a run below: passed on to the child that told of it
//!          └─► neither, over, about something else: refused, and nothing has changed
//! ```
//!
//! Invariant: an answer has one addressee, at any depth, and counts once; what is refused says what has happened. Whether
//! an answer counts is decided by the run that asks; on the way down only what is known to be over is refused.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::SupervisorRun;
use super::refusal::{Refused, WishRefusal};
use super::signals::{APPROVAL_RESPONSE, ESCALATE_APPROVAL, EXTEND_APPROVAL, INTERRUPT_RESUME, refuse};
use super::updates::without_of;
use crate::supervisor::core::answer::{InvalidAnswer, decode};
use crate::supervisor::core::call_context::of_its_kind;
use crate::supervisor::core::control;
use crate::supervisor::core::key::PeopleKey;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Ask, Outbox};
use crate::supervisor::people::approval::{ApprovalResponse, Ignored, readable};
use crate::supervisor::people::below::{How, NotBelow, WaitKind, Waiting};
use crate::supervisor::people::interrupts::{ResumeInterrupt, ResumeRefusal};
use crate::supervisor::people::plan_review::ReviewRefusal;
use crate::supervisor::people::signature::PLAN_ANSWER;

/// The ids in an answer that say whom it is for. The rest of it is read by whoever asked.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AnsweredIds {
    #[serde(deserialize_with = "of_its_kind")]
    approval_id: Option<String>,
    #[serde(deserialize_with = "of_its_kind")]
    interrupt_id: Option<String>,
}

impl AnsweredIds {
    /// What is no id names nobody.
    fn of(value: &Value) -> AnsweredIds {
        AnsweredIds::deserialize(value).unwrap_or_default()
    }
}

/// The part of what is said of a plan that says whose plan it is, and which version.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PlanAddressed {
    /// What is there and is no text names no run: it is not taken for this run's own plan.
    #[serde(deserialize_with = "of_its_kind")]
    of: Option<Value>,
    /// Read by whoever made the plan; it only has to match here.
    version: Value,
}

/// The signal `plan_answer_v1`: what a person says of a plan, on its way down to the run that made it.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct PlanAnswer {
    update: String,
    input: Value,
}

impl SupervisorRun {
    /// The answer to an approval, here or below.
    pub(super) fn approval_answered(&mut self, value: &Value, out: &mut Outbox) -> Result<Value, Refused> {
        let id = AnsweredIds::of(value).approval_id.unwrap_or_default();
        let below = if self.is_own(&id) { None } else { self.below(&id) };
        let Some(below) = below else {
            let response = self.parts.approvals.read(value, out)?;
            if response.modified_action.is_some() && self.parts.gate.is_about_tool(&response.approval_id) {
                let why = Ignored::Invalid(as_shown());
                return Err(self.parts.approvals.ignore(&response.approval_id, why, out).into());
            }
            let closed = self.parts.approvals.respond(response, out)?;
            let id = closed.id.clone();
            self.approval_closed(closed, out);
            let decided = self.parts.approvals.get(&id).and_then(|(_, decision)| decision.cloned());
            return Ok(json!({ "approval_id": id, "decision": decided }));
        };
        let response = self.parts.approvals.read(value, out)?;
        let passed = below.map_err(Ignored::over).and_then(|(child, asked)| match (&response.shown, &asked.shown) {
            (Some(seen), Some(shown)) if seen != shown => Err(Ignored::Stale),
            _ if asked.kind == WaitKind::Tool && response.modified_action.is_some() => {
                Err(Ignored::Invalid(as_shown()))
            }
            _ => Ok((child, asked)),
        });
        match passed {
            Ok((child, asked)) => {
                let input = of_approval(&response, &asked, &child, self.calls.is_agent(&child));
                self.pass_on(&child, &asked, APPROVAL_RESPONSE, input, out);
                Ok(json!({ "approval_id": id, "passed_to": asked.run }))
            }
            Err(why) => Err(self.parts.approvals.ignore(&response.approval_id, why, out).into()),
        }
    }

    /// More time for an approval, or another word to people about it, here or below. Nobody is answered: it waits still.
    pub(super) fn approval_moved(&mut self, name: &str, value: &Value, out: &mut Outbox) -> Result<Value, Refused> {
        let id = AnsweredIds::of(value).approval_id.unwrap_or_default();
        let below = if self.is_own(&id) { None } else { self.below(&id) };
        let (extends, name) = match name {
            EXTEND_APPROVAL => (true, EXTEND_APPROVAL),
            _ => (false, ESCALATE_APPROVAL),
        };
        let Some(below) = below else {
            let approvals = &mut self.parts.approvals;
            return Ok(if extends { approvals.extend(value, out)? } else { approvals.escalate(value, out)? });
        };
        readable(extends, value)?;
        let (child, asked) = below.map_err(Ignored::over)?;
        if asked.kind != WaitKind::Approval {
            return Err(WishRefusal::NoDeadline(id).into());
        }
        self.send_down(&child, &asked, name, value.clone(), out);
        Ok(json!({ "id": id, "passed_to": asked.run }))
    }

    /// The answer to a question, here or below.
    pub(super) fn question_answered(&mut self, value: &Value, out: &mut Outbox) -> Result<Value, Refused> {
        let resume = ResumeInterrupt::read(value)?;
        let id = match (&resume.interrupt_id, &resume.task) {
            (Some(id), _) if !self.is_own(id) => Some(id.clone()),
            (None, None) => self.only_question()?,
            _ => None,
        };
        let below = id.as_deref().and_then(|id| self.below(id));
        match (id, below) {
            (Some(id), Some(below)) => {
                let (child, asked) = below.map_err(|how| ResumeRefusal::over(&id, how))?;
                if resume.shown.is_some() && resume.shown != asked.shown {
                    return Err(ResumeRefusal::Stale { id }.into());
                }
                let input = json!(ResumeInterrupt { interrupt_id: Some(id.clone()), ..resume });
                self.pass_on(&child, &asked, INTERRUPT_RESUME, input, out);
                Ok(json!({ "interrupt_id": id, "passed_to": asked.run }))
            }
            _ => self.resume_interrupt(resume, out),
        }
    }

    /// The only question of the runs below, where an answer names none; of this run's own, it says itself which is meant.
    fn only_question(&self) -> Result<Option<String>, ResumeRefusal> {
        let below = self.parts.below.waiting(|child| self.calls.has_child(child));
        let mut questions = below.filter(|(_, one)| one.kind == WaitKind::Question).map(|(_, one)| one.id.clone());
        let asks_itself = self.parts.interrupts.pending().next().is_some();
        match (questions.next(), questions.next()) {
            (Some(_), _) if asks_itself => Err(ResumeRefusal::IdNeeded),
            (only, None) => Ok(only),
            (_, Some(_)) => Err(ResumeRefusal::IdNeeded),
        }
    }

    /// What a person says of the plan of a run below, which they name with `of`. `None`: it is said of this run's own.
    pub(super) fn plan_answered_below(
        &mut self,
        name: &str,
        value: &Value,
        out: &mut Outbox,
    ) -> Option<Result<Value, Refused>> {
        // Anything but a mapping has no addressee; what it is, the run's own plan says.
        let Value::Object(_) = value else { return None };
        let addressed = match decode::<PlanAddressed>("answer about a plan", value) {
            Ok(addressed) => addressed,
            Err(why) => return Some(Err(ReviewRefusal::Invalid(why).into())),
        };
        let of = addressed.of?.as_str().unwrap_or_default().to_owned();
        if of == self.id || of == self.run {
            return None;
        }
        let version = addressed.version.as_u64().unwrap_or_default();
        let Some((child, asked)) = self.plan_below(&of) else { return Some(Err(self.no_plan_below(&of, version))) };
        if asked.id != format!("{of}#{version}") {
            return Some(Err(ReviewRefusal::StaleApproval.into()));
        }
        let input = json!(PlanAnswer { update: name.to_owned(), input: value.clone() });
        self.pass_on(&child, &asked, PLAN_ANSWER, input, out);
        Some(Ok(json!({ "version": version, "passed_to": of })))
    }

    /// Why nothing is said of this version of the plan of a run below.
    fn no_plan_below(&self, of: &str, version: u64) -> Refused {
        let review = format!("the review of version {version} of the plan of the run `{of}`");
        match self.below(&format!("{of}#{version}")) {
            Some(Err(How::Answered)) => {
                Refused { kind: "AnswerDuplicate", why: format!("{review} is answered already") }
            }
            Some(Err(How::Late)) => ReviewRefusal::Closed { status: "timed out".into() }.into(),
            Some(Err(How::Void { reason })) => {
                Refused { kind: "AnswerVoid", why: format!("{review} is void: {reason}") }
            }
            Some(Ok(_)) | None => {
                let why = format!("no plan of a run `{of}` below this one is up for review");
                Refused { kind: "AnswerUnknown", why }
            }
        }
    }

    /// The child to pass on what is said of the plan of this run below, and what it told of it.
    fn plan_below(&self, of: &str) -> Option<(String, Waiting)> {
        let below = self.parts.below.waiting(|child| self.calls.has_child(child));
        let mut plans = below.filter(|(_, one)| one.kind == WaitKind::Plan && one.run.as_deref() == Some(of));
        plans.next().map(|(child, asked)| (child.to_owned(), asked.clone()))
    }

    /// The same, passed on by the run above.
    pub(super) fn plan_answered(&mut self, value: &Value, out: &mut Outbox) -> Result<(), Refused> {
        let PlanAnswer { update: name, input } = PlanAnswer::deserialize(value).unwrap_or_default();
        let PlanAddressed { of, version } = PlanAddressed::deserialize(&input).unwrap_or_default();
        let id = format!("{}#{version}", of.unwrap_or_default());
        let answered = match name.as_str() {
            "approve_plan" | "plan_feedback" | "revise_plan" => {
                let below = self.plan_answered_below(&name, &input, out);
                below.unwrap_or_else(|| self.said_of_plan(&name, &without_of(&input), out))
            }
            other => Err(WishRefusal::NotOfPlan(other.to_owned()).into()),
        };
        answered.map(|_| ()).inspect_err(|_| self.not_taken(&id))
    }

    /// A resume or a release goes on to the runs below that hold themselves: this run is not what is held.
    pub(super) fn held_below(&mut self, name: &str, value: &Value, out: &mut Outbox) {
        let kind = match name {
            control::RESUME => WaitKind::Pause,
            control::RELEASE => WaitKind::Takeover,
            _ => return,
        };
        let below = self.parts.below.waiting(|child| self.calls.has_child(child));
        let mut children: Vec<String> =
            below.filter(|(_, one)| one.kind == kind).map(|(child, _)| child.into()).collect();
        children.dedup();
        for child in children {
            out.note(NoteKind::ChildSignaled, json!({ "child": child, "signal": name }));
            let key = PeopleKey::Answer(self.parts.below.next_signal()).into();
            let (signal, input) = (name.to_owned(), value.clone());
            out.ask(Ask::SignalExternal { key, workflow_id: child, signal, input });
        }
    }

    /// Whether an id was given by this run.
    fn is_own(&self, id: &str) -> bool {
        id.strip_prefix(&self.run).is_some_and(|rest| rest.starts_with('/'))
    }

    /// The child to pass an answer on to, or what became of what it answers; nothing where nobody below asked.
    fn below(&self, id: &str) -> Option<Result<(String, Waiting), How>> {
        match self.parts.below.asker(id, |child| self.calls.has_child(child)) {
            Ok((child, asked)) => Some(Ok((child.to_owned(), asked.clone()))),
            Err(NotBelow::Over(how)) => Some(Err(how)),
            Err(NotBelow::Unknown) => None,
        }
    }

    /// An answer: until the child says that it was none, it is the only one.
    fn pass_on(&mut self, child: &str, asked: &Waiting, signal: &'static str, input: Value, out: &mut Outbox) {
        self.send_down(child, asked, signal, input, out);
        self.parts.below.passed(&asked.id);
    }

    fn send_down(&mut self, child: &str, asked: &Waiting, signal: &'static str, input: Value, out: &mut Outbox) {
        out.note(
            NoteKind::ChildSignaled,
            json!({ "child": child, "signal": signal, "answers": asked.id, "run": asked.run }),
        );
        let (key, workflow_id) = (PeopleKey::Answer(self.parts.below.next_signal()).into(), child.to_owned());
        out.ask(Ask::SignalExternal { key, workflow_id, signal: signal.to_owned(), input });
    }

    /// The run above hears that an answer did not count; without one there is nobody to hear it.
    fn not_taken(&mut self, id: &str) {
        if self.context.above.is_some() {
            self.parts.above.not_taken(id);
        }
    }

    /// What comes by signal is refused in a note; if the run above passed it on, it is told that it did not count.
    pub(super) fn answer_signaled(&mut self, name: &str, value: &Value, out: &mut Outbox) {
        let AnsweredIds { approval_id, interrupt_id } = AnsweredIds::of(value);
        let of_question = interrupt_id.clone().filter(|_| name == INTERRUPT_RESUME);
        let (answered, id) = match name {
            // Refusals of approvals are noted by themselves.
            APPROVAL_RESPONSE => (self.approval_answered(value, out).map_err(|_| String::new()), approval_id),
            _ => (self.question_answered(value, out).map_err(|why| why.why), interrupt_id),
        };
        let Err(why) = answered else { return };
        if let Some(id) = id {
            self.not_taken(&id);
        }
        match of_question {
            // Whoever has answered it finds their answer by what it says.
            Some(id) => {
                let data = json!({ "signal": name, "why": why, "id": id, "answer": value["resume"] });
                out.note(NoteKind::ActionRefused, data);
            }
            None if !why.is_empty() => refuse(name, &why, out),
            None => {}
        }
    }
}

/// The call of a tool is made as it was shown, or not at all.
fn as_shown() -> InvalidAnswer {
    let why = "the call of a tool is approved as it is, or rejected with a comment";
    InvalidAnswer { what: "approval".to_owned(), at: "modified_action".to_owned(), why: why.to_owned() }
}

/// The response as the child hears it: agents have words of their own. It is about what was shown.
fn of_approval(response: &ApprovalResponse, asked: &Waiting, child: &str, is_agent: bool) -> Value {
    if !is_agent {
        let shown = response.shown.clone().or_else(|| asked.shown.clone());
        return json!(ApprovalResponse { shown, ..response.clone() });
    }
    let id = response.approval_id.as_str();
    // An agent that is a run of its own counts its approvals itself, and passes on what is for one that it called.
    let own = if asked.run.as_deref() == Some(child) { id.split_once('/').map_or(id, |(_, id)| id) } else { id };
    let reason = response.feedback.as_ref().or(response.comment.as_ref()).cloned().unwrap_or_default();
    json!({ "id": own, "hash": asked.shown, "approved": response.approved,
        "reason": reason, "by": response.approver })
}
