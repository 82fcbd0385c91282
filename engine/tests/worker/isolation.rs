//! One bad run harms no other: panics, and code that does not come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use crate::scene::*;

#[derive(Serialize, Deserialize)]
struct Bomb;

impl StateMachine for Bomb {
    const TYPE: &'static str = "bomb-machine";
    type Input = ();
    type Output = ();

    fn start((): (), _cx: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Bomb)
    }
    fn on_event(&mut self, event: WorkflowEvent, _cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::Signal(_) => panic!("boom"),
            _ => Ok(()),
        }
    }
}

/// E30: where the policy is to fail, a panic of workflow code is a failure of that run; others on the same thread do not
/// notice. By default it holds the run: see `defects`.
#[tokio::test]
async fn a_panic_of_workflow_code_fails_its_run_only() {
    let (_stage, activities) = Stage::new();
    let flows = flows().on_defect(DefectPolicy::Fail).state_machine::<Bomb>().workflow(
        "bomb",
        |ctx: WfContext, (): ()| async move {
            ctx.signal_channel::<String>("go").recv().await?;
            if ctx.now() > Timestamp::ZERO {
                panic!("boom");
            }
            Ok(())
        },
    );
    let environment = TestEnvironment::start(flows, activities).unwrap();
    let client = environment.client();
    client.start(start("wait", "good", &())).await.unwrap();
    for form in ["bomb", "bomb-machine"] {
        client.start(start(form, form, &())).await.unwrap();
        client.signal(&target(form), signal("go", "on")).await.unwrap();
        let failure = failed(&client, form).await;
        assert_eq!(failure.type_name(), FAILURE_PANIC);
        assert!(failure.message.contains("boom"), "{failure}");
    }
    let environment = environment.crash(1, |_| {}).unwrap();
    let client = environment.client();
    client.signal(&target("good"), signal("go", "on")).await.unwrap();
    assert_eq!(completed::<String>(&client, "good").await, "on");
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

/// E30: a panic of an activity, wherever it comes from, is a failure of that attempt, retried as any other.
#[tokio::test]
async fn a_panic_of_an_activity_fails_its_attempt_only() {
    let (mut stage, mut activities) = Stage::new();
    activities.register("at-once", |ctx: ActivityContext, (): ()| {
        assert!(ctx.attempt().0 > 1, "boom");
        async { Ok("fine") }
    });
    activities.register("later", |ctx: ActivityContext, (): ()| async move {
        tokio::task::yield_now().await;
        assert!(ctx.attempt().0 > 1, "boom");
        Ok("fine")
    });
    activities.register("dropped", |ctx: ActivityContext, (): ()| async move {
        if ctx.attempt().0 == 1 {
            let _bomb = PanicsWhenDropped;
            std::future::pending::<()>().await;
        }
        Ok("fine")
    });
    let flows = flows().workflow("run", |ctx: WfContext, activity: String| async move {
        ctx.activity::<String>(activity.as_str(), &(), within(Duration::from_secs(1))).await
    });
    let environment = TestEnvironment::start_with(flows, activities, |options| {
        real_time(options);
        options.slots = 1;
    })
    .unwrap();
    let client = environment.client();
    for activity in ["at-once", "later", "dropped"] {
        client.start(start("run", activity, activity)).await.unwrap();
        assert_eq!(completed::<String>(&client, activity).await, "fine");
        assert_eq!(count(&client, activity, "ActivityTaskStarted").await, 2, "{activity}");
    }
    client.start(one("one", "good", &within(MINUTE))).await.unwrap();
    stage.next().await.complete("the only slot is still there");
    completed::<String>(&client, "good").await;
}

/// E30: failures keep what they are along the chain of causes: type, details, message, in history and in the outcome.
#[tokio::test]
async fn failures_carry_their_chain_of_causes() {
    let (mut stage, environment) = staged();
    let client = environment.client();
    let cause = Failure::application("Disk", "no space").with_details(payload(&28));
    let failure = Failure::application("Upload", "part 3 of 9").non_retryable().because(cause.clone());
    for form in FORMS {
        client.start(one(form, form, &within(MINUTE))).await.unwrap();
        stage.next().await.fail(failure.clone());
        let heard = failed(&client, form).await;
        assert!(matches!(heard.kind, FailureKind::Activity { .. }));
        assert_eq!(heard.cause.as_deref(), Some(&failure));
        assert_eq!(heard.root(), &cause);
        assert_eq!(
            heard.to_string(),
            "activity work failed; caused by: Upload: part 3 of 9; caused by: Disk: no space"
        );
        let environment_after = client.describe(&target(form)).await.unwrap();
        assert_eq!(environment_after.result, Some(CloseOutcome::Failed(heard)));
    }
}

/// Code that does not come back for as long as the test wants.
#[derive(Clone)]
struct Spin {
    wanted: Arc<AtomicBool>,
    entered: Arc<AtomicUsize>,
}

impl Spin {
    fn while_wanted(&self) {
        self.entered.fetch_add(1, Ordering::AcqRel);
        while self.wanted.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
}

/// Ends the spinning when the test ends, however it ends: no thread may spin for ever.
struct Spinning(Spin);

impl Spinning {
    fn new() -> Self {
        Spinning(Spin { wanted: Arc::new(AtomicBool::new(true)), entered: Arc::default() })
    }
    fn entered(&self) -> usize {
        self.0.entered.load(Ordering::Acquire)
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        self.0.wanted.store(false, Ordering::Release);
    }
}

fn spinning() -> (Spinning, WorkflowRegistry) {
    let spinning = Spinning::new();
    let spin = spinning.0.clone();
    let (at_start, at_query, at_signal) = (spin.clone(), spin.clone(), spin.clone());
    let flows = flows()
        .workflow("spins-at-start", move |_ctx: WfContext, (): ()| {
            at_start.while_wanted();
            async { Ok(()) }
        })
        .workflow("spins", move |ctx: WfContext, (): ()| {
            let (spin, query) = (at_signal.clone(), at_query.clone());
            async move {
                ctx.on_query("q", move |(): ()| {
                    query.while_wanted();
                    Ok("answer")
                });
                let work = ctx.activity::<String>("work", "held", within(MINUTE));
                let word = ctx.signal_channel::<String>("go").recv().await?;
                // Takes a slot, and then does not come back.
                let more = ctx.activity::<String>("work", "more", within(MINUTE));
                spin.while_wanted();
                Ok(format!("{word} {} {}", work.await?, more.await?))
            }
        });
    (spinning, flows)
}

fn quick_watchdog(options: &mut WorkerOptions) {
    // Quick, and longer than a machine keeps a thread that has something to do waiting.
    options.limits.turn_deadline = Duration::from_millis(1_500);
    options.slots = 2;
}

/// G23: a run whose code does not come back is held. Its input is kept durably and acknowledged, others on the same
/// shard go on, no slot is lost, and with code that comes back the run goes on where it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_loop_holds_its_run_and_nothing_else() {
    let (mut stage, activities) = Stage::new();
    let (spinning, flows) = spinning();
    let environment = TestEnvironment::start_with(flows, activities, quick_watchdog).unwrap();
    let client = environment.client();
    client.start(start("wait", "good", &())).await.unwrap();
    client.start(start("spins", "bad", &())).await.unwrap();
    let held = stage.next().await;
    client.signal(&target("bad"), signal("go", "one")).await.unwrap();
    client.signal(&target("bad"), signal("go", "two")).await.unwrap();
    let seen = client.describe(&target("bad")).await.unwrap();
    assert!(seen.held.as_ref().is_some_and(|why| why.contains("did not come back")), "{seen:?}");
    assert_eq!(seen.inbox, 2);
    held.complete("kept");
    until(&client, "bad", |seen| seen.inbox == 3).await;
    assert_eq!(count(&client, "bad", "WorkflowExecutionSignaled").await, 0, "nothing was decided");

    client.signal(&target("good"), signal("go", "on")).await.unwrap();
    assert_eq!(completed::<String>(&client, "good").await, "on");
    for id in ["x", "y"] {
        client.start(one("one", id, &within(MINUTE))).await.unwrap();
    }
    // Both slots are there: both run at the same time.
    let (x, y) = (stage.next().await, stage.next().await);
    x.complete("x");
    y.complete("y");
    completed::<String>(&client, "x").await;
    completed::<String>(&client, "y").await;

    drop(spinning);
    let environment = environment.restart(|_| {}).unwrap();
    let more = stage.next().await;
    assert_eq!((more.label.as_str(), more.attempt()), ("more", 1));
    more.complete("more");
    let client = environment.client();
    assert_eq!(completed::<String>(&client, "bad").await, "one kept more");
    assert_eq!(count(&client, "bad", "WorkflowExecutionSignaled").await, 2);
    assert_eq!(client.describe(&target("bad")).await.unwrap().held, None);
}

/// G23: a start whose code does not come back is refused and leaves nothing; a query is refused, and the shard goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_and_a_query_that_do_not_come_back_are_refused() {
    let (mut stage, activities) = Stage::new();
    let (_spinning, flows) = spinning();
    let environment = TestEnvironment::start_with(flows, activities, quick_watchdog).unwrap();
    let client = environment.client();
    let refused = client.start(start("spins-at-start", "bad", &())).await;
    let Err(Rejection::Held { why }) = refused else { panic!("{refused:?}") };
    assert!(why.starts_with(NOTHING_STARTED), "{why}");
    let none = client.describe(&target("bad")).await;
    assert!(matches!(none, Err(Rejection::NotFound { .. })), "{none:?}");
    client.start(start("spins", "curious", &())).await.unwrap();
    stage.next().await.complete("x");
    let refused = client.query(&target("curious"), &"q".into(), payload(&())).await;
    assert!(matches!(refused, Err(Rejection::Held { .. })), "{refused:?}");
    client.start(start("wait", "good", &())).await.unwrap();
    client.signal(&target("good"), signal("go", "on")).await.unwrap();
    assert_eq!(completed::<String>(&client, "good").await, "on");
}

