//! Tests of the loop of agents: a rig that plays engine and models, and one file per concern.

mod crew;
mod cuga;
mod delegation;
mod from_spec;
mod handoff;
mod limits;
mod order;
mod people;
mod processes;
mod steps;
mod swarm;
mod transitions;

use std::collections::BTreeMap;
use std::time::Duration;

use bosun_engine::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::supervisor::core::awaited::AwaitedKeys;
use crate::supervisor::core::key::Key;
use crate::supervisor::journal::{Note, NoteKind};
use crate::supervisor::outbox::{Answer, Ask, Call, CallFailure, Fact, Outbox};
use crate::supervisor::spec::{
    DelegationProtocol, DelegationScope, HandoffControl, MemoryScope, OnDelegationTimeout, OutputMode, Preset,
};

const T0: Timestamp = Timestamp(1_800_000_000_000_000);

/// Plays engine, models and clock.
struct Rig {
    it: AgentLoop,
    awaited: AwaitedKeys,
    held: bool,
    now: Timestamp,
    calls: Vec<Call>,
    timers: BTreeMap<Key, Timestamp>,
    notes: Vec<Note>,
    facts: Vec<Fact>,
    /// The calls of models and functions, every one that was ever asked for.
    asked: Vec<Call>,
}

impl Rig {
    fn build(make: impl FnOnce(&mut Outbox) -> Result<AgentLoop, AgentsRefused>) -> Result<Rig, AgentsRefused> {
        let mut out = Outbox::new("run-1", T0);
        let it = make(&mut out)?;
        let (calls, timers, notes, asked) = (Vec::new(), BTreeMap::new(), Vec::new(), Vec::new());
        let (awaited, facts) = (AwaitedKeys::default(), Vec::new());
        let mut rig = Rig { it, awaited, held: false, now: T0, calls, timers, notes, facts, asked };
        rig.take(out);
        Ok(rig)
    }

    #[track_caller]
    fn start(rules: AgentRules, agents: Vec<AgentDef>, task: &str) -> Rig {
        let input = AgentInput { task: Some(task.to_owned()), ..AgentInput::default() };
        Rig::build(|out| AgentLoop::start(rules, agents, input, out)).unwrap()
    }

    fn take(&mut self, mut out: Outbox) {
        self.awaited = out.take_awaited();
        let facts = out.take_facts();
        let (asks, notes) = out.take();
        self.notes.extend(notes);
        self.facts.extend(facts);
        for ask in asks {
            match ask {
                Ask::Call(call) => {
                    assert!(self.asked.iter().all(|other| other.key != call.key), "{} is used twice", call.key);
                    self.asked.push(call.clone());
                    self.calls.push(call);
                }
                Ask::CancelCall { key } => self.calls.retain(|call| call.key != key),
                Ask::Timer { key, at, .. } => {
                    assert!(self.timers.insert(key.clone(), at).is_none(), "{key} is used twice");
                }
                Ask::CancelTimer { key } => {
                    self.timers.remove(&key);
                }
                other => panic!("nobody asks for {other:?}"),
            }
        }
        // A state that is stored and read back goes on like the one that was not.
        let stored = serde_json::to_string(&self.it).unwrap();
        let read: AgentLoop = serde_json::from_str(&stored).unwrap();
        assert_eq!(read, self.it);
        self.it = read;
    }

    fn with(&mut self, act: impl FnOnce(&mut AgentLoop, &mut Outbox)) {
        let awaited = std::mem::take(&mut self.awaited);
        let mut out = Outbox::new("run-1", self.now).with_held(self.held).with_awaited(awaited);
        act(&mut self.it, &mut out);
        self.held = out.is_held();
        self.take(out);
    }

    /// The run stands still, or goes on.
    fn hold(&mut self, held: bool) {
        self.with(|it, out| {
            out.set_held(held);
            it.held_or_not(out);
        });
    }

    /// Whose answers are awaited, in the order in which they were asked.
    fn awaited(&self) -> Vec<String> {
        self.calls.iter().map(who).collect()
    }

    #[track_caller]
    fn pending(&self, name: &str) -> &Call {
        let found = self.calls.iter().find(|call| who(call) == name);
        found.unwrap_or_else(|| panic!("{name} is not asked, but {:?}", self.awaited()))
    }

    #[track_caller]
    fn reply(&mut self, name: &str, answer: Answer) {
        let key = self.pending(name).key.clone();
        self.reply_to(&key, answer);
    }

    #[track_caller]
    fn reply_to(&mut self, key: &Key, answer: Answer) {
        let at = self.calls.iter().position(|call| call.key == *key).expect("this key is awaited");
        self.calls.remove(at);
        let key = key.clone().try_into().unwrap();
        self.with(|it, out| it.answered(&key, answer, out));
    }

