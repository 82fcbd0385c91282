//! What workflow code logs: each line once, and with the run it is of (E39).
//!
//! Invariant: code that runs live is inside a `workflow_turn` span with the fields `workflow_type`, `workflow_id`,
//! `run_id`, `event_id` (of the event that it is told, and for a query of the one that it was told last) and `job`; code that is replayed runs under no subscriber, so its
//! lines and spans are nowhere. Neither changes what the code does, unless it asks: `tracing::enabled!` is false while it is replayed. Without a subscriber all of this costs one load. A span
//! that replayed code opened, and holds on to, stays silent when the code goes on live; its lines do not.

use tracing::dispatcher::{Dispatch, with_default};
use tracing::level_filters::LevelFilter;

use crate::vocabulary::*;

/// What a line of workflow code is of.
pub(crate) struct LoggedTurn<'a> {
    pub(crate) workflow_type: &'a str,
    /// Absent after a snapshot of an older build, and where nobody listens.
    pub(crate) workflow_id: Option<&'a WorkflowId>,
    pub(crate) run_id: RunId,
    /// How many events there are: the number of the one that is told.
    pub(crate) history: HistorySize,
    pub(crate) job: &'static str,
    pub(crate) replaying: bool,
}

/// Whether anything that is logged may be heard: without it no turn needs its names.
pub(crate) fn somebody_listens() -> bool {
    LevelFilter::current() != LevelFilter::OFF
}

impl LoggedTurn<'_> {
    /// Runs workflow code.
    pub(crate) fn run<T>(self, code: impl FnOnce() -> T) -> T {
        if !somebody_listens() {
            return code();
        }
        if self.replaying {
            return with_default(&Dispatch::none(), code);
        }
        // The level of a span says which filters let it pass: where an error may be logged, its run must be known.
        let span = tracing::error_span!(
            "workflow_turn",
            workflow_type = self.workflow_type,
            workflow_id = self.workflow_id.map(tracing::field::display),
            run_id = %self.run_id,
            event_id = self.history.events,
            job = self.job,
        );
        span.in_scope(code)
    }
}
