//! What a supervisor's parts ask of the world, and what they note for the log.
//!
//! A part (mailbox, approvals, group chat ...) is a pure structure with methods that take what happened and an
//! [`Outbox`]; it changes its state and leaves asks and notes there. The workflow turns asks into commands and gives
//! each answer back under the same key.
//!
//! Invariant: a key is used for one ask only, asks are carried out in the order they were left, and nothing here happens
//! before the turn is durable. During a turn it also holds the awaited keys, so that
//! each ask and each cancellation here changes them at once. It decides nothing.

mod answer;
mod fact;

use std::time::Duration;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::answer::{Answer, CallFailure, CallFailureKind};
pub use self::fact::{Doer, Fact, WorkEnd};
use super::core::account::Balance;
use super::core::awaited::{AnswerSource, AwaitedKeys};
use super::core::key::Key;
use super::journal::{Note, NoteKind};
use super::model::TaskId;

/// What a call is for: the activity's name (supervisors.md §5.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    Plan,
    Decide,
    ExecuteWorker,
    Review,
    Synthesize,
    Advise,
    FetchMemory,
    RecordDecomposition,
    AuthorizeTeamAction,
    NotifyForApproval,
    LogApprovalResult,
    EmitProgress,
    Compensate,
}

impl Purpose {
    pub const ALL: [Purpose; 13] = [
        Purpose::Plan,
        Purpose::Decide,
        Purpose::ExecuteWorker,
        Purpose::Review,
        Purpose::Synthesize,
        Purpose::Advise,
        Purpose::FetchMemory,
        Purpose::RecordDecomposition,
        Purpose::AuthorizeTeamAction,
        Purpose::NotifyForApproval,
        Purpose::LogApprovalResult,
        Purpose::EmitProgress,
        Purpose::Compensate,
    ];
    pub fn as_str(self) -> &'static str {
        match self {
            Purpose::Plan => "plan",
            Purpose::Decide => "decide",
            Purpose::ExecuteWorker => "execute_worker",
            Purpose::Review => "review",
            Purpose::Synthesize => "synthesize",
            Purpose::Advise => "advise",
            Purpose::FetchMemory => "fetch_memory",
            Purpose::RecordDecomposition => "record_decomposition",
            Purpose::AuthorizeTeamAction => "authorize_team_action",
            Purpose::NotifyForApproval => "notify_for_approval",
            Purpose::LogApprovalResult => "log_approval_result",
            Purpose::EmitProgress => "emit_progress",
            Purpose::Compensate => "compensate",
        }
    }
}

/// What the account of the run makes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// It counts as a call, and is withheld when the budget is spent.
    Call,
    /// A tool, a function, a draw: withheld like others, and no call of a model.
    Tool,
    /// What a run needs to end in order, and to keep its word to people. It is made also without a budget.
    Free,
}

impl Purpose {
    fn weight(self) -> Weight {
        match self {
            Purpose::Plan
            | Purpose::Decide
            | Purpose::ExecuteWorker
            | Purpose::Review
            | Purpose::Synthesize
            | Purpose::Advise => Weight::Call,
            Purpose::FetchMemory
            | Purpose::RecordDecomposition
            | Purpose::AuthorizeTeamAction
            | Purpose::NotifyForApproval
            | Purpose::LogApprovalResult
            | Purpose::EmitProgress
            | Purpose::Compensate => Weight::Free,
        }
    }
}

/// One call of a model, worker, critic, policy or sink: an activity, one per key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub key: Key,
    pub purpose: Purpose,
    /// Who is called, by the name in the spec; nobody in particular for plumbing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The attempt of the task, or the try of a selection; from 1.
    pub attempt: u32,
    /// The cycle, iteration or turn of the run it belongs to; from 1.
    pub round: u32,
    /// What a model is told: built by a pure function from the state; its hash is recorded with the decision.
    pub prompt: String,
    /// The same as data, for agents that are no models.
    pub context: Value,
    /// How long the call may take; the agent's own limit if it says none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// A tool, a function or a draw, and no call of a model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tool: bool,
    /// The budget of the run is spent, and this call puts together what there is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

