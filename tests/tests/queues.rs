//! Priorities of runs and standalone activities, and who waits in a task queue, by the shipped binary (E25, E36): what
//! the command line and the API say is the order in which a worker with one slot works.

use std::path::Path;
use std::time::{Duration, Instant};

use bosun_tests::harness::binary::{object, run, said};
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::http::Http;
use bosun_tests::harness::process::{Program, WorkerProcess, bosun};
use serde_json::{Value, json};

fn until(what: &str, mut there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !there() {
        assert!(began.elapsed() < READY_MAX, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ask(http: &Http, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let body = body.map(ToString::to_string);
    let answer = http.request(method, path, body.as_ref().map(String::as_bytes)).unwrap();
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}

/// The input of a command that notes its name, after it was let go.
fn noting(home: &Path, name: &str) -> Value {
    let (noted, go) = (home.join("noted"), home.join("go"));
    let script = format!(
        "echo {name} begins >> '{0}'; while [ ! -e '{1}' ]; do sleep 0.02; done; echo 1",
        noted.display(),
        go.display()
    );
    json!({ "argv": ["sh", "-c", script] })
}

#[test]
fn runs_and_activities_take_the_slot_by_their_priority_and_the_queue_says_whose_turn_is_next() {
    let home = tempfile::tempdir().unwrap();
    let (home, data) = (home.path(), home.path().join("data"));
    let program = Program::new(bosun().unwrap(), &["worker", "run", "--slots", "1"]);
    let (worker, http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    let lines = || std::fs::read_to_string(home.join("noted")).unwrap_or_default().lines().count();
    let first = json!({ "activity_type": "process", "activity_id": "first", "input": noting(home, "first") });
    let (status, started) = ask(&http, "POST", "/api/v1/standalone-activities", Some(&first));
    assert_eq!((status, &started["workflow_id"]), (201, &json!("activity:first")), "{started}");
    let (status, again) = ask(&http, "POST", "/api/v1/standalone-activities", Some(&first));
    assert_eq!((status, &again["run_id"]), (200, &started["run_id"]), "{again}");
    until("the first has the slot", || lines() == 1);

    // The least urgent one asks first.
    let late = json!({
        "activity_type": "process", "activity_id": "late", "input": noting(home, "late"),
        "priority": { "priority_key": 5, "fairness_key": "acme", "fairness_weight": 2 },
    });
    assert_eq!(ask(&http, "POST", "/api/v1/standalone-activities", Some(&late)).0, 201);
    let steps = |name: &str| {
        json!({ "steps": [{ "activity": { "type": "process", "input": noting(home, name) } }] }).to_string()
    };
    let usual = run(&data, &["start", "kitchen-sink", "-w", "usual", "-i", &steps("usual")]);
    assert!(usual.status.success(), "{}", said(&usual));
    // A run gives its priority to its activities and to the children that it starts.
    let child = json!({ "steps": [{ "child": { "type": "kitchen-sink", "id": "below",
        "input": { "steps": [{ "activity": { "type": "process", "input": noting(home, "urgent") } }] } } }] });
    let urgent = ["start", "kitchen-sink", "-w", "above", "--priority", "1", "-i", &child.to_string()];
    let urgent = run(&data, &urgent);
    assert!(urgent.status.success(), "{}", said(&urgent));

    until("three wait", || object(&run(&data, &["queue", "list", "-o", "json"]))["task_queues"][0]["waiting"] == 3);
    let queue = object(&run(&data, &["queue", "describe", "default", "-o", "json"]));
    assert_eq!([&queue["running"], &queue["waiting"], &queue["served"]], [&json!(1), &json!(3), &json!(true)]);
    let order: Vec<[&Value; 3]> = queue["who_waits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| [&one["priority_key"], &one["workflow_id"], &one["fairness_key"]])
        .collect();
    let null = Value::Null;
    let (below, usual, acme) = (json!("below"), json!("usual"), json!("acme"));
    assert_eq!(order, [[&json!(1), &below, &null], [&json!(3), &usual, &null], [&json!(5), &null, &acme]]);
    let (status, told) = ask(&http, "GET", "/api/v1/queues/default", None);
    assert_eq!((status, &told["who_waits"]), (200, &queue["who_waits"]), "the API tells the same");
    let text = said(&run(&data, &["queue", "describe", "default"]));
    assert!(text.contains("1 waiting: priority 5, acme x 2"), "{text}");

    std::fs::write(home.join("go"), "").unwrap();
    for id in ["first", "late"] {
        let path = format!("/api/v1/standalone-activities/{id}/result?wait=20s");
        until("it has ended", || ask(&http, "GET", &path, None).0 == 200);
    }
    let noted = std::fs::read_to_string(home.join("noted")).unwrap();
    assert_eq!(noted.lines().collect::<Vec<_>>(), ["first begins", "urgent begins", "usual begins", "late begins"]);
    drop(worker);
}

/// What waits for a slot says so, and for which, wherever one looks.
#[test]
fn what_waits_for_a_slot_says_so() {
    let home = tempfile::tempdir().unwrap();
    let (home, data) = (home.path(), home.path().join("data"));
    let program = Program::new(bosun().unwrap(), &["worker", "run", "--external-slots", "1"]);
    let (_worker, http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    let start = |id: &str| {
        let steps = json!([{ "activity": { "type": "process", "input": noting(home, id) } }]);
        let body = json!({ "workflow_type": "kitchen-sink", "workflow_id": id, "input": { "steps": steps } });
        assert_eq!(ask(&http, "POST", "/api/v1/workflows", Some(&body)).0, 201);
    };
    start("first");
    until("the first has the slot", || std::fs::read_to_string(home.join("noted")).is_ok());
    start("second");
    for words in [&["describe", "second"][..], &["list"], &["top", "--once"]] {
        let says = || said(&run(&data, words)).contains("it waits for a slot: all 1 for programs");
        until(&format!("{words:?} says nothing of the slot: {}", said(&run(&data, words))), says);
    }
    assert!(!said(&run(&data, &["describe", "first"])).contains("waits for a slot"));
    std::fs::write(home.join("go"), "").unwrap();
    for id in ["first", "second"] {
        let ended = run(&data, &["result", id]);
        assert!(ended.status.success(), "{}", said(&ended));
    }
}

/// The queue that is full is the activity's own, whatever the one of its run is.
#[test]
fn who_waits_for_a_slot_of_a_queue_is_told_which() {
    let home = tempfile::tempdir().unwrap();
    let (home, data) = (home.path(), home.path().join("data"));
    let words = ["worker", "run", "--queue", "default", "--queue", "narrow", "--queue-limit", "narrow=1"];
    let (_worker, http) = WorkerProcess::start(&Program::new(bosun().unwrap(), &words), &data, READY_MAX).unwrap();
    let one = |name: &str| json!([{ "activity": { "type": "process", "task_queue": "narrow", "input": noting(home, name) } }]);
    let steps = json!([{ "parallel": [one("a"), one("b")] }]);
    let body = json!({ "workflow_type": "kitchen-sink", "workflow_id": "two", "input": { "steps": steps } });
    assert_eq!(ask(&http, "POST", "/api/v1/workflows", Some(&body)).0, 201);
    until("one has the slot", || std::fs::read_to_string(home.join("noted")).is_ok());
    let says =
        || said(&run(&data, &["describe", "two"])).contains("a slot of its task queue narrow, of which 1 may run");
    until(&format!("nothing of the slot: {}", said(&run(&data, &["describe", "two"]))), says);
    std::fs::write(home.join("go"), "").unwrap();
    let ended = run(&data, &["result", "two"]);
    assert!(ended.status.success(), "{}", said(&ended));
}

/// No activity of this type is there to be started, now or later.
#[test]
fn an_activity_that_nobody_has_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let program = Program::new(bosun().unwrap(), &["worker", "run"]);
    let (_worker, http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    let body = json!({ "activity_type": "proces", "activity_id": "a", "input": {} });
    let (status, why) = ask(&http, "POST", "/api/v1/standalone-activities", Some(&body));
    assert_eq!(status, 404, "as a workflow type that is not there: {why}");
    assert!(why.to_string().contains("no activity of the type proces") && why.to_string().contains("process"), "{why}");
    let (status, listed) = ask(&http, "GET", "/api/v1/workflows", None);
    assert_eq!((status, listed["workflows"].as_array().map(Vec::len)), (200, Some(0)), "{listed}");
}

#[test]
fn an_activity_alone_is_canceled_over_the_api_and_what_is_wrong_with_one_is_said_by_its_place() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let program = Program::new(bosun().unwrap(), &["worker", "run"]);
    let (mut worker, http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    let wrong =
        json!({ "activity_type": "process", "priority": { "priority_key": 9 }, "heartbeat": "soon", "idd": "x" });
    let (status, refused) = ask(&http, "POST", "/api/v1/standalone-activities", Some(&wrong));
    let places: Vec<&str> =
        refused["errors"].as_array().unwrap().iter().filter_map(|error| error["at"].as_str()).collect();
    assert_eq!((status, places), (422, vec!["heartbeat", "priority.priority_key", "idd"]), "{refused}");
    let own = json!({ "activity_type": "bosun.batch.page" });
    let (status, refused) = ask(&http, "POST", "/api/v1/standalone-activities", Some(&own));
    assert_eq!(status / 100, 4, "{refused}");

    let long = json!({ "activity_type": "process", "activity_id": "long", "input": { "argv": ["sleep", "600"] } });
    assert_eq!(ask(&http, "POST", "/api/v1/standalone-activities", Some(&long)).0, 201);
    assert_eq!(ask(&http, "GET", "/api/v1/standalone-activities/long/result", None).0, 202);
    let pending = || ask(&http, "GET", "/api/v1/standalone-activities/long", None).1["pending_activities"].clone();
    until("it is under way", || pending()[0]["state"].is_string());
    assert_eq!(ask(&http, "POST", "/api/v1/standalone-activities/long/cancel", Some(&json!({}))).0, 202);
    let ended = || ask(&http, "GET", "/api/v1/standalone-activities/long/result?wait=20s", None);
    until("it has ended", || ended().0 == 200);
    assert_eq!(ended().1["status"], "Canceled", "{}", ended().1);
    assert_eq!(ask(&http, "GET", "/api/v1/standalone-activities/none", None).0, 404);

    // Without a worker the queue is looked at all the same.
    worker.terminate().unwrap();
    worker.wait(READY_MAX).unwrap();
    let input = json!({ "argv": ["true"] }).to_string();
    let waits = ["activity", "start", "process", "--id", "waits", "-q", "mail", "--priority", "2", "-i", &input];
    assert!(run(&data, &waits).status.success());
    let queue = object(&run(&data, &["queue", "describe", "mail", "-o", "json"]));
    assert_eq!([&queue["waiting"], &queue["served"]], [&json!(1), &json!(false)], "{queue}");
    assert_eq!(queue["who_waits"][0]["priority_key"], 2, "{queue}");
}

/// A token for one namespace is told all that waits there, and of nothing else; also where a hundred others wait before.
#[test]
fn a_token_for_a_namespace_is_told_who_waits_there_however_many_wait_elsewhere() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let program =
        Program::new(bosun().unwrap(), &["worker", "run", "--slots", "1", "--queue", "default", "--queue", "mail"]);
    let (worker, http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    let starts = |id: &str, namespace: &str| {
        let input = json!({ "activity_type": "process", "activity_id": id, "namespace": namespace,
            "input": { "argv": ["sleep", "600"] } });
        let (status, started) = ask(&http, "POST", "/api/v1/standalone-activities", Some(&input));
        assert_eq!(status, 201, "{started}");
    };
    starts("first", "default");
    let busy = || ask(&http, "GET", "/api/v1/queues/default", None).1["running"] == 1;
    until("the first has the slot", busy);
    (0..120).for_each(|n| starts(&format!("other-{n}"), "default"));
    starts("ours", "shop");
    starts("theirs", "team");
    let queue = || object(&run(&data, &["queue", "describe", "default", "-o", "json"]));
    until("all wait", || queue()["waiting"] == 122);
    let all = queue()["who_waits"].as_array().unwrap().clone();
    let places: Vec<&Value> = all.iter().map(|one| &one["namespace"]).collect();
    assert_eq!(places.len(), 100);
    assert_eq!(places[..4], ["default", "shop", "team", "default"], "namespaces take turns");
    let text = said(&run(&data, &["queue", "describe", "default"]));
    assert!(text.contains("1 waiting: priority 3, activity:ours, in shop"), "{text}");

    let token = home.path().join("token");
    let made = run(&data, &["token", "create", "shop", "--role", "viewer", "--only-namespace", "shop", "-o", "json"]);
    std::fs::write(&token, object(&made)["token"].as_str().unwrap()).unwrap();
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let seen = |queue: &str, more: &[&str]| {
        let words = [&["queue", "describe", queue, "--token-file", token.to_str().unwrap()], more].concat();
        run(&data, &words)
    };
    let told = object(&seen("default", &["-o", "json"]));
    let who = told["who_waits"].as_array().unwrap();
    assert_eq!((who.len(), &who[0]["workflow_id"]), (1, &json!("activity:ours")), "{told}");
    assert_eq!((&told["served"], &told["waiting"]), (&json!(true), &json!(1)), "{told}");
    // Whether a queue is served in which nothing of it waits, it is not told wrongly.
    for queue in ["mail", "none"] {
        assert_eq!(object(&seen(queue, &["-o", "json"]))["served"], Value::Null);
    }
    let text = said(&seen("mail", &[]));
    assert!(text.contains("not known"), "{text}");
    assert_eq!(object(&run(&data, &["queue", "describe", "none", "-o", "json"]))["served"], false);
    drop(worker);
}

/// An agent whose entry in a spec names a priority is served by it, and nobody else is.
#[test]
fn the_work_of_an_agent_has_the_place_that_its_spec_names() {
    let api = crate::people_api::Api::serve();
    let mut wrong = crate::people_api::gated("wrong");
    wrong["input"]["spec"]["agents"][0]["priority"] = json!({ "priority_key": 9 });
    let (status, why) = api.post("workflows", wrong);
    assert_eq!((status, &why["errors"][0]["at"]), (422, &json!("input.spec.agents[0].priority")), "{why}");
    let mut urgent = crate::people_api::gated("urgent");
    urgent["input"]["spec"]["agents"][0]["priority"] = json!({ "priority_key": 1, "fairness_key": "acme" });
    assert_eq!(api.post("workflows", urgent).0, 201);
    let asked = api.until("approvals", |seen| seen["approvals"].as_array().is_some_and(|all| !all.is_empty()));
    let yes = json!({ "id": asked["approvals"][0]["id"], "approved": true });
    assert_eq!(api.post("workflows/urgent/answers", yes).0, 202);
    assert_eq!(api.get("workflows/urgent/result?wait=20s").1["status"], "Completed");
    let (_, history) = api.get("workflows/urgent/history?limit=1000");
    let scheduled =
        history["events"].as_array().unwrap().iter().filter(|one| one["event_type"] == "ActivityTaskScheduled");
    let places: Vec<(bool, &Value)> = scheduled
        .map(|one| &one["attributes"])
        .map(|task| {
            (task["input"].to_string().contains("execute_worker"), &task["options"]["priority"]["priority_key"])
        })
        .collect();
    let (works, others): (Vec<_>, Vec<_>) = places.iter().partition(|(works, _)| *works);
    assert!(!works.is_empty() && works.iter().all(|(_, key)| **key == json!(1)), "{history}");
    assert!(!others.is_empty() && others.iter().all(|(_, key)| key.is_null()), "{history}");
}
