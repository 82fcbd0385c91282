//! Moving runs from one engine to another: from a data directory to a Temporal cluster, and back (the requirements of the engine §8 of DESIGN).
//!
//! ```text
//!   here:   supervisor, agent ──migrate_v1──► bosun.migration (does nothing, keeps what it hears) ──moved──► completed
//!                                                │  ▲                                        ▲
//!   there:                                       └──► the same workflow id, with all of the state
//! ```
//!
//! The run ends here at its border, as a long one does (`supervisor::run::border`, `agent::border`), but in a run of the type
//! `bosun.migration`, which holds the input of the next one. Then the run is started there, what was said to it here meanwhile
//! is passed on, and the run here completes.
//!
//! Invariant: the work goes on in one place: while the run here waits, it does nothing, and once it is started there, it does
//! not come back here. Each step may be done twice: a start there is known by the run that it comes from, and so is a message.
//! A run that cannot be moved stays as it is, with the reason.

mod carry_out;
mod run;

use bosun_engine::workflow::WorkflowRegistry;

pub(crate) use carry_out::{MOVES, Move, NotMoved, move_run, stay};
pub(crate) use run::MigrationRun;

/// The code of runs that wait to be moved.
pub(crate) fn register(workflows: WorkflowRegistry) -> WorkflowRegistry {
    workflows.state_machine::<MigrationRun>()
}
