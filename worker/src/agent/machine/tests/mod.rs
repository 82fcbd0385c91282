//! A stage for agents: plays the machine against a model and tools that are functions, without an engine.
//!
//! Invariant: after every event the state is written, read and compared, so that a crash between any two events changes
//! nothing.

mod behaviour;
mod budgets;
mod compromised;
mod pauses;
mod transitions;

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::*;
use crate::agent::transcript::TranscriptItem;
use crate::capability::model::{AssistantMessage, ChatResponse, Message, StopReason as ModelStop, ToolCall, Usage};

pub(super) type ModelFunction = Box<dyn FnMut(&ModelCall) -> Result<ModelAnswer, Fault>>;
pub(super) type ToolFunction = Box<dyn FnMut(&str, &Value) -> Result<Value, Fault>>;

pub(super) struct Stage {
    pub(super) agent: AgentMachine,
    pub(super) now: Timestamp,
    /// Asks that nobody has answered yet.
    pub(super) open: VecDeque<AgentRequest>,
    pub(super) asked: Vec<AgentRequest>,
    pub(super) model: ModelFunction,
    pub(super) tool: ToolFunction,
    origin: u64,
}

pub(super) fn spec(more: Value) -> AgentSpec {
    let mut spec = json!({ "name": "ann", "provider": "p", "model": "big", "system": "You work.", "task": "Do it." });
    let members = spec.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    serde_json::from_value(spec).unwrap()
}

/// An answer of ten tokens in, five out, and 15 micro-dollars.
pub(super) fn says(content: &str, calls: &[(&str, Value)]) -> ModelAnswer {
    let call = |(n, (name, arguments)): (usize, &(&str, Value))| ToolCall {
        id: format!("c{n}"),
        name: (*name).to_owned(),
        arguments: arguments.clone(),
    };
    let said =
        AssistantMessage { content: content.to_owned(), tool_calls: calls.iter().enumerate().map(call).collect() };
    let stop = if calls.is_empty() { ModelStop::End } else { ModelStop::ToolCalls };
    let usage = Usage { input: Some(10), output: Some(5), ..Usage::default() };
    let response = ChatResponse { said, stop, usage, model: "big".into(), id: None };
    ModelAnswer { response, value: None, problems: Vec::new(), cost_micros: Some(15), cut: 0 }
}

/// A model that says these things, one after the other, and then the last one for ever.
pub(super) fn script(answers: Vec<ModelAnswer>) -> ModelFunction {
    let mut left: VecDeque<ModelAnswer> = answers.into();
    Box::new(move |_| {
        let next = left.pop_front().expect("a script is not empty");
        if left.is_empty() {
            left.push_back(next.clone());
        }
        Ok(next)
    })
}

pub(super) fn echo() -> ToolFunction {
    Box::new(|_, input| Ok(json!({ "echo": input })))
}

impl Stage {
    pub(super) fn new(spec: AgentSpec, model: ModelFunction, tool: ToolFunction) -> Stage {
        let now = Timestamp::from_millis(1_000);
        let (agent, asks) = AgentMachine::start(spec, now).unwrap();
        let mut stage = Stage { agent, now, open: VecDeque::new(), asked: Vec::new(), model, tool, origin: 0 };
        stage.keep(asks);
        stage
    }

    fn keep(&mut self, asks: Vec<AgentRequest>) {
        self.asked.extend(asks.clone());
        self.open.extend(asks);
    }

    pub(super) fn handle(&mut self, event: AgentEvent) {
        self.now = self.now.plus(Duration::from_millis(1));
        let asks = self.agent.handle(event, self.now);
        assert_eq!(self.agent.check(), Ok(()));
        let text = serde_json::to_string(&self.agent).unwrap();
        assert_eq!(serde_json::from_str::<AgentMachine>(&text).unwrap(), self.agent, "the state is not data");
        self.keep(asks);
    }

    /// Answers the open ask of this number.
    pub(super) fn answer(&mut self, at: usize) {
        let Some(ask) = self.open.remove(at) else { return };
        self.origin += 1;
        let origin = self.origin;
        match ask {
            AgentRequest::Model { call, .. } => {
                let result = (self.model)(&call).map(|answer| self.judged(answer));
                self.handle(AgentEvent::Model { key: call.key, origin, result });
            }
            AgentRequest::Tool { key, activity_type, input, .. } => {
                let result = (self.tool)(&activity_type, &input);
                self.handle(AgentEvent::Tool { key, origin, result });
            }
            AgentRequest::Child { key, spec } => {
                let output = self.child(*spec);
                let result = Ok(json!(output));
                self.handle(AgentEvent::Child { key, origin, result, output: Some(output) });
            }
            AgentRequest::WallTimer { at } => {
                self.now = self.now.max(at);
                self.handle(AgentEvent::WallFired);
            }
            AgentRequest::Cancel { key } => self.canceled(key),
        }
    }

