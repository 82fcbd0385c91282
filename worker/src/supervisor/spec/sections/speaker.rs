//! Who speaks next in a group chat.
//!
//! Invariant: the names and defaults are AutoGen's (AGC-01); the way speakers are chosen is read in any case. It chooses
//! nobody.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};

/// `speaker:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Speaker {
    /// Which kind of chat it is.
    pub team: ChatTeam,
    /// How a speaker is chosen.
    pub method: SpeakerMethod,
    /// Attempts to choose after the first (AGC-06).
    pub retries: u32,
    /// Who speaks when nobody was chosen.
    pub fallback: Fallback,
    /// Null is yes, unless transitions are given (AGC-01, AGC-09).
    pub allow_repeat: Option<bool>,
    /// Who may follow whom, or may not.
    pub transitions: BTreeMap<String, Vec<String>>,
    /// What `transitions` are; required with them.
    pub transitions_type: Option<TransitionsType>,
    /// A message that holds this text is the last one; null is none.
    pub termination: Option<String>,
    /// Speaks when a person interrupts, if it takes part (AGC-12).
    pub admin: String,
    /// Whether a message with a tool call goes only to agents that can carry it out.
    pub func_call_filter: bool,
    /// Whether the chat begins with an introduction of everybody.
    pub send_introductions: bool,
    /// Wrong entries of a person who chooses, before the next agent speaks (AGC-13).
    pub manual_tries: u32,
    /// Selector: a function is asked first (AGC-17).
    pub selector_function: bool,
    /// Selector: a function names the candidates (AGC-17).
    pub candidate_function: bool,
    /// What happens when a speaker fails.
    pub on_error: OnSpeakerError,
    /// The ledgers of a `magentic` team.
    pub ledger: Ledger,
}

impl Default for Speaker {
    fn default() -> Self {
        Speaker {
            team: ChatTeam::GroupChat,
            method: SpeakerMethod::Auto,
            retries: 2,
            fallback: Fallback::Next,
            allow_repeat: None,
            transitions: BTreeMap::new(),
            transitions_type: None,
            termination: Some("TERMINATE".to_owned()),
            admin: "Admin".to_owned(),
            func_call_filter: true,
            send_introductions: false,
            manual_tries: 3,
            selector_function: false,
            candidate_function: false,
            on_error: OnSpeakerError::Stop,
            ledger: Ledger::default(),
        }
    }
}

/// The four kinds of chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChatTeam {
    /// AutoGen's group chat.
    GroupChat,
    /// A model selects among all.
    Selector,
    /// Whoever is handed over to speaks next.
    Swarm,
    /// An orchestrator plans, and names who speaks next.
    Magentic,
}

/// How a speaker is chosen (AGC-04).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SpeakerMethod {
    /// A model chooses.
    Auto,
    /// A person chooses.
    Manual,
    /// Chance, from a seed that is recorded.
    Random,
    /// One after the other, in the order of the list.
    RoundRobin,
    /// A capability that answers an agent, a method, or nobody.
    Function,
}

impl SpeakerMethod {
    /// Every method.
    pub const ALL: [SpeakerMethod; 5] = [
        SpeakerMethod::Auto,
        SpeakerMethod::Manual,
        SpeakerMethod::Random,
        SpeakerMethod::RoundRobin,
        SpeakerMethod::Function,
    ];
    /// The word in a spec.
    pub fn as_str(self) -> &'static str {
        match self {
            SpeakerMethod::Auto => "auto",
            SpeakerMethod::Manual => "manual",
            SpeakerMethod::Random => "random",
            SpeakerMethod::RoundRobin => "round_robin",
            SpeakerMethod::Function => "function",
        }
    }
    /// AutoGen's words, in any case.
    pub fn read(text: &str) -> Result<Self, UnknownMethod> {
        let known = SpeakerMethod::ALL.into_iter().find(|method| method.as_str().eq_ignore_ascii_case(text));
        known.ok_or_else(|| UnknownMethod { text: text.to_owned() })
    }
}

/// The text is AutoGen's; a function is given otherwise there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "GroupChat speaker_selection_method is set to '{text}'. It should be one of ['auto', 'manual', 'random', 'round_robin'] (case insensitive)."
)]
/// A method that is not known.
pub struct UnknownMethod {
    /// What was written.
    pub text: String,
}

impl<'de> Deserialize<'de> for SpeakerMethod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        SpeakerMethod::read(&text).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for SpeakerMethod {
    fn schema_name() -> Cow<'static, str> {
        "SpeakerMethod".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "How a speaker is chosen; in any case.",
            "type": "string",
            "pattern": "^(?i:auto|manual|random|round_robin|function)$"
        })
    }
}

/// Who speaks when nobody was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// The next in list order (AGC-06).
    Next,
    /// The previous speaker (AGC-17, AGC-20).
    Previous,
}

/// What `transitions` are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransitionsType {
    /// Only these agents may follow.
    Allowed,
    /// All but these agents may follow.
    Disallowed,
}

/// What happens when a speaker fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnSpeakerError {
    /// The chat ends with the error.
    Stop,
    /// Another agent speaks.
    Skip,
    /// The same agent is asked again: three times in all, then as `stop`.
    Retry,
}

/// MagenticOne's ledgers (AGC-18).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ledger {
    /// Stalls before a new plan.
    pub max_stalls: u32,
    /// How often a progress ledger is asked for.
    pub json_retries: u32,
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger { max_stalls: 3, json_retries: 10 }
    }
}
