//! The rules, one function each: what is looked for, and what the message says.
//!
//! Invariant: a rule looks at code only (comments and texts are blank), and leaves code of tests alone where the rule is
//! about the product. No rule changes anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Problem;
use super::source::{File, Tree, words};

const TOP_LEVEL: [&str; 7] = ["Cargo.toml", "engine", "worker", "replay", "tests", "fixtures", "README.md"];

/// Which crates a crate may depend on, tests included.
const ARROWS: [(&str, &[&str]); 4] = [
    ("engine", &[]),
    ("replay", &["bosun-engine"]),
    ("worker", &["bosun-engine", "bosun-replay"]),
    ("tests", &["bosun-engine", "bosun-replay", "bosun-worker"]),
];

/// Modules and folders that decide and never act.
const PURE: [&str; 24] = [
    "engine/src/vocabulary",
    "engine/src/machine",
    "engine/src/workflow",
    "engine/src/filter",
    "engine/src/queue",
    "engine/src/deadline",
    "worker/src/supervisor",
    "worker/src/agent/ends.rs",
    "worker/src/agent/grants.rs",
    "worker/src/agent/ledger.rs",
    "worker/src/agent/limits.rs",
    "worker/src/agent/machine",
    "worker/src/agent/number.rs",
    "worker/src/agent/resolve.rs",
    "worker/src/agent/schema.rs",
    "worker/src/agent/spec.rs",
    "worker/src/agent/transcript.rs",
    "worker/src/agent/turn",
    "worker/src/agent/waits.rs",
    "worker/src/agent/wall.rs",
    "worker/src/agent/workflow.rs",
    "worker/src/canonical.rs",
    "worker/src/notify/rules",
    "worker/src/schedule",
];

/// Names no pure module may say.
const IMPURE_WORDS: [&str; 7] = ["SystemTime", "Instant", "HashMap", "HashSet", "tokio", "rand", "getrandom"];
/// Paths no pure module may use, also as a part of a group: `std::{fs, ..}`. `crate::seeded` is not among them: it is one
/// constant `false` in every program that ships, and the same from beginning to end in the tests that test the checks.
const IMPURE_PATHS: [(&str, &[&str]); 2] =
    [("std", &["fs", "net", "thread", "process", "env"]), ("crate", &["log", "service", "client"])];

/// Asks whether this very thread unwinds: no influence from outside, and `Drop` cannot do without.
const PURE_PATH: &str = "std::thread::panicking";

/// Where the rooms of the supervisor lie.
const HOUSE: &str = "worker/src/supervisor";

/// Its rooms from the ground up. A room uses its own and those below it, so that no arrow leads back, by whatever way: what is
/// decided for every family knows no family, no spec, no people and no workflow. Those of one line use each other.
const ROOMS: [&[&str]; 29] = [
    &["fields"],
    &["yaml"],
    &["task"],
    &["journal"],
    &["model"],
    &["core", "outbox"],
    &["native"],
    &["reading"],
    &["standing"],
    &["shape"],
    &["success"],
    &["plan"],
    &["work", "critic", "placeholder"],
    &["plan_task"],
    &["plan_yaml"],
    &["spec"],
    &["people"],
    &["memory"],
    &["routing"],
    &["team"],
    &["prompts"],
    &["chat"],
    &["agents"],
    &["graph"],
    &["blocks"],
    &["report"],
    &["run"],
    &["spec_schema"],
    &["plan_run"],
];

/// What a family is made of: the run names it in one file, and reaches it by what all strategies answer.
const FAMILIES: [(&str, &str); 3] = [("graph", "Graph"), ("chat", "GroupChat"), ("agents", "AgentLoop")];
const FAMILY_FILE: &str = "worker/src/supervisor/run/strategy.rs";
/// The other files of the run that name the room of a family, and what for. No more are wanted.
const FAMILY_WORDS: [(&str, &str); 13] = [
    ("answer_shapes", "the schemas of answers"),
    ("children", "what a request that was handed on comes back as"),
    ("model", "the messages of agents, for models"),
    ("model_words", "what models are told, and how a worker answers"),
    ("parts", "the gates of a plan"),
    ("people", "how a worker asks"),
    ("progress", "the moments of a plan that are told"),
    ("queries", "why a task does not run"),
    ("refusal", "why no strategy could be made"),
    ("rules", "the rules of a plan, from a spec"),
    ("spending", "the cost that a worker's answer tells"),
    ("tool_names", "the tools that agents are offered"),
    ("work", "the draw of a speaker"),
];

