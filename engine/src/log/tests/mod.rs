//! Tests of the log as a whole. Each file is one promise.

mod ahead;
mod backup;
mod beside;
mod copies;
mod crash;
mod damage;
mod directory;
mod encryption;
mod epoch;
mod golden;
mod journal;
mod opening;
mod salvage;
pub(crate) mod samples;
mod space;
pub(crate) mod story;
mod verified;
