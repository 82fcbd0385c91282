//! Bugs 18 to 22, 24: the code keeps state where history cannot see it, or tells replay from life.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use bosun_engine::Failure;
use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_replay::determinism::ForbiddenCall;

use super::{caught, caught_by_effect, caught_calling, kit, quick};

fn code<F>(bug: impl Fn(WfContext, u32) -> F + Send + Sync + 'static) -> WorkflowRegistry
where
    F: Future<Output = Result<u32, Failure>> + 'static,
{
    WorkflowRegistry::new().workflow("bug", bug)
}

/// 18: counts runs in a static.
async fn static_counter(ctx: WfContext, _: u32) -> Result<u32, Failure> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    ctx.activity("work", &number, quick()).await
}

/// 18: keeps what the first run was given.
async fn cached(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    static FIRST: OnceLock<u32> = OnceLock::new();
    if FIRST.get().is_none() {
        let _ = FIRST.set(n);
        ctx.activity::<u32>("more", &n, quick()).await?;
    }
    ctx.activity("work", &n, quick()).await
}

/// 18: remembers on its thread.
async fn thread_local(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    thread_local!(static SEEN: Cell<u32> = const { Cell::new(0) });
    let seen = SEEN.with(|seen| seen.replace(seen.get() + 1));
    ctx.activity("work", &(n + seen), quick()).await
}

#[test]
fn bug_18_state_outside_the_run_is_caught_by_replay_in_the_same_process() {
    caught_by_effect(kit(code(static_counter)), &["replay-mismatch"]);
    caught_by_effect(kit(code(cached)), &["replay-mismatch"]);
    caught_by_effect(kit(code(thread_local)), &["replay-mismatch"]);
}

/// 19: an address becomes a key.
async fn address(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let boxed = Box::new(n);
    let key = format!("{:p}", &raw const *boxed);
    let done = ctx.activity("work", &key, quick()).await;
    drop(boxed);
    done
}

#[test]
fn bug_19_an_address_is_caught_by_a_twin_with_other_memory() {
    caught_by_effect(kit(code(address)), &["replay-mismatch", "unstable-commands"]);
}

/// 20: a `Drop` that gives a command, which is lost when the run is evicted.
struct Farewell(WfContext);

impl Drop for Farewell {
    fn drop(&mut self) {
        drop(self.0.activity::<u32>("more", &0, quick()));
    }
}

async fn says_farewell(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let _farewell = Farewell(ctx.clone());
    ctx.activity("work", &n, quick()).await
}

#[test]
fn bug_20_a_drop_that_gives_commands_is_caught_by_eviction_and_crashes() {
    caught_by_effect(kit(code(says_farewell)), &["stray-request"]);
}

/// 20: goes on after whatever unwound out of a call of the context, which in replay is how a mismatch leaves.
async fn swallows(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    static LIVES: AtomicU32 = AtomicU32::new(0);
    let first = LIVES.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
    if !first {
        drop(catch_unwind(AssertUnwindSafe(|| ctx.side_effect(|| 1_u32))));
    }
    ctx.activity("work", &n, quick()).await
}

#[test]
fn bug_20_unwinding_that_is_swallowed_is_caught_all_the_same() {
    caught_by_effect(kit(code(swallows)), &["replay-mismatch"]);
}

/// 21: finds out that it is replayed (a side effect does not run then), and skips a command.
async fn is_replaying(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let lives = Rc::new(Cell::new(false));
    let noted = lives.clone();
    ctx.side_effect(move || noted.set(true));
    if lives.get() {
        ctx.activity::<u32>("more", &n, quick()).await?;
    }
    ctx.activity("work", &n, quick()).await
}

#[test]
fn bug_21_a_command_that_is_only_given_in_life_is_caught_by_replay() {
    caught_by_effect(kit(code(is_replaying)), &["replay-mismatch"]);
}

/// 22: a query that changes the state the context keeps.
async fn query_sets(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let asked = ctx.state("asked", 0_u32);
    ctx.on_query("asked", move |(): ()| {
        asked.set(asked.get() + 1);
        Ok(asked.get())
    });
    ctx.activity("work", &n, quick()).await
}

/// 22: a query that changes state of the code's own, which shows much later.
async fn query_counts(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let asked = Rc::new(RefCell::new(n));
    let counted = asked.clone();
    ctx.on_query("asked", move |(): ()| {
        *counted.borrow_mut() += 1;
        Ok(*counted.borrow())
    });
    ctx.activity::<u32>("work", &n, quick()).await?;
    let input = *asked.borrow();
    ctx.activity("more", &input, quick()).await
}

#[test]
fn bug_22_a_query_that_changes_state_is_caught() {
    caught_by_effect(kit(code(query_sets)).query("asked", &()), &["query-mutates"]);
    caught_by_effect(kit(code(query_counts)).query("asked", &()), &["replay-mismatch", "unstable-query"]);
}

/// 24: the time, in the text of an error, in the input of an activity.
async fn error_text(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    match ctx.activity::<u32>("work", &n, quick()).await {
        Ok(done) => Ok(done),
        Err(failure) => {
            let report = format!("{failure} at {:?}", SystemTime::now());
            ctx.activity("more", &report, quick()).await
        }
    }
}

#[test]
fn bug_24_the_time_in_an_error_text_is_caught_at_the_call_and_by_the_hash_of_the_input() {
    caught_calling(kit(code(error_text)), ForbiddenCall::Clock, "state.rs");
    caught_by_effect(kit(code(error_text)).allow(ForbiddenCall::Clock), &["replay-mismatch"]);
}

/// A panic in the workflow is told as what it is, with its place.
#[test]
fn a_panic_is_told_with_its_place() {
    let code = code(|_, n: u32| async move { if n > 3 { panic!("no luck") } else { Ok(n) } });
    let failed = caught(kit(code));
    assert_eq!(failed.kind(), "panic");
    assert!(failed.finding.to_string().contains("state.rs:"), "{failed}");
    // The smallest input that panics.
    assert_eq!(failed.plan.input, bosun_engine::Payload::encode(&4).unwrap());
}
