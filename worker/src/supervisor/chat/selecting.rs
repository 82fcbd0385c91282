//! Who speaks next in a group chat, a selector team and a swarm.
//!
//! Invariant: the candidates are what the rules leave (function filter, repetition, transitions), in list order; one
//! candidate speaks without anybody being asked; whoever is asked has a bounded number of attempts and then a fallback.
//! Only two choices are not held to the candidates, as in AutoGen: the one agent that can run a suggested function, and
//! the agent a custom function names.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::machine::{ChatPhase, GroupChat};
use super::message::failed_by_itself;
use super::names::mentioned;
use super::rules::{ChatError, listed};
use super::text::{self, SelectionHint};
use super::view::{SpeakerChoiceRequest, Stop};
use crate::supervisor::core::key::{ChatAsk, ChatKey};
use crate::supervisor::core::retry::Tries;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Answer, Call, CallFailure, Outbox, Purpose};
use crate::supervisor::prompts::prompt_hash;
use crate::supervisor::spec::{ChatTeam, Fallback, SpeakerMethod, UnknownMethod};

/// A call for a choice is open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Selecting {
    pub(super) by: By,
    pub(super) candidates: Vec<String>,
    pub(super) attempt: u32,
}

/// A human is to choose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Choosing {
    pub(super) id: ChatKey,
    pub(super) candidates: Vec<String>,
    pub(super) attempt: u32,
}

/// Who was asked for the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum By {
    Auto,
    Random,
    /// 0.2: names an agent, a method, or nobody, which ends the chat.
    Function,
    /// Selector: names an agent, or leaves it to the model.
    SelectorFunction,
    CandidateFunction,
}

impl By {
    fn method(self) -> &'static str {
        match self {
            By::Auto => "auto",
            By::Random => "random",
            By::Function | By::SelectorFunction => "function",
            By::CandidateFunction => "candidates",
        }
    }
}

impl GroupChat {
    pub(super) fn select(&mut self, out: &mut Outbox) {
        let method = self.rules.speaker_selection_method;
        let by_function = self.rules.selector_function || method == SpeakerMethod::Function;
        match self.rules.team {
            ChatTeam::GroupChat if method == SpeakerMethod::Function => {
                self.ask_choice(By::Function, self.free_names(), 1, None, out)
            }
            ChatTeam::Selector if by_function => self.ask_choice(By::SelectorFunction, self.free_names(), 1, None, out),
            ChatTeam::GroupChat => self.choose_by(method, out),
            ChatTeam::Selector => self.select_candidates(out),
            ChatTeam::Swarm => self.follow_handoff(out),
            ChatTeam::Magentic => self.orchestrate(out),
        }
    }

    fn select_candidates(&mut self, out: &mut Outbox) {
        match self.rules.candidate_function {
            true => self.ask_choice(By::CandidateFunction, self.free_names(), 1, None, out),
            false => self.choose_by(self.rules.speaker_selection_method, out),
        }
    }

    /// The target of the last hand-over goes on; before the first one, the first participant speaks. A hand-over that
    /// ended a run went outside, so the one who made it goes on.
    fn follow_handoff(&mut self, out: &mut Outbox) {
        let outside = &self.rules.termination_handoff;
        let inside = |to: &Option<String>| to.is_some() && (outside.is_none() || to != outside);
        let target = self.messages.iter().rev().map(|message| &message.handoff).find(|to| inside(to));
        let target = target.and_then(Clone::clone).unwrap_or_else(|| self.agents[0].name.clone());
        match self.agent(&target).is_some() {
            true => self.speak(&target, "handoff", out),
            false => self.fail(&ChatError::HandoffTarget.to_string(), out),
        }
    }

    fn choose_by(&mut self, method: SpeakerMethod, out: &mut Outbox) {
        match self.eligible() {
            Err(why) => self.fail(&why.to_string(), out),
            Ok(names) => match names.as_slice() {
                [] if !self.refused.is_empty() => self.nobody_is_left(out),
                [] => {
                    let last = self.last.as_deref().unwrap_or_default();
                    let reason = format!("Nobody may speak after {last}.");
                    self.close(Stop::NoEligibleSpeaker, &reason, None, out);
                }
                [only] => self.speak(only, "only_candidate", out),
                _ => self.choose_among(method, names, out),
            },
        }
    }

