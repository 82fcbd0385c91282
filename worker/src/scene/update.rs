//! Expectations rewritten to what was seen, in the file itself (`bosun test --update`).
//!
//! Invariant: only plain values change, each in its place; comments and everything else stay as they are written. What is
//! expected by a word such as `contains`, or is not written down, is left to a person.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::Spanned;

use crate::cli::misleads;

/// A value with its place in the text.
enum YamlNode {
    Leaf(Value),
    List(Vec<Spanned<YamlNode>>),
    Mapping(BTreeMap<String, Spanned<YamlNode>>),
}

/// The text with new values at these places, and how many there were that could be changed.
pub(crate) fn updated(text: &str, updates: &[(String, Value)]) -> (String, usize) {
    let Ok(root) = serde_saphyr::from_str::<Spanned<YamlNode>>(text) else { return (text.to_owned(), 0) };
    let mut edits: BTreeMap<(usize, usize), String> = BTreeMap::new();
    for (place, value) in updates {
        let words = ["equals", "is"];
        let found = find(&root, place).or_else(|| {
            let (above, last) = place.rsplit_once('.')?;
            // `is` for `equals`; the status of a task stands for the task.
            words.contains(&last).then(|| find(&root, &format!("{above}.is"))).flatten().or_else(|| find(&root, above))
        });
        let Some((span, old)) = found.and_then(|node| place_of(text, node)) else { continue };
        if matches!(value, Value::Object(_) | Value::Array(_)) || old == *value {
            continue;
        }
        edits.insert(span, written(value));
    }
    let mut new = text.to_owned();
    for ((begin, end), value) in edits.iter().rev() {
        new.replace_range(*begin..*end, value);
    }
    (new, edits.len())
}

/// Where a plain value stands: its bytes, checked to be that value.
fn place_of(text: &str, node: &Spanned<YamlNode>) -> Option<((usize, usize), Value)> {
    let YamlNode::Leaf(value) = &node.value else { return None };
    let begin = usize::try_from(node.defined.span().byte_offset()?).ok()?;
    let length = usize::try_from(node.defined.span().byte_len()?).ok()?;
    let slice = text.get(begin..begin + length)?;
    let read: Value = serde_saphyr::from_str(slice).ok()?;
    (read == *value).then(|| ((begin, begin + length), value.clone()))
}

/// A value as YAML writes it on one line.
fn written(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let plain = text.chars().all(|c| c.is_alphanumeric() || " _-./".contains(c))
        && text.chars().next().is_some_and(char::is_alphanumeric)
        && text.trim() == text
        && serde_saphyr::from_str::<Value>(text).is_ok_and(|read| read == *value);
    // JSON is YAML; nothing in it hides or turns around what stands beside it.
    if plain { text.clone() } else { value.to_string().chars().map(escaped).collect() }
}

/// A character within quotes: by its number, where it is not shown as what it is.
fn escaped(c: char) -> String {
    match u32::from(c) {
        _ if !misleads(c) => c.to_string(),
        number @ ..=0xffff => format!("\\u{number:04x}"),
        number => format!("\\U{number:08x}"),
    }
}

/// The node at `expect.report.tasks.dump`; keys may hold dots.
fn find<'n>(node: &'n Spanned<YamlNode>, path: &str) -> Option<&'n Spanned<YamlNode>> {
    let path = path.trim_start_matches('.');
    if path.is_empty() {
        return Some(node);
    }
    match &node.value {
        YamlNode::Leaf(_) => None,
        YamlNode::List(list) => {
            let (number, rest) = path.strip_prefix('[')?.split_once(']')?;
            find(list.get(number.parse::<usize>().ok()?)?, rest)
        }
        YamlNode::Mapping(map) => map.iter().find_map(|(key, inner)| {
            let rest = path.strip_prefix(key.as_str())?;
            (rest.is_empty() || rest.starts_with(['.', '['])).then(|| find(inner, rest)).flatten()
        }),
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = YamlNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_bool<E>(self, value: bool) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf(value.into()))
    }
    fn visit_i64<E>(self, value: i64) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf(value.into()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf(value.into()))
    }
    fn visit_str<E>(self, value: &str) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf(value.into()))
    }
    fn visit_unit<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf(Value::Null))
    }
    fn visit_none<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf(Value::Null))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<YamlNode, A::Error> {
        let mut list = Vec::new();
        while let Some(one) = seq.next_element()? {
            list.push(one);
        }
        Ok(YamlNode::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<YamlNode, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, _>()? {
            all.insert(key, value);
        }
        Ok(YamlNode::Mapping(all))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_values_change_in_their_place_and_comments_stay() {
        let text = "scene: it goes  # a sentence\nexpect:\n  outcome: completed # hoped\n  calls: [{ greet: any, times: 1 }]\n  at: { 1.5s: { query: plan, path: a.b, equals: \"x: y\" } }\n  text: { contains: done }\n";
        let updates = [
            ("expect.outcome".to_owned(), json!("failed")),
            ("expect.calls[0].times".to_owned(), json!(2)),
            ("expect.at.1.5s.equals".to_owned(), json!("a: b")),
            ("expect.text".to_owned(), json!("other")),
            ("expect.nothing".to_owned(), json!(1)),
        ];
        let (new, count) = updated(text, &updates);
        let expected = text
            .replace("completed # hoped", "failed # hoped")
            .replace("times: 1", "times: 2")
            .replace("\"x: y\"", "\"a: b\"");
        assert_eq!((new, count), (expected, 3));
    }

    /// Whoever looks at the difference sees what is expected now.
    #[test]
    fn what_hides_or_turns_text_around_is_written_by_its_number() {
        let seen = "pay \u{202e}001\u{200b} \u{e0041}";
        let (new, count) = updated("expect: { text: old }\n", &[("expect.text".to_owned(), json!(seen))]);
        assert_eq!((new.as_str(), count), ("expect: { text: \"pay \\u202e001\\u200b \\U000e0041\" }\n", 1));
        assert_eq!(serde_saphyr::from_str::<Value>(&new).unwrap()["expect"]["text"], seen);
    }
}
