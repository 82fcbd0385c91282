//! The client: what can be asked of a worker, from inside its process. The control API offers the same over HTTP.
//!
//! Invariant: an `Ok` means that what it says is durable; an `Err` means that nothing has changed. Reading calls
//! (history, events, list) see durable facts only and go past the turn threads. A client is cheap to clone.
//!
//! Long: one method a request, in one place, is what a reader of a client looks for.
#![expect(clippy::disallowed_methods, reason = "edge: reads of the log leave the async threads")]

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use futures_core::Stream;
use tokio::sync::broadcast;

use crate::activity::TaskToken;
use crate::filter::Filter;
use crate::log::{BackupReport, Housekeeping, StorageError, StoreInfo, VerifyReport};
use crate::machine::Fork;
use crate::request::*;
use crate::seeded::{self, Bug};
use crate::service::{Answered, Closed, Health, Hurry, Message, Reply, RunRef, Shared, StartThen};
use crate::vocabulary::*;

/// The most runs or events one page has (engine.md G34).
pub const PAGE_MAX: usize = 1_000;

#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Client { shared }
    }

    /// Sends a message to the shard of a workflow id and waits for its answer.
    async fn ask<T>(
        &self,
        call: &'static str,
        namespace: &Namespace,
        workflow_id: &WorkflowId,
        message: impl FnOnce(Reply<T>) -> Message,
    ) -> Result<T, Rejection> {
        self.ask_with(call, namespace, workflow_id, None, message).await
    }

    /// As [`Client::ask`], for an answer that may take time to come: a virtual clock moves until it is there.
    async fn ask_in_time<T>(
        &self,
        call: &'static str,
        target: &Target,
        message: impl FnOnce(Reply<T>) -> Message,
    ) -> Result<T, Rejection> {
        // Over with the answer, or when the caller goes away before.
        let hurry = Hurry::new(&self.shared);
        self.ask_with(call, &target.namespace, &target.workflow_id, Some(hurry.clone()), message).await
    }

    async fn ask_with<T>(
        &self,
        call: &'static str,
        namespace: &Namespace,
        workflow_id: &WorkflowId,
        hurry: Option<Hurry>,
        message: impl FnOnce(Reply<T>) -> Message,
    ) -> Result<T, Rejection> {
        self.admit(call, Some(workflow_id))?;
        let (reply, answer) = Reply::new(hurry);
        self.shared.request(namespace, workflow_id, message(reply))?;
        self.received(answer).await
    }

    fn admit(&self, call: &'static str, workflow_id: Option<&WorkflowId>) -> Result<(), Rejection> {
        self.admit_reading(call, workflow_id)?;
        self.shared.health.get().refusal().map_or(Ok(()), Err)
    }

    /// A turn thread that gives no answer is one whose code did not come back, or a worker that has left.
    async fn received<T>(&self, answer: Answered<T>) -> Result<T, Rejection> {
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(self
                .shared
                .health
                .get()
                .refusal()
                .unwrap_or(Rejection::Held { why: "the turn that should have answered did not come back".into() })),
        }
    }

    fn check_size(&self, payload: &Payload) -> Result<(), Rejection> {
        let limit = self.shared.options.limits.payload_max;
        if payload.len() > limit {
            return Err(Rejection::PayloadTooLarge { length: payload.len(), limit });
        }
        Ok(())
    }

    fn check_start(&self, start: &StartWorkflow) -> Result<(), Rejection> {
        self.check_size(&start.input)?;
        start.memo.values().try_for_each(|payload| self.check_size(payload))?;
        let wrong = start.retry_policy.as_ref().and_then(|policy| policy.check().err());
        wrong.map_or(Ok(()), |why| Err(Rejection::Invalid { what: "start request".into(), why }))
    }

    /// Starts a workflow execution (engine.md E01).
    pub async fn start(&self, start: StartWorkflow) -> Result<Started, Rejection> {
        self.check_start(&start)?;
        let (namespace, workflow_id) = (start.namespace.clone(), start.workflow_id.clone());
        self.ask("start", &namespace, &workflow_id, |reply| Message::Start {
            run_id: self.shared.new_run_id(),
            start: Box::new(start),
            then: StartThen::Nothing,
            reply,
        })
        .await
    }

    /// Forks a run: a new run under a new workflow id that begins with the history of the source, up to an event, and
    /// goes on from there with what the request changes. With `dry_run` it says what would happen and writes nothing.
    pub async fn fork(&self, request: ForkRequest) -> Result<Forked, Rejection> {
        for change in &request.changes {
            match change {
                ForkChange::Outcome { outcome: Ok(payload), .. }
                | ForkChange::Signal { input: payload, .. }
                | ForkChange::Input(payload) => self.check_size(payload)?,
                ForkChange::Outcome { outcome: Err(_), .. } => {}
            }
        }
        let turns = match &request.source {
            ForkSource::Run(target) => self.turns(target).await?,
            ForkSource::History(turns) => turns.clone(),
        };
        let (run_id, now, dry_run) = (self.shared.new_run_id(), self.shared.clock.now(), request.dry_run);
        let (namespace, workflow_id) = (request.namespace.clone(), request.workflow_id.clone());
        // A long history takes a while to be looked through.
        let planned = tokio::task::spawn_blocking(move || Fork::plan(&request, &turns, run_id, now)).await;
        let fork = Box::new(planned.map_err(|why| Rejection::Held { why: format!("planning the fork: {why}") })??);
        self.ask("fork", &namespace, &workflow_id, |reply| Message::Fork { fork, dry_run, reply }).await
    }

    /// Signals the open run of the workflow id, or starts one and signals it, atomically (engine.md E12).
    pub async fn signal_with_start(&self, start: StartWorkflow, signal: SignalRequest) -> Result<Started, Rejection> {
        self.check_start(&start)?;
        self.check_size(&signal.input)?;
        let (namespace, workflow_id) = (start.namespace.clone(), start.workflow_id.clone());
        self.ask("signal-with-start", &namespace, &workflow_id, |reply| Message::Start {
            run_id: self.shared.new_run_id(),
            start: Box::new(start),
            then: StartThen::Signal(signal),
            reply,
        })
        .await
    }

    /// As [`Client::signal_with_start`] with an update (engine.md E12). What happens when a run is open is said by the
    /// conflict policy of the start. A refused update leaves no new run behind.
    pub async fn update_with_start(
        &self,
        start: StartWorkflow,
        update: UpdateRequest,
    ) -> Result<(Started, UpdateOutcome), Rejection> {
        self.check_start(&start)?;
        self.check_size(&update.input)?;
        let (namespace, workflow_id) = (start.namespace.clone(), start.workflow_id.clone());
        let hurry = Hurry::new(&self.shared);
        let (update_reply, update_answer) = Reply::new(Some(hurry.clone()));
        let started = self
            .ask("update-with-start", &namespace, &workflow_id, |reply| Message::Start {
                run_id: self.shared.new_run_id(),
                start: Box::new(start),
                then: StartThen::Update(update, update_reply),
                reply,
            })
            .await?;
        Ok((started, self.received(update_answer).await?))
    }

    async fn input(&self, call: &'static str, target: &Target, input: Input) -> Result<(), Rejection> {
        let run = RunRef::Target(target.clone());
        self.ask(call, &target.namespace, &target.workflow_id, |reply| Message::Input {
            run,
            input,
            reply: Some(reply),
        })
        .await
    }

    pub async fn signal(&self, target: &Target, signal: SignalRequest) -> Result<(), Rejection> {
        self.check_size(&signal.input)?;
        self.input("signal", target, Input::Signal(signal.into())).await
    }
    pub async fn cancel(
        &self,
        target: &Target,
        reason: String,
        identity: Option<Identity>,
        request_id: Option<RequestId>,
    ) -> Result<(), Rejection> {
        self.input("cancel", target, Input::RequestCancel { reason, identity, request_id }).await
    }
    pub async fn terminate(
        &self,
        target: &Target,
        reason: String,
        identity: Option<Identity>,
    ) -> Result<(), Rejection> {
        self.input("terminate", target, Input::Terminate { reason, identity }).await
    }
    pub async fn pause(&self, target: &Target, reason: String, identity: Option<Identity>) -> Result<(), Rejection> {
        self.input("pause", target, Input::Pause { reason, identity }).await
    }
    pub async fn unpause(&self, target: &Target, reason: String, identity: Option<Identity>) -> Result<(), Rejection> {
        self.input("unpause", target, Input::Unpause { reason, identity }).await
    }
    pub async fn pause_activity(
        &self,
        target: &Target,
        activity_id: &ActivityId,
        reason: String,
        identity: Option<Identity>,
    ) -> Result<(), Rejection> {
        self.activity_by_name("pause-activity", target, activity_id, Some(reason), identity).await
    }
    pub async fn unpause_activity(
        &self,
        target: &Target,
        activity_id: &ActivityId,
        identity: Option<Identity>,
    ) -> Result<(), Rejection> {
        self.activity_by_name("unpause-activity", target, activity_id, None, identity).await
    }
    async fn activity_by_name(
        &self,
        call: &'static str,
        target: &Target,
        activity_id: &ActivityId,
        pause: Option<String>,
        identity: Option<Identity>,
    ) -> Result<(), Rejection> {
        self.ask(call, &target.namespace, &target.workflow_id, |reply| Message::ActivityByName {
            target: target.clone(),
            activity_id: activity_id.clone(),
            pause,
            identity,
            reply,
        })
        .await
    }

    /// Completes, fails, cancels or heartbeats an attempt from outside (engine.md E09).
    pub async fn complete_activity(&self, token: TaskToken, completion: ActivityCompletion) -> Result<(), Rejection> {
        let TaskToken { run_id, seq, attempt } = token;
        let info = self.info_of(run_id).ok_or(Rejection::UnknownActivity { activity: token.to_string() })?;
        let outcome = match completion {
            ActivityCompletion::Complete(result) => {
                self.check_size(&result)?;
                ActivityOutcome::Completed(result)
            }
            ActivityCompletion::Fail(failure) => ActivityOutcome::Failed(failure),
            ActivityCompletion::Cancel(details) => ActivityOutcome::Canceled(details),
            ActivityCompletion::Heartbeat(details) => {
                let target = Target { run_id: Some(run_id), ..target_of(&info) };
                return self.input("heartbeat-activity", &target, Input::Heartbeat { seq, attempt, details }).await;
            }
        };
        let target = Target { run_id: Some(run_id), ..target_of(&info) };
        let identity = self.shared.options.identity.clone();
        let input = Input::ActivityOutcome { seq, attempt, outcome, identity };
        self.input("complete-activity", &target, input).await?;
        // If the function still runs here, nobody waits for it any more.
        self.shared.runner.cancel(token);
        Ok(())
    }

    pub async fn query(&self, target: &Target, name: &QueryName, input: Payload) -> Result<Payload, Rejection> {
        self.check_size(&input)?;
        self.ask("query", &target.namespace, &target.workflow_id, |reply| Message::Query {
            target: target.clone(),
            name: name.clone(),
            input,
            reply,
        })
        .await
    }

    /// Sends an update and waits until it is accepted or completed, as asked (engine.md E14).
    pub async fn update(&self, target: &Target, request: UpdateRequest) -> Result<UpdateOutcome, Rejection> {
        self.check_size(&request.input)?;
        self.ask_in_time("update", target, |reply| Message::Update { target: target.clone(), request, reply }).await
    }

    /// Waits for the answer of an update that was accepted before.
    pub async fn update_result(&self, target: &Target, update_id: &UpdateId) -> Result<UpdateOutcome, Rejection> {
        self.ask_in_time("update-result", target, |reply| Message::UpdateResult {
            target: target.clone(),
            update_id: update_id.clone(),
            reply,
        })
        .await
    }

    pub async fn describe(&self, target: &Target) -> Result<Description, Rejection> {
        let described = self
            .ask("describe", &target.namespace, &target.workflow_id, |reply| Message::Describe {
                target: target.clone(),
                reply,
            })
            .await?;
        Ok(*described)
    }

    /// Waits for the end of a run; `None` when the time is over first.
    pub async fn result(&self, target: &Target, request: ResultRequest) -> Result<Option<RunResult>, Rejection> {
        let waiting = self.follow_to_end(target.clone(), request.follow_runs);
        match request.timeout {
            Some(timeout) => tokio::time::timeout(timeout, waiting).await.map_or(Ok(None), |result| result.map(Some)),
            None => waiting.await.map(Some),
        }
    }

    async fn follow_to_end(&self, mut target: Target, follow_runs: bool) -> Result<RunResult, Rejection> {
        loop {
            let closed: Closed = self
                .ask_in_time("result", &target, |reply| Message::AwaitClose { target: target.clone(), reply })
                .await?;
            match closed.next_run {
                Some(next) if follow_runs => target.run_id = Some(next),
                Some(_) | None => {
                    let Target { workflow_id, .. } = target;
                    return Ok(RunResult { workflow_id, run_id: closed.run_id, outcome: closed.outcome });
                }
            }
        }
    }

    /// Lets time pass in the test environment. On a real clock it really waits.
    pub async fn sleep(&self, duration: std::time::Duration) {
        match self.shared.clock.as_virtual() {
            Some(clock) => {
                let until = clock.now().plus(duration);
                self.shared.run_virtual_until(until, false).await;
            }
            None => tokio::time::sleep(duration).await,
        }
    }

    /// Waits until nothing is under way any more, attempts included, and no time passes meanwhile. For tests: on a real
    /// clock it returns at once.
    pub(crate) async fn settle(&self) {
        if let Some(clock) = self.shared.clock.as_virtual() {
            self.shared.run_virtual_until(clock.now(), true).await;
        }
    }

    fn info_of(&self, run: RunId) -> Option<RunInfo> {
        self.shared.journal.run(run).map(|entry| entry.info)
    }

    /// The run that a target means, of those that are durable.
    fn resolve(&self, target: &Target) -> Result<RunInfo, Rejection> {
        let not_found = || Rejection::NotFound { workflow_id: target.workflow_id.clone(), run_id: target.run_id };
        let journal = &self.shared.journal;
        // An entry that cannot be read (damage, a missing key) is not the same as none.
        let failed = |why: StorageError| Rejection::StorageFailed { why: why.to_string() };
        let run = match target.run_id {
            Some(run) => run,
            None => {
                journal.try_latest_run(&target.namespace, &target.workflow_id).map_err(failed)?.ok_or_else(not_found)?
            }
        };
        let info = journal.try_run(run).map_err(failed)?.map(|entry| entry.info);
        info.filter(|info| info.workflow_id == target.workflow_id).ok_or_else(not_found)
    }

    /// Reads in a thread that may block.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Shared) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, Rejection> {
        let shared = self.shared.clone();
        match tokio::task::spawn_blocking(move || read(&shared)).await {
            Ok(result) => result.map_err(|error| Rejection::StorageFailed { why: error.to_string() }),
            Err(error) => Err(Rejection::StorageFailed { why: format!("the reading task ended: {error}") }),
        }
    }

    /// Up to `limit` events of a run, from an event id on.
    pub async fn history(&self, target: &Target, from: EventId, limit: usize) -> Result<Vec<Event>, Rejection> {
        self.admit_reading("history", Some(&target.workflow_id))?;
        let run = self.resolve(target)?.run_id;
        self.events_of(run, from, limit.clamp(1, PAGE_MAX)).await
    }

    async fn events_of(&self, run: RunId, from: EventId, limit: usize) -> Result<Vec<Event>, Rejection> {
        self.read(move |shared| {
            let turns = shared.journal.turns(run, from)?;
            let from = if seeded::on(Bug::PageOffByOne) && from > EventId(1) { from.next() } else { from };
            Ok(turns.iter().flat_map(Turn::numbered).filter(|event| event.id >= from).take(limit).collect())
        })
        .await
    }

    /// All turns of a run, for replay and export.
    pub async fn turns(&self, target: &Target) -> Result<Vec<Turn>, Rejection> {
        self.admit_reading("turns", Some(&target.workflow_id))?;
        let run = self.resolve(target)?.run_id;
        self.read(move |shared| shared.journal.turns(run, EventId(1))).await
    }

    /// The events of a run from an event id on, each once and in order. With `follow`, until the run has ended;
    /// otherwise up to what is there now (engine.md E33).
    pub fn events(
        &self,
        target: Target,
        from: EventId,
        follow: bool,
    ) -> impl Stream<Item = Result<Event, Rejection>> + Send + 'static {
        let client = self.clone();
        async_stream::try_stream! {
            client.admit_reading("events", Some(&target.workflow_id))?;
            let run = client.resolve(&target)?.run_id;
            let mut next = EventId(from.0.max(1));
            loop {
                // Subscribed, and looked for the end, before reading, so that nothing falls between.
                let mut committed = client.shared.committed.subscribe();
                let closed = client.info_of(run).is_none_or(|info| !info.status.is_open());
                let events = client.events_of(run, next, PAGE_MAX).await?;
                let page_was_full = events.len() == PAGE_MAX;
                let mut ended = false;
                for event in events {
                    ended = event.kind.closes().is_some();
                    next = event.id.next();
                    yield event;
                }
                if ended || (!page_was_full && (!follow || closed)) {
                    break;
                }
                if !page_was_full {
                    client.news_of(&mut committed, run).await?;
                }
            }
        }
    }

    /// Waits until a group with a turn of the run is durable.
    async fn news_of(
        &self,
        committed: &mut broadcast::Receiver<Arc<crate::service::CommittedGroup>>,
        run: RunId,
    ) -> Result<(), Rejection> {
        let mut health = self.shared.health.watch();
        loop {
            let news = tokio::select! {
                news = committed.recv() => news,
                left = health.wait_for(|health| gone(health).is_some()) => {
                    return Err(left.ok().and_then(|health| gone(&health)).unwrap_or(Rejection::ShuttingDown));
                }
            };
            match news {
                Ok(group) if group.turns.iter().any(|turn| turn.run == run) => return Ok(()),
                Ok(_) => {}
                // Too much has happened to tell one by one: look again.
                Err(broadcast::error::RecvError::Lagged(_)) => return Ok(()),
                Err(broadcast::error::RecvError::Closed) => return Err(Rejection::ShuttingDown),
            }
        }
    }

    /// Committed events of all runs that fit the filter, as they happen (engine.md E33). `after` is the last group the
    /// subscriber has seen; `None` begins now. Ends with an error when the worker leaves, and when groups that were not
    /// seen yet have left the log: no gap goes unnoticed.
    pub fn watch(
        &self,
        query: String,
        after: Option<GroupSeq>,
    ) -> impl Stream<Item = Result<RunEvent, Rejection>> + Send + 'static {
        let client = self.clone();
        async_stream::try_stream! {
            client.admit_reading("watch", None)?;
            let filter = parse(&query)?;
            let mut committed = client.shared.committed.subscribe();
            let mut health = client.shared.health.watch();
            let mut seen = after.unwrap_or_else(|| client.shared.journal.last_group());
            loop {
                // Looked at before reading: what was decided before the worker left is still shown.
                let gone = gone(&health.borrow_and_update());
                let upto = client.shared.journal.last_group();
                while seen < upto {
                    seen = seen.next();
                    let group = seen;
                    let turns = client.group_turns(group).await?;
                    for turn in turns {
                        let Some(info) = client.info_of(turn.run) else { continue };
                        if filter.matches(&info) {
                            for event in turn.numbered() {
                                let (workflow_id, run_id) = (info.workflow_id.clone(), turn.run);
                                yield RunEvent { group, workflow_id, run_id, event };
                            }
                        }
                    }
                }
                if let Some(why) = gone {
                    Err(why)?;
                }
                tokio::select! {
                    // Lagging behind costs nothing: the log is read from where the subscriber stands.
                    _ = committed.recv() => {}
                    _ = health.changed() => {}
                }
            }
        }
    }

    async fn group_turns(&self, group: GroupSeq) -> Result<Vec<Turn>, Rejection> {
        let turns = self.read(move |shared| shared.journal.group_turns(group)).await?;
        let first = self.shared.journal.first_group();
        if turns.is_empty() && group < first {
            let why = format!("the log begins at group {first}; older events are in the histories of their runs");
            return Err(Rejection::Invalid { what: format!("watch from group {group}"), why });
        }
        Ok(turns)
    }

    /// Runs that fit a filter, in its order, by default newest start first (engine.md E23).
    pub async fn list(&self, request: ListRequest) -> Result<Vec<RunInfo>, Rejection> {
        self.admit_reading("list", None)?;
        let filter = parse(&request.query)?;
        let limit = request.limit.clamp(1, PAGE_MAX);
        self.read(move |shared| {
            let mut found: VecDeque<RunInfo> = VecDeque::new();
            let by_start = filter.is_default_order();
            shared.journal.scan_runs(&mut |info| {
                if filter.matches(info) {
                    found.push_back(info.clone());
                }
                !(by_start && found.len() >= limit)
            });
            let mut found: Vec<RunInfo> = found.into();
            if !by_start {
                found.sort_by(|a, b| filter.compare(a, b));
            }
            found.truncate(limit);
            Ok(found)
        })
        .await
    }

    pub async fn count(&self, query: &str) -> Result<u64, Rejection> {
        self.admit_reading("count", None)?;
        let filter = parse(query)?;
        self.read(move |shared| {
            let mut count = 0;
            shared.journal.scan_runs(&mut |info| {
                count += u64::from(filter.matches(info));
                true
            });
            Ok(count)
        })
        .await
    }

    /// Reading goes on while the worker drains.
    fn admit_reading(&self, call: &'static str, workflow_id: Option<&WorkflowId>) -> Result<(), Rejection> {
        self.shared.options.interceptors.iter().try_for_each(|interceptor| interceptor.client_call(call, workflow_id))
    }

    /// Removes a closed run and what only it refers to (engine.md E32).
    pub async fn delete(&self, target: &Target) -> Result<(), Rejection> {
        self.admit("delete", Some(&target.workflow_id))?;
        let info = self.resolve(target)?;
        if info.status.is_open() {
            let why = "it is open; terminate or cancel it first".to_owned();
            return Err(Rejection::Invalid { what: format!("delete of run {}", info.run_id), why });
        }
        let run = info.run_id;
        self.read(move |shared| shared.journal.delete_run(run)).await.map(|_| ())
    }

    /// Does now what a worker does now and then: checkpoints, archives, deletes runs past retention, collects blobs; a
    /// bounded piece of each (engine.md E32).
    pub async fn housekeep(&self) -> Result<Housekeeping, Rejection> {
        self.read(crate::service::housekeep).await
    }

    /// Checks everything that is stored (engine.md E38).
    pub async fn verify(&self) -> Result<VerifyReport, Rejection> {
        self.admit_reading("verify", None)?;
        self.read(|shared| Ok(shared.journal.verify())).await
    }
    /// Copies a consistent prefix of the log to a new directory, while work goes on (engine.md E38, G10).
    pub async fn backup(&self, directory: &Path) -> Result<BackupReport, Rejection> {
        self.admit_reading("backup", None)?;
        let directory = directory.to_owned();
        self.read(move |shared| shared.journal.backup(&directory)).await
    }
    pub async fn store_info(&self) -> Result<StoreInfo, Rejection> {
        self.admit_reading("store-info", None)?;
        self.read(|shared| Ok(shared.journal.info())).await
    }
}

/// Why nothing more will be committed, if so. A worker that drains still commits.
fn gone(health: &Health) -> Option<Rejection> {
    match health {
        Health::Ready | Health::Draining => None,
        Health::StorageFull { .. } | Health::StorageFailed { .. } | Health::Stopped => health.refusal(),
    }
}

fn parse(query: &str) -> Result<Filter, Rejection> {
    Filter::parse(query)
        .map_err(|error| Rejection::Invalid { what: format!("list filter {query:?}"), why: error.to_string() })
}

fn target_of(info: &RunInfo) -> Target {
    Target { namespace: info.namespace.clone(), workflow_id: info.workflow_id.clone(), run_id: Some(info.run_id) }
}
