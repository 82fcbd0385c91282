//! Bugs 6, 7, 9, 23: the code leaves the order of things to something else.

use std::future::ready;
use std::pin::Pin;

use bosun_engine::Failure;
use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_replay::determinism::ForbiddenCall;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::{caught, caught_by_effect, caught_calling, kit, quick};

const HERE: &str = "branches.rs";

/// 6: a select that begins anywhere.
async fn unbiased(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let mut sum = 0;
    for i in 0..8 {
        sum += tokio::select! {
            left = ready(n) => left,
            right = ready(n + 1) => right + i,
        };
    }
    ctx.activity("work", &sum, quick()).await
}

#[test]
fn bug_06_an_unbiased_select_is_caught() {
    let test = kit(WorkflowRegistry::new().workflow("bug", unbiased)).twins(16);
    let found = caught(test);
    assert!(["forbidden-call", "replay-mismatch", "unstable-commands"].contains(&found.kind()), "{found}");
    let test = kit(WorkflowRegistry::new().workflow("bug", unbiased)).twins(16);
    caught_by_effect(
        test.allow(ForbiddenCall::HashSeed).allow(ForbiddenCall::Random),
        &["replay-mismatch", "unstable-commands"],
    );
}

/// 7: spawns on a runtime, which is not there.
async fn spawned(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let next = tokio::spawn(async move { n + 1 }).await.unwrap_or_default();
    ctx.activity("work", &next, quick()).await
}

/// 7: brings a runtime of its own, and waits for it.
async fn own_runtime(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    static RUNTIME: std::sync::LazyLock<Option<tokio::runtime::Runtime>> =
        std::sync::LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().ok());
    let Some(runtime) = RUNTIME.as_ref() else { return Ok(0) };
    let (send, mut receive) = tokio::sync::oneshot::channel();
    let (begin, may_begin) = tokio::sync::oneshot::channel();
    runtime.spawn(async move {
        let _ = may_begin.await;
        send.send(n + 1)
    });
    // The runtime's thread begins when somebody waits for it: were it done before, there would be no wake-up to catch.
    let mut begin = Some(begin);
    let next = std::future::poll_fn(|cx| {
        let poll = Pin::new(&mut receive).poll(cx);
        let _ = begin.take().map(|begin| begin.send(()));
        poll
    });
    let next = next.await.unwrap_or_default();
    ctx.activity("work", &next, quick()).await
}

#[test]
fn bug_07_a_runtime_is_caught_when_it_is_wanted_and_when_it_wakes() {
    // On the way to its panic tokio makes an id, and that asks for no randomness: the panic is what is seen.
    let test = kit(WorkflowRegistry::new().workflow("bug", spawned));
    caught_by_effect(test, &["ambient-runtime"]);
    let all = [
        ForbiddenCall::Thread,
        ForbiddenCall::HashSeed,
        ForbiddenCall::Random,
        ForbiddenCall::Clock,
        ForbiddenCall::File,
        ForbiddenCall::Environment,
    ];
    let test = kit(WorkflowRegistry::new().workflow("bug", own_runtime));
    let test = all.into_iter().fold(test, |test, call| test.allow(call));
    caught_by_effect(test, &["foreign-future", "replay-mismatch"]);
}

/// 9: takes results as they come.
async fn unordered(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let mut running: FuturesUnordered<_> = (0..4).map(|i| ctx.activity::<u32>("work", &(n + i), quick())).collect();
    let mut sum = 0_u32;
    while let Some(done) = running.next().await {
        sum = sum.wrapping_mul(10).wrapping_add(done.unwrap_or_default());
    }
    Ok(sum)
}

#[test]
fn bug_09_a_result_that_depends_on_the_order_of_completion_is_caught() {
    let test = kit(WorkflowRegistry::new().workflow("bug", unordered)).order_independent();
    caught_by_effect(test, &["order-dependent"]);
}

/// 23: sorts by a key that is equal, after a parallel step.
async fn parallel_sort(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let found = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for i in 0..4 {
            let found = &found;
            scope.spawn(move || {
                if let Ok(mut found) = found.lock() {
                    found.push((n, i));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_unstable_by_key(|(key, _)| *key);
    ctx.activity("work", &found, quick()).await
}

#[test]
fn bug_23_a_parallel_iterator_is_caught_when_it_makes_its_threads() {
    caught_calling(kit(WorkflowRegistry::new().workflow("bug", parallel_sort)), ForbiddenCall::Thread, HERE);
}
