//! The whole engine, through the public API: one file a family of features.
#![expect(clippy::disallowed_methods, reason = "tests spawn what they wait for")]

mod kit;
mod last_words;
mod scene;

mod activities;
mod activity_limits;
mod activity_updates;
mod cancellation;
mod chains;
mod children;
mod completion_by_token;
mod concurrency;
mod crashes;
mod defects;
mod deploys;
mod draining;
mod fork_crashes;
mod forks;
mod forks_paused;
mod forks_signals;
mod forks_under_way;
mod interceptors;
mod isolation;
mod limits;
mod loaded;
mod logs;
mod messages;
mod mistakes;
mod namespaces;
mod pausing;
mod reset_crashes;
mod resets;
mod resets_of_chains;
mod retention;
mod sagas;
mod signals;
mod slots;
mod smoke;
mod snapshots;
mod starting;
mod storage;
mod timers;
mod typed;
mod visibility;
mod workflow_limits;
