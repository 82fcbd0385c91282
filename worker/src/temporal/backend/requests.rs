//! Requests that change something: starts, signals, updates, ends.
//!
//! Invariant: a payload that no cluster takes is kept elsewhere or refused before the request is sent. A request that has no id of its caller's gets one, so
//! that a repetition below, by the client library, is carried out once.

use std::time::Duration;

use bosun_engine::*;
use temporalio_client::grpc::WorkflowService;
use temporalio_client::tonic::{Code, Request, Status};
use temporalio_common::protos::temporal::api::common::v1 as common;
use temporalio_common::protos::temporal::api::enums::v1 as enums;
use temporalio_common::protos::temporal::api::query::v1::WorkflowQuery;
use temporalio_common::protos::temporal::api::taskqueue::v1 as queue;
use temporalio_common::protos::temporal::api::update::v1 as update;
use temporalio_common::protos::temporal::api::workflowservice::v1::*;

use super::ClusterBackend;
use super::refusal::{about, call_error, refused};
use crate::backend::{Attribution, CallError};
use crate::batch::BATCH;
use crate::startable::start_is_anew;
use crate::temporal::REFUSED_BY_VALIDATOR;
use crate::temporal::convert::*;

pub(super) fn execution_of(target: &Target) -> common::WorkflowExecution {
    common::WorkflowExecution {
        workflow_id: target.workflow_id.to_string(),
        run_id: target.run_id.map_or_else(String::new, |run| run.to_string()),
    }
}

fn id_of(request_id: Option<&RequestId>) -> String {
    request_id.map_or_else(uuid_text, ToString::to_string)
}

fn uuid_text() -> String {
    // Only has to differ from all others.
    let mut bytes = [0u8; 16];
    let _ = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes);
    bosun_engine::hex(&bytes)
}

fn target_of(request: &StartWorkflow) -> Target {
    Target { namespace: request.namespace.clone(), workflow_id: request.workflow_id.clone(), run_id: None }
}

impl ClusterBackend {
    pub(super) async fn start_run(&self, request: StartWorkflow) -> Result<Started, CallError> {
        if request.workflow_type.as_str() == BATCH {
            let help = "`temporal workflow cancel`, `terminate`, `signal` and `delete` take a --query";
            return Err(refused("a batch of Bosun's, which needs the embedded log", help));
        }
        start_is_anew(&request)?;
        let conflict = match request.id_conflict_policy {
            IdConflictPolicy::Fail => enums::WorkflowIdConflictPolicy::Fail,
            IdConflictPolicy::UseExisting => enums::WorkflowIdConflictPolicy::UseExisting,
            IdConflictPolicy::TerminateExisting => enums::WorkflowIdConflictPolicy::TerminateExisting,
        };
        let target = target_of(&request);
        let start = StartWorkflowExecutionRequest {
            namespace: request.namespace.to_string(),
            workflow_id: request.workflow_id.to_string(),
            workflow_type: Some(common::WorkflowType { name: request.workflow_type.to_string() }),
            task_queue: Some(queue::TaskQueue { name: request.task_queue.to_string(), ..Default::default() }),
            input: Some(payloads_out(&request.input)),
            workflow_execution_timeout: request.execution_timeout.map(period_out),
            workflow_run_timeout: request.run_timeout.map(period_out),
            workflow_start_delay: request.start_delay.map(period_out),
            identity: self.who(request.identity.as_ref()),
            request_id: id_of(request.request_id.as_ref()),
            workflow_id_reuse_policy: reuse_out(request.id_reuse_policy).into(),
            workflow_id_conflict_policy: conflict.into(),
            retry_policy: request.retry_policy.as_ref().map(retry_out),
            memo: (!request.memo.is_empty()).then(|| common::Memo { fields: memo_out(&request.memo) }),
            search_attributes: attributes_out(&request.search_attributes),
            user_metadata: summary_out(request.summary.as_deref(), request.details.as_deref()),
            priority: request.priority.as_ref().map(priority_out),
            ..Default::default()
        };
        match self.connection.clone().start_workflow_execution(self.sealed(start).await?).await {
            Ok(started) => {
                let started = started.into_inner();
                let run_id = run_id_in(&started.run_id).ok_or_else(|| unusable(&started.run_id))?;
                Ok(Started { workflow_id: request.workflow_id, run_id, newly_started: started.started })
            }
            Err(status) if status.code() == Code::AlreadyExists => {
                Err(self.already_there(&target, request.id_reuse_policy).await)
            }
            Err(status) => Err(call_error(&status)),
        }
    }

