//! What a run follows: given what was heard, a strategy chooses what is wanted next, and nothing else.
//!
//! Plans, chats and agents that call tools are strategies. What they want they leave in the outbox, and what became of it
//! they hear by its key; the account, the calls under way, people and time are the core's and the run's.
//!
//! Invariant: once it is made, the run asks a strategy for nothing but what stands here, and what only some of them have is
//! nothing by default. `G` is what holds a strategy back before a step, and is the run's. What differs by the kind of a key
//! (how an answer is read, what a run below is told) the run sees in the key itself.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::account::Balance;
use super::asker::Asker;
use super::key::Key;
use super::phase::Phase;
use super::plan_control::{NoPlan, PlanControl};
use super::question::OnExpiry;
use crate::supervisor::model::{TaskId, TaskPlan};
use crate::supervisor::outbox::{Answer, Call, Outbox, Purpose};
use crate::supervisor::task::TaskStatus;

/// The code of a run that is no success because a person said no.
pub const TASK_REJECTED: &str = "task_rejected";

/// What is said of a task that went down with its run.
pub const RUN_FAILED: &str = "the run failed";

/// What a task is told when it continues: its answers in the order of its questions, and its state if it has asked.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Continuation {
    pub answers: Vec<Value>,
    pub state: Option<Map<String, Value>>,
}

/// One task in a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    pub task_id: TaskId,
    pub title: String,
    pub status: TaskStatus,
    pub agent: Option<String>,
    pub attempts: u32,
    pub error: Option<String>,
    /// The beginning of the result.
    pub brief: Option<String>,
    /// Whether what it did was undone again; false where its compensation failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone: Option<bool>,
}

impl TaskReport {
    /// The beginning of what a task is about, or of its result.
    pub fn first_line(text: &str) -> &str {
        text.lines().next().unwrap_or_default()
    }
    pub fn brief(text: &str) -> String {
        TaskReport::first_line(text).chars().take(120).collect()
    }
}

/// A task that gave nothing, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotDone {
    pub task_id: TaskId,
    pub status: TaskStatus,
    /// Empty where nobody knows.
    pub why: String,
}

impl NotDone {
    /// Those of reports that say of every task how it stands.
    pub fn among(tasks: &[TaskReport]) -> Vec<NotDone> {
        let not_done = tasks.iter().filter(|task| task.status != TaskStatus::Completed);
        let of = |task: &TaskReport| {
            let why = task.error.clone().unwrap_or_default();
            NotDone { task_id: task.task_id.clone(), status: task.status, why }
        };
        not_done.map(of).collect()
    }
    /// In a sentence.
    pub fn text(&self) -> String {
        let why = if self.why.is_empty() { String::new() } else { format!(": {}", self.why) };
        format!("Task {} is {}{why}", self.task_id, self.status)
    }
}

/// What has come of it so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Findings {
    pub tasks: Vec<TaskReport>,
    /// Those of them that the end leaves undone, also where a rule excuses them.
    pub not_done: Vec<NotDone>,
    pub errors: Vec<String>,
    pub final_result: Option<Value>,
    pub error: Option<String>,
    pub code: Option<String>,
    /// A person has said no to a part of it, or ended it: whoever gave the work does not have them asked again.
    pub said_no: bool,
    /// Of a run that failed and has no result: what there is of its work beside its tasks.
    pub so_far: Option<String>,
    pub details: Value,
}

/// A question to people that is open in a strategy itself.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenQuestion {
    pub key: Key,
    /// What people are shown.
    pub shown: Value,
    /// What an agent asked in its own words, which may say how long it waits; null if the strategy asks.
    pub payload: Value,
    pub silence: Silence,
}

/// What it means that nobody has answered a question of a strategy, where silence is a no and where it is a yes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Silence {
    pub no: OnExpiry,
    pub yes: OnExpiry,
}

/// Why a strategy does not do what people want of it.
#[derive(Debug, thiserror::Error)]
pub enum StrategyRefusal {
    #[error("nothing waits for an answer under `{0}`")]
    NothingWaits(Key),
    #[error("whoever asks this keeps no variables that an `update` could change: answer with `resume` alone")]
    NothingToUpdate,
    #[error("only a group chat can be interrupted")]
    NotInterrupted,
    #[error("this kind of run has no processes")]
    NoProcesses,
    /// For a reason of its own.
    #[error(transparent)]
    Own(Box<dyn std::error::Error + Send + Sync>),
}