    /// Who may speak next, by the rules.
    fn eligible(&self) -> Result<Vec<String>, ChatError> {
        let functions = match self.messages.last() {
            Some(last) if self.rules.func_call_filter => last.functions(),
            Some(_) | None => Vec::new(),
        };
        let can =
            |agent: &&super::rules::ChatAgent| functions.iter().all(|f| agent.functions.iter().any(|own| own == f));
        let executors: Vec<&str> = self.agents.iter().filter(can).map(|agent| agent.name.as_str()).collect();
        match executors.as_slice() {
            [] => return Err(ChatError::NoExecutor(functions.join(", "))),
            [only] if !functions.is_empty() => return Ok(vec![(*only).to_owned()]),
            _ => {}
        }
        let reachable = self.rules.reachable(self.last.as_deref().unwrap_or_default(), &self.agents);
        let names = reachable.iter().map(|agent| &agent.name).filter(|name| executors.contains(&name.as_str()));
        Ok(names.filter(|name| self.may_speak(name)).cloned().collect())
    }

    fn choose_among(&mut self, method: SpeakerMethod, candidates: Vec<String>, out: &mut Outbox) {
        match method {
            SpeakerMethod::RoundRobin => {
                let next = self.next_in_order(&candidates);
                self.speak(&next, "round_robin", out);
            }
            SpeakerMethod::Manual => self.ask_human(candidates, 1, out),
            SpeakerMethod::Random => self.ask_choice(By::Random, candidates, 1, None, out),
            SpeakerMethod::Auto | SpeakerMethod::Function => self.ask_choice(By::Auto, candidates, 1, None, out),
        }
    }

    fn ask_choice(
        &mut self,
        by: By,
        candidates: Vec<String>,
        attempt: u32,
        hint: Option<SelectionHint>,
        out: &mut Outbox,
    ) {
        let hint = hint.map(|hint| hint.text(&candidates));
        let mut context = json!({
            "team": self.rules.team, "method": by.method(), "candidates": candidates, "attempt": attempt,
            "last_speaker": self.last, "round": self.turn(),
        });
        let key = self.next_key(ChatAsk::Select);
        let mut call = Call::new(key, Purpose::Decide, Value::Null).attempt(attempt);
        // A draw and a function are no calls of a model.
        call.tool = by != By::Auto;
        match by {
            By::Random => {
                // One draw a turn: the seed names it, and the answer is recorded like every other.
                context["seed"] = json!(self.seed(out));
            }
            By::Auto => {
                context["attempts"] = json!(self.rules.attempts());
                context["hint"] = json!(hint);
                call.prompt = text::selection(&self.agents, &candidates, self.seen(), hint.as_deref());
            }
            By::Function | By::SelectorFunction | By::CandidateFunction => {}
        }
        let manager = &self.rules.manager;
        context["messages"] = json!(self.seen().iter().map(|message| message.for_reader(manager)).collect::<Vec<_>>());
        call.context = context;
        out.note(
            NoteKind::DecisionRequested,
            json!({ "by": by, "attempt": attempt, "candidates": candidates, "prompt_hash": prompt_hash(&call.prompt) }),
        );
        self.stage = ChatPhase::Selecting(Selecting { by, candidates, attempt });
        self.ask(call, out);
    }

    /// What a draw of this turn comes from.
    fn seed(&self, out: &Outbox) -> String {
        format!("{}/{}/{}", out.run(), self.run_from, self.turns)
    }