    /// Which run has the id, and why that is in the way.
    async fn already_there(&self, target: &Target, policy: IdReusePolicy) -> CallError {
        let workflow_id = target.workflow_id.clone();
        match self.info(target).await {
            Ok(info) if info.status.is_open() => Rejection::AlreadyOpen { workflow_id, run_id: info.run_id }.into(),
            Ok(RunInfo { run_id, status, .. }) => Rejection::IdReused { workflow_id, run_id, status, policy }.into(),
            Err(why) => why,
        }
    }

    pub(super) async fn start_with_signal(
        &self,
        request: StartWorkflow,
        signal: SignalRequest,
    ) -> Result<Started, CallError> {
        start_is_anew(&request)?;
        let before = self.info(&target_of(&request)).await.ok().filter(|info| info.status.is_open());
        let start = SignalWithStartWorkflowExecutionRequest {
            namespace: request.namespace.to_string(),
            workflow_id: request.workflow_id.to_string(),
            workflow_type: Some(common::WorkflowType { name: request.workflow_type.to_string() }),
            task_queue: Some(queue::TaskQueue { name: request.task_queue.to_string(), ..Default::default() }),
            input: Some(payloads_out(&request.input)),
            workflow_execution_timeout: request.execution_timeout.map(period_out),
            workflow_run_timeout: request.run_timeout.map(period_out),
            workflow_start_delay: request.start_delay.map(period_out),
            identity: self.who(request.identity.as_ref()),
            request_id: id_of(request.request_id.as_ref()),
            workflow_id_reuse_policy: reuse_out(request.id_reuse_policy).into(),
            signal_name: signal.name.to_string(),
            signal_input: Some(payloads_out(&signal.input)),
            retry_policy: request.retry_policy.as_ref().map(retry_out),
            memo: (!request.memo.is_empty()).then(|| common::Memo { fields: memo_out(&request.memo) }),
            search_attributes: attributes_out(&request.search_attributes),
            user_metadata: summary_out(request.summary.as_deref(), request.details.as_deref()),
            priority: request.priority.as_ref().map(priority_out),
            ..Default::default()
        };
        let started = self.connection.clone().signal_with_start_workflow_execution(self.sealed(start).await?).await;
        let started = started.map_err(|status| call_error(&status))?.into_inner();
        let run_id = run_id_in(&started.run_id).ok_or_else(|| unusable(&started.run_id))?;
        let newly_started = before.is_none_or(|info| info.run_id != run_id);
        Ok(Started { workflow_id: request.workflow_id, run_id, newly_started })
    }

    pub(super) async fn send_signal(&self, target: Target, signal: SignalRequest) -> Result<(), CallError> {
        let request = SignalWorkflowExecutionRequest {
            namespace: target.namespace.to_string(),
            workflow_execution: Some(execution_of(&target)),
            signal_name: signal.name.to_string(),
            input: Some(payloads_out(&signal.input)),
            identity: self.who(signal.identity.as_ref()),
            request_id: id_of(signal.request_id.as_ref()),
            ..Default::default()
        };
        let sent = self.connection.clone().signal_workflow_execution(self.sealed(request).await?).await;
        self.done(&target, sent.map(drop)).await
    }

    /// A run that has ended is told from one that is not there.
    pub(super) async fn done(&self, target: &Target, answer: Result<(), Status>) -> Result<(), CallError> {
        match answer {
            Ok(()) => Ok(()),
            Err(status) => Err(self.gone(target, &status).await),
        }
    }

    pub(super) async fn gone(&self, target: &Target, status: &Status) -> CallError {
        if status.code() != Code::NotFound {
            return about(target, status);
        }
        match self.info(target).await {
            Ok(RunInfo { workflow_id, run_id, status, .. }) if !status.is_open() => {
                Rejection::Closed { workflow_id, run_id, status }.into()
            }
            _ => about(target, status),
        }
    }

