//! Signals: fire and forget, from people, programs and agents (supervisors.md §5.7).
//!
//! Invariant: a signal that does not conform changes nothing and is noted with the reason; one of a kind that this run
//! has no use for is refused the same way, never lost silently. A signal by another name is left to the engine.
//!
//! Long: one table of signals, and what each of them does.

use bosun_engine::{Failure, Payload};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::people::question_of;
use super::refusal::{Refused, WishRefusal};
use super::{SupervisorRun, value_of};
use crate::agent::next_run::{LEAVE, Leave};
use crate::agent::workflow::{SIGNAL_BUDGET_REQUEST, SIGNAL_BUDGET_SHARE, SIGNAL_TOP_UP, SIGNAL_WAITS};
use crate::supervisor::core::call_context::of_its_kind;
use crate::supervisor::core::calls::{Arrival, NewRun};
use crate::supervisor::core::control::{self, ControlRequest};
use crate::supervisor::core::key::Key;
use crate::supervisor::core::question::{Expired, QuestionKey};
use crate::supervisor::core::strategy::OpenQuestion;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::{HUMAN, TaskId};
use crate::supervisor::outbox::{CallFailure, Outbox};
use crate::supervisor::people::approval::{ApprovalScope, ApprovalSource, Closed, Consequence};
use crate::supervisor::people::interrupts::{Question, ResumeInterrupt, Resumed};
use crate::supervisor::people::plan_review::Ending;
use crate::supervisor::people::signature::{PEOPLE_RULES, PLAN_ANSWER};
use crate::supervisor::spec::OnApprovalTimeout;
use crate::supervisor::task::Actor;
use crate::supervisor::team::Heard;

/// Why a run that has come to its end is not held or cancelled any more.
const OVER: &str = "the run has come to its end, and closes when what it began has ended and told what it spent";

/// What is said of a run below that was asked for, in a run that ends.
const NOT_BEGUN: &str = "the run ended before this work began";

pub(super) const MAILBOX: &str = "mailbox_v1";
pub(super) const RECRUIT: &str = "recruit_v1";
pub(super) const RETIRE: &str = "retire_v1";
pub(super) const HUMAN_INPUT: &str = "human_input_v1";
pub(super) const APPROVAL_RESPONSE: &str = "approval_response_v1";
pub(super) const INTERRUPT_RESUME: &str = "interrupt_resume_v1";
/// More time for an approval, and another word to people about it: updates, which reach a run below as signals.
pub(super) const EXTEND_APPROVAL: &str = "extend_approval";
pub(super) const ESCALATE_APPROVAL: &str = "escalate_approval";
/// One task of a plan is not needed any more: `{"task_id": 3, "reason": "..."}`. What waits for it is cancelled by the policy.
pub const CANCEL_TASK: &str = "cancel_task_v1";
/// What a run below waits for.
pub(super) const WAITS_BELOW: &str = SIGNAL_WAITS;
pub(super) const BUDGET_REQUEST: &str = SIGNAL_BUDGET_REQUEST;
pub(super) const TOP_UP: &str = SIGNAL_TOP_UP;

/// The signal `human_input_v1`: words, as they are or in a mapping, or the wish to take the word in a group chat.
#[derive(Deserialize)]
#[serde(untagged)]
enum HumanInput {
    Text(String),
    Interrupt {
        interrupt: Value,
        #[serde(default, deserialize_with = "of_its_kind")]
        message: Option<Value>,
    },
    Message {
        message: String,
    },
}

const OF_CONTROL: [&str; 5] = [control::PAUSE, control::RESUME, control::CANCEL, control::TAKEOVER, control::RELEASE];
const OTHERS: [&str; 16] = [
    MAILBOX,
    RECRUIT,
    RETIRE,
    HUMAN_INPUT,
    APPROVAL_RESPONSE,
    INTERRUPT_RESUME,
    EXTEND_APPROVAL,
    ESCALATE_APPROVAL,
    PLAN_ANSWER,
    PEOPLE_RULES,
    CANCEL_TASK,
    WAITS_BELOW,
    BUDGET_REQUEST,
    SIGNAL_BUDGET_SHARE,
    TOP_UP,
    LEAVE,
];

