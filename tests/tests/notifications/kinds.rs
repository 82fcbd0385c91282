//! Each kind of occasion, from a run that gets there: what waits for people, what is stuck, held, or has spent its budget.

use std::path::Path;
use std::time::Duration;

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::http::Http;
use bosun_tests::harness::process::{Program, WorkerProcess, example};
use bosun_tests::harness::workload::program;
use bosun_worker::capability::model::Wire;
use bosun_worker::capability::model::mock::{MockProvider, calls};
use serde_json::{Value, json};

use super::receiver::Receiver;
use super::{config, until, worker};
use crate::pages::gated;
use crate::resets::told;

const PATIENCE: Duration = Duration::from_secs(60);

/// What is told of a run in this kind, once there is something.
#[track_caller]
fn told_of(receiver: &Receiver, kind: &str, id: &str) -> Value {
    until(PATIENCE, || {
        let all = receiver.all();
        let one = all.iter().find(|one| one.body["kind"] == kind && one.body["workflow_id"] == id);
        one.map(|one| one.body.clone()).ok_or_else(|| format!("no {kind} of {id} in {all:#?}"))
    })
}

fn channel(receiver: &Receiver) -> String {
    format!("[notify.channels.ops]\nwebhook = \"http://{}/\"\nsecret = \"env:OPS_SECRET\"\n", receiver.address)
}

fn start(http: &Http, workflow_type: &str, id: &str, input: &Value) {
    let start = json!({ "workflow_type": workflow_type, "workflow_id": id, "input": input });
    let answer = http.request("POST", "/api/v1/workflows", Some(start.to_string().as_bytes())).unwrap();
    assert!(answer.status < 300, "{id}: {}", String::from_utf8_lossy(&answer.body));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_is_told_of_the_run_that_it_is_about() {
    let mock = MockProvider::start(|_| calls("look", json!({ "at": "it" }))).await.unwrap();
    let (dir, receiver) = (tempfile::tempdir().unwrap(), Receiver::start(0));
    let path = config(dir.path(), &channel(&receiver));
    let program_of = worker(&path, &[]).env("OPENAI_BASE_URL", &mock.base_url(Wire::OpenAi));
    let data = dir.path().join("data");
    let (mut worker, http) = WorkerProcess::start(&program_of, &data, READY_MAX).unwrap();

    // A supervisor's approval, and a question's words for it.
    start(&http, "supervisor", "asks", &json!({ "spec": gated("a publication", "publish it") }));
    let body = told_of(&receiver, "approval", "asks");
    assert_eq!(body["asked"]["request"]["action"], "publish it", "{body:#}");
    assert!(body["text"].as_str().unwrap().contains("publish it") && body.get("links").is_none(), "{body:#}");

    // An agent's call of a tool: no event says so, its state does.
    let tool = json!({ "name": "look", "approval": true, "parameters": { "type": "object" },
        "does": { "activity": { "activity_type": "echo" } } });
    let agent = json!({ "name": "ann", "provider": "openai", "model": "tiny", "system": "You look.",
        "task": "Look around.", "tools": [tool] });
    start(&http, "agent", "careful", &agent);
    let body = told_of(&receiver, "approval", "careful");
    assert_eq!(
        (body["asked"]["kind"].as_str(), body["asked"]["request"]["tool"].as_str()),
        (Some("tool_call"), Some("look"))
    );

    // A supervisor whose budget is spent.
    let spec = json!({ "kind": "supervisor", "preset": "shannon-simple", "objective": "write a note",
        "budget": { "tokens": 10, "on_exhausted": "ask" }, "agents": [{ "name": "writer", "via": { "model": { "name": "tiny" } } }] });
    start(&http, "supervisor", "spent", &json!({ "spec": spec }));
    told_of(&receiver, "budget", "spent");

    // An activity that fails again and again, and a run that times out.
    let options = json!({ "maximum_attempts": 0, "initial_interval": "10ms", "maximum_interval": "50ms" });
    let fails = json!([{ "activity": { "type": "fail_n_times", "input": { "times": 1000 }, "retry": options } }]);
    http.start(&program("again", fails)).acknowledged().unwrap();
    let body = told_of(&receiver, "stuck", "again");
    assert!(body["title"].as_str().unwrap().contains("5 attempts were made"), "{body:#}");
    let mut late = program("late", json!([{ "wait_signal": { "name": "go" } }]));
    late.run_timeout = Some(Duration::from_millis(200));
    http.start(&late).acknowledged().unwrap();
    let body = told_of(&receiver, "failed", "late");
    assert_eq!(body["title"], "The time of late is over");

    // Nobody is told twice, and of no run that only waits.
    std::thread::sleep(Duration::from_millis(500));
    let mut ids: Vec<String> = receiver.all().into_iter().map(|one| one.id).collect();
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all, "with somebody who answers, each is sent once");
    let open =
        told(&data, &["count", "--query", "WorkflowType = 'bosun.notification' AND ExecutionStatus = 'Running'"]);
    assert_eq!(open["count"], 0);
    worker.kill().unwrap();
}

