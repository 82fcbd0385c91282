//! The group chat: who is asked for what, and when it is over.
//!
//! ```text
//!   Selecting (a model, a function, chance) ──┐
//!   Choosing  (a human)                     ──┼──► Speaking ──► message stored ──► over, or the next selection
//!   Ledger    (Magentic-One's orchestrator) ──┘
//! ```
//!
//! Invariant: the stage says what the one call or question is for that is open (none when over); an answer that is not
//! awaited changes nothing. It is the same conversation with and without a pause, which the run holds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::magentic::TaskLedger;
use super::message::{ChatMessage, SpeakerAnswer, failed_by_itself, read_history};
use super::rules::{ChatAgent, ChatError, ChatRules};
use super::selecting::{Choosing, Selecting};
use super::text;
use super::view::{ChatEnd, Stop};
use crate::supervisor::core::key::{ChatAsk, ChatKey};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Answer, Call, CallFailure, CallFailureKind, Doer, Outbox, Purpose};
use crate::supervisor::spec::{ChatTeam, RoundCount};

/// A chat and what it waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupChat {
    pub(super) rules: ChatRules,
    pub(super) agents: Vec<ChatAgent>,
    pub(super) messages: Vec<ChatMessage>,
    /// Where the messages of this run begin: earlier ones are of runs before, or of a resumed history.
    pub(super) run_from: usize,
    /// How many messages opened this run.
    pub(super) opened: usize,
    /// Where the conversation begins that agents see: Magentic-One starts afresh with every plan.
    pub(super) seen_from: usize,
    /// Turns of this run, those without a message included.
    pub(super) turns: u32,
    /// Turns of this run that were lost.
    pub(super) skipped: u32,
    /// Who spoke last; in a group chat of 0.2 the sender of the opening counts too.
    pub(super) last: Option<String>,
    /// Asks so far: makes each key unique.
    pub(super) asks: u64,
    pub(super) stage: ChatPhase,
    pub(super) ledger: TaskLedger,
    /// Messages of people about turns, by their index: no participant has said anything with them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) of_people: BTreeMap<u32, OfPeople>,
    /// Where the hand-off stands that a denial took back last, since anybody has spoken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) taken_back: Option<u32>,
    /// The budget has ended it, or left it one last word.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) cut: bool,
    /// Magentic-One: the rounds were over before the request was satisfied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unsatisfied: bool,
    /// Whose turn a person has refused since anybody has spoken, and in which words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) refused: BTreeMap<String, String>,
    /// The turns that were lost or refused in this run, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) lost: Vec<String>,
    pub(super) end: Option<ChatEnd>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ChatPhase {
    Selecting(Selecting),
    Choosing(Choosing),
    Speaking { agent: String, tries: u32 },
    Ledger(super::magentic::OrchestratorStep),
    Over,
}

/// What a message of a person is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OfPeople {
    /// It tells of a turn that they did not let begin.
    Denial,
    /// What they want of the turn that begins with it, or that they are asked about once more.
    Instruction,
    /// They took the word.
    #[serde(rename = "said")]
    Interruption,
}

/// What a resumed chat goes on from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResumedChat {
    pub last_speaker: String,
    pub last_message: ChatMessage,
}

impl GroupChat {
    /// Starts a chat with what is said first: usually one message, or several of a task. Nothing is asked if the rules
    /// do not hold.
    pub fn start(
        rules: ChatRules,
        agents: Vec<ChatAgent>,
        opening: Vec<ChatMessage>,
        out: &mut Outbox,
    ) -> Result<GroupChat, ChatError> {
        let mut chat = GroupChat::idle(rules, agents)?;
        if opening.is_empty() {
            return Err(ChatError::NoOpening);
        }
        chat.open_with(opening, out);
        Ok(chat)
    }

