//! What a person may have to be asked before it is done, where no plan has tasks that wait for it: a turn in a chat, work
//! that an agent gives to another one, the call of a tool.
//!
//! ```text
//!   call ──► is it work that begins? ──► no, or nobody has to be asked ──► on its way
//!                      └──► asked ──► approved ──► on its way
//!                             │  └──► denied: whoever asked for the call hears that
//!                             └──► nobody wants it any more: the request is void
//! ```
//!
//! Every `Ask::Call` of a conversation, a crew or a list of steps passes here, and what begins is known by the key alone. In
//! a run of a plan it is off (`run/gate`): people are asked before a task starts (`graph/people`), which covers the calls of
//! that task, `Execute`, `Act` and `Compensate`; `Consult`, the question of a worker to a colleague, is let through with the
//! task that asks it, whatever it is about. A run below that is no call (`Ask::StartChild`: a recruit, a request handed on)
//! does not pass either: people are asked about the recruit (`people::approval`), and the run below asks about its own work.
//!
//! Invariant: work begins once, so that people are asked once for it: not for the next step of an agent that was let
//! through, not after a pause, and not when a call is sent again. Whether people are asked is `people::escalation`'s to say.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::call_context::{LastSaid, SessionContext, parts_of};
use super::key::{AgentsKey, ChatAsk, ChatKey, Key, SessionAsk, SessionPath};
use crate::supervisor::model::{ApprovalId, Risk, TaskId};
use crate::supervisor::outbox::{Call, Purpose};

/// The numbers of a session that nobody called: which item of the run's work it does, and which attempt at it this is.
const ROOT: usize = 2;

/// What kind of work begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkKind {
    /// Of a participant in a chat.
    Turn,
    /// One of a list that a manager or an agent does.
    Item,
    Delegation,
    HandOff,
    /// A function that an agent calls.
    Tool,
}

/// What a plan says of one of its tasks that people may have to be asked about (SHH-18).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Declared {
    pub action: String,
    pub risk: Risk,
    /// They are asked in every mode.
    pub requires_approval: bool,
    /// A no ends the run.
    pub required: bool,
}

/// Work that begins with a call.
#[derive(Debug, Clone, PartialEq)]
pub struct NewWork {
    pub kind: WorkKind,
    /// The item of the list.
    pub item: Option<TaskId>,
    /// In words, what is asked for; of a tool its name.
    pub action: String,
    /// Of an item of a list, what the plan says of it.
    pub declared: Declared,
    /// What it is about.
    pub about: String,
    /// The functions that are called with it.
    pub functions: Vec<String>,
    /// What else people are shown.
    pub context: Value,
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct AskedCall {
    call: Call,
    approval: ApprovalId,
}

/// What a person answers who is asked whether something may be done.
#[derive(Default, Deserialize)]
#[serde(default)]
struct YesOrNo {
    approved: bool,
}

impl YesOrNo {
    fn is_yes(answer: &Value) -> bool {
        answer == &Value::Bool(true) || parts_of::<YesOrNo>(answer).approved
    }
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CallGate {
    /// Nobody is asked in a run whose spec says so when it begins.
    on: bool,
    /// Agents hand over; in other runs they delegate.
    hands_over: bool,
    /// The list that the run works off; none is a conversation.
    items: Option<Vec<TaskId>>,
    /// What the plan says of items of the list, where it says anything.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    declared: BTreeMap<TaskId, Declared>,
    asked: BTreeMap<Key, AskedCall>,
    /// Let through, and not under way yet.
    passed: BTreeSet<Key>,
    /// Calls of tools that a person has approved as their policy wants it.
    approved: BTreeSet<Key>,
    /// Who was let through last, by the session that nobody called.
    active: BTreeMap<String, String>,
}

impl CallGate {
    /// Of a run in which people are asked: whether its agents hand over, the list that it works off, and what is said of
    /// items of it. Without one (`default`) nobody is.
    pub fn new(hands_over: bool, items: Option<Vec<TaskId>>, declared: BTreeMap<TaskId, Declared>) -> CallGate {
        CallGate { on: true, hands_over, items, declared, ..CallGate::default() }
    }

