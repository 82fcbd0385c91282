//! Histories as clusters write them, event by event, and the turns that code fits.
//!
//! Invariant: each history here is one that a real server can hold; exports of ours are in the tests beside.

use std::cell::Cell;
use std::time::Duration;

use bosun_engine::workflow::{ReplayError, WfContext, WorkflowRegistry, replay};
use bosun_engine::*;
use serde_json::{Value, json};

use super::super::TemporalHistory;
use super::TurnReader;
use crate::History;

const RUN: &str = "01a2142d-b632-77d2-bc69-430b2e7e08a1";
const HOUR: Duration = Duration::from_secs(3_600);

/// Writes events one after the other, a second apart.
struct Events(Vec<Value>);

impl Events {
    fn of(workflow_type: &str) -> Self {
        let mut events = Events(Vec::new());
        events.add(
            "WorkflowExecutionStarted",
            json!({
                "originalExecutionRunId": RUN, "workflowId": "w", "workflowType": { "name": workflow_type },
                "taskQueue": { "name": "q" }, "input": payloads("null"),
            }),
        );
        events
    }
    /// The number of the event.
    fn add(&mut self, event_type: &str, attributes: Value) -> u64 {
        let id = self.0.len() + 1;
        self.0.push(json!({
            "eventId": id.to_string(), "eventType": event_type, "eventTime": format!("2026-01-01T00:00:{id:02}Z"),
            "attributes": attributes,
        }));
        id as u64
    }
    /// A workflow task that is completed: what comes next is what it asked for.
    fn task(&mut self) {
        for event_type in ["WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted"] {
            self.add(event_type, json!({}));
        }
    }
    /// The same, with what the cluster says of the history.
    fn task_at(&mut self, bytes: u64, suggested: bool) {
        self.add("WorkflowTaskScheduled", json!({}));
        let size = json!({ "historySizeBytes": bytes.to_string(), "suggestContinueAsNew": suggested });
        self.add("WorkflowTaskStarted", size);
        self.add("WorkflowTaskCompleted", json!({}));
    }
    fn timer(&mut self, id: &str, seconds: u64) {
        self.add("TimerStarted", json!({ "timerId": id, "startToFireTimeout": format!("{seconds}s") }));
    }
    fn history(self) -> TemporalHistory {
        TemporalHistory::from_events(self.0).unwrap()
    }
    fn turns(self, code: &WorkflowRegistry) -> Vec<Turn> {
        self.history().turns(&Namespace::of(DEFAULT_NAMESPACE), Some(code)).unwrap()
    }
}

fn payloads(json: &str) -> Value {
    let data = crate::temporal::protojson::base64(json.as_bytes());
    json!({ "payloads": [{ "metadata": { "encoding": "anNvbi9wbGFpbg==" }, "data": data }] })
}

/// That the code fits, and how many commands it asked for.
fn fits(code: &WorkflowRegistry, turns: Vec<Turn>) -> Result<u64, ReplayError> {
    let replayed = replay(code, &turns)?.commands;
    History::new(turns).expect("it is a whole history");
    Ok(replayed)
}

/// Neither a cluster nor the code knows of a timer that was canceled in the task that asked for it, but its number is taken: those
/// behind it are counted too low.
#[test]
fn timers_keep_apart_when_they_are_renumbered() {
    let code = WorkflowRegistry::new().workflow("pauses", |cx: WfContext, (): ()| async move {
        let never = cx.timer(HOUR);
        never.cancel();
        let _ = never.await;
        let (first, second) = (cx.timer(Duration::from_secs(3)), cx.timer(Duration::from_secs(5)));
        second.await?;
        first.await?;
        Ok::<_, Failure>(())
    });
    let mut events = Events::of("pauses");
    events.task();
    events.timer("2", 3);
    events.timer("3", 5);
    events.add("TimerFired", json!({ "timerId": "2" }));
    events.task();
    events.add("TimerFired", json!({ "timerId": "3" }));
    events.task();
    events.add("WorkflowExecutionCompleted", json!({ "result": payloads("null") }));
    let turns = events.turns(&code);
    let fired = |turn: &Turn| {
        turn.events.iter().find_map(|event| match event {
            EventKind::TimerFired { seq } => Some(*seq),
            _ => None,
        })
    };
    assert_eq!(turns.iter().filter_map(fired).collect::<Vec<_>>(), [Seq(2), Seq(3)]);
    assert_eq!(fits(&code, turns), Ok(5));
}

