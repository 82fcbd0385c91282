//! Who works: agents of plans, speakers of chats, and who was delegated to; on the page and by the API.

use serde_json::{Value, json};

use super::door::Door;

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
