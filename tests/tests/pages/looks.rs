//! What pages look like, and who can use them: light and dark, narrow and wide, by keyboard alone, and what axe-core says.

use std::sync::Arc;

use bosun_tests::harness::axe::Axe;
use bosun_tests::harness::browser::{Browser, Page};
use serde_json::json;

use super::{Pages, gated};
use crate::tidy::workspace;

/// Runs of every kind, and the places to look at them.
struct Gallery {
    pages: Pages,
    places: Vec<String>,
}

impl Gallery {
    fn open() -> Gallery {
        let pages = Pages::serve();
        let long = "a-name-without-a-gap-".repeat(8);
        let sent = json!([{ "wait_signal": { "name": "never" } }]);
        pages.program("waiting", sent.clone());
        pages.program(&long, json!([{ "activity": { "type": "echo", "input": { "text": "wide ".repeat(200), "one": "w".repeat(500) } } },
            { "child": { "id": "kid", "input": { "steps": sent }, "wait": false } },
            { "parallel": [[{ "timer": "1h" }], [{ "activity": { "type": "process", "input": { "argv": ["false"] }, "retry": { "initial_interval": "1h" } } }]] }]));
        pages.program("broken", json!([{ "fail": { "type": "Broken", "message": "it broke: ".repeat(60) } }]));
        for id in ["done", "asks"] {
            pages.supervisor(id, &gated(&"a long objective ".repeat(20), "publish it"));
        }
        let asked = pages.asked("done");
        pages
            .post("/api/v1/workflows/done/answers", &json!({ "id": asked["id"], "approved": true, "comment": "fine" }));
        pages.supervisor("plan", &json!({ "kind": "supervisor", "preset": "flow-supervisor", "objective": "Write the notes",
            "planning": { "approval": { "required": true } }, "agents": [{ "name": "writer" }],
            "script": [{ "on": "plan", "say": { "tasks": [{ "id": "a", "goal": "Collect it", "agent": "writer" }] } }] }));
        pages.supervisor(
            "chat",
            &json!({ "kind": "supervisor", "preset": "autogen-groupchat", "objective": "Agree on a name",
            "agents": [{ "name": "alice", "description": "Proposes." }, { "name": "bob", "description": "Doubts." }],
            "script": [{ "on": "decide", "round": 1, "say": "alice" }, { "on": "decide", "say": "bob" },
                { "on": "execute_worker", "agent": "alice", "say": { "content": "Felix?" } },
                { "on": "execute_worker", "agent": "bob", "say": { "content": "Tuesday it is. TERMINATE" } }] }),
        );
        pages.supervisor("tree", &json!({ "kind": "supervisor", "preset": "supyagent-delegation", "objective": "Build it",
            "agents": [
                { "name": "assistant", "description": "Routes.", "delegates": ["coder"], "script": [
                    { "on": "execute_worker", "round": 1, "say": { "tool_calls": [{ "name": "delegate_to_coder", "args": { "task": "Write it" } }] } },
                    { "on": "execute_worker", "say": "Built." }] },
                { "name": "coder", "description": "Writes.", "delegates": [], "script": [{ "on": "execute_worker", "say": "Written." }] }] }));
        pages.bosun(&["schedule", "create", "sync", "kitchen-sink", "--every", "1h", "--input", r#"{"steps":[]}"#]);
        pages.bosun(&["schedule", "trigger", "sync"]);
        pages.asked("asks");
        for id in ["done", "chat", "tree"] {
            pages.ended(id);
        }
        let mut places: Vec<String> = [
            "/",
            "/?query=ExecutionStatus%20%3D%20'Completed'",
            "/?query=nonsense%20(",
            "/?query=WorkflowId%20%3D%20'x'",
            "/inbox",
            "/inbox?done=x",
            "/agents",
            "/schedules",
            "/schedule",
            "/system",
            "/system?doctor=look",
            "/start",
        ]
        .map(str::to_owned)
        .into();
        places.extend(
            ["waiting", "broken", "done", "asks", "plan", "chat", "tree", &long].map(|id| format!("/runs/{id}")),
        );
        for id in ["done", &long] {
            for tab in ["history", "history&view=feed", "history&view=raw", "moment", "replay", "fork"] {
                places.push(format!("/runs/{id}?tab={tab}"));
            }
        }
        places.extend(["/runs/done/fork".into(), "/runs/nobody".into(), "/nowhere".into()]);
        Gallery { pages, places }
    }

    /// Whether the browser itself complains about the status of a page.
    fn is_missing(place: &str) -> bool {
        ["nobody", "nowhere"].iter().any(|missing| place.contains(missing))
    }

    /// Looks at every place as somebody who is signed in, and at the door as nobody.
    fn walk(&self, browser: &Arc<Browser>, mut look: impl FnMut(&Page, &str)) {
        let stranger = browser.page();
        stranger.go_to(&self.pages.at("/login"));
        look(&stranger, "/login");
        let page = self.pages.signed_in(browser);
        for place in &self.places {
            page.go_to(&self.pages.at(place));
            look(&page, place);
        }
    }
}

/// Neither the page nor a menu of it that is open reaches over the edge, and nothing complains on the console.
#[test]
fn no_page_scrolls_sideways_or_complains() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let gallery = Gallery::open();
    let mut wrong = Vec::new();
    gallery.walk(&browser, |page, place| {
        let own = "document.documentElement.scrollWidth > innerWidth && [...document.querySelectorAll('body *')]
            .filter(one => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.scroll'))
            .slice(0, 3).map(one => one.outerHTML.slice(0, 120)).concat([document.documentElement.scrollWidth])";
        for width in [360, 800, 1280] {
            page.width(width);
            let over = page.js(own);
            if over != false {
                wrong.push(format!("{place} at {width}: {over}"));
            }
            let menus = page.js("document.querySelectorAll('details.menu').length").as_u64().unwrap();
            for menu in 0..menus {
                page.js(&format!("document.querySelectorAll('details.menu').forEach((one, at) => {{ one.open = at === {menu}; }})"));
                let out = page.js("(() => { const box = document.querySelector('details.menu[open] .menu-body').getBoundingClientRect(); return box.right > innerWidth + 1 || box.left < 0 ? Math.round(box.left) + ' to ' + Math.round(box.right) : false; })()");
                if out != false {
                    wrong.push(format!("{place} at {width}: menu {menu} reaches from {out}"));
                }
            }
            page.js("document.querySelectorAll('details.menu').forEach(one => { one.open = false; })");
        }
        let complaints = page.complaints();
        if !complaints.is_empty() && !Gallery::is_missing(place) {
            wrong.push(format!("{place}: {complaints:?}"));
        }
    });
    assert!(wrong.is_empty(), "{} faults:\n{}", wrong.len(), wrong.join("\n"));
}

/// A name of one word stands on one line, where there is room; a plan's task is a card with all that its row has, where there
/// is none.
#[test]
fn words_are_whole_and_a_plan_is_readable_on_a_telephone() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    pages.supervisor("asks", &gated("a publication", "publish it"));
    pages.asked("asks");
    let page = pages.signed_in(&browser);
    let broken = "[...document.querySelectorAll('table.rows td:not(.wide):not(.waits)')].flatMap(cell => {
        const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT); const found = [];
        while (walk.nextNode()) for (const word of walk.currentNode.data.matchAll(/[A-Za-z]{4,36}/g)) {
            const range = document.createRange();
            range.setStart(walk.currentNode, word.index); range.setEnd(walk.currentNode, word.index + word[0].length);
            if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) found.push(word[0]);
        } return found; })";
    for place in ["/", "/runs/asks", "/runs/asks?tab=history", "/runs/asks?tab=history&view=raw", "/system"] {
        page.go_to(&pages.at(place));
        page.width(1400);
        assert_eq!(page.js(broken), json!([]), "{place} at 1400");
    }
    page.go_to(&pages.at("/runs/asks"));
    page.width(390);
    let cells = page
        .js("[...document.querySelectorAll('table.tasks tbody td')].filter(cell => cell.textContent.trim())
            .map(cell => cell.checkVisibility() && cell.getBoundingClientRect().right <= innerWidth)");
    let cells = cells.as_array().unwrap();
    assert!(cells.len() >= 2 && cells.iter().all(|seen| *seen == true), "{cells:?}");
}

