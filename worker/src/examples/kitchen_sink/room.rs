//! The room that values of a program may take.
//!
//! Invariant: whatever a program is made of references to itself, no value of it is larger or deeper than this; what would be
//! fails the run by name, before the memory or the stack is full.

use bosun_engine::Failure;
use serde_json::Value;

use super::INVALID_PROGRAM;

/// What one value may take, and how deep it may be: read again and again, it must not fill the memory or the stack.
pub(super) const VALUE_BYTES_MAX: usize = 8 * 1024 * 1024;
pub(super) const DEPTH_MAX: usize = 128;

fn too_large(what: &str) -> Failure {
    let limits = format!("{} MiB, {DEPTH_MAX} levels", VALUE_BYTES_MAX >> 20);
    Failure::application(INVALID_PROGRAM, format!("a value with its references {what} ({limits})")).non_retryable()
}

pub(super) fn too_deep() -> Failure {
    too_large("is nested too deeply")
}

/// Takes the room of this value, without what is in it.
pub(super) fn spend(room: &mut usize, value: &Value) -> Result<(), Failure> {
    let bytes = match value {
        Value::String(text) => text.len(),
        Value::Object(map) => map.keys().map(String::len).sum(),
        _ => 0,
    };
    *room = room.checked_sub(bytes + size_of::<Value>()).ok_or_else(|| too_large("takes too much room"))?;
    Ok(())
}

/// Takes the room of a value and all that is in it.
pub(super) fn weigh(value: &Value, depth: usize, room: &mut usize) -> Result<(), Failure> {
    let deeper = depth.checked_sub(1).ok_or_else(too_deep)?;
    spend(room, value)?;
    match value {
        Value::Array(list) => list.iter().try_for_each(|value| weigh(value, deeper, room)),
        Value::Object(map) => map.values().try_for_each(|value| weigh(value, deeper, room)),
        _ => Ok(()),
    }
}
