//! What comes in at the door of the pages: forms that are not theirs, paths that lead elsewhere, and what every answer carries.

use super::door::{Door, FORMS, LOOKED_AT, RUN};

#[test]
fn a_form_counts_only_from_a_page_of_its_own_session() {
    let door = Door::open();
    let (ann, ann_seal) = door.signed_in(&door.pages.token("ann", "owner"));
    let before = door.grown();
    let (_, own_second) = door.signed_in(&door.pages.http.endpoint.token);
    for (path, form) in FORMS {
        for (what, seal) in [
            ("no seal", String::new()),
            ("an empty seal", "&seal=".into()),
            ("her seal in his session", format!("&seal={ann_seal}")),
            ("the seal of another session of the same token", format!("&seal={own_second}")),
            ("a part of the seal", format!("&seal={}", &door.seal[..32])),
            ("the cookie", format!("&seal={}", door.cookie)),
        ] {
            let heard = door.post(path, &[door.cookie_line()], &format!("{form}{seal}"));
            assert_eq!(heard.status, 403, "{path} with {what}: {heard:?}");
            assert!(heard.body.contains("form_not_sealed"), "{path} with {what}: {}", heard.body);
        }
        assert_eq!(
            door.post(path, &[format!("Cookie: {ann}")], &door.sealed(form)).status,
            403,
            "{path}: his seal in hers"
        );
        // In the address it is no seal.
        let heard = door.post(&format!("{path}?seal={}", door.seal), &[door.cookie_line()], form);
        assert_eq!(heard.status, 403, "{path}");
        for kind in [
            "application/json",
            "text/plain",
            "multipart/form-data; boundary=x",
            "application/x-www-form-urlencoded, text/plain",
            "",
        ] {
            let form = door.sealed(form);
            let given = [
                door.host(),
                door.cookie_line(),
                format!("Content-Type: {kind}"),
                format!("Content-Length: {}", form.len()),
            ];
            assert_eq!(door.send("POST", path, &given, &form).status, 415, "{path} as {kind:?}");
        }
        for method in ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            let given = [door.host(), door.cookie_line()];
            let heard = door.send(method, &format!("{path}?{}", door.sealed(form)), &given, "");
            let shows = matches!((path, method), ("/start" | "/schedule" | "/runs/story/fork", "GET" | "HEAD"));
            assert_eq!(heard.status, if shows { 200 } else { 405 }, "{method} {path}");
        }
    }
    assert_eq!(door.grown(), before);
    // And from its own page it counts.
    let heard = door.post("/runs/story/answer", &[door.cookie_line()], &door.sealed(&door.answer_form("approve")));
    assert_eq!((heard.status, heard.header("location").starts_with("/inbox?done=")), (303, true), "{heard:?}");
    assert_eq!(door.pages.ended(RUN)["status"], "Completed");
}

#[test]
fn no_path_leads_to_a_file_or_around_the_guard() {
    let door = Door::open();
    let secret = door.pages.http.endpoint.token.clone();
    for path in [
        "/assets/../../token",
        "/assets/..%2f..%2ftoken",
        "/assets/%2e%2e/%2e%2e/token",
        "/assets/..%5ctoken",
        "/assets/%2fetc%2fpasswd",
        "/assets//etc/passwd",
        "/assets/bosun.css/../../token",
        "/assets/bosun.css%00",
        "/assets/",
        "/assets/token",
        "/runs/..%2f..%2ftoken",
        "/runs/../../token",
        "/token",
        "/data/token",
        "/tokens.json",
        "/worker.json",
    ] {
        for given in [Vec::new(), vec![door.cookie_line()]] {
            let heard = door.get(path, &given);
            assert!(matches!(heard.status, 303 | 400 | 404), "{path}: {heard:?}");
            assert!(!heard.body.contains(&secret) && !heard.body.contains("root:"), "{path}: {heard:?}");
        }
    }
    // Other spellings of the API are no pages that do its work.
    for path in [
        "//api/v1/workflows",
        "/api//v1/workflows",
        "/API/v1/workflows",
        "/api/v1/../v1/workflows",
        "/%61pi/v1/workflows",
        "/x/../api/v1/workflows",
        "/assets/../api/v1/workflows",
        "/api",
        "/rpc",
        "/login/../api/v1/workflows",
    ] {
        for given in [Vec::new(), vec![door.cookie_line()]] {
            let heard = door.get(path, &given);
            assert!(matches!(heard.status, 303 | 400 | 401 | 404), "{path}: {heard:?}");
            assert!(!heard.body.contains("supervisor"), "{path}: {heard:?}");
        }
    }
    let whole = format!("http://{}/", "evil.example");
    assert_eq!(door.get(&whole, &[door.cookie_line()]).status, 403, "a whole address that is another one");
}

