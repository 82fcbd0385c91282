//! What people get wrong with the command line, and what they are told: the message names the fix.
//!
//! Invariant: each row is one mistake as somebody makes it, by the shipped binary, with the exit code of the README and the
//! words that help. A mistake changes nothing.

use std::path::Path;
use std::process::Command;

use bosun_tests::harness::process::bosun;

const SPEC: &str = "\
kind: supervisor
preset: shannon-supervisor
objective: a publication
planner: { script: [{ on: plan, say: { subtasks: [{ id: tell, description: tell it, action: publish it }] } }] }
agents: [{ name: worker }]
script: [{ on: execute_worker, say: done }, { on: synthesize, say: done }]
";

/// What is typed after `bosun --data DIR`, the exit code, and what the message must hold.
#[rustfmt::skip]
const MISTAKES: &[(&[&str], i32, &[&str])] = &[
    // Files and specs.
    (&["run", "nowhere.yaml"], 2, &["nowhere.yaml cannot be read"]),
    (&["run", "preset.yaml"], 2, &["shannon-supervisr", "did you mean `shannon-supervisor`?", "preset.yaml:2:1"]),
    (&["run", "key.yaml"], 2, &["unknown key `objektive`", "did you mean `objective`?", "key.yaml:3:1"]),
    (&["run", "faults.yaml"], 2, &["objective: expected a text", "and objektive: unknown key", "and agents[1].nam: unknown key", "and agents[1].name: required"]),
    (&["run", "on.yaml"], 2, &["quote `on`: YAML 1.1 reads it as true"]),
    (&["run", "./taken"], 2, &["./taken is a directory", "run FILE.yaml`"]),
    (&["start", "order-saga"], 2, &["it was given no input", "-i @FILE"]),
    (&["run", "broken.yaml"], 2, &["broken.yaml", "line 1, column 4"]),
    (&["run", "anchor.yaml"], 2, &["anchors (`&name`) and aliases (`*name`) are not taken here", "line 2, column"]),
    (&["run", "two.yaml"], 2, &["more than one document", "`---`"]),
    (&["run", "kind.yaml"], 2, &["kind: \"supervsor\"", "expected `kind: supervisor`"]),
    (&["run", "empty.yaml"], 2, &["the file is empty", "kind: supervisor", "objective:"]),
    (&["run", "zero.yaml"], 1, &["zero.yaml is longer than 4194304 bytes"]),
    (&["start", "kitchen-sink", "-i", "@zero.yaml"], 1, &["the file zero.yaml is longer than 4194304 bytes", "a reference to it"]),
    (&["start", "preset.yaml"], 1, &["run preset.yaml"]),
    // Names.
    (&["lst"], 2, &["unrecognized subcommand 'lst'", "'list'"]),
    (&["schedule", "toggle", "s"], 2, &["unrecognized subcommand 'toggle'", "schedule pause ID`"]),
    (&["worker", "list"], 2, &["unrecognized subcommand 'list'", "worker describe`"]),
    (&["top-up", "waits"], 2, &["unrecognized subcommand 'top-up'", "budget top-up ID`"]),
    (&["store", "retention"], 2, &["unrecognized subcommand 'retention'", "--retention"]),
    (&["start", "order-sagas"], 1, &["no workflow type order-sagas", "order-saga", "run FILE.yaml`"]),
    (&["start", "order-saga", "--input", "{bad"], 2, &["--input is not JSON", "quote text"]),
    (
        &["signal-with-start", "kitchen-sink", "-w", "x", "--signal-name", "go", "--signal-input", "{bad"],
        2,
        &["--signal-input is not JSON", "for example --signal-input"],
    ),
    (&["list", "--fields", "workflw_id"], 2, &["no column is called `workflw_id`", "did you mean `workflow_id`?"]),
    (&["list", "--query", "Status = 'Running'"], 2, &["`Status` is no field", "ExecutionStatus"]),
    (&["replay", "check", "--query", "Status = 'Running'", "--open"], 2, &["`Status` is no field", "ExecutionStatus"]),
    (&["migrate", "--query", "Status = 'Running'", "--to-data", "other", "--dry-run"], 2, &["`Status` is no field"]),
    (&["store", "gc", "--address", "http://127.0.0.1:1"], 2, &["not over --address", "with --data"]),
    (&["list", "--address="], 2, &["--address <URL>", "a value is needed"]),
    (&["activity", "describe", "waits", "1", "--reason", "x"], 2, &["unexpected argument '--reason'"]),
    (&["list", "--query", "ExecutionStatus = 'Runing'"], 2, &["Runing", "Running"]),
    (&["list", "--cursor", "x"], 2, &["take the `next_cursor` of the page before"]),
    (&["list", "--limit", "0"], 2, &["1..=1000"]),
    (&["describe", "nope"], 30, &["no workflow execution nope", "list` shows the newest runs"]),
    (&["signal", "waits"], 2, &["write ID NAME"]),
    (&["query", "waits", "progres"], 30, &["no query named progres", "this workflow answers"]),
    (&["plan", "approve", "waits"], 30, &["waits is a run of kitchen-sink, and no supervisor", "describe waits"]),
    (&["budget", "top-up", "waits"], 2, &["--tokens", "--calls"]),
    // People.
    (&["start", "kitchen-sink", "-w", ".."], 2, &["workflow id is \"..\", which leads elsewhere", "choose another"]),
    (
        &["start", "kitchen-sink", "--input", "{\"steps\": []}", "--search-attribute", "WorkflowId=x"],
        2,
        &["the search attribute WorkflowId", "choose another"],
    ),
    (
        &["start", "kitchen-sink", "--input", "{\"steps\": []}", "--search-attribute", "TemporalScheduledById=x"],
        2,
        &["TemporalScheduledById", "schedules give it"],
    ),
    (
        &["start", "kitchen-sink", "-w", "once", "--request-id", "k", "--input", "{\"steps\": [1]}"],
        2,
        &["the request id k has started once with another input", "another --request-id"],
    ),
    (&["approval", "approve", "nothing"], 30, &["nothing of the id nothing waits", "approval list` shows what does"]),
    (&["terminate", "waits"], 32, &["add --yes"]),
    // Past and forks.
    (&["fork", "waits", "--at", "9999"], 2, &["event 9999", "the history has"]),
    (&["export", "waits", "--as", "pdf"], 2, &["invalid value 'pdf'", "html"]),
    (&["replay", "show", "./list.json"], 21, &["the file as a whole: expected an object"]),
    (&["export", "./list.json"], 21, &["list.json cannot be read as a history"]),
    (&["store", "verify", "--epoch-file", "no/such/epoch"], 21, &["epoch file", "no/such/epoch is not there", "nothing was compared"]),
    (&["replay", "check", "nowhere.json"], 21, &["nowhere.json: No such file"]),
    // Store, worker and tokens.
    (&["store", "backup", "spec.yaml"], 2, &["it is a file", "name a directory"]),
    (&["store", "backup", "data"], 2, &["it holds a store already", "choose a new directory"]),
    (&["ui"], 31, &["no worker holds", "worker run` starts a worker"]),
    (&["--address", "127.0.0.1:1", "list"], 31, &["no worker answers at 127.0.0.1:1", "`bosun --data data worker run` prints"]),
    (&["token", "create", "ann", "--role", "king"], 2, &["viewer, approver, operator, owner"]),
    (&["store", "backup", "data/inner"], 2, &["lies inside of", "choose a directory outside of it"]),
    (&["store", "restore", "data", "--to", "data/inner"], 2, &["lies inside of", "choose a directory outside of it"]),
    (&["store", "salvage", "data", "--to", "data/inner"], 2, &["lies inside of", "choose a directory outside of it"]),
    (&["store", "restore", "data", "--to", "taken"], 2, &["it is not empty", "choose a new directory"]),
    (&["store", "salvage", "data", "--to", "taken"], 2, &["it is not empty", "choose a new directory"]),
    // Many runs, budgets, and points of a history.
    (&["terminate", "--query", "", "-y"], 2, &["it is empty, and would mean every run", "StartTime > "]),
    (&["cancel", "--query", " ", "--dry-run"], 2, &["it is empty, and would mean every run"]),
    (&["reset", "waits", "--to", "99"], 2, &["event 99", "the history has"]),
    (&["budget", "top-up", "waits", "--tokens", "-5"], 2, &["a top-up adds, and takes nothing away"]),
    (&["fork", "waits", "--set-signal", "go={bad"], 2, &["the value \"{bad\" is not JSON", "quoted as JSON does"]),
    (&["fork", "waits", "--set-result", "echo=[1,"], 2, &["the value \"[1,\" is not JSON"]),
    (&["fork", "waits", "--set-result", "foo=1"], 2, &["no such name", "it has no activity, child workflow or side effect"]),
    // Schedules.
    (&["schedule", "create", "s", "order-sagas", "--every", "1h"], 1, &["no workflow type order-sagas", "order-saga"]),
    (&["schedule", "create", "s", "order-saga", "--input", "7", "--every", "1h"], 2, &["the input of the workflow order-saga"]),
    (&["schedule", "create", "s", "order-saga"], 2, &["it names no time", "--cron"]),
    (&["schedule", "create", "s", "order-saga", "--cron", "61 * * * *"], 2, &["minute", "0 to 59"]),
    // Keys and types.
    (&["describe", "waits", "--fields", "bogus"], 2, &["prints no columns", "-o json"]),
    (&["start", "kitchen-sink", "--fields", "bogus"], 2, &["prints no columns", "-o json"]),
    (&["version", "--fields", "bogus"], 2, &["prints no columns", "-o json"]),
    (&["version", "--fields", "bogus", "-o", "json"], 2, &["nothing here has the key `bogus`", "build_id"]),
    (&["describe", "waits", "--fields", "bogus", "-o", "json"], 2, &["nothing here has the key `bogus`", "pending_activities"]),
    (&["doctor", "--fields", "bogus", "-o", "json"], 2, &["nothing here has the key `bogus`"]),
    (&["schedule", "list", "--fields", "bogus"], 2, &["no column is called `bogus`", "schedule_id"]),
    (&["batch", "list", "--fields", "bogus"], 2, &["no column is called `bogus`", "batch_id"]),
    (&["token", "list", "--fields", "bogus"], 2, &["no column is called `bogus`", "expires_at"]),
    (&["queue", "list", "--fields", "bogus"], 2, &["prints no columns"]),
    (&["list", "--fields", "workflow_id,bogus", "-o", "json"], 2, &["nothing here has the key `bogus`", "workflow_id"]),
    (&["list", "--fields", "workflw_id", "-o", "jsonl"], 2, &["did you mean `workflow_id`?"]),
    (&["show", "waits", "--type", "TimerFire"], 2, &["no event has the type `TimerFire`", "did you mean `TimerFired`?"]),
    (&["show", "waits", "--follow", "--type", "Nope"], 2, &["no event has the type `Nope`", "WorkflowExecutionSignaled"]),
    (&["explain", "9999"], 2, &["BOSUN0001"]),
    // What other tools call otherwise.
    (&["status", "waits"], 2, &["describe ID` shows how a run stands"]),
    (&["stop", "waits"], 2, &["cancel ID` lets its code end it", "worker stop` ends the worker"]),
    (&["kill", "waits"], 2, &["terminate ID` ends it at once"]),
    (&["logs", "waits"], 2, &["show ID --follow` shows what a run does"]),
    (&["trace", "waits"], 2, &["show ID --follow` gives the events"]),
    (&["run", "spec.yaml", "--detach"], 2, &["start TYPE` starts a workflow and returns", "--no-wait` leaves it"]),
    (&["approval", "reject", "x", "--reason", "no"], 2, &["the words of a decision are its --comment"]),
    (&["show", "waits", "--raw"], 2, &["show ID -o json` prints the events", "export ID` writes a file"]),
    (&["list", "--limit", "abc"], 2, &["--limit takes how many are shown", "--limit 20"]),
    (&["reset", "waits"], 2, &["--to first-turn` begins again"]),
    (&["agent", "list"], 2, &["agents belong to runs", "agent describe NAME`"]),
    (&["approval", "approve", "waits"], 30, &["waits is a run, and no approval", "it asks nobody anything"]),
    (&["terminate", "--all"], 2, &["many runs are named by a filter: `--query", "--dry-run"]),
    (&["help", "approvl"], 2, &["a similar subcommand exists: `bosun", "approval`"]),
    (&["activity", "complete", "1"], 2, &["activity list ID` shows the token"]),
    (&["notify", "test"], 2, &["no channel is configured", "[notify.channels.NAME]"]),
    (&["config", "set", "profiles.dev.worker.slots", "2"], 2, &["config set worker.slots VALUE --in-profile dev`"]),
];

