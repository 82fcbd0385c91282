//! Rust sources as text: which files there are, which of them `mod` lines reach, and what in them is code.
//!
//! Invariant: blanking comments and texts keeps every line and column, so that places are right. It relies on rustfmt's
//! line breaks for `mod` lines and attributes and is no parser.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The sources of a workspace.
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
    /// Files no `mod` line leads to.
    pub(crate) dead: Vec<PathBuf>,
}

pub(crate) struct File {
    /// From the root of the workspace.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// The text with comments and the insides of literals blank.
    pub(crate) code: String,
    /// All of it is test code: reached through `#[cfg(test)]` only, or an integration test.
    pub(crate) is_test: bool,
    /// The lines of inline test modules, from 0.
    test_lines: Vec<std::ops::Range<usize>>,
}

pub(crate) struct Line<'a> {
    pub(crate) number: usize,
    pub(crate) code: &'a str,
    pub(crate) is_test: bool,
}

pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) lines: usize,
    pub(crate) is_test: bool,
}

impl Tree {
    pub(crate) fn read(root: &Path) -> Tree {
        let mut paths = Vec::new();
        walk(root, Path::new(""), &mut paths);
        let mut files: BTreeMap<PathBuf, File> = BTreeMap::new();
        for path in paths {
            let text = fs::read_to_string(root.join(&path)).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
            files.insert(path.clone(), File::new(path, text));
        }
        let mut reached: BTreeMap<PathBuf, bool> = BTreeMap::new();
        for path in files.keys().filter(|path| is_root(path)) {
            let is_test = path.iter().any(|part| part == "benches") || is_integration_test(path);
            reach(&files, path, path.parent().unwrap_or(Path::new("")), is_test, &mut reached);
        }
        let dead = files.keys().filter(|path| !reached.contains_key(*path)).cloned().collect();
        for (path, is_test) in reached {
            if let Some(file) = files.get_mut(&path) {
                file.is_test = is_test;
            }
        }
        Tree { files: files.into_values().collect(), dead }
    }
}

fn walk(root: &Path, dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(root.join(dir)) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = dir.join(&name);
        let Ok(kind) = entry.file_type() else { continue };
        // Fixtures are data, also those that end in .rs.
        if kind.is_dir() && !name.starts_with('.') && !matches!(name.as_str(), "target" | "fixtures") {
            walk(root, &path, found);
        } else if kind.is_file() && name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// Whether cargo compiles the file by itself.
fn is_root(path: &Path) -> bool {
    let parts: Vec<&str> = path.iter().skip(1).filter_map(|part| part.to_str()).collect();
    match parts.as_slice() {
        ["build.rs"] | ["src", "lib.rs" | "main.rs"] | ["src", "bin", _] | ["src", "bin", _, "main.rs"] => true,
        ["benches" | "examples", _] | ["benches" | "examples" | "tests", _, "main.rs"] => true,
        // Where `autotests` is off, the files beside `main.rs` are its modules.
        ["tests", "main.rs"] => true,
        ["tests", _] => !path.starts_with("tests") && !path.starts_with("worker"),
        _ => false,
    }
}

fn is_integration_test(path: &Path) -> bool {
    path.iter().nth(1).is_some_and(|part| part == "tests")
}

/// Follows the `mod` lines of a file whose modules lie in `folder`.
fn reach(
    files: &BTreeMap<PathBuf, File>,
    path: &Path,
    folder: &Path,
    is_test: bool,
    reached: &mut BTreeMap<PathBuf, bool>,
) {
    // A file that is reached as product code and as test code is product code.
    let known = reached.get(path).copied();
    if known == Some(false) || known == Some(is_test) {
        return;
    }
    reached.insert(path.to_owned(), is_test);
    let Some(file) = files.get(path) else { return };
    for (name, in_test) in file.modules() {
        let inner = folder.join(&name);
        for candidate in [folder.join(format!("{name}.rs")), inner.join("mod.rs")] {
            if files.contains_key(&candidate) {
                reach(files, &candidate, &inner, is_test || in_test, reached);
            }
        }
    }
}

impl File {
    fn new(path: PathBuf, text: String) -> File {
        let code = blank(&text);
        let test_lines = test_modules(&code);
        File { path, text, code, is_test: false, test_lines }
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.code.lines().enumerate().map(|(i, code)| Line { number: i + 1, code, is_test: self.in_tests(i) })
    }

    fn in_tests(&self, line: usize) -> bool {
        self.is_test || self.test_lines.iter().any(|lines| lines.contains(&line))
    }

    /// The modules declared in other files, and whether for tests only.
    fn modules(&self) -> Vec<(String, bool)> {
        let lines: Vec<&str> = self.code.lines().collect();
        let mut modules = Vec::new();
        for (i, line) in lines.iter().enumerate() {
            if let Some(name) = module_line(line).and_then(|rest| rest.strip_suffix(';')) {
                modules.push((name.to_owned(), has_cfg_test(&lines, i) || self.in_tests(i)));
            }
        }
        modules
    }

    /// Whether the comments before the first code give a reason for the file's length.
    pub(crate) fn is_excused(&self) -> bool {
        let head = self.text.lines().take_while(|line| line.is_empty() || line.starts_with("//"));
        head.into_iter().any(|line| line.starts_with("//! Long: ") || line.starts_with("// long: "))
    }

    /// Whether the comments directly above a line (from 1) give a reason.
    pub(crate) fn is_excused_at(&self, line: usize) -> bool {
        let lines: Vec<&str> = self.text.lines().take(line - 1).collect();
        let above = lines.iter().rev().map(|line| line.trim_start());
        above
            .take_while(|line| line.starts_with("//") || line.starts_with('#'))
            .any(|line| line.starts_with("// long: "))
    }

    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        for (at, _) in self.code.match_indices("fn ") {
            let before = self.code[..at].chars().next_back();
            let name: String = words(&self.code[at + 3..]).next().unwrap_or_default().to_owned();
            // Not `Box<dyn Fn ..>` or a word that ends in fn; a function pointer type has no name.
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_') || !self.code[at + 3..].starts_with(&name) {
                continue;
            }
            let Some(end) = body_end(&self.code[at..]) else { continue };
            let first = self.code[..at].matches('\n').count();
            let lines = self.code[at..at + end].matches('\n').count() + 1;
            functions.push(Function { name, line: first + 1, lines, is_test: self.in_tests(first) });
        }
        functions
    }
}

