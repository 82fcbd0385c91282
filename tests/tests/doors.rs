//! Who gets in, and what a command does to what is not its own, by the shipped binary: strangers on a port, namespaces, named
//! tokens, directories that are no stores, the owner's guards, and texts that would like to be lines.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bosun_tests::harness::binary::said;
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess, bosun};
use serde_json::{Value, json};

fn command(data: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(bosun().unwrap());
    command.args(words).arg("--data").arg(data).stdin(Stdio::null());
    command
}

pub(crate) fn run(data: &Path, words: &[&str]) -> Output {
    command(data, words).output().unwrap()
}

#[track_caller]
pub(crate) fn did(data: &Path, words: &[&str]) -> String {
    let output = run(data, words);
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    said(&output)
}

#[track_caller]
pub(crate) fn refused(data: &Path, words: &[&str], code: i32) -> String {
    let output = run(data, words);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {}", said(&output));
    said(&output)
}

fn running(data: &Path) -> WorkerProcess {
    WorkerProcess::start(&Program::bosun_worker().unwrap(), data, READY_MAX).unwrap().0
}

const WAITS: &str = r#"{"steps":[{"wait_signal":{"name":"go"}}]}"#;

/// A worker was killed and left its file; a stranger has its port, and its process id lives again. The command line finds
/// out before the token is sent, and opens the directory itself.
#[test]
fn a_stranger_on_the_port_of_a_killed_worker_gets_no_token() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    did(&data, &["start", "kitchen-sink", "-w", "one", "--input", WAITS]);
    drop(running(&data));
    let token = std::fs::read_to_string(data.join("token")).unwrap();
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", stranger.local_addr().unwrap());
    let file = serde_json::json!({ "pid": std::process::id(), "address": address, "token_file": data.join("token"),
        "version": "0.1.0", "started_at": "2026-11-20T18:00:00Z" });
    std::fs::write(data.join("worker.json"), file.to_string()).unwrap();
    let heard = Arc::new(Mutex::new(String::new()));
    let noted = heard.clone();
    std::thread::spawn(move || {
        for stream in stranger.incoming() {
            let (mut stream, mut bytes) = (stream.unwrap(), [0; 4_096]);
            let length = stream.read(&mut bytes).unwrap_or(0);
            noted.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..length]));
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{\"status\":\"ready\"}");
        }
    });
    assert!(did(&data, &["list"]).contains("one"), "the directory is opened, since nobody holds it");
    let told = refused(&data, &["list", "--address", &address], 31);
    assert!(told.contains("does not know the token"), "{told}");
    let heard = heard.lock().unwrap();
    assert!(heard.contains("bosun-challenge"), "it was asked: {heard}");
    assert!(!heard.contains(token.trim()) && !heard.to_ascii_lowercase().contains("authorization"), "{heard}");
}

/// `latest`, places, beginnings, lists, counts and every verb stay in their namespace; one that was never used is said not to
/// have been; `latest` is nobody's child; and what a shortcut means is asked for by its whole name.
#[test]
fn namespaces_protect() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let start = |id: &str, namespace: &str| {
        did(&data, &["start", "kitchen-sink", "-w", id, "--namespace", namespace, "--input", WAITS]);
    };
    start("order-dev", "dev");
    start("order-prod", "prod");
    for verb in [
        "list",
        "count",
        "describe latest",
        "show latest",
        "terminate latest -y",
        "delete @1 -y",
        "replay check --open",
    ] {
        let words: Vec<&str> = verb.split(' ').chain(["--namespace", "staging"]).collect();
        let told = refused(&data, &words, 30);
        assert!(told.contains("the namespace staging has no runs"), "{told}");
    }
    for words in [["describe", "order-prod"], ["describe", "order-p"], ["terminate", "order-p"], ["result", "@2"]] {
        refused(&data, &[words[0], words[1], "--namespace", "dev", "-y"], 30);
    }
    assert_eq!(did(&data, &["count", "--namespace", "dev"]).trim(), "1");
    let listed =
        did(&data, &["list", "--namespace", "dev", "--query", "WorkflowId = 'order-prod' OR WorkflowId = 'order-dev'"]);
    assert!(listed.contains("order-dev") && !listed.contains("order-prod"), "{listed}");
    let asked = refused(&data, &["cancel", "order", "--namespace", "dev"], 32);
    assert!(asked.contains("cancel order-dev of the namespace dev"), "the whole id is named: {asked}");
    did(&data, &["terminate", "latest", "--namespace", "dev", "-y"]);
    assert!(did(&data, &["describe", "latest", "--namespace", "dev"]).contains("Terminated"));
    assert!(did(&data, &["describe", "order-prod", "--namespace", "prod"]).contains("Running"), "it was not meant");
    let parent = r#"{"steps":[{"child":{"id":"below","input":{"steps":[{"wait_signal":{"name":"go"}}]},"wait":false,"close_policy":"abandon"}},{"return":1}]}"#;
    did(&data, &["execute", "kitchen-sink", "-w", "above", "--input", parent]);
    assert!(did(&data, &["list"]).contains("below"));
    assert!(did(&data, &["describe", "latest"]).contains("above"), "what somebody started, not what a run did");
}

