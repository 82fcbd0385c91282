//! The `model` capability: one call of a language model, in no provider's words.
//!
//! Invariant: one activity is one request to a provider (no inner retries), and whatever a workflow may decide on is in
//! its result or in the class of its failure. Only the final message is a result; tokens on the way are shown, not kept.

pub mod chat;

pub use chat::*;
