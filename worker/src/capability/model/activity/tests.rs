//! The activity against the mock.

use bosun_engine::FailureKind;
use serde_json::json;

use super::*;
use crate::capability::model::mock::{self, MockAnswer, MockProvider};
use crate::capability::model::{LiveWhat, Message, ModelConfig, ModelPrice, OutputSchema, Wire};
use crate::capability::testing::{failure as failed, is_non_retryable, probe};

fn request(model: &str) -> ChatRequest {
    let messages = vec![Message::User { content: "hi".into() }];
    ChatRequest { model: model.into(), messages, ..ChatRequest::default() }
}

async fn run_with(config: ModelConfig, input: ModelInput) -> Result<ModelOutput, ActivityError> {
    run(Arc::new(Models::new(config)), probe(3).context, input).await
}

async fn mocked(answer: impl Into<MockAnswer>) -> (MockProvider, ModelConfig) {
    let answer = answer.into();
    let mock = MockProvider::start(move |_| answer.clone()).await.unwrap();
    let mut config = ModelConfig::default().with_provider("p", mock.config(Wire::OpenAi));
    let price = ModelPrice { input: 1_000_000, cached: None, cache_write: None, output: 2_000_000, as_of: None };
    config.prices.models.insert("mock-1".into(), price);
    (mock, config)
}

#[tokio::test]
async fn an_answer_has_its_price() {
    let (mock, config) = mocked(mock::says("hello")).await;
    let output = run_with(config, ModelInput::new("p", request("mock-1"))).await.unwrap();
    assert_eq!((output.response.said.content.as_str(), output.cost), ("hello", Cost::Micros(20)));
    assert_eq!((output.value, output.problems), (None, Vec::new()));
    assert_eq!(mock.asked()[0].headers["idempotency-key"], probe(3).context.idempotency_key());
}

#[tokio::test]
async fn an_answer_under_a_schema_is_a_value_or_has_problems() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let input = || {
        let schema = Some(OutputSchema { name: "out".into(), schema: schema.clone() });
        ModelInput::new("p", ChatRequest { schema, ..request("other") })
    };
    let (_mock, config) = mocked(mock::gives(&json!({"n": 4}))).await;
    let output = run_with(config, input()).await.unwrap();
    assert_eq!((output.value, output.problems), (Some(json!({"n": 4})), Vec::new()));
    let (_mock, config) = mocked(mock::gives(&json!({"n": "four"}))).await;
    let output = run_with(config, input()).await.unwrap();
    assert_eq!((output.value, output.problems), (None, vec!["at /n: \"four\" is not of type \"integer\"".to_owned()]));
}

/// Nothing that a model could say would be right, so it is not asked, and not asked to repair what it said.
#[tokio::test]
async fn a_schema_that_is_wrong_ends_the_call_before_anybody_is_asked() {
    let (mock, config) = mocked(mock::gives(&json!({"n": 4}))).await;
    for (schema, why) in [
        (json!({"type": "objekt"}), "at /type: \"objekt\" is not valid"),
        (
            json!({"properties": {"n": {"minimum": "one"}}}),
            "at /properties/n/minimum: \"one\" is not of type \"number\"",
        ),
        (json!({"$ref": "#/$defs/none"}), "none"),
        (json!({"$ref": "https://example.com/s.json"}), "leads out of the schema"),
    ] {
        let schema = Some(OutputSchema { name: "out".into(), schema });
        let input = ModelInput::new("p", ChatRequest { schema, ..request("other") });
        let failure = failed(run_with(config.clone(), input).await);
        assert_eq!((failure.type_name(), is_non_retryable(&failure)), (MODEL_FATAL, true));
        assert!(failure.message.starts_with("p: the output schema `out` itself is wrong: "), "{failure}");
        assert!(failure.message.contains(why), "{failure}");
    }
    assert_eq!(mock.count(), 0);
}

#[tokio::test]
async fn a_model_of_this_program_costs_nothing_and_an_unknown_one_is_unpriced() {
    let output = run_with(ModelConfig::default(), ModelInput::new("schema", request("x"))).await.unwrap();
    assert_eq!(output.cost, Cost::Micros(0));
    let response = ChatResponse { model: "unheard-of".into(), ..mock::says("x") };
    let (_mock, config) = mocked(response).await;
    let output = run_with(config, ModelInput::new("p", request("unheard-of"))).await.unwrap();
    assert_eq!(output.cost, Cost::Unpriced("no price for p/unheard-of".into()));
}

