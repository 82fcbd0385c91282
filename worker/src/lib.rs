//! worker
pub mod capability;
pub mod supervisor;
