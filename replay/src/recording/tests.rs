//! Histories that were damaged by hand and by chance.

use std::collections::BTreeSet;
use std::time::Duration;

use bosun_engine::*;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::arbitrary;

/// A run with a bit of everything.
fn sample() -> HistoryBuilder {
    let mut h = HistoryBuilder::started("order", "order-1", Payload::encode("book").unwrap());
    let charge = h.activity_scheduled("charge", Payload::null());
    let limit = h.timer_started(Duration::from_secs(60));
    h.activity_started(charge, 1);
    h.activity_attempt_failed(charge, 1, Failure::application("Busy", "later"), Duration::from_secs(1));
    h.activity_started(charge, 2);
    h.update_accepted("u1", "address", Payload::null()).update_completed("u1", Ok(Payload::null()));
    h.activity_completed(charge, Payload::encode(&7).unwrap()).timer_canceled(limit);
    let ship = h.child_initiated("ship", "ship-1", Payload::null());
    h.child_started(ship).signaled("faster", Payload::bytes(vec![255])).child_completed(ship, Payload::null());
    h
}

fn sample_file() -> Value {
    let mut h = sample();
    h.completed(Payload::null());
    serde_json::from_str(&History::new(h.turns()).unwrap().to_json()).unwrap()
}

fn limits() -> HistoryLimits {
    HistoryLimits { payload_bytes: 1_000, text_bytes: 1_000, ..HistoryLimits::default() }
}

fn class_of(file: &str) -> String {
    match History::from_json(file.as_bytes(), &limits()) {
        Ok(_) => "Valid".into(),
        Err(why) => why.problem.class(),
    }
}

/// E38: export is exact.
#[test]
fn a_history_is_written_and_read_back_exactly() {
    let mut h = sample();
    h.deployed(BuildId(u64::MAX)).signaled("last", Payload::raw_json("{ \"spaced\" : 1e400 }"));
    let mut turns = h.turns();
    turns[3].heartbeats.push(Heartbeat { seq: Seq(1), attempt: Attempt(1), details: Some(Payload::null()) });
    turns[3].inbox_added.push(Input::Deadline);
    turns[4].inbox_taken = 1;
    turns[5].outlook = Outlook { next_deadline: Some(Timestamp::MAX), attention: true };
    let mut empty = turns[5].clone();
    empty.first_event = empty.next_event();
    empty.events.clear();
    turns.insert(6, empty);

    let history = History::new(turns.clone()).unwrap();
    let read = History::from_json(history.to_json().as_bytes(), &HistoryLimits::default()).unwrap();
    assert_eq!(read.turns(), turns);
    assert_eq!(read, history);
    assert_eq!(read.status(), WorkflowStatus::Running);
}

/// The deepest history that is accepted can be written, read by us, and read by any JSON reader.
#[test]
fn the_deepest_failure_and_payload_survive_json() {
    let deep = Payload::raw_json(format!("{}{}", "[".repeat(48), "]".repeat(48)));
    let chain = (0..=HistoryLimits::CAUSES_MAX)
        .map(|_| busy().with_details(deep.clone()))
        .reduce(|cause, failure| failure.because(cause))
        .unwrap();
    let mut h = HistoryBuilder::started("deep", "deep-1", deep.clone());
    let seq = h.activity_scheduled("work", Payload::null());
    h.activity_started(seq, 1).activity_failed(seq, chain.clone(), RetryState::Timeout).failed(chain.clone());
    let mut turns = h.turns();
    let outcome = CloseOutcome::Failed(chain);
    turns[1].inbox_added.push(Input::ChildClosed { seq, run_id: RunId([0; 16]), outcome });
    let history = History::new(turns).unwrap();
    let text = history.to_json();
    assert_eq!(History::from_json(text.as_bytes(), &HistoryLimits::default()), Ok(history));
    assert!(serde_json::from_str::<Value>(&text).is_ok());
}

