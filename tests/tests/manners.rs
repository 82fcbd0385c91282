//! What an operator expects of a program that runs for years, by the shipped binary: the service manager is told, a worker is
//! described and ended, a shell completes, manuals are made, `doctor` finds, `init` makes what runs, `top` shows.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use bosun_tests::harness::binary::{run, said};
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::faults::Injection;
use bosun_tests::harness::process::{Program, WorkerProcess, bosun};
use rustix::process::Signal;
use serde_json::Value;

const ORDER: &str = r#"{"order_id": "o-1", "items": [{"sku": "tea", "quantity": 1}], "cents": 5}"#;
const WORKER: [&str; 2] = ["worker", "run"];

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {}", said(output)))
}

fn message(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 512];
    let length = socket.recv(&mut buffer).expect("the manager is told in time");
    String::from_utf8(buffer[..length].to_vec()).unwrap()
}

/// sd_notify: ready when it serves, fed while it lives, stopping when it drains.
#[test]
fn the_service_manager_is_told_what_the_worker_does() {
    let home = tempfile::tempdir().unwrap();
    let (socket, data) = (home.path().join("notify"), home.path().join("data"));
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(READY_MAX)).unwrap();
    let mut worker = Command::new(bosun().unwrap())
        .args(WORKER)
        .arg("--data")
        .arg(&data)
        .env("NOTIFY_SOCKET", &socket)
        .env("WATCHDOG_USEC", "400000")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ready = message(&manager);
    let address = ready.strip_prefix("READY=1\nSTATUS=serving ").unwrap_or_else(|| panic!("{ready}"));
    let known: Value = serde_json::from_slice(&std::fs::read(data.join("worker.json")).unwrap()).unwrap();
    assert_eq!(known["address"], address);
    assert_eq!([message(&manager), message(&manager)], ["WATCHDOG=1", "WATCHDOG=1"]);
    let pid = rustix::process::Pid::from_raw(worker.id().cast_signed()).unwrap();
    // Stopped by its manager, it does not live, and is not fed for.
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut fed = 0;
    let mut buffer = [0; 64];
    while manager.recv(&mut buffer).is_ok() {
        fed += 1;
        assert!(fed < 4, "a process that is stopped feeds nobody");
    }
    manager.set_read_timeout(Some(READY_MAX)).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let began = Instant::now();
    while !message(&manager).starts_with("STOPPING=1\n") {
        assert!(began.elapsed() < READY_MAX);
    }
    assert!(worker.wait().unwrap().success());
}

