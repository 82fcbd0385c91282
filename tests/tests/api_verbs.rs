//! What programs do by the HTTP API as people do by the command line: schedules, more budget, a wait for what is asked; and one
//! key for one request, over restarts.
//!
//! Real workers on real directories, plain JSON.

use std::time::Duration;

use bosun_tests::harness::http::Http;
use bosun_tests::harness::process::REQUEST_MAX;
use serde_json::{Value, json};

use crate::people_api::{Api, gated};

fn start(id: &str, steps: Value) -> Value {
    json!({ "workflow_type": "kitchen-sink", "workflow_id": id, "input": { "steps": steps } })
}

/// What could not be started is not scheduled, and a point that is none is refused with its place.
#[test]
fn what_cannot_be_is_refused_when_it_is_asked_for() {
    let api = Api::serve();
    let body = |workflow_type: &str, input: Value| {
        json!({ "schedule_id": "s", "schedule": { "spec": { "cron": ["0 2 * * *"] },
            "action": { "workflow_type": workflow_type, "workflow_id": "w", "input": input } } })
    };
    for (workflow_type, input, says) in
        [("order-sagas", json!({}), "order-sagas"), ("order-saga", json!(7), "the input of the workflow order-saga")]
    {
        let (status, why) = api.post("schedules", body(workflow_type, input));
        assert!(status >= 400 && why.to_string().contains(says), "{workflow_type}: {status} {why}");
    }
    let well = body("kitchen-sink", json!({ "steps": [] }));
    assert_eq!(api.post("schedules", well).0, 201);
    let other = body("order-sagas", json!({}))["schedule"].clone();
    let (status, why) = api.post("schedules/s/update", json!({ "schedule": other }));
    assert!(status >= 400 && why.to_string().contains("order-sagas"), "{status} {why}");
    assert_eq!(api.get("schedules/s").1["description"]["schedule"]["action"]["workflow_type"], "kitchen-sink");

    // Whoever sends an input is told of it, and of no type in the code that reads it.
    let order = json!({ "workflow_type": "order-saga", "input": { "order_id": 1, "items": [], "cents": 1 } });
    let (status, why) = api.post("workflows", order);
    assert_eq!((status, &why["errors"][0]["at"]), (400, &json!("input.order_id")), "{why}");
    let reason = why["errors"][0]["why"].as_str().unwrap();
    assert!(reason.starts_with("invalid type: integer") && !why.to_string().contains("::"), "{why}");
    assert_eq!(api.post("workflows", start("w", json!([{ "wait_signal": { "name": "go" } }]))).0, 201);
    for at in ["99", "0"] {
        let (status, why) = api.get(&format!("workflows/w/state?at={at}"));
        assert!(status == 400 && why.to_string().contains("the history has"), "{at}: {status} {why}");
    }
    let (status, why) = api.post("workflows/w/forks", json!({ "at": 0 }));
    assert_eq!((status, &why["errors"][0]["at"]), (422, &json!("at")), "{why}");
    let (status, why) = api.post("batches", json!({ "query": "", "action": { "do": "terminate" } }));
    assert!(status >= 400 && why.to_string().contains("would mean every run"), "{status} {why}");
}

