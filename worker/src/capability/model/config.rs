//! Which models a worker has, from its configuration and its environment.
//!
//! Invariant: configuration holds references to keys and never a key. A provider that cannot be used is there and says
//! why when it is asked, so that one wrong variable stops no worker. The environment is read by the caller's function.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::call::code;
use super::cassette::{Cassette, CassetteMode, CassetteSession};
use super::prices::Prices;
use super::provider::{Provider, ProviderConfig};
use super::schema::SchemaModel;
use super::scripted::{ModelScript, ScriptedModel};
use super::secret::SecretRef;
use super::{
    Answering, Chaos, ChaosConfig, ChatRequest, Model, ModelCallContext, ModelError, TokenBroadcast, TokenSink, Wire,
};

/// The models of a worker, and what it may do with them.
#[derive(Clone)]
pub struct ModelConfig {
    /// Asked over the network.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// Models in this program, by the name under which they are asked.
    pub models: BTreeMap<String, Arc<dyn Model>>,
    /// Whether answers are recorded or played.
    pub cassette_mode: CassetteMode,
    /// Where recordings are: a directory, or one file that is played only ([`super::Tape`]).
    pub cassette_dir: PathBuf,
    /// Where it is kept which call was which, so that a worker that was killed can be followed by another one.
    pub cassette_session: Option<CassetteSession>,
    /// Whether providers may be asked at all.
    pub allow_requests: bool,
    /// What is wrong with the configuration, said to whoever asks any model.
    pub problem: Option<String>,
    /// What calls are charged with.
    pub prices: Prices,
    /// Tokens while they come, for whoever watches ([`TokenBroadcast::watch`]); a clone that was kept watches a running
    /// worker.
    pub live: TokenBroadcast,
}

impl Default for ModelConfig {
    /// No provider; the `schema` model, which needs none.
    fn default() -> Self {
        let schema: Arc<dyn Model> = Arc::new(SchemaModel::default());
        ModelConfig {
            providers: BTreeMap::new(),
            models: BTreeMap::from([("schema".to_owned(), schema)]),
            cassette_mode: CassetteMode::Off,
            cassette_dir: PathBuf::from("cassettes"),
            cassette_session: None,
            allow_requests: true,
            problem: None,
            prices: Prices::default(),
            live: TokenBroadcast::default(),
        }
    }
}

impl fmt::Debug for ModelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelConfig")
            .field("providers", &self.providers)
            .field("models", &self.models.keys().collect::<Vec<_>>())
            .field("cassette_mode", &self.cassette_mode)
            .field("allow_requests", &self.allow_requests)
            .finish_non_exhaustive()
    }
}

/// What a provider is called by custom.
struct KnownProvider {
    name: &'static str,
    wire: Wire,
    prefix: &'static str,
    base_url: &'static str,
}

const KNOWN: [KnownProvider; 2] = [
    KnownProvider { name: "openai", wire: Wire::OpenAi, prefix: "OPENAI", base_url: "https://api.openai.com/v1" },
    KnownProvider {
        name: "anthropic",
        wire: Wire::Anthropic,
        prefix: "ANTHROPIC",
        base_url: "https://api.anthropic.com",
    },
];

