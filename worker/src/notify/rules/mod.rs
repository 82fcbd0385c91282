//! What notifications are, decided without looking at anything but what is handed in.
//!
//! Invariant: pure. Time, the log and the owner's configuration come in as values; what the data of time zones says is recorded
//! where it is asked.

pub mod channel;
pub mod occasion;
pub mod pace;
pub mod quiet;
pub mod run;
pub mod told;
