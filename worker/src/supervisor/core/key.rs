//! Names of what a run asks for: calls, timers, children, questions to people.
//!
//! A key says who is asked and which ask of theirs it is, so that an answer, or the end of a time, finds its way back by
//! one exhaustive `match`. Its text is what histories, summaries of activities, ids of children and people show:
//! `execute/t1/2`, `chat/speak/3`, `approval/ap-1/deadline`.
//!
//! Invariant: a key names one ask of a run for good, two keys never have one text, and a text is read back as the key
//! that it was (ids of tasks may hold `/`). Texts are read where they come from outside only: a state that is loaded, what
//! a person or a scene types. Nothing is decided by a text.

mod text;

use serde::{Deserialize, Serialize};

pub use self::text::UnknownKey;
use crate::supervisor::model::TaskId;

/// Names one ask, by who is asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Graph(GraphKey),
    Chat(ChatKey),
    Agents(AgentsKey),
    People(PeopleKey),
    Team(TeamKey),
    Memory(MemoryKey),
    Core(CoreKey),
}

impl Key {
    /// Whether a strategy asked, and not what all runs have.
    pub fn is_of_strategy(&self) -> bool {
        match self {
            Key::Graph(_) | Key::Chat(_) | Key::Agents(_) => true,
            Key::People(_) | Key::Team(_) | Key::Memory(_) | Key::Core(_) => false,
        }
    }

    /// What a run below was begun for, if it is one that was begun under this key.
    pub fn begun_for(&self) -> BegunFor<'_> {
        match self {
            Key::Graph(GraphKey::Execute { task, .. }) => BegunFor::Task(task),
            Key::Graph(GraphKey::Routed) => BegunFor::Request,
            Key::Graph(GraphKey::Compensate { .. }) => BegunFor::Undoing,
            Key::Agents(AgentsKey::Session { ask: SessionAsk::Step { .. }, .. }) => BegunFor::Step,
            Key::Graph(
                GraphKey::Act { .. }
                | GraphKey::Consult { .. }
                | GraphKey::Decide { .. }
                | GraphKey::Dependencies { .. }
                | GraphKey::Evaluate { .. }
                | GraphKey::Format
                | GraphKey::Plan { .. }
                | GraphKey::Retry { .. }
                | GraphKey::Review { .. }
                | GraphKey::ReviewAgain { .. }
                | GraphKey::Synthesize { .. },
            )
            | Key::Chat(_)
            | Key::Agents(_)
            | Key::People(_)
            | Key::Team(_)
            | Key::Memory(_)
            | Key::Core(_) => BegunFor::Other,
        }
    }
}

/// What a run below was begun for, where its end, or the end of the run above, means more than an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BegunFor<'k> {
    /// A task of a plan: who is to see what the run below hands upward is known by it.
    Task(&'k TaskId),
    /// All that the run above was asked for.
    Request,
    /// Work of a cancelled run is undone, so that it is not cancelled with that run (SHN-62).
    Undoing,
    /// A step of an agent: variables come back with its answer.
    Step,
    Other,
}

/// What a plan asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Key", into = "Key")]
pub enum GraphKey {
    /// What a person approved is carried out.
    Act {
        task: TaskId,
        attempt: u32,
    },
    Compensate {
        task: TaskId,
    },
    /// A worker asks a colleague.
    Consult {
        task: TaskId,
        attempt: u32,
        n: u32,
    },
    Decide {
        cycle: u32,
    },
    /// The time of waiting for dependencies.
    Dependencies {
        task: TaskId,
    },
    Evaluate {
        cycle: u32,
    },
    Execute {
        task: TaskId,
        attempt: u32,
    },
    /// The form of the result.
    Format,
    Plan {
        attempt: u32,
    },
    /// The time before the next try of a task.
    Retry {
        task: TaskId,
        attempt: u32,
    },
    /// Of an iteration as a whole its number stands for the task, and its first review goes without a number.
    Review {
        of: TaskId,
        attempt: Option<u32>,
    },
    /// The same review once more, as the last answer was none.
    ReviewAgain {
        task: TaskId,
        attempt: u32,
        n: u32,
    },
    /// The child that a simple request was handed on to.
    Routed,
    Synthesize {
        attempt: u32,
    },
}

