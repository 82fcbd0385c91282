//! The time that an agent may take.
//!
//! Invariant: time that is spent waiting for people is not counted. It reads no clock and decides nothing about what
//! happens when the time is over. Pure.

use std::time::Duration;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};

/// The time of an agent. Waiting for people does not count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wall {
    deadline: Option<Timestamp>,
    halted_at: Option<Timestamp>,
}

impl Wall {
    pub fn new(limit: Option<Duration>, now: Timestamp) -> Wall {
        Wall { deadline: limit.map(|limit| now.plus(limit)), halted_at: None }
    }
    pub fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }
    /// What is left, as it stood when the clock was halted.
    pub fn left(&self, now: Timestamp) -> Option<Duration> {
        Some(self.deadline?.since(self.halted_at.unwrap_or(now)))
    }
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.left(now).is_some_and(|left| left.is_zero())
    }
    pub fn halt(&mut self, now: Timestamp) {
        self.halted_at.get_or_insert(now);
    }
    pub fn go_on(&mut self, now: Timestamp) {
        if let (Some(halted_at), Some(deadline)) = (self.halted_at.take(), &mut self.deadline) {
            *deadline = deadline.plus(now.since(halted_at));
        }
    }
    pub(super) fn extend(&mut self, by: Duration, now: Timestamp) {
        if let Some(deadline) = &mut self.deadline
            && !by.is_zero()
        {
            // Time that has run out already is not owed.
            *deadline = (*deadline).max(self.halted_at.unwrap_or(now)).plus(by);
        }
    }
}
