//! Payload limits, early warnings, and what the disk may show of payloads.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bosun_engine::log::{CodecChain, Compression, Encryption};
use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use crate::kit::*;

const LIMIT: usize = 1_000;

/// Text whose JSON is exactly this long.
fn text(length: usize) -> String {
    "x".repeat(length - 2)
}

/// Does the named thing with a payload of the given length.
async fn wide(ctx: WfContext, (what, length): (String, usize)) -> Result<String, Failure> {
    let wide = text(length);
    let other = ExternalTarget { workflow_id: "nobody".into(), run_id: None };
    match what.as_str() {
        "activity" => ctx.activity::<()>("swallow", &wide, quick()).await.map(|()| String::new()),
        "activity result" => ctx.activity("give", &length, quick()).await.map(|_: String| String::new()),
        "child" => ctx
            .child_workflow("echo", "child", &wide, ChildWorkflowOptions::default())
            .await
            .map(|_: String| String::new()),
        "external signal" => ctx.signal_external(other, "word", &wide).await.map(|()| String::new()),
        "side effect" => Ok(ctx.side_effect(|| wide).chars().take(1).collect()),
        "memo" => {
            ctx.upsert_memo([("wide".into(), Payload::encode(&wide)?)].into());
            Ok(String::new())
        }
        "failure" => Err(Failure::application("Wide", "see details").with_details(Payload::encode(&wide)?)),
        "next run" => ctx.continue_as_new(&("done", wide), ContinueAsNewOptions::default()),
        _ => Ok(wide),
    }
}

fn environment_of_wide() -> TestEnvironment {
    let mut activities = ActivityRegistry::new();
    activities.register("swallow", |_, _: String| async move { Ok(()) });
    activities.register("give", |_, length: usize| async move { Ok(text(length)) });
    // The next run cannot read what it is given: here the run is to fail of it.
    let workflows = WorkflowRegistry::new()
        .on_defect(DefectPolicy::Fail)
        .workflow("wide", wide)
        .workflow("echo", |_: WfContext, word: String| async move { Ok(word) })
        .workflow("listen", |ctx: WfContext, _: String| async move {
            ctx.on_query("echo", |word: String| Ok(word.len()));
            ctx.on_update("take", |_: &String| Ok(()), |_, word: String| async move { Ok(word.len()) });
            ctx.signal_channel::<()>("end").recv().await
        });
    let change = |options: &mut WorkerOptions| {
        options.limits.payload_max = LIMIT;
        options.housekeeping_every = HOUR;
    };
    TestEnvironment::start_with(workflows, activities, change).unwrap()
}

/// E31: requests with a payload of the limit are taken, those with one byte more are refused by name and change nothing.
#[tokio::test]
async fn a_request_above_the_payload_limit_is_refused() {
    let environment = environment_of_wide();
    let client = environment.client();
    let refused = Rejection::PayloadTooLarge { length: LIMIT + 1, limit: LIMIT };
    assert_eq!(client.start(start("listen", "l", &text(LIMIT + 1))).await, Err(refused.clone()));
    assert_eq!(client.count("").await.unwrap(), 0);
    client.start(start("listen", "l", &text(LIMIT))).await.unwrap();
    let before = client.store_info().await.unwrap().last_group;
    let l = target("l");
    let wide = text(LIMIT + 1);
    assert_eq!(client.signal(&l, signal("word", &wide)).await, Err(refused.clone()));
    assert_eq!(client.query(&l, &"echo".into(), payload(&wide)).await, Err(refused.clone()));
    assert_eq!(client.update(&l, update("u", "take", &wide, UpdateWait::Completed)).await, Err(refused.clone()));
    let with_memo = StartWorkflow { memo: [("m".into(), payload(&wide))].into(), ..start("listen", "m", "") };
    assert_eq!(client.start(with_memo).await, Err(refused.clone()));
    assert_eq!(client.signal_with_start(start("listen", "m", ""), signal("word", &wide)).await, Err(refused));
    assert_eq!(client.store_info().await.unwrap().last_group, before, "nothing was written");

    let fits = text(LIMIT);
    client.signal(&l, signal("word", &fits)).await.unwrap();
    assert_eq!(client.query(&l, &"echo".into(), payload(&fits)).await.unwrap(), payload(&(LIMIT - 2)));
    let answer = client.update(&l, update("u", "take", &fits, UpdateWait::Completed)).await.unwrap();
    assert_eq!(answer, UpdateOutcome::Completed(Ok(payload(&(LIMIT - 2)))));
}

