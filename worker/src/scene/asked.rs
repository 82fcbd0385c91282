//! One call of the world: what an attempt of an activity asks, whoever carries it.
//!
//! Invariant: a call of a supervisor is the same call whether an activity, a program or a service carries it out; what is
//! no such call is known by the type of its activity. The answer is given in the form that the carrier would give it.

use std::time::Duration;

use bosun_engine::{ActivityTask, Payload, RunId, Timestamp};
use serde_json::{Value, json};

use super::models::{self, ModelCharge};
use crate::agent::AGENT_MODEL;
use crate::capability::http::HTTP;
use crate::capability::model::MODEL;
use crate::capability::process::PROCESS;
use crate::capability::scripted::SCRIPTED;
use crate::supervisor::core::key::GraphKey;
use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::{Call, Purpose};
use crate::supervisor::spec::SupervisorSpec;

/// The activity type of calls that the world answers.
pub(crate) const SCENE: &str = "scene";

/// In which form an answer is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As it is.
    Plain,
    /// Printed by a program.
    Printed,
    /// Sent by a service.
    Sent,
    /// A message of a model.
    Message,
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) run: RunId,
    pub(crate) activity_type: String,
    /// Which call it is: the same when it is delivered again.
    pub(crate) id: String,
    /// The same call at its earlier attempts, where each attempt has an id of its own.
    pub(crate) before: Vec<String>,
    pub(crate) purpose: Option<Purpose>,
    pub(crate) call: Call,
    /// What the call carries as data: its context, or the input of the activity.
    pub(crate) data: Value,
    /// What the activity that carries it is given.
    pub(crate) input: Value,
    pub(crate) form: Form,
    /// Who plays it by the spec, where the call itself names nobody.
    pub(crate) player: Option<String>,
    /// The answer that the spec's own script has decided, where the call carries it along.
    pub(crate) scripted: Option<Result<Value, String>>,
    pub(crate) at: Timestamp,
}

/// Which call it is. People may be told of one approval more than once: each time is a call.
fn id_of(run: RunId, call: &Call) -> String {
    match call.purpose {
        Purpose::NotifyForApproval if call.attempt > 1 => format!("{run}/{}/{}", call.key, call.attempt),
        _ => format!("{run}/{}", call.key),
    }
}

impl Asked {
    pub(crate) fn of(task: &ActivityTask, at: Timestamp) -> Asked {
        let activity_type = task.activity_type.to_string();
        let input = task.input.to_json();
        let inner = |text: &Value| text.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        let (call, form) = match activity_type.as_str() {
            PROCESS => (inner(&input["stdin"]).and_then(|call| call_of(&call)), Form::Printed),
            HTTP => (call_of(&input["json"]), Form::Sent),
            MODEL | AGENT_MODEL => (None, Form::Message),
            _ => (call_of(&input), Form::Plain),
        };
        let scripted = (activity_type == SCRIPTED).then(|| scripted(&input["answer"])).flatten();
        let purpose = call.as_ref().map(|call| call.purpose);
        // What is no call of a supervisor is answered as it is.
        let form = if call.is_some() || form == Form::Message { form } else { Form::Plain };
        let data = call.as_ref().map_or_else(|| input.clone(), |call| call.context.clone());
        let id = match &call {
            Some(call) => id_of(task.run_id, call),
            None => format!("{}/{}/{}", task.run_id, task.seq.0, task.attempt.0),
        };
        let earlier = if call.is_none() { 1..task.attempt.0 } else { 0..0 };
        let before = earlier.map(|attempt| format!("{}/{}/{attempt}", task.run_id, task.seq.0)).collect();
        let call = call.unwrap_or_else(|| raw(task, &input));
        Asked {
            run: task.run_id,
            activity_type,
            id,
            before,
            purpose,
            call,
            data,
            input,
            form,
            player: None,
            scripted,
            at,
        }
    }

    /// A supervisor that goes on in a new run asks as the same one: a key is used once in all of them.
    pub(crate) fn in_chain(mut self, first: RunId) -> Asked {
        if self.purpose.is_some() {
            self.id = id_of(first, &self.call);
        }
        self
    }