/// A cluster tells of a second signal in the task in which the first one has made the code end the run.
#[test]
fn what_is_told_after_the_end_is_named_there() {
    let code = WorkflowRegistry::new()
        .workflow("waits", |cx: WfContext, (): ()| async move { cx.signal_channel::<u64>("go").recv().await });
    let mut events = Events::of("waits");
    events.task();
    for (name, input) in [("go", "1"), ("late", "2")] {
        events.add("WorkflowExecutionSignaled", json!({ "signalName": name, "input": payloads(input) }));
    }
    events.task();
    events.add("WorkflowExecutionCompleted", json!({ "result": payloads("1") }));
    let turns = events.turns(&code);
    let last = turns.last().and_then(|turn| turn.events.last()).cloned();
    let Some(EventKind::WorkflowExecutionCompleted { unhandled_signals, .. }) = last else { panic!("{last:?}") };
    assert_eq!(unhandled_signals, [SignalName::of("late")]);
    assert_eq!(fits(&code, turns), Ok(1));
}

/// A reset makes an update again: its request stands in the event that admits it, and its acceptance repeats nothing.
#[test]
fn an_update_that_a_reset_has_admitted_is_read() {
    let code = WorkflowRegistry::new().workflow("counts", |cx: WfContext, (): ()| async move {
        let count = cx.state("count", 0u64);
        let of_update = count.clone();
        cx.on_update(
            "add",
            |_: &u64| Ok(()),
            move |_, more: u64| {
                let count = of_update.clone();
                async move {
                    count.write(|count| *count += more);
                    Ok::<_, Failure>(count.get())
                }
            },
        );
        cx.wait_until(move || count.get() > 0).await?;
        Ok::<_, Failure>(())
    });
    let mut events = Events::of("counts");
    events.task();
    let request = json!({ "meta": { "updateId": "u1" }, "input": { "name": "add", "args": payloads("3") } });
    events.add("WorkflowExecutionUpdateAdmitted", json!({ "request": request }));
    events.task();
    events.add("WorkflowExecutionUpdateAccepted", json!({ "protocolInstanceId": "u1", "acceptedRequest": null }));
    let outcome = json!({ "success": payloads("3") });
    events.add("WorkflowExecutionUpdateCompleted", json!({ "meta": { "updateId": "u1" }, "outcome": outcome }));
    events.add("WorkflowExecutionCompleted", json!({ "result": payloads("null") }));
    let turns = events.turns(&code);
    let accepted = turns.iter().flat_map(|turn| &turn.events).find_map(|event| match event {
        EventKind::WorkflowExecutionUpdateAccepted { name, input, .. } => Some((name.to_string(), input.clone())),
        _ => None,
    });
    assert_eq!(accepted, Some(("add".to_owned(), Payload::raw_json("3"))));
    assert_eq!(fits(&code, turns), Ok(2));
}

/// Whoever follows a run gets each turn once, and the same ones as from the whole.
#[test]
fn turns_come_one_by_one_as_the_events_do() {
    let code = WorkflowRegistry::new().workflow("sleeps", |cx: WfContext, (): ()| async move {
        cx.timer(Duration::from_secs(3)).await?;
        Ok::<_, Failure>(())
    });
    let mut events = Events::of("sleeps");
    events.task();
    events.timer("1", 3);
    events.add("TimerFired", json!({ "timerId": "1" }));
    events.task();
    events.add("WorkflowExecutionCompleted", json!({ "result": payloads("null") }));
    let history = events.history();
    let namespace = Namespace::of(DEFAULT_NAMESPACE);
    let whole = history.turns(&namespace, Some(&code)).unwrap();
    let mut reader = TurnReader::new(&history.events()[..1], &namespace, Some(&code)).unwrap();
    assert_eq!(reader.start_alone().map(|turn| turn.events.len()), Some(1));
    let mut turns = Vec::new();
    // As the server gives them: with a workflow task comes what it asked for.
    for batch in [&history.events()[1..5], &history.events()[5..8], &history.events()[8..]] {
        batch.iter().for_each(|event| reader.event(event).unwrap());
        turns.extend(reader.turns());
    }
    assert_eq!((reader.start_alone(), reader.turns()), (None, Vec::new()));
    assert_eq!(turns, whole);
    assert_eq!(turns.len(), 2);
}

