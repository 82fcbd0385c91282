//! Where in an input something stands that its code cannot read: the code says at which byte it stopped, whoever wrote the
//! input thinks in names.
//!
//! Invariant: the place is that of the innermost value, or name, at that byte; the whole input where nothing is known. It reads
//! text that is JSON, and decides nothing.

/// The byte at which a message of the decoder says that it stopped, counted from 1; of a text of one line.
pub(super) fn stopped_at(message: &str) -> Option<usize> {
    let (_, place) = message.rsplit_once(" at line 1 column ")?;
    place.parse().ok()
}

/// The path to the value at a byte of a JSON text, such as `items[2].price`; empty for the whole.
pub(super) fn path_at(json: &str, byte: usize) -> String {
    let mut levels: Vec<JsonLevel> = Vec::new();
    let mut rest = json.char_indices().take_while(|(at, _)| *at < byte);
    while let Some((at, c)) = rest.next() {
        match c {
            '{' => levels.push(JsonLevel::Object { name: String::new(), has_value: false }),
            '[' => levels.push(JsonLevel::Array(0)),
            // What has just ended is itself the innermost at its last byte.
            '}' | ']' if at + 1 < byte => drop(levels.pop()),
            '}' | ']' => return path_of(&levels[..levels.len().saturating_sub(1)]),
            '"' => {
                let text = text_of(&mut rest);
                if let Some(JsonLevel::Object { name, has_value: false }) = levels.last_mut() {
                    *name = text;
                }
            }
            ':' => set_value(levels.last_mut(), true),
            ',' => match levels.last_mut() {
                Some(JsonLevel::Array(index)) => *index += 1,
                level => set_value(level, false),
            },
            _ => {}
        }
    }
    path_of(&levels)
}

enum JsonLevel {
    /// The last name that was read, and whether its value has begun.
    Object {
        name: String,
        has_value: bool,
    },
    Array(usize),
}

fn set_value(level: Option<&mut JsonLevel>, begun: bool) {
    if let Some(JsonLevel::Object { name, has_value }) = level {
        *has_value = begun;
        if !begun {
            name.clear();
        }
    }
}

/// A text whose first quote has been read, to its last; as it stands, escaped.
fn text_of(rest: &mut impl Iterator<Item = (usize, char)>) -> String {
    let (mut text, mut escaped) = (String::new(), false);
    for (_, c) in rest {
        match c {
            '"' if !escaped => break,
            _ => {
                escaped = c == '\\' && !escaped;
                text.push(c);
            }
        }
    }
    text
}

fn path_of(levels: &[JsonLevel]) -> String {
    let mut path = String::new();
    for level in levels {
        match level {
            JsonLevel::Object { name, .. } if name.is_empty() => {}
            JsonLevel::Object { name, .. } if path.is_empty() => path.push_str(name),
            JsonLevel::Object { name, .. } => path.push_str(&format!(".{name}")),
            JsonLevel::Array(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "it is read, and that is all")]
    struct Order {
        order_id: String,
        #[serde(default)]
        items: Vec<Item>,
        #[serde(default)]
        prices: BTreeMap<String, Vec<u8>>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "it is read, and that is all")]
    struct Item {
        sku: String,
        quantity: u8,
    }

    fn place(input: &Value) -> String {
        let text = input.to_string();
        let why = serde_json::from_str::<Order>(&text).unwrap_err().to_string();
        path_at(&text, stopped_at(&why).unwrap_or_else(|| panic!("{why}")))
    }

    #[test]
    fn what_cannot_be_read_is_found_by_the_byte_at_which_the_decoder_stopped() {
        let item = |sku: Value, quantity: Value| json!({ "sku": sku, "quantity": quantity });
        let good = || item(json!("te\"}a"), json!(1));
        for (input, at) in [
            (json!({ "order_id": 1 }), "order_id"),
            (
                json!({ "order_id": "o", "items": [good(), good(), item(json!("x"), json!("many"))] }),
                "items[2].quantity",
            ),
            (json!({ "order_id": "o", "items": [good(), item(json!("x"), json!(300))] }), "items[1].quantity"),
            (json!({ "order_id": "o", "items": [good(), { "sku": "x" }] }), "items[1]"),
            (json!({ "order_id": "o", "items": { "a": 1 } }), "items"),
            (json!({ "order_id": "o", "prices": { "tea": [1, 2, -3] } }), "prices.tea[2]"),
            (json!({ "order_id": "o", "tip": 1 }), "tip"),
            (json!({ "items": [] }), ""),
            (json!([1]), "[0]"),
        ] {
            assert_eq!(place(&input), at, "{input}");
        }
    }

    #[test]
    fn where_nothing_is_known_the_whole_is_meant() {
        for (json, byte) in [("", 0), ("", 9), ("{}", 0), ("{", 1), ("]}", 2), (r#"{"a"#, 4)] {
            let _ = path_at(json, byte);
        }
        assert_eq!(path_at("7", 1), "");
        assert_eq!(stopped_at("it is no good"), None);
    }
}
