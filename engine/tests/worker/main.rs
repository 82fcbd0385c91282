//! The whole engine, through the public API: one file a family of features.
#![expect(clippy::disallowed_methods, reason = "tests spawn what they wait for")]

mod children;
mod deploys;
mod kit;
mod messages;
mod signals;
mod smoke;
mod timers;
