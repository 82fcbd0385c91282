//! A session: one running instance of an agent, with its messages, its depth and the calls under way.
//!
//! ```text
//!   waiting ──► thinking ──► acting (tools) ──► thinking ... ──► ended
//! ```
//!
//! Invariant: a session thinks or acts, never both; where each call of a response stands is `agent::turn`'s. It decides nothing:
//! the loop does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::message::{Message, MessageRole, Tag, ToolCall, Variables};
use super::todos::Todo;
use crate::agent::turn::{CallWatch, ToolCalls};
use crate::supervisor::core::key::{AgentsKey, SessionAsk, SessionPath};
use crate::supervisor::model::InstanceStatus;
use crate::supervisor::spec::Span;

/// One instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    /// Eight hexadecimal digits, from the run and the number.
    pub(crate) id: String,
    /// The active agent; a hand-off changes it.
    pub(crate) agent: String,
    pub(crate) parent: Option<u32>,
    /// Where it stands in the tree. Keys and ids are made of it, so that they do not depend on who was first.
    pub(crate) path: SessionPath,
    /// Root 0, a child its parent's and one.
    pub(crate) depth: u32,
    pub(crate) home: Home,
    pub(crate) task: String,
    pub(crate) messages: Vec<Message>,
    /// How many of the messages came with the input of this turn.
    pub(crate) given: usize,
    pub(crate) variables: Variables,
    /// Calls of the model in this turn, and in all.
    pub(crate) steps: u32,
    pub(crate) steps_total: u32,
    pub(crate) watch: CallWatch,
    /// The tools called in this turn, by who called: a hand-off gives nobody the calls of another (SUP-33).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) made: BTreeMap<String, u32>,
    pub(crate) todos: Vec<Todo>,
    /// Whom a manager may ask here.
    pub(crate) coworkers: Vec<String>,
    /// Where its messages are kept between calls.
    pub(crate) memory: Option<String>,
    /// How long its caller waits in all, if it does not wait for ever.
    pub(crate) deadline: Option<Span>,
    /// The next answer is the last one: no tools are offered.
    pub(crate) last_word: bool,
    /// How many background processes it has started.
    pub(crate) processes: u32,
    /// Agents a playbook wants to be delegated to first, in order.
    pub(crate) order: Vec<String>,
    pub(crate) guidance: Vec<String>,
    pub(crate) doing: Doing,
    /// Who handed over to the active agent, where a hand-off changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) handed_by: Option<String>,
    /// The tool whose call gave it its work, or made its agent the active one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    /// A person did not let it begin.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) denied: bool,
    /// In this turn a function ran for it, or somebody to whom it gave work has brought something.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) gave: bool,
    /// What people have refused in this turn, as long as nothing has been done since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) denials: Vec<String>,
}

/// Where the result of a session goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Home {
    /// The work of the loop itself: the item of its list.
    Root { item: usize },
    /// A call that waits for it.
    Call { session: u32, index: usize },
    /// Nobody waits: a background process.
    Process { process: u32 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Doing {
    /// Another session uses the same memory.
    Waiting,
    Thinking {
        key: AgentsKey,
    },
    Acting(Batch),
    /// The answer is there; one more call gives it its form.
    Formatting {
        key: AgentsKey,
        answer: String,
    },
    Ended {
        ok: bool,
    },
}

/// The calls of one response.
pub(crate) type Batch = ToolCalls<ToolCall, AgentsKey, Running, ToolOutcome>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Running {
    Function { key: AgentsKey },
    Child { session: u32, kind: SessionPurpose },
    Sleep { key: AgentsKey, seconds: String },
}

/// What a child was started for; it says how its result is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SessionPurpose {
    Delegation,
    Handoff,
}

/// The answer of one call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolOutcome {
    pub(crate) content: String,
    pub(crate) ok: bool,
    /// It was not carried out at all.
    pub(crate) refused: bool,
    pub(crate) variables: Variables,
    /// A function ran, or somebody brought something: not only a word that it went well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) worked: bool,
    /// Who is active next.
    pub(crate) handoff: Option<String>,
    /// Messages of an agent that worked and gave control back.
    pub(crate) outputs: Vec<Message>,
    /// The pair of messages is not kept.
    pub(crate) hidden: bool,
    pub(crate) end: Option<TurnEnd>,
}

/// Why a turn ends with the answers of a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum TurnEnd {
    /// A limit on calls is reached, which one says the text: what was said so far is the answer.
    Limit(String),
    /// No more tools: one last call.
    Budget,
    /// This text is the answer.
    Forward(String),
    /// This text is why there is no answer.
    ForwardFailure {
        text: String,
        /// A person's no is what has failed.
        refused: bool,
    },
    /// A person said no.
    Denied(String),
}

