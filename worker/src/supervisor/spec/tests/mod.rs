//! The contract of specs, row by row, with the exact texts.

mod building;
mod fixtures;
mod foreign;
mod presets;
mod reading;
mod rows;
mod running;
mod script;
mod silence;
mod unread;