/// E31: what workflow code asks for above the limit fails by name, in the activity, child or message if there is one,
/// else in the run; at the limit it works; and the history replays, under another limit too.
#[tokio::test]
async fn a_command_above_the_payload_limit_fails_by_name() {
    let environment = environment_of_wide();
    let client = environment.client();
    let kinds = [
        "activity",
        "activity result",
        "child",
        "external signal",
        "side effect",
        "memo",
        "failure",
        "next run",
        "result",
    ];
    for what in kinds {
        let id = format!("wide {what}");
        client.start(start("wide", &id, &(what, LIMIT + 1))).await.unwrap();
        let CloseOutcome::Failed(failure) = outcome(&client, &id).await else { panic!("{what} must fail the run") };
        assert_eq!(failure.type_name(), "PayloadTooLarge", "{what}");
        assert!(failure.root().message.contains(&format!("the limit is {LIMIT}")), "{what}: {failure}");
        let id = format!("fits {what}");
        let length = if what == "next run" { LIMIT - 10 } else { LIMIT };
        client.start(start("wide", &id, &(what, length))).await.unwrap();
        match outcome(&client, &id).await {
            CloseOutcome::Completed(_) => {}
            CloseOutcome::Failed(failure) => assert_ne!(failure.type_name(), "PayloadTooLarge", "{what}"),
            other => panic!("{what}: {other:?}"),
        }
    }
    let environment = environment.restart(|options| options.limits.payload_max = 10 * LIMIT).unwrap();
    for what in kinds {
        let description = environment.client().describe(&target(&format!("wide {what}"))).await.unwrap();
        assert_eq!(description.held, None, "{what}");
    }
}

/// E31: `describe` warns before a history is too long, in events and in bytes; there is no hard wall.
#[tokio::test]
async fn describe_warns_of_long_histories() {
    let environment = environment_of_wide();
    let environment = environment
        .restart(|options| {
            options.limits.history_events_warn = 10;
            options.limits.history_bytes_warn = 5_000;
        })
        .unwrap();
    let client = environment.client();
    client.start(start("listen", "l", "")).await.unwrap();
    let mut warned = Vec::new();
    for n in 1..=12 {
        client.signal(&target("l"), signal("word", &text(500))).await.unwrap();
        warned.push((n, client.describe(&target("l")).await.unwrap().warnings.len()));
    }
    // An event counts 64 bytes and its payloads: the ninth signal brings 10 events and 64 * 10 + 2 + 9 * 500 bytes.
    let expected: Vec<(i32, usize)> = (1..=12).map(|n| (n, if n < 9 { 0 } else { 2 })).collect();
    assert_eq!(warned, expected);
    let warnings = client.describe(&target("l")).await.unwrap().warnings;
    assert!(warnings[0].contains("13 events (warning from 10)"), "{warnings:?}");
    assert!(warnings[1].contains("warning from 5000"), "{warnings:?}");
}

/// Keeps a secret in its state, its memo, its heartbeats and its blobs.
#[derive(Serialize, Deserialize)]
struct Vault {
    secrets: Vec<String>,
}

impl StateMachine for Vault {
    const TYPE: &'static str = "vault";
    type Input = String;
    type Output = usize;

