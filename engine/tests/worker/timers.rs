//! Timers: durable, absolute, in order, each exactly once.

use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry, join, join_all};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use crate::kit::*;

/// Starts the timers it is given (micros from its start, which may be negative), and completes with their order.
#[derive(Serialize, Deserialize)]
struct Alarms {
    seqs: Vec<Seq>,
    rung: Vec<usize>,
}

impl StateMachine for Alarms {
    const TYPE: &'static str = "alarms";
    type Input = Vec<i64>;
    type Output = Vec<usize>;

    fn start(offsets: Vec<i64>, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let now = cx.now().as_micros();
        let seqs = offsets.iter().map(|offset| cx.start_timer_at(Timestamp(now + offset))).collect();
        Ok(Alarms { seqs, rung: Vec::new() })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::TimerFired { seq } => {
                self.rung.extend(self.seqs.iter().position(|known| *known == seq));
                if self.rung.len() == self.seqs.len() {
                    cx.complete(&self.rung);
                }
            }
            WorkflowEvent::Signal(signal) if signal.name.as_str() == "cancel" => {
                cx.cancel_timer(self.seqs[signal.input.decode::<usize>()?]);
            }
            WorkflowEvent::Signal(_) => cx.complete(&self.rung),
            _ => {}
        }
        Ok(())
    }
}

fn workflows() -> WorkflowRegistry {
    WorkflowRegistry::new().state_machine::<Alarms>().workflow("wait", |ctx: WfContext, seconds: u64| async move {
        let began = ctx.now();
        ctx.labelled_timer(Duration::from_secs(seconds), "until the kettle boils").await?;
        Ok(ctx.now().since(began).as_secs())
    })
}

/// What the history says of each timer: when it should fire, and when it did.
fn fired(events: &[Event]) -> Vec<(Seq, Timestamp, Timestamp)> {
    let due = |seq: &Seq| {
        events.iter().find_map(|event| match &event.kind {
            EventKind::TimerStarted { seq: found, fire_at, .. } if found == seq => Some(*fire_at),
            _ => None,
        })
    };
    events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::TimerFired { seq } => Some((*seq, due(seq).expect("a timer that was started"), event.at)),
            _ => None,
        })
        .collect()
}

/// E10: a timer has a label and an absolute moment that no restart moves, in a graceful stop and in a crash.
#[tokio::test]
async fn a_timer_keeps_its_label_and_its_moment_over_restarts() {
    let environment = environment(workflows());
    environment.client().start(start("wait", "tea", &3_600)).await.unwrap();
    let due = TestEnvironment::EPOCH.plus(HOUR);
    environment.sleep(Duration::from_secs(1_000)).await;
    let environment = environment.restart(|_| {}).unwrap();
    environment.sleep(Duration::from_secs(1_000)).await;
    let environment = environment.crash(3, |_| {}).unwrap();
    let client = environment.client();
    let timers = client.describe(&target("tea")).await.unwrap().pending_timers;
    assert_eq!(timers.len(), 1);
    assert_eq!((timers[0].fire_at, timers[0].summary.as_deref()), (due, Some("until the kettle boils")));
    assert_eq!(output::<u64>(&client, "tea").await, 3_600);
    assert_eq!(environment.now(), due);
}

/// E10: timers that are overdue or due at once fire in the next turn: by moment, and by start among equals.
#[tokio::test]
async fn zero_and_past_timers_fire_in_order() {
    let environment = environment(workflows());
    let client = environment.client();
    client.start(start("alarms", "a", &[0, -1_000, 0, -2_000, 5, 0])).await.unwrap();
    assert_eq!(output::<Vec<usize>>(&client, "a").await, [3, 1, 0, 2, 5, 4]);
    assert_eq!(environment.now(), TestEnvironment::EPOCH.plus(Duration::from_micros(5)));
}

/// E10: a canceled timer never fires; a timer that has fired cannot be canceled. One event each, whichever came first.
#[tokio::test]
async fn a_timer_ends_once_by_firing_or_by_cancellation() {
    let environment = environment(workflows());
    let client = environment.client();
    client.start(start("alarms", "a", &[1_000_000, 2_000_000, 9_000_000])).await.unwrap();
    environment.sleep(Duration::from_secs(1)).await;
    for index in [0, 1, 1] {
        client.signal(&target("a"), signal("cancel", &index)).await.unwrap();
    }
    let environment = environment.crash(5, |_| {}).unwrap();
    let client = environment.client();
    environment.sleep(Duration::from_secs(5)).await;
    client.signal(&target("a"), signal("done", &())).await.unwrap();
    assert_eq!(output::<Vec<usize>>(&client, "a").await, [0]);
    let events = history(&client, "a").await;
    let ends: Vec<&EventKind> = events
        .iter()
        .map(|event| &event.kind)
        .filter(|kind| matches!(kind, EventKind::TimerFired { .. } | EventKind::TimerCanceled { .. }))
        .collect();
    assert_eq!(ends, [&EventKind::TimerFired { seq: Seq(1) }, &EventKind::TimerCanceled { seq: Seq(2) }]);
}

