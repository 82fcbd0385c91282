//! Encryption at rest (E31), by the shipped binary: in the database, in what is written ahead of it, and in every copy of a store.

use std::path::{Path, PathBuf};

use bosun_tests::harness::binary::said;
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess};

use crate::doors::{did, file, refused, run};

/// Every file under a directory, with what is in it, in order.
fn files_in(data: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut left = vec![data.to_owned()];
    while let Some(place) = left.pop() {
        for entry in std::fs::read_dir(place).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                all.push((path.clone(), std::fs::read(&path).unwrap()));
            }
        }
    }
    all.sort();
    all
}

/// E31: with a key nothing that a run says is readable on disk; without it, or with another, the store is not opened and not a
/// byte of it changes; after a rotation both are needed; and `store info` says so.
#[test]
fn a_store_is_encrypted_with_the_owners_key() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let one = format!("store.key=file:{}", file(dir.path(), "one", &"1".repeat(64)).display());
    let two = format!("store.key=file:{}", file(dir.path(), "two", &"2".repeat(64)).display());
    let old = one.replace("store.key", "store.old_keys");
    let program = r#"{"steps":[{"return":"canary-4711-canary"}]}"#;
    did(&data, &["execute", "kitchen-sink", "-w", "secret", "--input", program, "--set", &one]);
    let holds =
        |needle: &[u8]| files_in(&data).iter().any(|(_, bytes)| bytes.windows(needle.len()).any(|at| at == needle));
    assert!(holds(b"secret") && !holds(b"canary-4711-canary"), "ids are readable, what runs say is not");
    let before = files_in(&data);
    for keys in [vec![], vec!["--set", two.as_str()]] {
        for verb in ["result secret", "list", "store verify", "replay show secret", "start kitchen-sink -w more"] {
            let words: Vec<&str> = verb.split(' ').chain(keys.iter().copied()).collect();
            let told = refused(&data, &words, 32);
            assert!(told.contains("is encrypted with the key") && told.contains("nothing was touched"), "{told}");
        }
    }
    assert_eq!(files_in(&data), before, "not a byte has changed");
    let both = ["--set", two.as_str(), "--set", old.as_str()];
    let with = |words: &[&str]| did(&data, &words.iter().chain(&both).copied().collect::<Vec<_>>());
    assert_eq!(with(&["result", "secret"]).trim(), "canary-4711-canary");
    with(&["execute", "kitchen-sink", "-w", "later", "--input", program]);
    let info = with(&["store", "info"]);
    assert!(info.contains("encryption writes with") && info.contains("encryption needs keys"), "{info}");
    refused(&data, &["result", "later", "--set", &one], 32);
}

/// E31: what is written ahead of the database too: a worker that is killed leaves its write-ahead files, and nothing that
/// its runs said is readable in them.
#[test]
fn what_a_killed_worker_wrote_ahead_is_encrypted() {
    let dir = tempfile::tempdir().unwrap();
    let key = format!("store.key=file:{}", file(dir.path(), "key", &"1".repeat(64)).display());
    let program =
        r#"{"steps":[{"activity":{"type":"echo","input":"canary-4712-done"}},{"wait_signal":{"name":"go"}}]}"#;
    let left = |name: &str, with: &[&str]| {
        let data = dir.path().join(name);
        let mut starting = Program::bosun_worker().unwrap();
        starting.arguments.extend(with.iter().map(Into::into));
        let (mut worker, _http) = WorkerProcess::start(&starting, &data, READY_MAX).unwrap();
        did(&data, &["start", "kitchen-sink", "-w", "ahead", "--input", program, "--memo", "note=canary-4712-memo"]);
        did(&data, &["signal", "ahead", "other", "--input", "\"canary-4712-signal\""]);
        let done = || did(&data, &["show", "ahead", "-o", "jsonl"]).contains("ActivityTaskCompleted");
        assert!((0..200).any(|_| done()), "the activity ends");
        worker.kill().unwrap();
        let files = std::fs::read_dir(data.join("wal")).unwrap().flatten();
        files.flat_map(|entry| std::fs::read(entry.path()).unwrap()).collect::<Vec<u8>>()
    };
    let holds = |bytes: &[u8], needle: &str| bytes.windows(needle.len()).any(|at| at == needle.as_bytes());
    let (clear, sealed) = (left("clear", &[]), left("sealed", &["--set", &key]));
    for canary in ["canary-4712-done", "canary-4712-memo", "canary-4712-signal"] {
        assert!(holds(&clear, canary), "the test would not see {canary}");
        assert!(!holds(&sealed, canary), "{canary} is readable");
    }
    assert!(holds(&sealed, "ahead"), "the run is there, by its id");
}

/// E31 and "damage stays with what it hit": what a killed worker leaves is whole, so a salvage holds nothing of it, and each kind of
/// copy (salvage, backup, restore, compact) has the runs, and tells them to whoever has the key and to nobody else.
#[test]
fn copies_of_what_a_killed_worker_left_are_whole_and_encrypted() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let key = format!("store.key=file:{}", file(dir.path(), "key", &"1".repeat(64)).display());
    let with =
        |data: &Path, words: &[&str]| did(data, &words.iter().chain(&["--set", &key]).copied().collect::<Vec<_>>());
    let program = r#"{"steps":[{"activity":{"type":"echo","input":"canary-4713"}},{"wait_signal":{"name":"go"}},{"return":"end-4713"}]}"#;
    let mut starting = Program::bosun_worker().unwrap();
    starting.arguments.extend(["--set", key.as_str()].map(Into::into));
    for life in 0..4 {
        let (mut worker, _http) = WorkerProcess::start(&starting, &data, READY_MAX).unwrap();
        let id = format!("of-life-{life}");
        did(&data, &["start", "kitchen-sink", "-w", &id, "--input", program]);
        let done = || did(&data, &["show", &id, "-o", "jsonl"]).contains("ActivityTaskCompleted");
        assert!((0..200).any(|_| done()), "the activity ends");
        if life == 3 {
            did(&data, &["signal", "of-life-0", "go"]);
            assert!(did(&data, &["result", "of-life-0"]).starts_with("end-4713\n"));
            with(&data, &["store", "backup", dir.path().join("of-a-live-one").to_str().unwrap()]);
        }
        worker.kill().unwrap();
    }
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let told = with(&data, &["store", "salvage", "--to", &place("salvaged"), data.to_str().unwrap()]);
    for line in ["runs whole     4", "runs held      none", "damage         none"] {
        assert!(told.contains(line), "{line:?} is missing in {told}");
    }
    with(&data, &["store", "backup", &place("of-a-closed-one")]);
    let restored =
        run(&data, &["store", "restore", &place("of-a-live-one"), "--to", &place("restored"), "--set", &key]);
    assert!(restored.status.success(), "{}", said(&restored));
    with(&data, &["store", "compact", "--to", &place("compacted")]);
    for copy in ["salvaged", "restored", "compacted", "of-a-closed-one"].map(|name| dir.path().join(name)) {
        assert_eq!(with(&copy, &["result", "of-life-0", "--no-wait"]).trim(), "end-4713", "{copy:?}");
        assert!(with(&copy, &["show", "of-life-3"]).contains("canary-4713"), "{copy:?}");
        let told = refused(&copy, &["result", "of-life-0"], 32);
        assert!(told.contains("is encrypted with the key"), "{told}");
        let readable = files_in(&copy).into_iter().find(|(_, bytes)| bytes.windows(6).any(|at| at == b"canary"));
        assert_eq!(readable.map(|(path, _)| path), None, "nothing that a run said is readable");
    }
}