    fn start(secret: String, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let noted: String = cx.side_effect(|| format!("{SECRET} side effect"));
        cx.upsert_memo([("kept".into(), Payload::encode(&noted)?)].into());
        cx.schedule_activity("whisper", &secret, quick());
        Ok(Vault { secrets: vec![secret, noted] })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::Signal(signal) if signal.name.as_str() == "end" => cx.complete(&self.secrets.len()),
            WorkflowEvent::Signal(signal) => self.secrets.push(signal.input.decode()?),
            WorkflowEvent::ActivityResolved { result, .. } => self.secrets.push(result?.decode()?),
            _ => {}
        }
        Ok(())
    }
    fn queries() -> &'static [&'static str] {
        &["secrets"]
    }
    fn query(&self, _: &QueryName, _: &Payload) -> Result<Payload, Failure> {
        Ok(Payload::encode(&self.secrets)?)
    }
}

const SECRET: &str = "canary-5f1d3b";

/// The files below a directory that hold these bytes.
fn files_with(directory: &Path, needle: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, needle));
        } else if std::fs::read(&path).unwrap().windows(needle.len()).any(|window| window == needle) {
            found.push(path.display().to_string());
        }
    }
    found
}

fn vault(directory: &Path, codec: CodecChain) -> Worker {
    let mut options = WorkerOptions::at(directory);
    options.workflows = WorkflowRegistry::new().state_machine::<Vault>();
    options.activities.register("whisper", |ctx: ActivityContext, secret: String| async move {
        ctx.heartbeat(&format!("{secret} heartbeat"))?;
        Ok(format!("{secret} result"))
    });
    options.journal.codec = codec;
    options.journal.blob_above = 4 * 1024;
    Worker::start(options).unwrap()
}

