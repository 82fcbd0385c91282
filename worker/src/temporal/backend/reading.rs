//! Requests that only look: descriptions, lists, results, histories.
//!
//! Invariant: a list filter goes to the cluster's visibility, which answers a moment later than the runs themselves; a
//! description, a result and a history are of the run itself. What only the code knows is asked of a worker, and absent where
//! none answers in time.

use std::time::Duration;

use bosun_engine::filter::Filter;
use bosun_engine::*;
use temporalio_client::grpc::WorkflowService;
use temporalio_client::tonic::{Code, Request};
use temporalio_common::protos::temporal::api::enums::v1 as enums;
use temporalio_common::protos::temporal::api::enums::v1::WorkflowTaskFailedCause;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::protos::temporal::api::history::v1::{
    History as Events, HistoryEvent, WorkflowExecutionContinuedAsNewEventAttributes, WorkflowTaskFailedEventAttributes,
};
use temporalio_common::protos::temporal::api::workflowservice::v1::*;

use super::ClusterBackend;
use super::refusal::{about, call_error};
use super::requests::execution_of;
use crate::backend::{CallError, EventStream};
use crate::temporal::QUERY_AWAITING;
use crate::temporal::convert::*;
use crate::temporal::history::{TurnsAlong, activities_of, card_of, events_of_target, opened, turns_of};

/// Where no worker answers, a description does not wait for one.
const ASK_PATIENCE: Duration = Duration::from_millis(1_500);
/// Code that does not come back has no card.
const CARD_PATIENCE: Duration = Duration::from_secs(10);
/// Runs of a page.
pub(super) const PAGE: usize = 1_000;

impl ClusterBackend {
    /// The row of a run, from the run itself.
    pub(super) async fn info(&self, target: &Target) -> Result<RunInfo, CallError> {
        Ok(self.described(target).await?.0)
    }

    pub(super) async fn described(
        &self,
        target: &Target,
    ) -> Result<(RunInfo, DescribeWorkflowExecutionResponse), CallError> {
        let request = DescribeWorkflowExecutionRequest {
            namespace: target.namespace.to_string(),
            execution: Some(execution_of(target)),
        };
        let answer = self.connection.clone().describe_workflow_execution(Request::new(request)).await;
        let mut answer = answer.map_err(|status| about(target, &status))?.into_inner();
        // What cannot be had is said by whoever reads it for itself.
        self.external.open_some(&mut answer).await;
        let row = answer.workflow_execution_info.clone().and_then(|row| info_of(&target.namespace, row));
        let not_found = || Rejection::NotFound { workflow_id: target.workflow_id.clone(), run_id: target.run_id };
        let mut info = row.ok_or_else(not_found)?;
        let words = answer.execution_config.as_ref().and_then(|config| config.user_metadata.clone());
        let text = |payload: Option<_>| payload.map(payload_in).and_then(|payload: Payload| payload.decode().ok());
        if let Some(words) = words {
            (info.summary, info.details) = (text(words.summary), text(words.details));
        }
        Ok((info, answer))
    }

