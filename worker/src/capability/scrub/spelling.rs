//! The ways in which a secret may be spelled, and whether one of them stands at a place of a text.
//!
//! Invariant: each byte of an escaped secret may be spelled in a way of its own, so that a secret that was escaped in part,
//! or in letters of either case, is found like one that was escaped whole. Every search ends within the length of the
//! longest spelling. It cuts nothing out. Pure.

/// What may stand between two bytes in hexadecimal, or between two lines of base64: so many of [`GAPS`] or [`BREAKS`].
const GAPS_MAX: usize = 4;
const GAPS: [&[u8]; 13] = [b" ", b":", b",", b"-", b"_", b"\t", b"\r", b"\n", b"\\n", b"\\r", b"\\t", b"0x", b"\\x"];
const BREAKS: [&[u8]; 5] = [b"\r", b"\n", b"\\n", b"\\r", b" "];

/// No spelling has more bytes for one byte of the secret: two digits and the widest gap.
pub(in crate::capability) const SPELLING_FACTOR: usize = 10;

/// What stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpellingMatch {
    Nothing,
    /// The text ends inside what may be the secret.
    Begun,
    /// The whole secret, in so many bytes.
    Full(usize),
}

/// One spelling of one unit of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UnitSpelling {
    bytes: Vec<u8>,
    any_case: bool,
}

impl UnitSpelling {
    fn is_begun_by(&self, text: &[u8]) -> bool {
        let length = self.bytes.len().min(text.len());
        let (own, text) = (&self.bytes[..length], &text[..length]);
        if self.any_case { own.eq_ignore_ascii_case(text) } else { own == text }
    }
}

/// A family of spellings: for every unit of the secret the ways to write it, and what may stand between units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SpellingForm {
    units: Vec<Vec<UnitSpelling>>,
    gaps: &'static [&'static [u8]],
    /// The last unit holds a part of the secret only, and may be missing.
    open_end: bool,
}

impl SpellingForm {
    /// All families in which a secret is looked for.
    pub(super) fn all_of(secret: &[u8]) -> Vec<SpellingForm> {
        let form = |units, gaps, open_end| SpellingForm { units, gaps, open_end };
        let escaped = form(secret.iter().map(|byte| escapes(*byte)).collect(), &[][..], false);
        let digits = |byte: &u8| vec![UnitSpelling { bytes: format!("{byte:02x}").into_bytes(), any_case: true }];
        let hexadecimal = form(secret.iter().map(digits).collect(), &GAPS, false);
        let mut all = vec![escaped, hexadecimal];
        for offset in 0..3 {
            let core = base64_core(secret, offset).into_iter().map(base64_digit);
            let (lead, trail) = (base64_lead(secret, offset), base64_trail(secret, offset));
            let units: Vec<Vec<UnitSpelling>> = core.chain(trail.iter().cloned()).collect();
            // Where the text was cut before it, the first digit may be missing.
            all.extend(lead.map(|lead| form([vec![lead], units.clone()].concat(), &BREAKS, trail.is_some())));
            all.push(form(units, &BREAKS, trail.is_some()));
        }
        all
    }

    /// The bytes that one of its spellings may begin with.
    pub(super) fn firsts(&self) -> impl Iterator<Item = u8> {
        let ways = self.units.first().into_iter().flatten();
        ways.flat_map(|way| {
            let first = way.bytes.first().copied().unwrap_or_default();
            let other =
                if first.is_ascii_lowercase() { first.to_ascii_uppercase() } else { first.to_ascii_lowercase() };
            [first, if way.any_case { other } else { first }]
        })
    }

    /// Whether a spelling stands at the beginning of the text. Where an escape could also be plain text, both are tried.
    pub(super) fn at_start_of(&self, text: &[u8]) -> SpellingMatch {
        match self.walk(text) {
            (0, true) => SpellingMatch::Begun,
            (0, false) => SpellingMatch::Nothing,
            (length, _) => SpellingMatch::Full(length),
        }
    }

