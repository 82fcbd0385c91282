//! Acts of people in trouble: on many runs at once, on one activity, by a query or an update, and a run like another one.

use bosun_tests::harness::browser::Browser;
use serde_json::{Value, json};

use super::door::Door;
use super::{Pages, gated};

const PARKED: &str = r#"[{ "wait_signal": { "name": "go" } }]"#;

fn parked(pages: &Pages, ids: &[&str]) {
    for id in ids {
        pages.program(id, serde_json::from_str(PARKED).unwrap());
    }
}

fn status(pages: &Pages, id: &str) -> Value {
    let seen: Value = pages.http.request("GET", &format!("/api/v1/workflows/{id}"), None).unwrap().json().unwrap();
    seen["status"].clone()
}

#[test]
fn the_chosen_runs_are_terminated_after_they_were_shown() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    parked(&pages, &["one", "two", "three"]);
    let page = pages.signed_in(&browser);
    // It works without a script.
    page.scripts(false);
    page.go_to(&pages.at("/"));
    for id in ["one", "three"] {
        page.click(&format!("input[aria-label='Choose {id}']"));
    }
    page.js("document.querySelector('#batch-verb').value = 'terminate'");
    page.click_to_leave("#batch button[value=chosen]");
    page.until_says("Terminate 2 runs?");
    assert!(!page.text("main").contains("two"), "{}", page.shows());
    assert_eq!(status(&pages, "one"), "Running", "shown is not done");
    page.fill("#reason", "a runaway");
    page.click_to_leave("button.danger");
    page.until_says("Done to 2 of 2 runs.");
    assert_eq!(["one", "two", "three"].map(|id| status(&pages, id)), ["Terminated", "Running", "Terminated"]);
    assert_eq!(pages.ended("three")["reason"], "a runaway");
}

#[test]
fn what_has_begun_since_it_was_shown_is_left_alone() {
    let door = Door::open();
    parked(&door.pages, &["one", "two"]);
    let query = "query=WorkflowType+%3D+'kitchen-sink'&of=all&verb=cancel";
    let cookie = [door.cookie_line()];
    let shown = door.post("/batch", &cookie, &door.sealed(query));
    assert!(shown.status == 200 && shown.body.contains("Cancel 2 runs?"), "{shown:?}");
    let (_, until) = shown.body.split_once("name=\"until\" value=\"").unwrap();
    let until = until.split_once('"').unwrap().0;
    parked(&door.pages, &["late"]);
    let done = door.post("/batch", &cookie, &door.sealed(&format!("{query}&sure=yes&until={until}")));
    assert!(done.body.contains("Done to 2 of 2 runs."), "{done:?}");
    for id in ["one", "two"] {
        assert_eq!(door.pages.ended(id)["status"], "Canceled");
    }
    assert_eq!(status(&door.pages, "late"), "Running");
    // A schedule is meant by whoever names its type.
    let nightly = json!({ "schedule_id": "n", "schedule": { "spec": { "cron": ["0 2 * * *"] },
        "action": { "workflow_type": "kitchen-sink", "workflow_id": "n" } } });
    let begun = door.pages.http.request("POST", "/api/v1/schedules", Some(nightly.to_string().as_bytes())).unwrap();
    assert_eq!(begun.status, 201, "{begun:?}");
    for query in ["", "WorkflowType+%3D+'bosun.schedule'"] {
        let shown = door.post("/batch", &cookie, &door.sealed(&format!("query={query}&of=all&verb=terminate")));
        let of_schedules = !query.is_empty();
        assert_eq!(shown.body.contains(">late</a>"), !of_schedules, "{shown:?}");
        assert_eq!(shown.body.contains("schedule:n"), of_schedules, "{shown:?}");
    }
    for (form, told) in [
        ("verb=delete&of=all", "it is pause, resume, cancel or terminate"),
        ("verb=cancel&of=chosen&run=nonsense", "it names no run"),
        ("verb=cancel&of=all&query=nonsense+%28", "list filter"),
    ] {
        let refused = door.post("/batch", &cookie, &door.sealed(form));
        assert!(refused.status == 400 && refused.body.contains(told), "{form}: {refused:?}");
    }
    for role in ["viewer", "approver"] {
        let (cookie, seal) = door.signed_in(&door.pages.token(&format!("ann-{role}"), role));
        let form = format!("verb=terminate&of=all&sure=yes&query=WorkflowId+%3D+'late'&seal={seal}");
        let refused = door.post("/batch", &[format!("Cookie: {cookie}")], &form);
        assert!(refused.status == 403 && refused.body.contains("this needs the role"), "{role}: {refused:?}");
        assert_eq!(status(&door.pages, "late"), "Running", "{role}");
    }
    let none = door.post("/batch", &cookie, &door.sealed("verb=cancel&of=chosen"));
    assert!(none.status == 200 && none.body.contains("None was chosen"), "{none:?}");
}

