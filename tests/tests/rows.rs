//! The rows: every row of the requirements that is claimed is named by a test that proves it. All rows of the supervisor
//! layer are (`fixtures/supervisors/rows.txt`); which test proves which stands in `fixtures/supervisors/coverage.md`.
//!
//! Invariant: a row counts only where its id stands in the doc comment of a test function, written in full; whether the
//! test proves it is for readers to judge. Nothing is counted from the names of files or from prose.

use std::collections::BTreeMap;

use crate::tidy::source::{Tree, documented_tests, words};
use crate::tidy::workspace;

/// What issue 2 claims.
const ROWS: [(&str, &[u32]); 2] = [
    (
        "E",
        &[
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 27, 28, 29, 30, 31, 32,
            33, 35, 37, 38, 40,
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

/// Every row of supervisors.md is closed, and the file that says by which tests is made of these tests.
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
    let mut text = String::from(
        "# Coverage of the supervisor rows\n\nMade by `BOSUN_WRITE_FIXTURES=1 cargo test -p bosun-tests supervisor_row`; do not edit.\n\n| row | tests |\n|---|---|\n",
    );
    for row in &rows {
        let tests = named.get(*row).map(|tests| tests.join("<br>")).unwrap_or_default();
        text += &format!("| {row} | {tests} |\n");
    }
    let missing: Vec<&&str> = rows.iter().filter(|row| !named.contains_key(**row)).collect();
    assert!(missing.is_empty(), "no test names {missing:?}");
    let path = folder.join("coverage.md");
    if std::env::var_os("BOSUN_WRITE_FIXTURES").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let stale = std::fs::read_to_string(&path).is_ok_and(|found| found != text) || !path.exists();
    assert!(!stale, "coverage.md is stale: BOSUN_WRITE_FIXTURES=1 cargo test -p bosun-tests supervisor_row");
}

#[test]
fn ids_are_found_only_where_they_stand_in_full() {
    assert_eq!(ids(" E05, G12: a PDT-38 row (engine.md E23)."), ["E05", "G12", "PDT-38", "E23"]);
    assert_eq!(ids(" THE 38 E FX1 EE05 E5x IDE05 utf-8"), Vec::<String>::new());
}