    /// The length of the longest spelling that begins the text, and whether what follows may make a longer one.
    fn walk(&self, text: &[u8]) -> (usize, bool) {
        // Most places are told by their first letters, and cost nothing more.
        if !self.may_stand_at_start_of(text) {
            return (0, false);
        }
        let (mut found, mut begun) = (0, false);
        let mut places = vec![(0, 0)];
        while let Some((unit, at)) = places.pop() {
            if unit + usize::from(self.open_end) >= self.units.len() {
                found = found.max(at);
            }
            let Some(ways) = self.units.get(unit) else { continue };
            let at = if unit > 0 { self.after_gaps(text, at) } else { at };
            let rest = text.get(at..).unwrap_or_default();
            begun |= unit > 0 && self.gaps.iter().any(|gap| gap.len() > rest.len() && gap.starts_with(rest));
            for way in ways.iter().filter(|way| way.is_begun_by(rest)) {
                if way.bytes.len() <= rest.len() {
                    places.push((unit + 1, at + way.bytes.len()));
                } else {
                    begun |= at > 0 || !rest.is_empty();
                }
            }
        }
        (found, begun)
    }

    /// Whether the first unit stands there, and what follows it may be the second.
    fn may_stand_at_start_of(&self, text: &[u8]) -> bool {
        let goes_on = |way: &UnitSpelling| {
            let rest = text.get(way.bytes.len()..).unwrap_or_default();
            let begins = |gap: &&[u8]| rest.len() < gap.len() || rest[..gap.len()].eq_ignore_ascii_case(gap);
            let next = self.units.get(1);
            next.is_none_or(|ways| ways.iter().any(|way| way.is_begun_by(rest))) || self.gaps.iter().any(begins)
        };
        let ways = self.units.first().into_iter().flatten();
        ways.filter(|way| way.is_begun_by(text)).any(goes_on)
    }

    /// Whether the text begins with the secret but for a part of its last byte, which may follow where the text ends.
    pub(super) fn may_go_on(&self, text: &[u8]) -> bool {
        let (found, begun) = self.walk(text);
        self.open_end && found > 0 && begun
    }

    fn after_gaps(&self, text: &[u8], mut at: usize) -> usize {
        for _ in 0..GAPS_MAX {
            let rest = text.get(at..).unwrap_or_default();
            match self.gaps.iter().find(|gap| rest.len() >= gap.len() && rest[..gap.len()].eq_ignore_ascii_case(gap)) {
                Some(gap) => at += gap.len(),
                None => break,
            }
        }
        at
    }
}

/// A byte as it is, and as URLs, JSON, programs and HTML write it.
fn escapes(byte: u8) -> Vec<UnitSpelling> {
    let plain = |bytes: Vec<u8>| UnitSpelling { bytes, any_case: false };
    let folded = |text: String| UnitSpelling { bytes: text.into_bytes(), any_case: true };
    let mut ways = vec![
        plain(vec![byte]),
        folded(format!("%{byte:02x}")),
        folded(format!("%25{byte:02x}")),
        folded(format!("\\u{byte:04x}")),
        folded(format!("\\x{byte:02x}")),
        folded(format!("&#x{byte:x};")),
        folded(format!("&#x{byte:02x};")),
        folded(format!("&#{byte};")),
    ];
    let named: &[&str] = match byte {
        b'"' => &["\\\"", "&quot;", "\\\\\\\""],
        b'\\' => &["\\\\", "\\\\\\\\"],
        b'/' => &["\\/"],
        b'\'' => &["\\'", "&apos;", "'\\''"],
        b'&' => &["&amp;"],
        b'<' => &["&lt;"],
        b'>' => &["&gt;"],
        b' ' => &["+"],
        b'\n' => &["\\n"],
        b'\r' => &["\\r"],
        b'\t' => &["\\t"],
        _ => &[],
    };
    ways.extend(named.iter().map(|text| folded((*text).to_owned())));
    ways.dedup();
    ways
}

