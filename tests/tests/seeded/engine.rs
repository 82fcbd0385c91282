//! The checks of the whole engine, compiled in from where they belong.

#[path = "../../../engine/tests/worker/activities.rs"]
mod activities;
#[path = "../../../engine/tests/worker/completion_by_token.rs"]
mod completion_by_token;
#[path = "../../../engine/tests/worker/crashes.rs"]
mod crashes;
#[path = "../../../engine/tests/worker/signals.rs"]
mod signals;
#[path = "../../../engine/tests/worker/storage.rs"]
mod storage;
#[path = "../../../engine/tests/worker/timers.rs"]
mod timers;
#[path = "../../../engine/tests/worker/visibility.rs"]
mod visibility;
