//! What the screen shows of a run that is waited for: up to which event, and of which run of its chain.
//!
//! Invariant: where the end of the chain is waited for, the run that goes on is the one that is shown and asked; a run that
//! begins when the one before has ended may be seen a moment later. It decides nothing about the wait.

use bosun_engine::*;

use super::output::Screen;
use super::progress::{ProgressBoard, Watch};
use super::result::held_text;
use crate::backend::Backend;

/// Whoever waits looks this seldom, in seconds, whether the run is held: no event tells of it.
const HELD_EVERY: u32 = 3;

/// See the module.
pub(super) struct Shown {
    pub(super) progress: ProgressBoard,
    /// The run, once it is known.
    pub(super) of: Target,
    /// The first run of its chain.
    first: Option<RunId>,
    /// The next event.
    pub(super) next: EventId,
    /// How often it was looked.
    ticks: u32,
    /// Whether it was said that the run is held.
    held: bool,
    /// Whether the end of the chain of runs is waited for, and not that of this one.
    pub(super) follow_runs: bool,
}

impl Shown {
    pub(super) fn new(watch: Watch, of: Target, follow_runs: bool) -> Self {
        let progress = ProgressBoard::new(watch, of.clone());
        Shown { progress, of, first: None, next: EventId(1), ticks: 0, held: false, follow_runs }
    }

    /// Finds out which run it is, if that is not known, and notes whether a worker carries runs on.
    pub(super) async fn begin(&mut self, backend: &dyn Backend, carried_on: bool) {
        self.progress.carried_on = carried_on;
        if self.first.is_none()
            && let Ok(found) = backend.describe(self.of.clone()).await
        {
            (self.of.run_id, self.first) = (Some(found.info.run_id), Some(found.info.first_run));
        }
    }

    /// Once the events of the run have ended: turns to the one in which it goes on, if there is one. Those between that have
    /// ended meanwhile are passed over.
    pub(super) async fn goes_on(&mut self, backend: &dyn Backend) -> bool {
        if !self.follow_runs {
            return false;
        }
        let Ok(newest) = backend.describe(Target { run_id: None, ..self.of.clone() }).await else { return false };
        if Some(newest.info.run_id) == self.of.run_id || Some(newest.info.first_run) != self.first {
            return false;
        }
        self.turn_to(newest.info.run_id);
        true
    }

    fn turn_to(&mut self, run: RunId) {
        (self.of.run_id, self.next) = (Some(run), EventId(1));
        self.progress.turn_to(self.of.clone());
    }

    /// The last run of the chain has ended.
    pub(super) fn ended(&mut self, result: Option<&RunResult>) {
        if let Some(result) = result.filter(|result| Some(result.run_id) != self.of.run_id) {
            self.turn_to(result.run_id);
        }
    }

    /// Once a second.
    pub(super) async fn look(&mut self, screen: &mut Screen, backend: &dyn Backend, streaming: bool) {
        if streaming {
            self.progress.look(screen, backend).await;
        }
        if self.ticks.is_multiple_of(HELD_EVERY) {
            self.say_if_held(screen, backend).await;
        }
        self.ticks = self.ticks.wrapping_add(1);
    }

    /// A run that cannot go on would be waited for in silence; it is said once, and again if it is held again.
    async fn say_if_held(&mut self, screen: &mut Screen, backend: &dyn Backend) {
        let Ok(found) = backend.describe(Target { run_id: None, ..self.of.clone() }).await else { return };
        if found.held.is_some() && !self.held {
            screen.note(&screen.reach.complete(&held_text(&found)));
        }
        self.held = found.held.is_some();
    }
}
