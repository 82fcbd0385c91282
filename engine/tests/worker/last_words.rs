//! Messages that a run sends in the turn in which it ends: they arrive although nobody is left to wait for them.

use bosun_engine::log::InjectedFault;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use crate::kit::*;

const FORMS: [&str; 2] = ["parting", "parting-machine"];

fn other(id: &str) -> ExternalTarget {
    ExternalTarget { workflow_id: id.into(), run_id: None }
}

fn abandoned() -> ChildWorkflowOptions {
    ChildWorkflowOptions::default().with_close_policy(ParentClosePolicy::Abandon)
}

/// Signals one run, cancels another, starts a child and another one that it cancels at once, and ends, in one turn.
async fn parting(ctx: WfContext, (): ()) -> Result<(), Failure> {
    let heir = ctx.child_workflow::<()>("sleeper", "heir", &(), abandoned());
    let doomed = ctx.child_workflow::<()>("sleeper", "doomed", &(), abandoned());
    doomed.cancel("at once");
    let word = ctx.signal_external(other("listener"), "word", "farewell");
    let cancel = ctx.cancel_external(other("victim"), "with me");
    let nobody = ctx.signal_external(other("nobody"), "word", "lost");
    drop((heir, doomed, word, cancel, nobody));
    Ok(())
}

/// The same as a state machine.
#[derive(Serialize, Deserialize)]
struct Parting;

impl StateMachine for Parting {
    const TYPE: &'static str = "parting-machine";
    type Input = ();
    type Output = ();

    fn start((): (), cx: &mut Cx<'_>) -> Result<Self, Failure> {
        cx.start_child("sleeper", "heir", &(), abandoned());
        let doomed = cx.start_child("sleeper", "doomed", &(), abandoned());
        cx.cancel_child(doomed, "at once");
        cx.signal_external(other("listener"), "word", "farewell");
        cx.cancel_external(other("victim"), "with me");
        cx.signal_external(other("nobody"), "word", "lost");
        cx.complete(&());
        Ok(Parting)
    }
    fn on_event(&mut self, _event: WorkflowEvent, _cx: &mut Cx<'_>) -> Result<(), Failure> {
        Ok(())
    }
}

async fn sleeper(ctx: WfContext, (): ()) -> Result<(), Failure> {
    ctx.signal_channel::<()>("wake").recv().await
}

async fn listener(ctx: WfContext, (): ()) -> Result<Vec<String>, Failure> {
    ctx.signal_channel::<()>("stop").recv().await?;
    ctx.signal_channel::<String>("word").drain().into_iter().collect()
}

fn workflows() -> WorkflowRegistry {
    let registry = WorkflowRegistry::new().state_machine::<Parting>().workflow("parting", parting);
    registry.workflow("sleeper", sleeper).workflow("listener", listener)
}

async fn status(client: &Client, id: &str) -> WorkflowStatus {
    client.describe(&target(id)).await.unwrap().info.status
}

/// E15, E16, G2: wherever the storage fails and the worker crashes, what a run said as it ended is heard exactly once,
/// and noted, so that no later restart says it again.
#[tokio::test]
async fn what_a_run_says_as_it_ends_is_heard_once_over_a_crash_at_any_write() {
    for (form, n) in FORMS.into_iter().flat_map(|form| (1..=10).map(move |n| (form, n))) {
        let environment = environment(workflows());
        let client = environment.client();
        client.start(start("listener", "listener", &())).await.unwrap();
        client.start(start("sleeper", "victim", &())).await.unwrap();
        environment.log().fail_at(n, InjectedFault::EioAfter);
        let mut parting = start(form, "p", &());
        parting.request_id = Some("once".into());
        let _ = client.start(parting.clone()).await;
        settled(&environment).await;
        let environment = environment.crash(n, |_| {}).unwrap();
        environment.client().start(parting).await.unwrap();
        settled(&environment).await;

        // A clean restart afterwards has nothing to do.
        let last = environment.client().turns(&target("p")).await.unwrap();
        let environment = environment.restart(|_| {}).unwrap();
        settled(&environment).await;
        let client = environment.client();
        assert_eq!(client.turns(&target("p")).await.unwrap(), last, "{form}, write {n}");
        assert_eq!(last.iter().map(|turn| turn.delivered.len()).sum::<usize>(), 4, "{form}, write {n}");
        assert!(!last.last().unwrap().outlook.attention);
        assert_eq!(names(&history(&client, "p").await).last(), Some(&"WorkflowExecutionCompleted"));

        assert_eq!(status(&client, "heir").await, WorkflowStatus::Running, "{form}, write {n}");
        // A child that is canceled in the turn that asks for it is never asked for.
        assert!(client.describe(&target("doomed")).await.is_err(), "{form}, write {n}");
        assert_eq!(status(&client, "victim").await, WorkflowStatus::Canceled, "{form}, write {n}");
        assert_eq!(count(&history(&client, "victim").await, "WorkflowExecutionCancelRequested"), 1);
        client.signal(&target("listener"), signal("stop", &())).await.unwrap();
        assert_eq!(output::<Vec<String>>(&client, "listener").await, ["farewell"], "{form}, write {n}");
    }
}

/// E15, E27, G2: a run that is terminated while a message of it is under way still delivers it after a crash, also when
/// its own code is gone from the new build.
#[tokio::test]
async fn a_closed_run_needs_no_code_to_deliver_what_it_said() {
    for form in FORMS {
        let environment = environment(workflows());
        let client = environment.client();
        client.start(start("listener", "listener", &())).await.unwrap();
        client.start(start("sleeper", "victim", &())).await.unwrap();
        // The first commit holds the end of the run; its sync is done and then reported as failed.
        environment.log().fail_at(2, InjectedFault::EioAfter);
        let _ = client.start(start(form, "p", &())).await;
        settled(&environment).await;
        let without = WorkflowRegistry::new().workflow("sleeper", sleeper).workflow("listener", listener);
        let environment = environment.crash(3, |options| options.workflows = without).unwrap();
        settled(&environment).await;
        let client = environment.client();
        assert_eq!(status(&client, "p").await, WorkflowStatus::Completed, "{form}");
        assert_eq!(status(&client, "victim").await, WorkflowStatus::Canceled, "{form}");
        client.signal(&target("listener"), signal("stop", &())).await.unwrap();
        assert_eq!(output::<Vec<String>>(&client, "listener").await, ["farewell"], "{form}");
    }
}

/// E12, E16: a newer run of the same id is not mistaken for the one that still has something to say.
#[tokio::test]
async fn a_newer_run_of_the_id_stays_the_current_one() {
    let environment = environment(workflows());
    let client = environment.client();
    client.start(start("sleeper", "victim", &())).await.unwrap();
    environment.log().fail_at(2, InjectedFault::EioAfter);
    let _ = client.start(start("parting", "p", &())).await;
    let _ = client.start(start("sleeper", "p", &())).await;
    settled(&environment).await;
    let environment = environment.crash(5, |_| {}).unwrap();
    let client = environment.client();
    settled(&environment).await;
    let newest = match client.start(start("sleeper", "p", &())).await {
        Ok(started) => started.run_id,
        Err(Rejection::AlreadyOpen { run_id, .. }) => run_id,
        Err(other) => panic!("{other}"),
    };
    let environment = environment.restart(|_| {}).unwrap();
    assert_eq!(environment.client().describe(&target("p")).await.unwrap().info.run_id, newest);
}
