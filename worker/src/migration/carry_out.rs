//! The steps of a move, over two engines, whichever they are.
//!
//! Invariant: every step may be done again, by this process or the next: asking a run to leave, beginning, starting it there
//! (known by its memo and its request id), passing on what it has heard (each message has an id of its own), ending it here.
//! So whoever was cut off says the same command again.

use std::time::{Duration, Instant};

use bosun_engine::*;
use serde::Serialize;
use serde_json::json;

use super::run::{BEGIN, KeptSignal, MOVED, MigrationStanding, MovedThere, STANDING, STAY, StayHere};
use crate::agent::next_run::{CAME_FROM, LEAVE, Leave, Leaving, MIGRATION};
use crate::agent::workflow::AGENT;
use crate::backend::{Attribution, Backend, CallError};
use crate::supervisor::PLAN_RUN;
use crate::supervisor::run::SUPERVISOR;

/// The types that can be moved: they go on in new runs with all of their state.
pub(crate) const MOVES: [&str; 4] = [SUPERVISOR, PLAN_RUN, AGENT, MIGRATION];
/// How often somebody looks whether a run has come to its border.
const LOOK: Duration = Duration::from_millis(100);
/// A wish that is taken back may cross with the border.
const CROSSING: Duration = Duration::from_secs(2);

/// A move from one engine to another.
pub(crate) struct Move<'m> {
    pub(crate) here: &'m dyn Backend,
    /// Nothing: there is no store there yet, and only a look is wanted.
    pub(crate) there: Option<&'m dyn Backend>,
    /// What people call it.
    pub(crate) place: &'m str,
    pub(crate) namespace: Namespace,
    /// The task queue there; nothing: as it is called here.
    pub(crate) queue: Option<TaskQueue>,
    /// How long a run may take to come to its border.
    pub(crate) patience: Duration,
    pub(crate) identity: Identity,
}

/// A run that goes on there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) run_id: RunId,
    /// Signals that were passed on.
    pub(crate) heard: usize,
}

/// Why a run stays.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum NotMoved {
    #[error("a run of the type {0} does not go on in new runs by itself: let it end here")]
    OfAnotherType(WorkflowType),
    #[error("it is paused: let it go on first, with `bosun resume`")]
    Paused,
    #[error("{0} has started it, and waits for it here")]
    BelongsTo(WorkflowId),
    #[error("{place} has an open run of this id: {run}")]
    IsThere { place: String, run: RunId },
    #[error("it is on its way to {0}: name that place, or let it stay with --stay")]
    GoesTo(String),
    #[error("{0}")]
    NotAtBorder(String),
    #[error("it has ended")]
    Ended,
    #[error("it is on its way nowhere")]
    GoesNowhere,
    #[error("it goes on at {place} (run {run}): end the move with the same command without --stay")]
    GoesOnThere { place: String, run: RunId },
    #[error("{0}")]
    Call(#[from] CallError),
    #[error(
        "it waits to be moved, and does nothing meanwhile: {0}; say the same command again, or let it stay with --stay"
    )]
    Waits(Box<NotMoved>),
}

/// Moves one run. It may have been begun before.
pub(crate) async fn move_run(of: &Move<'_>, info: &RunInfo) -> Result<Moved, NotMoved> {
    let run = Target { namespace: info.namespace.clone(), workflow_id: info.workflow_id.clone(), run_id: None };
    if info.workflow_type.as_str() != MIGRATION {
        of.may_leave(info).await?;
        of.leave(&run).await?;
    }
    let here = of.here.describe(run.clone()).await?.info;
    if !here.status.is_open() {
        return Err(NotMoved::Ended);
    }
    let run = Target { run_id: Some(here.run_id), ..run };
    moved(of, &here, &run).await.map_err(|why| NotMoved::Waits(Box::new(why)))
}

/// Moves a run that waits for it.
async fn moved(of: &Move<'_>, here: &RunInfo, run: &Target) -> Result<Moved, NotMoved> {
    of.update(run, BEGIN.to_owned(), BEGIN, &json!({})).await?;
    loop {
        let standing = of.standing(run).await?;
        if standing.leaving.to != of.place {
            return Err(NotMoved::GoesTo(standing.leaving.to));
        }
        let there = of.started_there(here, &standing.leaving).await?;
        of.pass_on(here, there, &standing).await?;
        let (heard, cancel) = (standing.heard.len(), standing.cancel.is_some());
        let moved = MovedThere { run_id: there.to_string(), heard, cancel };
        match of.update(run, format!("{MOVED}-{heard}-{cancel}"), MOVED, &moved).await {
            Ok(()) => return Ok(Moved { run_id: there, heard }),
            // Something came meanwhile.
            Err(CallError::Rejected(Rejection::UpdateRefused { .. })) => {}
            Err(why) => return Err(why.into()),
        }
    }
}

