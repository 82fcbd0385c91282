//! The typed client: runs are started, asked and waited for by references (`crate::reference`).
//!
//! Invariant: a handle is a target with the type of its result; every call is one of the untyped client's, with its input
//! encoded before and its answer decoded after. An input that cannot be encoded is refused before anything is sent.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Client;
use crate::reference::{Query, Signal, Update, Workflow};
use crate::request::*;
use crate::vocabulary::*;

/// Why a workflow gave no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkflowError {
    /// It failed, and is not tried again.
    #[error("the workflow {workflow_id} failed: {failure}")]
    Failed {
        /// Which one.
        workflow_id: WorkflowId,
        /// What its code ended with, or what ended its code.
        failure: Failure,
    },
    /// It was asked to cancel and did.
    #[error("the workflow {workflow_id} was canceled")]
    Canceled {
        /// Which one.
        workflow_id: WorkflowId,
        /// What its code had to say to it.
        details: Option<Payload>,
    },
    /// Somebody ended it; its code was not asked.
    #[error("the workflow {workflow_id} was terminated: {reason}")]
    Terminated {
        /// Which one.
        workflow_id: WorkflowId,
        /// As whoever ended it said.
        reason: String,
    },
    /// It took too long.
    #[error("the workflow {workflow_id} took longer than its {timeout:?} timeout allows")]
    TimedOut {
        /// Which one.
        workflow_id: WorkflowId,
        /// Whether all of its runs, or its last, took too long.
        timeout: WorkflowTimeout,
    },
    /// Its next run has been deleted.
    #[error("the workflow {workflow_id} continued in the run {new_run}, which was deleted or is in another store")]
    ContinuedAsNew {
        /// Which one.
        workflow_id: WorkflowId,
        /// The run that would have the result.
        new_run: RunId,
    },
    /// It completed with something else than the reference says.
    #[error(
        "the result of the workflow {workflow_id} cannot be read: {why}; give the reference the types of the workflow's code"
    )]
    Unreadable {
        /// Which one.
        workflow_id: WorkflowId,
        /// What was wanted, and what is there.
        why: PayloadError,
    },
    /// The worker did not take the request, or left before the end.
    #[error(transparent)]
    Rejected(#[from] Rejection),
}

/// Why a query or an update gave no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MessageError {
    /// The workflow took the update, and its handler failed.
    #[error("the update {name} failed: {failure}")]
    Failed {
        /// Which update.
        name: UpdateName,
        /// What the handler ended with.
        failure: Failure,
    },
    /// The answer is something else than the reference says.
    #[error("the answer to {name} cannot be read: {why}; give the reference the types of the handler")]
    Unreadable {
        /// Which query or update.
        name: &'static str,
        /// What was wanted, and what is there.
        why: PayloadError,
    },
    /// The worker or the workflow did not take it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
}

/// A workflow execution and the type of its result. Cheap to clone; dropping it does nothing to the run.
pub struct WorkflowHandle<O> {
    client: Client,
    target: Target,
    output: PhantomData<fn() -> O>,
}

impl<O> Clone for WorkflowHandle<O> {
    fn clone(&self) -> Self {
        WorkflowHandle { client: self.client.clone(), target: self.target.clone(), output: PhantomData }
    }
}

impl<O> fmt::Debug for WorkflowHandle<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkflowHandle").field(&self.target).finish()
    }
}

/// By reference.
impl Client {
    /// Starts a workflow: `let order = client.start_workflow(ORDER, "order-7", &input).await?;`. The id may be any text, a
    /// `format!(..)` too; one that cannot be an id is refused, as [`Rejection::Invalid`].
    pub async fn start_workflow<I: Serialize, O>(
        &self,
        workflow: Workflow<I, O>,
        workflow_id: impl IntoWorkflowId,
        input: &I,
    ) -> Result<WorkflowHandle<O>, Rejection> {
        self.start_workflow_with(workflow, workflow_id, input, |start| start).await
    }

    /// As [`Client::start_workflow`], with options: `|start| StartWorkflow { run_timeout: Some(HOUR), ..start }`.
    pub async fn start_workflow_with<I: Serialize, O>(
        &self,
        workflow: Workflow<I, O>,
        workflow_id: impl IntoWorkflowId,
        input: &I,
        options: impl FnOnce(StartWorkflow) -> StartWorkflow,
    ) -> Result<WorkflowHandle<O>, Rejection> {
        let start = options(start_of(workflow, workflow_id, input)?);
        let namespace = start.namespace.clone();
        let Started { workflow_id, run_id, .. } = self.start(start).await?;
        Ok(self.of_target(Target { namespace, workflow_id, run_id: Some(run_id) }))
    }

