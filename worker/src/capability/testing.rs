//! Activity contexts for the tests of capabilities.

use std::sync::{Arc, Mutex};

use bosun_engine::*;
use tokio::sync::watch;

/// Remembers heartbeats.
#[derive(Default)]
pub(crate) struct Heartbeats(pub(crate) Mutex<Vec<Option<Payload>>>);

impl HeartbeatSink for Heartbeats {
    fn heartbeat(&self, _: TaskToken, details: Option<Payload>) {
        self.0.lock().unwrap().push(details);
    }
}

pub(crate) struct Probe {
    pub(crate) context: ActivityContext,
    pub(crate) cancel: watch::Sender<bool>,
    pub(crate) heartbeats: Arc<Heartbeats>,
}

/// The context of the first attempt of some activity; `seq` makes its idempotency key.
pub(crate) fn probe(seq: u64) -> Probe {
    probe_with(seq, None)
}

pub(crate) fn probe_with(seq: u64, heartbeat_timeout: Option<std::time::Duration>) -> Probe {
    let task = ActivityTask {
        namespace: Namespace::of("default"),
        workflow_id: WorkflowId::of("w"),
        workflow_type: WorkflowType::of("w"),
        run_id: RunId([7; 16]),
        seq: Seq(seq),
        activity_id: ActivityId::of("a"),
        activity_type: ActivityType::of("a"),
        task_queue: TaskQueue::of("default"),
        attempt: Attempt(1),
        input: Payload::null(),
        heartbeat_details: None,
        scheduled_at: Timestamp::ZERO,
        deadline: None,
        heartbeat_timeout,
    };
    let (cancel, canceled) = watch::channel(false);
    let heartbeats = Arc::new(Heartbeats::default());
    Probe { context: ActivityContext::new(Arc::new(task), canceled, heartbeats.clone()), cancel, heartbeats }
}

/// The failure an activity ended with, or a panic that shows what it did instead.
#[track_caller]
pub(crate) fn failure<T: std::fmt::Debug>(result: Result<T, ActivityError>) -> Failure {
    match result {
        Err(ActivityError::Failure(failure)) => failure,
        other => panic!("expected a failure, got {other:?}"),
    }
}

pub(crate) fn is_non_retryable(failure: &Failure) -> bool {
    matches!(&failure.kind, FailureKind::Application { non_retryable: true, .. })
}
