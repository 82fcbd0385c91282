//! The activity `model`: one answer of one model, checked against its schema and priced.
//!
//! Invariant: what a workflow decides on is in the result (`value` or `problems`, `cost`) or in the type of the failure:
//! [`MODEL_RETRY`] is repeated by the activity's retry policy, after the provider's delay where there is one;
//! [`MODEL_NEEDS_HUMAN`] and [`MODEL_FATAL`] are not. Each failure carries its [`ModelError`] as details.

use std::sync::Arc;
use std::time::Duration;

use bosun_engine::{ActivityContext, ActivityError, ActivityOptions, CancellationType, Failure, Payload, RetryPolicy};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use tracing::field::Empty;

use super::call::code;
use super::config::Models;
use super::conform::{ConformedAnswer, check, schema_problem};
use super::prices::{Cost, ModelPrice};
use super::{
    CallTag, ChatRequest, ChatResponse, ErrorClass, ModelCallContext, ModelError, OutputSchema, StreamToken, TokenSink,
    Usage, tokens,
};
use crate::capability::http::now;
use crate::capability::in_time;

/// The activity type.
pub const MODEL: &str = "model";

/// Failure types, one for each class of error.
pub const MODEL_RETRY: &str = "ModelRetry";
/// See [`ErrorClass::NeedsHuman`].
pub const MODEL_NEEDS_HUMAN: &str = "ModelNeedsHuman";
/// See [`ErrorClass::Fatal`].
pub const MODEL_FATAL: &str = "ModelFatal";

/// What to ask whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelInput {
    /// A name of the worker's configuration: `openai`, `anthropic`, `schema`, ...
    pub provider: String,
    /// The conversation and what the answer must be.
    pub request: ChatRequest,
    /// For the whole answer.
    #[serde(default = "timeout_ms_default")]
    pub timeout_ms: u64,
    /// What a model costs that the owner's table does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<ModelPrice>,
    /// No attempt begins later than this after the call was asked for: the time of its run is over then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
}

fn timeout_ms_default() -> u64 {
    300_000
}

