//! A schedule for ever: its history stays short, and what runs meanwhile is not forgotten.

use bosun_engine::{Payload, Target, WorkflowId, WorkflowStatus};
use bosun_worker::schedule::Overlap;
use bosun_worker::schedule::messages::action_run_id;
use serde_json::json;

use super::kit::*;

/// A job of half an hour, due every second: the schedule continues as new while it runs.
#[tokio::test]
async fn a_run_outlives_the_run_of_the_schedule_that_began_it() {
    let environment = environment();
    let mut schedule = every_minute(Overlap::Skip, 1_800);
    schedule.spec.intervals[0].every = seconds(1);
    create(&environment, &schedule).await;
    let first = environment.client().describe(&target()).await.unwrap().info.run_id;
    environment.sleep(seconds(1_790)).await;
    let now = environment.client().describe(&target()).await.unwrap();
    assert_ne!(now.info.run_id, first, "it has continued as new");
    assert!(now.info.history.events < 2_100, "{}", now.info.history.events);
    assert_eq!(nominals(&environment).await, [1], "and knows what runs");
    environment.sleep(seconds(20)).await;
    let starts: Vec<_> = jobs(&environment).await.iter().map(|(nominal, _, end, _)| (*nominal, *end)).collect();
    assert_eq!(starts, [(1, 1_801), (1_802, 0)], "its end is heard of all the same");
    let shown = describe(&environment).await;
    assert_eq!(shown["recent"][0]["outcome"], "completed", "{shown:#}");
    assert_eq!(shown["counts"]["overlap_skipped"].as_u64().unwrap() + 2, since(environment.now()));
}

/// Who began the job is ended by force, where nobody can tell the schedule.
#[tokio::test]
async fn a_start_that_was_removed_by_force_does_not_block_the_schedule_for_ever() {
    let environment = environment();
    let mut schedule = every_minute(Overlap::Skip, 1_000_000);
    schedule.spec.intervals[0].every = seconds(1);
    create(&environment, &schedule).await;
    environment.sleep(seconds(1_500)).await;
    let start = action_run_id(&target().workflow_id, "2026-01-01T00:00:01Z");
    let start = Target::workflow(WorkflowId::of(start));
    environment.client().terminate(&start, "by hand".into(), None).await.unwrap();
    environment.sleep(seconds(1_500)).await;
    let jobs = jobs(&environment).await;
    assert_eq!(jobs[0].3, WorkflowStatus::Terminated);
    assert_eq!(jobs.len(), 2, "another has begun since: {jobs:?}");
}

/// A thousand short jobs, with a crash now and then.
#[tokio::test]
async fn a_thousand_starts_are_a_thousand_runs() {
    let mut environment = environment();
    let mut schedule = every_minute(Overlap::BufferAll, 0);
    schedule.spec.intervals[0].every = seconds(1);
    create(&environment, &schedule).await;
    for seed in 0..5 {
        environment.sleep(seconds(180)).await;
        environment = environment.crash(seed, |_| {}).unwrap();
    }
    environment.sleep(seconds(50)).await;
    let end = since(environment.now());
    assert_eq!(nominals(&environment).await, (1..=end).collect::<Vec<_>>());
    let three = Payload::encode(&json!({ "count": 3 })).unwrap();
    let times = environment.client().query(&target(), &"next_times".into(), three).await.unwrap().to_json();
    assert_eq!(times[0], bosun_worker::schedule::text::moment(environment.now().plus(seconds(1))));
}
