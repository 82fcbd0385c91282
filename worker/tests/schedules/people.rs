//! What people do with a schedule: pause, trigger, backfill, change, delete.

use bosun_engine::{Target, WorkflowId, WorkflowStatus};
use bosun_worker::schedule::Overlap;
use bosun_worker::schedule::spec::ScheduleState;
use serde_json::json;

use super::kit::*;

#[tokio::test]
async fn what_passes_while_it_is_paused_is_not_made_up_for() {
    let environment = environment();
    create(&environment, &every_minute(Overlap::Skip, 1)).await;
    environment.sleep(seconds(70)).await;
    update(&environment, "pause", json!({ "note": "a holiday" })).await;
    environment.sleep(seconds(180)).await;
    let shown = describe(&environment).await;
    assert_eq!(shown["schedule"]["state"]["note"], "a holiday");
    assert_eq!(shown["next_times"], json!([]), "{shown:#}");
    update(&environment, "trigger", json!({})).await;
    update(&environment, "unpause", json!({ "note": "back" })).await;
    environment.sleep(seconds(60)).await;
    assert_eq!(nominals(&environment).await, [60, 250, 300], "by hand it starts while it is paused, too");
}

#[tokio::test]
async fn triggers_of_one_moment_are_starts_of_their_own() {
    let environment = environment();
    let state = ScheduleState { paused: true, ..ScheduleState::default() };
    create(&environment, &bosun_worker::schedule::Schedule { state, ..every_minute(Overlap::Skip, 30) }).await;
    for overlap in [None, Some("allow_all"), None, Some("buffer_one")] {
        update(&environment, "trigger", json!({ "overlap": overlap })).await;
    }
    environment.sleep(seconds(100)).await;
    let shown = describe(&environment).await;
    assert_eq!(jobs(&environment).await.len(), 3, "{shown:#}");
    assert_eq!(shown["counts"]["overlap_skipped"], 1);
}

/// All that has passed since the beginning of the year, and a range that is longer than a turn.
#[tokio::test]
async fn a_backfill_starts_the_times_of_a_range_both_ends_included() {
    let environment = environment();
    create(&environment, &every_minute(Overlap::Skip, 1)).await;
    update(&environment, "pause", json!({})).await;
    environment.sleep(seconds(30_000)).await;
    let range = json!({ "start_time": "2026-01-01T00:01:00Z", "end_time": "2026-01-01T06:40:00Z",
        "overlap": "allow_all" });
    update(&environment, "backfill", range).await;
    environment.sleep(seconds(10)).await;
    assert_eq!(nominals(&environment).await, (1..=400).map(|minute| minute * 60).collect::<Vec<_>>());
    let range = json!({ "start_time": "2026-01-01T07:00:00Z", "end_time": "2026-01-01T07:02:30Z",
        "overlap": "buffer_all" });
    update(&environment, "backfill", range).await;
    environment.sleep(seconds(10)).await;
    let jobs = jobs(&environment).await;
    let last: Vec<_> = jobs[400..].iter().map(|(nominal, start, ..)| (*nominal, start - jobs[400].1)).collect();
    assert_eq!(last, [(25_200, 0), (25_260, 1), (25_320, 2)], "one after the other");
    assert_eq!(describe(&environment).await["backfills"], json!([]));
}

/// A time that has not come yet starts when it comes, once.
#[tokio::test]
async fn a_backfill_leaves_what_has_not_come_for_then() {
    let environment = environment();
    create(&environment, &every_minute(Overlap::AllowAll, 1)).await;
    environment.sleep(seconds(150)).await;
    let range = json!({ "start_time": "2026-01-01T00:03:00Z", "end_time": "2026-01-01T00:06:00Z" });
    let why = try_update(&environment, "backfill", range).await.unwrap_err();
    assert!(why.contains("it has not come yet"), "{why}");
    let range = json!({ "start_time": "2026-01-01T00:01:30Z", "end_time": "2026-01-01T00:06:00Z" });
    update(&environment, "backfill", range).await;
    environment.sleep(seconds(250)).await;
    assert_eq!(nominals(&environment).await, [60, 120, 120, 180, 240, 300, 360], "that of 120 by hand once more");
}

