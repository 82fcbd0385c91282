//! What a caller may do, at the one place that every request goes through: a backend that asks first, and writes down who.
//!
//! Invariant: it stands before the backend of the API and of the command line alike, so that there is no way around it. A
//! run of a namespace that the caller may not see is a run that is not there. Who did something is the caller's name,
//! whatever the request says; what it says of itself is kept beside it, as its own words. It decides nothing about runs.
//!
//! Long: each method of a backend stands here, and asks first.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use bosun_engine::filter::Filter;
use bosun_engine::*;
use serde_json::Value;

use super::caller::{Caller, TokenRole};
use crate::agent::next_run::CAME_FROM;
use crate::backend::*;
use crate::batch::{BATCH, BatchOrder};
use crate::filter_text::literal;
use crate::notify::{self, NOTIFICATION};
use crate::own_work::may_have_id;
use crate::schedule::SCHEDULE;
// The engine has a `EngineHealth` of its own.
use crate::backend::EngineHealth;
use crate::supervisor::core::control;
use crate::supervisor::people::signature::{OF_RUNS, is_answer, signature_of};

/// The status and code of what a caller may not do.
pub const FORBIDDEN: (u16, &str) = (403, "forbidden");

/// A backend as one caller has it.
#[derive(Clone)]
pub struct CallerBackend {
    backend: Arc<dyn Backend>,
    caller: Caller,
}

impl CallerBackend {
    pub fn new(backend: Arc<dyn Backend>, caller: Caller) -> Self {
        CallerBackend { backend, caller }
    }

    /// [`Caller::namespace_of_new`].
    pub(crate) fn namespace_of_new(&self, named: Option<Namespace>) -> Namespace {
        self.caller.namespace_of_new(named)
    }

    /// What the caller may do.
    pub(crate) fn role(&self) -> TokenRole {
        self.caller.role
    }

    /// The one namespace that the caller may see, if it is one.
    pub(crate) fn only_namespace(&self) -> Option<&Namespace> {
        self.caller.only_namespace()
    }

    /// Whether the caller's token is for every namespace.
    pub(crate) fn sees_all(&self) -> bool {
        self.caller.namespaces.is_none()
    }

    /// A start as it reaches the engine: what the history says that this caller has asked for.
    pub(crate) fn start_as_sent(&self, request: StartWorkflow) -> Result<StartWorkflow, CallError> {
        CallerBackend::start(self, request)
    }

    /// A signal as it reaches the engine.
    pub(crate) fn signal_as_sent(&self, signal: SignalRequest) -> Result<SignalRequest, CallError> {
        CallerBackend::signal(self, signal)
    }

    /// An update as it reaches the engine.
    pub(crate) fn update_as_sent(&self, update: UpdateRequest) -> Result<UpdateRequest, CallError> {
        CallerBackend::update(self, update)
    }

    fn needs(&self, role: TokenRole) -> Result<(), CallError> {
        if self.caller.role >= role {
            return Ok(());
        }
        Err(forbidden(format!("this needs the role {role}; the token {} has {}", self.caller.name, self.caller.role)))
    }

    /// A namespace that this caller may not see is none.
    fn may(&self, role: TokenRole, target: &Target) -> Result<(), CallError> {
        self.needs(role)?;
        if self.caller.sees(&target.namespace) {
            return Ok(());
        }
        Err(Rejection::NotFound { workflow_id: target.workflow_id.clone(), run_id: target.run_id }.into())
    }

    /// Where something new may be.
    fn may_use(&self, role: TokenRole, namespace: &Namespace) -> Result<(), CallError> {
        self.needs(role)?;
        if self.caller.sees(namespace) {
            return Ok(());
        }
        Err(forbidden(format!("the token {} is not for the namespace {namespace}", self.caller.name)))
    }

    /// What concerns the store as a whole is not for who sees a part of it.
    fn whole(&self, role: TokenRole) -> Result<(), CallError> {
        self.needs(role)?;
        match self.caller.namespaces {
            None => Ok(()),
            Some(_) => Err(forbidden(format!("the token {} is for some namespaces only", self.caller.name))),
        }
    }

