//! Which runs stay loaded (G24): all that take turns, whatever their number, and of those at rest `loaded_max`.
//!
//! A run in the async form that is read again runs its code from the beginning, which is what is counted here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::*;

use crate::kit::*;

const RUNS: usize = 32;
const ROUNDS: usize = 4;

/// How often the code began, for so many runs that each hear a signal in every round.
async fn beginnings(loaded_for: Duration, between_rounds: Duration) -> usize {
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = begun.clone();
    let workflows = WorkflowRegistry::new().workflow("hears", move |ctx: WfContext, (): ()| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            for _ in 0..=ROUNDS {
                ctx.signal_channel::<()>("word").recv().await?;
            }
            Ok(())
        }
    });
    let environment = TestEnvironment::start_with(workflows, ActivityRegistry::new(), |options| {
        (options.shards, options.loaded_max, options.loaded_for) = (1, 4, loaded_for);
    })
    .unwrap();
    let client = environment.client();
    let ids: Vec<String> = (0..RUNS).map(|run| format!("hears-{run}")).collect();
    for id in &ids {
        client.start(start("hears", id, &())).await.unwrap();
    }
    for _ in 0..ROUNDS {
        std::thread::sleep(between_rounds);
        for id in &ids {
            client.signal(&target(id), signal("word", &())).await.unwrap();
        }
    }
    begun.load(Ordering::Relaxed)
}

#[tokio::test]
async fn runs_that_take_turns_stay_and_those_at_rest_go() {
    assert_eq!(
        beginnings(HOUR, Duration::ZERO).await,
        RUNS,
        "more than `loaded_max` take turns, and none is read again"
    );
    let read_again = RUNS + ROUNDS * (RUNS - 4);
    assert!(beginnings(Duration::ZERO, Duration::ZERO).await >= read_again, "all but a few are read in every round");
    let rests = Duration::from_millis(5);
    assert!(beginnings(rests, rests * 20).await >= RUNS + RUNS - 4, "what was at rest has gone");
}
