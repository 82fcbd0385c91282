//! Cutting secrets out of whatever comes back, in the spellings in which servers echo them.
//!
//! Invariant: what has been scrubbed holds no key, raw, in base64 (at any offset, of either alphabet, in lines, to its last
//! bit: a digit that a key shares with its neighbours goes with it), hexadecimal, URL, JSON or HTML spelling, whole or in part, also where a text was cut inside a key. Whoever rewrites a
//! key in another way is not caught. Pure.

mod spelling;

use std::sync::Arc;

use serde_json::Value;

pub(in crate::capability) use spelling::SPELLING_FACTOR;
use spelling::{SpellingForm, SpellingMatch};

/// What stands in the place of a secret.
pub(super) const REDACTED: &str = "[redacted]";

/// Shorter spellings of a short secret would be found everywhere.
const SPELLING_LEN_MIN: usize = 4;

/// The part of a key at the end of a cut text that is told from chance.
const PREFIX_LEN_MIN: usize = 6;

/// The spellings of keys. Empty if there is no key. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Scrubber {
    forms: Arc<Vec<SpellingForm>>,
    /// Those that may begin with a byte, by that byte.
    firsts: Arc<Vec<Vec<u32>>>,
    /// Bytes of the longest secret.
    longest: usize,
}

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scrubber({} spellings)", self.forms.len())
    }
}

impl Scrubber {
    /// Adds a secret. One that is shorter than `len_min` bytes is a word, and would cut holes into every text.
    pub(super) fn add(&mut self, secret: &str, len_min: usize) {
        if secret.len() < len_min.max(SPELLING_LEN_MIN) {
            return;
        }
        let (forms, firsts) = (Arc::make_mut(&mut self.forms), Arc::make_mut(&mut self.firsts));
        firsts.resize(256, Vec::new());
        for form in SpellingForm::all_of(secret.as_bytes()) {
            if forms.contains(&form) {
                continue;
            }
            let number = u32::try_from(forms.len()).unwrap_or(u32::MAX);
            for first in form.firsts() {
                let at = &mut firsts[usize::from(first)];
                if at.last() != Some(&number) {
                    at.push(number);
                }
            }
            forms.push(form);
        }
        self.longest = self.longest.max(secret.len());
    }

    /// Whether there is nothing to cut out.
    pub(super) fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// Whether there is anything to cut out of these bytes.
    pub(super) fn finds(&self, bytes: &[u8]) -> bool {
        self.next(bytes, 0).is_some()
    }

    /// What stands at the beginning; the longest of all that does.
    fn at_start_of(&self, text: &[u8]) -> SpellingMatch {
        let Some(first) = text.first() else { return SpellingMatch::Nothing };
        let mut found = SpellingMatch::Nothing;
        for number in self.firsts.get(usize::from(*first)).into_iter().flatten() {
            let form = &self.forms[usize::try_from(*number).unwrap_or_default()];
            found = match (found, form.at_start_of(text)) {
                (SpellingMatch::Full(one), SpellingMatch::Full(other)) => SpellingMatch::Full(one.max(other)),
                (SpellingMatch::Full(length), _) | (_, SpellingMatch::Full(length)) => SpellingMatch::Full(length),
                (SpellingMatch::Nothing, SpellingMatch::Nothing) => SpellingMatch::Nothing,
                (SpellingMatch::Begun, _) | (_, SpellingMatch::Begun) => SpellingMatch::Begun,
            };
        }
        found
    }

    /// The next secret from here on: where it begins and ends.
    fn next(&self, text: &[u8], from: usize) -> Option<(usize, usize)> {
        let is_first = |byte: &u8| self.firsts.get(usize::from(*byte)).is_some_and(|forms| !forms.is_empty());
        let mut at = from;
        loop {
            at += text.get(at..)?.iter().position(is_first)?;
            if let SpellingMatch::Full(length) = self.at_start_of(&text[at..]) {
                return Some((at, at + length));
            }
            at += 1;
        }
    }

    pub(super) fn text(&self, text: &str) -> String {
        match self.without(text.as_bytes()) {
            // A secret is a text, and so is what is left around it.
            Some(bytes) => String::from_utf8(bytes).unwrap_or_else(|_| REDACTED.to_owned()),
            None => text.to_owned(),
        }
    }

    /// The bytes without secrets, if there are any.
    fn without(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (mut kept, mut at) = (Vec::new(), 0);
        while let Some((begin, end)) = self.next(bytes, at) {
            kept.extend_from_slice(&bytes[at..begin]);
            kept.extend_from_slice(REDACTED.as_bytes());
            at = end;
        }
        (at > 0).then(|| [kept.as_slice(), &bytes[at..]].concat())
    }

    /// For a text that goes on: its beginning without secrets, and where the rest begins, which what follows may make one of.
    pub(super) fn so_far(&self, text: &str) -> (String, usize) {
        let (bytes, mut from, mut at) = (text.as_bytes(), 0, 0);
        while let Some((begin, end)) = self.next(bytes, at) {
            if self.forms.iter().any(|form| form.may_go_on(&bytes[begin..])) {
                return (self.text(&text[..begin]), begin);
            }
            (from, at) = (end, end);
        }
        let from = bytes.len() - self.held(&bytes[from..]);
        (self.text(&text[..from]), from)
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
        let mut bytes = self.without(&bytes).unwrap_or(bytes);
        let held = self.held(&bytes);
        if cut && held >= PREFIX_LEN_MIN {
            bytes.truncate(bytes.len() - held);
            bytes.extend_from_slice(REDACTED.as_bytes());
        }
        bytes
    }

