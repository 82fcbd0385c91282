//! A supervisor that is started on a page, from the text of its spec.

use bosun_tests::harness::browser::Browser;
use bosun_tests::harness::http::escape;
use serde_json::json;

use super::Pages;
use super::door::Door;

const SPEC: &str = "
kind: supervisor
preset: shannon-simple
objective: write a note
agents: [{ name: writer }]
script: [{ on: execute_worker, say: written }, { on: synthesize, say: written }]
";

#[test]
fn a_spec_is_checked_before_anything_is_started() {
    let door = Door::open();
    let cookie = [door.cookie_line()];
    let send = |spec: &str| {
        let form = door.sealed(&format!("spec={}&id=made", escape(spec)));
        door.post("/start", &cookie, &form)
    };
    for (wrong, told) in [
        (SPEC.replace("objective", "objectve"), "objectve"),
        (SPEC.replace("shannon-simple", "nobody"), "nobody"),
        ("kind: [".to_owned(), "spec"),
        (format!("{SPEC}seed_plan: /etc/passwd\n"), "seed_plan"),
    ] {
        let heard = send(&wrong);
        assert_eq!(heard.status, 200, "{heard:?}");
        let alert = heard.body.split("role=\"alert\"").nth(1).unwrap_or_else(|| panic!("{heard:?}"));
        let alert = alert.split("</p>").next().unwrap();
        assert!(alert.contains(told) && alert.contains("Nothing was started."), "{wrong}: {alert}");
        // It comes back as it was typed.
        let first = wrong.trim_start().lines().next().unwrap();
        assert!(heard.body.contains(first) && heard.body.contains("value=\"made\""), "{}", heard.body);
    }
    assert_eq!(door.pages.http.count("WorkflowId = 'made'").unwrap(), 0);
    let heard = send(SPEC);
    assert_eq!((heard.status, heard.header("location").starts_with("/runs/made")), (303, true), "{heard:?}");
    let end = door.pages.ended("made");
    assert_eq!((&end["status"], &end["result"]["final_result"]), (&json!("Completed"), &json!("written")), "{end}");
    // A viewer starts nothing, and is told no more.
    let (viewer, seal) = door.signed_in(&door.pages.token("eve", "viewer"));
    let heard = door.post("/start", &[format!("Cookie: {viewer}")], &format!("spec={}&seal={seal}", escape(SPEC)));
    assert_eq!(heard.status, 403, "{heard:?}");
    assert!(!door.get("/start", &[format!("Cookie: {viewer}")]).body.contains("id=\"spec\""));
}

#[test]
fn a_spec_is_typed_and_started() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    let page = pages.signed_in(&browser);
    page.go_to(&pages.at("/start"));
    page.fill("#spec", SPEC);
    page.fill("#spec-id", "typed");
    page.click_to_leave("form:has(#spec) button.primary");
    assert!(page.address().starts_with("/runs/typed"), "{}", page.address());
    assert_eq!(pages.ended("typed")["result"]["final_result"], "written");
    page.until_says("Completed");
    assert_eq!(page.complaints(), Vec::<String>::new());
}
