//! Redaction: a history without what users wrote, for showing to others.
//!
//! Invariant: every payload is replaced by the digest that replay compares, so that two redacted histories can still be
//! diffed; ids, names, types, numbers and times are kept. A redacted history says so and is not replayed: the code would
//! not get the results it got. Free text (messages, reasons, summaries, searchable text) goes only when asked.

use std::borrow::Cow;

use bosun_engine::*;

use super::visit::{self, Visitor};

/// What an export leaves out.
/// Ordered: more is later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Redaction {
    /// Nothing.
    #[default]
    None,
    /// Payloads become their digests.
    Payloads,
    /// And failure messages, reasons, summaries and searchable text become the digest of their text.
    PayloadsAndTexts,
}

pub(super) fn redact(turns: &mut [Turn], redaction: Redaction) {
    if redaction == Redaction::None {
        return;
    }
    let mut redactor = Redactor { texts: redaction == Redaction::PayloadsAndTexts };
    turns.iter_mut().for_each(|turn| visit::turn(turn, &mut redactor));
}

/// How a text begins that is the digest of one.
const REDACTED: &str = "redacted:";

struct Redactor {
    texts: bool,
}

impl Visitor for Redactor {
    fn payload(&mut self, payload: &mut Payload) {
        if payload.encoding != ENCODING_REDACTED {
            let digest = payload.digest().to_vec();
            *payload = Payload { encoding: Cow::Borrowed(ENCODING_REDACTED), data: digest.into() };
        }
    }
    fn text(&mut self, text: &mut String) {
        // What is redacted already keeps its digest: it is still that of what users wrote.
        let is_redacted = text.strip_prefix(REDACTED).is_some_and(|digest| {
            digest.len() == 16 && digest.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        });
        if self.texts && !text.is_empty() && !is_redacted {
            let digest = Payload::bytes(text.clone().into_bytes()).digest();
            *text = format!("{REDACTED}{}", hex(&digest[..8]));
        }
    }
    fn attributes(&mut self, attributes: &mut SearchAttributes) {
        if !self.texts {
            return;
        }
        for value in attributes.values_mut() {
            match value {
                SearchValue::Keyword(text) | SearchValue::Text(text) => self.text(text),
                SearchValue::KeywordList(texts) => texts.iter_mut().for_each(|text| self.text(text)),
                SearchValue::Bool(_)
                | SearchValue::Int(_)
                | SearchValue::Float(_)
                | SearchValue::Datetime(_)
                | SearchValue::Unset => {}
            }
        }
    }
    fn causes(&mut self, _length: usize) {}
}
