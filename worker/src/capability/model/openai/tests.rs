//! Requests and answers of this format; the way through a socket is in the tests of the capability.

use super::*;
use crate::capability::model::{NullSink, ToolSpec};

fn user(content: &str) -> ChatRequest {
    let messages = vec![Message::User { content: content.into() }];
    ChatRequest { model: "m".into(), messages, ..ChatRequest::default() }
}

#[test]
fn the_smallest_request_says_nothing_that_was_not_asked() {
    let wanted = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    assert_eq!(body(&user("hi"), false), wanted);
    let streamed = body(&user("hi"), true);
    assert_eq!((&streamed["stream"], &streamed["stream_options"]), (&json!(true), &json!({"include_usage": true})));
}

#[test]
fn a_whole_conversation_is_written() {
    let call = ToolCall { id: "c1".into(), name: "add".into(), arguments: json!({"a": 1}) };
    let odd = ToolCall { id: "c2".into(), name: "add".into(), arguments: json!("{a: 1") };
    let result =
        |id: &str, is_error| Message::Tool { call_id: id.into(), name: "add".into(), content: "r".into(), is_error };
    let mut request = user("hi");
    request.messages.push(Message::Assistant(AssistantMessage { content: String::new(), tool_calls: vec![call, odd] }));
    request.messages.extend([result("c1", false), result("c2", true)]);
    request.tools =
        vec![ToolSpec { name: "add".into(), description: "adds".into(), parameters: json!({"type": "object"}) }];
    request.tool_choice = ToolChoice::Tool("add".into());
    request.temperature = Some(0.0);
    request.max_tokens = Some(9);
    let function = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "add", "arguments": arguments}});
    let wanted = json!({
        "model": "m",
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": null, "tool_calls": [function("c1", "{\"a\":1}"), function("c2", "{a: 1")]},
            {"role": "tool", "tool_call_id": "c1", "content": "r"},
            {"role": "tool", "tool_call_id": "c2", "content": "Error: r"},
        ],
        "tools": [{"type": "function", "function":
            {"name": "add", "description": "adds", "parameters": {"type": "object"}}}],
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "temperature": 0.0,
        "max_tokens": 9,
    });
    assert_eq!(body(&request, false), wanted);
    request.model = "o3-mini".into();
    assert_eq!(body(&request, false)["max_completion_tokens"], 9);
}

#[test]
fn a_schema_is_strict_if_it_can_be() {
    let strict = |schema: Value| {
        let output = OutputSchema { name: "out".into(), schema };
        response_format(&output)["json_schema"]["strict"].clone()
    };
    let object = |required: Value, closed: bool| {
        let inner = json!({"type": "object", "properties": {}, "additionalProperties": false});
        json!({"type": "object", "properties": {"a": inner}, "required": required, "additionalProperties": !closed})
    };
    assert_eq!(strict(object(json!(["a"]), true)), true);
    assert_eq!(strict(object(json!([]), true)), false);
    assert_eq!(strict(object(json!(["a"]), false)), false);
    assert_eq!(strict(json!({"type": "array", "items": {"type": "object"}})), false);
}

/// G41: what is counted before the end of an answer is not what it took.
#[test]
fn the_last_count_of_a_stream_is_the_one_that_counts() {
    let chunk = |finish: Value, usage: Option<u64>| {
        let usage = usage.map(|output| json!({"prompt_tokens": 100, "completion_tokens": output}));
        json!({"id": "x", "model": "m", "choices": [{"delta": {"content": "a"}, "finish_reason": finish}], "usage": usage})
    };
    let last = json!({"id": "x", "choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 50}});
    let fold = |events: &[Value]| {
        let mut stream = CompletionStream::default();
        events.iter().for_each(|event| stream.event(event, &mut NullSink).unwrap());
        let (done, whole) = (stream.is_done(), stream.is_whole());
        (done, whole, Box::new(stream).finish().unwrap().usage.output)
    };
    let early = [chunk(Value::Null, Some(0)), chunk(json!("stop"), None)];
    assert_eq!(fold(&early), (false, true, Some(0)), "the last count may follow");
    assert_eq!(fold(&[early.as_slice(), &[last]].concat()), (true, true, Some(50)));
    assert_eq!(fold(&[chunk(json!("stop"), Some(7))]), (true, true, Some(7)));
    assert_eq!(fold(&[chunk(json!("stop"), None)]), (false, false, None));
}

fn answer(message: Value, finish: &str) -> Value {
    json!({"id": "x", "model": "m-1", "choices": [{"message": message, "finish_reason": finish}],
           "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2},
                     "completion_tokens_details": {"reasoning_tokens": 1}}})
}

#[test]
fn an_answer_is_read() {
    let response = read(&answer(json!({"content": "hello"}), "stop")).unwrap();
    let usage = Usage { input: Some(7), cache_read: Some(2), cache_write: None, output: Some(3), reasoning: Some(1) };
    let said = AssistantMessage { content: "hello".into(), tool_calls: Vec::new() };
    let wanted = ChatResponse { said, stop: StopReason::End, usage, model: "m-1".into(), id: Some("x".into()) };
    assert_eq!(response, wanted);
}

#[test]
fn the_quirks_of_servers_are_absorbed() {
    let read = |message: Value, finish: &str| read(&answer(message, finish)).unwrap();
    let parts = json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]});
    assert_eq!(read(parts, "stop").said.content, "ab");
    let call = json!({"content": null, "tool_calls": [{"id": "", "function": {"name": "t", "arguments": {"a": 1}}}]});
    let response = read(call, "stop");
    assert_eq!((response.stop, &response.said.tool_calls[0].arguments), (StopReason::ToolCalls, &json!({"a": 1})));
    assert_eq!(response.said.tool_calls[0].id, "call_0");
    let refused = read(json!({"content": null, "refusal": "no"}), "stop");
    assert_eq!((refused.stop, refused.said.content.as_str()), (StopReason::Refusal, "no"));
    assert_eq!(read(json!({"content": "x"}), "length").stop, StopReason::Length);
    assert_eq!(read(json!({"content": ""}), "content_filter").stop, StopReason::Refusal);
    assert_eq!(read(json!({"content": ""}), "load").stop, StopReason::Other("load".into()));
}

