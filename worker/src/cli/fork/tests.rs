//! Forks from the command line: what is read, and that an attached worker does the same as an embedded one.

use std::sync::Arc;
use std::time::Duration;

use bosun_replay::{DivergenceCause, HistoryLimits, Prefixes, diff, replay_history};
use tokio::sync::watch;

use serde_json::Value;

use super::*;
use crate::api::handlers::Api;
use crate::api::{HttpClient, Server, ServerLimits, Token, Tokens};
use crate::backend::{Access, Backend, CallError, OpenEngine};
use crate::cli::Program;
use crate::cli::tests::run_line;
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
    let wait = ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(120)) };
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
    let api = Api {
        backend: embedded.clone(),
        version: "0",
        workflows: Default::default(),
        reach: Default::default(),
        links: None,
    };
    let task = tokio::spawn(async move {
        server.serve(api, Default::default(), Tokens::new(&Token::of(token), None).unwrap(), &[], stopping).await
    });
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
        assert_eq!(History::from_json(fork.to_json().as_bytes(), &HistoryLimits::default()).unwrap(), fork);
        let told = diff(&source, &fork).divergence.unwrap();
        assert_eq!(told.cause, DivergenceCause::Outside);
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

    // A state that no run has left is nobody's to give, here as at a start.
    let mut turns = source.turns().to_vec();
    if let EventKind::WorkflowExecutionStarted(started) = &mut turns[0].events[0] {
        started.workflow_type = "supervisor".into();
    }
    let claims = vec![ForkChange::Input(Payload::raw_json("{\"continued\":{}}"))];
    let refused =
        embedded.fork(ForkRequest { changes: claims, ..request(ForkSource::History(turns), "f5") }).await.unwrap_err();
    assert!(refused.to_string().contains("input.continued"), "{refused}");
    stop.send_replace(true);
    task.await.unwrap();
}

/// A visit forks, from a file into a directory that did not exist, and a worker carries the fork on.
#[tokio::test(flavor = "multi_thread")]
async fn a_visit_forks_a_file_and_a_worker_carries_it_on() {
    let data = tempfile::tempdir().unwrap();
    let worker = registries()
        .open(
            data.path(),
            &Access::Work {
                slots: crate::backend::SlotCounts::of(Some(2), None),
                queues: Vec::new(),
                guards: Default::default(),
            },
        )
        .await
        .unwrap();
    let start = StartWorkflow::new("review".into(), "source".into()).input(Payload::raw_json("\"tea\""));
    worker.backend().start(start).await.unwrap();
    let wait = || ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(120)) };
    worker.backend().result(Target::workflow("source".into()), wait()).await.unwrap().unwrap();
    let request = request(ForkSource::Run(Target::workflow("source".into())), "fork");
    worker.drain(Duration::from_secs(1)).await;
    drop(worker);

    let visit = registries().open(data.path(), &Access::Visit { create: false }).await.unwrap();
    let dry = visit.backend().fork(ForkRequest { dry_run: true, ..request.clone() }).await.unwrap();
    let forked = visit.backend().fork(request).await.unwrap();
    assert_eq!(dry.plan, forked.plan);
    assert_eq!(forked.plan.event, EventId(3));
    visit.drain(Duration::ZERO).await;
    drop(visit);

    let worker = registries()
        .open(
            data.path(),
            &Access::Work {
                slots: crate::backend::SlotCounts::of(Some(2), None),
                queues: Vec::new(),
                guards: Default::default(),
            },
        )
        .await
        .unwrap();
    let result = worker.backend().result(Target::workflow("fork".into()), wait()).await.unwrap().unwrap();
    assert_eq!(result.outcome, CloseOutcome::Completed(Payload::raw_json("\"published tea\"")));
    assert_eq!(worker.backend().verify().await.unwrap()["ok"], json!(true));
    worker.drain(Duration::ZERO).await;
}

