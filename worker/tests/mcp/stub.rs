//! A server that speaks the protocol by hand, well or badly: this test binary started anew, with one test that serves.
//!
//! Invariant: it knows no library of the protocol; a line is a message of JSON.

use std::io::{BufRead, Write};

use serde_json::{Value, json};

/// Says that this process is the server, and how it behaves.
const MODE: &str = "BOSUN_MCP_STUB";

#[test]
fn this_serves_where_it_is_started_as_a_server() {
    if let Ok(mode) = std::env::var(MODE) {
        serve(&mode);
        std::process::exit(0);
    }
}

pub(crate) fn mode(mode: &str) -> (String, String) {
    (MODE.to_owned(), mode.to_owned())
}
pub(crate) const ARGUMENTS: [&str; 4] =
    ["mcp::stub::this_serves_where_it_is_started_as_a_server", "--exact", "--nocapture", "--test-threads=1"];

/// `good`; `mute` never says hello; `gone` ends at once; `strange` says another hello; `pages` lists without end; `wide` lists much.
fn serve(mode: &str) {
    note("started");
    // The harness has begun a line: servers that print something else are common.
    say("\n");
    if mode == "gone" {
        eprintln!("no such table: {}", token());
        std::process::exit(3);
    }
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let message: Value = serde_json::from_str(&line).expect("the client sends JSON");
        if mode == "mute" || message.get("id").is_none() {
            continue;
        }
        let method = message["method"].as_str().unwrap_or_default();
        if method == "tools/call" {
            note(message["params"]["name"].as_str().unwrap());
            misbehave(&message);
        }
        let result = match (mode, method) {
            ("strange", "initialize") => json!({ "result": { "tools": [] } }),
            ("pages", "tools/list") => json!({ "result": { "tools": [], "nextCursor": "more" } }),
            ("wide", "tools/list") => {
                let tool =
                    json!({ "name": "echo", "description": "w".repeat(1 << 20), "inputSchema": { "type": "object" } });
                json!({ "result": { "tools": [tool], "nextCursor": "more" } })
            }
            _ => answer(&message),
        };
        reply(&message, result);
    }
}

fn reply(message: &Value, mut result: Value) {
    result["jsonrpc"] = json!("2.0");
    result["id"] = message["id"].clone();
    say(&format!("{result}\n"));
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

fn token() -> String {
    std::env::var("TOKEN").unwrap_or_default()
}

/// A line in the log of this server, for counting what really ran.
fn note(what: &str) {
    if let Ok(path) = std::env::var("LOG") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{what} {}", std::process::id()).unwrap();
    }
}

/// The calls after which no answer comes, or no good one.
#[expect(clippy::zombie_processes, reason = "a server that hangs waits for nobody")]
fn misbehave(message: &Value) {
    match message["params"]["name"].as_str().unwrap() {
        "hang" => {
            // It has children and does not listen any more.
            let child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
            note(&format!("child {}", child.id()));
            loop {
                std::thread::sleep(std::time::Duration::from_secs(600));
            }
        }
        "die" | "die_harmless" => {
            eprintln!("out of cheese {}", token());
            std::process::exit(9);
        }
        "endless" => loop {
            say(&"x".repeat(64 * 1024));
        },
        "flood" => loop {
            let data = "y".repeat(16 * 1024);
            let params = json!({ "level": "info", "data": data });
            say(&format!("{}\n", json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": params })));
        },
        "chatter" => loop {
            say(
                "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n",
            );
        },
        "garbage" => {
            for line in ["{", "[1,2", "{\"jsonrpc\":\"2.0\"}", "null", "\u{0}\u{1}", "{\"id\":{}}", "hello", "]]]]"] {
                say(&format!("{line}\n"));
            }
        }
        _ => {}
    }
}

/// What a good server answers.
pub(crate) fn answer(message: &Value) -> Value {
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({ "result": {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "tools": { "listChanged": true } },
            "serverInfo": { "name": "stub", "version": "1" },
        } }),
        "tools/list" => json!({ "result": { "tools": published() } }),
        "tools/call" => called(&message["params"]),
        _ => json!({ "error": { "code": -32601, "message": "no such method" } }),
    }
}

fn published() -> Vec<Value> {
    let tool = |name: &str, schema: Value, hints: Value| {
        json!({ "name": name, "description": format!("Does {name}. {}", token()), "inputSchema": schema,
            "annotations": hints })
    };
    let nothing = json!({ "type": "object" });
    let text = json!({ "type": "object", "properties": { "text": { "type": "string", "pattern": "^[a-z ]*$" } },
        "required": ["text"], "additionalProperties": false });
    let mut tools = vec![tool("echo", text, json!({ "readOnlyHint": true }))];
    tools.push(tool("die_harmless", nothing.clone(), json!({ "idempotentHint": true })));
    let bad = ["hang", "die", "endless", "flood", "garbage", "huge", "fail", "error", "secret", "names", "picky"];
    for name in bad.into_iter().chain(["chatter", "late", "left"]) {
        tools.push(tool(name, nothing.clone(), json!({})));
    }
    tools
}

fn called(params: &Value) -> Value {
    let text = |text: String| json!({ "content": [{ "type": "text", "text": text }] });
    let arguments = &params["arguments"];
    let result = match params["name"].as_str().unwrap_or_default() {
        "echo" => json!({ "content": [{ "type": "text", "text": arguments["text"] }], "structuredContent": arguments }),
        "fail" => json!({ "content": [{ "type": "text", "text": "it did not work" }], "isError": true }),
        "huge" => text("z".repeat(usize::try_from(arguments["bytes"].as_u64().unwrap()).unwrap())),
        "secret" => {
            eprintln!("the token is {}", token());
            json!({ "content": [{ "type": "text", "text": format!("token {}", token()) }],
                "structuredContent": { "token": token() } })
        }
        "names" => {
            let mut names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
            names.sort();
            text(names.join(" "))
        }
        "error" => {
            return json!({ "error": { "code": -32603, "message": format!("broken, with {}", token()) } });
        }
        "picky" => return json!({ "error": { "code": -32602, "message": "not like that" } }),
        other => text(format!("done: {other}")),
    };
    json!({ "result": result })
}