/// The signals that a supervisor's run hears.
pub(crate) fn signals() -> Vec<&'static str> {
    OTHERS.into_iter().chain(OF_CONTROL).collect()
}

/// What `cancel_task_v1` says.
#[derive(Deserialize)]
struct CancelTask {
    task_id: TaskId,
    #[serde(default)]
    reason: Option<String>,
}

impl SupervisorRun {
    /// Takes a signal; `false` if its name is none of ours.
    pub(super) fn signal(&mut self, name: &str, input: &Payload, out: &mut Outbox) -> bool {
        if !OTHERS.contains(&name) && !OF_CONTROL.contains(&name) {
            return false;
        }
        let value = match value_of(input) {
            Ok(value) => value,
            Err(why) => {
                refuse(name, &why.message, out);
                return true;
            }
        };
        if name == WAITS_BELOW {
            // Runs say it to each other whenever anything changes: what they pass on is noted.
            if let Err(why) = self.below_tells(&value, out) {
                refuse(name, &why.to_string(), out);
            }
            return true;
        }
        out.note(NoteKind::SignalReceived, json!({ "signal": name }));
        if OF_CONTROL.contains(&name) {
            self.control_signal(name, &value, out);
        } else {
            self.other_signal(name, &value, out);
        }
        true
    }

    fn other_signal(&mut self, name: &str, value: &Value, out: &mut Outbox) {
        if let Some(heard) = self.parts.team.signaled(name, value, out) {
            return self.team_heard(heard, out);
        }
        // Refusals of the team are noted by themselves.
        let refused = match name {
            APPROVAL_RESPONSE | INTERRUPT_RESUME => return self.answer_signaled(name, value, out),
            EXTEND_APPROVAL | ESCALATE_APPROVAL => self.approval_moved(name, value, out).err(),
            PLAN_ANSWER => self.plan_answered(value, out).err(),
            PEOPLE_RULES => self.people_rules_from_above(value, out).err(),
            CANCEL_TASK => self.cancel_task(value, out).err(),
            HUMAN_INPUT => self.human_input(value, out).err(),
            BUDGET_REQUEST => self.budget_requested(value).err(),
            SIGNAL_BUDGET_SHARE => self.lent_more(value, out).err(),
            TOP_UP => self.topped_up(value, out).err(),
            LEAVE => {
                self.leave_asked(Leave::of(value));
                None
            }
            _ => None,
        };
        if let Some(why) = refused {
            refuse(name, &why.why, out);
        }
    }

    /// A task that is over is left as it is: the signal may simply have come too late.
    fn cancel_task(&mut self, value: &Value, out: &mut Outbox) -> Result<(), Refused> {
        let CancelTask { task_id, reason } = CancelTask::deserialize(value).map_err(WishRefusal::NoTaskNamed)?;
        let plan = self.strategy.plan_control()?;
        if plan.plan().get(&task_id).is_none() {
            return Err(WishRefusal::UnknownTask(task_id).into());
        }
        plan.cancel_task(&task_id, reason.as_deref().unwrap_or("by signal"), Actor::Human, &mut self.parts, out);
        Ok(())
    }

    fn control_signal(&mut self, name: &str, value: &Value, out: &mut Outbox) {
        let over = match name {
            control::PAUSE | control::TAKEOVER => self.strategy.phase().is_terminal(),
            control::CANCEL => self.only_waits_for_bills(),
            _ => false,
        };
        if over {
            return refuse(name, OVER, out);
        }
        let changed = match self.parts.control.signal(name, value, out) {
            Ok(changed) => changed,
            Err(why) => return refuse(name, &why.to_string(), out),
        };
        if !changed {
            return self.held_below(name, value, out);
        }
        match name {
            control::PAUSE | control::TAKEOVER | control::RESUME | control::RELEASE => self.held_or_not(out),
            _ => self.cancelled_by_control(out),
        }
    }

