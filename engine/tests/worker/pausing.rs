//! Pausing a run, and pausing one activity of it.

use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use crate::scene::*;

/// Notes what it hears, in order, until it hears `end`.
#[derive(Serialize, Deserialize)]
struct Notes(Vec<String>);

impl StateMachine for Notes {
    const TYPE: &'static str = "notes-machine";
    type Input = u64;
    type Output = Vec<String>;

    fn start(seconds: u64, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        cx.start_timer(Duration::from_secs(seconds));
        Ok(Notes(Vec::new()))
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::TimerFired { .. } => self.0.push("timer".into()),
            WorkflowEvent::CancelRequested { .. } => self.0.push("cancel".into()),
            WorkflowEvent::Signal(signal) if signal.name.as_str() == "end" => cx.complete(&self.0),
            WorkflowEvent::Signal(signal) => self.0.push(signal.input.decode()?),
            _ => {}
        }
        Ok(())
    }
}

fn environment_with(change: impl FnOnce(&mut WorkerOptions)) -> (Stage, TestEnvironment) {
    let (stage, activities) = Stage::new();
    let flows = flows().state_machine::<Notes>().workflow("notes", |ctx: WfContext, seconds: u64| async move {
        let notes = ctx.state("notes", Vec::<String>::new());
        let (timer, words) = (ctx.timer(Duration::from_secs(seconds)), notes.clone());
        let _timer = ctx.spawn(|_| async move {
            if timer.await.is_ok() {
                words.write(|words| words.push("timer".into()));
            }
        });
        let words = notes.clone();
        let _listener = ctx.spawn(|ctx| async move {
            while let Ok(word) = ctx.signal_channel::<String>("word").recv().await {
                words.write(|words| words.push(word));
            }
        });
        ctx.signal_channel::<()>("end").recv().await?;
        Ok(notes.get())
    });
    (stage, TestEnvironment::start_with(flows, activities, change).unwrap())
}

fn environment() -> (Stage, TestEnvironment) {
    environment_with(|_| {})
}

async fn pause(client: &Client, id: &str) {
    client.pause(&target(id), "maintenance".into(), Some("ada".into())).await.unwrap();
}

async fn unpause(client: &Client, id: &str) {
    client.unpause(&target(id), "done".into(), None).await.unwrap();
}

/// E27: a paused run hears nothing; what came meanwhile is kept durably, over crashes, and heard in order afterwards;
/// timers that were due fire then.
#[tokio::test]
async fn what_comes_while_a_run_is_paused_is_heard_in_order_afterwards() {
    for form in ["notes", "notes-machine"] {
        let (_stage, mut environment) = environment();
        environment.client().start(start(form, "a", &10u64)).await.unwrap();
        pause(&environment.client(), "a").await;
        for (seed, word) in ["one", "two", "three"].into_iter().enumerate() {
            let client = environment.client();
            client.signal(&target("a"), signal("word", word)).await.unwrap();
            environment.sleep(MINUTE).await;
            environment = environment.crash(seed as u64, |_| {}).unwrap();
        }
        let client = environment.client();
        let seen = client.describe(&target("a")).await.unwrap();
        assert_eq!(seen.info.status, WorkflowStatus::Paused);
        assert_eq!(count(&client, "a", "WorkflowExecutionSignaled").await + count(&client, "a", "TimerFired").await, 0);
        unpause(&client, "a").await;
        client.signal(&target("a"), signal("end", &())).await.unwrap();
        assert_eq!(completed::<Vec<String>>(&client, "a").await, ["one", "two", "three", "timer"], "{form}");
        let environment = environment.crash(7, |_| {}).unwrap();
        let described = environment.client().describe(&target("a")).await.unwrap();
        assert_eq!((described.inbox, described.held), (0, None));
    }
}

/// E27: pausing twice and unpausing what runs are refused; a paused run says so, and can be ended.
#[tokio::test]
async fn pause_and_unpause_say_when_they_do_not_apply() {
    let (_stage, environment) = environment();
    let client = environment.client();
    client.start(start("wait", "a", &())).await.unwrap();
    let refused = client.unpause(&target("a"), String::new(), None).await;
    assert_eq!(refused, Err(Rejection::NotPaused));
    pause(&client, "a").await;
    assert_eq!(client.pause(&target("a"), String::new(), None).await, Err(Rejection::AlreadyPaused));
    let update = UpdateRequest {
        update_id: "u".into(),
        name: "x".into(),
        input: payload(&()),
        identity: None,
        wait: UpdateWait::Accepted,
    };
    let refused = client.update(&target("a"), update).await;
    assert!(matches!(refused, Err(Rejection::Held { .. })), "{refused:?}");
    client.terminate(&target("a"), "enough".into(), None).await.unwrap();
    assert_eq!(outcome(&client, "a").await.status(), WorkflowStatus::Terminated);
}

