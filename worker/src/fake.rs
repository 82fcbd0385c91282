//! A backend for tests: notes every call, and answers as it was told.
//!
//! Invariant: it has no behaviour of an engine; what the engine does is tested with the engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use serde_json::{Value, json};

use crate::backend::*;
// The engine has a `EngineHealth` of its own.
use crate::backend::EngineHealth;

pub(crate) struct Fake {
    calls: Mutex<Vec<String>>,
    /// Given to every call when there is one.
    pub(crate) rejection: Mutex<Option<Rejection>>,
    pub(crate) health: Mutex<EngineHealth>,
    pub(crate) runs: Vec<RunInfo>,
    pub(crate) events: Vec<Event>,
    /// By workflow id.
    pub(crate) turns: BTreeMap<String, Vec<Turn>>,
    /// `None`: the run stays open.
    pub(crate) outcome: Mutex<Option<CloseOutcome>>,
    pub(crate) update: UpdateOutcome,
    pub(crate) query: Payload,
    pub(crate) state: WorkerState,
    /// It reads whole histories only, as a cluster's are read.
    pub(crate) reads_whole_histories: bool,
    /// What `describe` says beside.
    pub(crate) described: fn(&mut Description),
}

pub(crate) const RUN: RunId = RunId([7; 16]);

/// A run that started at 900 s.
pub(crate) fn run_info(workflow_id: &str, status: WorkflowStatus) -> RunInfo {
    RunInfo {
        namespace: Namespace::of("default"),
        workflow_id: WorkflowId::of(workflow_id),
        run_id: RUN,
        workflow_type: WorkflowType::of("order"),
        task_queue: TaskQueue::of("default"),
        status,
        started_at: Timestamp(900_000_000),
        closed_at: (!status.is_open()).then_some(Timestamp(990_000_000)),
        history: HistorySize { events: 3, bytes: 250 },
        attempt: Attempt(1),
        first_run: RUN,
        continued_from: None,
        next_run: None,
        parent: None,
        memo: Memo::new(),
        search_attributes: SearchAttributes::new(),
        summary: None,
        details: None,
        build: BuildId(1),
        start_request_id: None,
        forked_from: None,
        held: false,
        hold: None,
    }
}

pub(crate) fn event(id: u64, kind: EventKind) -> Event {
    Event { id: EventId(id), at: Timestamp(900_000_000 + i64::try_from(id).unwrap()), build: BuildId(1), kind }
}