    /// What the activity says of an answer that must conform, if the test does not say it.
    fn judged(&self, mut answer: ModelAnswer) -> ModelAnswer {
        let Some(wanted) = &self.agent.spec().schema else { return answer };
        let said = &answer.response.said;
        if said.tool_calls.is_empty() && answer.value.is_none() && answer.problems.is_empty() {
            match serde_json::from_str(&said.content) {
                Ok(value) => answer.problems = crate::agent::schema::problems(&wanted.schema, &value),
                Err(why) => answer.problems = vec![format!("the answer is no JSON: {why}")],
            }
            answer.value = serde_json::from_str(&said.content).ok().filter(|_| answer.problems.is_empty());
        }
        answer
    }

    /// The end of what was canceled.
    fn canceled(&mut self, canceled: FlightKey) {
        let is = |ask: &AgentRequest| match ask {
            AgentRequest::Model { call, .. } => call.key == canceled,
            AgentRequest::Tool { key, .. } | AgentRequest::Child { key, .. } => *key == canceled,
            AgentRequest::WallTimer { .. } | AgentRequest::Cancel { .. } => false,
        };
        let Some(at) = self.open.iter().position(is) else { return };
        let fault = Fault::new(FaultClass::Canceled, "canceled");
        let (key, origin) = (canceled, 0);
        match self.open.remove(at) {
            Some(AgentRequest::Model { .. }) => self.handle(AgentEvent::Model { key, origin, result: Err(fault) }),
            Some(AgentRequest::Tool { .. }) => self.handle(AgentEvent::Tool { key, origin, result: Err(fault) }),
            Some(AgentRequest::Child { .. }) => {
                self.handle(AgentEvent::Child { key, origin, result: Err(fault), output: None })
            }
            Some(AgentRequest::WallTimer { .. } | AgentRequest::Cancel { .. }) | None => {}
        }
    }

    /// Plays an agent below with the same model and tools, to its end.
    fn child(&mut self, spec: AgentSpec) -> AgentOutput {
        let model = std::mem::replace(&mut self.model, script(vec![says("", &[])]));
        let tool = std::mem::replace(&mut self.tool, echo());
        let mut below = Stage::new(spec, model, tool);
        below.play();
        if !below.agent.is_over() {
            below.handle(AgentEvent::Cancel { reason: "the test ends".into() });
            below.play();
        }
        self.asked.extend(below.asked);
        (self.model, self.tool) = (below.model, below.tool);
        below.agent.output()
    }

    /// Answers what is asked, in order, until nothing is. Timers fire when nothing else can happen.
    pub(super) fn play(&mut self) {
        while !self.agent.is_over() {
            let next = self.open.iter().position(|ask| !matches!(ask, AgentRequest::WallTimer { .. }));
            match next {
                Some(at) => self.answer(at),
                None => return,
            }
        }
    }

    pub(super) fn output(&mut self) -> AgentOutput {
        self.play();
        assert!(self.agent.is_over(), "{}", self.agent.query("state", self.now).unwrap());
        assert!(self.agent.ledger().held_keys().is_empty(), "something is still held");
        self.agent.output()
    }

    pub(super) fn model_calls(&self) -> Vec<&ModelCall> {
        self.asked
            .iter()
            .filter_map(|ask| match ask {
                AgentRequest::Model { call, .. } => Some(call),
                _ => None,
            })
            .collect()
    }
    pub(super) fn tools(&self) -> Vec<(&str, &Value)> {
        self.asked
            .iter()
            .filter_map(|ask| match ask {
                AgentRequest::Tool { activity_type, input, .. } => Some((activity_type.as_str(), input)),
                _ => None,
            })
            .collect()
    }
    pub(super) fn state(&self) -> Value {
        self.agent.query("state", self.now).unwrap()
    }
    /// What the machine itself told the model in its last call.
    pub(super) fn told(&self) -> Vec<String> {
        let own = |item: &TranscriptItem| match item {
            TranscriptItem::Own(Message::User { content } | Message::Tool { content, .. }) => Some(content.clone()),
            _ => None,
        };
        self.model_calls().last().map(|call| call.items.iter().filter_map(own).collect()).unwrap_or_default()
    }
}

/// A tool that calls the activity `look`.
pub(super) fn look(more: Value) -> Value {
    let mut tool = json!({ "name": "look", "parameters": { "type": "object", "properties": { "at": {} },
        "additionalProperties": false }, "does": { "activity": { "activity_type": "look" } } });
    tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    tool
}
