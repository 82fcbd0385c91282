//! Workflow authoring: what workflow code sees, and the drivers that turn history into commands.
//!
//! ```text
//!   history ──► job ──► driver ──► workflow code ──► commands ──► (live) the run machine: events
//!                                                        └──────► (replay) check_activation: the events that are there
//! ```
//!
//! Invariant: the same jobs give the same commands, byte for byte, whatever the machine, thread, cache or build
//! profile. Nothing here knows a clock, a disk, a socket, a random source, tokio or an unordered map; user code that
//! uses one is not stopped here, and is caught by replay.

mod asked;
mod async_driver;
mod concurrency;
mod context;
mod cx;
mod executor;
mod jobs;
mod ledger;
mod logs;
mod machine_driver;
mod matcher;
mod nondeterminism;
mod options;
mod panic;
mod pending;
mod registry;
mod replayer;
mod saga;
mod shadow;
mod signaled_start;
mod state_machine;
#[cfg(test)]
mod tests;

pub use asked::{ContentHash, Detail as RequestDetail, Hint, Request, RequestKind};
pub use concurrency::*;
pub use context::branch::PATCH_BRANCH_WAITS;
pub use context::shared::take_stray_request;
pub use context::{
    ActivityFuture, CancellationFuture, ChildFuture, ChildHandle, ChildStartFuture, FAILURE_CONTINUE_AS_NEW,
    JoinHandle, MessageFuture, OperationHandle, SignalChannel, SignalFuture, StateCell, TimerFuture, WaitFuture,
    WfContext,
};
pub use cx::Cx;
pub use jobs::{JobSources, JobTable, job_of, markers_of};
pub use ledger::on_every_request;
pub use machine_driver::RestoreError;
pub use matcher::{Locate, RunIdentity, align_requests, check_activation};
pub use nondeterminism::{ActivatingEvent, AlignedLine, NearestMatch, NonDeterminism};
pub use panic::{inside_workflow_code, leave_when};
pub use registry::WorkflowRegistry;
pub use replayer::{ReplayError, ReplayStep, Replayed, Replayer, replay};
pub use saga::{FAILURE_COMPENSATION, PATCH_SAGA_DROPPED, Saga};
pub use shadow::SnapshotMismatch;
pub(crate) use shadow::{ShadowedDriver, TellMismatch};
pub use state_machine::{RunNames, StateMachine, WorkflowEvent};
