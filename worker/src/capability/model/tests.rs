//! The capability through a socket: providers of the mock, whole and streamed, and hostile ones.

use serde_json::json;

use super::mock::MockProvider;
use super::provider::Provider;
use super::*;

mod hostile;
mod run;

/// A request that uses everything.
fn full_request() -> ChatRequest {
    let tool = ToolSpec {
        name: "search".into(),
        description: "Searches.".into(),
        parameters: json!({"type": "object", "properties": {"q": {"type": "string"}}}),
    };
    let call = ToolCall { id: "call_a".into(), name: "search".into(), arguments: json!({"q": "ä \"x\""}) };
    ChatRequest {
        model: "mock-1".into(),
        messages: vec![
            Message::System { content: "Be kind.".into() },
            Message::User { content: "Grüße".into() },
            Message::Assistant(AssistantMessage { content: "Let me look.".into(), tool_calls: vec![call] }),
            Message::Tool {
                call_id: "call_a".into(),
                name: "search".into(),
                content: "nothing".into(),
                is_error: true,
            },
        ],
        tools: vec![tool],
        tool_choice: ToolChoice::Required,
        schema: None,
        temperature: Some(0.25),
        max_tokens: Some(100),
    }
}

fn with_schema(schema: serde_json::Value) -> ChatRequest {
    let messages = vec![Message::User { content: "data, please".into() }];
    let schema = Some(OutputSchema { name: "out".into(), schema });
    ChatRequest { model: "mock-1".into(), messages, schema, max_tokens: Some(50), ..ChatRequest::default() }
}

/// Both formats, whole and streamed.
fn ways() -> [(Wire, bool); 4] {
    [(Wire::OpenAi, false), (Wire::OpenAi, true), (Wire::Anthropic, false), (Wire::Anthropic, true)]
}

fn provider(mock: &MockProvider, wire: Wire, stream: bool) -> Provider {
    Provider::new(&ProviderConfig { stream, ..mock.config(wire) }).unwrap()
}

async fn ask(provider: &Provider, request: &ChatRequest) -> (Result<ChatResponse, ModelError>, String) {
    let mut shown = String::new();
    let mut sink = |token: StreamToken<'_>| match token {
        StreamToken::Text(text) => shown.push_str(text),
        StreamToken::ToolCall(name) => shown.push_str(&format!("[{name}]")),
    };
    let answered = provider.complete(request, &ModelCallContext::alone("key-1"), &mut sink).await;
    (answered, shown)
}

#[tokio::test]
async fn requests_and_answers_survive_every_wire() {
    let mut wanted = mock::calls("search", json!({"q": "größer \n than 7 characters"}));
    wanted.said.content = "Let me see about that, one moment — ✓.".into();
    wanted.usage.cache_read = Some(4);
    let given = wanted.clone();
    let mock = MockProvider::start(move |_| given.clone()).await.unwrap();
    for (wire, stream) in ways() {
        let (answered, shown) = ask(&provider(&mock, wire, stream), &full_request()).await;
        assert_eq!(answered.unwrap(), wanted, "{wire:?} {stream}");
        let asked = mock.asked().pop().unwrap();
        assert_eq!((asked.wire, asked.stream, &asked.request), (wire, stream, &full_request()));
        assert_eq!(asked.headers["idempotency-key"], "key-1");
        assert_eq!(shown, format!("{}[search]", wanted.said.content), "{wire:?}");
    }
    assert_eq!(mock.count(), 4, "a call is one request");
}

#[tokio::test]
async fn data_under_a_schema_survives_every_wire() {
    let cases = [
        (json!({"type": "object", "properties": {"n": {"type": "integer"}}}), json!({"n": 1})),
        (json!({"type": "array", "items": {"type": "integer"}}), json!([1, 2])),
    ];
    for (schema, value) in cases {
        let given = value.clone();
        let mock = MockProvider::start(move |_| mock::gives(&given)).await.unwrap();
        for (wire, stream) in ways() {
            let request = with_schema(schema.clone());
            let (answered, shown) = ask(&provider(&mock, wire, stream), &request).await;
            let answered = answered.unwrap();
            assert_eq!(
                (answered.said.content, answered.stop),
                (value.to_string(), StopReason::End),
                "{wire:?} {stream}"
            );
            assert_eq!(mock.asked().pop().unwrap().request, request, "{wire:?} {stream}");
            assert!(!shown.is_empty());
        }
    }
}

#[tokio::test]
async fn a_server_that_knows_no_schema_is_asked_in_words() {
    let mock = MockProvider::start(|_| mock::says("```json\n{\"n\": 1}\n```")).await.unwrap();
    for (wire, stream) in ways() {
        let config = ProviderConfig { stream, schemas: SchemaSupport::Prompt, ..mock.config(wire) };
        let request = with_schema(json!({"type": "object", "title": "Numbered"}));
        ask(&Provider::new(&config).unwrap(), &request).await.0.unwrap();
        let asked = mock.asked().pop().unwrap();
        assert_eq!((asked.request.schema, asked.request.tools.len()), (None, 0));
        assert!(asked.body.to_string().contains("Numbered"), "{}", asked.body);
    }
}

#[tokio::test]
async fn a_provider_that_did_not_count_is_not_free() {
    let mock = MockProvider::start(|_| ChatResponse { usage: Usage::default(), ..mock::says("x") }).await.unwrap();
    for (wire, stream) in ways() {
        let answered = ask(&provider(&mock, wire, stream), &full_request()).await.0.unwrap();
        assert_eq!(answered.usage, Usage::default(), "{wire:?} {stream}");
    }
}

