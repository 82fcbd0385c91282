//! The command line's and the API's view of a cluster: one more [`Backend`].
//!
//! Invariant: an answer has the meaning and the shape that it has from the embedded engine; what a cluster refuses is told with
//! the refusal of ours that it is. What a cluster cannot do is refused by name, with what helps. It keeps nothing of its own.
//!
//! Long: one method a call of the backend.

mod activities;
mod reading;
mod refusal;
mod requests;

use std::path::PathBuf;
use std::sync::Arc;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use prost::Message;
use serde_json::Value;
use temporalio_client::Connection;
use temporalio_client::tonic::Request;
use temporalio_common::payload_visitor::PayloadVisitable;

use super::external::External;
use super::worker::ClusterWorker;
use crate::backend::*;
use refusal::{cannot, external_error};

/// A cluster, as its clients see it. Cheap to clone.
#[derive(Clone)]
pub struct ClusterBackend {
    connection: Connection,
    /// Where runs are looked for that are named by no namespace.
    namespace: Namespace,
    identity: Identity,
    /// Of a worker: it tells what it has.
    worker: Option<Arc<ClusterWorker>>,
    slots: usize,
    /// The code of this program, by which histories are read turn by turn.
    workflows: Arc<WorkflowRegistry>,
    external: External,
}

impl ClusterBackend {
    /// The backend of a connection, for a client or a worker of it, that looks in `namespace` where a request names none.
    pub fn new(
        connection: Connection,
        namespace: Namespace,
        identity: Identity,
        worker: Option<(Arc<ClusterWorker>, usize)>,
        workflows: WorkflowRegistry,
    ) -> Self {
        let (worker, slots) = worker.map_or((None, 0), |(worker, slots)| (Some(worker), slots));
        let (workflows, external) = (Arc::new(workflows), External::default());
        ClusterBackend { connection, namespace, identity, worker, slots, workflows, external }
    }

    /// What is too large for the cluster goes there.
    pub(super) fn with_payloads_in(self, external: External) -> Self {
        ClusterBackend { external, ..self }
    }

    /// A request as it can be sent.
    async fn sealed<M: PayloadVisitable + Message>(&self, message: M) -> Result<Request<M>, CallError> {
        Ok(Request::new(self.external.seal(message).await.map_err(|why| external_error(None, &why))?))
    }

    /// An answer about a run, with what of it is kept in files.
    async fn opened<M: PayloadVisitable>(&self, target: &Target, mut answer: M) -> Result<M, CallError> {
        self.external.open(&mut answer).await.map_err(|why| external_error(Some(target), &why))?;
        Ok(answer)
    }

    fn who(&self, identity: Option<&Identity>) -> String {
        identity.unwrap_or(&self.identity).to_string()
    }
}

