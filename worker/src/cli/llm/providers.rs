//! `llm ping`, `llm models` and `llm prices`: the providers of this environment, looked at by hand.
//!
//! Invariant: they ask nobody but the provider that is named, and neither a worker nor a store: what a worker finds in its own
//! environment may be something else. No key is shown, only where it is.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::super::error::CliError;
use super::super::exit::Exit;
use super::super::explain::Code;
use super::super::output::Screen;
use super::super::time_format::parse_duration;
use crate::capability::model::probe::{is_own, offered, ping};
use crate::capability::model::{Cost, ErrorClass, ModelConfig, ModelError, ModelPrice, with_provider};

#[derive(Debug, Args)]
pub struct PingArgs {
    /// The provider's name of the model, for example llama3.2; without `--provider` it may begin with openai/ or anthropic/.
    #[arg(value_name = "MODEL")]
    model: String,
    /// The provider: openai, anthropic, one of BOSUN_MODEL_PROVIDERS, or a model of this program.
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// How long to wait for the whole answer.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    timeout: Duration,
}

#[derive(Debug, Args)]
pub struct ModelsArgs {
    /// Ask this provider which models it offers. Without a provider, list those of this environment and ask none of them.
    #[arg(value_name = "PROVIDER")]
    provider: Option<String>,
    /// How long to wait for the list.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,
}

fn config() -> Result<ModelConfig, CliError> {
    let config = ModelConfig::from_environment(&crate::capability::environment::var);
    match &config.problem {
        Some(why) => Err(CliError::new(Code::Usage, "the models of this environment cannot be used").cause(why)),
        None => Ok(config),
    }
}

/// An error of a model as one of the command line.
fn refused(provider: &str, why: &ModelError) -> CliError {
    let error = CliError::new(Code::Failed, format!("{provider} gives no answer")).cause(why);
    match why.class {
        ErrorClass::Retry { .. } => error.help("it may pass: a run would ask again"),
        ErrorClass::NeedsHuman => {
            error.help("a run would wait for a person here; `bosun llm models` shows what is set")
        }
        ErrorClass::Fatal => {
            error.help("the same request will never be answered; `bosun llm models` shows what is set")
        }
    }
}

fn cost_text(cost: &Cost) -> String {
    match cost {
        Cost::Micros(micros) => format!("{micros} millionths of a dollar"),
        Cost::Unpriced(why) => format!("unknown: {why}"),
    }
}

pub(in super::super) async fn ping_verb(screen: &mut Screen, args: &PingArgs) -> Result<Exit, CliError> {
    let config = config()?;
    let words = "Answer with the one word: pong";
    // As the spec of a run says it: a name may begin with its provider.
    let (provider, model) = match (&args.provider, with_provider(&args.model)) {
        (None, Some(of)) => of,
        (provider, _) => (provider.as_deref().unwrap_or("openai"), args.model.as_str()),
    };
    let pong = ping(&config, provider, model, words, args.timeout).await;
    let pong = pong.map_err(|why| match is_own(&config, model) && provider != model {
        true => CliError::new(Code::Failed, format!("{provider} gives no answer")).cause(why).help(format!(
            "{0} is a provider, and the model of this program: `bosun llm ping {0} --provider {0}`",
            model
        )),
        false => refused(provider, &why),
    })?;
    let millis = u64::try_from(pong.took.as_millis()).unwrap_or(u64::MAX);
    screen.object(
        "llm.ping",
        json!({ "provider": provider, "model": pong.model, "said": pong.said, "took_ms": millis,
            "usage": pong.usage, "cost": pong.cost }),
    );
    screen.field("model", format!("{} of {provider}", pong.model));
    screen.field("said", pong.said.lines().next().unwrap_or_default());
    screen.field("took", format!("{millis} ms"));
    let count = |tokens: Option<u64>| tokens.map_or_else(|| "?".to_owned(), |tokens| tokens.to_string());
    screen.field("tokens", format!("{} in, {} out", count(pong.usage.input), count(pong.usage.output)));
    screen.field("cost", cost_text(&pong.cost));
    Ok(Exit::Ok)
}

pub(in super::super) async fn models_verb(screen: &mut Screen, args: &ModelsArgs) -> Result<Exit, CliError> {
    let config = config()?;
    if let Some(provider) = &args.provider {
        let found = offered(&config, provider, args.timeout).await.map_err(|why| refused(provider, &why))?;
        for model in &found {
            screen.line(model.clone());
        }
        if is_own(&config, provider) {
            screen.note(&format!("{provider} is in this program: it lists no models, and answers by any name"));
        }
        let rows = found.iter().map(|model| json!({ "provider": provider, "model": model })).collect();
        screen.objects("llm.models", "models", rows);
        return Ok(Exit::Ok);
    }
    let mut rows = Vec::new();
    for (name, provider) in &config.providers {
        let key = provider.key.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
        screen.line(format!("{name:<16} {} (key: {key})", provider.place()));
        rows.push(json!({ "provider": name, "wire": provider.wire, "base_url": provider.place(),
            "key": provider.key.as_ref().map(ToString::to_string) }));
    }
    for name in config.models.keys() {
        screen.line(format!("{name:<16} in this program; needs no provider"));
        rows.push(json!({ "provider": name, "wire": null, "base_url": null, "key": null }));
    }
    if !config.allow_requests {
        screen.note("BOSUN_ALLOW_MODEL_REQUESTS forbids to ask any provider");
    }
    if config.providers.is_empty() {
        screen.note(
            "no provider is set here: OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_API_KEY or BOSUN_MODEL_PROVIDERS",
        );
    }
    screen.objects("llm.providers", "providers", rows);
    if let Some(name) = config.providers.keys().next() {
        screen.next(&format!("bosun llm models {name}"));
    }
    Ok(Exit::Ok)
}

pub(in super::super) fn prices_verb(screen: &mut Screen) -> Result<Exit, CliError> {
    let config = config()?;
    let prices = &config.prices;
    let row = |(model, price): (&String, &ModelPrice)| -> Value {
        json!({ "model": model, "input": price.input, "cached": price.cached, "cache_write": price.cache_write,
            "output": price.output, "as_of": price.as_of.as_ref().unwrap_or(&prices.as_of) })
    };
    let rows: Vec<Value> = prices.models.iter().map(row).collect();
    for row in &rows {
        let text = |key: &str| super::super::result::value_text(&row[key]);
        screen.line(format!(
            "{:<32} in {:>10} out {:>10}  as of {}",
            text("model"),
            text("input"),
            text("output"),
            text("as_of")
        ));
    }
    if rows.is_empty() {
        screen.note("no price is known: what is not priced is never taken for free, and a budget in money asks first");
        screen.note("BOSUN_PRICES names a file: {\"as_of\": \"2026-11-20\", \"models\": {\"openai/gpt-4o\": {\"input\": 2500000, \"output\": 10000000}}}");
    } else {
        screen.note("millionths of a dollar for a million tokens");
    }
    screen.objects("llm.prices", "prices", rows);
    Ok(Exit::Ok)
}
