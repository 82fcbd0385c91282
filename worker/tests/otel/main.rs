//! Spans as a collector gets them: the shipped binary with the feature `otel`, a receiver that reads the protocol's own types,
//! and a worker that is killed in between.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program of its own, around what decides")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Told;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::json;
use tokio::process::{Child, Command};

/// Generous: the machine is busy.
const WAIT_MAX: Duration = Duration::from_secs(90);

#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<Span>>>);

async fn receive(State(received): State<Received>, headers: HeaderMap, body: Bytes) -> Vec<u8> {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let request = ExportTraceServiceRequest::decode(body).expect("it is what the protocol says");
    for of_resource in request.resource_spans {
        let resource = of_resource.resource.expect("somebody sends it");
        assert!(resource.attributes.iter().any(|one| one.key == "service.name"), "{resource:?}");
        let spans = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        received.0.lock().unwrap().extend(spans);
    }
    ExportTraceServiceResponse::default().encode_to_vec()
}

impl Received {
    fn named(&self, name: &str) -> Vec<Span> {
        self.0.lock().unwrap().iter().filter(|span| span.name == name).cloned().collect()
    }
    async fn until(&self, what: &str, there: impl Fn(&Received) -> bool) {
        let began = Instant::now();
        while !there(self) {
            let names: Vec<String> = self.0.lock().unwrap().iter().map(|span| span.name.clone()).collect();
            assert!(began.elapsed() < WAIT_MAX, "{what}: {names:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn attributes(span: &Span) -> BTreeMap<&str, String> {
    let text = |value: &Told| match value {
        Told::StringValue(text) => text.clone(),
        Told::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let pairs =
        span.attributes.iter().filter_map(|one| Some((one.key.as_str(), text(one.value.as_ref()?.value.as_ref()?))));
    pairs.collect()
}

fn worker(data: &Path, collector: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_bosun"))
        .args(["worker", "run", "--data"])
        .arg(data)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn bosun(data: &Path, args: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_bosun")).args(args).arg("--data").arg(data).output().await.unwrap()
}

async fn ready(data: &Path) {
    let began = Instant::now();
    while !bosun(data, &["worker", "describe"]).await.status.success() {
        assert!(began.elapsed() < WAIT_MAX, "the worker does not come");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_one_trace_over_a_crash_and_nothing_is_sent_of_what_is_replayed() {
    let home = tempfile::tempdir().unwrap();
    let (data, noted, go) = (home.path().join("data"), home.path().join("noted"), home.path().join("go"));
    let received = Received::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let collector = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/v1/traces", post(receive)).with_state(received.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });

    let mut first = worker(&data, &collector);
    ready(&data).await;
    let script =
        format!("echo begun >> '{}'; while [ ! -e '{}' ]; do sleep 0.05; done; echo 1", noted.display(), go.display());
    let asked = json!({ "provider": "schema", "request": { "model": "m-1",
        "messages": [{ "role": "user", "content": "the word of the day is secret" }] } });
    let steps = json!({ "steps": [
        { "activity": { "type": "model", "input": asked } },
        { "activity": { "type": "process", "input": { "argv": ["sh", "-c", script] },
            "retry": { "initial_interval": "100ms" } } },
    ] });
    let started = bosun(&data, &["start", "kitchen-sink", "-w", "traced", "-i", &steps.to_string()]).await;
    assert!(started.status.success(), "{started:?}");
    // What was sent before the kill is there; the attempt that the kill cuts off is never sent.
    received.until("the model call was sent", |all| all.named("chat m-1").len() == 1).await;
    let began = Instant::now();
    while !noted.exists() {
        assert!(began.elapsed() < WAIT_MAX);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    received.until("turns were sent", |all| !all.named("turn kitchen-sink").is_empty()).await;
    first.kill().await.unwrap();
    let mut second = worker(&data, &collector);
    ready(&data).await;
    std::fs::write(&go, "").unwrap();
    let ended = bosun(&data, &["result", "traced", "--timeout", "120s"]).await;
    assert!(ended.status.success(), "{ended:?}");
    received.until("the second attempt was sent", |all| !all.named("activity process").is_empty()).await;
    // A worker that leaves sends what is left.
    assert!(bosun(&data, &["worker", "drain"]).await.status.success());
    assert!(second.wait().await.unwrap().success());

    let calls = received.named("chat m-1");
    assert_eq!(calls.len(), 1, "what is replayed is not sent again");
    let told = attributes(&calls[0]);
    let expected = [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "schema"),
        ("gen_ai.request.model", "m-1"),
        ("gen_ai.conversation.id", "traced"),
    ];
    for (key, value) in expected {
        assert_eq!(told.get(key).map(String::as_str), Some(value), "{told:?}");
    }
    let model = &received.named("activity model")[0];
    assert_eq!((&calls[0].parent_span_id, &calls[0].trace_id), (&model.span_id, &model.trace_id));
    let attempts = received.named("activity process");
    let of_run: Vec<&Span> = attempts.iter().filter(|span| span.trace_id == model.trace_id).collect();
    assert_eq!(
        of_run.len(),
        1,
        "one trace over the crash, and the attempt that was cut off is not in it: {attempts:?}"
    );
    assert_eq!(attributes(of_run[0])["attempt"], "2");
    assert_eq!(of_run[0].links.len(), 1, "it links to the attempt that was cut off");
    assert_eq!(of_run[0].links[0].trace_id, model.trace_id);
    let turns = received.named("turn kitchen-sink");
    let mut ids: Vec<&Vec<u8>> = turns.iter().map(|turn| &turn.span_id).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "no turn was sent twice");
    assert!(turns.iter().all(|turn| turn.trace_id == model.trace_id));
    let whole = received.named("run kitchen-sink");
    assert_eq!(whole.len(), 1, "one run, over a crash: {whole:?}");
    let told = attributes(&whole[0]);
    assert_eq!((told["workflow_id"].as_str(), told["status"].as_str()), ("traced", "completed"), "{told:?}");
    assert_eq!(
        (&whole[0].trace_id, whole[0].parent_span_id.len()),
        (&model.trace_id, 0),
        "it is the root of its trace"
    );
    let below = turns.iter().chain(&attempts).chain(std::iter::once(model));
    for span in below {
        assert_eq!(span.parent_span_id, whole[0].span_id, "{span:?}");
        let within = whole[0].start_time_unix_nano <= span.start_time_unix_nano
            && span.start_time_unix_nano <= whole[0].end_time_unix_nano;
        assert!(within, "{span:?} is outside of {:?}", whole[0]);
    }
    assert!(!received.named("commit").is_empty());
    let all = received.0.lock().unwrap();
    // A request is called by its route: neither ids nor tokens make a name of their own.
    let requests: Vec<&str> =
        all.iter().map(|span| span.name.as_str()).filter(|name| name.contains(" /api/")).collect();
    assert!(requests.iter().any(|name| name.contains('{')), "{requests:?}");
    assert!(requests.iter().all(|name| !name.contains("traced")), "{requests:?}");
    assert!(all.iter().all(|span| !format!("{span:?}").contains("word of the day")), "what is said stands in no span");
}