impl Call {
    pub fn new(key: impl Into<Key>, purpose: Purpose, context: Value) -> Self {
        Call {
            key: key.into(),
            purpose,
            agent: None,
            task: None,
            attempt: 1,
            round: 1,
            prompt: String::new(),
            context,
            timeout: None,
            tool: false,
            last: false,
        }
    }
    #[must_use]
    pub fn tool(mut self) -> Self {
        self.tool = true;
        self
    }
    pub fn weight(&self) -> Weight {
        match self.purpose.weight() {
            Weight::Call if self.tool => Weight::Tool,
            weight => weight,
        }
    }
    /// Undoing needs no part of a budget, is not put off for want of one, and has all the time that it needs (SHN-62). What
    /// else is free of charge is bounded, where a run or an agent does it.
    pub fn needs_no_part(&self) -> bool {
        self.purpose == Purpose::Compensate
    }
    #[must_use]
    pub fn last_word(mut self) -> Self {
        self.last = true;
        self
    }
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>) -> Self {
        self.agent = Some(name.into());
        self
    }
    #[must_use]
    pub fn task(mut self, task: TaskId, attempt: u32) -> Self {
        (self.task, self.attempt) = (Some(task), attempt);
        self
    }
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }
    #[must_use]
    pub fn round(mut self, round: u32) -> Self {
        self.round = round;
        self
    }
    #[must_use]
    pub fn prompt(mut self, prompt: String) -> Self {
        self.prompt = prompt;
        self
    }
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// What kind of run a child is (supervisors.md §5.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildKind {
    Dag,
    SimpleTask,
}

/// What a child is asked for; its spec is made of its parent's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChildTask {
    pub query: String,
    pub role: Option<String>,
    /// Who does it, where it is one task already.
    pub agent: Option<String>,
    /// What the team calls whoever does it.
    pub agent_id: Option<String>,
    /// The plan, where there is one.
    pub plan: Option<Value>,
    /// It is one task already, and its result is the result.
    pub is_planned: bool,
}

/// One thing the workflow is to ask of the engine.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    Call(Call),
    /// The call's answer is not wanted any more; one that comes all the same is the caller's to drop.
    CancelCall {
        key: Key,
    },
    Timer {
        key: Key,
        at: Timestamp,
        label: String,
    },
    CancelTimer {
        key: Key,
    },
    /// Its start and end are answered under the key.
    StartChild {
        key: Key,
        kind: ChildKind,
        task: ChildTask,
    },
    SignalChild {
        key: Key,
        signal: &'static str,
        input: Value,
    },
    CancelChild {
        key: Key,
        reason: String,
    },
    /// To another run, by workflow id.
    SignalExternal {
        key: Key,
        workflow_id: String,
        signal: String,
        input: Value,
    },
}

/// Where asks and notes of one turn are left.
#[derive(Debug, Clone)]
pub struct Outbox {
    now: Timestamp,
    run: String,
    asks: Vec<Ask>,
    notes: Vec<Note>,
    facts: Vec<Fact>,
    budget: Balance,
    held: bool,
    awaited: AwaitedKeys,
}