    /// Signals the open run of a workflow id, or starts one and signals it, atomically (E12).
    pub async fn signal_workflow_with_start<I: Serialize, O, S: Serialize>(
        &self,
        workflow: Workflow<I, O>,
        workflow_id: impl IntoWorkflowId,
        input: &I,
        signal: Signal<S>,
        carries: &S,
    ) -> Result<WorkflowHandle<O>, Rejection> {
        let start = start_of(workflow, workflow_id, input)?;
        let namespace = start.namespace.clone();
        let Started { workflow_id, run_id, .. } = self.signal_with_start(start, signal_of(signal, carries)?).await?;
        Ok(self.of_target(Target { namespace, workflow_id, run_id: Some(run_id) }))
    }

    /// Updates the open run of a workflow id, or starts one and updates it, atomically (E12); waits for the answer.
    /// A refused update leaves no new run behind.
    pub async fn update_workflow_with_start<I: Serialize, O, U: Serialize, A: DeserializeOwned>(
        &self,
        workflow: Workflow<I, O>,
        workflow_id: impl IntoWorkflowId,
        input: &I,
        update: Update<U, A>,
        carries: &U,
    ) -> Result<(WorkflowHandle<O>, A), MessageError> {
        let start = start_of(workflow, workflow_id, input)?;
        let start = StartWorkflow { id_conflict_policy: IdConflictPolicy::UseExisting, ..start };
        let namespace = start.namespace.clone();
        let update_id = UpdateId::of(self.shared.new_run_id().to_string());
        let request = update_of(update_id.clone(), update, carries)?;
        let (Started { workflow_id, run_id, .. }, outcome) = self.update_with_start(start, request).await?;
        let handle = self.of_target(Target { namespace, workflow_id, run_id: Some(run_id) });
        let answer = handle.answer(update, &update_id, outcome).await?;
        Ok((handle, answer))
    }

    /// A workflow that has been started before: its open run or else its newest, whichever that is when something is
    /// asked. Nothing is looked up here.
    ///
    /// # Panics
    ///
    /// When the text cannot be an id. A text from outside is made one first: `WorkflowId::new(text)?`.
    #[track_caller]
    pub fn handle<I, O>(&self, _workflow: Workflow<I, O>, workflow_id: impl IntoWorkflowId) -> WorkflowHandle<O> {
        match workflow_id.into_workflow_id() {
            Ok(workflow_id) => self.of_target(Target::workflow(workflow_id)),
            Err(why) => panic!("{why}"),
        }
    }

    fn of_target<O>(&self, target: Target) -> WorkflowHandle<O> {
        WorkflowHandle { client: self.clone(), target, output: PhantomData }
    }
}

impl<O> WorkflowHandle<O> {
    /// For the calls of the untyped client. It names the run that was started; [`Client::handle`] names none.
    pub fn target(&self) -> &Target {
        &self.target
    }
    /// The id under which it was started.
    pub fn workflow_id(&self) -> &WorkflowId {
        &self.target.workflow_id
    }
    /// The run that was started; `None` for a handle that means whichever run is the newest.
    pub fn run_id(&self) -> Option<RunId> {
        self.target.run_id
    }

    /// Sends a signal to the newest run; `Ok` when it is durable.
    pub async fn signal<I: Serialize>(&self, signal: Signal<I>, input: &I) -> Result<(), Rejection> {
        self.client.signal(&self.any_run(), signal_of(signal, input)?).await
    }

    /// As [`WorkflowHandle::signal`]; a second signal with the same request id changes nothing (E11).
    pub async fn signal_as<I: Serialize>(
        &self,
        request_id: impl Into<RequestId>,
        signal: Signal<I>,
        input: &I,
    ) -> Result<(), Rejection> {
        let request = SignalRequest { request_id: Some(request_id.into()), ..signal_of(signal, input)? };
        self.client.signal(&self.any_run(), request).await
    }

    /// Asks the newest run, open or closed.
    pub async fn query<I: Serialize, A: DeserializeOwned>(
        &self,
        query: Query<I, A>,
        input: &I,
    ) -> Result<A, MessageError> {
        let input = encode(query.name(), input)?;
        let answer = self.client.query(&self.any_run(), &query.query_name(), input).await?;
        answer.decode().map_err(|why| MessageError::Unreadable { name: query.name(), why })
    }

    /// Sends an update to the newest run and waits for its answer. Each call is an update of its own; a caller that may
    /// have to ask again gives it a name with [`WorkflowHandle::update_as`].
    pub async fn update<I: Serialize, A: DeserializeOwned>(
        &self,
        update: Update<I, A>,
        input: &I,
    ) -> Result<A, MessageError> {
        let update_id = UpdateId::of(self.client.shared.new_run_id().to_string());
        self.update_as(update_id, update, input).await
    }

    /// As [`WorkflowHandle::update`]; a second update of the same id changes nothing and gets the answer of the first
    /// (E14).
    pub async fn update_as<I: Serialize, A: DeserializeOwned>(
        &self,
        update_id: impl Into<UpdateId>,
        update: Update<I, A>,
        input: &I,
    ) -> Result<A, MessageError> {
        let update_id = update_id.into();
        let outcome = self.client.update(&self.any_run(), update_of(update_id.clone(), update, input)?).await?;
        self.answer(update, &update_id, outcome).await
    }

