//! Agents with tools of servers: what the model sees, what it may call, what a child gets, and what a replay asks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_worker::agent::{AGENT, AgentOutput, Conversations, register, register_activities};
use bosun_worker::capability::mcp::MCP_TOOLS;
use bosun_worker::capability::model::{AssistantMessage, ChatRequest, Message, ToolCall};
use serde_json::{Value, json};

use super::kit::Worker;

/// What a model says, in this turn of this request.
type Says = fn(&ChatRequest, usize) -> (String, Vec<(String, Value)>);
type Asked = Arc<Mutex<Vec<ChatRequest>>>;

struct Scene {
    environment: Option<TestEnvironment>,
    worker: Worker,
    asked: Asked,
    says: Says,
}

fn activities(worker: &Worker, says: Says, asked: &Asked, conversations: &Conversations) -> ActivityRegistry {
    let mut registry = worker.registry.clone();
    let asked = asked.clone();
    registry.register("model", move |_: ActivityContext, input: Value| {
        let asked = asked.clone();
        async move {
            let request: ChatRequest = serde_json::from_value(input["request"].clone()).unwrap();
            let turn = request.messages.iter().filter(|message| matches!(message, Message::Assistant(_))).count();
            let (content, calls) = says(&request, turn);
            asked.lock().unwrap().push(request.clone());
            let call = |(n, (name, arguments))| ToolCall { id: format!("c{n}"), name, arguments };
            let said = AssistantMessage { content, tool_calls: calls.into_iter().enumerate().map(call).collect() };
            let usage = json!({ "input": 10, "output": 5 });
            let response = json!({ "said": said, "stop": "end", "usage": usage, "model": request.model });
            Ok::<_, ActivityError>(json!({ "response": response, "cost": { "micros": 15 } }))
        }
    });
    register_activities(&mut registry, conversations.clone());
    registry
}

impl Scene {
    fn new(worker: Worker, says: Says) -> Scene {
        let (conversations, asked) = (Conversations::default(), Asked::default());
        let activities = activities(&worker, says, &asked, &conversations);
        let environment = TestEnvironment::start(register(WorkflowRegistry::new()), activities).unwrap();
        conversations.attach(Arc::new(environment.client()));
        Scene { environment: Some(environment), worker, asked, says }
    }
    fn client(&self) -> Client {
        self.environment.as_ref().unwrap().client()
    }
    /// A power cut, and a worker that reads everything from the history.
    fn crash(&mut self) {
        let conversations = Conversations::default();
        let activities = activities(&self.worker, self.says, &self.asked, &conversations);
        let after = self.environment.take().unwrap().crash(7, |options| options.activities = activities).unwrap();
        conversations.attach(Arc::new(after.client()));
        self.environment = Some(after);
    }
    async fn start(&self, id: &str, tools: Value) {
        let spec = json!({ "name": "ann", "provider": "fake", "model": "big", "task": "Do it.", "tools": tools });
        let request = StartWorkflow::new(AGENT.into(), id.into()).input(Payload::encode(&spec).unwrap());
        self.client().start(request).await.unwrap();
    }
    async fn outcome(&self, id: &str) -> CloseOutcome {
        let wait = ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(180)) };
        let result = self.client().result(&Target::workflow(id.into()), wait).await.unwrap();
        result.expect("it ends in time").outcome
    }
    async fn output(&self, id: &str) -> AgentOutput {
        match self.outcome(id).await {
            CloseOutcome::Completed(output) => output.decode().unwrap(),
            other => panic!("{other:?}"),
        }
    }
    async fn query(&self, id: &str, name: &str) -> Value {
        let target = Target::workflow(id.into());
        self.client().query(&target, &name.into(), Payload::null()).await.unwrap().to_json()
    }
    async fn scheduled(&self, id: &str, activity: &str) -> usize {
        let history = self.client().history(&Target::workflow(id.into()), EventId(1), 1_000).await.unwrap();
        let is = |event: &&Event| matches!(&event.kind, EventKind::ActivityTaskScheduled(task) if task.activity_type.as_str() == activity);
        history.iter().filter(is).count()
    }
    fn told(&self, at: usize) -> Vec<String> {
        self.asked.lock().unwrap()[at].tools.iter().map(|tool| tool.name.clone()).collect()
    }
}

fn granted(tools: Value) -> Value {
    json!({ "name": "s", "does": { "mcp": { "server": "s", "tools": tools } } })
}

fn last(request: &ChatRequest) -> String {
    match request.messages.last() {
        Some(Message::Tool { content, .. }) => content.clone(),
        other => format!("{other:?}"),
    }
}