impl ModelConfig {
    /// What the environment says; `variable` reads one. Of a key only its place is taken.
    pub fn from_environment(variable: &dyn Fn(&str) -> Option<String>) -> ModelConfig {
        let variable = |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let mut config = ModelConfig::default();
        let mut problems = Vec::new();
        for known in &KNOWN {
            match provider(known, &variable) {
                Ok(found) => config.providers.extend(found.map(|found| (known.name.to_owned(), found))),
                Err(why) => problems.push(why),
            }
        }
        if let Some(text) = variable("BOSUN_ALLOW_MODEL_REQUESTS") {
            config.allow_requests = matches!(text.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on");
        }
        match variable("BOSUN_CASSETTE_MODE").map(|text| text.parse()) {
            Some(Ok(mode)) => config.cassette_mode = mode,
            Some(Err(why)) => problems.push(format!("BOSUN_CASSETTE_MODE: {why}")),
            None => {}
        }
        if let Some(directory) = variable("BOSUN_CASSETTE_DIR") {
            config.cassette_dir = directory.into();
        }
        if let Some(path) = variable("BOSUN_MODEL_PROVIDERS") {
            match providers(path.as_ref()) {
                Ok(found) => config.providers.extend(found),
                Err(why) => problems.push(format!("BOSUN_MODEL_PROVIDERS: {path}: {why}")),
            }
        }
        if let Some(path) = variable("BOSUN_PRICES") {
            match Prices::read(path.as_ref()) {
                Ok(prices) => config.prices = prices,
                Err(why) => problems.push(format!("BOSUN_PRICES: {why}")),
            }
        }
        if let Some(path) = variable("BOSUN_MODEL_SCRIPT") {
            match ModelScript::read(path.as_ref()) {
                Ok(script) => drop(config.models.insert("scripted".into(), Arc::new(ScriptedModel::new(script)))),
                Err(why) => problems.push(format!("BOSUN_MODEL_SCRIPT: {why}")),
            }
        }
        config.problem = (!problems.is_empty()).then(|| problems.join("; "));
        config
    }

    /// Whether the worker knows a provider or model by this name, there or not.
    pub fn knows(&self, name: &str) -> bool {
        let custom = KNOWN.iter().any(|known| known.name == name);
        custom || self.providers.contains_key(name) || self.models.contains_key(name)
    }

    /// Adds a provider.
    pub fn with_provider(mut self, name: &str, config: ProviderConfig) -> Self {
        self.providers.insert(name.to_owned(), config);
        self
    }

    /// Adds a model of this program.
    pub fn with_model(mut self, name: &str, model: impl Model + 'static) -> Self {
        self.models.insert(name.to_owned(), Arc::new(model));
        self
    }
}

/// Providers by name, as JSON.
fn providers(path: &Path) -> Result<BTreeMap<String, ProviderConfig>, String> {
    let text = std::fs::read_to_string(path).map_err(|why| why.to_string())?;
    serde_json::from_str(&text).map_err(|why| why.to_string())
}

/// A provider is there if its key or its place is named.
fn provider(
    known: &KnownProvider,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<ProviderConfig>, String> {
    let named = |what: &str| format!("{}_{what}", known.prefix);
    let base_url = variable(&named("BASE_URL"));
    let key = match variable(&named("API_KEY_FROM")) {
        Some(text) => Some(text.parse().map_err(|why| format!("{}: {why}", named("API_KEY_FROM")))?),
        None => variable(&named("API_KEY")).map(|_| SecretRef::Env(named("API_KEY"))),
    };
    if base_url.is_none() && key.is_none() {
        return Ok(None);
    }
    let trusted = base_url.is_some();
    let base_url = base_url.unwrap_or_else(|| known.base_url.to_owned());
    Ok(Some(ProviderConfig { trusted, ..ProviderConfig::at(known.wire, base_url, key) }))
}

/// Names that nobody configured and that are remembered. They come from whoever starts runs.
const MISSING_MAX: usize = 1_000;

/// The models of a running worker, by name.
pub(super) struct Models {
    models: BTreeMap<String, Arc<dyn Model>>,
    config: ModelConfig,
    /// What is played of providers that are not there: each counts how often it was asked.
    missing: Mutex<BTreeMap<String, Arc<dyn Model>>>,
}

impl Models {
    pub(super) fn new(config: ModelConfig) -> Models {
        let mut models = config.models.clone();
        for (name, provider) in &config.providers {
            let model: Arc<dyn Model> = match Provider::new(provider) {
                _ if !config.allow_requests => Arc::new(Unusable(not_allowed(name))),
                Ok(provider) => Arc::new(provider),
                Err(why) => Arc::new(Unusable(why)),
            };
            let model = recorded(&config, name, model);
            models.insert(name.clone(), troubled(provider.chaos, model));
        }
        Models { models, config, missing: Mutex::default() }
    }

    /// The model of this name. One that is not there says so when it is asked, or plays what was recorded of it.
    pub(super) fn get(&self, name: &str) -> Arc<dyn Model> {
        if let Some(why) = &self.config.problem {
            return Arc::new(Unusable(ModelError::needs_human(code::CONFIGURATION, why)));
        }
        if let Some(model) = self.models.get(name) {
            return model.clone();
        }
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = missing.get(name) {
            return model.clone();
        }
        let why = if self.config.allow_requests { self.unknown(name) } else { not_allowed(name) };
        let model = recorded(&self.config, name, Arc::new(Unusable(why)));
        if missing.len() < MISSING_MAX {
            missing.insert(name.to_owned(), model.clone());
        }
        model
    }

    pub(super) fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn unknown(&self, name: &str) -> ModelError {
        let there: Vec<&str> = self.models.keys().map(String::as_str).collect();
        let there = there.join(", ");
        let mut message = format!("this worker has no model provider `{name}`; it has: {there}");
        if let Some(KnownProvider { prefix, .. }) = KNOWN.iter().find(|known| known.name == name) {
            message = format!("{message}. Start it with {prefix}_API_KEY or {prefix}_BASE_URL set");
        }
        ModelError::needs_human(code::UNKNOWN_PROVIDER, message)
    }
}

fn recorded(config: &ModelConfig, name: &str, model: Arc<dyn Model>) -> Arc<dyn Model> {
    match config.cassette_mode {
        CassetteMode::Off => model,
        mode => {
            let cassette = Cassette::new(mode, config.cassette_dir.clone(), name, model);
            Arc::new(cassette.in_session(config.cassette_session.clone()))
        }
    }
}

/// Around recordings: what was troubled on purpose is not to be recorded as an answer.
fn troubled(chaos: Option<ChaosConfig>, model: Arc<dyn Model>) -> Arc<dyn Model> {
    match chaos {
        Some(ChaosConfig { seed, rates }) => Arc::new(Chaos::new(model, seed, rates)),
        None => model,
    }
}

fn not_allowed(name: &str) -> ModelError {
    let message = format!("BOSUN_ALLOW_MODEL_REQUESTS forbids to ask `{name}`");
    ModelError::fatal(code::NOT_ALLOWED, message)
}

/// A model that only says why it is none.
struct Unusable(ModelError);

impl Model for Unusable {
    fn complete<'a>(&'a self, _: &'a ChatRequest, _: &'a ModelCallContext, _: &'a mut dyn TokenSink) -> Answering<'a> {
        Box::pin(std::future::ready(Err(self.0.clone())))
    }
}

#[cfg(test)]
mod tests;