/// A run that ends its worker twice is held; that is told, and so is each worker that is gone.
#[test]
fn a_held_run_is_told() {
    let (dir, receiver) = (tempfile::tempdir().unwrap(), Receiver::start(0));
    let path = config(dir.path(), &channel(&receiver));
    let mut program_of = Program::new(example("poisoned-worker").unwrap(), &["worker", "run", "--config"]);
    program_of.arguments.push(path.into());
    program_of = program_of.env("OPS_SECRET", super::SECRET);
    let data = dir.path().join("data");
    let (mut process, http) = WorkerProcess::start(&program_of, &data, READY_MAX).unwrap();
    start(&http, "poison", "bad", &json!("abort"));
    let mut deaths = 0;
    while process.wait(Duration::from_secs(4)).unwrap().is_some() {
        deaths += 1;
        assert!(deaths < 10, "it is never held");
        process = WorkerProcess::spawn(&program_of, &data).unwrap();
    }
    let body = told_of(&receiver, "stuck", "bad");
    assert_eq!(body["title"], "bad is held", "{body:#}");
    until(PATIENCE, || {
        let gone = receiver.ids("worker_gone", "title").len();
        // One that died while it opened had not said that it was there.
        if gone >= 1 { Ok(()) } else { Err(format!("{deaths} died, {gone} were told")) }
    });
    process.kill().unwrap();
}

/// Hours in which nothing is told: from an hour ago for half a day.
fn quiet_now() -> String {
    let minutes = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() / 60 % (24 * 60);
    let at = |minutes: u64| format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60);
    format!("{}-{}", at(minutes + 23 * 60), at(minutes + 11 * 60))
}

/// Notifications of approvals that wait still.
fn waiting(data: &Path) -> u64 {
    let words = ["count", "--all", "--query", "NotificationKind = 'approval' AND ExecutionStatus = 'Running'"];
    told(data, &words)["count"].as_u64().unwrap()
}

#[track_caller]
fn until_waiting(data: &Path, wanted: u64) {
    until(PATIENCE, || match waiting(data) {
        count if count == wanted => Ok(()),
        count => Err(format!("{count} notifications wait, and not {wanted}")),
    });
}

/// The moment that a field names, in seconds.
fn second(text: &Value) -> i64 {
    text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second()
}

