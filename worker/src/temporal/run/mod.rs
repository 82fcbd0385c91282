//! The language side of one run: its driver on one side, a cluster's activations on the other.
//!
//! ```text
//!   activation ──► jobs, one after the other ──► driver ──► our commands ──► their commands, with their numbers
//!                     └─► update: validator, then job     └─► side effect: its value goes through a local activity
//! ```
//!
//! Invariant: what is told to the driver depends on the activations alone, so a run that was dropped from the cache and told
//! again from its beginning is where it was. Values of side effects that are in history are given before the code asks. A run
//! is closed only when all of its side effects are recorded, because a cluster forgets local activities of closed runs; a signal
//! that comes with its last workflow task goes along to the run that continues it. Pure:
//! no clock, socket or thread; who feeds it is the worker.

mod commands;
mod jobs;
mod numbers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use serde_json::json;
use temporalio_common::protos::coresdk::workflow_activation as core;
use temporalio_common::protos::coresdk::workflow_activation::workflow_activation_job::Variant as Told;
use temporalio_common::protos::coresdk::workflow_commands as asked;
use temporalio_common::protos::coresdk::workflow_commands::workflow_command::Variant;

use temporalio_common::protos::temporal::api::enums::v1::WorkflowTaskFailedCause;
use temporalio_common::protos::temporal::api::failure::v1 as temporal_failure;

use super::convert::*;
use super::external::ExternalError;
use super::{QUERY_AWAITING, QUERY_STACK, QUERY_STATE, REFUSED_BY_VALIDATOR};
use jobs::signal_in;
pub(super) use jobs::started_of;
use numbers::Numbers;

/// Why a workflow task cannot be completed. The run is not harmed: the cluster tries the task again.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TaskFailed {
    pub(super) failure: Failure,
    /// Where it is, for people; may be empty.
    pub(super) stack: String,
    /// What the cluster is told: `NonDeterministicError` where the code does not match history.
    pub(super) cause: WorkflowTaskFailedCause,
}

impl TaskFailed {
    fn of_the_code(message: String) -> Self {
        let failure = Failure::application("WorkflowTask", message);
        TaskFailed { failure, stack: String::new(), cause: WorkflowTaskFailedCause::WorkflowWorkerUnhandledFailure }
    }
    pub(super) fn unusable_run(run_id: &str) -> Self {
        TaskFailed::of_the_code(format!("the run id {run_id:?} is no UUID"))
    }
    pub(super) fn unknown_run(run_id: &str) -> Self {
        TaskFailed::of_the_code(format!("the run {run_id} is not in the cache, and was not told from its beginning"))
    }
    pub(super) fn unread_history(why: &str) -> Self {
        TaskFailed::of_the_code(format!("what the history holds of side effects cannot be read: {why}"))
    }
    pub(super) fn lost(why: String) -> Self {
        TaskFailed::of_the_code(why)
    }
    pub(super) fn still_busy() -> Self {
        let why =
            "the workflow code has not come back yet from an earlier workflow task; a busy loop or a blocking call?";
        TaskFailed::of_the_code(why.to_owned())
    }
    pub(super) fn panicked(why: &str) -> Self {
        let failure = Failure::application(FAILURE_PANIC, format!("panic: {why}"));
        TaskFailed { failure, stack: String::new(), cause: WorkflowTaskFailedCause::WorkflowWorkerUnhandledFailure }
    }
    /// A payload of it is too large, or cannot be had from where it is kept.
    pub(super) fn external(run_id: &str, why: &ExternalError) -> Self {
        let cause = match why {
            ExternalError::TooLarge { .. } => WorkflowTaskFailedCause::PayloadsTooLarge,
            ExternalError::MessageTooLarge { .. } => WorkflowTaskFailedCause::GrpcMessageTooLarge,
            _ => WorkflowTaskFailedCause::ExternalStorageFailure,
        };
        TaskFailed { cause, ..TaskFailed::of_the_code(format!("the run {run_id}: {why}")) }
    }
    /// The first line of the card says what it is, the rest where.
    pub(super) fn diverged(card: &str) -> Self {
        let (title, stack) = card.split_once('\n').unwrap_or((card, ""));
        let failure = Failure::application("NonDeterminism", title).non_retryable();
        TaskFailed { failure, stack: stack.to_owned(), cause: WorkflowTaskFailedCause::NonDeterministicError }
    }
}

/// Where a run lives.
#[derive(Debug, Clone)]
pub(super) struct Home {
    pub(super) namespace: Namespace,
    pub(super) task_queue: TaskQueue,
}

/// What is in history already when a run is told from its beginning.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Recorded {
    /// What side effects gave, by the numbers of their commands.
    pub(super) side_effects: Arc<BTreeMap<Seq, Payload>>,
    /// Of each activity, whether its workers were to say by themselves that they live: what the code was told of its end depends on
    /// that, and not on what a worker of today would ask for.
    pub(super) beats: BTreeMap<Seq, bool>,
}

