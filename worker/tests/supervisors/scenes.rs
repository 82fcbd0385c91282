//! The scenes of `fixtures/scenes`, and `bosun test` as people use it, by the binary that ships.
//!
//! Invariant: every check looks at what a person or a build server sees: exit codes, output and files. What a scene means is
//! tested in `worker/src/scene`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/scenes")
}

/// `bosun test`, which keeps what fails in a directory of its own.
fn bosun(keep: &Path) -> Command {
    let mut bosun = Command::new(env!("CARGO_BIN_EXE_bosun"));
    bosun.args(["test", "--keep"]).arg(keep);
    bosun
}

fn run(folder: &TempDir, words: &[&str]) -> Output {
    bosun(&folder.path().join("kept")).args(words).current_dir(folder.path()).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn said(output: &Output) -> String {
    format!("{}{}", out(output), String::from_utf8_lossy(&output.stderr))
}

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

const STEPS: &str = "\
scene: two steps   # one sentence
spec: { kind: supervisor, preset: flow-plan-and-execute, objective: Move, agents: [{ name: ann }] }
world:
  - { on: plan, say: { tasks: [{ id: dump, goal: out }, { id: load, goal: in, deps: [dump] }] } }
  # a slow one
  - { on: execute_worker, task: dump, after: 2s, say: 300 rows }
  - { on: execute_worker, task: load, after: 3s, say: they are back }
  - { on: synthesize, say: It has moved. }
faults: [{ at: 1s, do: kill }]
expect:
  outcome: completed
  # the person's words
  result: It has moved.
  report: { tasks: { dump: completed, load: { status: completed, attempts: 1 } } }   # both
  calls: [{ execute_worker: any, times: 2 }, { plan: any, times: 1 }]
  at: { 1s: { query: plan, path: tasks.dump.status, equals: running } }
  prompts: [{ to: execute_worker, task: load, contains: 300 rows }]
  takes: 5s
";

/// All scenes pass, each in all of its ways; and a scene that expects something else does not.
#[test]
fn the_scenes_pass_by_the_shipped_binary() {
    let keep = tempfile::tempdir().unwrap();
    let all = bosun(keep.path()).arg(fixtures()).output().unwrap();
    assert!(all.status.success(), "{}", said(&all));
    let good = std::fs::read_to_string(fixtures().join("plan-and-execute-step-by-step.yaml")).unwrap();
    let folder = folder(&[("bad.yaml", &good.replace("takes: 5s", "takes: 6s"))]);
    let failed = run(&folder, &["bad.yaml"]);
    let told = out(&failed);
    assert_eq!(failed.status.code(), Some(1), "{told}");
    for part in ["FAIL", "expect.takes", "6s", "5s", "bosun replay debug "] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// `--update` writes what was seen in place of what was expected, and nothing else: comments, order and words stay, and what
/// it wrote is green.
#[test]
fn update_rewrites_expectations_and_nothing_else() {
    let wrong = STEPS
        .replace("outcome: completed", "outcome: failed")
        .replace("result: It has moved.", "result: \"It has: stayed\"")
        .replace("dump: completed", "dump: failed")
        .replace("attempts: 1", "attempts: 7")
        .replace("execute_worker: any, times: 2", "execute_worker: any, times: 3")
        .replace("equals: running", "equals: pending")
        .replace("takes: 5s", "takes: 1h");
    let folder = folder(&[("steps.yaml", &wrong), ("good.yaml", STEPS)]);
    assert_eq!(run(&folder, &["steps.yaml"]).status.code(), Some(1));
    let updated = run(&folder, &[".", "--update"]);
    assert!(updated.status.success(), "{}", said(&updated));
    assert!(said(&updated).contains("7 expectations are what was seen now"), "{}", said(&updated));
    assert_eq!(std::fs::read_to_string(folder.path().join("steps.yaml")).unwrap(), STEPS);
    assert_eq!(std::fs::read_to_string(folder.path().join("good.yaml")).unwrap(), STEPS);
    assert!(run(&folder, &["."]).status.success());
    // What is expected by a word is left to a person.
    let word = STEPS.replace("contains: 300 rows", "contains: 400 rows");
    std::fs::write(folder.path().join("steps.yaml"), &word).unwrap();
    assert_eq!(run(&folder, &["steps.yaml", "--update"]).status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(folder.path().join("steps.yaml")).unwrap(), word);
}

/// `--disk`: the same scenes on directories, killed and started again after every commit; without a place for them it fails.
#[test]
fn scenes_are_played_on_directories_too() {
    let folder = folder(&[("steps.yaml", STEPS)]);
    let disk = run(&folder, &["steps.yaml", "--disk", "-o", "json"]);
    assert!(disk.status.success(), "{}", said(&disk));
    let told: Value = serde_json::from_slice(&disk.stdout).unwrap();
    let scene = &told["scenes"][0];
    assert!(scene["crashes"].as_u64() > Some(5), "{told:#}");
    assert_eq!(
        scene["crashes"],
        serde_json::from_slice::<Value>(&run(&folder, &["steps.yaml", "-o", "json"]).stdout).unwrap()["scenes"][0]["crashes"]
    );
    let nowhere = |words: &[&str]| {
        let mut bosun = bosun(folder.path());
        bosun.args(words).current_dir(folder.path()).env("TMPDIR", folder.path().join("steps.yaml/nowhere"));
        bosun.output().unwrap()
    };
    assert!(nowhere(&["steps.yaml"]).status.success(), "in memory nothing is written");
    let failed = nowhere(&["steps.yaml", "--disk"]);
    assert_eq!(failed.status.code(), Some(1), "{}", said(&failed));
    assert!(out(&failed).contains("Not a directory"), "{}", said(&failed));
}

/// Files that are no scenes are told by name and place, with exit code 2; the others are played nevertheless.
#[test]
fn bad_files_are_told_by_name_and_place() {
    let key = STEPS.replace("world:", "worlds:");
    let nothing = STEPS.split("expect:").next().unwrap().to_owned();
    let agent = STEPS.replace("agents:", "agent:");
    let files = [
        ("good.yaml", STEPS),
        ("key.yaml", &key),
        ("nothing.yaml", &nothing),
        ("agent.yaml", &agent),
        ("yaml.yaml", "scene: [\n"),
        ("empty/notes.txt", "none"),
    ];
    let folder = folder(&files);
    let all = run(&folder, &[".", "-o", "json"]);
    assert_eq!(all.status.code(), Some(2), "{}", said(&all));
    let told: Value = serde_json::from_slice(&all.stdout).unwrap();
    assert_eq!((&told["passed"], &told["bad"]), (&1.into(), &4.into()), "{told:#}");
    let bad = |name: &str| {
        let scenes = told["scenes"].as_array().unwrap();
        let scene = scenes.iter().find(|scene| scene["file"].as_str().is_some_and(|file| file.ends_with(name)));
        scene.unwrap_or_else(|| panic!("{name}: {told:#}"))["error"].clone()
    };
    assert_eq!(bad("key.yaml")["at"], "worlds");
    assert!(bad("key.yaml")["problem"].as_str().unwrap().contains("did you mean `world`?"), "{told:#}");
    assert_eq!(bad("nothing.yaml")["at"], "expect");
    assert_eq!(bad("agent.yaml")["at"], "spec.agent");
    assert!(bad("agent.yaml")["problem"].as_str().unwrap().contains("did you mean `agents`?"), "{told:#}");
    assert_eq!(bad("yaml.yaml")["at"], "the document");
    let text = run(&folder, &["key.yaml"]);
    for part in ["BAD", "key.yaml", "did you mean `world`?", "1 cannot be read"] {
        assert!(out(&text).contains(part), "{part}: {}", said(&text));
    }
    let absent = run(&folder, &["absent.yaml"]);
    assert_eq!(absent.status.code(), Some(2), "{}", said(&absent));
    assert!(said(&absent).contains("absent.yaml cannot be read"), "{}", said(&absent));
    let empty = run(&folder, &["empty"]);
    assert!(!empty.status.success() && said(&empty).contains("no scene fits"), "{}", said(&empty));
    assert!(said(&empty).contains("a test that tests nothing would always pass"), "{}", said(&empty));
    let only = run(&folder, &["good.yaml", "--only", "three steps"]);
    assert!(!only.status.success() && said(&only).contains("no scene fits"), "{}", said(&only));
}

/// What build servers read: one element a scene, all of them closed, everything escaped.
#[test]
fn junit_is_well_formed() {
    let wild = STEPS.replace("scene: two steps", "scene: \"<two> & 'steps'\"");
    let wrong = wild.replace("result: It has moved.", "result: \"<it> & stays\"");
    let folder = folder(&[("a.yaml", &wild), ("b.yaml", &wrong), ("c.yaml", "scene: x\nspec: absent.yaml\n")]);
    let junit = run(&folder, &[".", "-o", "junit"]);
    assert_eq!(junit.status.code(), Some(2));
    let text = out(&junit);
    let elements = elements(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    let count = |name: &str| elements.iter().filter(|one| *one == name).count();
    assert_eq!((count("testsuites"), count("testsuite"), count("testcase")), (1, 1, 3), "{text}");
    assert_eq!((count("failure"), count("error")), (1, 1), "{text}");
    assert!(text.contains(r#"tests="3" failures="1" errors="1""#), "{text}");
    assert!(text.contains("&lt;it&gt; &amp; stays"), "{text}");
}

/// The names of the elements of an XML document, or what is not well-formed about it.
fn elements(text: &str) -> Result<Vec<String>, String> {
    let body = text.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>").ok_or("no declaration")?;
    let (mut open, mut names): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for piece in body.split('<').skip(1) {
        let (tag, content) = piece.split_once('>').ok_or_else(|| format!("<{piece} is not closed"))?;
        if content.contains('>') || tag.contains('\'') && !tag.contains('"') {
            return Err(format!("{piece} is not escaped"));
        }
        let bare = |part: &str| {
            part.split('&').skip(1).any(|rest| rest.split_once(';').is_none_or(|(name, _)| name.len() >= 7))
        };
        if bare(content) || bare(tag) {
            return Err(format!("a bare & in {piece}"));
        }
        if let Some(name) = tag.strip_prefix('/') {
            let last = open.pop();
            if last.as_deref() != Some(name) {
                return Err(format!("</{name}> closes {last:?}"));
            }
            continue;
        }
        let name = tag.split([' ', '/']).next().unwrap_or_default().to_owned();
        if tag.matches('"').count() % 2 != 0 {
            return Err(format!("an open quote in <{tag}>"));
        }
        if !tag.ends_with('/') {
            open.push(name.clone());
        }
        names.push(name);
    }
    if open.is_empty() { Ok(names) } else { Err(format!("{open:?} are not closed")) }
}

/// Changes of presets that scenes notice, of so many.
#[track_caller]
fn noticed(kind: &str, count: usize, seed: u64) -> (usize, usize, String) {
    let keep = tempfile::tempdir().unwrap();
    let (count, seed) = (count.to_string(), seed.to_string());
    let words = ["--mutate", &count, "--mutants", kind, "--seed", &seed, "-o", "json"];
    let output = bosun(keep.path()).arg(fixtures()).args(words).output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {}", said(&output)));
    let number = |key: &str| usize::try_from(told[key].as_u64().unwrap()).unwrap();
    let unnoticed = told["mutants"].as_array().unwrap().iter().filter(|one| one["noticed_by"].is_null());
    let text = unnoticed.map(|one| format!("{} {}: {} -> {}", one["of"], one["at"], one["from"], one["to"]));
    assert_eq!(output.status.code(), Some(i32::from(number("unnoticed") > 0)));
    (number("noticed"), number("noticed") + number("unnoticed"), text.collect::<Vec<_>>().join("\n"))
}

/// What is changed turns scenes red: 27 of 30 at least.
#[track_caller]
fn are_noticed(kind: &str, count: usize, seed: u64) {
    let (noticed, made, unnoticed) = noticed(kind, count, seed);
    assert_eq!(made, count, "{kind}");
    assert!(noticed * 30 >= made * 27, "{kind}, seed {seed}: {noticed} of {made}\n{unnoticed}");
}

/// A sample; `cargo full` has more.
#[test]
fn scenes_notice_what_is_changed() {
    are_noticed("presets", 30, 1);
}

#[test]
#[ignore = "minutes: cargo full"]
fn scenes_notice_what_is_changed_everywhere() {
    for seed in 2..7 {
        are_noticed("presets", 30, seed);
    }
    are_noticed("expectations", 100, 1);
}

/// What a scene samples in CI, for the sake of its time: each crash, and as many orders as of other scenes.
#[test]
#[ignore = "minutes: cargo full"]
fn scenes_hold_in_full() {
    let folder = folder(&[]);
    let played = bosun(folder.path()).arg("--full").arg(fixtures()).output().unwrap();
    assert!(played.status.success(), "{}", said(&played));
}

/// A scene that fails as it is would notice everything: nothing is counted then.
#[test]
fn a_red_scene_notices_nothing() {
    let folder = folder(&[("red.yaml", &STEPS.replace("takes: 5s", "takes: 6s"))]);
    let refused = run(&folder, &["red.yaml", "--mutate", "3"]);
    assert!(!refused.status.success());
    assert!(said(&refused).contains("1 scenes fail as they are"), "{}", said(&refused));
}
