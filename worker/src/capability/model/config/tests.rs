//! What the environment makes of the configuration.

use serde_json::json;

use super::*;
use crate::capability::model::{ErrorClass, Message, NullSink, Tape, mock};

fn of(variables: &[(&str, &str)]) -> ModelConfig {
    ModelConfig::from_environment(&|name| {
        variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned())
    })
}

async fn ask(config: ModelConfig, name: &str) -> Result<String, ModelError> {
    let messages = vec![Message::User { content: "hi".into() }];
    let request = ChatRequest { model: "m".into(), messages, ..ChatRequest::default() };
    let model = Models::new(config).get(name);
    model.complete(&request, &ModelCallContext::alone("k"), &mut NullSink).await.map(|response| response.said.content)
}

#[test]
fn providers_are_there_if_their_key_or_place_is_named() {
    assert_eq!(of(&[]).providers.len(), 0);
    let config = of(&[("OPENAI_API_KEY", "sk-live-0123456789"), ("ANTHROPIC_BASE_URL", " http://localhost:1 ")]);
    let openai = &config.providers["openai"];
    assert_eq!(openai.base_url, "https://api.openai.com/v1");
    assert_eq!((openai.trusted, openai.key.clone()), (false, Some(SecretRef::Env("OPENAI_API_KEY".into()))));
    let anthropic = &config.providers["anthropic"];
    assert_eq!((anthropic.wire, anthropic.trusted, &anthropic.key), (Wire::Anthropic, true, &None));
    assert_eq!(anthropic.base_url, "http://localhost:1");
    assert!(!format!("{config:?}").contains("sk-live"), "only where it is, and never what it is");
    let from = of(&[("OPENAI_API_KEY_FROM", "file:/run/key"), ("OPENAI_API_KEY", "x")]);
    assert_eq!(from.providers["openai"].key, Some(SecretRef::File("/run/key".into())));
}

#[tokio::test]
async fn a_wrong_variable_is_told_to_whoever_asks() {
    let problems = [
        ("BOSUN_CASSETTE_MODE", "sometimes"),
        ("OPENAI_API_KEY_FROM", "sk-live-0123456789"),
        ("BOSUN_PRICES", "/nonexistent/prices.json"),
        ("BOSUN_MODEL_PROVIDERS", "/nonexistent/providers.json"),
        ("BOSUN_MODEL_SCRIPT", "/nonexistent/script.yaml"),
    ];
    for (name, value) in problems {
        let error = ask(of(&[(name, value)]), "schema").await.unwrap_err();
        assert_eq!(error.class, ErrorClass::NeedsHuman);
        assert!(error.message.starts_with(name) && !error.message.contains("sk-live"), "{error}");
    }
}