#[tokio::test]
async fn a_limit_counts_what_starts_by_itself() {
    let environment = environment();
    let state = ScheduleState { remaining_actions: Some(2), ..ScheduleState::default() };
    create(&environment, &bosun_worker::schedule::Schedule { state, ..every_minute(Overlap::Skip, 1) }).await;
    update(&environment, "trigger", json!(null)).await;
    environment.sleep(seconds(600)).await;
    assert_eq!(nominals(&environment).await, [0, 60, 120]);
    let shown = describe(&environment).await;
    assert_eq!(shown["schedule"]["state"]["remaining_actions"], 0);
    assert_eq!(shown["next"], json!(null), "{shown:#}");
}

/// Due later than their nominal times, up to the end; the ids are those of the nominal times.
#[tokio::test]
async fn jitter_delays_starts_and_an_end_is_one() {
    let environment = environment();
    let mut schedule = every_minute(Overlap::AllowAll, 1);
    schedule.spec.jitter = Some(seconds(40));
    schedule.spec.end_time = Some(environment.now().plus(seconds(600)));
    create(&environment, &schedule).await;
    environment.sleep(seconds(1_000)).await;
    let jobs = jobs(&environment).await;
    assert_eq!(
        jobs.iter().map(|(nominal, ..)| *nominal).collect::<Vec<_>>(),
        (1..=10).map(|n| n * 60).collect::<Vec<_>>()
    );
    assert!(jobs.iter().all(|(nominal, start, ..)| (*nominal..*nominal + 41).contains(start)), "{jobs:?}");
    assert!(jobs.iter().any(|(nominal, start, ..)| start > nominal), "{jobs:?}");
    let shown = describe(&environment).await;
    assert_eq!((&shown["next"], &shown["next_times"]), (&json!(null), &json!([])), "it is over, and there: {shown:#}");
    // A schedule that the engine keeps from going on makes up for it.
    schedule.spec.end_time = None;
    schedule.spec.jitter = None;
    update(&environment, "update", json!({ "schedule": schedule })).await;
    environment.client().pause(&target(), "held".into(), None).await.unwrap();
    environment.sleep(seconds(300)).await;
    assert_eq!(nominals(&environment).await.len(), 10);
    environment.client().unpause(&target(), "on".into(), None).await.unwrap();
    environment.sleep(seconds(5)).await;
    assert_eq!(nominals(&environment).await[10..], [1_020, 1_080, 1_140, 1_200, 1_260]);
}

#[tokio::test]
async fn a_failure_pauses_it_where_that_is_asked_for() {
    let environment = environment();
    let mut schedule = every_minute(Overlap::Skip, 1);
    schedule.policies.pause_on_failure = true;
    schedule.action.input = json!({ "seconds": 1, "fail": "no disk" });
    create(&environment, &schedule).await;
    environment.sleep(seconds(300)).await;
    assert_eq!(nominals(&environment).await, [60]);
    let state = &describe(&environment).await["schedule"]["state"];
    assert_eq!(state["note"], "paused after a failure: no disk of 2026-01-01T00:01:00Z");
}

