//! The loop itself: what comes in, by key, and what it is for.
//!
//! Four kinds of methods: `start`, `crew` and `steps` make one; `answered`, `fired` and `human` take what happened; `say` (in
//! `words`) and `cancel` are what people want; `view`s and `outcome` tell. Everything it wants is in the outbox.
//!
//! Invariant: who asked for something is read from its key; each key that was asked for is waited for once; an answer to any
//! other key changes nothing and is noted as dropped. While the run stands still (`Outbox::is_held`) nothing starts, and what
//! comes in the run keeps. It routes: the turn of a session is in `turn`, its tool calls are in `calls` and `dispatch`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::boundary::{AgentInput, AgentOutcome, AgentsRefused, HumanAnswer, HumanNeeded, NotWaiting};
use super::crew::CrewRun;
use super::memory::{AgentMemory, Thread};
use super::message::{Message, all_answered};
use super::processes::Process;
use super::refusal::SessionFailure;
use super::rules::{AgentDef, AgentRules};
use super::session::{Session, SessionPlace};
use super::steps::StepsRun;
use crate::supervisor::core::account::Exhausted;
use crate::supervisor::core::key::{AgentsKey, CrewAsk, Key, SessionAsk};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Answer, Ask, Outbox};

/// Agents that take turns and call tools, until there is an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentLoop {
    pub(super) rules: AgentRules,
    /// In the order of the spec.
    pub(super) agents: Vec<AgentDef>,
    pub(super) thread: Thread,
    pub(super) sessions: BTreeMap<u32, Session>,
    pub(super) opened: u32,
    pub(super) processes: BTreeMap<u32, Process>,
    pub(super) processes_started: u32,
    /// What went on in the background and has failed, by the id of the process, as long as no agent has been told of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) failed_below: BTreeMap<String, String>,
    /// Which of them have failed for what a person said, or did not say.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) refused_below: BTreeSet<String>,
    pub(super) memories: BTreeMap<String, AgentMemory>,
    /// What an earlier run left of the memories of agents that have not been called yet, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) remembered: BTreeMap<String, Vec<Message>>,
    /// What people are asked. What else is waited for stands in the outbox.
    pub(super) humans: BTreeMap<AgentsKey, HumanNeeded>,
    /// What a person said while the root was at work: it is told before its next step, or begins its next turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) words: Vec<String>,
    /// What guards have answered to words that no agent was told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) blocked: Vec<String>,
    pub(super) work: Workload,
    /// Tool calls charged to this task, and to the conversation as a whole.
    pub(super) charged_task: u32,
    pub(super) charged_thread: u32,
    pub(super) steps: u32,
    /// How many tools each agent has called in the whole run, whoever gave it work (SUP-31).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) called: BTreeMap<String, u32>,
    /// Whose last turn a limit on calls has ended, and which limit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) cut_turns: BTreeMap<u32, String>,
    /// Whose turn the bound of the loop has ended with what there was.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) bounded: BTreeMap<u32, String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) limit_told: bool, // once: whoever hears of it is stopped by the same limit
    /// The budget has ended it, or left it one last word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cut: Option<Exhausted>,
    /// What a person said, or did not say, has ended it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) refused: bool,
    /// Agents that were given work, in order of the first time.
    pub(super) selected: Vec<String>,
    pub(super) outcome: Option<AgentOutcome>,
}

/// What the loop works off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Workload {
    /// One conversation, of this session.
    Conversation {
        root: u32,
    },
    Crew(CrewRun),
    Steps(StepsRun),
}

impl AgentLoop {
    /// A conversation that begins with one agent.
    pub fn start(
        rules: AgentRules,
        agents: Vec<AgentDef>,
        input: AgentInput,
        out: &mut Outbox,
    ) -> Result<AgentLoop, AgentsRefused> {
        let first = agents.first().ok_or(AgentsRefused::NoAgents)?.name.clone();
        let agent = input.agent.clone().unwrap_or(first);
        let mut it = AgentLoop::new(rules, agents, &input, Workload::Conversation { root: 0 })?;
        it.known(&agent)?;
        let (mut messages, variables) = (all_answered(input.messages), input.context_variables);
        messages.extend(input.task.map(Message::user));
        let root = it.open(&agent, SessionPlace::root(0, [1, 1]), messages, variables, out);
        if let Some(session) = it.sessions.get_mut(&root) {
            session.todos = input.todos;
        }
        it.work = Workload::Conversation { root };
        it.begin_turn(root, out);
        Ok(it)
    }

