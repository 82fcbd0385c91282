//! By which name a run goes: that of the first run of those in which it goes on, and in a fork its own.
//!
//! Invariant: ids that people were told stay what they are, in whichever run the supervisor goes on; a fork is another run,
//! and says nothing under the name of its source once what was copied is over. It decides nothing.

use std::borrow::Cow;

use bosun_engine::workflow::RunNames;
use bosun_engine::{RunId, WorkflowId};

use super::SupervisorRun;

impl SupervisorRun {
    /// What was copied into a fork was said under the name of its source. From there on it bears its own, and there is
    /// nobody above that began it. Whether it bore another one before.
    pub(super) fn bear_own_name(&mut self, run: RunId, id: Option<&WorkflowId>) -> bool {
        let run = run.to_string();
        let before = self.own_run() != run;
        if before {
            self.id = id.map_or_else(|| run.clone(), ToString::to_string);
            (self.run, self.borne) = (run, None);
            self.context.above = None;
        }
        before
    }

    /// The run that it is.
    fn own_run(&self) -> &str {
        self.borne.as_ref().unwrap_or(&self.run)
    }

    /// The run as whoever asks it calls it: a fork may be asked before it has heard of anything, and bears its own name then.
    pub(super) fn named(&self, names: &RunNames) -> Cow<'_, SupervisorRun> {
        if names.run_id.to_string() == self.own_run() {
            return Cow::Borrowed(self);
        }
        let mut own = self.clone();
        own.bear_own_name(names.run_id, names.workflow_id.as_ref());
        Cow::Owned(own)
    }
}
