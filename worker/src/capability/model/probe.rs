//! Looking at providers by hand: which are configured, what they offer, and whether one answers.
//!
//! Invariant: a probe is one request, with the key, pace and limits of a call; it is outside any run, and nothing of it is
//! recorded. Of a key only its place is told, and it is cut out of whatever comes back.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::config::Models;
use super::prices::Cost;
use super::provider::Provider;
use super::{ChatRequest, Message, ModelCallContext, ModelConfig, ModelError, NullSink, Usage};

/// The answer to a probe.
#[derive(Debug, Clone, PartialEq)]
pub struct Pong {
    /// The model that answered, as the provider names it.
    pub model: String,
    /// What it said.
    pub said: String,
    /// From the question to the whole answer.
    pub took: Duration,
    /// What the provider counted.
    pub usage: Usage,
    /// What it cost, if its price is known.
    pub cost: Cost,
}

/// Asks a model for one word.
///
/// # Errors
/// As a call of the model in a run would fail.
pub async fn ping(
    config: &ModelConfig,
    provider: &str,
    model: &str,
    words: &str,
    timeout: Duration,
) -> Result<Pong, ModelError> {
    let models = Models::new(config.clone());
    let asked = models.get(provider);
    let request = ChatRequest {
        model: model.to_owned(),
        messages: vec![Message::User { content: words.to_owned() }],
        max_tokens: Some(256),
        ..ChatRequest::default()
    };
    let key = crate::api::token::random_hex(8).unwrap_or_else(|_| "ping".to_owned());
    let call = ModelCallContext { timeout, ..ModelCallContext::alone(format!("ping-{key}")) };
    let began = Instant::now();
    let response = asked.complete(&request, &call, &mut NullSink).await?;
    let cost = match asked.is_free() {
        true => Cost::Micros(0),
        false => config.prices.cost(provider, model, &response),
    };
    let took = began.elapsed();
    Ok(Pong { model: response.model, said: response.said.content, took, usage: response.usage, cost })
}

/// The models that a provider offers, by its own list of them; none of one in this program, which has no list and is not asked.
///
/// # Errors
/// There is no such provider, it may not be asked, it gives no list, or it cannot be reached.
pub async fn offered(config: &ModelConfig, provider: &str, timeout: Duration) -> Result<Vec<String>, ModelError> {
    if is_own(config, provider) {
        return Ok(Vec::new());
    }
    let models = Models::new(config.clone());
    let Some(found) = config.providers.get(provider).filter(|_| config.allow_requests && config.problem.is_none())
    else {
        // The model of this name says why it cannot be asked.
        let nothing = ChatRequest::default();
        let call = ModelCallContext::alone("list");
        models.get(provider).complete(&nothing, &call, &mut NullSink).await?;
        return Ok(Vec::new());
    };
    let listed = Provider::new(found)?.list(found, timeout).await?;
    let ids = listed["data"].as_array().into_iter().flatten();
    Ok(ids.filter_map(|one| one["id"].as_str().map(str::to_owned)).collect::<Vec<String>>())
}

/// Whether a model of this program is meant: a provider of the same name goes before it.
pub fn is_own(config: &ModelConfig, name: &str) -> bool {
    config.models.contains_key(name) && !config.providers.contains_key(name)
}

/// What a list of models has to be.
pub(super) fn is_list(listed: &Value) -> bool {
    listed["data"].is_array()
}