/// G12, E20: whoever looks at a run does not carry it on. `fork --dry-run`, `diff` and `export` of a directory that nobody
/// holds leave a due timer unfired; the plan is the one that the fork then has, and an id that is taken is refused.
#[tokio::test(flavor = "multi_thread")]
async fn looking_at_a_run_that_nobody_holds_carries_nothing_on() {
    let mut registries = registries();
    registries.workflows = registries.workflows.workflow("nap", |cx, draft: String| async move {
        let options = ActivityOptions { start_to_close: Some(Duration::from_secs(5)), ..Default::default() };
        cx.timer(Duration::from_millis(700)).await?;
        cx.activity::<String>("publish", &draft, options).await
    });
    let data = tempfile::tempdir().unwrap();
    let visit = registries.open(data.path(), &Access::Visit { create: true }).await.unwrap();
    for id in ["one", "two"] {
        let start = StartWorkflow::new("nap".into(), id.into()).input(Payload::raw_json("\"tea\""));
        visit.backend().start(start).await.unwrap();
    }
    visit.drain(Duration::ZERO).await;
    drop(visit);
    let turns = async || {
        let histories = registries.histories(data.path()).await.unwrap();
        let one = histories.turns(Target::workflow("one".into())).await.unwrap();
        (one, histories.turns(Target::workflow("two".into())).await.unwrap())
    };
    let before = turns().await;
    // The timer is due by now, and was not while the runs were started.
    tokio::time::sleep(Duration::from_millis(800)).await;

    let program = Program { opener: Arc::new(registries.clone()), plans: None, face: Default::default() };
    let run = async |line: &str| run_line(&program, data.path(), line).await;
    let dry = run("fork one --id fork --dry-run -o json").await;
    assert_eq!(dry.exit.number(), 0, "{}", dry.stderr);
    let differ = run("diff one two").await;
    assert_eq!(differ.exit.number(), 0, "{}{}", differ.stdout, differ.stderr);
    let file = data.path().join("one.json");
    let exported = run(&format!("export one --out {}", file.display())).await;
    assert_eq!(exported.exit.number(), 0, "{}", exported.stderr);
    let taken = run("fork one --id two --dry-run").await;
    assert_eq!(taken.exit.number(), 32, "{}", taken.stderr);
    let of_file = run(&format!("fork {} --id two --dry-run", file.display())).await;
    assert_eq!(of_file.exit.number(), 32, "{}", of_file.stderr);
    assert_eq!(turns().await, before, "nothing was carried on");

    let nowhere = data.path().join("nowhere");
    let of_file = run_line(&program, &nowhere, &format!("fork {} --id new --dry-run", file.display())).await;
    assert_eq!(of_file.exit.number(), 0, "{}", of_file.stderr);
    assert!(of_file.stdout.starts_with("dry run: nothing is written\n"), "{}", of_file.stdout);
    assert!(!nowhere.exists());

    let forked = run("fork one --id fork --at 2 --request-id r -o json").await;
    assert_eq!(forked.exit.number(), 0, "{}", forked.stderr);
    let (dry, forked) = (dry.json(), forked.json());
    // The fork itself opened an engine, which fired the timer of its source.
    for part in ["event", "told", "timers"] {
        assert_eq!(dry["plan"][part], forked["plan"][part]);
    }
    assert_eq!((&dry["run_id"], &dry["dry_run"]), (&Value::Null, &Value::Bool(true)));
    let again = run("fork one --id fork --request-id r --dry-run -o json").await;
    assert_eq!(again.json()["run_id"], forked["run_id"], "{}", again.stderr);

    // Without an id of its own it is known by its request, and another point is not told as what was done.
    let first = run("fork one --at 2 --request-id q -o json").await.json();
    let again = run("fork one --at 3 --request-id q -o json").await.json();
    assert_eq!((&again["run_id"], &again["from"]), (&first["run_id"], &first["from"]), "{again}");
    assert_eq!((&again["newly_started"], &again["workflow_id"]), (&Value::Bool(false), &first["workflow_id"]));
}
