//! YAML to data, within a budget that nobody's file needs and a bomb soon spends (G39).
//!
//! Invariant: no alias, anchor or merge key is expanded, no value coerced (`yes` is a text), and a hostile text is
//! refused quickly. What is wrong with the data is told with its place in the text. It reads no file and knows no contract.

use serde_json::Value;

mod place;

pub use place::TextPlace;
pub(crate) use place::place_of;

/// The longest text that is read, in bytes.
pub(super) const YAML_BYTES_MAX: usize = 1024 * 1024;

/// The data of one document. The caller has checked the length.
pub(crate) fn parse(text: &str) -> Result<Value, InvalidYaml> {
    serde_saphyr::from_str_with_options(text, options())
        .map_err(|why| at_its_tab(&why, text).unwrap_or_else(|| InvalidYaml::of(&why)))
}

/// What is wrong with a text that should be YAML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidYaml {
    #[error("the key `{key}` is given twice, again at line {line}, column {column}")]
    Twice { key: String, line: u64, column: u64 },
    /// What YAML has and files here do not, or more than anybody needs.
    #[error("{what}, at line {line}, column {column}")]
    NotTaken { what: &'static str, line: u64, column: u64 },
    /// In the words of the parser.
    #[error("{0}")]
    Parser(String),
}

const EMPTY_KEY: &str = "nothing stands where a name must: write a key before the colon";

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 100_000,
            max_aliases: 0,
            max_anchors: 0,
            max_depth: 32,
            max_documents: 1,
            max_nodes: 50_000,
            max_total_scalar_bytes: YAML_BYTES_MAX,
            max_merge_keys: 0,
        },
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

fn not_taken(breach: &serde_saphyr::budget::BudgetBreach) -> &'static str {
    use serde_saphyr::budget::BudgetBreach as B;
    match breach {
        B::Anchors { .. } | B::Aliases { .. } | B::AliasAnchorRatio { .. } => {
            "anchors (`&name`) and aliases (`*name`) are not taken here: write the value where it is used"
        }
        B::MergeKeys { .. } => "merge keys (`<<`) are not taken here: write the keys where they are used",
        B::Documents { .. } => "the file holds more than one document: keep what stands before or after `---`",
        B::Depth { .. } => "the values are nested deeper than 32 levels",
        _ => "the file holds more values than are read (50000)",
    }
}

impl InvalidYaml {
    /// Without advice for programmers.
    fn of(why: &serde_saphyr::Error) -> InvalidYaml {
        match why.without_snippet() {
            serde_saphyr::Error::DuplicateMappingKey { key: Some(key), location } => {
                InvalidYaml::Twice { key: key.clone(), line: location.line(), column: location.column() }
            }
            serde_saphyr::Error::Budget { breach, location } => {
                InvalidYaml::NotTaken { what: not_taken(breach), line: location.line(), column: location.column() }
            }
            // It speaks to programmers then.
            other if other.to_string().contains("use Option<") => match other.location() {
                Some(at) => InvalidYaml::NotTaken { what: EMPTY_KEY, line: at.line(), column: at.column() },
                None => InvalidYaml::Parser(EMPTY_KEY.to_owned()),
            },
            other => InvalidYaml::Parser(other.to_string()),
        }
    }
}

/// A tab that indents, where the parser complains of one: it calls the place before it, here it is the one where the tab stands.
/// A tab before that place indents nothing: it is text of a block.
fn at_its_tab(why: &serde_saphyr::Error, text: &str) -> Option<InvalidYaml> {
    let said = why.without_snippet().to_string();
    let is_of_tab = said.split(|c: char| !c.is_ascii_alphabetic()).any(|word| word == "tab" || word == "tabs");
    let from = usize::try_from(why.location().filter(|_| is_of_tab)?.line()).ok()?.saturating_sub(1);
    let tab = |line: &str| line.bytes().take_while(|byte| b" \t".contains(byte)).position(|byte| byte == b'\t');
    let (line, column) =
        (1..).zip(text.lines()).skip(from).find_map(|(number, line)| Some((number, tab(line)? as u64 + 1)))?;
    Some(InvalidYaml::NotTaken { what: "a tab indents, where only spaces may", line, column })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_key_is_told_in_words() {
        let why = parse(": : :\n").unwrap_err().to_string();
        assert!(why.starts_with("nothing stands where a name must"), "{why}");
    }

    #[test]
    fn a_tab_is_told_where_it_stands() {
        let why = parse("kind: supervisor\n\tpreset: x\n").unwrap_err();
        assert_eq!(why.to_string(), "a tab indents, where only spaces may, at line 2, column 1");
        let block = "preset: x\nobjective: |\n  Makefile:\n  \tcc x\n";
        for (rest, line, column) in [
            ("agents:\n  - name: x\n\t  role: y\n", 7, 1),
            ("agents:\n\t- name: a\n", 6, 1),
            ("name: x\n\tbudget: y\n", 6, 1),
        ] {
            let why = parse(&format!("{block}{rest}")).unwrap_err();
            let told = format!("a tab indents, where only spaces may, at line {line}, column {column}");
            assert_eq!(why.to_string(), told, "{rest:?}");
        }
        let why = parse(&format!("{block}agents: [a tab: \"\\q tab\"]\n")).unwrap_err().to_string();
        assert!(!why.contains("indents"), "{why}");
    }
}
