//! From the places of messages to the messages: a run's history, read as the conversation of its agent.
//!
//! Invariant: it is a function of the history, and of nothing else; the same call gives the same request on every
//! machine, after every restart and in every fork. What it keeps between calls it could build again. Pure.

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::{ActivityType, EventId, EventKind, Payload};
use serde_json::Value;

use super::border::AGENT_CARRY;
use super::ends::was_cut;
use super::machine::{CallPurpose, ModelCall};
use super::opening;
use super::shown::ShownResult;
use super::spec::AgentSpec;
use super::transcript::{TranscriptItem, summary_message};
use super::workflow::AGENT_MODEL;
use crate::capability::mcp::MCP_TOOLS;
use crate::capability::model::{AssistantMessage, ChatRequest, Message, ModelInput, ToolChoice};

/// The history of one agent, as far as it was read.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    spec: Option<AgentSpec>,
    /// What was said in the runs before.
    carried: Vec<Message>,
    /// What servers were asked for their tools when the agent began, and their answers.
    asked: Vec<(u64, Option<Value>)>,
    calls: BTreeMap<u64, ModelCall>,
    said: BTreeMap<u64, AssistantMessage>,
    /// The activities that read the conversation: what they give is no message.
    carries: BTreeSet<u64>,
    /// The activities that are tools, until they have ended.
    tools: BTreeMap<u64, ActivityType>,
    /// What tools and agents gave, and whether they failed.
    given: BTreeMap<u64, (String, bool)>,
    /// How many attempts of a call were cut.
    cut: BTreeMap<u64, u32>,
    /// The messages of the call that was resolved last.
    built: Option<(u64, Vec<Message>)>,
    next_event: EventId,
    bytes: usize,
}

/// Why a call cannot be resolved: the history is not that of an agent, or was not read far enough.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("the run was not started with an agent's spec")]
    NoSpec,
    #[error("the history holds no model call {0}")]
    NoCall(u64),
    #[error("the history holds nothing that was said in call {0}")]
    NothingSaid(u64),
    #[error("the history holds no result of {0}")]
    NothingGiven(u64),
    #[error("the run was started without message {0} of the run before")]
    NothingCarried(usize),
    #[error("result {0} answers no call of a tool")]
    Unasked(u64),
}

impl Conversation {
    /// Where reading goes on.
    pub fn next_event(&self) -> EventId {
        EventId(self.next_event.0.max(1))
    }
    /// About how much memory this takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The next event of the history.
    pub fn hear(&mut self, id: EventId, event: &EventKind) {
        self.next_event = id.next();
        match event {
            EventKind::WorkflowExecutionStarted(started) => {
                self.spec = started.input.decode().ok();
                let continued = self.spec.as_mut().and_then(|spec| spec.continued.take());
                if let Some(continued) = continued {
                    self.bytes += 2 * started.input.len();
                    self.carried = continued.messages;
                }
            }
            EventKind::ActivityTaskScheduled(task) if task.activity_type.as_str() == AGENT_CARRY => {
                self.carries.insert(task.seq.0);
            }
            EventKind::ActivityTaskScheduled(task)
                if task.activity_type.as_str() == MCP_TOOLS && self.asked.len() < self.servers() =>
            {
                self.asked.push((task.seq.0, None));
            }
            EventKind::ActivityTaskScheduled(task) if task.activity_type.as_str() == AGENT_MODEL => {
                if let Ok(call) = task.input.decode() {
                    self.calls.insert(task.seq.0, call);
                }
            }
            EventKind::ActivityTaskScheduled(task) => _ = self.tools.insert(task.seq.0, task.activity_type.clone()),
            EventKind::ActivityTaskCompleted { seq, result, .. } => self.completed(seq.0, result),
            EventKind::ActivityTaskAttemptFailed { seq, failure, .. }
                if self.calls.contains_key(&seq.0) && was_cut(failure) =>
            {
                *self.cut.entry(seq.0).or_default() += 1;
            }
            EventKind::ChildWorkflowExecutionCompleted { seq, result } => {
                self.give(seq.0, ShownResult::of_agent(&result.to_json()));
            }
            _ => {} // nothing else is a message
        }
    }

    /// How many attempts of a call were cut so far: they may have been answered, and paid for.
    pub fn cut(&self, call: u64) -> u32 {
        self.cut.get(&call).copied().unwrap_or(0)
    }

    /// How many servers are asked before anything else.
    fn servers(&self) -> usize {
        self.spec.as_ref().map_or(0, |spec| opening::questions(spec).len())
    }