#[test]
fn a_form_that_is_too_large_is_refused() {
    let door = Door::open();
    let before = door.grown();
    let form = format!("type=kitchen-sink&id=made&input={}&seal={}", "x".repeat(5 << 20), door.seal);
    assert_eq!(door.post("/start", &[door.cookie_line()], &form).status, 413);
    let chunked = [
        door.host(),
        door.cookie_line(),
        "Content-Type: application/x-www-form-urlencoded".into(),
        "Transfer-Encoding: chunked".into(),
    ];
    let body = format!("{:x}\r\n{form}\r\n0\r\n\r\n", form.len());
    assert_eq!(door.send("POST", "/start", &chunked, &body).status, 413);
    let many = door.sealed(&"a=b&".repeat(500_000));
    assert_eq!(
        door.post("/runs/story/act", &[door.cookie_line()], &many).status,
        400,
        "fields that nobody knows do nothing"
    );
    // Nobody who is not signed in gets a large form read.
    assert_eq!(door.post("/start", &[], &form).status, 303);
    assert_eq!(door.post("/login", &[], &format!("token={}", "x".repeat(5 << 20))).status, 413);
    assert_eq!(door.grown(), before);
}

#[test]
fn signing_in_leads_to_a_page_of_this_worker_alone() {
    let door = Door::open();
    let token = door.pages.http.endpoint.token.clone();
    for next in [
        "//evil.example",
        "/%5Cevil.example",
        "/%5C/evil.example",
        "https://evil.example",
        "https:evil.example",
        "javascript:alert(1)",
        "%5C%5Cevil.example",
        "/%09/evil.example",
        "/%09%5Cevil.example",
        "%09//evil.example",
        "/%0A/evil.example",
        "/%0D%0ASet-Cookie:%20a=b",
        "%20//evil.example",
        "///evil.example",
        "evil.example",
        "",
        "@evil.example",
        "/%00/evil.example",
    ] {
        let heard = door.post("/login", &[], &format!("token={token}&next={next}"));
        let place = heard.header("location").to_owned();
        assert_eq!((heard.status, place.as_str()), (303, "/"), "{next}");
        assert_eq!(heard.all("set-cookie").len(), 1, "{next}: {heard:?}");
        let link = door.pages.link();
        let (address, _) = link.split_once("&next=").unwrap();
        let (_, query) = address.split_once('?').unwrap();
        let heard = door.get(&format!("/login?{query}&next={next}"), &[]);
        assert_eq!((heard.status, heard.header("location")), (303, "/"), "{next}");
    }
    let heard = door.post("/login", &[], &format!("token={token}&next=%2Fruns%2Fa%252Fb%3Ftab%3Dhistory"));
    assert_eq!(heard.header("location"), "/runs/a%2Fb?tab=history");
}

/// G32: framing, foreign scripts and sniffing are ruled out on every answer: pages, redirects, refusals, errors, downloads.
#[test]
fn every_answer_of_a_page_keeps_to_itself() {
    let door = Door::open();
    let mut heard = Vec::new();
    for given in [Vec::new(), vec![door.cookie_line()], vec!["Origin: https://evil.example".to_owned()]] {
        for path in LOOKED_AT.iter().chain(&[
            "/login",
            "/login?code=x",
            "/assets/bosun.css",
            "/assets/nothing",
            "/?query=%21",
            "/runs/nobody",
            "/runs/story?run_id=x",
            "/?query=a&query=b",
        ]) {
            heard.push((format!("GET {path}"), door.get(path, &given)));
        }
        for (path, form) in FORMS.iter().chain(&[("/login", "token=x"), ("/", "")]) {
            heard.push((format!("POST {path}"), door.post(path, &given, form)));
        }
    }
    for (what, heard) in heard {
        let policy = heard.header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'self'",
        ] {
            assert!(policy.contains(part), "{what}: {part} is not in {policy:?} of {heard:?}");
        }
        assert!(!policy.contains("unsafe"), "{what}: {policy}");
        assert_eq!(heard.header("x-frame-options"), "DENY", "{what}");
        assert_eq!(heard.header("x-content-type-options"), "nosniff", "{what}");
        assert_eq!(heard.header("referrer-policy"), "same-origin", "{what}");
        assert_eq!(heard.header("cross-origin-opener-policy"), "same-origin", "{what}");
        assert!(heard.all("access-control-allow-origin").is_empty(), "{what}");
        for cookie in heard.all("set-cookie") {
            assert!(
                cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax") && cookie.contains("Path=/"),
                "{what}: {cookie}"
            );
        }
        if heard.status == 200 && heard.header("content-type").starts_with("text/html") {
            assert_eq!(heard.header("cache-control"), "no-store", "{what}");
        }
    }
}

