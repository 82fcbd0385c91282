//! The tests of the team, one file per part.

mod mailbox;
mod native;
mod part;
mod recruit;
mod registry;
mod roles;
mod topics;
mod whole;

use bosun_engine::Timestamp;

use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Ask, Outbox};

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

/// What was asked, one line each.
fn asked(out: &Outbox) -> Vec<String> {
    let line = |ask: &Ask| match ask {
        Ask::Call(call) => format!("{} {}", call.purpose.as_str(), call.key),
        Ask::Timer { key, at, .. } => format!("timer {key} {}", at.as_micros() / 1_000_000),
        Ask::StartChild { key, kind, .. } => format!("start {kind:?} {key}"),
        Ask::CancelChild { key, .. } => format!("cancel {key}"),
        other => format!("{other:?}"),
    };
    out.asks().iter().map(line).collect()
}

/// What people were told.
fn told(out: &Outbox) -> Vec<String> {
    let emitted = out.notes().iter().filter(|note| note.kind == NoteKind::ProgressEmitted);
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_owned();
    emitted
        .map(|note| {
            format!("{} {}: {}", text(&note.data["event"]), text(&note.data["agent"]), text(&note.data["message"]))
        })
        .collect()
}
