//! Child workflows and messages to other runs.

use std::time::Duration;

use bosun_engine::log::InjectedFault;
use bosun_engine::workflow::{Cx, Either, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry, select};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use crate::kit::*;

/// Waits for `wake`. On cancellation it takes an hour to clean up.
async fn sleeper(ctx: WfContext, (): ()) -> Result<String, Failure> {
    match ctx.signal_channel::<String>("wake").recv().await {
        Ok(how) if how == "fail" => Err(Failure::application("Nightmare", "woken badly").non_retryable()),
        Ok(how) => Ok(how),
        Err(canceled) => {
            ctx.shielded(|ctx| async move { ctx.timer(HOUR).await }).await?;
            Err(canceled)
        }
    }
}

/// Continues as new twice, fails twice, then completes: five runs of one child.
async fn winding(ctx: WfContext, round: u32) -> Result<String, Failure> {
    if round < 2 {
        return ctx.continue_as_new(&(round + 1), ContinueAsNewOptions::default());
    }
    ctx.timer(Duration::from_secs(5)).await?;
    match ctx.info().attempt {
        Attempt(3) => Ok("at last".into()),
        Attempt(n) => Err(Failure::application("NotYet", format!("attempt {n}"))),
    }
}

/// How a parent of `sleeper` behaves.
#[derive(Clone, Serialize, Deserialize)]
struct Plan {
    child_type: String,
    options: ChildWorkflowOptions,
}

impl Plan {
    fn new(child_type: &str) -> Self {
        Plan { child_type: child_type.into(), options: ChildWorkflowOptions::default() }
    }
    fn policy(policy: ParentClosePolicy) -> Self {
        Plan { options: ChildWorkflowOptions::default().with_close_policy(policy), ..Plan::new("sleeper") }
    }
    fn cancellation(cancellation: CancellationType) -> Self {
        let options = ChildWorkflowOptions::default().with_close_policy(ParentClosePolicy::Abandon);
        Plan { options: options.with_cancellation(cancellation), ..Plan::new("sleeper") }
    }
}

/// What became of the child, and after how many seconds the parent knew.
type Seen = (Result<String, String>, u64);

fn seen(result: Result<String, Failure>, after: Duration) -> Seen {
    (result.map_err(|failure| failure.type_name().to_owned()), after.as_secs())
}

/// Ends at `leave` without waiting for its child; at `cancel` cancels it; else waits for its result.
async fn parent(ctx: WfContext, plan: Plan) -> Result<Seen, Failure> {
    let child = ctx.child_workflow::<String>(plan.child_type.as_str(), "child", &0, plan.options);
    let began = ctx.now();
    let orders = ctx.signal_channel::<()>("cancel");
    let leave = ctx.signal_channel::<bool>("leave");
    let leaving = ctx.spawn(move |_| async move { leave.recv().await });
    let handle = child.result();
    let _canceling = ctx.spawn(move |_| async move {
        if orders.recv().await.is_ok() {
            child.cancel("the parent said so");
        }
    });
    match select(leaving, handle).await {
        Either::First(Ok(true)) => Ok((Ok("left".into()), 0)),
        Either::First(_) => Err(Failure::application("Left", "in anger")),
        Either::Second(result) => Ok(seen(result, ctx.now().since(began))),
    }
}

/// The same as a state machine.
#[derive(Serialize, Deserialize)]
struct Parent {
    child: Seq,
    began: Timestamp,
}

impl StateMachine for Parent {
    const TYPE: &'static str = "parent-machine";
    type Input = Plan;
    type Output = Seen;

    fn start(plan: Plan, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let child = cx.start_child(plan.child_type.as_str(), "child", &0, plan.options);
        Ok(Parent { child, began: cx.now() })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::Signal(signal) if signal.name.as_str() == "cancel" => {
                cx.cancel_child(self.child, "the parent said so");
            }
            WorkflowEvent::Signal(signal) if signal.input.decode::<bool>()? => {
                cx.complete(&(Ok::<_, String>("left"), 0));
            }
            WorkflowEvent::Signal(_) => return Err(Failure::application("Left", "in anger")),
            WorkflowEvent::ChildResolved { result, .. } => {
                let result = result.and_then(|result| Ok(result.decode::<String>()?));
                cx.complete(&seen(result, cx.now().since(self.began)));
            }
            _ => {}
        }
        Ok(())
    }
}

const FORMS: [&str; 2] = ["parent", "parent-machine"];