/// A digit of base64, of either alphabet, and as URLs and JSON write it.
fn base64_digit(digit: u8) -> Vec<UnitSpelling> {
    let texts: &[&str] = match digit {
        b'+' => &["+", "-", "%2b", "\\u002b"],
        b'/' => &["/", "_", "%2f", "\\/"],
        digit => return vec![UnitSpelling { bytes: vec![digit], any_case: false }],
    };
    texts.iter().map(|text| UnitSpelling { bytes: text.as_bytes().to_vec(), any_case: true }).collect()
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The digit before the core, if there is one: its last bits are the secret's first ones, the others those of its neighbour.
fn base64_lead(secret: &[u8], offset: usize) -> Option<Vec<UnitSpelling>> {
    let own = match offset {
        1 => 4,
        2 => 2,
        _ => return None,
    };
    let bits = secret.first()? >> (8 - own);
    let digits = (0..1_u8 << (6 - own)).map(|others| DIGITS[usize::from(others << own | bits)]);
    Some(digits.flat_map(base64_digit).collect())
}

/// The digit behind the core, if there is one: its first bits are the secret's last ones.
fn base64_trail(secret: &[u8], offset: usize) -> Option<Vec<UnitSpelling>> {
    let own = (offset + secret.len()) * 8 % 6;
    let bits = secret.last()? & ((1 << own) - 1);
    let digits = (0..1_u8 << (6 - own)).map(|others| DIGITS[usize::from(bits << (6 - own) | others)]);
    (own > 0).then(|| digits.flat_map(base64_digit).collect())
}

/// What base64 makes of the bytes `offset` places after a group of three begins, without the characters that also depend
/// on the neighbours.
pub(super) fn base64_core(bytes: &[u8], offset: usize) -> Vec<u8> {
    let padded: Vec<u8> = std::iter::repeat_n(0, offset).chain(bytes.iter().copied()).collect();
    let first = (offset * 8).div_ceil(6);
    let last = padded.len() * 8 / 6;
    let bit = |i: usize| padded[i / 8] >> (7 - i % 8) & 1;
    let digit = |place: usize| (place * 6..place * 6 + 6).fold(0_u8, |digit, i| digit << 1 | bit(i));
    (first..last).map(|place| DIGITS[usize::from(digit(place))]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(secret: &[u8], text: &[u8]) -> SpellingMatch {
        let all = SpellingForm::all_of(secret).into_iter().map(|form| form.at_start_of(text));
        all.max_by_key(|found| match found {
            SpellingMatch::Nothing => 0,
            SpellingMatch::Begun => 1,
            SpellingMatch::Full(length) => 1 + length,
        })
        .unwrap()
    }

    #[test]
    fn base64_is_base64() {
        assert_eq!(base64_core(b"Man", 0), b"TWFu");
        assert_eq!(base64_core(b"light work", 0), b"bGlnaHQgd29ya");
        // "xMan" and "xyMan" hold these cores.
        let core = |offset| String::from_utf8(base64_core(b"Man", offset)).unwrap();
        assert!("eE1hbg==".contains(&core(1)) && "eHlNYW4=".contains(&core(2)));
    }

    #[test]
    fn each_byte_may_be_spelled_in_its_own_way() {
        for text in
            ["a%2Fb%2fc", "%61/b\\u002Fc", "a\\/b&#x2f;c", "612F 62:2f\n63", "61, 0x2f, 0x62, 0x2f, 0x63", "YS9i\nL2"]
        {
            assert_eq!(find(b"a/b/c", text.as_bytes()), SpellingMatch::Full(text.len()), "{text}");
            for end in 1..text.len() {
                assert_ne!(find(b"a/b/c", &text.as_bytes()[..end]), SpellingMatch::Nothing, "{}", &text[..end]);
            }
        }
        assert_eq!(find(b"a/b/c", b"a/b-c"), SpellingMatch::Nothing);
        assert_eq!(find(b"a/b/c", b""), SpellingMatch::Nothing);
        // What looks like an escape may be the secret itself.
        assert_eq!(find(b"%2525x", b"%2525x."), SpellingMatch::Full(6));
        assert_eq!(find(b"%2525x", b"%25%32525x"), SpellingMatch::Full(10));
    }
}
