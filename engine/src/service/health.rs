//! What the worker says about itself, and the fail-stop after a storage error.
//!
//! Invariant: health only gets worse; after the first storage error no request is acknowledged any more.

use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::log::StorageError;
use crate::vocabulary::Rejection;

/// The state of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Health {
    /// It works.
    Ready,
    /// No new requests; what runs may finish.
    Draining,
    /// The disk is full: nothing new begins, and what is under way goes on as far as the reserve reaches. It is over when there
    /// is space.
    StorageFull {
        /// Which file could not grow.
        why: String,
    },
    /// The log has failed: nothing is acknowledged any more, and the worker leaves.
    StorageFailed {
        /// The first failure, with the file.
        why: String,
    },
    /// It has left.
    Stopped,
}

impl Health {
    fn rank(&self) -> u8 {
        match self {
            Health::Ready => 0,
            Health::Draining => 1,
            Health::StorageFull { .. } | Health::StorageFailed { .. } => 2,
            Health::Stopped => 3,
        }
    }
    /// Why a request cannot be taken now, if so.
    pub fn refusal(&self) -> Option<Rejection> {
        match self {
            Health::Ready => None,
            Health::Draining | Health::Stopped => Some(Rejection::ShuttingDown),
            Health::StorageFull { why } => Some(Rejection::StorageFull { why: why.clone() }),
            Health::StorageFailed { why } => Some(Rejection::StorageFailed { why: why.clone() }),
        }
    }
}

/// Holds the state and tells who watches it.
pub(crate) struct HealthCell {
    sender: watch::Sender<Health>,
    /// The first storage failure, kept when the worker stops.
    failure: Mutex<Option<Health>>,
}

impl HealthCell {
    pub(crate) fn new() -> Self {
        HealthCell { sender: watch::Sender::new(Health::Ready), failure: Mutex::new(None) }
    }
    pub(crate) fn get(&self) -> Health {
        self.sender.borrow().clone()
    }
    /// As [`HealthCell::get`], without a copy.
    pub(crate) fn peek(&self) -> watch::Ref<'_, Health> {
        self.sender.borrow()
    }
    pub(crate) fn watch(&self) -> watch::Receiver<Health> {
        self.sender.subscribe()
    }
    pub(crate) fn worsen(&self, to: Health) {
        if to.rank() == 2 {
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(to.clone());
        }
        self.sender.send_if_modified(|health| {
            let worse = to.rank() > health.rank();
            if worse {
                *health = to;
            }
            worse
        });
    }
    pub(crate) fn storage_failure(&self) -> Option<Health> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a storage error means for the worker.
pub(crate) fn of_storage(error: &StorageError) -> Health {
    let why = error.to_string();
    if error.is_full() { Health::StorageFull { why } } else { Health::StorageFailed { why } }
}

/// What a storage error means for a request.
pub(crate) fn rejection_of(error: &StorageError) -> Rejection {
    let why = error.to_string();
    if error.is_full() { Rejection::StorageFull { why } } else { Rejection::StorageFailed { why } }
}

/// What it means for a request that only reads or copies: the log has not failed with it.
pub fn refusal_of_reading(error: &StorageError) -> Rejection {
    let why = error.to_string();
    match error {
        StorageError::Poisoned { .. } => Rejection::StorageFailed { why },
        StorageError::Taken { dir, detail } => {
            Rejection::Invalid { what: dir.display().to_string(), why: detail.clone() }
        }
        error if error.is_damage() => Rejection::Damaged { why },
        _ => Rejection::StorageError { why },
    }
}