/// Sends `word` to `listener`, then asks `canceled` to cancel; says how both went.
async fn messenger(ctx: WfContext, (): ()) -> Result<(bool, bool, bool), Failure> {
    let to = |id: &str| ExternalTarget { workflow_id: id.into(), run_id: None };
    let signaled = ctx.signal_external(to("listener"), "word", "hello").await.is_ok();
    let lost = ctx.signal_external(to("nobody"), "word", "hello").await.is_ok();
    let canceled = ctx.cancel_external(to("victim"), "by the messenger").await.is_ok();
    Ok((signaled, lost, canceled))
}

async fn listener(ctx: WfContext, (): ()) -> Result<Vec<String>, Failure> {
    ctx.signal_channel::<()>("stop").recv().await?;
    ctx.signal_channel::<String>("word").drain().into_iter().collect()
}

fn workflows() -> WorkflowRegistry {
    WorkflowRegistry::new()
        .state_machine::<Parent>()
        .workflow("parent", parent)
        .workflow("sleeper", |ctx, _: u32| sleeper(ctx, ()))
        .workflow("winding", winding)
        .workflow("messenger", messenger)
        .workflow("listener", listener)
}

async fn status(client: &Client, id: &str) -> WorkflowStatus {
    client.describe(&target(id)).await.unwrap().info.status
}

/// E15: what happens to a child when its parent completes, fails, is canceled or terminated, by policy.
#[tokio::test]
async fn the_parent_close_policy_decides_about_the_child() {
    let policies = [ParentClosePolicy::Terminate, ParentClosePolicy::Abandon, ParentClosePolicy::RequestCancel];
    for (form, policy) in FORMS.iter().flat_map(|form| policies.map(|policy| (form, policy))) {
        for how in ["complete", "fail", "terminate"] {
            let environment = environment(workflows());
            let client = environment.client();
            client.start(start(form, "p", &Plan::policy(policy))).await.unwrap();
            match how {
                "complete" => client.signal(&target("p"), signal("leave", &true)).await.unwrap(),
                "fail" => client.signal(&target("p"), signal("leave", &false)).await.unwrap(),
                _ => client.terminate(&target("p"), "away with it".into(), None).await.unwrap(),
            }
            outcome(&client, "p").await;
            let expected = match policy {
                ParentClosePolicy::Terminate => WorkflowStatus::Terminated,
                ParentClosePolicy::RequestCancel => WorkflowStatus::Canceled,
                ParentClosePolicy::Abandon => {
                    client.signal(&target("child"), signal("wake", "alone")).await.unwrap();
                    WorkflowStatus::Completed
                }
            };
            assert_eq!(outcome(&client, "child").await.status(), expected, "{form} {policy:?} {how}");
        }
    }
}

/// E15, G18: wherever the storage fails while the parent closes, a restart sees to the policy.
#[tokio::test]
async fn the_parent_close_policy_holds_over_a_crash_at_any_write() {
    let policies = [ParentClosePolicy::Terminate, ParentClosePolicy::Abandon, ParentClosePolicy::RequestCancel];
    for (policy, n) in policies.into_iter().flat_map(|policy| (1..=6).map(move |n| (policy, n))) {
        let environment = environment(workflows());
        environment.client().start(start("parent", "p", &Plan::policy(policy))).await.unwrap();
        assert_eq!(status(&environment.client(), "child").await, WorkflowStatus::Running);
        environment.log().fail_at(n, InjectedFault::EioAfter);
        // Whether it was taken does not matter: it is sent again.
        let _ = environment.client().signal(&target("p"), signal("leave", &true)).await;
        settled(&environment).await;
        let environment = environment.crash(n, |_| {}).unwrap();
        let client = environment.client();
        let again = client.signal(&target("p"), signal("leave", &true)).await;
        assert!(matches!(again, Ok(()) | Err(Rejection::Closed { .. })), "{again:?}");
        outcome(&client, "p").await;
        let expected = match policy {
            ParentClosePolicy::Terminate => WorkflowStatus::Terminated,
            ParentClosePolicy::RequestCancel => WorkflowStatus::Canceled,
            ParentClosePolicy::Abandon => {
                client.signal(&target("child"), signal("wake", "alone")).await.unwrap();
                WorkflowStatus::Completed
            }
        };
        assert_eq!(outcome(&client, "child").await.status(), expected, "{policy:?}, write {n}");
    }
}

