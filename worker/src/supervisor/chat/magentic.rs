//! Magentic-One's orchestrator: a task ledger (facts and plan) around a progress ledger per round.
//!
//! ```text
//!   facts ──► plan ──► task ledger broadcast ──► progress ledger ──► instruction ──► speaker ──┐
//!     ▲                                               ▲  │  │                                  │
//!     └── 3 stalls: facts and plan anew ◄─────────────┼──┘  └──► satisfied: final answer       │
//!                                                     └────────────────────────────────────────┘
//! ```
//!
//! Invariant: a stall is counted once a round, and one is taken back by a round with progress, never below none; the
//! number of progress ledgers is bounded by the rounds of the rules, their tries by `max_json_retries`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::machine::{ChatPhase, GroupChat};
use super::message::{ChatMessage, failed_by_itself};
use super::rules::ChatError;
use super::text;
use super::view::Stop;
use crate::supervisor::core::key::ChatAsk;
use crate::supervisor::core::retry::Tries;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Answer, Call, Outbox, Purpose};
use crate::supervisor::prompts::prompt_hash;
use crate::supervisor::reading::{Unreadable, read};

/// What the orchestrator knows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct TaskLedger {
    pub(super) task: String,
    pub(super) facts: String,
    pub(super) plan: String,
    /// Whether there is a plan for the task of this run.
    pub(super) planned: bool,
    pub(super) stalls: u32,
    /// Progress ledgers of this run.
    pub(super) rounds: u32,
}

/// What the orchestrator was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OrchestratorStep {
    Facts,
    Plan,
    Progress { tries: u32 },
    FactsUpdate,
    PlanUpdate,
    FinalAnswer { reason: String },
}

impl OrchestratorStep {
    fn ask(&self) -> ChatAsk {
        match self {
            OrchestratorStep::Facts => ChatAsk::Facts,
            OrchestratorStep::Plan => ChatAsk::Plan,
            OrchestratorStep::Progress { .. } => ChatAsk::ProgressLedger,
            OrchestratorStep::FactsUpdate => ChatAsk::FactsUpdate,
            OrchestratorStep::PlanUpdate => ChatAsk::PlanUpdate,
            OrchestratorStep::FinalAnswer { .. } => ChatAsk::FinalAnswer,
        }
    }
    fn purpose(&self) -> Purpose {
        match self {
            OrchestratorStep::Facts
            | OrchestratorStep::Plan
            | OrchestratorStep::FactsUpdate
            | OrchestratorStep::PlanUpdate => Purpose::Plan,
            OrchestratorStep::Progress { .. } => Purpose::Decide,
            OrchestratorStep::FinalAnswer { .. } => Purpose::Synthesize,
        }
    }
}

/// One answer of the progress ledger: with its reason, or alone.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum LedgerEntry<T> {
    Reasoned { answer: T, reason: String },
    Plain(T),
}

impl<T> LedgerEntry<T> {
    fn answer(self) -> T {
        match self {
            LedgerEntry::Reasoned { answer, .. } | LedgerEntry::Plain(answer) => answer,
        }
    }
}

#[derive(Debug, Deserialize)]
struct ProgressLedger {
    is_request_satisfied: LedgerEntry<bool>,
    is_in_loop: LedgerEntry<bool>,
    is_progress_being_made: LedgerEntry<bool>,
    /// May be absent in a team of one.
    #[serde(default)]
    next_speaker: Option<LedgerEntry<Value>>,
    #[serde(alias = "instruction_or_question")]
    instruction: LedgerEntry<String>,
}

/// A progress ledger that was read and checked.
enum LedgerDecision {
    Satisfied { reason: String },
    Next { stalled: bool, speaker: String, instruction: String },
}

/// Why a progress ledger is none.
#[derive(Debug, thiserror::Error)]
enum LedgerUnread {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("next_speaker: {0} is no participant")]
    Stranger(Value),
    #[error("missing field `next_speaker`")]
    NoSpeaker,
    #[error("next_speaker: {0} may not speak now")]
    Refused(String),
}

