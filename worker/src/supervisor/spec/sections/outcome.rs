//! What a run gives in the end, what it may cost, what it tells on the way, and what is undone when it is canceled.
//!
//! Invariant: a budget that is null is no budget; one that is set ends the run in one stated way. It charges nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::supervisor::model::OnExhausted;
use crate::supervisor::model::Span;
use crate::supervisor::native::System;
use crate::supervisor::spec::Money;

/// `synthesis:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Synthesis {
    /// What the result of the run is.
    pub mode: SynthesisMode,
    /// The shape of the synthesized result, as JSON Schema (FSS-21).
    pub schema: Option<Value>,
    /// A single successful result that is no JSON is the result (SHN-48).
    pub bypass_single: bool,
    /// Results that say the same as another one, or nothing, are not told (SHN-48).
    pub dedupe: bool,
    /// The shortest result of a synthesis subtask that is used as it is (SHN-48).
    pub own_result_chars: u32,
    /// How often a synthesis is asked for that violates the schema.
    pub tries: u32,
    /// Whether the synthesizer is asked although nothing was done. Null is as the preset has it: flow-state's (FSS-14,
    /// FSP-08, FSC-03) and CUGA's (CUG-43) tell it so; for the others such a call has nothing to tell, and is not paid for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_nothing: Option<bool>,
}

impl Default for Synthesis {
    fn default() -> Self {
        Synthesis {
            mode: SynthesisMode::Synthesizer,
            schema: None,
            bypass_single: true,
            dedupe: false,
            own_result_chars: 100,
            tries: 3,
            of_nothing: None,
        }
    }
}

/// What the result of a run is (supervisors.md §4.3 no. 44).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SynthesisMode {
    /// The result of the task that is marked as final.
    FinalTask,
    /// What the synthesizer makes of all results.
    Synthesizer,
    /// The results, merged.
    Merge,
    /// The output of the last task.
    LastOutput,
    /// The last message of the conversation.
    LastMessage,
    /// The tasks as they are (FSP-08).
    None,
}

/// `budget:`; null is without end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// Tokens of all models, with all runs below.
    pub tokens: Option<u64>,
    /// Calls of models, workers and jobs of the run, with all runs below.
    pub llm_calls: Option<u64>,
    /// Tool calls of one task (CUG-35).
    pub tool_calls: Option<u64>,
    /// Tool calls of the whole conversation (CUG-35).
    pub tool_calls_total: Option<u64>,
    /// Money, with all runs below.
    pub cost: Option<Money>,
    /// Whether calls may go on that do not say what they cost while `cost` is limited: their money is unknown, and counts as none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_unpriced: bool,
    /// Time from the start of the run, without the time it is paused or waits for people.
    pub wall: Option<Span>,
    /// What happens when one of them is used up.
    pub on_exhausted: OnExhausted,
    /// Strategies step down when few tokens are left; null is never (SHN-72).
    pub degrade: Option<Degrade>,
}

/// `limits:`; how long one history may become.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunLimits {
    /// Events of a history after which the run goes on in a new one (continue-as-new), once what is under way has ended; null, or more, is what the engine suggests.
    pub history_events: Option<u64>,
}

impl RunLimits {
    pub(in crate::supervisor) fn is_default(&self) -> bool {
        *self == RunLimits::default()
    }
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            tokens: None,
            llm_calls: None,
            tool_calls: None,
            tool_calls_total: None,
            cost: None,
            allow_unpriced: false,
            wall: None,
            on_exhausted: OnExhausted::Synthesize,
            degrade: None,
        }
    }
}

/// Below so many remaining tokens a strategy steps down (SHN-72).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Degrade {
    /// To chain of thought.
    pub tree_of_thoughts: u64,
    /// To react.
    pub chain_of_thought: u64,
    /// To reflection.
    pub debate: u64,
}

impl Default for Degrade {
    fn default() -> Self {
        Degrade { tree_of_thoughts: 8_000, chain_of_thought: 4_000, debate: 8_000 }
    }
}

/// `progress:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Progress {
    /// How the status of tasks is told.
    pub messages: ProgressMessages,
    /// Whether an audience hears of the team and its steps, whatever `messages` says (SHN-28); null is as the preset has it:
    /// Shannon's tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<bool>,
    /// In the words of which system people are told how a task stands, and say it; null is those of the preset's own, and
    /// where they are given here or are those of flow-state's board (FSS-34), whoever decides reads them too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<System>,
}

impl Default for Progress {
    fn default() -> Self {
        Progress { messages: ProgressMessages::Append, team: None, words: None }
    }
}

/// How a sub-task's status message moves (CUG-44).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProgressMessages {
    /// A line each time.
    Append,
    /// One message a sub-task, changed in place.
    Update,
    /// Nothing is told.
    None,
}

/// `compensation:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Compensation {
    /// A canceled run undoes what its tasks said how to undo, last first (SHN-62).
    pub on_cancel: bool,
}

impl Default for Compensation {
    fn default() -> Self {
        Compensation { on_cancel: true }
    }
}