    /// The run pauses itself.
    pub(super) fn pause(&mut self, why: ControlRequest, out: &mut Outbox) {
        if !self.strategy.phase().is_terminal() && self.parts.control.pause(why, out) {
            self.held_or_not(out);
        }
    }

    /// Whether the run stands still has changed: from here on the turn knows, and the strategy hears of it.
    fn held_or_not(&mut self, out: &mut Outbox) {
        out.set_held(self.parts.control.is_held());
        self.strategy.held_or_not(out);
    }

    /// What the team has made of a signal or an answer: who has left, leaves tasks that nobody works on.
    pub(super) fn team_heard(&mut self, heard: Heard, out: &mut Outbox) {
        let Ok(plan) = self.strategy.plan_control() else { return };
        if let Heard::Recruit { succeeded: false, .. } = heard {
            plan.recruit_failed(&mut self.parts, out);
        }
        let Heard::Retired { agent_id, tasks } = heard else { return };
        for task in tasks {
            let reason = format!("{agent_id} was retired");
            plan.cancel_task(&task, &reason, Actor::Supervisor, &mut self.parts, out);
        }
    }

    /// Cancels the run as `cancel_v1` does.
    pub(super) fn cancel(&mut self, reason: &str, by: &str, out: &mut Outbox) {
        if self.only_waits_for_bills() {
            return refuse(control::CANCEL, OVER, out);
        }
        if self.parts.control.cancel(ControlRequest::new(reason, by), out) {
            self.cancelled_by_control(out);
        }
    }

    pub(super) fn cancelled_by_control(&mut self, out: &mut Outbox) {
        let text = self.parts.control.cancelled_text().unwrap_or_else(|| "workflow cancelled".to_owned());
        let checkpoint = self.checkpoint();
        self.parts.control.checkpoint(&checkpoint, out);
        self.look_at_held(out);
        self.strategy.cancel(text, &mut self.parts, out);
    }

    /// What had ended before the run is cancelled, or fails, was only not looked at: it was done, and may have to be undone
    /// (SHN-62). Nobody joins the team any more (SHN-27).
    fn look_at_held(&mut self, out: &mut Outbox) {
        self.parts.team.takes_nobody(out);
        let not_begun = |run: NewRun| Arrival::Answer { key: run.key, answer: Err(CallFailure::error(NOT_BEGUN)) };
        let held = self.calls.take_held().into_iter();
        let arrivals: Vec<Arrival> = held.chain(self.calls.runs_put_off().into_iter().map(not_begun)).collect();
        for arrival in arrivals {
            match arrival {
                Arrival::Answer { key: Key::Team(key), answer } => {
                    out.heard(key.clone());
                    // Whose tasks end with it, end with the run.
                    self.parts.team.answered(&key, answer, out);
                }
                Arrival::Answer { key, answer } => self.strategy.ended_before_cancel(&key, answer, out),
                Arrival::Fired { .. } | Arrival::Person { .. } => {}
            }
        }
    }

    /// What a decision about an approval means for the plan.
    pub(super) fn approval_closed(&mut self, closed: Closed, out: &mut Outbox) {
        self.parts.decided(&closed, out);
        if self.work_decided(&closed, out) {
            return;
        }
        if let Consequence::Cancel { .. } | Consequence::EndRun { .. } = closed.consequence {
            self.look_at_held(out);
        }
        let (parts, task) = (&mut self.parts, closed.task_id.clone());
        let Ok(plan) = self.strategy.plan_control() else { return };
        let of_plan = matches!(closed.scope, ApprovalScope::Plan { .. });
        // What nobody answered in time is nobody's no.
        let by = match closed.source {
            ApprovalSource::Human => Actor::Human,
            ApprovalSource::Timeout => Actor::Scheduler,
        };
        match (closed.consequence, task, closed.scope) {
            (Consequence::Proceed { action, feedback }, Some(task), ApprovalScope::Task | ApprovalScope::Action) => {
                plan.approved(&task, &action, feedback, parts, out);
            }
            (Consequence::Proceed { .. }, None, _) if of_plan => plan.plan_approved(parts, out),
            (Consequence::Retry { feedback, .. }, None, _) if of_plan => {
                let said = json!([{ "role": "user", "message": feedback }]);
                plan.ask_plan_again(&said, false, out);
            }
            (Consequence::Retry { feedback, action }, Some(task), _) => {
                plan.sent_back(&task, &feedback, action.as_deref(), parts, out);
            }
            (Consequence::Skip { reason }, Some(task), _) => plan.rejected(&task, &reason, by, parts, out),
            (Consequence::EndRun { error }, task, _) => {
                plan.required_rejected(task.as_ref(), error, by, parts, out);
            }
            (Consequence::Cancel { answer }, ..) => self.strategy.cancel(answer, parts, out),
            _ => {}
        }
    }