/// Calls what it may and what it may not, and tells what came back.
fn tries(request: &ChatRequest, turn: usize) -> (String, Vec<(String, Value)>) {
    let call = |name: &str, arguments: Value| (String::new(), vec![(name.to_owned(), arguments)]);
    match turn {
        0 => call("s__echo", json!({ "text": "hello" })),
        1 => call("s__fail", json!({})),
        2 => call("s__die", json!({})),
        _ => (last(request), Vec::new()),
    }
}

#[tokio::test]
async fn an_agent_calls_the_tools_that_are_granted_and_no_other() {
    let scene = Scene::new(Worker::process("good"), tries);
    scene.start("a", json!([granted(json!(["echo", "fail"]))])).await;
    let output = scene.output("a").await;
    assert_eq!((output.text.as_str(), output.refusals), ("Refused: there is no such tool.", 1));
    let told = scene.asked.lock().unwrap()[0].tools.clone();
    assert_eq!(scene.told(0), ["s__echo", "s__fail"]);
    assert_eq!(told[0].parameters["required"], json!(["text"]), "as the server publishes it");
    assert!(told[0].description.starts_with("Does echo."));
    let given: Vec<String> = scene.asked.lock().unwrap().iter().skip(1).map(last).collect();
    assert!(given[0].contains("hello") && given[1].contains("it did not work"), "{given:?}");
    assert_eq!((scene.worker.count("echo"), scene.worker.count("fail"), scene.worker.count("die")), (1, 1, 0));
    assert_eq!(scene.scheduled("a", MCP_TOOLS).await, 1, "servers are asked once");
}

#[tokio::test]
async fn a_grant_may_describe_its_tool_itself_and_then_nobody_is_asked() {
    let echo: Says = |request, turn| match turn {
        0 => (String::new(), vec![("say".to_owned(), json!({ "text": "hello" }))]),
        _ => (last(request), Vec::new()),
    };
    let scene = Scene::new(Worker::process("good"), echo);
    let parameters = json!({ "type": "object", "properties": { "text": { "enum": ["hello"] } } });
    let does = json!({ "mcp": { "server": "s", "tools": ["echo"] } });
    scene.start("a", json!([{ "name": "say", "parameters": parameters, "does": does }])).await;
    assert!(scene.output("a").await.text.contains("hello"));
    assert_eq!(scene.scheduled("a", MCP_TOOLS).await, 0);
    assert_eq!(scene.told(0), ["say"]);
}