    /// Goes on with an earlier chat from its messages (a list or its JSON text), as if the last one were said now. Every
    /// name must be an agent's, the admin's or the manager's. `without` is taken out of the last message, so that it
    /// does not end the chat again.
    pub fn resume(
        rules: ChatRules,
        agents: Vec<ChatAgent>,
        history: &Value,
        without: Option<&str>,
        out: &mut Outbox,
    ) -> Result<(GroupChat, ResumedChat), ChatError> {
        let mut chat = GroupChat::idle(rules, agents)?;
        // Everybody knows each other by now.
        chat.rules.send_introductions = false;
        let mut messages = read_history(history, &chat.rules.manager)?;
        for message in &messages {
            let known = chat.agent(&message.from).is_some()
                || message.from == chat.rules.admin_name
                || message.from == chat.rules.manager;
            if !known {
                return Err(ChatError::UnknownInHistory(message.from.clone()));
            }
        }
        let Some(mut last) = messages.pop() else { return Err(ChatError::NothingToResume) };
        if let Some(text) = without.filter(|text| !text.is_empty()) {
            last.content = last.content.replace(text, "");
        }
        messages.into_iter().for_each(|message| chat.store(message, out));
        (chat.run_from, chat.opened) = (chat.messages.len(), 1);
        chat.last = Some(last.from.clone());
        let resumed = ResumedChat { last_speaker: last.from.clone(), last_message: last.clone() };
        let ends = chat.terminates(&last);
        chat.store(last, out);
        chat.go_on(ends, out);
        Ok((chat, resumed))
    }

    fn idle(rules: ChatRules, agents: Vec<ChatAgent>) -> Result<GroupChat, ChatError> {
        let rules = rules.among(&agents)?;
        Ok(GroupChat {
            rules,
            agents,
            messages: Vec::new(),
            run_from: 0,
            opened: 0,
            seen_from: 0,
            turns: 0,
            skipped: 0,
            last: None,
            asks: 0,
            stage: ChatPhase::Over,
            ledger: TaskLedger::default(),
            of_people: BTreeMap::new(),
            taken_back: None,
            cut: false,
            unsatisfied: false,
            refused: BTreeMap::new(),
            lost: Vec::new(),
            end: None,
        })
    }

    /// Starts another run of a chat that has ended: with a new task, or from where it stopped. Rounds count anew.
    pub fn go_on_with(&mut self, task: Vec<ChatMessage>, out: &mut Outbox) -> Result<(), ChatError> {
        if self.end.is_none() {
            return Err(ChatError::NotEnded);
        }
        (self.run_from, self.opened, self.turns, self.skipped) = (self.messages.len(), 0, 0, 0);
        (self.ledger.rounds, self.end, self.cut, self.taken_back) = (0, None, false, None);
        (self.unsatisfied, self.lost) = (false, Vec::new());
        self.refused.clear();
        match task.is_empty() {
            true => self.go_on(None, out),
            false => self.open_with(task, out),
        }
        Ok(())
    }

    fn open_with(&mut self, opening: Vec<ChatMessage>, out: &mut Outbox) {
        let only = |message: &ChatMessage| Some(message.content.trim()) == self.rules.termination.as_deref();
        let ends = opening.last().filter(|last| only(last)).map(|_| Stop::Termination);
        if let (ChatTeam::GroupChat, Some(last)) = (self.rules.team, opening.last()) {
            self.last = Some(last.from.clone());
        }
        self.ledger.planned = false;
        self.opened = opening.len();
        opening.into_iter().for_each(|message| self.store(message, out));
        self.go_on(ends, out);
    }

    /// The answer to a call. One that nobody waits for (a late or a strange one) changes nothing.
    pub fn answered(&mut self, key: ChatKey, answer: Answer, out: &mut Outbox) {
        if !out.heard(key) || self.end.is_some() {
            return;
        }
        if answer.is_err() && out.budget().exhausted().is_some() {
            // Whoever was asked had too little, or nobody is paid to be asked again.
            return self.end_for_budget(out);
        }
        match std::mem::replace(&mut self.stage, ChatPhase::Over) {
            ChatPhase::Selecting(selecting) => self.selected(selecting, answer, out),
            ChatPhase::Speaking { agent, tries } => self.spoken(&agent, tries, answer, out),
            ChatPhase::Ledger(step) => self.ledger_answered(step, answer, out),
            // Neither has an open call.
            stage @ (ChatPhase::Choosing(_) | ChatPhase::Over) => self.stage = stage,
        }
    }

