//! `bosun test` by the shipped binary: what is told, when, and of which files.
//!
//! What scenes mean is tested beside them; here is only what somebody sees who runs them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use bosun_tests::harness::binary::said;
use bosun_tests::harness::process::bosun;

/// A scene of so many tasks at once, of which each ends when it likes.
fn scene(title: &str, tasks: usize, more: &str) -> String {
    let planned: Vec<String> = (0..tasks).map(|n| format!("{{ id: t{n}, goal: dig }}")).collect();
    format!(
        "scene: {title}\nspec: {{ preset: flow-coordinator, objective: Dig, dispatch: {{ max_concurrency: 20 }}, agents: [{{ name: digger }}] }}\n\
         world:\n  - {{ on: plan, say: {{ tasks: [{}] }} }}\n  - {{ on: execute_worker, say: done, after: 1s }}\n{more}",
        planned.join(", ")
    )
}

fn test(directory: &Path, words: &[&str]) -> Output {
    Command::new(bosun().unwrap()).arg("test").args(words).current_dir(directory).output().unwrap()
}

/// Who waits for many scenes sees each as it ends, and not all at the end of all.
#[test]
fn each_result_is_told_as_soon_as_it_is_known() {
    let home = tempfile::tempdir().unwrap();
    let expects = "expect: { outcome: completed }\n";
    std::fs::write(home.path().join("a.yaml"), scene("a short one", 1, expects)).unwrap();
    std::fs::write(home.path().join("b.yaml"), scene("a long one", 9, expects)).unwrap();
    let mut command = Command::new(bosun().unwrap());
    command.args(["test", ".", "--jobs", "1"]).current_dir(home.path());
    let began = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| (line.unwrap(), began.elapsed()));
    let (first, early) = lines.next().unwrap();
    let (second, late) = lines.next().unwrap();
    assert!(first.contains("a short one") && second.contains("a long one"), "{first}\n{second}");
    assert!(early * 2 < late, "the first is told after {early:?}, the second after {late:?}");
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
    let whole = test(home.path(), &[".", "-o", "json"]);
    let told: serde_json::Value = serde_json::from_slice(&whole.stdout).unwrap();
    assert_eq!((told["scenes"].as_array().unwrap().len(), told["passed"].as_u64()), (2, Some(2)));
    let xml = said(&test(home.path(), &[".", "-o", "junit"]));
    assert!(xml.starts_with("<?xml") && xml.trim_end().ends_with("</testsuites>"), "{xml}");
}

/// What did not happen is told beside what came out otherwise: the one is often why.
#[test]
fn what_nobody_did_is_told_beside_another_failure() {
    let home = tempfile::tempdir().unwrap();
    let more = "people:\n  - { when: { approval: dig }, do: approve, by: ann }\nexpect: { outcome: failed }\n";
    std::fs::write(home.path().join("a.yaml"), scene("dug", 1, more)).unwrap();
    let output = test(home.path(), &["a.yaml"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("expect.outcome") && text.contains("people[0] (ann: approve) happens"), "{text}");
}

/// What an expectation hides shows in the same command.
#[test]
fn one_update_is_enough() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("a.yaml");
    let more = "expect:\n  outcome: failed\n  report: { tasks: { t0: { status: failed, attempts: 7 }, t1: { status: skipped, attempts: 8 } } }\n";
    std::fs::write(&file, scene("dug", 2, more)).unwrap();
    let output = test(home.path(), &["a.yaml", "--update"]);
    assert!(output.status.success(), "{}", said(&output));
    let text = std::fs::read_to_string(&file).unwrap();
    let wanted = "t0: { status: completed, attempts: 1 }, t1: { status: completed, attempts: 1 }";
    assert!(text.contains("outcome: completed") && text.contains(wanted), "{text}");
}

/// A scene whose key is written in another way, or that has none, is an error; the spec of another one is not.
#[test]
fn a_file_that_is_no_scene_is_named() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(home.path().join(name), text).unwrap();
    let whole = scene("dug", 1, "expect: { outcome: completed }\n");
    write(
        "a.yaml",
        "scene: dug\nspec: digging.yaml\nworld:\n  - { on: plan, say: { tasks: [{ id: 1, goal: dig }] } }\n  - { on: execute_worker, say: done }\nexpect: { outcome: completed }\n",
    );
    write("digging.yaml", "{ kind: supervisor, preset: flow-coordinator, objective: Dig, agents: [{ name: digger }] }");
    let good = test(home.path(), &["."]);
    assert!(good.status.success() && said(&good).contains("1 scenes: 1 passed"), "{}", said(&good));
    write("b.yaml", &whole.replacen("scene:", "Scene:", 1));
    write("c.yaml", "expect: { outcome: completed }\n");
    let bad = test(home.path(), &["."]);
    let text = said(&bad);
    assert_eq!(bad.status.code(), Some(2), "{text}");
    assert!(text.contains("3 scenes: 1 passed, 0 failed, 2 cannot be read"), "{text}");
    assert!(text.contains("b.yaml") && text.contains("Scene") && text.contains("c.yaml"), "{text}");
}
