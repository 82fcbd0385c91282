//! What the model of a session is asked in a step: the context of its call, as the loop makes it and the run reads it.
//!
//! Invariant: a context is read back as it was made. It is data: nothing here asks anybody.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::message::Message;
pub use crate::supervisor::core::asker::ToolOffer;

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepContext<'s> {
    /// The id of the session, and how deep it stands.
    #[serde(default)]
    pub session: Cow<'s, str>,
    #[serde(default)]
    pub depth: u32,
    #[serde(default)]
    pub task: Cow<'s, str>,
    pub model: Option<String>,
    #[serde(default)]
    pub instructions: Cow<'s, str>,
    pub messages: Cow<'s, [Message]>,
    pub tools: Vec<ToolOffer>,
    #[serde(default)]
    pub parallel_tool_calls: bool,
    /// It is answered without tools.
    #[serde(default)]
    pub last_word: bool,
}