/// A run that was reset begins with another's history, whose ids the code sees until the reset.
#[test]
fn a_run_that_was_reset_is_a_whole_history() {
    const RESET: &str = "658c53d6-b215-4f17-aba4-0cc25cc6ea83";
    let code = WorkflowRegistry::new().workflow("draws", |cx: WfContext, (): ()| async move {
        let options = || ActivityOptions::start_to_close(Duration::from_secs(5));
        cx.activity::<()>("before", &cx.uuid().to_string(), options()).await?;
        cx.activity::<()>("after", &cx.run_id().to_string(), options()).await?;
        Ok::<_, Failure>(())
    });
    // What the code draws in the run before, told by itself.
    let drawn = Cell::new(String::new());
    let live = Events::of("draws").history().turns(&Namespace::of(DEFAULT_NAMESPACE), None).unwrap();
    let mut driver = code.create(&started_of(&live), RUN.parse().unwrap()).unwrap();
    let job = Job::InitializeWorkflow(Box::new(started_of(&live)));
    let activation = Activation {
        at: Timestamp(0),
        run_id: RUN.parse().unwrap(),
        history: HistorySize::default(),
        job,
        markers: Markers::Fresh,
    };
    for command in driver.activate(activation) {
        if let Command::ScheduleActivity { input, .. } = command {
            drawn.set(input.to_json().to_string());
        }
    }
    let mut events = Events::of("draws");
    let scheduled = |events: &mut Events, activity: &str, input: &str| {
        let named = json!({ "name": activity });
        events
            .add("ActivityTaskScheduled", json!({ "activityId": "1", "activityType": named, "input": payloads(input) }))
    };
    events.task();
    let before = scheduled(&mut events, "before", &drawn.take());
    events.add("WorkflowTaskScheduled", json!({}));
    events.add("WorkflowTaskStarted", json!({}));
    events.add("WorkflowTaskFailed", json!({ "baseRunId": RUN, "newRunId": RESET }));
    let completed = |events: &mut Events, scheduled: u64| {
        events.add("ActivityTaskStarted", json!({ "scheduledEventId": scheduled, "attempt": 1 }));
        events.add("ActivityTaskCompleted", json!({ "scheduledEventId": scheduled, "result": payloads("null") }));
    };
    completed(&mut events, before);
    events.task();
    let after = scheduled(&mut events, "after", &format!("\"{RESET}\""));
    completed(&mut events, after);
    events.task();
    events.add("WorkflowExecutionCompleted", json!({ "result": payloads("null") }));
    let turns = events.turns(&code);
    assert!(turns.iter().all(|turn| turn.run.to_string() == RESET), "all turns are its own");
    assert_eq!(fits(&code, turns), Ok(3));
}

fn started_of(turns: &[Turn]) -> WorkflowExecutionStarted {
    match turns.first().and_then(|turn| turn.events.first()) {
        Some(EventKind::WorkflowExecutionStarted(started)) => {
            WorkflowExecutionStarted { start_at: None, ..(**started).clone() }
        }
        other => panic!("{other:?}"),
    }
}

