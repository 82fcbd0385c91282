//! Cancellation of runs and activities, and termination.

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use crate::scene::*;

/// Cancels its activity when told `cancel`, notes how it ended, and gives that when told `go`.
#[derive(Serialize, Deserialize)]
struct Canceler {
    seq: Seq,
    heard: Option<String>,
}

fn told(result: &Result<Payload, Failure>) -> String {
    match result {
        Ok(result) => format!("completed {}", result.decode::<String>().unwrap()),
        Err(failure) if failure.is_canceled() => "canceled".to_owned(),
        Err(failure) => failure.type_name().to_owned(),
    }
}

impl StateMachine for Canceler {
    const TYPE: &'static str = "canceler-machine";
    type Input = ActivityOptions;
    type Output = String;

    fn start(options: ActivityOptions, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Canceler { seq: cx.schedule_activity("work", "x", options), heard: None })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::ActivityResolved { result, .. } => self.heard = Some(told(&result)),
            WorkflowEvent::Signal(signal) if signal.name.as_str() == "cancel" => cx.cancel_activity(self.seq),
            WorkflowEvent::Signal(_) => cx.complete(self.heard.as_deref().unwrap_or("nothing")),
            _ => {}
        }
        Ok(())
    }
    fn queries() -> &'static [&'static str] {
        &["heard"]
    }
    fn query(&self, _: &QueryName, _: &Payload) -> Result<Payload, Failure> {
        Ok(payload(&self.heard))
    }
}

fn environment() -> (Stage, TestEnvironment) {
    let (stage, activities) = Stage::new();
    let flows = flows()
        .state_machine::<Canceler>()
        .workflow("canceler", |ctx: WfContext, options: ActivityOptions| async move {
            let heard = std::rc::Rc::new(std::cell::RefCell::new(None::<String>));
            let shown = heard.clone();
            ctx.on_query("heard", move |(): ()| Ok(shown.borrow().clone()));
            let work = ctx.activity::<String>("work", "x", options);
            let handle = work.handle();
            let noted = heard.clone();
            let _watcher = ctx.spawn(|_| async move {
                let result: Result<String, Failure> = work.await;
                *noted.borrow_mut() = Some(told(&result.map(|result| payload(&result))));
            });
            ctx.signal_channel::<()>("cancel").recv().await?;
            handle.cancel();
            ctx.signal_channel::<()>("go").recv().await?;
            let heard = heard.borrow().clone();
            Ok(heard.unwrap_or_else(|| "nothing".to_owned()))
        })
        // Works, and cleans up out of reach of the cancellation.
        .workflow("tidy", |ctx: WfContext, (): ()| async move {
            let worked = ctx.activity::<String>("work", "job", within(MINUTE)).await;
            let cleaned: String =
                ctx.shielded(|ctx| async move { ctx.activity("work", "cleanup", within(MINUTE)).await }).await?;
            worked.map(|worked| format!("{worked} {cleaned}"))
        })
        // Cancels one of its two scopes.
        .workflow("scopes", |ctx: WfContext, (): ()| async move {
            let (inner, outer) = (ctx.nested_scope(), ctx.nested_scope());
            let deepest = inner.nested_scope();
            let lost = deepest.timer(MINUTE);
            let kept = outer.timer(MINUTE);
            inner.cancel_scope("not needed");
            let late = inner.timer(SECOND).await;
            Ok((lost.await.is_err(), kept.await.is_ok(), late.is_err(), ctx.is_canceled()))
        });
    (stage, TestEnvironment::start(flows, activities).unwrap())
}

const CANCELERS: [&str; 2] = ["canceler", "canceler-machine"];

async fn heard(client: &Client, id: &str) -> Option<String> {
    client.query(&target(id), &"heard".into(), payload(&())).await.unwrap().decode().unwrap()
}

/// E07: try-cancel, the default: the function is told, and the code hears `canceled` without waiting for it.
#[tokio::test]
async fn try_cancel_tells_the_function_and_does_not_wait() {
    for form in CANCELERS {
        let (mut stage, environment) = environment();
        let client = environment.client();
        client.start(start(form, "a", &within(MINUTE))).await.unwrap();
        let running = stage.next().await;
        assert!(!running.context.is_canceled());
        client.signal(&target("a"), signal("cancel", &())).await.unwrap();
        assert_eq!(heard(&client, "a").await.as_deref(), Some("canceled"));
        tokio::time::timeout(PATIENCE, running.context.canceled()).await.expect("the function should be told");
        running.complete("nevertheless");
        until(&client, "a", |seen| seen.pending_activities.is_empty()).await;
        client.signal(&target("a"), signal("go", &())).await.unwrap();
        assert_eq!(completed::<String>(&client, "a").await, "canceled", "{form}: what comes later is not heard of");
        assert_eq!(count(&client, "a", "ActivityTaskCancelRequested").await, 1);
    }
}