    /// The answer to a call for a choice.
    pub(super) fn selected(&mut self, selecting: Selecting, answer: Answer, out: &mut Outbox) {
        let unable = |answer: Value| match failed_by_itself(&answer) {
            Some(why) => Err(CallFailure::error(why)),
            None => Ok(answer),
        };
        let answer = match answer.and_then(unable) {
            Ok(answer) => answer,
            // Chance needs nobody: the seed says who it is.
            Err(_) if selecting.by == By::Random => Value::Null,
            Err(failure) => return self.fail_for(&failure, out),
        };
        out.note(
            NoteKind::DecisionRecorded,
            json!({ "by": selecting.by, "attempt": selecting.attempt, "answer": answer }),
        );
        match selecting.by {
            By::Auto => self.named_by_model(selecting, &answer, out),
            By::Random => {
                let drawn = name_of(&answer).filter(|name| selecting.candidates.iter().any(|own| own == name));
                let candidates: Vec<&str> = selecting.candidates.iter().map(String::as_str).collect();
                let seed = self.seed(out);
                match drawn.or_else(|| draw(&seed, &candidates)) {
                    Some(name) => self.speak(name, "random", out),
                    None => self.fall_back(&selecting.candidates, out),
                }
            }
            By::Function => self.named_by_function(&answer, out),
            By::SelectorFunction if answer.is_null() => self.select_candidates(out),
            By::SelectorFunction => match name_of(&answer).filter(|name| self.agent(name).is_some()) {
                Some(name) => self.speak(name, "function", out),
                None => {
                    let name = name_of(&answer).map_or_else(|| answer.to_string(), str::to_owned);
                    let expected = listed(self.names());
                    self.fail(&ChatError::SelectorFunction { name, expected }.to_string(), out);
                }
            },
            By::CandidateFunction => match self.read_candidates(&answer) {
                Err(why) => self.fail(&why.to_string(), out),
                Ok(names) if names.len() == 1 => self.speak(&names[0], "only_candidate", out),
                Ok(names) => self.choose_among(SpeakerMethod::Auto, names, out),
            },
        }
    }

    /// A model's text must name one candidate. In a selector team it is held against all participants, so that naming
    /// one that may not speak is told apart from naming nobody.
    fn named_by_model(&mut self, selecting: Selecting, answer: &Value, out: &mut Outbox) {
        let Selecting { by, candidates, attempt } = selecting;
        let pool = if self.rules.team == ChatTeam::Selector { self.owned_names() } else { candidates.clone() };
        let named = mentioned(name_of(answer).unwrap_or_default(), pool.iter().map(String::as_str));
        let hint = match named.as_slice() {
            [name] if candidates.iter().any(|own| own == name) => return self.speak(name, "auto", out),
            [] => SelectionHint::None,
            [_] => SelectionHint::Repeated,
            _ => SelectionHint::Several,
        };
        match Tries::of(self.rules.attempts()).are_left(attempt) {
            true => self.ask_choice(by, candidates, attempt + 1, Some(hint), out),
            false => self.fall_back(&candidates, out),
        }
    }

    fn named_by_function(&mut self, answer: &Value, out: &mut Outbox) {
        if answer.is_null() {
            let reason = "Custom speaker selection function returned None. Terminating conversation.";
            return self.close(Stop::NoEligibleSpeaker, reason, None, out);
        }
        let Some(name) = name_of(answer) else {
            let why = format!("name: expected a text, found {answer}");
            let error = ChatError::Answer { speaker: "the speaker selection function".to_owned(), why };
            return self.fail(&error.to_string(), out);
        };
        match SpeakerMethod::read(name) {
            _ if self.agent(name).is_some() => self.speak(name, "function", out),
            _ if answer.is_object() => self.fail(&ChatError::FunctionAgent(name.to_owned()).to_string(), out),
            Ok(method) if method != SpeakerMethod::Function => self.choose_by(method, out),
            Ok(_) | Err(_) => self.fail(&UnknownMethod { text: name.to_owned() }.to_string(), out),
        }
    }

    fn read_candidates(&self, answer: &Value) -> Result<Vec<String>, ChatError> {
        let mut names: Vec<String> = match answer {
            Value::Null => Vec::new(),
            list => serde_path_to_error::deserialize(list).map_err(|why| {
                let speaker = "the candidate function".to_owned();
                ChatError::Answer { speaker, why: why.to_string() }
            })?,
        };
        if names.is_empty() {
            return Err(ChatError::NoCandidates);
        }
        if names.iter().any(|name| self.agent(name).is_none()) {
            let names = listed(names.iter().map(String::as_str));
            return Err(ChatError::Candidates { names, expected: listed(self.names()) });
        }
        // Twice the same is one candidate, and whose turn a person has refused is none where there are others.
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        if names.iter().any(|name| self.may_speak(name)) {
            names.retain(|name| self.may_speak(name));
        }
        Ok(names)
    }