impl GroupChat {
    /// After a message: the next round, or the first plan. What was said until there is one is the task.
    pub(super) fn orchestrate(&mut self, out: &mut Outbox) {
        if self.ledger.planned && self.is_stuck() {
            // A person took the word while the new plan was made: it is made with their words.
            return self.ask_orchestrator(OrchestratorStep::FactsUpdate, 1, out);
        }
        if self.ledger.planned {
            return self.ask_progress(1, out);
        }
        let task = self.messages.get(self.run_from..).unwrap_or_default();
        self.ledger.task = task.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join(" ");
        self.ledger.stalls = 0;
        self.ask_orchestrator(OrchestratorStep::Facts, 1, out);
    }

    /// Whether there are too many stalls for the plan that there is.
    fn is_stuck(&self) -> bool {
        self.ledger.stalls >= self.rules.max_stalls
    }

    /// Tells what there is, for this reason.
    pub(super) fn answer_finally(&mut self, reason: String, out: &mut Outbox) {
        self.ask_orchestrator(OrchestratorStep::FinalAnswer { reason }, 1, out);
    }

    /// The next round, or the final answer when there are no more rounds.
    fn ask_progress(&mut self, tries: u32, out: &mut Outbox) {
        if tries > 1 {
            return self.ask_orchestrator(OrchestratorStep::Progress { tries }, tries, out);
        }
        if self.ledger.rounds >= self.rules.max_round {
            if !self.refused.is_empty() && !self.has_spoken() {
                // Nobody is paid to tell what nobody has done.
                return self.nobody_is_left(out);
            }
            self.unsatisfied = true;
            return self.answer_finally("Max rounds reached.".to_owned(), out);
        }
        self.ledger.rounds += 1;
        self.ask_orchestrator(OrchestratorStep::Progress { tries }, tries, out);
    }

    fn ask_orchestrator(&mut self, step: OrchestratorStep, attempt: u32, out: &mut Outbox) {
        let team = text::roles(&self.agents);
        let TaskLedger { task, facts, plan, .. } = &self.ledger;
        let question = match &step {
            OrchestratorStep::Facts => text::facts(task),
            OrchestratorStep::Plan => text::plan(task, facts, &team),
            OrchestratorStep::Progress { .. } => text::progress(task, &team, &self.free_names()),
            OrchestratorStep::FactsUpdate => text::facts_update(task, facts),
            OrchestratorStep::PlanUpdate => text::plan_update(task, facts, &team),
            OrchestratorStep::FinalAnswer { .. } => text::final_answer(task),
        };
        let prompt = match step {
            OrchestratorStep::Facts | OrchestratorStep::Plan => question,
            _ => format!("{}\n\n{question}", text::conversation(self.seen())),
        };
        let manager = &self.rules.manager;
        let messages: Vec<Value> = self.seen().iter().map(|message| message.for_reader(manager)).collect();
        let context = json!({
            "team": self.rules.team, "step": step.ask().as_str(), "task": task, "facts": facts, "plan": plan,
            "agents": self.names(), "messages": messages, "attempt": attempt,
        });
        let note = json!({ "by": step.ask().as_str(), "attempt": attempt, "prompt_hash": prompt_hash(&prompt) });
        out.note(NoteKind::DecisionRequested, note);
        let key = self.next_key(step.ask());
        let call = Call::new(key, step.purpose(), context).attempt(attempt).prompt(prompt);
        self.stage = ChatPhase::Ledger(step);
        self.ask(call, out);
    }

