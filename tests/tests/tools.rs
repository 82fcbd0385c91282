//! What tools do to the machine and learn of the worker, on the real worker: processes that stay behind (engine.md G37) and
//! keys that get out (engine.md G31).

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use bosun_tests::harness::process::{Program, WorkerProcess, example};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(30);
/// G37.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// `bosun` as it ships, in the profile of the tests.
fn bosun() -> std::path::PathBuf {
    example("bosun").unwrap()
}

fn worker() -> Program {
    Program::new(bosun(), &["worker", "run"])
}

fn command(data: &Path, words: &[&str]) -> Output {
    Command::new(bosun()).arg("--data").arg(data).args(words).output().unwrap()
}

#[track_caller]
fn start(data: &Path, id: &str, process: &Value) {
    let retry = json!({ "maximum_attempts": 1 });
    let step = json!({ "activity": { "type": "process", "input": process, "as": "out", "start_to_close": "60s", "retry": retry } });
    let program = json!({ "steps": [step, { "return": "$out" }] }).to_string();
    let output = command(data, &["start", "kitchen-sink", "-w", id, "-i", &program]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Everything a command says, wherever it says it.
fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// How many processes have this word among their arguments.
fn running(word: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let has = |path: &Path| {
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    };
    entries.filter(|entry| has(&entry.path())).count()
}

#[track_caller]
fn wait_for(word: &str, wanted: impl Fn(usize) -> bool, patience: Duration) {
    let began = Instant::now();
    while !wanted(running(word)) {
        assert!(began.elapsed() < patience, "{} processes of {word}", running(word));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A tree that leaves its group, its session and its environment, and forks twice.
fn tree(word: &str) -> String {
    format!(
        "sleep {word} & setsid sleep {word} & env -i setsid sleep {word} & \
         env -i setsid sh -c 'setsid sleep {word} & (env -i setsid sleep {word} &) &' & sleep 0.3"
    )
}

/// G37: nothing is left 5 s after a normal end, a timeout, a cancellation, and kill -9 of the worker.
#[test]
fn nothing_that_a_command_started_stays_however_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let program = worker();
    let (mut worker, _) = WorkerProcess::start(&program, &data, PATIENCE).unwrap();
    // The worker is ready before all that it said has been read from its pipe.
    let began = Instant::now();
    while !worker.said().contains("PR_SET_CHILD_SUBREAPER") {
        assert!(began.elapsed() < PATIENCE, "the worker does not say how it ends what it starts: {}", worker.said());
        std::thread::sleep(Duration::from_millis(20));
    }
    let word = |n: u32| format!("{}.{n}", 30_000 + std::process::id() % 10_000);

    start(&data, "ends", &json!({ "argv": ["sh", "-c", tree(&word(1))] }));
    wait_for(&word(1), |n| n >= 3, PATIENCE);
    wait_for(&word(1), |n| n == 0, GONE_WITHIN);

    let stays = |n| format!("{} ; sleep {}", tree(&word(n)), word(n));
    start(&data, "times-out", &json!({ "argv": ["sh", "-c", stays(2)], "timeout_ms": 1500 }));
    wait_for(&word(2), |n| n >= 4, PATIENCE);
    std::thread::sleep(Duration::from_millis(1_000));
    wait_for(&word(2), |n| n == 0, GONE_WITHIN);

    start(&data, "canceled", &json!({ "argv": ["sh", "-c", stays(3)] }));
    wait_for(&word(3), |n| n >= 4, PATIENCE);
    assert!(command(&data, &["cancel", "canceled"]).status.success());
    wait_for(&word(3), |n| n == 0, GONE_WITHIN);

    // It does not hear SIGTERM, and has not a variable of ours.
    start(&data, "killed", &json!({ "argv": ["sh", "-c", format!("trap '' TERM; {}", stays(4))] }));
    wait_for(&word(4), |n| n >= 4, PATIENCE);
    worker.kill().unwrap();
    wait_for(&word(4), |n| n == 0, GONE_WITHIN);
}

/// A guard is not seen in what a command gives: its code, its signal, its output, and that it does not exist.
#[test]
fn a_command_under_a_guard_ends_as_it_would_alone() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (_worker, _) = WorkerProcess::start(&worker(), &data, PATIENCE).unwrap();
    let cases = [
        (
            "code",
            json!({ "argv": ["sh", "-c", "cat; exit 7"], "stdin": "in", "success_codes": [7] }),
            "\"exit_code\":7",
        ),
        ("signal", json!({ "argv": ["sh", "-c", "kill -15 $$"], "success_codes": [] }), "\"signal\":15"),
        ("missing", json!({ "argv": ["no-such-command-here"] }), "no such command on this machine"),
    ];
    for (id, process, wanted) in cases {
        start(&data, id, &process);
        let result = said(&command(&data, &["-o", "json", "result", id])).replace(": ", ":");
        let shown = said(&command(&data, &["-o", "json", "show", id])).replace(": ", ":");
        assert!(result.contains(wanted) || shown.contains(wanted), "{id}: {result}\n{shown}");
    }
}

const KEY: &str = "sk-canary-8f1d/77+zzQ42";

/// G31: no key of the worker is in its `/proc` entry, for root neither, and none comes into a history.
#[test]
fn what_the_worker_starts_cannot_read_its_keys() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let program = worker().env("CANARY_API_KEY", KEY).env("UNNAMED_THING", "canary-unnamed-1234");
    let (worker, _) = WorkerProcess::start(&program, &data, PATIENCE).unwrap();
    let pid = worker.pid();
    let environment = String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/environ")).unwrap()).into_owned();
    assert!(environment.contains("PATH=/"), "what is harmless is left: {environment}");
    assert!(!environment.contains("canary"), "{environment}");

    let look = format!(
        "env; cat /proc/{pid}/environ /proc/$PPID/environ /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; \
         cat {}; printf %s \"$CANARY_API_KEY\" | base64; printf %s \"$CANARY_API_KEY\" | od -An -tx1 | tr -d ' \\n'; \
         echo; echo \"key=$CANARY_API_KEY\" >&2",
        data.join("token").display()
    );
    start(&data, "nosy", &json!({ "argv": ["sh", "-c", look] }));
    start(&data, "given", &json!({ "argv": ["sh", "-c", look], "env_allow": ["CANARY_API_KEY"] }));
    start(&data, "fails", &json!({ "argv": ["sh", "-c", format!("{look}; exit 3")], "env_allow": ["CANARY_API_KEY"] }));
    let token = fs::read_to_string(data.join("token")).unwrap();
    let hex: String = KEY.bytes().map(|byte| format!("{byte:02x}")).collect();
    for id in ["nosy", "given", "fails"] {
        command(&data, &["result", id]);
        let all = said(&command(&data, &["-o", "json", "show", id]));
        assert!(all.contains("PATH="), "{id} has looked: {all}");
        // A process beside the worker, this test for one, may have a canary of its own; it has none of this name.
        for secret in [KEY, "c2stY2FuYXJ5", &hex, token.trim()] {
            assert!(!all.contains(secret), "{id}: {secret} is in the history");
        }
        assert!(id == "nosy" || all.contains("[redacted]"), "{id}: {all}");
    }
}

/// G31: a user's worker cannot be looked into by other processes of the same user.
#[test]
fn a_worker_of_a_user_cannot_be_looked_into() {
    let dir = tempfile::tempdir().unwrap();
    let as_user = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(words);
        command
    };
    if !rustix::process::geteuid().is_root() || !as_user(&["true"]).status().is_ok_and(|status| status.success()) {
        return eprintln!("skipped: it takes root and setpriv to become somebody else");
    }
    // The binary may lie where only root gets.
    let program = dir.path().join("bosun");
    fs::copy(bosun(), &program).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(dir.path(), open).unwrap();
    let data = dir.path().join("data");
    let mut program = Program::new(program, &["worker", "run"]).env("CANARY_API_KEY", KEY);
    program = program
        .wrapped(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].iter().map(Into::into).collect());
    let (worker, _) = WorkerProcess::start(&program, &data, PATIENCE).unwrap();
    let looks = as_user(&["cat", &format!("/proc/{}/environ", worker.pid())]).output().unwrap();
    assert!(!looks.status.success(), "{}", said(&looks));
    assert!(!String::from_utf8_lossy(&fs::read(format!("/proc/{}/environ", worker.pid())).unwrap()).contains("canary"));
}
