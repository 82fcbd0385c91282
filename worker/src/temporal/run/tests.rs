//! Runs that are fed activations by hand, as Core gives them.

use bosun_engine::workflow::WfContext;
use temporalio_common::protos::coresdk::activity_result::{ActivityResolution, Success, activity_resolution::Status};
use temporalio_common::protos::temporal::api::common::v1::Header;
use temporalio_common::protos::temporal::api::enums::v1::EventType;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::protos::temporal::api::history::v1::{ActivityTaskScheduledEventAttributes, HistoryEvent};

use super::*;

const RUN: &str = "01a2142d-b632-77d2-bc69-430b2e7e08a1";

fn home() -> Home {
    Home { namespace: Namespace::of("default"), task_queue: TaskQueue::of("q") }
}

fn activation(jobs: Vec<Told>, is_replaying: bool) -> core::WorkflowActivation {
    let jobs = jobs.into_iter().map(|told| core::WorkflowActivationJob { variant: Some(told) }).collect();
    core::WorkflowActivation { run_id: RUN.to_owned(), jobs, is_replaying, ..Default::default() }
}

fn begun(code: &WorkflowRegistry, workflow_type: &str, recorded: Recorded) -> (ClusterRun, WorkflowExecutionStarted) {
    let init = core::InitializeWorkflow {
        workflow_id: "w".to_owned(),
        workflow_type: workflow_type.to_owned(),
        ..Default::default()
    };
    ClusterRun::new(code, &home(), RUN.parse().unwrap(), init, recorded).unwrap()
}

fn begun_with(code: &WorkflowRegistry, workflow_type: &str, input: &str) -> (ClusterRun, WorkflowExecutionStarted) {
    let init = core::InitializeWorkflow {
        workflow_id: "w".to_owned(),
        workflow_type: workflow_type.to_owned(),
        arguments: vec![payload_out(&Payload::raw_json(input.to_owned()))],
        ..Default::default()
    };
    ClusterRun::new(code, &home(), RUN.parse().unwrap(), init, Recorded::default()).unwrap()
}

fn init() -> Told {
    Told::InitializeWorkflow(core::InitializeWorkflow::default())
}

fn signal(name: &str, input: &str) -> Told {
    Told::SignalWorkflow(core::SignalWorkflow {
        signal_name: name.to_owned(),
        input: vec![payload_out(&Payload::raw_json(input.to_owned()))],
        ..Default::default()
    })
}

/// However many values one turn of the code asks for, each is the one in history.
#[test]
fn a_turn_may_ask_for_any_number_of_recorded_values() {
    const MANY: u64 = 1_500;
    let code = WorkflowRegistry::new().workflow("sums", |cx: WfContext, (): ()| async move {
        Ok::<u64, Failure>((0..MANY).map(|_| cx.side_effect(|| 1_000_000u64)).sum())
    });
    let side_effects: BTreeMap<Seq, Payload> =
        (1..=MANY).map(|seq| (Seq(seq), Payload::raw_json(seq.to_string()))).collect();
    let (mut run, started) =
        begun(&code, "sums", Recorded { side_effects: side_effects.into(), ..Recorded::default() });
    let asked = run.activate(activation(vec![init()], true), Some(started)).unwrap();
    let resolved = asked.iter().map(|command| match &command.variant {
        Some(Variant::ScheduleLocalActivity(local)) => {
            let status = Status::Completed(Success { result: local.arguments.first().cloned() });
            let result = Some(ActivityResolution { status: Some(status) });
            Told::ResolveActivity(core::ResolveActivity { seq: local.seq, result, ..Default::default() })
        }
        other => panic!("{other:?}"),
    });
    let resolved: Vec<Told> = resolved.collect();
    assert_eq!(resolved.len() as u64, MANY);
    let ended = run.activate(activation(resolved, true), None).unwrap();
    let [asked::WorkflowCommand { variant: Some(Variant::CompleteWorkflowExecution(done)), .. }] = &ended[..] else {
        panic!("{ended:?}")
    };
    let sum = MANY * (MANY + 1) / 2;
    assert_eq!(done.result.clone().map(payload_in), Some(Payload::raw_json(sum.to_string())));
}

/// A signal that comes in the workflow task in which the code continues as new is not lost.
#[test]
fn a_signal_behind_the_end_goes_along_to_the_run_that_continues() {
    let code = WorkflowRegistry::new().workflow("takes-one", |cx: WfContext, (): ()| async move {
        cx.signal_channel::<u64>("go").recv().await?;
        cx.continue_as_new::<()>(&(), ContinueAsNewOptions::default())
    });
    let (mut run, started) = begun(&code, "takes-one", Recorded::default());
    assert_eq!(run.activate(activation(vec![init()], false), Some(started)), Ok(Vec::new()));
    let asked = run.activate(activation(vec![signal("go", "1"), signal("go", "2")], false), None).unwrap();
    let [asked::WorkflowCommand { variant: Some(Variant::ContinueAsNewWorkflowExecution(next)), .. }] = &asked[..]
    else {
        panic!("{asked:?}")
    };
    let carried = payload_in(next.headers[crate::temporal::CARRIED_SIGNALS].clone());
    let carried: Vec<WorkflowExecutionSignaled> = carried.decode().unwrap();
    assert_eq!(carried.into_iter().map(|signal| signal.input).collect::<Vec<_>>(), [Payload::raw_json("2")]);
}

