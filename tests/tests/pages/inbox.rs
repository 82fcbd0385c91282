//! What people are asked, answered on the page of the inbox: with a script, without one, and what the history says of it.

use bosun_tests::harness::browser::{Browser, Page};
use serde_json::{Value, json};

use super::{Pages, gated};

const PRIMARY: &str = "article.card button[value=approve]";

/// The input of the signal that answered.
fn answer(pages: &Pages, id: &str) -> Value {
    let events = pages.events(id);
    let signals = events.iter().filter(|event| event["event_type"] == "WorkflowExecutionSignaled");
    let answer = signals.map(|event| event["attributes"]["input"].clone()).next_back();
    answer.unwrap_or_else(|| panic!("nobody has answered {id}: {events:?}"))
}

/// The inbox, as soon as it shows what this run asks.
fn inbox(pages: &Pages, page: &Page, id: &str) {
    pages.asked(id);
    page.go_to(&pages.at("/inbox"));
    page.until_says(id);
}

#[test]
fn an_approval_is_given_by_the_name_of_the_token() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    let page = pages.signed_in_with(&browser, &pages.token("ann", "approver"));
    // The inbox is open before anybody asks anything, and comes to show it.
    page.go_to(&pages.at("/inbox"));
    page.until_says("Nobody is asked anything.");
    pages.supervisor("story", &gated("a publication", "publish it"));
    page.until("a card appears", "document.querySelector('article.card')");
    for said in ["Approval", "story", "publish it"] {
        assert!(page.text("article.card").contains(said), "{said}: {}", page.shows());
    }
    page.fill("article.card textarea[name=comment]", "looks right");
    page.click_to_leave(PRIMARY);
    page.until_says("Answered ");
    let end = pages.ended("story");
    assert_eq!((&end["status"], &end["result"]["final_result"]), (&json!("Completed"), &json!("done")), "{end}");
    let said = answer(&pages, "story");
    assert_eq!(
        (&said["approver"], &said["comment"], &said["approved"]),
        (&json!("ann"), &json!("looks right"), &json!(true))
    );
    page.go_to(&pages.at("/runs/story"));
    page.until_says("Completed");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn a_rejection_with_its_reason_skips_what_was_asked() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    pages.supervisor("story", &gated("a publication", "publish it"));
    let page = pages.signed_in(&browser);
    inbox(&pages, &page, "story");
    // Enter in a field is no answer: whoever writes has not decided yet.
    page.fill("article.card input[name=modified_action]", "publish a draft");
    page.press("Enter");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!pages.events("story").iter().any(|event| event["event_type"] == "WorkflowExecutionSignaled"));
    page.fill("article.card input[name=modified_action]", "");
    page.fill("article.card textarea[name=comment]", "not today");
    page.click_to_leave("article.card button[value=reject]");
    let end = pages.ended("story");
    let said = answer(&pages, "story");
    assert_eq!(
        (&said["approver"], &said["comment"], &said["approved"]),
        (&json!("owner"), &json!("not today"), &json!(false))
    );
    page.go_to(&pages.at("/runs/story"));
    page.until_says("not today");
    assert_eq!(
        (&end["status"], &end["failure"]["details"]["code"]),
        (&json!("Failed"), &json!("task_rejected")),
        "{end}"
    );
}

#[test]
fn an_action_is_edited_and_then_approved() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    pages.supervisor("story", &gated("a publication", "publish it"));
    let page = pages.signed_in(&browser);
    inbox(&pages, &page, "story");
    page.fill("article.card input[name=modified_action]", "publish it on Monday");
    page.click_to_leave(PRIMARY);
    pages.ended("story");
    let said = answer(&pages, "story");
    assert_eq!((&said["modified_action"], &said["approved"]), (&json!("publish it on Monday"), &json!(true)), "{said}");
}

#[test]
fn feedback_needs_words_and_sends_the_work_back() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    pages.supervisor("story", &gated("a publication", "publish it"));
    let page = pages.signed_in(&browser);
    inbox(&pages, &page, "story");
    page.click_to_leave("article.card button[value=feedback]");
    page.until_says("say what shall be better");
    inbox(&pages, &page, "story");
    page.fill("article.card textarea[name=comment]", "shorter");
    page.click_to_leave("article.card button[value=feedback]");
    page.until_says("Answered ");
    assert_eq!(answer(&pages, "story")["feedback"], json!("shorter"));
}

#[test]
fn the_same_approval_goes_by_forms_alone() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    let page = browser.page();
    page.scripts(false);
    page.go_to(&pages.at("/inbox"));
    page.fill("#token", &pages.token("bob", "approver"));
    page.click_to_leave("main button[type=submit]");
    assert_eq!(page.address(), "/inbox");
    assert_eq!(page.text("#live-state"), "", "no script runs");
    pages.supervisor("story", &gated("a publication", "publish it"));
    inbox(&pages, &page, "story");
    page.click_to_leave(PRIMARY);
    pages.ended("story");
    let said = answer(&pages, "story");
    assert_eq!((&said["approver"], &said["approved"]), (&json!("bob"), &json!(true)), "{said}");
    // Everything else is there without a script, too.
    page.go_to(&pages.at("/runs/story?tab=moment"));
    page.click_to_leave(".scrubber a[rel=prev]");
    assert!(page.address().contains("at="), "{}", page.address());
}