/// A disk that hangs fails nothing and acknowledges nothing: the manager is not told that all is well, and is again when the
/// write comes back. The sync hangs from outside, in a worker that was well before.
#[test]
fn a_write_that_does_not_come_back_ends_the_word_to_the_service_manager() {
    if !Injection::available_or_explain() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (socket, data, trace) = (home.path().join("notify"), home.path().join("data"), home.path().join("trace"));
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(READY_MAX)).unwrap();
    let program = Program::new(bosun().unwrap(), &WORKER)
        .env("NOTIFY_SOCKET", socket.to_str().unwrap())
        .env("WATCHDOG_USEC", "400000");
    let (worker, _) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    assert!(message(&manager).starts_with("READY=1"));
    assert_eq!(message(&manager), "WATCHDOG=1");
    let mut strace = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:delay_enter=600000000", "-o"])
        .arg(&trace)
        .args(["-p", &worker.pid().to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    let status = format!("/proc/{}/status", worker.pid());
    while std::fs::read_to_string(&status).unwrap().contains("TracerPid:\t0\n") {
        assert!(began.elapsed() < READY_MAX && strace.try_wait().unwrap().is_none(), "strace does not attach");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Its answer waits for the sync.
    let mut start = Command::new(bosun().unwrap())
        .args(["start", "order-saga", "-i", ORDER, "--data"])
        .arg(&data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let (mut fed, mut buffer) = (0, [0; 64]);
    while manager.recv(&mut buffer).is_ok() {
        fed += 1;
        assert!(fed < 2_000, "a worker whose write hangs says that all is well");
    }
    assert!(start.try_wait().unwrap().is_none(), "nothing is acknowledged meanwhile");
    // The disk is well again.
    strace.kill().unwrap();
    strace.wait().unwrap();
    manager.set_read_timeout(Some(READY_MAX)).unwrap();
    assert_eq!(message(&manager), "WATCHDOG=1");
    assert!(start.wait().unwrap().success());
    drop(worker);
}

/// A worker is described, drained and stopped through its directory, and nobody else gets its signals.
#[test]
fn a_worker_is_described_and_ended_through_its_directory() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let missing = run(&data, &["worker", "drain"]);
    assert_eq!(missing.status.code(), Some(30), "{}", said(&missing));
    for verb in ["drain", "stop"] {
        let (mut worker, _) = WorkerProcess::start(&Program::new(bosun().unwrap(), &WORKER), &data, READY_MAX).unwrap();
        let about = json(&run(&data, &["worker", "describe", "-o", "json"]));
        assert_eq!(
            (about["pid"].as_u64(), about["health"]["status"].as_str()),
            (Some(worker.pid().into()), Some("ready"))
        );
        let ended = run(&data, &["worker", verb]);
        assert!(ended.status.success(), "{}", said(&ended));
        assert!(worker.wait(READY_MAX).unwrap().is_some(), "it is gone when the command says so");
        let nobody = run(&data, &["worker", verb]);
        assert_eq!(nobody.status.code(), Some(31), "{}", said(&nobody));
    }
    // A file that was left by a worker that was killed, and whose process id is another's by now: ours.
    let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
    let left = format!(
        r#"{{"pid": {}, "address": "http://127.0.0.1:9", "token_file": {:?}, "version": "0.1.0", "started_at": "2026-11-25T00:00:00Z"}}"#,
        stranger.id(),
        data.join("token").display().to_string()
    );
    std::fs::write(data.join("worker.json"), left).unwrap();
    let refused = run(&data, &["worker", "stop"]);
    assert_eq!(refused.status.code(), Some(31), "{}", said(&refused));
    assert!(said(&refused).contains("nobody with the token answers"), "{}", said(&refused));
    assert!(stranger.try_wait().unwrap().is_none(), "it got no signal");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

/// A directory that a worker holds is refused to a second one at once, by the name of the first; and what cannot be served is
/// said before anything is opened or made.
#[test]
fn a_second_worker_is_told_who_is_there() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let (worker, http) = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    let second = run(&data, &WORKER);
    let told = said(&second);
    assert_eq!(second.status.code(), Some(31), "{told}");
    assert!(told.contains(&format!("the worker with pid {} works on it", worker.pid())), "{told}");
    assert!(told.contains("worker drain") && !told.contains("waiting for"), "{told}");
    let port = http.endpoint.address.rsplit_once(':').unwrap().1.to_owned();
    for (words, why) in
        [(["--port", port.as_str()], "cannot listen on"), (["--bind", "0.0.0.0"], "is not a loopback address")]
    {
        let other = home.path().join("other");
        let refused = run(&other, &[&WORKER[..], &words].concat());
        assert!(!refused.status.success() && said(&refused).contains(why), "{words:?}: {}", said(&refused));
        assert!(!other.exists(), "{words:?}: nothing was made");
    }
}

/// Somebody who holds the directory and proves nothing is waited for, and that is said.
#[test]
fn who_waits_for_the_directory_says_so() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    assert!(run(&data, &["start", "kitchen-sink", "--input", r#"{"steps": []}"#]).status.success());
    let lock = std::fs::File::options().write(true).open(data.join("bosun.lock")).unwrap();
    lock.lock().unwrap();
    let waited = run(&data, &WORKER);
    let told = said(&waited);
    assert_eq!(waited.status.code(), Some(31), "{told}");
    assert!(told.contains("waiting for 10 s at most"), "{told}");
}

/// A worker that drains is about to leave: the next one waits for that.
#[test]
fn a_worker_that_drains_is_followed_by_the_next() {
    let home = tempfile::tempdir().unwrap();
    let (data, noted, go) = (home.path().join("data"), home.path().join("noted"), home.path().join("go"));
    let program = Program::bosun_worker().unwrap();
    let (mut first, http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    let script = format!("touch {}; while [ ! -e {} ]; do sleep 0.02; done; echo 1", noted.display(), go.display());
    let step = serde_json::json!({ "activity": { "type": "process", "input": { "argv": ["sh", "-c", script] } } });
    let input = serde_json::json!({ "steps": [step] }).to_string();
    let started = run(&data, &["start", "kitchen-sink", "-w", "slow", "--input", &input]);
    assert!(started.status.success(), "{}", said(&started));
    let began = std::time::Instant::now();
    while !noted.exists() {
        assert!(began.elapsed() < READY_MAX, "it never ran");
        std::thread::sleep(Duration::from_millis(20));
    }
    first.signal(Signal::TERM).unwrap();
    while http.request("GET", "/readyz", None).is_ok_and(|answer| answer.status == 200) {
        assert!(began.elapsed() < READY_MAX, "it does not drain");
        std::thread::sleep(Duration::from_millis(20));
    }
    // On the port that the first one still has.
    let port = http.endpoint.address.rsplit_once(':').unwrap().1.to_owned();
    let program = Program::new(bosun().unwrap(), &["worker", "run", "--port", &port]);
    let mut second = WorkerProcess::spawn(&program, &data).unwrap();
    assert!(second.wait(Duration::from_millis(300)).unwrap().is_none(), "{}", second.said());
    std::fs::write(&go, "").unwrap();
    second.wait_ready(READY_MAX).unwrap();
    assert!(first.wait(READY_MAX).unwrap().is_some_and(|status| status.success()));
    let ended = run(&data, &["result", "slow"]);
    assert!(ended.status.success(), "{}", said(&ended));
}

/// The unit names this program and this directory, and refuses options that `worker run` does not take.
#[test]
fn the_unit_starts_this_program_with_options_that_it_takes() {
    let home = tempfile::tempdir().unwrap();
    let unit = run(home.path(), &["worker", "unit"]);
    let text = String::from_utf8_lossy(&unit.stdout);
    let start = format!("ExecStart={} --data {} worker run\n", bosun().unwrap().display(), home.path().display());
    assert!(text.contains(&start) && text.contains("Type=notify"), "{text}");
    // What the owner forbids holds for the service, too, which begins in another directory.
    let config = home.path().join("bosun.toml");
    std::fs::write(&config, "[process]\nallow = [\"git\"]\n[profiles.night.worker]\nslots = 2\n").unwrap();
    let words = ["--data", "data", "--profile", "night", "--set", "worker.slots=3", "worker", "unit"];
    let unit = Command::new(bosun().unwrap()).args(words).current_dir(home.path()).output().unwrap();
    let start = format!(
        "--data {} --config {} --profile night --set worker.slots=3 worker run\n",
        home.path().join("data").display(),
        config.display()
    );
    assert!(String::from_utf8_lossy(&unit.stdout).contains(&start), "{}", said(&unit));
    // What only the environment says, the service does not have.
    let mut with = Command::new(bosun().unwrap());
    let with =
        with.args(["worker", "unit"]).env("BOSUN_PROCESS_ALLOW", "git").current_dir(home.path()).output().unwrap();
    assert!(said(&with).contains("set here and not in the unit: BOSUN_PROCESS_ALLOW"), "{}", said(&with));
    let wrong = Command::new(bosun().unwrap()).args(["worker", "unit", "--", "--slot", "4"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(said(&wrong).contains("unexpected argument '--slot'"), "{}", said(&wrong));
}

/// bash, with the script that `completion` prints: verbs, options, and the ids of runs as they are now.
#[test]
fn a_shell_completes_verbs_and_workflow_ids() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let started = run(&data, &["start", "order-saga", "-w", "order-77", "-i", ORDER]);
    assert!(started.status.success(), "{}", said(&started));
    for words in [
        // Two runs of one id.
        &["terminate", "order-77", "--yes"][..],
        &["start", "order-saga", "-w", "order-77", "-i", ORDER],
        &["schedule", "create", "order-nightly", "order-saga", "--every", "24h", "-i", ORDER],
        &["pause", "--query", "WorkflowId = 'order-77'", "--batch-id", "order-batch", "--yes"],
    ] {
        let made = run(&data, words);
        assert!(made.status.success(), "{}", said(&made));
    }
    let script = home.path().join("complete.sh");
    let text = format!(
        "source <({bosun} completion bash)\n\
         try() {{ COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_LINE=\"$*\"; COMP_TYPE=9; _clap_complete_bosun bosun \"${{!#}}\" x; echo \"${{COMPREPLY[@]}}\"; }}\n\
         try bosun wor\n\
         try bosun --data {data} describe ord\n\
         try bosun --data={data} describe ord\n\
         try bosun --data {data} --namespace other describe ord\n\
         try bosun --data {nowhere} describe ord\n\
         try bosun store ver\n\
         try bosun --data {data} schedule trigger ord\n\
         try bosun --data {data} batch describe ord\n\
         try bosun --data {data} approval approve ord\n\
         try bosun --data {data} approval list ord\n",
        bosun = bosun().unwrap().display(),
        data = data.display(),
        nowhere = home.path().join("nowhere").display(),
    );
    std::fs::write(&script, text).unwrap();
    let output = Command::new("bash").arg(&script).output().unwrap();
    let lines: Vec<String> =
        String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim().to_owned()).collect();
    let ids = ["order-nightly", "order-batch", "", "order-77"];
    let lines_of_ids = &lines[lines.len().saturating_sub(ids.len())..];
    assert_eq!(lines_of_ids, ids, "each verb is offered what it takes: {}", said(&output));
    let runs = &lines[..lines.len().saturating_sub(ids.len())];
    assert_eq!(runs, ["workflow worker", "order-77", "order-77", "", "", "verify"], "{}", said(&output));
    assert!(!home.path().join("nowhere").exists(), "a completion makes nothing");
}

/// A page for each verb, readable by whoever reads manuals.
#[test]
fn there_is_a_manual_page_for_each_verb() {
    let home = tempfile::tempdir().unwrap();
    let pages = home.path().join("man1");
    let made = Command::new(bosun().unwrap()).arg("man").arg(&pages).output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    for page in ["bosun.1", "bosun-run.1", "bosun-worker-run.1", "bosun-replay-check.1"] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap_or_else(|why| panic!("{page}: {why}"));
        assert!(text.contains(".TH ") && text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    let own = Command::new(bosun().unwrap()).arg("man").output().unwrap();
    assert!(String::from_utf8_lossy(&own.stdout).contains(".TH bosun 1"));
}

fn finding<'f>(report: &'f Value, check: &str) -> &'f Value {
    let mut all = report["findings"].as_array().unwrap().iter();
    all.find(|one| one["check"] == check).unwrap_or_else(|| panic!("no check {check}: {report}"))
}

/// What is wrong is found, with what mends it; what is well is said to be.
#[test]
fn the_doctor_finds_what_is_wrong_and_what_mends_it() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let doctor = || run(&data, &["doctor", "-o", "json"]);
    let nothing = doctor();
    assert!(nothing.status.success() && !data.exists(), "looking makes nothing: {}", said(&nothing));
    let (mut worker, _) = WorkerProcess::start(&Program::new(bosun().unwrap(), &WORKER), &data, READY_MAX).unwrap();
    let well = json(&doctor());
    assert_eq!((finding(&well, "worker")["severity"].as_str(), &well["problems"]), (Some("ok"), &0.into()), "{well}");
    let whose = finding(&well, "environment")["text"].as_str().unwrap();
    assert!(whose.contains("as this command has them") && whose.contains("/system?doctor=look"), "{whose}");
    worker.kill().unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let killed = json(&doctor());
    assert_eq!(finding(&killed, "worker")["severity"], "warning");
    assert!(finding(&killed, "worker")["fix"].as_str().unwrap().contains("bosun worker run"), "{killed}");
    assert!(finding(&killed, "data directory")["fix"].as_str().unwrap().contains("chmod 700"), "{killed}");
    // A damaged store is a problem, and the doctor does not touch it.
    let db = data.join("log/db");
    let mut bytes = std::fs::read(&db).unwrap();
    bytes.iter_mut().skip(64).for_each(|byte| *byte ^= 0xff);
    std::fs::write(&db, &bytes).unwrap();
    let damaged = doctor();
    assert_eq!(
        (damaged.status.code(), finding(&json(&damaged), "store")["severity"].as_str()),
        (Some(1), Some("problem"))
    );
    assert_eq!(std::fs::read(&db).unwrap(), bytes, "it only looks");
    // A model server that is configured and not there.
    let away = Command::new(bosun().unwrap())
        .args(["doctor", "-o", "json", "--data"])
        .arg(home.path().join("none"))
        .env("OPENAI_API_KEY", "sk-not-a-key-0000")
        .env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        .output()
        .unwrap();
    let models = said(&away);
    assert!(models.contains("cannot be reached") && !models.contains("sk-not-a-key"), "{models}");
}

/// A project in YAML runs, passes its own test, and gives a report; nothing is overwritten.
#[test]
fn a_new_project_runs_at_once() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("Tide Tables/null");
    let init = |args: &[&str]| {
        Command::new(bosun().unwrap()).arg("init").arg(&dir).args(args).current_dir(home.path()).output().unwrap()
    };
    let made = init(&[]);
    assert!(said(&made).contains("bosun run supervisor.yaml"), "{}", said(&made));
    let here = |args: &[&str]| Command::new(bosun().unwrap()).args(args).current_dir(&dir).output().unwrap();
    let ran = here(&["run", "supervisor.yaml"]);
    assert!(ran.status.success() && said(&ran).contains("The moon lifts the sea twice a day"), "{}", said(&ran));
    let tested = here(&["test", "first.scene.yaml"]);
    assert!(tested.status.success() && said(&tested).contains("1 passed"), "{}", said(&tested));
    assert!(here(&["config", "list"]).status.success());
    assert_eq!(init(&["--template", "rust"]).status.code(), Some(2));
    assert!(!dir.join("Cargo.toml").exists());
}

/// A Rust project has a manifest that resolves, and the program of the tutorial, which is built by the tests.
#[test]
fn a_new_rust_project_resolves() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("tea");
    let made = Command::new(bosun().unwrap()).args(["init", "--template", "rust"]).arg(&dir).output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    std::fs::copy(crate::tidy::workspace().join("Cargo.lock"), dir.join("Cargo.lock")).unwrap();
    let host = Command::new("rustc").arg("-vV").output().unwrap();
    let host =
        String::from_utf8_lossy(&host.stdout).lines().find_map(|line| line.strip_prefix("host: ").map(str::to_owned));
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--format-version", "1", "--offline", "--filter-platform", &host.unwrap()]);
    let resolved = cargo.current_dir(&dir).env_remove("CARGO_TARGET_DIR").output().unwrap();
    assert!(resolved.status.success(), "{}", said(&resolved));
    let program = std::fs::read_to_string(dir.join("src/main.rs")).unwrap();
    let example = std::fs::read_to_string(crate::tidy::workspace().join("worker/examples/first_steps.rs")).unwrap();
    assert!(example.ends_with(&program) && program.starts_with("use "), "{program}");
}

/// Off a terminal, `top` is one look: what is open, and that nobody works.
#[test]
fn top_shows_what_is_open_and_whether_anybody_works() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let started = run(&data, &["start", "order-saga", "-w", "order-1", "-i", ORDER]);
    assert!(started.status.success(), "{}", said(&started));
    let alone = run(&data, &["top"]);
    let text = said(&alone);
    assert!(text.contains("1 open") && text.contains("no worker") && text.contains("order-1"), "{text}");
    let (_worker, _) = WorkerProcess::start(&Program::new(bosun().unwrap(), &WORKER), &data, READY_MAX).unwrap();
    let shown = json(&run(&data, &["top", "-o", "json"]));
    assert_eq!(shown["worker"]["slots"], 1_000, "{shown}");
    assert!(shown["worker"]["external_slots"].as_u64().is_some_and(|slots| (16..1_000).contains(&slots)), "{shown}");
}
