//! The past on pages: the slider, the keys, a fork with its dry run, and a long history.

use std::time::Duration;

use bosun_tests::harness::browser::{Browser, Page};
use bosun_tests::harness::say;
use serde_json::{Value, json};

use super::{Pages, gated};

/// A page of a moment: what it says where it stands, which event it shows, and all of it but how long ago it was.
fn moment(page: &Page) -> (String, String, String) {
    let state = page.js("document.querySelector('#moment').innerText.replace(/[(][^()]* ago[)]/g, '')");
    (page.text(".scrubber output"), page.text("#moment h3"), state.as_str().unwrap_or_default().to_owned())
}

#[test]
fn the_slider_and_two_keys_go_through_the_past() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    pages.supervisor("story", &gated("a publication", "publish it"));
    let asked = pages.asked("story");
    pages.post("/api/v1/workflows/story/answers", &json!({ "id": asked["id"], "approved": true }));
    pages.ended("story");
    let last = pages.events("story").len();
    let page = pages.signed_in(&browser);
    page.go_to(&pages.at("/runs/story"));
    page.click_to_leave("nav.tabs a[href*='tab=moment']");
    let end = moment(&page);
    assert_eq!(end.0, format!("{last} of {last}"));
    assert!(end.1.contains("WorkflowExecutionCompleted"), "{end:?}");

    page.press("[");
    page.until_says(&format!("Event {}:", last - 1));
    assert_eq!(moment(&page).0, format!("{} of {last}", last - 1));
    page.press("]");
    page.until_says(&format!("Event {last}:"));
    assert_eq!(moment(&page), end, "back where it was");
    // Beyond the end there is nothing to go to.
    page.press("]");
    assert_eq!(moment(&page), end);

    // The slider by mouse: the far left is the first event.
    let at = page.js("(() => { const box = document.querySelector('.scrubber input[type=range]').getBoundingClientRect(); return [box.x + 2, box.y + box.height / 2]; })()");
    for kind in ["mousePressed", "mouseReleased"] {
        let event = json!({ "type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1 });
        page.call("Input.dispatchMouseEvent", event).unwrap();
    }
    page.until_says("Event 1:");
    let first = moment(&page);
    assert_eq!(first.0, format!("1 of {last}"));
    assert!(first.1.contains("WorkflowExecutionStarted") && first.2 != end.2, "{first:?}");
    // And by its own keys, from the first event to the last: state and pending work change on the way.
    let mut states = std::collections::BTreeSet::new();
    for step in 2..=last {
        page.press("ArrowRight");
        page.until_says(&format!("Event {step}:"));
        states.insert(moment(&page).2);
    }
    assert!(states.len() >= last / 2, "{} states of {last} events", states.len());
    // The address is one to send, and shows the same to whoever opens it.
    page.press("[");
    page.until_says(&format!("Event {}:", last - 1));
    let here = moment(&page);
    let beside = page.beside();
    beside.go_to(&pages.at(&page.address()));
    assert_eq!(moment(&beside), here);
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn a_fork_is_shown_before_it_is_made() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    let steps = json!([
        { "activity": { "type": "echo", "input": "first", "as": "one" } },
        { "activity": { "type": "echo", "input": "$one", "as": "two" } },
        { "return": "$two" }
    ]);
    pages.program("source", steps);
    assert_eq!(pages.ended("source")["result"], "first");
    let before = pages.events("source").len();
    let page = pages.signed_in(&browser);
    page.go_to(&pages.at("/runs/source?tab=fork"));
    page.js("document.querySelector('#fork-kind').value = 'result'");
    page.fill("#fork-which", "echo#1");
    page.fill("#fork-value", "\"other\"");
    page.fill("#fork-id", "twin");
    page.click_to_leave("button[value=look]");
    page.until_says("What would happen");
    assert!(page.shows().contains("Fork it as twin"), "{}", page.shows());
    assert_eq!(pages.http.count("WorkflowId = 'twin'").unwrap(), 0, "looking makes nothing");
    page.click_to_leave("main form:not(.stack) button.primary");
    assert!(page.address().starts_with("/runs/twin"), "{}", page.address());
    let twin = pages.ended("twin");
    assert_eq!((&twin["status"], &twin["result"]), (&json!("Completed"), &json!("other")), "{twin}");
    page.until_says("Forked from");
    page.until_says("other");
    assert_eq!(pages.events("source").len(), before, "the source stays as it was");
    // What cannot be forked is told beside what was written.
    page.go_to(&pages.at("/runs/source?tab=fork"));
    page.fill("#fork-at", "9999");
    page.click_to_leave("button[value=look]");
    page.until("it is told", "document.querySelector('[role=alert]')?.innerText.length > 0");
    assert_eq!(page.js("document.querySelector('#fork-at').value"), "9999");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

/// How long the page took from the request to its last byte, in milliseconds.
fn took(page: &Page) -> u64 {
    page.js("Math.round(performance.getEntriesByType('navigation')[0].responseEnd)").as_u64().unwrap()
}

#[test]
fn a_run_of_five_thousand_events_is_shown() {
    const EVENTS: u64 = 5_000;
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    // A branch of activities each, all at once, so that it is made soon.
    let branch = json!([{ "loop": { "times": 84, "steps": [{ "activity": { "type": "echo", "input": { "text": "x".repeat(40) } } }] } }]);
    let branches: Vec<Value> = (0..20).map(|_| branch.clone()).collect();
    pages.program("long", json!([{ "parallel": branches }, { "wait_signal": { "name": "never" } }]));
    let has = || {
        let seen: Value = pages.http.request("GET", "/api/v1/workflows/long", None).unwrap().json().unwrap();
        seen["history"]["events"]
            .as_u64()
            .or(seen["history_length"].as_u64())
            .or(seen["events"].as_u64())
            .unwrap_or_else(|| panic!("{seen}"))
    };
    let begin = std::time::Instant::now();
    while has() < EVENTS {
        assert!(begin.elapsed() < Duration::from_secs(60), "{} events after a minute", has());
        std::thread::sleep(Duration::from_millis(50));
    }
    let made = begin.elapsed();
    let page = pages.signed_in(&browser);
    let mut figures = Vec::new();
    for tab in [
        "",
        "?tab=history",
        "?tab=history&view=feed",
        "?tab=history&view=raw&page=20",
        "?tab=moment",
        "?tab=moment&at=2500",
    ] {
        page.go_to(&pages.at(&format!("/runs/long{tab}")));
        assert_eq!(page.text("h1"), "long");
        let took = took(&page);
        assert!(took < 5_000, "{tab}: {took} ms");
        figures.push(format!("{} {took} ms", if tab.is_empty() { "overview" } else { tab }));
    }
    say(&format!("pages: a run of {} events, made in {made:.1?}: {}", has(), figures.join(", ")));
    assert_eq!(page.complaints(), Vec::<String>::new());
}
