//! Opening by the real binary: a read that fails destroys nothing, and damage stays with what it hit.
//!
//! The reads of an open are made to fail by strace, from outside. The lock, `worker.json`, tokens and marks are no part of
//! what is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bosun_tests::harness::crash::{Outcome, READY_MAX};
use bosun_tests::harness::faults::Injection;
use bosun_tests::harness::ledger::Ledger;
use bosun_tests::harness::load::{Load, Shape};
use bosun_tests::harness::process::{Program, REQUEST_MAX, WorkerProcess, bosun};
use bosun_tests::harness::{Chance, count_from_env, say};
use serde_json::{Value, json};

/// What makes a store.
const PARTS: [&str; 7] = ["bosun.format", "log", "anchor", "payloads", "groups", "values", "wal"];

fn files_under(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        fs::read_dir(path).unwrap().flatten().for_each(|entry| files_under(&entry.path(), found));
    } else if path.exists() {
        found.push(path.to_owned());
    }
}

/// Every file but sled's snapshot of where things are: one is written when everything has been read and found whole, so that
/// sled has nothing to find out by itself, and the next read may fail then.
pub(crate) fn stored(data: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = Vec::new();
    PARTS.iter().for_each(|part| files_under(&data.join(part), &mut found));
    found.retain(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("snap.")));
    found.into_iter().map(|path| (path.strip_prefix(data).unwrap().to_owned(), fs::read(&path).unwrap())).collect()
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// A directory that a worker under load left when it was killed, and what it acknowledged.
fn left_by_a_kill(home: &Path) -> (PathBuf, Arc<Ledger>) {
    let data = home.join("data");
    let ledger = Arc::new(Ledger::create(&home.join("ledger.jsonl")).unwrap());
    let (mut worker, http) = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    let load = Load::start(ledger.clone(), Shape { workflows_max: 4, large_bytes: 20 << 10, ..Shape::default() });
    load.worker_is(&http.endpoint);
    load.finish().unwrap();
    worker.kill().unwrap();
    (data, ledger)
}

fn has_everything(program: &Program, data: &Path, ledger: &Ledger, what: &str) {
    let mut outcome = Outcome::default();
    let recovered = outcome.recover(program, data).unwrap();
    let (mut worker, http) = recovered.unwrap_or_else(|| panic!("{what}: {}", outcome.unopenable[0]));
    outcome.compare(&http, ledger).unwrap();
    assert!(outcome.differences.is_empty() && outcome.violations.is_empty(), "{what}: {}", outcome.summary());
    worker.kill().unwrap();
}

/// G4, G6: the n-th read of an open fails once. Either the worker starts and has everything, or it ends and every byte is
/// where it was; without the error everything is there again.
fn reads_that_fail(reads: impl Iterator<Item = u32>) {
    if !Injection::available_or_explain() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (whole, ledger) = left_by_a_kill(home.path());
    let program = Program::bosun_worker().unwrap();
    let (mut refused, mut reached, mut tried) = (0, 0, 0);
    for read in reads {
        let data = home.path().join(format!("copy-{read}"));
        copy(&whole, &data);
        let before = stored(&data);
        let mut paths = Vec::new();
        PARTS.iter().for_each(|part| files_under(&data.join(part), &mut paths));
        let trace = home.path().join(format!("trace-{read}"));
        let injection = Injection { calls: "pread64,read", error: "EIO", when: read, last: Some(read), paths, trace };
        let wrapped = program.clone().wrapped(injection.wrapper());
        let mut worker = WorkerProcess::spawn(&wrapped, &data).unwrap();
        let is_ready = worker.wait_ready(READY_MAX).is_ok();
        if is_ready {
            worker.kill().unwrap();
        } else {
            assert!(worker.wait(REQUEST_MAX).unwrap().is_some(), "read {read}: neither ready nor ended");
            let after = stored(&data);
            let names: BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
            let changed: Vec<_> = names.into_iter().filter(|name| before.get(*name) != after.get(*name)).collect();
            assert!(changed.is_empty(), "read {read}: refused, and changed {changed:?}\n{}", worker.said());
            assert!(worker.said().contains("EIO") || worker.said().contains("nput/output error"), "{}", worker.said());
            refused += 1;
        }
        (tried, reached) = (tried + 1, reached + usize::from(injection.hits() > 0));
        has_everything(&program, &data, &ledger, &format!("after read {read}"));
        fs::remove_dir_all(&data).unwrap();
    }
    say(&format!("reads of an open: {reached} of {tried} reached, {refused} refused, all whole afterwards"));
    assert!(refused > 0, "no read of an open was made to fail");
}

#[test]
fn a_read_that_fails_destroys_nothing() {
    let count = count_from_env("BOSUN_READS", 6);
    reads_that_fail((1..=200).step_by(200 / count.max(1) as usize).chain([3]));
}

