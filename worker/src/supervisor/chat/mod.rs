//! Group chats, as AutoGen has them: several agents, one conversation, one speaker at a time.
//!
//! ```text
//!   opening ──► store, broadcast ──► over? ──► select a speaker ──► the speaker answers ──┐
//!                    ▲                                                                    │
//!                    └────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! [`GroupChat`] is one pure machine for four teams ([`ChatTeam`](crate::supervisor::spec::ChatTeam)): the group chat and manager of AutoGen 0.2, and the
//! selector, swarm and Magentic-One teams of its main line. What models, agents, functions and humans answer comes in as
//! recorded answers; the chat asks for at most one thing at a time.
//!
//! Invariant: every message is stored once, in the order it was said, and is for everybody but its speaker; the rounds
//! are bounded. It starts no agents and knows no engine.

mod control;
mod from_spec;
mod lost;
mod machine;
mod magentic;
mod message;
mod names;
mod rules;
mod selecting;
mod strategy;
mod text;
mod view;

pub use machine::{GroupChat, ResumedChat};
pub use message::{ChatMessage, ChatToolCall, FunctionCall};
pub use names::mentioned;
pub use rules::{AllowRepeat, ChatAgent, ChatError, ChatRules, SPEAKER_TRIES};
pub use selecting::draw;
pub use view::{ChatOutcome, ChatView, ChatWait, SpeakerChoiceRequest, Stop};

#[cfg(test)]
mod tests;