#[test]
fn a_run_is_asked_updated_and_started_again_from_its_page() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    pages.supervisor("story", &gated("a publication", "publish it"));
    pages.asked("story");
    let page = pages.signed_in(&browser);
    let send = |verb: &str, name: &str, input: &str| {
        page.go_to(&pages.at("/runs/story"));
        page.js(&format!("document.querySelector('#{verb}-name').closest('details').open = true"));
        page.fill(&format!("#{verb}-name"), name);
        page.fill(&format!("#{verb}-input"), input);
        page.click_to_leave(&format!("details[open].menu form:has(#{verb}-name) button"));
    };
    send("query", "progress", "");
    page.until_says("a publication");
    send("query", "no_such_query", "");
    page.until_says("no_such_query");
    send("update", "approve_plan", r#"{"version": 7, "approved": true}"#);
    page.until_says("It was refused.");
    // Another one like it: the form is filled in with what this one was started with.
    page.go_to(&pages.at("/runs/story"));
    page.click_to_leave("a.button[href^='/start?like=']");
    assert_eq!(page.js("document.querySelector('#type').value"), "supervisor");
    let input = page.js("JSON.parse(document.querySelector('#input').value)");
    assert_eq!(input["spec"]["objective"], "a publication", "{input}");
    page.fill("#id", "story-2");
    page.click_to_leave("main form button.primary");
    page.until_says("story-2");
    pages.asked("story-2");
    assert_eq!(page.complaints().iter().filter(|one| !one.contains("status of 4")).count(), 0);
}

