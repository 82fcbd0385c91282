//! The HTTP API for people, as a program with nothing but an HTTP client meets it: a real worker, plain JSON.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::http::{Answer, Http};
use bosun_tests::harness::process::{Program, WorkerProcess};
use bosun_tests::harness::{all_required, say};
use serde_json::{Value, json};

use crate::doors::did;

pub(crate) struct Api {
    worker: WorkerProcess,
    pub(crate) http: Http,
    dir: tempfile::TempDir,
}

impl Api {
    pub(crate) fn serve() -> Api {
        let dir = tempfile::tempdir().unwrap();
        let program = Program::bosun_worker().unwrap();
        let (worker, http) = WorkerProcess::start(&program, &dir.path().join("data"), READY_MAX).unwrap();
        Api { worker, http, dir }
    }

    pub(crate) fn data(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }

    /// Ends the worker without a warning, and starts it again.
    pub(crate) fn start_again(&mut self) {
        self.worker.kill().unwrap();
        let program = Program::bosun_worker().unwrap();
        (self.worker, self.http) = WorkerProcess::start(&program, &self.data(), READY_MAX).unwrap();
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>, headers: &[&str]) -> (u16, Value) {
        let body = body.map(|body| body.to_string().into_bytes());
        let path = format!("/api/v1/{path}");
        let answer: Answer = self.http.request_with(method, &path, body.as_deref(), headers).unwrap();
        let value = serde_json::from_slice(&answer.body);
        (
            answer.status,
            value.unwrap_or_else(|_| panic!("{method} {path}: {:?}", String::from_utf8_lossy(&answer.body))),
        )
    }
    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, None, &[])
    }
    pub(crate) fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.ask("POST", path, Some(&body), &[])
    }

    /// Asks until the answer is as wanted.
    #[track_caller]
    pub(crate) fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
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
pub(crate) fn gated(id: &str) -> Value {
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
    for name in ["requested_at", "deadline"] {
        let told = asked["request"][name].as_str().unwrap_or_else(|| panic!("{name} is no text: {asked}"));
        told.parse::<jiff::Timestamp>().unwrap_or_else(|why| panic!("{name}: {why}: {told}"));
    }
    let (status, open) = api.get("workflows/story/result");
    assert_eq!((status, &open["status"]), (202, &json!("Running")), "{open}");
    assert_eq!(open["waiting"][0]["id"], asked["id"], "whoever polls is told what it waits for: {open}");
    let (_, seen) = api.post("workflows/story/queries/waiting", Value::Null);
    assert_eq!(seen["result"][0]["id"], asked["id"], "{seen}");

    // What does not fit is refused with its place, and nothing has changed.
    let (status, why) = api.post("workflows/story/answers", json!({ "id": asked["id"], "answer": "yes" }));
    assert_eq!((status, &why["errors"][0]["at"]), (422, &json!("answer")), "{why}");
    assert_eq!(api.post("workflows/story/answers", json!({ "id": "nobody/ap-1", "approved": true })).0, 404);
    let yes = json!({ "id": asked["id"], "approved": true, "comment": "go" });
    let answered = |key: &str| api.ask("POST", "workflows/story/answers", Some(&yes), &[key]).0;
    assert_eq!(answered("Idempotency-Key: answer 1"), 202);
    assert_eq!(answered("Idempotency-Key: answer 1"), 202, "the same answer, which was given");

    let (status, end) = api.get("workflows/story/result?wait=20s");
    assert_eq!((status, &end["status"], &end["result"]["final_result"]), (200, &json!("Completed"), &json!("done")));
    assert_eq!(api.post("workflows/story/answers", yes.clone()).0, 404, "nothing waits any more");
    assert_eq!(answered("Idempotency-Key: answer 1"), 202, "the same answer, after the end");
    assert_eq!(answered("Idempotency-Key: answer 2"), 404, "another answer comes too late");
    let (_, history) = api.get("workflows/story/history?limit=1000");
    let is_signal = |event: &&Value| event["event_type"] == "WorkflowExecutionSignaled";
    let signals: Vec<&Value> = history["events"].as_array().unwrap().iter().filter(is_signal).collect();
    assert_eq!(signals.len(), 1, "one answer: {signals:?}");
    let input = &signals[0]["attributes"]["input"];
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
    assert_eq!(api.get("workflows?limit=501").0, 400);
    let (status, why) = api.get("workflows?query=ORDER%20BY%20WorkflowId");
    assert!(status == 400 && why["message"].as_str().unwrap().contains("ORDER BY"), "{status} {why}");
    assert_eq!(api.get("workflows/nobody").0, 404);
}

