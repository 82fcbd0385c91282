//! The activities of a batch: to find a page of runs, and to touch each run of a page once.
//!
//! Invariant: whatever is done carries a request id made of the batch and the run, or a reason that names the batch; what an
//! attempt before did is recognised by it, counted, and not done again. A refusal that says nothing about the run (the worker
//! leaves, the disk is full) ends the attempt, and another one begins anew. The edge: it asks the engine it runs in.

use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use bosun_engine::*;
use serde::{Deserialize, Serialize};

use super::order::{BatchAction, BatchFailure, BatchOrder, BatchPage, BatchTarget, PageDone};
use crate::api::people::pages::{Cursor, page_of};
use crate::api::people::{pause_run, resume_run};
use crate::api::{Caller, CallerBackend, tokens};
use crate::backend::{Attribution, Backend, CallError};
use crate::own_work::{may_be_ended, only_in};

/// The activity types.
pub const FIND: &str = "bosun.batch.find";
/// See [`FIND`].
pub const CARRY_OUT: &str = "bosun.batch.carry_out";

/// How far back a history is looked through for what an attempt before has done.
const LOOKS_BACK: u64 = 50;

/// What [`FIND`] is asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FindPage {
    pub order: BatchOrder,
    pub began: Timestamp,
    pub after: Option<String>,
}

/// What [`CARRY_OUT`] is asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CarryOut {
    pub batch: String,
    pub order: BatchOrder,
    pub targets: Vec<BatchTarget>,
}

/// The engine that the activities run in, once it is there. It owns them, so they only point to it.
#[derive(Clone, Default)]
pub struct EngineHere(Arc<OnceLock<Weak<Worker>>>);

impl EngineHere {
    /// The engine has started.
    pub fn is(&self, worker: &Arc<Worker>) {
        // A registry is used for one engine; a second one would be a mistake of ours that harms nobody.
        let _ = self.0.set(Arc::downgrade(worker));
    }

    pub(crate) fn backend(&self) -> Result<Arc<dyn Backend>, ActivityError> {
        let worker = self.0.get().and_then(Weak::upgrade).ok_or_else(|| passing("the worker is not ready"))?;
        Ok(crate::embedded::backend_of(worker))
    }
}

fn passing(why: impl std::fmt::Display) -> ActivityError {
    Failure::application("BatchInterrupted", why.to_string()).into()
}

/// Adds the activities, which ask this engine, and in its directory whether a token still opens anything.
pub fn register(activities: &mut ActivityRegistry, here: &EngineHere, data: &Path) {
    let (engine, directory) = (here.clone(), Arc::<Path>::from(data));
    activities.register(FIND, move |ctx: ActivityContext, asked: FindPage| {
        let (engine, directory) = (engine.clone(), directory.clone());
        async move { find(&ctx, engine.backend()?, &directory, asked).await }
    });
    let (engine, directory) = (here.clone(), Arc::<Path>::from(data));
    activities.register(CARRY_OUT, move |ctx: ActivityContext, asked: CarryOut| {
        let (engine, directory) = (engine.clone(), directory.clone());
        async move { carry_out(&ctx, engine.backend()?, &directory, asked).await }
    });
}

/// Why whoever asked for the batch may do nothing any more, if that is so.
fn taken_back(data: &Path, order: &BatchOrder, now: Timestamp) -> Result<Option<String>, ActivityError> {
    let Some(id) = &order.token else { return Ok(None) };
    // A file that cannot be read opens nothing until it can be.
    let named = tokens::list(data).map_err(passing)?;
    Ok(match named.iter().find(|token| token.id == *id) {
        None => Some(format!("the token {} is revoked", order.by)),
        Some(token) if token.has_expired(now) => Some(format!("the token {} has expired", order.by)),
        Some(_) => None,
    })
}

/// Whoever asked for the batch, in its namespace. Its input is believed only if it came through the door that writes it: a
/// child, a fork with another input, or a run of another type says of itself who asks.
async fn caller(
    ctx: &ActivityContext,
    backend: Arc<dyn Backend>,
    order: &BatchOrder,
) -> Result<CallerBackend, ActivityError> {
    only_in(ctx, super::BATCH)?;
    let task = ctx.task();
    let target =
        Target { namespace: task.namespace.clone(), workflow_id: task.workflow_id.clone(), run_id: Some(task.run_id) };
    let info = backend.describe(target).await.map_err(passing)?.info;
    if info.parent.is_some() || info.forked_from.is_some_and(|from| !from.reset) {
        let why = "a batch is started by itself: as a child or a fork nobody knows who asks for it";
        return Err(Failure::application(super::run::INVALID_BATCH, why).non_retryable().into());
    }
    let namespaces = Some([task.namespace.clone()].into());
    let (name, token) = (order.by.clone(), order.token.clone());
    Ok(CallerBackend::new(backend, Caller { name, role: order.role, namespaces, token }))
}

