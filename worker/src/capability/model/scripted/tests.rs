//! Rules and what they answer.

use serde_json::json;

use super::*;
use crate::capability::model::{NullSink, StopReason};

const SCRIPT: &str = r#"
rules:
  - when: { tool: search }
    then: { say: "found it" }
  - when: { user: "(?i)weather", turn: 0 }
    then:
      calls:
        - { name: search, arguments: { q: weather } }
        - { name: clock }
  - when: { user: "limit" }
    then: { fail: { class: retry, status: 429, message: "slow down", after_ms: 1500, attempts: 2 } }
  - when: { user: "limit" }
    then: { say: "at last" }
  - when: { user: "money" }
    then: { fail: { class: needs_human, message: "pay" } }
  - when: { system: "critic", model: "^big" }
    then: { give: { verdict: weak }, latency_ms: 1 }
  - when: { any: "hello" }
    then: { say: "hi" }
"#;

fn user(content: &str) -> ChatRequest {
    let messages = vec![Message::User { content: content.into() }];
    ChatRequest { model: "m".into(), messages, ..ChatRequest::default() }
}

async fn ask_at(attempt: u32, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
    let mut call = ModelCallContext::alone("k");
    call.tag.attempt = attempt;
    ScriptedModel::new(ModelScript::parse(SCRIPT).unwrap()).complete(request, &call, &mut NullSink).await
}

async fn ask(request: &ChatRequest) -> Result<ChatResponse, ModelError> {
    ask_at(1, request).await
}

#[tokio::test]
async fn the_first_rule_that_fits_answers() {
    assert_eq!(ask(&user("well, hello")).await.unwrap().said.content, "hi");
    let mut request = user("the Weather, please");
    let first = ask(&request).await.unwrap();
    assert_eq!(first.stop, StopReason::ToolCalls);
    let calls: Vec<_> = first.said.tool_calls.iter().map(|call| (call.name.as_str(), call.arguments.clone())).collect();
    assert_eq!(calls, [("search", json!({"q": "weather"})), ("clock", json!({}))]);
    request.messages.push(Message::Assistant(first.said));
    let result =
        Message::Tool { call_id: "call_1_0".into(), name: "search".into(), content: "sun".into(), is_error: false };
    request.messages.push(result);
    assert_eq!(ask(&request).await.unwrap().said.content, "found it");
    let mut critic = user("judge");
    critic.model = "big-1".into();
    critic.messages.insert(0, Message::System { content: "You are a critic.".into() });
    assert_eq!(ask(&critic).await.unwrap().said.content, r#"{"verdict":"weak"}"#);
}

#[tokio::test]
async fn errors_can_be_scripted_for_some_attempts() {
    for attempt in [1, 2] {
        let error = ask_at(attempt, &user("limit")).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Retry { after: Some(Duration::from_millis(1_500)) });
        assert_eq!(error.status, Some(429));
    }
    assert_eq!(ask_at(3, &user("limit")).await.unwrap().said.content, "at last");
    assert_eq!(ask(&user("money")).await.unwrap_err().class, ErrorClass::NeedsHuman);
}

#[tokio::test]
async fn a_request_that_no_rule_fits_is_shown() {
    let error = ask(&user("something else")).await.unwrap_err();
    assert_eq!(error.message, "no rule of the script fits a request to m with \"something else\"");
    assert_eq!(error.class, ErrorClass::Fatal);
}

#[test]
fn a_script_with_a_mistake_is_refused() {
    for text in ["rules: [{when: {user: '('}, then: {}}]", "rules: [{wen: {}, then: {}}]", "rules: 1"] {
        assert!(ModelScript::parse(text).is_err(), "{text}");
    }
}
