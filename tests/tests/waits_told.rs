//! Whatever a run waits for, whoever waits for it is told, with a command that helps when it is pasted.
//!
//! Real processes on a real directory: a person, a budget that is spent, an agent that has halted.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use bosun_tests::harness::binary::said;
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess};
use serde_json::{Value, json};

use crate::supervisor_cli::{GATED, Runner, command, run, until_pending};

const PATIENCE: Duration = Duration::from_secs(120);

fn worker(data: &Path) -> WorkerProcess {
    WorkerProcess::start(&Program::bosun_worker().unwrap(), data, READY_MAX).unwrap().0
}

/// A line of this command's standard error, once it is there.
#[track_caller]
fn line_of(data: &Path, words: &[&str], wanted: &str) -> String {
    let seen = data.join("seen.txt");
    let out = File::create(data.join("out.txt")).unwrap();
    let _waits = Runner(command(data, words).stdout(out).stderr(File::create(&seen).unwrap()).spawn().unwrap());
    let begin = Instant::now();
    loop {
        let text = std::fs::read_to_string(&seen).unwrap_or_default();
        if let Some(line) = text.lines().find(|line| line.contains(wanted)) {
            return line.to_owned();
        }
        assert!(begin.elapsed() < PATIENCE, "{words:?} never says {wanted:?}: {text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a command as it is printed.
#[track_caller]
fn pasted(hint: &str) -> String {
    let line = hint.split('`').find(|part| part.starts_with("bosun ")).unwrap_or_else(|| panic!("no command: {hint}"));
    let program = bosun_tests::harness::process::bosun().unwrap();
    let line = line.replacen("bosun", &program.display().to_string(), 1);
    let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", said(&output));
    said(&output)
}

/// `result` and `show --follow` say whom a run waits for, as `run` does.
#[test]
fn whoever_waits_is_told_of_the_person_that_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (data, spec) = (dir.path().join("data"), dir.path().join("gated.yaml"));
    std::fs::write(&spec, GATED).unwrap();
    let parked = run(&data, &["run", spec.to_str().unwrap(), "-w", "gated", "--no-wait"]);
    assert_eq!(parked.status.code(), Some(15), "{}", said(&parked));
    let _worker = worker(&data);
    let id = until_pending(&data);
    let command = format!("`bosun --data {} approval approve {id}`", data.display());
    for words in [&["result", "gated"][..], &["show", "gated", "--follow"]] {
        let line = line_of(&data, words, "waits for a person: the approval of");
        assert!(line.starts_with("? ") && line.contains(&command), "{words:?}: {line}");
    }
    pasted(&line_of(&data, &["result", "gated"], "waits for"));
    let ended = run(&data, &["result", "gated"]);
    assert!(ended.status.success(), "{}", said(&ended));
}

/// A spent budget: a code of its own, the command that gives more in every view, and no word of it once there is more.
#[test]
fn a_spent_budget_names_the_command_that_gives_more() {
    let dir = tempfile::tempdir().unwrap();
    let (data, spec) = (dir.path().join("data"), dir.path().join("budget.yaml"));
    let budget = format!("{GATED}budget: {{ llm_calls: 1, on_exhausted: ask }}\n");
    std::fs::write(&spec, budget.replace(", action: publish it", "")).unwrap();
    let parked = run(&data, &["run", spec.to_str().unwrap(), "-w", "poor", "--no-wait"]);
    assert_eq!(parked.status.code(), Some(14), "{}", said(&parked));
    let command = format!("bosun --data {} budget top-up poor --calls 1", data.display());
    assert!(said(&parked).contains(&format!("`{command}` gives it more")), "{}", said(&parked));
    let _worker = worker(&data);
    for words in [&["describe", "poor"][..], &["list"]] {
        let told = said(&run(&data, words));
        assert!(told.contains("1 of 1 calls are spent") && told.contains(&command), "{words:?}: {told}");
    }
    let counted = |status: &str| {
        let query = format!("ExecutionStatus = '{status}' AND WorkflowId = 'poor'");
        said(&run(&data, &["count", "--query", &query])).trim().to_owned()
    };
    assert_eq!(
        (counted("Paused"), counted("Running")),
        ("1".to_owned(), "1".to_owned()),
        "what the list shows it finds, and it is open"
    );
    let inbox: Value = serde_json::from_slice(&run(&data, &["approval", "list", "-o", "json"]).stdout).unwrap();
    assert!(inbox.to_string().contains("budget top-up poor --calls 1"), "{inbox}");
    let said_so = pasted(&line_of(&data, &["result", "poor"], "1 of 1 calls are spent"));
    assert!(said_so.contains("poor has more, and goes on"), "{said_so}");
    // It goes on by itself, to where it has spent that too.
    let again = line_of(&data, &["result", "poor"], "2 of 2 calls are spent");
    assert!(again.contains("budget top-up poor --calls 2"), "{again}");
    pasted(&again);
    let ended = run(&data, &["result", "poor", "--timeout", "60s"]);
    assert!(ended.status.success(), "{}", said(&ended));
}

/// More that is sent without a word of going on: nothing says that the budget is spent any more.
#[test]
fn a_raised_budget_is_not_called_spent() {
    let dir = tempfile::tempdir().unwrap();
    let (data, spec) = (dir.path().join("data"), dir.path().join("budget.yaml"));
    std::fs::write(&spec, format!("{GATED}budget: {{ llm_calls: 1, on_exhausted: ask }}\n")).unwrap();
    run(&data, &["run", spec.to_str().unwrap(), "-w", "poor", "--no-wait"]);
    let _worker = worker(&data);
    let more = json!({ "tokens": null, "cost_micros": null, "calls": 50, "wall_ms": null, "allow_unpriced": false });
    let sent = run(&data, &["signal", "poor", "budget_top_up_v1", "--input", &more.to_string()]);
    assert!(sent.status.success(), "{}", said(&sent));
    let line = line_of(&data, &["result", "poor"], "its budget was spent, and has been raised since");
    assert!(line.contains(" resume poor`"), "{line}");
    pasted(&line);
    until_pending(&data);
}

/// An agent's own run that has given up says why, and what helps.
#[test]
fn an_agent_that_has_halted_says_what_helps() {
    let dir = tempfile::tempdir().unwrap();
    let (data, spec) = (dir.path().join("data"), dir.path().join("halts.yaml"));
    let text = "kind: supervisor\npreset: shannon-simple\nobjective: write a note\n\
                agents: [{ name: writer, via: { model: { name: anthropic/claude } } }]\n";
    std::fs::write(&spec, text).unwrap();
    let parked = run(&data, &["run", spec.to_str().unwrap(), "-w", "above", "--no-wait"]);
    assert_eq!(parked.status.code(), Some(15), "{}", said(&parked));
    let _worker = worker(&data);
    let listed = run(&data, &["list", "--query", "WorkflowType = 'agent'", "-o", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let agent = listed["workflows"][0]["workflow_id"].as_str().unwrap_or_else(|| panic!("{listed}")).to_owned();
    let why = "it has halted: anthropic: this worker has no model provider `anthropic`";
    let described = said(&run(&data, &["describe", &agent]));
    assert!(described.contains(why), "{described}");
    assert!(described.contains(&format!("bosun --data {} resume above", data.display())), "{described}");
    assert!(listed["workflows"][0]["waiting"].to_string().contains(why), "{listed}");
}

/// A resume of what nobody has paused says so.
#[test]
fn a_run_that_is_not_paused_is_not_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let (data, spec) = (dir.path().join("data"), dir.path().join("gated.yaml"));
    std::fs::write(&spec, GATED).unwrap();
    run(&data, &["run", spec.to_str().unwrap(), "-w", "gated", "--no-wait"]);
    let _worker = worker(&data);
    until_pending(&data);
    assert!(said(&run(&data, &["resume", "gated"])).contains("gated is not paused: it is RUNNING"));
    assert!(said(&run(&data, &["pause", "gated"])).contains("gated is PAUSED"));
    assert!(said(&run(&data, &["resume", "gated"])).contains("gated is RUNNING"));
}

/// Where no worker runs, that is what work waits for, and no slot.
#[test]
fn without_a_worker_nothing_waits_for_a_slot() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    let echo = json!({ "activity": { "type": "echo", "input": 1 } });
    let input = json!({ "steps": [{ "parallel": [[echo], [echo]] }] }).to_string();
    let started = run(data, &["start", "kitchen-sink", "-w", "idle", "--input", &input]);
    assert!(started.status.success(), "{}", said(&started));
    let verbs: [&[&str]; 5] = [
        &["describe", "idle"],
        &["list"],
        &["activity", "list", "idle"],
        &["top", "--once"],
        &["result", "idle", "--timeout", "4s"],
    ];
    for words in verbs {
        let told = said(&run(data, words));
        assert!(told.contains("none runs"), "{words:?}: {told}");
        assert!(!told.contains("slot"), "{words:?}: {told}");
    }
    let told = said(&run(data, &["list"]));
    let hint = format!(
        "and 1 more of idle: it waits for a worker, and none runs (`bosun --data {} worker run`)",
        data.display()
    );
    assert!(told.contains(&hint), "{told}");
}

/// An update to a run that is paused, or whose code has not begun, is not kept: the refusal says so, and what helps.
#[test]
fn an_update_that_cannot_be_taken_now_says_when_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let _worker = worker(&data);
    let steps = r#"{"steps": [{"wait_signal": {"name": "go"}}]}"#;
    for more in [&["-w", "waits"][..], &["-w", "later", "--start-delay", "1h"]] {
        let started = run(&data, &[&["start", "kitchen-sink", "--input", steps], more].concat());
        assert!(started.status.success(), "{}", said(&started));
    }
    assert!(run(&data, &["pause", "waits"]).status.success());
    for (id, helps) in
        [("waits", "resume waits` lets the run go on; send it again then"), ("later", "when the code has begun")]
    {
        let refused = run(&data, &["update", id, "anything"]);
        let told = said(&refused);
        assert_eq!(refused.status.code(), Some(1), "its code fits the history: {told}");
        assert!(told.contains("nothing was kept") && told.contains(helps) && !told.contains("deploy"), "{id}: {told}");
    }
}
