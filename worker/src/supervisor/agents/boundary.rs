//! What goes into a loop of agents and what comes out: inputs, outcomes, refusals, and questions to people.
//!
//! Invariant: these are data; a refusal says what does not fit before anything has started.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::memory::Thread;
use super::message::{Message, Variables, text_of};
use super::refusal::AnswerRefusal;
use super::todos::Todo;
use crate::supervisor::core::key::{AgentsKey, Key};
use crate::supervisor::core::question::OnExpiry;
use crate::supervisor::core::strategy::Silence;

/// What a loop is started with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentInput {
    /// Who begins; the first agent if nobody is named.
    pub agent: Option<String>,
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// What the user says now, if the messages do not end with it.
    pub task: Option<String>,
    pub context_variables: Variables,
    pub thread: Thread,
    /// Tool calls that this conversation has used already.
    pub charged_thread: u32,
    /// What agents that are called remember of it, by their names.
    pub memories: BTreeMap<String, Vec<Message>>,
    /// The todo list of whoever begins.
    pub todos: Vec<Todo>,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentOutcome {
    pub ok: bool,
    pub result: Value,
    /// The messages that were added, the input's not among them.
    pub messages: Vec<Message>,
    pub active_agent: String,
    pub context_variables: Variables,
    pub error: Option<String>,
    pub policy_blocked: bool,
    pub selected_agents: Vec<String>,
}

/// Why agents and rules do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentsRefused {
    #[error("no agent is given")]
    NoAgents,
    #[error("Please specify a name for every agent: agent {0} has none.")]
    NoName(usize),
    #[error("Agent with name '{0}' already exists. Agent names must be unique.")]
    DuplicateName(String),
    #[error("agents '{0}' and '{1}' have the same tool name '{2}'")]
    SameToolName(String, String, String),
    #[error("agent '{agent}' has two tools of the name '{tool}': {first}, and {second}; rename one of them")]
    ToolTwice { agent: String, tool: String, first: String, second: String },
    #[error("agent '{0}' not found")]
    Unknown(String),
    #[error(
        "When providing custom handoff tools, you must provide them for all subagents. Missing handoff tools for agents \
         '{0}'."
    )]
    MissingHandoffs(String),
    #[error("policy id '{0}' must begin with its type '{1}'")]
    PolicyId(String, &'static str),
    #[error("{0}")]
    Crew(#[from] super::crew::CrewRefused),
    #[error("{}", .0.join("; "))]
    Steps(Vec<String>),
}

/// Something only a person can say. The run asks them, and gives the answer to [`super::AgentLoop::human`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HumanNeeded {
    /// People answer by its text.
    pub key: AgentsKey,
    pub kind: HumanKind,
    pub agent: String,
    /// What they are asked.
    pub message: String,
    /// What it is about: the output of a task, or the call as code.
    pub about: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HumanKind {
    /// The output of a task, before it is accepted.
    TaskFeedback {
        task: String,
    },
    ToolApproval {
        policy: String,
    },
    /// An agent asks, and goes on with the answer (LGI-01).
    Question {
        payload: Value,
    },
}

impl HumanKind {
    /// Nobody who is silent has looked at an output: the task has failed, unless that is a yes.
    pub(super) fn silence(&self) -> Silence {
        let yes = OnExpiry::Answer(Value::Bool(true));
        match self {
            HumanKind::TaskFeedback { .. } => Silence { no: OnExpiry::Fail, yes },
            HumanKind::ToolApproval { .. } => {
                let no = json!({"approved": false, "feedback": "nobody answered in time"});
                Silence { no: OnExpiry::Answer(no), yes }
            }
            HumanKind::Question { .. } => Silence::default(),
        }
    }
}

/// What they said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HumanAnswer {
    pub approved: bool,
    #[serde(default, alias = "comment")]
    pub feedback: String,
}

impl HumanAnswer {
    /// An answer to a question of that kind: yes or no, or `{approved, feedback}`.
    ///
    /// About the output of a task, a text is feedback, unless it only says yes. One with nothing in it says neither.
    /// Whether a tool is called is never read out of a text, where "yes" and silence could both be taken for the wrong
    /// thing.
    pub fn read(value: &Value, kind: &HumanKind) -> Result<HumanAnswer, AnswerRefusal> {
        match (value, kind) {
            (answer, HumanKind::Question { .. }) => Ok(HumanAnswer { approved: true, feedback: text_of(answer) }),
            (Value::Bool(approved), _) => Ok(HumanAnswer { approved: *approved, feedback: String::new() }),
            (Value::String(text), HumanKind::TaskFeedback { .. }) if text.trim().is_empty() => {
                Err(AnswerRefusal::Empty)
            }
            (Value::String(text), HumanKind::TaskFeedback { .. }) => {
                let approved = says_yes(text);
                Ok(HumanAnswer { approved, feedback: if approved { String::new() } else { text.clone() } })
            }
            (Value::String(_), HumanKind::ToolApproval { .. }) => Err(AnswerRefusal::NoYesOrNo),
            _ => serde_path_to_error::deserialize(value)
                .map_err(|why| AnswerRefusal::Misfit { at: why.path().to_string(), why: why.inner().to_string() }),
        }
    }
}

/// Whether a text says yes and no more than that.
fn says_yes(text: &str) -> bool {
    const YES: [&str; 9] = ["yes", "y", "ok", "okay", "approve", "approved", "accept", "accepted", "true"];
    let word = text.trim().trim_end_matches(['.', '!']).to_lowercase();
    YES.contains(&word.as_str())
}

/// Nobody was asked under that key, or it is answered already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("nothing waits for an answer under `{0}`")]
pub struct NotWaiting(pub Key);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_only_says_yes_sends_no_work_back() {
        let about = HumanKind::TaskFeedback { task: "1".into() };
        let read = |text: &str| HumanAnswer::read(&json!(text), &about).unwrap();
        for yes in ["yes", " Yes.", "OK", "approve", "approved!", "accept", "true"] {
            assert_eq!(read(yes), HumanAnswer { approved: true, feedback: String::new() }, "{yes}");
        }
        for no in ["no", "yes, but shorter", "yes and no", "yess"] {
            assert_eq!(read(no), HumanAnswer { approved: false, feedback: no.into() }, "{no}");
        }
        for nothing in ["", " "] {
            assert_eq!(HumanAnswer::read(&json!(nothing), &about), Err(AnswerRefusal::Empty));
        }
    }
}