    pub(super) fn ledger_answered(&mut self, step: OrchestratorStep, answer: Answer, out: &mut Outbox) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => return self.fail_for(&failure, out),
        };
        if let Some(why) = failed_by_itself(&answer) {
            return self.fail(&why, out);
        }
        if let OrchestratorStep::Progress { tries } = step {
            return self.progress_answered(tries, &answer, out);
        }
        let Some(said) = answer.as_str().or_else(|| answer.get("content")?.as_str()).map(str::to_owned) else {
            let error = ChatError::Answer {
                speaker: step.ask().as_str().to_owned(),
                why: "content: expected a text".to_owned(),
            };
            return self.fail(&error.to_string(), out);
        };
        match step {
            OrchestratorStep::Facts | OrchestratorStep::FactsUpdate => {
                self.ledger.facts = said;
                let next =
                    if step == OrchestratorStep::Facts { OrchestratorStep::Plan } else { OrchestratorStep::PlanUpdate };
                self.ask_orchestrator(next, 1, out);
            }
            OrchestratorStep::Plan | OrchestratorStep::PlanUpdate => {
                self.ledger.plan = said;
                self.enter_outer_loop(out);
            }
            OrchestratorStep::FinalAnswer { reason } => {
                self.store(ChatMessage::new(self.rules.manager.clone(), said), out);
                self.close(Stop::Answered, &reason, None, out);
            }
            OrchestratorStep::Progress { .. } => {} // handled above
        }
    }

    /// A new conversation begins with the task ledger; what was said before stays in the record.
    fn enter_outer_loop(&mut self, out: &mut Outbox) {
        if std::mem::replace(&mut self.ledger.planned, true) {
            // The new plan gets as many stalls as the first one had.
            self.ledger.stalls = 0;
            out.note(NoteKind::PlanRevised, json!({ "reason": "stalled", "round": self.ledger.rounds }));
        }
        self.seen_from = self.messages.len();
        let TaskLedger { task, facts, plan, .. } = &self.ledger;
        let ledger = text::task_ledger(task, &text::roles(&self.agents), facts, plan);
        self.store(ChatMessage::new(self.rules.manager.clone(), ledger), out);
        self.ask_progress(1, out);
    }

    fn progress_answered(&mut self, tries: u32, answer: &Value, out: &mut Outbox) {
        let read = self.read_progress(answer);
        let problem = read.as_ref().err().map(ToString::to_string);
        out.note(NoteKind::DecisionRecorded, json!({ "by": "progress_ledger", "attempt": tries, "problem": problem }));
        match read {
            Err(_) if Tries::of(self.rules.max_json_retries).are_left(tries) => self.ask_progress(tries + 1, out),
            Err(LedgerUnread::Refused(_)) => self.somebody_else_speaks(out),
            Err(_) => self.fail(&ChatError::Ledger.to_string(), out),
            Ok(LedgerDecision::Satisfied { reason }) => self.answer_finally(reason, out),
            Ok(LedgerDecision::Next { stalled, speaker, instruction }) => {
                let stalls = self.ledger.stalls;
                self.ledger.stalls = if stalled { stalls + 1 } else { stalls.saturating_sub(1) };
                if self.is_stuck() {
                    return self.ask_orchestrator(OrchestratorStep::FactsUpdate, 1, out);
                }
                self.store(ChatMessage::new(self.rules.manager.clone(), instruction), out);
                self.speak(&speaker, "ledger", out);
            }
        }
    }

    /// Reads a progress ledger, given as JSON or as its text. The error names the field.
    fn read_progress(&self, answer: &Value) -> Result<LedgerDecision, LedgerUnread> {
        let progress: ProgressLedger = read("progress ledger", answer)?;
        let satisfied_because = match &progress.is_request_satisfied {
            LedgerEntry::Reasoned { reason, .. } => reason.clone(),
            LedgerEntry::Plain(_) => "The request is satisfied.".to_owned(),
        };
        let next = progress.next_speaker.map(LedgerEntry::answer);
        if progress.is_request_satisfied.answer() {
            return Ok(LedgerDecision::Satisfied { reason: satisfied_because });
        }
        let speaker = match (self.agents.as_slice(), next) {
            ([only], _) => only.name.clone(),
            (_, Some(Value::String(name))) if !self.may_speak(&name) => return Err(LedgerUnread::Refused(name)),
            (_, Some(Value::String(name))) if self.agent(&name).is_some() => name,
            (_, Some(other)) => return Err(LedgerUnread::Stranger(other)),
            (_, None) => return Err(LedgerUnread::NoSpeaker),
        };
        let stalled = progress.is_in_loop.answer() || !progress.is_progress_being_made.answer();
        Ok(LedgerDecision::Next { stalled, speaker, instruction: progress.instruction.answer() })
    }
}
