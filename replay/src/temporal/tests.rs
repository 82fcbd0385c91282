//! Export and import, against each other and against Temporal's spellings.

use std::time::Duration;

use bosun_engine::*;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::protojson::{base64, unbase64};
use super::*;
use crate::{History, JsonLimits, arbitrary};

fn lines(export: &Value) -> String {
    let events = export["events"].as_array().unwrap();
    let line = |event: &Value| {
        let event = event.as_object().unwrap();
        let (key, attributes) = event.iter().find(|(key, _)| key.ends_with("EventAttributes")).unwrap();
        let references: Vec<String> = attributes
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| name.ends_with("EventId"))
            .map(|(name, id)| format!(" {name}={}", id.as_str().unwrap()))
            .collect();
        let event_type = event["eventType"].as_str().unwrap().strip_prefix("EVENT_TYPE_").unwrap();
        let same =
            key.strip_suffix("EventAttributes").unwrap().to_lowercase() == event_type.replace('_', "").to_lowercase();
        assert!(same, "{event_type} has {key}");
        format!("{} {event_type}{}\n", event["eventId"].as_str().unwrap(), references.concat())
    };
    events.iter().map(line).collect()
}

fn story() -> History {
    let mut h = HistoryBuilder::started("order", "order-1", Payload::encode("book").unwrap());
    let charge = h.activity_scheduled("charge", Payload::null());
    let limit = h.timer_started(Duration::from_millis(1_500));
    h.activity_started(charge, 1);
    h.activity_attempt_failed(charge, 1, Failure::application("Busy", "later"), Duration::from_secs(1));
    h.after(Duration::from_secs(1)).activity_started(charge, 2);
    h.activity_completed(charge, Payload::encode(&7).unwrap()).timer_canceled(limit);
    let ship = h.child_initiated("ship", "ship-1", Payload::null());
    h.child_started(ship).update_accepted("u1", "address", Payload::null()).update_completed("u1", Ok(Payload::null()));
    h.child_completed(ship, Payload::null()).completed(Payload::encode("done").unwrap());
    History::new(h.turns()).unwrap()
}

/// E38: the order of events and every reference, as Temporal's server would have written them.
#[test]
fn the_export_tells_the_story_as_temporal_would() {
    let expected = "\
1 WORKFLOW_EXECUTION_STARTED
2 WORKFLOW_TASK_SCHEDULED
3 WORKFLOW_TASK_STARTED scheduledEventId=2
4 WORKFLOW_TASK_COMPLETED scheduledEventId=2 startedEventId=3
5 ACTIVITY_TASK_SCHEDULED workflowTaskCompletedEventId=4
6 TIMER_STARTED workflowTaskCompletedEventId=4
7 ACTIVITY_TASK_STARTED scheduledEventId=5
8 ACTIVITY_TASK_COMPLETED scheduledEventId=5 startedEventId=7
9 WORKFLOW_TASK_SCHEDULED
10 WORKFLOW_TASK_STARTED scheduledEventId=9
11 WORKFLOW_TASK_COMPLETED scheduledEventId=9 startedEventId=10
12 TIMER_CANCELED workflowTaskCompletedEventId=11 startedEventId=6
13 START_CHILD_WORKFLOW_EXECUTION_INITIATED workflowTaskCompletedEventId=11
14 CHILD_WORKFLOW_EXECUTION_STARTED initiatedEventId=13
15 WORKFLOW_TASK_SCHEDULED
16 WORKFLOW_TASK_STARTED scheduledEventId=15
17 WORKFLOW_TASK_COMPLETED scheduledEventId=15 startedEventId=16
18 WORKFLOW_TASK_SCHEDULED
19 WORKFLOW_TASK_STARTED scheduledEventId=18
20 WORKFLOW_TASK_COMPLETED scheduledEventId=18 startedEventId=19
21 WORKFLOW_EXECUTION_UPDATE_ACCEPTED acceptedRequestSequencingEventId=18
22 WORKFLOW_EXECUTION_UPDATE_COMPLETED acceptedEventId=21
23 CHILD_WORKFLOW_EXECUTION_COMPLETED initiatedEventId=13 startedEventId=14
24 WORKFLOW_TASK_SCHEDULED
25 WORKFLOW_TASK_STARTED scheduledEventId=24
26 WORKFLOW_TASK_COMPLETED scheduledEventId=24 startedEventId=25
27 WORKFLOW_EXECUTION_COMPLETED workflowTaskCompletedEventId=26
";
    assert_eq!(lines(&to_temporal(&story())), expected);
}

