//! Pages that move by themselves, and stay what they are for whoever works on them meanwhile.

use std::time::Duration;

use bosun_tests::harness::browser::Browser;
use bosun_tests::harness::say;
use bosun_tests::harness::workload::SIGNAL;
use serde_json::json;

use super::{Pages, gated};

/// Waits, and ends with what it got.
fn waits_for_a_signal() -> serde_json::Value {
    json!([{ "wait_signal": { "name": SIGNAL, "as": "got" } }, { "return": "$got" }])
}

#[test]
fn a_run_moves_on_the_list_and_on_its_page_without_a_reload() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    let list = pages.signed_in(&browser);
    list.until_says("live");
    list.js("window.loadedOnce = true");
    assert!(list.shows().contains("There are no runs yet"));
    pages.program("moves", waits_for_a_signal());
    list.until("the run appears", "document.querySelector('#rows tbody tr')?.innerText.includes('Running')");
    let run = list.beside();
    run.go_to(&pages.at("/runs/moves"));
    run.until_says("live");
    run.js("window.loadedOnce = true");
    // Somebody writes a signal, and looks at a fold, while the run goes on.
    run.js("[...document.querySelectorAll('details.menu')].find(one => one.innerText.includes('Signal')).open = true");
    run.fill("#signal-name", "half a na");
    pages.http.signal("moves", "unheard", &json!(1), "1").acknowledged().unwrap();
    run.until_says("signal unheard");
    assert_eq!(run.js("document.querySelector('#signal-name').value"), "half a na");
    assert_eq!(run.js("document.activeElement.id"), "signal-name", "whoever writes goes on writing");
    assert_eq!(run.js("document.querySelector('#signal-name').closest('details').open"), true);
    run.press("x");
    assert_eq!(run.js("document.querySelector('#signal-name').value"), "half a nax");
    pages.http.signal("moves", SIGNAL, &json!("the end"), "2").acknowledged().unwrap();
    list.until("the row has moved", "document.querySelector('#rows tbody tr').innerText.includes('Completed')");
    run.until_says("Completed");
    run.until_says("the end");
    for page in [&list, &run] {
        assert_eq!(page.js("window.loadedOnce"), true, "it was loaded once");
        assert_eq!(page.complaints(), Vec::<String>::new());
    }
}

/// kill -9, and the same port again: the page says so, and goes on with the session that it had.
#[test]
fn a_page_outlives_its_worker() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let mut pages = Pages::serve();
    pages.program("moves", waits_for_a_signal());
    let page = pages.signed_in(&browser);
    page.until_says("live");
    page.js("window.loadedOnce = true");
    pages.kill();
    page.until("the page says that nobody answers", "document.querySelector('#live-state').dataset.state === 'off'");
    // Its stream may find that out, or what it was just asking for.
    let told = page.text("#live-state");
    assert!(["reconnecting", "the worker does not answer"].contains(&told.as_str()), "{told}");
    pages.start_again();
    page.until("it is live again", "document.querySelector('#live-state').dataset.state === 'on'");
    pages.program("second", waits_for_a_signal());
    page.until("what is new appears", "document.querySelector('#rows').innerText.includes('second')");
    assert_eq!(page.js("window.loadedOnce"), true, "it was loaded once");
    page.go_to(&pages.at("/runs/moves"));
    assert_eq!(page.text("h1"), "moves", "still signed in");
}

/// A page whose session has ended says so, and asks for no page again and again.
#[test]
fn a_page_of_a_token_that_was_revoked_says_so() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let mut pages = Pages::serve();
    pages.program("moves", waits_for_a_signal());
    let page = pages.signed_in_with(&browser, &pages.token("ann", "viewer"));
    page.until_says("live");
    pages.bosun(&["token", "revoke", "ann"]);
    pages.http.signal("moves", SIGNAL, &json!(1), "1").acknowledged().unwrap();
    page.until_says("signed out");
    assert!(page.shows().contains("Running"), "it shows no more than it had");
    // Also where the stream is what finds it out.
    let page = pages.signed_in_with(&browser, &pages.token("bob", "viewer"));
    page.until_says("live");
    pages.bosun(&["token", "revoke", "bob"]);
    pages.kill();
    pages.start_again();
    page.until_says("signed out");
}