    async fn answer<I, A: DeserializeOwned>(
        &self,
        update: Update<I, A>,
        update_id: &UpdateId,
        mut outcome: UpdateOutcome,
    ) -> Result<A, MessageError> {
        loop {
            match outcome {
                UpdateOutcome::Accepted => {
                    outcome = self.client.update_result(&self.any_run(), update_id).await?;
                }
                UpdateOutcome::Completed(Ok(answer)) => {
                    return answer.decode().map_err(|why| MessageError::Unreadable { name: update.name(), why });
                }
                UpdateOutcome::Completed(Err(failure)) => {
                    return Err(MessageError::Failed { name: update.update_name(), failure });
                }
            }
        }
    }

    /// Asks the newest run to cancel; its code may clean up first.
    pub async fn cancel(&self, reason: impl Into<String>) -> Result<(), Rejection> {
        self.client.cancel(&self.any_run(), reason.into(), None, None).await
    }
    /// Ends the newest run at once; none of its code runs.
    pub async fn terminate(&self, reason: impl Into<String>) -> Result<(), Rejection> {
        self.client.terminate(&self.any_run(), reason.into(), None).await
    }
    /// What is under way in it.
    pub async fn describe(&self) -> Result<Description, Rejection> {
        self.client.describe(&self.any_run()).await
    }

    /// Messages are for the run that is open now, which after continue-as-new is not the one that was started.
    fn any_run(&self) -> Target {
        Target { run_id: None, ..self.target.clone() }
    }
}

impl<O: DeserializeOwned> WorkflowHandle<O> {
    /// Waits for the end, over continue-as-new and retries, as long as it takes. A run that waits for what nobody sends is
    /// waited for without end, also in the test environment: [`WorkflowHandle::describe`] says what it waits for.
    pub async fn result(&self) -> Result<O, WorkflowError> {
        match self.wait(None).await? {
            Some(result) => self.output(result.outcome),
            None => unreachable!("without a limit it is waited for"),
        }
    }
    /// As [`WorkflowHandle::result`]; `None` when the run is still open after this time. It is the time of whoever waits, on a
    /// real clock, also in the test environment: there timers fire while it is waited for, however far ahead they are, and a
    /// second is long. To let workflow time pass, [`TestEnvironment::sleep`](crate::testing::TestEnvironment::sleep).
    pub async fn result_within(&self, limit: Duration) -> Result<Option<O>, WorkflowError> {
        match self.wait(Some(limit)).await? {
            Some(result) => self.output(result.outcome).map(Some),
            None => Ok(None),
        }
    }

    async fn wait(&self, timeout: Option<Duration>) -> Result<Option<RunResult>, Rejection> {
        self.client.result(&self.target, ResultRequest { follow_runs: true, timeout }).await
    }

    fn output(&self, outcome: CloseOutcome) -> Result<O, WorkflowError> {
        let workflow_id = self.target.workflow_id.clone();
        Err(match outcome {
            CloseOutcome::Completed(result) => match result.decode() {
                Ok(output) => return Ok(output),
                Err(why) => WorkflowError::Unreadable { workflow_id, why },
            },
            CloseOutcome::Failed(failure) => WorkflowError::Failed { workflow_id, failure },
            CloseOutcome::Canceled(details) => WorkflowError::Canceled { workflow_id, details },
            CloseOutcome::Terminated { reason } => WorkflowError::Terminated { workflow_id, reason },
            CloseOutcome::TimedOut(timeout) => WorkflowError::TimedOut { workflow_id, timeout },
            CloseOutcome::ContinuedAsNew { new_run } => WorkflowError::ContinuedAsNew { workflow_id, new_run },
        })
    }
}

fn start_of<I: Serialize, O>(
    workflow: Workflow<I, O>,
    workflow_id: impl IntoWorkflowId,
    input: &I,
) -> Result<StartWorkflow, Rejection> {
    let workflow_id = workflow_id
        .into_workflow_id()
        .map_err(|why| Rejection::Invalid { what: format!("the id of {}", workflow.name()), why: why.to_string() })?;
    let input = encode(workflow.name(), input)?;
    Ok(StartWorkflow::new(workflow.workflow_type(), workflow_id).input(input))
}

fn signal_of<I: Serialize>(signal: Signal<I>, input: &I) -> Result<SignalRequest, Rejection> {
    let input = encode(signal.name(), input)?;
    Ok(SignalRequest { name: signal.signal_name(), input, identity: None, request_id: None })
}

fn update_of<I: Serialize, A>(
    update_id: UpdateId,
    update: Update<I, A>,
    input: &I,
) -> Result<UpdateRequest, Rejection> {
    let (name, input) = (update.update_name(), encode(update.name(), input)?);
    Ok(UpdateRequest { update_id, name, input, identity: None, wait: UpdateWait::Completed })
}

fn encode(name: &str, input: &impl Serialize) -> Result<Payload, Rejection> {
    Payload::encode(input)
        .map_err(|why| Rejection::Invalid { what: format!("the input of {name}"), why: why.to_string() })
}