/// E15: a child that cannot be started is an event and a failure, not the end of its parent.
#[tokio::test]
async fn a_child_that_cannot_start_is_a_failure_of_the_child() {
    for form in FORMS {
        let environment = environment(workflows());
        let client = environment.client();
        client.start(start("sleeper", "child", &0)).await.unwrap();
        client.start(start(form, "taken", &Plan::new("sleeper"))).await.unwrap();
        client.start(start(form, "unknown", &Plan::new("no-such-type"))).await.unwrap();
        for id in ["taken", "unknown"] {
            let (result, _) = output::<Seen>(&client, id).await;
            assert_eq!(result, Err("ChildWorkflowNotStarted".into()), "{form} {id}");
            assert_eq!(count(&history(&client, id).await, "StartChildWorkflowExecutionFailed"), 1);
        }
        assert_eq!(status(&client, "child").await, WorkflowStatus::Running, "the run that has the id is not touched");
    }
}

/// E15: every way in which a child can end is an event of its own and reaches the code, over a restart of the worker.
#[tokio::test]
async fn every_end_of_a_child_is_an_event() {
    for form in FORMS {
        for (how, event, expected) in [
            ("complete", "ChildWorkflowExecutionCompleted", Ok("complete".to_owned())),
            ("fail", "ChildWorkflowExecutionFailed", Err("Nightmare".into())),
            ("cancel", "ChildWorkflowExecutionCanceled", Err("Canceled".into())),
            ("terminate", "ChildWorkflowExecutionTerminated", Err("Terminated".into())),
            ("time out", "ChildWorkflowExecutionTimedOut", Err("Timeout".into())),
        ] {
            let environment = environment(workflows());
            let mut plan = Plan::new("sleeper");
            plan.options.execution_timeout = (how == "time out").then_some(HOUR);
            environment.client().start(start(form, "p", &plan)).await.unwrap();
            let environment = environment.restart(|_| {}).unwrap();
            settled(&environment).await;
            let client = environment.client();
            let child = target("child");
            match how {
                "cancel" => client.cancel(&child, "no more".into(), None, None).await.unwrap(),
                "terminate" => client.terminate(&child, "no more".into(), None).await.unwrap(),
                "time out" => {}
                how => client.signal(&child, signal("wake", how)).await.unwrap(),
            }
            assert_eq!(output::<Seen>(&client, "p").await.0, expected, "{form} {how}");
            let events = history(&client, "p").await;
            assert_eq!(count(&events, event), 1);
            assert_eq!(count(&events, "ChildWorkflowExecutionStarted"), 1);
        }
    }
}

/// E15, E27: the end of a child waits once in the inbox of a paused parent, however often the worker is started again.
#[tokio::test]
async fn the_end_of_a_child_waits_once_over_restarts() {
    for form in FORMS {
        let environment = environment(workflows());
        environment.client().start(start(form, "p", &Plan::new("sleeper"))).await.unwrap();
        settled(&environment).await;
        environment.client().pause(&target("p"), "later".into(), None).await.unwrap();
        environment.client().signal(&target("child"), signal("wake", "complete")).await.unwrap();
        settled(&environment).await;
        let mut environment = environment;
        for _ in 0..2 {
            environment = environment.restart(|_| {}).unwrap();
            settled(&environment).await;
        }
        let client = environment.client();
        // Beside it waits that the worker is another one.
        let turns = client.turns(&target("p")).await.unwrap();
        let kept = turns.iter().flat_map(|turn| &turn.inbox_added);
        let ends = kept.filter(|input| matches!(input, Input::ChildClosed { .. })).count();
        assert_eq!(ends, 1, "{form}: {turns:?}");
        client.unpause(&target("p"), "now".into(), None).await.unwrap();
        assert_eq!(output::<Seen>(&client, "p").await.0, Ok("complete".to_owned()), "{form}");
        assert_eq!(client.describe(&target("p")).await.unwrap().inbox, 0, "{form}");
        assert_eq!(count(&history(&client, "p").await, "ChildWorkflowExecutionCompleted"), 1);
    }
}