    // What happens within a turn.

    /// Asks the speaker for what it says.
    pub(super) fn speak(&mut self, name: &str, by: &str, out: &mut Outbox) {
        if !self.may_speak(name) {
            return self.somebody_else_speaks(out);
        }
        out.note(NoteKind::SpeakerSelected, json!({ "speaker": name, "by": by, "round": self.turn() }));
        self.ask_speaker(name, 1, out);
    }

    pub(super) fn ask_speaker(&mut self, name: &str, tries: u32, out: &mut Outbox) {
        self.stage = ChatPhase::Speaking { agent: name.to_owned(), tries };
        let key = self.next_key(ChatAsk::Speak);
        self.ask(self.turn_of(name, tries, key), out);
    }

    /// The call for what an agent says in its turn.
    pub(super) fn turn_of(&self, name: &str, tries: u32, key: ChatKey) -> Call {
        let context = json!({ "team": self.rules.team, "speaker": name, "messages": self.heard_by(name) });
        let prompt = text::conversation(self.introduction().iter().chain(self.seen()));
        Call::new(key, Purpose::ExecuteWorker, context).agent(name).attempt(tries).prompt(prompt).round(self.turn())
    }

    fn spoken(&mut self, name: &str, tries: u32, answer: Answer, out: &mut Outbox) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) if failure.kind == CallFailureKind::Denied => return self.denied(name, &failure.message, out),
            Err(failure) => return self.speaker_failed(name, tries, &failure, out),
        };
        if let Some(why) = failed_by_itself(&answer) {
            return self.speaker_failed(name, tries, &CallFailure::error(why), out);
        }
        let said = match SpeakerAnswer::read(name, &answer, self.rules.team == ChatTeam::Swarm) {
            Ok(said) => said,
            // An answer that cannot be read is a failed turn like any other.
            Err(why) => return self.speaker_failed(name, tries, &CallFailure::error(why.to_string()), out),
        };
        self.took_turn(name);
        let Some(message) = said.message else {
            if self.rules.team == ChatTeam::Magentic {
                // Whether there is more to do says the orchestrator alone.
                self.skipped += 1;
                self.lost.push(format!("the turn of {name} was lost: there was no reply"));
                return self.go_on(None, out);
            }
            return self.close(Stop::NoReply, &format!("{name} did not reply."), None, out);
        };
        let ends = self.terminates(&message);
        self.said(message, out);
        self.go_on(ends, out);
    }

    /// Somebody has spoken.
    pub(super) fn took_turn(&mut self, name: &str) {
        self.turns += 1;
        self.taken_back = None;
        self.refused.clear();
        self.last = Some(name.to_owned());
    }

    pub(super) fn said(&mut self, message: ChatMessage, out: &mut Outbox) {
        out.work_ended(Doer::Agent(message.from.clone()), true);
        self.store(message, out);
    }

    /// Stores what a person said, or is told of them.
    pub(super) fn store_of_people(&mut self, of: OfPeople, message: ChatMessage, out: &mut Outbox) {
        self.of_people.insert(u32::try_from(self.messages.len()).unwrap_or(u32::MAX), of);
        self.store(message, out);
    }

    /// Stores a message: from now on it is everybody's.
    pub(super) fn store(&mut self, mut message: ChatMessage, out: &mut Outbox) {
        message.index = u32::try_from(self.messages.len()).unwrap_or(u32::MAX);
        out.note(NoteKind::MessageAdded, json!({ "index": message.index, "from": message.from }));
        if let Some(to) = message.handoff.as_ref().filter(|_| self.hands_over(&message)) {
            out.note(NoteKind::HandedOff, json!({ "from": message.from, "to": to, "index": message.index }));
        }
        self.messages.push(message);
    }

    pub(super) fn terminates(&self, message: &ChatMessage) -> Option<Stop> {
        let text = self.rules.termination.as_deref().filter(|text| !text.is_empty());
        if text.is_some_and(|text| message.content.contains(text)) {
            return Some(Stop::Termination);
        }
        (message.handoff.is_some() && message.handoff == self.rules.termination_handoff).then_some(Stop::Handoff)
    }

    /// After a message or a lost turn: the end, or the next selection.
    pub(super) fn go_on(&mut self, ends: Option<Stop>, out: &mut Outbox) {
        if let Some(stop) = ends {
            let reason = match stop {
                Stop::Handoff => format!("Handed over to {}.", self.rules.termination_handoff.as_deref().unwrap_or("")),
                _ => format!("Text '{}' mentioned.", self.rules.termination.as_deref().unwrap_or("")),
            };
            return self.close(stop, &reason, None, out);
        }
        // An orchestrator ends with its own rounds.
        if self.rules.team != ChatTeam::Magentic && self.rounds() >= self.rules.max_round {
            let max = self.rules.max_round;
            let reason = match self.rules.team {
                ChatTeam::GroupChat => format!("Maximum number of rounds {max} reached."),
                ChatTeam::Selector | ChatTeam::Swarm | ChatTeam::Magentic => {
                    format!("Maximum number of turns {max} reached.")
                }
            };
            return self.close(Stop::MaxRounds, &reason, None, out);
        }
        match self.free_names().is_empty() {
            true => self.nobody_is_left(out),
            false => self.select(out),
        }
    }

    /// The rounds of this run, counted as the rules say; a lost turn counts as one with a message.
    pub(super) fn rounds(&self) -> u32 {
        if self.rules.team == ChatTeam::Magentic {
            return self.ledger.rounds;
        }
        let told = self.of_people_in_run().filter(|of| *of == OfPeople::Instruction).count();
        let said = self.messages.len().saturating_sub(self.run_from + self.opened + told);
        match self.rules.count {
            RoundCount::MessagesWithOpening => self.turns + u32::from(self.opened > 0),
            RoundCount::Turns => self.turns,
            RoundCount::Messages => u32::try_from(said).unwrap_or(u32::MAX).saturating_add(self.skipped),
        }
    }

    /// The turn that is being taken, from 1: whatever is asked in it belongs to it.
    pub(super) fn turn(&self) -> u32 {
        match self.rules.team {
            ChatTeam::Magentic => self.ledger.rounds.max(1),
            ChatTeam::GroupChat | ChatTeam::Selector | ChatTeam::Swarm => self.turns + 1,
        }
    }

    pub(super) fn next_key(&mut self, ask: ChatAsk) -> ChatKey {
        self.asks += 1;
        ChatKey { ask, n: self.asks }
    }

    /// Leaves a call. Every call of a chat goes through here.
    pub(super) fn ask(&mut self, mut call: Call, out: &mut Outbox) {
        call.round = self.turn();
        self.send(call, out);
    }

    pub(super) fn close(&mut self, stop: Stop, reason: &str, error: Option<String>, out: &mut Outbox) {
        let data = json!({ "phase": "chat_ended", "stop": stop, "reason": reason, "error": error });
        out.note(NoteKind::PhaseChanged, data);
        self.stage = ChatPhase::Over;
        self.end = Some(ChatEnd { stop, reason: reason.to_owned(), error, refused: false });
    }

    pub(super) fn agent(&self, name: &str) -> Option<&ChatAgent> {
        self.agents.iter().find(|agent| agent.name == name)
    }
    pub(super) fn names(&self) -> Vec<&str> {
        self.agents.iter().map(|agent| agent.name.as_str()).collect()
    }
    /// The conversation that agents see.
    pub(super) fn seen(&self) -> &[ChatMessage] {
        self.messages.get(self.seen_from..).unwrap_or_default()
    }
    /// The conversation as one agent sees it, with the introduction if the rules have one.
    pub(super) fn heard_by(&self, name: &str) -> Vec<Value> {
        self.introduction().iter().chain(self.seen()).map(|message| message.for_reader(name)).collect()
    }
    /// Who takes part, said before everything else if the rules want it (AGC-01).
    fn introduction(&self) -> Option<ChatMessage> {
        let told = || ChatMessage::new(self.rules.manager.clone(), text::introduction(&self.agents));
        self.rules.send_introductions.then(told)
    }
}