    /// A list filter that lets through what the caller may see.
    fn seen(&self, query: String) -> Result<String, CallError> {
        self.needs(TokenRole::Viewer)?;
        let Some(only) = &self.caller.namespaces else { return Ok(query) };
        within(&query, only.iter())
    }

    fn start(&self, mut request: StartWorkflow) -> Result<StartWorkflow, CallError> {
        self.may_use(TokenRole::Operator, &request.namespace)?;
        request.identity = Some(self.caller.identity(request.identity.as_ref()));
        let notifies = request.workflow_id.as_str().starts_with(notify::ID_PREFIX);
        if request.memo.keys().any(|name| name.as_str() == CAME_FROM) {
            // It brings a state that no run here has left.
            self.may_use(TokenRole::Owner, &request.namespace)?;
        }
        match request.workflow_type.as_str() {
            // Whoever takes the id of a notification keeps people from being told.
            _ if notifies => return Err(forbidden("ids of notifications are the worker's".to_owned())),
            BATCH => request.input = self.batch(&request.input)?,
            NOTIFICATION => {
                return Err(forbidden(format!("a worker alone starts a {NOTIFICATION}: it speaks in its name")));
            }
            _ => {}
        }
        may_have_id(&request.workflow_id, &request.workflow_type)?;
        Ok(request)
    }

    /// A batch does what its caller may do, and says who that is.
    fn batch(&self, input: &Payload) -> Result<Payload, CallError> {
        let invalid = |why: String| Rejection::Invalid { what: "batch".into(), why };
        let order: BatchOrder = input.decode().map_err(|why| invalid(why.to_string()))?;
        self.needs(order.action.role())?;
        order.check_says_which()?;
        order.check()?;
        let Caller { name: by, role, token, .. } = self.caller.clone();
        let order = BatchOrder { by, role, token, carried: None, ..order };
        Ok(Payload::encode(&order).map_err(|why| invalid(why.to_string()))?)
    }

    /// A fork whose history tells only of what happened here, and of what its caller says in their own name.
    fn fork(&self, mut request: ForkRequest) -> Result<ForkRequest, CallError> {
        self.may_use(TokenRole::Operator, &request.namespace)?;
        match &request.source {
            ForkSource::Run(source) => self.may(TokenRole::Operator, source)?,
            // It says of itself who approved what, and would be believed.
            ForkSource::History(_) => self.needs(TokenRole::Owner)?,
        }
        for change in &mut request.changes {
            if let ForkChange::Signal { name, input, .. } = change {
                of_people(name.as_str())?;
                *input = self.signed(name.as_str(), std::mem::take(input), request.identity.as_ref());
            }
        }
        request.identity = Some(self.caller.identity(request.identity.as_ref()));
        Ok(request)
    }

    fn signal(&self, mut signal: SignalRequest) -> Result<SignalRequest, CallError> {
        of_people(signal.name.as_str())?;
        self.needs(role_of(signal.name.as_str()))?;
        signal.input = self.signed(signal.name.as_str(), signal.input, signal.identity.as_ref());
        signal.identity = Some(self.caller.identity(signal.identity.as_ref()));
        Ok(signal)
    }

    fn update(&self, mut update: UpdateRequest) -> Result<UpdateRequest, CallError> {
        self.needs(role_of(update.name.as_str()))?;
        update.input = self.signed(update.name.as_str(), update.input, update.identity.as_ref());
        update.identity = Some(self.caller.identity(update.identity.as_ref()));
        Ok(update)
    }

    fn because(&self, because: Attribution) -> Attribution {
        Attribution { identity: Some(self.caller.identity(because.identity.as_ref())), ..because }
    }