/// Operate §3.1: tokens that a provider does not count are unknown, and not 0; what it does not count, a price of the spec
/// cannot pay.
#[tokio::test]
async fn tokens_that_were_not_counted_are_estimated() {
    let counted = Usage { input: Some(70), output: Some(7), ..Usage::default() };
    for (usage, all) in [(counted, Some(77)), (Usage { output: None, ..counted }, None), (Usage::default(), None)] {
        let response = ChatResponse { model: "unheard-of".into(), usage, ..mock::says(&"word ".repeat(400)) };
        let (_mock, config) = mocked(response).await;
        let price = serde_json::from_value(serde_json::json!({ "input": 1_000_000, "output": 2_000_000 })).unwrap();
        let input = ModelInput { price: Some(price), ..ModelInput::new("p", request("unheard-of")) };
        let output = run_with(config, input).await.unwrap();
        match all {
            Some(all) => assert_eq!((output.paid(), output.estimated), ((1, all, Some(84)), None)),
            None => assert!(output.paid().1 > 500 && output.paid().2.is_none(), "{:?}", output.paid()),
        }
    }
}

#[tokio::test]
async fn every_class_of_error_is_a_type_of_failure() {
    for (answer, failure_type, is_final) in [
        (MockAnswer::refuse(500, "server_error", "oops"), MODEL_RETRY, false),
        (MockAnswer::refuse(429, "insufficient_quota", "pay"), MODEL_NEEDS_HUMAN, true),
        (MockAnswer::refuse(400, "invalid_request_error", "what"), MODEL_FATAL, true),
    ] {
        let (mock, config) = mocked(answer).await;
        let failure = failed(run_with(config, ModelInput::new("p", request("m"))).await);
        assert_eq!((failure.type_name(), is_non_retryable(&failure)), (failure_type, is_final));
        assert!(failure.message.starts_with("p: the provider answered "), "{failure}");
        let FailureKind::Application { details: Some(details), next_retry_delay: None, .. } = &failure.kind else {
            panic!("{failure:?}")
        };
        let error: ModelError = details.decode().unwrap();
        assert!(error.status.is_some() && error.code.is_some(), "{error:?}");
        assert_eq!(mock.count(), 1);
    }
}

#[tokio::test]
async fn the_provider_says_when_the_next_attempt_is() {
    let (_mock, config) = mocked(MockAnswer::rate_limited(20)).await;
    let failure = failed(run_with(config, ModelInput::new("p", request("m"))).await);
    let FailureKind::Application { next_retry_delay: Some(delay), .. } = failure.kind else { panic!("{failure:?}") };
    assert!((Duration::from_secs(20)..=Duration::from_secs(22)).contains(&delay), "{delay:?}");
}

/// G41: a call of a run whose time is over is not sent, and a provider is not waited for beyond that.
#[tokio::test]
async fn nobody_is_asked_when_the_time_of_the_run_is_over() {
    let (mock, config) = mocked(MockAnswer::rate_limited(20)).await;
    let within = |ms: u64| ModelInput { within_ms: Some(ms), ..ModelInput::new("p", request("m")) };
    // The call was asked for at the beginning of all times.
    let failure = failed(run_with(config.clone(), within(1)).await);
    assert_eq!((failure.type_name(), is_non_retryable(&failure), mock.count()), (in_time::OUT_OF_TIME, true, 0));
    let soon = u64::try_from(now().as_micros() / 1_000).unwrap() + 5_000;
    let failure = failed(run_with(config, within(soon)).await);
    let FailureKind::Application { next_retry_delay: Some(delay), .. } = failure.kind else { panic!("{failure:?}") };
    assert!(delay <= Duration::from_secs(5) && mock.count() == 1, "{delay:?}");
}

#[test]
fn a_provider_that_wants_no_delay_is_not_stormed() {
    let delay = |attempt, key: &str| {
        let mut call = ModelCallContext::alone(key);
        call.tag.attempt = attempt;
        spread(Duration::ZERO, &call).as_millis()
    };
    assert!((500..=550).contains(&delay(1, "a")) && (2_000..=2_200).contains(&delay(3, "a")));
    assert!((60_000..=66_000).contains(&delay(1_000, "a")));
    let all: std::collections::BTreeSet<_> = (0..20).map(|n| delay(1, &n.to_string())).collect();
    assert!(all.len() > 10, "attempts come back at different moments: {all:?}");
}