/// The exact spelling of ProtoJSON: text for 64-bit numbers, base64, durations, enum prefixes.
#[test]
fn attributes_are_spelled_as_protojson() {
    let export = to_temporal(&story());
    let events = export["events"].as_array().unwrap();
    assert_eq!(events[0]["eventTime"], "2026-01-01T00:00:00.000000Z");
    assert_eq!(events[5]["timerStartedEventAttributes"]["startToFireTimeout"], "1.500s");
    assert_eq!(
        events[0]["workflowExecutionStartedEventAttributes"]["input"],
        json!({"payloads": [{"metadata": {"encoding": "anNvbi9wbGFpbg=="}, "data": "ImJvb2si"}]})
    );
    assert_eq!(
        events[6]["activityTaskStartedEventAttributes"]["lastFailure"],
        json!({"message": "later", "source": "Bosun", "applicationFailureInfo": {"type": "Busy"}})
    );
    assert_eq!(events[6]["activityTaskStartedEventAttributes"]["attempt"], 2);
    assert_eq!(
        events[12]["startChildWorkflowExecutionInitiatedEventAttributes"]["parentClosePolicy"],
        "PARENT_CLOSE_POLICY_TERMINATE"
    );
}

/// Each thing that the code was told has a workflow task of its own, in the order in which it was told.
#[test]
fn what_the_code_is_told_has_a_workflow_task_of_its_own() {
    let mut h = HistoryBuilder::started("order", "order-1", Payload::null());
    let charge = h.activity_scheduled("charge", Payload::null());
    h.signaled("a", Payload::null());
    h.together().signaled("b", Payload::null());
    h.activity_cancel_requested(charge);
    h.together().activity_canceled(charge, None);
    h.completed(Payload::null());
    let told = lines(&to_temporal(&History::new(h.turns()).unwrap()));
    let expected = "\
6 WORKFLOW_EXECUTION_SIGNALED
7 WORKFLOW_TASK_SCHEDULED
8 WORKFLOW_TASK_STARTED scheduledEventId=7
9 WORKFLOW_TASK_COMPLETED scheduledEventId=7 startedEventId=8
10 WORKFLOW_EXECUTION_SIGNALED
11 WORKFLOW_TASK_SCHEDULED
12 WORKFLOW_TASK_STARTED scheduledEventId=11
13 WORKFLOW_TASK_COMPLETED scheduledEventId=11 startedEventId=12
14 ACTIVITY_TASK_CANCEL_REQUESTED workflowTaskCompletedEventId=13 scheduledEventId=5
15 ACTIVITY_TASK_CANCELED scheduledEventId=5 latestCancelRequestedEventId=14
16 WORKFLOW_TASK_SCHEDULED
17 WORKFLOW_TASK_STARTED scheduledEventId=16
18 WORKFLOW_TASK_COMPLETED scheduledEventId=16 startedEventId=17
19 WORKFLOW_EXECUTION_COMPLETED workflowTaskCompletedEventId=18
";
    assert!(told.ends_with(expected), "{told}");
}

/// E38: one history in the spellings of different tools is one history.
#[test]
fn every_spelling_of_a_history_reads_the_same() {
    let long = json!({"events": [
        {"eventId": "1", "eventTime": "2026-01-01T00:00:00Z", "eventType": "EVENT_TYPE_WORKFLOW_EXECUTION_STARTED",
         "taskId": "1048576", "workflowExecutionStartedEventAttributes": {"workflowType": {"name": "order"}}},
        {"eventId": "2", "eventTime": "2026-01-01T00:00:01.5Z", "eventType": "EVENT_TYPE_TIMER_STARTED",
         "timerStartedEventAttributes": {"timerId": "1", "workflowTaskCompletedEventId": "4"}},
    ]});
    let short = json!({"history": {"events": [
        {"eventId": 1, "eventTime": {"seconds": "1767225600"}, "eventType": "WorkflowExecutionStarted",
         "attributes": {"workflowType": {"name": "order"}}},
        {"eventId": 2, "eventTime": {"seconds": 1_767_225_601, "nanos": 500_000_000}, "eventType": "TimerStarted",
         "timerStartedEventAttributes": {"timerId": "1", "workflowTaskCompletedEventId": "4"}},
    ]}});
    let snake = json!([
        {"event_id": "1", "event_time": 1_767_225_600_000_000_000_u64, "event_type": 1,
         "workflow_execution_started_event_attributes": {"workflow_type": {"name": "order"}}},
        {"event_id": "2", "event_time": "2026-01-01T01:00:01.500000000+01:00", "event_type": 17,
         "timer_started_event_attributes": {"timer_id": "1", "workflow_task_completed_event_id": "4"}},
    ]);
    let read = |file: &Value| TemporalHistory::from_json(file.to_string().as_bytes(), JsonLimits::default()).unwrap();
    assert_eq!(read(&long), read(&short));
    assert_eq!(read(&long), read(&snake));
    assert_eq!(read(&long).events()[1].number("workflowTaskCompletedEventId"), 4);
}