#[test]
fn a_program_makes_changes_and_removes_a_schedule() {
    let api = Api::serve();
    let schedule = |cron: &str| {
        json!({ "spec": { "cron": [cron], "time_zone": "Europe/Berlin" },
            "action": { "workflow_type": "kitchen-sink", "workflow_id": "night", "input": { "steps": [] } } })
    };
    let body = |cron: &str| json!({ "schedule_id": "nightly", "schedule": schedule(cron) });
    let key = ["Idempotency-Key: nightly 1"];
    let (status, made) = api.ask("POST", "schedules", Some(&body("0 2 * * *")), &key);
    assert_eq!((status, &made["workflow_id"]), (201, &json!("schedule:nightly")), "{made}");
    let (status, again) = api.ask("POST", "schedules", Some(&body("0 2 * * *")), &key);
    assert_eq!((status, &again["run_id"]), (200, &made["run_id"]), "{again}");
    let (status, other) = api.ask("POST", "schedules", Some(&body("0 3 * * *")), &key);
    assert_eq!((status, &other["code"]), (422, &json!("idempotency_key_reused")), "{other}");
    assert_eq!(api.post("schedules", body("0 3 * * *")).0, 409, "there is one of this id");

    // Everything that is wrong is told with its place, and nothing is made.
    let mut bad = body("99 * * * *");
    bad["schedule_id"] = json!("other");
    let (status, why) = api.post("schedules", bad);
    assert_eq!((status, &why["errors"][0]["at"]), (422, &json!("schedule.spec.cron[0]")), "{why}");
    let (status, why) = api.post("schedules", json!({ "schedul_id": "x" }));
    let places: Vec<&str> = why["errors"].as_array().unwrap().iter().filter_map(|one| one["at"].as_str()).collect();
    assert_eq!((status, places), (422, vec!["schedule_id", "schedule", "schedul_id"]), "{why}");
    assert_eq!(api.get("schedules").1["schedules"].as_array().unwrap().len(), 1);

    let described = || api.get("schedules/nightly").1["description"].clone();
    let seen = described();
    assert_eq!(seen["schedule"]["spec"]["cron"], json!(["0 2 * * *"]), "{seen}");
    let (status, paused) = api.post("schedules/nightly/pause", json!({ "note": "holidays" }));
    assert_eq!(status, 200, "{paused}");
    let now = described();
    assert_eq!(now["schedule"]["state"], json!({ "paused": true, "note": "holidays" }), "{now}");
    assert_eq!(api.get("schedules/nightly").1["state"], "paused");
    // A change of what somebody else has changed since is refused.
    let update = |version: &Value| json!({ "schedule": schedule("30 4 * * *"), "version": version });
    let (status, stale) = api.post("schedules/nightly/update", update(&seen["version"]));
    assert!(status == 422 && stale["message"].as_str().unwrap().contains("changed meanwhile"), "{status} {stale}");
    let (status, done) = api.post("schedules/nightly/update", update(&now["version"]));
    assert_eq!(status, 200, "{done}");
    assert_eq!(described()["schedule"]["spec"]["cron"], json!(["30 4 * * *"]));
    assert_eq!(api.post("schedules/nightly/unpause", Value::Null).0, 200);

    let started = |many: usize| {
        api.until("workflows?query=WorkflowType%20%3D%20%27kitchen-sink%27", |seen| {
            seen["workflows"].as_array().is_some_and(|all| all.len() == many)
        })
    };
    let trigger =
        |key: &str| api.ask("POST", "schedules/nightly/trigger", Some(&json!({ "overlap": "allow_all" })), &[key]);
    let (status, triggered) = trigger("Idempotency-Key: now 1");
    assert!(status == 200 && triggered["nominal"].is_string(), "{status} {triggered}");
    assert_eq!(triggered["became"], "started", "{triggered}");
    assert_eq!(trigger("Idempotency-Key: now 1").1["nominal"], triggered["nominal"], "the same trigger");
    started(1);
    let range =
        json!({ "start_time": "2026-03-01T00:00:00Z", "end_time": "2026-03-03T00:00:00Z", "overlap": "allow_all" });
    assert_eq!(api.post("schedules/nightly/backfill", range).0, 200);
    started(3);
    let backwards = json!({ "start_time": "2026-03-03T00:00:00Z", "end_time": "2026-03-01T00:00:00Z" });
    assert_eq!(api.post("schedules/nightly/backfill", backwards).0, 422);

    assert_eq!(api.ask("DELETE", "schedules/nightly", None, &[]).0, 200);
    for path in ["schedules/nightly", "schedules/nobody"] {
        assert_eq!(api.get(path).0, 404, "{path}");
    }
    assert_eq!(api.post("schedules/nightly/pause", Value::Null).0, 404);
    started(3);
}

#[test]
fn a_program_gives_a_run_more_budget_and_it_goes_on() {
    let api = Api::serve();
    let mut poor = gated("poor");
    poor["input"]["spec"]["budget"] = json!({ "llm_calls": 1, "on_exhausted": "ask" });
    let task = |id: &str| json!({ "id": id, "description": format!("tell {id}") });
    poor["input"]["spec"]["planner"]["script"][0]["say"]["subtasks"] = json!([task("one"), task("two")]);
    assert_eq!(api.post("workflows", poor).0, 201);
    assert_eq!(api.post("workflows", start("plain", json!([{ "wait_signal": { "name": "go" } }]))).0, 201);
    let paused = |spent: &str| {
        let spent = spent.to_owned();
        api.until("approvals", move |seen| seen.to_string().contains(&spent));
    };
    let budget = || api.post("workflows/poor/queries/budget", Value::Null).1["result"].clone();
    paused("1 of 1 calls are spent");

    // What is not there cannot be raised, and what says nothing gives nothing.
    for (body, wanted) in [
        (json!({}), 422),
        (json!({ "calls": "1" }), 422),
        (json!({ "allow_unpriced": false }), 422),
        (json!({ "cals": 1 }), 422),
        (json!({ "tokens": 5 }), 409),
        (json!({ "allow_unpriced": true }), 409),
        (json!({ "wall": "5m" }), 409),
    ] {
        let (status, why) = api.post("workflows/poor/budget/top-up", body.clone());
        assert_eq!(status, wanted, "{body}: {why}");
    }
    assert_eq!(api.post("workflows/plain/budget/top-up", json!({ "calls": 1 })).1["code"], "no_such_budget");
    assert_eq!(api.post("workflows/nobody/budget/top-up", json!({ "calls": 1 })).0, 404);
    assert_eq!(budget()["allowed"]["calls"], 1);

    let more = |body: Value| api.ask("POST", "workflows/poor/budget/top-up", Some(&body), &["Idempotency-Key: more 1"]);
    let (status, given) = more(json!({ "calls": 1 }));
    assert_eq!((status, &given["resumed"]), (200, &json!(true)), "{given}");
    paused("2 of 2 calls are spent");
    assert_eq!(more(json!({ "calls": 1 })).0, 200);
    let (status, other) = more(json!({ "calls": 9 }));
    assert_eq!((status, &other["code"]), (422, &json!("idempotency_key_reused")), "{other}");
    assert_eq!(budget()["allowed"]["calls"], 2, "given once");
    assert_eq!(api.post("workflows/poor/budget/top-up", json!({ "calls": 20 })).0, 200);
    let ended = api.until("workflows/poor/result?wait=5s", |seen| seen["status"] != "Running");
    assert_eq!(ended["status"], "Completed", "{ended}");
}

