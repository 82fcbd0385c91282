//! The budget of a fork of an agent, and what an agent keeps that nobody above is told: on the driver, event by event.

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_worker::agent::{AGENT, AGENT_MODEL, register};
use serde_json::{Value, json};

const SOURCE: RunId = RunId([5; 16]);
const FORK: RunId = RunId([6; 16]);
const AT: Timestamp = Timestamp(1_767_225_600_000_000);

/// An agent and the run that its events are heard in.
struct Played {
    driver: Box<dyn Driver>,
    run: RunId,
    last: Vec<Command>,
}

fn begun(more: Value) -> Played {
    let mut spec = json!({ "name": "ann", "provider": "p", "model": "big", "system": "s", "task": "t", "max_output_tokens": 100,
        "tools": [{ "name": "ask", "does": { "agent": {} } }] });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let request = StartWorkflow::new(WorkflowType::of(AGENT), WorkflowId::of("ann")).input(payload(&spec));
    let first = request.first_event(SOURCE, AT);
    let driver = register(WorkflowRegistry::new()).create(&first, SOURCE).unwrap();
    let mut played = Played { driver, run: SOURCE, last: Vec::new() };
    played.hear(Job::InitializeWorkflow(Box::new(first)));
    played
}

fn payload(value: &Value) -> Payload {
    Payload::encode(value).unwrap()
}

impl Played {
    fn hear(&mut self, job: Job) {
        let (run_id, history) = (self.run, HistorySize::default());
        self.last = self.driver.activate(Activation { at: AT, run_id, history, job, markers: Markers::Fresh });
    }
    fn signal(&mut self, name: &str, input: &Value) {
        let (name, input) = (SignalName::of(name), payload(input));
        self.hear(Job::SignalWorkflow(WorkflowExecutionSignaled { name, input, identity: None, request_id: None }));
    }
    fn state(&self) -> Value {
        self.driver.state_json().unwrap()
    }
    fn asks_a_model(&self) -> bool {
        let is = |command: &Command| matches!(command, Command::ScheduleActivity { activity_type, .. } if activity_type.as_str() == AGENT_MODEL);
        self.last.iter().any(is)
    }
    fn told(&self) -> Vec<&str> {
        self.last
            .iter()
            .filter_map(|command| match command {
                Command::SignalExternalWorkflow { name, .. } => Some(name.as_str()),
                _ => None,
            })
            .collect()
    }
}

/// What was lent to the source is the fork's own: nobody lends it more, people give it more, and it asks no parent.
#[test]
fn a_fork_of_an_agent_owns_the_budget_that_was_lent_to_its_source() {
    let lent = json!({ "report_to": "boss", "limits": { "share": { "tokens": 10 }, "stops_at": ["tokens"] } });
    let mut agent = begun(lent);
    assert_eq!(agent.told(), ["budget_request_v1"], "it asks whoever lent it too little");
    agent.run = FORK;
    agent.signal("resume_v1", &json!({}));
    assert_eq!((agent.told(), agent.asks_a_model()), (Vec::new(), false), "{:?}", agent.last);
    let halt = agent.state()["agent"]["halt"].clone();
    assert_eq!(halt["budget"]["resource"], "tokens", "it halts until people give it more: {halt}");
    agent.signal("budget_top_up_v1", &json!({ "tokens": 100_000 }));
    assert_eq!((agent.told(), agent.asks_a_model()), (Vec::new(), true), "{:?}", agent.last);
    let ledger = agent.state()["agent"]["ledger"].clone();
    assert_eq!((&ledger["share"], &ledger["caps"]["tokens"]), (&Value::Null, &json!(100_010)), "it stays bounded");

    let mut source = begun(json!({ "report_to": "boss", "limits": { "share": { "tokens": 10 } } }));
    source.signal("budget_top_up_v1", &json!({ "tokens": 100_000 }));
    assert!(!source.asks_a_model(), "what is lent is raised by who lends it");
}

/// An agent with nobody above does not keep what it would tell there.
#[test]
fn who_has_nobody_above_keeps_nothing_to_tell() {
    let mut agent = begun(json!({}));
    let seq = agent.last.iter().find_map(|command| match command {
        Command::ScheduleActivity { seq, .. } => Some(*seq),
        _ => None,
    });
    let calls = json!([{ "id": "a", "name": "ask", "arguments": { "task": "t", "max_steps": 2 } }]);
    let response = json!({ "said": { "content": "", "tool_calls": calls }, "stop": "tool_calls", "model": "big",
        "usage": { "input": 10, "output": 5 } });
    let answer = payload(&json!({ "response": response, "cost": { "micros": 1 } }));
    agent.hear(Job::ResolveActivity { seq: seq.unwrap(), result: Ok(answer) });
    let child = agent.last.iter().find_map(|command| match command {
        Command::StartChildWorkflow { workflow_id, .. } => Some(workflow_id.clone()),
        _ => None,
    });
    let child = child.unwrap_or_else(|| panic!("it calls an agent: {:?}", agent.last));
    for n in 0..3 {
        let over = json!([{ "id": format!("{child}/a{n}"), "how": "answered" }]);
        let told =
            json!({ "from": child, "working": true, "waiting": [], "over": over, "not_taken": [format!("x/{n}")] });
        agent.signal("waits_below_v1", &told);
        agent.signal("approval_response_v1", &json!({ "id": format!("else/{n}"), "hash": "h", "approved": true }));
        agent.signal("approval_response_v1", &json!({ "id": "a1", "hash": "h", "approved": true }));
    }
    let waits = agent.state()["waits"].clone();
    for kept in ["over", "not_taken", "answered"] {
        assert_eq!(waits[kept], Value::Null, "{kept}: {waits}");
    }
}
