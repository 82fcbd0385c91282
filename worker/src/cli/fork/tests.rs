//! Forks from the command line: what is read, and that an attached worker does the same as an embedded one.

use std::sync::Arc;
use std::time::Duration;

use bosun_replay::{Cause, Limits, Prefixes, diff, replay_history};
use tokio::sync::watch;

use super::*;
use crate::api::handlers::Api;
use crate::api::{HttpClient, Limits as ServerLimits, Server, Token};
use crate::backend::{Backend, CallError, OpenEngine, Purpose};
use crate::embedded::Registries;

#[test]
fn subjects_are_events_commands_and_names() {
    let vectors = [
        ("15", ForkSubject::Event(EventId(15))),
        ("event:15", ForkSubject::Event(EventId(15))),
        ("seq:3", ForkSubject::Seq(Seq(3))),
        ("review", ForkSubject::Name { name: "review".into(), nth: None }),
        ("review#2", ForkSubject::Name { name: "review".into(), nth: Some(2) }),
    ];
    for (text, expected) in vectors {
        assert_eq!(subject(text), Ok(expected), "{text}");
    }
    for wrong in ["seq:x", "event:", "review#0", "review#x"] {
        assert_eq!(subject(wrong).unwrap_err().code, Code::BadInput, "{wrong}");
    }
}

#[test]
fn values_are_json_where_they_can_be() {
    for (text, json) in [("good", "\"good\""), ("7", "7"), ("{\"a\":1}", "{\"a\":1}"), ("\"7\"", "\"7\"")] {
        assert_eq!(value_of(text).unwrap(), Payload::raw_json(json), "{text}");
    }
}

fn registries() -> Registries {
    let mut registries = Registries::default();
    registries.workflows = registries.workflows.workflow("review", |cx, draft: String| async move {
        let options = ActivityOptions { start_to_close: Some(Duration::from_secs(5)), ..Default::default() };
        let verdict: String = cx.activity("judge", &draft, options.clone()).await?;
        if verdict == "bad" {
            return Err(Failure::application("Rejected", "the review was bad"));
        }
        cx.activity::<String>("publish", &draft, options).await
    });
    registries.activities.register("judge", |_cx, _: String| async move { Ok("bad".to_owned()) });
    registries.activities.register("publish", |_cx, draft: String| async move { Ok(format!("published {draft}")) });
    registries
}

async fn history(backend: &dyn Backend, client: &Client, id: &str) -> History {
    let wait = ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(10)) };
    backend.result(Target::workflow(id.into()), wait).await.unwrap().expect("in time");
    History::new(client.turns(&Target::workflow(id.into())).await.unwrap()).unwrap()
}

fn request(source: ForkSource, id: &str) -> ForkRequest {
    let of = ForkSubject::Name { name: "judge".into(), nth: None };
    let good = ForkChange::Outcome { of, outcome: Ok(Payload::raw_json("\"good\"")) };
    ForkRequest::new(source, id.into()).change(good)
}

