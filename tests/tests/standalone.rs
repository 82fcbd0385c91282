//! Standalone activities by the shipped binary (E36): durable over kill -9, one by id, executed without a worker,
//! canceled and refused as any run.

use std::path::Path;
use std::time::{Duration, Instant};

use bosun_tests::harness::binary::{object, run, said};
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess, bosun};
use serde_json::json;

fn worker(data: &Path) -> WorkerProcess {
    WorkerProcess::start(&Program::new(bosun().unwrap(), &["worker", "run"]), data, READY_MAX).unwrap().0
}

/// How often the command has begun.
fn begun(noted: &Path) -> usize {
    std::fs::read_to_string(noted).unwrap_or_default().lines().count()
}

fn until(what: &str, mut there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !there() {
        assert!(began.elapsed() < READY_MAX, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// E36: an activity without a workflow goes on over kill -9, is one by its id, and is found in lists.
#[test]
fn an_activity_alone_survives_kills_and_is_one_by_its_id() {
    let home = tempfile::tempdir().unwrap();
    let (data, noted, go) = (home.path().join("data"), home.path().join("noted"), home.path().join("go"));
    let script = format!(
        "echo begun >> '{}'; while [ ! -e '{}' ]; do sleep 0.05; done; echo '\"sent\"'",
        noted.display(),
        go.display()
    );
    let input = json!({ "argv": ["sh", "-c", script] }).to_string();
    let start =
        ["activity", "start", "process", "--id", "mail-1", "-i", &input, "--initial-interval", "100ms", "-o", "json"];
    let mut first = worker(&data);
    let one = object(&run(&data, &start));
    assert_eq!(one["workflow_id"], "activity:mail-1", "{one}");
    assert_eq!(object(&run(&data, &start))["run_id"], one["run_id"], "asked for again, it is the same one");
    for kill in 1..=3 {
        until("it has begun", || begun(&noted) >= kill);
        first.kill().unwrap();
        first = worker(&data);
    }
    until("it has begun again", || begun(&noted) >= 4);
    std::fs::write(&go, "").unwrap();
    let result = run(&data, &["result", "activity:mail-1", "-o", "json"]);
    assert!(result.status.success() && said(&result).contains("sent"), "{}", said(&result));
    let listed = said(&run(&data, &["list", "--query", "WorkflowType = 'bosun.activity'"]));
    assert!(listed.contains("activity:mail-1") && listed.contains("Completed"), "{listed}");
}

#[test]
fn an_activity_alone_is_executed_without_a_worker_and_fails_as_its_command_does() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let echo = json!({ "argv": ["sh", "-c", "echo '{\"cups\": 2}'"] }).to_string();
    let done = run(&data, &["activity", "execute", "process", "-i", &echo, "-o", "json"]);
    assert!(done.status.success() && said(&done).contains("cups"), "{}", said(&done));
    let fails = json!({ "argv": ["false"] }).to_string();
    let failed = run(
        &data,
        &["activity", "execute", "process", "-i", &fails, "--maximum-attempts", "2", "--initial-interval", "10ms"],
    );
    assert_eq!(failed.status.code(), Some(10), "{}", said(&failed));
    let own = run(&data, &["activity", "start", "bosun.batch.page", "-i", "{}"]);
    assert!(!own.status.success() && said(&own).contains("Bosun's own"), "{}", said(&own));
    let unknown = run(&data, &["activity", "start"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", said(&unknown));
}

#[test]
fn an_activity_alone_is_canceled() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let _worker = worker(&data);
    let long = json!({ "argv": ["sleep", "600"] }).to_string();
    assert!(run(&data, &["activity", "start", "process", "--id", "long", "-i", &long]).status.success());
    until("it is under way", || said(&run(&data, &["describe", "activity:long"])).contains("process"));
    assert!(run(&data, &["cancel", "activity:long"]).status.success());
    let ended = run(&data, &["result", "activity:long"]);
    assert_eq!(ended.status.code(), Some(12), "{}", said(&ended));
}

/// E25: a limit of the owner holds for a queue, by flag and by file, and leaves the other queues alone; an urgent task goes first.
#[test]
fn a_limit_of_a_queue_holds_and_an_urgent_task_goes_first() {
    let home = tempfile::tempdir().unwrap();
    let (data, noted, go) = (home.path().join("data"), home.path().join("noted"), home.path().join("go"));
    let config = home.path().join("bosun.toml");
    std::fs::write(&config, "[worker]\nqueue_limit = [\"mail=1\"]\n").unwrap();
    let program = Program::new(bosun().unwrap(), &["worker", "run", "--config", config.to_str().unwrap()]);
    let (_worker, http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    let noting = |name: &str| {
        let waits = format!("while [ ! -e '{}' ]; do sleep 0.02; done", go.display());
        let script =
            format!("echo {name} begins >> '{0}'; {waits}; echo {name} ends >> '{0}'; echo 1", noted.display());
        json!({ "argv": ["sh", "-c", script] }).to_string()
    };
    let start = |id: &str, queue: &str, priority: &str| {
        let (id, input) = (id.to_owned(), noting(id));
        let args = ["activity", "start", "process", "--id", &id, "-q", queue, "--priority", priority, "-i", &input];
        let started = run(&data, &args);
        assert!(started.status.success(), "{}", said(&started));
    };
    start("first", "mail", "3");
    until("the first of the queue has begun", || begun(&noted) == 1);
    for (id, priority) in [("usual", "3"), ("urgent", "1")] {
        start(id, "mail", priority);
    }
    // It has slots of its own: the limit of the other queue is not its limit.
    start("other", "default", "5");
    until("the other queue goes on", || begun(&noted) == 2);
    let answer = http.request("GET", "/metrics", None).unwrap();
    let metrics = String::from_utf8_lossy(&answer.body);
    assert!(metrics.contains("bosun_queue_slots_max{task_queue=\"mail\"} 1"), "{metrics}");
    std::fs::write(&go, "").unwrap();
    for id in ["first", "usual", "urgent", "other"] {
        assert!(run(&data, &["result", &format!("activity:{id}")]).status.success());
    }
    let lines = std::fs::read_to_string(&noted).unwrap();
    let mail: Vec<&str> = lines.lines().filter(|line| !line.starts_with("other")).collect();
    let expected = ["first begins", "first ends", "urgent begins", "urgent ends", "usual begins", "usual ends"];
    assert_eq!(mail, expected, "one at a time, and the urgent one first");
    let wrong = run(&data, &["worker", "run", "--queue-limit", "mail"]);
    assert!(wrong.status.code() == Some(2) && said(&wrong).contains("mail=5"), "{}", said(&wrong));
}