/// Below the top level too, each with its path; and several parameters of a query.
#[test]
fn everything_that_is_wrong_below_is_told_with_its_path() {
    let api = Api::serve();
    let (status, kept) = api.post("workflows", gated("there"));
    assert_eq!(status, 201, "{kept}");
    let places = |(status, told): (u16, Value)| {
        let places: Vec<String> =
            told["errors"].as_array().into_iter().flatten().map(|one| one["at"].as_str().unwrap().to_owned()).collect();
        (status, places)
    };
    let expect = |at: &[&str]| at.iter().map(|&at| at.to_owned()).collect::<Vec<_>>();
    let start = json!({ "workflow_type": "order-saga", "priority": { "priority_key": 9, "foo": 1 },
        "retry_policy": { "maximum_attempts": "x" }, "signal": { "nam": 1 } });
    let wrong = ["retry_policy.maximum_attempts", "priority.priority_key", "priority.foo", "signal.name", "signal.nam"];
    assert_eq!(places(api.post("workflows", start)), (422, expect(&wrong)));
    let mut misspelt = gated("misspelt");
    misspelt["input"]["spec"]["hitl"] = json!({ "aproval": {} });
    assert_eq!(places(api.post("workflows", misspelt)), (422, expect(&["input.spec.hitl.aproval"])));
    let order = json!({ "order_id": "o-1", "items": [{ "sku": "tea", "quantity": 1 }, { "sku": "jam", "quantity": "two" }], "cents": 5 });
    let order = json!({ "workflow_type": "order-saga", "input": order });
    assert_eq!(places(api.post("workflows", order)), (400, expect(&["input.items[1].quantity"])));
    assert_eq!(api.get("workflows").1["workflows"].as_array().unwrap().len(), 1, "nothing more was started");
    let weight = json!({ "activity_type": "x", "priority": { "fairness_weight": null } });
    assert_eq!(places(api.post("standalone-activities", weight)), (422, expect(&["priority.fairness_weight"])));
    let batch = json!({ "query": "WorkflowId = 'there'", "action": { "do": "cancel", "now": true } });
    assert_eq!(places(api.post("batches", batch)), (422, expect(&["action.now"])));
    let fork = json!({ "at": "y", "changes": [{ "set": "input", "value": 1 }, { "set": "failure", "of": "event:x", "mesage": "m" }] });
    let wrong = ["at", "changes[1].message", "changes[1].of", "changes[1].mesage"];
    assert_eq!(places(api.post("workflows/there/forks", fork)), (422, expect(&wrong)));
    assert_eq!(places(api.get("workflows?limit=x&al=1&all=maybe")), (400, expect(&["limit", "al", "all"])));
    assert_eq!(places(api.post("store/backup", json!({ "to": "/tmp/a\u{0}b" }))), (422, expect(&["to"])));
    let (status, told) = api.get("events?query=%C2%84");
    assert_eq!((status, &told["code"]), (400, &json!("invalid")), "{told}");
}

/// A name that is no field finds nothing, or everything: it is refused with those that there are.
#[test]
fn a_field_that_nobody_knows_is_refused() {
    let api = Api::serve();
    api.post("workflows", gated("there"));
    for path in ["workflows?query=", "workflow-count?query="] {
        for (query, status) in [("Foo%20%3D%201", 400), ("WorkflowId%20%3D%20%27there%27", 200)] {
            let (told_status, told) = api.get(&format!("{path}{query}"));
            assert_eq!(told_status, status, "{path}{query}: {told}");
            let why = told["message"].as_str().unwrap_or_default();
            assert!(status == 200 || why.contains("`Foo` is no field") && why.contains("ExecutionStatus"), "{told}");
        }
    }
}

