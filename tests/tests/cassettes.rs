//! Models recorded by a real worker that is killed in the middle of a call: what was recorded plays, and the attempt that was
//! cut is counted (G41).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bosun_tests::harness::binary::{run, said};
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess};
use bosun_worker::capability::model::Wire;
use bosun_worker::capability::model::mock::{MockAnswer, MockProvider, calls, says};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

#[track_caller]
fn did(data: &Path, words: &[&str]) -> String {
    let output = run(data, words);
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What its tool gives is the same however often the worker is killed while it runs: it is run again.
fn agent() -> String {
    let look = json!({ "name": "look", "parameters": { "type": "object", "properties": {} },
        "attempts": 3, "does": { "process": { "argv": ["sh", "-c", "echo seen"] } } });
    json!({ "name": "ann", "provider": "openai", "model": "tiny", "task": "look, and say what you see",
        "max_output_tokens": 100, "tools": [look] })
    .to_string()
}

fn start(data: &Path, id: &str) {
    did(data, &["start", "agent", "-w", id, "-i", &agent()]);
}

fn text_of(data: &Path, id: &str) -> String {
    let result: Value = serde_json::from_str(&did(data, &["result", id, "-o", "json"])).unwrap();
    fn find(value: &Value) -> Option<&str> {
        match value {
            Value::Object(map) => match map.get("stop") {
                Some(_) => map.get("text").and_then(Value::as_str),
                None => map.values().find_map(find),
            },
            _ => None,
        }
    }
    find(&result).unwrap_or_else(|| panic!("{result}")).to_owned()
}

/// Two agents ask the same; the worker is killed while the second one is being answered, and again while a tool of the third
/// one runs. Everything they were told plays in an empty directory, to three agents, and asks nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_recorded_over_kill_9_plays() {
    let (first, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (firsts, lasts) = (first.clone(), last.clone());
    let mock = MockProvider::start(move |request| -> MockAnswer {
        match request.messages.len() {
            0..=2 => match firsts.fetch_add(1, Ordering::SeqCst) + 1 {
                // The worker is killed while this one is waited for.
                2 => MockAnswer::from(calls("look", json!({}))).later(Duration::from_secs(600)),
                _ => calls("look", json!({})).into(),
            },
            _ => says(&format!("answer {}", lasts.fetch_add(1, Ordering::SeqCst) + 1)).into(),
        }
    });
    let mock = mock.await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (data, tapes) = (dir.path().join("data"), dir.path().join("tapes"));
    let worker = |mode: &str| {
        let program = Program::bosun_worker().unwrap().env("OPENAI_BASE_URL", &mock.base_url(Wire::OpenAi));
        program.env("BOSUN_CASSETTE_MODE", mode).env("BOSUN_CASSETTE_DIR", tapes.to_str().unwrap())
    };
    let (mut recording, _) = WorkerProcess::start(&worker("record"), &data, READY_MAX).unwrap();
    start(&data, "one");
    assert_eq!(text_of(&data, "one"), "answer 1");
    start(&data, "two");
    until("the second call", || first.load(Ordering::SeqCst) == 2);
    recording.kill().unwrap();
    (recording, _) = WorkerProcess::start(&worker("record"), &data, READY_MAX).unwrap();
    assert_eq!(text_of(&data, "two"), "answer 2");
    start(&data, "three");
    let asked = mock.count();
    until("the third agent", || mock.count() > asked);
    recording.kill().unwrap();
    (recording, _) = WorkerProcess::start(&worker("record"), &data, READY_MAX).unwrap();
    let third = text_of(&data, "three");
    // The attempt that was cut may have been paid for: three answers were asked for, and two were heard.
    let cost = did(&data, &["query", "two", "cost", "-o", "json"]);
    let whole = did(&data, &["query", "one", "cost", "-o", "json"]);
    let tally = |told: &str| told.replace(char::is_whitespace, "");
    assert!(tally(&whole).contains("\"estimated_calls\":0") && tally(&whole).contains("\"calls\":2"), "{whole}");
    assert!(tally(&cost).contains("\"estimated_calls\":1") && tally(&cost).contains("\"calls\":3"), "{cost}");
    drop(recording);

    let (asked, played) = (mock.count(), dir.path().join("played"));
    let (_playing, _) = WorkerProcess::start(&worker("replay"), &played, READY_MAX).unwrap();
    for (id, wanted) in [("x", "answer 1"), ("y", "answer 2"), ("z", third.as_str())] {
        start(&played, id);
        assert_eq!(text_of(&played, id), wanted);
    }
    assert_eq!(mock.count(), asked, "nobody is asked");
}

fn until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
