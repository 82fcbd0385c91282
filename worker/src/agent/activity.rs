//! The activity `agent_model`: reads the conversation out of the run's history and hands it to the capability `model`.
//!
//! Invariant: what was said is kept by the history alone, once, with its codecs, backups and retention; this keeps a
//! cache that may be dropped at any moment. The capability `model` is called as it is registered, with the idempotency
//! key, the attempt and the cancellation of this activity. An attempt whose answer nobody heard may have been paid for, and
//! is told with the answer that was heard, also to a run that asks `model` itself.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bosun_engine::{
    ActivityContext, ActivityError, ActivityFunction, ActivityRegistry, ActivityTask, ActivityType, Client, Event,
    EventId, EventKind, Failure, HeartbeatSink, Namespace, Payload, RunId, RunInfo, Target, TaskToken, WorkflowId,
};
use serde_json::Value;
use tokio::sync::watch;

use super::border::{AGENT_CARRY, CarryInput, CarryOutput};
use super::ends::{was_cut, with_cut};
use super::machine::ModelCall;
use super::resolve::{Conversation, ResolveError};
use super::transcript::TranscriptItem;
use super::workflow::AGENT_MODEL;
use crate::backend::BoxFuture;
use crate::capability::model::{CallingRun, Lives, MODEL, ModelInput};
use crate::schedule::SCHEDULE;

/// The history could not be read; it may be later.
pub const TRANSCRIPT_UNAVAILABLE: &str = "TranscriptUnavailable";
/// The history is not that of an agent.
pub const TRANSCRIPT_BROKEN: &str = "TranscriptBroken";
/// A worker that has just started is waited for.
const ATTACH_WAIT: Duration = Duration::from_secs(30);
/// Events that are read at a time; fewer mean that there are no more.
pub(super) const PAGE: usize = 500;
/// How far up the runs above a run are looked at.
const GENERATIONS_MAX: usize = 64;
/// Conversations that are kept, and about how much memory they may take together.
const CACHED_RUNS: usize = 64;
const CACHED_BYTES: usize = 256 * 1024 * 1024;

/// A page that is being read.
pub type TranscriptReading<'a> = Pin<Box<dyn Future<Output = Result<Vec<Event>, String>> + Send + 'a>>;

/// Where histories are read.
pub trait RunHistory: Send + Sync {
    /// A page of a run's events, from an event on; empty at the end.
    fn events(&self, target: Target, from: EventId) -> TranscriptReading<'_>;
    /// A run as it is listed; nothing if there is none.
    fn run(&self, target: Target) -> BoxFuture<'_, Option<RunInfo>>;
}

impl RunHistory for Client {
    fn events(&self, target: Target, from: EventId) -> TranscriptReading<'_> {
        Box::pin(async move { self.history(&target, from, PAGE).await.map_err(|why| why.to_string()) })
    }
    fn run(&self, target: Target) -> BoxFuture<'_, Option<RunInfo>> {
        Box::pin(async move { self.describe(&target).await.ok().map(|description| description.info) })
    }
}

/// The conversations of a worker's agents. Cheap to clone.
#[derive(Clone)]
pub struct Conversations {
    source: Arc<watch::Sender<Option<Arc<dyn RunHistory>>>>,
    cache: Arc<Mutex<Cache>>,
}

/// The conversations used last, oldest first.
#[derive(Default)]
struct Cache {
    runs: Vec<(RunId, Conversation)>,
}

impl Cache {
    /// Taken out while it is used: two calls of one run never are at a time, and if they were, one would read again.
    fn take(&mut self, run: RunId) -> Conversation {
        match self.runs.iter().position(|(other, _)| *other == run) {
            Some(at) => self.runs.remove(at).1,
            None => Conversation::default(),
        }
    }
    fn put(&mut self, run: RunId, conversation: Conversation) {
        self.runs.retain(|(other, _)| *other != run);
        self.runs.push((run, conversation));
        let size = |runs: &[(RunId, Conversation)]| runs.iter().map(|(_, one)| one.bytes()).sum::<usize>();
        while self.runs.len() > CACHED_RUNS || size(&self.runs) > CACHED_BYTES && self.runs.len() > 1 {
            self.runs.remove(0);
        }
    }
}

