//! The activity `agent_model`: reads the conversation out of the run's history and hands it to the capability `model`.
//!
//! Invariant: what was said is kept by the history alone, once, with its codecs, backups and retention; this keeps a
//! cache that may be dropped at any moment. The capability `model` is called as it is registered, with the idempotency
//! key, the attempt and the cancellation of this activity.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bosun_engine::{
    ActivityContext, ActivityError, ActivityFunction, ActivityRegistry, ActivityTask, ActivityType, Client, Event,
    EventId, Failure, HeartbeatSink, Namespace, Payload, RunId, RunInfo, Target, TaskToken, WorkflowId,
};
use serde_json::Value;
use tokio::sync::watch;

use super::ends::with_cut;
use super::machine::ModelCall;
use super::resolve::Conversation;
use super::workflow::AGENT_MODEL;
use crate::backend::BoxFuture;
use crate::capability::model::{CallingRun, Lives, MODEL, ModelInput};

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
pub type Reading<'a> = Pin<Box<dyn Future<Output = Result<Vec<Event>, String>> + Send + 'a>>;

/// Where histories are read.
pub trait RunHistory: Send + Sync {
    /// A page of a run's events, from an event on; empty at the end.
    fn events(&self, target: Target, from: EventId) -> Reading<'_>;
    /// A run as it is listed; nothing if there is none.
    fn run(&self, target: Target) -> BoxFuture<'_, Option<RunInfo>>;
}

impl RunHistory for Client {
    fn events(&self, target: Target, from: EventId) -> Reading<'_> {
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
                break;
            }
        }
        let request = conversation.request(task.seq.0);
        let request =
            request.map_err(|why| Failure::application(TRANSCRIPT_BROKEN, why.to_string()).non_retryable())?;
        let cut = conversation.cut(task.seq.0);
        self.cache().put(task.run_id, conversation);
        Ok((request, cut))
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

/// A run is under way as long as one above it is, which may begin another like it.
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

/// Registers `agent_model`, which calls the activity `model` that is registered already.
pub fn register_activities(registry: &mut ActivityRegistry, conversations: Conversations) {
    let model = registry.get(&ActivityType::of(MODEL)).cloned();
    registry.register(AGENT_MODEL, move |context: ActivityContext, _: ModelCall| {
        let (model, conversations) = (model.clone(), conversations.clone());
        async move {
            let Some(model) = model else {
                let why = "this worker has no capability `model`";
                return Err(ActivityError::Failure(Failure::application(TRANSCRIPT_BROKEN, why).non_retryable()));
            };
            let (input, cut) = conversations.asked(context.task()).await?;
            match call(&model, &context, &input).await {
                Ok(mut output) if cut > 0 => {
                    output["cut"] = cut.into();
                    Ok(output)
                }
                Err(ActivityError::Failure(failure)) if cut > 0 => Err(with_cut(failure, cut).into()),
                ended => ended,
            }
        }
    });
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