    pub(super) async fn describe_run(&self, target: Target) -> Result<Description, CallError> {
        let (info, answer) = self.described(&target).await?;
        let target = Target { run_id: Some(info.run_id), ..target };
        let events = events_of_target(&self.connection, &target).await.map_err(|status| about(&target, &status))?;
        let turns = turns_of(&target.namespace, &events, None).map_err(unreadable)?;
        let mut last = Events { events: events.last().cloned().into_iter().collect() };
        let not_had = self.external.open_some(&mut last).await;
        let again = answer.pending_workflow_task.as_ref().is_some_and(|task| task.attempt > 1);
        let failed = if again { last_failure(&events) } else { None };
        let asked = info.status.is_open() && failed.is_none();
        let held = match failed {
            Some(failed) => Some(self.why_held(&target.namespace, events.clone(), failed).await),
            None => None,
        };
        let awaiting = match asked {
            true => self.awaiting(&target).await,
            false => Vec::new(),
        };
        let pending_children = answer.pending_children.into_iter().filter_map(|child| {
            Some(PendingChild {
                seq: Seq(u64::try_from(child.initiated_id).unwrap_or(0)),
                workflow_id: WorkflowId::new(child.workflow_id).ok()?,
                workflow_type: WorkflowType::new(child.workflow_type_name).ok()?,
                run_id: run_id_in(&child.run_id),
            })
        });
        let numbers = activities_of(&events);
        let pending_activities = answer.pending_activities.into_iter().filter_map(|row| {
            let seq = numbers.get(&row.activity_id).copied().unwrap_or(Seq(0));
            pending_activity(row, info.run_id, seq)
        });
        Ok(Description {
            pending_activities: pending_activities.collect(),
            pending_timers: if info.status.is_open() { pending_timers(&turns) } else { Vec::new() },
            pending_children: pending_children.collect(),
            pending_updates: Vec::new(),
            inbox: 0,
            held,
            awaiting,
            cancel_requested: turns.iter().flat_map(|turn| &turn.events).any(asks_to_cancel),
            warnings: not_had.map(|why| format!("its result is not all here: {why}")).into_iter().collect(),
            starts_at: answer.workflow_execution_info.as_ref().and_then(|row| begins_at(row, &events)),
            result: last.events.last().and_then(outcome_in).map(|(outcome, _)| outcome),
            info,
        })
    }

    /// Why the workflow task of a run is tried again and again. The card comes from the code of this program, which runs away from
    /// this thread, and not for ever.
    async fn why_held(
        &self,
        namespace: &Namespace,
        events: Vec<HistoryEvent>,
        failed: WorkflowTaskFailedEventAttributes,
    ) -> String {
        let stack = failed.failure.as_ref().map(|failure| failure.stack_trace.clone()).unwrap_or_default();
        let card = if !stack.is_empty() {
            // The worker has written it there.
            Some(stack)
        } else if failed.cause() == WorkflowTaskFailedCause::NonDeterministicError {
            let (namespace, workflows) = (namespace.clone(), self.workflows.clone());
            let events = opened(&self.external, events.clone()).await.unwrap_or(events);
            let card = tokio::task::spawn_blocking(move || card_of(&namespace, &events, &workflows));
            tokio::time::timeout(CARD_PATIENCE, card).await.ok().and_then(Result::ok).flatten()
        } else {
            None
        };
        let card = card.map_or_else(String::new, |card| format!("\n{card}"));
        let why = failed.failure.map(|failure| failure_in(failure).message);
        let why = why.unwrap_or_else(|| "the cluster does not say why".to_owned());
        format!("its workflow task fails, and is tried again: {why}{card}")
    }

    /// What the code waits for, if a worker says so in time.
    async fn awaiting(&self, target: &Target) -> Vec<Awaited> {
        let null = Payload::null();
        let asked = tokio::time::timeout(ASK_PATIENCE, self.ask(target, QUERY_AWAITING, &null)).await;
        asked.ok().and_then(Result::ok).and_then(|answer| answer.decode().ok()).unwrap_or_default()
    }

    pub(super) async fn list_runs(&self, request: ListRequest) -> Result<Vec<RunInfo>, CallError> {
        let limit = request.limit.clamp(1, PAGE);
        let (namespaces, query) = for_the_cluster(&request.query, &self.namespace)?;
        let mut found = Vec::new();
        for namespace in namespaces {
            let mut next_page_token = Vec::new();
            while found.len() < limit {
                let request = ListWorkflowExecutionsRequest {
                    namespace: namespace.to_string(),
                    page_size: i32::try_from(limit - found.len()).unwrap_or(i32::MAX),
                    next_page_token,
                    query: query.clone(),
                };
                let page = self.connection.clone().list_workflow_executions(Request::new(request)).await;
                let mut page = page.map_err(|status| call_error(&status))?.into_inner();
                // A list tells of all runs, also of one whose memo cannot be had.
                self.external.open_some(&mut page).await;
                found.extend(page.executions.into_iter().filter_map(|row| info_of(&namespace, row)));
                next_page_token = page.next_page_token;
                if next_page_token.is_empty() {
                    break;
                }
            }
        }
        Ok(found)
    }