#[tokio::test]
async fn requests_can_be_forbidden() {
    for value in ["0", "false", "no"] {
        let config = of(&[("BOSUN_ALLOW_MODEL_REQUESTS", value), ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")]);
        for name in ["openai", "anthropic"] {
            let error = ask(config.clone(), name).await.unwrap_err();
            assert_eq!((error.class, error.code.as_deref()), (ErrorClass::Fatal, Some(code::NOT_ALLOWED)), "{value}");
        }
        assert!(ask(config, "schema").await.is_ok(), "a model of this program makes no requests");
    }
    assert!(of(&[("BOSUN_ALLOW_MODEL_REQUESTS", "1")]).allow_requests);
}

#[tokio::test]
async fn a_provider_that_is_not_there_says_how_to_get_it() {
    let error = ask(of(&[]), "openai").await.unwrap_err();
    assert_eq!(error.class, ErrorClass::NeedsHuman);
    assert!(error.message.ends_with("it has: schema. Start it with OPENAI_API_KEY or OPENAI_BASE_URL set"), "{error}");
}

#[tokio::test]
async fn scripts_and_recordings_come_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script.yaml");
    std::fs::write(&script, "rules: [{then: {say: aye}}]").unwrap();
    assert_eq!(ask(of(&[("BOSUN_MODEL_SCRIPT", script.to_str().unwrap())]), "scripted").await.unwrap(), "aye");
    let prices = dir.path().join("prices.json");
    std::fs::write(&prices, json!({"as_of": "2026-11-01", "models": {"m": {"input": 1, "output": 2}}}).to_string())
        .unwrap();
    assert_eq!(of(&[("BOSUN_PRICES", prices.to_str().unwrap())]).prices.models["m"].output, 2);
    let providers = dir.path().join("providers.json");
    let gateway = json!({"wire": "openai", "base_url": "http://gateway.local/v1", "key": "env:GATEWAY_KEY", "trusted": true,
                         "stream": false, "schemas": "prompt", "pace": {"concurrency": 2, "per_minute": 30}});
    std::fs::write(&providers, json!({"gateway": gateway}).to_string()).unwrap();
    let config = of(&[("BOSUN_MODEL_PROVIDERS", providers.to_str().unwrap())]);
    let gateway = &config.providers["gateway"];
    assert_eq!((gateway.pace.concurrency, gateway.pace.per_minute, gateway.stream), (2, Some(30), false));
    // What nobody configured can still be played.
    let tapes = dir.path().join("tapes");
    let replay = [("BOSUN_CASSETTE_MODE", "replay"), ("BOSUN_CASSETTE_DIR", tapes.to_str().unwrap())];
    let error = ask(of(&replay), "openai").await.unwrap_err();
    assert_eq!(error.code.as_deref(), Some(code::CASSETTE_MISS));
}

/// Whoever plays what was recorded elsewhere has no provider: the second time that it is asked is the second all the same.
#[tokio::test]
async fn a_provider_that_is_not_there_is_played_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tape.json");
    let request = ChatRequest { model: "m".into(), ..ChatRequest::default() };
    let mut tape = Tape::default();
    ["one", "two"].iter().for_each(|text| tape.record("openai", &request, mock::says(text)));
    std::fs::write(&path, tape.to_text()).unwrap();
    let config = of(&[("BOSUN_CASSETTE_MODE", "replay"), ("BOSUN_CASSETTE_DIR", path.to_str().unwrap())]);
    let models = Models::new(config);
    for (call, wanted) in [("a", "one"), ("b", "two"), ("a", "one")] {
        let (model, call) = (models.get("openai"), ModelCallContext::alone(call));
        assert_eq!(model.complete(&request, &call, &mut NullSink).await.unwrap().said.content, wanted);
    }
}

/// The trouble comes before the provider, which is not there at all, and no answer that was troubled is recorded.
#[tokio::test]
async fn a_provider_has_trouble_on_purpose_by_its_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let (path, tapes) = (dir.path().join("providers.json"), dir.path().join("tapes"));
    let mock = mock::MockProvider::start(|_| mock::says("fine")).await.unwrap();
    let of_rates = |rates: serde_json::Value| {
        let mut provider = serde_json::to_value(mock.config(Wire::OpenAi)).unwrap();
        provider["chaos"] = json!({"seed": 7, "rates": rates});
        std::fs::write(&path, json!({"mine": provider}).to_string()).unwrap();
        let mode = ("BOSUN_CASSETTE_MODE", "auto");
        of(&[("BOSUN_MODEL_PROVIDERS", path.to_str().unwrap()), mode, ("BOSUN_CASSETTE_DIR", tapes.to_str().unwrap())])
    };
    let error = ask(of_rates(json!({"overloaded": 1_000})), "mine").await.unwrap_err();
    assert_eq!((error.status, error.code.as_deref(), mock.count()), (Some(529), Some(code::CHAOS), 0));
    let wrong = ask(of_rates(json!({"wrong_schema": 1_000})), "mine").await.unwrap();
    assert_eq!((wrong.as_str(), mock.count()), ("{\"chaos\":true}", 1));
    assert_eq!(ask(of_rates(json!({})), "mine").await.unwrap(), "fine", "what was recorded is the answer");
    assert_eq!(mock.count(), 1);
    assert!(of_rates(json!({"often": 1})).problem.is_some_and(|why| why.contains("often")));
}
