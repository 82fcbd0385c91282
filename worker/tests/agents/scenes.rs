//! A worker with agents whose model is a function of the request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_worker::agent::{AGENT, AgentOutput, Conversations, register, register_activities};
use bosun_worker::capability::model::{AssistantMessage, ChatRequest, Message, ToolCall};
use serde_json::{Value, json};

/// What a model says: a text and calls of tools, or a failure.
pub(crate) type Says = Result<(String, Vec<(String, Value)>), Failure>;
type ModelFunction = dyn Fn(&ChatRequest, u32) -> Says + Send + Sync;

/// What was done, over all restarts.
#[derive(Clone, Default)]
pub(crate) struct Log {
    /// The requests by run and activity, one for each attempt.
    pub(crate) models: Arc<Mutex<BTreeMap<(RunId, u64), Vec<ChatRequest>>>>,
    pub(crate) tools: Arc<Mutex<Vec<Value>>>,
    /// What each model call might take.
    pub(crate) timeouts: Arc<Mutex<Vec<u64>>>,
}

pub(crate) struct Scene {
    pub(crate) environment: Option<TestEnvironment>,
    conversations: Conversations,
    pub(crate) log: Log,
}

impl Scene {
    pub(crate) fn new(model: impl Fn(&ChatRequest, u32) -> Says + Send + Sync + 'static) -> Scene {
        Scene::with(model, |_| {})
    }

    /// The same on an engine with other options.
    pub(crate) fn with(
        model: impl Fn(&ChatRequest, u32) -> Says + Send + Sync + 'static,
        change: impl FnOnce(&mut WorkerOptions),
    ) -> Scene {
        let (conversations, log) = (Conversations::default(), Log::default());
        let activities = activities(Arc::new(model), &log, &conversations);
        let environment = TestEnvironment::start_with(register(WorkflowRegistry::new()), activities, change).unwrap();
        conversations.attach(Arc::new(environment.client()));
        Scene { environment: Some(environment), conversations, log }
    }

    pub(crate) fn environment(&self) -> &TestEnvironment {
        self.environment.as_ref().expect("the worker is there")
    }

    /// A power cut; the worker starts anew on what is left, with nothing in its cache.
    pub(crate) fn crash(&mut self, seed: u64, model: impl Fn(&ChatRequest, u32) -> Says + Send + Sync + 'static) {
        let conversations = Conversations::default();
        let activities = activities(Arc::new(model), &self.log, &conversations);
        let before = self.environment.take().expect("the worker is there");
        let after = before.crash(seed, |options| options.activities = activities).unwrap();
        conversations.attach(Arc::new(after.client()));
        (self.environment, self.conversations) = (Some(after), conversations);
    }

    pub(crate) async fn start(&self, id: &str, spec: &Value) {
        let request = StartWorkflow::new(AGENT.into(), id.into()).input(Payload::encode(spec).unwrap());
        self.environment().client().start(request).await.unwrap();
    }
    pub(crate) async fn outcome(&self, id: &str) -> CloseOutcome {
        let wait = ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(180)) };
        let result = self.environment().client().result(&Target::workflow(id.into()), wait).await.unwrap();
        result.expect("it ends in time").outcome
    }
    pub(crate) async fn output(&self, id: &str) -> AgentOutput {
        match self.outcome(id).await {
            CloseOutcome::Completed(output) => output.decode().unwrap(),
            other => panic!("{other:?}"),
        }
    }
    pub(crate) async fn signal(&self, id: &str, name: &str, input: &Value) {
        let (name, input) = (SignalName::of(name), Payload::encode(input).unwrap());
        let signal = SignalRequest { name, input, identity: None, request_id: None };
        self.environment().client().signal(&Target::workflow(id.into()), signal).await.unwrap();
    }
    pub(crate) async fn query(&self, id: &str, name: &str) -> Value {
        let target = Target::workflow(id.into());
        self.environment().client().query(&target, &name.into(), Payload::null()).await.unwrap().to_json()
    }
}

fn activities(model: Arc<ModelFunction>, log: &Log, conversations: &Conversations) -> ActivityRegistry {
    let mut registry = ActivityRegistry::new();
    let (asked, timeouts) = (log.models.clone(), log.timeouts.clone());
    registry.register("model", move |context: ActivityContext, input: Value| {
        let (model, asked) = (model.clone(), asked.clone());
        timeouts.lock().unwrap().extend(input["timeout_ms"].as_u64());
        async move {
            let request: ChatRequest = serde_json::from_value(input["request"].clone()).unwrap();
            let task = context.task();
            asked.lock().unwrap().entry((task.run_id, task.seq.0)).or_default().push(request.clone());
            let (content, calls) = model(&request, context.attempt().0)?;
            let call = |(n, (name, arguments))| ToolCall { id: format!("c{n}"), name, arguments };
            let said = AssistantMessage { content, tool_calls: calls.into_iter().enumerate().map(call).collect() };
            let usage = json!({ "input": 10, "output": 5 });
            let response = json!({ "said": said, "stop": "end", "usage": usage, "model": request.model });
            Ok::<_, ActivityError>(json!({ "response": response, "cost": { "micros": 15 } }))
        }
    });
    let used = log.tools.clone();
    registry.register("look", move |_: ActivityContext, input: Value| {
        let used = used.clone();
        async move {
            used.lock().unwrap().push(input.clone());
            Ok::<_, ActivityError>(json!(format!("seen {}", input["at"])))
        }
    });
    register_activities(&mut registry, conversations.clone());
    registry
}

/// How often the model has spoken in this conversation.
pub(crate) fn turn(request: &ChatRequest) -> usize {
    request.messages.iter().filter(|message| matches!(message, Message::Assistant(_))).count()
}

/// Looks at so many places, one after the other, and then is done.
pub(crate) fn looks(turns: usize) -> impl Fn(&ChatRequest, u32) -> Says + Send + Sync + Clone {
    move |request, _| match turn(request) {
        turn if turn < turns => Ok((format!("turn {turn}"), vec![("look".to_owned(), json!({ "at": turn }))])),
        _ => Ok(("done".to_owned(), Vec::new())),
    }
}

pub(crate) fn spec(more: Value) -> Value {
    let mut spec = json!({
        "name": "ann", "provider": "fake", "model": "big", "system": "You look.", "task": "Look around.",
        "tools": [{ "name": "look", "parameters": { "type": "object" },
            "does": { "activity": { "activity_type": "look" } } }],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}
