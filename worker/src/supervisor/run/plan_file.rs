//! Calls that are tasks of a plan file: their activities, with the options that plan files give them, and their answers.
//!
//! Invariant: whether a call is one is said by the spec (`seed_plan.directory`) and the task alone; whatever the activity
//! gives is the result, whole. It decides nothing: attempts, errors and rules are the graph's.

use bosun_engine::{Failure, FailureKind, Payload};
use serde_json::{Value, json};

use super::SupervisorRun;
use crate::supervisor::model::Task;
use crate::supervisor::outbox::{Answer, Call, CallFailure, CallFailureKind, Purpose};
use crate::supervisor::plan_task::{self, Dispatched, NotDispatched};
use crate::supervisor::task::TaskNumber;

impl SupervisorRun {
    /// The task of a plan file that is called, and its directory.
    fn plan_file_task(&self, call: &Call) -> Option<(&Task, TaskNumber, &str)> {
        let spec = &self.resolved.spec;
        let directory = spec.plan_directory().filter(|_| call.purpose == Purpose::ExecuteWorker)?;
        let task = self.strategy.plan()?.get(call.task.as_ref()?)?;
        let of_file = plan_task::capability(task).is_some() && spec.player(call).is_none();
        Some((task, plan_task::number(&task.id).filter(|_| of_file)?, directory))
    }

    /// The activity of a task of a plan file.
    pub(super) fn dispatched(&self, call: &Call) -> Option<Result<Dispatched, NotDispatched>> {
        let (task, number, directory) = self.plan_file_task(call)?;
        Some(plan_task::dispatched(self.strategy.plan()?, task, number, directory))
    }

    /// What its end means. An error that cannot pass is not tried again.
    pub(super) fn answer_of_task(&self, call: &Call, result: &Result<Payload, Failure>) -> Option<Answer> {
        self.plan_file_task(call)?;
        Some(match result {
            Ok(payload) => match payload.decode::<Value>() {
                Ok(value) => Ok(json!({ "result": value })),
                Err(why) => Err(CallFailure::error(why.to_string())),
            },
            Err(failure) => {
                let root = failure.root();
                let kind = match root.kind {
                    FailureKind::Application { non_retryable: true, .. } => CallFailureKind::Hopeless,
                    FailureKind::Timeout { .. } => CallFailureKind::Timeout,
                    FailureKind::WorkerLost => CallFailureKind::WorkerLost,
                    _ if failure.is_canceled() => CallFailureKind::Canceled,
                    _ => CallFailureKind::Error,
                };
                Err(CallFailure { kind, message: root.to_string() })
            }
        })
    }
}
