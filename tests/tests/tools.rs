//! What tools do to the machine and learn of the worker, on the real worker: processes that stay behind (G37) and
//! keys that get out (G31).

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use bosun_tests::harness::binary::said;
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

/// G37: a command that kills its guard, and leaves its group, its session and its environment, is found by its control group
/// when it ends, when it is canceled, and, where the worker is killed at the same time, by the next worker.
#[test]
fn nothing_stays_of_a_command_that_kills_its_guard() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (mut process, _) = WorkerProcess::start(&worker(), &data, PATIENCE).unwrap();
    let began = Instant::now();
    while !process.said().contains("PR_SET_CHILD_SUBREAPER") {
        assert!(began.elapsed() < PATIENCE, "{}", process.said());
        std::thread::sleep(Duration::from_millis(20));
    }
    if !process.said().contains("a control group (cgroup v2) and a guard") {
        assert!(process.said().contains("no control group (cgroup v2) may be made here"), "{}", process.said());
        return eprintln!("SKIPPED: no control group of version 2 may be made here: {}", process.said());
    }
    let word = |n: u32| format!("{}.{n}", 50_000 + std::process::id() % 10_000);
    let escapes = |n: u32| {
        let word = word(n);
        // The command itself dies with its guard; what it has started does not.
        let tree =
            format!("env -i setsid sleep {word} & env -i setsid sh -c 'sleep {word} & sleep {word}' & sleep 0.3");
        json!({ "argv": ["sh", "-c", format!("{tree}; kill -9 $PPID; sleep {word}")] })
    };
    start(&data, "escapes", &escapes(1));
    wait_for(&word(1), |n| n >= 3, PATIENCE);
    wait_for(&word(1), |n| n == 0, GONE_WITHIN);
    let groups = || {
        let all = fs::read_dir("/sys/fs/cgroup/unified").or_else(|_| fs::read_dir("/sys/fs/cgroup")).unwrap().flatten();
        let own = format!("bosun-{}-", process.pid());
        all.filter(|entry| entry.file_name().to_string_lossy().starts_with(&own)).count()
    };
    let began = Instant::now();
    while groups() > 0 {
        assert!(began.elapsed() < GONE_WITHIN, "control groups stay behind");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Guard and worker at once: the next worker finds what is left by the note.
    let both =
        escapes(2)["argv"][2].as_str().unwrap().replace("kill -9 $PPID", &format!("kill -9 {} $PPID", process.pid()));
    start(&data, "both", &json!({ "argv": ["sh", "-c", both] }));
    assert!(process.wait(PATIENCE).unwrap().is_some(), "it has killed the worker");
    let (process, _) = WorkerProcess::start(&worker(), &data, PATIENCE).unwrap();
    wait_for(&word(2), |n| n == 0, GONE_WITHIN);
    drop(process);
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

/// Writes a secret as tools write it: the ways of the issue, each on a line of its own.
const SPELLS: &str = r#"
printf %s "$K"; echo
printf 'the key that nobody may see, in a text that takes more than one line of base64, is %s, and so on and so forth' "$K" | base64
for before in '' x xy; do for after in '' z; do printf '%s%s%s' "$before" "$K" "$after" | base64; printf '%s%s%s' "$before" "$K" "$after" | base64 -w0; echo
  printf '%s%s%s' "$before" "$K" "$after" | base64 -w0 | tr '+/' '-_' | tr -d '='; echo; done; done
printf %s "$K" | base64 -w0 | sed 's/+/%2B/g; s,/,%2F,g; s/=/%3D/g'; echo
printf %s "$K" | od -An -v -tx1 | tr -d ' \n'; echo
printf %s "$K" | od -An -v -tx1 | tr -d ' \n' | tr a-f A-F; echo
printf %s "$K" | od -An -v -tx1
printf %s "$K" | od -An -v -tx1 | tr ' ' ':'
printf %s "$K" | od -An -v -tx1 | tr -d '\n' | sed 's/ /\\x/g'; echo
printf %s "$K" | od -An -v -tx1 | tr -d '\n' | sed 's/ /%/g'; echo
printf %s "$K" | od -An -v -tx1 | tr -d '\n' | sed 's/ /%/g' | tr a-f A-F; echo
printf %s "$K" | sed 's,/,%2F,g; s,+,%2B,g'; echo
printf %s "$K" | sed 's,/,%2f,g; s,+,%2b,g'; echo
printf %s "$K" | sed 's,/,%2f,g'; echo
printf %s "$K" | sed 's,a,%61,g; s,+,%2B,g'; echo
printf %s "$K" | sed 's,/,\\/,g'; echo
printf %s "$K" | sed 's,/,\\u002f,g'; echo
printf %s "$K" | sed 's,/,\&#x2F;,g; s,+,\&#43;,g'; echo
"#;

/// Every way back from a text to what it spells, so that a test sees what a reader could.
fn unspelled(text: &str) -> Vec<String> {
    let replaced = |pattern: &[(&str, u32)]| {
        let mut all = text.to_owned();
        for byte in 0x20_u8..0x7f {
            for (before, width) in pattern {
                let hex = if *width == 4 { format!("{byte:04x}") } else { format!("{byte:02x}") };
                for hex in [hex.clone(), hex.to_uppercase()] {
                    all = all.replace(&format!("{before}{hex}"), &char::from(byte).to_string());
                }
            }
        }
        all
    };
    let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect::<String>().to_lowercase();
    vec![text.to_owned(), replaced(&[("%", 2)]), replaced(&[("\\u", 4)]), replaced(&[("\\x", 2)]), hex]
}

/// G31: whatever a tool prints of the worker's secrets, and of what `env_allow` gave it, in whichever spelling, no history, no
/// export, no log and no file of the worker holds them; and what one tool left in a file another tool does not bring in.
#[test]
fn no_spelling_of_a_secret_enters_a_history() {
    const GIVEN: &str = "postgres://ann:pa+ss/wo-rd7@db";
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let program = worker().env("CANARY_API_KEY", KEY).env("PLAIN_DATABASE", GIVEN);
    let (process, _) = WorkerProcess::start(&program, &data, PATIENCE).unwrap();
    // The tool knows the worker's own key from elsewhere: the worker gives it to nobody.
    let (key, kept) = (dir.path().join("key"), dir.path().join("kept"));
    fs::write(&key, KEY).unwrap();
    let script = |id: &str, last: &str| {
        let first =
            if id == "own" { format!("K=\"$(cat {})\"", key.display()) } else { "K=\"$PLAIN_DATABASE\"".into() };
        let env_allow = if id == "own" { json!([]) } else { json!(["PLAIN_DATABASE"]) };
        json!({ "argv": ["sh", "-c", format!("{first}\n{SPELLS}\n{last}")], "env_allow": env_allow })
    };
    for id in ["own", "given"] {
        start(&data, id, &script(id, ""));
        start(&data, &format!("{id}-fails"), &script(id, "printf %s \"$K\" | base64 >&2; exit 3"));
    }
    start(&data, "keeps", &script("given", &format!("printf %s \"$K\" > {}", kept.display())));
    command(&data, &["result", "keeps"]);
    start(&data, "reads", &json!({ "argv": ["cat", kept] }));
    let hexes = [KEY, GIVEN].map(|key| key.bytes().map(|byte| format!("{byte:02x}")).collect::<String>());
    let bases: Vec<String> = [KEY, GIVEN].iter().flat_map(|key| (0..3).map(|offset| base64_of(key, offset))).collect();
    for id in ["own", "own-fails", "given", "given-fails", "reads"] {
        command(&data, &["result", id]);
        let shown = said(&command(&data, &["-o", "json", "show", id]));
        let exported = dir.path().join(format!("{id}.json"));
        command(&data, &["export", id, "--out", exported.to_str().unwrap(), "--force"]);
        let exported = fs::read_to_string(exported).unwrap();
        assert!(shown.contains("[redacted]") && exported.contains("[redacted]"), "{id}: {shown}");
        // The input of the run is the caller's own words, and names no secret.
        for (what, all) in [("history", &shown), ("export", &exported)] {
            let all = all.replace("\\n", " ").replace("\\\\", "\\");
            for text in unspelled(&all) {
                for secret in [KEY, GIVEN, &KEY[3..], &GIVEN[11..], &hexes[0], &hexes[1]] {
                    assert!(!text.contains(secret), "{id}: {secret} is in the {what}: {all}");
                }
            }
            let one_alphabet = all.replace('-', "+").replace('_', "/").replace("%2B", "+").replace("%2F", "/");
            for base in &bases {
                assert!(!one_alphabet.contains(base), "{id}: {base} is in the {what}: {all}");
            }
        }
    }
    let said = process.said();
    for secret in [KEY, GIVEN, &hexes[0], &hexes[1], &bases[0], &bases[3]] {
        assert!(!said.contains(secret), "{secret} is in the log: {said}");
    }
    drop(process);
    for path in files_in(&data) {
        let bytes = fs::read(&path).unwrap_or_default();
        for secret in [KEY, GIVEN] {
            let holds = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!holds, "{secret} is in {}", path.display());
        }
    }
}

/// Twelve digits from the middle of what base64 makes of a secret that begins so many bytes after a group of three.
fn base64_of(secret: &str, offset: usize) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = secret.bytes().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let digits =
        bits[6 - offset * 8 % 6..].chunks_exact(6).map(|six| six.iter().fold(0, |digit, bit| digit << 1 | bit));
    digits.map(|digit: u8| char::from(DIGITS[usize::from(digit)])).skip(1).take(12).collect()
}

fn files_in(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_in(&path) } else { vec![path] }).collect()
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
