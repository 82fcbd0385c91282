//! Who gets in at the door of the pages, and who does not: every way that a hostile page, name or cookie could try.

use bosun_worker::api::Token;
use bosun_worker::api::routes::{OPEN_PATHS, ROUTES};

use super::door::{Door, FORMS, LOOKED_AT, RUN};

/// Every route of the API, with a run that is there.
fn api() -> Vec<(String, String)> {
    let of = |path: &str| {
        path.replace("{id}", RUN).replace("{name}", "x").replace("{activity_id}", "1").replace("{token}", "x")
    };
    let all = ROUTES.iter().filter(|route| !OPEN_PATHS.contains(&route.path));
    all.map(|route| (route.method.to_string(), of(route.path).replace("{update_id}", "u"))).collect()
}

fn lines(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// G33: names that are not ours, pages that are not ours: refused before anything is looked at, with every right to be there.
#[test]
fn a_page_of_another_site_reaches_nothing() {
    let door = Door::open();
    let (own, before) = (door.host(), door.grown());
    let address = own.trim_start_matches("Host: ").to_owned();
    let (_, port) = address.rsplit_once(':').unwrap();
    let foreign: Vec<(&str, Vec<String>)> = vec![
        ("a foreign Host", lines(&["Host: evil.example"])),
        ("a foreign Host that points here", vec![format!("Host: evil.example:{port}")]),
        ("a name that only begins as ours", vec![format!("Host: localhost.evil.example:{port}")]),
        ("no Host", Vec::new()),
        ("an empty Host", lines(&["Host: "])),
        ("two Hosts", vec![own.clone(), "Host: evil.example".into()]),
        ("our Host twice", vec![own.clone(), own.clone()]),
        ("a foreign Origin", vec![own.clone(), "Origin: https://evil.example".into()]),
        ("no Origin to speak of", vec![own.clone(), "Origin: null".into()]),
        ("an Origin of another port", vec![own.clone(), "Origin: http://127.0.0.1:1".into()]),
        ("an Origin that only begins as ours", vec![own.clone(), format!("Origin: http://{address}.evil.example")]),
        ("two Origins", vec![own.clone(), format!("Origin: http://{address}"), "Origin: http://evil.example".into()]),
        ("another site", vec![own.clone(), "Sec-Fetch-Site: cross-site".into()]),
        ("another port of this host", vec![own.clone(), "Sec-Fetch-Site: same-site".into()]),
        ("a site that nobody knows", vec![own.clone(), "Sec-Fetch-Site: anything".into()]),
        (
            "a frame of another site",
            vec![
                own.clone(),
                "Sec-Fetch-Site: cross-site".into(),
                "Sec-Fetch-Mode: navigate".into(),
                "Sec-Fetch-Dest: iframe".into(),
            ],
        ),
    ];
    let mut holes = Vec::new();
    for (what, given) in &foreign {
        let mut given = given.clone();
        given.extend([door.cookie_line(), door.bearer()]);
        let assets = ["/login", "/assets/bosun.js"];
        for path in LOOKED_AT.iter().chain(&assets) {
            let heard = door.send("GET", path, &given, "");
            if !matches!(heard.status, 400 | 403) {
                holes.push(format!("GET {path} with {what}: {}", heard.status));
            }
        }
        for (path, form) in FORMS {
            let form = door.sealed(form);
            let mut given = given.clone();
            given.extend([
                "Content-Type: application/x-www-form-urlencoded".into(),
                format!("Content-Length: {}", form.len()),
            ]);
            let heard = door.send("POST", path, &given, &form);
            if !matches!(heard.status, 400 | 403) {
                holes.push(format!("POST {path} with {what}: {}", heard.status));
            }
        }
        for (method, path) in api() {
            let mut given = given.clone();
            given.extend(["Content-Type: application/json".into(), "Content-Length: 2".into()]);
            let heard = door.send(&method, &path, &given, "{}");
            if !matches!(heard.status, 400 | 403) || heard.body.contains("bad_request") {
                holes.push(format!("{method} {path} with {what}: {}", heard.status));
            }
        }
    }
    assert!(holes.is_empty(), "{} ways in:\n{}", holes.len(), holes.join("\n"));
    assert_eq!(door.grown(), before);
}

/// A link on another site may lead to a page, in a window of its own; a form or a script of that site leads nowhere.
#[test]
fn a_link_from_elsewhere_shows_a_page_and_does_nothing() {
    let door = Door::open();
    let before = door.grown();
    let visit = lines(&["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"]);
    for path in LOOKED_AT {
        let stranger = door.get(path, &visit);
        assert_eq!(
            (
                stranger.status,
                stranger.header("location").starts_with("/login?next=%2F")
                    || stranger.header("location").starts_with("/login?next=/")
            ),
            (303, true),
            "{path}"
        );
        let mut known = visit.clone();
        known.push(door.cookie_line());
        let wanted = if path == "/nowhere" { 404 } else { 200 };
        assert_eq!(door.get(path, &known).status, wanted, "{path}");
    }
    for (path, form) in FORMS {
        let mut given = visit.clone();
        given.push(door.cookie_line());
        assert_eq!(door.post(path, &given, &door.sealed(form)).status, 403, "{path}");
        given.push("Origin: null".into());
        assert_eq!(door.post(path, &given, &door.sealed(form)).status, 403, "{path}");
    }
    // The API is nobody's to visit.
    let mut given = visit;
    given.extend([door.cookie_line(), door.bearer()]);
    for (method, path) in api().into_iter().filter(|(method, _)| method == "GET") {
        assert_eq!(door.send(&method, &path, &[vec![door.host()], given.clone()].concat(), "").status, 403, "{path}");
    }
    assert_eq!(door.grown(), before);
}

/// What a browser sends by itself opens no route of the API; what a program has opens no page.
#[test]
fn a_cookie_opens_pages_alone_and_a_token_the_api_alone() {
    let door = Door::open();
    let before = door.grown();
    for (method, path) in api() {
        let body = if method == "GET" { String::new() } else { Door::start_body() };
        let mut given = vec![door.host(), door.cookie_line(), "Content-Type: application/json".into()];
        given.push(format!("Content-Length: {}", body.len()));
        assert_eq!(door.send(&method, &path, &given, &body).status, 401, "{method} {path}");
    }
    for path in LOOKED_AT {
        let heard = door.get(path, &[door.bearer()]);
        assert_eq!((heard.status, heard.header("location").starts_with("/login")), (303, true), "{path}: {heard:?}");
    }
    for (path, form) in FORMS {
        let heard = door.post(path, &[door.bearer()], &door.sealed(form));
        assert_eq!((heard.status, heard.header("location")), (303, "/login?next=/"), "{path}: {heard:?}");
    }
    assert_eq!(door.grown(), before);
}

#[test]
fn no_cookie_but_the_one_that_was_given_is_a_session() {
    let mut door = Door::open();
    let (name, value) = door.cookie.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let owner = Token::of(door.pages.http.endpoint.token.clone()).verifier();
    // The worker's own key: what is sealed by it is refused for what it says.
    let owner = owner.with(&owner);
    let (text, seal) = value.rsplit_once('.').unwrap();
    let parts: Vec<&str> = text.split('.').collect();
    let sealed = |text: &str, kind: &str| format!("{text}.{}", owner.seal(kind, text));
    let later = i64::MAX;
    let (ann, ann_seal) = door.signed_in(&door.pages.token("ann", "owner"));
    let stranger = Token::of("x".repeat(64)).verifier();
    let forged: Vec<(&str, String)> = vec![
        ("none", String::new()),
        ("an empty one", format!("{name}=")),
        ("the token", format!("{name}={}", door.pages.http.endpoint.token)),
        ("another name", format!("bosun_session={value}")),
        ("of another port", format!("bosun_session_1={value}")),
        ("without its seal", format!("{name}={text}")),
        ("with an empty seal", format!("{name}={text}.")),
        ("a shorter seal", format!("{name}={}", &value[..value.len() - 1])),
        ("a longer seal", format!("{name}={value}0")),
        ("another end", format!("{name}={}.{later}.{}.{seal}", parts[0], parts[2])),
        ("somebody else's id", format!("{name}=nobody.{}.{}.{seal}", parts[1], parts[2])),
        ("one part more", format!("{name}={}.{seal}", text.to_owned() + ".x")),
        ("its own seal twice", format!("{name}={text}.{seal}.{seal}")),
        ("one that is over", format!("{name}={}", sealed(&format!("owner.1.{}", parts[2]), "session"))),
        ("a sign-in code", format!("{name}={}", sealed(text, "sign-in"))),
        ("the seal of a form", format!("{name}={text}.{}", door.seal)),
        ("sealed by somebody else", format!("{name}={text}.{}", stranger.seal("session", text))),
        ("signs around it", format!("{name}=\"{value}\"")),
    ];
    for (what, cookie) in &forged {
        for path in ["/", "/runs/story", "/live?query="] {
            let heard = door.get(path, &[format!("Cookie: {cookie}")]);
            assert_eq!((heard.status, heard.body.as_str()), (303, ""), "{what}: {path}");
        }
        let heard = door.post("/runs/story/act", &[format!("Cookie: {cookie}")], &door.sealed("verb=cancel"));
        assert_eq!((heard.status, heard.header("location")), (303, "/login?next=/"), "{what}");
    }
    // The one that was given is one, among others, too; and one that is taken away is none.
    for cookies in [value.clone(), format!("{value}; other=1")] {
        assert_eq!(door.get("/", &[format!("Cookie: first=2; {name}={cookies}")]).status, 200);
    }
    assert_eq!(door.get("/", &[format!("Cookie: {ann}")]).status, 200);
    door.pages.bosun(&["token", "revoke", "ann"]);
    assert_eq!(door.get("/", &[format!("Cookie: {ann}")]).status, 303, "her token was revoked");
    let heard = door.post("/runs/story/act", &[format!("Cookie: {ann}")], &format!("verb=cancel&seal={ann_seal}"));
    assert_eq!(heard.header("location"), "/login?next=/");
    let other = Door::open();
    let of_other = other.cookie.split_once('=').unwrap().1;
    assert_eq!(door.get("/", &[format!("Cookie: {name}={of_other}")]).status, 303, "a session of another worker");
    // A session outlives the worker, and not the token of its directory.
    door.pages.kill();
    door.pages.start_again();
    assert_eq!(door.get("/", &[door.cookie_line()]).status, 200);
    assert!(
        !door
            .pages
            .events(RUN)
            .iter()
            .any(|event| event["event_type"].as_str().is_some_and(|kind| kind.contains("CancelRequested")))
    );
}

/// A link that was used opens nothing to whoever finds it, also where the worker that knew of it has ended meanwhile.
#[test]
fn a_link_that_was_used_stays_used_over_a_restart() {
    let mut door = Door::open();
    let link = door.pages.link();
    let (_, path) = link.split_once(&door.pages.http.endpoint.address).unwrap();
    assert_eq!(door.get(path, &[]).all("set-cookie").len(), 1);
    assert_eq!((door.get(path, &[]).status, door.get(path, &[]).all("set-cookie").len()), (403, 0));
    door.pages.kill();
    door.pages.start_again();
    let heard = door.get(path, &[]);
    assert_eq!((heard.status, heard.all("set-cookie").len()), (403, 0), "{heard:?}");
    // The next one opens.
    let link = door.pages.link();
    let (_, path) = link.split_once(&door.pages.http.endpoint.address).unwrap();
    assert_eq!(door.get(path, &[]).all("set-cookie").len(), 1);
}

#[test]
fn a_session_ends_with_the_time_of_its_token() {
    let door = Door::open();
    let token = door.pages.bosun(&["token", "create", "ann", "--role", "owner", "--expires", "2s"]);
    let (cookie, seal) = door.signed_in(token.lines().next().unwrap());
    let cookie = [format!("Cookie: {cookie}")];
    let begin = std::time::Instant::now();
    while door.get("/", &cookie).status == 200 {
        assert!(begin.elapsed() < std::time::Duration::from_secs(20), "it goes on");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(door.get("/", &cookie).status, 303);
    let before = door.grown();
    let heard = door.post("/runs/story/act", &cookie, &format!("verb=cancel&seal={seal}"));
    assert_eq!((heard.status, heard.header("location")), (303, "/login?next=/"));
    assert_eq!(door.grown(), before);
}
