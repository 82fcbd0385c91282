//! `bosun` as it ships, with workflows and activities that harm the process they run in: for the tests of what the worker
//! does about them (G23). Nothing that ships has them.

use std::process::ExitCode;
use std::time::Duration;

use bosun_engine::workflow::WfContext;
use bosun_engine::{ActivityContext, ActivityOptions, Failure, Payload, RetryPolicy};
use bosun_worker::App;
use serde_json::{Value, json};

fn main() -> ExitCode {
    App::new()
        .with_supervisors()
        .workflow("poison", |context: WfContext, kind: String| async move {
            // The start is durable before anything happens.
            context.timer(Duration::from_millis(200)).await?;
            harm(&context, &kind).await
        })
        .workflow("poison-at-once", |context: WfContext, kind: String| async move { harm(&context, &kind).await })
        .activity("harm", |_: ActivityContext, kind: String| async move {
            tokio::task::yield_now().await;
            process_ends(&kind);
            Ok("harmless")
        })
        .main()
}

/// What ends the process it runs in.
fn process_ends(kind: &str) {
    match kind {
        "overflow" => println!("{}", deeper(1)),
        "abort" => std::process::abort(),
        "allocate" => drop(std::hint::black_box(vec![1_u8; 10 << 30])),
        _ => {}
    }
}

/// How long this thread has had a core.
fn on_a_core() -> Duration {
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(counts.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(u64::MAX))
}

#[expect(unconditional_recursion, reason = "that is what it is for")]
fn deeper(level: u64) -> u64 {
    let frame = std::hint::black_box([level; 64]);
    deeper(level + 1) + frame[(level % 64) as usize]
}

async fn harm(context: &WfContext, kind: &str) -> Result<Value, Failure> {
    process_ends(kind);
    match kind {
        "busy" => loop {
            std::hint::black_box(kind);
        },
        // Time of a core, however long that takes by the clock.
        "slow" => {
            let began = on_a_core();
            while on_a_core() - began < Duration::from_secs(2) {
                std::hint::black_box((0..1_000_000_u64).sum::<u64>());
            }
        }
        "busy-calling" => loop {
            context.random_u64();
        },
        "endless" => {
            for i in 0..1_000_000_u64 {
                context.side_effect(|| i);
            }
        }
        "futures" => {
            let options = ActivityOptions::start_to_close(Duration::from_secs(5));
            let futures = (0..1_000_000).map(|i| context.activity::<Value>("echo", &i, options.clone()));
            bosun_engine::workflow::join_all(futures.collect::<Vec<_>>()).await;
        }
        "deep" => {
            // More than the stack of a turn holds, and soon there: slow code would be taken off its thread before it overflows.
            let deep = (0..1_500_000).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
            let encoded = Payload::encode(&deep);
            std::mem::forget(deep);
            return Ok(json!(encoded?.len()));
        }
        "activity" => {
            let retry = RetryPolicy { initial_interval: Duration::from_millis(10), ..RetryPolicy::default() };
            let options = ActivityOptions::start_to_close(Duration::from_secs(60)).with_retry(retry);
            return context.activity::<Value>("harm", &"abort", options).await;
        }
        _ => {}
    }
    Ok(json!("harmless"))
}