    /// An answer to a question of this run.
    pub(super) fn resume_interrupt(&mut self, resume: ResumeInterrupt, out: &mut Outbox) -> Result<Value, Refused> {
        // LGI-05: an answer that does not answer leaves the question as it is.
        let task = self.parts.interrupts.asked(&resume, out)?.task.clone();
        if let QuestionKey::Strategy(key) = &task {
            self.strategy.takes(key, &resume.resume)?;
            if !resume.update.is_empty() {
                self.strategy.takes_update(key)?;
            }
        }
        let resumed = self.parts.interrupts.resume(resume, out)?;
        let answer = json!({ "interrupt_id": resumed.id, "task": resumed.task });
        self.interrupt_closed(resumed, out);
        Ok(answer)
    }

    /// All questions of a task are answered, or one was not in time.
    pub(super) fn interrupt_closed(&mut self, resumed: Resumed, out: &mut Outbox) {
        let continuation = self.parts.interrupts.continuation(&resumed.task);
        let parts = &mut self.parts;
        let Ok(plan) = self.strategy.plan_control() else {
            return self.human_for_strategy(resumed, out);
        };
        let Some(task) = resumed.task.task() else { return };
        match resumed.outcome {
            Ok(_) if resumed.task_may_continue => plan.answered_by_person(&task, continuation, parts, out),
            Ok(_) => {}
            Err(why) => plan.unanswered(&task, &why.to_string(), parts, out),
        }
    }

    /// Words of a person: the answer to the only open question, or a message to the supervisor.
    fn human_input(&mut self, value: &Value, out: &mut Outbox) -> Result<(), Refused> {
        let text = match HumanInput::deserialize(value).map_err(|_| WishRefusal::NoWords)? {
            HumanInput::Interrupt { interrupt: Value::Bool(true), message: None } => return self.interrupted(out),
            HumanInput::Interrupt { .. } => return Err(WishRefusal::InterruptAlone.into()),
            HumanInput::Text(text) | HumanInput::Message { message: text } => text,
        };
        if self.parts.interrupts.pending().count() == 1 {
            return self.resume_interrupt(ResumeInterrupt::value(text.into()), out).map(|_| ());
        }
        self.hear_out(out);
        if self.strategy.say(&text, out) {
            return Ok(());
        }
        if !self.strategy.has_mail() {
            return Err(WishRefusal::NobodyListens.into());
        }
        let message = json!({ "From": HUMAN, "To": "supervisor", "Role": HUMAN, "Content": text });
        let received = self.parts.team.mailbox.received(&message, out);
        received.map_err(|why| Refused { kind: "Refused", why: why.to_string() })?;
        if let Ok(plan) = self.strategy.plan_control() {
            plan.told(&text);
        }
        Ok(())
    }

    /// A person takes the word in a chat: whatever was asked, also of people, is asked no longer.
    fn interrupted(&mut self, out: &mut Outbox) -> Result<(), Refused> {
        self.hear_out(out);
        self.strategy.interrupt(out)?;
        self.nobody_is_asked(out);
        Ok(())
    }

