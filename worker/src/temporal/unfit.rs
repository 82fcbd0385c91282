//! Whether the code of this worker still fits a run that another build has worked on, before the cluster hears of it.
//!
//! Invariant: the run decides nothing here. Ours says where history and code part, and Core, told the same history beside the
//! run, says whether it will refuse; only where both do is the workflow task failed with the card, so that people read in the
//! cluster's own history what has to change. A run of this build alone is not looked at.

use std::sync::Arc;
use std::time::Duration;

use temporalio_common::protos::coresdk::workflow_completion::workflow_activation_completion::Status;
use temporalio_common::protos::temporal::api::enums::v1::WorkflowTaskFailedCause;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::protos::temporal::api::history::v1::{History, HistoryEvent};
use temporalio_common::worker::WorkerTaskTypes;
use temporalio_sdk_core::replay::{HistoryFeeder, HistoryForReplay, ReplayWorkerInput};
use temporalio_sdk_core::{WorkerConfig, WorkerVersioningStrategy, init_replay_worker};
use tokio::sync::oneshot;

use super::external::External;
use super::history::{card_of, is_under_way, opened, recorded};
use super::run::{Home, Recorded};
use super::threads::{Work, WorkflowThreads, is_evicted, is_told_again};
use super::worker::diverged;

/// Code that does not come back is found by the watchdog when the run itself is told.
const PATIENCE: Duration = Duration::from_secs(20);

/// The card, where the code does not fit this history.
pub(super) async fn card(
    threads: &WorkflowThreads,
    home: &Home,
    external: &External,
    workflow_id: &str,
    events: &[HistoryEvent],
) -> Option<String> {
    let build = threads.registry().build_id().to_string();
    if !of_another_build(events, &build) || was_reset(events) {
        return None;
    }
    // What cannot be had is told when the run itself is told.
    let events = &*opened(external, events.to_vec()).await.ok()?;
    let (registry, namespace, owned) = (threads.registry(), home.namespace.clone(), events.to_vec());
    // It runs workflow code, and that away from this thread.
    let card = tokio::task::spawn_blocking(move || card_of(&namespace, &owned, &registry));
    let card = tokio::time::timeout(PATIENCE, card).await.ok()?.ok()??;
    let refused = tokio::time::timeout(PATIENCE, core_refuses(threads, home, &build, workflow_id, events));
    refused.await.ok()?.then_some(card)
}

/// Whether a workflow task of it was completed by other code.
fn of_another_build(events: &[HistoryEvent], own: &str) -> bool {
    events.iter().any(|event| match &event.attributes {
        #[allow(deprecated, reason = "what a server without deployments keeps")]
        Some(Attributes::WorkflowTaskCompletedEventAttributes(done)) => {
            let deployed = done.deployment_version.as_ref().map(|version| &version.build_id);
            let build = deployed.or(done.worker_version.as_ref().map(|version| &version.build_id));
            build.is_some_and(|build| build != own)
        }
        _ => false,
    })
}

/// Such a history tells of two runs, and the id that Core would tell it under is the other's.
fn was_reset(events: &[HistoryEvent]) -> bool {
    events.iter().any(|event| match &event.attributes {
        Some(Attributes::WorkflowTaskFailedEventAttributes(failed)) => !failed.new_run_id.is_empty(),
        _ => false,
    })
}

/// Tells Core the history beside the run, as official replayers do.
async fn core_refuses(
    threads: &WorkflowThreads,
    home: &Home,
    build: &str,
    workflow_id: &str,
    events: &[HistoryEvent],
) -> bool {
    let config = WorkerConfig::builder()
        .namespace(home.namespace.to_string())
        .task_queue(home.task_queue.to_string())
        .task_types(WorkerTaskTypes::workflow_only())
        .versioning_strategy(WorkerVersioningStrategy::None { build_id: build.to_owned() })
        .build();
    let (feeder, histories) = HistoryFeeder::new(1);
    let Ok(core) = config.and_then(|config| {
        init_replay_worker(ReplayWorkerInput::new(config, histories)).map_err(|why| why.to_string())
    }) else {
        return false;
    };
    let core = Arc::new(core);
    // A workflow task that is under way is not history yet.
    let done = events.iter().rposition(|event| !is_under_way(event)).map_or(0, |last| last + 1);
    let history = History { events: events[..done].to_vec() };
    if feeder.feed(HistoryForReplay::new(history, workflow_id)).await.is_err() {
        return false;
    }
    drop(feeder);
    let mut refused = false;
    while let Ok(activation) = core.poll_workflow_activation().await {
        let evicted = is_evicted(&activation);
        refused |= diverged(&activation);
        let recorded = if is_told_again(&activation) { recorded(events) } else { Recorded::default() };
        let (done, answer) = oneshot::channel();
        threads.give(Work { home: home.clone(), activation, recorded, done });
        let Ok(completion) = answer.await else { break };
        if let Some(Status::Failed(failed)) = &completion.status {
            refused |= failed.force_cause() == WorkflowTaskFailedCause::NonDeterministicError;
        }
        if core.complete_workflow_activation(completion).await.is_err() || evicted {
            break;
        }
    }
    core.shutdown().await;
    refused
}
