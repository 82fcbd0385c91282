//! Links that decide an approval: once, until they expire, for whoever holds them; and for nobody else.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::http::Http;
use bosun_tests::harness::process::{REQUEST_MAX, WorkerProcess};
use serde_json::{Value, json};

use super::receiver::Receiver;
use super::{config, until, worker};
use crate::pages::gated;
use crate::resets::told;

const PATIENCE: Duration = Duration::from_secs(60);

/// A worker whose pages people reach at a known address.
struct Decided {
    worker: WorkerProcess,
    http: Http,
    receiver: Receiver,
    dir: tempfile::TempDir,
    port: u16,
    links_for: &'static str,
}

struct Heard {
    status: u16,
    text: String,
}

impl Decided {
    fn serve(links_for: &'static str) -> Decided {
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let receiver = Receiver::start(0);
        let (worker, http) = start(dir.path(), port, links_for, &receiver);
        Decided { worker, http, receiver, dir, port, links_for }
    }

    fn again(&mut self) {
        self.worker.kill().unwrap();
        (self.worker, self.http) = start(self.dir.path(), self.port, self.links_for, &self.receiver);
    }

    fn data(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }

    /// Starts a supervisor that asks, and waits until somebody is told: the two links.
    fn asked(&self, id: &str) -> (String, String) {
        let spec = gated(&format!("the work of {id}"), "publish it");
        let start = json!({ "workflow_type": "supervisor", "workflow_id": id, "input": { "spec": spec } });
        let answer = self.http.request("POST", "/api/v1/workflows", Some(start.to_string().as_bytes())).unwrap();
        assert!(answer.status < 300, "{answer:?}");
        self.told(id, &[])
    }

    /// The two links of what a run asks, as soon as somebody is told of others than these runs of it.
    fn told(&self, id: &str, before: &[Value]) -> (String, String) {
        let body = until(PATIENCE, || {
            let mut all = self.receiver.all().into_iter();
            let one = all.find(|one| {
                one.body["workflow_id"] == id && one.body["kind"] == "approval" && !before.contains(&one.body["run_id"])
            });
            one.map(|one| one.body).ok_or_else(|| format!("nobody is told of {id}"))
        });
        let link = |name: &str| self.path_of(body["links"][name].as_str().unwrap_or_else(|| panic!("{body:#}")));
        (link("approve"), link("reject"))
    }

    fn newest_run(&self, id: &str) -> Value {
        told(&self.data(), &["describe", id])["workflow"]["run_id"].clone()
    }

    fn path_of(&self, link: &str) -> String {
        let start = format!("http://127.0.0.1:{}", self.port);
        link.strip_prefix(&start).unwrap_or_else(|| panic!("{link}")).to_owned()
    }

    fn host(&self) -> String {
        format!("Host: 127.0.0.1:{}", self.port)
    }

    fn send(&self, method: &str, path: &str, lines: &[String], body: &str) -> Heard {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(REQUEST_MAX)).unwrap();
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        write!(stream, "{method} {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n{body}").unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        let status = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        Heard { status: status.unwrap_or_else(|| panic!("no answer: {text}")), text }
    }

    /// As a browser does that has no cookie of this worker.
    fn get(&self, link: &str) -> Heard {
        self.send("GET", link, &[self.host()], "")
    }

    fn post(&self, link: &str, more: &[String]) -> Heard {
        let form = format!("link={}", link.split_once("link=").map_or(link, |(_, link)| link));
        let mut lines = vec![self.host(), "Content-Type: application/x-www-form-urlencoded".to_owned()];
        lines.push(format!("Content-Length: {}", form.len()));
        lines.extend_from_slice(more);
        self.send("POST", "/decide", &lines, &form)
    }

    fn events(&self, id: &str) -> Vec<Value> {
        let path = format!("/api/v1/workflows/{id}/history?limit=1000");
        let seen: Value = self.http.request("GET", &path, None).unwrap().json().unwrap();
        seen["events"].as_array().cloned().unwrap_or_else(|| panic!("{seen}"))
    }

    /// What people have answered the run.
    fn answers(&self, id: &str) -> Vec<Value> {
        let mut all = self.events(id);
        all.retain(|event| {
            event["event_type"] == "WorkflowExecutionSignaled" && event["attributes"]["name"] == "approval_response_v1"
        });
        all
    }

    fn ended(&self, id: &str) -> String {
        let path = format!("/api/v1/workflows/{id}/result?wait=20s");
        let seen: Value = self.http.request("GET", &path, None).unwrap().json().unwrap();
        seen["status"].as_str().unwrap_or_default().to_owned()
    }
}

