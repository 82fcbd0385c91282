//! The rules of a group chat, and what makes them wrong.
//!
//! Invariant: rules are checked once, when a chat starts; the names and defaults are AutoGen's. They hold no state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::supervisor::core::key::ChatKey;
use crate::supervisor::spec::{ChatTeam, Fallback, OnSpeakerError, RoundCount, SpeakerMethod, TransitionsType};

/// How often a speaker is asked under [`OnSpeakerError::Retry`].
pub const SPEAKER_TRIES: u32 = 3;

/// Who may speak twice in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AllowRepeat {
    Everybody(bool),
    Only(Vec<String>),
}

/// One participant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChatAgent {
    pub name: String,
    pub description: String,
    /// The functions it can run.
    pub functions: Vec<String>,
}

/// The rules of a chat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChatRules {
    pub team: ChatTeam,
    /// `auto`, `manual`, `random`, `round_robin` (in any case), or `function`: an agent or capability decides.
    pub speaker_selection_method: SpeakerMethod,
    pub max_round: u32,
    pub count: RoundCount,
    /// Takes over when a human interrupts.
    pub admin_name: String,
    pub func_call_filter: bool,
    pub send_introductions: bool,
    /// Attempts after the first.
    pub max_retries_for_selecting_speaker: u32,
    /// Invalid answers of a person who chooses, before the next agent speaks.
    pub manual_tries: u32,
    pub fallback: Fallback,
    /// Absent is yes, unless transitions are given.
    pub allow_repeat_speaker: Option<AllowRepeat>,
    pub allowed_or_disallowed_speaker_transitions: Option<BTreeMap<String, Vec<String>>>,
    /// `allowed` or `disallowed`: what the transitions are.
    pub speaker_transitions_type: Option<TransitionsType>,
    /// A reply that contains this text is the last one; so is an opening that is nothing else.
    pub termination: Option<String>,
    /// A hand-over to this name is the last message: the named one is outside of the chat.
    pub termination_handoff: Option<String>,
    /// Selector: a function is asked first; if it names nobody, the model is.
    pub selector_function: bool,
    /// Selector: a function names the candidates.
    pub candidate_function: bool,
    /// Who speaks for the chat itself.
    pub manager: String,
    /// Must be empty: a manager chooses, it does not act.
    pub manager_tools: Vec<String>,
    pub max_stalls: u32,
    /// How often a progress ledger is asked for before the chat fails.
    pub max_json_retries: u32,
    pub on_speaker_error: OnSpeakerError,
}

impl Default for ChatRules {
    fn default() -> Self {
        ChatRules {
            team: ChatTeam::GroupChat,
            speaker_selection_method: SpeakerMethod::Auto,
            max_round: 10,
            count: RoundCount::MessagesWithOpening,
            admin_name: "Admin".to_owned(),
            func_call_filter: true,
            send_introductions: false,
            max_retries_for_selecting_speaker: 2,
            manual_tries: 3,
            fallback: Fallback::Next,
            allow_repeat_speaker: None,
            allowed_or_disallowed_speaker_transitions: None,
            speaker_transitions_type: None,
            termination: Some("TERMINATE".to_owned()),
            termination_handoff: None,
            selector_function: false,
            candidate_function: false,
            manager: "chat_manager".to_owned(),
            manager_tools: Vec::new(),
            max_stalls: 3,
            max_json_retries: 10,
            on_speaker_error: OnSpeakerError::Stop,
        }
    }
}

impl ChatRules {
    /// AutoGen main's SelectorGroupChat. Its turns are unlimited there; ours are bounded like a group chat's.
    pub fn selector() -> Self {
        ChatRules {
            team: ChatTeam::Selector,
            count: RoundCount::Turns,
            fallback: Fallback::Previous,
            allow_repeat_speaker: Some(AllowRepeat::Everybody(false)),
            func_call_filter: false,
            manager: "SelectorGroupChatManager".to_owned(),
            ..ChatRules::default()
        }
    }
    /// AutoGen main's Swarm. A hand-over to `user` asks the one who started the run, so it ends the run.
    pub fn swarm() -> Self {
        let (team, manager) = (ChatTeam::Swarm, "SwarmGroupChatManager".to_owned());
        let termination_handoff = Some("user".to_owned());
        ChatRules { team, manager, termination_handoff, ..ChatRules::selector() }
    }
    pub fn magentic() -> Self {
        let (team, manager) = (ChatTeam::Magentic, "MagenticOneOrchestrator".to_owned());
        ChatRules { team, manager, max_round: 20, termination: None, ..ChatRules::selector() }
    }

