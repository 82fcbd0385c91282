//! The corpus: histories in `fixtures/histories` that every later version must read and replay.
//!
//! Invariant: what a file says never changes once it is released; a missing, unreadable, unlisted or changed file fails.
//! The digests of commands are the same in debug and release and on every machine (G21). To add a story, tell
//! it in `stories` and run the test once with `BOSUN_WRITE_FIXTURES=1`; files that are there are never overwritten.

mod live;
pub(crate) mod stories;
pub(crate) mod workflows;

use std::collections::BTreeMap;
use std::path::PathBuf;

use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use self::stories::STORIES;
use self::workflows::registry;
use crate::*;

const INDEX: &str = "index.json";

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct CorpusIndex {
    schema: String,
    histories: Vec<CorpusEntry>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct CorpusEntry {
    file: String,
    shows: String,
    /// Of the bytes of the file.
    file_digest: String,
    /// Of all commands that the code asks for in replay.
    commands_digest: String,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/histories")
}

fn entry_of(story: &stories::CorpusStory, text: &str) -> CorpusEntry {
    let history = History::from_json(text.as_bytes(), &HistoryLimits::default()).unwrap();
    let report = replay_history(&registry(), &history, Prefixes::None);
    assert!(report.is_ok(), "{}: {report}", story.name);
    CorpusEntry {
        file: format!("{}.json", story.name),
        shows: story.shows.to_owned(),
        file_digest: digest(text.as_bytes()),
        commands_digest: report.run.unwrap().digest.unwrap(),
    }
}

fn digest(bytes: &[u8]) -> String {
    hex(&Payload::bytes(bytes.to_vec()).digest())
}

fn write_missing() {
    let mut entries = Vec::new();
    for story in STORIES {
        let path = folder().join(format!("{}.json", story.name));
        if !path.exists() {
            std::fs::write(&path, History::new((story.tell)(story.name)).unwrap().to_json()).unwrap();
        }
        entries.push(entry_of(story, &std::fs::read_to_string(&path).unwrap()));
    }
    let index = CorpusIndex { schema: "bosun.history-index/1".into(), histories: entries };
    std::fs::write(folder().join(INDEX), serde_json::to_string_pretty(&index).unwrap() + "\n").unwrap();
}

fn index() -> CorpusIndex {
    serde_json::from_str(&std::fs::read_to_string(folder().join(INDEX)).unwrap()).unwrap()
}

/// G9, G21: every file of the corpus is there, reads, encodes to the same bytes, and replays at every prefix to the same
/// commands.
#[test]
fn every_history_of_the_corpus_reads_and_replays_as_it_always_did() {
    if std::env::var_os("BOSUN_WRITE_FIXTURES").is_some() {
        write_missing();
    }
    let index = index();
    assert_eq!(index.histories.len(), STORIES.len(), "every story has a file and every file a story");
    for (story, entry) in STORIES.iter().zip(&index.histories) {
        let text =
            std::fs::read_to_string(folder().join(&entry.file)).unwrap_or_else(|why| panic!("{}: {why}", entry.file));
        assert_eq!(entry_of(story, &text), *entry, "the file, its replay and the index agree");
        let history = History::from_json(text.as_bytes(), &HistoryLimits::default()).unwrap();
        assert_eq!(history.to_json(), text, "{} encodes to the same bytes", entry.file);
        assert_eq!(history.turns(), (story.tell)(story.name), "{} tells its story", entry.file);
        let report = replay_file(&registry(), &folder().join(&entry.file), &HistoryLimits::default(), Prefixes::All);
        assert!(report.is_ok(), "{}: {report}", entry.file);
        assert_eq!(report.run.unwrap().prefixes, history.turns().len());
    }
}

#[test]
fn every_file_of_the_corpus_is_listed() {
    let listed: BTreeMap<String, CorpusEntry> = index().histories.into_iter().map(|e| (e.file.clone(), e)).collect();
    for found in std::fs::read_dir(folder()).unwrap() {
        let name = found.unwrap().file_name().into_string().unwrap();
        // The engine's own histories have a folder and an index of their own; they are replayed where their code is.
        let known = [INDEX, "README.md", "engine"].contains(&&*name) || listed.contains_key(&name);
        assert!(known, "{name} is not in {INDEX}");
    }
}

/// E38: each history of the corpus has a form for Temporal's tools, with the same end.
#[test]
fn every_history_of_the_corpus_exports_for_temporal() {
    for story in STORIES {
        let history = History::new((story.tell)(story.name)).unwrap();
        let export = to_temporal(&history).to_string();
        let read = TemporalHistory::from_json(export.as_bytes(), JsonLimits::default()).unwrap();
        let status = (!history.status().is_open()).then(|| history.status().to_string());
        assert_eq!(read.statistics().status, status, "{}", story.name);
    }
}

fn story(name: &str) -> History {
    let story = STORIES.iter().find(|story| story.name == name).unwrap();
    History::new((story.tell)(story.name)).unwrap()
}

/// Code that differs from [`workflows`] in one thing.
fn changed<F>(code: impl Fn(WfContext, u64) -> F + Send + Sync + 'static) -> WorkflowRegistry
where
    F: Future<Output = Result<String, Failure>> + 'static,
{
    WorkflowRegistry::new().version("corpus-2").workflow("charge", code)
}

/// G22: changed code is found, with the event.
#[test]
fn code_that_asks_for_something_else_is_found() {
    let registry = changed(|ctx, cents| async move {
        let options = ActivityOptions::start_to_close(std::time::Duration::from_secs(10));
        ctx.activity("charge_account", &cents, options).await
    });
    let report = replay_history(&registry, &story("activity-completed"), Prefixes::None);
    let Verdict::NonDeterministic(card) = &report.verdict else { panic!("{report}") };
    assert_eq!(card.event_id, EventId(2));
    assert!(report.to_string().contains("error[BOSUN0101]"), "{report}");
}

/// The commands before the end are the same, the result is not.
#[test]
fn code_that_gives_another_result_is_found() {
    let registry = changed(|ctx, cents| async move {
        let options = ActivityOptions::start_to_close(std::time::Duration::from_secs(10));
        let receipt: String = ctx.activity("charge_card", &cents, options).await?;
        Ok(receipt.to_uppercase())
    });
    let report = replay_history(&registry, &story("activity-completed"), Prefixes::None);
    let Verdict::OtherResult(card) = &report.verdict else { panic!("{report}") };
    assert_eq!(card.event_id, EventId(5));
    assert_eq!(report.run.as_ref().unwrap().activations, 1, "the activation before was right");
}

/// Code that depends on something outside history: the whole replay fits, a prefix asks for something else.
#[test]
fn code_that_depends_on_the_outside_is_unstable() {
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let registry = changed(move |ctx, _| {
        let run = runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move {
            let late = std::time::Duration::from_secs(run);
            let options = ActivityOptions::start_to_close(late + std::time::Duration::from_secs(1));
            ctx.activity("charge_card", &700, options).await
        }
    });
    let history = story("activity-completed");
    assert!(replay_history(&registry, &history, Prefixes::None).is_ok(), "options are not compared with history");
    let report = replay_history(&registry, &history, Prefixes::All);
    let Verdict::Unstable { prefix: 1, event_id: EventId(1), .. } = report.verdict else { panic!("{report}") };
}

#[test]
fn a_redacted_history_is_not_replayed() {
    let hidden = story("activity-completed").redacted(Redaction::Payloads);
    assert_eq!(replay_history(&registry(), &hidden, Prefixes::None).verdict, Verdict::Redacted);
}

/// E22: open runs against a new build: each fits, does not fit with the card, or has no code.
#[test]
fn preflight_names_the_runs_a_new_build_cannot_continue() {
    let registry = WorkflowRegistry::new()
        .version("next")
        .workflow("greet", |_: WfContext, name: String| async move { Ok(format!("hello {name}")) })
        .workflow("parent", |ctx: WfContext, cents: u64| async move {
            ctx.timer(std::time::Duration::from_secs(1)).await?;
            let options = ChildWorkflowOptions::default();
            ctx.child_workflow::<String>("charge", "charge-of-parent", &cents, options).await
        });
    let open = |name: &str| story(name).prefix(1).to_vec();
    let mut torn = open("fan-out");
    torn[0].first_event = EventId(3);
    let histories = [open("completed-at-once"), open("child-open"), open("timer-fired"), torn];
    let report = preflight(&registry, histories);
    let told: Vec<String> = report.runs.iter().map(|run| format!("{:?}", run.verdict)).collect();
    for (verdict, expected) in told.iter().zip(["Ok", "NonDeterministic", "UnknownType", "Invalid"]) {
        assert!(verdict.starts_with(expected), "{verdict}");
    }
    assert!(!report.is_ok());
    let text = report.to_string();
    assert!(text.contains("1 runs fit, 3 do not") && text.contains("no workflow type approval"), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["runs"][2]["verdict"]["UnknownType"]["workflow_type"], "approval");
}