    /// The part of a message that says who answers or asks: the caller, and as a comment whom the request names.
    fn signed(&self, name: &str, input: Payload, identity: Option<&Identity>) -> Payload {
        let Some((who, words)) = signature_of(name) else { return input };
        let mut value = input.to_json();
        if value.is_null() && words == Some("reason") {
            // A signal of control may say nothing; who sends it is known all the same.
            value = Value::Object(serde_json::Map::new());
        }
        let Value::Object(object) = &mut value else { return input };
        // Only a run says that it comes from the one above, which has noted whose it was.
        object.remove("from_parent");
        // The two forms of an answer to an approval: a supervisor's and an agent's.
        let (who, words) = if object.contains_key("hash") { ("by", Some("reason")) } else { (who, words) };
        let says = object.get(who).and_then(Value::as_str).unwrap_or_default().to_owned();
        let known = says.is_empty() || says == self.caller.name || identity.is_some_and(|own| own.as_str() == says);
        let mut sender = self.caller.name.clone();
        if !known && matches!(name, control::PAUSE | control::RESUME | control::CANCEL) {
            // The reason is told word for word (SHN-62): whom the request names stands beside who is known.
            sender = format!("{sender}, for {says}");
        } else if !known && let Some(words) = words {
            let more = object.get(words).and_then(Value::as_str).filter(|text| !text.is_empty());
            let comment = more.map_or_else(|| format!("by {says}"), |text| format!("by {says}: {text}"));
            object.insert(words.to_owned(), comment.into());
        }
        object.insert(who.to_owned(), sender.into());
        // What was JSON stays so.
        Payload::encode(&value).unwrap_or(input)
    }

    /// The run of a task token, as far as the caller may see it.
    async fn may_complete(&self, token: TaskToken) -> Result<(), CallError> {
        self.needs(TokenRole::Operator)?;
        if self.caller.namespaces.is_none() && self.caller.role >= TokenRole::Owner {
            return Ok(());
        }
        let query = format!("RunId = '{}'", token.run_id);
        let query = self.caller.namespaces.as_ref().map_or(Ok(query.clone()), |only| within(&query, only.iter()))?;
        match self.backend.list(ListRequest { query, limit: 1 }).await?.first() {
            Some(info) => self.for_batch(&info.workflow_type),
            None => Err(Rejection::UnknownActivity { activity: token.to_string() }.into()),
        }
    }

    /// A batch acts with the role of whoever asked for it, and a notification speaks for the worker: only the owner says what
    /// one does again, or what it has found.
    fn for_batch(&self, workflow_type: &WorkflowType) -> Result<(), CallError> {
        if [BATCH, NOTIFICATION].contains(&workflow_type.as_str()) { self.needs(TokenRole::Owner) } else { Ok(()) }
    }

    /// As [`for_batch`](Self::for_batch), for a run that goes back or is copied. Its type.
    async fn may_repeat(&self, target: &Target) -> Result<WorkflowType, CallError> {
        self.may(TokenRole::Operator, target)?;
        let workflow_type = self.backend.describe(target.clone()).await?.info.workflow_type;
        self.for_batch(&workflow_type).map(|()| workflow_type)
    }
}

/// A copy of a schedule is a second one of the same name: each time would be started twice, and its verbs would reach one of
/// them. A copy of a batch would act for someone of whom nobody knows who they are.
fn may_be_forked(workflow_type: &WorkflowType) -> Result<(), CallError> {
    let (code, message) = match workflow_type.as_str() {
        SCHEDULE => (
            "is_schedule",
            "a schedule is not forked: both would start each time, under one name. `bosun schedule describe` shows it, and \
             `bosun schedule create` makes another one",
        ),
        BATCH => (
            "is_batch",
            "a batch is not forked: a fork says of itself who asks for it. A new one takes the same filter, by the same verb \
             with --query",
        ),
        _ => return Ok(()),
    };
    Err(CallError::Refused { status: 409, code: code.to_owned(), message: message.to_owned() })
}

/// A schedule that goes back does not know any more what it has started, and starts it again.
fn may_be_reset(workflow_type: &WorkflowType) -> Result<(), CallError> {
    if workflow_type.as_str() != SCHEDULE {
        return Ok(());
    }
    let message = "a schedule is not reset: it would start again what it has started. `bosun schedule update` changes it, and \
                   `bosun schedule backfill` starts times that it has missed";
    Err(CallError::Refused { status: 409, code: "is_schedule".to_owned(), message: message.to_owned() })
}