/// A server that is newer than this code writes types of events that have only a number here.
#[test]
fn a_type_that_is_newer_than_this_code_has_its_number_for_a_name() {
    let event = |id: u64, event_type: Value| json!({"eventId": id, "eventType": event_type});
    let events = vec![event(1, json!(1)), event(2, json!(47)), event(3, json!(60)), event(4, json!(61))];
    let read = TemporalHistory::from_events(events).unwrap();
    let names: Vec<&str> = read.events().iter().map(|event| event.event_type.as_str()).collect();
    assert_eq!(
        names,
        [
            "WorkflowExecutionStarted",
            "WorkflowExecutionUpdateAdmitted",
            "WorkflowExecutionTimeSkippingTransitioned",
            "Unknown61"
        ]
    );
    for none in [json!(0), json!(-1), json!(1.5), json!(u64::MAX)] {
        assert!(TemporalHistory::from_events(vec![event(1, none.clone())]).is_err(), "{none}");
    }
}

#[test]
fn what_is_no_history_of_temporals_is_refused_by_name() {
    let event = |id: Value, event_type: &str| json!({"eventId": id, "eventType": event_type});
    let ok = event(json!("1"), "TimerFired");
    let mut two = ok.clone();
    two["timerFiredEventAttributes"] = json!({});
    two["timerStartedEventAttributes"] = json!({});
    let mut late = ok.clone();
    late["eventTime"] = json!("soon");
    let mut flat = ok.clone();
    flat["attributes"] = json!([]);
    for (expected, file) in [
        ("Refused", "{".to_owned()),
        ("NoEvents", "{}".to_owned()),
        ("NoEvents", "7".to_owned()),
        ("Empty", json!({"events": []}).to_string()),
        ("NotAnObject", json!([7]).to_string()),
        ("BadEventId", json!([event(json!("0"), "TimerFired")]).to_string()),
        ("BadEventId", json!([event(json!(-1), "TimerFired")]).to_string()),
        ("EventIdGap", json!([ok, event(json!(3), "TimerFired")]).to_string()),
        ("EventIdGap", json!([event(json!(u64::MAX), "TimerFired"), ok]).to_string()),
        ("BadEventType", json!([event(json!(1), "")]).to_string()),
        ("BadEventType", json!([event(json!(1), "EVENT_TYPE_UNSPECIFIED")]).to_string()),
        ("BadEventType", json!([event(json!(1), "Timer Fired")]).to_string()),
        ("BadTime", json!([late]).to_string()),
        ("TwoAttributes", json!([two]).to_string()),
        ("BadAttributes", json!([flat]).to_string()),
    ] {
        let why = TemporalHistory::from_json(file.as_bytes(), JsonLimits::default()).unwrap_err();
        assert!(format!("{why:?}").starts_with(expected), "{expected}: {why} for {file}");
    }
}

#[test]
fn statistics_count_activities_and_retries() {
    let statistics = TemporalHistory::from(&story()).statistics();
    let charge = statistics.activities["charge"];
    assert_eq!((charge.scheduled, charge.completed, charge.retries), (1, 1, 1));
    assert_eq!(charge.longest_ms, 1_003);
    assert_eq!(statistics.status.as_deref(), Some("Completed"));
    assert_eq!((statistics.events, statistics.workflow_tasks_completed), (27, 5));
    assert_eq!(
        statistics.to_string().lines().next(),
        Some("order: Completed with 27 events in 1.006s; 5 workflow tasks, 0 failed")
    );
}

#[test]
fn payloads_are_decoded_for_people() {
    let history = TemporalHistory::from(&story());
    let readable = history.events()[0].readable();
    assert_eq!(readable["input"]["payloads"][0], "book");
    assert_eq!(history.events()[4].readable()["input"]["payloads"][0], Value::Null);
}