/// A run that an earlier worker has begun is told the same again, whatever a worker of today asks for.
#[test]
fn what_an_earlier_worker_told_of_a_worker_that_left_is_told_again() {
    let code = WorkflowRegistry::new().workflow("asks", |cx: WfContext, name: String| async move {
        let options = ActivityOptions::start_to_close(std::time::Duration::from_secs(600));
        let lost = cx.activity::<()>(ActivityType::of(&name), &(), options).await.err().unwrap();
        Ok::<_, Failure>(format!("{:?}", lost.root().kind))
    });
    for (name, beats, told) in [("scripted", false, "WorkerShutdown"), ("echo", true, "WorkerLost")] {
        let event = HistoryEvent {
            event_type: EventType::ActivityTaskScheduled.into(),
            attributes: Some(scheduled_before(beats)),
            ..Default::default()
        };
        let (mut run, started) = begun_with(&code, "asks", &json!(name).to_string());
        run.recorded = crate::temporal::history::recorded(&[event]);
        let asked = run.activate(activation(vec![init()], true), Some(started)).unwrap();
        let Some(Variant::ScheduleActivity(scheduled)) = &asked[0].variant else { panic!("{asked:?}") };
        let failure = failure_out(&Failure {
            message: "activity failed".into(),
            kind: FailureKind::Activity {
                activity_type: ActivityType::of(name),
                activity_id: ActivityId::of("1"),
                retry_state: RetryState::MaximumAttemptsReached,
            },
            cause: Some(Box::new(Failure::application("WorkerShutdown", "the worker left"))),
        });
        let done = run.activate(activation(vec![failed(scheduled.seq, failure)], true), None).unwrap();
        let Some(Variant::CompleteWorkflowExecution(done)) = &done[0].variant else { panic!("{done:?}") };
        let said = payload_in(done.result.clone().unwrap()).to_json().to_string();
        assert!(said.contains(told), "{name}: {said}");
    }
}

/// Its activity, as history holds it.
fn scheduled_before(beats: bool) -> Attributes {
    let mut fields =
        std::collections::HashMap::from([(crate::temporal::SEQ.to_owned(), payload_out(&Payload::raw_json("1")))]);
    if beats {
        fields.insert(crate::temporal::BEATS.to_owned(), payload_out(&Payload::raw_json("true")));
    }
    Attributes::ActivityTaskScheduledEventAttributes(ActivityTaskScheduledEventAttributes {
        activity_id: "1".to_owned(),
        header: Some(Header { fields }),
        ..Default::default()
    })
}

fn failed(seq: u32, failure: temporal_failure::Failure) -> Told {
    let failed =
        temporalio_common::protos::coresdk::activity_result::Failure { failure: Some(failure), ..Default::default() };
    let result = Some(ActivityResolution { status: Some(Status::Failed(failed)) });
    Told::ResolveActivity(core::ResolveActivity { seq, result, ..Default::default() })
}

/// A cluster says that nothing was heard of the attempt; the code is told what the embedded engine tells.
#[test]
fn of_whom_nothing_is_heard_is_gone() {
    let code = WorkflowRegistry::new().workflow("asks", |cx: WfContext, name: String| async move {
        let options = ActivityOptions::start_to_close(std::time::Duration::from_secs(600));
        let lost = cx.activity::<()>(ActivityType::of(&name), &(), options).await.err().unwrap();
        Ok::<_, Failure>(format!("{:?}", lost.root().kind))
    });
    for (name, told) in [("scripted", "WorkerLost"), ("echo", "Timeout")] {
        let (mut run, started) = begun_with(&code, "asks", &json!(name).to_string());
        let asked = run.activate(activation(vec![init()], false), Some(started)).unwrap();
        let Some(Variant::ScheduleActivity(scheduled)) = &asked[0].variant else { panic!("{asked:?}") };
        assert_eq!(scheduled.heartbeat_timeout.is_some(), name == "scripted");
        assert_eq!(scheduled.headers.contains_key(crate::temporal::BEATS), name == "scripted");
        let failure = failure_out(&Failure {
            message: "activity failed".into(),
            kind: FailureKind::Activity {
                activity_type: ActivityType::of(name),
                activity_id: ActivityId::of("1"),
                retry_state: RetryState::MaximumAttemptsReached,
            },
            cause: Some(Box::new(Failure::timeout(TimeoutType::Heartbeat, None))),
        });
        let done = run.activate(activation(vec![failed(scheduled.seq, failure)], false), None).unwrap();
        let Some(Variant::CompleteWorkflowExecution(done)) = &done[0].variant else { panic!("{done:?}") };
        let said = payload_in(done.result.clone().unwrap()).to_json().to_string();
        assert!(said.contains(told), "{name}: {said}");
    }
}
