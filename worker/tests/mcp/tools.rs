//! Calls over standard input and output of a server that behaves.

use bosun_worker::capability::mcp::*;
use serde_json::{Value, json};

use super::kit::{SECRET, Worker, judged};

#[tokio::test]
async fn a_tool_of_a_process_is_called_over_one_connection() {
    let worker = Worker::process("good");
    for text in ["one", "two"] {
        let output = worker.call("echo", json!({ "text": text })).await.unwrap();
        let wanted = McpOutput {
            text: text.to_owned(),
            is_error: false,
            structured: Some(json!({ "text": text })),
            left_out: Vec::new(),
        };
        assert_eq!(output, wanted);
    }
    assert_eq!((worker.count("started"), worker.count("echo")), (1, 2), "the connection is kept");
    let failed = worker.call("fail", json!({})).await.unwrap();
    assert_eq!((failed.text.as_str(), failed.is_error), ("it did not work", true), "a tool that fails has a result");
}

#[tokio::test]
async fn calls_of_one_server_run_at_a_time_over_one_process() {
    let worker = Worker::process_with("good", |server| server.concurrency = 2);
    let texts = ["a", "b", "c", "d", "e", "f"];
    let calls = texts.map(|text| worker.call("echo", json!({ "text": text })));
    let answers = futures_util::future::join_all(calls).await;
    let answers: Vec<String> = answers.into_iter().map(|answer| answer.unwrap().text).collect();
    assert_eq!(answers, texts);
    assert_eq!(worker.count("started"), 1);
}

#[tokio::test]
async fn what_is_unknown_or_does_not_fit_is_refused_before_it_is_sent() {
    let worker = Worker::process("good");
    let refused = |tool: &'static str, arguments: Value| async { judged(worker.call(tool, arguments).await) };
    let (name, again, why) = refused("rm", json!({})).await;
    assert_eq!((name.as_str(), again), (MCP_UNKNOWN_TOOL, false), "{why}");
    assert!(why.contains("echo"), "it says what there is: {why}");
    // The last one breaks a word of the schema that agents do not know: the capability does.
    for arguments in [json!({}), json!({ "text": 1 }), json!({ "text": "a", "b": 1 }), json!({ "text": "A1" })] {
        let (name, again, why) = refused("echo", arguments.clone()).await;
        assert_eq!((name.as_str(), again), (MCP_ARGUMENTS, false), "{arguments}: {why}");
    }
    assert_eq!(worker.count("echo") + worker.count("rm"), 0, "{:?}", worker.log());
    let (name, again, _) = refused("picky", json!({})).await;
    assert_eq!((name.as_str(), again), (MCP_ARGUMENTS, false), "what the server refuses itself");
    let input = json!({ "server": "other", "tool": "echo" });
    let (name, again, why) = judged(worker.ask(MCP, input).await);
    assert_eq!((name.as_str(), again), (MCP_UNKNOWN_SERVER, false), "{why}");
    let strict = json!({ "server": "s", "tool": "echo", "url": "http://evil/" });
    assert!(worker.ask::<McpOutput>(MCP, strict).await.is_err(), "an input names no place");
}

#[tokio::test]
async fn the_tools_that_are_asked_for_are_described_and_no_others() {
    let worker = Worker::process("good");
    let listed = |tools: Value| worker.ask::<McpToolsOutput>(MCP_TOOLS, json!({ "server": "s", "tools": tools }));
    let some = listed(json!(["fail", "echo"])).await.unwrap().tools;
    assert_eq!(some.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["fail", "echo"]);
    assert_eq!(some[1].parameters["properties"]["text"]["pattern"], "^[a-z ]*$");
    assert_eq!((some[0].repeatable, some[1].repeatable), (false, true));
    assert!(some[1].description.starts_with("Does echo."), "{some:?}");
    assert!(!json!(some).to_string().contains("sk-live"), "{some:?}");
    let all = listed(json!("all")).await.unwrap().tools;
    assert!(all.len() > 10 && all.is_sorted_by_key(|tool| tool.name.clone()));
    let missing = listed(json!(["echo", "rm"])).await.unwrap_err();
    assert_eq!(missing.type_name(), MCP_UNKNOWN_TOOL);
}

#[tokio::test]
async fn a_long_answer_is_cut_and_says_what_was_cut() {
    let worker = Worker::process("good");
    let input = json!({ "server": "s", "tool": "huge", "arguments": { "bytes": 5_000 }, "output_max": 1_000 });
    let output: McpOutput = worker.ask(MCP, input).await.unwrap();
    assert_eq!((output.text.len(), output.left_out), (1_000, vec!["4000 more bytes of text".to_owned()]));
}

/// The environment of a server is what the owner names, and its secrets are in nothing that comes back.
#[tokio::test]
async fn a_secret_is_given_to_the_server_and_seen_by_nobody() {
    let worker = Worker::process("good");
    let names = worker.call("names", json!({})).await.unwrap().text;
    let names: Vec<&str> = names.split(' ').collect();
    let own = ["BOSUN_MCP_STUB", "BOSUN_PROCESS_MARKER", "LOG", "PATH", "TOKEN"];
    let others: Vec<&&str> = names.iter().filter(|name| !own.contains(name)).collect();
    assert!(others.is_empty(), "{others:?} came along from this worker");
    let told = worker.call("secret", json!({})).await.unwrap();
    assert_eq!((told.text.as_str(), told.structured), ("token [redacted]", Some(json!({ "token": "[redacted]" }))));
    let (name, again, why) = judged(worker.call("error", json!({})).await);
    assert_eq!((name.as_str(), again), (MCP_ERROR, false));
    assert!(why.contains("broken, with [redacted]"), "{why}");
    for entry in std::fs::read_dir(worker.directory().join("processes")).unwrap() {
        let note = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!note.contains(SECRET), "{note}");
    }
}

#[tokio::test]
async fn a_secret_that_cannot_be_read_starts_nothing() {
    let worker = Worker::process("good");
    std::fs::remove_file(worker.directory().join("key")).unwrap();
    let (name, again, why) = judged(worker.call("echo", json!({ "text": "a" })).await);
    assert_eq!((name.as_str(), again), (MCP_SECRET, true), "{why}");
    assert_eq!(worker.log(), []);
}