/// On a telephone a schedule and an agent are cards with all that their rows have, and whom a run waits for stands above what
/// can be done to it.
#[test]
fn schedules_and_agents_are_whole_on_a_telephone_and_a_wait_stands_first() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    pages.supervisor("done", &gated("a publication", "publish it"));
    pages.supervisor("asks", &gated("another publication", "publish it"));
    let asked = pages.asked("done");
    pages.post("/api/v1/workflows/done/answers", &json!({ "id": asked["id"], "approved": true }));
    pages.ended("done");
    pages.asked("asks");
    pages.bosun(&["schedule", "create", "sync", "kitchen-sink", "--every", "1h", "--input", r#"{"steps":[]}"#]);
    let page = pages.signed_in(&browser);
    page.width(390);
    for place in ["/schedules", "/agents"] {
        page.go_to(&pages.at(place));
        let cells =
            page.js("[...document.querySelectorAll('table.rows tbody td')].filter(cell => cell.textContent.trim())
            .map(cell => cell.checkVisibility() && cell.getBoundingClientRect().right <= innerWidth
                && getComputedStyle(cell, '::before').content.length > 0)");
        let cells = cells.as_array().unwrap();
        assert!(cells.len() >= 5 && cells.iter().all(|seen| *seen == true), "{place}: {cells:?}");
        let named = page
            .js("[...document.querySelectorAll('table.cards td[data-th]')].filter(cell => cell.textContent.trim())
            .every(cell => getComputedStyle(cell, '::before').content.includes(cell.dataset.th))");
        assert_eq!(named, true, "{place}: each figure says what it is");
    }
    page.go_to(&pages.at("/runs/asks"));
    let tops = page.js(
        "['.waits-for', '.actions', 'dl.facts'].map(one => document.querySelector(one).getBoundingClientRect().top)",
    );
    let tops: Vec<f64> = tops.as_array().unwrap().iter().filter_map(serde_json::Value::as_f64).collect();
    assert!(tops[0] < tops[1] && tops[1] < tops[2], "{tops:?}");
}

#[test]
fn axe_finds_nothing_in_light_or_dark() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let Some(axe) = Axe::available_or_explain(workspace()) else { return };
    let gallery = Gallery::open();
    let mut found = std::collections::BTreeMap::<String, Vec<String>>::new();
    gallery.walk(&browser, |page, place| {
        // What is folded is read by somebody, too.
        page.js("document.querySelectorAll('details:not(.menu)').forEach(one => { one.open = true; })");
        for (scheme, violations) in [("light", axe.violations(page)), ("dark", in_dark(page, &axe))] {
            for violation in violations {
                found.entry(violation).or_default().push(format!("{place} ({scheme})"));
            }
        }
    });
    let lines: Vec<String> = found.iter().map(|(what, places)| format!("{what}\n    {}", places.join(", "))).collect();
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), lines.join("\n"));
}