fn start(folder: &std::path::Path, port: u16, links_for: &str, receiver: &Receiver) -> (WorkerProcess, Http) {
    let path = config(
        folder,
        &format!(
            "[notify]\npublic_url = \"http://127.0.0.1:{port}\"\nlinks_for = \"{links_for}\"\n\
             [notify.channels.ops]\nwebhook = \"http://{}/\"\nsecret = \"env:OPS_SECRET\"\nlinks = true\n",
            receiver.address
        ),
    );
    let program = worker(&path, &["--port", &port.to_string()]);
    WorkerProcess::start(&program, &folder.join("data"), READY_MAX).unwrap()
}

#[track_caller]
fn refused(heard: &Heard, status: u16, code: &str) {
    assert_eq!(heard.status, status, "{}", heard.text);
    assert!(heard.text.contains(code), "{code}: {}", heard.text);
}

/// It shows what is asked to whoever looks, decides when a person says so, once, and stays used over a restart.
#[test]
fn a_link_decides_once() {
    let mut decided = Decided::serve("1h");
    let (approve, reject) = decided.asked("story");
    let before = decided.events("story").len();
    // Programs look at links before people do.
    for link in [&approve, &reject, &approve] {
        let page = decided.get(link);
        assert_eq!(page.status, 200, "{}", page.text);
        assert!(page.text.contains("publish it") && page.text.contains("method=\"post\""), "{}", page.text);
        assert!(page.text.to_lowercase().contains("content-security-policy"), "{}", page.text);
        assert_eq!(decided.send("HEAD", link, &[decided.host()], "").status, 200);
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(decided.events("story").len(), before, "looking changes nothing");

    let done = decided.post(&approve, &[]);
    assert_eq!(done.status, 200, "{}", done.text);
    assert_eq!(decided.ended("story"), "Completed");
    let answers = decided.answers("story");
    assert_eq!(answers.len(), 1, "{answers:#?}");
    assert!(answers[0].to_string().contains("link:ops"), "who was told is who has approved: {}", answers[0]);
    for _ in 0..2 {
        for link in [&approve, &reject] {
            refused(&decided.get(link), 409, "link_used");
            refused(&decided.post(link, &[]), 409, "link_used");
        }
        decided.again();
    }

    // Who was told is seen where one looks at the run.
    let notified = until(PATIENCE, || {
        let described = told(&decided.data(), &["describe", "story"]);
        let one = described["notified"][0].clone();
        if one["state"] == "delivered" { Ok(one) } else { Err(format!("{described:#}")) }
    });
    assert_eq!((notified["channel"].as_str(), notified["kind"].as_str()), (Some("ops"), Some("approval")));
    let seen = |path: &str| -> Value { decided.http.request("GET", path, None).unwrap().json().unwrap() };
    let described = seen("/api/v1/workflows/story");
    let one = &described["notified"][0];
    assert_eq!((&one["channel"], &one["state"]), (&json!("ops"), &json!("delivered")), "{described:#}");
    assert!(one["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{one:#}");
    // It is a run of the worker, and not one of those whom it tells.
    let listed = |path: &str| {
        let types = seen(path)["workflows"].as_array().cloned().unwrap_or_default();
        types.into_iter().filter(|run| run["workflow_type"] == "bosun.notification").count()
    };
    // One for the approval, and one for each worker that was killed.
    let all = listed("/api/v1/workflows?all=true");
    assert!(all >= 1);
    assert_eq!(listed("/api/v1/workflows"), 0);
    assert_eq!(listed("/api/v1/workflows?query=WorkflowType%20%3D%20'bosun.notification'"), all);
    let count = |more: &str| seen(&format!("/api/v1/workflow-count{more}"))["count"].as_u64().unwrap();
    assert_eq!(count("?all=true"), count("") + all as u64);
    let verb = |words: &[&str]| told(&decided.data(), words)["workflows"].as_array().map_or(0, Vec::len);
    assert_eq!(verb(&["list", "--all"]), verb(&["list"]) + all);
    // No link is in what is kept.
    let run = format!("notify:{}", notified["id"].as_str().unwrap());
    assert!(!json!(decided.events(&run)).to_string().contains("/decide"), "a link stands in a history");
}

/// Nobody approves a plan that was not shown: its tasks stand in what is told, on the page of the link, and in the terminal.
#[test]
fn a_plan_is_shown_to_whoever_is_to_approve_it() {
    let decided = Decided::serve("1h");
    let spec = json!({
        "kind": "supervisor", "preset": "flow-plan-and-execute", "objective": "Move a database",
        "agents": [{ "name": "executor", "description": "Carries out one step." }],
        "planning": { "approval": { "required": true } },
        "script": [
            { "on": "plan", "say": { "tasks": [
                { "id": "dump", "goal": "Write the data out" },
                { "id": "load", "goal": "Read the data in", "deps": ["dump"] }] } },
            { "on": "execute_worker", "say": "ok" },
            { "on": "synthesize", "say": "moved" }],
    });
    let start = json!({ "workflow_type": "supervisor", "workflow_id": "moves", "input": { "spec": spec } });
    let answer = decided.http.request("POST", "/api/v1/workflows", Some(start.to_string().as_bytes())).unwrap();
    assert!(answer.status < 300, "{answer:?}");
    let body = until(PATIENCE, || {
        let all = decided.receiver.all();
        let one = all.into_iter().find(|one| one.body["workflow_id"] == "moves" && one.body["links"].is_object());
        one.map(|one| one.body).ok_or_else(|| "nobody is told of the plan".to_owned())
    });
    let page = decided.get(&decided.path_of(body["links"]["approve"].as_str().unwrap()));
    let output = crate::supervisor_cli::run(&decided.data(), &["approval", "list", "-o", "json"]);
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let id = listed["waiting"][0]["id"].as_str().unwrap_or_else(|| panic!("{listed}"));
    let shown = crate::supervisor_cli::said(&crate::supervisor_cli::run(&decided.data(), &["approval", "show", id]));
    for (place, text) in [("the page", &page.text), ("approval show", &shown), ("what is told", &body.to_string())] {
        for part in ["the review of version 1 of the plan", "dump", "Write the data out", "load", "Read the data in"] {
            assert!(text.contains(part), "{place} does not say {part:?}: {text}");
        }
    }
    assert!(shown.contains("load: Read the data in") && shown.contains("after dump"), "{shown}");
    let until_line = shown.lines().find(|line| line.starts_with("until")).unwrap_or_else(|| panic!("{shown}"));
    assert!(until_line.contains('Z') && until_line.contains(':'), "a time that people read: {until_line}");
}

/// Two who decide at the same moment, one each way: one of them has.
#[test]
fn two_at_once_are_one_decision() {
    let decided = Decided::serve("1h");
    for n in 0..5 {
        let id = format!("race-{n}");
        let (approve, reject) = decided.asked(&id);
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let both: Vec<_> = [&approve, &reject, &approve, &reject]
                .map(|link| scope.spawn(|| decided.post(link, &[]).status))
                .into_iter()
                .collect();
            both.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 3, "{statuses:?}");
        decided.ended(&id);
        assert_eq!(decided.answers(&id).len(), 1);
    }
}

/// Altered, late, of a stranger, from another site, to another name, as something else than a form: nothing is decided.
#[test]
fn nobody_else_decides() {
    let (decided, other) = (Decided::serve("1h"), Decided::serve("1h"));
    let (approve, _) = decided.asked("story");
    let (of_other, _) = other.asked("story");
    let before = decided.events("story").len();
    let link = approve.split_once("link=").unwrap().1;
    let mut altered: Vec<String> = Vec::new();
    for at in (0..link.len()).step_by(7) {
        let mut bytes = link.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'x' { b'y' } else { b'x' };
        altered.push(String::from_utf8(bytes).unwrap());
    }
    altered.extend([
        String::new(),
        "x".into(),
        link[..link.len() - 1].to_owned(),
        format!("{link}A"),
        link.to_uppercase(),
    ]);
    altered.push(link.split_once('.').unwrap().0.to_owned());
    altered.push("x".repeat(9_000));
    // A stranger has a link of another worker, or a token of this one, and no link.
    altered.push(of_other.split_once("link=").unwrap().1.to_owned());
    altered.push(decided.http.endpoint.token.clone());
    for link in &altered {
        refused(&decided.get(&format!("/decide?link={link}")), 403, "link_not_ours");
        refused(&decided.post(link, &[]), 403, "link_not_ours");
    }
    refused(&decided.get("/decide"), 403, "link_not_ours");

    // The link itself, from where no page of ours is: refused before anything is looked at.
    let (own, port) = (decided.host(), decided.port);
    let foreign: Vec<Vec<String>> = vec![
        vec!["Host: evil.example".into()],
        vec![format!("Host: evil.example:{port}")],
        vec![],
        vec![own.clone(), "Host: evil.example".into()],
        vec![own.clone(), "Origin: https://evil.example".into()],
        vec![own.clone(), "Origin: null".into()],
        vec![own.clone(), "Sec-Fetch-Site: cross-site".into()],
        vec![own.clone(), "Sec-Fetch-Site: same-site".into()],
    ];
    let form = format!("link={link}");
    for lines in &foreign {
        let mut given = lines.clone();
        given.extend([
            "Content-Type: application/x-www-form-urlencoded".into(),
            format!("Content-Length: {}", form.len()),
        ]);
        let heard = decided.send("POST", "/decide", &given, &form);
        assert!(matches!(heard.status, 400 | 403), "{lines:?}: {}", heard.text);
        let heard = decided.send("GET", &approve, lines, "");
        assert!(matches!(heard.status, 400 | 403) && !heard.text.contains("publish it"), "{lines:?}: {}", heard.text);
    }
    // A form of another site cannot be sent with the window that follows a link, either.
    let visit = ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"];
    let visit: Vec<String> = visit.iter().map(|line| (*line).to_owned()).collect();
    assert_eq!(decided.send("GET", &approve, &[vec![own.clone()], visit.clone()].concat(), "").status, 200);
    assert_eq!(decided.post(&approve, &visit).status, 403);
    let body = json!({ "link": link }).to_string();
    let json = ["Content-Type: application/json".to_owned(), format!("Content-Length: {}", body.len()), own.clone()];
    assert_eq!(decided.send("POST", "/decide", &json, &body).status, 415);
    for method in ["PUT", "DELETE", "PATCH"] {
        let heard = decided.send(method, &approve, std::slice::from_ref(&own), "");
        assert!(matches!(heard.status, 404 | 405), "{method}: {}", heard.text);
    }
    // A link opens nothing else.
    for path in ["/", "/inbox", "/runs/story"] {
        let heard = decided.get(&format!("{path}?link={link}"));
        assert_eq!(heard.status, 303, "{path}: {}", heard.text);
    }
    assert_eq!(decided.get(&format!("/api/v1/workflows?link={link}")).status, 401);
    assert_eq!(decided.events("story").len(), before);

    // Nobody but the worker speaks in its name.
    let start = json!({ "workflow_type": "bosun.notification", "workflow_id": "notify:x", "input": {} });
    let heard = decided.http.request("POST", "/api/v1/workflows", Some(start.to_string().as_bytes())).unwrap();
    assert_eq!(heard.status, 403, "{heard:?}");
    // And what was answered elsewhere meanwhile is not decided by a link.
    let asked = told(&decided.data(), &["approval", "list"]);
    let id = asked["waiting"][0]["request"]["id"].as_str().unwrap_or_else(|| panic!("{asked:#}")).to_owned();
    crate::resets::ok(&decided.data(), &["approval", "reject", &id, "--comment", "no"]);
    let heard = until(PATIENCE, || match decided.get(&approve) {
        heard if heard.status == 200 => Err("it still waits".to_owned()),
        heard => Ok(heard),
    });
    refused(&heard, 409, "nothing_waits");
    refused(&decided.post(&approve, &[]), 409, "nothing_waits");
}

#[test]
fn a_link_that_is_late_decides_nothing() {
    let decided = Decided::serve("1500ms");
    let (approve, reject) = decided.asked("story");
    let before = decided.events("story").len();
    std::thread::sleep(Duration::from_millis(1_700));
    for link in [&approve, &reject] {
        refused(&decided.get(link), 410, "link_expired");
        refused(&decided.post(link, &[]), 410, "link_expired");
    }
    assert_eq!(decided.events("story").len(), before);
}

/// The run that a reset makes asks anew: somebody is told, with links that decide it, whether the question is asked again or was
/// taken over with the history. What was sent before decides nothing any more.
#[test]
fn after_a_reset_people_are_told_again() {
    let decided = Decided::serve("1h");
    let mut links = vec![decided.asked("story")];
    let mut runs = vec![decided.newest_run("story")];
    for to in ["first-turn", "last-turn"] {
        crate::resets::ok(&decided.data(), &["reset", "story", "--to", to, "--yes"]);
        links.push(decided.told("story", &runs));
        runs.push(decided.newest_run("story"));
    }
    for (old, _) in &links[..2] {
        refused(&decided.post(old, &[]), 409, "nothing_waits");
    }
    let done = decided.post(&links[2].0, &[]);
    assert_eq!(done.status, 200, "{}", done.text);
    assert_eq!(decided.ended("story"), "Completed");
    let told: Vec<Value> = decided.receiver.all().into_iter().map(|one| one.body).collect();
    let of_run = |run: &Value| told.iter().filter(|one| one["kind"] == "approval" && one["run_id"] == *run).count();
    assert_eq!(runs.iter().map(of_run).collect::<Vec<_>>(), [1, 1, 1], "each once: {told:#?}");
}
