//! What outlives a run: messages to others that were decided before its end and have not arrived (E15, E16).
//!
//! ```text
//!   open ──► closed, messages under way ──► closed
//!                 │           ▲
//!                 └── restart ┘  each is sent again; the receiver drops repetitions
//! ```
//!
//! Signals, cancel requests, starts of abandoned children and their cancel requests are kept by a closed run until it
//! knows what became of them. Its history has ended, so that is noted beside it (`Turn::delivered`), not as an event.
//! Children with another parent close policy need nothing: they find out for themselves that their parent has closed.

use super::child_workflow::Child;
use super::decision::TurnDraft;
use super::run::Run;
use crate::vocabulary::*;

/// Whether a child still needs its parent when that has closed.
fn outlives(child: &Child) -> bool {
    let starts = !child.started;
    let is_canceled = child.cancel.is_some() && !child.cancel_delivered;
    child.initiated.options.parent_close_policy == ParentClosePolicy::Abandon && (starts || is_canceled)
}

impl Run {
    /// At the end of the run: only what is to be said to others stays. Signals and cancel requests all do, apart from
    /// those of a run that this one was forked from, which says them itself.
    /// Children that go on as another run's, after a reset, are that run's.
    pub(super) fn keep_what_outlives(&mut self, handed_over: &[Seq]) {
        self.children
            .retain(|seq, child| outlives(child) && !self.of_source.contains(seq) && !handed_over.contains(seq));
        self.externals.retain(|seq, _| !self.of_source.contains(seq));
    }

    pub(super) fn forget_message(&mut self, seq: Seq) {
        self.externals.remove(&seq);
        self.children.remove(&seq);
    }

    /// Takes in what concerns messages of a closed run. Says whether the input was about that.
    pub(super) fn hears_after_its_end(&mut self, draft: &mut TurnDraft<'_, '_>, input: &Input) -> bool {
        match input {
            Input::WorkerRestarted => self.recover(draft),
            Input::SignalDelivered { seq, .. } | Input::CancelDelivered { seq, .. } => self.arrived(draft, *seq),
            Input::ChildStarted { seq, result } => match self.children.get(seq) {
                Some(child) if result.is_ok() && child.cancel.is_some() => self.send_child_cancel(draft, *seq, child),
                Some(_) | None => self.arrived(draft, *seq),
            },
            _ => return false,
        }
        true
    }

    /// What a run that was paused or held has heard about its messages, and could not take in before its end.
    pub(super) fn hear_what_waits(&mut self, draft: &mut TurnDraft<'_, '_>) {
        let heard = self.inbox.iter().filter(|input| {
            let of_messages = matches!(input, Input::SignalDelivered { .. } | Input::CancelDelivered { .. });
            of_messages || matches!(input, Input::ChildStarted { .. } | Input::WorkerRestarted)
        });
        for input in heard.cloned().collect::<Vec<Input>>() {
            self.hears_after_its_end(draft, &input);
        }
    }

    /// The message needs nothing more, whether it arrived or cannot.
    fn arrived(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq) {
        if self.externals.contains_key(&seq) || self.children.contains_key(&seq) {
            self.forget_message(seq);
            draft.delivered.push(seq);
        }
    }
}
