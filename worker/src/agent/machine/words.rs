//! What an agent hears and what it asks for.
//!
//! Invariant: all of it is data; a key is asked for once and heard of once. Nothing here decides.

use std::collections::BTreeMap;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent::ledger::{Amount, Resource, Tally, TopUp, UnknownUsage};
use crate::agent::spec::{AgentSpec, Share};
use crate::agent::transcript::TranscriptItem;
use crate::capability::model::ChatResponse;

/// Names what was asked for; counts up.
pub type FlightKey = u64;

/// What happens to an agent.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEvent {
    /// A model call has ended. `origin` is where the history has its result.
    Model {
        key: FlightKey,
        origin: u64,
        result: Result<ModelAnswer, Fault>,
    },
    /// A tool has ended.
    Tool {
        key: FlightKey,
        origin: u64,
        result: Result<Value, Fault>,
    },
    /// An agent that was called has ended; also one that failed may say what it spent.
    Child {
        key: FlightKey,
        origin: u64,
        result: Result<Value, Fault>,
        output: Option<AgentOutput>,
    },
    /// An agent that was called waits for people, or works again.
    ChildTold {
        key: FlightKey,
        working: bool,
    },
    Approval(ToolApprovalResponse),
    TopUp(TopUp),
    Lent(Lent),
    /// Nothing may begin until a resume; what is under way ends.
    Pause {
        reason: String,
    },
    Resume,
    WallFired,
    Cancel {
        reason: String,
    },
}

/// The answer to a model call.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelAnswer {
    pub response: ChatResponse,
    /// The answer as data, if it conforms to the schema.
    pub value: Option<Value>,
    /// How it does not conform.
    pub problems: Vec<String>,
    /// `None`: nobody knows the price.
    pub cost_micros: Option<u64>,
    /// Attempts before this one that may have been answered, and paid for.
    pub cut: u32,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub class: FaultClass,
    pub message: String,
    /// Whether a model call may have to be paid for although there is no answer.
    pub charged: bool,
    /// Attempts before the one that failed that may have been answered, and paid for.
    pub cut: u32,
}

impl Fault {
    /// What nobody knows the end of may have to be paid for; what was refused need not.
    pub fn new(class: FaultClass, message: impl Into<String>) -> Fault {
        let charged = match class {
            FaultClass::Lost | FaultClass::Canceled => true,
            FaultClass::NeedsHuman | FaultClass::Fatal | FaultClass::TooLong | FaultClass::OutOfTime => false,
        };
        Fault { class, message: message.into(), charged, cut: 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultClass {
    /// It was tried as often as it may be, or a person has to do something.
    NeedsHuman,
    /// It will never succeed.
    Fatal,
    /// The model cannot read so long a conversation; a shorter one it can.
    TooLong,
    /// The time of the run above is over: it was not made.
    OutOfTime,
    /// Nobody knows whether it happened.
    Lost,
    Canceled,
}

/// What an agent asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentRequest {
    Model {
        call: ModelCall,
        attempts: u32,
    },
    Tool {
        key: FlightKey,
        tool: String,
        activity_type: String,
        input: Value,
        timeout_ms: u64,
        attempts: u32,
    },
    Child {
        key: FlightKey,
        spec: Box<AgentSpec>,
    },
    WallTimer {
        at: Timestamp,
    },
    /// Ends a tool, a child or a model call; its end is heard of as any other.
    Cancel {
        key: FlightKey,
    },
}

/// The input of the activity `agent_model`: what is new since the call before, and nothing that the history has already.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelCall {
    pub key: FlightKey,
    pub purpose: CallPurpose,
    pub model: String,
    pub max_tokens: u32,
    /// The call whose conversation, its answer included, this one follows on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    pub items: Vec<TranscriptItem>,
    /// No attempt of it begins later than this after it was asked for: the time of the run above is over then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
}

/// What a model call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallPurpose {
    Answer,
    /// Sums up the older half of the conversation; no tools are offered.
    Summary,
}

/// The signal `approval_response_v1`. It counts for the very call whose id and hash it names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolApprovalResponse {
    pub id: String,
    /// Over the tool and the canonical arguments, as the query `approvals` shows it.
    pub hash: String,
    pub approved: bool,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub by: String,
    /// May be repeated for the record; arguments that are not those of the call make the response void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<serde_json::Value>,
}

/// Why an agent ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentStopReason {
    Completed,
    /// The answer was cut at the limit of tokens.
    Length,
    Refused,
    /// The answer did not conform, however often it was sent back.
    InvalidOutput {
        problems: Vec<String>,
    },
    Loop,
    Budget {
        resource: Resource,
        /// What was used up is what was lent of the run's, and not a limit of its own.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lent: bool,
    },
    /// The conversation does not fit, and cannot be made shorter.
    ContextExceeded,
    Failed {
        message: String,
    },
    Canceled {
        reason: String,
    },
}

/// The result of the workflow `agent`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentOutput {
    pub name: String,
    pub stop: AgentStopReason,
    /// What the model said last.
    pub text: String,
    /// The answer as data, where a schema was given and is fulfilled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Of this agent and of all below it.
    pub spent: Amount,
    #[serde(flatten)]
    pub unknown: UnknownUsage,
    pub by_model: BTreeMap<String, Tally>,
    /// How often the conversation was summed up.
    pub compactions: u64,
    /// Calls of tools that were refused.
    pub refusals: u64,
}

/// The signal `budget_share_v1`: the answer of a supervisor that was asked for more of the run's budget.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lent {
    #[serde(flatten)]
    pub more: Share,
    /// Calls, for a supervisor; agents are lent none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// There is no more to be asked for.
    #[serde(default)]
    pub last: bool,
}

/// What the agent waits for people for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Halt {
    /// `budget_top_up_v1` goes on.
    Budget { resource: Resource },
    /// `resume_v1` goes on: the same call is made again.
    NeedsHuman { why: String },
    /// `budget_share_v1` goes on: only the supervisor is asked.
    Share { resource: Resource, wanted: u64 },
}

impl Halt {
    /// In words, for who shows it.
    pub fn told(&self) -> String {
        match self {
            Halt::NeedsHuman { why } => why.clone(),
            Halt::Budget { resource } => format!("its budget is used up: {}", serde_json::json!(resource)),
            Halt::Share { .. } => "it waits for its share of the run's budget".to_owned(),
        }
    }
}

/// The asks of one event.
#[derive(Debug)]
pub(crate) struct AgentRequests {
    pub(crate) now: Timestamp,
    pub(crate) asks: Vec<AgentRequest>,
}
