//! The whole engine, through the public API: one file a family of features.

mod chains;
mod children;
mod deploys;
mod kit;
mod messages;
mod signals;
mod smoke;
mod timers;
mod visibility;