    /// Whether `speaker` may speak again at once.
    pub(super) fn may_repeat(&self, speaker: &str) -> bool {
        match &self.allow_repeat_speaker {
            None => true,
            Some(AllowRepeat::Everybody(all)) => *all,
            Some(AllowRepeat::Only(names)) => names.iter().any(|name| name == speaker),
        }
    }
    pub(super) fn attempts(&self) -> u32 {
        self.max_retries_for_selecting_speaker.saturating_add(1)
    }
    /// The rules as they are in a chat of these agents, if it may start: whoever takes part is handed the word and ends nothing.
    pub(super) fn among(mut self, agents: &[ChatAgent]) -> Result<Self, ChatError> {
        self.check(agents)?;
        self.termination_handoff = self.termination_handoff.filter(|to| !agents.iter().any(|agent| agent.name == *to));
        Ok(self)
    }
    /// What a chat of these agents is refused for.
    pub(super) fn check(&self, agents: &[ChatAgent]) -> Result<(), ChatError> {
        if !self.manager_tools.is_empty() {
            return Err(ChatError::ManagerTools);
        }
        if self.max_round == 0 {
            return Err(ChatError::NoRounds);
        }
        let least = if matches!(self.team, ChatTeam::GroupChat | ChatTeam::Selector) { 2 } else { 1 };
        if agents.len() < least {
            return Err(match self.team {
                ChatTeam::GroupChat => ChatError::Underpopulated(agents.len()),
                ChatTeam::Selector | ChatTeam::Swarm | ChatTeam::Magentic => ChatError::TooFewParticipants(least),
            });
        }
        for (at, agent) in agents.iter().enumerate() {
            if agent.name.is_empty() || agents[..at].iter().any(|other| other.name == agent.name) {
                return Err(ChatError::NotUnique(agent.name.clone()));
            }
        }
        if let Some(AllowRepeat::Only(names)) = &self.allow_repeat_speaker {
            known("allow_repeat_speaker", names, agents)?;
        }
        self.check_transitions(agents)
    }
    fn check_transitions(&self, agents: &[ChatAgent]) -> Result<(), ChatError> {
        let Some(transitions) = &self.allowed_or_disallowed_speaker_transitions else { return Ok(()) };
        if self.allow_repeat_speaker.is_some() {
            return Err(ChatError::TransitionsAndRepeat);
        }
        if self.speaker_transitions_type.is_none() {
            return Err(ChatError::TransitionsTypeMissing);
        }
        known("transitions", transitions.keys(), agents)?;
        known("transitions", transitions.values().flatten(), agents)?;
        match agents.iter().any(|agent| !self.reachable(&agent.name, agents).is_empty()) {
            true => Ok(()),
            false => Err(ChatError::NoTransitions),
        }
    }
    /// Who may follow `speaker` by the transitions and the rule of repetition; everybody may follow a stranger.
    pub(super) fn reachable<'a>(&self, speaker: &str, agents: &'a [ChatAgent]) -> Vec<&'a ChatAgent> {
        let stranger = !agents.iter().any(|agent| agent.name == speaker);
        let disallowed = self.speaker_transitions_type == Some(TransitionsType::Disallowed);
        let follows = |next: &ChatAgent| match &self.allowed_or_disallowed_speaker_transitions {
            _ if stranger => true,
            None => next.name != speaker || self.may_repeat(speaker),
            Some(edges) => edges.get(speaker).is_some_and(|edges| edges.contains(&next.name)) != disallowed,
        };
        agents.iter().filter(|next| follows(next)).collect()
    }
}

fn known<'a>(
    field: &'static str,
    names: impl IntoIterator<Item = &'a String>,
    agents: &[ChatAgent],
) -> Result<(), ChatError> {
    match names.into_iter().find(|name| !agents.iter().any(|agent| agent.name == **name)) {
        Some(name) => Err(ChatError::UnknownAgent { field, name: name.clone() }),
        None => Ok(()),
    }
}

/// Why a chat cannot start, cannot go on, or refuses what it is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    #[error(
        "GroupChat is underpopulated with {0} agents. \
         Please add more agents to the GroupChat or use direct communication instead."
    )]
    Underpopulated(usize),
    #[error("A team of this kind needs at least {0} participants.")]
    TooFewParticipants(usize),
    #[error("The participant names must be unique and not empty: '{0}'.")]
    NotUnique(String),
    #[error("The maximum number of rounds must be greater than 0.")]
    NoRounds,
    #[error("A chat needs an opening message.")]
    NoOpening,
    #[error(
        "GroupChatManager is not allowed to make function/tool calls. \
         Please remove the 'functions' or 'tools' config in 'llm_config' you passed in."
    )]
    ManagerTools,
    #[error(
        "Don't provide both allowed_or_disallowed_speaker_transitions and allow_repeat_speaker in group chat. \
         Please set one of them to None."
    )]
    TransitionsAndRepeat,
    #[error(
        "GroupChat allowed_or_disallowed_speaker_transitions is not None, but speaker_transitions_type is None. \
         Please set speaker_transitions_type to either 'allowed' or 'disallowed'."
    )]
    TransitionsTypeMissing,
    #[error("The transitions lead from nobody to nobody: there must be at least one edge.")]
    NoTransitions,
    #[error("{field}: no agent of the group chat is named '{name}'.")]
    UnknownAgent { field: &'static str, name: String },
    #[error("No agent can execute the function {0}. Please check the function_map of the agents.")]
    NoExecutor(String),
    #[error("Custom speaker selection function returned an agent {0} not in the group chat.")]
    FunctionAgent(String),
    #[error("Selector function returned an invalid speaker name: {name}. Expected one of: {expected}.")]
    SelectorFunction { name: String, expected: String },
    #[error("Candidate function must return a non-empty list of participant names.")]
    NoCandidates,
    #[error("Candidate function returned invalid participant names: {names}. Expected one of: {expected}.")]
    Candidates { names: String, expected: String },
    #[error("The selected speaker in the handoff message is not a participant.")]
    HandoffTarget,
    #[error("Failed to parse ledger information after multiple retries.")]
    Ledger,
    #[error("The answer of {speaker} cannot be read: {why}")]
    Answer { speaker: String, why: String },
    #[error(
        "Cannot resume group chat as no messages were provided. \
         Use GroupChatManager.run_chat or ConversableAgent.initiate_chat to start a new chat."
    )]
    NothingToResume,
    #[error("Agent name in message doesn't exist as agent in group chat: {0}")]
    UnknownInHistory(String),
    #[error("The group chat has already ended.")]
    Ended,
    #[error("The group chat has not ended yet.")]
    NotEnded,
    #[error("The group chat asks no human for '{0}'.")]
    NotAsked(ChatKey),
}

/// Names as AutoGen prints a list: `['alice', 'bob']`.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("'{name}'")).collect();
    format!("[{}]", names.join(", "))
}