fn in_dark(page: &Page, axe: &Axe) -> Vec<String> {
    page.prefers("dark");
    let found = axe.violations_of_contrast(page);
    page.prefers("light");
    found
}

/// How bright the page is behind everything, 0 to 255.
fn brightness(page: &Page) -> u64 {
    let colour = page.js("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)");
    colour.as_array().unwrap().iter().filter_map(serde_json::Value::as_u64).sum::<u64>() / 3
}

#[test]
fn dark_is_dark_and_light_is_light_as_the_system_or_the_user_says() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    let page = pages.signed_in(&browser);
    page.prefers("dark");
    assert!(brightness(&page) < 60, "{}", brightness(&page));
    page.prefers("light");
    assert!(brightness(&page) > 200, "{}", brightness(&page));
    page.press("t");
    assert!(brightness(&page) < 60, "by a key");
    page.go_to(&pages.at("/inbox"));
    assert!(brightness(&page) < 60, "it is kept");
    page.click(".theme");
    assert!(brightness(&page) > 200, "by the mouse");
    page.prefers("dark");
    page.reload();
    assert!(brightness(&page) > 200, "what somebody chose comes before what the system says");
    // Without a script it is as the system says.
    page.scripts(false);
    page.reload();
    assert!(brightness(&page) < 60);
}