    fn completed(&mut self, seq: u64, result: &Payload) {
        if self.carries.contains(&seq) {
            return;
        }
        if let Some((_, answer)) = self.asked.iter_mut().find(|(asked, _)| *asked == seq) {
            *answer = Some(result.to_json());
            let answers: Option<Vec<Value>> = self.asked.iter().map(|(_, answer)| answer.clone()).collect();
            if let Some(answers) = answers.filter(|answers| answers.len() == self.servers())
                && let Some(spec) = &self.spec
            {
                // One that does not fit ended the run before any call.
                self.spec = opening::opened(spec, &answers).ok();
            }
            return;
        }
        if !self.calls.contains_key(&seq) {
            let tool = self.tools.remove(&seq);
            let activity_type = tool.as_ref().map_or("", ActivityType::as_str);
            return self.give(seq, ShownResult::of_tool(activity_type, &result.to_json()));
        }
        let said = result.to_json().pointer("/response/said").cloned().unwrap_or(Value::Null);
        if let Ok(said) = serde_json::from_value::<AssistantMessage>(said) {
            self.bytes += 2 * result.len();
            self.said.insert(seq, said);
        }
    }
    fn give(&mut self, seq: u64, shown: ShownResult<'_>) {
        let failed = shown.failed;
        let text = shown.text(self.result_bytes());
        self.bytes += 2 * text.len();
        self.given.insert(seq, (text, failed));
    }
    fn result_bytes(&self) -> u64 {
        self.spec.as_ref().map_or(0, |spec| spec.limits.result_bytes)
    }

    /// The input of the capability `model` for a call.
    pub fn request(&mut self, seq: u64) -> Result<ModelInput, ResolveError> {
        let call = self.calls.get(&seq).cloned().ok_or(ResolveError::NoCall(seq))?;
        let messages = self.messages(seq)?;
        let spec = self.spec.as_ref().ok_or(ResolveError::NoSpec)?;
        let answers = call.purpose == CallPurpose::Answer;
        let request = ChatRequest {
            model: call.model,
            messages,
            tools: spec.tools.iter().map(super::spec::ToolGrant::told).collect(),
            // Providers want the tools that earlier messages call to be named, also where none may be called.
            tool_choice: if answers { ToolChoice::Auto } else { ToolChoice::None },
            schema: if answers { spec.schema.clone() } else { None },
            temperature: spec.temperature,
            max_tokens: Some(call.max_tokens),
        };
        let input = ModelInput::new(spec.provider.clone(), request);
        let (timeout_ms, within_ms) = (spec.call_timeout_ms.unwrap_or(input.timeout_ms), call.within_ms);
        Ok(ModelInput { timeout_ms, within_ms, ..input })
    }

    /// The messages of those items that the next run has to be given.
    pub fn carry(&self, items: &[TranscriptItem]) -> Result<Vec<Message>, ResolveError> {
        let (mut all, mut carried) = (Vec::new(), Vec::new());
        for item in items {
            let message = self.message(item, &all)?;
            carried.extend(item.to_carry().map(|_| message.clone()));
            all.push(message);
        }
        Ok(carried)
    }

    fn messages(&mut self, seq: u64) -> Result<Vec<Message>, ResolveError> {
        // Back to the call that says everything, or to the one that was built last.
        let (mut chain, mut at) = (Vec::new(), seq);
        let mut messages = loop {
            if let Some((_, built)) = self.built.take_if(|(built, _)| *built == at) {
                break built;
            }
            chain.push(at);
            match self.calls.get(&at).ok_or(ResolveError::NoCall(at))?.after {
                Some(before) => at = before,
                None => break Vec::new(),
            }
        };
        for call in chain.into_iter().rev() {
            let call = &self.calls[&call];
            if let Some(before) = call.after {
                messages.push(Message::Assistant(self.said(before)?.clone()));
            }
            for item in &call.items {
                messages.push(self.message(item, &messages)?);
            }
        }
        self.built = Some((seq, messages.clone()));
        Ok(messages)
    }

    fn said(&self, call: u64) -> Result<&AssistantMessage, ResolveError> {
        self.said.get(&call).ok_or(ResolveError::NothingSaid(call))
    }

    fn message(&self, item: &TranscriptItem, before: &[Message]) -> Result<Message, ResolveError> {
        let spec = || self.spec.as_ref().ok_or(ResolveError::NoSpec);
        Ok(match item {
            TranscriptItem::System => Message::System { content: spec()?.system.clone() },
            TranscriptItem::Task => Message::User { content: spec()?.task.clone() },
            TranscriptItem::Response(call) => Message::Assistant(self.said(*call)?.clone()),
            TranscriptItem::Summary(call) => summary_message(&self.said(*call)?.content),
            TranscriptItem::Own(message) => message.clone(),
            TranscriptItem::Carried { message, .. } => {
                self.carried.get(*message).cloned().ok_or(ResolveError::NothingCarried(*message))?
            }
            TranscriptItem::Given(seq) => {
                let (content, is_error) = self.given.get(seq).ok_or(ResolveError::NothingGiven(*seq))?.clone();
                let (call_id, name) = asked(before).ok_or(ResolveError::Unasked(*seq))?;
                Message::Tool { call_id, name, content, is_error }
            }
        })
    }
}

/// The first call of the last answer that has no result yet: results stand in the order of the calls.
fn asked(before: &[Message]) -> Option<(String, String)> {
    let answered = before.iter().rev().take_while(|message| matches!(message, Message::Tool { .. })).count();
    match before.iter().rev().nth(answered)? {
        Message::Assistant(said) => said.tool_calls.get(answered).map(|call| (call.id.clone(), call.name.clone())),
        Message::System { .. } | Message::User { .. } | Message::Tool { .. } => None,
    }
}
