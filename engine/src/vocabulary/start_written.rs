//! How the start event is written: what is last and empty is left out, so that old events keep their bytes.
//!
//! Invariant: structs are stored as arrays, so a field is left out only if all after it are; a derived `Serialize` looks at
//! each field alone and cannot do that. A new field goes to the end of the tail. How it is read is derived in `event`.

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::WorkflowExecutionStarted;

/// Writes the fields named first always, and of the tail all up to the last one that is there.
macro_rules! written {
    ($value:ident, $to:ident, [$($always:ident)+], [$($tail:ident)+]) => {{
        let always = [$(stringify!($always)),+].len();
        let there = [$($value.$tail.is_some()),+];
        let tail = there.iter().rposition(|there| *there).map_or(0, |last| last + 1);
        let mut fields = $to.serialize_struct("WorkflowExecutionStarted", always + tail)?;
        $(fields.serialize_field(stringify!($always), &$value.$always)?;)+
        let mut left = tail;
        $(if left > 0 {
            left -= 1;
            fields.serialize_field(stringify!($tail), &$value.$tail)?;
        } else {
            fields.skip_field(stringify!($tail))?;
        })+
        let _ = left;
        fields.end()
    }};
}

impl Serialize for WorkflowExecutionStarted {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        written!(
            self,
            to,
            [namespace workflow_id workflow_type task_queue input execution_deadline run_timeout retry_policy attempt
             first_run continued_from last_failure start_at parent memo search_attributes request_id identity summary
             details carried_signals carried_request_ids],
            [forked_from priority numbering signals_at_start]
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::vocabulary::*;

    fn started() -> WorkflowExecutionStarted {
        StartWorkflow::new(WorkflowType::of("order"), WorkflowId::of("order-1"))
            .first_event(RunId([7; 16]), Timestamp(5))
    }

    fn parts(event: &WorkflowExecutionStarted) -> u16 {
        let bytes = rmp_serde::to_vec(event).unwrap();
        // An array of more than 15 parts: its mark, and how many.
        assert_eq!(bytes[0], 0xdc);
        u16::from_be_bytes([bytes[1], bytes[2]])
    }

    #[test]
    fn an_empty_tail_is_left_out_and_a_hole_in_it_is_not() {
        let plain = WorkflowExecutionStarted { numbering: None, ..started() };
        let urgent = WorkflowExecutionStarted { priority: Some(Priority::of(1).fair("acme")), ..plain.clone() };
        assert_eq!((parts(&plain), parts(&urgent), parts(&started())), (22, 24, 25));
        for event in [plain, urgent, started()] {
            let read: WorkflowExecutionStarted = rmp_serde::from_slice(&rmp_serde::to_vec(&event).unwrap()).unwrap();
            assert_eq!(read, event);
            let read: WorkflowExecutionStarted = serde_json::from_str(&serde_json::to_string(&event).unwrap()).unwrap();
            assert_eq!(read, event);
        }
    }
}
