//! The secrets of a connection: read when it is opened, and cut out of everything that comes back.
//!
//! Invariant: shown by nothing, not even by `Debug`; an error names where a secret should be, and never what it is.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::{MCP_SECRET, McpValue};
use super::trouble::Trouble;
use crate::capability::model::SecretRef;
use crate::capability::scrub::{SPELLING_FACTOR, Scrubber};

/// Shorter values are words, and would cut holes into every text.
const SECRET_LEN_MIN: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Secrets {
    scrubber: Scrubber,
    /// Bytes of the longest secret.
    longest: usize,
}

impl Secrets {
    /// The value behind a reference, to be sent and to be cut out from now on.
    pub(super) async fn resolve(&mut self, reference: &SecretRef) -> Result<String, Trouble> {
        let secret = reference.resolve().await.map_err(|why| Trouble::safe(MCP_SECRET, why.message))?;
        self.add(secret.expose());
        Ok(secret.expose().to_owned())
    }

    fn add(&mut self, secret: &str) {
        self.scrubber.add(secret, SECRET_LEN_MIN);
        self.longest = self.longest.max(secret.len());
    }

    pub(super) async fn values(
        &mut self,
        values: &BTreeMap<String, McpValue>,
    ) -> Result<Vec<(String, String)>, Trouble> {
        let mut resolved = Vec::new();
        for (name, value) in values {
            let value = match value {
                McpValue::Text(plain) => plain.text.clone(),
                McpValue::Secret(reference) => self.resolve(reference).await?,
            };
            resolved.push((name.clone(), value));
        }
        Ok(resolved)
    }

    pub(super) fn text(&self, text: &str) -> String {
        self.scrubber.text(text)
    }
    /// For a text that was cut, perhaps inside a secret.
    pub(super) fn cut_text(&self, text: &str) -> String {
        self.scrubber.cut_text(text)
    }
    /// For the end of a text that lost its beginning, perhaps inside a secret, and may go on.
    pub(super) fn tail_text(&self, tail: &str) -> String {
        // Whole secrets first: one that lies across the place up to which text is dropped would lose its beginning.
        let text = self.cut_text(tail);
        let dropped = (self.longest * SPELLING_FACTOR).min(text.len());
        let from = (dropped..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        text[from..].to_owned()
    }
    pub(super) fn value(&self, value: &mut Value) {
        self.scrubber.value(value);
    }
    pub(super) fn trouble(&self, trouble: Trouble) -> Trouble {
        Trouble { message: self.cut_text(&trouble.message), ..trouble }
    }

    #[cfg(test)]
    pub(super) fn of_texts(texts: &[&str]) -> Secrets {
        let mut secrets = Secrets::default();
        texts.iter().for_each(|text| secrets.add(text));
        secrets
    }
}