impl Default for Conversations {
    fn default() -> Self {
        Conversations { source: Arc::new(watch::channel(None).0), cache: Arc::default() }
    }
}

impl Conversations {
    /// Says where histories are read; once the worker is there. Calls wait for it.
    pub fn attach(&self, source: Arc<dyn RunHistory>) {
        self.source.send_replace(Some(source));
    }

    /// The whole request of a call that is in the history.
    pub async fn request(&self, task: &ActivityTask) -> Result<ModelInput, Failure> {
        Ok(self.asked(task).await?.0)
    }

    /// The same, with how many of its attempts were cut.
    async fn asked(&self, task: &ActivityTask) -> Result<(ModelInput, u32), Failure> {
        let mut conversation = self.read(task).await?;
        let request = conversation.request(task.seq.0).map_err(broken)?;
        let cut = conversation.cut(task.seq.0);
        self.cache().put(task.run_id, conversation);
        Ok((request, cut))
    }

    /// The conversation of a run so far, for the run in which it goes on.
    async fn carried(&self, task: &ActivityTask, items: &[TranscriptItem]) -> Result<CarryOutput, Failure> {
        let conversation = self.read(task).await?;
        Ok(CarryOutput { messages: conversation.carry(items).map_err(broken)? })
    }

    /// The history of the run that asks, as far as it is written. It is taken out of the cache.
    async fn read(&self, task: &ActivityTask) -> Result<Conversation, Failure> {
        let mut conversation = self.cache().take(task.run_id);
        let target = Target {
            namespace: task.namespace.clone(),
            workflow_id: task.workflow_id.clone(),
            run_id: Some(task.run_id),
        };
        let source = self.attached().await?;
        loop {
            let page = source.events(target.clone(), conversation.next_event()).await;
            let page = page.map_err(|why| Failure::application(TRANSCRIPT_UNAVAILABLE, why))?;
            page.iter().for_each(|event| conversation.hear(event.id, &event.kind));
            if page.len() < PAGE {
                return Ok(conversation);
            }
        }
    }

    /// How many earlier attempts of this one were cut, by the history of its run. What cannot be read counts as none: an
    /// answer that is there is not thrown away for it.
    async fn cut_before(&self, context: &ActivityContext) -> u32 {
        if context.attempt().0 <= 1 {
            return 0;
        }
        let ActivityTask { namespace, workflow_id, run_id, seq, .. } = context.task();
        let target = Target { namespace: namespace.clone(), workflow_id: workflow_id.clone(), run_id: Some(*run_id) };
        let Ok(source) = self.attached().await else { return 0 };
        let (mut next, mut cut) = (EventId(1), 0);
        loop {
            let Ok(page) = source.events(target.clone(), next).await else { return cut };
            for event in &page {
                next = event.id.next();
                if let EventKind::ActivityTaskAttemptFailed { seq: of, failure, .. } = &event.kind
                    && of == seq
                    && was_cut(failure)
                {
                    cut += 1;
                }
            }
            if page.len() < PAGE {
                return cut;
            }
        }
    }

    async fn attached(&self) -> Result<Arc<dyn RunHistory>, Failure> {
        let mut source = self.source.subscribe();
        let attached = tokio::time::timeout(ATTACH_WAIT, source.wait_for(Option::is_some)).await;
        let attached = attached.ok().and_then(Result::ok).and_then(|source| source.clone());
        attached.ok_or_else(|| Failure::application(TRANSCRIPT_UNAVAILABLE, "the worker gave no way to read histories"))
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        // What a panic left behind is a cache of whole conversations all the same.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run is under way as long as one above it is, which may begin another like it. A schedule is above all that it starts,
/// and none of that is a part of another.
impl Lives for Conversations {
    fn is_under_way(&self, run: CallingRun) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let CallingRun { namespace, workflow_id, run_id } = run;
            let (Ok(namespace), Ok(workflow_id)) = (Namespace::new(&namespace), WorkflowId::new(&workflow_id)) else {
                return false;
            };
            let Ok(source) = self.attached().await else { return false };
            let mut target = Target { namespace, workflow_id, run_id: run_id.parse().ok() };
            for _ in 0..GENERATIONS_MAX {
                let Some(info) = source.run(target.clone()).await else { return false };
                if info.workflow_type.as_str() == SCHEDULE {
                    return false;
                }
                if info.status.is_open() {
                    return true;
                }
                let Some(parent) = info.parent else { return false };
                target = Target { workflow_id: parent.workflow_id, run_id: Some(parent.run_id), ..target };
            }
            false
        })
    }
}

