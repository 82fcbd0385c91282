//! The whole engine, through the public API: one file a family of features.

mod children;
mod deploys;
mod kit;
mod messages;
mod signals;
mod smoke;
mod timers;