    /// Nobody was named in all attempts.
    fn fall_back(&mut self, candidates: &[String], out: &mut Outbox) {
        let previous = self.last.clone().filter(|last| self.agent(last).is_some() && self.may_speak(last));
        let name = match (self.rules.fallback, previous) {
            (Fallback::Next, _) => self.next_in_order(candidates),
            (Fallback::Previous, Some(previous)) => previous,
            (Fallback::Previous, None) => candidates.first().cloned().unwrap_or_default(),
        };
        self.speak(&name, "fallback", out);
    }

    /// The candidate that comes after the last speaker in the list of agents, around its end.
    pub(super) fn next_in_order(&self, candidates: &[String]) -> String {
        let last = self.agents.iter().position(|agent| Some(&agent.name) == self.last.as_ref());
        let start = last.map_or(0, |at| at + 1);
        let around = self.agents.iter().cycle().skip(start).take(self.agents.len());
        let next = around.map(|agent| &agent.name).find(|name| candidates.contains(name));
        next.or(candidates.first()).cloned().unwrap_or_default()
    }

    fn owned_names(&self) -> Vec<String> {
        self.names().into_iter().map(str::to_owned).collect()
    }

    // A human chooses.

    fn ask_human(&mut self, candidates: Vec<String>, attempt: u32, out: &mut Outbox) {
        let id = self.next_key(ChatAsk::Human);
        out.note(NoteKind::DecisionRequested, json!({ "by": "human", "id": id, "attempt": attempt }));
        self.stage = ChatPhase::Choosing(Choosing { id, candidates, attempt });
    }

    /// The question to a human that is open now.
    pub fn human_needed(&self) -> Option<SpeakerChoiceRequest> {
        self.question().map(|(_, asked)| asked)
    }

    pub(super) fn question(&self) -> Option<(ChatKey, SpeakerChoiceRequest)> {
        let ChatPhase::Choosing(Choosing { id, candidates, attempt }) = &self.stage else { return None };
        let prompt = text::human_choice(candidates, *attempt > 1);
        let asked = SpeakerChoiceRequest { id: *id, prompt, candidates: candidates.clone(), attempt: *attempt };
        Some((*id, asked))
    }

    /// A human's answer to the question of that id: the number of a candidate or its name. Nothing, or `q`, leaves the
    /// choice to the order of the list, as three invalid answers do.
    pub fn human(&mut self, id: ChatKey, answer: &Value, out: &mut Outbox) -> Result<(), ChatError> {
        let ChatPhase::Choosing(Choosing { candidates, attempt, .. }) = &self.stage else {
            return Err(ChatError::NotAsked(id));
        };
        let (candidates, attempt) = (candidates.clone(), *attempt);
        if self.human_needed().is_none_or(|asked| asked.id != id) {
            return Err(ChatError::NotAsked(id));
        }
        let said = match answer {
            Value::Number(number) => number.to_string(),
            other => name_of(other).unwrap_or_default().trim().to_owned(),
        };
        out.note(NoteKind::DecisionRecorded, json!({ "by": "human", "id": id, "attempt": attempt, "answer": answer }));
        let number = said.parse::<usize>().ok().and_then(|number| candidates.get(number.checked_sub(1)?));
        match number.or_else(|| candidates.iter().find(|name| **name == said)).cloned() {
            Some(name) => self.speak(&name, "manual", out),
            None if said.is_empty() || said == "q" || !Tries::of(self.rules.manual_tries).are_left(attempt) => {
                let next = self.next_in_order(&candidates);
                self.speak(&next, "fallback", out);
            }
            None => self.ask_human(candidates, attempt + 1, out),
        }
        Ok(())
    }
}

/// A name, answered as a text or as `{"name": ...}`.
fn name_of(answer: &Value) -> Option<&str> {
    answer.as_str().or_else(|| answer.get("name")?.as_str())
}

/// The choice of chance: one of the candidates by a seed that the chat gave along. For whoever answers such a call.
pub fn draw<'a>(seed: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let hash = blake3::hash(seed.as_bytes());
    let mut number = [0; 8];
    number.copy_from_slice(&hash.as_bytes()[..8]);
    let count = u64::try_from(candidates.len()).ok().filter(|count| *count > 0)?;
    candidates.get(usize::try_from(u64::from_be_bytes(number) % count).ok()?).copied()
}
