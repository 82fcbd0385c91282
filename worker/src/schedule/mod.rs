//! Schedules: workflows that are started at the times that a spec names (E24), in Temporal's words.
//!
//! ```text
//!   spec ──► times (next · due · missed) ──► policy (start | wait | skip | end the others) ──► action
//!    what a person writes      pure, recorded               pure                                 │
//!        ▲                                                                                       ▼
//!   updates, queries ──► run: the workflow `bosun.schedule` ──child──► `bosun.schedule.action` ──child──► what is started
//!                          ▲                                                │
//!                          └───────────── signal: how it ended ◄────────────┘
//! ```
//!
//! A schedule is itself a run: it lives in the same log, is replayed, forked and shown like any other, and parks at no cost.
//! Each start is a small run of its own (`action`), because a start may outlive the run of the schedule that made it (which
//! continues as new to keep its history short), and because only a parent may end a run at once. It starts the workflow as
//! its child, under an id made of the nominal time, tells the schedule how that ended, and ends with it. So a start that
//! is asked for again after a crash is the same start, and none is lost: both are what the engine promises of children.
//!
//! | what | where |
//! |---|---|
//! | what a person writes, and what is wrong with it | `spec`, `calendar`, `cron`, `text` |
//! | next times, time zones, jitter, what was missed | `times` |
//! | overlap | `policy` |
//! | what a schedule knows; what people send it | `standing`, `messages` |
//! | the words for what it says of itself | `shown` |
//! | the workflows | `run` (what goes by itself), `asked` (by people), `starts`, `action` |
//!
//! Invariant: everything here is pure. What depends on the data of time zones is decided once and recorded as a side effect,
//! so that a program with newer data replays what the older one did. No nominal time is started twice by itself: `cursor`
//! only goes forward.

#[doc(hidden)]
pub mod action;
mod asked;
pub mod calendar;
#[doc(hidden)]
pub mod cron;
#[doc(hidden)]
pub mod messages;
#[doc(hidden)]
pub mod policy;
#[doc(hidden)]
pub mod run;
#[doc(hidden)]
pub mod shown;
pub mod spec;
#[doc(hidden)]
pub mod standing;
mod starts;
#[doc(hidden)]
pub mod text;
#[doc(hidden)]
pub mod times;

pub use messages::Backfill;
pub use policy::Overlap;
pub use run::{SCHEDULE, register};
pub use spec::{InvalidSchedule, Schedule};

/// What the workflow id of a schedule begins with.
pub const ID_PREFIX: &str = "schedule:";

/// Why the run of a schedule is not ended as other runs are: that deletes the schedule, and only its own verbs say so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{id} is a schedule: to end its run deletes it, and it starts nothing any more")]
pub(crate) struct IsSchedule {
    /// Without the prefix.
    pub(crate) id: String,
}

impl IsSchedule {
    /// Of a run that answers to the schedule's verbs. One that is held does not: it is ended as other runs are.
    pub(crate) fn of(info: &bosun_engine::RunInfo) -> Result<(), IsSchedule> {
        match info.workflow_id.as_str().strip_prefix(ID_PREFIX) {
            Some(id) if info.workflow_type.as_str() == SCHEDULE && info.status.is_open() && !info.held => {
                Err(IsSchedule { id: id.to_owned() })
            }
            _ => Ok(()),
        }
    }
}

/// Whether a run that no schedule starts may have a search attribute of this name.
///
/// # Errors
/// It is one of those by which the runs of a schedule are found.
pub(crate) fn only_by_schedules(name: &bosun_engine::FieldName) -> Result<(), String> {
    match [action::ATTRIBUTE_ID, action::ATTRIBUTE_TIME].contains(&name.as_str()) {
        true => Err("schedules give it to the runs that they start; choose another name".to_owned()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