#[test]
fn a_question_is_answered_and_decides_what_runs_next() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    let spec = json!({
        "kind": "supervisor", "preset": "shannon-dag", "objective": "ship it", "dependencies": { "on_unmet": "skip" },
        "agents": [{ "name": "guide" }],
        "script": [
            { "on": "plan", "say": { "tasks": [
                { "id": "ask", "goal": "By train or by ferry?", "capability": "human" },
                { "id": "train", "goal": "train", "agent": "guide", "deps": [{ "on": "ask", "when": { "path": "by", "equals": "train" } }] },
                { "id": "ferry", "goal": "ferry", "agent": "guide", "deps": [{ "on": "ask", "when": { "path": "by", "equals": "ferry" } }] } ] } },
            { "on": "execute_worker", "say": "{{task}} is booked" }, { "on": "synthesize", "say": "done" } ],
    });
    pages.supervisor("trip", &spec);
    let page = pages.signed_in(&browser);
    inbox(&pages, &page, "trip");
    page.until_says("By train or by ferry?");
    page.fill("article.card textarea[name=answer]", r#"{"by": "ferry"}"#);
    page.click_to_leave("article.card button[value=answer]");
    page.until_says("Answered ");
    let end = pages.ended("trip");
    assert_eq!(end["status"], "Completed", "{end}");
    page.go_to(&pages.at("/runs/trip"));
    page.until_says("ferry is booked");
    assert!(!page.shows().contains("train is booked"), "{}", page.shows());
}

#[test]
fn a_plan_is_sent_back_and_its_second_version_shows_what_is_different() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    let task = |id: &str, goal: &str| json!({ "id": id, "goal": goal, "agent": "writer" });
    let spec = json!({
        "kind": "supervisor", "preset": "flow-supervisor", "objective": "Write the notes",
        "planning": { "approval": { "required": true } }, "agents": [{ "name": "writer" }],
        "script": [
            { "on": "plan", "contains": "thank those who helped", "say": { "tasks": [task("collect", "Collect all of it"), task("thanks", "Thank the helpers")] } },
            { "on": "plan", "say": { "tasks": [task("collect", "Collect it"), task("old", "Praise ourselves")] } },
            { "on": "execute_worker", "say": "done" },
            { "on": "review", "say": { "assessments": [], "needsReplanning": false, "overallAssessment": "Good." } },
            { "on": "synthesize", "say": { "summary": "The notes." } } ],
    });
    pages.supervisor("notes", &spec);
    let page = pages.signed_in_with(&browser, &pages.token("ann", "approver"));
    page.go_to(&pages.at("/inbox"));
    page.until_says("Praise ourselves");
    assert!(page.text("article.card").contains("Version 1"), "{}", page.shows());
    page.fill("article.card textarea[name=comment]", "thank those who helped");
    page.click_to_leave("article.card button[value=plan_feedback]");
    page.until_says("Version 2");
    page.until_says("Thank the helpers");
    let card = page.text("article.card");
    for said in ["new", "changed", "gone", "Praise ourselves", "thank those who helped"] {
        assert!(card.contains(said), "{said}: {card}");
    }
    let class_of = |text: &str| {
        let row = format!(
            "[...document.querySelectorAll('article.card tr, article.card li')].find(row => row.innerText.includes('{text}'))?.className"
        );
        page.js(&row)
    };
    assert_eq!((class_of("Thank the helpers"), class_of("Praise ourselves")), (json!("added"), json!("removed")));
    page.click_to_leave("article.card button[value=approve_plan]");
    let end = pages.ended("notes");
    assert_eq!(end["status"], "Completed", "{end}");
    let history = pages.events("notes");
    assert!(history.iter().any(|event| event.to_string().contains(r#""approver":"ann""#)), "{history:?}");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

/// Somebody else answers while the card is open: the second answer is refused, and nothing is recorded of it.
#[test]
fn what_was_answered_meanwhile_is_not_answered_again() {
    let Some(browser) = Browser::available_or_explain() else { return };
    let pages = Pages::serve();
    pages.supervisor("story", &gated("a publication", "publish it"));
    let page = pages.signed_in(&browser);
    // Without a script it stays as it was.
    page.scripts(false);
    inbox(&pages, &page, "story");
    let asked = pages.asked("story");
    pages.post("/api/v1/workflows/story/answers", &json!({ "id": asked["id"], "approved": true }));
    pages.ended("story");
    let before = pages.events("story").len();
    page.click_to_leave("article.card button[value=reject]");
    page.until_says("does not wait any more");
    assert_eq!(pages.events("story").len(), before);
}