/// E27, E02: the timeouts of a run go on while it is paused, and what it did not hear is reported.
#[tokio::test]
async fn a_paused_run_still_times_out() {
    let (_stage, environment) = environment();
    let client = environment.client();
    client.start(StartWorkflow { run_timeout: Some(MINUTE), ..start("wait", "a", &()) }).await.unwrap();
    pause(&client, "a").await;
    client.signal(&target("a"), signal("go", "on")).await.unwrap();
    assert_eq!(outcome(&client, "a").await, CloseOutcome::TimedOut(WorkflowTimeout::Run));
    let held = history(&client, &target("a")).await;
    let EventKind::WorkflowExecutionTimedOut { unhandled_signals, .. } = &held.last().unwrap().kind else {
        panic!("{held:?}")
    };
    assert_eq!(unhandled_signals, &["go".into()]);
}

/// E27: while a run is paused no attempt starts, not even one that waited for its slot before; afterwards it does.
#[tokio::test]
async fn no_attempt_starts_while_a_run_is_paused() {
    for form in FORMS {
        let (mut stage, environment) = environment_with(|options| options.slots = 1);
        let client = environment.client();
        client.start(one("one", "first", &within(MINUTE))).await.unwrap();
        let first = stage.next().await;
        let options = ActivityOptions { schedule_to_start: Some(MINUTE), ..within(MINUTE) };
        client.start(one(form, "a", &options)).await.unwrap();
        client.start(one("one", "other", &within(MINUTE))).await.unwrap();
        pause(&client, "a").await;
        first.complete("free");
        let next = stage.next().await;
        assert_eq!(next.label, "other", "the slot goes to one that can use it");
        next.complete("free again");
        completed::<String>(&client, "other").await;
        environment.sleep(MINUTE * 2).await;
        assert!(stage.is_quiet());
        unpause(&client, "a").await;
        stage.next().await.complete("at last");
        assert_eq!(completed::<String>(&client, "a").await, "at last");
        assert_eq!(count(&client, "a", "ActivityTaskStarted").await, 1);
    }
}

/// E27, E08: the outcome of an attempt that ends while its run is paused is kept over a crash; the attempt is not taken
/// for lost, and an at-most-once activity keeps its result.
#[tokio::test]
async fn an_outcome_that_waits_is_not_lost_by_a_crash() {
    for form in FORMS {
        let (mut stage, environment) = environment();
        let client = environment.client();
        let options = ActivityOptions { retry_policy: attempts(1), ..within(MINUTE * 60) };
        client.start(one(form, "a", &options)).await.unwrap();
        let running = stage.next().await;
        pause(&client, "a").await;
        running.complete("precious");
        until(&client, "a", |seen| seen.inbox == 1).await;
        let environment = environment.crash(1, |_| {}).unwrap().crash(2, |_| {}).unwrap();
        let client = environment.client();
        unpause(&client, "a").await;
        assert_eq!(completed::<String>(&client, "a").await, "precious", "{form}");
        assert_eq!(count(&client, "a", "ActivityTaskStarted").await, 1);
    }
}

/// E27, G12: a restart that fell into a pause takes only the attempts that ran before it for lost, not those that start
/// when the run goes on.
#[tokio::test]
async fn a_restart_during_a_pause_counts_once() {
    for form in FORMS {
        let (mut stage, environment) = environment();
        let client = environment.client();
        let options = ActivityOptions { retry_policy: attempts(2), ..within(MINUTE * 60) };
        client.start(one(form, "a", &options)).await.unwrap();
        stage.next().await.fail(Failure::application("Busy", "later"));
        until(&client, "a", |seen| seen.pending_activities[0].state == PendingActivityState::BackingOff).await;
        pause(&client, "a").await;
        let environment = environment.crash(1, |_| {}).unwrap();
        environment.sleep(MINUTE).await;
        let client = environment.client();
        unpause(&client, "a").await;
        let second = stage.next().await;
        assert_eq!(second.attempt(), 2);
        second.complete("done");
        assert_eq!(completed::<String>(&client, "a").await, "done", "{form}");
    }
}

