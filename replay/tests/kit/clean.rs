//! Workflows that are fine: no false alarm, whatever happens to them, and the lives look where it matters.

use std::time::Duration;

use bosun_engine::workflow::{
    Cx, Saga, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry, branch, join_all, race,
};
use bosun_engine::*;
use bosun_replay::determinism::{DeterminismTest, armed};
use bosun_replay::simulate::RARE;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

fn quick() -> ActivityOptions {
    let retry_policy = Some(RetryPolicy { maximum_attempts: 3, ..RetryPolicy::default() });
    ActivityOptions {
        retry_policy,
        heartbeat: Some(Duration::from_secs(5)),
        ..ActivityOptions::start_to_close(Duration::from_secs(10))
    }
}

/// Everything at once: a saga, a race, a fan-out, signals, a side effect, a patch, a child, continue-as-new.
async fn order(ctx: WfContext, round: u32) -> Result<String, Failure> {
    let approved = ctx.state("approved", false);
    let (asked, set) = (approved.clone(), approved.clone());
    ctx.on_query("approved", move |(): ()| Ok(asked.get()));
    ctx.on_update(
        "approve",
        |_: &bool| Ok(()),
        move |_, yes: bool| {
            set.set(yes);
            async move { Ok(yes) }
        },
    );
    // It looks at the world, and its value is the same in every process: traces are compared between them.
    let id: u64 = ctx.side_effect(|| u64::from(std::process::id() > 0));
    let lucky = ctx.random_u64() % 2;
    if ctx.patched("greet") {
        ctx.timer(Duration::from_millis(lucky)).await?;
    }
    let paid = Saga::run(&ctx, |saga| {
        let ctx = ctx.clone();
        async move {
            let undo = ctx.clone();
            saga.compensate_with("refund", move |_| async move {
                undo.detached_scope().activity::<u32>("refund", &id, quick()).await.map(drop)
            });
            ctx.activity::<u32>("charge", &round, quick()).await
        }
    })
    .await;
    let fetches = (0..3).map(|n| ctx.activity::<u32>("fetch", &n, quick()));
    let fetched: u32 = join_all(fetches.collect::<Vec<_>>()).await.into_iter().flatten().fold(0, u32::wrapping_add);
    let limit =
        branch(|ctx: WfContext| async move { ctx.timer(Duration::from_secs(60)).await.map(|()| "late".to_owned()) });
    let word = branch(|ctx: WfContext| async move { ctx.signal_channel("word").recv().await });
    let (_, word) = race(&ctx, vec![limit, word]).await;
    let child: Result<String, Failure> = ctx
        .child_workflow("helper", format!("helper-{round}").as_str(), &fetched, ChildWorkflowOptions::default())
        .await;
    if round < 2 && paid.is_ok() {
        return ctx.continue_as_new(&(round + 1), ContinueAsNewOptions::default());
    }
    ctx.all_handlers_finished().await?;
    Ok(format!("{paid:?} {fetched} {:?} {:?}", word?, child.is_ok()))
}

#[derive(Serialize, Deserialize)]
struct Helper {
    left: u32,
    waiting: Seq,
}

impl StateMachine for Helper {
    const TYPE: &'static str = "helper";
    type Input = u32;
    type Output = String;
    fn start(input: u32, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Helper { left: input % 3, waiting: cx.schedule_activity("fetch", &input, quick()) })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::ActivityResolved { result, .. } => {
                result?;
                self.waiting = cx.start_timer(Duration::from_secs(u64::from(self.left)));
            }
            WorkflowEvent::TimerFired { .. } if self.left == 0 => cx.complete("helped"),
            WorkflowEvent::TimerFired { .. } => {
                self.left -= 1;
                self.waiting = cx.schedule_activity("fetch", &self.left, quick());
            }
            WorkflowEvent::CancelRequested { .. } => cx.cancel(None),
            _ => {}
        }
        Ok(())
    }
    fn queries() -> &'static [&'static str] {
        &["left"]
    }
    fn query(&self, _: &QueryName, _: &Payload) -> Result<Payload, Failure> {
        Ok(Payload::encode(&self.left)?)
    }
}

pub(crate) fn code() -> WorkflowRegistry {
    WorkflowRegistry::new().workflow("order", order).state_machine::<Helper>()
}

/// What the order is given, by everybody who lives it.
pub(crate) fn orders() -> DeterminismTest {
    DeterminismTest::new(code(), "order")
        .input(0..2_u32)
        .activity("charge", any::<u32>())
        .activity("refund", any::<u32>())
        .activity("fetch", 0..9_u32)
        .signal("word", "[a-z]{0,4}")
        .update("approve", any::<bool>())
        .query("approved", &())
}

/// G11-G18, G21: a workflow with everything in it, under every fault, gives no finding, and every rare state is met.
#[test]
fn a_clean_async_workflow_gives_no_alarm_and_meets_every_rare_state() {
    assert!(armed());
    let report = orders().deploys(code().version("2")).steps(60).lives(400).must_meet(RARE).run();
    println!("{report}");
    assert!(report.trip_wires && report.never_met().is_empty());
}

/// G21, E37: the same for a state machine, which also comes back from snapshots.
#[test]
fn a_clean_state_machine_gives_no_alarm() {
    let report = DeterminismTest::new(code(), "helper")
        .input(any::<u32>())
        .activity("fetch", any::<u32>())
        .query("left", &())
        .must_meet(&["resumed from a snapshot", "crash in recovery", "timer fired"])
        .run();
    println!("{report}");
}

/// All at once, and ended by the last.
#[derive(Serialize, Deserialize)]
struct Fan {
    left: usize,
}

impl StateMachine for Fan {
    const TYPE: &'static str = "fan";
    type Input = Vec<u32>;
    type Output = ();
    fn start(parts: Vec<u32>, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        for part in &parts {
            cx.schedule_activity("fetch", part, quick());
        }
        if parts.is_empty() {
            cx.complete(&());
        }
        Ok(Fan { left: parts.len() })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::ActivityResolved { .. } => self.left -= 1,
            WorkflowEvent::CancelRequested { .. } => cx.cancel(None),
            _ => {}
        }
        if self.left == 0 {
            cx.complete(&());
        }
        Ok(())
    }
}

/// E37: few slots and many attempts: a snapshot also holds what only memory knows, that a backoff is over.
#[test]
fn a_snapshot_of_a_run_whose_attempts_wait_for_slots_gives_no_alarm() {
    let report = DeterminismTest::new(WorkflowRegistry::new().state_machine::<Fan>(), "fan")
        .input(prop::collection::vec(0..9_u32, 0..5))
        .activity("fetch", any::<u32>())
        .lives(1_000)
        .must_meet(&["resumed from a snapshot and turns after it", "attempt failed"])
        .run();
    println!("{report}");
}
