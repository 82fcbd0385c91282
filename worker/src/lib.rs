//! worker
pub mod capability;
