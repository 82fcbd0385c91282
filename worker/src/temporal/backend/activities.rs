//! Requests about single activities, and resets.
//!
//! Invariant: as in `requests`. An activity is named as ours name it: a number is what the code knows it by, not what the cluster
//! counts. An attempt is completed while it is the one that runs; an older one completes nothing. What is changed of an activity
//! is what the cluster can change.

use std::time::Duration;

use bosun_engine::*;
use temporalio_client::grpc::WorkflowService;
use temporalio_client::tonic::Request;
use temporalio_common::protos::temporal::api::common::v1::Payloads;
use temporalio_common::protos::temporal::api::enums::v1::PendingActivityState;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::protos::temporal::api::workflow::v1 as proto;
use temporalio_common::protos::temporal::api::workflowservice::v1::*;

use super::ClusterBackend;
use super::refusal::{about, call_error, refused};
use super::requests::execution_of;
use crate::backend::{ActivityAsked, Attribution, CallError};
use crate::temporal::convert::*;
use crate::temporal::history::{activities_of, events_of_target};

/// Pauses between looks for a run that has just begun.
const VISIBLE_WITHIN: [Duration; 6] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(3),
    Duration::ZERO,
];

impl ClusterBackend {
    pub(super) async fn pause_one(
        &self,
        target: Target,
        id: ActivityId,
        because: Attribution,
    ) -> Result<(), CallError> {
        let request = PauseActivityRequest {
            namespace: target.namespace.to_string(),
            execution: Some(execution_of(&target)),
            identity: self.who(because.identity.as_ref()),
            activity: Some(pause_activity_request::Activity::Id(id.to_string())),
            reason: because.reason,
            ..Default::default()
        };
        let done = self.connection.clone().pause_activity(Request::new(request)).await;
        self.done(&target, done.map(drop)).await
    }

    pub(super) async fn unpause_one(
        &self,
        target: Target,
        id: ActivityId,
        because: Attribution,
    ) -> Result<(), CallError> {
        let request = UnpauseActivityRequest {
            namespace: target.namespace.to_string(),
            execution: Some(execution_of(&target)),
            identity: self.who(because.identity.as_ref()),
            activity: Some(unpause_activity_request::Activity::Id(id.to_string())),
            ..Default::default()
        };
        let done = self.connection.clone().unpause_activity(Request::new(request)).await;
        self.done(&target, done.map(drop)).await
    }

    /// A reset of its attempts is what a cluster does; the rest is named.
    pub(super) async fn change_one(
        &self,
        target: Target,
        id: ActivityId,
        asked: ActivityAsked,
    ) -> Result<(), CallError> {
        let ActivityUpdate { reset, retry_now, .. } = asked.update;
        if asked.update != (ActivityUpdate { reset, retry_now, ..ActivityUpdate::default() }) {
            let help = "`temporal activity update-options` does";
            return Err(refused("changing the options of an activity from here", help));
        }
        let request = ResetActivityRequest {
            namespace: target.namespace.to_string(),
            execution: Some(execution_of(&target)),
            identity: self.who(asked.because.identity.as_ref()),
            activity: Some(reset_activity_request::Activity::Id(id.to_string())),
            ..Default::default()
        };
        let done = self.connection.clone().reset_activity(Request::new(request)).await;
        self.done(&target, done.map(drop)).await
    }

    /// By the run, the number and the attempt that the token names.
    // long: one request a kind of completion.
    pub(super) async fn complete_one(&self, token: TaskToken, completion: ActivityCompletion) -> Result<(), CallError> {
        let (info, activity_id) = self.attempt_of(token).await?;
        let (namespace, workflow_id) = (info.namespace.to_string(), info.workflow_id.to_string());
        let (run_id, identity) = (token.run_id.to_string(), self.identity.to_string());
        let mut service = self.connection.clone();
        let done = match completion {
            ActivityCompletion::Complete(result) => {
                let result = Some(payloads_out(&result));
                let request = RespondActivityTaskCompletedByIdRequest {
                    namespace,
                    workflow_id,
                    run_id,
                    activity_id,
                    result,
                    identity,
                    ..Default::default()
                };
                service.respond_activity_task_completed_by_id(self.sealed(request).await?).await.map(drop)
            }
            ActivityCompletion::Fail(failure) => {
                let failure = Some(failure_out(&failure));
                let request = RespondActivityTaskFailedByIdRequest {
                    namespace,
                    workflow_id,
                    run_id,
                    activity_id,
                    failure,
                    identity,
                    ..Default::default()
                };
                service.respond_activity_task_failed_by_id(self.sealed(request).await?).await.map(drop)
            }
            ActivityCompletion::Cancel(details) => {
                let details = details.as_ref().map(payloads_out);
                let request = RespondActivityTaskCanceledByIdRequest {
                    namespace,
                    workflow_id,
                    run_id,
                    activity_id,
                    details,
                    identity,
                    ..Default::default()
                };
                service.respond_activity_task_canceled_by_id(self.sealed(request).await?).await.map(drop)
            }
            ActivityCompletion::Heartbeat(details) => {
                let details = details.as_ref().map(payloads_out).unwrap_or(Payloads::default());
                let request = RecordActivityTaskHeartbeatByIdRequest {
                    namespace,
                    workflow_id,
                    run_id,
                    activity_id,
                    details: Some(details),
                    identity,
                    ..Default::default()
                };
                service.record_activity_task_heartbeat_by_id(self.sealed(request).await?).await.map(drop)
            }
        };
        done.map_err(|status| call_error(&status))
    }