impl StrategyRefusal {
    pub fn of(why: impl std::error::Error + Send + Sync + 'static) -> Self {
        StrategyRefusal::Own(Box::new(why))
    }
}

/// See the module.
pub trait Strategy<G: ?Sized>: Asker {
    /// The run begins, with what its memory knows.
    fn begin(&mut self, known: Value, gates: &mut G, out: &mut Outbox);
    /// The answer to what was asked for under this key. One that nobody waits for is dropped.
    fn heard(&mut self, key: &Key, answer: Answer, gates: &mut G, out: &mut Outbox);
    /// A timer has fired.
    fn fired(&mut self, key: &Key, gates: &mut G, out: &mut Outbox);
    /// After every event: what may start starts.
    fn advance(&mut self, _gates: &mut G, _out: &mut Outbox) {}
    /// Ends with this text.
    fn cancel(&mut self, text: String, gates: &mut G, out: &mut Outbox);
    /// Something had ended while the run stood still, and the run is cancelled or has failed: it is told, and nothing follows it.
    fn ended_before_cancel(&mut self, _key: &Key, _answer: Answer, _out: &mut Outbox) {}
    /// The run that the whole request was handed on to has ended when nobody waited for its answer any more, or was cancelled:
    /// how far its tasks came. Nothing follows.
    fn ended_cut(&mut self, _tasks: Vec<TaskReport>) {}
    /// The run below that was begun for a task was no success, and has done something all the same: what there is of that.
    fn left_below(&mut self, _task: &TaskId, _so_far: Option<Value>) {}
    /// Whose work has ended with an answer that is not heard yet, and what it gave, if it did (SHN-67).
    fn ended_meanwhile(&self, _key: &Key, _answer: &Answer) -> Option<(TaskId, Option<Value>)> {
        None
    }

    /// The run stands still from now on, or no longer (`Outbox::is_held`, by `core::control`). While it does nothing may
    /// start, and nothing comes in: `core::calls` keeps it. A plan is held by its gates.
    fn held_or_not(&mut self, _out: &mut Outbox) {}

    /// Whether a call has to wait for people, or for the border, before it is made has changed (`AwaitedKeys::before_people`):
    /// that is no time of whoever is called.
    fn before_people(&mut self, _out: &mut Outbox) {}
    /// A person lets the work of this call begin if it is done as they say, or wants to see it so: whoever does it is told, and
    /// the call is given back as it is now. Nothing: it is done as it was shown, or not at all.
    fn instructed(&mut self, _key: &Key, _words: &str, _out: &mut Outbox) -> Option<Call> {
        None
    }

    /// The tool whose call gave the work that this call begins to whoever does it, if it was one.
    fn given_by(&self, _key: &Key) -> Option<&str> {
        None
    }

    /// The variables that go along with this call to a run below (CUG-37).
    fn variables_for(&self, _key: &Key) -> Map<String, Value> {
        Map::new()
    }

    /// Whether people are asked about its tasks before they start, by what is said while it runs.
    fn asks_before_tasks(&self) -> bool {
        false
    }

    /// The budget is spent: nobody is waited for whose word would only cost more. A plan looks at it whenever it goes on.
    fn exhausted(&mut self, _out: &mut Outbox) {}
    /// A call waited for more budget, and there is no more: the call as it is made now, if it may be the last word; else it is
    /// refused as unpaid. None: the strategy has gone on without it.
    fn no_more_for(&mut self, call: Call, out: &mut Outbox) -> Option<Call> {
        let is_last = call.purpose == Purpose::Synthesize && out.budget().has_last_word();
        Some(if is_last { call.last_word() } else { call })
    }
    /// Whether the budget has left anything undone: such a run is no success.
    fn is_cut(&self) -> bool;
    /// Whether one call at a time is made.
    fn is_one_at_a_time(&self) -> bool;
    /// Whether something waits for people to give the run more.
    fn wants_more(&self, _out: &Outbox) -> bool {
        false
    }