/// E10: thousands of timers of one run, in both forms.
#[tokio::test]
async fn one_run_can_wait_for_thousands_of_timers() {
    let flows = workflows().workflow("many", |ctx: WfContext, count: u64| async move {
        let timers = (0..count).map(|n| ctx.timer(Duration::from_millis(n % 97)));
        let ended = join_all(timers).await;
        Ok(ended.into_iter().filter(Result::is_ok).count())
    });
    let environment = environment(flows);
    let client = environment.client();
    let offsets: Vec<i64> = (0..3_000).map(|n| n * 7 % 3_001).collect();
    client.start(start("alarms", "machine", &offsets)).await.unwrap();
    client.start(start("many", "async", &2_000)).await.unwrap();
    assert_eq!(output::<usize>(&client, "async").await, 2_000);
    let rung: Vec<usize> = output(&client, "machine").await;
    assert!(rung.windows(2).all(|pair| offsets[pair[0]] <= offsets[pair[1]]), "in the order of their moments");
    assert_eq!(rung.len(), 3_000);
}

/// G14: 10 000 timers over 20 restarts and crashes: none early, none late in virtual time, none twice, none lost.
#[tokio::test]
async fn no_timer_is_early_doubled_or_lost_over_twenty_restarts() {
    const RUNS: u64 = 100;
    const TIMERS: u64 = 100;
    let mut environment = environment(workflows());
    // A multiplicative walk spreads the moments over 20 000 ms without a random source.
    let offset = |n: u64| (n * 7_919 % 20_011 + 1) as i64 * 1_000;
    for run in 0..RUNS {
        let offsets: Vec<i64> = (0..TIMERS).map(|timer| offset(run * TIMERS + timer)).collect();
        environment.client().start(start("alarms", &format!("run-{run}"), &offsets)).await.unwrap();
    }
    for restart in 0..20 {
        environment.sleep(Duration::from_millis(990)).await;
        environment = match restart % 2 {
            0 => environment.crash(restart, |_| {}).unwrap(),
            _ => environment.restart(|_| {}).unwrap(),
        };
    }
    let client = environment.client();
    for run in 0..RUNS {
        let id = format!("run-{run}");
        let rung: Vec<usize> = output(&client, &id).await;
        let fired = fired(&history(&client, &id).await);
        assert_eq!(rung.len() as u64, TIMERS, "{id}: lost");
        assert_eq!(fired.len() as u64, TIMERS, "{id}: double");
        for (seq, due, at) in fired {
            assert_eq!(at, due, "{id}: timer {seq}");
        }
    }
}

/// E10, G14: a restart that finds work under way beside a timer asks for the work again, and for the timer not: it is
/// armed. However many restarts there are, it starts and fires once.
#[tokio::test]
async fn a_restart_with_work_under_way_arms_no_timer_again() {
    let flow = |ctx: WfContext, (): ()| async move {
        let retry = RetryPolicy { maximum_attempts: 0, ..RetryPolicy::default() };
        let work = ctx.activity::<u32>("work", &(), quick().with_retry(retry));
        let (slept, worked) = join(ctx.timer(HOUR), work).await;
        slept.and(worked)
    };
    let mut activities = ActivityRegistry::new();
    activities.register("work", |ctx: ActivityContext, (): ()| async move {
        match ctx.attempt() {
            Attempt(attempt @ ..4) => {
                // It runs until the crash.
                std::future::pending::<()>().await;
                Ok(attempt)
            }
            Attempt(attempt) => Ok(attempt),
        }
    });
    let mut environment = environment_with(WorkflowRegistry::new().workflow("flow", flow), activities);
    environment.client().start(start("flow", "f", &())).await.unwrap();
    for crash in 1..=3 {
        environment = environment.crash(crash, |_| {}).unwrap();
        let client = environment.client();
        assert_eq!(client.describe(&target("f")).await.unwrap().pending_timers.len(), 1);
        let events = history(&client, "f").await;
        assert_eq!((count(&events, "TimerStarted"), count(&events, "TimerFired")), (1, 0), "after crash {crash}");
    }
    let client = environment.client();
    assert_eq!(output::<u32>(&client, "f").await, 4);
    assert_eq!(environment.now(), TestEnvironment::EPOCH.plus(HOUR));
    let events = history(&client, "f").await;
    assert_eq!((count(&events, "TimerStarted"), count(&events, "TimerFired")), (1, 1));
}

/// E40: an update finds the run as it stands: the clock does not run past a timer of thirty days before the request counts.
#[tokio::test]
async fn no_time_passes_before_a_request_counts() {
    let month = |ctx: WfContext, (): ()| async move {
        ctx.on_update("ask", |_: &()| Ok(()), |_, ()| async { Ok(7) });
        ctx.timer(30 * 24 * HOUR).await
    };
    let environment = environment_with(WorkflowRegistry::new().workflow("month", month), ActivityRegistry::new());
    let client = environment.client();
    for n in 0..200 {
        let id = format!("m{n}");
        client.start(start("month", &id, &())).await.unwrap();
        let answer = client.update(&target(&id), update("u", "ask", &(), UpdateWait::Completed)).await;
        assert!(answer.is_ok(), "{id}: {answer:?}");
        assert_eq!(environment.now(), TestEnvironment::EPOCH, "{id}");
    }
}