/// What a group chat asks for, the n-th time that it asks for anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Key", into = "Key")]
pub struct ChatKey {
    pub ask: ChatAsk,
    pub n: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChatAsk {
    Facts,
    FactsUpdate,
    FinalAnswer,
    /// A person chooses who speaks.
    Human,
    Plan,
    PlanUpdate,
    ProgressLedger,
    Select,
    Speak,
}

/// Where a session stands in the tree: its root's numbers, then step and call of each caller.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionPath(pub Vec<u32>);

/// What agents that call tools ask for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Key", into = "Key")]
pub enum AgentsKey {
    Session {
        path: SessionPath,
        ask: SessionAsk,
    },
    /// For a task of a crew.
    Crew {
        task: String,
        ask: CrewAsk,
    },
}

/// What is asked for in a step of a session, and there for a call of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionAsk {
    /// Whether a person lets a tool be called.
    Approve {
        step: u32,
        call: usize,
    },
    /// The answer of a person.
    Question {
        step: u32,
    },
    /// The time after which the caller waits no longer.
    Deadline,
    Format {
        step: u32,
    },
    Sleep {
        step: u32,
        call: usize,
    },
    Step {
        step: u32,
    },
    Tool {
        step: u32,
        call: usize,
    },
}

impl AgentsKey {
    /// Whether a call is under way under it; the others are questions to people, and timers.
    pub fn is_call(&self) -> bool {
        match self {
            AgentsKey::Session { ask, .. } => {
                matches!(ask, SessionAsk::Step { .. } | SessionAsk::Format { .. } | SessionAsk::Tool { .. })
            }
            AgentsKey::Crew { ask, .. } => matches!(ask, CrewAsk::Guard(_)),
        }
    }
    /// Whether it is a time that passes.
    pub fn is_timer(&self) -> bool {
        matches!(self, AgentsKey::Session { ask: SessionAsk::Deadline | SessionAsk::Sleep { .. }, .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CrewAsk {
    /// The guardrail looks at an output, so often.
    Guard(u32),
    /// A person looks at the output of an attempt.
    Feedback(u32),
}

/// What is asked of people, and how long they have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Key", into = "Key")]
pub enum PeopleKey {
    /// An answer that is passed on to a run below.
    Answer(u64),
    ApprovalDeadline(u64),
    ApprovalLog(u64),
    ApprovalNotify(u64),
    /// The time of the decision that was asked for under that key.
    DecisionTimeout(Box<Key>),
    InterruptDeadline(u64),
    /// Of the first review of a plan, the second, and so on.
    PlanReviewDeadline(u32),
    TakeoverDeadline(u64),
}

/// What the team asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Key", into = "Key")]
pub enum TeamKey {
    /// A message to the mailbox of another run.
    Mail(u64),
    /// Whether the policy lets somebody be recruited, or leave.
    AuthorizeRecruit(u64),
    AuthorizeRetirement(u64),
    /// The run of a recruit.
    Recruit(u64),
    /// The next look at the topics that a task waits for.
    Topic {
        task: TaskId,
        look: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryKey {
    Advise,
    Fetch,
    FetchBasic,
    Record,
}

/// What the core asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CoreKey {
    /// The time of the run.
    Wall,
}

macro_rules! groups {
    ($($group:ident($of:ident)),*) => {
        $(impl From<$of> for Key {
            fn from(key: $of) -> Key {
                Key::$group(key)
            }
        }
        impl TryFrom<Key> for $of {
            type Error = UnknownKey;
            fn try_from(key: Key) -> Result<$of, UnknownKey> {
                match key {
                    Key::$group(key) => Ok(key),
                    other => Err(UnknownKey(other.to_string())),
                }
            }
        })*
    };
}

groups!(
    Graph(GraphKey),
    Chat(ChatKey),
    Agents(AgentsKey),
    People(PeopleKey),
    Team(TeamKey),
    Memory(MemoryKey),
    Core(CoreKey)
);

impl From<&Key> for Key {
    fn from(key: &Key) -> Key {
        key.clone()
    }
}

/// The key of this text, in tests.
#[cfg(test)]
pub(crate) fn key<K: TryFrom<Key>>(text: &str) -> K {
    let key: Key = text.parse().unwrap_or_else(|why| panic!("{why}"));
    key.try_into().unwrap_or_else(|_| panic!("{text} is of another group"))
}

#[cfg(test)]
impl PartialEq<&str> for Key {
    fn eq(&self, text: &&str) -> bool {
        let shown = self.to_string();
        shown == *text
    }
}
