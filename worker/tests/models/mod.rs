//! Every preset with models in the place of its scripts, over the real wire, against a provider that plays all parts.
//!
//! Invariant: the provider is on loopback and the clock is virtual; whatever is in a history is never asked for again, and
//! the provider counts. What a model says is made of what it is told, as a careful model would.

mod own;
mod plays;
mod scenes;
mod tapes;