/// What follows `mod ` on a line that declares a module.
fn module_line(line: &str) -> Option<&str> {
    let line = line.trim();
    let line = match line.strip_prefix("pub") {
        Some(rest) => {
            rest.strip_prefix('(').and_then(|rest| Some(rest.split_once(')')?.1)).unwrap_or(rest).trim_start()
        }
        None => line,
    };
    line.strip_prefix("mod ")
}

/// Whether `#[cfg(test)]` is among the attributes above a line (from 0).
fn has_cfg_test(lines: &[&str], i: usize) -> bool {
    lines[..i].iter().rev().map(|line| line.trim()).take_while(|line| line.starts_with("#[") || line.is_empty()).any(
        |line| {
            // All of them: `#[cfg(all(test, unix))]` too.
            line.starts_with("#[cfg(") && words(line).any(|word| word == "test")
        },
    )
}

/// The lines of `#[cfg(test)] mod name { .. }`, attributes aside.
fn test_modules(code: &str) -> Vec<std::ops::Range<usize>> {
    let lines: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    let mut at = 0;
    for (i, line) in lines.iter().enumerate() {
        if module_line(line).is_some_and(|rest| rest.ends_with('{'))
            && has_cfg_test(&lines, i)
            && let Some(end) = body_end(&code[at..])
        {
            let attributes = lines[..i].iter().rev().take_while(|line| line.trim().starts_with("#[")).count();
            found.push(i - attributes..i + code[at..at + end].matches('\n').count() + 1);
        }
        at += line.len() + 1;
    }
    found
}