impl ToolOutcome {
    pub(crate) fn ok(content: impl Into<String>) -> Self {
        ToolOutcome { content: content.into(), ok: true, ..ToolOutcome::default() }
    }
    pub(crate) fn failed(content: impl Into<String>) -> Self {
        ToolOutcome { content: content.into(), ..ToolOutcome::default() }
    }
}

/// Where a new session stands.
pub(crate) struct SessionPlace {
    pub(crate) parent: Option<u32>,
    pub(crate) path: SessionPath,
    pub(crate) home: Home,
}

impl SessionPlace {
    /// A root of the loop, by these numbers.
    pub(crate) fn root(item: usize, numbers: [u32; 2]) -> SessionPlace {
        SessionPlace { parent: None, path: SessionPath(numbers.to_vec()), home: Home::Root { item } }
    }
}

impl Session {
    /// One that has not begun.
    pub(crate) fn new(
        id: String,
        agent: &str,
        place: SessionPlace,
        depth: u32,
        messages: Vec<Message>,
        variables: Variables,
    ) -> Session {
        let task = messages.iter().rev().find(|message| message.role == MessageRole::User);
        Session {
            id,
            agent: agent.to_owned(),
            parent: place.parent,
            path: place.path,
            depth,
            home: place.home,
            task: task.map(|message| message.text().to_owned()).unwrap_or_default(),
            given: messages.len(),
            messages,
            variables,
            steps: 0,
            steps_total: 0,
            watch: CallWatch::default(),
            made: BTreeMap::new(),
            todos: Vec::new(),
            coworkers: Vec::new(),
            memory: None,
            deadline: None,
            last_word: false,
            processes: 0,
            order: Vec::new(),
            guidance: Vec::new(),
            doing: Doing::Waiting,
            handed_by: None,
            tool: None,
            denied: false,
            gave: false,
            denials: Vec::new(),
        }
    }
    pub(crate) fn key(&self, ask: SessionAsk) -> AgentsKey {
        AgentsKey::Session { path: self.path.clone(), ask }
    }
    pub(crate) fn batch(&mut self) -> Option<&mut Batch> {
        match &mut self.doing {
            Doing::Acting(batch) => Some(batch),
            Doing::Waiting | Doing::Thinking { .. } | Doing::Formatting { .. } | Doing::Ended { .. } => None,
        }
    }
    /// The tool that one of its calls is of.
    pub(crate) fn tool_called(&self, index: usize) -> Option<String> {
        let Doing::Acting(batch) = &self.doing else { return None };
        batch.get(index).map(|(call, _)| call.name.clone())
    }
    /// Whether one of its calls is a hand-off that is under way.
    pub(crate) fn hands_over(&self, index: usize) -> bool {
        let Doing::Acting(batch) = &self.doing else { return false };
        matches!(batch.work(index), Some(Running::Child { kind: SessionPurpose::Handoff, .. }))
    }
    /// The sessions that its calls under way wait for.
    pub(crate) fn children(&self) -> Vec<u32> {
        let Doing::Acting(batch) = &self.doing else { return Vec::new() };
        let child = |index: usize| match batch.work(index)? {
            Running::Child { session, .. } => Some(*session),
            Running::Function { .. } | Running::Sleep { .. } => None,
        };
        (0..batch.len()).filter_map(child).collect()
    }
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.doing, Doing::Ended { .. })
    }
    /// Messages of this turn beyond its input.
    pub(crate) fn added(&self) -> &[Message] {
        self.messages.get(self.given..).unwrap_or_default()
    }
    /// What the agent has said in this turn, the text that stands when it may not go on.
    pub(crate) fn text_so_far(&self) -> String {
        let asks = |message: &Message| message.tag == Some(Tag::Question);
        let said =
            |message: &&Message| message.role == MessageRole::Assistant && !message.text().is_empty() && !asks(message);
        self.added().iter().filter(said).map(Message::text).collect::<Vec<_>>().join("\n")
    }
    /// Whether anything has come of it in this turn, by its own words or by what others did for it.
    pub(crate) fn has_something(&self, answer: &str) -> bool {
        self.gave || !answer.trim().is_empty()
    }
    /// What a background process has printed: everything its agent said and was told by tools.
    pub(crate) fn output(&self) -> String {
        let lines = self.added().iter().filter(|message| !message.text().is_empty()).map(Message::text);
        lines.collect::<Vec<_>>().join("\n")
    }
    pub(crate) fn status(&self) -> InstanceStatus {
        match self.doing {
            Doing::Ended { ok: true } => InstanceStatus::Completed,
            Doing::Ended { ok: false } => InstanceStatus::Failed,
            Doing::Waiting | Doing::Thinking { .. } | Doing::Acting(_) | Doing::Formatting { .. } => {
                InstanceStatus::Active
            }
        }
    }
}
