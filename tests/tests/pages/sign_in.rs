//! Signing in and out, with a browser.

use bosun_tests::harness::browser::Browser;

use super::{Pages, gated};

#[test]
fn the_link_of_bosun_ui_signs_in_once() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    let stranger = browser.page();
    stranger.go_to(&pages.at("/inbox?done=a%26b"));
    assert!(stranger.address().starts_with("/login?next="), "{}", stranger.shows());

    let link = pages.link();
    let page = browser.page();
    page.go_to(&link);
    assert_eq!(page.address(), "/");
    assert_eq!(page.text("h1"), "Runs");
    assert!(!page.shows().contains("code="), "the code is not in the address any more");
    let cookies = page.cookies();
    assert_eq!(cookies.len(), 1, "{cookies:?}");
    let cookie = &cookies[0];
    let name = format!("bosun_session_{}", pages.port());
    assert_eq!(
        (&cookie["name"], &cookie["httpOnly"], &cookie["sameSite"]),
        (&name.into(), &true.into(), &"Lax".into())
    );
    assert!(!cookie["value"].as_str().unwrap().contains(&pages.http.endpoint.token));

    // A second use opens nothing, for nobody.
    let second = browser.page();
    second.go_to(&link);
    second.until_says("This link has been used");
    assert_eq!(second.text("h1"), "Sign in");
    assert!(second.cookies().is_empty());

    // Where one wanted to go is where one comes, by a token, too.
    stranger.fill("#token", "not one");
    stranger.click_to_leave("main button[type=submit]");
    stranger.until_says("This token opens nothing here.");
    stranger.fill("#token", &pages.token("ann", "viewer"));
    stranger.click_to_leave("main button[type=submit]");
    assert_eq!(stranger.address(), "/inbox?done=a%26b");
    assert!(stranger.text(".who").contains("ann · viewer"));

    // Signing out ends it, and the way back shows nothing.
    page.until_says("live");
    page.click_to_leave(".who button[type=submit]");
    assert_eq!(page.address(), "/login");
    page.js("history.back()");
    page.until_says("Sign in");
    page.go_to(&pages.at("/"));
    assert_eq!(page.text("h1"), "Sign in");
    assert!(page.complaints().is_empty() && stranger.complaints().iter().all(|one| one.contains("403")));
}

#[test]
fn a_link_leads_to_the_run_that_was_named() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    pages.supervisor("a/b ?#", &gated("anything", "do it"));
    let said = pages.bosun(&["ui", "a/b ?#", "--no-browser"]);
    let page = browser.page();
    page.go_to(said.lines().find(|line| line.contains("/login?")).unwrap());
    assert_eq!((page.address().as_str(), page.text("h1").as_str()), ("/runs/a%2Fb%20%3F%23", "a/b ?#"));
}

/// A browser takes tabs and turned slashes out of an address before it follows it.
#[test]
fn signing_in_leads_to_no_other_host() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    for next in ["/%09/localhost:1", "//localhost:1", "/%5Clocalhost:1", "http://localhost:1"] {
        let link = pages.link();
        let page = browser.page();
        page.go_to(&format!("{}&next={next}", link.split_once("&next=").unwrap().0));
        assert_eq!(page.js("location.href"), pages.at("/"), "{next}");
    }
}