    /// With the name of who plays it: a role may be an agent's.
    pub(crate) fn played_by(mut self, spec: Option<&SupervisorSpec>) -> Asked {
        let player = spec.filter(|_| self.purpose.is_some()).and_then(|spec| spec.player(&self.call));
        self.player = player.map(|agent| agent.name.clone());
        self
    }

    /// Whether it is of this agent: named by the call, or playing its role.
    pub(crate) fn is_of(&self, agent: &str) -> bool {
        self.call.agent.as_deref() == Some(agent) || self.player.as_deref() == Some(agent)
    }

    /// The tool of an agent that is called, if it is no thought of the agent itself.
    pub(crate) fn tool(&self) -> Option<&str> {
        self.purpose.and(self.call.context.get("tool")).and_then(Value::as_str)
    }

    /// What rules name it by.
    pub(crate) fn on(&self) -> &str {
        match self.purpose {
            Some(purpose) => purpose.as_str(),
            None => &self.activity_type,
        }
    }

    /// A model is a model, whether a run asks it or an agent's own.
    pub(crate) fn is(&self, on: &str) -> bool {
        self.on() == on || self.activity_type == on || (on == MODEL && self.form == Form::Message)
    }

    pub(crate) fn task(&self) -> Option<String> {
        self.call.task.as_ref().map(ToString::to_string)
    }

    /// How long the carrier itself waits for an answer, and what it says then.
    pub(crate) fn patience(&self) -> Option<(Duration, String)> {
        let ms = self.input.get("timeout_ms").and_then(Value::as_u64)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let why = match self.activity_type.as_str() {
            HTTP => format!("POST {} had no answer after {ms} ms", text(&self.input["url"])),
            PROCESS => format!("{} was stopped after its timeout of {ms} ms", text(&self.input["argv"][0])),
            _ => return None,
        };
        Some((Duration::from_millis(ms), why))
    }

    /// `execute_worker (agent: executor, task: dump, attempt: 1, round: 1)`.
    pub(crate) fn shown(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        parts.extend(self.call.agent.as_ref().map(|agent| format!("agent: {agent}")));
        parts.extend(self.tool().map(|tool| format!("tool: {tool}")));
        parts.extend(self.task().map(|task| format!("task: {task}")));
        parts.push(format!("attempt: {}", self.call.attempt));
        if self.purpose.is_some() {
            parts.push(format!("round: {}", self.call.round));
        }
        format!("{} ({})", self.on(), parts.join(", "))
    }

    /// An answer in the form of whoever carries the call.
    pub(crate) fn payload(&self, said: &Value, charge: ModelCharge) -> Payload {
        let text = || match said {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let value = match self.form {
            Form::Plain => said.clone(),
            Form::Printed => json!({ "exit_code": 0, "stdout": text(), "stderr": "" }),
            Form::Sent => json!({ "status": 200, "json": said }),
            Form::Message => return models::output(said, charge, &self.input),
        };
        Payload::encode(&value).unwrap_or_else(|_| Payload::null())
    }
}

/// A call of a supervisor, whole or in the short form of scripted ones.
fn call_of(input: &Value) -> Option<Call> {
    input.get("key").filter(|_| input.get("purpose").is_some())?;
    let mut whole = input.clone();
    if let Value::Object(map) = &mut whole {
        map.remove("answer");
        map.entry("prompt").or_insert_with(|| "".into());
        map.entry("context").or_insert(Value::Null);
    }
    serde_json::from_value(whole).ok()
}

fn scripted(answer: &Value) -> Option<Result<Value, String>> {
    match (answer.get("say"), answer.get("fail")) {
        (Some(said), _) => Some(Ok(said.clone())),
        (None, Some(why)) => Some(Err(why.as_str().unwrap_or_default().to_owned())),
        (None, None) => None,
    }
}

/// What is no call of a supervisor has a prompt too: its input as text, or what a model is told.
fn raw(task: &ActivityTask, input: &Value) -> Call {
    let key = GraphKey::Execute { task: TaskId::from(task.seq.0), attempt: task.attempt.0 };
    let mut call = Call::new(key, Purpose::ExecuteWorker, input.clone()).attempt(task.attempt.0);
    call.prompt = models::told(input).unwrap_or_else(|| input.to_string());
    call
}
