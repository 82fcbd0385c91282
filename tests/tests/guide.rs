//! The guide, typed literally: the commands of these chapters in a folder of its own, their named files, and the output that a
//! `text` block promises. The two tutorials are in `tutorials`, the section on notifications in `notifications::verbs`, and that
//! every other line is a command of the program at all in the worker's own tests.
//!
//! Invariant: what is not on the page is not done, but for a checkout's `fixtures` in the folder, and a worker where the chapter
//! has one. Of these chapters what waits for a terminal or for another program is named here (`LEFT_OUT`, and the sections of
//! operating). What stands below a `$` line is not compared: it only says whether an error is meant.

use std::path::{Path, PathBuf};
use std::process::Command;

use bosun_tests::harness::binary::{run, said};
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess, bosun};
use bosun_worker::capability::model::Wire;
use bosun_worker::capability::model::mock::MockProvider;

use crate::tidy::workspace;

#[path = "../../worker/tests/models/plays.rs"]
mod plays;

/// What begins so is not typed: it needs a terminal, a browser, or stays.
const LEFT_OUT: [&str; 6] = [
    "bosun replay debug",
    "bosun list --data ./data --watch",
    "bosun replay explain",
    "bosun demo",
    "bosun replay record",
    "bosun worker run",
];

/// A fenced block: the heading that it stands under, its kind, and its text.
struct Block<'p> {
    section: &'p str,
    kind: &'p str,
    text: &'p str,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let (mut found, mut section) = (Vec::new(), "");
    for (nth, part) in page.split("\n```").enumerate() {
        if nth % 2 == 1 {
            let (kind, text) = part.split_once('\n').unwrap_or((part, ""));
            found.push(Block { section, kind, text });
        } else if let Some(heading) = part.lines().rfind(|line| line.starts_with('#')) {
            section = heading.trim_start_matches('#').trim();
        }
    }
    found
}

/// The id of an approval that was printed last: a person copies it.
fn approval_in(said: &str) -> Option<&str> {
    said.split([' ', '\n', '`']).rfind(|word| word.len() > 40 && word.contains("/ap-"))
}