/// G23: code that does not come back when its history is replayed is held by that, too, and keeps one thread, not one
/// after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_whose_replay_does_not_come_back_is_held() {
    let (mut stage, activities) = Stage::new();
    let environment = TestEnvironment::start(flows(), activities).unwrap();
    environment.client().start(one("one", "bad", &within(MINUTE))).await.unwrap();
    stage.next().await;
    let spinning = Spinning::new();
    let code = spinning.0.clone();
    let environment = environment
        .crash(1, |options| {
            quick_watchdog(options);
            options.workflows = flows().workflow("one", move |_ctx: WfContext, _: (String, ActivityOptions)| {
                code.while_wanted();
                async { Ok(()) }
            });
        })
        .unwrap();
    let client = environment.client();
    client.signal(&target("bad"), signal("go", "on")).await.unwrap();
    let seen = client.describe(&target("bad")).await.unwrap();
    assert!(seen.held.is_some(), "{seen:?}");
    client.start(start("wait", "good", &())).await.unwrap();
    client.signal(&target("good"), signal("go", "on")).await.unwrap();
    assert_eq!(completed::<String>(&client, "good").await, "on");
    assert_eq!(spinning.entered(), 1);
}

/// G25: when too much waits for a shard, requests are refused with a time to come back; those accepted are carried out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_requests_are_refused() {
    let (_stage, activities) = Stage::new();
    let (spinning, flows) = spinning();
    let environment = TestEnvironment::start_with(flows, activities, |options| options.mailbox_max = 3).unwrap();
    let client = environment.client();
    client.start(start("wait", "good", &())).await.unwrap();
    let busy = tokio::spawn({
        let client = client.clone();
        async move { client.start(start("spins-at-start", "busy", &())).await }
    });
    while spinning.entered() == 0 {
        tokio::task::yield_now().await;
    }
    let mut accepted = Vec::new();
    let refused = loop {
        let mut next = Box::pin({
            let client = client.clone();
            async move { client.signal(&target("good"), signal("word", "x")).await }
        });
        match poll_once(&mut next).await {
            std::task::Poll::Ready(Err(refused)) => break refused,
            std::task::Poll::Ready(Ok(())) => {}
            std::task::Poll::Pending => accepted.push(tokio::spawn(next)),
        }
        tokio::task::yield_now().await;
    };
    let Rejection::Overloaded { limit, retry_after } = refused else { panic!("{refused:?}") };
    assert_eq!(limit, 3);
    assert!(!retry_after.is_zero());
    drop(spinning);
    busy.await.unwrap().unwrap();
    let accepted = futures_util::future::join_all(accepted).await;
    assert!(accepted.len() >= 3 && accepted.iter().all(|answer| matches!(answer, Ok(Ok(())))), "{accepted:?}");
    client.signal(&target("good"), signal("go", "on")).await.unwrap();
    assert_eq!(completed::<String>(&client, "good").await, "on");
}

