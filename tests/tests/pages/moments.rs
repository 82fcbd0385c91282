//! The past on pages: the slider, the keys, a fork with its dry run, and a long history.

use std::time::Duration;

use bosun_tests::harness::browser::{Browser, Page};
use bosun_tests::harness::say;
use serde_json::{Value, json};

use super::{Pages, gated};

/// A page of a moment: what it says where it stands, which event it shows, and all of it but how long ago it was.
fn moment(page: &Page) -> (String, String, String) {
    let state = page.js("document.querySelector('#moment').innerText.replace(/[(][^()]* ago[)]/g, '')");
    (page.text(".scrubber output"), page.text("#moment h2"), state.as_str().unwrap_or_default().to_owned())
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

/// The form of a fork from an event: what stands in each of its fields.
fn filled(page: &str) -> Vec<(&'static str, String)> {
    let between = |text: &str, from: &str, to: &str| {
        let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no {from} in {page}"));
        rest.split_once(to).unwrap().0.to_owned()
    };
    let plain =
        |text: String| text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let input = |name: &str| {
        let tag = between(page, &format!("<input id=\"fork-{name}\""), ">");
        plain(tag.split_once("value=\"").map_or("", |(_, rest)| rest.split('"').next().unwrap()).to_owned())
    };
    let kinds = between(page, "<select id=\"fork-kind\"", "</select>");
    let kind = kinds.split("<option ").find(|option| option.contains(" selected"));
    let kind = between(kind.unwrap_or("value=\"none\""), "value=\"", "\"");
    let value =
        plain(between(page, "<textarea id=\"fork-value\"", "</textarea>").split_once('>').unwrap().1.to_owned());
    vec![("at", input("at")), ("kind", kind), ("which", input("which")), ("value", value)]
}

/// Every link leads to a form that says what the event said, and whose fork begins exactly there.
#[test]
fn each_event_that_can_be_forked_from_leads_to_its_form() {
    let door = super::door::Door::open();
    let child = json!({ "steps": [{ "return": 7 }] });
    let steps = json!([
        { "activity": { "type": "echo", "input": "<first> & \"last\"", "as": "one" } },
        { "wait_signal": { "name": "go", "as": "said" } },
        { "wait_signal": { "name": "go" } },
        { "child": { "id": "kid", "input": child, "as": "kid" } },
        { "timer": "1ms" },
        { "activity": { "type": "process", "input": { "argv": ["false"] }, "retry": { "maximum_attempts": 1 } } }
    ]);
    door.pages.program("source", steps);
    for n in [1, 2] {
        door.pages.post("/api/v1/workflows/source/signals/go", &json!({ "n": n }));
    }
    door.pages.ended("source");
    let cookie = [door.cookie_line()];
    let events = door.pages.events("source");
    let kinds = |places: &[u64]| -> std::collections::BTreeSet<String> {
        let of = |id: &u64| events[*id as usize - 1]["event_type"].as_str().unwrap().to_owned();
        places.iter().map(of).collect()
    };
    let linked = |place: &str, more: &[String]| -> Vec<u64> {
        let page = door.get(&format!("/runs/source?{place}"), more).body;
        let mut found: Vec<u64> = page
            .split("/runs/source/fork?run_id=")
            .filter_map(|rest| rest.split('"').next()?.rsplit_once("event=")?.1.parse().ok())
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    };
    let feed = linked("tab=history&view=feed", &cookie);
    assert_eq!(linked("tab=history&view=raw", &cookie), feed, "the views agree");
    assert!(feed.len() < events.len(), "not every event is a place: {feed:?}");
    let of_kinds = kinds(&feed);
    for kind in [
        "WorkflowExecutionStarted",
        "ActivityTaskCompleted",
        "ActivityTaskFailed",
        "WorkflowExecutionSignaled",
        "ChildWorkflowExecutionCompleted",
    ] {
        assert!(of_kinds.contains(kind), "{kind}: {of_kinds:?}");
    }
    for place in ["", "tab=history", "tab=moment&at=1"] {
        let some = linked(place, &cookie);
        assert!(!some.is_empty() && some.iter().all(|event| feed.contains(event)), "{place}: {some:?} of {feed:?}");
    }
    let mut signals = 0;
    for event in &feed {
        let form = door.get(&format!("/runs/source/fork?event={event}"), &cookie);
        assert_eq!(form.status, 200, "{event}: {form:?}");
        assert!(!form.body.contains("role=\"alert\""), "{event}: {}", form.body);
        let fields = filled(&form.body);
        let of = |name: &str| fields.iter().find(|(one, _)| *one == name).unwrap().1.clone();
        let said = &events[*event as usize - 1]["attributes"];
        match events[*event as usize - 1]["event_type"].as_str().unwrap() {
            "ActivityTaskCompleted" => assert_eq!(serde_json::from_str::<Value>(&of("value")).unwrap(), said["result"]),
            "WorkflowExecutionSignaled" => {
                signals += 1;
                assert_eq!((of("kind"), of("which")), ("signal".to_owned(), format!("go#{signals}")));
                assert_eq!(serde_json::from_str::<Value>(&of("value")).unwrap(), json!({ "n": signals }));
            }
            _ => {}
        }
        let asked: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{name}={}", bosun_tests::harness::http::escape(value)))
            .collect();
        let looked = door.post("/runs/source/fork", &cookie, &door.sealed(&format!("{}&do=look", asked.join("&"))));
        assert!(looked.body.contains("What would happen"), "{event}: {fields:?}: {}", looked.body);
        // What is kept ends there: the cut was not moved to somewhere else.
        let kept = if of("kind") == "none" { *event } else { event - 1 };
        let kept = if of("kind") == "input" { 0 } else { kept };
        let keeps = match kept {
            0 => "nothing: it begins anew, and".to_owned(),
            1 => "event 1,".to_owned(),
            last => format!("events 1 to {last},"),
        };
        let told = format!("{keeps} drops {}</dd>", events.len() as u64 - kept);
        assert!(looked.body.contains(&told), "{event}: {told}: {}", looked.body);
    }
    assert_eq!(signals, 2);
    // Where no fork begins, the form says so; who may not fork has no link.
    let inside = (1..=events.len() as u64).find(|event| !feed.contains(event)).unwrap();
    let form = door.get(&format!("/runs/source/fork?event={inside}"), &cookie).body;
    assert!(form.contains("no fork begins at event"), "{form}");
    let (viewer, _) = door.signed_in(&door.pages.token("eve", "viewer"));
    let viewer = [format!("Cookie: {viewer}")];
    for place in ["", "tab=history", "tab=history&view=feed", "tab=history&view=raw", "tab=moment&at=1"] {
        assert_eq!(linked(place, &viewer), Vec::<u64>::new(), "{place}");
    }
    assert!(!door.get("/runs/source/fork?event=1", &viewer).body.contains("id=\"fork-at\""));
}

#[test]
fn a_fork_begins_at_an_event_of_the_history() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    let steps = json!([{ "activity": { "type": "echo", "input": "first", "as": "one" } }, { "return": "$one" }]);
    pages.program("source", steps);
    assert_eq!(pages.ended("source")["result"], "first");
    let page = pages.signed_in(&browser);
    page.go_to(&pages.at("/runs/source?tab=history&view=feed"));
    let done = pages.events("source").iter().position(|event| event["event_type"] == "ActivityTaskCompleted").unwrap();
    page.click_to_leave(&format!("#e{} a.fork-here", done + 1));
    assert_eq!(page.js("document.querySelector('#fork-value').value"), "\"first\"");
    page.fill("#fork-value", "\"other\"");
    page.fill("#fork-id", "twin");
    page.click_to_leave("button[value=look]");
    page.until_says("What would happen");
    page.click_to_leave("main form:not(.stack) button.primary");
    assert_eq!(pages.ended("twin")["result"], "other");
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
