//! A model that is a closure, for tests and for programs of their own.
//!
//! ```
//! use std::sync::Arc;
//!
//! use bosun_worker::capability::model::{Chaos, ChaosRates, ChatRequest, FunctionModel, ModelConfig, mock};
//!
//! let counts = FunctionModel::new(|request: &ChatRequest| Ok(mock::says(&request.messages.len().to_string())));
//! // Asked as the provider `counts`; a tenth of the calls is refused, to see how a run takes it.
//! let rates = ChaosRates { overloaded: 100, ..ChaosRates::default() };
//! let config = ModelConfig::default().with_model("counts", Chaos::new(Arc::new(counts), 7, rates));
//! assert!(config.knows("counts"));
//! ```
//!
//! Invariant: it answers at once and shows the text of its answer as one token. It is free.

use super::{Answering, ChatRequest, ChatResponse, Model, ModelCallContext, ModelError, StreamToken, TokenSink};

/// Answers by a function.
pub struct FunctionModel<F>(F);

impl<F: Fn(&ChatRequest) -> Result<ChatResponse, ModelError> + Send + Sync> FunctionModel<F> {
    /// A model that answers with this function.
    pub fn new(function: F) -> Self {
        FunctionModel(function)
    }
}

impl<F: Fn(&ChatRequest) -> Result<ChatResponse, ModelError> + Send + Sync> Model for FunctionModel<F> {
    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        _: &'a ModelCallContext,
        sink: &'a mut dyn TokenSink,
    ) -> Answering<'a> {
        Box::pin(async move {
            let response = (self.0)(request)?;
            show(&response, sink);
            Ok(response)
        })
    }
    fn is_free(&self) -> bool {
        true
    }
}

/// Shows a whole answer, for models that have it at once.
pub(super) fn show(response: &ChatResponse, sink: &mut dyn TokenSink) {
    if !response.said.content.is_empty() {
        sink.token(StreamToken::Text(&response.said.content));
    }
    response.said.tool_calls.iter().for_each(|call| sink.token(StreamToken::ToolCall(&call.name)));
}
