//! The prompts of the supervisors.
//!
//! Invariant: a prompt is a pure function of plain data that the run has recorded, its time included; the same data make
//! the same bytes. Its hash is noted with the decision, so that a replay can prove it. No state is kept here.

/// The hash that is recorded with a decision: BLAKE3 of the text, in hex.
pub fn prompt_hash(prompt: &str) -> String {
    blake3::hash(prompt.as_bytes()).to_hex().to_string()
}
