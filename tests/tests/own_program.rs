//! A program built from the library shows itself under its own name, and finds and tells of runs that its code does not
//! fit: a real process, as its user sees it (E22, E30, E31, E35).

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use bosun_tests::harness::binary::said;
use bosun_tests::harness::process::{Program, WorkerProcess, bosun, example};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(30);

fn program(data: &Path, version: &str, words: &[&str]) -> Output {
    let mut command = Command::new(example("own-program").unwrap());
    command.env("OWN_PROGRAM", version).arg("--data").arg(data).args(words).output().unwrap()
}

#[track_caller]
fn done(data: &Path, version: &str, words: &[&str]) -> String {
    let output = program(data, version, words);
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    said(&output)
}

fn worker(data: &Path, version: &str) -> WorkerProcess {
    let program = Program::new(example("own-program").unwrap(), &["worker", "run", "--drain-timeout", "5s"]);
    WorkerProcess::start(&program.env("OWN_PROGRAM", version), data, PATIENCE).unwrap().0
}

/// Help, errors and what to do next name the program that was called; what it does not want is not shown.
#[test]
fn a_program_of_its_own_shows_itself() {
    let dir = tempfile::tempdir().unwrap();
    let help = done(dir.path(), "2", &["--help"]);
    assert!(help.contains("Brews what is ordered.") && help.contains("Usage: own-program "), "{help}");
    for hidden in ["  agent ", "  plan ", "  budget ", "  llm ", "  takeover "] {
        assert!(!help.contains(hidden), "{hidden} is in:\n{help}");
    }
    assert!(help.contains("  start ") && help.contains("  worker "), "{help}");
    // Bosun is what it is built with, and no command of its help is Bosun's.
    for words in [&["--help"][..], &["batch", "--help"], &["schedule", "create", "--help"], &["explain", "BOSUN0021"]] {
        let text = done(dir.path(), "2", words);
        assert!(!text.contains("`bosun "), "{words:?}:\n{text}");
    }
    let version = done(dir.path(), "2", &["--version"]);
    assert!(version.starts_with("own-program 7.1 (bosun "), "{version}");
    let started = done(dir.path(), "2", &["start", "order", "-w", "o", "-i", "\"tea\""]);
    assert!(started.contains("own-program --data ") && !started.contains("bosun "), "{started}");
    let missing = program(dir.path(), "2", &["result", "nobody"]);
    assert!(!missing.status.success() && said(&missing).contains("own-program "), "{}", said(&missing));
    assert!(said(&missing).contains("for more: own-program explain BOSUN"), "{}", said(&missing));
    let refused = program(dir.path(), "2", &["start", "order", "-w", "wrong", "-i", "7"]);
    let text = said(&refused);
    assert!(
        !refused.status.success() && text.contains("the input of the workflow order") && text.contains("a string"),
        "{text}"
    );
}

/// A panic holds the run: lists, waiting verbs and pages of it say so with the command that helps, and mended code goes on.
/// State, interceptor and codec of the App are those of its activities and its store.
#[test]
fn a_run_that_panics_is_held_shown_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let broken = worker(dir.path(), "1");
    done(dir.path(), "1", &["start", "order", "-w", "o", "-i", "\"jasmine tea\""]);
    done(dir.path(), "1", &["signal", "o", "go"]);
    let waited = program(dir.path(), "1", &["result", "o", "--timeout", "5s"]);
    let text = said(&waited);
    assert!(!waited.status.success() && text.contains("o is held: workflow code panicked"), "{text}");
    assert!(text.contains("own-program") && text.contains("describe o` says why"), "{text}");
    let card = done(dir.path(), "1", &["describe", "o"]);
    assert!(
        card.contains("error[BOSUN0102]") && card.contains("no water (at ") && card.contains("own-program.rs:"),
        "{card}"
    );
    assert!(done(dir.path(), "1", &["list"]).contains("Held"));
    assert_eq!(done(dir.path(), "1", &["count", "-q", "Held = true"]).trim(), "1");
    drop(broken);

    let mended = worker(dir.path(), "2");
    let result = done(dir.path(), "2", &["result", "o", "--timeout", "30s"]);
    assert!(result.contains("jasmine tea, cup 1"), "{result}");
    assert_eq!(done(dir.path(), "2", &["count", "-q", "Held = true"]).trim(), "0");
    let said = mended.stderr();
    assert!(said.contains("watched brew of o"), "{said}");
    drop(mended);
    let stored = files(dir.path());
    let holds = |text: &str| stored.iter().any(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()));
    assert!(!holds("jasmine tea") && holds("aet enimsaj"), "the codec of the program is between the run and the disk");
}