/// A fork through the control API is the same as one in this process, from a run and from a file's turns; hostile turns
/// are refused by name. The diff of source and fork names the replaced event as the first divergence.
#[tokio::test(flavor = "multi_thread")]
async fn attached_and_embedded_forks_are_the_same_and_their_diff_names_the_replaced_event() {
    let registries = registries();
    let code = registries.workflows.clone();
    let log = Arc::new(bosun_engine::log::MemoryLog::new([3; 16]));
    let mut options = WorkerOptions::new(DataDirectory::Log(log));
    (options.workflows, options.activities) = (registries.workflows.clone(), registries.activities.clone());
    let worker = Arc::new(Worker::start(options).unwrap());
    let client = worker.client();
    let embedded: Arc<dyn Backend> = crate::embedded::backend_of(worker);

    let server = Server::bind("127.0.0.1:0".parse().unwrap(), false, ServerLimits::default()).await.unwrap();
    let address = format!("http://{}", server.address());
    let token = "0123456789abcdef0123456789abcdef";
    let (stop, stopping) = watch::channel(false);
    let api = Api { backend: embedded.clone(), version: "0" };
    let task = tokio::spawn(async move { server.serve(api, Token::of(token), &[], stopping).await });
    let attached = HttpClient::new(&address, Token::of(token), "token").unwrap();

    let start = StartWorkflow::new("review".into(), "source".into()).input(Payload::raw_json("\"tea\""));
    embedded.start(start).await.unwrap();
    let source = history(&*embedded, &client, "source").await;
    let run = || ForkSource::Run(Target::workflow("source".into()));
    let first = embedded.fork(request(run(), "f1")).await.unwrap();
    let second = attached.fork(request(run(), "f2")).await.unwrap();
    let third = attached.fork(request(ForkSource::History(source.turns().to_vec()), "f3")).await.unwrap();
    for (id, forked) in [("f1", first.clone()), ("f2", second), ("f3", third)] {
        assert_eq!(forked.plan, first.plan);
        let fork = history(&*embedded, &client, id).await;
        assert_eq!(fork.status(), WorkflowStatus::Completed);
        let report = replay_history(&code, &fork, Prefixes::All);
        assert!(report.is_ok(), "{report}");
        assert_eq!(History::from_json(fork.to_json().as_bytes(), &Limits::default()).unwrap(), fork);
        let told = diff(&source, &fork).divergence.unwrap();
        assert_eq!(told.cause, Cause::Outside);
        let line = told.line.to_string();
        assert!(line.starts_with("~     4     5   ActivityTaskCompleted judge"), "{line}");
        assert!(line.ends_with("result.json: \"bad\" -> \"good\""), "{line}");
    }

    let mut hostile = source.turns().to_vec();
    hostile[1].events[0] = EventKind::TimerFired { seq: Seq(9) };
    let refused = attached.fork(request(ForkSource::History(hostile), "f4")).await;
    let Err(CallError::Rejected(Rejection::Invalid { what, why })) = refused else { panic!("{refused:?}") };
    assert_eq!(what, "the history to fork");
    assert!(why.contains('9'), "{why}");
    assert!(client.turns(&Target::workflow("f4".into())).await.is_err());
    stop.send_replace(true);
    task.await.unwrap();
}

/// A visit forks, from a file into a directory that did not exist, and a worker carries the fork on.
#[tokio::test(flavor = "multi_thread")]
async fn a_visit_forks_a_file_and_a_worker_carries_it_on() {
    let data = tempfile::tempdir().unwrap();
    let worker = registries().open(data.path(), &Purpose::Work { slots: 2, queues: Vec::new() }).await.unwrap();
    let start = StartWorkflow::new("review".into(), "source".into()).input(Payload::raw_json("\"tea\""));
    worker.backend().start(start).await.unwrap();
    let wait = || ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(10)) };
    worker.backend().result(Target::workflow("source".into()), wait()).await.unwrap().unwrap();
    let request = request(ForkSource::Run(Target::workflow("source".into())), "fork");
    worker.drain(Duration::from_secs(1)).await;
    drop(worker);

    let visit = registries().open(data.path(), &Purpose::Visit { create: false }).await.unwrap();
    let dry = visit.backend().fork(ForkRequest { dry_run: true, ..request.clone() }).await.unwrap();
    let forked = visit.backend().fork(request).await.unwrap();
    assert_eq!(dry.plan, forked.plan);
    assert_eq!(forked.plan.event, EventId(3));
    visit.drain(Duration::ZERO).await;
    drop(visit);

    let worker = registries().open(data.path(), &Purpose::Work { slots: 2, queues: Vec::new() }).await.unwrap();
    let result = worker.backend().result(Target::workflow("fork".into()), wait()).await.unwrap().unwrap();
    assert_eq!(result.outcome, CloseOutcome::Completed(Payload::raw_json("\"published tea\"")));
    assert_eq!(worker.backend().verify().await.unwrap()["ok"], json!(true));
    worker.drain(Duration::ZERO).await;
}