    /// An agent, or the tool of a function, answers.
    #[track_caller]
    fn answer(&mut self, name: &str, value: Value) -> &mut Rig {
        self.reply(name, Ok(value));
        self
    }

    #[track_caller]
    fn fail(&mut self, name: &str, why: &str) -> &mut Rig {
        self.reply(name, Err(CallFailure::error(why)));
        self
    }

    /// Time passes; timers that are due fire, the earliest first.
    fn after(&mut self, time: Duration) {
        let until = self.now.plus(time);
        while let Some((key, at)) = self
            .timers
            .iter()
            .min_by_key(|(_, at)| **at)
            .map(|(key, at)| (key.clone(), *at))
            .filter(|(_, at)| *at <= until)
        {
            self.timers.remove(&key);
            self.now = at;
            self.with(|it, out| it.fired(&key.try_into().unwrap(), out));
        }
        self.now = until;
    }

    /// Plays on with one answer per call until nothing is asked.
    fn play(&mut self, script: impl Fn(&Call) -> Answer) {
        let mut turns = 0;
        while let Some(call) = self.calls.first().cloned() {
            turns += 1;
            assert!(turns < 2_000, "it does not end");
            let answer = script(&call);
            self.reply_to(&call.key, answer);
        }
    }

    #[track_caller]
    fn outcome(&self) -> &AgentOutcome {
        self.it.outcome().unwrap_or_else(|| panic!("not at its end, but awaits {:?}", self.awaited()))
    }

    /// What the tools answered in the conversation, in order.
    fn tool_messages(&self) -> Vec<String> {
        tool_texts(self.it.messages())
    }

    fn noted(&self, kind: NoteKind) -> Vec<&Value> {
        self.notes.iter().filter(|note| note.kind == kind).map(|note| &note.data).collect()
    }
}

fn tool_texts(messages: &[Message]) -> Vec<String> {
    messages
        .iter()
        .filter(|message| message.role == MessageRole::Tool)
        .map(|message| message.text().to_owned())
        .collect()
}

/// The agent of a model's call; the tool of a function's.
fn who(call: &Call) -> String {
    match call.context.get("tool").and_then(Value::as_str) {
        Some(tool) => tool.to_owned(),
        None => call.agent.clone().unwrap_or_else(|| call.purpose.as_str().to_owned()),
    }
}

/// The messages a model was sent.
fn sent(call: &Call) -> Vec<Message> {
    serde_json::from_value(call.context["messages"].clone()).unwrap()
}

fn tools_of(call: &Call) -> Vec<String> {
    let tools = call.context["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn says(text: &str) -> Value {
    json!({"content": text})
}

/// One response with these calls.
fn calls<const N: usize>(list: [(&str, Value); N]) -> Value {
    let calls: Vec<Value> = list.into_iter().map(|(name, args)| json!({"name": name, "args": args})).collect();
    json!({"tool_calls": calls})
}

fn delegate(to: &str, task: &str) -> Value {
    calls([(&*format!("delegate_to_{to}"), json!({"task": task}))])
}

/// The rules of a preset, as a run of it has them.
fn of_preset(preset: Preset) -> AgentRules {
    rules_of(&preset.values())
}
fn of_supyagent() -> AgentRules {
    of_preset(Preset::SupyagentDelegation)
}
fn of_langgraph() -> AgentRules {
    of_preset(Preset::LanggraphSupervisor)
}
fn of_swarm() -> AgentRules {
    of_preset(Preset::SwarmHandoff)
}
fn of_crewai() -> AgentRules {
    of_preset(Preset::CrewaiHierarchical)
}
fn of_cuga() -> AgentRules {
    of_preset(Preset::CugaConversational)
}

fn agent(name: &str) -> AgentDef {
    AgentDef::new(name)
}

/// What an agent may do, written after its name.
trait AgentMay {
    fn delegates(self, names: &[&str]) -> Self;
    fn handoffs(self, names: &[&str]) -> Self;
    fn tool(self, tool: ToolDef) -> Self;
}

impl AgentMay for AgentDef {
    fn delegates(mut self, names: &[&str]) -> Self {
        self.delegates = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }
    fn handoffs(mut self, names: &[&str]) -> Self {
        self.handoffs = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }
    fn tool(mut self, tool: ToolDef) -> Self {
        self.tools.push(tool);
        self
    }
}

/// assistant may ask planner and coder, planner may ask coder.
fn planner_and_coder() -> Vec<AgentDef> {
    vec![agent("assistant").delegates(&["planner", "coder"]), agent("planner").delegates(&["coder"]), agent("coder")]
}

#[track_caller]
fn refused(rules: AgentRules, agents: Vec<AgentDef>) -> AgentsRefused {
    let input = AgentInput { task: Some("go".to_owned()), ..AgentInput::default() };
    match Rig::build(|out| AgentLoop::start(rules, agents, input, out)) {
        Ok(_) => panic!("it was started"),
        Err(why) => why,
    }
}