/// A replay asks no server and no model: all that an agent knows is in its history.
#[tokio::test]
async fn a_worker_that_reads_the_history_anew_asks_no_server() {
    let waits: Says = |request, turn| match turn {
        0 => (String::new(), vec![("s__echo".to_owned(), json!({ "text": "first" }))]),
        1 => (String::new(), vec![("s__fail".to_owned(), json!({}))]),
        _ => (last(request), Vec::new()),
    };
    let mut scene = Scene::new(Worker::process("good"), waits);
    let mut fail = granted(json!("all"));
    fail["approval"] = json!(true);
    scene.start("a", json!([fail])).await;
    let first = approval(&scene, "a").await;
    assert_eq!((&first["tool"], &first["arguments"]), (&json!("s__echo"), &json!({ "text": "first" })));
    answer(&scene, "a", &first, true).await;
    let second = loop {
        let second = approval(&scene, "a").await;
        if second != first {
            break second;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let (models, started) = (scene.asked.lock().unwrap().len(), scene.worker.count("started"));
    scene.crash();
    assert_eq!(approval(&scene, "a").await, second, "the approval is bound to the same call");
    assert_eq!((scene.asked.lock().unwrap().len(), scene.worker.count("started")), (models, started));
    answer(&scene, "a", &second, true).await;
    assert!(scene.output("a").await.text.contains("it did not work"));
    assert_eq!(scene.worker.count("echo"), 1, "what was done is not done again");
    assert_eq!(scene.scheduled("a", MCP_TOOLS).await, 1);
    assert_eq!(scene.told(0), scene.told(models), "the conversation after the crash has the same tools");
}

/// G34: an approval is for these arguments of this tool.
#[tokio::test]
async fn an_approval_of_other_arguments_does_nothing() {
    let once: Says = |request, turn| match turn {
        0 => (String::new(), vec![("s__echo".to_owned(), json!({ "text": "this" }))]),
        _ => (last(request), Vec::new()),
    };
    let scene = Scene::new(Worker::process("good"), once);
    let mut grant = granted(json!(["echo", "fail"]));
    grant["approval"] = json!(true);
    scene.start("a", json!([grant])).await;
    let asked = approval(&scene, "a").await;
    let mut forged = asked.clone();
    forged["hash"] = json!("0".repeat(64));
    answer(&scene, "a", &forged, true).await;
    let mut edited = asked.clone();
    edited["arguments"] = json!({ "text": "that" });
    answer(&scene, "a", &edited, true).await;
    assert_eq!(approval(&scene, "a").await, asked);
    assert_eq!(scene.worker.count("echo"), 0);
    answer(&scene, "a", &asked, false).await;
    assert!(scene.output("a").await.text.contains("a person said no"));
    assert_eq!(scene.worker.count("echo"), 0);
}

async fn approval(scene: &Scene, id: &str) -> Value {
    for _ in 0..12_000 {
        let asked = scene.query(id, "approvals").await;
        if let Some(asked) = asked.as_array().and_then(|all| all.first()) {
            return asked.clone();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nobody is asked");
}

async fn answer(scene: &Scene, id: &str, asked: &Value, approved: bool) {
    let input =
        json!({ "id": asked["id"], "hash": asked["hash"], "arguments": asked["arguments"], "approved": approved });
    let (name, input) = (SignalName::of("approval_response_v1"), Payload::encode(&input).unwrap());
    let signal = SignalRequest { name, input, identity: None, request_id: None };
    scene.client().signal(&Target::workflow(id.into()), signal).await.unwrap();
}

/// A child gets a part of what its parent has, whatever is asked for: by a bundle's name no more than its tools.
#[tokio::test]
async fn a_child_agent_has_no_tool_that_its_parent_has_not() {
    let delegates: Says = |request, turn| {
        let is_child = request.tools.iter().all(|tool| tool.name != "help");
        match (is_child, turn) {
            (false, 0) => {
                let tools = json!(["s__echo", "s__fail", "s__die", "s", "rm", "all"]);
                (String::new(), vec![("help".to_owned(), json!({ "task": "x", "tools": tools }))])
            }
            (true, 0) => (String::new(), vec![("s__fail".to_owned(), json!({}))]),
            _ => (last(request), Vec::new()),
        }
    };
    let scene = Scene::new(Worker::process("good"), delegates);
    let mut only = granted(json!(["echo", "secret"]));
    only["name"] = json!("t");
    let help = json!({ "name": "help", "does": { "agent": { "tools": ["s"] } } });
    scene.start("a", json!([granted(json!(["echo", "fail"])), only, help])).await;
    let output = scene.output("a").await;
    assert!(output.text.contains("it did not work"), "{output:?}");
    assert_eq!(scene.told(0), ["s__echo", "s__fail", "t__echo", "t__secret", "help"]);
    assert_eq!(scene.told(1), ["s__echo", "s__fail"], "neither what was not handed on, nor what nobody has");
    assert_eq!(scene.worker.count("started"), 1);
}

#[tokio::test]
async fn an_agent_whose_tools_are_not_there_does_not_begin() {
    let scene = Scene::new(Worker::process("good"), tries);
    let other = json!({ "name": "s", "does": { "mcp": { "server": "other", "tools": ["echo"] } } });
    for (n, grant) in [granted(json!(["rm"])), other, granted(json!(["*"]))].into_iter().enumerate() {
        let id = format!("wrong-{n}");
        scene.start(&id, json!([grant])).await;
        let CloseOutcome::Failed(failure) = scene.outcome(&id).await else { panic!("it fails") };
        assert_eq!(failure.type_name(), "InvalidAgent", "{failure}");
    }
    assert_eq!(scene.asked.lock().unwrap().len(), 0, "no model is asked");
}

/// What comes before the tools are known is not lost, and a cancellation ends the question.
#[tokio::test]
async fn an_agent_that_is_canceled_before_it_begins_is_canceled() {
    let worker = Worker::process_with("mute", |server| server.start_ms = 60_000);
    let scene = Scene::new(worker, tries);
    scene.start("a", json!([granted(json!(["echo", "fail"]))])).await;
    super::kit::until(|| scene.worker.count("started") == 1).await;
    assert!(scene.query("a", "approvals").await.as_array().unwrap().is_empty(), "it can be looked at");
    scene.client().cancel(&Target::workflow("a".into()), "enough".into(), None, None).await.unwrap();
    assert!(matches!(scene.outcome("a").await, CloseOutcome::Canceled(_)));
    assert!(super::kit::is_gone(scene.worker.log()[0].1).await);
}
