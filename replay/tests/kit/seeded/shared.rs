//! Bugs that only show beside other runs, or in another environment.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bosun_engine::Failure;
use bosun_engine::workflow::{WfContext, WorkflowRegistry};

use super::{caught, kit, quick};

/// Two runs that are in memory at the same time share what the first was started with.
async fn shared_pool(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    static POOL: Mutex<Option<Weak<u32>>> = Mutex::new(None);
    let mine = {
        let mut pool = POOL.lock().unwrap();
        pool.as_ref().and_then(Weak::upgrade).unwrap_or_else(|| {
            let first = Arc::new(n);
            *pool = Some(Arc::downgrade(&first));
            first
        })
    };
    ctx.timer(Duration::from_secs(5)).await?;
    ctx.activity("work", &*mine, quick()).await
}

#[test]
fn what_two_runs_share_is_caught_while_both_are_in_memory() {
    for test in [kit(shared()), kit(shared()).in_this_process_only()] {
        let failed = caught(test);
        assert_eq!(failed.kind(), "other-run", "{failed}");
        assert!(failed.to_string().contains("ScheduleActivity work"), "{failed}");
        assert_eq!(failed.seed, None, "no single life shows it");
    }
}

fn shared() -> WorkflowRegistry {
    WorkflowRegistry::new().workflow("bug", shared_pool)
}

/// A variable that only looks as if the test harness needed it, read before any run.
#[test]
fn a_variable_that_begins_like_those_of_cargo_is_caught_in_another_process() {
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let reads = move |ctx: WfContext, n: u32| {
        let version = version.clone();
        async move { ctx.activity::<u32>("work", &format!("{version}{n}"), quick()).await }
    };
    let failed = caught(kit(WorkflowRegistry::new().workflow("bug", reads)));
    assert_eq!(failed.kind(), "other-process", "{failed}");
}