impl ModelInput {
    /// A request with the default time limit of five minutes.
    pub fn new(provider: impl Into<String>, request: ChatRequest) -> Self {
        ModelInput {
            provider: provider.into(),
            request,
            timeout_ms: timeout_ms_default(),
            price: None,
            within_ms: None,
        }
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelOutput {
    /// What the model said.
    pub response: ChatResponse,
    /// The answer as data, if the request has a schema and the answer conforms to it.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// What is wrong with an answer under a schema. Empty for a valid one, and while the model only calls tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// What it cost, if its price is known.
    pub cost: Cost,
    /// Earlier attempts of the same call that may have been answered, and paid for, although nobody heard it: the worker was
    /// killed meanwhile, or the answer was cut. Said by those that can know.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut: u32,
    /// About how many tokens it took, where the provider did not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated: Option<u64>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl ModelOutput {
    /// An answer that costs nothing, checked as every other.
    pub(crate) fn free(response: ChatResponse, schema: Option<&OutputSchema>) -> Self {
        let ConformedAnswer { value, problems } = check(schema, &response);
        ModelOutput { response, value, problems, cost: Cost::Micros(0), cut: 0, estimated: None }
    }

    /// Calls, tokens, and millionths of a dollar where the price is known, that were paid for: those of the answer, and as
    /// much for each attempt that was cut before it. What those took nobody knows; they asked the same.
    pub(crate) fn paid(&self) -> (u64, u64, Option<u64>) {
        let calls = 1 + u64::from(self.cut);
        let micros = match self.cost {
            Cost::Micros(micros) => Some(micros.saturating_mul(calls)),
            Cost::Unpriced(_) => None,
        };
        (calls, self.tokens().saturating_mul(calls), micros)
    }

    /// About how many tokens an answer took that was not counted, and at least what was counted.
    pub(crate) fn estimate(request: &ChatRequest, response: &ChatResponse) -> Option<u64> {
        let about = |value: serde_json::Result<String>| u64::from(tokens(value.map_or(0, |text| text.len())));
        let Usage { input, output, .. } = response.usage;
        if input.is_some() && output.is_some() {
            return None;
        }
        let input = input.unwrap_or_else(|| about(serde_json::to_string(request)));
        let output = output.unwrap_or_else(|| about(serde_json::to_string(&response.said)));
        Some(input.saturating_add(output))
    }

    /// How many tokens the answer took, as counted or else estimated.
    pub(crate) fn tokens(&self) -> u64 {
        let Usage { input, output, .. } = self.response.usage;
        self.estimated.unwrap_or_else(|| input.unwrap_or(0).saturating_add(output.unwrap_or(0)))
    }
}

/// An answer may be `null`: what is there is a value.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// How workflows schedule a model call: repeated where that may help, after the delay that a provider asks for, which
/// comes with the failure, goes before our own pauses, and frees the slot.
pub fn options(summary: &str, timeout: Duration, attempts: u32) -> ActivityOptions {
    ActivityOptions {
        start_to_close: Some(timeout),
        retry_policy: Some(RetryPolicy {
            maximum_attempts: attempts.max(1),
            maximum_interval: Some(BACKOFF_MAX),
            non_retryable_error_types: vec![MODEL_NEEDS_HUMAN.to_owned(), MODEL_FATAL.to_owned()],
            ..RetryPolicy::default()
        }),
        cancellation: CancellationType::TryCancel,
        summary: Some(summary.to_owned()),
        ..ActivityOptions::default()
    }
}

/// The activity function.
pub(super) async fn run(
    models: Arc<Models>,
    context: ActivityContext,
    input: ModelInput,
) -> Result<ModelOutput, ActivityError> {
    let ModelInput { provider, request, timeout_ms, price, within_ms } = input;
    let asked_at = context.task().scheduled_at;
    in_time::begins(within_ms, asked_at, now())?;
    let model = models.get(&provider);
    let call = call(&context, Duration::from_millis(timeout_ms));
    if let Some(OutputSchema { name, schema }) = &request.schema
        && let Some(why) = schema_problem(schema)
    {
        // No answer could be right, and each would be paid for.
        let error = ModelError::fatal(code::SCHEMA, format!("the output schema `{name}` itself is wrong: {why}"));
        return Err(failure(&provider, &call, &error).into());
    }
    let _cancel = call.canceled.clone().drop_guard();
    let mut sink = LiveOutput { live: models.config().live.sink(call.tag.clone()), context: context.clone(), chars: 0 };
    let span = span_of(&provider, &request, &call);
    let asked = model.complete(&request, &call, &mut sink).instrument(span.clone());
    let answered = tokio::select! {
        answered = asked => answered,
        () = context.canceled() => return Err(ActivityError::Canceled(None)),
    };
    note_answer(&span, &answered);
    drop(span);
    let waits = |failure| in_time::waits(failure, context.attempt(), within_ms, asked_at, now());
    let response = answered.map_err(|error| waits(failure(&provider, &call, &error)))?;
    let ConformedAnswer { value, problems } = check(request.schema.as_ref(), &response);
    let cost = match model.is_free() {
        true => Cost::Micros(0),
        false => models.config().prices.cost(&provider, &request.model, &response).or_by(price.as_ref(), &response),
    };
    let estimated = ModelOutput::estimate(&request, &response);
    Ok(ModelOutput { response, value, problems, cost, cut: 0, estimated })
}

/// The span of a call, in the words of the GenAI conventions. What is said stands in no span.
fn span_of(provider: &str, request: &ChatRequest, call: &ModelCallContext) -> tracing::Span {
    tracing::debug_span!(
        "chat",
        "gen_ai.operation.name" = "chat",
        "gen_ai.provider.name" = provider,
        "gen_ai.request.model" = request.model,
        "gen_ai.request.max_tokens" = request.max_tokens,
        "gen_ai.conversation.id" = call.tag.workflow_id,
        "gen_ai.response.model" = Empty,
        "gen_ai.response.id" = Empty,
        "gen_ai.usage.input_tokens" = Empty,
        "gen_ai.usage.output_tokens" = Empty,
        "error.type" = Empty,
    )
}

fn note_answer(span: &tracing::Span, answered: &Result<ChatResponse, ModelError>) {
    match answered {
        Ok(response) => {
            span.record("gen_ai.response.model", response.model.as_str());
            response.id.as_deref().map(|id| span.record("gen_ai.response.id", id));
            response.usage.input.map(|tokens| span.record("gen_ai.usage.input_tokens", tokens));
            response.usage.output.map(|tokens| span.record("gen_ai.usage.output_tokens", tokens));
        }
        Err(why) => _ = span.record("error.type", why.code.as_deref().unwrap_or("_OTHER")),
    }
}

fn call(context: &ActivityContext, timeout: Duration) -> ModelCallContext {
    let task = context.task();
    let tag = CallTag {
        workflow_id: task.workflow_id.to_string(),
        run_id: task.run_id.to_string(),
        activity: task.seq.0,
        attempt: task.attempt.0,
    };
    let (idempotency_key, namespace) = (context.idempotency_key(), task.namespace.to_string());
    ModelCallContext { idempotency_key, tag, namespace, timeout, canceled: CancellationToken::new() }
}

/// The live broadcast, and signs of life where the activity must give some.
struct LiveOutput {
    live: super::live::LiveSink,
    context: ActivityContext,
    chars: usize,
}

impl TokenSink for LiveOutput {
    fn token(&mut self, token: StreamToken<'_>) {
        self.live.token(token);
        if let StreamToken::Text(text) = token {
            self.chars += text.len();
        }
        if self.context.task().heartbeat_timeout.is_some() {
            // A number can be encoded.
            let _ = self.context.heartbeat(&self.chars);
        }
    }
}

/// The failure of an error, by its class.
fn failure(provider: &str, call: &ModelCallContext, error: &ModelError) -> Failure {
    let message = format!("{provider}: {error}");
    let failure = match error.class {
        ErrorClass::Retry { after: None } => Failure::application(MODEL_RETRY, message),
        ErrorClass::Retry { after: Some(after) } => {
            // Who has a moment of its own comes then: nobody else does, and late it would be somebody else's.
            let has_turn = error.code.as_deref() == Some(code::TURN);
            Failure::application(MODEL_RETRY, message).retry_after(if has_turn { after } else { spread(after, call) })
        }
        ErrorClass::NeedsHuman => Failure::application(MODEL_NEEDS_HUMAN, message).non_retryable(),
        ErrorClass::Fatal => Failure::application(MODEL_FATAL, message).non_retryable(),
    };
    match Payload::encode(error) {
        Ok(details) => failure.with_details(details),
        Err(_) => failure, // the message says the same in words
    }
}

/// The first pause of our own, doubled with each attempt.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Not before the provider wants, not before our own pause, and not everybody at the same moment: up to a tenth later.
fn spread(after: Duration, call: &ModelCallContext) -> Duration {
    let doublings = call.tag.attempt.saturating_sub(1).min(10);
    let delay = after.max((BACKOFF_FIRST * 2_u32.pow(doublings)).min(BACKOFF_MAX));
    let seed = blake3::hash(format!("{}/{}", call.idempotency_key, call.tag.attempt).as_bytes());
    delay + delay / 10 * u32::from(seed.as_bytes()[0]) / 255
}

#[cfg(test)]
mod tests;
