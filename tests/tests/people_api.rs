//! The HTTP API for people, as a program with nothing but an HTTP client meets it: a real worker, plain JSON.

use std::time::Duration;

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::http::{Answer, Http};
use bosun_tests::harness::process::{Program, WorkerProcess};
use bosun_tests::harness::{all_required, say};
use serde_json::{Value, json};

struct Api {
    _worker: WorkerProcess,
    http: Http,
    dir: tempfile::TempDir,
}

impl Api {
    fn serve() -> Api {
        let dir = tempfile::tempdir().unwrap();
        let program = Program::bosun_worker().unwrap();
        let (worker, http) = WorkerProcess::start(&program, &dir.path().join("data"), READY_MAX).unwrap();
        Api { _worker: worker, http, dir }
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>, headers: &[&str]) -> (u16, Value) {
        let body = body.map(|body| body.to_string().into_bytes());
        let path = format!("/api/v1/{path}");
        let answer: Answer = self.http.request_with(method, &path, body.as_deref(), headers).unwrap();
        let value = serde_json::from_slice(&answer.body);
        (
            answer.status,
            value.unwrap_or_else(|_| panic!("{method} {path}: {:?}", String::from_utf8_lossy(&answer.body))),
        )
    }
    fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, None, &[])
    }
    fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.ask("POST", path, Some(&body), &[])
    }

    /// Asks until the answer is as wanted.
    #[track_caller]
    fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..600 {
            let (_, seen) = self.get(path);
            if wanted(&seen) {
                return seen;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{path} is not as wanted after a minute: {}", self.get(path).1)
    }
}

/// A supervisor that asks a person before it begins.
fn gated(id: &str) -> Value {
    let spec = json!({
        "kind": "supervisor", "preset": "shannon-supervisor", "objective": "a publication",
        "planner": { "script": [{ "on": "plan", "say": { "subtasks": [
            { "id": "tell", "description": "tell it", "action": "publish it" }] } }] },
        "agents": [{ "name": "worker" }],
        "script": [{ "on": "execute_worker", "say": "done" }, { "on": "synthesize", "say": "done" }],
    });
    json!({ "workflow_type": "supervisor", "workflow_id": id, "input": { "spec": spec } })
}

#[test]
fn a_program_starts_a_run_answers_its_question_and_reads_the_result() {
    let api = Api::serve();
    let key = ["Idempotency-Key: order 7"];
    let (status, first) = api.ask("POST", "workflows", Some(&gated("story")), &key);
    assert_eq!((status, &first["newly_started"]), (201, &json!(true)), "{first}");
    let (status, again) = api.ask("POST", "workflows", Some(&gated("story")), &key);
    assert_eq!((status, &again["run_id"]), (200, &first["run_id"]), "the same key is the same start: {again}");

    let asked = api.until("approvals", |seen| seen["approvals"].as_array().is_some_and(|all| !all.is_empty()));
    let asked = &asked["approvals"][0];
    assert_eq!((&asked["kind"], &asked["workflow_id"]), (&json!("approval"), &json!("story")));
    assert_eq!(api.get("workflows/story/result"), (202, json!({ "status": "Running" })));
    let (_, seen) = api.post("workflows/story/queries/waiting", Value::Null);
    assert_eq!(seen["result"][0]["id"], asked["id"], "{seen}");

    // What does not fit is refused with its place, and nothing has changed.
    let (status, why) = api.post("workflows/story/answers", json!({ "id": asked["id"], "answer": "yes" }));
    assert_eq!((status, &why["errors"][0]["at"]), (422, &json!("answer")), "{why}");
    assert_eq!(api.post("workflows/story/answers", json!({ "id": "nobody/ap-1", "approved": true })).0, 404);
    let yes = json!({ "id": asked["id"], "approved": true, "comment": "go" });
    assert_eq!(api.post("workflows/story/answers", yes.clone()).0, 202);

    let (status, end) = api.get("workflows/story/result?wait=20s");
    assert_eq!((status, &end["status"], &end["result"]["final_result"]), (200, &json!("Completed"), &json!("done")));
    assert_eq!(api.post("workflows/story/answers", yes).0, 404, "nothing waits any more");
    let (_, history) = api.get("workflows/story/history?limit=1000");
    let signal =
        history["events"].as_array().unwrap().iter().find(|event| event["event_type"] == "WorkflowExecutionSignaled");
    let input = &signal.unwrap()["attributes"]["input"];
    assert_eq!(
        (&input["approver"], &input["comment"]),
        (&json!("owner"), &json!("go")),
        "plain, and signed: {history}"
    );
}

