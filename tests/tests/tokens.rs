//! What a token opens, and for how long, through the doors of a real worker: a namespace is a wall also for who knows the ids
//! behind it, a stream ends with its token, and no tool of a run writes itself another one.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::http::{Endpoint, Http};
use bosun_tests::harness::process::{Program, REQUEST_MAX, WorkerProcess, bosun};
use serde_json::{Value, json};

struct Doors {
    _worker: WorkerProcess,
    owner: Http,
    dir: tempfile::TempDir,
}

impl Doors {
    fn open() -> Doors {
        let dir = tempfile::tempdir().unwrap();
        let program = Program::bosun_worker().unwrap();
        let (worker, owner) = WorkerProcess::start(&program, &dir.path().join("data"), READY_MAX).unwrap();
        Doors { _worker: worker, owner, dir }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    #[track_caller]
    fn token(&self, words: &[&str]) -> String {
        let output = Command::new(bosun().unwrap()).arg("token").args(words).arg("--data").arg(self.data()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The worker for who has this token.
    fn with(&self, token: String) -> Http {
        Http::new(Endpoint { token, ..self.owner.endpoint.clone() }, REQUEST_MAX)
    }
}

/// The form in which the command line asks.
const EXACTLY: &str = "Accept: application/vnd.bosun+json";

#[track_caller]
fn ask(http: &Http, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    ask_in(http, method, path, body, &[])
}

#[track_caller]
fn ask_in(http: &Http, method: &str, path: &str, body: Option<Value>, headers: &[&str]) -> (u16, Value) {
    let body = body.map(|body| body.to_string().into_bytes());
    let answer = http.request_with(method, path, body.as_deref(), headers).unwrap();
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}

#[track_caller]
fn started(http: &Http, id: &str, namespace: &str, steps: &Value) -> String {
    let start = json!({ "workflow_type": "kitchen-sink", "workflow_id": id, "namespace": namespace, "input": { "steps": steps } });
    let (status, run) = ask(http, "POST", "/api/v1/workflows", Some(start));
    assert_eq!(status, 201, "{run}");
    run["run_id"].as_str().unwrap().to_owned()
}

fn waits() -> Value {
    json!([{ "wait_signal": { "name": "go" } }])
}

/// E34: whoever knows both ids of a run of another namespace reaches it by no route, whatever namespace they say.
#[test]
fn a_token_reaches_no_run_of_another_namespace() {
    let doors = Doors::open();
    let run = started(&doors.owner, "w", "prod", &waits());
    started(&doors.owner, "w", "dev", &waits());
    let dev = doors.with(doors.token(&["create", "ann", "--role", "owner", "--only-namespace", "dev"]));
    let read = |path: &str| ("GET", path.to_owned(), None);
    let does = |path: &str, body: Value| ("POST", path.to_owned(), Some(body));
    let because = || json!({ "reason": "mine" });
    for (method, path, body) in [
        read("/api/v1/workflows/w?"),
        read("/api/v1/workflows/w/history?"),
        read("/api/v1/workflows/w/result?"),
        read("/api/v1/workflows/w/events?"),
        read("/api/v1/workflows/w/export?"),
        does("/api/v1/workflows/w/signals/go?", json!(1)),
        does("/api/v1/workflows/w/queries/vars?", json!(null)),
        does("/api/v1/workflows/w/updates/set_var?", json!({ "name": "a", "value": 1 })),
        does("/api/v1/workflows/w/forks?", json!({ "dry_run": true })),
        does("/api/v1/workflows/w/answers?", json!({ "id": "a", "approved": true })),
        does("/api/v1/workflows/w/pause?", because()),
        does("/api/v1/workflows/w/resume?", because()),
        does("/api/v1/workflows/w/cancel?", because()),
        does("/api/v1/workflows/w/terminate?", because()),
        does("/api/v1/workflows/w/execution/pause?", because()),
        does("/api/v1/workflows/w/execution/resume?", because()),
        ("DELETE", "/api/v1/workflows/w?".to_owned(), None),
    ] {
        for namespace in ["dev", "prod"] {
            let path = format!("{path}namespace={namespace}&run_id={run}");
            let (status, said) = ask(&dev, method, &path, body.clone());
            // The fork would be in a namespace that it may not use.
            let expected = if namespace == "prod" && path.contains("/forks") { 403 } else { 404 };
            assert_eq!(status, expected, "{method} {path}: {said}");
            // As the command line asks; a message is written otherwise there.
            if !["/signals/", "/queries/", "/updates/"].iter().any(|kind| path.contains(kind)) {
                let (status, said) = ask_in(&dev, method, &path, body.clone(), &[EXACTLY]);
                assert_eq!(status, expected, "exactly {method} {path}: {said}");
            }
        }
    }
    let (_, seen) = ask(&doors.owner, "GET", &format!("/api/v1/workflows/w?namespace=prod&run_id={run}"), None);
    assert_eq!((&seen["status"], &seen["history_length"]), (&json!("Running"), &json!(1)), "{seen}");
}

/// A stream that is being read when its token is revoked ends within seconds, on a worker where nothing happens too.
#[test]
fn a_stream_ends_with_the_token_that_opened_it() {
    let doors = Doors::open();
    started(&doors.owner, "w", "default", &waits());
    let token = doors.token(&["create", "ann", "--role", "viewer"]);
    let open = |(path, form): (&str, &str)| {
        let address = &doors.owner.endpoint.address;
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(REQUEST_MAX)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n{form}\r\n\r\n")
            .unwrap();
        let mut head = [0; 15];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK", "{path}");
        stream
    };
    let (plain, run) = ("Accept: */*", "/api/v1/workflows/w/events");
    let followed = format!("{run}?follow=true");
    let asked = [("/api/v1/events", plain), (run, plain), ("/api/v1/events", EXACTLY), (&followed, EXACTLY)];
    let streams: Vec<TcpStream> = asked.map(open).into();
    // Longer than it takes to look once: an open token keeps its streams.
    std::thread::sleep(Duration::from_secs(5));
    for stream in &streams {
        stream.set_nonblocking(true).unwrap();
        let mut rest = [0; 4_096];
        let still = loop {
            match (&*stream).read(&mut rest) {
                Ok(0) => break false,
                Ok(_) => {}
                Err(why) => break why.kind() == std::io::ErrorKind::WouldBlock,
            }
        };
        assert!(still, "it ended before its token");
        stream.set_nonblocking(false).unwrap();
    }
    doors.token(&["revoke", "ann"]);
    let begun = Instant::now();
    for ((path, _), mut stream) in asked.iter().zip(streams) {
        // A stream that broke off ends the connection, with or without an error.
        let _ = stream.read_to_end(&mut Vec::new());
        assert!(begun.elapsed() < Duration::from_secs(20), "{path} went on");
    }
}

/// Whoever may start a run may not thereby write a token of their own, or read one: the data directory is no place of files.
#[test]
fn no_tool_of_a_run_reaches_the_data_directory() {
    let doors = Doors::open();
    let operator = doors.with(doors.token(&["create", "ann", "--role", "operator"]));
    let before = std::fs::read(doors.data().join("tokens.json")).unwrap();
    let inside = |root: &Path, path: &str| {
        let write = json!({ "root": root, "op": "write", "path": path, "content": "{\"version\":1,\"tokens\":[]}" });
        let read = json!({ "root": root, "op": "read", "path": path });
        [("file", write), ("file", read)]
    };
    let report = json!({ "title": "T", "out": "data/tokens.json", "directory": doors.dir.path() });
    let header = json!({ "url": "http://127.0.0.1:1/", "headers": { "X": { "file": doors.data().join("token") } } });
    let mut tries = vec![("compose", report), ("http", header)];
    tries.extend(inside(doors.dir.path(), "data/tokens.json"));
    tries.extend(inside(&doors.data(), "tokens.json"));
    for (n, (activity, input)) in tries.into_iter().enumerate() {
        let id = format!("try-{n}");
        started(
            &operator,
            &id,
            "default",
            &json!([{ "activity": { "type": activity, "input": input, "retry": { "maximum_attempts": 1 } } }]),
        );
        let (status, ended) = ask(&operator, "GET", &format!("/api/v1/workflows/{id}/result?wait=20s"), None);
        assert_eq!((status, &ended["status"]), (200, &json!("Failed")), "{activity} {input}: {ended}");
        assert!(ended.to_string().contains("the worker's data directory"), "{activity} {input}: {ended}");
    }
    assert_eq!(std::fs::read(doors.data().join("tokens.json")).unwrap(), before);
}

/// Who sees one namespace means that one: what a list shows is there by its id alone.
#[test]
fn a_token_of_one_namespace_means_that_one() {
    let doors = Doors::open();
    started(&doors.owner, "w", "dev", &waits());
    started(&doors.owner, "other", "default", &waits());
    let dev = doors.with(doors.token(&["create", "dev", "--role", "operator", "--only-namespace", "dev"]));
    let (_, listed) = ask(&dev, "GET", "/api/v1/workflows", None);
    let ids: Vec<&str> =
        listed["workflows"].as_array().unwrap().iter().filter_map(|run| run["workflow_id"].as_str()).collect();
    assert_eq!(ids, ["w"], "{listed}");
    for path in ["/api/v1/workflows/w", "/api/v1/workflows/w/history", "/api/v1/workflows/w?namespace=dev"] {
        let (status, seen) = ask(&dev, "GET", path, None);
        assert_eq!(status, 200, "{path}: {seen}");
    }
    assert_eq!(ask(&dev, "POST", "/api/v1/workflows/w/signals/go", Some(json!(1))).0, 202);
    for path in ["/api/v1/workflows/other", "/api/v1/workflows/w?namespace=default"] {
        assert_eq!(ask(&dev, "GET", path, None).0, 404, "{path}");
    }
    assert_eq!(ask(&doors.owner, "GET", "/api/v1/workflows/w", None).0, 404, "who sees all names it");
    let (schedule, waiting) = (
        json!({ "spec": { "cron": ["0 2 * * *"] }, "action": { "workflow_type": "kitchen-sink", "workflow_id": "nightly" } }),
        json!({ "steps": [] }),
    );
    for (path, body) in [
        ("/api/v1/workflows", json!({ "workflow_type": "kitchen-sink", "workflow_id": "begun", "input": waiting })),
        ("/api/v1/standalone-activities", json!({ "activity_type": "echo", "activity_id": "begun", "input": 1 })),
        ("/api/v1/schedules", json!({ "schedule_id": "begun", "schedule": schedule })),
        ("/api/v1/batches", json!({ "query": "WorkflowId = 'w'", "action": { "do": "cancel" }, "batch_id": "begun" })),
    ] {
        let (status, answer) = ask(&dev, "POST", path, Some(body.clone()));
        assert_eq!(status, 201, "{path}: {answer}");
        let id = answer["workflow_id"].as_str().unwrap();
        let seen = ask(&doors.owner, "GET", &format!("/api/v1/workflows/{id}?namespace=dev"), None);
        assert_eq!(seen.0, 200, "{path}: {}", seen.1);
    }
}

/// Who may only look does not end the worker.
#[test]
fn a_viewer_does_not_end_the_worker() {
    let doors = Doors::open();
    let file = doors.dir.path().join("viewer");
    std::fs::write(&file, doors.token(&["create", "vera", "--role", "viewer"])).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    for verb in ["drain", "stop"] {
        let ended = Command::new(bosun().unwrap())
            .args(["worker", verb, "--token-file"])
            .arg(&file)
            .arg("--data")
            .arg(doors.data())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(32) && said.contains("needs the role operator"), "{verb}: {said}");
    }
    assert_eq!(doors.owner.healthz().unwrap(), 200);
}

/// A batch acts with the role of whoever asked for it, so nobody of a lesser role makes it act again, or tells it what it has
/// found. It stays in its namespace.
#[test]
fn a_batch_lends_its_role_to_nobody() {
    let doors = Doors::open();
    let operator = doors.with(doors.token(&["create", "ann", "--role", "operator"]));
    let batch = |id: &str, action: &str, namespace: &str| json!({ "batch_id": id, "namespace": namespace, "query": "WorkflowType = 'kitchen-sink'", "action": { "do": action }, "rps": 0 });
    let start = |http: &Http, asked: Value| ask(http, "POST", "/api/v1/batches", Some(asked));
    started(&doors.owner, "kept", "default", &waits());
    started(&doors.owner, "gone", "prod", &waits());
    assert_eq!(start(&operator, batch("mine", "delete", "prod")).0, 403, "deleting is the owner's");
    assert_eq!(start(&operator, batch("mine", "terminate", "prod")).0, 201);
    let run = start(&doors.owner, batch("own", "delete", "default")).1["run_id"].as_str().unwrap().to_owned();
    for (id, namespace) in [("mine", "prod"), ("own", "default")] {
        let path = format!("/api/v1/workflows/batch:{id}/result?wait=20s&namespace={namespace}");
        let (_, ended) = ask(&doors.owner, "GET", &path, None);
        let counts = (&ended["status"], &ended["result"]["found"]);
        assert_eq!(counts, (&json!("Completed"), &json!(1)), "{ended}");
    }
    let status = |id: &str, namespace: &str| {
        let path = format!("/api/v1/workflows/{id}?namespace={namespace}");
        ask(&doors.owner, "GET", &path, None).1["status"].clone()
    };
    assert_eq!((status("gone", "prod"), status("kept", "default")), (json!("Terminated"), json!("Running")));
    // As the owner's: its input says so, and so does its history.
    let forged = json!({ "query": "", "action": { "do": "delete" }, "role": "owner" });
    for (path, body) in [
        ("/api/v1/workflows/batch:own/reset".to_owned(), json!({ "to": "first-turn" })),
        ("/api/v1/workflows/batch:own/forks".to_owned(), json!({ "changes": [{ "set": "input", "value": forged }] })),
        ("/api/v1/workflows/batch:own/forks".to_owned(), json!({ "at": 4 })),
        (format!("/api/v1/activities/{run}:1:1"), json!({ "result": { "targets": [], "next": null } })),
    ] {
        let (status, said) = ask(&operator, "POST", &path, Some(body));
        assert_eq!((status, &said["code"]), (403, &json!("forbidden")), "{path}: {said}");
    }
}

/// Who approved is the name of a token, also in a fork that says otherwise; and a history that somebody brings along is its
/// owner's to vouch for.
#[test]
fn a_fork_approves_in_nobody_elses_name() {
    let doors = Doors::open();
    let steps = json!([{ "wait_signal": { "name": "approval_response_v1" } }, { "wait_signal": { "name": "go" } }]);
    started(&doors.owner, "w", "default", &steps);
    let said = json!({ "approval_id": "a", "approved": false, "approver": "" });
    assert_eq!(ask(&doors.owner, "POST", "/api/v1/workflows/w/signals/approval_response_v1", Some(said)).0, 202);
    let operator = doors.with(doors.token(&["create", "ann", "--role", "operator"]));
    let forged = json!({ "approval_id": "a", "approved": true, "approver": "cfo" });
    let change = json!([{ "set": "signal", "name": "approval_response_v1", "value": forged }]);
    let (status, said) =
        ask(&operator, "POST", "/api/v1/workflows/w/forks", Some(json!({ "workflow_id": "f", "changes": change })));
    assert_eq!(status, 201, "{said}");
    let (_, history) = ask(&operator, "GET", "/api/v1/workflows/f/history", None);
    let signaled =
        history["events"].as_array().unwrap().iter().find(|event| event["event_type"] == "WorkflowExecutionSignaled");
    let input = &signaled.unwrap_or_else(|| panic!("{history}"))["attributes"]["input"];
    assert_eq!((&input["approver"], &input["approved"]), (&json!("ann"), &json!(true)), "{input}");
    let change = json!([{ "set": "signal", "name": "plan_answer_v1", "value": {} }]);
    let (status, _) = ask(&operator, "POST", "/api/v1/workflows/w/forks", Some(json!({ "changes": change })));
    assert_eq!(status, 403);
}

/// A worker is that of every namespace: a token for one of them ends it as little as a token that may only look.
#[test]
fn a_token_of_one_namespace_does_not_end_the_worker_of_all() {
    let doors = Doors::open();
    let token = doors.token(&["create", "dev", "--role", "operator", "--only-namespace", "dev"]);
    let file = doors.dir.path().join("dev.token");
    std::fs::write(&file, token).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    for verb in ["stop", "drain"] {
        let mut command = Command::new(bosun().unwrap());
        command.args(["worker", verb, "--data"]).arg(doors.data()).arg("--token-file").arg(&file);
        let output = command.output().unwrap();
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && why.contains("serves every namespace"), "{verb}: {why}");
    }
    assert_eq!(ask(&doors.owner, "GET", "/api/v1/workflows", None).0, 200, "it goes on");
}
