//! Kills while notifications go out, to somebody who often does not answer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::WorkerProcess;
use bosun_tests::harness::workload::program;
use bosun_tests::harness::{Chance, count_from_env, say};
use serde_json::{Value, json};

use super::receiver::Receiver;
use super::{config, until, worker};

/// How long all that is still to be told may take after the last kill: attempts that failed wait for each other.
const SETTLE: Duration = Duration::from_secs(180);

#[test]
fn every_failure_is_told_over_kill_9_and_known_by_its_id() {
    each_is_told(12);
}

#[test]
#[ignore = "minutes: cargo full"]
fn every_failure_is_told_over_fifty_kills() {
    each_is_told(50);
}

fn each_is_told(kills: u32) {
    let mut chance = Chance::from_env("every_failure_is_told_over_kill_9");
    let kills = count_from_env("BOSUN_NOTIFY_KILLS", kills);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let receiver = Receiver::start(6);
    let path = config(
        dir.path(),
        &format!(
            "[notify.channels.ops]\nwebhook = \"http://{}/hook\"\nsecret = \"env:OPS_SECRET\"\n\
             events = [\"failed\", \"worker_gone\"]\n",
            receiver.address
        ),
    );
    let program_of = worker(&path, &[]);
    let (mut failing, mut gone) = (Vec::new(), 0);
    for kill in 0..kills {
        let (mut worker, http) = WorkerProcess::start(&program_of, &data, READY_MAX).unwrap();
        for n in 0..4 {
            let id = format!("fails-{kill:02}-{n}");
            let steps =
                json!([{ "timer": format!("{}ms", chance.below(60)) }, { "fail": { "message": "as it should" } }]);
            http.start(&program(&id, steps)).acknowledged().unwrap();
            failing.push(id);
        }
        std::thread::sleep(Duration::from_millis(chance.below(700)));
        worker.kill().unwrap();
        gone += 1;
        if chance.percent(20) {
            // Another death, while it opens.
            let mut worker = WorkerProcess::spawn(&program_of, &data).unwrap();
            std::thread::sleep(Duration::from_millis(chance.below(60)));
            worker.kill().unwrap();
        }
    }
    let (mut worker, http) = WorkerProcess::start(&program_of, &data, READY_MAX).unwrap();
    until(SETTLE, || {
        let told = receiver.ids("failed", "workflow_id");
        let missing: Vec<&String> = failing.iter().filter(|id| !told.contains_key(*id)).collect();
        let open = http.count("WorkflowType = 'bosun.notification' AND ExecutionStatus = 'Running'").unwrap();
        match (missing.is_empty(), open) {
            (true, 0) => Ok(()),
            _ => Err(format!("{} were not told: {missing:?}; {open} are under way", missing.len())),
        }
    });
    let all = receiver.all();
    assert!(all.iter().all(|one| one.signed && one.body["id"] == *one.id), "each is signed, and names its id");
    let told = receiver.ids("failed", "workflow_id");
    for id in &failing {
        let (ids, times) = &told[id];
        assert_eq!(ids.len(), 1, "{id} was told {times} times, and not by one id: {ids:?}");
    }
    assert_eq!(told.len(), failing.len(), "nobody is told of what has not failed");
    let one_a_run = http.count("WorkflowType = 'bosun.notification' AND NotificationKind = 'failed'").unwrap();
    assert_eq!(one_a_run, failing.len() as u64);
    let ids: BTreeSet<String> = all.iter().map(|one| one.id.clone()).collect();
    let of_workers = told_gone(&receiver);
    // A worker that was killed before it said that it was there was none.
    assert!(of_workers >= gone, "{gone} workers are gone, {of_workers} were told");
    assert!(receiver.refused() > 0 && all.len() > ids.len(), "some came again: {} of {}", all.len(), ids.len());
    replays(&data);
    say(&format!(
        "notifications: {kills} kills, {} failures and {of_workers} gone workers told by {} ids in {} requests; {} refused",
        failing.len(),
        ids.len(),
        all.len(),
        receiver.refused()
    ));
    worker.kill().unwrap();
}

