//! Who works: agents of plans, speakers of chats, and who was delegated to; on the page and by the API.

use bosun_tests::harness::process::Program;
use bosun_worker::capability::model::Wire;
use bosun_worker::capability::model::mock::{MockProvider, says};
use serde_json::{Value, json};

use super::Pages;
use super::door::Door;
use crate::supervisor_cli::{run, said};
use crate::tidy::workspace;

#[test]
fn agents_of_chats_and_delegations_are_counted_too() {
    let door = Door::open();
    let pages = &door.pages;
    pages.supervisor(
        "chat",
        &json!({ "kind": "supervisor", "preset": "autogen-groupchat", "objective": "Agree on a name",
            "agents": [{ "name": "alice", "description": "Proposes." }, { "name": "bob", "description": "Doubts." }],
            "script": [{ "on": "decide", "round": 1, "say": "alice" }, { "on": "decide", "say": "bob" },
                { "on": "execute_worker", "agent": "alice", "say": { "content": "Felix?" } },
                { "on": "execute_worker", "agent": "bob", "say": { "content": "Tuesday it is. TERMINATE" } }] }),
    );
    pages.supervisor(
        "tree",
        &json!({ "kind": "supervisor", "preset": "supyagent-delegation", "objective": "Build it",
            "agents": [
                { "name": "assistant", "description": "Routes.", "delegates": ["coder"], "script": [
                    { "on": "execute_worker", "round": 1, "say": { "tool_calls": [{ "name": "delegate_to_coder", "args": { "task": "Write it" } }] } },
                    { "on": "execute_worker", "say": "Built." }] },
                { "name": "coder", "description": "Writes.", "delegates": [], "script": [{ "on": "execute_worker", "say": "Written." }] }] }),
    );
    for id in ["chat", "tree"] {
        pages.ended(id);
    }
    let told: Value = pages.http.request("GET", "/api/v1/agents", None).unwrap().json().unwrap();
    let of = |name: &str| {
        let found = told["agents"].as_array().unwrap().iter().find(|one| one["name"] == name);
        let found = found.unwrap_or_else(|| panic!("no {name}: {told}"));
        ["runs", "attempts", "done", "failed", "busy"].map(|key| found[key].as_u64().unwrap())
    };
    for name in ["alice", "bob", "assistant", "coder"] {
        assert_eq!(of(name), [1, 1, 1, 0, 0], "{name}");
    }
    let page = door.get("/agents", &[door.cookie_line()]).body;
    for name in ["alice", "bob", "assistant", "coder"] {
        assert!(page.contains(&format!("<strong>{name}</strong>")), "{name}: {page}");
    }
}

/// Three tasks are reviewed, and one of them is sent back, once: no page, answer or verb says it of the others.
#[test]
fn only_what_was_sent_back_is_called_so() {
    let door = Door::open();
    let data = door.pages.dir.path().join("data");
    let spec = workspace().join("fixtures/supervisors/presets/flow-supervisor.yaml");
    let ran = run(&data, &["run", spec.to_str().unwrap(), "-w", "f"]);
    assert!(ran.status.success(), "{}", said(&ran));
    let page = door.get("/runs/f", &[door.cookie_line()]).body;
    let told: Vec<&str> = page.split("sent back: ").skip(1).map(|rest| rest.split('<').next().unwrap()).collect();
    assert_eq!(told, ["Name a source."], "{page}");
    let told: Value = door.pages.http.request("GET", "/api/v1/agents", None).unwrap().json().unwrap();
    let sent_back = told["agents"].as_array().unwrap().iter().map(|one| one["sent_back"].as_u64().unwrap());
    assert_eq!(sent_back.sum::<u64>(), 1, "{told}");
}

/// The row of a model agent has its name, and what its calls have cost: of one that has ended, on both lists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_of_a_model_has_its_name_and_its_cost() {
    let mock = MockProvider::start(|_| says("done")).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let prices = folder.path().join("prices.json");
    let table = r#"{"as_of": "2026-11-20", "models": {"openai/tiny": {"input": 10000000, "output": 20000000}}}"#;
    std::fs::write(&prices, table).unwrap();
    let program = Program::bosun_worker().unwrap().env("OPENAI_BASE_URL", &mock.base_url(Wire::OpenAi));
    let door = Door::to(Pages::serve_by(&program.env("BOSUN_PRICES", prices.to_str().unwrap())));
    let agent =
        json!({ "name": "scribe", "provider": "openai", "model": "tiny", "task": "write", "max_output_tokens": 9 });
    let start = json!({ "workflow_type": "agent", "workflow_id": "one", "input": agent });
    door.pages.post("/api/v1/workflows", &start);
    door.pages.ended("one");
    let page = |path: &str| door.get(path, &[door.cookie_line()]).body;
    let (agents, runs) = (page("/agents"), page("/"));
    // Ten tokens and five, as the mock counts.
    assert!(agents.contains("<strong>scribe</strong>") && agents.contains("$0.0002"), "{agents}");
    assert!(runs.contains("$0.0002"), "{runs}");
}