proptest! {
    #![proptest_config(arbitrary::cases(200))]

    /// E38: any history of ours becomes one that Temporal's rules accept: ids without gaps, references to earlier events
    /// of the right type, a closing event last.
    #[test]
    fn any_export_is_well_formed(history in arbitrary::histories(60)) {
        let export = TemporalHistory::from(&history);
        for event in export.events() {
            let references = [
                ("workflowTaskCompletedEventId", vec!["WorkflowTaskCompleted"]),
                ("scheduledEventId", vec!["WorkflowTaskScheduled", "ActivityTaskScheduled"]),
                ("startedEventId", vec![
                    "WorkflowTaskStarted", "ActivityTaskStarted", "TimerStarted", "ChildWorkflowExecutionStarted",
                ]),
                ("acceptedEventId", vec!["WorkflowExecutionUpdateAccepted"]),
                ("initiatedEventId", vec![
                    "StartChildWorkflowExecutionInitiated", "SignalExternalWorkflowExecutionInitiated",
                ]),
                ("latestCancelRequestedEventId", vec!["ActivityTaskCancelRequested"]),
            ];
            for (field, types) in references {
                if event.attributes.contains_key(field) {
                    let id = event.number(field);
                    prop_assert!(id < event.id, "{field} of {event:?}");
                    let target = export.event(id).unwrap();
                    prop_assert!(types.contains(&target.event_type.as_str()), "{field} of {event:?} is {target:?}");
                }
            }
            if let Some("Activity") = event.event_type.split("Task").next()
                && event.event_type != "ActivityTaskScheduled"
            {
                prop_assert!(event.attributes.contains_key("scheduledEventId"), "{event:?}");
            }
        }
        let statistics = export.statistics();
        let closed = !history.status().is_open();
        prop_assert_eq!(statistics.status.is_some(), closed);
        let last = export.events().last().unwrap();
        prop_assert_eq!(last.event_type.starts_with("WorkflowExecution") && closed, closed);
    }

    #[test]
    fn base64_reads_what_it_wrote(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let text = base64(&bytes);
        prop_assert_eq!(unbase64(text.trim_end_matches('=')), Some(bytes.clone()));
        prop_assert_eq!(unbase64(&text.replace('+', "-").replace('/', "_")), Some(bytes));
    }

    /// G40: nothing in the place of Temporal's JSON makes the reader or the statistics panic.
    #[test]
    fn no_mutant_of_temporals_json_panics(
        history in arbitrary::histories(20),
        at in any::<prop::sample::Index>(),
        field in any::<prop::sample::Index>(),
        how in 0..5u8,
    ) {
        let mut export = to_temporal(&history);
        let events = export["events"].as_array_mut().unwrap();
        let at = at.index(events.len());
        let event = events[at].as_object_mut().unwrap();
        let field = field.index(event.len());
        let value = event.values_mut().nth(field).unwrap();
        *value = match how {
            0 => Value::Null,
            1 => json!("-1"),
            2 => json!({"a_": {"__": 1}, "payloads": [{"metadata": {"encoding": "!"}}]}),
            3 => json!(u64::MAX),
            _ => json!("é"),
        };
        if let Ok(read) = TemporalHistory::from_json(export.to_string().as_bytes(), JsonLimits::default()) {
            let _ = read.statistics().to_string();
            read.events().iter().for_each(|event| drop(event.readable()));
        }
    }
}

/// A run that code has carried out, told by Temporal's events: the turns are those that the code fits, and other code does not.
#[test]
fn an_export_becomes_turns_that_the_code_fits() {
    use bosun_engine::workflow::{WfContext, WorkflowRegistry, replay};
    let code = |activity: &'static str| {
        WorkflowRegistry::new().workflow("pay", move |cx: WfContext, cents: u64| async move {
            let options = ActivityOptions::start_to_close(Duration::from_secs(5));
            let paid: u64 = cx.activity(activity, &cents, options).await?;
            cx.timer(Duration::from_secs(3)).await?;
            Ok::<u64, Failure>(paid)
        })
    };
    let mut told = HistoryBuilder::started("pay", "pay-1", Payload::encode(&7).unwrap());
    let charge = told.activity_scheduled("charge", Payload::encode(&7).unwrap());
    told.activity_started(charge, 1);
    told.activity_attempt_failed(charge, 1, Failure::application("Busy", "later"), Duration::from_secs(1));
    told.after(Duration::from_secs(1)).activity_started(charge, 2);
    told.activity_completed(charge, Payload::encode(&7).unwrap());
    let pause = told.timer_started(Duration::from_secs(3));
    told.after(Duration::from_secs(3)).timer_fired(pause).completed(Payload::encode(&7).unwrap());
    let text = to_temporal(&History::new(told.turns()).unwrap()).to_string();
    let export = TemporalHistory::from_json(text.as_bytes(), JsonLimits::default()).unwrap();
    let namespace = Namespace::of(DEFAULT_NAMESPACE);
    let turns = export.turns(&namespace, Some(&code("charge"))).unwrap();
    assert_eq!(replay(&code("charge"), &turns).map(|replayed| replayed.commands), Ok(3));
    let history = History::new(turns).expect("it is a whole history");
    let attempts = history.events().filter(|event| matches!(event.kind, EventKind::ActivityTaskStarted { .. })).count();
    assert_eq!(attempts, 2, "the attempt that failed is told");
    let other = export.turns(&namespace, Some(&code("refund"))).unwrap();
    let refused = replay(&code("refund"), &other).map(|replayed| replayed.commands);
    assert!(matches!(refused, Err(bosun_engine::workflow::ReplayError::NonDeterminism(_))), "{refused:?}");
    let alone = export.turns(&namespace, None).unwrap();
    assert_eq!(History::new(alone).map(|history| history.started().workflow_id.to_string()), Ok("pay-1".into()));
}
