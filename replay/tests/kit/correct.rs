//! Twenty-one correct programs that use what looks like trouble: none of them gives an alarm.
//!
//! Invariant: nothing here is allowed by hand, except where that is what is tested, and each program is also replayed in
//! another process. That an alarm is given where one is due is the affair of `seeded`.

use std::backtrace::Backtrace;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry};
use bosun_engine::{ActivityOptions, Failure, hex};
use bosun_replay::determinism::{DeterminismTest, ForbiddenCall};
use futures_util::future::{join, join_all, select};
use rand::{RngExt, SeedableRng};
use regex::Regex;
use serde::{Deserialize, Serialize};
use tracing::Instrument;

fn quick() -> ActivityOptions {
    ActivityOptions::start_to_close(Duration::from_secs(10))
}

fn kit(code: WorkflowRegistry) -> DeterminismTest {
    DeterminismTest::new(code, "correct")
        .input(0..9_u32)
        .activity("work", 0..9_u32)
        .signal("go", 0..9_u32)
        .without_case_files()
}

/// No alarm, with all wires armed, here and in another process; and the code got somewhere.
#[track_caller]
fn no_alarm(test: DeterminismTest) {
    let report = test.run();
    assert!(report.trip_wires && report.other_process && report.got_somewhere > 50, "{report:?}");
}

#[track_caller]
fn correct<F>(code: impl Fn(WfContext, u32) -> F + Send + Sync + 'static)
where
    F: Future<Output = Result<u32, Failure>> + 'static,
{
    no_alarm(kit(WorkflowRegistry::new().workflow("correct", code)));
}

async fn work(ctx: &WfContext, n: u32) -> Result<u32, Failure> {
    ctx.activity("work", &n, quick()).await
}

/// A subscriber of the process that writes times, threads and spans.
fn listen() {
    static LISTENS: std::sync::Once = std::sync::Once::new();
    LISTENS.call_once(|| {
        let subscriber =
            tracing_subscriber::fmt().with_thread_ids(true).with_thread_names(true).with_writer(std::io::sink);
        let _ = subscriber.with_max_level(tracing::Level::TRACE).try_init();
    });
}

#[test]
fn logs_with_a_subscriber_that_reads_clocks() {
    listen();
    correct(async |ctx, n| {
        tracing::info!(n, "begun");
        let done = work(&ctx, n).await;
        tracing::warn!(?done, "over");
        done
    });
}

#[test]
fn spans_around_and_within() {
    listen();
    correct(|ctx, n| {
        async move {
            let entered = tracing::info_span!("step", n).entered();
            tracing::debug!("within");
            drop(entered);
            work(&ctx, n).instrument(tracing::debug_span!("work")).await
        }
        .instrument(tracing::info_span!("correct"))
    });
}

#[test]
fn a_regex_that_is_made_once() {
    static DIGITS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?i)^order-(\d+)\b|[α-ω]{2,}").ok());
    correct(async |ctx, n| {
        let text = format!("order-{n} of today");
        let number = DIGITS.as_ref().and_then(|digits| digits.captures(&text)?.get(1)?.as_str().parse().ok());
        work(&ctx, number.unwrap_or_default()).await
    });
}

#[test]
fn a_regex_that_is_made_in_every_run() {
    correct(async |ctx, n| {
        let words = Regex::new(r"\w+").map_err(|why| Failure::application("Regex", why.to_string()))?;
        work(&ctx, words.find_iter("one two three").count() as u32 + n).await
    });
}

#[test]
fn a_stack_for_the_log() {
    let code = WorkflowRegistry::new().workflow("correct", async |ctx: WfContext, n: u32| {
        let stack = Backtrace::force_capture();
        let text = if n == 0 { stack.to_string() } else { format!("{:?}", stack.status()) };
        work(&ctx, n + u32::from(text.is_empty())).await
    });
    // To turn a stack into text takes a while.
    let report = kit(code).lives(8).run();
    assert!(report.got_somewhere > 4, "{report:?}");
}

#[test]
fn a_mutex_of_tokio_between_tasks() {
    correct(async |ctx, n| {
        let sum = Rc::new(tokio::sync::Mutex::new(n));
        let add = |part: u32| {
            let sum = sum.clone();
            ctx.spawn(move |ctx| async move {
                let mut sum = sum.lock().await;
                *sum += ctx.activity::<u32>("work", &part, quick()).await?;
                Ok::<u32, Failure>(*sum)
            })
        };
        let (one, two) = (add(1), add(2));
        let (one, two) = join(one, two).await;
        work(&ctx, one?.wrapping_add(two?)).await
    });
}