/// Where one word has one meaning: a type's name stands for one type.
const ONE_MEANING: &str = "worker/src/supervisor";

/// How many names of types may be defined by more than one file of the product (issue 15).
pub(super) const SHARED_NAMES: usize = 60;

const SLED_FILE: &str = "engine/src/log/sled.rs";

fn problem(file: impl Into<PathBuf>, line: usize, what: impl Into<String>) -> Problem {
    Problem { file: file.into(), line, what: what.into() }
}

/// The top level of the repository, exactly; besides it `Cargo.lock`, dotfiles and `target`.
pub(super) fn top_level(root: &Path, problems: &mut Vec<Problem>) {
    let entries = std::fs::read_dir(root).expect("the root of the workspace can be read");
    let found: Vec<String> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    for name in &found {
        let expected = TOP_LEVEL.contains(&name.as_str()) || name.starts_with('.');
        if !expected && !matches!(name.as_str(), "Cargo.lock" | "target") {
            problems.push(problem(name, 0, "it does not belong at the top level"));
        }
    }
    for name in TOP_LEVEL.iter().filter(|name| !found.iter().any(|found| found == *name)) {
        problems.push(problem(name, 0, "it is missing at the top level"));
    }
}

/// `engine` ← `replay` ← `worker` ← `tests`.
pub(super) fn arrows(root: &Path, problems: &mut Vec<Problem>) {
    for (name, allowed) in ARROWS {
        let path = Path::new(name).join("Cargo.toml");
        let Ok(text) = std::fs::read_to_string(root.join(&path)) else {
            problems.push(problem(path, 0, "it is missing"));
            continue;
        };
        let mut in_dependencies = false;
        for (i, line) in text.lines().enumerate() {
            if line.starts_with('[') {
                in_dependencies = line.contains("dependencies");
                continue;
            }
            let dependency = line.split(['.', '=', ' ']).next().unwrap_or_default();
            if !in_dependencies {
                continue;
            }
            // Its own tests may name a crate again, with features for tests.
            let own = dependency.strip_prefix("bosun-") == Some(name);
            if dependency.starts_with("bosun-") && !own && !allowed.contains(&dependency) {
                problems.push(problem(&path, i + 1, format!("bosun-{name} may not depend on {dependency}")));
            }
            if dependency == "sled" && name != "engine" {
                problems.push(problem(&path, i + 1, "only bosun-engine may depend on sled"));
            }
        }
    }
}

pub(super) fn dead_files(tree: &Tree, problems: &mut Vec<Problem>) {
    problems.extend(tree.dead.iter().map(|file| problem(file, 0, "no mod line leads to this file")));
}

pub(super) fn module_doc(file: &File, problems: &mut Vec<Problem>) {
    // A crate's README may be its documentation.
    if !file.text.starts_with("//!") && !file.text.starts_with("#![doc = include_str!") {
        problems.push(problem(&file.path, 1, "it does not open with //!"));
    }
}

/// Files of at most 400 lines and functions of at most 50, tests aside, or a reason.
pub(super) fn sizes(file: &File, problems: &mut Vec<Problem>) {
    if file.is_test {
        return;
    }
    let lines = file.lines().filter(|line| !line.is_test).count();
    if lines > 400 && !file.is_excused() {
        let what = format!("it has {lines} lines without its tests; 400 are allowed, or a line `//! Long: why`");
        problems.push(problem(&file.path, 0, what));
    }
    for function in file.functions() {
        if function.lines > 50 && !function.is_test && !file.is_excused_at(function.line) {
            let what = format!(
                "the function {} has {} lines; 50 are allowed, or a comment `// long: why` above",
                function.name, function.lines
            );
            problems.push(problem(&file.path, function.line, what));
        }
    }
}

pub(super) fn purity(file: &File, problems: &mut Vec<Problem>) {
    let path = file.path.with_extension("");
    if file.is_test || !PURE.iter().any(|pure| path.starts_with(pure)) {
        return;
    }
    for line in file.lines().filter(|line| !line.is_test) {
        let mut impure = |what: &str| {
            problems.push(problem(&file.path, line.number, format!("a pure module may not use {what}")));
        };
        for word in words(line.code) {
            if IMPURE_WORDS.contains(&word) {
                impure(word);
            }
        }
        for (start, parts) in IMPURE_PATHS {
            let code = line.code.replace(PURE_PATH, "");
            for part in parts.iter().filter(|part| names_path(&code, start, part)) {
                impure(&format!("{start}::{part}"));
            }
        }
    }
}