/// The first line of the guide to the API starts a run that does what it says.
#[test]
fn the_curl_of_the_guide_starts_a_run_that_completes() {
    let api = Api::serve();
    let guide = include_str!("../../worker/guide/api.md");
    let (_, rest) = guide.split_once("-d '").unwrap();
    let body: Value = serde_json::from_str(rest.split_once('\'').unwrap().0).unwrap();
    let (status, started) = api.post("workflows", body);
    assert_eq!(status, 201, "{started}");
    let id = started["workflow_id"].as_str().unwrap();
    let ended = api.until(&format!("workflows/{id}/result?wait=5s"), |seen| seen["status"] != "Running");
    assert_eq!(ended["status"], "Completed", "{ended}");
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

/// The guide's program, as it stands there: with nothing but Python's standard library.
#[test]
fn the_python_of_the_guide_does_what_it_says() {
    let guide = include_str!("../../worker/guide/api.md");
    let (_, rest) = guide.split_once("```python\n").unwrap();
    let (program, _) = rest.split_once("```").unwrap();
    let api = Api::serve();
    let (_, port) = api.http.endpoint.address.rsplit_once(':').unwrap();
    std::fs::write(api.dir.path().join("ask.py"), program.replace("PORT", port)).unwrap();
    std::fs::write(api.dir.path().join("spec.json"), gated("unused")["input"]["spec"].to_string()).unwrap();
    let ran = std::process::Command::new("python3").arg("ask.py").current_dir(api.dir.path()).output();
    let ran = match ran {
        Ok(ran) => ran,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound && !all_required() => {
            return say("the_python_of_the_guide_does_what_it_says: SKIPPED: there is no python3");
        }
        Err(why) => panic!("python3: {why}"),
    };
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && said.contains("'Completed'"), "{said}");
}

/// A plan under review waits for people too; it is answered by the update that its own text names.
#[test]
fn a_plan_under_review_is_in_the_inbox_of_the_api() {
    let api = Api::serve();
    let mut reviewed = gated("planned");
    reviewed["input"]["spec"]["planning"] = json!({ "approval": { "required": true }, "built_in": ["process"] });
    let cleans = json!({ "id": "clean", "description": "clean up", "capability": "process", "parameters": { "argv": ["true", "old files"] } });
    reviewed["input"]["spec"]["planner"]["script"][0]["say"]["subtasks"].as_array_mut().unwrap().push(cleans);
    assert_eq!(api.post("workflows", reviewed).0, 201);
    let asked = api.until("approvals", |seen| seen["approvals"].as_array().is_some_and(|all| !all.is_empty()));
    let asked = &asked["approvals"][0];
    // What the tasks do is part of what is approved.
    let plan = &asked["request"]["plan"];
    assert_eq!(
        (&plan[0]["action"], &plan[1]["parameters"]["argv"][1]),
        (&json!("publish it"), &json!("old files")),
        "{asked}"
    );
    for words in [["approval", "show", "planned#1"], ["plan", "show", "planned"]] {
        let shown = did(&api.data(), &words);
        assert!(shown.contains("old files") && shown.contains("publish it"), "{words:?}: {shown}");
    }
    assert_eq!((&asked["kind"], &asked["workflow_id"]), (&json!("plan"), &json!("planned")), "{asked}");
    let told = asked["request"]["answer"].as_str().unwrap();
    assert!(told.contains("plan approve planned --version 1"), "{told}");
    let (status, why) = api.post("workflows/planned/answers", json!({ "id": asked["id"], "approved": true }));
    assert_eq!((status, &why["errors"][0]["at"]), (422, &json!("id")), "{why}");
    assert!(why["message"].as_str().unwrap().contains("updates/approve_plan"), "{why}");
    let (status, said) = api.post("workflows/planned/updates/approve_plan", json!({ "version": 1 }));
    assert_eq!(status, 200, "{said}");
    api.until("approvals", |seen| {
        seen["approvals"].as_array().is_some_and(|all| all.iter().all(|one| one["kind"] == "approval"))
    });
}

