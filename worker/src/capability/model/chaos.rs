//! Trouble on purpose: a model that fails now and then as providers do, to see what a run makes of it.
//!
//! A provider has it by its configuration (`BOSUN_MODEL_PROVIDERS`); a model of a program by [`Chaos::new`]:
//!
//! ```json
//! {"mine": {"wire": "openai", "base_url": "http://localhost:11434/v1", "trusted": true,
//!           "chaos": {"seed": 7, "rates": {"rate_limited": 100, "overloaded": 50, "cut": 50}}}}
//! ```
//!
//! Invariant: what happens is decided by the seed, the idempotency key and the attempt, so a run has the same trouble each
//! time, and a repeated attempt may have other trouble than the one before. What is not troubled passes unchanged.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::call::code;
use super::{
    Answering, ChatRequest, ChatResponse, ErrorClass, Model, ModelCallContext, ModelError, StreamToken, TokenSink,
};

/// How many calls of a thousand have which trouble.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChaosRates {
    /// Status 429 with a delay.
    pub rate_limited: u16,
    /// Status 529.
    pub overloaded: u16,
    /// Half of the tokens and then an end.
    pub cut: u16,
    /// An answer whose data, or whose arguments, are no JSON.
    pub malformed: u16,
    /// An answer whose data, or whose arguments, are other data.
    pub wrong_schema: u16,
}

/// The trouble of a provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChaosConfig {
    /// Another seed has other trouble, as often.
    #[serde(default)]
    pub seed: u64,
    /// How often each kind of trouble comes.
    pub rates: ChaosRates,
}

/// Troubles another model.
#[derive(Clone)]
pub struct Chaos {
    inner: Arc<dyn Model>,
    seed: u64,
    rates: ChaosRates,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChaosFault {
    RateLimited,
    Overloaded,
    Cut,
    Malformed,
    WrongSchema,
}

impl Chaos {
    /// `inner` as it is, but for as many calls of a thousand as `rates` say.
    pub fn new(inner: Arc<dyn Model>, seed: u64, rates: ChaosRates) -> Self {
        Chaos { inner, seed, rates }
    }

    fn trouble(&self, call: &ModelCallContext) -> Option<ChaosFault> {
        let seed = blake3::hash(format!("{}/{}/{}", self.seed, call.idempotency_key, call.tag.attempt).as_bytes());
        let [a, b, c, d, ..] = *seed.as_bytes();
        let mut number = u32::from_le_bytes([a, b, c, d]) % 1_000;
        let ChaosRates { rate_limited, overloaded, cut, malformed, wrong_schema } = self.rates;
        for (rate, trouble) in [
            (rate_limited, ChaosFault::RateLimited),
            (overloaded, ChaosFault::Overloaded),
            (cut, ChaosFault::Cut),
            (malformed, ChaosFault::Malformed),
            (wrong_schema, ChaosFault::WrongSchema),
        ] {
            match number.checked_sub(u32::from(rate)) {
                None => return Some(trouble),
                Some(rest) => number = rest,
            }
        }
        None
    }

    async fn ask(
        &self,
        request: &ChatRequest,
        call: &ModelCallContext,
        sink: &mut dyn TokenSink,
    ) -> Result<ChatResponse, ModelError> {
        let refused = |status: u16, after: Option<Duration>, message: &str| {
            let class = ErrorClass::Retry { after };
            Err(ModelError { class, status: Some(status), code: Some(code::CHAOS.into()), message: message.into() })
        };
        match self.trouble(call) {
            None => self.inner.complete(request, call, sink).await,
            Some(ChaosFault::RateLimited) => refused(429, Some(Duration::from_millis(100)), "chaos: too many requests"),
            Some(ChaosFault::Overloaded) => refused(529, None, "chaos: overloaded"),
            Some(ChaosFault::Cut) => {
                let response = self.inner.complete(request, call, &mut super::NullSink).await?;
                let text = &response.said.content;
                let half = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(place, _)| place);
                sink.token(StreamToken::Text(&text[..half]));
                Err(ModelError::retry(code::CUT, "chaos: the stream ended before the answer was whole"))
            }
            Some(ChaosFault::Malformed) => {
                let response = self.inner.complete(request, call, &mut super::NullSink).await?;
                Ok(replaced(response, "{\"chaos\": tru"))
            }
            Some(ChaosFault::WrongSchema) => {
                let response = self.inner.complete(request, call, &mut super::NullSink).await?;
                Ok(replaced(response, "{\"chaos\":true}"))
            }
        }
    }
}

/// The answer with this instead of its data.
fn replaced(mut response: ChatResponse, text: &str) -> ChatResponse {
    if response.said.tool_calls.is_empty() {
        text.clone_into(&mut response.said.content);
    }
    response.said.tool_calls.iter_mut().for_each(|call| call.arguments = super::wire::arguments(text));
    response
}

impl Model for Chaos {
    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        call: &'a ModelCallContext,
        sink: &'a mut dyn TokenSink,
    ) -> Answering<'a> {
        Box::pin(self.ask(request, call, sink))
    }
    fn is_free(&self) -> bool {
        self.inner.is_free()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::model::{FunctionModel, NullSink, mock};

    fn chaos(rates: ChaosRates) -> Chaos {
        Chaos::new(Arc::new(FunctionModel::new(|_| Ok(mock::says("{\"n\":1}")))), 7, rates)
    }

    async fn ask(chaos: &Chaos, n: u32) -> Result<ChatResponse, ModelError> {
        let call = ModelCallContext::alone(format!("k{n}"));
        chaos.complete(&ChatRequest::default(), &call, &mut NullSink).await
    }

    #[tokio::test]
    async fn troubles_come_as_often_as_wanted_and_the_same_each_time() {
        let rates = ChaosRates { rate_limited: 100, overloaded: 100, cut: 100, malformed: 100, wrong_schema: 100 };
        let chaos = chaos(rates);
        let mut counts = std::collections::BTreeMap::new();
        for n in 0..2_000 {
            let first = ask(&chaos, n).await;
            assert_eq!(ask(&chaos, n).await, first);
            let kind = match first {
                Ok(response) => response.said.content,
                Err(error) => format!("{:?} {:?}", error.status, error.code),
            };
            *counts.entry(kind).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6, "{counts:?}");
        assert!(counts.values().all(|count| (100..1_200).contains(count)), "{counts:?}");
    }

    #[tokio::test]
    async fn the_next_attempt_may_fare_better() {
        let chaos = chaos(ChaosRates { overloaded: 500, ..ChaosRates::default() });
        let mut call = ModelCallContext::alone("k");
        let mut fared = Vec::new();
        for attempt in 1..30 {
            call.tag.attempt = attempt;
            fared.push(chaos.complete(&ChatRequest::default(), &call, &mut NullSink).await.is_ok());
        }
        assert!(fared.contains(&true) && fared.contains(&false));
    }

    #[tokio::test]
    async fn a_cut_answer_shows_its_first_half() {
        let chaos = chaos(ChaosRates { cut: 1_000, ..ChaosRates::default() });
        let mut shown = String::new();
        let mut sink = |token: StreamToken<'_>| {
            if let StreamToken::Text(text) = token {
                shown.push_str(text)
            }
        };
        let error =
            chaos.complete(&ChatRequest::default(), &ModelCallContext::alone("k"), &mut sink).await.unwrap_err();
        assert_eq!((shown.as_str(), error.code.as_deref()), ("{\"n", Some(code::CUT)));
    }
}
