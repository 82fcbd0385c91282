//! Requests of simulated clients, and what they were answered.
//!
//! Invariant: a request that was answered is never forgotten, also over crashes: what was promised is looked for until
//! the end of the life. A request in flight when the worker dies is never answered; its client does not know.

use std::sync::{Arc, Mutex, PoisonError};

use bosun_engine::activity::TaskToken;
use bosun_engine::testing::Stepped;
use bosun_engine::*;

/// What a client asks for.
#[derive(Debug, Clone)]
pub(super) enum ClientRequest {
    Start { start: Box<StartWorkflow>, signal: Option<SignalRequest> },
    Signal { target: Target, signal: SignalRequest },
    Update { target: Target, update: UpdateRequest },
    Query { target: Target, name: QueryName, input: Payload },
    Describe { target: Target },
    Result { target: Target },
    Cancel { target: Target, request_id: RequestId },
    Terminate { target: Target },
    Pause { target: Target },
    Unpause { target: Target },
    PauseActivity { target: Target, activity: ActivityId },
    UnpauseActivity { target: Target, activity: ActivityId },
    Complete { token: TaskToken, completion: ActivityCompletion },
    Reset(Box<ResetRequest>),
    ChangeActivity { target: Target, activity: ActivityId, update: Box<ActivityUpdate> },
    Delete { target: Target },
}

/// A good answer.
#[derive(Debug, Clone)]
pub(super) enum ClientReply {
    Done,
    Started(Started),
    Updated(UpdateOutcome),
    Queried,
    Described(Box<Description>),
    Ended(RunResult),
    Reset(Box<ResetDone>),
}

impl ClientReply {
    /// The run that was started, or goes on after a reset.
    pub(super) fn run_made(&self) -> Option<RunId> {
        match self {
            ClientReply::Started(started) => Some(started.run_id),
            ClientReply::Reset(done) => done.run_id,
            _ => None,
        }
    }
}

pub(super) type Answer = Result<ClientReply, Rejection>;

/// A request, from its sending to the end of the life.
#[derive(Debug, Clone)]
pub(super) struct SentRequest {
    pub(super) ask: ClientRequest,
    pub(super) sent: u64,
    pub(super) answer: Option<Answer>,
    /// The step at which the answer was seen.
    pub(super) answered: u64,
    /// The life of the worker it was sent to.
    pub(super) incarnation: u32,
}

/// Answers that have arrived and were not looked at yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrived(Arc<Mutex<Vec<(usize, Answer)>>>);

impl Arrived {
    pub(super) fn take(&self) -> Vec<(usize, Answer)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
    /// Sends a request; its answer will arrive here under its number.
    pub(super) fn send(&self, worker: &Stepped, number: usize, ask: ClientRequest) {
        let (client, arrived) = (worker.client(), self.0.clone());
        worker.spawn(async move {
            let answer = carry_out(&client, ask).await;
            arrived.lock().unwrap_or_else(PoisonError::into_inner).push((number, answer));
        });
        worker.tasks();
    }
}

async fn carry_out(client: &Client, ask: ClientRequest) -> Answer {
    let reason = || "simulated".to_owned();
    Ok(match ask {
        ClientRequest::Start { start, signal: None } => ClientReply::Started(client.start(*start).await?),
        ClientRequest::Start { start, signal: Some(signal) } => {
            ClientReply::Started(client.signal_with_start(*start, signal).await?)
        }
        ClientRequest::Signal { target, signal } => done(client.signal(&target, signal).await?),
        ClientRequest::Update { target, update } => ClientReply::Updated(client.update(&target, update).await?),
        ClientRequest::Query { target, name, input } => {
            client.query(&target, &name, input).await?;
            ClientReply::Queried
        }
        ClientRequest::Describe { target } => ClientReply::Described(Box::new(client.describe(&target).await?)),
        ClientRequest::Result { target } => {
            let request = ResultRequest { follow_runs: false, timeout: None };
            match client.result(&target, request).await? {
                Some(ended) => ClientReply::Ended(ended),
                None => ClientReply::Done,
            }
        }
        ClientRequest::Cancel { target, request_id } => {
            done(client.cancel(&target, reason(), None, Some(request_id)).await?)
        }
        ClientRequest::Terminate { target } => done(client.terminate(&target, reason(), None).await?),
        ClientRequest::Pause { target } => done(client.pause(&target, reason(), None).await?),
        ClientRequest::Unpause { target } => done(client.unpause(&target, reason(), None).await?),
        ClientRequest::PauseActivity { target, activity } => {
            done(client.pause_activity(&target, &activity, reason(), None).await?)
        }
        ClientRequest::UnpauseActivity { target, activity } => {
            done(client.unpause_activity(&target, &activity, None).await?)
        }
        ClientRequest::Complete { token, completion } => done(client.complete_activity(token, completion).await?),
        ClientRequest::Reset(request) => ClientReply::Reset(Box::new(client.reset(*request).await?)),
        ClientRequest::ChangeActivity { target, activity, update } => {
            done(client.update_activity(&target, &activity, *update, reason(), None).await?)
        }
        // Deleted where it is asked for.
        ClientRequest::Delete { .. } => ClientReply::Done,
    })
}

fn done((): ()) -> ClientReply {
    ClientReply::Done
}

impl ClientRequest {
    /// The workflow id it is about, if it names one.
    pub(super) fn workflow_id(&self) -> Option<&WorkflowId> {
        match self {
            ClientRequest::Start { start, .. } => Some(&start.workflow_id),
            ClientRequest::Signal { target, .. }
            | ClientRequest::Update { target, .. }
            | ClientRequest::Query { target, .. }
            | ClientRequest::Describe { target }
            | ClientRequest::Result { target }
            | ClientRequest::Cancel { target, .. }
            | ClientRequest::Terminate { target }
            | ClientRequest::Pause { target }
            | ClientRequest::Unpause { target }
            | ClientRequest::PauseActivity { target, .. }
            | ClientRequest::UnpauseActivity { target, .. }
            | ClientRequest::ChangeActivity { target, .. }
            | ClientRequest::Delete { target } => Some(&target.workflow_id),
            ClientRequest::Reset(request) => Some(&request.target.workflow_id),
            ClientRequest::Complete { .. } => None,
        }
    }
    /// The request id by which history remembers it.
    pub(super) fn request_id(&self) -> Option<&RequestId> {
        match self {
            ClientRequest::Start { signal: Some(signal), .. } | ClientRequest::Signal { signal, .. } => {
                signal.request_id.as_ref()
            }
            ClientRequest::Cancel { request_id, .. } => Some(request_id),
            _ => None,
        }
    }
    /// Whether it can be sent again without meaning something else.
    pub(super) fn is_repeatable(&self) -> bool {
        matches!(
            self,
            ClientRequest::Start { .. }
                | ClientRequest::Signal { .. }
                | ClientRequest::Cancel { .. }
                | ClientRequest::Update { .. }
                | ClientRequest::Reset(_)
        )
    }
}

/// Whether a refusal leaves open what the log holds: the worker was leaving when it was given.
pub(super) fn is_passing(why: &Rejection) -> bool {
    matches!(
        why,
        Rejection::ShuttingDown
            | Rejection::StorageFailed { .. }
            | Rejection::StorageFull { .. }
            | Rejection::StorageError { .. }
            | Rejection::Held { .. }
    )
}
