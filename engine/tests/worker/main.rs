//! The whole engine, through the public API: one file a family of features.
#![expect(clippy::disallowed_methods, reason = "tests spawn what they wait for")]

mod chains;
mod children;
mod crashes;
mod deploys;
mod kit;
mod limits;
mod messages;
mod retention;
mod sagas;
mod signals;
mod smoke;
mod storage;
mod timers;
mod visibility;
