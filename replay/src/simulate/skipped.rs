//! Fields of a state machine that serde leaves out or writes in its own way: named from the source, for a hint.
//!
//! Invariant: the source is read as text and nothing is guessed beyond it: a struct is the machine's if the same file
//! implements `StateMachine` for it. A file that is not there, or is written otherwise, gives no hint.

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
    machines.flat_map(|machine| fields_of(&lines, machine, file)).collect()
}

fn fields_of(lines: &[&str], machine: &str, file: &str) -> Vec<SkippedField> {
    let begins = |line: &str| {
        let rest = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("struct ")?.strip_prefix(machine)?;
        (!rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')).then_some(())
    };
    let Some(first) = lines.iter().position(|line| begins(line).is_some()) else { return Vec::new() };
    let (mut found, mut attribute) = (Vec::new(), None);
    for (at, line) in lines.iter().enumerate().skip(first + 1).take_while(|(_, line)| !line.starts_with('}')) {
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
        let name = name.trim_start_matches("pub ").split(':').next().unwrap_or_default().trim();
        if let Some(attribute) = attribute.take() {
            let (of, name, file) = (machine.to_owned(), name.to_owned(), file.to_owned());
            found.push(SkippedField { of, name, attribute, file, line: at + 1 });
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
}
