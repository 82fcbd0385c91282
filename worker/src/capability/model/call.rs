//! The one trait behind which every model stands, and what goes along with a request.
//!
//! Invariant: a call is one request (no inner retries) and may be dropped at any moment. What is shown on the way goes
//! to the sink and is not part of the answer. No model sees more of the workflow than the tag.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{ChatRequest, ChatResponse, ErrorClass, ModelError};

/// A model that is answering.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<ChatResponse, ModelError>> + Send + 'a>>;

/// Something that answers requests: a provider over the network, or a model of tests that needs no key.
pub trait Model: Send + Sync {
    /// Answers a request. Tokens go to `sink` as they come; only what this returns is the result.
    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        call: &'a ModelCallContext,
        sink: &'a mut dyn TokenSink,
    ) -> Answering<'a>;

    /// Whether an answer costs nothing, whatever its usage: true of models that call nobody.
    fn is_free(&self) -> bool {
        false
    }
}

/// What goes along with a request.
#[derive(Debug, Clone)]
pub struct ModelCallContext {
    /// The same for every attempt.
    pub idempotency_key: String,
    /// The attempt that asks.
    pub tag: CallTag,
    /// Of the run that the tag names.
    pub namespace: String,
    /// The whole time for the answer.
    pub timeout: Duration,
    /// Canceled with the activity; a model that waits beside its future should look at it.
    pub canceled: CancellationToken,
}

/// Which attempt of which activity a call, and every token of it, belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTag {
    /// The workflow that asks.
    pub workflow_id: String,
    /// Its run.
    pub run_id: String,
    /// The event that scheduled the activity.
    pub activity: u64,
    /// The attempt of the activity, from 1.
    pub attempt: u32,
}

impl ModelCallContext {
    /// A call outside any workflow, as tests and tools make it.
    pub fn alone(idempotency_key: impl Into<String>) -> ModelCallContext {
        ModelCallContext {
            idempotency_key: idempotency_key.into(),
            tag: CallTag { attempt: 1, ..CallTag::default() },
            namespace: String::new(),
            timeout: Duration::from_secs(60),
            canceled: CancellationToken::new(),
        }
    }
}

/// What can be shown before the answer is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamToken<'a> {
    /// The next piece of text.
    Text(&'a str),
    /// A tool with this name is being called; its arguments come with the answer.
    ToolCall(&'a str),
}

/// Where tokens go while an answer is being made.
pub trait TokenSink: Send {
    /// A piece of the answer has come.
    fn token(&mut self, token: StreamToken<'_>);
}

/// Shows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullSink;

impl TokenSink for NullSink {
    fn token(&mut self, _: StreamToken<'_>) {}
}

impl<F: FnMut(StreamToken<'_>) + Send> TokenSink for F {
    fn token(&mut self, token: StreamToken<'_>) {
        self(token);
    }
}

impl ModelError {
    /// The same request may succeed later.
    pub fn retry(code: &str, message: impl Into<String>) -> ModelError {
        ModelError::of(ErrorClass::Retry { after: None }, code, message)
    }
    /// Somebody has to do something first.
    pub fn needs_human(code: &str, message: impl Into<String>) -> ModelError {
        ModelError::of(ErrorClass::NeedsHuman, code, message)
    }
    /// The same request will never succeed.
    pub fn fatal(code: &str, message: impl Into<String>) -> ModelError {
        ModelError::of(ErrorClass::Fatal, code, message)
    }
    fn of(class: ErrorClass, code: &str, message: impl Into<String>) -> ModelError {
        ModelError { class, status: None, code: Some(code.to_owned()), message: message.into() }
    }
}

/// The provider that the name of a model begins with, as in `anthropic/claude`, and the rest of it.
pub(crate) fn with_provider(name: &str) -> Option<(&str, &str)> {
    name.split_once('/').filter(|(first, _)| ["openai", "anthropic", "schema"].contains(first))
}

/// Codes of errors that no provider gave. Providers' own words are not among them, but for one that means something here.
#[doc(hidden)]
pub mod code {
    /// The conversation is longer than the model can read: OpenAI's word, for whatever the provider says of it.
    pub const CONTEXT_LENGTH: &str = "context_length_exceeded";
    /// The answer is not what the wire format says.
    pub const MALFORMED: &str = "malformed_answer";
    /// The stream ended before the answer was whole.
    pub const CUT: &str = "stream_cut";
    pub const TRANSPORT: &str = "transport";
    /// There was no connection, and so nothing was sent.
    pub const UNREACHABLE: &str = "unreachable";
    pub const TIMEOUT: &str = "timeout";
    pub const TOO_LARGE: &str = "answer_too_large";
    pub const REDIRECT: &str = "redirect";
    pub const REFUSED_ADDRESS: &str = "refused_address";
    /// Our own pace: too many requests of this worker at a time, or a limit that the provider announced.
    pub const PACED: &str = "paced";
    /// The same, and the call was given a moment of its own to come back at.
    pub const TURN: &str = "paced_turn";
    pub const SECRET: &str = "secret_unavailable";
    pub const NOT_ALLOWED: &str = "model_requests_not_allowed";
    pub const CASSETTE_MISS: &str = "cassette_miss";
    pub const CASSETTE: &str = "cassette";
    /// The schema that an answer is wanted under is none.
    pub const SCHEMA: &str = "wrong_schema";
    pub const UNKNOWN_PROVIDER: &str = "unknown_provider";
    pub const CONFIGURATION: &str = "configuration";
    pub const SCRIPT: &str = "script";
    pub const CHAOS: &str = "chaos";
}