fn focus(page: &Page) -> String {
    page.js("(document.activeElement.id || document.activeElement.className || document.activeElement.tagName) + ' ' + (document.activeElement.getAttribute('href') ?? '')").as_str().unwrap().to_owned()
}

#[test]
fn everything_is_reached_by_keys_alone() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    for id in ["first", "second", "third"] {
        pages.program(id, json!([{ "wait_signal": { "name": "never" } }]));
    }
    let page = pages.signed_in(&browser);
    page.until_says("live");
    page.press("Tab");
    assert_eq!(focus(&page), "skip #main");
    page.until("it is seen", "document.activeElement.getBoundingClientRect().x >= 0");
    page.press("Enter");
    page.until("the content has the focus", "document.activeElement.id === 'main'");
    let mut tabs = 0;
    while !focus(&page).contains("/runs/") {
        page.press("Tab");
        tabs += 1;
        assert!(tabs < 20, "{}", focus(&page));
        let outline = page.js("document.activeElement.tagName === 'BODY' || getComputedStyle(document.activeElement).outlineStyle !== 'none'");
        assert_eq!(outline, true, "{}: it is to be seen where one is", focus(&page));
    }
    assert!(focus(&page).contains("/runs/third"), "{}", focus(&page));
    page.js("window.beforeLeaving = true");
    page.press("Enter");
    page.until(
        "the run opens",
        "window.beforeLeaving === undefined && document.querySelector('h1')?.innerText === 'third'",
    );

    // Two keys are a place.
    page.press("g");
    page.press("r");
    page.until("the list opens", "location.pathname === '/' && document.readyState === 'complete'");
    page.until_says("live");
    for (key, row) in [("j", "third"), ("j", "second"), ("j", "first"), ("j", "first"), ("k", "second")] {
        page.press(key);
        assert!(focus(&page).contains(&format!("/runs/{row}")), "{key}: {}", focus(&page));
    }
    // A page that renews itself takes nobody's place away.
    pages.program("fourth", json!([{ "wait_signal": { "name": "never" } }]));
    page.until("the fourth appears", "document.querySelectorAll('#rows tbody tr').length === 4");
    assert!(focus(&page).contains("/runs/second"), "{}", focus(&page));
    page.press("j");
    assert!(focus(&page).contains("/runs/first"), "{}", focus(&page));

    // In a field keys are letters.
    page.press("/");
    assert_eq!(focus(&page).trim(), "query");
    for key in ["j", "?", "t", "g", "i"] {
        page.press(key);
    }
    assert_eq!(page.js("document.querySelector('#query').value"), "j?tgi");
    page.js("document.activeElement.blur()");
    page.press("?");
    page.until("the keys are told", "document.querySelector('#keys').open");
    page.press("Escape");
    page.until("and go away", "!document.querySelector('#keys').open && document.activeElement === document.body");
    page.press("g");
    page.press("i");
    page.until("the inbox opens", "location.pathname === '/inbox'");
    assert_eq!(page.complaints(), Vec::<String>::new());
}
