//! Interrupts: a task stops in the middle and asks; the answer comes back into it, and nothing runs twice.
//!
//! ```text
//! raise -> pending --(answer)--> answered: the task continues with every answer it got, in order
//!             '----(deadline)--> answered by the default, or failed
//! ```
//!
//! Invariant: an id is used once; an answer is given to one interrupt and leaves the others as they are; what was
//! answered is never asked again. A task that continues is told its answers and its state, so that it starts where it
//! stopped: calls that were made before are in the log and are not made again. It runs nothing itself.

use std::collections::BTreeMap;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::below::How;
use crate::supervisor::core::answer::{InvalidAnswer, decode, shown_hash};
use crate::supervisor::core::key::PeopleKey;
use crate::supervisor::core::question::QuestionKey;
pub use crate::supervisor::core::question::{Expired, OnExpiry};
use crate::supervisor::core::strategy::Continuation;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::Outbox;
use crate::supervisor::spec::Span;

/// How many questions that nobody has answered are remembered.
const UNANSWERED_MAX: usize = 1_000;

/// One question of a task (supervisors.md §5.5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interrupt {
    /// `<run>/in-<n>`.
    pub id: String,
    pub task: QuestionKey,
    /// Which question of the task it is; from 1.
    pub index: u32,
    pub payload: Value,
    pub raised_at: Timestamp,
    pub deadline: Option<Timestamp>,
    on_expiry: OnExpiry,
    /// The hash of what is shown; an answer may name it, and then counts for nothing else.
    #[serde(default)]
    pub shown: String,
    #[serde(default)]
    pub answer: Option<Value>,
}

/// A task asks.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub task: QuestionKey,
    pub payload: Value,
    pub timeout: Option<Span>,
    pub on_expiry: OnExpiry,
}

impl Question {
    pub fn new(task: impl Into<QuestionKey>, payload: Value) -> Self {
        Question { task: task.into(), payload, timeout: None, on_expiry: OnExpiry::Fail }
    }
}

/// The signal `interrupt_resume_v1` and the update `respond_interrupt`: `Command(resume=...)`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeInterrupt {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_id: Option<String>,
    /// The oldest question of this task, if no id is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub task: Option<QuestionKey>,
    /// What `interrupt` returns.
    #[serde(default)]
    pub resume: Value,
    /// Merged into the task's state before it continues (LGI-09).
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub update: Map<String, Value>,
    /// The hash of what the person saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
}

impl ResumeInterrupt {
    pub fn read(value: &Value) -> Result<Self, ResumeRefusal> {
        decode("interrupt answer", value).map_err(ResumeRefusal::Invalid)
    }
    pub fn value(resume: Value) -> Self {
        ResumeInterrupt { resume, ..ResumeInterrupt::default() }
    }
}

/// Why an answer is refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ResumeRefusal {
    #[error("When there are multiple pending interrupts, you must specify the interrupt id when resuming.")]
    IdNeeded,
    #[error("There is no pending interrupt to resume.")]
    NonePending,
    #[error("No interrupt with id '{id}' was raised in this run.")]
    Unknown { id: String },
    #[error("The interrupt '{id}' is answered already.")]
    Answered { id: String },
    #[error("The interrupt '{id}' was not answered in time.")]
    Late { id: String },
    #[error("The interrupt '{id}' is void: {reason}.")]
    Void { id: String, reason: String },
    #[error("The answer is for another version of what was shown for the interrupt '{id}'; look at the latest.")]
    Stale { id: String },
    #[error("{0}")]
    Invalid(InvalidAnswer),
}

impl ResumeRefusal {
    /// What has become of an interrupt that does not wait any more.
    pub fn over(id: &str, how: How) -> Self {
        let id = id.to_owned();
        match how {
            How::Answered => ResumeRefusal::Answered { id },
            How::Late => ResumeRefusal::Late { id },
            How::Void { reason } => ResumeRefusal::Void { id, reason },
        }
    }
}

/// An interrupt was asked for where none can be (LGI-03).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("interrupt needs a run with an id and a log: there is nothing that could be resumed")]
pub struct CannotInterrupt;

/// A task may continue.
#[derive(Debug, Clone, PartialEq)]
pub struct Resumed {
    pub id: String,
    pub task: QuestionKey,
    pub index: u32,
    /// What `interrupt` returns, or why the wait failed.
    pub outcome: Result<Value, Expired>,
    /// What was said with the answer.
    pub update: Map<String, Value>,
    /// Whether no question of the task is open any more.
    pub task_may_continue: bool,
}