impl Backend for ClusterBackend {
    fn start(&self, request: StartWorkflow) -> Reply<'_, Started> {
        Box::pin(async move { self.start_run(request).await })
    }
    fn fork(&self, _: ForkRequest) -> Reply<'_, Forked> {
        let help = "write its history to a file with `bosun export ID --temporal …`, and fork that with `bosun fork FILE` \
                    into a data directory, where it goes on with what you tell it";
        cannot("a fork", help)
    }
    fn reset(&self, request: ResetRequest) -> Reply<'_, ResetDone> {
        Box::pin(async move { self.reset_run(request).await })
    }
    fn signal(&self, target: Target, signal: SignalRequest) -> Reply<'_, ()> {
        Box::pin(async move { self.send_signal(target, signal).await })
    }
    fn signal_with_start(&self, request: StartWorkflow, signal: SignalRequest) -> Reply<'_, Started> {
        Box::pin(async move { self.start_with_signal(request, signal).await })
    }
    fn update(&self, target: Target, update: UpdateRequest) -> Reply<'_, UpdateOutcome> {
        Box::pin(async move { self.send_update(target, update).await })
    }
    fn update_with_start(&self, request: StartWorkflow, update: UpdateRequest) -> Reply<'_, (Started, UpdateOutcome)> {
        Box::pin(async move {
            // A repetition of either is the same request.
            let target =
                Target { namespace: request.namespace.clone(), workflow_id: request.workflow_id.clone(), run_id: None };
            let started = self.start_run(request).await?;
            Ok((started, self.send_update(target, update).await?))
        })
    }
    fn update_result(&self, target: Target, update: UpdateId) -> Reply<'_, UpdateOutcome> {
        Box::pin(async move { self.poll_update(&target, &update, UpdateWait::Completed).await })
    }
    fn query(&self, target: Target, name: QueryName, input: Payload) -> Reply<'_, Payload> {
        Box::pin(async move { self.ask(&target, name.as_str(), &input).await })
    }
    fn cancel(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        Box::pin(async move { self.request_cancel(target, because).await })
    }
    fn terminate(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        Box::pin(async move { self.terminate_run(target, because).await })
    }
    fn pause(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        Box::pin(async move { self.pause_run(target, because, true).await })
    }
    fn unpause(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        Box::pin(async move { self.pause_run(target, because, false).await })
    }
    fn pause_activity(&self, target: Target, activity: ActivityId, because: Attribution) -> Reply<'_, ()> {
        Box::pin(async move { self.pause_one(target, activity, because).await })
    }
    fn unpause_activity(&self, target: Target, activity: ActivityId, because: Attribution) -> Reply<'_, ()> {
        Box::pin(async move { self.unpause_one(target, activity, because).await })
    }
    fn update_activity(&self, target: Target, activity: ActivityId, asked: ActivityAsked) -> Reply<'_, ()> {
        Box::pin(async move { self.change_one(target, activity, asked).await })
    }
    fn complete_activity(&self, token: TaskToken, completion: ActivityCompletion) -> Reply<'_, ()> {
        Box::pin(async move { self.complete_one(token, completion).await })
    }
    fn describe(&self, target: Target) -> Reply<'_, Description> {
        Box::pin(async move { self.describe_run(target).await })
    }
    fn list(&self, request: ListRequest) -> Reply<'_, Vec<RunInfo>> {
        Box::pin(async move { self.list_runs(request).await })
    }
    fn count(&self, query: String) -> Reply<'_, u64> {
        Box::pin(async move { self.count_runs(query).await })
    }
    fn result(&self, target: Target, request: ResultRequest) -> Reply<'_, Option<RunResult>> {
        Box::pin(async move { self.wait_for_result(target, request).await })
    }
    fn history(&self, target: Target, from: EventId, limit: usize) -> Reply<'_, Vec<Event>> {
        Box::pin(async move {
            let turns = self.turns_of(&target).await?;
            let events = turns.iter().flat_map(Turn::numbered).filter(|event| event.id >= from);
            Ok(events.take(limit.clamp(1, reading::PAGE)).collect())
        })
    }
    fn finds_single_events(&self) -> bool {
        false
    }
    fn turns(&self, target: Target) -> Reply<'_, Vec<Turn>> {
        Box::pin(async move { self.turns_of(&target).await })
    }
    fn events(&self, target: Target, from: EventId, follow: bool) -> EventStream {
        self.clone().stream_events(target, from, follow)
    }
    fn watch(&self, _: String, _: Option<GroupSeq>) -> RunEventStream {
        let refused =
            refusal::refused("a stream of the events of all runs", "follow one run with `bosun show --follow`");
        Box::pin(futures_util::stream::iter([Err(refused)]))
    }
    fn delete(&self, target: Target) -> Reply<'_, ()> {
        Box::pin(async move { self.delete_run(target).await })
    }
    fn verify(&self) -> Reply<'_, Value> {
        cannot("`store verify`", "it has no store of Bosun's; its operators look after its database")
    }
    fn backup(&self, _: PathBuf) -> Reply<'_, Value> {
        cannot("`store backup`", "it has no store of Bosun's; `bosun export` writes single histories")
    }
    fn store_info(&self) -> Reply<'_, Value> {
        cannot("`store info`", "it has no store of Bosun's; `temporal operator cluster describe` tells of the cluster")
    }
    fn health(&self) -> Reply<'_, EngineHealth> {
        Box::pin(async { Ok(EngineHealth::Ready) })
    }
    fn worker_state(&self) -> Reply<'_, WorkerState> {
        let busy = self.worker.as_ref().map_or(0, |worker| worker.busy());
        let state = WorkerState { slots: self.slots, busy, ..WorkerState::default() };
        Box::pin(async { Ok(state) })
    }
}