/// The arrows between the rooms of the supervisor, those of its tests aside.
pub(super) fn rooms(file: &File, problems: &mut Vec<Problem>) {
    let Ok(inside) = file.path.strip_prefix(HOUSE) else { return };
    let first = inside.iter().next().map(|part| Path::new(part).with_extension(""));
    let Some(room) = first.as_deref().and_then(Path::to_str).filter(|room| *room != "mod") else { return };
    let level = |room: &str| ROOMS.iter().position(|rooms| rooms.contains(&room));
    let Some(own) = level(room) else {
        problems.push(problem(&file.path, 0, format!("no line of ROOMS names the room {room}")));
        return;
    };
    let above = || ROOMS[own..].iter().flat_map(|rooms| rooms.iter()).filter(|other| level(other) > Some(own));
    for line in file.lines().filter(|line| !file.is_test && !line.is_test) {
        for other in above().filter(|other| names_room(line.code, other, inside)) {
            let what = format!("{room} may not use {other}, which stands above it");
            problems.push(problem(&file.path, line.number, what));
        }
    }
}

/// The tables of the supervisor's documentation name files that are there: `graph/{decide,tools}`.
pub(super) fn tables(tree: &Tree, problems: &mut Vec<Problem>) {
    let house = Path::new(HOUSE);
    let is_there = |place: &str| {
        let mut files = tree.files.iter().filter_map(|file| file.path.strip_prefix(house).ok());
        files.any(|file| file.with_extension("") == Path::new(place) || file.starts_with(place))
    };
    let Some(doc) = tree.files.iter().find(|file| file.path == house.join("mod.rs")) else { return };
    for (line, row) in doc.text.lines().enumerate().filter(|(_, line)| line.starts_with("//! | ")) {
        let named = row.rsplit(" | ").next().unwrap_or_default().split('`').skip(1).step_by(2);
        for place in named.flat_map(spelled_out).filter(|place| !is_there(place)) {
            problems.push(problem(&doc.path, line + 1, format!("there is no file {place} in {HOUSE}")));
        }
    }
}

/// `a/{b,c}` is `a/b` and `a/c`.
fn spelled_out(places: &str) -> Vec<String> {
    match places.split_once("{") {
        Some((folder, names)) => names.trim_end_matches('}').split(',').map(|name| format!("{folder}{name}")).collect(),
        None => vec![places.to_owned()],
    }
}

/// The run reaches into no family: it names one where it chooses the strategy, and nowhere else. What else it has of the
/// room of a family stands in a list.
pub(super) fn families(file: &File, problems: &mut Vec<Problem>) {
    if !file.path.starts_with("worker/src/supervisor/run") || file.is_test || file.path == Path::new(FAMILY_FILE) {
        return;
    }
    let listed = FAMILY_WORDS.iter().any(|(name, _)| file.path.file_stem().is_some_and(|stem| stem == *name));
    for line in file.lines().filter(|line| !line.is_test) {
        let of_room = |(room, _): &&(&str, &str)| {
            ["crate::supervisor", "super", "super::super"].iter().any(|up| names_path(line.code, up, room))
        };
        for (room, _) in FAMILIES.iter().filter(of_room).filter(|_| !listed) {
            let what = format!("{room} may be named in the files of FAMILY_WORDS only: ask a strategy by Strategy");
            problems.push(problem(&file.path, line.number, what));
        }
        let named = |(room, family): &&(&str, &str)| {
            let rooms = ["crate::supervisor", "super", "super::super"].map(|up| format!("{up}::{room}"));
            rooms.iter().any(|room| names_path(line.code, room, family))
        };
        for (_, family) in FAMILIES.iter().filter(named) {
            let what = format!("{family} may be named in {FAMILY_FILE} only: ask it by Strategy or PlanControl");
            problems.push(problem(&file.path, line.number, what));
        }
    }
}

