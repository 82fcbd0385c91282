//! The tidy test: the tree keeps the rules of LAYOUT.md, checked on its text.
//!
//! Invariant: every problem names file, line and rule, and all are listed at once. The checker reads text, not types: it
//! finds what people write by accident, not what somebody hides. Its own tests are small bad trees.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

mod rules;
pub(crate) mod source;

use source::Tree;

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    file: PathBuf,
    /// From 1; 0 is the file as a whole.
    line: usize,
    what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

/// Everything that is wrong with a tree.
fn problems(root: &Path) -> Vec<Problem> {
    let tree = Tree::read(root);
    let mut problems = Vec::new();
    rules::top_level(root, &mut problems);
    rules::arrows(root, &mut problems);
    rules::dead_files(&tree, &mut problems);
    rules::one_meaning(&tree, &mut problems);
    rules::tables(&tree, &mut problems);
    rules::shared_names(&tree, rules::SHARED_NAMES, &mut problems);
    for file in &tree.files {
        rules::module_doc(file, &mut problems);
        rules::sizes(file, &mut problems);
        rules::purity(file, &mut problems);
        rules::rooms(file, &mut problems);
        rules::families(file, &mut problems);
        rules::one_sled_file(file, &mut problems);
    }
    problems.sort();
    problems
}

pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a member of the workspace")
}