    pub(super) async fn count_runs(&self, query: String) -> Result<u64, CallError> {
        let (namespaces, query) = for_the_cluster(&query, &self.namespace)?;
        let mut all = 0;
        for namespace in namespaces {
            let request = CountWorkflowExecutionsRequest { namespace: namespace.to_string(), query: query.clone() };
            let counted = self.connection.clone().count_workflow_executions(Request::new(request)).await;
            let counted = counted.map_err(|status| call_error(&status))?.into_inner();
            all += u64::try_from(counted.count).unwrap_or(0);
        }
        Ok(all)
    }

    pub(super) async fn wait_for_result(
        &self,
        target: Target,
        request: ResultRequest,
    ) -> Result<Option<RunResult>, CallError> {
        let waiting = self.result_of(target, request.follow_runs);
        match request.timeout {
            None => waiting.await.map(Some),
            Some(timeout) => match tokio::time::timeout(timeout, waiting).await {
                Ok(result) => result.map(Some),
                Err(_) => Ok(None),
            },
        }
    }

    async fn result_of(&self, mut target: Target, follow_runs: bool) -> Result<RunResult, CallError> {
        loop {
            let run_id = match target.run_id {
                Some(run_id) => run_id,
                None => self.info(&target).await?.run_id,
            };
            target.run_id = Some(run_id);
            let last = self.last_event(&target).await?;
            let Some((outcome, next)) = outcome_in(&last) else {
                let message = "the cluster gave an event that ends nothing".to_owned();
                return Err(CallError::Refused { status: 500, code: "cluster".to_owned(), message });
            };
            match next.filter(|_| follow_runs) {
                Some(next) => target.run_id = Some(next),
                None => return Ok(RunResult { workflow_id: target.workflow_id, run_id, outcome }),
            }
        }
    }

    /// Waits for the event that ends a run.
    async fn last_event(&self, target: &Target) -> Result<HistoryEvent, CallError> {
        let mut next_page_token = Vec::new();
        loop {
            let request = GetWorkflowExecutionHistoryRequest {
                namespace: target.namespace.to_string(),
                execution: Some(execution_of(target)),
                wait_new_event: true,
                history_event_filter_type: enums::HistoryEventFilterType::CloseEvent.into(),
                next_page_token: next_page_token.clone(),
                ..Default::default()
            };
            match self.connection.clone().get_workflow_execution_history(Request::new(request)).await {
                Ok(page) => {
                    let page = page.into_inner();
                    let last = page.history.unwrap_or_default().events.pop();
                    if let Some(last) = last.filter(|event| outcome_in(event).is_some()) {
                        return self.opened(target, last).await;
                    }
                    next_page_token = page.next_page_token;
                }
                // No request waits for ever.
                Err(status) if matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled) => {}
                Err(status) => return Err(about(target, &status)),
            }
        }
    }

    pub(super) async fn turns_of(&self, target: &Target) -> Result<Vec<Turn>, CallError> {
        let target = match target.run_id {
            Some(_) => target.clone(),
            None => Target { run_id: Some(self.info(target).await?.run_id), ..target.clone() },
        };
        let events = events_of_target(&self.connection, &target).await.map_err(|status| about(&target, &status))?;
        let events = self.opened(&target, Events { events }).await?.events;
        let (workflows, namespace) = (self.workflows.clone(), target.namespace.clone());
        // It runs workflow code, and that away from this thread.
        let read = tokio::task::spawn_blocking(move || turns_of(&namespace, &events, Some(&workflows))).await;
        read.unwrap_or_else(|why| Err(why.to_string())).map_err(unreadable)
    }

    pub(super) fn stream_events(self, target: Target, from: EventId, follow: bool) -> EventStream {
        Box::pin(async_stream::try_stream! {
            let run_id = self.info(&target).await?.run_id;
            let target = Target { run_id: Some(run_id), ..target };
            let along = TurnsAlong::start(&target.namespace, self.workflows.clone());
            let mut along = along.map_err(|why| unreadable(why.to_string()))?;
            let (mut next, mut page_token, mut ended) = (from, Vec::new(), false);
            while !ended {
                let page = self.opened(&target, self.more_history(&target, follow, page_token).await?).await?;
                page_token = page.next_page_token;
                ended = page_token.is_empty();
                let turns = along.next(page.history.unwrap_or_default().events).await.map_err(unreadable)?;
                for event in turns.iter().flat_map(Turn::numbered) {
                    ended |= event.kind.closes().is_some();
                    if event.id >= next {
                        next = event.id.next();
                        yield event;
                    }
                }
            }
        })
    }

    /// The next page of a history; with `follow`, waits for it.
    async fn more_history(
        &self,
        target: &Target,
        follow: bool,
        next_page_token: Vec<u8>,
    ) -> Result<GetWorkflowExecutionHistoryResponse, CallError> {
        loop {
            let request = GetWorkflowExecutionHistoryRequest {
                namespace: target.namespace.to_string(),
                execution: Some(execution_of(target)),
                wait_new_event: follow,
                next_page_token: next_page_token.clone(),
                ..Default::default()
            };
            match self.connection.clone().get_workflow_execution_history(Request::new(request)).await {
                Ok(page) => return Ok(page.into_inner()),
                // No request waits for ever.
                Err(status) if follow && matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled) => {}
                Err(status) => return Err(about(target, &status)),
            }
        }
    }
}

