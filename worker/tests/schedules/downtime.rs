//! Crashes, and time in which no worker ran.

use std::time::Duration;

use bosun_engine::WorkerOptions;
use bosun_engine::testing::TestEnvironment;
use bosun_worker::schedule::Overlap;
use serde_json::json;

use super::kit::*;

/// The clock goes on while no worker runs.
fn later(by: Duration) -> impl FnOnce(&mut WorkerOptions) {
    move |options| {
        let clock = options.clock.as_virtual().unwrap();
        clock.advance_to(clock.now().plus(by));
    }
}

async fn after_an_hour_down(overlap: Overlap, window: u64) -> (TestEnvironment, serde_json::Value) {
    let environment = environment();
    let mut schedule = every_minute(overlap, 1);
    schedule.policies.catch_up_window = seconds(window);
    create(&environment, &schedule).await;
    environment.sleep(seconds(90)).await;
    let environment = environment.restart(later(seconds(3_600))).unwrap();
    environment.sleep(seconds(80)).await;
    let shown = describe(&environment).await;
    (environment, shown)
}

/// At 3 690 there are 60 times that were not taken, of which those from 3 390 on are within five minutes.
#[tokio::test]
async fn what_is_within_the_catch_up_window_is_made_up_for_and_the_rest_is_counted() {
    let (environment, shown) = after_an_hour_down(Overlap::AllowAll, 300).await;
    assert_eq!(nominals(&environment).await, [60, 3_420, 3_480, 3_540, 3_600, 3_660, 3_720]);
    assert_eq!(shown["counts"]["missed_catchup_window"], 55, "{shown:#}");
}

#[tokio::test]
async fn what_is_made_up_for_follows_the_overlap_policy() {
    let (environment, shown) = after_an_hour_down(Overlap::Skip, 300).await;
    assert_eq!(nominals(&environment).await, [60, 3_420, 3_720]);
    assert_eq!(shown["counts"]["overlap_skipped"], 4, "{shown:#}");
    let (environment, _) = after_an_hour_down(Overlap::BufferAll, 300).await;
    assert_eq!(nominals(&environment).await, [60, 3_420, 3_480, 3_540, 3_600, 3_660, 3_720]);
}

/// More than one turn takes, and more than is counted one by one.
#[tokio::test]
async fn a_long_downtime_is_made_up_for_in_turns() {
    let environment = environment();
    let mut schedule = every_minute(Overlap::AllowAll, 0);
    schedule.spec.intervals[0].every = seconds(1);
    schedule.policies.catch_up_window = seconds(450);
    create(&environment, &schedule).await;
    let environment = environment.restart(later(seconds(1_000_000))).unwrap();
    environment.sleep(Duration::from_millis(500)).await;
    update(&environment, "pause", json!({})).await;
    environment.sleep(seconds(2)).await;
    let nominals = nominals(&environment).await;
    assert_eq!(nominals, (999_550..=1_000_000).collect::<Vec<_>>());
    let missed = describe(&environment).await["counts"]["missed_catchup_window"].as_u64().unwrap();
    assert!((10_000..11_000).contains(&missed), "{missed}");
}

/// G18: power cuts at any moment leave no time out and start none twice.
#[tokio::test]
async fn no_time_is_lost_or_taken_twice_over_power_cuts() {
    for overlap in [Overlap::AllowAll, Overlap::BufferAll, Overlap::TerminateOther] {
        let mut environment = environment();
        create(&environment, &every_minute(overlap, 45)).await;
        for seed in 0..30_u64 {
            // Around the very moments at which something happens.
            environment.sleep(Duration::from_millis(14_990 + seed * 7 % 30)).await;
            environment = environment.crash(seed, |_| {}).unwrap();
        }
        environment.sleep(seconds(200)).await;
        update(&environment, "pause", json!({})).await;
        environment.sleep(seconds(600)).await;
        let (jobs, end) = (jobs(&environment).await, since(environment.now()));
        let expected: Vec<u64> = (1..).map(|minute| minute * 60).take_while(|at| *at <= end - 600).collect();
        let nominals: Vec<u64> = jobs.iter().map(|(nominal, ..)| *nominal).collect();
        assert_eq!(nominals, expected, "{overlap:?}");
        let shown = describe(&environment).await;
        assert_eq!(shown["counts"]["actions"], expected.len(), "{shown:#}");
        assert_eq!(shown["running"], json!([]), "{shown:#}");
    }
}