/// Where the body that begins first in this code ends; none if `;` comes before it.
fn body_end(code: &str) -> Option<usize> {
    let (mut braces, mut brackets) = (0, 0);
    for (i, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if braces == 0 && brackets == 0 => return None,
            // A type that ends before any body: a function pointer in a list or an argument.
            ',' if braces == 0 && brackets < 0 => return None,
            '{' if brackets == 0 => braces += 1,
            '}' if brackets == 0 => {
                braces -= 1;
                if braces <= 0 {
                    return (braces == 0).then_some(i + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The words of a line of code.
pub(crate) fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// The names of `#[test]` functions with their doc comments, for the table of rows.
pub(crate) fn documented_tests(file: &File) -> Vec<(String, String)> {
    let texts: Vec<&str> = file.text.lines().collect();
    let mut tests = Vec::new();
    for function in file.functions() {
        let above: Vec<&str> = texts[..function.line - 1]
            .iter()
            .rev()
            .map(|line| line.trim())
            .take_while(|line| line.starts_with("#[") || line.starts_with("//") || *line == ")]")
            .collect();
        let attributes: BTreeSet<&str> = above.iter().copied().filter(|line| line.starts_with("#[")).collect();
        let is_test = |line: &&str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        if attributes.iter().any(is_test) {
            let doc = above.iter().rev().filter_map(|line| line.strip_prefix("///")).collect::<Vec<_>>().join(" ");
            tests.push((function.name, doc));
        }
    }
    tests
}

/// The text with comments and the insides of text and character literals as spaces; line breaks stay.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let (end, keep) = literal_or_comment(&chars, i);
        for (n, c) in chars[i..end].iter().enumerate() {
            let edge = n == 0 || n + 1 == end - i;
            code.push(if *c == '\n' || keep && edge || end == i + 1 { *c } else { ' ' });
        }
        i = end;
    }
    code
}

/// Where the literal or comment at `i` ends, and whether its first and last character stay; `i + 1` if there is none.
fn literal_or_comment(chars: &[char], i: usize) -> (usize, bool) {
    let at = |n: usize| chars.get(n).copied().unwrap_or('\0');
    let rest_is = |n: usize, text: &str| text.chars().enumerate().all(|(k, c)| at(n + k) == c);
    let word_before = i > 0 && (at(i - 1).is_alphanumeric() || at(i - 1) == '_');
    if rest_is(i, "//") {
        let length = chars[i..].iter().take_while(|c| **c != '\n').count();
        return (i + length, false);
    }
    if rest_is(i, "/*") {
        return (block_comment_end(chars, i), false);
    }
    let raw = if rest_is(i, "br") { i + 2 } else { i + 1 };
    let hashes = chars.iter().skip(raw).take_while(|c| **c == '#').count();
    if !word_before && (at(i) == 'r' || rest_is(i, "br")) && at(raw + hashes) == '"' {
        let close: String = std::iter::once('"').chain("#".repeat(hashes).chars()).collect();
        let end = (raw + hashes + 1..chars.len()).find(|n| rest_is(*n, &close));
        return (end.map_or(chars.len(), |end| end + close.len()), true);
    }
    let quote = at(i);
    // 'a' and '\n' are characters, 'a is a lifetime.
    if quote == '"' || quote == '\'' && (at(i + 1) == '\\' || at(i + 2) == '\'') {
        let mut end = i + 1;
        while end < chars.len() && at(end) != quote {
            end += if at(end) == '\\' { 2 } else { 1 };
        }
        return ((end + 1).min(chars.len()), true);
    }
    (i + 1, true)
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let (mut depth, mut i) = (0, start);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                i += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                i += 2;
            }
            _ => i += 1,
        }
        if depth == 0 {
            break;
        }
    }
    i.min(chars.len())
}

#[test]
fn comments_and_texts_are_blank_and_places_stay() {
    let text = "let a = \"x // {\"; // fs\nlet b = r#\"\"fs\"#; /* /* { */ */ let c = '\"'; let d: &'a str = b'\\'';\n";
    let code = blank(text);
    assert_eq!(code.len(), text.len());
    let wanted = "let a = \"      \";      \nlet b = r      #;               let c = ' '; let d: &'a str = b'  ';\n";
    assert_eq!(code, wanted);
}

#[test]
fn functions_are_measured_from_their_signature_to_their_brace() {
    let text = "//! X.\ntype F = fn (u8);\nfn a<T>(f: impl Fn(T) -> [u8; 2])\nwhere\n    T: Copy,\n{\n    |x| { x };\n}\n\
                trait T { fn b(&self);\n    fn c() {} }\nconst G: &[fn () -> u8] = &[|| 1];\n";
    let file = File::new("x.rs".into(), text.into());
    let found: Vec<String> = file.functions().iter().map(|f| format!("{}@{}+{}", f.name, f.line, f.lines)).collect();
    assert_eq!(found, ["a@3+6", "c@10+1"]);
}