#[test]
fn a_channel_of_tokio_between_tasks() {
    correct(async |ctx, n| {
        let (send, mut receive) = tokio::sync::mpsc::channel(1);
        let sending = ctx.spawn(move |ctx| async move {
            for part in 0..3 {
                let done = ctx.activity::<u32>("work", &(part + n), quick()).await?;
                let _ = send.send(done).await;
            }
            Ok::<(), Failure>(())
        });
        let summing = ctx.spawn(move |_| async move {
            let mut sum = 0;
            while let Some(part) = receive.recv().await {
                sum += part;
            }
            Ok::<u32, Failure>(sum)
        });
        let (sent, sum) = join(sending, summing).await;
        sent?;
        work(&ctx, sum?).await
    });
}

#[test]
fn a_oneshot_of_tokio_as_an_answer() {
    correct(async |ctx, n| {
        let (tell, told) = tokio::sync::oneshot::channel();
        let asked = ctx.spawn(move |ctx| async move {
            let _ = tell.send(ctx.activity::<u32>("work", &n, quick()).await);
        });
        let told = told.await.map_err(|_| Failure::application("Gone", "nobody answers"))?;
        asked.await;
        told
    });
}

#[test]
fn a_notify_of_tokio_as_a_gate() {
    correct(async |ctx, n| {
        let gate = Rc::new(tokio::sync::Notify::new());
        let opened = gate.clone();
        let opening = ctx.spawn(move |ctx| async move {
            let done = ctx.timer(Duration::from_secs(3)).await;
            opened.notify_one();
            done
        });
        gate.notified().await;
        opening.await?;
        work(&ctx, n).await
    });
}

#[test]
fn a_watch_and_a_broadcast_of_tokio_within_one_task() {
    correct(async |ctx, n| {
        let (set, mut seen) = tokio::sync::watch::channel(0_u32);
        let (tell, mut heard) = tokio::sync::broadcast::channel(4);
        let both = join(
            async {
                let done = work(&ctx, n).await;
                let _ = (set.send(n), tell.send(n + 1));
                done
            },
            async { (seen.changed().await.is_ok(), heard.recv().await.unwrap_or_default()) },
        );
        let (done, (changed, heard)) = both.await;
        work(&ctx, done? + heard + u32::from(changed)).await
    });
}

#[test]
fn maps_that_are_only_asked() {
    correct(async |ctx, n| {
        let prices: HashMap<u32, u32> = (0..9).map(|n| (n, n * n)).collect();
        let known: HashSet<&str> = HashSet::from(["tea", "rum"]);
        let price = prices.get(&n).copied().unwrap_or_default();
        work(&ctx, price + u32::from(known.contains("tea")) + prices.len() as u32).await
    });
}

#[test]
fn a_map_that_is_sorted_before_it_is_used() {
    correct(async |ctx, n| {
        let counts: HashMap<String, u32> = (0..9).map(|part| (format!("part-{part}"), part + n)).collect();
        let mut sorted: Vec<(&String, &u32)> = counts.iter().collect();
        sorted.sort();
        ctx.activity("work", &sorted, quick()).await
    });
}

#[test]
fn a_map_outside_of_the_run_that_is_only_asked() {
    static PRICES: LazyLock<HashMap<&str, u32>> = LazyLock::new(|| HashMap::from([("tea", 3), ("rum", 9), ("oil", 4)]));
    correct(async |ctx, n| work(&ctx, n + PRICES.get("rum").copied().unwrap_or_default()).await);
}

#[test]
fn statics_of_pure_values() {
    static LIMIT: OnceLock<u32> = OnceLock::new();
    static TABLE: LazyLock<BTreeMap<u32, u32>> = LazyLock::new(|| (0..100).map(|n| (n, n * 3)).collect());
    thread_local!(static SQUARE: OnceCell<u32> = const { OnceCell::new() });
    correct(async |ctx, n| {
        let square = SQUARE.with(|square| *square.get_or_init(|| 12 * 12));
        let limit = *LIMIT.get_or_init(|| 50);
        work(&ctx, TABLE.get(&n).copied().unwrap_or_default().min(limit) + square).await
    });
}

/// What a cache holds is a function of its key: whether it is filled is not seen.
#[test]
fn a_cache_of_pure_results() {
    static KNOWN: Mutex<BTreeMap<u32, u64>> = Mutex::new(BTreeMap::new());
    fn collatz(n: u32) -> u64 {
        let pure = || std::iter::successors(Some(u64::from(n) + 1), |n| (*n > 1).then(|| n * 3 / 2)).take(20).sum();
        KNOWN.lock().map_or_else(|_| pure(), |mut known| *known.entry(n).or_insert_with(pure))
    }
    correct(async |ctx, n| work(&ctx, (collatz(n) % 1_000) as u32).await);
}

