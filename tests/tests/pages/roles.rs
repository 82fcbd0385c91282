//! What a token may do on pages: a viewer looks, an approver answers, an operator steers; and a namespace that one may not see
//! is none.

use serde_json::json;

use super::door::{Door, RUN};

/// What changes something, with the least role that may do it. The last of them end the run.
const ACTS: [(&str, &str, usize); 12] = [
    ("/runs/story/act", "verb=pause", OPERATOR),
    ("/runs/story/act", "verb=resume", OPERATOR),
    ("/runs/story/act", "verb=signal&name=any&input=1", OPERATOR),
    ("/runs/story/act", "verb=signal&name=approval_response_v1&input=%7B%22id%22%3A%22nobody%22%7D", APPROVER),
    ("/runs/story/act", "verb=signal&name=pause_v1&input=%7B%7D", OPERATOR),
    ("/runs/story/act", "verb=signal&name=resume_v1&input=%7B%7D", OPERATOR),
    (
        "/runs/story/act",
        "verb=update&name=report_incident&input=%7B%22severity%22%3A%22minor%22%7D&back=schedules",
        OPERATOR,
    ),
    ("/start", "type=kitchen-sink&input=%7B%22steps%22%3A%5B%5D%7D", OPERATOR),
    ("/runs/story/fork", "do=fork&kind=none", OPERATOR),
    ("/runs/story/answer", "ANSWER", APPROVER),
    ("/runs/other/act", "verb=cancel&reason=enough", OPERATOR),
    ("/runs/third/act", "verb=terminate&reason=enough", OPERATOR),
];
const ROLES: [&str; 4] = ["viewer", "approver", "operator", "owner"];
const APPROVER: usize = 1;
const OPERATOR: usize = 2;

#[test]
fn a_session_may_what_its_token_may_and_no_more() {
    for (place, role) in ROLES.iter().enumerate() {
        let door = Door::open();
        for id in ["other", "third"] {
            door.pages.program(id, json!([{ "wait_signal": { "name": "go" } }]));
        }
        let (cookie, seal) = door.signed_in(&door.pages.token("ann", role));
        let cookie = [format!("Cookie: {cookie}")];
        let other = |door: &Door| door.pages.events("other").len() + door.pages.events("third").len();
        for (path, form, least) in ACTS {
            let before = (door.grown(), other(&door));
            let form = if form == "ANSWER" { door.answer_form("approve") } else { form.to_owned() };
            let heard = door.post(path, &cookie, &format!("{form}&seal={seal}"));
            if place < least {
                // A fork that is refused is told beside its form.
                let told = heard.body.contains("this needs the role");
                assert!(heard.status == 403 || path.ends_with("/fork"), "{role}: {path} {form}: {heard:?}");
                assert!(told, "{role}: {path} {form}: {heard:?}");
                assert_eq!((door.grown(), other(&door)), before, "{role}: {path} {form}");
            } else {
                assert_eq!(heard.status, 303, "{role}: {path} {form}: {heard:?}");
                assert_ne!((door.grown(), other(&door)), before, "{role}: {path} {form}");
                if path.ends_with("/answer") {
                    // What comes of the answer is no growth of what is refused next.
                    door.pages.ended(RUN);
                }
            }
        }
        if place >= APPROVER {
            assert_eq!(door.pages.ended(RUN)["status"], "Completed");
            let history = door.pages.events(RUN);
            assert!(history.iter().any(|event| event.to_string().contains(r#""approver":"ann""#)), "{history:?}");
        }
        // A form stands only where it may be sent.
        if place >= OPERATOR {
            door.pages.ended("other");
        }
        let page = door.get("/runs/other", &cookie).body;
        let verbs = page.matches("name=\"verb\"").count() - page.matches("name=\"verb\" value=\"query\"").count();
        assert_eq!(verbs, 0, "{role}: {page}");
    }
}

#[test]
fn forms_stand_only_where_they_may_be_sent() {
    let door = Door::open();
    let mut wrong = Vec::new();
    for (place, role) in ROLES.iter().enumerate() {
        let (cookie, _) = door.signed_in(&door.pages.token(&format!("ann-{role}"), role));
        let cookie = [format!("Cookie: {cookie}")];
        for (path, form, least) in [
            ("/inbox", "value=\"approve\"", APPROVER),
            ("/runs/story", "action=\"/runs/story/act", OPERATOR),
            ("/runs/story?tab=fork", "action=\"/runs/story/fork", OPERATOR),
            ("/runs/story/fork", "action=\"/runs/story/fork", OPERATOR),
            ("/", "href=\"/start\"", OPERATOR),
            ("/", "action=\"/batch\"", OPERATOR),
            ("/start", "action=\"/start\"", OPERATOR),
        ] {
            if door.get(path, &cookie).body.contains(form) != (place >= least) {
                wrong.push(format!("{role}: {form} on {path}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // A supervisor that was paused waits for whoever may resume it.
    let sealed = door.sealed("verb=pause");
    assert_eq!(door.post("/runs/story/act", &[door.cookie_line()], &sealed).status, 303);
    let (cookie, _) = door.signed_in(&door.pages.token("bob", "approver"));
    let page = door.get("/inbox", &[format!("Cookie: {cookie}")]).body;
    assert!(!page.contains("value=\"resume\""), "an approver may not resume: {page}");
}

#[test]
fn another_namespace_is_none() {
    let door = Door::open();
    let secret = json!({ "workflow_type": "kitchen-sink", "workflow_id": "hidden", "namespace": "board",
        "input": { "steps": [{ "wait_signal": { "name": "go" } }] } });
    door.pages.post("/api/v1/workflows", &secret);
    let token = door.pages.bosun(&["token", "create", "ann", "--role", "operator", "--only-namespace", "default"]);
    let (cookie, seal) = door.signed_in(token.lines().next().unwrap());
    let cookie = [format!("Cookie: {cookie}")];
    for path in [
        "/",
        "/?query=WorkflowId%20%3D%20'hidden'",
        "/?query=Namespace%20%3D%20'board'",
        "/inbox",
        "/agents",
        "/schedules",
        "/system",
    ] {
        let page = door.get(path, &cookie);
        assert!(page.status == 200 && !page.body.contains("/runs/hidden"), "{path}: {page:?}");
    }
    for path in [
        "/runs/hidden?namespace=board",
        "/runs/hidden",
        "/runs/hidden?namespace=board&tab=moment",
        "/runs/hidden/export?namespace=board",
        "/runs/hidden/fork?namespace=board",
    ] {
        assert_eq!(door.get(path, &cookie).status, 404, "{path}");
    }
    for (path, form) in [("act", "verb=cancel"), ("fork", "do=fork&kind=none"), ("answer", "id=x&do=approve")] {
        let heard = door.post(&format!("/runs/hidden/{path}?namespace=board"), &cookie, &format!("{form}&seal={seal}"));
        assert_eq!(heard.status, 404, "{path}: {heard:?}");
    }
}