/// A supervisor that a defect holds keeps what was done; the program that ships, which has no such defect, goes on with it, and
/// no task runs again.
#[test]
fn a_supervisor_that_a_defect_holds_goes_on_with_mended_code() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let defective = Program::new(example("defective-supervisor").unwrap(), &["worker", "run"]);
    let broken = WorkerProcess::start(&defective, dir.path(), PATIENCE).unwrap().0;
    let task = |id: &str, on: &str| json!({ "id": id, "goal": id, "agent": "ann", "deps": on.split_whitespace().collect::<Vec<_>>() });
    let spec = json!({
        "kind": "supervisor", "preset": "map-reduce", "objective": "work", "agents": [{ "name": "ann" }],
        "script": [
            { "on": "plan", "say": { "tasks": [task("one", ""), task("two", "one"), task("three", "two")] } },
            { "on": "execute_worker", "task": "two", "say": "poison" },
            { "on": "execute_worker", "say": "done" },
            { "on": "synthesize", "say": "all three" },
        ],
    });
    let input = json!({ "spec": spec }).to_string();
    let shipped = bosun().unwrap();
    let bosun = |words: &[&str]| Command::new(&shipped).args(["--data", data]).args(words).output().unwrap();
    let started = bosun(&["start", "supervisor", "-w", "three-tasks", "-i", &input]);
    assert!(started.status.success(), "{}", said(&started));
    let waited = bosun(&["result", "three-tasks", "--timeout", "30s"]);
    let text = said(&waited);
    assert!(!waited.status.success() && text.contains("three-tasks is held"), "{text}");
    let card = said(&bosun(&["describe", "three-tasks"]));
    assert!(card.contains("a defect of this build"), "{card}");
    assert!(said(&bosun(&["list"])).contains("Held"));
    drop(broken);

    let mended = WorkerProcess::start(&Program::bosun_worker().unwrap(), dir.path(), PATIENCE).unwrap().0;
    let result = bosun(&["result", "three-tasks", "--timeout", "60s"]);
    assert!(result.status.success() && said(&result).contains("all three"), "{}", said(&result));
    let history = said(&bosun(&["show", "three-tasks", "-o", "json"]));
    for task in ["one", "two", "three"] {
        assert_eq!(history.matches(&format!("\"execute/{task}/1\"")).count(), 1, "{task} ran once: {history}");
        assert!(!history.contains(&format!("\"execute/{task}/2\"")), "{history}");
    }
    drop(mended);
}

/// A worker that starts says how many open runs its code does not fit, before anybody asks for them.
#[test]
fn a_worker_that_starts_says_how_many_runs_do_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    for id in ["a", "b", "c"] {
        done(dir.path(), "2", &["start", "order", "-w", id, "-i", "\"tea\""]);
    }
    let other = worker(dir.path(), "3");
    let began = std::time::Instant::now();
    let said = loop {
        let said = other.stderr();
        if said.contains("open runs are held") || began.elapsed() > PATIENCE {
            break said;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(said.contains("3 open runs are held: they do not fit the code of this worker"), "{said}");
    let listed = done(dir.path(), "3", &["list", "-q", "Held = true"]);
    assert_eq!(listed.matches("Held").count(), 3, "{listed}");
}

/// The five programs of the examples have the command line, in both forms.
#[test]
fn the_five_programs_are_programs() {
    let dir = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(example("programs").unwrap());
        let output = command.args(words).arg("--data").arg(dir.path().join(words[0])).output().unwrap();
        (output.status.success(), said(&output))
    };
    let order = r#"{"id": "book", "cents": 1900}"#;
    for form in ["pay", "payment"] {
        let (paid, text) = run(&["payment_saga", "execute", form, "-w", form, "-i", order]);
        assert!(paid && text.contains("book is on its way"), "{form}: {text}");
    }
    let (failed, text) = run(&["payment_saga", "execute", "pay", "-i", r#"{"id": "piano", "cents": 900000}"#]);
    assert!(!failed && text.contains("TooHeavy"), "{text}");
    let images = serde_json::json!((0..200).map(|n| format!("{n:03}.jpg")).collect::<Vec<_>>()).to_string();
    let (done, text) = run(&["fan_out", "execute", "gallery", "-i", &images]);
    assert!(done && text.contains("1400"), "{text}");
    for program in ["account", "approval", "subscription"] {
        let (done, text) = run(&[program, "--help"]);
        assert!(done && text.contains(&format!("programs {program} ")), "{text}");
    }
}

/// All files of a directory and of those in it.
fn files(dir: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.extend(std::fs::read(&path).ok()) }
    }
    found
}