/// Whether a signal is one that anybody but a run sends.
fn of_people(name: &str) -> Result<(), CallError> {
    if !OF_RUNS.contains(&name) {
        return Ok(());
    }
    Err(forbidden(format!(
        "{name} is a signal of runs to each other: nobody else sends it. People answer with `bosun approval` and \
         `bosun plan`, or the updates `respond_approval`, `respond_interrupt` and `approve_plan`"
    )))
}

fn forbidden(message: String) -> CallError {
    let (status, code) = FORBIDDEN;
    CallError::Refused { status, code: code.to_owned(), message }
}

/// Who may send a message of this name.
fn role_of(name: &str) -> TokenRole {
    if is_answer(name) { TokenRole::Approver } else { TokenRole::Operator }
}

/// A list filter within namespaces.
///
/// # Errors
/// The filter cannot be read.
pub fn within<'n>(query: &str, namespaces: impl Iterator<Item = &'n Namespace>) -> Result<String, CallError> {
    let invalid = |why: String| Rejection::Invalid { what: format!("list filter {query:?}"), why };
    let names: Vec<String> = namespaces.map(|name| literal(name.as_str())).collect();
    let only =
        Filter::parse(&format!("Namespace IN ({})", names.join(", "))).map_err(|why| invalid(why.to_string()))?;
    let query = Filter::parse(query).map_err(|why| invalid(why.to_string()))?;
    Ok(query.and(only).to_string())
}

/// A call that is made when what comes before it lets it.
macro_rules! ask {
    ($self:ident, $before:expr, $backend:ident => $call:expr) => {
        Box::pin(async move {
            $before;
            let $backend = &$self.backend;
            $call.await
        })
    };
}

