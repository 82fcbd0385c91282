//! Schedules on the production worker, with a clock that skips (E24, G18).

mod downtime;
mod kit;
mod lives;
mod long;
mod many;
mod overlap;
mod people;
