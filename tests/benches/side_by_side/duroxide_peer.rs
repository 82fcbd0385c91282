//! A peer that is a crate: duroxide on a SQLite file, with its polling interval tuned down to 5 ms.
//!
//! CI does not compile this file: the peer brings SQLite and some two hundred crates that nothing else needs. Whoever
//! changes it, or the dependency, runs `cargo bench -p bosun-tests --bench side_by_side --features peers` once.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{ObservabilityConfig, Runtime, RuntimeOptions};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

/// Runs so many orchestrations of so many sequential steps; the time of the whole.
pub(crate) fn steps(runs: usize, steps: usize) -> Duration {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime");
    let directory = tempfile::tempdir_in(super::flows::bench_dir()).expect("a directory");
    runtime.block_on(async {
        let path = directory.path().join("peer.db");
        std::fs::File::create(&path).expect("a file");
        let store = Arc::new(SqliteProvider::new(&format!("sqlite:{}", path.display()), None).await.expect("a store"));
        let activities = ActivityRegistry::builder()
            .register(
                "step",
                |_: ActivityContext, input: String| async move { Ok(format!("{input}{}", "y".repeat(100))) },
            )
            .build();
        let flow = |ctx: OrchestrationContext, steps: String| async move {
            for _ in 0..steps.parse::<usize>().map_err(|why| why.to_string())? {
                ctx.schedule_activity("step", "x".repeat(40)).await?;
            }
            Ok(steps)
        };
        let orchestrations = OrchestrationRegistry::builder().register("steps", flow).build();
        let options = RuntimeOptions {
            dispatcher_min_poll_interval: Duration::from_millis(5),
            orchestration_concurrency: 8,
            worker_concurrency: 8,
            // Its warnings about a locked database would drown the figures.
            observability: ObservabilityConfig { log_level: "error".into(), ..ObservabilityConfig::default() },
            ..RuntimeOptions::default()
        };
        let peer = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
        let client = Client::new(store);
        let begun = std::time::Instant::now();
        for run in 0..runs {
            client.start_orchestration(&format!("run-{run}"), "steps", steps.to_string()).await.expect("a start");
        }
        for run in 0..runs {
            let wait = Duration::from_secs(300);
            client.wait_for_orchestration(&format!("run-{run}"), wait).await.expect("an end");
        }
        let time = begun.elapsed();
        peer.shutdown(None).await;
        time
    })
}