    /// The run of a token, and the id there of its activity, if that attempt is the one that runs.
    async fn attempt_of(&self, token: TaskToken) -> Result<(RunInfo, String), CallError> {
        let unknown = || CallError::from(Rejection::UnknownActivity { activity: token.to_string() });
        let info = self.run_by_id(token.run_id).await?.ok_or_else(unknown)?;
        let target = Target { namespace: info.namespace.clone(), ..Target::run(info.workflow_id.clone(), info.run_id) };
        let (_, answer) = self.described(&target).await?;
        let events = events_of_target(&self.connection, &target).await.map_err(|status| about(&target, &status))?;
        let numbers = activities_of(&events);
        let is_it = |row: &proto::PendingActivityInfo| {
            numbers.get(&row.activity_id) == Some(&token.seq) && u32::try_from(row.attempt) == Ok(token.attempt.0)
        };
        let runs = |row: &proto::PendingActivityInfo| !matches!(row.state(), PendingActivityState::Scheduled);
        let row = answer.pending_activities.into_iter().find(|row| is_it(row) && runs(row)).ok_or_else(unknown)?;
        Ok((info, row.activity_id))
    }

    /// A run by its id alone, which only the cluster's visibility can find; that hears of a run a moment later.
    async fn run_by_id(&self, run_id: RunId) -> Result<Option<RunInfo>, CallError> {
        let query = format!("RunId = '{run_id}'");
        for pause in VISIBLE_WITHIN {
            let found = self.list_runs(ListRequest { query: query.clone(), limit: 1 }).await?;
            if let Some(info) = found.into_iter().next() {
                return Ok(Some(info));
            }
            tokio::time::sleep(pause).await;
        }
        Ok(None)
    }

    /// To the first or the last workflow task; other points have other numbers in a cluster's history than here.
    pub(super) async fn reset_run(&self, request: ResetRequest) -> Result<ResetDone, CallError> {
        let info = self.info(&request.target).await?;
        let target = Target { run_id: Some(info.run_id), ..request.target.clone() };
        let events = events_of_target(&self.connection, &target).await.map_err(|status| about(&target, &status))?;
        let mut tasks = events.iter().filter_map(|event| match &event.attributes {
            Some(Attributes::WorkflowTaskCompletedEventAttributes(_)) => Some(event.event_id),
            _ => None,
        });
        let point = match request.to {
            ResetTo::FirstTurn => tasks.next(),
            ResetTo::LastTurn => tasks.next_back(),
            ResetTo::Event(_) | ResetTo::Build(_) => {
                let help = "say `--to first-turn` or `--to last-turn`; `temporal workflow reset --event-id` takes its own numbers";
                return Err(refused("a reset to an event or a build, as Bosun counts them", help));
            }
        };
        let Some(point) = point else {
            let why = "no workflow task of it has been completed: there is no point to go back to".to_owned();
            return Err(Rejection::Invalid { what: format!("reset {}", target.workflow_id), why }.into());
        };
        if request.dry_run {
            return Err(refused("a dry run of a reset", "`bosun replay check` says whether the code still fits"));
        }
        let asked = ResetWorkflowExecutionRequest {
            namespace: target.namespace.to_string(),
            workflow_execution: Some(execution_of(&target)),
            reason: request.reason,
            workflow_task_finish_event_id: point,
            request_id: request.request_id.map_or_else(|| format!("{}-{point}", info.run_id), |id| id.to_string()),
            identity: self.who(request.identity.as_ref()),
            reset_reapply_exclude_types: excluded(request.reapply),
            ..Default::default()
        };
        let done = self.connection.clone().reset_workflow_execution(Request::new(asked)).await;
        let done = done.map_err(|status| about(&target, &status))?.into_inner();
        let event = EventId(u64::try_from(point).unwrap_or(0));
        Ok(ResetDone {
            workflow_id: info.workflow_id.clone(),
            run_id: run_id_in(&done.run_id),
            newly_started: true,
            from: ForkPoint { workflow_id: info.workflow_id, run_id: info.run_id, event, reset: true },
            terminated: info.status.is_open().then_some(info.run_id),
            workflow_type: info.workflow_type,
            plan: ForkPlan::default(),
        })
    }
}

fn excluded(reapply: ResetReapply) -> Vec<i32> {
    use temporalio_common::protos::temporal::api::enums::v1::ResetReapplyExcludeType as Exclude;
    // Cancel requests are never made again by a cluster.
    let mut excluded = Vec::new();
    if !reapply.signals() {
        excluded.push(Exclude::Signal.into());
    }
    if !reapply.updates() {
        excluded.push(Exclude::Update.into());
    }
    excluded
}