/// E07: wait-cancellation-completed: the function is told, and the code hears how it ended.
#[tokio::test]
async fn wait_cancellation_completed_waits_for_the_function() {
    let options = ActivityOptions { cancellation: CancellationType::WaitCancellationCompleted, ..within(MINUTE) };
    let ends: [(Result<String, ActivityError>, &str); 3] = [
        (Err(ActivityError::Canceled(Some(payload("half")))), "canceled"),
        (Ok("whole".into()), "completed whole"),
        (Err(Failure::application("Broken", "on the way").into()), "Broken"),
    ];
    for form in CANCELERS {
        for (end, expected) in ends.clone() {
            let (mut stage, environment) = environment();
            let client = environment.client();
            client.start(start(form, "a", &options)).await.unwrap();
            let running = stage.next().await;
            client.signal(&target("a"), signal("cancel", &())).await.unwrap();
            tokio::time::timeout(PATIENCE, running.context.canceled()).await.expect("the function should be told");
            assert_eq!(heard(&client, "a").await, None, "{form}");
            running.end(end);
            until(&client, "a", |seen| seen.pending_activities.is_empty()).await;
            client.signal(&target("a"), signal("go", &())).await.unwrap();
            assert_eq!(completed::<String>(&client, "a").await, expected, "{form}");
            assert!(stage.is_quiet(), "one that was asked to stop is not tried again");
        }
    }
}

/// E07: abandon: the code hears `canceled`, the function nothing, and it may go on to its end.
#[tokio::test]
async fn abandon_lets_the_function_go_on() {
    for form in CANCELERS {
        let (mut stage, environment) = environment();
        let client = environment.client();
        let options = ActivityOptions { cancellation: CancellationType::Abandon, ..within(MINUTE) };
        client.start(start(form, "a", &options)).await.unwrap();
        let running = stage.next().await;
        client.signal(&target("a"), signal("cancel", &())).await.unwrap();
        assert_eq!(heard(&client, "a").await.as_deref(), Some("canceled"));
        assert!(!running.context.is_canceled());
        running.complete("alone");
        until(&client, "a", |seen| seen.pending_activities.is_empty()).await;
        client.signal(&target("a"), signal("go", &())).await.unwrap();
        assert_eq!(completed::<String>(&client, "a").await, "canceled");
        assert_eq!(count(&client, "a", "ActivityTaskCancelRequested").await, 0);
        assert_eq!(count(&client, "a", "ActivityTaskCompleted").await, 1);
    }
}

/// E07: an activity that waits for its next attempt or for a slot ends at once when it is canceled.
#[tokio::test]
async fn canceling_an_activity_that_does_not_run_ends_it() {
    let options = ActivityOptions { cancellation: CancellationType::WaitCancellationCompleted, ..within(MINUTE) };
    for form in CANCELERS {
        let (mut stage, environment) = environment();
        let client = environment.client();
        client.start(start(form, "a", &options)).await.unwrap();
        stage.next().await.fail(Failure::application("Busy", "later"));
        until(&client, "a", |seen| seen.pending_activities[0].state == PendingActivityState::BackingOff).await;
        client.signal(&target("a"), signal("cancel", &())).await.unwrap();
        assert_eq!(heard(&client, "a").await.as_deref(), Some("canceled"), "{form}");
        client.signal(&target("a"), signal("go", &())).await.unwrap();
        assert_eq!(completed::<String>(&client, "a").await, "canceled");
        environment.sleep(MINUTE).await;
        assert!(stage.is_quiet());
    }
}

/// E06, E17: the cancellation of a run reaches the running function and ends the run as `Canceled`, in both forms; the
/// request is one event, however often it is repeated.
#[tokio::test]
async fn a_canceled_run_ends_as_canceled() {
    for form in FORMS {
        let (mut stage, environment) = environment();
        let client = environment.client();
        let options = ActivityOptions { cancellation: CancellationType::WaitCancellationCompleted, ..within(MINUTE) };
        client.start(one(form, form, &options)).await.unwrap();
        let running = stage.next().await;
        for _ in 0..2 {
            client.cancel(&target(form), "enough".into(), None, Some("r1".into())).await.unwrap();
        }
        tokio::time::timeout(PATIENCE, running.context.canceled()).await.expect("the function should be told");
        assert!(client.describe(&target(form)).await.unwrap().cancel_requested);
        running.end(Err(ActivityError::Canceled(None)));
        assert_eq!(outcome(&client, form).await, CloseOutcome::Canceled(None));
        assert_eq!(count(&client, form, "WorkflowExecutionCancelRequested").await, 1);
        let late = client.cancel(&target(form), "again".into(), None, None).await;
        assert!(matches!(late, Err(Rejection::Closed { status: WorkflowStatus::Canceled, .. })), "{late:?}");
    }
}

