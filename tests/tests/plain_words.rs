//! The words that people read: pages and errors say in plain English who does what.
//!
//! Invariant: each phrase below stood in a page or a message once, and was not understood at the first reading; none comes
//! back. What the command line's help says is tested beside it. This is a list of what was found, and no judge of style.

use std::path::{Path, PathBuf};

use crate::tidy::workspace;

/// Turns in which the reader has to look for the subject, and words that nobody says.
const RIDDLES: [&str; 14] = [
    "nobody but",
    "is that itself",
    "how-manieth",
    "is none:",
    "is none of",
    "hears of it",
    "are told of",
    "whoever answers",
    "Whoever outgrows",
    "as can be",
    "wins over",
    "is heeded",
    "does it say what there is",
    "have the types of its code?",
];

/// The files below a folder that end so.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
}

/// The lines of the messages of errors: from `#[error(` to its end.
fn errors(text: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        inside |= line.trim_start().starts_with("#[error(");
        if inside {
            found.push((at, line));
        }
        inside &= !line.trim_end().ends_with(")]");
    }
    found
}

#[test]
fn no_page_and_no_error_is_a_riddle() {
    let mut wrong = Vec::new();
    let mut judge = |path: &Path, at: usize, line: &str| {
        for riddle in RIDDLES.iter().filter(|riddle| line.contains(**riddle)) {
            let path = path.strip_prefix(workspace()).unwrap_or(path);
            wrong.push(format!("{}:{}: {riddle:?} in {}", path.display(), at + 1, line.trim()));
        }
    };
    let mut pages: Vec<PathBuf> =
        ["", "engine", "replay", "worker"].map(|of| workspace().join(of).join("README.md")).into();
    files(&workspace().join("worker/guide"), ".md", &mut pages);
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        text.lines().enumerate().for_each(|(at, line)| judge(&page, at, line));
    }
    let mut sources = Vec::new();
    for of in ["engine/src", "replay/src", "worker/src"] {
        files(&workspace().join(of), ".rs", &mut sources);
    }
    let mut messages = 0;
    for source in sources {
        let text = std::fs::read_to_string(&source).unwrap();
        let lines = errors(&text);
        messages += lines.len();
        lines.into_iter().for_each(|(at, line)| judge(&source, at, line));
    }
    assert!(messages > 300, "only {messages} lines of messages were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
