//! What is said of a task before it starts, and of its result before it counts.
//!
//! Invariant: what holds a task back says so in one of these words, and why; nothing else stands in its way.

/// Whether a task may start now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    Go,
    /// A person must approve first; the request has been made.
    NeedsApproval,
    /// Not now, for this reason; ask again later.
    Wait(String),
    /// Not before people have answered what they are asked about others, in these words: what was chosen stays chosen.
    Held(String),
    /// Never.
    Refused(String),
}

/// Whether a result may be taken as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Take {
    Go,
    /// A person must say so first; the request has been made.
    NeedsApproval,
}