fn broken(why: ResolveError) -> Failure {
    Failure::application(TRANSCRIPT_BROKEN, why.to_string()).non_retryable()
}

/// Registers `agent_carry`; `agent_model`, which calls the activity `model` that is registered already; and `model` itself anew, so that a
/// run that asks it step by step hears of its attempts that were cut, as an agent does.
pub fn register_activities(registry: &mut ActivityRegistry, conversations: Conversations) {
    let model = registry.get(&ActivityType::of(MODEL)).cloned();
    if let Some(model) = model.clone() {
        let conversations = conversations.clone();
        registry.register(MODEL, move |context: ActivityContext, _: serde::de::IgnoredAny| {
            let (model, conversations) = (model.clone(), conversations.clone());
            async move {
                let ended = match model(context.clone()).await {
                    Ok(payload) => Ok(payload.decode()?),
                    Err(why) => Err(why),
                };
                told(ended, conversations.cut_before(&context).await)
            }
        });
    }
    let of_runs = conversations.clone();
    registry.register(AGENT_CARRY, move |context: ActivityContext, input: CarryInput| {
        let conversations = of_runs.clone();
        async move { Ok::<_, ActivityError>(conversations.carried(context.task(), &input.items).await?) }
    });
    registry.external(AGENT_MODEL);
    registry.register(AGENT_MODEL, move |context: ActivityContext, _: ModelCall| {
        let (model, conversations) = (model.clone(), conversations.clone());
        async move {
            let Some(model) = model else {
                let why = "this worker has no capability `model`";
                return Err(ActivityError::Failure(Failure::application(TRANSCRIPT_BROKEN, why).non_retryable()));
            };
            let (input, cut) = conversations.asked(context.task()).await?;
            told(call(&model, &context, &input).await, cut)
        }
    });
}

/// How a call ended, with how many of its attempts were cut before.
fn told(ended: Result<Value, ActivityError>, cut: u32) -> Result<Value, ActivityError> {
    match ended {
        Ok(mut output) if cut > 0 => {
            output["cut"] = cut.into();
            Ok(output)
        }
        Err(ActivityError::Failure(failure)) if cut > 0 => Err(with_cut(failure, cut).into()),
        ended => ended,
    }
}

/// Calls the capability as if it had been scheduled with this input.
async fn call(model: &ActivityFunction, context: &ActivityContext, input: &ModelInput) -> Result<Value, ActivityError> {
    let task = ActivityTask { input: Payload::encode(input)?, ..context.task().clone() };
    let (cancel, canceled) = watch::channel(context.is_canceled());
    let inner = ActivityContext::new(Arc::new(task), canceled, Arc::new(Forwarded(context.clone())));
    let mut answering = model(inner);
    let payload = tokio::select! {
        answered = &mut answering => answered?,
        () = context.canceled() => {
            cancel.send_replace(true);
            answering.await?
        }
    };
    Ok(payload.decode()?)
}

struct Forwarded(ActivityContext);

impl HeartbeatSink for Forwarded {
    fn heartbeat(&self, _: TaskToken, details: Option<Payload>) {
        // Details that were encoded once can be encoded again.
        let _ = self.0.heartbeat(&details.map(|details| details.to_json()));
    }
}

#[cfg(test)]
mod tests {
    use bosun_engine::{Parent, ParentClosePolicy, Seq, WorkflowStatus, WorkflowType};

    use super::*;
    use crate::fake::{RUN, run_info};

    /// Runs, each below the next.
    struct Line(Vec<RunInfo>);

