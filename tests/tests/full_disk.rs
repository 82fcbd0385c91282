//! A full disk: new work is refused, what was acknowledged stays, and with room again everything goes on.

use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bosun_engine::{CloseOutcome, RunResult, Started};
use bosun_tests::harness::crash::{Outcome, READY_MAX};
use bosun_tests::harness::faults::{Injection, SmallDisk};
use bosun_tests::harness::http::{Http, Reply};
use bosun_tests::harness::ledger::Ledger;
use bosun_tests::harness::load::{Load, Shape};
use bosun_tests::harness::process::{Program, REQUEST_MAX, WorkerProcess};
use bosun_tests::harness::{count_from_env, say, workload};

use crate::supervisor_cli::{command, said};

const MIB: u64 = 1 << 20;

/// Waits until no more is acknowledged, or the worker has ended.
fn until_nothing_more_is_acknowledged(ledger: &Ledger, worker: &mut WorkerProcess) {
    let until = Instant::now() + REQUEST_MAX;
    let mut before = ledger.acknowledged_count();
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = ledger.acknowledged_count();
        if now == before || worker.wait(Duration::ZERO).unwrap().is_some() {
            return;
        }
        assert!(Instant::now() < until, "the worker acknowledges on a full disk: {before}, {now}");
        before = now;
    }
}

/// G5: refused, not lost; no hang; with space a restart at the latest has everything.
#[test]
fn a_full_disk_loses_nothing_and_space_brings_everything_back() {
    fill_up(3, false);
}

/// G5: with space again it goes on by itself.
#[test]
fn space_brings_everything_back_without_a_restart() {
    fill_up(3, true);
}

/// The same, ten times as often.
#[test]
#[ignore = "minutes: cargo full"]
fn a_disk_that_is_full_thirty_times_loses_nothing() {
    fill_up(30, true);
}

/// A backup on a full disk is no matter of the worker's own: it says where there is no room, once, and goes on.
#[test]
fn a_backup_on_a_full_disk_says_so_once() {
    let Some(disk) = SmallDisk::require_or_explain(MIB) else { return };
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let (_worker, http) = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    let to = disk.dir().join("bk");
    let refused = command(&data, &["store", "backup", to.to_str().unwrap()]).output().unwrap();
    let told = said(&refused);
    assert!(!refused.status.success(), "{told}");
    assert_eq!(told.matches("the disk is full").count(), 1, "{told}");
    assert!(told.contains("/bk/") && !told.contains("no new work is started"), "{told}");
    assert_eq!(http.healthz().unwrap(), 200);
}

/// How long a worker may take to go on when there is space.
const RESUME_MAX: Duration = Duration::from_secs(5);

fn is_refused_for_space<T: std::fmt::Debug>(reply: Reply<T>) -> bool {
    matches!(&reply, Reply::Refused(answer) if answer.status == 507)
}

fn start(http: &Http, id: &str) -> Reply<Started> {
    http.start(&workload::mixed(id, 0))
}

/// New work is refused by name, and what is stored can be read.
fn refuses_and_reads(http: &Http, data: &Path, ledger: &Ledger, id: &str) {
    assert!(is_refused_for_space(start(http, id)), "a start on a full disk");
    assert_eq!((http.healthz().unwrap(), http.readyz().unwrap()), (200, 503));
    if let Some(known) = ledger.workflows().first() {
        http.history(known).unwrap();
        let seen = http.request("GET", &format!("/api/v1/workflows/{known}"), None).unwrap();
        assert_eq!(seen.status, 200, "describe: {seen:?}");
        let asked = http.request("POST", &format!("/api/v1/workflows/{known}/queries/position"), None).unwrap();
        assert_eq!(asked.status, 200, "a query: {asked:?}");
        for words in [&["describe", known][..], &["show", known]] {
            let output = answers(data, words);
            assert!(output.status.success(), "{words:?}: {}", said(&output));
        }
    }
    let listed = answers(data, &["list"]);
    assert!(listed.status.success(), "{}", said(&listed));
    // The disk is what it complains of.
    let doctor = said(&answers(data, &["doctor"]));
    assert!(doctor.contains("disk") && doctor.contains("it can be read"), "{doctor}");
}