#[test]
fn everything_that_is_wrong_with_a_start_is_told_at_once() {
    let api = Api::serve();
    let bad =
        json!({ "workflow_typ": "order-saga", "namespace": 7, "run_timeout": "soon", "id_reuse_policy": "Never" });
    let (status, why) = api.post("workflows", bad);
    let places: Vec<&str> = why["errors"].as_array().unwrap().iter().filter_map(|one| one["at"].as_str()).collect();
    assert_eq!(status, 422);
    assert_eq!(places, ["workflow_type", "namespace", "run_timeout", "id_reuse_policy", "workflow_typ"], "{why}");
    assert!(why["message"].as_str().unwrap().contains("did you mean `workflow_type`?"), "{why}");
    let (status, why) = api.post("workflows", json!({ "workflow_type": "no-such-workflow" }));
    assert_eq!((status, &why["code"]), (404, &json!("unknown_workflow_type")), "{why}");
    assert_eq!(api.get("workflows").1["workflows"], json!([]), "nothing was started");
    assert_eq!(api.get("workflows?cursor=x").0, 400);
    assert_eq!(api.get("workflows?limit=0").0, 400);
    assert_eq!(api.get("workflows/nobody").0, 404);
}

#[test]
fn runs_are_listed_page_by_page_and_steered() {
    let api = Api::serve();
    for n in 0..5 {
        let (status, why) = api.post("workflows", gated(&format!("run-{n}")));
        assert_eq!(status, 201, "{why}");
    }
    let mut ids = Vec::new();
    let path = "workflows?limit=2&query=WorkflowType%20%3D%20'supervisor'";
    let mut cursor = String::new();
    for _ in 0..4 {
        let (_, page) = api.get(&format!("{path}{cursor}"));
        ids.extend(
            page["workflows"].as_array().unwrap().iter().map(|run| run["workflow_id"].as_str().unwrap().to_owned()),
        );
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(ids, ["run-4", "run-3", "run-2", "run-1", "run-0"], "each once, the newest first");

    // What needs no body takes none.
    let none = |method: &str, path: &str| api.ask(method, path, None, &["Content-Length: 0"]);
    assert_eq!(none("POST", "workflows/run-0/pause").0, 200);
    let paused =
        |seen: &Value| seen["result"].as_array().is_some_and(|all| all.iter().any(|one| one["kind"] == "pause"));
    let waits = |api: &Api| api.post("workflows/run-0/queries/waiting", Value::Null).1;
    assert!(
        (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            paused(&waits(&api))
        }),
        "{}",
        waits(&api)
    );
    assert_eq!(none("POST", "workflows/run-0/resume").0, 200);
    assert_eq!(api.post("workflows/run-0/cancel", json!({ "reason": "not today" })).0, 202);
    let end = api.until("workflows/run-0/result?wait=1s", |seen| seen["status"] != "Running");
    assert_eq!(end["status"], "Canceled", "{end}");
    assert_eq!(api.post("workflows/run-1/terminate", json!({ "reason": "enough" })).0, 200);
    let (_, end) = api.get("workflows/run-1/result");
    assert_eq!((&end["status"], &end["reason"]), (&json!("Terminated"), &json!("enough")));
    let (_, seen) = api.get("workflows/run-2");
    assert_eq!((&seen["status"], &seen["workflow_type"]), (&json!("Running"), &json!("supervisor")), "{seen}");
    assert_eq!(none("DELETE", "workflows/run-1").0, 200);
    assert_eq!(api.get("workflows/run-1").0, 404);
    let (_, document) = api.get("openapi.json");
    assert_eq!(
        (&document["openapi"], document["paths"].as_object().map(|all| all.len() > 10)),
        (&json!("3.1.0"), Some(true))
    );
}

/// The README's program, as it stands there: with nothing but Python's standard library.
#[test]
fn the_python_of_the_readme_does_what_it_says() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
    let (_, rest) = readme.split_once("```python\n").unwrap();
    let (program, _) = rest.split_once("```").unwrap();
    let api = Api::serve();
    let (_, port) = api.http.endpoint.address.rsplit_once(':').unwrap();
    std::fs::write(api.dir.path().join("ask.py"), program.replace("PORT", port)).unwrap();
    std::fs::write(api.dir.path().join("spec.json"), gated("unused")["input"]["spec"].to_string()).unwrap();
    let ran = std::process::Command::new("python3").arg("ask.py").current_dir(api.dir.path()).output();
    let ran = match ran {
        Ok(ran) => ran,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound && !all_required() => {
            return say("the_python_of_the_readme_does_what_it_says: SKIPPED: there is no python3");
        }
        Err(why) => panic!("python3: {why}"),
    };
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && said.contains("'Completed'"), "{said}");
}