    pub(super) async fn send_update(&self, target: Target, asked: UpdateRequest) -> Result<UpdateOutcome, CallError> {
        let request = UpdateWorkflowExecutionRequest {
            namespace: target.namespace.to_string(),
            workflow_execution: Some(execution_of(&target)),
            wait_policy: Some(wait_of(asked.wait)),
            request: Some(update::Request {
                meta: Some(update::Meta {
                    update_id: asked.update_id.to_string(),
                    identity: self.who(asked.identity.as_ref()),
                }),
                input: Some(update::Input {
                    name: asked.name.to_string(),
                    args: Some(payloads_out(&asked.input)),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        match self.connection.clone().update_workflow_execution(self.sealed(request).await?).await {
            Ok(answer) => {
                let answer = self.opened(&target, answer.into_inner()).await?;
                let stage = answer.stage();
                match outcome_of(&asked.update_id, answer.outcome, stage, asked.wait) {
                    Some(outcome) => outcome,
                    None => self.poll_update(&target, &asked.update_id, asked.wait).await,
                }
            }
            Err(status) => Err(self.gone(&target, &status).await),
        }
    }

    /// Waits for an update that the cluster knows.
    pub(super) async fn poll_update(
        &self,
        target: &Target,
        update_id: &UpdateId,
        wait: UpdateWait,
    ) -> Result<UpdateOutcome, CallError> {
        loop {
            let request = PollWorkflowExecutionUpdateRequest {
                namespace: target.namespace.to_string(),
                update_ref: Some(update::UpdateRef {
                    workflow_execution: Some(execution_of(target)),
                    update_id: update_id.to_string(),
                }),
                identity: self.identity.to_string(),
                wait_policy: Some(wait_of(wait)),
            };
            match self.connection.clone().poll_workflow_execution_update(Request::new(request)).await {
                Ok(answer) => {
                    let answer = self.opened(target, answer.into_inner()).await?;
                    let stage = answer.stage();
                    if let Some(outcome) = outcome_of(update_id, answer.outcome, stage, wait) {
                        return outcome;
                    }
                }
                // The cluster lets no request wait for ever.
                Err(status) if matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled) => {}
                Err(status) => return Err(self.gone(target, &status).await),
            }
        }
    }

    /// Asks a run; the answer is what its handler gave.
    pub(super) async fn ask(&self, target: &Target, name: &str, input: &Payload) -> Result<Payload, CallError> {
        let request = QueryWorkflowRequest {
            namespace: target.namespace.to_string(),
            execution: Some(execution_of(target)),
            query: Some(WorkflowQuery {
                query_type: name.to_owned(),
                query_args: Some(payloads_out(input)),
                ..Default::default()
            }),
            ..Default::default()
        };
        let mut request = self.sealed(request).await?;
        request.set_timeout(QUERY_PATIENCE);
        let answer = self.connection.clone().query_workflow(request).await;
        match answer {
            Ok(answer) => {
                let answer = self.opened(target, answer.into_inner()).await?;
                Ok(payloads_in(answer.query_result.map(|result| result.payloads).unwrap_or_default()))
            }
            Err(status) => Err(query_refused(target, name, &status)),
        }
    }

    pub(super) async fn request_cancel(&self, target: Target, because: Attribution) -> Result<(), CallError> {
        let request = RequestCancelWorkflowExecutionRequest {
            namespace: target.namespace.to_string(),
            workflow_execution: Some(execution_of(&target)),
            identity: self.who(because.identity.as_ref()),
            request_id: id_of(because.request_id.as_ref()),
            reason: because.reason,
            ..Default::default()
        };
        let asked = self.connection.clone().request_cancel_workflow_execution(Request::new(request)).await;
        self.done(&target, asked.map(drop)).await
    }

    pub(super) async fn terminate_run(&self, target: Target, because: Attribution) -> Result<(), CallError> {
        let request = TerminateWorkflowExecutionRequest {
            namespace: target.namespace.to_string(),
            workflow_execution: Some(execution_of(&target)),
            identity: self.who(because.identity.as_ref()),
            reason: because.reason,
            ..Default::default()
        };
        let ended = self.connection.clone().terminate_workflow_execution(Request::new(request)).await;
        self.done(&target, ended.map(drop)).await
    }

    pub(super) async fn delete_run(&self, target: Target) -> Result<(), CallError> {
        let info = self.info(&target).await?;
        if info.status.is_open() {
            let why = "it is open: end it with `bosun terminate` first".to_owned();
            return Err(Rejection::Invalid { what: format!("delete {}", target.workflow_id), why }.into());
        }
        let request = DeleteWorkflowExecutionRequest {
            namespace: target.namespace.to_string(),
            workflow_execution: Some(execution_of(&Target { run_id: Some(info.run_id), ..target.clone() })),
        };
        let deleted = self.connection.clone().delete_workflow_execution(Request::new(request)).await;
        self.done(&target, deleted.map(drop)).await
    }

    pub(super) async fn pause_run(&self, target: Target, because: Attribution, pause: bool) -> Result<(), CallError> {
        let (namespace, workflow_id) = (target.namespace.to_string(), target.workflow_id.to_string());
        let run_id = target.run_id.map_or_else(String::new, |run| run.to_string());
        let (identity, request_id) = (self.who(because.identity.as_ref()), id_of(because.request_id.as_ref()));
        let reason = because.reason;
        let mut service = self.connection.clone();
        let answer = match pause {
            true => {
                let request =
                    PauseWorkflowExecutionRequest { namespace, workflow_id, run_id, identity, reason, request_id };
                service.pause_workflow_execution(Request::new(request)).await.map(drop)
            }
            false => {
                let request =
                    UnpauseWorkflowExecutionRequest { namespace, workflow_id, run_id, identity, reason, request_id };
                service.unpause_workflow_execution(Request::new(request)).await.map(drop)
            }
        };
        match answer {
            // Older servers have no such call; some have it and it is switched off.
            Err(status) if matches!(status.code(), Code::Unimplemented | Code::PermissionDenied) => Err(refused(
                "pausing a workflow (its server is too old for it, or has it switched off)",
                "`bosun takeover` stops a supervisor from starting anything, and `bosun activity pause` one activity",
            )),
            answer => self.done(&target, answer).await,
        }
    }
}

fn unusable(run_id: &str) -> CallError {
    let message = format!("the cluster names the run {run_id:?}, which is no UUID");
    CallError::Refused { status: 500, code: "cluster".to_owned(), message }
}

fn wait_of(wait: UpdateWait) -> update::WaitPolicy {
    let stage = match wait {
        UpdateWait::Accepted => enums::UpdateWorkflowExecutionLifecycleStage::Accepted,
        UpdateWait::Completed => enums::UpdateWorkflowExecutionLifecycleStage::Completed,
    };
    update::WaitPolicy { lifecycle_stage: stage.into() }
}

/// What an update has come to; `None`: not as far as it is waited for.
fn outcome_of(
    update_id: &UpdateId,
    outcome: Option<update::Outcome>,
    stage: enums::UpdateWorkflowExecutionLifecycleStage,
    wait: UpdateWait,
) -> Option<Result<UpdateOutcome, CallError>> {
    use update::outcome::Value;
    match outcome.and_then(|outcome| outcome.value) {
        Some(Value::Success(result)) => Some(Ok(UpdateOutcome::Completed(Ok(payloads_in(result.payloads))))),
        Some(Value::Failure(failure)) if failure.source == REFUSED_BY_VALIDATOR => {
            let failure = failure_in(failure);
            Some(Err(Rejection::UpdateRefused { update_id: update_id.clone(), failure }.into()))
        }
        Some(Value::Failure(failure)) => Some(Ok(UpdateOutcome::Completed(Err(failure_in(failure))))),
        None if wait == UpdateWait::Accepted && stage == enums::UpdateWorkflowExecutionLifecycleStage::Accepted => {
            Some(Ok(UpdateOutcome::Accepted))
        }
        None => None,
    }
}

/// How long a query waits for a worker.
const QUERY_PATIENCE: Duration = Duration::from_secs(10);

fn query_refused(target: &Target, name: &str, status: &Status) -> CallError {
    match status.code() {
        Code::InvalidArgument => {
            let name = QueryName::new(name).unwrap_or_else(|_| QueryName::of("query"));
            let failure = Failure::application("QueryFailed", status.message());
            let told = super::refusal::query_error(status);
            Rejection::Query(told.unwrap_or(QueryError::Failed { name, failure })).into()
        }
        Code::DeadlineExceeded | Code::Cancelled | Code::FailedPrecondition => CallError::Refused {
            status: 503,
            code: "no_worker".to_owned(),
            message: format!(
                "no worker has answered for {} within {} s: {}; `bosun worker run --temporal …` on its task queue answers",
                target.workflow_id,
                QUERY_PATIENCE.as_secs(),
                status.message()
            ),
        },
        _ => about(target, status),
    }
}