/// A command that ends by itself, in time.
#[track_caller]
fn answers(data: &Path, words: &[&str]) -> Output {
    let mut child = command(data, words).spawn().unwrap();
    let until = Instant::now() + REQUEST_MAX;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            panic!("{words:?} does not answer on a full disk: {}", said(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

/// G5: when the reserve is used up too, reads go on and everything that would change a run is refused, and nothing hangs.
#[test]
fn reads_go_on_when_the_reserve_is_used_up() {
    let Some(disk) = SmallDisk::require_or_explain(24 * MIB) else { return };
    let data = disk.dir().join("data");
    let (mut worker, http) = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    let parked = serde_json::json!([{ "wait_signal": { "name": "go" } }, { "wait_signal": { "name": "end" } }]);
    for n in 0..20 {
        http.start(&workload::program(&format!("w{n}"), parked.clone())).acknowledged().unwrap();
    }
    let schedule = ["schedule", "create", "nightly", "kitchen-sink", "--cron", "0 2 * * *"];
    let made = answers(&data, &schedule);
    assert!(made.status.success(), "{}", said(&made));
    disk.fill().unwrap();
    // Signals that nobody waits for are kept: each takes room, and no two hold the same, which would be kept once.
    let large = |n: usize, nth: i32| serde_json::json!(format!("{n}/{nth} ").repeat(20 << 10));
    let until = Instant::now() + REQUEST_MAX;
    let mut sent = [0; 20];
    let refused_at = 'signals: loop {
        for (n, sent) in sent.iter_mut().enumerate() {
            assert!(Instant::now() < until, "the disk does not get full");
            match http.signal(&format!("w{n}"), "other", &large(n, *sent), &format!("s{sent}")) {
                Reply::Acknowledged(()) => *sent += 1,
                reply => break 'signals reply,
            }
        }
    };
    assert!(is_refused_for_space(refused_at), "a signal on a full disk");
    for n in 0..20 {
        let id = format!("w{n}");
        let began = Instant::now();
        let refused = http.signal(&id, "other", &large(n, -1), "later");
        assert!(is_refused_for_space(refused), "{id} after {:?}", began.elapsed());
        let seen = http.request("GET", &format!("/api/v1/workflows/{id}"), None).unwrap();
        assert_eq!(seen.status, 200, "{seen:?}");
        let asked = http.request("POST", &format!("/api/v1/workflows/{id}/queries/position"), None).unwrap();
        assert_eq!(asked.status, 200, "{asked:?}");
    }
    for words in [
        &["list"][..],
        &["describe", "w7"],
        &["show", "w7"],
        &["schedule", "list"],
        &["schedule", "describe", "nightly"],
        &["top", "--once"],
        &["store", "info"],
    ] {
        let output = answers(&data, words);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
    }
    let doctor = said(&answers(&data, &["doctor"]));
    assert!(doctor.contains("it can be read"), "{doctor}");
    assert!(is_refused_for_space(start(&http, "new")));
    disk.free().unwrap();
    let until = Instant::now() + REQUEST_MAX;
    while !matches!(http.signal("w0", "go", &serde_json::json!(1), "go"), Reply::Acknowledged(())) {
        assert!(Instant::now() < until, "it does not go on:\n{}", worker.said());
        std::thread::sleep(Duration::from_millis(50));
    }
    for (n, sent) in sent.iter().enumerate() {
        let kept = http.history(&format!("w{n}")).unwrap();
        let signals = kept.iter().filter(|event| event.kind.name() == "WorkflowExecutionSignaled").count();
        // One that was refused may have been taken before: it is there once, or not at all.
        assert!(signals as i32 >= *sent, "w{n}: {signals} of {sent}");
    }
    worker.terminate().unwrap();
    assert_eq!(worker.wait(REQUEST_MAX).unwrap().and_then(|status| status.code()), Some(0), "{}", worker.said());
}

/// Waits until new work is taken again, by the same process.
fn goes_on(http: &Http, worker: &mut WorkerProcess, id: &str) -> Duration {
    let began = Instant::now();
    while !matches!(start(http, id), Reply::Acknowledged(_)) {
        assert!(worker.wait(Duration::ZERO).unwrap().is_none(), "it has ended:\n{}", worker.said());
        assert!(began.elapsed() < RESUME_MAX, "it does not go on:\n{}", worker.said());
        std::thread::sleep(Duration::from_millis(50));
    }
    began.elapsed()
}

fn fill_up(fills: u32, by_itself: bool) {
    let Some(disk) = SmallDisk::require_or_explain(8 * MIB) else { return };
    let safe = tempfile::tempdir().unwrap();
    let ledger = Arc::new(Ledger::create(&safe.path().join("ledger.jsonl")).unwrap());
    let program = Program::bosun_worker().unwrap();
    let data = disk.dir().join("data");
    let fills = count_from_env("BOSUN_FILLS", fills);
    let mut slowest = Duration::ZERO;
    let (mut worker, mut http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    for fill in 0..fills {
        let size = (8 + 56 * u64::from(fill)) * MIB;
        disk.resize(size).unwrap();
        let shape = Shape { prefix: format!("d{fill}"), large_bytes: 20 << 10, ..Shape::default() };
        let load = Load::start(ledger.clone(), shape);
        load.worker_is(&http.endpoint);
        std::thread::sleep(Duration::from_millis(300));
        disk.fill().unwrap();
        until_nothing_more_is_acknowledged(&ledger, &mut worker);
        let waited = load.slowest_request();
        assert!(waited < REQUEST_MAX, "a request took {waited:?} on a full disk");
        if by_itself {
            refuses_and_reads(&http, &data, &ledger, &format!("refused-{fill}"));
        }
        disk.free().unwrap();
        disk.resize(size + 56 * MIB).unwrap();
        if by_itself || http.readyz().is_ok_and(|status| status == 200) {
            slowest = slowest.max(goes_on(&http, &mut worker, &format!("again-{fill}")));
        } else {
            worker.kill().unwrap();
            (worker, http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
        }
        load.stop().unwrap();
        let mut after = Outcome::default();
        after.compare(&http, &ledger).unwrap();
        after.assert_clean(&format!("full disk, round {fill}"));
    }
    worker.kill().unwrap();
    let mut outcome = Outcome::default();
    let (mut worker, http) = outcome.recover(&program, &data).unwrap().unwrap();
    outcome.compare(&http, &ledger).unwrap();
    outcome.assert_clean("full disk, after a kill");
    worker.kill().unwrap();
    let acknowledged = ledger.acknowledged_count();
    say(&format!("full disk: {fills} times, goes on after {slowest:?} at most, {acknowledged} acknowledged"));
}

/// G5: a worker that is started on a full disk serves what is stored, and goes on when there is space.
#[test]
fn a_worker_starts_on_a_full_disk() {
    let Some(disk) = SmallDisk::require_or_explain(16 * MIB) else { return };
    let safe = tempfile::tempdir().unwrap();
    let ledger = Arc::new(Ledger::create(&safe.path().join("ledger.jsonl")).unwrap());
    let program = Program::bosun_worker().unwrap();
    let data = disk.dir().join("data");
    let (mut worker, http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    let load = Load::start(ledger.clone(), Shape { workflows_max: 3, ..Shape::default() });
    load.worker_is(&http.endpoint);
    load.finish().unwrap();
    // Some deaths in the middle of a turn would be noted; that fails too.
    worker.kill().unwrap();
    disk.fill().unwrap();
    let (mut worker, http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    refuses_and_reads(&http, &data, &ledger, "refused");
    let mut outcome = Outcome::default();
    outcome.compare(&http, &ledger).unwrap();
    outcome.assert_clean("started on a full disk");
    disk.free().unwrap();
    goes_on(&http, &mut worker, "again");
    worker.terminate().unwrap();
    assert_eq!(worker.wait(REQUEST_MAX).unwrap().and_then(|status| status.code()), Some(0), "{}", worker.said());
}

/// G5: a worker came up behind one that was killed, and the disk fills before it has written anything: what is under way goes on
/// with the reserve, a command waits for space, a token can be taken away, and nobody leaves.
#[test]
fn a_disk_that_fills_before_the_first_write_ends_nothing() {
    let Some(disk) = SmallDisk::require_or_explain(48 * MIB) else { return };
    let program = Program::bosun_worker().unwrap();
    let data = disk.dir().join("data");
    let (mut worker, http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    let wait = serde_json::json!({ "wait_signal": { "name": "go" } });
    let command = serde_json::json!({ "activity": { "type": "process", "input": { "argv": ["true"] } } });
    http.start(&workload::program("plain", serde_json::json!([wait, { "return": 1 }]))).acknowledged().unwrap();
    http.start(&workload::program("command", serde_json::json!([wait, command, { "return": 2 }])))
        .acknowledged()
        .unwrap();
    let made = answers(&data, &["token", "create", "ann", "--role", "viewer"]);
    assert!(made.status.success(), "{}", said(&made));
    worker.kill().unwrap();
    let (mut worker, http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    disk.fill().unwrap();
    for id in ["plain", "command"] {
        http.signal(id, "go", &serde_json::json!(1), "go").acknowledged().unwrap();
    }
    assert!(http.result("plain", REQUEST_MAX).unwrap().is_some(), "{}", worker.said());
    let revoked = answers(&data, &["token", "revoke", "ann"]);
    assert!(revoked.status.success(), "{}", said(&revoked));
    let listed = said(&answers(&data, &["token", "list"]));
    assert!(!listed.contains("ann"), "{listed}");
    // It has found room in what was given back, or waits for more; a start that is hopeless would be told by now.
    let early = http.result("command", Duration::from_secs(3)).unwrap();
    let is_done = |done: &RunResult| matches!(done.outcome, CloseOutcome::Completed(_));
    assert!(early.is_none_or(|early| is_done(&early)), "{}", worker.said());
    assert!(worker.wait(Duration::ZERO).unwrap().is_none(), "it has ended:\n{}", worker.said());
    disk.free().unwrap();
    let done = http.result("command", REQUEST_MAX).unwrap();
    assert!(done.is_some_and(|done| is_done(&done)), "{}", worker.said());
    goes_on(&http, &mut worker, "again");
    worker.terminate().unwrap();
    assert_eq!(worker.wait(REQUEST_MAX).unwrap().and_then(|status| status.code()), Some(0), "{}", worker.said());
}

/// G5: an owner who has no blocks left, while the file system has many: refused as on a full disk, and it goes on by itself.
#[test]
fn a_quota_is_a_full_disk_to_its_owner() {
    if !Injection::available_or_explain() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let ledger = Arc::new(Ledger::create(&dir.path().join("ledger.jsonl")).unwrap());
    let injection = Injection {
        calls: "fallocate",
        error: "EDQUOT",
        // Those before are of the start.
        when: 4,
        last: Some(12),
        paths: Vec::new(),
        trace: dir.path().join("trace"),
    };
    let program = Program::bosun_worker().unwrap().wrapped(injection.wrapper());
    let (mut worker, http) = WorkerProcess::start(&program, &dir.path().join("data"), READY_MAX).unwrap();
    let load = Load::start(ledger.clone(), Shape { large_bytes: 200 << 10, ..Shape::default() });
    load.worker_is(&http.endpoint);
    let until = Instant::now() + REQUEST_MAX;
    while http.readyz().unwrap() != 503 {
        assert!(Instant::now() < until, "no quota was reached:\n{}", worker.said());
        assert!(worker.wait(Duration::ZERO).unwrap().is_none(), "it has ended:\n{}", worker.said());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(http.healthz().unwrap(), 200);
    let until = Instant::now() + REQUEST_MAX;
    while http.readyz().unwrap() != 200 {
        assert!(Instant::now() < until, "it does not go on:\n{}", worker.said());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(injection.hits() > 0);
    goes_on(&http, &mut worker, "again");
    load.stop().unwrap();
    let mut outcome = Outcome::default();
    outcome.compare(&http, &ledger).unwrap();
    outcome.assert_clean("a quota");
    worker.kill().unwrap();
}

/// Too few file handles are no failure of the storage: connections leave some for the log.
#[test]
fn connections_leave_file_handles_for_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let few = ["sh", "-c", "ulimit -n 96; exec \"$@\"", "sh"].map(std::ffi::OsString::from);
    let program = Program::bosun_worker().unwrap().wrapped(few.into());
    let (mut worker, http) = WorkerProcess::start(&program, &dir.path().join("data"), READY_MAX).unwrap();
    start(&http, "first").acknowledged().unwrap();
    let crowd: Vec<_> = (0..300).filter_map(|_| std::net::TcpStream::connect(&http.endpoint.address).ok()).collect();
    assert!(crowd.len() >= 100, "{} connections", crowd.len());
    for n in 0..40 {
        let mut request = workload::mixed(&format!("w{n}"), 0);
        // Large ones open files of their own.
        request.memo.insert("large".into(), bosun_engine::Payload::encode(&format!("{n}").repeat(50_000)).unwrap());
        http.start(&request).acknowledged().unwrap();
    }
    assert!(worker.wait(Duration::ZERO).unwrap().is_none(), "{}", worker.said());
    assert_eq!(http.healthz().unwrap(), 200);
    drop(crowd);
    worker.kill().unwrap();
}
