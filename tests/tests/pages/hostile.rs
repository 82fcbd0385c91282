//! What runs say is text on every page, whatever it is: markup, scripts and half of both never become part of a page.

use bosun_tests::harness::browser::{Browser, Page};
use bosun_tests::harness::http::escape;
use serde_json::{Value, json};

use super::Pages;

const MARKUP: &str =
    r#"<script>window.pwned=1</script><img src=x onerror="window.pwned=2">'"></textarea></pre></title><b id=bold>"#;

/// What is wrong with a page that holds such texts.
fn broken_out(page: &Page) -> Option<Value> {
    // Whatever was set off has had its time.
    let found = page.js(
        "new Promise(done => setTimeout(() => done([
            window.pwned, document.querySelectorAll('img, iframe, object, embed, b, base, meta[http-equiv]').length,
            document.querySelectorAll('script').length - document.querySelectorAll('script[src=\"/assets/bosun.js\"]').length,
            [...document.querySelectorAll('*')].flatMap(one => [...one.attributes]).filter(one => one.name.startsWith('on') || ['href', 'src', 'action', 'formaction'].includes(one.name) && !/^[\\/#]/.test(one.value)).length,
        ]), 20))",
    );
    (found != json!([null, 0, 0, 0])).then_some(found)
}

/// A spec in which every text is hostile.
fn spec(preset: &str) -> Value {
    json!({
        "kind": "supervisor", "preset": preset, "name": "n", "objective": MARKUP,
        "planner": { "script": [{ "on": "plan", "say": { "subtasks": [
            { "id": "tell", "description": MARKUP, "action": format!("publish it {MARKUP}") }] } }] },
        "agents": [{ "name": "worker", "description": MARKUP }],
        "script": [
            { "on": "execute_worker", "say": { "result": MARKUP, "reason": MARKUP } },
            { "on": "synthesize", "say": MARKUP } ],
    })
}

#[test]
fn markup_of_runs_is_text_on_every_page() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    let id = format!("id {MARKUP}");
    let steps = json!([
        { "memo": { "note": MARKUP } },
        { "activity": { "type": "echo", "input": { MARKUP: MARKUP }, "summary": MARKUP, "as": "said" } },
        { "side_effect": { "value": MARKUP, "as": "kept" } },
        { "wait_signal": { "name": "go", "as": "got" } },
        { "try": { "steps": [{ "activity": { "type": "process", "input": { "argv": ["sh", "-c", format!("echo '{}' >&2; exit 3", MARKUP.replace('\'', ""))] }, "retry": { "maximum_attempts": 1 } } }], "catch": [], "as": "why" } },
        { "child": { "id": format!("child {MARKUP}"), "input": { "steps": [{ "return": MARKUP }] }, "as": "kid" } },
        { "wait_signal": { "name": "end" } },
        { "fail": { "type": "Broken", "message": MARKUP } }
    ]);
    pages.program(&id, steps);
    pages.supervisor("asks", &spec("shannon-supervisor"));
    let schedule = json!({ "spec": { "intervals": [{ "every": "1s" }] },
        "action": { "workflow_type": "kitchen-sink", "workflow_id": MARKUP, "input": { "steps": [{ "return": MARKUP }] } },
        "state": { "note": MARKUP } });
    let of_it = json!({ "workflow_type": "bosun.schedule", "workflow_id": format!("schedule:{MARKUP}"),
        "input": { "schedule_id": MARKUP, "schedule": schedule } });
    pages.post("/api/v1/workflows", &of_it);
    let page = pages.signed_in(&browser);
    let mut wrong = Vec::new();
    let mut look = |what: &str, page: &Page| {
        if let Some(found) = broken_out(page) {
            wrong.push(format!("{what}: {found} on {}", page.address()));
        }
    };
    // Live: what is put into a page that stands is text as well.
    page.go_to(&pages.at(&format!("/runs/{}", escape(&id))));
    page.until_says("live");
    let path = format!("/api/v1/workflows/{}/signals", escape(&id));
    pages.post(&format!("{path}/go"), &json!({ "markup": MARKUP }));
    page.until_says("signal go");
    page.until_says("child ");
    look("a run that moves", &page);
    pages.asked("asks");
    page.go_to(&pages.at("/inbox"));
    page.until_says("publish it <script>");
    look("the inbox", &page);
    page.fill("article.card textarea[name=comment]", MARKUP);
    page.fill("article.card input[name=modified_action]", MARKUP);
    page.click_to_leave("article.card button[value=approve]");
    page.until_says("Answered ");
    pages.ended("asks");
    pages.post(&format!("{path}/end"), &json!(null));
    pages.ended(&id);

    let hostile = escape(MARKUP);
    let own = format!("/runs/{}", escape(&id));
    let mut places: Vec<String> = ["/", "/agents", "/schedules", "/system", "/inbox"].map(str::to_owned).into();
    for run in [&own, "/runs/asks", &format!("/runs/{}", escape(&format!("child {MARKUP}")))] {
        for tab in [
            "",
            "?tab=history",
            "?tab=history&view=feed",
            "?tab=history&view=raw",
            "?tab=moment",
            "?tab=moment&at=3",
            "?tab=replay",
            "?tab=fork",
        ] {
            places.push(format!("{run}{tab}"));
        }
        places.push(format!("{run}/fork?kind={hostile}&which={hostile}&value={hostile}&at={hostile}&id={hostile}"));
    }
    places.push(format!("/runs/{}", escape(&format!("schedule:{MARKUP}"))));
    places.extend([
        format!("/?query={hostile}"),
        format!("/inbox?done={hostile}"),
        format!("/inbox?run_id={hostile}"),
        format!("/agents?run_id={hostile}"),
        format!("/runs/{hostile}"),
        format!("/runs/asks?run_id={hostile}"),
        format!("/runs/asks?tab={hostile}"),
        format!("/runs/asks?namespace={hostile}"),
        format!("/login?next={hostile}&code={hostile}"),
        "/login?next=javascript:alert(1)".to_owned(),
        format!("/{hostile}"),
    ]);
    for place in &places {
        page.go_to(&pages.at(place));
        look(place, &page);
    }
    page.go_to(&pages.at(&own));
    assert_eq!(page.text("h1"), id, "the text is all there");
    page.until_says("Broken");
    // Forms give back what was written into them.
    page.go_to(&pages.at("/runs/asks?tab=fork"));
    page.fill("#fork-which", MARKUP);
    page.fill("#fork-value", MARKUP);
    page.click_to_leave("button[value=look]");
    look("a fork", &page);
    assert_eq!(page.js("document.querySelector('#fork-which').value"), MARKUP);
    page.go_to(&pages.at("/start"));
    page.fill("#type", MARKUP);
    page.fill("#input", MARKUP);
    page.click_to_leave("main form button");
    look("a start", &page);
    assert!(wrong.is_empty(), "{} ways out of a text:\n{}", wrong.len(), wrong.join("\n"));

    // A run that was kept as a file holds no script either, and asks for nothing.
    let address = pages.at(&format!("{own}/export?as=html"));
    page.go_to(&pages.at("/"));
    let file = page.js(&format!("fetch({}).then(answer => answer.text())", Value::from(address)));
    let file = file.as_str().unwrap();
    assert!(file.contains("default-src 'none'") && file.contains("&lt;script&gt;"), "{file}");
    assert!(!file.contains("<script") && !file.contains("<img") && !file.contains("</pre></title><b"), "{file}");
    let shown = browser.page();
    let path = pages.dir.path().join("run.html");
    std::fs::write(&path, file).unwrap();
    shown.go_to(&format!("file://{}", path.display()));
    assert_eq!(
        shown.js("[window.pwned ?? null, document.querySelectorAll('script, img, b, link').length]"),
        json!([null, 0])
    );
    assert_eq!(shown.text("h1"), id);
    assert_eq!(shown.complaints(), Vec::<String>::new());
}