    pub fn is_off(&self) -> bool {
        !self.on
    }

    /// Whether the run works off a list, so that what nobody called is work as well.
    pub fn has_items(&self) -> bool {
        self.items.is_some()
    }

    /// What begins with this call, and nobody has been let through for.
    pub fn begins(&self, call: &Call) -> Option<NewWork> {
        let is_over = self.passed.contains(&call.key) || self.is_approved(&call.key);
        if !self.on || call.purpose != Purpose::ExecuteWorker || is_over {
            return None;
        }
        let agent = call.agent.as_deref().unwrap_or_default();
        match &call.key {
            // The next try of a turn goes on with it.
            Key::Chat(ChatKey { ask: ChatAsk::Speak, .. }) if call.attempt > 1 => None,
            Key::Chat(ChatKey { ask: ChatAsk::Speak, .. }) => Some(NewWork::turn(call, agent)),
            Key::Agents(AgentsKey::Session { ask: SessionAsk::Tool { .. }, .. }) => Some(NewWork::tool(call, agent)),
            Key::Agents(AgentsKey::Session { path, ask: SessionAsk::Step { step } }) => {
                let (kind, item) = self.in_session(path, *step, agent)?;
                let declared = item.as_ref().and_then(|item| self.declared.get(item)).cloned().unwrap_or_default();
                Some(NewWork { declared, ..NewWork::of_agent(kind, item, call, agent) })
            }
            // Whether a task of a plan may start was asked before; the others are no work.
            Key::Graph(_) | Key::Chat(_) | Key::Agents(_) => None,
            Key::People(_) | Key::Team(_) | Key::Memory(_) | Key::Core(_) => None,
        }
    }

    /// What begins with a step of a session: whoever was called, an item of the list, or that of somebody else than before.
    fn in_session(&self, path: &SessionPath, step: u32, agent: &str) -> Option<(WorkKind, Option<TaskId>)> {
        if path.0.len() > ROOT {
            let kind = if self.hands_over { WorkKind::HandOff } else { WorkKind::Delegation };
            return (step == 1).then_some((kind, None));
        }
        match (&self.items, self.active.get(&path.to_string())) {
            (_, Some(before)) => (before != agent).then_some((WorkKind::HandOff, None)),
            (Some(items), None) => {
                let place = path.0.first().and_then(|n| usize::try_from(n.saturating_sub(1)).ok())?;
                Some((WorkKind::Item, items.get(place).cloned()))
            }
            // Whoever begins a conversation was asked for by the one who began the run.
            (None, None) => None,
        }
    }

    /// The call waits for this approval.
    pub fn hold(&mut self, call: Call, approval: ApprovalId) {
        self.asked.insert(call.key.clone(), AskedCall { call, approval });
    }

    /// The call may be made, whatever is asked from now on.
    pub fn pass(&mut self, call: &Call) {
        if self.on {
            self.passed.insert(call.key.clone());
            self.goes_on(call);
        }
    }

    /// The call is on its way: who has the conversation is known from here on.
    pub fn goes_on(&mut self, call: &Call) {
        let Key::Agents(AgentsKey::Session { path, ask: SessionAsk::Step { .. } }) = &call.key else { return };
        if self.on && path.0.len() == ROOT {
            self.active.insert(path.to_string(), call.agent.clone().unwrap_or_default());
        }
    }

    /// It is under way, or was answered: nothing is kept of it.
    pub fn sent(&mut self, key: &Key) {
        self.passed.remove(key);
        if let Some(asked) = approval_of(key) {
            self.approved.remove(&asked);
        }
    }

    /// The call that this approval was about, which is decided.
    pub fn decided(&mut self, approval: &ApprovalId) -> Option<Call> {
        let key = self.asked.iter().find(|(_, asked)| asked.approval == *approval).map(|(key, _)| key.clone())?;
        self.asked.remove(&key).map(|asked| asked.call)
    }

