//! One attempt of an activity, made by a test: no worker, no workflow, no log.
//!
//! Invariant: the function under test gets what a worker would give it; its heartbeats are kept, and the test cancels it.
//! Nothing is retried, timed out or recorded here: that is the worker's, and [`super::TestEnvironment`]'s.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::activity::{ActivityContext, ActivityTask, HeartbeatSink, TaskToken};
use crate::vocabulary::*;

#[derive(Default)]
struct Kept(Mutex<Vec<Payload>>);

impl HeartbeatSink for Kept {
    fn heartbeat(&self, _: TaskToken, details: Option<Payload>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(details.unwrap_or_else(Payload::null));
    }
}

/// One attempt of an activity for a unit test of its function:
///
/// ```
/// use bosun_engine::testing::TestAttempt;
/// use bosun_engine::{ActivityContext, ActivityError};
///
/// async fn count(cx: ActivityContext, to: u32) -> Result<u32, ActivityError> {
///     let done: u32 = cx.heartbeat_details().unwrap_or_default();
///     for n in done..to {
///         cx.heartbeat(&(n + 1))?;
///     }
///     Ok(to - done)
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let second = TestAttempt::new().attempt(2).heartbeat_details(&7);
/// assert_eq!(count(second.context(), 10).await.unwrap(), 3);
/// assert_eq!(second.heartbeats::<u32>(), [8, 9, 10]);
/// # });
/// ```
pub struct TestAttempt {
    task: ActivityTask,
    context: ActivityContext,
    cancel: watch::Sender<bool>,
    kept: Arc<Kept>,
}

impl Default for TestAttempt {
    fn default() -> Self {
        Self::new()
    }
}

impl TestAttempt {
    /// The first attempt of the activity `test` of the workflow `test`, without a time limit.
    pub fn new() -> Self {
        let task = ActivityTask {
            namespace: Namespace::of("default"),
            workflow_id: WorkflowId::of("test"),
            workflow_type: WorkflowType::of("test"),
            run_id: RunId([7; 16]),
            seq: Seq(1),
            activity_id: ActivityId::of("1"),
            activity_type: ActivityType::of("test"),
            task_queue: TaskQueue::of("default"),
            attempt: Attempt(1),
            input: Payload::null(),
            heartbeat_details: None,
            scheduled_at: super::TestEnvironment::EPOCH,
            deadline: None,
            heartbeat_timeout: None,
        };
        let (cancel, canceled) = watch::channel(false);
        let kept = Arc::new(Kept::default());
        let context = ActivityContext::new(Arc::new(task.clone()), canceled, kept.clone());
        TestAttempt { task, context, cancel, kept }
    }

    /// With other facts of the attempt: its workflow, its deadline.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut ActivityTask)) -> Self {
        change(&mut self.task);
        self.context = self.context.of_task(Arc::new(self.task.clone()));
        self
    }

    /// The attempt with this number, from 1.
    #[must_use]
    pub fn attempt(self, number: u32) -> Self {
        self.with(|task| task.attempt = Attempt(number))
    }

    /// With what the last heartbeat of an earlier attempt said.
    ///
    /// # Panics
    ///
    /// When the details cannot be written as JSON.
    #[must_use]
    pub fn heartbeat_details<T: Serialize + ?Sized>(self, details: &T) -> Self {
        let details = Payload::encode(details).unwrap_or_else(|why| panic!("{why}"));
        self.with(|task| task.heartbeat_details = Some(details))
    }

    /// With something that the activities of the program share, as `App::state` registers it.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        self.context = self.context.with_state(state);
        self
    }

    /// What the function is called with, as often as wanted.
    pub fn context(&self) -> ActivityContext {
        self.context.clone()
    }

    /// Asks the attempt to stop, as a cancellation of its workflow does.
    pub fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    /// What its heartbeats have said so far, in order; one that cannot be read as a `T` is left out.
    pub fn heartbeats<T: DeserializeOwned>(&self) -> Vec<T> {
        let kept = self.kept.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().filter_map(|details| details.decode().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ActivityError;

    async fn wait(cx: ActivityContext) -> Result<String, ActivityError> {
        let name = cx.state::<String>()?;
        cx.heartbeat(&cx.attempt().0)?;
        cx.canceled().await;
        Err(ActivityError::Canceled(Some(Payload::encode(&*name)?)))
    }

    /// A function is tested with what it is given, what it says on the way, and its cancellation.
    #[tokio::test]
    async fn an_activity_is_tested_without_a_worker() {
        let attempt = TestAttempt::new().attempt(3).state("ann".to_owned());
        attempt.cancel();
        let ended = wait(attempt.context()).await;
        assert!(matches!(ended, Err(ActivityError::Canceled(Some(name))) if name.decode::<String>().unwrap() == "ann"));
        assert_eq!(attempt.heartbeats::<u32>(), [3]);
        assert_eq!(attempt.context().task_token().attempt, Attempt(3));
        let alone = wait(TestAttempt::new().context()).await;
        assert!(matches!(alone, Err(ActivityError::Failure(why)) if why.type_name() == "NoState"));
    }
}