/// E31: with compression and encryption no file of the data directory holds a payload in plain text: not the log, not
/// the blobs, snapshots, indexes or backups. Everything is readable again with the key, and an error without it.
#[tokio::test]
async fn encrypted_payloads_are_nowhere_on_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let codec = |key: u8| {
        let encryption = Encryption::new("key-1", [key; 32]);
        CodecChain::new(vec![Arc::new(Compression { above: 256 }), Arc::new(encryption)])
    };
    let encrypted = directory.path().join("encrypted");
    // Not compressible, so that it stays long enough for a blob.
    let long: String =
        (0..2_000).map(|n: u64| format!("{SECRET}{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    let worker = vault(&encrypted, codec(7));
    let client = worker.client();
    let mut begin = start("vault", "v", SECRET);
    begin.memo = [("memo".into(), payload(&format!("{SECRET} memo")))].into();
    client.start(begin).await.unwrap();
    client.signal(&target("v"), signal("tell", &long)).await.unwrap();
    client.pause(&target("v"), "inbox".into(), None).await.unwrap();
    client.signal(&target("v"), signal("tell", &format!("{SECRET} inbox"))).await.unwrap();
    client.unpause(&target("v"), "on".into(), None).await.unwrap();
    let secrets: Vec<String> = query(&client, "v", "secrets").await;
    assert!(secrets.len() >= 4);
    client.housekeep().await.unwrap();
    client.backup(&directory.path().join("backup")).await.unwrap();
    worker.drain(std::time::Duration::from_secs(5)).await.unwrap();
    // Whoever still holds a client holds the directory.
    drop((worker, client));
    assert_eq!(files_with(directory.path(), SECRET.as_bytes()), Vec::<String>::new());
    assert!(std::fs::read_dir(encrypted.join("payloads")).is_ok_and(|mut blobs| blobs.next().is_some()), "a blob");

    // The instrument works: without a codec the same secret is found.
    let plain = directory.path().join("plain");
    let worker = vault(&plain, CodecChain::default());
    worker.client().start(start("vault", "v", SECRET)).await.unwrap();
    worker.stop().unwrap();
    drop(worker);
    assert_ne!(files_with(&plain, SECRET.as_bytes()), Vec::<String>::new());

    let worker = vault(&encrypted, codec(7));
    let client = worker.client();
    assert_eq!(query::<Vec<String>>(&client, "v", "secrets").await, secrets);
    assert_eq!(client.describe(&target("v")).await.unwrap().info.memo.len(), 2);
    client.signal(&target("v"), signal("end", &())).await.unwrap();
    assert_eq!(output::<usize>(&client, "v").await, secrets.len());
    assert!(client.verify().await.unwrap().is_sound());
    worker.stop().unwrap();
    drop((worker, client));

    let mut options = WorkerOptions::at(&encrypted);
    options.journal.codec = codec(8);
    options.workflows = WorkflowRegistry::new().state_machine::<Vault>();
    match Worker::start(options) {
        Err(why) => assert!(why.to_string().contains("key-1"), "{why}"),
        Ok(worker) => {
            let why = worker.client().turns(&target("v")).await.unwrap_err().to_string();
            assert!(why.contains("key-1"), "{why}");
        }
    }
}

/// G34, E38: what a redaction left of a payload is a digest, and is not taken for data anywhere. Nor is the mark of what damage
/// took (G28): a run that was given it would be held as damaged.
#[tokio::test]
async fn a_redacted_payload_is_not_data() {
    let redacted = Payload { encoding: ENCODING_REDACTED.into(), data: vec![7; 32].into() };
    for (payload, says) in [(redacted, "redacted"), (Payload::lost_blob("a"), "damage")] {
        is_taken_nowhere(payload, says).await;
    }
}

async fn is_taken_nowhere(payload: Payload, says: &str) {
    let environment =
        environment(WorkflowRegistry::new().workflow("echo", |_: WfContext, input: u64| async move { Ok(input) }));
    let client = environment.client();
    let redacted = || payload.clone();
    let mut with_memo = start("echo", "memo", &1);
    with_memo.memo = [(FieldName::of("note"), redacted())].into();
    let name = |name: &str| name.into();
    let refusals = [
        client.start(StartWorkflow::new("echo".into(), "input".into()).input(redacted())).await.err(),
        client.start(with_memo).await.err(),
        client.signal(&target("x"), SignalRequest { input: redacted(), ..signal("s", &()) }).await.err(),
        client.query(&target("x"), &name("q"), redacted()).await.err(),
        client
            .fork(ForkRequest::new(ForkSource::Run(target("x")), "y".into()).change(ForkChange::Input(redacted())))
            .await
            .err(),
    ];
    for refused in refusals {
        let Some(Rejection::Invalid { what, why }) = refused else { panic!("{refused:?}") };
        assert_eq!((what.as_str(), why.contains(says)), ("payload", true), "{why}");
    }
}

/// G23: code that continues as new before it has waited for anything holds up nobody: after some runs the next one waits.
#[tokio::test]
async fn a_chain_without_end_leaves_room_for_others() {
    async fn restless(ctx: WfContext, n: u32) -> Result<u32, Failure> {
        ctx.continue_as_new(&(n + 1), ContinueAsNewOptions::default())
    }
    async fn calm(_: WfContext, n: u32) -> Result<u32, Failure> {
        Ok(n)
    }
    let environment = environment(WorkflowRegistry::new().workflow("restless", restless).workflow("calm", calm));
    let client = environment.client();
    client.start(start("restless", "r", &0)).await.unwrap();
    client.start(start("calm", "c", &1)).await.unwrap();
    assert_eq!(output::<u32>(&client, "c").await, 1);
    let runs = || async { client.count("WorkflowId = 'r'").await.unwrap() };
    let first = runs().await;
    assert!(first < 100, "{first} runs at once");
    environment.sleep(Duration::from_secs(3)).await;
    let then = runs().await;
    assert!(then > first && then < 100, "{then} runs after {first}");
    client.terminate(&target("r"), "enough".into(), None).await.unwrap();
}