/// Where a node that asked for approval goes (LGI-02).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goto {
    Execute,
    RevisePlan { feedback: String },
}

impl Goto {
    /// Approved means `true`, or an object that says so; anything else is revised.
    pub fn of(answer: &Value) -> Self {
        let approved = answer.get("approved").unwrap_or(answer).as_bool().unwrap_or(false);
        if approved {
            return Goto::Execute;
        }
        let feedback = answer.get("feedback").and_then(Value::as_str).or(answer.as_str()).unwrap_or_default();
        Goto::RevisePlan { feedback: feedback.to_owned() }
    }
}

/// What is kept of a task that has asked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct TaskQuestions {
    count: u32,
    /// The answers, by the order of the questions.
    answers: BTreeMap<u32, Value>,
    state: Map<String, Value>,
}

/// The interrupts of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Interrupts {
    count: u64,
    pending: BTreeMap<u64, Interrupt>,
    tasks: BTreeMap<QuestionKey, TaskQuestions>,
    /// Those that nobody has answered, and never will; of many, the newest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    unanswered: BTreeMap<u64, How>,
}

impl Interrupts {
    /// A task stops and asks. The payload goes to whoever asks the run (LGI-01).
    pub fn raise(&mut self, question: Question, out: &mut Outbox) -> Result<String, CannotInterrupt> {
        if out.run().is_empty() {
            return Err(CannotInterrupt);
        }
        self.count += 1;
        let n = self.count;
        let asked = self.tasks.entry(question.task.clone()).or_default();
        asked.count += 1;
        let id = format!("{}/in-{n}", out.run());
        let deadline = question.timeout.map(|timeout| out.now().plus(timeout.duration()));
        let interrupt = Interrupt {
            id: id.clone(),
            task: question.task,
            index: asked.count,
            payload: question.payload,
            raised_at: out.now(),
            deadline,
            on_expiry: question.on_expiry,
            shown: String::new(),
            answer: None,
        };
        let seen = json!({ "task": interrupt.task, "index": interrupt.index, "payload": interrupt.payload });
        let interrupt = Interrupt { shown: shown_hash(&seen), ..interrupt };
        out.note(NoteKind::InterruptRaised, json!(interrupt));
        if let Some(deadline) = deadline {
            out.timer(PeopleKey::InterruptDeadline(n), deadline, format!("interrupt {id}"));
        }
        self.pending.insert(n, interrupt);
        Ok(id)
    }

    /// Which interrupt the answer is for, or why none. Changes nothing.
    pub fn accepts(&self, resume: &ResumeInterrupt, out: &Outbox) -> Result<u64, ResumeRefusal> {
        if let Some(id) = &resume.interrupt_id {
            let number = || id.strip_prefix(out.run())?.strip_prefix("/in-")?.parse::<u64>().ok();
            let own = || number().filter(|n| (1..=self.count).contains(n) && *id == format!("{}/in-{n}", out.run()));
            // A fork has questions with ids of its source.
            let kept = self.pending.iter().find(|(_, interrupt)| interrupt.id == *id).map(|(n, _)| *n);
            let Some(n) = kept.or_else(own) else { return Err(ResumeRefusal::Unknown { id: id.clone() }) };
            return match self.pending.get(&n) {
                Some(interrupt) => interrupt.takes(resume).map(|()| n),
                None => Err(ResumeRefusal::over(id, self.what_became_of(n))),
            };
        }
        let found = match &resume.task {
            Some(task) => self.pending.iter().find(|(_, interrupt)| interrupt.task == *task),
            None if self.pending.len() > 1 => return Err(ResumeRefusal::IdNeeded),
            None => self.pending.iter().next(),
        };
        let (n, interrupt) = found.ok_or(ResumeRefusal::NonePending)?;
        interrupt.takes(resume).map(|()| *n)
    }

    fn what_became_of(&self, n: u64) -> How {
        self.unanswered.get(&n).cloned().unwrap_or(How::Answered)
    }

    /// What became of one that does not wait any more, by its id.
    pub fn over(&self, id: &str) -> How {
        let n = id.rsplit_once("/in-").and_then(|(_, n)| n.parse().ok());
        n.map_or(How::Answered, |n| self.what_became_of(n))
    }

    fn never_answered(&mut self, n: u64, how: How) {
        self.unanswered.insert(n, how);
        if self.unanswered.len() > UNANSWERED_MAX {
            self.unanswered.pop_first();
        }
    }