#[test]
fn a_moment_of_its_own_is_kept_to_the_point() {
    let after = Duration::from_secs(600);
    let of = |code: &str| {
        let mut error = ModelError::retry(code, "later");
        error.class = ErrorClass::Retry { after: Some(after) };
        match failure("p", &ModelCallContext::alone("a"), &error).kind {
            FailureKind::Application { next_retry_delay: Some(delay), .. } => delay,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(of(code::TURN), after);
    assert!(of(code::PACED) > after, "others are spread");
}

#[tokio::test]
async fn a_cancellation_ends_the_wait_and_so_does_the_timeout() {
    let (_mock, config) = mocked(MockAnswer::Say(mock::says("late")).later(Duration::from_secs(60))).await;
    let probe = probe(9);
    let models = Arc::new(Models::new(config.clone()));
    let running = tokio::spawn(run(models, probe.context, ModelInput::new("p", request("m"))));
    probe.cancel.send(true).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), running).await.unwrap().unwrap();
    assert_eq!(ended, Err(ActivityError::Canceled(None)));
    let input = ModelInput { timeout_ms: 200, ..ModelInput::new("p", request("m")) };
    let failure = failed(run_with(config, input).await);
    assert_eq!(
        (failure.type_name(), failure.message.as_str()),
        (MODEL_RETRY, "p: the provider had not answered after 200ms")
    );
}

#[tokio::test]
async fn tokens_are_shown_while_they_come_and_tagged() {
    let (_mock, config) = mocked(mock::says("one two three four")).await;
    let mut watcher = config.live.watch();
    run_with(config, ModelInput::new("p", request("m"))).await.unwrap();
    let mut seen = Vec::new();
    while let Ok(token) = watcher.try_recv() {
        assert_eq!((token.seq, token.tag.activity, token.tag.attempt), (seen.len() as u64, 3, 1));
        seen.push(token.what);
    }
    assert_eq!((seen.first(), seen.last()), (Some(&LiveWhat::Reset), Some(&LiveWhat::End)));
    let text = |what: &LiveWhat| if let LiveWhat::Text(text) = what { text.clone() } else { String::new() };
    assert_eq!(seen.iter().map(text).collect::<String>(), "one two three four");
}

#[test]
fn input_and_output_are_plain_data() {
    let text =
        json!({"provider": "openai", "request": {"model": "m", "messages": [{"role": "user", "content": "hi"}]}});
    let input: ModelInput = serde_json::from_value(text).unwrap();
    assert_eq!(input, ModelInput::new("openai", request("m")));
    let output = ModelOutput {
        response: mock::says("x"),
        value: None,
        problems: Vec::new(),
        cost: Cost::Micros(7),
        cut: 0,
        estimated: None,
    };
    let wanted = json!({
        "response": {"said": {"content": "x"}, "stop": "end", "usage": {"input": 10, "output": 5}, "model": "mock-1",
                     "id": "mock-answer"},
        "cost": {"micros": 7},
    });
    assert_eq!(serde_json::to_value(&output).unwrap(), wanted);
    let payload = Payload::encode(&output).unwrap();
    assert_eq!(payload.decode::<ModelOutput>().unwrap(), output);
}

/// `null` is an answer where the schema takes it, also when it has been written and read.
#[test]
fn null_is_a_value() {
    let response: ChatResponse = serde_json::from_value(serde_json::json!({
        "said": { "content": "null" }, "stop": "end", "usage": {}, "model": "m"
    }))
    .unwrap();
    let output = ModelOutput {
        response,
        value: Some(Value::Null),
        problems: Vec::new(),
        cost: Cost::Unpriced("why".into()),
        cut: 0,
        estimated: None,
    };
    let payload = Payload::encode(&output).unwrap();
    assert_eq!(payload.decode::<ModelOutput>().unwrap().value, Some(Value::Null));
    let none = ModelOutput { value: None, ..output };
    assert_eq!(Payload::encode(&none).unwrap().decode::<ModelOutput>().unwrap().value, None);
}
