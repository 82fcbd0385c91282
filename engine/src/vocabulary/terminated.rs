//! How the event of a terminated run is written: what came to it later is left out where it says nothing, so that events of
//! before keep their bytes.
//!
//! Invariant: fields are known by their place in a log, so that none is left out before one that is there.

use serde::Serializer;
use serde::ser::SerializeStruct;

use super::*;

/// See the module. Whoever adds a field writes all before it where it is there.
pub(super) fn write<S: Serializer>(
    reason: &str,
    identity: &Option<Identity>,
    reset: &Option<Box<ResetInto>>,
    unhandled_signals: &[SignalName],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let has_signals = !unhandled_signals.is_empty();
    let has_reset = has_signals || reset.is_some();
    let fields = 2 + usize::from(has_reset) + usize::from(has_signals);
    let mut event = serializer.serialize_struct("WorkflowExecutionTerminated", fields)?;
    event.serialize_field("reason", reason)?;
    event.serialize_field("identity", identity)?;
    if has_reset {
        event.serialize_field("reset", reset)?;
    }
    if has_signals {
        event.serialize_field("unhandled_signals", unhandled_signals)?;
    }
    event.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};

    /// The event as it was written before it named signals.
    #[derive(Serialize, Deserialize)]
    enum Before {
        WorkflowExecutionTerminated {
            reason: String,
            identity: Option<Identity>,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            reset: Option<Box<ResetInto>>,
        },
    }

    fn event(reset: Option<Box<ResetInto>>, unhandled_signals: Vec<SignalName>) -> EventKind {
        let identity = Some(Identity::of("ada"));
        EventKind::WorkflowExecutionTerminated { reason: "enough".into(), identity, reset, unhandled_signals }
    }

    #[test]
    fn events_of_before_keep_their_bytes_and_are_read() {
        let into = Some(Box::new(ResetInto { run_id: RunId([2; 16]), children: vec![Seq(4)] }));
        for reset in [None, into] {
            let identity = Some(Identity::of("ada"));
            let before =
                Before::WorkflowExecutionTerminated { reason: "enough".into(), identity, reset: reset.clone() };
            let now = event(reset, Vec::new());
            let (old, new) = (rmp_serde::to_vec(&before).unwrap(), rmp_serde::to_vec(&now).unwrap());
            assert_eq!(old, new);
            assert_eq!(rmp_serde::from_slice::<EventKind>(&old).unwrap(), now);
            assert_eq!(rmp_serde::to_vec_named(&before).unwrap(), rmp_serde::to_vec_named(&now).unwrap());
            assert_eq!(serde_json::to_string(&before).unwrap(), serde_json::to_string(&now).unwrap());
        }
    }

    #[test]
    fn signals_that_nobody_took_come_back() {
        let event = event(None, vec![SignalName::of("late")]);
        assert_eq!(rmp_serde::from_slice::<EventKind>(&rmp_serde::to_vec(&event).unwrap()).unwrap(), event);
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<EventKind>(&json).unwrap(), event);
    }
}
