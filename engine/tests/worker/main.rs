//! The whole engine, through the public API: one file a family of features.

mod kit;
mod smoke;
mod timers;
