//! The shell: the thin loop around the pure machine. Drain, decide, commit, release.
//!
//! ```text
//!  client ─► mailbox of a shard ─► turn thread: load, decide ─► committer: one group, one fsync ─► release effects
//!               ▲       ▲                                                                            │   │
//!               │       └── deadlines (ordered index)                                                │   └► replies
//!               └────────────── activities (tokio) · children · other runs ◄─────────────────────────┘
//! ```
//!
//! Who owns what: a shard's thread owns its loaded runs and its deadlines; the committer owns the order of the log; the
//! runner owns running activity functions. Invariant: nothing leaves a decision before its turn is durable, replies and
//! query answers included. Nothing here decides what a workflow does.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the edge: threads wait, time is measured, atomics are shared"
)]

mod abort;
mod beats;
mod budget;
mod committer;
mod current_turn;
mod fit;
mod fork;
mod health;
mod mailbox;
mod marks;
mod no_room;
mod options;
mod pace;
mod quarantine;
mod release;
mod reset;
mod retention;
pub mod run_queue;
mod runner;
mod shadow;
mod shard;
mod shared;
mod start;
mod starters;
mod stepped;
mod time_skipping;
mod turn;
mod update;
mod waiters;
mod watchdog;
mod worker;

pub use fit::FitReport;
pub use health::{Health, refusal_of_reading};
pub use options::{DataDirectory, Interceptor, WorkerOptions};
pub use retention::{Retention, RetentionInfo};
pub use stepped::{Staged, Stepped, WorkerStep};
pub use worker::{StartError, Worker, WorkerSlots};

pub(crate) use mailbox::{ActivityAct, Answered, ClosedRun, ReplySender, RunRef, ShardMessage, StartThen};
pub(crate) use shared::{CommittedGroup, WorkerShared};
pub(crate) use time_skipping::UnlockedTime;
pub(crate) use worker::housekeep;