/// An owner's words by which failed runs are told, and nothing else.
fn tells_of_failures(folder: &Path, receiver: &Receiver) -> PathBuf {
    let text = format!(
        "[notify.channels.ops]\nwebhook = \"http://{}/\"\nsecret = \"env:OPS_SECRET\"\nevents = [\"failed\"]\n",
        receiver.address
    );
    config(folder, &text)
}

/// The file that says how far the log has been told is lost, is nonsense, or is ahead of the log: nothing is told twice, and
/// nothing that follows is left out.
#[test]
fn a_cursor_that_is_wrong_tells_nothing_twice_and_leaves_nothing_out() {
    let dir = tempfile::tempdir().unwrap();
    let (data, receiver) = (dir.path().join("data"), Receiver::start(0));
    let path = tells_of_failures(dir.path(), &receiver);
    let file = data.join("notified.json");
    let wrong = ["", "{\"version\":1,\"gr", "{\"version\":1,\"group\":0}", "{\"version\":1,\"group\":99999999}"];
    for (n, contents) in wrong.iter().enumerate() {
        let (mut worker, http) = WorkerProcess::start(&worker(&path, &[]), &data, READY_MAX).unwrap();
        let id = format!("fails-{n}");
        http.start(&program(&id, json!([{ "fail": { "message": "as it should" } }]))).acknowledged().unwrap();
        until(SETTLE, || match receiver.ids("failed", "workflow_id").contains_key(&id) {
            true => Ok(()),
            false => Err(format!("{id} was not told")),
        });
        // Killed before it has recorded a delivery it makes it again, which is not what is tested here.
        until(SETTLE, || match http.count("WorkflowType = 'bosun.notification' AND ExecutionStatus = 'Running'") {
            Ok(0) => Ok(()),
            other => Err(format!("deliveries are not recorded: {other:?}")),
        });
        worker.kill().unwrap();
        assert!(file.exists(), "a worker with channels has a cursor");
        std::fs::write(&file, contents).unwrap();
    }
    // Whoever names no channel leaves it where it stands: what fails meanwhile is told by the next one that does.
    std::fs::remove_file(&file).unwrap();
    let (mut first, _) = WorkerProcess::start(&worker(&path, &[]), &data, READY_MAX).unwrap();
    // That the one before was gone is written before it: it is the place in the log that counts.
    until(SETTLE, || {
        let told: Value = serde_json::from_slice(&std::fs::read(&file).unwrap_or_default()).unwrap_or_default();
        if told["group"].is_u64() { Ok(()) } else { Err(format!("no cursor: {told}")) }
    });
    first.kill().unwrap();
    let (mut silent, http) =
        WorkerProcess::start(&bosun_tests::harness::process::Program::bosun_worker().unwrap(), &data, READY_MAX)
            .unwrap();
    http.start(&program("meanwhile", json!([{ "fail": { "message": "x" } }]))).acknowledged().unwrap();
    assert!(http.result("meanwhile", READY_MAX).unwrap().is_some());
    silent.kill().unwrap();
    let (mut worker, _) = WorkerProcess::start(&worker(&path, &[]), &data, READY_MAX).unwrap();
    until(SETTLE, || match receiver.ids("failed", "workflow_id").contains_key("meanwhile") {
        true => Ok(()),
        false => Err("what failed meanwhile was not told".to_owned()),
    });
    let told = receiver.ids("failed", "workflow_id");
    assert!(told.len() == 5 && told.values().all(|(ids, times)| ids.len() == 1 && *times == 1), "{told:?}");
    worker.kill().unwrap();
}