impl Fake {
    pub(crate) fn new() -> Self {
        Fake {
            calls: Mutex::default(),
            rejection: Mutex::default(),
            health: Mutex::new(EngineHealth::Ready),
            runs: vec![run_info("order-7", WorkflowStatus::Running)],
            events: vec![
                event(1, EventKind::TimerStarted { seq: Seq(1), fire_at: Timestamp(901_000_000), summary: None }),
                event(2, EventKind::TimerFired { seq: Seq(1) }),
            ],
            turns: BTreeMap::new(),
            outcome: Mutex::new(Some(CloseOutcome::Completed(Payload::raw_json(r#"{"paid":true}"#)))),
            update: UpdateOutcome::Completed(Ok(Payload::raw_json("42"))),
            query: Payload::raw_json(r#""fine""#),
            state: WorkerState::default(),
            reads_whole_histories: false,
            described: |_| {},
        }
    }
    pub(crate) fn rejecting(rejection: Rejection) -> Self {
        let fake = Fake::new();
        *fake.rejection.lock().unwrap() = Some(rejection);
        fake
    }
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
    fn note(&self, call: String) -> Result<(), CallError> {
        self.calls.lock().unwrap().push(call);
        match self.rejection.lock().unwrap().clone() {
            Some(rejection) => Err(rejection.into()),
            None => Ok(()),
        }
    }
    fn reply<T: Send + 'static>(&self, call: String, answer: T) -> Reply<'_, T> {
        let noted = self.note(call).map(|()| answer);
        Box::pin(async move { noted })
    }
    fn find(&self, target: &Target) -> Result<&RunInfo, CallError> {
        let is_meant = |run: &&RunInfo| {
            run.workflow_id == target.workflow_id && target.run_id.is_none_or(|meant| meant == run.run_id)
        };
        self.runs.iter().find(is_meant).ok_or_else(|| {
            Rejection::NotFound { workflow_id: target.workflow_id.clone(), run_id: target.run_id }.into()
        })
    }
    fn started(&self, request: &StartWorkflow) -> Started {
        Started { workflow_id: request.workflow_id.clone(), run_id: RUN, newly_started: true }
    }
}

fn id(target: &Target) -> String {
    target.run_id.map_or_else(
        || target.workflow_id.to_string(),
        |run| format!("{}/{}", target.workflow_id, &run.to_string()[..4]),
    )
}

fn why(because: &Attribution) -> String {
    format!("{:?} by {}", because.reason, because.identity.as_ref().map_or("-", Identity::as_str))
}

impl Backend for Fake {
    fn finds_single_events(&self) -> bool {
        !self.reads_whole_histories
    }
    fn start(&self, request: StartWorkflow) -> Reply<'_, Started> {
        let started = self.started(&request);
        let policy = request.id_reuse_policy;
        let completed =
            |run: &&RunInfo| run.workflow_id == request.workflow_id && run.status == WorkflowStatus::Completed;
        if policy != IdReusePolicy::AllowDuplicate
            && let Some(run) = self.runs.iter().find(completed)
        {
            let (workflow_id, run_id, status) = (run.workflow_id.clone(), run.run_id, run.status);
            let rejection = Rejection::IdReused { workflow_id, run_id, status, policy };
            return Box::pin(async move { Err(rejection.into()) });
        }
        self.reply(
            format!(
                "start {} {} {:?} {:?}",
                request.workflow_type, request.workflow_id, request.input, request.id_conflict_policy
            ),
            started,
        )
    }
    fn fork(&self, request: ForkRequest) -> Reply<'_, Forked> {
        let (source, from) = match &request.source {
            ForkSource::Run(target) => (id(target), target.workflow_id.clone()),
            ForkSource::History(turns) => (format!("{} turns", turns.len()), WorkflowId::of("order-7")),
        };
        let call = format!(
            "fork {source} to {} at {:?} {:?}{}",
            request.workflow_id,
            request.at.map(|at| at.0),
            request.changes,
            if request.dry_run { " dry" } else { "" }
        );
        let plan = ForkPlan { event: EventId(4), dropped: 2, ..ForkPlan::default() };
        let forked = Forked {
            workflow_id: request.workflow_id,
            run_id: (!request.dry_run).then_some(RUN),
            newly_started: !request.dry_run,
            from: ForkPoint { workflow_id: from, run_id: RUN, event: EventId(4), reset: false },
            workflow_type: "order".into(),
            plan,
        };
        self.reply(call, forked)
    }
    fn reset(&self, request: ResetRequest) -> Reply<'_, ResetDone> {
        let dry = if request.dry_run { " dry" } else { "" };
        let call = format!("reset {} to {} {:?}{dry}", id(&request.target), request.to, request.reapply);
        let from =
            ForkPoint { workflow_id: request.target.workflow_id.clone(), run_id: RUN, event: EventId(4), reset: true };
        let done = ResetDone {
            workflow_id: request.target.workflow_id,
            run_id: (!request.dry_run).then_some(RUN),
            newly_started: !request.dry_run,
            from,
            terminated: Some(RUN),
            workflow_type: "order".into(),
            plan: ForkPlan { event: EventId(4), dropped: 2, ..ForkPlan::default() },
        };
        self.reply(call, done)
    }
    fn signal(&self, target: Target, signal: SignalRequest) -> Reply<'_, ()> {
        self.reply(format!("signal {} {} {:?}", id(&target), signal.name, signal.input), ())
    }
    fn signal_with_start(&self, request: StartWorkflow, signal: SignalRequest) -> Reply<'_, Started> {
        let started = self.started(&request);
        let key = signal.request_id.map(|key| format!(" {key}")).unwrap_or_default();
        self.reply(format!("signal_with_start {} {}{key}", request.workflow_id, signal.name), started)
    }
    fn update(&self, target: Target, update: UpdateRequest) -> Reply<'_, UpdateOutcome> {
        let call = format!("update {} {} {} {:?}", id(&target), update.update_id, update.name, update.wait);
        self.reply(call, self.update.clone())
    }
    fn update_with_start(&self, request: StartWorkflow, update: UpdateRequest) -> Reply<'_, (Started, UpdateOutcome)> {
        let started = self.started(&request);
        self.reply(format!("update_with_start {} {}", request.workflow_id, update.name), (started, self.update.clone()))
    }
    fn update_result(&self, target: Target, update: UpdateId) -> Reply<'_, UpdateOutcome> {
        self.reply(format!("update_result {} {update}", id(&target)), self.update.clone())
    }
    fn query(&self, target: Target, name: QueryName, input: Payload) -> Reply<'_, Payload> {
        self.reply(format!("query {} {name} {input:?}", id(&target)), self.query.clone())
    }
    fn cancel(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        self.reply(format!("cancel {} {}", id(&target), why(&because)), ())
    }
    fn terminate(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        self.reply(format!("terminate {} {}", id(&target), why(&because)), ())
    }
    fn pause(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        self.reply(format!("pause {} {}", id(&target), why(&because)), ())
    }
    fn unpause(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        self.reply(format!("unpause {} {}", id(&target), why(&because)), ())
    }
    fn pause_activity(&self, target: Target, activity: ActivityId, because: Attribution) -> Reply<'_, ()> {
        self.reply(format!("pause_activity {} {activity} {}", id(&target), why(&because)), ())
    }
    fn unpause_activity(&self, target: Target, activity: ActivityId, because: Attribution) -> Reply<'_, ()> {
        self.reply(format!("unpause_activity {} {activity} {}", id(&target), why(&because)), ())
    }
    fn update_activity(&self, target: Target, activity: ActivityId, asked: ActivityAsked) -> Reply<'_, ()> {
        let ActivityAsked { update, because } = asked;
        self.reply(format!("update_activity {} {activity} {update:?} {}", id(&target), why(&because)), ())
    }
    fn complete_activity(&self, token: TaskToken, completion: ActivityCompletion) -> Reply<'_, ()> {
        self.reply(format!("complete_activity {} {completion:?}", token.seq), ())
    }
    fn describe(&self, target: Target) -> Reply<'_, Description> {
        let found = self.find(&target).map(|info| Description {
            info: info.clone(),
            pending_activities: Vec::new(),
            pending_timers: Vec::new(),
            pending_children: Vec::new(),
            pending_updates: Vec::new(),
            inbox: 0,
            held: None,
            awaiting: vec![Awaited { what: "signal approve".into(), location: None, timer: None }],
            cancel_requested: false,
            warnings: Vec::new(),
            starts_at: None,
            result: if info.status.is_open() { None } else { self.outcome.lock().unwrap().clone() },
        });
        let found = found.map(|mut description| {
            (self.described)(&mut description);
            description
        });
        let noted = self.note(format!("describe {}", id(&target))).and(found);
        Box::pin(async move { noted })
    }
    fn list(&self, request: ListRequest) -> Reply<'_, Vec<RunInfo>> {
        let filter = Filter::parse(&request.query).ok();
        let matches = |run: &&RunInfo| filter.as_ref().is_some_and(|filter| filter.matches(run));
        let runs: Vec<RunInfo> = self.runs.iter().filter(matches).take(request.limit).cloned().collect();
        self.reply(format!("list {:?} {}", request.query, request.limit), runs)
    }
    fn count(&self, query: String) -> Reply<'_, u64> {
        self.reply(format!("count {query:?}"), self.runs.len() as u64)
    }
    fn result(&self, target: Target, request: ResultRequest) -> Reply<'_, Option<RunResult>> {
        let outcome = self.outcome.lock().unwrap().clone();
        let noted = self.note(format!("result {} {}", id(&target), request.follow_runs));
        Box::pin(async move {
            noted?;
            match outcome {
                Some(outcome) => Ok(Some(RunResult { workflow_id: target.workflow_id, run_id: RUN, outcome })),
                None => {
                    tokio::time::sleep(request.timeout.unwrap_or(Duration::MAX)).await;
                    Ok(None)
                }
            }
        })
    }
    fn history(&self, target: Target, from: EventId, limit: usize) -> Reply<'_, Vec<Event>> {
        let events: Vec<Event> = self.events.iter().filter(|event| event.id >= from).take(limit).cloned().collect();
        self.reply(format!("history {} {from} {limit}", id(&target)), events)
    }
    fn turns(&self, target: Target) -> Reply<'_, Vec<Turn>> {
        let turns = self.turns.get(target.workflow_id.as_str()).cloned().unwrap_or_default();
        self.reply(format!("turns {}", id(&target)), turns)
    }
    fn events(&self, target: Target, from: EventId, follow: bool) -> EventStream {
        let noted = self.note(format!("events {} {from} {follow}", id(&target)));
        let events: Vec<Event> = self.events.iter().filter(|event| event.id >= from).cloned().collect();
        Box::pin(async_stream::stream! {
            match noted {
                Ok(()) => for event in events { yield Ok(event) },
                Err(why) => yield Err(why),
            }
        })
    }
    fn watch(&self, query: String, after: Option<GroupSeq>) -> RunEventStream {
        let noted = self.note(format!("watch {query:?} {after:?}"));
        let item = noted.map(|()| RunEvent {
            group: GroupSeq(1),
            workflow_id: "order-7".into(),
            run_id: RUN,
            event: self.events[0].clone(),
        });
        Box::pin(async_stream::stream! { yield item })
    }
    fn delete(&self, target: Target) -> Reply<'_, ()> {
        self.reply(format!("delete {}", id(&target)), ())
    }
    fn verify(&self) -> Reply<'_, Value> {
        self.reply("verify".into(), json!({ "groups": 3, "findings": [] }))
    }
    fn backup(&self, to: PathBuf) -> Reply<'_, Value> {
        self.reply(format!("backup {}", to.display()), json!({ "to": to }))
    }
    fn store_info(&self) -> Reply<'_, Value> {
        self.reply("store_info".into(), json!({ "groups": 3 }))
    }
    fn health(&self) -> Reply<'_, EngineHealth> {
        let health = self.health.lock().unwrap().clone();
        Box::pin(async move { Ok(health) })
    }
    fn worker_state(&self) -> Reply<'_, WorkerState> {
        let state = self.state.clone();
        Box::pin(async move { Ok(state) })
    }
}