#[test]
fn the_tree_is_tidy() {
    let problems: Vec<String> = problems(workspace()).iter().map(ToString::to_string).collect();
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

/// A package with the features that it is built with, as cargo chooses them for `what`.
fn crates(what: &[&str]) -> BTreeSet<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--edges", "features,normal,build,dev", "--prefix", "none", "--format", "{p} {f}"]).args(what);
    let output = cargo.current_dir(workspace()).output().unwrap();
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let package = |line: &&str| line.split(' ').nth(1).is_some_and(|word| word.starts_with('v'));
    lines.lines().filter(package).map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

/// Cargo looks in each run whether the programs of the tests are those of the tree (`harness::process`). Where a
/// dependency had other features for the tests alone, it would build every crate above it a second time.
#[test]
fn the_programs_of_the_tests_are_built_from_the_same_crates_as_the_tests() {
    let (all, tests) = (crates(&["--workspace"]), crates(&["--package", "bosun-tests"]));
    assert!(tests.len() > 200, "cargo tree told of {} crates", tests.len());
    let other: Vec<&String> = tests.difference(&all).collect();
    assert!(
        other.is_empty(),
        "built a second time, and all that uses them; name what asks for more in tests/Cargo.toml: {other:#?}"
    );
}

/// A small tree that keeps every rule, changed by `files` (an empty text removes a file).
fn sample(files: &[(&str, &str)]) -> Vec<String> {
    let package = |name: &str, rest: &str| format!("[package]\nname = \"bosun-{name}\"\n{rest}");
    let mut tree: BTreeMap<String, String> = BTreeMap::new();
    for (name, dependencies) in [
        ("engine", "[dependencies]\nsled.workspace = true\n"),
        ("replay", "[dependencies]\nbosun-engine.workspace = true\n"),
        ("worker", "[dependencies]\nbosun-engine = { path = \"../engine\" }\nbosun-replay.workspace = true\n"),
        ("tests", "[dependencies]\nbosun-engine.workspace = true\nbosun-worker.workspace = true\n"),
    ] {
        tree.insert(format!("{name}/Cargo.toml"), package(name, dependencies));
        tree.insert(format!("{name}/src/lib.rs"), format!("//! {name}\n"));
    }
    for (path, text) in [
        ("Cargo.toml", "[workspace]\n"),
        ("README.md", "# Bosun\n"),
        ("fixtures/README.md", "# Fixtures\n"),
        ("engine/src/lib.rs", "//! Engine.\nmod log;\npub mod machine;\n"),
        ("engine/src/log/mod.rs", "//! Log.\nmod sled;\npub use self::sled::Log;\n"),
        ("engine/src/log/sled.rs", "//! The sled log.\nuse sled::Db;\npub struct Log(sled::Tree, Db);\n"),
        ("engine/src/machine.rs", "//! Pure. Not std::fs.\nmod timer;\n"),
        ("engine/src/machine/timer.rs", "//! Timer.\n// tokio is only named here.\nconst A: &str = \"HashMap\";\n"),
    ] {
        tree.insert(path.into(), text.into());
    }
    for (path, text) in files {
        tree.insert((*path).into(), (*text).into());
    }
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in tree.iter().filter(|(_, text)| !text.is_empty()) {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    problems(dir.path()).iter().map(ToString::to_string).collect()
}

#[track_caller]
fn check(files: &[(&str, &str)], wanted: &[&str]) {
    assert_eq!(sample(files), wanted);
}

#[test]
fn a_tidy_tree_has_no_problems() {
    check(&[], &[]);
}

#[test]
fn the_top_level_is_exactly_what_was_agreed() {
    check(
        &[("notes.md", "diary"), ("README.md", ""), (".ci/run", "ok"), ("target/x", "ok")],
        &["README.md:0: it is missing at the top level", "notes.md:0: it does not belong at the top level"],
    );
}

#[test]
fn arrows_between_crates_never_turn_back() {
    check(
        &[
            (
                "engine/Cargo.toml",
                "[package]\nname = \"bosun-engine\"\n[dev-dependencies]\nbosun-replay.workspace = true\n",
            ),
            ("worker/Cargo.toml", "[dependencies]\nbosun-tests = { path = \"../tests\" }\nsled.workspace = true\n"),
        ],
        &[
            "engine/Cargo.toml:4: bosun-engine may not depend on bosun-replay",
            "worker/Cargo.toml:2: bosun-worker may not depend on bosun-tests",
            "worker/Cargo.toml:3: only bosun-engine may depend on sled",
        ],
    );
}

#[test]
fn pure_modules_know_no_clock_disk_socket_thread_chance_tokio_or_hash_map() {
    let bad = "//! Timer.\nuse std::time::Instant;\nuse std::collections::{BTreeMap, HashMap};\nuse std::{fmt, fs};\n\
               fn now() { tokio::spawn(std::thread::current()); rand::random::<u8>(); }\nuse crate::log::Log;\n\
               fn good(instant: u8, operand: u8, my_tokio: u8) {}\n";
    check(
        &[("engine/src/machine/timer.rs", bad)],
        &[
            "engine/src/machine/timer.rs:2: a pure module may not use Instant",
            "engine/src/machine/timer.rs:3: a pure module may not use HashMap",
            "engine/src/machine/timer.rs:4: a pure module may not use std::fs",
            "engine/src/machine/timer.rs:5: a pure module may not use rand",
            "engine/src/machine/timer.rs:5: a pure module may not use std::thread",
            "engine/src/machine/timer.rs:5: a pure module may not use tokio",
            "engine/src/machine/timer.rs:6: a pure module may not use crate::log",
        ],
    );
}

#[test]
fn a_room_uses_only_what_stands_below_it() {
    let bad = "//! Core.\nuse crate::supervisor::graph::Graph;\nuse super::super::spec::Span;\nuse crate::supervisor::{outbox, run};\n\
               use crate::supervisor::outbox::Call;\nuse super::loans::Loans;\n#[cfg(test)]\nmod tests {\n    \
               use crate::supervisor::chat::Chat;\n}\n";
    let spec = "//! S.\nuse super::agents::Builtin;\nuse super::model::Span;\n";
    check(
        &[
            ("worker/src/lib.rs", "//! W.\nmod supervisor;\n"),
            ("worker/src/supervisor/mod.rs", "//! S.\nmod core;\nmod garden;\nmod spec;\nuse run::Run;\n"),
            ("worker/src/supervisor/core/mod.rs", "//! C.\nmod gate;\nuse super::people::answer;\n"),
            ("worker/src/supervisor/core/gate.rs", bad),
            ("worker/src/supervisor/garden.rs", "//! G.\n"),
            ("worker/src/supervisor/spec.rs", spec),
        ],
        &[
            "worker/src/supervisor/core/gate.rs:2: core may not use graph, which stands above it",
            "worker/src/supervisor/core/gate.rs:3: core may not use spec, which stands above it",
            "worker/src/supervisor/core/gate.rs:4: core may not use run, which stands above it",
            "worker/src/supervisor/core/mod.rs:3: core may not use people, which stands above it",
            "worker/src/supervisor/garden.rs:0: no line of ROOMS names the room garden",
            "worker/src/supervisor/spec.rs:2: spec may not use agents, which stands above it",
        ],
    );
}

#[test]
fn a_table_of_the_documentation_names_files_that_are_there() {
    let doc = "//! S.\n//!\n//! | rule | module |\n//! |---|---|\n//! | `no` matter | `core`, which `core/{gate,gone}` asks |\n\
               //! | other | `run/old` |\nmod core;\n";
    check(
        &[
            ("worker/src/lib.rs", "//! W.\nmod supervisor;\n"),
            ("worker/src/supervisor/mod.rs", doc),
            ("worker/src/supervisor/core/mod.rs", "//! C.\nmod gate;\n"),
            ("worker/src/supervisor/core/gate.rs", "//! G.\n"),
        ],
        &[
            "worker/src/supervisor/mod.rs:5: there is no file core/gone in worker/src/supervisor",
            "worker/src/supervisor/mod.rs:6: there is no file run/old in worker/src/supervisor",
        ],
    );
}

#[test]
fn the_run_names_a_family_where_it_chooses_one() {
    check(
        &[
            ("worker/src/lib.rs", "//! W.\nmod supervisor;\n"),
            ("worker/src/supervisor/mod.rs", "//! S.\nmod run;\n"),
            ("worker/src/supervisor/run/mod.rs", "//! R.\nmod strategy;\nuse super::graph::{Graph, Reply};\n"),
            ("worker/src/supervisor/run/strategy.rs", "//! S.\nuse crate::supervisor::graph::Graph;\n"),
        ],
        &[
            "worker/src/supervisor/run/mod.rs:3: Graph may be named in worker/src/supervisor/run/strategy.rs only: \
             ask it by Strategy or PlanControl",
            "worker/src/supervisor/run/mod.rs:3: graph may be named in the files of FAMILY_WORDS only: ask a strategy by \
             Strategy",
        ],
    );
}

#[test]
fn a_type_of_the_supervisor_is_defined_once() {
    let chat = "//! C.\npub enum Stage {}\n// pub struct Plan;\nfn f() {\n    struct Plan;\n}\n\
                #[cfg(test)]\nmod tests {\n    struct Plan;\n}\n";
    let graph = "//! G.\npub(super) struct Stage<T>(T);\nstruct Plan;\npub(in crate::supervisor) trait Plan {}\n";
    check(
        &[
            ("worker/src/lib.rs", "//! W.\nmod supervisor;\npub struct Stage;\n"),
            ("worker/src/supervisor/mod.rs", "//! S.\nmod chat;\nmod graph;\n"),
            ("worker/src/supervisor/chat.rs", chat),
            ("worker/src/supervisor/graph.rs", graph),
        ],
        &[
            "worker/src/supervisor/graph.rs:2: Stage is a type of worker/src/supervisor/chat.rs already: use that one, or say what this one is",
            "worker/src/supervisor/graph.rs:4: Plan is a type of worker/src/supervisor/graph.rs already: use that one, or say what this one is",
        ],
    );
}

#[test]
fn few_names_of_types_are_shared() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("engine/src/lib.rs", "//! E.\nstruct Span;\nimpl A for B {\n    type Output = ();\n}\n");
    write(
        "worker/src/lib.rs",
        "//! W.\npub(crate) enum Span {}\nstruct Line;\nimpl A for B {\n    type Output = ();\n}\n",
    );
    write("replay/src/lib.rs", "//! R.\npub struct Line;\n#[cfg(test)]\nmod tests {\n    struct Other;\n}\n");
    write("tests/src/lib.rs", "//! T.\npub struct Other;\n");
    let found = |most| {
        let mut problems = Vec::new();
        rules::shared_names(&Tree::read(root.path()), most, &mut problems);
        problems.iter().map(|problem| problem.what.clone()).collect::<Vec<_>>()
    };
    assert_eq!(found(2), Vec::<String>::new());
    let what = "2 names of types are defined by more than one file, at most 1 may be: Line Span";
    assert_eq!(found(1), [what]);
}

#[test]
fn tests_inside_pure_modules_may_use_anything() {
    let text =
        "//! Timer.\n#[cfg(test)]\nmod tests {\n    use std::collections::HashMap;\n}\n#[cfg(test)]\nmod other;\n";
    check(
        &[("engine/src/machine/timer.rs", text), ("engine/src/machine/timer/other.rs", "//! T.\nuse std::fs;\n")],
        &[],
    );
}

#[test]
fn sled_is_named_in_one_file() {
    check(
        &[("worker/src/lib.rs", "//! W.\nuse sled::Db;\nfn a() -> ::sled::Tree {}\nfn b(engine: log::sled::Log) {}\n")],
        &[
            "worker/src/lib.rs:2: sled may be named in engine/src/log/sled.rs only",
            "worker/src/lib.rs:3: sled may be named in engine/src/log/sled.rs only",
        ],
    );
}

#[test]
fn every_file_opens_with_its_doc_and_is_reachable() {
    check(
        &[
            ("worker/src/lib.rs", "#![doc = include_str!(\"../README.md\")]\nmod a;\n/* mod c; */\n"),
            ("worker/src/a/mod.rs", "\n//! Too late.\n"),
            ("worker/src/b.rs", "//! Nobody names it.\n"),
            ("worker/src/c.rs", "//! Only a comment names it.\n"),
            ("worker/src/bin/tool.rs", "//! A binary is a root.\n"),
            ("worker/build.rs", "//! So is this.\n"),
            ("replay/tests/one.rs", "//! And this.\nmod two;\n"),
            ("replay/tests/two/mod.rs", "//! Reached.\n"),
            ("worker/tests/main.rs", "//! One program of tests.\nmod two;\n"),
            ("worker/tests/two/mod.rs", "//! Reached.\n"),
            ("worker/tests/three.rs", "//! Not one more.\n"),
        ],
        &[
            "worker/src/a/mod.rs:1: it does not open with //!",
            "worker/src/b.rs:0: no mod line leads to this file",
            "worker/src/c.rs:0: no mod line leads to this file",
            "worker/tests/three.rs:0: no mod line leads to this file",
        ],
    );
}

#[test]
fn long_files_and_functions_need_a_reason() {
    let function = |lines: usize| format!("fn f() {{\n{}}}\n", "    call();\n".repeat(lines - 2));
    let lines = |count: usize| "const A: u8 = 1;\n".repeat(count);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(90));
    check(
        &[
            ("replay/src/lib.rs", "//! R.\nmod a;\nmod b;\nmod c;\nmod d;\nmod e;\n"),
            ("replay/src/a.rs", &format!("//! A.\n{}{}", lines(399), tests)),
            ("replay/src/b.rs", &format!("//! B.\n{}", lines(400))),
            ("replay/src/c.rs", &format!("//! C.\n//! Long: one table.\n{}", lines(500))),
            ("replay/src/d.rs", &format!("//! D.\n{}{}", function(50), function(51))),
            (
                "replay/src/e.rs",
                &format!("//! E.\n/// Doc.\n// long: one match over all.\n#[inline]\n{}", function(60)),
            ),
        ],
        &[
            "replay/src/b.rs:0: it has 401 lines without its tests; 400 are allowed, or a line `//! Long: why`",
            "replay/src/d.rs:52: the function f has 51 lines; 50 are allowed, or a comment `// long: why` above",
        ],
    );
}
