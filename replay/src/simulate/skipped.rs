//! Fields of a state machine that serde leaves out or writes in its own way: named from the source, for a hint.
//!
//! Invariant: the source is read as text and nothing is guessed beyond it: a struct is the machine's if the same file
//! implements `StateMachine` for it, and so are the types of that file that its fields name. A file that is not there, or is
//! written otherwise, gives no hint, and neither does a type of another file.

use std::fmt;
use std::path::{Path, PathBuf};

use bosun_engine::WorkflowType;

/// A field that a snapshot does not hold as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedField {
    /// The struct.
    pub of: String,
    /// The field.
    pub name: String,
    /// The attribute as it is written.
    pub attribute: String,
    /// The file as the compiler names it.
    pub file: String,
    /// The line of the field.
    pub line: usize,
}

impl fmt::Display for SkippedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SkippedField { of, name, attribute, file, line } = self;
        write!(
            f,
            "a snapshot does not hold the field `{name}` of {of} as it is ({attribute} at {file}:{line}); a run that comes \
             back from its snapshot has another value there"
        )
    }
}

/// The fields of the machine of this type that this file makes serde skip.
pub(super) fn skipped_fields(file: &str, workflow_type: &WorkflowType) -> Vec<SkippedField> {
    let text = source_of(file).and_then(|path| std::fs::read_to_string(path).ok());
    text.map(|text| fields_in(&text, file, workflow_type)).unwrap_or_default()
}

/// Sources are named from the root of the workspace, and tests run in the root of their crate.
fn source_of(file: &str) -> Option<PathBuf> {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).or_else(|| std::env::current_dir().ok())?;
    root.ancestors().map(|root| root.join(Path::new(file))).find(|path| path.is_file())
}

fn fields_in(text: &str, file: &str, workflow_type: &WorkflowType) -> Vec<SkippedField> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let machines = lines.iter().enumerate().filter_map(|(at, line)| {
        let name = line.strip_prefix("impl ")?.split_once("StateMachine for ")?.1;
        let name = name.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()?;
        // The type stands in the first lines of the implementation; a constant may stand for it.
        let body = lines[at..].iter().take(4).find(|line| line.starts_with("const TYPE"));
        let other = body.is_some_and(|body| body.contains('"') && !body.contains(&format!("\"{workflow_type}\"")));
        (!other).then_some(name)
    });
    let mut types: Vec<&str> = machines.collect();
    types.dedup();
    let (mut found, mut at) = (Vec::new(), 0);
    // What a field of the state is made of is a part of the state.
    while let Some(name) = types.get(at).copied() {
        at += 1;
        let Some(body) = body_of(&lines, name) else { continue };
        found.extend(fields_of(&body, name, file));
        let words = body.iter().flat_map(|(_, piece)| piece.split(|c: char| !(c.is_alphanumeric() || c == '_')));
        for word in words.filter(|word| word.starts_with(char::is_uppercase)) {
            if let Some(known) = lines.iter().find_map(|line| declared(line).filter(|known| *known == word))
                && !types.contains(&known)
            {
                types.push(known);
            }
        }
    }
    found
}

/// The type that a line begins to declare.
fn declared(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub").unwrap_or(line);
    let rest = rest.trim_start().strip_prefix("(crate)").unwrap_or(rest).trim_start();
    let rest = rest.strip_prefix("struct ").or_else(|| rest.strip_prefix("enum "))?;
    rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()
}

/// What stands between the braces of a type, in pieces that hold a field at most, each with its line.
fn body_of<'a>(lines: &[&'a str], name: &str) -> Option<Vec<(usize, &'a str)>> {
    let first = lines.iter().position(|line| declared(line) == Some(name))?;
    if let Some((_, rest)) = lines[first].split_once('{')
        && let Some((inside, _)) = rest.rsplit_once('}')
    {
        return Some(pieces(inside).into_iter().map(|piece| (first + 1, piece)).collect());
    }
    let body =
        lines.iter().enumerate().skip(first + 1).take_while(|(_, line)| !line.starts_with('}') || line.len() > 1);
    Some(body.map(|(at, line)| (at + 1, *line)).collect())
}

/// The fields of a type that is written in one line.
fn pieces(inside: &str) -> Vec<&str> {
    let (mut depth, mut begun, mut found) = (0_i32, 0, Vec::new());
    for (at, c) in inside.char_indices() {
        match c {
            '(' | '<' | '[' | '{' => depth += 1,
            ')' | '>' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(inside[begun..at].trim());
                begun = at + 1;
            }
            _ => {}
        }
    }
    found.push(inside[begun..].trim());
    found
}

fn fields_of(body: &[(usize, &str)], of: &str, file: &str) -> Vec<SkippedField> {
    let (mut found, mut attribute) = (Vec::new(), None);
    for (line_number, line) in body {
        let attributes = line.starts_with("#[serde(");
        let losing = ["skip", "with", "serialize_with", "default"].iter().any(|word| line.contains(word));
        let rest = line.split_once(")]").map_or("", |(_, rest)| rest.trim());
        if attributes && losing {
            attribute = Some(line[..line.len() - rest.len()].trim().to_owned());
        }
        let field = if attributes { rest } else { line };
        if field.is_empty() || field.starts_with("//") || field.starts_with('#') {
            continue;
        }
        let name = field.rsplit_once(") ").map_or(field, |(_, name)| name);
        let name = name.trim_start_matches("pub ").split([':', '(', ' ', ',']).next().unwrap_or_default().trim();
        if let Some(attribute) = attribute.take() {
            let (of, name, file) = (of.to_owned(), name.to_owned(), file.to_owned());
            found.push(SkippedField { of, name, attribute, file, line: *line_number });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_serde_skips_are_named_with_their_lines() {
        let text = "#[derive(Serialize)]\npub struct Bill {\n    total: u32,\n    #[serde(skip)]\n    /// Charges.\n    \
                    pub count: u32,\n    #[serde(skip_serializing, default)] pub(crate) late: bool,\n    \
                    #[serde(rename = \"x\")]\n    y: u8,\n}\nstruct Billing {\n    #[serde(skip)]\n    no: u8,\n}\n\
                    impl StateMachine for Bill {\n    const TYPE: &'static str = \"bill\";\n";
        let told = |workflow: &str| -> Vec<String> {
            let found = fields_in(text, "flows.rs", &WorkflowType::of(workflow));
            found.iter().map(|field| format!("{} {} {}", field.name, field.line, field.attribute)).collect()
        };
        assert_eq!(told("bill"), ["count 6 #[serde(skip)]", "late 7 #[serde(skip_serializing, default)]"]);
        assert!(told("other").is_empty());
    }

    #[test]
    fn fields_of_nested_types_enums_and_one_line_structs_are_named_too() {
        let text = "impl StateMachine for Bill {\n    const TYPE: &'static str = \"bill\";\n}\n\
                    pub(crate) struct Bill { #[serde(skip_serializing, default)] late: bool, parts: Vec<Part>, kind: Kind }\n\
                    struct Part {\n    #[serde(skip)]\n    count: u32,\n    bill: u8,\n}\n\
                    enum Kind {\n    One,\n    #[serde(skip)]\n    Two(u8),\n}\n\
                    struct Elsewhere {\n    #[serde(skip)]\n    no: u8,\n}\n";
        let found = fields_in(text, "flows.rs", &WorkflowType::of("bill"));
        let told: Vec<String> =
            found.iter().map(|field| format!("{}.{} {}", field.of, field.name, field.line)).collect();
        assert_eq!(told, ["Bill.late 4", "Part.count 7", "Kind.Two 13"]);
    }
}