/// Commands that a program is told are those that a person would run: they name the directory and the namespace.
#[test]
fn a_command_that_the_api_tells_works_as_it_stands() {
    let api = Api::serve();
    let mut asks = gated("asks");
    asks["namespace"] = json!("team");
    assert_eq!(api.post("workflows", asks).0, 201);
    let seen = api.until("workflows/asks?namespace=team", |seen| seen["waiting"][0]["id"].is_string());
    let command = seen["waiting"][0]["answer"].as_str().unwrap();
    assert!(command.starts_with("bosun --data ") && command.ends_with(" --namespace team"), "{command}");
    let bosun = bosun_tests::harness::process::bosun().unwrap();
    let pasted = command.replacen("bosun", &bosun.display().to_string(), 1);
    let elsewhere = tempfile::tempdir().unwrap();
    let ran = std::process::Command::new("sh").args(["-c", &pasted]).current_dir(elsewhere.path()).output().unwrap();
    assert!(ran.status.success(), "{command}: {}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(api.get("workflows/asks/result?namespace=team&wait=20s").1["status"], "Completed");
}

/// Reads server-sent events until one is the last that is wanted: their ids and what they say.
#[track_caller]
fn streamed(api: &Api, path: &str, last_id: Option<&str>, is_last: impl Fn(&Value) -> bool) -> Vec<(String, Value)> {
    let endpoint = &api.http.endpoint;
    let mut stream = TcpStream::connect(&endpoint.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let last_id = last_id.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
    let head = format!(
        "GET /api/v1/{path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n{last_id}\r\n",
        endpoint.address, endpoint.token
    );
    stream.write_all(head.as_bytes()).unwrap();
    let (mut all, mut id, mut data) = (Vec::new(), String::new(), None);
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap_or_else(|why| panic!("{path}: {why}; so far {all:?}"));
        if let Some(given) = line.strip_prefix("id: ") {
            given.clone_into(&mut id);
        } else if let Some(given) = line.strip_prefix("data: ") {
            data = Some(serde_json::from_str::<Value>(given).unwrap());
        } else if line.is_empty()
            && let Some(value) = data.take()
        {
            // An empty line ends an event.
            let over = is_last(&value);
            all.push((std::mem::take(&mut id), value));
            if over {
                break;
            }
        }
    }
    all
}

/// As a browser's `EventSource` does it: the id of the last event is enough to miss nothing and to see nothing twice.
#[test]
fn events_come_as_they_happen_and_go_on_where_a_client_was() {
    let api = Api::serve();
    let listens = std::thread::scope(|threads| {
        let all = threads.spawn(|| {
            streamed(&api, "events?query=WorkflowType%3D'supervisor'", None, |one| {
                one["workflow_id"] == "told" && one["event_type"] == "WorkflowExecutionTerminated"
            })
        });
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(api.post("workflows", gated("told")).0, 201);
        api.until("approvals", |seen| seen["approvals"].as_array().is_some_and(|all| !all.is_empty()));
        assert_eq!(api.post("workflows/told/terminate", json!({ "reason": "enough" })).0, 200);
        all.join().unwrap()
    });
    assert_eq!(listens[0].1["event_type"], "WorkflowExecutionStarted", "{:?}", listens[0]);
    let ended = |one: &Value| one["event_type"] == "WorkflowExecutionTerminated";
    let own = streamed(&api, "workflows/told/events", None, ended);
    let numbers: Vec<u64> = own.iter().map(|(_, event)| event["event_id"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "each event once, in order");
    let ids: Vec<u64> = own.iter().map(|(id, _)| id.parse().unwrap()).collect();
    assert_eq!(ids, numbers, "an id is the number of its event");
    assert_eq!(listens.len(), own.len(), "all that happened was told to who listened to all: {listens:?}");
    let rest = streamed(&api, "workflows/told/events", Some("3"), ended);
    assert_eq!((rest.len(), rest[0].0.as_str()), (own.len() - 3, "4"));
    // Of many runs each event has an id too: also one in the middle of a commit.
    assert!(listens.windows(2).any(|two| two[0].0.split('.').next() == two[1].0.split('.').next()), "{listens:?}");
    for known in 0..listens.len() - 1 {
        let again =
            streamed(&api, "events?query=WorkflowType%3D'supervisor'", Some(&listens[known].0), |one| ended(one));
        assert_eq!(again, listens[known + 1..], "after {:?}", listens[known]);
    }
    assert_eq!(api.get("workflows/nobody/events").0, 404, "told before a stream begins");
}

#[test]
fn a_program_forks_a_run_after_its_dry_run() {
    let api = Api::serve();
    let script = json!({ "workflow_type": "order-saga", "workflow_id": "order", "input": { "order_id": "o-1", "items": [{ "sku": "tea", "quantity": 1 }], "cents": 5 } });
    assert_eq!(api.post("workflows", script).0, 201);
    api.until("workflows/order/result?wait=10s", |seen| seen["status"] != "Running");
    let (_, history) = api.get("workflows/order/history?limit=1000");
    let first = history["events"].as_array().unwrap().iter().find(|one| one["event_type"] == "ActivityTaskScheduled");
    let activity = first.unwrap()["attributes"]["activity_type"].as_str().unwrap().to_owned();
    let change = json!([{ "set": "failure", "of": format!("{activity}#1"), "message": "sold out" }]);
    let (status, told) =
        api.post("workflows/order/forks", json!({ "workflow_id": "other", "changes": change, "dry_run": true }));
    assert_eq!((status, &told["newly_started"]), (200, &json!(false)), "{told}");
    assert!(told["plan"]["told"].as_array().is_some_and(|told| !told.is_empty()), "{told}");
    assert_eq!(api.get("workflows/other").0, 404, "a dry run writes nothing");
    let (status, forked) = api.post("workflows/order/forks", json!({ "workflow_id": "other", "changes": change }));
    assert_eq!((status, &forked["forked_from"]["workflow_id"]), (201, &json!("order")), "{forked}");
    let end = api.until("workflows/other/result?wait=10s", |seen| seen["status"] != "Running");
    assert!(end.to_string().contains("sold out"), "it went the other way: {end}");
    // All that is wrong is told at once, and nothing is forked.
    let bad = json!({ "at": "x", "reapply": "all", "changes": [{ "set": "nothing" }], "more": 1 });
    let (status, why) = api.post("workflows/order/forks", bad);
    let places: Vec<&str> = why["errors"].as_array().unwrap().iter().filter_map(|one| one["at"].as_str()).collect();
    assert_eq!((status, places), (422, vec!["at", "reapply", "changes[0].set", "more"]), "{why}");
}

/// What a page shows of a run, a program gets too: its state at any event, its file, and how many there are.
#[test]
fn a_run_is_counted_kept_as_a_file_and_seen_as_it_was() {
    let api = Api::serve();
    assert_eq!(api.post("workflows", gated("story")).0, 201);
    api.until("approvals", |seen| seen["approvals"].as_array().is_some_and(|all| !all.is_empty()));
    assert_eq!(api.get("workflow-count?query=WorkflowType%20%3D%20'supervisor'"), (200, json!({ "count": 1 })));
    assert_eq!(api.get("workflow-count?query=nonsense%20(").0, 400);
    for list in ["workflow-count", "approvals"] {
        assert_eq!(api.get(&format!("{list}?query=Nonsense%20%3D%201")).0, 400, "{list}: a name that nobody knows");
    }
    assert_eq!(api.get("events?query=Status%20%3D%201").0, 400, "a field that is written otherwise");
    let (status, now) = api.get("workflows/story/state");
    assert_eq!((status, &now["replay"]), (200, &json!({ "fits": true })), "{now}");
    assert_eq!(now["event_id"], now["last_event_id"], "the last one, unless another one is named");
    let (_, first) = api.get("workflows/story/state?at=1");
    assert_eq!((&first["event_id"], &first["event_type"]), (&json!(1), &json!("WorkflowExecutionStarted")), "{first}");
    assert_ne!(first["state"], now["state"]);
    assert!(now["pending"].as_array().is_some_and(|all| !all.is_empty()), "{now}");
    assert_eq!(api.get("workflows/nobody/state").0, 404);
    for (form, kind, holds) in [
        ("", "application/json", "WorkflowExecutionStarted"),
        ("?as=html", "text/html; charset=utf-8", "<h1>story</h1>"),
        ("?as=mermaid", "text/plain; charset=utf-8", "sequenceDiagram"),
        ("?as=perfetto", "application/json", "traceEvents"),
    ] {
        let file = api.http.request("GET", &format!("/api/v1/workflows/story/export{form}"), None).unwrap();
        let text = String::from_utf8_lossy(&file.body);
        assert!(file.status == 200 && text.contains(holds), "{form} ({kind}): {text}");
    }
    let (status, why) = api.get("workflows/story/export?as=pdf");
    assert!(status == 400 && why["message"].as_str().unwrap().contains("json, html, mermaid, perfetto"), "{why}");
}

/// A start that brings a signal or an update, and an attempt that somebody else ends.
#[test]
fn a_start_brings_a_message_and_an_attempt_is_ended_from_outside() {
    let api = Api::serve();
    let waits = json!([{ "wait_signal": { "name": "go", "as": "said" } }, { "return": "$said" }]);
    let start = json!({ "workflow_type": "kitchen-sink", "workflow_id": "told", "input": { "steps": waits },
        "signal": { "name": "go", "input": { "n": 7 } } });
    let (status, told) = api.post("workflows", start.clone());
    assert_eq!((status, &told["newly_started"]), (201, &json!(true)), "{told}");
    let (_, end) = api.get("workflows/told/result?wait=20s");
    assert_eq!((&end["status"], &end["result"]), (&json!("Completed"), &json!({ "n": 7 })), "{end}");
    let both = json!({ "workflow_type": "kitchen-sink", "signal": { "name": "a" }, "update": { "name": "b" } });
    let (status, why) = api.post("workflows", both);
    assert_eq!((status, &why["errors"][0]["at"]), (422, &json!("update")), "{why}");

    let mut reviewed = gated("planned");
    reviewed["update"] = json!({ "name": "report_incident", "input": { "severity": "minor" } });
    let (status, told) = api.post("workflows", reviewed);
    assert!(status == 201 && told["update"]["failure"].is_null(), "{told}");
    let id = told["update"]["update_id"].as_str().unwrap();
    let (status, again) = api.get(&format!("workflows/planned/updates/{id}/result"));
    assert_eq!((status, &again), (200, &told["update"]), "{again}");

    let long = json!([{ "activity": { "type": "process", "input": { "argv": ["sleep", "600"] }, "as": "said" } },
        { "return": "$said" }]);
    let start = json!({ "workflow_type": "kitchen-sink", "workflow_id": "long", "input": { "steps": long } });
    assert_eq!(api.post("workflows", start).0, 201);
    let seen = api.until("workflows/long", |seen| seen["pending_activities"][0]["task_token"].is_string());
    let activity = &seen["pending_activities"][0];
    let path = format!("activities/{}", activity["task_token"].as_str().unwrap());
    assert_eq!(api.post(&path, json!({ "heartbeat": { "half": true } })).0, 200);
    let (status, why) = api.post(&path, json!({ "result": 1, "failure": { "message": "no" } }));
    assert!(status == 422 && why["message"].as_str().unwrap().contains("say one of"), "{why}");
    let hold = |verb: &str| {
        api.post(&format!("workflows/long/activities/{}/{verb}", activity["activity_id"].as_str().unwrap()), json!({}))
            .0
    };
    assert_eq!((hold("pause"), hold("resume")), (200, 200));
    assert_eq!(api.post(&path, json!({ "result": { "by": "hand" } })).0, 200);
    let (_, end) = api.get("workflows/long/result?wait=20s");
    assert_eq!(end["status"], "Completed", "{end}");
    assert!(api.post(&path, json!({ "result": 2 })).0 >= 400, "it is over");
    assert_eq!(api.post("activities/nonsense", json!({ "result": 2 })).0, 400);
}

#[test]
fn the_worker_its_store_its_agents_and_its_schedules_are_told() {
    let api = Api::serve();
    assert_eq!(api.post("workflows", gated("story")).0, 201);
    api.until("approvals", |seen| seen["approvals"].as_array().is_some_and(|all| !all.is_empty()));
    let (status, worker) = api.get("worker");
    assert_eq!((status, &worker["health"]["status"]), (200, &json!("ready")), "{worker}");
    assert!(worker["slots"]["all"].as_u64() > Some(0), "{worker}");
    assert!(worker["workflow_types"].as_array().unwrap().contains(&json!("supervisor")), "{worker}");
    let (status, store) = api.get("store");
    assert!(status == 200 && store["runs_open"].as_u64() >= Some(1), "{store}");
    assert_eq!(api.post("store/verify", json!({})).0, 200);
    let (status, why) = api.post("store/backup", json!({ "to": "here" }));
    assert_eq!((status, &why["errors"][0]["at"]), (422, &json!("to")), "{why}");
    let to = api.dir.path().join("copy");
    let (status, why) = api.post("store/backup", json!({ "to": to }));
    assert!(status == 200 && to.is_dir(), "{why}");
    let (status, why) = api.post("store/backup", json!({ "to": to }));
    assert!(status == 409 && why["message"].as_str().unwrap().contains("choose a new directory"), "{why}");
    let (status, why) = api.post("batches", json!({ "query": "", "action": { "do": "pause" }, "batch_id": "" }));
    assert_eq!((status, &why["errors"][0]["at"]), (422, &json!("batch_id")), "{why}");
    // The points of a reset are those that a reset of one run has.
    let back =
        json!({ "query": "WorkflowType = 'nothing'", "action": { "do": "reset", "to": "event:3" }, "dry_run": true });
    let (status, told) = api.post("batches", back);
    assert_eq!((status, &told["count"]), (200, &json!(0)), "{told}");
    let (status, agents) = api.get("agents");
    assert_eq!(status, 200, "{agents}");
    let trust = &agents["trust"][0];
    assert_eq!((&trust["workflow_id"], &trust["trust"]["level"]), (&json!("story"), &json!("proficient")), "{agents}");
    assert_eq!(api.get("schedules"), (200, json!({ "schedules": [], "next_cursor": null })));
    let schedule = json!({ "spec": { "intervals": [{ "every": "1h" }] }, "action": { "workflow_type": "kitchen-sink",
        "workflow_id": "sync", "input": { "steps": [] } } });
    let start = json!({ "workflow_type": "bosun.schedule", "workflow_id": "schedule:sync",
        "input": { "schedule_id": "sync", "schedule": schedule } });
    let (status, why) = api.post("workflows", start);
    assert_eq!(status, 201, "{why}");
    let seen = api.until("schedules", |seen| seen["schedules"][0]["description"]["next"].is_object());
    let sync = &seen["schedules"][0];
    assert_eq!((&sync["schedule_id"], &sync["state"]), (&json!("sync"), &json!("active")), "{seen}");
}

/// One part of a body hides no other: what is wrong with each is told at once.
#[test]
fn no_part_of_a_body_hides_what_is_wrong_with_another() {
    let api = Api::serve();
    let places = |(status, told): (u16, Value)| {
        let places: Vec<String> =
            told["errors"].as_array().into_iter().flatten().map(|one| one["at"].as_str().unwrap().to_owned()).collect();
        (status, places)
    };
    let expect = |at: &[&str]| at.iter().map(|&at| at.to_owned()).collect::<Vec<_>>();
    let schedule = json!({ "spec": { "cron": ["zz"] }, "action": { "workflow_type": "no-such-type" }, "stat": {} });
    let wrong = [
        "schedule_id",
        "schedule.spec.cron[0]",
        "schedule.action.workflow_id",
        "schedule.stat",
        "schedule.action.workflow_type",
    ];
    let mut told = places(api.post("schedules", json!({ "schedule": schedule })));
    let mut wanted = expect(&wrong);
    told.1.sort();
    wanted.sort();
    assert_eq!(told, (422, wanted));
    let empty = json!({ "schedule_id": "s", "schedule": { "spec": {} } });
    assert_eq!(places(api.post("schedules", empty)), (422, expect(&["schedule.spec", "schedule.action"])));
    // Alone each is refused as before.
    let alone = json!({ "schedule_id": "s", "schedule": { "spec": { "intervals": [{ "every": "1h" }] },
        "action": { "workflow_type": "no-such-type", "workflow_id": "w" } } });
    let (status, told) = api.post("schedules", alone);
    assert!(status >= 400 && told["message"].as_str().unwrap().contains("no-such-type"), "{status} {told}");
    let batch = json!({ "query": "x", "action": { "do": "zz" } });
    let (status, mut told) = places(api.post("batches", batch));
    told.sort();
    assert_eq!((status, told), (422, expect(&["action", "query"])));
    assert_eq!(api.get("schedules").1["schedules"], json!([]), "nothing was made");
}
