//! Where in a YAML text a path stands, for whoever has to mend it: `agents[0].via` is at line 6, column 5.
//!
//! Invariant: it is asked about a text that was read, and finds what that reader was told of; a path that the text does not
//! have is answered with the nearest mapping or list around it, or not at all. It judges nothing.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// Line and column, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TextPlace {
    pub line: u64,
    pub column: u64,
}

impl TextPlace {
    /// What is said of a fault below it, so that an editor opens the file there; nothing where nobody knows the place.
    pub(crate) fn shown(place: Option<TextPlace>, file: &str) -> String {
        place.map_or_else(String::new, |TextPlace { line, column }| format!("\nat {file}:{line}:{column}"))
    }
}

/// One step of a path: `agents`, or `[0]`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum YamlStep<'p> {
    Key(&'p str),
    Item(usize),
}

/// The place of the longest beginning of the path that the text has; at least one step of it.
pub(crate) fn place_of(text: &str, path: &str) -> Option<TextPlace> {
    let root: Spanned<PathNode> = serde_saphyr::from_str_with_options(text, super::options()).ok()?;
    let (mut node, mut found) = (&root.value, None);
    for step in steps(path) {
        let (place, below) = match (step, node) {
            (YamlStep::Key(wanted), PathNode::Mapping(entries)) => {
                entries.iter().find(|(key, _)| key.value.0 == wanted).map(|(key, below)| (key.referenced, below))
            }
            (YamlStep::Item(n), PathNode::List(items)) => items.get(n).map(|item| (item.referenced, item)),
            (YamlStep::Key(_) | YamlStep::Item(_), _) => None,
        }
        .unzip();
        let (Some(place), Some(below)) = (place, below) else { break };
        (node, found) = (&below.value, Some(TextPlace { line: place.line(), column: place.column() }));
    }
    // Where a place is not known the reader says line 0.
    found.filter(|place| place.line > 0)
}

fn steps(path: &str) -> Vec<YamlStep<'_>> {
    let mut steps = Vec::new();
    for part in path.split('.') {
        let mut rest = part.split('[');
        steps.extend(rest.next().filter(|key| !key.is_empty()).map(YamlStep::Key));
        steps.extend(rest.filter_map(|item| item.strip_suffix(']')?.parse().ok()).map(YamlStep::Item));
    }
    steps
}

/// The text of a key, whatever it is written as.
struct KeyText(String);

/// What stands at a place, as far as paths go.
enum PathNode {
    Mapping(Vec<(Spanned<KeyText>, Spanned<PathNode>)>),
    List(Vec<Spanned<PathNode>>),
    Value,
}

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeyTextVisitor)
    }
}

struct KeyTextVisitor;

impl Visitor<'_> for KeyTextVisitor {
    type Value = KeyText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E>(self, text: &str) -> Result<KeyText, E> {
        Ok(KeyText(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for PathNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PathNodeVisitor)
    }
}

struct PathNodeVisitor;

impl<'de> Visitor<'de> for PathNodeVisitor {
    type Value = PathNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PathNode, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(PathNode::Mapping(entries))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<PathNode, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(PathNode::List(items))
    }
    fn visit_bool<E>(self, _: bool) -> Result<PathNode, E> {
        Ok(PathNode::Value)
    }
    fn visit_i64<E>(self, _: i64) -> Result<PathNode, E> {
        Ok(PathNode::Value)
    }
    fn visit_u64<E>(self, _: u64) -> Result<PathNode, E> {
        Ok(PathNode::Value)
    }
    fn visit_f64<E>(self, _: f64) -> Result<PathNode, E> {
        Ok(PathNode::Value)
    }
    fn visit_str<E>(self, _: &str) -> Result<PathNode, E> {
        Ok(PathNode::Value)
    }
    fn visit_unit<E>(self) -> Result<PathNode, E> {
        Ok(PathNode::Value)
    }
    fn visit_none<E>(self) -> Result<PathNode, E> {
        Ok(PathNode::Value)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<PathNode, D::Error> {
        deserializer.deserialize_any(PathNodeVisitor)
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<PathNode, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| PathNode::Value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_at_its_key_or_item() {
        let text = "kind: supervisor\nagents:\n  - name: w\n    vai: x\n  - { name: v, tools: [a, { nmae: b }] }\nscript:\n  1: one\n";
        for (path, place) in [
            ("kind", (1, 1)),
            ("agents", (2, 1)),
            ("agents[0]", (3, 5)),
            ("agents[0].vai", (4, 5)),
            ("agents[1].tools[1].nmae", (5, 29)),
            ("script.1", (7, 3)),
            // What is missing is told where it should be.
            ("agents[0].role", (3, 5)),
            ("agents[0].via.model.name", (3, 5)),
            ("agents[7].name", (2, 1)),
        ] {
            let found = place_of(text, path).map(|TextPlace { line, column }| (line, column));
            assert_eq!(found, Some(place), "{path}");
        }
        assert_eq!((place_of(text, "objective"), place_of(text, ""), place_of("a: [", "a")), (None, None, None));
    }
}