    /// The phase in the words of the run machine.
    fn phase(&self) -> Phase;
    /// Whether the run may call its end a success (see `supervisor::success`).
    fn success(&self) -> bool;
    fn findings(&self, budget: &Balance) -> Findings;
    /// The name of the next point where the run can stop (SHN-64).
    fn checkpoint(&self) -> String {
        "pre_turn".to_owned()
    }
    /// What another run needs to go on from here: the key `resume` of its spec. Null where nothing can be gone on from.
    fn resume_point(&self, _run: &str) -> Value {
        Value::Null
    }

    /// `held`: the run stands still. `is_answered`: a person has answered what is asked under this key, and is heard when the
    /// run goes on.
    fn view(&self, held: bool, is_answered: &dyn Fn(&Key) -> bool) -> Value;
    /// What a live tree draws, one row each, and what it shows beside the rows.
    fn rows(&self) -> Vec<Value>;
    fn beside_rows(&self, held: bool, is_answered: &dyn Fn(&Key) -> bool) -> Value {
        self.view(held, is_answered)
    }

    /// The plan, where there is one.
    fn plan(&self) -> Option<&TaskPlan> {
        None
    }
    /// The plan in the hands of people and the team.
    fn plan_control(&mut self) -> Result<&mut dyn PlanControl<G>, NoPlan> {
        Err(NoPlan::NoTasks)
    }
    /// The place in the plan, from 1, of the next task that is not over and does not run.
    fn next_step(&self) -> Option<u32> {
        None
    }
    fn status_board(&self) -> Value {
        Value::Null
    }
    fn deadlock_report(&self) -> Option<&str> {
        None
    }
    fn why_not_running(&self, _task: &TaskId, _gates: &mut G, _out: &mut Outbox) -> Value {
        Value::Null
    }
    /// What memory learns of a success: how it was done, and in which parts.
    fn decomposition(&self) -> Option<(String, Value)> {
        None
    }

    fn people_needed(&self) -> Vec<OpenQuestion> {
        Vec::new()
    }
    /// Whether an answer of a person is one to what they are asked under this key. Changes nothing.
    fn takes(&self, _key: &Key, _answer: &Value) -> Result<(), StrategyRefusal> {
        Ok(())
    }
    /// Whether whoever asked under this key keeps anything that an answer could change with it. What a task of a plan keeps is
    /// known by its questions (`people::interrupts`).
    fn takes_update(&self, _key: &Key) -> Result<(), StrategyRefusal> {
        Ok(())
    }
    /// What a person says with their answer, before the answer is heard (LGI-09).
    fn update(&mut self, _key: &Key, _update: &Map<String, Value>) {}
    /// A person's answer to what they were asked under this key.
    fn human(&mut self, key: &Key, _answer: &Value, _out: &mut Outbox) -> Result<(), StrategyRefusal> {
        Err(StrategyRefusal::NothingWaits(key.clone()))
    }
    /// Nobody answered in time. `false`: whoever asked takes the word for an answer.
    fn unanswered(&mut self, _key: &Key, _why: &str, _out: &mut Outbox) -> bool {
        false
    }
    /// A person is about to take the word: what was said under this key before, and is not heard yet, comes first. Whether it
    /// was heard now.
    fn overtaken(&mut self, _key: &Key, _answer: &Answer, _out: &mut Outbox) -> bool {
        false
    }
    /// A person speaks up. Whether it is one that listens to them now.
    fn say(&mut self, _text: &str, _out: &mut Outbox) -> bool {
        false
    }
    /// A person takes the word (AGC-12).
    fn interrupt(&mut self, _out: &mut Outbox) -> Result<(), StrategyRefusal> {
        Err(StrategyRefusal::NotInterrupted)
    }
    /// Whether somebody reads the mail of the run: tasks and chats do.
    fn has_mail(&self) -> bool {
        true
    }
    /// Whether its agents register themselves (`outbox::Fact`); tasks are registered by the team.
    fn registers_agents(&self) -> bool {
        false
    }
    fn process_query(&self, name: &str, _value: &Value) -> Result<Value, StrategyRefusal> {
        if name == "list_processes" { Ok(json!([])) } else { Err(StrategyRefusal::NoProcesses) }
    }
    fn kill_process(&mut self, _value: &Value, _out: &mut Outbox) -> Result<Value, StrategyRefusal> {
        Err(StrategyRefusal::NoProcesses)
    }
}
