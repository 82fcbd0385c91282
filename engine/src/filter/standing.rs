//! How a run stands, as lists show it, and the words for it that a filter may use.
//!
//! Invariant: a run that is closed stands as it ended, whatever else is known of it. One that has paused itself stands as paused
//! and no longer as running; one that is held or taken over is a running one of a kind that has a word of its own. Without what
//! a run says of itself (`RunInfo::hold`) the answer is the engine's.

use std::fmt;

use crate::vocabulary::{Hold, RunInfo, WorkflowStatus};

/// What decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunStanding {
    status: WorkflowStatus,
    held: bool,
    hold: Option<Hold>,
}

/// A word for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StandingWord {
    Is(WorkflowStatus),
    Held,
    TakenOver,
}

impl StandingWord {
    pub(super) fn all() -> impl Iterator<Item = StandingWord> {
        let of_people = [StandingWord::Held, StandingWord::TakenOver];
        WorkflowStatus::ALL.into_iter().map(StandingWord::Is).chain(of_people)
    }

    /// As a person writes it: in any case, and as a list shows it (`Taken over`).
    pub(super) fn named(text: &str) -> Option<StandingWord> {
        let bare: String = text.chars().filter(|c| *c != ' ').collect();
        StandingWord::all().find(|word| word.to_string().eq_ignore_ascii_case(&bare))
    }
}

impl fmt::Display for StandingWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StandingWord::Is(status) => write!(f, "{status}"),
            StandingWord::Held => f.write_str("Held"),
            StandingWord::TakenOver => f.write_str("TakenOver"),
        }
    }
}

impl RunStanding {
    pub(super) fn of(run: &RunInfo) -> RunStanding {
        RunStanding { status: run.status, held: run.held, hold: run.hold }
    }

    /// Whether runs of one status differ by these words in how people hold them.
    pub(super) fn are_told_apart_by(words: &[StandingWord]) -> bool {
        let of = |status, hold| words.iter().any(|word| RunStanding { status, held: false, hold }.is(*word));
        let differs =
            |status| [Hold::Paused, Hold::TakenOver].into_iter().any(|hold| of(status, Some(hold)) != of(status, None));
        [WorkflowStatus::Running, WorkflowStatus::Paused].into_iter().any(differs)
    }

    pub(super) fn is(self, word: StandingWord) -> bool {
        let RunStanding { status, held, hold } = self;
        let hold = hold.filter(|_| status.is_open());
        match word {
            StandingWord::Held => held && status.is_open(),
            StandingWord::TakenOver => hold == Some(Hold::TakenOver),
            StandingWord::Is(WorkflowStatus::Paused) => status == WorkflowStatus::Paused || hold == Some(Hold::Paused),
            StandingWord::Is(other) => status == other,
        }
    }
}