#[test]
fn tokens_that_were_not_counted_are_unknown() {
    for usage in [json!(null), json!({}), json!({"prompt_tokens": -1, "completion_tokens": 1.5}), json!("many")] {
        let mut body = answer(json!({"content": "x"}), "stop");
        body["usage"] = usage;
        assert_eq!(read(&body).unwrap().usage, Usage::default());
    }
}

#[test]
fn what_is_no_answer_is_malformed() {
    let nameless = json!({"tool_calls": [{"id": "1", "function": {"arguments": "{}"}}]});
    for body in [json!({}), json!([]), json!({"choices": []}), json!({"choices": [{}]}), answer(nameless, "stop")] {
        assert!(read(&body).is_err(), "{body}");
    }
}

fn fold(chunks: &[Value]) -> Result<ChatResponse, ModelError> {
    let mut stream = Box::new(CompletionStream::default());
    for chunk in chunks {
        stream.event(chunk, &mut NullSink)?;
    }
    stream.finish()
}

#[test]
fn calls_that_are_mixed_are_put_together_by_index() {
    let delta = |calls: Value| json!({"choices": [{"delta": {"tool_calls": calls}}]});
    let response = fold(&[
        delta(json!([{"index": 1, "id": "b", "function": {"name": "two", "arguments": "{\"x\""}}])),
        delta(json!([{"index": 0, "id": "a", "function": {"name": "one", "arguments": ""}}])),
        delta(json!([{"index": 1, "function": {"arguments": ":2}"}}, {"index": 0, "function": {"arguments": "{}"}}])),
        json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}),
    ])
    .unwrap();
    let calls: Vec<_> = response.said.tool_calls.iter().map(|call| (call.id.as_str(), &call.arguments)).collect();
    assert_eq!(calls, [("a", &json!({})), ("b", &json!({"x": 2}))]);
    assert_eq!((response.stop, response.usage.output), (StopReason::ToolCalls, Some(2)));
}

/// Some servers leave the index out, or give every call the same: an id of its own begins another call.
#[test]
fn calls_without_an_index_of_their_own_are_told_apart_by_their_ids() {
    let delta = |calls: Value| json!({"choices": [{"delta": {"tool_calls": calls}}]});
    let whole =
        |id: &str, name: &str, arguments: &str| json!({"id": id, "function": {"name": name, "arguments": arguments}});
    let end = json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]});
    for index in [None, Some(0)] {
        let of = |mut call: Value| {
            if let Some(index) = index {
                call["index"] = index.into();
            }
            delta(json!([call]))
        };
        let pieces = [
            of(whole("a", "wipe", "")),
            of(whole("b", "count", "{\"w\":")),
            of(json!({"id": "of-this-piece", "function": {"arguments": "1}"}})),
            end.clone(),
        ];
        let calls = fold(&pieces).unwrap().said.tool_calls;
        let told: Vec<_> = calls.iter().map(|call| (call.id.as_str(), call.name.as_str(), &call.arguments)).collect();
        assert_eq!(told, [("a", "wipe", &json!({})), ("b", "count", &json!({"w": 1}))], "{index:?}");
    }
}

#[test]
fn a_stream_without_its_end_is_cut() {
    let error = fold(&[json!({"choices": [{"delta": {"content": "half"}}]})]).unwrap_err();
    assert_eq!(error.code.as_deref(), Some("stream_cut"));
    let many: Vec<Value> = (0..200).map(|i| json!({"index": i, "function": {"name": "t"}})).collect();
    assert!(fold(&[json!({"choices": [{"delta": {"tool_calls": many}}]})]).is_err());
}