    impl RunHistory for Line {
        fn events(&self, _: Target, _: EventId) -> TranscriptReading<'_> {
            Box::pin(async { Ok(Vec::new()) })
        }
        fn run(&self, target: Target) -> BoxFuture<'_, Option<RunInfo>> {
            let found = self.0.iter().find(|run| run.workflow_id == target.workflow_id).cloned();
            Box::pin(async move { found })
        }
    }

    async fn under_way(line: &[(&str, WorkflowStatus)]) -> bool {
        let mut runs: Vec<RunInfo> = line
            .iter()
            .map(|(kind, status)| RunInfo { workflow_type: WorkflowType::of(kind), ..run_info(kind, *status) })
            .collect();
        for n in 1..runs.len() {
            let (workflow_id, close_policy) = (runs[n].workflow_id.clone(), ParentClosePolicy::Terminate);
            runs[n - 1].parent = Some(Parent { workflow_id, run_id: RUN, seq: Seq(1), close_policy });
        }
        let conversations = Conversations::default();
        conversations.attach(Arc::new(Line(runs)));
        let workflow_id = line[0].0.to_owned();
        let run = CallingRun { namespace: "default".into(), workflow_id, run_id: RUN.to_string() };
        conversations.is_under_way(run).await
    }

    #[tokio::test]
    async fn a_run_that_has_ended_is_under_way_with_those_above_it_but_not_with_its_schedule() {
        use WorkflowStatus::{Completed, Running};
        assert!(under_way(&[("agent", Completed), ("supervisor", Running)]).await);
        assert!(!under_way(&[("agent", Completed), ("supervisor", Completed)]).await);
        let start = "bosun.schedule.action";
        assert!(!under_way(&[("supervisor", Completed), (start, Completed), (SCHEDULE, Running)]).await);
        assert!(under_way(&[("supervisor", Running), (start, Running), (SCHEDULE, Running)]).await);
    }

    /// A history in which these attempts have failed.
    struct Failed(Vec<EventKind>);

    impl RunHistory for Failed {
        fn events(&self, _: Target, from: EventId) -> TranscriptReading<'_> {
            let event = |(n, kind): (usize, &EventKind)| Event {
                id: EventId(n as u64 + 1),
                at: bosun_engine::Timestamp::ZERO,
                build: bosun_engine::BuildId::default(),
                kind: kind.clone(),
            };
            let page: Vec<Event> = self.0.iter().enumerate().map(event).filter(|event| event.id >= from).collect();
            Box::pin(async move { Ok(page.into_iter().take(PAGE).collect()) })
        }
        fn run(&self, _: Target) -> BoxFuture<'_, Option<RunInfo>> {
            Box::pin(async { None })
        }
    }

    /// G41: a run that asks a model step by step hears of its attempts that a killed worker cut, as an agent does.
    #[tokio::test]
    async fn a_step_is_told_of_its_attempts_that_were_cut() {
        use bosun_engine::{Attempt, FailureKind, Timestamp};
        let failed = |seq: u64, kind: FailureKind| EventKind::ActivityTaskAttemptFailed {
            seq: Seq(seq),
            attempt: Attempt(1),
            failure: Failure { kind, ..Failure::application("x", "why") },
            next_attempt_at: Timestamp::ZERO,
        };
        let refused = Failure::application("Other", "no").kind;
        let mut events = vec![failed(3, FailureKind::WorkerLost), failed(4, FailureKind::WorkerLost)];
        events.resize(PAGE, failed(3, refused));
        events.push(failed(3, FailureKind::WorkerLost));
        let conversations = Conversations::default();
        conversations.attach(Arc::new(Failed(events)));
        let mut registry = ActivityRegistry::new();
        registry.register(MODEL, |_: ActivityContext, input: Value| async move {
            Ok(serde_json::json!({ "asked": input }))
        });
        register_activities(&mut registry, conversations);
        let model = registry.get(&ActivityType::of(MODEL)).unwrap();
        for (seq, attempt, cut) in [(3, 1, None), (3, 3, Some(2)), (4, 2, Some(1)), (5, 2, None)] {
            let probe = crate::capability::testing::probe(seq);
            let task = ActivityTask { attempt: Attempt(attempt), ..probe.context.task().clone() };
            let context = ActivityContext::new(Arc::new(task), watch::channel(false).1, probe.heartbeats.clone());
            let output = model(context).await.unwrap().to_json();
            assert_eq!(output["cut"].as_u64(), cut, "{seq}, attempt {attempt}");
            assert!(output["asked"].is_null(), "it is asked what it was");
        }
    }
}