    /// Whether that is the call of a tool, which is made as it was shown or not at all.
    pub fn is_about_tool(&self, approval: &ApprovalId) -> bool {
        let of_tool = |key: &Key| matches!(key, Key::Agents(AgentsKey::Session { ask: SessionAsk::Tool { .. }, .. }));
        self.asked.iter().any(|(key, asked)| asked.approval == *approval && of_tool(key))
    }

    /// Nobody wants it any more: the approval that was asked for it.
    pub fn over(&mut self, key: &Key) -> Option<ApprovalId> {
        self.sent(key);
        self.asked.remove(key).map(|asked| asked.approval)
    }

    /// All that waits for people.
    pub fn asked(&self) -> Vec<Key> {
        self.asked.keys().cloned().collect()
    }

    /// A person has said whether a tool may be called that a policy holds back: they are not asked about that call again.
    pub fn answered(&mut self, question: &Key, answer: &Value) {
        let of_tool = matches!(question, Key::Agents(AgentsKey::Session { ask: SessionAsk::Approve { .. }, .. }));
        if self.on && of_tool && YesOrNo::is_yes(answer) {
            self.approved.insert(question.clone());
        }
    }

    fn is_approved(&self, key: &Key) -> bool {
        approval_of(key).is_some_and(|asked| self.approved.contains(&asked))
    }
}

/// The question that a policy asks before this call, or before the one that the session was opened for.
fn approval_of(key: &Key) -> Option<Key> {
    let Key::Agents(AgentsKey::Session { path, ask }) = key else { return None };
    let (path, step, call) = match (ask, path.0.as_slice()) {
        (SessionAsk::Tool { step, call }, _) => (path.clone(), *step, *call),
        (SessionAsk::Step { step: 1 }, [above @ .., step, call]) if above.len() >= ROOT => {
            (SessionPath(above.to_vec()), *step, usize::try_from(*call).ok()?)
        }
        _ => return None,
    };
    Some(AgentsKey::Session { path, ask: SessionAsk::Approve { step, call } }.into())
}

impl NewWork {
    fn turn(call: &Call, agent: &str) -> NewWork {
        let last = LastSaid::before(call);
        let about = last.content.clone().unwrap_or_default();
        let context = json!({ "agent": agent, "turn": call.round, "attempt": call.attempt, "after": last.name });
        // What has a result was called before.
        let functions = last.open_functions();
        let action = format!("the turn of {agent}");
        NewWork { kind: WorkKind::Turn, item: None, action, declared: Declared::default(), about, functions, context }
    }

    fn tool(call: &Call, agent: &str) -> NewWork {
        let SessionContext { session, tool, args, .. } = SessionContext::of(call);
        let name = tool.unwrap_or_default();
        let context = json!({ "agent": agent, "session": session, "args": args });
        let functions = vec![name.clone()];
        let (declared, about) = (Declared::default(), call.prompt.clone());
        NewWork { kind: WorkKind::Tool, item: None, action: name, declared, about, functions, context }
    }

    fn of_agent(kind: WorkKind, item: Option<TaskId>, call: &Call, agent: &str) -> NewWork {
        let SessionContext { session, depth, task, .. } = SessionContext::of(call);
        let action = match kind {
            WorkKind::HandOff => format!("the hand-off to {agent}"),
            WorkKind::Delegation => format!("the delegation to {agent}"),
            WorkKind::Item | WorkKind::Turn | WorkKind::Tool => String::new(),
        };
        let about = task.unwrap_or_default();
        let context = json!({ "agent": agent, "session": session, "depth": depth });
        NewWork { kind, item, action, declared: Declared::default(), about, functions: Vec::new(), context }
    }

    /// What people have seen of it before, for what they are shown again.
    pub fn with(mut self, more: Map<String, Value>) -> NewWork {
        if let Value::Object(context) = &mut self.context {
            context.extend(more);
        }
        self
    }
}
