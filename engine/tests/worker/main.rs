//! The whole engine, through the public API: one file a family of features.

mod scene;

mod activities;
mod activity_limits;
mod cancellation;
mod completion_by_token;
mod smoke;
mod starting;
mod workflow_limits;