#[test]
fn random_numbers_from_a_seed_of_the_context() {
    correct(async |ctx, n| {
        let mut dice = rand::rngs::SmallRng::seed_from_u64(ctx.random_u64());
        let thrown: Vec<u32> = (0..4).map(|_| dice.random_range(1..=6)).collect();
        let id = ctx.uuid();
        ctx.activity("work", &(n, thrown, id.to_string()), quick()).await
    });
}

#[test]
fn time_and_the_world_where_they_are_recorded() {
    correct(async |ctx, n| {
        let (began, pid): (u64, u32) = ctx.side_effect(|| {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let _ = (Instant::now(), std::env::var("HOME"), std::fs::read_to_string("/etc/hostname"));
            (since.as_secs() / u64::from(u32::MAX), std::process::id().min(1))
        });
        let due = ctx.now().as_micros() / 1_000_000;
        ctx.activity("work", &(n, due, began, pid), quick()).await
    });
}

#[test]
fn combinators_of_other_crates_that_poll_in_order() {
    correct(async |ctx, n| {
        let parts: Vec<u32> = join_all((0..4).map(|part| work(&ctx, n + part))).await.into_iter().flatten().collect();
        let (limit, last) = (ctx.timer(Duration::from_secs(60)), Box::pin(work(&ctx, parts.len() as u32)));
        match select(last, limit).await {
            futures_util::future::Either::Left((done, _)) => done,
            futures_util::future::Either::Right(_) => Ok(n),
        }
    });
}

/// A counter of shared pointers, a cell that borrows, an error that is printed: none of them shows.
#[test]
fn shared_state_of_the_run() {
    correct(async |ctx, n| {
        let said = Rc::new(RefCell::new(Vec::new()));
        let heard = said.clone();
        ctx.on_query("said", move |(): ()| Ok(heard.borrow().clone()));
        let shared = Arc::new(Mutex::new(n));
        for step in 0..2 {
            let failed = work(&ctx, n + step).await.err().map(|failure| failure.to_string());
            said.borrow_mut().push(failed.unwrap_or_else(|| format!("{step} of {}", Rc::strong_count(&said))));
            *shared.lock().map_err(|why| Failure::application("Poisoned", why.to_string()))? += 1;
        }
        let text = said.borrow().join(", ");
        ctx.activity("work", &text, quick()).await
    });
}

/// A machine whose state holds a map and an index that can be made again; serde skips what is derived.
#[derive(Serialize, Deserialize)]
struct Derived {
    parts: BTreeMap<u32, u32>,
    left: u32,
    #[serde(skip)]
    sum: OnceLock<u32>,
}

impl StateMachine for Derived {
    const TYPE: &'static str = "correct";
    type Input = u32;
    type Output = u32;
    fn start(n: u32, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        cx.schedule_activity("work", &n, quick());
        Ok(Derived { parts: (0..4).map(|part| (part, part + n)).collect(), left: 2, sum: OnceLock::new() })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        let sum = *self.sum.get_or_init(|| self.parts.values().sum());
        match event {
            WorkflowEvent::ActivityResolved { .. } if self.left == 0 => cx.complete(&sum),
            WorkflowEvent::ActivityResolved { .. } => {
                self.left -= 1;
                cx.schedule_activity("work", &(sum + self.left), quick());
            }
            WorkflowEvent::CancelRequested { .. } => cx.cancel(None),
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn a_skipped_field_that_is_made_again() {
    no_alarm(kit(WorkflowRegistry::new().state_machine::<Derived>()));
}

/// The time for a log of the program's own.
fn stamp() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

async fn stamped(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let _for_the_log = hex(&stamp().to_be_bytes());
    work(&ctx, n).await
}

/// `.allow_at` allows a call in one function and in what it calls, or at one line, and nowhere else.
#[test]
fn a_call_that_is_allowed_where_it_is_made() {
    let code = || WorkflowRegistry::new().workflow("correct", stamped);
    let line = include_str!("correct.rs")
        .lines()
        .position(|line| line.contains("SystemTime::now().duration_since(") && line.contains("map_or(0"))
        .unwrap()
        + 1;
    for site in ["correct::stamp", "stamped", "correct.rs", &format!("correct.rs:{line}")] {
        no_alarm(kit(code()).allow_at(ForbiddenCall::Clock, site));
    }
    for site in ["other", "correct.rs:1", "clean.rs"] {
        let failed = kit(code()).allow_at(ForbiddenCall::Clock, site).check().unwrap_err();
        assert_eq!(failed.kind(), "forbidden-call", "{site}");
    }
    let failed = kit(code()).allow_at(ForbiddenCall::Random, "stamped").check().unwrap_err();
    let text = failed.to_string();
    assert!(text.contains(&format!("correct.rs:{line}:")) && text.contains("allow_at"), "{text}");
}