/// An engine whose backend is a fake.
pub(crate) struct FakeEngine {
    pub(crate) backend: Arc<Fake>,
    pub(crate) drained: tokio::sync::watch::Sender<bool>,
    pub(crate) failed: tokio::sync::watch::Sender<bool>,
}

impl Engine for FakeEngine {
    fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }
    fn drain(&self, _timeout: Duration) -> BoxFuture<'_, bool> {
        self.drained.send_replace(true);
        Box::pin(async { true })
    }
    fn stopped(&self) -> BoxFuture<'_, Stopped> {
        let mut failed = self.failed.subscribe();
        Box::pin(async move {
            let _ = failed.wait_for(|failed| *failed).await;
            Stopped::StorageFailed { why: "EIO".into() }
        })
    }
}

/// Opens fakes; says `Locked` as often as it is told to.
pub(crate) struct FakeOpener {
    pub(crate) engine: Arc<FakeEngine>,
    pub(crate) locked: Mutex<usize>,
    pub(crate) workflows: WorkflowRegistry,
}

impl FakeOpener {
    pub(crate) fn new(backend: Fake) -> Self {
        let engine = FakeEngine {
            backend: Arc::new(backend),
            drained: tokio::sync::watch::Sender::new(false),
            failed: tokio::sync::watch::Sender::new(false),
        };
        FakeOpener { engine: Arc::new(engine), locked: Mutex::new(0), workflows: WorkflowRegistry::new() }
    }
}

impl OpenEngine for FakeOpener {
    fn open<'a>(&'a self, data: &'a Path, _purpose: &'a Access) -> BoxFuture<'a, Result<Arc<dyn Engine>, OpenError>> {
        let mut locked = self.locked.lock().unwrap();
        let answer: Result<Arc<dyn Engine>, OpenError> = if *locked > 0 {
            *locked -= 1;
            Err(OpenError::Locked(data.into()))
        } else {
            Ok(self.engine.clone())
        };
        Box::pin(async move { answer })
    }
    fn histories<'a>(&'a self, _data: &'a Path) -> BoxFuture<'a, Result<Arc<dyn Histories>, OpenError>> {
        let histories = Arc::new(OfEngine(self.engine.backend.clone()));
        Box::pin(async move { Ok(histories as Arc<dyn Histories>) })
    }
    fn workflows(&self) -> WorkflowRegistry {
        self.workflows.clone()
    }
    fn workflow_types(&self) -> Vec<String> {
        vec!["order".into()]
    }
}