#[tokio::test]
async fn refusals_have_their_class_and_delay() {
    let answer = |request: &ChatRequest| match request.model.as_str() {
        "limited" => mock::MockAnswer::rate_limited(7),
        "money" => mock::MockAnswer::refuse(429, "insufficient_quota", "pay"),
        "locked" => mock::MockAnswer::refuse(401, "invalid_api_key", "who are you"),
        "overloaded" => mock::MockAnswer::refuse(529, "overloaded_error", "busy"),
        _ => mock::MockAnswer::refuse(404, "model_not_found", "what"),
    };
    let mock = MockProvider::start(answer).await.unwrap();
    let seven = Some(std::time::Duration::from_secs(7));
    for (wire, stream) in ways() {
        for (model, status, class) in [
            ("limited", 429, ErrorClass::Retry { after: seven }),
            ("money", 429, ErrorClass::NeedsHuman),
            ("locked", 401, ErrorClass::NeedsHuman),
            ("overloaded", 529, ErrorClass::Retry { after: None }),
            ("other", 404, ErrorClass::Fatal),
        ] {
            let request = ChatRequest { model: model.into(), ..full_request() };
            // A provider of its own: the pace would hold the next one back.
            let error = ask(&provider(&mock, wire, stream), &request).await.0.unwrap_err();
            assert_eq!((error.class, error.status), (class, Some(status)), "{wire:?} {model}: {error}");
        }
    }
    assert_eq!(mock.count(), 20, "no request is repeated in here");
}

#[tokio::test]
async fn a_provider_that_wants_quiet_is_not_asked() {
    let mock = MockProvider::start(|_| mock::MockAnswer::rate_limited(60)).await.unwrap();
    let provider = provider(&mock, Wire::OpenAi, false);
    assert!(ask(&provider, &full_request()).await.0.is_err());
    for _ in 0..5 {
        let error = ask(&provider, &full_request()).await.0.unwrap_err();
        assert_eq!(error.code.as_deref(), Some(code::PACED));
        let ErrorClass::Retry { after: Some(after) } = error.class else { panic!("{error:?}") };
        assert!(after.as_secs() > 30, "{after:?}");
    }
    assert_eq!(mock.count(), 1);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_no_answer() {
    let mock = MockProvider::start(|_| mock::MockAnswer::Cut(mock::says("a long and winding answer"))).await.unwrap();
    for (wire, stream) in ways() {
        let error = ask(&provider(&mock, wire, stream), &full_request()).await.0.unwrap_err();
        assert_eq!(error.class, ErrorClass::Retry { after: None }, "{wire:?} {stream}: {error}");
    }
}

#[tokio::test]
async fn the_key_goes_into_one_header_and_nowhere_else() {
    const KEY: &str = "sk-from-a-file-0123456789";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    std::fs::write(&file, KEY).unwrap();
    let mock = MockProvider::start(|_| mock::says(&format!("your key is {KEY}, is it not?"))).await.unwrap();
    for (wire, stream) in ways() {
        let key = Some(SecretRef::File(file.clone()));
        let config = ProviderConfig { key, stream, ..mock.config(wire) };
        assert!(!format!("{config:?}").contains(KEY));
        let (answered, shown) = ask(&Provider::new(&config).unwrap(), &full_request()).await;
        let said = answered.unwrap().said.content;
        assert_eq!(said, "your key is [redacted], is it not?");
        assert_eq!(shown, said);
        let asked = mock.asked().pop().unwrap();
        let header = if wire == Wire::OpenAi { "authorization" } else { "x-api-key" };
        assert!(asked.headers[header].ends_with(KEY));
        assert_eq!(format!("{asked:?}").matches(KEY).count(), 1);
    }
}

#[tokio::test]
async fn only_the_host_that_the_owner_named_may_be_on_this_machine() {
    let mock = MockProvider::start(|_| mock::says("x")).await.unwrap();
    for (base, trusted) in [(mock.base_url(Wire::OpenAi), false), ("http://169.254.169.254/v1".to_owned(), false)] {
        let config = ProviderConfig { trusted, ..ProviderConfig::at(Wire::OpenAi, base, None) };
        let error = ask(&Provider::new(&config).unwrap(), &full_request()).await.0.unwrap_err();
        assert_eq!((error.class, error.code.as_deref()), (ErrorClass::Fatal, Some(code::REFUSED_ADDRESS)), "{error}");
    }
    let by_name = mock.base_url(Wire::OpenAi).replace("127.0.0.1", "localhost");
    let config = ProviderConfig { trusted: false, ..ProviderConfig::at(Wire::OpenAi, by_name, None) };
    let error = ask(&Provider::new(&config).unwrap(), &full_request()).await.0.unwrap_err();
    assert_eq!(error.code.as_deref(), Some(code::REFUSED_ADDRESS), "{error}");
    assert_eq!(mock.count(), 0);
}

#[tokio::test]
async fn a_version_in_the_base_url_is_not_doubled() {
    let mock = MockProvider::start(|_| mock::says("x")).await.unwrap();
    for wire in [Wire::Anthropic, Wire::OpenAi] {
        let config = ProviderConfig::at(wire, format!("{}/", mock.base_url(Wire::OpenAi)), None);
        assert!(ask(&Provider::new(&config).unwrap(), &full_request()).await.0.is_ok(), "{wire:?}");
    }
}

#[test]
fn a_base_url_that_cannot_be_used_is_for_somebody_to_see() {
    for base in
        ["nonsense", "ftp://example.com", "http://user:secret-pw@example.com/v1", "http://example.com/?key=secret-pw"]
    {
        let config = ProviderConfig::at(Wire::OpenAi, base, None);
        let Err(error) = Provider::new(&config) else { panic!("{base} was taken") };
        assert_eq!(error.class, ErrorClass::NeedsHuman);
        assert!(!error.message.contains("secret-pw"), "{error}");
    }
}
