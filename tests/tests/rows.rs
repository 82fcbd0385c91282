//! The rows: every row of the requirements that is claimed is named by a scene or a test that shows it. All rows of the
//! supervisor layer are (`fixtures/supervisors/rows.txt`); what shows which stands in `fixtures/supervisors/coverage.md`.
//!
//! Invariant: a row counts only where its id stands in the `rows:` of a scene, or in the doc comment of a test function,
//! written in full; whether that shows it is for readers to judge. Nothing is counted from names of files or from prose.

use std::collections::BTreeMap;

use bosun_worker::scene::SceneFile;

use crate::tidy::source::{Tree, documented_tests, words};
use crate::tidy::workspace;

/// What issues 2 and 19 claim.
const ROWS: [(&str, &[u32]); 2] = [
    (
        "E",
        &[
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29,
            30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40,
        ],
    ),
    ("PDT-", &[38, 39, 40, 41, 42, 43, 44]),
];

/// The row ids a doc comment names: `E07`, `G21`, `PDT-38`.
fn ids(doc: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut previous = "";
    for word in words(doc) {
        let digits = word.trim_start_matches(|c: char| c.is_ascii_uppercase());
        let letters = &word[..word.len() - digits.len()];
        let numeric = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if numeric && matches!(letters, "E" | "G" | "F") {
            ids.push(word.to_owned());
        }
        let dashed = format!("{previous}-{word}");
        if numeric && letters.is_empty() && previous.bytes().all(|b| b.is_ascii_uppercase()) && doc.contains(&dashed) {
            ids.push(dashed);
        }
        previous = word;
    }
    ids
}

#[test]
fn every_claimed_row_is_named_by_a_test() {
    let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in &Tree::read(workspace()).files {
        for (test, doc) in documented_tests(file) {
            for id in ids(&doc) {
                named.entry(id).or_default().push(format!("{} {test}", file.path.display()));
            }
        }
    }
    let rows = ROWS.iter().flat_map(|(prefix, numbers)| numbers.iter().map(move |n| format!("{prefix}{n:02}")));
    let mut missing = Vec::new();
    for row in rows {
        match named.get(&row) {
            Some(tests) => println!("{row}\n    {}", tests.join("\n    ")),
            None => missing.push(row),
        }
    }
    let others: Vec<&String> = named.keys().filter(|id| id.starts_with(['G', 'F'])).collect();
    println!("besides: {others:?}");
    assert!(missing.is_empty(), "no test names {}", missing.join(", "));
}

/// Rows that no spec can show, and why; their tests are named in their doc comments.
const NO_SCENE: [(&str, &str); 1] =
    [("FSS-22", "the blocks are functions of the library; a scene starts a run, and calls none of them alone")];

/// The rows that scenes close, with file and sentence.
fn scenes() -> BTreeMap<String, Vec<String>> {
    let mut closed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut folders = vec![workspace().join("fixtures/scenes")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            if !text.lines().any(|line| line.starts_with("scene:")) {
                continue;
            }
            let scene = SceneFile::load(&path).unwrap_or_else(|why| panic!("{why}"));
            let name = path.strip_prefix(workspace()).unwrap_or(&path).display().to_string();
            for row in scene.rows() {
                closed.entry(row.clone()).or_default().push(format!("{} ({name})", scene.sentence()));
            }
        }
    }
    closed.values_mut().for_each(|scenes| scenes.sort());
    closed
}

/// Every row of supervisors.md is closed, and the file that says by what is made of scenes and tests.
#[test]
fn every_supervisor_row_is_covered() {
    let folder = workspace().join("fixtures/supervisors");
    let rows = std::fs::read_to_string(folder.join("rows.txt")).unwrap();
    let rows: Vec<&str> = rows.lines().collect();
    assert_eq!(rows.len(), 329, "the rows of the requirements");
    let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in &Tree::read(workspace()).files {
        for (test, doc) in documented_tests(file) {
            for id in ids(&doc) {
                named.entry(id).or_default().push(format!("`{test}` ({})", file.path.display()));
            }
        }
    }
    let scenes = scenes();
    let unknown: Vec<&String> = scenes.keys().filter(|row| !rows.contains(&row.as_str())).collect();
    assert!(unknown.is_empty(), "scenes name rows that there are not: {unknown:?}");
    let no_scene: BTreeMap<&str, &str> = NO_SCENE.into_iter().collect();
    let by_scene = rows.iter().filter(|row| scenes.contains_key(**row)).count();
    let mut text = format!(
        "# Coverage of the supervisor rows\n\nMade by `BOSUN_WRITE_FIXTURES=1 cargo test -p bosun-tests supervisor_row`; do not edit. \
         {by_scene} of {} rows are closed by scenes.\n\n| row | shown by |\n|---|---|\n",
        rows.len()
    );
    for row in &rows {
        let tests = named.get(*row).map(|tests| tests.join("<br>")).unwrap_or_default();
        let shown = match (scenes.get(*row), no_scene.get(row)) {
            (Some(scenes), _) => scenes.join("<br>"),
            (None, Some(why)) => format!("no scene: {why}<br>{tests}"),
            (None, None) => format!("test only: {tests}"),
        };
        text += &format!("| {row} | {shown} |\n");
    }
    let shown = |row: &str| scenes.contains_key(row) || named.contains_key(row);
    let missing: Vec<&&str> = rows.iter().filter(|row| !shown(row)).collect();
    assert!(missing.is_empty(), "no scene or test names {missing:?}");
    let both: Vec<&&str> = no_scene.keys().filter(|row| scenes.contains_key(**row)).collect();
    assert!(both.is_empty(), "these have a scene and are no exceptions any more: {both:?}");
    let path = folder.join("coverage.md");
    if std::env::var_os("BOSUN_WRITE_FIXTURES").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let wrong: Vec<&str> = rows.iter().copied().filter(|row| !is_true(&found, row, &scenes, &named)).collect();
    assert!(
        wrong.is_empty(),
        "coverage.md is wrong about {wrong:?}: BOSUN_WRITE_FIXTURES=1 cargo test -p bosun-tests supervisor_row"
    );
}

type Shown = BTreeMap<String, Vec<String>>;

/// Whether all that the file says of a row is so. Many scenes are written side by side, so a new one need not stand there
/// before the file is made again; one that is gone must not.
fn is_true(text: &str, row: &str, scenes: &Shown, tests: &Shown) -> bool {
    let head = format!("| {row} | ");
    let line = text.lines().find_map(|line| line.strip_prefix(&head)?.strip_suffix(" |"));
    let part = |part: &str| {
        let part = part.strip_prefix("test only: ").unwrap_or(part);
        let holds = |shown: &Shown| shown.get(row).is_some_and(|all| all.iter().any(|one| one == part));
        holds(scenes) || holds(tests) || part.starts_with("no scene: ")
    };
    line.is_some_and(|line| line.split("<br>").all(part))
}

#[test]
fn ids_are_found_only_where_they_stand_in_full() {
    assert_eq!(ids(" E05, G12: a PDT-38 row (E23)."), ["E05", "G12", "PDT-38", "E23"]);
    assert_eq!(ids(" THE 38 E FX1 EE05 E5x IDE05 utf-8"), Vec::<String>::new());
}
