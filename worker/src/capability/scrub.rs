//! Cutting secrets out of whatever comes back, in the spellings in which servers echo them.
//!
//! Invariant: what has been scrubbed holds no key, raw, in base64 (at any offset), hexadecimal, URL, JSON or HTML
//! spelling, also where a text was cut inside a key. Whoever rewrites a key in another way is not caught. Pure.

use bosun_engine::hex;
use serde_json::Value;

/// What stands in the place of a secret.
pub(super) const REDACTED: &str = "[redacted]";

/// Shorter spellings of a short secret would be found everywhere.
const SPELLING_LEN_MIN: usize = 4;

/// The part of a key at the end of a cut text that is told from chance.
const PREFIX_LEN_MIN: usize = 6;

/// The spellings of keys. Empty if there is no key.
#[derive(Clone, Default)]
pub(super) struct Scrubber {
    /// The longest first: a shorter one may be a part of it.
    spellings: Vec<String>,
}

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scrubber({} spellings)", self.spellings.len())
    }
}

impl Scrubber {
    /// Adds a secret. One that is shorter than `len_min` bytes is a word, and would cut holes into every text.
    pub(super) fn add(&mut self, secret: &str, len_min: usize) {
        if secret.len() < len_min.max(SPELLING_LEN_MIN) {
            return;
        }
        let bytes = secret.as_bytes();
        let spellings = &mut self.spellings;
        spellings.extend([secret.to_owned(), hex(bytes), hex(bytes).to_ascii_uppercase()]);
        for offset in 0..3 {
            let core = base64_core(bytes, offset);
            spellings.push(core.replace('+', "-").replace('/', "_"));
            spellings.push(core);
        }
        spellings.push(percent(bytes, false));
        spellings.push(percent(bytes, true));
        spellings.push(each(bytes, |byte| format!("%{byte:02X}")));
        spellings.push(each(bytes, |byte| format!("%{byte:02x}")));
        spellings.push(each(bytes, |byte| format!("\\u{byte:04x}")));
        spellings.push(html(secret));
        let json = Value::from(secret).to_string();
        spellings.push(json[1..json.len() - 1].to_owned());
        spellings.push(json[1..json.len() - 1].replace('/', "\\/"));
        spellings.retain(|spelling| spelling.len() >= SPELLING_LEN_MIN);
        spellings.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        spellings.dedup();
    }

    /// Whether there is nothing to cut out.
    pub(super) fn is_empty(&self) -> bool {
        self.spellings.is_empty()
    }

    /// Whether there is anything to cut out of these bytes.
    pub(super) fn finds(&self, bytes: &[u8]) -> bool {
        self.spellings.iter().any(|spelling| find(bytes, spelling.as_bytes()).is_some())
    }

    pub(super) fn text(&self, text: &str) -> String {
        self.spellings.iter().fold(text.to_owned(), |text, spelling| match text.contains(spelling) {
            true => text.replace(spelling, REDACTED),
            false => text,
        })
    }

    /// For a text that was cut: what may be the beginning of a key at its end, or before its ellipsis, goes too.
    pub(super) fn cut_text(&self, text: &str) -> String {
        let text = self.text(text);
        let whole = text.strip_suffix('…').unwrap_or(&text);
        match self.held(whole.as_bytes()) {
            held if held >= PREFIX_LEN_MIN => format!("{}{REDACTED}", &whole[..whole.len() - held]),
            _ => text,
        }
    }

    /// For bytes that are no text, and whether they were cut.
    pub(super) fn bytes(&self, bytes: Vec<u8>, cut: bool) -> Vec<u8> {
        let mut bytes = self.spellings.iter().fold(bytes, |bytes, spelling| without(bytes, spelling.as_bytes()));
        let held = self.held(&bytes);
        if cut && held >= PREFIX_LEN_MIN {
            bytes.truncate(bytes.len() - held);
            bytes.extend_from_slice(REDACTED.as_bytes());
        }
        bytes
    }

    /// The length of the longest end that is the beginning of a spelling. It begins where a character does.
    pub(super) fn held(&self, text: &[u8]) -> usize {
        let longest = |spelling: &String| {
            let ends = (1..spelling.len().min(text.len() + 1)).rev();
            ends.filter(|&end| spelling.is_char_boundary(end))
                .find(|&end| text.ends_with(&spelling.as_bytes()[..end]))
                .unwrap_or(0)
        };
        self.spellings.iter().map(longest).max().unwrap_or(0)
    }

