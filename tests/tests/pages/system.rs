//! The worker's page with what the doctor finds, the way on from a page that is not there, and waits that no person ends.

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess, bosun};
use serde_json::json;

use super::Pages;
use super::door::Door;

#[test]
fn the_doctor_looks_where_somebody_asks_for_it() {
    let door = Door::open();
    let cookie = [door.cookie_line()];
    let plain = door.get("/system", &cookie).body;
    assert!(
        plain.contains("href=\"/system?doctor=look#doctor\"") && !plain.contains("What the doctor finds"),
        "{plain}"
    );
    let looked = door.get("/system?doctor=look", &cookie).body;
    for check in ["held runs", "clock", "histories", "open files", "models"] {
        assert!(looked.contains(&format!("<td>{check}</td>")), "{check}: {looked}");
    }
    assert!(looked.contains("none is near a limit"), "{looked}");
    // Who may not see the store is told so, and not that all is well.
    let token = door.pages.bosun(&["token", "create", "ann", "--role", "operator", "--only-namespace", "default"]);
    let (cookie, _) = door.signed_in(token.lines().next().unwrap());
    let looked = door.get("/system?doctor=look", &[format!("Cookie: {cookie}")]);
    assert_eq!(looked.status, 200, "{looked:?}");
    assert!(
        looked.body.contains(">problem</span>") && !looked.body.contains("none is near a limit"),
        "{}",
        looked.body
    );
}

#[test]
fn a_page_that_is_not_there_leads_to_those_that_are() {
    let door = Door::open();
    for path in ["/nowhere", "/runs/nobody", "/agents?run_id=x"] {
        let page = door.get(path, &[door.cookie_line()]);
        assert!(matches!(page.status, 400 | 404), "{page:?}");
        for place in ["/", "/inbox", "/agents", "/schedules", "/system"] {
            assert!(page.body.contains(&format!("<a href=\"{place}\">")), "{path}: {place}: {}", page.body);
        }
        assert!(!page.body.contains("name=\"seal\""), "{path}: {}", page.body);
    }
}

#[test]
fn a_wait_for_a_slot_says_what_shows_the_queue() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(bosun().unwrap(), &["worker", "run", "--queue", "default"]);
    let (worker, http) = WorkerProcess::start(&program, &dir.path().join("data"), READY_MAX).unwrap();
    let mut door = Door { pages: Pages { worker, http, dir }, cookie: String::new(), seal: String::new() };
    (door.cookie, door.seal) = door.signed_in(&door.pages.http.endpoint.token.clone());
    door.pages
        .program("waits", json!([{ "activity": { "type": "echo", "input": 1, "task_queue": "nobody-serves-it" } }]));
    let page = door.get("/runs/waits", &[door.cookie_line()]).body;
    assert!(page.contains("waits for a slot"), "{page}");
    let data = door.pages.dir.path().join("data");
    let command = format!("bosun --data {} queue list", data.display());
    assert!(page.contains(&command), "{command}: {page}");
}

/// What was under way when a run ended has not gone on since.
#[test]
fn the_timeline_of_a_closed_run_stands_still() {
    let door = Door::open();
    let steps = json!([{ "parallel": [[{ "timer": "1h" }], [{ "wait_signal": { "name": "never" } }]] }]);
    door.pages.program("ended", steps);
    door.pages.post("/api/v1/workflows/ended/terminate", &json!({ "reason": "enough" }));
    door.pages.ended("ended");
    let timeline = || {
        let page = door.get("/runs/ended", &[door.cookie_line()]).body;
        page.split("class=\"timeline\"").nth(1).unwrap().split("</svg>").next().unwrap().to_owned()
    };
    let before = timeline();
    // Longer than anything that is told of it by the second.
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    assert_eq!(timeline(), before);
}

/// What an event has changed is told in words: where, what was there, and what is; a moment as one reads it.
#[test]
fn a_moment_of_the_past_is_told_in_words() {
    let door = Door::open();
    let asked = door.pages.asked("story");
    door.pages
        .post("/api/v1/workflows/story/answers", &json!({ "id": asked["id"], "approved": true, "comment": "go" }));
    door.pages.ended("story");
    let last = door.pages.events("story").len();
    let mut words = (false, false, false);
    for at in 1..=last {
        let page = door.get(&format!("/runs/story?tab=moment&at={at}"), &[door.cookie_line()]).body;
        let changed = page.split("class=\"changes\"").nth(1).unwrap().split("</ul>").next().unwrap().to_owned();
        words.0 |= changed.contains("is now");
        words.1 |= changed.contains(" › ");
        words.2 |= changed.contains("<time ");
        assert!(!changed.contains("-&gt;") && !changed.contains("{&quot;json&quot;:"), "{at}: {changed}");
    }
    assert_eq!(words, (true, true, true));
}