/// What the file looks like to a person, in full.
#[test]
fn a_history_file_is_readable() {
    let mut h = HistoryBuilder::started("hello", "hello-1", Payload::encode("you").unwrap());
    h.completed(Payload::encode("hello you").unwrap());
    let text = History::new(h.turns()).unwrap().to_json();
    let head: Vec<&str> = text.lines().take(16).map(str::trim).collect();
    let expected = r#"{
        "schema": "bosun.history/1",
        "run": {
        "namespace": "default",
        "workflow_id": "hello-1",
        "run_id": "00000000-0000-8ae3-b1a7-ef1f0d4e9a25",
        "workflow_type": "hello",
        "status": "Completed",
        "events": 2
        },
        "turns": [
        {
        "at": "2026-01-01T00:00:00.000000Z",
        "build": "0000000000000001",
        "run_id": "00000000-0000-8ae3-b1a7-ef1f0d4e9a25",
        "events": ["#;
    let run_id = HistoryBuilder::run_id("hello-1").to_string();
    let expected = expected.replace("00000000-0000-8ae3-b1a7-ef1f0d4e9a25", &run_id);
    assert_eq!(head, expected.lines().map(str::trim).collect::<Vec<_>>());
    assert!(text.contains(r#""type": "WorkflowExecutionCompleted""#), "{text}");
    assert!(text.contains(r#""json": "hello you""#), "{text}");
}

/// G40: damage to the file itself.
#[test]
fn every_damage_to_the_file_is_named() {
    let whole = sample_file();
    let with = |pointer: &str, value: Value| {
        let mut file = whole.clone();
        *file.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = value;
        file.to_string()
    };
    let without = |parent: &str, key: &str| {
        let mut file = whole.clone();
        file.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key).unwrap();
        file.to_string()
    };
    let plus = |parent: &str, key: &str| {
        let mut file = whole.clone();
        file.pointer_mut(parent).unwrap()[key] = json!(1);
        file.to_string()
    };
    let attributes = "/turns/0/events/0/attributes";
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let table = [
        ("Valid", whole.to_string()),
        ("Syntax", whole.to_string()[1..].to_owned()),
        ("Syntax", String::new()),
        ("TooLarge", " ".repeat((64 << 20) + 1)),
        ("TooManyValues", format!("[{}0]", "0,".repeat(4_000_000))),
        ("TooDeep", format!("{{\"schema\":{deep}}}")),
        ("DuplicateKey", whole.to_string().replacen("\"schema\"", "\"run\":1,\"schema\"", 1)),
        ("Malformed", "[]".into()),
        ("NotAHistory", "{}".into()),
        ("NotAHistory", with("/schema", json!("something/1"))),
        ("UnknownSchema", with("/schema", json!("bosun.history/2"))),
        ("MissingField", without("", "turns")),
        ("MissingField", without("/turns/1", "at")),
        ("MissingField", without("/run", "status")),
        ("MissingField", without("/turns/0/events/0", "type")),
        ("UnknownField", plus("", "extra")),
        ("UnknownField", plus("/run", "extra")),
        ("UnknownField", plus("/turns/0", "extra")),
        ("UnknownField", plus("/turns/0/events/0", "extra")),
        ("UnknownField", plus(attributes, "extra")),
        ("UnknownField", plus(&format!("{}/options", "/turns/0/events/1/attributes"), "extra")),
        ("Malformed", with("/turns/0/at", json!("yesterday"))),
        ("Malformed", with("/turns/0/build", json!("+000000000000001"))),
        ("Malformed", with("/turns/0/run_id", json!("me"))),
        ("Malformed", with(&format!("{attributes}/workflow_id"), json!(""))),
        ("Malformed", with(&format!("{attributes}/attempt"), json!(-1))),
        ("UnknownEventType", with("/turns/0/events/0/type", json!("WorkflowExecutionDreamt"))),
        ("HeaderMismatch", with("/run/workflow_id", json!("order-2"))),
        ("HeaderMismatch", with("/run/events", json!(3))),
        ("EventIdGap", with("/turns/0/events/1/id", json!(3))),
        ("EventIdGap", with("/turns/0/events/0/id", json!(0))),
        ("Empty", with("/turns", json!([]))),
    ];
    for (expected, file) in table {
        assert_eq!(class_of(&file), expected, "{}", file.chars().take(200).collect::<String>());
    }
}

/// A story that goes wrong after the sample, in which 1 was an activity, 2 a timer and 3 a child workflow.
type Story = fn(&mut HistoryBuilder);

fn busy() -> Failure {
    Failure::application("Busy", "later")
}

fn with_attempt(h: &mut HistoryBuilder) -> Seq {
    let seq = h.signaled("again", Payload::null()).activity_scheduled("charge", Payload::null());
    h.activity_started(seq, 1);
    seq
}

const STORIES: &[(&str, Story)] = &[
    ("Valid", |_| {}),
    ("Valid", |h| _ = with_attempt(h)),
    ("StartedTwice", |h| {
        let started = started_event(h.run(), StartWorkflow::new("order".into(), "order-1".into()));
        h.turn(EventKind::WorkflowExecutionStarted(Box::new(started)));
    }),
    ("AfterClose", |h| {
        _ = h.signaled("end", Payload::null()).completed(Payload::null()).signaled("x", Payload::null())
    }),
    ("AfterClose", |h| _ = h.terminated("stop").terminated("stop")),
    ("CommandWithoutActivation", |h| _ = h.paused("").timer_started(Duration::ZERO)),
    ("NextRunIsItself", |h| {
        let new_run = Some(h.run());
        h.turn(EventKind::WorkflowExecutionTimedOut {
            timeout: WorkflowTimeout::Run,
            new_run,
            unhandled_signals: Vec::new(),
        });
    }),
    ("NoBackoff", |h| _ = h.first_workflow_task_scheduled()),
    ("SeqOutOfOrder", |h| {
        h.signaled("x", Payload::null());
        h.command(EventKind::TimerStarted { seq: Seq(3), fire_at: h.now(), summary: None });
    }),
    ("SeqOutOfOrder", |h| {
        h.signaled("x", Payload::null());
        h.command(EventKind::MarkerRecorded(Marker::SideEffect { seq: Seq(0), value: Payload::null() }));
    }),
    ("SeqTooLarge", |h| {
        h.signaled("x", Payload::null());
        h.command(EventKind::TimerStarted { seq: Seq(u64::MAX), fire_at: h.now(), summary: None });
    }),
    ("UnknownSeq", |h| _ = h.activity_completed(Seq(9), Payload::null())),
    ("UnknownSeq", |h| _ = h.timer_fired(Seq(9))),
    ("OtherFamily", |h| _ = h.timer_fired(Seq(1))),
    ("OtherFamily", |h| _ = h.external_signaled(Seq(3))),
    ("AlreadyOver", |h| _ = h.activity_completed(Seq(1), Payload::null())),
    ("AlreadyOver", |h| _ = h.timer_fired(Seq(2))),
    ("AlreadyOver", |h| _ = h.child_completed(Seq(3), Payload::null())),
    ("AlreadyOver", |h| {
        let seq = h.signaled("x", Payload::null()).side_effect_recorded(Payload::null());
        h.command(EventKind::MarkerRecorded(Marker::SideEffect { seq: seq.next(), value: Payload::null() }));
        h.turn(EventKind::ActivityTaskStarted { seq: Seq(1), attempt: Attempt(3) });
    }),
    ("AttemptOutOfOrder", |h| {
        let seq = with_attempt(h);
        h.activity_attempt_failed(seq, 1, busy(), Duration::ZERO).activity_started(seq, 1);
    }),
    ("AttemptOutOfOrder", |h| {
        let seq = with_attempt(h);
        h.activity_attempt_failed(seq, 1, busy(), Duration::ZERO).activity_started(seq, 3);
    }),
    ("AttemptZero", |h| {
        let seq = h.signaled("x", Payload::null()).activity_scheduled("charge", Payload::null());
        h.activity_started(seq, 0);
    }),
    ("AttemptStillRunning", |h| {
        let seq = with_attempt(h);
        h.activity_started(seq, 2);
    }),
    ("AttemptNotStarted", |h| {
        let seq = with_attempt(h);
        h.activity_attempt_failed(seq, 2, busy(), Duration::ZERO);
    }),
    ("AttemptNotStarted", |h| {
        let seq = with_attempt(h);
        h.activity_attempt_failed(seq, 1, busy(), Duration::ZERO);
        h.turn(EventKind::ActivityTaskAwaitingCompletion { seq, attempt: Attempt(1) });
    }),
    ("ResultWithoutAttempt", |h| {
        let seq = h.signaled("x", Payload::null()).activity_scheduled("charge", Payload::null());
        h.activity_completed(seq, Payload::null());
    }),
    ("RetryInThePast", |h| {
        let seq = with_attempt(h);
        let next_attempt_at = HistoryBuilder::EPOCH;
        h.turn(EventKind::ActivityTaskAttemptFailed { seq, attempt: Attempt(1), failure: busy(), next_attempt_at });
    }),
    ("CanceledUnasked", |h| {
        let seq = with_attempt(h);
        h.activity_canceled(seq, None);
    }),
    ("ActivityPause", |h| {
        let seq = with_attempt(h);
        h.turn(EventKind::ActivityTaskUnpaused { seq, identity: None });
    }),
    ("FiredEarly", |h| {
        let seq = h.signaled("x", Payload::null()).timer_started(Duration::from_secs(1));
        h.turn(EventKind::TimerFired { seq });
    }),
    ("ChildNotStarted", |h| {
        let seq = h.signaled("x", Payload::null()).child_initiated("ship", "ship-2", Payload::null());
        h.child_completed(seq, Payload::null());
    }),
    ("ChildStartedTwice", |h| {
        let seq = h.signaled("x", Payload::null()).child_initiated("ship", "ship-2", Payload::null());
        h.child_started(seq).child_started(seq);
    }),
    ("CancelRequestedTwice", |h| {
        let seq = with_attempt(h);
        h.signaled("x", Payload::null()).activity_cancel_requested(seq).activity_cancel_requested(seq);
    }),
    ("UpdateAcceptedTwice", |h| _ = h.update_accepted("u1", "address", Payload::null())),
    ("UpdateNotAccepted", |h| _ = h.signaled("x", Payload::null()).update_completed("u2", Ok(Payload::null()))),
    ("UpdateCompletedTwice", |h| _ = h.signaled("x", Payload::null()).update_completed("u1", Err(busy()))),
    ("RequestAppliedTwice", |h| {
        let request_id = Some(RequestId::of("r1"));
        for _ in 0..2 {
            let reason = String::new();
            let request_id = request_id.clone();
            h.turn(EventKind::WorkflowExecutionCancelRequested { reason, identity: None, request_id });
        }
    }),
    ("Pause", |h| _ = h.paused("").paused("")),
    ("Pause", |h| _ = h.paused("").unpaused("").unpaused("")),
    ("NotAFork", |h| _ = h.turn(forked(EventId(14)))),
    ("PayloadTooLarge", |h| _ = h.signaled("x", Payload::bytes(vec![0; 1_001]))),
    ("RedactedPayload", |h| {
        h.signaled("x", Payload { encoding: ENCODING_REDACTED.into(), data: vec![0; 32].into() });
    }),
    ("StorageEncoding", |h| _ = h.signaled("x", Payload { encoding: ENCODING_BLOB.into(), data: vec![0; 40].into() })),
    ("TextTooLong", |h| _ = h.paused(&"x".repeat(1_001))),
    ("CausesTooDeep", |h| {
        let chain = (0..60).fold(busy(), |cause, _| busy().because(cause));
        h.signaled("x", Payload::null()).failed(chain);
    }),
    ("NotFinite", |h| {
        let attributes = [(FieldName::of("score"), SearchValue::Float(f64::NAN))].into();
        h.signaled("x", Payload::null()).search_attributes_upserted(attributes);
    }),
];

fn forked(event: EventId) -> EventKind {
    let from = ForkPoint { workflow_id: "source".into(), run_id: RunId([8; 16]), event, reset: false };
    EventKind::WorkflowExecutionForked {
        run_id: RunId([9; 16]),
        from,
        reason: String::new(),
        identity: None,
        children: Vec::new(),
    }
}

/// The start says that the run was forked.
fn fork_of_itself(turns: &mut [Turn]) {
    let EventKind::WorkflowExecutionStarted(started) = &mut turns[0].events[0] else { unreachable!() };
    let point = ForkPoint { workflow_id: "source".into(), run_id: RunId([8; 16]), event: EventId(3), reset: false };
    started.forked_from = Some(Box::new(ForkedFrom {
        point,
        at: HistoryBuilder::EPOCH,
        namespace: started.namespace.clone(),
        first_run: started.first_run,
        continued_from: None,
        parent: None,
        request_id: None,
        identity: None,
        forked_from: None,
    }));
}

/// The run sends a message as number 4 and ends; then these messages are said to have arrived.
fn delivered(turns: &mut Vec<Turn>, seqs: &[u64]) {
    let mut h = sample();
    h.signaled("x", Payload::null());
    assert_eq!(h.external_signal_initiated("other", "word", Payload::null()), Seq(4));
    h.completed(Payload::null());
    *turns = h.turns();
    let last = turns.last().expect("a turn").clone();
    turns.push(Turn {
        first_event: last.next_event(),
        events: Vec::new(),
        delivered: seqs.iter().copied().map(Seq).collect(),
        ..last
    });
}

/// Damage that no story tells: turns changed by hand.
type Change = fn(&mut Vec<Turn>);

const CHANGES: &[(&str, Change)] = &[
    ("Valid", |_| {}),
    ("Empty", |turns| turns.clear()),
    ("Empty", |turns| {
        turns.truncate(1);
        turns[0].events.clear();
    }),
    ("NotStarted", |turns| drop(turns[0].events.remove(0))),
    ("EventIdGap", |turns| drop(turns.remove(2))),
    ("EventIdGap", |turns| turns.swap(2, 3)),
    ("EventIdGap", |turns| turns[4].first_event = EventId(u64::MAX)),
    ("EventIdGap", |turns| drop(turns[0].events.pop())),
    ("TimeGoesBack", |turns| turns[3].at = HistoryBuilder::EPOCH),
    ("TimeOutOfRange", |turns| turns[3].at = Timestamp::MAX),
    ("OtherRun", |turns| turns[3].run = RunId([9; 16])),
    ("InboxUnderrun", |turns| turns[3].inbox_taken = 1),
    ("DeliveredWhileOpen", |turns| turns[3].delivered.push(Seq(1))),
    ("Valid", |turns| delivered(turns, &[4])),
    ("AlreadyOver", |turns| delivered(turns, &[4, 4])),
    ("AlreadyOver", |turns| delivered(turns, &[3])),
    ("OtherFamily", |turns| delivered(turns, &[1])),
    ("UnknownSeq", |turns| delivered(turns, &[9])),
    ("UnknownSeq", |turns| {
        turns[3].heartbeats.push(Heartbeat { seq: Seq(5), attempt: Attempt(1), details: None });
    }),
    ("OtherFamily", |turns| {
        turns[3].heartbeats.push(Heartbeat { seq: Seq(2), attempt: Attempt(1), details: None });
    }),
    ("AttemptNotStarted", |turns| {
        turns[3].heartbeats.push(Heartbeat { seq: Seq(1), attempt: Attempt(7), details: None });
    }),
    ("ForkedElsewhere", |turns| {
        fork_of_itself(turns);
        turns[3].events = vec![forked(EventId(99))];
    }),
    ("AttemptZero", |turns| match &mut turns[0].events[0] {
        EventKind::WorkflowExecutionStarted(started) => started.attempt = Attempt(0),
        _ => unreachable!(),
    }),
];

/// G40: what a file says must be possible. Every class is met, and there are more than thirty.
#[test]
fn every_impossible_history_is_refused_by_name() {
    let mut classes = BTreeSet::new();
    for (number, (expected, story)) in STORIES.iter().enumerate() {
        let mut h = sample();
        story(&mut h);
        let refused = History::checked(h.turns(), Redaction::None, &limits()).map_err(|why| why.problem.class());
        assert_eq!(refused.err().unwrap_or("Valid".into()), *expected, "story {number}");
        classes.insert(*expected);
    }
    for (number, (expected, change)) in CHANGES.iter().enumerate() {
        let mut turns = sample().turns();
        change(&mut turns);
        let refused = History::checked(turns, Redaction::None, &limits()).map_err(|why| why.problem.class());
        assert_eq!(refused.err().unwrap_or("Valid".into()), *expected, "change {number}");
        classes.insert(*expected);
    }
    let few = HistoryLimits { events: 3, ..limits() };
    let refused = History::checked(sample().turns(), Redaction::None, &few).unwrap_err();
    assert_eq!(refused.to_string(), "event 4 (ActivityTaskStarted): more than 3 events");
    assert!(classes.len() > 36, "{} classes: {classes:?}", classes.len());
}

#[test]
fn a_refusal_says_where_and_what() {
    let mut h = sample();
    h.activity_completed(Seq(1), Payload::null());
    let why = History::new(h.turns()).unwrap_err().to_string();
    assert_eq!(why, "event 15 (ActivityTaskCompleted): the activity 1 is over since event 9");
}

/// Payloads go, names stay, and the result is a valid history that says what it is.
#[test]
fn redaction_keeps_names_and_hides_contents() {
    let mut h = HistoryBuilder::started("order", "order-1", Payload::encode("s3cret").unwrap());
    let charge = h.activity_scheduled("charge", Payload::encode(&json!({"card": "s3cret"})).unwrap());
    h.memo_modified([(FieldName::of("json"), Payload::encode("s3cret").unwrap())].into());
    h.activity_started(charge, 1);
    let failure = Failure::application("Declined", "t3xt").with_details(Payload::encode("s3cret").unwrap());
    h.activity_failed(charge, busy().because(failure.clone()), RetryState::NonRetryableFailure).failed(failure);
    let mut turns = h.turns();
    turns[1].inbox_added.push(Input::Terminate { reason: "t3xt".into(), identity: None });
    let history = History::new(turns).unwrap();

    let payloads = history.redacted(Redaction::Payloads);
    let text = payloads.to_json();
    assert!(!text.contains("s3cret") && text.contains("t3xt") && text.contains("Declined"), "{text}");
    assert_eq!(History::from_json(text.as_bytes(), &HistoryLimits::default()).unwrap(), payloads);
    assert_eq!(payloads.redacted(Redaction::Payloads), payloads, "a digest is not digested again");

    let all = history.redacted(Redaction::PayloadsAndTexts).to_json();
    assert!(!all.contains("s3cret") && !all.contains("t3xt") && all.contains("charge"), "{all}");
}

/// One change to a JSON document, anywhere.
fn mutate(value: &mut Value, path: &[usize], how: u8) {
    if let Some((at, rest)) = path.split_first() {
        let inner = match value {
            Value::Array(items) if !items.is_empty() => {
                let at = at % items.len();
                items.get_mut(at)
            }
            Value::Object(fields) if !fields.is_empty() => {
                let at = at % fields.len();
                fields.values_mut().nth(at)
            }
            _ => None,
        };
        if let Some(inner) = inner {
            return mutate(inner, rest, how);
        }
    }
    match (how % 8, value) {
        (0, Value::Array(items)) => drop(items.pop()),
        (1, Value::Array(items)) if !items.is_empty() => items.push(items[0].clone()),
        (2, Value::Array(items)) => items.reverse(),
        (0 | 1, Value::Object(fields)) => {
            if let Some(key) = fields.keys().next().cloned() {
                fields.swap_remove(&key);
            }
        }
        (3, value) => *value = json!(u64::MAX),
        (4, value) => *value = json!(-1),
        (5, value) => *value = json!([[[]]]),
        (6, value) => *value = json!("\u{0}"),
        (7, Value::Number(n)) => *n = (n.as_u64().unwrap_or(0).wrapping_add(1)).into(),
        (_, value) => *value = Value::Null,
    }
}

proptest! {
    #![proptest_config(arbitrary::cases(256))]

    /// E38: any history survives the journey through JSON.
    #[test]
    fn any_history_survives_json(history in arbitrary::histories(60)) {
        let read = History::from_json(history.to_json().as_bytes(), &HistoryLimits::default());
        prop_assert_eq!(read, Ok(history));
    }

    /// A history of our own reads the same after redaction twice as once.
    #[test]
    fn any_redacted_history_is_valid(history in arbitrary::histories(40)) {
        let hidden = history.redacted(Redaction::PayloadsAndTexts);
        prop_assert_eq!(History::from_json(hidden.to_json().as_bytes(), &HistoryLimits::default()), Ok(hidden));
    }

    /// G40: no mutant panics; one that is accepted means exactly what it says.
    #[test]
    fn no_mutant_makes_the_reader_panic(
        history in arbitrary::histories(25),
        changes in prop::collection::vec((prop::collection::vec(any::<usize>(), 0..9), any::<u8>()), 1..4),
    ) {
        let mut file: Value = serde_json::from_str(&history.to_json()).unwrap();
        for (path, how) in &changes {
            mutate(&mut file, path, *how);
        }
        if let Ok(read) = History::from_json(file.to_string().as_bytes(), &limits()) {
            // What the reader accepts, the run machine can fold: its own checks run after every event.
            prop_assert!(bosun_engine::machine::fold_run(read.turns()).is_ok());
            prop_assert_eq!(History::from_json(read.to_json().as_bytes(), &limits()), Ok(read));
        }
    }

    /// G40: nor does a file whose bytes are damaged.
    #[test]
    fn no_damaged_byte_makes_the_reader_panic(
        history in arbitrary::histories(10),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut file = history.to_json().into_bytes();
        let at = at.index(file.len());
        if cut { file.truncate(at) } else { file[at] = byte }
        let _ = History::from_json(&file, &limits());
    }
}
