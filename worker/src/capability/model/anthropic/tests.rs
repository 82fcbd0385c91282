//! Requests and answers of this format; the way through a socket is in the tests of the capability.

use super::*;
use crate::capability::model::wire::Assembler;
use crate::capability::model::{ChatResponse, ModelError, NullSink, StopReason, ToolCall};

fn user(content: &str) -> ChatRequest {
    let messages = vec![Message::User { content: content.into() }];
    ChatRequest { model: "m".into(), messages, ..ChatRequest::default() }
}

fn with_schema(schema: Value) -> ChatRequest {
    ChatRequest { schema: Some(OutputSchema { name: "out".into(), schema }), ..user("hi") }
}

#[test]
fn the_smallest_request_has_a_limit() {
    let turn = json!({"role": "user", "content": [{"type": "text", "text": "hi"}]});
    assert_eq!(body(&user("hi"), false), json!({"model": "m", "max_tokens": 4096, "messages": [turn]}));
    assert_eq!(body(&user("hi"), true)["stream"], true);
}

#[test]
fn a_conversation_becomes_turns_that_alternate() {
    let call = |id: &str, arguments: Value| ToolCall { id: id.into(), name: "add".into(), arguments };
    let result =
        |id: &str, is_error| Message::Tool { call_id: id.into(), name: "add".into(), content: "r".into(), is_error };
    let system = |content: &str| Message::System { content: content.into() };
    let said = AssistantMessage {
        content: "let me".into(),
        tool_calls: vec![call("1", json!({"a": 1})), call("2", json!("{a"))],
    };
    let mut request = user("hi");
    request.messages = vec![
        system("be kind"),
        Message::User { content: "hi".into() },
        Message::Assistant(said),
        result("1", false),
        result("2", true),
        system("be brief"),
        Message::User { content: "go on".into() },
        Message::Assistant(AssistantMessage::default()),
    ];
    let body = body(&request, false);
    assert_eq!(body["system"], "be kind\n\nbe brief");
    let wanted = json!([
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [
            {"type": "text", "text": "let me"},
            {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}},
            {"type": "tool_use", "id": "2", "name": "add", "input": {"arguments": "{a"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "1", "content": "r"},
            {"type": "tool_result", "tool_use_id": "2", "content": "r", "is_error": true},
            {"type": "text", "text": "go on"},
        ]},
    ]);
    assert_eq!(body["messages"], wanted);
}

#[test]
fn a_schema_is_a_tool_that_has_to_be_called() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let mut request = with_schema(schema.clone());
    let forced = body(&request, false);
    assert_eq!(
        forced["tools"],
        json!([{"name": "out", "description": "Gives the final answer.", "input_schema": schema}])
    );
    assert_eq!(forced["tool_choice"], json!({"type": "tool", "name": "out"}));
    request.tools =
        vec![ToolSpec { name: "out".into(), description: "d".into(), parameters: json!({"type": "object"}) }];
    let beside = body(&request, false);
    assert_eq!(beside["tool_choice"], json!({"type": "any"}));
    assert_eq!((&beside["tools"][0]["name"], &beside["tools"][1]["name"]), (&json!("out"), &json!("answer_out")));
}

#[test]
fn a_schema_of_no_object_stands_under_a_name_with_its_definitions_at_the_root() {
    let request =
        with_schema(json!({"type": "array", "items": {"$ref": "#/$defs/x"}, "$defs": {"x": {"type": "integer"}}}));
    let wanted = json!({
        "type": "object", "required": ["value"], "additionalProperties": false,
        "properties": {"value": {"type": "array", "items": {"$ref": "#/$defs/x"}}},
        "$defs": {"x": {"type": "integer"}},
    });
    assert_eq!(body(&request, false)["tools"][0]["input_schema"], wanted);
    let use_of = |input: Value| json!([{"type": "tool_use", "id": "1", "name": "out", "input": input}]);
    let answer = |input| read(&request, &json!({"content": use_of(input), "stop_reason": "tool_use"})).unwrap();
    let response = answer(json!({"value": [1]}));
    assert_eq!((response.said.content.as_str(), response.stop), ("[1]", StopReason::End));
    assert_eq!(answer(json!([1])).said.content, "[1]", "a model that forgot the name is understood");
}

#[test]
fn an_answer_is_read_and_the_cache_is_input() {
    let body = json!({
        "id": "x", "model": "m-1", "stop_reason": "tool_use",
        "content": [{"type": "thinking", "thinking": "..."}, {"type": "text", "text": "a"},
                    {"type": "tool_use", "id": "1", "name": "t", "input": {"q": 1}}],
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 3},
    });
    let response = read(&user("hi"), &body).unwrap();
    assert_eq!((response.said.content.as_str(), response.stop), ("a", StopReason::ToolCalls));
    assert_eq!(response.said.tool_calls[0].arguments, json!({"q": 1}));
    let usage = response.usage;
    assert_eq!(
        (usage.input, usage.cache_read, usage.cache_write, usage.output),
        (Some(125), Some(100), Some(20), Some(3))
    );
    for usage in [json!(null), json!({"input_tokens": -1, "output_tokens": "3"})] {
        let body = json!({"content": [], "usage": usage});
        assert_eq!(read(&user("hi"), &body).unwrap().usage.input, None);
    }
}

#[test]
fn stops_have_reasons() {
    let stop = |reason: &str| read(&user("hi"), &json!({"content": [], "stop_reason": reason})).unwrap().stop;
    assert_eq!(stop("end_turn"), StopReason::End);
    assert_eq!(stop("max_tokens"), StopReason::Length);
    assert_eq!(stop("refusal"), StopReason::Refusal);
    assert_eq!(stop("pause_turn"), StopReason::Other("pause_turn".into()));
}

#[test]
fn what_is_no_answer_is_malformed() {
    for body in
        [json!({}), json!({"content": "text"}), json!({"content": [{}]}), json!({"content": [{"type": "tool_use"}]})]
    {
        assert!(read(&user("hi"), &body).is_err(), "{body}");
    }
}

fn fold(request: &ChatRequest, events: &[Value]) -> Result<ChatResponse, ModelError> {
    let mut stream = Box::new(MessagesStream::new(request));
    for event in events {
        stream.event(event, &mut NullSink)?;
    }
    stream.finish()
}

#[test]
fn a_stream_without_its_end_is_cut_and_parts_need_a_beginning() {
    let start = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}});
    let cut = fold(&user("hi"), std::slice::from_ref(&start)).unwrap_err();
    assert_eq!(cut.code.as_deref(), Some("stream_cut"));
    let delta = json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "b"}});
    assert!(fold(&user("hi"), &[start.clone(), delta]).is_err());
    let many =
        (0..2_000).map(|i| json!({"type": "content_block_start", "index": i, "content_block": {"type": "text"}}));
    assert!(fold(&user("hi"), &many.collect::<Vec<_>>()).is_err());
}

#[test]
fn counts_of_a_stream_are_the_latest() {
    let response = fold(
        &user("hi"),
        &[
            json!({"type": "message_start", "message": {"id": "x", "model": "m", "usage": {"input_tokens": 9, "output_tokens": 1}}}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 40}}),
            json!({"type": "message_stop"}),
        ],
    )
    .unwrap();
    assert_eq!((response.usage.input, response.usage.output, response.id.as_deref()), (Some(9), Some(40), Some("x")));
}