/// E15: what canceling a child means to the code, for each cancellation type; the child needs an hour to end.
#[tokio::test]
async fn the_cancellation_type_says_when_the_parent_hears_of_the_cancellation() {
    for form in FORMS {
        for (cancellation, after, asked) in [
            (CancellationType::TryCancel, 0, true),
            (CancellationType::Abandon, 0, false),
            (CancellationType::WaitCancellationRequested, 0, true),
            (CancellationType::WaitCancellationCompleted, 3_600, true),
        ] {
            let environment = environment(workflows());
            environment.client().start(start(form, "p", &Plan::cancellation(cancellation))).await.unwrap();
            let environment = environment.restart(|_| {}).unwrap();
            settled(&environment).await;
            let client = environment.client();
            client.signal(&target("p"), signal("cancel", &())).await.unwrap();
            assert_eq!(output::<Seen>(&client, "p").await, (Err("Canceled".into()), after), "{form} {cancellation:?}");
            let events = history(&client, "p").await;
            assert_eq!(count(&events, "ChildWorkflowExecutionCancelRequested"), usize::from(asked));
            if cancellation == CancellationType::WaitCancellationRequested {
                assert_eq!(count(&events, "ExternalWorkflowExecutionCancelRequested"), 1);
                assert_eq!(count(&events, "ChildWorkflowExecutionCanceled"), 0);
            }
            settled(&environment).await;
            let child = client.describe(&target("child")).await.unwrap();
            assert_eq!(child.cancel_requested, asked, "{form} {cancellation:?}");
        }
    }
}

/// E15, G18: a child that goes on in new runs and is retried reports once, with its last run, over crashes on the way.
#[tokio::test]
async fn a_chain_of_runs_reports_to_its_parent_once() {
    let mut environment = environment(workflows());
    let mut plan = Plan::new("winding");
    plan.options.retry_policy = Some(RetryPolicy::default());
    environment.client().start(start("parent", "p", &plan)).await.unwrap();
    for seed in 0..6 {
        environment.sleep(Duration::from_secs(3)).await;
        environment = environment.crash(seed, |_| {}).unwrap();
    }
    let client = environment.client();
    // Three attempts of five seconds each, with delays of one and two seconds between.
    assert_eq!(output::<Seen>(&client, "p").await, (Ok("at last".into()), 18));
    let ends = names(&history(&client, "p").await).into_iter().filter(|name| name.starts_with("ChildWorkflow"));
    assert_eq!(ends.collect::<Vec<_>>(), ["ChildWorkflowExecutionStarted", "ChildWorkflowExecutionCompleted"]);
    let runs = client.list(ListRequest { query: "WorkflowId = 'child'".into(), limit: 10 }).await.unwrap();
    assert_eq!(runs.len(), 5);
}

/// E16: a signal or cancel request to another run ends in an event that says whether it was delivered.
#[tokio::test]
async fn messages_to_other_runs_are_delivered_or_fail_by_event() {
    let environment = environment(workflows());
    let client = environment.client();
    client.start(start("listener", "listener", &())).await.unwrap();
    client.start(start("sleeper", "victim", &0)).await.unwrap();
    client.start(start("messenger", "m", &())).await.unwrap();
    assert_eq!(output::<(bool, bool, bool)>(&client, "m").await, (true, false, true));
    let events = history(&client, "m").await;
    for name in [
        "ExternalWorkflowExecutionSignaled",
        "SignalExternalWorkflowExecutionFailed",
        "ExternalWorkflowExecutionCancelRequested",
    ] {
        assert_eq!(count(&events, name), 1, "{name}");
    }
    assert_eq!(outcome(&client, "victim").await, CloseOutcome::Canceled(None));
    client.signal(&target("listener"), signal("stop", &())).await.unwrap();
    assert_eq!(output::<Vec<String>>(&client, "listener").await, ["hello"]);
}

/// E16: wherever the storage fails in the middle of the deliveries, each message is heard exactly once.
#[tokio::test]
async fn messages_to_other_runs_arrive_once_over_a_crash_at_any_write() {
    for n in 1..=14 {
        let environment = environment(workflows());
        let client = environment.client();
        client.start(start("listener", "listener", &())).await.unwrap();
        client.start(start("sleeper", "victim", &0)).await.unwrap();
        environment.log().fail_at(n, InjectedFault::EioAfter);
        let mut messenger = start("messenger", "m", &());
        messenger.request_id = Some("once".into());
        let _ = client.start(messenger.clone()).await;
        settled(&environment).await;
        let environment = environment.crash(n, |_| {}).unwrap();
        let client = environment.client();
        client.start(messenger).await.unwrap();
        assert_eq!(output::<(bool, bool, bool)>(&client, "m").await, (true, false, true), "write {n}");
        client.signal(&target("listener"), signal("stop", &())).await.unwrap();
        assert_eq!(output::<Vec<String>>(&client, "listener").await, ["hello"], "write {n}");
        assert_eq!(outcome(&client, "victim").await, CloseOutcome::Canceled(None));
        assert_eq!(count(&history(&client, "victim").await, "WorkflowExecutionCancelRequested"), 1, "write {n}");
    }
}
