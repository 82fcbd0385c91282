//! Cutting a key out of whatever comes back, in the spellings in which servers echo it.
//!
//! Invariant: what has been scrubbed holds no key, raw, in base64 (at any offset), hexadecimal, URL, JSON or HTML
//! spelling, also where a text was cut inside a key, or comes in pieces. Whoever rewrites a key in another way is not caught. Pure.

use bosun_engine::hex;
use serde_json::Value;

use super::{ChatResponse, ModelError, StopReason, Token, TokenSink};

const REDACTED: &str = "[redacted]";

/// Shorter values are words like `ollama` that local servers want instead of a key, and would cut holes into every text.
const SECRET_LEN_MIN: usize = 8;

/// The part of a key at the end of a cut text that is told from chance.
const PREFIX_LEN_MIN: usize = 6;

/// The spellings of keys. Empty if there is no key.
#[derive(Clone, Default)]
pub(in crate::capability) struct Scrubber {
    /// The longest first: a shorter one may be a part of it.
    spellings: Vec<String>,
}

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scrubber({} spellings)", self.spellings.len())
    }
}

impl Scrubber {
    pub(in crate::capability) fn of(secret: Option<&str>) -> Scrubber {
        let Some(secret) = secret.filter(|secret| secret.len() >= SECRET_LEN_MIN) else { return Scrubber::default() };
        let bytes = secret.as_bytes();
        let mut spellings = vec![secret.to_owned(), hex(bytes), hex(bytes).to_ascii_uppercase()];
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
        spellings.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        spellings.dedup();
        Scrubber { spellings }
    }

    pub(in crate::capability) fn text(&self, text: &str) -> String {
        self.spellings.iter().fold(text.to_owned(), |text, spelling| match text.contains(spelling) {
            true => text.replace(spelling, REDACTED),
            false => text,
        })
    }

    /// For a text that was cut: what may be the beginning of a key at its end, or before its ellipsis, goes too.
    pub(in crate::capability) fn cut_text(&self, text: &str) -> String {
        let text = self.text(text);
        let mut text = text.strip_suffix('…').map_or(text.clone(), str::to_owned);
        let held = self.held(&text);
        if held >= PREFIX_LEN_MIN {
            text.truncate(text.len() - held);
            text.push_str(REDACTED);
        }
        text
    }

    /// The length of the longest end that is the beginning of a spelling.
    fn held(&self, text: &str) -> usize {
        let longest = |spelling: &String| {
            let ends = (1..spelling.len().min(text.len() + 1)).rev();
            ends.filter(|&end| spelling.is_char_boundary(end))
                .find(|&end| text.ends_with(&spelling[..end]))
                .unwrap_or(0)
        };
        self.spellings.iter().map(longest).max().unwrap_or(0)
    }

    pub(in crate::capability) fn value(&self, value: &mut Value) {
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

    pub(super) fn response(&self, mut response: ChatResponse) -> ChatResponse {
        if self.spellings.is_empty() {
            return response;
        }
        response.said.content = self.text(&response.said.content);
        for call in &mut response.said.tool_calls {
            call.id = self.text(&call.id);
            call.name = self.text(&call.name);
            self.value(&mut call.arguments);
        }
        if let StopReason::Other(reason) = &mut response.stop {
            *reason = self.text(reason);
        }
        response.model = self.text(&response.model);
        response.id = response.id.map(|id| self.text(&id));
        response
    }

    pub(super) fn error(&self, mut error: ModelError) -> ModelError {
        error.message = self.cut_text(&error.message);
        error.code = error.code.map(|code| self.cut_text(&code));
        error
    }
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

/// Hands tokens on without keys: what may be the beginning of one is held back until it is known to be none.
pub(super) struct ScrubbedSink<'a> {
    scrubber: &'a Scrubber,
    sink: &'a mut dyn TokenSink,
    pending: String,
}

impl<'a> ScrubbedSink<'a> {
    pub(super) fn new(scrubber: &'a Scrubber, sink: &'a mut dyn TokenSink) -> Self {
        ScrubbedSink { scrubber, sink, pending: String::new() }
    }

    /// The answer is whole: nothing can follow that makes a key of what is held.
    pub(super) fn flush(&mut self) {
        let rest = std::mem::take(&mut self.pending);
        if !rest.is_empty() {
            self.sink.token(Token::Text(&self.scrubber.cut_text(&rest)));
        }
    }
}

impl TokenSink for ScrubbedSink<'_> {
    fn token(&mut self, token: Token<'_>) {
        match token {
            Token::Text(text) => {
                self.pending.push_str(text);
                self.pending = self.scrubber.text(&self.pending);
                let rest = self.pending.split_off(self.pending.len() - self.scrubber.held(&self.pending));
                let ready = std::mem::replace(&mut self.pending, rest);
                if !ready.is_empty() {
                    self.sink.token(Token::Text(&ready));
                }
            }
            Token::ToolCall(name) => self.sink.token(Token::ToolCall(&self.scrubber.text(name))),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "sk-live/aB+\"9=xyzXYZ";

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
        let scrubber = Scrubber::of(Some(KEY));
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
    fn short_keys_are_words() {
        assert_eq!(Scrubber::of(Some("ollama")).text("ask ollama"), "ask ollama");
        assert_eq!(Scrubber::of(None).text("a"), "a");
    }

    #[test]
    fn a_key_that_was_cut_is_cut_out() {
        let scrubber = Scrubber::of(Some(KEY));
        assert_eq!(scrubber.cut_text("you sent sk-live/aB"), format!("you sent {REDACTED}"));
        assert_eq!(scrubber.cut_text("you sent sk-live/aB…"), format!("you sent {REDACTED}"));
        assert_eq!(scrubber.cut_text("you ask"), "you ask");
    }

    #[test]
    fn names_and_texts_of_data_are_scrubbed() {
        let mut value = serde_json::json!({ KEY: [KEY, {"a": KEY}], "n": 1 });
        Scrubber::of(Some(KEY)).value(&mut value);
        assert_eq!(value, serde_json::json!({ REDACTED: [REDACTED, {"a": REDACTED}], "n": 1 }));
    }

    proptest! {
        #[test]
        fn a_key_in_pieces_is_never_shown(
            before in "[a-zäk-]{0,12}", after in "[a-zäs]{0,12}", twice in any::<bool>(),
            cuts in proptest::collection::vec(any::<usize>(), 0..12),
        ) {
            let text = format!("{before}{KEY}{}{after}", if twice { KEY } else { "" });
            let mut places: Vec<usize> =
                cuts.iter().map(|cut| cut % text.len()).filter(|&cut| text.is_char_boundary(cut)).collect();
            places.extend([0, text.len()]);
            places.sort_unstable();
            let mut shown = String::new();
            let mut keep = |token: Token<'_>| if let Token::Text(text) = token { shown.push_str(text) };
            let scrubber = Scrubber::of(Some(KEY));
            let mut sink = ScrubbedSink::new(&scrubber, &mut keep);
            places.windows(2).for_each(|pair| sink.token(Token::Text(&text[pair[0]..pair[1]])));
            sink.flush();
            prop_assert_eq!(shown, scrubber.text(&text));
        }
    }
}