/// The rules of the page hold where its own care fails: a script that stands in it does not run, and no other site frames it.
#[test]
fn the_browser_runs_no_script_but_the_one_of_the_program() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    let page = pages.signed_in(&browser);
    page.js("(() => { const one = document.createElement('script'); one.textContent = 'window.pwned = 1'; document.body.append(one); })()");
    page.js("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.pwned=2\"><a id=bad href=\"javascript:window.pwned=3\">x</a>')");
    page.js("document.querySelector('#bad').click()");
    page.until("they were refused", "document.querySelector('#bad')");
    assert_eq!(page.js("new Promise(done => setTimeout(() => done(window.pwned ?? 'no'), 100))"), "no");
    assert!(page.complaints().iter().any(|one| one.contains("Content Security Policy")));
    // A page of a file frames it in vain.
    let path = pages.dir.path().join("frame.html");
    std::fs::write(&path, format!("<iframe src=\"{}\"></iframe>", pages.at("/"))).unwrap();
    let framer = page.beside();
    framer.go_to(&format!("file://{}", path.display()));
    let seen = framer.js("(() => { try { return document.querySelector('iframe').contentDocument === null; } catch { return true; } })()");
    assert_eq!(seen, true);
    assert!(
        framer.complaints().iter().any(|one| one.contains("frame-ancestors")
            || one.contains("X-Frame-Options")
            || one.contains("403")
            || one.contains("refused")),
        "{:?}",
        framer.complaints()
    );
}

/// What would turn a line round, or hide in it, is shown as on the command line; in a file that is kept as well.
#[test]
fn what_misleads_the_eye_is_shown_as_replaced() {
    let pages = Pages::serve();
    let odd = "pay \u{202e}evil\u{2066} to\u{200b} \u{7f}";
    let shown = "pay \u{fffd}evil\u{fffd} to\u{fffd} \u{fffd}";
    let misleads =
        |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{7f}');
    pages.program(
        "odd",
        json!([
            { "memo": { "note": odd } },
            { "activity": { "type": "echo", "input": { odd: odd }, "summary": odd } },
            { "fail": { "type": "Broken", "message": odd } },
        ]),
    );
    pages.ended("odd");
    let token = pages.http.endpoint.token.clone();
    let mut door = super::door::Door { pages, cookie: String::new(), seal: String::new() };
    (door.cookie, door.seal) = door.signed_in(&token);
    for place in
        ["/", "/runs/odd", "/runs/odd?tab=history&view=raw", "/runs/odd?tab=moment", "/runs/odd/export?as=html"]
    {
        let page = door.get(place, &[door.cookie_line()]);
        assert_eq!(page.status, 200, "{place}");
        assert!(!page.body.contains(misleads), "{place}: {}", page.body);
        assert!(place == "/" || page.body.contains(shown), "{place}: {}", page.body);
    }
    let kept = door.pages.bosun(&["export", "odd", "--as", "html"]);
    assert!(!kept.contains(misleads) && kept.contains(shown), "{kept}");
}