/// A type is defined once in the room of the supervisor: what a spec says is the spec's type, and what differs has a name of
/// its own (issue 15).
pub(super) fn one_meaning(tree: &Tree, problems: &mut Vec<Problem>) {
    let mut known: BTreeMap<&str, &Path> = BTreeMap::new();
    for file in tree.files.iter().filter(|file| file.path.starts_with(ONE_MEANING) && !file.is_test) {
        for line in file.lines().filter(|line| !line.is_test) {
            let Some(name) = defined_type(line.code) else { continue };
            match known.get(name) {
                Some(other) => {
                    let other = other.display();
                    let what = format!("{name} is a type of {other} already: use that one, or say what this one is");
                    problems.push(problem(&file.path, line.number, what));
                }
                None => drop(known.insert(name, &file.path)),
            }
        }
    }
}

/// Few names of types mean different things in different files.
pub(super) fn shared_names(tree: &Tree, most: usize, problems: &mut Vec<Problem>) {
    let mut files: BTreeMap<&str, BTreeSet<&Path>> = BTreeMap::new();
    let product = |file: &&File| {
        let mut parts = file.path.components().map(|part| part.as_os_str());
        !file.is_test && parts.next().is_some_and(|of| of != "tests") && parts.next().is_some_and(|of| of == "src")
    };
    for file in tree.files.iter().filter(product) {
        for line in file.lines().filter(|line| !line.is_test) {
            if let Some(name) = defined_type(line.code) {
                files.entry(name).or_default().insert(&file.path);
            }
        }
    }
    files.retain(|_, files| files.len() > 1);
    if files.len() > most {
        let names: Vec<&str> = files.keys().copied().collect();
        let what = format!(
            "{} names of types are defined by more than one file, at most {most} may be: {}",
            names.len(),
            names.join(" ")
        );
        problems.push(problem(Path::new("."), 0, what));
    }
}

/// The type that a line of a module itself defines; those inside of functions and macros are nobody else's matter.
fn defined_type(code: &str) -> Option<&str> {
    let code = match code.strip_prefix("pub") {
        Some(rest) => rest.strip_prefix('(').map_or(Some(rest), |scope| scope.split_once(')').map(|(_, rest)| rest))?,
        None => code,
    };
    let code = code.strip_prefix(' ').unwrap_or(code);
    let kinds = ["struct ", "enum ", "trait ", "type "];
    words(kinds.iter().find_map(|kind| code.strip_prefix(kind))?).next()
}

/// Whether code of this file (its path below the house) names the room: from the root of the crate, or up from where it is.
fn names_room(code: &str, room: &str, inside: &Path) -> bool {
    let is_room = inside.file_stem().is_some_and(|stem| stem == "mod");
    let up = vec!["super"; inside.iter().count() - usize::from(is_room)].join("::");
    names_path(code, "crate::supervisor", room) || names_path(code, &up, room)
}

/// Whether the code names `start::part`, alone or as a direct member of a group on this line.
fn names_path(code: &str, start: &str, part: &str) -> bool {
    let prefix = format!("{start}::");
    code.match_indices(&prefix).any(|(at, _)| {
        let whole = !code[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':'));
        let rest = &code[at + prefix.len()..];
        let named = match rest.strip_prefix('{') {
            Some(group) => group_members(group).contains(&part),
            None => words(rest).next() == Some(part) && rest.starts_with(part),
        };
        whole && named
    })
}

/// The first words of the members of a group, its opening brace taken away.
fn group_members(group: &str) -> Vec<&str> {
    let mut depth = 0;
    let mut members = vec![0];
    let mut end = group.len();
    for (i, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                end = i;
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => members.push(i + 1),
            _ => {}
        }
    }
    members.into_iter().filter(|at| *at <= end).filter_map(|at| words(&group[at..end]).next()).collect()
}

/// The crate sled stands in one file. Our own module of that name is reached by a longer path.
pub(super) fn one_sled_file(file: &File, problems: &mut Vec<Problem>) {
    if file.path == Path::new(SLED_FILE) {
        return;
    }
    for line in file.lines() {
        let names = line.code.match_indices("sled").any(|(at, word)| {
            let (before, after) = (&line.code[..at], &line.code[at + word.len()..]);
            let module_path = before.strip_suffix("::").is_some_and(|path| path.ends_with(is_word));
            let starts = !before.ends_with(is_word) && !module_path;
            let used = before.trim_end().ends_with("use") && after.trim_start().starts_with([';', ' ']);
            starts && (after.starts_with("::") || used)
        });
        if names {
            problems.push(problem(&file.path, line.number, format!("sled may be named in {SLED_FILE} only")));
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