#[test]
fn an_activity_is_held_back_let_go_on_and_ended_by_hand() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    let failing = json!({ "type": "process", "input": { "argv": ["false"] }, "retry": { "initial_interval": "1h" } });
    let long = json!({ "type": "process", "input": { "argv": ["sleep", "600"] }, "as": "said" });
    pages.program("retries", json!([{ "activity": failing }]));
    pages.program("long", json!([{ "activity": long }, { "return": "$said" }]));
    let page = pages.signed_in(&browser);
    page.go_to(&pages.at("/runs/retries"));
    page.until("an attempt has failed", "document.querySelector('.activity input[value=pause_activity]')");
    page.click_to_leave(".activity button");
    page.until_says("held back");
    page.click_to_leave(".activity button");
    page.until("it goes on", "document.querySelector('.activity input[value=pause_activity]')");
    page.go_to(&pages.at("/runs/long"));
    page.until("it is under way", "document.querySelector('.activity details')");
    page.click(".activity summary");
    page.fill(".activity textarea", r#"{"by": "hand"}"#);
    page.click_to_leave(".activity button[value=result]");
    let end = pages.ended("long");
    assert_eq!(end["status"], "Completed", "{end}");
    let ended = pages.events("long");
    let by_hand = ended.iter().any(|event| event["attributes"].to_string().contains(r#""by":"hand""#));
    assert!(by_hand, "{ended:?}");
}

#[test]
fn the_options_of_a_waiting_activity_are_changed_on_its_page() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    let failing = json!({ "type": "process", "input": { "argv": ["false"] }, "retry": { "initial_interval": "1h" } });
    pages.program("retries", json!([{ "activity": failing }]));
    let page = pages.signed_in(&browser);
    page.go_to(&pages.at("/runs/retries"));
    page.until("an attempt has failed", "document.querySelector('.activity input[value=pause_activity]')");
    page.click(".activity details:last-of-type summary");
    page.fill(".activity input[name=maximum_attempts]", "2");
    page.fill(".activity input[name=reason]", "the last try");
    page.click(".activity input[name=retry_now]");
    page.click_to_leave(".activity details:last-of-type button");
    let end = pages.ended("retries");
    assert_eq!(end["status"], "Failed", "the second attempt was the last: {end}");
    let said = pages.events("retries").iter().any(|event| event["attributes"].to_string().contains("the last try"));
    assert!(said, "{:?}", pages.events("retries"));
}

#[test]
fn a_schedule_is_made_and_changed_on_its_page() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    let page = pages.signed_in(&browser);
    page.go_to(&pages.at("/schedules"));
    page.click_to_leave("a[href='/schedule']");
    page.fill("#id", "nightly");
    page.fill("#type", "kitchen-sink");
    page.fill("#input", r#"{"steps": []}"#);
    page.fill("#cron", "0 2 * * NEVER");
    page.click_to_leave("form.stack button");
    page.until_says("Nothing was saved.");
    assert_eq!(page.js("document.querySelector('#input').value"), r#"{"steps": []}"#, "what was filled in stays");
    page.fill("#cron", "0 2 * * MON-FRI");
    page.click_to_leave("form.stack button");
    page.until_says("nightly");
    let before = pages.bosun(&["schedule", "describe", "nightly"]);
    assert!(before.contains("0 2 * * MON-FRI") && before.contains("kitchen-sink"), "{before}");

    page.click_to_leave("a[href^='/schedule?of=nightly']");
    let text = page.js("document.querySelector('#schedule').value").as_str().unwrap().to_owned();
    // Somebody else changes it meanwhile: the form is of an older version.
    pages.bosun(&["schedule", "update", "nightly", "--cron", "0 3 * * *"]);
    page.fill("#schedule", &text.replace("0 2 * * MON-FRI", "0 5 * * *"));
    page.click_to_leave("form.stack button");
    page.until_says("Nothing was saved.");
    assert!(pages.bosun(&["schedule", "describe", "nightly"]).contains("0 3 * * *"));
    page.go_to(&pages.at("/schedule?of=nightly"));
    let text = page.js("document.querySelector('#schedule').value").as_str().unwrap().to_owned();
    page.fill("#schedule", &text.replace("0 3 * * *", "0 5 * * *"));
    page.click_to_leave("form.stack button");
    page.until_says("nightly");
    assert!(pages.bosun(&["schedule", "describe", "nightly"]).contains("0 5 * * *"));
}

#[test]
fn a_schedule_is_paused_resumed_and_triggered_from_its_page() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    pages.bosun(&["schedule", "create", "sync", "kitchen-sink", "--every", "1h", "--input", r#"{"steps":[]}"#]);
    let page = pages.signed_in(&browser);
    page.go_to(&pages.at("/schedules"));
    let button = |name: &str| format!("form:has(input[name=name][value={name}]) button");
    page.click_to_leave(&button("pause"));
    page.until("it is paused", "document.querySelector('main .badge').innerText === 'paused'");
    assert_eq!(page.address(), "/schedules");
    page.click_to_leave(&button("unpause"));
    page.until("it goes on", "document.querySelector('main .badge').innerText === 'active'");
    page.click_to_leave(&button("trigger"));
    page.until("a run of it is shown", "document.querySelector('main td a[href*=\"/runs/sync-\"]')");
    page.until_says("Triggered the schedule sync for ");
}
