//! worker
pub mod capability;
#[cfg(test)]
pub(crate) mod stage;
pub mod supervisor;
