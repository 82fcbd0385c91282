//! Bugs 42 to 47: something outside of the run remembers earlier runs, and the code asks it.

use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use bosun_engine::Failure;
use bosun_engine::workflow::{WfContext, WorkflowRegistry};

use super::{caught_naming, kit, quick};

const HERE: (&str, &str) = ("memory.rs", include_str!("memory.rs"));
const BY_REPLAY: &[&str] = &["replay-mismatch", "unstable-commands"];

fn code<F>(bug: impl Fn(WfContext, u32) -> F + Send + Sync + 'static) -> WorkflowRegistry
where
    F: Future<Output = Result<u32, Failure>> + 'static,
{
    WorkflowRegistry::new().workflow("bug", bug)
}

/// 42: keeps results of activities for all runs.
async fn results(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    static KNOWN: Mutex<BTreeMap<u32, u32>> = Mutex::new(BTreeMap::new());
    let known = KNOWN.lock().ok().and_then(|known| known.get(&n).copied());
    if let Some(known) = known {
        return Ok(known);
    }
    let found = ctx.activity("work", &n, quick()).await?; // bug 42
    KNOWN.lock().ok().map(|mut known| known.insert(n, found));
    Ok(found)
}

#[test]
fn bug_42_a_cache_of_results_is_caught_by_replay_and_told_where_the_command_was() {
    caught_naming(kit(code(results)), BY_REPLAY, HERE, "bug 42");
}

/// 43: counts in what the registry gave it.
fn counted() -> WorkflowRegistry {
    let runs = Arc::new(AtomicU32::new(0));
    code(move |ctx, n| {
        let number = runs.fetch_add(1, Ordering::Relaxed);
        async move {
            ctx.activity("work", &(number, n), quick()).await // bug 43
        }
    })
}

#[test]
fn bug_43_a_counter_of_the_registry_is_caught_by_replay() {
    caught_naming(kit(counted()), BY_REPLAY, HERE, "bug 43");
}

/// 44: what the first run was given is kept for all.
async fn first_input(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    static FIRST: OnceLock<u32> = OnceLock::new();
    let limit = *FIRST.get_or_init(|| n);
    ctx.activity("work", &(n, limit), quick()).await // bug 44
}

#[test]
fn bug_44_a_static_that_keeps_the_first_input_is_caught_in_another_process() {
    caught_naming(kit(code(first_input)), &["other-process"], HERE, "bug 44");
}

/// 45: the stack becomes an input; it is another one in replay.
async fn stack(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let report = format!("{n}\n{}", Backtrace::force_capture());
    ctx.activity("work", &report, quick()).await // bug 45
}

#[test]
fn bug_45_a_stack_in_an_input_is_caught_by_the_hash_of_the_input() {
    caught_naming(kit(code(stack)), BY_REPLAY, HERE, "bug 45");
}

/// 46: shares what another run holds, as long as it holds it.
async fn shared(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    static SHARED: Mutex<Weak<u32>> = Mutex::new(Weak::new());
    let held = SHARED.lock().ok().and_then(|shared| shared.upgrade());
    let value = match held {
        Some(held) => held,
        None => Arc::new(ctx.activity("more", &n, quick()).await?), // bug 46
    };
    if let Ok(mut shared) = SHARED.lock() {
        *shared = Arc::downgrade(&value);
    }
    let done = ctx.activity("work", &*value, quick()).await; // bug 46
    drop(value);
    done
}

#[test]
fn bug_46_a_value_that_other_runs_keep_alive_is_caught_by_replay() {
    caught_naming(kit(code(shared)), BY_REPLAY, HERE, "bug 46");
}

/// 47: two runs at once learn of each other.
async fn crowded(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    struct Present;
    static PRESENT: AtomicU32 = AtomicU32::new(0);
    impl Drop for Present {
        fn drop(&mut self) {
            PRESENT.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let others = PRESENT.fetch_add(1, Ordering::SeqCst);
    let _present = Present;
    if others > 0 {
        ctx.timer(std::time::Duration::from_secs(1)).await?; // bug 47
    }
    ctx.activity("work", &n, quick()).await // bug 47
}

#[test]
fn bug_47_a_count_of_runs_that_are_loaded_is_caught_by_replay() {
    caught_naming(kit(code(crowded)), BY_REPLAY, HERE, "bug 47");
}

/// A helper asks, and whoever calls it is wrong.
async fn helped(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let first = asks(&ctx, n).await?;
    asks(&ctx, first.wrapping_add(number)).await // the caller
}

async fn asks(ctx: &WfContext, n: u32) -> Result<u32, Failure> {
    ctx.activity("work", &n, quick()).await // the helper
}

#[test]
fn a_finding_names_the_helper_that_asked_and_whoever_called_it() {
    let failed = caught_naming(kit(code(helped)), BY_REPLAY, HERE, "the helper");
    assert!(failed.to_string().contains("called at "), "{failed}");
    caught_naming(kit(code(helped)), BY_REPLAY, HERE, "the caller");
}