    pub(super) fn new(
        rules: AgentRules,
        agents: Vec<AgentDef>,
        input: &AgentInput,
        work: Workload,
    ) -> Result<AgentLoop, AgentsRefused> {
        super::toolbox::check(&rules, &agents)?;
        Ok(AgentLoop {
            rules,
            agents,
            thread: input.thread.clone(),
            sessions: BTreeMap::new(),
            opened: 0,
            processes: BTreeMap::new(),
            processes_started: 0,
            failed_below: BTreeMap::new(),
            refused_below: BTreeSet::new(),
            memories: BTreeMap::new(),
            remembered: input.memories.clone(),
            humans: BTreeMap::new(),
            words: Vec::new(),
            blocked: Vec::new(),
            work,
            charged_task: 0,
            charged_thread: input.charged_thread,
            steps: 0,
            limit_told: false,
            called: BTreeMap::new(),
            cut_turns: BTreeMap::new(),
            bounded: BTreeMap::new(),
            cut: None,
            refused: false,
            selected: Vec::new(),
            outcome: None,
        })
    }

    /// A call was answered.
    pub fn answered(&mut self, key: &AgentsKey, answer: Answer, out: &mut Outbox) {
        if !key.is_call() {
            // What people are asked is not answered by a call.
            return out.note(NoteKind::AttemptDropped, json!({"key": key}));
        }
        let waited = out.heard(key.clone());
        match self.asker(key).filter(|_| waited) {
            Some(asker) => match key {
                AgentsKey::Session { ask: SessionAsk::Step { .. }, .. } => self.step_answered(asker, answer, out),
                AgentsKey::Session { ask: SessionAsk::Format { .. }, .. } => self.formatted(asker, answer, out),
                AgentsKey::Session { ask: SessionAsk::Tool { call, .. }, .. } => {
                    self.function_answered(asker, *call, answer, out);
                }
                AgentsKey::Crew { ask: CrewAsk::Guard(_), .. } => self.guard_answered(asker as usize, answer, out),
                // These are timers, and questions to people.
                AgentsKey::Session {
                    ask:
                        SessionAsk::Approve { .. }
                        | SessionAsk::Deadline
                        | SessionAsk::Question { .. }
                        | SessionAsk::Sleep { .. },
                    ..
                }
                | AgentsKey::Crew { ask: CrewAsk::Feedback(_), .. } => {}
            },
            None => out.note(NoteKind::AttemptDropped, json!({"key": key})),
        }
        self.ask_nobody_in_vain(out);
        self.keep_time(out);
    }

    /// A timer fired. One that nobody waits for was cancelled too late.
    pub fn fired(&mut self, key: &AgentsKey, out: &mut Outbox) {
        if !key.is_timer() {
            return;
        }
        let waited = out.came(key.clone());
        match (self.asker(key).filter(|_| waited), key) {
            (Some(session), AgentsKey::Session { ask: SessionAsk::Deadline, .. }) => self.timed_out(session, out),
            (Some(session), AgentsKey::Session { ask: SessionAsk::Sleep { call, .. }, .. }) => {
                self.woke(session, *call, out);
            }
            _ => {}
        }
        self.ask_nobody_in_vain(out);
        self.keep_time(out);
    }

    /// A person answered: the question is off the list.
    pub fn human(&mut self, key: &AgentsKey, answer: HumanAnswer, out: &mut Outbox) -> Result<(), NotWaiting> {
        self.question(key)?;
        self.heard(key, Ok(answer), out);
        Ok(())
    }

    /// Nobody answered the question of an agent, or about an output, in time: the session fails, or the task. `false`: nobody
    /// asked so under this key.
    pub fn unanswered(&mut self, key: &AgentsKey, why: &str, out: &mut Outbox) -> bool {
        let fails = match key {
            AgentsKey::Session { ask, .. } => matches!(ask, SessionAsk::Question { .. }),
            AgentsKey::Crew { ask, .. } => matches!(ask, CrewAsk::Feedback(_)),
        };
        let is_asked = fails && self.humans.contains_key(key);
        if is_asked {
            self.heard(key, Err(SessionFailure::Unanswered(why.to_owned())), out);
        }
        is_asked
    }

    fn heard(&mut self, key: &AgentsKey, answer: Result<HumanAnswer, SessionFailure>, out: &mut Outbox) {
        if self.humans.remove(key).is_some()
            && let Some(asker) = self.asker(key)
        {
            self.person_answered(key, asker, answer, out);
        }
        self.ask_nobody_in_vain(out);
        self.keep_time(out);
    }

    fn person_answered(
        &mut self,
        key: &AgentsKey,
        asker: u32,
        answer: Result<HumanAnswer, SessionFailure>,
        out: &mut Outbox,
    ) {
        match (key, answer) {
            (AgentsKey::Session { ask: SessionAsk::Approve { call, .. }, .. }, Ok(answer)) => {
                self.tool_decided(asker, *call, &answer, out);
            }
            (AgentsKey::Session { ask: SessionAsk::Question { .. }, .. }, Ok(answer)) => {
                self.told_by_person(asker, &answer.feedback, out);
            }
            (AgentsKey::Session { ask: SessionAsk::Question { .. }, .. }, Err(why)) => self.ended(asker, Err(why), out),
            (AgentsKey::Crew { ask: CrewAsk::Feedback(_), .. }, Ok(answer)) => {
                self.feedback_given(asker as usize, &answer, out);
            }
            (AgentsKey::Crew { ask: CrewAsk::Feedback(_), .. }, Err(why)) => {
                self.not_looked_at(asker as usize, &why, out);
            }
            // Nothing else is asked of people.
            _ => {}
        }
    }