async fn find(
    ctx: &ActivityContext,
    backend: Arc<dyn Backend>,
    data: &Path,
    asked: FindPage,
) -> Result<BatchPage, ActivityError> {
    let FindPage { order, began, after } = asked;
    let caller = caller(ctx, backend, &order).await?;
    if let stopped @ Some(_) = taken_back(data, &order, caller.now())? {
        return Ok(BatchPage { stopped, ..BatchPage::default() });
    }
    let wrong =
        |why: String| -> ActivityError { Failure::application(super::run::INVALID_BATCH, why).non_retryable().into() };
    let filter = order.filter(&ctx.task().namespace, Some(began)).map_err(|why| wrong(why.to_string()))?;
    let after = after.as_deref().map(Cursor::read).transpose().map_err(|why| wrong(why.message))?;
    let found = page_of(&caller, filter, order.page(), after).await;
    let (runs, next) = found.map_err(|why| match why {
        // A list that cannot be read now is read later.
        CallError::Rejected(why) if !is_passing(&why) && !matches!(why, Rejection::StorageError { .. }) => {
            wrong(why.to_string())
        }
        other => passing(other),
    })?;
    let target = |info: RunInfo| BatchTarget { workflow_id: info.workflow_id, run_id: info.run_id };
    let targets = runs.into_iter().map(target).collect();
    Ok(BatchPage { targets, next: next.map(|next| next.to_string()), stopped: None })
}

async fn carry_out(
    ctx: &ActivityContext,
    backend: Arc<dyn Backend>,
    data: &Path,
    asked: CarryOut,
) -> Result<PageDone, ActivityError> {
    let caller = caller(ctx, backend, &asked.order).await?;
    let mut pace = asked.order.pace().map(tokio::time::interval);
    if let Some(pace) = &mut pace {
        // A run that took long is not made up for by a burst.
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    }
    let mut page = PageDone::default();
    for target in &asked.targets {
        if let Some(pace) = &mut pace {
            tokio::select! {
                _ = pace.tick() => {}
                () = ctx.canceled() => {}
            }
        }
        if ctx.is_canceled() {
            break;
        }
        page.stopped = taken_back(data, &asked.order, caller.now())?;
        if page.stopped.is_some() {
            break;
        }
        let one = |why: String| BatchFailure { workflow_id: target.workflow_id.clone(), run_id: target.run_id, why };
        match touch(&caller, ctx, &asked, target).await? {
            Touched::Done => page.done += 1,
            Touched::Skipped(why) => page.skipped.push(one(why)),
            Touched::Failed(why) => page.failed.push(one(why)),
        }
    }
    Ok(page)
}

/// What became of one run.
#[derive(Debug, PartialEq, Eq)]
enum Touched {
    Done,
    Skipped(String),
    Failed(String),
}

/// Refusals that say nothing about the run that was asked: it is asked again. A full inbox, damage and a failed read are of
/// that run, and do not keep the others waiting.
fn is_passing(why: &Rejection) -> bool {
    matches!(
        why,
        Rejection::ShuttingDown
            | Rejection::StorageFailed { .. }
            | Rejection::StorageFull { .. }
            | Rejection::Overloaded { .. }
    )
}

async fn touch(
    caller: &CallerBackend,
    ctx: &ActivityContext,
    asked: &CarryOut,
    target: &BatchTarget,
) -> Result<Touched, ActivityError> {
    let BatchTarget { workflow_id, run_id } = target;
    if *workflow_id == ctx.task().workflow_id {
        return Ok(Touched::Skipped("it is this batch".to_owned()));
    }
    let to = Target { namespace: ctx.task().namespace.clone(), ..Target::run(workflow_id.clone(), *run_id) };
    if matches!(asked.order.action, BatchAction::Cancel {} | BatchAction::Terminate {})
        && let Err(why) = may_be_ended(caller, &to).await
    {
        return Ok(Touched::Failed(format!("{why}; `bosun schedule delete` deletes it")));
    }
    let because = because(asked, *run_id)?;
    let again = ctx.attempt() > Attempt(1);
    match act(caller, &asked.order.action, to.clone(), because.clone()).await {
        Ok(()) => Ok(Touched::Done),
        Err(CallError::Rejected(why)) if is_passing(&why) => Err(passing(why)),
        Err(CallError::Rejected(Rejection::NotFound { .. })) => Ok(match asked.order.action {
            BatchAction::Delete {} if again => Touched::Done,
            _ => Touched::Skipped("it is not there any more".to_owned()),
        }),
        Err(CallError::Rejected(
            why @ (Rejection::Closed { .. } | Rejection::AlreadyPaused | Rejection::NotPaused),
        )) => {
            let done = again && has_done(caller, &to, &because.reason).await?;
            Ok(if done { Touched::Done } else { Touched::Skipped(why.to_string()) })
        }
        Err(CallError::Refused { message, .. }) => Ok(Touched::Failed(message)),
        Err(why @ CallError::Rejected(_)) => Ok(Touched::Failed(why.to_string())),
        Err(why) => Err(passing(why)),
    }
}