/// The cursor is lost, and so are old notifications, as retention leaves it: what they told is not told again, and what failed
/// since is.
#[test]
fn a_lost_cursor_does_not_tell_again_what_notifications_that_are_gone_have_told() {
    let dir = tempfile::tempdir().unwrap();
    let (data, receiver) = (dir.path().join("data"), Receiver::start(0));
    let path = tells_of_failures(dir.path(), &receiver);
    let (mut first, http) = WorkerProcess::start(&worker(&path, &[]), &data, READY_MAX).unwrap();
    for id in ["old-0", "old-1", "newest"] {
        http.start(&program(id, json!([{ "fail": { "message": "as it should" } }]))).acknowledged().unwrap();
        until(SETTLE, || match http.count("WorkflowType = 'bosun.notification' AND ExecutionStatus = 'Completed'") {
            Ok(count) if receiver.ids("failed", "workflow_id").len() as u64 == count && count > 0 => {
                match receiver.ids("failed", "workflow_id").contains_key(id) {
                    true => Ok(()),
                    false => Err(format!("{id} was not told")),
                }
            }
            other => Err(format!("{id}: {other:?}")),
        });
    }
    for id in ["old-0", "old-1"] {
        let told = receiver.ids("failed", "workflow_id")[id].0.iter().next().unwrap().clone();
        let gone = crate::supervisor_cli::run(&data, &["delete", &format!("notify:{told}"), "--yes"]);
        assert!(gone.status.success(), "{}", crate::supervisor_cli::said(&gone));
    }
    first.kill().unwrap();
    std::fs::write(data.join("notified.json"), "{\"gro").unwrap();
    let (mut second, http) = WorkerProcess::start(&worker(&path, &[]), &data, READY_MAX).unwrap();
    http.start(&program("after", json!([{ "fail": { "message": "as it should" } }]))).acknowledged().unwrap();
    // It comes last in the log: all before it was looked at.
    until(SETTLE, || match receiver.ids("failed", "workflow_id").contains_key("after") {
        true => Ok(()),
        false => Err("what failed since was not told".to_owned()),
    });
    let told = receiver.ids("failed", "workflow_id");
    assert!(told.len() == 4 && told.values().all(|(ids, times)| ids.len() == 1 && *times == 1), "{told:?}");
    second.kill().unwrap();
}

/// The file cannot be read, nor written: the worker does its work all the same, and tells what fails. What it tells is not what
/// somebody started last.
#[test]
fn a_file_that_cannot_be_used_keeps_no_worker_away() {
    let dir = tempfile::tempdir().unwrap();
    let (data, receiver) = (dir.path().join("data"), Receiver::start(0));
    let channel = "[notify.channels.ops]\nwebhook = \"http://ADDRESS/\"\nsecret = \"env:OPS_SECRET\"\n";
    let path = config(dir.path(), &channel.replace("ADDRESS", &receiver.address));
    let (mut first, _) = WorkerProcess::start(&worker(&path, &[]), &data, READY_MAX).unwrap();
    until(SETTLE, || if data.join("notified.json").exists() { Ok(()) } else { Err("no cursor".to_owned()) });
    first.kill().unwrap();
    std::fs::remove_file(data.join("notified.json")).unwrap();
    std::fs::create_dir(data.join("notified.json")).unwrap();
    let (mut worker, http) = WorkerProcess::start(&worker(&path, &[]), &data, READY_MAX).unwrap();
    http.start(&program("fails", json!([{ "fail": { "message": "as it should" } }]))).acknowledged().unwrap();
    until(SETTLE, || match (receiver.ids("failed", "workflow_id").contains_key("fails"), told_gone(&receiver)) {
        (true, 1) => Ok(()),
        other => Err(format!("{other:?}: {}", worker.said())),
    });
    let described = crate::supervisor_cli::run(&data, &["describe", "latest"]);
    let text = crate::supervisor_cli::said(&described);
    assert!(text.starts_with("workflow id    fails"), "{text}");
    worker.kill().unwrap();
}

fn told_gone(receiver: &Receiver) -> usize {
    receiver.ids("worker_gone", "title").len()
}

/// The runs of notifications fit their code.
fn replays(data: &Path) {
    crate::resets::ok(data, &["replay", "check", "--query", "WorkflowType = 'bosun.notification'"]);
}
