//! Whole runs: every system through the real workflow, each scene doubted four ways.

mod agents;
mod claims;
mod market;
mod people;
mod played;
mod routes;
mod talks;
mod truth;
