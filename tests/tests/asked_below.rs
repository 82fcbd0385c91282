//! A run two levels down asks for an approval, as a person at a terminal has it: shown once, at the first run; answered
//! there or by its id; over `kill -9`; and whoever answers otherwise is told what became of it.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::supervisor_cli::{PATIENCE, Runner, command, run, said, until_pending};

/// The first run, the one below it that asks in the test, and one between them.
fn spec() -> Value {
    let level = |name: &str, below: Value, plan: Value| {
        json!({
            "kind": "supervisor", "preset": "shannon-dag", "name": name, "objective": name,
            "agents": [{ "name": "worker" }, below],
            "script": [{ "on": "plan", "say": { "tasks": plan } }, { "on": "execute_worker", "say": "done" },
                { "on": "synthesize", "say": format!("{name} is done") }],
        })
    };
    let below = |spec: Value| json!({ "name": "below", "via": { "supervisor": { "spec": spec } } });
    let ask =
        json!([{ "id": "send", "agent": "worker", "goal": "Send it", "action": "publish", "requires_approval": true }]);
    let pass = json!([{ "id": "pass", "agent": "below", "goal": "Pass it on" }, { "id": "file", "agent": "worker", "goal": "File it" }]);
    let house = level("house", json!({ "name": "spare" }), ask);
    level("letter", below(level("press", below(house), pass.clone())), pass)
}

#[test]
fn what_is_asked_two_levels_down_is_answered_at_the_first_run() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("letter.yaml"));
    std::fs::write(&file, spec().to_string()).unwrap();
    let words = ["run", file.to_str().unwrap(), "-w", "letter"];
    let start = || Runner(command(&data, &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let mut runner = start();
    let id = until_pending(&data);

    let shown = || said(&run(&data, &["list"]));
    let told: Vec<String> = shown().lines().filter(|line| line.contains(&id)).map(str::to_owned).collect();
    assert!(told.len() == 1 && told[0].starts_with("letter waits for"), "{told:?}");
    let described = said(&run(&data, &["describe", "letter"]));
    assert!(
        described.contains("answer with    bosun --data ") && described.contains(&format!(" approval approve {id}\n")),
        "{described}"
    );

    runner.0.kill().unwrap();
    runner.0.wait().unwrap();
    let _runner = start();
    assert_eq!(until_pending(&data), id, "the same is asked still");
    refusals(&data, &id);
    moved(&data, &id);

    let answer = |approved: bool| {
        let input = json!({ "approval_id": id, "approved": approved }).to_string();
        run(&data, &["update", "letter", "respond_approval", "--input", &input])
    };
    let passed = answer(true);
    assert!(passed.status.success() && said(&passed).contains("passed_to"), "{}", said(&passed));
    let twice = answer(false);
    // On a busy machine all may be over by now.
    let refused = ["AnswerDuplicate: the approval is decided already", "is already Completed"];
    assert!(!twice.status.success() && refused.iter().any(|why| said(&twice).contains(why)), "{}", said(&twice));
    let result = said(&run(&data, &["result", "letter"]));
    assert!(result.contains("letter is done") && result.contains("2 of 2 tasks are done"), "{result}");
    let late = run(&data, &["approval", "reject", &id]);
    assert!(!late.status.success() && said(&late).contains("has approved it"), "{}", said(&late));
}

/// More time, and another word to people, are asked for at the first run too, and given by the one that asks.
fn moved(data: &Path, id: &str) {
    let shown =
        || -> Value { serde_json::from_slice(&run(data, &["approval", "show", id, "-o", "json"]).stdout).unwrap() };
    let update = |name: &str, more: Value| {
        let mut input = json!({ "approval_id": id, "reason": "she is away" });
        more.as_object().unwrap().iter().for_each(|(key, value)| input[key] = value.clone());
        run(data, &["update", "letter", name, "--input", &input.to_string()])
    };
    for (by, why) in [("0s", "not by 0s"), ("999ms", "not by 999ms"), ("8761h", "not by 8761h")] {
        let refused = update("extend_approval", json!({ "by": by }));
        assert!(!refused.status.success() && said(&refused).contains(why), "{}", said(&refused));
    }
    let before = shown();
    for (name, more) in [("extend_approval", json!({ "by": "1h" })), ("escalate_approval", json!({}))] {
        let passed = update(name, more);
        assert!(passed.status.success() && said(&passed).contains("passed_to"), "{}", said(&passed));
    }
    let begin = std::time::Instant::now();
    loop {
        let now = shown();
        if now["escalated"] == 1 {
            let micros = |told: &Value| {
                let told = told["deadline"].as_str().unwrap_or_else(|| panic!("no moment: {told}"));
                told.parse::<jiff::Timestamp>().unwrap().as_microsecond()
            };
            assert_eq!(micros(&now), micros(&before) + 3_600_000_000, "{now}");
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "it did not get there: {now}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// What is no answer changes nothing, and says what to do.
fn refusals(data: &Path, id: &str) {
    let no_question = said(&run(data, &["approval", "answer", id, "yes"]));
    assert!(
        no_question.contains("is an approval, not a question")
            && no_question.contains(&format!(" approval approve {id}`")),
        "{no_question}"
    );
    let stale = json!({ "approval_id": id, "approved": true, "shown": "what was there before" }).to_string();
    let stale = said(&run(data, &["update", "letter", "respond_approval", "--input", &stale]));
    assert!(stale.contains("AnswerStale") && stale.contains("look at the latest"), "{stale}");
    // Runs say who has approved something, and are believed: nobody else says it in their place.
    for name in ["plan_answer_v1", "waits_below_v1"] {
        let forged = run(data, &["signal", "letter", name, "--input", "{}"]);
        assert!(
            !forged.status.success() && said(&forged).contains("a signal of runs to each other"),
            "{}",
            said(&forged)
        );
    }
    assert_eq!(until_pending(data), id);
}
