//! What can be seen of a group chat from outside: where it is, whom it waits for, how it ended.
//!
//! Invariant: views are copies of the state; asking for one changes nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::machine::{ChatPhase, GroupChat, OfPeople};
use super::message::ChatMessage;
use super::rules::ChatAgent;
use crate::supervisor::core::key::ChatKey;
use crate::supervisor::spec::ChatTeam;

/// Why a chat ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    MaxRounds,
    Termination,
    /// Handed over to somebody outside of the chat.
    Handoff,
    NoReply,
    NoEligibleSpeaker,
    /// Magentic-One: the final answer has been given.
    Answered,
    /// The budget of the run is spent.
    Budget,
    /// A person did not let a participant take its turn, and nobody else has the word.
    Denied,
    Interrupted,
    Cancelled,
    Error,
}

impl Stop {
    pub(super) fn ok(self) -> bool {
        !matches!(self, Stop::Budget | Stop::Denied | Stop::Interrupted | Stop::Cancelled | Stop::Error)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ChatEnd {
    pub(super) stop: Stop,
    pub(super) reason: String,
    pub(super) error: Option<String>,
    /// A person's no is the error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) refused: bool,
}

/// How a run of a chat ended, with the messages of that run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChatOutcome {
    pub ok: bool,
    pub stop: Stop,
    pub reason: String,
    pub messages: Vec<ChatMessage>,
    pub last_speaker: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A human is to choose the next speaker. Each time one is asked has its own id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeakerChoiceRequest {
    pub id: ChatKey,
    pub prompt: String,
    pub candidates: Vec<String>,
    pub attempt: u32,
}

/// What the chat waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatWait {
    Selection { candidates: Vec<String>, attempt: u32 },
    Human(SpeakerChoiceRequest),
    Speaker { agent: String },
    Orchestrator,
}

/// A chat at a glance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChatView {
    pub team: ChatTeam,
    pub agents: Vec<String>,
    pub round: u32,
    pub max_round: u32,
    pub messages: usize,
    pub last_speaker: Option<String>,
    pub paused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<ChatWait>,
    /// Magentic-One: rounds without progress, the facts and the plan as they stand.
    pub stalls: u32,
    pub facts: String,
    pub plan: String,
}

impl GroupChat {
    pub fn view(&self, paused: bool) -> ChatView {
        ChatView {
            team: self.rules.team,
            agents: self.names().into_iter().map(str::to_owned).collect(),
            round: self.rounds(),
            max_round: self.rules.max_round,
            messages: self.messages.len(),
            last_speaker: self.last_speaker(),
            paused,
            waiting: self.waiting(),
            stalls: self.ledger.stalls,
            facts: self.ledger.facts.clone(),
            plan: self.ledger.plan.clone(),
        }
    }
    fn waiting(&self) -> Option<ChatWait> {
        match &self.stage {
            ChatPhase::Selecting(s) => {
                Some(ChatWait::Selection { candidates: s.candidates.clone(), attempt: s.attempt })
            }
            ChatPhase::Choosing(_) => self.human_needed().map(ChatWait::Human),
            ChatPhase::Speaking { agent, .. } => Some(ChatWait::Speaker { agent: agent.clone() }),
            ChatPhase::Ledger(_) => Some(ChatWait::Orchestrator),
            ChatPhase::Over => None,
        }
    }
    pub fn messages(&self) -> &[ChatMessage] {
        &self.messages
    }
    pub fn agents(&self) -> &[ChatAgent] {
        &self.agents
    }
    /// Whether anything was said in this run beyond what it was opened with: by a participant, or as the final answer of an
    /// orchestrator that needed nobody (AGC-18). What it tells the team is nothing yet, and neither is what people say, the
    /// bare word that somebody hands over, nor what an orchestrator answers where all that it asked for was lost.
    pub fn has_spoken(&self) -> bool {
        let since = self.messages.iter().skip(self.run_from + self.opened);
        since.filter(|message| !message.content.trim().is_empty()).any(|message| {
            let by_team = !self.is_of_people(message) && !message.is_bare_hand_off();
            by_team && (self.agent(&message.from).is_some() || self.is_final_answer(message))
        })
    }
    /// The last message of an orchestrator that has answered, and has asked nobody for anything.
    fn is_final_answer(&self, message: &ChatMessage) -> bool {
        let answered = self.end.as_ref().is_some_and(|end| end.stop == Stop::Answered);
        answered && self.turns == 0 && self.messages.last().is_some_and(|last| last.index == message.index)
    }
    /// Whether a message hands over: where nobody is handed anything it is a word like any other (AGC-03).
    pub(super) fn hands_over(&self, message: &ChatMessage) -> bool {
        let ends = message.handoff == self.rules.termination_handoff;
        message.handoff.is_some() && (self.rules.team == ChatTeam::Swarm || ends)
    }
    /// The messages as people see them.
    pub(super) fn messages_shown(&self) -> Vec<Value> {
        let shown = |message: &ChatMessage| {
            let handoff = message.handoff.clone().filter(|_| self.hands_over(message));
            json!(ChatMessage { handoff, ..message.clone() })
        };
        self.messages.iter().map(shown).collect()
    }
    /// What people have said in this run.
    pub(super) fn of_people_in_run(&self) -> impl Iterator<Item = OfPeople> {
        let run_from = u32::try_from(self.run_from).unwrap_or(u32::MAX);
        self.of_people.range(run_from..).map(|(_, of)| *of)
    }
    /// Whether a person said this, or it tells of what they said: it is nothing that the team has made.
    pub(super) fn is_of_people(&self, message: &ChatMessage) -> bool {
        self.of_people.contains_key(&message.index)
    }
    /// Whether this is what an orchestrator told its team, and not what it told of the work in the end.
    pub(super) fn is_order(&self, message: &ChatMessage) -> bool {
        let told_in_the_end = self.end.as_ref().is_some_and(|end| end.stop == Stop::Answered);
        let by_it = self.rules.team == ChatTeam::Magentic && message.from == self.rules.manager;
        by_it && !(told_in_the_end && self.messages.last().is_some_and(|last| last.index == message.index))
    }
    pub fn is_over(&self) -> bool {
        self.end.is_some()
    }
    pub fn outcome(&self) -> Option<ChatOutcome> {
        let ChatEnd { stop, reason, error, .. } = self.end.clone()?;
        let messages = self.messages.get(self.run_from..).unwrap_or_default().to_vec();
        let ok = stop.ok() && !self.cut && !self.unsatisfied;
        Some(ChatOutcome { ok, stop, reason, messages, last_speaker: self.last_speaker(), error })
    }
    /// Who spoke last: whoever lost the turn has not.
    fn last_speaker(&self) -> Option<String> {
        let last = self.messages.iter().rfind(|message| self.agent(&message.from).is_some());
        last.map(|message| message.from.clone())
    }
    /// Why it is no full success although it went on: an orchestrator that was not satisfied, and turns that nobody took.
    pub(super) fn lacks(&self) -> impl Iterator<Item = String> + '_ {
        let end = self.end.as_ref().filter(|_| self.cut || self.unsatisfied);
        end.map(|end| end.reason.clone()).into_iter().chain(self.lost.iter().cloned())
    }
}