impl Backend for CallerBackend {
    fn looks_at_holds(&self) -> bool {
        self.backend.looks_at_holds()
    }
    fn finds_single_events(&self) -> bool {
        self.backend.finds_single_events()
    }
    fn start(&self, request: StartWorkflow) -> Reply<'_, Started> {
        Box::pin(async move { self.backend.start(CallerBackend::start(self, request)?).await })
    }
    fn fork(&self, request: ForkRequest) -> Reply<'_, Forked> {
        Box::pin(async move {
            let request = CallerBackend::fork(self, request)?;
            match &request.source {
                ForkSource::Run(source) => {
                    let workflow_type = self.may_repeat(source).await?;
                    may_be_forked(&workflow_type)?;
                    may_have_id(&request.workflow_id, &workflow_type)?;
                }
                ForkSource::History(turns) => {
                    let started = turns.iter().flat_map(|turn| &turn.events).find_map(|event| match event {
                        EventKind::WorkflowExecutionStarted(started) => Some(&started.workflow_type),
                        _ => None,
                    });
                    if let Some(workflow_type) = started {
                        may_be_forked(workflow_type)?;
                        may_have_id(&request.workflow_id, workflow_type)?;
                    }
                }
            }
            self.backend.fork(request).await
        })
    }
    fn reset(&self, request: ResetRequest) -> Reply<'_, ResetDone> {
        Box::pin(async move {
            may_be_reset(&self.may_repeat(&request.target).await?)?;
            let identity = Some(self.caller.identity(request.identity.as_ref()));
            self.backend.reset(ResetRequest { identity, ..request }).await
        })
    }
    fn signal(&self, target: Target, signal: SignalRequest) -> Reply<'_, ()> {
        Box::pin(async move {
            self.may(TokenRole::Viewer, &target)?;
            let signal = CallerBackend::signal(self, signal)?;
            self.backend.signal(target, signal).await
        })
    }
    fn signal_with_start(&self, request: StartWorkflow, signal: SignalRequest) -> Reply<'_, Started> {
        Box::pin(async move {
            let (request, signal) = (CallerBackend::start(self, request)?, CallerBackend::signal(self, signal)?);
            self.backend.signal_with_start(request, signal).await
        })
    }
    fn update(&self, target: Target, update: UpdateRequest) -> Reply<'_, UpdateOutcome> {
        Box::pin(async move {
            self.may(TokenRole::Viewer, &target)?;
            let update = CallerBackend::update(self, update)?;
            self.backend.update(target, update).await
        })
    }
    fn update_with_start(&self, request: StartWorkflow, update: UpdateRequest) -> Reply<'_, (Started, UpdateOutcome)> {
        Box::pin(async move {
            let (request, update) = (CallerBackend::start(self, request)?, CallerBackend::update(self, update)?);
            self.backend.update_with_start(request, update).await
        })
    }
    fn update_result(&self, target: Target, update: UpdateId) -> Reply<'_, UpdateOutcome> {
        ask!(self, self.may(TokenRole::Viewer, &target)?, to => to.update_result(target, update))
    }
    fn query(&self, target: Target, name: QueryName, input: Payload) -> Reply<'_, Payload> {
        ask!(self, self.may(TokenRole::Viewer, &target)?, to => to.query(target, name, input))
    }
    fn cancel(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        ask!(self, self.may(TokenRole::Operator, &target)?, to => to.cancel(target, self.because(because)))
    }
    fn terminate(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        ask!(self, self.may(TokenRole::Operator, &target)?, to => to.terminate(target, self.because(because)))
    }
    fn pause(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        ask!(self, self.may(TokenRole::Operator, &target)?, to => to.pause(target, self.because(because)))
    }
    fn unpause(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        ask!(self, self.may(TokenRole::Operator, &target)?, to => to.unpause(target, self.because(because)))
    }
    fn pause_activity(&self, target: Target, activity: ActivityId, because: Attribution) -> Reply<'_, ()> {
        ask!(self, self.may(TokenRole::Operator, &target)?, to => to.pause_activity(target, activity, self.because(because)))
    }
    fn unpause_activity(&self, target: Target, activity: ActivityId, because: Attribution) -> Reply<'_, ()> {
        ask!(self, self.may(TokenRole::Operator, &target)?, to => to.unpause_activity(target, activity, self.because(because)))
    }
    fn update_activity(&self, target: Target, activity: ActivityId, asked: ActivityAsked) -> Reply<'_, ()> {
        let asked = ActivityAsked { because: self.because(asked.because), ..asked };
        ask!(self, self.may(TokenRole::Operator, &target)?, to => to.update_activity(target, activity, asked))
    }
    fn complete_activity(&self, token: TaskToken, completion: ActivityCompletion) -> Reply<'_, ()> {
        ask!(self, self.may_complete(token).await?, to => to.complete_activity(token, completion))
    }
    fn describe(&self, target: Target) -> Reply<'_, Description> {
        ask!(self, self.may(TokenRole::Viewer, &target)?, to => to.describe(target))
    }
    fn list(&self, request: ListRequest) -> Reply<'_, Vec<RunInfo>> {
        let ListRequest { query, limit } = request;
        Box::pin(async move { self.backend.list(ListRequest { query: self.seen(query)?, limit }).await })
    }
    fn count(&self, query: String) -> Reply<'_, u64> {
        Box::pin(async move { self.backend.count(self.seen(query)?).await })
    }
    fn result(&self, target: Target, request: ResultRequest) -> Reply<'_, Option<RunResult>> {
        ask!(self, self.may(TokenRole::Viewer, &target)?, to => to.result(target, request))
    }
    fn history(&self, target: Target, from: EventId, limit: usize) -> Reply<'_, Vec<Event>> {
        ask!(self, self.may(TokenRole::Viewer, &target)?, to => to.history(target, from, limit))
    }
    fn turns(&self, target: Target) -> Reply<'_, Vec<Turn>> {
        ask!(self, self.may(TokenRole::Viewer, &target)?, to => to.turns(target))
    }
    fn events(&self, target: Target, from: EventId, follow: bool) -> EventStream {
        match self.may(TokenRole::Viewer, &target) {
            Ok(()) => self.backend.events(target, from, follow),
            Err(why) => Box::pin(futures_util::stream::iter([Err(why)])),
        }
    }
    fn watch(&self, query: String, after: Option<GroupSeq>) -> RunEventStream {
        match self.seen(query) {
            Ok(query) => self.backend.watch(query, after),
            Err(why) => Box::pin(futures_util::stream::iter([Err(why)])),
        }
    }
    fn delete(&self, target: Target) -> Reply<'_, ()> {
        ask!(self, self.may(TokenRole::Owner, &target)?, to => to.delete(target))
    }
    fn verify(&self) -> Reply<'_, Value> {
        ask!(self, self.whole(TokenRole::Operator)?, to => to.verify())
    }
    fn backup(&self, to: PathBuf) -> Reply<'_, Value> {
        ask!(self, self.whole(TokenRole::Owner)?, backend => backend.backup(to))
    }
    fn store_info(&self) -> Reply<'_, Value> {
        ask!(self, self.whole(TokenRole::Viewer)?, to => to.store_info())
    }
    fn now(&self) -> Timestamp {
        self.backend.now()
    }
    fn health(&self) -> Reply<'_, EngineHealth> {
        self.backend.health()
    }
    fn metrics(&self) -> Reply<'_, String> {
        ask!(self, self.whole(TokenRole::Viewer)?, to => to.metrics())
    }
    /// Who is told of a run sees it.
    fn holds(&self) -> Option<&HoldMemory> {
        self.backend.holds()
    }
    /// The names of queues are told to whoever sees a run that waits there.
    fn worker_state(&self) -> Reply<'_, WorkerState> {
        Box::pin(async move {
            let mut state = self.backend.worker_state().await?;
            if self.caller.namespaces.is_some() {
                state.waiting.retain(|namespace, _| self.caller.sees(namespace));
                let own: BTreeSet<TaskQueue> = state.waiting_by_queue().into_keys().cloned().collect();
                state.queues.retain(|queue, _| own.contains(queue));
                state.task_queues.iter_mut().for_each(|served| served.retain(|queue| own.contains(queue)));
                state.partial = true;
            }
            Ok(state)
        })
    }
    fn queue_shares(&self, queue: TaskQueue, namespaces: Option<BTreeSet<Namespace>>) -> Reply<'_, Vec<WaitingShare>> {
        Box::pin(async move {
            self.needs(TokenRole::Viewer)?;
            let seen = |mut only: BTreeSet<Namespace>| {
                only.retain(|namespace| self.caller.sees(namespace));
                only
            };
            let namespaces = namespaces.map(seen).or_else(|| self.caller.namespaces.clone());
            self.backend.queue_shares(queue, namespaces).await
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::workflow::SIGNAL_APPROVAL;
    use crate::fake::Fake;

    fn caller(role: TokenRole, namespaces: Option<&[&str]>) -> Caller {
        let namespaces = namespaces.map(|names| names.iter().map(|name| Namespace::of(*name)).collect());
        Caller { name: "ann".into(), role, namespaces, token: None }
    }

    fn signed(role: TokenRole, name: &str, input: Value) -> Value {
        let it = CallerBackend::new(Arc::new(Fake::new()), caller(role, None));
        it.signed(name, Payload::encode(&input).unwrap(), Some(&Identity::of("me@here"))).to_json()
    }

    /// What is recorded as approver is the token's name; whom the request names is a comment.
    #[test]
    fn an_answer_is_signed_with_the_name_of_the_token() {
        let answer = |by: &str| json!({ "approval_id": "a", "approved": true, "approver": by, "comment": "fine" });
        let told = signed(TokenRole::Approver, SIGNAL_APPROVAL, answer("bob"));
        assert_eq!((told["approver"].as_str(), told["comment"].as_str()), (Some("ann"), Some("by bob: fine")));
        for own in ["ann", "me@here", ""] {
            let told = signed(TokenRole::Approver, SIGNAL_APPROVAL, answer(own));
            assert_eq!((told["approver"].as_str(), told["comment"].as_str()), (Some("ann"), Some("fine")), "{own}");
        }
        let of_agent = signed(
            TokenRole::Approver,
            SIGNAL_APPROVAL,
            json!({ "id": "a1", "hash": "h", "by": "bob", "approved": true }),
        );
        assert_eq!((of_agent["by"].as_str(), of_agent["reason"].as_str()), (Some("ann"), Some("by bob")));
        let paused = signed(TokenRole::Operator, control::PAUSE, json!({ "requested_by": "bob" }));
        assert_eq!((paused["requested_by"].as_str(), paused["reason"].as_str()), (Some("ann, for bob"), None));
        let enough = json!({ "requested_by": "bob", "reason": "enough" });
        let canceled = signed(TokenRole::Operator, control::CANCEL, enough);
        assert_eq!(canceled["reason"].as_str(), Some("enough"), "SHN-62: word for word");
        let claims = json!({ "requested_by": "ann", "from_parent": true });
        for (name, input) in [(control::PAUSE, Value::Null), (control::PAUSE, claims)] {
            let paused = signed(TokenRole::Operator, name, input);
            assert_eq!((paused["requested_by"].as_str(), paused.get("from_parent")), (Some("ann"), None), "{paused}");
        }
        let mode = signed(TokenRole::Operator, "set_hitl_mode", json!({ "mode": "autonomous", "requested_by": "bob" }));
        assert_eq!((mode["requested_by"].as_str(), mode["reason"].as_str()), (Some("ann"), Some("by bob")));
        let other = json!({ "approver": "bob" });
        assert_eq!(signed(TokenRole::Operator, "some_signal", other.clone()), other, "others' messages are theirs");
    }

    /// A fork is no way to an approval in another's name: not by a change, and not by a history that says so.
    #[test]
    fn a_fork_says_nothing_in_the_name_of_another() {
        let request = |changes| ForkRequest {
            changes,
            ..ForkRequest::new(ForkSource::Run(Target::workflow("w".into())), "fork".into())
        };
        let change = |name: &str| ForkChange::Signal {
            name: SignalName::of(name),
            nth: None,
            input: Payload::encode(&json!({ "approval_id": "a", "approved": true, "approver": "cfo" })).unwrap(),
        };
        let it = |role| CallerBackend::new(Arc::new(Fake::new()), caller(role, None));
        let forked = it(TokenRole::Operator).fork(request(vec![change(SIGNAL_APPROVAL), change("other")])).unwrap();
        let approver = |nth: usize| match &forked.changes[nth] {
            ForkChange::Signal { input, .. } => input.to_json()["approver"].as_str().map(str::to_owned),
            other => panic!("{other:?}"),
        };
        assert_eq!((approver(0).as_deref(), approver(1).as_deref()), (Some("ann"), Some("cfo")), "others' are theirs");
        for of_runs in OF_RUNS {
            assert!(it(TokenRole::Owner).fork(request(vec![change(of_runs)])).is_err(), "{of_runs}");
        }
        let told = || ForkRequest { source: ForkSource::History(Vec::new()), ..request(Vec::new()) };
        assert!(it(TokenRole::Operator).fork(told()).is_err() && it(TokenRole::Owner).fork(told()).is_ok());
    }

    /// What speaks in the name of the worker is started by the worker alone, whoever asks, and however.
    #[tokio::test]
    async fn nobody_starts_a_notification() {
        let fake = Arc::new(Fake::new());
        let it = CallerBackend::new(fake.clone(), caller(TokenRole::Owner, None));
        let start = || StartWorkflow::new(NOTIFICATION.into(), "notify:x".into());
        let signal = SignalRequest { name: "go".into(), input: Payload::null(), identity: None, request_id: None };
        assert!(Backend::start(&it, start()).await.is_err());
        assert!(Backend::start(&it, StartWorkflow::new("order".into(), "notify:x".into())).await.is_err());
        assert!(Backend::start(&it, StartWorkflow::new(NOTIFICATION.into(), "other".into())).await.is_err());
        assert!(it.signal_with_start(start(), signal).await.is_err());
        assert_eq!(fake.calls(), Vec::<String>::new());
    }

    /// Two of one name would start each time twice.
    #[tokio::test]
    async fn nobody_forks_a_schedule() {
        let mut fake = Fake::new();
        fake.runs[0].workflow_type = WorkflowType::of(SCHEDULE);
        let fake = Arc::new(fake);
        let it = CallerBackend::new(fake.clone(), caller(TokenRole::Owner, None));
        let source = ForkSource::Run(Target::workflow("order-7".into()));
        let refused = Backend::fork(&it, ForkRequest::new(source, "second".into())).await;
        assert!(matches!(refused, Err(CallError::Refused { status: 409, .. })), "{refused:?}");
        assert!(fake.calls().iter().all(|call| !call.starts_with("fork")), "{:?}", fake.calls());
    }

    #[tokio::test]
    async fn a_role_may_what_it_may_and_no_more() {
        let fake = Arc::new(Fake::new());
        let target = || Target::workflow("order-7".into());
        let signal = |name: &str| SignalRequest {
            name: SignalName::of(name),
            input: Payload::null(),
            identity: None,
            request_id: None,
        };
        for (role, looks, answers, acts, owns) in [
            (TokenRole::Viewer, true, false, false, false),
            (TokenRole::Approver, true, true, false, false),
            (TokenRole::Operator, true, true, true, false),
            (TokenRole::Owner, true, true, true, true),
        ] {
            let it = CallerBackend::new(fake.clone(), caller(role, None));
            assert_eq!(it.describe(target()).await.is_ok(), looks, "{role}");
            assert_eq!(Backend::signal(&it, target(), signal(SIGNAL_APPROVAL)).await.is_ok(), answers, "{role}");
            assert_eq!(Backend::signal(&it, target(), signal("other")).await.is_ok(), acts, "{role}");
            assert_eq!(it.terminate(target(), Attribution::default()).await.is_ok(), acts, "{role}");
            assert_eq!(it.delete(target()).await.is_ok(), owns, "{role}");
            assert_eq!(it.backup("/x".into()).await.is_ok(), owns, "{role}");
        }
    }

    /// The name of a queue says what others do.
    #[tokio::test]
    async fn a_token_of_a_namespace_hears_of_no_queue_of_others() {
        let (mine, common, theirs) = (TaskQueue::of("mine"), TaskQueue::of("common"), TaskQueue::of("theirs"));
        let dev = [(mine.clone(), 1), (common.clone(), 2)].into();
        let prod = [(common.clone(), 4), (theirs.clone(), 8)].into();
        let mut fake = Fake::new();
        fake.state.waiting = [(Namespace::of("dev"), dev), (Namespace::of("prod"), prod)].into();
        fake.state.task_queues = Some([common.clone(), theirs.clone()].into());
        let fake = Arc::new(fake);
        let told = async |namespaces| {
            let it = CallerBackend::new(fake.clone(), caller(TokenRole::Viewer, namespaces));
            it.worker_state().await.unwrap()
        };
        let (all, own) = (told(None).await, told(Some(&["dev"][..])).await);
        assert_eq!(all, fake.state);
        assert_eq!(all.waiting_by_queue(), [(&mine, 1), (&common, 6), (&theirs, 8)].into());
        assert_eq!(own.waiting_by_queue(), [(&mine, 1), (&common, 2)].into());
        assert_eq!(own.task_queues, Some([common.clone()].into()));
    }

    #[tokio::test]
    async fn a_token_of_a_namespace_sees_no_other() {
        let fake = Arc::new(Fake::new());
        let it = CallerBackend::new(fake.clone(), caller(TokenRole::Owner, Some(&["dev"])));
        let target = Target::workflow("order-7".into());
        assert!(matches!(it.describe(target.clone()).await, Err(CallError::Rejected(Rejection::NotFound { .. }))));
        assert!(it.terminate(target.clone(), Attribution::default()).await.is_err());
        assert!(it.store_info().await.is_err() && it.backup("/x".into()).await.is_err());
        assert!(Backend::start(&it, StartWorkflow::new("order".into(), "o".into())).await.is_err());
        assert_eq!(fake.calls(), Vec::<String>::new());
        it.list(ListRequest { query: "WorkflowType = 'a' ORDER BY CloseTime".into(), limit: 5 }).await.unwrap();
        let asked = fake.calls().remove(0);
        assert!(asked.contains("Namespace IN") && asked.contains("dev") && asked.contains("ORDER BY"), "{asked}");
        assert!(it.describe(Target { namespace: Namespace::of("dev"), ..target }).await.is_ok());
    }
}