impl Outbox {
    /// `run` names the run in ids that are made here.
    pub fn new(run: impl Into<String>, now: Timestamp) -> Self {
        let (budget, awaited) = (Balance::default(), AwaitedKeys::default());
        let (asks, notes, facts) = (Vec::new(), Vec::new(), Vec::new());
        Outbox { now, run: run.into(), asks, notes, facts, budget, held: false, awaited }
    }
    /// The account as it stands: families ask it before they ask for anything.
    #[must_use]
    pub fn with_budget(mut self, budget: Balance) -> Self {
        self.budget = budget;
        self
    }
    /// Whether the run stands still, so that nothing may begin: `core::control` says so.
    #[must_use]
    pub fn with_held(mut self, held: bool) -> Self {
        self.held = held;
        self
    }
    pub fn set_held(&mut self, held: bool) {
        self.held = held;
    }
    pub fn is_held(&self) -> bool {
        self.held
    }
    pub fn budget(&self) -> &Balance {
        &self.budget
    }
    pub fn set_budget(&mut self, budget: Balance) {
        self.budget = budget;
    }
    /// What the run waits for, as it stands.
    #[must_use]
    pub fn with_awaited(mut self, awaited: AwaitedKeys) -> Self {
        self.awaited = awaited;
        self
    }
    pub fn awaited(&self) -> &AwaitedKeys {
        &self.awaited
    }
    pub fn awaited_mut(&mut self) -> &mut AwaitedKeys {
        &mut self.awaited
    }
    /// The end of the turn, or of a part of it: what the run waits for now.
    #[must_use]
    pub fn take_awaited(&mut self) -> AwaitedKeys {
        std::mem::take(&mut self.awaited)
    }
    /// Workflow time: the time of the event that is handled.
    pub fn now(&self) -> Timestamp {
        self.now
    }
    pub fn run(&self) -> &str {
        &self.run
    }
    pub fn ask(&mut self, ask: Ask) {
        match &ask {
            Ask::Call(call) => self.awaited.asked(&call.key, AnswerSource::Call),
            Ask::StartChild { key, .. } => self.awaited.asked(key, AnswerSource::Child),
            Ask::CancelCall { key } | Ask::CancelChild { key, .. } => drop(self.awaited.heard(key)),
            Ask::Timer { key, at, .. } => self.awaited.until(key.clone(), *at),
            Ask::CancelTimer { key } => drop(self.awaited.taken_back(key)),
            Ask::SignalChild { .. } | Ask::SignalExternal { .. } => {}
        }
        self.asks.push(ask);
    }
    pub fn call(&mut self, call: Call) {
        self.budget.sent(&call);
        self.ask(Ask::Call(call));
    }
    /// Whoever asked hears the answer: whether it was waited for.
    pub fn heard(&mut self, key: impl Into<Key>) -> bool {
        self.awaited.heard(&key.into())
    }
    pub fn timer(&mut self, key: impl Into<Key>, at: Timestamp, label: impl Into<String>) {
        self.ask(Ask::Timer { key: key.into(), at, label: label.into() });
    }
    /// The time has come: whether it was waited for.
    pub fn came(&mut self, key: impl Into<Key>) -> bool {
        self.awaited.came(&key.into())
    }
    /// Nobody waits for the time any more; of one that stands still there is no timer.
    pub fn cancel_timer(&mut self, key: impl Into<Key>) {
        let key = key.into();
        if !self.awaited.taken_back(&key) {
            self.asks.push(Ask::CancelTimer { key });
        }
    }
    /// The time passes, or stands still with what is left of it. A time that nobody waits for does neither.
    pub fn keep_time(&mut self, key: impl Into<Key>, passes: bool, label: impl FnOnce() -> String) {
        let key = key.into();
        if passes {
            if let Some(at) = self.awaited.goes_on(&key, self.now) {
                self.asks.push(Ask::Timer { key, at, label: label() });
            }
        } else if self.awaited.stands_still(&key, self.now) {
            self.asks.push(Ask::CancelTimer { key });
        }
    }
    /// Notes what has happened, for the log.
    pub fn note(&mut self, kind: NoteKind, data: Value) {
        self.notes.push(Note { kind, data });
    }
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }
    pub fn asks(&self) -> &[Ask] {
        &self.asks
    }
    /// What was left, in order.
    pub fn take(&mut self) -> (Vec<Ask>, Vec<Note>) {
        (std::mem::take(&mut self.asks), std::mem::take(&mut self.notes))
    }
}
