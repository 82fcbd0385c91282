//! The `model` capability: one call of a language model, in no provider's words.
//!
//! Invariant: one activity is one request to a provider (no inner retries), and whatever a workflow may decide on is in
//! its result or in the class of its failure. Only the final message is a result; tokens on the way are shown, not kept.
//! A key is known by reference until a request is sent, and is cut out of everything that comes back.

mod activity;
mod anthropic;
mod call;
mod cassette;
mod chaos;
pub mod chat;
mod config;
mod conform;
mod errors;
mod function;
mod limits;
#[doc(hidden)]
mod live;
#[doc(hidden)]
pub mod mock;
mod openai;
mod pace;
mod prices;
#[doc(hidden)]
pub mod probe;
mod provider;
mod schema;
#[doc(hidden)]
mod scripted;
mod scrub;
mod secret;
mod sse;
mod transport;
mod wire;

use std::sync::Arc;

use bosun_engine::ActivityRegistry;

pub use activity::{MODEL, MODEL_FATAL, MODEL_NEEDS_HUMAN, MODEL_RETRY, ModelInput, ModelOutput, options};
pub(crate) use call::with_provider;
pub use call::{Answering, Model, ModelCallContext, StreamToken, TokenSink};
#[doc(hidden)]
pub use call::{CallTag, NullSink, code};
#[doc(hidden)]
pub use cassette::{CallingRun, CassetteSession, Lives, Tape};
pub use cassette::{Cassette, CassetteMode};
#[doc(hidden)]
pub use chaos::Chaos;
pub use chaos::{ChaosConfig, ChaosRates};
pub use chat::*;
pub use config::ModelConfig;
#[doc(hidden)]
pub use conform::problems;
pub(crate) use conform::without_fence;
pub use function::FunctionModel;
#[doc(hidden)]
pub use live::{LiveToken, LiveWhat, TokenBroadcast};
pub use pace::PaceConfig;
pub use prices::{Cost, ModelPrice, Prices};
pub use provider::{ProviderConfig, SchemaSupport};
pub use schema::SchemaModel;
#[doc(hidden)]
pub use scripted::{ModelScript, ScriptedModel};
pub use secret::SecretRef;
pub use transport::TransportLimits;
pub use wire::Wire;

/// Registers the activity. All attempts share the models: their pace, connections and recordings.
pub(super) fn register(registry: &mut ActivityRegistry, config: &ModelConfig) {
    let models = Arc::new(config::Models::new(config.clone()));
    registry.register(MODEL, move |context, input| activity::run(models.clone(), context, input));
}

#[cfg(test)]
mod tests;
