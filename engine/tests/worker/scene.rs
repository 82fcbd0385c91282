//! What the tests of this folder act with: activities that a test holds in its hand, workflows in both forms, and short
//! ways to ask and to read what came of it.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

pub(crate) use crate::kit::{THIS_RUN, WHOLE, outcome, payload, signal, start, target};

/// As the limit of [`WHOLE`]: real time, and only to keep a broken test from hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

pub(crate) fn within(start_to_close: Duration) -> ActivityOptions {
    ActivityOptions::start_to_close(start_to_close)
}

pub(crate) fn attempts(maximum_attempts: u32) -> Option<RetryPolicy> {
    Some(RetryPolicy { maximum_attempts, ..RetryPolicy::default() })
}

pub(crate) async fn completed<T: DeserializeOwned>(client: &Client, id: &str) -> T {
    match outcome(client, id).await {
        CloseOutcome::Completed(result) => result.decode().unwrap(),
        other => panic!("{id}: expected a completed run, found {other:?}"),
    }
}

pub(crate) async fn failed(client: &Client, id: &str) -> Failure {
    match outcome(client, id).await {
        CloseOutcome::Failed(failure) => failure,
        other => panic!("{id}: expected a failed run, found {other:?}"),
    }
}

pub(crate) async fn history(client: &Client, target: &Target) -> Vec<Event> {
    client.history(target, EventId(1), 1_000).await.unwrap()
}

pub(crate) async fn count(client: &Client, id: &str, event: &str) -> usize {
    history(client, &target(id)).await.iter().filter(|held| held.kind.name() == event).count()
}

/// Waits until the run shows what is looked for, turn by turn.
pub(crate) async fn until(client: &Client, id: &str, holds: impl Fn(&Description) -> bool) -> Description {
    let waiting = async {
        loop {
            let seen = client.describe(&target(id)).await.unwrap();
            if holds(&seen) {
                return seen;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the run should show it")
}

/// An attempt of the activity `work` that has started and does what the test says.
pub(crate) struct Attempted {
    pub(crate) context: ActivityContext,
    pub(crate) label: String,
    end: oneshot::Sender<Result<String, ActivityError>>,
}

impl Attempted {
    pub(crate) fn complete(self, result: &str) {
        self.end(Ok(result.to_owned()));
    }
    pub(crate) fn fail(self, failure: Failure) {
        self.end(Err(failure.into()));
    }
    pub(crate) fn later(self) -> activity::TaskToken {
        let token = self.context.task_token();
        self.end(Err(ActivityError::WillCompleteLater));
        token
    }
    pub(crate) fn end(self, end: Result<String, ActivityError>) {
        // An attempt of a worker that has crashed is gone.
        let _ = self.end.send(end);
    }
    pub(crate) fn attempt(&self) -> u32 {
        self.context.attempt().0
    }
}

/// Where attempts of `work` show up, in the order in which they start.
pub(crate) struct Stage {
    started: mpsc::UnboundedReceiver<Attempted>,
}

impl Stage {
    /// Registers `work`, which does what the test says.
    pub(crate) fn new() -> (Stage, ActivityRegistry) {
        let (report, started) = mpsc::unbounded_channel();
        let mut activities = ActivityRegistry::new();
        activities.register("work", move |context: ActivityContext, label: String| {
            let report = report.clone();
            async move {
                let (end, ended) = oneshot::channel();
                let _ = report.send(Attempted { context, label, end });
                // An attempt that the test forgot hangs.
                match ended.await {
                    Ok(end) => end,
                    Err(_) => std::future::pending().await,
                }
            }
        });
        (Stage { started }, activities)
    }
    pub(crate) async fn next(&mut self) -> Attempted {
        let next = tokio::time::timeout(PATIENCE, self.started.recv()).await;
        next.expect("an attempt should start").expect("the activity is registered")
    }
    /// Whether no attempt has started that the test does not know.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.started.try_recv().is_err()
    }
}

/// The workflow that runs `work` once, in both forms.
pub(crate) const FORMS: [&str; 2] = ["one", "one-machine"];

#[derive(Serialize, Deserialize)]
pub(crate) struct One {
    seq: Seq,
}

impl StateMachine for One {
    const TYPE: &'static str = "one-machine";
    type Input = (String, ActivityOptions);
    type Output = String;

    fn start((label, options): Self::Input, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(One { seq: cx.schedule_activity("work", &label, options) })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::ActivityResolved { result, .. } => cx.complete(&result?.decode::<String>()?),
            WorkflowEvent::CancelRequested { .. } => cx.cancel_activity(self.seq),
            _ => {}
        }
        Ok(())
    }
}

pub(crate) fn flows() -> WorkflowRegistry {
    WorkflowRegistry::new()
        .state_machine::<One>()
        .workflow("one", |ctx: WfContext, (label, options): (String, ActivityOptions)| async move {
            ctx.activity::<String>("work", &label, options).await
        })
        .workflow("wait", |ctx: WfContext, (): ()| async move { ctx.signal_channel::<String>("go").recv().await })
        .workflow("sleep", |ctx: WfContext, seconds: u64| async move {
            ctx.timer(Duration::from_secs(seconds)).await?;
            Ok(seconds)
        })
        .workflow("fail", |_ctx: WfContext, failure_type: String| async move {
            Err::<(), _>(Failure::application(failure_type, "as asked"))
        })
}

pub(crate) fn one(form: &str, id: &str, options: &ActivityOptions) -> StartWorkflow {
    start(form, id, &(id, options))
}

/// A worker in skipped time whose `work` is in the test's hand.
pub(crate) fn staged() -> (Stage, TestEnvironment) {
    staged_with(|_| {})
}

pub(crate) fn staged_with(change: impl FnOnce(&mut WorkerOptions)) -> (Stage, TestEnvironment) {
    let (stage, activities) = Stage::new();
    (stage, TestEnvironment::start_with(flows(), activities, change).unwrap())
}

/// Lets time pass beside the test: for attempts that start meanwhile and that the test has to end.
pub(crate) fn let_pass(environment: &TestEnvironment, duration: Duration) {
    let client = environment.client();
    tokio::spawn(async move { client.sleep(duration).await });
}

/// Lets a future begin, and says how far it came.
pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

/// In real time, for what happens while a function runs: a virtual clock waits for it.
pub(crate) fn real_time(options: &mut WorkerOptions) {
    options.clock = clock::Clock::system();
}