/// Somebody who reads, and types what is there.
struct Reader {
    _home: tempfile::TempDir,
    folder: PathBuf,
    path: std::ffi::OsString,
    /// What else the shell knows.
    variables: Vec<(&'static str, String)>,
    said: String,
    _worker: Option<WorkerProcess>,
}

impl Reader {
    fn new() -> Reader {
        let home = tempfile::tempdir().unwrap();
        let (folder, programs) = (home.path().join("folder"), home.path().join("bin"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::create_dir(&programs).unwrap();
        std::os::unix::fs::symlink(workspace().join("fixtures"), folder.join("fixtures")).unwrap();
        std::os::unix::fs::symlink(bosun().unwrap(), programs.join("bosun")).unwrap();
        let mut paths = vec![programs];
        paths.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
        let path = std::env::join_paths(paths).unwrap();
        Reader { _home: home, folder, path, variables: Vec::new(), said: String::new(), _worker: None }
    }

    /// A worker on the directory of the chapter, as its first line starts one.
    fn with_worker(mut self) -> Reader {
        let wrapper = ["env".into(), "-C".into(), self.folder.clone().into()];
        let program = Program::bosun_worker().unwrap().wrapped(wrapper.into());
        self._worker = Some(WorkerProcess::start(&program, &self.folder.join("data"), READY_MAX).unwrap().0);
        self
    }

    fn reads(&mut self, blocks: &[Block<'_>]) {
        for Block { section, kind, text } in blocks {
            match *kind {
                "yaml" => self.saves(text),
                "sh" | "console" => self.types_all(section, text),
                "text" => text.lines().for_each(|line| self.sees(section, line)),
                _ => {}
            }
        }
    }

    /// A file says its name in its first line.
    fn saves(&self, text: &str) {
        let name = text.lines().next().and_then(|line| line.strip_prefix("# ")).filter(|name| name.ends_with(".yaml"));
        if let Some(name) = name {
            std::fs::write(self.folder.join(name), text).unwrap();
        }
    }

    /// Where lines begin with `$`, the others are what is printed: an error there is one that is meant.
    fn types_all(&mut self, section: &str, text: &str) {
        let prompted = text.lines().any(|line| line.starts_with("$ "));
        let lines: Vec<&str> = text.lines().collect();
        for (nth, line) in lines.iter().enumerate() {
            let Some(line) = (if prompted { line.strip_prefix("$ ") } else { Some(*line) }) else { continue };
            let is_left_out = LEFT_OUT.iter().any(|start| line.starts_with(start));
            if is_left_out || line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let mut printed = lines[nth + 1..].iter().take_while(|line| !line.starts_with("$ "));
            // `diff` says with its code that there is a difference.
            let fails = ["error[", "FAIL", "first difference"];
            let fails = prompted && printed.any(|line| fails.iter().any(|word| line.starts_with(word)));
            if line.starts_with("bosun activity retry-now") {
                self.waits_for_a_retry(section);
            }
            match approval_in(&self.said).filter(|_| line.contains(" ID ")) {
                Some(id) => self.types(section, &line.replace(" ID ", &format!(" {id} ")), !fails),
                None => self.types(section, line, !fails),
            }
        }
    }

    /// People read more slowly than an attempt fails; a test does not.
    fn waits_for_a_retry(&self, section: &str) {
        let began = std::time::Instant::now();
        let line = ["activity", "list", "fetch", "-o", "json"];
        while !said(&run(&self.folder.join("data"), &line)).contains("BackingOff") {
            assert!(began.elapsed() < READY_MAX, "{section}: no attempt has failed");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    fn types(&mut self, section: &str, line: &str, succeeds: bool) {
        let mut shell = Command::new("sh");
        shell.args(["-ec", line]).current_dir(&self.folder).env("PATH", &self.path);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("BOSUN_") {
                shell.env_remove(&name);
            }
        }
        shell.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let output = shell.output().unwrap();
        assert_eq!(output.status.success(), succeeds, "{section}: {line}\n{}", said(&output));
        self.said.push_str(&said(&output));
    }

    /// It was printed; pictures are no output.
    fn sees(&self, section: &str, line: &str) {
        let is_there = line.contains("──") || self.said.contains(line.trim());
        assert!(is_there, "{section} promises {line:?}; the commands have printed:\n{}", self.said);
    }
}

/// Every block of a chapter.
#[track_caller]
fn follow(page: &str, reader: Reader) {
    let blocks = blocks(page);
    assert!(blocks.iter().any(|block| ["sh", "console"].contains(&block.kind)), "there is something to type");
    let mut reader = reader;
    reader.reads(&blocks);
}

#[test]
fn concepts_can_be_followed() {
    follow(include_str!("../../worker/guide/concepts.md"), Reader::new());
}

#[test]
fn testing_can_be_followed() {
    follow(include_str!("../../worker/guide/testing.md"), Reader::new());
}

/// E23: what a filter is said to find it finds.
#[test]
fn filters_can_be_followed() {
    let page = include_str!("../../worker/guide/filters.md");
    let mut reader = Reader::new();
    reader.reads(&blocks(page));
    let data = reader.folder.join("data");
    let count = |query: &str| said(&run(&data, &["count", "--query", query])).trim().to_owned();
    for (query, found) in [
        ("Due = '2026-12-01T08:00:00Z'", "1"),
        ("Due > '2026-12-01T07:00:00Z' AND Due < '2026-12-02'", "1"),
        ("Due > '2026-12-01T08:30:00Z'", "0"),
        ("Shop = '7'", "0"),
        ("Shop != '7'", "0"),
        ("NOT Shop = 7", "1"),
        ("Tags IN ('large', 'small')", "1"),
        ("Tags != 'large'", "0"),
        ("Tags IS NULL", "1"),
    ] {
        assert_eq!(count(query), found, "{query}");
    }
}

#[test]
fn the_way_from_agent_frameworks_can_be_followed() {
    follow(include_str!("../../worker/guide/from_agent_frameworks.md"), Reader::new());
}

#[test]
fn replay_can_be_followed() {
    follow(include_str!("../../worker/guide/replay.md"), Reader::new());
}

/// The sections whose commands are for the machine that reads; the others are of another machine (systemd, Prometheus, keys).
#[test]
fn operating_can_be_followed() {
    const SECTIONS: [&str; 8] = [
        "Operating a worker",
        "Looking around",
        "Reset",
        "Task queues: limits, priority, fairness",
        "Many runs at once",
        "A step that waits for its next attempt",
        "An activity without a workflow",
        "Schedules",
    ];
    let mut blocks = blocks(include_str!("../../worker/guide/operating.md"));
    blocks.retain(|block| SECTIONS.contains(&block.section));
    let sections: std::collections::BTreeSet<&str> = blocks.iter().map(|block| block.section).collect();
    assert_eq!(sections.len(), SECTIONS.len(), "{sections:?}");
    Reader::new().with_worker().reads(&blocks);
}

/// A run with a person in it, and a scene that tests a supervisor. The other blocks of the chapter name verbs.
#[test]
fn supervisors_can_be_followed() {
    const SECTIONS: [&str; 2] = ["One run, with a person in it", "Testing a supervisor: scenes"];
    let mut blocks = blocks(include_str!("../../worker/guide/supervisors.md"));
    blocks.retain(|block| SECTIONS.contains(&block.section));
    assert_eq!(blocks.len(), 5, "{:?}", blocks.iter().map(|block| block.kind).collect::<Vec<_>>());
    Reader::new().reads(&blocks);
}

/// The three ways to play a spec. Its addresses are those of a model that is here and plays every part.
#[tokio::test(flavor = "multi_thread")]
async fn models_can_be_followed() {
    const LOCAL: &str = "http://localhost:11434/v1";
    let model = MockProvider::start(plays::play).await.unwrap();
    let page = include_str!("../../worker/guide/models.md");
    let block = blocks(page).into_iter().find(|block| block.kind == "console").unwrap();
    let address = |wire| model.base_url(wire);
    let text = block.text.replace(LOCAL, &address(Wire::OpenAi));
    assert!(block.text.contains(LOCAL) && text.lines().count() == 3, "{text}");
    let mut asked = Vec::new();
    for (nth, line) in text.lines().enumerate() {
        let mut reader = Reader::new();
        reader.variables = vec![("ANTHROPIC_BASE_URL", address(Wire::Anthropic))];
        let line = line.to_owned();
        let section = block.section.to_owned();
        let reader = tokio::task::spawn_blocking(move || {
            reader.types(&section, &line, true);
            reader
        });
        let said = reader.await.unwrap().said;
        assert!(said.contains("completed"), "line {nth}: {said}");
        asked.push(model.count());
    }
    assert!(asked[0] == 0 && asked[0] < asked[1] && asked[1] < asked[2], "scripted, and two models: {asked:?}");
}

/// What is shown of `bosun.toml` is a configuration.
#[test]
fn the_files_of_the_guide_are_what_they_are_said_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for block in blocks(include_str!("../../worker/guide/operating.md")).iter().filter(|block| block.kind == "toml") {
        let path = dir.path().join("bosun.toml");
        std::fs::write(&path, block.text).unwrap();
        let output = run(Path::new(dir.path()), &["config", "validate", "--config", path.to_str().unwrap()]);
        assert!(output.status.success(), "{}: {}", block.section, said(&output));
        seen += 1;
    }
    assert!(seen >= 4, "{seen} files");
}