#[tokio::test]
async fn a_change_holds_from_now_on_and_overwrites_nobody_elses() {
    let environment = environment();
    let mut schedule = every_minute(Overlap::Skip, 1);
    create(&environment, &schedule).await;
    environment.sleep(seconds(130)).await;
    schedule.spec.intervals[0].every = seconds(3_600);
    schedule.spec.intervals[0].offset = seconds(200);
    update(&environment, "update", json!({ "schedule": schedule, "version": 1 })).await;
    let refused = try_update(&environment, "update", json!({ "schedule": schedule, "version": 1 })).await.unwrap_err();
    assert!(refused.contains("version: the schedule has been changed meanwhile: it is 2, and 1"), "{refused}");
    schedule.spec.intervals[0].every = seconds(0);
    let refused = try_update(&environment, "update", json!({ "schedule": schedule })).await.unwrap_err();
    assert!(refused.contains("spec.intervals[0]: `every` is whole seconds"), "{refused}");
    let refused = try_update(&environment, "trigger", json!({ "overlp": "skip" })).await.unwrap_err();
    assert!(refused.contains("unknown field `overlp`"), "{refused}");
    let refused = try_update(&environment, "explode", json!({})).await.unwrap_err();
    assert!(refused.contains("a schedule has no explode; it has update, pause"), "{refused}");
    environment.sleep(seconds(4_000)).await;
    assert_eq!(nominals(&environment).await, [60, 120, 200, 3_800]);
}

#[tokio::test]
async fn a_schedule_that_is_deleted_starts_nothing_and_ends_nothing() {
    let environment = environment();
    create(&environment, &every_minute(Overlap::Skip, 100)).await;
    environment.sleep(seconds(70)).await;
    update(&environment, "delete", json!(null)).await;
    environment.sleep(seconds(600)).await;
    assert_eq!(jobs(&environment).await, [(60, 60, 160, WorkflowStatus::Completed)]);
    let open = environment.client().count("ExecutionStatus = 'Running'").await.unwrap();
    assert_eq!(open, 0, "who started it has ended too");
    // The id is free again.
    create(&environment, &every_minute(Overlap::Skip, 1)).await;
    environment.sleep(seconds(60)).await;
    assert_eq!(jobs(&environment).await.len(), 2);
}

#[tokio::test]
async fn what_cannot_be_started_is_told() {
    let environment = environment();
    create(&environment, &every_minute(Overlap::Skip, 1)).await;
    // The id of the first start is taken by somebody else's run.
    let id = WorkflowId::of("job-2026-01-01T00:01:00Z");
    let input = bosun_engine::Payload::encode(&json!({ "seconds": 1_000 })).unwrap();
    let request = bosun_engine::StartWorkflow::new("job".into(), id.clone()).input(input);
    environment.client().start(request).await.unwrap();
    environment.sleep(seconds(130)).await;
    let shown = describe(&environment).await;
    assert_eq!(shown["recent"][1]["outcome"], "not_started", "{shown:#}");
    assert_eq!(shown["recent"][0]["outcome"], "completed", "{shown:#}");
    let counts = (&shown["counts"]["actions"], &shown["counts"]["failed"]);
    assert_eq!(counts, (&json!(1), &json!(1)), "what never was is a failure, and no start: {shown:#}");
    let open = environment.client().describe(&Target::workflow(id)).await.unwrap();
    assert_eq!(open.info.status, WorkflowStatus::Running, "it is left alone");
}

#[tokio::test]
async fn a_start_that_never_was_pauses_it_where_a_failure_does() {
    let environment = environment();
    let mut schedule = every_minute(Overlap::Skip, 1);
    schedule.policies.pause_on_failure = true;
    create(&environment, &schedule).await;
    let id = WorkflowId::of("job-2026-01-01T00:01:00Z");
    let input = bosun_engine::Payload::encode(&json!({ "seconds": 1_000 })).unwrap();
    let request = bosun_engine::StartWorkflow::new("job".into(), id).input(input);
    environment.client().start(request).await.unwrap();
    environment.sleep(seconds(300)).await;
    let shown = describe(&environment).await;
    assert_eq!(shown["schedule"]["state"]["paused"], true, "{shown:#}");
    let counts = (&shown["counts"]["actions"], &shown["counts"]["failed"]);
    assert_eq!(counts, (&json!(0), &json!(1)), "{shown:#}");
}