/// A form that is wrong comes back as it was filled in, with what is wrong, and nothing is done.
#[test]
fn a_form_that_is_wrong_loses_nothing_that_was_typed() {
    let door = Door::open();
    let cookie = [door.cookie_line()];
    let before = door.grown();
    let forms = [
        (
            "/start",
            "type=kitchen-sink&id=typed&task_queue=mine&input=%7Bbad",
            vec!["kitchen-sink", "typed", "mine", "{bad"],
        ),
        ("/start", "type=no-such-type&id=typed&input=1", vec!["no-such-type", "typed"]),
        ("/runs/story/act", "verb=signal&name=any&input=%7Bbad", vec!["any", "{bad"]),
        ("/runs/story/act", "verb=update&name=report_incident&input=%5B1", vec!["report_incident", "[1"]),
        ("/runs/story/act", "verb=query&name=progress&input=%7Bbad", vec!["progress", "{bad"]),
        ("/runs/story/act", "verb=query&name=no_such_query&input=1", vec!["no_such_query"]),
        ("/runs/story/act", "verb=update_activity&activity=1&start_to_close=soon", vec!["soon"]),
        ("/runs/story/fork", "do=look&kind=signal&which=go&value=%7Bbad", vec!["go", "{bad"]),
        ("/schedule", "id=nightly&type=kitchen-sink&every=1h&input=%7Bbad", vec!["nightly", "1h", "{bad"]),
    ];
    for (path, form, typed) in forms {
        let heard = door.post(path, &cookie, &door.sealed(form));
        assert_eq!(heard.status, 200, "{path} {form}: {heard:?}");
        let alert = heard.body.split("role=\"alert\"").nth(1).unwrap_or_else(|| panic!("{path} {form}: {heard:?}"));
        assert!(!alert.split("</p>").next().unwrap().is_empty());
        let (_, filled) = heard.body.split_once(&format!("action=\"{path}")).unwrap_or_else(|| panic!("{heard:?}"));
        assert!(filled.contains("name=\"seal\""), "{path} {form}: it can be sent again");
        for text in typed {
            assert!(heard.body.contains(text), "{path} {form}: {text:?} is gone: {}", heard.body);
        }
    }
    assert_eq!(door.grown(), before);
    // As it is mended, it is sent.
    let heard =
        door.post("/start", &cookie, &door.sealed("type=kitchen-sink&id=typed&input=%7B%22steps%22%3A%5B%5D%7D"));
    assert_eq!(heard.status, 303, "{heard:?}");
}

/// An address that asks for what there is not is a page, in words about the address, with a way on.
#[test]
fn an_address_that_cannot_be_read_is_a_page() {
    let door = Door::open();
    let cookie = [door.cookie_line()];
    for (place, says, back) in [
        ("/runs/story?tab=moment&at=zz", "`at=zz`", "/runs/story?tab=moment"),
        ("/runs/story?tab=history&page=-1", "`page=-1`", "/runs/story?tab=history"),
        ("/runs/story?tab=history&tab=fork", "`tab` more than once", "/runs/story"),
        ("/?query=a&query=b", "`query` more than once", "/"),
        ("/start?like=a&like=b", "`like` more than once", "/start"),
    ] {
        let heard = door.get(place, &cookie);
        assert_eq!(heard.status, 400, "{place}: {heard:?}");
        assert!(heard.header("content-type").starts_with("text/html"), "{place}: {heard:?}");
        assert!(heard.body.contains(says) && !heard.body.contains("deserialize"), "{place}: {}", heard.body);
        let link = format!("<a href=\"{}\">", back.replace('&', "&amp;"));
        assert!(heard.body.contains(&link), "{place}: {link}: {}", heard.body);
    }
}