pub(crate) fn file(dir: &Path, name: &str, text: &str) -> PathBuf {
    use std::os::unix::fs::OpenOptionsExt;
    let path = dir.join(name);
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    path
}

const GATED: &str = "
kind: supervisor
preset: shannon-supervisor
objective: two steps and a publication
planner: { script: [{ on: plan, say: { subtasks: [
  { id: look, description: look around }, { id: tell, description: tell it, action: publish it, deps: [look] }] } }] }
agents: [{ name: worker }]
script: [{ on: execute_worker, say: done }, { on: synthesize, say: done }]
";

/// A named token does what its role may, where it may; what it does is recorded under its name, whatever `--by` says; and it
/// opens nothing once it is revoked, with no restart.
#[test]
fn a_token_has_a_name_a_role_and_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let worker = running(&data);
    let make = |words: &[&str]| {
        let words: Vec<&str> = ["token", "create"].iter().chain(words).copied().collect();
        let made = run(&data, &words);
        assert!(made.status.success(), "{}", said(&made));
        file(dir.path(), words[2], &String::from_utf8_lossy(&made.stdout)).display().to_string()
    };
    let (ann, eve) =
        (make(&["ann", "--role", "approver"]), make(&["eve", "--role", "viewer", "--only-namespace", "dev"]));
    let listed = did(&data, &["token", "list"]);
    assert!(listed.contains("ann") && listed.contains("approver") && listed.contains("dev"), "{listed}");
    let spec = file(dir.path(), "gated.yaml", GATED);
    let waits = ["run", spec.to_str().unwrap(), "-w", "gated", "--no-wait"];
    assert_eq!(run(&data, &waits).status.code(), Some(15));
    let told = refused(&data, &["terminate", "gated", "-y", "--token-file", &ann], 32);
    assert!(told.contains("needs the role operator; the token ann has approver"), "{told}");
    refused(&data, &["describe", "gated", "--token-file", &eve], 30);
    assert_eq!(did(&data, &["count", "--token-file", &ann]).trim(), "1");
    let waiting: Value = serde_json::from_slice(&run(&data, &["approval", "list", "-o", "json"]).stdout).unwrap();
    let id = waiting["waiting"][0]["request"]["id"].as_str().unwrap().to_owned();
    did(&data, &["approval", "approve", &id, "--by", "mallory", "--comment", "go", "--token-file", &ann]);
    let begin = Instant::now();
    while did(&data, &["describe", "gated"]).contains("Running") {
        assert!(begin.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(50));
    }
    let history = did(&data, &["show", "gated", "-o", "jsonl"]);
    assert!(history.contains(r#""approver":"ann""#) && history.contains("by mallory: go"), "{history}");
    assert!(!history.contains(r#""approver":"mallory""#), "{history}");
    did(&data, &["token", "revoke", "ann"]);
    refused(&data, &["count", "--token-file", &ann], 31);
    did(&data, &["count"]);
    drop(worker);
}

/// An activity of Bosun's own works for the runs whose door writes its input: any other run that names it, as any workflow can
/// name any activity, acts in nobody's name.
#[test]
fn no_workflow_acts_as_an_owner_by_naming_an_activity_of_batches() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let worker = running(&data);
    let made = run(&data, &["token", "create", "ann", "--role", "operator"]);
    let ann = file(dir.path(), "ann", &String::from_utf8_lossy(&made.stdout)).display().to_string();
    did(&data, &["start", "kitchen-sink", "-w", "victim", "-i", r#"{"steps":[{"timer":"1h"}]}"#]);
    let victim: Value = serde_json::from_slice(&run(&data, &["describe", "victim", "-o", "json"]).stdout).unwrap();
    let order = json!({ "query": "", "action": { "do": "terminate" }, "reason": "x", "by": "boss", "role": "owner" });
    let targets = json!([{ "workflow_id": "victim", "run_id": victim["workflow"]["run_id"] }]);
    let input = json!({ "batch": "b", "order": order, "targets": targets });
    let activity = json!({ "type": "bosun.batch.carry_out", "input": input });
    let steps = json!({ "steps": [{ "activity": activity }] }).to_string();
    let ended = run(&data, &["execute", "kitchen-sink", "-i", &steps, "--token-file", &ann]);
    assert!(!ended.status.success(), "{}", said(&ended));
    assert!(said(&ended).contains("works for runs of bosun.batch only"), "{}", said(&ended));
    assert!(did(&data, &["describe", "victim"]).contains("Running"));
    drop(worker);
}

/// Looking at a directory that is no store says so, and leaves it as it was.
#[test]
fn looking_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("papers");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("letter.txt"), "dear").unwrap();
    for verb in [
        "list",
        "count",
        "describe x",
        "show x",
        "result x",
        "store info",
        "store verify",
        "token list",
        "token revoke x",
        "terminate x -y",
        "replay check --open",
        "approval list",
    ] {
        let told = refused(&data, &verb.split(' ').collect::<Vec<_>>(), 30);
        assert!(told.contains("there is no store at"), "{verb}: {told}");
        let left: Vec<_> = std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["letter.txt"], "{verb}");
    }
    refused(&dir.path().join("nowhere"), &["list"], 30);
    assert!(!dir.path().join("nowhere").exists());
}

/// Verbs that only look leave every byte as it was, after a worker that was killed too: nothing is recovered for them.
#[test]
fn looking_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let spec = "kind: supervisor\npreset: shannon-dag\nobjective: tidy\nagents: [{ name: a }]\nscript:\n  \
                - { on: plan, say: { tasks: [{ id: t, goal: delete it, requires_approval: true }] } }\n";
    let spec = file(dir.path(), "spec.yaml", spec);
    let mut worker = running(&data);
    let asked = run(&data, &["run", spec.to_str().unwrap(), "-w", "asks", "--no-wait"]);
    assert!(said(&asked).contains("approve"), "{}", said(&asked));
    worker.kill().unwrap();
    let bytes = || -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = files_below(&data);
        files.sort();
        files.into_iter().map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
    };
    let before = bytes();
    assert!(before.len() > 3);
    for verb in [
        "list",
        "describe asks",
        "show asks",
        "result asks --no-wait",
        "approval list",
        "plan show asks",
        "budget show asks",
        "agent list asks",
        "cost asks",
        "query asks progress",
        "store verify",
    ] {
        run(&data, &verb.split(' ').collect::<Vec<_>>());
        assert!(bytes() == before, "{verb}");
    }
}

