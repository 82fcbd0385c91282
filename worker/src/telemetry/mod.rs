//! What a worker measures of its own work, for whoever watches it (engine.md E39).
//!
//! Invariant: telemetry only looks. It refuses nothing, decides nothing and waits for nothing, and what it is told comes
//! from committed work. Replays are not counted: they go through no worker.

pub(crate) mod metrics;
#[cfg(feature = "otel")]
pub(crate) mod otel;
mod runs;
