//! Runs are moved from one data directory to another by the shipped binary: with their state, with what people are asked under
//! its id, over `kill -9` at any step; they work in one place, and no step is done twice.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::supervisor_cli::{PATIENCE, Runner, command, run, said, until_pending};

/// A row of tasks, and one that a person is asked about.
fn spec(name: &str, steps: u32) -> Value {
    let step = |n: u32| {
        let deps: Vec<String> = (n > 1).then(|| format!("s{}", n - 1)).into_iter().collect();
        json!({ "id": format!("s{n}"), "agent": "worker", "goal": format!("Step {n}"), "deps": deps })
    };
    let mut tasks: Vec<Value> = (1..=steps).map(step).collect();
    tasks.push(
        json!({ "id": "send", "agent": "worker", "goal": "Send it", "action": "publish", "requires_approval": true }),
    );
    json!({
        "kind": "supervisor", "preset": "shannon-dag", "name": name, "objective": "Write and send it",
        "agents": [{ "name": "worker" }],
        "script": [{ "on": "plan", "say": { "tasks": tasks } },
            { "on": "execute_worker", "after": "100ms", "say": "done" }, { "on": "synthesize", "say": "all is done" }],
    })
}

fn worker(data: &Path) -> Runner {
    Runner(command(data, &["worker", "run"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// The open runs of a directory, by id and type.
fn open(data: &Path) -> Vec<(String, String)> {
    let listed = run(data, &["list", "--query", "ExecutionStatus = 'Running'", "-o", "jsonl"]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let rows = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    rows.map(|row| (text(&row, "workflow_id"), text(&row, "workflow_type"))).collect()
}

fn begun(data: &Path, file: &Path, name: &str, steps: u32) {
    std::fs::write(file, spec(name, steps).to_string()).unwrap();
    let started = run(data, &["run", file.to_str().unwrap(), "-w", name, "--no-wait"]);
    let shown = said(&started);
    assert!(shown.contains(name), "{shown}");
}

fn is_whole(data: &Path, name: &str, tasks: usize) {
    let begin = Instant::now();
    let result = loop {
        let result = said(&run(data, &["result", name]));
        // A worker that has just been started may not hold the directory yet.
        if !result.contains("no worker runs on this data directory") {
            break result;
        }
        assert!(begin.elapsed() < PATIENCE, "{result}");
    };
    assert!(result.contains(&format!("{tasks} of {tasks} tasks are done")), "{result}");
    let report = run(data, &["query", name, "report", "-o", "json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let all = report["result"]["tasks"].as_array().unwrap();
    assert_eq!(all.len(), tasks);
    for task in all {
        assert_eq!(task["attempts"], 1, "{task}");
    }
}

#[test]
fn a_run_goes_on_elsewhere_with_what_people_are_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there, file) = (dir.path().join("here"), dir.path().join("there"), dir.path().join("m.yaml"));
    let mut working = worker(&here);
    begun(&here, &file, "moves", 0);
    let id = until_pending(&here);
    let to = there.to_str().unwrap().to_owned();

    let dry = run(&here, &["migrate", "--to-data", &to, "--dry-run"]);
    assert!(dry.status.success() && said(&dry).contains("moves: would go"), "{}", said(&dry));
    assert!(!there.exists(), "a look makes nothing");
    let unsure = run(&here, &["migrate", "--to-data", &to, "--no-input"]);
    assert!(!unsure.status.success() && said(&unsure).contains("--yes"), "{}", said(&unsure));
    let moved = run(&here, &["migrate", "--to-data", &to, "-y"]);
    assert!(moved.status.success() && said(&moved).contains("1 run went"), "{}", said(&moved));
    assert_eq!(open(&here), []);
    assert_eq!(open(&there), [("moves".to_owned(), "supervisor".to_owned())]);
    let ended = said(&run(&here, &["result", "moves"]));
    assert!(ended.contains("migrated") && ended.contains(&to), "whoever asks here is told where it is: {ended}");
    working.0.kill().unwrap();
    working.0.wait().unwrap();

    // Without a worker, and by the id that was shown before the move.
    let approved = run(&there, &["approval", "approve", &id]);
    assert!(approved.status.success(), "{}", said(&approved));
    let _working = worker(&there);
    is_whole(&there, "moves", 1);
    for data in [&here, &there] {
        let replayed = run(data, &["replay", "check", "--query", "WorkflowId = 'moves'", "--prefixes", "all"]);
        assert!(replayed.status.success(), "{}", said(&replayed));
    }
}

#[test]
fn a_move_that_is_killed_goes_on_with_the_same_command() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there, file) = (dir.path().join("here"), dir.path().join("there"), dir.path().join("m.yaml"));
    let names: Vec<String> = (0..4).map(|n| format!("moves-{n}")).collect();
    let working = worker(&here);
    let _there = worker(&there);
    for name in &names {
        begun(&here, &file, name, 8);
    }
    let words = ["migrate", "--to-data", there.to_str().unwrap(), "-y"];
    // Cut off a little later each time, so that every step is some time the last.
    for n in 0..30 {
        let mut moving = command(&here, &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(60 + 35 * n));
        moving.kill().unwrap();
        moving.wait().unwrap();
        let (here, there) = (open(&here), open(&there));
        for name in &names {
            let works = |runs: &[(String, String)]| runs.iter().any(|(id, of)| id == name && of == "supervisor");
            let waits = here.iter().any(|(id, of)| id == name && of == "bosun.migration");
            assert!(!(works(&here) && works(&there)), "{name} works in two places: {here:?} and {there:?}");
            // It may have ended there meanwhile, but for what a person is asked.
            assert!(works(&here) || works(&there) || waits, "{name} is nowhere: {here:?} and {there:?}");
        }
    }
    let moved = run(&here, &words);
    assert!(moved.status.success(), "{}", said(&moved));
    assert_eq!(open(&here), []);
    drop(working);
    let begin = Instant::now();
    for name in &names {
        let waiting = loop {
            let listed = run(&there, &["approval", "list", name, "-o", "json"]);
            let listed: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
            if let Some(id) = listed["waiting"][0]["id"].as_str() {
                break id.to_owned();
            }
            assert!(begin.elapsed() < PATIENCE, "{name} asks nobody: {listed}");
            std::thread::sleep(Duration::from_millis(100));
        };
        let approved = run(&there, &["approval", "approve", &waiting]);
        assert!(approved.status.success(), "{}", said(&approved));
        is_whole(&there, name, 9);
    }
}

#[test]
fn a_run_comes_back_and_what_cannot_be_moved_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there, file) = (dir.path().join("here"), dir.path().join("there"), dir.path().join("m.yaml"));
    let to = there.to_str().unwrap();
    let _working = worker(&here);
    begun(&here, &file, "stays", 0);
    let id = until_pending(&here);
    let nowhere = said(&run(&here, &["migrate", "stays", "--to-data", to, "-y"]));
    assert!(nowhere.contains("1 run went"), "{nowhere}");
    let ended = said(&run(&here, &["migrate", "stays", "--to-data", to, "-y"]));
    assert!(ended.contains("stays was left here"), "{ended}");
    let same = said(&run(&there, &["migrate", "stays", "--to-data", to, "-y"]));
    assert!(same.contains("names the directory that the runs are in"), "{same}");
    let stay = said(&run(&there, &["migrate", "stays", "--to-data", here.to_str().unwrap(), "--stay"]));
    assert!(stay.contains("on its way nowhere"), "{stay}");
    let back = run(&there, &["migrate", "--to-data", here.to_str().unwrap(), "-y"]);
    assert!(back.status.success() && open(&there).is_empty(), "{}", said(&back));
    assert_eq!(open(&here), [("stays".to_owned(), "supervisor".to_owned())]);
    // By the id of before the moves, of a run that went away from here and has come back.
    let approved = run(&here, &["approval", "approve", &id]);
    assert!(approved.status.success(), "{}", said(&approved));
    is_whole(&here, "stays", 1);
}

/// Where nothing is that could go, nothing is made there.
#[test]
fn a_migration_from_no_store_makes_none() {
    let home = tempfile::tempdir().unwrap();
    let [here, there] = ["here", "there"].map(|name| home.path().join(name));
    let refused = run(&here, &["migrate", "x", "--to-data", there.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(30), "{}", said(&refused));
    assert!(!here.exists() && !there.exists());
}