    /// The length of the longest end that is the beginning of a spelling. It begins where a character does.
    pub(super) fn held(&self, text: &[u8]) -> usize {
        let from = text.len().saturating_sub(self.longest * SPELLING_FACTOR);
        let begun = (from..text.len()).find(|at| self.at_start_of(&text[*at..]) == SpellingMatch::Begun);
        begun.map_or(0, |at| text.len() - at)
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "sk-live/aB+\"9=xyzXYZ";

    fn scrubber() -> Scrubber {
        let mut scrubber = Scrubber::default();
        scrubber.add(KEY, 8);
        scrubber
    }

    fn base64(bytes: &[u8]) -> String {
        let mut text = String::from_utf8(spelling::base64_core(bytes, 0)).unwrap();
        // The core leaves a last, half-filled digit out; it is not needed to find the key.
        if !bytes.len().is_multiple_of(3) {
            text.push('=');
        }
        text
    }

    /// In lines of so many characters, as the command of this name writes it.
    fn wrapped(text: &str, width: usize) -> String {
        let lines: Vec<&str> = text.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
        lines.join("\n")
    }

    #[test]
    fn every_spelling_is_cut_out() {
        let scrubber = scrubber();
        let json = Value::from(KEY).to_string();
        let each = |spell: fn(usize, u8) -> String| KEY.bytes().enumerate().map(|(i, byte)| spell(i, byte)).collect();
        let hex = bosun_engine::hex(KEY.as_bytes());
        let spellings: Vec<String> = vec![
            KEY.to_owned(),
            hex.clone(),
            hex.to_uppercase(),
            hex.chars().enumerate().map(|(i, c)| if i % 3 == 0 { c.to_ascii_uppercase() } else { c }).collect(),
            each(|i, byte| format!("{}{byte:02x}", if i % 16 == 15 { "\n " } else { " " })),
            each(|_, byte| format!("\\x{byte:02X}")),
            each(|_, byte| format!("0x{byte:02x}, ")),
            base64(KEY.as_bytes()),
            base64(format!("Bearer {KEY}").as_bytes()),
            base64(format!("x{KEY}yy").as_bytes()),
            base64(format!("u:{KEY}").as_bytes()).replace('+', "-").replace('/', "_"),
            base64(format!("u:{KEY}").as_bytes()).replace('+', "%2B").replace('/', "%2f"),
            wrapped(&base64(format!("the key of the worker is {KEY}").as_bytes()), 40),
            json.clone(),
            json.replace('/', "\\/"),
            each(|_, byte| format!("%{byte:02x}")),
            each(|_, byte| format!("%{byte:02X}")),
            // In part, in one case and the other, and one escape among plain letters.
            each(|i, byte| if i % 2 == 0 { format!("%{byte:02x}") } else { char::from(byte).to_string() }),
            each(|i, byte| if i % 3 == 0 { format!("%{byte:02X}") } else { format!("%{byte:02x}") }),
            KEY.replace('/', "%2F"),
            KEY.replace('/', "%2f").replace('+', "%2B"),
            KEY.replace('"', "&quot;"),
            KEY.replace('"', "&#34;").replace('=', "&#x3D;"),
        ];
        for spelling in spellings {
            let shown = scrubber.text(&format!("you sent {spelling}!"));
            assert!(
                shown.contains(REDACTED) && !shown.contains("live") && !shown.contains("xyzXYZ") && shown.len() < 70,
                "{spelling}: {shown}"
            );
        }
        assert_eq!(scrubber.text("nothing here"), "nothing here");
    }

    /// A secret inside a longer base64 text leaves no bit: two secrets of one length leave the same.
    fn left_of(secret: &[u8], around: (&[u8], &[u8]), spell: &dyn Fn(&[u8]) -> String) -> (String, String) {
        let mut scrubber = Scrubber::default();
        let secret = bosun_engine::hex(secret);
        scrubber.add(&secret, 8);
        let text = spell(&[around.0, secret.as_bytes(), around.1].concat());
        // At once, and as it comes, letter by letter.
        let (mut shown, mut pending) = (String::new(), String::new());
        for letter in text.chars() {
            pending.push(letter);
            let (ready, from) = scrubber.so_far(&pending);
            shown.push_str(&ready);
            pending.drain(..from);
        }
        (scrubber.text(&text), shown + &scrubber.text(&pending))
    }

    proptest::proptest! {
        #[test]
        fn base64_leaves_no_bit_of_a_secret(
            secrets in (4_usize..12).prop_flat_map(|n| [vec(any::<u8>(), n), vec(any::<u8>(), n)]),
            before in vec(any::<u8>(), 0..20), after in vec(any::<u8>(), 0..20),
            cut in any::<bool>(), way in 0..4_usize,
        ) {
            use base64::prelude::*;
            let spell = |bytes: &[u8]| match way {
                0 => BASE64_STANDARD.encode(bytes),
                1 => BASE64_URL_SAFE_NO_PAD.encode(bytes),
                2 => wrapped(&BASE64_STANDARD.encode(bytes), 19),
                _ => BASE64_STANDARD.encode(bytes).replace('+', "%2B").replace('/', "%2F"),
            };
            let after = if cut { Vec::new() } else { after };
            let around = (before.as_slice(), after.as_slice());
            let [one, other] = secrets.map(|secret| left_of(&secret, around, &spell));
            proptest::prop_assert!(one.0.contains(REDACTED), "{}", one.0);
            proptest::prop_assert_eq!(&one.0, &other.0);
            proptest::prop_assert_eq!(&one.1, &one.0);
        }
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
