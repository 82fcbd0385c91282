//! What a worker measures of its own work, for whoever watches it (E39).
//!
//! Invariant: telemetry only looks. It refuses nothing and decides nothing, no work waits for it, and what it is told comes
//! from committed work. Replays are not counted: they go through no worker. Whoever scrapes waits for what runs say, and not long.

mod closed;
pub(crate) mod metrics;
#[cfg(feature = "otel")]
pub(crate) mod otel;
pub(crate) mod prometheus_text;
mod runs;