/// The words and the request id by which a run knows that this batch has touched it.
fn because(asked: &CarryOut, run: RunId) -> Result<Attribution, ActivityError> {
    let CarryOut { batch, order, .. } = asked;
    let reason = match order.reason.as_str() {
        "" => batch.clone(),
        reason => format!("{reason} ({batch})"),
    };
    // Long ids fit: an id has a limit, and a hash does not reach it.
    let hash = blake3::hash(format!("{batch} {run}").as_bytes()).to_hex();
    let request_id = RequestId::new(format!("batch:{}", &hash[..32])).map_err(passing)?;
    Ok(Attribution { reason, identity: None, request_id: Some(request_id) })
}

async fn act(caller: &CallerBackend, action: &BatchAction, to: Target, because: Attribution) -> Result<(), CallError> {
    match action {
        BatchAction::Cancel {} => caller.cancel(to, because).await,
        BatchAction::Terminate {} => caller.terminate(to, because).await,
        BatchAction::Pause {} => pause_run(caller, to, because).await,
        BatchAction::Resume {} => resume_run(caller, to, because).await,
        BatchAction::Delete {} => caller.delete(to).await,
        BatchAction::Signal { name, input } => {
            let invalid = |why: String| CallError::from(Rejection::Invalid { what: "signal".into(), why });
            let signal = SignalRequest {
                name: SignalName::new(name).map_err(|why| invalid(why.to_string()))?,
                input: Payload::encode(input).map_err(|why| invalid(why.to_string()))?,
                identity: because.identity,
                request_id: because.request_id,
            };
            caller.signal(to, signal).await
        }
        BatchAction::Reset { to: point, reapply } => {
            let request = ResetRequest {
                reapply: *reapply,
                request_id: because.request_id,
                reason: because.reason,
                ..ResetRequest::new(to, *point)
            };
            caller.reset(request).await.map(drop)
        }
    }
}

/// Whether an attempt before has done it: the last events of the run say so by the reason.
async fn has_done(caller: &CallerBackend, to: &Target, ours: &str) -> Result<bool, ActivityError> {
    let described = caller.describe(to.clone()).await.map_err(passing)?;
    let from = EventId(described.info.history.events.saturating_sub(LOOKS_BACK).max(1));
    let last = usize::try_from(LOOKS_BACK + 1).unwrap_or(usize::MAX);
    let events = caller.history(to.clone(), from, last).await.map_err(passing)?;
    Ok(events.iter().any(|event| match &event.kind {
        EventKind::WorkflowExecutionTerminated { reason, .. }
        | EventKind::WorkflowExecutionPaused { reason, .. }
        | EventKind::WorkflowExecutionUnpaused { reason, .. } => reason == ours,
        _ => false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::TokenRole;
    use crate::api::tokens::NewToken;

    /// Who is let out does no more by a batch than by a call.
    #[test]
    fn a_batch_acts_as_long_as_the_token_opens_something() {
        let data = tempfile::tempdir().unwrap();
        let (role, expires_at) = (TokenRole::Operator, Some(Timestamp(100)));
        let new = NewToken { name: "ann".into(), role, namespaces: None, created_at: Timestamp(1), expires_at };
        tokens::create(data.path(), new).unwrap();
        let id = tokens::list(data.path()).unwrap().remove(0).id;
        let order: BatchOrder = serde_json::from_value(serde_json::json!(
            { "query": "a", "action": { "do": "cancel" }, "by": "ann", "role": "operator", "token": id }
        ))
        .unwrap();
        let told = |order: &BatchOrder, now| taken_back(data.path(), order, Timestamp(now)).unwrap();
        assert_eq!(told(&order, 2), None);
        assert_eq!(told(&order, 100).as_deref(), Some("the token ann has expired"));
        tokens::revoke(data.path(), "ann").unwrap();
        assert_eq!(told(&order, 2).as_deref(), Some("the token ann is revoked"));
        // Whoever opens the directory has none.
        assert_eq!(told(&BatchOrder { token: None, ..order }, 200), None);
    }
}