/// Lets a run stay that waits to be moved.
pub(crate) async fn stay(of: &Move<'_>, info: &RunInfo) -> Result<(), NotMoved> {
    if info.workflow_type.as_str() != MIGRATION {
        return Err(NotMoved::GoesNowhere);
    }
    let run =
        Target { namespace: info.namespace.clone(), workflow_id: info.workflow_id.clone(), run_id: Some(info.run_id) };
    let standing = of.standing(&run).await?;
    if standing.leaving.to != of.place {
        return Err(NotMoved::GoesTo(standing.leaving.to));
    }
    if let Some(there) = of.found_there(info).await?.filter(|there| came_from(there, info)) {
        return Err(NotMoved::GoesOnThere { place: of.place.to_owned(), run: there.run_id });
    }
    of.update(&run, STAY.to_owned(), STAY, &StayHere { is_not_there: true }).await?;
    Ok(())
}

/// Whether it is the run that was moved from here.
fn came_from(there: &RunInfo, here: &RunInfo) -> bool {
    let note = there.memo.get(&FieldName::of(CAME_FROM)).and_then(|note| note.decode::<String>().ok());
    note.is_some_and(|note| note == here.run_id.to_string())
}

impl Move<'_> {
    fn because(&self) -> Attribution {
        let reason = format!("migrate to {}", self.place);
        Attribution { reason, identity: Some(self.identity.clone()), request_id: None }
    }

    fn there(&self) -> Result<&dyn Backend, CallError> {
        let nothing = || Rejection::Invalid { what: self.place.to_owned(), why: "there is no store yet".to_owned() };
        self.there.ok_or_else(|| nothing().into())
    }

    /// What tells before anything is asked that it cannot be moved.
    pub(crate) async fn may_leave(&self, info: &RunInfo) -> Result<(), NotMoved> {
        if !MOVES.contains(&info.workflow_type.as_str()) {
            return Err(NotMoved::OfAnotherType(info.workflow_type.clone()));
        }
        if info.status == WorkflowStatus::Paused {
            return Err(NotMoved::Paused);
        }
        if let Some(parent) = &info.parent {
            return Err(NotMoved::BelongsTo(parent.workflow_id.clone()));
        }
        match self.found_there(info).await? {
            Some(there) if there.status.is_open() => {
                Err(NotMoved::IsThere { place: self.place.to_owned(), run: there.run_id })
            }
            _ => Ok(()),
        }
    }

    /// Asks the run to come to its border, and waits for it there.
    async fn leave(&self, run: &Target) -> Result<(), NotMoved> {
        self.say(run, &Leave { to: self.place.to_owned() }).await?;
        if self.waits_to_be_moved(run, self.patience).await? {
            return Ok(());
        }
        self.say(run, &json!({ "to": "" })).await?;
        if self.waits_to_be_moved(run, CROSSING).await? {
            return Ok(());
        }
        Err(NotMoved::NotAtBorder(is_at(&self.here.describe(run.clone()).await?)))
    }

    async fn say(&self, run: &Target, what: &impl Serialize) -> Result<(), CallError> {
        let signal = SignalRequest {
            name: SignalName::of(LEAVE),
            input: Payload::encode(what).map_err(unusable)?,
            identity: Some(self.identity.clone()),
            request_id: None,
        };
        self.here.signal(run.clone(), signal).await
    }

    async fn waits_to_be_moved(&self, run: &Target, patience: Duration) -> Result<bool, NotMoved> {
        let began = Instant::now();
        loop {
            let info = self.here.describe(run.clone()).await?.info;
            if info.workflow_type.as_str() == MIGRATION {
                return Ok(true);
            }
            if !info.status.is_open() && info.next_run.is_none() {
                return Err(NotMoved::Ended);
            }
            if began.elapsed() > patience {
                return Ok(false);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn standing(&self, run: &Target) -> Result<MigrationStanding, CallError> {
        let told = self.here.query(run.clone(), QueryName::of(STANDING), Payload::null()).await?;
        told.decode().map_err(unusable)
    }

    async fn update(&self, run: &Target, id: String, name: &str, input: &impl Serialize) -> Result<(), CallError> {
        let request = UpdateRequest {
            update_id: UpdateId::of(id),
            name: UpdateName::of(name),
            input: Payload::encode(input).map_err(unusable)?,
            identity: Some(self.identity.clone()),
            wait: UpdateWait::Completed,
        };
        self.here.update(run.clone(), request).await.map(drop)
    }

    /// The newest run of the id there.
    async fn found_there(&self, info: &RunInfo) -> Result<Option<RunInfo>, CallError> {
        let id = Target { namespace: self.namespace.clone(), workflow_id: info.workflow_id.clone(), run_id: None };
        let Some(there) = self.there else { return Ok(None) };
        match there.describe(id).await {
            Ok(found) => Ok(Some(found.info)),
            Err(CallError::Rejected(Rejection::NotFound { .. })) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Starts the run there, if it has not been.
    async fn started_there(&self, here: &RunInfo, leaving: &Leaving) -> Result<RunId, NotMoved> {
        match self.found_there(here).await? {
            Some(there) if came_from(&there, here) => return Ok(there.run_id),
            Some(there) if there.status.is_open() => {
                return Err(NotMoved::IsThere { place: self.place.to_owned(), run: there.run_id });
            }
            _ => {}
        }
        let first = Target {
            namespace: here.namespace.clone(),
            workflow_id: here.workflow_id.clone(),
            run_id: Some(here.run_id),
        };
        let events = self.here.history(first, EventId(1), 1).await?;
        let began = events.into_iter().next().map(|event| event.kind);
        let Some(EventKind::WorkflowExecutionStarted(began)) = began else { return Err(NotMoved::Ended) };
        let mut memo = here.memo.clone();
        memo.insert(FieldName::of(CAME_FROM), Payload::encode(&here.run_id.to_string()).map_err(unusable)?);
        let left = |at: Timestamp| at.since(Timestamp::ZERO.plus(since_1970())).max(Duration::from_secs(1));
        let start = StartWorkflow {
            namespace: self.namespace.clone(),
            task_queue: self.queue.clone().unwrap_or(began.task_queue),
            execution_timeout: began.execution_deadline.map(left),
            run_timeout: began.run_timeout,
            retry_policy: began.retry_policy,
            id_reuse_policy: IdReusePolicy::AllowDuplicate,
            memo,
            search_attributes: here.search_attributes.clone(),
            request_id: Some(RequestId::of(format!("migrate-{}", here.run_id))),
            identity: Some(self.identity.clone()),
            summary: here.summary.clone(),
            details: here.details.clone(),
            priority: began.priority,
            ..StartWorkflow::new(WorkflowType::of(&leaving.workflow_type), here.workflow_id.clone())
        };
        let start = start.input(Payload::encode(&leaving.input).map_err(unusable)?);
        Ok(self.there()?.start(start).await?.run_id)
    }

    /// What was said to it here while it waited.
    async fn pass_on(&self, here: &RunInfo, there: RunId, standing: &MigrationStanding) -> Result<(), CallError> {
        let (namespace, workflow_id) = (self.namespace.clone(), here.workflow_id.clone());
        // It may go on in a new run there before all of it has arrived.
        let run = Target { namespace, workflow_id, run_id: None };
        for (i, KeptSignal { name, input }) in standing.heard.iter().enumerate() {
            let signal = SignalRequest {
                name: name.clone(),
                input: input.clone(),
                identity: Some(self.identity.clone()),
                request_id: Some(RequestId::of(format!("migrate-{}-{i}", here.run_id))),
            };
            over_or(self.there()?.signal(run.clone(), signal).await)?;
        }
        if standing.cancel.is_some() {
            let request_id = Some(RequestId::of(format!("migrate-{}-cancel", here.run_id)));
            let reason = standing.cancel.clone().unwrap_or_default();
            over_or(self.there()?.cancel(run, Attribution { reason, request_id, ..self.because() }).await)?;
        }
        tracing::debug!(workflow_id = %here.workflow_id, %there, heard = standing.heard.len(), "passed on");
        Ok(())
    }
}

fn unusable(why: PayloadError) -> CallError {
    Rejection::Invalid { what: "what is moved".to_owned(), why: why.to_string() }.into()
}

fn since_1970() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// A run that has ended there meanwhile needs nothing more.
fn over_or(said: Result<(), CallError>) -> Result<(), CallError> {
    match said {
        Err(CallError::Rejected(Rejection::Closed { .. })) => Ok(()),
        said => said,
    }
}

/// What keeps a run from its border.
fn is_at(found: &Description) -> String {
    if let Some(why) = &found.held {
        return format!("it is held: {why}");
    }
    if let Some(activity) = found.pending_activities.first() {
        let (id, activity_type) = (&activity.activity_id, &activity.activity_type);
        return format!(
            "its activity {id} ({activity_type}) has not ended: try again later, or wait longer with --wait"
        );
    }
    if let Some(child) = found.pending_children.first() {
        return format!("its run below, {}, has not ended", child.workflow_id);
    }
    if found.starts_at.is_some() {
        return "it has not begun: its start was delayed".to_owned();
    }
    "it has not come to where it can go on in another run: no worker runs, or people are asked in the midst of a call"
        .to_owned()
}