/// What waits for a person is told again after the time that the owner sets, by ids of their own, over kill -9, with the deadline
/// that it has by then and links that open; who escalates it has people told at once, in quiet hours too, and from then on by
/// reminders of this word alone, which keep the quiet hours. What is answered reminds nobody.
#[test]
fn a_request_is_reminded_of_escalated_and_extended_until_it_is_answered() {
    let (dir, receiver) = (tempfile::tempdir().unwrap(), Receiver::start(0));
    let notify = "[notify]\nremind = \"2s\"\npublic_url = \"http://127.0.0.1:9\"\nlinks_for = \"2s\"\n";
    let channel =
        channel(&receiver).replace("[notify.channels.ops]", &format!("{notify}[notify.channels.ops]\nlinks = true"));
    let path = config(dir.path(), &channel);
    let data = dir.path().join("data");
    let (mut first, http) = WorkerProcess::start(&worker(&path, &[]), &data, READY_MAX).unwrap();
    start(&http, "supervisor", "asks", &json!({ "spec": gated("a publication", "publish it") }));
    let body = told_of(&receiver, "approval", "asks");
    let id = body["asked"]["id"].as_str().unwrap().to_owned();
    let reminded = |times: usize| {
        until(PATIENCE, || {
            let all = receiver.all();
            let of = all.iter().filter(|one| one.body["title"].as_str().unwrap().starts_with("still waits (reminder"));
            let ids: std::collections::BTreeSet<&str> = of.map(|one| one.id.as_str()).collect();
            if ids.len() >= times { Ok(()) } else { Err(format!("{} reminders: {all:#?}", ids.len())) }
        });
    };
    reminded(1);
    let shown = told(&data, &["approval", "show", &id]);
    let extended = told(&data, &["approval", "extend", &id, "--by", "2h", "--reason", "she is away"]);
    assert_eq!(second(&extended["deadline"]), second(&shown["deadline"]) + 7_200, "{extended}");
    assert_eq!(extended["from"], shown["deadline"], "moments are told alike");
    assert_eq!(told(&data, &["approval", "show", &id])["deadline"], extended["deadline"]);
    let by = extended["requested_by"].as_str().unwrap();
    assert!(!by.is_empty(), "who did it is recorded");
    until(PATIENCE, || {
        let all = receiver.all();
        let later = all.iter().any(|one| one.body["asked"]["request"]["deadline"] == extended["deadline"]);
        if later { Ok(()) } else { Err(format!("no reminder names the new deadline: {all:#?}")) }
    });
    for one in receiver.all() {
        let sent: i64 = one.headers["webhook-timestamp"].parse().unwrap();
        assert!(second(&one.body["links"]["expires_at"]) >= sent, "a link that opens nothing: {one:#?}");
    }
    // What is answered reminds nobody any more.
    assert_eq!(waiting(&data), 1);
    start(&http, "supervisor", "answered", &json!({ "spec": gated("a letter", "send it") }));
    let letter = told_of(&receiver, "approval", "answered")["asked"]["id"].as_str().unwrap().to_owned();
    until_waiting(&data, 2);
    let words = |words: &[&str]| crate::supervisor_cli::run(&data, words);
    assert!(words(&["approval", "approve", &letter]).status.success());
    until_waiting(&data, 1);
    first.kill().unwrap();

    // What the first worker began goes on as it began. From now on the hours are quiet: only what somebody escalates is told at once.
    let quiet = channel.replace("secret =", &format!("quiet = \"{}\"\nsecret =", quiet_now()));
    std::fs::write(&path, quiet).unwrap();
    let (mut worker, http) = WorkerProcess::start(&worker(&path, &[]), &data, READY_MAX).unwrap();
    reminded(2);
    let escalated = told(&data, &["approval", "escalate", &id, "--reason", "it is urgent"]);
    assert_eq!(escalated["times"], 1, "{escalated}");
    until(PATIENCE, || {
        let all = receiver.all();
        let loud = all.iter().find(|one| one.body["asked"]["request"]["escalated"] == 1);
        loud.map(|one| assert_eq!(one.body["asked"]["id"], json!(id))).ok_or_else(|| format!("{all:#?}"))
    });
    // The first word reminds nobody any more; the second waits for the morning.
    until_waiting(&data, 1);
    let described = told(&data, &["describe", "asks"]);
    let notified = described["notified"].as_array().unwrap();
    let next = notified.iter().find(|one| one["state"] == "waiting").unwrap_or_else(|| panic!("{described:#}"));
    let moot = notified.iter().find(|one| one["state"] == "moot").unwrap_or_else(|| panic!("{described:#}"));
    assert!(moot["last"].as_str().unwrap().contains("escalated"), "{described:#}");
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
    assert!(second(&next["next_attempt_at"]) > now + 3_600, "reminders keep the quiet hours: {described:#}");

    // What is too large to be told is escalated all the same.
    start(&http, "supervisor", "large", &json!({ "spec": gated("a book", &"publish it ".repeat(8_000)) }));
    until_waiting(&data, 2);
    let asked = told(&data, &["approval", "list", "large"]);
    let large = asked["waiting"][0]["request"]["id"].as_str().unwrap_or_else(|| panic!("{asked:#}")).to_owned();
    told(&data, &["approval", "escalate", &large]);
    until(PATIENCE, || {
        let all = receiver.all();
        let one = all.iter().find(|one| one.body["workflow_id"] == "large").ok_or("nobody is told of what is large")?;
        let request = &one.body["asked"]["request"];
        assert_eq!((&request["too_large_to_tell"], &request["escalated"]), (&json!(true), &json!(1)), "{request}");
        Ok(())
    });
    assert!(words(&["approval", "approve", &id]).status.success());
    let late = words(&["approval", "extend", &id, "--by", "1h"]);
    assert_eq!(late.status.code(), Some(30), "{}", crate::supervisor_cli::said(&late));
    worker.kill().unwrap();
}
