//! Held runs: why the code of a run is given nothing.
//!
//! Invariant: a reason says what happened and what it is about, for the card that `describe` shows; it decides nothing.

use super::replay::LoadError;

/// Why a run's code cannot be given anything now. Inputs are accepted durably all the same.
#[derive(Debug, Clone, PartialEq)]
pub enum Held {
    Load(LoadError),
    /// A turn of the code took longer than the deadline.
    Busy {
        after: std::time::Duration,
    },
    /// A turn failed inside the engine, or an earlier hold of this worker stands.
    Defect {
        why: String,
    },
    /// One turn of the code asked for more than a turn may hold.
    Overrun {
        what: String,
    },
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Held::Load(error) => error.fmt(f),
            Held::Defect { why } => f.write_str(why),
            Held::Overrun { what } => {
                write!(
                    f,
                    "one turn of the workflow code asked for {what}; a loop without end? Nothing of that turn was done"
                )
            }
            Held::Busy { after } => {
                write!(f, "the workflow code did not come back within {after:?}; a busy loop or a blocking call?")
            }
        }
    }
}
