//! `bosun mcp serve` as a client of the protocol sees it: the tools of a directory and of a worker, by the shipped binary.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

/// Generous: the machine is busy.
const READY_MAX: std::time::Duration = std::time::Duration::from_secs(60);

type Connected = RunningService<RoleClient, ()>;

fn bosun(data: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bosun"));
    command.args(words).arg("--data").arg(data).kill_on_drop(true).stderr(Stdio::inherit());
    command
}

async fn connected(data: &Path, more: &[&str]) -> (Child, Connected) {
    let words: Vec<&str> = ["mcp", "serve"].iter().chain(more).copied().collect();
    let mut child = bosun(data, &words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let transport = AsyncRwTransport::new_client(child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let client = ().serve(transport).await.unwrap();
    (child, client)
}

async fn call(client: &Connected, tool: &'static str, arguments: Value) -> CallToolResult {
    let mut request = CallToolRequestParams::new(tool);
    request.arguments = arguments.as_object().cloned();
    client.call_tool(request).await.unwrap()
}

/// Why a call was refused before anything was run.
async fn refusal(client: &Connected, tool: &'static str, arguments: Value) -> String {
    let mut request = CallToolRequestParams::new(tool);
    request.arguments = arguments.as_object().cloned();
    client.call_tool(request).await.unwrap_err().to_string()
}

fn answer(result: &CallToolResult) -> &Value {
    assert_ne!(result.is_error, Some(true), "{result:?}");
    result.structured_content.as_ref().unwrap()
}

#[tokio::test]
async fn a_client_looks_starts_and_hears_refusals_by_their_codes() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let order = json!({ "order_id": "o-1", "items": [{ "sku": "tea", "quantity": 1 }], "cents": 5 });

    // Without a flag nothing that changes anything is offered.
    let (mut child, client) = connected(&data, &[]).await;
    assert_eq!(client.peer_info().unwrap().server_info.as_ref().unwrap().name, "bosun");
    let tools = client.list_all_tools().await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "workflow_list"));
    assert!(tools.iter().all(|tool| tool.annotations.as_ref().is_some_and(|told| told.read_only_hint == Some(true))));
    let mut start = CallToolRequestParams::new("workflow_start");
    start.arguments = json!({ "workflow_type": "order-saga" }).as_object().cloned();
    assert!(client.call_tool(start).await.is_err(), "it is not offered");
    // A directory that is not there is said so, with the code of the command line.
    let none = call(&client, "workflow_list", json!({})).await;
    let why = none.structured_content.as_ref().unwrap();
    assert_eq!((none.is_error, &why["exit_code"]), (Some(true), &json!(30)), "{why}");
    client.cancel().await.unwrap();
    assert!(child.wait().await.unwrap().success(), "it ends when its client leaves");

    // With it, on a directory that nobody holds: the run is started, and waits for a worker.
    let epoch = home.path().join("epoch");
    let (_child, client) = connected(&data, &["--changes", "--epoch-file", &epoch.display().to_string()]).await;
    let given = json!({ "workflow_type": "order-saga", "workflow_id": "order-1", "input": order });
    let started = call(&client, "workflow_start", given).await;
    assert_eq!(answer(&started)["workflow_id"], "order-1");
    assert!(epoch.exists(), "a verb notes how far the store reached where its server was told to");
    let listed = call(&client, "workflow_list", json!({ "query": "WorkflowType = 'order-saga'" })).await;
    assert_eq!(answer(&listed)["workflows"][0]["workflow_id"], "order-1", "{listed:?}");
    // What people are asked is not decided in a roundabout way either.
    let answer_to = |name: &str| json!({ "workflow_id": "order-1", "name": name, "input": { "approval_id": "a", "approved": true } });
    for (tool, name) in [("workflow_update", "respond_approval"), ("workflow_signal", "approval_response_v1")] {
        let why = refusal(&client, tool, answer_to(name)).await;
        assert!(why.contains(name) && why.contains("serve with --approvals"), "{tool}: {why}");
    }
    let order_of_batch =
        json!({ "query": "", "action": { "signal": { "name": "approval_response_v1", "input": {} } }, "by": "me" });
    let batch = json!({ "workflow_type": "bosun.batch", "workflow_id": "batch:1", "input": order_of_batch });
    assert!(refusal(&client, "workflow_start", batch).await.contains("bosun.batch"));
    let wrong = call(&client, "workflow_list", json!({ "query": "nonsense" })).await;
    assert_eq!(wrong.is_error, Some(true));

    // And beside a worker: the same client reaches it, with the role of the token that it is given.
    let mut worker = bosun(&data, &["worker", "run"]).stdout(Stdio::null()).spawn().unwrap();
    let began = std::time::Instant::now();
    while call(&client, "worker_describe", json!({})).await.is_error == Some(true) {
        assert!(began.elapsed() < READY_MAX, "the worker does not come");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let result = call(&client, "workflow_result", json!({ "id": "order-1", "timeout": "60s" })).await;
    assert_eq!(answer(&result)["workflow_id"], "order-1", "{result:?}");
    let token = home.path().join("viewer");
    let made = bosun(&data, &["token", "create", "viewer", "--role", "viewer", "-o", "json"]).output().await.unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    std::fs::write(&token, made["token"].as_str().unwrap()).unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let token = token.display().to_string();
    let (_viewer, viewer) = connected(&data, &["--changes", "--token-file", &token]).await;
    let refused = call(&viewer, "workflow_start", json!({ "workflow_type": "order-saga", "input": 1 })).await;
    let why = refused.structured_content.as_ref().unwrap();
    assert_eq!((refused.is_error, &why["exit_code"]), (Some(true), &json!(32)), "{why}");
    assert!(why["error"]["message"].as_str().unwrap().contains("operator"), "{why}");
    worker.kill().await.unwrap();
}

/// A line that is no message is answered with the code that JSON-RPC has for it, and what follows is heard.
#[tokio::test]
async fn a_line_that_is_no_message_is_answered() {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let home = tempfile::tempdir().unwrap();
    let mut child = bosun(home.path(), &["mcp", "serve"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    let mut from = BufReader::new(child.stdout.take().unwrap()).lines();
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } } });
    for (line, id, code) in [
        ("this is no JSON".to_owned(), Value::Null, Some(-32_700)),
        (json!({ "jsonrpc": "2.0", "id": 7 }).to_string(), json!(7), Some(-32_600)),
        (hello.to_string(), json!(1), None),
        ("{\"half\":".to_owned(), Value::Null, Some(-32_700)),
    ] {
        to.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        let told = tokio::time::timeout(READY_MAX, from.next_line()).await.expect("an answer").unwrap().unwrap();
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!((&told["id"], told["error"]["code"].as_i64()), (&id, code), "{line}: {told}");
    }
    drop(to);
    assert!(tokio::time::timeout(READY_MAX, child.wait()).await.unwrap().unwrap().success());
}
