//! What a loop shows of itself: copies, for queries and people.
//!
//! Invariant: a view changes nothing and shares nothing; sessions are in the order of their places in the tree, so that
//! it makes no difference who was first.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::agent_loop::{AgentLoop, Workload};
use super::boundary::{HumanNeeded, NotWaiting};
use super::crew::TaskOutput;
use super::message::Message;
use super::todos::Todo;
use crate::supervisor::core::key::AgentsKey;

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    pub id: String,
    pub agent: String,
    pub parent_id: Option<String>,
    pub depth: u32,
    /// `active`, `completed` or `failed`.
    pub status: String,
    pub task: String,
    pub model: Option<String>,
    /// How often its model was asked.
    pub steps: u32,
    pub tool_calls: u32,
}

/// The loop as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentsView {
    pub active_agent: Option<String>,
    pub sessions: Vec<SessionView>,
    pub processes_running: usize,
    pub todos: Vec<Todo>,
    pub paused: bool,
    pub steps: u32,
    /// Tool calls charged to the task, and to the conversation.
    pub charged_task: u32,
    pub charged_thread: u32,
    pub human: Vec<HumanNeeded>,
    pub outputs: Vec<TaskOutput>,
    /// The ids of memories that are kept, with how many messages each holds.
    pub memories: Vec<(String, usize)>,
}

impl AgentLoop {
    /// The conversation as another run goes on with it (SWM-06).
    pub fn response(&self) -> Value {
        let outcome = self.outcome_of(Ok(Value::Null));
        json!({
            "messages": self.messages(), "agent": outcome.active_agent,
            "context_variables": outcome.context_variables, "charged_thread": self.charged_thread,
        })
    }

    /// The same with what is remembered beside the conversation (CUG-38).
    pub(super) fn left_for(&self, run: &str) -> Value {
        let mut left = self.response();
        let memories = self.memories_by_agent(run);
        if !memories.is_empty() {
            left["memories"] = json!(memories);
        }
        if let Some(root) = self.root().filter(|root| !root.todos.is_empty()) {
            left["todos"] = json!(root.todos);
        }
        left
    }

    pub fn view(&self, paused: bool) -> AgentsView {
        let root = self.root();
        AgentsView {
            active_agent: root.map(|root| root.agent.clone()),
            sessions: self.sessions_view(),
            processes_running: self.processes_running(),
            todos: root.map(|root| root.todos.clone()).unwrap_or_default(),
            paused,
            steps: self.steps,
            charged_task: self.charged_task,
            charged_thread: self.charged_thread,
            human: self.human_needed(),
            outputs: match &self.work {
                Workload::Crew(run) => run.outputs.values().cloned().collect(),
                Workload::Conversation { .. } | Workload::Steps(_) => Vec::new(),
            },
            memories: self.kept_memories(),
        }
    }

    pub fn sessions_view(&self) -> Vec<SessionView> {
        let shown = |session: &super::session::Session| SessionView {
            id: session.id.clone(),
            agent: session.agent.clone(),
            parent_id: session.parent.and_then(|seq| self.sessions.get(&seq)).map(|parent| parent.id.clone()),
            depth: session.depth,
            status: session.status().as_str().to_owned(),
            task: session.task.clone(),
            model: self.def(&session.agent).and_then(|def| def.model.clone()),
            steps: session.steps_total,
            tool_calls: session.watch.total(),
        };
        let mut sessions: Vec<&super::session::Session> = self.sessions.values().collect();
        sessions.sort_by(|a, b| a.path.cmp(&b.path));
        sessions.into_iter().map(shown).collect()
    }

    /// The conversation, the input's messages included.
    pub fn messages(&self) -> &[Message] {
        self.root().map(|root| root.messages.as_slice()).unwrap_or_default()
    }

    /// What only a person can say, in the order of keys.
    pub fn human_needed(&self) -> Vec<HumanNeeded> {
        self.humans.values().cloned().collect()
    }

    /// What people are asked under that key.
    pub fn question(&self, key: &AgentsKey) -> Result<&HumanNeeded, NotWaiting> {
        self.humans.get(key).ok_or_else(|| NotWaiting(key.clone().into()))
    }

    fn root(&self) -> Option<&super::session::Session> {
        match self.work {
            Workload::Conversation { root } => self.sessions.get(&root),
            Workload::Crew(_) | Workload::Steps(_) => None,
        }
    }
}
