//! The client: what can be asked of a worker, from inside its process. The control API offers the same over HTTP.
//!
//! Invariant: an `Ok` means that what it says is durable; an `Err` means that nothing has changed. Reading calls
//! (history, events, list) see durable facts only and go past the turn threads: they are in `reading`. A client is cheap
//! to clone.
//!
//! Long: one method a request, in one place, is what a reader of a client looks for.
#![expect(clippy::disallowed_methods, reason = "edge: reads of the log leave the async threads")]

mod fit;
mod reading;
mod store;
mod typed;

use std::sync::Arc;

pub use typed::{MessageError, WorkflowError, WorkflowHandle};

use crate::activity::TaskToken;
use crate::machine::PlannedFork;
use crate::request::*;
use crate::service::{
    ActivityAct, Answered, ClosedRun, FitReport, ReplySender, RunRef, ShardMessage, StartThen, UnlockedTime,
    WorkerShared,
};
use crate::vocabulary::*;

/// The most runs or events one page has (G34).
pub const PAGE_MAX: usize = 1_000;

/// What can be asked of a worker of this process; see the module. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    shared: Arc<WorkerShared>,
}

impl Client {
    pub(crate) fn new(shared: Arc<WorkerShared>) -> Self {
        Client { shared }
    }

    /// Sends a message to the shard of a workflow id and waits for its answer.
    async fn ask<T>(
        &self,
        call: &'static str,
        namespace: &Namespace,
        workflow_id: &WorkflowId,
        message: impl FnOnce(ReplySender<T>) -> ShardMessage,
    ) -> Result<T, Rejection> {
        self.ask_with(call, namespace, workflow_id, false, message).await
    }

    /// As [`Client::ask`], for an answer that may take time to come: a virtual clock moves until it is there.
    async fn ask_in_time<T>(
        &self,
        call: &'static str,
        target: &Target,
        message: impl FnOnce(ReplySender<T>) -> ShardMessage,
    ) -> Result<T, Rejection> {
        self.ask_with(call, &target.namespace, &target.workflow_id, true, message).await
    }

    async fn ask_with<T>(
        &self,
        call: &'static str,
        namespace: &Namespace,
        workflow_id: &WorkflowId,
        in_time: bool,
        message: impl FnOnce(ReplySender<T>) -> ShardMessage,
    ) -> Result<T, Rejection> {
        self.admit(call, Some(workflow_id))?;
        let time = &self.shared.time;
        // Unlocked until the answer, or until the caller goes away. No time passes before the request itself counts as under
        // way: it would be made of a run that is past it.
        let (held, unlocked) = in_time.then(|| (time.hold(), UnlockedTime::new(time))).unzip();
        let (reply, answer) = ReplySender::new(unlocked.clone());
        let message = message(reply);
        let waits_for_the_end = matches!(message, ShardMessage::AwaitClose { .. });
        self.shared.request(namespace, workflow_id, message)?;
        drop(held);
        if waits_for_the_end {
            return self.answered(answer).await;
        }
        self.received(answer).await
    }

    fn admit(&self, call: &'static str, workflow_id: Option<&WorkflowId>) -> Result<(), Rejection> {
        self.admit_reading(call, workflow_id)?;
        self.shared.health.get().refusal().map_or(Ok(()), Err)
    }

    /// The answer; on a full disk, where what is answered cannot be written, a refusal.
    async fn received<T>(&self, answer: Answered<T>) -> Result<T, Rejection> {
        tokio::select! {
            biased;
            answer = self.answered(answer) => answer,
            full = self.shared.committer.no_room.for_long() => Err(full),
        }
    }

