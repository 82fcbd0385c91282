//! A corpus that the real engine wrote: histories of kitchen-sink programs, sagas and a state machine over all features,
//! in `fixtures/histories/engine`. Every later version must read, encode and replay them as this one did.
//!
//! Invariant: what a file says never changes once it is released; a missing, unreadable, unlisted or changed file fails,
//! and so does a digest of commands that differs, in any build profile (G21). To add a story, tell it in
//! `stories` or `programs` and run the test once with `BOSUN_WRITE_FIXTURES=1`; files that are there are never overwritten.

mod forks;
mod live;
mod machine;
mod programs;
mod stories;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use bosun_engine::*;
use bosun_replay::{History, HistoryLimits, Prefixes, WhatIf, replay_history, what_if};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::live::{StoryEnvironment, code};
use self::stories::stories;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct StoryIndex {
    schema: String,
    histories: Vec<StoryEntry>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct StoryEntry {
    file: String,
    shows: String,
    /// Requirement rows.
    rows: Vec<String>,
    /// Of the bytes of the file.
    file_digest: String,
    /// Of all commands that the code asks for in replay.
    commands_digest: String,
}

const INDEX: &str = "index.json";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/histories/engine")
}

fn digest(bytes: &[u8]) -> String {
    hex(&Payload::bytes(bytes.to_vec()).digest())
}

fn commands_digest(history: &History, prefixes: Prefixes) -> String {
    let report = replay_history(&code(), history, prefixes);
    assert!(report.is_ok(), "{report}");
    report.run.and_then(|run| run.digest).expect("it was replayed")
}

fn read(file: &str) -> (String, History) {
    let text = std::fs::read_to_string(folder().join(file)).unwrap_or_else(|why| panic!("{file}: {why}"));
    let history =
        History::from_json(text.as_bytes(), &HistoryLimits::default()).unwrap_or_else(|why| panic!("{file}: {why}"));
    (text, history)
}

fn index() -> StoryIndex {
    let text = std::fs::read_to_string(folder().join(INDEX)).expect("the index of the corpus");
    serde_json::from_str(&text).expect("the index of the corpus is JSON")
}

/// Writes what is missing: only stories with a file that is not there happen again.
async fn write_missing() {
    std::fs::create_dir_all(folder()).unwrap();
    let known: Vec<StoryEntry> = if folder().join(INDEX).exists() { index().histories } else { Vec::new() };
    let told: BTreeSet<String> = known.iter().map(|entry| entry.shows.clone()).collect();
    let mut entries: BTreeMap<String, StoryEntry> =
        known.into_iter().map(|entry| (entry.file.clone(), entry)).collect();
    for story in stories().into_iter().filter(|story| !told.contains(&story.shows)) {
        for (name, history) in StoryEnvironment::tell(&story).await {
            let (file, text) = (format!("{name}.json"), history.to_json());
            assert!(!entries.contains_key(&file), "{file} is told twice");
            std::fs::write(folder().join(&file), &text).unwrap();
            let commands_digest = commands_digest(&history, Prefixes::None);
            let rows = story.rows.iter().map(|row| (*row).to_owned()).collect();
            let file_digest = digest(text.as_bytes());
            let entry =
                StoryEntry { file: file.clone(), shows: story.shows.clone(), rows, file_digest, commands_digest };
            entries.insert(file, entry);
        }
    }
    let index = StoryIndex { schema: "bosun.history-index/1".into(), histories: entries.into_values().collect() };
    std::fs::write(folder().join(INDEX), serde_json::to_string_pretty(&index).unwrap() + "\n").unwrap();
}

/// G9, G21: every history that the engine wrote reads, encodes to the same bytes, and replays at every prefix to the same
/// commands; a file that is missing, unlisted or unreadable fails.
#[tokio::test]
async fn every_history_of_the_engine_reads_and_replays_as_it_always_did() {
    if std::env::var_os("BOSUN_WRITE_FIXTURES").is_some() {
        write_missing().await;
    }
    let index = index();
    let told: BTreeSet<String> = stories().into_iter().map(|story| story.shows).collect();
    let mut prefixes = 0;
    for entry in &index.histories {
        let (text, history) = read(&entry.file);
        assert_eq!(digest(text.as_bytes()), entry.file_digest, "{} was changed", entry.file);
        assert_eq!(history.to_json(), text, "{} encodes to the same bytes", entry.file);
        assert_eq!(commands_digest(&history, Prefixes::All), entry.commands_digest, "{}", entry.file);
        assert!(told.contains(&entry.shows), "{}: no story shows {:?}", entry.file, entry.shows);
        prefixes += history.turns().len();
    }
    println!("{} histories, replayed at {prefixes} prefixes", index.histories.len());
    let shown: BTreeSet<String> = index.histories.iter().map(|entry| entry.shows.clone()).collect();
    assert_eq!(told.difference(&shown).collect::<Vec<_>>(), Vec::<&String>::new(), "every story has a file");
    let listed: BTreeSet<String> = index.histories.into_iter().map(|entry| entry.file).chain([INDEX.into()]).collect();
    let there = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(there.collect::<BTreeSet<String>>(), listed, "every file is listed and every listed one is there");
}

