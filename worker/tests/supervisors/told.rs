//! What the shipped binary tells a person of a run, its cost, and what they typed wrong: exit codes, codes and words.
//!
//! Invariant: what is said is what happened, the same wherever it is asked for; what was typed wrong is answered with what is
//! right. What runs do is tested elsewhere.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

const HALF: &str = "\
kind: supervisor
preset: map-reduce
objective: Sum up the book
failure: { tries: 1 }
agents: [{ name: reader }]
script:
  - { on: plan, contains: letters, say: { tasks: [] } }
  - { on: plan, say: { tasks: [{ id: one, goal: One }, { id: two, goal: Two }] } }
  - { on: execute_worker, task: two, fail: the pages are torn }
  - { on: execute_worker, say: read }
  - { on: synthesize, say: One of two. }
";

/// A folder with the spec in it, where `bosun` keeps its data too.
struct UserFolder(tempfile::TempDir);

impl UserFolder {
    fn new() -> UserFolder {
        let folder = UserFolder(tempfile::tempdir().unwrap());
        folder.file("half.yaml", HALF);
        folder
    }
    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }
    fn bosun(&self, words: &[&str]) -> Output {
        let mut bosun = Command::new(env!("CARGO_BIN_EXE_bosun"));
        bosun.args(words).current_dir(self.0.path()).env("BOSUN_STORE", Path::new("data"));
        bosun.output().unwrap()
    }
    /// Exit code, and what was said.
    fn said(&self, words: &[&str]) -> (i32, String) {
        let output = self.bosun(words);
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        (output.status.code().unwrap_or(-1), text)
    }
    fn json(&self, words: &[&str]) -> Value {
        let output = self.bosun(&[words, &["-o", "json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{words:?}: {why}: {output:?}"))
    }
}

/// A run that is done in part says why, where programs look; one without a task says what to do.
#[test]
fn what_is_not_done_in_full_has_a_reason() {
    let folder = UserFolder::new();
    let report = folder.json(&["run", "half.yaml"])["result"].clone();
    assert_eq!((&report["status"], &report["error"]), (&json!("partial"), &Value::Null), "{report:#}");
    let task = json!({ "task_id": "two", "status": "failed", "why": "the pages are torn" });
    let reason =
        json!({ "code": "tasks_not_done", "message": "Task two is failed: the pages are torn", "tasks": [task] });
    assert_eq!(report["reason"], reason);
    let (code, said) = folder.said(&["run", "half.yaml", "objective=Sum up the letters"]);
    assert_eq!(code, 10, "{said}");
    assert!(
        said.contains("the planner planned no task") && said.contains("planning: { on_empty: complete }"),
        "{said}"
    );
}

/// `cost` and `budget show` say the same, also of a run that asked no model.
#[test]
fn cost_is_what_the_budget_has_spent() {
    let folder = UserFolder::new();
    assert_eq!(folder.said(&["run", "half.yaml", "-w", "half"]).0, 0);
    let (cost, budget) = (folder.json(&["cost", "half"]), folder.json(&["budget", "show", "half"]));
    for key in ["calls", "tokens", "cost_micros"] {
        assert_eq!(cost[key], budget["budget"]["spent"][key], "{key}: {cost} {budget}");
    }
    assert_eq!((&cost["calls"], &cost["others"]["calls"], &cost["by_model"]), (&json!(4), &json!(4), &json!({})));
    let (_, said) = folder.said(&["cost", "half"]);
    assert!(said.contains("no model (scripts, programs)") && said.contains("in all 4 calls, 0 tokens"), "{said}");
    let order = r#"{"order_id": "o-1", "items": [{"sku": "tea", "quantity": 2}], "cents": 900}"#;
    assert_eq!(folder.said(&["execute", "order-saga", "-w", "o-1", "--input", order]).0, 0);
    assert_eq!(folder.said(&["cost", "o-1"]), (0, "no model was called: 0 calls, 0 tokens, $0.000000\n".to_owned()));
}

/// `goal=` is taken for an objective; what else people try is answered with the command that they meant, ready to be typed.
#[test]
fn an_objective_by_another_name_is_understood_or_answered_with_the_command() {
    let folder = UserFolder::new();
    let goal = folder.json(&["run", "half.yaml", "goal=Sum up the play"]);
    assert_eq!(goal["result"]["objective"], "Sum up the play", "{goal:#}");
    for (word, meant) in [
        ("input=Sum up the play", "bosun run half.yaml 'objective=Sum up the play'"),
        ("task=play", "bosun run half.yaml objective=play"),
        ("Sum up the play", "bosun run half.yaml 'objective=Sum up the play'"),
        ("planning.mode=todos", "bosun run half.yaml --override planning.mode=todos"),
    ] {
        let (code, said) = folder.said(&["run", "half.yaml", word]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("error[BOSUN0002]") && said.contains(meant), "{word}: {said}");
    }
    let (code, said) = folder.said(&["run", "half.yaml", "goal=a", "objective=b"]);
    assert!(code == 2 && said.contains("given twice"), "{said}");
}