fn unreadable(why: String) -> CallError {
    Rejection::Invalid { what: "the history of the cluster".to_owned(), why }.into()
}

/// The namespaces that a filter is about, `own` where it names none, and what of it a cluster is asked.
fn for_the_cluster(query: &str, own: &Namespace) -> Result<(Vec<Namespace>, String), CallError> {
    let filter = Filter::parse(query)
        .map_err(|why| Rejection::Invalid { what: format!("list filter {query:?}"), why: why.to_string() })?;
    if filter.names_own_status() {
        let why = "a cluster knows no status 'Held' and no 'TakenOver'; ask for 'Running' or 'Paused'".to_owned();
        return Err(Rejection::Invalid { what: format!("list filter {query:?}"), why }.into());
    }
    let (names, filter) = filter.split_namespaces();
    let names = if names.is_empty() { vec![own.to_string()] } else { names };
    let namespaces = names.into_iter().map(Namespace::new).collect::<Result<_, _>>();
    let namespaces = namespaces.map_err(|why| Rejection::Invalid { what: "namespace".into(), why: why.to_string() })?;
    Ok((namespaces, filter.to_string()))
}

fn pending_timers(turns: &[Turn]) -> Vec<PendingTimer> {
    let mut open = std::collections::BTreeMap::new();
    for event in turns.iter().flat_map(|turn| &turn.events) {
        match event {
            EventKind::TimerStarted { seq, fire_at, summary } => {
                open.insert(*seq, PendingTimer { seq: *seq, fire_at: *fire_at, summary: summary.clone() });
            }
            EventKind::TimerFired { seq } | EventKind::TimerCanceled { seq } => drop(open.remove(seq)),
            _ => {}
        }
    }
    open.into_values().collect()
}

fn asks_to_cancel(event: &EventKind) -> bool {
    matches!(event, EventKind::WorkflowExecutionCancelRequested { .. })
}

/// How the last workflow task of a run has failed, if that is how it ended. A reset is written as a failure and is none; a task
/// whose worker was killed has timed out; one that came too late for new events is given out again.
fn last_failure(events: &[HistoryEvent]) -> Option<WorkflowTaskFailedEventAttributes> {
    use WorkflowTaskFailedCause as Cause;
    let ended = events.iter().rev().find_map(|event| match &event.attributes {
        Some(Attributes::WorkflowTaskFailedEventAttributes(failed)) => Some(Some(failed.clone())),
        Some(
            Attributes::WorkflowTaskCompletedEventAttributes(_) | Attributes::WorkflowTaskTimedOutEventAttributes(_),
        ) => Some(None),
        _ => None,
    });
    let of_the_server =
        [Cause::ResetWorkflow, Cause::UnhandledCommand, Cause::ResetStickyTaskQueue, Cause::ForceCloseCommand];
    ended.flatten().filter(|failed| !of_the_server.contains(&failed.cause()))
}

