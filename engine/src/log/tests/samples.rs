//! Turns for the tests of the log, and what a directory holds.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::vocabulary::*;

pub(crate) fn run_id(n: u64) -> RunId {
    let mut id = [0x11; 16];
    id[8..].copy_from_slice(&n.to_be_bytes());
    RunId(id)
}

fn turn(run: u64, first_event: u64, events: Vec<EventKind>) -> Turn {
    let at = Timestamp::from_millis(1_000_000 + first_event as i64);
    let outlook = Outlook { next_deadline: Some(Timestamp(first_event as i64)), attention: false };
    Turn { outlook, ..Turn::of(run_id(run), EventId(first_event), at, BuildId(7), events) }
}

/// The first turn: three events.
pub(crate) fn start(run: u64, id: &str) -> Turn {
    start_with(run, id, Payload::raw_json(format!("{{\"n\":{run}}}")))
}

pub(crate) fn start_with(run: u64, id: &str, input: Payload) -> Turn {
    let mut request = StartWorkflow::new(WorkflowType::of("order"), WorkflowId::of(id)).input(input);
    request.memo = Memo::from([(FieldName::of("note"), Payload::raw_json("\"memo-canary\""))]);
    request.request_id = Some(RequestId::of(format!("request-{run}")));
    let started = request.first_event(run_id(run), Timestamp(0));
    let mut turn = turn(
        run,
        1,
        vec![
            EventKind::WorkflowExecutionStarted(Box::new(started)),
            EventKind::TimerStarted { seq: Seq(1), fire_at: Timestamp(5), summary: None },
            EventKind::TimerStarted { seq: Seq(2), fire_at: Timestamp(6), summary: None },
        ],
    );
    turn.at = Timestamp::from_millis(1_000_000 + run as i64);
    turn
}

/// A sequential step of two events with a result of this many bytes.
pub(crate) fn step(run: u64, first_event: u64, bytes: usize) -> Turn {
    let filler: String = (0..bytes).map(|i| char::from(b'a' + ((i as u64 * 7 + first_event) % 26) as u8)).collect();
    step_with(run, first_event, Payload::raw_json(format!("\"{filler}\"")))
}

pub(crate) fn step_with(run: u64, first_event: u64, result: Payload) -> Turn {
    turn(
        run,
        first_event,
        vec![
            EventKind::ActivityTaskCompleted { seq: Seq(first_event), result, identity: None },
            EventKind::TimerStarted { seq: Seq(first_event + 1), fire_at: Timestamp(9), summary: None },
        ],
    )
}

/// A turn without events: what the run said on its way.
pub(crate) fn heartbeat(run: u64, first_event: u64) -> Turn {
    let mut turn = turn(run, first_event, Vec::new());
    let details = Some(Payload::raw_json("\"half way\""));
    turn.heartbeats = vec![Heartbeat { seq: Seq(1), attempt: Attempt(1), details }];
    turn
}

/// The last turn: one event.
pub(crate) fn close(run: u64, first_event: u64) -> Turn {
    let result = Payload::raw_json("\"done\"");
    turn(run, first_event, vec![EventKind::WorkflowExecutionCompleted { result, unhandled_signals: Vec::new() }])
}

pub(crate) type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Every file but the lock, which holds nothing.
pub(crate) fn bytes(root: &Path) -> Files {
    let (mut found, mut dirs) = (Files::new(), vec![root.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.file_name().is_some_and(|name| name != "bosun.lock") {
                found.insert(path.strip_prefix(root).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    found
}
