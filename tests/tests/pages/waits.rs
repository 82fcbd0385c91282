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
    let asks = "parked for review: it waits for a person: an answer to \"By train or by ferry?\"";
    assert!(said(&parked).contains(asks), "{}", said(&parked));
    let listed = door.pages.bosun(&["approval", "list"]);
    assert!(listed.contains("task ask: By train or by ferry?\n"), "{listed}");
    assert!(listed.contains(r#"an ANSWER looks like '{"by":"train"}'"#), "{listed}");
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
            let why = "it has halted: anthropic: this worker has no model provider";
            // Until the run above has heard of it and is paused, it is the agent that would be resumed.
            if [&own, &row].iter().all(|page| page.contains(why)) && own.contains("resume above") {
                return;
            }
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?} does not say it", agent());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The deadline of an approval says what becomes of it, and the file of an open supervisor holds all that its page shows.
#[test]
fn an_open_supervisor_is_drawn_in_its_file_too() {
    let door = Door::open();
    let page = door.get(&format!("/runs/{RUN}"), &[door.cookie_line()]).body;
    assert!(page.contains(", rejected by itself <time") && !page.contains(", fires"), "{page}");
    let history = door.get(&format!("/runs/{RUN}?tab=history"), &[door.cookie_line()]).body;
    assert!(history.contains("started with") && history.contains(">recorded "), "{history}");
    let of_api = door.get(&format!("/api/v1/workflows/{RUN}/export?as=html"), &[door.bearer()]).body;
    let of_verb = door.pages.bosun(&["export", RUN, "--as", "html"]);
    for file in [&of_api, &of_verb] {
        for told in [
            "What it does",
            "tell: a publication",
            "still open when exported at",
            "<h2>Waits for</h2>",
            "approval approve",
        ] {
            assert!(file.contains(told), "{told}: {file}");
        }
        assert!(!file.contains("<script"), "{file}");
    }
}

/// The row of a run says what is in the way of the runs below it, and of attempts that nobody has a slot for.
#[test]
fn a_row_says_what_is_in_the_way_below() {
    let door = Door::open();
    let fails = json!([{ "activity": { "type": "process", "input": { "argv": ["false"] }, "retry": { "initial_interval": "1h" } } }]);
    door.pages.program("above", json!([{ "child": { "id": "below", "input": { "steps": fails } } }]));
    let begin = Instant::now();
    loop {
        let row = door.get("/?query=WorkflowId%20%3D%20%27above%27", &[door.cookie_line()]).body;
        if row.contains("of below</span>: ") && row.contains("attempt 2 in ") {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{row}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What only the command line told: the API says whom and what a run waits for, and what keeps it and those below it.
#[test]
fn the_description_of_a_run_says_what_it_waits_for() {
    let door = Door::open();
    let described = |id: &str| -> serde_json::Value {
        door.pages.http.request("GET", &format!("/api/v1/workflows/{id}"), None).unwrap().json().unwrap()
    };
    let asks = described(RUN);
    let waiting = &asks["waiting"][0];
    assert!(waiting["what"].as_str().is_some_and(|what| what.contains("publish it")), "{asks}");
    assert!(waiting["answer"].as_str().is_some_and(|answer| answer.contains("approval approve")), "{asks}");
    let fails = json!([{ "activity": { "type": "process", "input": { "argv": ["false"] }, "retry": { "initial_interval": "1h" } } }]);
    door.pages.program("above", json!([{ "child": { "id": "below", "input": { "steps": fails } } }]));
    let begin = Instant::now();
    let told = loop {
        let told = described("above");
        if told["obstacles"][0].is_object() {
            break told;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{told}");
        std::thread::sleep(Duration::from_millis(100));
    };
    let obstacle = &told["obstacles"][0];
    assert_eq!(obstacle["workflow_id"], "below");
    let help = obstacle["help"].as_str().unwrap();
    let begins = help.starts_with(&format!("bosun --data {} ", door.pages.dir.path().join("data").display()));
    assert!(begins && help.ends_with("activity retry-now below 1"), "{help}");
    // Lengths of time, failures and refusals are plain, too.
    let history = door.get("/api/v1/workflows/below/history", &[door.bearer()]).body;
    assert!(history.contains("\"initial_interval\":\"1h\"") && !history.contains("\"secs\""), "{history}");
    assert!(history.contains("\"next_attempt_at\":\"20") && !history.contains("permille"), "{history}");
    let refused = door.get("/api/v1/workflows/nobody", &[door.bearer()]);
    assert!(refused.status == 404 && !refused.body.contains("rejection"), "{refused:?}");
    assert!(obstacle["next_attempt_time"].as_str().is_some_and(|at| at.ends_with('Z')), "{told}");
}

/// Who paused a run and why stands on its page, with the command that lets it go on.
#[test]
fn the_page_of_a_paused_run_says_who_paused_it_and_what_helps() {
    let door = Door::open();
    door.pages.program("held", json!([{ "wait_signal": { "name": "go" } }]));
    door.pages.bosun(&["pause", "held", "--reason", "look first"]);
    let page = door.get("/runs/held", &[door.cookie_line()]).body;
    assert!(page.contains("it is paused by ") && page.contains(": look first"), "{page}");
    assert!(page.contains(" resume held"), "{page}");
}

/// SHN-74 on every door: what people have made of a run stands where its status does, and its page offers what can be done now.
#[test]
fn a_run_that_people_hold_is_called_so_on_pages_and_in_the_api() {
    let door = Door::open();
    let api = |path: &str| -> serde_json::Value { door.pages.http.request("GET", path, None).unwrap().json().unwrap() };
    let page = |path: &str| door.get(path, &[door.cookie_line()]).body;
    let offers = |page: &str, verb: &str| page.contains(&format!("name=\"verb\" value=\"{verb}\""));
    for (verb, word, control, button) in [
        ("pause", "Paused", json!("paused"), "resume"),
        ("resume", "Running", json!(null), "pause"),
        ("takeover", "Taken over", json!("taken_over"), "release"),
        ("release", "Running", json!(null), "pause"),
    ] {
        door.pages.bosun(&[verb, RUN]);
        let badge = format!("\">{word}</span>");
        for place in ["/", &format!("/runs/{RUN}")] {
            assert!(page(place).contains(&badge), "{verb} {place}: no {badge} in {}", page(place));
        }
        let own = page(&format!("/runs/{RUN}"));
        for other in ["pause", "resume", "release"] {
            assert_eq!(offers(&own, other), other == button, "{verb}: {other} in {own}");
        }
        assert_eq!(api("/api/v1/workflows")["workflows"][0]["control"], control, "{verb}");
        assert_eq!(api(&format!("/api/v1/workflows/{RUN}"))["control"], control, "{verb}");
        // What a door shows it finds.
        let query = format!("query=ExecutionStatus%20%3D%20%27{}%27", word.replace(' ', "%20"));
        let found = api(&format!("/api/v1/workflows?{query}"));
        assert_eq!(found["workflows"][0]["control"], control, "{verb}: {found}");
        assert_eq!(api(&format!("/api/v1/workflow-count?{query}"))["count"], 1, "{verb}");
        assert!(page(&format!("/?{query}")).contains(&format!("/runs/{RUN}")), "{verb}");
        if word == "Paused" {
            assert_eq!(
                api("/api/v1/workflow-count?query=ExecutionStatus%20%3D%20%27Running%27")["count"],
                1,
                "{verb}: it is open"
            );
        }
        let top: serde_json::Value = serde_json::from_str(&door.pages.bosun(&["top", "-o", "json"])).unwrap();
        assert_eq!(top["runs"][0]["status"], word, "{verb}: {top}");
    }
    door.pages.bosun(&["takeover", RUN]);
    let lines = [door.cookie_line(), format!("Origin: {}", door.pages.at(""))];
    let given = door.post(&format!("/runs/{RUN}/act"), &lines, &format!("seal={}&verb=release", door.seal));
    assert_eq!(given.status, 303, "{given:?}");
    assert_eq!(api(&format!("/api/v1/workflows/{RUN}"))["control"], json!(null), "the button does it");
}

/// One measure of a history, whoever is asked.
#[test]
fn a_list_and_a_description_tell_one_size_of_a_history() {
    let door = Door::open();
    door.pages.program("small", json!([{ "timer": "1ms" }, { "activity": { "type": "echo", "input": "x" } }]));
    door.pages.ended("small");
    let api = |path: &str| -> serde_json::Value { door.pages.http.request("GET", path, None).unwrap().json().unwrap() };
    let listed = api("/api/v1/workflows?query=WorkflowId%20%3D%20'small'");
    let described = api("/api/v1/workflows/small");
    for size in ["history_length", "history_size_bytes"] {
        assert_eq!(listed["workflows"][0][size], described[size], "{size}");
    }
}

/// Whoever decides sees what the tasks before have given; whoever comes too late finds the way back.
#[test]
fn an_approval_shows_what_came_before_and_a_late_answer_leads_back() {
    let door = Door::open();
    let spec = json!({ "kind": "supervisor", "preset": "shannon-dag", "objective": "Sell the boats", "agents": [{ "name": "clerk" }],
        "script": [
            { "on": "plan", "say": { "tasks": [{ "id": "a", "goal": "Count them" },
                { "id": "b", "goal": "Sell them", "deps": ["a"], "requires_approval": true }] } },
            { "on": "execute_worker", "say": "forty-one boats" }] });
    door.pages.supervisor("boats", &spec);
    let asked = door.pages.asked("boats");
    let inbox = door.get("/inbox", &[door.cookie_line()]).body;
    let (_, rest) = inbox.split_once("What came before").unwrap_or_else(|| panic!("{inbox}"));
    assert!(rest.contains("forty-one boats"), "{inbox}");
    let shown = door.pages.bosun(&["approval", "show", asked["id"].as_str().unwrap()]);
    assert!(shown.contains("a: forty-one boats"), "{shown}");
    let lines = [door.cookie_line(), format!("Origin: {}", door.pages.at(""))];
    let form =
        format!("seal={}&id={}&shown=old&do=approve", door.seal, asked["id"].as_str().unwrap().replace('/', "%2F"));
    let late = door.post("/runs/boats/answer", &lines, &form);
    assert_eq!(late.status, 409, "{late:?}");
    assert!(late.body.contains("href=\"/inbox\">Back to the inbox<"), "{}", late.body);
}