    /// Who takes the word while the run stands still has it after whoever had it before.
    fn hear_out(&mut self, out: &mut Outbox) {
        for arrival in self.calls.take_held() {
            let heard =
                matches!(&arrival, Arrival::Answer { key, answer } if self.strategy.overtaken(key, answer, out));
            if !heard {
                self.calls.hold(arrival);
            }
        }
    }

    /// Whatever people are still asked, nobody needs the answer any more.
    pub(super) fn nobody_is_asked(&mut self, out: &mut Outbox) {
        let asked: Vec<QuestionKey> = self.parts.interrupts.pending().map(|interrupt| interrupt.task.clone()).collect();
        for task in asked {
            self.parts.interrupts.task_ended(&task, out);
        }
    }

    /// The review of the plan has ended without an approval.
    pub(super) fn review_ended(&mut self, out: &mut Outbox) {
        let ending = self.parts.review.as_ref().and_then(|review| review.ending());
        if ending.is_some() {
            self.look_at_held(out);
        }
        let parts = &mut self.parts;
        let Ok(plan) = self.strategy.plan_control() else { return };
        match ending {
            Some(Ending::Failed(error)) => plan.review_timed_out(error, parts, out),
            Some(Ending::Cancelled(answer)) => plan.deny(answer, parts, out),
            None => {}
        }
    }

    /// A strategy itself waits for people: they are asked as a task of that key would.
    pub(super) fn ask_people_for_the_strategy(&mut self, out: &mut Outbox) {
        for OpenQuestion { key, shown, payload, silence } in self.strategy.people_needed() {
            if self.calls.holds_word_for(&key) {
                continue;
            }
            let asker = QuestionKey::Strategy(key);
            if self.parts.interrupts.pending().any(|interrupt| interrupt.task == asker) {
                continue;
            }
            let mut question = Question { payload: shown, ..question_of(asker, &payload) };
            if let Some(time) = self.parts.escalations.rules().questions.filter(|_| payload.is_null()) {
                question.timeout = Some(time.timeout);
                question.on_expiry = match time.on_timeout {
                    OnApprovalTimeout::Reject => silence.no,
                    OnApprovalTimeout::Approve => silence.yes,
                };
            }
            // A run always has an id.
            let _ = self.parts.interrupts.raise(question, out);
        }
    }

    /// The question is over, also while the run stands still; what the person said is heard now, or when it goes on.
    fn human_for_strategy(&mut self, resumed: Resumed, out: &mut Outbox) {
        let Resumed { task, outcome, update, .. } = resumed;
        self.hear(Arrival::Person { task: task.clone(), outcome, update }, out);
        self.parts.interrupts.task_ended(&task, out);
    }

    /// The strategy hears what a person said, or that nobody did in time.
    pub(super) fn told_by_person(
        &mut self,
        asker: &QuestionKey,
        outcome: Result<Value, Expired>,
        update: &Map<String, Value>,
        out: &mut Outbox,
    ) {
        let key = match asker {
            QuestionKey::Strategy(key) => key,
            QuestionKey::Task(task) => {
                let why = format!("nothing waits for an answer under `{task}`");
                return refuse(INTERRUPT_RESUME, &why, out);
            }
        };
        if let Ok(answer) = &outcome {
            self.parts.gate.answered(key, answer);
        }
        if let Err(why) = &outcome
            && self.strategy.unanswered(key, &why.to_string(), out)
        {
            return;
        }
        self.strategy.update(key, update);
        let answer = outcome.unwrap_or_else(|why| json!(why.to_string()));
        if let Err(why) = self.strategy.human(key, &answer, out) {
            refuse(INTERRUPT_RESUME, &why.to_string(), out);
        }
    }
}

pub(super) fn refuse(signal: &str, why: &str, out: &mut Outbox) {
    out.note(NoteKind::ActionRefused, json!({ "signal": signal, "why": why }));
}

/// A refusal as an update or query says it.
pub(super) fn refusal(kind: &str, why: impl Into<String>) -> Failure {
    Failure::application(kind, why.into()).non_retryable()
}