    /// While the run stands still nothing starts; what is under way ends, and no delegation is given up. When it goes on,
    /// whoever has found a memory free begins, and so does what people have said meanwhile.
    pub fn held_or_not(&mut self, out: &mut Outbox) {
        if !out.is_held() {
            self.next_of_all(out);
            self.hear_late_words(out);
        }
        self.keep_time(out);
    }

    /// Ends everything that is under way, background processes too.
    pub fn cancel(&mut self, reason: &str, out: &mut Outbox) {
        self.humans.clear();
        self.words.clear();
        for key in waits(out) {
            retract(key, out);
        }
        self.nobody_waits();
        self.kill_all_processes(out);
        let open: Vec<u32> =
            self.sessions.iter().filter(|(_, session)| !session.is_over()).map(|(seq, _)| *seq).collect();
        for seq in open {
            self.closed(seq, false, out);
        }
        if self.outcome.is_none() {
            self.outcome = Some(self.outcome_of(Err(SessionFailure::Stopped(reason.to_owned()))));
        }
    }

    /// Takes back what was asked under a key, if it is waited for.
    pub(super) fn take_back(&mut self, key: &AgentsKey, out: &mut Outbox) {
        self.humans.remove(key);
        if is_awaited(key, out) {
            retract(key.clone(), out);
        }
    }

    /// Whether an answer, a time or a person is waited for under this key.
    pub(super) fn waits_for(&self, key: &AgentsKey, out: &Outbox) -> bool {
        self.humans.contains_key(key) || is_awaited(key, out)
    }

    /// Who asked for what is waited for under a key: the number of a session, or the item of a crew.
    pub(super) fn asker(&self, key: &AgentsKey) -> Option<u32> {
        match key {
            AgentsKey::Session { path, .. } => {
                self.sessions.iter().rev().find(|(_, session)| session.path == *path).map(|(seq, _)| *seq)
            }
            AgentsKey::Crew { task, .. } => match &self.work {
                Workload::Crew(run) => run.place(task).and_then(|at| u32::try_from(at).ok()),
                Workload::Conversation { .. } | Workload::Steps(_) => None,
            },
        }
    }

    /// What people are asked, and what else is waited for, each with whoever asked, in the order of keys.
    pub(super) fn waits(&self, out: &Outbox) -> Vec<(AgentsKey, u32)> {
        let keys: BTreeSet<AgentsKey> = self.humans.keys().cloned().chain(waits(out)).collect();
        keys.into_iter().filter_map(|key| self.asker(&key).map(|asker| (key, asker))).collect()
    }

    pub fn outcome(&self) -> Option<&AgentOutcome> {
        self.outcome.as_ref()
    }

    pub(super) fn def(&self, agent: &str) -> Option<&AgentDef> {
        self.agents.iter().find(|def| def.name == agent)
    }

    pub(super) fn known(&self, agent: &str) -> Result<(), AgentsRefused> {
        self.def(agent).map(|_| ()).ok_or_else(|| AgentsRefused::Unknown(agent.to_owned()))
    }

    /// Agents that a root gives work to are remembered, once each; whom those ask is their matter.
    pub(super) fn select(&mut self, caller: u32, agent: &str) {
        let by_root = self.sessions.get(&caller).is_some_and(|session| session.parent.is_none());
        if by_root && !self.selected.iter().any(|name| name == agent) {
            self.selected.push(agent.to_owned());
        }
    }
}

fn is_awaited(key: &AgentsKey, out: &Outbox) -> bool {
    let key = key.clone().into();
    out.awaited().awaits(&key) || out.awaited().left(&key, out.now()).is_some()
}

/// The answers and times that agents wait for.
fn waits(out: &Outbox) -> BTreeSet<AgentsKey> {
    let of_agents = |key: &Key| match key {
        Key::Agents(key) => Some(key.clone()),
        _ => None,
    };
    out.awaited().calls().chain(out.awaited().times()).filter_map(of_agents).collect()
}

fn retract(key: AgentsKey, out: &mut Outbox) {
    match key {
        AgentsKey::Session {
            ask: SessionAsk::Step { .. } | SessionAsk::Format { .. } | SessionAsk::Tool { .. },
            ..
        }
        | AgentsKey::Crew { ask: CrewAsk::Guard(_), .. } => out.ask(Ask::CancelCall { key: key.into() }),
        AgentsKey::Session { ask: SessionAsk::Deadline | SessionAsk::Sleep { .. }, .. } => out.cancel_timer(key),
        // The run asks people what the view still shows.
        AgentsKey::Session { ask: SessionAsk::Approve { .. } | SessionAsk::Question { .. }, .. }
        | AgentsKey::Crew { ask: CrewAsk::Feedback(_), .. } => {}
    }
}
