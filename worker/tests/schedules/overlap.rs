//! Each overlap policy: a job of 150 seconds, due every minute.

use bosun_engine::WorkflowStatus as S;
use bosun_worker::schedule::Overlap;

use super::kit::*;

/// What has been after so many seconds.
async fn after(overlap: Overlap, job: u64, until: u64) -> (Vec<(u64, u64, u64, S)>, serde_json::Value) {
    let environment = environment();
    create(&environment, &every_minute(overlap, job)).await;
    environment.sleep(seconds(until)).await;
    environment.settle().await;
    (jobs(&environment).await, describe(&environment).await)
}

/// E24: the usual case.
#[tokio::test]
async fn each_time_starts_one_run_under_an_id_of_its_own() {
    let (jobs, shown) = after(Overlap::Skip, 10, 185).await;
    assert_eq!(jobs, [(60, 60, 70, S::Completed), (120, 120, 130, S::Completed), (180, 180, 0, S::Running)]);
    assert_eq!(shown["counts"]["actions"], 3, "{shown:#}");
    assert_eq!(shown["recent"][0]["nominal"], "2026-01-01T00:02:00Z");
    assert_eq!(shown["recent"][0]["outcome"], "completed");
    assert_eq!(shown["running"][0]["workflow_id"], "job-2026-01-01T00:03:00Z");
    assert_eq!(shown["next"]["at"], "2026-01-01T00:04:00Z");
    assert_eq!(shown["next_times"][1], "2026-01-01T00:05:00Z");
}

#[tokio::test]
async fn skip_starts_nothing_while_one_runs() {
    let (jobs, shown) = after(Overlap::Skip, 150, 430).await;
    assert_eq!(jobs, [(60, 60, 210, S::Completed), (240, 240, 390, S::Completed), (420, 420, 0, S::Running)]);
    assert_eq!(shown["counts"]["overlap_skipped"], 4, "{shown:#}");
}

#[tokio::test]
async fn buffer_one_starts_the_first_that_waited_when_the_other_has_ended() {
    let (jobs, shown) = after(Overlap::BufferOne, 150, 430).await;
    // 120 waits and 180 is left out; 240 waits and 300 is left out; 360 waits and 420 is left out.
    assert_eq!(jobs, [(60, 60, 210, S::Completed), (120, 210, 360, S::Completed), (240, 360, 0, S::Running)]);
    assert_eq!(shown["counts"]["overlap_skipped"], 3, "{shown:#}");
    assert_eq!(shown["waiting"].as_array().unwrap().len(), 1, "{shown:#}");
}

#[tokio::test]
async fn buffer_all_starts_all_one_after_the_other() {
    let (jobs, shown) = after(Overlap::BufferAll, 150, 430).await;
    assert_eq!(jobs, [(60, 60, 210, S::Completed), (120, 210, 360, S::Completed), (180, 360, 0, S::Running)]);
    assert_eq!(shown["counts"]["overlap_skipped"], 0);
    let waiting: Vec<_> = shown["waiting"].as_array().unwrap().iter().map(|one| &one["nominal"]).collect();
    let expected = ["2026-01-01T00:04:00Z", "2026-01-01T00:05:00Z", "2026-01-01T00:06:00Z", "2026-01-01T00:07:00Z"];
    assert_eq!(waiting, expected, "{shown:#}");
}

#[tokio::test]
async fn cancel_other_lets_the_other_clean_up_and_starts_then() {
    let (jobs, shown) = after(Overlap::CancelOther, 150, 190).await;
    assert_eq!(jobs, [(60, 60, 125, S::Canceled), (120, 125, 185, S::Canceled), (180, 185, 0, S::Running)]);
    assert_eq!(shown["recent"][0]["outcome"], "canceled", "{shown:#}");
}

#[tokio::test]
async fn terminate_other_ends_the_other_at_once() {
    let (jobs, shown) = after(Overlap::TerminateOther, 150, 190).await;
    assert_eq!(jobs, [(60, 60, 120, S::Terminated), (120, 120, 180, S::Terminated), (180, 180, 0, S::Running)]);
    assert_eq!(shown["recent"][0]["outcome"], "terminated", "{shown:#}");
}

#[tokio::test]
async fn allow_all_starts_whatever_runs() {
    let (jobs, shown) = after(Overlap::AllowAll, 150, 190).await;
    assert_eq!(jobs, [(60, 60, 0, S::Running), (120, 120, 0, S::Running), (180, 180, 0, S::Running)]);
    assert_eq!(shown["running"].as_array().unwrap().len(), 3, "{shown:#}");
}