pub(super) struct ClusterRun {
    driver: Box<dyn Driver>,
    run_id: RunId,
    /// Whose ids the code sees: after a reset, those of the run before until the point of the reset.
    visible: RunId,
    namespace: Namespace,
    task_queue: String,
    workflow_type: WorkflowType,
    numbers: Numbers,
    children: BTreeMap<Seq, (WorkflowType, WorkflowId)>,
    updates: BTreeMap<UpdateId, String>,
    patches: BTreeSet<PatchId>,
    recorded: Recorded,
    /// Activities whose workers say by themselves that they live.
    beaten: BTreeSet<Seq>,
    /// Local activities that bring side effects into history.
    recording: BTreeSet<u32>,
    /// What ends the run, until all jobs are told and all side effects recorded.
    ending: Option<(Timestamp, Command)>,
}

/// What is the same for all jobs of an activation.
struct Moment {
    at: Timestamp,
    history: HistorySize,
    replaying: bool,
}

impl ClusterRun {
    /// A run from its beginning.
    pub(super) fn new(
        registry: &WorkflowRegistry,
        home: &Home,
        run_id: RunId,
        init: core::InitializeWorkflow,
        recorded: Recorded,
    ) -> Result<(ClusterRun, WorkflowExecutionStarted), TaskFailed> {
        let visible = run_id_in(&init.original_execution_run_id).unwrap_or(run_id);
        let started = started_of(&home.namespace, &home.task_queue, run_id, init)?;
        let driver = registry.create(&started, visible).map_err(|why| TaskFailed::of_the_code(why.to_string()))?;
        let run = ClusterRun {
            driver,
            run_id,
            visible,
            namespace: home.namespace.clone(),
            task_queue: home.task_queue.to_string(),
            workflow_type: started.workflow_type.clone(),
            numbers: Numbers::default(),
            children: BTreeMap::new(),
            updates: BTreeMap::new(),
            patches: BTreeSet::new(),
            recorded,
            beaten: BTreeSet::new(),
            recording: BTreeSet::new(),
            ending: None,
        };
        Ok((run, started))
    }

    /// Patches that history says the code took; told before anything else.
    pub(super) fn note_patches(&mut self, jobs: &[core::WorkflowActivationJob]) {
        let patches = jobs.iter().filter_map(|job| match &job.variant {
            Some(Told::NotifyHasPatch(patch)) => PatchId::new(&patch.patch_id).ok(),
            _ => None,
        });
        self.patches.extend(patches);
    }

    /// Tells one activation and gives what the cluster is asked for. `started` comes with the first one.
    pub(super) fn activate(
        &mut self,
        activation: core::WorkflowActivation,
        mut started: Option<WorkflowExecutionStarted>,
    ) -> Result<Vec<asked::WorkflowCommand>, TaskFailed> {
        let moment = moment_of(&activation);
        self.note_patches(&activation.jobs);
        let mut commands = Vec::new();
        for told in activation.jobs.into_iter().filter_map(|job| job.variant) {
            let job = match told {
                Told::InitializeWorkflow(_) => started.take().map(|started| Job::InitializeWorkflow(Box::new(started))),
                Told::SignalWorkflow(signal) => Some(signal_in(signal)?),
                Told::CancelWorkflow(cancel) => Some(Job::CancelWorkflow { reason: cancel.reason }),
                Told::FireTimer(timer) => {
                    self.numbers.ended(numbers::Kind::Timer, timer.seq).map(|seq| Job::FireTimer { seq })
                }
                Told::ResolveActivity(ended) => self.activity_ended(ended),
                Told::ResolveChildWorkflowExecutionStart(started) => self.child_started(started),
                Told::ResolveChildWorkflowExecution(ended) => self.child_ended(ended),
                Told::ResolveSignalExternalWorkflow(arrived) => self.signal_delivered(arrived),
                Told::ResolveRequestCancelExternalWorkflow(arrived) => self.cancel_delivered(arrived),
                Told::DoUpdate(update) => self.update(update, &mut commands)?,
                Told::QueryWorkflow(query) => {
                    commands.push(self.answer(query).into());
                    None
                }
                // After a reset the run is itself from here on.
                Told::UpdateRandomSeed(_) => {
                    self.visible = self.run_id;
                    self.driver.forked(self.run_id);
                    None
                }
                Told::NotifyHasPatch(_)
                | Told::RemoveFromCache(_)
                | Told::ResolveNexusOperationStart(_)
                | Told::ResolveNexusOperation(_) => None,
            };
            if let Some(job) = job.and_then(|job| self.too_late(job)) {
                self.tell(job, &moment, &mut commands)?;
            }
        }
        if self.recording.is_empty()
            && let Some((at, ending)) = self.ending.take()
        {
            commands.extend(self.command(at, ending));
        }
        Ok(commands)
    }

    /// The code has ended the run and hears nothing more. A run that continues takes a signal along.
    fn too_late(&mut self, job: Job) -> Option<Job> {
        match (&mut self.ending, job) {
            (None, job) => Some(job),
            (Some((_, Command::ContinueAsNew { unconsumed_signals, .. })), Job::SignalWorkflow(signal)) => {
                unconsumed_signals.push(signal);
                None
            }
            (Some(_), _) => None,
        }
    }

