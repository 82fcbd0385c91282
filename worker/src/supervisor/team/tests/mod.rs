//! The tests of the team, one file per part.

mod mailbox;

use bosun_engine::Timestamp;

use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::Outbox;

/// An outbox of run `run-1` at a second.
fn outbox(second: i64) -> Outbox {
    Outbox::new("run-1", at(second))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(second * 1_000)
}

fn noted(out: &Outbox) -> Vec<NoteKind> {
    out.notes().iter().map(|note| note.kind).collect()
}