/// Whoever waits is answered when something is asked, and when what is asked is another thing.
#[test]
fn a_program_waits_for_what_is_asked() {
    let api = Api::serve();
    let beside = |path: String| {
        let http = Http::new(api.http.endpoint.clone(), REQUEST_MAX);
        std::thread::spawn(move || http.request("GET", &path, None).unwrap().json::<Value>().unwrap())
    };
    let (status, nothing) = api.get("approvals?wait=50ms");
    assert_eq!((status, &nothing["approvals"]), (200, &json!([])), "{nothing}");
    assert_eq!(api.get("approvals?wait=soon").0, 400);
    let waits = beside("/api/v1/approvals?wait=20s".to_owned());
    // It is likely to wait by then; if it is not, it finds what is asked at once.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(api.post("workflows", gated("story")).0, 201);
    let asked = waits.join().unwrap();
    let one = &asked["approvals"][0];
    assert_eq!((&one["workflow_id"], &one["kind"]), (&json!("story"), &json!("approval")), "{asked}");
    // What is asked already is no reason to wait, unless it was seen.
    assert_eq!(api.get("approvals?wait=20s").1["approvals"][0]["id"], one["id"]);
    let seen = asked["seen"].as_str().unwrap();
    assert_eq!(api.get(&format!("approvals?wait=50ms&seen={seen}")).1["seen"], seen, "nothing else is asked");
    let waits = beside(format!("/api/v1/approvals?wait=20s&seen={seen}"));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(api.post("workflows/story/answers", json!({ "id": one["id"], "approved": true })).0, 202);
    let after = waits.join().unwrap();
    assert_ne!(after["seen"], seen, "{after}");
    // The command line knows it by the same id.
    assert_eq!(api.post("workflows", gated("other")).0, 201);
    let asked = api.until("approvals", |seen| seen["approvals"][0]["workflow_id"] == "other");
    let listed = crate::supervisor_cli::run(&api.data(), &["approval", "list", "-o", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    for key in ["id", "kind", "workflow_id", "run_id", "namespace", "request"] {
        assert_eq!(listed["waiting"][0][key], asked["approvals"][0][key], "{key}: {listed}");
    }
}

/// The draft of the IETF: a key that was used is no key for another request, also after a restart.
#[test]
fn a_key_of_another_request_is_refused() {
    let mut api = Api::serve();
    let waiting = json!([{ "wait_signal": { "name": "go" } }, { "wait_signal": { "name": "go" } }, { "wait_signal": { "name": "end" } }]);
    let key = ["Idempotency-Key: order 7"];
    let begin = |api: &Api, change: &dyn Fn(&mut Value)| {
        let mut body = start("order", waiting.clone());
        body["summary"] = json!("the seventh");
        body["memo"] = json!({ "who": "ann" });
        body["execution_timeout"] = json!("1h");
        change(&mut body);
        api.ask("POST", "workflows", Some(&body), &key)
    };
    let (status, first) = begin(&api, &|_| {});
    assert_eq!(status, 201, "{first}");
    let reused = |(status, told): (u16, Value), at: &[&str]| {
        let places: Vec<&str> =
            told["errors"].as_array().into_iter().flatten().filter_map(|one| one["at"].as_str()).collect();
        assert_eq!((status, &told["code"], places.as_slice()), (422, &json!("idempotency_key_reused"), at), "{told}");
        assert!(told["message"].as_str().unwrap().contains("nothing has changed"), "{told}");
    };
    let signal = |api: &Api, name: &str, body: Value| {
        api.ask("POST", &format!("workflows/order/signals/{name}"), Some(&body), &["Idempotency-Key: signal 1"])
    };
    let cancel = |api: &Api, reason: &str| {
        api.ask("POST", "workflows/order/cancel", Some(&json!({ "reason": reason })), &["Idempotency-Key: cancel 1"])
    };
    assert_eq!(signal(&api, "go", json!({ "n": 1 })).0, 202);
    for restarted in [false, true] {
        if restarted {
            api.start_again();
        }
        let (status, again) = begin(&api, &|_| {});
        assert_eq!((status, &again["run_id"]), (200, &first["run_id"]), "{restarted}: {again}");
        reused(begin(&api, &|body| body["input"] = json!({ "steps": [] })), &["input"]);
        reused(begin(&api, &|body| body["memo"] = json!({ "who": "bob" })), &["memo"]);
        let other = |body: &mut Value| {
            (body["execution_timeout"], body["task_queue"]) = (json!("2h"), json!("slow"));
            body.as_object_mut().unwrap().remove("summary");
        };
        reused(begin(&api, &other), &["task_queue", "execution_timeout", "summary"]);
        assert_eq!(signal(&api, "go", json!({ "n": 1 })).0, 202, "{restarted}: the same signal");
        reused(signal(&api, "go", json!({ "n": 2 })), &["input"]);
        reused(signal(&api, "end", json!({ "n": 1 })), &["name"]);
    }
    let signals = |api: &Api| {
        let (_, history) = api.get("workflows/order/history?limit=1000");
        let is_signal = |event: &&Value| event["event_type"] == "WorkflowExecutionSignaled";
        history["events"].as_array().unwrap().iter().filter(is_signal).count()
    };
    assert_eq!(signals(&api), 1, "what was refused has left nothing");
    // Who brings a message with the start has one key for both.
    reused(begin(&api, &|body| body["signal"] = json!({ "name": "go", "input": 9 })), &["signal"]);
    assert_eq!(cancel(&api, "enough").0, 202);
    assert_eq!(cancel(&api, "enough").0, 202);
    reused(cancel(&api, "too dear"), &["reason"]);

    // What a paused run has been told waits, and its keys are used.
    let still = |path: &str, key: &str, body: Value| {
        api.ask("POST", &format!("workflows/still/{path}"), Some(&body), &[&format!("Idempotency-Key: {key}")])
    };
    assert_eq!(api.ask("POST", "workflows", Some(&start("still", waiting.clone())), &[]).0, 201);
    assert_eq!(api.ask("POST", "workflows/still/execution/pause", Some(&json!({})), &[]).0, 200);
    assert_eq!(still("signals/go", "s", json!(1)).0, 202);
    assert_eq!(still("signals/go", "s", json!(1)).0, 202, "the same again");
    reused(still("signals/go", "s", json!(2)), &["input"]);
    reused(still("signals/end", "s", json!(1)), &["name"]);
    let (status, told) = still("cancel", "s", json!({}));
    assert_eq!((status, &told["code"]), (422, &json!("idempotency_key_reused")), "{told}");
    assert!(told["message"].as_str().unwrap().contains("another request than a cancellation"), "{told}");

    let job = |input: u8| {
        let body = json!({ "activity_type": "echo", "activity_id": "job", "input": input });
        api.ask("POST", "standalone-activities", Some(&body), &["Idempotency-Key: job 1"])
    };
    assert_eq!((job(1).0, job(1).0), (201, 200));
    reused(job(2), &["input"]);

    assert_eq!(api.post("workflows", gated("story")).0, 201);
    let asked = api.until("approvals", |seen| !seen["approvals"].as_array().unwrap().is_empty());
    let answer = |body: &Value| {
        let mut whole = body.clone();
        whole["id"] = asked["approvals"][0]["id"].clone();
        api.ask("POST", "workflows/story/answers", Some(&whole), &["Idempotency-Key: answer 1"])
    };
    let hold = |verb: &str, key: &str| {
        let key = format!("Idempotency-Key: {key}");
        api.ask("POST", &format!("workflows/story/{verb}"), Some(&json!({})), &[&key])
    };
    assert_eq!(hold("pause", "hold").0, 200);
    assert_eq!(hold("pause", "hold").0, 200, "the same again");
    reused(hold("resume", "hold"), &["name"]);
    assert_eq!(hold("resume", "on").0, 200);
    let yes = json!({ "approved": true, "comment": "go" });
    assert_eq!(answer(&yes).0, 202);
    api.until("workflows/story/result?wait=5s", |seen| seen["status"] == "Completed");
    assert_eq!(answer(&yes).0, 202, "the same answer, after the end");
    reused(answer(&json!({ "approved": false, "comment": "go" })), &["approved"]);
    reused(answer(&json!({ "approved": true })), &["comment"]);
}