    pub(super) fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(all) => all.iter_mut().for_each(|value| self.value(value)),
            Value::Object(map) => {
                let all = std::mem::take(map);
                map.extend(all.into_iter().map(|(name, mut value)| {
                    self.value(&mut value);
                    (self.text(&name), value)
                }));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Where the part begins. Its first byte is looked for first, which the standard library does quickly.
fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    let first = *part.first()?;
    let mut from = 0;
    while let Some(at) = bytes.get(from..)?.iter().position(|byte| *byte == first) {
        if bytes[from + at..].starts_with(part) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

fn without(bytes: Vec<u8>, part: &[u8]) -> Vec<u8> {
    let (mut kept, mut rest) = (Vec::new(), bytes.as_slice());
    while let Some(at) = find(rest, part) {
        kept.extend_from_slice(&rest[..at]);
        kept.extend_from_slice(REDACTED.as_bytes());
        rest = &rest[at + part.len()..];
    }
    if rest.len() == bytes.len() {
        return bytes;
    }
    kept.extend_from_slice(rest);
    kept
}

/// What base64 makes of the bytes `offset` places after a group of three begins, without the characters that also depend
/// on the neighbours.
fn base64_core(bytes: &[u8], offset: usize) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let padded: Vec<u8> = std::iter::repeat_n(0, offset).chain(bytes.iter().copied()).collect();
    let first = (offset * 8).div_ceil(6);
    let last = padded.len() * 8 / 6;
    let bit = |i: usize| padded[i / 8] >> (7 - i % 8) & 1;
    let digit = |place: usize| (place * 6..place * 6 + 6).fold(0_u8, |digit, i| digit << 1 | bit(i));
    (first..last).map(|place| char::from(DIGITS[usize::from(digit(place))])).collect()
}

/// Every byte in another spelling.
fn each(bytes: &[u8], spell: impl Fn(u8) -> String) -> String {
    bytes.iter().map(|byte| spell(*byte)).collect()
}

fn html(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

fn percent(bytes: &[u8], lower: bool) -> String {
    let spell = |byte: &u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(*byte).to_string(),
        byte if lower => format!("%{byte:02x}"),
        byte => format!("%{byte:02X}"),
    };
    bytes.iter().map(spell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-live/aB+\"9=xyzXYZ";

    fn scrubber() -> Scrubber {
        let mut scrubber = Scrubber::default();
        scrubber.add(KEY, 8);
        scrubber
    }

    fn base64(bytes: &[u8]) -> String {
        let mut text = base64_core(bytes, 0);
        // The core leaves a last, half-filled digit out; it is not needed to find the key.
        if !bytes.len().is_multiple_of(3) {
            text.push('=');
        }
        text
    }

    #[test]
    fn base64_is_base64() {
        assert_eq!(base64_core(b"Man", 0), "TWFu");
        assert_eq!(base64_core(b"light work", 0), "bGlnaHQgd29ya");
        // "xMan" and "xyMan" hold these cores.
        assert!("eE1hbg==".contains(&base64_core(b"Man", 1)));
        assert!("eHlNYW4=".contains(&base64_core(b"Man", 2)));
    }

    #[test]
    fn every_spelling_is_cut_out() {
        let scrubber = scrubber();
        let json = Value::from(KEY).to_string();
        let spellings = [
            KEY.to_owned(),
            hex(KEY.as_bytes()),
            hex(KEY.as_bytes()).to_uppercase(),
            base64(KEY.as_bytes()),
            base64(format!("Bearer {KEY}").as_bytes()),
            base64(format!("u:{KEY}").as_bytes()).replace('+', "-").replace('/', "_"),
            percent(KEY.as_bytes(), false),
            percent(KEY.as_bytes(), true),
            json.clone(),
            json.replace('/', "\\/"),
            KEY.bytes().map(|byte| format!("%{byte:02x}")).collect(),
            KEY.replace('"', "&quot;"),
        ];
        for spelling in spellings {
            let shown = scrubber.text(&format!("you sent {spelling}!"));
            assert!(
                shown.contains(REDACTED) && !shown.contains("live") && !shown.contains("xyzXYZ"),
                "{spelling}: {shown}"
            );
        }
        assert_eq!(scrubber.text("nothing here"), "nothing here");
    }

    #[test]
    fn short_secrets_are_words() {
        let mut scrubber = Scrubber::default();
        scrubber.add("ollama", 8);
        assert_eq!((scrubber.is_empty(), scrubber.text("ask ollama").as_str()), (true, "ask ollama"));
        scrubber.add("ollama", 4);
        assert_eq!(scrubber.text("ask ollama"), format!("ask {REDACTED}"));
        scrubber.add("abc", 0);
        assert_eq!(scrubber.text("abc"), "abc");
    }

    #[test]
    fn secrets_are_cut_out_of_bytes_also_where_they_were_cut() {
        let scrubber = scrubber();
        let of = |end: &str| [b"\xff\xfe", KEY.as_bytes(), b"\xff", end.as_bytes()].concat();
        let wanted = |end: &str| [b"\xff\xfe", REDACTED.as_bytes(), b"\xff", end.as_bytes()].concat();
        assert_eq!(scrubber.bytes(of("sk-live/aB"), true), wanted(REDACTED));
        assert_eq!(scrubber.bytes(of("sk-live/aB"), false), wanted("sk-live/aB"));
        assert_eq!(scrubber.bytes(vec![0xff], true), [0xff]);
    }

    #[test]
    fn a_key_that_was_cut_is_cut_out() {
        let scrubber = scrubber();
        assert_eq!(scrubber.cut_text("you sent sk-live/aB"), format!("you sent {REDACTED}"));
        assert_eq!(scrubber.cut_text("you sent sk-live/aB…"), format!("you sent {REDACTED}"));
        assert_eq!(scrubber.cut_text("you ask"), "you ask");
        assert_eq!(scrubber.cut_text("you ask…"), "you ask…");
    }

    #[test]
    fn names_and_texts_of_data_are_scrubbed() {
        let mut value = serde_json::json!({ KEY: [KEY, {"a": KEY}], "n": 1 });
        scrubber().value(&mut value);
        assert_eq!(value, serde_json::json!({ REDACTED: [REDACTED, {"a": REDACTED}], "n": 1 }));
    }
}