/// G23: a machine that has too much to do holds no run: code whose thread waits for a core is not code that does not come
/// back. It needs less time of a core than it may take, and far more by the clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_on_a_busy_machine_is_not_held() {
    const ALLOWED: Duration = Duration::from_secs(1);
    // How long this thread has had a core, and how long it has waited for one.
    let so_far = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux counts it");
        let mut counts = text.split(' ').map(|count| Duration::from_nanos(count.trim().parse().expect("a number")));
        (counts.next().expect("the first count"), counts.next().expect("the second count"))
    };
    let flows = flows().workflow("works", move |_ctx: WfContext, (): ()| async move {
        let (worked, waited) = so_far();
        while so_far().0 - worked < ALLOWED / 4 {}
        Ok(so_far().1 - waited > ALLOWED)
    });
    let (_stage, activities) = Stage::new();
    let quick = |options: &mut WorkerOptions| options.limits.turn_deadline = ALLOWED;
    let environment = TestEnvironment::start_with(flows, activities, quick).unwrap();
    let client = environment.client();
    let busy = Arc::new(AtomicBool::new(true));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let others: Vec<_> = (0..12 * cores)
        .map(|_| {
            let busy = busy.clone();
            std::thread::spawn(move || while busy.load(Ordering::Relaxed) {})
        })
        .collect();
    let started = client.start(start("works", "slow", &())).await;
    busy.store(false, Ordering::Relaxed);
    others.into_iter().for_each(|other| other.join().unwrap());
    started.unwrap();
    assert!(completed::<bool>(&client, "slow").await, "the machine was not busy enough to tell");
}