#[test]
fn an_inbox_in_which_somebody_writes_keeps_what_they_wrote() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    pages.supervisor("first", &gated("one", "publish one"));
    pages.asked("first");
    let page = pages.signed_in(&browser);
    page.go_to(&pages.at("/inbox"));
    page.until_says("live");
    page.fill("article.card textarea[name=comment]", "I think");
    pages.supervisor("second", &gated("two", "publish two"));
    page.until("the second card appears", "document.querySelectorAll('article.card').length === 2");
    let kept = "[...document.querySelectorAll('article.card')].find(one => one.innerText.includes('publish one')).querySelector('textarea').value";
    assert_eq!(page.js(kept), "I think");
    // The first is answered elsewhere: what was written about it stays nowhere where it would answer the second.
    let asked = pages.asked("first");
    pages.post("/api/v1/workflows/first/answers", &json!({ "id": asked["id"], "approved": true }));
    page.until("the first card goes or says that it is over", "![...document.querySelectorAll('article.card')].some(one => one.innerText.includes('publish two') && one.querySelector('textarea').value)");
    page.js("document.activeElement.blur()");
    let other = "[...document.querySelectorAll('article.card')].find(one => one.innerText.includes('publish two')).querySelector('textarea').value";
    assert_eq!(page.js(other), "");
    let asked = pages.asked("second");
    let form = "[...document.querySelectorAll('article.card')].find(one => one.innerText.includes('publish two')).querySelector('input[name=id]').value";
    assert_eq!(page.js(form), asked["id"], "a card answers what it shows");
}

/// A browser opens six connections to a host: tabs that nobody looks at must not hold all of them.
#[test]
fn many_tabs_leave_room_for_the_one_that_is_looked_at() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    pages.program("moves", waits_for_a_signal());
    let first = pages.signed_in(&browser);
    let behind: Vec<_> = (0..8).map(|_| first.beside()).collect();
    for page in &behind {
        page.looked_at(false);
        page.go_to(&pages.at("/runs/moves"));
    }
    first.go_to(&pages.at("/inbox"));
    first.until_says("live");
    first.go_to(&pages.at("/runs/moves"));
    first.until_says("live");
    pages.http.signal("moves", SIGNAL, &json!("the end"), "1").acknowledged().unwrap();
    first.until_says("the end");
    // Whoever comes back to a tab sees what has happened.
    behind[0].looked_at(true);
    behind[0].until_says("the end");
}

/// The longest time that the page did nothing for its user, in milliseconds, over some seconds.
const LONGEST_STALL: &str = "new Promise(done => {
    let last = performance.now(), most = 0; const ends = last + 4000;
    const look = setInterval(() => { const now = performance.now(); most = Math.max(most, now - last); last = now;
        if (now > ends) { clearInterval(look); done(Math.round(most)); } }, 10); })";

#[test]
fn a_hundred_runs_at_work_leave_a_page_its_user() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    let works = json!([{ "loop": { "times": 200, "steps": [{ "timer": "300ms" }] } }]);
    for n in 0..100 {
        pages.program(&format!("busy-{n:03}"), works.clone());
    }
    let page = pages.signed_in(&browser);
    page.until_says("live");
    page.until("a page of rows", "document.querySelectorAll('#rows tbody tr').length === 50");
    let stall = page.js(LONGEST_STALL).as_u64().unwrap();
    say(&format!("pages: 100 live runs: the list was never deaf for longer than {stall} ms"));
    assert!(stall < 3_000, "{stall} ms");
    page.press("j");
    page.press("j");
    page.until(
        "the second row has the focus",
        "document.querySelectorAll('#rows tbody tr')[1].contains(document.activeElement)",
    );
    page.click_to_leave("nav.pages a[rel=next]");
    assert_eq!(page.js("document.querySelectorAll('#rows tbody tr').length"), 50);
    page.until_within(Duration::from_secs(5), "older pages stand still", "!document.body.hasAttribute('data-live')");
    assert_eq!(page.complaints(), Vec::<String>::new());
}