/// Issue 3: at least 200 histories over all features, in both forms.
#[test]
fn the_corpus_covers_every_row_in_both_forms() {
    let index = index();
    let mut rows = BTreeSet::new();
    let mut forms: BTreeMap<String, usize> = BTreeMap::new();
    let mut events = BTreeSet::new();
    for entry in &index.histories {
        rows.extend(entry.rows.iter().cloned());
        let (_, history) = read(&entry.file);
        *forms.entry(history.started().workflow_type.to_string()).or_default() += 1;
        events.extend(history.events().map(|event| event.kind.name()));
    }
    let wanted = (1..=23).chain(27..=33).chain([35, 37, 38, 40]).map(|row| format!("E{row:02}"));
    let missing: Vec<String> = wanted.filter(|row| !rows.contains(row)).collect();
    assert_eq!(missing, Vec::<String>::new());
    assert!(forms["step-machine"] >= 40 && forms["kitchen-sink"] >= 100 && forms["order-saga"] >= 8, "{forms:?}");
    assert!(events.len() >= 47, "{} kinds of events: {events:?}", events.len());
    assert!(index.histories.len() >= 200, "{} histories", index.histories.len());
}

/// The recorded outcomes lead the same code to the same decisions, in every history.
#[test]
fn the_same_code_decides_the_same_what_if() {
    for entry in index().histories {
        let (_, history) = read(&entry.file);
        let told = what_if(&code(), &history, &WhatIf::default()).unwrap();
        assert!(told.is_same(), "{}: {told}", entry.file);
        assert!(told.unknown.iter().all(|one| one.pending_then), "{}: {told}", entry.file);
    }
}

/// How often a story is told again whose events differ: what ends at one moment ends in the order of threads, and a
/// program may look at that order.
const TELLINGS: u32 = 100;

/// An event or a history without what runs of today say of their ids: those that were recorded count activities among all
/// that was asked for, and say nothing of it.
fn numbered_alike(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields
                .into_iter()
                .filter(|(key, value)| !value.is_null() && key != "numbering" && key != "activity_id");
            Value::Object(kept.map(|(key, value)| (key, numbered_alike(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(numbered_alike).collect(),
        other => other,
    }
}

/// What the engine writes today is what it wrote then: a story that happens again gives the recorded events. Those of one
/// moment (an activity and a child that end together) may come in another order, as threads have it; a program that sees
/// that order is told again until it has the recorded one.
#[tokio::test]
async fn a_story_that_happens_again_gives_the_recorded_history() {
    let (mut told, mut same) = (0, 0);
    let events = |history: &History| {
        let mut events: Vec<String> =
            history.events().map(|event| format!("{} {}", event.at, numbered_alike(json!(event.kind)))).collect();
        events.sort();
        events
    };
    let whole = |text: &str| numbered_alike(serde_json::from_str(text).expect("a history is JSON"));
    for story in stories().into_iter().step_by(7) {
        for telling in 1..=TELLINGS {
            let histories = StoryEnvironment::tell(&story).await;
            let differs = histories.iter().find(|(name, history)| {
                let (_, recorded) = read(&format!("{name}.json"));
                events(history) != events(&recorded)
            });
            let Some((name, history)) = differs else {
                let texts = histories
                    .iter()
                    .map(|(name, history)| whole(&history.to_json()) == whole(&read(&format!("{name}.json")).0));
                same += texts.filter(|same| *same).count();
                told += histories.len();
                break;
            };
            let (_, recorded) = read(&format!("{name}.json"));
            assert!(telling < TELLINGS, "{name}: {:#?} and not {:#?}", events(history), events(&recorded));
        }
    }
    println!("{told} histories told again, {same} of them bit for bit");
    assert!(same * 10 >= told * 9 && told > 30, "{same} of {told}");
}
