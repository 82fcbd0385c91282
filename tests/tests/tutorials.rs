//! The two tutorials of the guide, followed literally from an empty folder with a checkout of Bosun beside it: every line of
//! their shell blocks, their program, and the output that they promise.
//!
//! Invariant: nothing is fetched, and what is not on the page is not done. One line is shortened in every run of the tests:
//! a program of its own has other profiles and paths than this workspace, so that `cargo build` compiles all of it again
//! (more than two CPU minutes). Its place is taken by `cargo metadata`, which proves that the manifest that the page has
//! made resolves, and by the same program, built as an example of the worker. `cargo full` builds it as the page says.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use bosun_tests::harness::process::{Program, WorkerProcess, example};

use crate::tidy::workspace;

const PATIENCE: Duration = Duration::from_secs(30);

/// A page of the guide, and the program that it shows.
struct Tutorial {
    page: &'static str,
    /// The example of this workspace with the same text.
    example: &'static str,
    source: &'static str,
    /// What `cargo new` makes.
    name: &'static str,
}

const FIRST_STEPS: Tutorial = Tutorial {
    page: include_str!("../../worker/guide/first_steps.md"),
    example: "first_steps",
    source: include_str!("../../worker/examples/first_steps.rs"),
    name: "tea",
};

const FROM_TEMPORAL: Tutorial = Tutorial {
    page: include_str!("../../worker/guide/from_temporal.md"),
    example: "from_temporal",
    source: include_str!("../../worker/examples/from_temporal.rs"),
    name: "pay",
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Built {
    AsThePageSays,
    AsAnExample,
}

/// Somebody who reads the page and types what it says.
struct Reader {
    tutorial: Tutorial,
    built: Built,
    /// The folder with the checkout beside it, and the one that `cd` leads to.
    home: PathBuf,
    folder: PathBuf,
    path: OsString,
    worker: Option<WorkerProcess>,
    /// What the commands have printed.
    said: String,
}

impl Reader {
    fn follow(tutorial: Tutorial, built: Built) {
        let home = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(workspace(), home.path().join("bosun")).unwrap();
        let path = std::env::var_os("PATH").unwrap();
        let (at, folder) = (home.path().to_owned(), home.path().to_owned());
        let mut reader = Reader { tutorial, built, home: at, folder, path, worker: None, said: String::new() };
        for (kind, text) in blocks(reader.tutorial.page) {
            match kind {
                "sh" => text.lines().for_each(|line| reader.types(line)),
                "rust,no_run" => reader.saves("src/main.rs", text),
                "rust" if text.contains("#[test]") => reader.adds("src/main.rs", text),
                "toml" => reader.adds("Cargo.toml", text),
                "text" => text.lines().for_each(|line| reader.sees(line)),
                _ => {}
            }
        }
        assert!(reader.worker.is_some(), "the page starts a worker");
    }

    fn types(&mut self, line: &str) {
        if let Some(folder) = line.strip_prefix("cd ") {
            self.folder = self.folder.join(folder);
            // The versions of this checkout: nothing is fetched.
            std::fs::copy(workspace().join("Cargo.lock"), self.folder.join("Cargo.lock")).unwrap();
            return;
        }
        if line == r#"export PATH="$PWD/target/debug:$PATH""# {
            let mut paths = vec![self.folder.join("target/debug")];
            paths.extend(std::env::split_paths(&self.path));
            self.path = std::env::join_paths(paths).unwrap();
            return;
        }
        if line == format!("{} worker run", self.tutorial.name) {
            let folder = ["env".into(), "-C".into(), self.folder.clone().into()];
            let program = Program::new(self.program(), &["worker", "run"]).wrapped(folder.into());
            self.worker = Some(WorkerProcess::start(&program, &self.folder.join(".bosun"), PATIENCE).unwrap().0);
            return;
        }
        if line == format!("pkill -9 -x {}", self.tutorial.name) {
            self.worker.take().expect("it runs").kill().unwrap();
            return;
        }
        if line == "cargo build" && self.built == Built::AsAnExample {
            // Of this platform: nobody has fetched what others need.
            let host = "$(rustc -vV | sed -n 's/^host: //p')";
            self.runs(&format!("cargo metadata --format-version 1 --filter-platform \"{host}\" >metadata.json"));
            let made = std::fs::read_to_string(self.folder.join("metadata.json")).unwrap();
            assert!(made.contains("bosun-engine") && made.contains("bosun-worker"), "{made}");
            std::fs::create_dir_all(self.program().parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(example(self.tutorial.example).unwrap(), self.program()).unwrap();
            return;
        }
        // The documentation's own tests run what stands there.
        if line == "cargo test" && self.built == Built::AsAnExample {
            return;
        }
        self.runs(line);
    }

    /// The program where `cargo build` puts it.
    fn program(&self) -> PathBuf {
        self.folder.join("target/debug").join(self.tutorial.name)
    }

    fn runs(&mut self, line: &str) {
        let mut shell = Command::new("sh");
        shell.args(["-ec", line]).current_dir(&self.folder).env("PATH", &self.path).env("CARGO_NET_OFFLINE", "true");
        // What the tests were built with is not what the reader builds with.
        shell.env_remove("CARGO_TARGET_DIR");
        for (name, _) in std::env::vars_os() {
            let known = name.to_string_lossy();
            if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "BOSUN_"]
                .iter()
                .any(|of| known.starts_with(of))
            {
                shell.env_remove(&name);
            }
        }
        let output = shell.output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{line}: {said}");
        self.said.push_str(&said);
    }

    fn saves(&self, file: &str, text: &str) {
        if self.home == self.folder {
            return;
        }
        std::fs::write(self.folder.join(file), text).unwrap();
    }

    /// What stands there is put at the end of a file; lines that a page does not show are for its own tests.
    fn adds(&self, file: &str, text: &str) {
        let path = self.folder.join(file);
        let shown = text.lines().filter(|line| !line.starts_with("# ") && *line != "#");
        let before = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, [before.lines().collect::<Vec<_>>(), shown.collect()].concat().join("\n") + "\n").unwrap();
    }

    /// Lines of a promised output follow each other in what was printed, with other lines between them.
    fn sees(&mut self, line: &str) {
        let at = self.said.find(line);
        let at = at.unwrap_or_else(|| panic!("the page promises {line:?}; the commands have printed:\n{}", self.said));
        self.said.drain(..at + line.len());
    }
}

/// The fenced blocks of a page, each with its kind.
fn blocks(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'))
}

fn shows_what_is_tested(tutorial: &Tutorial) {
    let shown = tutorial.source.split_once("// guide\n").expect("it begins there").1;
    assert!(tutorial.page.contains(shown), "the page shows the program that is tested");
}

#[test]
fn the_first_steps_can_be_taken_from_an_empty_folder() {
    shows_what_is_tested(&FIRST_STEPS);
    Reader::follow(FIRST_STEPS, Built::AsAnExample);
}

#[test]
fn the_way_from_temporal_can_be_taken_from_an_empty_folder() {
    shows_what_is_tested(&FROM_TEMPORAL);
    Reader::follow(FROM_TEMPORAL, Built::AsAnExample);
}

/// Nothing is shortened. Both programs have the same dependencies; each is built anew.
#[test]
#[ignore = "builds the whole worker twice: minutes"]
fn the_tutorials_can_be_followed_with_their_own_builds() {
    Reader::follow(FIRST_STEPS, Built::AsThePageSays);
    Reader::follow(FROM_TEMPORAL, Built::AsThePageSays);
}