/// The exit code and all that is said, in a folder.
fn said(folder: &Path, words: &[&str]) -> (i32, String) {
    let mut command = Command::new(bosun().unwrap());
    command.args(["--data", "data", "--no-input"]).args(words).current_dir(folder).env_remove("BOSUN_STORE");
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (output.status.code().unwrap_or(-1), text)
}

#[test]
fn the_message_of_a_mistake_names_its_fix() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("spec.yaml", SPEC);
    write("preset.yaml", &SPEC.replace("preset: shannon-supervisor", "preset: shannon-supervisr"));
    write("key.yaml", &SPEC.replace("objective:", "objektive:"));
    let faults = SPEC.replace("objective: a publication", "objective: 3\nobjektive: x");
    write("faults.yaml", &faults.replace("[{ name: worker }]", "[{ name: worker }, { nam: other }]"));
    write("on.yaml", &SPEC.replace("{ on: synthesize, say: done }", "{ \"true\": synthesize, say: done }"));
    write("broken.yaml", "a: [1\n");
    write("anchor.yaml", "objective: x\ntasks: &a []\n");
    write("two.yaml", "objective: x\n---\nobjective: y\n");
    write(
        "kind.yaml",
        &SPEC.replace("kind: supervisor", "kind: supervsor").replace("preset: shannon-supervisor\n", ""),
    );
    write("empty.yaml", "");
    write("list.json", "[]");
    std::os::unix::fs::symlink("/dev/zero", folder.join("zero.yaml")).unwrap();
    std::fs::create_dir(folder.join("taken")).unwrap();
    write("taken/file", "of somebody else");
    // Before anything was started there is nothing, and that is said.
    let (code, text) = said(folder, &["list"]);
    assert!(code == 30 && text.contains("there is no store"), "{code} {text}");
    let parked = r#"{"steps": [{"wait_signal": {"name": "go"}}]}"#;
    let (code, text) = said(folder, &["start", "kitchen-sink", "-w", "waits", "--input", parked]);
    assert_eq!(code, 0, "{text}");
    let once = ["start", "kitchen-sink", "-w", "once", "--request-id", "k", "--input", parked];
    for _ in 0..2 {
        let (code, text) = said(folder, &once);
        assert!(code == 0, "{text}");
    }
    let before = said(folder, &["list", "-o", "json"]);
    let mut wrong = Vec::new();
    for (words, expected, told) in MISTAKES {
        let (code, text) = said(folder, words);
        let missing: Vec<&&str> = told.iter().filter(|one| !text.contains(**one)).collect();
        if code != *expected || !missing.is_empty() {
            wrong.push(format!("{words:?}: exit {code}, not {expected}; {missing:?} is not in:\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} mistakes:\n{}", wrong.len(), MISTAKES.len(), wrong.join("\n"));
    assert_eq!(said(folder, &["list", "-o", "json"]), before, "a mistake changes nothing");
}

/// A file in the place of the directory is called what it is, whatever was to be done.
#[test]
fn a_file_is_no_data_directory_for_any_verb() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("data"), "a file").unwrap();
    for words in [
        &["list"][..],
        &["describe", "x"],
        &["start", "kitchen-sink"],
        &["run", "kitchen-sink"],
        &["worker", "run"],
        &["worker", "drain"],
        &["replay", "show", "x"],
        &["store", "verify"],
        &["store", "gc"],
        &["schedule", "list"],
    ] {
        let (code, text) = said(dir.path(), words);
        assert!(code == 30 && text.contains("data is a file, and no data directory"), "{words:?}: {code} {text}");
    }
    let (code, text) = said(dir.path(), &["doctor"]);
    assert!(code == 1 && text.contains("data is a file, and no data directory"), "{code} {text}");
    assert_eq!(std::fs::read_to_string(dir.path().join("data")).unwrap(), "a file");
}