/// A file that is not there has one code and one text, whoever wants it.
#[test]
fn a_missing_file_is_told_in_one_way() {
    let folder = UserFolder::new();
    assert_eq!(folder.said(&["run", "half.yaml", "-w", "half"]).0, 0);
    for words in [
        &["run", "no.yaml"][..],
        &["test", "no.yaml"],
        &["start", "order-saga", "--input", "@no.yaml"],
        &["plan", "revise", "half", "--tasks", "no.yaml", "--version", "1"],
    ] {
        let (code, said) = folder.said(words);
        assert_eq!(code, 2, "{words:?}: {said}");
        assert!(
            said.contains("error[BOSUN0048]: the file ") && said.contains("no.yaml cannot be read"),
            "{words:?}: {said}"
        );
    }
}

/// A slip in a list filter is an error with what was meant, and no empty list; of search attributes that runs have, none.
#[test]
fn an_unknown_attribute_of_a_filter_is_named() {
    let folder = UserFolder::new();
    assert_eq!(folder.said(&["run", "half.yaml", "--search-attribute", "Customer=acme"]).0, 0);
    for (verb, query, near) in [
        ("list", "WorkflowTyp = 'supervisor'", "`WorkflowType`"),
        ("count", "Custommer = 'acme'", "`Customer`"),
        ("list", "ORDER BY StartTim", "`StartTime`"),
    ] {
        let (code, said) = folder.said(&[verb, "--query", query]);
        assert_eq!(code, 2, "{said}");
        let told = said.contains(&format!("did you mean {near}?")) && said.contains("search attributes here: Customer");
        assert!(told && said.contains("ExecutionStatus"), "{said}");
    }
    assert_eq!(folder.json(&["count", "--query", "Customer = 'acme'"])["count"], 1);
    assert_eq!(folder.json(&["count", "--query", "Customer = 'other'"])["count"], 0);
}

/// What is wrong with a file is told with its place, as an editor opens it, and with what was meant.
#[test]
fn a_fault_in_a_file_is_told_with_line_and_column() {
    let folder = UserFolder::new();
    folder.file(
        "slip.yaml",
        "kind: supervisor\npreset: map-reduce\nobjective: o\nagents:\n  - name: reader\n    vai: scripted\n",
    );
    let (code, said) = folder.said(&["run", "slip.yaml"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("unknown key `vai` (did you mean `via`?)") && said.contains("at slip.yaml:6:5"), "{said}");
    folder.file("plan.yaml", "objective: o\ntasks:\n- { task_id: 7, sub_task_objective: a, capability: process,\n    parameters: { argvv: [ls] } }\n");
    let (_, said) = folder.said(&["run", "plan.yaml"]);
    assert!(said.contains("(did you mean `argv`?)") && said.contains("at plan.yaml:4:19"), "{said}");
    folder.file("scene.yaml", "scene: a slip\nworkflow: greet\nexpekt: {}\n");
    let (_, said) = folder.said(&["test", "scene.yaml"]);
    assert!(said.contains("(did you mean `expect`?)") && said.contains("at scene.yaml:3:1"), "{said}");
}

/// A backup goes into a directory of its own: one that holds something else is named, and nothing in it is touched.
#[test]
fn a_backup_does_not_move_in_with_what_is_no_store() {
    let folder = UserFolder::new();
    assert_eq!(folder.said(&["run", "half.yaml"]).0, 0);
    let notes = folder.0.path().join("notes");
    std::fs::create_dir(&notes).unwrap();
    folder.file("notes/diary.txt", "dear diary");
    let (code, said) = folder.said(&["store", "backup", "notes"]);
    assert!(code == 2 && said.contains("/notes") && said.contains("not empty"), "{code}: {said}");
    let left: Vec<_> = std::fs::read_dir(&notes).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["diary.txt"]);
    // An empty one is taken, and one that a backup was made in is not.
    std::fs::create_dir(folder.0.path().join("empty")).unwrap();
    assert_eq!(folder.said(&["store", "backup", "empty"]).0, 0);
    let (code, said) = folder.said(&["store", "backup", "empty"]);
    assert!(code == 2 && said.contains("holds a store already"), "{code}: {said}");
}