fn files_below(at: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// G36, G37: the owner's guards stand in `bosun.toml`, in the environment and in `--set`, and hold in the stock binary.
#[test]
fn the_owner_says_what_may_run() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::write(
        dir.path().join("bosun.toml"),
        "[process]\nallow = [\"true\"]\n[file]\nroots = [\"/nonexistent\"]\n",
    )
    .unwrap();
    let text = "objective: say it\ntasks:\n  - { task_id: 1, sub_task_objective: say, capability: process, \
                parameters: { argv: [echo, said] } }\n";
    let plan = file(dir.path(), "plan.yaml", text);
    let ran = |words: &[&str], variable: Option<&str>| {
        let words: Vec<&str> = ["run", plan.to_str().unwrap(), "--again"].iter().chain(words).copied().collect();
        let mut command = command(&data, &words);
        command.current_dir(dir.path());
        if let Some(value) = variable {
            command.env("BOSUN_PROCESS_ALLOW", value);
        }
        let told = said(&command.output().unwrap());
        format!("{told}{}", said(&run(&data, &["show", "latest", "-o", "jsonl"])))
    };
    let told = ran(&[], None);
    assert!(told.contains("is not among the commands this worker allows: true"), "{told}");
    let told = ran(&[], Some("echo, true"));
    assert!(!told.contains("is not among the commands"), "{told}");
    let told = ran(&["--set", "process.allow=cat"], Some("echo"));
    assert!(told.contains("is not among the commands this worker allows: cat"), "{told}");
    let told = ran(&["--set", "process.alow=cat"], None);
    assert!(told.contains("no key is called `process.alow`"), "{told}");
    let listed = said(&command(&data, &["config", "list"]).current_dir(dir.path()).output().unwrap());
    assert!(listed.contains("process.allow") && listed.contains("bosun.toml"), "{listed}");
    // Also where the command line's own reader knows the variable.
    let listed = |words: &[&str]| {
        let words: Vec<&str> = ["config", "list"].iter().chain(words).copied().collect();
        said(&command(&data, &words).env("BOSUN_OUTPUT", "json").current_dir(dir.path()).output().unwrap())
    };
    assert!(listed(&[]).starts_with(['{', '[']), "{}", listed(&[]));
    let text = listed(&["--set", "output=text"]);
    assert!(!text.starts_with(['{', '[']) && text.contains("process.allow"), "{text}");
}

/// G38: what a workflow says is no line of ours, however it breaks its own.
#[test]
fn no_text_makes_a_line_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let program =
        "{\"steps\":[{\"fail\":{\"type\":\"Bad\",\"message\":\"no\\nstatus         Completed\\u2028closed\\u202e\"}}]}";
    run(&data, &["execute", "kitchen-sink", "-w", "forged", "--input", program]);
    for verb in ["describe forged", "list", "show forged", "result forged"] {
        let told = said(&run(&data, &verb.split(' ').collect::<Vec<_>>()));
        assert!(!told.contains(['\u{2028}', '\u{202e}']), "{verb}: {told:?}");
        assert!(!told.lines().any(|line| line.starts_with("status         Completed")), "{verb}: {told}");
    }
}