    /// A turn thread that gives no answer is one whose code did not come back, or a worker that has left.
    async fn answered<T>(&self, answer: Answered<T>) -> Result<T, Rejection> {
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

    /// Whether a payload can be taken as data.
    fn check_payload(&self, payload: &Payload) -> Result<(), Rejection> {
        let limit = self.shared.options.limits.payload_max;
        if payload.len() > limit {
            return Err(Rejection::PayloadTooLarge { length: payload.len(), limit });
        }
        if payload.encoding == ENCODING_REDACTED {
            let why = "it was redacted: it holds a digest of the data, not the data".to_owned();
            return Err(Rejection::Invalid { what: "payload".into(), why });
        }
        if payload.is_lost() {
            let why = "damage to a store took its data: nothing is left to give".to_owned();
            return Err(Rejection::Invalid { what: "payload".into(), why });
        }
        Ok(())
    }

    fn check_start(&self, start: &StartWorkflow) -> Result<(), Rejection> {
        if let Some(parent) = &start.parent {
            // It would be told how this run ended, as the end of a child of its own, and a full disk would not stop the start.
            let why = format!("only a run starts children: {} did not ask for this one", parent.workflow_id);
            return Err(Rejection::Invalid { what: "start request".into(), why });
        }
        self.check_payload(&start.input)?;
        start.memo.values().try_for_each(|payload| self.check_payload(payload))?;
        let taken = start.search_attributes.keys().find(|name| crate::Filter::is_builtin(name));
        if let Some(name) = taken {
            let why =
                format!("the search attribute {name}: lists know a field of that name of every run; choose another");
            return Err(Rejection::Invalid { what: "start request".into(), why });
        }
        let wrong = start.retry_policy.as_ref().and_then(|policy| policy.check().err());
        let wrong = wrong.or_else(|| start.priority.as_ref()?.check().err());
        wrong.map_or(Ok(()), |why| Err(Rejection::Invalid { what: "start request".into(), why }))
    }

    /// On a full disk nothing new is begun (G5); what runs may go on.
    fn check_space(&self) -> Result<(), Rejection> {
        self.shared.journal.low_on_space().map_or(Ok(()), |why| Err(Rejection::StorageFull { why }))
    }

    /// Starts a workflow execution (E01).
    pub async fn start(&self, start: StartWorkflow) -> Result<Started, Rejection> {
        self.check_start(&start)?;
        let (namespace, workflow_id) = (start.namespace.clone(), start.workflow_id.clone());
        self.ask("start", &namespace, &workflow_id, |reply| ShardMessage::Start {
            run_id: self.shared.new_run_id(),
            start: Box::new(start),
            then: StartThen::Nothing,
            reply,
        })
        .await
    }

    /// Forks a run: a new run under a new workflow id that begins with the history of the source, up to an event, and
    /// goes on from there with what the request changes. With `dry_run` it says what would happen and writes nothing.
    pub async fn fork(&self, mut request: ForkRequest) -> Result<Forked, Rejection> {
        for change in &request.changes {
            match change {
                ForkChange::Outcome { outcome: Ok(payload), .. }
                | ForkChange::Signal { input: payload, .. }
                | ForkChange::Input(payload) => self.check_payload(payload)?,
                ForkChange::Outcome { outcome: Err(_), .. } => {}
            }
        }
        if !request.dry_run {
            self.check_space()?;
        }
        let turns = match std::mem::replace(&mut request.source, ForkSource::History(Vec::new())) {
            ForkSource::Run(target) => self.turns(&target).await?,
            ForkSource::History(turns) => turns,
        };
        let (run_id, now, dry_run) = (self.shared.new_run_id(), self.shared.clock.now(), request.dry_run);
        let (namespace, workflow_id) = (request.namespace.clone(), request.workflow_id.clone());
        // A long history takes a while to be looked through.
        let planned = tokio::task::spawn_blocking(move || PlannedFork::plan(&request, &turns, run_id, now)).await;
        let fork = Box::new(planned.map_err(|why| Rejection::Held { why: format!("planning the fork: {why}") })??);
        self.ask("fork", &namespace, &workflow_id, |reply| ShardMessage::Fork { fork, dry_run, reply }).await
    }

    /// Resets a run (E26): the open run of the workflow id is ended, and another one goes on in its place, from an
    /// earlier point of the history of the run that is named. With `dry_run` it says what would happen and writes nothing.
    pub async fn reset(&self, request: ResetRequest) -> Result<ResetDone, Rejection> {
        let (namespace, workflow_id) = (request.target.namespace.clone(), request.target.workflow_id.clone());
        self.ask("reset", &namespace, &workflow_id, |reply| ShardMessage::Reset {
            run_id: self.shared.new_run_id(),
            request: Box::new(request),
            reply,
        })
        .await
    }

    /// Signals the open run of the workflow id, or starts one and signals it, atomically (E12).
    pub async fn signal_with_start(&self, start: StartWorkflow, signal: SignalRequest) -> Result<Started, Rejection> {
        self.check_start(&start)?;
        self.check_payload(&signal.input)?;
        let (namespace, workflow_id) = (start.namespace.clone(), start.workflow_id.clone());
        self.ask("signal-with-start", &namespace, &workflow_id, |reply| ShardMessage::Start {
            run_id: self.shared.new_run_id(),
            start: Box::new(start),
            then: StartThen::Signal(signal),
            reply,
        })
        .await
    }

    /// As [`Client::signal_with_start`] with an update (E12). What happens when a run is open is said by the
    /// conflict policy of the start. A refused update leaves no new run behind.
    pub async fn update_with_start(
        &self,
        start: StartWorkflow,
        update: UpdateRequest,
    ) -> Result<(Started, UpdateOutcome), Rejection> {
        self.check_start(&start)?;
        self.check_payload(&update.input)?;
        let (namespace, workflow_id) = (start.namespace.clone(), start.workflow_id.clone());
        let held = self.shared.time.hold();
        let unlocked = UnlockedTime::new(&self.shared.time);
        let (update_reply, update_answer) = ReplySender::new(Some(unlocked.clone()));
        let started = self
            .ask("update-with-start", &namespace, &workflow_id, |reply| ShardMessage::Start {
                run_id: self.shared.new_run_id(),
                start: Box::new(start),
                then: StartThen::Update(update, update_reply),
                reply,
            })
            .await?;
        drop(held);
        Ok((started, self.received(update_answer).await?))
    }

    async fn input(&self, call: &'static str, target: &Target, input: Input) -> Result<(), Rejection> {
        let run = RunRef::Target(target.clone());
        self.ask(call, &target.namespace, &target.workflow_id, |reply| ShardMessage::Input {
            run,
            input,
            reply: Some(reply),
        })
        .await
    }

    /// Sends a signal to an open run. Refused if the run is closed; one that is paused or held keeps it.
    pub async fn signal(&self, target: &Target, signal: SignalRequest) -> Result<(), Rejection> {
        self.check_payload(&signal.input)?;
        self.input("signal", target, Input::Signal(signal.into())).await
    }
    /// Asks a run to cancel: its code hears of it, and may clean up.
    pub async fn cancel(
        &self,
        target: &Target,
        reason: String,
        identity: Option<Identity>,
        request_id: Option<RequestId>,
    ) -> Result<(), Rejection> {
        self.input("cancel", target, Input::RequestCancel { reason, identity, request_id }).await
    }
    /// Ends a run at once. No code of it runs any more; its children go by their close policy.
    pub async fn terminate(
        &self,
        target: &Target,
        reason: String,
        identity: Option<Identity>,
    ) -> Result<(), Rejection> {
        self.input("terminate", target, Input::Terminate { reason, identity }).await
    }
    /// Keeps a run from going on: what comes for it is kept in order, no attempt starts and no timer fires. Attempts that
    /// run may end.
    pub async fn pause(&self, target: &Target, reason: String, identity: Option<Identity>) -> Result<(), Rejection> {
        self.input("pause", target, Input::Pause { reason, identity }).await
    }
    /// Lets a paused run go on. Of a run that is held and not paused: lets its code try again, once.
    pub async fn unpause(&self, target: &Target, reason: String, identity: Option<Identity>) -> Result<(), Rejection> {
        self.input("unpause", target, Input::Unpause { reason, identity }).await
    }
    /// Keeps a pending activity from being tried again. The attempt that runs may end.
    pub async fn pause_activity(
        &self,
        target: &Target,
        activity_id: &ActivityId,
        reason: String,
        identity: Option<Identity>,
    ) -> Result<(), Rejection> {
        self.activity_by_name("pause-activity", target, activity_id, (ActivityAct::Pause, reason, identity)).await
    }
    /// Lets a paused activity be tried again.
    pub async fn unpause_activity(
        &self,
        target: &Target,
        activity_id: &ActivityId,
        identity: Option<Identity>,
    ) -> Result<(), Rejection> {
        let act = (ActivityAct::Unpause, String::new(), identity);
        self.activity_by_name("unpause-activity", target, activity_id, act).await
    }
    /// Changes a pending activity: its timeouts and policy, what its attempts count from, when it is tried next.
    pub async fn update_activity(
        &self,
        target: &Target,
        activity_id: &ActivityId,
        update: ActivityUpdate,
        reason: String,
        identity: Option<Identity>,
    ) -> Result<(), Rejection> {
        let act = (ActivityAct::Modify(Box::new(update)), reason, identity);
        self.activity_by_name("update-activity", target, activity_id, act).await
    }
    async fn activity_by_name(
        &self,
        call: &'static str,
        target: &Target,
        activity_id: &ActivityId,
        (act, reason, identity): (ActivityAct, String, Option<Identity>),
    ) -> Result<(), Rejection> {
        self.ask(call, &target.namespace, &target.workflow_id, |reply| ShardMessage::ActivityByName {
            target: target.clone(),
            activity_id: activity_id.clone(),
            act,
            reason,
            identity,
            reply,
        })
        .await
    }

    /// Completes, fails, cancels or heartbeats an attempt from outside (E09).
    pub async fn complete_activity(&self, token: TaskToken, completion: ActivityCompletion) -> Result<(), Rejection> {
        let TaskToken { run_id, seq, attempt } = token;
        let info = self.info_of(run_id).ok_or(Rejection::UnknownActivity { activity: token.to_string() })?;
        let identity = self.shared.options.identity.clone();
        let ended = |outcome| ("complete-activity", Input::ActivityOutcome { seq, attempt, outcome, identity });
        let (verb, input) = match completion {
            ActivityCompletion::Complete(result) => ended(ActivityOutcome::Completed(result)),
            ActivityCompletion::Fail(failure) => ended(ActivityOutcome::Failed(failure)),
            ActivityCompletion::Cancel(details) => ended(ActivityOutcome::Canceled(details)),
            ActivityCompletion::Heartbeat(details) => {
                ("heartbeat-activity", Input::Heartbeat { seq, attempt, details })
            }
        };
        let mut refused = None;
        input.payloads(&mut |payload| {
            if refused.is_none() {
                refused = self.check_payload(payload).err();
            }
        });
        refused.map_or(Ok(()), Err)?;
        let is_end = matches!(input, Input::ActivityOutcome { .. });
        self.input(verb, &Target { run_id: Some(run_id), ..target_of(&info) }, input).await?;
        if !is_end {
            return Ok(());
        }
        // If the function still runs here, nobody waits for it any more.
        self.shared.runner.cancel(token);
        Ok(())
    }

    /// Asks a run, open or closed, for something; it answers from its state, and nothing is written.
    pub async fn query(&self, target: &Target, name: &QueryName, input: Payload) -> Result<Payload, Rejection> {
        self.check_payload(&input)?;
        self.ask("query", &target.namespace, &target.workflow_id, |reply| ShardMessage::Query {
            target: target.clone(),
            name: name.clone(),
            input,
            reply,
        })
        .await
    }

    /// Sends an update and waits until it is accepted or completed, as asked (E14).
    pub async fn update(&self, target: &Target, request: UpdateRequest) -> Result<UpdateOutcome, Rejection> {
        self.check_payload(&request.input)?;
        self.ask_in_time("update", target, |reply| ShardMessage::Update { target: target.clone(), request, reply })
            .await
    }

    /// Waits for the answer of an update that was accepted before.
    pub async fn update_result(&self, target: &Target, update_id: &UpdateId) -> Result<UpdateOutcome, Rejection> {
        self.ask_in_time("update-result", target, |reply| ShardMessage::UpdateResult {
            target: target.clone(),
            update_id: update_id.clone(),
            reply,
        })
        .await
    }

    pub(crate) fn health_now(&self) -> crate::service::Health {
        self.shared.health.get()
    }

    /// Loads the open runs that another build has decided last, as far as [`WorkerOptions::fit_runs_max`] goes, and says
    /// how many of them do not fit the code of this worker and are therefore held. Done once; asked again, it answers with
    /// what was found then.
    ///
    /// [`WorkerOptions::fit_runs_max`]: crate::WorkerOptions::fit_runs_max
    pub async fn check_fit(&self) -> FitReport {
        *self.shared.fit.get_or_init(|| self.look_at_runs_of_other_builds()).await
    }

    /// What a run is at: its state, what is pending, what its code waits for, and whether it is held.
    pub async fn describe(&self, target: &Target) -> Result<Description, Rejection> {
        let described = self
            .ask("describe", &target.namespace, &target.workflow_id, |reply| ShardMessage::Describe {
                target: target.clone(),
                reply,
            })
            .await?;
        Ok(*described)
    }

    /// Waits for the end of a run; `None` when the timeout is over first and the run is still open. The timeout is wall-clock
    /// time, in the test environment too. A run that has ended is always reported, even with a timeout of zero.
    pub async fn result(&self, target: &Target, request: ResultRequest) -> Result<Option<RunResult>, Rejection> {
        let waiting = self.follow_to_end(target.clone(), request.follow_runs);
        let Some(timeout) = request.timeout else { return waiting.await.map(Some) };
        let mut waiting = std::pin::pin!(waiting);
        match tokio::time::timeout(timeout, waiting.as_mut()).await {
            Ok(result) => result.map(Some),
            Err(_) if self.has_ended(target, request.follow_runs)? => waiting.await.map(Some),
            Err(_) => Ok(None),
        }
    }

    async fn follow_to_end(&self, mut target: Target, follow_runs: bool) -> Result<RunResult, Rejection> {
        loop {
            let closed: ClosedRun = self
                .ask_in_time("result", &target, |reply| ShardMessage::AwaitClose { target: target.clone(), reply })
                .await?;
            match closed.next_run {
                Some(next) if follow_runs => target.run_id = Some(next),
                Some(_) | None if closed.outcome.is_lost() => {
                    let run = closed.run_id;
                    let why = format!(
                        "damage to the store took the result of run {run}: a backup may have it (`bosun store restore`)"
                    );
                    return Err(Rejection::Damaged { why });
                }
                Some(_) | None => {
                    let Target { workflow_id, .. } = target;
                    return Ok(RunResult { workflow_id, run_id: closed.run_id, outcome: closed.outcome });
                }
            }
        }
    }

    /// The worker's time, which never goes back while it is up, and is never before the newest time in the log.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Lets time pass in the test environment. On a real clock it really waits.
    pub async fn sleep(&self, duration: std::time::Duration) {
        match self.shared.clock.as_virtual() {
            Some(clock) => {
                let until = clock.now().plus(duration);
                self.shared.time.sleep_until(until, false).await;
            }
            None => tokio::time::sleep(duration).await,
        }
    }

    /// Waits until nothing is under way any more, attempts included, and no time passes meanwhile. For tests: on a real
    /// clock it returns at once.
    pub(crate) async fn settle(&self) {
        if let Some(clock) = self.shared.clock.as_virtual() {
            self.shared.time.sleep_until(clock.now(), true).await;
        }
    }

    /// Removes a closed run and what only it refers to (E32).
    pub async fn delete(&self, target: &Target) -> Result<(), Rejection> {
        self.admit("delete", Some(&target.workflow_id))?;
        let info = self.resolve(target)?;
        if info.status.is_open() {
            let why = "it is open; terminate or cancel it first".to_owned();
            return Err(Rejection::Invalid { what: format!("delete of run {}", info.run_id), why });
        }
        let run = info.run_id;
        if self.read(move |shared| shared.journal.delete_run(run)).await? {
            return Ok(());
        }
        // Somebody else may have deleted it meanwhile; then there is none.
        let info = self.resolve(target)?;
        let reset = info.next_run.filter(|_| info.status == WorkflowStatus::Terminated);
        let why = match reset.and_then(|next| self.info_of(next)).filter(|heir| heir.status.is_open()) {
            Some(heir) => format!("it was reset, and {} goes on for it; end that run first", heir.run_id),
            None => "messages that it sent have not arrived yet; ask again".to_owned(),
        };
        Err(Rejection::Invalid { what: format!("delete of run {run}"), why })
    }
}

fn target_of(info: &RunInfo) -> Target {
    Target { namespace: info.namespace.clone(), workflow_id: info.workflow_id.clone(), run_id: Some(info.run_id) }
}
