//! The secrets of a connection: read when it is opened, and cut out of everything that comes back.
//!
//! Invariant: shown by nothing, not even by `Debug`; an error names where a secret should be, and never what it is.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::{MCP_SECRET, McpValue};
use super::trouble::Trouble;
use crate::capability::model::SecretRef;
use crate::capability::scrub::Scrubber;

/// Shorter values are words, and would cut holes into every text.
const SECRET_LEN_MIN: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Secrets(Scrubber);

impl Secrets {
    /// The value behind a reference, to be sent and to be cut out from now on.
    pub(super) async fn resolve(&mut self, reference: &SecretRef) -> Result<String, Trouble> {
        let secret = reference.resolve().await.map_err(|why| Trouble::safe(MCP_SECRET, why.message))?;
        self.0.add(secret.expose(), SECRET_LEN_MIN);
        Ok(secret.expose().to_owned())
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
        self.0.text(text)
    }
    /// For a text that was cut, perhaps inside a secret.
    pub(super) fn cut_text(&self, text: &str) -> String {
        self.0.cut_text(text)
    }
    pub(super) fn value(&self, value: &mut Value) {
        self.0.value(value);
    }
    pub(super) fn trouble(&self, trouble: Trouble) -> Trouble {
        Trouble { message: self.cut_text(&trouble.message), ..trouble }
    }

    #[cfg(test)]
    pub(super) fn of_texts(texts: &[&str]) -> Secrets {
        let mut scrubber = Scrubber::default();
        texts.iter().for_each(|text| scrubber.add(text, SECRET_LEN_MIN));
        Secrets(scrubber)
    }
}