    fn tell(&mut self, job: Job, moment: &Moment, asked: &mut Vec<asked::WorkflowCommand>) -> Result<(), TaskFailed> {
        let markers = match moment.replaying {
            false => Markers::Fresh,
            true => {
                let side_effects = self.recorded.side_effects.clone();
                Markers::Recorded { side_effects, patches: self.patches.clone() }
            }
        };
        let Moment { at, history, .. } = *moment;
        let activation = Activation { at, run_id: self.visible, history, job, markers };
        let commands = self.driver.activate(activation);
        if let Some(defect) = self.driver.defect() {
            let message =
                format!("error[{}]: {}: {defect}\nhelp: {}", WorkflowDefect::CODE, defect.title(), defect.help());
            let failure = Failure::application(FAILURE_PANIC, message);
            let cause = WorkflowTaskFailedCause::WorkflowWorkerUnhandledFailure;
            return Err(TaskFailed { failure, stack: String::new(), cause });
        }
        if let Some(what) = self.driver.overrun() {
            return Err(TaskFailed::of_the_code(format!("the workflow code asked for {what} in one turn")));
        }
        for command in commands {
            if let (true, Command::RecordMarker(Marker::SideEffect { seq, .. })) = (moment.replaying, &command)
                && !self.recorded.side_effects.contains_key(seq)
            {
                let what = format!("the workflow code asks for side effect {seq}, which the history does not hold");
                return Err(TaskFailed::diverged(&what));
            }
            match command.closes() {
                true => self.ending = Some((at, command)),
                false => asked.extend(self.command(at, command)),
            }
        }
        Ok(())
    }

    /// Asks the validator where that is still to be done; a refused update leaves no trace.
    fn update(
        &mut self,
        update: core::DoUpdate,
        asked: &mut Vec<asked::WorkflowCommand>,
    ) -> Result<Option<Job>, TaskFailed> {
        use asked::update_response::Response;
        let wrong = |why: InvalidId| Failure::application("InvalidUpdate", why.to_string()).non_retryable();
        let input = payloads_in(update.input);
        let checked = UpdateId::new(update.id)
            .and_then(|id| Ok((id, UpdateName::new(update.name)?)))
            .map_err(wrong)
            .and_then(|(id, name)| {
                if self.ending.is_some() {
                    return Err(Failure::application("WorkflowClosed", "the run ends in this workflow task"));
                }
                if update.run_validator {
                    self.driver.validate_update(&name, &input)?;
                }
                Ok((id, name))
            });
        let protocol_instance_id = update.protocol_instance_id.clone();
        let (response, job) = match checked {
            Err(why) => {
                let source = REFUSED_BY_VALIDATOR.to_owned();
                (Response::Rejected(temporal_failure::Failure { source, ..failure_out(&why) }), None)
            }
            Ok((update_id, name)) => {
                self.updates.insert(update_id.clone(), update.protocol_instance_id);
                (Response::Accepted(()), Some(Job::DoUpdate { update_id, name, input }))
            }
        };
        asked.push(
            Variant::UpdateResponse(asked::UpdateResponse { protocol_instance_id, response: Some(response) }).into(),
        );
        Ok(job)
    }

    fn answer(&mut self, query: core::QueryWorkflow) -> Variant {
        use asked::query_result::Variant as Answer;
        let input = payloads_in(query.arguments);
        let answer = match query.query_type.as_str() {
            QUERY_STATE => Ok(Payload::encode(&self.driver.state_json()).unwrap_or_default()),
            QUERY_AWAITING => Ok(Payload::encode(&self.driver.awaiting()).unwrap_or_default()),
            QUERY_STACK => {
                let line = |one: Awaited| match one.location {
                    Some(place) => format!("{} ({place})\n", one.what),
                    None => format!("{}\n", one.what),
                };
                let all: String = self.driver.awaiting().into_iter().map(line).collect();
                Ok(Payload::encode(&json!(all)).unwrap_or_default())
            }
            name => QueryName::new(name)
                .map_err(|why| Failure::application("InvalidQuery", why.to_string()))
                .and_then(|name| self.driver.query(&name, &input).map_err(query_failed)),
        };
        let variant = match answer {
            Ok(answer) => Answer::Succeeded(asked::QuerySuccess { response: Some(payload_out(&answer)) }),
            Err(why) => Answer::Failed(failure_out(&why)),
        };
        Variant::RespondToQuery(asked::QueryResult { query_id: query.query_id, variant: Some(variant) })
    }
}

/// The words of the embedded engine, and for those who ask from here the whole refusal beside it.
fn query_failed(why: QueryError) -> Failure {
    let failure = Failure::application("QueryFailed", why.to_string()).non_retryable();
    match Payload::encode(&why) {
        Ok(whole) => failure.with_details(whole),
        Err(_) => failure,
    }
}

fn moment_of(activation: &core::WorkflowActivation) -> Moment {
    let (events, bytes) = (u64::from(activation.history_length), activation.history_size_bytes);
    let history = HistorySize::of_cluster(events, bytes, activation.continue_as_new_suggested);
    Moment { at: instant_in(activation.timestamp).unwrap_or_default(), history, replaying: activation.is_replaying }
}
