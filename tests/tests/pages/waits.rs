//! What pages say of a wait that only a person ends.

use std::time::{Duration, Instant};

use serde_json::json;

use super::door::{Door, RUN};
use crate::supervisor_cli::{run, said};

/// A question that is open was asked.
#[test]
fn the_replay_of_a_run_that_asks_does_not_say_that_nobody_was_asked() {
    let door = Door::open();
    let replay = door.get(&format!("/runs/{RUN}?tab=replay"), &[door.cookie_line()]);
    assert_eq!(replay.status, 200);
    assert!(
        replay.body.contains("is not answered yet") && !replay.body.contains("Nobody was asked"),
        "{}",
        replay.body
    );
}

/// The question of `bosun dev` is a form with two choices, and its end says what was booked.
#[test]
fn the_question_of_the_demonstration_is_a_form_and_ends_truthfully() {
    let door = Door::open();
    let data = door.pages.dir.path().join("data");
    let spec = crate::tidy::workspace().join("worker/src/cli/dev/trip.yaml");
    let parked = run(&data, &["run", spec.to_str().unwrap(), "-w", "trip", "--no-wait"]);
    assert_eq!(parked.status.code(), Some(15), "{}", said(&parked));
    let inbox = door.get("/inbox", &[door.cookie_line()]).body;
    assert!(inbox.contains("By train or by ferry?"), "{inbox}");
    for choice in ["train", "ferry"] {
        assert!(inbox.contains(&format!(">{choice}</option>")), "{choice}: {inbox}");
    }
    let asked = door.pages.asked("trip");
    let id = asked["request"]["id"].as_str().unwrap_or_else(|| panic!("{asked}"));
    let answered = run(&data, &["approval", "answer", id, r#"{"by": "ferry"}"#]);
    assert!(answered.status.success(), "{}", said(&answered));
    let end = said(&run(&data, &["result", "trip", "--timeout", "60s"]));
    assert!(end.contains("The ferry is booked.") && !end.contains("train is booked"), "{end}");
}

/// A filter with a name that is no field is told beside the list, with those that there are.
#[test]
fn the_list_refuses_a_field_that_nobody_knows() {
    let door = Door::open();
    let page = door.get("/?query=Foo%20%3D%201", &[door.cookie_line()]).body;
    assert!(page.contains("is no field") && page.contains("ExecutionStatus"), "{page}");
}

/// The own run of an agent that has given up: its page and its row say why, with what helps.
#[test]
fn an_agent_that_has_halted_says_why_on_its_page_and_in_its_row() {
    let door = Door::open();
    let agents = json!([{ "name": "writer", "via": { "model": { "name": "anthropic/claude" } } }]);
    let spec = json!({ "kind": "supervisor", "preset": "shannon-simple", "objective": "write", "agents": agents });
    door.pages.supervisor("above", &spec);
    let agent = || {
        let path = "/api/v1/workflows?query=WorkflowType%20%3D%20%27agent%27";
        let found: serde_json::Value = door.pages.http.request("GET", path, None).unwrap().json().unwrap();
        found["workflows"][0]["workflow_id"].as_str().map(str::to_owned)
    };
    let begin = Instant::now();
    loop {
        let page = |path: &str| door.get(path, &[door.cookie_line()]).body;
        if let Some(agent) = agent() {
            let (own, row) = (page(&format!("/runs/{agent}")), page("/?query=WorkflowType%20%3D%20%27agent%27"));
            let why = "it has halted: openai: this worker has no model provider";
            if [&own, &row].iter().all(|page| page.contains(why)) {
                assert!(own.contains("resume above"), "{own}");
                return;
            }
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?} does not say it", agent());
        std::thread::sleep(Duration::from_millis(100));
    }
}