/// E27: the inbox of a paused run is bounded for those who ask, and never closed to what the run itself has caused.
#[tokio::test]
async fn a_full_inbox_refuses_requests_and_keeps_outcomes() {
    let (mut stage, environment) = environment_with(|options| options.limits.inbox_max = 3);
    let client = environment.client();
    client.start(one("one", "a", &within(MINUTE))).await.unwrap();
    let running = stage.next().await;
    pause(&client, "a").await;
    for _ in 0..3 {
        client.signal(&target("a"), signal("word", "x")).await.unwrap();
    }
    let refused = client.signal(&target("a"), signal("word", "x")).await;
    assert_eq!(refused, Err(Rejection::InboxFull { limit: 3 }));
    running.complete("fits");
    until(&client, "a", |seen| seen.inbox == 4).await;
    unpause(&client, "a").await;
    assert_eq!(completed::<String>(&client, "a").await, "fits");
}

/// E27, G20: while a run is paused, an attempt has one outcome; whoever comes second is refused.
#[tokio::test]
async fn a_second_outcome_is_refused_while_the_first_waits() {
    let (mut stage, environment) = environment();
    let client = environment.client();
    client.start(one("one", "a", &within(MINUTE))).await.unwrap();
    let token = stage.next().await.later();
    until(&client, "a", |seen| seen.info.history.events > 3).await;
    pause(&client, "a").await;
    client.complete_activity(token, ActivityCompletion::Complete(payload("first"))).await.unwrap();
    let second = client.complete_activity(token, ActivityCompletion::Complete(payload("second"))).await;
    assert!(matches!(second, Err(Rejection::StaleAttempt { .. })), "{second:?}");
    unpause(&client, "a").await;
    assert_eq!(completed::<String>(&client, "a").await, "first");
}

/// E27: a paused activity starts no attempt, over a crash too, and is not called late meanwhile; its run goes on. After
/// unpause the next attempt starts.
#[tokio::test]
async fn a_paused_activity_starts_no_attempt() {
    for form in FORMS {
        let (mut stage, environment) = environment();
        let client = environment.client();
        let options = ActivityOptions { schedule_to_start: Some(SECOND), ..within(MINUTE) };
        client.start(one(form, "a", &options)).await.unwrap();
        let running = stage.next().await;
        let id = running.context.task().activity_id.clone();
        client.pause_activity(&target("a"), &id, "look at it".into(), None).await.unwrap();
        running.fail(Failure::application("Busy", "later"));
        until(&client, "a", |seen| seen.pending_activities[0].state == PendingActivityState::Paused).await;
        environment.sleep(MINUTE).await;
        let environment = environment.crash(1, |_| {}).unwrap();
        environment.sleep(MINUTE).await;
        assert!(stage.is_quiet());
        let client = environment.client();
        let seen = client.describe(&target("a")).await.unwrap();
        assert_eq!(seen.info.status, WorkflowStatus::Running);
        assert_eq!(seen.pending_activities[0].state, PendingActivityState::Paused);
        client.unpause_activity(&target("a"), &id, None).await.unwrap();
        let second = stage.next().await;
        assert_eq!(second.attempt(), 2);
        second.complete("done");
        assert_eq!(completed::<String>(&client, "a").await, "done", "{form}");
        let unknown = client.pause_activity(&target("a"), &"nonsense".into(), String::new(), None).await;
        assert!(matches!(unknown, Err(Rejection::UnknownActivity { .. })), "{unknown:?}");
    }
}

/// E27: an attempt that runs when its activity is paused may finish it.
#[tokio::test]
async fn a_running_attempt_may_finish_a_paused_activity() {
    let (mut stage, environment) = environment();
    let client = environment.client();
    client.start(one("one", "a", &within(MINUTE))).await.unwrap();
    let running = stage.next().await;
    let id = running.context.task().activity_id.clone();
    client.pause_activity(&target("a"), &id, "look at it".into(), None).await.unwrap();
    running.complete("done");
    assert_eq!(completed::<String>(&client, "a").await, "done");
}