/// How an event ends a run, and the run that goes on for it.
pub(super) fn outcome_in(event: &HistoryEvent) -> Option<(CloseOutcome, Option<RunId>)> {
    Some(match event.attributes.clone()? {
        Attributes::WorkflowExecutionCompletedEventAttributes(ended) => {
            let result = payloads_in(ended.result.map(|result| result.payloads).unwrap_or_default());
            (CloseOutcome::Completed(result), run_id_in(&ended.new_execution_run_id))
        }
        Attributes::WorkflowExecutionFailedEventAttributes(ended) => {
            let failure = failure_in(ended.failure.unwrap_or_default());
            (CloseOutcome::Failed(failure), run_id_in(&ended.new_execution_run_id))
        }
        Attributes::WorkflowExecutionTimedOutEventAttributes(ended) => {
            (CloseOutcome::TimedOut(WorkflowTimeout::Run), run_id_in(&ended.new_execution_run_id))
        }
        Attributes::WorkflowExecutionCanceledEventAttributes(ended) => {
            (CloseOutcome::Canceled(ended.details.map(|details| payloads_in(details.payloads))), None)
        }
        Attributes::WorkflowExecutionTerminatedEventAttributes(ended) => {
            (CloseOutcome::Terminated { reason: ended.reason }, None)
        }
        Attributes::WorkflowExecutionContinuedAsNewEventAttributes(
            WorkflowExecutionContinuedAsNewEventAttributes { new_execution_run_id, .. },
        ) => {
            let new_run = run_id_in(&new_execution_run_id)?;
            (CloseOutcome::ContinuedAsNew { new_run }, Some(new_run))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use temporalio_common::protos::temporal::api::history::v1::{
        WorkflowTaskCompletedEventAttributes, WorkflowTaskTimedOutEventAttributes,
    };

    use super::*;

    fn failed(cause: WorkflowTaskFailedCause) -> HistoryEvent {
        let failed = WorkflowTaskFailedEventAttributes { cause: cause.into(), ..Default::default() };
        event(Attributes::WorkflowTaskFailedEventAttributes(failed))
    }
    fn event(attributes: Attributes) -> HistoryEvent {
        HistoryEvent { attributes: Some(attributes), ..Default::default() }
    }

    #[test]
    fn a_run_is_held_by_its_code_alone() {
        use WorkflowTaskFailedCause as Cause;
        let completed =
            || event(Attributes::WorkflowTaskCompletedEventAttributes(WorkflowTaskCompletedEventAttributes::default()));
        let killed =
            || event(Attributes::WorkflowTaskTimedOutEventAttributes(WorkflowTaskTimedOutEventAttributes::default()));
        let held = |events: &[HistoryEvent]| last_failure(events).map(|failed| failed.cause());
        let (unfit, panicked) = (Cause::NonDeterministicError, Cause::WorkflowWorkerUnhandledFailure);
        assert_eq!(held(&[completed(), failed(unfit)]), Some(unfit));
        assert_eq!(held(&[failed(panicked)]), Some(panicked));
        assert_eq!(held(&[failed(unfit), killed()]), None, "its worker was killed");
        assert_eq!(held(&[failed(unfit), completed()]), None, "other code has gone on");
        assert_eq!(held(&[completed(), failed(Cause::ResetWorkflow)]), None, "it was reset");
        assert_eq!(held(&[]), None);
    }

    #[test]
    fn a_filter_without_a_namespace_is_about_the_one_that_was_named() {
        let own = Namespace::of("boats");
        let asked = |query: &str| for_the_cluster(query, &own).unwrap().0;
        assert_eq!(asked("WorkflowType = 'pay'"), [Namespace::of("boats")]);
        assert_eq!(asked("Namespace = 'default'"), [Namespace::of("default")]);
    }
}
