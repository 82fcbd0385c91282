//! Payloads that no cluster takes: in files of a directory, or refused by name.
//!
//! Invariant: what the cluster keeps is looked at with Temporal's own tool, what is kept beside it on the disk. A file that is
//! gone, or another, stops a run and ends none.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Scene;
use super::rig::{Cluster, shown};

pub(super) const SCENES: &[Scene] = &[
    ("large_payloads_go_through_files", large_payloads),
    ("a_large_payload_that_is_gone_holds_its_run", what_is_gone_holds),
    ("large_payloads_are_encrypted_with_the_key_of_the_store", encrypted),
    ("a_result_that_cannot_be_kept_is_not_made_again", waits_for_room),
    ("what_is_too_large_waits_for_a_worker_with_a_payload_store", waits_for_a_store),
];

/// The runs of these scenes: nobody reads them without their directories.
pub(super) const RUNS: [&str; 6] = ["large", "large-child", "gone", "encrypted", "room", "waits-store"];

/// More than a cluster takes.
const LARGE: usize = 2_500_000;

fn large(letter: char) -> Value {
    json!(letter.to_string().repeat(LARGE))
}

/// A file with this JSON, as the command line takes it.
fn input(cluster: &Cluster, name: &str, value: &Value) -> String {
    let file = cluster.folder.path().join(name);
    std::fs::write(&file, value.to_string()).unwrap();
    format!("@{}", file.display())
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(directory.join("sha256")).into_iter().flatten().map(|entry| entry.unwrap().path());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    files.collect()
}