    /// The question that the answer is for, or why there is none. Changes nothing.
    pub fn asked(&self, resume: &ResumeInterrupt, out: &Outbox) -> Result<&Interrupt, ResumeRefusal> {
        let n = self.accepts(resume, out)?;
        self.pending.get(&n).ok_or(ResumeRefusal::NonePending)
    }

    /// Whether a person has answered the task anything.
    pub fn has_answers(&self, task: impl Into<QuestionKey>) -> bool {
        self.tasks.get(&task.into()).is_some_and(|asked| !asked.answers.is_empty())
    }

    /// A person answers.
    pub fn resume(&mut self, resume: ResumeInterrupt, out: &mut Outbox) -> Result<Resumed, ResumeRefusal> {
        let n = self.accepts(&resume, out)?;
        let Some(interrupt) = self.pending.remove(&n) else { return Err(ResumeRefusal::NonePending) };
        if interrupt.deadline.is_some() {
            out.cancel_timer(PeopleKey::InterruptDeadline(n));
        }
        let asked = self.tasks.entry(interrupt.task.clone()).or_default();
        asked.state.extend(resume.update.clone());
        Ok(self.close(interrupt, Ok(resume.resume), &resume.update, out))
    }

    /// The deadline of an interrupt has come.
    pub fn fired(&mut self, n: u64, out: &mut Outbox) -> Option<Resumed> {
        let interrupt = self.pending.remove(&n)?;
        self.never_answered(n, How::Late);
        let outcome = match &interrupt.on_expiry {
            OnExpiry::Answer(value) => Ok(value.clone()),
            OnExpiry::Fail => Err(Expired),
        };
        Some(self.close(interrupt, outcome, &Map::new(), out))
    }

    fn close(
        &mut self,
        interrupt: Interrupt,
        outcome: Result<Value, Expired>,
        update: &Map<String, Value>,
        out: &mut Outbox,
    ) -> Resumed {
        let Interrupt { id, task, index, .. } = interrupt;
        let data = match &outcome {
            Ok(answer) => json!({ "id": id, "task": task, "index": index, "answer": answer, "update": update }),
            Err(why) => json!({ "id": id, "task": task, "index": index, "error": why.to_string() }),
        };
        out.note(NoteKind::InterruptAnswered, data);
        if let Ok(answer) = &outcome {
            self.tasks.entry(task.clone()).or_default().answers.insert(index, answer.clone());
        }
        let task_may_continue = !self.pending.values().any(|other| other.task == task);
        Resumed { id, task, index, outcome, update: update.clone(), task_may_continue }
    }

    /// What a task is told when it continues.
    pub fn continuation(&self, task: impl Into<QuestionKey>) -> Continuation {
        let asked = self.tasks.get(&task.into());
        Continuation {
            answers: asked.map(|asked| asked.answers.values().cloned().collect()).unwrap_or_default(),
            state: asked.map(|asked| asked.state.clone()),
        }
    }

    /// The task has ended: its questions are void and its answers are not needed any more.
    pub fn task_ended(&mut self, task: impl Into<QuestionKey>, out: &mut Outbox) {
        let task = task.into();
        self.tasks.remove(&task);
        let of_it = self.pending.iter().filter(|(_, interrupt)| interrupt.task == task);
        for n in of_it.map(|(n, _)| *n).collect::<Vec<_>>() {
            if self.pending.remove(&n).is_some_and(|interrupt| interrupt.deadline.is_some()) {
                out.cancel_timer(PeopleKey::InterruptDeadline(n));
            }
            self.never_answered(n, How::Void { reason: "the task is over".to_owned() });
        }
    }

    /// What waits, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = &Interrupt> {
        self.pending.values()
    }
    pub fn get(&self, id: &str) -> Option<&Interrupt> {
        self.pending.values().find(|interrupt| interrupt.id == id)
    }

    /// The query `pending_interrupts`.
    pub fn view(&self) -> Value {
        json!(self.pending.values().collect::<Vec<_>>())
    }
}

impl Interrupt {
    /// Whether an answer that names it is about what is shown. It is in time while the timer of the deadline is not heard.
    fn takes(&self, resume: &ResumeInterrupt) -> Result<(), ResumeRefusal> {
        let id = || self.id.clone();
        match &resume.shown {
            Some(shown) if *shown != self.shown => Err(ResumeRefusal::Stale { id: id() }),
            Some(_) | None => Ok(()),
        }
    }
}
