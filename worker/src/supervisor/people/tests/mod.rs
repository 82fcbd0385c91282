//! Tests of people's parts: one file per part, with the transition tables beside them.

use bosun_engine::Timestamp;
use serde_json::Value;

use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Ask, Outbox};
use crate::supervisor::people::approval::{Approvals, Closed, Ignored};
use crate::supervisor::people::interrupts::ResumeInterrupt;

mod approval;
mod control;
mod escalation;
mod family;
mod interrupts;
mod machines;
mod plan_review;
mod trust;
mod whole;

const MINUTE: i64 = 60_000;

impl Approvals {
    /// A response that came as data, as signals and updates hold it.
    fn respond_json(&mut self, value: &Value, out: &mut Outbox) -> Result<Closed, Ignored> {
        let response = self.read(value, out)?;
        self.respond(response, out)
    }
}

/// An answer to the question of this id.
fn resume_to(id: &str, resume: Value) -> ResumeInterrupt {
    ResumeInterrupt { interrupt_id: Some(id.to_owned()), ..ResumeInterrupt::value(resume) }
}

/// An outbox at so many milliseconds of workflow time.
fn at(ms: i64) -> Outbox {
    Outbox::new("r1", Timestamp::from_millis(ms))
}

/// Another one, later: what the run waits for goes on.
fn after(mut before: Outbox, ms: i64) -> Outbox {
    at(ms).with_awaited(before.take_awaited())
}

/// The keys of the calls, timers and cancelled timers that were left, in order.
fn asks(out: &Outbox) -> Vec<String> {
    let text = |ask: &Ask| match ask {
        Ask::Call(call) => format!("call {} {}", call.purpose.as_str(), call.key),
        Ask::Timer { key, at, .. } => format!("timer {key} at {}", at.as_micros() / 1_000),
        Ask::CancelTimer { key } => format!("cancel timer {key}"),
        Ask::SignalChild { key, signal, .. } => format!("signal {key} {signal}"),
        other => format!("{other:?}"),
    };
    out.asks().iter().map(text).collect()
}

fn notes(out: &Outbox) -> Vec<NoteKind> {
    out.notes().iter().map(|note| note.kind).collect()
}

#[track_caller]
fn only_note(out: &Outbox, kind: NoteKind) -> &Value {
    let [note] = out.notes() else { panic!("{:?}", out.notes()) };
    assert_eq!(note.kind, kind);
    &note.data
}

/// Compares with a table beside this file; `BOSUN_WRITE_FIXTURES=1` writes it anew.
#[track_caller]
fn golden(file: &str, golden: &str, shown: &str) {
    if std::env::var_os("BOSUN_WRITE_FIXTURES").is_some() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/supervisor/people/tests").join(file);
        std::fs::write(path, shown).unwrap();
    } else {
        assert_eq!(shown, golden, "{file} is not what it was; BOSUN_WRITE_FIXTURES=1 writes it anew");
    }
}