fn json_of(output: &std::process::Output) -> Value {
    assert!(output.status.success(), "{}", shown(output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {}", shown(output)))
}

// long: one way in or out after the other.
fn large_payloads(cluster: &Cluster) {
    let directory = cluster.folder.path().join("payloads");
    let store = ["--payload-store", directory.to_str().unwrap()];
    let (queue, id) = (cluster.name("large"), "large");
    let worker = cluster.worker(&queue, &store);
    let ask = |args: &[&str]| cluster.run(&[args, &store, &["-o", "json"]].concat());
    let program = json!({ "steps": [
        { "set": { "ready": false } },
        { "wait_signal": { "name": "a", "as": "a" } },
        { "activity": { "type": "echo", "input": "$a", "as": "e" } },
        { "side_effect": { "value": "$e", "as": "s" } },
        { "child": { "type": "kitchen-sink", "input": { "steps": [{ "wait_signal": { "name": "mine", "as": "m" } }, { "return": "$m" }] }, "id": "large-child", "as": "c" } },
        { "wait_signal": { "name": "go", "as": "go" } },
        { "wait_var": { "name": "ready", "equals": 1 } },
        { "return": ["$e", "$go", "$c"] }
    ], "vars": { "large": large('v') } });
    json_of(&ask(&[
        "start",
        "kitchen-sink",
        "-w",
        id,
        "-q",
        &queue,
        "--input",
        &input(cluster, "program.json", &program),
    ]));
    json_of(&ask(&["signal", "-w", id, "a", "--input", &input(cluster, "a.json", &large('a'))]));
    cluster.until("the child is there", || {
        ask(&["signal", "-w", "large-child", "mine", "--input", &input(cluster, "c.json", &large('c'))])
            .status
            .success()
            .then_some(())
    });
    json_of(&ask(&["signal", "-w", id, "go", "--input", &input(cluster, "g.json", &large('g'))]));
    let vars = cluster.until("all has arrived", || {
        let vars = json_of(&ask(&["query", "-w", id, "vars"]));
        (vars.to_string().len() > 5 * LARGE).then_some(vars)
    });
    let vars = vars.get("result").unwrap_or(&vars);
    assert_eq!((&vars["large"], &vars["e"], &vars["go"]), (&large('v'), &large('a'), &large('g')));
    let set = |name: &str, value: &Value| json!({ "name": name, "value": value });
    let before = json_of(&ask(&[
        "update",
        "-w",
        id,
        "set_var",
        "--input",
        &input(cluster, "u.json", &set("large", &large('u'))),
    ]));
    assert!(before.to_string().contains(&large('v').to_string()), "what it was before");
    json_of(&ask(&["update", "-w", id, "set_var", "--input", "{\"name\": \"ready\", \"value\": 1}"]));
    let result = json_of(&ask(&["result", "-w", id, "--timeout", "110s"]));
    assert_eq!(result["result"], json!([large('a'), large('g'), large('c')]));
    // Whoever reads the history reads it whole.
    let checked = ask(&["replay", "check", "--query", &format!("WorkflowId = '{id}'")]);
    assert!(checked.status.success(), "{}", shown(&checked));
    let exported = cluster.folder.path().join("large-export.json");
    let export = cluster.run(&[&["export", id, "--out", exported.to_str().unwrap()], &store[..]].concat());
    assert!(export.status.success(), "{}", shown(&export));
    let text = std::fs::read_to_string(&exported).unwrap();
    assert!(text.len() > 5 * LARGE && !text.contains("bosun.directory"), "{} bytes", text.len());
    // The cluster has references, and each content is one file: the program, five values, what `vars` and the code gave.
    let history = cluster.temporal(&["workflow", "show", "-w", id, "--output", "json"]);
    assert!(history.stdout.len() < 100_000, "{} bytes", history.stdout.len());
    let held = files(&directory);
    let total: u64 = held.iter().map(|file| std::fs::metadata(file).unwrap().len()).sum();
    assert!((8..=13).contains(&held.len()), "{held:?}");
    let doctor = cluster.embedded("large-doctor", &[&["doctor"], &store[..]].concat());
    let says = format!("{} payloads, {} KiB", held.len(), total.div_ceil(1024));
    assert!(shown(&doctor).contains(&says), "{says}: {}", shown(&doctor));
    // Temporal's own file has references alone.
    let theirs = cluster.folder.path().join("large-temporal.json");
    std::fs::write(&theirs, &history.stdout).unwrap();
    let refused = cluster.embedded("large-theirs", &["replay", "explain", theirs.to_str().unwrap()]);
    assert!(shown(&refused).contains("is kept outside of the history"), "{}", shown(&refused));
    // Without the directory it is said what is missing.
    let blind = cluster.run(&["result", "-w", id]);
    assert_eq!(blind.status.code(), Some(21), "{}", shown(&blind));
    assert!(shown(&blind).contains("BOSUN0051") && shown(&blind).contains("--payload-store"), "{}", shown(&blind));
    let described = cluster.json(&["describe", "-w", id]);
    assert!(described["warnings"].to_string().contains("--payload-store"), "{described}");
    assert_eq!(worker.term(), 0);
}

fn what_is_gone_holds(cluster: &Cluster) {
    let directory = cluster.folder.path().join("gone");
    let store = ["--payload-store", directory.to_str().unwrap()];
    let queue = cluster.name("gone");
    let ask = |args: &[&str]| cluster.run(&[args, &store, &["-o", "json"]].concat());
    let worker = cluster.worker(&queue, &[&store[..], &["--max-cached-workflows", "0"]].concat());
    let steps = json!([
        { "activity": { "type": "echo", "input": large('a'), "as": "e" } },
        { "wait_signal": { "name": "go", "as": "go" } },
        { "activity": { "type": "echo", "input": "$e", "as": "e" } },
        { "return": "$e" }
    ]);
    let program = input(cluster, "gone.json", &json!({ "steps": steps }));
    json_of(&ask(&["start", "kitchen-sink", "-w", "gone", "-q", &queue, "--input", &program]));
    cluster.until("the first is done", || {
        let described = json_of(&ask(&["describe", "-w", "gone"]));
        described["awaiting"].to_string().contains("signal").then_some(())
    });
    let held = files(&directory);
    assert_eq!(held.len(), 2, "the program, and what goes in and comes out: {held:?}");
    let aside = cluster.folder.path().join("aside");
    let (gone, other) = (&held[0], &held[1]);
    std::fs::rename(gone, &aside).unwrap();
    json_of(&ask(&["signal", "-w", "gone", "go"]));
    let why = cluster
        .until("the run is held", || json_of(&ask(&["describe", "-w", "gone"]))["held"].as_str().map(str::to_owned));
    assert!(why.contains(&gone.display().to_string()) && why.contains("which is not there"), "{why}");
    let shown_run = ask(&["show", "-w", "gone"]);
    assert!(shown(&shown_run).contains("BOSUN0051"), "{}", shown(&shown_run));
    // It is back, and another is not what it was.
    std::fs::rename(&aside, gone).unwrap();
    let whole = std::fs::read(other).unwrap();
    let mut changed = whole.clone();
    *changed.last_mut().unwrap() ^= 1;
    std::fs::write(other, &changed).unwrap();
    let shown_run = ask(&["show", "-w", "gone"]);
    let says = format!("the file {} has been changed", other.display());
    assert!(shown(&shown_run).contains(&says), "{}", shown(&shown_run));
    cluster.until("the worker says so too", || worker.log().contains(&says).then_some(()));
    std::fs::write(other, &whole).unwrap();
    let result = cluster.until("it goes on by itself", || {
        let result = ask(&["result", "-w", "gone", "--timeout", "100s"]);
        result.status.success().then(|| json_of(&result))
    });
    assert_eq!(result["result"], large('a'));
    assert_eq!(worker.term(), 0);
}

fn encrypted(cluster: &Cluster) {
    let directory = cluster.folder.path().join("encrypted");
    let directory_text = directory.display().to_string();
    let environment = [
        ("BOSUN_TEMPORAL", cluster.address.as_str()),
        ("BOSUN_PAYLOAD_STORE", &directory_text),
        ("BOSUN_STORE_KEY", "env:PAYLOAD_KEY"),
        ("PAYLOAD_KEY", &"5".repeat(64)),
    ];
    let queue = cluster.name("encrypted");
    let worker = cluster.worker_found_by(&environment, &queue, &cluster.address);
    let steps = json!([{ "activity": { "type": "echo", "input": large('e'), "as": "e" } }, { "return": "$e" }]);
    let program = input(cluster, "encrypted.json", &json!({ "steps": steps }));
    let ask =
        |environment: &[(&str, &str)], args: &[&str]| cluster.run_by(environment, &[args, &["-o", "json"]].concat());
    json_of(&ask(&environment, &["start", "kitchen-sink", "-w", "encrypted", "-q", &queue, "--input", &program]));
    let result = json_of(&ask(&environment, &["result", "-w", "encrypted", "--timeout", "110s"]));
    assert_eq!(result["result"], large('e'));
    let held = files(&directory);
    assert_eq!(held.len(), 2, "the same is one file, also encrypted: {held:?}");
    for file in &held {
        let bytes = std::fs::read(file).unwrap();
        assert!(bytes.len() < LARGE / 10, "it is compressed before: {}", bytes.len());
        assert!(!bytes.windows(16).any(|part| part == [b'e'; 16]), "{file:?} can be read");
    }
    let without = ask(&environment[..2], &["result", "-w", "encrypted"]);
    assert!(shown(&without).contains("is encrypted with the key"), "{}", shown(&without));
    let mut other = environment;
    let wrong = "6".repeat(64);
    other[3].1 = &wrong;
    let without = ask(&other, &["result", "-w", "encrypted"]);
    assert!(shown(&without).contains("is encrypted with the key"), "{}", shown(&without));
    assert_eq!(worker.term(), 0);
}

/// The directory is lost while a program runs, which has done what it had to: its result is kept when the directory is back, and
/// the program is not started again, though it might be.
fn waits_for_room(cluster: &Cluster) {
    let (queue, id) = (cluster.name("room"), "room");
    let (directory, noted) = (cluster.folder.path().join("room-payloads"), cluster.folder.path().join("room-noted"));
    let store = ["--payload-store", directory.to_str().unwrap()];
    // A worker makes it with the first payload that it keeps.
    std::fs::create_dir(&directory).unwrap();
    let worker = cluster.worker(&queue, &store);
    let aside = directory.with_extension("aside");
    let (place, away, done) = (directory.display(), aside.display(), noted.display());
    let script =
        format!("mv {place} {away}; echo > {place}; echo once >> {done}; head -c 400000 /dev/zero | tr '\\0' x");
    let call = json!({ "type": "process", "input": { "argv": ["sh", "-c", script] }, "as": "p" });
    let program = json!({ "steps": [{ "activity": call }, { "return": 1 }] });
    let start = ["start", "kitchen-sink", "-w", id, "-q", &queue, "--input", &program.to_string()];
    json_of(&cluster.run(&[&start[..], &store, &["-o", "json"]].concat()));
    cluster.until("the program has run", || noted.exists().then_some(()));
    // Longer than its retry policy waits.
    std::thread::sleep(std::time::Duration::from_secs(4));
    std::fs::remove_file(&directory).unwrap();
    std::fs::rename(&aside, &directory).unwrap();
    assert_eq!(cluster.result(id).0, 0);
    assert_eq!(std::fs::read_to_string(&noted).unwrap(), "once\n", "it is carried out once");
    assert_eq!(files(&directory).len(), 1);
    assert_eq!(worker.term(), 0);
}

/// The workflow task fails, by name, and not the run.
fn waits_for_a_store(cluster: &Cluster) {
    let queue = cluster.name("waits-store");
    let worker = cluster.worker(&queue, &[]);
    let half = json!("h".repeat(1_300_000));
    let twice = |id: &str, steps: Value| {
        let program = input(cluster, "half.json", &json!({ "steps": steps, "vars": { "h": half } }));
        cluster.json(&["start", "kitchen-sink", "-w", id, "-q", &queue, "--input", &program]);
    };
    twice("waits-store", json!([{ "return": ["$h", "$h"] }]));
    let held = cluster.until("the run is held", || {
        cluster.json(&["describe", "-w", "waits-store"])["held"].as_str().map(str::to_owned)
    });
    assert!(held.contains("2600") && held.contains("2097152") && held.contains("--payload-store"), "{held}");
    // An activity fails: it would give the same again.
    let call =
        json!({ "activity": { "type": "echo", "input": ["$h"], "as": "e", "retry": { "maximum_attempts": 2 } } });
    twice("fits-store", json!([call, { "return": 1 }]));
    assert_eq!(cluster.result("fits-store").0, 0);
    // A question has no answer, and nothing else comes of it.
    twice("asks-store", json!([{ "set": { "i": "$h" } }, { "wait_signal": { "name": "go" } }, { "return": 2 }]));
    let asked = cluster.until("it is asked", || {
        let asked = cluster.run(&["query", "-w", "asks-store", "vars"]);
        shown(&asked).contains("2097152").then_some(asked)
    });
    assert!(shown(&asked).contains("a payload has"), "{}", shown(&asked));
    cluster.json(&["signal", "-w", "asks-store", "go"]);
    assert_eq!(cluster.result("asks-store").0, 0);
    assert_eq!(worker.term(), 0);
    let directory = cluster.folder.path().join("waits-store");
    let store = ["--payload-store", directory.to_str().unwrap()];
    let worker = cluster.worker(&queue, &store);
    let result =
        cluster.run(&[&["result", "-w", "waits-store", "--timeout", "110s", "-o", "json"], &store[..]].concat());
    assert_eq!(json_of(&result)["result"], json!([half, half]));
    assert_eq!(worker.term(), 0);
}