/// E17: cleanup in a detached scope runs to its end, also when the worker crashes in the middle of it.
#[tokio::test]
async fn cleanup_is_out_of_reach_of_the_cancellation() {
    let (mut stage, environment) = environment();
    environment.client().start(start("tidy", "a", &())).await.unwrap();
    let job = stage.next().await;
    assert_eq!(job.label, "job");
    environment.client().cancel(&target("a"), "enough".into(), None, None).await.unwrap();
    let cleanup = stage.next().await;
    assert_eq!((cleanup.label.as_str(), cleanup.context.is_canceled()), ("cleanup", false));
    let environment = environment.crash(1, |_| {}).unwrap();
    // After the crash: the job, which was asked to stop, is not tried again; the cleanup is.
    let cleanup = stage.next().await;
    assert_eq!((cleanup.label.as_str(), cleanup.attempt()), ("cleanup", 2));
    cleanup.complete("clean");
    assert_eq!(outcome(&environment.client(), "a").await.status(), WorkflowStatus::Canceled);
    assert!(stage.is_quiet());
}

/// E17: canceling a scope reaches what is nested in it, now and later, and nothing else.
#[tokio::test]
async fn a_canceled_scope_takes_only_what_is_in_it() {
    let (_stage, environment) = environment();
    let client = environment.client();
    client.start(start("scopes", "a", &())).await.unwrap();
    assert_eq!(completed::<(bool, bool, bool, bool)>(&client, "a").await, (true, true, true, false));
    assert_eq!(count(&client, "a", "TimerCanceled").await, 1);
    assert_eq!(count(&client, "a", "TimerFired").await, 1);
}

/// E18: termination is immediate: no code runs, functions are told to stop, the reason is kept.
#[tokio::test]
async fn a_terminated_run_ends_without_its_code() {
    for form in FORMS {
        let (mut stage, environment) = environment();
        let client = environment.client();
        client.start(one(form, form, &within(MINUTE))).await.unwrap();
        let running = stage.next().await;
        let events = history(&client, &target(form)).await.len();
        client.terminate(&target(form), "out of order".into(), Some("ada".into())).await.unwrap();
        let expected = CloseOutcome::Terminated { reason: "out of order".into() };
        assert_eq!(outcome(&client, form).await, expected);
        tokio::time::timeout(PATIENCE, running.context.canceled()).await.expect("the function should be told");
        let held = history(&client, &target(form)).await;
        let last = EventKind::WorkflowExecutionTerminated {
            reason: "out of order".into(),
            identity: Some("ada".into()),
            reset: None,
            unhandled_signals: Vec::new(),
        };
        assert_eq!((held.len(), &held.last().unwrap().kind), (events + 1, &last));
        let environment = environment.restart(|_| {}).unwrap();
        let client = environment.client();
        assert_eq!(outcome(&client, form).await, expected);
        let again = client.terminate(&target(form), "again".into(), None).await;
        assert!(matches!(again, Err(Rejection::Closed { status: WorkflowStatus::Terminated, .. })), "{again:?}");
    }
}

/// E11, E18: an end from outside names the signals that the code had and never took, and those that it never had.
#[tokio::test]
async fn an_end_from_outside_names_the_signals_that_nobody_took() {
    let (_stage, mut environment) = environment();
    let client = environment.client();
    let run_timeout = Some(MINUTE);
    client.start(StartWorkflow { run_timeout, ..start("wait", "late", &()) }).await.unwrap();
    client.start(start("wait", "ended", &())).await.unwrap();
    for id in ["late", "ended"] {
        client.signal(&target(id), signal("other", &1)).await.unwrap();
        client.pause(&target(id), String::new(), None).await.unwrap();
        client.signal(&target(id), signal("go", "now")).await.unwrap();
    }
    environment = environment.crash(1, |_| {}).unwrap();
    let client = environment.client();
    client.terminate(&target("ended"), "enough".into(), None).await.unwrap();
    assert_eq!(outcome(&client, "late").await, CloseOutcome::TimedOut(WorkflowTimeout::Run));
    for id in ["late", "ended"] {
        match history(&client, &target(id)).await.pop().unwrap().kind {
            EventKind::WorkflowExecutionTimedOut { unhandled_signals, .. }
            | EventKind::WorkflowExecutionTerminated { unhandled_signals, .. } => {
                assert_eq!(unhandled_signals, ["other".into(), "go".into()], "{id}");
            }
            other => panic!("{id}: {other:?}"),
        }
    }
}