/// A worker that was slow gives the cluster the value of a side effect with the next workflow task, in which the code is told
/// nothing.
#[test]
fn a_side_effect_that_comes_late_stands_where_the_code_asked() {
    let code = WorkflowRegistry::new().workflow("looks", |cx: WfContext, (): ()| async move {
        let seen = cx.side_effect(|| 9u64);
        cx.timer(Duration::from_secs(3)).await?;
        Ok::<_, Failure>(seen)
    });
    let events = || {
        let mut events = Events::of("looks");
        events.task();
        events.timer("1", 3);
        events.task();
        let data = payloads("{\"activity_id\":\"bosun.side_effect-1\"}");
        let details = json!({ "data": data, "result": payloads("7") });
        events.add("MarkerRecorded", json!({ "markerName": "core_local_activity", "details": details }));
        events.add("TimerFired", json!({ "timerId": "1" }));
        events.task();
        events.add("WorkflowExecutionCompleted", json!({ "result": payloads("7") }));
        events
    };
    assert_eq!(fits(&code, events().turns(&code)), Ok(3));
    let alone = events().history().turns(&Namespace::of(DEFAULT_NAMESPACE), None).unwrap();
    assert_eq!(alone.len(), 2, "{alone:?}");
    History::new(alone).expect("it is a whole history");
}

/// Counts signals, and goes on as new when that is suggested.
fn counting() -> WorkflowRegistry {
    WorkflowRegistry::new().workflow("counts", |cx: WfContext, (): ()| async move {
        let words = cx.signal_channel::<String>("word");
        loop {
            words.recv().await?;
            if cx.continue_as_new_suggested() {
                return cx.continue_as_new::<()>(&(), ContinueAsNewOptions::default());
            }
            cx.side_effect(|| cx.history().bytes);
        }
    })
}

/// A signal and the task in which it is told.
fn word(events: &mut Events, word: &str, (bytes, suggested): (u64, bool)) {
    events.add("WorkflowExecutionSignaled", json!({ "signalName": "word", "input": payloads(&format!("\"{word}\"")) }));
    events.task_at(bytes, suggested);
}

fn goes_on(events: &mut Events) {
    let next = json!({ "newExecutionRunId": RUN.replace("01a2", "01a3"), "workflowType": { "name": "counts" },
        "taskQueue": { "name": "q" }, "input": payloads("null") });
    events.add("WorkflowExecutionContinuedAsNew", next);
}

fn noted(events: &mut Events, seq: u64, bytes: u64) {
    let data = payloads(&format!("{{\"activity_id\":\"bosun.side_effect-{seq}\"}}"));
    let details = json!({ "data": data, "result": payloads(&bytes.to_string()) });
    events.add("MarkerRecorded", json!({ "markerName": "core_local_activity", "details": details }));
}

/// The cluster's bound is below ours.
#[test]
fn a_run_that_went_on_earlier_than_by_our_rule_replays() {
    let mut events = Events::of("counts");
    events.task_at(300, false);
    word(&mut events, "one", (700, false));
    noted(&mut events, 1, 700);
    word(&mut events, "two", (1_300, true));
    goes_on(&mut events);
    let turns = events.turns(&counting());
    assert_eq!(fits(&counting(), turns), Ok(2));
}

/// A payload that is kept in a file has the size of its reference on the cluster, and its own here.
#[test]
fn a_run_that_went_on_later_than_by_our_rule_replays() {
    let long = "x".repeat(HistorySize::SUGGESTED_BYTES as usize + 1);
    let mut events = Events::of("counts");
    events.task_at(300, false);
    word(&mut events, &long, (900, false));
    noted(&mut events, 1, 900);
    word(&mut events, "two", (1_300, true));
    goes_on(&mut events);
    let turns = events.turns(&counting());
    let told: Vec<_> = turns.iter().map(|turn| turn.size_told.map(|size| (size.events, size.bytes))).collect();
    assert_eq!(told, [Some((3, 300)), Some((7, 900)), Some((HistorySize::SUGGESTED_EVENTS, 1_300))]);
    assert_eq!(fits(&counting(), turns), Ok(2));
}

/// What was told goes along into a file of ours, and into the log of a fork.
#[test]
fn a_history_file_keeps_what_the_cluster_told() {
    let mut events = Events::of("counts");
    events.task_at(300, false);
    word(&mut events, "one", (700, true));
    goes_on(&mut events);
    let history = History::new(events.turns(&counting())).unwrap();
    let read = History::from_json(history.to_json().as_bytes(), &crate::HistoryLimits::default()).unwrap();
    assert_eq!(read, history);
    assert_eq!(fits(&counting(), read.into_turns()), Ok(1));
}