/// A filter that finds every run is there for whoever means all of them.
#[test]
fn every_run_is_meant_by_a_filter_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let parked = r#"{"steps": [{"wait_signal": {"name": "go"}}]}"#;
    for id in ["a", "b"] {
        let (code, text) = said(dir.path(), &["start", "kitchen-sink", "-w", id, "--input", parked]);
        assert_eq!(code, 0, "{text}");
    }
    let all = bosun_worker::batch::order::EVERY_RUN;
    let (code, text) = said(dir.path(), &["terminate", "--query", all, "--dry-run"]);
    assert!(code == 0 && text.contains("would terminate 2 runs"), "{code} {text}");
}

/// Whoever types a name that is none is never led to a verb that destroys something.
#[test]
fn no_destructive_verb_is_suggested() {
    let dir = tempfile::tempdir().unwrap();
    for typed in [
        &["trace", "x"][..],
        &["cance", "x"],
        &["delte", "x"],
        &["terminat", "x"],
        &["rest", "x"],
        &["store", "restor"],
    ] {
        let (code, text) = said(dir.path(), typed);
        assert!(code == 2 && text.contains("unrecognized subcommand"), "{typed:?}: {code} {text}");
        for verb in ["cancel", "delete", "terminate", "reset", "restore"] {
            assert!(!text.contains(&format!("'{verb}'")), "{typed:?}: {text}");
        }
    }
    let (_, text) = said(dir.path(), &["lst"]);
    assert!(text.contains("'list'"), "a harmless one is: {text}");
}

/// A spec that is printed for people to copy is one: every YAML block of the README that begins with its kind.
#[test]
fn every_spec_of_the_readme_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let readme = std::fs::read_to_string(crate::tidy::workspace().join("README.md")).unwrap();
    let blocks = readme.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let specs: Vec<&str> = blocks.filter(|block| block.starts_with("kind:")).collect();
    assert!(!specs.is_empty(), "the README shows one");
    for spec in specs {
        std::fs::write(dir.path().join("printed.yaml"), spec).unwrap();
        let (code, text) = said(dir.path(), &["schedule", "create", "--dry-run", "s", "printed.yaml", "--every", "1h"]);
        assert_eq!(code, 0, "{text}\n{spec}");
    }
}