#[test]
#[ignore = "minutes: cargo full"]
fn none_of_the_first_200_reads_destroys_anything() {
    reads_that_fail(1..=200);
}

pub(crate) fn said_by(arguments: &[&str], data: &Path) -> (Option<i32>, String) {
    let output = Command::new(bosun().unwrap()).args(arguments).arg("--data").arg(data).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// How many a list has, wherever it is.
fn count_in(told: &Value, list: &str) -> usize {
    match told {
        Value::Object(map) => {
            let here = map.get(list).and_then(Value::as_array).map_or(0, Vec::len);
            here + map.values().map(|value| count_in(value, list)).sum::<usize>()
        }
        _ => 0,
    }
}

/// G7: a damaged store is refused and named; isolated, all runs that were not hit go on, and the damaged files stay as
/// they were.
#[test]
fn damage_is_isolated_by_a_flag() {
    let home = tempfile::tempdir().unwrap();
    let (data, ledger) = left_by_a_kill(home.path());
    let db = data.join("log/db");
    let mut bytes = fs::read(&db).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    // A block in the middle, until one counts.
    let refused = (1..40_usize).any(|n| {
        let at = used * n / 40;
        bytes[at] ^= 0x10;
        fs::write(&db, &bytes).unwrap();
        said_by(&["store", "verify"], &data).0 == Some(21)
    });
    assert!(refused, "no damage counted");
    let damaged = stored(&data);
    let (code, said) = said_by(&["store", "verify", "-o", "json"], &data);
    assert_eq!(code, Some(21), "{said}");
    assert!(said.contains("at byte") && said.contains("runs_held") && said.contains("log/db"), "{said}");
    let told: Value = serde_json::from_str(&said[said.find('{').unwrap()..=said.rfind('}').unwrap()]).unwrap();
    let hit = count_in(&told, "runs_held") + count_in(&told, "runs_lost");
    let (code, said) = said_by(&["worker", "run"], &data);
    assert_eq!(code, Some(21), "{said}");
    assert!(damaged == stored(&data), "a refusal changed something");
    let mut isolating = Program::bosun_worker().unwrap();
    isolating.arguments.extend(["--on-damage", "isolate"].map(Into::into));
    let (mut worker, http) = WorkerProcess::start(&isolating, &data, READY_MAX).unwrap();
    assert!(damaged == stored(&data.join("damaged-1")), "the damaged files are kept as they were");
    let known = ledger.workflows();
    let whole = known.iter().filter(|id| {
        let began = Instant::now();
        let result = http.result(id, Duration::from_secs(5));
        result.is_ok_and(|result| result.is_some()) && began.elapsed() < Duration::from_secs(5)
    });
    let (whole, all) = (whole.count(), known.len());
    say(&format!("isolated: {whole} of {all} workflows are whole and closed\n{}", worker.said()));
    // A parent waits for a child that is held.
    assert!(whole + 2 * hit >= all, "{whole} of {all} are whole, {hit} runs were hit\n{}", worker.said());
    worker.terminate().unwrap();
    worker.wait(REQUEST_MAX).unwrap();
    let (code, said) = said_by(&["store", "verify"], &data);
    assert_eq!(code, Some(0), "{said}");
}

/// A byte of each place where `text` stands in the files of a store is another.
fn destroy(data: &Path, text: &str) -> usize {
    let (mut paths, mut places) = (Vec::new(), 0);
    PARTS.iter().for_each(|part| files_under(&data.join(part), &mut paths));
    for path in paths {
        let mut content = fs::read(&path).unwrap();
        let found: Vec<usize> = content
            .windows(text.len())
            .enumerate()
            .filter(|(_, it)| *it == text.as_bytes())
            .map(|(at, _)| at)
            .collect();
        found.iter().for_each(|at| content[*at] ^= 0x10);
        if !found.is_empty() {
            fs::write(&path, content).unwrap();
        }
        places += found.len();
    }
    places
}

/// E22, G7: a history of which damage has taken a payload is unreadable, and says which: the code that is replayed against it is
/// not said to be wrong.
#[test]
fn a_history_that_lost_a_payload_accuses_no_code() {
    let home = tempfile::tempdir().unwrap();
    let [data, saved] = ["data", "saved"].map(|name| home.path().join(name));
    let mut chance = Chance::from_env("a_history_that_lost_a_payload_accuses_no_code");
    let pad: String = (0..200_000).map(|_| char::from(b'a' + chance.below(26) as u8)).collect();
    let program = json!({ "vars": { "pad": pad }, "steps": [{ "wait_signal": { "name": "go" } }] });
    let input = home.path().join("program.json");
    fs::write(&input, program.to_string()).unwrap();
    let (code, said) = said_by(&["start", "kitchen-sink", "-w", "big", "-i", &format!("@{}", input.display())], &data);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said_by(&["replay", "check", "big"], &data).0, Some(0), "whole, it fits");
    let mut files = Vec::new();
    files_under(&data.join("payloads"), &mut files);
    let [file] = files.as_slice() else { panic!("one payload is a file: {files:?}") };
    let hash = file.file_name().unwrap().to_str().unwrap().to_owned();
    fs::remove_file(file).unwrap();
    let (code, said) = said_by(&["store", "salvage", data.to_str().unwrap(), "--to", saved.to_str().unwrap()], &data);
    assert_eq!(code, Some(0), "{said}");
    let export = home.path().join("big.json");
    assert_eq!(said_by(&["export", "big", "--out", export.to_str().unwrap()], &saved).0, Some(0));
    for words in [["replay", "check", "big"], ["replay", "check", export.to_str().unwrap()]] {
        let (code, said) = said_by(&words, &saved);
        assert!(code == Some(21) && said.contains(&format!("took payload {hash}")), "{words:?}: {code:?} {said}");
        assert!(!said.contains("BOSUN0101") && !said.contains("patched"), "{said}");
    }
    let (_, said) = said_by(&["show", "big", "-o", "jsonl"], &saved);
    assert!(said.contains(&format!(r#""lost":"{hash}""#)), "the history says which: {said}");
}

/// G7: a run whose first group is damaged stays under its workflow id, held: nobody starts it a second time by mistake, nothing
/// goes on from what is lost of it, and its owner ends it.
#[test]
fn a_run_that_lost_its_start_keeps_its_id() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let order = r#"{"order_id": "o-1", "items": [{"sku": "earl-grey", "quantity": 1}], "cents": 5}"#;
    let start = |id: &str, more: &[&str]| {
        let words = [&["start", "order-saga", "-w", id, "-i", order][..], more].concat();
        said_by(&words, &data)
    };
    assert_eq!(start("o-kept", &["--start-delay", "1h"]).0, Some(0));
    assert!(destroy(&data, "earl-grey") > 0, "the input is not where it was looked for");
    let (code, said) = said_by(&["list"], &data);
    assert_eq!(code, Some(21), "{said}");
    let mut isolating = Program::bosun_worker().unwrap();
    isolating.arguments.extend(["--on-damage", "isolate"].map(Into::into));
    let (mut worker, _) = WorkerProcess::start(&isolating, &data, READY_MAX).unwrap();
    let (code, said) = start("o-kept", &["--id-reuse-policy", "reject-duplicate"]);
    assert!(code != Some(0) && said.contains("o-kept"), "{code:?} {said}");
    let (_, said) = said_by(&["describe", "o-kept"], &data);
    assert!(said.contains("its input is lost") && said.contains("order-saga"), "{said}");
    let (code, said) = said_by(&["reset", "o-kept", "--to", "1", "-y"], &data);
    assert!(code != Some(0) && said.contains("damage to the store took its input"), "{code:?} {said}");
    let (_, said) = said_by(&["store", "info"], &data);
    assert!(said.contains("damaged-1"), "{said}");
    let (code, said) = said_by(&["terminate", "o-kept", "-y"], &data);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(start("o-kept", &[]).0, Some(0));
    worker.terminate().unwrap();
    worker.wait(REQUEST_MAX).unwrap();
}

/// E38: what is damaged and costs nothing yet is told by whoever looks; a start writes the tail anchor anew, a compact the rest.
#[test]
fn damage_that_costs_nothing_is_told() {
    let home = tempfile::tempdir().unwrap();
    let (data, ledger) = left_by_a_kill(home.path());
    let program = Program::bosun_worker().unwrap();
    // After a normal end everything lies where it stays.
    let (mut worker, _) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    assert_eq!(said_by(&["worker", "stop"], &data).0, Some(0));
    assert!(worker.wait(REQUEST_MAX).unwrap().is_some());
    assert_eq!(said_by(&["store", "verify"], &data).0, Some(0));
    let mut values = Vec::new();
    ["groups", "values"].iter().for_each(|part| files_under(&data.join(part), &mut values));
    let values = values.first().expect("the load has long values");
    for (file, at) in [(&data.join("anchor"), 4_100), (values, 20)] {
        let mut content = fs::read(file).unwrap();
        content[at] ^= 1;
        fs::write(file, content).unwrap();
    }
    for (verb, expected) in [(&["store", "verify"][..], 21), (&["doctor"], 1)] {
        let (code, said) = said_by(verb, &data);
        assert_eq!(code, Some(expected), "{said}");
        assert!(said.contains("slot of the tail anchor") && said.contains("its header is damaged"), "{said}");
    }
    has_everything(&program, &data, &ledger, "with damage that costs nothing");
    let (code, said) = said_by(&["store", "verify"], &data);
    assert!(code == Some(21) && !said.contains("tail anchor") && said.contains("its header is damaged"), "{said}");
    assert_eq!(said_by(&["store", "compact"], &data).0, Some(0));
    assert_eq!(said_by(&["store", "verify"], &data).0, Some(0));
    has_everything(&program, &data, &ledger, "after a compact");
}
